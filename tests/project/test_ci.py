"""What rnnconvert brings to a CI, run as far as a machine without GitHub can: the fixture, the action, the hook."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
import yaml

import rnnconvert as rc
from rnnconvert.running import registry
from tests import ROOT
from tests.helpers import sources
from tests.helpers.actions_runner import Job, RejectedError, Run
from tests.helpers.commands import call
from tests.helpers.requirements import need


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """The example repository, as a user would copy it."""
    for name in ("keras-tensorflow", "onnxruntime-cpu"):
        need("keras" if "keras" in name else "onnxruntime", registry.executors()[name].absent)
    return Path(shutil.copytree(ROOT / "examples" / "ci", tmp_path / "repository"))


@pytest.fixture
def exported(repository: Path) -> Path:
    """The same repository with its export in the place of the original: what fails it is seen without Keras, in less time."""
    shutil.copy(repository / "models" / "encoder.onnx", repository / "models" / "original.onnx")
    for path in (repository / "rnnconvert.toml", repository / "tests" / "test_models.py"):
        text = path.read_text()
        assert "encoder.keras" in text
        path.write_text(text.replace("encoder.keras", "original.onnx").replace('"keras-tensorflow", ', ""))
    return repository


def shell(command: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """A step of a CI, with `rnnconvert` and `python` being this environment's."""
    programs = folder / ".programs"
    programs.mkdir(exist_ok=True)
    code = "import sys; from rnnconvert.cli.main import main; sys.argv[0] = 'rnnconvert'; main()"
    (programs / "rnnconvert").write_text(f'#!/bin/sh\nexec "{sys.executable}" -c "{code}" "$@"\n')
    (programs / "python").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    for program in programs.iterdir():
        program.chmod(0o755)
    environment = {
        **os.environ,
        "GITHUB_OUTPUT": os.devnull,
        "PATH": f"{programs}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        **variables,
    }
    return subprocess.run(["bash", "-c", command], cwd=folder, env=environment, capture_output=True, text=True)


def action() -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text())
    return document


def verify_step(folder: Path, **more: str) -> subprocess.CompletedProcess[str]:
    """The action's own step, with the inputs' defaults."""
    step = next(step for step in action()["runs"]["steps"] if step["name"] == "Verify the models")
    inputs = {name: entry["default"] for name, entry in action()["inputs"].items()}
    names = {key: text.replace("${{ inputs.", "").replace(" }}", "") for key, text in step["env"].items()}
    variables = {key: inputs[name] for key, name in names.items()}
    return shell(step["run"], folder, **variables, **more)


def spoilt(model: Path) -> None:
    """The same model with its reset and update gates taken for each other; every shape still fits."""
    checkpoint = rc.load(model)
    other = {"r": "z", "z": "r", "n": "n"}
    layers = {
        name: stack.replace(
            layers=tuple(
                rc.Layer(tuple(d.replace(arrays={(p, other[g]): np.array(a) for (p, g), a in d.arrays.items()}) for d in layer.directions))
                for layer in stack.layers
            )
        )
        for name, stack in checkpoint.layers.items()
    }
    rc.save(checkpoint.replace(layers=layers), model, force=True)


def test_the_example_repository_passes(repository: Path, tmp_path: Path) -> None:
    summary = tmp_path / "summary.md"
    done = verify_step(repository, GITHUB_STEP_SUMMARY=str(summary))
    assert done.returncode == 0, done.stdout + done.stderr
    reports = repository / "rnnconvert-reports"
    written = {f"encoder.{kind}" for kind in ("json", "xml", "md", "html")} | {"rnnconvert.sarif", "index.html"}
    assert {path.name for path in reports.iterdir()} == written
    assert summary.read_text().count("encoder") > 1
    assert not ElementTree.parse(reports / "encoder.xml").findall(".//failure")


def test_a_wrong_model_fails_the_repository(exported: Path, tmp_path: Path) -> None:
    reports, summary = exported / "rnnconvert-reports", tmp_path / "summary.md"
    assert verify_step(exported, GITHUB_STEP_SUMMARY=str(summary)).returncode == 0
    (passed,) = reports.glob("*.xml")
    assert not ElementTree.parse(passed).findall(".//failure")
    spoilt(exported / "models" / "encoder.onnx")
    done = verify_step(exported, GITHUB_STEP_SUMMARY=str(summary))
    assert done.returncode == 1, done.stdout + done.stderr
    assert "gates r and z" in done.stdout
    assert ElementTree.parse(passed).findall(".//failure")


