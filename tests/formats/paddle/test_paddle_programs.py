"""Whole inference models of Paddle's, written as ONNX: what Paddle 3.3.1 computes of its operators, one by one, in drawn chains and in
models, and models that Paddle 2.6.2 saved.
"""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rnnconvert as rc
from rnnconvert.models.readers import model_of
from tests import ROOT, environments
from tests.helpers import drawn, ready
from tests.helpers.onnx_graphs import check_as_onnx, in_onnxruntime
from tests.helpers.requirements import need

GOLDEN = ROOT / "tests" / "golden" / "paddle_inference"
OPERATORS = {
    "functions": "F.tanh(F.sigmoid(x)) + F.relu(x) + p.exp(-p.abs(x)) + F.softsign(x)",
    "rounding": "p.ceil(x) + p.floor(x) + p.sign(x)",
    "waves": "p.sin(x) + p.cos(x) + p.erf(x)",
    "roots": "p.sqrt(p.square(x) + 1) + p.rsqrt(p.square(x) + 2) + p.reciprocal(p.square(x) + 3) + p.log(p.abs(x) + 1)",
    "bent": "F.elu(x, 0.7) + F.selu(x) + F.gelu(x) + F.gelu(x, approximate=True) + F.leaky_relu(x, 0.1)",
    "bent more": ("F.silu(x) + F.swish(x) + F.mish(x) + F.softplus(x) + F.hardswish(x) + F.hardsigmoid(x) + F.relu6(x * 4) + "
     "F.log_sigmoid(x)"),
    "far from zero": "F.log_sigmoid(x * 60) + F.mish(x * 30) + F.softplus(x * 60)",
    "slopes": "F.prelu(x, w(6)) + F.prelu(x, w(1))",
    "numbers": "(1 - x * 2) / 3 + (x + 5) - 0.5 + p.scale(x, 2.0, 0.5, bias_after_scale=False)",
    "powers": "(p.abs(x) + 1) ** 1.5 + p.pow(p.abs(x), p.abs(x))",
    "bounds": "p.maximum(x, -x) + p.minimum(x, x * 2) + p.clip(x, -0.5, 0.25)",
    "comparisons": ("((x > 0) | (x <= -0.5)).astype('float32') + p.logical_not(x >= 1).astype('float32') + ((x == x) & (x != "
     "2)).astype('float32')"),
    "choices": "p.where(x > 0, x, -x * 3)",
    "sums of several": "p.add_n([x, x * 2, -x])",
    "softmax": "F.softmax(x) + F.softmax(x, axis=1) + F.log_softmax(x, axis=1)",
    "means": "p.mean(x, axis=1)",
    "sums": "p.sum(x, axis=[1, 2], keepdim=True)",
    "largest": "p.max(x, axis=-1, keepdim=True) - p.min(x, axis=1, keepdim=True)",
    "of all": "p.sum(x) + p.mean(x)",
    "products of numbers": "p.prod(x, axis=1)",
    "places": "(p.argmax(x, axis=1) + p.argmin(x, axis=1)).astype('float32')",
    "products": "p.matmul(x, x, transpose_y=True)",
    "turned products": "p.matmul(x, x, transpose_x=True)",
    "stacks": "p.bmm(x, p.transpose(x, [0, 2, 1]))",
    "dense": "F.linear(x, w(4, 5), w(5))",
    "dense without a bias": "F.linear(x, w(4, 5))",
    "transpose": "p.transpose(x, [2, 0, 1])",
    "reshape": "p.reshape(x, [0, -1]) * 1",
    "flatten": "p.flatten(x, 1)",
    "flatten of some": "p.flatten(p.unsqueeze(x, 0), 1, 2)",
    "squeeze": "p.squeeze(p.unsqueeze(F.relu(x), [1, 3]), [1, 3])",
    "concat": "p.concat([x, -x], axis=1)",
    "stack": "p.stack([x, -x], axis=1)",
    "unstack": "p.unstack(x, axis=1)[2] + p.unbind(x, axis=1)[1]",
    "split": "p.split(x, 2, axis=1)[1] - 1",
    "split where stated": "p.split(x, [1, -1], axis=1)[1] - 1",
    "slices": "x[:, 1:5] + 0",
    "strides": "x[:, 1:6:2] * 1",
    "one element": "x[:, -1] + x[:, 0]",
    "reversed": "p.flip(x, [1, 2])",
    "gather": "p.index_select(x, p.to_tensor([3, 0, 0]), axis=1) + p.gather(x, p.to_tensor([1, 2, 5]), axis=1)",
    "tile": "p.tile(x, [1, 2, 1])",
    "expand": "p.expand(w(1, 1, 4), [2, 6, 4]) + x + p.expand_as(w(4), x)",
    "filled": "p.zeros([2, 6, 4]) + p.full([1], 2.0) + p.ones_like(x) + p.full_like(x, 3.0) + x",
    "by the batch": "p.zeros([p.shape(x)[0], 1, 4]) + x",
    "one hot": "F.one_hot(p.argmax(x, axis=2), 5) * 2",
    "whole numbers": "p.cast(p.cast(x * 5, 'int32'), 'float32')",
    "dropout": "F.dropout(x, 0.5, training=False) + F.dropout(x, 0.25, training=False, mode='downscale_in_infer')",
    "copies": "p.assign(x) + 1",
    "embedding": "F.embedding(p.cast(p.floor(p.abs(x)), 'int64'), w(9, 5))",
    "convolution": "F.conv2d(image, w(3, 2, 2, 3), w(3), padding=[0, 1])",
    "a padded convolution": "F.conv2d(image, w(3, 2, 2, 3), padding='SAME')",
    "uneven padding": "F.conv2d(image, w(3, 2, 2, 3), padding=[1, 0, 2, 1])",
    "a convolution of one axis": "F.conv1d(x, w(3, 6, 2), w(3), stride=2)",
    "groups": "F.conv2d(image, w(4, 1, 2, 2), w(4), groups=2, dilation=[1, 2])",
    "a transposed convolution": "F.conv2d_transpose(image, w(2, 3, 2, 2), stride=2, padding=[1, 0], output_padding=[1, 0])",
    "largest of windows": "F.max_pool2d(image, 2, stride=[1, 2], padding=[1, 0])",
    "means of windows": "F.avg_pool2d(image, 2, stride=[1, 2], padding=[1, 0], exclusive=False)",
    "means of the inside": "F.avg_pool2d(image, 2, stride=1, padding=[1, 0])",
    "ceiled windows": "F.max_pool2d(image, [2, 3], stride=2, ceil_mode=True)",
    "pooled": "F.adaptive_avg_pool2d(image, 1)",
    "norm of batches": "F.batch_norm(image, v(2), v(2), w(2), w(2))",
    "norm of layers": "F.layer_norm(x, 4, w(4), w(4)) + F.layer_norm(x, 4)",
    "norm of instances": "F.instance_norm(image, weight=w(2), bias=w(2), eps=0.01)",
}  # fmt: skip
"""Uses of operators on numbers (2, 6, 4), which are an image (2, 2, 3, 4) too; parameters are made by `w` and, above zero, `v`."""
CHAINED = (
    "F.tanh(x)", "x * 1.5 - 0.25", "F.softmax(x, axis=1)", "p.flip(x, [1])", "p.transpose(p.transpose(x, [1, 0, 2]), [1, 0, 2])",
    "F.linear(x, w(4, 4), w(4))", "p.reshape(p.reshape(x, [-1, 4]), [-1, 6, 4])", "F.layer_norm(x, 4, w(4), w(4))",
    "p.concat([x[:, 2:], x[:, :2]], axis=1)", "x + p.mean(x, axis=1, keepdim=True)", "p.concat(p.split(x, 2, axis=2)[::-1], axis=2)",
    "p.stack(p.unstack(x, axis=1), axis=1)", "p.matmul(F.softmax(p.matmul(x, x, transpose_y=True)), x)",
    "F.conv1d(x, w(6, 6, 3), w(6), padding=1)", "p.where(x > 0, x, x * 0.1)", "F.max_pool1d(x, 3, stride=1, padding=1)",
    "p.reshape(F.linear(p.flatten(x, 1), w(24, 24), w(24)), [-1, 6, 4])", "p.gather(x, p.to_tensor([5, 3, 1, 0, 2, 4]), axis=1)",
    "lstm(x)[0]", "gru(x)[0]", "rnn(x)[0]", "x[:, ::-1]", "F.gelu(x)", "p.squeeze(p.unsqueeze(x, 1), 1)",
)  # fmt: skip
"""Uses that give as many numbers as they read, of which chains are drawn."""
_SCRIPT = """
import json, sys, numpy as np, paddle
import paddle.nn.functional as F
p = paddle
folder = sys.argv[1]
x0 = np.random.RandomState(1).uniform(-2, 2, (2, 6, 4)).astype("float32")
np.save(f"{folder}/x.npy", x0)

class Model(paddle.nn.Layer):
    def __init__(self, uses, seed):
        super().__init__()
        self.uses, self.count, self.random = uses, 0, np.random.RandomState(seed)
        self.made = {}

    def weight(self, low, *shape):
        key = f"w{self.count}"
        self.count += 1
        if not hasattr(self, key):
            value = paddle.to_tensor(self.random.uniform(low, 1, shape).astype("float32"))
            self.add_parameter(key, self.create_parameter(shape, default_initializer=paddle.nn.initializer.Assign(value)))
        return getattr(self, key)

    def layer(self, make):
        key = f"l{self.count}"
        self.count += 1
        if not hasattr(self, key):
            self.add_sublayer(key, make())
        return getattr(self, key)

    def forward(self, x):
        self.count = 0
        names = {"p": paddle, "F": F, "w": lambda *shape: self.weight(-1, *shape), "v": lambda *shape: self.weight(0.5, *shape)}
        names["lstm"] = lambda x: self.layer(lambda: paddle.nn.LSTM(4, 2, num_layers=2, direction="bidirect"))(x)
        names["gru"] = lambda x: self.layer(lambda: paddle.nn.GRU(4, 4))(x)
        names["rnn"] = lambda x: self.layer(lambda: paddle.nn.SimpleRNN(4, 4, activation="relu"))(x)
        for use in self.uses:
            x = eval(use, {**names, "x": x, "image": paddle.reshape(x, [0, 2, 3, 4])})
        return x

for number, (name, uses) in enumerate(json.load(open(f"{folder}/cases.json")).items()):
    paddle.seed(number)
    model = Model(uses, number)
    model.eval()
    truth = model(paddle.to_tensor(x0))
    np.save(f"{folder}/{name}.npy", truth.numpy())
    paddle.jit.save(model, f"{folder}/{name}", [paddle.static.InputSpec([None, 6, 4], "float32", name="x")])
"""


