"""Cells of Flax, Haiku and Equinox, run by these frameworks themselves on their own arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rnnconvert.core.arrays import Array
from rnnconvert.core.reference import Outputs

Step = Any
"""From a state (h, c), or (h,) where there is no cell state, and the input of one step to the next state."""


def nested(arrays: Mapping[str, Array]) -> dict[str, Any]:
    """Arrays by path as dictionaries in dictionaries."""
    import jax

    tree: dict[str, Any] = {}
    for path, array in arrays.items():
        *above, last = path.split("/")
        node = tree
        for word in above:
            node = node.setdefault(word, {})
        node[last] = jax.numpy.asarray(array)
    return tree


def linen(name: str, arrays: Mapping[str, Array], width: int, hidden: int, options: Mapping[str, Any]) -> Step:
    """One step of a class of flax.linen; an LSTM's carry is (c, h)."""
    from flax import linen as nn

    cell = getattr(nn, name)(features=hidden, **options)
    parameters = {"params": nested(arrays)}

    def step(state: tuple[Any, ...], x: Any) -> tuple[Any, ...]:
        carry, _ = cell.apply(parameters, state[::-1] if len(state) > 1 else state[0], x)
        return tuple(carry)[::-1] if len(state) > 1 else (carry,)

    return step


def nnx(name: str, arrays: Mapping[str, Array], width: int, hidden: int, options: Mapping[str, Any]) -> Step:
    """One step of a class of flax.nnx; an LSTM's carry is (c, h)."""
    import jax
    from flax import nnx

    kind = next(iter(arrays.values())).dtype
    cell = getattr(nnx, name)(width, hidden, rngs=nnx.Rngs(0), dtype=None, param_dtype=kind, **options)
    held = {"/".join(map(str, path)) for path, _ in nnx.to_flat_state(nnx.state(cell, nnx.Param))}
    assert held == set(arrays)
    for path, array in arrays.items():
        part, parameter = path.split("/")
        variable = getattr(getattr(cell, part), parameter)
        assert variable.shape == array.shape
        variable.set_value(jax.numpy.asarray(array))

    def step(state: tuple[Any, ...], x: Any) -> tuple[Any, ...]:
        carry, _ = cell(state[::-1] if len(state) > 1 else state[0], x)
        return tuple(carry)[::-1] if len(state) > 1 else (carry,)

    return step


def haiku(name: str, arrays: Mapping[str, Array], width: int, hidden: int, options: Mapping[str, Any]) -> Step:
    """One step of a class of Haiku, whose parameters must be those that it asks for itself."""
    import haiku as hk
    import jax

    model = hk.without_apply_rng(hk.transform(lambda x, state: getattr(hk, name)(hidden, name="own", **options)(x, state)))
    parameters: dict[str, dict[str, Any]] = {}
    for path, array in arrays.items():
        head, _, last = path.rpartition("/")
        parameters.setdefault(f"own/{head}" if head else "own", {})[last] = jax.numpy.asarray(array)

    def step(state: tuple[Any, ...], x: Any) -> tuple[Any, ...]:
        states = hk.LSTMState(*state) if len(state) > 1 else state[0]
        asked = jax.eval_shape(model.init, jax.random.PRNGKey(0), x, states)
        assert jax.tree.map(np.shape, parameters) == jax.tree.map(lambda leaf: leaf.shape, asked)
        _, new = model.apply(parameters, x, states)
        return (new.hidden, new.cell) if len(state) > 1 else (new,)

    return step


def equinox(name: str, arrays: Mapping[str, Array], width: int, hidden: int, options: Mapping[str, Any]) -> Step:
    """One step of a class of equinox.nn, over a batch."""
    import equinox as eqx
    import jax

    cell = getattr(eqx.nn, name)(width, hidden, use_bias="bias" in arrays, key=jax.random.key(0))
    assert {field for field in ("weight_ih", "weight_hh", "bias", "bias_n") if getattr(cell, field, None) is not None} == (set(arrays))
    for field, array in arrays.items():
        assert getattr(cell, field).shape == array.shape
        cell = eqx.tree_at(lambda tree, field=field: getattr(tree, field), cell, jax.numpy.asarray(array))

    def step(state: tuple[Any, ...], x: Any) -> tuple[Any, ...]:
        if len(state) > 1:
            return tuple(jax.vmap(cell)(x, state))
        return (jax.vmap(cell)(x, state[0]),)

    return step


def run(make: Any, name: str, arrays: Mapping[str, Array], x: Array, states: Sequence[Array], options: Mapping[str, Any]) -> Outputs:
    """A sequence through one cell, a step at a time, in the element type of its arrays.

    states  the initial hidden state, and of an LSTM the cell state
    """
    import jax

    kind = next(iter(arrays.values())).dtype
    with jax.enable_x64(kind == np.float64):
        step = make(name, arrays, x.shape[-1], states[0].shape[-1], options)
        state = tuple(jax.numpy.asarray(array) for array in states)
        outputs = []
        for step_input in jax.numpy.asarray(x):
            state = step(state, step_input)
            outputs.append(np.asarray(state[0]))
        assert all(output.dtype == kind for output in outputs)
        h, *c = (np.asarray(array) for array in state)
    return Outputs(np.stack(outputs), (h,), tuple(c))
