"""Every configuration whose weight buffer cuDNN is asked for, and where we put its numbers."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from rnnconvert.core.arrays import FLOATS
from rnnconvert.language import registry
from rnnconvert.language.layout import Layout, Sizes
from rnnconvert.verification.ready import disagreement
from tests.helpers.stacks import PLAIN

SIZES = [(1, 1), (3, 5), (5, 5), (7, 13), (33, 17)]
BIASES = {
    "none": frozenset[str](),
    "single_inp": frozenset({"input_bias"}),
    "single_rec": frozenset({"recurrent_bias"}),
    "double": frozenset({"input_bias", "recurrent_bias"}),
}
KINDS = {"rnn_relu": "rnn", "rnn_tanh": "rnn", "lstm": "lstm", "gru": "gru"}


def cases() -> Iterator[dict[str, Any]]:
    """Descriptions that cuDNN accepts."""
    for cell, layers, directions, biases, dtype, (width, hidden) in itertools.product(KINDS, (1, 2, 3), (1, 2), BIASES, FLOATS, SIZES):
        for projection in {0, 1, hidden // 2} - ({1} if hidden == 1 else set()) if cell == "lstm" else {0}:
            for skip in (False, True) if width == hidden else (False,):
                yield {
                    "cell": cell, "num_layers": layers, "bidirectional": directions == 2, "bias_mode": biases,
                    "dtype": dtype, "input_size": width, "hidden_size": hidden, "projection_size": projection,
                    "input_mode": "skip" if skip else "linear",
                }  # fmt: skip


def form_of(case: dict[str, Any]) -> Sizes:
    parts = PLAIN | BIASES[case["bias_mode"]] | ({"projection"} if case["projection_size"] else set())
    return Sizes(
        KINDS[case["cell"]], case["input_size"], case["hidden_size"], case["num_layers"], 1 + case["bidirectional"],
        case["projection_size"], parts, case["input_mode"] == "skip",
    )  # fmt: skip


def differs(layout: Layout, case: dict[str, Any], answer: dict[str, Any]) -> str:
    return disagreement(layout, form_of(case), FLOATS[case["dtype"]].itemsize, answer["bytes"], answer["rows"])


def layout_of(case: dict[str, Any]) -> Layout:
    kind = KINDS[case["cell"]]
    return registry.layout("cudnn", kind, True if kind == "gru" else None)
