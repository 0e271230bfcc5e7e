"""Files of Flux, Lux and Knet: what their sources compute with the arrays is what is computed with what was read."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rnnconvert as rc
from rnnconvert.core import reference
from rnnconvert.core.arrays import Array
from rnnconvert.core.errors import UnreadableError
from rnnconvert.core.version import requirement
from rnnconvert.core.weights import Recurrent
from rnnconvert.formats.julia import jld2, julia_bson
from rnnconvert.formats.julia.julia_tree import OBJECTS
from rnnconvert.language.layout import Sizes
from tests.helpers import julia_equations as equations
from tests.helpers import julia_files
from tests.helpers.julia_files import Function, Struct
from tests.helpers.sources import checkpoint
from tests.helpers.stacks import BOTH, PLAIN, random_stack

pytestmark = pytest.mark.reads_apart

INPUTS, UNITS = 3, 5
INPUT_BIAS = PLAIN | {"input_bias"}


def sequence(seed: int = 1) -> Array:
    """(time, features, batch)."""
    return np.random.default_rng(seed).standard_normal((6, INPUTS, 2))


def arrays(*shapes: tuple[str, tuple[int, ...]]) -> dict[str, Array]:
    rng = np.random.default_rng(7)
    return {name: rng.uniform(-0.7, 0.7, shape) for name, shape in shapes}


def weights(gates: int, bias: str, *more: tuple[str, tuple[int, ...]], rows: int = 0) -> dict[str, Array]:
    """A Flux cell's arrays."""
    wide = gates * UNITS
    return arrays(("Wi", (wide, INPUTS)), ("Wh", (rows or wide, UNITS)), (bias, (wide,)), *more)


def only(path: Path, **options: Any) -> Recurrent:
    (stack,) = rc.load(path, **options).layers.values()
    return stack


def assert_computes(stack: Recurrent, truth: Array) -> None:
    y = reference.run(stack, sequence().transpose(0, 2, 1)).y.transpose(0, 2, 1)
    assert y.shape == truth.shape
    assert np.abs(y - truth).max() < 1e-12


def nested(flat: dict[str, Any]) -> dict[str, Any]:
    """state0/1 and state0/2 as a tuple."""
    plain = {name: value for name, value in flat.items() if "/" not in name}
    pairs = {name.partition("/")[0] for name in flat if "/" in name}
    return plain | {name: (flat[f"{name}/1"], flat[f"{name}/2"]) for name in pairs}


COLUMN = (UNITS, 1)
STATES = (("state0/1", COLUMN), ("state0/2", COLUMN))
FLUX: dict[str, tuple[dict[str, Array], Any]] = {
    "flux.lstm": (weights(4, "bias"), equations.flux_lstm),
    "flux.gru": (weights(3, "b"), equations.flux_gru),
    "flux.gru_v3": (weights(3, "b", ("Wh_h̃", (UNITS, UNITS))), equations.flux_gru_v3),
    "flux.rnn": (weights(1, "bias"), equations.flux_rnn),
    "flux.lstm_0_12": (weights(4, "b", *STATES), equations.flux_lstm),
    "flux.gru_0_12": (weights(3, "b", ("state0", COLUMN)), equations.flux_gru),
    "flux.gru_v3_0_12": (weights(3, "b", ("Wh_h̃", (UNITS, UNITS)), ("state0", COLUMN), rows=2 * UNITS), equations.flux_gru_v3),
    "flux.rnn_0_12": (weights(1, "b", ("state0", COLUMN)), equations.flux_rnn),
    "flux.lstm_0_8": (weights(4, "b", ("h", (UNITS,)), ("c", (UNITS,))), equations.flux_lstm),
    "flux.gru_0_8": (weights(3, "b", ("h", (UNITS,))), equations.flux_gru),
    "flux.rnn_0_8": (weights(1, "b", ("h", (UNITS,))), equations.flux_rnn),
}
CELLS = {"lstm": "LSTMCell", "gru": "GRUCell", "gru_v3": "GRUv3Cell", "rnn": "RNNCell"}


def flux_struct(name: str, p: dict[str, Array], function: str = "NNlib.relu") -> Struct:
    """A layer of a whole model, as its version has it."""
    kind, _, version = name.removeprefix("flux.").partition("_0_")
    tree = nested(p)
    fields = [tree[field] for field in ("Wi", "Wh", "b", "bias", "Wh_h̃", "state0", "h", "c") if field in tree]
    cell = Struct(f"Flux.{CELLS[kind]}", *([Function(function)] if kind == "rnn" else []), *fields)
    if version == "12":
        return Struct("Flux.Recur", cell, tree["state0"])
    if version == "8":
        states = (tree["h"], tree["c"]) if "c" in tree else tree["h"]
        return Struct("Flux.Recur", cell, states, states)
    return Struct("Flux." + CELLS[kind].removesuffix("Cell"), cell)


# Reading --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["model.bson", "state.bson", "state.jld2"])
def test_dense_layers_alone_are_no_unknown_format(kind: str, tmp_path: Path) -> None:
    w, b, path = np.ones((2, 3), np.float32), np.ones(2, np.float32), tmp_path / f"a.{kind.rpartition('.')[2]}"
    state = {"layers": ({"weight": w, "bias": b, "\u03c3": ()},)}
    if kind == "model.bson":
        julia_files.bson(path, model=Struct("Flux.Chain", (Struct("Flux.Dense", w, b, Struct("Base.identity")),)))
    elif kind == "state.bson":
        julia_files.bson(path, model_state=state)
    else:
        julia_files.jld2(path, model_state=state)
    with pytest.raises(UnreadableError, match="it has no recurrent layer, only 2 other tensors"):
        rc.convert(path, tmp_path / "a.onnx")


