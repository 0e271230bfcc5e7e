"""No variable, parameter, function, class or attribute has a name that does not say what the thing is."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import ROOT

WORDS = {
    "one", "found", "made", "said", "told", "given", "own", "known", "met", "kept", "whole", "usual", "shown", "taken", "beside",
}  # fmt: skip

STAY = {
    # documented keywords and attributes
    ("formats/keras/live.py", "own"),
    ("formats/pytorch/live.py", "own"),
    ("rnnconvert/core/cells.py", "known"),
    ("rnnconvert/files/checkpoint.py", "beside"),
    ("rnnconvert/models/report.py", "kept"),
    ("rnnconvert/verification/plan.py", "given"),
    # keys of documents and of files that are stored
    ("rnnconvert/batch/journal.py", "beside"),
    ("rnnconvert/comparison/difference.py", "found"),
    ("rnnconvert/judging/comparison.py", "found"),
    ("rnnconvert/language/registry.py", "usual"),
    ("rnnconvert/verification/gradients.py", "found"),
    ("rnnconvert/verification/results.py", "whole"),
    ("rnnconvert/verification/witness.py", "whole"),
    ("tests/verification/test_trust.py", "whole"),
    ("tests/verification/test_verdicts.py", "whole"),
}
"""Names that users write, or that files hold: they change with the format only."""


def bindings(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield the line and name of each binding: variables, parameters, functions, classes, attributes and imports as."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield node.lineno, name
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield node.lineno, name
            case ast.arg(arg=name):
                yield node.lineno, name
            case ast.alias(asname=str(name)):
                yield node.lineno, name
            case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)) | ast.MatchMapping(rest=str(name)):
                yield node.lineno, name
            case ast.ExceptHandler(name=str(name)):
                yield node.lineno, name


def vague(source: str) -> list[tuple[int, str]]:
    """Return the bindings of a module whose name, underscores at its ends aside, is one of the words."""
    return [(line, name) for line, name in bindings(ast.parse(source)) if name.strip("_").lower() in WORDS]


def units() -> dict[str, list[Path]]:
    """Return the modules of each room, of each folder of the engine, and of each other folder, by the folder's path."""
    result: dict[str, list[Path]] = {}
    for top in ("formats", "rnnconvert", "cli", "fuzz", "docs", "examples", "benchmarks", "tests"):
        for path in sorted((ROOT / top).rglob("*.py")):
            parts = path.relative_to(ROOT).parts
            # The links to other folders, and programs that wrote stored files long ago.
            if parts[:2] not in (("rnnconvert", "formats"), ("rnnconvert", "cli"), ("tests", "golden")):
                result.setdefault("/".join(parts[: 1 + (top in ("formats", "rnnconvert"))]), []).append(path)
    return result


UNITS = units()


@pytest.mark.parametrize("unit", UNITS)
def test_names_say_what_a_thing_is(unit: str) -> None:
    places = [
        f"{path.relative_to(ROOT)}:{line}: {name}"
        for path in UNITS[unit]
        for line, name in vague(path.read_text(encoding="utf-8"))
        if (path.relative_to(ROOT).as_posix(), name) not in STAY
    ]
    assert not places, "name the thing (layer, node, array, statement, setting):\n" + "\n".join(places)


def unread(source: str) -> list[str]:
    """Return the private names at the top of a module that nothing in it reads: nothing else may."""
    tree = ast.parse(source)
    read = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    targets = {
        node.id
        for statement in tree.body
        if isinstance(statement, ast.Assign | ast.AnnAssign)
        for node in ast.walk(statement)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }
    defined = {statement.name for statement in tree.body if isinstance(statement, ast.FunctionDef | ast.ClassDef)}
    return sorted(
        name for name in targets | defined if name.startswith("_") and not name.startswith("__") and name != "_" and name not in read
    )


@pytest.mark.parametrize("unit", UNITS)
def test_every_private_name_is_read(unit: str) -> None:
    # pytest reads the fixtures of a conftest.
    modules = [path for path in UNITS[unit] if path.name != "conftest.py"]
    places = [f"{path.relative_to(ROOT)}: {name}" for path in modules for name in unread(path.read_text(encoding="utf-8"))]
    assert not places, "delete what nothing reads:\n" + "\n".join(places)


@pytest.mark.parametrize("source", ["_A = 1", "_A: int = 1", "def _a(): pass", "class _A: pass", "_A, b = 1, 2\nprint(b)"])
def test_each_kind_of_unread_name_is_seen(source: str) -> None:
    assert len(unread(source)) == 1


@pytest.mark.parametrize(("module", "name"), sorted(STAY))
def test_only_names_that_exist_are_let_stay(module: str, name: str) -> None:
    assert name in {word for _, word in vague((ROOT / module).read_text(encoding="utf-8"))}


@pytest.mark.parametrize("source", [
    "one = 1", "def _kept(): pass", "def read(given): pass", "x.own = 1", "[met for met in y]", "class Whole: pass",
    "for _, shown in y: pass", "with y as taken: pass", "match y:\n case [*found]: pass", "if (made := y): pass", "lambda said: 1",
    "import y as known",
])  # fmt: skip
def test_each_kind_of_binding_is_seen(source: str) -> None:
    assert len(vague(source)) == 1
