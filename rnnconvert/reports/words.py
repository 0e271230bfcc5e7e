"""The words and counts that all forms of a report share, read off the document."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rnnconvert.core import verdict as verdicts
from rnnconvert.core.printable import abridged
from rnnconvert.core.remedies import Command, Flag
from rnnconvert.core.verdict import OTHER_NUMBERS, ROUNDED, Verdict

Document = dict[str, Any]
"""A report, or a part of one, as `schema.json` describes it."""

EQUAL, BUT_FOR, BY_LAYER = verdicts.EQUAL, verdicts.BUT_FOR, verdicts.BY_LAYER
DIFFERENT, UNCOMPARED = verdicts.NOT_EQUAL, verdicts.NOT_COMPARED
SYMBOLS: dict[str, str] = {
    EQUAL: "\N{CHECK MARK}",
    BUT_FOR: "\N{ALMOST EQUAL TO}",
    BY_LAYER: "\N{ALMOST EQUAL TO}",
    DIFFERENT: "\N{BALLOT X}",
    UNCOMPARED: "\N{MIDDLE DOT}",
    "refused": "\N{CIRCLED DIVISION SLASH}",
    "failed": "!",
    "absent": "\N{EN DASH}",
}
"""One sign for each verdict and state of a run, always shown with its word or a legend."""


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
    pairs = dict.fromkeys((run["model"], run["executor"]) for _, run in every_run(document))
    return sorted(pairs, key=lambda pair: labels.index(pair[0]) if pair[0] in labels else len(labels))


def title(run: Document) -> str:
    """Return a run's name."""
    return f"{run['model']} on {run['executor']}"


def called(layer: Document) -> str:
    """Return a layer's name; the empty one is the module itself."""
    return str(layer["name"]) or "(the module itself)"


def within(layer: Document, *words: str) -> str:
    """Return words about a layer with its name in front, unless it is the module itself."""
    return ", ".join([*([str(layer["name"])] if layer["name"] else []), *words])


def subject(document: Document) -> str:
    """Return what the report is about: the files' names."""
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
    """Return what the difference of a run looks like."""
    return [text for diagnosis in _diagnoses(layer, run) for text in diagnosis["sentences"]]


def _diagnoses(layer: Document, run: Document) -> list[Document]:
    return [diagnosis for diagnosis in layer["diagnoses"] if (diagnosis["model"], diagnosis["executor"]) == (run["model"], run["executor"])]


def mutation_score(*layers: Document) -> tuple[int, int]:
    """Return how many wrong conventions would have been caught, and how many were tried."""
    caught = sum(len(layer["mutations"]["caught"]) for layer in layers)
    return caught, caught + sum(len(layer["mutations"]["missed"]) for layer in layers)


def rewrites(document: Document) -> dict[tuple[str, str, str, bool], list[str]]:
    """Return each rewrite (layer, name, detail, whether exact), with the runs that it was made for."""
    layers_by_rewrite: dict[tuple[str, str, str, bool], list[str]] = {}
    for layer, run in every_run(document):
        for rewrite in run["rewrites"]:
            key = (rewrite["layer"] or called(layer), rewrite["rewrite"], rewrite["detail"], rewrite["exact"])
            names = layers_by_rewrite.setdefault(key, [])
            if title(run) not in names:
                names.append(title(run))
    return layers_by_rewrite


def difference(entry: Document) -> tuple[str, str]:
    """Say where the weights of two files differ, and how."""
    where = [f"layer {entry['layer']}"] if entry["layer"] >= 0 else []
    where += ["backward" if entry["direction"] else "forward"] if entry["direction"] >= 0 else []
    where += [entry["part"]] + ([f"gate {entry['gate']}"] if entry["gate"] else [])
    how = entry["words"] or f"by {digits_of(entry['error'])}, {digits_of(entry['relative'])} of the largest value"
    return ", ".join(where), how


