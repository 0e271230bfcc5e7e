"""A Chain of Flux, as a .bson holds a whole model, as rnnconvert.scaffolding describes models.

Source: Flux.jl, src/layers/basic.jl (Chain, Dense, Embedding), normalise.jl (Dropout) and recurrent.jl, of 0.8 to 0.16.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rnnconvert.core.arrays import Source
from rnnconvert.core.errors import RefusedError, UsageError
from rnnconvert.core.names import is_count
from rnnconvert.formats.julia.files_flux import FUNCTIONS
from rnnconvert.formats.julia.julia_tree import below
from rnnconvert.formats.julia.metadata import JuliaMetadata

if TYPE_CHECKING:  # a conversion enters no scaffolding
    from rnnconvert.models.model import Unit
    from rnnconvert.scaffolding.description import Description
    from rnnconvert.scaffolding.rows import LayerRow
    from rnnconvert.scaffolding.tensors import SourceTensor

NAME = "flux"
_ALPHAS = {"elu": 1.0, "leaky_relu": 0.01}
"""The numbers of NNlib's functions where their callers state none. Source: NNlib.jl, src/activations.jl."""
_OVER_VALUES = {"softmax": "softmax", "logsoftmax": "log_softmax"}
"""Functions of all values of a step, which are layers of a Chain alone."""
_AXES = (
    "it reads (batch, time, values), or whole numbers (batch, time), which count from 1 as Flux's do: Flux has the values first, "
    "and from 0.15 on the time before the batch"
)
_BEGUN = "each call begins with the states that Flux.reset! goes back to, where a Recur of Flux goes on from its last call"
_WAY_OUT = "Convert its recurrent layers alone: rnnconvert convert"


def describe(path: Path, partial: bool = False) -> Description:
    """Return the model of a file. It begins with the states that Flux.reset! goes back to.

    Raises UsageError for a file without a Chain, or with several; RefusedError for a layer that is not known, with its place.
    """
    from rnnconvert.files.load import load
    from rnnconvert.models.readers import model_of
    from rnnconvert.scaffolding.rows import LayerRow

    checkpoint = load(path, NAME)
    metadata = checkpoint.metadata_as(JuliaMetadata)
    chains = [place for place, (words, _) in metadata.get("types", {}).items() if _name(words) == "Chain"]
    outermost = [place for place in chains if not any(place.startswith(f"{chain}/") for chain in chains)]
    if not outermost:
        raise UsageError(f"{path} holds weights without a model: that of Flux is a Chain in a .bson, as BSON.@save of the model writes it")
    if len(outermost) > 1:
        raise UsageError(f"{path} holds several models: {', '.join(map(repr, outermost))}. Save one alone")
    units = {unit.name: unit for unit in model_of(checkpoint).units}
    layers = list(_layers(metadata, outermost[0]))
    first = next(((units[place], word) for place, word in layers if place in units), None)
    if first is None:
        raise UsageError(f"{path} holds a Chain without a layer that has weights")
    row = LayerRow(0 if first[1] == "Embedding" else _sizes(first[0], checkpoint.tensors)[1])
    x = row.begin
    for place, word in layers:
        x = _layer(row, x, _FluxLayer(place, word, units.get(place), metadata["values_by_struct"].get(place, {}), checkpoint.tensors))
    goes_on = any(_name(words) == "Recur" for words, _ in metadata["types"].values())
    return row.described(x, [_AXES, *[_BEGUN] * goes_on])


def _layers(metadata: JuliaMetadata, chain: str) -> Iterator[tuple[str, str]]:
    """Yield the places of a Chain's layers in their order, or those of their cells, and the names of their types or functions.

    Raises RefusedError where the file does not show the order.
    """
    types, values = metadata["types"], metadata["values"]
    inside = below(chain, "layers/")
    names = dict.fromkeys(place[len(inside) :].partition("/")[0] for place in [*types, *values] if place.startswith(inside))
    if all(map(is_count, names)):
        names = dict.fromkeys(sorted(names, key=int))
        if [*names] != [str(number + 1) for number in range(len(names))]:
            raise RefusedError("a Chain", "a model", "one of its layers is of no type that is read", _WAY_OUT, chain)
    elif not all(inside + name in types for name in names):
        raise RefusedError(
            "a Chain whose layers have names", "a model", "the file does not show the order of its functions", _WAY_OUT, chain
        )
    for place in (inside + name for name in names):
        name, cell = _name(types[place][0]) if place in types else str(values.get(place)), below(place, "cell")
        if name == "Chain":
            yield from _layers(metadata, place)
        elif cell in types and "." not in name:
            yield cell, _name(types[cell][0])
        else:
            yield place, name


