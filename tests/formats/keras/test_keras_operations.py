"""Operations of keras.ops in functional models: each gives in every target what Keras gives, or is refused by name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rnnconvert as rc
from rnnconvert.core.errors import RefusedError
from tests.helpers.exported import FRAMEWORKS_WARN
from tests.helpers.requirements import needed

pytestmark = FRAMEWORKS_WARN
RIGHT: dict[str, Callable[[Any, Any], Any]] = {
    "sum": lambda o, x: o.sum(x, axis=1),
    "mean, its axis kept": lambda o, x: o.mean(x, axis=-1, keepdims=True),
    "max": lambda o, x: o.max(x, axis=1),
    "min over two axes": lambda o, x: o.min(x, axis=(1, 2)),
    "softmax over time": lambda o, x: o.softmax(x, axis=1),
    "log_softmax": lambda o, x: o.log_softmax(x, axis=-1),
    "squeeze": lambda o, x: o.squeeze(o.expand_dims(x, 2), 2),
    "expand_dims": lambda o, x: o.expand_dims(x, -1),
    "reshape": lambda o, x: o.reshape(o.mean(x, axis=1), (-1, 2, 3)),
    "matmul": lambda o, x: o.matmul(o.transpose(x, (0, 2, 1)), x),
    "stack": lambda o, x: o.stack([x, x * 2], axis=2),
    "clip": lambda o, x: o.clip(x, -0.3, 0.2),
    "quotients": lambda o, x: x / (o.abs(x) + 1.0) + x / 3.0 + 2.0 / (o.square(x) + 1.0),
    "powers": lambda o, x: o.power(o.abs(x) + 0.1, 2.5) + o.power(o.abs(x) + 0.1, x),
    "roots": lambda o, x: o.sqrt(o.abs(x) + 0.1) - o.rsqrt(o.abs(x) + 1),
    "functions": lambda o, x: o.log(o.abs(x) + 1.0) + o.sin(x) * o.cos(x) - o.erf(-x) + o.tan(x / 4),
    "whole numbers": lambda o, x: o.floor(x * 3) + o.ceil(x * 2) + o.sign(x - 0.1) + o.round(x * 5),
    "truths with a new axis": lambda o, x: needed("keras", "keras").layers.GRU(3)(
        x, mask=o.any(o.any(o.expand_dims(o.greater(x, 0.02), 3), axis=3), axis=2)
    ),
    "weights over time": lambda o, x: o.sum(o.softmax(x, axis=1) * x, axis=1),
}
REFUSED: dict[str, Callable[[Any, Any], Any]] = {
    "over the batch": lambda o, x: x - o.mean(x, axis=0, keepdims=True),
    "over everything": lambda o, x: x * o.sum(x, keepdims=True),
    "an operation without a rule": lambda o, x: o.logaddexp(x, x),
}


def saved(folder: Path, operations: Callable[[Any, Any], Any]) -> Path:
    """Save a functional model of an LSTM and operations."""
    keras = needed("keras", "keras")
    x = keras.Input((7, 4))
    keras.Model(x, operations(keras.ops, keras.layers.LSTM(6, return_sequences=True)(x))).save(folder / "model.keras")
    return folder / "model.keras"


@pytest.mark.parametrize("name", RIGHT)
def test_an_operation_gives_what_keras_gives(name: str, tmp_path: Path) -> None:
    needed("onnxruntime", "onnxruntime")
    path = saved(tmp_path, RIGHT[name])
    assert rc.export_model(path, tmp_path / "model.onnx", verify=True).equal
    assert rc.scaffold(path, "pytorch", verify=True).equal


@pytest.mark.parametrize("name", REFUSED)
def test_another_operation_is_refused(name: str, tmp_path: Path) -> None:
    path = saved(tmp_path, REFUSED[name])
    with pytest.raises(RefusedError):
        rc.export_model(path, tmp_path / "model.onnx")
    assert not (tmp_path / "model.onnx").exists()