def machines(document: Document) -> dict[tuple[str, str, str, str], list[str]]:
    """Return each device, element type, Python and versions that something ran with, with the runs that did."""
    by_machine: dict[tuple[str, str, str, str], list[str]] = {}
    for _, run in every_run(document):
        if run["status"] == "ran":
            versions = ", ".join(f"{name} {version}" for name, version in run["versions"].items())
            names = by_machine.setdefault((run["device"], run["dtype"], run["python"], versions), [])
            if title(run) not in names:
                names.append(title(run))
    return by_machine


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
    """Say how large an error is and how large it may be: "0.77 (tolerance 9e-7)"."""
    error = digits_of(comparison["error"])
    if comparison["passed"]:
        return f"{error}, {used(comparison)}"
    if not math.isfinite(value(comparison["ratio"])):
        return f"{error}, beyond any tolerance"
    return f"{error} (tolerance {digits_of(comparison['allowed'], 1)})"


@dataclass(frozen=True)
class Failure:
    """Runs of a layer that fail alike: the worst of them, all their names, and what the difference looks like."""

    layer: Document
    run: Document
    names: tuple[str, ...]
    sentences: tuple[str, ...]


def failures(document: Document) -> list[Failure]:
    """Return the runs that keep a report from being equal; those of a layer with one explanation together."""
    result: list[Failure] = []
    for layer in document["layers"]:
        alike: dict[object, list[Document]] = {}
        for number, run in enumerate(layer["runs"]):
            if blocks(run):
                fault = next((diagnosis.get("fault") for diagnosis in _diagnoses(layer, run)), "")
                explanation = fault or tuple(sentences(layer, run)) or number
                alike.setdefault((run["status"], explanation), []).append(run)
        for runs in alike.values():
            run = max(runs, key=badness)
            names = tuple(title(each) for each in runs)
            result.append(Failure(layer, run, names, tuple(sentences(layer, run))))
    return result


def causes(layer: Document) -> list[Document]:
    """Return the diagnoses of a layer that name a cause, those of the last model's weights first."""
    named = [diagnosis for diagnosis in layer["diagnoses"] if diagnosis.get("cause")]
    return sorted(named, key=lambda diagnosis: (diagnosis["kind"] != "weights", diagnosis["model"] != "B"))


def headline(document: Document) -> str:
    """Say in one line what is wrong and what to do about it, with the files' names; what was proved, where nothing is."""
    words, command = remedy(document)
    advice = f"{words}: {command}" if command else words
    return " ".join(filter(None, [finding(document), advice]))


def remedy(document: Document) -> tuple[str, str]:
    """Return the advice on a report that is not equal, and the command that follows it; "" for either that is unknown."""
    wrong = [layer for layer in document["layers"] if not good(layer)]
    return _fix(document, wrong) if document["verdict"] == DIFFERENT and wrong else ("", "")


def finding(document: Document) -> str:
    """Say in one sentence what is wrong, with the files' names; what was proved, where nothing is."""
    verdict = Verdict.read(document)
    if verdict.word in (EQUAL, BUT_FOR, BY_LAYER):
        return _proved(document, verdict)
    wrong = [layer for layer in document["layers"] if not good(layer)]
    if verdict.word == DIFFERENT:
        named = any(causes(layer) for layer in wrong)
        stated = document.get("reasons") or []
        return _cause(document, wrong) if wrong and (named or not stated) else f"{subject(document)}: {'; '.join(stated)}"
    missing = next((failure.run for failure in failures(document) if failure.run["status"] != "ran"), None)
    if missing is not None:
        return f"{subject(document)}: {missing['executor']} did not run: {missing['reason']}"
    if any(layer["differences"] for layer in document["layers"]):
        return f"{subject(document)} state something different, and no input that ran shows whether it matters."
    return _uncompared(document)


def _proved(document: Document, verdict: Verdict) -> str:
    """Say what was proved, and all that the proof does not cover."""
    named = sorted({run["executor"] for _, run in every_run(document) if run["comparisons"]} - {"reference"})
    on = f" on {', '.join(named)}" if named else ""
    exceptions = "; ".join(map(str, verdict.exceptions))
    remarks = "".join(f" {remark}." for remark in verdict.remarks)
    if verdict.word == BY_LAYER:
        return f"{subject(document)}: each layer computes the same{on}, but the whole source was not run: {exceptions}.{remarks}"
    left = f". Exceptions: {exceptions}" if exceptions else ""
    if len(document["models"]) < 2:
        return f"{subject(document)} computes what its weights say{on}{left}.{remarks}"
    return f"{subject(document)} compute the same{on}{left}.{remarks}"


