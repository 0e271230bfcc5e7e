"""What code raises over a malformed file is told from a fault of ours, in one place."""

from __future__ import annotations

import ast
import types
from typing import Any

import pytest

import rnnconvert as rc
from rnnconvert.core import malformed as module
from rnnconvert.core.cells import Cell
from rnnconvert.core.errors import RefusedError, UnreadableError, UsageError
from rnnconvert.core.malformed import malformed
from tests.test_floors import FILES, ROOT


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
    "a name that does not exist": lambda: no_such_name,  # type: ignore[name-defined]  # noqa: F821
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


def test_a_fault_within_a_reader_ends_as_one(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader that is planted a fault does not call the file damaged; a damaged file is called so."""
    from rnnconvert.formats.dl4j import config

    monkeypatch.setattr(config, "_layers", lambda path, said: Cell("lstm").no_such_attribute)  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match="no_such_attribute"):
        config.parts(b"{}", "model.zip")  # type: ignore[arg-type]
    monkeypatch.undo()
    for text in (b"[]", b"{}", b'{"confs": 3}', b'{"vertices": [3]}', b'{"confs": [{"layer": null}]}'):
        with pytest.raises(UnreadableError):
            config.parts(text, "model.zip")  # type: ignore[arg-type]


def names(node: ast.expr | None) -> set[str]:
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name)} if node is not None else set()


def test_nothing_else_reports_these_faults_as_damage() -> None:
    """No other handler of AttributeError or IndexError raises an error about a file."""
    found = []
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ExceptHandler) and names(node.type) & {"AttributeError", "IndexError", "MALFORMED"}:
                raised = [part for part in ast.walk(node) if isinstance(part, ast.Raise) and "UnreadableError" in names(part.exc)]
                if raised and "passes" not in {name for part in node.body for name in names_of(part)}:
                    found.append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert not found, "use rnnconvert.core.malformed"


def names_of(node: ast.AST) -> set[str]:
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}


def test_the_words_name_the_kind_of_error() -> None:
    assert module.in_words(KeyError("units")) == "KeyError: 'units'"
    assert isinstance(module, types.ModuleType)
