"""The computation of each layer of Keras 3, in the words of rnnconvert.scaffolding.kinds.

Sources: keras 3.15 keras/src/layers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rnnconvert.formats.keras import heads
from rnnconvert.formats.keras.describe.functions import FUNCTIONS, applied
from rnnconvert.formats.keras.describe.layer_facts import LayerFacts, one_input, refuse
from rnnconvert.formats.keras.describe.masks import attention_masks, masks_on
from rnnconvert.formats.keras.describe.merging import MERGING
from rnnconvert.formats.keras.describe.norms import NORMS
from rnnconvert.formats.keras.describe.recurrent import RECURRENT
from rnnconvert.formats.keras.describe.settings import attended, count_of, query_value_key, reshaped
from rnnconvert.formats.keras.describe.space import SPACE
from rnnconvert.formats.keras.describe.writer import Describe, Writer
from rnnconvert.formats.keras.model.entries import DROPOUTS
from rnnconvert.formats.keras.model.masks import mask_value
from rnnconvert.scaffolding import kinds
from rnnconvert.scaffolding.description import Value

MOVING = ("Embedding", "Flatten", "Reshape", "Permute", "RepeatVector", "TimeDistributed", "Masking", "Concatenate")
"""The layers that read whole numbers."""


def _dense(w: Writer, facts: LayerFacts, values: Sequence[Value]) -> list[Value]:
    x, units = one_input(facts, values), int(facts.get("units"))
    output = w.add(kinds.Dense(units=units, bias=bool(facts.get("use_bias", True))), facts, [x], (*x.shape[:-1], units))
    return [applied(w, facts, facts.get("activation"), output)]


def _embedding(w: Writer, facts: LayerFacts, values: Sequence[Value]) -> list[Value]:
    x, rows, width = one_input(facts, values), int(facts.get("input_dim")), int(facts.get("output_dim"))
    if facts.get("mask_zero"):
        mask = w.node(kinds.Mask(operation="not_equal", value=0), "mask", [x], x.shape, "bool")
        output = w.add(kinds.Embedding(input_size=rows, output_size=width), facts, [x], (*x.shape, width))
        w.masks[output.name] = mask
        return [output]
    return [w.add(kinds.Embedding(input_size=rows, output_size=width), facts, [x], (*x.shape, width))]


def _masking(w: Writer, facts: LayerFacts, values: Sequence[Value]) -> list[Value]:
    x, stated, number = one_input(facts, values), facts.get("mask_value"), mask_value(facts.old.entry)
    if number is None or len(x.shape) < 2:
        raise refuse(facts.name, f"mask_value = {str(stated)[:60]}", "only one number, for tensors with features, is known here")
    mask = w.node(kinds.Mask(operation="any differs", value=float(number)), "mask", [x], x.shape[:-1], "bool")
    output = w.node(kinds.ZeroMasked(), facts.name, [x], x.shape, named={"mask": [mask]})
    w.masks[output.name] = mask
    return [output]


def _training_only(*keys: str) -> Describe:
    """Return a function that describes a layer that computes nothing when a model runs."""

    def describe(w: Writer, facts: LayerFacts, values: Sequence[Value]) -> list[Value]:
        x, kind = one_input(facts, values), facts.old.kind
        for key in (*keys, "noise_shape", "data_format"):
            facts.get(key)
        if kind in DROPOUTS[:5] and x.dtype == "float32":
            output = w.add(kinds.Dropout(name=kind, rate=float(facts.get("rate", 0.0))), facts, [x], x.shape)
            w.same[output.name] = w.same.get(x.name, x.name)
            return [output]
        if kind != "Identity":
            w.notes.append(f"{w.called(facts.name)}: {kind} acts in training alone, and is left out")
        return [x]

    return describe


def _flatten(w: Writer, facts: LayerFacts, values: Sequence[Value]) -> list[Value]:
    x = one_input(facts, values)
    facts.need("data_format", "channels_last", None)
    return [w.add(kinds.Flatten(), facts, [x], (x.shape[0], count_of(x)), dtype=x.dtype)]


def _reshape(w: Writer, facts: LayerFacts, values: Sequence[Value]) -> list[Value]:
    x = one_input(facts, values)
    target, out = reshaped(facts, x)
    return [w.add(kinds.Reshape(sizes=target), facts, [x], (x.shape[0], *out), dtype=x.dtype)]


def _permute(w: Writer, facts: LayerFacts, values: Sequence[Value]) -> list[Value]:
    x, order = one_input(facts, values), (0, *(int(n) for n in facts.get("dims")))
    return [w.add(kinds.Transpose(order=order), facts, [x], tuple(x.shape[n] for n in order), dtype=x.dtype)]


def _repeat(w: Writer, facts: LayerFacts, values: Sequence[Value]) -> list[Value]:
    x, count = one_input(facts, values), int(facts.get("n"))
    return [w.add(kinds.Repeat(count=count), facts, [x], (x.shape[0], count, x.shape[1]), dtype=x.dtype)]


# Attention of Keras 3 in the words of rnnconvert.scaffolding.kinds.
# Sources: keras 3.15 keras/src/layers/attention/{attention,additive_attention,multi_head_attention}.py.


def _attention(kind: str, scaled: bool) -> Describe:
    """Return a function that describes an attention whose scores are products, or sums bent by tanh.

    scaled  whether it has a scale if its configuration states nothing
    """

    def describe(w: Writer, facts: LayerFacts, values: Sequence[Value]) -> list[Value]:
        query, value, key = query_value_key(facts, values)
        facts.need("score_mode", "dot", "concat")
        concat = facts.get("score_mode") == "concat"
        scale = bool(facts.get("use_scale", scaled))
        facts.get("dropout"), facts.get("seed")
        asked, seen, *_ = masks_on(w, facts, values)
        if any(mask is not None and len(mask.shape) != 2 for mask in (asked, seen)):
            raise refuse(facts.name, "a mask over other axes than time", "the layer spreads it over the wrong ones")
        ends = [w.value(facts.name, (*query.shape[:2], value.shape[2]))]
        if facts.flag("return_attention_scores"):
            ends.append(w.value(f"{facts.name}_weights", (*query.shape[:2], key.shape[1])))
        named = {"asked": [asked] if asked else [], "seen": [seen] if seen else []}
        factor = w.noted(facts, f"{facts.name}/scale", f"{facts.name}/0") if scale else ""
        concatenated = w.noted(facts, f"{facts.name}/concat_score_weight", f"{facts.name}/{int(scale)}") if concat else ""
        layer = concatenated or factor
        sizes = (query.shape[2],) if kind == "additive" else ()
        attention = kinds.Attention("additive" if concat else kind, facts.flag("use_causal_mask"), sizes, concat, factor if concat else "")
        if layer and sizes == (None,):
            raise refuse(facts.name, "a scale of an open length", "it has a number for each feature")
        w.scope.add(attention, layer, [query, value, key], ends, named)
        return ends

    return describe


def _multi_head(w: Writer, facts: LayerFacts, values: Sequence[Value]) -> list[Value]:
    """Return the output of a MultiHeadAttention: its four dense layers are layers of the file, too."""
    tensors = attended(facts, values)
    query, value, key = query_value_key(facts, tensors)
    count, size = int(facts.get("num_heads")), int(facts.get("key_dim"))
    value_size, out = int(facts.get("value_dim") or size), facts.get("output_shape") or query.shape[2]
    out = out[0] if isinstance(out, (list, tuple)) and len(out) == 1 else out
    widths = tuple(width for tensor in (query, key, value) if (width := tensor.shape[2]) is not None)
    if not isinstance(out, int) or len(widths) < 3:
        raise refuse(facts.name, f"output_shape = {facts.get('output_shape')!r}", "only one axis of a stated size is known here")
    facts.need("use_gate", False)
    facts.need("sliding_window", None)
    facts.need("attention_axes", None, [1], 1)
    facts.get("seed")
    (masks, pairs), with_scores = attention_masks(w, facts, tensors), facts.flag("return_attention_scores")
    named = {**{word: [mask] if mask is not None else [] for word, mask in masks.items()}, "pairs": pairs}
    dropout = float(facts.get("dropout", 0) or 0)
    ends = [w.value(facts.name, (*query.shape[:2], out))]
    if with_scores:
        ends.append(w.value(f"{facts.name}_weights", (query.shape[0], count, query.shape[1], key.shape[1])))
    causal = facts.flag("use_causal_mask")
    bias, zeros = bool(facts.get("use_bias", True)), bool(dropout) or with_scores
    attention = kinds.MultiHead(count, size, value_size, out, widths, bias, causal=causal, dropout=dropout, zeros=zeros)
    w.scope.add(attention, w.noted(facts), [query, value, key], ends, named)
    for part in heads.PARTS:
        inner = f"{facts.name}/{part}"
        w.names[w.called(inner)] = tuple(dict.fromkeys((inner, f"{facts.old.name}/{part}", w.called(inner))))
    if (mask := w.masks.get(query.name)) is not None:
        w.masks[ends[0].name] = mask
    for tensor in tensors:
        # Keras takes the masks off the tensors themselves: what reads them later finds none.
        itself = w.same.get(tensor.name, tensor.name)
        for name in [name for name in w.masks if w.same.get(name, name) == itself]:
            del w.masks[name]
    return ends


ATTENTION: Mapping[str, Describe] = {
    "Attention": _attention("dot", False),
    "AdditiveAttention": _attention("additive", True),
    "MultiHeadAttention": _multi_head,
}
"""Attention, by its classes."""


LAYERS: Mapping[str, Describe] = {
    "Dense": _dense, "Embedding": _embedding, "Masking": _masking,
    "Flatten": _flatten, "Reshape": _reshape, "Permute": _permute, "RepeatVector": _repeat,
    **{name: _training_only("rate", "stddev", "l1", "l2") for name in (
        "Dropout", "SpatialDropout1D", "SpatialDropout2D", "SpatialDropout3D", "GaussianNoise", "GaussianDropout", "AlphaDropout",
        "ActivityRegularization", "Identity")},
    **FUNCTIONS, **SPACE, **NORMS, **MERGING, **ATTENTION, **RECURRENT,
}  # fmt: skip
"""The layers that are known, by their classes."""