@pytest.mark.parametrize("name", FLUX)
@pytest.mark.parametrize("kind", ["state.bson", "model.bson", "state.jld2", "inline.jld2", "named.npz"])
def test_flux_computes_what_is_read(name: str, kind: str, tmp_path: Path) -> None:
    p, equation = FLUX[name]
    path = tmp_path / kind
    tree = {"layers": ({"cell": {"σ": (), **nested(p)}}, {"weight": np.ones((2, UNITS)), "bias": np.zeros(2)})}
    if kind == "state.bson":
        julia_files.bson(path, model_state=tree)
    elif kind == "model.bson":
        dense = Struct("Flux.Dense", np.ones((2, UNITS)), np.zeros(2), Function("Base.identity"))
        julia_files.bson(path, model=Struct("Flux.Chain", (flux_struct(name, p), dense)))
    elif kind == "named.npz":
        named: dict[str, Any] = {f"enc.{key.replace('/', '.')}": np.asfortranarray(array) for key, array in p.items()}
        np.savez(path, **named)
    else:
        julia_files.jld2(path, inline=kind == "inline.jld2", model_state=tree)
    checkpoint = rc.load(path)
    ((layer, stack),) = checkpoint.layers.items()
    place = {"model.bson": "model/layers/1/cell", "named.npz": "enc"}.get(kind, "model_state/layers/1/cell")
    assert (checkpoint.format, layer) == ("flux", place)
    assert not checkpoint.warnings
    if "rnn" in name:
        stated = kind == "model.bson"
        assert str(stack.cell.activation) == ("relu" if stated else "tanh")
        assert [question.option for question in checkpoint.questions] == ([] if stated else ["activation"])
        assert_computes(stack, equation(p, sequence(), "relu" if stated else "tanh"))
    else:
        assert not checkpoint.questions
        assert_computes(stack, equation(p, sequence()))


@pytest.mark.parametrize(
    "length", [0xA383, 0xBFDE, 0x10408, 0xA07B, 0x10480], ids=["msgpack", "msgpack-long", "protobuf", "json", "pickle"]
)
def test_a_length_that_other_formats_begin_with_is_no_sign_of_them(length: int, tmp_path: Path) -> None:
    """BSON begins with its length: one whose bytes are also how another format begins is BSON all the same."""
    dense = {"weight": np.ones((2, 3), np.float32), "bias": np.ones(2, np.float32)}
    shorter = julia_files.bson(tmp_path / "a.bson", note="", model_state=dense).stat().st_size
    path = julia_files.bson(tmp_path / "a.bson", note="n" * (length - shorter), model_state=dense)
    assert path.stat().st_size == length
    with pytest.raises(UnreadableError, match="it has no recurrent layer, only 2 other tensors"):
        rc.convert(path, tmp_path / "a.onnx")


@pytest.mark.parametrize("name", [name for name in FLUX if name.count("_0_") == 0])
def test_a_bias_that_is_false_is_none(name: str, tmp_path: Path) -> None:
    p, equation = FLUX[name]
    bias = "bias" if "bias" in p else "b"
    without = {key: array for key, array in p.items() if key != bias}
    path = julia_files.bson(tmp_path / "a.bson", model_state={"cell": {**without, bias: False}})
    assert only(path).first.biases == "none"
    assert_computes(only(path), equation(without, sequence()))
    path = julia_files.bson(tmp_path / "a.bson", model_state={"cell": {**without, bias: True}})
    with pytest.raises(rc.RefusedError, match="only false stands for no bias"):
        rc.load(path)


def test_the_third_block_of_gru_v3_is_not_read(tmp_path: Path) -> None:
    p, equation = FLUX["flux.gru_v3"]
    changed = {**p, "Wh": np.concatenate([p["Wh"][: 2 * UNITS], np.full((UNITS, UNITS), 9.0)])}
    path = julia_files.bson(tmp_path / "a.bson", model_state={"cell": changed})
    stack = only(path)
    np.testing.assert_array_equal(p["Wh_h̃"], np.asarray(stack.first.arrays["recurrent", "n"]))
    assert_computes(stack, equation(p, sequence()))


def test_tracked_arrays_of_old_models_are_looked_through(tmp_path: Path) -> None:
    p, equation = FLUX["flux.lstm_0_8"]

    def tracked(array: Array) -> Struct:
        tracker = Struct("Flux.Tracker.Tracked", 0, None, True, np.zeros_like(array))
        return Struct("Flux.Tracker.TrackedArray", tracker, array, np.zeros_like(array))

    model = flux_struct("flux.lstm_0_8", p)
    cell = Struct("Flux.LSTMCell", *map(tracked, model[0]))
    states = tuple(map(tracked, model[1]))
    path = julia_files.bson(tmp_path / "a.bson", model=Struct("Flux.Recur", cell, states, states))
    assert_computes(only(path), equation(p, sequence()))


def test_the_state_that_reset_goes_back_to_is_read(tmp_path: Path) -> None:
    p, equation = FLUX["flux.gru_0_8"]
    other, last = np.full(UNITS, 0.25), np.full((UNITS, 2), 0.5)
    cell = Struct("Flux.GRUCell", p["Wi"], p["Wh"], p["b"], p["h"])
    path = julia_files.bson(tmp_path / "a.bson", model=Struct("Flux.Recur", cell, other, last))
    checkpoint = rc.load(path)
    assert_computes(checkpoint.layers["model/cell"], equation({**p, "h": other}, sequence()))
    assert len(checkpoint.warnings) == 2
    assert any("init that Flux.reset! goes back to" in warning for warning in checkpoint.warnings)


def test_a_function_that_is_not_known_is_refused_where_it_would_run(tmp_path: Path) -> None:
    p, _ = FLUX["flux.rnn"]
    path = julia_files.bson(tmp_path / "a.bson", model=flux_struct("flux.rnn", p, "Main.wavy"))
    assert str(only(path).cell.activation) == "wavy"
    with pytest.raises(rc.RefusedError, match="wavy"):
        rc.convert(path, tmp_path / "a.onnx")
    with pytest.raises(rc.UsageError, match="contradicts its field σ, which states wavy"):
        rc.load(path, nonlinearity="relu")


