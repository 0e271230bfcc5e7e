"""The operations of one layer, cut out of a graph, and random inputs for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from rnnconvert.core.arrays import Array
from rnnconvert.graphs.program.evaluate import UnmatchedError
from rnnconvert.graphs.program.operations import Operation, bodies
from rnnconvert.graphs.program.scopes import Scope
from rnnconvert.graphs.program.shapes import Shapes
from rnnconvert.graphs.program.spread import everywhere
from rnnconvert.judging.case_kinds import reaching
from rnnconvert.recognition.conditions import conditions, directed
from rnnconvert.recognition.counts import OTHERS, Place, counted, longest, place
from rnnconvert.recognition.recognised import RecognisedLayer
from rnnconvert.recognition.states import given_at_run_time

TRIALS = ((5, 2, 1.0), (1, 3, 1.0), (8, 1, 0.1), (6, 4, 20.0))
"""Steps, sequences, and how large the numbers are."""
_DRAWN = 1 << 24
"""The most random numbers of a proof: a file may state lengths that need more."""
_LONG = ((1, 1), (7, 100_003), (1_000_003, 2))
"""Steps and sequences that no trial computes; how often a Loop would run is computed."""


@dataclass(frozen=True, eq=False)
class Region:
    """The operators of a layer, cut out of a graph.

    nodes   between what it reads and what is used of it, in the graph's order
    cuts    the values that they read, and what each of them is
    trials  random numbers for these
    """

    nodes: Sequence[Operation]
    cuts: Mapping[str, str]
    trials: Sequence[Mapping[str, Array]]


def extract(scope: Scope, shapes: Shapes, layer: RecognisedLayer) -> Region:
    """Cut the operators of a layer out of a graph. Raises UnmatchedError where they cannot be cut."""
    cuts = {name: "read" for read in layer.reads for name in (read.steps or (read.value,))}
    if layer.mask is not None:
        cuts[layer.mask.value] = "mask"
        cuts |= {name: "0.0" for name in layer.zeros if scope.constant(name) is None}
    cuts |= {name: "state" for name in layer.states.values() if scope.constant(name) is None}
    _check_long(scope, shapes, layer)
    outputs = [use.value for use in layer.uses]
    nodes = _between(scope, shapes, layer, outputs, cuts)
    trials: list[Mapping[str, Array]] = []
    drawn = 0
    for number, trial in enumerate(TRIALS):
        if drawn < _DRAWN:
            trials.append(_draw(shapes, scope, layer, cuts, trial, number))
            drawn += sum(array.size for array in trials[-1].values())
    trials[-1] = _reaching(layer, trials[-1])
    distinct = [draw for n, draw in enumerate(trials) if n in (0, 3) or _shape(draw) != _shape(trials[0])]
    return Region(nodes, cuts, [*distinct, *_directed(scope, layer, nodes, distinct[0])])


def _reaching(layer: RecognisedLayer, trial: Mapping[str, Array]) -> dict[str, Array]:
    """Return a trial in which functions that a kernel may compute from an exponential read more than float32's can give."""
    steps = [np.concatenate([trial[name].reshape(-1, read.width) for name in read.steps or (read.value,)]) for read in layer.reads]
    factor = reaching(layer.direction, np.concatenate(steps, axis=1), "input")
    names = {name for read in layer.reads for name in (read.steps or (read.value,))}
    return {name: (array * factor).astype(array.dtype) if name in names else array for name, array in trial.items()}


def _directed(scope: Scope, layer: RecognisedLayer, nodes: Sequence[Operation], trial: Mapping[str, Array]) -> list[dict[str, Array]]:
    """Return inputs that meet what nodes compare them with; none where no node compares."""
    numbers = conditions(scope, [*nodes, *(inner for body in bodies(nodes) for inner in body.nodes)])
    sequences = {name: None if read.steps else read.axis for read in layer.reads for name in (read.steps or (read.value,))}
    trials: list[dict[str, Array]] = []
    for variant in directed(trial, sequences, numbers):
        if len(trials) * sum(array.size for array in variant.values()) > _DRAWN:
            raise UnmatchedError("what it compares is more than a proof may hold")
        trials.append(variant)
    return trials


