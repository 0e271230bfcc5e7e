"""A report as one self-contained HTML page: no network, no script."""

from __future__ import annotations

import re

from rnnconvert.core.claims import exactness
from rnnconvert.reports import findings, tables, words
from rnnconvert.reports.html_layer import layer_section, scrolling, state_mark, strip_table, table
from rnnconvert.reports.markup import Markup, asset, el, folded, join, page, section

_ROWS, _PLOTS = 2_500, 60
"""The most comparisons and plots with which a page shows those of passing runs, too."""
_WHY = 12
_FEW = 3
"""The most layers that are shown unfolded when all of them are equal; one that is not equal always is."""

_GLOSSARY = (
    ("error", "How far a number is from the same computation in float64, which stands for the truth."),
    ("noise floor", "The error that rounding alone explains: what an honest computation in this precision gives here."),
    (
        "allowed",
        "A small multiple of the noise floor, or the tolerance that was set by hand. It differs for each output and each time step.",
    ),
    ("share", "Error divided by allowed error, where that is largest. Up to 100 % passes."),
    ("ULPs", "The error counted in steps from one representable number to the next."),
    (
        "known mistakes",
        "Wrong conventions that people really use, such as two gates swapped. Each was made on purpose, to see "
        "whether these inputs would show it.",
    ),
)


def to_html(document: words.Document) -> str:
    """Return the document as one page."""
    total = sum(len(run["comparisons"]) for _, run in words.every_run(document))
    plots = sum(any(comparison["steps"] for comparison in run["comparisons"]) for _, run in words.every_run(document))
    layers = document["layers"]
    unfold = len(layers) <= _FEW and all(map(words.good, layers))
    sections = [
        _why(document),
        _matrix(document) if layers else None,
        section(
            "layers",
            "Layer by layer",
            _curtailed(total, plots),
            [
                layer_section(layer, number, unfold=unfold, all_rows=total <= _ROWS, all_plots=plots <= _PLOTS)
                for number, layer in enumerate(layers)
            ],
        )
        if layers
        else None,
        _models(document),
        _rewrites(document),
        _machines(document),
        _again(document),
        _glossary(),
    ]
    heading = f"{document['verdict'].capitalize()}: {words.clean(words.subject(document), 200)}"
    return page(heading, _header(document), el("main", sections), _footer(document), script=asset("script.js"))


def _header(document: words.Document) -> Markup:
    counts, verdict = words.tally(document), document["verdict"]
    shares = [words.rank(comparison["ratio"]) for _, run in words.every_run(document) for comparison in run["comparisons"]]
    caught, tried = words.mutation_score(*document["layers"])
    worst = words.share(max(shares)) if shares else ""
    figures = [
        ("comparisons passed", f"{counts.passed:,} of {counts.passed + counts.failed:,}"),
        ("runs completed", f"{counts.ran:,} of {counts.runs:,}"),
        (f"{'' if worst.endswith('times') else 'of '}what is allowed, at worst", worst) if worst else ("compared", "nothing"),
        ("known mistakes these inputs would catch", f"{caught:,} of {tried:,}" if tried else "not tried"),
    ]
    outcome = document.get("whole")
    if outcome and not document["layers"]:
        figures = [
            ("outputs of the whole models compared", f"{len(outcome['outputs']):,}"),
            ("the largest error", words.digits_of(outcome["error"])),
            ("what rounding explains there", words.digits_of(outcome["allowed"])),
        ]
    return el(
        "header",
        el("p", "rnnconvert report", el("span", _moment(document["created"])), class_="eyebrow"),
        el("h1", el("span", words.SYMBOLS[verdict], class_="sign", aria_hidden="true"), verdict.capitalize()),
        el("p", findings.finding(document), class_="lead"),
        _remedy(document),
        el("p", document["summary"], class_="note"),
        el("dl", [el("div", el("dt", name), el("dd", text)) for name, text in figures], class_="figures"),
        class_=f"verdict {words.TONES.get(verdict, 'neutral')}",
    )


def _remedy(document: words.Document) -> Markup | None:
    """Show what to do, its command in a line to copy."""
    advice, command = findings.remedy(document)
    if not command:
        return el("p", advice, class_="lead") if advice else None
    return el("div", el("p", f"{advice}:"), _command(command), class_="remedy")


def _command(text: str) -> Markup:
    """Show a command with a button that copies it."""
    return el(
        "div", el("pre", el("code", text), tabindex=0), el("button", "Copy", type="button", class_="copy", hidden=True), class_="command"
    )


