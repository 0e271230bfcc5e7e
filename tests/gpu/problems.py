"""Stacks, inputs and truths that are the same on every machine, and how far an answer is from them."""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from rnnconvert.core import reference
from rnnconvert.core.arrays import Array
from rnnconvert.core.cached import cached_property
from rnnconvert.core.cells import Cell, Clip
from rnnconvert.core.reference import Gradients, Outputs
from rnnconvert.core.weights import Recurrent
from rnnconvert.formats.cudnn import description
from rnnconvert.judging.rounding import ARITHMETICS
from rnnconvert.judging.rounding import PERSISTENT as PERSISTENT_ARITHMETIC
from rnnconvert.language.layout import Sizes
from rnnconvert.language.packing import pack
from rnnconvert.rewrites import each
from tests.helpers.judging import FACTOR, ULPS
from tests.helpers.stacks import PLAIN, random_stack, random_states

STEPS, BATCH, WIDTH = 5, 3, 4
LENGTHS = (3, 5, 1)
"""Of sequences that are not all of one length: not in the order in which cuDNN wants packed ones."""

LONG, THIN = 800, 8
"""Of answers with more numbers every eighth is kept."""

BIASES = {mode: frozenset(parts) for mode, parts in description.BIAS_MODES.items()}


@dataclass(frozen=True)
class Config:
    """A stack as cuDNN describes it, and how it is run.

    io          "unpadded", "padded" or "packed": the last two with sequences of several lengths
    algorithm   a key of rnnconvert.formats.cudnn.run.ALGORITHMS
    states      whether initial states are given
    """

    cell: str
    layers: int = 1
    directions: int = 1
    biases: str = "double"
    skip: bool = False
    projection: int = 0
    dtype: str = "float32"
    io: str = "unpadded"
    algorithm: str = "standard"
    states: bool = True
    hidden: int = 5
    clip: tuple[float, float] | None = None

    @property
    def stack_name(self) -> str:
        """What the numbers of the weights depend on."""
        words = [self.cell, f"{self.layers}x{self.directions}", self.biases, f"h{self.hidden}"]
        words += ["skip"] * self.skip + [f"p{self.projection}"] * bool(self.projection)
        return " ".join(words)

    @property
    def name(self) -> str:
        words = [self.stack_name, self.dtype, self.io]
        words += [self.algorithm] * (self.algorithm != "standard") + ["no states"] * (not self.states)
        words += [f"clip {self.clip[0]:g} {self.clip[1]:g}"] if self.clip else []
        return " ".join(words)

    @property
    def smooth(self) -> bool:
        """Whether gradients are judged: in the halves rounding flips the sign of a value near zero, where relu's slope jumps."""
        return not (self.cell == "rnn_relu" and self.dtype in ("float16", "bfloat16"))

    @property
    def arithmetic(self) -> str:
        """What the library rounds like."""
        return PERSISTENT_ARITHMETIC if self.algorithm != "standard" and self.dtype == "float32" else self.dtype

    @property
    def lengths(self) -> Array | None:
        return None if self.io == "unpadded" else np.array(LENGTHS)


