"""One small model in every format of whole models: bytes, error against its source, speed, and what ran it.

python -m benchmarks.targets

writes the table of docs/whole.md and the picture of its sizes, docs/images/target-sizes.svg.

The model has the form of a keyword spotter: 40 features a step, an LSTM of 64 units, 12 probabilities. Its weights are drawn by a seed.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import rnnconvert as rc
from benchmarks.c_models import compiled
from benchmarks.page import Bar, picture
from rnnconvert.models.runners import open_file
from tests.helpers.exported import RUNS

PICTURE = Path(__file__).parents[1] / "docs" / "images" / "target-sizes.svg"
PAGE = Path(__file__).parents[1] / "docs" / "whole.md"
BEGIN, END = "<!-- Made by benchmarks/targets.py -->\n", "<!-- End of the table -->"
FEATURES, UNITS, WORDS, STEPS, SEQUENCES = 40, 64, 12, 98, 16
ROUNDS, CALLS = 7, 20


@dataclass(frozen=True)
class Target:
    """A file to write: its name, its format and element type, where it goes, and what runs it here."""

    name: str
    format: str
    dtype: str
    device: str
    runtime: str


TARGETS = (
    Target("m.onnx", "onnx", "", "servers, desktops", "onnxruntime"),
    Target("m.xml", "openvino", "", "Intel's processors and GPUs", "OpenVINO"),
    Target("m.tflite", "tflite", "float32", "Android, small boards", "LiteRT"),
    Target("m.tflite", "tflite", "float16", "Android, small boards", "LiteRT"),
    Target("m.tflite", "tflite", "int8", "Android, small boards", "LiteRT"),
    Target("m.mlpackage", "coreml", "float32", "iPhone, iPad, Mac", "coremltools' inference of values, not Core ML"),
    Target("m.mlpackage", "coreml", "float16", "iPhone, iPad, Mac", "coremltools' inference of values, not Core ML"),
    Target("m.param", "ncnn", "", "phones and boards of Arm, without a batch", "ncnn"),
    Target("m.h", "c_header", "float32", "anything with a C compiler", "gcc"),
    Target("m.h", "c_header", "int8", "anything with a C compiler", "gcc"),
    Target("m.json", "tfjs", "", "browsers", "TensorFlow.js under Node.js"),
)


def model() -> Any:
    """Return the model with its weights."""
    layers = [keras.Input((None, FEATURES)), keras.layers.LSTM(UNITS), keras.layers.Dense(WORDS, activation="softmax")]
    spotter = keras.Sequential(layers)
    random = np.random.default_rng(0)
    spotter.set_weights([random.normal(size=array.shape).astype(np.float32) * 2 / np.sqrt(UNITS) for array in spotter.get_weights()])
    return spotter


def outputs(target: Target, path: Path, x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return what a written file gives."""
    run = RUNS.get(path.suffix[1:])
    if run is not None:
        return np.asarray(run(path)([x])[0])
    ran, _ = open_file(target.format, path).ran([("", x)], [])
    return ran.outputs[0]


def fastest(run: Callable[[], object]) -> float:
    """Return the seconds of a call, the best of some rounds."""
    times = []
    for _ in range(ROUNDS):
        begun = time.perf_counter()
        for _ in range(CALLS):
            run()
        times.append((time.perf_counter() - begun) / CALLS)
    return min(times)


def seconds(target: Target, path: Path, x: np.ndarray[Any, Any]) -> float | None:
    """Return how long a file takes for one sequence; None where nothing runs it as it is meant to be run."""
    if target.format == "coreml":
        return None
    if target.format == "c_header":
        run_in_c = compiled(path.parent)
        return min(run_in_c(STEPS, CALLS * 10) for _ in range(ROUNDS))
    run = RUNS[path.suffix[1:]](path)
    return fastest(lambda: run([x[:1]]))


def row(target: Target, source: Path, x: np.ndarray[Any, Any], truth: np.ndarray[Any, Any], keras_seconds: float) -> tuple[list[str], Bar]:
    """Return the cells of one target, and the bar of its size."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / target.name
        words: dict[str, Any] = {"settings": ["storage=int8"]} if (target.format, target.dtype) == ("c_header", "int8") else {}
        dtype = target.dtype if target.dtype and not words else None
        rc.export_model(source, path, format=target.format, dtype=dtype, **words)
        size = sum(file.stat().st_size for file in Path(folder).rglob("*") if file.is_file())
        difference = float(np.abs(outputs(target, path, x) - truth).max())
        took = seconds(target, path, x)
    name = f"`{Path(target.name).suffix}`" + (" with `--to tfjs`" if target.format == "tfjs" else "")
    faster = "-" if took is None else f"{keras_seconds / took:.1f}"
    plain = f"{name.replace('`', '')}, {target.dtype or 'float32'}"
    cells = [name, target.dtype or "float32", f"{size:,}", f"{difference:.1e}", faster, target.device, target.runtime]
    return cells, Bar(plain, size, f"{size / 1000:,.0f} KB", True)


def table(rows: Sequence[Sequence[str]]) -> str:
    """Return the rows as a table of Markdown."""
    head = ["target", "weights", "bytes", "largest error", "times as fast as Keras", "for", "run here by"]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in (head, ["---"] * len(head), *rows))


def main() -> None:
    """Measure every target, and write the table into the page."""
    keyword_spotter = model()
    x = np.random.default_rng(1).normal(size=(SEQUENCES, STEPS, FEATURES)).astype(np.float32)
    truth = np.asarray(keras.ops.convert_to_numpy(keyword_spotter(x)))
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "m.keras"
        keyword_spotter.save(source)
        graph = tf.function(keyword_spotter)
        first = tf.constant(x[:1])
        graph(first)
        keras_seconds = fastest(lambda: graph(first))
        rows, bars = zip(*(row(target, source, x, truth, keras_seconds) for target in TARGETS), strict=True)
    PICTURE.write_text(picture("Bytes of one model in every format", [*bars]))
    text = PAGE.read_text(encoding="utf-8")
    before, rest = text.split(BEGIN)
    measured = table(rows)
    PAGE.write_text(f"{before}{BEGIN}\n{measured}\n{END}{rest.split(END)[1]}", encoding="utf-8")
    print(measured)


if __name__ == "__main__":
    main()
