"""The state of an optimizer in one form, whichever framework it is of.

A slot holds a number for every number of a weight:

    adam     first_moment m, second_moment v (a square), with amsgrad largest_second_moment (a square)
    sgd      momentum b
    rmsprop  square_average v (a square), with momentum momentum b, with centered average_gradient a
    adagrad  sum_of_squares s (a square)

A square has no sign: where a weight is negated, its gradient is, and the gradient's square is not.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from rnnconvert.core.arrays import Array

KINDS = {"Adam": "adam", "AdamW": "adam", "SGD": "sgd", "RMSprop": "rmsprop", "Adagrad": "adagrad"}
"""The kinds of optimizers, by the names that classes have for them."""

SLOTS: dict[str, dict[str, bool]] = {
    "adam": {"first_moment": False, "second_moment": True, "largest_second_moment": True},
    "sgd": {"momentum": False},
    "rmsprop": {"square_average": True, "momentum": False, "average_gradient": False},
    "adagrad": {"sum_of_squares": True},
}
"""The slots of each kind of optimizer, and whether they are squares."""

WORDS: dict[str, tuple[str, ...]] = {
    "adam": ("learning_rate", "beta_1", "beta_2", "epsilon", "weight_decay", "decay", "amsgrad", "maximize"),
    "sgd": ("learning_rate", "momentum", "nesterov", "dampening", "weight_decay", "decay", "maximize"),
    "rmsprop": ("learning_rate", "rho", "momentum", "centered", "epsilon", "weight_decay", "decay", "maximize"),
    "adagrad": ("learning_rate", "rate_decay", "epsilon", "weight_decay", "decay", "maximize"),
}
"""The hyperparameters of each kind. `decay` says how weight_decay acts: "coupled", added to the gradient, or
"decoupled", taken from the weight; `rate_decay` is torch's lr_decay."""

LACKING: dict[str, Any] = {"dampening": 0.0, "rate_decay": 0.0, "maximize": False}
"""The values, in the other frameworks, of hyperparameters that only torch has."""

OUTSIDE, INSIDE, UNCORRECTED = "sqrt(v) + epsilon", "sqrt(v + epsilon)", "sqrt(v) + epsilon before v is corrected"


def slots_needed(kind: str, settings: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the slots that an optimizer with these hyperparameters keeps."""
    asked = {
        "largest_second_moment": bool(settings.get("amsgrad")),
        "momentum": bool(settings.get("momentum")),
        "average_gradient": bool(settings.get("centered")),
    }
    return tuple(slot for slot in SLOTS[kind] if asked.get(slot, True))


@dataclass(frozen=True, eq=False)
class OptimizerState:
    """An optimizer and its state.

    framework  its framework
    title      its name in messages
    kind       "adam" (AdamW too), "sgd", "rmsprop" or "adagrad"
    names      the model's arrays that it trains, in its order
    slots      for each slot, the numbers by the array's name; as the framework stores them
    settings   for each array its hyperparameters, in our words; unstated ones are missing
    steps      for each array, how many steps were taken; None where this kind does not count
    groups     arrays that share their hyperparameters
    epsilon    where the update adds epsilon: OUTSIDE, INSIDE or UNCORRECTED; "" for an optimizer or a file that states no epsilon
    rated      slots that hold the learning rate as a factor, and the sign: -1 for minus the learning rate times the slot
    one_count  whether steps are counted once for all arrays
    own_pace   whether an array can have a separate learning rate
    other_settings  its other effects on gradients or weights, and how they are set
    notes      notes for the user
    pace       how its user gives an array a separate learning rate, if the state does not hold it
    decaying   the classes of this framework whose weight_decay acts in one way or the other, by `decay`, for an Adam
    lacks      hyperparameters that no optimizer of this framework has
    """

    framework: str
    title: str
    kind: str
    names: tuple[str, ...]
    slots: Mapping[str, Mapping[str, Array]]
    settings: Mapping[str, Mapping[str, Any]]
    steps: Mapping[str, int | None]
    groups: tuple[tuple[str, ...], ...] = ()
    epsilon: str = ""
    rated: Mapping[str, int] = field(default_factory=dict)
    one_count: bool = False
    own_pace: bool = False
    other_settings: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    pace: str = ""
    decaying: Mapping[str, str] = field(default_factory=dict)
    lacks: Collection[str] = tuple(LACKING)

    def replace(self, **changes: Any) -> OptimizerState:
        """Return this state with some fields changed."""
        return replace(self, **changes)


@dataclass(frozen=True)
class CallerFacts:
    """The caller's statements about an optimizer.

    parameters       the model's arrays in the order in which the optimizer numbers them
    hyperparameters  hyperparameters that its state does not hold, in our words
    """

    parameters: tuple[str, ...] | None = None
    hyperparameters: Mapping[str, Any] = field(default_factory=dict)


def listed(names: Iterable[str]) -> str:
    """Return names for a message, the first of many."""
    quoted = [repr(name) for name in names]
    return ", ".join(quoted[:4]) + (f" and {len(quoted) - 4} more" if len(quoted) > 4 else "")
