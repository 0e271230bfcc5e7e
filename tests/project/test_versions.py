"""The table of frameworks' versions in docs/wild.md is what the golden files record."""

from __future__ import annotations

from tests import ROOT, versions


def test_the_page_lists_the_versions_of_the_golden_files() -> None:
    page = (ROOT / "docs" / "wild.md").read_text(encoding="utf-8")
    assert "\n".join(versions.lines()) in page, "put into docs/wild.md what `python -m tests.versions` prints"
    assert len(versions.table()["Keras"]) > 20
