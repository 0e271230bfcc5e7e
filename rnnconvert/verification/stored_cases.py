"""Cases to run: those that a file or a recorded sample holds, and those that are made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rnnconvert.core import sample_names
from rnnconvert.core.arrays import Array
from rnnconvert.core.errors import UnreadableError, UsageError
from rnnconvert.core.printable import listed, quoted
from rnnconvert.core.weights import Recurrent
from rnnconvert.judging import cases as given_cases
from rnnconvert.judging.case_kinds import Case, Skipped
from rnnconvert.judging.cases import Draw
from rnnconvert.running.inputs import read_inputs
from rnnconvert.verification.plan import Plan
from rnnconvert.verification.recording import ModelsInputs
from rnnconvert.verification.results import LayerResults
from rnnconvert.verification.running import Subject
from rnnconvert.verification.stated import outlined


def with_cases(subject: Subject, plan: Plan, sample: Mapping[str, Array] | None) -> LayerResults:
    """Return a layer with its cases.

    sample  the user's own inputs of the layers
    """
    stack = subject.stack
    skipped: list[Skipped] = []
    if plan.given is not None:
        cases = _stored_cases(plan, stack)
    elif sample is None:
        draw = Draw(plan.cases, plan.seed, plan.batch, plan.time, plan.lengths)
        cases, skipped = given_cases.cases(stack, draw, plan.gradients)
    else:
        cases = [_sample_case(plan, sample, subject)]
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


OF_LAYERS = "Inputs of the layers are x (time, batch, in), optionally h_0, c_0 and lengths"
"""What a file holds that is for layers, and not for whole models."""


@dataclass(frozen=True)
class UserInputs:
    """The user's own inputs, which a file holds.

    of_layers  inputs of layers, by our names; None if there are none, or they are inputs of whole models
    of_models  inputs of whole models; an array that may also be an input of layers counts here if the models take it
    """

    of_layers: dict[str, Array] | None = None
    of_models: ModelsInputs | None = None

    @classmethod
    def of(cls, plan: Plan) -> UserInputs:
        """Read the inputs of a plan. Raises UnreadableError for a file that holds no arrays."""
        if plan.inputs is None:
            return cls()
        arrays = read_inputs(plan.inputs)
        try:
            sample = sample_names.canonical(dict(arrays), "it")
        except UsageError as error:  # names that no layer has are those of a model
            return cls(None, ModelsInputs(plan.inputs, arrays, f"{OF_LAYERS}; {error}"))
        return cls(sample, ModelsInputs(plan.inputs, [("", sample["x"])]) if "x" in sample else None)


def _sample_case(plan: Plan, arrays: Mapping[str, Array], subject: Subject) -> Case:
    """Return the user's own inputs of a layer."""
    assert plan.inputs is not None
    if "x" not in arrays:
        raise UnreadableError(plan.inputs, "it has no input x", "Add x, (time, batch, in); h_0, c_0 and lengths are optional.")
    if "c_0" in arrays and "h_0" not in arrays:
        raise UsageError(f"{plan.inputs} has c_0 but no h_0. Give both initial states")
    states = [arrays[name] for name in ("h_0", "c_0") if name in arrays]
    single = given_cases.sample_case(arrays["x"], states, arrays.get("lengths"), stack=subject.stack)
    if plan.gradients and single.hidden is not None:
        return given_cases.weighed(single, subject.stack, plan.seed)
    return single
