"""Paddle's programs with their layers: what the operators on the way from one recurrent operator to the next do to its sequences."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from rnnconvert.core.arrays import Array
from rnnconvert.core.weights import Call, Recurrent
from rnnconvert.formats.paddle.lowering import FluidOperator, ProgramLowering
from rnnconvert.formats.paddle.program import ProgramOperator, StatedProgram
from rnnconvert.graphs.program.operations import Program
from rnnconvert.recognition.lowered import received_in, recognise_in
from rnnconvert.recognition.stacked import ReadStacks, placed

_LATER = re.compile(r"\.tmp_\d+\Z")
"""What Paddle 2 adds to the name of an operator for what it gives."""


def calls(stated: StatedProgram, operators: Sequence[ProgramOperator], layers: Sequence[FluidOperator]) -> dict[str, tuple[Call, ...]]:
    """Return the calls of each recurrent operator of one of Fluid's graphs, by its layer's name."""
    lowering = ProgramLowering(stated, {}, {}, layers)
    return received_in(lambda: lowering.program(operators, stated.path.stat().st_size), lowering.stacks)


def read(
    stated: StatedProgram, layers: Sequence[tuple[ProgramOperator, Recurrent]], arrays: Mapping[str, Array]
) -> tuple[ReadStacks | None, dict[str, tuple[Call, ...]]]:
    """Return the first graph of a program with its layers, and what these receive; no graph for one that is not as its operators ask.

    layers  the operators rnn with their layers
    """
    lowering = ProgramLowering(stated, arrays, {id(operator): stack for operator, stack in layers})
    size = stated.path.stat().st_size + sum(array.nbytes for array in arrays.values())

    def lower() -> Program:
        return lowering.program(stated.graphs[0], size)

    looked, received = recognise_in(lower, _LATER, lowering.stacks)
    if looked.scope is None:
        return None, received
    places, singles = placed(looked.scope, lowering.calls)
    return ReadStacks(looked.scopes, places, looked.layers, lowering.names, singles), received
