"""Experiments on what cuDNN's documentation leaves open: candidate equations are computed, and one must match alone.

A candidate matches if outputs and gradients are within what rounding explains; the answer is settled if in every
configuration exactly one matches, the same one, and every other is in some configuration off by FAR times what is allowed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from rnnconvert.core.arrays import Array
from rnnconvert.core.weights import Recurrent
from rnnconvert.formats.cudnn import run_library as cudnn_library
from rnnconvert.rewrites import each
from tests.gpu import flat
from tests.gpu.problems import BATCH, LENGTHS, Config, Solved
from tests.gpu.records import ANSWERED, OPEN
from tests.gpu.work import Case, Outcome, Work
from tests.helpers.cudnn_standin import StandIn
from tests.helpers.judging import FACTOR, ULPS

FAR = 100
CLIP = (-0.125, 0.25)
NEITHER = "none of these"


def cases(work: Work) -> list[Case]:
    """One case a question."""
    return [
        Case("a GRU with a single recurrent bias", lambda: single_bias(work, "single_rec")),
        Case("a GRU with a single input bias", lambda: single_bias(work, "single_inp")),
        Case("where the clip of an LSTM applies", lambda: clip_of_lstm(work)),
        Case("what a clip's gradient is", lambda: clip_gradient(work)),
        Case("what a clip does to a GRU", lambda: clip_of_another(work, "gru")),
        Case("what a clip does to a plain RNN", lambda: clip_of_another(work, "rnn_tanh")),
        Case("the final states of an empty sequence", lambda: empty_sequence(work)),
        Case("a projection as wide as the layer", lambda: full_projection(work)),
    ]


Distances = Mapping[str, tuple[float, float]]
"""For each candidate how far it is off: in units of what is allowed, and by itself."""


def settled(question: str, distances: Mapping[str, Distances], note: str = "") -> Outcome:
    """Weigh what every configuration gives, by its name."""
    matching = {name: [candidate for candidate, (ratio, _) in each_.items() if ratio <= 1] for name, each_ in distances.items()}
    first = next(iter(matching.values()))
    alone = len(first) == 1 and all(candidate == first for candidate in matching.values())
    others = [candidate for candidate in next(iter(distances.values())) if [candidate] != first]
    far = alone and all(max(each_[candidate][0] for each_ in distances.values()) >= FAR for candidate in others)
    answer = first[0] if alone and far else ""
    facts = {
        "question": question, "answer": answer, "note": note,
        "configurations": {
            name: {candidate: {"times allowed": ratio, "largest difference": error} for candidate, (ratio, error) in each_.items()}
            for name, each_ in distances.items()
        },
    }  # fmt: skip
    if answer:
        return Outcome(ANSWERED, f"{answer}", facts=facts)
    kinds = {", ".join(candidate) or NEITHER for candidate in matching.values()}
    why = f"matching: {'; '.join(sorted(kinds))}" if not alone else f"{first[0]} matches, but others are near"
    return Outcome(OPEN, why, facts=facts)


def distance(actual: Sequence[Array], exact: Sequence[Array], rough: Sequence[Array], dtype: str) -> tuple[float, float]:
    """How far arrays are from a candidate's: the worst in units of what is allowed, and the largest difference."""
    eps = float(ml_dtypes.finfo(dtype).eps)
    worst, largest = 0.0, 0.0
    for array, reference, noisy in zip(actual, exact, rough, strict=True):
        error = float(np.abs(np.asarray(array, np.float64) - reference).max(initial=0.0))
        noise = float(np.abs(np.asarray(noisy, np.float64) - reference).max(initial=0.0))
        allowed = FACTOR * noise + 4 * ULPS * eps * max(1.0, float(np.abs(reference).max(initial=0.0)))
        worst, largest = max(worst, error / allowed), max(largest, error)
    return (worst, largest) if np.isfinite(worst) else (float("inf"), float("inf"))


def _rows(answer: Mapping[str, Any]) -> list[Array]:
    """y, the final states, and the gradients of x and of the initial states."""
    slopes = answer["gradients"]
    rows = [answer["y"], *answer["hidden"], *answer["cell"], slopes["x"], *slopes["hidden"], *slopes["cell"]]
    return [np.asarray(row, np.float64) for row in rows]


