"""One old layer as a layer of Keras 3: its class, its configuration, its weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from rnnconvert.core.arrays import FLOATS, Array, PiecewiseArray
from rnnconvert.core.cells import HARD_SIGMOID_KERAS_2, HARD_SIGMOID_KERAS_3, SIGMOID, TANH, Activation, Cell
from rnnconvert.core.weights import Direction, Layer, Recurrent
from rnnconvert.formats.keras.config import KINDS, functions, labels, snake_case
from rnnconvert.formats.keras.graph import VARIABLES
from rnnconvert.formats.keras.keys import Arrays, contradicted
from rnnconvert.formats.keras.model.entries import NORMED, Entry
from rnnconvert.formats.keras.model.tree import SourceLayer
from rnnconvert.formats.keras.upgrade import tables as tables
from rnnconvert.formats.keras.upgrade.assign import words_of
from rnnconvert.formats.keras.upgrade.config import Translator, rule_of, serialised
from rnnconvert.formats.keras.upgrade.notes import refuse
from rnnconvert.language import registry
from rnnconvert.language.fitting import fit, misfit
from rnnconvert.language.layout import Layout
from rnnconvert.language.packing import pack, unpack
from rnnconvert.rewrites.scale_hard_sigmoid import SCALE_HARD_SIGMOID
from rnnconvert.rewrites.sum_biases import SUM_BIASES

if TYPE_CHECKING:
    from rnnconvert.formats.keras.upgrade.model import NewModel

OLD_HARD_SIGMOID = "old_hard_sigmoid"
"""Stands in the settings of a layer whose hard_sigmoid is Keras 2's, 0.2 x + 0.5."""
_SCALED = "its weights before the old hard_sigmoid, 0.2 x + 0.5, are multiplied by 1.2 (rounded) for Keras 3's x / 6 + 0.5"


@dataclass
class New:
    """A layer of Keras 3.

    variables  below the layer's own path: the path, the name of the owner, the arrays
    softens    whether the old hard_sigmoid is all that it computes
    """

    name: str
    class_name: str
    config: dict[str, Any]
    variables: list[tuple[str, str, list[Array | PiecewiseArray]]] = field(default_factory=list)
    module: str = "keras.layers"
    registered: str | None = None
    softens: bool = False

    def serialised(self) -> dict[str, Any]:
        """Return it as a configuration holds it."""
        document = serialised(self.class_name, self.config, self.module)
        return {**document, "registered_name": self.registered}


