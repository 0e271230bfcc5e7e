"""Equal means equal: weights that are not the other's are never called so, whatever their size, type and place; honest ones are."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import ml_dtypes
import numpy as np
import pytest

import rnnconvert as rc
from rnnconvert.core.arrays import FLOATS, Array
from rnnconvert.core.cells import RELU, Cell, Kind
from rnnconvert.core.notes import LayerNote
from rnnconvert.core.verdict import BUT_FOR, BY_LAYER, EQUAL, NOT_COMPARED, NOT_EQUAL
from rnnconvert.core.weights import Direction, Recurrent
from rnnconvert.diagnosis.mutations import same_numbers
from rnnconvert.judging.cases import Draw, cases
from rnnconvert.judging.judging import Allowance, Output, compare
from rnnconvert.judging.power import power
from rnnconvert.language.layout import Sizes
from rnnconvert.rewrites import each
from rnnconvert.running import registry
from rnnconvert.verification.results import LayerResults, ModelRun, read
from rnnconvert.verification.stated import stated
from tests.helpers.commands import call
from tests.helpers.drawn import LONG, SEED, looped
from tests.helpers.requirements import need
from tests.helpers.stacks import BOTH, random_stack

TYPES = ("float16", "bfloat16", "float32", "float64")


def write(path: Path, **layers: Recurrent) -> Path:
    """A file of some layers, in place of any other."""
    named = {name: stack.replace(name=name) for name, stack in layers.items()}
    rc.save(rc.Checkpoint("memory", "memory", named), path, force=True)
    return path


def cast(stack: Recurrent, dtype: str) -> Recurrent:
    """A stack in another element type, each number rounded to the nearest."""
    kind = FLOATS[dtype]
    return each(stack, lambda d: d.with_arrays({key: np.asarray(a).astype(kind) for key, a in d.arrays.items()}))


def changed(stack: Recurrent, change: Callable[[dict[tuple[str, str], Array]], None], at: int = 0) -> Recurrent:
    """A stack with one of its directions changed."""
    count = iter(range(stack.num_layers * stack.num_directions))

    def of(direction: Direction) -> Direction:
        arrays = {key: np.array(a) for key, a in direction.arrays.items()}
        if next(count) == at:
            change(arrays)
        return direction.with_arrays(dict(arrays))

    return each(stack, of)


def judged(folder: Path, a: Recurrent, b: Recurrent, **choices: Any) -> rc.Report:
    """What the reference alone says of two stacks, each in a file; no framework runs."""
    first, second = (write(folder / f"{name}.safetensors", enc=stack) for name, stack in (("a", a), ("b", b)))
    return rc.verify(first, second, on=["reference"], explain=False, **choices)


def nothing_against(report: rc.Report) -> bool:
    """Whether a framework that computes what B's file holds would make the verdict "equal"."""
    fine = report.verdict == NOT_COMPARED and not report.document["reasons"] and not report.conclusion.exceptions
    return fine and all(run["verdict"] == EQUAL for layer in report.document["layers"] for run in layer["runs"])


def ulps(values: Array, count: float) -> Array:
    """Numbers that many units in the last place of their type away, at least the smallest number of the type."""
    info = ml_dtypes.finfo(values.dtype)
    size = np.maximum(np.abs(values.astype(np.float64)), float(info.smallest_normal))
    step = np.exp2(np.floor(np.log2(size))) * float(info.eps)
    return np.asarray((values.astype(np.float64) + count * step).astype(values.dtype))


def one_weight(draw: random.Random) -> Callable[[dict[tuple[str, str], Array]], None]:
    def change(arrays: dict[tuple[str, str], Array]) -> None:
        array = arrays[draw.choice(sorted(key for key in arrays if key[0] in ("input", "recurrent")))]
        at = tuple(draw.randrange(length) for length in array.shape)
        array[at] = ulps(np.asarray(array[at]), draw.choice([-40, -4, 4, 40]))

    return change


