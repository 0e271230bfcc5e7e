"""Make docs/formats.md and docs/formats/: every layout of every format, from the data, each fact once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from rnnconvert.core.cells import Activation
from rnnconvert.core.errors import UsageError
from rnnconvert.files import detect
from rnnconvert.files.adapter import Adapter, adapters
from rnnconvert.files.catalogue import OPTIONS, asked_by, explained
from rnnconvert.language.layout import Layout, Option
from rnnconvert.language.registry import cards, frameworks, systems

HEAD = """# Formats

```console
$ rnnconvert formats keras
...
$ rnnconvert convert examples/encoder.keras encoder.h5 --to keras
...
```

`rnnconvert formats NAME` prints what a page below has. A file's ending decides its format; `--to` decides between formats that share
one. *Proof* tells how it was shown that a system computes what its layouts say, strongest first: **executed** (the system ran our
files, here or in CI), **golden** (files that it wrote, with its own outputs), **corpus** (real files of others, with
outputs), **source** (read only in its source: try a file of yours before you rely on it).

| format | of | files | proof |
|---|---|---|---|
"""

TAIL = """
## How to read the tables

A layout is one way in which a framework stores one cell. Its gates are in the order in which they are stacked, in canonical letters:
LSTM `i f g o` (g is the candidate), GRU `r z n` (n is the candidate), RNN `n`. `-z`: the framework mixes with 1 - z.

Each array has the parts that it holds, then its axes, outermost first: words in parentheses share one axis, the slowest first.
`hidden` is the rows of a matrix that acts from the left, `in` its columns; `part` gathers several parts.
A single bias is the sum of what other frameworks keep as two.

## Options

For `--set KEY=VALUE` or `--set LAYER:KEY=VALUE`, in Python as keywords. `rnnconvert formats --options` prints them.

| option | values | meaning |
|---|---|---|
"""

MANY = 4
"""Sets of functions with more members than this are listed once on their page."""


def formats_pages() -> dict[str, str]:
    """Return docs/formats.md, the list of formats, and a page for each."""
    index, pages = [HEAD], {}
    for name, adapter in adapters().items():
        system = systems()[name]
        index.append(f"| [`{name}`](formats/{name}.md) | {system.title} | {endings(name, adapter)} | {system.proof.partition(':')[0]} |\n")
        pages[f"formats/{name}.md"] = format_page(name, adapter)
    index.append(TAIL)
    index += [option_row(option) for option in OPTIONS.values()]
    return {"formats.md": "".join(index), **pages}


def endings(name: str, adapter: Adapter) -> str:
    """Return the endings of a format's files, with those that are only read apart."""
    card = cards().get(name)
    unwritten = card.unwritten if card is not None else ()
    written = [f"`{ending}`" for ending in adapter.SUFFIXES if ending not in unwritten]
    read = [f"`{ending}`" for ending in unwritten]
    return "; ".join(filter(None, [", ".join(written), f"only read: {', '.join(read)}" if read else ""])) or "only read"


def format_page(name: str, adapter: Adapter) -> str:
    """Return the page of one format: how it is written or read, its arrays, its cells, and the evidence."""
    layouts, system = frameworks()[name], systems()[name]
    page = [
        f"# {system.title} (`{name}`)\n\n    {command(name, adapter)}\n",
        f"\nFiles: {endings(name, adapter)}. Versions: {system.versions}. [What goes where](../pairs.md).\n",
    ]
    if system.notes:
        page.append("\n" + "".join(f"- {note[0].upper()}{note[1:]}.\n" for note in system.notes))
    page.append("\n## Arrays\n\n[How to read the tables](../formats.md#how-to-read-the-tables).\n\n| layout, gates | arrays |\n|---|---|\n")
    page += array_rows(layouts)
    page.append("\n## Cells\n\n")
    page += cells(layouts)
    if asked := asked_by(name):
        page.append(f"\n## Options\n\nFor `--set`: [{', '.join(f'`{option}`' for option in asked)}](../formats.md#options).\n")
    page.append("\n## Evidence\n\n")
    page += evidence(name)
    return "".join(page)


def command(name: str, adapter: Adapter) -> str:
    """Return the command that writes a file of a format, or, where it is only read, one that reads it."""
    if not any(layout.writable for layout in frameworks()[name]) or not adapter.SUFFIXES:
        return "rnnconvert convert FILE model.onnx"
    file = f"model{adapter.SUFFIXES[0]}"
    try:
        written = detect.target(Path(file)).NAME
    except UsageError:
        written = ""  # several formats have this ending
    return f"rnnconvert convert SOURCE {file}{'' if written == name else f' --to {name}'}"


def option_row(option: Option) -> str:
    """Return an option's row in a table."""
    return f"| `{option.name}` | {', '.join(option.choices) or 'any'} | {explained(option.name)} |\n"


