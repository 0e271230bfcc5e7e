"""Layouts that a user describes, in a file or in a package of their own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import rnnconvert as rc
from rnnconvert.cli.main import main
from rnnconvert.containers import tensor_bundle
from rnnconvert.core.cells import Activation
from rnnconvert.core.errors import UnreadableError, UsageError
from rnnconvert.core.reference import run
from rnnconvert.language import registry
from rnnconvert.language.layout import Holds, Layout, System, Tensor
from rnnconvert.language.layout_file import read
from tests import ROOT
from tests.helpers.requirements import needed

OURS = """
[system]
title = "Our trainer"
versions = "since 2.1"

[[layout]]
name = "ours.lstm"
kind = "lstm"
gates = "i g f o"
class_name = "OurLSTM"
tensors = [
    { name = "kernel", parts = "input recurrent", axes = "(part in) (gate hidden)" },
    { name = "bias", parts = "input_bias", axes = "(gate hidden)" },
]
holds = { biases = ["input"], constants = { f = 1.0 }, layers = false, directions = 1 }

[[layout]]
name = "ours.gru"
kind = "gru"
gates = "r -z n"
reset_after = false
tensors = [
    { name = "kernel", parts = "input", axes = "in (gate hidden)" },
    { name = "gates", parts = "recurrent[r z]", axes = "in (gate hidden)" },
    { name = "candidate", parts = "recurrent[n]", axes = "in hidden" },
    { name = "bias", parts = "input_bias", axes = "(gate hidden)" },
]
holds = { biases = ["input"], activations = ["tanh", { name = "hard_sigmoid", alpha = 0.2 }], layers = false, directions = 1 }
"""


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    """What a test adds is gone after it."""
    yield
    registry.forget()


@pytest.fixture
def described(tmp_path: Path) -> Path:
    path = tmp_path / "ours.toml"
    path.write_text(OURS)
    return path


@pytest.fixture
def trained(tmp_path: Path) -> Path:
    random = np.random.default_rng(1)
    arrays = {"encoder/kernel": random.normal(size=(3 + 2, 8)), "encoder/bias": random.normal(size=8)}
    path = tmp_path / "trained.npz"
    named: dict[str, Any] = {"head": np.ones((2, 2), np.float32), **{k: v.astype(np.float32) for k, v in arrays.items()}}
    np.savez(path, **named)
    return path


def call(*words: object) -> tuple[int, str]:
    done = CliRunner().invoke(main, [str(word) for word in words])
    return done.exit_code, done.output


def test_a_described_file_is_read_as_its_own_framework_computes(described: Path, trained: Path) -> None:
    registry.add(read(described))
    stack = rc.load(trained).layers["encoder"]
    with np.load(trained) as arrays:
        kernel, bias = np.asarray(arrays["encoder/kernel"], float), np.asarray(arrays["encoder/bias"], float)
    x = np.random.default_rng(2).normal(size=(4, 1, 3))
    h, c, expected = np.zeros((1, 2)), np.zeros((1, 2)), []
    for step in x:
        i, g, f, o = np.split(np.concatenate([step, h], 1) @ kernel + bias, 4, axis=1)
        c = c / (1 + np.exp(-f - 1)) + np.tanh(g) / (1 + np.exp(-i))
        h = np.tanh(c) / (1 + np.exp(-o))
        expected.append(h)
    np.testing.assert_allclose(run(stack, x).y, expected, rtol=1e-12)


def test_the_command_line_knows_a_described_layout(described: Path, trained: Path, tmp_path: Path) -> None:
    target, back = tmp_path / "model.onnx", tmp_path / "back.npz"
    assert call("convert", trained, target, "--layout", described)[0] == 0
    code, text = call("convert", target, back, "--to", "ours", "--layout", described)
    assert (code, "OurLSTM" in text) == (0, True)
    with np.load(trained) as before, np.load(back) as after:
        np.testing.assert_array_equal(before["encoder/kernel"], after["kernel"])
        np.testing.assert_allclose(before["encoder/bias"], after["bias"], atol=3e-7)
    assert "OurLSTM" in call("formats", "ours", "--layout", described)[1] and "  ours " in call("formats", "--layout", described)[1]
    assert "ours" in call("inspect", trained, "--layout", described, "--targets")[1]


def test_without_the_description_the_file_is_of_no_known_format(trained: Path) -> None:
    with pytest.raises(UnreadableError):
        rc.load(trained)


def test_every_field_is_read(described: Path) -> None:
    lstm, gru, system = read(described)
    assert isinstance(lstm, Layout) and isinstance(gru, Layout) and isinstance(system, System)
    assert (lstm.holds.constants, lstm.holds.layers, gru.reset_after) == ({"f": 1.0}, False, False)
    assert gru.holds.activations == ("tanh", Activation("hard_sigmoid", 0.2))
    assert gru.tensors[1] == Tensor("gates", "recurrent[r z]", "in (gate hidden)")
    assert (system.title, system.versions) == ("Our trainer", "since 2.1")


def test_a_description_may_be_given_twice_and_none_takes_the_name_of_a_format(described: Path) -> None:
    registry.add(read(described))
    registry.add(read(described))
    layouts = [Layout("keras.mine", "rnn", "n", (Tensor("W", "input recurrent", "(part in) hidden"),), "")]
    with pytest.raises(UsageError, match="'keras' already"):
        registry.add(layouts)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('kind = "lstm"', 'kind = "lstmp"', "kind is 'lstmp', expected one of rnn, gru, lstm"),
        ('gates = "i g f o"', 'gates = "i q f o"', "gates are 'i q f o', expected 'i f g o' in some order"),
        ('gates = "i g f o"', 'gates = "-i g f o"', "only the update gate"),
        ("reset_after = false", "", "reset_after is None"),
        ('kind = "lstm"', 'kind = "lstm"\nreset_after = true', "reset_after is True"),
        ('"ours.lstm"', '"lstm"', "name is 'lstm', expected one like 'ours.lstm'"),
        ('"ours.lstm"', '"theirs.lstm"', "its layouts belong to ours and theirs"),
        ('"(part in) (gate hidden)"', '"(part in) (gate unit)"', "axes are '(part in) (gate unit)', expected words out of"),
        ('"(part in) (gate hidden)"', '"in (gate hidden)"', "holds one part, not 2"),
        ('parts = "input recurrent"', 'parts = "input weights"', "parts are 'input weights'"),
        ('parts = "recurrent[n]"', 'parts = "recurrent[z]"', "no place for the recurrent of gate 'n'"),
        ('"kernel", parts = "input rec', '"{gates}", parts = "input rec', "{layer}, {direction}"),
        ("constants = { f = 1.0 }", 'constants = { f = "1" }', "constants are"),
        ('activations = ["tanh"', 'activations = ["tanhh"', "unknown function 'tanhh'"),
        ("layers = false, directions = 1 }\n\n", "layers = 0, directions = 1 }\n\n", "layers is 0, expected bool"),
        ("directions = 1 }\n\n", "directions = 3 }\n\n", "directions are 3"),
        ("class_name", "classname", "unknown field 'classname'"),
        ("[system]", "[sytem]", "unknown field 'sytem'"),
        ("[[layout]]", "[layout]", "not valid TOML"),
        ("{ name =", "{ naem =", "unknown field 'naem'"),
        ("constants = { f = 1.0 }", "constants = { F = 1.0 }", "expected a number for a gate (i, f, g, o)"),
        ("constants = { f = 1.0 }", "constants = { f = nan }", "constants are"),
        ('biases = ["input"]', 'biases = [["input"]]', "biases has ['input'], expected some of none"),
        ('biases = ["input"]', "biases = []", "biases are empty"),
        ("constants = { f = 1.0 }", "activations = []", "activations are empty"),
        ("constants = { f = 1.0 }", 'activations = [{ name = ["elu"] }]', "unknown function"),
        ("constants = { f = 1.0 }", 'activations = [{ name = "elu", alpha = "x" }]', "unknown function"),
        ("constants = { f = 1.0 }", 'activations = [["elu"]]', "unknown function ['elu']"),
        ("constants = { f = 1.0 }", 'merges = ["zip"]', "merges has 'zip', expected some of concat"),
        ("constants = { f = 1.0 }", 'joins = ["never"]', "joins has 'never'"),
        ("constants = { f = 1.0 }", 'clips = ["x"]', "clips has 'x'"),
        ("constants = { f = 1.0 }", 'coupled = ["o"]', "coupled has 'o', expected some of i, f"),
        ("constants = { f = 1.0 }", 'dtypes = ["int8"]', "dtypes has 'int8'"),
        ("constants = { f = 1.0 }", 'chosen = ["x"]', "chosen has 'x'"),
        ("constants = { f = 1.0 }", 'output_activation = "sane"', "output_activation has 'sane'"),
        ("directions = 1 }\n\n", "directions = 1.0 }\n\n", "directions are 1.0"),
        ('class_name = "OurLSTM"', 'spelling = ["f"]', "spelling is ['f'], expected one word for each direction"),
        ('class_name = "OurLSTM"', "spelling = [1, 2]", "expected a list of texts"),
        ('class_name = "OurLSTM"', "alone = 1", "alone is 1"),
        ('class_name = "OurLSTM"', 'letters = "a b"', "letters are 'a b', expected one for each of 'i g f o'"),
        ('"input_bias"', '"input_bias[q]"', "has the gate 'q'"),
        ('name = "bias"', 'name = "kernel"', "every array its own name"),
        ('{ name = "bias"', '{ name = "p", parts = "projection", axes = "hidden" }, { name = "bias"', "do not hold their parts"),
        ('{ name = "bias"', '{ name = "c", parts = "input_bias", axes = "(gate hidden)" }, { name = "bias"', "two places"),
        ('"recurrent[n]", axes = "in hidden" }', '"recurrent[n]", axes = "in hidden" }, { name = "p", parts = "peephole", '
         'axes = "gate hidden" }', "peephole is a part of an lstm, but this is a gru"),
        ('"ours.gru"\nkind = "gru"', '"ours.lstm"\nkind = "gru"', "two of its layouts are called 'ours.lstm'"),
        ('versions = "since 2.1"', "notes = [1]", "system, notes is [1], expected a list of texts"),
    ],
)  # fmt: skip
def test_a_wrong_description_is_refused_by_what_is_wrong(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in OURS
    path = tmp_path / "ours.toml"
    path.write_text(OURS.replace(old, new, 1))
    code, text = call("formats", "--layout", path)
    assert code == 3 and message in text and str(path) in text, text


def test_a_function_that_may_be_any_is_asked_for(described: Path, trained: Path) -> None:
    described.write_text(OURS.replace("constants = { f = 1.0 }", 'activations = ["any"]'))
    registry.add(read(described))
    (question,) = rc.load(trained).questions
    assert (question.option, question.assumed) == ("activation", "tanh")
    assert rc.load(trained, activation="selu").layers["encoder"].cell.activation == Activation("selu")


@pytest.mark.parametrize("differs", ['gate_activations = ["hard_sigmoid"]', 'activations = ["relu"]'])
def test_layouts_that_differ_in_what_they_compute_are_not_taken_for_one(described: Path, trained: Path, differs: str) -> None:
    other = OURS[OURS.index("[[layout]]") : OURS.rindex("[[layout]]")]
    other = other.replace("ours.lstm", "ours.other").replace("constants = { f = 1.0 }", "constants = { f = 1.0 }, " + differs)
    described.write_text(OURS + other)
    registry.add(read(described))
    assert "may belong to ours.lstm or ours.other" in rc.load(trained).warnings[0]
    assert list(rc.load(trained, layout="other").layers) == ["encoder"]


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"x = 1", b"[[layout]]", b"a" * (1 << 21), b"layout = [[[[" * 500])
def test_a_file_that_is_no_description_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "ours.toml"
    path.write_bytes(content)
    with pytest.raises(UnreadableError, match=r"ours\.toml"):
        read(path)


def installed(monkeypatch: pytest.MonkeyPatch, module: Any, place: Path) -> None:
    """Install a package, as pip does, whose entry point names this module."""
    info = place / "site" / "theirs-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{registry.ENTRY_POINT}]\ntheirs = their_formats\n")
    monkeypatch.syspath_prepend(str(info.parent))
    if module is not None:
        monkeypatch.setitem(sys.modules, "their_formats", module)
    registry.forget()


def test_an_installed_package_adds_its_layouts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    module = types.ModuleType("their_formats")
    module.RNN = Layout(  # type: ignore[attr-defined]
        "theirs.rnn", "rnn", "n",
        (Tensor("W", "input", "hidden in"), Tensor("U", "recurrent", "hidden in"), Tensor("b", "input_bias", "hidden")),
        "their documentation", "theirs.RNN", holds=Holds(biases=("input",), layers=False, directions=1),
    )  # fmt: skip
    installed(monkeypatch, module, tmp_path)
    np.savez(tmp_path / "m.npz", W=np.ones((2, 3), np.float32), U=np.eye(2, dtype=np.float32), b=np.zeros(2, np.float32))
    checkpoint = rc.load(tmp_path / "m.npz")
    assert (checkpoint.format, list(checkpoint.layers)) == ("theirs", [""])


def test_a_package_that_cannot_be_imported_is_named_and_stops_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    installed(monkeypatch, None, tmp_path)
    with pytest.warns(UserWarning, match="'their_formats', which adds formats, cannot be imported, and its formats are missing"):
        assert "pytorch.lstm" in registry.layouts()


def test_a_command_warns_of_it_in_a_line_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "theirs-1.0.dist-info").mkdir()
    (tmp_path / "theirs-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n")
    (tmp_path / "theirs-1.0.dist-info" / "entry_points.txt").write_text("[rnnconvert.formats]\nours = absent_formats\n")
    words = [sys.executable, "-m", "rnnconvert", "formats"]
    done = subprocess.run(words, capture_output=True, text=True, check=True, cwd=ROOT,
                          env={**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"})  # fmt: skip
    assert re.fullmatch(r"warning: the package 'absent_formats', which adds formats, cannot be imported.*\n", done.stderr), done.stderr


COUPLED = """
[[layout]]
name = "ours.coupled_lstm"
kind = "lstm"
gates = "g f o"
coupled = "i"
tensors = [
  { name = "kernel", parts = "input recurrent", axes = "(part in) (gate hidden)" },
  { name = "bias", parts = "input_bias", axes = "(gate hidden)" },
]
holds = { biases = ["input"], layers = false, directions = 1 }
"""


def test_a_gate_without_arrays_is_what_another_leaves(tmp_path: Path) -> None:
    (tmp_path / "ours.toml").write_text(COUPLED)
    registry.add(read(tmp_path / "ours.toml"))
    random = np.random.default_rng(1)
    kernel, bias = random.normal(size=(5, 6)), random.normal(size=6)
    arrays: dict[str, Any] = {"encoder/kernel": kernel, "encoder/bias": bias}
    np.savez(tmp_path / "a.npz", **arrays)
    stack = rc.load(tmp_path / "a.npz").layers["encoder"]
    x = random.normal(size=(4, 1, 3))
    h, c, expected = np.zeros((1, 2)), np.zeros((1, 2)), []
    for step in x:
        g, f, o = np.split(np.concatenate([step, h], 1) @ kernel + bias, 3, axis=1)
        forget = 1 / (1 + np.exp(-f))
        c = c * forget + np.tanh(g) * (1 - forget)
        h = np.tanh(c) / (1 + np.exp(-o))
        expected.append(h)
    np.testing.assert_allclose(run(stack, x).y, expected, rtol=1e-12)
    back = rc.pack(stack, "ours")
    assert isinstance(back, dict)
    np.testing.assert_array_equal(back["kernel"], kernel)
    # What has both gates goes elsewhere, with the coupled one written out; and does not come here.
    rc.save(rc.load(tmp_path / "a.npz"), tmp_path / "a.onnx")
    (other,) = rc.load(tmp_path / "a.onnx").layers.values()
    np.testing.assert_allclose(run(other, x).y, expected, rtol=1e-12)
    with pytest.raises(rc.RefusedError, match="it does not have this cell"):
        rc.pack(other, "ours")
    (tmp_path / "ours.toml").write_text(COUPLED.replace('coupled = "i"', 'coupled = "g"'))
    with pytest.raises(rc.UnreadableError, match="coupled is 'g'; an lstm may have 'i' or 'f'"):
        read(tmp_path / "ours.toml")


CELL = """
[[layout]]
name = "mine.lstm"
kind = "lstm"
gates = "i g f o"
tensors = [
    { name = "W_xh", parts = "input", axes = "in (gate hidden)" },
    { name = "W_hh", parts = "recurrent", axes = "in (gate hidden)" },
    { name = "bias", parts = "input_bias", axes = "(gate hidden)" },
]
holds = { biases = ["input"], layers = false, directions = 1 }
"""


@pytest.mark.parametrize("ending", [".pt", ".ckpt.index"])
def test_a_layout_reads_a_cell_of_ones_own_in_a_file_of_any_kind(ending: str, tmp_path: Path) -> None:
    """A state dictionary, say, of a cell that somebody wrote: the draft of its refusal, corrected, is all that it takes."""
    numbers = np.random.default_rng(0)
    shapes = {"rnn.W_xh": (3, 20), "rnn.W_hh": (5, 20), "rnn.bias": (20,), "head.weight": (2, 5)}
    arrays: dict[str, Any] = {name: numbers.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    path = tmp_path / f"own{ending}"
    if ending == ".pt":
        torch = needed("torch", "torch")
        torch.save({name: torch.from_numpy(array) for name, array in arrays.items()}, path)
    else:
        tensor_bundle.write(path, {name.replace(".", "/"): array for name, array in arrays.items()})
    with pytest.raises(UnreadableError, match="no recurrent layer in it could be read") as raised:
        rc.convert(path, tmp_path / "out.onnx")
    assert any("forget_bias" in line for line in raised.value.details)
    (tmp_path / "own.toml").write_text(CELL)
    np.savez(tmp_path / "own.npz", **arrays)
    with registry.added_for_now(read(tmp_path / "own.toml")):
        (layer,), (expected,) = (rc.load(file).layers.values() for file in (path, tmp_path / "own.npz"))
        with pytest.raises(UnreadableError, match="no recurrent layer"):
            rc.convert(path, tmp_path / "out.onnx", source_format="pytorch" if ending == ".pt" else "tensorflow1")
    x = numbers.normal(size=(4, 2, 3))
    np.testing.assert_array_equal(run(layer, x).y, run(expected, x).y)