def _moment(created: str) -> str:
    """Return a date as people write it, or unchanged if it has another form."""
    parts = re.fullmatch(r"(\d{4}-\d\d-\d\d)T(\d\d:\d\d)(?::[\d.]+)?(Z|\+00:00)?(.*)", created)
    return f"{parts[1]}, {parts[2]} {'UTC' if parts[3] else parts[4]}".strip() if parts else created


def _why(document: words.Document) -> Markup | None:
    """Show first what stands against the verdict: one card for all runs of a layer that fail alike."""
    numbers = {id(layer): number for number, layer in enumerate(document["layers"])}
    cards = [_card(failure, numbers[id(failure.layer)]) for failure in findings.failures(document)]
    if not cards:
        return None
    left = len(cards) - _WHY
    more = el("p", f"and {left:,} more, below", class_="note") if left > 0 else None
    name = "Why it is not equal" if document["verdict"] == words.DIFFERENT else "What is missing"
    return section("why", name, el("div", cards[:_WHY], class_="cards"), more)


def _card(failure: findings.Failure, number: int) -> Markup:
    layer, run, texts = failure.layer, failure.run, failure.sentences
    comparison = words.worst(run)
    facts = []
    if run["status"] != "ran":
        facts.append(el("p", f"{'It was asked for, but did' if run['required'] else 'It did'} not run ({run['status']}): {run['reason']}"))
    elif comparison:
        facts.append(el("p", f"{comparison['case']}, {comparison['output']}: off by ", el("strong", words.figures(comparison)), "."))
        facts.append(el("p", words.place(comparison), class_="note"))
    if texts:
        facts.append(el("p", "Symptoms", class_="label"))
        facts.append(el("ul", [el("li", text) for text in texts]))
    shown_where = strip_table(layer)
    facts += [shown_where] if shown_where else []
    link = el("a", words.called(layer), href=f"#layer-{number}")
    return el("article", el("h3", link, el("small", ", ".join(failure.names))), facts, class_="card bad")


def _models(document: words.Document) -> Markup:
    cards: list[Markup] = []
    for model in document["models"]:
        hashes = [(name or "(the module itself)", el("code", digest)) for name, digest in model["weights"].items()]
        facts = [("Format", model["format"]), ("Size", f"{model['bytes']:,} bytes"), ("SHA-256", el("code", model["sha256"]))]
        cards.append(
            el(
                "article",
                el("h3", el("span", model["label"], class_="badge"), model["path"]),
                el("dl", [join(el("dt", name), el("dd", text)) for name, text in facts], class_="facts"),
                el(
                    "details",
                    el("summary", f"Weights of {words.amount(len(hashes), 'layer')}, as hashes"),
                    el("p", "Equal for equal weights, whatever the format.", class_="note"),
                    el("dl", [join(el("dt", name), el("dd", text)) for name, text in hashes], class_="facts"),
                )
                if hashes
                else None,
                class_="card",
            )
        )
    return folded("models", "Models" if len(cards) != 1 else "Model", el("div", cards, class_="cards"))


def _matrix(document: words.Document) -> Markup:
    pairs = tables.columns(document)
    labels = [label for label, _ in pairs]
    top = [el("th", f"{label}: {_path(document, label)}", scope="colgroup", colspan=labels.count(label)) for label in dict.fromkeys(labels)]
    names = [el("th", "float64 run" if executor == words.REFERENCE else executor, scope="col") for _, executor in pairs]
    rows = []
    for number, layer in enumerate(document["layers"]):
        link = el("a", words.called(layer), href=f"#layer-{number}")
        cells = [_cell(run) for run in tables.cells(pairs, layer)]
        rows.append(el("tr", el("th", link, el("small", layer["description"]), scope="row"), cells))
    head = el("thead", el("tr", el("th", "layer", scope="col", rowspan=2), top), el("tr", names))
    states = {words.state(run) for _, run in words.every_run(document)}
    legend = el(
        "p",
        [el("span", state_mark(word, word == words.DIFFERENT), class_="key") for word in words.SYMBOLS if word in states],
        class_="legend",
    )
    box = scrolling(el("table", head, el("tbody", rows), class_="matrix"), "Layers and executors")
    note = el("p", "The share is that of the allowed error which the worst element of the worst output uses.", class_="note")
    part = section if all(map(words.good, document["layers"])) else folded  # the cause and the layers say it first
    return part("matrix", "Run by run", legend, box, note)


