"""The three top folders are one package, whichever tool looks."""

from __future__ import annotations

import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
tomllib = pytest.importorskip("tomllib", reason="the standard library reads TOML from Python 3.11 on")
SETUPTOOLS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]
LINKS = ("formats", "cli")


def folder(package: str) -> pathlib.Path:
    """Where the map of pyproject.toml says that a package's files are."""
    mapped = SETUPTOOLS["package-dir"].get(package)
    if mapped is not None:
        return ROOT / mapped
    parent, _, name = package.rpartition(".")
    return folder(parent) / name


def packages() -> set[str]:
    """Every folder with code, as the package that it is."""
    found = set()
    for top in ("rnnconvert", *LINKS):
        for file in (ROOT / top).rglob("*.py"):
            parts = file.parent.relative_to(ROOT).parts
            found.add(".".join(parts if parts[0] == "rnnconvert" else ("rnnconvert", *parts)))
    return found


def test_every_folder_with_code_is_packaged() -> None:
    assert packages() == set(SETUPTOOLS["packages"])


@pytest.mark.parametrize("package", SETUPTOOLS["packages"])
def test_a_packages_folder_is_a_package(package: str) -> None:
    assert (folder(package) / "__init__.py").is_file()


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
