"""The target's arrays, computed from the source's: everything is computed and checked here, and nothing is changed."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import numpy as np

from rnnconvert.core.arrays import Array
from rnnconvert.core.errors import RefusedError, RnnConvertError
from rnnconvert.core.printable import quoted
from rnnconvert.core.remedies import accepting
from rnnconvert.core.weights import BIAS_PARTS, Direction, Layer, Recurrent
from rnnconvert.language import registry
from rnnconvert.language.fitting import pattern
from rnnconvert.language.layout import Layout
from rnnconvert.language.packing import pack
from rnnconvert.language.surroundings import equal
from rnnconvert.models.flattening import Flattening
from rnnconvert.models.model import Group, Model, Unit, tensors
from rnnconvert.models.pairs import FilledPair
from rnnconvert.models.same_cells import MisfitError, same_cells, same_ends
from rnnconvert.rewrites import DROP_ZEROS, Step, each, largest
from rnnconvert.rewrites.fit_to_layout import ACCEPTS, fit_to_layout

NEUTRAL = {"bias": 0.0, "scale": 1.0, "shift": 0.0}
"""The value of a part that leaves the function of a layer without it unchanged."""


@dataclass
class Filling:
    """The weights that go into the target.

    arrays    the new numbers by the target's names, in its shapes and element types
    made_of   the source's arrays behind each of them
    steps     what was done to bring layers into the target's form
    problems  what does not fit, in words
    """

    arrays: dict[str, Array] = field(default_factory=dict)
    made_of: dict[str, tuple[str, ...]] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def fill(pairs: Iterable[FilledPair], target: Model, source: Model, accepted: Iterable[str], orders: Flattening) -> Filling:
    """Compute the target's arrays for pairs of layers.

    accepted  what the caller takes over (rnnconvert.rewrites.fit_to_layout.ACCEPTS)
    orders    where the values of a flattened convolution stand on both sides
    """
    filling = Filling()
    for pair in pairs:
        try:
            if pair.target.stack is not None:
                with accepting(ACCEPTS):  # what a conversion is told by a setting, a transplant is told by accept
                    _recurrent(filling, pair, target, tuple(accepted), orders)
            elif pair.kind == "array":
                _array(filling, pair, target, source)
            else:
                _plain(filling, pair, target, source, orders)
        except (RnnConvertError, MisfitError) as error:
            filling.problems.append(str(error.args[0]) + _other_way(error, target))
    _ties(filling, target)
    if target.hinders is not None:
        filling.problems += target.hinders(filling.arrays)
    return filling


def _other_way(error: Exception, target: Model) -> str:
    """Return the advice on a module of rnnconvert's own, for a live module whose class computes something else."""
    system = registry.systems().get(target.framework)
    if not isinstance(error, RefusedError) or system is None or not system.own_layer or target.live is None:
        return ""
    return (
        f" Or replace it by a module that computes it: {system.own_layer} makes one from the source's layer, which rnnconvert.load reads."
    )


def _put(filling: Filling, pair: FilledPair, target: Model, name: str, array: Array, made_of: Iterable[str]) -> None:
    """Store an array in the target's element type."""
    old = target.arrays[name]
    if tuple(array.shape) != tuple(old.shape):
        raise MisfitError(
            f"{quoted(pair.target.name)}: {name!r} has shape {tuple(old.shape)} in the target, but {quoted(pair.source.name)} "
            f"of the source gives {tuple(array.shape)}"
        )
    if (old.dtype.kind in "iub" or array.dtype.kind in "iub") and old.dtype != array.dtype:
        raise MisfitError(f"{quoted(pair.target.name)}: {name!r} is of type {old.dtype}, but the source's is of {array.dtype}")
    with np.errstate(over="ignore"):
        typed = np.asarray(array, dtype=old.dtype)
    if old.dtype != array.dtype.newbyteorder("="):
        lost = ~np.isfinite(typed.astype(np.float64)) & np.isfinite(array.astype(np.float64))
        if lost.any():
            raise MisfitError(f"{quoted(pair.target.name)}: some values of {name!r} are too large for the target's {old.dtype}")
        exact = bool(np.can_cast(array.dtype.newbyteorder("="), old.dtype, "safe"))
        step = Step("change the element type", pair.target.name, f"{array.dtype} written as {old.dtype}", exact)
        if step not in filling.steps:
            filling.steps.append(step)
    if name in filling.arrays and not equal(filling.arrays[name], typed):
        raise MisfitError(
            f"{quoted(pair.target.name)} and another layer are one array in the target ({name!r}, tied weights), but the source has two "
            "that differ; untie them in the target"
        )
    filling.arrays[name] = typed
    filling.made_of[name] = tuple(made_of)