def _path(document: words.Document, label: str) -> str:
    return next((re.split(r"[/\\]", model["path"])[-1] for model in document["models"] if model["label"] == label), "")


def _cell(run: words.Document | None) -> Markup:
    if run is None:
        return el("td", el("span", "not run", class_="note"), class_="state")
    comparison = words.worst(run)
    asked = "asked for" if run["required"] and run["status"] != "ran" else None
    small = words.share(comparison["ratio"]) if comparison else asked
    tone = "bad" if words.blocks(run) else words.TONES.get(words.state(run), "neutral")
    reason = words.clean(run["reason"], 300) or None
    return el(
        "td", state_mark(words.state(run), words.blocks(run)), el("small", small) if small else None, class_=f"state {tone}", title=reason
    )


def _curtailed(total: int, plots: int) -> Markup | None:
    """Return the note on what the page leaves out because of its size."""
    notes = []
    if total > _ROWS:
        notes.append(f"There are {total:,} comparisons: of a run that passed, the worst is listed.")
    if plots > _PLOTS:
        notes.append("Plots are drawn for runs that are not equal.")
    return el("p", " ".join([*notes, "The JSON report has everything."]), class_="note") if notes else None


def _rewrites(document: words.Document) -> Markup:
    rows = [
        (layer, rewrite, detail, exactness([exact]), ", ".join(runs))
        for (layer, rewrite, detail, exact), runs in tables.rewrites(document).items()
    ]
    if not rows:
        text = "No rewrite was needed: every run had the source's own numbers."
        return folded("rewrites", "Rewrites", el("p", text, class_="note"))
    names = ("layer", "rewrite", "what was done", "exactness", "for")
    return folded("rewrites", "Rewrites", table("Rewrites", names, rows))


def _machines(document: words.Document) -> Markup:
    rows = [
        (", ".join(names), device, dtype, python, versions)
        for (device, dtype, python, versions), names in tables.machines(document).items()
    ]
    names = ("runs", "device", "computed in", "Python", "versions")
    absent: dict[tuple[str, str, str], list[str]] = {}
    for layer, run in words.every_run(document):
        if run["status"] != "ran":
            absent.setdefault((words.title(run), run["status"], run["reason"]), []).append(words.called(layer))
    others = [
        (name, word, reason, ", ".join(layers) if len(layers) <= 4 else f"{len(layers):,} layers")
        for (name, word, reason), layers in absent.items()
    ]
    content = [table("Versions and devices", names, rows) if rows else el("p", "Nothing ran.", class_="note")]
    if others:
        content += [el("h3", "What did not run"), table("What did not run", ("run", "", "why", "layers"), others)]
    return folded("machines", "Versions and devices", content)


def _again(document: words.Document) -> Markup:
    settings = document["settings"]
    facts: list[tuple[str, str]] = [("rnnconvert", document["rnnconvert"])]
    for key, setting in settings.items():
        if key != "tolerances" and setting is not None and setting is not False:
            values = setting if isinstance(setting, list) else ["yes" if setting is True else setting]
            facts.append((key, ", ".join(map(str, values))))
    for output, limits in settings.get("tolerances", {}).items():
        text = ", ".join(f"{name} {words.digits_of(limit)}" for name, limit in limits.items() if limit is not None)
        facts.append((f"tolerance of {output}", text))
    spent = ", ".join(f"{name} {words.digits_of(second, 3)}" for name, second in document["seconds"].items() if words.value(second) >= 0)
    facts.append(("seconds", spent))
    command = _command(document["command"]) if document["command"] else None
    listed = el("dl", [join(el("dt", name), el("dd", text)) for name, text in facts], class_="facts")
    warnings = [el("h3", "Warnings"), el("ul", [el("li", text) for text in document["warnings"]])]
    return folded("again", "How to run it again", command, listed, warnings if document["warnings"] else None)


def _glossary() -> Markup:
    glossary = el("dl", [join(el("dt", word), el("dd", text)) for word, text in _GLOSSARY], class_="facts words")
    return folded("words", "What the words mean", glossary)


def _footer(document: words.Document) -> Markup:
    failing = sum(any(words.state(run) == words.DIFFERENT for run in layer["runs"]) for layer in document["layers"])
    text = f"rnnconvert {document['rnnconvert']}. {words.amount(len(document['layers']), 'layer')}, {failing:,} not equal."
    return el("footer", el("p", text))
