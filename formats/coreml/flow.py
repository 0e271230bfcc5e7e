"""Core ML's programs as graphs: what operations do to the elements on their way from one recurrent operation to the next.

Source: coremltools 9.0, converters/mil/mil/ops/defs, each operation by its class. An operation goes by its type; a custom_layer is the
user's own and may compute anything.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rnnconvert.core.arrays import Array
from rnnconvert.core.errors import RnnConvertError
from rnnconvert.core.weights import INPUT, Call, Recurrent
from rnnconvert.formats.coreml.contents import UnknownError
from rnnconvert.formats.coreml.message import Message
from rnnconvert.formats.coreml.values import ProgramOperation, Values
from rnnconvert.graphs import moves
from rnnconvert.graphs.between import calls as followed
from rnnconvert.graphs.graph import CallSizes, Graph
from rnnconvert.graphs.operators import SAME, Applied, Casts, ChangesError, Computes, Dialect, Measures, Moves

_BOOL = 1
_DATA = ("x", "values")
_TYPES = {"fp16": "f2", "fp32": "f4", "fp64": "f8", "int32": "i4", "int16": "i2", "int8": "i1", "uint8": "u1", "uint16": "u2"}


@dataclass(frozen=True)
class RecurrentOperation:
    """A recurrent operation of a program.

    turned  the values behind operations that turn its outputs around, if that belongs to the layer
    inside  whether it stands in a block of another operation
    """

    operation: ProgramOperation
    stack: Recurrent
    sequence: bool
    turned: Sequence[str]
    inside: bool


def dims(message: Message, name: str = "") -> list[int | str | None] | None:
    """Return the lengths of the axes that a value's type states; None for what is not a tensor.

    name  of an input, whose open axes go by names of their own
    """
    tensor = message.within(2, 1)
    if tensor is None:
        return None
    lengths = [axis.submessage(1) for axis in tensor.every(3)]
    unknown = [f"{name} {axis}" if name else None for axis in range(len(lengths))]
    return [other if length is None else length.number(1) for length, other in zip(lengths, unknown, strict=True)]


def calls(
    values: Values, inputs: Sequence[Message], operations: Sequence[ProgramOperation], layers: dict[str, RecurrentOperation]
) -> dict[str, tuple[Call, ...]]:
    """Return the calls of each recurrent operation of a function, by its layer's name.

    inputs      the inputs of the function
    operations  all of its operations, including those of blocks
    """
    graph = Graph(_DIALECT)
    for message in inputs:
        graph.describe(message.text(1), dims(message, message.text(1)))
    owners = {id(layer.operation): name for name, layer in layers.items()}
    for name, layer in layers.items():
        _layer(graph, name, layer)
    for operation in operations:
        for message in operation.message.every(3):
            graph.describe(message.text(1), dims(message))
        if id(operation) not in owners:
            _operation(graph, values, operation)
    return {name: handed(several, layers[name].inside, "operation") for name, several in followed(graph).items()}


def handed(calls: Sequence[Call], inside: bool, word: str) -> tuple[Call, ...]:
    """Return calls of a layer; inside of another layer or operation, that hands on what would be an input of the model elsewhere."""
    states = f"what the {word} around it hands on"
    return tuple(replace(call, states=states) if inside and call.states == INPUT else call for call in calls)


def _layer(graph: Graph, name: str, layer: RecurrentOperation) -> None:
    (pair,) = layer.stack.layers
    data = next((argument for argument in layer.operation.inputs.get("x", []) if isinstance(argument, str)), "")
    outputs = layer.turned or layer.operation.outputs[:1]
    initial = [value for key in ("initial_h", "initial_c") for value in layer.operation.inputs.get(key, []) if isinstance(value, str)]
    states = dict.fromkeys(layer.operation.outputs[1:], "the last states")
    if not layer.sequence:
        outputs, states = (), {**states, layer.operation.outputs[0]: "the last output"}
    graph.call(
        name,
        (data, "tbi"),
        dict.fromkeys(outputs, "tbu"),
        states,
        sizes=CallSizes(pair.output_size, dtype=layer.stack.dtype, width=layer.stack.input_size),
        initial=initial,
    )


def _operation(graph: Graph, values: Values, operation: ProgramOperation) -> None:
    if operation.type == "const":
        if operation.outputs:
            graph.constant(operation.outputs[0], lambda: _constant(values, operation.outputs[0]))
        return
    constants: dict[str, Any] = {}
    inputs: dict[str, list[Hashable]] = {}
    for parameter, arguments in operation.inputs.items():
        if parameter not in _DATA and operation.type in _DIALECT:
            constants[parameter] = _constant(values, arguments[0]) if arguments else None
        if parameter in _DATA or constants.get(parameter) is None:
            inputs[parameter] = [argument for argument in arguments if isinstance(argument, str)]
    order = [key for key in (*_DATA, *inputs) if key in inputs]
    order = [*dict.fromkeys(order)]
    read = [value for key in order for value in inputs[key]]
    read += [text for block in operation.message.every(4) for text in block.texts(2)]
    names = [key for key in order for _ in inputs[key]]
    graph.add(operation.type, read, operation.outputs, {**constants, "parameters": names}, operation.type)


def _constant(values: Values, argument: str | Message) -> Any:
    """Return the numbers, truths or text of a value; None where the program computes it."""
    maker = values.makers.get(argument) if isinstance(argument, str) else None
    value = dict(maker.message.entries(5)).get("val") if maker is not None and maker.type == "const" else argument
    if isinstance(value, Message):
        truths = value.within(3, 1, 3)
        if text := values.text(value):
            return text
        if values.type(value)[1] == _BOOL and truths is not None:
            return np.array(truths.integers(1), bool).reshape(values.type(value)[0])
    used = set(values.used)
    try:
        array, _ = values.constant(argument, "value")
    except (UnknownError, RnnConvertError):
        return None
    finally:
        values.used = used
    return array


# What operations do ---------------------------------------------------------------------------------------------


def _argument(applied: Applied, parameter: str) -> Any:
    """Return a parameter: a constant, or what the graph computes of constants and shapes; None where it is not given."""
    if applied.attributes.get(parameter) is not None:
        return applied.attributes[parameter]
    names = applied.attributes["parameters"]
    return applied.inputs[names.index(parameter)] if parameter in names else None


def _numbers(applied: Applied, parameter: str) -> list[int]:
    argument = _argument(applied, parameter)
    return [] if argument is None else [int(number) for number in np.asarray(argument).reshape(-1)]


def _number(applied: Applied, parameter: str, default: int = 0) -> int:
    return next(iter(_numbers(applied, parameter)), default)


def _concat(applied: Applied) -> Array:
    if _number(applied, "interleave"):
        raise ChangesError("concat that interleaves")
    return moves.concatenate(applied.arrays, _number(applied, "axis"))


def _split(applied: Applied) -> list[Array]:
    sizes = _numbers(applied, "split_sizes")
    return moves.split(applied.input(0), _number(applied, "axis"), sizes or _number(applied, "num_splits", applied.outputs))


def _by_index(applied: Applied) -> Array:
    begin, end = _numbers(applied, "begin"), _numbers(applied, "end")
    none = [0] * len(begin)
    masks = [_numbers(applied, f"{key}_mask") or none for key in ("begin", "end")]
    masks += [none, none, _numbers(applied, "squeeze_mask") or none]
    steps = _numbers(applied, "stride") or [1] * len(begin)
    return moves.strided(applied.input(0), begin, end, steps, masks=[[bool(bit) for bit in mask] for mask in masks])


def _by_size(applied: Applied) -> Array:
    begin, sizes = _numbers(applied, "begin"), _numbers(applied, "size")
    return moves.cut(applied.input(0), begin, [None if size == -1 else low + size for low, size in zip(begin, sizes, strict=True)])


def _gather(applied: Applied) -> Array:
    if _number(applied, "batch_dims"):
        raise ChangesError("gather by batch")
    return moves.take(applied.input(0), np.asarray(_argument(applied, "indices")), _number(applied, "axis"))


def _reverse(applied: Applied) -> Array:
    array = applied.input(0)
    return moves.reverse(array, _numbers(applied, "axes") or range(array.ndim))


def _pad(applied: Applied) -> Array:
    if _argument(applied, "mode") not in (None, "constant"):
        raise ChangesError(f"pad of the mode {_argument(applied, 'mode')!r}")
    array, widths = applied.input(0), _numbers(applied, "pad")
    widths = [0] * (2 * array.ndim - len(widths)) + widths
    return moves.pad(array, widths[::2], widths[1::2])


def _dtype(applied: Applied) -> np.dtype[Any]:
    name = applied.attributes.get("dtype")
    if name not in _TYPES:
        raise ChangesError(f"cast to {name!r}")
    return np.dtype(_TYPES[name])


def _flat(applied: Applied) -> Array:
    array, axis = applied.input(0), _number(applied, "axis", 1)
    axis = axis if axis >= 0 else axis + array.ndim
    return moves.reshape(array, [int(np.prod(array.shape[:axis], dtype=object)), -1])


_DIALECT: Dialect = {
    "identity": SAME,  # elementwise_unary.py and tensor_operation.py: "returns a tensor with the same shape and values"
    "cast": Casts(_dtype),
    "transpose": Moves(lambda applied: moves.transpose(applied.input(0), _numbers(applied, "perm"))),
    "reshape": Moves(lambda applied: moves.reshape(applied.input(0), _numbers(applied, "shape"), True)),
    "squeeze": Moves(lambda applied: moves.squeeze(applied.input(0), _numbers(applied, "axes"))),
    "expand_dims": Moves(lambda applied: moves.unsqueeze(applied.input(0), _numbers(applied, "axes"))),
    "flatten2d": Moves(_flat),
    "concat": Moves(_concat, None),
    "stack": Moves(lambda applied: moves.stack(applied.arrays, _number(applied, "axis")), None),
    "split": Moves(_split),
    "slice_by_index": Moves(_by_index),
    "slice_by_size": Moves(_by_size),
    "gather": Moves(_gather),
    "reverse": Moves(_reverse),
    "reverse_sequence": Moves(
        lambda applied: moves.reverse_sequences(
            applied.input(0), np.asarray(_argument(applied, "lengths")), _number(applied, "seq_axis"), _number(applied, "batch_axis")
        )
    ),
    "tile": Moves(lambda applied: moves.tile(applied.input(0), _numbers(applied, "reps"))),
    "pad": Moves(_pad),
    "shape": Measures(lambda applied: np.array(applied.input(0).shape, np.int64)),
    "fill": Computes(),
    "fill_like": Measures(lambda applied: np.zeros(applied.input(0).shape)),
}
