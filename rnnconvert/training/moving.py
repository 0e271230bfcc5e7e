"""The state that an optimizer keeps for every number of a weight moves the way that the weight moved.

A permutation, a transposition and a sign act on a gradient as on its weight: if w' = P w, then g' = P g, so averages of g move with P, and
averages of g * g move with P without its signs. This does not hold if a weight was computed from others, w' = A w: then g = A^T g', and an
optimizer that divides by the size of each gradient takes another step. So such layers have no rule.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from rnnconvert import rewrites
from rnnconvert.core.arrays import Array, Source
from rnnconvert.core.weights import BIAS_PARTS, Direction, Key, Layer, Recurrent
from rnnconvert.language.fitting import pattern
from rnnconvert.language.layout import Sizes
from rnnconvert.language.packing import unpack
from rnnconvert.models.filling import fill
from rnnconvert.models.model import Model, Unit
from rnnconvert.models.pairs import FilledPair
from rnnconvert.models.plan import TransplantPlan
from rnnconvert.rewrites import each
from rnnconvert.rewrites.fit_to_layout import ACCEPTS
from rnnconvert.training.state import SLOTS, OptimizerState

_MOVES = (
    rewrites.SUM_BIASES.name,
    rewrites.ZERO_BIASES.name,
    rewrites.FOLD_CONSTANTS.name,
    "change the element type",
    "zeros",
    "a neutral bias",
    "a neutral scale",
    "a neutral shift",
    "merge",
    "output_order",
    "reverse",
)
"""The rewrites under which a layer's state can move. Others have no rule."""

ALIKE = 1e-3
"""How far the states of two biases with one gradient may differ, as a part of the largest: they sum it in other orders."""


