"""Make the files beside this: models that exporters wrote, with the outputs of the framework that they came from.

    KERAS_BACKEND=tensorflow python make.py keras      (keras 3.15, tensorflow 2.21, tf2onnx 1.17)
    KERAS_BACKEND=torch python make.py keras_torch     (keras 3.15, torch 2.13)
    python make.py torch                               (torch 2.13)

Weights are random with seed 0.
"""

import sys
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
BATCH, TIME = 2, 6


def keep(name: str, inputs: list, outputs: list) -> None:
    """Keep what a model read and gave."""
    arrays = {f"x{n}": np.asarray(one) for n, one in enumerate(inputs)}
    np.savez(HERE / f"{name}.npz", **arrays, **{f"y{n}": np.asarray(one) for n, one in enumerate(outputs)})


def keras_models(prefix: str, time: int | None) -> None:
    import keras

    layers = keras.layers
    cells = {
        "gru": layers.GRU(8, return_sequences=True), "gru_reset_before": layers.GRU(8, reset_after=False),
        "rnn": layers.SimpleRNN(8, return_sequences=True), "lstm": layers.LSTM(8, return_sequences=True, activation="relu"),
        "bilstm": layers.Bidirectional(layers.LSTM(8)), "lstm_hard": layers.LSTM(8, recurrent_activation="hard_sigmoid"),
        "gru_backwards": layers.GRU(8, go_backwards=True),
    }  # fmt: skip
    for name, layer in cells.items():
        model = keras.Sequential([keras.Input((time, 6)), layer, layers.Dense(3)])
        export(f"{prefix}_{name}", model, np.random.default_rng(1).normal(size=(BATCH, TIME, 6)).astype("float32"))
    tokens = keras.Input((time,), dtype="int32")
    model = keras.Model(tokens, layers.GRU(8)(layers.Embedding(20, 6, mask_zero=True)(tokens)))
    export(f"{prefix}_masked", model, np.array([[3, 4, 5, 6, 0, 0], [1, 2, 3, 4, 5, 6]], "int32"))
    if time is None:
        both = layers.Bidirectional(layers.LSTM(8, return_sequences=True))(
            layers.Embedding(20, 6, mask_zero=True)(tokens)
        )
        export(
            f"{prefix}_masked_bilstm",
            keras.Model(tokens, both),
            np.array([[0, 4, 0, 6, 0, 0], [0] * 6, [1, 2, 3, 4, 5, 6]], "int32"),
        )


def export(name: str, model: object, x: np.ndarray) -> None:
    random = np.random.default_rng(0)
    for weight in model.weights:
        weight.assign(random.normal(size=weight.shape) * 0.3)
    y = model(x)
    model.export(str(HERE / f"{name}.onnx"), format="onnx", verbose=False)
    keep(name, [x], [y.detach() if hasattr(y, "detach") else y])


def without_notes(path: Path) -> None:
    """Take out what the exporter notes of each node: the lines of source, with the paths of the machine."""
    import onnx

    model = onnx.load(path)
    for part in (*model.graph.node, *model.graph.value_info, *model.graph.input, *model.graph.output):
        part.ClearField("metadata_props")
        part.ClearField("doc_string")
    onnx.save(model, path)


def torch_models() -> None:
    import torch

    torch.manual_seed(0)

    class Steps(torch.nn.Module):
        def __init__(self, cell: torch.nn.Module, batch_first: bool = False) -> None:
            super().__init__()
            self.cell, self.out, self.batch_first = cell, torch.nn.Linear(8, 3), batch_first

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            lstm = isinstance(self.cell, torch.nn.LSTMCell)
            axis = int(self.batch_first)
            h = c = torch.zeros(x.shape[1 - axis], 8)
            states = []
            for one in x.unbind(axis):
                if lstm:
                    h, c = self.cell(one, (h, c))
                else:
                    h = self.cell(one, h)
                states.append(h)
            return self.out(torch.stack(states, axis))

    class Own(torch.nn.Module):
        """A GRU as a textbook writes it: what it reads and its state side by side, the reset gate before the product."""

        def __init__(self) -> None:
            super().__init__()
            self.gates, self.candidate = torch.nn.Linear(14, 16), torch.nn.Linear(14, 8)

        def forward(self, x: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
            for one in x.flip(1).unbind(1):
                z, r = torch.sigmoid(self.gates(torch.cat([one, h], 1))).chunk(2, 1)
                n = torch.tanh(self.candidate(torch.cat([one, r * h], 1)))
                h = (1 - z) * n + z * h
            return h

    x, h = torch.randn(TIME, BATCH, 6), torch.randn(BATCH, 8)
    models = {
        "lstm_cells": (Steps(torch.nn.LSTMCell(6, 8)), (x,)),
        "gru_cells": (Steps(torch.nn.GRUCell(6, 8), True), (x.transpose(0, 1),)),
        "rnn_cells": (Steps(torch.nn.RNNCell(6, 8)), (x,)), "gru_cell": (torch.nn.GRUCell(6, 8), (x[0], h)),
        "own": (Own(), (x.transpose(0, 1), h)),
        "gru": (torch.nn.GRU(6, 8), (x,)),
    }  # fmt: skip
    for name, (model, given) in models.items():
        model.eval()
        y = model(*given)
        for way, dynamo in (("dynamo", True), ("torchscript", False)):
            extra = {"external_data": False} if dynamo else {}
            torch.onnx.export(model, given, HERE / f"{way}_{name}.onnx", dynamo=dynamo, verbose=False, **extra)
            without_notes(HERE / f"{way}_{name}.onnx")
            keep(f"{way}_{name}", list(given), [one.detach() for one in (y if isinstance(y, tuple) else (y,))])


if __name__ == "__main__":
    if sys.argv[1] == "torch":
        torch_models()
    else:
        keras_models(sys.argv[1], None if sys.argv[1] == "keras" else TIME)
