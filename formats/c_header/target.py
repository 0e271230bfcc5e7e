"""A described model as a program of C: which of its tensors are sequences, and which operation each of its nodes is."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rnnconvert.core import int8
from rnnconvert.core.arrays import Array
from rnnconvert.core.errors import RefusedError
from rnnconvert.core.weights import Direction, Layer, Recurrent
from rnnconvert.files.adapter import c_names
from rnnconvert.formats.c_header.layer_code import LAYER_IDENTIFIERS, StoredMatrix, WrittenLayer
from rnnconvert.formats.c_header.model_code import ModelPort, WrittenModel, matrices
from rnnconvert.formats.c_header.program import StepProgram, StepValues, TimeAxis
from rnnconvert.formats.c_header.sequence_operations import KINDS
from rnnconvert.formats.c_header.write import MATRICES, as_bytes
from rnnconvert.language import registry
from rnnconvert.language.packing import pack
from rnnconvert.rewrites.fit_to_layout import fit_to_layout
from rnnconvert.scaffolding import kinds
from rnnconvert.scaffolding.description import DescribedModel, Description, Node, Value
from rnnconvert.scaffolding.tried_axes import OtherAxesError, likelier
from rnnconvert.scaffolding.walk import LayerWalk
from rnnconvert.scaffolding.weights import LayerWeights

TITLE = "a C header"
BATCH, TIME, BOTH = "batch", "time", "steps of the batch"
OPEN = (BATCH, TIME, BOTH)
"""The axes that have no length of their own in memory."""
Axes = tuple["str | int", ...]
_MOST_TRIED = 64
_MOST_WHOLE = 1 << 24
"""Up to here float32 has every whole number."""
_LETTER = re.compile("[A-Za-z0-9]")


@dataclass(frozen=True)
class ProgramTensor:
    """A tensor of the description as a value of the program.

    value  its number
    axes   its axes: the batch, the time, both in one, or lengths; in memory the steps come first, then the lengths in their order
    """

    value: int
    axes: Axes

    @property
    def lengths(self) -> list[int]:
        """The lengths of what it has at a step."""
        return [axis for axis in self.axes if isinstance(axis, int)]

    def axis(self, axis: int) -> int:
        """Return an axis counted from the front."""
        return axis % len(self.axes)

    def place(self, axis: int) -> tuple[int, int]:
        """Return the length of an axis, and how many numbers are within it. Raises ValueError for the batch and the time."""
        axis = self.axis(axis)
        length = self.axes[axis]
        if not isinstance(length, int):
            raise ValueError(f"it works along the axis of the {length}")
        return length, math.prod(each for each in self.axes[axis + 1 :] if isinstance(each, int))


class ModelBuilder(LayerWalk[ProgramTensor]):
    """A program under construction: what stands for a tensor is a value of it, with its axes.

    inputs  for each input of the model what its axes are
    """

    title, unknown = TITLE, "no code in C is known for it"

    def __init__(self, description: Description, weights: LayerWeights, name: str, inputs: Sequence[Axes], storage: str) -> None:
        from rnnconvert.formats.c_header.target_rules import RULES

        super().__init__(description.scope, RULES, weights)
        self.name, self.storage = c_names([name])[name], storage
        self.program = StepProgram(KINDS)
        self.recurrent: list[str] = []
        self.layers: dict[str, WrittenLayer] = {}
        self.arrays: dict[str, StoredMatrix] = {}
        self.notes: list[str] = []
        self.stateful: set[bool] = set()
        self._names: dict[str, str] = {}
        self._identifiers: set[str] = set()
        self._reserved = re.compile(rf"{self.name.upper()}(?:_(?:STATE|STEP|RUN|ADVANCE|RESULT|WORK|KEPT_\d+|\w+_SIZE|\w+_STEPS))?")
        self._real: dict[int, int] = {}
        self._times: dict[str, int] = {}
        top = description.scope
        self._read = {id(value) for value in _every_read(top)}
        indices = _indices(top)
        self.inputs = []
        self.batches: set[int] = set()
        """The lengths of the batch that the inputs state, -1 for none."""
        for number, (value, axes) in enumerate(zip(top.inputs, inputs, strict=True)):
            integral = np.dtype(value.dtype).kind in "iub" or id(value) in indices
            time = None
            if TIME in axes:
                words = value.axes[axes.index(TIME)] if value.axes else ""
                time = self._axis(value.shape[axes.index(TIME)], words)
            size = math.prod(axis for axis in axes if isinstance(axis, int))
            self.program.values.append(StepValues(size, time, integral))
            self._held[id(value)] = ProgramTensor(number, axes)
            self.inputs.append(ModelPort(value.name, number, axes))
            if BATCH in axes:
                self.batches.add(value.shape[axes.index(BATCH)] or -1)
        self.run(top)
        self.outputs = []
        for value in top.outputs:
            tensor = self(value)
            by_steps = self.program.values[tensor.value].time is not None
            if BOTH in tensor.axes or BATCH not in tensor.axes or by_steps != (TIME in tensor.axes):
                raise RefusedError(f"the output {value.name!r}", TITLE, "it is not an output of each sequence", "", value.name)
            self.outputs.append(ModelPort(value.name, tensor.value, tensor.axes))

    def _axis(self, length: int | None, word: str) -> int:
        """Return the time axis of an input: that of another one where the source says that they are one."""
        if word in self._times:
            return self._times[word]
        self.program.axes.append(TimeAxis(length))
        number = len(self.program.axes) - 1
        if word:
            self._times[word] = number
        return number

    # Names

    def c_name(self, wanted: str, ends: Sequence[str]) -> str:
        """Return the name in C of a layer of the source. Each of its identifiers is new: neither in use nor like those of the model itself.

        ends  the suffixes of its identifiers behind that name
        """
        if wanted not in self._names:
            full = f"{self.name}_{wanted if _LETTER.search(wanted) else 'layer'}"
            stem = c_names([full])[full]
            for count in itertools.count(1):
                called = stem if count == 1 else f"{stem}_{count}"
                identifiers = {called.upper(), *(f"{called}_{end}".upper() for end in ends)}
                if self._identifiers.isdisjoint(identifiers) and not any(map(self._reserved.fullmatch, identifiers)):
                    break
            self._names[wanted] = called
            self._identifiers |= identifiers
        return self._names[wanted]

    def reads(self, values: Sequence[Value]) -> bool:
        """Return whether anything reads one of some tensors of the description."""
        return any(id(value) in self._read for value in values)

    def in_float32(self, node: Node[kinds.Kind], *numbers: float | None) -> None:
        """Note that whole numbers are computed in float32.

        Raises RefusedError for a result of 8 bits, which begins anew behind the last number, and for a stated number that float32 lacks.
        """
        if node.y.dtype in ("int8", "uint8"):
            raise self.refused(node, f"a {node.kind.word} that gives {node.y.dtype}", "its whole numbers have more than 8 bits")
        if not any("int" in value.dtype for value in (*node.inputs, node.y)):
            return
        for number in numbers:
            if number is not None and np.isfinite(number) and abs(number) > _MOST_WHOLE and float(np.float32(number)) != number:
                reason = f"it computes in float32, which has all of them up to {_MOST_WHOLE:,} alone"
                raise self.refused(node, f"the whole number {number}", reason)
        note = f"whole numbers are computed in float32, exactly up to {_MOST_WHOLE:,}"
        if note not in self.notes:
            self.notes.append(note)

    # Tensors

    def __call__(self, value: Value) -> ProgramTensor:
        """Return the program's counterpart of a tensor of the description. Raises ValueError for one that a step of a loop cannot read."""
        tensor = self._held.get(id(value))
        if tensor is None:
            raise ValueError("a step of a loop reads all steps of a sequence")
        return tensor

    def give(self, value: Value, number: int, axes: Axes) -> None:
        """Let a tensor of the description be a value of the program."""
        self._held[id(value)] = ProgramTensor(number, axes)

    def real(self, number: int) -> int:
        """Return a value in real numbers that may be read at any time: an input of whole numbers, or without steps, is copied."""
        value = self.program.values[number]
        if number < len(self.inputs) and (value.integral or value.time is None):
            if number not in self._real:
                (self._real[number],) = self.program.add("function", [number], "", {"function": "linear", "alpha": None})
            return self._real[number]
        return number

    def visit(self, node: Node[kinds.Kind]) -> None:
        rule = self.rule(node)
        try:
            rule(self, node)
        except RefusedError as error:  # its remedies are settings of a conversion
            raise RefusedError(error.feature, TITLE, error.reason, "", error.layer or self.scope.inside(node.label)) from None
        except ValueError as error:
            raise OtherAxesError(f"this layer of kind {node.kind.word!r}", TITLE, f"{error}", "", self.scope.inside(node.label)) from None

    def add(self, kind: str, reads: Sequence[int], name: str = "", **settings: Any) -> tuple[int, ...]:
        """Append an operation."""
        read = [number if kind == "embedding" else self.real(number) for number in reads]
        return self.program.add(kind, read, name, settings)

    def combined(self, operation: str, operands: Sequence[ProgramTensor | float]) -> int:
        """Return the value of an operation on numbers at the same places of tensors, whose lengths spread over one another."""
        reads = [operand.value for operand in operands if isinstance(operand, ProgramTensor)]
        shapes = [operand.lengths if isinstance(operand, ProgramTensor) else float(operand) for operand in operands]
        (y,) = self.add("combined", reads, operation=operation, operands=shapes)
        return y

    def stored(self, name: str, arrays: Mapping[str, Array]) -> str:
        """Keep the arrays of a layer, once, and return what it is called in C."""
        called = self.c_name(name, [*arrays, *(f"{local}_scale" for local in arrays)])
        if called not in self.arrays:
            dtype = np.dtype({"int8": "float32"}.get(self.storage, self.storage))
            plain = {local: _as(array, dtype) for local, array in arrays.items()}
            self.arrays[called] = StoredMatrix(plain, {})
            if self.storage == "int8" and (narrow := matrices({local: array.shape for local, array in plain.items()})):
                self.arrays[called], *change = as_bytes(plain, narrow)
                self.notes.append(int8.narrowed(called, *change))
        return called

    def constant(self, name: str, array: Array, axes: Axes | None = None) -> ProgramTensor:
        """Return stored numbers as a tensor. What a description calls them may be what it calls others, too.

        Raises RefusedError for whole numbers that the element type of what is stored lacks.
        """
        numbers = np.asarray(array).reshape(-1)
        for count in itertools.count(1):
            called = self.stored(name if count == 1 else f"{name}/{count}", {"numbers": numbers})
            stored = np.asarray(self.arrays[called].numbers["numbers"])
            if np.array_equal(stored, _as(numbers, stored.dtype), equal_nan=True):
                break
        if numbers.dtype.kind in "iu":
            computed = stored.astype(np.float32).tolist()
            lacking = [number for number, held in zip(numbers.tolist(), computed, strict=True) if number != held]
            if lacking:
                narrowest = min(stored.dtype, np.dtype(np.float32), key=lambda dtype: dtype.itemsize)
                reason = f"as numbers of {narrowest.name}, it lacks {lacking[0]}"
                raise RefusedError("stored whole numbers", TITLE, reason, "", self.scope.inside(name))
        (number,) = self.add("stored", [], called, size=int(numbers.size))
        return ProgramTensor(number, tuple(np.shape(array)) if axes is None else axes)

    def layer(self, label: str, direction: Direction) -> str:
        """Keep one direction of a recurrent layer, and return what it is called in C."""
        called = self.c_name(label, LAYER_IDENTIFIERS)
        if called not in self.layers:
            dtype = np.dtype({"int8": "float32"}.get(self.storage, self.storage))
            fitted = fit_to_layout(Recurrent(label, (Layer((direction,)),)), registry.layouts_of("c_header"))
            stack, layout = fitted.stack, fitted.layout
            packed = pack(layout, stack, dtype)
            stored = StoredMatrix(packed, {})
            if self.storage == "int8":
                stored, *change = as_bytes(packed, MATRICES, by_columns=True)
                self.notes.append(int8.narrowed(called, *change))
            self.layers[called] = WrittenLayer(called, layout, stack, dtype, stored)
            first = stack.first
            self.program.layers[called] = (first.input_size, first.output_size, first.hidden_size if first.cell.kind == "lstm" else 0)
            self.recurrent.append(f"{called} ({first.cell.kind.upper()} {first.input_size} -> {first.output_size})")
        return called


