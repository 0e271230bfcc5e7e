"""`python -m fuzz --seconds 60 --kinds onnx h5`: attack the readers, and say what was found."""

from __future__ import annotations

import argparse
import collections
import gc
import json
import math
import mmap
import os
import random
import shutil
import signal
import struct
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from pathlib import Path

from fuzz import seeds
from fuzz.execution import Finding, Limits, bound, changed, execute, put
from fuzz.seeds import Seed
from rnnconvert.containers.apart import copy_process

_TICKS = struct.Struct("<QQd")
WAITING = 20
"""So many times longer than it may work an execution may wait: on a busy machine for the processor."""


class Runner:
    """Executions in a child process, which is replaced when it dies, hangs, or has done its share.

    ends      how often each documented end was reached, by kind
    findings  what was found, by (kind, what, where), with how often
    """

    def __init__(self, found: Sequence[Seed], limits: Limits, folder: Path, kept: Path | None) -> None:
        self._seeds, self._limits, self._folder, self._kept = found, limits, folder, kept
        self._ticks = mmap.mmap(-1, _TICKS.size)
        self.ends: collections.Counter[tuple[str, str]] = collections.Counter()
        self.findings: collections.Counter[tuple[str, str, str]] = collections.Counter()
        self.executions = 0
        self.slowest = 0.0

    def run(self, deadline: float, seed: int, most: float = math.inf, share: int = 20000) -> None:
        while time.monotonic() < deadline and self.executions < most:
            self._child(deadline, seed, int(min(share, most - self.executions)))
            seed += 1

    def _child(self, deadline: float, seed: int, share: int) -> None:
        """Let one child make its share of executions, and take over what it reports."""
        self._ticks[:] = _TICKS.pack(0, 0, 0)
        report = self._folder / "report.jsonl"
        report.write_text("")
        child = copy_process()
        if not child:
            try:
                self._work(deadline, seed, share, report)
            except BaseException:
                (self._folder / "broken.txt").write_text(traceback.format_exc())
                os._exit(70)
            os._exit(0)
        seen, since, spent = 0, time.monotonic(), 0.0
        while True:
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                break
            done, *_ = _TICKS.unpack(self._ticks[:])
            if done != seen:
                seen, since, spent = done, time.monotonic(), _processor_time(child)
            elif max(_processor_time(child) - spent, (time.monotonic() - since) / WAITING) > 4 * self._limits.seconds + 5:
                os.kill(child, signal.SIGKILL)
            time.sleep(0.05)
        done, at, slowest = _TICKS.unpack(self._ticks[:])
        self.executions += done
        self.slowest = max(self.slowest, slowest)
        for line in report.read_text().splitlines():
            kind, end, what, where, trace, case = json.loads(line)
            if end:
                self.ends[kind, end] += case
            else:
                self._keep(kind, Finding(what, where, trace), None)
        if status:
            what = f"signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else f"exit {os.WEXITSTATUS(status)}"
            self._keep(self._seeds[at].kind, Finding("process", what), self._folder / "case")

    def _keep(self, kind: str, finding: Finding, case: Path | None) -> None:
        key = kind, finding.what, finding.where
        self.findings[key] += 1
        if self.findings[key] == 1:
            print(f"FOUND {kind}: {finding.what} at {finding.where}", flush=True)
        if self._kept is not None and case is not None and self.findings[key] <= 3:
            _copied(case, self._kept, kind, finding)

    def _work(self, deadline: float, seed: int, share: int, report: Path) -> None:
        """Make executions: the life of a child."""
        bound(4 * self._limits.memory)
        gc.freeze()
        devnull = os.open(os.devnull, os.O_WRONLY)
        os.dup2(devnull, 1)
        os.dup2(devnull, 2)
        case, out = self._folder / "case", self._folder / "out"
        for folder in (case, out):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
        rng = random.Random(seed)
        by_kind: dict[str, list[int]] = collections.defaultdict(list)
        for number, one in enumerate(self._seeds):
            by_kind[one.kind].append(number)
        kinds = list(by_kind)
        ends: collections.Counter[tuple[str, str]] = collections.Counter()
        told: collections.Counter[tuple[str, str, str]] = collections.Counter()
        slowest = 0.0
        spent = dict.fromkeys(kinds, 0.0)
        with report.open("a") as lines:
            for done in range(share):
                if time.monotonic() > deadline:
                    break
                kind = min(kinds, key=spent.__getitem__)  # every kind gets the same time
                at = rng.choice(by_kind[kind])
                chosen = self._seeds[at]
                self._ticks[:] = _TICKS.pack(done, at, slowest)
                began = time.perf_counter()
                path = put(case, changed(chosen, rng), chosen.entry)
                start = time.process_time()
                end, finding = execute(path, random.Random(rng.random()), chosen.format, out, self._limits)
                slowest = max(slowest, time.process_time() - start)
                spent[kind] += time.perf_counter() - began
                if finding is None:
                    ends[chosen.kind, end] += 1
                    continue
                key = chosen.kind, finding.what, finding.where
                told[key] += 1
                if told[key] == 1 and self._kept is not None:
                    _copied(case, self._kept, chosen.kind, finding)
                if told[key] <= 50:
                    lines.write(json.dumps([chosen.kind, "", finding.what, finding.where, finding.trace[-4000:], 0]) + "\n")
                    lines.flush()
                if finding.what in ("MemoryError", "memory"):
                    done += 1  # the peak of the process is no measure any more
                    break
            else:
                done = share
            self._ticks[:] = _TICKS.pack(done, 0, slowest)
            for (kind, end), count in ends.items():
                lines.write(json.dumps([kind, end, "", "", "", count]) + "\n")


