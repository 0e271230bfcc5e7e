"""An index of many pairs, or of many files: a page, a table in Markdown and a JUnit suite with an entry for each, good or bad."""

from __future__ import annotations

import datetime
import os
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rnnconvert.containers.files import replacing
from rnnconvert.containers.reading import writing_freely
from rnnconvert.core.errors import UsageError
from rnnconvert.core.verdict import EQUAL, LAYERS, NOT_EQUAL, Verdict
from rnnconvert.reports import check, encoded, findings, words
from rnnconvert.reports.html_layer import scrolling
from rnnconvert.reports.junit import document_of, element, skipped, suite_of
from rnnconvert.reports.markdown import LIMIT, safe
from rnnconvert.reports.markup import Markup, el, page

_TONES = {"passed": "good", "failure": "bad", "error": "bad", "skipped": "neutral"}
_SIGNS = {"passed": words.SYMBOLS[EQUAL], "failure": words.SYMBOLS[NOT_EQUAL], "error": "!", "skipped": words.SYMBOLS[LAYERS]}
_PASSED = 2_000
"""The most passed entries that a page lists."""


@dataclass(frozen=True)
class IndexEntry:
    """The outcome of a pair, or of a file.

    name     its name
    outcome  as JUnit has it: an error could not be decided
    word     the same in words
    text     the result, or why there is none
    seconds  how long it took
    report   the page that has all of it
    """

    name: str
    outcome: words.Outcome
    word: str
    text: str
    seconds: float = 0.0
    report: Path | None = None


def entry_of(name: str, document: words.Document, report: Path | None = None) -> IndexEntry:
    """Return the entry of a report."""
    verdict = Verdict.read(document)
    return IndexEntry(
        name, words.outcome(verdict), verdict.word, findings.finding(document), words.value(document["seconds"].get("total", 0)), report
    )


def check_forms(*paths: str | os.PathLike[str]) -> None:
    """Raise UsageError unless each path is an .html, .md or .xml file that can be written."""
    for path, ending in zip(paths, check(*paths), strict=True):
        if ending not in _FORMS:
            raise UsageError(f"{path}: an index of several is .html, .md or .xml (JUnit)")


def write(title: str, entries: Sequence[IndexEntry], *paths: str | os.PathLike[str]) -> None:
    """Write an index in the forms that the files' endings stand for, .html, .md and .xml; existing files are replaced."""
    for path in map(Path, paths):
        with writing_freely(), replacing(path) as file:
            file.write(encoded(_FORMS[path.suffix.lower()](title, entries, path.parent)))


def _html(title: str, entries: Sequence[IndexEntry], folder: Path) -> str:
    """Return a page: what did not pass first."""
    counts = [(word, sum(entry.word == word for entry in entries)) for word in dict.fromkeys(entry.word for entry in entries)]
    failed = any(entry.outcome in ("failure", "error") for entry in entries)
    passed = [entry for entry in entries if entry.outcome == "passed"]
    rows = [*(entry for entry in entries if entry.outcome != "passed"), *passed[:_PASSED]]
    left = len(passed) - _PASSED
    header = el(
        "header",
        el("p", "rnnconvert report", class_="eyebrow"),
        el("h1", title),
        el("dl", [el("div", el("dt", word), el("dd", f"{count:,} of {len(entries):,}")) for word, count in counts], class_="figures"),
        class_=f"verdict {'bad' if failed else 'good' if len(passed) == len(entries) else 'neutral'}",
    )
    head = el("tr", [el("th", text, scope="col") for text in ("", "", "what was shown", "seconds")])
    table = el("table", el("thead", head), el("tbody", [_row(entry, folder) for entry in rows]))
    more = el("p", f"and {left:,} more that passed", class_="note") if left > 0 else None
    return page(title, header, el("main", scrolling(table, title), more))


def _row(entry: IndexEntry, folder: Path) -> Markup:
    sign = el("span", _SIGNS[entry.outcome], class_="sign", aria_hidden="true")
    name: str = entry.name
    if entry.report is not None:
        name = el("a", entry.name, href=Path(os.path.relpath(entry.report, folder)).as_posix())
    mark = el("td", el("span", sign, entry.word, class_=f"mark {_TONES[entry.outcome]}"), class_="state")
    return el("tr", el("th", name, scope="row"), mark, el("td", words.clean(entry.text, 600)), el("td", f"{entry.seconds:.1f}", class_="n"))


def _junit(title: str, entries: Sequence[IndexEntry], folder: Path) -> str:
    cases = []
    for entry in entries:
        name, text = words.clean(entry.name), words.clean(entry.text)
        if entry.outcome == "skipped":
            cases.append(skipped(title, name, text, entry.word))
            continue
        case = element("testcase", name=name, classname=title, time=f"{entry.seconds:.3f}")
        if entry.outcome != "passed":
            case.append(element(entry.outcome, entry.text, message=text, type=entry.word))
        cases.append(case)
    return document_of([suite_of(title, 0, cases, datetime.datetime.now(datetime.timezone.utc).isoformat())])


def _markdown(title: str, entries: Sequence[IndexEntry], folder: Path) -> str:
    """Return tables: how many there are of each kind, and what did not pass, as far as a comment on a pull request has room."""
    counts = Counter(entry.word for entry in entries)
    text = f"## {title}\n\n| | |\n|---|---:|\n" + "".join(f"| {word} | {count:,} |\n" for word, count in counts.most_common())
    rows = [
        f"| {safe(entry.name, 300)} | {entry.word} | {safe(entry.text, 600)} |\n"
        for entry in entries
        if entry.outcome in ("failure", "error")
    ]
    text += "\n| | | what was shown |\n|---|---|---|\n" if rows else ""
    for number, row in enumerate(rows):
        if len(text) + len(row) > LIMIT - 100:
            return f"{text}\n{len(rows) - number:,} more are left out for length.\n"
        text += row
    return text


_FORMS: dict[str, Callable[[str, Sequence[IndexEntry], Path], str]] = {".html": _html, ".md": _markdown, ".xml": _junit}
