"""The proof of a replacement: the old operators and the new one in onnxruntime, on the same random inputs."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from rnnconvert.containers.temporary import check_room
from rnnconvert.core.arrays import Array, PiecewiseArray
from rnnconvert.core.errors import ExecutorError, MissingPackageError
from rnnconvert.formats.onnx.fuse import run as fuse_run
from rnnconvert.formats.onnx.proto import write
from rnnconvert.formats.onnx.proto.file import DTYPES
from rnnconvert.judging.comparison import OutputComparison, unlike
from rnnconvert.judging.judging import Allowance, Output, compare
from rnnconvert.running.parent import DEFAULT_ENVIRONMENT, script
from rnnconvert.running.registry import executors

SHAKES = 3
_PATIENCE = 600
_PURPOSE = "prove that a fused operator computes what it replaces"


@dataclass(frozen=True, eq=False)
class RunnableGraph:
    """A model to run: its message, and the numbers that are not in it."""

    model: onnx.ModelProto
    arrays: Mapping[str, Array | PiecewiseArray]

    def shaken(self, seed: int) -> RunnableGraph:
        """Return the model with every weight about one unit in the last place off: what rounding does."""
        random = np.random.default_rng(seed)
        arrays = {name: _shaken(np.asarray(array), random) for name, array in self.arrays.items()}
        model = onnx.ModelProto()
        model.CopyFrom(self.model)
        for tensor in write.tensors(model):
            if tensor.raw_data and tensor.data_type in (onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16):
                dtype = DTYPES[tensor.data_type]
                tensor.raw_data = _shaken(np.frombuffer(tensor.raw_data, dtype), random).tobytes()
        return RunnableGraph(model, arrays)


@dataclass(frozen=True, eq=False)
class ModelPair:
    """An old and a new model with the same outputs, and inputs to run both on.

    label   what is compared
    inputs  by trial: arrays by the names of inputs
    old     the model before, and the file that it is in, where it is a file as it stands
    """

    label: str
    old: RunnableGraph
    new: RunnableGraph
    outputs: Sequence[str]
    inputs: Sequence[Mapping[str, Array]]
    dtype: np.dtype = field(default_factory=lambda: np.dtype(np.float32))


@dataclass(frozen=True)
class PairVerdict:
    """The comparison of the runs of a pair.

    comparisons  one of each output in each trial
    problem      why it could not be run; "" if it could
    """

    comparisons: tuple[OutputComparison, ...] = ()
    problem: str = ""

    @property
    def equal(self) -> bool:
        """Whether every output agrees in every trial, and there was one."""
        return not self.problem and bool(self.comparisons) and all(comparison.passed for comparison in self.comparisons)

    @property
    def error(self) -> float:
        """The largest difference."""
        return max((comparison.error for comparison in self.comparisons), default=0.0)

    @property
    def reason(self) -> str:
        """Why the two are not proved to be equal, in words."""
        if self.problem:
            return self.problem
        worst = next((comparison for comparison in self.comparisons if not comparison.passed), None)
        if worst is None:
            return "nothing could be compared"
        return f"its output {worst.output} is off by {worst.error:.2g} (tolerance {worst.allowed:.2g})"


def prove(pairs: Sequence[ModelPair], folder: Path, least: int = 1) -> list[PairVerdict]:
    """Run every pair in one process of onnxruntime.

    least  how many trials the old model must be able to run

    Raises MissingPackageError without onnxruntime, ExecutorError if its process ends.
    """
    jobs: list[dict[str, Any]] = []
    for number, pair in enumerate(pairs):
        names = list(pair.inputs[0]) if pair.inputs else []
        for trial, feeds in enumerate(pair.inputs):
            arrays: dict[str, Any] = {str(n): feeds[name] for n, name in enumerate(names)}
            np.savez(folder / f"{number}_{trial}_in.npz", **arrays)
        graphs = {"old": pair.old, "new": pair.new, **{f"shaken{n}": pair.old.shaken(n) for n in range(SHAKES)}}
        for kind, graph in graphs.items():
            path = folder / f"{number}_{kind}.onnx"
            write.write(path, graph.model, graph.arrays, check=False)
            runs = [(f"{number}_{trial}_in.npz", f"{number}_{trial}_{kind}.npz") for trial in range(len(pair.inputs))]
            jobs.append(
                {"model": str(path), "names": names, "outputs": list(pair.outputs), "runs": runs, "plain": kind.startswith("shaken")}
            )
    (folder / "jobs.json").write_text(json.dumps(jobs), "utf-8")
    failed = _run(folder)
    return [_verdict(number, pair, folder, failed, least) for number, pair in enumerate(pairs)]


def _verdict(number: int, pair: ModelPair, folder: Path, failed: Mapping[str, str], least: int) -> PairVerdict:
    comparisons: list[OutputComparison] = []
    ran = 0
    for trial in range(len(pair.inputs)):
        if f"{number}_{trial}_old.npz" in failed:
            continue  # an input that the model itself does not take
        problem = failed.get(f"{number}_{trial}_new.npz")
        if problem is not None:
            return PairVerdict(problem=f"onnxruntime does not run it: {problem}")
        ran += 1
        truth, results = (_saved(folder / f"{number}_{trial}_{kind}.npz") for kind in ("old", "new"))
        shaken = [
            _saved(folder / f"{number}_{trial}_shaken{n}.npz") for n in range(SHAKES) if f"{number}_{trial}_shaken{n}.npz" not in failed
        ]
        for place, (result, expected) in enumerate(zip(results, truth, strict=True)):
            case, name = f"trial {trial}", repr(pair.outputs[place])
            if result.shape != expected.shape:
                comparisons.append(unlike(case, name, result.shape, expected.shape))
            elif expected.dtype.kind == "f" and (
                np.isfinite(expected).all() or _infinite_alike(result, expected) or not _finite(pair.inputs[trial])
            ):
                # The operators RNN, GRU and LSTM of onnxruntime make numbers of what is none.
                there = np.isfinite(expected)
                floors = [np.where(there, other[place], 0) for other in shaken if other[place].shape == expected.shape]
                new, old = (np.where(there, each, 0) for each in (result, expected))
                comparisons.append(compare(Output(case, name), new, old, Allowance(floors, pair.dtype)))
            elif not np.array_equal(result, expected, equal_nan=expected.dtype.kind == "f"):
                return PairVerdict(problem=f"its output {name} is another one")
    if ran < least:
        problem = next((failed[key] for key in failed if key.startswith(f"{number}_") and key.endswith("_old.npz")), "")
        return PairVerdict(problem=f"onnxruntime does not run the model as it is: {problem}")
    return PairVerdict(tuple(comparisons))


def _infinite_alike(result: Array, truth: Array) -> bool:
    """Return whether what is infinite or NaN is the same, and at the same places."""
    return np.array_equal(np.where(np.isfinite(result), 0, result), np.where(np.isfinite(truth), 0, truth), equal_nan=True)


def _finite(inputs: Mapping[str, Array]) -> bool:
    return all(bool(np.isfinite(array).all()) for array in inputs.values() if array.dtype.kind == "f")


def _saved(path: Path) -> list[Array]:
    with np.load(path, allow_pickle=False) as archive:
        return [archive[str(number)] for number in range(len(archive.files))]


def _shaken(array: Array, random: np.random.Generator) -> Array:
    if array.dtype.kind != "f" or array.size == 1:  # one number may be what others are compared with
        return array
    eps = float(np.finfo(array.dtype).eps)
    return np.asarray(array * (1 + eps * random.uniform(-1, 1, array.shape)), array.dtype)


def _python() -> str:
    """Return the Python that has onnxruntime: this one, unless an executor of that name has its own."""
    python = next((executor.python for name, executor in executors().items() if name.startswith("onnxruntime")), sys.executable)
    if python == sys.executable and importlib.util.find_spec("onnxruntime") is None:
        raise MissingPackageError("onnxruntime", _PURPOSE)
    return python


def _run(folder: Path) -> dict[str, str]:
    """Run the jobs of a folder; return what failed."""
    command = script(_python(), str(Path(fuse_run.__file__)), str(folder))
    environment = {**DEFAULT_ENVIRONMENT, "CUDA_VISIBLE_DEVICES": "", **os.environ}
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE, env=environment, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ExecutorError("onnxruntime", str(error)) from None
    answer: dict[str, Any] = {}
    with contextlib.suppress(ValueError, IndexError):
        answer = json.loads(done.stdout.splitlines()[-1])
    if "absent" in answer:
        raise MissingPackageError("onnxruntime", _PURPOSE)
    check_room("onnxruntime", f"{answer.get('failed')} {done.stderr}")
    if done.returncode or "failed" not in answer:
        raise ExecutorError("onnxruntime", f"its process ended with {done.returncode}", done.stderr[-2000:])
    return dict(answer["failed"])
