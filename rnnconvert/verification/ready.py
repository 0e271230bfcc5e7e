"""A run on an executor: its file written, asked, and its answers checked; cuDNN's own offsets in its flat buffer against ours, too."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np

from rnnconvert.core.arrays import Array
from rnnconvert.core.cells import Cell
from rnnconvert.core.errors import ExecutorError, RnnConvertError
from rnnconvert.core.reference import Outputs
from rnnconvert.core.weights import Recurrent
from rnnconvert.judging.case_kinds import Case, state_widths
from rnnconvert.language import registry
from rnnconvert.language.layout import Layout, Sizes
from rnnconvert.language.places import offsets
from rnnconvert.language.registry import systems
from rnnconvert.rewrites import Step
from rnnconvert.rewrites.fit_to_layout import Fitted
from rnnconvert.running.parent import Process
from rnnconvert.verification.gradients import GradientCase, graded


@dataclass
class LayerRun:
    """One layer of one model on one executor.

    own_file  whether the user's own file was run, or one made from it
    status    "ran"; "refused" (the executor does not do this, or its format cannot hold it), "failed" or "absent"
    reason    why it did not run
    dtype     the element type of the weights
    rounding  what it rounds like, as rnnconvert.judging.rounding.ARITHMETICS names it: float16 for float32 on tensor cores, whose TF32 has
              as many digits
    outputs   what each case gave
    left_out  why a case gave nothing, by case
    gradients of the cases that ask for them
    """

    model: str
    executor: str
    required: bool = False
    own_file: bool = False
    status: str = "ran"
    reason: str = ""
    device: str = "cpu"
    dtype: str = "float32"
    rounding: str = "float32"
    python: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    rewrites: tuple[Step, ...] = ()
    notes: dict[str, Any] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    outputs: dict[str, Outputs] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    gradients: dict[str, GradientCase] = field(default_factory=dict)


def _bound(kind: Literal["cell", "projection"]) -> Callable[[Cell], float | None]:
    return lambda cell: {clip.kind: clip.high for clip in cell.clips}.get(kind)


_FACTS: dict[str, Callable[[Cell], Any]] = {
    "activation": lambda cell: cell.activation.name,
    "forget_bias": lambda cell: cell.constants.get("f", 0.0),
    "cell_clip": _bound("cell"),
    "proj_clip": _bound("projection"),
}
"""The facts of a cell that an executor receives because its framework's files do not state them:
rnnconvert.language.layout.System.unstated."""


def how_of(part: Fitted) -> dict[str, Any]:
    """Return the facts that a file of this format does not state, in the framework's own words."""
    cell, layout = part.stack.cell, part.layout
    system = systems().get(layout.framework)
    if system is not None and system.unstated:
        cells = [direction.cell for _, _, direction in part.stack.directions()]
        return {fact: [_FACTS[fact](kind_cell) for kind_cell in cells] for fact in system.unstated}
    speaking = system is not None and system.speaking
    chosen = cell.kind == "rnn" and not speaking and len(layout.holds.activations) > 1
    how = {"nonlinearity": cell.activation.name} if chosen else {}
    if part.stack.num_directions == 2 and not speaking and len(layout.holds.merges) > 1:
        how["merge_mode"] = part.stack.layers[-1].merge
    if any("{pseudo_layer}" in tensor.name for tensor in layout.tensors):
        # Names count layers and directions together: shapes do not always tell two layers from two directions.
        how["bidirectional"] = str(part.stack.num_directions == 2).lower()
    return how


