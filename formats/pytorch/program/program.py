"""The computation of a TorchScript archive's code or an exported program, operator by operator, before it becomes a graph.

Operators that work in place change every other tensor that shares elements with theirs: reading these afterwards gives another value.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from rnnconvert.core.arrays import Array
from rnnconvert.core.limits import PROGRAM_OPERATIONS, SHARED_LOOKS
from rnnconvert.formats.pytorch import aten
from rnnconvert.formats.pytorch.program.kinds import APART, CHANGED, CUT, LIST
from rnnconvert.graphs.graph import Dims, Graph
from rnnconvert.scaffolding.description import Check

Argument: TypeAlias = "Any"
"""A Ref, a number, a text, None, numpy's dtype, an ElementTypeOf, or a list of these."""


class TooLongError(Exception):
    """A program that is too long, or nested too deeply, to be followed."""


@dataclass(eq=False, repr=False)
class SharedElements:
    """Elements that tensors share.

    version   how often they were changed in place
    parents   the elements of which they are a part
    children  their own parts
    apart     whether no other part of the parents has any of them
    """

    version: int = 0
    apart: bool = False
    parents: tuple[SharedElements, ...] = ()
    children: list[SharedElements] = field(default_factory=list)

    def lineage(self) -> set[SharedElements]:
        """Return these elements and all of which they are a part."""
        seen, waiting = {self}, [*self.parents]
        while waiting:
            each = waiting.pop()
            if each not in seen:
                seen.add(each)
                waiting += each.parents
        return seen


@dataclass(eq=False, repr=False)
class Ref:
    """A value that only a run of the program gives: a tensor, or a number or list that depends on shapes.

    operation  what gives it; None for an input of the program and for what it keeps
    stored     the name of a parameter, buffer or constant
    version    how often its elements had been changed when it was made
    dims       the lengths of its axes, where they are stated
    dtype      its element type, where it is stated
    """

    name: str
    storage: SharedElements
    operation: OperatorCall | None = None
    stored: str = ""
    version: int = 0
    dims: Dims | None = None
    dtype: str = ""

    def __str__(self) -> str:
        return self.name


class ElementTypeOf(str):
    """The element type of a value that the program asks for, as a text for those who cannot know it.

    value  the value
    """

    __slots__ = ("value",)
    value: Any

    @staticmethod
    def of(value: Any) -> ElementTypeOf:
        """Return the element type of a value."""
        text = ElementTypeOf("the dtype of a value")
        text.value = value
        return text


@dataclass(frozen=True, eq=False)
class LoopState:
    """A value that a loop hands from step to step.

    handed  what stands for it in a step
    before  what the loop begins with
    left    what a step leaves
    last    what the last step leaves, where the loop changes it
    """

    handed: Ref
    before: Argument
    left: Argument
    last: Argument


@dataclass(frozen=True, eq=False)
class LoopList:
    """A list into which each step of a loop puts a value.

    element   the one value of a step
    at_front  whether it is put before those of earlier steps, and not behind them
    filled    the stand-in for the values of all steps, behind the loop
    index     for a tensor that the steps fill: the place of a step
    """

    element: Argument
    at_front: bool
    filled: Ref
    index: Argument = None


@dataclass(frozen=True, eq=False)
class StepPut:
    """A value that a step of a loop puts into a tensor from before it.

    tensor   the tensor
    axis     the axis whose places the steps fill
    index    the place of a step
    element  the value
    views    the operators that pick out the place
    """

    tensor: Ref
    axis: int
    index: Argument
    element: Argument
    views: Sequence[OperatorCall]


@dataclass(eq=False)
class UnknownLoop:
    """A loop whose steps are not known.

    index   the number of the step, if it counts them
    count   how many steps it has, if it counts them
    states  what its steps hand on
    listed  the lists that its steps fill
    put     what its steps put into tensors
    block   what its operators have as their block
    why     why it is not a plain one over the steps of sequences; "" where nothing is known against it
    """

    index: Ref | None = None
    count: Argument = None
    states: list[LoopState] = field(default_factory=list)
    listed: list[LoopList] = field(default_factory=list)
    put: list[StepPut] = field(default_factory=list)
    block: object = None
    why: str = ""


@dataclass(frozen=True)
class Caller:
    """A call of a module.

    key   tells the calls of one module from one another
    path  where the module is, "" for the outermost
    kind  its class, with the package
    """

    key: str
    path: str
    kind: str


