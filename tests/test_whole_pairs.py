"""verify of pairs of models: another computation anywhere in them is not equal, and the same one in another form is."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

import rnnconvert as rc
from rnnconvert import reports
from rnnconvert.reports.findings import finding
from rnnconvert.running.parent import Process, running
from rnnconvert.running.registry import executor
from rnnconvert.verification.collect import prepare
from rnnconvert.verification.lanes import running_model
from rnnconvert.verification.models import compare_models
from rnnconvert.verification.plan import Plan
from rnnconvert.verification.results import ModelsCompared
from tests import drawn as drawing
from tests import report_documents as documents
from tests.commands import call
from tests.drawn import NotComparedError, drawn, each
from tests.model_specs import CHANGES, INPUT, expected, keras_model, random_spec, save

EXECUTORS = {".keras": "keras-tensorflow", ".onnx": "onnxruntime-cpu", ".pt": "torch-cpu", ".pt2": "torch-cpu"}
ENDINGS = [
    (".keras", ".keras"),
    (".onnx", ".onnx"),
    (".pt", ".pt"),
    (".pt2", ".pt2"),
    (".keras", ".onnx"),
    (".pt", ".keras"),
    (".onnx", ".pt2"),
]
LARGE = 1e-3
"""A difference of outputs that is no rounding."""

pytestmark = [
    pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:You are using the legacy TorchScript:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:The tensor attributes:UserWarning"),
    pytest.mark.filterwarnings("ignore:::torch"),
]


@pytest.fixture(scope="module")
def processes() -> Iterator[dict[str, Process]]:
    with contextlib.ExitStack() as ended:
        yield {name: ended.enter_context(running(executor(name))) for name in sorted(set(EXECUTORS.values()))}


def compared(a: Path, b: Path, processes: dict[str, Process], folder: Path) -> ModelsCompared:
    """What both models show when they run whole, as verify has them run."""
    prepared = prepare(str(a), str(b), Plan())
    models = []
    for label, path in (("A", a), ("B", b)):
        subjects = [subject for subject in prepared.subjects if subject.model == label]
        models.append(running_model(processes[EXECUTORS[path.suffix]], subjects, folder, 0))
    return compare_models(models[0], models[1], {})


@pytest.mark.parametrize("endings", ENDINGS, ids="-".join)
def test_a_pair_is_equal_exactly_where_its_outputs_are(endings: tuple[str, str], processes: dict[str, Process], tmp_path: Path) -> None:
    seeds = range(40 if drawing.LONG else 1000)

    def check(case: tuple[int, str]) -> None:
        seed, change = case
        spec = random_spec(seed)
        try:
            other = CHANGES[change](spec)
        except (LookupError, StopIteration):
            raise NotComparedError(change) from None
        x = np.random.default_rng(seed).normal(size=(4, 6, INPUT)).astype(np.float32)
        values = [expected(each_spec, x) for each_spec in (spec, other)]
        off = np.inf if values[0].shape != values[1].shape else float(np.abs(values[0] - values[1]).max())
        if 1e-6 < off < LARGE:
            raise NotComparedError("too little to be seen, and more than rounding")
        folder = tmp_path / f"{seed}-{change}"
        folder.mkdir()
        paths = [
            save(each_spec, folder / f"{label}{ending}") for each_spec, label, ending in zip((spec, other), "ab", endings, strict=True)
        ]
        result = compared(paths[0], paths[1], processes, folder)
        assert result.status == ("equal" if off < LARGE else "not equal"), (result, off, spec.steps)

    cases = list(itertools.product(seeds, CHANGES))
    each(drawn(cases, 8, "-".join(endings)), check)


def test_equal_says_what_it_speaks_of(tmp_path: Path) -> None:
    """The whole models, every weight, or the recurrent layers: in the text, the exit code, JUnit, Python, and of diff and diagnose."""
    spec = next(each_spec for each_spec in map(random_spec, range(100)) if each_spec.steps[-1] == ("act", "softmax"))
    model = keras_model(spec)
    model.save(tmp_path / "a.keras")
    model.save(tmp_path / "same.keras")
    keras_model(replace(spec, steps=spec.steps[:-1])).save(tmp_path / "open.keras")
    model.save_weights(tmp_path / "weights.weights.h5")
    rc.convert(tmp_path / "a.keras", tmp_path / "layers.onnx")

    def verified(b: str, *more: str) -> tuple[int, str, rc.Report]:
        words = ["verify", tmp_path / "a.keras", tmp_path / b, "--report", tmp_path / "report.json", "--report", tmp_path / "report.xml"]
        result = call(*words, "--on", "keras-tensorflow", "--on", "onnxruntime-cpu", "--no-explain", "--case", "default states", *more)
        return result.exit_code, result.stdout, reports.read(tmp_path / "report.json")

    def case(name: str) -> str:
        """The state of a test case of the verdict's suite."""
        cases = ElementTree.parse(tmp_path / "report.xml").iter("testcase")
        return next(next((child.tag for child in testcase), "passed") for testcase in cases if testcase.get("name") == name)

    code, text, document = verified("same.keras", "--strict")
    assert (code, document["verdict"], document["scope"]) == (0, "equal", "whole")
    assert text.splitlines()[-1].endswith("; both models ran whole, and give the same") and case("whole models") == "passed"
    code, text, document = verified("open.keras")
    assert (code, document["verdict"], case("whole models"), case("verdict")) == (1, "not equal", "failure", "failure")
    assert "what differs lies between or around them" in text
    code, text, document = verified("weights.weights.h5")
    assert (code, document["verdict"], document["scope"]) == (0, "equal", "weights") and "; every weight was compared" in text
    assert (verified("layers.onnx", "--strict")[0], verified("layers.onnx")[0]) == (8, 0)
    code, text, document = verified("layers.onnx")
    assert (document["verdict"], document["scope"], case("verdict")) == ("recurrent layers equal", "layers", "skipped")
    assert "'head', only in A" in text.splitlines()[-1] and not rc.Report(document)
    assert str(rc.diff(tmp_path / "a.keras", tmp_path / "same.keras")).splitlines()[-1].startswith("every weight of ")
    findings = rc.diff(tmp_path / "a.keras", tmp_path / "layers.onnx")
    assert str(findings).splitlines()[-1].startswith("the recurrent layers of ") and not findings
    assert "the recurrent layers of " in str(rc.diagnose(tmp_path / "a.keras", tmp_path / "layers.onnx"))


def test_without_a_framework_the_package_is_named(tmp_path: Path) -> None:
    document = documents.document([documents.layer("a", [])])
    document["missing_packages"] = ["keras", "tensorflow"]
    assert finding(document).endswith("To run them: pip install keras tensorflow")
    assert "pip install keras tensorflow" in str(rc.NotEqualError("a.onnx", rc.Report(document)))
