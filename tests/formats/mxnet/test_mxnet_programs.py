"""Whole models of MXNet's, written as ONNX: what MXNet 1.9.1 computes of its own operators, one by one, in drawn chains and in models."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rnnconvert as rc
from rnnconvert.models.readers import model_of
from tests.helpers import drawn, ready
from tests.helpers.frameworks import mxnet
from tests.helpers.onnx_graphs import check_as_onnx

OPERATORS = {
    "functions": "s.tanh(s.sigmoid(x)) + s.relu(x) + s.exp(-s.abs(x)) + s.softsign(x)",
    "rounding": "s.ceil(x) + s.floor(x) + s.sign(x)",
    "waves": "s.sin(x) + s.cos(x) + s.erf(x)",
    "roots": "s.sqrt(s.square(x) + 1) + s.rsqrt(s.square(x) + 2) + s.reciprocal(s.square(x) + 3) + s.log(s.abs(x) + 1)",
    "activations": ("sum((s.Activation(x, act_type=a) for a in ('sigmoid', 'tanh', 'softrelu', 'softsign')), s.Activation(x, "
     "act_type='relu'))"),
    "leaky": "s.LeakyReLU(x, act_type='leaky') + s.LeakyReLU(x, act_type='leaky', slope=0.1)",
    "bent": "s.LeakyReLU(x, act_type='elu', slope=0.7) + s.LeakyReLU(x, act_type='selu') + s.LeakyReLU(x, act_type='gelu')",
    "slopes": "s.LeakyReLU(x, w(6), act_type='prelu')",
    "hard": "s.hard_sigmoid(x, alpha=0.3, beta=0.4)",
    "numbers": "(1 - x * 2) / 3 + (x + 5) - 0.5 + 1 / (x * x + 2)",
    "powers": "(s.abs(x) + 1) ** 1.5 + 2 ** x + s.broadcast_power(s.abs(x), s.abs(x))",
    "bounds": "s.maximum(x, 0.1) + s.minimum(x, 0.2) + s.maximum(x, -x) + s.clip(x, -0.5, 0.25)",
    "comparisons": "(x > 0) + (x <= 0.5) * 2 + (x >= -x) + (x != x) + (s.floor(x) == 0)",
    "choices": "s.where(x > 0, x, -x * 3)",
    "choices of rows": ("s.where(s.Reshape(s.slice(x, begin=(0, 0, 0), end=(1, 4, 1)), shape=(-1,)) > 0, "
     "s.Reshape(s.slice(x, begin=(0, 0), end=(1, 4)), shape=(-1, 4)), w(4, 4))"),
    "sums of several": "s.add_n(x, x * 2, -x, x)",
    "softmax": "s.softmax(x) + s.softmax(x, temperature=2.0)",
    "softmax over the middle": "s.softmax(x, axis=1)",
    "logarithms of a softmax": "s.log_softmax(x, axis=1)",
    "softmax of channels": "s.SoftmaxActivation(x, mode='channel')",
    "a loss": "s.SoftmaxOutput(s.FullyConnected(x, w(5, 24), w(5), num_hidden=5), s.Variable('softmax_label'))",
    "a loss along the last axis": "s.SoftmaxOutput(x, s.Variable('softmax_label'), preserve_shape=True)",
    "a loss of channels": "s.SoftmaxOutput(x, s.Variable('softmax_label'), multi_output=True)",
    "means": "s.mean(x, axis=1)",
    "sums": "s.sum(x, axis=(1, 2), keepdims=True)",
    "sums of the others": "s.sum(x, axis=1, exclude=True)",
    "largest": "s.broadcast_sub(s.max(x, axis=-1, keepdims=True), s.min(x, axis=1, keepdims=True))",
    "of all": "s.sum(x) + s.mean(x)",
    "one of all": "s.concat(s.max(x), s.norm(x), dim=0)",
    "norms": "s.norm(x, axis=2) + s.norm(x, ord=1, axis=2)",
    "products of numbers": "s.prod(x, axis=1)",
    "places": "s.argmax(x, axis=1) + s.argmin(x, axis=1)",
    "products": "s.batch_dot(x, x, transpose_b=True)",
    "turned products": "s.batch_dot(x, x, transpose_a=True)",
    "stacked products": "s.linalg.gemm2(x, x, transpose_b=True)",
    "a matrix": "s.dot(x, w(4, 5))",
    "a turned matrix": "s.dot(s.Reshape(x, shape=(-1, 4)), w(5, 4), transpose_b=True)",
    "attention": "s.batch_dot(s.softmax(s.batch_dot(s.contrib.div_sqrt_dim(x), x, transpose_b=True)), x)",
    "dense": "s.FullyConnected(x, w(5, 24), w(5), num_hidden=5)",
    "dense without a bias": "s.FullyConnected(x, w(5, 24), num_hidden=5, no_bias=True)",
    "dense over time": "s.FullyConnected(x, w(5, 4), w(5), num_hidden=5, flatten=False)",
    "dense over time without a bias": "s.FullyConnected(x, w(5, 4), num_hidden=5, flatten=False, no_bias=True)",
    "transpose": "s.transpose(x, axes=(2, 0, 1))",
    "reversed axes": "s.transpose(x)",
    "swapped": "s.SwapAxis(x, dim1=1, dim2=2) + 0",
    "reshape": "s.Reshape(x, shape=(0, -1))",
    "reshape of the rest": "s.Reshape(x, shape=(-3, -2))",
    "reshape into two": "s.Reshape(x, shape=(0, -4, 2, -1, -2))",
    "flatten": "s.Flatten(x) * 2",
    "squeeze": "s.squeeze(s.expand_dims(s.relu(x), axis=1), axis=1)",
    "squeeze of all": "s.squeeze(s.expand_dims(s.expand_dims(x + 1, axis=-1), axis=0))",
    "concat": "s.concat(x, -x, dim=1)",
    "concat of features": "s.concat(x, x * 2, dim=-1)",
    "stack": "s.stack(x, -x, axis=1)",
    "split": "s.split(x, num_outputs=2, axis=1)[1] - 1",
    "elements": "s.split(x, num_outputs=6, axis=1, squeeze_axis=True)[5] - 1",
    "split where stated": "s.split_v2(x, (1, 4), axis=1)[1] + 0",
    "slice": "s.slice(x, begin=(None, 1), end=(None, 5), step=(None, 2))",
    "from the end": "s.slice(x, begin=(None, -1), end=(None, None), step=(None, -1))",
    "a range": "s.slice_axis(x, axis=1, begin=2, end=None) + 0",
    "a range up to the end": "s.slice_axis(x, axis=-1, begin=-3, end=-1) + 0",
    "as long as another": "s.slice_like(x, s.slice_axis(x, axis=1, begin=0, end=2), axes=(1,))",
    "reversed": "s.reverse(x, axis=1) + s.flip(x, axis=2)",
    "gather": "s.take(x, i(3, 0, 0), axis=1)",
    "gather below zero": "s.take(x, i(-1, 2), axis=1) + s.take(x, i(-1, 2), axis=1, mode='wrap')",
    "tile": "s.tile(x, reps=(2, 1))",
    "pad": ("s.Reshape(s.pad(s.Reshape(x, shape=(0, 1, 6, 4)), mode='constant', pad_width=(0, 0, 0, 0, 1, 2, 0, 1), "
     "constant_value=3.0), shape=(0, 9, 5))"),
    "broadcast": "s.broadcast_mul(x, s.broadcast_to(w(1, 1, 4), shape=(1, 6, 4)))",
    "broadcast along an axis": "s.broadcast_mul(x, s.broadcast_axis(w(1, 1, 4), axis=1, size=6))",
    "broadcast like another": "x + s.broadcast_like(w(1, 1, 4), x)",
    "zeros like": "s.zeros_like(x) + s.ones_like(x) * x",
    "ones alone": "s.ones_like(x) + s.ones_like(x)",
    "filled": "s.broadcast_add(x, s.zeros(shape=(1, 1, 4))) + s.full(shape=(2, 6, 4), val=2.0)",
    "one hot": "s.one_hot(s.argmax(x, axis=2), depth=5, on_value=2.0, off_value=-1.0)",
    "one hot below zero": "s.one_hot(s.floor(x), depth=4)",
    "embedding below zero": "s.Embedding(s.floor(x), w(9, 5), input_dim=9, output_dim=5)",
    "rows below zero": "s.take(w(4, 5), s.floor(x)) + s.take(w(4, 5), s.floor(x), mode='wrap')",
    "whole numbers": "s.Cast(s.Cast(x * 5, dtype='int32') + 2, dtype='float32')",
    "dropout": "s.Dropout(x, p=0.5) + s.Dropout(x, p=0.1, axes=(1,))",
    "kept": "s.identity(x) + s.BlockGrad(x) + s.MakeLoss(x)",
    "regressions": "s.LinearRegressionOutput(x, s.Variable('label')) + s.LogisticRegressionOutput(x, s.Variable('other_label'))",
    "embedding": "s.Embedding(s.floor(s.abs(x)), w(9, 5), input_dim=9, output_dim=5)",
    "turned sequences": "s.SequenceReverse(x)",
    "last steps": "s.SequenceLast(x) + s.SequenceLast(x)",
    "unmasked": "s.SequenceMask(x) * 2",
    "convolution": "s.Convolution(image, w(3, 2, 2, 3), w(3), kernel=(2, 3), num_filter=3, pad=(0, 1))",
    "a convolution of one axis": "s.Convolution(x, w(3, 6, 2), kernel=(2,), num_filter=3, no_bias=True, stride=(2,), layout='NCW')",
    "groups": "s.Convolution(image, w(4, 1, 2, 2), w(4), kernel=(2, 2), num_filter=4, num_group=2, dilate=(1, 2), stride=(1, 1))",
    "a transposed convolution": "s.Deconvolution(image, w(2, 3, 2, 2), kernel=(2, 2), num_filter=3, stride=(2, 2), pad=(1, 0), adj=(1, 0))",
    "largest of windows": "s.Pooling(image, kernel=(2, 2), stride=(1, 2), pool_type='max', pad=(1, 0))",
    "means of windows": "s.Pooling(image, kernel=(2, 2), stride=(1, 2), pool_type='avg', pad=(1, 0))",
    "means of the inside": "s.Pooling(image, kernel=(2, 2), pool_type='avg', pad=(1, 0), count_include_pad=False)",
    "full windows": "s.Pooling(image, kernel=(2, 3), stride=(2, 2), pool_type='max', pooling_convention='full')",
    "full means": "s.Pooling(image, kernel=(2, 3), stride=(2, 2), pool_type='avg', pooling_convention='full')",
    "pooled": "s.Pooling(image, kernel=(1, 1), global_pool=True, pool_type='avg') + s.Pooling(image, kernel=(1, 1), global_pool=True)",
    "norm of batches": "s.BatchNorm(image, w(2), w(2), aux('mean', 2), aux('var', 2), fix_gamma=False)",
    "norm with fixed factors": "s.BatchNorm(image, w(2), w(2), aux('mean', 2), aux('var', 2), eps=0.1)",
    "norm of features": "s.BatchNorm(x, w(4), w(4), aux('mean', 4), aux('var', 4), axis=-1, fix_gamma=False)",
    "norm of layers": "s.LayerNorm(x, w(4), w(4))",
    "norm of instances": "s.InstanceNorm(image, w(2), w(2), eps=0.01)",
}  # fmt: skip
"""Uses of operators on numbers (2, 6, 4), which are an image (2, 2, 3, 4) too; constants are made by `w` and `i`."""
CHAINED = (
    "s.tanh(x)",
    "x * 1.5 - 0.25",
    "s.SwapAxis(s.softmax(s.SwapAxis(x, dim1=1, dim2=2)), dim1=1, dim2=2)",
    "s.softmax(x, axis=1)",
    "s.reverse(x, axis=1)",
    "s.transpose(s.transpose(x, axes=(1, 0, 2)), axes=(1, 0, 2))",
    "s.FullyConnected(x, w(4, 4), w(4), num_hidden=4, flatten=False)",
    "s.Reshape(s.Reshape(x, shape=(-3, 0)), shape=(-4, -1, 6, 0))",
    "s.LayerNorm(x, w(4), w(4))",
    "s.concat(s.slice_axis(x, axis=1, begin=2, end=None), s.slice_axis(x, axis=1, begin=0, end=2), dim=1)",
    "s.broadcast_add(x, s.mean(x, axis=1, keepdims=True))",
    "s.concat(*s.split(x, num_outputs=2, axis=2), dim=2)",
    "s.stack(*[p for p in s.split(x, num_outputs=6, axis=1, squeeze_axis=True)], axis=1)",
    "s.batch_dot(s.softmax(s.batch_dot(x, x, transpose_b=True)), x)",
    "s.Convolution(x, w(6, 6, 3), w(6), kernel=(3,), pad=(1,), num_filter=6)",
    "s.where(x > 0, x, x * 0.1)",
    "s.Pooling(x, kernel=(3,), pad=(1,), pool_type='max')",
    "s.Dropout(x, p=0.3)",
    "s.Reshape(s.FullyConnected(x, w(24, 24), w(24), num_hidden=24), shape=(-1, 6, 4))",
    "s.take(x, i(5, 3, 1, 0, 2, 4), axis=1)",
    ("s.SwapAxis(s.RNN(s.SwapAxis(x, dim1=0, dim2=1), w(160), s.zeros(shape=(1, 0, 4)), s.zeros(shape=(1, 0, 4)), "
     "state_size=4, num_layers=1, mode='lstm'), dim1=0, dim2=1)"),
    "s.RNN(x, w(240), s.zeros(shape=(2, 0, 4)), state_size=4, num_layers=2, mode='gru')",
)  # fmt: skip
"""Uses that give as many numbers as they read, of which chains are drawn."""
_SCRIPT = """
import json, os, sys
os.environ["MXNET_SUBGRAPH_BACKEND"] = "NONE"
import mxnet as mx, numpy as np
folder = sys.argv[1]
s = mx.sym
x0 = np.random.RandomState(1).uniform(-2, 2, (2, 6, 4)).astype("float32")

