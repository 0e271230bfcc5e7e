"""The arguments of public functions, checked against their annotations: a wrong one is an error that says what is expected."""

from __future__ import annotations

import collections.abc
import functools
import inspect
import os
import sys
import types
import typing
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from rnnconvert.core.copies import check_copy
from rnnconvert.core.errors import UnknownWordError, UsageError
from rnnconvert.core.printable import either

F = TypeVar("F", bound=Callable[..., Any])

_TEXTS = (collections.abc.Sequence, collections.abc.Iterable)


def passes_on(*receivers: Callable[..., Any], options: bool = False) -> Callable[[F], F]:
    """Return a decorator for a function whose **keywords are those of these functions and dataclasses, beside its own parameters.

    So what belongs together is one value, and a caller still gives each part of it as a keyword. A TypedDict tells type checkers.

    options  whether the options of files are keywords of it, too
    """

    def marked(function: F) -> F:
        vars(inspect.unwrap(function)).update(receivers=receivers, takes_options=options)
        return function

    return marked


def keywords_of(function: Callable[..., Any]) -> dict[str, tuple[inspect.Parameter, Callable[..., Any]]]:
    """Return every parameter that may be given by its name, with the function that states it: its own, and those that it passes on."""
    function = inspect.unwrap(function)
    own_names = inspect.signature(function).parameters
    parameters = {
        name: (parameter, function)
        for name, parameter in own_names.items()
        if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
    }
    for receiver in vars(function).get("receivers", ()):
        for name, (parameter, where) in keywords_of(receiver).items():
            if parameter.default is not parameter.empty:
                parameters.setdefault(name, (parameter, where))
    return parameters


def takes_only_keywords(function: Callable[..., Any]) -> bool:
    """Return whether the **keywords of a function are those that it passes on, and no options of files."""
    return not vars(inspect.unwrap(function)).get("takes_options", True)


