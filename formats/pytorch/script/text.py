"""The code of TorchScript archives as statements: read as text, and never run.

The code is what python_print writes: one statement a line, blocks by indentation, and expressions of names, calls, attributes,
indices, lists and constants; it has no operators.

Source: torch/csrc/jit/serialization/python_print.cpp.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rnnconvert.core.limits import CODE_NESTING
from rnnconvert.formats.pytorch.script.code_expressions import ExpressionReader, Parameter, UnreadError

_HEADER = re.compile(r"(class (\w+)(?:\((\w*)\))?:|( *)def (\w+)\()")
_FIELD = re.compile(r"  (\w+) : ")


@dataclass(frozen=True, eq=False)
class ScriptFunction:
    """A function or method: its parameters with their defaults, and the lines of its body."""

    name: str
    parameters: tuple[Parameter, ...]
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
    """Return the definitions in a source."""
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
        parameters = tuple(ExpressionReader(header[header.index("(") + 1 :]).parameters())
    except UnreadError:
        parameters = ()
    return ScriptFunction(name, parameters, tuple(lines[begin:at])), at


def statements(lines: Sequence[str]) -> list[Statement]:
    """Return the statements of a body. Raises UnreadError."""
    body, at = _block([line for line in lines if line.strip()], 0, 0)
    return body if at else []


def _block(lines: Sequence[str], at: int, depth: int) -> tuple[list[Statement], int]:
    if depth > CODE_NESTING:
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
            result.append(Statement(word, ExpressionReader(text).only(), (variable,) if variable else (), body, orelse))
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
        return Statement("return", ExpressionReader(rest).only())
    target, equals, value = line.partition(" = ")
    names = [name.strip() for name in target.partition(" : ")[0].split(",") if name.strip()]
    if equals and all(name.isidentifier() for name in names):
        several = "," in target.partition(" : ")[0]
        return Statement("assign" if not several else "unpack", ExpressionReader(value).only(), tuple(names))
    if equals and "(" not in value.partition('"')[0][:0] and re.fullmatch(r"[\w.() \"]+", target):
        return Statement("set", (ExpressionReader(target).only(), ExpressionReader(value).only()))
    return Statement("do", ExpressionReader(line).only())