def case(name, uses):
    arrays, aux_arrays = {}, {}
    random = np.random.RandomState(len(name))

    def w(*shape):
        key = f"weight{len(arrays)}"
        arrays[key] = random.uniform(-1, 1, shape).astype("float32")
        return s.Variable(key, shape=shape)

    def i(*numbers):
        key = f"places{len(arrays)}"
        arrays[key] = np.array(numbers, "float32")
        return s.Variable(key)

    def aux(key, size):
        aux_arrays[key] = random.uniform(0.5, 1.5, size).astype("float32")
        return s.Variable(key)

    x = s.Variable("x")
    for use in uses:
        x = eval(use, {"s": s, "x": x, "w": w, "i": i, "aux": aux, "image": s.Reshape(x, shape=(0, 2, 3, 4))})
    base = f"{folder}/{name}"
    x.save(f"{base}-symbol.json")
    saved = {**arrays, **aux_arrays}
    mx.nd.save(f"{base}-0000.params", {("arg:" if key in arrays else "aux:") + key: mx.nd.array(a) for key, a in saved.items()})
    bound = x.simple_bind(mx.cpu(), grad_req="null", x=x0.shape, **{k: a.shape for k, a in arrays.items()})
    for key, array in bound.arg_dict.items():
        array[:] = x0 if key == "x" else arrays.get(key, 0)
    for key, array in bound.aux_dict.items():
        array[:] = aux_arrays[key]
    np.save(f"{base}.npy", bound.forward(is_train=False)[0].asnumpy())

