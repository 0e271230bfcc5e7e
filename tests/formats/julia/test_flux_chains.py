"""Whole models of Flux: Chains as BSON.jl writes them, beside their equations in numpy. Julia does not run here."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rnnconvert as rc
from tests.helpers import corpus, julia_equations, julia_files
from tests.helpers.drawn import looped
from tests.helpers.julia_files import Function, Struct
from tests.helpers.requirements import need, needed

Array = np.ndarray[Any, Any]
WIDTH, UNITS, WORDS = 3, 4, 6
FUNCTIONS: dict[str, Callable[[Array], Array]] = {
    "identity": lambda x: x,
    "tanh": np.tanh,
    "relu": lambda x: np.maximum(x, 0),
    "σ": julia_equations.sigmoid,
    "elu": lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0))),
    "leakyrelu": lambda x: np.where(x > 0, x, 0.01 * x),
    "softmax": lambda x: np.exp(x) / np.exp(x).sum(axis=1, keepdims=True),
}
"""NNlib's functions of (time, values, batch)."""
RANDOM = np.random.default_rng(0)


def drawn(*shape: int) -> Array:
    return RANDOM.uniform(-1, 1, shape).astype(np.float32)


def recurrent(kind: str, version: str, width: int) -> tuple[Struct, Callable[[Array], Array]]:
    """Return a layer as a version of Flux has it, and what it computes."""
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[kind]
    p = {"Wi": drawn(gates * UNITS, width), "Wh": drawn(gates * UNITS, UNITS), "b": drawn(gates * UNITS)}
    function = [Function("Base.tanh")] if kind == "RNN" else []
    run = {"LSTM": julia_equations.flux_lstm, "GRU": julia_equations.flux_gru, "RNN": julia_equations.flux_rnn}[kind]
    if version == "0.16":
        layer = Struct(f"Flux.{kind}", Struct(f"Flux.{kind}Cell", *function, *p.values()))
    else:
        states = (drawn(UNITS, 1), drawn(UNITS, 1)) if kind == "LSTM" else drawn(UNITS, 1)
        layer = Struct("Flux.Recur", Struct(f"Flux.{kind}Cell", *function, *p.values(), states), states)
        p |= {"state0/1": states[0], "state0/2": states[1]} if isinstance(states, tuple) else {"state0": states}
    return layer, lambda x: run(p, x)


def dense(name: str, width: int, bias: bool) -> tuple[Struct, Callable[[Array], Array]]:
    weight, shift = drawn(2, width), drawn(2)
    layer = Struct("Flux.Dense", weight, shift if bias else False, Function(f"NNlib.{name}"))
    return layer, lambda x: FUNCTIONS[name](weight @ x + (shift[:, None] if bias else 0))


def run(path: Path, x: Array, goes_on: bool) -> Array:
    exported = rc.export_model(path, path.with_suffix(".onnx"), force=True)
    assert any("Flux.reset!" in note for note in exported.notes) == goes_on
    session = needed("onnxruntime", "onnxruntime").InferenceSession(path.with_suffix(".onnx"))
    (y,) = session.run(None, {session.get_inputs()[0].name: x})
    return np.asarray(y)


@looped(
    12,
    kind=("LSTM", "GRU", "RNN"),
    version=("0.12", "0.16"),
    name=("identity", "tanh", "relu", "σ", "elu", "leakyrelu"),
    bias=(True, False),
    form=("plain", "nested", "named", "words"),
    last=("", "softmax", "relu"),
)
def test_a_chain_computes_what_its_layers_do(kind: str, version: str, name: str, bias: bool, form: str, last: str, tmp_path: Path) -> None:
    layers: list[Any] = []
    runs: list[Callable[[Array], Array]] = []
    x: Array = RANDOM.uniform(-1, 1, (5, WIDTH, 2)).astype(np.float32)
    if form == "words":
        table, x = drawn(WIDTH, WORDS), RANDOM.integers(1, WORDS + 1, (5, 2))
        layers.append(Struct("Flux.Embedding", table))
        runs.append(lambda words: table[:, words - 1].transpose(1, 0, 2))
    for width in (WIDTH, UNITS):
        layer, of_layer = recurrent(kind, version, width)
        layers += [layer, Struct("Flux.Dropout", 0.5, None, None)]
        runs.append(of_layer)
    head, of_head = dense(name, UNITS, bias)
    layers.append(head)
    runs.append(of_head)
    if last and form != "named":
        layers.append(Function(f"NNlib.{last}"))
        runs.append(FUNCTIONS[last])
    inside: Any = tuple(layers)
    if form == "nested":
        inside = (*layers[:1], Struct("Flux.Chain", tuple(layers[1:])))
    if form == "named":
        inside = {f"part_{number}": layer for number, layer in enumerate(layers)}
    path = julia_files.bson(tmp_path / "m.bson", model=Struct("Flux.Chain", inside), epoch=3)
    expected = x
    for of_layer in runs:
        expected = of_layer(expected)
    y = run(path, x.transpose(1, 0) if x.ndim == 2 else x.transpose(2, 0, 1), version == "0.12")
    assert np.abs(y - expected.transpose(2, 0, 1)).max() < 2e-6


