"""C sources of tables: arrays with their numbers, structures by their words, and definitions. Nothing is compiled.

An #include of a file in the same folder is followed, so that tables may lie in several files.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from rnnconvert.containers import json_text
from rnnconvert.containers.companions import companion
from rnnconvert.containers.reading import charging, read_small
from rnnconvert.containers.stored import Stored
from rnnconvert.core.arrays import Array, identical
from rnnconvert.core.errors import UnreadableError
from rnnconvert.core.limits import C_BRACES, C_BYTES, C_FILES
from rnnconvert.core.names import add

_COMMENT = re.compile(r"/\*.*?(?:\*/|\Z)|//[^\n]*", re.S)
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([\w.-]{1,200})"', re.M)
_DEFINE = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w{1,200})[ \t]+([^\s/][^\n]{0,200})", re.M)
# The bounds of what may be long keep the search linear.
_VALUE = re.compile(r"\b(\w{1,200})[ \t]*((?:\[[^\]\n]{0,80}\][ \t]*){0,4})=\s*\{([^{}]*)\}")
_TABLE = re.compile(
    r"\b(?:(\w{1,200})[ \t]*((?:\[[^\]\n]{0,80}\][ \t]*){1,4})=|(?:vector|array)[ \t]*<[\w:<>, \t]{1,120}>[ \t]*(\w{1,200})[ \t]*=?)\s*[({]"
)
"""Where the numbers of an array or of a vector begin."""
_BRACE = re.compile(r"[{}();]")
_NESTED = re.compile(r"[-+0-9.,eEfFlLuU\s{}]*")
_SUFFIX = re.compile(r"(?<=[0-9.])[fFlLuU]+")
_AS_JSON = (
    (_SUFFIX, ""),
    (re.compile(r"\{"), "["),
    (re.compile(r",? ?\}"), "]"),
    (re.compile(r", ?\Z"), ""),
    (re.compile(r"\+(?=[0-9.])"), ""),
    (re.compile(r"(?<![0-9])\."), "0."),
    (re.compile(r"\.(?![0-9])"), ".0"),
)
"""Replacements that make JSON of the numbers in braces of C, with one blank between words."""
_NUMBERS = re.compile(r"[-+0-9.,eE\sINFYTA]*")


@dataclass
class CSource:
    """Files of C.

    arrays   numbers by the arrays' names
    text     what all of them say, without comments
    words    what stands in the braces of a structure, and its type, by its name
    defined  texts by their names
    comment  the comments of the first file
    files    every file that was read
    """

    arrays: dict[str, Array] = field(default_factory=dict)
    text: str = ""
    words: dict[str, tuple[str, list[str]]] = field(default_factory=dict)
    defined: dict[str, str] = field(default_factory=dict)
    comment: str = ""
    files: list[Path] = field(default_factory=list)


def read(path: Path) -> CSource:
    """Return the definitions in a file and in the files that it includes from its folder.

    Raises UnreadableError for a file that is not text, and for an array whose braces hold anything but numbers it can have.
    """
    source = CSource()
    waiting = [path]
    while waiting:
        header = waiting.pop(0)
        if header in source.files or (source.files and not header.is_file()):
            continue
        if len(source.files) >= C_FILES:
            raise UnreadableError(path, f"it includes more than {C_FILES} files")
        source.files.append(header)
        content = read_small(header, C_BYTES)
        reading = charging(len(content))
        reading.work(len(content) // 4, path)
        reading.memory(4 * len(content), path)
        try:
            text = content.decode("utf-8")
        except UnicodeDecodeError:
            raise UnreadableError(header, "it is not text, as a C header is") from None
        if len(source.files) == 1:
            source.comment = "\n".join(_COMMENT.findall(text))
        text = _COMMENT.sub(" ", text)
        waiting += [companion(path, name) for name in _INCLUDE.findall(text)]
        source.defined |= {name: value.strip() for name, value in _DEFINE.findall(text)}
        for match in _VALUE.finditer(text):
            name, sizes, inside = match.groups()
            before = re.findall(r"\w+", text[max(0, match.start() - 80) : match.start()])
            kind = before[-1] if before else ""
            if sizes.strip():
                _add(source.arrays, name, _numbers(header, name, inside), header)
            else:
                source.words[name] = kind, [word.strip() for word in inside.split(",")]
        source.text += text
    return source


def arrays(source: CSource) -> dict[str, Array]:
    """Return every array and vector of numbers, in the shape that its braces have. Raises UnreadableError if two have one name."""
    values: dict[str, Array] = {}
    for name, array in tables(source.text):
        _add(values, name, array, source.files[0])
    return {**values, **source.arrays}


def _add(values: dict[str, Array], name: str, array: Array, path: Path) -> None:
    """Add an array. The same numbers may stand under one name again, as in the branches of an #if; others may not."""
    if name not in values or not identical(values[name], array):
        add(values, name, array, path)


def stored(path: Path) -> Stored:
    """Return the arrays of C sources as float32. Raises UnreadableError as read does."""
    return Stored({name: array.astype(np.float32) for name, array in arrays(read(path)).items()}, {})


def tables(text: str) -> Iterator[tuple[str, Array]]:
    """Yield arrays and vectors of numbers with their names, in the shape that their braces have; others are passed over."""
    begin = 0
    while (match := _TABLE.search(text, begin)) is not None:
        begin, depth, deepest = match.end(), 1, 1
        for brace in _BRACE.finditer(text, match.end()):
            begin = brace.end()
            depth += 1 if brace.group() in "{(" else -1
            deepest = max(deepest, depth)
            if not depth or deepest > C_BRACES or brace.group() == ";":
                break
        inside = text[match.end() : begin - 1]
        if depth or not _NESTED.fullmatch(inside):
            continue
        inside = " ".join(inside.split())
        for pattern, instead in _AS_JSON:
            inside = pattern.sub(instead, inside)
        with contextlib.suppress(ValueError, OverflowError):  # rows of several lengths, numbers that are none
            array = np.array(json_text.loads(f"[{inside}]", match[1] or match[3]), np.float64)
            if array.size:
                yield match[1] or match[3], array


def _numbers(path: Path, name: str, inside: str) -> Array:
    plain = _SUFFIX.sub("", inside).strip().rstrip(",")
    if not plain or not _NUMBERS.fullmatch(plain):
        raise UnreadableError(path, f"the array {name!r} holds anything but decimal numbers")
    plain = plain.replace("INFINITY", "inf").replace("NAN", "nan")
    try:
        return np.array([float(number) for number in plain.split(",")])
    except ValueError as error:
        raise UnreadableError(path, f"the array {name!r} holds anything but decimal numbers: {error}") from None
