"""The text of a Flax nnx module: its class, and what stands around it."""

from __future__ import annotations

import re

from rnnconvert.formats.jax.scaffold.layers import RULES
from rnnconvert.scaffolding.text import Style
from rnnconvert.scaffolding.writer import File, Module

# Definitions that a written file has for layers that nnx lacks: text, as it stands there.

TEXTS = {
    "MultiHeadAttention": '''class MultiHeadAttention(nnx.Module):
    """Attention with several heads, whose keys and values may have other sizes than its inputs.

    Where mask (batch, query, key) is false, a step of the query does not see that of the key. A step that sees none sees the mean
    of all, or zeros.
    """

    def __init__(self, query, key, value, heads, size, value_size, output, bias=True, *, rngs):
        self.heads = heads
        self.query = nnx.Linear(query, heads * size, use_bias=bias, rngs=rngs)
        self.key = nnx.Linear(key, heads * size, use_bias=bias, rngs=rngs)
        self.value = nnx.Linear(value, heads * value_size, use_bias=bias, rngs=rngs)
        self.output = nnx.Linear(heads * value_size, output, use_bias=bias, rngs=rngs)

    def __call__(self, query, key, value, mask=None, causal=False, zeros=False):
        """Return the output (batch, time, features), and the weights (batch, heads, query, key)."""
        queries, keys, values = (
            x.reshape(*x.shape[:2], self.heads, -1).swapaxes(1, 2) for x in (self.query(query), self.key(key), self.value(value))
        )
        scores = queries @ keys.swapaxes(2, 3) / queries.shape[-1] ** 0.5
        seen = jnp.ones_like(scores, dtype=bool) if mask is None else mask[:, None]
        if causal:
            seen = seen & jnp.tril(jnp.ones_like(scores[0, 0], dtype=bool))
        weights = nnx.softmax(jnp.where(seen, scores, -1e9))
        if zeros:
            weights = jnp.where(seen, weights, 0.0)
        return self.output((weights @ values).swapaxes(1, 2).reshape(*query.shape[:2], -1)), weights
''',
    "NormOverAxes": '''class NormOverAxes(nnx.Module):
    """Layer norm over the last axes, or RMS norm where nothing is subtracted."""

    def __init__(self, shape, epsilon, use_scale=True, use_bias=True, centered=True):
        self.axes, self.epsilon, self.centered = tuple(range(-len(shape), 0)), epsilon, centered
        if use_scale:
            self.scale = nnx.Param(jnp.ones(shape))
        if use_bias:
            self.bias = nnx.Param(jnp.zeros(shape))

    def __call__(self, x):
        if self.centered:
            x = x - x.mean(self.axes, keepdims=True)
        x = x / jnp.sqrt(jnp.square(x).mean(self.axes, keepdims=True) + self.epsilon)
        x = x * self.scale[...] if hasattr(self, "scale") else x
        return x + self.bias[...] if hasattr(self, "bias") else x
''',
}
"""By their names: Keras's layers that nnx computes otherwise."""


class NnxModule(Module):
    """One class: a model of the source."""

    TITLE, BASE, CALLED = "Flax", "nnx.Module", "__call__"
    ATTRIBUTES = frozenset({"eval", "iter_children", "iter_modules", "perturb", "set_attributes", "sow", "train"})  # of nnx.Module
    VARIABLES = frozenset({"jax", "jnp", "nnx", "state", *TEXTS})
    SEPARATOR = "/"
    MAKING = ("def __init__(self, rngs):",)
    FORGETTING = "{of}[...] = jnp.zeros_like({of}[...])"


def _imports(file: File, body: str) -> list[str]:
    lines = ["import jax"] if re.search(r"\bjax\.", body) else []
    return [*lines, "import jax.numpy as jnp", "from flax import nnx"]


_UPDATE = """
state = nnx.state(model, nnx.Not(nnx.Any(nnx.RngState, nnx.Cache)))
nnx.replace_by_pure_dict(state, arrays)
nnx.update(model, state)"""
_RESTORES = {
    ".msgpack": f"""from flax.serialization import msgpack_restore

with open(path, "rb") as file:
    arrays = msgpack_restore(file.read()){_UPDATE}""",
    ".safetensors": f"""from flax.traverse_util import unflatten_dict
from safetensors.numpy import load_file

arrays = unflatten_dict(load_file(path), sep="/"){_UPDATE}""",
}
STYLE = Style(
    NnxModule,
    RULES,
    TEXTS,
    frozenset({"jax", "jnp", "nnx"}),
    lambda word: word,
    _imports,
    "{model}(nnx.Rngs(0))\n    model.eval()",
    _RESTORES,
    "outputs = model({zeros})",
    lambda sizes, dtype: f"jnp.zeros(({sizes})" + (")" if dtype == "float32" else f', "{dtype}")'),
    "with weights of Flax's own, it needs Flax alone.",
)
