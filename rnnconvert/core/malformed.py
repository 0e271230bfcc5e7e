"""The one place that turns what code raises over a malformed file into an error about that file.

A parser walks through what a file states, such as a configuration in JSON, and does not check the type of every value before it
uses it: where a value is not what it should be, Python raises, in the parser or in the library that it calls. The same errors, raised
in any other code of rnnconvert's, are faults: they must never be reported as damage of the user's file. They end as internal errors.

Code that goes on without what it could not compute asks `passes`. The tests and `--debug` run `strictly`, so that no fault hides there.
"""

from __future__ import annotations

import contextlib
import re
import traceback
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any, SupportsIndex, overload

from rnnconvert.core.binding import bound
from rnnconvert.core.errors import RnnConvertError

MALFORMED = (KeyError, IndexError, TypeError, AttributeError, ValueError, ArithmeticError, StopIteration, RecursionError, MemoryError)
"""Errors of Python for a value of a file that is missing, of another type, or too deep."""

_STUMBLES = (KeyError, IndexError, TypeError, AttributeError)
"""Errors of Python in code that takes for granted what a value is."""

_WRONG_CALL = re.compile(r"\w\(\) (missing|takes|got an unexpected|got multiple|got some positional)|\w\(\) argument after \*")
"""How Python says that a function was called with other arguments than it has: whoever wrote the call is wrong."""

_INDEX_OF_ARRAY = re.compile(r"index -?\d+ is out of bounds for axis|too many indices for array|arrays used as indices")
"""How numpy says that an array has no such place: numpy raised this, although no frame of its own shows it."""


class AbsentError(KeyError, IndexError):
    """A value that a file does not state, asked for by its name or place: damage, wherever it is raised."""

    def __str__(self) -> str:
        return str(self.args[0])


class Fields(dict[str, Any]):
    """Values that a file states by name. A name that it does not state raises AbsentError."""

    __slots__ = ()

    def __missing__(self, name: str) -> Any:
        raise AbsentError(f"it states no {name!r}")


class Entries(tuple[Any, ...]):
    """Values that a file states in order. A place behind the last one raises AbsentError."""

    __slots__ = ()

    @overload
    def __getitem__(self, place: SupportsIndex) -> Any: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[Any, ...]: ...
    def __getitem__(self, place: Any) -> Any:
        try:
            return super().__getitem__(place)
        except IndexError:
            raise AbsentError(f"it states {len(self)} values, and none at {place}") from None


_strict: ContextVar[bool] = ContextVar("strict", default=False)


@contextlib.contextmanager
def strictly() -> Iterator[None]:
    """Let every error pass that code of ours raised by itself, so that a fault cannot hide behind a part that is left out."""
    with bound(_strict, True):
        yield


@contextlib.contextmanager
def malformed(error_of: Callable[[str], Exception], *parsers: str) -> Iterator[None]:
    """Raise the error of a malformed file in place of what Python raises over its values.

    error_of  makes it from what Python said, in words
    parsers   modules and packages of the parser, in addition to the module that has this block

    The project's own errors pass unchanged, and so do faults: what only wrong code raises (`is_fault`), and what the project's code
    raises outside the parser.
    """
    try:
        yield
    except MALFORMED as error:
        places = [str(frame.f_globals.get("__name__")) for frame, _ in traceback.walk_tb(error.__traceback__)]
        within = any(f"{places[-1]}.".startswith(f"{parser}.") for parser in (*parsers, *places[1:2]))
        if isinstance(error, RnnConvertError) or is_fault(error) or (is_stumble(error) and not within):
            raise
        raise error_of(in_words(error)) from error


def passes(error: BaseException) -> bool:
    """Return whether what goes on without a part must not: an error says itself what is wrong, or is a fault of ours."""
    return isinstance(error, RnnConvertError) or is_fault(error) or (_strict.get() and is_stumble(error))


def is_fault(error: BaseException) -> bool:
    """Return whether only wrong code raises this: an object of our classes or modules lacks a name, or a call does not fit its function.

    Values of files are plain: numbers, texts, lists, dictionaries, arrays, objects of the libraries that read them.
    """
    if isinstance(error, AttributeError):
        holder = error.obj
        place = getattr(holder, "__name__" if isinstance(holder, type(re)) else "__module__", None) or ""
        return str(place).partition(".")[0] == "rnnconvert" and not isinstance(holder, Fields | Entries)
    return isinstance(error, TypeError) and bool(_WRONG_CALL.search(str(error)))


def is_stumble(error: BaseException) -> bool:
    """Return whether a line of our own raised this, and no library that it called: a fault, or a value that it did not check."""
    if type(error) not in _STUMBLES or (isinstance(error, IndexError) and _INDEX_OF_ARRAY.match(str(error))):
        return False
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    return str(frame.f_globals.get("__name__")).partition(".")[0] == "rnnconvert"


def in_words(error: BaseException) -> str:
    """Return the words of a Python error, with its kind before them."""
    return f"{type(error).__name__}: {error}"[:300]
