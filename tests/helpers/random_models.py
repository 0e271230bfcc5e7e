"""Whole Keras models drawn by a seed: recurrent layers and what stands around them, wired at random."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np

from tests.helpers.requirements import needed


class _Drawn:
    """A model being drawn."""

    def __init__(self, seed: int) -> None:
        self.keras = needed("keras", "keras")
        self.layers, self.random = self.keras.layers, random.Random(seed)
        self.keras.utils.clear_session()
        self.keras.utils.set_random_seed(seed)

    def flip(self, chance: float) -> bool:
        return self.random.random() < chance

    def cell(self) -> tuple[Any, dict[str, Any]]:
        """A recurrent layer's class, and its settings."""
        kind = self.random.choice(["LSTM", "GRU", "SimpleRNN"])
        settings: dict[str, Any] = {"use_bias": self.flip(0.85)}
        if self.flip(0.3):
            settings["activation"] = self.random.choice(["relu", "sigmoid"] if kind == "SimpleRNN" else ["relu", "softsign", "linear"])
        if kind != "SimpleRNN" and self.flip(0.25):
            settings["recurrent_activation"] = self.random.choice(["hard_sigmoid", "sigmoid"])
        if kind == "GRU":
            settings["reset_after"] = self.flip(0.5)
        return getattr(self.layers, kind), settings

    def over_time(self, x: Any) -> Any:
        """One layer more on (batch, time, features)."""
        y = self.random.choice(_OVER_TIME)(self, x)
        return x if y is None else y

    def size(self) -> int:
        return self.random.randint(2, 6)


def _recurrent(d: _Drawn, x: Any) -> Any:
    kind, settings = d.cell()
    return kind(d.size(), return_sequences=True, go_backwards=d.flip(0.2), **settings)(x)


def _both_ways(d: _Drawn, x: Any) -> Any:
    kind, settings = d.cell()
    merge = d.random.choice(["concat", "concat", "sum", "mul", "ave"])
    return d.layers.Bidirectional(kind(d.size(), return_sequences=True, **settings), merge_mode=merge)(x)


def _merged(d: _Drawn, x: Any) -> Any:
    kind = d.random.choice(["Add", "Subtract", "Multiply", "Average", "Maximum", "Minimum"])
    return getattr(d.layers, kind)()([x, d.layers.Dense(x.shape[-1])(x)])


def _attended(d: _Drawn, x: Any) -> Any:
    words = {"use_causal_mask": True} if d.flip(0.3) else {}
    query = d.layers.Dense(x.shape[-1])(x) if d.flip(0.5) else x
    kind = d.layers.Attention() if d.flip(0.5) else d.layers.AdditiveAttention(use_scale=False)
    return kind([query, x], **words)


def _twice(d: _Drawn, x: Any) -> Any:
    """One layer called on two tensors."""
    shared = d.layers.LSTM(d.size(), return_sequences=True) if d.flip(0.5) else d.layers.Dense(d.size(), activation="tanh")
    return d.layers.Concatenate()([shared(x), shared(d.layers.Dense(x.shape[-1])(x))])


def _convolved(d: _Drawn, x: Any) -> Any:
    padding, function = d.random.choice(["same", "causal"]), d.random.choice([None, "relu"])
    width = d.random.randint(1, 4)
    return d.layers.Conv1D(d.size(), width, padding=padding, dilation_rate=d.random.choice([1, 1, 2]), activation=function)(x)


def _dense(d: _Drawn, x: Any) -> Any:
    return d.layers.Dense(d.size(), activation=d.random.choice([None, "tanh", "relu", "gelu", "softmax", "hard_sigmoid"]))(x)


def _pooled(d: _Drawn, x: Any) -> Any:
    return getattr(d.layers, d.random.choice(["MaxPooling1D", "AveragePooling1D"]))(2, strides=1, padding="same")(x)


def _function(d: _Drawn, x: Any) -> Any:
    return d.layers.Activation(d.random.choice(["relu", "elu", "selu", "softplus", "swish", "leaky_relu"]))(x)


_OVER_TIME: tuple[Callable[[_Drawn, Any], Any], ...] = (
    *[_recurrent] * 4, *[_both_ways] * 3, _merged, _attended, _twice, _convolved, _dense, _pooled, _function,
    lambda d, x: d.layers.TimeDistributed(d.layers.Dense(d.size(), activation=d.random.choice([None, "relu"])))(x),
    lambda d, x: d.layers.LayerNormalization()(x), lambda d, x: d.layers.BatchNormalization()(x), lambda d, x: d.layers.Dropout(0.3)(x),
    lambda d, x: d.layers.Concatenate()([x, d.layers.Dense(3)(x)]), lambda d, x: d.layers.SpatialDropout1D(0.2)(x),
    lambda d, x: d.layers.SeparableConv1D(d.size(), 3, padding="same")(x),
)  # fmt: skip


