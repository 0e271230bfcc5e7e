"""Paddle's programs as graphs: what operators do to the elements on their way from one recurrent operator to the next.

Of what an operator reads and states, Paddle 2 names the parameters; in Paddle 3 they have places instead, and constants are values.

Source: paddle/fluid/operators and paddle/phi/ops/yaml/ops.yaml (2.6, 3.3), each operator by its name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from rnnconvert.core.arrays import BFLOAT16, Array
from rnnconvert.core.weights import Call, Recurrent
from rnnconvert.formats.paddle.program import ProgramOperator
from rnnconvert.graphs import moves
from rnnconvert.graphs.between import calls as followed
from rnnconvert.graphs.graph import CallSizes, Graph
from rnnconvert.graphs.operators import SAME, Applied, Casts, ChangesError, Computes, Dialect, Measures, Moves

_DATA = ("X", "Input", "0")
"""The parameter of an operator's data, of which some have several."""
_TYPES: Mapping[Any, np.dtype[Any]] = {
    **{2: np.dtype("i4"), 3: np.dtype("i8"), 4: np.dtype("f2"), 5: np.dtype("f4"), 6: np.dtype("f8"), 22: BFLOAT16},
    **{name: np.dtype(name) for name in ("int32", "int64", "float16", "float32", "float64")},
    "bfloat16": BFLOAT16,
}
"""Element types by the numbers of VarType.Type, and by Paddle 3's words."""

Key: TypeAlias = "tuple[str, int]"
"""A variable, and how often an operator had given it before: operators may write over what they read."""


@dataclass(frozen=True)
class RecurrentOperator:
    """A recurrent operator.

    name      the layer that is read of it
    reads     the variable that it reads, which its own fc may read in its stead; its axes
    sequence  the variable of its outputs; their axes
    states    variables that it begins with
    lengths   the variable of the lengths of its sequences
    """

    name: str
    operator: ProgramOperator
    stack: Recurrent
    reads: tuple[str, str]
    sequence: tuple[str, str]
    states: Sequence[str] = ()
    lengths: str = ""


def calls(
    operators: Sequence[ProgramOperator],
    layers: Sequence[RecurrentOperator],
    arrays: Mapping[str, Array],
    shapes: Mapping[str, Sequence[int]],
) -> dict[str, tuple[Call, ...]]:
    """Return the calls of each recurrent operator of a graph, by its layer's name.

    arrays  the stored variables
    shapes  the shapes of other variables, -1 for a length that is open
    """
    graph = Graph(_DIALECT)
    written: dict[str, int] = {}

    def key(name: str) -> Key:
        return name, written.get(name, 0)

    for name, array in arrays.items():
        graph.constant((name, 0), array)
    placed = {id(layer.operator): layer for layer in layers}
    for operator in operators:
        inputs = {parameter: [key(name) for name in names] for parameter, names in operator.inputs.items()}
        layer = placed.get(id(operator))
        begins = [key(state) for state in layer.states] if layer is not None else []
        reads, lengths = (key(layer.reads[0]), key(layer.lengths)) if layer is not None else (("", 0), ("", 0))
        for listed in operator.outputs.values():
            for name in listed:
                written[name] = written.get(name, 0) + (name in written or name in arrays or _is_read(name, inputs))
                graph.value(key(name)).name = name
                written.setdefault(name, 0)
        outputs = [key(name) for names in operator.outputs.values() for name in names]
        if operator.type in _FED:
            for output in outputs:
                stated = operator.lists.get("shape", shapes.get(output[0], ()))
                graph.describe(output, [length if length >= 0 else f"{output[0]} {axis}" for axis, length in enumerate(stated)] or None)
        elif layer is None:
            _add(graph, operator, inputs, outputs)
        if layer is None:
            continue
        sequence = key(layer.sequence[0])
        graph.call(
            layer.name,
            (reads, layer.reads[1]),
            {sequence: layer.sequence[1]},
            {ending: "the last states" for ending in outputs if ending != sequence},
            sizes=CallSizes(layer.stack.layers[-1].output_size, width=layer.stack.input_size),
            initial=begins,
            lengths=[lengths] if layer.lengths else (),
        )
    return followed(graph)


def _is_read(name: str, inputs: Mapping[str, Sequence[Key]]) -> bool:
    return any(name == parameter_name for keys in inputs.values() for parameter_name, _ in keys)


