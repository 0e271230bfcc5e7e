"""Whole models of Torch7 beside a second transcription of their modules in numpy. No Lua runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rnnconvert as rc
from rnnconvert.core import reference
from rnnconvert.core.arrays import Array
from rnnconvert.formats.torch7 import torch7_write
from rnnconvert.formats.torch7.torch7_file import LuaTable, Object
from tests.helpers import corpus
from tests.helpers.exported import RUNS
from tests.helpers.requirements import need, needed
from tests.helpers.sources import stack
from tests.helpers.torch7_modules import (
    concat,
    fast_lstm,
    gru,
    linear,
    loop,
    lstm,
    make,
    narrow,
    numbers,
    select,
    sequence,
    sigmoid,
    steps,
    storage,
)

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
TIME, BATCH, WIDTH, UNITS, WORDS = 5, 2, 3, 4, 6
RANDOM = np.random.default_rng(5)


def single(value: Any, seen: set[int] | None = None) -> Any:
    """Modules of float32."""
    seen = set() if seen is None else seen
    if isinstance(value, np.ndarray) and value.dtype == np.float64:
        return value.astype("f4")
    if isinstance(value, list | dict | Object) and id(value) not in seen:
        seen.add(id(value))
        fields = value.fields if isinstance(value, Object) else value
        for key, inner in [*(enumerate(fields) if isinstance(fields, list) else fields.items())]:
            fields[key] = single(inner, seen)
    return value


def seq_lstm(width: int = WIDTH, **fields: Any) -> Object:
    return make("SeqLSTM", weight=numbers(width + UNITS, 4 * UNITS), bias=numbers(4 * UNITS), **{"batchfirst": False, **fields})


def sequences(*shape: int) -> Array:
    return np.asarray(RANDOM.uniform(-1, 1, shape or (TIME, BATCH, WIDTH)).astype("f4"))


def agrees(folder: Path, root: Any, x: Array, expected: Array, target: str = "onnx") -> tuple[str, ...]:
    torch7_write.write(folder / "m.t7", single(root))
    done = rc.export_model(folder / "m.t7", folder / f"m.{target}", force=True)
    (y,) = RUNS[target](folder / f"m.{target}")([x])
    assert y.shape == expected.shape
    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=2e-6)
    return done.notes


def dense(module: Object) -> Callable[[Array], Array]:
    return lambda x: np.asarray(x @ module.fields["weight"].T + module.fields["bias"])


def log_softmax(x: Array) -> Array:
    return np.asarray(x - np.log(np.exp(x).sum(-1, keepdims=True)))


def refused(folder: Path, root: Any, message: str) -> None:
    torch7_write.write(folder / "m.t7", single(root))
    with pytest.raises((rc.RefusedError, rc.UsageError), match=message):
        rc.export_model(folder / "m.t7", folder / "m.onnx")


@pytest.mark.parametrize("target", ["onnx", "tflite"])
def test_a_row_of_words(target: str, tmp_path: Path) -> None:
    table, first, second, head = make("LookupTable", weight=numbers(WORDS, WIDTH)), seq_lstm(), seq_lstm(UNITS), linear(UNITS, WORDS)
    root = {"model": sequence(table, first, make("Dropout", p=0.5, v2=True), second, make("Sequencer", sequence(head, make("LogSoftMax"))))}
    words = RANDOM.integers(1, WORDS + 1, (TIME, BATCH)).astype("i4")
    y = loop(second, loop(first, table.fields["weight"][words - 1]))
    notes = agrees(tmp_path, root, words, log_softmax(dense(head)(y)), target)
    assert "the whole numbers that it reads count from 1, as Torch7's do" in notes


@pytest.mark.parametrize("normed", [False, True])
@pytest.mark.parametrize("kind", ["LSTM", "VanillaRNN"])
def test_the_language_model_of_torch_rnn(kind: str, normed: bool, tmp_path: Path) -> None:
    """LanguageModel.lua: (batch, time), and views whose sizes are those of the last call."""
    gates = {"LSTM": 4, "VanillaRNN": 1}[kind]
    layer = make(kind, weight=numbers(WIDTH + UNITS, gates * UNITS), bias=numbers(gates * UNITS), remember_states=True)
    table, head = make("LookupTable", weight=numbers(WORDS, WIDTH)), linear(UNITS, WORDS)
    view1 = make("View", size=storage(35, -1), numElements=35, numInputDims=3)
    view2 = make("View", size=storage(5, 7, -1), numElements=35, numInputDims=2)
    mean, variance, scale, shift = numbers(UNITS), np.abs(numbers(UNITS)) + 0.5, numbers(UNITS), numbers(UNITS)
    norm = make(
        "BatchNormalization", running_mean=mean, running_var=variance, weight=scale, bias=shift, eps=1e-3, momentum=0.1, affine=True
    )
    views = make("View", size=storage(35, -1), numInputDims=3), make("View", size=storage(5, 7, -1), numInputDims=2)
    net = sequence(table, layer, *([views[0], norm, views[1]] if normed else []), view1, head, view2)
    inside = {"bn_view_in": [views[0]], "bn_view_out": [views[1]]} if normed else {}
    model = make("LanguageModel", net=net, rnns=[layer], view1=view1, view2=view2, vocab_size=WORDS, **inside)
    words = RANDOM.integers(1, WORDS + 1, (BATCH, TIME)).astype("i4")
    x = table.fields["weight"][words - 1].transpose(1, 0, 2)
    y = loop(make("SeqLSTM" if kind == "LSTM" else kind, **{key: layer.fields[key] for key in ("weight", "bias")}), x).transpose(1, 0, 2)
    y = (y - mean) / np.sqrt(variance + 1e-3) * scale + shift if normed else y
    notes = agrees(tmp_path, {"model": model, "i": 3}, words, dense(head)(y))
    assert any("goes on from one call to the next" in note for note in notes)


@pytest.mark.parametrize("kind", [lstm, fast_lstm, gru])
@pytest.mark.parametrize("form", ["tables", "tensor", "one step a call"])
def test_modules_of_steps(kind: Callable[..., Object], form: str, tmp_path: Path) -> None:
    """nn.Sequencer calls a module for each step of a table; char-rnn's kind of file has the modules alone."""
    layer, head = kind(WIDTH, UNITS), linear(UNITS, 2)
    x, tanh = sequences(), make("Tanh")
    y = steps(layer, x)
    if form == "tables":
        root = sequence(make("SplitTable", dimension=1), make("Sequencer", layer), select(-1), head, tanh)
        agrees(tmp_path, root, x, np.tanh(dense(head)(y[-1])))
    elif form == "tensor":
        root = sequence(make("Sequencer", layer), make("Sequencer", sequence(head, tanh)))
        agrees(tmp_path, root, x, np.tanh(dense(head)(y)))
    else:
        notes = agrees(tmp_path, sequence(layer, head), x, dense(head)(y))
        assert any("reads a step a call in Torch7" in note for note in notes)


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("merge", ["CAddTable", "JoinTable"])
def test_both_ways(merge: str, batch_first: bool, tmp_path: Path) -> None:
    pair, turn = (seq_lstm(), seq_lstm()), make("SeqReverseSequence", dim=1)
    joining = make(merge, **({"dimension": 3} if merge == "JoinTable" else {}))
    inner = [concat(pair[0], sequence(turn, pair[1], turn)), joining]
    swap = make("Transpose", permutations=[[1, 2]])
    inner = [swap, *inner, swap] if batch_first else inner
    module = make("SeqBRNN", forwardModule=pair[0], backwardModule=pair[1], merge=joining, module=sequence(*inner))
    head = linear(UNITS * (1 + (merge == "JoinTable")), 2)
    x = sequences()
    ends = loop(pair[0], x), loop(pair[1], x[::-1])[::-1]
    y = dense(head)(ends[0] + ends[1] if merge == "CAddTable" else np.concatenate(ends, 2))
    agrees(tmp_path, sequence(module, head), x.transpose(1, 0, 2) if batch_first else x, y.transpose(1, 0, 2) if batch_first else y)