def test_a_function_without_a_name_is_not_taken_for_tanh(tmp_path: Path) -> None:
    p, _ = FLUX["flux.rnn"]
    document = {"model": julia_files.lowered(flux_struct("flux.rnn", p))}
    document["model"]["data"][0]["data"][0] = {"tag": "struct", "type": {"tag": "jl_anonymous"}, "data": []}
    checkpoint = rc.load(encoded(tmp_path / "a.bson", document))
    assert str(checkpoint.layers["model/cell"].cell.activation) == "unnamed"
    with pytest.raises(rc.RefusedError, match="unnamed"):
        rc.convert(tmp_path / "a.bson", tmp_path / "a.onnx")


def test_a_list_of_arrays_without_names_is_told(tmp_path: Path) -> None:
    p, _ = FLUX["flux.lstm_0_8"]
    checkpoint = rc.load(encoded(tmp_path / "a.bson", {"weights": [julia_files.lowered(array) for array in p.values()]}))
    assert not checkpoint.layers
    (warning,) = checkpoint.warnings
    assert warning.startswith("weights: a list of arrays without names") and "Flux.state(model)" in warning


def test_a_cell_whose_matrices_are_no_plain_arrays_is_told(tmp_path: Path) -> None:
    p, _ = FLUX["flux.gru"]
    cell = Struct("Flux.GRUCell", Struct("LinearAlgebra.Adjoint", p["Wi"].T.copy()), p["Wh"], p["b"])
    checkpoint = rc.load(julia_files.bson(tmp_path / "a.bson", model=Struct("Flux.GRU", cell)), "flux")
    assert not checkpoint.layers
    assert checkpoint.warnings == ("model/cell: a Flux.GRUCell whose fields are not plain arrays; it was left out",)


def test_a_cell_of_an_unknown_version_is_told(tmp_path: Path) -> None:
    cell = Struct("Flux.LSTMCell", *(np.ones((2, 2)) for _ in range(6)))
    path = julia_files.bson(tmp_path / "a.bson", model=Struct("Flux.Recur", cell, np.ones(2)))
    checkpoint = rc.load(path, "flux")
    assert not checkpoint.layers
    assert any("LSTMCell with 6 fields" in warning for warning in checkpoint.warnings)


def test_a_struct_of_another_package_is_no_cell_of_fluxs(tmp_path: Path) -> None:
    """Of the same name and number of fields, and perhaps of another order of gates."""
    p, _ = FLUX["flux.lstm"]
    path = julia_files.bson(tmp_path / "a.bson", model=Struct("Main.LSTMCell", *p.values()))
    checkpoint = rc.load(path, "flux")
    assert not checkpoint.layers
    assert checkpoint.warnings == ("model: a Main.LSTMCell, which is not a cell of Flux",)


def lux_arrays(gates: int, old: bool, states: tuple[str, ...] = ()) -> dict[str, Array]:
    wide = gates * UNITS
    names = ("weight_i", "weight_h") if old and gates > 1 else ("weight_ih", "weight_hh")
    biases: dict[int, list[tuple[str, tuple[int, ...]]]] = {
        1: [("bias", (wide,))], 4: [("bias", (wide, 1))], 3: [("bias_i", (UNITS, 1)), ("bias_h", (wide, 1))]
    }  # fmt: skip
    new: list[tuple[str, tuple[int, ...]]] = [("bias_ih", (wide,)), ("bias_hh", (wide,))]
    return arrays(
        (names[0], (wide, INPUTS)), (names[1], (wide, UNITS)), *(biases[gates] if old else new),
        *((state, (UNITS,)) for state in states),
    )  # fmt: skip


LUX: list[tuple[int, bool, tuple[str, ...]]] = [
    (4, False, ()), (4, False, ("hidden_state", "memory")), (4, False, ("memory",)), (3, False, ()),
    (3, False, ("hidden_state",)), (1, False, ()), (1, False, ("hidden_state",)), (4, True, ()),
    (4, True, ("hidden_state", "memory")), (3, True, ()), (3, True, ("hidden_state",)), (1, True, ()),
    (1, True, ("hidden_state",)),
]  # fmt: skip
LUX_EQUATIONS: dict[int, Callable[..., Array]] = {4: equations.lux_lstm, 3: equations.lux_gru, 1: equations.lux_rnn}


@pytest.mark.parametrize(("gates", "old", "states"), LUX)
@pytest.mark.parametrize("kind", ["a.bson", "a.jld2", "a.npz"])
def test_lux_computes_what_is_read(gates: int, old: bool, states: tuple[str, ...], kind: str, tmp_path: Path) -> None:
    p = lux_arrays(gates, old, states)
    path = tmp_path / kind
    tree = {"layer_1": p, "layer_2": {"weight": np.ones((2, UNITS)), "bias": np.ones(2)}}
    if kind == "a.npz":
        named: dict[str, Any] = {f"layer_1/{name}": array for name, array in p.items()}
        np.savez(path, **named)
    else:
        {"a.bson": julia_files.bson, "a.jld2": julia_files.jld2}[kind](path, ps=tree)
    checkpoint = rc.load(path)
    ((layer, stack),) = checkpoint.layers.items()
    assert (checkpoint.format, layer.rpartition("/")[2]) == ("lux", "layer_1")
    truth = LUX_EQUATIONS[gates](p, sequence(), old=old)
    assert_computes(stack, truth)
    expected = ["activation"] if gates == 1 else []
    if gates == 1 and old and not states:
        expected.append("init_state")
        assert np.asarray(stack.first.arrays["initial_hidden", ""]).tolist() == [1] * UNITS
        zeros = only(path, init_state="zeros")
        assert ("initial_hidden", "") not in zeros.first.arrays
        assert_computes(zeros, equations.lux_rnn({**p, "hidden_state": np.zeros(UNITS)}, sequence(), old=True))
    assert [question.option for question in checkpoint.questions] == expected


