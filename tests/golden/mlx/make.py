"""The files beside this one: a model of mlx.nn's layers as MLX 0.32.4 saves it, and what its layers give on the CPU.

pip install "mlx[cpu]==0.32.4" && python tests/golden/mlx/make.py
"""

import pathlib

import mlx.core as mx
import numpy as np
from mlx import nn

FOLDER = pathlib.Path(__file__).resolve().parent


class Model(nn.Module):
    """Each recurrent layer of mlx.nn, with and without biases, and a layer that is not recurrent."""

    def __init__(self):
        super().__init__()
        self.encoder = {
            "rnn": nn.RNN(3, 4), "lstm": nn.LSTM(3, 4), "gru": nn.GRU(3, 4),
            "bare_rnn": nn.RNN(3, 4, bias=False), "bare_lstm": nn.LSTM(3, 4, bias=False), "bare_gru": nn.GRU(3, 4, bias=False),
        }  # fmt: skip
        self.relu = nn.RNN(3, 4, nonlinearity=nn.relu)
        self.head = nn.Linear(4, 2)


def main():
    mx.set_default_device(mx.cpu)
    mx.random.seed(3)
    model = Model()
    x = mx.random.uniform(-1, 1, (2, 5, 3))
    h, c = mx.random.uniform(-1, 1, (2, 4)), mx.random.uniform(-1, 1, (2, 4))
    answers = {"x": x, "h": h, "c": c}
    for name, layer in [*model.encoder.items(), ("relu", model.relu)]:
        path = name if name == "relu" else f"encoder.{name}"
        y = layer(x, h, c) if isinstance(layer, nn.LSTM) else layer(x, h)
        answers[path] = y[0] if isinstance(y, tuple) else y
        if isinstance(y, tuple):
            answers[f"{path}.c"] = y[1]
    model.save_weights(str(FOLDER / "model.safetensors"))
    model.save_weights(str(FOLDER / "model.npz"))
    np.savez(FOLDER / "answers.npz", **{name: np.array(value) for name, value in answers.items()})


if __name__ == "__main__":
    main()
