"""Recurrent layers that a graph computes in other operators: in a Loop, in a Scan, or step by step.

Each is recognized by what its steps compute, and read only once the operators and the layer give the same numbers on random
inputs; both are computed here, in double precision.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import numpy as np

from rnnconvert.core import reference
from rnnconvert.core.arrays import Array
from rnnconvert.core.claims import proved
from rnnconvert.core.malformed import MALFORMED, in_words, passes
from rnnconvert.core.notes import UNREAD, LayerNote
from rnnconvert.core.weights import Layer, Recurrent
from rnnconvert.files.adapter import unique
from rnnconvert.graphs.program.evaluate import Budget, Evaluation, UnmatchedError, budget_of
from rnnconvert.graphs.program.operations import Operation, Program
from rnnconvert.graphs.program.scopes import Scope
from rnnconvert.graphs.program.shapes import Shapes
from rnnconvert.judging.judging import Allowance, Output, compare
from rnnconvert.recognition import turned
from rnnconvert.recognition.chains import repeats
from rnnconvert.recognition.conditions import decision
from rnnconvert.recognition.inputs import Region, extract
from rnnconvert.recognition.loops import loops
from rnnconvert.recognition.recognised import RecognisedLayer, Use
from rnnconvert.recognition.states import States
from rnnconvert.recognition.steps import steps
from rnnconvert.recognition.uses import UsedGraph

_MASKED = "{mask!r} says which steps of its input count{by}: pass the lengths of its sequences"


@dataclass(frozen=True, eq=False)
class Computed:
    """A layer that other operators compute.

    stack     the layer
    recognised  the layer as its operators show it
    nodes     the operators that compute it
    reads     the values that it reads; before a node turns one around, if it therefore reads from the end
    turned    whether nodes turn around what it reads
    errors    how far its outputs are from the operators' on random inputs
    warnings  warnings for the user about it
    """

    stack: Recurrent
    recognised: RecognisedLayer
    nodes: Sequence[Operation]
    reads: Sequence[str]
    turned: bool
    errors: Sequence[float]
    warnings: Sequence[LayerNote] = ()

    @property
    def inputs(self) -> list[str]:
        """The values that it reads: its sequences, written-out steps of these, its initial states, and which steps count."""
        match = self.recognised
        steps = [step for read in match.reads for step in read.steps]
        mask = [] if match.mask is None else [match.mask.value]
        return [*self.reads, *(read.value for read in match.reads), *steps, *match.states.values(), *mask]

    @property
    def evidence(self) -> str:
        """Why it is read as this layer, in words."""
        what = f"{self.stack.name}: {self.recognised.what}, by what its steps compute"
        return f"{what}; {proved(self.errors, where='on random inputs')}"

    def renamed(self, name: str) -> Computed:
        """Return the layer under another name."""
        warnings = tuple(note.of(name) for note in self.warnings)
        return replace(self, stack=self.stack.replace(name=name), warnings=warnings)


@dataclass(eq=False)
class RecognisedLayers:
    """The layers that were found in a graph.

    layers   the layers by name
    reasons  why what looks like a layer is not read: by the name of its loop, or of the first product of its steps
    scopes   every graph, first the one that was searched
    cells    the names among these whose steps were recognised as a cell's: a layer, no matter what else the graph holds
    """

    layers: dict[str, Computed] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)
    scopes: Sequence[Scope] = ()
    cells: set[str] = field(default_factory=set)

    @property
    def scope(self) -> Scope | None:
        """The graph that was searched; None where nothing was."""
        return next(iter(self.scopes), None)

    @property
    def nodes_by_name(self) -> set[str]:
        """The names of the nodes of all layers."""
        return {node.label for layer in self.layers.values() for node in layer.nodes}

    @property
    def nodes(self) -> set[Operation]:
        """The nodes of all layers."""
        return {node for layer in self.layers.values() for node in layer.nodes}

    def refusals(self) -> list[LayerNote]:
        """Return for each part of the graph that is a layer, and is not read, a sentence with the reason.

        Where nothing is read, any chain of products with one matrix may be one.
        """
        return [
            LayerNote(label, f"what may be the steps of a recurrent layer is not read: {why}", UNREAD)
            for label, why in self.reasons.items()
            if not self.layers or label in self.cells
        ]


def recognise_layers(program: Program, scope: Scope, reserved: Iterable[str], likely: bool) -> RecognisedLayers:
    """Return the layers of a graph that other operators than RNN, GRU and LSTM compute.

    scope   its main graph
    reserved  names of other layers
    likely  whether something in the graph looks like a layer; otherwise only a chain of products with one matrix is one
    """
    done = RecognisedLayers(scopes=(scope,))
    if not (likely or repeats(UsedGraph(scope, Shapes(program)))):
        return done
    shapes = Shapes(program)
    names = set(reserved)
    file_budget = budget_of(program)
    used = set(scope.body.outputs) | {name for node in scope.nodes for name in node.reads}
    looped = ((node, [outcome] if isinstance(outcome, RecognisedLayer) else outcome) for node, outcome in loops(scope, shapes, used))
    candidates = itertools.chain(((node.label, outcome) for node, outcome in looped), steps(scope, shapes))
    for label, forms in _guarded(candidates, done):
        problem: object = forms
        for form in forms if not isinstance(forms, UnmatchedError) else ():
            try:
                if form.partly:
                    done.cells.add(label)
                    raise UnmatchedError(form.partly)
                if form.steps is not None and form.direction.cell.activation.name == "linear":
                    raise UnmatchedError("products and sums without a function between them need not be a layer's steps")
                region = extract(scope, shapes, form)
                errors = prove(scope, form, region, Budget(overall=file_budget))
                name = unique(form.label, names)
                names.add(name)
                done.layers[name] = _layer(program.path, (scope, shapes), name, form, region, errors)
                break
            except UnmatchedError as error:
                problem = problem if isinstance(problem, UnmatchedError) else error
            except MALFORMED as error:
                if passes(error):
                    raise
                problem = f"a node is not as its operator asks ({in_words(error)})"
        else:
            done.reasons.setdefault(label, str(problem))
    for label in done.nodes_by_name & done.reasons.keys():
        del done.reasons[label]  # a part of a layer that is read
    return done


def _guarded(
    candidates: Iterable[tuple[str, list[RecognisedLayer] | UnmatchedError]], done: RecognisedLayers
) -> Iterable[tuple[str, list[RecognisedLayer] | UnmatchedError]]:
    """Yield the candidates, up to a node that breaks the rules of its operator."""
    try:
        yield from candidates
    except MALFORMED as error:
        if passes(error):
            raise
        done.reasons.setdefault("", f"a node is not as its operator asks ({in_words(error)})")


def _layer(path: Path, place: tuple[Scope, Shapes], name: str, layer: RecognisedLayer, region: Region, errors: Sequence[float]) -> Computed:
    scope, shapes = place
    direction = layer.direction
    states = States(path, scope, name, (1, direction.hidden_size), direction.get("recurrent", direction.cell.gates[0]))
    for letter, part in (("h", "initial_hidden"), ("c", "initial_cell")):
        if letter in layer.states:
            states.add(part, layer.states[letter])
    sequences = [use for use in layer.uses if use.kind == "sequence"]
    # Where the last outputs alone are read the order of the others is nobody's, and every framework has "time".
    order: Literal["time", "processing"] = "processing" if layer.processing and sequences else "time"
    inputs = [name for read in layer.reads for name in (read.steps or (read.value,))]
    unsliced = not direction.reverse and not any(read.steps or read.window for read in layer.reads)
    sources = [turned.sequence_before_reversal(scope, shapes, read.value, read.axis) if unsliced else "" for read in layer.reads]
    if all(sources):
        back = all(use.rank == 2 and turned.is_turned(scope, shapes, use.value, use.axis) for use in sequences)
        inputs, order = sources, "time" if back else "processing"
        direction = direction.replace(reverse=True)
    warnings = list(states.warnings)
    if layer.mask is not None:
        masked = turned.sequence_before_reversal(scope, shapes, layer.mask.value, layer.mask.axis) if layer.mask.rank > 1 else ""
        if all(sources) != bool(masked):
            raise UnmatchedError(f"its mask {layer.mask.value!r} is not turned around as its sequence is")
        words = decision(scope, layer.mask.value)
        sentence = _MASKED.format(mask=masked or layer.mask.value, by=words and f", by {words}")
        warnings.append(LayerNote(name, sentence))
        if any(use.fill == "zero" for use in layer.uses):
            warnings.append(LayerNote(name, "its outputs are zero where its input is masked"))
    stack = Recurrent(
        name, (Layer((direction.with_arrays(states.learned[0]),)),), output_order=order, unconvertible=tuple(states.unconvertible)
    )
    begun = [node for node in _zero_start_nodes(scope, layer, region) if all(node is not other for other in region.nodes)]
    return Computed(stack, layer, [*begun, *region.nodes], inputs, all(sources), errors, tuple(warnings))


def _zero_start_nodes(scope: Scope, layer: RecognisedLayer, region: Region) -> list[Operation]:
    """Return the nodes that make the zeros with which a copy of the output begins: Keras takes a step for their shape."""
    selected: set[Operation] = set()
    waiting = list(layer.zeros)
    while waiting:
        producer = scope.producer(waiting.pop())
        if producer is not None and producer[0] not in selected:
            selected.add(producer[0])
            waiting += [name for name in producer[0].reads if region.cuts.get(name) not in ("read", "state", "mask")]
    return [node for node in scope.nodes if node in selected]


_SHAKES = 2


def prove(scope: Scope, layer: RecognisedLayer, region: Region, budget: Budget) -> list[float]:
    """Return how far each output of the layer is from that of the operators. Raises UnmatchedError unless all are the same."""
    outputs = [use.value for use in layer.uses]
    errors, informative = list[float](), False
    for number, trial in enumerate(region.trials):
        truth = Evaluation(scope, trial, budget).run(region.nodes, outputs)
        finite = [np.isfinite(array) for array in truth]
        if not all(mask.all() for mask in finite) and all(np.isfinite(array).all() for array in trial.values()):
            continue
        expected = _reference_outputs(scope, layer, trial)
        informative = informative or len(expected.y) > 1 or bool(set(layer.states.values()) & trial.keys())
        shaken = [Evaluation(scope, trial, budget, np.random.default_rng(seed)).run(region.nodes, outputs) for seed in range(_SHAKES)]
        for place, use in enumerate(layer.uses):
            new = _form(use, expected if layer.mask is None else _spread(layer, use, expected, trial))
            if new.shape != truth[place].shape:
                raise UnmatchedError(
                    f"recognized as {layer.operator}, but {use.value!r} is of the shape {truth[place].shape}, not {new.shape}"
                )
            there = finite[place]
            allowance = Allowance([np.where(there, other[place], 0) for other in shaken], layer.direction.dtype)
            old, new = np.where(there, truth[place], 0), np.where(there, new, 0)
            comparison = compare(Output(f"trial {number}", use.value), new, old, allowance)
            if not comparison.passed:
                raise UnmatchedError(f"recognized as {layer.operator}, but {use.value!r} is off by {comparison.error:.2g}")
            errors += [comparison.error] if new.size else []
    if errors and not informative:
        raise UnmatchedError("it runs one step from a stored state, which does not show its recurrent matrices")
    if not errors:
        raise UnmatchedError(f"recognized as {layer.operator}, but nothing could be compared")
    return errors


def _reference_outputs(scope: Scope, layer: RecognisedLayer, trial: Mapping[str, Array]) -> reference.Outputs:
    """Return the layer's outputs for random inputs."""
    sequences = []
    for read in layer.reads:
        sequence = np.stack([trial[name] for name in read.steps]) if read.steps else np.moveaxis(trial[read.value], read.axis, 0)
        sequences.append(sequence[slice(*read.window)] if read.window is not None else sequence)
    x = np.concatenate(sequences, axis=2).astype(np.float64)
    size = layer.direction.hidden_size
    states = {}
    for letter, name in layer.states.items():
        state = trial[name] if name in trial else scope.constant(name)
        if state is None:
            raise UnmatchedError(f"{name!r}, its first state, is not known")
        states[letter] = np.broadcast_to(np.asarray(state, np.float64), (*[1] * (layer.rank - 2), x.shape[1], size)).reshape(-1, size)
    stack = Recurrent(layer.label, (Layer((layer.direction,)),), output_order="processing" if layer.processing else "time")
    hidden, cell = ((states[letter],) if letter in states else None for letter in "hc")
    if layer.mask is None:
        return reference.run(stack, x, hidden, cell)
    order, lengths = _counting(layer, trial, x.shape[0])
    return reference.run(stack, np.take_along_axis(x, order[:, :, None], 0), hidden, cell, lengths)