def test_an_rnn_without_biases_may_be_of_either_lux(tmp_path: Path) -> None:
    p = {name: array for name, array in lux_arrays(1, False).items() if "weight" in name}
    path = julia_files.bson(tmp_path / "a.bson", ps=p)
    assert [(question.option, question.assumed) for question in rc.load(path).questions] == [
        ("activation", "tanh"), ("init_state", "zeros"),
    ]  # fmt: skip
    assert_computes(only(path, init_state="ones"), equations.lux_rnn(p, sequence(), old=True))


def test_the_initial_state_of_lux_0_4_is_a_column(tmp_path: Path) -> None:
    p = {**lux_arrays(1, True), "init_state": np.full((UNITS, 1), 0.5)}
    path = julia_files.bson(tmp_path / "a.bson", ps=p)
    assert_computes(only(path), equations.lux_rnn(p, sequence(), old=True))


@pytest.mark.parametrize("gates", [4, 3, 1])
def test_luxs_two_directions_are_one_layer(gates: int, tmp_path: Path) -> None:
    forward, backward = lux_arrays(gates, False), {n: -a for n, a in lux_arrays(gates, False).items()}
    tree = {"forward_rnn": forward, "backward_rnn": {"rev1": {}, "rnn": backward, "rev2": {}}}
    path = julia_files.bson(tmp_path / "a.bson", ps={"layer_1": tree})
    checkpoint = rc.load(path)
    x = sequence()
    first, second = (LUX_EQUATIONS[gates](p, arrays) for p, arrays in ((forward, x), (backward, x[::-1])))
    assert "merge_mode" in [question.option for question in checkpoint.questions]
    assert_computes(checkpoint.layers["ps/layer_1"], np.concatenate([first, second[::-1]], axis=1))
    assert_computes(only(path, merge_mode="sum"), first + second[::-1])
    out = tmp_path / "b.bson"
    rc.convert(path, out, target_format="lux")
    again = julia_files.loaded(out)["ps"]["layer_1"]
    assert list(again) == ["forward_rnn", "backward_rnn"]
    assert list(again["backward_rnn"]) == ["rev1", "rnn", "rev2"]
    assert again["backward_rnn"]["rev1"] == {}
    np.testing.assert_array_equal(again["backward_rnn"]["rnn"]["weight_ih"], backward["weight_ih"])


KNET = [("lstm", 1, False, False), ("lstm", 2, True, False), ("gru", 3, False, False), ("gru", 2, True, True),
        ("tanh", 2, True, False), ("relu", 1, False, False), ("lstm", 2, False, True)]  # fmt: skip


def knet_vector(kind: str, layers: int, both: bool, inputs: int, skip: bool) -> Array:
    """getRNNParamsSize."""
    gates, ways = {"lstm": 4, "gru": 3}.get(kind, 1), 1 + both
    size = 0
    width = 0 if skip else inputs * UNITS
    for _ in range(layers):
        size += gates * ways * (UNITS * UNITS + width + 2 * UNITS)
        width = ways * UNITS * UNITS
    return np.random.default_rng(5).uniform(-0.6, 0.6, size)


@pytest.mark.parametrize(("kind", "layers", "both", "skip"), KNET)
@pytest.mark.parametrize("form", ["model.bson", "model.jld2", "w.npz"])
def test_knet_computes_what_is_read(kind: str, layers: int, both: bool, skip: bool, form: str, tmp_path: Path) -> None:
    inputs = UNITS if skip else INPUTS
    w = knet_vector(kind, layers, both, inputs, skip)
    mode = ("relu", "tanh", "lstm", "gru").index(kind)
    sizes = dict(inputSize=inputs, hiddenSize=UNITS, numLayers=layers, dropout=0, seed=0, inputMode=int(skip),
                 direction=int(both), mode=mode, algo=0)  # fmt: skip
    path = tmp_path / form
    options: dict[str, Any] = {}
    if form == "model.bson":
        value = Struct("AutoGrad.Param", w.reshape(1, 1, -1), None)
        rnn = Struct("Knet.Ops20.RNN", value, None, None, *sizes.values(), Struct("Core.Float64"), *[None] * 5)
        julia_files.bson(path, rnn=rnn)
    elif form == "model.jld2":
        julia_files.jld2(path, rnn={"w": {"value": w.reshape(1, 1, -1)}, **sizes})
    else:
        np.savez(path, w=w)
        cell = {"tanh": "rnn_tanh", "relu": "rnn_relu"}.get(kind, kind)
        options = {"cell": cell, "hidden_size": UNITS, "num_layers": layers, "bidirectional": both, "source_format": "knet"}
        options["input_mode"] = "skip" if skip else "linear"
    checkpoint = rc.load(path, **options)
    (stack,) = checkpoint.layers.values()
    assert checkpoint.format == "knet" and not checkpoint.questions and not checkpoint.warnings
    x = np.random.default_rng(1).standard_normal((6, inputs, 2))
    y = reference.run(stack, x.transpose(0, 2, 1)).y.transpose(0, 2, 1)
    assert np.abs(y - equations.knet(w, x, equations.Knet(UNITS, kind, layers, both, skip))).max() < 1e-12
    out = tmp_path / "out.bson"
    said_again = {key: value for key, value in options.items() if key != "source_format"}
    rc.convert(path, out, target_format="knet", source_format="knet", **said_again)
    tree = next(iter(julia_files.loaded(out).values()))
    assert {name: tree[name] for name in ("hiddenSize", "numLayers", "mode", "direction", "inputMode")} == {
        "hiddenSize": UNITS, "numLayers": layers, "mode": mode, "direction": int(both), "inputMode": int(skip),
    }  # fmt: skip
    np.testing.assert_array_equal(tree["w"], w)
    assert_same(only(out), stack)


