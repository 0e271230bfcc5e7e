"""Files of Flux, Lux and Knet: what their sources compute with the arrays is what is computed with what was read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rnnconvert as rc
from rnnconvert.arrays import Array
from rnnconvert.executors import reference
from rnnconvert.layout import Form
from rnnconvert.weights import Recurrent
from tests import julia_equations as equations
from tests import julia_files
from tests.julia_files import Function, Struct
from tests.sources import checkpoint
from tests.stacks import PLAIN, random_stack

pytest.importorskip("bson", reason="pymongo reads and writes BSON; install the extra julia")

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


def only(path: Path, **options: object) -> Recurrent:
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
    "flux.gru_v3_0_12": (
        weights(3, "b", ("Wh_h̃", (UNITS, UNITS)), ("state0", COLUMN), rows=2 * UNITS),
        equations.flux_gru_v3,
    ),
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
    fields = [tree[one] for one in ("Wi", "Wh", "b", "bias", "Wh_h̃", "state0", "h", "c") if one in tree]
    cell = Struct(f"Flux.{CELLS[kind]}", *([Function(function)] if kind == "rnn" else []), *fields)
    if version == "12":
        return Struct("Flux.Recur", cell, tree["state0"])
    if version == "8":
        states = (tree["h"], tree["c"]) if "c" in tree else tree["h"]
        return Struct("Flux.Recur", cell, states, states)
    return Struct("Flux." + CELLS[kind].removesuffix("Cell"), cell)


# Reading --------------------------------------------------------------------------------------------


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
        np.savez(path, **{f"enc.{one.replace('/', '.')}": np.asfortranarray(array) for one, array in p.items()})
    else:
        julia_files.jld2(path, inline=kind == "inline.jld2", model_state=tree)
    found = rc.load(path)
    ((layer, stack),) = found.layers.items()
    place = {"model.bson": "model/layers/1/cell", "named.npz": "enc"}.get(kind, "model_state/layers/1/cell")
    assert (found.format, layer) == ("flux", place)
    assert not found.warnings
    if "rnn" in name:
        told = kind == "model.bson"
        assert str(stack.cell.activation) == ("relu" if told else "tanh")
        assert [one.option for one in found.undecided] == ([] if told else ["nonlinearity"])
        assert_computes(stack, equation(p, sequence(), "relu" if told else "tanh"))
    else:
        assert not found.undecided
        assert_computes(stack, equation(p, sequence()))


@pytest.mark.parametrize("name", [name for name in FLUX if name.count("_0_") == 0])
def test_a_bias_that_is_false_is_none(name: str, tmp_path: Path) -> None:
    p, equation = FLUX[name]
    bias = "bias" if "bias" in p else "b"
    without = {key: array for key, array in p.items() if key != bias}
    path = julia_files.bson(tmp_path / "a.bson", model_state={"cell": {**without, bias: False}})
    assert only(path).first.biases == "none"
    assert_computes(only(path), equation(without, sequence()))
    path = julia_files.bson(tmp_path / "a.bson", model_state={"cell": {**without, bias: True}})
    with pytest.raises(rc.RefusedError, match="only false stands for none"):
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
    found = rc.load(path)
    assert_computes(found.layers["model/cell"], equation({**p, "h": other}, sequence()))
    assert len(found.warnings) == 2
    assert any("init that Flux.reset! goes back to" in warning for warning in found.warnings)


def test_a_function_that_is_not_known_is_refused_where_it_would_run(tmp_path: Path) -> None:
    p, _ = FLUX["flux.rnn"]
    path = julia_files.bson(tmp_path / "a.bson", model=flux_struct("flux.rnn", p, "Main.wavy"))
    assert str(only(path).cell.activation) == "wavy"
    with pytest.raises(rc.RefusedError, match="wavy"):
        rc.convert(path, tmp_path / "a.onnx")
    with pytest.raises(rc.UsageError, match="the file says"):
        rc.load(path, nonlinearity="relu")


def test_a_cell_of_an_unknown_version_is_told(tmp_path: Path) -> None:
    cell = Struct("Flux.LSTMCell", *(np.ones((2, 2)) for _ in range(6)))
    path = julia_files.bson(tmp_path / "a.bson", model=Struct("Flux.Recur", cell, np.ones(2)))
    found = rc.load(path, format="flux")
    assert not found.layers
    assert any("LSTMCell with 6 fields" in warning for warning in found.warnings)


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
LUX_EQUATIONS = {4: equations.lux_lstm, 3: equations.lux_gru, 1: equations.lux_rnn}


@pytest.mark.parametrize(("gates", "old", "states"), LUX)
@pytest.mark.parametrize("kind", ["a.bson", "a.jld2", "a.npz"])
def test_lux_computes_what_is_read(gates: int, old: bool, states: tuple[str, ...], kind: str, tmp_path: Path) -> None:
    p = lux_arrays(gates, old, states)
    path = tmp_path / kind
    tree = {"layer_1": p, "layer_2": {"weight": np.ones((2, UNITS)), "bias": np.ones(2)}}
    if kind == "a.npz":
        np.savez(path, **{f"layer_1/{name}": array for name, array in p.items()})
    else:
        {"a.bson": julia_files.bson, "a.jld2": julia_files.jld2}[kind](path, ps=tree)
    found = rc.load(path)
    ((layer, stack),) = found.layers.items()
    assert (found.format, layer.rpartition("/")[2]) == ("lux", "layer_1")
    truth = LUX_EQUATIONS[gates](p, sequence(), old=old)
    assert_computes(stack, truth)
    expected = ["nonlinearity"] if gates == 1 else []
    if gates == 1 and old and not states:
        expected.append("init_state")
        assert np.asarray(stack.first.arrays["initial_hidden", ""]).tolist() == [1] * UNITS
        zeros = only(path, init_state="zeros")
        assert ("initial_hidden", "") not in zeros.first.arrays
        assert_computes(zeros, equations.lux_rnn({**p, "hidden_state": np.zeros(UNITS)}, sequence(), old=True))
    assert [one.option for one in found.undecided] == expected


def test_an_rnn_without_biases_may_be_of_either_lux(tmp_path: Path) -> None:
    p = {name: array for name, array in lux_arrays(1, False).items() if "weight" in name}
    path = julia_files.bson(tmp_path / "a.bson", ps=p)
    assert [(one.option, one.assumed) for one in rc.load(path).undecided] == [
        ("nonlinearity", "tanh"), ("init_state", "zeros"),
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
    found = rc.load(path)
    x = sequence()
    first, second = (LUX_EQUATIONS[gates](p, one) for p, one in ((forward, x), (backward, x[::-1])))
    assert "merge_mode" in [one.option for one in found.undecided]
    assert_computes(found.layers["ps/layer_1"], np.concatenate([first, second[::-1]], axis=1))
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
    options: dict[str, object] = {}
    if form == "model.bson":
        value = Struct("AutoGrad.Param", w.reshape(1, 1, -1), None)
        rnn = Struct("Knet.Ops20.RNN", value, None, None, *sizes.values(), Struct("Core.Float64"), *[None] * 5)
        julia_files.bson(path, rnn=rnn)
    elif form == "model.jld2":
        julia_files.jld2(path, rnn={"w": {"value": w.reshape(1, 1, -1)}, **sizes})
    else:
        np.savez(path, w=w)
        said = {"tanh": "rnn_tanh", "relu": "rnn_relu"}.get(kind, kind)
        options = {"cell": said, "hidden_size": UNITS, "num_layers": layers, "bidirectional": both, "format": "knet"}
        options["input_mode"] = "skip" if skip else "linear"
    found = rc.load(path, **options)  # type: ignore[arg-type]
    (stack,) = found.layers.values()
    assert found.format == "knet" and not found.undecided and not found.warnings
    x = np.random.default_rng(1).standard_normal((6, inputs, 2))
    y = reference.run(stack, x.transpose(0, 2, 1)).y.transpose(0, 2, 1)
    assert np.abs(y - equations.knet(w, x, UNITS, kind, layers, both, skip)).max() < 1e-12
    out = tmp_path / "out.bson"
    said_again = {key: value for key, value in options.items() if key != "format"}
    rc.convert(path, out, target_format="knet", source_format="knet", **said_again)  # type: ignore[arg-type]
    tree = next(iter(julia_files.loaded(out).values()))
    assert {name: tree[name] for name in ("hiddenSize", "numLayers", "mode", "direction", "inputMode")} == {
        "hiddenSize": UNITS, "numLayers": layers, "mode": mode, "direction": int(both), "inputMode": int(skip),
    }  # fmt: skip
    np.testing.assert_array_equal(tree["w"], w)
    assert_same(only(out), stack)


def assert_same(found: Recurrent, made: Recurrent) -> None:
    for (_, _, one), (_, _, other) in zip(found.directions(), made.directions(), strict=True):
        assert one.arrays.keys() == other.arrays.keys()
        for key in one.arrays:
            np.testing.assert_array_equal(np.asarray(one.arrays[key]), np.asarray(other.arrays[key]))


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
    said = {"tanh": "rnn_tanh", "relu": "rnn_relu"}.get(kind, kind)
    stack = only(path, format="flux", cell=said, hidden_size=UNITS)
    assert_computes(stack, equations.cuda(w, sequence(), UNITS, kind))
    with pytest.raises(rc.UsageError, match="has no layer above the first"):
        rc.load(path, format="flux", cell=said, hidden_size=UNITS, num_layers=2)


# Writing --------------------------------------------------------------------------------------------


def stack(kind: str, parts: frozenset[str] = INPUT_BIAS, **more: Any) -> Recurrent:
    form = Form(kind, INPUTS, UNITS, parts=parts)
    made = random_stack(form, 3, "float64").but(name="enc")
    return made.but(**more) if more else made


def convert(source: Recurrent, path: Path, **options: object) -> rc.Summary:
    return rc.convert(checkpoint(path.parent / "source", source), path, **options)  # type: ignore[arg-type]