UNKNOWN = {
    "a norm": (Struct("Flux.LayerNorm", 1, 2, 3, 4, 5), r"a layer LayerNorm: .*not known"),
    "a function of its own": (Function("Main.#12#13"), r"a layer .*12.*not known"),
    "a package's own dense layer": (Struct("Main.Dense", drawn(2, UNITS), drawn(2), Function("Base.identity")), r"a layer Main\.Dense"),
    "dropout that stays on": (Struct("Flux.Dropout", 0.5, None, True), "drops values in every call"),
    "a dense layer with a bias of one number": (Struct("Flux.Dense", drawn(2, UNITS), 2.5, Function("Base.identity")), "its bias is 2.5"),
    "a dense layer with a function of its own": (Struct("Flux.Dense", drawn(2, UNITS), drawn(2), Function("Main.#1#2")), "is not known"),
    "fields that are no arrays": (Struct("Flux.Dense", Struct("Main.Sparse", 1), drawn(2), Function("Base.identity")), "not plain arrays"),
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_a_layer_that_is_not_known_is_refused_with_its_place(name: str, tmp_path: Path) -> None:
    layer, words = UNKNOWN[name]
    path = julia_files.bson(tmp_path / "m.bson", model=Struct("Flux.Chain", (recurrent("GRU", "0.16", WIDTH)[0], layer)))
    with pytest.raises(rc.RefusedError, match=rf"'model/layers/2'.*{words}"):
        rc.export_model(path, tmp_path / "m.onnx")
    assert not (tmp_path / "m.onnx").exists()


def test_a_file_without_a_single_chain_asks_for_one(tmp_path: Path) -> None:
    layer = recurrent("GRU", "0.16", WIDTH)[0]
    apart = julia_files.bson(tmp_path / "apart.bson", model=(layer, dense("relu", UNITS, True)[0]))
    with pytest.raises(rc.UsageError, match="holds weights without a model: that of Flux is a Chain"):
        rc.export_model(apart, tmp_path / "m.onnx")
    chain = Struct("Flux.Chain", (layer,))
    two = julia_files.bson(tmp_path / "two.bson", encoder=chain, decoder=chain)
    with pytest.raises(rc.UsageError, match="several models: 'encoder', 'decoder'"):
        rc.export_model(two, tmp_path / "m.onnx")


@pytest.mark.parametrize("kind", ["lstm", "rnn"])
def test_a_model_of_the_corpus_is_its_layers(kind: str, tmp_path: Path) -> None:
    """Its reference is of the first layer alone; the others are computed from there."""
    need("corpus", corpus.absent())
    path = tmp_path / "m.bson"
    path.write_bytes((corpus.FOLDER / "flux-polynomials" / f"{kind}_model.bson").read_bytes())
    reference = np.load(corpus.FOLDER / "flux-polynomials" / f"{kind}_model.bson.ref.npz")
    arrays = {name: np.asarray(array) for name, array in rc.load(path).arrays.items()}
    prefix = "model/layers/3/cell/"
    p = {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
    x = {"lstm": julia_equations.flux_lstm, "rnn": julia_equations.flux_rnn}[kind](p, reference["l0__y"].transpose(0, 2, 1))
    for place, function in ((5, "identity"), (7, "σ")):
        x = FUNCTIONS[function](arrays[f"model/layers/{place}/weight"] @ x + arrays[f"model/layers/{place}/bias"][:, None])
    assert np.abs(run(path, reference["l0__x"].transpose(1, 0, 2), True) - x.transpose(2, 0, 1)).max() < 2e-6
