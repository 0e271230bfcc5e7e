"""What stands around a layer in its file and is not among its arrays: programs, vertices, attributes. Each is read or named."""

from __future__ import annotations

import shutil
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import rnnconvert as rc
from rnnconvert.containers import wire
from rnnconvert.core.weights import Directly
from tests import ROOT
from tests.formats.dl4j import test_dl4j_files
from tests.helpers.judging import batch_first
from tests.helpers.sources import checkpoint, legacy_h5, sequential, stack, uniform

FLUID = ROOT / "tests" / "golden" / "fluid"
ANSWERS = np.load(FLUID / "answers.npz")


# Fluid's program (paddle/fluid/framework/framework.proto, 1.8) ----------------------------------------


def operator(kind: str, inputs: Mapping[str, str], output: str, **attributes: Any) -> bytes:
    """An OpDesc."""

    def variable(parameter: str, name: str) -> bytes:
        return wire.field(1, parameter.encode()) + wire.field(2, name.encode())

    def attribute(name: str, value: Any) -> bytes:
        head = wire.field(1, name.encode())
        if isinstance(value, bool):
            return head + b"\x10\x06" + wire.varint(10 << 3) + wire.varint(value)
        if isinstance(value, float):
            return head + b"\x10\x01" + wire.varint(4 << 3 | wire.FIXED32) + struct.pack("<f", value)
        if isinstance(value, int):
            return head + b"\x10\x00" + wire.varint(3 << 3) + wire.varint(value)
        return head + b"\x10\x02" + wire.field(5, value.encode())

    content = b"".join(wire.field(1, variable(*pair)) for pair in inputs.items()) + wire.field(2, variable("Out", output))
    return content + wire.field(3, kind.encode()) + b"".join(wire.field(4, attribute(*pair)) for pair in attributes.items())


def program(*operators: bytes) -> bytes:
    """A ProgramDesc of one block."""
    block = wire.varint(1 << 3) + b"\x00" + b"".join(wire.field(4, content) for content in operators)
    return wire.field(1, block)


def dynamic(kind: str, number: int = 0, fc: int = 0, relu: str = "", **attributes: Any) -> bytes:
    """The operators of an fc and the layer after it."""
    before = [
        operator("mul", {"X": "data", "Y": f"fc_{fc}.w_0"}, "a", x_num_col_dims=1),
        operator("elementwise_add", {"X": "a", "Y": f"fc_{fc}.b_0"}, "b", axis=1),
    ]
    before += [operator(relu, {"X": "b"}, "c")] if relu else []
    layer = {"Input": "c" if relu else "b", "Weight": f"{kind}_{number}.w_0", "Bias": f"{kind}_{number}.b_0"}
    return program(*before, operator(kind, layer, "hidden", **attributes))


GRU: dict[str, Any] = {"is_reverse": False, "gate_activation": "sigmoid", "activation": "tanh", "origin_mode": False, "op_role": 0}
LSTM: dict[str, Any] = {
    "is_reverse": False, "gate_activation": "sigmoid", "candidate_activation": "tanh", "cell_activation": "tanh", "use_peepholes": True,
}  # fmt: skip


def folder(name: str, tmp_path: Path, model: bytes) -> Path:
    path = Path(shutil.copytree(FLUID / name, tmp_path / name))
    (path / "__model__").write_bytes(model)
    return path


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("gru", dynamic("gru", **GRU)),
        ("origin", dynamic("gru", **{**GRU, "origin_mode": True})),
        ("relu", dynamic("gru", **{**GRU, "activation": "relu", "is_reverse": True})),
        ("lstm", dynamic("lstm", **LSTM)),
        ("plain", dynamic("lstm", **{**LSTM, "use_peepholes": False})),
    ],
)
def test_a_program_states_what_its_layers_compute(name: str, model: bytes, tmp_path: Path) -> None:
    checkpoint = rc.load(folder(name, tmp_path, model))
    (layer,) = checkpoint.layers.values()
    assert not checkpoint.questions and not layer.unconvertible
    assert any("__model__ states what its operator computes" in line for line in checkpoint.evidence)
    np.testing.assert_allclose(batch_first(layer, ANSWERS["x"]), ANSWERS[name], rtol=0, atol=3e-7)
    with pytest.raises(rc.UsageError, match="contradicts __model__"):
        rc.load(tmp_path / name, recurrent_activation="relu")


