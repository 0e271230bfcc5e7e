"""Attention as Keras 3. Sources: keras 3.15 keras/src/layers/attention."""

from __future__ import annotations

from typing import Any

from rnnconvert.formats.keras.scaffold.functions import words
from rnnconvert.scaffolding.description import Node


def attention(m: Any, node: Node) -> str:
    if node["scale"]:
        raise m.refused(node, "a scale of both the sums and the scores", "Keras has it as two weights, of which one is filled")
    concat = node.settings.get("concat")
    settings = 'score_mode="concat"' if concat else "" if node["mode"] == "dot" and not node.layer else f"use_scale={bool(node.layer)}"
    layer = f"layers.{'Attention' if node['mode'] == 'dot' or concat else 'AdditiveAttention'}({settings})"
    asked, seen = ((m(node.named[word][0]) if node.named.get(word) else "None") for word in ("asked", "seen"))
    query, value, key = node.inputs
    inputs = [query, value] if key is value else [query, value, key]
    masks = [asked, seen] if key is value else [asked, seen, "None"]
    call = words(
        f"[{', '.join(map(m, inputs))}]",
        f"mask=[{', '.join(masks)}]" if masks[:2] != ["None", "None"] else "",
        "use_causal_mask=True" if node["causal"] else "",
        "return_attention_scores=True" if len(node.outputs) > 1 else "",
    )
    if node.layer:
        layer = m.named(node.layer, layer)
        m.within[node.layer] = f"/{node.layer.rpartition('/')[2]}"
    text = f"{layer}({call})"
    if len(node.outputs) == 1:
        return text
    m.release(node)
    m.line(f"{', '.join(m.new(value) for value in node.outputs)} = {text}", node.y.shape)
    return ""


def multi_head(m: Any, node: Node) -> str:
    query, value, key = node.inputs
    settings = words(
        str(node["heads"]),
        str(node["size"]),
        f"value_dim={node['value_size']}" if node["value_size"] != node["size"] else "",
        f"dropout={node['dropout']:g}" if node["dropout"] else "",
        "" if node["bias"] else "use_bias=False",
        f"output_shape={node['output']}" if node["output"] != query.shape[2] else "",
    )
    layer = m.named(node.layer, f"layers.MultiHeadAttention({settings})")
    m.inside[node.layer] = {part: part for part in ("query", "key", "value", "attention_output")}
    masks = [
        f"ops.expand_dims({m(mask)}, {axis})"
        for word, axis in (("query", 2), ("value", 1), ("key", 1))
        for mask in node.named.get(word, ())
    ]
    masks = list(dict.fromkeys([*masks, *(m(mask) for mask in node.named.get("pairs", ()))]))
    mask = masks[0] if masks else ""
    for other in masks[1:]:
        mask = f"ops.logical_and({mask}, {other})"
    scores = len(node.outputs) > 1
    call = words(
        m(query), m(value), m(key) if key is not value else "", f"attention_mask={mask}" if mask else "",
        "return_attention_scores=True" if scores else "", "use_causal_mask=True" if node["causal"] else "",
    )  # fmt: skip
    text = f"{layer}({call})"
    if not scores:
        return text
    m.release(node)
    m.line(f"{', '.join(m.new(value) for value in node.outputs)} = {text}", node.y.shape)
    return ""
