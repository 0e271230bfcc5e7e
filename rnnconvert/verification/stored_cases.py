"""Cases to run: those that a file or a recorded sample holds, and those that are made."""

from __future__ import annotations

import numpy as np

from rnnconvert.containers.addresses import local
from rnnconvert.core import sample_names
from rnnconvert.core.errors import UnreadableError, UsageError
from rnnconvert.core.printable import listed, quoted
from rnnconvert.core.weights import Recurrent
from rnnconvert.judging import cases as given_cases
from rnnconvert.judging.case_kinds import Case, Skipped
from rnnconvert.judging.cases import Draw
from rnnconvert.verification.plan import Plan
from rnnconvert.verification.results import LayerResults
from rnnconvert.verification.running import Subject
from rnnconvert.verification.stated import outlined


def with_cases(subject: Subject, plan: Plan) -> LayerResults:
    """Return a layer with its cases."""
    stack = subject.stack
    skipped: list[Skipped] = []
    if plan.given is not None:
        cases = _stored_cases(plan, stack)
    elif plan.inputs is None:
        draw = Draw(plan.cases, plan.seed, plan.batch, plan.time, plan.lengths)
        cases, skipped = given_cases.cases(stack, draw, plan.gradients)
    else:
        cases = [_sample_case(plan, subject)]
    layer_results = LayerResults(stack.name, stack.describe(), cases=cases, skipped=skipped)
    layer_results.stated[subject.model] = outlined(stack)
    return layer_results


def _stored_cases(plan: Plan, stack: Recurrent) -> list[Case]:
    """Return the cases of other results."""
    assert plan.given is not None
    stored = plan.given.layers.get(stack.name)
    if stored is None and len(plan.given.layers) == 1:
        (stored,) = plan.given.layers.values()
    if stored is None:
        raise UsageError(f"no inputs were kept for {quoted(stack.name)}. Choose one of: {listed(plan.given.layers)}")
    for case in stored.cases:
        if case.x.shape[2] != stack.input_size:
            raise UsageError(
                f"the inputs kept for {quoted(stored.name)} are {case.x.shape[2]} wide, but {quoted(stack.name)} reads "
                f"{stack.input_size} values"
            )
    return stored.cases


def _sample_case(plan: Plan, subject: Subject) -> Case:
    """Return the user's own inputs."""
    assert plan.inputs is not None
    try:
        with np.load(local(plan.inputs), allow_pickle=False) as archive:
            arrays = sample_names.canonical({name: archive[name] for name in archive.files}, plan.inputs)
    except (OSError, ValueError, EOFError) as error:
        raise UnreadableError(plan.inputs, f"it is not a .npz file of plain arrays: {error}") from None
    if "x" not in arrays:
        raise UnreadableError(plan.inputs, "it has no input x", "Add x, (time, batch, in); h_0, c_0 and lengths are optional.")
    if "c_0" in arrays and "h_0" not in arrays:
        raise UsageError(f"{plan.inputs} has c_0 but no h_0. Give both initial states")
    states = [arrays[name] for name in ("h_0", "c_0") if name in arrays]
    single = given_cases.sample_case(arrays["x"], states, arrays.get("lengths"), stack=subject.stack)
    if plan.gradients and single.hidden is not None:
        return given_cases.weighed(single, subject.stack, plan.seed)
    return single
