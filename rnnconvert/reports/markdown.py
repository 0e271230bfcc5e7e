"""A report as Markdown, short enough for a comment on a pull request."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from rnnconvert.core.claims import exactness
from rnnconvert.reports import findings, tables, words

LIMIT = 60_000
"""The most characters; GitHub takes 65,536 in a comment, and whoever posts the report may add words of their own."""

_MESSAGE = 2_000
_LISTED = 8
_SIGNS: dict[str, str] = {
    words.EQUAL: "\N{WHITE HEAVY CHECK MARK}",
    words.BUT_FOR: "\N{WARNING SIGN}",
    words.BY_LAYER: "\N{WARNING SIGN}",
    words.LAYERS: "\N{WARNING SIGN}",
    words.DIFFERENT: "\N{CROSS MARK}",
    words.UNCOMPARED: "\N{WHITE CIRCLE}",
}
_SPECIAL = {char: f"&#{ord(char)};" for char in "&<>|`*~[]\\$"} | {char: f"{char}<!-- -->" for char in "@#"}


@dataclass
class _Section:
    """Blocks of text between a head and a foot; blocks are left out from the end where there is no room.

    head, foot   what stands around them
    blocks       each is kept whole or left out
    more         what the blocks are, for the sentence that says how many were left out
    """

    head: str = ""
    foot: str = ""
    blocks: list[str] = field(default_factory=list)
    more: str = "rows"

    def fitted(self, room: int) -> str:
        """Return the section in at most `room` characters, or nothing."""
        spare = 160 + len(self.head) + len(self.foot)
        if not self.blocks or room < spare + min(len(self.blocks[0]), 400):
            return ""
        text, count = self.head, 0
        for block in self.blocks:
            if len(text) + len(block) + spare - len(self.head) > room:
                break
            text, count = text + block, count + 1
        left = len(self.blocks) - count
        cut = f"\n\n{left:,} more {self.more} are left out for length; the HTML and JSON reports have them all.\n"
        return text + (cut if left else "") + self.foot


def to_markdown(document: words.Document) -> str:
    """Return the document as Markdown, at most LIMIT characters."""
    room = LIMIT
    texts = []
    for section in _sections(document):
        text = section.fitted(room)
        room -= len(text) + 1
        texts.append(text)
    return "\n".join(f"{text.rstrip()}\n" for text in texts if text)


def safe(text: object, limit: int = 200) -> str:
    """Return untrusted text as plain text: no markup, no end of a table, no mention of anybody."""
    plain = "".join(_SPECIAL.get(char, char) for char in words.clean(text, limit))
    plain = re.sub(r"(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])", "&#95;", plain)
    return re.sub(r"(?i)(https?|www)([:.])", r"\1<!-- -->\2", plain)


def _sections(document: words.Document) -> Iterator[_Section]:
    yield _Section(blocks=[_verdict(document)])
    yield _Section(
        head=_row("", "model, executor", "largest error", "of what is allowed", "where") + _row("---", "---", "---:", "---:", "---"),
        blocks=[*_executors(document)],
        more="executors",
    )
    yield _Section(head="### What is not equal\n\n", blocks=[*_failures(document)], more="failures")
    for name, head, rows, more in (
        (f"Layers: {len(document['layers']):,}", _layers_head(document), _layers(document), "layers"),
        (_score(document), "", _mutations(document), "layers"),
        ("Rewrites", "", _rewrites(document), "rewrites"),
        ("Differences of the weights", "", _differences(document), "differences"),
        ("Left out", "", _skipped(document), "cases"),
        ("Files, versions and how to run it again", "", _machines(document), "entries"),
        ("Warnings", "", (f"- {safe(text, 600)}\n" for text in document["warnings"]), "warnings"),
    ):
        opened = f"<details><summary>{name}</summary>\n\n{head}"
        yield _Section(head=opened, foot="\n</details>\n", blocks=[*rows], more=more)


def _verdict(document: words.Document) -> str:
    verdict = document["verdict"]
    names = safe(" and ".join(words.clean(model["path"], 120) for model in document["models"]), 300)
    text = f"## {_SIGNS[verdict]} {verdict.capitalize()}: {names}\n\n"
    if verdict != words.EQUAL or document.get("limits"):
        fix, command = findings.remedy(document)
        text += f"**{safe(findings.finding(document), 1000)}** {safe(fix)}"
        text += f":\n\n{_fenced(words.clean(command))}\n" if command else "\n\n"
    return f"{text}{safe(document['summary'], 600)}\n"


def _executors(document: words.Document) -> Iterator[str]:
    """Yield a row for each model on each executor, the worst of its layers."""
    for layer, run in tables.executors(document):
        comparison = words.worst(run)
        where = (
            f"{words.called(layer)}, {comparison['case']}, {comparison['output']}"
            if comparison
            else f"{words.called(layer)}: {run['reason']}"
        )
        numbers = (words.digits_of(comparison["error"]), words.share(comparison["ratio"])) if comparison else ("", "")
        yield _row(_word(run), safe(words.title(run)), *numbers, safe(where, 300))


def _word(run: words.Document) -> str:
    """Describe the state of a run, with a sign that shows whether it matters."""
    sign = _SIGNS[words.DIFFERENT] if words.blocks(run) else _SIGNS.get(words.state(run), _SIGNS[words.UNCOMPARED])
    asked = ", though asked for" if run["required"] and run["status"] != "ran" else ""
    return f"{sign} {words.state(run)}{asked}"


def _failures(document: words.Document) -> Iterator[str]:
    """Yield the failures: the diagnosis, the worst comparison in full, others in a line."""
    for failure in findings.failures(document):
        run = failure.run
        failed = tables.failed(run)
        if not failed and not failure.sentences:
            continue
        text = f"**{safe(words.called(failure.layer))}, {safe(', '.join(failure.names))}**\n\n"
        text += "".join(f"- {safe(sentence, 600)}\n" for sentence in failure.sentences[:_LISTED]) + ("\n" if failure.sentences else "")
        for number, comparison in enumerate(failed[:_LISTED]):
            text += f"{safe(comparison['case'])}, {safe(comparison['output'])}: off by {words.figures(comparison)}"
            message = "\n".join(words.lines(comparison["message"]) or [words.clean(words.place(comparison))])
            text += f"\n\n{_fenced(message)}\n" if number == 0 else "  \n"
        left = len(failed) - _LISTED
        text += f"and {words.amount(left, 'more comparison')}\n\n" if left > 0 else "\n"
        yield text + _strip(failure.layer)


def _strip(layer: words.Document) -> str:
    """Return a table of directions and gates, with a mark where the weights differ."""
    rows = tables.strip(layer)
    if not rows:
        return ""
    heads = list(rows[0][1])
    text = _row("weights", *heads) + _row("---", *[":-:"] * len(heads))
    return (
        text + "".join(_row(name, *(_SIGNS[words.DIFFERENT] if cells.get(head) else "" for head in heads)) for name, cells in rows) + "\n"
    )


def _fenced(text: str) -> str:
    """Return the text unchanged, in a block that nothing in it can end."""
    if len(text) > _MESSAGE:
        text = text[:_MESSAGE].rpartition("\n")[0] + "\n(cut)"
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}text\n{text}\n{fence}\n"


def _layers_head(document: words.Document) -> str:
    names = [safe(f"{label} {words.ran_on(executor)}") for label, executor in tables.columns(document)]
    return _row("layer", *names) + _row("---", *["---"] * len(names))


def _layers(document: words.Document) -> Iterator[str]:
    """Yield a row for each layer, the ones that are not equal first."""
    layers, pairs = document["layers"], tables.columns(document)
    for layer in sorted(layers, key=words.good) if len(layers) > 1 else ():  # one layer is in the table above
        texts = []
        for run in tables.cells(pairs, layer):
            comparison = words.worst(run) if run else None
            texts.append("" if run is None else _word(run) + (f", {words.share(comparison['ratio'])}" if comparison else ""))
        yield _row(safe(words.called(layer)), *texts)


def _score(document: words.Document) -> str:
    caught, tried = words.mutation_score(*document["layers"])
    return f"Test sensitivity: these inputs would catch {caught:,} of {tried:,} known mistakes"


def _mutations(document: words.Document) -> Iterator[str]:
    for layer in document["layers"]:
        caught, missed = layer["mutations"]["caught"], layer["mutations"]["missed"]
        if caught or missed:
            names = ", ".join(f"{safe(mutation['name'])} ({words.digits_of(mutation['error'])})" for mutation in caught)
            text = f"- {safe(words.called(layer))}: {len(caught)} of {len(caught) + len(missed)}. Shown: {names or 'none'}.\n"
            yield text + "".join(f"  - not shown: {safe(mutation['name'])}: {safe(mutation['why'])}\n" for mutation in missed)


def _rewrites(document: words.Document) -> Iterator[str]:
    for (name, rewrite, detail, exact), runs in tables.rewrites(document).items():
        yield f"- {safe(name)}: {safe(rewrite)}: {safe(detail, 400)} ({exactness([exact])}; for {safe(', '.join(runs))})\n"


def _differences(document: words.Document) -> Iterator[str]:
    for layer in document["layers"]:
        for entry in layer["differences"]:
            where, how = tables.difference(entry)
            yield f"- {safe(words.called(layer))}: {safe(where)}: {safe(how, 400)}\n"


def _skipped(document: words.Document) -> Iterator[str]:
    for layer in document["layers"]:
        for case in layer["cases"]:
            if case["skipped"]:
                yield f"- {safe(words.called(layer))}, {safe(case['name'])}: {safe(case['skipped'], 400)}\n"
    for layer, run in words.every_run(document):
        for case, why in run["left_out"].items():
            yield f"- {safe(words.called(layer))}, {safe(words.title(run))}, {safe(case)}: {safe(why, 400)}\n"


def _machines(document: words.Document) -> Iterator[str]:
    for model in document["models"]:
        yield (
            f"- {safe(model['label'])}: {safe(model['path'])}, {safe(model['format'])}, "
            f"{model['bytes']:,} bytes, sha256 {safe(model['sha256'])}\n"
        )
    for (device, dtype, python, versions), names in tables.machines(document).items():
        yield (f"- {safe(', '.join(names))}: {safe(device)}, {safe(dtype)}, Python {safe(python)}; {safe(versions, 400)}\n")
    yield f"- rnnconvert {safe(document['rnnconvert'])}, {safe(document['created'])}\n"
    yield f"\n{_fenced(words.clean(document['command'], 1000))}"


def _row(*cells: Iterable[str]) -> str:
    return f"| {' | '.join(str(cell) for cell in cells)} |\n"
