"""Live modules, exported programs and TorchScript archives as descriptions: their operators, followed without a run.

An archive states no shapes. What its inputs may be is found by reading it with each number of axes in turn, and with the lengths
that its weights ask for.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial as bound_to
from operator import itemgetter
from pathlib import Path
from types import MappingProxyType
from typing import Any

from rnnconvert.containers.temporary import new_folder
from rnnconvert.core.cached import cached_property
from rnnconvert.core.claims import DYNAMIC
from rnnconvert.core.errors import RefusedError, RnnConvertError, UsageError
from rnnconvert.core.remedies import FixAt, Flag
from rnnconvert.files.load import load_with
from rnnconvert.files.options import Options
from rnnconvert.formats.pytorch import aten
from rnnconvert.formats.pytorch.described.exporting import LiveProgram, kept_between_calls
from rnnconvert.formats.pytorch.described.reading import ProgramReading
from rnnconvert.formats.pytorch.metadata import TorchMetadata
from rnnconvert.formats.pytorch.program.kinds import RECURRENT
from rnnconvert.formats.pytorch.program.program import OperatorProgram, Ref
from rnnconvert.formats.pytorch.recognise import stored_arrays as stored_in
from rnnconvert.formats.pytorch.whole import of_checkpoint
from rnnconvert.graphs.operators import SAME
from rnnconvert.graphs.sizes import Dim, Dims, Size, open_size
from rnnconvert.models.readers import model_of
from rnnconvert.scaffolding import kinds
from rnnconvert.scaffolding.description import RANK, Check, Description
from rnnconvert.scaffolding.fixed import FixedInputs, as_array, as_number, check_fixed
from rnnconvert.scaffolding.needs import Needs, ReadingBudget, StatedAxes, of_axes, open_lengths, stated_ranks
from rnnconvert.scaffolding.text import text


def describe(path: Path, partial: bool = False, axes: StatedAxes = (), fix: FixedInputs = MappingProxyType({})) -> Description:
    """Return the model of a file; `partial` leaves out the operators that are not known.

    axes  how many each input has that does not state it
    fix   the values of inputs that are plain numbers

    Raises RefusedError for an operator that is not known, with its place; UsageError for a file without a program.
    """
    program = _program(path, fix)
    checkpoint = load_with(path, "pytorch", Options())
    units = of_checkpoint(checkpoint).units
    description = _tried(
        program, lambda needs, partial: ProgramReading(program, units, checkpoint.arrays, "model", needs, partial), partial, axes
    )
    packed = bool(stored_in(path).metadata_as(TorchMetadata).get("unpacked"))
    fixed = {name: as_array(name, value, program.numbers[name]) for name, value in fix.items()}
    return replace(description, fixed=fixed, notes=(*description.notes, *[DYNAMIC] * packed), integers=packed)


def describe_live(module: Any, example: Sequence[Any], partial: bool = False) -> Description:
    """Return the description of a live module for inputs like an example; sizes that it does not depend on stay open.

    partial  leave out unknown operators

    Raises RefusedError if torch.export cannot follow it, or for an unknown operator; MissingPackageError without torch.
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

                description = _tried(program, reading, attempt == 3)
                if first is not None and attempt < 3:
                    note = f"it is followed at the example's lengths alone, because of {first.feature}: {first.reason}"
                    return replace(description, notes=(note, *description.notes))
                return description
        except RefusedError as error:  # a number that is computed from lengths stands among the operators, or in a guard
            first = first or error
    assert first is not None
    raise first


def _program(path: Path, fix: FixedInputs = MappingProxyType({})) -> OperatorProgram:
    """Return the program of a file. Raises UsageError for a file without one, RefusedError for one that is not followed.

    fix  the values of inputs that are plain numbers
    """
    metadata = stored_in(path).metadata_as(TorchMetadata)
    follow, root = metadata.get("follow"), str(metadata.get("root", "state_dict"))
    if follow is None and root not in ("state_dict", "envelope"):
        raise UsageError(
            f"{path} holds a pickled {root}, whose code is not in the file. Where Python finds that class, "
            f"torch.jit.script(torch.load('{path.name}', weights_only=False).eval()).save('module.pt') writes a file that states it, or "
            "torch.jit.trace with an example"
        )
    if follow is None:
        raise UsageError(
            f"{path} holds weights without a model. Models come from files that state their layers: of torch.jit.save or "
            "torch.export.save, or from a live module"
        )
    numbers = {name: bound_to(as_number, name, value) for name, value in fix.items()}
    program = follow(fixed=numbers) if fix and metadata.get("torchscript") else follow()
    if not isinstance(program, str):
        check_fixed(fix, list(program.numbers))
    if isinstance(program, str) or program.outputs is None:
        why = program if isinstance(program, str) else "what it gives is not stated plainly"
        raise RefusedError("a program that is not followed", "a model written as code", why, "", "")
    if program.changed:
        raise kept_between_calls(program.changed)
    return program  # type: ignore[no-any-return]


