"""Write the pages that are generated: docs/formats.md and its folder, docs/pairs.md and docs/rewrites.md, from the data;
docs/api.md and docs/errors.md and their folders, and docs/reference.md, from the code; the line numbers of docs/architecture.md;
the types of the options; and, in every page, how rnnconvert is installed (docs/published.py).

python docs/generate.py          writes them
python docs/generate.py --check  exits with 1 if they differ from the data
"""

from __future__ import annotations

import ast
import json
import re
import sys
import textwrap
from inspect import signature
from pathlib import Path

from command_texts import command_page
from error_texts import errors_pages
from format_texts import formats_pages
from pair_texts import pairs_pages
from public_names import api_pages
from published import as_published, pages

from rnnconvert.core import limits
from rnnconvert.files.adapter import adapters
from rnnconvert.files.catalogue import OPTIONS
from rnnconvert.files.convert import Writing
from rnnconvert.language.layout import Option
from rnnconvert.rewrites import REWRITES

HERE = Path(__file__).parent

REWRITES_HEAD = """# Rewrites

    rnnconvert convert FILE TARGET             # names every rewrite that it does
    rnnconvert convert FILE TARGET --strict    # refuses those that are not bit-exact

A rewrite replaces a cell by another that computes the same function. *Bit-exact* means that every number written is one of the
source's, its negative, or zero; otherwise the rewrite is exact in real numbers, and rounds as any arithmetic does. Anything without a
rewrite is refused.

| rewrite | exact | why the function stays the same | needs |
|---|---|---|---|
"""


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
    """Return docs/reliability.md, which is written by hand, with the limits of what a file costs: the error of each other one names it."""
    table, is_listed = [], False
    for limit in _LIMIT.finditer((HERE.parent / "rnnconvert" / "core" / "limits.py").read_text()):
        if limit["subject"]:
            is_listed = limit["subject"] in ("Reading", "Bytes and texts")
        if limit["subject"] and is_listed:
            table.append(f"\n| {limit['subject']} | at most | what |\n|---|---:|---|\n")
        elif is_listed:
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

from typing import TYPE_CHECKING, Literal, TypedDict

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rnnconvert.files.summary import Progress

# fmt: off

NamedArrays = Literal[
    FORMATS,
]
"""The formats whose layers are arrays by name; every other one is one flat vector."""
'''


def types_module() -> str:
    """Return the module of the options' types: those of reading, those of writing, and both together."""
    sides = {side: sorted((o for o in OPTIONS.values() if o.side == side), key=lambda o: o.name) for side in ("both", "read", "write")}
    # `convert` has a dtype of its own, that of the target: there, the source's is one of the settings.
    dtype = [option for option in sides["read"] if option.name == "dtype"]
    formats = [json.dumps(name) for name, room in adapters().items() if not hasattr(room, "stack_of")]
    lines = [TYPES_HEAD.replace("FORMATS", "\n".join(textwrap.wrap(", ".join(sorted(formats)), 130, subsequent_indent="    ")))]
    writing = [f"    {name}: {parameter.annotation}" for name, parameter in signature(Writing).parameters.items()]
    sources = ["    source_format: str | None", "    settings: Iterable[str]"]
    for name, base, options, what in (
        ("_Shared", "TypedDict", sides["both"], "how a file is read, and how one is written"),
        ("_Stated", "_Shared", [option for option in sides["read"] if option not in dtype], "how a file is read"),
        ("ReadOptions", "_Stated", dtype, "how a file is read, by itself"),
        ("SourceOptions", "ReadOptions", sources, "how a file is read: its format, and options in words, too"),
        ("WriteOptions", "_Shared", sides["write"], "how a file is written"),
        ("SaveOptions", "WriteOptions", writing, "how a file is written: what `save` takes"),
        ("ConversionOptions", "_Stated, SaveOptions", [], "a conversion: how its source is read, and its target written"),
    ):
        lines += ["", f"class {name}({base}, total=False):", f'    """Options that decide {what}."""', ""]
        lines += [option if isinstance(option, str) else f"    {option.name}: {_type(option)}" for option in options] + [""] * bool(options)
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
        **command_page(),
        **errors_pages(),
        **formats_pages(),
        **pairs_pages(),
    }


FOLDERS = ("api", "errors", "formats")
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
