"""Which functions a TorchScript archive's code calls with which of its tensors. The code is read as text and never run.

The code is what python_print writes: classes with methods, one statement a line. Followed are attributes (`self.rnn`),
lists of them, and the sums of products that an RNN cell is traced as; what else a line says is skipped.

Source: torch/csrc/jit/serialization/python_print.cpp.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rnnconvert.formats.pytorch.script.code_expressions import Expression

SEQUENCES = ("lstm", "gru", "rnn_tanh", "rnn_relu")
CELLS = tuple(f"{name}_cell" for name in SEQUENCES)
# Functions whose result is a sum of products with a weight, and those that only show a weight another way.
_PRODUCTS = {"linear", "addmm", "addmm_", "mm", "matmul"}
_SUMS = {"add", "add_"}
_VIEWS = {"t", "transpose", "numpy_T", "contiguous"}


@dataclass(frozen=True)
class WeightsCall:
    """A call that reads weights.

    function   its name in `torch`: "rnn_relu", or "relu" of the sum that a traced cell is
    tensors    the tensors that it reads, by their dotted names below the method's own module, in the call's order
    constants  the arguments behind the list of weights, None where one is not a constant; empty for a cell
    """

    function: str
    tensors: tuple[str, ...]
    constants: tuple[Any, ...] = ()


@dataclass(frozen=True)
class _FollowedValue:
    """The known facts about a value: its attribute, its list, the products that it sums, or its constant."""

    path: str | None = None
    items: tuple[_FollowedValue, ...] | None = None
    sums: tuple[str, ...] = ()
    constant: Any = None


_UNKNOWN = _FollowedValue()
_CLASS = re.compile(r"class (\w+)\(")
_METHOD = re.compile(r"  def \w+\((\w+)")
_ASSIGNED = re.compile(r"([A-Za-z_]\w*(?:, [A-Za-z_]\w*)*),? (?::[^=\"]*)?= ")
_RETURNED = re.compile(r"(?:return|if|elif) ")


def calls(text: str) -> dict[str, list[WeightsCall]]:
    """Return the calls with weights in each class of a source."""
    calls_by_name: dict[str, list[WeightsCall]] = {}
    name, method = "", _Method("")
    for line in text.splitlines():
        if started := _CLASS.match(line):
            name = started.group(1)
        elif started := _METHOD.match(line):
            method = _Method(started.group(1))
        elif line.startswith("    ") and name:
            method.read(line.strip())
            calls_by_name.setdefault(name, []).extend(method.calls)
            method.calls.clear()
    return calls_by_name


def below(name: str, several: Iterator[WeightsCall] | list[WeightsCall]) -> Iterator[WeightsCall]:
    """Yield calls of a module's methods, with the names that the tensors have in the whole archive."""
    for call in several:
        tensors = tuple(t if not name or t.startswith("CONSTANTS.") else f"{name}.{t}" for t in call.tensors)
        yield WeightsCall(call.function, tensors, call.constants)


class _Method:
    """One method's variables and calls."""

    def __init__(self, itself: str) -> None:
        self.calls: list[WeightsCall] = []
        self._values: dict[str, _FollowedValue] = {itself: _FollowedValue(path=""), "CONSTANTS": _FollowedValue(path="CONSTANTS")}

    def read(self, line: str) -> None:
        from rnnconvert.formats.pytorch.script.code_expressions import ExpressionReader, UnreadError  # most archives have no code

        targets: list[str] = []
        if assigned := _ASSIGNED.match(line):
            targets, line = assigned.group(1).split(", "), line[assigned.end() :]
        elif returned := _RETURNED.match(line):
            line = line[returned.end() :].removesuffix(":")
        try:
            value = self._value(ExpressionReader(line).only())
        except UnreadError:
            value = _UNKNOWN
        many = value.items if value.items is not None and len(targets) == len(value.items) > 1 else None
        for number, target in enumerate(targets):
            if many:
                new = many[number]
            elif len(targets) == 1:
                new = value
            else:
                new = _UNKNOWN
            # A name that two branches set may be either.
            self._values[target] = new if self._values.get(target, new) == new else _UNKNOWN

    def _value(self, expression: Expression) -> _FollowedValue:
        """Return the known facts about an expression, and note the calls in it."""
        steps = []
        while expression[0] in ("attribute", "call", "index"):  # as deep as they are many: not by recursion
            steps.append(expression)
            expression = expression[1]
        value, dotted = _UNKNOWN, ""
        match expression:
            case ("constant", constant):
                value = _FollowedValue(constant=constant)
            case ("name", dotted):
                value = self._values.get(dotted, _UNKNOWN)
            case ("list" | "tuple", items):
                value = _FollowedValue(items=tuple(map(self._value, items)))
        for step in reversed(steps):
            match step:
                case ("attribute", _, name):
                    dotted = f"{dotted}.{name}" if dotted else ""
                    value = _UNKNOWN if value.path is None else _FollowedValue(path=f"{value.path}.{name}" if value.path else name)
                    continue
                case ("call", _, arguments, keywords):
                    followed = [self._value(argument) for argument in (*arguments, *keywords.values())]
                    value = self._called(dotted, followed[: len(arguments)])
                case ("index", _, index):
                    value = _element(value, [self._value(part) for part in index])
            dotted = ""
        return value

    def _called(self, dotted: str, arguments: list[_FollowedValue]) -> _FollowedValue:
        owner, _, function = dotted.rpartition(".")
        if owner not in ("torch", "ops.aten"):
            return _UNKNOWN
        if function in SEQUENCES:
            self._sequence(function, arguments)
        elif function in CELLS:
            tensors = tuple(value.path for value in arguments[2:] if value.path)
            if tensors:
                self.calls.append(WeightsCall(function, tensors))
        elif function in _VIEWS and arguments:
            return arguments[0]
        elif function in _PRODUCTS:
            return _FollowedValue(sums=tuple(name for value in arguments for name in (*_named(value), *value.sums)))
        elif function in _SUMS:
            with_weights = any(value.sums for value in arguments)
            return _FollowedValue(sums=tuple(n for v in arguments for n in (*_named(v), *v.sums)) if with_weights else ())
        elif arguments and arguments[0].sums:
            self.calls.append(WeightsCall(function, arguments[0].sums))
        return _UNKNOWN

    def _sequence(self, function: str, arguments: list[_FollowedValue]) -> None:
        for number, value in enumerate(arguments):
            # The weights are the list before `has_biases`; an LSTM's states are a list, too.
            behind = arguments[number + 1 : number + 2]
            if not behind or not isinstance(behind[0].constant, bool):
                continue
            named = [value] if value.path else list(value.items or ())
            if named and all(tensor.path for tensor in named):
                constants = tuple(tensor.constant for tensor in arguments[number + 1 :])
                self.calls.append(WeightsCall(function, tuple(str(argument.path) for argument in named), constants))
            return


def _named(value: _FollowedValue) -> tuple[str, ...]:
    return (value.path,) if value.path else ()


def _element(value: _FollowedValue, index: list[_FollowedValue]) -> _FollowedValue:
    number, items = index[0].constant if len(index) == 1 else None, value.items or ()
    return items[number] if isinstance(number, int) and 0 <= number < len(items) else _UNKNOWN