def test_a_sequence_with_the_batch_first_and_many_moves(tmp_path: Path) -> None:
    layer = seq_lstm(batchfirst=True)
    x = sequences(BATCH, TIME, WIDTH)
    y = loop(make("SeqLSTM", **{key: layer.fields[key] for key in ("weight", "bias")}), x.transpose(1, 0, 2)).transpose(1, 0, 2)
    ways: list[tuple[list[Object], Array]] = [
        ([make("Select", dimension=2, index=-1)], y[:, -1]),
        ([make("Narrow", dimension=2, index=2, length=3), make("Mean", dimension=2)], y[:, 1:4].mean(1)),
        ([make("Max", dimension=2)], y.max(1)),
        ([make("Transpose", permutations=[[2, 3]]), make("Sum", dimension=-1)], y.sum(1)),
        ([make("Reshape", size=storage(TIME * UNITS), nelement=TIME * UNITS)], y.reshape(BATCH, TIME * UNITS)),
        ([make("View", size=storage(-1, UNITS), numElements=UNITS)], y.reshape(-1, UNITS)),
        ([make("SplitTable", dimension=2), make("JoinTable", dimension=1)], y.transpose(1, 0, 2).reshape(-1, UNITS)),
        ([make("SplitTable", dimension=1, nInputDims=2), make("JoinTable", dimension=2)], y.reshape(BATCH, -1)),
        ([concat(make("Identity"), make("Sigmoid"), make("ReLU", threshold=0, val=0)), make("CMulTable")],
         y * sigmoid(y) * np.maximum(y, 0)),
        ([concat(make("HardTanh", min_val=-0.1, max_val=0.1), make("LeakyReLU", negval=0.2)), make("CSubTable")],
         np.clip(y, -0.1, 0.1) - np.where(y > 0, y, 0.2 * y)),
        ([make("Concat", make("Identity"), make("MulConstant", constant_scalar=2), dimension=3)], np.concatenate([y, 2 * y], 2)),
        ([concat(concat(make("Tanh"), make("Abs")), make("Exp")), make("FlattenTable"), narrow(2, 2), make("CAddTable")],
         np.abs(y) + np.exp(y)),
        ([concat(make("Tanh"), make("Abs")), make("ParallelTable", make("Abs"), make("Tanh")), make("CDivTable")],
         np.abs(np.tanh(y)) / np.tanh(np.abs(y))),
        ([make("Threshold", threshold=0.1, val=-3), make("Dropout", p=0.25)], np.where(y > 0.1, y, -3) * 0.75),
        ([make("AddConstant", constant_scalar=3), make("Log"), make("Sqrt"), make("SoftSign"), make("ELU", alpha=0.5),
          make("SoftPlus", beta=1, threshold=20)],
         np.log1p(np.exp(np.sqrt(np.log(y + 3)) / (1 + np.sqrt(np.log(y + 3)))))),
    ]  # fmt: skip
    for number, (modules, expected) in enumerate(ways):
        (tmp_path / str(number)).mkdir()
        agrees(tmp_path / str(number), sequence(layer, *modules), x, np.asarray(expected))


