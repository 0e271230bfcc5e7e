"""Whole models of the same architecture in Keras and PyTorch, for transplants between them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rnnconvert.core.arrays import Array
from rnnconvert.running.child import missing
from tests.helpers.requirements import need


def need_both() -> None:
    """Go on where PyTorch and Keras are there."""
    need("torch", missing(["torch"]))
    need("keras", missing(["keras", "tensorflow"]))


def both() -> tuple[Any, Any]:
    """Keras's layers and torch.nn, which must be there."""
    need_both()
    import keras
    import torch

    return keras.layers, torch.nn


@dataclass(frozen=True)
class Pair:
    """One architecture in both frameworks.

    name     what it shows
    keras    makes the Keras model, from keras.layers
    torch    makes the torch module, from torch.nn
    shape    of the input without the batch; of whole numbers below `tokens` where that is given
    axes     how the torch module wants the axes of the input, and how its output's go back
    options  of load_into
    back     of load_into the other way, where they are not the same
    """

    name: str
    keras: Callable[[Any], Any]
    torch: Callable[[Any], Any]
    shape: tuple[int, ...]
    axes: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())
    tokens: int = 0
    options: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.name

    def models(self, seed: int = 0) -> tuple[Any, Any]:
        """A Keras model with random numbers in all its variables, and a torch module as PyTorch makes it."""
        import keras
        import torch

        model = self.keras(keras.layers)
        randomise(model, seed)
        torch.manual_seed(seed)
        return model, self.torch(torch.nn).eval()

    def x(self) -> Array:
        """Inputs for both, a batch of three."""
        generator = np.random.default_rng(11)
        if self.tokens:
            return generator.integers(1, self.tokens, (3, *self.shape)).astype(np.int32)
        return generator.normal(size=(3, *self.shape)).astype(np.float32)

    def in_torch(self, module: Any, x: Array) -> Array:
        """What the torch module makes of inputs that lie as Keras has them."""
        import torch

        before, behind = self.axes
        tensor = torch.from_numpy(x)
        tensor = tensor.permute(*before) if before else tensor
        with torch.no_grad():
            y = module(tensor)
        y = y[0][:, -1] if isinstance(y, tuple) else y
        return np.asarray((y.permute(*behind) if behind else y).numpy())


def randomise(model: Any, seed: int) -> None:
    """Numbers that are not round in every variable, variances positive."""
    generator = np.random.default_rng(seed)
    for variable in model.weights:
        if "seed" in variable.path:
            continue
        values = generator.normal(0, 0.4, variable.shape)
        variable.assign(np.abs(values) + 0.5 if "variance" in variable.path else values)


def in_keras(model: Any, x: Array) -> Array:
    """What a Keras model makes of inputs."""
    return np.asarray(model(x, training=False))


def sequential(*makers: Callable[[Any], Any], shape: tuple[int, ...]) -> Callable[[Any], Any]:
    """A Keras model of layers one after the other."""

    def make(layers: Any) -> Any:
        import keras

        return keras.Sequential([layers.Input(shape), *(maker(layers) for maker in makers)])

    return make


