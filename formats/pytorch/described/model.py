"""Live modules, exported programs and TorchScript archives as descriptions: their operators, followed without a run.

An archive states no shapes. What its inputs may be is found by reading it with each number of axes in turn, and with the lengths
that its weights ask for.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rnnconvert.containers.temporary import new_folder
from rnnconvert.core.errors import MissingPackageError, RefusedError, RnnConvertError, UsageError
from rnnconvert.files.load import load_with
from rnnconvert.files.options import Options
from rnnconvert.formats.pytorch.described.reading import ProgramReading
from rnnconvert.formats.pytorch.metadata import TorchMetadata
from rnnconvert.formats.pytorch.program.program import RECURRENT, OperatorProgram, Ref
from rnnconvert.formats.pytorch.stored import stored_arrays as stored_in
from rnnconvert.formats.pytorch.whole import of_checkpoint
from rnnconvert.graphs.sizes import Dim, Dims, Size, open_size
from rnnconvert.models.readers import model_of
from rnnconvert.scaffolding.description import Description
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
    model = model_of(module)
    with new_folder() as folder:
        opened = exported(module, example, path := Path(folder) / "module.pt2")
        program = _program(path)

        def reading(needs: Needs, partial: bool) -> ProgramReading:
            return ProgramReading(program, model.units, model.arrays, type(module).__name__, needs, partial)

        stated, first = {ref: ref.dims for ref in _refs(program)}, None
        for attempt in range(3 + partial):
            _state(program, stated, opened if attempt in (0, 3) else (), example if attempt == 2 else ())
            try:
                return _tried(program, reading, attempt == 3)
            except RefusedError as error:  # a length of the example's stands among the operators, or follows from another one
                first = first or error
        assert first is not None
        raise first


def _refs(program: OperatorProgram) -> list[Ref]:
    """Return the inputs of a program, and what its operators give."""
    return [*program.inputs, *(ref for operation in program.operations for ref in operation.outputs.values())]


def _state(program: OperatorProgram, stated: Mapping[Ref, Any], opened: Sequence[Sequence[int]], example: Sequence[Any]) -> None:
    """State the lengths of a program's axes: as torch does, with some open wherever they stand, or those of an example but the first."""
    lengths = {(stated[ref] or ())[axis] for ref, axes in zip(program.inputs, opened, strict=False) for axis in axes}
    for ref, dims in stated.items():
        ref.dims = None if dims is None else [None if dim in lengths and ref.operation is not None else dim for dim in dims]
    for ref, axes in zip(program.inputs, opened, strict=False):
        ref.dims = [None if axis in axes else dim for axis, dim in enumerate(ref.dims or ())]
    for ref, value in zip(program.inputs, example, strict=False):
        ref.dims = [*(ref.dims or ())[:1], *np.shape(value)[1:]]


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
    return program  # type: ignore[no-any-return]


def exported(module: Any, example: Sequence[Any], path: Path) -> list[list[int]]:
    """Write what a live module computes by torch.export; return for each input the axes that torch fixed while it followed them.

    An LSTM has its time fixed so, although it runs over any: whether the operators ask for that length is seen when they are read.

    Raises RefusedError where torch.export cannot follow it, MissingPackageError without torch.
    """
    try:
        import torch
        from torch.export import Dim, export, save
    except ImportError:
        raise MissingPackageError("torch", "describe a module") from None
    inputs = tuple(value if isinstance(value, torch.Tensor) else torch.as_tensor(value) for value in example)
    sizes = tuple(dict.fromkeys(range(value.ndim), Dim.AUTO) for value in inputs)
    training = [part for part in module.modules() if part.training]
    module.eval()
    try:
        program = export(module, inputs, dynamic_shapes=sizes, strict=False)
        save(program, path)
        shapes = {node.name: node.meta["val"].shape for node in program.graph.nodes if node.op == "placeholder"}
        names = [name for name in program.graph_signature.user_inputs if name in shapes]
        return [[n for n, size in enumerate(shapes[name]) if not isinstance(size, int) and str(size).isdigit()] for name in names]
    except Exception as error:  # torch raises what it likes
        text = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise RefusedError("a module that torch.export cannot follow", type(module).__name__, text[:300]) from None
    finally:
        for part in training:
            part.training = True


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
