"""Keras models drawn by a seed: graphs around recurrent layers, whose sequences are read again, shortened, joined and begun anew."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.helpers.random_models import _OVER_TIME, fill
from tests.helpers.random_wirings import _WIRES, Wired


class Net(Wired):
    """A model whose sequences have one time, beside vectors (batch, features) and what became outputs.

    vectors  those that there are
    starts   the inputs
    ends     outputs on the way
    """

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.time = self.random.choice([None, None, None, *range(1, 10)])
        self.batch = self.random.choice([None, None, None, None, 1, 3])
        self.vectors: list[Any] = []
        self.starts: list[Any] = []
        self.ends: list[Any] = []

    def cell(self) -> tuple[Any, dict[str, Any]]:
        """A recurrent layer's class, and its settings: more often those that every target holds."""
        kind, settings = super().cell()
        if self.flip(0.6):
            settings = {key: value for key, value in settings.items() if "activation" not in key}
        return kind, settings

    def vector(self, width: int) -> Any:
        """Return a vector of a width: an input, one that there is, or a dense layer on one."""
        fitting = [each for each in self.vectors if each.shape[-1] == width]
        if fitting and self.flip(0.6):
            return self.random.choice(fitting)
        if not self.vectors or self.flip(0.2):
            self.starts.append(self.keras.Input(batch_shape=(self.batch, width), name=f"vector_{len(self.starts)}"))
            return self.starts[-1]
        return self.layers.Dense(width, activation=self.random.choice([None, "tanh"]))(self.random.choice(self.vectors))

    def states(self, kind: Any, width: int) -> list[Any]:
        """Return initial states of a layer."""
        return [self.vector(width) for _ in range(1 + (kind is self.layers.LSTM))]

    def short(self, y: Any) -> None:
        """Let a sequence of another time end: in a vector, or as an output."""
        kind, settings = self.cell()
        end = self.random.randrange(6)
        if end < 2:
            self.vectors.append(kind(self.size(), **settings)(y))
        elif end == 2:
            self.vectors.append(self.layers.GlobalMaxPooling1D()(y))
        elif end == 3:
            self.vectors.append(self.layers.Bidirectional(kind(self.size(), **settings))(y))
        elif end == 4:
            self.vectors.append(kind(self.size(), return_sequences=True, **settings)(y)[:, -1])
        else:
            self.ends.append(kind(self.size(), return_sequences=True, go_backwards=self.flip(0.3), **settings)(y))


def _with_states(d: Net, x: Any) -> Any:
    kind, settings = d.cell()
    size = d.size()
    begin = {"initial_state": d.states(kind, size)} if d.flip(0.5) else {}
    y, *states = kind(size, return_sequences=True, return_state=True, go_backwards=d.flip(0.2), **settings)(x, **begin)
    d.vectors += states
    return y


def _both_ways(d: Net, x: Any) -> Any:
    kind, settings = d.cell()
    size, merge = d.size(), d.random.choice(["concat", "sum", "mul", "ave", None])
    begin = {"initial_state": d.states(kind, size) + d.states(kind, size)} if d.flip(0.4) else {}
    gives = d.flip(0.5)
    results = d.layers.Bidirectional(kind(size, return_sequences=True, return_state=gives, **settings), merge_mode=merge)(x, **begin)
    results = list(results) if isinstance(results, (list, tuple)) else [results]
    d.vectors += results[1 + (merge is None) :]
    if merge is None:
        d.tensors.append(results[1])
    return results[0]


def _residual(d: Net, x: Any) -> Any:
    kind, settings = d.cell()
    y = x
    for _ in range(d.random.randint(1, 3)):
        layer = kind(x.shape[-1], return_sequences=True, **settings)
        y = d.layers.Add()([y, layer(y)] if d.flip(0.7) else [layer(y), y, x])
    return y


def _gated(d: Net, x: Any) -> Any:
    return d.layers.Multiply()([x, d.layers.Dense(x.shape[-1], activation="sigmoid")(d.any())])


def _gated_by_vector(d: Net, x: Any) -> Any:
    width = x.shape[-1]
    gate = d.layers.Reshape((1, width))(d.layers.Dense(width, activation="sigmoid")(d.vector(d.size())))
    return getattr(d.layers, d.random.choice(["Multiply", "Add"]))()([x, gate])