def split_keywords(keywords: Mapping[str, Any], receiver: Callable[..., Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the keywords that are a receiver's, and all others."""
    names = keywords_of(receiver)
    received = {name: value for name, value in keywords.items() if name in names}
    return received, {name: value for name, value in keywords.items() if name not in names}


def checked(function: F) -> F:
    """Return a function that raises UsageError for an argument of another type than its annotation names.

    Annotations that name nothing to check (Any, object, types of other packages) allow everything. A keyword that the function
    does not have is an error that names the one most like it, including options of files, if it takes them.
    """
    signature = inspect.signature(function)
    keywords = keywords_of(function)
    options = next((name for name, parameter in signature.parameters.items() if parameter.kind is parameter.VAR_KEYWORD), None)
    # Options of files are checked where they are parsed; keywords of values alone are all that there are.
    takes_options = options is not None and not takes_only_keywords(function)

    @functools.cache
    def kinds() -> dict[str, tuple[Any, ...]]:
        return {name: tuple(_kinds(parameter.annotation, where)) for name, (parameter, where) in keywords.items()}

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        check_copy()
        strange = next((word for word in kwargs if word not in keywords), None)
        if strange is not None and not takes_options:
            raise unknown("keyword", strange, keywords)
        arguments = signature.bind(*args, **kwargs).arguments
        passed_on = arguments.pop(options, {}) if options is not None else {}
        for name, value in {**arguments, **passed_on}.items():
            if wanted := kinds().get(name):
                _check(f"{function.__name__}: {name}", value, wanted)
        try:
            return function(*args, **kwargs)
        except UnknownWordError as error:
            if error.word not in kwargs:
                raise
            raise unknown(error.what, error.word, [*keywords, *error.words]) from None

    return call  # type: ignore[return-value]


_MOST_CHOICES = 20
_LISTED = {
    "format": "`rnnconvert formats`",
    "option": "`rnnconvert formats FORMAT`",
    "executor": "`rnnconvert executors`",
    "ending": "`rnnconvert formats`",
}
"""The command that lists the choices if an error would drown in them."""


def unknown(what: str, word: object, valid: Iterable[str], called: Mapping[str, Collection[str]] | None = None) -> UsageError:
    """Return the error for an unknown word, which suggests the valid word that it resembles, or lists the valid ones.

    what    what it should name, as in "format"
    called  other names that people have for some of the valid words
    """
    words = list(valid)
    return UnknownWordError(what, word, words, nearest(word, words, what, called))


def nearest(word: object, valid: Iterable[str], what: str = "", called: Mapping[str, Collection[str]] | None = None) -> str:
    """Return a sentence: the word that another one means or resembles, or those that there are; of many the command that lists them."""
    import difflib  # a library of its own, which only errors need

    choices = list(valid)
    plain = {choice.lower(): choice for choice in reversed(choices)}
    meant = [name for name, words in (called or {}).items() if name in choices and str(word).lower() in words]
    if meant:
        return f"Choose {either(map(repr, meant))}"
    near = difflib.get_close_matches(str(word).lower(), plain, 1)
    if near:
        return f"Did you mean {plain[near[0]]!r}?"
    if len(choices) <= _MOST_CHOICES:
        return f"Choose one of: {', '.join(choices)}"
    return f"Choose one of {len(choices)}; {_LISTED.get(what, 'the documentation')} lists them"


def _kinds(annotation: Any, function: Callable[..., Any]) -> Iterator[Any]:
    """Yield the types that an annotation allows; none where it allows everything, or names types that are not at hand."""
    if isinstance(annotation, str):
        try:
            annotation = eval(annotation, vars(sys.modules[inspect.unwrap(function).__module__]))  # our own source
        except (NameError, TypeError):
            return
    members = typing.get_args(annotation) if _is_union(annotation) else (annotation,)
    # What may be a file or something in memory is looked through where it is read, which knows what to do instead.
    checkable = [_is_checkable(member) and member is not typing.BinaryIO for member in members]
    if all(checkable):
        yield from members


def _is_union(annotation: Any) -> bool:
    return isinstance(annotation, types.UnionType) or typing.get_origin(annotation) is typing.Union


def _is_checkable(kind: Any) -> bool:
    origin = typing.get_origin(kind) or kind
    return isinstance(origin, type) and origin not in (object, Any)


def _check(what: str, value: Any, kinds: tuple[Any, ...]) -> None:
    if not any(_is(value, kind) for kind in kinds):
        quoted = repr(value) if isinstance(value, str | int | float | bytes | type(None)) else f"a {type(value).__name__}"
        expected = " or ".join(dict.fromkeys(map(_called, kinds)))
        instead = getattr(type(value), "INSTEAD", "")
        raise UsageError(f"{what} is {quoted[:80]}, expected {expected}" + (f". {instead}" if instead else ""))
    if any(typing.get_origin(kind) is os.PathLike for kind in kinds) and isinstance(value, str | os.PathLike):
        try:
            os.lstat(value) if "\0" in str(value) else Path(value).exists()
        except (OSError, ValueError) as error:
            raise UsageError(f"{what} cannot be the name of a file: {error}"[:300]) from None


def _is(value: Any, kind: Any) -> bool:
    if _is_union(kind):
        return any(_is(value, member) for member in typing.get_args(kind))
    origin = typing.get_origin(kind) or kind
    if origin is bool:
        return (isinstance(value, bool | int) and value in (0, 1)) or type(value).__name__ in ("bool_", "bool")
    if origin in (int, float):
        return isinstance(value, (int, float) if origin is float else int) and not isinstance(value, bool)
    if origin in _TEXTS:
        if isinstance(value, str | bytes) or hasattr(value, "__array__") or not isinstance(value, collections.abc.Iterable):
            return False
        (item,) = typing.get_args(kind) or (object,)
        return not isinstance(value, collections.abc.Collection) or all(_is(element, item) for element in value)
    return isinstance(value, origin)


def _called(kind: Any) -> str:
    """Return the words for a type in an error."""
    origin = typing.get_origin(kind) or kind
    names = {
        str: "a text",
        bool: "True or False",
        int: "an integer",
        float: "a number",
        type(None): "None",
        os.PathLike: "a path",
        collections.abc.Mapping: "a dictionary",
        collections.abc.Callable: "a function",
    }
    if origin in _TEXTS:
        (item,) = typing.get_args(kind) or (object,)
        if _is_union(item):
            return f"a list, of which each is {' or '.join(map(_called, typing.get_args(item)))}"
        return f"a list of {'texts' if item is str else f'{item.__name__} objects'}"
    return names.get(origin) or f"a {origin.__name__}"
