"""Load foreign weights into an existing model: everything that belongs together, or nothing.

report = load_into(torch_module, "model.h5")
"""

from __future__ import annotations

import bisect
import difflib
import itertools
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rnnconvert.containers.files import counting, only_replace
from rnnconvert.containers.reading import reading, resumed
from rnnconvert.core.arguments import checked
from rnnconvert.core.arrays import Array, byte_bounds
from rnnconvert.core.errors import TransplantError, UsageError
from rnnconvert.core.printable import quoted
from rnnconvert.core.remedies import Flag, FlattenAs
from rnnconvert.core.weights import Recurrent
from rnnconvert.files.checkpoint import Checkpoint
from rnnconvert.files.load import load
from rnnconvert.language.surroundings import equal
from rnnconvert.models.differences import SettingDifference, differences, unconvertible, unsaid
from rnnconvert.models.filling import Filling, fill
from rnnconvert.models.flattening import NONE, Flatten, Flattening, orders
from rnnconvert.models.mapping import Proposal, mapped, propose
from rnnconvert.models.model import Model, Unit
from rnnconvert.models.pairing import FilledPair, Pairing, pair
from rnnconvert.models.plan import TransplantPlan
from rnnconvert.models.readers import model_of, reader_of
from rnnconvert.models.report import Filled, Transplant
from rnnconvert.models.verified import inputs_of, kept_if_equal
from rnnconvert.rewrites.fit_to_layout import ACCEPTS

PathLike = str | os.PathLike[str]
ALL = "all"
"""What stands for every difference of settings among those that the caller takes over."""
_INLINE = 16
"""The most numbers of a constant that the code of a model states itself."""
Watch = Callable[..., None]
"""Called with what is being done; where it is counted, with what is done and all there is."""


@dataclass(frozen=True)
class Wishes:
    """What the caller decides.

    mapping      a mapping file, or target names and the source names that fill them
    strict       whether every weight of both models must have its place
    accept       differences that the caller takes over: options of layers (batch_first, padding ...), and
                 rnnconvert.rewrites.fit_to_layout.ACCEPTS
    flatten      how a side that does not show it flattens a convolution's output: {"target": order}, {"source": order} or
                 both; "none" if nothing is flattened
    trust_order  whether layers that fit one another in several ways are paired in order
    """

    mapping: PathLike | Mapping[str, str] | None = None
    strict: bool = True
    accept: tuple[str, ...] = ()
    flatten: Flatten = None
    trust_order: bool = False


def load_into(
    target: Any,
    source: Any,
    mapping: PathLike | Mapping[str, str] | None = None,
    *,
    strict: bool = True,
    accept: Iterable[str] = (),
    flatten: Flatten = None,
    trust_order: bool = False,
    dry_run: bool = False,
    source_format: str | None = None,
    settings: Iterable[str] = (),
    **options: object,
) -> Transplant:
    """Fill a live model with the weights of a file or of another live model, and say what was done.

    target         a torch.nn.Module, a Keras model, an onnx.ModelProto, a tree of JAX arrays
    source         a path, a Checkpoint, or such an object
    mapping        a mapping file (`rnnconvert map` proposes one), or {target layer: source layer}
    strict         whether every weight of both models must have its place
    accept         differences that you take over: names of options that differ, such as "batch_first"; "all" where the code
                   around the target's weights is known to compute what the source does, as that of `scaffold` is
    flatten        of a side that does not show how it flattens, {"target": "channels_first"}, {"source": "channels_last"} or
                   both; "none" where nothing is flattened, "same" where both flatten alike
    trust_order    pair layers that fit one another in several ways in the order in which they stand
    dry_run        find out what would be done, and change nothing
    source_format, settings, options   how to read the source, as `load` takes them

    The target's element types, devices and tied weights stay unchanged, and on any error so do its numbers.

    Raises TransplantError with everything that does not fit, UsageError for a call that cannot be carried out, and
    what `load` raises.
    """
    with resumed(source.sources) if isinstance(source, Checkpoint) else reading():
        giving = model_of(source, source_format, tuple(settings), **options)
        taking = model_of(target)
        if taking.fill is None:
            raise UsageError(f"{taking.title} is not a live model. To fill a file, use rnnconvert.transplant_file")
        wishes = Wishes(mapping, strict, tuple(accept), flatten, trust_order)
        report, arrays = prepare(taking, giving, wishes)
        filled = target if dry_run else taking.fill(_apart(arrays, taking))
    return replace(report, model=filled, is_new=filled is not target, giver=source)


