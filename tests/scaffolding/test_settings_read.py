"""Every setting of a kind is read by the rule that writes the kind, in every target, or what states it otherwise is named here."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from types import CodeType
from typing import Any

import pytest

from rnnconvert.scaffolding import kinds

TABLES = {
    "PyTorch": "formats.pytorch.scaffold.layers",
    "Keras": "formats.keras.scaffold.layers",
    "Flax": "formats.jax.scaffold.layers",
    "operations": "scaffolding.graph.model",
    "ncnn": "formats.ncnn.export_rules",
    "C": "formats.c_header.target_rules",
}
"""The modules of the tables of rules, which have them as RULES."""
TRAINING = {"Dropout.name", "Dropout.rate", "BatchNorm.momentum", "MultiHead.dropout"}
"""What a run does not depend on."""
ELSEWHERE = {"Recurrent.rare", "Mask.packed", "Loop.states", "Model.scope", "RMSNorm.shift", "PReLU.vector", "ConvLSTM.channels_first"}
"""What the caller of the rules reads or refuses, what is for simplification alone, and what no model has: a shift of an RMS norm, a
ConvLSTM of channels behind the batch."""
BY_WEIGHTS = {
    f"{kind}.{field}"
    for names, several in (
        (("Dense", "Conv", "ConvTransposed", "ConvLSTM"), ("units", "bias", "channels", "filters")),
        (("BatchNorm", "GroupNorm"), ("scale", "shift", "size")),
        (("Embedding", "MultiHead"), ("input_size", "output_size", "output", "widths", "bias")),
        (("Recurrent", "Attention", "LayerWeight"), ("cells", "units", "biases", "sizes", "bias")),
    )
    for kind in names
    for field in several
}
"""What the arrays state that a target writes."""
CHANNELS_LAST = {
    "Conv.channels_first", "ConvTransposed.channels_first", "ConvTransposed.groups", "Pool.channels_first", "Pool.ceil", "Pool.counted",
    "GroupNorm.axis",
}  # fmt: skip
"""What is settled or refused before a target whose layers have their channels at the end."""
OTHERWISE = {
    "PyTorch": {"ConvLSTM.size"},
    # Its own layers compute both from the other settings, and take arrays of a layer alone nowhere.
    "Keras": {"ConvTransposed.output_padding", "ConvLSTM.size", "MultiHead.zeros", "LayerWeight.of", "LayerWeight.array", *CHANNELS_LAST},
    "Flax": CHANNELS_LAST,
    # A function of bounds is refused by its name, a mask of a layer as such, and shapes are those of what a node gives.
    "ncnn": {"Activation.highest", "Activation.threshold", "Recurrent.zero", "Reshape.sizes", "MergeAxes.stop", "SplitAxis.lengths"},
    # Truths of all of an axis are refused by the name of their operation, and shapes are likewise those of what a node gives.
    "C": {
        "Mask.axis", "Mask.keep", "Full.lengths", "Reshape.sizes", "View.lengths", "ReshapeAll.sizes", "MergeAxes.start", "MergeAxes.stop",
        "SplitAxis.axis", "SplitAxis.lengths", "Expand.lengths",
    },
}  # fmt: skip


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def names_read(rule: Any, seen: set[CodeType] | None = None) -> set[str]:
    """Return the names of attributes that a rule reads, or a function that it names or holds."""
    seen = set() if seen is None else seen
    if isinstance(rule, functools.partial):
        return set().union(*(names_read(part, seen) for part in (rule.func, *rule.args, *rule.keywords.values())))
    code = getattr(rule, "__code__", None)
    if code is None or code in seen:
        return set()
    seen.add(code)
    names = {name for inner in _codes(code) for name in inner.co_names}
    reached = [rule.__globals__.get(name) for name in names] + [cell.cell_contents for cell in rule.__closure__ or ()]
    for value in reached:
        for function in value.values() if isinstance(value, Mapping) else [value]:
            if callable(function) and str(getattr(function, "__module__", "")).startswith("rnnconvert."):
                names |= names_read(function, seen)
    return names


def unread(kind: type[kinds.Kind], rule: Callable[..., Any]) -> set[str]:
    """Return the settings of a kind that a rule does not read."""
    names = names_read(rule)
    for name in [name for name in names if isinstance(getattr(kind, name, None), property)]:
        names |= names_read(getattr(kind, name).fget)
    return {f"{kind.__name__}.{field.name}" for field in fields(kind) if field.name not in names}


@pytest.mark.parametrize("target", TABLES)
def test_every_setting_of_a_kind_is_read(target: str) -> None:
    table = importlib.import_module(f"rnnconvert.{TABLES[target]}").RULES
    lacking = set().union(*(unread(kind, rule) for kind, rule in table.items()))
    assert lacking - TRAINING - ELSEWHERE - BY_WEIGHTS == OTHERWISE.get(target, set())


def test_a_setting_that_a_rule_leaves_unread_is_seen() -> None:
    assert unread(kinds.UnitNorm, lambda m, node: f"unit({node.kind.axes})") == {"UnitNorm.epsilon"}
    assert unread(kinds.UnitNorm, lambda m, node: (node.kind.axes, node.kind.epsilon)) == set()
