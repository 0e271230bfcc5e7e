"""The words and counts that all forms of a report share, read off the document."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

Document = dict[str, Any]
"""A report, or a part of one, as `schema.json` describes it."""

EQUAL, DIFFERENT, UNCOMPARED = "equal", "not equal", "not compared"
SYMBOLS = {
    EQUAL: "\N{CHECK MARK}", DIFFERENT: "\N{BALLOT X}", UNCOMPARED: "\N{MIDDLE DOT}",
    "refused": "\N{CIRCLED DIVISION SLASH}", "failed": "!", "absent": "\N{EN DASH}",
}  # fmt: skip
"""One sign for each state of a run, always shown with its word or a legend."""


@dataclass(frozen=True)
class Tally:
    """What a report holds, counted.

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


def blocks(run: Document) -> bool:
    """Return whether a run keeps the report from being equal: it differs, or it failed, or it was asked for and did not
    run."""
    if run["status"] == "ran":
        return state(run) == DIFFERENT
    return bool(run["required"] or run["status"] == "failed")


def good(layer: Document) -> bool:
    """Return whether no run of a layer keeps the report from being equal."""
    return not any(blocks(run) for run in layer["runs"])


def columns(document: Document) -> list[tuple[str, str]]:
    """Return the model and executor of every kind of run, the models in their order, executors in the order of
    appearance.
    """
    labels = [model["label"] for model in document["models"]]
    met = dict.fromkeys((run["model"], run["executor"]) for _, run in every_run(document))
    return sorted(met, key=lambda pair: labels.index(pair[0]) if pair[0] in labels else len(labels))


def title(run: Document) -> str:
    """Return a run's name."""
    return f"{run['model']} on {run['executor']}"


def called(layer: Document) -> str:
    """Return a layer's name; the empty one is the module itself."""
    return str(layer["name"]) or "(the module itself)"


def subject(document: Document) -> str:
    """Return what the report is about: the files' names."""
    return " and ".join(model["path"] for model in document["models"]) or "no model"


def worst(run: Document) -> Document | None:
    """Return the comparison that uses the largest share of its allowed error, any that failed before those that passed."""
    return max(run["comparisons"], key=lambda one: (not one["passed"], rank(one["ratio"])), default=None)


def badness(run: Document) -> tuple[bool, bool, float]:
    """Return a key to sort runs by, so that the one to look at first is the largest."""
    one = worst(run)
    return blocks(run), run["status"] != "ran", rank(one["ratio"]) if one else -1.0


def sentences(layer: Document, run: Document) -> list[str]:
    """Return what the difference of a run looks like."""
    mine = (one for one in layer["diagnoses"] if (one["model"], one["executor"]) == (run["model"], run["executor"]))
    return [text for one in mine for text in one["sentences"]]


def mutation_score(*layers: Document) -> tuple[int, int]:
    """Return how many wrong conventions would have been caught, and how many were tried."""
    caught = sum(len(layer["mutations"]["caught"]) for layer in layers)
    return caught, caught + sum(len(layer["mutations"]["missed"]) for layer in layers)


def rewrites(document: Document) -> dict[tuple[str, str, str, bool], list[str]]:
    """Return each rewrite (layer, name, detail, whether exact), with the runs that it was made for."""
    found: dict[tuple[str, str, str, bool], list[str]] = {}
    for layer, run in every_run(document):
        for one in run["rewrites"]:
            key = (one["layer"] or called(layer), one["rewrite"], one["detail"], one["exact"])
            names = found.setdefault(key, [])
            if title(run) not in names:
                names.append(title(run))
    return found


def difference(one: Document) -> tuple[str, str]:
    """Say where the weights of two files differ, and how."""
    where = [f"layer {one['layer']}"] if one["layer"] >= 0 else []
    where += ["backward" if one["direction"] else "forward"] if one["direction"] >= 0 else []
    where += [one["part"]] + ([f"gate {one['gate']}"] if one["gate"] else [])
    how = one["words"] or f"by {shown(one['error'])}, {shown(one['relative'])} of the largest value"
    return ", ".join(where), how


def machines(document: Document) -> dict[tuple[str, str, str, str], list[str]]:
    """Return each device, element type, Python and versions that something ran with, with the runs that did."""
    found: dict[tuple[str, str, str, str], list[str]] = {}
    for _, run in every_run(document):
        if run["status"] == "ran":
            versions = ", ".join(f"{name} {version}" for name, version in run["versions"].items())
            names = found.setdefault((run["device"], run["dtype"], run["python"], versions), [])
            if title(run) not in names:
                names.append(title(run))
    return found


def value(number: object) -> float:
    """Return a number of the document, "inf" and "nan" too."""
    return float(number) if isinstance(number, (int, float, str)) else math.nan


def rank(number: object) -> float:
    """Return a number to sort by: NaN is the worst."""
    found = value(number)
    return math.inf if math.isnan(found) else found


def shown(number: object, digits: int = 2) -> str:
    """Return a number as people write it: 0.13, 1.2e-7, infinite."""
    found = value(number)
    if math.isnan(found):
        return "not a number"
    if math.isinf(found):
        return "infinite" if found > 0 else "minus infinite"
    return re.sub(r"e([-+])0*(\d)", lambda m: f"e{m[1].strip('+')}{m[2]}", f"{found:.{digits}g}")


def share(ratio: object) -> str:
    """Say how much of the allowed error is used; more than all of it never reads as 100 %."""
    found = value(ratio)
    if not math.isfinite(found):
        return shown(found)
    if found < 0.01:
        return "0 %" if found == 0 else "under 1 %"
    if found < 2:
        return f"{math.floor(100 * found + 1e-9) if found <= 1 else max(101, math.ceil(100 * found))} %"
    return f"{found:,.0f} times" if 10 <= found < 1e5 else f"{shown(found)} times"


def used(comparison: Document) -> str:
    """Say how much of the allowed error a comparison uses, in words that continue a sentence."""
    text = share(comparison["ratio"])
    if not math.isfinite(value(comparison["ratio"])):
        return "beyond any tolerance"
    return f"{text} what is allowed" if text.endswith("times") else f"{text} of what is allowed"


def place(comparison: Document) -> str:
    """Say where the worst element is, and its two values."""
    element = comparison["worst"]
    if element is None:
        return ""
    axes = [*element["axes"], *["index"] * len(element["index"])]
    where = ", ".join(f"{axis} {number}" for axis, number in zip(axes, element["index"], strict=False))
    return f"{where}: {shown(element['found'], 7)}, expected {shown(element['expected'], 7)}"


def amount(count: int, noun: str) -> str:
    """Return a count with its noun."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def clean(text: object, limit: int = 0) -> str:
    """Return text on one line without control characters, cut to a length if one is given."""
    line = " ".join("".join(char if char.isprintable() else " " for char in str(text)).split())
    return line if not limit or len(line) <= limit else f"{line[: limit - 1]}\N{HORIZONTAL ELLIPSIS}"


def lines(text: object) -> list[str]:
    """Return text of several lines, each without control characters; indents stay."""
    return ["".join(char if char.isprintable() else " " for char in line).rstrip() for line in str(text).splitlines()]
