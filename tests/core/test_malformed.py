"""What code raises over a malformed file is told from a fault of ours, in one place."""

from __future__ import annotations

import ast
import contextlib
import json
import types
import unittest.mock
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import rnnconvert as rc
from fuzz import stated
from fuzz.execution import put
from rnnconvert.cli.main import main
from rnnconvert.core import arrays, weights
from rnnconvert.core import malformed as module
from rnnconvert.core.cells import Cell
from rnnconvert.core.errors import RefusedError, UnreadableError, UsageError
from rnnconvert.core.malformed import Entries, Fields, malformed, passes, strictly
from rnnconvert.graphs.program import fold, fold_call
from rnnconvert.language import outline
from tests import ROOT
from tests.helpers.drawn import drawn
from tests.project.test_floors import FILES


def damaged(what: str) -> UnreadableError:
    return UnreadableError("model.json", f"it is damaged: {what}")


STATED: Any = {"layers": [None, "text", 3, {"units": "many"}], "none": None}

OF_A_FILE = {
    "a missing key": lambda: STATED["absent"],
    "a missing place": lambda: STATED["layers"][9],
    "a text in place of a dictionary": lambda: STATED["layers"][1]["units"],
    "nothing in place of a dictionary": lambda: STATED["none"]["units"],
    "a number in place of a text": lambda: STATED["layers"][2].lower(),
    "nothing in place of a text": lambda: STATED["none"].lower(),
    "a text in place of a number": lambda: int(STATED["layers"][3]["units"]),
    "a number in place of a list": lambda: len(STATED["layers"][2]),
    "values of unlike types": lambda: STATED["layers"][1] + STATED["layers"][2],
    "a division by zero": lambda: 1 / (STATED["layers"][2] - 3),
}

OF_OURS = {
    "an attribute that our class lacks": lambda: Cell("lstm").no_such_attribute,  # type: ignore[attr-defined]
    "a name that our module lacks": lambda: module.no_such_function,  # type: ignore[attr-defined]
    "a call without an argument": lambda: damaged(),  # type: ignore[call-arg]
    "a call with an unknown keyword": lambda: damaged("", why=""),  # type: ignore[call-arg]
    "a call with too many arguments": lambda: damaged("", "", ""),  # type: ignore[call-arg]
    "a name that does not exist": lambda: no_such_name,  # noqa: F821
}


@pytest.mark.parametrize("name", OF_A_FILE)
def test_values_of_another_type_are_damage_of_the_file(name: str) -> None:
    with pytest.raises(UnreadableError, match=r"it is damaged: .*Error") as caught, malformed(damaged):
        OF_A_FILE[name]()
    assert caught.value.__cause__ is not None, "--debug shows where it was raised"


@pytest.mark.parametrize("name", OF_OURS)
def test_a_fault_of_ours_is_not_damage_of_the_file(name: str) -> None:
    with pytest.raises((AttributeError, TypeError, NameError)) as caught, malformed(damaged):
        OF_OURS[name]()
    assert not isinstance(caught.value, rc.RnnConvertError)


@pytest.mark.parametrize("error", [UsageError("text"), RefusedError("a", "b", "c"), UnreadableError("a", "b")])
def test_errors_of_ours_pass_as_they_are(error: Exception) -> None:
    with pytest.raises(type(error)) as caught, malformed(damaged):
        raise error
    assert caught.value is error


