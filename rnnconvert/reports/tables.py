"""The rows and columns that all forms of a report show, each in its own way."""

from __future__ import annotations

from collections.abc import Sequence

from rnnconvert.reports.words import Document, badness, called, digits_of, every_run, rank, title


def columns(document: Document) -> list[tuple[str, str]]:
    """Return the model and executor of every kind of run, the models in their order, executors in the order of appearance."""
    labels = [model["label"] for model in document["models"]]
    pairs = dict.fromkeys((run["model"], run["executor"]) for _, run in every_run(document))
    return sorted(pairs, key=lambda pair: labels.index(pair[0]) if pair[0] in labels else len(labels))


def executors(document: Document) -> list[tuple[Document, Document]]:
    """Return the worst run of each model on each executor, with its layer: a row for each of the columns."""
    return [
        max(
            ((layer, run) for layer, run in every_run(document) if (run["model"], run["executor"]) == pair), key=lambda row: badness(row[1])
        )
        for pair in columns(document)
    ]


def cells(pairs: Sequence[tuple[str, str]], layer: Document) -> list[Document | None]:
    """Return the runs of a layer, one for each of the columns; None where it did not run there."""
    runs = {(run["model"], run["executor"]): run for run in reversed(layer["runs"])}
    return [runs.get(pair) for pair in pairs]


def failed(run: Document) -> list[Document]:
    """Return the comparisons of a run that did not pass, the worst first."""
    return sorted((entry for entry in run["comparisons"] if not entry["passed"]), key=lambda entry: -rank(entry["ratio"]))


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
