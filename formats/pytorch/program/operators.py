"""Calls of PyTorch's operators, as its archives and exported programs write them, in the form of the dialect."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rnnconvert.formats.pytorch import aten
from rnnconvert.formats.pytorch.program.cells import is_complete
from rnnconvert.formats.pytorch.program.kinds import CHANGED, LENGTHS
from rnnconvert.formats.pytorch.program.program import Argument, ElementTypeOf, OperatorCall, OperatorProgram, Ref, Several, StepPut, refs
from rnnconvert.graphs.operators import SAME

_SIZES = {"sym_size": "size", "sym_numel": "numel", "ndimension": "dim"}


def operator(program: OperatorProgram, name: str, inputs: Sequence[Argument], keywords: Mapping[str, Argument]) -> Any:
    """Note a call of an operator, and return what it gives: a Ref, Several, or a list of Refs.

    name  its name in aten, without an overload; an underscore at its end for one in place
    """
    called = (
        name,
        [program.current(argument) for argument in inputs],
        {key: program.current(argument) for key, argument in keywords.items()},
    )
    before = len(program.operations)
    result = _noted(program, name, inputs, keywords)
    for operation in program.operations[before:]:
        if operation.kind != CHANGED and operation.called is None:
            operation.called = called
    return result


def _noted(program: OperatorProgram, name: str, inputs: Sequence[Argument], keywords: Mapping[str, Argument]) -> Any:
    if isinstance(keywords.get("out"), Ref | list):
        # What is handed over to be filled is changed, whatever else the operator does.
        operation = program.apply(f"{name} into a given tensor", [*inputs, *keywords.values()])
        program.change(operation, [keywords["out"]])
        return program.output(operation)
    if name == "copy_" and len(inputs) > 1 and (element := _copied_into(program, *inputs[:2])) is not None:
        return element
    kind = _SIZES.get(name, name)
    plain = kind.rstrip("_")
    if plain == "_pack_padded_sequence" and len(inputs) == 3 and isinstance(inputs[2], bool):
        packing = {"batch_first": inputs[2], "lengths": inputs[1]}
        return [_single(program, "pack", inputs[:1], packing), _single(program, "batches", inputs[:1], packing)]
    if plain == "_pad_packed_sequence" and len(inputs) >= 4 and isinstance(inputs[2], bool) and _is_longest(inputs):
        padded = _single(program, "padded", inputs[:2], {"batch_first": inputs[2]})
        return [padded, _single(program, LENGTHS, inputs[1:2])]
    if plain == "size" and len(inputs) > 1:
        return _single(program, "size" if isinstance(inputs[1], int) else "a size that is computed", inputs[:1], {"axes": inputs[1:2]})
    if plain in aten.CASTS:
        return _cast(program, kind, [*inputs, *keywords.values()])
    if aten.DIALECT.get(plain) is SAME:
        return _single(program, kind, inputs[:1])
    if plain in aten.MOVES_BY_NAME:
        return _by_name(program, kind, inputs, keywords)
    operation = program.apply(kind, inputs if plain in aten.DIALECT else [*inputs, *keywords.values()])
    return program.output(operation)


def _copied_into(program: OperatorProgram, view: Argument, value: Argument) -> Argument:
    """Note that a value is copied into one place of an axis of a tensor: what is read of it later is a new tensor.

    Return the value; None where it is not one place, or where the tensor is made elsewhere than around the innermost loop.
    """
    views, place, tensor = list[OperatorCall](), None, view
    while isinstance(tensor, Ref) and tensor.operation is not None and not program.is_changed(tensor):
        operation = tensor.operation
        if operation.kind == "select" and place is None and len(operation.inputs) == 3:
            place = operation.inputs[1], operation.inputs[2]
        elif not is_complete(operation):
            break
        views.append(operation)
        tensor = operation.inputs[0]
    origin = tensor.operation if isinstance(tensor, Ref) else None
    if place is None or not isinstance(place[0], int) or origin is None or program.is_changed(tensor):
        return None
    axis, index, element = *place, program.current(value)
    if origin.block is program.block:
        copied = program.apply("select_scatter", [tensor, element, axis, index])
        copied.called = "select_scatter", copied.inputs, {}
        program.change_into(tensor, copied)
    elif program.loop is not None and program.block is program.loop.block and isinstance(index, Ref):
        program.loop.put.append(StepPut(tensor, axis, index, element, views))
    else:
        return None
    return element


def _is_longest(inputs: Sequence[Argument]) -> bool:
    """Return whether packed data are padded to the length of the longest, and to no other."""
    length = inputs[4] if len(inputs) > 4 else None
    while isinstance(length, Ref) and length.operation is not None and length.operation.kind in ("int", "NumToTensor"):
        length = length.operation.inputs[0]
    if not isinstance(length, Ref):
        return length in (None, -1)
    return length.operation is not None and length.operation.kind == "size" and length.operation.inputs[0] is inputs[1]


def _single(program: OperatorProgram, kind: str, inputs: Sequence[Argument], attributes: Mapping[str, Any] | None = None) -> Ref:
    return program.output(program.apply(kind, inputs, attributes))


def _cast(program: OperatorProgram, kind: str, arguments: Sequence[Argument]) -> Ref:
    """Return a value in another element type; only on another device, if none is named."""
    dtype = next((argument for argument in arguments[1:] if isinstance(argument, np.dtype)), None)
    computed = kind == "type_as" or any(isinstance(argument, Ref | ElementTypeOf) for argument in arguments[1:])
    if dtype is None and not computed:
        return _single(program, "same", arguments[:1])
    return _single(program, kind, arguments[:1], {"dtype": dtype})


def _by_name(program: OperatorProgram, kind: str, inputs: Sequence[Argument], keywords: Mapping[str, Argument]) -> Any:
    """Return the output of an operator whose parameters are known by name."""
    plain = kind.rstrip("_")
    entry = aten.OPERATORS[plain]
    names, bare = entry.parameters.split(), entry.names
    stars = [name for name in names if name.endswith("*")]
    named = {entry.word(key): value for key, value in keywords.items()}
    values = dict(zip(bare, inputs, strict=False)) | {word: value for word, value in named.items() if word in bare}
    attributes = {name: value for name, value in values.items() if isinstance(value, str)}
    if not stars:
        arguments = [None if name in attributes else values.get(name) for name in bare]
        while arguments and arguments[-1] is None:
            arguments.pop()
        operation = program.apply(kind, arguments, attributes)
        return Several(operation) if plain in aten.SPLITS else program.output(operation)
    place = names.index(stars[0])
    tensors = values.get(bare[place])
    attributes |= {name: values[name] for name in bare[place + 1 :] if name in values}
    if isinstance(tensors, Several) and f"{plain} of {tensors.operation.kind}" in aten.DIALECT:
        split = tensors.operation
        return _single(program, f"{plain} of {split.kind}", split.inputs, attributes)
    if not isinstance(tensors, list) or not all(isinstance(tensor, Ref | None) for tensor in tensors):
        return _single(program, f"{plain} of a list that is computed", list(refs([*inputs, *keywords.values()])))
    return _single(program, kind, [*(values.get(name) for name in bare[:place]), *tensors], attributes)