np.save(f"{folder}/x.npy", x0)
for name, uses in json.load(open(f"{folder}/cases.json")).items():
    case(name, uses)
"""


def written(folder: Path, cases: Mapping[str, Sequence[str]]) -> Path:
    """Have MXNet write and run all cases; return their folder."""
    (folder / "cases.json").write_text(json.dumps(cases))
    done = ready.run([mxnet().python, "-c", _SCRIPT, folder], ready="mxnet")
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def operators(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("operators"), {name: [use] for name, use in OPERATORS.items()})


@pytest.mark.parametrize("name", OPERATORS)
def test_an_operator_gives_what_mxnet_gives(name: str, operators: Path) -> None:
    x = np.load(operators / "x.npy")
    check_as_onnx(operators / f"{name}-0000.params", {"x": x}, [np.load(operators / f"{name}.npy")], axes=[(2, 6, 4)])


def test_drawn_operators_agree(tmp_path: Path) -> None:
    draw = random.Random(f"{drawn.SEED} mxnet operators")
    cases = {f"chain{number}": [*draw.choices(CHAINED, k=draw.randint(1, 5)), "s.tanh(x)"] for number in range(200 if drawn.LONG else 20)}
    written(tmp_path, cases)
    x = np.load(tmp_path / "x.npy")
    drawn.each(
        list(cases),
        lambda name: check_as_onnx(tmp_path / f"{name}-0000.params", {"x": x}, [np.load(tmp_path / f"{name}.npy")], axes=[(2, 6, 4)]),
    )


# Whole models ---------------------------------------------------------------------------------------------

MODELS = """
import json, os, sys
os.environ["MXNET_SUBGRAPH_BACKEND"] = "NONE"
import mxnet as mx, numpy as np
from mxnet.gluon import nn, rnn, HybridBlock
folder = sys.argv[1]
random = np.random.RandomState(5)

