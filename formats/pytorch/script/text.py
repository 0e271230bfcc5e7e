"""The code of TorchScript archives as statements: read as text, and never run.

The code is what python_print writes: one statement a line, blocks by indentation, and expressions of names, calls, attributes,
indices, lists and constants; it has no operators of its own.

Source: torch/csrc/jit/serialization/python_print.cpp.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

MAX_DEPTH = 60
"""The most levels of brackets or blocks, and the most calls and attributes after one value."""

Expression: TypeAlias = "tuple[Any, ...]"
"""("name", text), ("constant", value), ("attribute", of, name), ("call", of, arguments, keywords), ("index", of, [index]) or
("index", of, [start, end]),
("list", items), ("tuple", items) or ("dict", pairs)."""

_TOKEN = re.compile(
    r'\s*(?:("(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)*\')|(-?(?:\d[\w.]*(?:(?<=[eE])[+-]\d+)?|inf\b|nan\b))|([A-Za-z_]\w*)|(\S))'
)
_HEADER = re.compile(r"(class (\w+)(?:\((\w*)\))?:|( *)def (\w+)\()")
_FIELD = re.compile(r"  (\w+) : ")
_WORDS = {"True": True, "False": False, "None": None}


class UnreadError(Exception):
    """Code that is not of the form that is known."""


@dataclass(frozen=True, eq=False)
class ScriptFunction:
    """A function or method: its parameters with their defaults, and the lines of its body."""

    name: str
    parameters: tuple[tuple[str, Expression | None], ...]
    lines: tuple[str, ...]


@dataclass(frozen=True)
class Class:
    """A class: what it is derived from, its fields in their order, and its methods."""

    base: str
    fields: tuple[str, ...]
    methods: dict[str, ScriptFunction]


@dataclass
class Statement:
    """A statement.

    kind     assign, unpack, set (an attribute), do, return, if, for, while, with or pass
    targets  the names that are assigned; a loop's variable
    value    what is assigned, done, returned, asked or gone through
    """

    kind: str
    value: Any = None
    targets: tuple[str, ...] = ()
    body: Sequence[Statement] = ()
    orelse: Sequence[Statement] = ()


def classes_and_functions(text: str) -> tuple[dict[str, Class], dict[str, ScriptFunction]]:
    """Return what a source defines."""
    classes: dict[str, Class] = {}
    functions: dict[str, ScriptFunction] = {}
    lines = text.split("\n")
    at, current = 0, ""
    while at < len(lines):
        line = lines[at]
        started = _HEADER.match(line)
        if started is None:
            field = _FIELD.match(line)
            if field and current:
                old = classes[current]
                classes[current] = Class(old.base, (*old.fields, field.group(1)), old.methods)
            at += 1
        elif started.group(2):
            current = started.group(2)
            classes[current] = Class(started.group(3) or "", (), {})
            at += 1
        else:
            function, at = _function(lines, at, len(started.group(4)))
            if started.group(4) and current:
                classes[current].methods[function.name] = function
            else:
                functions[function.name] = function
    return classes, functions


def _function(lines: Sequence[str], at: int, indent: int) -> tuple[ScriptFunction, int]:
    """Return the function that begins at a line, and the line behind it."""
    head = at
    while at < len(lines) and not lines[at].endswith(":"):
        at += 1
    header = " ".join(lines[head : at + 1]).strip()
    begin = at = at + 1
    while at < len(lines) and (not lines[at].strip() or len(lines[at]) - len(lines[at].lstrip(" ")) > indent):
        at += 1
    name = header[4 : header.index("(")]
    try:
        parameters = tuple(_Expressions(header[header.index("(") + 1 :]).parameters())
    except UnreadError:
        parameters = ()
    return ScriptFunction(name, parameters, tuple(lines[begin:at])), at


def statements(lines: Sequence[str]) -> list[Statement]:
    """Return the statements of a body. Raises UnreadError."""
    body, at = _block([line for line in lines if line.strip()], 0, 0)
    return body if at else []


def _block(lines: Sequence[str], at: int, depth: int) -> tuple[list[Statement], int]:
    if depth > MAX_DEPTH:
        raise UnreadError("blocks nested too deeply")
    result: list[Statement] = []
    indent = _indent(lines[at]) if at < len(lines) else 0
    while at < len(lines) and _indent(lines[at]) == indent:
        line = lines[at].strip()
        at += 1
        word, _, rest = line.partition(" ")
        if word in ("if", "while", "for", "with") and line.endswith(":"):
            body, at = _block(lines, at, depth + 1)
            orelse: list[Statement] = []
            if word == "if" and at < len(lines) and _indent(lines[at]) == indent and lines[at].strip() == "else:":
                orelse, at = _block(lines, at + 1, depth + 1)
            variable, text = "", rest[:-1]
            if word == "for":
                variable, marker, text = text.partition(" in ")
                if not marker or not variable.isidentifier():
                    raise UnreadError(line)
            result.append(Statement(word, _Expressions(text).only(), (variable,) if variable else (), body, orelse))
        else:
            result.append(_plain(line, word, rest))
    if at < len(lines) and _indent(lines[at]) > indent:
        raise UnreadError(lines[at])
    return result, at


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


def _plain(line: str, word: str, rest: str) -> Statement:
    if line == "pass":
        return Statement("pass")
    if word == "return":
        return Statement("return", _Expressions(rest).only())
    target, equals, value = line.partition(" = ")
    names = [name.strip() for name in target.partition(" : ")[0].split(",") if name.strip()]
    if equals and all(name.isidentifier() for name in names):
        several = "," in target.partition(" : ")[0]
        return Statement("assign" if not several else "unpack", _Expressions(value).only(), tuple(names))
    if equals and "(" not in value.partition('"')[0][:0] and re.fullmatch(r"[\w.() \"]+", target):
        return Statement("set", (_Expressions(target).only(), _Expressions(value).only()))
    return Statement("do", _Expressions(line).only())


class _Expressions:
    """A parser of the expressions of one line."""

    def __init__(self, text: str) -> None:
        self._tokens = [match.groups() for match in _TOKEN.finditer(text)]
        self._at = 0

    def _mark(self) -> str:
        return (self._tokens[self._at][3] or "") if self._at < len(self._tokens) else ""

    def _take(self) -> tuple[str | None, ...]:
        if self._at >= len(self._tokens):
            raise UnreadError("a line that ends early")
        self._at += 1
        return self._tokens[self._at - 1]

    def only(self) -> Expression:
        """Return the one expression of the line; several with commas between them are a tuple."""
        items = [self._value(0)]
        while self._mark() == ",":
            self._at += 1
            if self._at < len(self._tokens):
                items.append(self._value(0))
            else:
                break
        if self._at < len(self._tokens):
            raise UnreadError("an operator")
        return items[0] if len(items) == 1 else ("tuple", items)

    def parameters(self) -> Iterator[tuple[str, Expression | None]]:
        """Yield the parameters of a function with their defaults."""
        while self._mark() != ")":
            name = self._take()[2]
            if name is None:
                raise UnreadError("a parameter without a name")
            default = None
            if self._mark() == ":":
                self._at += 1
                self._value(0)
            if self._mark() == "=":
                self._at += 1
                default = self._value(0)
            if self._mark() == ",":
                self._at += 1
            elif self._mark() != ")":
                raise UnreadError("a header")
            yield name, default

    def _value(self, depth: int) -> Expression:
        if depth > MAX_DEPTH:
            raise UnreadError("brackets nested too deeply")
        text, number, name, mark = self._take()
        value: Expression
        if text is not None:
            value = ("constant", text[1:-1])
        elif number is not None:
            value = ("constant", _number(number))
        elif name is not None:
            value = ("constant", _WORDS[name]) if name in _WORDS else ("name", name)
        elif mark == "(":
            items, trailing = self._items(")", depth)
            value = items[0] if len(items) == 1 and not trailing else ("tuple", items)
        elif mark == "[":
            value = ("list", self._items("]", depth)[0])
        elif mark == "{":
            value = ("dict", self._pairs(depth))
        else:
            raise UnreadError(f"{mark!r}")
        for _ in range(MAX_DEPTH):
            mark = self._mark()
            if mark == ".":
                self._at += 1
                part = self._take()[2]
                if part is None:
                    raise UnreadError("an attribute without a name")
                value = ("attribute", value, part)
            elif mark == "(":
                self._at += 1
                value = ("call", value, *self._arguments(depth))
            elif mark == "[":
                self._at += 1
                value = ("index", value, self._index(depth))
            else:
                return value
        raise UnreadError("too many calls after one value")

    def _items(self, end: str, depth: int) -> tuple[list[Expression], bool]:
        """Return what stands between brackets, and whether a comma stands behind the last."""
        items: list[Expression] = []
        trailing = False
        while self._mark() != end:
            items.append(self._value(depth + 1))
            trailing = self._mark() == ","
            if trailing:
                self._at += 1
            elif self._mark() != end:
                raise UnreadError("a list")
        self._at += 1
        return items, trailing

    def _index(self, depth: int) -> list[Expression]:
        """Return what stands between the brackets of an index; of a slice, as tuples have it, its two ends."""
        first: Expression = ("constant", None)
        if self._mark() != ":":
            items = [self._value(depth + 1)]
            if self._mark() in (",", "]"):
                items += self._items("]", depth)[0] if self._separated() else []
                return items if len(items) == 1 else [("tuple", items)]
            first = items[0]
        if self._mark() != ":":
            raise UnreadError("an index")
        self._at += 1
        last = ("constant", None) if self._mark() == "]" else self._value(depth + 1)
        if self._take()[3] != "]":
            raise UnreadError("an index")
        return [first, last]

    def _separated(self) -> bool:
        """Take a comma or a closing bracket; return whether it was the comma."""
        return self._take()[3] == ","

    def _arguments(self, depth: int) -> tuple[list[Expression], dict[str, Expression]]:
        items: list[Expression] = []
        keywords: dict[str, Expression] = {}
        while self._mark() != ")":
            following = self._tokens[self._at + 1][3] if self._at + 1 < len(self._tokens) else ""
            name = self._tokens[self._at][2] if self._at < len(self._tokens) else None
            if name is not None and following == "=":
                self._at += 2
                keywords[name] = self._value(depth + 1)
            else:
                items.append(self._value(depth + 1))
            if self._mark() == ",":
                self._at += 1
            elif self._mark() != ")":
                raise UnreadError("arguments")
        self._at += 1
        return items, keywords

    def _pairs(self, depth: int) -> list[tuple[Expression, Expression]]:
        pairs = []
        while self._mark() != "}":
            key = self._value(depth + 1)
            if self._take()[3] != ":":
                raise UnreadError("a dictionary")
            pairs.append((key, self._value(depth + 1)))
            if self._mark() == ",":
                self._at += 1
            elif self._mark() != "}":
                raise UnreadError("a dictionary")
        self._at += 1
        return pairs


def _number(text: str) -> int | float:
    try:
        if text.lstrip("-").isdecimal() and len(text) < 25:
            return int(text)
        return float(text)
    except ValueError:
        raise UnreadError(f"the number {text[:20]}") from None