def _name(words: Sequence[str]) -> str:
    """Return the name of one of Flux's types, or that of another package's with its package."""
    return words[-1] if "Flux" in words[:-1] else ".".join(words)


@dataclass(frozen=True)
class _FluxLayer:
    """A layer of a Chain.

    place   its place
    word    the name of its type, or of the function that it is
    unit    its weights; None where it has none that are plain arrays
    values  its single values by their fields
    arrays  the file's arrays
    """

    place: str
    word: str
    unit: Unit | None
    values: Mapping[str, Any]
    arrays: Mapping[str, Source]

    def refused(self, reason: str) -> RefusedError:
        """Return why the layer is not described."""
        return RefusedError(f"a layer {self.word}", "a model", reason, _WAY_OUT, self.place)


def _layer(row: LayerRow, x: SourceTensor, layer: _FluxLayer) -> SourceTensor:
    rule = _RULES.get(layer.word)
    if rule is not None and layer.unit is not None:
        return rule(row, x, layer.unit, layer)
    if layer.word in _DROPPING:
        if layer.values.get("active") is True:
            raise layer.refused("it drops values in every call, not in training alone: Flux.testmode! ends that")
        return x
    if rule is not None:
        raise layer.refused("its fields are not plain arrays")
    return _function(row, x, layer.word, layer)


def _function(row: LayerRow, x: SourceTensor, name: str, layer: _FluxLayer) -> SourceTensor:
    from rnnconvert.scaffolding.operations import activation

    word = FUNCTIONS.get(name) or (_OVER_VALUES.get(name) if name == layer.word else None)
    if word is None:
        raise layer.refused(f"the function {name!r} is not known")
    return x if word == "linear" else activation(row, x, word, _ALPHAS.get(word), x.rank - 1 if name in _OVER_VALUES else -1)


def _recurrent(row: LayerRow, x: SourceTensor, unit: Unit, layer: _FluxLayer) -> SourceTensor:
    return row.recurrent([unit], x)


def _dense(row: LayerRow, x: SourceTensor, unit: Unit, layer: _FluxLayer) -> SourceTensor:
    if layer.values.get("bias"):
        raise layer.refused(f"its bias is {layer.values['bias']!r}, and of numbers false alone stands for one, for none")
    y = row.dense(unit, x, _sizes(unit, layer.arrays)[0], "bias" in unit.names)
    return _function(row, y, str(layer.values.get("σ")), layer)


def _embedding(row: LayerRow, x: SourceTensor, unit: Unit, layer: _FluxLayer) -> SourceTensor:
    from rnnconvert.scaffolding import kinds

    if x.dtype != "int64":
        raise layer.refused("what stands before it gives no whole numbers")
    from_zero = row.add(kinds.Elementwise(operation="subtract", operands=(("input", 0), ("number", 1))), [x], x.dims, name="from_zero")
    width, words = _sizes(unit, layer.arrays)
    return row.layer(kinds.Embedding(words, width), unit, from_zero, (*x.dims, width), "float32")


def _sizes(unit: Unit, arrays: Mapping[str, Source]) -> tuple[int, int]:
    """Return how many values a step of what a layer gives has, and of what it reads."""
    if unit.stack is not None:
        return unit.stack.hidden_size, unit.stack.input_size
    width, words = arrays[unit.names["weight"]].shape
    return int(width), int(words)


_DROPPING = ("Dropout", "AlphaDropout")
_RULES: Mapping[str, Callable[[LayerRow, SourceTensor, Unit, _FluxLayer], SourceTensor]] = {
    **dict.fromkeys(("RNNCell", "LSTMCell", "GRUCell", "GRUv3Cell"), _recurrent),
    "Dense": _dense,
    "Embedding": _embedding,
}
"""The types of layers with weights that are known."""
