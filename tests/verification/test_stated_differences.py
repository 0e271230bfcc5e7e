"""What two models state differently is shown by some input, or they are not called equal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rnnconvert as rc
from rnnconvert.core.cells import Cell, Clip
from rnnconvert.core.errors import UsageError
from rnnconvert.core.weights import Recurrent
from rnnconvert.diagnosis.faults import FAULTS
from rnnconvert.diagnosis.mutations import score
from rnnconvert.judging.case_kinds import Case
from rnnconvert.judging.cases import DEFAULT_CASES, Draw, cases
from rnnconvert.language.layout import Sizes
from rnnconvert.rewrites import each
from rnnconvert.running.registry import built_in
from rnnconvert.verification import verify
from rnnconvert.verification.plan import Plan
from rnnconvert.verification.stated import NAME, made_for, stated
from tests.helpers import drawn
from tests.helpers.requirements import need, needed
from tests.helpers.sources import checkpoint
from tests.helpers.stacks import BOTH, PLAIN, random_stack

GENTLE = ["states", "default states", "lengths", "halves", "one step"]
"""The cases whose values are all small: they were the usual ones."""


def lstm(**changes: Any) -> Recurrent:
    return random_stack(Sizes("lstm", 3, 4), 1, np.float32, Cell("lstm").replace(**changes)).replace(name="enc")


def written(stack: Recurrent, path: Path) -> Path:
    rc.save(rc.Checkpoint("(made)", "canonical", {"enc": stack}), path)
    return path


def clipped(bound: float) -> Recurrent:
    return lstm(clips=(Clip("gates", -bound, bound),))


@pytest.mark.parametrize("names", [GENTLE, None], ids=["gentle", "usual"])
@pytest.mark.parametrize("swapped", [False, True])
def test_a_clip_that_usual_inputs_do_not_reach_is_reached(names: list[str] | None, swapped: bool, tmp_path: Path) -> None:
    needed("onnxruntime", "onnxruntime")
    pair = (written(clipped(6.0), tmp_path / "clip.onnx"), written(lstm(), tmp_path / "none.onnx"))
    plan = Plan(cases=names) if names else Plan()
    report = rc.verify(pair[swapped], pair[not swapped], plan)
    assert report.verdict == "not equal" and report.exit_code == 1
    reasons = [case["what"] for case in report.document["layers"][0]["cases"] if case["name"] == NAME]
    assert all("clips: " in what and "[-6, 6]" in what for what in reasons) and bool(reasons) == (names is not None)


def test_a_clip_that_nothing_reaches_is_not_called_equal(tmp_path: Path) -> None:
    needed("onnxruntime", "onnxruntime")
    pair = (written(clipped(1e30), tmp_path / "clip.onnx"), written(lstm(), tmp_path / "none.onnx"))
    report = rc.verify(*pair)
    assert report.verdict == "not compared" and report.exit_code == 1
    assert any("[-1e+30, 1e+30]" in warning and "not called equal" in warning for warning in report.document["warnings"])
    assert [difference["part"] for difference in report.document["layers"][0]["differences"]] == ["clips"]
    assert rc.verify(*pair, Plan(settings_a=["clip=none"])).equal


def test_models_that_state_the_same_get_no_case_of_their_own(tmp_path: Path) -> None:
    needed("onnxruntime", "onnxruntime")
    pair = (written(clipped(6.0), tmp_path / "a.onnx"), written(clipped(6.0), tmp_path / "b.onnx"))
    report = rc.verify(*pair)
    assert report.equal and NAME not in {case["name"] for case in report.document["layers"][0]["cases"]}


def learned(stack: Recurrent) -> Recurrent:
    return each(stack, lambda d: d.with_arrays({("initial_hidden", ""): np.full(4, 0.5, np.float32)}))


@pytest.mark.parametrize(
    ("a", "b", "names"),
    [
        (clipped(6.0), lstm(), GENTLE),
        (lstm(clips=(Clip("cell", -20.0, 20.0),)), lstm(), GENTLE),
        (learned(lstm()), lstm(), ["states"]),
        (clipped(6.0), clipped(7.0), GENTLE),
    ],
    ids=["clip of gates", "clip of cell", "learned state", "another bound"],
)
def test_a_case_is_made_for_a_stated_difference(a: Recurrent, b: Recurrent, names: list[str]) -> None:
    first = cases(a, Draw(names))[0]
    for layer, other in ((a, b), (b, a)):
        case = made_for(layer, other, first, 0)
        assert case is not None and stated(layer, other)
        assert np.abs(case.solve(layer).y - case.solve(other).y).max() > 1e-5
    assert made_for(a, a, first, 0) is None


ABSENT = {
    "clip of the gates added", "clip of the cell added", "coupled gates added", "forward direction reversed",
    "initial states of ones",
}  # fmt: skip


def test_the_score_counts_what_is_absent() -> None:
    stack = random_stack(Sizes("lstm", 3, 4, parts=BOTH), 1, np.float32)
    default, gentle = (score(stack, cases(stack, draw)[0]) for draw in (Draw(), Draw(GENTLE)))
    assert set(FAULTS) >= ABSENT <= {mutant.name for mutant in default.caught}
    assert not default.missed
    assert {"clip of the gates added", "clip of the cell added"} <= {mutant.name for mutant in gentle.missed}


def test_what_was_kept_is_not_run_with_other_cases(tmp_path: Path) -> None:
    needed("onnxruntime", "onnxruntime")
    results = verify.run(written(clipped(6.0), tmp_path / "clip.onnx"), Plan(cases=GENTLE, on=["onnxruntime-cpu"]))
    report = rc.verify(results, written(lstm(), tmp_path / "none.onnx"), on=["onnxruntime-cpu"])
    assert {case["name"] for case in report.document["layers"][0]["cases"]} == set(GENTLE)
    assert DEFAULT_CASES[-1] == "saturating"


ALONE = Plan(cases=GENTLE, on=["onnxruntime-cpu"])
ON = Plan(on=["onnxruntime-cpu"])


def results_of(stack: Recurrent, path: Path) -> Path:
    """Results of a model, in a file of their own."""
    results = path.with_suffix(".results.safetensors")
    verify.run(written(stack, path), ALONE).save(results)
    return results


@pytest.mark.parametrize("second", ["results", "model"])
@pytest.mark.parametrize("swapped", [False, True])
def test_results_of_models_that_state_something_else_are_not_called_equal(second: str, swapped: bool, tmp_path: Path) -> None:
    needed("onnxruntime", "onnxruntime")
    pair = [clipped(6.0), lstm()][:: -1 if swapped else 1]
    a = results_of(pair[0], tmp_path / "a.onnx")
    b = results_of(pair[1], tmp_path / "b.onnx") if second == "results" else written(pair[1], tmp_path / "b.onnx")
    report = rc.verify(a, b, Plan() if second == "results" else ON)
    assert report.verdict == "not compared" and report.exit_code == 1
    clip = "[-6, 6]"
    assert any(clip in warning and "Verify both model files together" in warning for warning in report.document["warnings"])
    assert rc.verify(a, results_of(pair[0], tmp_path / "again.onnx")).equal


def test_a_verdict_that_was_taken_back_stays_so_when_results_are_judged_again(tmp_path: Path) -> None:
    needed("onnxruntime", "onnxruntime")
    pair = (written(clipped(1e30), tmp_path / "clip.onnx"), written(lstm(), tmp_path / "none.onnx"))
    assert rc.verify(*pair, save=tmp_path / "kept.safetensors").verdict == "not compared"
    again = rc.verify(tmp_path / "kept.safetensors")
    assert again.verdict == "not compared" and again.exit_code == 1


def test_results_of_models_that_are_written_in_other_forms_are_equal(tmp_path: Path) -> None:
    needed("onnxruntime", "onnxruntime")
    stack = random_stack(Sizes("lstm", 3, 4, parts=BOTH), 1, np.float32, Cell("lstm")).replace(name="enc")
    zeros = each(stack, lambda d: d.with_arrays({("initial_hidden", ""): np.zeros(4, np.float32)}))
    summed = tmp_path / "summed.msgpack"  # Flax's cell has one bias
    rc.save(rc.Checkpoint("(made)", "canonical", {"enc": stack}), summed, "flax")
    with_zeros, other = results_of(zeros, tmp_path / "a.onnx"), tmp_path / "b.safetensors"
    verify.run(summed, ALONE).save(other)
    report = rc.verify(with_zeros, other)
    assert report.verdict == "equal", report


def test_results_that_do_not_say_what_was_stated_are_not_called_equal(tmp_path: Path) -> None:
    needed("onnxruntime", "onnxruntime")
    both = first, second = [verify.run(written(stack, tmp_path / f"{n}.onnx"), ALONE) for n, stack in enumerate([lstm(), clipped(6.0)])]
    for results in both:
        results.layers["enc"].stated.clear()
    report = rc.verify(first, second)
    assert report.verdict == "not compared" and report.exit_code == 1
    assert any("without what the models state" in warning for warning in report.document["warnings"])


def test_a_proof_keeps_to_a_bound_that_the_caller_says_is_never_reached(tmp_path: Path) -> None:
    need("litert", built_in()["litert-cpu"].absent)
    need("onnxruntime", built_in()["onnxruntime-cpu"].absent)
    random = np.random.default_rng(drawn.SEED)
    equal: list[float] = []
    refused: list[float] = []

    def check(case: tuple[str, float, float]) -> None:
        ending, bound, scale = case
        kind: Any = "cell" if ending == ".tflite" else "gates"
        stack = random_stack(
            Sizes("lstm", 3, 4, parts=PLAIN | {"input_bias"}), 5, np.float32, Cell("lstm", clips=(Clip(kind, -bound, bound),))
        )
        stack = each(stack, lambda d: d.with_arrays({key: np.asarray(array) * np.float32(scale) for key, array in d.arrays.items()}))
        source, target = tmp_path / f"bounded{ending}", tmp_path / "free.pt"
        rc.save(checkpoint(stack), source, force=True)
        try:
            done = rc.convert(source, target, settings=["clip=none"], verify=True, force=True, assume_defaults=True)
        except UsageError as error:
            assert "but they do, however small the inputs are" in str(error)
            refused.append(bound)
            # Zeros lead beyond the bound, too.
            zeros = Case("zeros", "zeros", np.zeros((12, 1, 3)))
            free = each(stack, lambda d: d.replace(cell=d.cell.replace(clips=())))
            assert not np.array_equal(zeros.solve(stack).y, zeros.solve(free).y)
            return
        assert done.report is not None and done.report.verdict == "equal", done.report
        equal.append(bound)

    drawings = [
        (ending, float(random.uniform(0.2, 12)), float(random.uniform(0.3, 5))) for ending in (".tflite", ".onnx") for _ in range(2)
    ]
    drawn.each([(".tflite", 10.0, 1.0), (".tflite", 0.5, 1.0), (".tflite", 0.5, 4.0), *drawings], check)
    assert {10.0, 0.5} <= set(equal) and 0.5 in refused
