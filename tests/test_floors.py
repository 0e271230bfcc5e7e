"""Imports go down only, and a framework is imported only where it is run."""

from __future__ import annotations

import ast
import pathlib
import subprocess
import sys
from collections.abc import Iterator

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
FLOORS = (
    {"errors", "arrays", "cells", "weights", "checkpoint", "options"},
    {"layout", "plain", "fitting", "packing", "rewrites", "represent"},
    {"formats", "containers", "executors", "registry", "layout_file"},
    {
        "adapters",
        "conversion",
        "detect",
        "live",
        "modules",
        "pairs",
        "transplant",
        "equivalence",
        "reports",
        "pytest_plugin",
        "",
    },
    {"cli"},
)
FLOOR = {name: number for number, names in enumerate(FLOORS) for name in names}
OURS = {"executors.reference", "executors.known", "executors.process"}
"""What stands beside the executors and is none."""
FILES = sorted(path for top in ("rnnconvert", "formats", "cli") for path in (ROOT / top).rglob("*.py"))
# rnnconvert/formats and rnnconvert/cli are links to the top folders, where their files are met already.
FILES = [
    path for path in FILES if path.relative_to(ROOT).parts[:2] not in {("rnnconvert", "formats"), ("rnnconvert", "cli")}
]


def module_of(path: pathlib.Path) -> str:
    """Dotted name of a file, without "rnnconvert": "" for the package itself, "formats.keras", "cli.main"."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(part for part in parts[parts[0] == "rnnconvert" :] if part != "__init__")


def modules_named(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Level and dotted name of everything that a file imports; of `from a import b` it is a.b."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((0, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ((node.level, f"{node.module or ''}.{alias.name}") for alias in node.names)


def faults(module: str, code: str) -> list[str]:
    """What a module's imports do that its floor does not allow."""
    own = FLOOR.get(module.partition(".")[0])
    if own is None:
        return [f"{module} stands on no floor: name it in FLOORS"]
    found = []
    for level, name in modules_named(ast.parse(code)):
        top, _, rest = name.partition(".")
        head = rest.partition(".")[0]
        if level:
            found.append("a relative import: the file has two paths, give it one name")
        elif top in ("formats", "cli"):
            found.append(f"{name}: the package's name is rnnconvert.{top}")
        elif top == "rnnconvert" and FLOOR.get(head, 3) > own:
            found.append(f"{head or top} stands on a higher floor")
        elif (
            module.startswith("formats.")
            and top != "__future__"
            and not name.startswith(
                ("rnnconvert.language.layout.", "rnnconvert.language.plain.", "rnnconvert.core.cells.")
            )
        ):
            found.append(
                f"{name}: a format is data, it imports rnnconvert.language.layout, rnnconvert.language.plain and rnnconvert.core.cells alone"
            )
        elif module.startswith("executors.") and module not in OURS and top == "rnnconvert":
            found.append(
                f"{name}: an executor imports its framework and nothing of ours, so that any Python can run it"
            )
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_go_down(path: pathlib.Path) -> None:
    assert faults(module_of(path), path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    ("module", "code"),
    [
        ("weights", "from rnnconvert import layout"),
        ("layout", "from rnnconvert.language.registry import layouts"),
        ("packing", "import rnnconvert.convert"),
        ("containers.onnx", "from rnnconvert.files.adapter import onnx"),
        ("formats.onnx", "import numpy as np"),
        ("formats.onnx", "from rnnconvert.language.packing import pack"),
        ("executors.torch", "def run():\n    from rnnconvert.language.packing import pack"),
        ("convert", "from rnnconvert.cli.main import main"),
        ("layout", "from .cells import Cell"),
        ("cli.main", "import formats.onnx"),
        ("shed", "import sys"),
    ],
)  # fmt: skip
def test_a_wrong_import_is_caught(module: str, code: str) -> None:
    assert len(faults(module, code)) == 1


LIGHT = {"rnnconvert", "numpy", "ml_dtypes"}
"""All that an import of the registry and of every layout may bring in."""


def foreign(code: str) -> set[str]:
    """Top-level packages, beyond the standard library, that are loaded after some code ran on its own."""
    # What a bare interpreter loads (a site's .pth hooks) is not ours.
    script = (
        f"import sys; before = set(sys.modules); {code}; "
        "print(*{name.partition('.')[0] for name in set(sys.modules) - before})"
    )
    out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=ROOT)
    return set(out.stdout.split()) - set(sys.stdlib_module_names) - {"__mp_main__"}


def test_import_is_light() -> None:
    assert foreign("import rnnconvert.language.registry as registry; registry.layouts()") <= LIGHT


def test_a_heavy_import_is_caught() -> None:
    assert not foreign("import rnnconvert.language.registry; import pytest") <= LIGHT
