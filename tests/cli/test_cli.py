"""The command line as its users meet it: exit codes, what goes to which stream, what is left on the disk."""

from __future__ import annotations

import inspect
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest
from click.testing import CliRunner

import rnnconvert as rc
from rnnconvert.cli.main import main
from rnnconvert.files.adapter import adapters
from rnnconvert.files.catalogue import OPTIONS
from rnnconvert.files.options import Options
from tests import ROOT
from tests.helpers.commands import call, on_a_terminal
from tests.helpers.requirements import needed
from tests.helpers.sources import onnx_arrays, onnx_node, stack, write

COMMAND = [sys.executable, "-c", "from rnnconvert.cli.main import main; main()"]
COMMANDS = [
    "convert", "inspect", "map", "transplant", "scaffold", "export",
    "upgrade", "verify", "run", "check", "report", "diff", "diagnose", "executors",
    "formats", "fuse", "layout", "view", "identify", "batch", "demo",
]  # fmt: skip


def run(*arguments: object, **more: str) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own."""
    command = [*COMMAND, *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **more}
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=environment)


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write(tmp_path / "source.safetensors")


@pytest.fixture
def peepholes(tmp_path: Path) -> Path:
    """An LSTM that only ONNX can hold."""
    return onnx_node(tmp_path / "peepholes.onnx", "LSTM", onnx_arrays("LSTM", peepholes=True))


# Exit codes, and what an error leaves behind --------------------------------------------------------


def test_a_conversion_ends_with_0_and_says_what_it_did_on_stderr_only(source: Path, tmp_path: Path) -> None:
    result = call("convert", source, tmp_path / "out.onnx")
    assert result.exit_code == 0
    assert result.stdout == ""
    assert "out.onnx (onnx)" in result.stderr and "source.safetensors (pytorch)" in result.stderr
    assert sorted(files(tmp_path)) == ["out.onnx", "source.safetensors"]


ERRORS = [
    (2, ["convert", "{source}"], "TARGET is missing: give SOURCE and TARGET, or --out-dir FOLDER"),
    (2, ["convert", "{source}", "{out}.onnx", "--no-such-flag"], "No such option"),
    (2, ["convert", "{source}", "{out}.xyz"], "cannot infer the format"),
    (2, ["convert", "{source}", "{out}.onnx", "--to", "caffe"], "Unknown format 'caffe'"),
    (2, ["convert", "{source}", "{out}.onnx", "--from", "caffe"], "Unknown format 'caffe'"),
    (2, ["convert", "{source}", "{out}.onnx", "--to", "keras"], "keras cannot be written to a file of this name"),
    (2, ["convert", "{source}", "{out}.onnx", "--set", "opset"], "expected KEY=VALUE"),
    (2, ["convert", "{source}", "{out}.onnx", "--set", "opsett=17"], "Did you mean 'opset'"),
    (2, ["convert", "{source}", "{out}.onnx", "--set", "opset=many"], "is an integer"),
    (2, ["convert", "{source}", "{out}.onnx", "--set", "opset=२२"], "is an integer"),
    (2, ["convert", "{source}", "{out}.onnx", "--set", "opset=23"], "7 to 22"),
    (2, ["convert", "{source}", "{out}.onnx", "--set", "stack=glue"], "one of: join, split"),
    (2, ["convert", "{source}", "{out}.onnx", "--set", "nobody:opset=9"], "'nobody'"),
    (2, ["convert", "{source}", "{out}.onnx", "--layer", "nobody"], "no recurrent layer 'nobody'"),
    (2, ["convert", "{source}", "{out}.onnx", "--dtype", "int8"], "int8"),
    (2, ["convert", "{source}", "{source}"], "--force"),
    (2, ["convert", "{source}", "{folder}/no/such/folder/out.onnx"], "cannot write"),
    (2, ["convert", "{raw}", "{out}.onnx", "--from", "cudnn"], "--set cell="),
    (2, ["layout", "cudnn", "--cell", "gru", "--no-reset-after"], "no layout for gru"),
    (2, ["nonsense"], "No such command"),
    (3, ["convert", "{folder}/absent.pt", "{out}.onnx"], "No such file"),
    (3, ["convert", "{folder}", "{out}.onnx"], ""),
    (3, ["convert", "{empty}", "{out}.onnx"], "empty"),
    (3, ["convert", "{text}", "{out}.onnx"], "no known format"),
    (3, ["inspect", "{text}"], "no known format"),
    (3, ["convert", "{none}", "{out}.onnx"], "no recurrent layer"),
    (4, ["convert", "{peepholes}", "{out}.pt"], "peepholes"),
    (4, ["convert", "{source}", "{out}.bin", "--strict", "--dtype", "float16"], "--strict"),
]


@pytest.mark.parametrize(("code", "arguments", "words"), ERRORS, ids=[" ".join(row[1]) for row in ERRORS])
def test_an_error_has_its_code_one_paragraph_and_changes_nothing(
    code: int, arguments: Sequence[str], words: str, source: Path, peepholes: Path, tmp_path: Path
) -> None:
    (tmp_path / "empty.pt").touch()
    (tmp_path / "text.txt").write_text("these are not weights")
    (tmp_path / "raw.bin").write_bytes(bytes(400))
    rc_none = tmp_path / "none.safetensors"
    from safetensors.numpy import save_file

    save_file({"dense.weight": np.ones((2, 2), np.float32)}, rc_none)
    before = files(tmp_path)
    places = {
        "source": source, "peepholes": peepholes, "folder": tmp_path, "out": tmp_path / "out", "none": rc_none,
        "empty": tmp_path / "empty.pt", "text": tmp_path / "text.txt", "raw": tmp_path / "raw.bin",
    }  # fmt: skip
    result = call(*(argument.format_map(places) for argument in arguments))
    assert result.exit_code == code, result.output
    assert result.stdout == ""
    assert words in result.stderr
    assert "Traceback" not in result.stderr
    errors = [line for line in result.stderr.splitlines() if line.lower().startswith("error")]
    assert len(errors) == 1
    assert files(tmp_path) == before


def test_a_missing_package_ends_with_5(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def read(*_: object) -> None:
        raise rc.MissingPackageError("tensorflow", "read a SavedModel")

    monkeypatch.setattr(adapters()["pytorch"], "read", read)
    result = call("convert", source, tmp_path / "out.onnx")
    assert result.exit_code == 5
    assert "pip install tensorflow" in result.stderr


def test_running_out_of_memory_is_one_line(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def read(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(adapters()["pytorch"], "read", read)
    result = call("inspect", source)
    assert result.exit_code == 3
    assert result.stderr == "error: out of memory\n"


def test_an_interrupt_ends_with_130_and_one_line(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def read(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(adapters()["pytorch"], "read", read)
    result = call("inspect", source)
    assert result.exit_code == 130
    assert "interrupted" in result.stderr and len(result.stderr.splitlines()) == 1


def test_debug_shows_where_an_error_comes_from(tmp_path: Path) -> None:
    path = tmp_path / "absent.pt"
    process = run("--debug", "inspect", path)
    assert process.returncode == 3
    assert "Traceback" in process.stderr and "rnnconvert/files/opened.py" in process.stderr


def test_an_existing_target_needs_force_and_is_then_replaced(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "out.onnx"
    target.write_bytes(b"precious")
    assert call("convert", source, target).exit_code == 2
    assert target.read_bytes() == b"precious"
    assert call("convert", source, target, "--force").exit_code == 0
    assert rc.load(target).layers


@pytest.mark.parametrize(
    ("name", "companion", "settings"),
    [("out.bin", "out.bin.json", []), ("out.ckpt.index", "out.ckpt.data-00000-of-00001", ["--to", "tensorflow1"])],
)
def test_a_file_beside_the_target_needs_force_too(name: str, companion: str, settings: list[str], source: Path, tmp_path: Path) -> None:
    (tmp_path / companion).write_bytes(b"precious")
    before = files(tmp_path)
    result = call("convert", source, tmp_path / name, *settings)
    assert result.exit_code == 2
    assert companion in result.stderr and "--force" in result.stderr
    assert files(tmp_path) == before
    assert call("convert", source, tmp_path / name, "--force", *settings).exit_code == 0
    assert (tmp_path / companion).read_bytes() != b"precious"


def test_a_file_can_take_its_own_place(source: Path) -> None:
    (before,) = rc.load(source).layers.values()
    weights = np.array(before.first.get("recurrent", "f"))
    assert call("convert", source, source, "--force", "--dtype", "float64").exit_code == 0
    (after,) = rc.load(source).layers.values()
    assert after.dtype == np.float64
    np.testing.assert_array_equal(after.first.get("recurrent", "f"), weights)


def test_a_dry_run_says_the_same_and_writes_nothing(source: Path, tmp_path: Path) -> None:
    before = files(tmp_path)
    dry = call("convert", source, tmp_path / "out.onnx", "--dry-run")
    assert dry.exit_code == 0
    assert "would write" in dry.stderr
    assert files(tmp_path) == before
    assert call("convert", source, source, "--dry-run").exit_code == 0
    assert call("convert", source, tmp_path / "out.onnx", "--dry-run", "--set", "opset=99").exit_code == 2


# Streams --------------------------------------------------------------------------------------------


def test_json_of_a_conversion_is_all_that_stdout_has(source: Path, tmp_path: Path) -> None:
    result = call("convert", source, tmp_path / "out.onnx", "--json")
    document = json.loads(result.stdout)
    assert result.stderr == ""
    assert document["target_format"] == "onnx" and document["source_format"] == "pytorch"
    assert document["exact"] is True and document["written"] is True
    assert json.loads(call("convert", source, tmp_path / "o.onnx", "--json", "--dry-run").stdout)["written"] is False


JSON_ERRORS = [
    (2, "usage", ["convert", "{source}", "--json"]),
    (2, "usage", ["convert", "--json", "{source}", "{out}.onnx", "--no-such-flag"]),
    (2, "usage", ["convert", "{source}", "{out}.onnx", "--set", "opset=99", "--json"]),
    (2, "usage", ["inspect", "--json"]),
    (2, "usage", ["formats", "caffe", "--json"]),
    (2, "usage", ["layout", "cudnn", "--cell", "gru", "--no-reset-after", "--json"]),
    (2, "usage", ["nonsense", "--json"]),
    (3, "unreadable", ["inspect", "{folder}/absent.pt", "--json"]),
    (3, "unreadable", ["map", "{source}", "{folder}/absent.pt", "--json"]),
    (3, "unreadable", ["transplant", "{source}", "--into", "{folder}/absent.pt", "-o", "{out}.pt", "--json"]),
    (3, "unreadable", ["diff", "{source}", "{folder}/absent.pt", "--json"]),
    (4, "refused", ["convert", "{peepholes}", "{out}.pt", "--json"]),
    (4, "does_not_fit", ["transplant", "{peepholes}", "--into", "{source}", "-o", "{out}.safetensors", "--json"]),
]


@pytest.mark.parametrize(("code", "kind", "words"), JSON_ERRORS, ids=[" ".join(row[2]) for row in JSON_ERRORS])
def test_an_error_for_machines_is_one_object_on_stdout(
    code: int, kind: str, words: list[str], source: Path, peepholes: Path, tmp_path: Path
) -> None:
    places = {"source": source, "peepholes": peepholes, "folder": tmp_path, "out": tmp_path / "out"}
    result = call(*(word.format_map(places) for word in words))
    assert (result.exit_code, result.stderr) == (code, "")
    document = json.loads(result.stdout)
    assert list(document) == ["error"]
    assert document["error"]["kind"] == kind and document["error"]["exit_code"] == code
    assert document["error"]["message"]


@pytest.mark.parametrize("name", [*COMMANDS, "executors add", "executors remove"])
def test_every_command_has_json(name: str) -> None:
    assert re.search(r"^  --json\b", call(*name.split(), "--help").stdout, re.MULTILINE)


def test_json_of_a_run_says_what_ran(source: Path, tmp_path: Path) -> None:
    results = tmp_path / "kept.safetensors"
    result = call("run", source, "--on", "reference", "--save", results, "--json")
    document = json.loads(result.stdout)
    assert result.stderr == "" and result.exit_code == document["exit_code"] == 5  # no framework ran it
    assert document["runs"] == [] and document["kept"] == str(results) and results.exists()
    needed("torch", "torch")
    document = json.loads(call("run", source, "--on", "torch-cpu", "--save", results, "--json").stdout)
    assert document["exit_code"] == 0 and document["model"]["path"] == str(source)
    assert {(entry["executor"], entry["status"], entry["agrees"]) for entry in document["runs"]} == {("torch-cpu", "ran", True)}


def test_what_an_error_knows_is_in_its_document(source: Path, peepholes: Path, tmp_path: Path) -> None:
    error = json.loads(call("convert", peepholes, tmp_path / "out.pt", "--json").stdout)["error"]
    assert error["layer"] == "rnn" and error["feature"] and error["reason"] and error["remedy"]
    error = json.loads(call("inspect", tmp_path / "absent.pt", "--json").stdout)["error"]
    assert error["path"] == str(tmp_path / "absent.pt") and error["problem"] == "No such file or directory"
    words = ("transplant", peepholes, "--into", source, "-o", tmp_path / "o.safetensors", "--json")
    assert json.loads(call(*words).stdout)["error"]["problems"]


def test_an_interrupt_and_no_memory_are_documents_too(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for raised, kind, code in ((KeyboardInterrupt, "interrupted", 130), (MemoryError, "out_of_memory", 3)):

        def read(*_: object, raised: type[BaseException] = raised) -> None:
            raise raised

        monkeypatch.setattr(adapters()["pytorch"], "read", read)
        result = call("inspect", source, "--json")
        error = json.loads(result.stdout)["error"]
        assert (result.exit_code, error["exit_code"], error["kind"]) == (code, code, kind)


def test_inspect_json_has_every_layer_and_every_verdict(peepholes: Path) -> None:
    result = call("inspect", peepholes, "--json", "--targets")
    assert result.stderr == ""
    document = json.loads(result.stdout)
    (layer,) = document["layers"]
    assert layer["name"] == "rnn"
    (direction,) = layer["layers"][0]["directions"]
    assert direction["cell"] == "lstm" and direction["peepholes"] is True and direction["dtype"] == "float32"
    assert (direction["input_size"], direction["hidden_size"]) == (3, 4)
    verdicts = {row["target"]: row["verdict"] for row in document["targets"]}
    assert list(verdicts) == [name for name, adapter in adapters().items() if adapter.layouts(Options())]
    assert verdicts["onnx"] == "exact" and {verdicts[name] for name in ("pytorch", "keras", "cudnn", "mxnet")} == {"refused"}


def test_inspect_tells_people_the_same(peepholes: Path) -> None:
    result = call("inspect", peepholes, "--targets", "-v")
    assert result.exit_code == 0 and result.stderr.startswith("took ")
    assert "peepholes" in result.stdout and "3 -> 4" in result.stdout
    assert re.search(r"pytorch +refused", result.stdout) and re.search(r"onnx +exact", result.stdout)
    assert "recognised" in result.stdout
    assert "recognised" not in call("inspect", peepholes).stdout


def test_quiet_says_nothing_but_errors(source: Path, tmp_path: Path) -> None:
    result = call("convert", source, tmp_path / "out.onnx", "-q")
    assert (result.exit_code, result.output) == (0, "")
    again = call("convert", source, tmp_path / "out.onnx", "-q")
    assert again.exit_code == 2 and "--force" in again.stderr


def test_verbose_says_how_the_source_was_recognised(source: Path, tmp_path: Path) -> None:
    plain = call("convert", source, tmp_path / "a.onnx").stderr
    verbose = call("convert", source, tmp_path / "b.onnx", "-v").stderr
    assert "torch.nn.LSTM" not in plain
    assert "named as those of torch.nn.LSTM" in verbose
    assert len(verbose.splitlines()) > len(plain.splitlines())


def test_what_was_assumed_is_said_with_the_option_that_decides_it(tmp_path: Path) -> None:
    path = write(tmp_path / "rnn.safetensors", stack("rnn"))
    message = call("convert", path, tmp_path / "out.onnx").stderr
    assert "nonlinearity=tanh" in message and "--set nonlinearity=tanh|relu" in message
    assert "nonlinearity" not in call("convert", path, tmp_path / "o.onnx", "--set", "nonlinearity=relu").stderr
    assert "not in the file, assumed: nonlinearity" in call("inspect", path).stdout


def test_a_setting_for_a_layer_that_there_is_not_is_an_error_of_inspect_too(source: Path) -> None:
    result = call("inspect", source, "--set", "nobody:nonlinearity=relu")
    assert result.exit_code == 2 and "'nobody'" in result.stderr


def test_a_closed_pipe_ends_the_program_as_sigpipe_does(source: Path) -> None:
    many = run("formats", "--json")
    assert len(many.stdout) > 1 << 12
    reader, writer = os.pipe()
    os.close(reader)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.run(
        [*COMMAND, "formats", "--json"], stdout=writer, stderr=subprocess.PIPE, text=True, check=False, env=environment
    )
    os.close(writer)
    assert (process.returncode, process.stderr) == (141, "")


# Terminals ------------------------------------------------------------------------------------------


def test_colour_is_for_terminals_and_not_with_no_color(tmp_path: Path) -> None:
    arguments = ["inspect", tmp_path / "absent.pt"]
    assert "\x1b[" in on_a_terminal(*arguments)[1]
    assert "\x1b[" not in on_a_terminal(*arguments, NO_COLOR="1")[1]
    assert "\x1b[" not in run(*arguments).stderr


# Help, formats, layout ------------------------------------------------------------------------------


def test_every_command_is_tested_here() -> None:
    assert main.list_commands(click.Context(main)) == sorted(COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_reads_the_options_that_it_has_and_all_of_them(name: str) -> None:
    command = main.get_command(click.Context(main), name)
    assert command is not None
    callback: Any = inspect.unwrap(command.callback or (lambda: None))
    takes_all = [*inspect.signature(callback).parameters] == ["asked"]
    text = Path(inspect.getfile(callback)).read_text(encoding="utf-8") if takes_all else ""
    read, exposed = set(re.findall(r"\basked\.(\w+)", text)), {param.name for param in command.params if param.expose_value}
    assert read <= exposed
    assert not read or read == exposed or "vars(asked)" in text


@pytest.mark.parametrize("arguments", [["--help"], ["-h"], *([command, "--help"] for command in COMMANDS)])
def test_help_has_examples(arguments: list[str]) -> None:
    result = call(*arguments)
    assert result.exit_code == 0
    examples = result.stdout.partition("Example")[2]
    assert "  rnnconvert " in examples


@pytest.mark.parametrize("command", COMMANDS)
def test_the_examples_of_the_help_are_commands_that_there_are(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every example is understood: it fails for want of its file, its GPU or its interpreter at most."""
    monkeypatch.chdir(tmp_path)
    for line in call(command, "--help").stdout.partition("Examples:")[2].splitlines():
        if line.split()[:1] != ["rnnconvert"]:
            continue
        words = shlex.split(line)
        if "<" in words:  # what a shell reads
            continue
        places = [str(tmp_path / word) if "." in word and word[0] not in "-." else word for word in words[1:]]
        result = call(*places)
        printed = result.stdout if "--json" in words else result.stderr
        absent = "No such file" in printed or "cannot run here" in printed or "was added" in printed
        assert result.exit_code == 0 or (result.exit_code in (2, 3, 5) and absent), printed


