"""A report as plain text for the terminal: how each run did, where it failed, and last the verdict."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator

from rnnconvert.core.claims import exactness
from rnnconvert.core.verdict import Verdict
from rnnconvert.reports.words import (
    BUT_FOR,
    BY_LAYER,
    DIFFERENT,
    EQUAL,
    UNCOMPARED,
    Document,
    Failure,
    amount,
    badness,
    blocks,
    called,
    clean,
    columns,
    difference,
    failures,
    figures,
    finding,
    good,
    mutation_score,
    place,
    rank,
    remedy,
    rewrites,
    state,
    strip,
    within,
    worst,
)

Style = Callable[[str, str], str]
"""Colours a text: "green", "red" or "yellow"."""

_LETTERS: dict[str, str] = {EQUAL: "=", DIFFERENT: "X", UNCOMPARED: "?", "refused": "r", "failed": "f", "absent": "-", "": " "}
_COLOURS: dict[str, str] = {EQUAL: "green", BUT_FOR: "yellow", BY_LAYER: "yellow", DIFFERENT: "red", UNCOMPARED: "yellow"}
_MOST_SHOWN = 6
"""The most runs shown, comparisons of a run, gates of a layer; the files that `--report` writes have them all."""


def to_text(document: Document, style: Style | None = None, width: int = 100) -> str:
    """Return the document as lines, the verdict last.

    style  colours a text; without it the text is plain
    width  columns of the terminal
    """
    paint = style or (lambda text, colour: text)
    parts = [[*_headline(document, paint, width)], [*_models(document)], [*_executors(document, paint)], [*_matrix(document, paint)]]
    wrong = [failure for failure in failures(document) if state(failure.run) == DIFFERENT]
    parts += [[*_failures(failure, paint, width)] for failure in wrong[:_MOST_SHOWN]]
    parts += [[f"and {amount(len(wrong) - _MOST_SHOWN, 'more run')} not equal"]] if len(wrong) > _MOST_SHOWN else []
    for layer in document["layers"]:
        parts += [[*_strip(layer, paint)], [*_differences(layer)]]
    parts += [[*_remarks(document, paint, width)], [verdict_line(document, style)]]
    return "\n\n".join("\n".join(part) for part in parts if part)


def _headline(document: Document, paint: Style, width: int) -> Iterator[str]:
    """Yield the cause and the fix, where something is not equal."""
    if document["verdict"] != EQUAL:
        verdict = document["verdict"]
        text = _wrapped(f"{verdict}: {clean(finding(document))}", "", width)
        yield paint(verdict, _COLOURS[verdict]) + text.removeprefix(verdict)  # painted later: colours have no width
        words, command = remedy(document)
        if words:
            yield f"{words}: {clean(command)}" if command else words  # a command is on one line, to be copied


def _strip(layer: Document, paint: Style) -> Iterator[str]:
    """Yield a row for each direction, with an X for each gate whose weights differ."""
    rows = [] if good(layer) else strip(layer)
    if not rows:
        return
    wide = max(len(name) for name, _ in rows)
    heads = list(rows[0][1])
    yield "where the weights differ:" if not layer["name"] else f"where the weights of {clean(called(layer))} differ:"
    yield f"  {'':{wide}}  {'  '.join(heads)}"
    for name, cells in rows:
        marks = [(paint("X", "red") if cells.get(head) else ".") + " " * (len(head) - 1) for head in heads]
        yield f"  {name:{wide}}  {'  '.join(marks)}".rstrip()


def verdict_line(document: Document, style: Style | None = None) -> str:
    """Return the verdict with its summary, on one line."""
    paint = style or (lambda text, colour: text)
    remarks = "".join(f"; {remark}" for remark in Verdict.read(document).remarks)
    return f"{paint(document['verdict'], _COLOURS[document['verdict']])}: {clean(document['summary'] + remarks, 2000)}"


def _models(document: Document) -> Iterator[str]:
    for model in document["models"]:
        yield f"{model['label']}  {clean(model['path'])}  ({clean(model['format'])}, sha256 {clean(model['sha256'], 17)})"


def _executors(document: Document, paint: Style) -> Iterator[str]:
    """Yield one line for each model on each executor: the worst of all layers, and where it is."""
    names = [clean(f"{label} on {executor}") for label, executor in columns(document)]
    wide = max(map(len, names), default=0)
    for number, (pair, name) in enumerate(zip(columns(document), names, strict=True), 1):
        pairs = [(layer, run) for layer in document["layers"] for run in _of(layer, pair)]
        layer, run = max(pairs, key=lambda entry: badness(entry[1]))
        word = state(run)
        yield f"{number:3}  {name:{wide}}  {_painted(run, word.ljust(12), paint)}  {_how(layer, run)}".rstrip()


def _how(layer: Document, run: Document) -> str:
    comparison = worst(run)
    if run["status"] != "ran":
        asked = ", though it was asked for" if run["required"] else ""
        return clean(f"{run['reason']}{asked}")
    if comparison is None:
        return "it ran, but there was nothing to compare it with"
    where = clean(within(layer, comparison["case"], comparison["output"]))
    return f"largest error {figures(comparison)}  ({where})"


def _of(layer: Document, pair: tuple[str, str]) -> list[Document]:
    return [run for run in layer["runs"] if (run["model"], run["executor"]) == pair]


def _painted(run: Document, text: str, paint: Style) -> str:
    return paint(text, "red" if blocks(run) else _COLOURS.get(state(run), "yellow"))


def _matrix(document: Document, paint: Style) -> Iterator[str]:
    """Yield one line for each layer that is not equal everywhere, one letter for each run."""
    if len(document["layers"]) < 2:
        return
    pairs = columns(document)
    odd = [layer for layer in document["layers"] if any(state(run) != EQUAL for run in layer["runs"])]
    wide = min(max((len(clean(called(layer))) for layer in odd), default=0), 48)
    if odd:
        yield f"{'layer':{wide}}  {' '.join(f'{number:2}' for number in range(1, len(pairs) + 1))}"
    used = {}
    for layer in odd:
        cells = []
        for pair in pairs:
            word = next(map(state, _of(layer, pair)), "")
            used[_LETTERS[word]] = word
            cells.append(next((_painted(run, f" {_LETTERS[word]}", paint) for run in _of(layer, pair)), "  "))
        yield f"{clean(called(layer), wide):{wide}}  {' '.join(cells)}".rstrip()
    if odd:
        yield "  ".join(f"{letter} {word}" for letter, word in used.items() if word)
    rest = len(document["layers"]) - len(odd)
    if rest and not pairs:
        yield f"{amount(rest, 'layer')}, but nothing ran"
    elif rest:
        yield f"{amount(rest, 'other layer' if odd else 'layer')}: equal everywhere"


def _failures(failure: Failure, paint: Style, width: int) -> Iterator[str]:
    """Yield what is not equal: the worst in full, the others in a line, and what it looks like."""
    run = failure.run
    label = failure.names[0].partition(" on ")[0]
    names = ", ".join([failure.names[0], *(name.removeprefix(f"{label} on ") for name in failure.names[1:])])
    yield f"{paint(DIFFERENT, 'red')}: {clean(within(failure.layer, names))}"
    failed = sorted(
        (comparison for comparison in run["comparisons"] if not comparison["passed"]), key=lambda comparison: -rank(comparison["ratio"])
    )
    for number, entry in enumerate(failed[:_MOST_SHOWN]):
        yield f"  {clean(entry['case'])}, {clean(entry['output'])}: off by {figures(entry)}"
        if number == 0:
            yield f"    {clean(place(entry))}; {entry['mismatched']:,} of {amount(entry['elements'], 'element')} are off by too much"
    if len(failed) > _MOST_SHOWN:
        yield f"  and {amount(len(failed) - _MOST_SHOWN, 'more comparison')}"
    if failure.sentences:
        yield "  what it looks like:"
        yield from (_wrapped(clean(text), "    ", width) for text in failure.sentences)


def _differences(layer: Document) -> Iterator[str]:
    """Yield where the weights of a layer that is not equal differ."""
    for entry in [] if good(layer) else layer["differences"][:_MOST_SHOWN]:
        where, how = difference(entry)
        yield clean(f"weights differ in {within(layer, where)}: {how}")
    if not good(layer) and len(layer["differences"]) > _MOST_SHOWN:
        yield f"and in {amount(len(layer['differences']) - _MOST_SHOWN, 'more place')}"


def _remarks(document: Document, paint: Style, width: int) -> Iterator[str]:
    """Yield rewrites, what the inputs could not show, and warnings."""
    for (name, rewrite, detail, exact), runs in rewrites(document).items():
        text = f"rewritten for {', '.join(runs)}: {name}: {rewrite}, {detail} ({exactness([exact])})"
        yield _wrapped(clean(text), "", width)
    caught, tried = mutation_score(*document["layers"])
    if tried:
        yield f"test sensitivity: these inputs would catch {caught} of {tried} known mistakes"
    for warning in document["warnings"]:
        yield paint("warning", "yellow") + _wrapped(f"warning: {clean(warning)}", "", width).removeprefix("warning")


def _wrapped(text: str, indent: str, width: int) -> str:
    """Return a sentence in lines of a terminal's width."""
    rows = textwrap.wrap(
        text, max(width, 40), initial_indent=indent, subsequent_indent=f"{indent}  ", break_long_words=False, break_on_hyphens=False
    )
    return "\n".join(rows)
