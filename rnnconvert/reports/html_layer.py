"""One layer's part of the HTML page."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from rnnconvert.reports import tables, words
from rnnconvert.reports.markup import Markup, el, join
from rnnconvert.reports.plots import gate_bars, steps_plot

_NUMBERS = ("error", "allowed", "share", "relative", "ULPs", "noise floor", "too large")
_PICTURES = 6
"""The most plots of one layer; the runs that are not equal come first."""
_MESSAGES = 6


def layer_section(layer: words.Document, number: int, unfold: bool, all_rows: bool, all_plots: bool) -> Markup:
    """Show a layer, folded unless `unfold`: what is wrong with it stands above all layers.

    all_rows   list every comparison of runs that passed, too, and not only the worst
    all_plots  draw the runs that passed, too
    """
    passed = words.good(layer)
    word = _word(layer)
    names = ", ".join(name or "the module itself" for name in layer["counterpart"])
    counterpart = f"in the other file: {names}" if names else None
    summary = el("summary", el("h3", words.called(layer)), state_mark(word, not passed), el("span", layer["description"], class_="what"))
    body = el(
        "div",
        el("p", counterpart, class_="note") if counterpart else None,
        _pictures(layer, all_plots),
        [_run(layer, run, all_rows) for run in sorted(layer["runs"], key=lambda run: not words.blocks(run))],
        _mutations(layer, unfold),
        _differences(layer),
        _cases(layer),
        id=f"layer-{number}",
        class_="body",
    )
    return el("details", summary, body, class_=f"layer {'bad' if not passed else 'good'}", open=unfold)


def _word(layer: words.Document) -> str:
    if any(words.state(run) == words.DIFFERENT for run in layer["runs"]):
        return words.DIFFERENT
    if not words.good(layer):
        return words.UNCOMPARED
    if any(words.state(run) == words.EQUAL for run in layer["runs"]):
        return words.EQUAL
    return words.UNCOMPARED


def state_mark(word: str, bad: bool) -> Markup:
    """Show a state as sign and word."""
    if bad:
        tone = "bad"
    elif word == words.EQUAL:
        tone = "good"
    else:
        tone = "neutral"
    return el("span", el("span", words.SYMBOLS[word], class_="sign", aria_hidden="true"), word, class_=f"mark {tone}")


def scrolling(content: Markup, name: str) -> Markup:
    """Show wide content in a separate box, which the keyboard can scroll."""
    return el("div", content, class_="scroll", role="region", aria_label=name, tabindex=0)


def table(name: str, heads: Sequence[str], rows: Iterable[Sequence[str]], numbers: int = 0) -> Markup:
    """Return a table in a box that scrolls; its last `numbers` columns are numbers."""
    first = len(heads) - numbers
    head = el("tr", [el("th", text, scope="col", class_="n" if column >= first else None) for column, text in enumerate(heads)])
    body = [el("tr", [el("td", text, class_="n" if column >= first else None) for column, text in enumerate(row)]) for row in rows]
    return scrolling(el("table", el("thead", head), el("tbody", body)), name)


def _pictures(layer: words.Document, everything: bool) -> Markup | None:
    """Draw error against time step and error by gate, for the case in which each run did worst."""
    runs = [run for run in sorted(layer["runs"], key=lambda run: not words.blocks(run)) if everything or words.blocks(run)]
    plots = [figure for run in runs if (figure := _figure(run, "steps")) is not None]
    bars = [figure for run in runs if (figure := _figure(run, "gates")) is not None]
    left = len(plots[_PICTURES:]) + len(bars[_PICTURES:])
    more = el("p", f"{words.amount(left, 'more picture')} left out: the JSON report has the numbers.", class_="note")
    return join(
        el("div", plots[:_PICTURES], class_="pictures") if plots else None,
        el("div", bars[:_PICTURES], class_="pictures small") if bars else None,
        more if left else None,
    )


def _figure(run: words.Document, kind: str) -> Markup | None:
    """Draw the worst comparison of a run that has steps, or gates."""
    comparisons = [comparison for comparison in run["comparisons"] if comparison[kind]]
    if not comparisons:
        return None
    chosen = max(comparisons, key=lambda candidate: (not candidate["passed"], _long(candidate), words.rank(candidate["ratio"])))
    caption = el(
        "figcaption",
        el("strong", words.title(run)),
        " ",
        state_mark(words.EQUAL if chosen["passed"] else words.DIFFERENT, not chosen["passed"]),
        el("small", f"{chosen['output']}, case {chosen['case']}"),
    )
    return el("figure", caption, steps_plot(chosen, f"{words.title(run)}: {chosen['output']}") if kind == "steps" else gate_bars(chosen))


def _long(comparison: words.Document) -> bool:
    """Return whether there is more than one step to draw."""
    return not comparison["steps"] or len(comparison["steps"]["error"]) > 1


def _run(layer: words.Document, run: words.Document, all_rows: bool) -> Markup:
    """Show one model on one executor, folded unless it is not equal."""
    comparison, bad = words.worst(run), words.blocks(run)
    facts = el("span", words.used(comparison) if comparison else run["reason"], class_="what")
    line = (el("h4", words.title(run)), state_mark(words.state(run), bad), facts)
    if run["status"] != "ran":
        return el("div", *line, class_="run idle")
    about = ["the file itself" if run["own_file"] else "a file made from it for this executor", run["device"], run["dtype"]]
    about += [f"{name}: {_noted(note)}" for name, note in run["notes"].items()]
    about += [f"not compared: {name}: {why}" for name, why in run["left_out"].items()]
    about += [f"{words.digits_of(seconds)} s {name}" for name, seconds in run["seconds"].items()]
    if all_rows or bad:
        rows = run["comparisons"]
    elif comparison:
        rows = [comparison]
    else:
        rows = []
    texts = words.sentences(layer, run)
    body = el(
        "div",
        el("p", "; ".join(text for text in about if text), class_="note"),
        el("p", texts[0], class_="label") if texts else None,
        _comparisons(rows, layer, words.title(run)) if rows else None,
        [*_messages(run)],
        class_="body",
    )
    return el("details", el("summary", *line), body, class_="run", open=bad)


def strip_table(layer: words.Document) -> Markup | None:
    """Show the directions and gates of a layer, with a mark where the weights differ."""
    rows = tables.strip(layer)
    if not rows:
        return None
    heads = list(rows[0][1])
    head = el("tr", el("th", "weights", scope="col"), [el("th", text, scope="col") for text in heads])
    body = [
        el(
            "tr",
            el("th", name, scope="row"),
            [
                el("td", words.SYMBOLS[words.DIFFERENT], class_="off", aria_label="differs")
                if cells.get(gate)
                else el("td", "\N{MIDDLE DOT}", class_="on", aria_label="equal")
                for gate in heads
            ],
        )
        for name, cells in rows
    ]
    return scrolling(el("table", el("thead", head), el("tbody", body), class_="strip"), "Gates whose weights differ")


def _noted(note: object) -> str:
    """Describe what an executor noted."""
    if isinstance(note, dict):
        return ", ".join(f"{key} on {text}" if isinstance(text, str) else f"{key} {text}" for key, text in note.items())
    return ", ".join(map(str, note)) if isinstance(note, list) else str(note)


def _comparisons(rows: list[words.Document], layer: words.Document, name: str) -> Markup:
    """List the comparisons of a run, case by case."""
    head = el(
        "tr",
        el("th", "output", scope="col"),
        el("th", "", scope="col"),
        [el("th", text, scope="col", class_="n") for text in _NUMBERS],
        el("th", "worst element", scope="col"),
    )
    descriptions = {case["name"]: case["what"] for case in layer["cases"]}
    bodies = []
    for case in dict.fromkeys(row["case"] for row in rows):
        what = f" {descriptions[case]}" if descriptions.get(case) else None
        group = el("th", el("strong", case), what, scope="rowgroup", colspan=len(_NUMBERS) + 3, class_="group")
        bodies.append(el("tbody", el("tr", group), [_row(row) for row in rows if row["case"] == case]))
    return scrolling(el("table", el("thead", head), bodies, class_="comparisons"), f"Comparisons of {name}")


def _row(entry: words.Document) -> Markup:
    numbers = (
        words.digits_of(entry["error"]),
        words.digits_of(entry["allowed"]),
        words.share(entry["ratio"]),
        words.digits_of(entry["relative"]),
        words.digits_of(entry["ulps"]),
        words.digits_of(entry["floor"]),
        f"{entry['mismatched']:,} of {entry['elements']:,}",
    )
    mark = state_mark(words.EQUAL if entry["passed"] else words.DIFFERENT, not entry["passed"])
    cells = [el("td", number, class_="n") for number in numbers]
    where, _, numbers_there = words.place(entry).partition(": ")
    there = el("td", where, el("br"), numbers_there, class_="where")
    return el("tr", el("th", entry["output"], scope="row"), el("td", mark), cells, there)


def _messages(run: words.Document) -> Iterator[Markup]:
    """Yield the message of each comparison that failed."""
    failed = [comparison for comparison in run["comparisons"] if not comparison["passed"] and comparison["message"]]
    for failure in failed[:_MESSAGES]:
        yield el("p", f"{failure['case']}, {failure['output']}", class_="label")
        yield el("pre", failure["message"], tabindex=0)
    if len(failed) > _MESSAGES:
        yield el("p", f"and {words.amount(len(failed) - _MESSAGES, 'more message')} in the JSON report", class_="note")


def _mutations(layer: words.Document, unfold: bool) -> Markup | None:
    """Show which wrong conventions these inputs would reveal, and which not."""
    caught, tried = words.mutation_score(layer)
    if not tried:
        return None
    missed = [(mutation["name"], mutation["why"]) for mutation in layer["mutations"]["missed"]]
    rows = [
        (mutation["name"], mutation["case"], words.digits_of(mutation["error"]), f"{words.digits_of(mutation['times_allowed'])} times")
        for mutation in layer["mutations"]["caught"]
    ]
    share_ = el("span", el("span", class_="bar", style=f"width:{100 * caught / tried:.1f}%"), class_="barbox score")
    summary = el("summary", el("h4", "Known mistakes that these inputs would catch"), el("strong", f"{caught} of {tried}"), share_)
    caught_table = table("Shown", ("would be caught", "best seen in case", "its error", "over what is allowed"), rows, 2)
    others = ", ".join(mutation["name"] for mutation in layer["mutations"]["inapplicable"])
    note = el("p", f"These do not apply to this layer: {others}.", class_="note") if others else None
    hidden = table("Not shown", ("would not be seen", "why"), missed) if missed else None
    return el(
        "details",
        summary,
        el("div", caught_table if rows else None, hidden, note, class_="body"),
        class_="run",
        open=unfold and bool(missed),
    )


def _differences(layer: words.Document) -> Markup | None:
    """Show where the two files' weights differ."""
    if not layer["differences"]:
        return None
    rows = [tables.difference(entry) for entry in layer["differences"]]
    summary = el("summary", el("h4", "Differences of the weights"), el("strong", words.amount(len(rows), "place")))
    body = el("div", table("Differences of the weights", ("where", "how"), rows), class_="body")
    return el("details", summary, body, class_="run")


def _cases(layer: words.Document) -> Markup | None:
    """List the inputs it was run on."""
    if not layer["cases"]:
        return None
    rows = [(case["name"], case["what"], f"left out: {case['skipped']}" if case["skipped"] else "run") for case in layer["cases"]]
    summary = el("summary", el("h4", "Inputs"), el("strong", words.amount(len(rows), "case")))
    return el("details", summary, el("div", table("Inputs", ("case", "what it is", ""), rows), class_="body"), class_="run")
