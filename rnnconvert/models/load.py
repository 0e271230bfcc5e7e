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
from rnnconvert.models.differences import Difference, differences, unconvertible, unsaid
from rnnconvert.models.filling import Filling, fill
from rnnconvert.models.flattening import NONE, Flatten, Flattening, orders
from rnnconvert.models.mapping import Proposal, mapped, propose
from rnnconvert.models.model import Model, Unit
from rnnconvert.models.pairing import Pair, Pairing, pair
from rnnconvert.models.plan import Plan
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
    taken = [byte_bounds(array) for array in target.arrays.values() if array.size]
    taken.sort()
    starts = [start for start, _ in taken]
    ends = list(itertools.accumulate((end for _, end in taken), max))

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
        given = inputs_of(inputs)
        notes, proof = kept_if_equal(
            Path(output),
            force,
            lambda made: reader.write(made, checkpoint, arrays),
            lambda made: replace(report, model=str(made)).verify(given),
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
    told = mapped(wishes.mapping)
    trusted = wishes.trust_order or told.trust_order
    found = pair(target, source, told.layers, told.leave, trusted, "as the mapping says")
    accepted = (*wishes.accept, *told.accept)
    if ALL in accepted:
        found = replace(found, pairs=[_around_alike(one) for one in found.pairs])
        taken_over = [word for word in ("initial_state", "unaccounted") if word not in accepted]
    else:
        taken_over = []
    flattening = Flattening(target, source, _flatten(wishes.flatten, told.flatten))
    filling = fill(found.pairs, target, source, (*accepted, *taken_over), flattening)
    unlike = [one for pair_ in found.pairs for one in differences(pair_, target, source)]
    problems = [*filling.problems, *_halves(found, target, filling)]
    problems += [str(one) for one in unlike if one.matters == "function" and not {one.option, ALL} & set(accepted)]
    if wishes.strict:
        problems += _unsettled(found, target, source, _INLINE if ALL in accepted else 0)
    if problems:
        raise TransplantError(target.title, source.title, problems)
    _decided(accepted, filling, unlike, flattening)
    plan = Plan(target, source, tuple(found.pairs), tuple(filling.steps), flattening)
    return _report(plan, found, filling, unlike, trusted), filling.arrays


def _around_alike(one: Pair) -> Pair:
    """Return a pair whose source is taken to read, to order and to join its outputs as the target does: the caller's code sees to it."""
    ours, theirs = one.target.stack, one.source.stack
    if ours is None or theirs is None or ours.num_directions != theirs.num_directions or ours.num_layers != theirs.num_layers:
        return one
    layers = [
        replace(
            layer,
            merge=wanted.merge,
            directions=tuple(way.replace(reverse=like.reverse) for way, like in zip(layer.directions, wanted.directions, strict=True)),
        )
        for layer, wanted in zip(theirs.layers, ours.layers, strict=True)
    ]
    stack = theirs.replace(layers=tuple(layers), output_order=ours.output_order)
    return replace(one, source=one.source.replace(stack=stack))


def _flatten(said: Flatten, mapped_: Flatten) -> Flatten:
    """Return what the call or the mapping file says of flattening. Raises UsageError where both do and differ."""
    if said is not None and mapped_ is not None and (orders(said), said == NONE) != (orders(mapped_), mapped_ == NONE):
        raise UsageError(f"flatten is {said!r} in the call and {mapped_!r} in the mapping file. Give it once")
    return mapped_ if said is None else said


def _decided(accepted: Iterable[str], filling: Filling, unlike: Iterable[Difference], flattening: Flattening) -> None:
    """Raise UsageError for a choice of the caller that no layer needed: it decides nothing, and hides a mistake."""
    mixed_directions = {one.option for one in unlike}
    met = mixed_directions | {step.rewrite for step in filling.steps if step.rewrite in ACCEPTS}
    for name in accepted:
        if name not in (*met, ALL):
            near = difflib.get_close_matches(name, met, 1)
            if near:
                hint = f"Did you mean {near[0]!r}? "
            elif met:
                hint = f"These differ: {', '.join(sorted(met))}. "
            else:
                hint = ""
            raise UsageError(f"{Flag('accept', name)} decides nothing: no layer differs in it. {hint}Leave it out.")
    for side in flattening.unused():
        said = Flag("flatten", NONE) if side == NONE else FlattenAs(**{side: flattening.told[side]})
        raise UsageError(
            f"{said} decides nothing: no layer reads or gives the values of a flattened convolution"
            f"{'' if side == NONE else f' whose order in the {side} is asked for'}. Leave it out."
        )


def _halves(found: Pairing, target: Model, filling: Filling) -> list[str]:
    """Return problems with unfilled recurrent layers that would change in part because they share arrays with filled
    ones.
    """
    filled = target.memory(filling.arrays)
    problems = []
    paired = {one.target.name for one in found.pairs}
    for unit in (unit for unit in target.units if unit.name not in paired and not unit.alias):
        own = target.memory(unit.arrays)
        shared = sorted(name for name in own & filled if name in filling.arrays and not equal(filling.arrays[name], target.arrays[name]))
        if unit.stack is not None and shared and not own <= filled:
            problems.append(
                f"{quoted(unit.name)} of the target is not filled, but would change: {', '.join(map(repr, shared))} is shared with a "
                "layer that is; fill both, or give each arrays of its own in the target"
            )
    return problems


def _unsettled(found: Pairing, target: Model, source: Model, inline: int = 0) -> list[str]:
    """Return what a strict transplant does not leave open; of the names of one memory, one is enough.

    inline  how many numbers an array of no layer may have that the code around the target states itself
    """
    filled = target.memory(name for one in found.pairs for name in one.target.arrays)
    used = source.memory(name for one in found.pairs for name in one.source.arrays)
    problems = [
        f"{choice}. Choose with a mapping (rnnconvert map proposes one), {_or_in_order(target, source)}" for choice in found.ambiguous
    ]
    problems += [
        f"nothing in the source fits {quoted(unit.name)} of the target ({_what(target, unit)}){_nearest(unit, found, source)}"
        for unit in found.unfilled
        if not target.memory(unit.arrays) <= filled
    ]
    problems += [
        f"nothing in the target takes {quoted(unit.name)} of the source ({_what(source, unit)}); to leave it out, "
        f"use {Flag('partial')}, which leaves out what does not fit"
        for unit in found.unused
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


def _nearest(unit: Unit, found: Pairing, source: Model) -> str:
    """Say what the source has instead: its one unpaired layer of the same kind, or both directions as separate layers."""
    if unit.stack is not None and unit.stack.num_layers == 1 and unit.stack.num_directions == 2:
        ways = [other for other in found.unused if other.stack is not None and _is_a_way(other.stack, unit.stack)]
        if len(ways) == 2:
            one, two = (way.name for way in sorted(ways, key=lambda way: way.stack is not None and way.stack.first.reverse))
            return (
                f"; if {one!r} and {two!r} of the source are its forward and its backward direction, confirm with the "
                f"mapping {unit.name}: {one} + {two}"
            )
    alike = [other for other in found.unused if set(other.kinds) & set(unit.kinds)]
    if unit.kinds == ("array",) or len(alike) != 1:
        return ""
    return f"; the nearest is {quoted(alike[0].name)} ({_what(source, alike[0])})"


def _is_a_way(stack: Recurrent, whole: Recurrent) -> bool:
    """Return whether a stack may be one direction of another."""
    sizes = [(one.cell.kind, one.input_size, one.hidden_size) for one in (stack, whole)]
    return stack.num_layers * stack.num_directions == 1 and sizes[0] == sizes[1]


def _what(model: Model, unit: Unit) -> str:
    if unit.stack is not None:
        return str(unit.stack.describe())
    shapes = ", ".join(f"{local or name} {tuple(model.arrays[name].shape)}" for local, name in unit.names.items())
    kinds = " or ".join(kind.replace("_", " ") for kind in unit.kinds)
    return f"{kinds}: {shapes}"


def _report(plan: Plan, found: Pairing, filling: Filling, unlike: list[Difference], trusted: bool) -> Transplant:
    target, source = plan.target, plan.source
    notes = [*target.notes, *source.notes, *plan.orders.notes]
    if trusted and all(one.confidence != "order" for one in found.pairs):
        notes.append("trust_order was not needed: names, sizes or the order in which data flows show every pair")
    notes += [text for one in found.pairs for text in (*unconvertible(one), *unsaid(one))]
    notes += [
        f"{one.target.name} is filled from {one.source.name} in alphabetical order alone, as trust_order asks"
        for one in found.pairs
        if one.confidence == "order" and (target.alphabet or source.alphabet)
    ]
    notes += [f"ambiguous, and left unchanged: {choice}" for choice in found.ambiguous]
    notes += [f"left unchanged, as the mapping says: {unit.name}" for unit in found.skipped]
    used = source.memory(name for one in found.pairs for name in one.source.arrays)
    done = target.memory(filling.arrays)
    return Transplant(
        target.title,
        source.title,
        tuple(_filled(one) for one in found.pairs),
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


def _filled(one: Pair) -> Filled:
    return Filled(one.target.name, one.source.name, one.kind, one.evidence, one.confidence, one.target.arrays)