def _shape(inputs: Mapping[str, Array]) -> list[tuple[int, ...]]:
    return [array.shape for array in inputs.values()]


def _level(scope: Scope, shapes: Shapes, layer: RecognisedLayer, name: str) -> str | None:
    """Return the one number that a first state or a factor consists of, whose shape is computed, as text."""
    level = None if scope.constant(name) is not None else everywhere(scope, name)
    if level is None or given_at_run_time(scope, name):  # in this order: the latter goes back through all steps before
        return None
    dims = shapes.dims(scope, name)
    widths = {layer.direction.hidden_size, *(read.width for read in layer.reads if level == 1)}
    return str(level) if dims is not None and len(dims) == layer.rank and dims[-1] in widths else None


def _between(scope: Scope, shapes: Shapes, layer: RecognisedLayer, outputs: Sequence[str], cuts: dict[str, str]) -> list[Operation]:
    """Return the nodes between the inputs of a layer and its outputs; what a loop counts by becomes an input."""
    places = {name: index for index, node in enumerate(scope.nodes) for name in node.outputs if name}
    waiting, selected = list(outputs), set()
    while waiting:
        name = waiting.pop()
        if name in cuts or name in scope.body.stored or not name:
            continue
        index = places.get(name)
        if index is None:
            raise UnmatchedError(f"{name!r}, an input of the model, decides what it computes")
        if index in selected:
            continue
        if scope.constant(name) is None and shapes.number(scope, name) is not None:
            cuts[name] = "known"
            continue
        level = _level(scope, shapes, layer, name)
        if level is not None:
            cuts[name] = level
            continue
        selected.add(index)
        node = scope.nodes[index]
        if node.kind in ("Loop", "Scan") and any(output in node.outputs for output in outputs):
            for operand in node.reads:
                if operand not in cuts and scope.constant(operand) is None and _decides(scope, layer, node, operand):
                    level = _level(scope, shapes, layer, operand)
                    cuts[operand] = level or ("condition" if operand == node.inputs[1] else "count")
        waiting += node.reads
    return [node for index, node in enumerate(scope.nodes) if index in selected]


def _decides(scope: Scope, layer: RecognisedLayer, loop: Operation, name: str) -> bool:
    """Return whether a value that a loop reads is known from the shapes, or is part of when it ends."""
    by_lengths = layer.longest and (name == loop.inputs[1] or longest(scope, name))
    return bool(by_lengths) or not given_at_run_time(scope, name)


def _draw(
    shapes: Shapes, scope: Scope, layer: RecognisedLayer, cuts: Mapping[str, str], trial: tuple[int, int, float], seed: int
) -> dict[str, Array]:
    """Return random inputs for the operators of a layer."""
    random = np.random.default_rng(100 + seed)
    steps, batch, scale = trial
    size = layer.direction.hidden_size
    for read in layer.reads:
        dims = shapes.dims(scope, read.steps[0] if read.steps else read.value)
        if dims is None:
            continue
        if read.steps:
            batch = dims[0] or batch
        elif len(dims) == 3:
            batch, steps = dims[1 - read.axis] or batch, dims[read.axis] or steps
    for name in layer.states.values():
        dims = shapes.dims(scope, name)
        if dims is not None and len(dims) == layer.rank:
            batch = dims[-2] or batch
    steps = layer.steps if layer.steps is not None and not any(read.value for read in layer.reads) else steps
    inputs: dict[str, Array] = {}
    if steps * batch * sum(read.width for read in layer.reads) > _DRAWN:
        raise UnmatchedError(f"its sequences of {steps} steps are larger than a proof may hold")
    for read in layer.reads:
        shape = (batch, read.width) if read.steps else ((batch, steps) if read.axis else (steps, batch)) + (read.width,)
        for name in read.steps or (read.value,):
            inputs[name] = (random.standard_normal(shape) * scale).astype(_type(scope, shapes, name, layer))
    for name, kind in cuts.items():
        if kind == "state":
            shape = (batch, size) if layer.rank == 2 else (1, batch, size)
            inputs[name] = (random.standard_normal(shape) * min(scale, 1.0)).astype(_type(scope, shapes, name, layer))
        elif kind == "mask":
            inputs[name] = _mask(shapes, scope, layer, (steps, batch), random)
        elif kind == "known":
            inputs[name] = np.asarray(shapes.number(scope, name))
        elif kind not in ("read", "condition", "count"):
            width = (shapes.dims(scope, name) or [size])[-1] or size
            shape = (batch, width) if layer.rank == 2 else (1, batch, width)
            inputs[name] = np.full(shape, float(kind), _type(scope, shapes, name, layer))
        elif kind in ("condition", "count"):
            lengths = _lengths(scope, shapes, layer, steps, batch)
            number = counted(scope, shapes, name, lengths, OTHERS[seed % len(OTHERS)], _full(layer, steps))
            inputs[name] = number.astype(_element_type(scope, shapes, name, number.dtype))
    return inputs


