"""JSON in files that nobody vouches for takes no more memory than was charged for it, and no reader parses it otherwise."""

from __future__ import annotations

import ast
import json
import random
import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import pytest

import rnnconvert as rc
from rnnconvert.containers import json_text
from rnnconvert.containers.reading import Reading, reading
from rnnconvert.core.errors import BudgetError
from tests import ROOT
from tests.files.test_bad_input import keras_archive
from tests.helpers import drawn

OURS = {
    "rnnconvert/batch/journal.py": "line by line what a batch wrote for itself",
    "rnnconvert/batch/manifest.py": "the caller's own list",
    "rnnconvert/containers/apart.py": "what our other process answers",
    "rnnconvert/containers/json_file.py": "it counts lists and texts itself, and is bounded in bytes",
    "rnnconvert/containers/json_text.py": "the place itself",
    "rnnconvert/identification/naming.py": "names that were made a line before",
    "rnnconvert/language/outline.py": "an outline that the caller hands in",
    "rnnconvert/reports/schema.py": "a file of the package",
    "rnnconvert/running/registry.py": "the caller's own list of executors",
    "rnnconvert/running/scripts.py": "what our other process answers",
    "formats/keras/upgrade/config.py": "a table of the package",
}
"""Modules that parse JSON of another kind, each with the reason that its size needs no bound."""


def parses(path: Path) -> bool:
    source = path.read_text(encoding="utf-8")
    return "json" in source and any(
        isinstance(node, ast.Attribute) and node.attr in ("loads", "load") and isinstance(node.value, ast.Name) and node.value.id == "json"
        for node in ast.walk(ast.parse(source))
    )


def test_json_of_files_is_parsed_in_one_place() -> None:
    every = [path for folder in ("rnnconvert", "formats") for path in sorted((ROOT / folder).rglob("*.py"))]
    sources = [path for path in every if not any(parent.is_symlink() for parent in path.parents if ROOT in parent.parents)]
    parsers = {path.relative_to(ROOT).as_posix() for path in sources if parses(path)}
    # Executors run in processes of their own, which are bounded, and import nothing of ours.
    assert {file for file in parsers if not Path(file).name.startswith("run") and "running/child" not in file} == OURS.keys()


def value(rng: random.Random, depth: int) -> Any:
    kind = rng.randrange(8 if depth else 4)
    if kind == 0:
        return rng.choice([None, True, False, 0, -1])
    if kind == 1:
        return rng.choice([rng.random(), 10 ** rng.randrange(30), 1e300])
    if kind in (2, 3):
        return "".join(rng.choices('ab"\\,:[{é漢😀', k=rng.choice([0, 1, 5, 300])))
    items = [value(rng, depth - 1) for _ in range(rng.choice([0, 1, 2, 9]))]
    return items if kind < 6 else {f"k{number}{rng.random()}": item for number, item in enumerate(items)}


@pytest.mark.parametrize("ascii", [True, False])
@pytest.mark.parametrize("as_bytes", [True, False])
def test_what_is_charged_covers_what_is_taken(ascii: bool, as_bytes: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    charged: list[int] = []
    monkeypatch.setattr(Reading, "memory", lambda self, size, path: charged.append(size))
    values: tuple[Any, ...] = ([], {}, {"": 0}, 0.5, "a", "é漢😀" * 3)
    plain: list[Any] = [[document] * 5000 for document in values]
    plain += [["a" * 9999 + "😀"], {"a" * 9999 + "é": 0}]
    for seed in drawn.drawn(range(400), 20, "json"):
        plain.append([value(random.Random(seed), 4) for _ in range(60)])
    for document in plain:
        for separators in ((",", ":"), (" , ", " : ")):
            written = json.dumps(document, ensure_ascii=ascii, separators=separators)
            text = written.encode() if as_bytes else written
            charged.clear()
            tracemalloc.start()
            try:
                parsed = json_text.loads(text, "a")
                peak, _ = tracemalloc.get_traced_memory()
            finally:
                tracemalloc.stop()
            assert parsed == document
            assert peak <= charged[0], (written[:80], peak, charged)


def test_a_text_of_empty_lists_in_a_small_archive_is_refused(tmp_path: Path) -> None:
    path = keras_archive(tmp_path / "a.keras", {"config.json": b'{"a": [' + b"[]," * 3_000_000 + b"1]}"}, zipfile.ZIP_DEFLATED)
    assert path.stat().st_size < 1 << 17
    with pytest.raises(BudgetError, match="MiB of memory"):
        rc.load(path)


def test_what_is_nested_too_deep_is_no_json() -> None:
    with reading(), pytest.raises(ValueError, match="too deep"):
        json_text.loads("[" * 200_000, "a")