def test_what_a_program_has_besides_is_named(tmp_path: Path) -> None:
    other = folder("gru", tmp_path, dynamic("gru", **GRU, unknown_fact=0.5))
    with pytest.raises(rc.RefusedError, match="unknown_fact"):
        rc.convert(other, tmp_path / "out.onnx")
    (other / "__model__").write_bytes(dynamic("gru", relu="relu", **GRU))
    with pytest.raises(rc.RefusedError, match="gives it the output of something other than an fc alone"):
        rc.convert(other, tmp_path / "out.onnx")
    (other / "__model__").write_bytes(dynamic("gru", fc=1, **GRU))
    assert "'fc_1', whose width does not fit" in rc.load(other).unread[0]
    (other / "__model__").write_bytes(program(operator("mul", {"X": "x"}, "y")))
    assert len(rc.load(other).questions) == 4
    (other / "__model__").write_bytes(b"\x0a\xff")
    with pytest.raises(rc.UnreadableError, match="__model__"):
        rc.load(other)
    peepholes = folder("plain", tmp_path, dynamic("lstm", **LSTM))
    assert "use_peepholes=true, but its bias has no peepholes" in rc.load(peepholes).unread[0]
    states = operator("gru", {"Input": "x", "Weight": "gru_0.w_0", "H0": "state"}, "y", **GRU)
    (other / "__model__").write_bytes(program(states))
    (layer,) = rc.load(other, fc="fc_0").layers.values()
    assert "'H0'" in layer.describe()


def test_the_fc_of_each_layer_is_the_programs(tmp_path: Path) -> None:
    model = program(
        operator("mul", {"X": "data", "Y": "fc_1.w_0"}, "a"),
        operator("elementwise_add", {"X": "a", "Y": "fc_1.b_0"}, "b"),
        operator("gru", {"Input": "b", "Weight": "gru_1.w_0", "Bias": "gru_1.b_0"}, "h", **{**GRU, "is_reverse": True}),
    )
    path = folder("two", tmp_path, model)
    asked = {(question.layer, question.option) for question in rc.load(path).questions}
    assert ("gru_0", "fc") in asked and not any(layer == "gru_1" for layer, _ in asked)


# Deeplearning4j's vertices and preprocessors ------------------------------------------------------------


def vertex(kind: str, **fields: Any) -> dict[str, Any]:
    return {"@class": f"org.deeplearning4j.nn.conf.graph.{kind}", **fields}


def graph(tmp_path: Path, between: dict[str, Any] | None, after: dict[str, Any] | None = None) -> Path:
    sigmoid, tanh = ({"@class": f"org.nd4j.linalg.activations.impl.Activation{name}"} for name in ("Sigmoid", "TanH"))

    def lstm(width: int) -> dict[str, Any]:
        recurrent = test_dl4j_files.new("LSTM", width, 2, hasBias=True, gateActivationFn=sigmoid, activationFn=tanh)
        return vertex("LayerVertex", layerConf={"layer": recurrent})

    vertices = {"a": lstm(3), **({"rev": between} if between else {}), "b": lstm(2), **({"end": after} if after else {})}
    inputs = {"a": ["in"], "b": ["rev" if between else "a"], **({"rev": ["a"]} if between else {}), **({"end": ["b"]} if after else {})}
    order = ["in", "a", *(["rev"] if between else []), "b", *(["end"] if after else [])]
    config = {"networkInputs": ["in"], "vertices": vertices, "vertexInputs": inputs, "topologicalOrderStr": order}
    size = 4 * 2 * (3 + 2 + 1) + 4 * 2 * (2 + 2 + 1)
    return test_dl4j_files.model(tmp_path / "graph.zip", config, uniform(1, size), "MIXED_DATA_TYPES")


