"""The words and counts that all forms of a report share, read off the document."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from rnnconvert.core import verdict as verdicts
from rnnconvert.core.printable import abridged

Document = dict[str, Any]
"""A report, or a part of one, as `schema.json` describes it."""

EQUAL, BUT_FOR, BY_LAYER, LAYERS = verdicts.EQUAL, verdicts.BUT_FOR, verdicts.BY_LAYER, verdicts.LAYERS
DIFFERENT, UNCOMPARED = verdicts.NOT_EQUAL, verdicts.NOT_COMPARED
Outcome = Literal["passed", "failure", "error", "skipped"]
"""An outcome, in JUnit's terms."""

SYMBOLS: dict[str, str] = {
    EQUAL: "\N{CHECK MARK}",
    BUT_FOR: "\N{ALMOST EQUAL TO}",
    BY_LAYER: "\N{ALMOST EQUAL TO}",
    LAYERS: "\N{ALMOST EQUAL TO}",
    DIFFERENT: "\N{BALLOT X}",
    UNCOMPARED: "\N{MIDDLE DOT}",
    "refused": "\N{CIRCLED DIVISION SLASH}",
    "failed": "!",
    "absent": "\N{EN DASH}",
}
"""One sign for each verdict and state of a run, always shown with its word or a legend."""
TONES: dict[str, str] = {EQUAL: "good", DIFFERENT: "bad"}
"""The colour of a page's heading. Anything else is neutral: the colour of success belongs to "equal" alone."""


@dataclass(frozen=True)
class Tally:
    """The content of a report, counted.

    passed    comparisons within what is allowed
    failed    comparisons that are not
    ran       runs that ran
    runs      runs in all
    missing   runs that failed, or were asked for by name and did not run
    """

    passed: int
    failed: int
    ran: int
    runs: int
    missing: int


def every_run(document: Document) -> Iterator[tuple[Document, Document]]:
    """Yield each run, with its layer."""
    return ((layer, run) for layer in document["layers"] for run in layer["runs"])


def tally(document: Document) -> Tally:
    """Count what a report holds, from its content rather than its own summary."""
    runs = [run for _, run in every_run(document)]
    results = [comparison["passed"] for run in runs for comparison in run["comparisons"]]
    return Tally(
        passed=results.count(True),
        failed=results.count(False),
        ran=sum(run["status"] == "ran" for run in runs),
        runs=len(runs),
        missing=sum(blocks(run) and run["status"] != "ran" for run in runs),
    )


def state(run: Document) -> str:
    """Return one of the keys of SYMBOLS."""
    return (run["verdict"] or UNCOMPARED) if run["status"] == "ran" else str(run["status"])


def outcome(verdict: verdicts.Verdict) -> Outcome:
    """Return the outcome of a verdict in JUnit: parts that were left out of a comparison decide nothing, and are an error."""
    if verdict:
        return "passed"
    others: dict[str, Outcome] = {DIFFERENT: "failure", LAYERS: "skipped"}
    return others.get(verdict.word, "error")


REFERENCE = "reference"
"""The executor that is rnnconvert's own equations, in float64."""


def blocks(run: Document) -> bool:
    """Return whether a run keeps the report from being equal: it differs, or it failed, or it was asked for and did not run."""
    if run["status"] == "ran":
        return state(run) == DIFFERENT
    return bool(run["required"] or run["status"] == "failed")


def good(layer: Document) -> bool:
    """Return whether no run of a layer keeps the report from being equal."""
    return not any(blocks(run) for run in layer["runs"])


def title(run: Document) -> str:
    """Return a run's name."""
    return f"{run['model']} {ran_on(run['executor'])}"


def ran_on(executor: str) -> str:
    """Return where a model ran: "on torch-cpu"; the equations of rnnconvert's own reference are a run in float64."""
    return "in the float64 run" if executor == REFERENCE else f"on {executor}"


def called(layer: Document) -> str:
    """Return a layer's name; the empty one is the module itself."""
    return str(layer["name"]) or "(the module itself)"


def within(layer: Document, *words: str) -> str:
    """Return words about a layer with its name in front, unless it is the module itself."""
    return ", ".join([*([str(layer["name"])] if layer["name"] else []), *words])


def subject(document: Document) -> str:
    """Return the subject of the report: the files' names."""
    return " and ".join(model["path"] for model in document["models"]) or "no model"


def pair(document: Document) -> str:
    """Return the names of the files without their folders; with them where both would be called the same."""
    paths = [model["path"] for model in document["models"]]
    short = [re.split(r"[/\\]", path)[-1] for path in paths]
    return " = ".join(short if len(set(short)) == len(short) else paths) or "no model"