def _start(d: _Drawn, time: int | None) -> tuple[Any, Any]:
    """An input, and what the first layers make of it."""
    if d.flip(0.4):
        name, dtype = d.random.choice(["tokens", "input 1", "class"]), d.random.choice(["int32", "float32"])
        start = d.keras.Input((time,), dtype=dtype, name=name)
        return start, d.layers.Embedding(11, d.size(), mask_zero=d.flip(0.5))(start)
    start = d.keras.Input((time, d.size()), name=d.random.choice(["x", "features", "in put"]))
    return start, d.layers.Masking()(start) if d.flip(0.3) else start


def _end(d: _Drawn, x: Any, time: int | None) -> tuple[Any, list[Any]]:
    """What the last layers make of a sequence, and other outputs."""
    end = d.random.randrange(6)
    kind, settings = d.cell()
    if end == 0:
        return kind(3, **settings)(x), []
    if end == 1:
        return d.layers.GlobalAveragePooling1D()(x), []
    if end == 2:
        return d.layers.GlobalMaxPooling1D()(x), []
    if end == 3:
        return d.layers.Bidirectional(kind(3, **settings), merge_mode=d.random.choice(["concat", "sum", "ave"]))(x), []
    if end == 4 and time is not None and x.shape[1]:
        return d.layers.Flatten()(x), []
    x, *states = d.layers.LSTM(3, return_state=True)(x)
    if d.flip(0.5):
        return d.layers.LSTM(3, return_sequences=True)(d.layers.RepeatVector(4)(x), initial_state=states), []
    return x, [states[1]]


def random_model(seed: int) -> Any:
    """A Keras model with weights that are all different."""
    d = _Drawn(seed)
    time = d.random.choice([None, None, 8, 12])
    start, x = _start(d, time)
    starts = [start]
    if d.flip(0.2):
        second, y = _start(d, time)
        while second.name in {start.name}:
            second, y = _start(d, time)
        starts.append(second)
        x = d.layers.Concatenate()([x, y])
    for _ in range(d.random.randint(1, 5)):
        x = d.over_time(x)
    if d.flip(0.25):
        inside = y = d.keras.Input((time, x.shape[-1]))
        for _ in range(d.random.randint(1, 2)):
            y = d.over_time(y)
        x = d.keras.Model(inside, y, name="inner")(x)
    x, others = _end(d, x, time)
    x = d.layers.Dense(d.random.randint(2, 4), activation=d.random.choice([None, "softmax", "sigmoid"]))(x)
    model = d.keras.Model(starts, [x, *others] if others else x)
    fill(model, seed)
    return model


def _forwards(d: _Drawn, x: Any) -> Any:
    kind, settings = d.cell()
    return kind(d.size(), return_sequences=True, **settings)(x)


def _inside(d: _Drawn, x: Any) -> Any:
    """A model in the model, called once or twice."""
    inside = d.keras.Input((None, x.shape[-1]))
    y = _forwards(d, d.layers.Dense(d.size())(inside))
    inner = d.keras.Model(inside, [y, d.layers.LSTM(2)(y)][: 1 + d.flip(0.5)])
    outputs = [inner(x), *([inner(d.layers.Dense(x.shape[-1])(x))] if d.flip(0.5) else [])]
    sequences = [each[0] if isinstance(each, list) else each for each in outputs]
    return d.layers.Concatenate()(sequences) if len(sequences) > 1 else sequences[0]


_BY_STEP: tuple[Callable[[_Drawn, Any], Any], ...] = (
    *[_forwards] * 6, _merged, _twice, _dense, _function, _inside,
    lambda d, x: d.layers.TimeDistributed(d.layers.Dense(d.size(), activation=d.random.choice([None, "relu"])))(x),
    lambda d, x: d.layers.LayerNormalization()(x), lambda d, x: d.layers.BatchNormalization()(x), lambda d, x: d.layers.Dropout(0.3)(x),
    lambda d, x: d.layers.Conv1D(d.size(), 1, activation="relu")(x), lambda d, x: d.layers.Reshape((-1, x.shape[-1]))(x),
)  # fmt: skip


