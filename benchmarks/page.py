"""Make docs/benchmarks.md and its pictures from benchmarks/results.json: python benchmarks/page.py [RESULTS]"""

from __future__ import annotations

import json
import statistics
import sys
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parent
PAGE = HERE.parent / "docs" / "benchmarks.md"
IMAGES = HERE.parent / "docs" / "images"
README = "https://github.com/rnnconvert/rnnconvert/blob/main/benchmarks/README.md"
_WIDTH, _LEFT, _ROW = 760, 290, 26
_OURS, _THEIRS = "#3f51b5", "#9aa0a6"


class Bar(NamedTuple):
    """A bar of a picture: what it shows, how long it is, and what is written behind it."""

    name: str
    value: float
    text: str
    ours: bool


def picture(title: str, bars: list[Bar], goal: float | None = None) -> str:
    """Return bars as SVG, on a background of its own that light and dark pages can show; a line marks a goal."""
    most = max([bar.value for bar in bars] + [goal or 0.0])
    scale = (_WIDTH - _LEFT - 110) / most
    height = 44 + _ROW * len(bars)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" font-family="sans-serif" font-size="13" role="img">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{_WIDTH}" height="{height}" fill="#ffffff"/>',
        f'<text x="12" y="22" font-weight="bold">{escape(title)}</text>',
    ]
    for number, bar in enumerate(bars):
        y = 36 + _ROW * number
        length = max(1.0, bar.value * scale)
        lines += [
            f'<text x="{_LEFT - 8}" y="{y + 15}" text-anchor="end">{escape(bar.name)}</text>',
            f'<rect x="{_LEFT}" y="{y + 3}" width="{length:.1f}" height="17" fill="{_OURS if bar.ours else _THEIRS}"/>',
            f'<text x="{_LEFT + length + 6:.1f}" y="{y + 15}">{escape(bar.text)}</text>',
        ]
    if goal is not None:
        x = _LEFT + goal * scale
        lines.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="34" y2="{height - 6}" stroke="#c62828" stroke-dasharray="4 3"/>')
    return "\n".join([*lines, "</svg>"]) + "\n"


def table(head: list[str], rows: list[list[str]]) -> list[str]:
    """Return the lines of a Markdown table."""
    return [f"| {' | '.join(head)} |", "|" + "---|" * len(head), *(f"| {' | '.join(row)} |" for row in rows), ""]


def ratio(times: dict[str, Any], other: str, measure: int = 0) -> float:
    """Return the median over pairs of the other's time as a multiple of ours."""
    return statistics.median(run[measure] / ours[measure] for run, ours in zip(times[other], times["ours"], strict=True))


def seconds(times: list[list[float]], measure: int = 0) -> str:
    """Return the median of some times, in words."""
    value = statistics.median(run[measure] for run in times)
    return f"{value:.2f} s" if value >= 1 else f"{value * 1000:.0f} ms"


def wanted(row: dict[str, Any]) -> float:
    """Return what share of cp's speed a conversion is to reach."""
    straight = row["ending"] in (".onnx", ".bin")
    goal = 0.8 if row["mib"] < 100 else 0.95 if straight else 0.7
    return goal * 0.8 if row["cold"] else goal


def copying(results: dict[str, Any]) -> list[str]:
    """Return the section about conversions beside cp."""
    rows = []
    for row in results["copy"]:
        ours, cp = row["ours"], row["cp"]
        figures = [seconds(cp), seconds(ours), f"{ratio(row, 'cp'):.2f}", f"{wanted(row):.2f}", seconds(cp, 1), seconds(ours, 1)]
        rows.append([f"{row['mib']:,.0f} MiB", row["ending"], "disk" if row["cold"] else "memory", *figures])
    largest = max(row["mib"] for row in results["copy"])
    bars = [
        Bar(f"to {row['ending']}{', source on disk' if row['cold'] else ''}", ratio(row, "cp"), f"{ratio(row, 'cp'):.2f}", True)
        for row in results["copy"]
        if row["mib"] == largest
    ]
    title = f"Speed beside cp, {largest:,.0f} MiB (the line: as fast as cp)"
    (IMAGES / "benchmark-copy.svg").write_text(picture(title, bars, 1.0))
    return [
        "## A conversion beside a copy",
        "",
        "A `.safetensors` file of a bidirectional LSTM is converted, and copied with `cp`, alternately, each time into a new file:",
        "medians of the times and of their ratios in pairs. To .onnx and .bin the numbers stay in order; to Keras's files they are",
        "transposed. `disk`: the system was made to forget the source before each run. The processor time of `cp` is counted in",
        "hundredths of a second.",
        "",
        "![Speed beside cp](images/benchmark-copy.svg)",
        "",
        *table(["source", "target", "read from", "cp", "rnnconvert", "ratio", "wanted", "cp, processor", "rnnconvert, processor"], rows),
    ]