def assert_same(read: Recurrent, source: Recurrent) -> None:
    for (_, _, first), (_, _, second) in zip(read.directions(), source.directions(), strict=True):
        assert first.arrays.keys() == second.arrays.keys()
        for key in first.arrays:
            np.testing.assert_array_equal(np.asarray(first.arrays[key]), np.asarray(second.arrays[key]))


def test_a_state_that_knet_passes_on_is_left_out_with_a_warning(tmp_path: Path) -> None:
    sizes = dict(inputSize=INPUTS, hiddenSize=UNITS, numLayers=1, inputMode=0, direction=0, mode=2)
    w = knet_vector("lstm", 1, False, INPUTS, False)
    path = julia_files.bson(tmp_path / "a.bson", rnn={"w": w, "h": np.ones((UNITS, 2, 1)), **sizes})
    (warning,) = rc.load(path).warnings
    assert "from call to call" in warning


@pytest.mark.parametrize("kind", ["lstm", "gru", "tanh", "relu"])
def test_the_flat_vector_of_fluxs_gpu_path_is_read(kind: str, tmp_path: Path) -> None:
    gates = {"lstm": 4, "gru": 3}.get(kind, 1)
    w = np.random.default_rng(3).uniform(-0.6, 0.6, gates * UNITS * (INPUTS + UNITS + 2))
    w[-gates * UNITS :] = 0  # the second biases, which setweights! leaves as they were made
    path = julia_files.bson(tmp_path / "a.bson", params=w)
    cell = {"tanh": "rnn_tanh", "relu": "rnn_relu"}.get(kind, kind)
    stack = only(path, source_format="flux", cell=cell, hidden_size=UNITS)
    assert_computes(stack, equations.cuda(w, sequence(), UNITS, kind))
    with pytest.raises(rc.UsageError, match="has no layer above the first"):
        only(path, source_format="flux", cell=cell, hidden_size=UNITS, num_layers=2)


# Writing --------------------------------------------------------------------------------------------


def stack(kind: str, parts: frozenset[str] = INPUT_BIAS, **more: Any) -> Recurrent:
    form = Sizes(kind, INPUTS, UNITS, parts=parts)
    layer = random_stack(form, 3, "float64").replace(name="enc")
    return layer.replace(**more) if more else layer


def convert(source: Recurrent, path: Path, **options: Any) -> rc.Summary:
    return rc.save(checkpoint(source), path, **options)


def leaf(tree: Any, path: str) -> Any:
    for word in path.split("/"):
        tree = tree[int(word) - 1] if isinstance(tree, tuple) else tree[word]
    return tree


def as_flux(tree: dict[str, Any]) -> dict[str, Array]:
    """A cell's arrays by the names of the equations."""
    flat = {name: value for name, value in tree.items() if isinstance(value, np.ndarray)}
    pair = tree.get("state0")
    return flat if not isinstance(pair, tuple) else flat | {f"state0/{n}": state for n, state in enumerate(pair, 1)}


WRITTEN = {
    "lstm": (["Wi", "Wh", "bias"], equations.flux_lstm),
    "gru": (["Wi", "Wh", "b"], equations.flux_gru),
    "rnn": (["σ", "Wi", "Wh", "bias"], equations.flux_rnn),
}


@pytest.mark.parametrize("kind", WRITTEN)
def test_a_tree_of_flux_is_written_as_flux_state_has_it(kind: str, tmp_path: Path) -> None:
    layer = stack(kind)
    path = tmp_path / "a.bson"
    summary = convert(layer, path, target_format="flux")
    tree = julia_files.loaded(path)
    fields, equation = WRITTEN[kind]
    assert list(tree) == ["model_state"]
    assert list(tree["model_state"]["cell"]) == fields
    assert tree["model_state"]["cell"].get("σ", ()) == ()
    assert_computes(layer, equation(as_flux(tree["model_state"]["cell"]), sequence()))
    assert_same(only(path), layer)
    call = {"lstm": "Flux.LSTM(3 => 5)", "gru": "Flux.GRU(3 => 5)", "rnn": "Flux.RNN(3 => 5, tanh)"}[kind]
    load = "Flux.loadmodel!(layer.cell, BSON.load(path)[:model_state].cell)"
    assert summary.notes == (f"model_state holds the parameters of {call}: {load}",)


def test_a_gru_with_the_reset_gate_before_is_written_as_gru_v3(tmp_path: Path) -> None:
    cell = rc.Cell("gru", False)
    layer = random_stack(Sizes("gru", INPUTS, UNITS, parts=INPUT_BIAS), 3, "float64", cell).replace(name="enc")
    path = tmp_path / "a.bson"
    convert(layer, path, target_format="flux")
    tree = julia_files.loaded(path)["model_state"]["cell"]
    assert list(tree) == ["Wi", "Wh", "b", "Wh_h̃"]
    assert not tree["Wh"][2 * UNITS :].any()
    assert_computes(layer, equations.flux_gru_v3(as_flux(tree), sequence()))


