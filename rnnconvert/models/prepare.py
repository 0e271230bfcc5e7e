"""A transplant prepared: everything paired, computed and checked, and nothing changed; what a user could say of layers that do not pair."""

from __future__ import annotations

import difflib
import itertools
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from rnnconvert.core.arrays import Array
from rnnconvert.core.errors import TransplantError, UsageError
from rnnconvert.core.printable import quoted
from rnnconvert.core.remedies import Flag, FlattenAs
from rnnconvert.core.weights import Recurrent
from rnnconvert.files.options import BACKWARDS
from rnnconvert.language.surroundings import equal
from rnnconvert.models.differences import SettingDifference, differences, unconvertible, unsaid
from rnnconvert.models.filling import Filling, fill
from rnnconvert.models.flattening import NONE, Flatten, Flattening, orders
from rnnconvert.models.mapping import mapped
from rnnconvert.models.model import Model, Unit
from rnnconvert.models.names import listing
from rnnconvert.models.pairing import pair
from rnnconvert.models.pairs import Choice, FilledPair, Pairing
from rnnconvert.models.plan import TransplantPlan
from rnnconvert.models.report import FilledLayer, Transplant
from rnnconvert.rewrites.fit_to_layout import ACCEPTS

PathLike = str | os.PathLike[str]

ALL = "all"
"""The word for every difference of settings among those that the caller takes over."""


_INLINE = 16
"""The most numbers of a constant that the code of a model states itself."""


@dataclass(frozen=True)
class CallerChoices:
    """The decisions of the caller.

    mapping      a mapping file, or target names and the source names that fill them
    strict       whether every weight of both models must have its place
    accept       differences that the caller takes over: options of layers (batch_first, padding ...), and
                 rnnconvert.rewrites.fit_to_layout.ACCEPTS
    flatten      how a side that does not show it flattens a convolution's output: {"target": order}, {"source": order} or both; "none" if
                 nothing is flattened
    trust_order  whether layers that fit one another in several ways are paired in order
    """

    mapping: PathLike | Mapping[str, str] | None = None
    strict: bool = True
    accept: tuple[str, ...] = ()
    flatten: Flatten = None
    trust_order: bool = False


def prepare(target: Model, source: Model, wishes: CallerChoices) -> tuple[Transplant, dict[str, Array]]:
    """Return the transplant that would be done, and the arrays that would be filled.

    Raises TransplantError with everything that does not fit.
    """
    mapping = mapped(wishes.mapping)
    trusted = wishes.trust_order or mapping.trust_order
    pairing = pair(target, source, mapping.layers, mapping.leave, trusted, "as the mapping says")
    accepted = (*wishes.accept, *mapping.accept)
    if ALL in accepted:
        pairing = replace(pairing, pairs=[_around_alike(entry) for entry in pairing.pairs])
        taken_over = [word for word in ("initial_state", "unaccounted") if word not in accepted]
    else:
        taken_over = []
    flattening = Flattening(target, source, _flatten(wishes.flatten, mapping.flatten))
    filling = fill(pairing.pairs, target, source, (*accepted, *taken_over), flattening)
    unlike = [difference for pair_ in pairing.pairs for difference in differences(pair_, target, source)]
    problems = [*filling.problems, *_halves(pairing, target, filling)]
    problems += [
        str(difference) for difference in unlike if difference.matters == "function" and not {difference.option, ALL} & set(accepted)
    ]
    if wishes.strict:
        named = {word for words in mapping.layers for word in (words, *words.split(" + "))}
        by_name = ALL in accepted and all(entry.target.name in named for entry in pairing.pairs)
        problems += unsettled(pairing, target, source, _INLINE if ALL in accepted else 0, by_name)
    if problems:
        raise TransplantError(target.title, source.title, problems)
    _decided(accepted, filling, unlike, flattening)
    plan = TransplantPlan(target, source, tuple(pairing.pairs), tuple(filling.steps), flattening)
    return _report(plan, pairing, filling, unlike, trusted), filling.arrays


def _around_alike(matched: FilledPair) -> FilledPair:
    """Return a pair whose source is taken to read, to order and to join its outputs as the target does: the caller's code sees to it."""
    ours, theirs = matched.target.stack, matched.source.stack
    if ours is None or theirs is None or ours.num_directions != theirs.num_directions or ours.num_layers != theirs.num_layers:
        return matched
    layers = [
        replace(
            layer,
            merge=wanted.merge,
            directions=tuple(way.replace(reverse=like.reverse) for way, like in zip(layer.directions, wanted.directions, strict=True)),
        )
        for layer, wanted in zip(theirs.layers, ours.layers, strict=True)
    ]
    stack = theirs.replace(layers=tuple(layers), output_order=ours.output_order)
    return replace(matched, source=matched.source.replace(stack=stack))


def _flatten(stated: Flatten, mapped_: Flatten) -> Flatten:
    """Return the order of flattening that the call or the mapping file states. Raises UsageError if both do and differ."""
    if stated is not None and mapped_ is not None and (orders(stated), stated == NONE) != (orders(mapped_), mapped_ == NONE):
        raise UsageError(f"flatten is {stated!r} in the call and {mapped_!r} in the mapping file. Give it once")
    return mapped_ if stated is None else stated


