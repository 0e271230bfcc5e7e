"""Write the pages that are generated: docs/formats.md, docs/pairs.md and their folders, and docs/rewrites.md, from the data;
docs/api.md and docs/errors.md and their folders from the code; the line numbers of docs/architecture.md; the types of the options;
and, in every page, how rnnconvert is installed (docs/published.py).

python docs/generate.py          writes them
python docs/generate.py --check  exits with 1 if they differ from the data
"""

from __future__ import annotations

import ast
import functools
import json
import re
import sys
from pathlib import Path

from error_texts import errors_pages
from public_names import api_pages
from published import as_published, pages

from rnnconvert.core import limits
from rnnconvert.files.adapter import adapters
from rnnconvert.files.catalogue import OPTIONS, asked_by, explained
from rnnconvert.files.pairs import CELLS, SystemPair, pairs
from rnnconvert.language.layout import Layout, Option
from rnnconvert.language.registry import frameworks, systems
from rnnconvert.rewrites import REWRITES

HERE = Path(__file__).parent

FORMATS_HEAD = """# Formats

`docs/generate.py` makes these pages from the layouts' own data: they describe what the program does.

*Proof* tells how it was shown that a system computes what its layouts say, strongest first: **executed** (the system ran our
files, here or in CI), **golden** (files that it wrote, with its own outputs), **corpus** (real files of others, with
outputs), **source** (read only in its source: try a file of yours before you rely on it).

| format | of | files | proof |
|---|---|---|---|
"""

FORMATS_TAIL = """
## How to read the tables

`axes` reads outermost first: words in parentheses share one axis of the array, the slowest first.
`hidden` is the rows of a matrix that acts from the left, `in` its columns; `part` gathers several parts.
Gates are in canonical letters: LSTM `i f g o` (g is the candidate), GRU `r z n` (n is the candidate), RNN `n`.
A single bias is the sum of what other frameworks keep as two.

## Options

Given as `--set KEY=VALUE` or `--set LAYER:KEY=VALUE`, in Python as keywords.

| option | values | meaning |
|---|---|---|
"""

PAIRS_HEAD = """# What goes where

`docs/generate.py` makes these pages with the same code that converts files, and a test covers all of it: it
converts every pair, compares both ends with the float64 reference, and runs both where their systems can run.

Each format that is read has a page: a row is the system that a layer goes to, a column the layer's cell, with the format's
usual biases and run-time constants.

- `=` exactly: every number that is written is one of the source's, its negative, or zero
- `≈` exactly in real numbers, and rounded as any arithmetic is; the letters say by which [rewrites](rewrites.md)
- `no` refused: the number gives the reason, below the table

Whether *your* layer fits depends on its own numbers, too (a bias of zero can be left out). Check with
`rnnconvert inspect FILE --targets`.

| from | exactly or by rewrites | refused |
|---|---|---|
"""

REWRITES_HEAD = """# Rewrites

`docs/generate.py` makes this page from the program's own data.

A rewrite replaces a cell by another that computes the same function. *Bit-exact* means that every number
written is one of the source's, its negative, or zero; otherwise the rewrite is exact in real numbers, and rounds
as any arithmetic does. `--strict` refuses whatever is not bit-exact. Anything without a rewrite is refused.

| rewrite | exact | why the function stays the same | needs |
|---|---|---|---|
"""


