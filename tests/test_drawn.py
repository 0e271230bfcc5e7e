"""A run tries a part by its seed, everything with --long, and names every case that fails."""

from __future__ import annotations

import pytest

from tests import drawn


def test_a_part_is_drawn_by_the_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drawn, "LONG", False)
    monkeypatch.setattr(drawn, "SEED", 7)
    some = drawn.drawn(range(100), 5, "a", lambda number: number == 50)
    assert len(some) == 6 and 50 in some and some == sorted(some)
    assert some == drawn.drawn(range(100), 5, "a", lambda number: number == 50)
    assert some != drawn.drawn(range(100), 5, "b", lambda number: number == 50)
    assert drawn.drawn(range(3), 5, "a") == [0, 1, 2]
    seeds = drawn.seeds(4, 100, "a")
    assert len(seeds) == 4 and seeds == drawn.seeds(4, 100, "a")
    monkeypatch.setattr(drawn, "SEED", 8)
    assert some != drawn.drawn(range(100), 5, "a", lambda number: number == 50)
    assert seeds != drawn.seeds(4, 100, "a")
    monkeypatch.setattr(drawn, "LONG", True)
    assert drawn.drawn(range(100), 5, "a") == list(range(100))
    assert list(drawn.seeds(4, 100, "a")) == list(range(100))


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
