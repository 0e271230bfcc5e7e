"""Operators drawn to stand between two recurrent layers, and what must come of joining these.

A chain is a list of operators, each a word and its arguments; a room of tests.formats.test_between_rooms writes them in its framework, and
`apply` here is their transcription in numpy.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import rnnconvert as rc
from rnnconvert.core import reference
from rnnconvert.core.arrays import Array
from tests.helpers.drawn import each

Step = tuple[Any, ...]
Chain = tuple[Step, ...]

COMPUTING = frozenset({"relu", "add"})
NAMES = ("encoder's", 'a "b"', "back\\slash", "x/y", "a.b", "a,b", "line\nbreak", "größe", "std::low", "plain", "[0]", "a b", "%s{0}")
TIME, BATCH, UNITS, WIDTH = 4, 4, 4, 3
"""Lengths of what is run: square, so that an exchange of axes keeps every shape."""


def apply(chain: Chain, array: Array) -> Array:
    """What operators do to an array."""
    for word, *arguments in chain:
        array = _DONE[word](array, *arguments)
    return array


_DONE: dict[str, Callable[..., Array]] = {
    "transpose": lambda a, order: a.transpose(order),
    "reshape": lambda a, shape: a.reshape([length or a.shape[axis] for axis, length in enumerate(shape)]),
    "unsqueeze": np.expand_dims,
    "squeeze": np.squeeze,
    "gather": lambda a, axis, places: np.take(a, places, axis),
    "reverse": np.flip,
    "joined": lambda a, axis, parts, order: np.concatenate([np.split(a, parts, axis)[n] for n in order], axis),
    "slice": lambda a, axis, start, end, step: a[(slice(None),) * axis + (slice(start, end, step),)],
    "half": lambda a: a.astype(np.float16).astype(a.dtype),
    "double": lambda a: a.astype(np.float64).astype(a.dtype),
    "int": lambda a: a.astype(np.int32).astype(a.dtype),
    "relu": lambda a: np.maximum(a, 0),
    "add": lambda a, number: a + np.asarray(number, a.dtype),
    "identity": lambda a: a,
    "dropout": lambda a: a,
}  # fmt: skip


def link(draw: random.Random, shape: Sequence[int], words: Collection[str], reshape: bool) -> Chain:
    """One to two operators that keep a shape.

    words    those that the framework has
    reshape  whether shapes may be stated in numbers
    """
    rank = len(shape)
    axis = draw.randrange(rank)
    orders = [list(range(rank)), draw.sample(range(rank), rank)]
    orders += [order for _ in range(3) if _unchanged(shape, order := draw.sample(range(rank), rank))]
    places = [list(range(shape[axis])), list(range(shape[axis])), [draw.randrange(shape[axis]) for _ in range(shape[axis])]]
    first, second = draw.choice(orders), draw.choice(orders)
    back = [first.index(place) for place in range(rank)] if draw.random() < 0.5 else second
    if [shape[first[place]] for place in back] != list(shape):
        back = [first.index(place) for place in range(rank)]
    flat = (-1, shape[-1]) if draw.random() < 0.6 else (shape[0], -1)
    chains: list[Chain] = [
        (("transpose", tuple(draw.choice([option for option in orders if _unchanged(shape, option)]))),),
        (("transpose", tuple(first)), ("transpose", tuple(back))),
        (("gather", axis, tuple(draw.choice(places))),),
        (("reverse", axis), *((("reverse", axis),) if draw.random() < 0.5 else ())),
        (("joined", axis, 2, draw.choice(((0, 1), (0, 1), (1, 0), (0, 0)))),) if shape[axis] % 2 == 0 else (("identity",),),
        (("unsqueeze", axis), ("squeeze", axis)),
        (("reshape", flat), ("reshape", tuple(shape))) if reshape else (("identity",),),
        (("transpose", tuple(first)), ("reshape", tuple(shape))) if reshape else (("identity",),),
        *(((word,),) for word in ("half", "double", "int", "relu", "identity", "dropout")),
        (("add", draw.choice((0.0, 0.5))),),
    ]  # fmt: skip
    fitting = [option for option in chains if {step[0] for step in option} <= set(words)]
    return draw.choice(fitting)


def _unchanged(shape: Sequence[int], order: Sequence[int]) -> bool:
    return [shape[place] for place in order] == list(shape)


@dataclass(frozen=True)
class Case:
    """Two layers and what stands between them.

    chain    the operators, from the first layer's own output on
    names    what the layers are called
    two      whether the first layer has two directions
    fixed    whether the file states the lengths of time and batch
    """

    chain: Chain
    names: tuple[str, str]
    two: bool = False
    fixed: bool = True


def recorded(path: Path, case: Case, x: Array) -> Array:
    """What a framework with a Python of its own gave for an input of these lengths, when all cases were prepared."""
    return np.asarray(np.load(path.with_name(f"{x.shape[0]}x{x.shape[1]}.npy")))


@dataclass(frozen=True)
class Room:
    """A framework in which cases are written and run.

    words    the operators that it has
    given_as what a layer's output, (time, batch, directions, units), is in this framework
    read     what (time, batch, features) is where a layer reads it
    starts   chains from a layer's output to a sequence that the next layer may read, the first of them right; for one direction
             and for two
    write    writes a case under a folder, with weights by a seed; returns the file
    run      runs a file of a case on an input (time, batch, features); returns (time, batch, features)
    fixed    whether files may state the lengths of time and batch, and whether they may leave them open
    open_sizes  other lengths of time and batch that a file then takes
    by_name  whether files have their layers in the order of their names
    prepare  writes and runs all cases at once, where the framework has a Python of its own
    """

    words: Collection[str]
    given_as: Callable[[Array], Array]
    read: Callable[[Array], Array]
    starts: tuple[Sequence[Chain], Sequence[Chain]]
    write: Callable[[Any, Case, int], Any]
    run: Callable[[Any, Case, Array], Array]
    names: Sequence[str] = NAMES
    fixed: Sequence[bool] = (True, False)
    batch: int = BATCH
    two: bool = True
    open_sizes: Sequence[tuple[int, int]] = ((6, 2),)
    by_name: bool = False
    prepare: Callable[[Any, Sequence[Case]], None] = lambda folder, cases: None

    def draw(self, draw: random.Random) -> Case:
        """A case."""
        two = self.two and draw.random() < 0.4
        fixed = draw.choice(self.fixed)
        starts = self.starts[two]
        chain = list(starts[0] if draw.random() < 0.7 else draw.choice(starts))
        shape = self.read(np.zeros((TIME, self.batch, UNITS * (1 + two)))).shape
        for _ in range(draw.randint(0, 3)):
            chain += link(draw, shape, self.words, fixed)
        low, high = sorted(draw.sample(list(self.names), 2)) if self.by_name else draw.sample(list(self.names), 2)
        return Case(tuple(chain), (low, high), two, fixed)

    def sizes(self, case: Case) -> list[tuple[int, int]]:
        """Lengths of time and batch at which a case is run."""
        return [(TIME, self.batch), *(() if case.fixed else self.open_sizes)]

    def changes_nothing(self, case: Case) -> bool:
        """Whether what the second layer reads is what the first one gives, whatever the lengths that the file leaves open."""
        sizes = self.sizes(case)
        if COMPUTING & {step[0] for step in case.chain}:
            return False
        for time, batch in sizes:
            ways = 1 + case.two
            plain = np.random.default_rng(0).uniform(-1, 1, (time, batch, ways, UNITS)).astype(np.float32)
            try:
                reached = apply(case.chain, self.given_as(plain))
            except (ValueError, IndexError):
                return False
            expected = self.read(plain.reshape(time, batch, ways * UNITS))
            if reached.shape != expected.shape or not np.array_equal(reached, expected):
                return False
        return True

    def check_all(self, cases: Sequence[Case], folder: Path) -> None:
        """Check cases, each in a folder of its own by its number."""
        for number in range(len(cases)):
            (folder / str(number)).mkdir(parents=True, exist_ok=True)
        self.prepare(folder, cases)
        each(enumerate(cases), lambda case: self.check(case[1], folder / str(case[0])))

    def check(self, case: Case, folder: Path) -> None:
        """Joined and equal, or refused by the name of what lies between; and joined where nothing is changed."""
        path = self.write(folder, case, 7)
        layers = list(rc.load(path).layers.values())
        assert len(layers) == 2
        assert all(layer.calls for layer in layers)
        try:
            joined = rc.join_stack(layers)
        except ValueError as refusal:
            assert "does not read" in str(refusal) and "comes before it in the model" in str(refusal), refusal
            assert not self.changes_nothing(case), f"{refusal} of {case}"
            return
        for time, batch in self.sizes(case):
            x = fed(time, batch)
            off = float(np.abs(self.run(path, case, x) - reference.run(joined, x).y).max())
            assert off < 1e-5, f"joined and off by {off:.2g}: {case}"


def fed(time: int, batch: int) -> Array:
    """What models read: (time, batch, features)."""
    return np.random.default_rng(1).uniform(-1, 1, (time, batch, WIDTH)).astype(np.float32)


def weights(seed: int, *shapes: tuple[int, ...]) -> list[Array]:
    """Arrays of weights."""
    rng = np.random.default_rng(seed)
    return [rng.uniform(-0.8, 0.8, shape).astype(np.float32) for shape in shapes]
