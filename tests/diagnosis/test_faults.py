"""Every wrong convention is caught by the usual cases, and can be missed by inputs that cannot see it."""

from __future__ import annotations

import functools

import numpy as np
import pytest

from rnnconvert.core.cells import Cell
from rnnconvert.core.weights import Recurrent
from rnnconvert.diagnosis import mutations
from rnnconvert.diagnosis.faults import FAULTS
from rnnconvert.diagnosis.mutations import MARGIN, Score, capped, cost, score
from rnnconvert.judging.case_kinds import Case
from rnnconvert.judging.cases import Draw, cases, solved
from rnnconvert.judging.measure import Measure
from rnnconvert.language.layout import Sizes
from rnnconvert.rewrites import each
from tests.helpers.planted import MODELS, model_for
from tests.helpers.stacks import BOTH, PLAIN, random_stack

INPUTS = {name: cases(stack, Draw(seed=3))[0] for name, stack in MODELS.items()}
WHERE = {name: model_for(fault, INPUTS) for name, fault in FAULTS.items()}


def caught(result: Score) -> set[str]:
    return {fault.name for fault in result.caught}


def zeros(stack: Recurrent) -> Recurrent:
    return each(stack, lambda d: d.with_arrays({key: np.zeros(s.shape, np.float32) for key, s in d.arrays.items()}))


def blind(case: Case) -> Case:
    """The same case with states of zeros."""
    hidden, cell = (states and tuple(np.zeros_like(s) for s in states) for states in (case.hidden, case.cell))
    return Case(case.name, case.what, case.x, hidden, cell, case.lengths, case.way)


@functools.cache
def scored(model: str, seen: bool = True) -> Score:
    """The score of a model's usual cases, or of cases and weights that show nothing."""
    stack, inputs = MODELS[model], INPUTS[model]
    return score(stack, inputs) if seen else score(zeros(stack), [blind(case) for case in inputs])


@pytest.mark.drawn(25)
@pytest.mark.parametrize("name", FAULTS)
def test_the_usual_cases_catch_a_fault_that_blind_ones_miss(name: str) -> None:
    fault, model = FAULTS[name], WHERE[name]
    result = scored(model)
    assert name in caught(result), result.missed
    if name != "initial states of ones":  # a state of ones shows even where every weight is zero
        assert name in {entry.name for entry in scored(model, seen=False).missed}
    assert fault.needs


def test_a_right_model_is_off_by_no_more_than_is_allowed() -> None:
    for name, stack in MODELS.items():
        for case in INPUTS[name]:
            assert Measure.of(stack, case, np.float32).worst(case.solve(stack, np.float32)).ratio <= 1


BIASES = {
    "biases dropped", "input bias dropped", "recurrent bias dropped", "biases added twice", "biases swapped",
    "candidate's recurrent bias outside the reset product", "candidate's input bias inside the reset product",
    "candidate's recurrent bias dropped", "biases of gates r and z swapped",
}  # fmt: skip


def test_zero_biases_hide_what_is_done_to_biases() -> None:
    stack = MODELS["gru"]
    result = score(stack, INPUTS["gru"])
    assert caught(result) >= BIASES
    zero = each(stack, lambda d: d.with_arrays({key: np.zeros_like(np.asarray(s)) for key, s in d.arrays.items() if "bias" in key[0]}))
    hidden = score(zero, INPUTS["gru"])
    assert {fault.name for fault in hidden.missed} >= BIASES
    assert not caught(hidden) & BIASES
    assert all("zero, or equal" in fault.why for fault in hidden.missed if fault.name in BIASES)
    assert "gates r and z swapped" in caught(hidden)


def test_one_step_from_nothing_hides_the_recurrent_half() -> None:
    stack = random_stack(Sizes("gru", 3, 5, parts=PLAIN), 4, np.float32)
    one_step = cases(stack, Draw(["one step"]))[0]
    from_nothing = [Case(case.name, case.what, case.x) for case in one_step]
    missed = {fault.name for fault in score(stack, from_nothing).missed}
    assert missed >= {"recurrent matrix transposed", "reset gate before the product"}
    assert caught(score(stack, one_step)) >= {"recurrent matrix transposed", "reset gate before the product"}


def test_a_square_model_without_lengths_or_states_names_what_it_cannot_show() -> None:
    result = score(MODELS["lstm"], [case for case in INPUTS["lstm"] if case.name == "default states"])
    needs = {fault.name: fault.why for fault in result.inapplicable}
    assert needs["peepholes dropped"] == "needs peepholes"
    assert needs["lengths ignored"] == "needs sequences of different lengths"
    assert needs["initial states ignored"] == "needs initial states"
    assert str(result) == f"{len(result.caught)} of {len(result.caught) + len(result.missed)} wrong conventions would have been caught"