def _uncompared(document: Document) -> str:
    """Say why nothing was compared: nothing ran, or what ran could not be judged."""
    last = document["models"][-1]["label"] if document["models"] else ""
    for layer, run in every_run(document):
        judged = any(comparison["output"] == "y" for comparison in run["comparisons"])
        if run["model"] == last and run["executor"] != "reference" and run["status"] == "ran" and not judged:
            why = "; ".join(f"{what}: {reason}" for what, reason in run["left_out"].items()) or "it gave no outputs"
            return f"{subject(document)}: {run['executor']} ran {called(layer)}, but its outputs could not be judged: {why}"
    refused = [run for _, run in every_run(document) if run["model"] == last and run["status"] == "refused"]
    if refused:
        return f"{subject(document)}: nothing was compared. {refused[0]['executor']}: {refused[0]['reason']}"
    return f"{subject(document)}: nothing was compared, as no framework here ran it. See: rnnconvert executors"


def _cause(document: Document, wrong: list[Document]) -> str:
    """Say what is wrong: the cause where it is known, else the numbers."""
    paths = {model["label"]: model["path"] for model in document["models"]}
    layer = next((candidate for candidate in wrong if causes(candidate)), wrong[0])
    of_layer = f", layer {called(layer)}" if len(document["layers"]) > 1 else ""
    note = f"; {amount(len(wrong) - 1, 'other layer')} of {len(document['layers'])} not equal, either" if len(wrong) > 1 else ""
    named = causes(layer)
    if named and named[0]["kind"] == "weights" and named[0]["model"] == "B":
        return f"In {paths.get('B', 'B')}{of_layer}, {named[0]['cause']}, compared with {paths.get('A', 'A')}{note}."
    run = max((run for run in layer["runs"] if blocks(run)), key=badness)
    if named:
        file = paths.get(named[0]["model"], named[0]["model"])
        return f"{named[0]['executor']} runs {file}{of_layer} as if {named[0]['cause']}{note}."
    comparison = worst(run)
    numbers = f": {comparison['output']} is off by {figures(comparison)}" if comparison else ""
    if run["model"] == "B":
        return f"{paths.get('B', 'B')}{of_layer} does not compute what {paths.get('A', 'A')} does{numbers}{note}."
    return f"{run['executor']} does not compute what {paths.get('A', 'A')}{of_layer} says{numbers}{note}."


def _fix(document: Document, wrong: list[Document]) -> tuple[str, str]:
    paths = {model["label"]: model["path"] for model in document["models"]}
    named = [cause for layer in wrong for cause in causes(layer)]
    if named and named[0]["kind"] == "run":
        return "The weights are right. Change how the model is run.", ""
    if named and str(named[0].get("fault", "")).startswith(ROUNDED):
        return f"If that is meant, allow what it costs: {Flag('atol')} and {Flag('rtol')}.", ""
    if named and named[0].get("fault") == OTHER_NUMBERS:
        return "The layout is right. Check that both files come from the same training step.", ""
    if "A" in paths and "B" in paths and any(run["model"] == "B" and blocks(run) for layer in wrong for run in layer["runs"]):
        return "To fix", Command("convert", paths["A"], paths["B"], force=True).flags
    return "", ""


def strip(layer: Document) -> list[tuple[str, dict[str, bool]]]:
    """Return a row for each direction of a layer whose weights differ: its name, and by gate whether it differs.

    Parts without gates, and what the cell computes, stand as a last column, "cell".
    """
    rows = []
    places = layer.get("places", [])
    deep, both = len({entry["layer"] for entry in places}) > 1, len({entry["direction"] for entry in places}) > 1
    for cell in places:
        name = [f"layer {cell['layer']}"] if deep else []
        name += ["backward" if cell["direction"] else "forward"] if both else []
        cells = {gate: gate in cell["off"] for gate in cell["gates"]}
        if any("" in other["off"] for other in places):
            cells["cell"] = "" in cell["off"]
        rows.append((" ".join(name) or "weights", cells))
    return rows if any(any(cells.values()) for _, cells in rows) else []


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
