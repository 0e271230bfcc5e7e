"""Results as one small file, and the comparison with those that were kept before."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from rnnconvert.containers import safetensors
from rnnconvert.core.arrays import Array
from tests.gpu.records import EQUAL, Record

FOLDER = Path(__file__).resolve().parent.parent / "results" / "gpu"
KEY = "rnnconvert.gpu"
VERSION = 1
_SEPARATOR = " | "

ROUNDING = {"float64": 2.0**-22, "float32": 2.0**-15, "float16": 2.0**-7, "bfloat16": 2.0**-4, "tf32": 2.0**-7, "persist": 2.0**-12}
"""How far two honest answers may be from one another: numbers are of the size of one, and kept in float32."""


def collected(part: str, folder: Path) -> dict[str, Array]:
    """The arrays of a part's cases, by part and case."""
    arrays: dict[str, Array] = {}
    for path in sorted((folder / "arrays").glob("*.npz"), key=lambda file: int(file.stem)):
        try:
            with np.load(path, allow_pickle=False) as archive:
                case = str(archive["case"])
                for name in archive.files:
                    if name.startswith("array "):
                        arrays[_SEPARATOR.join((part, case))] = archive[name]
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
            continue  # the process was killed while it wrote this one
    return arrays


def write(path: Path, arrays: Mapping[str, Array], about: Mapping[str, Any], records: Sequence[Record]) -> None:
    """Write the arrays of cases that are equal to the reference, with what they are of."""
    good = {_SEPARATOR.join((record.part, record.case)) for record in records if record.verdict == EQUAL}
    verdicts = {_SEPARATOR.join((record.part, record.case)): asdict(record)["verdict"] for record in records}
    text = json.dumps({"version": VERSION, "about": dict(about), "verdicts": verdicts})
    safetensors.write(path, {name: arrays[name] for name in sorted(good & arrays.keys())}, {KEY: text})


def read(path: Path) -> tuple[dict[str, Array], dict[str, Any]]:
    """The arrays of kept results, and what they are of. Raises ValueError for another file."""
    stored = safetensors.read(path)
    document = json.loads(stored.metadata.get("__metadata__", {}).get(KEY, "{}"))
    if document.get("version") != VERSION:
        raise ValueError(f"{path} is not a file of kept results of version {VERSION}")
    return dict(stored.arrays), document


def of_gpus() -> list[Path]:
    """The files of results that a GPU gave."""
    return [path for path in files() if not read(path)[1]["about"]["stand-in"]]


def files() -> list[Path]:
    """Every file of kept results."""
    return sorted(FOLDER.glob("*.safetensors"))


def allowed(case: str) -> float:
    """How far an answer to a case may be from one that was kept, as its name tells the element type."""
    words = case.split()
    if "tf32" in case or ("persist" in case and "float32" in words):
        return ROUNDING["tf32" if "tf32" in case else "persist"]
    return next((value for name, value in ROUNDING.items() if name in words), ROUNDING["float32"])


def compare(records: Sequence[Record], arrays: Mapping[str, Array], before: Mapping[str, Array]) -> list[str]:
    """Note in every record how far it is from what was kept, in units of what is allowed; return what differs."""
    wrong = []
    for record in records:
        name = _SEPARATOR.join((record.part, record.case))
        if name not in arrays or name not in before:
            continue
        mine, theirs = arrays[name].astype(np.float64), before[name].astype(np.float64)
        if mine.shape != theirs.shape:
            wrong.append(f"{name}: {mine.size} numbers, but {theirs.size} were kept")
            continue
        scale = max(1.0, float(np.abs(theirs).max(initial=0.0)))
        record.drift = float(np.abs(mine - theirs).max(initial=0.0)) / (allowed(record.case) * scale)
        if record.drift > 1:
            wrong.append(f"{name}: {record.drift:.3g} times what two honest answers may differ")
    return wrong