def _by_reference(solved: Solved, stack: Recurrent, dtype: str = "float64") -> list[Array]:
    """The same of a candidate that the reference can compute."""
    candidate = Solved(solved.config, stack)
    outputs, slopes = candidate.outputs(dtype), candidate.gradients(dtype)
    rows = [outputs.y, *outputs.hidden, *outputs.cell, slopes.x, *slopes.hidden, *slopes.cell]
    return [np.asarray(row, np.float64) for row in rows]


# The candidate's bias of a GRU


def single_bias(work: Work, mode: str, reading: Callable[[Recurrent], Recurrent] = lambda stack: stack) -> Outcome:
    """Is the candidate's single bias inside the reset product, n = act(W x + r * (R h + b)), or outside of it?

    reading  what the stand-in takes the weights for
    """
    distances: dict[str, Distances] = {}
    configs = [
        Config("gru", layers, directions, mode, io=io, dtype=dtype)
        for layers, directions, io, dtype in (
            (1, 1, "unpadded", "float64"), (1, 1, "unpadded", "float32"), (2, 2, "unpadded", "float32"),
            (2, 2, "padded", "float32"), (1, 2, "packed", "float32"), (1, 1, "unpadded", "float16"),
        )
    ]  # fmt: skip
    for config in configs:
        solved = Solved(config)
        answer = _answer(work, solved, StandIn(solved.description, reading))
        places = {
            "inside the reset product": "recurrent_bias", "outside the reset product": "input_bias", "left out": "",
        }  # fmt: skip
        rows = _rows(answer)
        each_: dict[str, tuple[float, float]] = {}
        for name, part in places.items():
            stack = _moved(solved.configured, mode, part)
            each_[name] = distance(rows, _by_reference(solved, stack), _by_reference(solved, stack, config.dtype), config.dtype)
        distances[config.name] = each_
    side = "recurrent" if mode == "single_rec" else "input"
    return settled(f"Where is the candidate's bias of a GRU with a single {side} bias?", distances)


def _moved(stack: Recurrent, mode: str, part: str) -> Recurrent:
    """The stack with the candidate's bias in another part; without it for ""."""
    stored_in = "recurrent_bias" if mode == "single_rec" else "input_bias"

    def change(direction: Any) -> Any:
        arrays = {key: source for key, source in direction.arrays.items() if key[0] != stored_in}
        for gate in direction.cell.gates:
            bias = direction.arrays[stored_in, gate]
            if gate != "n":
                arrays["input_bias", gate] = bias
                arrays["recurrent_bias", gate] = np.zeros_like(bias)
            else:
                for name in ("input_bias", "recurrent_bias"):
                    arrays[name, gate] = bias if name == part else np.zeros_like(bias)
        return direction.with_arrays(arrays)

    return each(stack, change)


def _answer(work: Work, solved: Solved, standing_in: StandIn | None = None, **changes: Any) -> dict[str, Any]:
    return flat.solve(work, solved, standing_in=standing_in, **{"cotangents": solved.cotangents, **changes})


# The clip

Step = Callable[..., Any]