def written(folder: Path, cases: Mapping[str, Sequence[str]]) -> Path:
    """Have Paddle save and run all cases; return their folder."""
    (folder / "cases.json").write_text(json.dumps(cases))
    return run(folder, _SCRIPT)


def run(folder: Path, text: str) -> Path:
    """Run a script of Paddle's in a folder; return that."""
    need("paddle", environments.missing("paddle"))
    script = folder / "script.py"  # Paddle reads the source of what it traces
    script.write_text(text)
    done = ready.run([environments.place("paddle") / "bin" / "python", script, folder], ready="paddle")
    assert done.returncode == 0, done.stderr[-3000:]
    return folder


@pytest.fixture(scope="module")
def operators(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("operators"), {name: [use] for name, use in OPERATORS.items()})


@pytest.mark.parametrize("name", OPERATORS)
def test_an_operator_gives_what_paddle_gives(name: str, operators: Path) -> None:
    check_as_onnx(operators / f"{name}.json", {"x": np.load(operators / "x.npy")}, [np.load(operators / f"{name}.npy")])


def test_drawn_operators_agree(tmp_path: Path) -> None:
    draw = random.Random(f"{drawn.SEED} paddle operators")
    cases = {f"chain{number}": [*draw.choices(CHAINED, k=draw.randint(1, 5)), "F.tanh(x)"] for number in range(200 if drawn.LONG else 20)}
    written(tmp_path, cases)
    x = np.load(tmp_path / "x.npy")

    def check(name: str) -> None:
        check_as_onnx(tmp_path / f"{name}.json", {"x": x}, [np.load(tmp_path / f"{name}.npy")])

    drawn.each(list(cases), check)