def _shortened(d: Net, x: Any) -> None:
    kernel, stride = d.random.randint(1, 4), d.random.randint(1, 3)
    padding = d.random.choice(["valid", "same"])
    kind = d.random.randrange(5)
    if kind == 0:
        y = d.layers.Conv1D(d.size(), kernel, strides=stride, padding=d.random.choice([padding, "causal"]))(x)
    elif kind == 1:
        y = d.layers.Conv1D(d.size(), kernel, dilation_rate=d.random.randint(1, 3), padding=padding)(x)
    elif kind == 2:
        words = {"depth_multiplier": d.random.randint(1, 2), "strides": stride, "padding": padding}
        y = d.layers.SeparableConv1D(d.size(), kernel, **words)(x) if d.flip(0.5) else d.layers.DepthwiseConv1D(kernel, **words)(x)
    elif kind == 3:
        y = getattr(d.layers, d.random.choice(["MaxPooling1D", "AveragePooling1D"]))(kernel, strides=stride, padding=padding)(x)
    else:
        y = d.random.choice([lambda: x[:, 1:], lambda: x[:, ::2], lambda: d.layers.Cropping1D((0, 1))(x),
                             lambda: d.layers.UpSampling1D(2)(x), lambda: d.layers.ZeroPadding1D((1, 2))(x)])()  # fmt: skip
    d.short(y)


def _step(d: Net, x: Any) -> None:
    place = d.random.choice([-1, -1, 0])
    d.vectors.append(x[:, place] if d.flip(0.5) else x[:, place, :])


def _end_of(d: Net, x: Any) -> None:
    kind, settings = d.cell()
    size = d.size()
    begin = {"initial_state": d.states(kind, size)} if d.flip(0.4) else {}
    if d.flip(0.3):
        layer = d.layers.Bidirectional(kind(size, **settings), merge_mode=d.random.choice(["concat", "sum", "mul", "ave"]))
        d.vectors.append(layer(x))
        return
    y, *states = kind(size, return_state=True, go_backwards=d.flip(0.2), **settings)(x, **begin)
    d.vectors += [y, *states]


def _decoder(d: Net, x: Any) -> Any:
    """A vector repeated, through a layer that begins with states of another, with attention to what it reads."""
    kind, settings = d.cell()
    steps, size = d.random.choice([1, 3, d.time or 4]), d.size()
    begin = {"initial_state": d.states(kind, size)} if d.flip(0.6) else {}
    y = kind(size, return_sequences=True, **settings)(d.layers.RepeatVector(steps)(d.vector(d.size())), **begin)
    if d.flip(0.5):
        seen = d.layers.Attention()([y, d.layers.Dense(size)(x)])
        y = d.layers.Concatenate()([y, seen])
    if steps == d.time:
        return y
    d.ends.append(d.layers.TimeDistributed(d.layers.Dense(2))(y)) if d.flip(0.5) else d.short(y)
    return None


def _turned(d: Net, x: Any) -> Any:
    kind = d.random.randrange(4)
    if kind == 0:
        return d.layers.Permute((2, 1))(d.layers.Permute((2, 1))(x))
    if kind == 1:
        if d.time is None:
            return d.keras.ops.flip(x, axis=1)
        y = d.layers.Dense(d.time, activation="tanh")(d.layers.Permute((2, 1))(x))
        return d.layers.Permute((2, 1))(y)
    if kind == 2:
        d.short(d.layers.Reshape((-1, 1))(x) if d.flip(0.5) else d.layers.Permute((2, 1))(x) if d.time else x)
        return None
    y = d.layers.Reshape((-1, x.shape[-1], 1))(x)
    return d.layers.TimeDistributed(d.layers.LSTM(d.size()))(y)


def _operated(d: Net, x: Any) -> Any:
    ops, kind = d.keras.ops, d.random.choice([2, 2, 2, 2, 0, 1, 3, 4])
    if kind == 0:
        a, b = ops.split(d.layers.Dense(6)(x), 2, axis=-1)
        return ops.tanh(a) * ops.sigmoid(b)
    if kind == 1:
        return ops.concatenate([x, ops.flip(d.any(), axis=1)], axis=-1)
    if kind == 2:
        return x + d.like(x) * 0.5
    if kind == 3:
        return ops.transpose(ops.transpose(x, (1, 0, 2)), (1, 0, 2))
    return ops.mean(ops.stack([x, d.like(x)], axis=1), axis=1)


