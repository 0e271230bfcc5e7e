"""How data flows through a Keras model, according to its configuration: what each layer reads, and how it was flattened."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rnnconvert.formats.keras.model.entries import Entry
from rnnconvert.formats.keras.model.layered import Layered
from rnnconvert.formats.keras.model.masks import ADDING
from rnnconvert.models.model import Flat

_ELEMENTWISE = (
    "Dropout", "Activation", "ReLU", "LeakyReLU", "ELU", "Softmax", "GaussianNoise", "GaussianDropout", "AlphaDropout",
    "ThresholdedReLU", "InputLayer", "ActivityRegularization", "Rescaling", "Masking", "RepeatVector", "PReLU", "Identity",
    "SpatialDropout1D", "SpatialDropout2D", "SpatialDropout3D", "BatchNormalization", "LayerNormalization",
    "GroupNormalization", "RMSNormalization", "UnitNormalization",
)  # fmt: skip
_OVER_SPACE = re.compile(r"(Max|Average)Pool(ing)?\dD|ZeroPadding\dD|Cropping\dD|UpSampling\dD")
_TO_CHANNELS = re.compile(r"Global(Max|Average)Pool(ing)?\dD")
_CONV = re.compile(r"(Depthwise|Separable)?Conv(olution)?(\d)D(Transpose)?")
_ENDS = ("Bidirectional", "RNN", "LSTM", "GRU", "SimpleRNN", "Embedding", "CuDNNLSTM", "CuDNNGRU", "Highway", "MaxoutDense")


@dataclass(frozen=True)
class _LayerValues:
    """The output of a layer.

    axes    the axes behind the batch: t of time, s0 s1 of space, c of channels; none if no convolution is seen in it
    of      the layers whose channels these are, one after the other
    order   how they were flattened, "?" if that is not seen; "" before
    joined  whether other values are among them
    """

    axes: tuple[str, ...] = ()
    of: tuple[str, ...] = ()
    order: str = ""
    joined: bool = False


class KerasFlow:
    """Which layers of a model read which, including layers of the models inside it; a layer that is called several times reads it all."""

    def __init__(self, model: Entry, era: int = 0) -> None:
        """Follow a model of Keras 1, 2 or 3; 0 where its file does not state which."""
        self.layers: dict[str, Entry] = {}
        self.reads: dict[str, list[str]] = {}
        self._values_of: dict[str, _LayerValues | None] = {}
        self._twice: set[str] = set()
        self._masks: dict[str, list[str]] = {}
        configs: dict[str, int] = {}
        for step in Layered(model, "the configuration", era).steps:
            name = step.layer.name
            if configs.setdefault(name, id(step.layer.config)) != id(step.layer.config):
                self._twice.add(name)
                continue
            self.layers[name] = _inside(step.layer)
            others = [tensor for tensor in step.others if tensor.step not in step.passed]
            below = [tensor.step.layer.name for tensor in (*step.reads, *others)]
            self.reads[name] = list(dict.fromkeys([*self.reads.get(name, []), *below]))
            self._masks.setdefault(name, []).extend(origin.steps for origin in step.origins or () if origin.steps)

    def flattened(self, name: str, channels: Mapping[str, int]) -> Flat | None:
        """Return how the input of a layer was flattened; None if the model does not show what the layer reads."""
        values = self._below(name)
        if values is None:
            return None
        if not values.order:
            return Flat()
        if any(source not in channels for source in values.of):
            return None
        order = "" if values.order == "?" else values.order
        return Flat(order, sum(channels[source] for source in values.of), values.joined)

    def _below(self, name: str) -> _LayerValues | None:
        """Return the input of a layer; if it is called several times, the input of each call, if they are the same."""
        if name not in self.layers or name in self._twice:
            return None
        values = {self._given_values(below) for below in self.reads[name]}
        if not values:
            return _LayerValues() if self.layers[name].class_name == "InputLayer" or self._is_first(name) else None
        return values.pop() if len(values) == 1 else None

    def _is_first(self, name: str) -> bool:
        return next(iter(self.layers), "") == name

    def _given_values(self, name: str) -> _LayerValues | None:
        if name not in self._values_of:
            self._values_of[name] = None  # a layer that reads its own output shows nothing
            self._values_of[name] = self._output_values(name)
        return self._values_of[name]

    def _output_values(self, name: str) -> _LayerValues | None:
        layer = self.layers.get(name)
        if layer is None or not layer.built_in or name in self._twice:
            return None
        time = ("t",) if layer.config.get("inside") else ()
        if conv := _CONV.fullmatch(layer.class_name):
            space = tuple(f"s{axis}" for axis in range(int(conv[3])))
            return _LayerValues((*time, "c", *space) if _first(layer) else (*time, *space, "c"), (name,))
        if layer.class_name in ADDING:
            return _merged([self._given_values(below) for below in self.reads[name]])
        if layer.class_name == "Concatenate":
            return _joined([self._given_values(below) for below in self.reads[name]], layer.config.get("axis", -1))
        return _through_layer(name, layer, self._below(name), time)

    def masks(self, name: str) -> str:
        """Return the steps that a layer skips, as set by a Masking before it; "none" without such a layer."""
        return " and ".join(dict.fromkeys(self._masks.get(name, ()))) or "none"

    def is_line(self, paths: Iterable[str]) -> bool:
        """Return whether data goes through the layers at some paths one after the other, so that their order is meaningful."""
        ranks = {name: number for number, name in enumerate(self.layers)}
        inside = [next((part for part in reversed(path.split("/")) if part in ranks), "") for path in paths]
        names = list(dict.fromkeys(inside))
        return not {"", *self._twice} & {*names} and all(self._leads(place, below, ranks) for place, below in itertools.pairwise(names))

    def _leads(self, place: str, below: str, ranks: Mapping[str, int]) -> bool:
        """Return whether what a layer gives reaches another one."""
        left, seen = [below], {below}
        while left:
            above = [name for name in self.reads[left.pop()] if name not in seen and ranks.get(name, -1) >= ranks[place]]
            if place in above:
                return True
            seen.update(above)
            left += above
        return False

    def unflattened(self) -> dict[str, Flat]:
        """Return how the outputs of layers are cut into channels for a convolution that reads them reshaped."""
        flats: dict[str, Flat] = {}
        for name, layer in self.layers.items():
            if not _CONV.fullmatch(layer.class_name):
                continue
            passed = self._single_path_to(
                name, lambda passed_layer: bool(_OVER_SPACE.fullmatch(passed_layer.class_name)) or passed_layer.class_name == "Permute"
            )
            shape = self.layers[passed[-1]] if passed else layer
            if shape.class_name != "Reshape" or len(sizes := shape.config.get("target_shape") or ()) < 2:
                continue
            turned = any(self.layers[passed_name].class_name == "Permute" for passed_name in passed)
            rows = self._single_path_to(passed[-1], lambda any_layer: False)
            dense = self.layers[rows[-1]] if rows else shape
            units = dense.config.get("units", dense.config.get("output_dim"))
            if dense.class_name != "Dense" or not isinstance(units, int):
                continue
            first = _first(layer)
            channels = sizes[0 if first else -1]
            if channels == -1:
                channels = units // max(1, -math.prod(sizes))
            if turned:
                order = ""
            elif first:
                order = "channels_first"
            else:
                order = "channels_last"
            flats |= dict.fromkeys(rows, Flat(order, channels))
        return flats

    def _single_path_to(self, name: str, passes: Any) -> list[str]:
        """Return the layers before one, each the only one that the next reads, to the first that changes the values."""
        path: list[str] = []
        while len(below := self.reads.get(name, [])) == 1 and (name := below[0]) in self.layers and name not in path:
            path.append(name)
            if self.layers[name].class_name not in _ELEMENTWISE and not passes(self.layers[name]):
                break
        return path


def _first(layer: Entry) -> bool:
    """Return whether channels come first."""
    return layer.config.get("data_format") == "channels_first" or layer.config.get("dim_ordering") == "th"


def _through_layer(name: str, layer: Entry, below: _LayerValues | None, time: tuple[str, ...]) -> _LayerValues | None:
    """Return the output of a layer that reads one value."""
    kind = layer.class_name
    if below is None or kind in _ENDS or _TO_CHANNELS.fullmatch(kind):
        return None if below is None and kind not in _ENDS and kind != "Dense" else _LayerValues()
    if kind == "Dense":
        return replace(below, of=(name,)) if below.axes[-1:] == ("c",) and not below.order else _LayerValues()
    if not below.axes or kind in _ELEMENTWISE:
        return below
    if _OVER_SPACE.fullmatch(kind):
        return None if below.order else below
    if kind in ("Flatten", "Reshape", "Permute") and not below.order:
        axes = below.axes[len(time) :] if below.axes[: len(time)] == time else ()
        return _turned(layer, below, axes)
    return below if kind == "Flatten" else None


def _turned(layer: Entry, below: _LayerValues, axes: tuple[str, ...]) -> _LayerValues | None:
    """Return the result of a Flatten, a Reshape or a Permute on unflattened axes."""
    space = sorted(axis for axis in axes if axis.startswith("s"))
    if layer.class_name == "Permute":
        turn = layer.config.get("dims") or ()
        permutes = sorted(turn) == list(range(1, len(axes) + 1))
        return replace(below, axes=tuple(axes[number - 1] for number in turn)) if permutes else None
    target: Any = layer.config.get("target_shape")
    if layer.class_name == "Flatten" and _first(layer):
        axes = (*axes[1:], *axes[:1])
    if layer.class_name == "Reshape" and not isinstance(target, (list, tuple)):
        return None
    if layer.class_name == "Reshape" and len(target) > 1:
        return replace(below, order="channels_last" if axes[-1:] == ("c",) and [*axes[-1 - len(space) : -1]] == space else "?")
    orders = {(*space, "c"): "channels_last", ("c", *space): "channels_first"}
    order = orders.get(axes, "?")
    return replace(below, order=order, joined=order == "?" and "t" in axes)


def _merged(below: Sequence[_LayerValues | None]) -> _LayerValues | None:
    """Return the result of an elementwise computation on several values: its order is that of those from a convolution."""
    if any(values is None for values in below):
        return None
    shaped = [values for values in below if values is not None and values.axes]
    if any(replace(values, of=()) != replace(shaped[0], of=()) for values in shaped):
        return None
    return shaped[0] if shaped else _LayerValues()


def _joined(below: Sequence[_LayerValues | None], axis: Any) -> _LayerValues | None:
    """Return the values joined side by side along an axis."""
    present = [values for values in below if values is not None]
    shaped = [values for values in present if values.axes]
    if len(present) < len(below):
        return None
    if not shaped:
        return _LayerValues()
    flat = next((values for values in shaped if values.order), None)
    if flat is not None:
        return replace(flat, joined=True)
    axes = shaped[0].axes
    if len(shaped) < len(below) or any(values.axes != axes for values in shaped) or not isinstance(axis, int):
        return None
    along = axes[axis - 1 if axis > 0 else axis] if -len(axes) <= axis <= len(axes) and axis else ""
    return replace(shaped[0], of=tuple(name for values in shaped for name in values.of)) if along == "c" else shaped[0]


def _inside(layer: Entry) -> Entry:
    """Return the layer inside a TimeDistributed, marked as such."""
    inner = layer.inner("layer") if layer.class_name == "TimeDistributed" else None
    return layer if inner is None else replace(inner, config={**inner.config, "inside": True})