@dataclass(eq=False, repr=False)
class OperatorCall:
    """An operator with what it reads: Refs, numbers, texts, None, and lists of these.

    attributes  further statements of the code; "count" is the number of parts of a list that it takes apart
    base     the elements that it changes in place, if it does
    loop     the loop in whose body it stands, if it is in one
    block    the innermost branch or loop that is not decided before a run in which it stands, if it is in one
    outputs  its outputs, by number; outputs that nothing reads are left out
    called   the operator as the code calls it: its name, its arguments, and its keyword arguments
    callers  the modules in whose calls it runs, the outermost first, if the file states them
    """

    kind: str
    inputs: list[Any]
    attributes: dict[str, Any]
    label: str
    base: SharedElements | None = None
    loop: UnknownLoop | None = None
    block: object = None
    outputs: dict[int, Ref] = field(default_factory=dict)
    called: tuple[str, list[Any], dict[str, Any]] | None = None
    callers: tuple[Caller, ...] = ()


@dataclass(eq=False)
class Several:
    """A list of tensors that an operator gives, as long as their shapes say."""

    operation: OperatorCall

    @property
    def steps(self) -> tuple[Any, Any, bool] | None:
        """The sequence whose single steps these are, its axis, and whether each step keeps that axis; None for other parts."""
        if self.operation.kind in APART:
            base, axis, *_ = [*self.operation.inputs, 0]
            return base, axis, False
        if self.operation.kind in CUT and self.operation.inputs[1:2] == [1]:
            base, _, axis, *_ = [*self.operation.inputs, 0]
            return base, axis, True
        return None


class OperatorProgram:
    """The operators of a program in their order.

    inputs   its inputs
    outputs  its outputs: a value, or a list of them, as they stand at its end
    changed  the module's values that a call leaves changed: parameters, buffers and other attributes, by name
    checks   the conditions that lengths of its inputs have to fulfil
    constants  the numbers that it holds in addition to its module's weights, by name
    numbers  the inputs of its code that are plain numbers, with the element types of tensors that hold these
    """

    def __init__(self) -> None:
        self.constants: Mapping[str, Array] = {}
        self.numbers: dict[str, str] = {}
        self.operations: list[OperatorCall] = []
        self.inputs: list[Ref] = []
        self.outputs: Argument = None
        self.changed: dict[str, None] = {}
        self.checks: list[Check] = []
        self.loop: UnknownLoop | None = None
        self.block: object = None
        self._stored: dict[str, Ref] = {}
        self._now: dict[Ref, Ref] = {}
        self._replaced: dict[Ref, OperatorCall] = {}
        self._looks = 0

    def input(self, name: str, dims: Dims | None = None) -> Ref:
        """Return a new value that nothing in the program gives."""
        self.inputs.append(Ref(name, SharedElements(), dims=dims))
        return self.inputs[-1]

    def stored(self, name: str) -> Ref:
        """Return a parameter, buffer or constant by its name."""
        if name not in self._stored:
            self._stored[name] = Ref(name, SharedElements(), stored=name)
        return self._stored[name]

    def end(self, outputs: Argument) -> None:
        """Note what the program gives, as it stands after the last operator, and what of the module it leaves changed."""
        self.outputs = self.current(outputs)
        self.changed |= dict.fromkeys(name for name, ref in self._stored.items() if self.is_changed(ref))

    def is_changed(self, ref: Ref) -> bool:
        """Return whether a value's elements were changed in place since it was made."""
        return ref.storage.version != ref.version

    def apply(self, kind: str, inputs: Sequence[Argument], attributes: Mapping[str, Any] | None = None, label: str = "") -> OperatorCall:
        """Note an operator; a kind that ends in an underscore works in place."""
        if len(self.operations) >= PROGRAM_OPERATIONS:
            raise TooLongError(f"it has more than {PROGRAM_OPERATIONS} operators")
        plain = kind.rstrip("_") if not kind.startswith("__") else kind
        read = [self.current(operand) for operand in inputs]
        operation = OperatorCall(plain, read, dict(attributes or {}), label or plain, loop=self.loop, block=self.block)
        self.operations.append(operation)
        if plain != kind and not _is_off(operation):
            self.change(operation, operation.inputs[:1])
            first = read[0] if read else None
            if isinstance(first, Ref) and (first.operation.block if first.operation is not None else None) is self.block:
                self._replaced[first] = operation  # who reads this value later reads what the operator gives: it runs wherever that is made
        return operation

    def change(self, operation: OperatorCall, values: Sequence[Argument]) -> None:
        """Note that an operator changes values in place; the first of them is what it gives."""
        for ref in refs(values):
            operation.base = operation.base or ref.storage
            self._change(ref.storage)

    def change_into(self, value: Ref, operation: OperatorCall) -> None:
        """Note that an operator changes a value in place to what it gives."""
        self.change(operation, [value])
        self._replaced[value] = operation

    def output(self, operation: OperatorCall, number: int = 0, name: str = "") -> Ref:
        """Return a value that an operator gives."""
        if number not in operation.outputs:
            storage = _storage_of(operation)
            operation.outputs[number] = Ref(name or f"{operation.label}", storage, operation, version=storage.version)
        return operation.outputs[number]

    def current(self, value: Argument) -> Argument:
        """Return an argument as it stands now."""
        if isinstance(value, list | tuple):
            return [self.current(item) for item in value]
        while isinstance(value, Ref) and self.is_changed(value) and value in self._replaced:
            value = self.output(self._replaced[value])
        if not isinstance(value, Ref) or not self.is_changed(value):
            return value
        current = self._now.get(value)
        if current is None or self.is_changed(current):
            if len(self.operations) >= PROGRAM_OPERATIONS:
                raise TooLongError(f"it has more than {PROGRAM_OPERATIONS} operators")
            changed = OperatorCall(CHANGED, [value], {}, f"{value.name}, {CHANGED}", loop=self.loop, block=self.block)
            self.operations.append(changed)
            current = Ref(value.name, value.storage, changed, version=value.storage.version)
            changed.outputs[0] = current
            self._now[value] = current
        return current

    def _change(self, storage: SharedElements) -> None:
        """Note that elements are changed in place, and with them the elements of every tensor that may share some."""
        changed, above = {storage: None}, [storage]
        below = [*storage.children]
        while above:
            part = above.pop()
            for parent in part.parents:
                if parent not in changed:
                    changed[parent] = None
                    above.append(parent)
                below += [child for child in parent.children if child is not part and not (part.apart and child.apart)]
                self._look(len(parent.children))
        while below:
            part = below.pop()
            if part not in changed:
                changed[part] = None
                below += part.children
                self._look(len(part.children))
        for changed_part in changed:
            changed_part.version += 1

    def _look(self, times: int) -> None:
        self._looks += times + 1
        if self._looks > SHARED_LOOKS:
            raise TooLongError("too many of its tensors share their elements")


