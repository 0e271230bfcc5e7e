"""The Python face: what it takes, what it calls things, what its objects show, and how its errors speak."""

from __future__ import annotations

import ast
import contextlib
import io
import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import rnnconvert as rc
from rnnconvert.containers import safetensors
from rnnconvert.core import remedies
from rnnconvert.core.remedies import Command, Flag, FlattenAs, Remedy, Setting
from rnnconvert.files.convert import convert_file
from rnnconvert.reports import schema
from rnnconvert.verification import proved
from tests import ROOT
from tests.helpers.requirements import needed
from tests.project.test_floors import FILES

LAYER: dict[str, Any] = {
    "weight_ih_l0": np.linspace(-1, 1, 60, dtype=np.float32).reshape(20, 3),
    "weight_hh_l0": np.linspace(-0.5, 0.7, 100, dtype=np.float32).reshape(20, 5),
    "bias_ih_l0": np.linspace(-0.2, 0.3, 20, dtype=np.float32),
    "bias_hh_l0": np.linspace(0.1, -0.3, 20, dtype=np.float32),
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    np.savez(tmp_path / "layer.npz", **LAYER)
    return tmp_path / "layer.npz"


# What it takes -----------------------------------------------------------------------------------------


def test_bytes_open_files_and_arrays_are_read_as_their_file_is(file: Path) -> None:
    with file.open("rb") as opened:
        sources: list[Any] = [
            file, str(file), file.read_bytes(), bytearray(file.read_bytes()), io.BytesIO(file.read_bytes()), opened, LAYER,
        ]  # fmt: skip
        for source in sources:
            layer = rc.load(source, "pytorch").layers[""]
            assert np.array_equal(layer.gates["g"].recurrent, LAYER["weight_hh_l0"][10:15])


def test_what_is_in_memory_is_named_so_and_never_by_a_temporary_path(file: Path, tmp_path: Path) -> None:
    assert rc.load(file.read_bytes()).path == "(bytes in memory)"
    with pytest.raises(rc.UnreadableError, match=r"^\(bytes in memory\): "):
        rc.load(b"nothing that is known")
    summary = rc.convert(LAYER, tmp_path / "made.onnx", source_format="pytorch")
    assert summary.source == "(arrays in memory)" and "/tmp" not in summary.source


def test_what_is_no_source_says_what_to_do(file: Path, tmp_path: Path) -> None:
    checkpoint = rc.load(file)
    with file.open("r", encoding="latin-1") as text:
        wrong: dict[str, Any] = {
            "use rnnconvert.save": checkpoint, "not int": 3, "Open it in binary mode": text, "Give the inner mapping": {"model": LAYER},
            "names that are strings": {1: LAYER["bias_ih_l0"]}, "not an array of numbers": {"a": "b"}, "rnnconvert.from_model": object(),
        }  # fmt: skip
        for words, source in wrong.items():
            with pytest.raises(rc.UsageError, match=re.escape(words)):
                rc.load(source)
    with pytest.raises(rc.UsageError, match=r"is a Checkpoint, expected a text or a path.*rnnconvert\.save"):
        rc.run(checkpoint)  # type: ignore[arg-type]
    with pytest.raises(rc.UsageError, match=r"takes a file, not a Checkpoint.*rnnconvert\.save"):
        rc.verify(checkpoint)
    with pytest.raises(rc.UsageError, match="is a dict, expected a text or a path"):
        rc.run(LAYER)  # type: ignore[arg-type]


def test_a_missing_file_is_pythons_error_too_and_names_a_near_one(file: Path) -> None:
    missing = file.with_name("layr.npz")
    for call in (rc.load, rc.verify, rc.run):
        with pytest.raises(FileNotFoundError, match=re.escape(f"Did you mean {file}?")) as caught:
            call(missing)
        assert isinstance(caught.value, rc.UnreadableError) and isinstance(caught.value, rc.MissingFileError)
        assert (caught.value.exit_code, caught.value.filename) == (3, str(missing))


def test_one_name_stands_for_a_list_of_one(tmp_path: Path) -> None:
    arrays = {f"{name}.{key}": array for name in ("encoder", "decoder") for key, array in LAYER.items()}
    checkpoint = rc.load(arrays, "pytorch")
    summary = rc.save(checkpoint, tmp_path / "one.pt", layers="decoder")
    assert list(summary.layers) == ["decoder"]
    report = rc.verify(tmp_path / "one.pt", on="reference", cases="zero", layers="decoder")
    assert {case["name"] for case in report.document["layers"][0]["cases"]} == {"zero"}


def test_a_layer_is_found_by_its_number_and_a_wrong_number_is_an_index_error(file: Path) -> None:
    stack = rc.load(file).layers[""]
    assert stack[0] is stack.layers[0]
    assert stack[0, 0] is stack.first
    assert stack[-1, 0] is stack.first
    assert list(stack) == list(stack.layers)
    for index in (1, (0, 1), (9, 0)):
        with pytest.raises(IndexError, match="it has 1 layers of 1 directions") as caught:
            stack[index]
        assert isinstance(caught.value, rc.RnnConvertError)


def test_a_cell_or_a_stack_that_cannot_be_is_an_error_of_ours(file: Path) -> None:
    stack = rc.load(file).layers[""]
    with pytest.raises(rc.RnnConvertError, match="Unknown cell"):
        rc.Cell("qrnn")  # type: ignore[arg-type]
    with pytest.raises(rc.RnnConvertError, match="has no layers"):
        rc.Recurrent("empty", ())
    with pytest.raises(rc.RnnConvertError, match="is missing"):
        stack.first.with_arrays({("recurrent", "i"): None}).check()


# What it calls things ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keyword", "meant"), [("format", "source_format="), ("to", "target_format="), ("layer", "layers="), ("nonlinarity", "nonlinearity")]
)
def test_a_misspelt_keyword_is_an_error_that_names_the_right_one(file: Path, keyword: str, meant: str) -> None:
    for call in (rc.load, rc.convert):
        arguments: list[Any] = [file] if call is rc.load else [file, file.with_name("out.onnx")]
        with pytest.raises(rc.UsageError, match=re.escape(meant)):
            call(*arguments, **{keyword: "x"})  # type: ignore[arg-type]