def _decided(accepted: Iterable[str], filling: Filling, unlike: Iterable[SettingDifference], flattening: Flattening) -> None:
    """Raise UsageError for a choice of the caller that no layer needed: it decides nothing, and hides a mistake."""
    mixed_directions = {difference.option for difference in unlike}
    decided = mixed_directions | {step.rewrite for step in filling.steps if step.rewrite in ACCEPTS}
    for name in accepted:
        if name not in (*decided, ALL):
            near = difflib.get_close_matches(name, decided, 1)
            if near:
                hint = f"Did you mean {near[0]!r}? "
            elif decided:
                hint = f"These differ: {', '.join(sorted(decided))}. "
            else:
                hint = ""
            raise UsageError(f"{Flag('accept', name)} decides nothing: no layer differs in it. {hint}Leave it out.")
    for side in flattening.unused():
        flag = Flag("flatten", NONE) if side == NONE else FlattenAs(**{side: flattening.stated[side]})
        raise UsageError(
            f"{flag} decides nothing: no layer reads or gives the values of a flattened convolution"
            f"{'' if side == NONE else f' whose order in the {side} is asked for'}. Leave it out."
        )


def _halves(pairing: Pairing, target: Model, filling: Filling) -> list[str]:
    """Return problems with unfilled recurrent layers that would change in part because they share arrays with filled ones."""
    filled = target.memory(filling.arrays)
    problems = []
    paired = {filled_pair.target.name for filled_pair in pairing.pairs}
    for unit in (unit for unit in target.units if unit.name not in paired and not unit.alias):
        members = target.memory(unit.arrays)
        shared = sorted(
            name for name in members & filled if name in filling.arrays and not equal(filling.arrays[name], np.asarray(target.arrays[name]))
        )
        if unit.stack is not None and shared and not members <= filled:
            problems.append(
                f"{quoted(unit.name)} of the target is not filled, but would change: {', '.join(map(repr, shared))} is shared with a "
                "layer that is; fill both, or give each arrays of its own in the target"
            )
    return problems


def _report(plan: TransplantPlan, pairing: Pairing, filling: Filling, unlike: list[SettingDifference], trusted: bool) -> Transplant:
    target, source = plan.target, plan.source
    notes = [*target.notes, *source.notes, *plan.orders.notes]
    if trusted and not pairing.ambiguous and all(each.confidence != "order" for each in pairing.pairs):
        notes.append("trust_order was not needed: names, sizes or the order in which data flows show every pair")
    notes += [text for each in pairing.pairs for text in (*unconvertible(each), *unsaid(each))]
    notes += [
        f"{each.target.name} is filled from {each.source.name} in alphabetical order alone, as trust_order asks"
        for each in pairing.pairs
        if each.confidence == "order" and (target.alphabet or source.alphabet)
    ]
    notes += [f"ambiguous, and left unchanged: {choice}" for choice in pairing.ambiguous]
    notes += [f"left unchanged, as the mapping says: {unit.name}" for unit in pairing.skipped]
    used = source.memory(name for each in pairing.pairs for name in each.source.arrays)
    done = target.memory(filling.arrays)
    return Transplant(
        target.title,
        source.title,
        tuple(_filled(each) for each in pairing.pairs),
        tuple(name for name in target.arrays if target.ties.get(name, name) not in done and name not in target.aside),
        tuple(name for name in source.arrays if source.ties.get(name, name) not in used and name not in source.aside),
        {**source.aside, **target.aside},
        tuple(filling.steps),
        tuple(unlike),
        tuple(notes),
        source.questions,
        dict(filling.made_of),
        plan=plan,
    )


def _filled(matched: FilledPair) -> FilledLayer:
    return FilledLayer(matched.target.name, matched.source.name, matched.kind, matched.evidence, matched.confidence, matched.target.arrays)


def unsettled(pairing: Pairing, target: Model, source: Model, inline: int = 0, by_name: bool = False) -> list[str]:
    """Return the open ends that a strict transplant does not allow; if names share one memory, one of them is enough.

    inline  how many numbers an array of no layer may have that the code around the target states itself
    by_name  whether the code around the target, whose layers were paired by name, is known to read nothing else from the source
    """
    filled = target.memory(name for filled_pair in pairing.pairs for name in filled_pair.target.arrays)
    used = source.memory(name for used_pair in pairing.pairs for name in used_pair.source.arrays)
    problems = [*map(str, pairing.ambiguous), *_remedies(pairing, target, source)]
    problems += [
        f"nothing in the source fits {quoted(unit.name)} of the target ({_what(target, unit)}){_nearest(unit, pairing, target, source)}"
        for unit in pairing.unfilled
        if not target.memory(unit.arrays) <= filled
    ]
    problems += [
        f"nothing in the target takes {quoted(unit.name)} of the source ({_what(source, unit)}){_elsewhere(unit, pairing)}"
        for unit in pairing.unused
        if not source.memory(unit.arrays) <= used
        and not (by_name or (unit.kinds == ("array",) and all(source.arrays[name].size <= inline for name in unit.arrays)))
    ]
    return problems


