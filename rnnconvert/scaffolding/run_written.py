"""The executor of models that `scaffold` writes: it makes the model of a file of Python, fills it, runs it and saves its weights.

Other executors import nothing of rnnconvert. This one does, as the written file itself: its `load` calls `load_into`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rnnconvert.core.arrays import Array
from rnnconvert.core.errors import RnnConvertError
from rnnconvert.core.remedies import of_the_command_line
from rnnconvert.models.runners import ModelOutputs
from rnnconvert.models.verify import ModelCalls, opened
from rnnconvert.scaffolding.scaffold import targets
from rnnconvert.scaffolding.written import WrittenSource, filled

NEEDS: tuple[str, ...] = ()
FORMAT, SUFFIX = "", ".py"
VARIANTS = {name: {"device": "cpu", "needs": target.NEEDS, "target": name} for name, target in targets().items()}

_filled: list[Any] = []
"""The model that this process has filled."""


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Fill the model, run it or save its weights, as the request's "job" says; an error of ours keeps its words and its exit code."""
    with of_the_command_line() if request["by_flags"] else contextlib.nullcontext():
        try:
            answered: dict[str, Any] = {"fill": _fill, "run": _run, "save": _save}[request["job"]](request)
        except RnnConvertError as error:
            answered = {"error": [error.headline, error.details, error.exit_code, error.kind]}
    return answered


def _fill(request: dict[str, Any]) -> dict[str, Any]:
    written = WrittenSource(Path(request["code"]), Path(request["file"]), tuple(request["settings"]), request["strict"])
    report = filled(targets()[request["variant"]["target"]], written)
    _filled[:] = [report.model]
    model, notes = opened(report.model)
    return {
        "pairs": [[entry.target, entry.source] for entry in report.filled if entry.kind == "recurrent"],
        "dtypes": sorted({array.dtype.name for array in model.arrays.values() if array.dtype.kind == "f"}),
        "notes": notes,
    }


def _run(request: dict[str, Any]) -> dict[str, Any]:
    model, _ = opened(_filled[0])
    ran, shaken = ModelCalls(_handed(request["inputs"]), before=[*map(_handed, request["before"])]).run(model, request["shakes"])
    return {"ran": _plain(ran), "shaken": [_plain(each) for each in shaken]}


def _handed(inputs: Sequence[tuple[str, Array]]) -> Any:
    """Return inputs as a caller hands them in: by name, where they have names."""
    return dict(inputs) if any(name for name, _ in inputs) else [array for _, array in inputs]


def _plain(ran: ModelOutputs) -> dict[str, Any]:
    taps = {name: {word: None if value is None else _sent(value) for word, value in vars(tap).items()} for name, tap in ran.taps.items()}
    return {"outputs": [_sent(array) for array in ran.outputs], "taps": taps}


def _sent(array: Array) -> Array:
    """Return an array in a type that numpy knows by itself."""
    return array if array.dtype.kind in "biuf" else array.astype(np.float32)


def _save(request: dict[str, Any]) -> dict[str, Any]:
    place = Path(request["place"])
    try:
        with place.open("wb") as file:
            targets()[request["variant"]["target"]].save(_filled[0], file, place.name)
    except OSError as error:
        return {"unwritable": [error.errno, error.strerror]}
    return {}