@pytest.mark.parametrize("kind", WRITTEN)
def test_without_biases_false_is_written(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "a.bson"
    layer = stack(kind, PLAIN)
    convert(layer, path, target_format="flux")
    tree = julia_files.loaded(path)["model_state"]["cell"]
    assert tree["b" if kind == "gru" else "bias"] is False
    assert_same(only(path), layer)


@pytest.mark.parametrize("kind", WRITTEN)
def test_a_learned_state_goes_into_flux_0_12_alone(kind: str, tmp_path: Path) -> None:
    states = {"initial_hidden", "initial_cell"} if kind == "lstm" else {"initial_hidden"}
    layer = stack(kind, INPUT_BIAS | states)
    with pytest.raises(rc.RefusedError, match="a learned initial state"):
        convert(layer, tmp_path / "a.bson", target_format="flux")
    assert not (tmp_path / "a.bson").exists()
    path = tmp_path / "b.bson"
    convert(layer, path, target_format="flux", layout=f"flux.{kind}_0_12")
    tree = julia_files.loaded(path)["model_state"]
    assert list(tree) == ["cell", "state"]
    first = tree["state"][0] if kind == "lstm" else tree["state"]
    np.testing.assert_array_equal(first[:, 0], np.asarray(layer.first.arrays["initial_hidden", ""]))
    assert_computes(layer, WRITTEN[kind][1](as_flux(tree["cell"]), sequence()))
    assert_same(only(path), layer)
    convert(stack(kind), path, target_format="flux", layout=f"flux.{kind}_0_12", force=True)
    assert not np.any(julia_files.loaded(path)["model_state"]["cell"]["state0"])


def test_a_recurrent_candidate_bias_is_refused_by_flux(tmp_path: Path) -> None:
    with pytest.raises(rc.RefusedError, match="a recurrent candidate bias inside the reset product"):
        convert(stack("gru", BOTH), tmp_path / "a.bson", target_format="flux")
    assert list(tmp_path.iterdir()) == []


def test_layers_of_several_are_places_in_a_tree(tmp_path: Path) -> None:
    form = Sizes("lstm", INPUTS, UNITS, 2, parts=INPUT_BIAS)
    path = tmp_path / "a.bson"
    convert(random_stack(form, 3).replace(name="enc"), path, target_format="flux")
    assert list(julia_files.loaded(path)["model_state"]) == ["enc_l0", "enc_l1"]
    assert len(rc.load(path).layers) == 2


def test_a_whole_model_is_written_as_a_tree(tmp_path: Path) -> None:
    p, _ = FLUX["flux.lstm"]
    model = Struct("Flux.Chain", (flux_struct("flux.lstm", p), Struct("Flux.Dropout", 0.5), flux_struct("flux.lstm", p)))
    path = julia_files.bson(tmp_path / "a.bson", model=model)
    summary = rc.convert(path, tmp_path / "b.bson", target_format="flux")
    assert summary.notes[1].endswith("BSON.load(path)[:model_state].layers[3].cell)")
    layers = julia_files.loaded(tmp_path / "b.bson")["model_state"]["layers"]
    assert isinstance(layers, tuple) and layers[1] == ()
    np.testing.assert_array_equal(layers[2]["cell"]["Wi"], p["Wi"])


LUX_WRITTEN: dict[str, Callable[..., Array]] = {"lstm": equations.lux_lstm, "gru": equations.lux_gru, "rnn": equations.lux_rnn}


@pytest.mark.parametrize("kind", LUX_WRITTEN)
@pytest.mark.parametrize("old", [False, True])
@pytest.mark.parametrize("suffix", [".bson", ".npz"])
def test_what_is_written_for_lux_computes_the_same(kind: str, old: bool, suffix: str, tmp_path: Path) -> None:
    layer = stack(kind, BOTH | {"initial_hidden"})
    path = tmp_path / f"a{suffix}"
    layout = f"lux.{kind}_0_5" if old else f"lux.{kind}"
    summary = convert(layer, path, target_format="lux", layout=layout)
    if suffix == ".bson":
        p = julia_files.loaded(path)["ps"]
    else:
        with np.load(path) as stored:
            p = {name.removeprefix("ps/"): stored[name] for name in stored.files}
    assert_computes(layer, LUX_WRITTEN[kind](p, sequence(), old=old))
    assert "train_state=true" in summary.notes[0]
    assert rc.load(path).format == "lux"
    assert_computes(only(path), LUX_WRITTEN[kind](p, sequence(), old=old))


@pytest.mark.parametrize("suffix", [".bson", ".npz"])
def test_what_is_read_is_written_in_its_place(suffix: str, tmp_path: Path) -> None:
    first = tmp_path / "a.npz"
    form = Sizes("lstm", INPUTS, UNITS, 2)
    rc.save(checkpoint(random_stack(form, 3, "float64").replace(name="enc")), first, "lux")
    assert list(rc.load(first).layers) == ["ps/enc_l0", "ps/enc_l1"]
    second = tmp_path / f"b{suffix}"
    rc.convert(first, second, target_format="lux")
    assert list(rc.load(second).layers) == ["ps/enc_l0", "ps/enc_l1"]


def test_the_flat_vector_of_fluxs_gpu_path_is_written(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    layer = stack("lstm")
    convert(layer, path, target_format="flux", layout="flux.lstm_flat")
    with np.load(path) as stored:
        assert_computes(layer, equations.cuda(stored["params"], sequence(), UNITS, "lstm"))


@pytest.mark.parametrize("name", ["flux", "lux", "knet"])
def test_a_jld2_file_is_only_read(name: str, tmp_path: Path) -> None:
    with pytest.raises(rc.UsageError, match=r"\.jld2 files are only read. Choose a name that ends in .bson or .npz"):
        convert(stack("lstm"), tmp_path / "a.jld2", target_format=name)
    assert list(tmp_path.iterdir()) == []


def test_bfloat16_is_refused_and_other_types_are_kept(tmp_path: Path) -> None:
    layer = random_stack(Sizes("lstm", INPUTS, UNITS, parts=INPUT_BIAS), 3, "float32").replace(name="enc")
    for dtype in ("float16", "float32", "float64"):
        convert(layer, tmp_path / "a.bson", target_format="flux", dtype=dtype, force=True)
        assert str(only(tmp_path / "a.bson").dtype) == dtype
    with pytest.raises(rc.RefusedError, match="bfloat16"):
        convert(layer, tmp_path / "b.bson", target_format="flux", dtype="bfloat16")
    assert not (tmp_path / "b.bson").exists()


def test_numbers_that_are_not_finite_are_warned_of(tmp_path: Path) -> None:
    source = stack("lstm")
    broken = {key: np.full_like(np.asarray(array), np.nan) for key, array in source.first.arrays.items()}
    layer = rc.Layer((source.first.with_arrays(broken),))
    summary = convert(source.replace(layers=(layer,)), tmp_path / "a.bson", target_format="flux")
    assert "NaN or infinite" in summary.warnings[0]


# Damage ---------------------------------------------------------------------------------------------


def encoded(path: Path, document: dict[str, Any]) -> Path:
    import bson as library

    path.write_bytes(library.encode(document))
    return path


GOOD = julia_files.lowered(np.ones((4 * UNITS, UNITS)))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"size": [4 * UNITS, UNITS + 1]}, "should be 20 by 6 of Float64, which is 960 bytes, but has 800"),
        ({"size": [-1, 5]}, "is an array of the size"),
        ({"size": "wide"}, "is an array of the size"),
        ({"size": [1 << 40, 1 << 40]}, "bytes, but has 800"),
        ({"size": [0, 1 << 62, 1 << 62], "data": b""}, "cannot have the shape"),
        ({"size": [1] * 100, "data": b"12345678"}, "cannot have the shape"),
        ({"data": 5}, "with int for data"),
        ({"data": {"tag": "backref", "ref": 3}}, "refers to shared value 3, but there are 0"),
        ({"data": {"tag": "backref", "ref": "x"}}, "refers to shared value 'x'"),
    ],
)
def test_an_array_that_cannot_be_is_named(change: dict[str, Any], words: str, tmp_path: Path) -> None:
    path = encoded(tmp_path / "a.bson", {"model": {"Wi": {**GOOD, **change}}})
    with pytest.raises(rc.UnreadableError, match="'model/Wi'") as caught:
        rc.load(path)
    assert words in str(caught.value)


