"""Expressions in the code of TorchScript archives, read as text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple, TypeAlias, Union

from rnnconvert.core.limits import CODE_NESTING

Expression: TypeAlias = "tuple[Any, ...]"
"""("name", text), ("constant", value), ("attribute", of, name), ("call", of, arguments, keywords), ("index", of, [index]) or ("index", of,
[start, end]), ("list", items), ("tuple", items) or ("dict", pairs)."""


_TOKEN = re.compile(
    r'\s*(?:("(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)*\')|(-?(?:\d[\w.]*(?:(?<=[eE])[+-]\d+)?|inf\b|nan\b))|([A-Za-z_]\w*)|(\S))'
)


_WORDS = {"True": True, "False": False, "None": None}


class UnreadError(Exception):
    """Code that is not of the form that is known."""


class Parameter(NamedTuple):
    """A parameter of a function, with its type and its default as they are written."""

    name: str
    kind: Expression | None
    default: Expression | None

    @property
    def number(self) -> str:
        """The element type of a parameter that is a plain number or a truth; "" for others."""
        return _NUMBERS.get(self.kind[1], "") if self.kind is not None and self.kind[0] == "name" else ""

    def names(self) -> Names:
        """Return a name for each tensor that it is: for a tuple, of its items, with their numbers behind."""
        return _names(self.name, self.kind)


class Unsized(NamedTuple):
    """The name of a list or dictionary of tensors: the code that reads it shows its items."""

    name: str
    by_key: bool


_NUMBERS = {"int": "int64", "float": "float32", "bool": "bool"}
"""The types of plain numbers, and the element types of tensors that hold these."""
Names = Union[str, Unsized, "list[Names]"]
_OF_TENSORS = {
    ("index", ("name", "List"), (("name", "Tensor"),)): False,
    ("index", ("name", "Dict"), (("tuple", (("name", "str"), ("name", "Tensor"))),)): True,
}
"""The types of lists and dictionaries of tensors, and whether texts are their keys."""


def _names(name: str, kind: Expression | None) -> Names:
    if not isinstance(kind, tuple) or kind[0] != "index":
        return name
    by_key = _OF_TENSORS.get(_frozen(kind))
    if by_key is not None:
        return Unsized(name, by_key)
    if kind[1] != ("name", "Tuple"):
        return name
    (items,) = kind[2]
    kinds = items[1] if items[0] == "tuple" else [items]
    return [_names(f"{name}_{number}", of_item) for number, of_item in enumerate(kinds)]


def _frozen(expression: Any) -> Any:
    """Return an expression with tuples in the place of its lists."""
    return tuple(map(_frozen, expression)) if isinstance(expression, (list, tuple)) else expression


class ExpressionReader:
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

    def parameters(self) -> Iterator[Parameter]:
        """Yield the parameters of a function."""
        while self._mark() != ")":
            name = self._take()[2]
            if name is None:
                raise UnreadError("a parameter without a name")
            kind = default = None
            if self._mark() == ":":
                self._at += 1
                kind = self._value(0)
            if self._mark() == "=":
                self._at += 1
                default = self._value(0)
            if self._mark() == ",":
                self._at += 1
            elif self._mark() != ")":
                raise UnreadError("a header")
            yield Parameter(name, kind, default)

    def _value(self, depth: int) -> Expression:
        if depth > CODE_NESTING:
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
        for _ in range(CODE_NESTING):
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
        """Return the items between brackets, and whether a comma stands behind the last."""
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
        """Return the items between the brackets of an index; of a slice, as tuples have it, its two ends."""
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
