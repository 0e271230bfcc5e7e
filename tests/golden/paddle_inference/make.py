"""Make the files beside this: inference models, with what Paddle gave.

    python make.py old    (paddlepaddle 2.6.2: .pdmodel)
    python make.py new    (paddlepaddle 3.3.1: .json)

Weights are random.
"""

import sys
from pathlib import Path

import numpy as np
import paddle

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from paddle_programs import without_places  # noqa: E402  (it lies beside the folder of this script)


class Model(paddle.nn.Layer):
    """A layer, and a dense one behind it."""

    def __init__(self, layer: paddle.nn.Layer, width: int) -> None:
        super().__init__()
        self.layer, self.dense = layer, paddle.nn.Linear(width, 2)

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        return self.dense(self.layer(x)[0])


class Given(paddle.nn.Layer):
    """A layer whose initial state and lengths are given."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = paddle.nn.GRU(3, 4)

    def forward(self, x: paddle.Tensor, h: paddle.Tensor, lengths: paddle.Tensor) -> paddle.Tensor:
        return self.layer(x, h, lengths)[0]


def save(name: str, model: paddle.nn.Layer, *specs: paddle.static.InputSpec) -> None:
    """Save a model, without the lines of source that Paddle 2 notes of each operator: they have the paths of the machine."""
    model.eval()
    paddle.jit.save(model, str(HERE / name), list(specs))
    (HERE / f"{name}.pdiparams.info").unlink(missing_ok=True)
    path = HERE / f"{name}.pdmodel"
    if path.exists():
        from paddle.base.proto import framework_pb2

        without_places(path, framework_pb2.ProgramDesc)


def main(prefix: str) -> None:
    paddle.seed(0)
    x = np.random.default_rng(0).normal(size=(2, 5, 3)).astype("float32")
    layers = {
        "lstm": paddle.nn.LSTM(3, 4, 2, direction="bidirect"), "gru": paddle.nn.GRU(3, 4, 2), "rnn": paddle.nn.SimpleRNN(3, 4),
        "relu": paddle.nn.SimpleRNN(3, 4, activation="relu"), "cell": paddle.nn.RNN(paddle.nn.GRUCell(3, 4)),
    }  # fmt: skip
    answers, spec = {"x": x}, paddle.static.InputSpec
    for name, layer in layers.items():
        save(f"{prefix}_{name}", Model(layer, 8 if name == "lstm" else 4), spec([None, None, 3], "float32"))
        answers[name] = layer(paddle.to_tensor(x))[0].numpy()
    save(f"{prefix}_given", Given(), spec([None, None, 3], "float32"), spec([1, None, 4], "float32"), spec([None], "int64"))
    np.savez(HERE / f"{prefix}.npz", **answers)


if __name__ == "__main__":
    main(sys.argv[1])
