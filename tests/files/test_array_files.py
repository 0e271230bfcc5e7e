"""Recurrent layers found among arrays by names and shapes: what is settled, what is asked, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rnnconvert as rc
from rnnconvert.containers import archives
from rnnconvert.core.arrays import Array
from rnnconvert.core.cells import Activation
from rnnconvert.core.errors import UnreadableError, UsageError
from rnnconvert.language import registry
from rnnconvert.language.layout import Holds, Layout, Sizes, Tensor
from tests.helpers.stacks import PLAIN, random_stack

_STEP = Holds(biases=("input",), layers=False, directions=1)
_NUMBERED = (
    Tensor("{pseudo_layer}/w{gate}", "input", "hidden in", letters="0 1 2 3"),
    Tensor("{pseudo_layer}/w{gate}", "recurrent", "hidden in", letters="4 5 6 7"),
)
LAYOUTS = [
    Layout("trial.lstm", "lstm", "i f g o", _NUMBERED, "of no framework", holds=Holds(biases=("none",))),
    *(
        Layout(
            f"trial.{name}", "gru", gates,
            (
                Tensor("W", "input", "(gate hidden) in"), Tensor("U", "recurrent", "(gate hidden) in"),
                Tensor("b", "input_bias", "(gate hidden)"),
            ),
            "of no framework", reset_after=reset_after, holds=_STEP,
        )
        for name, gates, reset_after in (("after", "r z n", True), ("before", "z r n", False))
    ),
    Layout(
        "trial.rnn", "rnn", "n", (Tensor("V", "input recurrent", "hidden (part in)"), Tensor("c", "input_bias", "hidden")),
        "of no framework", "TrialRNN", holds=Holds(("input",), ("tanh", "relu"), layers=False, directions=1),
    ),
    Layout(
        "trial.split", "rnn", "n",
        (Tensor("A", "input", "hidden in"), Tensor("B", "recurrent", "hidden in"), Tensor("d", "input_bias", "hidden")),
        "of no framework", "SplitRNN", holds=_STEP,
    ),
]  # fmt: skip


@pytest.fixture(autouse=True)
def trial() -> Iterator[None]:
    registry.add(LAYOUTS)
    yield
    registry.forget()


def saved(folder: Path, shapes: Mapping[str, tuple[int, ...]], suffix: str = ".npz", dtype: str = "float32") -> Path:
    random = np.random.default_rng(0)
    arrays: dict[str, Array] = {name: random.normal(size=shape).astype(dtype) for name, shape in shapes.items()}
    path = folder / f"model{suffix}"
    archives.write(path, arrays)
    return path


RNN = {"V": (2, 5), "c": (2,)}
GRU = {"W": (6, 3), "U": (6, 2), "b": (6,)}


def under(name: str, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
    return {f"{name}/{local}": shape for local, shape in shapes.items()}


def numbered(widths: list[int], hidden: int = 4) -> dict[str, tuple[int, ...]]:
    return {f"{index}/w{gate}": (hidden, width if gate < 4 else hidden) for index, width in enumerate(widths) for gate in range(8)}


@pytest.mark.parametrize("suffix", archives.SUFFIXES)
def test_every_kind_of_archive_is_read_and_written(suffix: str, tmp_path: Path) -> None:
    path = saved(tmp_path, under("encoder", RNN), suffix)
    checkpoint = rc.load(path)
    assert (checkpoint.format, list(checkpoint.layers)) == ("trial", ["encoder"])
    target = tmp_path / f"again{suffix}"
    rc.save(checkpoint, target, "trial")
    before, after = (archives.reader(file, file.read_bytes())(file).arrays for file in (path, target))
    assert set(before) == set(after)
    for name, array in before.items():
        np.testing.assert_array_equal(array, after[name])


def test_layers_of_any_depth_are_found_in_the_order_of_the_file(tmp_path: Path) -> None:
    path = saved(tmp_path, {**under("b/second", RNN), **under("a.first", RNN), "head": (2, 2)})
    checkpoint = rc.load(path)
    assert (list(checkpoint.layers), list(checkpoint.tensors)) == (["b/second", "a.first"], ["head"])


def test_a_function_that_arrays_do_not_say_is_asked_for(tmp_path: Path) -> None:
    path = saved(tmp_path, RNN)
    assert [question.option for question in rc.load(path).questions] == ["nonlinearity"]
    relu = rc.load(path, nonlinearity="relu")
    assert (relu.questions, str(relu.layers[""].cell.activation)) == ((), "relu")


def test_functions_of_candidate_and_gates_are_asked_for_and_go_together(tmp_path: Path) -> None:
    several = Holds(("none",), ("tanh", "relu"), ("sigmoid", Activation("hard_sigmoid", 0.2, 0.5)), layers=False, directions=1)
    parts = (Tensor("P", "input", "(gate hidden) in"), Tensor("Q", "recurrent", "(gate hidden) in"))
    registry.add([Layout("several.lstm", "lstm", "i f g o", parts, "of no framework", holds=several)])
    path = saved(tmp_path, {"P": (8, 3), "Q": (8, 2)})
    assert [question.option for question in rc.load(path).questions] == ["nonlinearity", "recurrent_activation"]
    cell = rc.load(path, activation="relu", recurrent_activation="hard_sigmoid(0.2, 0.5)").layers[""].cell
    assert (str(cell.activation), str(cell.output_activation), cell.gate_activation.name) == ("relu", "relu", "hard_sigmoid")
    with pytest.raises(UsageError, match=r"cannot be 'elu' here\. Choose one of: sigmoid, hard_sigmoid"):
        rc.load(path, recurrent_activation="elu")


def test_of_two_layouts_with_the_same_arrays_the_caller_says_which(tmp_path: Path) -> None:
    path = saved(tmp_path, under("encoder", GRU))
    silent = rc.load(path, "trial")
    assert not silent.layers and "trial.after or trial.before" in silent.warnings[0]
    assert "--set layout=" in silent.warnings[0]
    for layout, reset_after in (("trial.after", True), ("before", False)):
        stack = rc.load(path, "trial", layout=layout).layers["encoder"]
        assert stack.cell.reset_after is reset_after
    with pytest.raises(UsageError, match="trial has no layout 'between'"):
        rc.load(path, "trial", layout="between")


@pytest.mark.parametrize(("layout", "names"), [(None, {"V", "c"}), ("trial.rnn", {"V", "c"}), ("split", {"A", "B", "d"})])
def test_the_layout_that_is_asked_for_is_written(layout: str | None, names: set[str], tmp_path: Path) -> None:
    target = tmp_path / "again.npz"
    checkpoint = rc.load(saved(tmp_path, RNN))
    rc.save(checkpoint, target, "trial", settings=[f"layout={layout}"] if layout else [])
    with np.load(target) as arrays:
        assert set(arrays) == names
    same = rc.load(target).layers[""]
    np.testing.assert_array_equal(same.gates["n"].input, checkpoint.layers[""].gates["n"].input)


@pytest.mark.parametrize(
    ("widths", "options", "layers", "directions"),
    [
        ([3], {}, 1, 1),
        ([3, 4], {}, 2, 1),
        ([3, 3], {}, 1, 2),
        ([3, 3, 8, 8], {}, 2, 2),
        ([3, 4, 4, 4], {}, 4, 1),
        ([4, 4], {"bidirectional": True}, 1, 2),
        ([4, 4], {"bidirectional": False}, 2, 1),
    ],
)
def test_layers_and_directions_counted_together_are_told_apart(
    widths: list[int], options: dict[str, Any], layers: int, directions: int, tmp_path: Path
) -> None:
    stack = rc.load(saved(tmp_path, numbered(widths)), **options).layers[""]
    assert (stack.num_layers, stack.num_directions) == (layers, directions)


def test_what_may_be_two_layers_or_two_directions_is_asked(tmp_path: Path) -> None:
    checkpoint = rc.load(saved(tmp_path, numbered([4, 4])), "trial")
    assert not checkpoint.layers and "--set bidirectional=true or false" in checkpoint.warnings[0]


def test_an_array_beside_a_layers_own_may_be_a_part_of_it(tmp_path: Path) -> None:
    path = saved(tmp_path, {**under("encoder", RNN), "encoder/scale": (2,)})
    checkpoint = rc.load(path, "trial")
    assert not checkpoint.layers and "plus 'encoder/scale'" in checkpoint.warnings[0]
    assert list(rc.load(path, "trial", layout="rnn").layers) == ["encoder"]


def test_arrays_that_do_not_go_together_are_named(tmp_path: Path) -> None:
    checkpoint = rc.load(saved(tmp_path, under("encoder", {"V": (2, 5), "c": (3,)})), "trial")
    assert not checkpoint.layers and "'c' has shape (3,), expected (2,)" in checkpoint.warnings[0]


def test_numbers_that_are_not_weights_are_no_layer(tmp_path: Path) -> None:
    checkpoint = rc.load(saved(tmp_path, RNN, dtype="int8"), "trial")
    assert not checkpoint.layers and "int8" in checkpoint.warnings[0]


def test_a_file_with_none_of_its_arrays_is_of_no_format(tmp_path: Path) -> None:
    with pytest.raises(UnreadableError):
        rc.load(saved(tmp_path, {"dense": (3, 3)}))


def test_names_that_exclude_each_other_are_refused(tmp_path: Path) -> None:
    for suffix in (".msgpack", ".h5"):
        with pytest.raises(UsageError):
            archives.write(tmp_path / f"m{suffix}", {"a": np.zeros(1), "a/b": np.zeros(1)})
        assert not (tmp_path / f"m{suffix}").exists()


@pytest.mark.parametrize("option", ["activation", "nonlinearity"])
@pytest.mark.parametrize(("framework", "functions"), [("onednn", 3), ("lux", 10), ("flux", 10)])
def test_every_function_that_a_cell_may_have_can_be_said(framework: str, functions: int, option: str, tmp_path: Path) -> None:
    stack = random_stack(Sizes("rnn", 3, 4, parts=PLAIN | {"input_bias"}), 1, np.float32)
    rc.save(rc.Checkpoint("(in memory)", "canonical", {"rnn": stack}), path := tmp_path / "a.npz", framework)
    (question,) = rc.load(path, framework).questions
    assert (question.option, len(question.choices)) == ("activation", functions)
    for function in question.choices if option == "activation" else ("tanh", "relu"):
        (layer,) = rc.load(path, framework, settings=[f"{option}={function}"]).layers.values()
        assert layer.cell.activation.name == function
    with pytest.raises(rc.UsageError, match=r"cannot be 'softmax' here\. Choose one of: tanh, relu, sigmoid"):
        rc.load(path, framework, activation="softmax")
