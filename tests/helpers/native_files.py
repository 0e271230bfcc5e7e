"""A converted file, opened and run by the framework that it is for, as its user would."""

from __future__ import annotations

import atexit
import contextlib
import functools
import json
import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from rnnconvert.core.arrays import Array
from rnnconvert.core.weights import Recurrent
from rnnconvert.files.summary import Summary
from rnnconvert.formats.cudnn.description import describe
from rnnconvert.running.parent import Process
from tests.helpers.frameworks import mxnet
from tests.helpers.requirements import need
from tests.helpers.workers import running


def run(summary: Summary, x: Array, states: Sequence[Array] | None = None) -> Array:
    """Outputs (time, batch, out) of a file with one recurrent layer, from the framework itself.

    x       (time, batch, in)
    states  initial hidden states, and for an LSTM cell states, each (layers * directions, batch, .); zero if None
    """
    with warnings.catch_warnings():
        # TensorFlow, Keras, JAX and PyTorch warn of their own future, and of slower paths to the same numbers.
        warnings.simplefilter("ignore")
        return {"pytorch": _pytorch, "keras": _keras, "onnx": _onnx, "cudnn": _cudnn}[summary.target_format](summary, x, states)


def _pytorch(summary: Summary, x: Array, states: Sequence[Array] | None) -> Array:
    need("torch", "")
    import torch

    # The recipe says how to load the file; to follow it is part of the test.
    names: dict[str, object] = {}
    exec("\n".join(summary.recipe), names)
    module = next(value for value in names.values() if isinstance(value, torch.nn.Module))
    initial = None if states is None else tuple(torch.from_numpy(np.asarray(s, np.float32)) for s in states)
    if initial is not None and len(initial) == 1:
        (initial,) = initial
    values = torch.from_numpy(np.asarray(x, np.float32))
    with torch.no_grad():
        if not module.batch_first:
            return np.asarray(module(values, initial)[0].numpy())
        return np.asarray(module(values.swapaxes(0, 1), initial)[0].swapaxes(0, 1).numpy())


def _keras(summary: Summary, x: Array, states: Sequence[Array] | None) -> Array:
    assert states is None
    import keras

    model = keras.models.load_model(summary.target, compile=False)
    y = model(np.ascontiguousarray(x.swapaxes(0, 1), np.float32))
    return np.asarray(keras.ops.convert_to_numpy(y)).swapaxes(0, 1)


def _onnx(summary: Summary, x: Array, states: Sequence[Array] | None) -> Array:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # it warns that optional inputs cannot be folded, which is what optional means
    session = onnxruntime.InferenceSession(summary.target, options, providers=["CPUExecutionProvider"])
    feeds = {"x": np.asarray(x, np.float32)}
    for name, value in zip(("initial_h", "initial_c"), states or (), strict=False):
        feeds[name] = np.asarray(value, np.float32)
    return np.asarray(session.run(["y"], feeds)[0])


def _cudnn(summary: Summary, x: Array, states: Sequence[Array] | None) -> Array:
    """The flat buffer, run by MXNet; a buffer without both biases has no executor on a CPU, and is asked for as double."""
    hidden, cell = ([*state] for state in (*(states or ()), np.empty(0), np.empty(0))[:2])
    answer = _mxnet().ask(file=summary.target, layers=[], how={}, x=x, hidden=hidden, cell=cell)
    return np.asarray(answer["y"])


@functools.cache
def _mxnet() -> Process:
    """One worker for all files: it takes longer to start than to run any of them."""
    worker = contextlib.ExitStack()
    atexit.register(worker.close)
    return worker.enter_context(running(mxnet()))


def described(path: Path, stack: Recurrent, buffer: Array) -> Path:
    """A flat vector as a raw file, with what cuDNN and MXNet's operator are told beside it."""
    buffer.tofile(path)
    path.with_name(f"{path.name}.json").write_text(json.dumps({"format": "cudnn", "layers": [describe(stack)]}))
    return path