def test_what_rounding_hides_is_missed_and_measured() -> None:
    stack = each(MODELS["lstm"], lambda d: d.with_arrays({("input_bias", g): d.arrays["input_bias", "i"] for g in "ifgo"}))
    near = each(
        stack,
        lambda d: d.with_arrays({("recurrent_bias", g): np.float32(1e-8) * np.asarray(d.arrays["recurrent_bias", g]) for g in "ifgo"}),
    )
    (missed,) = (fault for fault in score(near, INPUTS["lstm"]).missed if fault.name == "recurrent bias dropped")
    assert "times what rounding explains" in missed.why


def test_every_entry_says_how_far_it_is_off() -> None:
    for fault in score(MODELS["two layers, two directions"], INPUTS["two layers, two directions"]).caught:
        assert fault.times_allowed >= MARGIN and fault.error > 0 and fault.case


def test_a_lower_precision_allows_more() -> None:
    stack, inputs = MODELS["lstm"], INPUTS["lstm"]
    fine = {fault.name: fault.times_allowed for fault in score(stack, inputs).caught}
    rough = {fault.name: fault.times_allowed for fault in score(stack, inputs, np.float16).caught}
    assert all(rough[name] < fine[name] / 100 for name in rough if np.isfinite(fine[name]))  # of padding nothing is allowed


def test_a_large_layer_is_run_in_part() -> None:
    stack = random_stack(Sizes("lstm", 512, 512, parts=BOTH), 0, np.float32)
    inputs = cases(stack, Draw(batch=32, time=100))[0]
    short = [capped(stack, case) for case in inputs]
    assert all(case.x.shape[0] * case.x.shape[1] * cost(stack) <= 20_000_000 for case in short)
    assert any(case.lengths is not None and len(set(case.lengths)) > 1 for case in short)
    result = score(stack, inputs)
    assert not result.missed


def test_a_small_layer_is_run_whole() -> None:
    for case in INPUTS["lstm"]:
        assert capped(MODELS["lstm"], case) is case


def test_what_is_not_finite_counts_as_off() -> None:
    stack = MODELS["rnn"]
    case = INPUTS["rnn"][0]
    right = case.solve(stack)
    wrong = Measure.of(stack, case, np.float32).worst(type(right)(np.full_like(right.y, np.nan), right.hidden))
    assert wrong.ratio == np.inf


def test_names_and_sentences_are_unique() -> None:
    assert len({fault.sentence for fault in FAULTS.values()}) == len(FAULTS)
    assert all(name == fault.name for name, fault in FAULTS.items())


def test_no_fault_applies_where_its_cell_is_absent() -> None:
    stack = random_stack(Sizes("rnn", 3, 4, parts=PLAIN), 0, np.float32, Cell("rnn"))
    inputs = cases(stack)[0]
    names = {name for name, fault in FAULTS.items() if any(fault.run(stack, case) is not None for case in inputs)}
    assert names == {
        "candidate through relu", "recurrent matrix transposed", "lengths ignored", "padded steps repeat the last output",
        "padded steps computed", "final states at the padded end", "initial states ignored",
        "clip of the gates added", "forward direction reversed", "initial states of ones",
        "final states are the initial ones", "state not carried over", "batch and time exchanged",
    }  # fmt: skip


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize(("kind", "layers", "directions"), [("lstm", 2, 2), ("gru", 2, 1), ("rnn", 1, 2)])
def test_a_run_in_float32_or_of_one_layer_judges_as_the_exact_one_does(
    kind: str, layers: int, directions: int, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stack = random_stack(Sizes(kind, 5, 6, layers, directions, parts=BOTH), 3, dtype)
    quick = score(stack, cases(stack)[0])
    monkeypatch.setattr(mutations, "CLEAR", np.inf)
    exact = score(stack, cases(stack)[0])
    assert {fault.name for fault in quick.caught} == {fault.name for fault in exact.caught}
    assert quick.missed == exact.missed and quick.inapplicable == exact.inapplicable


def test_cases_that_run_together_give_what_each_gives() -> None:
    stack = random_stack(Sizes("lstm", 5, 6, 2, 2, parts=BOTH), 3, "float64", Cell("lstm"))
    learned = each(stack, lambda d: d.with_arrays({("initial_hidden", ""): np.full(6, 0.3)}))
    for model in (stack, learned):
        inputs = cases(model)[0]
        for case, outputs in zip(inputs, solved(model, inputs), strict=True):
            alone = case.solve(model)
            for mine, its in zip((outputs.y, *outputs.hidden, *outputs.cell), (alone.y, *alone.hidden, *alone.cell), strict=True):
                np.testing.assert_allclose(mine, its, rtol=0, atol=1e-14, err_msg=case.name)
