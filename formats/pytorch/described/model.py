"""Live modules, exported programs and TorchScript archives as descriptions: their operators, followed without a run.

An archive states no shapes. What its inputs may be is found by reading it with each number of axes in turn, and with the lengths
that its weights ask for.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rnnconvert.containers.temporary import new_folder
from rnnconvert.core.errors import RefusedError, RnnConvertError, UsageError
from rnnconvert.files.load import load_with
from rnnconvert.files.options import Options
from rnnconvert.formats.pytorch.described.exporting import LiveProgram, kept_between_calls
from rnnconvert.formats.pytorch.described.reading import ProgramReading
from rnnconvert.formats.pytorch.metadata import TorchMetadata
from rnnconvert.formats.pytorch.program.program import RECURRENT, OperatorProgram, Ref
from rnnconvert.formats.pytorch.stored import stored_arrays as stored_in
from rnnconvert.formats.pytorch.whole import of_checkpoint
from rnnconvert.graphs.sizes import Dim, Dims, Size, open_size
from rnnconvert.models.readers import model_of
from rnnconvert.scaffolding.description import Check, Description
from rnnconvert.scaffolding.needs import Needs, Tries


def describe(path: Path, config: Path | None = None, partial: bool = False) -> Description:
    """Return the model of a file; `partial` leaves out the operators that are not known.

    Raises RefusedError for an operator that is not known, with its place; UsageError for a file without a program.
    """
    if config is not None:
        raise UsageError(f"{path} states its model. Leave out config ({config})")
    program = _program(path)
    checkpoint = load_with(path, "pytorch", Options())
    units = of_checkpoint(checkpoint).units
    return _tried(program, lambda needs, partial: ProgramReading(program, units, checkpoint.arrays, "model", needs, partial), partial)


def describe_live(module: Any, example: Sequence[Any], partial: bool = False) -> Description:
    """Return what a live module computes for inputs like an example; sizes that it does not depend on stay open.

    partial  leave out the operators that are not known

    Raises RefusedError where torch.export cannot follow it, or for an operator that is not known; MissingPackageError without torch.
    """
    model, live = model_of(module), LiveProgram(module, example)
    everywhere = [(number, axis) for number, value in enumerate(live.example) for axis in range(value.ndim)]
    first: RefusedError | None = None
    for attempt, fixed in enumerate(((), [place for place in everywhere if place[1]], everywhere, *[()] * partial)):
        try:
            with new_folder() as folder:
                single = live.write(path := Path(folder) / "module.pt2", fixed)
                program = _program(path)
                program.checks = [check for check in program.checks if live.needs(check)]
                program.checks += [Check("{0} != 1", (place,)) for place in single]

                def reading(needs: Needs, partial: bool, program: OperatorProgram = program) -> ProgramReading:
                    return ProgramReading(program, model.units, model.arrays, type(module).__name__, needs, partial)

                return _tried(program, reading, attempt == 3)
        except RefusedError as error:  # a number that is computed from lengths stands among the operators, or in a guard
            first = first or error
    assert first is not None
    raise first


def _program(path: Path) -> OperatorProgram:
    """Return the program of a file. Raises UsageError for a file without one, RefusedError for one that is not followed."""
    follow = stored_in(path).metadata_as(TorchMetadata).get("follow")
    if follow is None:
        raise UsageError(
            f"{path} holds weights without a model. Models come from files that state their layers: of torch.jit.save or "
            "torch.export.save, or from a live module"
        )
    program = follow()
    if isinstance(program, str) or program.outputs is None:
        why = program if isinstance(program, str) else "what it gives is not stated plainly"
        raise RefusedError("a program that is not followed", "a model written as code", why, "", "")
    if program.changed:
        raise kept_between_calls(program.changed)
    return program  # type: ignore[no-any-return]


def _tried(program: OperatorProgram, reading: Callable[[Needs, bool], ProgramReading], partial: bool) -> Description:
    """Return the description for the first choice of inputs that every operator takes; in part, for that with the fewest left out."""
    kinds = {operation.kind for operation in program.operations}
    over_time = kinds & {*RECURRENT, "conv1d", "convolution", "_convolution"}
    ranks = (2, 3, 1) if "embedding" in kinds else (3, 2, 4, 1) if over_time else (4, 3, 2) if "conv2d" in kinds else (2, 3, 4, 1)
    stated = [[len(ref.dims)] if ref.dims is not None else list(ranks) for ref in program.inputs]
    first: RnnConvertError | None = None
    in_part: list[Description] = []
    for leaves_out in (False, True)[: 1 + partial]:
        tries = Tries()
        for choice in itertools.product(*stated):

            def read(needs: Needs, choice: Sequence[int] = choice, leaves_out: bool = leaves_out) -> Description:
                inputs = [_input(ref, rank, needs) for ref, rank in zip(program.inputs, choice, strict=True)]
                return reading(needs, leaves_out).description(inputs)

            try:
                description = tries.read(read)
            except RefusedError as error:
                first = first or error
                continue
            if description is not None and not leaves_out:
                return description
            in_part += [] if description is None else [description]
    if in_part:
        return min(in_part, key=lambda description: sum(node.kind == "left out" for node in description.scope.every_node()))
    raise first or RefusedError("its inputs", "a model written as code", "no number of axes fits all of its operators", "", "")


def _input(ref: Ref, rank: int, needs: Needs) -> tuple[Dims, str]:
    """Return the axes and the element type of an input."""
    dims: list[Dim] = []
    for axis in range(rank):
        length = ref.dims[axis] if ref.dims is not None else None
        symbol = length if isinstance(length, str) else f"{ref.name}, axis {axis}"
        bound = needs.get(symbol, length)
        if isinstance(bound, Size):  # as many of a part: of a length itself, once that is asked for
            ((names, count),) = bound.terms
            part = needs.get(names[0])
            bound = part * count if isinstance(part, int) else bound
        dims.append(open_size(symbol) if bound is None or isinstance(bound, str) else bound)
    return tuple(dims), str(needs.get(f"type of {ref.name}", ref.dtype or "float32"))