def one_row(draw: random.Random) -> Callable[[dict[tuple[str, str], Array]], None]:
    def change(arrays: dict[tuple[str, str], Array]) -> None:
        array = arrays[draw.choice(sorted(key for key in arrays if key[0] in ("input", "recurrent")))]
        array[draw.randrange(len(array))] *= np.asarray(draw.choice([-1, 0, 2]), array.dtype)

    return change


def one_gate(draw: random.Random) -> Callable[[dict[tuple[str, str], Array]], None]:
    def change(arrays: dict[tuple[str, str], Array]) -> None:
        array = arrays[draw.choice(sorted(key for key in arrays if key[0] in ("input", "recurrent")))]
        array *= np.asarray(1 + draw.choice([-8, 8, 64]) * float(ml_dtypes.finfo(array.dtype).eps), array.dtype)

    return change


def drawn_stack(draw: random.Random) -> Recurrent:
    kind = draw.choice(["rnn", "gru", "lstm"])
    form = Sizes(kind, draw.randint(1, 5), draw.randint(1, 9), num_layers=draw.randint(1, 2), num_directions=draw.randint(1, 2),
                 parts=BOTH)  # fmt: skip
    stack = random_stack(form, draw.randrange(10**6), np.float64)
    # Columns and rows of other sizes than the largest, as trained weights have.
    small = 2.0 ** -draw.randint(0, 9)

    def scaled(arrays: dict[tuple[str, str], Array]) -> None:
        for (part, _), array in arrays.items():
            if part == "input":
                array[:, 0] *= small

    return changed(stack, scaled)


@looped(number=range(400 if LONG else 10))
def test_a_change_above_rounding_is_never_equal_and_a_cast_always_is(number: int, tmp_path: Path) -> None:
    draw = random.Random(f"{SEED} {number}")
    types = draw.choice(TYPES), draw.choice(TYPES)
    a = cast(drawn_stack(draw), types[0])
    b = cast(a, types[1])
    honest = judged(tmp_path, a, b)
    assert nothing_against(honest), (types, honest.document["reasons"], honest.conclusion, str(honest))
    coarser, finer = (float(ml_dtypes.finfo(FLOATS[entry]).eps) for entry in reversed(types))
    if coarser > finer:
        assert any(entry.kind == "cast" and types[1] in entry.words for entry in honest.conclusion.remarks)
    assert rc.diff(tmp_path / "a.safetensors", tmp_path / "b.safetensors").verdict.word != NOT_EQUAL
    # Where B is the wider one, a unit in its last place is less than one of A's, whose cast back it may be.
    wider = float(ml_dtypes.finfo(FLOATS[types[1]]).eps) < float(ml_dtypes.finfo(FLOATS[types[0]]).eps)
    right = a if wider else b
    change = draw.choice([one_weight, one_row, one_gate])(draw)
    wrong = changed(right, change, draw.randrange(a.num_layers * a.num_directions))
    if same_numbers(right, wrong):
        return  # a row of zeros, or a number that was rounded away
    wrong = cast(wrong, types[1])
    report = judged(tmp_path, a, wrong)
    assert not nothing_against(report), (types, str(report))


# Specimens ----------------------------------------------------------------------------------------------


def lstm(seed: int = 0, inputs: int = 6, units: int = 16, scale: float = 0.3) -> Recurrent:
    return random_stack(Sizes("lstm", inputs, units, parts=BOTH), seed, np.float32, scale=scale)


def small_column(arrays: dict[tuple[str, str], Array]) -> None:
    for (part, _), array in arrays.items():
        if part == "input":
            array[:, 0] *= np.float32(1e-3)


def without_column(arrays: dict[tuple[str, str], Array]) -> None:
    for (part, _), array in arrays.items():
        if part == "input":
            array[:, 0] = 0


