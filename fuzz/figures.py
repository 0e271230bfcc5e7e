"""The figures of fuzz/README.md: `python -m fuzz.figures --seconds 600 --kills 3000 --doubling 0.1` attacks and measures, adds
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
PAGE = Path(__file__).with_name("README.md")
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
    ]
    findings = {(kind, f"{what} at {where}") for run in runs for kind, what, where, _ in run["findings"]}
    (most_kind, most), (least_kind, least) = kinds.most_common()[0], kinds.most_common()[-1]
    outcome = f"{len(findings)} faults, all mended since" if findings else "nothing"
    lines += [f"They found {outcome}. `{most_kind}` had the most, {most:,}, and `{least_kind}` the fewest, {least:,}."]
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
        "| attack | what was found after it |",
        "|---|---|",
    ]
    by_attack: dict[str, list[str]] = {}
    for what, count in sorted(writing.items()):
        attack, _, outcome = what.partition(": ")
        by_attack.setdefault(attack, []).append(f"{outcome} {count:,}")
    return lines + [f"| {attack} | {', '.join(outcomes)} |" for attack, outcomes in by_attack.items()]


def _growth(measured: dict[str, dict[str, Any]]) -> list[str]:
    """Return the largest exponents that were measured of all formats, of lines and of processor time, and what was doubled there."""
    if not measured:
        return []
    kinds = {"lines": {name: growth["lines"] for name, growth in measured.items()}}
    kinds["processor time"] = {name: growth["times"] for name, growth in measured.items() if growth["time"]}
    formats = {name.partition(" ")[0] for name in measured if ": place " not in name}
    worst = [(what, *max(growths.items(), key=lambda item: item[1])) for what, growths in kinds.items() if growths]
    largest = " and ".join(f"of {what} {exponent:.2f} ({name})" for what, name, exponent in worst)
    return [
        "",
        f"**Doubling**: {len(measured)} things of {len(formats)} formats, written, read and inspected; the largest exponent is {largest}.",
    ]


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
