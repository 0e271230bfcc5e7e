"""One run: the parts one after the other, and the files of its results, whatever becomes of it."""

from __future__ import annotations

import argparse
import datetime
import platform
import sys
import time
from pathlib import Path
from typing import Any

from rnnconvert.core.arrays import Array
from rnnconvert.core.errors import RnnConvertError
from rnnconvert.core.version import __version__ as OURS
from tests.gpu import kept, machine, report, standins, supervisor
from tests.gpu.command import NEEDS, chosen
from tests.gpu.parts import Part
from tests.gpu.records import BAD, DIFFERENT, EQUAL, FAILED, SKIPPED, Journal, Record

LOG = 4 << 20
"""The most bytes of the log."""


class Session:
    """Runs the parts, and keeps what they find."""

    def __init__(self, options: argparse.Namespace, out: Path, work: Path, others: list[Path], start: float) -> None:
        self.options, self.out, self.work, self.start = options, out, work, start
        self.end = start + options.seconds
        self.parts = chosen(options.only, others, options.seconds)
        self.stands_in = options.device == "cpu"
        self.records: list[Record] = []
        self.arrays: dict[str, Array] = {}
        self.facts: dict[str, Any] = {}
        self.problems: list[str] = []
        self.lines: list[str] = []

    def run(self, missing: list[str]) -> int:
        """Run everything; return the exit code."""
        if self.stands_in:
            self._say(f"Every result of this run is of a {standins.MARK}: it proves this script, and nothing of a GPU.")
        if missing:
            self.problems.append(f"packages that are missing: {', '.join(missing)}")
        code = 0
        try:
            for part, library in self.parts:
                self._part(part, library)
        except KeyboardInterrupt:
            self._say("interrupted: what was found so far is written")
            code = 130
        self._compare()
        try:
            self._write()
        except (OSError, RnnConvertError) as error:
            message = getattr(error, "strerror", None) or str(error)
            self._say(f"error: {self.out}: the results cannot be written: {message}. Free some space, or name another folder")
            return 2
        self._say(f"{report.summary(self.records)}; {time.monotonic() - self.start:.0f} s")
        for problem in self.problems:
            self._say(f"in the way: {problem}")
        for entry in [entry for entry in self.records if entry.verdict in BAD][:10]:
            self._say(f"{entry.verdict}: {entry.part}: {entry.case}: {entry.why}")
        self._say(f"see {self.out / 'report.html'}")
        return code or self._code()

    def _code(self) -> int:
        if any(entry.verdict in BAD for entry in self.records):
            return 1
        ran = [entry for entry in self.records if entry.part != "machine" and entry.verdict not in (SKIPPED, "not run")]
        return 0 if ran else 5

    def _part(self, part: Part, library: str) -> None:
        blocked = self.facts.get("blocked", {}).get(NEEDS.get(part.name.partition("@")[0], ""), "")
        if blocked:
            self.records.append(Record(part.name, "(all)", SKIPPED, blocked))
            self._say(f"{part.name}: skipped: {blocked}")
            return
        folder = self.work / part.name
        sample = 1 if part.name == "machine" else self.options.sample
        order = {"sample": sample, "facts": self.facts, "cudnn": library}
        left = self.end - time.monotonic()
        if left <= 0:
            self.records.append(Record(part.name, "(all)", "not run", "the time of the whole run was over"))
            self._say(f"{part.name}: not run: the time of the whole run was over")
            return
        began = time.monotonic()
        try:
            results = supervisor.run(supervisor.Task(part, self.options.device, folder, order), self.end, self._now)
        except KeyboardInterrupt:
            self.records += Journal(folder / "journal.jsonl").records()
            self.arrays |= kept.collected(part.name, folder)
            raise
        except OSError as error:  # of the folder for temporary files: it may be full
            results = [Record(part.name, "(all)", FAILED, f"{error.filename or folder}: {error.strerror}")]
        self.records += results
        self.arrays |= kept.collected(part.name, folder)
        self._say(f"{part.name}: {report.summary(results)}; {time.monotonic() - began:.0f} s")
        noise = supervisor.tail(folder / "noise", LOG // 16).strip()
        if noise:
            self.lines.append(noise)
        if part.name == "machine":
            self._machine(results)

    def _machine(self, results: list[Record]) -> None:
        why = {}
        for record in results:
            self.facts |= record.facts
            name = {"cuDNN": "cudnn"}.get(record.case, record.case)
            if not record.facts:
                why[name] = f"{record.case}: {record.why}"
                self.problems.append(why[name])
        self.facts["blocked"] = machine.blocked(self.facts, why, self.options.device)
        for text in dict.fromkeys(self.facts["blocked"].values()):
            if text not in self.problems:
                self.problems.append(text)

    def _compare(self) -> None:
        """Compare with what was kept before: the CPU's frameworks', and other GPUs'."""
        for path in kept.files():
            before, _ = kept.read(path)
            wrong = kept.compare(self.records, self.arrays, before)
            for text in wrong:
                name = text.split(": ")[0]
                for record in self.records:
                    if f"{record.part} | {record.case}" == name and record.verdict == EQUAL:
                        record.verdict, record.why = DIFFERENT, f"not what {path.name} has: {text}"

    def _write(self) -> None:
        versions = {
            "rnnconvert": OURS, "created": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
            "python": platform.python_version(), "stand-in": self.stands_in, "sample": self.options.sample,
            "seconds": round(time.monotonic() - self.start, 1), "machine": self.facts,
        }  # fmt: skip
        parts = [part for part, _ in self.parts]
        report.replace(self.out / "log", ("\n".join(self.lines) + "\n").encode("utf-8", "replace")[-LOG:])
        about = {key: versions[key] for key in ("rnnconvert", "created", "python", "stand-in")}
        about["device"] = self.facts.get("driver", {}).get("device", "")
        packages = self.facts.get("packages", {})
        about["versions"] = {name: packages[name] for name in machine.PACKAGES if packages.get(name)}
        partial = self.out / ".results.safetensors"
        try:
            kept.write(partial, self.arrays, about, self.records)
            partial.replace(self.out / "results.safetensors")
        finally:
            partial.unlink(missing_ok=True)
        report.write(self.out, self.records, parts, versions, self.problems, self.stands_in)

    def _now(self, case: str) -> None:
        if sys.stderr.isatty():
            print(f"\r\x1b[K{case[:100]}", end="", file=sys.stderr, flush=True)

    def _say(self, text: str) -> None:
        self.lines.append(text)
        if sys.stderr.isatty():
            print("\r\x1b[K", end="", file=sys.stderr)
        print(text, file=sys.stderr, flush=True)