# Whole models ---------------------------------------------------------------------------------------------

MODELS = """
import sys, numpy as np, paddle
import paddle.nn.functional as F
from paddle import nn
folder = sys.argv[1]
random = np.random.RandomState(5)

class Model(nn.Layer):
    def __init__(self, run, **parts):
        super().__init__()
        self.run = run
        for name, part in parts.items():
            self.add_sublayer(name, part)

    def forward(self, x):
        return self.run(self, x)

class Two(Model):
    def forward(self, x, y):
        return self.run(self, x, y)

class Three(Model):
    def forward(self, x, y, z):
        return self.run(self, x, y, z)

def conv(m, x):
    y = m.pool(F.relu(m.norm(m.conv(x.unsqueeze(1)))))
    y = m.lstm(y.transpose([0, 2, 1, 3]).flatten(2))[0]
    return m.dense(m.dropped(y[:, -1]))

def text(m, x):
    return F.softmax(m.dense(m.gru(m.embedding(x))[0].mean(axis=1)))

def residual(m, x):
    y = F.tanh(m.before(x))
    y = y + m.lstm(y)[0]
    return m.after(F.gelu(m.norm(y)))

def stated(m, x, h, c):
    y, (h1, c1) = m.lstm(x, (h, c))
    return m.dense(y), h1, c1

def attended(m, x):
    y = m.rnn(x)[0]
    return paddle.matmul(F.softmax(paddle.matmul(y, y, transpose_y=True) / 8 ** 0.5), y)

def shared(m, x, z):
    return m.gru(x)[0] + m.gru(z)[0]

def lengths(m, x, n):
    y, h = m.gru(x, sequence_length=n)
    return y, h

def values(*shape):
    return random.uniform(-1, 1, shape).astype("float32")

MODELS = {
    "conv": (Model(conv, conv=nn.Conv2D(1, 3, (3, 2), padding=(1, 0)), norm=nn.BatchNorm2D(3), pool=nn.MaxPool2D((1, 2)),
             lstm=nn.LSTM(6, 4, num_layers=2, direction="bidirect", dropout=0.2), dropped=nn.Dropout(0.5), dense=nn.Linear(8, 3)),
             [values(2, 7, 6)], [[None, None, 6]]),
    "text": (Model(text, embedding=nn.Embedding(11, 5), gru=nn.GRU(5, 4, direction="bidirect"), dense=nn.Linear(8, 3)),
             [random.randint(0, 11, (2, 7)).astype("int64")], [[None, None]]),
    "residual": (Model(residual, before=nn.Linear(3, 4), lstm=nn.LSTM(4, 4, time_major=True), norm=nn.LayerNorm(4), after=nn.Linear(4, 2)),
                 [values(7, 2, 3)], [[None, None, 3]]),
    "stated": (Three(stated, lstm=nn.LSTM(3, 4, num_layers=2), dense=nn.Linear(4, 2)), [values(2, 7, 3), values(2, 2, 4), values(2, 2, 4)],
               [[None, None, 3], [2, None, 4], [2, None, 4]]),
    "attended": (Model(attended, rnn=nn.SimpleRNN(3, 4, direction="bidirect")), [values(2, 7, 3)], [[None, None, 3]]),
    "relu": (Model(lambda m, x: m.rnn(x)[0], rnn=nn.SimpleRNN(3, 4, num_layers=2, activation="relu")), [values(2, 7, 3)], [[2, 7, 3]]),
    "shared": (Two(shared, gru=nn.GRU(3, 4)), [values(2, 7, 3), values(2, 7, 3)], [[None, None, 3], [None, None, 3]]),
    "lengths": (Two(lengths, gru=nn.GRU(3, 4, direction="bidirect")), [values(2, 7, 3), np.array([7, 4])], [[None, None, 3], [None]]),
}
for name, (model, inputs, specs) in MODELS.items():
    paddle.seed(3)
    model.eval()
    truth = model(*map(paddle.to_tensor, inputs))
    names = [f"x{n}" for n in range(len(inputs))]
    listed = [paddle.static.InputSpec(spec, str(x.dtype), name=key) for spec, x, key in zip(specs, inputs, names)]
    paddle.jit.save(model, f"{folder}/{name}", listed)
    flat = truth if isinstance(truth, (list, tuple)) else [truth]
    np.savez(f"{folder}/{name}.npz", **dict(zip(names, inputs)), **{f"y{n}": y.numpy() for n, y in enumerate(flat)})
"""
NAMES = ("conv", "text", "residual", "stated", "attended", "relu", "shared", "lengths")


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run(tmp_path_factory.mktemp("models"), MODELS)


