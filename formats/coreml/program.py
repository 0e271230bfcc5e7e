"""The recurrent operations of a Core ML program, whose weights are constants of the program.

Source: apple/coremltools, mlmodel/format/MIL.proto; coremltools 9.0, converters/mil/mil/ops/defs, for the operations.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from rnnconvert.containers import wire
from rnnconvert.containers.reading import charging
from rnnconvert.core.arrays import Array, is_float
from rnnconvert.core.cells import HARD_SIGMOID_KERAS_2, Activation, Cell, Clip
from rnnconvert.core.errors import UnreadableError
from rnnconvert.core.weights import Unconvertible
from rnnconvert.files.adapter import unique
from rnnconvert.files.options import Options
from rnnconvert.formats.coreml import found
from rnnconvert.formats.coreml.found import Flow, Network, Stated, UnknownError
from rnnconvert.formats.coreml.message import Message
from rnnconvert.formats.coreml.package import Weights

NAME = "coreml"
TYPES = {
    10: "<f2",
    11: "<f4",
    12: "<f8",
    21: "i1",
    22: "<i2",
    23: "<i4",
    24: "<i8",
    31: "u1",
    32: "<u2",
    33: "<u4",
    34: "<u8",
}
"""The element types of MIL.proto that are read, by their numbers."""
BOOL, STRING = 1, 2
_LISTS = {1: "<f4", 6: "<f8"}
_AXES = 8
_KINDS = ("lstm", "gru", "rnn")
_FUNCTIONS = {"tanh": 1, "sigmoid": 1, "relu": 1, "linear": 1, "hard_sigmoid": 0, "sigmoid_hard": 0}
_UNCHANGED = ("cast", "transpose", "squeeze", "expand_dims", "reshape", "identity", "split", "slice_by_index")
_DIRECTIONS = ("forward", "reverse", "bidirectional")
_KNOWN = {
    "x", "initial_h", "initial_c", "weight_ih", "weight_hh", "bias", "peephole", "weight_ih_back", "weight_hh_back", "bias_back",
    "peephole_back", "direction", "output_sequence", "recurrent_activation", "cell_activation", "activation", "clip",
}  # fmt: skip


def read(path: object, message: Message, weights: Weights, made: Network, options: Options) -> None:
    """Add the recurrent operations of every function to what was found. Raises UnreadableError for a damaged message."""
    functions = [*message.entries(2)]
    for name, function in functions:
        for _, block in function.entries(3):
            where = f"{name}/" if len(functions) > 1 else ""
            program = _Program(path, weights, made, options)
            program.block(block, where, 0)
            made.others |= program.others(where)


@dataclass(frozen=True)
class _Operation:
    """An operation: its type, the names or values that it reads, by parameter, and its own message."""

    type: str
    name: str
    inputs: Mapping[str, list[str | Message]]
    message: Message

    def values(self) -> list[str]:
        """Return the names that it reads."""
        return [one for given in self.inputs.values() for one in given if isinstance(one, str)]


class _Program:
    """The operations of one function."""

    def __init__(self, path: object, weights: Weights, made: Network, options: Options) -> None:
        self.path, self.weights, self.made, self.options = path, weights, made, options
        self.makers: dict[str, _Operation] = {}
        self.flow = Flow(_UNCHANGED)
        self.used: set[str] = set()

    def block(self, block: Message, where: str, depth: int) -> None:
        """Take the operations of a block, and of the blocks in them."""
        if depth > wire.DEPTH:
            raise UnreadableError(self.path, f"blocks are nested more than {wire.DEPTH} deep")
        for message in block.every(3):
            operation = self._operation(message)
            outputs = [one.text(1) for one in message.every(3)]
            self.makers |= dict.fromkeys(outputs, operation)
            if operation.type in _KINDS:
                self._recurrent(operation, outputs, where)
            if operation.type == "while_loop":
                self.made.unread.append(
                    f"{where}{operation.name}: a while_loop, as coremltools makes it of layers that its operations cannot compute, "
                    "such as PyTorch's GRU; it is not read"
                )
            data = operation.inputs.get("x") or operation.inputs.get("values") or []
            names = [one for one in data if isinstance(one, str)]
            self.flow.add(operation.type, names, outputs)
            for inner in message.every(4):
                self.block(inner, where, depth + 1)

    def _operation(self, message: Message) -> _Operation:
        inputs: dict[str, list[str | Message]] = {}
        for parameter, argument in message.entries(2):
            inputs[parameter] = [
                one.text(1) if 1 in one else one.one(2) or Message(memoryview(b""), self.path)
                for one in argument.every(1)
            ]
        attributes = dict(message.entries(5))
        outputs = [one.text(1) for one in message.every(3)]
        name = self._text(attributes["name"]) if "name" in attributes else ""
        return _Operation(message.text(1), name or next(iter(outputs), ""), inputs, message)

    def others(self, where: str) -> dict[str, Array]:
        """Return the constants that are numbers and of no recurrent operation, by their names."""
        others = {}
        for name, operation in self.makers.items():
            if operation.type != "const" or name in self.used:
                continue
            value = dict(operation.message.entries(5)).get("val")
            shape, kind = self._type(value) if value is not None else ((), 0)
            if shape and kind in TYPES and value is not None and is_float(np.zeros(0, TYPES[kind])):
                others[where + name] = self._array(value, name)
        return others

    # Values -------------------------------------------------------------------------------------------------

    def _type(self, value: Message) -> tuple[tuple[int, ...], int]:
        """Return the shape of a value, and the number of its element type; 0 where it is not a tensor of a fixed shape."""
        tensor = value.within(2, 1)
        if tensor is None:
            return (), 0
        shape = []
        for dimension in tensor.every(3):
            constant = dimension.one(1)
            if constant is None:
                return (), 0
            shape.append(constant.number(1))
        if len(shape) > _AXES or any(length >= 1 << 40 for length in shape):
            raise UnreadableError(self.path, f"a value has the shape {shape[:_AXES]}")
        return tuple(shape), tensor.number(1)

    def _text(self, value: Message) -> str:
        """Return the text of a value, or "" where it is none."""
        texts = value.within(3, 1, 4)
        found = texts.texts(1) if texts is not None else []
        return found[0] if len(found) == 1 else ""

    def _array(self, value: Message, what: str) -> Array:
        """Return the numbers of a value. Raises UnreadableError where they are damaged, UnknownError for a type that is unknown here."""
        shape, kind = self._type(value)
        blob = value.one(5)
        if blob is not None:
            array = self.weights.array(blob.text(1), blob.number(2), shape, what)
            if kind in TYPES and array.dtype.itemsize == np.dtype(TYPES[kind]).itemsize:
                return array.view(TYPES[kind])
            raise UnknownError(f"{what} is of type {kind} of the format, which is not supported")
        if kind == BOOL or kind not in TYPES:
            raise UnknownError(f"{what} is of type {kind} of the format, which is not supported")
        tensor = value.within(3, 1)
        held = next(iter(tensor.fields), 0) if tensor is not None else 0
        content = tensor.one(held) if tensor is not None and held in (1, 2, 5, 6, 7) else None
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
            numbers = np.array(content.whole(1), np.int64)
        if numbers.size != int(np.prod(shape, dtype=object)):
            raise UnreadableError(self.path, f"{what} of shape {shape} has {numbers.size} numbers")
        with np.errstate(all="ignore"):
            return numbers.astype(TYPES[kind], copy=False).reshape(shape)

    def _constant(self, given: str | Message, what: str, depth: int = 0) -> tuple[Array, str]:
        """Return a constant, and how it is stored where operations make it of something else.

        Raises UnknownError where the program computes it from what is not constant.
        """
        if isinstance(given, Message):
            return self._array(given, what), ""
        operation = self.makers.get(given)
        if operation is None or depth > 16:
            raise UnknownError(f"its {what} is computed at run time, so the file lacks it")
        self.used.add(given)
        if operation.type == "const":
            value = dict(operation.message.entries(5)).get("val")
            if value is None:
                raise UnreadableError(self.path, f"the constant {given!r} has no value")
            return self._array(value, given), ""

        def take(parameter: str) -> Array:
            source = operation.inputs.get(parameter)
            attribute = dict(operation.message.entries(5)).get(
                parameter
            )  # constexpr operations of iOS 16 have attributes
            if source:
                return self._constant(source[0], what, depth + 1)[0]
            if attribute is None:
                raise UnreadableError(self.path, f"{operation.type} {given!r} has no {parameter}")
            return self._array(attribute, f"{parameter} of {given}")

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
        if not 0 <= axis < max(codes.ndim, 1) or any(one.size not in (1, codes.shape[axis]) for one in (scale, zero)):
            raise UnreadableError(
                self.path, f"{what} of shape {codes.shape} has {scale.size} scales and {zero.size} zero points"
            )
        charging(codes.nbytes).memory(24 * codes.size, self.path)
        spread = [1] * codes.ndim
        spread[axis] = -1
        wide = [one.astype(np.float64).reshape(spread) for one in (scale, zero)]
        with np.errstate(all="ignore"):
            return (wide[0] * (codes - wide[1])).astype(np.float32)

    def _table(self, packed: Array, table: Array, shape: Array, what: str) -> Array:
        """Return the numbers of a table that packed indices name, the lowest bits first."""
        lengths = [int(one) for one in shape.reshape(-1)[:_AXES]]
        count, bits = 1, max(table.size - 1, 1).bit_length()
        for length in lengths:
            count *= max(length, 0)
        if packed.dtype != np.uint8 or table.size != 1 << bits or bits > 8 or packed.size != -(-count * bits // 8):
            raise UnreadableError(
                self.path, f"{what} has {packed.size} bytes of indices into a table of {table.size} numbers"
            )
        charging(packed.size).memory(16 * count, self.path)
        lying = np.unpackbits(packed.reshape(-1), count=count * bits, bitorder="little").reshape(count, bits)
        return table.reshape(-1)[lying @ (1 << np.arange(bits)).astype(np.uint8)].reshape(lengths)

    # Recurrent operations -----------------------------------------------------------------------------------

    def _recurrent(self, operation: _Operation, outputs: list[str], where: str) -> None:
        name = unique(where + (operation.name or operation.type), [*self.made.layers])
        try:
            arrays, stored = self._arrays(operation)
            cells, reverse = self._cells(operation, name)
            states, odd = self._states(operation, name, len(cells), arrays["weight_hh"])
        except UnknownError as error:
            self.made.unread.append(f"{name}: {error}")
            return
        own = {**arrays, **states}
        stated = Stated(operation.type, cells, reverse)
        stack = found.assembled(self.path, name, NAME, own, stated)
        data = [one for one in operation.inputs.get("x", []) if isinstance(one, str)]
        self.made.layers[name] = stack.replace(reads=self.flow.reads(data), unconvertible=odd)
        self.flow.layers |= dict.fromkeys(outputs[:1], name)
        self.made.arrays |= {f"{name}/{local}": array for local, array in own.items()}
        self.made.evidence.append(f"{name}: an operation {operation.type}")
        for one in stored:
            self.made.warnings.append(
                f"{name}: its weights are stored as {one}, and are read as the numbers that these stand for"
            )
        unknown = {
            parameter: "an input that is unknown here" for parameter in operation.inputs if parameter not in _KNOWN
        }
        self.options.facts(name, "its operation", unknown)

    def _arrays(self, operation: _Operation) -> tuple[dict[str, Array], list[str]]:
        both = self._said(operation, "direction", "forward") == "bidirectional"
        arrays: dict[str, Array] = {}
        stored: dict[str, None] = {}
        for local in ("weight_ih", "weight_hh", "bias", *(("peephole",) if operation.type == "lstm" else ())):
            for way in ("", "_back") if both else ("",):
                given = operation.inputs.get(local + way)
                if not given:
                    if local.startswith("weight"):
                        raise UnreadableError(self.path, f"{operation.type} {operation.name!r} has no {local + way}")
                    continue
                array, how = self._constant(given[0], local + way)
                arrays[local + way] = array.astype("<f4") if array.dtype == np.float64 else array
                stored |= {how: None} if how else {}
        for local in ("bias", "peephole"):  # one direction may have what the other one lacks: zeros there
            ways = [local + way for way in ("", "_back")[: 1 + both]]
            present = [way for way in ways if way in arrays]
            arrays |= {way: np.zeros_like(arrays[present[0]]) for way in ways if present and way not in arrays}
        return arrays, [*stored]

    def _said(self, operation: _Operation, parameter: str, default: str) -> str:
        """Return a text that an operation is given."""
        given = operation.inputs.get(parameter)
        if not given:
            return default
        source = given[0]
        if isinstance(source, str):
            maker = self.makers.get(source)
            value = dict(maker.message.entries(5)).get("val") if maker is not None and maker.type == "const" else None
        else:
            value = source
        said = self._text(value) if value is not None else ""
        if not said:
            raise UnknownError(f"its {parameter} is not a text of the file")
        return said

    def _function(self, operation: _Operation, parameter: str, default: str) -> Activation:
        said = self._said(operation, parameter, default).lower()
        if said not in _FUNCTIONS:
            raise UnknownError(f"its {parameter} is {said!r}, whose constants Core ML does not state")
        return HARD_SIGMOID_KERAS_2 if not _FUNCTIONS[said] else Activation(said)

    def _cells(self, operation: _Operation, name: str) -> tuple[tuple[Cell, ...], bool]:
        """Return the cell of each direction, and whether the only one reads from the end."""
        way = self._said(operation, "direction", "forward")
        if way not in _DIRECTIONS[: 3 if operation.type == "lstm" else 2]:
            raise UnreadableError(self.path, f"{name!r} has the direction {way!r}")
        activation = self._function(operation, "activation", "tanh")
        if operation.type == "rnn":
            cell = Cell("rnn", activation=activation)
        else:
            gates = self._function(operation, "recurrent_activation", "sigmoid")
            cell = Cell("gru", False, activation=activation, gate_activation=gates) if operation.type == "gru" else Cell(
                "lstm", None, self._function(operation, "cell_activation", "tanh"), gates, activation, clips=self._clips(operation, name)
            )  # fmt: skip
        return (cell,) * (1 + (way == "bidirectional")), way == "reverse"

    def _clips(self, operation: _Operation, name: str) -> tuple[Clip, ...]:
        given = operation.inputs.get("clip")
        if not given:
            return ()
        bound, _ = self._constant(given[0], "clip")
        return found.cell_clips(
            self.path, name, float(bound.reshape(-1)[0]) if bound.size == 1 else 0.0, self.made.warnings
        )

    def _states(
        self, operation: _Operation, name: str, ways: int, recurrent: Array
    ) -> tuple[dict[str, Array], tuple[Unconvertible, ...]]:
        """Return learned initial states, and those that have no canonical form; a warning names those of the caller."""
        states: dict[str, Array] = {}
        odd = []
        width = ways * recurrent.shape[-1] if recurrent.ndim == 2 else 0
        for parameter in ("initial_h", "initial_c")[: 2 if operation.type == "lstm" else 1]:
            given = operation.inputs.get(parameter)
            if not given or self._zero(given[0]):
                continue
            source = given[0]
            maker = self.makers.get(source) if isinstance(source, str) else None
            if isinstance(source, str) and maker is None:
                self.made.warnings.append(f"{name}: its {parameter} is given at run time. Pass it yourself")
                continue
            try:
                rows, _ = self._constant(source, parameter)
            except UnknownError:
                reason = f"{parameter} is made by {maker.type if maker else 'something'}"
                odd.append(Unconvertible("initial_state", "an initial state made in the program", reason))
                continue
            if rows.ndim != 2 or rows.shape[1] != width or (rows != rows[:1]).any():
                reason = f"{parameter} has the shape {rows.shape}, and rows that differ"
                odd.append(Unconvertible("initial_state", "an initial state for one batch", reason))
                continue
            states[parameter] = rows[:1].astype(recurrent.dtype, copy=False)
        return states, tuple(odd)

    def _zero(self, given: str | Message, depth: int = 0) -> bool:
        """Return whether a value is zeros: a constant, or what `fill` and operations on shapes make of them."""
        if isinstance(given, str) and depth < 16:
            maker = self.makers.get(given)
            if maker is not None and maker.type == "fill":
                value = maker.inputs.get("value")
                return not value or self._zero(value[0], depth + 1)
            if maker is not None and maker.type in (*_UNCHANGED, "concat", "tile", "stack"):
                sources = [one for key in ("x", "values") for one in maker.inputs.get(key, [])]
                return bool(sources) and all(self._zero(one, depth + 1) for one in sources)
        try:
            array, _ = self._constant(given, "initial state")
        except UnknownError:
            return False
        return not array.any()
