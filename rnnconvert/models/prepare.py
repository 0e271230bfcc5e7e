"""A transplant prepared: everything paired, computed and checked, and nothing changed."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from rnnconvert.core.arrays import Array
from rnnconvert.core.errors import TransplantError, UsageError
from rnnconvert.core.printable import quoted
from rnnconvert.core.remedies import Flag, FlattenAs
from rnnconvert.language.surroundings import equal
from rnnconvert.models.differences import SettingDifference, differences, unconvertible, unsaid
from rnnconvert.models.filling import Filling, fill
from rnnconvert.models.flattening import NONE, Flatten, Flattening, orders
from rnnconvert.models.mapping import mapped
from rnnconvert.models.model import Model
from rnnconvert.models.pairing import pair
from rnnconvert.models.pairs import FilledPair, Pairing
from rnnconvert.models.plan import TransplantPlan
from rnnconvert.models.report import FilledLayer, Transplant
from rnnconvert.models.unsettled import unsettled
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
