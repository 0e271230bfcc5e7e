"""The three top folders are one package, whichever tool looks."""

from __future__ import annotations

import re
import runpy
from typing import Any

import pytest

from tests import ROOT

LINKS = ("formats", "cli")


def folders() -> set[str]:
    """Every folder with code, as the package that it is."""
    packages = set()
    for top in ("rnnconvert", *LINKS):
        for file in (ROOT / top).rglob("*.py"):
            parts = file.parent.relative_to(ROOT).parts
            packages.add(".".join(parts if parts[0] == "rnnconvert" else ("rnnconvert", *parts)))
    return packages


def test_every_folder_with_code_is_packaged(monkeypatch: pytest.MonkeyPatch) -> None:
    """setup.py finds folders with an `__init__.py`; one without would be left out of the wheel without a word."""
    monkeypatch.chdir(ROOT)
    words: dict[str, Any] = {}
    monkeypatch.setattr("setuptools.setup", words.update)
    runpy.run_path("setup.py")
    assert set(words["packages"]) == folders()


@pytest.mark.parametrize("top", LINKS)
def test_a_link_for_type_checkers_leads_to_the_folder(top: str) -> None:
    link = ROOT / "rnnconvert" / top
    if not link.is_symlink():
        pytest.skip("a checkout without symlinks: type checkers will not see this folder")
    assert link.resolve() == ROOT / top


def test_links_are_not_collected_twice() -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    skipped = re.search(r"norecursedirs = \[(.*)\]", text)
    assert skipped is not None
    assert {f'"rnnconvert/{top}"' for top in LINKS} <= set(re.split(r",\s*", skipped[1]))


def test_the_package_says_that_it_is_typed() -> None:
    assert (ROOT / "rnnconvert" / "py.typed").is_file()
