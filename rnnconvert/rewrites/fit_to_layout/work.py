"""A stack on its way into a layout, and the rewrites noted on the way."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from rnnconvert.core.errors import RefusedError
from rnnconvert.core.weights import Direction, Recurrent
from rnnconvert.language.layout import Layout
from rnnconvert.rewrites import WRITE_IDENTITY, Obstacle, Rewrite, Step, each


@dataclass
class Fitting:
    """A stack on its way into a layout.

    stack     its current form
    layout    where it goes
    accepted  what the caller takes over
    steps     the rewrites that were applied
    retyped   whether the caller chose the element type that is written
    """

    stack: Recurrent
    layout: Layout
    accepted: frozenset[str]
    steps: list[Step] = field(default_factory=list)
    retyped: bool = False

    @property
    def target(self) -> str:
        """The target's name in a refusal."""
        return self.layout.class_name or self.layout.name

    def done(self, rewrite: Rewrite[Any, ..., Any], detail: str, exact: bool | None = None) -> None:
        """Note a rewrite that was applied."""
        bit_exact = rewrite.bit_exact if exact is None else exact
        self.steps.append(Step(rewrite.name, self.stack.name, detail, bit_exact))

    def refuse(self, feature: str, reason: str, remedy: str = "") -> RefusedError:
        """Make the refusal of this stack."""
        return RefusedError(feature, self.target, reason, remedy, self.stack.name)

    def demand(self, obstacle: Obstacle | None) -> None:
        """Refuse where a rewrite does not apply. Raises RefusedError with the rewrite's own reason."""
        if obstacle is not None:
            raise self.refuse(obstacle.feature, obstacle.reason, obstacle.remedy)

    def every(self, test: Callable[[Direction], object]) -> list[Direction]:
        """Return the directions for which something is true."""
        return [direction for _, _, direction in self.stack.directions() if test(direction)]

    def change(self, directions: Iterable[Direction], change: Callable[[Direction], Direction]) -> None:
        """Change some of the stack's directions."""
        chosen = {id(direction) for direction in directions}
        self.stack = each(self.stack, lambda d: change(d) if id(d) in chosen else d)

    def write_identities(self, directions: Sequence[Direction]) -> None:
        """Write identity matrices for the given directions that read their input unweighted."""
        skipping = [direction for direction in directions if direction.skip_input]
        if skipping:
            self.change(skipping, WRITE_IDENTITY.apply)
            self.done(WRITE_IDENTITY, "identity matrices written for the input that was read unweighted")
