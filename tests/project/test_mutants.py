"""The faults that `tests/mutants.py` plants: their places exist, so that a run of it does not end before it begins."""

from __future__ import annotations

from tests import ROOT
from tests.mutants import GROUPS, PLANTED, every, planted


def test_every_planted_fault_has_its_place() -> None:
    assert len(list(planted())) == len(PLANTED)
    assert {group for group, *_ in PLANTED} <= set(GROUPS)


def test_every_group_has_faults_and_tests() -> None:
    assert all(every().values())
    assert not [name for group in GROUPS.values() for name in group.tests if not (ROOT / f"tests/{name}.py").is_file()]
