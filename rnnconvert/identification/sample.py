"""An input and what an unknown layer gave for it, in each way in which its axes may be meant."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from rnnconvert.containers.npz_file import read as read_npz
from rnnconvert.core import sample_names
from rnnconvert.core.arrays import Array
from rnnconvert.core.errors import UsageError

_MOST = 1 << 26
"""The most numbers that one array of a sample may have."""

States = tuple[Array, ...] | None


@dataclass(frozen=True, eq=False)
class Sample:
    """An input, and what is known of the outputs, in the canonical order of axes.

    x        (time, batch, in)
    y        outputs at every step, (time, batch, out), or None
    last     outputs of the last step alone, (batch, out), or None
    h0, c0   initial states, each (batch, width); None for zero
    hn, cn   final states, likewise
    lengths  how many steps of each sequence count, or None
    axes     which axis of the given input counts the steps, in words
    reverse  whether the steps are reversed: what reads from the end is then a layer that reads from the start
    order    of the outputs of such a layer: "time", or "processing"
    """

    x: Array
    y: Array | None = None
    last: Array | None = None
    h0: States = None
    c0: States = None
    hn: States = None
    cn: States = None
    lengths: Array | None = None
    axes: str = "time, batch, in"
    reverse: bool = False
    order: str = "time"

    @property
    def width(self) -> int:
        """Width of the outputs; 0 where only states are known."""
        output = self.y if self.y is not None else self.last
        return 0 if output is None else int(output.shape[-1])

    @property
    def zero_state(self) -> bool:
        """Whether it begins at a zero state."""
        return self.h0 is None and self.c0 is None

    def turned(self, order: str = "time") -> Sample:
        """Return the sample of the same layer, as one that reads from the start.

        order  of the outputs: where they stand in the order of processing, they are turned already
        """
        y = self.y if self.y is None or order == "processing" else self._flipped(self.y)
        return replace(self, x=self._flipped(self.x), y=y, reverse=True, order=order)

    def _flipped(self, values: Array) -> Array:
        if self.lengths is None:
            return values[::-1]
        flipped = values.copy()
        for row, length in enumerate(self.lengths):
            flipped[:length, row] = values[:length, row][::-1]
        return flipped

    def columns(self, start: int, stop: int) -> Sample:
        """Return the sample with some columns of the outputs, and no states."""
        y, last = (None if array is None else array[..., start:stop] for array in (self.y, self.last))
        return replace(self, y=y, last=last, hn=None, cn=None)

    def few(self, rows: int, steps: int | None = None) -> Sample:
        """Return the longest of its sequences, and where every step is known, only so many first steps of them."""
        size = self.x.shape[1]
        lengths = np.full(size, len(self.x)) if self.lengths is None else self.lengths
        chosen = np.sort(np.argsort(-lengths, kind="stable")[:rows])

        def of(states: States) -> States:
            return None if states is None else tuple(state[chosen] for state in states)

        y = None if self.y is None else self.y[:, chosen]
        cut_sample = replace(
            self,
            x=self.x[:, chosen],
            y=y,
            last=None if self.last is None else self.last[chosen],
            h0=of(self.h0),
            c0=of(self.c0),
            hn=of(self.hn),
            cn=of(self.cn),
            lengths=None if self.lengths is None else lengths[chosen],
        )
        if steps is None or y is None or steps >= len(self.x):
            return cut_sample
        cut = None if cut_sample.lengths is None else np.minimum(cut_sample.lengths, steps)
        return replace(cut_sample, x=cut_sample.x[:steps], y=y[:steps], last=None, hn=None, cn=None, lengths=cut)


def named(arrays: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arrays of a sample by our names for them. Raises UsageError for a name that nothing has."""
    return sample_names.canonical({str(name): value for name, value in arrays.items() if value is not None})


def samples(named_arrays: Mapping[str, Any]) -> list[Sample]:
    """Return the samples that these arrays may be: with the time first, and with the batch first.

    Raises UsageError if an array is missing, or their shapes do not fit together.
    """
    arrays = {name: _numbers(name, value) for name, value in named(named_arrays).items()}
    if "x" not in arrays or not {"y", "h_n"} & arrays.keys():
        raise UsageError("a sample needs an input x, and outputs y or final states h_n. Add them: np.savez(path, x=x, y=y)")
    readings = list(_readings(arrays))
    if not readings:
        listed = ", ".join(f"{name} {tuple(array.shape)}" for name, array in arrays.items())
        raise UsageError(
            f"the sample's shapes do not fit together: {listed}. Expected x (time, batch, in) or (batch, time, in), y "
            "likewise or (batch, out), states (layers * directions, batch, width), lengths (batch,)"
        )
    return readings


def read(path: Path) -> list[Sample]:
    """Return the samples in an .npz file. Raises UnreadableError, and UsageError as `samples` does."""
    return samples(read_npz(path).arrays)


def _numbers(name: str, value: Any) -> Array:
    array = np.asarray(value)
    if array.size > _MOST or array.size == 0:
        raise UsageError(f"the sample's {name!r} has {array.size:,} numbers, expected 1 to {_MOST:,}")
    if name == "lengths":
        if array.dtype.kind not in "iu" or array.ndim > 1:
            raise UsageError(f"the sample's lengths are {array.dtype} of shape {array.shape}, expected one integer a sequence")
        return array.astype(np.int64).reshape(-1)
    try:
        return array if array.dtype.kind == "f" else array.astype(np.float32)
    except (TypeError, ValueError):
        raise UsageError(f"the sample's {name!r} is of type {array.dtype}, expected numbers") from None


def _readings(arrays: Mapping[str, Array]) -> Iterator[Sample]:
    x = arrays["x"]
    ways = {2: ("time, in",), 3: ("time, batch, in", "batch, time, in")}.get(x.ndim, ())
    for axes in ways:
        if axes == "time, in":
            first = x[:, None]
        elif axes.startswith("time"):
            first = x
        else:
            first = x.swapaxes(0, 1)
        steps, batch, _ = first.shape
        lengths = arrays.get("lengths")
        if lengths is not None and (lengths.shape != (batch,) or lengths.min() < 1 or lengths.max() > steps):
            continue
        y, last = None, None
        if "y" in arrays:
            output = _output(arrays["y"], axes, steps, batch)
            if output is None:
                continue
            y, last = output
        states = {name: _states(arrays[name], batch) for name in ("h_0", "c_0", "h_n", "c_n") if name in arrays}
        if any(state is None for state in states.values()):
            continue
        yield Sample(first, y, last, states.get("h_0"), states.get("c_0"), states.get("h_n"), states.get("c_n"), lengths, axes)


def _output(output: Array, axes: str, steps: int, batch: int) -> tuple[Array | None, Array | None] | None:
    """Return the outputs of every step, and of the last one; None for a shape that is neither."""
    if axes == "time, in":
        output = output[:, None] if output.ndim == 2 and len(output) == steps else output
        output = output[None] if output.ndim == 1 else output
    elif output.ndim == 3 and axes.startswith("batch"):
        output = output.swapaxes(0, 1)
    if output.ndim == 3 and output.shape[:2] == (steps, batch):
        return output, None
    if output.ndim == 2 and len(output) == batch:
        return None, output
    return None


def _states(states: Array, batch: int) -> States:
    if states.ndim == 1:
        states = states[None]
    if states.ndim == 2:
        # One state of each sequence, or of one sequence several.
        if len(states) == batch:
            states = states[None]
        elif batch == 1:
            states = states[:, None]
        else:
            states = states
    if states.ndim == 3 and states.shape[1] == batch:
        return tuple(states)
    return None
