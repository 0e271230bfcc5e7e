"""No name of a layer becomes code, markup or another entry in any text that is written."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import tempfile
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np
import pytest
import tomllib

import rnnconvert as rc
from rnnconvert.core.printable import in_toml
from rnnconvert.files import draft
from rnnconvert.files.adapter import adapter, c_names, names, variables
from rnnconvert.files.options import Options
from rnnconvert.language import registry
from rnnconvert.language.layout import Sizes
from tests.drawn import drawn
from tests.requirements import need
from tests.stacks import BOTH, random_stack

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
            tags = [
                [element.tag for element in ElementTree.parse(one).iter()] for one in (path, tmp_path / "plain.xml")
            ]
            assert tags[0] == tags[1], name


@pytest.mark.parametrize("format", FORMATS)
def test_a_name_of_any_length_is_written_or_refused(format: str, tmp_path: Path) -> None:
    """Containers state the length of a name in two bytes: a zip archive's entry, an attribute of HDF5."""
    kind = next(layout.kind for layout in adapter(format).layouts(Options()))
    for ending in registry.cards()[format].written:
        for name in ("a" * 70_000, "a." * 35_000 + "a"):
            layers = source(kind, "b").layers | source(kind, name).layers
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
    found = rc.load(tmp_path / "hostile.h").layers
    assert [*found] == [*layers]
    (tmp_path / "main.c").write_text('#include "hostile.h"\nint main(void) { return 0; }\n')
    words = [
        "gcc",
        "-std=c99",
        "-Wall",
        "-Werror",
        "-Wno-unused-function",
        "-Wno-unused-variable",
        "-fdump-tree-original",
        "-c",
        "main.c",
    ]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (dump,) = tmp_path.glob("main.c.*original")
    functions = [line.split()[2] for line in dump.read_text().splitlines() if line.startswith(";; Function ")]
    assert sorted(functions) == sorted(["main", *(f"{name}_step" for name in c_names(layers).values())])


def test_identifiers_differ_as_their_compilers_compare_them() -> None:
    made = c_names(["a", "A", "a" * 100, "a" * 100 + "b", "\u00e9", "int", "*/"])
    assert len({name.upper() for name in made.values()}) == 7 and all(
        name.isascii() and len(name) < 50 for name in made.values()
    )
    made = variables(["\ufb01", "fi", "\u00b2", "class", "1", ""])
    assert len({*made.values()}) == 6 and all(name.isidentifier() for name in made.values())


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
    assert [one["name"] for one in layout["tensors"]] == [*arrays]