def lower(graph: Graph, operation: OperatorCall) -> None:
    """Add an operator to a graph."""
    count = max(operation.outputs, default=-1) + 1
    outputs = [operation.outputs.get(number) for number in range(count)]
    recognised = operation.kind in graph.dialect  # of others it is enough to know what they read
    inputs = [
        _lowered(graph, (operation, number), operand)
        for number, operand in enumerate(operation.inputs if recognised else refs(operation.inputs))
    ]
    graph.add(operation.kind, inputs, outputs, operation.attributes, operation.label)
    for ref in operation.outputs.values():
        if ref.dims is not None:
            graph.describe(ref, ref.dims)


def _lowered(graph: Graph, place: tuple[OperatorCall, int], value: Argument) -> Hashable | None:
    """Return the key of an argument, with its numbers in the graph if it has any."""
    if value is None or isinstance(value, str | np.dtype):
        return None
    if isinstance(value, Ref):
        return value
    if isinstance(value, Several):
        return next(iter(refs(value.operation.inputs)), None)
    if isinstance(value, list) and any(not isinstance(element, int | float) for element in value):
        keys = [_lowered(graph, (place[0], place[1] << 12 | number + 1), element) for number, element in enumerate(value)]
        graph.add(LIST, keys, [(*place, "list")])
        return (*place, "list")
    numbers = np.asarray(value) if value != [] else np.zeros(0, np.int64)
    graph.constant((*place, "numbers"), numbers)
    return (*place, "numbers")


def refs(values: Iterable[Argument]) -> Iterable[Ref]:
    """Yield the Refs among arguments, and among those in their lists."""
    for value in values:
        if isinstance(value, Ref):
            yield value
        elif isinstance(value, list | tuple):
            yield from refs(value)
        elif isinstance(value, Several):
            yield from refs(value.operation.inputs)


def _is_off(operation: OperatorCall) -> bool:
    """Return whether an operator in place changes no numbers: dropout at inference, detach_."""
    return operation.kind in ("detach", "requires_grad") or ("dropout" in operation.kind and operation.inputs[2:3] == [False])


def _storage_of(operation: OperatorCall) -> SharedElements:
    """Return the elements that an operator's result consists of: its inputs', unless it is known to make new ones."""
    kind = operation.kind
    if operation.base is not None:
        return operation.base
    if kind in aten.FRESH:
        return SharedElements()
    shared = tuple({ref.storage: None for ref in refs(operation.inputs)})
    if len(shared) == 1 and kind not in aten.SPLITS:
        return shared[0]
    storage = SharedElements(apart=kind in aten.SPLITS, parents=shared)
    for parent in shared:
        parent.children.append(storage)
    return storage
