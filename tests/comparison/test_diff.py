"""The differences of two files' weights, gate by gate, whatever their formats."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rnnconvert as rc
from rnnconvert.comparison.difference import Difference, differences
from rnnconvert.core.cells import HARD_SIGMOID_KERAS_2, HARD_SIGMOID_KERAS_3, Cell, Clip
from rnnconvert.core.weights import Layer, Recurrent
from rnnconvert.diagnosis.faults import FAULTS
from rnnconvert.diagnosis.files import cause, compare_files
from rnnconvert.files.checkpoint import Checkpoint
from rnnconvert.language.layout import Sizes
from rnnconvert.rewrites import COUPLED_GATE, FOLD_CONSTANTS, JOIN_WITH_ZEROS, SUM_BIASES, WRITE_IDENTITY, each
from tests.helpers.commands import call
from tests.helpers.stacks import BOTH, PLAIN, random_stack


def lstm(seed: int = 1, cell: Cell | None = None, into: int = 3, **changes: Any) -> Recurrent:
    form = Sizes("lstm", into, 4, parts=BOTH, **changes)
    return random_stack(form, seed, np.float32, cell).replace(name="enc")


def of(stack: Recurrent) -> Checkpoint:
    return Checkpoint("memory", "canonical", {stack.name: stack})


def off(compared: list[Difference]) -> list[tuple[str, int, int, str, str]]:
    return [
        (difference.kind, difference.layer, difference.direction, difference.part, difference.gate)
        for difference in compared
        if not difference.equal
    ]


def words(compared: list[Difference]) -> str:
    return "\n".join(difference.words for difference in compared)


WRITTEN: list[tuple[str, str | None]] = [(suffix, None) for suffix in (".pt", ".onnx", ".keras", ".weights.h5", ".h5", ".bin")]
WRITTEN += [(suffix, "float16") for suffix in (".pt", ".onnx", ".keras", ".bin")]


@pytest.mark.parametrize(("suffix", "dtype"), WRITTEN)
def test_a_conversion_differs_by_rounding_at_most(suffix: str, dtype: str | None, tmp_path: Path) -> None:
    stack = lstm(num_layers=2, num_directions=2)
    rc.save(of(stack), tmp_path / f"out{suffix}", dtype=dtype)
    (comparison,) = compare_files(of(stack), rc.load(tmp_path / f"out{suffix}"))
    assert comparison.equal
    assert comparison.exact == (dtype is None and suffix in (".pt", ".onnx", ".bin"))


def test_the_cause_of_a_difference_is_named() -> None:
    stack = lstm(num_layers=2, num_directions=2)
    fault = FAULTS["gates i and f swapped"].at(1, 0, "layer 1, the forward direction")
    assert fault is not None and fault.change is not None
    wrong = fault.change(stack)
    assert wrong is not None
    (comparison,) = compare_files(of(stack), of(wrong))
    assert cause(comparison) == "B is A, but gates i and f are swapped in layer 1, the forward direction only"
    (same,) = compare_files(of(stack), of(stack))
    assert cause(same) == ""
    (other,) = compare_files(of(stack), of(lstm(seed=9, num_layers=2, num_directions=2)))
    assert cause(other).startswith("not among A's arrays in any place: ")


def test_one_number_that_differs_is_found() -> None:
    stack = lstm(num_layers=2, num_directions=2)
    changed = np.array(stack[1, 1].arrays["recurrent", "g"])
    changed[2, 3] += np.float32(0.25)
    layer = stack.layers[1]
    other = layer.directions[1].with_arrays({("recurrent", "g"): changed})
    wrong = stack.replace(layers=(stack.layers[0], Layer((layer.directions[0], other))))
    compared = differences(stack, wrong)
    assert off(compared) == [("weights", 1, 1, "recurrent", "g")]
    (difference,) = (difference for difference in compared if not difference.equal)
    assert difference.where == (2, 3) and difference.error == pytest.approx(0.25)
    assert difference.expected is not None and difference.found == pytest.approx(difference.expected + 0.25)
    assert difference.relative == pytest.approx(0.25 / np.abs(np.asarray(stack[1, 1].arrays["recurrent", "g"])).max())
    assert len(compared) == 4 * 16


def test_two_biases_beside_one_are_compared_by_their_sum() -> None:
    stack = lstm()
    compared = differences(stack, each(stack, SUM_BIASES.apply))
    assert not off(compared)
    assert {difference.part for difference in compared} == {"input", "recurrent", "bias"}
    assert "sums of biases compared: two in A, one in B" in words(compared)
    wrong = each(each(stack, SUM_BIASES.apply), lambda d: d.with_arrays({("input_bias", "o"): np.ones(4, np.float32)}))
    assert off(differences(stack, wrong)) == [("weights", 0, 0, "bias", "o")]


def test_a_candidate_whose_product_is_reset_keeps_its_biases_apart() -> None:
    gru = random_stack(Sizes("gru", 3, 4, parts=BOTH), 1, np.float32)
    swapped = each(
        gru,
        lambda d: d.with_arrays(
            {("input_bias", g): d.arrays["recurrent_bias", g] for g in "rzn"}
            | {("recurrent_bias", g): d.arrays["input_bias", g] for g in "rzn"}
        ),
    )
    assert off(differences(gru, swapped)) == [
        ("weights", 0, 0, "input_bias", "n"), ("weights", 0, 0, "recurrent_bias", "n")
    ]  # fmt: skip
    before = each(swapped, lambda d: d.replace(cell=d.cell.replace(reset_after=False)))
    for pair in ((gru, before), (before, gru)):
        assert off(differences(*pair)) == [("feature", 0, 0, "reset gate", ""), *off(differences(gru, swapped))]


def test_a_bias_that_two_files_split_differently_is_the_same() -> None:
    stack = lstm()
    moved = each(
        stack,
        lambda d: d.with_arrays({("input_bias", g): d.arrays["recurrent_bias", g] for g in "ifgo"}
                                | {("recurrent_bias", g): d.arrays["input_bias", g] for g in "ifgo"}),
    )  # fmt: skip
    assert not off(differences(stack, moved))
    dropped = each(stack, lambda d: d.with_arrays({("recurrent_bias", g): None for g in "ifgo"}))
    assert [part for *_, part, _ in off(differences(stack, dropped))] == ["bias"] * 4


def test_what_is_absent_is_compared_with_zeros() -> None:
    stack = lstm()
    zero = each(stack, lambda d: d.with_arrays({("peephole", g): np.zeros(4, np.float32) for g in "ifo"}))
    assert not off(differences(stack, zero)) and not off(differences(zero, stack))
    held = each(stack, lambda d: d.with_arrays({("peephole", g): np.ones(4, np.float32) for g in "ifo"}))
    compared = differences(held, stack)
    assert off(compared) == [("weights", 0, 0, "peephole", g) for g in "ifo"]
    assert "absent in B, compared with zeros" in words(compared)


SAME = {
    "run-time constants folded": lambda: (
        (stack := lstm(cell=Cell("lstm", constants={"f": 1.0}))), each(stack, lambda d: FOLD_CONSTANTS.apply(d, {})), "run time",
    ),
    "a coupled gate written out": lambda: (
        (stack := lstm(cell=Cell("lstm", coupled="f"))), each(stack, COUPLED_GATE.apply), "coupled gate",
    ),
    "a skipped input written as identity": lambda: (
        (stack := each(lstm(into=4), lambda d: d.with_arrays({("input", g): None for g in "ifgo"}))),
        each(stack, WRITE_IDENTITY.apply), "identity",
    ),
    "independent directions written with zeros": lambda: (
        (stack := _independent()), JOIN_WITH_ZEROS.apply(stack), "zeros",
    ),
}  # fmt: skip


def _independent() -> Recurrent:
    forward, backward = lstm(1, num_layers=2), lstm(2, num_layers=2)
    layers = tuple(
        Layer((a.directions[0], b.directions[0].replace(reverse=True))) for a, b in zip(forward.layers, backward.layers, strict=True)
    )
    return forward.replace(layers=layers, join="end")


@pytest.mark.parametrize("name", SAME)
def test_what_an_exact_rewrite_makes_the_same_is_the_same(name: str) -> None:
    first, second, message = SAME[name]()
    for a, b in ((first, second), (second, first)):
        compared = differences(a, b)
        assert not off(compared), off(compared)
        assert message in words(compared)


def test_the_two_hard_sigmoids_are_brought_together() -> None:
    stack = lstm(cell=Cell("lstm", gate_activation=HARD_SIGMOID_KERAS_2))
    other = each(stack, lambda d: d.replace(cell=d.cell.replace(gate_activation=HARD_SIGMOID_KERAS_3)))
    compared = differences(stack, other)
    assert "hard_sigmoid" in words(compared)
    assert {gate for *_, gate in off(compared)} == {"i", "f", "o"}


def test_cells_that_differ_are_told_in_words() -> None:
    stack = lstm()
    clipped = each(stack, lambda d: d.replace(cell=d.cell.replace(clips=(Clip("cell", -3, 3),)), reverse=True))
    compared = differences(stack, clipped)
    assert off(compared) == [("feature", 0, 0, "reads", ""), ("feature", 0, 0, "clips", "")]
    assert "clips: none in A, cell clipped to [-3, 3] in B" in words(compared)
    gru = random_stack(Sizes("gru", 3, 4, parts=PLAIN), 0, np.float32)
    assert "cell: lstm in A, gru in B" in words(differences(stack, gru))
    deep = differences(stack, lstm(num_layers=2))
    assert off(deep)[:1] == [("feature", -1, -1, "number of layers", "")]
    assert "number of layers: 1 in A, 2 in B" in words(deep) and "absent in A" in words(deep)
    wide = differences(stack, lstm(into=5))
    assert {(kind, part) for kind, *_, part, _ in off(wide)} >= {("shape", "input")}
    assert "shape (4, 3) in A, (4, 5) in B" in words(wide)


def test_a_number_that_is_none_differs_from_one_that_is() -> None:
    stack = lstm()
    broken = each(stack, lambda d: d.with_arrays({("recurrent", "i"): np.full((4, 4), np.nan, np.float32)}))
    assert off(differences(stack, broken)) == [("weights", 0, 0, "recurrent", "i")]
    assert not off(differences(broken, broken))


def test_a_folded_projection_is_compared_as_folded(tmp_path: Path) -> None:
    form = Sizes("lstm", 3, 5, num_layers=2, num_directions=2, projection_size=2, parts=BOTH | {"projection"})
    stack = random_stack(form, 1, np.float32).replace(name="enc")
    rc.save(of(stack), tmp_path / "out.onnx")
    (comparison,) = compare_files(of(stack), rc.load(tmp_path / "out.onnx"))
    assert comparison.equal and not comparison.exact
    assert "matrix on the output is outside the other's layer" in words(list(comparison.differences))


# The command ----------------------------------------------------------------------------------------


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path, Path]:
    stack = lstm(num_layers=2)
    rc.save(of(stack), tmp_path / "a.pt")
    rc.save(of(stack), tmp_path / "same.keras")
    wrong = each(stack, lambda d: d.with_arrays({("recurrent", "f"): np.zeros((4, 4), np.float32)}))
    rc.save(of(wrong), tmp_path / "wrong.onnx")
    return tmp_path / "a.pt", tmp_path / "same.keras", tmp_path / "wrong.onnx"


def test_equal_files_end_with_0(files: tuple[Path, Path, Path]) -> None:
    result = call("diff", files[0], files[1])
    assert result.exit_code == 0
    assert " is equal but for" in result.stdout and "sums of biases" in result.stdout and "rounding" in result.stdout
    assert "to the last bit" in call("diff", files[0], files[0]).stdout


def test_files_that_differ_end_with_1_and_name_the_gate(files: tuple[Path, Path, Path]) -> None:
    result = call("diff", files[0], files[2])
    assert result.exit_code == 1
    lines = [line for line in result.stdout.splitlines() if "differs:" in line]
    assert len(lines) == 2 and all("recurrent of gate f" in line for line in lines)
    assert "layer 0, forward" in lines[0] and "layer 1, forward" in lines[1] and "are not equal" in result.stdout


def test_the_command_for_machines(files: tuple[Path, Path, Path]) -> None:
    document = json.loads(call("diff", files[0], files[2], "--json").stdout)
    assert document["equal"] is False
    (layer,) = document["layers"]
    assert [(entry["part"], entry["gate"], entry["layer"]) for entry in layer["differences"]] == [
        ("recurrent", "f", 0), ("recurrent", "f", 1)
    ]  # fmt: skip
    assert layer["counterpart"] == ["enc_l0", "enc_l1"]


def test_pairs_are_chosen_on_the_command_line(files: tuple[Path, Path, Path]) -> None:
    result = call("diff", files[0], files[1], "--pair", "=enc_l0+enc_l1")
    assert result.exit_code == 0 and "(chosen)" in result.stdout
    assert call("diff", files[1], files[2], "--layer", "enc_l1", "--json").exit_code == 1


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--layer", "nothing"], 2, "no recurrent layer 'nothing'"),
        (["--pair", "a=b"], 2, "no such layers"),
        (["--from-a", "keras"], 3, "a.pt"),
        (["--set", "opset"], 2, "expected KEY=VALUE"),
    ],
)
def test_wrong_usage(files: tuple[Path, Path, Path], arguments: list[str], code: int, message: str) -> None:
    result = call("diff", files[0], files[1], *arguments)
    assert result.exit_code == code and message in result.stderr, result.stderr


def test_what_a_file_does_not_say_is_said_on_stderr(tmp_path: Path) -> None:
    stack = random_stack(Sizes("rnn", 3, 4, parts=BOTH), 0, np.float32)
    rc.save(of(stack), tmp_path / "a.pt")
    result = call("diff", tmp_path / "a.pt", tmp_path / "a.pt")
    assert result.exit_code == 0 and "nonlinearity=tanh" in result.stderr
    result = call("diff", tmp_path / "a.pt", tmp_path / "a.pt", "--set-b", "nonlinearity=relu")
    assert result.exit_code == 1 and "candidate's function: tanh in A, relu in B" in result.stdout