def last(nn: Any, layer: Any) -> Any:
    """A torch module that gives the last step of a recurrent one's output, as Keras does."""

    class Last(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn = layer

        def forward(self, x: Any) -> Any:
            return self.rnn(x)[0][:, -1]

    return Last()


def every(nn: Any, layer: Any) -> Any:
    """A torch module that gives all of a recurrent one's output."""

    class Every(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn = layer

        def forward(self, x: Any) -> Any:
            return self.rnn(x)[0]

    return Every()


def tagger(nn: Any) -> Any:
    """Embedding, convolution, batch norm, two recurrent layers, layer norm and two dense ones, as one class."""
    import torch

    class Tagger(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(30, 8)
            self.conv = nn.Conv1d(8, 12, 3, padding=1)
            self.norm = nn.BatchNorm1d(12, eps=1e-3)
            self.gru = nn.GRU(12, 6, bidirectional=True, batch_first=True)
            self.lstm = nn.LSTM(12, 7, batch_first=True)
            self.behind = nn.LayerNorm(7, eps=1e-3)
            self.hidden = nn.Linear(7, 9)
            self.head = nn.Linear(9, 4)

        def forward(self, x: Any) -> Any:
            y = self.norm(self.conv(self.embedding(x).transpose(1, 2))).transpose(1, 2)
            y = self.behind(self.lstm(self.gru(y)[0])[0][:, -1])
            return self.head(torch.relu(self.hidden(y)))

    return Tagger()


_IMAGE = ((0, 3, 1, 2), (0, 2, 3, 1))
_LINE = ((0, 2, 1), (0, 2, 1))

TAGGER = Pair(
    "tagger",
    sequential(
        lambda k: k.Embedding(30, 8),
        lambda k: k.Conv1D(12, 3, padding="same"),
        lambda k: k.BatchNormalization(),
        lambda k: k.Bidirectional(k.GRU(6, return_sequences=True)),
        lambda k: k.LSTM(7),
        lambda k: k.LayerNormalization(),
        lambda k: k.Dense(9, activation="relu"),
        lambda k: k.Dense(4),
        shape=(20,),
    ),
    tagger,
    (20,),
    tokens=30,
)

PAIRS = (
    TAGGER,
    Pair("dense", sequential(lambda k: k.Dense(5), shape=(4,)), lambda nn: nn.Sequential(nn.Linear(4, 5)), (4,)),
    Pair("square dense", sequential(lambda k: k.Dense(5), shape=(5,)), lambda nn: nn.Sequential(nn.Linear(5, 5)), (5,)),
    Pair(
        "transposed convolution",
        sequential(lambda k: k.Conv2DTranspose(4, (3, 2), strides=2), shape=(7, 5, 3)),
        lambda nn: nn.Sequential(nn.ConvTranspose2d(3, 4, (3, 2), stride=2)),
        (7, 5, 3),
        _IMAGE,
    ),
    Pair(
        "transposed convolution of as many channels",
        sequential(lambda k: k.Conv1DTranspose(3, 3), shape=(7, 3)),
        lambda nn: nn.Sequential(nn.ConvTranspose1d(3, 3, 3)),
        (7, 3),
        _LINE,
    ),
    Pair(
        "depthwise convolution",
        sequential(lambda k: k.DepthwiseConv2D((3, 2), depth_multiplier=2), shape=(7, 5, 3)),
        lambda nn: nn.Sequential(nn.Conv2d(3, 6, (3, 2), groups=3)),
        (7, 5, 3),
        _IMAGE,
    ),
    Pair(
        "separable convolution",
        sequential(lambda k: k.SeparableConv2D(4, (3, 2), depth_multiplier=2), shape=(7, 5, 3)),
        lambda nn: nn.Sequential(nn.Conv2d(3, 6, (3, 2), groups=3, bias=False), nn.Conv2d(6, 4, 1)),
        (7, 5, 3),
        _IMAGE,
    ),
    Pair(
        "convolution in groups",
        sequential(lambda k: k.Conv2D(6, 3, groups=2), shape=(7, 5, 4)),
        lambda nn: nn.Sequential(nn.Conv2d(4, 6, 3, groups=2)),
        (7, 5, 4),
        _IMAGE,
    ),
    Pair(
        "convolution of space",
        sequential(lambda k: k.Conv3D(6, (3, 5, 1), padding="same"), shape=(7, 5, 4, 2)),
        lambda nn: nn.Sequential(nn.Conv3d(2, 6, (3, 5, 1), padding=(1, 2, 0))),
        (7, 5, 4, 2),
        ((0, 4, 1, 2, 3), (0, 2, 3, 4, 1)),
    ),
    Pair(
        "flattened convolution",
        sequential(lambda k: k.Conv2D(6, 3), lambda k: k.ReLU(), lambda k: k.Flatten(), lambda k: k.Dense(5), shape=(7, 5, 4)),
        lambda nn: nn.Sequential(nn.Conv2d(4, 6, 3), nn.ReLU(), nn.Flatten(), nn.Linear(90, 5)),
        (7, 5, 4),
        (_IMAGE[0], ()),
    ),
    Pair(
        "group norm",
        sequential(lambda k: k.GroupNormalization(3), shape=(7, 6)),
        lambda nn: nn.Sequential(nn.GroupNorm(3, 6, eps=1e-3)),
        (7, 6),
        _LINE,
    ),
    Pair(
        "instance norm",
        sequential(lambda k: k.GroupNormalization(-1, epsilon=1e-5), shape=(7, 6)),
        lambda nn: nn.Sequential(nn.InstanceNorm1d(6, affine=True)),
        (7, 6),
        _LINE,
    ),
    Pair(
        "root mean square norm",
        sequential(lambda k: k.RMSNormalization(epsilon=1e-5), shape=(7, 6)),
        lambda nn: nn.Sequential(nn.RMSNorm(6, eps=1e-5)),
        (7, 6),
    ),
    Pair(
        "parametric relu",
        sequential(lambda k: k.PReLU(shared_axes=[1]), shape=(7, 6)),
        lambda nn: nn.Sequential(nn.PReLU(6)),
        (7, 6),
        _LINE,
    ),
    Pair(
        "norm without scale",
        sequential(lambda k: k.BatchNormalization(scale=False, center=False), shape=(6,)),
        lambda nn: nn.Sequential(nn.BatchNorm1d(6, eps=1e-3, affine=False)),
        (6,),
    ),
    Pair(
        "two layers in one module",
        sequential(lambda k: k.LSTM(6, return_sequences=True), lambda k: k.LSTM(6, return_sequences=True), shape=(7, 6)),
        lambda nn: every(nn, nn.LSTM(6, 6, 2, batch_first=True)),
        (7, 6),
    ),
    Pair(
        "plain RNN in both directions",
        sequential(lambda k: k.Bidirectional(k.SimpleRNN(5, activation="relu", return_sequences=True)), shape=(7, 5)),
        lambda nn: every(nn, nn.RNN(5, 5, nonlinearity="relu", bidirectional=True, batch_first=True)),
        (7, 5),
    ),
    Pair(
        "layers without biases",
        sequential(lambda k: k.LSTM(5, use_bias=False), lambda k: k.Dense(3, use_bias=False), shape=(7, 4)),
        lambda nn: nn.Sequential(last(nn, nn.LSTM(4, 5, bias=False, batch_first=True)), nn.Linear(5, 3, bias=False)),
        (7, 4),
    ),
    Pair("a cell for a layer of one step", sequential(lambda k: k.GRU(5), shape=(1, 4)), lambda nn: _stepping(nn), (1, 4)),
)


def _stepping(nn: Any) -> Any:
    class Stepping(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell = nn.GRUCell(4, 5)

        def forward(self, x: Any) -> Any:
            return self.cell(x[:, 0])

    return Stepping()