def _inside(d: Net, x: Any) -> Any:
    """A model in the model with two inputs and two outputs, called once or twice."""
    first, second = d.keras.Input((d.time, x.shape[-1])), d.keras.Input((4,))
    kind, settings = d.cell()
    begin = [d.layers.Dense(3)(second) for _ in range(1 + (kind is d.layers.LSTM))]
    y, *states = kind(3, return_sequences=True, return_state=True, **settings)(first, initial_state=begin)
    inner = d.keras.Model([first, second], [d.layers.Concatenate()([y, first]), d.layers.Concatenate()([states[-1], second])])
    y, v = inner([x, d.vector(4)])
    d.vectors.append(v)
    if d.flip(0.4):
        z, v = inner([d.like(x), d.layers.Dense(4)(v)])
        d.vectors.append(v)
        y = d.layers.Add()([y, z])
    return y


def _joined(d: Net, x: Any) -> Any:
    """Two branches over a sequence, which meet again."""

    def branch() -> Any:
        y = x
        for _ in range(d.random.randint(1, 2)):
            y = d.over_time(y)
        return y

    a, b = branch(), branch()
    if d.flip(0.5):
        return d.layers.Concatenate()([a, b])
    b = b if a.shape[-1] == b.shape[-1] else d.layers.Dense(a.shape[-1])(b)
    return getattr(d.layers, d.random.choice(["Add", "Multiply", "Subtract", "Average", "Maximum"]))()([a, b])


def _masked(d: Net, x: Any) -> Any:
    return d.layers.Masking(d.random.choice([0.0, 0.0, 0.5]))(x)


_KNOTS: tuple[Callable[[Net, Any], Any], ...] = (
    *[lambda d, x: d.random.choice(_OVER_TIME)(d, x)] * 4, *[lambda d, x: d.random.choice(_WIRES)(d, x)] * 3,
    *[_with_states] * 4, *[_both_ways] * 3, *[_residual] * 3, _gated, _gated_by_vector, *[_shortened] * 3, _step, *[_end_of] * 2,
    *[_decoder] * 2, *[_turned] * 2, *[_operated] * 2, _inside, *[_joined] * 2, _masked,
)  # fmt: skip


def _start(d: Net, number: int) -> Any:
    kind = d.random.randrange(5)
    if kind < 2:
        start = d.keras.Input(batch_shape=(d.batch, d.time), dtype="int32", name=f"tokens_{number}")
        x = d.layers.Embedding(11, d.size(), mask_zero=d.flip(0.4))(start)
    else:
        start = x = d.keras.Input(batch_shape=(d.batch, d.time, d.size()), name=f"features_{number}")
        x = d.layers.Masking()(x) if d.flip(0.15) else x
    d.starts.append(start)
    return x


def random_net(seed: int) -> Any:
    """A Keras model with weights that are all different."""
    d = Net(seed)
    for number in range(d.random.choice([1, 1, 1, 2])):
        d.tensors.append(_start(d, number))
    if len(d.tensors) > 1:
        d.tensors = [d.layers.Concatenate()(d.tensors)]
    for _ in range(d.random.randint(1, 6)):
        x = d.random.choice(_KNOTS)(d, d.any())
        if x is not None:
            d.tensors.append(x)
    if d.flip(0.7) or not (d.ends or d.vectors):
        d.ends.append(d.layers.Dense(2)(d.tensors[-1]))
    d.ends += [d.layers.Dense(2)(each) if d.flip(0.5) else each for each in d.random.sample(d.vectors, min(2, len(d.vectors)))]
    gives = list({id(end): end for end in d.ends}.values())
    model = d.keras.Model(d.starts, gives if len(gives) > 1 else gives[0])
    fill(model, seed, 0.4)
    return model


def calls(model: Any, seed: int, count: int = 3) -> list[list[Any]]:
    """Inputs of several batches and lengths from 1 to 9 that a model takes, with steps of zeros at either end and between."""
    random, read = np.random.default_rng(seed), list[list[Any]]()
    for _ in range(4 * count):
        batch, time = (int(number) for number in random.integers(1, 10, 2))
        call = [
            _values(random, (start.shape[0] or batch, *(length or time for length in start.shape[1:])), start.dtype)
            for start in model.inputs
        ]
        try:
            model(call if len(call) > 1 else call[0], training=False)
        except Exception:  # too short for it
            continue
        read.append(call)
        if len(read) == count:
            break
    return read


def _values(random: Any, shape: tuple[int, ...], dtype: str) -> Any:
    if "int" in dtype:
        return (random.integers(1, 11, shape) * (random.random(shape) > 0.3)).astype(dtype)
    x = random.normal(size=shape).astype(np.float32)
    if len(shape) == 3 and random.random() < 0.5:
        x[random.random(shape[:2]) < 0.3] = 0
    return x
