"""Attention as lines of code: one text for every library, in its words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rnnconvert.scaffolding import kinds
from rnnconvert.scaffolding.description import Node, Value


def attention(m: Any, node: Node[kinds.Attention], words: Mapping[str, str]) -> str:
    """Write the lines of an attention, in a library's words.

    words  how scores are written: "dot" and "additive", from {q} and {k}; "hidden", less 1e9 but at {mask}, from {s}; "causal", the
           steps up to each one's own; "softmax"; a {mask} that is "wide" along the key and "tall" along the query; "where" {x} stays;
           "weight", the constructor of a parameter of {sizes}, and "weighed", its numbers from {part}
    """
    if node.kind.scale:
        raise m.refused(node, "a scale of both the sums and the scores", "only one of them is written as code")
    query, value, key = (m(tensor) for tensor in node.inputs)
    asked, seen = (node.named.get(word) for word in ("asked", "seen"))
    visible = [words["wide"].format(mask=m(seen[0]))] if seen else []
    zero = words["tall"].format(mask=m(asked[0])) if asked else ""
    weights = node.outputs[1] if len(node.outputs) > 1 else Value(f"{node.y.name}_weights", (*node.x.shape[:2], node.inputs[2].shape[1]))
    name = m.new(weights, "scores")
    scale = words["weighed"].format(part=m.part(node.layer, words["weight"].format(sizes=node.kind.sizes or "()"))) if node.layer else ""
    each = f"{scale} * " if scale and not node.kind.concat and node.kind.mode == "additive" else ""
    scores = words[node.kind.mode].format(q=query, k=key, each=each)
    m.line(f"{name} = {f'{scale} * ({scores})' if scale and not each else scores}", weights.shape)
    visible += [words["causal"].format(s=name)] if node.kind.causal else []
    if visible:
        m.line(f"{name} = {words['hidden'].format(s=name, mask=' & '.join(visible))}")
    m.line(f"{name} = {words['softmax'].format(s=name)}")
    text = f"{name} @ {value}"
    if zero:
        text = words["where"].format(mask=zero, x=text)
    m.release(node)
    m.line(f"{m.new(node.y)} = {text}", node.y.shape)
    if not m.used(weights):
        m.free(weights)
    return ""


def multi_head(m: Any, node: Node[kinds.MultiHead], words: Mapping[str, str], constructor: str) -> str:
    """Write the line of an attention of several heads, as a helper's class computes it.

    words        a {mask} that is "wide" along the key and "tall" along the query
    constructor  of the class, with {words} for its arguments
    """
    m.helper("MultiHeadAttention")
    kind = node.kind
    stated = [str(kind.heads), f"size={kind.size}", f"value_size={kind.value_size}", f"output={kind.output}"]
    part = m.part(
        node.layer, constructor.format(words=", ".join([*map(str, kind.widths), *stated, *([] if kind.bias else ["bias=False"])]))
    )
    m.inside[node.layer] = {"query": "query", "key": "key", "value": "value", "output": "attention_output"}
    query, value, key = (m(tensor) for tensor in node.inputs)
    masks = [words["tall"].format(mask=m(mask)) for mask in node.named.get("query", ())]
    masks += [words["wide"].format(mask=m(mask)) for word in ("value", "key") for mask in node.named.get(word, ())]
    masks += [m(mask) for mask in node.named.get("pairs", ())]
    more = [f"mask={' & '.join(dict.fromkeys(masks))}"] if masks else []
    more += ["causal=True"] if node.kind.causal else []
    more += ["zeros=True"] if node.kind.zeros and (masks or node.kind.causal) else []
    text = f"{part}({', '.join([query, key, value, *more])})"
    m.release(node)
    names = [m.new(node.y)] + [m.new(end) if m.used(end) else "_" for end in node.outputs[1:]]
    m.line(f"{', '.join([*names, *['_'] * (2 - len(names))])} = {text}", node.y.shape)
    return ""
