"""No name of a layer becomes code, markup or another entry in any text that is written."""

from __future__ import annotations

import ast
import json
import re
import shutil
import subprocess
import tempfile
import xml.etree.ElementTree as ElementTree
import zipfile
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import markdown_it
import numpy as np
import pytest
import tomllib

import rnnconvert as rc
from rnnconvert.cli.terminal import emit, put, styled
from rnnconvert.core.printable import in_toml
from rnnconvert.files import draft
from rnnconvert.files.adapter import adapter, c_names, names, variables
from rnnconvert.files.options import Options
from rnnconvert.language import registry
from rnnconvert.language.layout import Sizes
from rnnconvert.reports import FORMS, encoded, github, render
from tests import ROOT
from tests.helpers import report_documents
from tests.helpers.drawn import drawn, each
from tests.helpers.requirements import need
from tests.helpers.stacks import BOTH, random_stack

NAMES = [
    "*/ int evil(void) { return 1; } /*", "x */", "x\\", "??/", "x\ny = 1", "x\r\n#define MAIN_INPUT 9", "\"); __import__('os'); (\"",
    "'); __import__('os'); ('", "{x}", "%s%n", "${x}", "$(id)", "`id`", "</name><evil/>", "<script>alert(1)</script>", "]]>", "&amp;",
    "a|b", "[l](http://e)", "a=1 b=2", "-23300=5", "a,b", "double", "class", "lambda", "\u202egnp", "\ufb01", "\u00e9", "\u00b2", "\x00",
    "\x1b[31m", "\ufffe", " ", "\t", "", "0", "a" * 300, "/", "..", "../x",
]  # fmt: skip
FORMATS = [name for name in names() if adapter(name).layouts(Options()) and registry.cards()[name].written]


def source(kind: str, name: str) -> rc.Checkpoint:
    stack = random_stack(Sizes(kind, 3, 4, 1, 1, 0, BOTH), 1, np.float32).replace(name=name)
    return rc.Checkpoint("memory", "canonical", {name: stack})


def statements(summary: rc.Summary) -> list[str]:
    """The kinds of all parts of the Python that a summary shows; of C, the lines without what is named in them."""
    if registry.systems()[summary.target_format].language == "C":
        return [re.sub(r"[A-Za-z0-9_]*_|(?:\d+|plain)\.h", "", line) for line in summary.recipe]
    return [type(node).__name__ for node in ast.walk(ast.parse("\n".join(summary.recipe)))]


@pytest.mark.parametrize("format", FORMATS)
def test_a_name_is_a_name_in_every_file_and_recipe(format: str, tmp_path: Path) -> None:
    kind = next(layout.kind for layout in adapter(format).layouts(Options()))
    ending = registry.cards()[format].written[0]
    plain = rc.save(source(kind, "plain"), tmp_path / f"plain{ending}", format)
    layers = len(rc.load(tmp_path / f"plain{ending}", format).layers)
    for number, name in enumerate(drawn(NAMES, 10, format)):
        path = tmp_path / f"{number}{ending}"
        try:
            summary = rc.save(source(kind, name), path, format)
        except rc.UsageError:  # the name is refused in words
            assert not path.exists()
            continue
        assert statements(summary) == statements(plain), name
        assert len(rc.load(path, format).layers) == layers, name
        if ending == ".xml":
            tags = [[element.tag for element in ElementTree.parse(file).iter()] for file in (path, tmp_path / "plain.xml")]
            assert tags[0] == tags[1], name


@pytest.mark.parametrize("format", FORMATS)
def test_a_name_of_any_length_is_written_or_refused(format: str, tmp_path: Path) -> None:
    """Containers state the length of a name in two bytes: a zip archive's entry, an attribute of HDF5."""
    kind = next(layout.kind for layout in adapter(format).layouts(Options()))
    for ending in registry.cards()[format].written:
        for name in ("a" * 70_000, "a." * 35_000 + "a"):
            layers = {**source(kind, "b").layers, **source(kind, name).layers}
            around = {name: np.ones((2, 2), np.float32)}
            for checkpoint in (rc.Checkpoint("memory", "canonical", layers), source(kind, "b").replace(tensors=around)):
                path = Path(tempfile.mkdtemp(dir=tmp_path)) / f"m{ending}"
                try:
                    rc.save(checkpoint, path, format)
                except (rc.RefusedError, rc.UsageError) as error:
                    assert error.exit_code in (2, 4), (ending, error)
                    assert not path.exists()


