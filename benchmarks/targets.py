"""One small model in every format of whole models: bytes, error against its source, speed, and what ran it.

OMP_NUM_THREADS=1 RNNCONVERT_RTNEURAL=FOLDER RNNCONVERT_NAM=FOLDER python -m benchmarks.targets

writes the table of docs/whole.md and the picture of its sizes, docs/images/target-sizes.svg. Each format's runtime and Keras run in turn: a
speed is the median of the rounds' ratios of processor time, so that other work on the machine weighs little. Without checkouts of
RTNeural and NeuralAmpModelerCore, which no registry has as packages, the plug-ins' files are run by their equations in numpy, and have no
speeds.

The model has the form of a keyword spotter: 40 features a step, an LSTM of 64 units, 12 probabilities. Its weights are drawn by a seed.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import rnnconvert as rc
from benchmarks.c_models import compiled
from benchmarks.page import Bar, picture
from rnnconvert.models.runners import open_file
from tests.helpers import audio_plugins
from tests.helpers.exported import RUNS

PICTURE = Path(__file__).parents[1] / "docs" / "images" / "target-sizes.svg"
PAGE = Path(__file__).parents[1] / "docs" / "whole.md"
BEGIN, END = "<!-- Made by benchmarks/targets.py -->\n", "<!-- End of the table -->"
FEATURES, UNITS, WORDS, STEPS, SEQUENCES = 40, 64, 12, 98, 16
ROUNDS, CALLS = 7, 20


@dataclass(frozen=True)
class Target:
    """A file to write: its name, its format and how it is asked for, where it goes, and what runs it here.

    weights  the element type of its numbers
    runs     whether what runs it here is what it is written for, so that its time tells something
    head     whether the format has a softmax; the others hold the model without
    """

    name: str
    format: str
    device: str
    runtime: str
    weights: str = "float32"
    options: Mapping[str, Any] = field(default_factory=dict)
    runs: bool = True
    head: bool = True


PHONES, APPLE, ANYWHERE, PLUGINS = "Android, boards", "Apple", "C compilers", "plug-ins"
LOWER = ({"dtype": "float16"}, {"dtype": "int8"})
TARGETS = (
    Target("m.onnx", "onnx", "servers", "onnxruntime"),
    Target("m.xml", "openvino", "Intel", "OpenVINO"),
    Target("m.tflite", "tflite", PHONES, "LiteRT"),
    Target("m.tflite", "tflite", PHONES, "LiteRT", "float16", LOWER[0]),
    Target("m.tflite", "tflite", PHONES, "LiteRT", "int8", LOWER[1]),
    Target("m.mlpackage", "coreml", APPLE, "coremltools", runs=False),
    Target("m.mlpackage", "coreml", APPLE, "coremltools", "float16", LOWER[0], runs=False),
    Target("m.param", "ncnn", "Arm", "ncnn"),
    Target("m.h", "c_header", ANYWHERE, "gcc"),
    Target("m.h", "c_header", ANYWHERE, "gcc", "float16", LOWER[0]),
    Target("m.h", "c_header", ANYWHERE, "gcc", "int8", {"settings": ["storage=int8"]}),
    Target("model.json", "tfjs", "browsers", "TensorFlow.js"),
    Target("m.zip", "dl4j", "JVM", "", runs=False),
    Target("m.json", "rtneural", PLUGINS, "RTNeural"),
    Target("m.aidax", "rtneural", PLUGINS, "RTNeural"),
    Target("m.json", "guitarml", PLUGINS, "numpy", runs=False, head=False),
    Target("m.nam", "nam", PLUGINS, "NAM", head=False),
)


def model(head: bool) -> Any:
    """Return the model with its weights, with or without its softmax."""
    dense = keras.layers.Dense(WORDS, activation="softmax" if head else None)
    spotter = keras.Sequential([keras.Input((None, FEATURES)), keras.layers.LSTM(UNITS), dense])
    random = np.random.default_rng(0)
    spotter.set_weights([random.normal(size=array.shape).astype(np.float32) * 2 / np.sqrt(UNITS) for array in spotter.get_weights()])
    return spotter


def library(target: Target) -> str:
    """Return the library of plug-ins that runs a format, and is at hand; "" for none."""
    name = {"rtneural": "RTNEURAL", "nam": "NAM"}.get(target.format, "")
    return name if name and audio_plugins.checkout(name) else ""


def outputs(target: Target, path: Path, x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any] | None:
    """Return what a written file gives; None where nothing runs it."""
    if not target.runtime:
        return None
    if library(target):
        return np.asarray(audio_plugins.outputs(library(target), path, x))[:, -1]
    if target.device != PLUGINS:
        return np.asarray(RUNS[path.suffix[1:]](path)([x])[0])
    ran, _ = open_file(target.format, path).ran([("", x)], [])
    return ran.outputs[0][:, -1]


def seconds(run: Callable[[], object], clock: Callable[[], float] = time.process_time) -> float:
    """Return the seconds of a call, of some in turn: of the processor, unless a clock is given."""
    begun = clock()
    for _ in range(CALLS):
        run()
    return (clock() - begun) / CALLS


def timed(target: Target, path: Path, x: np.ndarray[Any, Any], clock: Callable[[], float]) -> Callable[[], float] | None:
    """Return what gives the seconds of one sequence; None where nothing runs it as it is meant to be run."""
    if target.format == "c_header":
        run_in_c = compiled(path.parent)
        return lambda: run_in_c(STEPS, CALLS)
    if library(target):
        return lambda: audio_plugins.seconds(library(target), path, x[:1], CALLS)
    if not target.runs or target.device == PLUGINS:
        return None
    run = RUNS[path.suffix[1:]](path)
    run([x[:1]])
    return lambda: seconds(lambda: run([x[:1]]), clock)


def times_as_fast(run: Callable[[], float], other: Callable[[], float]) -> float:
    """Return how many times as fast one is as another: the median of the rounds' ratios, in each of which both run."""
    return float(np.median([other() / run() for _ in range(ROUNDS)]))