class Block(HybridBlock):
    def __init__(self, forward, **parts):
        super().__init__()
        self.run = forward
        with self.name_scope():
            for name, part in parts.items():
                setattr(self, name, part)
    def hybrid_forward(self, F, *inputs):
        return self.run(F, self, *inputs)

def values(*shape):
    return random.uniform(-1, 1, shape).astype("float32")

def tokens(*shape):
    return random.randint(0, 11, shape).astype("float32")

def conv(F, m, x):
    y = m.norm(F.relu(m.conv(F.expand_dims(x, axis=1))))
    y = F.transpose(F.reshape(F.transpose(y, axes=(0, 2, 1, 3)), shape=(0, 0, -1)), axes=(1, 0, 2))
    y = m.dropped(m.lstm(y))
    return m.dense(F.SequenceLast(y))

def text(F, m, x):
    y = m.gru(F.swapaxes(m.embedding(x), 0, 1))
    return F.softmax(m.dense(F.mean(y, axis=0)))

def residual(F, m, x):
    y = m.before(x)
    y = y + m.lstm(y)
    return m.after(F.LeakyReLU(y, act_type="gelu"))

def stated(F, m, x, h, c):
    y, (h1, c1) = m.lstm(x, [h, c])
    return [m.dense(y), h1, c1]

