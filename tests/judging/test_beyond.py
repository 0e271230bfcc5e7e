"""What executors give for functions of numbers beyond float32's exponential: those that are infinite there are named everywhere."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rnnconvert as rc
from rnnconvert.core.cells import ACTIVATION_DEFAULTS, CANDIDATE, GATES, Activation, Cell
from rnnconvert.core.errors import RefusedError
from rnnconvert.core.reference import Outputs
from rnnconvert.core.weights import Key, Recurrent
from rnnconvert.judging.case_kinds import OVERFLOWING, Case
from rnnconvert.judging.cases import solved
from rnnconvert.language.layout import Sizes
from rnnconvert.rewrites import each as each_direction
from rnnconvert.running.registry import built_in
from rnnconvert.scaffolding.export import export_model
from rnnconvert.verification.beyond import beyond
from rnnconvert.verification.running import Subject, run
from tests.formats.onnx.test_fuse import HIDDEN, Body, gru, rnn, save, scan, weights
from tests.helpers import frameworks
from tests.helpers.drawn import NotComparedError, drawn, each
from tests.helpers.requirements import need, needed
from tests.helpers.sources import checkpoint
from tests.helpers.stacks import BOTH, PLAIN, random_stack
from tests.helpers.workers import running

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")

READ = np.array([sign * size for size in (30, 90, 200, 1000) for sign in (1, -1)], np.float32)
"""What the function that is tried reads."""
CONSTANTS = {"affine": (1.5, 0.5), "scaled_tanh": (1.5, 0.5)}
INFINITE = {("onnxruntime-cpu", "softplus")}
"""Executors and functions that are infinite where their value is not: docs/equivalence.md has them."""
EXECUTORS = [name for name, entry in built_in().items() if entry.device == "cpu"]


def reading(kind: Any, place: str, name: str, reset_after: bool | None) -> tuple[Recurrent, Case]:
    """A layer of one unit in which the functions of one place read the numbers in READ, and nothing else that is large."""
    functions: dict[str, Any] = {place: Activation(name, *CONSTANTS.get(name, ()))}
    cell = Cell(kind, reset_after, **functions)
    if place == "output_activation":
        cell = cell.replace(activation=Activation("linear"))
    parts = BOTH if kind == "gru" else PLAIN | {"input_bias"}
    candidate = CANDIDATE[kind]
    readers = set(GATES[kind]) - {candidate} if place == "gate_activation" else {candidate}

    def filled(key: Key, array: Any) -> Any:
        level = {"input": float(key[1] in readers), "input_bias": 0.5 * (key[1] not in readers)}.get(key[0], 0.0)
        return np.full(np.shape(array), level, np.float32)

    stack = random_stack(Sizes(kind, 1, 1, parts=parts), 5, np.float32, cell)
    stack = each_direction(stack, lambda d: d.with_arrays({key: filled(key, array) for key, array in d.arrays.items()}))
    return stack, Case("beyond", "numbers beyond the exponential", np.repeat(READ[None, :, None], 3, axis=0))


PLACES = [
    ("rnn", "activation", None),
    *itertools.product(("gru",), ("activation", "gate_activation"), (True, False)),
    *itertools.product(("lstm",), ("activation", "gate_activation", "output_activation"), (None,)),
]


def numbers(outputs: Outputs, count: int | None) -> Any:
    """All numbers of an output, with the last cell state where that is given."""
    return np.concatenate([np.ravel(outputs.y), *map(np.ravel, outputs.cell)]).astype(np.float64)[:count]


def test_a_function_is_finite_where_its_value_is_in_every_executor_but_those_that_are_named(tmp_path: Path) -> None:
    infinite: set[tuple[str, str]] = set()

    def tried(case: tuple[str, str]) -> None:
        name, function = case
        ran = 0
        with running(frameworks.executor(name)) as process:
            for kind, place, reset_after in PLACES:
                stack, far = reading(kind, place, function, reset_after)
                answer = run(process, Subject("A", checkpoint(stack), (stack.name,), stack), [far], tmp_path)
                assert answer.outputs or answer.status == "refused", answer.reason
                if not answer.outputs:
                    continue
                ran += 1
                gave = numbers(answer.outputs["beyond"], None)
                with np.errstate(all="ignore"):
                    truth, rough = (numbers(solved(stack, [far], dtype)[0], len(gave)) for dtype in (np.float64, np.float32))
                    finite = np.isfinite(truth) & np.isfinite(rough)
                    near = np.abs(gave - truth) <= 1e-4 * np.maximum(np.abs(truth), 0.01) + 3 * np.abs(rough - truth)
                overflowed = finite & (np.abs(truth) < 1e30) & ~(np.abs(gave) < 1e30)
                if overflowed.any():
                    infinite.add(case)
                wrong = ~near & finite & ~overflowed
                assert not wrong.any(), (kind, place, gave[wrong], truth[wrong])
        if not ran:
            raise NotComparedError(f"{name} has no {function}")

    every = list(itertools.product(EXECUTORS, ACTIVATION_DEFAULTS))
    cases = drawn(every, 14, "beyond", always=lambda case: case in INFINITE or case == ("torch-cpu", "tanh"))
    each(cases, tried, " ".join)
    assert infinite == {case for case in cases if case in INFINITE and not built_in()[case[0]].absent}


def far_model(keras: Any, function: str, kind: str) -> Any:
    layer = getattr(keras.layers, kind)
    return keras.Sequential([keras.layers.Input((6, 3)), layer(4, activation=function, name="far"), keras.layers.Dense(2)])


@pytest.mark.parametrize("kind", ["SimpleRNN", "GRU", "LSTM"])
def test_export_names_a_function_that_overflows_in_onnxruntime(kind: str, tmp_path: Path) -> None:
    keras = needed("keras", "keras")
    need("onnxruntime", built_in()["onnxruntime-cpu"].absent)
    for function in ("softplus", "elu"):
        far_model(keras, function, kind).save(tmp_path / "far.keras")
        done = export_model(tmp_path / "far.keras", tmp_path / "far.onnx", verify=True, force=True)
        headline = str(done.proof[0]).splitlines()[0]
        if function == "softplus":
            assert headline.startswith("equal but for: far: onnxruntime-cpu gives infinity or NaN for softplus"), headline
        else:
            assert headline == "equal"


def test_a_layer_above_another_is_tried_beyond_too(tmp_path: Path) -> None:
    """What it reads from the layer below is at most one: a state from outside is not."""
    need("onnxruntime", built_in()["onnxruntime-cpu"].absent)
    cells = [Cell("rnn"), Cell("rnn", activation=Activation("softplus"))]
    layers = [random_stack(Sizes("rnn", 4, 4, parts=BOTH), seed, np.float32, cell).layers[0] for seed, cell in enumerate(cells)]
    stack = random_stack(Sizes("rnn", 4, 4, parts=BOTH), 5).replace(layers=tuple(layers))
    rc.save(checkpoint(stack), tmp_path / "deep.onnx", "onnx", states="input")
    limits = list(beyond(tmp_path / "deep.onnx", "onnxruntime-cpu"))
    assert limits and {limit.kind for limit in limits} == {"overflow"}


@pytest.mark.parametrize("function", ["Tanh", "Softplus", "Elu", "Softsign"])
@pytest.mark.parametrize("cell", ["rnn", "gru"])
def test_fuse_keeps_the_steps_of_a_function_that_overflows_in_the_operator(cell: str, function: str, tmp_path: Path) -> None:
    onnxruntime = needed("onnxruntime", "onnxruntime")
    w = weights(3 if cell == "gru" else 1)

    def step(b: Body, x: str, states: Sequence[str]) -> list[str]:
        def call(operator: str, *inputs: Any, **attributes: Any) -> Any:
            return b(function if operator == "Tanh" else operator, *inputs, **attributes)

        written: Callable[..., list[str]] = gru if cell == "gru" else rnn
        return written(call, x, states, w)

    path, target = save(tmp_path / "far.onnx", scan(step, 1), 1), tmp_path / "fused.onnx"
    if function == "Softplus":
        with pytest.raises(RefusedError, match="not proved: its output 'last0' is off by inf"):
            rc.fuse(path, target)
        return
    rc.fuse(path, target)
    x = (np.random.default_rng(0).standard_normal((5, 2, 3)) * 300).astype(np.float32)
    outputs = []
    for file in (path, target):
        session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
        feeds = {entry.name: x if entry.name == "x" else np.zeros((2, HIDDEN), np.float32) for entry in session.get_inputs()}
        outputs.append(session.run(None, feeds))
    assert all(np.allclose(first, other, rtol=1e-4, atol=1e-4) for first, other in zip(*outputs, strict=True))


def test_functions_that_may_overflow_are_functions_that_layers_have() -> None:
    assert ACTIVATION_DEFAULTS.keys() >= OVERFLOWING
