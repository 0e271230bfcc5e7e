"""Verification accepts rounding errors that a recurrence amplifies, and still rejects a real difference there."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import rnnconvert as rc
from rnnconvert.core.arrays import Array
from rnnconvert.core.cells import Activation
from rnnconvert.core.reference import Outputs
from rnnconvert.core.weights import Recurrent
from rnnconvert.judging import rounding
from rnnconvert.judging.case_kinds import Case
from rnnconvert.judging.cases import cases, shaken, solved, worse
from rnnconvert.judging.comparison import unlike
from rnnconvert.judging.judging import Allowance, Output, compare
from rnnconvert.judging.measure import Measure
from rnnconvert.models.verify import WholeModels
from rnnconvert.rewrites import each
from rnnconvert.scaffolding.proof import _telling
from rnnconvert.verification.verify import verify
from tests.helpers.onnx_graphs import in_onnxruntime
from tests.helpers.requirements import needed
from tests.helpers.sources import checkpoint, stack

FLOAT32 = rounding.ARITHMETICS["float32"]


def growing(gain: float, size: float, units: int = 16) -> Recurrent:
    """An RNN whose small states grow by a factor in each step: onnxruntime's tanh of small values is off by about a third of a unit
    in the last place of 1, however small they are, and that grows with them.
    """
    draw = np.random.default_rng(0)
    turn = np.linalg.qr(draw.normal(size=(units, units)))[0] * gain

    def of(key: tuple[str, str], values: Array) -> Array:
        if key[0] == "recurrent":
            return turn.astype(np.float32)
        return np.asarray(draw.uniform(-1, 1, values.shape) * size * (key[0] == "input"), np.float32)

    plain = stack("rnn", hidden_size=units)
    return each(plain, lambda d: d.with_arrays({key: of(key, np.asarray(v)) for key, v in d.arrays.items()}))


def scaled(model: Recurrent, part: str, factor: float) -> Recurrent:
    """A layer with the weights of one part multiplied by a factor."""
    return each(
        model, lambda d: d.with_arrays({key: np.asarray(array) * np.float32(factor) for key, array in d.arrays.items() if key[0] == part})
    )


def run(model: Recurrent, case: Case, path: Path) -> Outputs:
    """What onnxruntime gives for a case."""
    rc.save(checkpoint(model), path, force=True)
    y, h_n = in_onnxruntime(path, case.x)
    return Outputs(y, tuple(h_n))


@pytest.mark.parametrize(("gain", "size"), [(1.5, 1e-3), (2.0, 1e-3)])
def test_amplified_rounding_is_no_difference(gain: float, size: float, tmp_path: Path) -> None:
    model = growing(gain, size)
    (case,) = (candidate for candidate in cases(model)[0] if candidate.name == "default states")
    truths, single = solved(model, [case]), solved(model, [case], np.float32)
    moved, off = solved(shaken(model, np.float32), [case]), rounding.of_functions(model, [case], FLOAT32)
    outputs, measure = run(model, case, tmp_path / "a.onnx"), Measure.of(model, case, np.float32)
    assert measure.explains(outputs)
    # Without the error of functions, what rounds in sums and in weights is far from what a right program gives.
    error = np.abs(outputs.y - truths[0].y).max()
    assert error > 8 * np.abs(worse(truths[0], single[0], moved[0]).y - truths[0].y).max()
    assert error < 8 * np.abs(rounding.floors(model, [case], FLOAT32, truths, off, single, moved)[0].y - truths[0].y).max()
    for part in ("input", "recurrent"):  # a difference that is larger than rounding becomes remains one
        assert not measure.explains(run(scaled(model, part, 1.01), case, tmp_path / "b.onnx"))


@pytest.mark.parametrize("kind", ["rnn", "gru", "lstm"])
def test_layers_that_amplify_nothing_are_judged_by_sums_and_weights(kind: str) -> None:
    model = stack(kind, num_layers=2)
    some = [case for case in cases(model)[0] if case.name != "saturating"]
    truths, single = solved(model, some), solved(model, some, np.float32)
    moved, off = solved(shaken(model, np.float32), some), rounding.of_functions(model, some, FLOAT32)
    floors = rounding.floors(model, some, FLOAT32, truths, off, single, moved)
    for truth, floor, *rough in zip(truths, floors, single, moved, strict=True):
        assert np.mean(floor.y != worse(truth, *rough).y) < 0.01


def test_other_weights_are_never_equal_however_far_rounding_leads(tmp_path: Path) -> None:
    needed("onnxruntime", "onnxruntime")
    model = growing(2.0, 1e-3)
    rc.save(checkpoint(model), tmp_path / "a.onnx")
    rc.save(checkpoint(model), tmp_path / "right.safetensors", "pytorch")
    assert str(verify(tmp_path / "a.onnx", tmp_path / "right.safetensors").verdict) in ("equal", "equal but for")
    for factor in (1.001, 1.01):
        for part in ("input", "recurrent"):
            rc.save(checkpoint(scaled(model, part, factor)), tmp_path / "b.onnx", force=True)
            report = verify(tmp_path / "a.onnx", tmp_path / "b.onnx")
            assert report.verdict != "equal" and (factor < 1.01 or not report.equal), (factor, part)


def test_a_cell_sums_up_the_error_of_a_gate_that_is_nearly_shut(tmp_path: Path) -> None:
    """Where the input gate lets a millionth through and the forget gate keeps it, each step adds the error of the gate's sigmoid."""
    gates = {"i": -13.0, "f": 12.0}

    def of(key: tuple[str, str], values: Array) -> Array:
        return values + np.float32(gates.get(key[1], 0.0)) * (np.arange(len(values)) % 4 == 0) if key[0] == "input_bias" else values

    plain = stack("lstm", hidden_size=16)
    model = each(plain, lambda d: d.with_arrays({key: of(key, np.asarray(values)) for key, values in d.arrays.items()}))
    (case,) = (candidate for candidate in cases(model)[0] if candidate.name == "default states")
    truths, single = solved(model, [case]), solved(model, [case], np.float32)
    moved, measure = solved(shaken(model, np.float32), [case]), Measure.of(model, case, np.float32)
    unit = np.arange(16) % 4 == 0
    for seed in range(10, 14):
        off = rounding.of_functions(model, [case], FLOAT32, seed)[0]
        error = np.abs(off.cell[0] - truths[0].cell[0])[:, unit].max()
        assert error > 8 * np.abs(worse(truths[0], single[0], moved[0]).cell[0] - truths[0].cell[0])[:, unit].max()
        assert measure.explains(off)
    rc.save(checkpoint(model), tmp_path / "a.onnx")
    y, h_n, c_n = in_onnxruntime(tmp_path / "a.onnx", case.x)
    assert measure.explains(Outputs(y, tuple(h_n), tuple(c_n)))
    assert not measure.explains(solved(scaled(model, "recurrent", 1.001), [case])[0])


