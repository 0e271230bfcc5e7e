"""What a notebook shows: everything that was asked for, escaped, and weights as pictures."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rnnconvert as rc
from rnnconvert.core.notebook import listing, pictured
from tests.helpers.sources import checkpoint, stack


def test_an_inspection_shows_targets_and_other_tensors(tmp_path: Path) -> None:
    saved = checkpoint(stack("gru", name="encoder"))
    rc.save(saved, tmp_path / "m.pt")
    packed = rc.pack(saved.layers["encoder"], "pytorch")
    assert isinstance(packed, dict)
    arrays: dict[str, Any] = {f"encoder.{name}": array for name, array in packed.items()}
    arrays["head.weight"] = np.zeros((7, 4), np.float32)
    np.savez(tmp_path / "m.npz", **arrays)
    page = rc.inspect(tmp_path / "m.npz", targets=["onnx", "keras", "arraymancer"])._repr_html_()
    for words in ("encoder to onnx", "encoder to keras", "encoder to arraymancer", "head", "weights"):
        assert words in page, words


@pytest.mark.parametrize("kind", ["rnn", "gru", "lstm"])
def test_gates_layers_and_stacks_show_themselves(kind: str) -> None:
    layer = stack(kind, name="<b>", num_layers=2, num_directions=2)
    assert "&lt;b&gt;" in layer._repr_html_() and "<b>" not in layer._repr_html_()
    assert layer._repr_html_().count("<tr>") == 4
    gates = layer[0, 1].gates
    assert layer[0]._repr_html_().count("<svg") == 2 * len(gates)
    for gate in gates.values():
        html = gate._repr_html_()
        assert html.count("<svg") == repr(gate).count("(") and "heat map" in html


def test_a_picture_has_a_cell_for_each_number_of_a_small_matrix() -> None:
    picture = pictured(np.array([[1.0, -1.0, 0.0]]))
    assert re.findall(r'fill="(#\w+)"', picture) == ["#ff0000", "#0000ff", "#ffffff"]
    assert pictured(np.zeros((300, 500))).count("<rect") == 16 * 16
    assert "not all finite" in pictured(np.array([[np.nan]])) and "<svg" not in pictured(np.zeros((0, 3)))
    assert listing("<i>", [("a", "<script>")]).count("<script>") == 0
