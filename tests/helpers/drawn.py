"""What a run tries of cases that are too many for every run: a part drawn by a seed, or with --long all of them.

A test that goes through many small cases itself calls `each`, which names every case that fails.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import random
import traceback
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import pytest

T = TypeVar("T")

LONG = False
"""Whether every case is tried: --long."""

SEED = random.randrange(1 << 30)
"""What draws: --seed. tests/conftest.py sets both, before any test module is imported."""


def drawn(cases: Iterable[T], count: int, name: str, always: Callable[[T], bool] | None = None) -> list[T]:
    """That many of the cases in their own order, other ones under another seed or name; all of them with --long.

    always  picks cases that are tried in every run, beside those drawn
    """
    every = list(cases)
    if LONG:
        return every
    fixed = {number for number, case in enumerate(every) if always is not None and always(case)}
    rest = [number for number in range(len(every)) if number not in fixed]
    fixed.update(random.Random(f"{SEED} {name}").sample(rest, min(count, len(rest))))
    return [every[number] for number in sorted(fixed)]


def shuffled(cases: Iterable[T], name: str) -> list[T]:
    """All cases, in an order that the seed decides."""
    every = list(cases)
    return random.Random(f"{SEED} {name}").sample(every, len(every))


class NotComparedError(Exception):
    """A case has nothing to compare: what it needs cannot be written, or is refused."""


def each(cases: Iterable[T], check: Callable[[T], Any], name: Callable[[T], str] = str, enough: int = 0) -> None:
    """Check every case; fail with the name and message of each that fails, or if none was compared; skip if some of those are skipped.

    enough  after how many that were compared the others are left out, without --long; 0 for none
    """
    failed: list[tuple[str, BaseException]] = []
    skipped: list[BaseException] = []
    not_compared: list[str] = []
    number = 0
    for case in cases:
        if enough and not LONG and number - len(skipped) - len(not_compared) == enough:
            break
        number += 1
        try:
            check(case)
        except pytest.skip.Exception as reason:
            skipped.append(reason)
        except NotComparedError as reason:
            not_compared.append(f"{name(case)}: {reason}")
        except (Exception, pytest.fail.Exception) as error:
            failed.append((name(case), error))
    assert number, "there is no case"
    if failed:
        trace = "".join(traceback.format_exception(failed[0][1]))
        lines = [f"{case}: {type(error).__name__}: {error}".strip() for case, error in failed]
        pytest.fail(f"{len(failed)} of {number} cases fail\n" + "\n".join(lines) + f"\n\nThe first:\n{trace}", pytrace=False)
    if skipped and len(skipped) + len(not_compared) == number:
        raise skipped[0]  # those that what is absent would have run may be the ones that are compared
    if len(not_compared) == number:
        pytest.fail("no case was compared\n" + "\n".join(not_compared), pytrace=False)


def looped(count: int = 0, /, **values: Iterable[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Make one test of all combinations of some arguments' values; each has a folder `tmp_path` of its own.

    count  how many combinations a run draws; 0 for all
    """

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(test)
        others = [parameter for name, parameter in signature.parameters.items() if name not in values]

        @functools.wraps(test)
        def run(**fixtures: Any) -> None:
            every = list(itertools.product(*values.values()))
            folders = itertools.count()

            def check(case: tuple[Any, ...]) -> None:
                arguments = dict(fixtures)
                if "tmp_path" in fixtures:
                    arguments["tmp_path"] = fixtures["tmp_path"] / str(next(folders))
                    arguments["tmp_path"].mkdir()
                test(**arguments, **dict(zip(values, case, strict=True)))

            texts = " ".join(str(value) for name, value in fixtures.items() if isinstance(value, str))
            chosen = drawn(every, count, f"{test.__module__} {test.__name__} {texts}") if count else every
            each(chosen, check, lambda case: ", ".join(map(str, case)))

        run.__signature__ = signature.replace(parameters=others)  # type: ignore[attr-defined]
        return run

    return decorate