def test_help_names_the_exit_codes() -> None:
    text = " ".join(call("--help").stdout.split())
    for code in ("0 done", "1 not equal", "2 usage", "3 unreadable", "4 refused", "5 missing"):
        assert code in text


@pytest.mark.parametrize("width", [80, 100])
@pytest.mark.parametrize("arguments", [[], *([command] for command in COMMANDS), ["executors", "add"]])
def test_no_line_of_the_help_is_cut_off(arguments: list[str], width: int) -> None:
    lines = CliRunner().invoke(main, [*arguments, "--help"], terminal_width=width).stdout.splitlines()
    assert not [line for line in lines if len(line) > width]


def test_help_fits_a_terminal_of_24_lines_with_the_prompt_below_it() -> None:
    text = call("--help").stdout
    assert len(text.splitlines()) <= 23
    assert "..." not in text.replace("COMMAND [ARGS]...", "")
    assert all(re.search(rf"\b{command}\b", text) for command in COMMANDS)


@pytest.mark.parametrize(
    ("word", "hint"), [("inspct", "Did you mean 'inspect'?"), ("qqqqq", "--help lists"), (__file__, f"inspect {__file__}")]
)
def test_a_mistyped_command_is_guessed(word: str, hint: str) -> None:
    result = call(word, "x")
    assert result.exit_code == 2 and hint in result.stderr