def ways(results: dict[str, Any]) -> list[str]:
    """Return the section about what people use instead."""
    size = results["installed"]
    rows, lines = [], []
    for row in results["ways"]:
        figures = [f"failed: `{row.get('failed')}`", "", "", ""]
        if "failed" not in row:
            written = f"{row['written'] / 1e6:.0f} MB"
            figures = [f"{row['wall']:.1f} s", f"{row['processor']:.1f} s", f"{row['memory']:,.0f} MiB", written]
        rows.append([row["task"], row["way"], *figures, f"{size[row['tool']]:,.0f} MB"])
    for key, title, unit in (("wall", "Time of the whole process", "s"), ("memory", "Most memory of its own", "MiB")):
        bars = []
        for row in results["ways"]:
            if "failed" not in row:
                label = f"{row[key]:,.1f} {unit}" if key == "wall" else f"{row[key]:,.0f} {unit}"
                name = f"{row['task']}: {row['way']}".replace(", copying by hand", ", by hand")
                bars.append(Bar(name, row[key], label, row["way"] == "rnnconvert"))
        (IMAGES / f"benchmark-{key}.svg").write_text(picture(title, bars))
        lines += [f"![{title}](images/benchmark-{key}.svg)", ""]
    return [
        "## Instead of other ways",
        "",
        f"A bidirectional LSTM, {results['exported']}, from a file of one framework to a file of the other: whole processes, imports",
        "and all. Memory leaves out pages of mapped files, which the system takes back where it needs them. Installed are the packages",
        "of a way and all that they need.",
        "",
        *lines,
        *table(["task", "way", "time", "processor time", "memory", "file", "installed"], rows),
    ]


def small(results: dict[str, Any]) -> list[str]:
    """Return the section about models in memory, and about starting."""
    fill, start = results["fill"], results["start"]
    rows = []
    for what, times, other, name, goal, measure in (
        ("`load_into` a live module, from .pt", fill, "load_state_dict", "`load_state_dict`, mapped", "3.0", 0),
        ("a .pt of 35 KB to .safetensors", start, "import numpy, click", '`python -c "import numpy, click"`', "2.0", 1),
        ("the same", start, "import torch", '`python -c "import torch"`', "-", 1),
    ):
        pair = [f"{1 / ratio(times, other):.2f}", f"{1 / ratio(times, other, 1):.2f}"]
        pair[measure] = f"**{pair[measure]}**"
        mine, two = times["ours"], times[other]
        rows.append([what, seconds(mine), seconds(mine, 1), name, seconds(two), seconds(two, 1), *pair, goal])
    head = ["what", "time", "processor time", "beside", "time", "processor time", "times the time", "times the processor time", "wanted"]
    return [
        "## Models in memory, and the start",
        "",
        "`load_into` changes all or nothing: it keeps the old numbers until the new ones are in place. Ratios are medians of pairs; what",
        "is wanted is of the bold one.",
        "",
        *table(head, rows),
    ]


def text(results: dict[str, Any]) -> str:
    """Return the page."""
    machine = results["machine"]
    load = ", ".join(f"{load_average:.1f}" for load_average in results["load"])
    packages = ", ".join(f"{name} {version}" for name, version in machine["packages"].items())
    return "\n".join([
        "<!-- Made by benchmarks/page.py from benchmarks/results.json. -->",
        "# Benchmarks",
        "",
        "    python benchmarks/compare.py",
        "",
        f"One run of this command made every figure here, on {results['when']}, size `{results['size']}`, in",
        f"{results['seconds']:.0f} s, on a machine with {machine['processors']} processors ({machine['processor']}, {machine['system']}).",
        f"Its load was {load} before, between and after the parts; where it is far above 1, other work took part of",
        f"the time. Python {machine['python']}; {packages}.",
        "Wanted is what the project set itself; figures that miss it are listed like the others.",
        "",
        *copying(results),
        *ways(results),
        *small(results),
        f"How each figure is measured, and older ones, are in [benchmarks/README.md]({README}).",
        "",
    ])  # fmt: skip


def main() -> None:
    """Write the page and its pictures."""
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else HERE / "results.json"
    PAGE.write_text(text(json.loads(path.read_text())))


if __name__ == "__main__":
    main()