def attended(F, m, x):
    y = m.rnn(x)
    scores = F.batch_dot(y, y, transpose_b=True)
    return m.norm(F.batch_dot(F.softmax(F.contrib.div_sqrt_dim(scores)), y))

def unrolled(F, m, x):
    return m.cell.unroll(5, x, layout="NTC", merge_outputs=True)[0]

def classified(F, m, x):
    y = m.cell.unroll(5, m.embedding(x), layout="NTC", merge_outputs=False)[0][-1]
    return m.dense(y)

def shared(F, m, x, z):
    return m.lstm(x) + m.lstm(z)

cells = rnn.HybridSequentialRNNCell()
with cells.name_scope():
    cells.add(rnn.LSTMCell(4, input_size=3)); cells.add(rnn.DropoutCell(0.3)); cells.add(rnn.ResidualCell(rnn.GRUCell(4, input_size=4)))
    cells.add(rnn.RNNCell(2, input_size=4))
MODELS = {
    "conv": (Block(conv, conv=nn.Conv2D(3, (3, 2), padding=(1, 0), in_channels=1), norm=nn.BatchNorm(in_channels=3),
             lstm=rnn.LSTM(4, num_layers=2, bidirectional=True, dropout=0.2, input_size=15), dropped=nn.Dropout(0.5), dense=nn.Dense(3,
                 in_units=8)), [values(2, 7, 6)]),
    "text": (Block(text, embedding=nn.Embedding(11, 5), gru=rnn.GRU(4, bidirectional=True, input_size=5), dense=nn.Dense(3,
        in_units=8)), [tokens(2, 7)]),
    "residual": (Block(residual, before=nn.Dense(4, flatten=False, in_units=3, activation="tanh"), lstm=rnn.LSTM(4, layout="NTC",
        input_size=4),
                 after=nn.Dense(2, flatten=False, in_units=4)), [values(2, 7, 3)]),
    "stated": (Block(stated, lstm=rnn.LSTM(4, num_layers=2, input_size=3), dense=nn.Dense(2, flatten=False, in_units=4)),
               [values(7, 2, 3), values(2, 2, 4), values(2, 2, 4)]),
    "attended": (Block(attended, rnn=rnn.RNN(4, activation="tanh", layout="NTC", bidirectional=True, input_size=3),
        norm=nn.LayerNorm(in_channels=8)), [values(2, 7, 3)]),
    "relu": (Block(lambda F, m, x: m.rnn(x), rnn=rnn.RNN(4, num_layers=2, input_size=3)), [values(7, 2, 3)]),
    "projected": (Block(lambda F, m, x: m.lstm(x) * 2, lstm=rnn.LSTM(4, projection_size=2, input_size=3)), [values(7, 2, 3)]),
    "unrolled": (Block(unrolled, cell=cells), [values(2, 5, 3)]),
    "both ways": (Block(unrolled, cell=rnn.BidirectionalCell(rnn.GRUCell(4, input_size=3), rnn.GRUCell(4, input_size=3))), [values(2, 5,
        3)]),
    "classified": (Block(classified, embedding=nn.Embedding(11, 3), cell=rnn.LSTMCell(4, input_size=3), dense=nn.Dense(2, in_units=4)),
        [tokens(2, 5)]),
    "shared": (Block(shared, lstm=rnn.LSTM(4, input_size=3)), [values(7, 2, 3), values(7, 2, 3)]),
}
for name, (net, inputs) in MODELS.items():
    net.initialize()
    for parameter in net.collect_params().values():
        low = 0.5 if "running_var" in parameter.name or "gamma" in parameter.name else -0.7
        parameter.set_data(mx.nd.array(random.uniform(low, 1.0, parameter.shape)))
    net.hybridize()
    fed = [mx.nd.array(x) for x in inputs]
    truth = net(*fed)
    net.export(f"{folder}/{name}")
    names = ["data"] if len(inputs) == 1 else [f"data{n}" for n in range(len(inputs))]
    flat = [each for y in (truth if isinstance(truth, (list, tuple)) else [truth]) for each in (y if isinstance(y, (list, tuple)) else [y])]
    np.savez(f"{folder}/{name}.npz", **dict(zip(names, inputs)), **{f"y{n}": y.asnumpy() for n, y in enumerate(flat)})