def row(
    target: Target, source: Path, x: np.ndarray[Any, Any], truth: np.ndarray[Any, Any], in_keras: Callable[[], object]
) -> tuple[list[str], Bar]:
    """Return the cells of one target, and the bar of its size."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / target.name
        rc.export_model(source, path, format=target.format, **target.options)
        size = sum(file.stat().st_size for file in Path(folder).rglob("*") if file.is_file())
        clock = time.perf_counter if target.format == "tfjs" else time.process_time  # which runs in a process of its own
        gives, run = outputs(target, path, x), timed(target, path, x, clock)
        difference = "-" if gives is None else f"{np.abs(gives - truth).max():.1e}"
        faster = "-" if run is None else f"{times_as_fast(run, lambda: seconds(in_keras, clock)):.1f}"
    ambiguous = {"tfjs": "TensorFlow.js", "rtneural": "RTNeural, AIDA-X", "guitarml": "GuitarML"}
    ending = path.suffix + (f" ({ambiguous[target.format]})" if path.suffix == ".json" else "")
    name = ending.replace(path.suffix, f"`{path.suffix}`")
    runtime = target.runtime if library(target) or not (target.runs and target.device == PLUGINS) else "numpy"
    name += (f" {target.weights}" if target.weights != "float32" else "") + ("" if target.head else " *")
    cells = [name, f"{size:,}", difference, faster, target.device]
    return [*cells, runtime or "nothing"], Bar(f"{ending}, {target.weights}", size, f"{size / 1000:,.0f} KB", True)


def table(rows: Sequence[Sequence[str]]) -> str:
    """Return the rows as a table of Markdown."""
    head = ["target", "bytes", "largest error", "speed", "for", "run here by"]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in (head, ["---"] * len(head), *rows))


def main() -> None:
    """Measure every target, and write the table into the page."""
    x = np.random.default_rng(1).normal(size=(SEQUENCES, STEPS, FEATURES)).astype(np.float32)
    with tempfile.TemporaryDirectory() as folder:
        models = {head: model(head) for head in (True, False)}
        sources, truths = {}, {}
        for head, each in models.items():
            sources[head] = Path(folder) / f"{head}.keras"
            each.save(sources[head])
            truths[head] = np.asarray(keras.ops.convert_to_numpy(each(x)))
        graph = tf.function(models[True])
        first = tf.constant(x[:1])
        graph(first)
        measured = [row(target, sources[target.head], x, truths[target.head], lambda: graph(first)) for target in TARGETS]
    rows, bars = zip(*measured, strict=True)
    PICTURE.write_text(picture("Bytes of one model in every format", [*bars]))
    text = PAGE.read_text(encoding="utf-8")
    before, rest = text.split(BEGIN)
    lines = table(rows)
    PAGE.write_text(f"{before}{BEGIN}\n{lines}\n{END}{rest.split(END)[1]}", encoding="utf-8")
    print(lines)


if __name__ == "__main__":
    main()
