"""A recognized layer against the operations that it stands for: both compute random sequences, and give the same numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from rnnconvert.core import reference
from rnnconvert.core.arrays import Array
from rnnconvert.core.weights import Layer, Recurrent
from rnnconvert.graphs.program.evaluate import Budget, Evaluation, UnmatchedError
from rnnconvert.graphs.program.scopes import Scope
from rnnconvert.judging.judging import Allowance, Output, compare
from rnnconvert.recognition.inputs import Region
from rnnconvert.recognition.recognised import RecognisedLayer, Use

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
