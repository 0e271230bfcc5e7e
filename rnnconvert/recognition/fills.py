"""The values of a Loop's or Scan's masked step at steps that do not count."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from rnnconvert.graphs.program.evaluate import UnmatchedError
from rnnconvert.graphs.program.scopes import Scope
from rnnconvert.graphs.program.spread import everywhere
from rnnconvert.recognition import masks as masks
from rnnconvert.recognition.masks import same_numbers
from rnnconvert.recognition.recognised import Use

State = tuple[str, str, str, str]
"""A state: its name in the body, what it becomes there, what it begins with, and the node's final output."""


class Fills:
    """The values of a masked step at steps that do not count.

    hidden  the states of numbers
    state   the cell's hidden state, with its new value if the step counts
    """

    def __init__(self, scope: Scope, inner: Scope, truth: masks.Truth, hidden: Sequence[State], state: State) -> None:
        self.scope, self.inner, self.truth, self.hidden, self.state = scope, inner, truth, hidden, state

    def of(self, value: str) -> Literal["state", "output", "zero"] | None:
        """Return the stand-in, at steps that do not count, for a value of the body that is otherwise the new state."""
        value = same_numbers(self.inner, value)
        for name, after, _, _ in self.hidden:
            if same_numbers(self.inner, after) == value and name == self.state[0]:
                return "state"
        choice = masks.choice(self.inner, value)
        if choice is None or choice.truth.value != self.truth.value:
            return None
        new, old = (choice.new, choice.old) if choice.truth.negated == self.truth.negated else (choice.old, choice.new)
        if new != same_numbers(self.inner, self.state[1]):
            return None
        for name, after, first, _ in self.hidden:
            if name == old and same_numbers(self.inner, after) == value and everywhere(self.scope, first) == 0:
                return "output"
        return "zero" if everywhere(self.inner, old) == 0 else None

    def zeros(self, gathered: Sequence[tuple[str, str, int, bool]]) -> list[str]:
        """Return the values around the loop that are zero for every sequence: what copies of the output begin with, or become.

        gathered  as in `uses`
        """
        zeros = [first for name, _, first, _ in self.hidden if name != self.state[0] and everywhere(self.scope, first) == 0]
        for value in [*(after for _, after, _, _ in self.hidden), *(entry[0] for entry in gathered)]:
            choice = masks.choice(self.inner, value)
            for name in () if choice is None else (choice.new, choice.old):
                where, resolved = self.inner.resolve(name)
                if where is not self.inner and everywhere(where, resolved) == 0:
                    zeros.append(resolved)
        return list(dict.fromkeys(zeros))

    def check(self, hidden: Sequence[State], becoming: Mapping[str, str], memory: State | None) -> None:
        """Raise UnmatchedError for a state of numbers that is neither the cell's nor a copy of its output."""
        for name, after, _, _ in hidden:
            is_state = name == self.state[0] or (memory is not None and name == memory[0])
            if self.of(after) is None and not (is_state and name in becoming):
                raise UnmatchedError(f"it carries {name!r} besides the states of its cell")

    def uses(
        self, states: Sequence[State], gathered: Sequence[tuple[str, str, int, bool]], used: set[str], memory: State | None
    ) -> list[Use]:
        """Return the outputs of a loop that something reads. Raises UnmatchedError for what the operator does not give.

        gathered  what the body gives at each step: its value, the loop's output, the axis, and whether it is put before the others
        """
        uses = []
        for name, after, _, final in states:
            if final not in used:
                continue
            fill = self.of(after)
            if memory is not None and name == memory[0]:
                uses.append(Use(final, "cell"))
            elif fill in ("state", "output"):
                uses.append(Use(final, "hidden", fill=fill))
            else:
                raise UnmatchedError(f"{final!r}, which is not a state of its cell, is used behind it")
        for value, final, axis, _ in gathered:
            if final not in used:
                continue
            fill = self.of(value)
            if fill is None:
                raise UnmatchedError(f"{final!r} collects something else than its state at each step")
            uses.append(Use(final, "sequence", axis, fill=fill))
        return uses