def module(name, cell, layers):
    data, label = mx.sym.Variable("data"), mx.sym.Variable("softmax_label")
    y = mx.sym.Embedding(data, input_dim=11, output_dim=3, name="embed")
    y = cell.unroll(6, y, layout="NTC", merge_outputs=True)[0]
    y = mx.sym.FullyConnected(mx.sym.Reshape(y, shape=(-1, layers)), num_hidden=5, name="pred")
    y = mx.sym.SoftmaxOutput(y, mx.sym.Reshape(label, shape=(-1,)), name="softmax")
    bound = y.simple_bind(mx.cpu(), data=(2, 6), softmax_label=(2, 6))
    x = tokens(2, 6)
    for key, array in bound.arg_dict.items():
        array[:] = x if key == "data" else 0 if key == "softmax_label" else random.uniform(-0.7, 0.7, array.shape)
    np.savez(f"{folder}/{name}.npz", data=x, y0=bound.forward(is_train=False)[0].asnumpy())
    mx.model.save_checkpoint(f"{folder}/{name}", 1, y, {k: v for k, v in bound.arg_dict.items() if k not in ("data", "softmax_label")}, {})

module("fused", mx.rnn.FusedRNNCell(4, num_layers=2, mode="lstm", bidirectional=True, prefix="lstm_"), 8)
old = mx.rnn.SequentialRNNCell()
old.add(mx.rnn.LSTMCell(4, prefix="lstm_l0_")); old.add(mx.rnn.DropoutCell(0.2)); old.add(mx.rnn.GRUCell(4, prefix="gru_l1_"))
module("cells", old, 4)
"""
NAMES = (
    "conv",
    "text",
    "residual",
    "stated",
    "attended",
    "relu",
    "projected",
    "unrolled",
    "both ways",
    "classified",
    "shared",
    "fused",
    "cells",
)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    done = ready.run([mxnet().python, "-c", MODELS, folder], ready="mxnet")
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.parametrize("name", NAMES)
def test_a_model_of_mxnets_goes_on(name: str, models: Path) -> None:
    (path,) = models.glob(f"{name}-0*.params")
    stored = np.load(models / f"{name}.npz")
    truth = [stored[f"y{number}"] for number in range(len(stored.files)) if f"y{number}" in stored.files]
    check_as_onnx(path, stored, truth)


def test_all_layers_are_shown_and_go_into_other_targets(models: Path, tmp_path: Path) -> None:
    path = models / "conv-0000.params"
    kinds = [unit.title.partition(" ")[0].rstrip(",") for unit in model_of(path).units]
    assert kinds == ["Conv", "BatchNormalization", "LSTM", "LSTM", "Gemm(transB=1)"]
    rc.scaffold(path, "pytorch", tmp_path / "model.py")
    text = (tmp_path / "model.py").read_text()
    assert "Conv2d(1, 3, (3, 2)" in text and "BatchNorm2d(3" in text and "Linear(8, 3)" in text and text.count("nn.LSTM(") == 2


def test_what_is_not_known_is_refused_by_name(models: Path, tmp_path: Path) -> None:
    def refused(change: Callable[[Any], None], words: str, name: str = "residual") -> None:
        shutil.copy(models / f"{name}-0000.params", tmp_path / "m-0000.params")
        tree = json.loads((models / f"{name}-symbol.json").read_text())
        change(tree)
        (tmp_path / "m-symbol.json").write_text(json.dumps(tree))
        with pytest.raises(rc.RefusedError, match=words):
            rc.export_model(tmp_path / "m-0000.params", tmp_path / "m.onnx")

    def of(tree: Any, operator: str) -> Any:
        return next(node for node in tree["nodes"] if node["op"] == operator)

    refused(lambda tree: of(tree, "LeakyReLU")["attrs"].update(act_type="rrelu"), "the operator LeakyReLU")
    refused(lambda tree: of(tree, "LeakyReLU")["attrs"].update(newer="3"), "the operator LeakyReLU with newer=3")
    refused(lambda tree: of(tree, "LeakyReLU").update(op="arccosh"), "the operator arccosh")
    refused(lambda tree: of(tree, "LeakyReLU").update(op="Custom", attrs={"op_type": "mine"}), "the operator Custom mine")
    refused(lambda tree: of(tree, "RNN")["attrs"].update(newer="3"), "'newer' of its RNN operator")
    refused(lambda tree: of(tree, "Convolution")["attrs"].update(layout="NHWC"), "the operator Convolution", "conv")
    refused(lambda tree: of(tree, "Dropout").update(attrs={"mode": "always", "p": "0.5"}), "the operator Dropout", "conv")
    refused(lambda tree: tree["nodes"].insert(0, tree["nodes"].pop()), "its graph")
    (tmp_path / "m-symbol.json").unlink()
    with pytest.raises(rc.UsageError, match="weights without a graph"):
        rc.export_model(tmp_path / "m-0000.params", tmp_path / "m.onnx")