def _array(filling: Filling, pair: FilledPair, target: Model, source: Model) -> None:
    target_name, other = next(iter(pair.target.names.values())), next(iter(pair.source.names.values()))
    array = np.asarray(source.arrays[other])
    if array.size == 1:  # () in one framework is (1,) in another
        array = array.reshape(target.arrays[target_name].shape)
    _put(filling, pair, target, target_name, array, (other,))


def _plain(filling: Filling, pair: FilledPair, target: Model, source: Model, orders: Flattening) -> None:
    layout, giving = pair.target.reading(pair.kind), pair.source.reading(pair.kind)
    parts = source.parts(pair.source, pair.kind)
    names = {tensor.part: pair.source.names[tensor.name] for tensor in tensors(giving, pair.source.names)}
    in_order(pair, parts, orders)
    for tensor in tensors(layout, pair.target.names):
        full = pair.target.names[tensor.name]
        old = target.arrays[full]
        if tensor.part in parts:
            try:
                array = layout.stored(tensor, parts.pop(tensor.part), tuple(old.shape))
            except ValueError as error:
                raise MisfitError(
                    f"{quoted(pair.target.name)}: the {tensor.part} ({full!r}) cannot be filled from {names[tensor.part]!r}: {error}"
                ) from None
            _put(filling, pair, target, full, array, (names[tensor.part],))
        elif tensor.part in NEUTRAL:
            value = NEUTRAL[tensor.part]
            _put(filling, pair, target, full, np.full(old.shape, value, old.dtype), ())
            detail = f"{full} written as {'zeros' if value == 0 else 'ones'}: the source has none"
            filling.steps.append(Step(f"a neutral {tensor.part}", pair.target.name, detail, True))
        else:
            raise MisfitError(
                f"{quoted(pair.target.name)}: the target keeps a {tensor.part}, but {quoted(pair.source.name)} of the source has none: "
                "it normalises by that of each batch"
            )
    for part, array in parts.items():
        if part not in NEUTRAL or (array != NEUTRAL[part]).any():
            size = "" if part not in NEUTRAL else f" (as large as {largest(array)[0]:.6g})"
            raise MisfitError(
                f"{quoted(pair.target.name)}: {quoted(pair.source.name)} of the source has a {part}{size}, {names[part]!r}, and the "
                f"target was made without one"
            )


def in_order(pair: FilledPair, parts: dict[str, Array], orders: Flattening) -> None:
    """Bring a layer's rows and columns into the order in which the target flattens a convolution's output."""
    if pair.kind == "dense":
        out, into = parts["weight"].shape
        if (order := orders.columns(pair, into)) is not None:
            parts["weight"] = parts["weight"][:, order]
        if (order := orders.rows(pair, out)) is not None:
            parts |= {part: array[order] for part, array in parts.items()}
    elif pair.kind in _OF_EACH_VALUE and all(array.ndim == 1 for array in parts.values()):
        order = orders.values(pair, next(iter(parts.values())).size)
        if order is not None:
            parts |= {part: array[order] for part, array in parts.items()}


_OF_EACH_VALUE = ("batch_norm", "layer_norm", "rms_norm", "prelu")
"""The layers that may stand between a flattened convolution and a dense layer, with one number for each value."""


def _recurrent(filling: Filling, pair: FilledPair, target: Model, accepted: tuple[str, ...], orders: Flattening) -> None:
    target_stack, stack = pair.target.stack, pair.source.stack
    assert target_stack is not None and stack is not None
    if not pair.target.groups:
        raise MisfitError(
            f"{quoted(pair.target.name)}: its weights cannot be replaced in place: the model computes them from others, or has "
            "them in a form that can only be read"
        )
    if _unlike(pair.target, target_stack) and target_stack.num_layers == stack.num_layers == 1:
        same_ends(pair, target_stack, stack)
        for group in pair.target.groups:  # each is a layer of its own here
            _recurrent(filling, _direction(pair, group), target, accepted, orders)
        return
    stack = stack.replace(name=pair.target.name)
    stack = _without_zero_biases(pair, stack, target_stack)
    if (order := orders.columns(pair, stack.input_size)) is not None:
        stack = each(stack, functools.partial(_with_columns, order=order))
    asked = _narrowed(pair.target.groups, target_stack)
    # A target that learns its initial states is filled with the source's: nothing is left to the caller there.
    left = [word for word in accepted if word != "initial_state" or not asked.holds.initial_states]
    part = fit_to_layout(stack, [asked], left)
    filling.steps += part.steps
    same_cells(pair, target_stack, part.stack)
    made_of = pair.source.arrays
    for group in pair.target.groups:
        layer = part.stack.layers[group.layer]
        directions = tuple(layer.directions[number] for number in group.directions)
        single = Recurrent(pair.target.name, (Layer(directions, layer.merge),))
        narrow = _only(group.layout, group.names)
        packed = pack(narrow, single)
        for local, full in group.names.items():
            if local in packed:
                there = packed[local].in_file()
                _put(filling, pair, target, full, np.asarray(packed[local]) if there is None else there, made_of)
            else:
                old = target.arrays[full]
                _put(filling, pair, target, full, np.zeros(old.shape, old.dtype), ())
                filling.steps.append(Step("zeros", pair.target.name, f"{full} written as zeros", True))