def _apart(new: Mapping[str, Array], target: Model) -> dict[str, Array]:
    """Return arrays that do not change while a target is filled: those in its own memory are copied."""
    bounds = [byte_bounds(array) for array in target.arrays.values() if array.size]
    bounds.sort()
    starts = [start for start, _ in bounds]
    ends = list(itertools.accumulate((end for _, end in bounds), max))

    def inside(array: Array) -> bool:
        low, high = byte_bounds(array)
        before = bisect.bisect_left(starts, high)  # those that begin before it ends
        return before > 0 and ends[before - 1] > low

    return {name: array.copy() if array.size and inside(array) else array for name, array in new.items()}


def transplant_file(
    source: PathLike,
    into: PathLike,
    output: PathLike,
    mapping: PathLike | Mapping[str, str] | None = None,
    *,
    strict: bool = True,
    accept: Iterable[str] = (),
    flatten: Flatten = None,
    trust_order: bool = False,
    force: bool = False,
    dry_run: bool = False,
    source_format: str | None = None,
    target_format: str | None = None,
    settings: Iterable[str] = (),
    watch: Watch = lambda phase, done=0, total=0: None,
    inputs: PathLike | None = None,
    **options: object,
) -> Transplant:
    """Write a file like `into`, with the weights of `source` in it; the options are those of `load_into`.

    inputs  a .npy or .npz file of inputs: both whole models are run on them, and the file is kept only if they agree

    watch  called with what is being done, and while writing with the bytes done and all bytes

    Raises what `load_into` raises; on any error every existing file is left unchanged.
    """
    only_replace(Path(output), force or dry_run)
    if dry_run and inputs is not None:
        raise UsageError(f"{Flag('dry-run')} writes nothing that could be verified. Choose either {Flag('dry-run')} or {Flag('verify')}")
    watch(f"reading {source}")
    giving = model_of(source, source_format, tuple(settings), **options)
    watch(f"reading {into}")
    checkpoint = load(into, target_format)
    reader = reader_of(checkpoint.format)
    if reader is None:
        raise UsageError(f"{into} is a {checkpoint.format} file, which holds only recurrent layers. Use rnnconvert convert")
    taking = reader.of_checkpoint(checkpoint)
    wishes = Wishes(mapping, strict, tuple(accept), flatten, trust_order)
    watch("pairing layers and computing their weights")
    report, arrays = prepare(taking, giving, wishes)
    total = sum(array.nbytes for array in taking.arrays.values())
    phase = f"writing {output}"
    watch(phase)
    report = replace(report, model=None if dry_run else str(output), giver=source)
    if inputs is not None:
        samples = inputs_of(inputs)
        notes, proof = kept_if_equal(
            Path(output),
            force,
            lambda path: reader.write(path, checkpoint, arrays),
            lambda path: replace(report, model=str(path)).verify(samples),
        )
        return replace(report, notes=(*report.notes, *notes), proof=proof)
    with counting(lambda done: watch(phase, min(done, total), total)):
        notes = [] if dry_run else reader.write(Path(output), checkpoint, arrays)
    return replace(report, notes=(*report.notes, *notes))


def propose_mapping(target: Any, source: Any, **options: Any) -> str:
    """Return the text of a mapping file for two models; the options are those of `proposal`."""
    return str(proposal(target, source, **options))


@checked
def proposal(
    target: Any,
    source: Any,
    *,
    mapping: PathLike | Mapping[str, str] | None = None,
    source_format: str | None = None,
    target_format: str | None = None,
    settings: Iterable[str] = (),
    **options: object,
) -> Proposal:
    """Return a mapping for two models, files or live ones: with evidence, and what is ambiguous to choose from.

    mapping  what a person has decided already, as `load_into` takes it; the same models give the same text

    Raises UsageError for a mapping that names a missing layer.
    """
    giving = model_of(source, source_format, tuple(settings), **options)
    taking = model_of(target, target_format)
    return propose(taking, giving, mapped(mapping))