def _tried(
    program: OperatorProgram, reading: Callable[[Needs, bool], ProgramReading], partial: bool, axes: StatedAxes = (), videos: bool = False
) -> Description:
    """Return the description for the first choice of inputs that every operator takes; in part, for that with the fewest left out.

    axes    how many each input has that does not state it
    videos  whether they are sequences of images, or rooms

    Raises RefusedError where another choice may be meant, and is another model.
    """
    operators = {operation.kind for operation in program.operations}
    loops = {operation.loop for operation in program.operations if operation.loop is not None}
    over_time = bool(loops) or operators & {*RECURRENT, "pack", "conv1d", "convolution", "_convolution"}
    ranks: tuple[int, ...] = (
        (2, 3, 1) if "embedding" in operators else (3, 2, 4, 1) if over_time else (4, 3, 2) if "conv2d" in operators else (2, 3, 4, 1)
    )
    if videos:
        ranks = (5,)
    states = {id(state.before) for loop in loops for state in loop.states}
    stated = [[len(ref.dims)] if ref.dims is not None else [2, 3, 1] if id(ref) in states else list(ranks) for ref in program.inputs]
    lengths = {id(ref) for ref in _lengths_of_packed(program)}
    stated = [[1] if id(ref) in lengths and ref.dims is None else ranks for ref, ranks in zip(program.inputs, stated, strict=True)]
    lengths_stated = _choose(stated, program.inputs, axes)
    usual_ranks = next(itertools.product(*stated)) if over_time or operators & {"embedding", "conv2d"} else None
    several = 1 < math.prod(map(len, stated)) <= _MOST_CHOICES
    first: RnnConvertError | None = None  # of the reading that went furthest
    furthest = -1
    in_part: list[Description] = []
    for leaves_out in (False, True)[: 1 + partial]:
        budget, fits, tried_on = ReadingBudget(), list[_Fit](), 0
        reached_by: dict[tuple[int, ...], int] = {}
        for choice in _choices(stated, reached_by):
            read_program: list[ProgramReading] = []

            def read(
                needs: Needs, choice: Sequence[int] = choice, leaves_out: bool = leaves_out, last: list[ProgramReading] = read_program
            ) -> Description:
                inputs = [
                    _input(ref, rank, needs, "int64" if id(ref) in lengths else "float32")
                    for ref, rank in zip(program.inputs, choice, strict=True)
                ]
                last[:] = [reading(needs, leaves_out)]
                return last[0].description(inputs)

            try:
                description = budget.read(read, lengths_stated)
            except RefusedError as error:
                reached_by[choice] = reached = read_program[0].reached if read_program else 0
                if not fits and reached > furthest:
                    first, furthest = error, reached
                continue
            if description is not None and not leaves_out:
                fits.append(_Fit(choice, description, read_program[0].reads_fixed_length, read_program[0].spreads))
            in_part += [] if description is None or not leaves_out else [description]
            tried_on += bool(fits)
            if fits and not several and (not fits[-1].spreads or tried_on > _MOST_CHOICES):
                break
        if fits:
            return _chosen(fits, program.inputs, usual_ranks, first, math.prod(map(len, stated)) if several else 0, axes)
    if in_part:
        return min(in_part, key=lambda description: sum(isinstance(node.kind, kinds.LeftOut) for node in description.scope.every_node()))
    if not lengths_stated and any(ref.dims is None for ref in program.inputs):
        first = _unstated(first, program, reading, max(reached_by.items(), key=itemgetter(1), default=((), 0))[0])
        if isinstance(first, RefusedError) and not first.remedy and not videos and operators & _OVER_SPACE:
            try:
                return _tried(program, reading, partial, axes, videos=True)
            except RefusedError as error:
                first = error if error.remedy else first
    raise first or RefusedError("its inputs", "a model written as code", "no number of axes fits all of its operators", "", "")