@pytest.mark.parametrize("batch_first", [False, True])
def test_a_stack_of_cudnn(batch_first: bool, tmp_path: Path) -> None:
    layers = stack("lstm", num_layers=2, num_directions=2)
    vector = rc.pack(layers, "cudnn")
    settings = {"inputSize": 3, "hiddenSize": 4, "numLayers": 2, "inputMode": "CUDNN_LINEAR_INPUT", "mode": "CUDNN_LSTM", "weight": vector}
    settings |= {"bidirectional": "CUDNN_BIDIRECTIONAL", "batchFirst": batch_first, "dropout": 0.5}
    x = sequences()
    y = np.tanh(reference.run(layers, x).y)
    order = [1, 0, 2] if batch_first else [0, 1, 2]
    root = sequence(Object("cudnn.BLSTM", LuaTable(settings)), Object("cudnn.Tanh", LuaTable()))
    agrees(tmp_path, root, x.transpose(order), y.transpose(order))


def test_modules_that_are_shared_many_times_are_bounded(tmp_path: Path) -> None:
    """Each level of modules holds the next one twice: what is written is bounded."""
    root = seq_lstm()
    for _ in range(60):
        root = sequence(root, root)
    torch7_write.write(tmp_path / "m.t7", single(root))
    with pytest.raises(rc.RnnConvertError):
        rc.export_model(tmp_path / "m.t7", tmp_path / "m.onnx")


