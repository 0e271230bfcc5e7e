"""Streams: what `export --stateful` writes gives for the pieces of a sequence what its source gives for all of it, in its own runtime."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rnnconvert as rc
from tests.drawn import each
from tests.exported import RUNS
from tests.random_models import fill
from tests.requirements import needed

pytestmark = [
    pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:Layer .* was passed an input with a mask:UserWarning"),
    pytest.mark.filterwarnings("ignore:You are using the legacy TorchScript:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:The tensor attributes:UserWarning"),
    pytest.mark.filterwarnings("ignore:::torch"),
    pytest.mark.filterwarnings("ignore:The structure of `inputs`:UserWarning"),
]
ENDINGS = ["onnx", "xml", "tflite", "param", "json"]
FORMATS = {"json": "tfjs"}


def export(source: Path, target: Path, **options: Any) -> Any:
    return rc.export_model(source, target, format=FORMATS.get(target.suffix[1:]), stateful=True, force=True, **options)


def in_pieces(path: Path, x: Any, cuts: Sequence[int], done: Any, axis: int = 1) -> list[Any]:
    """What a written stream gives for a sequence that is cut: outputs with steps joined, others from the last piece."""
    run = RUNS[path.suffix[1:]](path)
    widths = [int(text.rstrip(")").rpartition(" ")[2].lstrip("(")) for text in done.inputs[1:]]
    states = [np.zeros((x.shape[1 - axis], width), np.float32) for width in widths]
    outputs: list[list[Any]] = []
    for piece in np.split(x, cuts, axis):
        every = run([piece, *states])
        count = len(every) - len(states)
        outputs.append(every[:count])
        states = every[count:]
    so_far = {text.partition(" ")[0] for note in done.notes if "for the stream so far" in note for text in [note]}
    names = [text.partition(" ")[0] for text in done.outputs]
    joined = zip(*outputs, strict=True)
    return [values[-1] if name in so_far else np.concatenate(values, axis) for name, values in zip(names, joined, strict=False)]


def kinds(k: Any) -> dict[str, list[Any]]:
    a = k.layers
    return {
        "lstm": [a.LSTM(5, return_sequences=True), a.LSTM(3, return_sequences=True, use_bias=False)],
        "gru": [a.GRU(5, return_sequences=True), a.Dense(4, activation="softmax"), a.GRU(3, return_sequences=True)],
        "first gru": [a.GRU(5, return_sequences=True, reset_after=False)],
        "rnn": [a.SimpleRNN(5, return_sequences=True), a.LayerNormalization(), a.SimpleRNN(3, return_sequences=True, activation="relu")],
        "last": [a.LSTM(4, return_sequences=True), a.GRU(3), a.Dense(2)],
        "around": [a.Dense(4), a.BatchNormalization(), a.LSTM(4, return_sequences=True), a.TimeDistributed(a.Dense(3, activation="relu"))],
        "window of one": [a.Conv1D(4, 1, activation="relu"), a.GRU(3, return_sequences=True), a.Reshape((-1, 3, 1)), a.Reshape((-1, 3))],
        "stateful": [a.LSTM(4, return_sequences=True, stateful=True), a.Dropout(0.5), a.PReLU(shared_axes=[1])],
    }


@pytest.mark.parametrize("ending", ENDINGS)
def test_every_kind_of_layer_goes_on_from_its_states(tmp_path: Path, ending: str) -> None:
    k = needed("keras", "keras")
    every = kinds(k)

    def check(name: str) -> None:
        model = k.Sequential([k.Input((None, 3), batch_size=2 if name == "stateful" else None), *every[name]])
        fill(model, 3)
        model.save(tmp_path / "m.keras")
        target = tmp_path / f"m.{ending}"
        lacks = {"json": ("gru", "window of one", "last"), "param": ("first gru", "rnn"), "xml": (), "tflite": (), "onnx": ()}[ending]
        if name in lacks:
            with pytest.raises(rc.RefusedError, match=r"reset|relu"):
                export(tmp_path / "m.keras", target)
            return
        done = export(tmp_path / "m.keras", target)
        x = np.random.default_rng(4).normal(size=(2, 11, 3)).astype(np.float32)
        if name == "stateful":
            model.layers[0].reset_state()
        truth = k.ops.convert_to_numpy(model(x, training=False))
        for cuts in ([3, 4, 8], [*range(1, 11)], []):
            np.testing.assert_allclose(in_pieces(target, x, cuts, done)[0], truth, rtol=1e-4, atol=1e-5)

    each(every, check)