@dataclass(frozen=True)
class ReadyRun:
    """A layer in a file that an executor runs.

    pieces  the layer's names in the file; none if the file has nothing else
    part    its form there
    """

    process: Process
    file: str
    pieces: Sequence[str]
    part: Fitted

    def refusal(self, case: Case) -> str:
        """Return why the framework does not run the file, tried with the first step of a case; "" if it does."""
        try:
            self._ask(case.x[:1])
        except ExecutorError as error:
            if not error.refused:
                raise
            return error.problem
        return ""

    def answer(self, cases: Sequence[Case], layer_run: LayerRun, ran: Callable[[], None]) -> None:
        """Store the outputs of every case that the executor supports."""
        start = time.perf_counter()
        for number, case in enumerate(cases):
            if number:
                ran()
            if not states_fit(case, self.part.stack):
                names = ", ".join(step.rewrite for step in layer_run.rewrites)
                layer_run.left_out[case.name] = f"the states have other sizes in the file that ran ({names})"
                continue
            try:
                answer = self._in_one_piece(case) if case.way == "whole" else self._carried(case)
            except ExecutorError as error:
                if not error.refused:
                    raise
                layer_run.left_out[case.name] = error.problem
                continue
            layer_run.notes.update(answer.get("notes", {}))
            _same_offsets(self.process, layer_run, self.part)
            try:
                layer_run.outputs[case.name] = _outputs(answer, self.part.stack, case)
                if "gradients" in answer:
                    layer_run.gradients[case.name] = graded(answer["gradients"], self.part, case, layer_run.rounding)
            except (ValueError, KeyError, TypeError) as error:
                if isinstance(error, RnnConvertError):
                    raise
                raise ExecutorError(self.process.executor.name, f"{case.name}: {error}") from None
        layer_run.seconds["run"] = layer_run.seconds.get("run", 0.0) + time.perf_counter() - start

    def _ask(self, x: Array, **changes: Any) -> dict[str, Any]:
        inputs = {"hidden": None, "cell": None, "lengths": None, "cotangents": None, **changes}
        for name in ("hidden", "cell"):
            inputs[name] = list(inputs[name]) if inputs[name] else None
        return self.process.ask(file=self.file, layers=list(self.pieces), how=how_of(self.part), x=x, **inputs)

    def _in_one_piece(self, case: Case) -> dict[str, Any]:
        weights = case.cotangents
        cotangents = weights and {"y": weights.y, "hidden": list(weights.hidden), "cell": list(weights.cell)}
        inputs = {"hidden": case.hidden, "cell": case.cell, "lengths": case.lengths}
        try:
            return self._ask(case.x, **inputs, cotangents=cotangents)
        except ExecutorError as error:
            if not (error.refused and cotangents):
                raise
            # It may run forwards and know no gradients.
            answer = self._ask(case.x, **inputs)
            return {**answer, "notes": {**answer.get("notes", {}), "gradients": error.problem}}

    def _carried(self, case: Case) -> dict[str, Any]:
        """Run a sequence piece by piece, each starting from the state at the end of the previous one."""
        cuts = [len(case.x) // 2] if case.way == "halves" else list(range(1, len(case.x)))
        state: Mapping[str, Any] = {"hidden": case.hidden, "cell": case.cell}
        pieces = []
        for x in np.split(case.x, cuts):
            answer = self._ask(x, **state)
            state = {"hidden": answer["hidden"], "cell": answer["cell"]}
            pieces.append(answer["y"])
        return {**answer, "y": np.concatenate(pieces)}


def _same_offsets(process: Process, layer_run: LayerRun, part: Fitted) -> None:
    """Raise ExecutorError if a library reports other offsets for its buffer than ours."""
    if "offsets" in layer_run.notes:
        sizes, itemsize = Sizes.of(part.stack), part.stack.dtype.itemsize
        problem = disagreement(part.layout, sizes, itemsize, layer_run.notes["bytes"], layer_run.notes.pop("offsets"))
        if problem:
            raise ExecutorError(process.executor.name, f"the library's buffer has another layout: {problem}")
        layer_run.notes["layout"] = "the library reports the same offsets as rnnconvert"


def states_fit(case: Case, stack: Recurrent) -> bool:
    if case.hidden is None:
        return True
    hidden, cell = state_widths(stack)
    # A cell state that this cell does not have is not handed to it, nor is one that was not given.
    fits = not case.cell or not cell or [state.shape[1] for state in case.cell] == cell
    return fits and [state.shape[1] for state in case.hidden] == hidden


def _outputs(answer: Mapping[str, Any], stack: Recurrent, case: Case) -> Outputs:
    """Return an executor's answer as outputs. Raises ValueError, saying what is wrong, if it is not one."""
    lacking = [name for name in ("y", "hidden", "cell") if name not in answer]
    if lacking:
        raise ValueError(f"its answer has no {lacking[0]!r}")
    steps, batch = case.x.shape[:2]
    y = np.asarray(answer["y"])
    if y.ndim != 3 or y.shape[:2] != (steps, batch) or not np.issubdtype(y.dtype, np.floating):
        raise ValueError(f"its y is {y.dtype} of the shape {y.shape}, expected numbers ({steps}, {batch}, ...)")
    states_by_name = {}
    for name, widths in zip(("hidden", "cell"), state_widths(stack), strict=True):
        states = tuple(np.asarray(state) for state in answer[name] or ())
        if states and [state.shape for state in states] != [(batch, width) for width in widths]:
            shapes = ", ".join(str(state.shape) for state in states)
            raise ValueError(f"its {name} states have the shapes {shapes}, expected (batch, width) of {batch} and {widths}")
        states_by_name[name] = states
    return Outputs(y, states_by_name["hidden"], states_by_name["cell"])


# linLayerID, as the API reference gives it under cudnnGetRNNWeightParams: the GRU's "i" is our z.
IDENTITIES = {
    "rnn": [("input", "n"), ("recurrent", "n")],
    "gru": [*((part, gate) for part in ("input", "recurrent") for gate in "rzn")],
    "lstm": [*((part, gate) for part in ("input", "recurrent") for gate in "ifgo"), ("projection", "")],
}

Place = tuple[int, int, str, str, float, tuple[int, ...]]
"""Layer, direction, part, gate, first element, shape."""


class _OffsetLine(NamedTuple):
    """A line of the library's table.

    identity  linLayerID
    what      "matrix" or "bias"
    start     its first byte
    """

    pseudo_layer: int
    identity: int
    what: str
    start: int
    dims: Sequence[int]

    def place(self, sizes: Sizes, itemsize: int) -> Place:
        part, gate = IDENTITIES[sizes.kind][self.identity]
        layer, direction = divmod(self.pseudo_layer, sizes.num_directions)
        shape = tuple(self.dims[1:])
        if self.what == "bias":
            part, shape = f"{part}_bias", shape[:1]
        return layer, direction, part, gate, self.start / itemsize, shape


def disagreement(layout: Layout, sizes: Sizes, itemsize: int, nbytes: int, rows: Iterable[Sequence[Any]]) -> str:
    """Describe how the library's own table differs from ours; "" if it does not.

    itemsize  bytes of an element
    nbytes    size of the buffer, as the library has it
    rows      the fields of _Row, as it reports them
    """
    library = registry.title(layout.framework)
    theirs = {_OffsetLine(*row[:5]).place(sizes, itemsize) for row in rows}
    ours: set[Place] = {(r.layer, r.direction, r.part, r.gate, r.offset, r.shape) for r in offsets(layout, sizes)}
    for place in sorted(ours ^ theirs, key=str):
        who = library if place in theirs else "rnnconvert"
        layer, direction, part, gate, start, shape = place
        name = f"{part} of gate {gate}" if gate else part
        return f"only {who} has {name} of layer {layer}, direction {direction} at element {start:g} with the shape {shape}"
    elements = sum(math.prod(shape) for *_, shape in ours)
    return "" if elements * itemsize == nbytes else f"{library} has {nbytes} bytes, and rnnconvert {elements * itemsize}"