@pytest.mark.parametrize("name", NAMES)
def test_a_model_of_paddles_goes_on(name: str, models: Path) -> None:
    stored = np.load(models / f"{name}.npz")
    truth = [stored[f"y{number}"] for number in range(len(stored.files)) if f"y{number}" in stored.files]
    check_as_onnx(models / f"{name}.json", stored, truth)


@pytest.mark.parametrize("ending", ["old_{}.pdmodel", "new_{}.json"])
@pytest.mark.parametrize("name", ["lstm", "gru", "rnn", "relu"])
def test_a_model_of_the_golden_files_goes_on(name: str, ending: str, tmp_path: Path) -> None:
    """Behind the layer whose outputs the file holds stands a dense one."""
    path = GOLDEN / ending.format(name)
    with np.load(GOLDEN / f"{path.name[:3]}.npz") as stored:
        x, y = stored["x"], stored[name]
    weight, bias = (array for full, array in sorted(rc.load(path).tensors.items(), key=lambda pair: -pair[1].ndim))
    rc.export_model(path, tmp_path / "m.onnx")
    np.testing.assert_allclose(in_onnxruntime(tmp_path / "m.onnx", x)[0], y @ weight + bias, rtol=0, atol=3e-6)


def test_all_layers_are_shown_and_go_into_other_targets(models: Path, tmp_path: Path) -> None:
    path = models / "conv.json"
    kinds = [unit.title.partition(" ")[0].rstrip(",") for unit in model_of(path).units]
    assert [kind for kind in kinds if kind != "array"] == ["Conv", "BatchNormalization", "LSTM", "LSTM", "MatMul"]
    rc.scaffold(path, "pytorch", tmp_path / "model.py")
    text = (tmp_path / "model.py").read_text()
    assert "Conv2d(1, 3, (3, 2)" in text and "BatchNorm2d(3" in text and "Linear(8, 3)" in text and text.count("nn.LSTM(") == 2


