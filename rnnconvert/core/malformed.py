"""The one place that turns what code raises over a malformed file into an error about that file.

Code that walks through what a file states, such as a configuration in JSON, does not check the type of every value before it
uses it: where a value is not of the type that it should be, Python raises. So does Python for a fault of rnnconvert's, which
must never be reported as damage of the user's file; it passes, and ends as an internal error.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator

from rnnconvert.core.errors import RnnConvertError

MALFORMED = (KeyError, IndexError, TypeError, AttributeError, ValueError, ArithmeticError, StopIteration, RecursionError, MemoryError)
"""What Python raises where a value of a file is missing, of another type, or too deep."""

_WRONG_CALL = re.compile(r"\w\(\) (missing|takes|got an unexpected|got multiple|got some positional)|\w\(\) argument after \*")
"""How Python says that a function was called with other arguments than it has: whoever wrote the call is wrong."""


@contextlib.contextmanager
def malformed(error_of: Callable[[str], Exception]) -> Iterator[None]:
    """Raise the error of a malformed file in place of what Python raises over its values.

    error_of  makes it from what Python said, in words

    Errors of ours and faults of ours (`is_fault`) pass as they are.
    """
    try:
        yield
    except MALFORMED as error:
        if passes(error):
            raise
        raise error_of(in_words(error)) from error


def passes(error: BaseException) -> bool:
    """Return whether an error says itself what is wrong, or is a fault of ours: neither is turned into another."""
    return isinstance(error, RnnConvertError) or is_fault(error)


def is_fault(error: BaseException) -> bool:
    """Return whether only wrong code raises this: an object of our classes or modules lacks a name, or a call does not fit its function.

    Values of files are plain: numbers, texts, lists, dictionaries, arrays, objects of the libraries that read them.
    """
    if isinstance(error, AttributeError):
        holder = error.obj
        place = getattr(holder, "__name__" if isinstance(holder, type(re)) else "__module__", None) or ""
        return str(place).partition(".")[0] == "rnnconvert"
    return isinstance(error, TypeError) and bool(_WRONG_CALL.search(str(error)))


def in_words(error: BaseException) -> str:
    """Return what Python said, with the kind of error before it."""
    return f"{type(error).__name__}: {error}"[:300]
