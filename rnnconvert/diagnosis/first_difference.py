"""Where a difference begins: case, output, layer, direction, time step and gate, in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from rnnconvert.comparison.difference import Difference
from rnnconvert.core.arrays import Array
from rnnconvert.core.reference import Outputs
from rnnconvert.core.weights import Recurrent
from rnnconvert.judging.case_kinds import Case
from rnnconvert.judging.measure import Deviation, Measure, distance

Offs = Sequence[Mapping[str, Deviation]]


def place(stack: Recurrent, layer: int, number: int) -> str:
    """Name a direction of a layer in words."""
    words = [f"layer {layer}"] if stack.num_layers > 1 else []
    if len(stack.layers[layer].directions) > 1:
        words.append("the backward direction" if number else "the forward direction")
    return ", ".join(words)


def shapes(measures: Sequence[Measure], answers: Sequence[tuple[Case, Outputs]]) -> Iterator[str]:
    """Yield the outputs of other shapes than expected, each once."""
    reported = set()
    for measure, (_, outputs) in zip(measures, answers, strict=True):
        truth = measure.truth
        for name, arrays, other in (
            ("y", (outputs.y,), (truth.y,)),
            ("h_n", outputs.hidden, truth.hidden),
            ("c_n", outputs.cell, truth.cell),
        ):
            got, expected = [a.shape for a in arrays or ()], [a.shape for a in other]
            if got and expected and got != expected and name not in reported:
                reported.add(name)
                yield f"{name} has the shape {_shapes(got)}, expected {_shapes(expected)}"


def _shapes(shapes_: Sequence[tuple[int, ...]]) -> str:
    return str(shapes_[0]) if len(set(shapes_)) == 1 else ", ".join(map(str, shapes_))


def where(stack: Recurrent, measures: Sequence[Measure], offs: Offs, answers: Sequence[tuple[Case, Outputs]]) -> Iterator[str]:
    """Yield which outputs differ, and where the first difference is."""
    bad = [{name for name, off in by_output.items() if off.ratio > 1} for by_output in offs]
    every = set().union(*bad)
    cases = [case for case, _ in answers]
    yield from _only(every, bad, cases)
    states = {name for name in every if name.startswith(("h_n", "c_n"))}
    begins = _first_layer(stack, states)
    wrong = [number for number, outputs in enumerate(bad) if "y" in outputs]
    steps = ""
    if wrong:
        number = wrong[0]
        begins, steps = _in_y(stack, measures[number], answers[number][1], begins)
    if begins or steps:
        yield "the difference begins at " + ", ".join(word for word in (begins, steps) if word)


def _only(every: set[str], bad: Sequence[set[str]], cases: Sequence[Case]) -> Iterator[str]:
    """Yield the traits that every differing output shares and no equal output has."""
    if every == {"y, padded steps"}:
        yield "only padded steps differ"
    elif every and all(name.startswith(("h_n", "c_n")) for name in every):
        yield "only final states differ" + ("; of them only cell states" if all(n[0] == "c" for n in every) else "")
    off = [case for case, outputs in zip(cases, bad, strict=True) if outputs]
    right = [case for case, outputs in zip(cases, bad, strict=True) if not outputs]
    if not right or not off:
        return
    if all(case.lengths is not None for case in off) and all(case.lengths is None for case in right):
        yield "only sequences shorter than the longest differ"
    elif all(case.hidden is not None for case in off) and all(case.hidden is None for case in right):
        yield "it differs only where initial states are given"
    elif all(case.hidden is None for case in off) and all(case.hidden is not None for case in right):
        yield "it differs only where no initial states are given"
    elif all(case.way != "whole" for case in off) and all(case.way == "whole" for case in right):
        yield "it differs only where a sequence is fed in parts"
    elif all(len(case.x) > 1 for case in off) and all(len(case.x) == 1 for case in right):
        yield "a single step is right: it differs from the second on"
    else:
        yield f"it differs in the cases {_listed(off)}, but not in {_listed(right)}"


def _listed(cases: Sequence[Case]) -> str:
    return ", ".join(repr(case.name) for case in cases)


def _first_layer(stack: Recurrent, states: set[str]) -> str:
    """Return the first layer whose final state is off, and its direction if the other is right."""
    count = stack.num_layers * stack.num_directions
    if not states or count == 1:
        return ""
    numbers = sorted({int(name.partition("[")[2].rstrip("]") or 0) for name in states})
    order = [(index, side) for index, side, _ in stack.directions()]
    if numbers[-1] >= len(order):
        return ""
    layer = order[numbers[0]][0]
    sides = [order[number][1] for number in numbers if order[number][0] == layer]
    if len(sides) == len(stack.layers[layer].directions):
        return f"layer {layer}" if stack.num_layers > 1 else ""
    return place(stack, layer, sides[0])


def _in_y(stack: Recurrent, measure: Measure, outputs: Outputs, begins: str) -> tuple[str, str]:
    """Return the direction, where the halves of the output show it, and the first time step that is off in processing order."""
    truth, mask = measure.truth.y, measure.masks["y"]
    if outputs.y.shape != truth.shape:
        return begins, ""
    error = distance(outputs.y, truth, mask)
    ratio = error / measure.allowed["y"]
    ratio = np.where(error == 0, 0.0, ratio)
    last = stack.layers[-1]
    backwards = stack.num_directions == 1 and stack.first.reverse
    if len(last.directions) == 2 and last.merge in ("concat", "none"):
        cut = last.directions[0].output_size if not stack.readout else stack.readout[0].shape[0]
        halves = [ratio[..., :cut], ratio[..., cut:]]
        off = [bool((half > 1).any()) for half in halves]
        if off.count(True) == 1 and stack.num_layers == 1:
            side = off.index(True)
            return place(stack, 0, side), _step(halves[side], bool(side), measure.case)
        if stack.num_layers > 1 and not begins and off.count(True) == 1:
            return place(stack, stack.num_layers - 1, off.index(True)), ""
        return begins, _step(halves[0], False, measure.case) if off[0] and stack.num_layers == 1 else ""
    if len(last.directions) == 2 or (stack.num_layers > 1 and stack.num_directions == 2):
        return begins, ""
    return begins, _step(ratio, backwards and stack.output_order == "time", measure.case)


def _step(ratio: Array, backwards: bool, case: Case) -> str:
    """Return the first time step that is off, in the order of processing."""
    steps = np.flatnonzero((ratio > 1).any(axis=(1, 2)))
    if not steps.size:
        return ""
    first = int(steps[-1] if backwards else steps[0])
    last = len(case.x) - 1
    begins = first == (last if backwards else 0)
    if begins and backwards:
        words = ", the first that it processes"
    elif begins:
        words = ", the first"
    else:
        words = ""
    return f"time step {first}{words}"


def gates(differences: Sequence[Difference]) -> Iterator[str]:
    """Yield the parts and gates in which the weights differ, and what else the files state differently."""
    features = [difference.words for difference in differences if difference.kind in ("feature", "shape") and not difference.equal]
    if features:
        yield "the files differ in: " + "; ".join(dict.fromkeys(features))
    off = [difference for difference in differences if difference.kind == "weights" and not difference.equal]
    by_part: dict[str, list[str]] = {}
    for unequal in off:
        letters = by_part.setdefault(unequal.part, [])
        if unequal.gate and unequal.gate not in letters:
            letters.append(unequal.gate)
    if by_part:
        worst = max(off, key=lambda difference: difference.relative)
        parts = [part + (f" of {', '.join(letters)}" if letters else "") for part, letters in by_part.items()]
        gate = f", gate {worst.gate}" if worst.gate else ""
        yield f"the weights differ in: {'; '.join(parts)} (most in {worst.part}{gate}: by {worst.error:.3g})"
