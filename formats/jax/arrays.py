"""JAX's trees of arrays, by name: dictionaries, Flax's states and modules, Haiku's parameters, Equinox modules.

A path is the keys from the root to an array, joined by "/": "params/cell/hi/kernel", "cells/0/weight_ih", and for Haiku, whose own keys
have slashes, "mlp/~/linear_0/w". A box around an array (a Variable of nnx, a Partitioned of linen) adds nothing to its path.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from rnnconvert.core.arrays import Array
from rnnconvert.core.errors import MissingPackageError, UsageError


class _TreeArray(NamedTuple):
    """One array of a tree, and the position in the tree of what holds it."""

    position: int
    array: Any


def named_arrays(tree: Any) -> dict[str, Array]:
    """Return every array of a tree, by its path; a numpy array is the tree's own, one of JAX's is read in place.

    Random keys, functions and plain numbers do not count as arrays. An nnx.Module is what nnx.split finds in it: an object
    that it holds twice is named once.

    Raises UsageError if two arrays have one path, MissingPackageError without JAX.
    """
    return {path: np.asarray(leaf.array) for path, leaf in _leaves(_nodes(_split(tree)[0])).items()}


def kept_arrays(tree: Any) -> list[str]:
    """Return the paths of what an nnx.Module keeps in an nnx.Cache: states between calls, and no weights."""
    nnx = sys.modules.get("flax.nnx")
    if nnx is None or not isinstance(tree, nnx.Module):
        return []
    return [path for path, node in _nodes(_split(tree)[0]) if isinstance(node, nnx.Cache)]


def with_arrays(tree: Any, arrays: Mapping[str, Any]) -> Any:
    """Return a tree of the same kind in which the arrays at these paths are replaced; the tree given stays unchanged.

    Each array takes the element type and the place (devices and sharding) of the one that it replaces.

    Raises UsageError for a path that the tree lacks, for another shape than that of the array there, and for
    values that its element type cannot hold; MissingPackageError without JAX.
    """
    plain, merge = _split(tree)
    nodes = _nodes(plain)
    leaves = _leaves(nodes)
    import jax

    unknown = [path for path in arrays if path not in leaves]
    if unknown:
        raise UsageError(f"this tree has no array {unknown[0]!r}. It has {_some(list(leaves))}")
    changed = [node for _, node in nodes]
    for path, array in arrays.items():
        position, old = leaves[path]
        new = _placed(_fitted(path, array, old), old)
        structure = jax.tree_util.tree_structure(changed[position])
        changed[position] = jax.tree_util.tree_unflatten(structure, [new])
    structure = jax.tree_util.tree_structure(plain, is_leaf=_is_box)
    return merge(jax.tree_util.tree_unflatten(structure, changed))


def filled(tree: Any, arrays: Mapping[str, Any]) -> Any:
    """Return a tree with other arrays at these paths: an nnx.Module itself, which can be changed; of any other tree a new one.

    Raises what `with_arrays` raises, and then nothing has changed.
    """
    new = with_arrays(tree, arrays)
    nnx = sys.modules.get("flax.nnx")
    if nnx is None or not isinstance(tree, nnx.Module):
        return new
    nnx.update(tree, nnx.state(new))
    return tree


def _split(tree: Any) -> tuple[Any, Any]:
    """Return a tree without shared objects, and a function that makes the original kind of tree from one like it."""
    # Whoever hands in an object of nnx has imported it.
    nnx = sys.modules.get("flax.nnx")
    if nnx is not None and isinstance(tree, nnx.Module):
        definition, state = nnx.split(tree)
        return state, lambda changed: nnx.merge(definition, changed)
    return tree, lambda changed: changed


def _is_box(node: Any) -> bool:
    """Return whether this is one array with notes on it, which adds nothing to a path."""
    nnx, meta = sys.modules.get("flax.nnx"), sys.modules.get("flax.core.meta")
    boxes = [*([nnx.Variable] if nnx else []), *([meta.AxisMetadata] if meta else [])]
    return isinstance(node, tuple(boxes))


def _nodes(tree: Any) -> list[tuple[str, Any]]:
    """Return everything at the ends of a tree, and boxes whole, with their paths."""
    try:
        import jax
    except ImportError:
        raise MissingPackageError("jax", "read a tree of JAX's") from None
    flat = jax.tree_util.tree_flatten_with_path(tree, is_leaf=_is_box)[0]
    return [("/".join(_word(key) for key in keys), node) for keys, node in flat]


def _word(key: Any) -> str:
    """Return how a key of jax.tree_util is written: the key, the index or the attribute itself."""
    for attribute in ("key", "idx", "name"):
        if hasattr(key, attribute):
            return str(getattr(key, attribute))
    return str(key)


def _leaves(nodes: list[tuple[str, Any]]) -> dict[str, _TreeArray]:
    """Return the arrays among the ends of a tree."""
    import jax

    result: dict[str, _TreeArray] = {}
    for position, (path, node) in enumerate(nodes):
        for array in jax.tree_util.tree_leaves(node):
            if not isinstance(array, (np.ndarray, jax.Array)) or _is_random_key(array):
                continue
            if path in result:
                raise UsageError(f"two arrays of this tree have the path {path!r}. Hand in the parts one by one")
            result[path] = _TreeArray(position, array)
    return result


def _is_random_key(array: Any) -> bool:
    import jax

    return bool(jax.dtypes.issubdtype(array.dtype, jax.dtypes.prng_key))


def _fitted(path: str, value: Any, old: Any) -> Array:
    """Return the numbers given in the element type of the array that they replace."""
    array = np.asarray(value)
    if array.shape != tuple(old.shape):
        raise UsageError(f"{path!r} has shape {tuple(old.shape)}, not {array.shape}")
    if array.dtype == old.dtype:
        return array
    ranks = [_rank(array.dtype), _rank(old.dtype)]
    if not 0 <= ranks[0] <= ranks[1]:
        raise UsageError(f"{path!r} holds {old.dtype}, which cannot hold {array.dtype}")
    with np.errstate(over="ignore"):
        cast = array.astype(old.dtype)
    integral = ranks[1] < _RANKS.index(np.floating)
    if (cast != array).any() if integral else (np.isfinite(array) & ~np.isfinite(cast)).any():
        raise UsageError(f"{path!r} holds {old.dtype}, which is too small for these values")
    return cast


_RANKS = (np.bool_, np.integer, np.floating, np.complexfloating)
"""Kinds of numbers, each of which fits into those after it."""


def _rank(dtype: Any) -> int:
    import jax

    return next((rank for rank, kind in enumerate(_RANKS) if jax.dtypes.issubdtype(dtype, kind)), -1)


def _placed(array: Array, old: Any) -> Any:
    """Put the numbers where the old ones are."""
    if isinstance(old, np.ndarray):
        return np.array(array)
    import jax

    with wide():
        # An array that nobody put anywhere must not be tied to a device: it could not meet others then.
        return jax.device_put(array, old.sharding) if getattr(old, "committed", True) else jax.numpy.array(array)


def wide() -> Any:
    """Return a context in which JAX has 64-bit numbers: without it, wide arrays would become narrow."""
    import jax

    if hasattr(jax, "enable_x64"):
        return jax.enable_x64(True)
    from jax.experimental import enable_x64

    return enable_x64()


def _some(names: list[str]) -> str:
    quoted = ", ".join(repr(name) for name in names[:8])
    return (quoted + (f" and {len(names) - 8} more" if len(names) > 8 else "")) or "no array"
