"""Loops of a program that are not layers, as one node each: what a step computes is a model in the model.

A step is read once, with the number of the step as an open length. So every rule for lengths holds for counters, too: where a step reads
a sequence, when the loop ends, and what a state that counts is, follow from what these rules give.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from rnnconvert.core.errors import RefusedError
from rnnconvert.graphs.program.evaluate import UnmatchedError
from rnnconvert.graphs.program.lowering import needed
from rnnconvert.graphs.program.operations import Operation
from rnnconvert.graphs.program.scopes import Scope
from rnnconvert.graphs.sizes import Dim, Size, least, open_size, reaches
from rnnconvert.recognition.expression import REVERSE
from rnnconvert.recognition.fills import State
from rnnconvert.recognition.loops import LoopBody, body_of
from rnnconvert.recognition.masks import same
from rnnconvert.scaffolding.building import Builder
from rnnconvert.scaffolding.description import DescribedModel, Value
from rnnconvert.scaffolding.loops import in_time, loop_node, name_axes, step_numbers
from rnnconvert.scaffolding.needs import NeedError
from rnnconvert.scaffolding.programs.counting import Op, counted
from rnnconvert.scaffolding.programs.reading import GraphReading, ReadingPlace
from rnnconvert.scaffolding.tensors import SourceTensor, renewed

_ENDLESS = 2**31 - 1
"""Exporters state this number of steps, or more, of loops that a condition ends."""
_COMPARED = {"Less": (0, 1, 0), "LessOrEqual": (0, 1, 1), "Greater": (1, 0, 0), "GreaterOrEqual": (1, 0, 1)}
"""Comparisons: which operand is the lower one and which the higher, and what is added to that."""
_FEATURE = "a loop whose steps a run decides"


def read_loop(r: GraphReading, scope: Scope, node: Operation) -> list[SourceTensor | None]:
    """Return the outputs of a Loop or Scan. Raises RefusedError for one that is not over the steps of sequences."""
    try:
        body = body_of(scope, node)
    except UnmatchedError as problem:
        raise r.build.refuse(_FEATURE, str(problem)) from None
    # Layers in its step are in the file's own scope of it.
    inner = next((each for each in r.work.read.scopes if each.body is body.inner.body and each.outer is scope), body.inner)
    return ProgramLoop(r, replace(body, inner=inner)).read()


@dataclass(eq=False)
class _StepBuilder(Builder):
    """A step in the making: the number of the step is a value where something computes with it."""

    loop: ProgramLoop | None = None

    def _constant(self, tensor: SourceTensor) -> Value:
        line = None
        if self.loop is not None and tensor.numbers is not None and tensor.numbers.size == 1:
            line = self.loop.line(tensor.numbers.reshape(-1)[0])
        if self.loop is None or line is None or not line[1]:
            return super()._constant(tensor)
        start, by = line
        x = self.loop.number()
        x = x if by == 1 else self.elementwise("multiply", [x, counted(np.asarray(by, object))])
        x = x if start == 0 else self.elementwise("add", [x, counted(np.asarray(start, object))])
        return self.read(self.unsqueeze(self.cast(x, tensor.dtype), range(tensor.rank)))


@dataclass(eq=False)
class _LoopStepScope:
    """A step of a loop, as a model that is being read.

    place      where it is read
    begins     the first states, and what stands for each in the step
    sequences  the sequences, with the time in front, and what stands for an element; by the tensor, its axis, and where the steps read
    captured   values that are the same in all steps, and what stands for them
    numbers    the numbers of the steps likewise, if something computes with them
    """

    place: ReadingPlace
    begins: list[tuple[SourceTensor, Value]] = field(default_factory=list)
    sequences: dict[tuple[SourceTensor, int, Dim, int], tuple[SourceTensor, SourceTensor]] = field(default_factory=dict)
    captured: list[tuple[SourceTensor, Value]] = field(default_factory=list)
    numbers: tuple[SourceTensor, SourceTensor] | None = None


class ProgramLoop:
    """A loop on its way into a description."""

    def __init__(self, r: GraphReading, body: LoopBody) -> None:
        self._r, self._body, self._inner, self._scope = r, body, body.inner, body.scope
        self._around, self._label = r.place, r.build.place
        self._step_number = open_size(f"the step of {self._label}")  # from 1 on, as lengths are
        self._step = _LoopStepScope(r.place)
        self._count: Dim = 0  # until it is known
        self._counters: dict[str, tuple[Dim, int]] = {}

    def read(self) -> list[SourceTensor | None]:
        """Add the loop; return what it gives."""
        r, inner, scope, used = self._r, self._inner, self._scope, self._r.uses(self._scope)
        handed = [state for state in self._body.states if same(inner, state[1]) != state[0]]
        for name, _, first, _ in self._body.states:
            if not any(name == state[0] for state in handed):
                inner.bind(name, scope, first)
        self._counters = self._counting(handed)
        gathered = [each for each in self._body.gathered if each[1] and used.any(each[1])]
        changed = [state for state in handed if state[0] not in self._counters]
        finals = {state[3] for state in changed if state[3] and used.any(state[3])}
        read, changed = self._read_states(changed, finals, [value for value, *_ in gathered])
        begins = [r.tensor(scope, first) for _, _, first, _ in changed]
        r.build.check_sized(begins)
        left, listed = self._read_step(changed, begins, gathered)
        places = [
            SourceTensor(y.dims, y.dtype, x.name, filled=0) if state[0] not in read and x.dims != y.dims else x
            for state, x, y in zip(changed, begins, left, strict=True)
        ]  # what no step reads is nothing but a place for what the last one leaves
        if places != begins:
            begins = places
            left, listed = self._read_step(changed, begins, gathered)
        for (name, *_), x, y in zip(changed, begins, left, strict=True):
            if x.rank != y.rank or x.dtype != y.dtype or not all(map(self._alike, x.dims, y.dims)):
                forms = f"{list(map(str, x.dims))} of {x.dtype}, and a step leaves {list(map(str, y.dims))} of {y.dtype}"
                raise self.refused(f"its state {name!r} begins as {forms}")
        results = self._add(begins, left, listed)
        by_state = {state[0]: x for state, x in zip(changed, results, strict=False)}
        by_list = {each[1]: self._in_place(x, each[2], each[3]) for each, x in zip(gathered, results[len(changed) :], strict=True)}
        return [*(self._final(state, by_state) for state in self._body.states), *(by_list.get(each[1]) for each in self._body.gathered)]

    def _final(self, state: State, results: dict[str, SourceTensor]) -> SourceTensor | None:
        """Return a state after the last step."""
        name, _, first, final = state
        if not final:
            return None
        if name in self._counters:
            x, (start, by) = self._r.tensor(self._scope, first), self._counters[name]
            return counted(np.full(x.dims, start + by * self._count, object), x.dtype)
        unchanged = name not in results and self._inner.resolve(name)[0] is not self._inner
        return self._r.tensor(self._scope, first) if unchanged else results.get(name)

    def _in_place(self, x: SourceTensor, axis: int, before: bool) -> SourceTensor:
        """Return the outputs of the steps as one tensor, with the time at an axis, and from the end where each is put before the others."""
        x = self._r.build.flip(x, 0) if before else x
        order = [*range(1, x.rank)]
        order.insert(axis % x.rank, 0)
        return self._r.build.transpose(x, order)

    def _read_states(self, states: Sequence[State], finals: Collection[str], gives: Iterable[str]) -> tuple[set[str], list[State]]:
        """Return the values that steps read, and the states that something depends on."""
        wanted = {*gives, *(state[1] for state in states if state[3] in finals)}
        while True:
            read = wanted.union(*(node.reads for node in needed(self._inner.nodes, wanted)))
            more = {state[1] for state in states if state[0] in read} - wanted
            if not more:
                return read, [state for state in states if state[0] in read or state[3] in finals]
            wanted |= more

    # The number of the step

    def _counting(self, states: Sequence[State]) -> dict[str, tuple[Dim, int]]:
        """Return the states that count: their first numbers, and by how much they grow. That they do is seen as a step is read."""
        r, begins = self._r, dict[str, SourceTensor]()
        for name, _, first, _ in states:
            x = r.tensor(self._scope, first)
            if x.numbers is not None and x.numbers.size == 1 and x.dtype.startswith("int"):
                begins[name] = x
        counters: dict[str, tuple[Dim, int]] = {}
        trial = self._place(DescribedModel("a step"))
        with r.at(trial):
            for name, x in begins.items():
                r.give(self._inner, name, _of(x, open_size(f"{self._label}, state {name}")))
            self._give_iteration()
            for name, after, _, _ in states:
                if name not in begins:
                    continue
                try:
                    r.walk(self._inner, {*needed(self._inner.nodes, [after])})
                    by = self._only(r.tensor(self._inner, after)) - open_size(f"{self._label}, state {name}")
                except (RefusedError, NeedError):
                    continue
                if isinstance(by, int):
                    counters[name] = self._only(begins[name]), by
        return counters

    def _give_iteration(self) -> None:
        if self._body.node.kind == "Loop":
            name = self._inner.body.inputs[0]
            stated = next((each.dims for each in self._inner.body.declared if each.name == name), None)
            shape = (1,) if stated is not None and len(stated) == 1 else ()
            self._r.give(self._inner, name, SourceTensor(shape, "int64", "step", numbers=np.full(shape, self._step_number - 1, object)))

    def _give_counters(self) -> None:
        self._give_iteration()
        for name, _, first, _ in self._body.states:
            if name in self._counters:
                with self._r.at(self._around):
                    x = self._r.tensor(self._scope, first)
                start, by = self._counters[name]
                self._r.give(self._inner, name, _of(x, start + by * (self._step_number - 1)))

    def _check_counters(self) -> None:
        """Raise RefusedError for a state that counts otherwise than it seemed to: each step leaves what the next one has."""
        for name, after, _, _ in self._body.states:
            if name in self._counters:
                start, by = self._counters[name]
                if self._only(self._r.tensor(self._inner, after)) != start + by * self._step_number:
                    raise self.refused(f"its state {name!r} does not count the steps")

    def line(self, length: object) -> tuple[Dim, int] | None:
        """Return the value of a number in step n, from 0: `start + by * n`; None for what does not grow evenly over the steps."""
        if not isinstance(length, Size):
            return None
        by = dict(length.terms).get((self._step_number.symbol,), 0)
        rest = length - by * self._step_number
        return None if self._moves(rest) else (rest + by, by)

    def _moves(self, length: object) -> bool:
        """Return whether a length is another one in each step."""
        return isinstance(length, Size) and any(self._step_number.symbol in name for names, _ in length.terms for name in names)

    def _only(self, x: SourceTensor) -> Dim:
        """Return the length that a tensor is. Raises RefusedError for others."""
        if x.numbers is None or x.numbers.size != 1:
            raise self.refused("numbers that a run decides have a part in how many steps there are")
        length = x.numbers.reshape(-1)[0]
        return length if isinstance(length, Size) else int(length)

    def number(self) -> SourceTensor:
        """Return the number of the step, from 0, as a value."""
        if self._count == 0:
            raise self.refused("what a step computes has a part in how many steps there are")
        if self._step.numbers is None:
            with self._r.at(self._around):
                numbers = step_numbers(self._r.build, self._count)
            self._step.numbers = numbers, self._entered(SourceTensor((), numbers.dtype, "step"))
        return self._step.numbers[1]

    # How many steps there are

    def _steps(self) -> Dim:
        """Return how many steps there are. Raises RefusedError where other than lengths decide that, or where there may be none."""
        r, node, limits = self._r, self._body.node, list[Dim]()
        if node.kind == "Scan":
            with r.at(self._around):
                for outer, axis, _ in self._body.scanned.values():
                    x = r.tensor(self._scope, outer)
                    r.build.check_sized([x], 1)
                    limits.append(x.dims[axis])
            if not limits or not all(self._alike(limits[0], limit) for limit in limits):
                raise self.refused("the sequences that it reads may be of several lengths")
            return limits[0]
        with r.at(self._around):
            for _, leaf in _truths(self._scope, node.inputs[1]) if node.inputs[1] else ():
                if not _surely(r.tensor(self._scope, leaf)):
                    raise self.refused(f"a run decides whether it begins ({leaf!r})")
            stated = self._only(r.tensor(self._scope, node.inputs[0])) if node.inputs[0] else _ENDLESS
        if isinstance(stated, Size) or stated < _ENDLESS:
            limits.append(stated)
        for name, leaf in _truths(self._inner, self._inner.body.outputs[0]):
            limits += self._limit(name, leaf)
        count = least(*limits) if limits else _ENDLESS
        if count == _ENDLESS or not reaches(count, 1):
            raise self.refused("it has no end" if count == _ENDLESS else f"it has {count} steps, and may have none")
        return count

    def _limit(self, producer: Operation | None, leaf: str) -> list[Dim]:
        """Return the number of steps after which a condition is false; nothing for one that stays true.

        Raises RefusedError for a condition that does not compare a counter.
        """
        r, inner = self._r, self._inner
        if leaf == inner.body.inputs[1]:
            return []
        if producer is None or producer.kind not in _COMPARED or producer.domain:
            stated = inner.constant(leaf)
            if (stated is not None and stated.all()) or (producer is None and _surely(r.tensor(inner, leaf))):
                return []
            raise self.refused(f"it ends by what it computes ({leaf!r})")
        r.walk(inner, {*needed(inner.nodes, producer.inputs)})
        low, high, more = _COMPARED[producer.kind]
        line = self.line(self._only(r.tensor(inner, producer.inputs[high])) - self._only(r.tensor(inner, producer.inputs[low])) + more)
        if line is None or line[1] != -1:
            raise self.refused(f"what ends it does not count its steps ({leaf!r})")
        return [line[0] + 1]  # after step n it goes on where line[0] - n > 0

    # A step

    def _read_step(
        self, states: Sequence[State], begins: Sequence[SourceTensor], gathered: Sequence[tuple[str, str, int, bool]]
    ) -> tuple[list[SourceTensor], list[SourceTensor]]:
        """Read a step; return the states that it leaves, and what it gives besides."""
        r, inner, scope = self._r, self._inner, DescribedModel(self._r.build.scope.name, self._r.build.scope.path)
        self._step = _LoopStepScope(self._place(scope))
        with r.at(self._step.place):
            self._give_counters()
            for state, x in zip(states, begins, strict=True):
                value = self._entered(x)
                assert value.value is not None
                self._step.begins.append((x, value.value))
                r.give(inner, state[0], value)
            self._count = 0
            self._count = self._steps()
            for name, (outer, axis, way) in self._body.scanned.items():
                with r.at(self._around):
                    x = r.tensor(self._scope, outer)
                start, by = (self._count - 1, -1) if way == REVERSE else (0, 1)
                r.give(inner, name, self._element_of(x, axis % x.rank, start, by))
            ends = [*(state[1] for state in states), *(value for value, *_ in gathered)]
            counters = [after for name, after, _, _ in self._body.states if name in self._counters]
            r.walk(inner, {*needed(inner.nodes, [*ends, *counters])})
            self._check_counters()
            tensors = [r.tensor(inner, name) for name in ends]
            r.build.check_sized(tensors)
            scope.outputs = tuple(r.build.read(x) for x in tensors)
        return tensors[: len(states)], tensors[len(states) :]

    def _add(self, begins: Sequence[SourceTensor], left: Sequence[SourceTensor], listed: Sequence[SourceTensor]) -> list[SourceTensor]:
        """Add the node."""
        step, build = self._step, self._r.build
        scope = step.place.build.scope
        scope.drop_unread()
        read = {id(value) for node in scope.nodes for value in node.reads()} | {id(value) for value in scope.outputs}
        pairs = [*step.sequences.values(), *([step.numbers] if step.numbers else [])]
        sequences = [(x, element.value) for x, element in pairs if element.value is not None and id(element.value) in read]
        if not sequences:
            with self._r.at(step.place):
                element = self.number()
            assert step.numbers is not None and element.value is not None
            sequences = [(step.numbers[0], element.value)]
        captured = [(x, value) for x, value in step.captured if id(value) in read]
        scope.inputs = tuple(value for _, value in (*step.begins, *sequences, *captured))
        name_axes(build, self._count, begins)
        return loop_node(build, scope, self._count, [begins, [x for x, _ in sequences], [x for x, _ in captured]], left, listed)

    def _place(self, scope: DescribedModel) -> ReadingPlace:
        """Return a place in which nothing stands for values yet."""
        build = _StepBuilder(**{**vars(self._around.build), "scope": scope, "_where": {}, "partial": False, "loop": self})
        return ReadingPlace(build, {}, self)

    def _entered(self, x: SourceTensor) -> SourceTensor:
        """Return the counterpart of a tensor in the step."""
        return SourceTensor(x.dims, x.dtype, x.name, self._step.place.build.value(x))

    def _element_of(self, x: SourceTensor, axis: int, start: Dim, by: int) -> SourceTensor:
        """Return the element of a sequence that step n reads, at `start + by * n`."""
        if self._count == 0:
            raise self.refused("what a step reads has a part in how many steps there are")
        key = x, axis, start, by
        if key not in self._step.sequences:
            with self._r.at(self._around):
                self._r.build.check_sized([x], axis + 1)
                steps = in_time(self._r.build, x, axis, start, by, self._count, self._alike)
            if steps is None:
                raise self.refused("a run decides which steps of a sequence it reads")
            self._step.sequences[key] = steps, self._entered(SourceTensor(steps.dims[1:], steps.dtype, x.name))
        return self._step.sequences[key][1]

    def element(self, op: Op) -> SourceTensor | None:
        """Return the element of a sequence that an operator takes, if it takes another one in each step. Raises RefusedError for two."""
        if op.node.domain or op.kind not in ("Gather", "Slice") or not any(self._numbers_move(x) for x in op.tensors[1:]):
            return None
        r, x = self._r, self._shared(op.scope, op.node.inputs[0])
        if op.kind == "Gather":
            axis = int(op.values.get("axis", 0)) % x.rank
            line = self.line(self._only(op[1]))
            if line is None or op[1].rank > 1:
                raise self.refused("a run decides which steps of a sequence it reads")
            single = self._element_of(x, axis, *line)
            return r.build.unsqueeze(single, [axis]) if op[1].rank else single
        starts, ends = r.lengths(op[1]), r.lengths(op[2])
        axes = r.integers(op, "axes", 3) or [*range(len(starts))]
        strides = r.integers(op, "steps", 4) or [1] * len(starts)
        element: SourceTensor | None = None
        rest = list[tuple[int, Dim, Dim, int]]()
        for axis, start, end, stride in zip(axes, starts, ends, strides, strict=True):
            axis %= x.rank
            if not self._moves(start) and not self._moves(end):
                rest.append((axis, start, end, stride))
                continue
            line = self.line(start)
            if line is None or not line[1] or element is not None or end - start != 1 or stride != 1:
                raise self.refused("a step reads several elements of a sequence")
            element = r.build.unsqueeze(self._element_of(x, axis, *line), [axis])
        if element is None:
            raise self.refused("a step reads several elements of a sequence")
        for each in rest:
            element = r.build.slice(element, *each)
        return element

    def _numbers_move(self, x: SourceTensor) -> bool:
        return x.numbers is not None and x.numbers.dtype == object and any(map(self._moves, x.numbers.reshape(-1)))

    # Around the loop

    def holds(self, where: Scope) -> bool:
        """Return whether a graph is a step of the loop, or in it."""
        return where is self._inner or where.path.startswith(f"{self._inner.path}/")

    def captured(self, where: Scope, name: str) -> SourceTensor:
        """Return the counterpart in a step of a value from around the loop."""
        with self._r.at(self._around):
            x = self._r.tensor(where, name)
            self._r.build.check_sized([x])

        def enter(part: SourceTensor) -> Value:
            value = self._step.place.build.value(part)
            self._step.captured.append((part, value))
            return value

        entered: SourceTensor = renewed(x, enter)
        return entered

    def _shared(self, scope: Scope, name: str) -> SourceTensor:
        """Return a value around the loop that is the same in all steps. Raises RefusedError for one that is not."""
        where, name = scope.resolve(name)
        nodes: list[Operation] = []
        if self.holds(where):
            nodes = needed(self._inner.nodes, [name]) if where is self._inner else []
            changing = {each for each in self._inner.body.inputs if self._inner.resolve(each)[0] is self._inner}
            if not nodes or changing & {*(each for node in nodes for each in node.reads)}:
                raise self.refused("it reads steps of what it computes")
        with self._r.at(self._around):
            if nodes:
                self._r.walk(where, {*nodes})
            return self._r.tensor(where, name)

    def _alike(self, dim: Dim, other: Dim) -> bool:
        """Return whether two lengths are one. Raises NeedError where an open one has to be the other."""
        try:
            self._r.build.need(dim, other)
        except ValueError:
            return False
        declared = {length for value in self._r.work.declared.values() for length in value.dims or ()}
        if dim != other and isinstance(dim, Size) and isinstance(other, Size) and {dim.symbol, other.symbol} <= declared:
            raise NeedError(dim.symbol, other)  # lengths of two inputs, such as their batches
        return dim == other

    def refused(self, reason: str) -> RefusedError:
        """Return the error that the loop is not one over the steps of sequences."""
        self._around.build.place = self._label
        return self._around.build.refuse(_FEATURE, reason)


def _of(x: SourceTensor, length: Dim) -> SourceTensor:
    """Return a tensor of one length, in the form of another."""
    return SourceTensor(x.dims, x.dtype, x.name, numbers=np.full(x.dims, length, object))


def _truths(scope: Scope, name: str) -> Iterator[tuple[Operation | None, str]]:
    """Yield the truths that one is made of, all of which it needs: the operation that gives each, None for one from elsewhere."""
    waiting, seen = [name], set[str]()
    while waiting:
        name = same(scope, waiting.pop())
        if name in seen:
            continue
        seen.add(name)
        producer = scope.producer(name)
        if producer is not None and producer[0].kind == "And" and not producer[0].domain:
            waiting += producer[0].inputs
        else:
            yield (None if producer is None else producer[0]), name


def _surely(x: SourceTensor) -> bool:
    """Return whether a tensor of truths is true in every run."""
    return x.numbers is not None and x.numbers.dtype != object and bool(x.numbers.all())
