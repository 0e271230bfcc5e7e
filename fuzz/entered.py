"""Which reader functions no run enters: `python -m fuzz.entered --executions 2000` lists them, so that a kind can be made that does."""

from __future__ import annotations

import argparse
import ast
import random
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType

from fuzz import seeds
from fuzz.execution import Limits, changed, execute, put

ROOT = Path(__file__).parents[1]
READERS = ("rnnconvert/containers", "rnnconvert/files", "formats")
"""Where what reads files is. Of the rooms, executors run in processes of their own, and writers are attacked by fuzz.writes."""
NO_READERS = ("run", "write", "export_", "scaffold_to", "optimizer", "live", "module", "layouts", "commands", "proof")
"""How the names of modules begin that read nothing."""


def functions() -> Iterator[tuple[str, str, int]]:
    """Yield each function of the readers: its module's path, its name, and the line of its definition."""
    for folder in READERS:
        for file in sorted((ROOT / folder).rglob("*.py")):
            if not file.name.startswith(NO_READERS):
                for node in ast.walk(ast.parse(file.read_text("utf-8"))):
                    if isinstance(node, ast.FunctionDef):
                        first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
                        yield str(file.relative_to(ROOT)), node.name, first


def entered(executions: int, kinds: Sequence[str], seed: int) -> set[tuple[str, int]]:
    """Return what that many executions enter: modules' paths, and the first lines of functions."""
    seen: set[tuple[str, int]] = set()

    def hear(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            seen.add((frame.f_code.co_filename, frame.f_code.co_firstlineno))

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for part in ("seeds", "out"):
            (folder / part).mkdir()
        files = seeds.build(folder / "seeds", corpus=False, kinds=kinds)
        rng = random.Random(seed)
        for number in range(executions):
            chosen = files[number % len(files)]
            path = put(folder / "case", chosen.files if number < len(files) else changed(chosen, rng), chosen.entry)
            sys.setprofile(hear)
            try:
                execute(path, random.Random(rng.random()), chosen.format, folder / "out", Limits(20))
            finally:
                sys.setprofile(None)
    return {(str(Path(file).resolve()), line) for file, line in seen}


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m fuzz.entered", description=__doc__)
    parser.add_argument("--executions", type=int, default=2000, help="how many files are read")
    parser.add_argument("--kinds", nargs="*", default=[], help="only these kinds")
    parser.add_argument("--seed", type=int, default=0, help="draws the changes")
    arguments = parser.parse_args(words)
    seen = entered(arguments.executions, arguments.kinds, arguments.seed)
    every = list(functions())
    missed = [(file, name) for file, name, line in every if (str((ROOT / file).resolve()), line) not in seen]
    for file, name in missed:
        print(f"{file}: {name}")
    counts = f"{len(missed)} of {len(every)} functions of readers"
    print(f"{counts} were entered by none of {arguments.executions} executions, --seed {arguments.seed}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
