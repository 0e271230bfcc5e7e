"""Training goes on in JAX and comes back: optax states, on trees of arrays as JAX code keeps them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import rnnconvert as rc
from rnnconvert.models.model import Model
from rnnconvert.models.prepare import CallerChoices, prepare
from rnnconvert.models.readers import model_of
from rnnconvert.models.report import Transplant
from rnnconvert.training.state import SLOTS
from tests.helpers.requirements import needed
from tests.helpers.trainers import (
    flat,
    jax_gru,
    jax_lstm,
    jax_step,
    keras_model,
    optax_optimizer,
    torch_model,
    torch_optimizer,
    torch_step,
    tree,
)

jax = needed("jax", "jax")
optax = needed("jax", "optax")
needed("torch", "torch")
pytestmark = pytest.mark.filterwarnings("ignore")

EXACT = 1e-12
NAMES = ("momentum", "nesterov", "adam", "adamw", "rmsprop", "centered", "adagrad")


@pytest.fixture(autouse=True)
def double() -> Iterator[None]:
    """Double precision, in these tests alone."""
    with jax.enable_x64(True):
        yield


def as_tree(like: Any, arrays: Any = None) -> Model:
    """A tree of JAX arrays with a live model's names, as a transplant sees it."""
    if arrays is not None:
        fill = model_of(like).fill
        assert fill is not None
        fill(arrays)
    return model_of(like).replace(framework="jax", title="a tree of JAX arrays", live=None)


def moved(target: Model, source: Model) -> tuple[Transplant, Any]:
    """The weights in the target's form, and the way that they went."""
    return prepare(target, source, CallerChoices())


def trained_torch(name: str, cell: str = "GRU") -> tuple[Any, Any]:
    model = torch_model(cell, 1)
    optimizer = torch_optimizer(model, name)
    for number in range(3):
        torch_step(model, optimizer, number)
    return model, optimizer


def far(actual: Any, expected: Any) -> float:
    return max(float(np.max(np.abs(np.asarray(actual[name]) - np.asarray(expected[name])))) for name in expected)


@pytest.mark.drawn(2)
@pytest.mark.parametrize("name", NAMES)
def test_from_torch_to_optax(name: str) -> None:
    source, theirs = trained_torch(name)
    report, arrays = moved(as_tree(torch_model("GRU", 2)), model_of(source))
    weights = tree(arrays, ".")
    optimizer = optax_optimizer(name)
    before = optimizer.init(weights)
    done = rc.load_optimizer_into(before, theirs, report)
    assert all(not np.any(leaf) for leaf in jax.tree_util.tree_leaves(before))
    weights, _ = jax_step(jax_gru, weights, optimizer, done.optimizer, 7)
    torch_step(source, theirs, 7)
    assert far(flat(weights, "."), model_of(source).arrays) <= EXACT


@pytest.mark.drawn(2)
@pytest.mark.parametrize("name", NAMES)
def test_from_optax_to_torch(name: str) -> None:
    like = torch_model("GRU", 1)
    weights, optimizer = tree(model_of(like).arrays, "."), optax_optimizer(name)
    state = optimizer.init(weights)
    for number in range(3):
        weights, state = jax_step(jax_gru, weights, optimizer, state, number)
    target = torch_model("GRU", 2)
    ours = torch_optimizer(target, name)
    taking = model_of(target)
    report, arrays = moved(taking, as_tree(like, flat(weights, ".")))
    assert taking.fill is not None
    taking.fill(arrays)
    rate = ours.param_groups[0]["lr"]
    done = rc.load_optimizer_into(ours, state, report, hyperparameters={"learning_rate": rate})
    assert any("does not hold" in note for note in done.notes)
    weights, state = jax_step(jax_gru, weights, optimizer, state, 7)
    torch_step(target, ours, 7)
    assert far(model_of(target).arrays, flat(weights, ".")) <= EXACT


@pytest.mark.drawn(1)
@pytest.mark.parametrize("name", ["adam", "momentum", "centered", "adamw"])
def test_a_bias_made_of_two_takes_twice_the_learning_rate(name: str) -> None:
    """What Keras has no place for, optax has: a rate of its own for one leaf."""
    source, theirs = trained_torch(name, "LSTM")
    report, arrays = moved(as_tree(keras_model("LSTM", 2)), model_of(source))
    weights = tree(arrays, "/")
    with pytest.raises(rc.TransplantError, match="twice the learning rate for it does"):
        rc.load_optimizer_into(optax_optimizer(name).init(weights), theirs, report)
    rate = 0.125 if name == "momentum" else 2**-6
    labels = jax.tree_util.tree_map_with_path(lambda path, leaf: "twice" if "rnn" in str(path) and "bias" in str(path) else "once", weights)
    twice = optax_optimizer(name, 2 * rate)
    if name == "adamw":
        # The decay of a sum is the sum of the decays: it is not doubled.
        twice = optax.adamw(2 * rate, b1=0.875, b2=1 - 2**-7, eps=2.0**-60, weight_decay=0.125)
    optimizer = optax.partition({"once": optax_optimizer(name), "twice": twice}, labels)
    done = rc.load_optimizer_into(optimizer.init(weights), theirs, report, accept=["biases"])
    state = done.optimizer
    for number in range(7, 10):
        weights, state = jax_step(jax_lstm, weights, optimizer, state, number)
        torch_step(source, theirs, number)
    _, expected = moved(as_tree(keras_model("LSTM", 2)), model_of(source))
    assert far(flat(weights, "/"), expected) <= EXACT


