"""Layers that few models have, written for every framework: heads of attention, scales, cells, unlike directions, norms over axes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rnnconvert as rc
from tests.helpers.drawn import drawn
from tests.helpers.random_models import fill
from tests.helpers.random_wirings import outcome
from tests.helpers.requirements import needed
from tests.scaffolding.test_scaffold_targets import TARGETS, check_equal, require

pytestmark = [
    pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:Layer .* was passed an input with a mask:UserWarning"),
    pytest.mark.filterwarnings("ignore:The structure of `inputs`:UserWarning"),
    pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel:UserWarning"),
]
REFUSALS = ("of tensors with masks and of several shapes", "called in two ways")
"""What may be refused of the models that are drawn."""


def endings(name: str) -> list[tuple[str, str]]:
    """Every target, each with a kind of file that is drawn."""
    return [(target, ending) for target in TARGETS for ending in drawn(("keras", "h5"), 1, f"{name} {target}")]


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


def _operators(keras: Any, x: Any, masked: Any) -> list[Any]:
    """x + y and its like, which a functional model holds as operations and not as layers."""
    y = keras.layers.LSTM(4, return_sequences=True)(x)
    mixed = 1.0 - (x + y) * 0.5 - y * x
    return [keras.layers.GRU(3)(mixed), keras.ops.maximum(mixed, keras.ops.minimum(x, 0.25))]


GROUPS: dict[str, Callable[[Any, Any, Any], list[Any]]] = {
    "heads": _heads,
    "scales": _scales,
    "cells": _cells,
    "axes": _axes,
    "parts": _parts,
    "operators": _operators,
}


@pytest.mark.parametrize(("group", "target", "ending"), [(group, *case) for group in GROUPS for case in endings(group)])
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
    """Directions that differ in their cells, functions, sizes and biases, under masks and without, joined in every way."""
    layers, start = keras.layers, keras.Input((None, 4))

    def both(x: Any, forward: Any, backward: Any, **settings: Any) -> Any:
        return layers.Bidirectional(forward, backward_layer=backward, **settings)(x)

    def back(kind: str, size: int, **settings: Any) -> Any:
        return getattr(layers, kind)(size, go_backwards=True, **settings)

    masked = layers.Masking()(start)
    wide = both(masked, layers.LSTM(3, return_sequences=True), back("GRU", 5, return_sequences=True))
    x = both(masked, layers.LSTM(3, return_sequences=True), back("GRU", 3, return_sequences=True))
    x = both(x, layers.LSTM(3, activation="relu", return_sequences=True), back("LSTM", 3, return_sequences=True), merge_mode="sum")
    first, second = both(x, layers.GRU(3, use_bias=False), back("GRU", 3), merge_mode=None)
    y = both(start, layers.LSTM(4), back("SimpleRNN", 4), merge_mode="mul")
    z, *states = both(start, layers.LSTM(3, return_state=True), back("LSTM", 3, activation="relu", return_state=True))
    again = layers.Bidirectional(layers.LSTM(3, activation="relu"), backward_layer=back("LSTM", 3))(start, initial_state=states)
    return keras.Model(start, [wide, first, second, y, z, states[1], again])


@pytest.mark.parametrize("target", TARGETS)
def test_unlike_directions(tmp_path: Path, target: str) -> None:
    require(target)
    model = unlike(needed("keras", "keras"))
    fill(model, 3)
    model.save(tmp_path / "model.keras")
    rc.scaffold(tmp_path / "model.keras", target, tmp_path / "model.py")
    check_equal(model, tmp_path / "model.keras", tmp_path / "model.py", target)


def test_unlike_directions_that_are_joined_otherwise_are_refused() -> None:
    keras = needed("keras", "keras")
    layers, models = keras.layers, []
    for merge in ("concat", "sum"):
        start, back = keras.Input((None, 4)), layers.GRU(3, go_backwards=True)
        models.append(keras.Model(start, layers.Bidirectional(layers.LSTM(3), backward_layer=back, merge_mode=merge)(start)))
    with pytest.raises(rc.RnnConvertError, match=r"joins its directions by concat.*by sum"):
        rc.load_into(*models)


def named_alike(keras: Any) -> Any:
    """Models in a model whose layers have the names of one another."""
    layers = keras.layers

    def inner(name: str) -> Any:
        start = keras.Input((None, 4))
        x = layers.LSTM(4, return_sequences=True, name="encoder")(start)
        return keras.Model(start, layers.Dense(4, name="project")(x), name=name)

    start = keras.Input((None, 4))
    x = layers.Add()([inner("first")(start), inner("second")(start)])
    return keras.Model(start, layers.LSTM(4, name="encoder")(x))


@pytest.mark.parametrize(("target", "ending"), endings("one name"))
def test_layers_of_one_name_in_several_models(tmp_path: Path, target: str, ending: str) -> None:
    require(target)
    model = named_alike(needed("keras", "keras"))
    fill(model, 3)
    model.save(tmp_path / f"model.{ending}")
    rc.scaffold(tmp_path / f"model.{ending}", target, tmp_path / "model.py")
    check_equal(model, tmp_path / f"model.{ending}", tmp_path / "model.py", target)


def test_a_layer_that_two_models_share_is_not_filled_in_one_of_them_alone(tmp_path: Path) -> None:
    """A .keras file has its arrays once, in one of the two models."""
    require("pytorch")
    keras = needed("keras", "keras")
    dense, inner = keras.layers.Dense(4, name="both"), keras.Input((None, 4))
    start = keras.Input((None, 4))
    keras.Model(start, dense(keras.Model(inner, dense(inner))(start))).save(tmp_path / "model.keras")
    with pytest.raises(rc.RnnConvertError, match="nothing in the source fits 'both'"):
        rc.scaffold(tmp_path / "model.keras", "pytorch", tmp_path / "model.py", verify=True)
    assert not (tmp_path / "model.py").exists()


def convolving(keras: Any) -> Any:
    """LSTMs whose products are convolutions: of every number of axes, strides, dilation, functions, states that are read and given."""
    layers = keras.layers
    line, plane, room = keras.Input((None, 6, 2)), keras.Input((None, 6, 5, 2)), keras.Input((4, 4, 5, 3, 2))
    first = layers.ConvLSTM1D(3, 3, strides=2, padding="same", activation="relu", use_bias=False, go_backwards=True)(line)
    x, h, c = layers.ConvLSTM2D(3, (2, 3), padding="same", return_sequences=True, return_state=True)(plane)
    x = layers.ConvLSTM2D(3, 3, padding="same", recurrent_activation="hard_sigmoid", return_sequences=True)(x, initial_state=[h, c])
    x = layers.ConvLSTM2D(2, 2, dilation_rate=2)(layers.TimeDistributed(layers.Conv2D(3, 2))(x))
    third = layers.ConvLSTM3D(2, (2, 3, 2), strides=(1, 2, 1), padding="same")(room)
    return keras.Model([line, plane, room], [first, layers.BatchNormalization()(x), third])


@pytest.mark.parametrize(("target", "ending"), endings("convolutions"))
def test_lstms_of_convolutions(tmp_path: Path, target: str, ending: str) -> None:
    require(target)
    model = convolving(needed("keras", "keras"))
    fill(model, 3)
    model.save(tmp_path / f"model.{ending}")
    rc.scaffold(tmp_path / f"model.{ending}", target, tmp_path / "model.py")
    check_equal(model, tmp_path / f"model.{ending}", tmp_path / "model.py", target)


def test_convolutions_of_a_users_own_lstm_are_not_filled() -> None:
    """A module's own gates may have any order, so that sizes alone are no evidence."""
    keras, torch = needed("keras", "keras"), needed("torch", "torch")
    start = keras.Input((None, 6, 5, 2))
    source = keras.Model(start, keras.layers.ConvLSTM2D(3, 3)(start))
    target = torch.nn.ModuleDict({"input": torch.nn.Conv2d(2, 12, 3), "recurrent": torch.nn.Conv2d(3, 12, 3, bias=False)})
    with pytest.raises(rc.RnnConvertError, match="nothing in the source fits 'input'"):
        rc.load_into(target, source)


