"""The proof of a replacement: the old operators and the new one in onnxruntime, on the same random inputs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from rnnconvert.core.arrays import Array, PiecewiseArray
from rnnconvert.core.errors import MissingPackageError
from rnnconvert.formats.onnx.fuse import run as fuse_run
from rnnconvert.formats.onnx.proto import write
from rnnconvert.formats.onnx.proto.file import DTYPES
from rnnconvert.judging.comparison import OutputComparison, unlike
from rnnconvert.judging.judging import Allowance, Output, compare
from rnnconvert.running.scripts import answer_of, saved

SHAKES = 3


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
    absent = MissingPackageError("onnxruntime", "prove that a fused operator computes what it replaces")
    failed = answer_of(fuse_run.__file__, "onnxruntime", absent, str(folder))["failed"]
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
        truth, results = (saved(folder / f"{number}_{trial}_{kind}.npz") for kind in ("old", "new"))
        shaken = [
            saved(folder / f"{number}_{trial}_shaken{n}.npz") for n in range(SHAKES) if f"{number}_{trial}_shaken{n}.npz" not in failed
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


def _shaken(array: Array, random: np.random.Generator) -> Array:
    if array.dtype.kind != "f" or array.size == 1:  # one number may be what others are compared with
        return array
    eps = float(np.finfo(array.dtype).eps)
    return np.asarray(array * (1 + eps * random.uniform(-1, 1, array.shape)), array.dtype)
