"""Masks that are simplified are those that they were."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import rnnconvert as rc
from rnnconvert.scaffolding import kinds
from rnnconvert.scaffolding.description import DescribedModel, Value
from rnnconvert.scaffolding.simplify import simplify
from tests.helpers.requirements import needed

ROW = np.arange(1012) % 3 == 0
LIKE_IT = np.where(np.arange(1012) == 500, ~ROW, ROW)
"""They differ in the middle, which no text of so many numbers shows."""
MODELS: dict[str, tuple[list[tuple[str, list[str], list[str], dict[str, Any]]], dict[str, Any]]] = {
    "or a number": ([("Or", ["m", "true"], ["z"], {})], {"true": np.array(True)}),
    "and a number": ([("And", ["m", "false"], ["z"], {})], {"false": np.array(False)}),
    "parts of parts": (
        [
            ("Split", ["m"], ["a", "b"], {"axis": 1, "num_outputs": 2}),
            ("Split", ["m"], ["c", "d"], {"axis": 1, "num_outputs": 2}),
            ("Xor", ["a", "d"], ["z"], {}),
        ],
        {},
    ),
    "constants that are alike": ([("And", ["m", "p"], ["a"], {}), ("And", ["m", "q"], ["b"], {}), ("Xor", ["a", "b"], ["z"], {})],
                                 {"p": ROW[None], "q": LIKE_IT[None]}),
    "constants of other numbers": ([("And", ["m", "p"], ["a"], {}), ("And", ["m", "q"], ["b"], {}), ("Xor", ["a", "b"], ["z"], {})],
                        {"p": ROW[None], "q": ~ROW[None]}),
}  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
def test_masks_of_a_graph(tmp_path: Path, name: str) -> None:
    onnxruntime = needed("onnxruntime", "onnxruntime")
    helper, floats = onnx.helper, onnx.TensorProto.FLOAT
    nodes, numbers = MODELS[name]
    every = [("Greater", ["x", "zero"], ["m"], {}), *nodes, ("Cast", ["z"], ["y"], {"to": floats})]
    stored = [onnx.numpy_helper.from_array(np.asarray(array), key) for key, array in {"zero": np.float32(0), **numbers}.items()]
    graph = helper.make_graph(
        [helper.make_node(operator, reads, gives, **settings) for operator, reads, gives, settings in every], "g",
        [helper.make_tensor_value_info("x", floats, ["batch", 1012])], [helper.make_tensor_value_info("y", floats, None)], stored,
    )  # fmt: skip
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8), tmp_path / "m.onnx")
    rc.export_model(tmp_path / "m.onnx", tmp_path / "w.onnx")
    x = np.random.default_rng(0).normal(size=(2, 1012)).astype(np.float32)
    (truth,), (output,) = (onnxruntime.InferenceSession(str(tmp_path / file)).run(None, {"x": x}) for file in ("m.onnx", "w.onnx"))
    np.testing.assert_array_equal(output, truth)


WIDENED = {"the mask": kinds.Mask("any", axis=2), "a reduction": kinds.Reduce("any", axes=(2,), keep=False),
           "steps": kinds.Reduce("any", axes=(1,), keep=False)}  # fmt: skip


@pytest.mark.parametrize("name", WIDENED)
def test_only_whether_any_of_the_last_axis_holds_is_what_was_widened(name: str) -> None:
    kind = WIDENED[name]
    mask, wide, y = Value("mask", (None, None), "bool"), Value("wide", (None, None, 3), "bool"), Value("y", (None, None), "bool")
    end = Value("end", (None, None), "bool")
    model = DescribedModel("m", "", (mask,), outputs=(end,))
    model.add(kinds.Mask("widened"), "", [mask], [wide])
    model.add(kind, "", [wide], [y])
    model.add(kinds.Elementwise("not", (("input", 0),)), "", [y], [end])
    simplify(model)
    reads = model.nodes[-1].inputs[0]
    assert reads is (mask if isinstance(kind, kinds.Mask) else y)


def _every(kind: type[kinds.Kind]) -> list[type[kinds.Kind]]:
    return [kind, *(each for below in kind.__subclasses__() for each in _every(below))]


def test_kinds_are_equal_only_where_all_settings_are() -> None:
    """A class without an equality of its own has that of the class that it is made from, which does not see its settings."""
    for kind in _every(kinds.Kind):
        fields = [field.name for field in dataclasses.fields(kind)]
        settings = {name: np.zeros(2000) if name == "numbers" else (name,) for name in fields}
        assert kind(**settings) == kind(**settings) and hash(kind(**settings)) == hash(kind(**settings)), kind
        for name in fields:
            other = np.where(np.arange(2000) == 1000, 1.0, 0.0) if name == "numbers" else ("another",)
            assert kind(**settings) != kind(**{**settings, name: other}), (kind, name)