def _remedies(pairing: Pairing, target: Model, source: Model) -> list[str]:
    """Return the remedy that decides between layers that fit in several ways: once for all of them."""
    choices = pairing.ambiguous
    if not choices:
        return []
    remedy = f"choose {'for each of these ' if len(choices) > 1 else ''}with a mapping (rnnconvert map proposes one)"
    if any(len(choice.targets) == len(choice.sources) for choice in choices):
        remedy += f", {_or_in_order(target, source)}"
    copies = _copies(choices)
    if copies:
        remedy += f"; or fill from one of {listing(copies)} alone, which hold a model each: give its state dictionary as the source"
    return [remedy]


def _copies(choices: Sequence[Choice]) -> tuple[str, ...]:
    """Return the names under which a file has every layer, as one with a model and its moving average does."""
    prefixes: set[tuple[str, ...]] = set()
    for choice in choices:
        if len(choice.sources) < 2 or len(choice.targets) != 1:
            return ()
        parts = [source.split(".") for source in choice.sources]
        shared = sum(1 for _ in itertools.takewhile(lambda last: len(set(last)) == 1, zip(*(part[::-1] for part in parts), strict=False)))
        prefixes.add(tuple(".".join(part[: len(part) - shared]) for part in parts))
    copies = prefixes.pop() if len(choices) > 1 and len(prefixes) == 1 else ()
    return copies if all(copies) else ()


def _or_in_order(target: Model, source: Model) -> str:
    if target.alphabet:
        model = target
    elif source.alphabet:
        model = source
    else:
        model = None
    if model is None:
        return f"or use {Flag('trust-order')} to take them in order"
    return (
        f"or use {Flag('trust-order')} to take them in order, which in {model.title} is alphabetical and does not show "
        "the model's own order"
    )


def _directions(unit: Unit, others: Sequence[Unit], whose: str, pair: Callable[[str], str]) -> str:
    """Return the mapping that pairs both directions of a layer with the two others that may be these; "" where not two may be."""
    complete = unit.stack
    if complete is None or complete.num_layers != 1 or complete.num_directions != 2:
        return ""
    ways = [(other.name, other.stack.first.reverse) for other in others if other.stack is not None and _is_a_way(other.stack, complete)]
    if len(ways) != 2:
        return ""
    forward, backward = (name for name, reverse in sorted(ways, key=lambda way: way[1] or BACKWARDS.search(way[0]) is not None))
    both = f"{forward} + {backward}"
    return (
        f"; if {forward!r} and {backward!r} of the {whose} are its forward and its backward direction, confirm with the "
        f"mapping {pair(both)}"
    )


def _nearest(unit: Unit, pairing: Pairing, target: Model, source: Model) -> str:
    """Return the hint at what the source has instead: its one unpaired layer of the same kind, or both directions as separate layers."""
    if hint := _directions(unit, pairing.unused, "source", lambda ways: f"{unit.name}: {ways}"):
        return hint
    alike = [other for other in pairing.unused if set(other.kinds) & set(unit.kinds)]
    if unit.kinds == ("array",):
        alike = [other for other in alike if _shape(source, other) == _shape(target, unit)]
        confirm = (
            f"; if it is {quoted(alike[0].name)} of the source, confirm with the mapping {unit.name}: {alike[0].name}" if alike else ""
        )
        return confirm if len(alike) == 1 else ""
    if len(alike) != 1:
        return ""
    return f"; the nearest is {quoted(alike[0].name)} ({_what(source, alike[0])})"


def _elsewhere(unit: Unit, pairing: Pairing) -> str:
    """Return the advice on a layer that nothing takes: its two directions in the target, or leaving it out."""
    left_out = f"; to leave it out, use {Flag('partial')}, which leaves out what does not fit"
    return _directions(unit, pairing.unfilled, "target", lambda ways: f"{ways}: {unit.name}") or left_out


def _shape(model: Model, unit: Unit) -> tuple[int, ...]:
    """Return the shape of an array of no layer, without axes of one number."""
    return tuple(length for name in unit.arrays for length in model.arrays[name].shape if length != 1)


def _is_a_way(stack: Recurrent, complete: Recurrent) -> bool:
    """Return whether a stack may be one direction of another."""
    sizes = [(side.cell.kind, side.input_size, side.hidden_size) for side in (stack, complete)]
    return stack.num_layers * stack.num_directions == 1 and sizes[0] == sizes[1]


def _what(model: Model, unit: Unit) -> str:
    if unit.stack is not None:
        return str(unit.stack.describe())
    shapes = ", ".join(f"{local or name} {tuple(model.arrays[name].shape)}" for local, name in unit.names.items())
    kinds = " or ".join(kind.replace("_", " ") for kind in unit.kinds)
    return f"{kinds}: {shapes}"