class Solved:
    """A configuration's stack, inputs, and what the float64 reference makes of them.

    stack   another one in place of the configuration's own: a candidate that an experiment tries
    """

    def __init__(self, config: Config, stack: Recurrent | None = None) -> None:
        self.config = config
        kind, reset_after, activation = description.CELLS[config.cell]
        width = config.hidden if config.skip else WIDTH
        parts = PLAIN | BIASES[config.biases] | ({"projection"} if config.projection else set())
        self.form = Sizes(kind, width, config.hidden, config.layers, config.directions, config.projection, parts, config.skip)
        seed = zlib.crc32(config.stack_name.encode())
        clips = (Clip("state", *config.clip),) if config.clip else ()
        cell = Cell(kind, reset_after, activation=activation, clips=clips)
        self.configured = random_stack(self.form, seed, config.dtype, cell)
        self.stack = stack or self.configured
        rng = np.random.default_rng(seed + 1)
        self.x = rng.uniform(-1, 1, (STEPS, BATCH, width)).astype(config.dtype)
        hidden, cells = random_states(self.form, BATCH, seed + 2, config.dtype)
        self.hidden = hidden if config.states else None
        self.cell = cells if config.states and kind == "lstm" else None
        self.given_hidden = hidden if config.states else tuple(np.zeros_like(state) for state in hidden)
        zeros = tuple(np.zeros_like(state) for state in cells)
        self.given_cell = () if kind != "lstm" else cells if config.states else zeros

    @property
    def description(self) -> dict[str, Any]:
        """What accompanies the buffer."""
        return {**description.describe(self.configured), "elements": flat_of(self.configured, self.config.cell).size}

    @property
    def buffer(self) -> Array:
        """The weights in the places that cuDNN reads; bfloat16 as its bits."""
        flat = flat_of(self.configured, self.config.cell)
        return flat.view(np.uint16) if self.config.dtype == "bfloat16" else flat

    def outputs(self, arithmetic: str = "float64") -> Outputs:
        """What the reference gives in that arithmetic, as rnnconvert.judging.rounding.ARITHMETICS names it."""
        return self._in(arithmetic).run(self.x, self.given_hidden, self.given_cell or None, self.config.lengths)

    def _in(self, arithmetic: str) -> reference.Reference:
        chosen = ARITHMETICS[arithmetic]
        return reference.Reference(self.stack, chosen.dtype, functions=chosen.estimates[0])

    @cached_property
    def truth(self) -> Outputs:
        return self.outputs()

    @cached_property
    def weighed(self) -> Outputs:
        """What weights every output in the sum whose gradients are compared; held by every element type."""
        rng = np.random.default_rng(zlib.crc32(self.config.stack_name.encode()) + 3)

        def like(values: Array) -> Array:
            return np.asarray(rng.integers(-8, 9, np.shape(values)) / 8)

        return Outputs(like(self.truth.y), *(tuple(map(like, s)) for s in (self.truth.hidden, self.truth.cell)))

    @property
    def cotangents(self) -> dict[str, Any]:
        """The same as an executor receives it."""
        return {"y": self.weighed.y, "hidden": list(self.weighed.hidden), "cell": list(self.weighed.cell)}

    def gradients(self, arithmetic: str = "float64") -> Gradients:
        """The gradients in that arithmetic. Raises ImportError without torch."""
        states = self.given_hidden, self.given_cell
        return self._in(arithmetic).gradients(self.x, *states, self.config.lengths, self.weighed)

    def slopes_of(self, gradients: Gradients) -> Array:
        """The weights' gradients in the places of the buffer."""
        weights = iter(gradients.weights)
        return flat_of(each(self.stack, lambda d: d.with_arrays(dict(next(weights)))), self.config.cell)


def flat_of(stack: Recurrent, cell: str) -> Array:
    """A stack's numbers in cuDNN's places."""
    return np.asarray(pack(description.layout_of(cell), stack)["params"])


@dataclass(frozen=True)
class Judged:
    """How far an answer is off: in all, and where that is largest.

    ratio, largest   the largest error in units of what is allowed, and by itself
    where            the output in question
    each             ratio and error of every output
    """

    ratio: float
    largest: float
    where: str
    each: Mapping[str, tuple[float, float]]


def judged(solved: Solved, answer: Mapping[str, Any]) -> Judged:
    """Compare an executor's answer, with its gradients if it has some, with the truth."""
    arithmetic = solved.config.arithmetic
    errors: dict[str, tuple[float, float]] = {}
    eps = float(ml_dtypes.finfo(ARITHMETICS[arithmetic].dtype).eps)
    rough = solved.outputs(arithmetic)
    for name, actual, exact, floor in _outputs(answer, solved.truth, rough):
        errors[name] = _off(actual, exact, floor, eps)
    if "gradients" in answer and solved.config.smooth:
        slopes = answer["gradients"]
        truth, floor_ = solved.gradients(), solved.gradients(arithmetic)
        live = _live(solved)
        rows = [("gradient of x", np.where(live, slopes["x"], 0), np.where(live, truth.x, 0), floor_.x * live)]
        for name, slope, exacts, floors in zip(
            ("hidden", "cell"), (slopes["hidden"], slopes["cell"]), (truth.hidden, truth.cell),
            (floor_.hidden, floor_.cell), strict=True,
        ):  # fmt: skip
            if len(slope):
                rows.append((f"gradient of {name}", np.stack(slope), np.stack(exacts), np.stack(floors)))
        params = slopes["weights"].get("", {}).get("params")
        if params is not None:
            rows.append(("gradient of weights", params, solved.slopes_of(truth), solved.slopes_of(floor_)))
        for name, actual, exact, floor in rows:
            errors[name] = _off(actual, exact, floor, 4 * eps)
    where = max(errors, key=lambda name: errors[name][0])
    return Judged(errors[where][0], max(error for _, error in errors.values()), where, errors)


