"""The tests of what a change touches: `python -m tests.touched origin/main | xargs python -m pytest -q --slow`.

Tests mirror the product, so a changed module's are those in the folder of its package or framework. A changed test is one itself,
and a change of what tests share (`tests/helpers`, `tests/literals`) is one of the modules that import it. The words that a change
takes out of the product's messages concern the modules that state them, wherever they lie: a refusal is worded in one package and
matched in the tests of others.
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
PRODUCT = ("rnnconvert", "formats", "cli")
WINDOW = 4
"""So many words in a row are a text that a test states, and not a turn of phrase."""


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


def windows(lines: Iterable[str]) -> set[tuple[str, ...]]:
    """Every few words in a row that literals of lines of code state; a hole of an f-string is the word `{}`."""
    literals = (text for line in lines for _, text in re.findall(r"""(["'])((?:(?!\1).)*)\1""", line))
    texts = (re.sub(r"\{[^{}]*\}", "{}", text).split() for text in literals)
    return {tuple(words[at : at + WINDOW]) for words in texts for at in range(len(words) - WINDOW + 1)}


def stating(removed: Iterable[str], added: Iterable[str]) -> set[PurePosixPath]:
    """The test modules that state words which removed lines of the product had and added lines no longer have."""
    gone = [window for window in windows(removed) - windows(added) if sum("{}" in word for word in window) < WINDOW - 2]
    if not gone:
        return set()
    texts = "|".join(r"\s+".join(re.escape(word).replace(r"\{\}", r"\S*") for word in window) for window in gone)
    modules = (ROOT / "tests").rglob("test_*.py")
    return {PurePosixPath(path.relative_to(ROOT).as_posix()) for path in modules if re.search(texts, path.read_text(encoding="utf-8"))}


def touched(paths: Iterable[str], removed: Iterable[str] = (), added: Iterable[str] = ()) -> list[str]:
    """The tests of several changed files and of the product's removed and added lines, sorted, without those in a folder that is named."""
    tests = {test for path in paths for test in tests_of(PurePosixPath(path)) if (ROOT / test).exists()} | stating(removed, added)
    return sorted(str(test) for test in tests if not tests & {*test.parents})


def main(words: Sequence[str]) -> int:
    if len(words) != 1:
        print(__doc__, file=sys.stderr)
        return 2
    changed = _difference(f"{words[0]}...HEAD", "--name-only")
    lines = _difference(f"{words[0]}...HEAD", "--unified=0", "--", *PRODUCT)
    print("\n".join(touched(changed, *([line[1:] for line in lines if line.startswith(sign)] for sign in "-+"))))
    return 0


def _difference(commits: str, *options: str) -> list[str]:
    command = ["git", "diff", commits, *options]
    return subprocess.run(command, cwd=Path(ROOT), check=True, capture_output=True, text=True).stdout.splitlines()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