def words(value: object) -> str:
    """Return a field of the data, as a cell of a table."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (tuple, list)):
        return ", ".join(str(item) for item in value) or "none"
    return ", ".join(f"{key} {number:+g}" for key, number in value.items()) if isinstance(value, dict) else str(value)


def formats_pages() -> dict[str, str]:
    """Return docs/formats.md, the list of formats, and a page for each."""
    index, pages = [FORMATS_HEAD], {}
    for name, adapter in adapters().items():
        system, files = systems()[name], ", ".join(f"`{suffix}`" for suffix in adapter.SUFFIXES) or "only read"
        index.append(f"| [`{name}`](formats/{name}.md) | {system.title} | {files} | {system.proof.partition(':')[0]} |\n")
        pages[f"formats/{name}.md"] = format_page(name, files)
    index.append(FORMATS_TAIL)
    index += [option_row(option) for option in OPTIONS.values()]
    return {"formats.md": "".join(index), **pages}


def format_page(name: str, files: str) -> str:
    """Return the page of one format, whose files have these endings."""
    layouts = frameworks()[name]
    page = [f"# {systems()[name].title}: the format `{name}`\n\n{about(name)}\n\nFiles: {files}\n"]
    if name in {pair.source for pair in every_pair()}:
        page.append(f"\nWhich of its cells goes where: [from {name}](../pairs/{name}.md).\n")
    page.append("\n## Arrays\n\nWords of these tables: [formats](../formats.md#how-to-read-the-tables).\n")
    page.append("\n| layout | of | gates | array | parts | axes |\n|---|---|---|---|---|---|\n")
    page += [row for layout in layouts for row in rows(layout)]
    page.append("\n## Cells\n\n| layout | biases | candidate | gates | layers | directions joined by | also holds | source |\n")
    page.append("|---|---|---|---|---|---|---|---|\n")
    page += [holds(layout) for layout in layouts]
    if asked := asked_by(name):
        page.append("\n## Options\n\nFor `--set`; all others: [options](../formats.md#options).\n")
        page.append("\n| option | values | meaning |\n|---|---|---|\n")
        page += [option_row(OPTIONS[option]) for option in asked]
    return "".join(page)


def option_row(option: Option) -> str:
    """Return an option's row in a table."""
    return f"| `{option.name}` | {', '.join(option.choices) or 'any'} | {explained(option.name)} |\n"


def about(name: str) -> str:
    """Describe a system: versions, proof, and what a user should know."""
    system = systems()[name]
    proof = [f"Proof: {system.proof}"]
    proof += [f"Proof of {system.name}: {system.proof}" for system in frameworks()[name] if system.proof]
    notes = [note[0].upper() + note[1:] for note in system.notes]
    lines = [f"- {line}.\n" for line in (*proof, *notes)]
    return f"**{system.title}**: {system.versions}.\n\n{''.join(lines)}".rstrip()


@functools.cache
def every_pair() -> tuple[SystemPair, ...]:
    """Return all pairs, which take seconds to compute."""
    return tuple(pairs())


def pairs_pages() -> dict[str, str]:
    """Return docs/pairs.md, the list of formats that are read, and a page for each: where its cells go."""
    index, pages = [PAIRS_HEAD], {}
    every = every_pair()
    for source in dict.fromkeys(pair.source for pair in every):
        pairs = [pair for pair in every if pair.source == source]
        refused = sum(pair.verdict not in SIGNS for pair in pairs)
        index.append(f"| [{source}](pairs/{source}.md) | {len(pairs) - refused} of {len(pairs)} | {refused} |\n")
        pages[f"pairs/{source}.md"] = source_page(source, pairs)
    return {"pairs.md": "".join(index), **pages}


LETTERS = "abcdefghijklmnopqrstuvwxyz"
SIGNS = {"exact": "= ", "rewritten": "≈ "}
"""How a pair is marked that is not refused."""


def source_page(source: str, pairs: list[SystemPair]) -> str:
    """Return the page of one format: a table of its pairs, then the rewrites and reasons that it names."""
    steps = list(dict.fromkeys(step.rewrite for pair in pairs for step in pair.steps))
    features = list(dict.fromkeys(pair.feature for pair in pairs if pair.feature))
    cells = [asked for asked in CELLS if asked in {pair.asked for pair in pairs}]
    title = systems()[source].title
    page = [
        f"# From {source}\n\nWhat becomes of the cells of {title} ([its layouts](../formats/{source}.md)) in each other format: ",
        "`=` exactly, `≈` by rewrites, `no` refused ([more](../pairs.md)).\n",
        f"\n| to | {' | '.join(asked.name for asked in cells)} |\n",
        "|---" * (len(cells) + 1) + "|\n",
    ]
    placed = {(pair.asked, pair.target): pair for pair in pairs}
    for target in dict.fromkeys(pair.target for pair in pairs):
        row = []
        for asked in cells:
            pair = placed[asked, target]
            letters = "".join(LETTERS[steps.index(name)] for name in dict.fromkeys(step.rewrite for step in pair.steps))
            sign = SIGNS.get(pair.verdict, "")
            row.append((sign + letters).strip() if sign else f"no {features.index(pair.feature) + 1}")
        page.append(f"| **{target}** | {' | '.join(row)} |\n")
    page.append("\n" if steps else "")
    page += [f"- {LETTERS[index]}: {step}\n" for index, step in enumerate(steps)]
    page.append("\nThe target lacks:\n\n" if features else "")
    page += [f"- no {index}: {feature}\n" for index, feature in enumerate(features, 1)]
    return "".join(page)


