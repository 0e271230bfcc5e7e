"""The report of moving an optimizer's state, with notes for the user."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rnnconvert.core.claims import filled
from rnnconvert.models.differences import SettingDifference
from rnnconvert.models.plan import TransplantPlan
from rnnconvert.training.comparing import FIXED
from rnnconvert.training.moving import MovedState, move
from rnnconvert.training.state import OptimizerState

ACCEPTS = {
    "biases": "a bias that is two in the source moves half as far in a step as their sum did",
    "no_rule": "layers whose state has no exact rule begin without state",
    "new": "weights that the source does not train begin without state",
    "untrained": "weights that the source trains stay unchanged in the target",
    "steps": "weights that took fewer steps than others go on with the count of all",
    "epsilon": "steps differ by where epsilon stands",
    "clipping": "you clip gradients yourself, or stop doing so",
    "ema": "the average of the weights is not moved",
    "accumulation": "you add up gradients yourself, or stop doing so",
}
"""The differences that a caller may take over, in addition to hyperparameters by name, and their meaning."""


@dataclass(frozen=True)
class MovedOptimizer:
    """The report of filling an optimizer.

    target, source  their names
    kind            "adam", "sgd", "rmsprop" or "adagrad"
    filled          the target's arrays whose state was filled, and the source's arrays whose state it was
    frozen          the target's arrays that stay fixed because the source lacks them
    fresh           the target's arrays that begin without state
    left            the source's arrays whose state went nowhere
    steps           how many steps were taken; None if they are not counted
    differences     hyperparameters that differ
    notes           notes for the user
    optimizer       the optimizer that was handed in; of optax, the new state
    """

    target: str
    source: str
    kind: str
    filled: dict[str, tuple[str, ...]]
    frozen: tuple[str, ...]
    fresh: tuple[str, ...]
    left: tuple[str, ...]
    steps: int | None
    differences: tuple[SettingDifference, ...]
    notes: tuple[str, ...]
    optimizer: Any = None

    def __str__(self) -> str:
        count = "" if self.steps is None else f" after {self.steps} steps"
        lines = [f"{filled(self.target, self.source, self.filled)}{count}: the state of {len(self.filled)} weights"]
        lines += [f"fixed, because the source has none: {name}" for name in self.frozen]
        lines += [f"begins without state: {name}" for name in self.fresh]
        lines += [f"state unused in the source: {name}" for name in self.left]
        lines += [f"difference: {difference}" for difference in self.differences]
        lines += [f"note: {note}" for note in self.notes]
        return "\n".join(lines)


def pace_of(target: OptimizerState) -> str:
    if target.pace:
        return f"; twice the learning rate for it does: {target.pace}"
    return f", and {target.framework} has one learning rate for all weights"


def settable(
    difference: SettingDifference,
    group: Sequence[str],
    wanted: Mapping[str, Mapping[str, Any]],
    settings_by_name: Mapping[str, Mapping[str, Any]],
) -> bool:
    """Return whether a hyperparameter can be set: all arrays that share it have the same value now, and want the same."""
    fixed = difference.option in FIXED or (difference.option == "momentum" and bool(difference.target) != bool(difference.source))
    want = {repr(wanted[name].get(difference.option)) for name in group if name in wanted}
    return not fixed and len(want) == 1 and len({repr(settings_by_name[name].get(difference.option)) for name in group}) == 1


def moved_state(plan: TransplantPlan, source: OptimizerState) -> MovedState:
    """Return the source's state by the target's names; arrays that share their memory go by the first of their names."""
    filled = {name for pair in plan.pairs for name in pair.target.arrays}
    moved = move(plan, source, filled)
    for name, first in plan.target.ties.items():
        if name in moved.origin and first not in moved.origin:
            moved.origin[first] = moved.origin[name]
            for numbers in moved.slots.values():
                numbers[first] = numbers[name]
    return moved
