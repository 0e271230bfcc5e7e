"""A run tries a part by its seed, everything with --long, and names every case that fails."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers import drawn
from tests.helpers.drawn import looped


def test_a_part_is_drawn_by_the_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drawn, "LONG", False)
    monkeypatch.setattr(drawn, "SEED", 7)
    some = drawn.drawn(range(100), 5, "a", lambda number: number == 50)
    assert len(some) == 6 and 50 in some and some == sorted(some)
    assert some == drawn.drawn(range(100), 5, "a", lambda number: number == 50)
    assert some != drawn.drawn(range(100), 5, "b", lambda number: number == 50)
    assert drawn.drawn(range(3), 5, "a") == [0, 1, 2]
    monkeypatch.setattr(drawn, "SEED", 8)
    assert some != drawn.drawn(range(100), 5, "a", lambda number: number == 50)
    monkeypatch.setattr(drawn, "LONG", True)
    assert drawn.drawn(range(100), 5, "a") == list(range(100))


def test_every_case_that_fails_is_named() -> None:
    def check(number: int) -> None:
        assert number != 2, "two is wrong"
        if number == 5:
            pytest.fail("five fails")

    with pytest.raises(pytest.fail.Exception) as caught:
        drawn.each(range(8), check)
    assert "2 of 8 cases fail" in str(caught.value)
    assert "2: AssertionError: two is wrong" in str(caught.value)
    assert "5: Failed: five fails" in str(caught.value)
    drawn.each(range(2), check)
    with pytest.raises(AssertionError, match="no case"):
        drawn.each([], check)


def test_a_case_that_is_skipped_is_none_that_passes() -> None:
    def check(number: int) -> None:
        if number < 2:
            pytest.skip("small")
        assert number < 3

    with pytest.raises(pytest.skip.Exception, match="small"):
        drawn.each(range(2), check)
    drawn.each(range(3), check)
    with pytest.raises(pytest.fail.Exception, match="1 of 4 cases"):
        drawn.each(range(4), check)

    def refused_or_absent(number: int) -> None:
        if number:
            raise drawn.NotComparedError("refused")
        pytest.skip("absent")

    with pytest.raises(pytest.skip.Exception, match="absent"):
        drawn.each(range(3), refused_or_absent)


def test_cases_of_which_none_is_compared_fail() -> None:
    def check(number: int) -> None:
        if number < 2:
            raise drawn.NotComparedError("small")

    with pytest.raises(pytest.fail.Exception, match="no case was compared\n0: small\n1: small"):
        drawn.each(range(2), check)
    drawn.each(range(3), check)
    assert drawn.shuffled(range(50), "a") == drawn.shuffled(range(50), "a") != drawn.shuffled(range(50), "b")


def test_as_many_as_are_enough_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def check(number: int) -> None:
        seen.append(number)
        if number % 2:
            raise drawn.NotComparedError("odd")

    monkeypatch.setattr(drawn, "LONG", False)
    drawn.each(range(9), check, enough=2)
    assert seen == [0, 1, 2]
    monkeypatch.setattr(drawn, "LONG", True)
    drawn.each(range(9), check, enough=2)
    assert seen[3:] == [*range(9)]


def test_a_looped_test_goes_through_all_combinations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[str, int, Path]] = []

    def test(word: str, number: int, tmp_path: Path) -> None:
        seen.append((word, number, tmp_path))
        assert tmp_path.is_dir() and number != 2

    with pytest.raises(pytest.fail.Exception, match=r"(?s)2 of 6 cases fail\na, 2: .*\nb, 2: "):
        looped(word=["a", "b"], number=range(3))(test)(tmp_path=tmp_path)
    assert len({folder for *_, folder in seen}) == len({combination[:2] for combination in seen}) == 6
    monkeypatch.setattr(drawn, "LONG", False)
    seen.clear()
    for folder in tmp_path.iterdir():
        folder.rmdir()
    looped(1, word=["a"], number=[0, 1])(test)(tmp_path=tmp_path)
    assert len(seen) == 1