def test_a_file_that_may_not_be_read_is_no_wrong_usage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only root may open it, so here the system only says that it may not: click would end with 2 for that."""
    path = tmp_path / "secret.pt"
    path.write_bytes(b"not a model")
    monkeypatch.setattr(os, "access", lambda *_, **__: False)
    for words in (["inspect"], ["diff", path], ["upgrade", tmp_path / "new.keras"], ["report"]):
        command, *others = words
        result = call(command, path, *others)
        assert result.exit_code == 3, result.output


def test_formats_lists_what_can_be_read_and_written() -> None:
    text = call("formats").stdout
    places = [text.index(f"\n{heading}") for heading in ("runtimes and exchange:", "audio plug-ins:", "microcontrollers:")]
    assert places == sorted(places) and text.index("\n  pytorch ") < places[0] < text.index("\n  onnx ")
    assert places[0] < text.index("\n  tflite ") < places[1] < text.index("\n  rtneural ") < places[2] < text.index("\n  c_header ")
    lines = {line.split()[0]: line for line in text.splitlines() if line.startswith("  ")}
    assert {*lines} == {*adapters()} and len(text.splitlines()) < len(lines) + 10
    for name, adapter in adapters().items():
        assert all(suffix in lines[name] for suffix in adapter.SUFFIXES)
    assert "read only" in lines["tesseract"] and "read, written" in lines["keras"]
    assert "keras.cudnn_lstm" in call("formats", "keras").stdout
    document = json.loads(call("formats", "--json").stdout)
    assert sorted(document) == sorted(adapters())
    assert {layout["name"] for layout in document["onnx"]["layouts"]} >= {"onnx.lstm", "onnx.gru_reset_before"}


def test_formats_says_all_that_is_known_of_one() -> None:
    text = call("formats", "lasagne").stdout
    assert text.startswith("lasagne  (.npz)") and "keras" not in text
    assert "    - files hold the numbers in order without names" in text
    assert "--set release=0.1|0.2: an LSTM with peepholes" in text
    assert "--set nonlinearity=tanh|relu: the function of a plain RNN; tanh by default (relu by default)" in text
    assert list(json.loads(call("formats", "lasagne", "--json").stdout)) == ["lasagne"]
    assert list(json.loads(call("formats", "lasagne", "--options", "--json").stdout)) == [
        "nonlinearity", "activation", "recurrent_activation", "output_activation", "go_backwards", "arrays", "release",
    ]  # fmt: skip
    result = call("formats", "caffe")
    assert result.exit_code == 2 and "Unknown format 'caffe'" in result.output


def test_formats_lists_the_options() -> None:
    text = call("formats", "--options").stdout
    assert all(f"{name}=" in text for name in OPTIONS)
    document = json.loads(call("formats", "--options", "--json").stdout)
    assert sorted(document) == sorted(OPTIONS)
    assert document["stack"]["choices"] == ["join", "split"]


def test_layout_prints_offsets_that_hold(tmp_path: Path) -> None:
    document = json.loads(call("layout", "cudnn", "--cell", "lstm", "--json").stdout)
    random = stack("lstm", dtype=np.float64, name="s")
    form_size = (4 * 5 * 3 + 4 * 5 * 5 + 8 * 5,)
    assert tuple(document["arrays"]["params"]) == form_size
    small = json.loads(call("layout", "cudnn", "--cell", "lstm", "--hidden-size", 4, "--json").stdout)
    buffer = rc.pack(random, "cudnn")
    rows = {(row["part"], row["gate"]): row for row in small["offsets"]}
    row = rows["recurrent", "g"]
    np.testing.assert_array_equal(buffer[row["offset"] : row["offset"] + 16].reshape(row["shape"]), random.first.get("recurrent", "g"))
    assert "recurrent" in call("layout", "cudnn", "--cell", "lstm").stdout


@pytest.mark.parametrize("cell", ["rnn", "gru", "lstm"])
@pytest.mark.parametrize("name", ["pytorch", "keras", "onnx", "cudnn", "flax", "nnx"])
def test_layout_knows_every_format_and_cell(name: str, cell: str) -> None:
    result = call("layout", name, "--cell", cell)
    assert result.exit_code == 0 and f"{name}." in result.stdout


def test_the_version_is_the_packages() -> None:
    assert rc.__version__ in call("--version").stdout


# The real command -----------------------------------------------------------------------------------


def test_the_command_itself_converts_and_refuses(source: Path, peepholes: Path, tmp_path: Path) -> None:
    done = run("convert", source, tmp_path / "out.onnx", "--json")
    assert done.returncode == 0 and json.loads(done.stdout)["layers"] and done.stderr == ""
    refused = run("convert", peepholes, tmp_path / "out.pt")
    assert refused.returncode == 4 and refused.stdout == "" and "peepholes" in refused.stderr
    assert not (tmp_path / "out.pt").exists()


# Devices and pipes -----------------------------------------------------------------------------------


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    if not hasattr(os, "mkfifo"):
        pytest.skip("this system has no named pipes")
    os.mkfifo(tmp_path / "pipe")
    return tmp_path / "pipe"


WRITING = [
    ("convert", "{source}", "{pipe}.onnx", "--force"),
    ("convert", "{source}", "{pipe}.onnx", "--force", "--verify"),
    ("run", "{source}", "--on", "reference", "--save", "{pipe}.safetensors"),
    ("run", "{source}", "--on", "reference", "--save-inputs", "{pipe}.npz"),
    ("verify", "{source}", "--on", "reference", "--save-outputs", "{pipe}.safetensors"),
    ("verify", "{source}", "--on", "reference", "--report", "{pipe}.html"),
    ("verify", "{source}", "--on", "reference", "--sarif", "{pipe}.sarif"),
    ("map", "{source}", "{source}", "-o", "{pipe}.yaml", "--force"),
    ("transplant", "{source}", "--into", "{source}", "-o", "{pipe}.safetensors", "--force"),
]


@pytest.mark.parametrize("words", WRITING, ids=" ".join)
def test_a_pipe_or_a_device_is_not_replaced(words: tuple[str, ...], source: Path, pipe: Path) -> None:
    written = [word.format(source=source, pipe=pipe) for word in words]
    place = Path(next(word for word in written if word.startswith(f"{pipe}.")))
    os.mkfifo(place)
    result = call(*written)
    assert result.exit_code in (2, 3) and "not a regular file" in result.output, result.output
    assert place.is_fifo()


READING = [
    ("inspect", "{pipe}"), ("convert", "{pipe}", "out.onnx"), ("verify", "{pipe}"), ("verify", "{source}", "{pipe}"),
    ("run", "{pipe}", "--save", "out.safetensors"), ("diff", "{source}", "{pipe}"), ("diagnose", "{pipe}", "{source}"),
    ("map", "{source}", "{pipe}"), ("transplant", "{pipe}", "--into", "{source}", "-o", "out.pt"),
    ("upgrade", "{pipe}", "out.keras"), ("fuse", "{pipe}", "-o", "out.onnx"),
    ("report", "{pipe}"), ("check", "--config", "{pipe}"), ("inspect", "{source}", "--layout", "{pipe}"),
    ("transplant", "{source}", "--into", "{source}", "-o", "out.pt", "--mapping", "{pipe}"),
]  # fmt: skip


@pytest.mark.drawn(6)
@pytest.mark.parametrize("words", READING, ids=" ".join)
def test_nobody_waits_for_a_pipe(words: tuple[str, ...], source: Path, pipe: Path) -> None:
    result = run(*(word.format(source=source, pipe=pipe) for word in words))
    assert result.returncode == 3 and "not a regular file" in result.stderr, result.stderr


@pytest.mark.skipif(not Path("/dev/full").is_char_device(), reason="this system has no full device")
def test_a_full_device_behind_the_output_is_an_error(source: Path) -> None:
    for words in (["inspect", source], ["inspect", source, "--json"], ["--help"], ["formats"]):
        with Path("/dev/full").open("w") as full:
            done = subprocess.run([*COMMAND, *map(str, words)], stdout=full, stderr=subprocess.PIPE, text=True)
        assert done.returncode == 74 and done.stderr.splitlines() == ["error: cannot write the output: No space left on device"]
    with Path("/dev/full").open("w") as full:
        code = subprocess.run([*COMMAND, "inspect", "absent.pt"], stderr=full).returncode
    assert code == 3


@pytest.mark.parametrize("name", ["model.pt", "model.keras"])
def test_a_zip_archive_that_is_cut_off_is_called_so(name: str, source: Path, tmp_path: Path) -> None:
    rc.convert(source, tmp_path / name)
    content = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(content[: len(content) // 2])
    result = call("inspect", tmp_path / name)
    assert result.exit_code == 3 and "cut off or damaged; fetch it again" in result.output
