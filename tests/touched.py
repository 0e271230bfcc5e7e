"""The tests of what a change touches: `python -m tests.touched origin/main | xargs python -m pytest -q --slow`.

Tests mirror the product, so a changed module's are those in the folder of its package or framework. A changed test is one itself,
and a change of what tests share (`tests/helpers`, `tests/literals`) is one of the modules that import it.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path, PurePosixPath

from tests import ROOT

SHARED = ("helpers", "literals")
"""Folders of `tests` that hold no tests."""


def tests_of(path: PurePosixPath) -> set[PurePosixPath]:
    """The folders and modules of tests that a changed file concerns, from the repository's root; none where no folder mirrors it."""
    match path.parts:
        case ("tests", folder, *_) if folder in SHARED and path.suffix == ".py":
            return importers(".".join(path.with_suffix("").parts).removesuffix(".__init__"))
        case ("tests", *_, name) if name.startswith("test_") and name.endswith(".py"):
            return {path}
        case ("formats", *_, _):
            room = PurePosixPath("tests", "formats", path.parts[1].removesuffix(".py"))
            return {room if (ROOT / room).is_dir() else room.parent}
        case ("rnnconvert", package, _, *_) if (ROOT / "tests" / package).is_dir():
            return {PurePosixPath("tests", package)}
        case ("cli" | "fuzz" as top, *_):
            return {PurePosixPath("tests", top)}
        case ("docs" | "examples" | "README.md", *_):
            return {PurePosixPath("tests", "project")}
        case _:
            return set()


def importers(module: str) -> set[PurePosixPath]:
    """The test modules that import a module of `tests`."""
    package, _, name = module.rpartition(".")
    statement = re.compile(rf"from {re.escape(module)} import|from {re.escape(package)} import .*\b{re.escape(name)}\b")
    modules = (ROOT / "tests").rglob("test_*.py")
    return {PurePosixPath(path.relative_to(ROOT).as_posix()) for path in modules if statement.search(path.read_text(encoding="utf-8"))}


def touched(paths: Iterable[str]) -> list[str]:
    """The tests of several changed files, sorted, without those that lie in a folder that is named as a whole."""
    tests = {test for path in paths for test in tests_of(PurePosixPath(path)) if (ROOT / test).exists()}
    return sorted(str(test) for test in tests if not tests & {*test.parents})


def main(words: Sequence[str]) -> int:
    if len(words) != 1:
        print(__doc__, file=sys.stderr)
        return 2
    command = ["git", "diff", "--name-only", f"{words[0]}...HEAD"]
    changed = subprocess.run(command, cwd=Path(ROOT), check=True, capture_output=True, text=True).stdout.splitlines()
    print("\n".join(touched(changed)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