@dataclass
class MovedState:
    """State on its way into the target.

    slots     for each slot, the numbers by the target's names
    origin    for each of the target's arrays, the source's arrays whose state it takes
    new       arrays of the target that nothing in the source is the state of
    partly    arrays of the target of which some numbers are
    summed    arrays of the target that were two in the source, and move half as far in a step
    mixed     arrays of the target of which some numbers are so, and others not
    ruleless  layers without an exact rule, and why
    problems  what does not fit, in words
    """

    slots: dict[str, dict[str, Array]] = field(default_factory=dict)
    origin: dict[str, tuple[str, ...]] = field(default_factory=dict)
    new: list[str] = field(default_factory=list)
    partly: list[str] = field(default_factory=list)
    summed: list[str] = field(default_factory=list)
    mixed: list[str] = field(default_factory=list)
    ruleless: dict[str, str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


def move(plan: TransplantPlan, state: OptimizerState, wanted: Collection[str]) -> MovedState:
    """Return the source's state by the target's names.

    plan    how the weights moved
    state   of the source
    wanted  the target's arrays whose state is wanted
    """
    moved = MovedState()
    pairs = [pair for pair in plan.pairs if set(pair.target.arrays) & set(wanted)]
    pairs = [pair for pair in pairs if _has_rule(pair, plan, state, moved)]
    _untied(pairs, plan, moved)
    _trace(pairs, plan, moved, wanted)
    for slot, squares in SLOTS[state.kind].items():
        if slot not in state.slots:
            continue
        numbers = {
            name: state.slots[slot].get(plan.source.ties.get(name, name), np.zeros(array.shape, array.dtype))
            for name, array in plan.source.arrays.items()
        }
        filled = _filled(pairs, plan, numbers, moved)
        moved.slots[slot] = {name: np.abs(array) if squares else array for name, array in filled.items() if name in wanted}
        for name in moved.new:
            moved.slots[slot][name] = np.zeros(plan.target.arrays[name].shape, plan.target.arrays[name].dtype)
    return moved


def _has_rule(pair: FilledPair, plan: TransplantPlan, state: OptimizerState, moved: MovedState) -> bool:
    """Return whether a layer's state can move; if not, note why."""
    name = pair.target.name
    if pair.source.stack is not None and not pair.source.groups:
        moved.ruleless[name] = "the arrays of the source's layer cannot be seen one by one"
        return False
    others = [step.detail for step in plan.steps if step.layer == name and step.rewrite not in _MOVES]
    if others:
        moved.ruleless[name] = (
            f"its weights are computed from the source's ({others[0]}), and the steps of one cannot be computed from those of the other"
        )
        return False
    if _summed(pair):
        return _equally_trained(pair, state, moved)
    return True


def _summed(pair: FilledPair) -> tuple[str, ...]:
    """Return the gates for which the source has two biases and the target one."""
    ours, theirs = pair.target.stack, pair.source.stack
    if ours is None or theirs is None or theirs.first.biases != "both" or ours.first.biases == "none":
        return ()
    has = {key for group in pair.target.groups for key in group.layout.keys} if ours.first.biases == "both" else set()
    source_keys = {key for group in pair.source.groups for key in group.layout.keys}
    gates = theirs.first.cell.gates
    return tuple(gate for gate in gates if ("recurrent_bias", gate) in source_keys - has)


def _equally_trained(pair: FilledPair, state: OptimizerState, moved: MovedState) -> bool:
    """Return whether two biases that are summed have the same state, as they do if both were always trained alike."""
    for slot, numbers in state.slots.items():
        if not set(pair.source.arrays) <= set(numbers):
            continue
        stack = _rebuilt(pair.source, numbers)
        for _, _, direction in stack.directions():
            for gate in _summed(pair):
                first, second = (np.asarray(direction.arrays[part, gate]) for part in BIAS_PARTS)
                apart = float(np.max(np.abs(first - second), initial=0.0))
                if not apart <= ALIKE * float(np.max(np.abs(first), initial=0.0)):
                    moved.ruleless[pair.target.name] = (
                        f"its two biases are one in the target, but their {_words(slot)} differs (gate {gate}, by "
                        f"{apart:.3g}), which it would not if both were trained alike"
                    )
                    return False
    return True


def _untied(pairs: list[FilledPair], plan: TransplantPlan, moved: MovedState) -> None:
    """Note weights that are one array in the source and two in the target: they get two gradients in place of their sum."""
    places: dict[str, list[tuple[str, str]]] = {}
    for pair in pairs:
        for name in pair.source.arrays:
            places.setdefault(plan.source.ties.get(name, name), []).append((pair.target.name, name))
    for places_of in places.values():
        layers = [layer for layer, _ in places_of]
        tied = set(plan.target.ties) | set(plan.target.ties.values())
        apart = [layer for layer in layers if not set(_unit(plan.target, layer).arrays) & tied]
        if len(set(layers)) > 1 and apart:
            text = f"{' and '.join(layers)} are one array in the source (tied weights) but two in the target, and only the sum of "
            moved.ruleless[apart[-1]] = text + "their gradients is known; tie them in the target"
    pairs[:] = [candidate for candidate in pairs if candidate.target.name not in moved.ruleless]


def _unit(model: Model, name: str) -> Unit:
    unit = model.unit(name)
    assert unit is not None
    return unit


def _trace(pairs: list[FilledPair], plan: TransplantPlan, moved: MovedState, wanted: Collection[str]) -> None:
    """Find which of the source's arrays each number of the target comes from: numbered arrays move as the weights did."""
    names = list(plan.source.arrays)
    number = {name: float(place + 1) for place, name in enumerate(names)}
    ties = plan.source.ties
    numbers = {name: np.full(a.shape, number[ties.get(name, name)]) for name, a in plan.source.arrays.items()}
    double = plan.target.replace(arrays={name: np.zeros(a.shape) for name, a in plan.target.arrays.items()})
    filled = _filled(pairs, replace(plan, target=double), numbers, moved)
    for name in (name for name in filled if name in wanted):
        marks = np.unique(np.abs(filled[name])).astype(int)
        moved.origin[name] = tuple(names[place - 1] for place in marks if place)
        if not moved.origin[name]:
            moved.new.append(name)
        elif 0 in marks:
            moved.partly.append(name)
    marked = [pair for pair in pairs if _summed(pair)]
    none = {name: np.zeros(array.shape) for name, array in numbers.items()}
    ones = _filled(marked, replace(plan, target=double), none, moved, True)
    for marked_pair in marked:
        biases = [name for name in marked_pair.source.arrays if _is_bias(marked_pair.source, name)]
        for name in (name for name in marked_pair.target.arrays if name in wanted and ones[name].any()):
            (moved.summed if ones[name].all() else moved.mixed).append(name)
            moved.origin[name] = tuple(dict.fromkeys([*moved.origin[name], *biases]))


def _is_bias(unit: Unit, name: str) -> bool:
    """Return whether an array of a recurrent layer holds only biases."""
    return any(
        tensor.part_names <= set(BIAS_PARTS) and full == name and pattern(group.layout, tensor).fullmatch(local)
        for group in unit.groups
        for local, full in group.names.items()
        for tensor in group.layout.tensors
    )


def _filled(
    pairs: list[FilledPair], plan: TransplantPlan, numbers: Mapping[str, Array], moved: MovedState, mark: bool = False
) -> dict[str, Array]:
    """Put numbers by the source's names into the places that the weights took.

    mark  put ones in place of the biases that are summed
    """
    changed = []
    for pair in pairs:
        unit = pair.source
        if unit.stack is not None:
            stack = _rebuilt(unit, numbers)
            if gates := _summed(pair):
                stack = each(stack, functools.partial(_with_first_alone, gates=gates, mark=mark))
            unit = unit.replace(stack=_with_constants(stack, pair.target))
        changed.append(replace(pair, source=unit))
    source = plan.source.replace(arrays=numbers, units=tuple(changed_pair.source for changed_pair in changed))
    filling = fill(changed, plan.target, source, tuple(ACCEPTS), plan.orders)
    moved.problems += [problem for problem in filling.problems if problem not in moved.problems]
    return {name: array if filling.made_of[name] else np.zeros_like(array) for name, array in filling.arrays.items()}


def _rebuilt(unit: Unit, numbers: Mapping[str, Array]) -> Recurrent:
    """Return a recurrent layer with other numbers in its arrays."""
    stack = unit.stack
    assert stack is not None
    layers = [list(layer.directions) for layer in stack.layers]
    for group in unit.groups:
        directions = layers[group.layer]
        sizes = Sizes.of(Recurrent(unit.name, (Layer(tuple(directions[number] for number in group.directions)),)))
        unpacked = unpack(group.layout, sizes, {local: numbers[full] for local, full in group.names.items()})
        for place, number in enumerate(group.directions):
            directions[number] = directions[number].replace(arrays=unpacked[0, place])
    rebuilt = (Layer(tuple(ways), layer.merge) for ways, layer in zip(layers, stack.layers, strict=True))
    return stack.replace(layers=tuple(rebuilt), unconvertible=())


def _with_first_alone(direction: Direction, gates: tuple[str, ...], mark: bool) -> Direction:
    """Return a direction whose second bias is zero in some gates, so that adding the two gives the first."""
    first = {gate: np.asarray(direction.arrays["input_bias", gate]) for gate in gates}
    changed: dict[Key, Source | None] = {("recurrent_bias", gate): np.zeros_like(a) for gate, a in first.items()}
    if mark:
        changed |= {("input_bias", gate): np.ones_like(array) for gate, array in first.items()}
    return direction.with_arrays(changed)


def _with_constants(stack: Recurrent, target: Unit) -> Recurrent:
    """Return the stack with the target's run-time constants: what is added to a bias is not added to its state."""
    assert target.stack is not None
    layers = []
    for layer, wanted in zip(stack.layers, target.stack.layers, strict=True):
        pairs = zip(layer.directions, wanted.directions, strict=True)
        changed = tuple(direction.replace(cell=direction.cell.replace(constants=other.cell.constants)) for direction, other in pairs)
        layers.append(Layer(changed, layer.merge))
    return stack.replace(layers=tuple(layers))


def _words(slot: str) -> str:
    return slot.replace("_", " ")
