"""Norms of Keras 3 in the words of rnnconvert.scaffolding.description.

Sources: keras 3.15 keras/src/layers/normalization.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from rnnconvert.formats.keras.defaults import UNIT_LENGTH
from rnnconvert.formats.keras.describe.writer import Tell, Writer
from rnnconvert.formats.keras.export.layer_facts import LayerFacts, refuse
from rnnconvert.formats.keras.export.layers import one_input
from rnnconvert.formats.keras.export.masks import mask_on
from rnnconvert.formats.keras.settings import axes_of, groups_of, only_axis
from rnnconvert.scaffolding.description import Value


def _sizes_of(facts: LayerFacts, x: Value, axes: Sequence[int]) -> tuple[int, ...]:
    """Return the sizes of axes over which a layer has weights. Raises RefusedError for an open one."""
    lengths = tuple(size for axis in axes if (size := x.shape[axis]) is not None)
    if len(lengths) < len(axes):
        raise refuse(facts.name, f"axis = {facts.get('axis')!r}", "only axes of known sizes are known here")
    return lengths


def _normal(kind: str, w: Writer, facts: LayerFacts, x: Value, **settings: Any) -> list[Value]:
    """Return what a norm gives that is scaled and shifted."""
    affine: dict[str, Any] = {"scale": bool(facts.get("scale", True)), "shift": bool(facts.get("center", True))}
    return [w.add(kind, facts, [x], x.shape, **settings, epsilon=float(facts.get("epsilon")), **affine)]


def _batch_norm(w: Writer, facts: LayerFacts, values: Sequence[Value]) -> list[Value]:
    x = one_input(facts, values)
    axis = only_axis(facts, x)
    facts.need("renorm", False)
    mask_on(w, facts, x)  # it is read in training alone
    for key in ("synchronized", "renorm_clipping", "renorm_momentum", "virtual_batch_size", "adjustment"):
        facts.get(key)
    return _normal("batch_norm", w, facts, x, axis=axis, size=_sizes_of(facts, x, [axis])[0], momentum=float(facts.get("momentum")))


def _norm(kind: str) -> Tell:
    def tell(w: Writer, facts: LayerFacts, values: Sequence[Value]) -> list[Value]:
        x = one_input(facts, values)
        axes, rank = axes_of(facts, x), len(x.shape)
        facts.need("rms_scaling", False)
        if axes != list(range(axes[0], rank)):
            raise refuse(facts.name, f"axis = {facts.get('axis')!r}", "only the last axes are known here")
        return _normal(kind, w, facts, x, sizes=_sizes_of(facts, x, axes))

    return tell


def _group_norm(w: Writer, facts: LayerFacts, values: Sequence[Value]) -> list[Value]:
    x = one_input(facts, values)
    groups, width = groups_of(facts, x)
    return _normal("group_norm", w, facts, x, groups=groups, size=width)


def _unit_norm(w: Writer, facts: LayerFacts, values: Sequence[Value]) -> list[Value]:
    x = one_input(facts, values)
    return [w.add("unit_norm", facts, [x], x.shape, axes=tuple(axes_of(facts, x)), epsilon=UNIT_LENGTH)]


def _rescaling(w: Writer, facts: LayerFacts, values: Sequence[Value]) -> list[Value]:
    x = one_input(facts, values)
    scale, shift = facts.get("scale"), facts.get("offset")
    if not all(isinstance(n, (int, float)) and math.isfinite(n) for n in (scale, shift)):
        raise refuse(facts.name, f"scale = {str(scale)[:40]}, offset = {str(shift)[:40]}", "only one number each is known here")
    return [w.add("rescale", facts, [x], x.shape, scale=float(scale), shift=float(shift))]


NORMS: Mapping[str, Tell] = {
    "BatchNormalization": _batch_norm,
    "LayerNormalization": _norm("layer_norm"),
    "RMSNormalization": _norm("rms_norm"),
    "GroupNormalization": _group_norm,
    "UnitNormalization": _unit_norm,
    "Rescaling": _rescaling,
}
"""The norms, by their classes."""