def _processor_time(child: int) -> float:
    """Return the seconds of processor time that a child has taken; 0 where the system does not say."""
    try:
        taken = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[11:13]
    except OSError:
        return 0.0
    return sum(map(int, taken)) / os.sysconf("SC_CLK_TCK")


def _copied(case: Path, kept: Path, kind: str, finding: Finding) -> None:
    where = "".join(letter if letter.isalnum() else "-" for letter in f"{kind}-{finding.what}-{finding.where}")[:100]
    for number in range(3):
        target = kept / f"{where}-{number}"
        if not target.exists():
            shutil.copytree(case, target)
            (target / "TRACE.txt").write_text(finding.trace)
            return


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60, help="how long")
    parser.add_argument("--executions", type=float, default=math.inf, help="at most so many")
    parser.add_argument("--kinds", nargs="*", default=[], help="only these kinds; --list lists them")
    parser.add_argument("--no-corpus", action="store_true", help="leave out the folder of real files beside the repository")
    parser.add_argument("--list", action="store_true", help="list the kinds, and how many seeds each has")
    parser.add_argument("--seed", type=int, default=None, help="repeat a run; printed by each")
    parser.add_argument("--limit", type=float, default=5, help="CPU seconds of one execution")
    parser.add_argument("--memory", type=int, default=512, help="MiB that one execution may add")
    parser.add_argument("--keep", type=Path, default=None, help="a folder for the cases that were found")
    parser.add_argument("--figures", type=Path, default=None, help="a JSON file to which the figures of this run are added")
    parser.add_argument("--atheris", action="store_true", help="let coverage guide the changes (pip install atheris)")
    given = parser.parse_args(words)
    first = random.SystemRandom().randrange(1 << 32) if given.seed is None else given.seed
    if given.atheris:
        from fuzz.steering import guided

        guided(given.seconds, given.kinds, Limits(given.limit, given.memory << 20), given.keep)
        return 0
    home = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(prefix="fuzz-", dir=home) as name:
        folder = Path(name)
        (folder / "seeds").mkdir()
        found = seeds.made(folder / "seeds", not given.no_corpus, given.kinds)
        if given.list or not found:
            for kind, count in sorted(collections.Counter(seed.kind for seed in found).items()):
                print(f"{kind:24}{count:4} seeds")
            return 0 if found else 2
        if given.keep is not None:
            given.keep.mkdir(exist_ok=True, parents=True)
        runner = Runner(found, Limits(given.limit, given.memory << 20), folder, given.keep)
        print(f"{len(found)} seeds of {len({seed.kind for seed in found})} kinds, --seed {first}", flush=True)
        start = time.monotonic()
        runner.run(start + given.seconds, first, given.executions)
        taken = time.monotonic() - start
    ends: collections.Counter[str] = collections.Counter()
    for (_, end), count in runner.ends.items():
        ends[end] += count
    print(f"{runner.executions} executions in {taken:.0f} s; the slowest took {runner.slowest:.2f} s of CPU time")
    print("; ".join(f"{end}: {count}" for end, count in ends.most_common()))
    for (kind, what, where), count in runner.findings.most_common():
        print(f"  {count:5} x {kind}: {what} at {where}")
    if given.figures is not None:
        _add(given.figures, runner, taken, first)
    return 1 if runner.findings else 0


def _add(path: Path, runner: Runner, taken: float, first: int) -> None:
    """Add the figures of a run to a file of them."""
    runs = json.loads(path.read_text()) if path.exists() else []
    kinds = collections.Counter()
    for (kind, _), count in runner.ends.items():
        kinds[kind] += count
    runs.append({
        "seed": first, "seconds": round(taken), "executions": runner.executions, "slowest_cpu_seconds": round(runner.slowest, 2),
        "by_kind": dict(kinds), "ends": {f"{kind}: {end}": count for (kind, end), count in sorted(runner.ends.items())},
        "findings": [[*key, count] for key, count in runner.findings.items()],
    })  # fmt: skip
    path.write_text(json.dumps(runs, indent=1))


if __name__ == "__main__":
    sys.exit(main())