def test_the_action_installs_what_it_is_asked_for(tmp_path: Path) -> None:
    install = next(step for step in action()["runs"]["steps"] if step["name"] == "Install rnnconvert")
    for extras, wanted in (("", "/here"), ("torch,onnxruntime", "/here[torch,onnxruntime]")):
        printed = shell(f'python() {{ echo "$@"; }}; {install["run"]}', tmp_path, EXTRAS=extras, HERE="/here").stdout
        assert printed.split()[-1] == wanted and "--extra-index-url" not in printed
        assert printed.split()[-3:-1] == ["--constraint", "/here/constraints.txt"]
        newest = shell(f'python() {{ echo "$@"; }}; {install["run"]}', tmp_path, EXTRAS=extras, HERE="/here", VERSIONS="newest").stdout
        assert newest.split()[-1] == wanted and "--constraint" not in newest
    wheels = action()["inputs"]["torch-index"]["default"]
    printed = shell(f'python() {{ echo "$@"; }}; {install["run"]}', tmp_path, TORCH_INDEX=wheels, HERE="/here").stdout
    assert printed.split()[-3:] == ["--extra-index-url", "https://download.pytorch.org/whl/cpu", "/here"]


def test_the_action_names_other_actions_by_hash() -> None:
    """A tag may be moved to other code; a hash may not."""
    workflows = [yaml.safe_load(path.read_text("utf-8")) for path in (ROOT / ".github" / "workflows").glob("*.yml")]
    steps = [*action()["runs"]["steps"], *(step for workflow in workflows for job in workflow["jobs"].values() for step in job["steps"])]
    used = [step["uses"] for step in steps if "uses" in step]
    assert len(used) >= 4
    for name in used:
        assert re.fullmatch(r"[\w-]+/[\w/-]+@[0-9a-f]{40}", name), name


def test_an_audit_that_reaches_no_list_of_vulnerabilities_fails() -> None:
    """Without --strict, pip-audit leaves out what it cannot look up, and ends with 0."""
    pages = [ROOT / name for name in ("SECURITY.md", "CONTRIBUTING.md", ".github/workflows/nightly.yml")]
    calls = [call for page in pages for call in re.findall(r"pip-audit -[^`\n]*", page.read_text("utf-8"))]
    assert len(calls) >= len(pages)
    assert all("--strict" in call for call in calls), calls


INSTALLED = ("Install rnnconvert",)


def test_the_action_runs_in_each_job_of_a_matrix(exported: Path) -> None:
    """Any folder of reports, names without clashes, a folder to work in, outputs, code scanning: also where models differ."""
    run = Run()
    work = exported.parent / "workspace"
    work.mkdir()
    exported.rename(work / "models-repository")
    words = {"working_directory": "models-repository", "reports": "build/reports", "sarif": "true", "cache": "true"}
    for index in range(2):
        job = Job(run, work, shell, index=index)
        done = job.use(action(), INSTALLED, artifact="our/reports", **words)
        assert not done.failed, done.text
        report = work / "models-repository" / "build" / "reports"
        assert done.outputs["verdict"] == "equal" and done.outputs["exit-code"] == "0"
        assert Path(done.outputs["report"]) == report
        assert {path.suffix for path in run.artifacts[done.outputs["artifact"]]} == {".json", ".xml", ".md", ".html", ".sarif"}
    assert sorted(run.artifacts) == ["our-reports-models-0", "our-reports-models-1"]
    assert len(run.scanned) == len(set(run.cached)) == 2
    assert all(not scan["results"] for document in run.scanned.values() for scan in document["runs"])
    spoilt(work / "models-repository" / "models" / "encoder.onnx")
    run = Run()
    done = Job(run, work, shell).use(action(), INSTALLED, **words)
    assert done.failed and done.outputs["verdict"] == "not equal" and done.outputs["exit-code"] == "1"
    assert run.artifacts and any(scan["results"] for document in run.scanned.values() for scan in document["runs"])


