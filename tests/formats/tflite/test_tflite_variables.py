"""TFLite models over variables: read where the file holds their numbers, and refused with that reason where it does not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rnnconvert as rc
from rnnconvert.core import reference
from tests import ROOT
from tests.helpers.requirements import needed

GOLDEN = ROOT / "tests" / "golden" / "tflite_variables"
NAMES = ["gru_back", "gru_before_back", "lstm_back", "rnn", "trained"]


@pytest.mark.parametrize("name", NAMES)
def test_layers_give_what_keras_gave(name: str) -> None:
    checkpoint = rc.load(GOLDEN / f"{name}.tflite")
    (stack,) = checkpoint.layers.values()
    with np.load(GOLDEN / f"{name}.npz") as stored:
        x, truth = stored["x"].swapaxes(0, 1), stored["y"]
    result = reference.run(stack, x)
    y = result.y.swapaxes(0, 1) if truth.ndim == 3 else result.hidden[0]
    np.testing.assert_allclose(y, truth, rtol=1e-5, atol=1e-6)
    assert not checkpoint.unread and stack.first.reverse == ("back" in name)


def test_weights_that_are_not_in_the_file_are_said_to_be_missing(tmp_path: Path) -> None:
    path = GOLDEN / "lost.tflite"
    with pytest.raises(rc.RnnConvertError, match=r"weights are not in the file: .*lstm_cell/kernel") as caught:
        rc.convert(path, tmp_path / "m.onnx")
    assert "from_keras_model" in str(caught.value)
    interpreter = needed("litert", "ai_edge_litert.interpreter").Interpreter(str(path))
    interpreter.allocate_tensors()
    with pytest.raises(RuntimeError, match="READ_VARIABLE"):  # what it says is true
        interpreter.invoke()


def _changed(path: Path, change: Any) -> Path:
    """Write "trained" with a change of its tables."""
    schema = needed("litert", "ai_edge_litert.schema_py_generated")
    builder = needed("litert", "flatbuffers").Builder(1 << 16)
    model = schema.ModelT.InitFromObj(schema.Model.GetRootAs(bytearray((GOLDEN / "trained.tflite").read_bytes()), 0))
    change(model)
    builder.Finish(model.Pack(builder), b"TFL3")
    path.write_bytes(builder.Output())
    return path


def _operators(model: Any, graph: int, code: int) -> list[Any]:
    return [operator for operator in model.subgraphs[graph].operators if model.operatorCodes[operator.opcodeIndex].builtinCode == code]


def _assigned_in_the_main_graph(model: Any) -> None:
    """Give the main graph an operator that changes the first of its variables."""
    (first, *_) = _operators(model, 0, 142)
    change = _operators(model, 1, 144)[0]
    change.inputs = [first.outputs[0], model.subgraphs[0].inputs[0]]
    model.subgraphs[0].operators.insert(4, change)


def _never_called(model: Any) -> None:
    (once,) = _operators(model, 0, 129)
    model.subgraphs[0].operators.remove(once)


@pytest.mark.parametrize(
    ("change", "words"),
    [(_assigned_in_the_main_graph, "that the model changes while it runs"), (_never_called, "that nothing gives a value")],
)
def test_a_variable_that_the_graph_changes_or_nothing_fills_is_no_weight(tmp_path: Path, change: Any, words: str) -> None:
    assert rc.load(_changed(tmp_path / "same.tflite", lambda model: None)).layers
    checkpoint = rc.load(_changed(tmp_path / "m.tflite", change))
    assert not checkpoint.layers and any(words in text for text in checkpoint.unread), checkpoint.unread