def test_a_misspelt_keyword_of_a_plan_is_an_error_that_names_the_right_one(file: Path) -> None:
    with pytest.raises(rc.UsageError, match="Did you mean 'batch'"):
        rc.verify(file, batsh=3)  # type: ignore[call-arg]


# What its objects show ---------------------------------------------------------------------------------


def test_objects_are_short_in_a_list_whole_as_text_and_a_table_in_a_notebook(file: Path, tmp_path: Path) -> None:
    checkpoint = rc.load(file)
    summary = rc.save(checkpoint, tmp_path / "out.onnx")
    report = rc.verify(file, on="reference", cases="zero")
    for result, words in ((checkpoint, "1 layer"), (summary, "wrote"), (report, report.verdict)):
        assert "\n" not in repr(result) and words in repr(result)
        assert len(str(result)) > len(repr(result)) - 3
        assert result._repr_html_().startswith("<")
    assert "LSTM, 1 layer, forward, 3 -> 5" in str(checkpoint) and "LSTM, 1 layer, forward, 3 -> 5" in str(summary)


def test_names_from_a_file_are_escaped_in_a_notebook() -> None:
    arrays = {f"<script>alert(1)</script>.{key}": array for key, array in LAYER.items()}
    html = rc.load(arrays, "pytorch")._repr_html_()
    assert "<script>" not in html and "&lt;script&gt;" in html


# A proved conversion -----------------------------------------------------------------------------------


def test_convert_can_prove_what_it_writes(file: Path, tmp_path: Path) -> None:
    needed("onnxruntime", "onnxruntime")
    summary = rc.convert(file, tmp_path / "proved.onnx", verify=True)
    assert summary.written and summary.report is not None and summary.report.equal and (tmp_path / "proved.onnx").is_file()
    assert rc.convert(file, tmp_path / "plain.onnx").report is None
    with pytest.raises(rc.UsageError, match="verify=True"):
        rc.convert(file, tmp_path / "dry.onnx", verify=True, dry_run=True)


def test_what_is_not_proved_is_an_error_with_its_report_and_no_file(file: Path, tmp_path: Path) -> None:
    plan = rc.Plan(on=["reference"])  # no framework runs, so nothing is proved
    with pytest.raises(rc.NotEqualError, match="was not written") as caught:
        rc.convert(file, tmp_path / "out.onnx", verify=plan)
    assert caught.value.report.verdict == "not compared" and caught.value.exit_code == 5
    assert not (tmp_path / "out.onnx").exists()


