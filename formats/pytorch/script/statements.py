"""The computation of a TorchScript archive's code: its statements are followed, calls and all, and every operator is noted.

Conditions that no input decides are decided here: conditions on attributes, on None and on numbers, and loops of so many steps. A loop
whose number of steps is unknown is gone through once; the values that an unknown condition decides are noted as its choice.

Source: torch/csrc/jit/serialization/python_print.cpp for the code, torch/csrc/jit/runtime/register_prim_ops.cpp for operators on numbers
and lists.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from rnnconvert.core.limits import CALL_NESTING, STATEMENTS
from rnnconvert.formats.pytorch.program.kinds import BRANCH, FILLED, LISTED, LOOP
from rnnconvert.formats.pytorch.program.program import (
    LoopList,
    LoopState,
    OperatorCall,
    OperatorProgram,
    Ref,
    Several,
    SharedElements,
    TooLongError,
    UnknownLoop,
    refs,
)
from rnnconvert.formats.pytorch.script.code_expressions import Names, Parameter, UnreadError, Unsized
from rnnconvert.formats.pytorch.script.expressions import A_BRANCH, A_LOOP, GRAD_MODE, Expressions, ListsOfLoop
from rnnconvert.formats.pytorch.script.text import ScriptFunction, Statement, statements
from rnnconvert.formats.pytorch.script.values import ArchiveScope, Frame, Items, OpenItems, RaisedError, ScriptedModule

_JOINS = ("cat", "concat", "concatenate")
"""The names of the operator that puts tensors behind one another."""


def follow(archive: ArchiveScope, fixed: Mapping[str, Callable[[str], Any]]) -> OperatorProgram:
    """Return the operators of the forward of an archive's module.

    fixed  the values of inputs that are plain numbers, by their names: what gives each for an element type

    Raises TooLongError or UnreadError if it cannot be followed.
    """
    kind = archive.module("")
    method = kind and (kind.methods.get("forward") or kind.methods.get("forward__0"))
    if not method:
        raise UnreadError("its module has no forward in its code")
    run = _Run(archive)
    inputs = [_input(run, parameter, fixed) for parameter in method.parameters[1:] if parameter.default is None]
    order = [leaf for value in inputs for leaf in _leaves(value) if isinstance(leaf, (Ref, OpenItems))]
    try:
        run.program.end(run.argument(run.call(method, [ScriptedModule(""), *inputs], {})))
    except RecursionError:
        raise TooLongError("its functions call one another too often") from None
    except RaisedError:
        raise UnreadError("its forward raises an exception") from None
    run.program.inputs = [ref for leaf in order for ref in (leaf.inputs() if isinstance(leaf, OpenItems) else [leaf])]
    return run.program


def _input(run: _Run, parameter: Parameter, fixed: Mapping[str, Callable[[str], Any]]) -> Any:
    """Return a parameter of forward: a plain number as its value, where that is fixed; otherwise an input, or several."""
    if parameter.number:
        run.program.numbers[parameter.name] = parameter.number
    if parameter.number and parameter.name in fixed:
        return fixed[parameter.name](parameter.number)
    value = _inputs(run, parameter.names())
    if parameter.number and isinstance(value, Ref):
        value.dims, value.dtype = (), parameter.number
    return value


def _inputs(run: _Run, names: Names) -> Ref | Items | OpenItems:
    """Return an input of a program, several in a tuple, or a list or dictionary of them, whose items are read later."""
    if isinstance(names, str):
        return run.program.input(names)
    return OpenItems(*names) if isinstance(names, Unsized) else Items([_inputs(run, name) for name in names], run.level)


def _leaves(value: Ref | Items | OpenItems) -> Iterator[Ref | OpenItems]:
    """Yield the inputs in the order in which the caller hands them in."""
    if isinstance(value, Items):
        for item in value.values:
            yield from _leaves(item)
    else:
        yield value


class _Run(Expressions):
    """One way through the code."""

    def __init__(self, archive: ArchiveScope) -> None:
        super().__init__(archive)
        self._depth = 0
        self._parsed: dict[ScriptFunction, list[Statement]] = {}

    # Functions ---------------------------------------------------------------------------------------

    def call(self, function: ScriptFunction, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> Any:
        """Return the value that a function of the code returns."""
        if self._depth >= CALL_NESTING:
            raise TooLongError(f"more than {CALL_NESTING} of its functions call one another")
        values = dict(zip((parameter.name for parameter in function.parameters), arguments, strict=False))
        for name, _, default in function.parameters:
            if name in keywords:
                values[name] = keywords[name]
            elif name not in values:
                if default is None:
                    raise UnreadError(f"a call of {function.name} without {name}")
                values[name] = self.evaluate(default, Frame())
        if function not in self._parsed:
            self._parsed[function] = statements(function.lines)
        self._depth += 1
        returned, value = self._body(self._parsed[function], Frame(values))
        self._depth -= 1
        return value if returned else None

    def _body(self, body: Sequence[Statement], frame: Frame) -> tuple[bool, Any]:
        """Follow statements; return whether they return, and what."""
        for statement in body:
            self.spend()
            if statement.kind == "return":
                if self.within and self._depth == self.within[-1][1]:
                    raise UnreadError("a return within a branch")
                return True, self.evaluate(statement.value, frame)
            if statement.kind in ("if", "with"):
                follow_block = self._if if statement.kind == "if" else self._with
                returned, value = follow_block(statement, frame)
                if returned:
                    return True, value
            elif statement.kind in ("for", "while"):
                self._loop(statement, frame)
            else:
                self._plain(statement, frame)
        return False, None

    def _with(self, statement: Statement, frame: Frame) -> tuple[bool, Any]:
        """Follow a block in which gradients are on or off, which changes no value."""
        if self.evaluate(statement.value, frame) != GRAD_MODE:
            raise UnreadError("a block with something else than a mode of gradients")
        return self._body(statement.body, frame)

    def _plain(self, statement: Statement, frame: Frame) -> None:
        if statement.kind == "set":
            self.evaluate(statement.value[1], frame)
        elif statement.kind == "do":
            self.evaluate(statement.value, frame)
        elif statement.kind == "assign":
            frame.values[statement.targets[0]] = self.evaluate(statement.value, frame)
        elif statement.kind == "unpack":
            value = self.evaluate(statement.value, frame)
            if isinstance(value, Several):
                value.operation.attributes["count"] = len(statement.targets)
            parts = [self.item(value, number) for number in range(len(statement.targets))]
            frame.values.update(zip(statement.targets, parts, strict=True))

    # Branches and loops --------------------------------------------------------------------------------

    def _if(self, statement: Statement, frame: Frame) -> tuple[bool, Any]:
        condition = self.evaluate(statement.value, frame)
        if not isinstance(condition, Ref):
            return self._body(statement.body if condition else statement.orelse, frame)
        ends: list[dict[str, Any] | None] = []
        for body in (statement.body, statement.orelse):
            branch = Frame(dict(frame.values))
            try:
                with self._undecided_block(A_BRANCH):
                    self._body(body, branch)
                ends.append(branch.values)
            except RaisedError:
                ends.append(None)
        yes, no = ends
        if yes is not None and no is not None:
            condition = self._of_axes(condition)
        if yes is None and no is None:
            raise RaisedError
        if yes is None or no is None:
            frame.values = yes or no or {}
            return False, None
        frame.values = {name: self._either(condition, yes[name], no[name]) for name in yes if name in no}
        return False, None

    def _of_axes(self, condition: Ref) -> Ref:
        """Return a condition; if lengths decide it, and no step, an unknown one: the lengths of one run are not those of another."""
        waiting, seen, of_lengths = [condition], {condition}, False
        while waiting:
            self.spend()
            origin = waiting.pop()
            if self.program.loop is not None and origin is self.program.loop.index:
                return condition
            of_lengths |= origin.operation is not None and origin.operation.kind in ("size", "numel", "len", "batches")
            fresh = [ref for ref in refs(origin.operation.inputs if origin.operation is not None else ()) if ref not in seen]
            seen |= set(fresh)
            waiting += fresh if origin.operation is not None and origin.operation.kind != "dim" else []
        return self.unknown([condition], "a condition on lengths") if of_lengths else condition

    def _either(self, condition: Ref, yes: Any, no: Any) -> Any:
        """Return a value that is one of two."""
        if yes is no or (type(yes) is type(no) and not isinstance(yes, Ref | Items | Several) and yes == no):
            return yes
        if isinstance(yes, Items) and isinstance(no, Items) and len(yes.values) == len(no.values) and yes.names == no.names:
            return Items([self._either(condition, *pair) for pair in zip(yes.values, no.values, strict=True)], self.level, yes.names)
        if all(isinstance(value, Ref | bool | int | float) for value in (yes, no)):
            return self.output(BRANCH, [condition, no, yes])
        return self.unknown([condition, yes, no], "a branch of the code")

    def _loop(self, statement: Statement, frame: Frame) -> None:
        count: Any = None
        if statement.kind == "for":
            function = statement.value
            if function[0] != "call" or function[1] != ("name", "range") or len(function[2]) != 1:
                raise UnreadError("a loop over something else than range")
            count = self.evaluate(function[2][0], frame)
            if isinstance(count, int):
                for number in range(min(count, STATEMENTS)):
                    self.spend()
                    frame.values[statement.targets[0]] = number
                    if self._body(statement.body, frame)[0]:
                        raise UnreadError("a return within a loop")
                return
        self._undecided(statement, frame, count)

    def _undecided(self, statement: Statement, frame: Frame, count: Any) -> None:
        """Go once through a loop whose steps are not known."""
        carried = sorted({*_assigned(statement.body)} & frame.values.keys())
        before = {name: frame.values[name] for name in carried}
        handed = {name: self._handed(value) for name, value in before.items()}
        outer, loop = self.program.loop, UnknownLoop(count=self.argument(count))
        self.program.loop, first = loop, len(self.program.operations)
        if statement.targets:
            loop.index = self.output("the number of a loop's step", [count])
        inner = Frame({**frame.values, **handed, **({statement.targets[0]: loop.index} if loop.index else {})})
        self.lists.append(ListsOfLoop())
        try:
            with self._undecided_block(A_LOOP):
                loop.block = self.program.block
                if statement.kind == "while":
                    self.evaluate(statement.value, inner)
                self._body(statement.body, inner)
                for value in (*(inner.values[name] for name in carried), *filter(None, self.lists[-1].filled.values())):
                    self._as_step_leaves(value)
        finally:
            lists = self.lists.pop()
            self.program.loop = outer
        for name in carried:
            frame.values[name] = self._left_by(loop, handed[name], before[name], inner.values[name])
        for items, put in lists.filled.items():
            if put is None or items in lists.read:  # read in a step, it is what the steps before it put there
                loop.why = "a step fills a list otherwise than by one value at its end, or reads it"
            else:
                element, at_front = put
                filled = self.output(LISTED, [element], label="a list that a loop fills")
                loop.listed.append(LoopList(self.program.current(self.argument(element)), at_front, filled))
                items.steps = self.joined(filled, lists.before[items]) if at_front else self.joined(lists.before[items], filled)
        self._put(loop, self.program.operations[first:])
        for name in _assigned(statement.body):
            if name not in frame.values:
                frame.values[name] = self.unknown([inner.values.get(name)], "a loop")

    def _put(self, loop: UnknownLoop, since: Sequence[OperatorCall]) -> None:
        """Note what tensors are behind a loop whose steps put values into them.

        since  the operations since it began
        """
        inside = [operation for operation in since if operation.loop is loop]
        read: list[tuple[OperatorCall | None, SharedElements]] = [
            (operation, ref.storage) for operation in inside for ref in refs([operation.inputs, *(operation.called or ())[1:2]])
        ]
        left = [state.left for state in loop.states] + [state.before for state in loop.states] + [each.element for each in loop.listed]
        read += [(None, ref.storage) for ref in refs([*left, *(put.element for put in loop.put)])]
        for number, put in enumerate(loop.put):
            self.spend(len(read) // 8)
            shares = [operation for operation, storage in read if storage is put.tensor.storage or put.tensor.storage in storage.parents]
            twice = any(other.tensor.storage is put.tensor.storage for other in loop.put[:number])
            if twice or any(operation is None or operation not in put.views for operation in shares):
                loop.why = "a step reads a tensor that the steps before it changed in place"
            filled = self.output(LISTED, [put.element], label="what the steps of a loop give")
            loop.listed.append(LoopList(put.element, False, filled, put.index))
            self.program.change_into(put.tensor, self.program.apply(FILLED, [put.tensor, filled, put.axis]))

    @contextlib.contextmanager
    def _undecided_block(self, kind: str) -> Iterator[None]:
        """Follow a branch or a loop of which a run decides whether, or how often, it is gone through."""
        around, self.program.block = self.program.block, object()
        self.within.append((kind, self._depth))
        try:
            yield
        finally:
            self.within.pop()
            self.program.block = around

    def _as_step_leaves(self, value: Any) -> None:
        """Note within a loop what operators in place made of the values that a step leaves."""
        self.spend()
        for item in value.values if isinstance(value, Items) else value if isinstance(value, tuple) else ():
            self._as_step_leaves(item)
        self.program.current(value if isinstance(value, Ref) else None)

    def _handed(self, value: Any) -> Any:
        """Return the first value of a step of a loop, in place of a value."""
        self.spend()
        if isinstance(value, Items) and value.complete:
            return Items([self._handed(element) for element in value.values], self.level, value.names) if value.values else value
        return self.output(LOOP, [self.argument(value)], label="a loop")

    def _grown(self, loop: UnknownLoop, handed: Any, before: Any, after: Any) -> Ref | None:
        """Return a tensor at an end of which each step puts a value, and which no step reads otherwise; None for any other value."""
        operation = after.operation if isinstance(after, Ref) else None
        if operation is None or operation.loop is not loop or operation.called is None or operation.kind not in _JOINS:
            return None
        _, arguments, named = operation.called
        tensors, axis = [*arguments, named.get("dim", named.get("axis", 0))][:2]
        if not isinstance(tensors, list) or len(tensors) != 2 or (tensors[0] is handed) == (tensors[1] is handed):
            return None
        inside = [each for each in self.program.operations if each.loop is loop and each is not operation]
        read = refs([[each.inputs, *(each.called or ())[1:2]] for each in inside])
        if any(ref is handed or ref is after for ref in read):
            return None
        at_front = tensors[1] is handed
        element = tensors[0] if at_front else tensors[1]
        filled = self.output(LISTED, [element], label="what the steps of a loop give")
        loop.listed.append(LoopList(self.program.current(element), at_front, filled))
        ends = [before, self.output("cat", [filled, axis])]
        return self.output("cat", [Items(ends[::-1] if at_front else ends), axis])

    def _left_by(self, loop: UnknownLoop, handed: Any, before: Any, after: Any) -> Any:
        """Note what a step of a loop leaves to the next, and return what the last one leaves."""
        if isinstance(handed, Items) and handed is not before:
            parts = [
                self._left_by(loop, *both, self.item(after, number))
                for number, both in enumerate(zip(handed.values, before.values, strict=True))
            ]
            return Items(parts, self.level, before.names)
        grown = self._grown(loop, handed, before, after)
        if grown is not None:
            return grown
        is_state = isinstance(handed, Ref) and handed.operation is not None and handed.operation.kind == LOOP
        if is_state:
            handed.operation.inputs.append(self.argument(after))
        last = before if before is after else self.output(LOOP, [self.argument(before), self.argument(after)], label="a loop")
        if is_state:
            left = self.program.current(self.argument(after))
            loop.states.append(LoopState(handed, self.argument(before), left, last))
        return last


def _assigned(body: Iterable[Statement]) -> Iterable[str]:
    for statement in body:
        yield from statement.targets
        yield from _assigned(statement.body)
        yield from _assigned(statement.orelse)