def _live(solved: Solved) -> Array:
    """Which steps count, (time, batch, 1)."""
    lengths = np.full(BATCH, STEPS) if solved.config.lengths is None else solved.config.lengths
    return np.asarray((np.arange(STEPS)[:, None] < lengths)[:, :, None])


def _outputs(answer: Mapping[str, Any], truth: Outputs, rough: Outputs) -> Iterator[tuple[str, Array, Array, Array]]:
    yield "y", answer["y"], truth.y, rough.y
    for name, actual, exact, floor in (
        ("hidden", answer["hidden"], truth.hidden, rough.hidden), ("cell", answer["cell"], truth.cell, rough.cell)
    ):  # fmt: skip
        if exact:
            yield name, np.stack(list(actual)), np.stack(exact), np.stack(floor)


def _off(actual: Array, exact: Array, floor: Array, eps: float) -> tuple[float, float]:
    """The largest error, in units of what is allowed and by itself; infinite for another shape or no number."""
    actual, exact = np.asarray(actual, np.float64), np.asarray(exact, np.float64)
    if actual.shape != exact.shape or not np.isfinite(actual).all():
        return float("inf"), float("inf")
    noise = np.abs(np.asarray(floor, np.float64) - exact).max(initial=0.0)
    allowed = FACTOR * noise + ULPS * eps * max(1.0, float(np.abs(exact).max(initial=0.0)))
    error = float(np.abs(actual - exact).max(initial=0.0))
    return error / allowed, error


def vector(config: Config, answer: Mapping[str, Any]) -> Array:
    """All outputs of an answer as one row of float32, and the gradient of x where it is judged: what is kept of it."""
    parts = [answer["y"], *answer["hidden"], *answer["cell"]]
    parts += [answer["gradients"]["x"]] if config.smooth else []
    row = np.concatenate([np.asarray(part, np.float32).ravel() for part in parts])
    return row if row.size <= LONG else row[::THIN]


def configs() -> list[Config]:
    """Everything that cuDNN itself is asked to compute, the most telling first."""
    cells = tuple(description.CELLS)
    core = [Config(cell, 2, 2, io=io) for cell, io in itertools.product(cells, ("unpadded", "padded", "packed"))]
    core += [Config("lstm", 2, 2, projection=2), Config("lstm", 2, 2, clip=(-0.125, 0.25))]
    core += [Config(cell, algorithm=algorithm, hidden=64) for cell in cells for algorithm in PERSISTENT]
    every = [
        Config(cell, layers, directions, biases, skip, io=io)
        for cell, layers, directions, biases, skip, io in itertools.product(
            cells, (1, 2, 3), (1, 2), BIASES, (False, True), ("unpadded", "padded", "packed")
        )
        if (layers, io) != (3, "packed")
    ]
    every += [
        Config("lstm", layers, directions, biases, projection=2, io=io)
        for layers, directions, biases, io in itertools.product((1, 2, 3), (1, 2), BIASES, ("unpadded", "padded", "packed"))
    ]
    every += [
        Config(cell, layers, directions, dtype=dtype, io=io)
        for cell, layers, directions, dtype, io in itertools.product(
            cells, (1, 2), (1, 2), ("float64", "float16", "bfloat16"), ("unpadded", "padded")
        )
    ]
    every += [
        Config(cell, layers, directions, dtype=dtype, hidden=hidden, algorithm=algorithm, io=io)
        for algorithm, cell, layers, directions, dtype, hidden, io in itertools.product(
            PERSISTENT, cells, (1, 2), (1, 2), ("float32", "float16", "bfloat16"), (5, 64), ("unpadded", "padded")
        )
        if (io, layers) != ("padded", 2) and (hidden == 64 or (layers, directions, io) == (1, 1, "unpadded"))
    ]
    every += [Config(cell, 2, 2, io=io, states=False) for cell in cells for io in ("unpadded", "padded")]
    every += [Config("lstm", 1, directions, clip=(-0.125, 0.25), io=io) for directions in (1, 2) for io in ("padded", "packed")]
    rest = sorted(set(every) - set(core), key=lambda config: zlib.crc32(config.name.encode()))
    return core + rest


PERSISTENT = ("persist_static", "persist_static_small_h", "persist_dynamic")
