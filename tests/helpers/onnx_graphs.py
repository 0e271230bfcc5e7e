"""Graphs of ONNX made by hand: each operator that `scaffold` knows, and those that look alike and are not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import rnnconvert as rc
from tests.helpers.requirements import needed


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
        [helper.make_tensor_value_info(name, kinds.get(name, TensorProto.FLOAT), None) for name in outputs],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in arrays.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8), path)
    return path


def numbers(*shape: int, seed: int = 0) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).uniform(-0.6, 0.6, shape).astype(np.float32)


def op(kind: str, shape: list[Any], arrays: dict[str, Any] | None = None, opset: int = 17, **attributes: Any) -> tuple[Any, ...]:
    """A graph of one node on x."""
    node = helper.make_node(kind, ["x", *(arrays or {})], ["y"], **attributes)
    return [node], {"x": shape}, ["y"], arrays or {}, opset


def line(*nodes: tuple[str, list[str], dict[str, Any]], arrays: dict[str, Any]) -> tuple[Any, ...]:
    """A graph of nodes in a row on x of (b, 4, t): for each its operator, its other inputs and its attributes."""
    chained = []
    for n, (kind, more, attributes) in enumerate(nodes):
        chained.append(helper.make_node(kind, [f"v{n}" if n else "x", *more], [f"v{n + 1}"], **attributes))
    return chained, {"x": ["b", 4, "t"]}, [f"v{len(nodes)}"], arrays, 17


GRAPHS = {
    "conv, more at the end": op("Conv", ["b", 4, "t"], {"w": numbers(6, 4, 3)}, pads=[0, 2]),
    "conv, SAME_LOWER": op("Conv", ["b", 4, "t"], {"w": numbers(6, 4, 2)}, auto_pad="SAME_LOWER"),
    "conv, SAME_UPPER with strides": op("Conv", ["b", 4, 13], {"w": numbers(6, 4, 4)}, auto_pad="SAME_UPPER", strides=[3]),
    "transposed, uneven pads": op("ConvTranspose", ["b", 4, "t"], {"w": numbers(4, 6, 3)}, strides=[2], pads=[0, 1]),
    "pool, ceil": op("MaxPool", ["b", 4, "t"], kernel_shape=[2], strides=[2], ceil_mode=1),
    "pool, uneven pads": op("MaxPool", ["b", 4, "t"], kernel_shape=[3], strides=[2], pads=[2, 0]),
    "average, pads not counted": op("AveragePool", ["b", 4, "t"], kernel_shape=[3], strides=[1], pads=[1, 1]),
    "average, uneven pads": op("AveragePool", ["b", 4, "t"], kernel_shape=[3], strides=[2], pads=[0, 1]),
    "average, pads counted": op("AveragePool", ["b", 4, "t"], kernel_shape=[3], pads=[1, 1], count_include_pad=1),
    "softmax before opset 13": op("Softmax", ["b", 3, 4], opset=11, axis=1),
    "softmax since": op("Softmax", ["b", 3, 4], opset=13, axis=1),
    "hard sigmoid": op("HardSigmoid", ["b", 3]),
    "layer norm over two axes": op("LayerNormalization", ["b", 3, 4], {
        "s": numbers(3, 4), "o": numbers(3, 4, seed=1)}, axis=1, epsilon=0.1),
    "batch norm": op("BatchNormalization", ["b", 4, "t"], {
        "s": numbers(4), "o": numbers(4, seed=1), "m": numbers(4, seed=2), "v": numbers(4, seed=3) + 1}, epsilon=0.05),
    "gemm with factors": op("Gemm", ["b", 4], {"w": numbers(5, 4), "c": numbers(5)}, transB=1, alpha=0.5, beta=2.0),
    "bias along the batch's side": op("Add", ["b", 3, 4], {"o": numbers(3, 1)}),
    "slice from the end": op("Slice", ["b", "t", 3], {
        "s": np.array([-1]), "e": np.array([-(1 << 40)]), "a": np.array([1]), "p": np.array([-1])}),
    "slice of the batch": ([
        helper.make_node("Slice", ["x", "s", "e"], ["v"]), helper.make_node("Relu", ["v"], ["y"])], {"x": [4, 3]}, ["y"], {
        "s": np.array([1]), "e": np.array([3])}, 17),
    "clip at one end": op("Clip", ["b", 3], {"low": np.float32(-0.25)}),
}  # fmt: skip
"""What looks alike and is not."""

OPERATORS = {
    "conv 2d strides pads": op("Conv", ["b", 4, "h", 12], {"w": numbers(6, 4, 3, 2), "c": numbers(6)}, strides=[2, 1], pads=[1, 0, 2, 1]),
    "conv 2d same": op("Conv", ["b", 4, 9, 12], {"w": numbers(6, 2, 3, 3)}, group=2, auto_pad="SAME_UPPER"),
    "conv 1d causal": op("Conv", ["b", 4, "t"], {"w": numbers(6, 4, 3)}, pads=[4, 0], dilations=[2]),
    "depthwise": op("Conv", ["b", 4, "t"], {"w": numbers(8, 1, 3)}, group=4),
    "transposed 2d": op(
        "ConvTranspose",
        ["b", 4, 5, 6],
        {"w": numbers(4, 3, 3, 2), "c": numbers(3)},
        strides=[2, 3],
        pads=[1, 0, 1, 0],
        output_padding=[1, 0],
    ),
    "transposed groups": op("ConvTranspose", ["b", 4, "t"], {"w": numbers(4, 3, 3)}, group=2),
    "transposed, places apart in groups": op(
        "ConvTranspose", ["b", 4, 5, 6], {"w": numbers(4, 2, 3, 2)}, group=2, dilations=[2, 3], strides=[1, 2], pads=[1, 0, 2, 1]
    ),
    "overwritten": (
        [helper.make_node("ScatterND", ["x", "k", "u"], ["y"])],
        {"x": [2, 5, 4, 3], "u": [2, 2, 3, 3]},
        ["y"],
        {"k": np.stack(np.meshgrid([0, 1], [1, 2], [1, 2, 3], indexing="ij"), -1)},
        17,
    ),
    "a row overwritten": (
        [helper.make_node("ScatterND", ["x", "k", "u"], ["y"])],
        {"x": [4, 3], "u": [1, 3]},
        ["y"],
        {"k": np.array([[-2]])},
        17,
    ),
    "many whole numbers": op("Gather", ["b", 6, 3], {"k": np.arange(100) * 7 % 6}, axis=1),
    "instance": op("InstanceNormalization", ["b", 4, "t"], {"s": numbers(4), "o": numbers(4, seed=1)}, epsilon=0.1),
    "group": op("GroupNormalization", ["b", 4, "t"], {"s": numbers(4), "o": numbers(4, seed=1)}, opset=21, num_groups=2),
    "prelu": op("PRelu", ["b", 4, "t"], {"s": numbers(4, 1)}),
    "prelu one": op("PRelu", ["b", 4, "t"], {"s": numbers(1)}),
    "conv chain": line(
        ("Conv", ["w"], {"pads": [1, 1]}),
        ("Relu", [], {}),
        ("Conv", ["w2"], {"strides": [2], "pads": [1, 1]}),
        ("MaxPool", [], {"kernel_shape": [2], "strides": [2]}),
        ("BatchNormalization", ["s", "o", "m", "v"], {}),
        ("GlobalAveragePool", [], {}),
        ("Flatten", [], {}),
        arrays={
            "w": numbers(5, 4, 3),
            "w2": numbers(6, 5, 3),
            "s": numbers(6),
            "o": numbers(6, seed=1),
            "m": numbers(6, seed=2),
            "v": numbers(6, seed=3) + 1,
        },
    ),
    "softmax over channels": line(("Conv", ["w"], {}), ("Softmax", [], {"axis": 1}), arrays={"w": numbers(5, 4, 3)}),
    "reduce channels": line(("Conv", ["w"], {}), ("ReduceMean", [], {"axes": [1], "keepdims": 0}), arrays={"w": numbers(5, 4, 3)}),
    "slice channels": line(
        ("Conv", ["w"], {}),
        ("Slice", ["s", "e", "a"], {}),
        ("Relu", [], {}),
        arrays={"w": numbers(5, 4, 3), "s": np.array([1]), "e": np.array([3]), "a": np.array([1])},
    ),
    "topk": ([helper.make_node("TopK", ["x", "k"], ["y", "i"])], {"x": ["b", 6]}, ["y"], {"k": np.array([2])}, 17),
    "gather": op("Gather", ["b", 6, 3], {"k": np.array([2, 0, 5])}, axis=1),
    "gather elements": op("GatherElements", [2, 6], {"k": np.array([[2, 0], [1, 5]])}, axis=1),
    "gather elements of a part": op("GatherElements", [3, 6], {"k": np.array([[2, 0]])}, axis=1),
    "gather nd": op("GatherND", [2, "t", 3], {"k": np.array([[[1, -1], [0, 2]], [[-2, 0], [1, -2]]])}),
    "cumsum": op("CumSum", ["b", "t", 3], {"k": np.array(1)}),
    "cumsum reversed": op("CumSum", ["b", "t", 3], {"k": np.array(1)}, reverse=1),
    "tile": op("Tile", ["b", 3, 2], {"k": np.array([1, 2, 3])}),
    "pad reflect": op("Pad", ["b", 3, "t"], {"k": np.array([0, 0, 2, 0, 0, 1])}, mode="reflect"),
    "pad edge": op("Pad", ["b", 3, "t"], {"k": np.array([0, 0, 2, 0, 0, 1])}, mode="edge"),
    "pad number": op("Pad", ["b", 3, "t"], {"k": np.array([0, 1, 2, 0, 0, 1]), "v": np.float32(0.5)}),
    "argmax": (
        [helper.make_node("ArgMax", ["x"], ["i"], axis=1, keepdims=0), helper.make_node("Cast", ["i"], ["y"], to=1)],
        {"x": ["b", 3, "t"]},
        ["y"],
        {},
        17,
    ),
    "trilu": op("Trilu", ["b", 5, 5], {"k": np.array(1)}, upper=0),
    "expand": op("Expand", ["b", 1, 3], {"k": np.array([1, 4, 3])}),
    "log softmax": op("LogSoftmax", ["b", 4, 3], axis=1),
    "where": (
        [helper.make_node("Greater", ["x", "z"], ["g"]), helper.make_node("Where", ["g", "x", "z"], ["y"])],
        {"x": ["b", 3]},
        ["y"],
        {"z": numbers(3)},
        17,
    ),
    "einsum": (
        [helper.make_node("Einsum", ["x", "w"], ["y"], equation="btc,cd->btd")],
        {"x": ["b", "t", 3]},
        ["y"],
        {"w": numbers(3, 4)},
        17,
    ),
    "split": ([helper.make_node("Split", ["x", "k"], ["y", "z"], axis=1)], {"x": ["b", 5, "t"]}, ["y", "z"], {"k": np.array([2, 3])}, 17),
    "split rows": (
        [
            helper.make_node("Transpose", ["x"], ["t"], perm=[1, 0, 2]),
            helper.make_node("Reshape", ["t", "rows"], ["r"]),
            helper.make_node("Split", ["r"], ["u", "v", "w"], axis=0),
            helper.make_node("Concat", ["w", "u", "v"], ["y"], axis=1),
        ],
        {"x": ["b", 3, 4]},
        ["y"],
        {"rows": np.array([-1, 4])},
        13,
    ),
    "slice from before the start": op(
        "Slice", ["b", 3, 5], {"s": np.array([-9]), "e": np.array([2]), "a": np.array([2]), "p": np.array([3])}
    ),
    "product over two axes": op("ReduceProd", ["b", 3, 4], axes=[1, 2]),
    "mean with a setting for no axes": op("ReduceMean", ["b", 3, 4], {"a": np.array([1])}, 18, noop_with_empty_axes=1, keepdims=0),
    **{
        f"{kind} of no axes": (
            [helper.make_node(kind, ["x", "a"], ["r"], noop_with_empty_axes=1), helper.make_node("Neg", ["r"], ["y"])],
            {"x": ["b", 3, 4]},
            ["y"],
            {"a": np.zeros(0, np.int64)},
            18,
        )
        for kind in ("ReduceSum", "ReduceSumSquare", "ReduceL1", "ReduceL2")
    },
    "mod": ([helper.make_node("Mod", ["x", "z"], ["y"], fmod=1)], {"x": ["b", 3]}, ["y"], {"z": numbers(3) + 1}, 17),
    "logic": (
        [
            helper.make_node("Less", ["x", "z"], ["g"]),
            helper.make_node("Greater", ["x", "u"], ["h"]),
            helper.make_node("And", ["g", "h"], ["i"]),
            helper.make_node("Not", ["i"], ["j"]),
            helper.make_node("Cast", ["j"], ["y"], to=1),
        ],
        {"x": ["b", 3]},
        ["y"],
        {"z": numbers(3), "u": numbers(3, seed=4)},
        17,
    ),
    **{
        name: op(name, ["b", 3])
        for name in (
            *("Abs", "Neg", "Exp", "Sin", "Cos", "Floor", "Ceil", "Round", "Sign", "Erf", "Atan", "Sinh"),
            *("HardSwish", "Softsign", "Selu", "Celu", "Elu", "Softplus", "LeakyRelu", "ThresholdedRelu"),
        )
    },
    "Mish": op("Mish", ["b", 3], opset=18),
    "Gelu": op("Gelu", ["b", 3], opset=20),
    "Gelu tanh": op("Gelu", ["b", 3], opset=20, approximate="tanh"),
    "pool 2d avg pads": op("AveragePool", ["b", 4, "h", 11], kernel_shape=[3, 2], strides=[2, 1], pads=[1, 0, 1, 1]),
    "pool dilated": op("MaxPool", ["b", 4, "t"], kernel_shape=[3], dilations=[2]),
    "pool ceil stated": op("MaxPool", ["b", 4, 10], kernel_shape=[2], strides=[3], ceil_mode=1),
    "pool ceil average": op("AveragePool", ["b", 4, 9], kernel_shape=[2], strides=[2], ceil_mode=1),
    "reshape heads": (
        [
            helper.make_node("Reshape", ["x", "k"], ["v"]),
            helper.make_node("Transpose", ["v"], ["u"], perm=[0, 2, 1, 3]),
            helper.make_node("Softmax", ["u"], ["w"]),
            helper.make_node("Transpose", ["w"], ["z"], perm=[0, 2, 1, 3]),
            helper.make_node("Reshape", ["z", "l"], ["y"]),
        ],
        {"x": ["b", "t", 6]},
        ["y"],
        {"k": np.array([0, 0, 2, 3]), "l": np.array([0, 0, 6])},
        17,
    ),
    "shape of rows": (
        [
            helper.make_node("Shape", ["x"], ["s"]),
            helper.make_node("ConstantOfShape", ["s"], ["o"]),
            helper.make_node("Add", ["x", "o"], ["y"]),
        ],
        {"x": ["b", "t", 6]},
        ["y"],
        {},
        17,
    ),
    "range": (
        [
            helper.make_node("Shape", ["x"], ["s"], start=1, end=2),
            helper.make_node("Squeeze", ["s"], ["n"]),
            helper.make_node("Range", ["z", "n", "o"], ["r"]),
            helper.make_node("Cast", ["r"], ["f"], to=1),
            helper.make_node("Unsqueeze", ["f", "k"], ["g"]),
            helper.make_node("Mul", ["x", "g"], ["y"]),
        ],
        {"x": ["b", "t", 6]},
        ["y"],
        {"z": np.array(0), "o": np.array(1), "k": np.array([1])},
        17,
    ),
    "parameter both ways": ([helper.make_node("Mul", ["x", "p"], ["y"])], {"x": ["b", "t", 20]}, ["y"], {"p": numbers(20)}, 17),
}
"""The operators between layers, and layers whose channels are in front, alone and in a row."""


def recurrent(kind: str, inputs: list[str], arrays: dict[str, Any], layout: int = 0, **attributes: Any) -> tuple[Any, ...]:
    """A graph of a recurrent node with all of its outputs."""
    gates, ways = {"LSTM": 4, "GRU": 3, "RNN": 1}[kind], 2 if attributes.get("direction") == "bidirectional" else 1
    held = {"w": numbers(ways, gates * 5, 3), "r": numbers(ways, gates * 5, 5, seed=1), "b": numbers(ways, 2 * gates * 5, seed=2), **arrays}
    outputs = ["y", "h", "c"] if kind == "LSTM" else ["y", "h"]
    words = {"layout": layout} if layout else {}
    node = helper.make_node(kind, ["x", "w", "r", "b", *inputs], outputs, hidden_size=5, **words, **attributes)
    return [node], {"x": ["t", "b", 3] if not layout else ["b", "t", 3]}, outputs, held, 17


RECURRENT = {
    "reset before": recurrent("GRU", [], {}),
    "reset after": recurrent("GRU", [], {}, linear_before_reset=1),
    "both ways": recurrent("LSTM", [], {}, direction="bidirectional"),
    "from the end": recurrent("LSTM", [], {}, direction="reverse"),
    "relu": recurrent("RNN", [], {}, activations=["Relu"]),
    "clipped": recurrent("LSTM", [], {}, clip=0.5),
    "clipped both ways": recurrent("GRU", [], {}, clip=0.4, direction="bidirectional"),
    "clipped after": recurrent("GRU", [], {}, clip=0.4, linear_before_reset=1),
    "a learned state": recurrent("GRU", ["", "s"], {"s": numbers(1, 1, 5, seed=7).repeat(4, 1)}, linear_before_reset=1),
}


def in_onnxruntime(model: Path | bytes | onnx.ModelProto, *inputs: Any, **named: Any) -> list[Any]:
    """What onnxruntime gives for inputs in the order of the model's, or by name; names that it does not have are left out."""
    source = model.SerializeToString() if isinstance(model, onnx.ModelProto) else model
    session = needed("onnxruntime", "onnxruntime").InferenceSession(source, providers=["CPUExecutionProvider"])
    names = [entry.name for entry in session.get_inputs()]
    return list(session.run(None, dict(zip(names, inputs, strict=True)) if inputs else {name: named[name] for name in names}))


def check_as_onnx(path: Path, inputs: Mapping[str, Any], truth: Sequence[Any], **options: Any) -> None:
    """Write a file's model as ONNX beside it, and see that it gives in onnxruntime what its own framework gave.

    inputs   by their names
    options  of rnnconvert.export_model
    """
    target = path.parent / f"{path.stem.partition('-')[0]}.onnx"
    rc.export_model(path, target, **options)
    results = in_onnxruntime(target, **inputs)
    assert len(results) == len(truth)
    for result, expected in zip(results, truth, strict=True):
        np.testing.assert_allclose(result.reshape(expected.shape), expected, rtol=2e-5, atol=2e-5)
