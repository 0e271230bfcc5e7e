"""The executors for CUDA, through rnnconvert's own `verify`: files of ours, outputs and gradients, every case it has."""

from __future__ import annotations

import contextlib
import functools
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

import rnnconvert
from rnnconvert.core.cells import RELU, Cell
from rnnconvert.core.weights import Recurrent
from rnnconvert.files.checkpoint import Checkpoint
from rnnconvert.language.layout import Sizes
from rnnconvert.running import parent, registry
from rnnconvert.running.registry import Executor
from rnnconvert.verification import lanes, results
from rnnconvert.verification.verify import verify
from tests.gpu import records
from tests.gpu.records import Absence
from tests.gpu.work import Case, Outcome, Work
from tests.helpers.stacks import BOTH, PLAIN, random_stack

INPUT = PLAIN | {"input_bias"}
LSTM, GRU, GRU_BEFORE, RNN = Cell("lstm"), Cell("gru", True), Cell("gru", False), Cell("rnn")
RECTIFIED = RNN.replace(activation=RELU)

Model = tuple[Cell, int, int, frozenset[str], str, int]
"""A cell, its layers, directions, parts, element type and projection."""


def _model(
    cell: Cell, layers: int = 1, directions: int = 1, parts: frozenset[str] = BOTH, dtype: str = "float32",
    projection: int = 0,
) -> Model:  # fmt: skip
    return cell, layers, directions, parts, dtype, projection


HALVES = ("float16", "bfloat16")
STACKS = [
    _model(LSTM, 2, 2), _model(GRU, 2, 2), _model(RNN, 2, 1), _model(RECTIFIED, 1, 2), _model(LSTM, 1, 1, PLAIN),
    _model(LSTM, 2, 2, BOTH | {"projection"}, projection=2),
]  # fmt: skip
WIDE = [_model(cell, 2, 2, dtype=dtype) for cell in (LSTM, GRU, RNN) for dtype in ("float64", *HALVES)]
KERAS = [
    _model(LSTM, 1, 2, INPUT), _model(GRU), _model(GRU_BEFORE, 1, 1, INPUT), _model(RNN, 1, 1, INPUT),
    _model(LSTM, 1, 1, INPUT, "float16"),
]  # fmt: skip
MODELS: dict[str, dict[str, list[Model]]] = {
    "torch": {
        "torch-cuda": STACKS + WIDE,
        "torch-cuda-tf32": STACKS,
        "torch-flat": STACKS + WIDE,
        "cudnn": STACKS,
        "cudnn-persistent": STACKS[:3],
        "cudnn-persistent-dynamic": STACKS[:3],
    },
    "jax": {
        "jax-cuda": [_model(LSTM), _model(LSTM, 2, 2), _model(LSTM, 3, 1)],
        "flax-cuda": [_model(LSTM, 2), _model(GRU), _model(RNN), _model(LSTM, dtype="bfloat16")],
        "nnx-cuda": [_model(LSTM, 2), _model(GRU, 1, 1, INPUT), _model(RNN), _model(LSTM, dtype="bfloat16")],
        "haiku-cuda": [_model(LSTM, 2), _model(GRU_BEFORE), _model(RECTIFIED)],
        "equinox-cuda": [_model(LSTM, 2), _model(GRU)],
    },
    "keras": {
        "keras-torch-cuda": KERAS,
        "keras-jax-cuda": [model for model in KERAS if model[0] != GRU_BEFORE],
        "keras-tensorflow-cuda": KERAS,
        "keras-tensorflow-cuda-generic": KERAS[:2],
    },
    "onnxruntime": {
        "onnxruntime-cuda": [
            _model(LSTM, 2, 2), _model(GRU, 2, 2), _model(GRU_BEFORE, 1, 2), _model(RNN, 2, 1), _model(LSTM, 1, 1, PLAIN),
        ],
    },
}  # fmt: skip
"""What each executor runs, by part."""

CASES = ("states", "default states", "lengths")
UNPADDED = CASES[:2]
"""Those that cuDNN's persistent kernels compute: they take no padding."""
SLOW = ("states", "lengths")
"""Cases of rnnconvert's, for frameworks that compile each of them anew."""


def cases(work: Work) -> list[Case]:
    """One case for each executor and model, executor by executor: each has one process."""
    mock.patch.object(lanes, "running", kept_process).start()  # what most of a small verification takes is the import of a framework
    return [
        Case(f"{name} {label(model)}", functools.partial(_verified, work, name, model))
        for name, models in MODELS[work.part].items()
        for model in models
    ]


def label(model: Model) -> str:
    cell, layers, directions, parts, dtype, projection = model
    words = [cell.kind, {True: "after", False: "before", None: ""}[cell.reset_after], "relu" * (cell.activation == RELU)]
    words += [f"{layers}x{directions}", dtype, f"p{projection}" * bool(projection)]
    words += ["no biases" * (parts == PLAIN), "one bias" * (parts == INPUT)]
    return " ".join(filter(None, words))


