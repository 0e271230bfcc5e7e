"""Files through pipes, names in capitals, and what the shell completes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from click.shell_completion import ShellComplete
from safetensors.numpy import save_file

import rnnconvert as rc
from rnnconvert.cli.main import main
from rnnconvert.core.weights import Recurrent
from rnnconvert.files.adapter import adapters
from rnnconvert.judging.case_kinds import CASES
from rnnconvert.language.registry import cards
from rnnconvert.running import registry
from tests import ROOT
from tests.helpers.commands import call
from tests.helpers.requirements import needed
from tests.helpers.sources import checkpoint, stack, write
from tests.helpers.stacks import BOTH


def same(first: Recurrent, second: Recurrent) -> bool:
    pairs = zip(first.directions(), second.directions(), strict=True)
    return all(
        np.array_equal(np.asarray(here.arrays[key]), np.asarray(there.arrays[key]))
        for (_, _, here), (_, _, there) in pairs
        for key in here.arrays
    )


# Pipes ----------------------------------------------------------------------------------------------


PIPED = {".safetensors": "pytorch", ".pt": "pytorch", ".npz": "haiku", ".onnx": "onnx", ".keras": "keras", ".msgpack": "flax"}


@pytest.mark.parametrize("ending", PIPED)
def test_a_file_comes_from_stdin_and_goes_to_stdout(ending: str, tmp_path: Path) -> None:
    source = write(tmp_path / f"source{ending}", stack(), target_format=PIPED[ending])
    to = PIPED[ending] if ending == ".pt" else f"{PIPED[ending]}{ending}"
    result = call("convert", "-", "-", "--to", to, stdin=source.read_bytes())
    assert result.exit_code == 0, result.stderr
    assert "wrote stdout" in result.stderr and "from stdin" in result.stderr
    again = tmp_path / f"again{ending}"
    again.write_bytes(result.stdout_bytes)
    (mine,), (its,) = (rc.load(path).layers.values() for path in (source, again))
    assert same(mine, its)
    assert list(tmp_path.iterdir()).__len__() == 2


def test_the_real_command_in_a_pipe(tmp_path: Path) -> None:
    source = write(tmp_path / "source.pt", stack())
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = f"{sys.executable} -m rnnconvert"
    line = f"{command} convert {source} - --to onnx -q | {command} convert - - --to keras -q | {command} inspect - --json"
    done = subprocess.run(line, shell=True, capture_output=True, text=True, env=environment, check=True, timeout=120)
    document = json.loads(done.stdout)
    assert (document["path"], document["format"], done.stderr) == ("stdin", "keras", "")
    assert [layer["description"] for layer in document["layers"]] == [stack().describe().replace("two biases", "one bias")]


def test_inspect_map_and_transplant_read_stdin(tmp_path: Path) -> None:
    source = write(tmp_path / "source.pt", stack())
    target = write(tmp_path / "target.pt", stack(seed=2))
    data = source.read_bytes()
    assert call("inspect", "-", stdin=data).stdout.startswith("stdin: pytorch")
    assert "layers:" in call("map", "-", target, stdin=data).stdout
    result = call("transplant", "-", "--into", target, "-o", "-", stdin=data)
    assert result.exit_code == 0, result.stderr
    (tmp_path / "filled.pt").write_bytes(result.stdout_bytes)
    (mine,), (its,) = (rc.load(path).layers.values() for path in (source, tmp_path / "filled.pt"))
    assert same(mine, its)


def test_what_is_proved_goes_to_stdout_too(tmp_path: Path) -> None:
    source = write(tmp_path / "source.pt", stack())
    result = call("convert", source, "-", "--to", "onnx", "--verify", "-q")
    assert result.exit_code == 0 and "equal" in result.stderr
    (tmp_path / "proved.onnx").write_bytes(result.stdout_bytes)
    assert rc.load(tmp_path / "proved.onnx").layers


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("convert", "{a}", "-"), 2, "Choose one with --to"),
        (("convert", "{a}", "-", "--to", "cudnn"), 2, "several files would be written (stdout.bin, stdout.bin.json)"),
        (("convert", "{a}", "-", "--to", "brainjs"), 2, "only read"),
        (("convert", "{a}", "-", "--to", "pytorch.onnx"), 2, "Choose one of: .pt, "),
        (("convert", "{a}", "-", "--to", "caffe"), 2, "Unknown format 'caffe'"),
        (("convert", "{a}", "-", "--to", "onnx", "--json"), 2, "--json prints on stdout"),
        (("transplant", "{a}", "--into", "{a}", "-o", "-", "--json"), 2, "--json prints on stdout"),
        (("convert", "-", "-", "--to", "onnx"), 3, "stdin: the file is empty"),
        (("inspect", "-", "-"), 2, "read only once"),
        (("map", "-", "-"), 2, "read only once"),
    ],
)
def test_what_a_pipe_cannot_do(words: Sequence[str], code: int, message: str, tmp_path: Path) -> None:
    source = write(tmp_path / "a.pt", stack())
    result = call(*(word.format(a=source) for word in words), stdin=b"")
    assert result.exit_code == code and message in result.output, result.output
    assert b"PK" not in result.stdout_bytes and [path.name for path in tmp_path.iterdir()] == ["a.pt"]


def test_nothing_is_written_to_a_terminal_or_after_an_error(tmp_path: Path) -> None:
    import pty

    source = write(tmp_path / "a.pt", stack())
    ours, theirs = pty.openpty()
    words = [sys.executable, "-m", "rnnconvert", "convert", str(source), "-", "--to", "onnx"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(words, stdout=theirs, stderr=subprocess.PIPE, text=True, env=environment, check=False)
    os.close(theirs)
    os.close(ours)
    assert done.returncode == 2 and "stdout is a terminal" in done.stderr
    result = call("convert", source, "-", "--to", "onnx", "--set", "opset=99")
    assert result.exit_code == 2 and result.stdout_bytes == b""
    assert call("convert", source, "-", "--to", "onnx", "--dry-run").stdout_bytes == b""


def test_an_ending_chosen_with_the_format_names_files_in_a_folder(tmp_path: Path) -> None:
    source = write(tmp_path / "a.onnx", stack())
    assert call("convert", source, "--to", "pytorch.safetensors", "--out-dir", tmp_path / "out").exit_code == 0
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["a.safetensors"]
    assert call("convert", source, f"{tmp_path}/", "--to", "keras.weights.h5").exit_code == 0
    assert (tmp_path / "a.weights.h5").is_file()


# Capitals -------------------------------------------------------------------------------------------


ENDINGS = [(name, ending) for name, adapter in adapters().items() for ending in adapter.SUFFIXES]


@pytest.mark.parametrize(("name", "ending"), ENDINGS)
def test_an_ending_in_capitals_is_the_same_ending(name: str, ending: str, tmp_path: Path) -> None:
    """Whatever a format writes under a name is written, and read, under the same name in capitals."""
    parts = frozenset({"input", "recurrent", "input_bias"})
    layer = stack("gru" if name in ("arraymancer",) else "lstm", parts=parts if name == "knet" else BOTH)
    plain, capital = tmp_path / f"model{ending}", tmp_path / f"MODEL{ending.upper()}"
    if name in cards() and ending in (*cards()[name].unwritten, ".jld2"):
        for path in (plain, capital):
            with pytest.raises(rc.UsageError, match=r"only read|cannot be written"):
                rc.save(checkpoint(layer), path, name)
        return
    for path in (plain, capital):
        rc.save(checkpoint(layer), path, name)
    names = {path.name for path in tmp_path.iterdir()}
    assert {entry.lower() for entry in names if entry.startswith("MODEL")} == {entry for entry in names if entry.startswith("model")}
    first, second = (rc.load(path, name) for path in (plain, capital))
    assert len(first.layers) == (name != "persistent_rnn")  # whose file does not show its sizes
    assert first.tensors.keys() == second.tensors.keys()
    if first.layers:
        assert rc.load(capital).format == rc.load(plain).format
    for before, after in zip(first.layers.values(), second.layers.values(), strict=True):
        assert same(before, after)
    if plain.is_file():
        assert plain.read_bytes()[:2] == capital.read_bytes()[:2]


def test_a_conversion_between_names_in_capitals(tmp_path: Path) -> None:
    source = write(tmp_path / "MODEL.SAFETENSORS", stack())
    assert call("convert", source, tmp_path / "X.ONNX").exit_code == 0
    assert call("convert", tmp_path / "X.ONNX", tmp_path / "Y.H5").exit_code == 0
    assert call("convert", tmp_path / "Y.H5", "--to", "pytorch", "--out-dir", tmp_path / "out").exit_code == 0
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["Y.pt"]
    assert call("transplant", source, "--into", tmp_path / "Y.H5", "-o", tmp_path / "Z.H5").exit_code == 0
    assert call("inspect", tmp_path / "Z.H5").stdout.splitlines()[0].startswith(f"{tmp_path / 'Z.H5'}: keras")


@pytest.mark.parametrize("ending", [".PT", ".SAFETENSORS", ".ONNX", ".KERAS", ".H5", ".Pt"])
def test_a_framework_runs_a_file_in_capitals_itself(ending: str, tmp_path: Path) -> None:
    name = {".ONNX": "onnxruntime", ".KERAS": "keras", ".H5": "keras"}.get(ending, "torch")
    needed(name, name)
    executor = {"onnxruntime": "onnxruntime-cpu", "keras": "keras-tensorflow", "torch": "torch-cpu"}[name]
    source = write(tmp_path / "source.safetensors", stack())
    assert call("convert", source, tmp_path / f"MODEL{ending}").exit_code == 0
    result = call("verify", tmp_path / f"MODEL{ending}", "--on", executor, "--json", "--no-explain")
    report = json.loads(result.stdout)
    runs = [run for layer in report["layers"] for run in layer["runs"]]
    assert report["verdict"] == "equal" and any(run["own_file"] and run["executor"] == executor for run in runs)


# Targets --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("words", [("{a}", "--targets", "onnx,keras"), ("--targets", "onnx,keras", "{a}"), ("--targets=onnx,keras", "{a}")])
def test_only_the_formats_named_are_tried(words: Sequence[str], tmp_path: Path) -> None:
    path = write(tmp_path / "a.pt", stack())
    document = json.loads(call("inspect", *(word.format(a=path) for word in words), "--json").stdout)
    assert sorted(row["target"] for row in document["targets"]) == ["keras", "onnx"]


@pytest.mark.parametrize("words", [("{a}", "--targets"), ("--targets", "{a}"), ("--targets", "all", "{a}")])
def test_targets_alone_means_all(words: Sequence[str], tmp_path: Path) -> None:
    path = write(tmp_path / "a.pt", stack())
    document = json.loads(call("inspect", *(word.format(a=path) for word in words), "--json").stdout)
    assert len(document["targets"]) > 15


def test_a_target_that_is_only_read_is_an_error(tmp_path: Path) -> None:
    path = write(tmp_path / "a.pt", stack())
    result = call("inspect", path, "--targets", "brainjs")
    assert result.exit_code == 2 and "brainjs files are only read" in result.stderr
    result = call("inspect", path, "--targets=caffe")
    assert result.exit_code == 2 and "Unknown format 'caffe'" in result.stderr


# Completion -----------------------------------------------------------------------------------------


def offered(*words: object) -> list[str]:
    """What the shell offers for the last word."""
    *before, last = map(str, words)
    complete = ShellComplete(main, {}, "rnnconvert", "_RNNCONVERT_COMPLETE")
    return [item.value for item in complete.get_completions(before, last)]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write(tmp_path / "model.safetensors", stack(name="encoder.lstm"), stack(name="decoder.lstm"))


def test_formats_are_completed(model: Path) -> None:
    assert offered("convert", model, "out", "--to", "py") == ["pytorch"]
    assert offered("convert", model, "out", "--from", "to") == ["torch7"]
    assert sorted(offered("formats", "")) == sorted(adapters())
    assert offered("inspect", model, "--targets", "on") == ["onednn", "onnx"]
    assert offered("inspect", model, "--targets", "keras,onn") == ["keras,onnx"]
    assert offered("diff", model, model, "--from-b", "lu") == ["lux"]


@pytest.mark.parametrize("command", ["convert", "diff", "diagnose"])
def test_layers_of_the_file_are_completed(command: str, model: Path) -> None:
    assert offered(command, model, model, "--layer", "") == ["encoder.lstm", "decoder.lstm"]
    assert offered(command, model, model, "--layer", "enc") == ["encoder.lstm"]


def test_settings_are_completed(model: Path) -> None:
    assert offered("inspect", model, "--set", "nonl") == ["nonlinearity="]
    assert offered("inspect", model, "--set", "nonlinearity=") == ["nonlinearity=tanh", "nonlinearity=relu"]
    assert offered("inspect", model, "--set", "decoder.lstm:nonlinearity=r") == ["decoder.lstm:nonlinearity=relu"]


def test_executors_and_cases_are_completed(model: Path) -> None:
    assert "torch-cpu" in offered("convert", model, "out", "--verify", "--on", "to")
    assert set(offered("verify", model, "--on", "")) >= {*registry.built_in(), "all"}
    assert sorted(offered("verify", model, "--case", "")) == sorted([*CASES, "all"])
    assert offered("verify", model, "--layer", "enc") == ["encoder.lstm"]


@pytest.mark.parametrize(
    "words",
    [("convert", "absent.pt", "--layer", ""), ("convert", "--layer", ""), ("inspect", "--set", "no_such_key="),
     ("convert", __file__, "--layer", "")],
)  # fmt: skip
def test_whatever_goes_wrong_offers_nothing(words: Sequence[str]) -> None:
    assert offered(*words) == []


def test_a_name_that_a_terminal_must_not_get_is_not_offered(tmp_path: Path) -> None:
    arrays = {"weight_ih_l0": (16, 3), "weight_hh_l0": (16, 4), "bias_ih_l0": (16,), "bias_hh_l0": (16,)}
    path = tmp_path / "evil.safetensors"
    save_file({f"a\x1b[31m.{name}": np.ones(shape, np.float32) for name, shape in arrays.items()}, path)
    assert rc.load(path).layers and offered("convert", path, "--layer", "") == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_shells_script_is_printed_and_asks_us(shell: str, model: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    program = [sys.executable, "-c", "from rnnconvert.cli.main import main; main(prog_name='rnnconvert')"]
    script = subprocess.run(
        program, capture_output=True, text=True, env={**environment, "_RNNCONVERT_COMPLETE": f"{shell}_source"}, check=False
    )
    assert "_RNNCONVERT_COMPLETE" in script.stdout and script.returncode == 0
    line = f"rnnconvert convert {model} out --layer enc"
    asked = {"COMP_WORDS": line, "COMP_CWORD": "enc" if shell == "fish" else "5", "_RNNCONVERT_COMPLETE": f"{shell}_complete"}
    process = subprocess.run(program, capture_output=True, text=True, env={**environment, **asked}, check=False)
    assert "encoder.lstm" in process.stdout and process.stderr == ""


def test_completion_imports_no_framework(model: Path) -> None:
    code = (
        "import sys; from click.shell_completion import ShellComplete; from rnnconvert.cli.main import main\n"
        "complete = ShellComplete(main, {}, 'rnnconvert', '_X')\n"
        f"assert complete.get_completions(['convert', {str(model)!r}, 'out', '--layer'], 'enc')\n"
        f"assert complete.get_completions(['verify', {str(model)!r}, '--on'], 'to')\n"
        "heavy = {'torch', 'tensorflow', 'keras', 'jax', 'onnxruntime', 'onnx', 'h5py'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)
