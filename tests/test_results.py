"""Results that other machines kept: judged again, and compared with the executors that are here."""

from __future__ import annotations

from pathlib import Path

import pytest

from rnnconvert.running import registry
from rnnconvert.verification import results
from rnnconvert.verification.verify import verify
from tests.requirements import need

ROOT = Path(__file__).resolve().parent.parent
KEPT = sorted((ROOT / "tests" / "results").glob("*.safetensors"))
HERE = {"torch-cpu": "torch", "keras-tensorflow": "keras", "onnxruntime-cpu": "onnxruntime"}


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.stem)
def test_what_was_kept_agrees_with_its_truth(path: Path) -> None:
    report = verify(path)
    assert report.equal, str(report)
    assert not verify(path, atol=1e-12).equal


@pytest.mark.parametrize("executor", HERE)
@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.stem)
def test_what_was_kept_agrees_with_what_runs_here(path: Path, executor: str) -> None:
    need(HERE[executor], registry.executors()[executor].absent)
    kept = results.read(path)
    assert kept is not None
    report = verify(path, ROOT / kept.models[0].path, on=[executor], layers=list(kept.layers), gradients=True)
    assert report.equal, str(report)
    (layer,) = report.document["layers"]
    ran = [run["executor"] for run in layer["runs"] if run["verdict"] == "equal"]
    assert len(ran) > len(kept.layers[layer["name"]].runs)


def test_there_are_results_to_judge() -> None:
    assert KEPT