def test_names_in_c_do_not_end_a_comment(tmp_path: Path) -> None:
    """A compiler finds in a header what is in that of a plain name."""
    need("gcc", "" if shutil.which("gcc") else "no C compiler")
    layers = {name: source("gru", name).layers[name] for name in NAMES if name}
    rc.save(rc.Checkpoint("memory", "canonical", layers), tmp_path / "hostile.h", "c_header")
    read = rc.load(tmp_path / "hostile.h").layers
    assert [*read] == [*layers]
    (tmp_path / "main.c").write_text('#include "hostile.h"\nint main(void) { return 0; }\n')
    words = ["gcc", "-std=c99", "-Wall", "-Werror", "-Wno-unused-function", "-Wno-unused-variable", "-fdump-tree-original", "-c", "main.c"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (dump,) = tmp_path.glob("main.c.*original")
    functions = [line.split()[2] for line in dump.read_text().splitlines() if line.startswith(";; Function ")]
    functions = [name for name in functions if not name.startswith("rnnconvert_")]  # those of every header
    assert sorted(functions) == sorted(["main", *(f"{name}_step" for name in c_names(layers).values())])


def test_identifiers_differ_as_their_compilers_compare_them() -> None:
    names = c_names(["a", "A", "a" * 100, "a" * 100 + "b", "\u00e9", "int", "*/"])
    assert len({name.upper() for name in names.values()}) == 7 and all(name.isascii() and len(name) < 50 for name in names.values())
    names = variables(["\ufb01", "fi", "\u00b2", "class", "1", ""])
    assert len({*names.values()}) == 6 and all(name.isidentifier() for name in names.values())


@pytest.mark.parametrize("name", [*NAMES, "\U0001f600", "\x7f", "\x85", "'''", "# x"], ids=ascii)
def test_a_name_in_toml_is_the_name(name: str) -> None:
    """In any text of TOML that is written, and in the draft of a layout, which shows the arrays' own names."""
    assert tomllib.loads(f"name = {in_toml(name)}") == {"name": name}
    arrays = {f"{side}{name}W": np.ones((20, width), np.float32) for side, width in (("in", 3), ("rec", 5))}
    _, *text = draft.lines(arrays) or [""]
    if not text:  # a name that no layout can have: too long, or with braces, which are words there
        assert "{" in name or "}" in name or len(name) > 90, name
        return
    (layout,) = tomllib.loads("\n".join(text))["layout"]
    assert [tensor["name"] for tensor in layout["tensors"]] == [*arrays]


class Tags(HTMLParser):
    """The elements of a page, with the names of their attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, ...]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, *(name for name, _ in attrs)))


def form_of(tree: Any) -> Any:
    """Return the form of JSON: its lists' lengths and its objects' sizes, without texts and numbers."""
    if isinstance(tree, dict):
        return [form_of(value) for value in tree.values()]
    return [form_of(value) for value in tree] if isinstance(tree, list) else type(tree).__name__


def tokens(text: str) -> list[str]:
    """Return the kinds of what a reader of CommonMark with tables finds, texts and their line ends aside."""
    parsed = markdown_it.MarkdownIt("commonmark").enable("table").parse(text)
    inside = [child for token in parsed for child in token.children or () if child.content != "<!-- -->"]
    return [token.type for token in parsed] + [child.type for child in inside if child.type not in ("text", "text_special", "softbreak")]


PARSED: dict[str, Callable[[str], Any]] = {
    ".json": lambda text: form_of(json.loads(text)), ".sarif": lambda text: form_of(json.loads(text)),
    ".xml": lambda text: [element.tag for element in ElementTree.fromstring(text.encode()).iter()],
    ".html": lambda text: Tags(text).elements, ".md": tokens,
}  # fmt: skip
"""What the parser of a form of reports finds, by its ending."""


@pytest.mark.parametrize("ending", FORMS)
def test_a_name_is_text_in_every_form_of_a_report(ending: str) -> None:
    plain = PARSED[ending](render(report_documents.nasty("plain"), ending))
    for name in NAMES:
        if name.strip() and name.isprintable():  # what is not printable is escaped (tests/reports/test_report_forms.py)
            text = encoded(render(report_documents.nasty(name), ending)).decode()
            parsed = PARSED[ending](text)
            # A page leaves out labels that are long: no element is there that has no like in that of a plain name.
            assert {*parsed} <= {*plain} if ending == ".html" else parsed == plain, name


@pytest.mark.parametrize("name", NAMES, ids=ascii)
def test_a_name_does_not_end_a_command_to_github(name: str) -> None:
    (line,) = github.of_report(report_documents.nasty(name))
    assert re.fullmatch(r"::error (file=[^:,]*,)?title=[^:,]*::.*", line), line


def test_no_line_is_a_command_to_a_runner(capfd: pytest.CaptureFixture[str]) -> None:
    """Of GitHub, Azure or TeamCity; what GitLab takes for one begins with a control character, which is escaped."""

    def check(text: str) -> None:
        for mark in ("", styled("", "red")):
            put(f"{mark}{text}", wrap=False)
        emit({"name": text})
        plain, marked, *document = capfd.readouterr().out.splitlines()
        for line in (plain, marked, *document):
            assert not line.lstrip().startswith("::")
            assert not re.search(r"##(vso|teamcity)?\[|\x1b\[0Ksection", line), line
        assert json.loads("\n".join(document)) == {"name": text}

    commands = ["::error::a", "  ::stop-commands::x", "::::", "a ##[error]b", "##vso[task.complete]", "###[x]", "##teamcity[message]"]
    each([*commands, "section_start:1:a\r\x1b[0Kb"], check, repr)
    put("::error::ours", command=True)
    assert capfd.readouterr().out == "::error::ours\n"


CODE = ['evil"""; evil(); """', "evil'); evil(('", "int32); evil(", "evil\nevil()\n", "evil\\", "relu; evil()", "{evil}", "evil"]
"""Texts that would be code in a program of Python, or its names, wherever they stood without a quote or an escape."""


def exchanged(tree: Any, text: str) -> Iterator[Any]:
    """Yield a tree of dictionaries and lists with one text in it, or one key, exchanged for another."""
    if isinstance(tree, dict):
        for key, value in tree.items():
            yield from ({**tree, key: other} for other in exchanged(value, text))
            yield {(text if each == key else each): value for each, value in tree.items()}
    elif isinstance(tree, list):
        for at, value in enumerate(tree):
            yield from ([*tree[:at], other, *tree[at + 1 :]] for other in exchanged(value, text))
    elif isinstance(tree, str):
        yield text


def called_of(program: str) -> set[str]:
    """Return the functions and classes that a program calls without having defined or imported them."""
    nodes = [*ast.walk(ast.parse(program))]
    defined = {node.name for node in nodes if isinstance(node, (ast.ClassDef, ast.FunctionDef))}
    defined |= {alias.asname or alias.name for node in nodes if isinstance(node, (ast.Import, ast.ImportFrom)) for alias in node.names}
    return {node.func.id for node in nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)} - defined


@pytest.mark.parametrize("name", ["encoder.keras", "decoder.keras"])
def test_no_text_of_a_model_becomes_code_of_the_model_that_is_written(name: str, tmp_path: Path) -> None:
    """A class, a type, a function, a layer, a key: each text of the configuration in turn."""
    with zipfile.ZipFile(ROOT / "examples" / name) as archive:
        entries = {entry: archive.read(entry) for entry in archive.namelist()}
    config = json.loads(entries["config.json"])
    rc.scaffold(ROOT / "examples" / name, "pytorch", tmp_path / "plain.py")
    plain = called_of((tmp_path / "plain.py").read_text())
    every = [(text, tree) for text in CODE for tree in exchanged(config, text)]
    written = 0
    for text, tree in drawn(every, 16, f"code {name}"):
        path, target = tmp_path / "model.keras", tmp_path / "model.py"
        with zipfile.ZipFile(path, "w") as archive:
            for entry, content in {**entries, "config.json": json.dumps(tree).encode()}.items():
                archive.writestr(entry, content)
        try:
            rc.scaffold(path, "pytorch", target, force=True)
        except (rc.RefusedError, rc.UnreadableError, rc.UsageError):
            continue
        written += 1
        assert called_of(target.read_text()) <= plain, text
    assert written