def _steps(layer: RecognisedLayer, trial: Mapping[str, Array], steps: int) -> Array:
    """Return which steps count: (time, batch)."""
    assert layer.mask is not None
    mask = trial[layer.mask.value]
    if layer.mask.rank == 1:
        return np.asarray(np.arange(steps)[:, None] < mask[None])
    truths = np.moveaxis(mask, layer.mask.axis, 0).astype(bool)
    return np.asarray((truths[..., 0] if layer.mask.rank == 3 else truths) != layer.mask.negated)


def _counting(layer: RecognisedLayer, trial: Mapping[str, Array], steps: int) -> tuple[Array, Array]:
    """Return the steps of each sequence with those that count in front, and how many count."""
    counts = _steps(layer, trial, steps)
    return np.argsort(~counts, axis=0, kind="stable"), counts.sum(0)


def _spread(layer: RecognisedLayer, use: Use, outputs: reference.Outputs, trial: Mapping[str, Array]) -> reference.Outputs:
    """Return the outputs of a layer with a mask at each step and at the end, from its outputs for the steps that count."""
    counts = _steps(layer, trial, len(outputs.y))
    before = np.cumsum(counts, 0)
    y = np.take_along_axis(outputs.y, np.maximum(before - 1, 0)[:, :, None], 0)
    first: Array | float = 0.0
    if use.fill == "state" and "h" in layer.states:
        first = np.asarray(trial.get(layer.states["h"], np.zeros(())), np.float64).reshape(-1, y.shape[2])
        first = np.broadcast_to(first, y.shape[1:])
    valid = counts if use.fill == "zero" else before > 0
    y = np.where(valid[:, :, None], y, first)
    hidden = (y[-1],) if use.fill == "output" else outputs.hidden
    return replace(outputs, y=y, hidden=hidden)


def _form(use: Use, outputs: reference.Outputs) -> Array:
    """Return the layer's outputs in the form in which they are used."""
    if use.kind == "sequence":
        sequence = outputs.y[:, None] if use.rank == 3 else outputs.y
        return np.moveaxis(sequence, 0, use.axis)
    state = outputs.y[use.step] if use.kind == "step" else (outputs.hidden if use.kind == "hidden" else outputs.cell)[0]
    return state[None] if use.rank == 3 else state