def _lengths_of_packed(program: OperatorProgram) -> Iterator[Ref]:
    """Yield the inputs that the lengths of packed sequences are, or are computed from: whole numbers of one axis."""
    for operation in program.operations:
        ref = operation.attributes.get("lengths") if operation.kind == "pack" else None
        while isinstance(ref, Ref) and ref.operation is not None and ref.operation.kind in _KEEPS_AXES:
            ref = ref.operation.inputs[0]
        if isinstance(ref, Ref) and ref.operation is None and not ref.stored:
            yield ref


_OVER_SPACE = {"conv2d", "conv3d", "convolution", "_convolution"}
_ARITHMETIC = "add sub mul div floor_divide clamp clamp_min clamp_max sort"
_KEEPS_AXES = frozenset({*aten.CASTS, *(name for name, operator in aten.DIALECT.items() if operator is SAME), *_ARITHMETIC.split()})
"""Operators whose result has the axes of what they read first."""


def _choices(stated: Sequence[Sequence[int]], reached: Mapping[tuple[int, ...], int]) -> Iterator[tuple[int, ...]]:
    """Yield numbers of axes for all inputs: every choice, or of very many those alike, and the best of these changed for one input
    after the other.

    reached  how far the reading of each choice went, which grows meanwhile
    """
    if math.prod(map(len, stated)) <= _EVERY_CHOICE:
        yield from itertools.product(*stated)
        return
    alike = dict.fromkeys(tuple(rank if rank in ranks else ranks[0] for ranks in stated) for rank in itertools.chain(*stated))
    yield from alike
    best = max(alike, key=lambda choice: reached.get(choice, -1))
    for _ in range(_ROUNDS):
        before = best
        for place, ranks in enumerate(stated):
            others = [(*best[:place], rank, *best[place + 1 :]) for rank in ranks]
            yield from (other for other in others if other not in reached)
            best = max([best, *others], key=lambda choice: reached.get(choice, -1))
        if best == before:
            return


def _unstated(
    error: RnnConvertError | None, program: OperatorProgram, reading: Callable[[Needs, bool], ProgramReading], ranks: Sequence[int]
) -> RnnConvertError | None:
    """Return the error of a reading, with the way out if the inputs' axes are not stated, or numbers among them are open."""
    if type(error) is not RefusedError or error.remedy:
        return error
    if program.numbers.keys() & {ref.name for ref in program.inputs}:
        ways = " ".join(str(FixAt(ref.name)) for ref in program.inputs if ref.name in program.numbers)
        return RefusedError(error.feature, error.target, error.reason, f"Its inputs that are numbers can be fixed: {ways}", error.layer)
    if not any(_differs(error, program, reading, ranks, length) for length in _LENGTHS):
        return error  # the lengths of the inputs have no part in it
    lengths = open_lengths((None,) * rank for ref, rank in zip(program.inputs, ranks, strict=False) if ref.dims is None)
    states = "A program of torch.export (.pt2) states them: export that"
    remedy = f"{lengths}, and as many axes as each input has. {states}" if lengths else states
    return RefusedError(error.feature, error.target, error.reason, remedy, error.layer)


def _differs(
    error: RefusedError, program: OperatorProgram, reading: Callable[[Needs, bool], ProgramReading], ranks: Sequence[int], length: int
) -> bool:
    """Return whether a program is read, or refused for another reason, if its inputs' axes have a length."""
    closed = of_axes({ref.name: (length,) * rank for ref, rank in zip(program.inputs, ranks, strict=False) if ref.dims is None})

    def read(needs: Needs) -> Description:
        inputs = [_input(ref, rank, needs, "float32") for ref, rank in zip(program.inputs, ranks, strict=True)]
        return reading(needs, False).description(inputs)

    try:
        ReadingBudget().read(read, closed)
    except RefusedError as other:
        return _without_lengths(other) != _without_lengths(error)
    return True


def _without_lengths(error: RefusedError) -> str:
    return re.sub(r"\w+, axis \d+|\d+", "#", f"{error.feature}: {error.reason}")


_LENGTHS = (16, 24)
"""Lengths at which a program is read again, to see whether its refusal depends on them."""
_EVERY_CHOICE = 256
"""The most choices of numbers of axes that are all tried: as many as four inputs have, since inputs such as two states change together."""
_ROUNDS = 3
"""How often each input's number of axes is chosen anew, given the others'."""
_MOST_CHOICES = 16
"""The most numbers of axes of all inputs that are tried although one fits."""


