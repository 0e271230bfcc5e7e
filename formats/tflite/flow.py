"""A recurrent operator as a call of a layer: what it reads and gives in its graph, where values go by the numbers of tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rnnconvert.core.weights import Recurrent
from rnnconvert.formats.tflite.graph import Operator
from rnnconvert.formats.tflite.operators import both
from rnnconvert.graphs.graph import CallSizes
from rnnconvert.recognition.flow import RecurrentCall


@dataclass(frozen=True)
class FusedOperator:
    """A recurrent operator.

    reads      the tensor that it reads: the one before REVERSE_V2 if that belongs to the layer
    gives      the tensors that it gives: the ones behind REVERSE_V2 if that belongs to the layer
    time_major whether the time comes first
    step       whether it computes one step at a call
    """

    operator: Operator
    stack: Recurrent
    reads: int
    gives: Sequence[int]
    time_major: bool
    step: bool

    @property
    def call(self) -> RecurrentCall:
        """The layer's call; kernels compute in float32, however its weights are stored."""
        (pair,) = self.stack.layers
        order = "b" if self.step else "tb" if self.time_major else "bt"
        outputs = {both(str(self.gives[0])): f"d{order}h"} if len(self.gives) == 2 else dict.fromkeys(map(str, self.gives), f"{order}u")
        sizes = CallSizes(pair.directions[0].output_size, directions=len(pair.directions), width=self.stack.input_size)
        return RecurrentCall((str(self.reads), f"{order}i"), outputs, sizes, {})