def _mask(shapes: Shapes, scope: Scope, layer: RecognisedLayer, sizes: tuple[int, int], random: np.random.Generator) -> Array:
    """Return a random mask: with gaps, and where there are several sequences one without a step that counts."""
    assert layer.mask is not None
    steps, batch = sizes
    if layer.mask.rank == 1:
        lengths = random.integers(1, steps + 1, batch)
        lengths[1:2] = 0
        return np.asarray(lengths.astype(_element_type(scope, shapes, layer.mask.value, np.dtype(np.int32))))
    truths = random.random((steps, batch)) > 0.4
    truths[:, 1:2] = layer.mask.negated
    truths = truths.T if layer.mask.axis else truths
    return np.ascontiguousarray(truths[..., None] if layer.mask.rank == 3 else truths)


def _lengths(scope: Scope, shapes: Shapes, layer: RecognisedLayer, steps: int, batch: int) -> dict[Place, int]:
    """Return the lengths of the axes of what a layer reads, for numbers that are computed from shapes."""
    lengths: dict[Place, int] = {}
    for read in layer.reads:
        if read.value:
            axes = (place(scope, shapes, read.value, axis) for axis in (read.axis, 1 - read.axis))
            lengths |= dict(zip(axes, (steps, batch), strict=True))
    return lengths


def _full(layer: RecognisedLayer, steps: int) -> dict[str, int]:
    """Return the lengths that decide when a loop ends, where all sequences are as long as can be."""
    return {layer.longest: steps} if layer.longest else {}


def _check_long(scope: Scope, shapes: Shapes, layer: RecognisedLayer) -> None:
    """Raise UnmatchedError where a Loop of shapes that no trial has would end before its sequence."""
    if layer.node is None or layer.node.kind != "Loop":
        return
    for steps, batch in _LONG:
        lengths = _lengths(scope, shapes, layer, steps, batch)
        sizes = scope.attributes(layer.node).get("sizes", ()) if layer.longest else ()
        for name, least in [*zip(layer.node.inputs[:2], (steps, 1), strict=True), *((name, steps) for name in sizes)]:
            if name and scope.constant(name) is None and shapes.number(scope, name) is None:
                for other in OTHERS:
                    number = counted(scope, shapes, name, lengths, other, {} if name in sizes else _full(layer, steps))
                    if number.size != 1 or number.reshape(()) < least or (name in sizes and number.reshape(()) > least):
                        raise UnmatchedError(f"it runs {int(number.sum())} steps where its sequence has {steps} ({name!r})")


def _type(scope: Scope, shapes: Shapes, name: str, layer: RecognisedLayer) -> np.dtype:
    return _element_type(scope, shapes, name, layer.direction.dtype)


def _element_type(scope: Scope, shapes: Shapes, name: str, default: np.dtype) -> np.dtype:
    dtype = shapes.kind(scope, name)
    return default if dtype is None else dtype