def test_an_action_that_finds_no_configuration_says_that_nothing_was_verified(tmp_path: Path) -> None:
    done = Job(Run(), tmp_path, shell).use(action(), INSTALLED)
    assert done.failed and done.outputs["verdict"] == "not verified"


def test_the_stand_in_rejects_what_github_rejects(tmp_path: Path) -> None:
    def using(uses: str, **words: str) -> dict[str, Any]:
        return {"inputs": {}, "runs": {"steps": [{"name": "x", "uses": uses, "with": words}]}}

    (tmp_path / "a.txt").write_text("a")
    run = Run()
    keep = using("actions/upload-artifact@v4", name="reports", path="a.txt")
    Job(run, tmp_path, shell).use(keep)
    for wrong, words in (
        (keep, "already exists"),
        (using("actions/upload-artifact@v4", name="build/reports", path="a.txt"), "name is not valid"),
        (using("actions/upload-artifact", name="b", path="a.txt"), "no version"),
        (using("actions/upload-artifact@v4", names="b", path="a.txt"), "unexpected inputs"),
        (using("actions/cache@v4", key="a,b", path="x"), "Key Validation"),
        (using("github/codeql-action/upload-sarif@v3", sarif_file="absent.sarif"), "does not exist"),
        (using("actions/upload-artifact@v4", name="${{ secrets.x }}", path="a.txt"), "Unrecognized named-value"),
        ({"inputs": {}, "runs": {"steps": [{"name": "x", "run": "true"}]}}, "with `shell`"),
    ):
        with pytest.raises(RejectedError, match=words):
            Job(run, tmp_path, shell).use(wrong)


def test_the_hook_runs_on_the_files_of_a_commit(exported: Path) -> None:
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    configured = yaml.safe_load((exported / ".pre-commit-config.yaml").read_text())["repos"][0]["hooks"][0]["id"]
    assert hook["id"] == configured
    assert shell(f"{hook['entry']} models/encoder.onnx", exported).returncode == 0
    spoilt(exported / "models" / "encoder.onnx")
    assert shell(f"{hook['entry']} rnnconvert.toml", exported).returncode == 0
    assert shell(f"{hook['entry']} models/encoder.onnx", exported).returncode == 1


def test_the_workflow_uses_the_inputs_that_the_action_has(repository: Path) -> None:
    workflow = yaml.safe_load((repository / ".github" / "workflows" / "models.yml").read_text())
    used = next(step for step in workflow["jobs"]["equivalence"]["steps"] if "rnnconvert" in step.get("uses", ""))
    assert set(used["with"]) <= set(action()["inputs"])


def test_the_fixture_passes_what_is_equal_and_fails_what_is_not(exported: Path) -> None:
    # Installed, the plugin is found by its entry point, under the same name.
    command = "python -m pytest -q -p rnnconvert.pytest_plugin -p no:cacheprovider tests"
    done = shell(command, exported)
    assert done.returncode == 0, done.stdout + done.stderr
    spoilt(exported / "models" / "encoder.onnx")
    done = shell(command, exported)
    assert done.returncode == 1
    assert "gates r and z" in done.stdout
    assert "1 failed" in done.stdout


def test_a_first_file_of_pairs_is_written_and_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    need("onnxruntime", registry.executors()["onnxruntime-cpu"].absent)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models").mkdir()
    for name in ("a.onnx", "a.safetensors", "b.onnx"):
        sources.write(tmp_path / "models" / name, sources.stack(seed=3))
    done = call("check", "--init")
    assert done.exit_code == 0 and "with 1 pair of models" in done.output
    assert '[[equal]]\na = "models/a.onnx"\nb = "models/a.safetensors"\n' in (tmp_path / "rnnconvert.toml").read_text()
    before = (tmp_path / "rnnconvert.toml").read_bytes()
    again = call("check", "--init")
    assert again.exit_code == 2 and "already exists" in again.output and (tmp_path / "rnnconvert.toml").read_bytes() == before
    assert call("check").exit_code == 0
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    assert "an example" in call("check", "--init").output and "[[equal]]" in Path("rnnconvert.toml").read_text()
