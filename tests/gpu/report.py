"""What the run leaves for people and for other programs: report.html, junit.xml, versions.json, answers.json."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from rnnconvert.reports.markup import Markup, el, join
from tests.gpu import standins
from tests.gpu.parts import Part
from tests.gpu.records import ANSWERED, BAD, EQUAL, MEASURED, OPEN, REFUSED, SKIPPED, UNRUN, Record  # fmt: skip

_STYLE = """
body{font:15px/1.5 system-ui,sans-serif;max-width:70rem;margin:2rem auto;padding:0 1rem;color:#1a1a1a;background:#fff}
table{border-collapse:collapse;margin:.5rem 0 1.5rem;width:100%}
th,td{border-bottom:1px solid #ccc;padding:.25rem .5rem;text-align:left;vertical-align:top}
td.n{text-align:right;font-variant-numeric:tabular-nums}
.bad{color:#a00;font-weight:600}.good{color:#064}.mark{background:#fe9;padding:.6rem 1rem;color:#111}
@media (prefers-color-scheme:dark){
body{background:#151515;color:#ddd}.bad{color:#f88}.good{color:#8d8}th,td{border-color:#444}}
"""
_OUTSIDE_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_MOST = 400
"""The most rows of a table; the cases that are not equal come first."""


def summary(records: Iterable[Record]) -> str:
    """How many cases of each verdict there are, in words."""
    counts = Counter(record.verdict for record in records)
    order = (EQUAL, ANSWERED, MEASURED, *BAD, OPEN, REFUSED, SKIPPED, UNRUN)
    return ", ".join(f"{counts[verdict]} {verdict}" for verdict in order if counts[verdict]) or "nothing ran"


def answers(records: Sequence[Record]) -> list[dict[str, Any]]:
    """Each question with its candidates, how far each is off, and the one that matches."""
    entries = []
    for record in records:
        if "question" in record.facts:
            entries.append({"part": record.part, "verdict": record.verdict, "why": record.why, **record.facts})
        elif record.part.startswith("questions"):
            entries.append({"part": record.part, "question": record.case, "verdict": record.verdict, "why": record.why})
    return entries


def layouts(records: Sequence[Record]) -> list[dict[str, Any]]:
    """What each library said of its layout: the digests of two libraries are equal where all of their tables are."""
    return [
        {"part": record.part, "case": record.case, "verdict": record.verdict, "why": record.why, **record.facts}
        for record in records
        if record.part.startswith("layout")
    ]


def wheels(records: Sequence[Record]) -> list[str]:
    """Differences between the libraries that were asked, in words; nothing where one was asked."""
    differences: list[str] = []
    for name, key in (("layout", "digest"), ("questions", "answer")):
        by_case: dict[str, dict[str, Any]] = {}
        for record in records:
            if record.part.split("@")[0] == name and key in record.facts:
                by_case.setdefault(record.case, {})[record.part.partition("@")[2] or "installed"] = record.facts[key]
        for case, by in by_case.items():
            if len(set(map(str, by.values()))) > 1:
                differences.append(f"{name}, {case}: " + "; ".join(f"{where}: {value}" for where, value in by.items()))
    return differences


def junit(records: Sequence[Record], parts: Sequence[Part], stands_in: bool) -> str:
    """Return the records as JUnit XML: a suite for each part."""
    root = ElementTree.Element("testsuites")
    for part in parts:
        chosen = [record for record in records if record.part == part.name]
        suite = ElementTree.SubElement(
            root, "testsuite", name=_clean(_titled(part, stands_in)), tests=str(len(chosen)),
            failures=str(sum(entry.verdict == "different" for entry in chosen)),
            errors=str(sum(entry.verdict == "failed" for entry in chosen)),
            skipped=str(sum(entry.verdict in (SKIPPED, REFUSED, UNRUN, OPEN) for entry in chosen)),
            time=f"{sum(entry.seconds for entry in chosen):.3f}",
        )  # fmt: skip
        for entry in chosen:
            case = ElementTree.SubElement(
                suite, "testcase", name=_clean(entry.case), classname=_clean(part.name), time=f"{entry.seconds:.3f}"
            )
            kind = {"different": "failure", "failed": "error"}.get(entry.verdict)
            if kind:
                ElementTree.SubElement(case, kind, message=_clean(entry.why), type=entry.verdict)
            elif entry.verdict in (SKIPPED, REFUSED, UNRUN, OPEN):
                ElementTree.SubElement(case, "skipped", message=_clean(f"{entry.verdict}: {entry.why}"))
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _titled(part: Part, stands_in: bool) -> str:
    return f"{part.title} ({standins.MARK})" if stands_in else part.title


def _clean(text: str) -> str:
    return _OUTSIDE_XML.sub("", text)


def html(records: Sequence[Record], parts: Sequence[Part], versions: Mapping[str, Any], problems: Sequence[str], stands_in: bool) -> str:
    """Return one page, without a script or anything from elsewhere."""
    head = (
        el("p", f"Every result here is of a {standins.MARK}: it proves this script, and nothing of a GPU.", class_="mark")
        if stands_in
        else None
    )
    facts = versions.get("machine", {}).get("driver", {})
    gpu = facts.get("device", "no GPU")
    blocks = [
        el("h1", f"rnnconvert on {gpu}"),
        head,
        el("p", summary(records), class_="bad" if any(record.verdict in BAD for record in records) else "good"),
        _list("In the way", problems),
        _answers(answers(records)),
        _list("Differences between the libraries of cuDNN", wheels(records)),
        *(_part(part, [record for record in records if record.part == part.name], stands_in) for part in parts),
        el("h2", "Versions"),
        el("pre", json.dumps(versions, indent=2)),
    ]
    title = el("title", f"rnnconvert on {gpu}")
    top = el("head", el("meta", charset="utf-8"), title, Markup(f"<style>{_STYLE}</style>"))
    return "<!doctype html>\n" + el("html", top, el("body", *blocks), lang="en") + "\n"


def _list(title: str, lines: Sequence[str]) -> Markup | None:
    return join(el("h2", title), el("ul", [el("li", line) for line in lines])) if lines else None


def _answers(entries: Sequence[Mapping[str, Any]]) -> Markup | None:
    if not entries:
        return None
    rows = []
    for entry in entries:
        configurations = entry.get("configurations", {})
        details = []
        for name, candidates in configurations.items():
            far = ", ".join(f"{c}: {numbers['largest difference']:.2g}" for c, numbers in candidates.items())
            details.append(el("div", f"{name}: {far}"))
        tone = "good" if entry["verdict"] == ANSWERED else ""
        answer = entry.get("answer") or entry["verdict"]
        rows.append(el("tr", el("td", entry["question"]), el("td", answer, class_=tone), el("td", entry["why"], *details)))
    top = el("tr", el("th", "question"), el("th", "answer"), el("th", "the largest difference of each candidate"))
    return join(el("h2", "Questions"), el("table", el("thead", top), el("tbody", rows)))


def _part(part: Part, records: Sequence[Record], stands_in: bool) -> Markup:
    order = {verdict: number for number, verdict in enumerate((*BAD, OPEN, UNRUN, REFUSED, SKIPPED))}
    ordered = sorted(records, key=lambda record: order.get(record.verdict, len(order)))
    rows = [
        el(
            "tr",
            el("td", record.case),
            el("td", record.verdict, class_="bad" if record.verdict in BAD else ""),
            el("td", _number(record.ratio), class_="n"),
            el("td", _number(record.largest), class_="n"),
            el("td", _number(record.drift), class_="n"),
            el("td", f"{record.seconds:.2f}", class_="n"),
            el("td", record.why),
        )
        for record in ordered[:_MOST]
    ]
    names = ("case", "verdict", "error / allowed", "largest error", "to kept results", "seconds", "")
    more = len(records) - _MOST
    table = el("table", el("thead", el("tr", [el("th", name) for name in names])), el("tbody", rows))
    return join(
        el("h2", _titled(part, stands_in)), el("p", summary(records)), table,
        el("p", f"and {more} more, none of which is worse") if more > 0 else None,
    )  # fmt: skip


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}"


def write(
    out: Path, records: Sequence[Record], parts: Sequence[Part], versions: Mapping[str, Any], problems: Sequence[str],
    stands_in: bool,
) -> None:  # fmt: skip
    """Write the four files. Raises OSError."""
    document = {"stand-in": stands_in, "questions": answers(records), "layouts": layouts(records), "differences": wheels(records)}
    texts = {
        "report.html": html(records, parts, versions, problems, stands_in),
        "junit.xml": junit(records, parts, stands_in),
        "versions.json": json.dumps(dict(versions), indent=2) + "\n",
        "answers.json": json.dumps(document, indent=1) + "\n",
    }
    for name, text in texts.items():
        replace(out / name, text.encode("utf-8"))


def replace(path: Path, data: bytes) -> None:
    """Write a file whole, or leave the one that was there. Raises OSError."""
    partial = path.with_name(f".{path.name}.part")
    try:
        partial.write_bytes(data)
        partial.replace(path)
    except OSError:
        partial.unlink(missing_ok=True)
        raise
