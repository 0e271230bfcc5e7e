"""Starts the process of each part, watches it, and starts another where it crashes or hangs.

Every process is the first of a session of its own, so that those it starts in turn end with it.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tests.gpu.child import AGAIN
from tests.gpu.parts import Part
from tests.gpu.records import FAILED, UNRUN, Journal, Record

RESTARTS = 8
"""How often a part's process is started anew after a crash, a hang, or an error of CUDA."""

TICK = 0.05
LONGEST = 1 << 20
"""Bytes of a part's noise that are kept."""


class Task(NamedTuple):
    """part    what is run
    device  "cuda", or "cpu" for stand-ins
    folder  the part's own
    order   what else its process reads: sample, facts, cudnn
    """

    part: Part
    device: str
    folder: Path
    order: Mapping[str, Any]


def run(task: Task, end: float, say: Callable[[str], None]) -> list[Record]:
    """Run a part until `end`, as time.monotonic counts, at the latest; return what every case gave, or why it gave nothing."""
    task.folder.mkdir(parents=True, exist_ok=True)
    order = {"part": task.part.name, "module": task.part.module, "device": task.device, "folder": str(task.folder)}
    path = task.folder / "order.json"
    path.write_text(json.dumps({**order, **task.order}), encoding="utf-8")
    journal = Journal(task.folder / "journal.jsonl")
    end = min(end, time.monotonic() + task.part.seconds)
    reason = ""
    for _ in range(1 + RESTARTS):
        reason = _attempt(task, path, journal, end, say)
        if not reason:
            break
        if reason == _LATE:
            break
    return _all(task.part, journal, reason)


_LATE = "its time was over"


def _attempt(task: Task, path: Path, journal: Journal, end: float, say: Callable[[str], None]) -> str:
    """Run one process; return "" once it is through, else why another one is needed, or that the time is over."""
    environment = {**os.environ, "PYTHONUNBUFFERED": "1", "PYTHONFAULTHANDLER": "1"}
    # JAX would take three quarters of the memory, and keep it from whoever comes next.
    environment.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    with (task.folder / "noise").open("ab") as noise:
        before = noise.tell()
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.gpu.child", str(path)],
            stdin=subprocess.DEVNULL, stdout=noise, stderr=noise, env=environment, start_new_session=True,
        )  # fmt: skip
        try:
            late = _watched(process, task.part, journal, end, say)
        finally:
            _end(process)
    begun = journal.begun()
    code = process.returncode
    if late == _LATE:
        if begun:
            journal.add(Record(task.part.name, begun, UNRUN, "it was still running when the part's time was over"))
        return _LATE
    if late:
        journal.add(Record(task.part.name, begun or "(start)", FAILED, late))
        return late if begun else ""
    if code == AGAIN:
        return "an error of CUDA"
    if code == 0:
        return ""
    ended = _ending(code)
    words = _last_words(task.folder / "noise", before)
    journal.add(Record(task.part.name, begun or "(start)", FAILED, f"{ended}{': ' if words else ''}{words}"))
    return ended if begun else ""


def _watched(process: subprocess.Popen[bytes], part: Part, journal: Journal, end: float, say: Callable[[str], None]) -> str:
    """Wait until the process ends; return why it has to be ended instead, or ""."""
    count, since, first, before = -1, time.monotonic(), True, len(journal.records())
    while process.poll() is None:
        time.sleep(TICK)
        size = journal.path.stat().st_size if journal.path.is_file() else 0
        now = time.monotonic()
        if size != count:
            first = len(journal.records()) == before  # the first case of a process imports a framework
            count, since = size, now
            say(journal.begun())
        limit = part.first if first else part.each
        if now > end:
            return _LATE
        if now - since > limit:
            return f"no answer within {limit} seconds"
    return ""


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process with all that it started."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _ending(code: int) -> str:
    if code >= 0:
        return f"its process ended with {code}"
    try:
        return f"its process was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"its process was ended by signal {-code}"


def _last_words(path: Path, before: int) -> str:
    """The last line that says something, after what processes before have said."""
    lines = [line.strip() for line in tail(path, min(4000, path.stat().st_size - before)).splitlines()]
    words = [line for line in lines if line and not line.startswith(("File ", "Extension modules", "Current thread", "Thread "))]
    return words[-1][:300] if words else ""


def tail(path: Path, most: int = LONGEST) -> str:
    """The end of a file of text."""
    if not path.is_file():
        return ""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - most))
        return file.read().decode("utf-8", errors="replace")


def _all(part: Part, journal: Journal, reason: str) -> list[Record]:
    """What was found, and the cases that were not reached."""
    records = journal.records()
    over = {record.case for record in records}
    listed = [line["cases"] for line in journal.lines() if "cases" in line]
    rest = [name for name in (listed[-1] if listed else []) if name not in over]
    why = reason if reason == _LATE else f"the process was started {1 + RESTARTS} times; the last time: {reason}"
    return records + [Record(part.name, name, UNRUN, why) for name in rest]
