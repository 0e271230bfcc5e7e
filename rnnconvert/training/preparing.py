"""From the source's state to the target's: what moves, what does not, and what a user should know."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rnnconvert.core.arrays import Array
from rnnconvert.models.differences import SettingDifference
from rnnconvert.models.plan import TransplantPlan
from rnnconvert.training.comparing import NOTICED, epsilon_effect, unlike, wanted_settings
from rnnconvert.training.moved import ACCEPTS, MovedOptimizer, moved_state, pace_of, settable
from rnnconvert.training.moving import MovedState
from rnnconvert.training.state import INSIDE, SLOTS, WORDS, OptimizerState, listed


class StateTransfer:
    """A state on its way into an optimizer."""

    def __init__(
        self, plan: TransplantPlan, source: OptimizerState, target: OptimizerState, accepted: frozenset[str], setting: bool, spelled: Any
    ) -> None:
        self.plan, self.source, self.target = plan, source, target
        self.accepted, self.setting, self.spelled = accepted, setting, spelled
        self.problems: list[str] = []
        self.acceptable: list[str] = []
        self.notes: list[str] = [*source.notes, *target.notes]
        self.differences: list[SettingDifference] = []
        self.frozen: list[str] = []
        self.fresh: list[str] = []
        self.moved = MovedState()
        self.count: int | None = None

    def prepared(self) -> OptimizerState:
        """Return the target's state as it would be; what stands in the way is in `problems`, all of it."""
        self.moved = moved_state(self.plan, self.source)
        self.problems += [f"the state cannot follow the weights: {problem}" for problem in self.moved.problems]
        self._rules()
        trained = self._trained()
        wanted = wanted_settings(self.source, self.target, {n: self.moved.origin[n] for n in trained}, self.problems)
        settings = self._settings(wanted)
        steps = self._steps(trained)
        slots = self._slots(trained, settings)
        self._epsilons(trained, settings, steps)
        self._compare_other_settings()
        self._unsaid()
        together = list(dict.fromkeys(self.acceptable))
        if len(together) > 1:
            self.problems.append(f"to take these over together: accept={together}")
        names = (*trained, *self.fresh)
        unfilled = [name for name in self.target.names if name not in names and name not in self.frozen]
        if unfilled:
            self.notes.append(f"the target trains {listed(unfilled)} too, whose weights were not filled: their state stays")
        return self.target.replace(
            names=names, slots=slots, settings={name: settings[name] for name in names}, steps={name: steps.get(name) for name in names}
        )

    def _object(self, word: str, text: str) -> None:
        """Note a problem, or a remark if the caller takes it over."""
        if word in self.accepted:
            self.notes.append(f"taken over: {text}")
        else:
            self.acceptable.append(word)
            self.problems.append(f"{text}. To go on: accept=[{word!r}] ({ACCEPTS[word]})")

    def _rules(self) -> None:
        """Object to layers whose state has no rule, and to biases whose rule changes the step."""
        for layer, why in self.moved.ruleless.items():
            self._object("no_rule", f"there is no exact rule for the state of {layer!r}: {why}")
            unit = self.plan.target.unit(layer)
            assert unit is not None
            self.fresh += [name for name in unit.arrays if name in self.target.names]
        for names, pace in ((self.moved.summed, pace_of(self.target)), (self.moved.mixed, _MIXED)):
            if there := [name for name in names if name in self.target.names]:
                self._object(
                    "biases",
                    f"{listed(there)} of the target is the sum of two biases of the source, which moves twice as far in a step as one bias "
                    f"does, whatever its state{pace}",
                )

    def _trained(self) -> list[str]:
        """Return the target's arrays whose state is filled."""
        origin, source, target = self.moved.origin, set(self.source.names), set(self.target.names)
        ties = self.plan.source.ties
        trains = {name: [o for o in made_of if ties.get(o, o) in source] for name, made_of in origin.items()}
        idle = [name for name in origin if trains[name] and name not in target and name not in self.plan.target.ties]
        if idle:
            self._object("untrained", f"the source trains what {listed(idle)} is made from, but the target's optimizer does not")
        trained: list[str] = []
        for name in (name for name in self.target.names if name in origin):
            if name in self.moved.new:
                self._new(name)
            elif name in self.moved.partly or len(trains[name]) < len(origin[name]):
                part = "part of it" if trains[name] else "what it is made from"
                self._object("new", f"the target trains {name!r}, but {part} is not trained in the source")
                (trained if trains[name] else self.fresh).append(name)
            else:
                trained.append(name)
        return trained

    def _new(self, name: str) -> None:
        if self.target.own_pace:
            self.frozen.append(name)
            self.notes.append(
                f"{name} stays fixed, in a group with a learning rate of zero: the source has no such weight, and "
                "trained it would move the function twice"
            )
        else:
            self._object(
                "new", f"the target trains {name!r}, which the source does not have: its step is the target's alone; make it not trainable"
            )
            self.fresh.append(name)

    def _settings(self, wanted: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
        """Return the target's hyperparameters as they would be."""
        changed = {name: dict(settings) for name, settings in self.target.settings.items()}
        for difference, names in unlike(self.source, self.target, wanted, self.spelled):
            group = [name for other in self.target.groups if set(names) & set(other) for name in other]
            if self.setting and settable(difference, group, wanted, changed):
                for name in group:
                    changed[name][difference.option] = difference.source
                self.notes.append(
                    f"{difference.option} of {difference.layer} was {difference.target}, and is now the source's {difference.source}"
                )
                continue
            self.differences.append(difference)
            if difference.option not in self.accepted:
                self.problems.append(str(difference))
        return changed

    def _steps(self, trained: Sequence[str]) -> dict[str, int | None]:
        """Return how many steps each of the target's arrays has behind it."""
        ties = self.plan.source.ties
        of: dict[str, int | None] = {}
        counts: dict[int, list[str]] = {}
        for name in trained:
            step_counts = [self.source.steps.get(ties.get(o, o)) for o in self.moved.origin[name]]
            present = [count for count in step_counts if count is not None]
            of[name] = max(present) if present else None
            for count in set(present):
                counts.setdefault(count, []).append(name)
            if len(set(present)) > 1 and self._counting() and not self.target.one_count:
                self._object("steps", f"the parts of {name!r} took {' and '.join(map(str, sorted(set(present))))} steps in the source")
        self.count = max(counts, default=None)
        if len(counts) > 1 and self.target.one_count:
            fewest = min(counts)
            if self._counting():
                self._object(
                    "steps",
                    f"{listed(counts[fewest])} took {fewest} steps in the source and others {self.count}, but the target counts "
                    "once for all",
                )
            of = {name: self.count for name in of}
        if self.count is None and any(count is not None for count in self.target.steps.values()):
            self.notes.append("the source does not count steps, so the target's count stays unchanged; only schedules use it")
        return of

    def _counting(self) -> bool:
        """Return whether a step depends on how many there were."""
        rates = [settings.get("rate_decay") for settings in self.source.settings.values()]
        return self.source.kind == "adam" or any(rates)

    def _slots(self, trained: Sequence[str], settings: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Array]]:
        """Return the numbers as the target stores them."""
        slots: dict[str, dict[str, Array]] = {}
        for slot in SLOTS[self.source.kind]:
            if slot not in self.target.slots:
                word = _DECIDES.get(slot, "")
                if slot in self.source.slots and word not in self.accepted and word not in {d.option for d in self.differences}:
                    self.problems.append(
                        f"the source keeps a {slot.replace('_', ' ')} but the target does not; make the target with {word}"
                    )
                continue
            there = self.moved.slots.get(slot, {})
            slots[slot] = {
                name: _rated(self, slot, name, there[name], settings[name]) if name in there else self._zeros(name) for name in trained
            }
            for name in self.fresh:
                slots[slot][name] = self._zeros(name)
        return slots

    def _zeros(self, name: str) -> Array:
        array = self.plan.target.arrays[name]
        return np.zeros(array.shape, array.dtype)

    def _epsilons(self, trained: Sequence[str], settings: Mapping[str, Mapping[str, Any]], steps: Mapping[str, int | None]) -> None:
        """Say how far steps differ because epsilon stands elsewhere."""
        if self.source.epsilon == self.target.epsilon:
            return
        if not self.source.epsilon or not self.target.epsilon:
            place = self.source.epsilon or self.target.epsilon
            silent = self.target if self.source.epsilon else self.source
            self.notes.append(
                f"one side divides by {place}, and the state of {silent.framework} does not say where its epsilon stands: see that it "
                f"is made with eps_in_sqrt={place == INSIDE}"
            )
            return
        epsilons: dict[str, tuple[float, float]] = {}
        for name in trained:
            theirs, ours = self.source.settings[self.first(name)].get("epsilon"), settings[name].get("epsilon")
            has_state = bool(self.moved.slots) and all(name in slots for slots in self.moved.slots.values())
            if theirs is not None and ours is not None and has_state:
                epsilons[name] = (theirs, ours)
        if not epsilons:
            self.notes.append("one side does not state its epsilon, so its effect on steps is unknown")
            return
        counted = {name: steps.get(name) or 0 for name in epsilons}
        effect = epsilon_effect(self.source, self.target, self.moved.slots, counted, settings, epsilons)
        name = next(iter(epsilons))
        text = (
            f"the source divides by {self.source.epsilon} (epsilon={epsilons[name][0]:g}) and the target by {self.target.epsilon} "
            f"(epsilon={epsilons[name][1]:g}), and no constant makes these equal; with gradients like those that made "
            f"this state a step differs by up to {effect:.2g} of the learning rate, with much smaller ones by more"
        )
        if effect > NOTICED:
            self._object("epsilon", text)
        else:
            self.notes.append(text)

    def first(self, name: str) -> str:
        """Return the first of the source's arrays that one of the target is made from."""
        o = self.moved.origin[name][0]
        return self.plan.source.ties.get(o, o)

    def _compare_other_settings(self) -> None:
        """Object to what only one of the optimizers does in addition."""
        ours, theirs = self.target.other_settings, self.source.other_settings
        for word in dict.fromkeys([*theirs, *ours]):
            if ours.get(word) != theirs.get(word):
                self._object(
                    word,
                    f"{_OTHER_SETTINGS[word]}: {theirs.get(word, 'not')} in the source and "
                    f"{ours.get(word, 'not')} in the target's optimizer",
                )

    def _unsaid(self) -> None:
        """Note hyperparameters that an optimizer's state does not hold."""
        words = WORDS[self.source.kind]
        for state, other in ((self.target, self.source), (self.source, self.target)):
            settings = next(iter(state.settings.values()), {})
            missing = [word for word in words if word not in settings]
            other_settings = next(iter(other.settings.values()), {})
            stated = ", ".join(self.spelled(word, other_settings[word]) for word in missing if other_settings.get(word) and word != "decay")
            if stated:
                self.notes.append(f"{state.title} does not hold {stated}, which were not compared: make it with them")

    def report(self, optimizer: Any) -> MovedOptimizer:
        """Report what was done."""
        trained = {name for name in self.target.names if name in self.moved.origin and name not in {*self.fresh, *self.frozen}}
        used = {self.plan.source.ties.get(o, o) for name in trained for o in self.moved.origin[name]}
        return MovedOptimizer(
            self.target.title,
            self.source.title,
            self.source.kind,
            {name: self.moved.origin[name] for name in self.target.names if name in trained},
            tuple(self.frozen),
            tuple(self.fresh),
            tuple(name for name in self.source.names if name not in used),
            self.count,
            tuple(self.differences),
            tuple(self.notes),
            optimizer,
        )