def test_vertices_around_a_layer_are_named_and_stop_a_join(tmp_path: Path) -> None:
    plain = rc.load(graph(tmp_path, None))
    assert not plain.warnings and plain.layers["b"].reads == Directly(("a",))
    rc.save(plain, tmp_path / "out.onnx", stack="join")
    checkpoint = rc.load(graph(tmp_path, vertex("rnn.ReverseTimeSeriesVertex", maskArrayInputName="in")))
    assert "a: its output goes through ReverseTimeSeriesVertex 'rev'" in checkpoint.warnings
    assert "b: its input comes through ReverseTimeSeriesVertex 'rev'" in checkpoint.warnings
    with pytest.raises(rc.RefusedError, match="ReverseTimeSeriesVertex 'rev': the steps are reversed"):
        rc.save(checkpoint, tmp_path / "out.onnx", stack="join", force=True)
    last = rc.load(graph(tmp_path, None, vertex("rnn.LastTimeStepVertex")))
    assert last.warnings == ("b: its output goes through LastTimeStepVertex 'end'",)


def test_preprocessors_of_a_network_are_named(tmp_path: Path) -> None:
    sigmoid, tanh = ({"@class": f"org.nd4j.linalg.activations.impl.Activation{name}"} for name in ("Sigmoid", "TanH"))
    layers = [test_dl4j_files.new("LSTM", 3, 2, gateActivationFn=sigmoid, activationFn=tanh) for _ in range(1)]
    config = test_dl4j_files.network(*layers)
    for kind, named in (("CnnToRnnPreProcessor", True), ("FeedForwardToRnnPreProcessor", False)):
        config["inputPreProcessors"] = {"0": {"@class": f"org.deeplearning4j.nn.conf.preprocessor.{kind}"}}
        path = test_dl4j_files.model(tmp_path / "m.zip", config, uniform(1, 4 * 2 * 6))
        assert any("preprocessor" in warning for warning in rc.load(path).warnings) == named


# Attributes of HDF5 ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["0", "0/w0", ""])
def test_an_attribute_of_an_array_or_its_group_is_named(place: str, tmp_path: Path) -> None:
    rc.save(checkpoint(stack("lstm", name="a")), path := tmp_path / "m.h5", "chainer")
    with h5py.File(path, "a") as file:
        file[place or "/"].attrs["scale"] = 0.5
    (layer,) = rc.load(path, "chainer").layers.values()
    assert "'scale of" in layer.describe()
    with pytest.raises(rc.RefusedError, match=r"'scale of .*it is 0\.5"):
        rc.convert(path, tmp_path / "out.onnx", source_format="chainer")


def test_an_attribute_in_a_keras_file_is_named(tmp_path: Path) -> None:
    pairs = [
        (f"lstm/{name}:0", uniform(1, *shape)) for name, shape in (("kernel", (3, 16)), ("recurrent_kernel", (4, 16)), ("bias", (16,)))
    ]
    config = sequential(("LSTM", {"name": "lstm", "units": 4, "activation": "tanh", "recurrent_activation": "sigmoid"}))
    path = legacy_h5(tmp_path / "model.h5", {"lstm": pairs}, config, "2.4.0")
    assert not rc.load(path).layers["lstm"].unconvertible
    with h5py.File(path, "a") as file:
        file["model_weights/lstm"].attrs["quantized"] = True
        file["model_weights/lstm/lstm/kernel:0"].attrs["scale"] = 0.5
    described = rc.load(path).layers["lstm"].describe()
    assert "'quantized of model_weights/lstm'" in described and "'scale of model_weights/lstm/lstm/kernel:0'" in described
