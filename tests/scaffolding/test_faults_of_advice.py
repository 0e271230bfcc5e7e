"""What a file can bring a writer to: it refuses by name, and advice on other formats never ends a command."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
from click.testing import CliRunner

from rnnconvert.cli.main import main
from rnnconvert.core.errors import RefusedError, UnreadableError
from rnnconvert.formats.keras import live_units
from rnnconvert.formats.keras.config import Era
from rnnconvert.language import registry
from rnnconvert.scaffolding import kinds
from rnnconvert.scaffolding.export import export_model
from rnnconvert.scaffolding.graph import layers as graph_layers
from rnnconvert.scaffolding.scaffold import scaffold
from tests.formats.c_header.test_c_header_models import named


def with_constants(path: Path, output: str = "y", dim: Any = "b", inputs: bool = True) -> Path:
    """Save an LSTM; a constant may be the output, or what it reads."""
    helper, tensor = onnx.helper, onnx.numpy_helper.from_array
    stored = [tensor(np.ones(shape, "f4"), word) for word, shape in (("W", (1, 16, 4)), ("R", (1, 16, 4)), ("K", (4, 4)))]
    stored += [tensor(np.ones((3, 2, 4), "f4"), "c"), tensor(np.array([1]), "one")]
    nodes = [
        helper.make_node("LSTM", ["x" if inputs else "c", "W", "R"], ["Y"], hidden_size=4, name="l"),
        helper.make_node("Squeeze", ["Y", "one"], ["y"]),
    ]
    reads = [helper.make_tensor_value_info("x", 1, ["t", dim, 4])] if inputs else []
    ends = [helper.make_tensor_value_info(output, 1, ["t", dim, 4] if output == "y" else None)]
    graph = helper.make_graph(nodes, "g", reads, ends, stored)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


def test_a_fault_of_advice_breaks_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A refusal stays the refusal, and what was converted is converted."""
    source = named(tmp_path / "m.onnx", "a", "b")

    def faulty(*_: object, **__: object) -> None:
        raise KeyError(140)

    for name, target in registry.named("export_to").items():
        if name != "ncnn":
            monkeypatch.setattr(target, "graph", faulty)

    def refusing(*_: object, **__: object) -> None:
        raise RefusedError("a thing", "ncnn", "for the test", "", "a")

    monkeypatch.setattr(registry.named("export_to")["ncnn"], "graph", refusing)
    with pytest.raises(RefusedError, match="a thing"):
        export_model(source, tmp_path / "m.param")
    done = CliRunner().invoke(main, ["convert", str(source), str(tmp_path / "o.onnx")])
    assert done.exit_code == 0, done.output


def test_an_output_that_no_layer_gives_and_a_model_without_an_input_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RefusedError):
        export_model(with_constants(tmp_path / "c.onnx", "c"), tmp_path / "c.json", format="guitarml")
    with pytest.raises(RefusedError, match="without an input"):
        scaffold(with_constants(tmp_path / "n.onnx", inputs=False), "keras")


def test_integers_beyond_those_of_a_format_are_refused_by_name(tmp_path: Path) -> None:
    from rnnconvert.formats.onnx.proto.nodes import proto_node

    proto_node("Conv", ["x"], ["y"], "conv", {"strides": [(1 << 63) - 1, -(1 << 63)]})
    for number in (1 << 63, -(1 << 63) - 1, 10**400):
        with pytest.raises(RefusedError, match=r"conv.*strides"):
            proto_node("Conv", ["x"], ["y"], "conv", {"strides": [1, number]})
        with pytest.raises(RefusedError, match="axis"):
            proto_node("Concat", ["x"], ["y"], "join", {"axis": number})
    with pytest.raises(RefusedError, match="32 bits"):
        export_model(with_constants(tmp_path / "d.onnx", dim=1 << 62), tmp_path / "d.tflite")


def test_settings_of_other_types_are_refused_by_name() -> None:
    for axis in ("complex64", ["complex64"], 1.5, True):
        with pytest.raises(UnreadableError, match=r"norm.*axis"):
            live_units.lookup({"name": "norm", "axis": axis}, 3, Era("3.15.0"))("axis")
    assert live_units.lookup({"name": "norm", "axis": [2]}, 3, Era("3.15.0"))("axis") == (-1,)


def test_slopes_of_another_number_are_refused() -> None:
    def refused(node: Any, feature: str, reason: str) -> RefusedError:
        return RefusedError(feature, "ONNX", reason, "", "prelu")

    graph: Any = SimpleNamespace(weights=SimpleNamespace(numbers=lambda path: np.ones(72)), path=str, refused=refused)
    node: Any = SimpleNamespace(kind=kinds.PReLU((12, 0), vector=False))
    with pytest.raises(RefusedError, match="72 slopes"):
        graph_layers._prelu(graph, node)
