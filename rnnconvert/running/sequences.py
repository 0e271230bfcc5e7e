"""What executors share: the sequences of a request, and the outputs and gradients of its answer.

This file belongs to the far side of the pipe, as child.py does, which has executors find it where rnnconvert is not installed: it
imports numpy and nothing of rnnconvert, and runs under Python 3.7. It knows requests, and neither weights nor gates.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray

STATES = ("hidden", "cell")


class WeightsAloneError(NotImplementedError):
    """A file holds weights, and no model that could run whole."""


_OUTSIDE = re.compile(
    r"(Read|Write)File|MatchingFiles|(Save|Restore)(V2|Slices?)?|MergeV2Checkpoints|.*PyFunc.*|.*Reader(V2)?|Debug.*|.*Summary.*Writer.*"
    r"|Write.*Summary|.*(TFRecord|TextLine|FixedLengthRecord|Cache|Snapshot|Save|Load)Dataset.*"
)
"""Operators of graphs that reach beyond the model: a model's own run has no need of them."""


def refuse_outside(node: Any) -> None:
    """Raise NotImplementedError for an operator that reaches beyond the model, by its message in a graph."""
    stream = node.attr["output_stream"].s if node.op == "PrintV2" else b""
    if _OUTSIDE.fullmatch(node.op) or stream.startswith(b"file:"):
        raise NotImplementedError(f"its graph has an operator that reaches beyond the model, {node.op} ({node.name})")


class Sequences(NamedTuple):
    """What layers read, by a request's own names (rnnconvert.running)."""

    x: Array
    hidden: Sequence[Array] | None = None
    cell: Sequence[Array] | None = None
    lengths: Array | None = None
    cotangents: Mapping[str, Any] | None = None

    @classmethod
    def of(cls, request: Mapping[str, Any]) -> Sequences:
        """Return the sequences of a request; what it leaves out is None."""
        return cls(request["x"], **{name: request.get(name) for name in cls._fields[1:]})

    def stacked(self, parts: Iterable[str] = STATES) -> dict[str, Array]:
        """Return the initial states that are there, stacked, by "hidden" and "cell"."""
        return {part: np.stack(list(getattr(self, part))) for part in parts if getattr(self, part)}

    def initial(self, widths: Mapping[str, int], rows: int) -> dict[str, Array]:
        """Return initial states, stacked, (rows, batch, width) by "hidden" and "cell"; zeros where there are none."""
        zeros = {part: np.zeros((rows, np.shape(self.x)[1], width)) for part, width in widths.items()}
        return {**zeros, **self.stacked(widths)}

    def first(self, rows: int) -> Sequences:
        """Return the same with so many of the initial states: those of one layer, where others follow it."""
        return self._replace(hidden=list(self.hidden or ())[:rows], cell=list(self.cell or ())[:rows])

    def scales(self, parts: Iterable[str]) -> list[Any]:
        """Return what weighs the outputs in the sum whose gradients are asked for: y, then the rows of these final states."""
        assert self.cotangents
        return [self.cotangents["y"], *(list(self.cotangents[part]) for part in parts)]

    def refuse_empty(self, reason: str) -> None:
        """Raise NotImplementedError for a sequence of length zero, with the reason why the framework does not run one."""
        if self.lengths is not None and np.min(self.lengths) < 1:
            raise NotImplementedError(f"a sequence of length zero: {reason}")

    def gradients(self, x: Array, states: Mapping[str, Iterable[Array]], weights: Mapping[str, Array]) -> dict[str, Any]:
        """Return an answer's gradients for one layer, without those of states that the request does not give."""
        asked = {part: list(states[part]) if part in states and getattr(self, part) else [] for part in STATES}
        return {"x": x, **asked, "weights": {"": dict(weights)}}

    def through(self, layers: Iterable[Any], run: Callable[[Any, Sequences], dict[str, Any]]) -> dict[str, Any]:
        """Run layers one after the other, each on what the one before gives; return the last one's answer with all final states.

        run  answers for one layer, which takes the first of the initial states; cell states are listed for all layers, or for
             those that have one

        Raises ValueError for another number of states than the layers have.
        """
        answer, finals = {"y": self.x}, {part: [] for part in STATES}  # type: dict[str, Any], dict[str, list[Array]]
        for_all = len(self.cell or ()) == len(self.hidden or ())
        left, read = self, dict.fromkeys(STATES, 0)
        for layer in layers:
            answer = run(layer, left)
            for part in STATES:
                finals[part] += answer[part]
                read[part] += len(answer["hidden" if for_all else part])
            hidden, cell = (list(getattr(self, part) or ())[read[part] :] for part in STATES)
            left = left._replace(x=answer["y"], hidden=hidden, cell=cell)
        for part, count in read.items():
            states = getattr(self, part)
            if states and count not in (0, len(states)):
                raise ValueError(f"{len(states)} {part} states for {count} directions")
        return {**answer, **finals}


def stepped(
    step: Callable[[Array, Array, Array], tuple[Array, Array]], x: Array, h: Array, c: Array, lengths: Any = None
) -> tuple[Array, Array, Array]:
    """Run a step over sequences: the outputs (time, batch, out), zero past a sequence's length, and the last states.

    step     returns the next hidden and cell state of a step's input (batch, in) and the states before
    lengths  how many steps of each sequence count, (batch,); None for all
    """
    y = np.zeros((*x.shape[:2], h.shape[1]), x.dtype)
    for number, sample in enumerate(x):
        new, new_cell = step(sample, h, c)
        counts = np.ones((len(h), 1), bool) if lengths is None else (number < np.asarray(lengths))[:, None]
        h, c = np.where(counts, new, h), np.where(counts, new_cell, c)
        y[number] = np.where(counts, new, 0)
    return y, h, c


def outputs(y: Array, *finals: Iterable[Array]) -> dict[str, Any]:
    """Return an answer: y (time, batch, out), and final states row by row, hidden ones and cell states; empty where there are none."""
    hidden, cell = (*map(list, finals), [], [])[:2]
    return {"y": y, "hidden": hidden, "cell": cell}
