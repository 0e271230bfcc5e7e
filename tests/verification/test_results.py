"""Results that other machines kept: judged again, and compared with the executors that are here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import rnnconvert as rc
from rnnconvert.core.errors import UsageError
from rnnconvert.running import registry
from rnnconvert.verification import results
from rnnconvert.verification.verify import verify
from tests import ROOT
from tests.helpers.requirements import need

PATHS = sorted((ROOT / "tests" / "results").glob("*.safetensors"))
HERE = {"torch-cpu": "torch", "keras-tensorflow": "keras", "onnxruntime-cpu": "onnxruntime"}


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_what_was_kept_agrees_with_its_truth(path: Path) -> None:
    report = verify(path)
    assert report.equal, str(report)
    assert not verify(path, atol=1e-12).equal


@pytest.mark.parametrize("executor", HERE)
@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_what_was_kept_agrees_with_what_runs_here(path: Path, executor: str) -> None:
    need(HERE[executor], registry.executors()[executor].absent)
    stored = results.read(path)
    assert stored is not None
    report = verify(path, ROOT / stored.models[0].path, on=[executor], layers=list(stored.layers), gradients=True)
    assert report.equal, str(report)
    (layer,) = report.document["layers"]
    ran = [run["executor"] for run in layer["runs"] if run["verdict"] == "equal"]
    assert len(ran) > len(stored.layers[layer["name"]].runs)


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_what_was_kept_can_be_the_second_model(path: Path, tmp_path: Path) -> None:
    """Another file of the model comes first, by itself or as results: how far each arithmetic of the second's leads is known of it."""
    need("torch", registry.executors()["torch-cpu"].absent)
    stored = results.read(path)
    assert stored is not None
    (name,) = stored.layers
    model = tmp_path / "model.safetensors"
    rc.convert(ROOT / stored.models[0].path, model, target_format="pytorch", layers=[name])
    choices: dict[str, Any] = {"on": ["torch-cpu"], "gradients": True}
    here = rc.run(model, given=stored, **choices)
    for report in (verify(model, path, **choices), verify(here, stored)):
        (layer_report,) = report.document["layers"]
        assert [run["verdict"] for run in layer_report["runs"]] == ["equal"] * len(layer_report["runs"])
        assert report.equal == bool(stored.layers[name].stated), str(report)
    coarse = {run.rounding for run in stored.layers[name].runs} - {"float32"}
    for layer in here.layers.values():
        layer.floors = {kind: floors for kind, floors in layer.floors.items() if kind not in coarse}
    if coarse:
        with pytest.raises(UsageError, match=r"was computed in .* Give the first model in place of its results"):
            verify(here, stored)


def test_there_are_results_to_judge() -> None:
    assert PATHS
