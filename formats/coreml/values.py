"""The values of a Core ML program: those that it states, and those that operations make of constants."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from rnnconvert.containers.files import shaped
from rnnconvert.containers.reading import charging
from rnnconvert.core.arrays import Array
from rnnconvert.core.errors import UnreadableError
from rnnconvert.formats.coreml.contents import UnknownError
from rnnconvert.formats.coreml.message import Message
from rnnconvert.formats.coreml.package import WeightFiles

TYPES = {10: "<f2", 11: "<f4", 12: "<f8", 21: "i1", 22: "<i2", 23: "<i4", 24: "<i8", 31: "u1", 32: "<u2", 33: "<u4", 34: "<u8"}
"""The element types of MIL.proto that are read, by their numbers."""
BOOL = 1
_AXES = 8
_MOVING = ("cast", "transpose", "squeeze", "expand_dims", "reshape", "identity", "split", "slice_by_index", "concat", "tile", "stack")
"""Operations that make zeros of zeros."""


@dataclass(frozen=True)
class ProgramOperation:
    """An operation: its type, the names or values that it reads, by parameter, the names that it gives, and its own message."""

    type: str
    name: str
    inputs: Mapping[str, list[str | Message]]
    outputs: list[str]
    message: Message

    def values(self) -> list[str]:
        """Return the names that it reads."""
        return [argument for arguments in self.inputs.values() for argument in arguments if isinstance(argument, str)]


class Values:
    """The operations of a function by the names of what they give, and what these are where it is constant.

    used  the constants that were asked for
    """

    def __init__(self, path: object, weights: WeightFiles) -> None:
        self.path, self.weights = path, weights
        self.makers: dict[str, ProgramOperation] = {}
        self.used: set[str] = set()

    def operation(self, message: Message) -> ProgramOperation:
        inputs: dict[str, list[str | Message]] = {}
        for parameter, argument in message.entries(2):
            inputs[parameter] = [
                binding.text(1) if 1 in binding else binding.submessage(2) or Message(memoryview(b""), self.path)
                for binding in argument.every(1)
            ]
        attributes = dict(message.entries(5))
        outputs = [output.text(1) for output in message.every(3)]
        name = self.text(attributes["name"]) if "name" in attributes else ""
        return ProgramOperation(message.text(1), name or next(iter(outputs), ""), inputs, outputs, message)

    def operations_in(self, block: Message) -> Iterator[ProgramOperation]:
        """Yield the operations of a block that give anything."""
        for message in block.every(3):
            output = next(message.every(3), None)
            if output is not None and (operation := self.makers.get(output.text(1))) is not None:
                yield operation

    def type(self, value: Message) -> tuple[tuple[int, ...], int]:
        """Return the shape of a value, and the number of its element type; 0 where it is not a tensor of a fixed shape."""
        tensor = value.within(2, 1)
        if tensor is None:
            return (), 0
        shape = []
        for dimension in tensor.every(3):
            constant = dimension.submessage(1)
            if constant is None:
                return (), 0
            shape.append(constant.number(1))
        if len(shape) > _AXES or any(length >= 1 << 40 for length in shape):
            raise UnreadableError(self.path, f"a value has the shape {shape[:_AXES]}")
        return tuple(shape), tensor.number(1)

    def text(self, value: Message) -> str:
        """Return the text of a value, or "" where it is not a text."""
        texts = value.within(3, 1, 4)
        strings = texts.texts(1) if texts is not None else []
        return strings[0] if len(strings) == 1 else ""

    def array(self, value: Message, what: str) -> Array:
        """Return the numbers of a value. Raises UnreadableError where they are damaged, UnknownError for a type that is unknown here."""
        shape, kind = self.type(value)
        if kind not in TYPES:
            raise UnknownError(f"{what} is of type {kind} of the format, which is not supported")
        blob = value.submessage(5)
        if blob is not None:
            array = self.weights.array(blob.text(1), blob.number(2), shape, what)
            if array.dtype.itemsize == np.dtype(TYPES[kind]).itemsize:
                return array.view(TYPES[kind])
            raise UnknownError(f"{what} is of type {kind} of the format, which its elements are not")
        tensor = value.within(3, 1)
        held = next(iter(tensor.fields), 0) if tensor is not None else 0
        content = tensor.submessage(held) if tensor is not None and held in (1, 2, 5, 6, 7) else None
        if content is None:
            raise UnreadableError(self.path, f"{what} has no numbers")
        if held == 1:
            numbers = content.reals(1)
        elif held in (6, 7):
            raw = content.content(1) or memoryview(b"")
            dtype = np.dtype("<f8" if held == 6 else TYPES[kind])
            if len(raw) % dtype.itemsize:
                raise UnreadableError(self.path, f"{what} has {len(raw)} bytes, which are not numbers of {dtype}")
            numbers = np.frombuffer(raw, dtype)
        else:
            numbers = np.array(content.integers(1), np.int64)
        if numbers.size != int(np.prod(shape, dtype=object)):
            raise UnreadableError(self.path, f"{what} of shape {shape} has {numbers.size} numbers")
        with np.errstate(all="ignore"):
            return shaped(numbers.astype(TYPES[kind], copy=False), shape, self.path, what)

    def constant(self, argument: str | Message, what: str, depth: int = 0) -> tuple[Array, str]:
        """Return a constant, and how it is stored where operations make it of something else.

        Raises UnknownError where the program computes it from what is not constant.
        """
        if isinstance(argument, Message):
            return self.array(argument, what), ""
        operation = self.makers.get(argument)
        if operation is None or depth > 16:
            raise UnknownError(f"its {what} is computed at run time, so the file lacks it")
        self.used.add(argument)
        if operation.type == "const":
            value = dict(operation.message.entries(5)).get("val")
            if value is None:
                raise UnreadableError(self.path, f"the constant {argument!r} has no value")
            return self.array(value, argument), ""

        def take(parameter: str) -> Array:
            source = operation.inputs.get(parameter)
            attribute = dict(operation.message.entries(5)).get(parameter)  # constexpr operations of iOS 16 have attributes
            if source:
                return self.constant(source[0], what, depth + 1)[0]
            if attribute is None:
                raise UnknownError(f"its {what} is made by {operation.type} without {parameter}, which is not read")
            return self.array(attribute, f"{parameter} of {argument}")

        if operation.type in ("cast", "constexpr_cast"):
            array = take("x" if operation.type == "cast" else "source_val")
            return array, f"{array.dtype}"
        if operation.type == "constexpr_affine_dequantize":
            codes = take("quantized_data")
            scale, zero, axis = take("scale"), take("zero_point"), int(take("axis").reshape(-1)[0])
            return self._affine(codes, scale, zero, axis, what), f"{codes.dtype}"
        if operation.type == "constexpr_lut_to_dense":
            return self._table(take("indices"), take("lut"), take("shape"), what), "a table"
        raise UnknownError(f"its {what} is made by {operation.type}, which is not read")

    def _affine(self, codes: Array, scale: Array, zero: Array, axis: int, what: str) -> Array:
        """Return scale * (code - zero), along an axis."""
        if not 0 <= axis < max(codes.ndim, 1) or any(factor.size not in (1, codes.shape[axis]) for factor in (scale, zero)):
            raise UnreadableError(self.path, f"{what} of shape {codes.shape} has {scale.size} scales and {zero.size} zero points")
        charging(codes.nbytes).memory(24 * codes.size, self.path)
        spread = [1] * codes.ndim
        spread[axis] = -1
        wide = [factor.astype(np.float64).reshape(spread) for factor in (scale, zero)]
        with np.errstate(all="ignore"):
            return (wide[0] * (codes - wide[1])).astype(np.float32)

    def _table(self, packed: Array, table: Array, shape: Array, what: str) -> Array:
        """Return the numbers of a table that packed indices name, the lowest bits first."""
        lengths = [int(extent) for extent in shape.reshape(-1)[:_AXES]]
        count, bits = 1, max(table.size - 1, 1).bit_length()
        for length in lengths:
            count *= max(length, 0)
        if packed.dtype != np.uint8 or table.size != 1 << bits or bits > 8 or packed.size != -(-count * bits // 8):
            raise UnreadableError(self.path, f"{what} has {packed.size} bytes of indices into a table of {table.size} numbers")
        charging(packed.size).memory(16 * count, self.path)
        lying = np.unpackbits(packed.reshape(-1), count=count * bits, bitorder="little").reshape(count, bits)
        return table.reshape(-1)[lying @ (1 << np.arange(bits)).astype(np.uint8)].reshape(lengths)

    def word(self, operation: ProgramOperation, parameter: str, default: str) -> str:
        """Return a text that an operation is given."""
        arguments = operation.inputs.get(parameter)
        if not arguments:
            return default
        source = arguments[0]
        if isinstance(source, str):
            maker = self.makers.get(source)
            value = dict(maker.message.entries(5)).get("val") if maker is not None and maker.type == "const" else None
        else:
            value = source
        text = self.text(value) if value is not None else ""
        if not text:
            raise UnknownError(f"its {parameter} is not a text of the file")
        return text

    def truth(self, operation: ProgramOperation, parameter: str) -> bool:
        """Return a truth that an operation is given; False where it is not given."""
        for argument in operation.inputs.get(parameter, []):
            maker = self.makers.get(argument) if isinstance(argument, str) else None
            value = dict(maker.message.entries(5)).get("val") if maker is not None else argument
            truths = value.within(3, 1, 3) if isinstance(value, Message) else None
            return truths is not None and truths.integers(1) == [1]
        return False

    def zero(self, argument: str | Message) -> bool:
        """Return whether a value is zeros: a constant, or what `fill` and operations on shapes make of them."""
        waiting, seen = [argument], set[str | Message]()
        while waiting:
            value = waiting.pop()
            maker = self.makers.get(value) if isinstance(value, str) else None
            if value in seen:
                continue
            seen.add(value)
            if maker is not None and (maker.type == "fill" or maker.type in _MOVING):
                sources = [operand for key in ("value", "x", "values") for operand in maker.inputs.get(key, [])]
                if not sources and maker.type != "fill":
                    return False
                waiting += sources
                continue
            try:
                array, _ = self.constant(value, "initial state")
            except UnknownError:
                return False
            if array.any():
                return False
        return True
