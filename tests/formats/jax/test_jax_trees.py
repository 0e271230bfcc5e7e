"""Trees of JAX's arrays, by name and back: the kind of tree stays, and so does the tree given."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rnnconvert.core.errors import UsageError
from rnnconvert.formats.jax.arrays import named_arrays, with_arrays
from rnnconvert.running.child import missing
from tests.helpers.requirements import need


def packages(*names: str) -> None:
    """These packages are needed."""
    for name in names:
        need(name, missing([name]))


def nnx_module() -> Any:
    """A module with a list in it, a layer that it has twice, random keys, a function and a plain array."""
    packages("jax", "flax")
    import jax
    from flax import nnx

    class Model(nnx.Module):
        def __init__(self) -> None:
            self.cell = nnx.GRUCell(4, 2, rngs=nnx.Rngs(0))
            self.heads = nnx.List([nnx.Linear(2, 3, rngs=nnx.Rngs(1))])
            self.tied = self.heads[0]
            self.dropout = nnx.Dropout(0.5, rngs=nnx.Rngs(2))
            self.function = jax.numpy.tanh
            self.plain = jax.numpy.ones(3)

    return Model()


def equinox_module() -> Any:
    """A module with a list of cells, a function and numbers that are no arrays."""
    packages("jax", "equinox")
    import equinox as eqx
    import jax

    class Model(eqx.Module):
        cells: list[Any]
        dropout: eqx.nn.Dropout
        function: Any

        def __init__(self) -> None:
            self.cells = [eqx.nn.GRUCell(4, 2, key=jax.random.key(0))]
            self.dropout = eqx.nn.Dropout(0.5)
            self.function = jax.numpy.tanh

    return Model()


def haiku_parameters() -> Any:
    """What a Haiku model with names of its own has."""
    packages("jax", "haiku")
    import haiku as hk
    import jax

    def model(x: Any) -> Any:
        core = hk.DeepRNN([hk.nets.MLP([5]), hk.LSTM(2)])
        return hk.dynamic_unroll(core, x, core.initial_state(1))

    return hk.transform(model).init(jax.random.PRNGKey(0), jax.numpy.zeros((3, 1, 4)))


def linen_variables() -> Any:
    """A frozen tree with a boxed array."""
    packages("jax", "flax")
    import flax.linen as nn
    import jax
    from flax.core import freeze

    kernel = nn.with_partitioning(nn.initializers.ones, ("a", None))
    return freeze(nn.Dense(3, kernel_init=kernel).init(jax.random.key(0), jax.numpy.ones((1, 2))))


TREES = {
    "nnx module": (nnx_module, {"cell/dense_h/kernel", "cell/dense_i/bias", "cell/dense_i/kernel", "dropout/rngs/count",
                                "heads/0/bias", "heads/0/kernel", "plain"}),
    "equinox": (equinox_module, {f"cells/0/{name}" for name in ("weight_ih", "weight_hh", "bias", "bias_n")}),
    "haiku": (haiku_parameters, {"lstm/linear/w", "lstm/linear/b", "mlp/~/linear_0/w", "mlp/~/linear_0/b"}),
    "linen": (linen_variables, {"params/kernel", "params/bias"}),
}  # fmt: skip


@pytest.mark.parametrize("kind", TREES)
def test_every_array_has_a_path(kind: str) -> None:
    make, paths = TREES[kind]
    arrays = named_arrays(make())
    assert set(arrays) == paths
    assert all(isinstance(array, np.ndarray) for array in arrays.values())


@pytest.mark.parametrize("kind", TREES)
def test_arrays_are_replaced_in_a_new_tree(kind: str) -> None:
    tree = TREES[kind][0]()
    before = {path: array.copy() for path, array in named_arrays(tree).items()}
    new = {path: np.full(array.shape, 7 + index) for index, (path, array) in enumerate(before.items())}
    changed = with_arrays(tree, new)
    assert type(changed) is type(tree)
    after = named_arrays(changed)
    for path, array in before.items():
        assert after[path].dtype == array.dtype
        np.testing.assert_array_equal(after[path], new[path])
        np.testing.assert_array_equal(named_arrays(tree)[path], array, f"{path} was written to")
    unchanged = with_arrays(tree, {})
    assert {path: array.tobytes() for path, array in named_arrays(unchanged).items()} == {
        path: array.tobytes() for path, array in before.items()
    }


def test_what_a_module_has_twice_stays_one() -> None:
    changed = with_arrays(nnx_module(), {"heads/0/bias": np.arange(3.0)})
    assert changed.tied is changed.heads[0]
    np.testing.assert_array_equal(changed.tied.bias[...], [0, 1, 2])


def test_a_state_stays_a_state() -> None:
    from_module = nnx_module()
    from flax import nnx

    changed = with_arrays(nnx.state(from_module), {"heads/0/bias": np.arange(3.0)})
    assert isinstance(changed, nnx.State)
    assert isinstance(changed["heads"][0]["bias"], nnx.Param)
    np.testing.assert_array_equal(named_arrays(changed)["heads/0/bias"], [0, 1, 2])


def test_notes_on_an_array_stay() -> None:
    changed = with_arrays(linen_variables(), {"params/kernel": np.zeros((2, 3))})
    assert changed["params"]["kernel"].names == ("a", None)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "int32"])
def test_type_and_place_stay(dtype: str) -> None:
    packages("jax")
    import jax

    with jax.enable_x64(True):
        free = jax.numpy.ones(2, dtype)
        tied = jax.device_put(free, jax.devices()[0])
    replaced = with_arrays({"free": free, "tied": tied, "numpy": np.ones(2)}, {"free": [2, 3], "tied": [2, 3]})
    for name, old in (("free", free), ("tied", tied)):
        assert replaced[name].dtype == dtype
        assert replaced[name].sharding == old.sharding
        assert replaced[name].committed == old.committed
    assert isinstance(replaced["numpy"], np.ndarray)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"c": np.ones(2)}, "this tree has no array 'c'. It has 'a', 'b'"),
        ({"a": np.ones(3)}, r"'a' has shape \(2,\), not \(3,\)"),
        ({"a": [1e99, 1]}, "'a' holds float32, which is too small for these values"),
        ({"b": [300, 1]}, "'b' holds int8, which is too small for these values"),
        ({"b": [0.5, 1]}, "'b' holds int8, which cannot hold float64"),
        ({"a": [1j, 1]}, "'a' holds float32, which cannot hold complex128"),
        ({"a": ["x", "y"]}, "'a' holds float32, which cannot hold .*"),
        ({"key": np.ones(())}, "no array 'key'"),
    ],
)
def test_what_does_not_fit_is_said(arrays: dict[str, Any], message: str) -> None:
    packages("jax")
    import jax

    tree = {"a": jax.numpy.ones(2), "b": np.ones(2, np.int8), "key": jax.random.key(0)}
    with pytest.raises(UsageError, match=message):
        with_arrays(tree, arrays)


def test_two_arrays_of_one_path_are_refused() -> None:
    packages("jax")
    with pytest.raises(UsageError, match="two arrays of this tree have the path 'a/b'"):
        named_arrays({"a/b": np.ones(1), "a": {"b": np.ones(1)}})
