"""Layers of an ONNX model that are made of the same stored numbers: filling one never changes another in silence."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import helper, numpy_helper
from torch import nn

import rnnconvert as rc
from rnnconvert.core.arrays import Array
from tests.helpers.onnx_graphs import in_onnxruntime

OPERATORS = ["Unsqueeze", "Slice", "Concat"]
PARTLY = ["one matrix", "an overlap"]


def model(how: str) -> onnx.ModelProto:
    """Two LSTM nodes behind one another, which share all of their weights or some of their numbers."""
    generator = np.random.default_rng(0)
    arrays: dict[str, Array] = {"zero": np.array([0]), "one": np.array([1])}
    nodes: list[onnx.NodeProto] = []

    def stored(name: str, *shape: int) -> None:
        arrays[name] = generator.normal(size=shape).astype(np.float32)

    shapes = {"w": (12, 3), "r": (12, 3), "b": (24,)}
    for name, shape in shapes.items():
        shared = how in OPERATORS or (name == "w" and how == "one matrix")
        for layer in ("first", "second"):
            value = f"{name}_{layer}"
            if how == "an overlap" and name == "w":
                arrays.setdefault("w", generator.normal(size=(18, 3)).astype(np.float32))
                start = 0 if layer == "first" else 6
                arrays |= {f"{layer}_start": np.array([start]), f"{layer}_end": np.array([start + 12])}
                rows = ["w", f"{layer}_start", f"{layer}_end", "zero"]
                nodes.append(helper.make_node("Slice", rows, [f"rows_{layer}"]))
                nodes.append(helper.make_node("Unsqueeze", [f"rows_{layer}", "zero"], [value]))
            elif not shared:
                stored(value, 1, *shape)
            elif how == "Slice":
                arrays.setdefault(name, generator.normal(size=(2, *shape)).astype(np.float32))
                nodes.append(helper.make_node("Slice", [name, "zero", "one", "zero"], [value]))
            elif how == "Concat":
                half = (1, shape[0] // 2, *shape[1:])
                for part in ("upper", "lower"):
                    arrays.setdefault(f"{name}_{part}", generator.normal(size=half).astype(np.float32))
                nodes.append(helper.make_node("Concat", [f"{name}_upper", f"{name}_lower"], [value], axis=1))
            else:
                arrays.setdefault(name, generator.normal(size=shape).astype(np.float32))
                nodes.append(helper.make_node("Unsqueeze", [name, "zero"], [value]))
    nodes += [
        helper.make_node("LSTM", ["x", "w_first", "r_first", "b_first"], ["h"], "first", hidden_size=3),
        helper.make_node("Squeeze", ["h", "one"], ["s"]),
        helper.make_node("LSTM", ["s", "w_second", "r_second", "b_second"], ["y"], "second", hidden_size=3),
    ]
    values = {name: helper.make_tensor_value_info(name, 1, [None] * axes) for name, axes in (("x", 3), ("y", 4))}
    tensors = [numpy_helper.from_array(array, name) for name, array in arrays.items()]
    graph = helper.make_graph(nodes, "two", [values["x"]], [values["y"]], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


class Twice(nn.Module):
    """One LSTM that is run on what it gave."""

    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.LSTM(3, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.rnn(self.rnn(x)[0])[0]
        return y


def ran(proto: onnx.ModelProto, x: Array) -> Array:
    return np.asarray(in_onnxruntime(proto, x)[0][:, 0])


@pytest.mark.parametrize("mapping", [None, {"first": "rnn"}, {"first": "rnn", "second": "rnn"}, {"second": "rnn"}])
@pytest.mark.parametrize("how", OPERATORS)
def test_nodes_that_share_all_their_weights_are_one_layer(how: str, mapping: Any) -> None:
    proto, module = model(how), Twice()
    report = rc.load_into(proto, module, mapping=mapping)
    x = np.random.default_rng(1).normal(size=(5, 2, 3)).astype(np.float32)
    with torch.no_grad():
        assert np.abs(ran(proto, x) - module(torch.from_numpy(x)).numpy()).max() < 1e-5
    assert not [name for name in report.kept if name not in ("w", "r", "b")]


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("how", PARTLY)
def test_a_layer_that_would_change_with_another_is_refused(how: str, strict: bool) -> None:
    proto = model(how)
    before = proto.SerializeToString(deterministic=True)
    with pytest.raises(rc.TransplantError, match="would change"):
        rc.load_into(proto, Twice(), mapping={"first": "rnn"}, strict=strict)
    assert proto.SerializeToString(deterministic=True) == before


def test_layers_that_share_and_agree_are_both_filled() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.LSTM(3, 3), nn.LSTM(3, 3)

    module = Two()
    with pytest.raises(rc.TransplantError, match="one array in the target"):
        rc.load_into(model("one matrix"), module)
    with torch.no_grad():
        module.second.weight_ih_l0.copy_(module.first.weight_ih_l0)
    proto = model("one matrix")
    rc.load_into(proto, module)
    x = np.random.default_rng(1).normal(size=(5, 2, 3)).astype(np.float32)
    with torch.no_grad():
        wanted = module.second(module.first(torch.from_numpy(x))[0])[0].numpy()
    assert np.abs(ran(proto, x) - wanted).max() < 1e-5


def test_the_same_holds_for_modules_that_share_a_matrix() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.LSTM(3, 3), nn.LSTM(3, 3)
            self.second.weight_ih_l0 = self.first.weight_ih_l0

    with pytest.raises(rc.TransplantError, match="would change"):
        rc.load_into(Two(), Twice(), mapping={"first": "rnn"}, strict=False)