def test_hyperparameters_that_optax_keeps_are_compared_and_set() -> None:
    source, theirs = trained_torch("adam")
    report, arrays = moved(as_tree(torch_model("GRU", 2)), model_of(source))
    weights = tree(arrays, ".")
    optimizer = optax.inject_hyperparams(optax.adam)(learning_rate=0.5, b1=0.875, b2=1 - 2**-7, eps=2.0**-60)
    with pytest.raises(rc.TransplantError, match=r"learning_rate is 0.5 in the target and 0.015625"):
        rc.load_optimizer_into(optimizer.init(weights), theirs, report)
    done = rc.load_optimizer_into(optimizer.init(weights), theirs, report, set_hyperparameters=True)
    weights, _ = jax_step(jax_gru, weights, optimizer, done.optimizer, 7)
    torch_step(source, theirs, 7)
    assert far(flat(weights, "."), model_of(source).arrays) <= EXACT


def test_states_that_are_not_known_or_do_not_fit_are_refused() -> None:
    source, theirs = trained_torch("adam")
    report, arrays = moved(as_tree(torch_model("GRU", 2)), model_of(source))
    weights = tree(arrays, ".")
    with pytest.raises(rc.UsageError, match="ScaleByLionState belongs to an unknown optimizer"):
        rc.load_optimizer_into(optax.lion(1e-3).init(weights), theirs, report)
    with pytest.raises(rc.UsageError, match="a leaf 'other', but a tree of JAX arrays has no such array"):
        rc.load_optimizer_into(optax.adam(1e-3).init({"other": weights["emb"]["weight"]}), theirs, report)
    wrong = {**weights, "emb": {"weight": weights["emb"]["weight"][:3]}}
    with pytest.raises(rc.UsageError, match=r"first moment of 'emb.weight' has shape \(3, 3\), expected \(7, 3\)"):
        rc.load_optimizer_into(optax.adam(1e-3).init(wrong), theirs, report)
    with pytest.raises(rc.TransplantError, match="kind adam, but the target's is adagrad"):
        rc.load_optimizer_into(optax.adagrad(1e-3).init(weights), theirs, report)


def of_keras(layer: str, **options: Any) -> Any:
    """A Keras model of one recurrent layer, in double precision."""
    keras = needed("keras", "keras")
    keras.utils.set_random_seed(1)
    kind = getattr(keras.layers, layer)
    return keras.Sequential([keras.Input((5, 3), dtype="float64"), kind(4, return_sequences=True, dtype="float64", name="rnn", **options)])


def in_flax() -> tuple[Any, Any]:
    """Flax's LSTM: its parameters, and what they compute."""
    linen = needed("flax", "flax.linen")
    import jax.numpy as jnp

    model = linen.RNN(linen.OptimizedLSTMCell(4, param_dtype=jnp.float64))
    return model.init(jax.random.key(0), np.zeros((1, 5, 3))), model.apply


def in_haiku() -> tuple[Any, Any]:
    """Haiku's GRU, whose reset gate stands before the product."""
    haiku = needed("haiku", "haiku")

    def run(x: Any) -> Any:
        core = haiku.GRU(4)
        outputs, _ = haiku.dynamic_unroll(core, x, np.zeros((x.shape[0], 4)), time_major=False)
        return outputs

    model = haiku.without_apply_rng(haiku.transform(run))
    return model.init(jax.random.key(0), np.zeros((1, 5, 3))), model.apply


@pytest.mark.parametrize(
    ("layer", "options", "make", "collection"), [("LSTM", {}, in_flax, "params"), ("GRU", {"reset_after": False}, in_haiku, "")]
)
def test_from_keras_into_trees_of_flax_and_haiku(layer: str, options: Any, make: Any, collection: str) -> None:
    assert step_apart(layer, options, make, collection) <= EXACT


def test_a_square_that_is_negated_with_its_gate_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Haiku's GRU stores a gate negated; were its squares negated too, the next step would have no root."""
    monkeypatch.setitem(SLOTS["adam"], "second_moment", False)
    assert not step_apart("GRU", {"reset_after": False}, in_haiku, "") <= EXACT