def test_a_large_array_whose_tag_comes_last_is_known(tmp_path: Path) -> None:
    """The order of a document's keys is that of a hash table in Julia."""
    p = weights(4, "bias")
    p["Wi"] = np.ones((4 * UNITS, 1000))
    tree = {name: dict(reversed(julia_files.lowered(array).items())) for name, array in p.items()}
    checkpoint = rc.load(encoded(tmp_path / "a.bson", {"a": tree}))
    assert checkpoint.layers["a"].input_size == 1000


def test_elements_of_other_types_are_told(tmp_path: Path) -> None:
    other = {**GOOD, "type": {"tag": "datatype", "name": ["Base", "Complex"], "params": []}}
    p, _ = FLUX["flux.lstm"]
    document = {"model_state": julia_files.lowered({"cell": p}), "z": other}
    checkpoint = rc.load(encoded(tmp_path / "a.bson", document))
    assert len(checkpoint.layers) == 1
    assert checkpoint.warnings == ("z: an array with elements of the type Complex",)


def test_values_that_refer_to_themselves_are_left_out(tmp_path: Path) -> None:
    loop = {"tag": "tuple", "data": [{"tag": "backref", "ref": 1}]}
    path = encoded(tmp_path / "a.bson", {"a": {"tag": "backref", "ref": 1}, "_backrefs": [loop]})
    assert julia_bson.read(path).metadata["unreadable"] == {"a/1": "a value that is part of itself"}
    path = encoded(tmp_path / "b.bson", {"a": {"tag": "backref", "ref": 1}, "_backrefs": [{"tag": "backref", "ref": 1}]})
    with pytest.raises(rc.UnreadableError, match="'a' refers to itself"):
        julia_bson.read(path)


def test_shared_values_that_multiply_are_bounded(tmp_path: Path) -> None:
    """Ten shared values, each of which refers ten times to the next one."""
    shared = [{"tag": "tuple", "data": [{"tag": "backref", "ref": n + 2}] * 10} for n in range(9)]
    path = encoded(tmp_path / "a.bson", {"a": {"tag": "backref", "ref": 1}, "_backrefs": [*shared, {"tag": "tuple"}]})
    with pytest.raises(rc.UnreadableError, match=f"more than {OBJECTS} values"):
        julia_bson.read(path)


def test_documents_that_are_nested_without_end_are_bounded(tmp_path: Path) -> None:
    deep: Any = 1
    for _ in range(90):
        deep = {"a": deep}
    with pytest.raises(rc.UnreadableError, match="nested more than 64 deep"):
        julia_bson.read(encoded(tmp_path / "a.bson", deep))
    content = b"\x05\x00\x00\x00\x00"
    for _ in range(20000):
        content = struct.pack("<i", len(content) + 8) + b"\x03a\x00" + content + b"\x00"
    (tmp_path / "b.bson").write_bytes(content)
    with pytest.raises(rc.UnreadableError, match="not a valid BSON document"):
        julia_bson.read(tmp_path / "b.bson")


