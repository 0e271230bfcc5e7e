"""Inputs of a layer under which a wrong conversion shows: sequences, initial states, lengths, and how they are fed.

With zero biases a summed bias is right by chance; with one step and a zero state even a wrong reset gate is. So inputs, states and lengths
are random and distinct. bfloat16 holds every number, so that models of all element types receive the same ones.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rnnconvert.core.arguments import unknown
from rnnconvert.core.arrays import Array, Deferred, Source, epsilon
from rnnconvert.core.errors import UsageError
from rnnconvert.core.printable import quoted
from rnnconvert.core.reference import FUNCTIONS, Function, Outputs
from rnnconvert.core.remedies import Flag
from rnnconvert.core.weights import Recurrent
from rnnconvert.judging.case_kinds import CASES, Case, Maker, Skipped, size_in_words, state_widths
from rnnconvert.rewrites import each


def solved(
    stack: Recurrent, cases: Sequence[Case], dtype: Any = np.float64, functions: Mapping[str, Function] = FUNCTIONS
) -> list[Outputs]:
    """Return the reference's outputs for each case, in that element type, with these functions.

    Cases of about as many steps run as one batch: what takes the time of a large layer is to read its weights.
    """
    by_number: dict[int, Outputs] = {}
    # In processing order the padding of a shorter case would come first.
    short = [len(case.x) for case in cases if len(case.x) <= _PADDED and stack.output_order == "time"]
    lengths = [max(len(case.x), max(short, default=0)) for case in cases]
    for steps in dict.fromkeys(lengths):
        alike = [number for number, length in enumerate(lengths) if length == steps]
        batch = _together(stack, [cases[number] for number in alike], steps)
        outputs, start = batch.solve(stack, dtype, functions=functions), 0
        for number in alike:
            rows = slice(start, start + cases[number].x.shape[1])
            hidden, cell = (tuple(state[rows] for state in states) for states in (outputs.hidden, outputs.cell))
            by_number[number], start = Outputs(outputs.y[: len(cases[number].x), rows], hidden, cell), rows.stop
    return [by_number[number] for number in range(len(cases))]


_PADDED = 32
"""The most steps to which a shorter case is padded to run with others."""


def _together(stack: Recurrent, cases: Sequence[Case], steps: int) -> Case:
    """Return cases as one of so many steps, with what each leaves to the layer written out where another does not."""
    if len(cases) == 1 and len(cases[0].x) == steps:
        return cases[0]

    def states(which: str) -> tuple[Array, ...] | None:
        stated, widths = [getattr(case, which) or None for case in cases], state_widths(stack)[which == "cell"]
        if not any(stated) or not widths:  # cases made for an LSTM have cell states, which another cell does not read
            return None
        defaults = [
            state if state is not None else np.zeros(width, np.float32)
            for state, width in zip([d.get(f"initial_{which}") for *_, d in stack.directions()], widths, strict=True)
        ]
        full = [
            given_states or tuple(np.broadcast_to(np.asarray(state), (case.x.shape[1], np.size(state))) for state in defaults)
            for given_states, case in zip(stated, cases, strict=True)
        ]
        return tuple(np.concatenate([filled[number] for filled in full]) for number in range(len(defaults)))

    lengths = None
    if any(case.lengths is not None or len(case.x) < steps for case in cases):
        case_lengths = [np.full(case.x.shape[1], len(case.x)) if case.lengths is None else case.lengths for case in cases]
        lengths = np.concatenate(case_lengths)
    x = np.concatenate([np.pad(case.x, ((0, steps - len(case.x)), (0, 0), (0, 0))) for case in cases], axis=1)
    return Case("together", "", x, states("hidden"), states("cell"), lengths)


def farthest(exact: Array, *roundings: Array) -> Array:
    """Return for each number the estimate that is farthest from the exact one."""
    best, *others = (value.astype(np.float64) for value in roundings)
    for other in others:
        with np.errstate(all="ignore"):
            # What is not finite is the worst that there is.
            nearer = np.abs(best - exact) < np.abs(other - exact)
        best = np.where(nearer & np.isfinite(best), other, best)
    return best


def worse(truth: Outputs, *rough: Outputs) -> Outputs:
    """Return how far rounding in an element type leads: of several estimates of each number, the one that is farthest from
    the truth, since each may be lucky.

    One is what the reference computes in that element type, the other what it computes in float64 from `shaken` weights.
    """

    def all_of(name: str) -> tuple[Array, ...]:
        return tuple(map(farthest, getattr(truth, name), *(getattr(outputs, name) for outputs in rough)))

    return Outputs(farthest(truth.y, *(outputs.y for outputs in rough)), all_of("hidden"), all_of("cell"))


_SIGNS = 65_521
"""How many random signs there are; a prime, so that no two rows of a matrix get the same."""


def shaken(stack: Recurrent, dtype: Any = np.float64) -> Recurrent:
    """Return the stack in float64, each weight one unit in the last place of a type off, up or down at random."""
    starts = itertools.count(0, 8191)
    eps = epsilon(dtype)
    factors = 1 + eps * np.random.default_rng(0).choice([-1.0, 1.0], _SIGNS)

    def shake(source: Source) -> Source:
        start = next(starts) % _SIGNS

        def shaken() -> Array:
            values = np.asarray(source).astype(np.float64)
            flat = values.ravel(order="K")
            for at in range(-start, flat.size, _SIGNS):
                part = flat[max(at, 0) : at + _SIGNS]
                part *= factors[max(-at, 0) :][: len(part)]
            return flat.reshape(values.shape, order="F" if values.flags.f_contiguous else "C")

        return Deferred(tuple(source.shape), np.dtype(np.float64), shaken)

    return each(stack, lambda d: d.with_arrays({key: shake(source) for key, source in d.arrays.items()}))


_IN_PARTS = ("halves", "step by step")
"""The cases that carry a state over from one part of a sequence to the next."""


def _why_not(name: str, stack: Recurrent) -> str:
    """Return why a case does not apply to a layer; "" if it does."""
    if name not in _IN_PARTS:
        return ""
    if any(d.reverse for *_, d in stack.directions()):
        return "a layer that reads backwards needs the whole sequence"
    if stack.output_order != "time":
        return "the state of a layer in processing order cannot be carried over between halves"
    return ""


_COPIES = 4
"""As how many float64 numbers each number of a case and of its outputs is held at the least, while it is run and judged."""

DEFAULT_CASES = ("states", "default states", "lengths", "halves", "one step", "saturating")
"""The cases of a comparison that names none."""


@dataclass(frozen=True)
class Draw:
    """Which random cases are drawn; equal draws give a layer equal numbers.

    cases    their names, in CASES
    batch    how many sequences
    time     how many steps
    lengths  of the case "lengths", instead of random ones; the batch is as many
    """

    cases: Sequence[str] = DEFAULT_CASES
    seed: int = 0
    batch: int = 4
    time: int = 12
    lengths: Sequence[int] | None = None


def cases(stack: Recurrent, draw: Draw = Draw(), gradients: bool = False) -> tuple[list[Case], list[Skipped]]:
    """Return random cases for a layer, and those that do not apply to it.

    gradients  whether gradients are compared too

    Raises UsageError for an unknown case, and for sizes too small to tell right from wrong.
    """
    names, seed, batch, time, lengths = draw.cases, draw.seed, draw.batch, draw.time, draw.lengths
    if lengths is not None:
        batch, time = len(lengths), max([time, *lengths])
        if any(length < 0 for length in lengths):
            raise UsageError(f"a length cannot be negative: {', '.join(map(str, lengths))}")
    if time < 3 or batch < 1:
        raise UsageError(f"a wrong reset gate shows only with at least 3 steps and a batch of 1. Got {time} and {batch}; ask for more")
    if not names or seed < 0:
        raise UsageError("no cases given. Name at least one" if not names else f"a seed cannot be negative: {seed}")
    needed = _COPIES * 8 * time * batch * (stack.input_size + sum(d.output_size for *_, d in stack.directions()))
    if needed > _memory():
        raise UsageError(
            f"{time} steps of {batch} sequences would take about {needed / 1e9:,.0f} GB for {quoted(stack.name)}, but this machine has "
            f"{_memory() / 1e9:,.0f}. Ask for fewer with {Flag('time')} and {Flag('batch')}"
        )
    strange = [name for name in names if name not in CASES]
    if strange:
        raise unknown("case", strange[0], CASES)
    result: list[Case] = []
    skipped: list[Skipped] = []
    for name in names:
        why = _why_not(name, stack)
        if why:
            skipped.append(Skipped(name, why))
            continue
        # A seed for each, so that a case has the same numbers whatever others are asked for.
        drawn = CASES[name](Maker(stack, seed + 1000 * list(CASES).index(name), batch, time))
        if name == "lengths" and lengths is not None:
            drawn = replace(drawn, lengths=np.asarray(lengths))
        result.append(weighed(drawn, stack, seed) if gradients and drawn.way == "whole" else drawn)
    return result, skipped


def _memory() -> float:
    """Return the number of bytes that this machine has; infinity where it is unknown."""
    try:
        return float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (AttributeError, ValueError, OSError):
        return float("inf")


def weighed(case: Case, stack: Recurrent, seed: int) -> Case:
    """Return the case with random weights for its outputs, so that gradients are compared too."""
    maker = Maker(stack, seed + 7, case.x.shape[1], len(case.x))
    # A single step shows how wide everything is.
    outputs = replace(case, x=case.x[:1], lengths=None).solve(stack, np.float32)
    y = maker.numbers(*case.x.shape[:2], outputs.y.shape[2])
    if case.lengths is not None:
        y *= (np.arange(len(y))[:, None] < case.lengths)[:, :, None]
    hidden = tuple(maker.numbers(*state.shape) for state in outputs.hidden)
    cell = tuple(maker.numbers(*state.shape) for state in outputs.cell)
    return replace(case, cotangents=Outputs(y, hidden, cell))


def sample_case(x: Array, states: Iterable[Array] = (), lengths: Array | None = None, *, stack: Recurrent) -> Case:
    """Return a user's own input as a case.

    x       (time, batch, in)
    states  initial hidden, then of an LSTM initial cell states, each (layers * directions, batch, .); none for the default

    Raises UsageError for shapes that do not fit the layer.
    """
    states = list(states)
    strange = [array.dtype for array in [x, *states] if array.dtype.kind not in "fiu"]
    strange += [] if lengths is None or lengths.dtype.kind in "iu" else [lengths.dtype]
    if strange:
        raise UsageError(f"the input given holds {strange[0]}. Give x and states as real numbers, lengths as integers")
    if states and len(states) != (needed := 2 if stack.cell.kind == "lstm" else 1):
        raise UsageError(f"{len(states)} initial states for {quoted(stack.name)}, expected {needed} or none")
    if x.ndim != 3 or x.shape[2] != stack.input_size or not x.size:
        raise UsageError(f"x has the shape {x.shape}, expected (time, batch, {stack.input_size}) for {quoted(stack.name)}")
    batch = x.shape[1]
    split: dict[str, tuple[Array, ...]] = {}
    for word, array, widths in zip(("hidden", "cell"), states, state_widths(stack), strict=False):
        if array.ndim != 3 or [a.shape for a in array] != [(batch, width) for width in widths]:
            raise UsageError(f"{word} has the shape {array.shape}, expected ({len(widths)}, {batch}, {widths[0]}) for {quoted(stack.name)}")
        split[word] = tuple(array)
    if lengths is not None and (lengths.shape != (batch,) or lengths.min() < 0 or lengths.max() > len(x)):
        raise UsageError(f"lengths are {lengths}, expected {batch} integers from 0 to {len(x)}")
    what = f"the input given; {size_in_words(len(x), batch)}"
    return Case("given", what, x, split.get("hidden"), split.get("cell"), lengths)