def prepare(target: Model, source: Model, wishes: Wishes) -> tuple[Transplant, dict[str, Array]]:
    """Return what would be done, and the arrays that would be filled.

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
        problems += _unsettled(pairing, target, source, _INLINE if ALL in accepted else 0)
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
    """Return what the call or the mapping file says of flattening. Raises UsageError where both do and differ."""
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
    """Return problems with unfilled recurrent layers that would change in part because they share arrays with filled
    ones.
    """
    filled = target.memory(filling.arrays)
    problems = []
    paired = {filled_pair.target.name for filled_pair in pairing.pairs}
    for unit in (unit for unit in target.units if unit.name not in paired and not unit.alias):
        members = target.memory(unit.arrays)
        shared = sorted(
            name for name in members & filled if name in filling.arrays and not equal(filling.arrays[name], target.arrays[name])
        )
        if unit.stack is not None and shared and not members <= filled:
            problems.append(
                f"{quoted(unit.name)} of the target is not filled, but would change: {', '.join(map(repr, shared))} is shared with a "
                "layer that is; fill both, or give each arrays of its own in the target"
            )
    return problems


def _unsettled(pairing: Pairing, target: Model, source: Model, inline: int = 0) -> list[str]:
    """Return what a strict transplant does not leave open; of the names of one memory, one is enough.

    inline  how many numbers an array of no layer may have that the code around the target states itself
    """
    filled = target.memory(name for filled_pair in pairing.pairs for name in filled_pair.target.arrays)
    used = source.memory(name for used_pair in pairing.pairs for name in used_pair.source.arrays)
    problems = [
        f"{choice}. Choose with a mapping (rnnconvert map proposes one), {_or_in_order(target, source)}" for choice in pairing.ambiguous
    ]
    problems += [
        f"nothing in the source fits {quoted(unit.name)} of the target ({_what(target, unit)}){_nearest(unit, pairing, source)}"
        for unit in pairing.unfilled
        if not target.memory(unit.arrays) <= filled
    ]
    problems += [
        f"nothing in the target takes {quoted(unit.name)} of the source ({_what(source, unit)}); to leave it out, "
        f"use {Flag('partial')}, which leaves out what does not fit"
        for unit in pairing.unused
        if not source.memory(unit.arrays) <= used
        and not (unit.kinds == ("array",) and all(source.arrays[name].size <= inline for name in unit.arrays))
    ]
    return problems


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


def _nearest(unit: Unit, pairing: Pairing, source: Model) -> str:
    """Say what the source has instead: its one unpaired layer of the same kind, or both directions as separate layers."""
    if unit.stack is not None and unit.stack.num_layers == 1 and unit.stack.num_directions == 2:
        ways = [other for other in pairing.unused if other.stack is not None and _is_a_way(other.stack, unit.stack)]
        if len(ways) == 2:
            forward, two = (way.name for way in sorted(ways, key=lambda way: way.stack is not None and way.stack.first.reverse))
            return (
                f"; if {forward!r} and {two!r} of the source are its forward and its backward direction, confirm with the "
                f"mapping {unit.name}: {forward} + {two}"
            )
    alike = [other for other in pairing.unused if set(other.kinds) & set(unit.kinds)]
    if unit.kinds == ("array",) or len(alike) != 1:
        return ""
    return f"; the nearest is {quoted(alike[0].name)} ({_what(source, alike[0])})"


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


def _report(plan: TransplantPlan, pairing: Pairing, filling: Filling, unlike: list[SettingDifference], trusted: bool) -> Transplant:
    target, source = plan.target, plan.source
    notes = [*target.notes, *source.notes, *plan.orders.notes]
    if trusted and all(each.confidence != "order" for each in pairing.pairs):
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


def _filled(matched: FilledPair) -> Filled:
    return Filled(matched.target.name, matched.source.name, matched.kind, matched.evidence, matched.confidence, matched.target.arrays)