def random_stream(seed: int) -> Any:
    """A Keras model whose layers may be cut between any two steps: of any number of steps, or of 12."""
    d = _Drawn(seed)
    time = d.random.choice([None, None, None, 12])
    if d.flip(0.3):
        start = d.keras.Input((time,), dtype="int32", name="tokens")
        x = d.layers.Embedding(11, d.size())(start)
    else:
        start = x = d.keras.Input((time, d.size()), name=d.random.choice(["x", "in put"]))
    starts = [start]
    if d.flip(0.25):  # what all steps have in common
        starts.append(d.keras.Input((d.size(),), name="about"))
        wide = d.layers.Reshape((1, x.shape[-1]))(d.layers.Dense(x.shape[-1])(starts[-1]))
        x = d.layers.Add()([x, wide])
    x = _forwards(d, x)
    for _ in range(d.random.randint(0, 4)):
        x = d.random.choice(_BY_STEP)(d, x)
    outputs = [d.layers.Dense(d.size())(x)]
    if d.flip(0.4):
        x, *states = d.layers.LSTM(3, return_state=True)(x)
        outputs.append(d.random.choice([x, states[1], d.layers.GRU(3)(d.layers.RepeatVector(4)(x), initial_state=states[0])]))
    outputs = outputs[-1:] if d.flip(0.3) else outputs
    model = d.keras.Model(starts, outputs if len(outputs) > 1 else outputs[0])
    fill(model, seed)
    return model


def _chained(k: Any, random: Any, y: Any) -> Any:
    """Return one more layer over a sequence of vectors."""
    layers, width = k.layers, int(y.shape[-1])
    units = int(random.integers(1, 7))
    kind = str(random.choice([
        "lstm", "gru", "gru before", "rnn", "dense", "activation", "layer_norm", "batch_norm", "rms_norm", "residual", "conv",
        "concatenate", "bidirectional", "dropout", "distributed",
    ]))  # fmt: skip
    if kind == "lstm":
        return layers.LSTM(units, return_sequences=True)(y)
    if kind.startswith("gru"):
        return layers.GRU(units, return_sequences=True, reset_after=kind == "gru")(y)
    if kind == "rnn":
        return layers.SimpleRNN(units, return_sequences=True, go_backwards=bool(random.integers(4) == 0))(y)
    if kind in ("dense", "distributed"):
        dense = layers.Dense(units, activation=str(random.choice(["relu", "tanh", "gelu", "swish", "elu", "softplus"])))
        return dense(y) if kind == "dense" else layers.TimeDistributed(dense)(y)
    if kind == "activation":
        return layers.Activation(str(random.choice(["softmax", "sigmoid", "selu", "hard_sigmoid", "relu6", "softsign"])))(y)
    if kind == "layer_norm":
        return layers.LayerNormalization()(y)
    if kind == "rms_norm":
        return layers.RMSNormalization()(y)
    if kind == "batch_norm":
        return layers.BatchNormalization()(y)
    if kind == "residual":
        return layers.Add()([y, layers.LSTM(width, return_sequences=True)(y)])
    if kind == "conv":
        return layers.Conv1D(units, 3, padding=str(random.choice(["causal", "same"])), dilation_rate=int(random.integers(1, 3)))(y)
    if kind == "concatenate":
        return layers.Concatenate()([y, layers.Multiply()([y, layers.Dense(width)(y)])])
    if kind == "bidirectional":
        merge = [None, "concat", "sum", "ave", "mul"][int(random.integers(1, 5))]
        return layers.Bidirectional(layers.GRU(units, return_sequences=True), merge_mode=merge)(y)
    return layers.Dropout(0.3)(y)


def random_chain(seed: int) -> Any:
    """A Keras model of layers one after the other over a sequence, and a head on its end, or on every step."""
    d, random = _Drawn(seed), np.random.default_rng(seed)
    k, layers = d.keras, d.layers
    words = bool(random.integers(2))
    x = k.Input((None,), dtype="int32") if words else k.Input((None, 3))
    y = layers.Embedding(9, 4, mask_zero=bool(random.integers(2)))(x) if words else x
    for _ in range(int(random.integers(1, 4))):
        y = _chained(k, random, y)
    head = int(random.integers(5))
    if head == 0:
        y = layers.GRU(3)(y)
    elif head == 1:
        y = layers.GlobalAveragePooling1D()(y)
    elif head == 2:
        y = layers.Bidirectional(layers.LSTM(2))(y)
    elif head == 3:
        y = list(layers.LSTM(3, return_state=True)(y))
    y = [layers.Dense(2, activation="softmax")(y[0]), *y[1:]] if isinstance(y, list) else layers.Dense(2)(y)
    model = k.Model(x, y)
    fill(model, seed)
    return model


def fill(model: Any, seed: int, size: float = 0.5) -> None:
    """Give a model's weights random values of a standard deviation, and its variances positive ones."""
    generator = np.random.default_rng(seed)
    for weight in model.weights:
        values = generator.standard_normal(tuple(weight.shape)) * size
        if "float" in str(weight.dtype):
            weight.assign(np.abs(values) + 0.1 if "variance" in weight.path else values)
