"""Commands open a whole model's file more than once, and stop if it changes between two openings or after the last one."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rnnconvert as rc
from fuzz import whole
from rnnconvert.containers.reading import Identity, Reading
from tests.helpers.drawn import drawn, each

pytestmark = [pytest.mark.reads_apart, pytest.mark.filterwarnings("ignore:::")]
USES: dict[str, Callable[[Path, Path], object]] = {
    "convert": lambda path, out: rc.convert(path, out / "o.npz", target_format="haiku"),
    "export": lambda path, out: rc.export_model(path, out / "o.onnx"),
    "scaffold": lambda path, out: rc.scaffold(path, "pytorch", output=out / "o.py"),
    "upgrade": lambda path, out: rc.upgrade(path, out / "o.keras"),
    "transplant": lambda path, out: rc.transplant_file(path, path, out / f"o{path.suffix}"),
    "fuse": lambda path, out: rc.fuse(path, out / "o.onnx"),
}


class Touched:
    """Counts how often a file is opened, and gives it another time of writing after one of these."""

    def __init__(self, path: Path, after: int = 0) -> None:
        self.path, self.after, self.count = path, after, 0

    def hear(self, path: object) -> None:
        if os.path.realpath(str(path)) == os.path.realpath(self.path):
            self.count += 1
            if self.count == self.after:
                status = self.path.stat()
                os.utime(self.path, ns=(status.st_atime_ns, status.st_mtime_ns + 10**9))


def test_no_command_writes_of_a_source_that_changes_after_any_opening(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add = Reading.add
    touched = Touched(tmp_path)

    def hearing(self: Reading, path: object, identity: Identity, mapped: Any = None) -> None:
        add(self, path, identity, mapped)
        touched.hear(path)

    monkeypatch.setattr(Reading, "add", hearing)
    paths = [path for kind, path in whole.seeds(tmp_path, ()) if kind != "special" and path.is_file()]
    written: dict[str, int] = dict.fromkeys(USES, 0)

    def use(name: str, path: Path, after: int) -> str:
        """What came of a use: "" for a file that was written."""
        nonlocal touched
        touched, out = Touched(path, after), tmp_path / "out"
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir()
        try:
            USES[name](path, out)
        except rc.RnnConvertError as error:
            assert not [*out.iterdir()], "something is left"
            return str(error)
        return ""

    def check(case: tuple[str, Path]) -> None:
        name, path = case
        if use(name, path, 0):
            return
        written[name] += 1
        assert touched.count, "it is opened past every reading"
        for after in {1, touched.count // 2 or 1, touched.count}:
            assert "changed while it was read" in use(name, path, after), f"after opening {after}"

    few = [(name, path) for path in paths for name in USES]
    each(drawn(few, 40, "changing", always=lambda case: case[0] in ("upgrade", "fuse")), check, lambda case: f"{case[0]} {case[1].name}")
    assert written["upgrade"] and written["export"] and written["scaffold"], written