def test_a_truncated_file_is_unreadable(tmp_path: Path) -> None:
    p, _ = FLUX["flux.lstm"]
    content = julia_files.bson(tmp_path / "a.bson", model_state={"cell": p}).read_bytes()
    path = tmp_path / "b.bson"
    for length in (1, 7, 60, 300, len(content) // 2, len(content) - 1):
        path.write_bytes(content[:length])
        with pytest.raises(rc.UnreadableError):
            rc.load(path)
        with pytest.raises(rc.UnreadableError):
            rc.load(path, "flux")


def test_random_damage_never_reads_as_something_else(tmp_path: Path) -> None:
    """Bytes changed at random: an error of ours, or values, but no other exception."""
    p, _ = FLUX["flux.gru"]
    content = julia_files.bson(tmp_path / "a.bson", model=Struct("Flux.GRU", Struct("Flux.GRUCell", *p.values()))).read_bytes()
    rng = np.random.default_rng(0)
    path = tmp_path / "b.bson"
    for _ in range(300):
        broken = bytearray(content)
        for place in rng.integers(0, min(len(content), 700), 3):
            broken[place] = rng.integers(256)
        path.write_bytes(broken)
        try:
            rc.load(path, "flux")
        except rc.RnnConvertError:
            continue


def test_without_pymongo_it_is_said_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = julia_files.bson(tmp_path / "a.bson", model_state={"cell": FLUX["flux.lstm"][0]})
    monkeypatch.setitem(__import__("sys").modules, "bson", None)
    with pytest.raises(rc.MissingPackageError, match=re.escape(f"pip install {requirement('julia')}")):
        rc.load(path)


# JLD2 -----------------------------------------------------------------------------------------------


def test_the_types_of_a_jld2_file_are_never_looked_into(tmp_path: Path) -> None:
    p, _ = FLUX["flux.lstm"]
    stored = jld2.read(julia_files.jld2(tmp_path / "a.jld2", model_state={"cell": p}))
    assert {name.partition("/")[0] for name in stored.arrays} == {"model_state"}


def test_what_the_library_cannot_read_is_said_with_what_to_do(tmp_path: Path) -> None:
    import h5py

    path = julia_files.jld2(tmp_path / "a.jld2", title=np.zeros(0))
    with h5py.File(path, "a") as file:
        del file["title"]
        file["text"] = "a text"
        file["away"] = h5py.ExternalLink("/etc/passwd", "/x")
    with pytest.raises(rc.UnreadableError, match=r"no arrays of numbers can be read .*not followed.*BSON.@save"):
        rc.load(path)


def test_a_truncated_jld2_file_is_unreadable(tmp_path: Path) -> None:
    p, _ = FLUX["flux.lstm"]
    content = julia_files.jld2(tmp_path / "a.jld2", model_state={"cell": p}).read_bytes()
    path = tmp_path / "b.jld2"
    for length in (30, 512, 700, len(content) // 2):
        path.write_bytes(content[:length])
        with pytest.raises(rc.UnreadableError, match="JLD2"):
            rc.load(path)


def test_structures_that_refer_to_themselves_are_left_out(tmp_path: Path) -> None:
    import h5py

    path = julia_files.jld2(tmp_path / "a.jld2", x=np.ones((2, 3)))
    with h5py.File(path, "a") as file:
        kind = np.dtype([("me", julia_files.REFERENCE)])
        dataset = file.create_dataset("loop", (), dtype=kind)
        record = np.zeros((), kind)
        record["me"] = dataset.ref
        dataset[()] = record
    stored = jld2.read(path)
    assert stored.metadata["unreadable"] == {"loop/me": "a value that is part of itself"}
    assert stored.arrays["x"].shape == (2, 3)


def test_two_directions_without_biases_are_not_taken_for_cells_of_equinox(tmp_path: Path) -> None:
    layer = random_stack(Sizes("lstm", INPUTS, UNITS, 1, 2, parts=PLAIN), 3)
    rc.save(checkpoint(layer), path := tmp_path / "a.npz", "lux")
    (both,) = rc.load(path).layers.values()
    assert rc.load(path).format == "lux"
    assert [direction.reverse for _, _, direction in both.directions()] == [False, True]


def test_values_of_one_path_are_never_taken_for_one_another(tmp_path: Path) -> None:
    path = encoded(tmp_path / "a.bson", {"model": {"cell": {"Wi": GOOD}}, "model/cell": {"Wi": GOOD}})
    with pytest.raises(rc.UnreadableError, match="two of its values have the path 'model/cell'"):
        julia_bson.read(path)
    symbols = [{"tag": "symbol", "name": "Wi"}] * 2
    kind = {"tag": "datatype", "name": ["Core", "NamedTuple"], "params": [{"tag": "tuple", "data": symbols}]}
    path = encoded(tmp_path / "b.bson", {"model": {"tag": "struct", "type": kind, "data": [GOOD, GOOD]}})
    with pytest.raises(rc.UnreadableError, match="two values of the name 'Wi'"):
        julia_bson.read(path)


@pytest.mark.parametrize("wrong", [{"inputSize": INPUTS + 1}, {"numLayers": 2}, {"hiddenSize": UNITS + 1}])
def test_sizes_that_a_knet_vector_has_not_are_told(wrong: dict[str, int], tmp_path: Path) -> None:
    w = julia_files.lowered(knet_vector("lstm", 1, False, INPUTS, False))
    sizes = {"inputSize": INPUTS, "hiddenSize": UNITS, "numLayers": 1, "inputMode": 0, "direction": 0, "mode": 2}
    assert only(encoded(tmp_path / "a.bson", {"rnn": {"w": w, **sizes}})).input_size == INPUTS
    path = encoded(tmp_path / "b.bson", {"rnn": {"w": w, **sizes, **wrong}})
    with pytest.raises(rc.UnreadableError, match="numbers, but lstm with"):
        rc.load(path)


def test_an_optimiser_beside_the_model_is_stepped_over(tmp_path: Path) -> None:
    # Flux.ADAM keeps an IdDict from each parameter to its moments; BSON.jl shares the arrays through _backrefs.
    import bson as library

    p, equation = FLUX["flux.lstm"]
    model = julia_files.lowered(flux_struct("flux.lstm", p))
    (layer,) = model["data"]
    shared = [field for field in layer["data"] if isinstance(field, dict) and field.get("tag") == "array"]
    refs = [{"tag": "backref", "ref": number} for number in range(1, len(shared) + 1)]
    layer["data"] = [refs[shared.index(field)] if field in shared else field for field in layer["data"]]
    moments = [julia_files.lowered((np.ones(3), np.ones(3), (0.9, 0.999))) for _ in shared]
    state = {"tag": "struct", "type": {"tag": "datatype", "name": ["Base", "IdDict"], "params": []}, "data": [refs, moments]}
    adam = {"tag": "datatype", "name": ["Main", "Flux", "Optimise", "ADAM"], "params": []}
    opt = {"tag": "struct", "type": adam, "data": [0.001, julia_files.lowered((0.9, 0.999)), state]}
    path = tmp_path / "a.bson"
    path.write_bytes(library.encode({"model": model, "opt": opt, "_backrefs": shared}))
    assert_computes(only(path), equation(p, sequence()))
    assert any("keys are arrays, as in the state of an optimizer" in warning for warning in rc.load(path).warnings)