def _as(array: Array, dtype: np.dtype[Any]) -> Array:
    plain = np.asarray(array)
    return plain if plain.dtype == dtype else plain.astype(dtype)


def _every_read(scope: DescribedModel) -> Iterator[Value]:
    """Yield the tensors that the nodes of a model read, and its outputs; likewise of the models and the loops in it."""
    yield from scope.outputs
    for node in scope.nodes:
        yield from node.reads()
        if isinstance(node.kind, kinds.Scoped):
            yield from _every_read(node.kind.scope)


def _indices(scope: DescribedModel) -> set[int]:
    """Return the inputs of a model that an embedding reads."""
    read = set()
    for node in scope.nodes:
        if isinstance(node.kind, kinds.Embedding):
            read.add(id(node.x))
        elif isinstance(node.kind, kinds.Model):
            inner = _indices(node.kind.scope)
            read.update(id(value) for start, value in zip(node.kind.scope.inputs, node.inputs, strict=False) if id(start) in inner)
    return read


def _candidates(value: Value) -> list[Axes]:
    """Return the possible axes of an input, the most likely first: batch and time in front, if they are open or there are three."""
    rank = len(value.shape)
    order: list[Axes] = []
    pairs = [(0, 1), (1, 0), (0, None), (1, None), (0, 2), *((0, axis) for axis in range(3, rank)), (None, 0), (None, None)]
    if rank == 2 and value.shape[1] is not None:
        pairs = [(0, None), *pairs]
    pairs = [(batch, time) for batch, time in pairs if (batch or 0) < rank and (time or 0) < rank]
    pairs.sort(key=lambda pair: (_stated(value, pair[0]) != -1, _stated(value, pair[1]) == 1))
    for batch, time in pairs:
        axes: list[str | int | None] = list(value.shape)
        if batch is not None:
            axes[batch] = BATCH
        if time is not None:
            axes[time] = TIME
        closed = tuple(axis for axis in axes if axis is not None)
        if len(closed) == rank and closed not in order:
            order.append(closed)
    return order


