"""The cells of Flax (linen and nnx), Haiku and Equinox: how each library's own class is recognised, made and unrolled.

Sources, each class's __call__: flax/linen/recurrent.py and flax/nnx/nn/recurrent.py (0.12.8), haiku/_src/recurrent.py
(0.0.17), equinox/nn/_rnn.py (0.13.8).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

Arrays = Mapping[str, Any]


class LibraryCell(NamedTuple):
    """A cell of a library.

    lstm   whether it has a cell state
    asked  the shapes of the parameters that the library's class has, by their paths under the cell's
    unroll from parameters, x (time, batch, in), states (h, c) or (h,) or () for the library's default, and lengths or
           None: to y (time, batch, hidden) and the final states, as the initial ones
    """

    lstm: bool
    asked: Mapping[str, tuple[int, ...]]
    unroll: Callable[..., tuple[Any, tuple[Any, ...]]]


class CellLibrary(NamedTuple):
    """How a library's cells are recognised and made.

    package  that is imported
    suffix   the ending of a file that is made for it
    supports the cells and features that it runs, in words
    lengths  whether its loop over the steps knows sequences of many lengths
    sizes  from a path and the arrays under it: the class's name, input size and hidden size, or None if it is not a cell
    make   from these three, the arrays, and what they do not say: the cell
    """

    package: str
    suffix: str
    supports: str
    lengths: bool
    sizes: Callable[[str, Arrays], tuple[str, int, int] | None]
    make: Callable[..., LibraryCell]


def _nested(arrays: Arrays) -> dict[str, Any]:
    """Return arrays by path as nested dictionaries."""
    tree: dict[str, Any] = {}
    for path, array in arrays.items():
        *above, last = path.split("/")
        node = tree
        for word in above:
            node = node.setdefault(word, {})
        node[last] = array
    return tree


def _shapes(tree: Any) -> dict[str, tuple[int, ...]]:
    return {path: tuple(value.shape) for path, value in _flat(tree)}


def _flat(tree: Any, above: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in tree.items():
        path = f"{above}/{key}" if above else str(key)
        yield from _flat(value, path) if isinstance(value, Mapping) else [(path, value)]


def _options(name: str, how: Mapping[str, str]) -> dict[str, Any]:
    """Return the arguments of a Flax class other than its sizes. Raises NotImplementedError for options that cannot be chosen."""
    import jax

    functions = {"tanh": jax.numpy.tanh, "relu": jax.nn.relu}
    if not how:
        return {}
    if name != "SimpleCell" or set(how) != {"nonlinearity"} or how["nonlinearity"] not in functions:
        raise NotImplementedError(f"{', '.join(f'{key}={how[key]}' for key in how)} cannot be chosen for a {name}")
    return {"activation_fn": functions[how["nonlinearity"]]}


def _linen_sizes(path: str, arrays: Arrays) -> tuple[str, int, int] | None:
    # An LSTM has if/kernel, too: the order tells them.
    first = {"ii/kernel": "LSTMCell", "ir/kernel": "GRUCell", "if/kernel": "MGUCell", "i/kernel": "SimpleCell"}
    name = next((name for name in first if name in arrays), None)
    return None if name is None else (first[name], *arrays[name].shape[-2:])


def _linen(name: str, width: int, hidden: int, arrays: Arrays, how: Mapping[str, str]) -> LibraryCell:
    import jax
    from flax import linen as nn

    kind = next(iter(arrays.values())).dtype
    # Only shapes are asked, and from JAX 0.11 on the usual initial values of a recurrent matrix are none of bfloat16.
    zeros = {"kernel_init": nn.initializers.zeros, "recurrent_kernel_init": nn.initializers.zeros}
    cell = getattr(nn, name)(features=hidden, param_dtype=kind, **zeros, **_options(name, how))
    rnn = nn.RNN(cell, time_major=True, return_carry=True)
    asked = jax.eval_shape(rnn.init, jax.random.PRNGKey(0), jax.ShapeDtypeStruct((1, 1, width), kind))

    def unroll(weights: Arrays, x: Any, states: tuple[Any, ...], lengths: Any) -> tuple[Any, tuple[Any, ...]]:
        variables = {"params": {"cell": _nested(weights)}}
        return _turned(lambda carry: rnn.apply(variables, x, initial_carry=carry, seq_lengths=lengths), states)

    return LibraryCell("LSTM" in name, _shapes(asked["params"]["cell"]), unroll)


def _turned(loop: Callable[[Any], Any], states: tuple[Any, ...]) -> tuple[Any, tuple[Any, ...]]:
    """Reorder the results of Flax's loop: it gives the carry first, and an LSTM's carry is (c, h)."""
    begins = states[::-1] if len(states) == 2 else next(iter(states), None)
    carry, y = loop(begins)
    return y, tuple(carry)[::-1] if isinstance(carry, tuple) else (carry,)


def _nnx_sizes(path: str, arrays: Arrays) -> tuple[str, int, int] | None:
    if "ii/kernel" in arrays:
        return "LSTMCell", *arrays["ii/kernel"].shape[-2:]
    if not {"dense_i/kernel", "dense_h/kernel"} <= set(arrays):
        return None
    hidden, rows = arrays["dense_h/kernel"].shape[-2:]
    name = {4: "OptimizedLSTMCell", 3: "GRUCell", 1: "SimpleCell"}.get(rows // max(1, hidden))
    return None if name is None else (name, arrays["dense_i/kernel"].shape[0], hidden)


def _nnx(name: str, width: int, hidden: int, arrays: Arrays, how: Mapping[str, str]) -> LibraryCell:
    import jax
    from flax import nnx

    kind = next(iter(arrays.values())).dtype
    zeros = {"kernel_init": nnx.initializers.zeros, "recurrent_kernel_init": nnx.initializers.zeros}
    # SimpleCell's own dtype is float32, whatever its parameters are; None takes theirs, as the other cells do.
    sizes = {"dtype": None, "param_dtype": kind, "rngs": nnx.Rngs(0)}
    cell = getattr(nnx, name)(width, hidden, **sizes, **zeros, **_options(name, how))
    definition, parameters, rest = nnx.split(cell, nnx.Param, ...)
    places = [("/".join(map(str, path)), path, variable) for path, variable in nnx.to_flat_state(parameters)]

    def unroll(weights: Arrays, x: Any, states: tuple[Any, ...], lengths: Any) -> tuple[Any, tuple[Any, ...]]:
        parameter_state = nnx.from_flat_state([(path, variable.replace(weights[key])) for key, path, variable in places])
        rnn = nnx.RNN(nnx.merge(definition, parameter_state, rest), time_major=True, return_carry=True)
        return _turned(lambda carry: rnn(x, initial_carry=carry, seq_lengths=lengths), states)

    return LibraryCell("LSTM" in name, {key: tuple(jax.numpy.shape(variable[...])) for key, _, variable in places}, unroll)


def _haiku_sizes(path: str, arrays: Arrays) -> tuple[str, int, int] | None:
    # An LSTM's arrays and a VanillaRNN's are named as a linear layer's: Haiku's own name of the module tells them.
    called = path.rpartition("/")[2]
    if {"w_i", "w_h"} <= set(arrays):
        return "GRU", arrays["w_i"].shape[0], arrays["w_h"].shape[0]
    if "linear/w" not in arrays:
        return None
    rows, columns = arrays["linear/w"].shape[-2:]
    if called.startswith("lstm"):
        return "LSTM", rows - columns // 4, columns // 4
    return ("VanillaRNN", rows, columns) if called.startswith("vanilla_rnn") else None


def _haiku(name: str, width: int, hidden: int, arrays: Arrays, how: Mapping[str, str]) -> LibraryCell:
    import haiku as hk
    import jax

    if how:
        raise NotImplementedError(f"{', '.join(f'{key}={how[key]}' for key in how)} cannot be chosen for Haiku's {name}")
    kind = next(iter(arrays.values())).dtype
    options = {"double_bias": "linear_1/b" in arrays} if name == "VanillaRNN" else {}

    def loop(x: Any, states: tuple[Any, ...]) -> Any:
        core = getattr(hk, name)(hidden, name="own", **options)
        if len(states) == 2:
            state = hk.LSTMState(*states)
        elif states:
            state = states[0]
        else:
            state = None
        if state is None:
            # Haiku's zeros are float32, whatever it is given.
            state = jax.tree.map(lambda zero: zero.astype(kind), core.initial_state(x.shape[1]))
        return hk.dynamic_unroll(core, x, state)

    model = hk.without_apply_rng(hk.transform(loop))
    asked = jax.eval_shape(lambda: model.init(jax.random.PRNGKey(0), jax.numpy.zeros((1, 1, width), kind), ()))

    def unroll(weights: Arrays, x: Any, states: tuple[Any, ...], lengths: Any) -> tuple[Any, tuple[Any, ...]]:
        parameters: dict[str, dict[str, Any]] = {}
        for path, array in weights.items():
            module, _, last = f"own/{path}".rpartition("/")
            parameters.setdefault(module, {})[last] = array
        y, final = model.apply(parameters, x, states)
        return y, tuple(final) if isinstance(final, tuple) else (final,)

    return LibraryCell(name == "LSTM", {key[len("own/") :]: shape for key, shape in _shapes(asked).items()}, unroll)


def _equinox_sizes(path: str, arrays: Arrays) -> tuple[str, int, int] | None:
    if not {"weight_ih", "weight_hh"} <= set(arrays):
        return None
    rows, hidden = arrays["weight_hh"].shape[-2:]
    name = {4: "LSTMCell", 3: "GRUCell"}.get(rows // max(1, hidden))
    return None if name is None else (name, arrays["weight_ih"].shape[-1], hidden)


def _equinox(name: str, width: int, hidden: int, arrays: Arrays, how: Mapping[str, str]) -> LibraryCell:
    import equinox as eqx
    import jax

    if how:
        raise NotImplementedError(f"{', '.join(f'{key}={how[key]}' for key in how)} cannot be chosen for Equinox's {name}")
    key = jax.random.PRNGKey(0)
    plain = eqx.filter_eval_shape(getattr(eqx.nn, name), width, hidden, use_bias="bias" in arrays, key=key)
    fields = [field for field in ("weight_ih", "weight_hh", "bias", "bias_n") if getattr(plain, field, None) is not None]

    def unroll(weights: Arrays, x: Any, states: tuple[Any, ...], lengths: Any) -> tuple[Any, tuple[Any, ...]]:
        filled_cell = eqx.tree_at(lambda cell: [getattr(cell, field) for field in fields], plain, [weights[field] for field in fields])

        def step(state: Any, inputs: Any) -> tuple[Any, Any]:
            state = jax.vmap(filled_cell)(inputs, state)
            return state, state[0] if name == "LSTMCell" else state

        zero = jax.numpy.zeros((x.shape[1], hidden), x.dtype)
        begin = states or ((zero, zero) if name == "LSTMCell" else (zero,))
        final, y = jax.lax.scan(step, begin if name == "LSTMCell" else begin[0], x)
        return y, tuple(final) if name == "LSTMCell" else (final,)

    return LibraryCell(name == "LSTMCell", {field: tuple(getattr(plain, field).shape) for field in fields}, unroll)


_ALL = "gradients; float16 to float64"
_LINEN = "LSTMCell, GRUCell, MGUCell and SimpleCell of linen in nn.RNN; lengths, none zero; "
_NNX = "LSTMCell, OptimizedLSTMCell, GRUCell and SimpleCell of nnx in nnx.RNN; lengths, none zero; "
_HAIKU = "LSTM, GRU and VanillaRNN in dynamic_unroll; "
_EQUINOX = "nn.LSTMCell and GRUCell in lax.scan; "
LIBRARIES = {
    "flax": CellLibrary("flax", ".msgpack", _LINEN + _ALL, True, _linen_sizes, _linen),
    "nnx": CellLibrary("flax", ".msgpack", _NNX + _ALL, True, _nnx_sizes, _nnx),
    "haiku": CellLibrary("haiku", ".npz", _HAIKU + _ALL, False, _haiku_sizes, _haiku),
    "equinox": CellLibrary("equinox", ".npz", _EQUINOX + _ALL, False, _equinox_sizes, _equinox),
}