def small_negated(arrays: dict[tuple[str, str], Array]) -> None:
    for array in arrays.values():
        array[np.abs(array) < 0.03 * np.abs(array).max()] *= np.asarray(-1, array.dtype)


def larger(arrays: dict[tuple[str, str], Array]) -> None:
    for key, array in arrays.items():
        arrays[key] = (array.astype(np.float32) * np.float32(1 + 3 / 128)).astype(array.dtype)


@pytest.mark.parametrize(
    ("types", "change"),
    [
        (("float32", "float16"), without_column), (("float32", "float16"), small_negated),
        (("bfloat16", "bfloat16"), larger), (("bfloat16", "bfloat16"), small_negated), (("float16", "float16"), larger),
    ],
)  # fmt: skip
def test_small_weights_of_a_short_type_are_judged(types: tuple[str, str], change: Any, tmp_path: Path) -> None:
    need("torch", registry.executors()["torch-cpu"].absent)
    a = cast(changed(lstm(), small_column), types[0])
    b = changed(cast(a, types[1]), change)
    first, second = (write(tmp_path / f"{name}.safetensors", enc=stack) for name, stack in (("a", a), ("b", b)))
    report = rc.verify(first, second, on=["torch-cpu"], explain=False)
    assert (report.verdict, report.exit_code) == (NOT_EQUAL, 1)
    words = " ".join(str(report).split())  # the folder's name decides where a line ends
    assert "B's weights are not A's" in words and types[1] in words
    difference = rc.diff(first, second)
    assert not difference and difference.verdict.word == NOT_EQUAL
    honest = rc.verify(first, write(tmp_path / "c.safetensors", enc=cast(a, types[1])), on=["torch-cpu"], explain=False)
    assert honest and (types[0] == types[1] or f"held in {types[1]}, its weights cost up to" in str(honest))


def relu_with_a_large_unit() -> tuple[Recurrent, Recurrent]:
    def large(arrays: dict[tuple[str, str], Array]) -> None:
        arrays["recurrent", "n"][:] = 0
        arrays["input", "n"][0] *= np.float32(1e7)

    def negated(arrays: dict[tuple[str, str], Array]) -> None:
        for part in ("input", "input_bias"):
            arrays[part, "n"][1:] *= np.float32(-1)

    a = changed(random_stack(Sizes("rnn", 3, 4, parts=BOTH), 0, np.float32, Cell("rnn", activation=RELU)), large)
    return a, changed(a, negated)


def test_one_large_unit_hides_no_other(tmp_path: Path) -> None:
    report = judged(tmp_path, *relu_with_a_large_unit(), settings=["nonlinearity=relu"])
    assert report.verdict == NOT_EQUAL and "unit 0:" not in str(report)


def test_a_unit_is_judged_by_those_of_its_size() -> None:
    truth = np.tile(np.array([1e6, 0.5, 0.4]), (5, 2, 1))
    floor = truth * (1 + 1e-7)
    output, allowance = Output("c", "y", ("time", "batch", "unit")), Allowance([floor], np.dtype(np.float32))
    assert compare(output, floor, truth, allowance).passed
    off = truth.copy()
    off[3, 1, 2] += 1e-3
    compared = compare(output, off, truth, allowance)
    assert (compared.passed, compared.worst.index, compared.mismatched) == (False, (3, 1, 2), 1)
    lucky = floor.copy()
    lucky[..., 1] = truth[..., 1]  # a unit without any error of its own may have that of those of its size
    assert compare(output, floor, truth, Allowance([lucky], np.dtype(np.float32))).passed


def times(factor: float, others: float | None = None) -> Callable[[dict[tuple[str, str], Array]], None]:
    """A change that multiplies all arrays; those of the input alone, where the others are multiplied by another factor."""

    def change(arrays: dict[tuple[str, str], Array]) -> None:
        for (part, _), array in arrays.items():
            array *= np.float32(factor if others is None or part == "input" else others)

    return change


