"""What would be a wrong number, or a thing left out, without a word."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

import rnnconvert as rc
from rnnconvert.containers import safetensors
from rnnconvert.core.arrays import Array
from rnnconvert.core.errors import RefusedError, UnreadableError
from rnnconvert.core.weights import Recurrent
from rnnconvert.files import convert as api
from rnnconvert.files.checkpoint import Checkpoint
from rnnconvert.files.load import load
from rnnconvert.language.layout import Sizes
from rnnconvert.rewrites import each
from tests.helpers.stacks import BOTH, random_stack


def lstm(dtype: Any = np.float32, scale: float = 1) -> Recurrent:
    return random_stack(Sizes("lstm", 3, 4, parts=BOTH), 5, dtype, scale=scale).replace(name="encoder")


def of(stack: Recurrent) -> Checkpoint:
    return Checkpoint("(in memory)", "canonical", {stack.name: stack})


FASTAI = ("rnns.0.module.weight_hh_l0", "rnns.0.weight_hh_l0_raw")
SALESFORCE = ("rnns.0.module.weight_hh_l0", "rnns.0.module.weight_hh_l0_raw")


@pytest.mark.parametrize("names", [FASTAI, SALESFORCE], ids=["fastai", "salesforce"])
@pytest.mark.parametrize("raw_first", [False, True])
def test_weights_that_were_dropped_out_are_taken_as_they_were(names: tuple[str, str], raw_first: bool, tmp_path: Path) -> None:
    layer = torch.nn.LSTM(3, 4)
    state = {f"rnns.0.module.{name}": tensor for name, tensor in layer.state_dict().items()}
    raw = state.pop(names[0])
    both = {names[0]: torch.zeros_like(raw), names[1]: raw}
    torch.save(both | state if not raw_first else dict(reversed(both.items())) | state, tmp_path / "model.pt")
    checkpoint = load(tmp_path / "model.pt")
    (stack,) = checkpoint.layers.values()
    assert np.array_equal(stack.gates["i"].recurrent, raw[:4].numpy())
    assert not checkpoint.tensors
    assert "weight dropout" in checkpoint.warnings[0]


def test_biases_whose_sum_becomes_infinite_are_refused(tmp_path: Path) -> None:
    stack = lstm(np.float16)
    large = np.full(4, 60000, np.float16)
    stack = each(stack, lambda d: d.with_arrays({("input_bias", "i"): large, ("recurrent_bias", "i"): large}))
    with pytest.raises(RefusedError, match="weights this large"):
        api.save(of(stack), tmp_path / "out.keras")


def test_what_is_infinite_in_the_source_stays_so(tmp_path: Path) -> None:
    stack = each(lstm(), lambda d: d.with_arrays({("input_bias", "i"): np.full(4, np.inf, np.float32)}))
    summary = api.save(of(stack), tmp_path / "out.pt", dtype="float16")
    assert "infinite" in summary.warnings[0]


def test_only_what_is_carried_counts_as_carried(tmp_path: Path) -> None:
    api.save(of(lstm()), tmp_path / "a.onnx")
    again = rc.convert(tmp_path / "a.onnx", tmp_path / "b.onnx")
    assert (again.carried, again.left_out) == (0, len(load(tmp_path / "a.onnx").tensors))

    api.save(of(lstm()), tmp_path / "a.safetensors", "cudnn")
    stored = safetensors.read(tmp_path / "a.safetensors")
    metadata: Any = stored.metadata["__metadata__"]
    safetensors.write(tmp_path / "b.safetensors", {**stored.arrays, "other": np.ones(2, np.float32)}, metadata)
    again = rc.convert(tmp_path / "b.safetensors", tmp_path / "c.safetensors", target_format="cudnn")
    assert (again.carried, again.left_out) == (0, 1)

    layer = {f"module.rnn.{name}": tensor for name, tensor in torch.nn.LSTM(3, 4).state_dict().items()}
    torch.save({"module.head": torch.ones(2), "head": torch.zeros(2), **layer}, tmp_path / "a.pt")
    again = rc.convert(tmp_path / "a.pt", tmp_path / "b.pt")
    assert (again.carried, again.left_out) == (2, 0)
    written = torch.load(tmp_path / "b.pt")
    assert written["module.head"].all() and not written["head"].any()


DESCRIPTIONS: dict[str, tuple[dict[str, object], str]] = {
    "a boolean in quotes": ({"bidirectional": "false"}, "bidirectional is 'false'"),
    "a mode in capitals": ({"input_mode": "SKIP"}, "input_mode is 'SKIP'"),
    "one bound": ({"clip": [1.0]}, "clip is"),
    "bounds exchanged": ({"clip": [1.0, -1.0]}, "clip is"),
    "bounds that are no numbers": ({"clip": ["a", None]}, "clip is"),
}


@pytest.mark.parametrize("name", DESCRIPTIONS)
def test_a_description_that_says_something_else_is_refused(name: str, tmp_path: Path) -> None:
    changes, message = DESCRIPTIONS[name]
    api.save(of(lstm()), tmp_path / "a.bin")
    sidecar = tmp_path / "a.bin.json"
    description = json.loads(sidecar.read_text())
    description["layers"][0].update(changes)
    sidecar.write_text(json.dumps(description))
    with pytest.raises(UnreadableError, match=message):
        load(tmp_path / "a.bin")


def model(path: Path, lengths: bool = False, **attributes: Any) -> Path:
    """An ONNX model of one RNN."""
    arrays: dict[str, Array] = {"W": np.ones((1, 2, 3), np.float32), "R": np.ones((1, 2, 2), np.float32)}
    inputs = ["x", "W", "R"]
    if lengths:
        arrays["lengths"] = np.array([3, 2], np.int32)
        inputs += ["", "lengths"]
    node = helper.make_node("RNN", inputs, ["y"], "rnn", hidden_size=2, **attributes)
    graph = helper.make_graph(
        [node], "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, None)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(array, name) for name, array in arrays.items()],
    )  # fmt: skip
    onnx.save(helper.make_model(graph), path)
    return path


@pytest.mark.parametrize("function", ["Affine", "ScaledTanh", "ThresholdedRelu"])
def test_a_function_without_the_constants_that_it_needs_is_refused(function: str, tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match="without its activation_alpha"):
        load(model(tmp_path / "a.onnx", activations=[function]))
    assert load(model(tmp_path / "a.onnx", activations=[function], activation_alpha=[0.5], activation_beta=[0.5]))


def test_lengths_that_a_graph_holds_are_refused_until_the_caller_passes_them(tmp_path: Path) -> None:
    path, plain = model(tmp_path / "a.onnx", lengths=True), model(tmp_path / "b.onnx")
    with pytest.raises(RefusedError, match="lengths of sequences in the model"):
        rc.convert(path, tmp_path / "c.pt")
    assert rc.convert(path, tmp_path / "c.pt", unaccounted="harmless").written
    assert rc.convert(plain, tmp_path / "d.pt").written
    assert not rc.diff(path, plain).equal
    assert rc.verify(path, plain, on=["onnxruntime-cpu"]).verdict != "equal"


def test_lengths_that_are_those_of_the_input_are_harmless(tmp_path: Path) -> None:
    path = model(tmp_path / "a.onnx", lengths=True)
    proto = onnx.load(path)
    (lengths,) = (tensor for tensor in proto.graph.initializer if tensor.name == "lengths")
    steps = int(onnx.numpy_helper.to_array(lengths).max())
    lengths.CopyFrom(onnx.numpy_helper.from_array(np.full(2, steps, np.int32), "lengths"))
    x = proto.graph.input[0]
    x.CopyFrom(helper.make_tensor_value_info(x.name, TensorProto.FLOAT, [steps, None, None]))
    onnx.save(proto, path)
    assert rc.convert(path, tmp_path / "c.pt").written
    proto.graph.input[0].type.tensor_type.shape.dim[0].dim_value = steps + 1
    onnx.save(proto, path)
    with pytest.raises(RefusedError, match="lengths of sequences"):
        rc.convert(path, tmp_path / "d.pt")