def _stated(value: Value, axis: int | None) -> int:
    """Return the length of an axis: -1 for one that is open, 0 for none."""
    length = 0 if axis is None else value.shape[axis]
    return -1 if length is None else length


def built(description: Description, weights: LayerWeights, name: str, storage: str) -> ModelBuilder:
    """Return the program of a model, which separates its sequences from what it has once.

    The axes of its inputs are tried, the most likely first, until its layers find their steps among them.

    Raises RefusedError for a layer or a setting without an equivalent.
    """
    possible: tuple[Sequence[Axes], ModelBuilder] | None = None
    first: RefusedError | None = None
    tried = itertools.product(*(_candidates(value) for value in description.scope.inputs))
    for axes in itertools.islice(tried, _MOST_TRIED):
        try:
            builder = ModelBuilder(description, weights, name, axes, "float32")
            by_steps = not model_of(builder).why_no_step
        except RefusedError as error:
            first = likelier(first, error)
            continue
        finds = any(TIME in each for each in axes) and not any(each.kind == "as steps" for each in builder.program.operations)
        possible = (axes, builder) if by_steps or finds or possible is None else possible
        if by_steps or finds:
            break
    if possible is None:
        raise first or RefusedError("an input with several open axes", TITLE, "one axis alone can be the time")
    chosen, builder = possible
    return builder if storage == builder.storage else ModelBuilder(description, weights, name, chosen, storage)


def model_of(builder: ModelBuilder) -> WrittenModel:
    """Return the C of a program. Raises RefusedError for states that last from run to run where the model is not computed by steps."""
    stateful = builder.stateful == {True}
    model = WrittenModel(builder.name, builder.program, builder.inputs, builder.outputs, builder.storage, stateful, builder.arrays)
    keeps_more = any(
        KINDS[each.kind].keeps and each.kind != "recurrent" and KINDS[each.kind].form(each.settings) in ("kept", "state")
        for each in builder.program.operations
    )
    if True in builder.stateful and (not stateful or model.why_no_step or keeps_more):
        raise RefusedError(
            "stateful = True", TITLE, "its states last from one call to the next, beside layers that begin anew", "Build it without."
        )
    return model
