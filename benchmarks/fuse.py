"""What `rnnconvert fuse` saves, as a Markdown table: python benchmarks/fuse.py FOLDER [keras|tf2onnx|torch].

keras and tf2onnx need TensorFlow and tf2onnx, torch needs torch. Each model has one layer of 64 units over 100 steps and a dense
layer.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import rnnconvert as rc

STEPS, INPUTS, UNITS, RUNS = 100, 32, 64, 7


def models_of_keras() -> Iterator[tuple[str, Any]]:
    """Yield cell and model."""
    os.environ.setdefault("KERAS_BACKEND", "tensorflow")
    import keras

    layers = keras.layers
    cells = {
        "GRU": layers.GRU(UNITS, return_sequences=True), "GRU, reset before": layers.GRU(UNITS, reset_after=False, return_sequences=True),
        "LSTM, hard_sigmoid": layers.LSTM(UNITS, recurrent_activation="hard_sigmoid", return_sequences=True),
        "SimpleRNN": layers.SimpleRNN(UNITS, return_sequences=True),
    }  # fmt: skip
    for name, layer in cells.items():
        backend = keras.backend.backend()
        model = keras.Sequential([keras.Input((None if backend == "tensorflow" else STEPS, INPUTS)), layer, layers.Dense(4)])
        model(np.zeros((1, STEPS, INPUTS), np.float32))
        yield name, model


def keras_models(folder: Path) -> Iterator[tuple[str, str, Path]]:
    """Yield exporter, cell and file of models that keras.export writes."""
    for name, model in models_of_keras():
        path = folder / f"keras_{len(name)}{name[:4]}.onnx"
        model.export(str(path), format="onnx", verbose=False)
        yield f"keras.export, {os.environ['KERAS_BACKEND']}", name, path


def tf2onnx_models(folder: Path) -> Iterator[tuple[str, str, Path]]:
    """Yield exporter, cell and file of models that tf2onnx writes."""
    import tensorflow
    import tf2onnx

    for name, model in models_of_keras():
        path = folder / f"tf2onnx_{len(name)}{name[:4]}.onnx"
        signature = [tensorflow.TensorSpec((None, None, INPUTS), tensorflow.float32, name="x")]
        tf2onnx.convert.from_function(tensorflow.function(model, signature), signature, output_path=str(path))
        yield "tf2onnx", name, path


def torch_models(folder: Path) -> Iterator[tuple[str, str, Path]]:
    """Yield exporter, cell and file of models that torch.onnx writes: cells in a loop, and in PyTorch's scan."""
    import torch
    from torch._higher_order_ops.scan import scan

    class Steps(torch.nn.Module):
        def __init__(self, cell: Any) -> None:
            super().__init__()
            self.cell, self.out = cell, torch.nn.Linear(UNITS, 4)

        def forward(self, x: Any) -> Any:
            h = c = torch.zeros(x.shape[1], UNITS)
            states = []
            for x_t in x.unbind(0):
                if isinstance(self.cell, torch.nn.LSTMCell):
                    h, c = self.cell(x_t, (h, c))
                else:
                    h = self.cell(x_t, h)
                states.append(h)
            return self.out(torch.stack(states))

    class Scanned(Steps):
        def forward(self, x: Any) -> Any:
            first = (torch.zeros(x.shape[1], UNITS), torch.zeros(x.shape[1], UNITS))

            def step(states: Any, x_t: Any) -> Any:
                new = self.cell(x_t, states if isinstance(self.cell, torch.nn.LSTMCell) else states[0])
                new = new if isinstance(new, tuple) else (new, new.clone())
                return new, new[0].clone()

            return self.out(scan(step, first, x)[1])

    ways = (("TorchScript", False, Steps), ("dynamo", True, Steps), ("dynamo, scan", True, Scanned))
    for way, dynamo, module in ways:
        for kind in (torch.nn.LSTMCell, torch.nn.GRUCell, torch.nn.RNNCell):
            path = folder / f"{way.replace(', ', '_')}_{kind.__name__}.onnx"
            extra: dict[str, Any] = {"external_data": False} if dynamo else {}
            torch.onnx.export(
                module(kind(INPUTS, UNITS)).eval(), (torch.zeros(STEPS, 1, INPUTS),), path, dynamo=dynamo, verbose=False, **extra
            )
            yield f"torch.onnx, {way}", kind.__name__, path


def seconds(path: Path) -> tuple[float, float]:
    """Return how long a model takes to load and to run, the best of some."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    start = time.perf_counter()
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    loading = time.perf_counter() - start
    model_input = session.get_inputs()[0]
    sizes = [size if isinstance(size, int) else default for size, default in zip(model_input.shape, (1, STEPS, INPUTS), strict=True)]
    feed = {model_input.name: np.random.default_rng(0).normal(size=sizes).astype(np.float32)}
    best = float("inf")
    for _ in range(RUNS):
        start = time.perf_counter()
        session.run(None, feed)
        best = min(best, time.perf_counter() - start)
    return loading, best


def main(folder: Path, which: str) -> None:
    """Print the table."""
    folder.mkdir(parents=True, exist_ok=True)
    print("| exporter | cell | nodes | KB | to load | one run | times as fast | fuse itself |\n|---|---|---|---|---|---|---|---|")
    for exporter, cell, path in {"keras": keras_models, "tf2onnx": tf2onnx_models, "torch": torch_models}[which](folder):
        fast = path.with_name(f"fast_{path.name}")
        start = time.perf_counter()
        try:
            done = rc.fuse(path, fast, force=True)
        except rc.RnnConvertError as error:
            print(f"| {exporter} | {cell} | {str(error)[:200]} |")
            continue
        elapsed = time.perf_counter() - start
        (load, old), (load_new, new) = seconds(path), seconds(fast)
        sizes = [file.stat().st_size // 1000 for file in (path, fast)]
        print(
            f"| {exporter} | {cell} | {done.nodes[0]:,} to {done.nodes[1]} | {sizes[0]} to {sizes[1]} "
            f"| {1e3 * load:.0f} to {1e3 * load_new:.0f} ms | {1e3 * old:.2f} to {1e3 * new:.2f} ms | {old / new:.1f} | {elapsed:.1f} s |"
        )


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
