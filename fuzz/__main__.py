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

    def __init__(self, all_seeds: Sequence[Seed], limits: Limits, folder: Path, cases: Path | None) -> None:
        self._seeds, self._limits, self._folder, self._cases = all_seeds, limits, folder, cases
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
        if self._cases is not None and case is not None and self.findings[key] <= 3:
            _copied(case, self._cases, kind, finding)

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
        for number, file_seed in enumerate(self._seeds):
            by_kind[file_seed.kind].append(number)
        kinds = list(by_kind)
        ends: collections.Counter[tuple[str, str]] = collections.Counter()
        counts: collections.Counter[tuple[str, str, str]] = collections.Counter()
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
                counts[key] += 1
                if counts[key] == 1 and self._cases is not None:
                    _copied(case, self._cases, chosen.kind, finding)
                if counts[key] <= 50:
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
        ticks = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[11:13]
    except OSError:
        return 0.0
    return sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")


def _special(folder: str, names: list[str]) -> list[str]:
    """Return the names in a folder that are no files: copies of pipes and devices do not end."""
    return [name for name in names if not (Path(folder) / name).is_dir() and not (Path(folder) / name).is_file()]


def _copied(case: Path, cases: Path, kind: str, finding: Finding) -> None:
    where = "".join(letter if letter.isalnum() else "-" for letter in f"{kind}-{finding.what}-{finding.where}")[:100]
    for number in range(3):
        target = cases / f"{where}-{number}"
        if not target.exists():
            shutil.copytree(case, target, ignore=_special, symlinks=True)
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
    arguments = parser.parse_args(words)
    first = random.SystemRandom().randrange(1 << 32) if arguments.seed is None else arguments.seed
    if arguments.atheris:
        from fuzz.steering import guided

        guided(arguments.seconds, arguments.kinds, Limits(arguments.limit, arguments.memory << 20), arguments.keep)
        return 0
    home = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(prefix="fuzz-", dir=home) as name:
        folder = Path(name)
        (folder / "seeds").mkdir()
        every_seed = seeds.build(folder / "seeds", not arguments.no_corpus, arguments.kinds)
        if arguments.list or not every_seed:
            for kind, count in sorted(collections.Counter(seed.kind for seed in every_seed).items()):
                print(f"{kind:24}{count:4} seeds")
            return 0 if every_seed else 2
        if arguments.keep is not None:
            arguments.keep.mkdir(exist_ok=True, parents=True)
        runner = Runner(every_seed, Limits(arguments.limit, arguments.memory << 20), folder, arguments.keep)
        print(f"{len(every_seed)} seeds of {len({seed.kind for seed in every_seed})} kinds, --seed {first}", flush=True)
        start = time.monotonic()
        runner.run(start + arguments.seconds, first, arguments.executions)
        elapsed = time.monotonic() - start
    ends: collections.Counter[str] = collections.Counter()
    for (_, end), count in runner.ends.items():
        ends[end] += count
    print(f"{runner.executions} executions in {elapsed:.0f} s; the slowest took {runner.slowest:.2f} s of CPU time")
    print("; ".join(f"{end}: {count}" for end, count in ends.most_common()))
    for (kind, what, where), count in runner.findings.most_common():
        print(f"  {count:5} x {kind}: {what} at {where}")
    if arguments.figures is not None:
        _add(arguments.figures, runner, elapsed, first)
    return 1 if runner.findings else 0


def _add(path: Path, runner: Runner, elapsed: float, first: int) -> None:
    """Add the figures of a run to a file of them."""
    runs = json.loads(path.read_text()) if path.exists() else []
    kinds: collections.Counter[str] = collections.Counter()
    for (kind, _), count in runner.ends.items():
        kinds[kind] += count
    runs.append({
        "seed": first, "seconds": round(elapsed), "executions": runner.executions, "slowest_cpu_seconds": round(runner.slowest, 2),
        "by_kind": dict(kinds), "ends": {f"{kind}: {end}": count for (kind, end), count in sorted(runner.ends.items())},
        "findings": [[*key, count] for key, count in runner.findings.items()],
    })  # fmt: skip
    path.write_text(json.dumps(runs, indent=1))


if __name__ == "__main__":
    sys.exit(main())
