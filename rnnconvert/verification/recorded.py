"""Outputs of a file's own model in the file, compared with the outputs of the layers that were read from it.

Executors run layers; outputs that a training left in the file come from the whole model, in another framework, before anything was
converted. Both stacks have to give them: the one that was read, which shows that it was read as it was meant, and the other one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rnnconvert.core.arrays import FLOATS, Array
from rnnconvert.core.verdict import Limit
from rnnconvert.core.weights import Recurrent
from rnnconvert.files.checkpoint import Recorded
from rnnconvert.judging.case_kinds import Case
from rnnconvert.judging.cases import shaken
from rnnconvert.judging.comparison import OutputComparison
from rnnconvert.judging.judging import Allowance, Output, Tolerance, compare, tolerance
from rnnconvert.verification.results import Results
from rnnconvert.verification.running import Subject

_MOST_STEPS = 4096
"""So many first steps of a sample are run: the reference computes each in turn."""


def judge(results: Results, subjects: Sequence[Subject], tolerances: Mapping[str, Tolerance]) -> None:
    """Add to each layer what the samples in its models' files show of all its stacks."""
    for layer in results.layers.values():
        layer_subjects = [subject for subject in subjects if subject.stack.name == layer.name]
        for subject in layer_subjects:
            for sample in subject.checkpoint.recorded:
                if subject.pieces != (sample.layer,):
                    continue
                # What the numbers of a shorter element type cost is told apart: see `Cast`.
                exact = [peer for peer in layer_subjects if peer.model == subject.model or layer.cast is None]
                judged = {peer.model: _compared(peer.stack, sample, tolerances) for peer in exact}
                layer.refuted += [
                    f"the outputs of its own model that {subject.model} holds are not what the layer of {model} gives there: "
                    f"off by {comparison.error_at_worst:.3g}, allowed {comparison.allowed:.3g}"
                    for model, comparison in judged.items()
                    if not comparison.passed
                ]
                if all(comparison.passed for comparison in judged.values()):
                    off = max(comparison.error for comparison in judged.values())
                    layer.limits.append(Limit("sample", layer.name, _words(subject.model, sample, off)))


def _words(model: str, sample: Recorded, off: float) -> str:
    steps = min(len(sample.x), _MOST_STEPS)
    return f"it gives the {steps} outputs of its own model that {model} holds, to within {off:.2g}"


def _compared(stack: Recurrent, sample: Recorded, tolerances: Mapping[str, Tolerance]) -> OutputComparison:
    """Return how far a sample is from what its model gives with a stack in the place of its layer."""
    case = Case("sample", "what the file holds of its own model", sample.x[:_MOST_STEPS])

    def run_stack(some: Recurrent, arithmetic: Any) -> Array:
        return sample.restore(case.solve(some, arithmetic).y, case.x).astype(np.float64)

    # What was recorded was computed in float32, whatever the file keeps its numbers in.
    dtype = FLOATS["float32"]
    with np.errstate(all="ignore"):
        truth = run_stack(stack, np.float64)
        floors = [run_stack(stack, dtype), run_stack(shaken(stack, dtype), np.float64)]
    allowance = Allowance(floors, dtype, tolerance("y", tolerances))
    return compare(Output("sample", "y", ("time", "batch", "unit")), sample.y[:_MOST_STEPS], truth, allowance)