def saturated() -> tuple[Recurrent, Recurrent]:
    a = random_stack(Sizes("lstm", 3, 4), 0, np.float32)
    a = changed(a, times(1e6, others=0))
    return a, changed(a, times(2))


def tiny(factor: float) -> tuple[Recurrent, Recurrent]:
    a = changed(random_stack(Sizes("lstm", 3, 4), 0, np.float32), times(1e-9))
    return a, changed(a, times(factor))


@pytest.mark.parametrize("pair", [saturated(), tiny(0), tiny(-1)], ids=["saturated", "against zeros", "against negatives"])
def test_scaled_inputs_exercise_what_usual_ones_do_not(pair: tuple[Recurrent, Recurrent], tmp_path: Path) -> None:
    a, b = pair
    report = judged(tmp_path, a, b)
    assert report.verdict == NOT_EQUAL
    assert any("times 2^" in case["name"] for case in report.document["layers"][0]["cases"])
    before, _ = cases(a, Draw())
    assert power(a, before)[0].words.startswith("4 of 4 units were not exercised")
    assert nothing_against(judged(tmp_path, a, a))


def test_the_users_own_inputs_are_left_as_they_are_and_the_verdict_says_so(tmp_path: Path) -> None:
    need("torch", registry.executors()["torch-cpu"].absent)
    a = random_stack(Sizes("gru", 3, 4, parts=BOTH), 0, np.float32, Cell("gru", True))

    def negated(arrays: dict[tuple[str, str], Array]) -> None:
        for gate in "rzn":
            arrays["input", gate] *= np.float32(-1)

    files = [write(tmp_path / name, enc=stack) for name, stack in (("a.safetensors", a), ("b.safetensors", changed(a, negated)))]
    np.savez(tmp_path / "x.npz", x=np.zeros((5, 2, 3), np.float32))
    words = ["verify", *files, "--on", "torch-cpu", "--inputs", tmp_path / "x.npz", "--no-explain"]
    assert call(*words).exit_code == 0
    strict = call(*words, "--strict", "--json")
    document = json.loads(strict.stdout)
    assert (strict.exit_code, document["verdict"]) == (6, BUT_FOR)
    assert {limit["kind"] for limit in document["limits"]} == {"units", "weights"}
    assert "4 of 4 units were not exercised" in str(document["limits"])
    with pytest.warns(UserWarning, match="units were not exercised"):
        from rnnconvert.pytest_plugin import Equivalence

        assert not Equivalence().assert_equivalent(files[0], files[0], on=["torch-cpu"], inputs=str(tmp_path / "x.npz"))


@looped(24, kind=("rnn", "gru", "lstm"), layers=(1, 2), directions=(1, 2), units=(1, 7), dtype=TYPES)
def test_ordinary_layers_are_exercised_by_the_usual_inputs(kind: Kind, layers: int, directions: int, units: int, dtype: str) -> None:
    for cell in [Cell("gru", True), Cell("gru", False)] if kind == "gru" else [Cell(kind)]:
        form = Sizes(kind, 3, units, num_layers=layers, num_directions=directions, parts=BOTH)
        stack = cast(random_stack(form, 1, np.float64, cell), dtype)
        measured, added = power(stack, cases(stack, Draw())[0], 0)
        assert not measured.words and not added and measured.cases


def test_what_nothing_can_run_is_said_with_what_compares_it(tmp_path: Path) -> None:
    source, target = write(tmp_path / "a.safetensors", enc=lstm()), tmp_path / "b.t7"
    refused = call("convert", source, target, "--verify")
    assert refused.exit_code == 5 and "and compare the weights: rnnconvert diff" in " ".join(refused.output.split())
    assert call("convert", source, target).exit_code == 0
    result = call("verify", source, target)
    assert result.exit_code == 5 and f"To compare the weights: rnnconvert diff {source} {target}" in " ".join(result.output.split())