def rows(layout: Layout) -> list[str]:
    """Return a layout's arrays."""
    lines = []
    for index, tensor in enumerate(layout.tensors):
        head = f"{layout.name} | {layout.class_name}{'' if layout.writable else ' (read only)'} | `{layout.gates}`"
        note = " (memory reinterpreted, see source)" if tensor.reinterpreted else ""
        spelt = tensor.letters or layout.letters
        name = f"`{tensor.name}`" + (f" with {', '.join(spelt.split())}" if spelt and "{gate}" in tensor.name else "")
        parts = tensor.parts.replace("|", "then")
        lines.append(f"| {head if index == 0 else ' | | '} | {name} | {parts} | `{tensor.axes}`{note} |\n")
    return lines


def holds(layout: Layout) -> str:
    """Return what else a layout's cell can compute."""
    has = layout.holds
    extra = [
        word
        for word, there in (
            ("reset gate after the product", layout.reset_after is True),
            ("reset gate before the product", layout.reset_after is False),
            ("mixes with 1 - z", "-z" in layout.gates.split()),
            ("projection", "projection" in layout.part_names),
            ("peepholes", "peephole" in layout.part_names),
            ("learned initial states", has.initial_states),
            ("coupled gates", bool(has.coupled)),
            ("clip of " + ", ".join(map(str, has.clips)), bool(has.clips)),
            ("skip input", has.skip_input),
            ("a matrix after it", has.readout),
            ("differing directions", has.mixed_directions),
            (words(dict(has.constants)) + " added at run time", bool(has.constants)),
        )
        if there
    ]
    gates = words(has.gate_activations) if layout.kind != "rnn" else ""
    joined = words(has.merges) if has.directions == 2 else "one direction"
    cells = [layout.name, words(has.biases), words(has.activations), gates, "many" if has.layers else "one", joined]
    return f"| {' | '.join([*cells, ', '.join(extra), layout.source])} |\n"


def rewrites_page() -> str:
    """Return docs/rewrites.md."""
    lines = [REWRITES_HEAD]
    for rewrite in REWRITES.values():
        exact = "bit-exact" if rewrite.bit_exact else "up to rounding"
        lines.append(f"| {rewrite.name} | {exact} | {rewrite.mathematics} | {rewrite.needs} |\n")
    return "".join(lines)


_REFERENCE = re.compile(r"`(?P<path>[\w/]+\.py):\d+`(?P<between>\s+)`(?P<name>\w+)`")


def map_page() -> str:
    """Return docs/architecture.md, which is written by hand, with the line of each name that it points to.

    Raises ValueError for a name that its file does not define.
    """
    return _REFERENCE.sub(_placed, (HERE / "architecture.md").read_text())


def _placed(reference: re.Match[str]) -> str:
    path, name = reference["path"], reference["name"]
    for node in ast.walk(ast.parse((HERE.parent / path).read_text())):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        names = [target.id for target in targets if isinstance(target, ast.Name)]
        if name in names or (isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == name):
            return f"`{path}:{node.lineno}`{reference['between']}`{name}`"
    raise ValueError(f"docs/architecture.md points to {name} in {path}, which does not define it")


_BEGIN, _END = "<!-- limits -->\n", "<!-- end of limits -->\n"
_LIMIT = re.compile(r'^(?:# (?P<subject>.+)|(?P<name>[A-Z_]+) = (?P<value>.+)\n"""(?P<what>.+)""")$', re.M)


