"""What executors share: the sequences of a request, states through a chain of layers, and gradients in an answer's form."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rnnconvert.core.arrays import Array
from rnnconvert.core.errors import UsageError
from rnnconvert.running import child
from rnnconvert.running.inputs import in_order
from rnnconvert.running.sequences import Sequences, outputs

X = np.zeros((5, 2, 3), np.float32)


def rows(*numbers: float) -> list[Array]:
    """Return a state of four numbers for each, which is that number throughout."""
    return [np.full((2, 4), number) for number in numbers]


def named(states: Any) -> list[float]:
    """Return what `rows` was given."""
    return [float(state[0, 0]) for state in states]


@pytest.mark.parametrize("name", ["lenghts", "hiden"])
def test_an_unknown_name_is_an_error(name: str) -> None:
    with pytest.raises(TypeError, match=name):
        Sequences(X, **{name: [1, 2]})  # type: ignore[arg-type]


def test_states_that_a_request_lacks_are_zeros() -> None:
    widths = {"hidden": 4, "cell": 6}
    initial = Sequences.of({"x": X, "hidden": rows(1, 2), "file": "a"}).initial(widths, 2)
    assert named(initial["hidden"]) == [1, 2] and list(initial) == ["hidden", "cell"]
    assert initial["cell"].shape == (2, 2, 6) and not initial["cell"].any()


def run_layer(layer: tuple[str, int], left: Sequences) -> dict[str, Any]:
    """Stand in for a layer of a kind and so many directions: its final states are its initial ones and 10, its x and 1 its output."""
    kind, ways = layer
    fed = left.first(ways).initial({"hidden": 4, **({"cell": 4} if kind == "lstm" else {})}, ways)
    return outputs(left.x + 1, *(states + 10 for states in fed.values()))


CHAIN = (("lstm", 2), ("gru", 1), ("lstm", 1))


@pytest.mark.parametrize("cell", [(5, 6, 7), (5, 6, 0, 7)], ids=["of LSTMs", "of every layer"])
def test_each_layer_of_a_chain_takes_its_own_states(cell: tuple[float, ...]) -> None:
    answer = Sequences(X, rows(1, 2, 3, 4), rows(*cell)).through(CHAIN, run_layer)
    assert (answer["y"] == 3).all()
    assert (named(answer["hidden"]), named(answer["cell"])) == ([11, 12, 13, 14], [15, 16, 17])


@pytest.mark.parametrize(
    ("hidden", "cell", "problem"),
    [
        ((1, 2, 3, 4, 5), (), "5 hidden states for 4"),
        ((), (5, 6, 7, 8), "4 cell states for 3"),
        ((1, 2, 3, 4), (5, 6), "2 cell states for 3"),
    ],
)
def test_another_number_of_states_is_an_error(hidden: tuple[float, ...], cell: tuple[float, ...], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        Sequences(X, rows(*hidden), rows(*cell)).through(CHAIN, lambda layer, left: run_layer(layer, Sequences(left.x)))


def test_states_of_cells_that_have_none_are_left() -> None:
    answer = Sequences(X, rows(1), rows(5)).through([("gru", 1)], run_layer)
    assert (named(answer["hidden"]), answer["cell"]) == ([11], [])


def test_gradients_are_those_of_states_that_were_given() -> None:
    states = {"hidden": np.ones((1, 2, 4)), "cell": np.ones((1, 2, 4))}
    gradients = Sequences(X, rows(1)).gradients(X, states, {"w": X})
    assert (len(gradients["hidden"]), gradients["cell"], list(gradients["weights"][""])) == (1, [], ["w"])


EXECUTOR = """
import sys
from rnnconvert.running.sequences import Sequences

NEEDS, FORMAT, SUFFIX = (), "mine", ".bin"
VARIANTS = {"mine": {"device": "cpu"}}

def versions(variant):
    return {"shared": Sequences.of.__code__.co_filename, "imported": "rnnconvert" in sys.modules}
"""


def test_an_executor_finds_them_without_rnnconvert(tmp_path: Path) -> None:
    module = tmp_path / "mine.py"
    module.write_text(EXECUTOR)
    command = [sys.executable, child.__file__, str(module), "--about", '{"device": "cpu"}']
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    shared = str(Path(child.__file__).with_name("sequences.py"))
    assert json.loads(done.stdout)["versions"] == {"shared": shared, "imported": False}


def test_a_sample_is_more_than_inputs() -> None:
    """Where a file has more arrays than the model has inputs, as one with x and y, nothing runs on the first ones alone."""
    with pytest.raises(UsageError, match=r"there are 2 inputs, 'x', 'y', and m.h5 takes 'input_1'. Leave the others out"):
        in_order([("x", X), ("y", X)], ["input_1"], "m.h5")
    assert len(in_order([("x", X)], ["input_1"], "m.h5")) == 1