def test_two_models_of_no_numbers_are_not_green_anywhere(tmp_path: Path) -> None:
    need("torch", registry.executors()["torch-cpu"].absent)

    def broken(arrays: dict[tuple[str, str], Array]) -> None:
        arrays["input_bias", "i"][:] = np.nan

    a = changed(lstm(), broken)
    files = [write(tmp_path / name, enc=stack) for name, stack in (("a.safetensors", a), ("b.safetensors", a))]
    result = call("verify", *files, "--on", "torch-cpu", "--report", tmp_path / "r.xml", "--report", tmp_path / "r.sarif")
    assert result.exit_code == 5
    assert ElementTree.parse(tmp_path / "r.xml").getroot().findall(".//error")
    text = (tmp_path / "r.sarif").read_text()
    assert "torch-cpu ran (the module itself), but its outputs could not be judged" in text and "no framework here ran it" not in text


def test_layers_that_were_not_chosen_are_named(tmp_path: Path) -> None:
    need("torch", registry.executors()["torch-cpu"].absent)
    a = write(tmp_path / "a.safetensors", a=lstm(1), b=lstm(2))
    b = write(tmp_path / "b.safetensors", a=lstm(1), b=lstm(3))
    report = rc.verify(a, b, layers=["a"], on=["torch-cpu"], explain=False)
    assert report and "'b' of" in str(report.conclusion) and "was not compared" in str(report)
    difference = rc.diff(a, b, layers=["a"])
    assert difference and "'b' of" in str(difference)


def test_a_tolerance_that_lets_zeros_pass_proves_nothing(tmp_path: Path) -> None:
    need("torch", registry.executors()["torch-cpu"].absent)
    file = write(tmp_path / "a.safetensors", enc=lstm())
    report = rc.verify(file, file, on=["torch-cpu"], atol=10, explain=False)
    assert report.verdict == NOT_COMPARED and not report
    compared = [comparison for layer in report.document["layers"] for run in layer["runs"] for comparison in run["comparisons"]]
    assert {comparison["output"] for comparison in compared} == {"y, padded steps"}  # which are zeros
    some = rc.verify(file, file, on=["torch-cpu"], atol={"c_n": 10}, explain=False)
    assert some.verdict == BUT_FOR and "zeros in place of c_n would pass" in str(some)


def test_what_a_run_of_the_whole_source_showed_is_kept_and_decides(tmp_path: Path) -> None:
    need("torch", registry.executors()["torch-cpu"].absent)
    file = write(tmp_path / "a.safetensors", enc=lstm())
    for model_run, word, code in (
        (ModelRun("equal", executor="torch-cpu"), EQUAL, 0),
        (ModelRun("not run", "no framework here runs it whole"), BY_LAYER, 7),
        (ModelRun("not equal", "its outputs are off by 0.2", 0.2, 1e-6, "torch-cpu", ("one note",)), NOT_EQUAL, 1),
    ):  # fmt: skip
        results = rc.run(file, on=["torch-cpu"], cases=["states"])
        (layer,) = results.layers.values()
        layer.whole = model_run
        results.save(tmp_path / "r.safetensors")
        stored = read(tmp_path / "r.safetensors")
        assert stored is not None and [layer_results.whole for layer_results in stored.layers.values()] == [model_run]
        report = rc.verify(stored, strict=True)
        assert (report.verdict, report.exit_code, bool(report)) == (word, code, word == EQUAL)
        assert model_run.reason in str(report)
    assert LayerResults("x", "").whole is None


