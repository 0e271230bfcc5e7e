"""What C sources of tables hold: arrays with their numbers, structures by their words, and definitions. Nothing is compiled.

An #include of a file in the same folder is followed, so that tables may lie in several files.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from rnnconvert.containers.reading import charging, read_small
from rnnconvert.core.arrays import Array
from rnnconvert.core.errors import UnreadableError

_LARGEST = 512 << 20
_MOST_FILES = 256
_DEEPEST = 8
"""The most braces within braces."""
_COMMENT = re.compile(r"/\*.*?(?:\*/|\Z)|//[^\n]*", re.S)
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([\w.-]{1,200})"', re.M)
_DEFINE = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w{1,200})[ \t]+([^\s/][^\n]{0,200})", re.M)
# The bounds of what may be long keep the search linear.
_VALUE = re.compile(r"\b(\w{1,200})[ \t]*((?:\[[^\]\n]{0,80}\][ \t]*){0,4})=\s*\{([^{}]*)\}")
_TABLE = re.compile(
    r"\b(?:(\w{1,200})[ \t]*((?:\[[^\]\n]{0,80}\][ \t]*){1,4})=|(?:vector|array)[ \t]*<[\w:<>, \t]{1,120}>[ \t]*(\w{1,200})[ \t]*=?)\s*[({]"
)
"""Where the numbers of an array or of a vector begin."""
_PIECE = re.compile(r"[{}();]|[^\s{}(),;]{1,80}")
_NUMBER = re.compile(r"[-+]?[0-9.][-+0-9.eE]{0,40}[fFlLuU]{0,3}")
_SUFFIX = re.compile(r"(?<=[0-9.])[fFlLuU]+")
_NUMBERS = re.compile(r"[-+0-9.,eE\sINFYTA]*")


@dataclass
class Source:
    """Files of C.

    arrays   numbers by the arrays' names
    tables   arrays in braces within braces, and std::vector's, by their names
    words    what stands in the braces of a structure, and its type, by its name
    defined  texts by their names
    comment  the comments of the first file
    files    every file that was read
    """

    arrays: dict[str, Array] = field(default_factory=dict)
    tables: dict[str, Array] = field(default_factory=dict)
    words: dict[str, tuple[str, list[str]]] = field(default_factory=dict)
    defined: dict[str, str] = field(default_factory=dict)
    comment: str = ""
    files: list[Path] = field(default_factory=list)


def read(path: Path) -> Source:
    """Return what a file and those that it includes from its folder define.

    Raises UnreadableError for what is not text, and for an array whose braces hold anything but numbers it can have.
    """
    source = Source()
    waiting = [path]
    while waiting:
        one = waiting.pop(0)
        if one in source.files or (source.files and not one.is_file()):
            continue
        if len(source.files) >= _MOST_FILES:
            raise UnreadableError(path, f"it includes more than {_MOST_FILES} files")
        source.files.append(one)
        content = read_small(one, _LARGEST)
        reading = charging(len(content))
        reading.work(len(content) // 4, path)
        reading.memory(4 * len(content), path)
        try:
            text = content.decode("utf-8")
        except UnicodeDecodeError:
            raise UnreadableError(one, "it is not text, as a C header is") from None
        if len(source.files) == 1:
            source.comment = "\n".join(_COMMENT.findall(text))
        text = _COMMENT.sub(" ", text)
        waiting += [one.parent / name for name in _INCLUDE.findall(text)]
        source.defined |= {name: value.strip() for name, value in _DEFINE.findall(text)}
        for match in _VALUE.finditer(text):
            name, sizes, inside = match.groups()
            before = re.findall(r"\w+", text[max(0, match.start() - 80) : match.start()])
            kind = before[-1] if before else ""
            if sizes.strip():
                source.arrays[name] = _numbers(one, name, inside)
            else:
                source.words[name] = kind, [word.strip() for word in inside.split(",")]
        source.tables |= {name: table for name, table in _tables(text) if name not in source.arrays}
    return source


def _tables(text: str) -> Iterator[tuple[str, Array]]:
    """Yield arrays and vectors of numbers with their names, in the shape that their braces have; others are passed over."""
    begin = 0
    while (match := _TABLE.search(text, begin)) is not None:
        begin = match.end()
        levels: list[list[Any]] = [[]]
        plain = True
        for piece in _PIECE.finditer(text, match.end()):
            begin, word = piece.end(), piece.group()
            if word in ("{", "("):
                levels.append([])
            elif word in ("}", ")") and len(levels) > 1:
                inner = levels.pop()
                levels[-1].append(inner)
            elif word in ("}", ")", ";"):
                break
            elif plain := plain and _NUMBER.fullmatch(word) is not None:
                levels[-1].append(_SUFFIX.sub("", word))
            if len(levels) > _DEEPEST or not plain:
                break
        if plain and len(levels) == 1 and levels[0]:
            with contextlib.suppress(ValueError):  # rows of several lengths
                yield match[1] or match[3], np.array(_floats(levels[0]), np.float64)


def _floats(values: list[Any]) -> list[Any]:
    return [_floats(one) if isinstance(one, list) else float(one) for one in values]


def _numbers(path: Path, name: str, inside: str) -> Array:
    plain = _SUFFIX.sub("", inside).strip().rstrip(",")
    if not plain or not _NUMBERS.fullmatch(plain):
        raise UnreadableError(path, f"the array {name!r} holds anything but decimal numbers")
    plain = plain.replace("INFINITY", "inf").replace("NAN", "nan")
    try:
        return np.array([float(one) for one in plain.split(",")])
    except ValueError as error:
        raise UnreadableError(path, f"the array {name!r} holds anything but decimal numbers: {error}") from None
