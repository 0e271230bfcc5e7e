"""Layers that few models have, written for every framework: heads of attention, scales, cells, unlike directions, norms over axes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rnnconvert as rc
from tests.drawn import drawn
from tests.random_models import fill
from tests.random_wirings import outcome
from tests.requirements import needed
from tests.test_scaffold_targets import TARGETS, check_equal, require

pytestmark = [
    pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:Layer .* was passed an input with a mask:UserWarning"),
    pytest.mark.filterwarnings("ignore:The structure of `inputs`:UserWarning"),
]
REFUSALS = ("of tensors with masks and of several shapes", "two directions of different cells or sizes", "called in two ways")
"""What may be refused of the models that are drawn."""


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("seed", drawn(range(200), 3, "wired models scaffolded"))
def test_wired_models_are_equal_or_refused_by_name(tmp_path: Path, seed: int, target: str) -> None:
    require(target)
    result, why = outcome(seed, target, tmp_path)
    assert result == "equal" or (result == "refused" and any(word in why for word in REFUSALS)), why


def _heads(keras: Any, x: Any, masked: Any) -> list[Any]:
    layers = keras.layers
    both = layers.MultiHeadAttention(2, 3, value_dim=5, output_shape=6, name="heads")
    seen = both(x, masked)
    plain = layers.MultiHeadAttention(3, 2, use_bias=False, dropout=0.2)(masked, masked, use_causal_mask=True)
    again, _ = both(x, x, use_causal_mask=True, return_attention_scores=True)
    return [seen, plain, again]


def _scales(keras: Any, x: Any, masked: Any) -> list[Any]:
    layers = keras.layers
    return [
        layers.Attention(use_scale=True)([x, masked]),
        layers.AdditiveAttention(name="added")([masked, x, masked]),
        layers.Attention(score_mode="concat")([x, masked], use_causal_mask=True),
    ]


def _cells(keras: Any, x: Any, masked: Any) -> list[Any]:
    layers = keras.layers
    stack = layers.RNN([layers.LSTMCell(3), layers.GRUCell(4, reset_after=False), layers.SimpleRNNCell(2)])(masked)
    deep = layers.RNN(layers.StackedRNNCells([layers.GRUCell(3), layers.GRUCell(4)]), return_sequences=True)(x)
    single, *states = layers.RNN(layers.LSTMCell(3), return_state=True, go_backwards=True)(x)
    return [stack, deep, single, *states]


def _axes(keras: Any, x: Any, masked: Any) -> list[Any]:
    layers = keras.layers
    wide = layers.Conv1D(4, 2)(x)
    return [layers.LayerNormalization(axis=[1, 2])(wide), layers.RMSNormalization(axis=[1, 2])(wide), layers.LayerNormalization()(masked)]


def _parts(keras: Any, x: Any, masked: Any) -> list[Any]:
    y = keras.layers.GRU(4, return_sequences=True)(masked)
    return [y[:, -1], x[:, 1:-1, 2], y[:, ::2], keras.layers.LSTM(3)(y[:, 2:]), x[:, :, -1:]]


GROUPS: dict[str, Callable[[Any, Any, Any], list[Any]]] = {
    "heads": _heads,
    "scales": _scales,
    "cells": _cells,
    "axes": _axes,
    "parts": _parts,
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("ending", ["keras", "h5"])
def test_layers_are_equal(tmp_path: Path, group: str, target: str, ending: str) -> None:
    require(target)
    keras = needed("keras", "keras")
    time = 9 if group == "axes" else None
    start, tokens = keras.Input((time, 4), name="features"), keras.Input((time,), dtype="int32", name="tokens")
    masked = keras.layers.Embedding(11, 4, mask_zero=True)(tokens)
    model = keras.Model([start, tokens], GROUPS[group](keras, start, masked))
    fill(model, 3)
    model.save(tmp_path / f"model.{ending}")
    rc.scaffold(tmp_path / f"model.{ending}", target, tmp_path / "model.py")
    check_equal(model, tmp_path / f"model.{ending}", tmp_path / "model.py", target)


def unlike(keras: Any) -> Any:
    layers, start = keras.layers, keras.Input((None, 4))
    back = layers.GRU(5, return_sequences=True, go_backwards=True)
    return keras.Model(start, layers.Bidirectional(layers.LSTM(3, return_sequences=True), backward_layer=back)(start))


def test_unlike_directions_are_kerass_alone(tmp_path: Path) -> None:
    keras = needed("keras", "keras")
    model = unlike(keras)
    fill(model, 3)
    model.save(tmp_path / "model.keras")
    rc.scaffold(tmp_path / "model.keras", "keras", tmp_path / "model.py")
    check_equal(model, tmp_path / "model.keras", tmp_path / "model.py", "keras")
    for target in ("pytorch", "flax"):
        with pytest.raises(rc.RefusedError, match="two directions of different cells or sizes"):
            rc.scaffold(tmp_path / "model.keras", target, tmp_path / f"{target}.py")


@pytest.mark.parametrize("policy", ["float16", "mixed_float16", "mixed_bfloat16", "float64"])
def test_other_types_of_numbers_are_refused(tmp_path: Path, policy: str) -> None:
    keras = needed("keras", "keras")
    start = keras.Input((None, 4))
    keras.Model(start, keras.layers.LSTM(3, dtype=policy, recurrent_initializer="zeros", name="half")(start)).save(tmp_path / "model.keras")
    with pytest.raises(rc.RefusedError, match=f"'half'.*computes in {policy.removeprefix('mixed_')}"):
        rc.scaffold(tmp_path / "model.keras", "pytorch", tmp_path / "model.py")


def test_channels_first_is_refused(tmp_path: Path) -> None:
    keras = needed("keras", "keras")
    start = keras.Input((3, None))
    keras.Model(start, keras.layers.Conv1D(3, 2, data_format="channels_first", name="first")(start)).save(tmp_path / "model.keras")
    with pytest.raises(rc.RefusedError, match=r"'first'.*channels_first"):
        rc.scaffold(tmp_path / "model.keras", "pytorch", tmp_path / "model.py")


def test_heads_of_attention_fill_dense_layers() -> None:
    keras = needed("keras", "keras")
    start = keras.Input((6, 4))
    model = keras.Model(start, keras.layers.MultiHeadAttention(2, 3, name="mha")(start, start))
    fill(model, 3)
    done = rc.load_into(keras.models.clone_model(model), model)
    assert {entry.target for entry in done.filled} == {"mha/query", "mha/key", "mha/value", "mha/attention_output"}