def array_rows(layouts: Iterable[Layout]) -> Iterator[str]:
    """Yield a row for each set of arrays, with all the layouts that have it and their gates."""
    groups: dict[str, list[str]] = defaultdict(list)
    for layout in layouts:
        groups["<br>".join(arrays(layout))].append(f"`{layout.name}` `{layout.gates}`")
    for texts, names in groups.items():
        yield f"| {'<br>'.join(names)} | {texts} |\n"


def arrays(layout: Layout) -> Iterator[str]:
    """Yield each array of a layout: its name, its parts and its axes."""
    for tensor in layout.tensors:
        note = " (memory reinterpreted, see source)" if tensor.reinterpreted else ""
        spelt = tensor.letters or layout.letters
        letters = f" with {','.join(spelt.split())}" if spelt and "{gate}" in tensor.name else ""
        yield f"`{tensor.name}`{letters}: {tensor.parts.replace('|', 'then')}, `{tensor.axes}`{note}"


def words(value: Iterable[object]) -> str:
    """Return a field of the data, as a cell of a table."""
    return ", ".join(str(item) for item in value) or "none"


def facts(layout: Layout) -> dict[str, str]:
    """Return what a layout's cell can compute, by the columns of a table."""
    has = layout.holds
    extra = {
        "reset gate after the product": layout.reset_after is True,
        "reset gate before the product": layout.reset_after is False,
        "mixes with 1 - z": "-z" in layout.gates.split(),
        "projection": "projection" in layout.part_names,
        "peepholes": "peephole" in layout.part_names,
        "learned initial states": has.initial_states,
        "coupled gates": bool(has.coupled),
        "clip of " + ", ".join(map(str, has.clips)): bool(has.clips),
        "skip input": has.skip_input,
        "a matrix after it": has.readout,
        "differing directions": has.mixed_directions,
        ", ".join(f"{key} {number:+g}" for key, number in has.constants.items()) + " added at run time": bool(has.constants),
    }
    return {
        "of": layout.class_name + ("" if layout.writable else " (only read)"),
        "biases": words(has.biases),
        "candidate": functions(has.activations),
        "gates": functions(has.gate_activations) if layout.kind != "rnn" else "",
        "layers": "many" if has.layers else "one",
        "directions": f"two, joined by {words(has.merges)}" if has.directions == 2 else "one",
        "also holds": ", ".join(name for name, there in extra.items() if there),
    }


def functions(allowed: Sequence[str | Activation]) -> str:
    """Return functions as words; a long set by a name, which `cells` explains below its table."""
    return words(allowed) if len(allowed) <= MANY else f"any of {len(allowed)}"


def cells(layouts: list[Layout]) -> Iterator[str]:
    """Yield what the cells of a format can compute: what all have in common, a table of the rest, and long sets of functions."""
    table = {layout.name: facts(layout) for layout in layouts}
    # A plain RNN has no other gates.
    values = {column: {row[column] for row in table.values()} - ({""} if column == "gates" else set()) for column in facts(layouts[0])}
    columns = [column for column, texts in values.items() if len(texts) > 1 and column != "of"]
    named = {name: f"`{name}` {row['of']}".rstrip() for name, row in table.items()}
    common = [f"{column}: {''.join(texts)}" for column, texts in values.items() if column not in ("of", *columns) and any(texts)]
    yield f"{'All' if len(table) > 1 else named[layouts[0].name]}: {'; '.join(common)}.\n" if common else ""
    if len(table) > 1:
        yield f"\n| {' | '.join(['layout, of', *columns])} |\n{'|---' * (len(columns) + 1)}|\n"
        groups: dict[tuple[str, ...], list[str]] = defaultdict(list)
        for name, row in table.items():
            groups[tuple(row[column] for column in columns)].append(named[name])
        yield from (f"| {' | '.join(['<br>'.join(names), *texts])} |\n" for texts, names in groups.items())
    sets = [allowed for layout in layouts for allowed in (layout.holds.activations, layout.holds.gate_activations) if len(allowed) > MANY]
    explained_sets = {functions(allowed): words(allowed) for allowed in sets}
    if len(explained_sets) != len({words(allowed) for allowed in sets}):
        raise ValueError(f"{layouts[0].framework} has several sets of as many functions: name them apart in docs/format_texts.py")
    yield "".join(f"\n{name[0].upper()}{name[1:]}: {members}.\n" for name, members in explained_sets.items())


def evidence(name: str) -> Iterator[str]:
    """Yield how it was shown that a format's layouts are right, and where its framework states them."""
    yield f"- {systems()[name].proof}.\n"
    files: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for layout in frameworks()[name]:
        if layout.proof:
            yield f"- `{layout.name}`: {layout.proof}.\n"
        file, _, place = layout.source.partition(", ")
        files[file][place].append(f"`{layout.name}`")
    for file, places in files.items():
        stated = [f"{place} ({', '.join(names)})" if place else ", ".join(names) for place, names in places.items()]
        yield f"- {file}: {'; '.join(stated)}\n"