def worst(run: Document) -> Document | None:
    """Return the comparison that uses the largest share of its allowed error, any that failed before those that passed."""
    return max(run["comparisons"], key=lambda comparison: (not comparison["passed"], rank(comparison["ratio"])), default=None)


def badness(run: Document) -> tuple[bool, bool, float]:
    """Return a key to sort runs by, so that the one to look at first is the largest."""
    comparison = worst(run)
    return blocks(run), run["status"] != "ran", rank(comparison["ratio"]) if comparison else -1.0


def sentences(layer: Document, run: Document) -> list[str]:
    """Return the sentences on the difference of a run."""
    return [text for diagnosis in diagnoses(layer, run) for text in diagnosis["sentences"]]


def diagnoses(layer: Document, run: Document) -> list[Document]:
    return [diagnosis for diagnosis in layer["diagnoses"] if (diagnosis["model"], diagnosis["executor"]) == (run["model"], run["executor"])]


def mutation_score(*layers: Document) -> tuple[int, int]:
    """Return how many wrong conventions would have been caught, and how many were tried."""
    caught = sum(len(layer["mutations"]["caught"]) for layer in layers)
    return caught, caught + sum(len(layer["mutations"]["missed"]) for layer in layers)


def value(number: object) -> float:
    """Return a number of the document, "inf" and "nan" too."""
    return float(number) if isinstance(number, (int, float, str)) else math.nan


def rank(number: object) -> float:
    """Return a number to sort by: NaN is the worst."""
    real = value(number)
    return math.inf if math.isnan(real) else real


def digits_of(number: object, digits: int = 2) -> str:
    """Return a number as people write it: 0.13, 1.2e-7, infinite."""
    real = value(number)
    if math.isnan(real):
        return "not a number"
    if math.isinf(real):
        return "infinite" if real > 0 else "minus infinite"
    return re.sub(r"e([-+])0*(\d)", lambda m: f"e{m[1].strip('+')}{m[2]}", f"{real:.{digits}g}")


def share(ratio: object) -> str:
    """Say how much of the allowed error is used; more than all of it never reads as 100 %."""
    real = value(ratio)
    if not math.isfinite(real):
        return digits_of(real)
    if real < 0.01:
        return "0 %" if real == 0 else "under 1 %"
    if real < 2:
        return f"{math.floor(100 * real + 1e-9) if real <= 1 else max(101, math.ceil(100 * real))} %"
    return f"{float(f'{real:.2g}'):,.0f} times" if 10 <= real < 1e9 else f"{digits_of(real)} times"


def used(comparison: Document) -> str:
    """Say how much of the allowed error a comparison uses, in words that continue a sentence."""
    text = share(comparison["ratio"])
    if not math.isfinite(value(comparison["ratio"])):
        return "beyond any tolerance"
    return f"{text} what is allowed" if text.endswith("times") else f"{text} of what is allowed"


def figures(comparison: Document) -> str:
    """Say how large an error is and how large it may be: "0.77 (allowed 9e-7)"."""
    error = digits_of(comparison["error"])
    if comparison["passed"]:
        return f"{error}, {used(comparison)}"
    if not math.isfinite(value(comparison["ratio"])):
        return f"{error}, beyond any tolerance"
    return f"{error} (allowed {digits_of(comparison['allowed'], 1)})"


def place(comparison: Document) -> str:
    """Say where the worst element is, and its two values."""
    element = comparison["worst"]
    if element is None:
        return ""
    axes = [*element["axes"], *["index"] * len(element["index"])]
    where = ", ".join(f"{axis} {number}" for axis, number in zip(axes, element["index"], strict=False))
    return f"{where}: {digits_of(element['found'], 7)}, expected {digits_of(element['expected'], 7)}"


def amount(count: int, noun: str) -> str:
    """Return a count with its noun."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def clean(text: object, limit: int = 0) -> str:
    """Return text on one line without control characters, cut to a length if one is given."""
    line = " ".join("".join(char if char.isprintable() else " " for char in abridged(str(text))).split())
    return line if not limit or len(line) <= limit else f"{line[: limit - 1]}\N{HORIZONTAL ELLIPSIS}"


def lines(text: object) -> list[str]:
    """Return text of several lines, each without control characters; indents stay."""
    return ["".join(char if char.isprintable() else " " for char in line).rstrip() for line in abridged(str(text)).splitlines()]
