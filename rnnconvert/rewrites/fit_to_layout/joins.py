"""Bring the joins of a stack's layers and directions to those that a layout holds."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rnnconvert.core.cells import Cell
from rnnconvert.core.errors import RefusedError
from rnnconvert.core.printable import either
from rnnconvert.core.remedies import Flag, Setting, Together
from rnnconvert.core.weights import Direction, Recurrent
from rnnconvert.language import registry
from rnnconvert.language.layout import Holds
from rnnconvert.rewrites import FOLD_MERGE, JOIN_WITH_ZEROS, Step
from rnnconvert.rewrites.fit_to_layout.work import Fitting
from rnnconvert.rewrites.fold_merge import summed_below
from rnnconvert.rewrites.left_to_caller import ACCEPTS, flipped, flips, side_by_side
from rnnconvert.rewrites.split_directions import SPLIT_DIRECTIONS, names_of_directions
from rnnconvert.rewrites.split_stack import split_stack


def read_out(work: Fitting) -> None:
    """Refuse a matrix after the last layer where the target cannot keep it."""
    if work.stack.readout and not work.layout.holds.readout:
        raise work.refuse(
            "a matrix after the last layer",
            f"its output is multiplied by a matrix of shape {work.stack.readout[0].shape}, and the target has no place for this matrix",
            registry.conversion(lambda layout: layout.holds.readout, "where the matrix follows the layer"),
        )


def unconvertible(work: Fitting) -> None:
    """Refuse what the source computes in addition, unless the caller takes it over."""
    for feature in work.stack.unconvertible:
        value, meaning = ACCEPTS[feature.option]
        if feature.option not in work.accepted:
            remedy = f"Take it over with {Setting(feature.option, value)}: {meaning}."
            if feature.option == "unaccounted" and not feature.unknown:
                remedy += " Or write the whole model with export, from a file that states what it computes."
            raise work.refuse(feature.feature, feature.reason, remedy)
        work.steps.append(Step(feature.option, work.stack.name, f"{feature.feature} left to the caller", True))
    work.stack = work.stack.replace(unconvertible=())


def directions(work: Fitting) -> None:
    """Refuse directions that the target does not read, unless the caller flips them."""
    stack, holds = work.stack, work.layout.holds
    if max(len(layer.directions) for layer in stack.layers) > holds.directions:
        raise work.refuse("two directions", "the target reads one way", splitting(stack, holds, directions=True))
    ways = {tuple(direction.reverse for direction in layer.directions) for layer in stack.layers}
    standard = ways <= {(False,), (False, True)}
    if stack.output_order == "processing" and not holds.processing_order:
        feature = "outputs in processing order (go_backwards)"
        if not flips(stack):
            raise _refuse_ways(work, feature, "the target puts each output at the time step it belongs to")
        _flipped(
            work,
            "output_order",
            feature,
            "the target puts each output at the time step it belongs to",
            "Flip the sequences before the layer, leave its outputs unflipped",
        )
    elif flips(stack) and not holds.reverse:
        _flipped(
            work,
            "reverse",
            "a layer that reads only from the end",
            "the target's one direction runs forward, h_t from h_(t-1)",
            "Flip the sequences before the layer and its outputs after it",
        )
    elif not standard and not holds.reverse:
        raise _refuse_ways(work, "layers that read in other directions", "a layer of the target reads forward, or forward and backward")


def splitting(stack: Recurrent, holds: Holds, directions: bool) -> str:
    """Return the sentence on how a stack is split that a target cannot hold in one.

    directions  whether what stands in the way are the directions of a layer; otherwise it is its layers
    """
    layers = not directions or SPLIT_DIRECTIONS.applies(stack) is not None  # of a deep stack, the directions of each layer
    settings = [*[Setting("stack", "split")] * layers, *[Setting("directions", "split")] * directions]
    flip = [Setting("reverse", ACCEPTS["reverse"][0])] * (directions and not holds.reverse)
    flipping = ", and flip what the backward one reads" if flip else ""
    if not holds.alone:
        return f"Split them{flipping}: {Together(*settings, *flip)}."
    names = [part.name for part in (split_stack(stack) if layers else [stack])]
    if directions:
        names = [name for both in names for name in names_of_directions(both)]
    each = (Together(*settings, Flag("layer", name), *flip[: number % 2]) for number, name in enumerate(names))
    return f"Split them, one to a file{flipping}: {'; or '.join(map(str, each))}."


def _flipped(work: Fitting, option: str, feature: str, reason: str, remedy: str) -> None:
    """Return the stack as one that reads forward, if the caller flips its sequences."""
    if option not in work.accepted:
        raise work.refuse(feature, reason, f"{remedy}, and confirm with {Setting(option, ACCEPTS[option][0])}.")
    work.stack = flipped(work.stack)
    work.steps.append(Step(option, work.stack.name, "direction left to the caller: flip the sequences", True))


def _refuse_ways(work: Fitting, feature: str, reason: str) -> RefusedError:
    """Refuse directions that no flip before or after the whole stack makes right."""
    words = {False: "forward", True: "from the end"}
    ways = " then ".join(" next to ".join(words[direction.reverse] for direction in layer.directions) for layer in work.stack.layers)
    others = registry.conversion(
        lambda layout: layout.holds.reverse and layout.holds.directions > 1, "where every direction reads its own way"
    )
    split = splitting(work.stack, work.layout.holds, directions=work.stack.num_layers == 1)
    return work.refuse(feature, f"{reason}, but these read {ways}", f"{others} {split}")


def joins(work: Fitting) -> None:
    """Bring the joins of two directions to those that the target has."""
    stack, holds = work.stack, work.layout.holds
    if stack.num_directions == 1:
        return
    if stack.join == "end" and stack.num_layers > 1 and "end" not in holds.joins:
        work.stack = JOIN_WITH_ZEROS.apply(stack)
        work.done(JOIN_WITH_ZEROS, "directions that met only at the end joined at every layer, with zeros")
    if holds.layers and summed_below(work.stack):
        work.stack = FOLD_MERGE.apply(work.stack)
        work.done(FOLD_MERGE, "sums of directions folded into the layer above")
    for index, layer in enumerate(work.stack.layers):
        last = index == work.stack.num_layers - 1
        if layer.merge in holds.merges or (last and layer.merge == "none") or len(layer.directions) == 1:
            continue
        if not last or "merge" not in work.accepted:
            raise work.refuse(
                f"directions joined by {layer.merge}",
                f"layer {index} gives {_MERGES[layer.merge]}, but the target concatenates",
                f"Join the halves of the output yourself and confirm with {Setting('merge', 'concat')}."
                if last
                else f"Split the stack into layers: {Setting('stack', 'split')}.",
            )
        work.steps.append(Step("merge", stack.name, f"joining by {layer.merge} left to the caller", True))
        work.stack = side_by_side(work.stack)


_MERGES = {"sum": "f + b", "ave": "(f + b) / 2", "mul": "f * b", "concat": "[f; b]", "none": "f and b apart"}


def alike(work: Fitting) -> None:
    """Refuse layers and directions that differ where the target holds one set of arrays."""
    holds, stack = work.layout.holds, work.stack
    dtypes = {str(direction.dtype) for direction in work.every(lambda d: True)}
    for dtype in sorted(dtypes - set(holds.dtypes)) if not work.retyped else ():
        choices = either(str(Flag("dtype", name)) for name in holds.dtypes)
        raise work.refuse(f"the element type {dtype}", f"the target has {', '.join(holds.dtypes)}", f"Choose one: {choices}.")
    if len(dtypes) > 1:
        raise work.refuse(
            "weights of several element types",
            f"these are {' and '.join(sorted(dtypes))}, but the target computes in one",
            splitting(stack, holds, directions=differ_within(stack, lambda direction: direction.dtype)),
        )
    if holds.mixed_directions or stack.uniform:
        return
    layers = "layers" if len({str(layer.directions) for layer in stack.layers}) > 1 else "directions"
    unlike = _unlike([direction.cell for _, _, direction in stack.directions()])
    raise work.refuse(
        f"{layers} that differ" + (f" in {', '.join(unlike)}" if unlike else ""),
        "; ".join(sorted({repr(d)[11:-1] for d in work.every(lambda d: True)})) + " cannot share one set of arrays",
        splitting(stack, holds, directions=differ_within(stack, repr)),
    )


def differ_within(stack: Recurrent, fact: Callable[[Direction], object]) -> bool:
    """Return whether the two directions of a layer differ in something."""
    return any(len({fact(direction) for direction in layer.directions}) > 1 for layer in stack.layers)


_WORDS = {
    "kind": "the kind of cell",
    "reset_after": "the place of the reset gate",
    "activation": "the function",
    "gate_activation": "the function of the gates",
    "output_activation": "the function of the output",
    "coupled": "the coupled gate",
    "constants": "what is added at run time",
    "clips": "the clips",
}
"""The possible differences between cells, by the names of their fields."""


def _unlike(cells: Sequence[Cell]) -> list[str]:
    """Return the differences between some cells, in words."""
    differences = []
    for field, words in _WORDS.items():
        values = list(dict.fromkeys(str(getattr(cell, field) or "none") for cell in cells))
        if len(values) > 1:
            differences.append(f"{words} ({' and '.join(values)})")
    return differences