def clipped_lstm(solved: Solved, place: str, slope: str = "zero", dtype: str = "float64") -> list[Array]:
    """Outputs and gradients of an LSTM whose clip applies at one of these places, by torch's automatic differentiation.

    place  "where it is read"   the cell state is clipped as a step reads it, and as its output does; the final one is not
           "where it is read, and the final one"
           "before the output"  the new cell state is clipped, and the output sees it clipped
           "carried only"       the output sees it unclipped, the next step clipped
           "final only"         the final cell state alone
           "gates", "output"    every pre-activation; the hidden state
           "nowhere"
    slope  what the gradient is where the clip applies: "zero" or "passed on"
    """
    import torch

    kind = getattr(torch, dtype)
    low, high = solved.config.clip or CLIP

    def leaf(value: Any) -> Any:
        return torch.tensor(np.asarray(value).astype(np.float64)).to(kind).requires_grad_()

    def bound(value: Any) -> Any:
        held = value.clamp(low, high)
        return held if slope == "zero" else value + (held - value).detach()

    read = place.startswith("where it is read")
    x, hidden, cell = leaf(solved.x), [leaf(h) for h in solved.given_hidden], [leaf(c) for c in solved.given_cell]
    steps = len(solved.x)
    lengths = solved.config.lengths if solved.config.lengths is not None else np.full(BATCH, steps)
    below, finals_h, finals_c = x, list[Any](), list[Any]()
    for layer in solved.configured.layers:
        sides = []
        for direction in layer.directions:
            arrays = {k: torch.tensor(np.asarray(v).astype(np.float64)).to(kind) for k, v in direction.arrays.items()}
            h, c = hidden[len(finals_h)], cell[len(finals_c)]
            ys: list[Any] = [None] * steps
            for t in reversed(range(steps)) if direction.reverse else range(steps):
                pre = []
                for gate in "ifgo":
                    value = h @ arrays["recurrent", gate].T
                    value = value + (below[t] @ arrays["input", gate].T if ("input", gate) in arrays else below[t])
                    for bias in ("input_bias", "recurrent_bias"):
                        value = value + arrays[bias, gate] if (bias, gate) in arrays else value
                    pre.append(bound(value) if place == "gates" else value)
                i, f, g, o = (torch.tanh(v) if n == 2 else torch.sigmoid(v) for n, v in enumerate(pre))
                new = f * (bound(c) if read else c) + i * g
                carried = bound(new) if place in ("before the output", "carried only") else new
                out = o * torch.tanh(bound(new) if read or place == "before the output" else new)
                if ("projection", "") in arrays:
                    out = out @ arrays["projection", ""].T
                out = bound(out) if place == "output" else out
                live = torch.tensor(t < lengths)[:, None]
                h, c = torch.where(live, out, h), torch.where(live, carried, c)
                ys[t] = torch.where(live, out, torch.zeros_like(out))
            finals_h.append(h)
            finals_c.append(bound(c) if place in ("final only", "where it is read, and the final one") else c)
            sides.append(torch.stack(ys))
        below = torch.cat(sides, -1)
    weighed = solved.weighed
    outputs = [below, *finals_h, *finals_c]
    scales = [weighed.y, *weighed.hidden, *weighed.cell]
    sum((o * torch.tensor(np.asarray(s)).to(kind)).sum() for o, s in zip(outputs, scales, strict=True)).backward()
    slopes = [tensor.grad if tensor.grad is not None else torch.zeros_like(tensor) for tensor in (x, *hidden, *cell)]
    return [tensor.detach().double().numpy() for tensor in (*outputs, *slopes)]


PLACES = (
    "where it is read", "where it is read, and the final one", "before the output", "carried only", "final only", "gates", "output",
    "nowhere",
)  # fmt: skip


def _clipped() -> list[Config]:
    return [
        Config("lstm", 1, 1, clip=CLIP, dtype="float64"), Config("lstm", 1, 1, clip=CLIP),
        Config("lstm", 2, 2, clip=CLIP), Config("lstm", 1, 2, clip=CLIP, io="padded"),
        Config("lstm", 1, 1, clip=CLIP, projection=2),
    ]  # fmt: skip


def clip_of_lstm(work: Work) -> Outcome:
    """Which of the values that a step computes does the clip bound?"""
    distances = {}
    for config in _clipped():
        solved = Solved(config)
        answer = _answer(work, solved)
        count = 1 + len(answer["hidden"]) + len(answer["cell"])
        rows = _rows(answer)[:count]
        distances[config.name] = {
            place: distance(
                rows, clipped_lstm(solved, place)[:count], clipped_lstm(solved, place, dtype=config.dtype)[:count],
                config.dtype,
            )
            for place in PLACES
        }  # fmt: skip
    return settled("Where does the clip of an LSTM apply?", distances, f"bounds {CLIP[0]:g} and {CLIP[1]:g}")


