"""Operations by which a recurrent operator, which knows lengths alone, skips any steps of its sequences.

The steps that count are moved to the front, the operator runs over as many of them as there are, and each step takes the output of
the last one that counted.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rnnconvert.graphs.program.building import GraphBuilder


@dataclass(frozen=True)
class CountedSteps:
    """Which steps of a tensor a recurrent layer reads.

    mask     truths (batch, time)
    numbers  the mask as ones and zeros
    running  at each step: how many count up to it, and with it
    count    how many count at all
    order    the steps that count, in their order, then the others
    """

    mask: str
    numbers: str
    running: str
    count: str
    order: str

    def front(self, build: GraphBuilder, name: str, x: str) -> str:
        """Add a tensor with the steps that count in front."""
        return _gather(build, f"{name}/front", x, self.order)

    def lengths(self, build: GraphBuilder, name: str) -> str:
        """Add how many steps the operator runs; a sequence without any runs one, which nothing reads."""
        counted = build.add("Max", [self.count, build.integers(1)], f"{name}/steps")
        return build.add("Cast", [counted], f"{name}/lengths", to=np.dtype(np.int32))

    def spread(self, build: GraphBuilder, name: str, every: str, backwards: bool, zero: bool, first: str = "") -> str:
        """Add the output at each step: its own where it counts, else zeros, or that of the step that counted before it.

        backwards  whether the layer reads from the end, so that what comes before lies behind
        first      what stands before the first that counts (batch, 1, units); "" for zeros
        """
        unit = build.integers(1)
        if backwards:
            place = build.add("Sub", [self.running, self.numbers], f"{name}/place")
            # From the end, a step that does not count repeats the next one that does, which lies behind it.
            last = build.add("Sub", [build.add("Unsqueeze", [self.count, unit], f"{name}/counted"), unit], f"{name}/last")
            there = build.add("LessOrEqual", [place, last], f"{name}/there")
            place = build.add("Min", [place, last], f"{name}/known")
        else:
            place = build.add("Sub", [self.running, unit], f"{name}/place")
            there = build.add("Greater", [self.running, build.integers(0)], f"{name}/there")
        place = build.add("Max", [place, build.integers(0)], f"{name}/taken")
        wide = build.add("Unsqueeze", [self.mask if zero else there, build.integers(2)], f"{name}/wide")
        return build.add("Where", [wide, _gather(build, f"{name}/spread", every, place), first or build.zero()], f"{name}/every")

    def ended(self, build: GraphBuilder, name: str, state: str, other: str) -> str:
        """Add a state after the last step: another one for a sequence without any that counts."""
        any_ = build.add("Greater", [self.count, build.integers(0)], f"{name}/any")
        return build.add("Where", [build.add("Unsqueeze", [any_, build.integers(1)], f"{name}/some"), state, other], f"{name}/ended")

    def last(self, build: GraphBuilder, name: str, state: str, backwards: bool, zero: bool) -> str:
        """Add the output at the step that is read last."""
        if not zero:
            return self.ended(build, name, state, build.zero())
        index = build.constant(f"{name}/read_last", np.array(0 if backwards else -1, np.int64))
        counts = build.add("Gather", [self.mask, index], f"{name}/counts", axis=1)
        return build.add(
            "Where", [build.add("Unsqueeze", [counts, build.integers(1)], f"{name}/does"), state, build.zero()], f"{name}/last"
        )


def _gather(build: GraphBuilder, name: str, x: str, places: str) -> str:
    """Add the steps of a tensor at some places, of each sequence its own."""
    return build.add("GatherND", [x, build.add("Unsqueeze", [places, build.integers(2)], f"{name}/places")], f"{name}/taken", batch_dims=1)


def steps(build: GraphBuilder, mask: str, name: str) -> CountedSteps:
    """Add what a recurrent layer needs of a mask, truths (batch, time).

    name  what the names of its values begin with
    """
    unit = build.integers(1)
    numbers = build.add("Cast", [mask], f"{name}/numbers", to=np.dtype(np.int64))
    running = build.add("CumSum", [numbers, build.constant(f"{name}/axis", np.array(1, np.int64))], f"{name}/running")
    count = build.add("ReduceSum", [numbers, unit], f"{name}/count", keepdims=0)
    size = build.add("Shape", [mask], f"{name}/size")
    length = build.add("Squeeze", [build.add("Slice", [size, unit, build.integers(2)], f"{name}/time")], f"{name}/length")
    bounds = [build.constant(f"{name}/{word}", np.array(n, np.int64)) for word, n in (("from", 0), ("by", 1))]
    number = build.add("Expand", [build.add("Range", [bounds[0], length, bounds[1]], f"{name}/range"), size], f"{name}/number")
    end = build.add("Add", [number, build.add("Unsqueeze", [count, unit], f"{name}/wide")], f"{name}/end")
    before = build.add("Sub", [end, running], f"{name}/behind")
    # Steps that count go to the front in their order, the others behind them in theirs.
    place = build.add("Where", [mask, build.add("Sub", [running, unit], f"{name}/front"), before], f"{name}/place")
    order = build.add("ScatterElements", [number, place, number], f"{name}/order", axis=1)
    return CountedSteps(mask, numbers, running, count, order)