_DECIDES = {"momentum": "momentum", "largest_second_moment": "amsgrad", "average_gradient": "centered"}
"""The hyperparameters that decide whether a slot is kept."""

_OTHER_SETTINGS = {
    "clipping": "gradients are clipped (where no optimizer does it, your own loop has to)",
    "ema": "an average of the weights is kept",
    "accumulation": "gradients of several batches are added up",
}


_MIXED = ", and other gates in the same array have two biases in the target too, so that they need the usual step"


def _rated(work: StateTransfer, slot: str, name: str, array: Array, settings: Mapping[str, Any]) -> Array:
    """Return a slot's numbers with the learning rate in them as in the target."""
    theirs, ours = work.source.rated.get(slot, 0), work.target.rated.get(slot, 0)
    if theirs == ours:
        return array
    rate = settings.get("learning_rate", work.source.settings[work.first(name)].get("learning_rate"))
    if not rate:
        work.problems.append(
            f"the {slot} of {name!r} holds the learning rate on one side, and it is "
            f"{'zero' if rate == 0 else 'not stated. Give it with hyperparameters={...}'}"
        )
        return array
    pace = 2.0 if work.target.pace and name in work.moved.summed else 1.0  # as docs/training.md has it
    factor = (ours * rate * pace if ours else 1.0) / (theirs * rate if theirs else 1.0)
    return np.asarray((array.astype(np.float64) * factor).astype(array.dtype))