def test_what_is_not_known_is_refused_by_name(tmp_path: Path) -> None:
    layer = seq_lstm()
    refused(tmp_path, sequence(layer, make("SoftMin")), "nn.SoftMin")
    refused(tmp_path, sequence(layer, make("Dropout", p=0.5, v2=True, stochastic_inference=True)), "nn.Dropout")
    refused(tmp_path, sequence(make("SplitTable", dimension=1), make("Tanh"), layer), "nn.Tanh")
    refused(tmp_path, sequence(layer, make("Tanh", gain=2)), "nn.Tanh with gain=2")
    refused(tmp_path, sequence(seq_lstm(gain=2)), "gain")
    refused(tmp_path, make("Sequential", layer, gain=2), "nn.Sequential with gain=2")
    refused(tmp_path, sequence(layer, make("SoftMax")), "nn.SoftMax")  # of three axes it is over the first
    refused(tmp_path, sequence(seq_lstm(maskzero=True)), "nn.SeqLSTM with maskzero=True")
    refused(tmp_path, sequence(make("Sequencer", layer)), "nn.SeqLSTM")
    refused(tmp_path, make("MaskZero", sequence(layer)), "nn.MaskZero")
    refused(tmp_path, sequence(make("SeqLSTM_WN", weight=numbers(7, 16)), make("Tanh")), "SeqLSTM_WN")
    refused(tmp_path, sequence(make("SeqLSTM", weight=numbers(7, 16), bias=numbers(16))), "do not show whether it reads the batch first")
    refused(tmp_path, {"a": sequence(layer), "b": sequence(seq_lstm())}, "2 modules")
    refused(tmp_path, sequence(layer, concat(make("Tanh"), make("Abs")), make("Exp")), "nn.Exp")
    refused(tmp_path, sequence(layer, make("View", size=storage(-1, 2), numInputDims=1)), "nn.View")


def test_modules_that_hold_themselves_are_no_model(tmp_path: Path) -> None:
    root = sequence(seq_lstm())
    root.fields["modules"][2] = root
    torch7_write.write(tmp_path / "m.t7", single(root))
    with pytest.raises(rc.RnnConvertError):
        rc.export_model(tmp_path / "m.t7", tmp_path / "m.onnx")


def test_a_checkpoint_of_torch_rnn_goes_everywhere(tmp_path: Path) -> None:
    need("corpus", corpus.absent())
    k = needed("keras", "keras")
    source = corpus.FOLDER / "torch7-textunify" / "checkpoint_10000.t7"
    recorded = np.load(source.with_name("checkpoint_10000.t7.ref.npz"))
    checkpoint = rc.load(source)
    table, weight, bias = (checkpoint.tensors[f"model/net/modules/{name}"] for name in ("1/weight", "5/weight", "5/bias"))
    # The record is of layers alone, on other numbers than words: what surrounds them is computed here.
    first, second = checkpoint.layers.values()
    for layer, before, after in ((first, "x", "layer0_y"), (second, "layer0_y", "layer1_y")):
        np.testing.assert_allclose(reference.run(layer, recorded[before]).y, recorded[after], rtol=0, atol=1e-5)
    words = RANDOM.integers(1, 95, (2, 7)).astype("i4")
    y = reference.run(second, reference.run(first, table[words - 1].transpose(1, 0, 2)).y).y.transpose(1, 0, 2) @ weight.T + bias
    for target in ("onnx", "tflite", "h"):
        rc.export_model(source, tmp_path / f"m.{target}", force=True)
        (output,) = RUNS[target](tmp_path / f"m.{target}")([words])
        np.testing.assert_allclose(output, y, rtol=1e-4, atol=1e-4)
    rc.scaffold(source, "keras", tmp_path / "m.py", weights=tmp_path / "m.keras")
    np.testing.assert_allclose(k.models.load_model(tmp_path / "m.keras").predict(words, verbose=0), y, rtol=1e-4, atol=1e-4)