@dataclass(frozen=True)
class _Fit:
    """A program read with some numbers of axes.

    ranks                those numbers, of each input
    reads_fixed_length   whether it computes with the length of an axis that these numbers leave fixed
    spreads              how many sums and products are of tensors with different numbers of axes: one is then spread over the other's
    """

    ranks: tuple[int, ...]
    description: Description
    reads_fixed_length: bool
    spreads: int

    @cached_property
    def lines(self) -> str:
        """The model as code, without comments and docstrings, which state axes."""
        from rnnconvert.formats.pytorch.scaffold.writer import STYLE

        code = text(self.description, "", STYLE)[0].partition("\ndef main")[0]
        return re.sub(r' *#[^\n]*|""".*?"""', "", code, flags=re.DOTALL)

    @cached_property
    def ones(self) -> int:
        """How many axes of its inputs can only have the length 1: they may as well not be there."""
        return sum(axis == 1 for value in self.description.scope.inputs for axis in value.shape)

    @cached_property
    def keeps_batch(self) -> bool:
        """Whether the first axis of an input is open, and the first one of every output."""
        scope = self.description.scope
        batches = {value.axes[0] for value in scope.inputs if value.axes} - {""}
        return all(value.axes[:1] and value.axes[0] in batches for value in scope.outputs)

    def is_like(self, other: _Fit) -> bool:
        """Return whether another reading gives the same code."""
        try:
            return self.lines == other.lines
        except RefusedError:  # of what no line of code is known for
            return False


def _chosen(
    fits: Sequence[_Fit],
    inputs: Sequence[Ref],
    usual_ranks: tuple[int, ...] | None,
    refused: RnnConvertError | None,
    tried: int,
    axes: StatedAxes,
) -> Description:
    """Return the description that fits, that keeps a batch if there is one, has the fewest axes of length 1, and spreads the fewest
    tensors; the first of those alike.

    It checks its numbers of axes if they matter.

    refused  why the first number of axes does not fit
    tried    how many numbers of axes were tried, 0 if that was not asked once some fitted
    axes     the caller's numbers of axes

    Raises RefusedError if another number of axes is another model, or may be.
    """
    fit = min(fits, key=lambda each: (not each.keeps_batch, each.ones, each.spreads))
    alike = [other for other in fits if other is fit or (tried and fit.is_like(other))]
    others_fit = any(other not in alike and other.ones <= fit.ones for other in fits)
    if tried and fit.ranks != usual_ranks and fit.reads_fixed_length and (refused is not None or others_fit):
        numbers = " or ".join(dict.fromkeys(", ".join(map(str, other.ranks)) for other in fits))
        others = "each of these gives another model" if others_fit else f"another number is refused: {refused}"
        raise RefusedError(
            "a program that computes with the length of an axis",
            "a model written as code",
            f"the file does not state how many axes its inputs have. They may have {numbers}, and {others}".removesuffix("."),
            f"State it with {Flag('axes')}, as {', '.join(map(str, fit.ranks))}.",
            "",
        )
    open_inputs = [(number, ref) for number, ref in enumerate(inputs) if ref.dims is None]
    description = replace(fit.description, open_ranks=tuple(fit.description.scope.inputs[number] for number, _ in open_inputs if not axes))
    if len(alike) == tried or not open_inputs:
        return description
    passing = alike if len(inputs) == 1 else [fit]
    fitting = {number: sorted({other.ranks[number] for other in passing}) for number, _ in open_inputs}
    texts = {number: " or ".join(f"{{0}} == {rank}" for rank in ranks) for number, ranks in fitting.items()}
    checks = [Check(f"({text})" if " or " in text else text, ((number, RANK),)) for number, text in texts.items()]
    return replace(description, checks=(*checks, *description.checks))


def _choose(stated: list[list[int]], inputs: Sequence[Ref], axes: StatedAxes) -> Needs:
    """Put the caller's numbers of axes in the place of those to be tried, and return the lengths that the caller states.

    Raises UsageError for others than the file needs.
    """
    lengths = stated_ranks(axes, [ref.name for ref in inputs if ref.dims is None])
    for number, ref in enumerate(inputs):
        if ref.dims is None and ref.name in lengths:
            stated[number] = [len(lengths[ref.name])]
    return of_axes(lengths)


def _input(ref: Ref, rank: int, needs: Needs, assumed_dtype: str) -> tuple[Dims, str]:
    """Return the axes and the element type of an input, the assumed one where the file states none."""
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
    return tuple(dims), str(needs.get(f"type of {ref.name}", ref.dtype or assumed_dtype))
