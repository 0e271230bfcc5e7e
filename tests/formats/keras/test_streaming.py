"""Keras's stateful layers as ONNX with states as inputs and outputs: blocks of any length give what Keras gives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rnnconvert as rc
from rnnconvert.core.errors import RefusedError
from tests.helpers.requirements import needed

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
BLOCKS = (slice(0, 1), slice(1, 5), slice(5, 6), slice(6, 9))


def stateful(folder: Path, layer: Any, seed: int = 0) -> tuple[Any, Path]:
    """Save a model of one stateful layer with random weights."""
    keras = needed("keras", "keras")
    random = np.random.default_rng(seed)
    model = keras.Sequential([keras.Input((None, 3), batch_size=2), layer])
    for weight in layer.trainable_weights:
        weight.assign(random.normal(size=weight.shape) * 0.5)
    model.save(folder / "model.keras")
    return model, folder / "model.keras"


@pytest.mark.parametrize("kind", ["gru", "before", "hard", "lstm", "rnn"])
def test_blocks_go_on_where_the_last_one_ended(kind: str, tmp_path: Path) -> None:
    a = needed("keras", "keras").layers
    onnxruntime = needed("onnxruntime", "onnxruntime")
    options = {"stateful": True, "return_sequences": True}
    layer = {
        "gru": lambda: a.GRU(4, **options), "before": lambda: a.GRU(4, reset_after=False, use_bias=False, **options),
        "hard": lambda: a.GRU(4, reset_after=False, recurrent_activation="hard_sigmoid", activation="relu", **options),
        "lstm": lambda: a.LSTM(4, **options), "rnn": lambda: a.SimpleRNN(4, **options),
    }[kind]()  # fmt: skip
    model, path = stateful(tmp_path, layer)
    rc.convert(path, tmp_path / "stream.onnx", states="stream")
    session = onnxruntime.InferenceSession(str(tmp_path / "stream.onnx"), providers=["CPUExecutionProvider"])
    names = [value.name for value in session.get_outputs()]
    states = {value.name: np.zeros((1, 2, 4), np.float32) for value in session.get_inputs() if value.name != "x"}
    x = np.random.default_rng(1).normal(size=(2, 9, 3)).astype(np.float32)
    for block in BLOCKS:
        y, *ends = session.run(names, {"x": x[:, block].swapaxes(0, 1), **states})
        states = dict(zip(("initial_h", "initial_c"), ends, strict=False))
        np.testing.assert_allclose(y.swapaxes(0, 1), np.asarray(model(x[:, block])), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("way", ["back", "both"])
def test_a_stateful_layer_that_reads_from_the_end_is_refused(way: str, tmp_path: Path) -> None:
    a = needed("keras", "keras").layers
    layer = a.GRU(4, stateful=True, go_backwards=True) if way == "back" else a.Bidirectional(a.GRU(4, stateful=True))
    _, path = stateful(tmp_path, layer)
    with pytest.raises(RefusedError, match="a direction that reads from the end"):
        rc.convert(path, tmp_path / "stream.onnx", states="stream")
