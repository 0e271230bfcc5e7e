"""What a run tries of cases that are too many for every run: a part drawn by a seed, or with --long all of them.

A test that goes through many small cases itself calls `each`, which names every case that fails.
"""

from __future__ import annotations

import random
import traceback
from collections.abc import Callable, Iterable, Sequence
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


def seeds(count: int, every: int, name: str) -> Sequence[int]:
    """Seeds for tests that draw their own case: `count` new ones in a run, the first `every` ones with --long."""
    return range(every) if LONG else sorted(random.Random(f"{SEED} {name}").sample(range(1 << 20), count))


def each(cases: Iterable[T], check: Callable[[T], Any], name: Callable[[T], str] = str) -> None:
    """Check every case, and fail with the name and the message of each that fails."""
    failed: list[tuple[str, BaseException]] = []
    number = 0
    for number, case in enumerate(cases, 1):  # noqa: B007
        try:
            check(case)
        except (Exception, pytest.fail.Exception) as error:
            failed.append((name(case), error))
    assert number, "there is no case"
    if failed:
        whole = "".join(traceback.format_exception(failed[0][1]))
        lines = [f"{case}: {type(error).__name__}: {error}".strip() for case, error in failed]
        pytest.fail(
            f"{len(failed)} of {number} cases fail\n" + "\n".join(lines) + f"\n\nThe first:\n{whole}", pytrace=False
        )