def test_a_conversion_that_is_not_equal_is_to_be_reported_not_repeated(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    needed("torch", "torch")

    def damage(source: Any, source_format: Any, target: Any, options: Any) -> Any:
        summary = convert_file(source, source_format, target, options)
        stored = safetensors.read(target.path)
        (name,) = (name for name in stored.arrays if name.endswith("weight_hh_l0"))
        arrays = {**stored.arrays, name: np.random.default_rng(1).permutation(stored.arrays[name])}
        safetensors.write(target.path, arrays)
        return summary

    monkeypatch.setattr(proved, "convert_file", damage)
    target = tmp_path / "out.safetensors"
    with pytest.raises(rc.NotEqualError, match="Please report it, with this report") as caught:
        rc.convert(file, target, verify=True)
    assert "To fix" not in str(caught.value) and not target.exists()
    document = caught.value.report.document
    assert document["command"] == f"rnnconvert verify {file} {target}"
    assert not document["models"][-1]["kept"] and [*schema.problems(document)] == []


# How its errors speak ----------------------------------------------------------------------------------


SPELLS_FLAGS = ("rnnconvert/core/remedies.py", "rnnconvert/running/", "rnnconvert/views/page.py", "formats/c_header/run.py",
                "formats/tfjs/run.py",                 "rnnconvert/verification/verify.py")  # fmt: skip
"""Modules with words of a shell in them: options of executors' processes, variables of CSS, the command that repeats a report."""


def flags() -> Iterator[str]:
    """Yield every text outside of docstrings and of the command line that spells a flag, where it is."""
    for path in FILES:
        name = path.relative_to(ROOT).as_posix()
        if name.startswith(("cli/", *SPELLS_FLAGS)) or path.name == "commands.py":  # commands of rooms
            continue
        source = path.read_text()
        if not re.search(r"--[a-z]", source):
            continue
        tree = ast.parse(source)
        docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            text = node.value if isinstance(node, ast.Constant) and id(node) not in docstrings else None
            if isinstance(text, str) and re.search(r"--[a-z]", text):
                yield f"{name}: {text}"


def test_no_text_spells_a_flag_but_by_a_remedy_which_python_spells_too() -> None:
    assert not [*flags()]


@pytest.mark.parametrize(
    ("remedy", "on_the_command_line", "in_python"),
    [
        (Flag("force"), "--force", "force=True"),
        (Flag("partial"), "--partial", "strict=False"),
        (Flag("dtype", "float32"), "--dtype float32", "dtype='float32'"),
        (Flag("from"), "--from", "source_format="),
        (Flag("to", "keras"), "--to keras", "target_format='keras'"),
        (Flag("layer"), "--layer", "layers=[...]"),
        (Flag("accept", "batch_first"), "--accept batch_first", "accept=['batch_first']"),
        (Flag("pair", "a b=c"), "--pair 'a b=c'", "pairs=['a b=c']"),
        (Flag("layout", "mine.toml"), "--layout mine.toml", "rnnconvert.add_layouts('mine.toml')"),
        (Setting("clip", "none"), "--set clip=none", "clip='none'"),
        (Setting("opset", 22), "--set opset=22", "opset=22"),
        (Setting("cell", "..."), "--set cell=...", "cell=..."),
        (Setting("go_backwards", "true|false"), "--set go_backwards=true|false", "go_backwards=True or False"),
        (Setting("cell", "lstm", "gru", "x"), "--set cell=lstm, gru or x", "cell='lstm', 'gru' or 'x'"),
        (Setting("clip", "none", side="a"), "--set-a clip=none", "settings_a=['clip=none']"),
        (Setting("fc", "--to b", layer="a --to b"), "--set a --to b:fc=--to b", "settings=['a --to b:fc=--to b']"),
        (FlattenAs(target="a", source="b"), "--flatten target=a --flatten source=b", "flatten={'target': 'a', 'source': 'b'}"),
        (Command("diagnose", "exp--lr.pt", io="s t.npz"), "rnnconvert diagnose exp--lr.pt --io 's t.npz'",
         "rnnconvert.diagnose('exp--lr.pt', io='s t.npz')"),
        (Command("convert", "a", "b", force=True), "rnnconvert convert a b --force", "rnnconvert.convert('a', 'b', force=True)"),
    ],
)  # fmt: skip
def test_a_remedy_is_spelled_for_the_command_line_and_for_python(remedy: Remedy, on_the_command_line: str, in_python: str) -> None:
    assert str(remedy) == remedy.keywords == in_python
    with remedies.of_the_command_line():
        assert str(remedy) == remedy.flags == on_the_command_line


HOSTILE = ("exp--lr.pt", "--set", "a --to b", "--set clip=none", "x--force", "--flatten target=a", "--layer encoder.npz", "a=--pair b")
"""Names of files and layers that read like options."""


def failing(folder: Path, name: str) -> Iterator[Callable[[], object]]:
    """Yield calls that fail with an error that names a file or a layer so, each another error."""

    def arrays(**more: Any) -> Mapping[str, Any]:
        return {**{f"{name}.{key}": array for key, array in LAYER.items()}, **more}

    (folder / name).write_bytes(b"neither this nor that")
    absent, broken, there = folder / f"absent {name}", folder / name, folder / f"{name}.npz"
    np.savez(there, **arrays())
    layers = rc.load(arrays(), "pytorch")
    yield lambda: rc.load(absent)
    yield lambda: rc.load(broken)
    yield lambda: rc.inspect(broken)
    yield lambda: rc.convert(there, folder / f"{name} in" / "no folder.onnx", source_format="pytorch")
    yield lambda: rc.save(layers, there, "pytorch")
    yield lambda: rc.save(layers, folder / f"{name}.unknown")
    yield lambda: rc.save(layers, folder / "out.pt", "pytorch", layers=[f"{name} absent"])
    if "=" not in name:  # a setting ends its key there
        yield lambda: rc.load(there, "pytorch", settings=[f"{name}:clip=none"])
    yield lambda: rc.diff(there, broken, format_a="pytorch")
    yield lambda: rc.verify(there, absent, format_a="pytorch")
    yield lambda: rc.verify(there, there, format_a="pytorch", format_b="pytorch", pairs=[f"{name}=absent"])
    yield lambda: layers.layers[f"{name} absent"]


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("voice", [contextlib.nullcontext, remedies.of_the_command_line])
def test_errors_hold_the_names_of_files_and_layers_unchanged(tmp_path: Path, name: str, voice: Any) -> None:
    with voice():
        for call in failing(tmp_path, name):
            with pytest.raises(rc.RnnConvertError) as caught:
                call()
            assert name in str(caught.value)


def test_the_same_error_speaks_the_words_of_its_caller(file: Path) -> None:
    from rnnconvert.cli.main import main

    there = file.with_name("there.onnx")
    there.touch()
    with pytest.raises(rc.UsageError) as caught:
        rc.convert(file, there)
    assert "Use force=True" in str(caught.value) and "--" not in str(caught.value)
    output = CliRunner().invoke(main, ["convert", str(file), str(there)]).output
    assert "Use --force" in output
    assert "force=True" in str(caught.value)


def test_fields_of_an_error_speak_as_its_text_does(file: Path) -> None:
    arrays: Mapping[str, Any] = {**LAYER, "weight_hr_l0": np.ones((2, 5), np.float32), "weight_hh_l0": np.ones((20, 2), np.float32)}
    with pytest.raises(rc.RefusedError) as caught:
        rc.convert(arrays, file.with_name("out.npz"), source_format="pytorch", target_format="equinox", strict=True)
    assert "--" not in caught.value.remedy + caught.value.reason + caught.value.target


# The commands as functions -----------------------------------------------------------------------------


@pytest.fixture
def wrong(file: Path) -> Path:
    """The same layer with the gates i and f exchanged in its recurrent matrix."""
    arrays: dict[str, Any] = {key: array.copy() for key, array in LAYER.items()}
    arrays["weight_hh_l0"][:10] = LAYER["weight_hh_l0"][[5, 6, 7, 8, 9, 0, 1, 2, 3, 4]]
    np.savez(file.with_name("wrong.npz"), **arrays)
    return file.with_name("wrong.npz")


def printed(*arguments: object) -> str:
    from rnnconvert.cli.main import main

    return CliRunner().invoke(main, [str(argument) for argument in arguments]).stdout


def test_inspect_diff_and_diagnose_say_what_the_commands_say(file: Path, wrong: Path) -> None:
    assert str(rc.inspect(file)) + "\n" == printed("inspect", file)
    assert str(rc.diff(file, wrong)) + "\n" == printed("diff", file, wrong)
    assert str(rc.diagnose(file, wrong)) + "\n" == printed("diagnose", file, wrong)
    for function, command in ((rc.diff, "diff"), (rc.diagnose, "diagnose")):
        assert json.loads(printed(command, file, wrong, "--json")) == json.loads(json.dumps(function(file, wrong).as_dict()))
    assert json.loads(printed("inspect", file, "--json")) == json.loads(json.dumps(rc.inspect(file).as_dict()))


def test_what_was_read_is_compared_too(file: Path, wrong: Path) -> None:
    checkpoint = rc.load(file)
    assert rc.diff(checkpoint, file).equal
    difference = rc.diff(LAYER, checkpoint, format_a="pytorch")
    assert difference.equal and repr(difference).endswith("equal>")
    assert not rc.diff(checkpoint, wrong).equal
    diagnosis = rc.diagnose(checkpoint, wrong)
    assert not diagnosis.equal and "gates i and f" in str(diagnosis) and "gates i and f" in diagnosis._repr_html_()
    for options in ({"settings_a": ["clip=none"]}, {"format_a": "pytorch"}):
        with pytest.raises(rc.UsageError, match="is read already"):
            rc.diff(checkpoint, file, **options)
    with pytest.raises(rc.UsageError, match="both are read already"):
        rc.diff(checkpoint, checkpoint, settings=["clip=none"])


def test_targets_are_asked_for_by_name(file: Path) -> None:
    inspection = rc.inspect(file, targets="onnx")
    assert [entry.target for entry in inspection.targets] == ["onnx"] and "onnx" in str(inspection)
    assert {"onnx", "keras"} <= {entry.target for entry in rc.inspect(file, targets=True).targets}
    with pytest.raises(rc.UsageError, match="Unknown format"):
        rc.inspect(file, targets=["onyx"])


def test_clicks_own_errors_speak_of_flags(file: Path) -> None:
    from rnnconvert.cli.main import main

    for arguments in (["inspect", "--nosuch"], ["convert", str(file), "--cell", "zz"], ["layout"], ["inspect", str(file), "--set"]):
        output = CliRunner().invoke(main, arguments).output
        assert "--" in output and "=." not in output and "=[...]" not in output, output


def test_targets_that_are_no_formats_are_named(file: Path) -> None:
    from rnnconvert.cli.main import main

    for word in ("zz", "onnx,,keras", "onnx,zz"):
        result = CliRunner().invoke(main, ["inspect", str(file), "--targets", word])
        assert result.exit_code == 2 and "Unknown format" in result.output, result.output
    assert {entry.target for entry in rc.inspect(file, targets="onnx,keras").targets} == {"onnx", "keras"}


def test_wrong_indices_closed_files_and_empty_mappings_are_errors_of_ours(file: Path, tmp_path: Path) -> None:
    stack = rc.load(file).layers[""]
    indices: tuple[Any, ...] = ("x", 1.5, slice(0, 1), (0, 1, 2))
    for index in indices:
        with pytest.raises(rc.UsageError, match=r"stack\[0, 1\]"):
            stack[index]
    closed = io.BytesIO(b"x")
    closed.close()
    with pytest.raises(rc.UsageError, match=r"cannot be read: .*closed"):
        rc.load(closed)
    with pytest.raises(rc.UsageError, match="is empty"):
        rc.load({})
    with pytest.raises(rc.UsageError, match=r"verify is True, False or a rnnconvert\.Plan"):
        rc.convert(file, tmp_path / "a.onnx", verify="yes")  # type: ignore[arg-type]
    assert rc.convert(file, tmp_path / "a.onnx", opset=None).written  # type: ignore[arg-type]


def test_a_proved_conversion_of_arrays_names_them_as_they_are(tmp_path: Path) -> None:
    needed("onnxruntime", "onnxruntime")
    summary = rc.convert(LAYER, tmp_path / "a.onnx", source_format="pytorch", verify=True, external_data=True)
    assert summary.source == "(arrays in memory)"
    assert summary.report is not None and summary.report.document["models"][0]["path"] == "(arrays in memory)"
    assert [path.name for path in tmp_path.iterdir()] == ["a.onnx"]  # nothing was large enough to lie beside it
