"""Cells found in whole models of Flax, Haiku and Equinox, and made for them."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

import rnnconvert as rc
from rnnconvert.core import reference
from rnnconvert.core.cells import Kind
from rnnconvert.core.weights import Recurrent
from rnnconvert.language.layout import Sizes
from tests.formats.jax.test_jax_trees import packages
from tests.helpers.stacks import BOTH, PLAIN, random_stack

INPUT = PLAIN | {"input_bias"}
STEPS, BATCH = 4, 2


def stack(kind: Kind = "lstm", dtype: str = "float32", parts: Any = INPUT, **cell: Any) -> Recurrent:
    """A layer of 3 inputs and 4 units."""
    described = rc.Cell(kind, **{"reset_after": True if kind == "gru" else None, **cell})
    return random_stack(Sizes(kind, 3, 4, parts=parts), 7, dtype, described)


def bits(layer: Recurrent) -> dict[tuple[str, str], bytes]:
    """Every array of a layer, as bytes."""
    return {key: np.ascontiguousarray(array).tobytes() for key, array in layer.first.arrays.items()}


def x(width: int = 3) -> Any:
    return np.random.default_rng(1).uniform(-1, 1, (BATCH, STEPS, width)).astype(np.float32)


def linen_model() -> Any:
    """A bidirectional GRU, an LSTM, a plain cell and a head: the model, and its variables."""
    packages("jax", "flax")
    import jax
    from flax import linen as nn

    class Model(nn.Module):
        @nn.compact
        def __call__(self, x: Any) -> Any:
            y = nn.Bidirectional(nn.RNN(nn.GRUCell(4)), nn.RNN(nn.GRUCell(4)), name="both")(x)
            y = nn.RNN(nn.OptimizedLSTMCell(5), name="lstm")(y)
            y = nn.RNN(nn.MGUCell(4), name="mgu")(y)
            return nn.Dense(2)(nn.RNN(nn.SimpleCell(3), name="plain")(y))

    model = Model()
    return model, model.init(jax.random.key(0), x())


def test_every_cell_of_a_linen_model_is_found() -> None:
    _, variables = linen_model()
    with pytest.warns(rc.AssumptionWarning, match="nonlinearity=tanh is assumed"):
        rc.from_jax(variables)
    layers = rc.from_jax(variables, nonlinearity="tanh")
    assert {path.removeprefix("params/"): str(layer.cell.kind) for path, layer in layers.items()} == {
        "GRUCell_0": "gru", "GRUCell_1": "gru", "OptimizedLSTMCell_0": "lstm", "MGUCell_0": "gru", "SimpleCell_0": "rnn",
    }  # fmt: skip
    assert all(layer.name == path for path, layer in layers.items())
    from flax.core import freeze

    assert list(rc.from_jax(freeze(variables)["params"], nonlinearity="tanh")) == [path.removeprefix("params/") for path in layers]


def test_cells_that_are_found_compute_what_the_model_computes() -> None:
    packages("jax", "flax")
    import jax
    from flax import linen as nn

    model = nn.RNN(nn.GRUCell(4))
    variables = model.init(jax.random.key(0), x())
    (layer,) = rc.from_jax(variables).values()
    y = np.asarray(model.apply(variables, x()))
    np.testing.assert_allclose(y.swapaxes(0, 1), reference.run(layer, x().swapaxes(0, 1)).y, rtol=0, atol=3e-6)


def nnx_model() -> Any:
    packages("jax", "flax")
    import jax
    from flax import nnx

    class Model(nnx.Module):
        def __init__(self) -> None:
            rngs = nnx.Rngs(0)
            self.both = nnx.Bidirectional(nnx.RNN(nnx.GRUCell(3, 4, rngs=rngs)), nnx.RNN(nnx.GRUCell(3, 4, rngs=rngs)))
            plain = nnx.SimpleCell(4, 5, activation_fn=jax.nn.relu, rngs=rngs)
            self.cells = nnx.List([nnx.LSTMCell(8, 4, rngs=rngs), nnx.OptimizedLSTMCell(4, 4, rngs=rngs), plain])
            self.head = nnx.Linear(5, 2, rngs=rngs)

    return Model()


def test_every_cell_of_an_nnx_model_is_found_with_its_functions() -> None:
    model = nnx_model()
    layers = rc.from_jax(model)
    assert {path: layer.cell.kind for path, layer in layers.items()} == {
        "both/backward_rnn/cell": "gru", "both/forward_rnn/cell": "gru", "cells/0": "lstm", "cells/1": "lstm",
        "cells/2": "rnn",
    }  # fmt: skip
    assert layers["cells/2"].cell.activation.name == "relu"
    from flax import nnx

    state = nnx.state(model)
    with pytest.warns(rc.AssumptionWarning, match="cells/2: nonlinearity=tanh is assumed"):
        read = rc.from_jax(state)
    assert read.keys() == layers.keys() and read["cells/2"].cell.activation.name == "tanh"
    assert rc.from_jax(state, nonlinearity="relu")["cells/2"].cell.activation.name == "relu"


def test_what_an_nnx_module_computes_otherwise_is_refused() -> None:
    packages("jax", "flax")
    import jax
    from flax import nnx

    def module(**options: Any) -> Any:
        return nnx.SimpleCell(3, 4, rngs=nnx.Rngs(0), **options)

    with pytest.raises(rc.RefusedError, match="residual"):
        rc.from_jax(module(residual=True))
    with pytest.raises(rc.RefusedError, match="the function sin"):
        rc.from_jax(module(activation_fn=jax.numpy.sin))
    hard = nnx.LSTMCell(3, 4, gate_fn=jax.nn.hard_sigmoid, activation_fn=jax.nn.soft_sign, rngs=nnx.Rngs(0))
    cell = rc.from_jax(hard)[""].cell
    assert (str(cell.gate_activation), cell.activation.name) == ("hard_sigmoid(0.166666667, 0.5)", "softsign")
    assert cell.output_activation == cell.activation

    class Custom(nnx.GRUCell):
        """A cell whose equations may be any."""

    with pytest.raises(rc.UsageError, match="is a Custom, whose equations are unknown"):
        rc.from_jax(Custom(3, 4, rngs=nnx.Rngs(0)))


def test_every_cell_of_an_equinox_model_is_found() -> None:
    packages("jax", "equinox")
    import equinox as eqx
    import jax

    class Model(eqx.Module):
        cells: list[Any]
        head: Any

        def __init__(self) -> None:
            first, two, three = jax.random.split(jax.random.key(0), 3)
            self.cells = [eqx.nn.GRUCell(3, 4, key=first), eqx.nn.LSTMCell(4, 4, use_bias=False, key=two)]
            self.head = eqx.nn.Linear(4, 2, key=three)

    layers = rc.from_jax(Model())
    assert {path: layer.first.biases for path, layer in layers.items()} == {"cells/0": "both", "cells/1": "none"}
    assert not layers["cells/0"].gates["r"].recurrent_bias.any()  # type: ignore[union-attr]


def haiku_model(**names: str) -> Any:
    packages("jax", "haiku")
    import haiku as hk
    import jax

    def model(x: Any) -> Any:
        cells = [hk.nets.MLP([5]), hk.LSTM(3, **names), hk.GRU(4), hk.VanillaRNN(2)]
        core = hk.DeepRNN(cells)
        return hk.dynamic_unroll(core, x, core.initial_state(BATCH), time_major=False)[0]

    transformed = hk.without_apply_rng(hk.transform(model))
    return transformed, transformed.init(jax.random.PRNGKey(0), x())


def test_every_cell_of_a_haiku_model_is_found() -> None:
    _, parameters = haiku_model()
    layers = rc.from_jax(parameters)
    assert {path: layer.cell.describe() for path, layer in layers.items()} == {
        "gru": [], "lstm": ["+1 added to gate f at run time"], "vanilla_rnn": ["candidate through relu"],
    }  # fmt: skip


def test_a_haiku_lstm_of_another_name_is_asked_for() -> None:
    _, parameters = haiku_model(name="encoder")
    assert "encoder" not in rc.from_jax(parameters)
    assert rc.from_jax(parameters, cells={"encoder": "haiku.lstm"})["encoder"].hidden_size == 3
    only = {"encoder/linear": parameters["encoder/linear"]}
    with pytest.raises(rc.UsageError, match="'encoder' may be a Haiku LSTM of another name: confirm with cells="):
        rc.from_jax(only)
    assert list(rc.from_jax(only, cells={"encoder": "haiku.lstm"})) == ["encoder"]


def test_a_linear_layer_at_the_root_is_no_cell() -> None:
    packages("jax")
    with pytest.raises(rc.UsageError, match="no recurrent cell of flax, nnx, haiku, equinox among linear/b, linear/w"):
        rc.from_jax({"linear": {"w": np.ones((7, 8)), "b": np.ones(8)}})


ASKED: list[tuple[dict[str, Any], str]] = [
    ({"a": {"w_i": np.ones((3, 12)), "w_h": np.ones((4, 12)), "b": np.ones(11)}}, "do not fit together: 'b' has shape"),
    ({"a": {"w_i": np.ones((3, 12)), "w_h": np.ones((4, 12)), "b": np.ones(12), "c": np.ones(2)}}, "plus 'a/c'"),
    ({"weight_ih": np.ones((16, 3)), "weight_hh": np.ones((16, 4)), "bias_ih": np.ones(16), "bias_hh": np.ones(16)},
     r"arrays of torch.nn.LSTMCell. rnnconvert.unpack"),
    ({"a": {"w_i": np.ones((3, 12), np.int8), "w_h": np.ones((4, 12), np.int8), "b": np.ones(12, np.int8)}}, "Dequantize"),
    ({}, "this dict has no arrays"),
]  # fmt: skip


@pytest.mark.parametrize(("tree", "message"), ASKED, ids=lambda value: value if isinstance(value, str) else "")
def test_what_is_not_sure_is_asked(tree: Any, message: str) -> None:
    packages("jax")
    with pytest.raises(rc.UsageError, match=message):
        rc.from_jax(tree)


def test_the_caller_can_say_it() -> None:
    packages("jax")
    gru = {"w_i": np.ones((3, 12)), "w_h": np.ones((4, 12)), "b": np.ones(12)}
    tree = {"a": {**gru, "c": np.ones(2)}, "b": gru}
    assert list(rc.from_jax(tree, cells={"a": None})) == ["b"]
    assert list(rc.from_jax(tree, cells={"a": "haiku.gru"})) == ["a", "b"]
    wrong: list[tuple[dict[str, str | None], str]] = [
        ({"a": None, "c": "haiku.gru"}, "'c' is not a haiku.GRU: there is no 'w_i'"),
        ({"a": "haiku.cnn"}, "Unknown cell"),
    ]
    for cells, text in wrong:
        with pytest.raises(rc.UsageError, match=text):
            rc.from_jax(tree, cells=cells)
    with pytest.raises(rc.UsageError, match="Unknown framework 'torch'"):
        rc.from_jax(tree, "torch")


def test_an_optimisers_numbers_are_no_cells() -> None:
    packages("jax", "flax")
    _, variables = linen_model()
    moments = {"opt_state": [{"mu": variables["params"]}], "params": variables["params"]}
    assert rc.from_jax(moments, nonlinearity="tanh").keys() == rc.from_jax(variables, nonlinearity="tanh").keys()


FRAMEWORKS = ["flax", "nnx", "nnx.optimized_lstm", "haiku", "equinox"]


@pytest.mark.drawn(4)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_cells_come_and_go(framework: str, dtype: str) -> None:
    packages("jax", *{"nnx": ["flax"]}.get(framework.partition(".")[0], [framework.partition(".")[0]]))
    layer = stack("lstm", dtype, constants={"f": 1.0} if framework == "haiku" else {})
    (read,) = rc.from_jax(rc.to_jax(layer, framework)).values()
    assert read.dtype == layer.dtype
    assert bits(read) == bits(layer)
    assert rc.to_jax(layer, framework, "float32") is not None


def test_a_cell_that_was_made_runs_in_its_model() -> None:
    packages("jax", "flax")
    from flax import linen as nn
    from flax import nnx

    layer = stack("gru", parts=INPUT)
    expected = reference.run(layer, x().swapaxes(0, 1)).y.swapaxes(0, 1)
    y = nn.RNN(nn.GRUCell(4)).apply({"params": {"cell": rc.to_jax(layer, "flax")}}, x())
    np.testing.assert_allclose(np.asarray(y), expected, rtol=0, atol=3e-6)
    y = nnx.RNN(rc.to_jax(layer, "nnx"), rngs=nnx.Rngs(0))(x())
    np.testing.assert_allclose(np.asarray(y), expected, rtol=0, atol=3e-6)


def test_what_parameters_cannot_say_is_asked() -> None:
    packages("jax", "flax", "haiku")
    relu = stack("rnn", activation=rc.Activation("relu"))
    with pytest.raises(rc.UsageError, match="nonlinearity='relu'"):
        rc.to_jax(relu, "flax")
    assert set(rc.to_jax(relu, "flax", nonlinearity="relu")) == {"i", "h"}
    module = rc.to_jax(relu, "nnx")  # a module, which has its function
    assert rc.from_jax(module)[""].cell.activation.name == "relu"
    assert rc.from_jax(module, nonlinearity="relu")[""].cell.activation.name == "relu"
    with pytest.raises(rc.UsageError, match="contradicts the module SimpleCell"):
        rc.from_jax(module, nonlinearity="tanh")
    assert rc.from_jax(module, nonlinearity="tanh!")[""].cell.activation.name == "tanh"
    assert set(rc.to_jax(relu, "haiku", name="mine")) == {"mine/linear", "mine/linear_1"}
    with pytest.raises(rc.UsageError, match="Unknown framework 'torch'"):
        rc.to_jax(relu, "torch")
    with pytest.raises(rc.UsageError, match="split_stack"):
        rc.to_jax(random_stack(Sizes("lstm", 3, 4, 2, parts=INPUT), 1), "nnx")
    with pytest.raises(rc.RefusedError, match="b_r"):
        rc.to_jax(stack("gru", parts=BOTH), "nnx")


def test_from_pytorch_to_flax() -> None:
    packages("jax", "flax", "torch")
    import torch
    from flax import linen as nn

    torch.manual_seed(0)
    module = torch.nn.LSTM(3, 4, batch_first=True)
    parameters = rc.to_jax(rc.from_torch(module), "flax")
    y = nn.RNN(nn.LSTMCell(4)).apply({"params": {"cell": parameters}}, x())
    np.testing.assert_allclose(np.asarray(y), module(torch.from_numpy(x()))[0].detach().numpy(), rtol=0, atol=3e-6)


@pytest.mark.parametrize("name", ["flax", "nnx", "haiku", "equinox"])
def test_arrays_by_name_come_and_go(name: str) -> None:
    layer = stack("lstm", constants={"f": 1.0} if name == "haiku" else {})
    arrays = rc.pack(layer, name)
    assert isinstance(arrays, dict)
    unpacked = rc.unpack(arrays, name)
    assert bits(unpacked) == bits(layer) and unpacked.cell == layer.cell


def test_what_is_not_installed_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    layer = stack()
    for package, framework in (("jax", "flax"), ("jax", "haiku"), ("equinox", "equinox"), ("flax", "nnx")):
        with monkeypatch.context() as absent:
            absent.setitem(sys.modules, package, None)
            with pytest.raises(rc.MissingPackageError, match=f"{package} is not installed"):
                rc.to_jax(layer, framework)
    monkeypatch.setitem(sys.modules, "jax", None)
    with pytest.raises(rc.MissingPackageError, match="jax is not installed"):
        rc.from_jax({"a": np.ones(2)})


@pytest.mark.parametrize("keep_order", [True, False])
def test_an_nnx_rnn_that_reads_from_the_end_is_read_so(keep_order: bool) -> None:
    packages("jax", "flax")
    import jax.numpy as jnp
    from flax import nnx

    class Model(nnx.Module):
        def __init__(self) -> None:
            cells = [nnx.GRUCell(3, 4, rngs=nnx.Rngs(seed)) for seed in range(3)]
            self.back = nnx.RNN(cells[0], reverse=True, keep_order=keep_order)
            self.both = nnx.Bidirectional(nnx.RNN(cells[1]), nnx.RNN(cells[2]))

    model = Model()
    layers = rc.from_jax(model)
    x = np.random.default_rng(1).uniform(-1, 1, (5, 2, 3)).astype(np.float32)
    inputs = jnp.asarray(x.swapaxes(0, 1))
    expected = np.asarray(model.back(inputs)).swapaxes(0, 1)
    np.testing.assert_allclose(reference.run(layers["back/cell"], x).y, expected, rtol=0, atol=1e-6)
    halves = [layers[f"both/{way}_rnn/cell"] for way in ("forward", "backward")]
    y = np.concatenate([reference.run(half, x).y for half in halves], -1)
    np.testing.assert_allclose(y, np.asarray(model.both(inputs)).swapaxes(0, 1), rtol=0, atol=1e-6)
