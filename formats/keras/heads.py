"""The dense layers in a MultiHeadAttention: an EinsumDense each, by the equation that it computes.

Source: keras 3.15 keras/src/layers/attention/multi_head_attention.py and core/einsum_dense.py; tf_keras has the same equations.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rnnconvert.formats.keras.model.entries import Entry

PARTS = ("query", "key", "value", "attention_output")
"""The dense layers of a MultiHeadAttention, by their names."""
_OF_FILES = {"query_dense": "query", "key_dense": "key", "value_dense": "value", "output_dense": "attention_output"}
"""Their names, by what Keras 3's files call them."""


def class_of(kind: str, config: Mapping[str, Any]) -> str:
    """Return the class of a layer: of an EinsumDense what its equation makes of it, "" for any other equation."""
    if kind != "EinsumDense":
        return kind
    operands, _, result = str(config.get("equation", "")).replace(" ", "").partition("->")
    _, _, kernel = operands.partition(",")
    summed = "".join("+" if letter not in result else "." for letter in kernel)
    return {"+..": "EinsumDenseToHeads", "++.": "EinsumDenseOfHeads"}.get(summed, "")


def part(attention: Entry, word: str) -> Entry | None:
    """Return one of the dense layers of a MultiHeadAttention, None for another word."""
    name = _OF_FILES.get(word, word)
    if attention.class_name != "MultiHeadAttention" or name not in PARTS:
        return None
    class_name = "EinsumDenseOfHeads" if name == "attention_output" else "EinsumDenseToHeads"
    return Entry(f"{attention.name}/{name}", class_name, {"use_bias": attention.config.get("use_bias", True)})
