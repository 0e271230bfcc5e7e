"""Which functions a TorchScript archive's code calls with which of its tensors. The code is read as text and never run.

The code is what python_print writes: classes with methods, one statement a line. Followed are attributes (`self.rnn`),
lists of them, and the sums of products that an RNN cell is traced as; what else a line says is skipped.

Source: torch/csrc/jit/serialization/python_print.cpp.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rnnconvert.core.limits import LINE_NESTING

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
    """What is known about a value: its attribute, its list, the products that it sums, or its constant."""

    path: str | None = None
    items: tuple[_FollowedValue, ...] | None = None
    sums: tuple[str, ...] = ()
    constant: Any = None


_UNKNOWN = _FollowedValue()
_TOKEN = re.compile(r'\s*(?:("(?:[^"\\]|\\.)*")|(-?\d[\w.+-]*)|([A-Za-z_]\w*)|(.))')
_CLASS = re.compile(r"class (\w+)\(")
_METHOD = re.compile(r"  def \w+\((\w+)")
_ASSIGNED = re.compile(r"([A-Za-z_]\w*(?:, [A-Za-z_]\w*)*),? (?::[^=\"]*)?= ")
_RETURNED = re.compile(r"(?:return|if|elif) ")


class _UnfollowedError(Exception):
    """A line that is not followed."""


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
        targets: list[str] = []
        if assigned := _ASSIGNED.match(line):
            targets, line = assigned.group(1).split(", "), line[assigned.end() :]
        elif returned := _RETURNED.match(line):
            line = line[returned.end() :]
        try:
            value = _Expression(line, self._values, self.calls).value(0)
        except _UnfollowedError:
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


class _Expression:
    """A parser of one expression, which follows what is known of its parts."""

    def __init__(self, text: str, values: Mapping[str, _FollowedValue], collected: list[WeightsCall]) -> None:
        self._tokens = [match.groups() for match in _TOKEN.finditer(text)]
        self._at = 0
        self._values = values
        self._calls = collected

    def _mark(self) -> str:
        return (self._tokens[self._at][3] or "") if self._at < len(self._tokens) else ""

    def _take(self) -> tuple[str | None, ...]:
        if self._at >= len(self._tokens):
            raise _UnfollowedError
        self._at += 1
        return self._tokens[self._at - 1]

    def _expect(self, mark: str) -> None:
        if self._take()[3] != mark:
            raise _UnfollowedError

    def value(self, depth: int) -> _FollowedValue:
        """Return the value that begins here, up to a comma or a closing bracket."""
        if depth > LINE_NESTING:
            raise _UnfollowedError
        text, number, name, mark = self._take()
        dotted = ""
        if text is not None:
            value = _FollowedValue(constant=text[1:-1])
        elif number is not None:
            value = _FollowedValue(constant=_number(number))
        elif name in ("True", "False"):
            value = _FollowedValue(constant=name == "True")
        elif name is not None:
            dotted = name
            value = self._values.get(name, _UNKNOWN)
        elif mark in ("(", "["):
            items = self._list(")" if mark == "(" else "]", depth)
            value = items[0] if mark == "(" and len(items) == 1 else _FollowedValue(items=tuple(items))
        else:
            raise _UnfollowedError
        while self._mark() in (".", "(", "["):
            mark = self._take()[3]
            if mark == ".":
                part = self._take()[2]
                if part is None:
                    raise _UnfollowedError
                dotted = f"{dotted}.{part}" if dotted else ""
                path = value.path
                value = _UNKNOWN if path is None else _FollowedValue(path=f"{path}.{part}" if path else part)
            elif mark == "(":
                value = self._called(dotted, self._list(")", depth))
                dotted = ""
            else:
                index = self._list("]", depth)
                number_of = index[0].constant if len(index) == 1 else None
                items_of = value.items or ()
                within = isinstance(number_of, int) and 0 <= number_of < len(items_of)
                value = items_of[number_of] if within else _UNKNOWN  # type: ignore[index]
                dotted = ""
        if self._at < len(self._tokens) and self._mark() not in (",", ")", "]"):
            raise _UnfollowedError  # an operator, or something else that is not followed
        return value

    def _list(self, end: str, depth: int) -> list[_FollowedValue]:
        items = []
        while self._mark() != end:
            if self._at + 1 < len(self._tokens) and self._tokens[self._at + 1][3] == "=":
                self._at += 2  # a keyword
                self.value(depth + 1)
            else:
                items.append(self.value(depth + 1))
            if self._mark() == ",":
                self._at += 1
            elif self._mark() != end:
                raise _UnfollowedError
        self._expect(end)
        return items

    def _called(self, dotted: str, arguments: list[_FollowedValue]) -> _FollowedValue:
        owner, _, function = dotted.rpartition(".")
        if owner not in ("torch", "ops.aten"):
            return _UNKNOWN
        if function in SEQUENCES:
            self._sequence(function, arguments)
        elif function in CELLS:
            tensors = tuple(value.path for value in arguments[2:] if value.path)
            if tensors:
                self._calls.append(WeightsCall(function, tensors))
        elif function in _VIEWS and arguments:
            return arguments[0]
        elif function in _PRODUCTS:
            return _FollowedValue(sums=tuple(name for value in arguments for name in (*_named(value), *value.sums)))
        elif function in _SUMS:
            with_weights = any(value.sums for value in arguments)
            return _FollowedValue(sums=tuple(n for v in arguments for n in (*_named(v), *v.sums)) if with_weights else ())
        elif arguments and arguments[0].sums:
            self._calls.append(WeightsCall(function, arguments[0].sums))
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
                self._calls.append(WeightsCall(function, tuple(str(argument.path) for argument in named), constants))
            return


def _named(value: _FollowedValue) -> tuple[str, ...]:
    return (value.path,) if value.path else ()


def _number(text: str) -> int | float | None:
    try:
        return float(text) if any(letter in text for letter in ".en") else int(text)
    except ValueError:
        return None
