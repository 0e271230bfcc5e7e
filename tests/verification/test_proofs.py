"""Proofs in CI: kept ones, several at a time, exit codes, annotations, SARIF, JSON, and how to run them again."""

from __future__ import annotations

import hashlib
import json
import shlex
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

import rnnconvert as rc
from rnnconvert import reports
from rnnconvert.cli.check import WORST_FIRST
from rnnconvert.core.errors import ExecutorError
from rnnconvert.core.verdict import EXIT_CODES
from rnnconvert.diagnosis import mutations
from rnnconvert.diagnosis.faults import ARRAYS
from rnnconvert.files.checkpoint import Checkpoint
from rnnconvert.language.layout import Sizes
from rnnconvert.reports import github
from rnnconvert.reports.findings import failures, headline
from rnnconvert.reports.tables import strip
from rnnconvert.reports.words import figures
from rnnconvert.verification import config_file, verify
from rnnconvert.verification.collect import proceed
from rnnconvert.verification.report import Report
from tests.helpers import report_documents as documents
from tests.helpers.commands import call
from tests.helpers.stacks import BOTH, random_stack

FAULT = "gates f and g of the recurrent matrix swapped"
STACK = random_stack(Sizes("lstm", 3, 4, num_layers=2, num_directions=2, parts=BOTH), 4, np.float32).replace(name="enc")


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A right pair, and a wrong file beside it: one matrix of one direction has two gates swapped."""
    fault = ARRAYS[FAULT].at(1, 1, "layer 1, the backward direction")
    assert fault is not None and fault.change is not None
    wrong = fault.change(STACK)
    assert wrong is not None
    for name, stack in (("right.pt", STACK), ("right.safetensors", STACK), ("wrong.safetensors", wrong)):
        rc.save(Checkpoint("memory", "canonical", {"enc": stack}), tmp_path / name)
    return tmp_path


ON = ["--on", "torch-cpu"]
CLAIM = '[[equal]]\na = "right.pt"\nb = "{}"\non = ["torch-cpu"]\n'


def ran(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What `verify` runs from here on, by the names of the first files."""
    names: list[str] = []

    def counted(prepared: Any, *more: Any) -> None:
        names.append(Path(prepared.results.models[0].path).name)
        proceed(prepared, *more)

    monkeypatch.setattr(verify, "proceed", counted)
    return names


# Kept proofs