def limits_page() -> str:
    """Return docs/reliability.md, which is written by hand, with the table of limits."""
    table = []
    for limit in _LIMIT.finditer((HERE.parent / "rnnconvert" / "core" / "limits.py").read_text()):
        if limit["subject"]:
            table.append(f"\n| {limit['subject']} | at most | what |\n|---|---:|---|\n")
        else:
            table.append(f"| {limit['name']} | {_size(getattr(limits, limit['name']))} | {limit['what']} |\n")
    before, _, rest = (HERE / "reliability.md").read_text().partition(_BEGIN)
    return f"{before}{_BEGIN}{''.join(table)}\n{_END}{rest.partition(_END)[2]}"


def _size(limit: int) -> str:
    power = limit.bit_length() - 1
    return f"2^{power}" if limit == 1 << power and power > 15 else f"{limit:,}"


TYPES_HEAD = '''"""The options of `load`, `save` and `convert`, as types: a misspelt keyword is found before the program runs.

docs/generate.py makes this module from rnnconvert.files.options and the formats' own data.
"""

from __future__ import annotations

from typing import Literal, TypedDict

# fmt: off
'''


def types_module() -> str:
    """Return the module of the options' types: those of reading, those of writing, and both together."""
    sides = {side: sorted((o for o in OPTIONS.values() if o.side == side), key=lambda o: o.name) for side in ("both", "read", "write")}
    # `convert` has a dtype of its own, that of the target: there, the source's is one of the settings.
    dtype = [option for option in sides["read"] if option.name == "dtype"]
    lines = [TYPES_HEAD]
    for name, base, options, what in (
        ("_Shared", "TypedDict", sides["both"], "how a file is read, and how one is written"),
        ("_Stated", "_Shared", [option for option in sides["read"] if option not in dtype], "how a file is read"),
        ("ReadOptions", "_Stated", dtype, "how a file is read, by itself"),
        ("WriteOptions", "_Shared", sides["write"], "how a file is written"),
        ("ConversionOptions", "_Stated, WriteOptions", [], "a conversion: how its source is read, and its target written"),
    ):
        lines += ["", f"class {name}({base}, total=False):", f'    """Options that decide {what}."""', ""]
        lines += [f"    {option.name}: {_type(option)}" for option in options] + [""] * bool(options)
    return "\n".join(lines).rstrip() + "\n"


def _type(option: Option) -> str:
    if option.number:
        return "int | str" if option.number == "whole" else "float | str"
    if option.each or not option.choices:
        return "str"
    # An exclamation mark insists on a value that the file contradicts.
    words = [word + mark for word in option.choices for mark in (("", "!") if option.side != "write" else ("",))]
    return f"Literal[{', '.join(map(json.dumps, words))}]" + (" | bool" if option.choices == ("true", "false") else "")


def generated() -> dict[str, str]:
    """Return every page that is made, by its path in docs/."""
    return {
        "../rnnconvert/files/option_types.py": types_module(),
        "architecture.md": map_page(),
        "reliability.md": limits_page(),
        "rewrites.md": rewrites_page(),
        **api_pages(),
        **errors_pages(),
        **formats_pages(),
        **pairs_pages(),
    }


FOLDERS = ("api", "errors", "formats", "pairs")
"""Folders of docs/ that hold nothing but generated pages."""


def main() -> int:
    stale, texts = 0, generated()
    left = {f"{folder}/{page.name}" for folder in FOLDERS for page in (HERE / folder).glob("*.md")} - {*texts}
    for name in sorted(left):
        if "--check" in sys.argv:
            print(f"{name} is of what is no more. Run python docs/generate.py", file=sys.stderr)
            stale = 1
        else:
            (HERE / name).unlink()
    for name, text in texts.items():
        page = HERE / name
        if "--check" in sys.argv:
            if not page.is_file() or page.read_text(encoding="utf-8") != text:
                print(f"{name} differs from the data. Run python docs/generate.py", file=sys.stderr)
                stale = 1
        else:
            page.parent.mkdir(exist_ok=True)
            page.write_text(text, encoding="utf-8")
    for page in pages():
        text = page.read_text(encoding="utf-8")
        if "--check" not in sys.argv:
            page.write_text(as_published(text), encoding="utf-8")
        elif text != as_published(text):
            print(f"{page.name} names another way to install rnnconvert. Run python docs/generate.py", file=sys.stderr)
            stale = 1
    return stale


if __name__ == "__main__":
    sys.exit(main())