def test_directions_that_one_model_keeps_apart_are_compared_side_by_side(tmp_path: Path) -> None:
    need("torch", registry.built_in()["torch-cpu"].absent)
    both = random_stack(Sizes("lstm", 3, 4, num_directions=2, parts=BOTH), 0, np.float32).replace(name="a")
    apart = both.replace(layers=(rc.Layer(both.layers[0].directions, "none"),))
    negated = apart.replace(layers=(rc.Layer(tuple(map(_negated, apart.layers[0].directions)), "none"),))
    rc.save(rc.Checkpoint("m", "canonical", {"a": both}), tmp_path / "b.pt", "pytorch")
    words = {"apart": BUT_FOR, "negated": NOT_EQUAL}
    for name, stack in {"apart": apart, "negated": negated}.items():
        rc.save(rc.Checkpoint("m", "canonical", {"a": stack}), tmp_path / f"{name}.keras", "keras")
        report = rc.verify(tmp_path / f"{name}.keras", tmp_path / "b.pt", on=["torch-cpu"], explain=False)
        assert report.verdict == words[name]
        assert "A gives the outputs of its directions apart, and B side by side" in str(report.document["limits"])
    assert not stated(apart, both)


def _negated(direction: Direction) -> Direction:
    return direction.with_arrays({key: -np.asarray(source) for key, source in direction.arrays.items()})


def test_how_directions_are_joined_and_precision_are_part_of_a_diff() -> None:
    form = Sizes("lstm", 3, 4, num_directions=2, parts=BOTH)
    both = random_stack(form, 0, np.float32).replace(name="a")
    summed = both.replace(layers=(rc.Layer(both.layers[0].directions, "sum"),))

    def of(stack: Recurrent, format: str = "keras", *notes: str) -> rc.Checkpoint:
        return rc.Checkpoint("m", format, {"a": stack}, warnings=tuple(LayerNote("a", text) for text in notes))

    assert rc.diff(of(both), of(both)).verdict.word == EQUAL
    difference = rc.diff(of(both), of(summed))
    assert difference.verdict.word == NOT_EQUAL and "how directions are joined: concat in A, sum in B" in str(difference)
    across = rc.diff(of(both), of(summed, "onnx"))
    assert across.verdict.word == BUT_FOR and not across and "joining directions by sum" in str(across.verdict)
    mixed = rc.diff(of(both), of(both, "keras", "it computes in float16 there (mixed_float16)"))
    assert mixed.verdict.word == BUT_FOR and not mixed and "mixed_float16" in str(mixed) and mixed.verdict.exit_code() == 0
    half = rc.diff(of(both), of(cast(both, "float16")))
    assert half.verdict.word == BUT_FOR and "is equal but for: a: rounding in" in str(half)
    zeroed = rc.diff(of(both, "keras", "its outputs are zero where its input is masked"), of(both))
    assert [limit.kind for limit in zeroed.verdict.limits] == ["mask"]


@pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning", "ignore:invalid:RuntimeWarning")
def test_what_a_type_cannot_hold_is_not_rounded(tmp_path: Path) -> None:
    def large(arrays: dict[tuple[str, str], Array]) -> None:
        arrays["input", "i"][0, 0] = 70_000

    stack = changed(lstm(), large)
    with np.errstate(over="ignore"):
        half = cast(stack, "float16")
    report = judged(tmp_path, stack, half)
    assert report.verdict == NOT_EQUAL and "70000 in A, inf in B" in " ".join(report.document["reasons"])
    assert nothing_against(judged(tmp_path, stack, cast(stack, "bfloat16")))


def test_another_unit_behind_a_projection_is_a_stated_difference() -> None:
    stack = random_stack(Sizes("lstm", 3, 4, projection_size=2, parts=BOTH | {"projection"}), 0, np.float32)

    def wider(direction: Direction) -> Direction:
        """The direction with a unit that opens only for large inputs."""
        arrays = {}
        for (part, gate), source in direction.arrays.items():
            values = np.asarray(source)
            new = {"input": 100.0, "projection": 0.5}.get(part, 0.0)
            new = -1e5 if (part, gate) == ("input_bias", "i") else new
            pads = [(0, int(axis == (part == "projection"))) for axis in range(values.ndim)]
            arrays[part, gate] = np.pad(values, pads, constant_values=np.float32(new))
        return direction.with_arrays(arrays)

    apart = stated(stack, each(stack, wider))
    assert {difference.part for difference in apart} >= {"input", "recurrent", "projection"}
    assert not stated(stack, stack)


