"""The plan of a run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

from rnnconvert.core.errors import UsageError
from rnnconvert.core.remedies import Flag
from rnnconvert.judging.cases import DEFAULT_CASES
from rnnconvert.verification.results import Results

Watch = Callable[..., None]
"""Receives what is being done, in words, and where it has parts, how many of them are done and how many there are."""


@dataclass(frozen=True)
class Plan:
    """The plan of a run: what is to be run, and on what.

    on         names of executors; "all" for every one that is here; none for the usual: for each model the first executor of its own format
               that runs it, and for a single model one of every other format too
    cases      names of cases (rnnconvert.judging.cases.CASES)
    seed       of the random inputs, states and lengths
    batch      how many sequences
    time       how many steps
    lengths    of the sequences in the case "lengths", instead of random ones
    gradients  whether gradients are run too
    inputs     a .npz with x (time, batch, in), optionally h_0, c_0 and lengths, in place of random cases; or a .npy or .npz with inputs
               of whole models, by their names or in their order, on which they run, too
    layers     names of A's layers; all if none
    pairs      "A=B", if names and sizes do not show which layer of B is which of A's
    settings   answers to what files leave open, "KEY=VALUE" or "LAYER:KEY=VALUE"; settings_a, settings_b for one of two models
    format_a   read A as this format, instead of asking the file; format_b likewise
    given      results whose cases are run, in place of random ones
    timeout    how many seconds an executor may take to answer a request; by default ten minutes, and more for large files
    """

    on: Sequence[str] | str = ()
    cases: Sequence[str] | str = DEFAULT_CASES
    seed: int = 0
    batch: int = 4
    time: int = 12
    lengths: Sequence[int] | None = None
    gradients: bool = False
    inputs: str | None = None
    layers: Sequence[str] | str = ()
    pairs: Sequence[str] | str = ()
    settings: Sequence[str] | str = ()
    settings_a: Sequence[str] | str = ()
    settings_b: Sequence[str] | str = ()
    format_a: str | None = None
    format_b: str | None = None
    given: Results | None = None
    timeout: float | None = None

    def __post_init__(self) -> None:
        # One name stands for a list of one.
        for name in ("on", "cases", "layers", "pairs", "settings", "settings_a", "settings_b"):
            if isinstance(getattr(self, name), str):
                object.__setattr__(self, name, (getattr(self, name),))

    def as_dict(self) -> dict[str, Any]:
        """Return the settings that decide the numbers, for the report."""
        if self.given is not None:
            return dict(self.given.settings)
        return {
            "seed": self.seed,
            "batch": self.batch,
            "time": self.time,
            "cases": list(self.cases),
            "lengths": None if self.lengths is None else list(self.lengths),
            "gradients": self.gradients,
            "inputs": self.inputs,
        }


class PlanFields(TypedDict, total=False):
    """The fields of a plan as keywords."""

    on: Sequence[str] | str
    cases: Sequence[str] | str
    seed: int
    batch: int
    time: int
    lengths: Sequence[int] | None
    gradients: bool
    inputs: str | None
    layers: Sequence[str] | str
    pairs: Sequence[str] | str
    settings: Sequence[str] | str
    settings_a: Sequence[str] | str
    settings_b: Sequence[str] | str
    format_a: str | None
    format_b: str | None
    given: Results | None
    timeout: float | None


FLAGS = {
    "cases": "case", "batch": "batch", "time": "time", "lengths": "lengths", "seed": "seed",
    "gradients": "gradients", "inputs": "inputs", "given": "load-inputs", "pairs": "pair", "layers": "layer",
    "on": "on", "settings": "set", "settings_a": "set-a", "settings_b": "set-b", "format_a": "from-a",
    "format_b": "from-b", "timeout": "timeout",
}  # fmt: skip
"""The fields of a plan that decide what is run, and the options of the command line that set them."""


RANDOM = ("cases", "batch", "time", "lengths")
"""The fields that decide what is drawn for layers."""


def decides_nothing(plan: Plan, fields: Iterable[str], why: str) -> None:
    """Raise UsageError for a field of a plan that is set but would decide nothing.

    why  what makes it idle, in words
    """
    defaults = Plan()
    for name in fields:
        value, default = getattr(plan, name), getattr(defaults, name)
        if value is not default and (not isinstance(value, Sequence) or list(value) != list(default or ())) and value != default:
            raise UsageError(f"{name} ({Flag(FLAGS[name])}) decides nothing: {why}. Leave it out.")


def check(plan: Plan, models: int, of_layers: bool = True) -> None:
    """Raise UsageError for anything in a plan that nothing would use.

    models     how many model files are read
    of_layers  whether the user's own inputs are inputs of layers
    """
    if models < 2:
        decides_nothing(plan, ("pairs", "settings_b", "format_b"), "it is about a second model, B, but there is none")
    if plan.given is not None:
        why = "the inputs of saved results are run unchanged"
        weighed = any(case.cotangents for layer in plan.given.layers.values() for case in layer.cases)
        decides_nothing(plan, (*RANDOM, "seed", "inputs", *([] if weighed else ["gradients"])), why)
    if plan.inputs is not None and of_layers:
        decides_nothing(plan, RANDOM, "your own inputs are run instead of random ones")
    if plan.lengths is not None and "lengths" not in plan.cases:
        decides_nothing(plan, ("lengths",), 'it belongs to the case "lengths", which does not run')
    if plan.lengths is not None and plan.batch != len(plan.lengths):
        decides_nothing(plan, ("batch",), f"the lengths set {len(plan.lengths)} sequences")
