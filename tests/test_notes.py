"""What readers tell of a layer is data: the layer, the kind, and the text."""

from __future__ import annotations

import copy
import json
import pickle
from pathlib import Path

import numpy as np

import rnnconvert as rc
from rnnconvert.core.notes import INTEGERS, LayerNote, each_text, layer_of


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
