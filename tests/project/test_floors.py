"""Imports go down only, one package a floor; the engine names no framework's room; nothing heavy is imported early."""

from __future__ import annotations

import ast
import pathlib
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator

import pytest

from tests import ROOT
from tests.helpers.drawn import looped

FLOORS = (
    ("core",),
    ("language", "containers"),
    ("rewrites", "running", "reports", "graphs"),
    ("judging",),
    ("files",),
    ("models", "recognition"),
    ("comparison", "identification", "scaffolding"),
    ("diagnosis",),
    ("verification", "training", "views"),
    ("batch",),
    ("formats",),
    ("", "pytest_plugin", "modules"),
    ("cli",),
    ("__main__",),
)
"""The packages from the ground up; those of one floor do not know one another."""
FLOOR = {name: number for number, names in enumerate(FLOORS) for name in names}
FACE = ""
FILES = sorted(path for top in ("rnnconvert", "formats", "cli") for path in (ROOT / top).rglob("*.py"))
# rnnconvert/formats and rnnconvert/cli are links to the top folders, where their files are met already.
FILES = [path for path in FILES if path.relative_to(ROOT).parts[:2] not in {("rnnconvert", "formats"), ("rnnconvert", "cli")}]
DATA = ("rnnconvert.language.layout.", "rnnconvert.language.surroundings.", "rnnconvert.core.cells.")
"""What layouts may import: they are data."""
NEIGHBOURS = {
    "formats.keras.saved_calls": "rnnconvert.formats.tensorflow1.lowering",  # a SavedModel's functions are TensorFlow's
    "formats.keras.describe.served": "rnnconvert.formats.tensorflow1",
    "formats.pytorch.module_onnx": "rnnconvert.formats.onnx",  # our torch modules are written as ONNX files
    "formats.tfjs.files": "rnnconvert.formats.keras.model",  # its models are those of Keras, stored otherwise
    "formats.tfjs.export_layers": "rnnconvert.formats.keras.scaffold",  # and its layers, by the same table
    "formats.tfjs.export_config": "rnnconvert.formats.keras.scaffold",
    "formats.tfjs.export_model": "rnnconvert.formats.keras.scaffold",
    "formats.tfjs.export_nodes": "rnnconvert.formats.tflite",  # its graphs are made of TFLite's operators, by the same rules
    "formats.tfjs.export_operations": "rnnconvert.formats.tflite",
}
"""The rooms that write, or read, another framework's files."""
SHARED = "running.sequences"
"""What executors may import: it shapes requests and answers, and knows no weights."""


def module_of(path: pathlib.Path) -> str:
    """Dotted name of a file, without "rnnconvert": "" for the package itself, "formats.keras.files", "cli.main"."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(part for part in parts[parts[0] == "rnnconvert" :] if part != "__init__")


def modules_named(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Level and dotted name of everything that a file imports; of `from a import b` it is a.b."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((0, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ((node.level, f"{node.module or ''}.{alias.name}") for alias in node.names)


def is_data(module: str) -> bool:
    """Whether a module is a framework's layouts."""
    words = module.split(".")
    return words[0] == "formats" and (len(words) == 2 or words[-1].startswith("layouts"))


def is_executor(module: str) -> bool:
    """Whether a module runs under any Python, with nothing of ours: executors, what starts them there, and what they share."""
    words = module.split(".")
    return module in ("running.child", "running.witness", SHARED) or (words[0] == "formats" and words[-1].partition("_")[0] == "run")


