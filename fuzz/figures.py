"""The figures of docs/reliability.md: `python -m fuzz.figures --seconds 600 --kills 3000 --doubling 0.1` attacks and measures, adds
what it counted to fuzz/figures.json, and writes the page's tables; without these it only writes them.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fuzz import __main__ as readers
from fuzz import doubling, writes

STORED = Path(__file__).with_name("figures.json")
PAGE = Path(__file__).parents[1] / "docs" / "reliability.md"
BEGIN, END = "<!-- figures -->", "<!-- end of the figures -->"

Figures = dict[str, Any]


def text(figures: Figures) -> str:
    """Return the tables of all runs."""
    return "\n".join([*_attacks(figures), *_growth(figures.get("doubling", {}))])


def _attacks(figures: Figures) -> list[str]:
    runs, kinds, ends = figures["reads"], Counter[str](), Counter[str]()
    for run in runs:
        kinds.update(run["by_kind"])
        for name, count in run["ends"].items():
            ends[name.rpartition(": ")[2]] += count
    lines = [
        f"**Reading**: {sum(run['executions'] for run in runs):,} executions over {len(kinds)} kinds of files in "
        f"{sum(run['seconds'] for run in runs) / 60:.0f} minutes, {len(runs)} runs; the slowest took "
        f"{max(run['slowest_cpu_seconds'] for run in runs):.2f} s of CPU time.",
        "",
        "| how it ended | executions |",
        "|---|---|",
        *(f"| {_WORDS.get(end, end)} | {count:,} |" for end, count in ends.most_common()),
        "",
        "| kind | executions |",
        "|---|---|",
        *(f"| {kind} | {count:,} |" for kind, count in kinds.most_common()),
        "",
        "What these runs found, all mended since:" if any(run["findings"] for run in runs) else "These runs found nothing.",
        "",
    ]
    findings: Counter[tuple[str, str]] = Counter()
    for run in runs:
        for kind, what, where, count in run["findings"]:
            findings[kind, f"{what} at {where}"] += count
    lines += [f"- {kind}: {what} ({count} times)" for (kind, what), count in findings.items()]
    lines += [f"- {remark}" for run in runs for remark in run.get("remarks", ())]
    writing: Counter[str] = Counter()
    problems: list[str] = []
    for run in figures["writes"]:
        writing.update(run["runs"])
        problems += run["problems"]
    most = max(run["kinds"] for run in figures["writes"])
    lines += [
        "",
        f"**Writing**: {sum(writing.values()):,} attacks over {most} kinds of files, {len(problems)} problems.",
        "",
        "| attack: what was found after it | times |",
        "|---|---|",
        *(f"| {what} | {count:,} |" for what, count in sorted(writing.items())),
    ]
    return lines


def _growth(measured: dict[str, dict[str, Any]]) -> list[str]:
    """Return the largest exponents that were measured of each format, of lines and of processor time, and what was doubled there."""
    if not measured:
        return []
    written: dict[str, list[tuple[str, dict[str, Any]]]] = {}
    if read := [growth["lines"] for name, growth in measured.items() if ": place " in name]:
        written["(any file grown)"] = [("one of its places", {"lines": max(read), "times": 0.0, "time": 0.0})]
    for name, growth in measured.items():
        format, _, what = name.partition(" ")
        if ": place " not in name:
            written.setdefault(format, []).append((what, growth))
    lines = [
        "",
        f"**Doubling**: {len(measured)} things doubled; the largest exponent of each format, of written, read and inspected files:",
        "",
        "| format | doubled | largest exponent of lines | of processor time | where |",
        "|---|---|---|---|---|",
    ]
    for format, cases in sorted(written.items()):
        where, _ = max(cases, key=lambda case: max(case[1]["lines"], case[1]["times"]))
        slowest = max(growth["times"] for _, growth in cases)
        lines.append(
            f"| {format} | {len(cases)} | {max(growth['lines'] for _, growth in cases):.2f} | "
            f"{f'{slowest:.2f}' if any(growth['time'] for _, growth in cases) else '-'} | {where} |"
        )
    return lines


_WORDS = {
    "unreadable": "an error that says what is damaged (exit code 3)",
    "container read": "the container was read; nothing more was asked",
    "read": "read: the change did not matter, or gave another valid file", "no layers": "read, without a recurrent layer",
    "refused": "refused (exit code 4)", "usage": "a question or an option that does not fit (exit code 2)",
}  # fmt: skip


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m fuzz.figures", description=__doc__)
    parser.add_argument("--seconds", type=int, default=0, help="attack the readers for so long")
    parser.add_argument("--kills", type=int, default=0, help="attack the writers, with so many kills at random times")
    parser.add_argument("--doubling", type=float, help="double what files hold until it takes so many seconds; 0 counts lines alone")
    parser.add_argument("--only", nargs="*", default=(), help="parts of the names of what is doubled")
    arguments = parser.parse_args(words)
    figures: Figures = json.loads(STORED.read_text(encoding="utf-8")) if STORED.exists() else {"reads": [], "writes": []}
    code = 0
    with tempfile.TemporaryDirectory() as folder:
        run_figures = Path(folder) / "figures.json"
        if arguments.seconds:
            code |= readers.main(["--seconds", str(arguments.seconds), "--figures", str(run_figures)])
            figures["reads"] += json.loads(run_figures.read_text())
            run_figures.unlink()
        if arguments.kills:
            code |= writes.main(["--kills", str(arguments.kills), "--figures", str(run_figures)])
            figures["writes"].append(json.loads(run_figures.read_text()))
            run_figures.unlink()
        if arguments.doubling is not None:
            code |= doubling.main(["--target", str(arguments.doubling), "--figures", str(run_figures), "--only", *arguments.only])
            figures.setdefault("doubling", {}).update(json.loads(run_figures.read_text()))
    STORED.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    page = PAGE.read_text(encoding="utf-8")
    before, _, rest = page.partition(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}\n\n{text(figures)}\n\n{END}{rest.partition(END)[2]}", encoding="utf-8")
    return code


if __name__ == "__main__":
    sys.exit(main())
