"""Cells that people write themselves: what their code computes in NumPy, the layer that is read from their arrays computes."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rnnconvert as rc
from rnnconvert.core import reference
from rnnconvert.core.arrays import Array
from rnnconvert.core.errors import RefusedError

WIDTH, UNITS, TIME = 3, 5, 7
Weights = dict[str, Array]


def sigmoid(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x)))


def theano_lstm(w: Weights, x: Array, h: Array, c: Array) -> tuple[Array, Array]:
    sums = x @ w["lstm_W"] + h @ w["lstm_U"] + w["lstm_b"]
    i, f, o, g = (sums[place * UNITS : (place + 1) * UNITS] for place in range(4))
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    return sigmoid(o) * np.tanh(c), c


def nematus_gru(w: Weights, x: Array, h: Array, c: Array) -> tuple[Array, Array]:
    gates = sigmoid(h @ w["encoder_U"] + x @ w["encoder_W"] + w["encoder_b"])
    r, u = gates[:UNITS], gates[UNITS:]
    new = np.tanh(h @ w["encoder_Ux"] * r + x @ w["encoder_Wx"] + w["encoder_bx"])
    return u * h + (1 - u) * new, c


def karpathy_rnn(w: Weights, x: Array, h: Array, c: Array) -> tuple[Array, Array]:
    return np.tanh(w["Wxh"] @ x + w["Whh"] @ h + w["bh"][:, 0]), c


def course_rnn(bias: str) -> Callable[..., tuple[Array, Array]]:
    def step(w: Weights, x: Array, h: Array, c: Array) -> tuple[Array, Array]:
        return np.tanh(w["Wax"] @ x + w["Waa"] @ h + w[bias].ravel()), c

    return step


def britz_rnn(w: Weights, x: Array, h: Array, c: Array) -> tuple[Array, Array]:
    return np.tanh(w["U"] @ x + w["W"] @ h), c


def one_matrix(join: Callable[[Array, Array], Array]) -> Callable[..., tuple[Array, Array]]:
    def step(w: Weights, x: Array, h: Array, c: Array) -> tuple[Array, Array]:
        both = join(x, h)
        i, f, g, o = (w[f"W{gate}"] @ both + w[f"b{gate}"][:, 0] for gate in "ifco")
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        return sigmoid(o) * np.tanh(c), c

    return step


def one_matrix_of_rows(gates: str, join: Callable[[Array, Array], Array]) -> Callable[..., tuple[Array, Array]]:
    def step(w: Weights, x: Array, h: Array, c: Array) -> tuple[Array, Array]:
        both = join(x, h)
        i, f, g, o = (both @ w[f"W{gate}"] + w[f"b{gate}"] for gate in gates)
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        return sigmoid(o) * np.tanh(c), c

    return step


def d2l_lstm(w: Weights, x: Array, h: Array, c: Array) -> tuple[Array, Array]:
    i, f, g, o = (x @ w[f"W_x{gate}"] + h @ w[f"W_h{gate}"] + w[f"b_{gate}"] for gate in "ifco")
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    return sigmoid(o) * np.tanh(c), c


def d2l_gru(w: Weights, x: Array, h: Array, c: Array) -> tuple[Array, Array]:
    z, r = (sigmoid(x @ w[f"W_x{gate}"] + h @ w[f"W_h{gate}"] + w[f"b_{gate}"]) for gate in "zr")
    new = np.tanh(x @ w["W_xh"] + (r * h) @ w["W_hh"] + w["b_h"])
    return z * h + (1 - z) * new, c


def d2l_rnn(w: Weights, x: Array, h: Array, c: Array) -> tuple[Array, Array]:
    return np.tanh(x @ w["W_xh"] + h @ w["W_hh"] + w["b_h"]), c


def gate_by_gate(of_input: str, of_state: str, gates: str, columns: bool) -> Callable[..., tuple[Array, Array]]:
    def step(w: Weights, x: Array, h: Array, c: Array) -> tuple[Array, Array]:
        def total(gate: str) -> Array:
            w_input, w_state = (w["cell_" + name.format(gate)] for name in (of_input, of_state))
            bias = w[f"cell_b_{gate}"].ravel()
            return w_input @ x + w_state @ h + bias if columns else x @ w_input + h @ w_state + bias

        i, f, g, o = (total(gate) for gate in gates)
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        return sigmoid(o) * np.tanh(c), c

    return step


def columns_rnn(w: Weights, x: Array, h: Array, c: Array) -> tuple[Array, Array]:
    return np.tanh(w["W_xh"] @ x + w["W_hh"] @ h + w["b_h"].ravel()), c


H, X = UNITS, WIDTH
OUT = {"Why": (2, H), "by": (2, 1)}
DENSE = {"U": (H, 2), "b": (2,), "Wemb": (9, X)}
GATES = {f"W{gate}": (H, H + X) for gate in "fico"} | {f"b{gate}": (H, 1) for gate in "fico"}


def rows(gates: str) -> dict[str, tuple[int, ...]]:
    return {name: shape for g in gates for name, shape in ((f"W{g}", (H + X, H)), (f"b{g}", (H,)))}


def d2l(gates: str) -> dict[str, tuple[int, ...]]:
    return {name: shape for g in gates for name, shape in ((f"W_x{g}", (X, H)), (f"W_h{g}", (H, H)), (f"b_{g}", (H,)))}


def lstm(of_input: str, of_state: str, gates: str, columns: bool, *bias: int) -> tuple[Any, dict[str, tuple[int, ...]], str]:
    """Return a cell with two matrices a gate, as CELLS lists it."""
    matrices = {of_input: (H, X) if columns else (X, H), of_state: (H, H), "b_{}": bias or (H,)}
    shapes = {f"cell_{name.format(g)}": shape for g in gates for name, shape in matrices.items()}
    return gate_by_gate(of_input, of_state, gates, columns), shapes, ""


W_U, W_W = ("W_{}", "U_{}"), ("W_x{}", "W_h{}")
CELLS: dict[str, tuple[Callable[..., tuple[Array, Array]], dict[str, tuple[int, ...]], str]] = {
    "theano_lstm": (theano_lstm, {"lstm_W": (X, 4 * H), "lstm_U": (H, 4 * H), "lstm_b": (4 * H,), **DENSE}, ""),
    "nematus_gru": (
        nematus_gru,
        {"encoder_W": (X, 2 * H), "encoder_U": (H, 2 * H), "encoder_b": (2 * H,),
         "encoder_Wx": (X, H), "encoder_Ux": (H, H), "encoder_bx": (H,)},
        "",
    ),
    "karpathy_rnn": (karpathy_rnn, {"Wxh": (H, X), "Whh": (H, H), "bh": (H, 1), **OUT}, ""),
    "karpathy_rnn with more": (karpathy_rnn, {"Wxh": (H, X), "Whh": (H, H), "bh": (H, 1), **OUT, "Wxx": (H, H)}, "karpathy_rnn"),
    "karpathy_rnn with the memory of Adagrad": (
        karpathy_rnn,
        {m + name: shape for m in ("", "m") for name, shape in {"Wxh": (H, X), "Whh": (H, H), "bh": (H, 1), **OUT}.items()},
        "",
    ),
    "course_rnn_vector": (course_rnn("ba"), {"Wax": (H, X), "Waa": (H, H), "ba": (H,), "Wya": (2, H), "by": (2, 1)}, ""),
    "course_rnn": (course_rnn("ba"), {"Wax": (H, X), "Waa": (H, H), "ba": (H, 1), "Wya": (2, H), "by": (2, 1)}, ""),
    "course_rnn_b": (course_rnn("b"), {"Wax": (H, X), "Waa": (H, H), "b": (H, 1), "Wya": (2, H), "by": (2, 1)}, ""),
    "britz_rnn": (britz_rnn, {"U": (H, X), "W": (H, H), "V": (X, H)}, "britz_rnn"),
    "state_first": (one_matrix(lambda x, h: np.concatenate([h, x])), {**GATES, "Wy": (2, H), "by": (2, 1)}, "state_first"),
    "input_first": (one_matrix(lambda x, h: np.concatenate([x, h])), {**GATES}, "input_first"),
    "state_first_rows": (one_matrix_of_rows("ifco", lambda x, h: np.concatenate([h, x])), rows("fico"), "state_first_rows"),
    "input_first_rows": (one_matrix_of_rows("ifco", lambda x, h: np.concatenate([x, h])), rows("fico"), "input_first_rows"),
    "state_first_rows_g": (one_matrix_of_rows("ifgo", lambda x, h: np.concatenate([h, x])), rows("figo"), "state_first_rows_g"),
    "input_first_rows_g": (one_matrix_of_rows("ifgo", lambda x, h: np.concatenate([x, h])), rows("figo"), "input_first_rows_g"),
    "d2l_lstm": (d2l_lstm, d2l("ifco"), ""),
    "d2l_gru": (d2l_gru, d2l("zrh"), ""),
    "d2l_rnn": (d2l_rnn, d2l("h"), ""),
    "textbook_lstm": lstm(*W_U, "ifco", True),
    "textbook_lstm_column": lstm(*W_U, "ifco", True, H, 1),
    "textbook_lstm_rows": lstm(*W_U, "ifco", False),
    "textbook_lstm_g": lstm(*W_U, "ifgo", True),
    "textbook_lstm_g_column": lstm(*W_U, "ifgo", True, H, 1),
    "textbook_lstm_g_rows": lstm(*W_U, "ifgo", False),
    "columns_lstm": lstm(*W_W, "ifco", True),
    "columns_lstm_column": lstm(*W_W, "ifco", True, H, 1),
    "columns_rnn": (columns_rnn, {"W_xh": (H, X), "W_hh": (H, H), "b_h": (H,)}, ""),
    "columns_rnn_column": (columns_rnn, {"W_xh": (H, X), "W_hh": (H, H), "b_h": (H, 1)}, ""),
}  # fmt: skip
"""What a step computes, the shapes of the arrays with those of the layers around, and the layout that has to be confirmed."""


@pytest.mark.parametrize("ending", ["npz", "pkl", "json"])
@pytest.mark.parametrize("name", CELLS)
def test_the_code_and_the_layer_compute_the_same(name: str, ending: str, tmp_path: Path) -> None:
    step, shapes, confirmed = CELLS[name]
    draw = np.random.default_rng(3)
    weights: dict[str, Any] = {array: draw.uniform(-1, 1, shape).astype(np.float32) for array, shape in shapes.items()}
    path = tmp_path / f"cell.{ending}"
    if ending == "npz":
        np.savez(path, **weights)
    elif ending == "json":
        path.write_text(json.dumps({array: values.tolist() for array, values in weights.items()} | {"vocabulary": ["a", "b"]}))
    else:
        path.write_bytes(pickle.dumps(weights))
    options: dict[str, Any] = {}
    if confirmed:
        with pytest.raises(RefusedError, match=f"tutorials.{confirmed}"):
            rc.convert(path, tmp_path / "refused.onnx")
        options["layout"] = f"tutorials.{confirmed}"
    rc.convert(path, tmp_path / "cell.onnx", **options)
    (stack,) = rc.load(path, **options).layers.values()
    assert stack.cell.kind == next(kind for kind in ("lstm", "gru", "rnn") if kind in name) if "first" not in name else "lstm"
    x = draw.uniform(-1, 1, (TIME, WIDTH))
    h, c, outputs = np.zeros(UNITS), np.zeros(UNITS), []
    for row in x:
        h, c = step({array: values.astype(np.float64) for array, values in weights.items()}, row, h, c)
        outputs.append(h)
    np.testing.assert_allclose(reference.run(stack, x[:, None]).y[:, 0], outputs, rtol=0, atol=1e-12)
