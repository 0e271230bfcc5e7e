"""Operators on tensors as jax.numpy's functions. Source: jax 0.10 jax/numpy, jax/lax and jax/nn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rnnconvert.scaffolding.description import Length, Node
from rnnconvert.scaffolding.operators import Library, length, rules


def _lengths(m: Any, node: Node, values: Sequence[Length | int]) -> list[str]:
    return [length(m, node, value) for value in values]


def _reshape(m: Any, node: Node, values: Sequence[Length | int]) -> str:
    return f"{m(node.x)}.reshape({', '.join(_lengths(m, node, values))})"


def _expand(m: Any, node: Node) -> str:
    shape = _lengths(m, node, node["lengths"])
    return f"jnp.broadcast_to({m(node.x)}, ({', '.join(shape)}{',' * (len(shape) == 1)}))"


TYPES = {"int64": "int", "float64": "float"}
"""Without jax_enable_x64 these are of 32 bits, and naming them warns."""
OPERATORS = rules(
    Library(
        "jnp",
        _reshape,
        _expand,
        _lengths,
        {
            "erf": "jax.lax.erf({0})",
            "rsqrt": "jax.lax.rsqrt({0})",
            "remainder towards zero": "jnp.fmod({0}, {1})",
            "divide towards zero": "jax.lax.div({0}, {1})",
            "top_k": "jax.lax.top_k({0}, {1})",
            "one_hot": "jax.nn.one_hot({0}{more})",
        },
        types=TYPES,
    )
)
"""The operators that are known."""