def test_what_is_not_known_is_refused_by_name(models: Path, tmp_path: Path) -> None:
    def refused(kind: str, words: str, name: str = "conv", kind_then: str = "", **settings: Any) -> None:
        tree = json.loads((models / f"{name}.json").read_text())
        operator = next(each for each in tree["program"]["regions"][0]["blocks"][0]["ops"] if each["#"] == f"1.{kind}")
        for attribute in operator["A"]:
            if attribute["N"] in settings:
                attribute["AT"]["D"] = settings.pop(attribute["N"])
        operator["A"] += [{"N": key, "AT": {"#": "0.a_i32", "D": value}} for key, value in settings.items()]
        operator["#"] = kind_then or operator["#"]
        (tmp_path / "m.json").write_text(json.dumps(tree))
        shutil.copy(models / f"{name}.pdiparams", tmp_path / "m.pdiparams")
        with pytest.raises(rc.RefusedError, match=words):
            rc.export_model(tmp_path / "m.json", tmp_path / "m.onnx")

    refused("conv2d", "the operator conv2d", data_format="NHWC")
    refused("conv2d", "the operator conv2d with newer=3", newer=3)
    refused("pool2d", "the operator pool2d", pooling_type="lp")
    refused("relu", "the operator acosh", kind_then="1.acosh")
    refused("relu", "the operator 9.relu", kind_then="9.relu")
    refused("dropout", "the operator dropout", is_test=False)
    refused("rnn", "'newer' of m.json", newer=3)
    with pytest.raises(rc.RefusedError, match="the operator create_array"):
        rc.export_model(GOLDEN / "new_cell.json", tmp_path / "m.onnx")