@pytest.mark.parametrize("kind", ["gru", "lstm"])
def test_the_error_of_a_gate_grows_with_what_it_multiplies(kind: str) -> None:
    """A unit that a gate takes from 40 to nearly 0 is off by 40 units in the last place of 1, however small it is.

    No large unit beside it excuses that, and in a library's sum in another order it may be met by chance alone.
    """
    relu = Activation("relu")
    plain = stack(kind, hidden_size=16)
    model = each(scaled(plain, "input", 40.0), lambda d: d.replace(cell=d.cell.replace(activation=relu, output_activation=relu)))
    (case,) = (candidate for candidate in cases(model)[0] if candidate.name == "default states")
    measure = Measure.of(model, case, np.float32)
    for seed in range(10, 14):
        assert measure.explains(rounding.of_functions(model, [case], FLOAT32, seed)[0])
    assert not measure.explains(solved(scaled(model, "input", 1.001), [case])[0])


def test_smaller_inputs_are_taken_where_values_explode() -> None:
    """What is not compared on the usual inputs of a scaffold's proof is compared on smaller ones, and named in a note."""

    def run(inputs: list[Array], earlier: list[Array]) -> WholeModels:
        size = float(np.abs(inputs[0]).max())
        assert inputs[1].dtype == np.int64 and inputs[1][0] == 7 and len(earlier) == 1
        truth = np.full((2, 3), 1e5 * size)
        floor = truth * (1 + size)
        return WholeModels(
            (compare(Output("", "output"), truth * 30 if size > 0.5 else truth, truth, Allowance([floor], np.dtype("f4"))),), ()
        )

    inputs = [np.ones((2, 3), "f4"), np.array([7])]
    exploding = run(inputs, [inputs[0]])
    assert exploding.verdict == "not compared" and not exploding.telling and "proves nothing" in str(exploding)
    proof = _telling(run, inputs, [inputs[0]])
    assert proof.verdict == "equal" and "0.1 times the usual" in " ".join(proof.notes)


def test_a_difference_that_rounding_does_not_swamp_is_not_equal() -> None:
    truth = np.full((2, 3), 5.0)
    compared = compare(Output("", "output"), truth + 1, truth, Allowance([truth + 1e-6], np.dtype("f4")))
    wrong_shape = unlike("", "output", (1, 3), (2, 3))
    for comparison in (compared, wrong_shape):
        assert WholeModels((comparison,), ()).verdict == "not equal"