@pytest.mark.parametrize("policy", ["float16", "float64"])
def test_other_types_of_numbers_are_refused(tmp_path: Path, policy: str) -> None:
    keras = needed("keras", "keras")
    start = keras.Input((None, 4))
    keras.Model(start, keras.layers.LSTM(3, dtype=policy, recurrent_initializer="zeros", name="half")(start)).save(tmp_path / "model.keras")
    with pytest.raises(rc.RefusedError, match=f"'half'.*a layer of {policy}"):
        rc.scaffold(tmp_path / "model.keras", "pytorch", tmp_path / "model.py")


@pytest.mark.parametrize("target", TARGETS)
def test_mixed_precision_is_written_and_proved_in_float32(target: str, tmp_path: Path) -> None:
    """As people train on GPUs: weights of float32 in layers that compute in half precision, with a last one that does not."""
    keras = needed("keras", "keras")
    require(target)
    layers, mixed = keras.layers, {"dtype": "mixed_float16"}
    start = keras.Input((6,), dtype="int32")
    x = layers.Embedding(9, 4, mask_zero=True, **mixed)(start)
    x = layers.Bidirectional(layers.LSTM(3, return_sequences=True, **mixed), **mixed)(x)
    inner = keras.Sequential([keras.Input((6, 6)), layers.TimeDistributed(layers.Dense(5, **mixed), **mixed), layers.GRU(3, **mixed)])
    model = keras.Model(start, layers.Dense(2, dtype="float32")(inner(x)))
    model.save(tmp_path / "model.keras")
    done = rc.scaffold(tmp_path / "model.keras", target, tmp_path / "model.py", verify=True)
    assert done.equal
    assert any("mixed_float16" in note for note in done.notes)
    assert all(any("ran in float32" in note for note in proof.notes) for proof in done.proof)


def test_mixed_precision_is_exported_in_float32(tmp_path: Path) -> None:
    keras = needed("keras", "keras")
    layers = [keras.layers.GRU(3, dtype="mixed_float16", return_sequences=True), keras.layers.Dense(2, dtype="mixed_bfloat16")]
    keras.Sequential([keras.Input((6, 4)), *layers]).save(tmp_path / "model.keras")
    done = rc.export_model(tmp_path / "model.keras", tmp_path / "model.onnx", verify=True)
    assert done.equal
    assert ["mixed_bfloat16" in note for note in done.notes] == [True, False]


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