def _add(graph: Graph, operator: ProgramOperator, inputs: Mapping[str, Sequence[Key]], outputs: Sequence[Key]) -> None:
    first = next((parameter for parameter in _DATA if inputs.get(parameter)), "")
    order = [*([first] if first else []), *(parameter for parameter in inputs if parameter != first)]
    parameters = [parameter for parameter in order for _ in inputs[parameter]]
    settings: dict[str, Any] = {**operator.attributes, **operator.lists, "parameters": parameters}
    read = [key for parameter in order for key in inputs[parameter]]
    if operator.type in _SEVERAL:  # the axis is a constant that Paddle 3 has as a value
        read = [*inputs[first]] if first else []
        settings["axis value"] = [_full(graph, source) for parameter in order[1:] for source in inputs[parameter]]
    if outputs and operator.type in _CONSTANTS and (filled := _filled(operator)) is not None:
        graph.constant(outputs[0], filled)
    graph.add(operator.type, read, outputs, settings, operator.type)


def _full(graph: Graph, key: Key) -> Any:
    constant = graph.value(key).constant
    return constant() if callable(constant) else constant


def _filled(operator: ProgramOperator) -> Array | None:
    """Return the number that an operator spreads, or its numbers; their shape matters to nobody here. None for anything else."""
    listed = next((operator.lists[key] for key in _LISTED if key in operator.lists), None)
    value = operator.attributes.get("value", operator.attributes.get("str_value", 0)) if listed is None else listed
    try:
        numbers: Array = np.array(value or 0 if isinstance(value, str) else value, np.float64)
    except (TypeError, ValueError, OverflowError):
        return None
    integral = numbers.size and (np.abs(numbers) < _LARGEST).all() and (numbers == np.round(numbers)).all()
    return numbers.astype(np.int64) if integral else numbers


_LARGEST = 1 << 62
"""No axis and no length is larger."""


# What operators do ----------------------------------------------------------------------------------------------


def _argument(applied: Applied, parameter: str, place: int) -> Array | None:
    """Return an input by its parameter or its place; None where the operator does not have it."""
    names = applied.attributes["parameters"]
    name = next((word for word in (parameter, str(place)) if word in names), "")
    return applied.inputs[names.index(name)] if name else None


def _numbers(applied: Applied, key: str, parameter: str = "", place: int = -1) -> list[int]:
    """Return whole numbers that an operator states, or reads."""
    argument = _argument(applied, parameter, place)
    if argument is not None:
        return [int(number) for number in argument.reshape(-1)]
    stated = applied.attributes.get(key, ())
    return [int(stated)] if isinstance(stated, int | float) else [int(number) for number in stated]


def _axis(applied: Applied) -> int:
    values = [value for value in applied.attributes.get("axis value", ()) if value is not None and value.size == 1]
    return int(values[-1].reshape(())) if values else next(iter(_numbers(applied, "axis")), 0)


def _transpose(applied: Applied) -> Array:
    return moves.transpose(applied.input(0), _numbers(applied, "perm") or _numbers(applied, "axis"))


def _reshape(applied: Applied) -> Array:
    return moves.reshape(applied.input(0), _numbers(applied, "shape", "Shape", 1), True)


def _split(applied: Applied) -> list[Array]:
    sections = _numbers(applied, "sections", "SectionsTensorList", 1)
    axis = next(iter(_numbers(applied, "axis", "AxisTensor", 2)), 0)
    return moves.split(applied.input(0), axis, sections or applied.outputs)


def _split_equally(applied: Applied) -> list[Array]:
    return moves.split(applied.input(0), next(iter(_numbers(applied, "axis", "", 1)), 0), applied.outputs)


def _slice(applied: Applied) -> Array:
    axes = _numbers(applied, "axes")
    starts, ends = _numbers(applied, "starts", "StartsTensor", 1), _numbers(applied, "ends", "EndsTensor", 2)
    part = moves.cut(applied.input(0), starts, ends, _numbers(applied, "strides", "StridesTensor", 3), axes)
    gone = _numbers(applied, "decrease_axis")
    return moves.squeeze(part, gone) if gone and gone != [-1] else part


def _flip(applied: Applied) -> Array:
    return moves.reverse(applied.input(0), _numbers(applied, "axis"))


def _dropout(applied: Applied) -> Array:
    mode = applied.attributes.get("dropout_implementation", applied.attributes.get("mode", "downgrade_in_infer"))
    if not applied.attributes.get("is_test"):
        raise ChangesError("dropout that is on")
    if mode != "upscale_in_train":
        raise ChangesError("dropout that scales its input when it is off")
    return applied.input(0)


