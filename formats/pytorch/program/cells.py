"""Cells that a program calls step by step: which of these calls are the run of a layer, and why others are not."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rnnconvert.formats.pytorch import aten
from rnnconvert.formats.pytorch.program.kinds import APART, BRANCH, ITEM, LOOP
from rnnconvert.formats.pytorch.program.program import OperatorCall, Ref, Several, refs
from rnnconvert.graphs.operators import SAME

_VISITED = 1 << 12
"""The most operators that are followed back from a state."""
_NAMED = 4
"""The most operators that a message names."""
_CHOICES = 4
"""The most choices within one another that are looked behind."""
_REASONS = 8
"""After how many reasons the steps of a cell are no longer examined."""


@dataclass(eq=False)
class CellStep:
    """One step of a cell: what it reads, and what it gives, where something reads that.

    operation  the last operator of it
    h, c       the states before it; c of an LSTM
    """

    operation: OperatorCall
    x: Any
    h: Any
    c: Any = None
    next_h: Ref | None = None
    next_c: Ref | None = None

    def outputs(self) -> list[Ref]:
        """Return its outputs."""
        return [ref for ref in (self.next_h, self.next_c) if ref is not None]


@dataclass
class StepRun:
    """Steps that hand their states on, from the first one to the last.

    sequence  in a loop: the tensor whose steps are read in order, and its axes
    first     in a loop: the states that it begins with
    """

    steps: list[CellStep]
    sequence: tuple[Ref, str] | None = None
    first: list[Any] | None = None


@dataclass
class CellRuns:
    """The runs of a cell, and why some of its steps are none."""

    runs: list[StepRun] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)


def native(operation: OperatorCall) -> CellStep | None:
    """Return the step that one operator of a cell is; None if its arguments have another form."""
    inputs = operation.inputs
    states = inputs[1] if len(inputs) > 1 and isinstance(inputs[1], list) else inputs[1:2]
    if len(states) != (2 if operation.kind == "lstm_cell" else 1):
        return None
    outputs = [operation.outputs.get(number) for number in (0, 1)]
    return CellStep(operation, inputs[0], states[0], states[1] if len(states) > 1 else None, outputs[0], outputs[1])


def runs(steps: Sequence[CellStep]) -> CellRuns:
    """Return the runs that the steps of one cell make."""
    result = CellRuns()
    after: dict[Ref, CellStep] = {}
    for step in steps:
        for ref in step.outputs():
            after[ref] = step
    ends: dict[CellStep, StepRun] = {}
    for step in steps:
        if len(result.reasons) > _REASONS:
            break
        if step.operation.loop is not None:
            _in_loop(step, after, result)
            continue
        before = _before(step, after)
        run = ends.pop(before, None) if before is not None else None
        if before is not None and run is None:
            result.reasons.append("it goes on twice from the states of one step")
        elif run is not None:
            run.steps.append(step)
            ends[step] = run
        elif (change := _changed(step, after)) is not None:
            result.reasons.append(change)
        else:
            ends[step] = StepRun([step])
            result.runs.append(ends[step])
    for run in result.runs:
        result.reasons += _order(run)
    return result


def _before(step: CellStep, after: Mapping[Ref, CellStep]) -> CellStep | None:
    """Return the step whose states a step begins with, unchanged."""
    h, c = plain(step.h), plain(step.c)
    before = after.get(h) if isinstance(h, Ref) else None
    if before is None or before.next_h is not h or (step.c is not None and before.next_c is not c):
        return None
    return before


def _changed(step: CellStep, after: Mapping[Ref, CellStep]) -> str | None:
    """Return how a state comes from other steps of the cell, if it does."""
    changed = False
    for state, words in ((step.h, "hidden state"), (step.c, "cell state")):
        operations = _since(state, after)
        changed = changed or operations is not None
        labels = [*dict.fromkeys(operation.label for operation in reversed(operations or ()))]
        if len(labels) > _NAMED:
            labels = [*labels[:_NAMED], f"{len(labels) - _NAMED} more operators"]
        if labels:
            return f"the {words} goes through {', '.join(labels)} from one step to the next"
    return "a step begins with one state of the step before it and not with the other" if changed else None


def _since(state: Any, after: Mapping[Ref, CellStep]) -> list[OperatorCall] | None:
    """Return the operators between a state and the steps that it comes from; None if it comes from none."""
    waiting, seen, operations, passed = [state], set[Any](), dict[OperatorCall, None](), False
    while waiting and len(seen) < _VISITED:
        ref = waiting.pop()
        if not isinstance(ref, Ref) or ref in seen:
            continue
        seen.add(ref)
        if ref in after:
            passed = True
        elif ref.operation is not None and ref.operation.kind not in _OF_SHAPES:
            kind = ref.operation.kind
            if kind not in (LOOP, BRANCH, "squeeze", "unsqueeze"):
                operations[ref.operation] = None
            waiting += refs(ref.operation.inputs[1:] if kind == BRANCH else ref.operation.inputs)
    return [*operations] if passed else None


_OF_SHAPES = frozenset({"size", "dim", "numel", *aten.ZEROS})


def _in_loop(step: CellStep, after: Mapping[Ref, CellStep], result: CellRuns) -> None:
    """Note a step in the body of a loop: a run if it hands its states on to itself and reads one step after the other."""
    h, c = plain(step.h), plain(step.c)
    firsts = []
    for state, left in ((h, step.next_h), (c, step.next_c)):
        if state is None:
            continue
        carried = isinstance(state, Ref) and state.operation is not None and state.operation.kind == LOOP
        if not carried or left is None or plain(state.operation.inputs[-1]) is not left:
            others = [state.operation.inputs[-1]] if carried else [state]
            change = next((words for other in others if (words := _changed(CellStep(step.operation, None, other), after))), None)
            result.reasons.append(change or "its states do not go on from one step of the loop to the next")
            return
        firsts.append(state.operation.inputs[0])
    element = _element_taken(step.x)
    loop = step.operation.loop
    if element is None or (element[0].operation is not None and element[0].operation.loop is loop):
        result.runs.append(StepRun([step], None, firsts))
        return
    base, axis, index = element
    index_operator = index.operation if isinstance(index, Ref) else None
    if index_operator is None or index is not getattr(loop, "index", None):
        result.reasons.append("it reads the steps of its sequence in an order that the loop computes")
        return
    counted = _counted(index_operator.inputs[0])
    axes = {0: "tbi", 1: "bti"}.get(axis)
    # Another tensor of the model may be as long as the sequence; which axis of it is the time nothing tells.
    if counted is None or (counted[1] != axis if counted[0] is base else counted[1] not in (0, 1)):
        axes = None  # the layer reads a part of it
    result.runs.append(StepRun([step], None if axes is None else (base, axes), firsts))


def _counted(value: Any) -> tuple[Any, Any] | None:
    """Return the tensor and the axis whose length a number is; None for any other number."""
    operation = value.operation if isinstance(value, Ref) else None
    if operation is None or operation.kind not in ("len", "size", ITEM):
        return None
    of, axis = (*operation.inputs, 0)[:2]
    if operation.kind == "size":
        axis = next(iter(operation.attributes.get("axes", ())), None)
    elif isinstance(of, Several):
        of, axis = (of, None) if of.steps is None else of.steps[:2]
    elif operation.kind == ITEM:  # of all lengths
        if not isinstance(of, Ref) or of.operation is None or of.operation.kind != "size":
            return None
        of = of.operation.inputs[0]
    return plain(of), axis


def _order(run: StepRun) -> Iterator[str]:
    """Yield how a run reads the steps of one sequence in another order than the first to the last."""
    elements = [_element_taken(step.x) for step in run.steps]
    if len(elements) < 2 or any(element is None for element in elements):
        return
    places = [element for element in elements if element is not None]
    if len({(base, axis) for base, axis, _ in places}) > 1 or not all(isinstance(index, int) for _, _, index in places):
        return
    steps = {after[2] - before[2] for before, after in itertools.pairwise(places)}
    if steps == {-1}:
        yield "it reads its sequence from the last step to the first"
    elif steps != {1}:
        yield "it reads the steps of its sequence in another order"


def _element_taken(x: Any) -> tuple[Ref, int, Any] | None:
    """Return the tensor of which a value is one step, the axis, and the step's index."""
    x = plain(x)
    operation = x.operation if isinstance(x, Ref) else None
    if operation is None:
        return None
    if operation.kind in APART:
        number = next(number for number, ref in operation.outputs.items() if ref is x)
        base, axis, index = plain(operation.inputs[0]), (operation.inputs[1:2] or [0])[0], number
    elif operation.kind == "select" and len(operation.inputs) == 3:
        base, axis, index = plain(operation.inputs[0]), operation.inputs[1], operation.inputs[2]
    else:
        return None
    return (base, axis, index) if isinstance(base, Ref) and isinstance(axis, int) else None


def plain(value: Any, depth: int = 0) -> Any:
    """Return the value behind operators that give what they read, and behind axes of length one.

    depth  in how many choices the value stands
    """
    for _ in range(_VISITED):
        operation = value.operation if isinstance(value, Ref) else None
        if operation is None or not operation.inputs:
            return value
        if aten.DIALECT.get(operation.kind) is SAME or operation.kind in ("unsqueeze", "squeeze") or is_complete(operation):
            value = operation.inputs[0]
        elif operation.kind == BRANCH:
            choices = [plain(choice, depth + 1) for choice in operation.inputs[1:3]] if depth < _CHOICES else [None, value]
            if choices[0] is not choices[1]:
                return value
            value = choices[0]
        else:
            return value
    return value


def is_complete(operation: OperatorCall) -> bool:
    """Return whether an operator is a slice from the beginning to the end."""
    start, end, step = (*operation.inputs[2:], None, None, None)[:3]
    ends = all(bound is None or isinstance(bound, int) for bound in (start, end, step))
    return operation.kind == "slice" and ends and start in (None, 0) and end in (None, 9223372036854775807) and step in (None, 1)