def _without_zero_biases(pair: FilledPair, stack: Recurrent, target_stack: Recurrent) -> Recurrent:
    """Return the stack without biases, if the target has none and all of them are zero."""
    if target_stack.first.biases != "none" or stack.first.biases == "none":
        return stack
    for part in BIAS_PARTS:
        for _, _, direction in stack.directions():
            if (obstacle := DROP_ZEROS.applies(direction, part)) is not None:
                raise MisfitError(
                    f"{quoted(pair.target.name)} was made without biases, but {quoted(pair.source.name)} of the source has them: "
                    f"{obstacle.reason}; make the target with biases"
                )
        stack = each(stack, functools.partial(DROP_ZEROS.apply, part=part))
    return stack


def _unlike(unit: Unit, stack: Recurrent) -> bool:
    """Return whether the directions of a layer are unlike, each with separate arrays."""
    return not stack.uniform and all(len(group.directions) == 1 for group in unit.groups) and len(unit.groups) > 1


def _direction(pair: FilledPair, group: Group) -> FilledPair:
    """Return one direction of a pair of layers, which is a group of the target's arrays by itself."""

    def single(unit: Unit, groups: tuple[Group, ...]) -> Unit:
        assert unit.stack is not None
        (layer,) = unit.stack.layers
        return unit.replace(stack=unit.stack.replace(layers=(Layer(tuple(layer.directions[n] for n in group.directions)),)), groups=groups)

    numbered = replace(group, directions=tuple(range(len(group.directions))))
    return replace(pair, target=single(pair.target, (numbered,)), source=single(pair.source, pair.source.groups))


def _with_columns(direction: Direction, order: Array) -> Direction:
    """Return a direction that reads its input's values in another order."""
    arrays = {key: np.asarray(array)[:, order] for key, array in direction.arrays.items() if key[0] == "input"}
    return direction.with_arrays(arrays)


def _narrowed(groups: tuple[Group, ...], target_stack: Recurrent) -> Layout:
    """Return the layout of an existing layer, narrowed to what the layer was made to compute."""
    layout = _only(groups[0].layout, groups[0].names)
    every = [direction for _, _, direction in target_stack.directions()]
    functions = [d.cell.activation for d in every]
    same = all(d.cell.output_activation == d.cell.activation for d in every if d.cell.kind == "lstm")
    learned = any(part.startswith("initial") for direction in every for part, _ in direction.arrays)
    holds = replace(
        layout.holds,
        biases=(target_stack.first.biases,),
        activations=tuple(dict.fromkeys([*functions, *([] if same else [d.cell.output_activation for d in every])])),
        output_activation="same" if same else "its own",
        gate_activations=tuple(dict.fromkeys(d.cell.gate_activation for d in every)),
        coupled=tuple(dict.fromkeys(d.cell.coupled for d in every if d.cell.coupled)),
        constants=dict(every[0].cell.constants),
        clips=tuple(dict.fromkeys(clip.kind for d in every for clip in d.cell.clips)),
        layers=target_stack.num_layers > 1,
        directions=target_stack.num_directions,
        reverse=target_stack.first.reverse,
        merges=(target_stack.layers[-1].merge,) if target_stack.num_directions > 1 else ("concat",),
        initial_states=learned,
        processing_order=target_stack.output_order == "processing",
        readout=bool(target_stack.readout),
        mixed_directions=not target_stack.uniform,
        skip_input=target_stack.first.skip_input,
    )
    return replace(layout, holds=holds)


def _only(layout: Layout, names: Iterable[str]) -> Layout:
    """Return a layout with only the tensors that exist."""
    there = list(names)
    present = tuple(t for t in layout.tensors if any(pattern(layout, t).fullmatch(name) for name in there))
    return replace(layout, tensors=present)


def _ties(filling: Filling, target: Model) -> None:
    """Check that arrays that share their memory get the same numbers; a tied array that is not filled follows."""
    for name, first in target.ties.items():
        if name not in filling.arrays or first not in filling.arrays:
            continue
        if not equal(filling.arrays[name], filling.arrays[first]):
            filling.problems.append(
                f"{name!r} and {first!r} are one array in the target (tied weights), but the source has two that differ; "
                "untie them in the target"
            )