def _scale(applied: Applied) -> Array:
    scale = _argument(applied, "ScaleTensor", 1)
    factor = float(applied.attributes.get("scale", 1.0)) if scale is None else float(scale.reshape(-1)[0])
    if factor != 1.0 or applied.attributes.get("bias", 0.0):
        raise ChangesError("scale")
    return applied.input(0)


def _dtype(applied: Applied) -> np.dtype[Any]:
    number = applied.attributes.get("out_dtype", applied.attributes.get("dtype"))
    if number not in _TYPES:
        raise ChangesError(f"cast to type {number}")
    return _TYPES[number]


def _flatten(applied: Applied) -> Array:
    stop = int(applied.attributes.get("stop_axis", 1))
    return moves.flatten(applied.input(0), int(applied.attributes.get("start_axis", 1)), stop)


def _take(applied: Applied) -> Array:
    places, axis = _argument(applied, "Index", 1), _argument(applied, "Axis", 2)
    if places is None:
        raise ChangesError("gather without places")
    where = int(applied.attributes.get("axis", applied.attributes.get("dim", 0))) if axis is None else int(axis.reshape(-1)[0])
    return moves.take(applied.input(0), places.reshape(-1), where)


_TRANSPOSE, _RESHAPE, _FLIP = Moves(_transpose), Moves(_reshape), Moves(_flip)
_SQUEEZE = Moves(lambda applied: moves.squeeze(applied.input(0), _numbers(applied, "axes", "", 1) or _numbers(applied, "axis", "", 1)))
_UNSQUEEZE = Moves(
    lambda applied: moves.unsqueeze(applied.input(0), _numbers(applied, "axes", "AxesTensor", 1) or _numbers(applied, "axis", "", 1))
)
_FLATTEN, _TAKE, _ZEROS = Moves(_flatten), Moves(_take), Measures(lambda applied: np.zeros(applied.input(0).shape))
_UNSTACK = Moves(lambda applied: moves.unstack(applied.input(0), next(iter(_numbers(applied, "axis")), 0)))
_FED = ("feed", "data")
_SEVERAL = ("concat", "stack")
_CONSTANTS = ("full", "full_int_array", "fill_constant", "assign_value", "assign_value_")
_LISTED = ("value", "values", "int64_values", "int32_values")
_DIALECT: Dialect = {
    # assign_op.cc, share_data_op.cc, feed_op.cc and fetch_op.cc: copies
    "assign": SAME,
    "share_data": SAME,
    "share_data_": SAME,
    "memcpy_d2h": SAME,
    "memcpy_h2d": SAME,
    "fetch": SAME,
    "transpose": _TRANSPOSE,
    "transpose2": _TRANSPOSE,
    "reshape": _RESHAPE,
    "reshape2": _RESHAPE,
    "squeeze": _SQUEEZE,
    "squeeze2": _SQUEEZE,
    "unsqueeze": _UNSQUEEZE,
    "unsqueeze2": _UNSQUEEZE,
    "flatten": _FLATTEN,
    "flatten_contiguous_range": _FLATTEN,
    "concat": Moves(lambda applied: moves.concatenate(applied.arrays, _axis(applied)), None),
    "stack": Moves(lambda applied: moves.stack(applied.arrays, _axis(applied)), None),
    "unstack": _UNSTACK,
    "unbind": _UNSTACK,
    "split": Moves(_split),
    "split_with_num": Moves(_split_equally),
    "slice": Moves(_slice),
    "strided_slice": Moves(_slice),
    "flip": _FLIP,
    "reverse": _FLIP,
    "gather": _TAKE,
    "index_select": _TAKE,
    "cast": Casts(_dtype),
    "dropout": Moves(_dropout),
    "scale": Moves(_scale),
    "shape": Measures(lambda applied: np.array(applied.input(0).shape, np.int64)),
    "shape64": Measures(lambda applied: np.array(applied.input(0).shape, np.int64)),
    **dict.fromkeys(_CONSTANTS, Computes()),
    "full_with_tensor": Computes(),
    "zeros": Computes(),
    "fill_any_like": _ZEROS,
    "full_like": _ZEROS,
    "fill_constant_batch_size_like": _ZEROS,
    "full_batch_size_like": _ZEROS,
}
