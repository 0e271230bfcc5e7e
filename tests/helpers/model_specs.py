"""Small models stated as steps, built of the same numbers in Keras and in PyTorch: what both give decides whether two are equal."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import keras
import numpy as np
import torch

Array = np.ndarray
Step = tuple[Any, ...]
"""("lstm", name), ("gru", name), ("rnn", name), ("dense", name), ("act", function), ("scale", number), ("shift", number), ("add", step),
("mul", step), ("concat", step), ("reverse",), ("last",), ("first",), ("mean",): each works on what the one before gives; a step that
is named counts from 0, the input."""

INPUT = 3
GATES = {"lstm": 4, "gru": 3, "rnn": 1}


@dataclass(frozen=True)
class Spec:
    """A model.

    steps    in their order
    weights  by the layers' names: kernel (in, out), bias, and of recurrent layers recurrent (units, out)
    """

    steps: tuple[Step, ...]
    weights: Mapping[str, Mapping[str, Array]]


def random_spec(seed: int, cells: Sequence[str] = tuple(GATES)) -> Spec:
    """A model of one or two recurrent layers of some cells, with something before, between and behind them."""
    draw, numbers = random.Random(seed), np.random.default_rng(seed)
    steps: list[Step] = []
    weights: dict[str, dict[str, Array]] = {}
    width = INPUT

    def dense(name: str, units: int) -> None:
        nonlocal width
        weights[name] = {"kernel": normal(width, units), "bias": normal(units)}
        steps.append(("dense", name))
        width = units

    def recurrent(name: str) -> None:
        nonlocal width
        kind, units = draw.choice(cells), draw.choice((3, 4))
        rows = units * GATES[kind]
        weights[name] = {"kernel": normal(width, rows), "recurrent": normal(units, rows) * 0.5, "bias": normal(rows)}
        steps.append((kind, name))
        width = units

    def normal(*shape: int) -> Array:
        return (numbers.normal(size=shape) * 0.7).astype(np.float32)

    if draw.random() < 0.4:
        dense("before", draw.choice((3, 5)))
        steps.append(("act", "tanh"))
    recurrent("first")
    for step in draw.sample([("scale", 0.5), ("shift", 0.25), ("act", "relu")], draw.choice((0, 1))):
        steps.append(step)
    if draw.random() < 0.5:
        recurrent("second")
    if draw.random() < 0.3:
        steps.append(draw.choice((("last",), ("mean",))))
    dense("head", draw.choice((2, 3)))
    if draw.random() < 0.3:
        steps.append(("act", draw.choice(("tanh", "sigmoid", "softmax"))))
    return Spec(tuple(steps), weights)


def _number(spec: Spec, name: str, part: str, change: Callable[[Array], Array]) -> Spec:
    return replace(spec, weights={**spec.weights, name: {**spec.weights[name], part: change(spec.weights[name][part])}})


def _at(spec: Spec, place: int, *steps: Step) -> Spec:
    """Insert steps; references to later ones are moved."""
    return replace(spec, steps=(*spec.steps[:place], *steps, *spec.steps[place:]))


def _place(spec: Spec, name: str) -> int:
    return next(number for number, step in enumerate(spec.steps) if step[1:] == (name,))


def _exchanged(spec: Spec) -> Spec:
    """The two recurrent layers in the other order, where their sizes allow it."""
    first, second = _place(spec, "first"), _place(spec, "second")
    shapes = [spec.weights[name]["kernel"].shape for name in ("first", "second")]
    if shapes[0] != shapes[1] or spec.steps[first][0] != spec.steps[second][0]:
        raise LookupError
    steps = list(spec.steps)
    steps[first], steps[second] = steps[second], steps[first]
    return replace(spec, steps=tuple(steps))


def _joined(spec: Spec, how: str) -> Spec:
    """What the last recurrent layer gives, joined to what it reads."""
    place = max(number for number, step in enumerate(spec.steps) if step[0] in GATES)
    name = spec.steps[place][1]
    if spec.weights[name]["kernel"].shape[0] != spec.weights[name]["recurrent"].shape[0]:
        raise LookupError
    return _at(spec, place + 1, (how, place))


CHANGES: dict[str, Callable[[Spec], Spec]] = {
    "head negated": lambda spec: _number(spec, "head", "kernel", np.negative),
    "head rolled": lambda spec: _number(spec, "head", "kernel", lambda kernel: np.roll(kernel, 1, 0)),
    "head's units rolled": lambda spec: _number(spec, "head", "kernel", lambda kernel: np.roll(kernel, 1, 1)),
    "head's bias moved": lambda spec: _number(spec, "head", "bias", lambda bias: bias + np.float32(0.01)),
    "head's bias zero": lambda spec: _number(spec, "head", "bias", np.zeros_like),
    "before changed": lambda spec: _number(spec, "before", "kernel", np.negative),
    "recurrence changed": lambda spec: _number(spec, "first", "recurrent", lambda matrix: np.roll(matrix, 1, 1)),
    "one bias changed": lambda spec: _number(spec, "first", "bias", lambda bias: bias + np.eye(1, bias.size, dtype=np.float32)[0] * 0.05),
    "layers exchanged": _exchanged,
    "added to its input": lambda spec: _joined(spec, "add"),
    "multiplied with its input": lambda spec: _joined(spec, "mul"),
    "input scaled": lambda spec: _at(spec, 0, ("scale", 2.0)),
    "input moved": lambda spec: _at(spec, 0, ("shift", 0.1)),
    "input reversed": lambda spec: _at(spec, 0, ("reverse",)),
    "scaled behind the first": lambda spec: _at(spec, _place(spec, "first") + 1, ("scale", 0.9)),
    "moved behind the first": lambda spec: _at(spec, _place(spec, "first") + 1, ("shift", -0.05)),
    "reversed behind the first": lambda spec: _at(spec, _place(spec, "first") + 1, ("reverse",)),
    "tanh behind the first": lambda spec: _at(spec, _place(spec, "first") + 1, ("act", "tanh")),
    "relu behind the first": lambda spec: _at(spec, _place(spec, "first") + 1, ("act", "relu")),
    "softmax at the end": lambda spec: _at(spec, len(spec.steps), ("act", "softmax")),
    "sigmoid at the end": lambda spec: _at(spec, len(spec.steps), ("act", "sigmoid")),
    "tanh at the end": lambda spec: _at(spec, len(spec.steps), ("act", "tanh")),
    "scaled at the end": lambda spec: _at(spec, len(spec.steps), ("scale", 1.01)),
    "negated at the end": lambda spec: _at(spec, len(spec.steps), ("scale", -1.0)),
    "no activation": lambda spec: replace(spec, steps=tuple(step for step in spec.steps if step[0] != "act" or step == spec.steps[0])),
    "the mean for the last": lambda spec: replace(spec, steps=tuple(("mean",) if step == ("last",) else step for step in spec.steps)),
    "the last for the mean": lambda spec: replace(spec, steps=tuple(("last",) if step == ("mean",) else step for step in spec.steps)),
    "the first for the last": lambda spec: replace(spec, steps=tuple(("first",) if step == ("last",) else step for step in spec.steps)),
    "doubled": lambda spec: _at(spec, len(spec.steps), ("add", len(spec.steps))),
    "squared": lambda spec: _at(spec, len(spec.steps), ("mul", len(spec.steps))),
    # What follows changes nothing.
    "nothing": lambda spec: spec,
    "scaled by one": lambda spec: _at(spec, len(spec.steps), ("scale", 1.0)),
    "moved by zero": lambda spec: _at(spec, _place(spec, "first") + 1, ("shift", 0.0)),
    "reversed twice": lambda spec: _at(spec, 0, ("reverse",), ("reverse",)),
    "halved and doubled": lambda spec: _at(spec, 0, ("scale", 0.5), ("scale", 2.0)),
    "relu twice": lambda spec: _at(_at(spec, len(spec.steps), ("act", "relu")), len(spec.steps) + 1, ("act", "relu")),
    "negated twice": lambda spec: _at(spec, len(spec.steps), ("scale", -1.0), ("scale", -1.0)),
    "minus zero for zero": lambda spec: _number(spec, "head", "bias", lambda bias: bias + np.float32(0)),
    "softmax of softmax's logarithm": lambda spec: _at(spec, 0, ("scale", 4.0), ("scale", 0.25)),
    "one unit in the last place": lambda spec: _number(spec, "head", "bias", lambda bias: np.nextafter(bias, np.float32(9))),
}


def keras_model(spec: Spec) -> keras.Model:
    keras.utils.clear_session()
    values = [keras.Input((None, INPUT), name="x")]
    built: dict[str, Any] = {}
    for step in spec.steps:
        kind, *rest = step
        current = values[-1]
        if kind in GATES:
            weights = spec.weights[rest[0]]
            units = weights["recurrent"].shape[0]
            layer = {"lstm": keras.layers.LSTM, "gru": keras.layers.GRU, "rnn": keras.layers.SimpleRNN}[kind](
                units, return_sequences=True, name=rest[0]
            )
            built[rest[0]] = (layer, kind)
            values.append(layer(current))
        elif kind == "dense":
            layer = keras.layers.Dense(spec.weights[rest[0]]["bias"].size, name=rest[0])
            built[rest[0]] = (layer, kind)
            values.append(layer(current))
        elif kind == "act":
            values.append(keras.layers.Activation(rest[0])(current))
        elif kind in ("scale", "shift"):
            scale, offset = (rest[0], 0.0) if kind == "scale" else (1.0, rest[0])
            values.append(keras.layers.Rescaling(scale, offset)(current))
        elif kind in ("add", "mul"):
            values.append({"add": keras.layers.Add, "mul": keras.layers.Multiply}[kind]()([current, values[rest[0]]]))
        elif kind == "reverse":
            values.append(keras.ops.flip(current, 1))
        elif kind == "mean":
            values.append(keras.layers.GlobalAveragePooling1D()(current))
        else:
            values.append(current[:, -1 if kind == "last" else 0])
    model = keras.Model(values[0], values[-1])
    for name, (layer, kind) in built.items():
        weights = spec.weights[name]
        parts = [weights["kernel"], *([weights["recurrent"]] if kind in GATES else []), weights["bias"]]
        if kind == "gru":
            parts[-1] = np.stack([weights["bias"], np.zeros_like(weights["bias"])])
        layer.set_weights(parts)
    return model


class TorchModel(torch.nn.Module):
    """The model in PyTorch, batch first."""

    def __init__(self, spec: Spec) -> None:
        super().__init__()
        self.steps = spec.steps
        for kind, *rest in spec.steps:
            if kind in GATES:
                self.add_module(rest[0], self._recurrent(kind, spec.weights[rest[0]]))
            elif kind == "dense":
                weights = spec.weights[rest[0]]
                layer = torch.nn.Linear(*weights["kernel"].shape)
                layer.load_state_dict({"weight": torch.tensor(weights["kernel"].T.copy()), "bias": torch.tensor(weights["bias"])})
                self.add_module(rest[0], layer)

    @staticmethod
    def _recurrent(kind: str, weights: Mapping[str, Array]) -> torch.nn.Module:
        classes = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU, "rnn": torch.nn.RNN}
        layer = classes[kind](weights["kernel"].shape[0], weights["recurrent"].shape[0], batch_first=True)

        def rows(array: Array) -> Array:
            if kind != "gru":
                return array
            z, r, n = np.split(array, 3)  # Keras's order
            return np.concatenate([r, z, n])

        layer.load_state_dict(
            {
                "weight_ih_l0": torch.tensor(rows(weights["kernel"].T)),
                "weight_hh_l0": torch.tensor(rows(weights["recurrent"].T)),
                "bias_ih_l0": torch.tensor(rows(weights["bias"])),
                "bias_hh_l0": torch.zeros(weights["bias"].size),
            }
        )
        return layer

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        values = [x]
        for step in self.steps:
            kind, current = step[0], values[-1]
            if kind in GATES:
                values.append(getattr(self, step[1])(current)[0])
            elif kind == "dense":
                values.append(getattr(self, step[1])(current))
            elif kind == "act":
                values.append(torch.softmax(current, -1) if step[1] == "softmax" else getattr(torch, step[1])(current))
            elif kind == "scale":
                values.append(current * step[1])
            elif kind == "shift":
                values.append(current + step[1])
            elif kind == "add":
                values.append(current + values[step[1]])
            elif kind == "mul":
                values.append(current * values[step[1]])
            elif kind == "reverse":
                values.append(current.flip(1))
            elif kind == "mean":
                values.append(current.mean(1))
            else:
                values.append(current[:, -1 if kind == "last" else 0])
        return values[-1]


def expected(spec: Spec, x: Array) -> Array:
    """What a model gives, by PyTorch."""
    with torch.no_grad():
        return TorchModel(spec)(torch.tensor(x)).numpy()


def save(spec: Spec, path: Path) -> Path:
    """Write a model in the form that the ending stands for: .keras, .pt (TorchScript), .pt2 or .onnx."""
    if path.suffix == ".keras":
        keras_model(spec).save(path)
        return path
    model, x = TorchModel(spec).eval(), torch.zeros(2, 6, INPUT)
    if path.suffix == ".pt":
        torch.jit.trace(model, x).save(path)
    elif path.suffix == ".pt2":
        batch = torch.export.Dim("batch", min=1, max=64)
        torch.export.save(torch.export.export(model, (x,), dynamic_shapes=({0: batch},)), path)
    else:
        axes = {"x": {0: "batch", 1: "time"}, "y": {0: "batch"}}
        torch.onnx.export(model, (x,), path, dynamo=False, input_names=["x"], output_names=["y"], dynamic_axes=axes)
    return path
