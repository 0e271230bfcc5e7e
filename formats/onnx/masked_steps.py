"""Nodes by which a recurrent operator, which knows lengths alone, skips any steps of its sequences.

The steps that count are moved to the front, the operator runs over as many of them as there are, and each step takes the output of
the last one that counted.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx

from rnnconvert.formats.onnx.proto.nodes import ProtoNodes


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

    def front(self, b: ProtoNodes, name: str, x: str) -> str:
        """Add a tensor with the steps that count in front."""
        return _gather(b, f"{name}/front", x, self.order)

    def lengths(self, b: ProtoNodes, name: str) -> str:
        """Add how many steps the operator runs; a sequence without any runs one, which nothing reads."""
        counted = b.add("Max", [self.count, b.integers(1)], f"{name}/steps")
        return b.add("Cast", [counted], f"{name}/lengths", to=onnx.TensorProto.INT32)

    def spread(self, b: ProtoNodes, name: str, every: str, backwards: bool, zero: bool, first: str = "") -> str:
        """Add the output at each step: its own where it counts, else zeros, or that of the step that counted before it.

        backwards  whether the layer reads from the end, so that what comes before lies behind
        first      what stands before the first that counts (batch, 1, units); "" for zeros
        """
        unit = b.integers(1)
        if backwards:
            place = b.add("Sub", [self.running, self.numbers], f"{name}/place")
            last = b.add("Sub", [b.add("Unsqueeze", [self.count, unit], f"{name}/counted"), unit], f"{name}/last")
            there = b.add("LessOrEqual", [place, last], f"{name}/there")
            place = b.add("Min", [place, last], f"{name}/known")
        else:
            place = b.add("Sub", [self.running, unit], f"{name}/place")
            there = b.add("Greater", [self.running, b.integers(0)], f"{name}/there")
        place = b.add("Max", [place, b.integers(0)], f"{name}/taken")
        wide = b.add("Unsqueeze", [self.mask if zero else there, b.integers(2)], f"{name}/wide")
        return b.add("Where", [wide, _gather(b, f"{name}/spread", every, place), first or b.zero()], f"{name}/every")

    def ended(self, b: ProtoNodes, name: str, state: str, other: str) -> str:
        """Add a state after the last step: another one for a sequence without any that counts."""
        any_ = b.add("Greater", [self.count, b.integers(0)], f"{name}/any")
        return b.add("Where", [b.add("Unsqueeze", [any_, b.integers(1)], f"{name}/some"), state, other], f"{name}/ended")

    def last(self, b: ProtoNodes, name: str, state: str, backwards: bool, zero: bool) -> str:
        """Add the output at the step that is read last."""
        if not zero:
            return self.ended(b, name, state, b.zero())
        index = b.constant(f"{name}/read_last", np.array(0 if backwards else -1, np.int64))
        counts = b.add("Gather", [self.mask, index], f"{name}/counts", axis=1)
        return b.add("Where", [b.add("Unsqueeze", [counts, b.integers(1)], f"{name}/does"), state, b.zero()], f"{name}/last")


def _gather(b: ProtoNodes, name: str, x: str, places: str) -> str:
    """Add the steps of a tensor at some places, of each sequence its own."""
    return b.add("GatherND", [x, b.add("Unsqueeze", [places, b.integers(2)], f"{name}/places")], f"{name}/taken", batch_dims=1)


def steps(b: ProtoNodes, mask: str, name: str) -> CountedSteps:
    """Add what a recurrent layer needs of a mask, truths (batch, time).

    name  what the names of its values begin with
    """
    unit = b.integers(1)
    numbers = b.add("Cast", [mask], f"{name}/numbers", to=onnx.TensorProto.INT64)
    running = b.add("CumSum", [numbers, b.constant(f"{name}/axis", np.array(1, np.int64))], f"{name}/running")
    count = b.add("ReduceSum", [numbers, unit], f"{name}/count", keepdims=0)
    size = b.add("Shape", [mask], f"{name}/size")
    length = b.add("Squeeze", [b.add("Slice", [size, unit, b.integers(2)], f"{name}/time")], f"{name}/length")
    bounds = [b.constant(f"{name}/{word}", np.array(n, np.int64)) for word, n in (("from", 0), ("by", 1))]
    number = b.add("Expand", [b.add("Range", [bounds[0], length, bounds[1]], f"{name}/range"), size], f"{name}/number")
    end = b.add("Add", [number, b.add("Unsqueeze", [count, unit], f"{name}/wide")], f"{name}/end")
    before = b.add("Sub", [end, running], f"{name}/behind")
    place = b.add("Where", [mask, b.add("Sub", [running, unit], f"{name}/front"), before], f"{name}/place")
    order = b.add("ScatterElements", [number, place, number], f"{name}/order", axis=1)
    return CountedSteps(mask, numbers, running, count, order)