ENGINE = {
    "a table that lacks a name": lambda: weights.gates_of("no such cell", "input"),
    "nothing in place of an array": lambda: arrays.nbytes(None),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("name", ENGINE)
def test_what_the_engine_raises_is_a_fault_and_no_damage(name: str) -> None:
    """A parser's block may call the engine: an error that the engine itself raises is not the file's."""
    with pytest.raises((KeyError, IndexError, TypeError, AttributeError)) as caught, malformed(damaged):
        ENGINE[name]()
    assert not isinstance(caught.value, rc.RnnConvertError)


def test_modules_of_a_parser_are_named() -> None:
    with pytest.raises(UnreadableError), malformed(damaged, "rnnconvert.core.weights"):
        ENGINE["a table that lacks a name"]()


@pytest.mark.parametrize(("values", "key"), [(Fields(units=3), "unit"), (Entries("ab"), 2)])
def test_what_a_file_does_not_state_is_damage_wherever_it_is_asked_for(values: Any, key: Any) -> None:
    with pytest.raises(UnreadableError), malformed(damaged):
        values[key]
    with pytest.raises((KeyError, IndexError)) as caught:
        values[key]
    with strictly():
        assert not passes(caught.value)


def test_a_fault_is_left_out_quietly_but_where_it_must_not_hide() -> None:
    """An operation that cannot be computed leaves a layer unread; in tests and under --debug a fault in computing it is raised."""
    call = fold_call.FoldedCall("Transpose", [None, np.ones(2)], Fields(), 1, 17, lambda size: None)
    with unittest.mock.patch.dict(fold._OPERATORS, {"Transpose": lambda call: ENGINE["a table that lacks a name"]()}):
        with module_flag(False):
            assert fold.fold(call) is None
        with strictly(), pytest.raises(KeyError, match="no such cell"):
            fold.fold(call)


@contextlib.contextmanager
def module_flag(value: bool) -> Iterator[None]:
    token = module._strict.set(value)
    yield
    module._strict.reset(token)


def test_debug_is_strict(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[bool] = []

    def fails(*_: Any, **__: Any) -> None:
        seen.append(module._strict.get())
        raise ZeroDivisionError

    monkeypatch.setattr("rnnconvert.models.inspection.inspect_with", fails)
    path = tmp_path / "x.npz"
    np.savez(path, a=np.ones(3))
    with module_flag(False):
        for words in ([], ["--debug"]):
            CliRunner().invoke(main, [*words, "inspect", str(path)])
    assert seen == [False, True]


def test_a_fault_within_a_reader_ends_as_one(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader that is planted a fault does not call the file damaged; a damaged file is called so."""
    from rnnconvert.formats.dl4j import config

    monkeypatch.setattr(config, "_layers", lambda path, settings: Cell("lstm").no_such_attribute)  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match="no_such_attribute"):
        config.network(np.frombuffer(b"{}", np.uint8), "model.zip")
    monkeypatch.undo()
    for text in (b"[]", b"{}", b'{"confs": 3}', b'{"vertices": [3]}', b'{"confs": [{"layer": null}]}'):
        with pytest.raises(UnreadableError):
            config.network(np.frombuffer(text, np.uint8), "model.zip")


def names(node: ast.expr | None) -> set[str]:
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name)} if node is not None else set()


OVER_VALUES = {"AttributeError", "IndexError", "KeyError", "TypeError", "LookupError", "MALFORMED"}
MADE_BY_NAME = ("journal", "registry", "xml_file")


def test_nothing_else_reports_these_faults_as_damage() -> None:
    """No other handler of what Python raises over values raises an error about a file.

    Two files that rnnconvert writes itself are made into dataclasses by their entries' names: a wrong name is the file's. An encoding
    that does not exist is a LookupError of the library's.
    """
    places = []
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ExceptHandler) and names(node.type) & {
                "AttributeError",
                "IndexError",
                "KeyError",
                "TypeError",
                "LookupError",
                "MALFORMED",
            }:
                raised = [part for part in ast.walk(node) if isinstance(part, ast.Raise) and "UnreadableError" in names(part.exc)]
                if (
                    raised
                    and path.stem not in ("journal", "registry", "xml_file")
                    and "passes" not in {name for part in node.body for name in names_of(part)}
                ):
                    places.append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert not places, "use rnnconvert.core.malformed"


def names_of(node: ast.AST) -> set[str]:
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}


def test_the_words_name_the_kind_of_error() -> None:
    assert module.in_words(KeyError("units")) == "KeyError: 'units'"
    assert isinstance(module, types.ModuleType)


def without(tree: Any) -> Iterator[Any]:
    """Yield a tree with one of its values left out, or a value of another type in its place."""
    if isinstance(tree, dict):
        for key, value in tree.items():
            rest = {name: other for name, other in tree.items() if name != key}
            yield rest
            yield from ({**tree, key: other} for other in (*ODD, *without(value)))
    elif isinstance(tree, list):
        for place, value in enumerate(tree[: stated.LONGEST]):
            before, after = tree[:place], tree[place + 1 :]
            yield from (
                [*before, *after],
                *([*before, odd, *after] for odd in ODD),
                *([*before, changed, *after] for changed in without(value)),
            )


ODD: tuple[Any, ...] = (None, 7, "text", [], {}, [1], {"a": 1})
GOLDEN = ROOT / "tests" / "golden"
STATED_IN_JSON = {
    "paddle_inference/new_gru.json": "new_gru.json",
    "paddle_inference/new_cell.json": "new_cell.pdiparams",
    "mxnet/fused-symbol.json": "fused-0000.params",
    "mxnet/unpacked-symbol.json": "unpacked-0000.params",
}
"""Graphs in JSON, and the file of their model that is read."""


@pytest.mark.parametrize("name", STATED_IN_JSON)
def test_json_of_any_form_is_read_or_is_damage(name: str, tmp_path: Path) -> None:
    """Every value of a configuration left out or exchanged: the file is read, or an error of ours says what is wrong with it."""
    path, entry = GOLDEN / name, STATED_IN_JSON[name]
    files = {file.name: file.read_bytes() for file in path.parent.iterdir() if file.name in (path.name, entry)}
    for changed in drawn(without(json.loads(path.read_text())), 60, name):
        with contextlib.suppress(rc.RnnConvertError):
            rc.load(put(tmp_path / "case", files | {path.name: json.dumps(changed).encode()}, entry))


def test_a_configuration_in_an_archive_is_read_or_is_damage(tmp_path: Path) -> None:
    """The same for what Keras writes beside its weights, and for the commands that go through all of it."""
    with zipfile.ZipFile("examples/encoder.keras") as archive:
        contents = {name: archive.read(name) for name in archive.namelist()}
    path = tmp_path / "model.keras"
    for changed in drawn(without(json.loads(contents["config.json"])), 40, "keras"):
        with zipfile.ZipFile(path, "w") as archive:
            for name, data in contents.items():
                archive.writestr(name, json.dumps(changed) if name == "config.json" else data)
        for read in (rc.load, lambda path: rc.export_model(path, tmp_path / "model.onnx", dry_run=True)):
            with contextlib.suppress(rc.RnnConvertError):
                read(path)


@pytest.mark.parametrize("name", ["encoder", "decoder"])
def test_an_outline_of_any_form_is_read_or_refused(name: str) -> None:
    stack = rc.load(f"examples/{name}.keras").layers[name]
    for changed in without(json.loads(outline.to_text(stack))):
        with contextlib.suppress(UsageError):
            outline.from_text(json.dumps(changed))


def test_no_reader_asks_for_the_first_of_nothing_within_a_generator() -> None:
    """Python turns the StopIteration of `next` into a RuntimeError there, which nobody takes for damage: a file may state nothing."""

    def bare(node: ast.AST) -> bool:
        return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "next" and len(node.args) == 1

    places = [
        f"{path.relative_to(ROOT)}:{call.lineno}"
        for path in sorted((ROOT / "formats").rglob("*.py"))
        for generator in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(generator, ast.GeneratorExp)
        for call in ast.walk(generator)
        if isinstance(call, ast.Call) and bare(call) and ast.unparse(call.args[0]).startswith("iter(")
    ]
    assert not places, places
