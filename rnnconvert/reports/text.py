"""A report as plain text for the terminal: how each run did, where it failed, and last the verdict."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator

from rnnconvert.core.claims import exactness
from rnnconvert.core.verdict import Verdict
from rnnconvert.reports import findings, tables, words

Style = Callable[[str, str], str]
"""Colours a text: "green", "red" or "yellow"."""

_LETTERS: dict[str, str] = {
    words.EQUAL: "=",
    words.DIFFERENT: "X",
    words.UNCOMPARED: "?",
    "refused": "r",
    "failed": "f",
    "absent": "-",
    "": " ",
}
_COLOURS: dict[str, str] = {
    words.EQUAL: "green",
    words.BUT_FOR: "yellow",
    words.BY_LAYER: "yellow",
    words.LAYERS: "yellow",
    words.DIFFERENT: "red",
    words.UNCOMPARED: "yellow",
}
_MOST_SHOWN = 6
"""The most runs shown, comparisons of a run, gates of a layer; the files that `--report` writes have them all."""


def to_text(document: words.Document, style: Style | None = None, width: int = 100) -> str:
    """Return the document as lines, the verdict last.

    style  colours a text; without it the text is plain
    width  columns of the terminal
    """
    paint = style or (lambda text, colour: text)
    parts = [[*_headline(document, paint, width)], [*_models(document)], [*_executors(document, paint)], [*_matrix(document, paint)]]
    wrong = [failure for failure in findings.failures(document) if words.state(failure.run) == words.DIFFERENT]
    parts += [[*_failures(failure, paint, width)] for failure in wrong[:_MOST_SHOWN]]
    parts += [[f"and {words.amount(len(wrong) - _MOST_SHOWN, 'more run')} not equal"]] if len(wrong) > _MOST_SHOWN else []
    for layer in document["layers"]:
        parts += [[*_strip(layer, paint)], [*_differences(layer)]]
    parts += [[*_remarks(document, paint, width)], [verdict_line(document, style)]]
    return "\n\n".join("\n".join(part) for part in parts if part)


def _headline(document: words.Document, paint: Style, width: int) -> Iterator[str]:
    """Yield the cause and the fix, where something is not equal."""
    if document["verdict"] != words.EQUAL:
        verdict = document["verdict"]
        text = _wrapped(f"{verdict}: {words.clean(findings.finding(document))}", "", width)
        yield paint(verdict, _COLOURS[verdict]) + text.removeprefix(verdict)  # painted later: colours have no width
        advice, command = findings.remedy(document)
        if advice:
            yield f"{advice}: {words.clean(command)}" if command else advice  # a command is on one line, to be copied


def _strip(layer: words.Document, paint: Style) -> Iterator[str]:
    """Yield a row for each direction, with an X for each gate whose weights differ."""
    rows = [] if words.good(layer) else tables.strip(layer)
    if not rows:
        return
    wide = max(len(name) for name, _ in rows)
    heads = list(rows[0][1])
    yield "where the weights differ:" if not layer["name"] else f"where the weights of {words.clean(words.called(layer))} differ:"
    yield f"  {'':{wide}}  {'  '.join(heads)}"
    for name, cells in rows:
        marks = [(paint("X", "red") if cells.get(head) else ".") + " " * (len(head) - 1) for head in heads]
        yield f"  {name:{wide}}  {'  '.join(marks)}".rstrip()


def verdict_line(document: words.Document, style: Style | None = None) -> str:
    """Return the verdict with its summary, on one line."""
    paint = style or (lambda text, colour: text)
    verdict = Verdict.read(document)
    rest = [limit for limit in verdict.exceptions if limit.kind == "rest"]
    remarks = "".join(f"; {remark}" for remark in (*rest, *verdict.remarks))
    return f"{paint(document['verdict'], _COLOURS[document['verdict']])}: {words.clean(document['summary'] + remarks, 2000)}"


def _models(document: words.Document) -> Iterator[str]:
    for model in document["models"]:
        yield f"{model['label']}  {words.clean(model['path'])}  ({words.clean(model['format'])}, sha256 {words.clean(model['sha256'], 17)})"


def _executors(document: words.Document, paint: Style) -> Iterator[str]:
    """Yield one line for each model on each executor: the worst of all layers, and where it is."""
    names = [words.clean(f"{label} {words.ran_on(executor)}") for label, executor in tables.columns(document)]
    wide = max(map(len, names), default=0)
    for number, ((layer, run), name) in enumerate(zip(tables.executors(document), names, strict=True), 1):
        word = words.state(run)
        yield f"{number:3}  {name:{wide}}  {_painted(run, word.ljust(12), paint)}  {_how(layer, run)}".rstrip()


def _how(layer: words.Document, run: words.Document) -> str:
    comparison = words.worst(run)
    if run["status"] != "ran":
        asked = ", though it was asked for" if run["required"] else ""
        return words.clean(f"{run['reason']}{asked}")
    if comparison is None:
        return "it ran, but there was nothing to compare it with"
    where = words.clean(words.within(layer, comparison["case"], comparison["output"]))
    return f"largest error {words.figures(comparison)}  ({where})"


def _painted(run: words.Document, text: str, paint: Style) -> str:
    return paint(text, "red" if words.blocks(run) else _COLOURS.get(words.state(run), "yellow"))


def _matrix(document: words.Document, paint: Style) -> Iterator[str]:
    """Yield one line for each layer that is not equal everywhere, one letter for each run."""
    if len(document["layers"]) < 2:
        return
    pairs = tables.columns(document)
    odd = [layer for layer in document["layers"] if any(words.state(run) != words.EQUAL for run in layer["runs"])]
    wide = min(max((len(words.clean(words.called(layer))) for layer in odd), default=0), 48)
    if odd:
        yield f"{'layer':{wide}}  {' '.join(f'{number:2}' for number in range(1, len(pairs) + 1))}"
    used = {}
    for layer in odd:
        cells = []
        for run in tables.cells(pairs, layer):
            word = words.state(run) if run else ""
            used[_LETTERS[word]] = word
            cells.append(_painted(run, f" {_LETTERS[word]}", paint) if run else "  ")
        yield f"{words.clean(words.called(layer), wide):{wide}}  {' '.join(cells)}".rstrip()
    if odd:
        yield "  ".join(f"{letter} {word}" for letter, word in used.items() if word)
    rest = len(document["layers"]) - len(odd)
    if rest and not pairs:
        yield f"{words.amount(rest, 'layer')}, but nothing ran"
    elif rest:
        yield f"{words.amount(rest, 'other layer' if odd else 'layer')}: equal everywhere"


def _failures(failure: findings.Failure, paint: Style, width: int) -> Iterator[str]:
    """Yield the lines on a failure: the worst comparison in full, the others in a line, and the diagnosis."""
    run = failure.run
    label = failure.names[0].partition(" on ")[0]
    names = ", ".join([failure.names[0], *(name.removeprefix(f"{label} on ") for name in failure.names[1:])])
    yield f"{paint(words.DIFFERENT, 'red')}: {words.clean(words.within(failure.layer, names))}"
    failed = tables.failed(run)
    for number, entry in enumerate(failed[:_MOST_SHOWN]):
        yield f"  {words.clean(entry['case'])}, {words.clean(entry['output'])}: off by {words.figures(entry)}"
        if number == 0:
            many = f"{entry['mismatched']:,} of {words.amount(entry['elements'], 'element')}"
            yield f"    {words.clean(words.place(entry))}; {many} are off by too much"
    if len(failed) > _MOST_SHOWN:
        yield f"  and {words.amount(len(failed) - _MOST_SHOWN, 'more comparison')}"
    if failure.sentences:
        yield "  what it looks like:"
        yield from (_wrapped(words.clean(text), "    ", width) for text in failure.sentences)


def _differences(layer: words.Document) -> Iterator[str]:
    """Yield where the weights of a layer that is not equal differ."""
    for entry in [] if words.good(layer) else layer["differences"][:_MOST_SHOWN]:
        where, how = tables.difference(entry)
        yield words.clean(f"weights differ in {words.within(layer, where)}: {how}")
    if not words.good(layer) and len(layer["differences"]) > _MOST_SHOWN:
        yield f"and in {words.amount(len(layer['differences']) - _MOST_SHOWN, 'more place')}"


def _remarks(document: words.Document, paint: Style, width: int) -> Iterator[str]:
    """Yield rewrites, what the inputs could not show, and warnings."""
    for (name, rewrite, detail, exact), runs in tables.rewrites(document).items():
        text = f"rewritten for {', '.join(runs)}: {name}: {rewrite}, {detail} ({exactness([exact])})"
        yield _wrapped(words.clean(text), "", width)
    caught, tried = words.mutation_score(*document["layers"])
    if tried:
        yield f"test sensitivity: these inputs would catch {caught} of {tried} known mistakes"
    for warning in document["warnings"]:
        yield paint("warning", "yellow") + _wrapped(f"warning: {words.clean(warning)}", "", width).removeprefix("warning")


def _wrapped(text: str, indent: str, width: int) -> str:
    """Return a sentence in lines of a terminal's width."""
    rows = textwrap.wrap(
        text, max(width, 40), initial_indent=indent, subsequent_indent=f"{indent}  ", break_long_words=False, break_on_hyphens=False
    )
    return "\n".join(rows)
