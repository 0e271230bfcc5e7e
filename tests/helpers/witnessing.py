"""Models run whole, beside layers of theirs that are joined whatever lies between them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import rnnconvert as rc
from rnnconvert.core.errors import ExecutorError
from rnnconvert.core.weights import Recurrent
from rnnconvert.files.checkpoint import Checkpoint
from rnnconvert.running import registry
from rnnconvert.verification import recording, witness
from rnnconvert.verification.models import RunningModel
from rnnconvert.verification.results import LayerResults, Results
from rnnconvert.verification.running import Subject
from tests.helpers import workers


def joined(checkpoint: Checkpoint, pieces: Sequence[str]) -> Recurrent:
    """Return layers as one stack without asking whether they read one another."""
    stacks = [checkpoint.layers[name] for name in pieces]
    return Recurrent("+".join(pieces), tuple(layer for stack in stacks for layer in stack.layers))


def run_whole(path: Path, pieces: Sequence[str], executor: str, stack: Recurrent | None = None) -> LayerResults:
    """Return what a model's whole run shows of layers of it.

    stack  what is compared with it; the layers themselves, joined, if None
    """
    checkpoint = rc.load(path)
    together = joined(checkpoint, pieces)
    subjects = [Subject("A", checkpoint, tuple(pieces), together)]
    if stack is not None:
        subjects.append(Subject("B", checkpoint, (), stack.replace(name=together.name)))
    results = Results("", "", layers={together.name: LayerResults(together.name, "")})
    outcome: recording.Recording | str
    with workers.running(registry.executor(executor)) as process:
        try:
            outcome = RunningModel.recorded(process, subjects[:1], path.parent, 0).recording
        except ExecutorError as error:
            outcome = error.problem
    witness.judge(results, subjects, {"A": outcome}, {})
    return results.layers[together.name]


def summary(layer: LayerResults) -> str:
    """Return the status, the reason and what is left to the caller, in one line."""
    assert layer.whole is not None
    return "; ".join([layer.whole.status, layer.whole.reason, *(limit.words for limit in layer.limits)])