def test_weights_that_saved_results_do_not_hold_limit_what_they_prove(tmp_path: Path) -> None:
    need("torch", registry.executors()["torch-cpu"].absent)

    def column(sign: float) -> Callable[[dict[tuple[str, str], Array]], None]:
        def change(arrays: dict[tuple[str, str], Array]) -> None:
            for gate in "ifgo":
                arrays["input", gate][:, 0] = np.float32(sign * 1e-7)

        return change

    def without(direction: Direction) -> Direction:
        """The direction with its second biases as zeros: another format has none."""
        arrays = {key: np.zeros_like(a) if key[0] == "recurrent_bias" else a for key, a in direction.arrays.items()}
        return direction.with_arrays(arrays)

    stack = each(changed(lstm(), column(1)), without)
    a, b = (write(tmp_path / f"{name}.safetensors", enc=entry) for name, entry in (
        ("a", stack), ("b", each(changed(stack, column(-1)), without))))  # fmt: skip
    fewer = each(stack, lambda d: d.with_arrays({k: a for k, a in d.arrays.items() if k[0] != "recurrent_bias"}))
    same = write(tmp_path / "same.onnx", enc=fewer)
    recording = rc.run(a, on=["torch-cpu"], cases=["states"])
    report = rc.verify(recording, b, on=["torch-cpu"], explain=False)
    assert report.verdict == BUT_FOR and [entry.kind for entry in report.conclusion.exceptions if entry.kind != "units"] == ["weights"]
    report = rc.verify(recording, same, on=["torch-cpu"], explain=False)
    assert "weights" not in [entry.kind for entry in report.conclusion.limits]


def test_a_mask_in_one_of_two_files_of_one_format_is_left_out() -> None:
    stack = lstm().replace(name="a")

    def of(format: str, *notes: str) -> rc.Checkpoint:
        return rc.Checkpoint("m", format, {"a": stack}, warnings=tuple(LayerNote("a", text) for text in notes))

    passed = "a mask is passed to it (any): pass the lengths of its sequences"
    states = "the model gives its initial state (dense): pass it at every call"
    asked = rc.diff(of("onnx", "its clip is left out, as asked"), of("onnx"))
    assert asked.verdict.word == EQUAL and [limit.kind for limit in asked.verdict.limits] == ["chosen"]
    for text, kind in ((passed, "mask"), (states, "stated")):
        difference = rc.diff(of("keras", text), of("keras"))
        assert difference.verdict.word == BUT_FOR and [limit.kind for limit in difference.verdict.limits] == [kind]
        assert rc.diff(of("keras", text), of("keras", text)).verdict.word == EQUAL
        across = rc.diff(of("keras", text), of("onnx"))
        assert across.verdict.word == EQUAL and [limit.kind for limit in across.verdict.limits] == ["caller"]


def test_outputs_that_differ_are_not_said_to_show_nothing(tmp_path: Path) -> None:
    def doubled(arrays: dict[tuple[str, str], Array]) -> None:
        arrays["input", "i"] *= 2

    report = judged(tmp_path, lstm(), changed(lstm(), doubled))
    assert report.verdict == NOT_EQUAL and "weights" not in [limit.kind for limit in report.conclusion.limits]


def test_a_proof_without_an_explanation_is_kept(tmp_path: Path) -> None:
    need("torch", registry.executors()["torch-cpu"].absent)
    file = write(tmp_path / "a.safetensors", enc=lstm())
    for again in (False, True):
        report = rc.verify(file, on=["torch-cpu"], cases=["states"], explain=False, cache=tmp_path / "proofs")
        assert ("nothing has changed since" in report.document["summary"]) == again
    report.write(str(tmp_path / "report.html"))