class Layers:
    """The layers of one file.

    backend  the backend that wrote it, "" where the file does not state it
    keeps_weights  whether a layer with the old hard_sigmoid behind it keeps its weights, and says so by OLD_HARD_SIGMOID: for what
             writes that function
    """

    def __init__(self, translator: Translator, backend: str, keeps_weights: bool = False) -> None:
        self.translator, self.backend, self.keeps_weights = translator, backend, keeps_weights
        self.notes = translator.notes

    def new(self, old: SourceLayer, name: str, batch: int | None = None, model: NewModel | None = None) -> New:
        """Return any layer but a model.

        batch  how many sequences a batch has, if that is fixed
        model  what is inside of a TimeDistributed, if that is a model
        Raises RefusedError for features that Keras 3 cannot hold.
        """
        rule = rule_of(old.entry)
        translated = self.translator.translate(name, rule, old.config)
        new = New(name, rule.new, translated.config)
        if old.kind != rule.new:
            self.notes.change(name, f"{old.kind} is {rule.new} now")
        if old.kind in KINDS:
            self._recurrent(old, new)
            below = "" if old.kind.endswith("Cell") else "cell"
            new.variables = [(below, snake_case(f"{rule.new.removesuffix('Cell')}Cell"), self._cell(old, new))]
        elif old.kind == NORMED:
            self._normed(old, new, rule)
        elif old.kind.startswith("ConvLSTM"):
            self._convolving(old, new, rule)
        elif old.kind == "RNN":
            self._stack(old, new)
        elif old.kind == "StackedRNNCells":
            new.config.pop("name", None)
        elif old.kind == "Bidirectional":
            self._both(old, new, batch)
        elif model is not None:
            new.config["layer"] = model.serialised()
            new.variables = [*model.variables("layer")]
        elif old.kind == "TimeDistributed":
            inner = self.new(old.inside[0], old.inside[0].name or "layer")
            if inner.softens:
                raise refuse(old.name, "the old hard_sigmoid in a TimeDistributed", "it takes two layers there")
            new.config["layer"] = inner.serialised()
            new.variables = [(_below("layer", path), label, arrays) for path, label, arrays in inner.variables]
        else:
            self._plain(old, new, rule, translated.softened)
        if new.config.get("stateful") and batch is None:
            raise refuse(
                old.name,
                "a stateful layer without a fixed batch",
                "Keras 3 makes its states when it is built",
                "Give the old model a batch_input_shape with a batch size.",
            )
        return new

    def _plain(self, old: SourceLayer, new: New, rule: tables.ClassRule, softened: bool) -> None:
        """Give a layer without time its weights."""
        if softened and not rule.scaled:
            new.softens = True
        if ("Conv" in rule.new or "Pooling" in rule.new) and self.backend == "theano" and new.config.get("padding") == "same":
            raise refuse(old.name, f"a {old.kind} of Theano with padding 'same'", "Theano pads on other sides than TensorFlow")
        if ("Conv" in rule.new or "Pooling" in rule.new) and self.backend == "cntk":
            raise refuse(old.name, f"a {old.kind} of CNTK", "where CNTK pads is unknown")
        arrays = {word: self._turned(old, new, word, array) for word, array in old.arrays.items()}
        if softened and rule.scaled and self.keeps_weights:
            new.config[OLD_HARD_SIGMOID] = True
        elif softened and rule.scaled:
            for word in set(rule.scaled.split()) & set(arrays):
                arrays[word] = arrays[word] * arrays[word].dtype.type(1.2)
            self.notes.change(new.name, _SCALED)
        _check_sizes(old.name, new.config, rule, arrays)
        if arrays:
            ordered = [arrays[alternatives[0]] for alternatives, _ in words_of(old)]
            new.variables = [("", new.name, list(ordered))]

    def _convolving(self, old: SourceLayer, new: New, rule: tables.ClassRule) -> None:
        """Give an LSTM whose products are convolutions its weights; the gates are i f c o along their last axis."""
        unstated = [key for key in ("activation", "recurrent_activation") if key not in old.config]
        if unstated:
            raise refuse(old.name, f"a {old.kind} without {unstated[0]}", "its configuration does not state it")
        candidate, gates = functions(old.entry, self.translator.era)
        if candidate == HARD_SIGMOID_KERAS_2:
            raise refuse(old.name, "the old hard_sigmoid as a candidate", "the state goes through it, too, which has no weights to scale")
        softened = gates == HARD_SIGMOID_KERAS_2
        self._plain(old, new, rule, softened=False)
        ((_, label, arrays),) = new.variables
        if softened and self.keeps_weights:
            new.config[OLD_HARD_SIGMOID] = True
        elif softened:
            arrays = [_gates_scaled(np.asarray(array)) for array in arrays]
            self.notes.change(new.name, _SCALED)
        new.variables = [("cell", label, arrays)]

    def _normed(self, old: SourceLayer, new: New, rule: tables.ClassRule) -> None:
        """Give an LSTM with norms its weights, for what describes it: Keras 3 has no such cell."""
        if not self.keeps_weights:
            raise refuse(
                old.name, "the layer norms in an LSTM", "Keras 3 has no such cell", "rnnconvert export writes the model in other formats."
            )
        self._convolving(old, new, rule)
        new.module, new.registered = "tensorflow_addons.rnn", NORMED
        new.variables = [("", label, arrays) for _, label, arrays in new.variables]
        new.variables += [(norm.name, norm.name, [*norm.arrays.values()]) for norm in old.inside]

    def _turned(self, old: SourceLayer, new: New, word: str, array: Array) -> Array:
        """Return a convolution's kernel as Keras 3 has it: axes of Keras 1 exchanged, Theano's reversed."""
        rule = rule_of(old.entry)
        if "Conv" not in rule.new:
            return array
        if word not in rule.turned.split():
            if self.backend == "theano" and array.ndim > 1:
                raise refuse(old.name, f"a {old.kind} of Theano", "how Theano turns its weights is unknown")
            return array
        space = int(rule.new.partition("D")[0][-1])
        if self.translator.era.major == 1 and array.ndim == 4:
            array = self._of_keras_1(new, array)
        if array.ndim != space + 2:
            raise refuse(old.name, f"a kernel of shape {array.shape}", f"a {new.class_name} has {space + 2} axes")
        if self.backend == "theano":
            array = array[tuple(slice(None, None, -1) for _ in range(space))]
            self.notes.change(new.name, "its kernel is reversed: Theano computes the true convolution")
        return array

    def _of_keras_1(self, new: New, array: Array) -> Array:
        """Return the kernel of a Convolution1D or 2D of Keras 1 as (space, in, out)."""
        filters = new.config.get("filters")
        if new.class_name == "Conv1D":
            length = new.config.get("kernel_size")
            if array.shape[:2] != (length, 1) or array.shape[3] != filters:  # (filters, in, length, 1), of Keras 1.1
                array = array.transpose(2, 3, 1, 0)
            return array[:, 0]
        if new.config.get("data_format") == "channels_first":
            self.notes.change(new.name, "its kernel of Theano's order, (filters, in, rows, columns), has the axes of Keras 3")
            return array.transpose(2, 3, 1, 0)
        return array

    def _recurrent(self, old: SourceLayer, new: New) -> None:
        """State the functions of a recurrent layer, which old files may leave to the version."""
        if old.kind.startswith("CuDNN"):
            return
        config = new.config
        stated = functions(old.entry, self.translator.era)
        keys = ("activation",) if KINDS[old.kind] == "rnn" else ("activation", "recurrent_activation")
        for key, function in zip(keys, stated, strict=False):
            spellings = (key, "inner_activation") if key == "recurrent_activation" else (key,)
            stated_here = [old.config[spelling] for spelling in spellings if spelling in old.config]
            if not stated_here:
                self.notes.change(new.name, f"{key} is {function.name}, the default of the version that wrote the file")
            config[key] = self.translator.function(key, function.name if not stated_here or stated_here[0] is None else stated_here[0])

    def _cell(self, old: SourceLayer, new: New) -> list[Array | PiecewiseArray]:
        """Return a recurrent cell's weights as Keras 3 has them."""
        direction, layout = self.direction(old)
        bias = direction.biases != "none"
        after = direction.cell.reset_after if bias and "cudnn" not in layout.name else None
        arrays = Arrays(direction.hidden_size, direction.input_size, bias, after)
        stated = Entry(new.name, new.class_name, {**old.config, **new.config})
        for wrong, _ in contradicted(stated, arrays):
            raise refuse(old.name, "a configuration that contradicts its weights", wrong)
        if "units" not in new.config:
            raise refuse(old.name, "a layer without units", "its configuration does not state them")
        if layout.reset_after is not None and KINDS[old.kind] == "gru":
            new.config["reset_after"] = bool(direction.cell.reset_after)
        new.config["use_bias"] = direction.biases != "none"
        for role in ("gate_activation", "activation"):
            if getattr(direction.cell, role) == HARD_SIGMOID_KERAS_2:
                obstacle = SCALE_HARD_SIGMOID.applies(direction, HARD_SIGMOID_KERAS_3, role)
                if obstacle is not None or (role == "activation" and direction.cell.kind == "lstm"):
                    reason = obstacle.reason if obstacle else "the state goes through it, too, which has no weights to scale"
                    raise refuse(old.name, "the old hard_sigmoid as a candidate", reason)
                direction = SCALE_HARD_SIGMOID.apply(direction, HARD_SIGMOID_KERAS_3, role)
                self.notes.change(new.name, _SCALED)
        target = registry.layout("keras", direction.cell.kind, direction.cell.reset_after)
        if direction.cell.kind == "lstm" and direction.biases == "both":
            direction = SUM_BIASES.apply(direction)
            self.notes.change(new.name, "its two biases are summed")
        if "cudnn" in layout.name:
            self.notes.change(new.name, "its weights have the order of Keras's own cell now")
        single = Recurrent("", (Layer((direction,)),))
        packed = pack(target, single, direction.dtype.newbyteorder("="))
        return [packed[name] for name in VARIABLES if name in packed]

    def direction(self, old: SourceLayer) -> tuple[Direction, Layout]:
        """Return a recurrent layer's weights, and how the file lays them out."""
        kind: Any = KINDS[old.kind]
        names = {"kernel": "kernel", "recurrent_kernel": "recurrent_kernel", "bias": "bias"}
        if self.translator.era.major == 1:
            names = {"kernel": "W", "recurrent_kernel": "U", "bias": "b"}
        arrays = {names.get(word, word): array for word, array in old.arrays.items()}
        shapes = {word: tuple(array.shape) for word, array in arrays.items()}
        cudnn = old.kind.startswith("CuDNN")
        tried = [
            form
            for form in registry.layouts_of("keras")
            if form.kind == kind and "peephole" not in form.name and ("cudnn" in form.name or not cudnn)
        ]
        fitting = [(form, sizes) for form in tried if (sizes := fit(form, shapes)) is not None]
        if not fitting:
            raise refuse(old.name, "these weights", misfit(tried, shapes))
        dtypes = {str(array.dtype.newbyteorder("=")) for array in arrays.values()}
        if len(dtypes) > 1 or not dtypes <= set(FLOATS):
            raise refuse(old.name, f"weights of {', '.join(sorted(dtypes))}", "a cell computes in one type of real numbers")
        after = bool(old.config.get("reset_after", False)) or cudnn
        chosen = [pair for pair in fitting if kind != "gru" or pair[0].reset_after == after] or fitting
        layout, sizes = chosen[0]
        candidate, gates = functions(old.entry, self.translator.era)
        if "cudnn" in layout.name and (candidate, gates) != (TANH, SIGMOID):
            what = f"weights of a CuDNN{old.kind} in a {old.kind} through {candidate} and {gates}"
            remedy = "If that is meant, set recurrent_activation to sigmoid in the configuration."
            raise refuse(old.name, what, "they were trained with tanh and sigmoid", remedy)
        plain: Activation = TANH if kind != "lstm" else candidate
        cell = Cell(kind, layout.reset_after, candidate, gates if kind != "rnn" else SIGMOID, plain)
        return Direction(cell, unpack(layout, sizes, arrays)[0, 0]), layout

    def _stack(self, old: SourceLayer, new: New) -> None:
        """Give an RNN around cells its cells."""
        cell = old.inside[0]
        if cell.kind == "StackedRNNCells" and new.config.get("return_state"):
            raise refuse(old.name, "return_state of stacked cells", "both eras list nested states in their own order")
        if cell.kind == "StackedRNNCells":
            inner = [self.new(cell_, cell_.name or f"cell_{number}") for number, cell_ in enumerate(cell.inside)]
            config = {"cells": [cell_.serialised() for cell_ in inner]}
            self.translator.translate(old.name, rule_of(replace(cell.entry, name=old.name)), cell.config)
            new.config["cell"] = serialised("StackedRNNCells", config)
            for part, group in zip(inner, labels(part.class_name for part in inner), strict=True):
                new.variables += [(_below(f"cell/cells/{group}", path), label, arrays) for path, label, arrays in part.variables]
            return
        single = self.new(cell, cell.name or "cell")
        new.config["cell"] = single.serialised()
        new.variables = [(_below("cell", path), label, arrays) for path, label, arrays in single.variables]

    def _both(self, old: SourceLayer, new: New, batch: int | None) -> None:
        """Give a Bidirectional its two layers."""
        for key, word, side in zip(("layer", "backward_layer"), ("forward", "backward"), old.inside, strict=True):
            inner = self.new(side, side.name, batch)
            for text in self.notes.changes.pop(side.name, []):
                self.notes.change(new.name, text)
            new.config[key] = inner.serialised()
            new.variables += [(f"{word}_layer/{path}", label, arrays) for path, label, arrays in inner.variables]