def step_apart(layer: str, options: Any, make: Any, collection: str) -> float:
    """How far weights are apart after one more step, in Keras and in JAX."""
    keras = needed("keras", "keras")
    tensorflow = needed("keras", "tensorflow")
    source = of_keras(layer, **options)
    theirs = keras.optimizers.Adam(2**-6, beta_1=0.875, beta_2=1 - 2**-7, epsilon=2.0**-60)
    random = np.random.default_rng(0)
    batches = [(random.standard_normal((2, 5, 3)), random.standard_normal((2, 5, 4))) for _ in range(4)]

    def step(x: Any, y: Any) -> None:
        with tensorflow.GradientTape() as tape:
            loss = tensorflow.reduce_mean((source(x) - y) ** 2)
        theirs.apply(tape.gradient(loss, source.trainable_variables), source.trainable_variables)

    for x, y in batches[:3]:
        step(x, y)
    variables, apply = make()
    report = rc.load_into(variables, source)
    weights = report.model[collection] if collection else report.model
    optimizer = optax_optimizer("adam")
    done = rc.load_optimizer_into(optimizer.init(weights), theirs, report)
    assert len(done.filled) == len(jax.tree_util.tree_leaves(weights))
    assert not done.fresh
    x, y = batches[3]
    step(x, y)

    def loss(parameters: Any) -> Any:
        return ((apply({collection: parameters} if collection else parameters, x) - y) ** 2).mean()

    updates, _ = optimizer.update(jax.grad(loss)(weights), done.optimizer, weights)
    updated = optax.apply_updates(weights, updates)
    expected = rc.load_into(variables, source).model
    expected = expected[collection] if collection else expected
    apart = jax.tree_util.tree_map(lambda first, second: float(abs(first - second).max()), updated, expected)
    return float(np.max(jax.tree_util.tree_leaves(apart)))


def test_torch_grus_biases_in_flax() -> None:
    """Flax's GRU has two biases for the candidate alone."""
    torch = needed("torch", "torch")
    linen = needed("flax", "flax.linen")
    import jax.numpy as jnp

    source = torch.nn.GRU(3, 4, batch_first=True).double()
    theirs = torch_optimizer(source, "adam")
    variables = linen.RNN(linen.GRUCell(4, param_dtype=jnp.float64)).init(jax.random.key(0), np.zeros((1, 5, 3)))

    def step() -> None:
        theirs.zero_grad()
        (source(torch.ones(2, 5, 3, dtype=torch.float64))[0] ** 2).mean().backward()
        theirs.step()

    step()
    report = rc.load_into(variables, source)
    state = optax_optimizer("adam").init(report.model["params"])
    with pytest.raises(rc.TransplantError, match=r"ir/bias.*iz/bias.*of the target is the sum of two biases"):
        rc.load_optimizer_into(state, theirs, report)
    done = rc.load_optimizer_into(state, theirs, report, accept=["biases"])
    mu = flat(done.optimizer[0].mu, "/")
    moments = theirs.state[source.bias_ih_l0]["exp_avg"].numpy(), theirs.state[source.bias_hh_l0]["exp_avg"].numpy()
    ends = {"/".join(name.split("/")[-2:]): array for name, array in mu.items()}
    assert np.array_equal(ends["ir/bias"], moments[0][:4])
    assert np.array_equal(ends["iz/bias"], moments[0][4:8])
    assert np.array_equal(ends["hn/bias"], moments[1][8:])


def test_an_nnx_optimizer_takes_what_its_state_takes() -> None:
    """The next step of Flax's own optimizer is that of torch's."""
    nnx, torch = needed("flax", "flax.nnx"), needed("torch", "torch")
    x = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    theirs = torch.nn.Sequential(torch.nn.Linear(3, 4))
    adam = torch.optim.Adam(theirs.parameters(), lr=0.01)

    def step() -> None:
        adam.zero_grad()
        (theirs(torch.from_numpy(x)) ** 2).sum().backward()
        adam.step()

    for _ in range(3):
        step()

    class Ours(nnx.Module):
        def __init__(self) -> None:
            self.a = nnx.Linear(3, 4, rngs=nnx.Rngs(0))

    ours = Ours()
    report = rc.load_into(ours, theirs, mapping={"a": "0"})
    optimizer = nnx.Optimizer(ours, optax.adam(0.01), wrt=nnx.Param)
    filled = rc.load_optimizer_into(optimizer, adam, report).optimizer
    assert filled is optimizer and int(optimizer.step[...]) == 3
    step()
    optimizer.update(ours, nnx.grad(lambda model: (model.a(x) ** 2).sum())(ours))
    np.testing.assert_allclose(np.asarray(ours.a.kernel[...]), theirs[0].weight.detach().numpy().T, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(np.asarray(ours.a.bias[...]), theirs[0].bias.detach().numpy(), rtol=1e-5, atol=1e-6)
