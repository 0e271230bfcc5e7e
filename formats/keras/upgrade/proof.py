"""The proof of an upgrade: the old file in tf_keras or TensorFlow.js and the new one in Keras, on the same inputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rnnconvert.containers.files import move
from rnnconvert.containers.temporary import new_folder
from rnnconvert.core.arrays import Array
from rnnconvert.core.claims import proved as claimed
from rnnconvert.core.errors import AbsentExecutorError, ExecutorError, MissingPackageError, NotEqualError, UsageError, show_as
from rnnconvert.core.remedies import Flag
from rnnconvert.core.verdict import Verdict, Word
from rnnconvert.files.opened import Opened
from rnnconvert.formats.keras.layers_model import is_layers_model
from rnnconvert.formats.keras.upgrade import run as upgrade_run
from rnnconvert.judging.comparison import OutputComparison, unlike
from rnnconvert.judging.judging import Allowance, Output, compare
from rnnconvert.models.runners import open_file
from rnnconvert.running.scripts import answer_of, python_of, saved


@dataclass(frozen=True)
class Proof:
    """The comparison of two runs.

    comparisons  one of each output
    """

    comparisons: tuple[OutputComparison, ...]

    exit_code = 1

    @property
    def conclusion(self) -> Verdict:
        """Equal only if every output agrees, and there was one."""
        return Verdict.of(equal=all(comparison.passed for comparison in self.comparisons), compared=bool(self.comparisons))

    @property
    def verdict(self) -> Word:
        """The verdict in a word."""
        return self.conclusion.word

    def __str__(self) -> str:
        return "\n".join(map(str, self.comparisons))


def proved(source: Path, target: Path, write: Callable[[Path], None]) -> str:
    """Write the new file, keep it only if it gives what the old one gives, and return the proof in words.

    Raises MissingPackageError without tf_keras or Keras, ExecutorError or UsageError where one of them cannot run its file,
    NotEqualError where the outputs differ.
    """
    if not target.parent.is_dir():
        raise UsageError(f"{target}: the folder {target.parent} does not exist. Create it first")
    with new_folder(target) as folder:
        path = folder / target.name
        show_as(path, target)
        write(path)
        proof = compared(source, path, folder)
        if not proof.conclusion:
            raise NotEqualError(target, proof)
        move(path, target)
    outputs = f"all {len(proof.comparisons)} outputs" if len(proof.comparisons) > 1 else "the output"
    errors = [comparison.error for comparison in proof.comparisons]
    return claimed(errors, f"{_runner(source)} on the old file and Keras on the new one agree in {outputs}")


def compared(source: Path, written: Path, folder: Path) -> Proof:
    """Return the comparison of both runs."""
    if _runner(source) == "tf_keras":
        python_of("tf_keras", _absent("tf_keras"))
        _run("keras", written, folder)
        _run("tf_keras", source, folder)
        truth: Sequence[Array] = saved(folder / "tf_keras.npz")
    else:
        old = open_file("tfjs", source)
        _run("keras", written, folder, calls=1)
        (truth,), _ = old.apart([list(zip(old.names, saved(folder / "x.npz"), strict=True))])
    results = saved(folder / "keras.npz")
    shaken = [saved(folder / f"keras_{seed}.npz") for seed in range(upgrade_run.SHAKES)]
    if len(results) != len(truth):
        raise NotEqualError(written, Proof((unlike("random inputs", "outputs", (len(results),), (len(truth),)),)))
    comparisons = []
    for number, (result, expected) in enumerate(zip(results, truth, strict=True)):
        name = "output" if len(results) == 1 else f"output {number}"
        if result.shape != expected.shape:
            comparisons.append(unlike("random inputs", name, result.shape, expected.shape))
            continue
        allowance = Allowance([expected + (moved[number] - result) for moved in shaken], np.dtype(np.float32))
        output = Output("random inputs", name, tuple(f"axis {axis}" for axis in range(expected.ndim)))
        comparisons.append(compare(output, result, expected, allowance))
    return Proof(tuple(comparisons))


def _runner(source: Path) -> str:
    """Return the framework that runs an old file."""
    return "TensorFlow.js" if is_layers_model(Opened(source).json) else "tf_keras"


def _absent(framework: str) -> MissingPackageError:
    return MissingPackageError(framework, "prove an upgrade by running both files")


def _run(framework: str, model: Path, folder: Path, calls: int = 2) -> None:
    """Run a model in a separate process, one with stateful layers so many times."""
    try:
        words = (framework, str(model), str(folder), str(calls))
        answer_of(upgrade_run.__file__, framework, _absent(framework), *words, KERAS_BACKEND="tensorflow")
    except ExecutorError as error:
        if framework == "tf_keras" and "(type CuDNN" in error.problem:
            raise AbsentExecutorError(
                framework,
                "layers such as CuDNNLSTM run on an NVIDIA GPU alone. Prove it on one, with CUDA_VISIBLE_DEVICES=0, or upgrade "
                f"without {Flag('verify')}",
            ) from None
        raise