def stack_of(model: Model) -> Recurrent:
    cell, layers, directions, parts, dtype, projection = model
    form = Sizes(cell.kind, 4, 6, layers, directions, projection, parts)
    return random_stack(form, zlib.crc32(label(model).encode()), dtype, cell)


_RUNNING: dict[str, Any] = {}


@contextlib.contextmanager
def kept_process(executor: Executor) -> Iterator[parent.Process]:
    """An executor's process, the same for every model as long as it answers; one at a time is kept."""
    if executor.name not in _RUNNING:
        for _, stack in _RUNNING.values():
            stack.close()
        _RUNNING.clear()
        stack = contextlib.ExitStack()
        _RUNNING[executor.name] = stack.enter_context(parent.running(executor)), stack
    process, stack = _RUNNING[executor.name]
    try:
        yield process
    except BaseException:
        _RUNNING.pop(executor.name, None)
        stack.close()
        raise


def _forget() -> None:
    """End the process that failed: after an error of CUDA it gives errors only."""
    for _, stack in _RUNNING.values():
        stack.close()
    _RUNNING.clear()


def library_of(executor: str) -> str:
    """What tests.gpu.machine found or missed for an executor."""
    if executor.startswith("cudnn"):
        return "cudnn"
    return "jax" if executor.partition("-")[0] in ("jax", "flax", "nnx", "haiku", "equinox") or "jax" in executor else (
        "torch" if "torch" in executor else "gpu"
    )  # fmt: skip


def _cases(executor: str) -> tuple[str, ...]:
    if "persistent" in executor:
        return UNPADDED
    return SLOW if "keras" in executor or executor.split("-")[0] in ("flax", "nnx", "haiku", "equinox") else CASES


def _verified(work: Work, name: str, model: Model) -> Outcome:
    """What `rnnconvert verify` says of a file of ours on an executor."""
    blocked = work.facts.get("blocked", {}).get(library_of(name), "")
    if blocked:
        raise Absence(blocked)
    executor = registry.executor(name)
    if name.startswith("onnxruntime") and not work.stands_in:
        _need_cuda_provider()
    path = work.folder / f"{zlib.crc32(f'{name} {label(model)}'.encode()):08x}{executor.suffix}"
    stack = stack_of(model)
    rnnconvert.save(Checkpoint("", "canonical", {stack.name: stack}), path, executor.format, force=True)
    results_path = path.with_suffix(".kept.safetensors")
    settings = ["nonlinearity=relu"] if stack.cell.activation == RELU and executor.format == "pytorch" else []
    if any(layer.cell.activation != stack.cell.activation for layer in rnnconvert.load(path, settings=settings).layers.values()):
        raise RuntimeError("the file does not state the activation, so that another one would be proved")
    report = verify(
        path, on=[name], settings=settings, cases=_cases(name), batch=3, time=6, gradients=executor.format != "onnx",
        explain=False, save=results_path, jobs=1,
    )  # fmt: skip
    # A stack is several layers in a file of single cells.
    runs = [run for layer in report.document["layers"] for run in layer["runs"] if run["executor"] == name]
    facts = {"versions": runs[0]["versions"], "device": runs[0]["device"], "left out": runs[0]["left_out"]}
    facts["notes"] = {k: v for run in runs for k, v in run["notes"].items() if k not in ("offsets", "trace", "bytes")}
    for run in runs:
        if run["status"] != "ran":
            verdict = {"refused": records.REFUSED, "absent": records.SKIPPED}.get(run["status"], records.FAILED)
            if verdict == records.FAILED:
                _forget()
            return Outcome(verdict, str(run["reason"])[:600], facts=facts)
    compared = [comparison for run in runs for comparison in run["comparisons"]]
    if not compared:
        return Outcome(records.FAILED, "it ran, but nothing was compared", facts=facts)
    worst = max(compared, key=lambda comparison: float(comparison["ratio"]))
    arrays = {"": _row(results_path, name)}
    where = f"{worst['output']} ({worst['case']})"
    largest = max(float(comparison["error"]) for comparison in compared)
    return Outcome.of_ratio(float(worst["ratio"]), largest, where, arrays=arrays, facts=facts)


def _row(path: Path, name: str) -> Any:
    """The outputs of every case as one row of float32."""
    saved = results.read(path)
    assert saved is not None
    runs = [run for layer in saved.layers.values() for run in layer.runs if run.executor == name]
    outputs = [run.outputs[case] for run in runs for case in sorted(run.outputs)]
    rows = [part for output in outputs for part in (output.y, *output.hidden, *output.cell)]
    return np.concatenate([np.asarray(row, np.float32).ravel() for row in rows])


def _need_cuda_provider() -> None:
    """Raise Absence if onnxruntime is made for the CPU alone."""
    import onnxruntime

    if "CUDAExecutionProvider" not in onnxruntime.get_available_providers():
        raise Absence(f"onnxruntime {onnxruntime.__version__} is made for the CPU: pip install onnxruntime-gpu")
