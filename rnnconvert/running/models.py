"""The model of a file, which an executor runs whole as often as it is asked: rnnconvert.running.witness on the other side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rnnconvert.core.arrays import Array
from rnnconvert.core.errors import ExecutorError
from rnnconvert.core.malformed import malformed
from rnnconvert.running.parent import Process

NamedArrays = Sequence[tuple[str, Array]]
"""Arrays in their order, each with its name, or "" where only the order says what it is."""

Calls = Sequence[Mapping[str, Any]]
"""The calls of a layer, as rnnconvert.running.witness.Witness.record keeps them."""


class RefusedInputsError(Exception):
    """Inputs that a model does not take, or does not run on."""


@dataclass(frozen=True)
class RecordedRun:
    """The outputs of a model in one call after another.

    outputs  the outputs of each call, by name
    layers   for each call, the calls of each layer by its name
    """

    outputs: Sequence[Mapping[str, Array]]
    layers: Sequence[Mapping[str, Calls]]


@dataclass(frozen=True)
class ModelAnswer:
    """An executor's answer about a model that it ran.

    inputs    the inputs of the first call, with their names
    stated    the names of its inputs, and their lengths as it states them: names or None for open axes; None if it does not
    paddings  the filling that ends the sequences of each input, or None
    rows      the bound below which the integers of each input stay, or None
    run       its outputs
    shaken    its outputs with other weights, each about one unit in the last place off; layers of the last call alone
    reasons   why a layer's calls are not recorded, by its name
    notes     how the model ran, if not as it stands
    ordered   whether its inputs and outputs have an order, and not only names
    """

    inputs: NamedArrays
    stated: Sequence[tuple[str, Sequence[Any] | None]]
    paddings: Sequence[float | None]
    rows: Sequence[int | None]
    run: RecordedRun
    shaken: Sequence[RecordedRun]
    reasons: Mapping[str, str]
    notes: Sequence[str]
    ordered: bool


@dataclass(frozen=True)
class ModelProcess:
    """A file in an executor that runs its model whole.

    file   the file as the executor takes it
    exact  whether a model that computes in a coarser type than its weights have is to compute in theirs, where it can
    """

    process: Process
    file: str
    exact: bool = False

    def drawn(self, layers: Sequence[str] = (), seed: int = 0) -> ModelAnswer:
        """Run the model twice on inputs that are drawn for it, and record the calls of some of its layers.

        Raises ExecutorError for a model that runs on none.
        """
        return self._asked({"layers": list(layers), "seed": seed})

    def run(
        self,
        calls: Sequence[NamedArrays],
        layers: Sequence[str] = (),
        shakes: int = 0,
        changes: Sequence[tuple[Array, Array]] = (),
        apart: bool = False,
    ) -> ModelAnswer:
        """Run the model on the inputs of one call after another, and as often with other weights.

        changes  weights of the model, each with the numbers that take its place
        apart    whether each call begins anew, and does not follow on the one before

        Raises RefusedInputsError for inputs or weights that are not the model's, and for inputs that it does not run on.
        """
        wanted = {"layers": list(layers), "seed": 0, "calls": calls, "shakes": shakes, "changes": list(changes), "apart": apart}
        try:
            return self._asked(wanted)
        except ExecutorError as error:
            raise RefusedInputsError(error.problem) from None

    def _asked(self, wanted: dict[str, Any]) -> ModelAnswer:
        answer = self.process.ask(file=self.file, layers=[], witness={**wanted, "exact": self.exact})
        if "misfit" in answer:
            raise RefusedInputsError(str(answer["misfit"]))
        with malformed(lambda what: ExecutorError(self.process.executor.name, f"what it recorded of the model is malformed: {what}")):
            return _read(answer)


def _read(answer: Mapping[str, Any]) -> ModelAnswer:
    """Return an answer, checked. Raises what a malformed one leads to."""
    stated = [(str(name), None if dims is None else list(dims)) for name, dims, _ in answer["stated"]]
    stated = stated or [("", None)] * len(answer["inputs"])
    # A model that only states its inputs was called on none.
    inputs = zip((name for name, _ in stated), answer["inputs"], strict=True) if answer["inputs"] else ()
    shaken = zip(answer["shaken"], answer["shaken_runs"], strict=True)
    return ModelAnswer(
        [(name, np.asarray(array)) for name, array in inputs],
        stated,
        [None if padding is None else float(padding) for padding in answer["paddings"] or [None] * len(answer["inputs"])],
        [None if rows is None else int(rows) for rows in answer["rows"] or [None] * len(answer["inputs"])],
        RecordedRun(_outputs(answer["outputs"]), [_layers(run) for run in answer["runs"]]),
        [RecordedRun(_outputs(outputs), [_layers(run, shaken=True)]) for outputs, run in shaken],
        {str(name): str(why) for name, why in answer["reasons"].items()},
        [str(note) for note in answer["notes"]],
        bool(answer["ordered"]),
    )


def _outputs(calls: Sequence[Sequence[tuple[str, Any]]]) -> list[dict[str, Array]]:
    named = [{str(name): np.asarray(array) for name, array in call} for call in calls]
    if any(len(by_name) < len(call) for by_name, call in zip(named, calls, strict=True)):
        raise ValueError("two outputs have one name")
    return named


def _layers(run: Mapping[str, Calls], shaken: bool = False) -> dict[str, Calls]:
    return {str(name): [_checked(call, shaken) for call in calls] for name, calls in run.items()}


def _checked(call: Mapping[str, Any], shaken: bool) -> dict[str, Any]:
    """Return a call whose arrays have the axes that they should have. Raises ValueError for others.

    shaken  whether it ran with other weights, of which what the layer reads is not kept
    """
    checked: dict[str, Any] = {}
    for name, axes in (("x", 3), ("y", 3), ("last", 2), ("mask", 2)):
        checked[name] = None if call[name] is None else np.asarray(call[name])
        if checked[name] is not None and checked[name].ndim != axes:
            raise ValueError(f"{name} of the shape {checked[name].shape}")
    if checked["x"] is None and not shaken:
        raise ValueError("no x")
    for name in ("hidden", "cell", "h_n", "c_n"):
        checked[name] = None if call[name] is None else [np.asarray(state) for state in call[name]]
    return checked
