"""Attention of Keras 3 in the words of rnnconvert.scaffolding.description.

Sources: keras 3.15 keras/src/layers/attention/{attention,additive_attention,multi_head_attention}.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rnnconvert.formats.keras import heads
from rnnconvert.formats.keras.describe.layer_facts import LayerFacts, refuse
from rnnconvert.formats.keras.describe.masks import attention_masks, masks_on
from rnnconvert.formats.keras.describe.settings import attended, query_value_key
from rnnconvert.formats.keras.describe.writer import Describe, Writer
from rnnconvert.scaffolding.description import Value


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
        settings = {
            "mode": "additive" if concat else kind,
            "causal": facts.flag("use_causal_mask"),
            "sizes": (query.shape[2],) if kind == "additive" else (),
            "concat": concat,
            "scale": factor if concat else "",
        }
        if layer and settings["sizes"] == (None,):
            raise refuse(facts.name, "a scale of an open length", "it has a number for each feature")
        w.scope.add("attention", layer, [query, value, key], ends, named, **settings)
        return ends

    return describe


def _multi_head(w: Writer, facts: LayerFacts, values: Sequence[Value]) -> list[Value]:
    """Return the output of a MultiHeadAttention: its four dense layers are layers of the file, too."""
    tensors = attended(facts, values)
    query, value, key = query_value_key(facts, tensors)
    count, size = int(facts.get("num_heads")), int(facts.get("key_dim"))
    value_size, out = int(facts.get("value_dim") or size), facts.get("output_shape") or query.shape[2]
    out = out[0] if isinstance(out, (list, tuple)) and len(out) == 1 else out
    widths = [tensor.shape[2] for tensor in (query, key, value)]
    if not isinstance(out, int) or None in widths:
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
    w.scope.add(
        "multi_head", w.noted(facts), [query, value, key], ends, named, heads=count, size=size, value_size=value_size, output=out,
        widths=tuple(widths), bias=bool(facts.get("use_bias", True)), causal=causal, dropout=dropout, zeros=bool(dropout) or with_scores,
    )  # fmt: skip
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
