"""The process of one part: `python -m tests.gpu.child FILE`, where FILE says as JSON what is to be done.

It goes through the part's cases, except for those that a process before it began, and writes each result at once.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import re
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import Any

import numpy as np

from rnnconvert.core.errors import AbsentExecutorError, RefusedError
from tests.gpu import standins
from tests.gpu.records import FAILED, REFUSED, SKIPPED, Absence, Journal, Record, Refusal
from tests.gpu.work import Case, Outcome, Work

AGAIN = 75
"""The exit code that asks for a fresh process: after an error of CUDA nothing else runs in the old one."""


def main(path: str) -> int:
    """Run a part."""
    _end_with_the_parent()
    order: dict[str, Any] = json.loads(Path(path).read_text(encoding="utf-8"))
    folder = Path(order["folder"])
    work = Work(order["part"], order["device"], folder, order.get("cudnn", ""), order.get("facts", {}))
    journal = Journal(folder / "journal.jsonl")
    if work.stands_in:
        standins.register(folder)
    module = importlib.import_module(order["module"])
    every: list[Case] = module.cases(work)[:: order.get("sample", 1)]
    begun = {line["start"] for line in journal.lines() if "start" in line}
    journal.write({"cases": [case.name for case in every]})
    for case in every:
        if case.name in begun:
            continue
        journal.start(case.name)
        began = time.perf_counter()
        result, broken = _tried(case)
        took = time.perf_counter() - began
        if result.arrays:
            arrays = folder / "arrays"
            arrays.mkdir(exist_ok=True)
            number = sum(1 for _ in arrays.iterdir())
            named: dict[str, Any] = {f"array {name}": array for name, array in result.arrays.items()}
            np.savez(arrays / f"{number}.npz", case=np.array(case.name), **named)
        record = Record(work.part, case.name, result.verdict, result.why, result.ratio, result.largest, seconds=took, facts=result.facts)
        journal.add(record)
        if broken and not work.stands_in:
            return AGAIN
    return 0


def _end_with_the_parent() -> None:
    """Have Linux end this process when the one that started it is killed; executors end when their input does."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PARENT_DEATH, signal.SIGKILL)


_PARENT_DEATH = 1  # PR_SET_PDEATHSIG of linux/prctl.h


def _tried(case: Case) -> tuple[Outcome, bool]:
    """What a case gives, and whether the process may be unusable after it."""
    try:
        return case.run(), False
    except (NotImplementedError, Refusal, RefusedError) as refusal:
        return Outcome(REFUSED, _message(refusal)), False
    except (Absence, AbsentExecutorError, ModuleNotFoundError) as absence:
        return Outcome(SKIPPED, _message(absence)), False
    except Exception as error:
        traceback.print_exc()
        message = f"{type(error).__name__}: {_message(error)}"
        return Outcome(FAILED, message), bool(_LASTING.search(message))


_LASTING = re.compile(r"cuda|\([45]\d{3}\)", re.IGNORECASE)
"""Errors after which CUDA gives errors only: its own, and cuDNN's internal (4000) and execution (5000) ones."""


def _message(error: BaseException) -> str:
    return " ".join(str(error).split())[:600]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
