"""What readers tell of a layer is data: the layer, the kind, and the text."""

from __future__ import annotations

import ast
import copy
import json
import pickle
from collections.abc import Iterator
from pathlib import Path

import numpy as np

import rnnconvert as rc
from fuzz import seeds
from fuzz.execution import put
from rnnconvert.core.notes import INTEGERS, LayerNote, each_text, layer_of
from tests import ROOT
from tests.helpers.drawn import drawn
from tests.project.test_floors import FILES


def test_a_note_reads_as_its_layer_and_its_text() -> None:
    note = LayerNote("encoder", "its clip is left out", INTEGERS)
    assert note == "encoder: its clip is left out" and (note.layer, note.text, note.kind) == (
        "encoder", "its clip is left out", INTEGERS,
    )  # fmt: skip
    assert LayerNote("", "text") == "text" and LayerNote("", "text", unnamed="the module") == "the module: text"
    assert note.of("decoder") == "decoder: its clip is left out" and note.of("decoder").kind == INTEGERS
    assert json.dumps([note]) == '["encoder: its clip is left out"]'


def test_a_note_survives_copies_and_processes() -> None:
    note = LayerNote("encoder", "text", INTEGERS, "the module")
    for other in (copy.copy(note), copy.deepcopy(note), pickle.loads(pickle.dumps(note))):
        assert (other, other.layer, other.text, other.kind) == (note, "encoder", "text", INTEGERS)


def test_texts_change_and_layers_stay() -> None:
    changed = each_text(str.upper, (LayerNote("encoder", "text"), "of the file"))
    assert changed == ("encoder: TEXT", "OF THE FILE")
    assert [layer_of(note) for note in changed] == ["encoder", None]


def test_notes_of_layers_that_are_left_out_go_with_them(tmp_path: Path) -> None:
    """A layer whose name begins as another's note does not take that note with it."""
    layer = {"weight_ih_l0": np.ones((20, 3), "f4"), "weight_hh_l0": np.ones((20, 5), "f4")}
    names = ("a", "a: its", "b")
    checkpoint = rc.load({f"{name}.{key}": array for name in names for key, array in layer.items()}, "pytorch")
    notes = tuple(LayerNote(name, "its clip is left out") for name in checkpoint.layers)
    summary = rc.save(checkpoint.replace(warnings=notes), tmp_path / "out.onnx", layers=["a: its"])
    assert summary.warnings == ("a: its: its clip is left out",)


def named_in_front(node: ast.expr) -> bool:
    """Return whether a text begins with a value and a colon: it is a note on a layer, written as plain text."""
    return (
        isinstance(node, ast.JoinedStr)
        and len(node.values) > 1
        and isinstance(node.values[0], ast.FormattedValue)
        and isinstance(node.values[1], ast.Constant)
        and str(node.values[1].value).startswith(": ")
    )


NOTES = {"warnings", "unread", "doubts"}


def added(node: ast.AST) -> Iterator[ast.expr]:
    """Yield what a statement adds to the notes of a reading."""
    if (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "append"
        and name_of(node.func.value) in NOTES
    ):
        yield from node.args
    if isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        if any(name_of(target) in NOTES for target in targets):
            yield from (part for part in ast.walk(node) if isinstance(part, ast.JoinedStr))


def name_of(node: ast.AST) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def test_no_reader_spells_a_layer_into_a_text() -> None:
    readers = [path for path in FILES if path.stem not in ("write", "run") and not path.stem.startswith(("write_", "run_"))]
    spelt = [
        f"{path.relative_to(ROOT)}:{text.lineno}"
        for path in readers
        for node in ast.walk(ast.parse(path.read_text()))
        for text in added(node)
        if named_in_front(text)
    ]
    assert not spelt, "use LayerNote"


def test_notes_of_every_format_are_data(tmp_path: Path) -> None:
    """What is said of a layer names it as data, in files of every kind."""
    spelt: list[tuple[str, str]] = []
    every = seeds.build(tmp_path, corpus=False)
    kinds = dict.fromkeys(seed.kind for seed in every)
    for seed in (seed for kind in kinds for seed in drawn((other for other in every if other.kind == kind), 3, kind)):
        path = put(tmp_path / "case", seed.files, seed.entry)
        try:
            checkpoint = rc.load(path, seed.format)
        except rc.RnnConvertError:
            continue
        spelt += [(seed.kind, note) for note in checkpoint.unread if not isinstance(note, LayerNote)]
        names = [name for name in (*checkpoint.layers, *checkpoint.tensors) if name]
        for note in checkpoint.warnings:
            if not isinstance(note, LayerNote) and any(note.startswith(f"{name}:") for name in names):
                spelt.append((seed.kind, note))
    assert not spelt


def test_names_of_metadata_are_checked_by_their_types() -> None:
    """What a file says besides its arrays is asked for as its room's kind of metadata, so that mypy knows every name."""
    asked = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in FILES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Subscript | ast.Attribute)
        and isinstance(node.value, ast.Attribute)
        and node.value.attr == "metadata"
        and (isinstance(node, ast.Subscript) or node.attr in ("get", "pop", "setdefault"))
    ]
    assert not asked, "use metadata_as"
