"""Layers that between them can have every fault, and what a model with a fault gives."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rnnconvert.core.cells import HARD_SIGMOID_KERAS_2, HARD_SIGMOID_KERAS_3, RELU, Activation, Cell, Clip
from rnnconvert.core.reference import Outputs
from rnnconvert.core.weights import Layer, Recurrent
from rnnconvert.diagnosis.faults import Fault
from rnnconvert.judging.case_kinds import Case
from rnnconvert.language.layout import Sizes
from rnnconvert.rewrites import each
from tests.helpers.stacks import BOTH, backwards, random_stack

PEEPHOLES = BOTH | {"peephole"}
PROJECTED = BOTH | {"projection"}


def _stack(form: Sizes, seed: int, cell: Cell | None = None) -> Recurrent:
    return random_stack(form, seed, np.float32, cell, scale=1.5).replace(name="enc")


def _added() -> Recurrent:
    stack = _stack(Sizes("lstm", 3, 4, num_directions=2, parts=BOTH), 29)
    return stack.replace(layers=tuple(Layer(layer.directions, "sum") for layer in stack.layers))


def _averaged() -> Recurrent:
    stack = _added()
    return stack.replace(layers=tuple(Layer(layer.directions, "ave") for layer in stack.layers))


def _learned() -> Recurrent:
    state = np.random.default_rng(5).uniform(-1, 1, (2, 4)).astype(np.float32)
    stack = _stack(Sizes("lstm", 3, 4, parts=BOTH), 31)
    return each(stack, lambda d: d.with_arrays({("initial_hidden", ""): state[0], ("initial_cell", ""): state[1]}))


def _lstm(**changes: object) -> Cell:
    return Cell("lstm").replace(**changes)


MODELS: dict[str, Recurrent] = {
    "lstm": _stack(Sizes("lstm", 3, 4, parts=BOTH), 21),
    "two layers, two directions": _stack(Sizes("lstm", 3, 4, num_layers=2, num_directions=2, parts=BOTH), 22),
    "square": _stack(Sizes("lstm", 4, 4, num_layers=2, parts=BOTH), 23),
    "square projection": _stack(Sizes("lstm", 4, 4, num_layers=2, parts=PROJECTED, projection_size=4), 20),
    "peepholes": _stack(Sizes("lstm", 3, 4, parts=PEEPHOLES), 24),
    "gru": _stack(Sizes("gru", 3, 5, parts=BOTH), 25),
    "gru, reset before": _stack(Sizes("gru", 3, 5, parts=BOTH), 26, Cell("gru", False)),
    "rnn": _stack(Sizes("rnn", 3, 4, parts=BOTH), 27),
    "rnn, relu": _stack(Sizes("rnn", 3, 4, parts=BOTH), 28, Cell("rnn", activation=RELU)),
    "directions added": _added(),
    "directions averaged": _averaged(),
    "backwards": backwards(_stack(Sizes("gru", 3, 4, parts=BOTH), 30)),
    "learned state": _learned(),
    "forget_bias": _stack(Sizes("lstm", 3, 4, parts=BOTH), 32, _lstm(constants={"f": 1.0})),
    "coupled": _stack(Sizes("lstm", 3, 4, parts=BOTH), 33, _lstm(coupled="f")),
    "hard_sigmoid": _stack(Sizes("lstm", 3, 4, parts=BOTH), 34, _lstm(gate_activation=HARD_SIGMOID_KERAS_2)),
    "hard_sigmoid of Keras 3": _stack(Sizes("gru", 3, 4, parts=BOTH), 35, Cell("gru", True, gate_activation=HARD_SIGMOID_KERAS_3)),
    "other functions": _stack(
        Sizes("lstm", 3, 4, parts=BOTH), 36,
        _lstm(activation=Activation("softsign"), gate_activation=Activation("hard_sigmoid", 0.3, 0.5), output_activation=RELU),
    ),
    "clip of gates": _stack(Sizes("lstm", 3, 4, parts=BOTH), 37, _lstm(clips=(Clip("gates", -0.4, 0.4),))),
    "clip of cell": _stack(Sizes("lstm", 3, 4, parts=BOTH), 38, _lstm(clips=(Clip("cell", -0.3, 0.3),))),
    "clip of state": _stack(Sizes("lstm", 3, 4, parts=BOTH), 39, _lstm(clips=(Clip("state", -0.3, 0.3),))),
    "clip of projection": _stack(
        Sizes("lstm", 3, 4, parts=PROJECTED, projection_size=2), 40, _lstm(clips=(Clip("projection", -0.1, 0.1),))
    ),
}  # fmt: skip
"""The first that can have a fault is the one that it is planted in."""


def model_for(fault: Fault, cases: dict[str, list[Case]]) -> str:
    """The first model that can have a fault, some case of which can show it."""
    for name, stack in MODELS.items():
        if any(fault.run(stack, case) is not None for case in cases[name]):
            return name
    raise AssertionError(f"no model can have the fault {fault.name!r}")


def answers(stack: Recurrent, cases: Sequence[Case], *faults: Fault) -> list[tuple[Case, Outputs]]:
    """What a model with these faults gives in float32: faults of weights first, and one of runs at most."""
    for fault in faults:
        changed = fault.change(stack) if fault.change is not None else stack
        assert changed is not None
        stack = changed
    run = next((fault for fault in faults if fault.change is None), None)
    answered = []
    for case in cases:
        outputs = None if run is None else run.run(stack, case, np.float32)
        answered.append((case, case.solve(stack, np.float32) if outputs is None else outputs))
    return answered