def clip_gradient(work: Work) -> Outcome:
    """Is the gradient of a clipped value zero, or passed on?"""
    distances = {}
    for config in _clipped():
        solved = Solved(config)
        rows = _rows(_answer(work, solved))
        distances[config.name] = {
            f"{place}, {slope}": distance(
                rows, clipped_lstm(solved, place, slope), clipped_lstm(solved, place, slope, config.dtype), config.dtype
            )
            for place in ("where it is read", "before the output", "carried only")
            for slope in ("zero", "passed on")
        }
    return settled("What is the gradient where the clip applies?", distances)


def clip_of_another(work: Work, cell: str) -> Outcome:
    """The library takes a clip for every cell: does it change what a GRU or a plain RNN computes?"""
    distances = {}
    for config in (Config(cell, 1, 1), Config(cell, 2, 2)):
        solved = Solved(config)
        with _clipping(work, *CLIP):
            answer = _answer(work, solved)
        count = 1 + len(answer["hidden"])
        rows = _rows(answer)[:count]
        plain, rough = (_by_reference(solved, solved.configured)[:count], _by_reference(solved, solved.configured, config.dtype)[:count])
        ends = [plain[0], *(np.clip(state, *CLIP) for state in plain[1:])]
        distances[config.name] = {
            "nothing": distance(rows, plain, rough, config.dtype),
            "the final state is clipped": distance(rows, ends, [rough[0], *ends[1:]], config.dtype),
        }
    return settled(f"What does cudnnRNNSetClip_v9 do to a {cell}?", distances)


class _clipping:
    """A clip that is set on every RNN descriptor, whatever its cell."""

    def __init__(self, work: Work, low: float, high: float) -> None:
        self.work, self.bounds = work, (low, high)

    def __enter__(self) -> None:
        self.original = cudnn_library.CudnnLibrary.__call__
        original, bounds = self.original, self.bounds

        def call(library: Any, function: str, *arguments: Any) -> None:
            original(library, function, *arguments)
            if function == "cudnnSetRNNDescriptor_v8":
                original(library, "cudnnRNNSetClip_v9", arguments[0], cudnn_library._MINMAX, *bounds)

        cudnn_library.CudnnLibrary.__call__ = call  # type: ignore[method-assign,assignment]

    def __exit__(self, *_: object) -> None:
        cudnn_library.CudnnLibrary.__call__ = self.original  # type: ignore[method-assign]


# Others


def empty_sequence(work: Work) -> Outcome:
    """Has a sequence of length zero its initial states as the final ones, or zeros?"""
    distances = {}
    lengths = np.array((LENGTHS[0], LENGTHS[1], 0))
    for config in (Config("lstm", 1, 1, io="padded"), Config("gru", 2, 2, io="padded")):
        solved = Solved(config)
        answer = _answer(work, solved, lengths=lengths, cotangents=None)
        states = np.stack([*answer["hidden"], *answer["cell"]])[:, 2]
        initial = np.stack([*solved.given_hidden, *solved.given_cell])[:, 2].astype(np.float64)
        distances[config.name] = {
            "the initial states": distance([states], [initial], [initial], config.dtype),
            "zeros": distance([states], [np.zeros_like(initial)], [np.zeros_like(initial)], config.dtype),
        }
    return settled("What are the final states of a sequence of length zero?", distances)


def full_projection(work: Work) -> Outcome:
    """projSize = hiddenSize means no projection: the buffer has none, and the outputs are those of a plain LSTM."""
    config = Config("lstm", 2, 2)
    solved = Solved(config)
    about = {**solved.description, "projection_size": config.hidden}
    standing_in = StandIn(solved.description)
    rows = _rows(_answer(work, solved, standing_in, description=about))
    plain, rough = _by_reference(solved, solved.configured), _by_reference(solved, solved.configured, config.dtype)
    control = Solved(dataclasses.replace(config, biases="none")).configured
    other, other_rough = _by_reference(solved, control), _by_reference(solved, control, config.dtype)
    distances = {
        config.name: {
            "a plain LSTM": distance(rows, plain, rough, config.dtype),
            "another LSTM, as a control": distance(rows, other, other_rough, config.dtype),
        }
    }
    return settled("Is an LSTM with projSize = hiddenSize a plain one?", distances)
