"""What reaches a terminal: names from files are escaped in every command, lines fit the width, colours are wanted."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from safetensors.numpy import save_file

from rnnconvert.cli import terminal
from rnnconvert.core.printable import abridged, json_of, printable
from rnnconvert.models import mapping
from rnnconvert.models.inspection import amount
from tests import ROOT
from tests.helpers.commands import call, on_a_terminal
from tests.helpers.sources import legacy_h5, sequential

EVIL = "a\x1b[31m\x1b]0;title\x07\nerror: forged\r\x9b2J\u202egnp.exe\u2066\u200b\ue000\U0010fffd\x7f\t\x85b\u2028c"
"""A name with escape sequences, line ends, marks that reverse the direction of writing, and private characters."""


def weights(name: str, seed: int = 1, hidden: int = 5) -> dict[str, np.ndarray]:
    numbers = np.random.default_rng(seed)
    shapes: dict[str, tuple[int, ...]] = {"weight_ih_l0": (4 * hidden, 3), "weight_hh_l0": (4 * hidden, hidden)}
    shapes |= {"bias_ih_l0": (4 * hidden,), "bias_hh_l0": (4 * hidden,)}
    arrays = {f"{name}.{local}": numbers.normal(size=shape).astype(np.float32) for local, shape in shapes.items()}
    return arrays | {f"{name}head.weight": numbers.normal(size=(2, hidden)).astype(np.float32)}


@pytest.fixture
def evil(tmp_path: Path) -> dict[str, Path]:
    """Files with such names in them: one layer, another of the same, and two layers that are alike."""
    files = {"one": weights(EVIL), "two": weights(EVIL, 2), "three": weights(EVIL, hidden=4)}
    files["pair"] = {**weights(f"{EVIL}1"), **weights(f"{EVIL}2")}
    files["other"] = {**weights(f"{EVIL}x"), **weights(f"{EVIL}y")}
    files["rnn"] = {
        f"{EVIL}.{local}": np.ones(shape, np.float32)
        for local, shape in (("weight_ih_l0", (4, 3)), ("weight_hh_l0", (4, 4)), ("bias_ih_l0", (4,)), ("bias_hh_l0", (4,)))
    }
    for name, arrays in files.items():
        save_file(arrays, tmp_path / f"{name}.safetensors", {EVIL: EVIL, "note": EVIL})
    return {name: tmp_path / f"{name}.safetensors" for name in files}


def raw(text: str) -> set[str]:
    """The characters that a terminal must not get."""
    return {char for char in text if not char.isprintable() and char != "\n"}


COMMANDS = [
    ["inspect", "{one}"],
    ["inspect", "{one}", "-v"],
    ["inspect", "{one}", "--targets"],
    ["inspect", "{rnn}"],
    ["inspect", "{one}", "{two}", "{folder}/absent.pt"],
    ["convert", "{one}", "{folder}/out.keras"],
    ["convert", "{one}", "{folder}/out.onnx", "-v"],
    ["convert", "{rnn}", "{folder}/out.onnx"],
    ["convert", "{one}", "{two}", "--to", "onnx", "--out-dir", "{folder}/out"],
    ["convert", "{one}", "{folder}/out.onnx", "--dry-run"],
    ["convert", "{one}", "{folder}/out.onnx", "--layer", "nobody"],
    ["convert", "{one}", "{folder}/out.onnx", "--set", "nobody:opset=9"],
    ["convert", "{one}", "{folder}/out.onnx", "--set", f"{EVIL}=1"],
    ["convert", "{one}", "{folder}/out.msgpack", "--set", "cell_clip=3"],
    ["convert", "{folder}/" + EVIL.replace("/", ""), "{folder}/out.onnx"],
    ["convert", "{one}", "{folder}/out.npz", "--to", "arraymancer"],
    ["map", "{one}", "{two}"],
    ["map", "{pair}", "{other}"],
    ["map", "{one}", "{three}"],
    ["map", "{one}", "{two}", "-o", "{folder}/mapping.yaml"],
    ["transplant", "{one}", "--into", "{two}", "-o", "{folder}/filled.safetensors"],
    ["transplant", "{pair}", "--into", "{other}", "-o", "{folder}/filled.safetensors"],
    ["transplant", "{one}", "--into", "{three}", "-o", "{folder}/filled.safetensors"],
    ["diff", "{one}", "{two}"],
    ["diff", "{one}", "{one}"],
    ["diff", "{one}", "{pair}"],
    ["diff", "{one}", "{three}"],
    ["diagnose", "{one}", "{two}"],
    ["verify", "{one}", "{three}"],
    ["no" + EVIL],
    ["inspect", "{one}", "--no" + EVIL],
]


@pytest.mark.parametrize("as_json", [False, True], ids=["people", "json"])
@pytest.mark.parametrize("words", COMMANDS, ids=[" ".join(map(printable, words)) for words in COMMANDS])
def test_nothing_from_a_file_reaches_a_terminal_raw(words: Sequence[str], as_json: bool, evil: dict[str, Path], tmp_path: Path) -> None:
    places = {**evil, "folder": tmp_path}
    result = call(*(word.format_map(places) for word in words), *(["--json"] if as_json else []), FORCE_COLOR="1")
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    output = result.stdout + result.stderr
    plain = re.sub(r"\x1b\[[0-9]*m", "", output)  # our own colours
    assert output and raw(plain) == set()
    assert not any(line.lstrip().startswith("error: forged") for line in plain.splitlines())
    assert "\x1b[31m\x1b]" not in output


def test_names_in_an_old_keras_model_reach_no_terminal_raw(tmp_path: Path) -> None:
    name = EVIL.replace("/", "").replace("\0", "")
    arrays = [(f"{name}/{local}:0", np.ones(shape, np.float32))
              for local, shape in (("kernel", (3, 16)), ("recurrent_kernel", (4, 16)), ("bias", (16,)))]  # fmt: skip
    legacy_h5(tmp_path / "old.h5", {name: arrays}, sequential(("LSTM", {"name": name, "units": 4, "implementation": 2})))
    for words in (["upgrade", tmp_path / "old.h5", tmp_path / "new.keras", "--dry-run"], ["inspect", tmp_path / "old.h5"]):
        result = call(*words)
        output = result.stdout + result.stderr
        assert output and raw(output) == set() and not any(line.startswith("error: forged") for line in output.splitlines())


def test_an_example_that_shows_the_names_escaped(evil: dict[str, Path]) -> None:
    output = call("inspect", evil["one"]).stdout
    assert r"a\x1b[31m\x1b]0;title\x07\nerror: forged\r\x9b2J\u202egnp.exe" in output
    document = json.loads(call("inspect", evil["one"], "--json").stdout)
    assert document["layers"][0]["name"] == EVIL  # machines get the name itself


def test_a_mapping_of_such_names_is_valid(evil: dict[str, Path], tmp_path: Path) -> None:
    path = tmp_path / "mapping.yaml"
    assert call("map", evil["one"], evil["two"], "-o", path).exit_code == 0
    assert raw(path.read_text(encoding="utf-8")) == set()
    assert mapping.read(path).layers == {EVIL: EVIL, f"{EVIL}head": f"{EVIL}head"}
    assert yaml.safe_load(path.read_text(encoding="utf-8"))["layers"][EVIL] == EVIL
    filled = tmp_path / "filled.safetensors"
    done = call("transplant", evil["one"], "--into", evil["two"], "-o", filled, "--mapping", path)
    assert done.exit_code == 0 and filled.exists(), done.output


def test_commands_print_through_one_place() -> None:
    """A command that prints by itself escapes nothing."""
    for path in sorted((ROOT / "cli").glob("*.py")):
        if path.name == "terminal.py":
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call):
                name = ast.unparse(node.func)
                wrong = name in ("print", "click.echo", "click.secho", "sys.stdout.write", "sys.stderr.write")
                assert not wrong or (path.name == "main.py" and name == "error.show"), f"{path.name}: {ast.unparse(node)}"


# Widths ---------------------------------------------------------------------------------------------


def plain(text: str) -> str:
    return re.sub(r"\x1b\[[0-9]*m", "", text)


@pytest.mark.parametrize("columns", [80, 100])
def test_lines_fit_the_terminal(columns: int) -> None:
    _, output = on_a_terminal("inspect", "examples/decoder.keras", "--targets", columns=columns)
    rows = plain(output).splitlines()
    assert max(map(len, rows)) <= columns
    assert sum(len(row) > columns // 2 for row in rows) > 10
    at = next(number for number, row in enumerate(rows) if re.match(r" +pytorch +refused", row))
    column = rows[at].index("torch.nn.GRU")
    assert rows[at + 1].startswith(" " * column) and rows[at + 1][column] != " "  # hanging below its own column


def test_a_pipe_gets_whole_lines() -> None:
    output = call("inspect", ROOT / "examples" / "decoder.keras", "--targets").stdout
    assert max(map(len, output.splitlines())) > 200


@pytest.mark.parametrize(
    ("text", "width", "hang", "rows"),
    [
        ("one two three", 9, None, ["one two", "  three"]),
        ("  one two three", 9, 4, ["  one two", "    three"]),
        ("one two", 20, None, ["one two"]),
        ("a-word-that-is-longer-than-the-width two", 10, None, ["a-word-that-is-longer-than-the-width", "  two"]),
        ("日本語 日本語", 8, 0, ["日本語", "日本語"]),
        ("key   value text", 13, 6, ["key   value", "      text"]),
        ("", 10, None, [""]),
    ],
)
def test_lines_are_broken_at_spaces(text: str, width: int, hang: int | None, rows: list[str]) -> None:
    assert terminal._wrapped(text, width, hang) == rows


# Colours --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("environment", "coloured"),
    [({}, True), ({"NO_COLOR": "1"}, False), ({"NO_COLOR": ""}, True), ({"TERM": "dumb"}, False),
     ({"NO_COLOR": "1", "FORCE_COLOR": "1"}, False)],
)  # fmt: skip
def test_colours_are_for_terminals_that_want_them(environment: dict[str, Any], coloured: bool) -> None:
    _, output = on_a_terminal("inspect", "examples/decoder.keras", "--targets", "pytorch,keras", **environment)
    assert ("\x1b[32mexact" in output and "\x1b[31m\x1b[1mrefused" in output) == coloured
    assert ("\x1b[" in output) == coloured


def test_colours_can_be_forced_into_a_pipe() -> None:
    words = ("inspect", ROOT / "examples" / "decoder.keras", "--targets", "keras")
    assert "\x1b[" not in call(*words).stdout
    assert "\x1b[32mexact" in call(*words, FORCE_COLOR="1").stdout
    assert "\x1b[" not in call(*words, FORCE_COLOR="1", NO_COLOR="1").stdout


def test_the_formats_that_most_people_use_come_first() -> None:
    output = call("inspect", ROOT / "examples" / "decoder.keras", "--targets").stdout
    names = re.findall(r"^    (\w+) +(?:exact|rewritten|refused)", output, re.M)
    assert names[:3] == ["pytorch", "keras", "onnx"]
    assert names[len(terminal.USED_MOST) :] == sorted(names[len(terminal.USED_MOST) :])
    families = re.split(r"^\w[^()]*:\n", call("formats").stdout, flags=re.M)[1:]
    assert len(families) > 3
    for family in families:
        listed = re.findall(r"^  (\w+) ", family, re.M)
        most_used = [name for name in terminal.USED_MOST if name in listed]
        assert listed == most_used + sorted({*listed} - {*most_used})


# Sizes, help ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 bytes"), (999, "999 bytes"), (15_012, "15.0 kB"), (370_000_000, "370 MB"), (2_500_000_000, "2.5 GB")]
)  # fmt: skip
def test_sizes_are_as_people_read_them(count: int, text: str) -> None:
    assert amount(count) == text


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys; from rnnconvert.cli.main import main\n"
        "try: main(['--help'])\nexcept SystemExit: pass\n"
        "print({'numpy', 'json', 'dataclasses', 'difflib', 'tempfile', 'yaml'} & set(sys.modules))"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-S", "-c", f"import sys; sys.path[:0] = {[path for path in sys.path if path]!r}\n{code}"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.splitlines()[-1] == "set()", done.stdout


def test_a_word_of_megabytes_is_cut(capsys: pytest.CaptureFixture[str]) -> None:
    terminal.put(f"layer {'x' * 10_000_000} is read")
    output = capsys.readouterr().out
    assert len(output) < 1000 and "(10,000,000 characters)" in output and output.endswith("is read\n")
    assert abridged("a sentence of words " * 1000) == "a sentence of words " * 1000


def test_json_shows_no_marks_that_turn_text() -> None:
    document = {"layer": "\u202eevil\u2066\x85\x9b31m é \U0001f600"}
    text = json_of(document)
    assert json.loads(text) == document
    assert text.isprintable() and "é" in text
