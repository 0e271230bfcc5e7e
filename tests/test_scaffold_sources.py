"""Whole models of ONNX, TorchScript and torch.export as files of PyTorch: written, filled, run beside the source, and refused by name."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import rnnconvert as rc
from rnnconvert.scaffolding.sizes import divided, open_size
from tests import corpus, random_torch
from tests.drawn import drawn, each
from tests.requirements import needed
from tests.test_scaffold import module_at

CLOSE = 2e-5


def test_lengths_are_divided_where_that_is_exact_for_every_run() -> None:
    batch, time = open_size("batch"), open_size("time")
    whole = (batch * 6) * (time - 1)
    assert divided(whole, batch * (time - 1)) == 6
    assert divided(whole, time) is None
    assert whole // 4 == whole // 4 and whole // 4 != whole // 5
    assert (time + 3) - time == 3 and divided(batch * 0 + 6, 3) == 2


# Modules of torch, by every way into a file


def exported(kind: str, module: Any, embeds: bool, path: Path) -> Path:
    """Return a file of a module."""
    torch = needed("torch", "torch")
    x = random_torch.inputs(embeds, 3, 12)
    if kind == "script":
        torch.jit.script(module).save(str(path := path.with_suffix(".pt")))
    elif kind == "trace":
        torch.jit.trace(module, x).save(str(path := path.with_suffix(".pt")))
    elif kind == "program":
        dims = {"x": {0: torch.export.Dim("batch")}}
        torch.export.save(torch.export.export(module, (x,), dynamic_shapes=dims), path := path.with_suffix(".pt2"))
    else:
        path, opened = path.with_suffix(".onnx"), {"x": {0: "batch", 1: "time"}}
        torch.onnx.export(module, (x,), str(path), dynamo=False, input_names=["x"], dynamic_axes=opened, opset_version=17)
    return path


@pytest.mark.parametrize("kind", ["onnx", "script", "trace", "program"])
@pytest.mark.filterwarnings("ignore:::")  # torch.jit.trace warns of comparisons in torch's own modules
def test_random_modules_are_equal_or_refused_by_name(tmp_path: Path, kind: str) -> None:
    torch = needed("torch", "torch")

    def check(seed: int) -> None:
        module, embeds = random_torch.module(seed, tmp_path)
        path = exported(kind, module, embeds, tmp_path / f"{kind}_{seed}")
        target = tmp_path / f"{kind}_{seed}_written.py"
        try:
            rc.scaffold(path, "pytorch", target)
        except rc.RefusedError as error:
            assert kind == "script" and "an open axis cut into parts" in str(error)
            assert not target.exists()
            return
        filled = module_at(target).load(str(path))
        for batch, time in ((3, 12), (2, 15 if kind in ("onnx", "script") else 12)):
            x = random_torch.inputs(embeds, batch, time)
            with torch.no_grad():
                got, wanted = filled(x), module(x)
            assert got.shape == wanted.shape
            assert float((got - wanted).abs().max()) < CLOSE

    each(drawn(range(200), 3, f"scaffolded modules {kind}"), check)


# Real files


def test_real_onnx_models_run_as_written(tmp_path: Path) -> None:
    if corpus.absent():
        pytest.skip(corpus.absent())
    needed("torch", "torch"), needed("onnxruntime", "onnxruntime")

    def check(name: str) -> None:
        done = rc.scaffold(corpus.FOLDER / name, "pytorch", tmp_path / f"{name.replace('/', '_')}.py", verify=True)
        assert done.equal

    each(
        (
            "silero-vad-v6/silero_vad_openvino_16k.onnx", "dtln-base/model_1.onnx", "dtln-base/model_2.onnx", "tract-bidi-lstm/model.onnx",
            "opencv-onnx-basic/models/gru_bi.onnx", "opencv-onnx-basic/models/lstm_cell_bidirectional.onnx",
            "burn-onnx-tests/gru_reverse.onnx", "burn-onnx-tests/lstm_with_initial_state.onnx",
            "ort-cntk-rnn/test_LSTM.tanh.bidirectional/model.onnx",
        ),
        check,
    )  # fmt: skip


# Graphs made by hand: what looks alike and is not


def saved(
    path: Path, nodes: list[Any], inputs: dict[str, list[Any]], outputs: list[str], arrays: dict[str, Any], opset: int = 17,
    types: dict[str, int] | None = None,
) -> Path:  # fmt: skip
    """Return a file of a graph."""
    kinds = types or {}
    graph = helper.make_graph(
        nodes,
        "model",
        [helper.make_tensor_value_info(name, kinds.get(name, TensorProto.FLOAT), shape) for name, shape in inputs.items()],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in arrays.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8), path)
    return path


def numbers(*shape: int, seed: int = 0) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).uniform(-0.6, 0.6, shape).astype(np.float32)


def one(kind: str, shape: list[Any], arrays: dict[str, Any] | None = None, opset: int = 17, **attributes: Any) -> tuple[Any, ...]:
    """A graph of one node on x."""
    node = helper.make_node(kind, ["x", *(arrays or {})], ["y"], **attributes)
    return [node], {"x": shape}, ["y"], arrays or {}, opset


GRAPHS = {
    "conv, more at the end": one("Conv", ["b", 4, "t"], {"w": numbers(6, 4, 3)}, pads=[0, 2]),
    "conv, SAME_LOWER": one("Conv", ["b", 4, "t"], {"w": numbers(6, 4, 2)}, auto_pad="SAME_LOWER"),
    "conv, SAME_UPPER with strides": one("Conv", ["b", 4, 13], {"w": numbers(6, 4, 4)}, auto_pad="SAME_UPPER", strides=[3]),
    "transposed, uneven pads": one("ConvTranspose", ["b", 4, "t"], {"w": numbers(4, 6, 3)}, strides=[2], pads=[0, 1]),
    "pool, ceil": one("MaxPool", ["b", 4, "t"], kernel_shape=[2], strides=[2], ceil_mode=1),
    "pool, uneven pads": one("MaxPool", ["b", 4, "t"], kernel_shape=[3], strides=[2], pads=[2, 0]),
    "average, pads not counted": one("AveragePool", ["b", 4, "t"], kernel_shape=[3], strides=[1], pads=[1, 1]),
    "average, uneven pads": one("AveragePool", ["b", 4, "t"], kernel_shape=[3], strides=[2], pads=[0, 1]),
    "average, pads counted": one("AveragePool", ["b", 4, "t"], kernel_shape=[3], pads=[1, 1], count_include_pad=1),
    "softmax before opset 13": one("Softmax", ["b", 3, 4], opset=11, axis=1),
    "softmax since": one("Softmax", ["b", 3, 4], opset=13, axis=1),
    "hard sigmoid": one("HardSigmoid", ["b", 3]),
    "layer norm over two axes": one("LayerNormalization", ["b", 3, 4], {
        "s": numbers(3, 4), "o": numbers(3, 4, seed=1)}, axis=1, epsilon=0.1),
    "batch norm": one("BatchNormalization", ["b", 4, "t"], {
        "s": numbers(4), "o": numbers(4, seed=1), "m": numbers(4, seed=2), "v": numbers(4, seed=3) + 1}, epsilon=0.05),
    "gemm with factors": one("Gemm", ["b", 4], {"w": numbers(5, 4), "c": numbers(5)}, transB=1, alpha=0.5, beta=2.0),
    "bias along the batch's side": one("Add", ["b", 3, 4], {"o": numbers(3, 1)}),
    "slice from the end": one("Slice", ["b", "t", 3], {
        "s": np.array([-1]), "e": np.array([-(1 << 40)]), "a": np.array([1]), "p": np.array([-1])}),
    "clip at one end": one("Clip", ["b", 3], {"low": np.float32(-0.25)}),
}  # fmt: skip


def runs_alike(path: Path, target: Path) -> None:
    assert rc.scaffold(path, "pytorch", target, verify=True).equal


def test_graphs_that_look_alike(tmp_path: Path) -> None:
    needed("torch", "torch"), needed("onnxruntime", "onnxruntime")

    def check(name: str) -> None:
        runs_alike(saved(tmp_path / f"{name}.onnx", *GRAPHS[name]), tmp_path / f"{name}.py")

    each(GRAPHS, check)


def recurrent(kind: str, inputs: list[str], arrays: dict[str, Any], layout: int = 0, **attributes: Any) -> tuple[Any, ...]:
    """A graph of a recurrent node with all of its outputs."""
    gates, ways = {"LSTM": 4, "GRU": 3, "RNN": 1}[kind], 2 if attributes.get("direction") == "bidirectional" else 1
    own = {"w": numbers(ways, gates * 5, 3), "r": numbers(ways, gates * 5, 5, seed=1), "b": numbers(ways, 2 * gates * 5, seed=2), **arrays}
    outputs = ["y", "h", "c"] if kind == "LSTM" else ["y", "h"]
    words = {"layout": layout} if layout else {}
    node = helper.make_node(kind, ["x", "w", "r", "b", *inputs], outputs, hidden_size=5, **words, **attributes)
    return [node], {"x": ["t", "b", 3] if not layout else ["b", "t", 3]}, outputs, own, 17


RECURRENT = {
    "reset before": recurrent("GRU", [], {}),
    "reset after": recurrent("GRU", [], {}, linear_before_reset=1),
    "both ways": recurrent("LSTM", [], {}, direction="bidirectional"),
    "from the end": recurrent("LSTM", [], {}, direction="reverse"),
    "relu": recurrent("RNN", [], {}, activations=["Relu"]),
    "a learned state": recurrent("GRU", ["", "s"], {"s": numbers(1, 1, 5, seed=7).repeat(4, 1)}, linear_before_reset=1),
}


def test_recurrent_nodes(tmp_path: Path) -> None:
    needed("torch", "torch"), needed("onnxruntime", "onnxruntime")

    def check(name: str) -> None:
        graph = RECURRENT[name]
        if name == "a learned state":
            graph = (graph[0], {"x": ["t", 4, 3]}, *graph[2:])
        runs_alike(saved(tmp_path / f"{name}.onnx", *graph), tmp_path / f"{name}.py")

    each([name for name in RECURRENT if name != "a learned state"], check)


def test_lengths_of_sequences(tmp_path: Path) -> None:
    needed("torch", "torch"), needed("onnxruntime", "onnxruntime")
    nodes, inputs, outputs, arrays, opset = recurrent("GRU", ["lengths"], {}, linear_before_reset=1, direction="bidirectional")
    inputs |= {"lengths": ["b"]}
    path = saved(tmp_path / "m.onnx", nodes, inputs, outputs, arrays, opset, {"lengths": TensorProto.INT32})
    runs_alike(path, tmp_path / "m.py")


@pytest.mark.parametrize(
    ("graph", "match"),
    [
        (recurrent("LSTM", [], {}, clip=0.5), "clip"),
        (recurrent("LSTM", [], {}, input_forget=1), "coupled"),
        (recurrent("LSTM", ["", "", "", "p"], {"p": numbers(1, 15)}), "peepholes"),
        (one("NonZero", ["b", 3]), "the operator NonZero"),
        (one("AveragePool", ["b", 4, "t"], kernel_shape=[3], strides=[2], pads=[1, 1], ceil_mode=1), "ceil_mode"),
    ],
)
def test_what_cannot_be_written_is_refused_by_name_and_place(tmp_path: Path, graph: tuple[Any, ...], match: str) -> None:
    path = saved(tmp_path / "m.onnx", *graph)
    with pytest.raises(rc.RefusedError, match=match):
        rc.scaffold(path, "pytorch", tmp_path / "m.py")
    assert not (tmp_path / "m.py").exists()


ODD = ['"""\nimport os; os.system("touch owned")\n"""', "class", "self", "état 漢", "a'b\"c\\", "nn", "1st"]


def test_no_name_of_a_graph_becomes_code(tmp_path: Path) -> None:
    torch = needed("torch", "torch")
    nodes, arrays, value = [], {}, "x"
    for number, name in enumerate(ODD):
        arrays[f"{name}.weight"] = numbers(3, 3, seed=number)
        nodes.append(helper.make_node("MatMul", [value, f"{name}.weight"], [name], name=name))
        value = name
    path = saved(tmp_path / "m.onnx", nodes, {"x": ['b"""; import os', 3]}, [value], arrays)
    target = tmp_path / "m.py"
    rc.scaffold(path, "pytorch", target)
    filled = module_at(target).load(str(path))
    x, truth = numbers(2, 3, seed=50), numbers(2, 3, seed=50)
    for number in range(len(ODD)):
        truth = truth @ numbers(3, 3, seed=number)
    assert np.abs(filled(torch.tensor(x)).detach().numpy() - truth).max() < CLOSE
    assert not Path("owned").exists()
    ran = subprocess.run([sys.executable, "-m", "ruff", "check", "--isolated", str(target)], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + target.read_text()
