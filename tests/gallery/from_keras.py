"""Models that were trained in Keras, rebuilt in PyTorch."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from rnnconvert.core.arrays import Array
from tests.gallery.entry import Arrays, Entry
from tests.helpers.corpus import FOLDER


def array(tensor: Any) -> Array:
    """A tensor's numbers."""
    return np.asarray(tensor.detach())


def tensor(values: Array) -> Any:
    """A torch tensor of an array."""
    import torch

    return torch.from_numpy(np.array(values))


def price(kind: str) -> Any:
    """The next price of a share from the last 252: one recurrent layer, and a dense one on its last step."""
    from torch import nn

    class Price(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn = getattr(nn, kind)(1, 128, batch_first=True)
            self.head = nn.Linear(128, 1)

        def forward(self, x: Any) -> Any:
            last = self.rnn(x)[0][:, -1]
            return last, self.head(last)

    return Price()


def run_price(name: str) -> Callable[[Any, Arrays], Arrays]:
    def run(module: Any, recorded: Arrays) -> Arrays:
        last, y = module(tensor(recorded["x"]))
        return {f"{name}__y": array(last), "y": array(y)}

    return run


def text() -> Any:
    """textgenrnn: the next character, of an attention over the embedding and both LSTM layers at every step."""
    import torch
    from torch import nn

    class Text(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(465, 100)
            self.rnn_1 = nn.LSTM(100, 128, batch_first=True)
            self.rnn_2 = nn.LSTM(128, 128, batch_first=True)
            self.attention = nn.Linear(100 + 128 + 128, 1, bias=False)
            self.output = nn.Linear(100 + 128 + 128, 465)

        def forward(self, characters: Any) -> Any:
            x = self.embedding(characters)
            y = self.rnn_1(x)[0]
            every = torch.cat([x, y, self.rnn_2(y)[0]], -1)
            weights = self.attention(every).softmax(1)
            return self.output((weights * every).sum(1)).softmax(-1)

    return Text()


def run_text(module: Any, recorded: Arrays) -> Arrays:
    outputs = {f"{name}__y": array(getattr(module, name)(tensor(recorded[f"{name}__x"]))[0]) for name in ("rnn_1", "rnn_2")}
    return {**outputs, "next": array(module(tensor(recorded["characters"]).long()))}


def denoiser() -> Any:
    """DTLN: two masks, each of two LSTM layers, one over a spectrum and one over learned features."""
    import torch
    from torch import nn

    class Denoiser(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm = nn.LSTM(257, 128, batch_first=True)
            self.lstm_1 = nn.LSTM(128, 128, batch_first=True)
            self.dense = nn.Linear(128, 257)
            self.encode = nn.Conv1d(512, 256, 1, bias=False)
            self.norm = nn.LayerNorm(256, eps=1e-7)
            self.lstm_2 = nn.LSTM(256, 128, batch_first=True)
            self.lstm_3 = nn.LSTM(128, 128, batch_first=True)
            self.dense_1 = nn.Linear(128, 256)
            self.decode = nn.Conv1d(256, 512, 1, bias=False)

        @staticmethod
        def two(first: Any, second: Any, x: Any, states: Any) -> Any:
            """Two layers with states (batch, layer, unit, h or c), and their states behind."""
            h, c = states.permute(3, 1, 0, 2).contiguous()
            y, (h_0, c_0) = first(x, (h[:1], c[:1]))
            y, (h_1, c_1) = second(y, (h[1:], c[1:]))
            return y, torch.stack([torch.cat([h_0, h_1]), torch.cat([c_0, c_1])]).permute(2, 1, 3, 0)

        def mask(self, spectrum: Any, states: Any) -> Any:
            y, states = self.two(self.lstm, self.lstm_1, spectrum, states)
            return self.dense(y).sigmoid(), states

        def filtered(self, frames: Any, states: Any) -> Any:
            features = self.encode(frames.transpose(1, 2)).transpose(1, 2)
            y, states = self.two(self.lstm_2, self.lstm_3, self.norm(features), states)
            masked = features * self.dense_1(y).sigmoid()
            return self.decode(masked.transpose(1, 2)).transpose(1, 2), states

    return Denoiser()


def run_mask(module: Any, recorded: Arrays) -> Arrays:
    mask, states = module.mask(tensor(recorded["in__input_2"]), tensor(recorded["in__input_3"]))
    return {"out__activation_2": array(mask), "out__tf_op_layer_stack_2": array(states)}


def run_filtered(module: Any, recorded: Arrays) -> Arrays:
    frames, states = module.filtered(tensor(recorded["in__input_4"]), tensor(recorded["in__input_5"]))
    return {"out__conv1d_3": array(frames), "out__tf_op_layer_stack_5": array(states)}


def run_layers(module: Any, recorded: Arrays) -> Arrays:
    """Each recurrent layer alone."""
    names = [name.removesuffix("__x") for name in recorded if name.endswith("__x")]
    return {f"{name}__y": array(getattr(module, name)(tensor(recorded[f"{name}__x"]))[0]) for name in names}


def half_in_onnx(path: Path | str) -> Any:
    """The first half as its authors exported it to ONNX, with zeros for weights."""
    import onnx
    from onnx import numpy_helper

    model = onnx.load(path)
    for stored in model.graph.initializer:
        if stored.data_type == onnx.TensorProto.FLOAT and len(stored.dims) > 0:
            zeros = np.zeros_like(numpy_helper.to_array(stored))
            stored.CopyFrom(numpy_helper.from_array(zeros, stored.name))
    return model


def run_half_in_onnx(model: Any, recorded: Arrays) -> Arrays:
    import onnxruntime

    session = onnxruntime.InferenceSession(model.SerializeToString())
    inputs = {port.name: recorded[f"in__{port.name}"] for port in session.get_inputs()}
    return {f"out__{port.name}": y for port, y in zip(session.get_outputs(), session.run(None, inputs), strict=True)}


# The file has no configuration: that its norm was made with 1e-7 is in its authors' code alone.
_DTLN: Mapping[str, Any] = {"accept": ["epsilon"]}

ENTRIES = (
    *(
        Entry(
            f"lstm-qqq-keras3/{kind}_model.keras", "torch", functools.partial(price, kind.upper()), run_price(kind),
            (f"{kind}__y", "y"), reference=f"{kind}_model.keras.ref.npz",
        )
        for kind in ("lstm", "gru")
    ),
    Entry(
        "textgenrnn-default/textgenrnn_weights.hdf5", "torch", text, run_text, ("rnn_1__y", "rnn_2__y", "next"),
    ),
    # What its whole halves give, the authors' ONNX files of the same weights say.
    Entry(
        "dtln-base/model.h5", "torch", denoiser, run_mask, ("out__activation_2", "out__tf_op_layer_stack_2"),
        options=_DTLN, reference="model_1.ref.npz",
    ),
    Entry(
        "dtln-base/model.h5", "torch", denoiser, run_filtered, ("out__conv1d_3", "out__tf_op_layer_stack_5"),
        options=_DTLN, reference="model_2.ref.npz",
    ),
    Entry(
        "dtln-base/model.h5", "torch", denoiser, run_layers, ("lstm__y", "lstm_1__y", "lstm_2__y", "lstm_3__y"),
        options=_DTLN,
    ),
    # Their ONNX file again, its numbers taken out and put in from the Keras file.
    Entry(
        "dtln-base/model.h5", "onnx", lambda: half_in_onnx(FOLDER / "dtln-base" / "model_1.onnx"), run_half_in_onnx,
        ("out__activation_2", "out__tf_op_layer_stack_2"),
        options={"mapping": {"lstm_5": "lstm_1"}, "strict": False}, reference="model_1.ref.npz",
    ),
)  # fmt: skip
