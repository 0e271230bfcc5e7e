"""The computation of each layer of Keras 3, in the words of rnnconvert.scaffolding.description.

Sources: keras 3.15 keras/src/layers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rnnconvert.formats.keras.describe.attention import ATTENTION
from rnnconvert.formats.keras.describe.functions import FUNCTIONS, applied
from rnnconvert.formats.keras.describe.layer_facts import LayerFacts, one_input, refuse
from rnnconvert.formats.keras.describe.merging import MERGING
from rnnconvert.formats.keras.describe.norms import NORMS
from rnnconvert.formats.keras.describe.recurrent import RECURRENT
from rnnconvert.formats.keras.describe.settings import count_of, reshaped
from rnnconvert.formats.keras.describe.space import SPACE
from rnnconvert.formats.keras.describe.writer import Describe, Writer
from rnnconvert.formats.keras.model.entries import DROPOUTS
from rnnconvert.formats.keras.model.masks import mask_value
from rnnconvert.scaffolding.description import Value

MOVING = ("Embedding", "Flatten", "Reshape", "Permute", "RepeatVector", "TimeDistributed", "Masking", "Concatenate")
"""The layers that read whole numbers."""


def _dense(w: Writer, facts: LayerFacts, values: Sequence[Value]) -> list[Value]:
    x, units = one_input(facts, values), int(facts.get("units"))
    output = w.add("dense", facts, [x], (*x.shape[:-1], units), units=units, bias=bool(facts.get("use_bias", True)))
    return [applied(w, facts, facts.get("activation"), output)]


def _embedding(w: Writer, facts: LayerFacts, values: Sequence[Value]) -> list[Value]:
    x, rows, width = one_input(facts, values), int(facts.get("input_dim")), int(facts.get("output_dim"))
    if facts.get("mask_zero"):
        mask = w.node("mask", "mask", [x], x.shape, "bool", operation="not_equal", value=0)
        output = w.add("embedding", facts, [x], (*x.shape, width), input_size=rows, output_size=width)
        w.masks[output.name] = mask
        return [output]
    return [w.add("embedding", facts, [x], (*x.shape, width), input_size=rows, output_size=width)]


def _masking(w: Writer, facts: LayerFacts, values: Sequence[Value]) -> list[Value]:
    x, stated, number = one_input(facts, values), facts.get("mask_value"), mask_value(facts.old.entry)
    if number is None or len(x.shape) < 2:
        raise refuse(facts.name, f"mask_value = {str(stated)[:60]}", "only one number, for tensors with features, is known here")
    mask = w.node("mask", "mask", [x], x.shape[:-1], "bool", operation="any differs", value=float(number))
    output = w.node("zero masked", facts.name, [x], x.shape, named={"mask": [mask]})
    w.masks[output.name] = mask
    return [output]


def _training_only(*keys: str) -> Describe:
    """Return a function that describes a layer that computes nothing when a model runs."""

    def describe(w: Writer, facts: LayerFacts, values: Sequence[Value]) -> list[Value]:
        x, kind = one_input(facts, values), facts.old.kind
        for key in (*keys, "noise_shape", "data_format"):
            facts.get(key)
        if kind in DROPOUTS[:5] and x.dtype == "float32":
            output = w.add("dropout", facts, [x], x.shape, name=kind, rate=float(facts.get("rate", 0.0)))
            w.same[output.name] = w.same.get(x.name, x.name)
            return [output]
        if kind != "Identity":
            w.notes.append(f"{w.called(facts.name)}: {kind} acts in training alone, and is left out")
        return [x]

    return describe


def _flatten(w: Writer, facts: LayerFacts, values: Sequence[Value]) -> list[Value]:
    x = one_input(facts, values)
    facts.need("data_format", "channels_last", None)
    return [w.add("flatten", facts, [x], (x.shape[0], count_of(x)), dtype=x.dtype)]


def _reshape(w: Writer, facts: LayerFacts, values: Sequence[Value]) -> list[Value]:
    x = one_input(facts, values)
    target, out = reshaped(facts, x)
    return [w.add("reshape", facts, [x], (x.shape[0], *out), dtype=x.dtype, sizes=target)]


def _permute(w: Writer, facts: LayerFacts, values: Sequence[Value]) -> list[Value]:
    x, order = one_input(facts, values), (0, *(int(n) for n in facts.get("dims")))
    return [w.add("transpose", facts, [x], tuple(x.shape[n] for n in order), dtype=x.dtype, order=order)]


def _repeat(w: Writer, facts: LayerFacts, values: Sequence[Value]) -> list[Value]:
    x, count = one_input(facts, values), int(facts.get("n"))
    return [w.add("repeat", facts, [x], (x.shape[0], count, x.shape[1]), dtype=x.dtype, count=count)]


LAYERS: Mapping[str, Describe] = {
    "Dense": _dense, "Embedding": _embedding, "Masking": _masking,
    "Flatten": _flatten, "Reshape": _reshape, "Permute": _permute, "RepeatVector": _repeat,
    **{name: _training_only("rate", "stddev", "l1", "l2") for name in (
        "Dropout", "SpatialDropout1D", "SpatialDropout2D", "SpatialDropout3D", "GaussianNoise", "GaussianDropout", "AlphaDropout",
        "ActivityRegularization", "Identity")},
    **FUNCTIONS, **SPACE, **NORMS, **MERGING, **ATTENTION, **RECURRENT,
}  # fmt: skip
"""The layers that are known, by their classes."""
