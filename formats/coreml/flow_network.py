"""Core ML's neural networks as graphs: what layers do to the elements on their way from one recurrent layer to the next.

A recurrent layer reads and gives (time, batch, channels, 1, 1).

Source: apple/coremltools, mlmodel/format/NeuralNetwork.proto, the message of each layer's parameters. A layer goes by the number of its
field; one that is custom may compute anything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from rnnconvert.core.arrays import Array
from rnnconvert.core.weights import Call, Recurrent
from rnnconvert.formats.coreml.flow import handed
from rnnconvert.formats.coreml.message import Message
from rnnconvert.graphs import moves
from rnnconvert.graphs.between import calls as followed
from rnnconvert.graphs.graph import CallSizes, Graph
from rnnconvert.graphs.operators import SAME, Applied, ChangesError, Dialect, Measures, Moves

_CONSTANTS = (290, 1070)
_CONTENT = "content"
_NAMES = {
    100: "convolution", 120: "pooling", 130: "activation", 140: "innerProduct", 150: "embedding", 160: "batchnorm", 165: "mvn",
    175: "softmax", 190: "crop", 200: "padding", 220: "unary", 230: "add", 231: "multiply", 240: "average", 245: "scale", 250: "bias",
    280: "reduce", 300: "reshape", 301: "flatten", 310: "permute", 320: "concat", 330: "split", 340: "sequenceRepeat",
    345: "reorganizeData", 350: "slice", 400: "simpleRecurrent", 410: "gru", 420: "uniDirectionalLSTM", 430: "biDirectionalLSTM",
    500: "custom", 600: "copy", 605: "branch", 615: "loop", 660: "clip", 880: "addBroadcastable", 900: "multiplyBroadcastable",
    905: "subtractBroadcastable", 920: "tile", 925: "stack", 930: "gather", 960: "reverse", 965: "reverseSeq", 975: "splitND",
    980: "concatND", 985: "transpose", 995: "sliceStatic", 1000: "sliceDynamic", 1045: "batchedMatmul", 1065: "getShape",
    1120: "squeeze", 1125: "expandDims", 1130: "flattenTo2D", 1135: "reshapeLike", 1140: "reshapeStatic", 1145: "reshapeDynamic",
    1150: "rankPreservingReshape", 1350: "layerNormalization",
}  # fmt: skip
"""The names of layers, by the numbers of their fields."""


@dataclass(frozen=True)
class NetworkLayer:
    """A layer of a network: the number of its field, its parameters, and the values that it reads and gives."""

    number: int
    content: Message
    inputs: Sequence[str]
    outputs: Sequence[str]
    label: str = ""


def calls(
    rows: Sequence[NetworkLayer], layers: Mapping[str, tuple[NetworkLayer, Recurrent, bool]], inside: bool
) -> dict[str, tuple[Call, ...]]:
    """Return the calls of each recurrent layer of a network, by its name.

    rows    its layers
    layers  the recurrent ones that are read, and whether each gives its outputs at all steps
    inside  whether the network is a part of a layer of another one
    """
    graph = Graph(_DIALECT)
    names = {id(row): name for name, (row, _, _) in layers.items()}
    for row in rows:
        name = names.get(id(row))
        if name is not None:
            _, stack, sequences = layers[name]
            states = dict.fromkeys(row.outputs[1:], "the last states")
            outputs = dict.fromkeys(row.outputs[:1], "tbu11") if sequences else {}
            graph.call(
                name,
                (row.inputs[0] if row.inputs else "", "tbi11"),
                outputs,
                states if sequences else {**states, **dict.fromkeys(row.outputs[:1], "the last output")},
                sizes=CallSizes(stack.layers[0].output_size, width=stack.input_size),
                initial=row.inputs[1:],
            )
        elif row.number in _CONSTANTS and row.outputs:
            graph.constant(row.outputs[0], _Constant(row.content))
        else:
            label = row.label or _NAMES.get(row.number, f"layer {row.number}")
            graph.add(row.number, row.inputs, row.outputs, {_CONTENT: row.content}, label)
    return {name: handed(several, inside, "layer") for name, several in followed(graph).items()}


@dataclass(frozen=True)
class _Constant:
    """A constant of a network, read when it is asked for."""

    content: Message

    def __call__(self) -> Array | None:
        """Return its numbers; None where they are not plain ones."""
        data, shape = self.content.submessage(2), self.content.integers(1)
        values = None if data is None or set(data.fields) - {1} else data.reals(1)
        return values.reshape(shape) if values is not None and values.size == np.prod(shape, dtype=object) else None


# What layers do -------------------------------------------------------------------------------------------------


def _list(applied: Applied, field: int = 1) -> list[int]:
    content: Message = applied.attributes[_CONTENT]
    return content.integers(field)


def _number(applied: Applied, field: int = 1) -> int:
    return next(iter(_list(applied, field)), 0)


def _flatten(applied: Applied) -> Array:
    array = applied.input(0)
    if _number(applied) and array.shape[-2:] != (1, 1):
        raise ChangesError("flatten of the channels last")
    return array.reshape(*array.shape[:2], -1, 1, 1) if array.ndim == 5 else moves.flatten(array, 0)


def _permute(applied: Applied) -> Array:
    """Return an array of five axes with its time, channels, height and width in another order."""
    order = [axis + (axis > 0) for axis in _list(applied)]
    if len(order) != 4:
        raise ChangesError("permute of another number of axes")
    return moves.transpose(applied.input(0), [order[0], 1, *order[1:]])


def _split(applied: Applied) -> list[Array]:
    parts: int | list[int] = _list(applied, 3) or _number(applied, 2) or applied.outputs
    return moves.split(applied.input(0), _number(applied), parts)


def _concat(applied: Applied) -> Array:
    if applied.attributes[_CONTENT].number(2):
        raise ChangesError("concatND that interleaves")
    return moves.concatenate(applied.arrays, _number(applied))


def _old_concat(applied: Applied) -> Array:
    return moves.concatenate(applied.arrays, -5 if applied.attributes[_CONTENT].number(100) else -3)


def _slice(applied: Applied) -> Array:
    begin, end, steps = _list(applied, 1), _list(applied, 3), _list(applied, 5)
    none = [False] * len(begin)
    opened, closed, single = ([bool(bit) for bit in _list(applied, field)] or none for field in (2, 4, 6))
    return moves.strided(applied.input(0), begin, end, steps, masks=[opened, closed, none, none, single])


def _reverse(applied: Applied) -> Array:
    return moves.reverse(applied.input(0), [axis for axis, turned in enumerate(_list(applied)) if turned])


def _squeeze(applied: Applied) -> Array:
    return moves.squeeze(applied.input(0), [] if applied.attributes[_CONTENT].number(2) else _list(applied))


def _flat(applied: Applied) -> Array:
    array, axis = applied.input(0), _number(applied)
    axis = axis if axis >= 0 else axis + array.ndim
    return moves.reshape(array, [int(np.prod(array.shape[:axis], dtype=object)), -1])


_DIALECT: Dialect = {
    600: SAME,  # CopyLayerParams: "copies its input tensor to the output tensor"
    301: Moves(_flatten),
    310: Moves(_permute),
    320: Moves(_old_concat, None),
    330: Moves(lambda applied: moves.split(applied.input(0), -3, applied.outputs)),
    925: Moves(lambda applied: moves.stack(applied.arrays, _number(applied)), None),
    930: Moves(lambda applied: moves.take(applied.input(0), applied.input(1), _number(applied))),
    960: Moves(_reverse),
    975: Moves(_split),
    980: Moves(_concat, None),
    985: Moves(lambda applied: moves.transpose(applied.input(0), _list(applied))),
    995: Moves(_slice),
    1065: Measures(lambda applied: np.array(applied.input(0).shape, np.int64)),
    1120: Moves(_squeeze),
    1125: Moves(lambda applied: moves.unsqueeze(applied.input(0), _list(applied))),
    1130: Moves(_flat),
    1140: Moves(lambda applied: moves.reshape(applied.input(0), _list(applied))),
    1145: Moves(lambda applied: moves.reshape(applied.input(0), applied.integers(1))),
    1150: Moves(lambda applied: moves.reshape(applied.input(0), _list(applied), True)),
}