def faults(module: str, code: str) -> list[str]:
    """What a module's imports do that its floor does not allow."""
    package, _, inside = module.partition(".")
    floor = FLOOR.get(package)
    if floor is None:
        return [f"{module} stands on no floor: name its package in FLOORS"]
    wrong = []
    for level, name in modules_named(ast.parse(code)):
        top, _, rest = name.partition(".")
        head = rest.partition(".")[0]
        if level and not (level == 1 and is_executor(module) and name.startswith("run_")):
            wrong.append("a relative import: the file has two paths, give it one name")
        elif top in ("formats", "cli"):
            wrong.append(f"{name}: the package's name is rnnconvert.{top}")
        elif is_data(module) and top != "__future__" and not name.startswith(DATA):
            wrong.append(f"{name}: layouts are data, they import only {', '.join(prefix[:-1] for prefix in DATA)}")
        elif is_executor(module) and name.startswith(f"rnnconvert.{SHARED}.") and module != SHARED:
            continue
        elif is_executor(module) and top == "rnnconvert":
            wrong.append(f"{name}: an executor imports its framework and nothing of ours, so that any Python can run it")
        elif top != "rnnconvert" or (head == package and package != "formats"):
            continue
        elif head == package == "formats":
            room = inside.partition(".")[0]
            neighbours = NEIGHBOURS.get(module, f"rnnconvert.formats.{room}")
            if not name.startswith((f"rnnconvert.formats.{room}.", neighbours)):
                wrong.append(f"{name}: another framework's room; what two share belongs in the engine")
        elif FLOOR.get(head, FLOOR[FACE]) >= floor and not _face_of(module, head):
            wrong.append(f"{head or top} stands on a higher floor, or on the same")
    return wrong


def _face_of(module: str, head: str) -> bool:
    """Whether an import is the package's version or its public names, which the top floors may use."""
    return head not in FLOOR and module.partition(".")[0] in ("verification", "cli", "pytest_plugin", "")


@looped(path=FILES)
def test_imports_go_down(path: pathlib.Path) -> None:
    assert faults(module_of(path), path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    ("module", "code"),
    [
        ("core.weights", "from rnnconvert.language import layout"),
        ("language.layout", "from rnnconvert.containers.npy import read"),
        ("containers.npy", "from rnnconvert.language.registry import layouts"),
        ("language.packing", "import rnnconvert.files.convert"),
        ("files.finder", "from rnnconvert.formats.onnx import files"),
        ("diagnosis.search", "from rnnconvert.verification.collect import Plan"),
        ("formats.onnx.layouts", "import numpy as np"),
        ("formats.arraymancer", "from rnnconvert.language.packing import pack"),
        ("formats.mxnet.files", "from rnnconvert.formats.cudnn.files import read"),
        ("formats.pytorch.run", "def run():\n    from rnnconvert.language.packing import pack"),
        ("formats.pytorch.run", "from .module import Unit"),
        ("running.child", "from rnnconvert.core.errors import UsageError"),
        ("running.sequences", "from rnnconvert.core.weights import Recurrent"),
        ("running.sequences", "from rnnconvert.running.sequences import outputs"),
        ("files.convert", "from rnnconvert.cli.main import main"),
        ("files.convert", "import rnnconvert"),
        ("language.layout", "from .cells import Cell"),
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
    script = f"import sys; before = set(sys.modules); {code}; print(*{{name.partition('.')[0] for name in set(sys.modules) - before}})"
    out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=ROOT)
    return set(out.stdout.split()) - set(sys.stdlib_module_names) - {"__mp_main__"}


def test_import_is_light() -> None:
    assert foreign("import rnnconvert.language.registry as registry; registry.layouts()") <= LIGHT


def test_a_heavy_import_is_caught() -> None:
    assert not foreign("import rnnconvert.language.registry; import pytest") <= LIGHT


def test_the_name_of_a_class_means_one_thing() -> None:
    """No two classes of the product have one name, an underscore before it aside; the kinds of nodes are read as `kinds.Dense`."""
    texts = {path: path.read_text() for path in FILES}
    kinds = next(path for path in FILES if path.parts[-2:] == ("scaffolding", "kinds.py"))
    assert [path for path, text in texts.items() if "scaffolding.kinds import" in text] == []
    trees = [ast.parse(text) for path, text in texts.items() if path != kinds]
    names = [node.name.strip("_") for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    assert [name for name, count in Counter(names).items() if count > 1] == []
