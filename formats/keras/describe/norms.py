"""Norms of Keras 3 in the words of rnnconvert.scaffolding.description.

Sources: keras 3.15 keras/src/layers/normalization.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from rnnconvert.formats.keras.describe.writer import Tell, Writer, single
from rnnconvert.formats.keras.export.layers import LayerFacts, refuse
from rnnconvert.formats.keras.export.masks import mask_on
from rnnconvert.scaffolding.description import Value

# Norms


def axes_of(facts: LayerFacts, x: Value) -> list[int]:
    """Return the axes that a layer names, counted from the front, in order. Raises RefusedError for the batch."""
    stated, rank = facts.get("axis", -1), len(x.shape)
    axes = [int(n) % rank for n in (stated if isinstance(stated, (list, tuple)) else [stated])]
    if not axes or 0 in axes or axes != sorted(set(axes)) or any(x.shape[n] is None for n in axes):
        raise refuse(facts.name, f"axis = {stated!r}", "only axes of known sizes behind the batch, in their order, are known here")
    return axes


def _batch_norm(w: Writer, facts: LayerFacts, values: Sequence[Value]) -> list[Value]:
    x = single(w, facts, values)
    axes = axes_of(facts, x)
    if len(axes) != 1:
        raise refuse(facts.name, f"axis = {facts.get('axis')!r}", "only one axis is known here")
    facts.need("renorm", False)
    mask_on(w, facts, x)  # type: ignore[arg-type]  # it is read in training alone
    for key in ("synchronized", "renorm_clipping", "renorm_momentum", "virtual_batch_size", "adjustment"):
        facts.get(key)
    return [
        w.add(
            "batch_norm",
            facts,
            [x],
            x.shape,
            axis=axes[0],
            size=x.shape[axes[0]],
            epsilon=float(facts.get("epsilon", 1e-3)),
            momentum=float(facts.get("momentum", 0.99)),
            scale=bool(facts.get("scale", True)),
            shift=bool(facts.get("center", True)),
        )
    ]


def _norm(kind: str, epsilon: float) -> Tell:
    def tell(w: Writer, facts: LayerFacts, values: Sequence[Value]) -> list[Value]:
        x = single(w, facts, values)
        axes, rank = axes_of(facts, x), len(x.shape)
        facts.need("rms_scaling", False)
        if axes != list(range(axes[0], rank)):
            raise refuse(facts.name, f"axis = {facts.get('axis')!r}", "only the last axes are known here")
        return [
            w.add(
                kind,
                facts,
                [x],
                x.shape,
                sizes=tuple(x.shape[n] for n in axes),
                epsilon=float(facts.get("epsilon", epsilon)),
                scale=bool(facts.get("scale", True)),
                shift=bool(facts.get("center", True)),
            )
        ]

    return tell


def _group_norm(w: Writer, facts: LayerFacts, values: Sequence[Value]) -> list[Value]:
    x, groups = single(w, facts, values), int(facts.get("groups", 32))
    width = x.shape[-1]
    if axes_of(facts, x) != [len(x.shape) - 1] or width is None:
        raise refuse(facts.name, f"axis = {facts.get('axis')!r}", "only the last axis, of a known size, is known here")
    groups = width if groups == -1 else groups
    if groups < 1 or width % groups:
        raise refuse(facts.name, f"{groups} groups of {width} channels", "the channels must go into the groups")
    return [
        w.add(
            "group_norm",
            facts,
            [x],
            x.shape,
            groups=groups,
            size=width,
            epsilon=float(facts.get("epsilon", 1e-3)),
            scale=bool(facts.get("scale", True)),
            shift=bool(facts.get("center", True)),
        )
    ]


def _unit_norm(w: Writer, facts: LayerFacts, values: Sequence[Value]) -> list[Value]:
    x = single(w, facts, values)
    return [w.add("unit_norm", facts, [x], x.shape, axes=tuple(axes_of(facts, x)), epsilon=1e-12)]


def _rescaling(w: Writer, facts: LayerFacts, values: Sequence[Value]) -> list[Value]:
    x = single(w, facts, values)
    scale, shift = facts.get("scale", 1.0), facts.get("offset", 0.0)
    if not all(isinstance(n, (int, float)) and math.isfinite(n) for n in (scale, shift)):
        raise refuse(facts.name, f"scale = {str(scale)[:40]}, offset = {str(shift)[:40]}", "only one number each is known here")
    return [w.add("rescale", facts, [x], x.shape, scale=float(scale), shift=float(shift))]


NORMS: Mapping[str, Tell] = {
    "BatchNormalization": _batch_norm,
    "LayerNormalization": _norm("layer_norm", 1e-3),
    "RMSNormalization": _norm("rms_norm", 1e-6),
    "GroupNormalization": _group_norm,
    "UnitNormalization": _unit_norm,
    "Rescaling": _rescaling,
}
"""The norms, by their classes."""