def test_a_proof_that_is_kept_is_not_run_again(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = ran(monkeypatch)
    a, b, cache = files / "right.pt", files / "right.safetensors", files / "kept"
    first = rc.verify(a, b, on=["torch-cpu"], cache=cache)
    again = rc.verify(a, b, on=["torch-cpu"], cache=cache)
    assert first.equal and again.equal and len(runs) == 1
    assert again.document["summary"].startswith(first.document["summary"] + "; run on ")
    assert again.document["layers"] == json.loads(reports.render(first.document, ".json"))["layers"]


def _apart(files: Path) -> tuple[Path, Path]:
    """An ONNX model, with its numbers in a second file."""
    model = files / "apart.onnx"
    rc.convert(files / "right.pt", model, external_data=True)
    (numbers,) = files.glob("apart.onnx.*.data")
    return model, numbers


def _sharded(files: Path) -> tuple[Path, Path]:
    """The index of a checkpoint of one part."""
    part, index = files / "right.safetensors", files / "model.safetensors.index.json"
    names = rc.load(part).arrays
    index.write_text(json.dumps({"metadata": {}, "weight_map": dict.fromkeys(names, part.name)}))
    return index, part


@pytest.mark.parametrize("writer", [_apart, _sharded])
def test_the_hash_of_a_model_covers_the_files_beside_it(
    writer: Callable[[Path], tuple[Path, Path]], files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, data = writer(files)
    digest = hashlib.sha256(model.read_bytes() + data.read_bytes()).hexdigest()
    runs = ran(monkeypatch)
    first = rc.verify(files / "right.pt", model, on=["torch-cpu"], cache=files / "kept", explain=False)
    assert first.equal and first.document["models"][1]["sha256"] == digest
    assert first.document["models"][1]["bytes"] == model.stat().st_size + data.stat().st_size
    changed = bytearray(data.read_bytes())
    changed[-2] ^= 64  # in the highest byte of a number, or next to it
    data.write_bytes(changed)
    again = rc.verify(files / "right.pt", model, on=["torch-cpu"], cache=files / "kept", explain=False)
    assert len(runs) == 2 and again.document["models"][1]["sha256"] != digest


@pytest.mark.parametrize("what", ["option", "weights", "tolerance", "executor", "code", "damaged"])
def test_what_changed_is_run_again(what: str, files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = ran(monkeypatch)
    a, b, cache = files / "right.pt", files / "right.safetensors", files / "kept"
    choices: dict[str, Any] = {"on": ["torch-cpu"], "cache": cache, "explain": False}
    assert rc.verify(a, b, **choices).equal
    if what == "option":
        choices["seed"] = 1
    elif what == "weights":
        other = random_stack(Sizes("lstm", 3, 4, num_layers=2, num_directions=2, parts=BOTH), 5, np.float32)
        for path in (a, b):
            rc.save(Checkpoint("memory", "canonical", {"enc": other.replace(name="enc")}), path, force=True)
    elif what == "tolerance":
        choices["atol"] = 1e-3
    elif what == "executor":
        choices["on"] = ["reference", "torch-cpu", "onnxruntime-cpu"]
    elif what == "code":
        monkeypatch.setattr("rnnconvert.verification.cache._code", lambda: "another")
    else:
        (proof,) = cache.iterdir()
        proof.write_text(proof.read_text().replace('"equal"', '"equals"', 1))
    rc.verify(a, b, **choices)
    assert len(runs) == 2


def test_what_is_not_equal_is_not_kept(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = ran(monkeypatch)
    for _ in range(2):
        assert not rc.verify(files / "right.pt", files / "wrong.safetensors", on=["torch-cpu"], cache=files / "kept").equal
    assert len(runs) == 2 and not list((files / "kept").iterdir())


# Several at a time


@pytest.mark.parametrize("jobs", [1, 3])
def test_executors_give_the_same_beside_one_another(jobs: int, files: Path) -> None:
    report = rc.verify(files / "right.pt", on=["torch-cpu", "onnxruntime-cpu"], jobs=jobs)
    assert report.equal
    assert [run["executor"] for run in report.document["layers"][0]["runs"]] == ["torch-cpu", "onnxruntime-cpu"]
    seconds = report.document["seconds"]
    assert {"load", "hash", "reference", "start", "run", "wait", "compare", "explain", "total"} <= set(seconds)


def test_an_error_in_one_executor_ends_the_others(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> None:
        raise ExecutorError("torch-cpu", "it is broken")

    monkeypatch.setattr("rnnconvert.verification.lanes.run", fails)
    before = threading.active_count()
    with pytest.raises(ExecutorError, match="it is broken"):
        rc.verify(files / "right.pt", on=["torch-cpu", "onnxruntime-cpu"])
    assert threading.active_count() <= before


def test_nothing_is_explained_if_nobody_asks(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mutations, "score", lambda *_: pytest.fail("scored"))
    result = call("verify", files / "right.pt", files / "wrong.safetensors", *ON, "--no-explain")
    words = " ".join(result.stdout.split())
    assert result.exit_code == 1 and "does not compute what" in words and "what it looks like" not in words


def test_progress_has_counted_parts(files: Path) -> None:
    events: list[tuple[str, int, int]] = []
    rc.verify(files / "right.pt", on=["torch-cpu"], watch=lambda text, done=0, total=0: events.append((text, done, total)))
    running = [(done, total) for text, done, total in events if text == "running on torch-cpu"]
    assert running[-1] == (5, 5) and running == sorted(running) and {total for _, total in running} == {5}


# What a report says first


def test_the_first_line_is_the_cause_and_the_second_the_fix(files: Path) -> None:
    a, b = files / "right.pt", files / "wrong.safetensors"
    result = call("verify", a, b, *ON)
    words = " ".join(result.stdout.split())
    assert words.startswith(
        f"not equal: In {b}, gates f and g of the recurrent matrix are swapped in layer 1, the backward direction only, "
        f"compared with {a}. To fix, in a new file: rnnconvert transplant {a} --into {b} --output {b.with_name(f'fixed-{b.name}')}"
    )
    assert "layer 1 backward  .  X  X  ." in result.stdout
    assert "  layer 0 forward   .  .  .  ." in result.stdout
    assert result.stdout.count("the difference begins at") == 1  # not for each run that differs alike


def test_errors_have_figures_for_people() -> None:
    failed = next(comparison for layer in documents.failing()["layers"] for run in layer["runs"] for comparison in run["comparisons"]
                  if not comparison["passed"])  # fmt: skip
    assert figures(failed) == "0.082 (allowed 1e-7)"
    assert figures({**failed, "passed": True, "ratio": 0.13}).endswith("13 % of what is allowed")
    assert figures({**failed, "error": "nan", "ratio": "nan"}) == "not a number, beyond any tolerance"


def test_each_verdict_has_a_first_line() -> None:
    assert headline(documents.passing()).startswith("models/encoder.pt and encoder.onnx compute the same on ")
    assert "decoder.attention" in headline(documents.failing())
    assert "did not run" in headline(documents.unavailable(True))
    assert "nothing was compared" in headline(documents.document([]))


def test_runs_that_fail_alike_stand_together(files: Path) -> None:
    document = rc.verify(files / "right.pt", files / "wrong.safetensors", on=["torch-cpu"]).document
    (failure,) = failures(document)
    assert failure.names == ("B in the float64 run", "B on torch-cpu")
    assert strip(document["layers"][0])[3] == ("layer 1 backward", {"i": False, "f": True, "g": True, "o": False})
    for ending in (".md", ".html"):
        assert reports.render(document, ending).count("the difference begins at") == 1


def test_a_call_says_how_to_run_it_again(files: Path) -> None:
    a, b = files / "right.pt", files / "right.safetensors"
    report = rc.verify(a, b, on=["torch-cpu"], cases=["states", "lengths"], lengths=[9, 4], batch=2, seed=3, atol={"y": 1e-4})
    command = shlex.split(report.document["command"])
    assert command[:4] == ["rnnconvert", "verify", str(a), str(b)]
    result = call(*command[1:], "--json")
    again = json.loads(result.stdout)
    assert result.exit_code == 0 and again["settings"] == json.loads(json.dumps(report.document["settings"]))
    recording = rc.run(a, on=["torch-cpu"])
    assert rc.verify(recording).document["command"] == f"rnnconvert verify {a}"


def test_junit_names_the_pair(files: Path) -> None:
    document = rc.verify(files / "right.pt", files / "wrong.safetensors", on=["torch-cpu"]).document
    suite, verdict = ElementTree.fromstring(reports.render(document, ".xml"))
    assert [element.tag for element in verdict.iter("failure")] == ["failure"]
    assert suite.attrib["name"].startswith("right.pt = wrong.safetensors: ")
    assert all(case.attrib["classname"].startswith("right.pt = wrong.safetensors: ") for case in suite.iter("testcase"))
    stories = [failure.text for failure in suite.iter("failure") if failure.text and "Symptoms" in failure.text]
    assert 0 < len(stories) <= 2 < sum(1 for _ in suite.iter("failure"))


# CI


def test_annotations_are_printed_in_github_actions(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_WORKSPACE", str(files))
    result = call("verify", files / "right.pt", files / "wrong.safetensors", *ON, "--json")
    (line,) = [line for line in result.stderr.splitlines() if line.startswith("::")]
    assert line.startswith("::error file=wrong.safetensors,title=rnnconvert%2C not equal%3A ")
    assert "gates f and g of the recurrent matrix" in line and json.loads(result.stdout)["verdict"] == "not equal"
    assert "::error" not in call("verify", files / "right.pt", files / "right.safetensors", *ON).stderr
    monkeypatch.delenv("GITHUB_ACTIONS")
    assert "::error" not in call("verify", files / "right.pt", files / "wrong.safetensors", *ON).stderr


def test_nothing_in_an_annotation_ends_it() -> None:
    line = github.annotation("50 % of\nit", "a: b, c", "x,y.pt")
    assert line == "::error file=x%2Cy.pt,title=rnnconvert%2C a%3A b%2C c::50 %25 of it"


def test_sarif_lists_what_is_not_equal(files: Path) -> None:
    paths = files / "a.sarif", files / "b.sarif"
    assert call("verify", files / "right.pt", files / "wrong.safetensors", *ON, "--sarif", paths[0]).exit_code == 1
    assert call("verify", files / "right.pt", files / "right.safetensors", *ON, "--report", paths[1]).exit_code == 0
    bad, good = (json.loads(path.read_text())["runs"][0]["results"] for path in paths)
    assert good == [] and {result["ruleId"] for result in bad} == {"not-equal"}
    assert bad[0]["locations"][0]["physicalLocation"]["artifactLocation"]["uri"].endswith("wrong.safetensors")


def claims(folder: Path, *others: str) -> Path:
    config = folder / "rnnconvert.toml"
    config.write_text("".join(CLAIM.format(other) for other in others))
    return config


@pytest.mark.parametrize(
    ("others", "code"),
    [(["right.safetensors"], 0), (["right.safetensors", "absent.pt"], 3), (["absent.pt", "wrong.safetensors", "right.safetensors"], 1)],
)
def test_check_goes_on_and_the_worst_news_wins(others: list[str], code: int, files: Path) -> None:
    result = call("check", "--config", claims(files, *others), "--json")
    document = json.loads(result.stdout)
    assert result.exit_code == document["exit_code"] == code
    assert len(document["reports"]) + len(document["errors"]) == len(others)
    assert [error["error"]["exit_code"] for error in document["errors"]] == [3] * others.count("absent.pt")


def test_the_order_of_exit_codes_is_whole() -> None:
    assert sorted(WORST_FIRST) == [*range(9), 74] and set(EXIT_CODES.values()) <= set(WORST_FIRST)
    assert Report(documents.failing()).exit_code == WORST_FIRST[0]


def test_check_keeps_proofs_and_writes_one_sarif(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = ran(monkeypatch)
    words = ["check", "--config", claims(files, "right.safetensors", "wrong.safetensors"), "--cache", files / "kept",
             "--sarif", files / "all.sarif"]  # fmt: skip
    assert call(*words).exit_code == call(*words).exit_code == 1
    assert len(runs) == 3
    results = json.loads((files / "all.sarif").read_text())["runs"][0]["results"]
    assert results and all("wrong" in json.dumps(result) for result in results)


def test_pairs_of_one_stem_have_reports_of_their_own(files: Path) -> None:
    config = files / "rnnconvert.toml"
    (files / "x").mkdir()
    (files / "y").mkdir()
    for folder in ("x", "y"):
        for name in ("right.pt", "right.safetensors"):
            (files / folder / name).write_bytes((files / name).read_bytes())
    pairs = [("x/right.pt", "x/right.safetensors"), ("y/right.pt", "y/right.safetensors"), ("right.pt", "wrong.safetensors")]
    config.write_text("".join(f'[[equal]]\na = "{a}"\nb = "{b}"\non = ["torch-cpu"]\n' for a, b in pairs))
    names = [name for name, _ in config_file.named(config_file.read(config))]
    assert names == ["x-right.pt-right.safetensors", "y-right.pt-right.safetensors", "right-wrong"]
    again = config_file.named(config_file.read(config)[:1] * 3)
    assert len({name for name, _ in again}) == 3
    assert call("check", "--config", config, "--reports", files / "out").exit_code == 1
    assert {path.stem for path in (files / "out").glob("*.html")} == {*names, "index"}


def test_an_index_of_all_pairs_has_those_that_cannot_be_read(files: Path) -> None:
    config = files / "rnnconvert.toml"
    (files / "broken.pt").write_bytes(b"PK")
    pairs = [("right.pt", "right.safetensors"), ("right.pt", "wrong.safetensors"), ("broken.pt", "right.pt")]
    config.write_text("".join(f'[[equal]]\na = "{a}"\nb = "{b}"\non = ["torch-cpu"]\n' for a, b in pairs))
    page, junit, folder = files / "all.html", files / "all.xml", files / "single"
    result = call("check", "--config", config, "--report", page, "--report", junit, "--reports", folder, "--quiet")
    assert result.exit_code == 1
    (suite,) = ElementTree.parse(junit).getroot()
    assert {name: suite.get(name) for name in ("tests", "failures", "errors")} == {"tests": "3", "failures": "1", "errors": "1"}
    (case,) = (case for case in suite.iter("testcase") if case.find("error") is not None)
    (error,) = case.iter("error")
    assert "broken.pt" in str(case.get("name")) and "broken.pt" in str(error.get("message"))
    text = page.read_text()
    assert text.index("broken.pt") < text.index("right.pt and " + str(files / "right.safetensors"))  # what did not pass comes first
    assert 'href="single/right-wrong.html"' in text and (folder / "right-wrong.html").exists() and "1 of 3" in text
    (files / "wrong.safetensors").unlink()  # what an earlier run said of a pair is replaced, if it cannot be verified any more
    call("check", "--config", config, "--reports", folder, "--quiet")
    assert [path.suffix for path in sorted(folder.glob("right-wrong.*"))] == [".html", ".json", ".md", ".xml"]
    (suite,) = ElementTree.parse(folder / "right-wrong.xml").getroot()
    assert {name: suite.get(name) for name in ("tests", "failures", "errors")} == {"tests": "1", "failures": "0", "errors": "1"}
    assert json.loads((folder / "right-wrong.json").read_text())["error"]["kind"] == "unreadable"
    assert "right-wrong.html" in (folder / "index.html").read_text() and "No such file" in (folder / "right-wrong.md").read_text()
    for bad, words in (("all.sarif", ".html, .md or .xml"), ("right.pt", "unknown form")):
        result = call("check", "--config", config, "--report", files / bad)
        assert result.exit_code == 2 and words in result.stderr, result.output
    (files / "model.xml").write_text("<net/>")  # a report never takes the place of a model
    config.write_text('[[equal]]\na = "model.xml"\nb = "right.pt"\n')
    result = call("check", "--config", config, "--report", files / "model.xml")
    assert result.exit_code == 2 and "named twice" in result.stderr and (files / "model.xml").read_text() == "<net/>"


# For machines


def test_every_command_prints_json(files: Path) -> None:
    a, b = files / "right.pt", files / "wrong.safetensors"
    report = files / "report.json"
    for code, *words in (
        (1, "verify", a, b, *ON, "--report", report), (1, "diff", a, b), (1, "diagnose", a, b), (0, "report", report),
        (0, "executors"),
    ):  # fmt: skip
        result = call(*words, "--json")
        assert result.exit_code == code and json.loads(result.stdout), words
    for words in (["verify", a, files / "absent"], ["diff", a, files / "absent"], ["check", "--config", files / "absent"]):
        result = call(*words, "--json")
        error = json.loads(result.stdout)["error"]
        assert result.exit_code == error["exit_code"] == 3 and "absent" in error["message"] and error["kind"]
