"""Models written in part: what is not known raises in its place, everything else is written and filled."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import rnnconvert as rc
from tests.helpers import onnx_graphs
from tests.helpers.drawn import each
from tests.helpers.random_models import fill
from tests.helpers.requirements import needed
from tests.scaffolding.test_scaffold import module_at
from tests.scaffolding.test_scaffold_targets import TARGETS, require

pytestmark = [pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")]
WEIGHTS = {"pytorch": "w.pt", "keras": "w.weights.h5", "flax": "w.msgpack"}


def saved(tmp_path: Path, shaped: bool = True) -> tuple[Any, Path]:
    """A model with a class of a user's own, a Lambda and an operation among its layers; the Lambda's shape is stated or not."""
    keras = needed("keras", "keras")
    layers = keras.layers

    class Mine(layers.Layer):
        def build(self, shape: Any) -> None:
            self.kernel = self.add_weight(shape=(shape[-1], 3), name="kernel")

        def call(self, x: Any) -> Any:
            return keras.ops.matmul(x, self.kernel)

    keras.utils.clear_session()
    start = keras.Input((None, 4), name="features")
    x = layers.LSTM(5, return_sequences=True, name="first")(start)
    x = layers.Dense(2, name="dense")(Mine(name="mine")(x))
    x = layers.GRU(3, name="second")(layers.Lambda(lambda t: t * 2, name='twi"ce')(x))
    ends = [layers.Dense(1, name="last")(keras.ops.log10(x))]
    if not shaped:
        ends.append(layers.Lambda(lambda t: t + 1, name="more")(x))
    model = keras.Model(start, ends)
    fill(model, 3)
    model.save(path := tmp_path / "model.keras")
    return model, path


@pytest.mark.parametrize("target", TARGETS)
def test_what_is_not_known_raises_in_its_place_and_the_rest_is_filled(tmp_path: Path, target: str) -> None:
    require(target)
    model, path = saved(tmp_path)
    output, weights = tmp_path / "model.py", tmp_path / WEIGHTS[target]
    with pytest.raises(rc.RefusedError, match=r"'mine'.* 'tests.scaffolding.test_scaffold_partial>Mine'.* --partial writes the rest"):
        rc.scaffold(path, target, output)
    assert not output.exists()
    done = rc.scaffold(path, target, output, weights=weights, partial=True)
    assert [why.split("'")[1] for why in done.missing] == ["mine", "twi?ce", "log10"]
    assert weights.exists() and done.text == output.read_text()
    assert done.text.count("raise NotImplementedError(\"layer '") == 3
    assert "(batch, time, 3)" in done.text  # what the user's own layer gives, as the layer behind it states
    filled = module_at(output).load(str(path))
    with pytest.raises(NotImplementedError, match="mine"):
        x = np.zeros((2, 4, 4), np.float32)
        filled(needed("torch", "torch").from_numpy(x) if target == "pytorch" else x)
    wanted = needed("keras", "keras").ops.convert_to_numpy(model.get_layer("last").kernel)
    last = filled.get_layer("last") if target == "keras" else filled.last
    kernel = last.weight.T if target == "pytorch" else last.kernel[...]
    kernel = np.asarray(kernel.detach() if hasattr(kernel, "detach") else kernel)
    np.testing.assert_array_equal(kernel, wanted)
    ran = subprocess.run([sys.executable, "-m", "ruff", "check", "--isolated", str(output)], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout


def test_nothing_that_is_left_out_is_proved(tmp_path: Path) -> None:
    _, path = saved(tmp_path)
    with pytest.raises(rc.UsageError, match=r"written in part.*'mine'.*Leave out --verify"):
        rc.scaffold(path, "pytorch", tmp_path / "model.py", partial=True, verify=True)
    assert not (tmp_path / "model.py").exists()


def test_a_shape_that_nothing_states_stays_open(tmp_path: Path) -> None:
    _, path = saved(tmp_path, shaped=False)
    done = rc.scaffold(path, "pytorch", tmp_path / "model.py", partial=True)
    assert "= ...  # (?), from" in done.text
    with pytest.raises(rc.RefusedError, match="states no shape"):
        rc.scaffold(path, "keras", tmp_path / "keras.py", partial=True)


def test_a_complete_model_is_the_same_in_part(tmp_path: Path) -> None:
    done = rc.scaffold("examples/old_tagger.h5", "pytorch", partial=True, verify=True)
    assert done.equal and not done.missing
    assert done.text == rc.scaffold("examples/old_tagger.h5", "pytorch").text


def test_an_old_model_with_code_in_it(tmp_path: Path) -> None:
    import h5py

    with h5py.File("examples/old_tagger.h5") as old, h5py.File(tmp_path / "code.h5", "w") as new:
        for name in old:
            old.copy(name, new)
        new.attrs.update(old.attrs)
        document = json.loads(old.attrs["model_config"])
        layers = document["config"]["layers"] if isinstance(document["config"], dict) else document["config"]
        number = next(n for n, layer in enumerate(layers) if layer["class_name"] in ("LSTM", "GRU", "Bidirectional"))
        code = {"class_name": "Lambda", "config": {"name": "code", "function": ["4wEAAAA=", None, None], "function_type": "lambda"}}
        layers.insert(number, code)
        new.attrs["model_config"] = json.dumps(document)
    with pytest.raises(rc.RefusedError, match=r"'code'.*'Lambda'.*--partial writes the rest|'code'.*'Lambda'.*Replace it"):
        rc.scaffold(tmp_path / "code.h5", "pytorch")
    done = rc.scaffold(tmp_path / "code.h5", "pytorch", tmp_path / "model.py", weights=tmp_path / "model.pt", partial=True)
    assert [why.split("'")[1] for why in done.missing] == ["code"]
    assert "= ...  # (batch, time, " in done.text


GRAPHS = ("onnx", "trace", "program", "live")


def of_graph(kind: str, folder: Path) -> tuple[Any, dict[str, Any]]:
    """Return a graph with an operator that is not known between its layers, and what `scaffold` takes besides."""
    torch = needed("torch", "torch")

    class Part(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = torch.nn.Linear(4, 8), torch.nn.LSTM(8, 5, batch_first=True)
            self.last = torch.nn.Linear(5, 2)

        def forward(self, x: Any) -> Any:
            x, _ = self.second(torch.digamma(torch.abs(self.first(x)) + 1))
            return self.last(x)

    torch.manual_seed(1)
    module, x = Part().eval(), torch.zeros(2, 7, 4)
    if kind == "live":
        return module, {"example": x}
    if kind == "trace":
        torch.jit.trace(module, x).save(str(folder / "m.pt"))
        return folder / "m.pt", {}
    if kind == "program":
        torch.export.save(torch.export.export(module, (x,)), folder / "m.pt2")
        return folder / "m.pt2", {}
    path, axes = folder / "m.onnx", {"x": {0: "b", 1: "t"}}
    plain = torch.nn.Sequential(module.first, torch.nn.ReLU())
    module.forward = lambda x: module.last(module.second(plain(x))[0])
    torch.onnx.export(module, (x,), str(path), dynamo=False, input_names=["x"], dynamic_axes=axes)
    model = onnx.load(path)
    node = next(node for node in model.graph.node if node.op_type == "Relu")
    node.op_type, node.domain = "Special", "of.its.author"
    model.opset_import.append(onnx.helper.make_opsetid("of.its.author", 1))
    del model.graph.value_info[:]
    onnx.save(model, path)
    return path, {}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.filterwarnings("ignore:::")
def test_operators_of_graphs_raise_in_their_places_and_the_layers_around_them_are_filled(tmp_path: Path, target: str) -> None:
    require(target)

    def check(kind: str) -> None:
        source, options = of_graph(kind, tmp_path)
        output, weights = tmp_path / f"{kind}.py", tmp_path / f"{kind}_{WEIGHTS[target]}"
        operator = "Special" if kind == "onnx" else "digamma"
        with pytest.raises(rc.RefusedError, match=rf"{operator}.* (--partial|partial=True) writes the rest"):
            rc.scaffold(source, target, output, **options)
        assert not output.exists()
        done = rc.scaffold(source, target, output, weights=weights, partial=True, **options)
        assert len(done.missing) == 1 and operator in done.missing[0] and weights.exists()
        assert done.text.count(f"the operator {operator}") == 2
        filled = module_at(output).load(source if kind == "live" else str(source))
        last = next(layer for layer in filled.layers if layer.name == "last") if target == "keras" else filled.last
        assert np.asarray(last.weight.detach() if target == "pytorch" else last.kernel[...]).any()
        ran = subprocess.run([sys.executable, "-m", "ruff", "check", "--isolated", str(output)], capture_output=True, text=True)
        assert ran.returncode == 0, ran.stdout

    each(GRAPHS, check)


def test_a_window_that_no_layer_with_channels_at_the_end_has_is_left_out(tmp_path: Path) -> None:
    path = onnx_graphs.saved(tmp_path / "m.onnx", *onnx_graphs.OPERATORS["pool dilated"])
    done = rc.scaffold(path, "keras", partial=True)
    assert len(done.missing) == 1 and "a pool over places apart" in done.missing[0]


def test_layers_behind_an_operator_of_unknown_shape_are_written(tmp_path: Path) -> None:
    nodes = [
        onnx.helper.make_node("NonZero", ["x"], ["places"]),
        onnx.helper.make_node("Special", ["places"], ["y"], domain="of.its.author"),
        onnx.helper.make_node("MatMul", ["y", "dense.weight"], ["z"]),
    ]
    path = onnx_graphs.saved(tmp_path / "m.onnx", nodes, {"x": ["b", 3]}, ["z"], {"dense.weight": onnx_graphs.numbers(6, 4)})
    done = rc.scaffold(path, "pytorch", partial=True)
    assert "nn.Linear(6, 4, bias=False)" in done.text and len(done.missing) == 2


def test_the_command_names_what_is_left_out(tmp_path: Path) -> None:
    saved(tmp_path)

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "rnnconvert", "scaffold", "model.keras", *words], cwd=tmp_path, capture_output=True, text=True
        )

    refused = run("-o", "model.py")
    assert refused.returncode == 4 and "--partial writes the rest" in refused.stderr
    done = run("-o", "model.py", "--partial")
    assert done.returncode == 0 and "left out: layer 'mine'" in done.stdout + done.stderr
    assert run("-o", "b.py", "--partial", "--verify").returncode == 2
    assert not (tmp_path / "b.py").exists()