def _below(place: str, path: str) -> str:
    """Return the path of variables in a layer that is inside of another one."""
    return "/".join(filter(None, (place, path)))


def _gates_scaled(array: Array) -> Array:
    """Return an array of the gates i f c o, those that go through the old hard_sigmoid multiplied by 1.2."""
    factors = np.repeat(np.array([1.2, 1.2, 1, 1.2], array.dtype), array.shape[-1] // 4)
    scaled: Array = array * factors
    return scaled


def _check_sizes(name: str, config: Mapping[str, Any], rule: tables.ClassRule, arrays: Mapping[str, Array]) -> None:
    """Raise a RefusedError if the sizes of a new configuration are not its weights'."""
    for word in rule.sizes.split():
        key, _, place = word.partition(":")
        weight, _, axis = place.partition(".")
        if weight not in arrays:
            continue
        shape = arrays[weight].shape
        if axis != "space" and not -len(shape) <= int(axis) < len(shape):
            raise refuse(name, f"a {weight} of shape {shape}", f"{key} is its axis {axis}")
        actual = list(shape[:-2]) if axis == "space" else shape[int(axis)]
        stated = config.get(key, 1 if key == "depth_multiplier" else None)
        stated = [stated] * len(shape[:-2]) if axis == "space" and isinstance(stated, int) else stated
        if stated != actual:
            raise refuse(name, f"{key} = {stated}", f"its weights show {actual}: {weight} has the shape {shape}")


def rewritten(config: Mapping[str, Any], name: str) -> list[New]:
    """Return the two layers that compute the old hard_sigmoid: 0.2 x + 0.5, clipped to 0 and 1."""
    common = {key: config[key] for key in ("trainable", "dtype") if key in config}
    first = New(f"{name}_line", "Rescaling", {"name": f"{name}_line", **common, "scale": 0.2, "offset": 0.5})
    return [first, New(name, "ReLU", {"name": name, **common, "max_value": 1.0, "negative_slope": 0.0, "threshold": 0.0})]
