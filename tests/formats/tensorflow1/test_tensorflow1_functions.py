"""Graphs of TensorFlow 1.15 and of tf.compat.v1: While with functions (control flow v2), and the loops of Keras 2.1, read as what they
gave."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rnnconvert as rc
from rnnconvert.core import reference
from tests import ROOT
from tests.helpers.requirements import needed

GOLDEN = ROOT / "tests" / "golden"
CASES = [
    *(f"frozen_functions/{name}" for name in ("lstm", "gru_last", "ways", "time_major")),
    *(f"checkpoint_functions/{name}" for name in ("lstm", "gru", "time_major", "ways", "stack", "trained")),
    *(f"frozen_keras21/{name}" for name in ("lstm_last", "lstm_together", "gru", "gru_dropped", "rnn_last", "ways")),
]


@pytest.mark.parametrize("name", CASES)
def test_a_loop_is_read(name: str) -> None:
    is_checkpoint = name.startswith("checkpoint_functions/")
    checkpoint = rc.load(GOLDEN / (name if is_checkpoint else f"{name}.pb"))
    assert not checkpoint.unread and not checkpoint.questions
    assert all(call.states == "" for layer in checkpoint.layers.values() for call in layer.calls)
    with np.load(GOLDEN / f"{name}.npz") as stored:
        x, truth = stored["x"].swapaxes(0, 1), stored["y"]
    if is_checkpoint:
        assert checkpoint.batch_first == dict.fromkeys(checkpoint.layers, not name.endswith("time_major"))
        x = x.swapaxes(0, 1) if name.endswith("time_major") else x
    runs = [(stack, reference.run(stack, x)) for stack in checkpoint.layers.values()]
    assert is_checkpoint or [stack.first.reverse for stack, _ in runs] == [False, True][: len(runs)]
    y = np.concatenate([output.y for _, output in runs], -1)
    output = runs[0][1].hidden[0] if truth.ndim == 2 else y if name.endswith("time_major") else y.swapaxes(0, 1)
    np.testing.assert_allclose(output, truth, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", [name for name in CASES if name.startswith("frozen_functions/")])
def test_a_frozen_graph_is_written_whole(name: str, tmp_path: Path) -> None:
    """The operation that allocates the outputs of a loop is not an output of the model."""
    done = rc.export_model(GOLDEN / f"{name}.pb", tmp_path / "m.onnx")
    assert len(done.outputs) == 1
    session = needed("onnxruntime", "onnxruntime").InferenceSession(str(tmp_path / "m.onnx"))
    with np.load(GOLDEN / f"{name}.npz") as stored:
        (y,) = session.run(None, {session.get_inputs()[0].name: stored["x"]})
        np.testing.assert_allclose(y, stored["y"], rtol=1e-5, atol=1e-6)


def test_an_order_of_axes_is_put_together_from_whole_numbers_alone() -> None:
    from rnnconvert.formats.tensorflow1.lowering import _order

    first, second, third = (np.array(number, np.int32) for number in (1, 2, 3))
    assert np.array_equal(_order("Range", [second, third, first], 3), [2])  # type: ignore[arg-type]
    assert np.array_equal(_order("ConcatV2", [np.array([1, 0]), np.array([2]), first - first], 3), [1, 0, 2])  # type: ignore[arg-type]
    assert _order("Range", [first, second], 3) is None and _order("Range", [first, first * 2**30, first], 3) is None
    assert _order("ConcatV2", [np.array([1.0]), first], 2) is None and _order("Range", [first, second, first - first], 3) is None


def test_an_element_before_the_last_one_is_not_the_last(tmp_path: Path) -> None:
    """Which element of a list Keras takes is the number of steps less 1; one less 2 is another element."""
    graph = needed("tensorflow", "tensorflow.core.framework.graph_pb2").GraphDef()
    graph.ParseFromString((GOLDEN / "frozen_keras21" / "rnn_last.pb").read_bytes())
    (less,) = (node for node in graph.node if node.name.endswith("/sub/y"))
    less.attr["value"].tensor.int_val[:] = [2]
    path = tmp_path / "m.pb"
    path.write_bytes(graph.SerializeToString())
    checkpoint = rc.load(path)
    assert not checkpoint.layers and "is used behind it" in checkpoint.unread[0]


def test_a_factor_that_is_not_1_is_not_left_out(tmp_path: Path) -> None:
    graph = needed("tensorflow", "tensorflow.core.framework.graph_pb2").GraphDef()
    graph.ParseFromString((GOLDEN / "frozen_keras21" / "gru_dropped.pb").read_bytes())
    ones = [node for node in graph.node if node.name.endswith(("ones_like/Const", "ones_like_1/Const"))]
    assert len(ones) == 2
    for node in ones:
        node.attr["value"].tensor.float_val[:] = [0.5]
        path = tmp_path / "m.pb"
        path.write_bytes(graph.SerializeToString())
        checkpoint = rc.load(path)
        assert not checkpoint.layers and checkpoint.unread
        node.attr["value"].tensor.float_val[:] = [1.0]


def copied(name: str, folder: Path, *, spoiled: bool = False) -> Path:
    """A checkpoint elsewhere; `spoiled` without the function that computes the steps of its loop."""
    for file in (GOLDEN / "checkpoint_functions").glob(f"{name}.*"):
        content = file.read_bytes()
        (folder / file.name).write_bytes(content.replace(b"rnn_while_body", b"rnn_while_none", 1) if spoiled else content)
    return folder / name


def test_what_a_graph_states_where_it_is_not_followed_is_asked_for(tmp_path: Path) -> None:
    path = copied("lstm", tmp_path, spoiled=True)
    with pytest.raises(rc.RefusedError, match="initial state"):
        rc.convert(path, tmp_path / "a.onnx")
    with pytest.raises(rc.RefusedError, match="forget_bias") as raised:
        rc.convert(path, tmp_path / "a.onnx", initial_state="call")
    assert "activation of rnn" in str(raised.value.details)
    rc.convert(path, tmp_path / "a.onnx", initial_state="call", forget_bias="0.0", activation="relu")


@pytest.mark.parametrize("name", ["trained", "time_major"])
def test_the_printed_lines_give_what_the_graph_gave(name: str, tmp_path: Path) -> None:
    torch = needed("torch", "torch")
    path = copied(name, tmp_path)
    summary = rc.convert(path, tmp_path / "a.pt")
    scope: dict[str, Any] = {}
    exec("\n".join(summary.recipe), scope)
    with np.load(tmp_path / f"{name}.npz") as stored:
        y = scope["rnn"](torch.tensor(stored["x"]))[0].detach().numpy()
        np.testing.assert_allclose(y, stored["y"], rtol=1e-5, atol=1e-6)
