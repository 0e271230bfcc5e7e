"""The statements of a Keras layer's configuration about its numbers and shapes."""

from __future__ import annotations

from typing import Any

from rnnconvert.formats.keras.upgrade.old import SourceLayer, is_shape
from rnnconvert.scaffolding.description import Shape


def input_shape(old: SourceLayer) -> Shape | None:
    """Return the shape that a layer was built on, None where its configuration does not state one."""
    stated = _shape((old.raw.get("build_config") or {}).get("input_shape"))
    inner = old.inside[0] if old.kind == "Bidirectional" else old
    kernel = inner.arrays.get("kernel")
    if stated is None and kernel is not None and inner.kind in _BY_KERNEL:
        rank = 3 if kernel.ndim == 2 else kernel.ndim
        return (*[None] * (rank - 1), int(kernel.shape[-2]))
    return stated


_BY_KERNEL = ("LSTM", "GRU", "SimpleRNN", "Conv1D", "Conv2D", "Conv3D")
"""The layers whose kernel shows how many axes they read, and how wide the last is."""


def _shape(stated: Any) -> Shape | None:
    return tuple(stated) if is_shape(stated) else None


def output_shape(old: SourceLayer) -> Shape | None:
    """Return the shape that a Lambda states of what it gives, None without one."""
    shape = _shape(old.entry.config.get("output_shape"))
    return None if shape is None else (None, *shape)
