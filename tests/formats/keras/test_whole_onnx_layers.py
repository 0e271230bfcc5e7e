"""Every layer that a whole model may have gives in ONNX what it gives in Keras."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rnnconvert.scaffolding.export import export_model
from tests.formats.keras.test_whole_onnx import run
from tests.helpers.requirements import needed

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")


def filled(model: Any, random: np.random.Generator) -> None:
    """Give every variable numbers that are not round, variances positive ones."""
    for weight in model.weights:
        if "seed" in weight.path or "int" in str(weight.dtype):
            continue
        values = random.normal(size=weight.shape) * 0.5
        weight.assign(np.abs(values) + 0.5 if "variance" in weight.path else values)
    for layer in model.layers:
        if hasattr(layer, "finalize_state"):
            layer.finalize_state()


def agrees(model: Any, x: Sequence[Any], folder: Path, seed: int = 0) -> None:
    """Check all outputs of a model in ONNX against its own."""
    keras = needed("keras", "keras")
    filled(model, np.random.default_rng(seed))
    model.save(folder / "model.keras")
    export_model(folder / "model.keras", folder / "model.onnx", force=True)
    expected = model(list(x) if len(x) > 1 else x[0], training=False)
    expected = list(expected) if isinstance(expected, (list, tuple)) else [expected]
    outputs = run(folder / "model.onnx", list(x))
    assert len(outputs) == len(expected)
    for output, truth, tensor in zip(outputs, expected, model.outputs, strict=True):
        truth = keras.ops.convert_to_numpy(truth)
        assert output.shape == truth.shape, tensor
        np.testing.assert_allclose(output, truth, rtol=3e-5, atol=3e-6, err_msg=str(tensor))


def line(k: Any) -> list[Any]:
    a = k.layers
    return [
        a.SeparableConv1D(5, 3, depth_multiplier=2, padding="same", activation="relu"), a.SeparableConv1D(4, 3, strides=2, padding="same"),
        a.SeparableConv1D(4, 2, use_bias=False), a.DepthwiseConv1D(3, depth_multiplier=2), a.DepthwiseConv1D(2, padding="same"),
        a.Conv1D(6, 3, groups=2, strides=2, padding="same"),
        a.Conv1DTranspose(4, 3), a.Conv1DTranspose(4, 3, strides=2, padding="same"), a.Conv1DTranspose(5, 2, strides=3, use_bias=False),
        a.Conv1DTranspose(4, 5, strides=2, activation="tanh"), a.Conv1DTranspose(2, 4, strides=3, padding="same"),
        a.MaxPooling1D(3, strides=2, padding="same"), a.AveragePooling1D(3, strides=1, padding="same"), a.AveragePooling1D(2),
        a.GlobalMaxPooling1D(), a.GlobalAveragePooling1D(keepdims=True),
        a.ZeroPadding1D(2), a.ZeroPadding1D((0, 3)), a.Cropping1D((1, 0)), a.Cropping1D(2), a.UpSampling1D(3),
        a.BatchNormalization(axis=1), a.BatchNormalization(scale=False, center=False), a.LayerNormalization(axis=1),
        a.LayerNormalization(axis=[1, 2], epsilon=0.1), a.LayerNormalization(center=False), a.LayerNormalization(scale=False),
        a.GroupNormalization(2), a.GroupNormalization(-1, scale=False), a.GroupNormalization(1, epsilon=0.1), a.UnitNormalization(),
        a.UnitNormalization(axis=[1, 2]), a.RMSNormalization(), a.RMSNormalization(axis=[1, 2], epsilon=0.1), a.Rescaling(0.3, 0.7),
        a.Normalization(mean=[1, 2, 3, 4, 5, 6.5], variance=[1, 2, 3, 4, 5, 0]), a.Normalization(axis=None, mean=0.5, variance=2.5),
        a.Normalization(axis=1), a.Normalization(axis=(1, 2)), a.Normalization(invert=True),
        a.ReLU(max_value=0.7), a.ReLU(threshold=0.4), a.ReLU(negative_slope=0.3), a.ReLU(0.9, 0.3, 0.5), a.ReLU(6.0), a.ReLU(0.5, 0.2),
        a.LeakyReLU(), a.ELU(0.4), a.PReLU(), a.PReLU(shared_axes=[1]), a.Softmax(), a.Softmax(axis=1), a.Identity(),
        a.Reshape((-1, 3)), a.Flatten(), a.Permute((2, 1)), a.SpatialDropout1D(0.2), a.GaussianNoise(0.3), a.GaussianDropout(0.2),
        a.AlphaDropout(0.2), a.ActivityRegularization(0.1),
        a.TimeDistributed(a.Dense(3)), a.TimeDistributed(a.BatchNormalization()), a.TimeDistributed(a.RepeatVector(2)),
        a.TimeDistributed(k.Sequential([k.Input((6,)), a.Dense(4, activation="selu"), a.Reshape((2, 2)), a.GRU(3)])),
    ]  # fmt: skip


def image(k: Any) -> list[Any]:
    a = k.layers
    return [
        a.Conv2D(4, (3, 2), strides=2, padding="same"), a.Conv2D(4, 3, dilation_rate=2),
        a.Conv2D(4, 2, groups=2, padding="same", activation="elu"),
        a.SeparableConv2D(5, (2, 3), depth_multiplier=3), a.SeparableConv2D(5, 3, strides=2, padding="same"),
        a.DepthwiseConv2D((3, 2), depth_multiplier=2), a.DepthwiseConv2D(3, strides=2, padding="same"),
        a.DepthwiseConv2D(2, dilation_rate=2, padding="same"), a.Conv2DTranspose(3, (3, 2), strides=2, padding="same"),
        a.Conv2DTranspose(3, (2, 4), strides=(3, 1)), a.MaxPooling2D(3, strides=2, padding="same"),
        a.AveragePooling2D((2, 3), padding="same"),
        a.GlobalMaxPooling2D(), a.GlobalAveragePooling2D(), a.ZeroPadding2D(((1, 0), (2, 3))), a.ZeroPadding2D((2, 1)), a.ZeroPadding2D(1),
        a.Cropping2D(((0, 1), (2, 0))), a.Cropping2D(1), a.UpSampling2D((2, 3)), a.UpSampling2D(2), a.GroupNormalization(2),
        a.BatchNormalization(axis=2), a.LayerNormalization(axis=[1, 3]), a.PReLU(shared_axes=[1, 2]), a.Permute((3, 1, 2)),
        a.SpatialDropout2D(0.1), a.TimeDistributed(a.Conv1D(3, 2)), a.TimeDistributed(a.LSTM(3)), a.Softmax(axis=2),
        a.TimeDistributed(a.Bidirectional(a.GRU(3, return_sequences=True))), a.TimeDistributed(a.TimeDistributed(a.Dense(2))),
        a.TimeDistributed(a.GroupNormalization(2)),
    ]  # fmt: skip


def space(k: Any) -> list[Any]:
    a = k.layers
    return [
        a.Conv3D(3, (2, 3, 1), padding="same"), a.Conv3D(3, 2, strides=2), a.Conv3DTranspose(2, 2, strides=2), a.MaxPooling3D(2),
        a.AveragePooling3D(2, strides=1, padding="same"), a.GlobalMaxPooling3D(), a.GlobalAveragePooling3D(keepdims=True),
        a.ZeroPadding3D(1), a.Cropping3D(((1, 0), (0, 1), (1, 1))), a.UpSampling3D((1, 2, 3)), a.SpatialDropout3D(0.1),
    ]  # fmt: skip


GROUPS: dict[str, tuple[Callable[[Any], list[Any]], tuple[int, ...]]] = {
    "line": (line, (9, 6)), "image": (image, (7, 6, 4)), "space": (space, (4, 5, 6, 2)),
}  # fmt: skip


@pytest.mark.parametrize("name", GROUPS)
def test_each_layer_gives_what_keras_gives(name: str, tmp_path: Path) -> None:
    keras = needed("keras", "keras")
    layers, shape = GROUPS[name]
    x = keras.Input(shape)
    values = np.random.default_rng(5).normal(size=(3, *shape)).astype(np.float32)
    agrees(keras.Model(x, [layer(x) for layer in layers(keras)]), [values], tmp_path)


def test_layers_over_an_open_length(tmp_path: Path) -> None:
    k = needed("keras", "keras")
    a = k.layers
    x = k.Input((None, 6))
    temporal = [
        a.SeparableConv1D(5, 3, strides=2, padding="same"), a.DepthwiseConv1D(3), a.Conv1DTranspose(4, 3, strides=2),
        a.MaxPooling1D(2, padding="same"),
        a.ZeroPadding1D(1), a.Cropping1D(1), a.UpSampling1D(2), a.LayerNormalization(), a.GroupNormalization(3),
        a.UnitNormalization(axis=1),
        a.TimeDistributed(a.Dense(2)),
    ]  # fmt: skip
    y = k.Input((None, None, 3))
    words = a.TimeDistributed(a.Bidirectional(a.LSTM(3)))(y)
    random = np.random.default_rng(6)
    model = k.Model([x, y], [*(layer(x) for layer in temporal), a.GRU(2)(words), a.UpSampling2D(2)(y)])
    agrees(model, [random.normal(size=shape).astype(np.float32) for shape in ((2, 7, 6), (2, 4, 5, 3))], tmp_path)


def test_merges_of_tensors_with_other_axes(tmp_path: Path) -> None:
    k = needed("keras", "keras")
    a = k.layers
    first, second, flat = k.Input((5, 4)), k.Input((3, 4)), k.Input((4,))
    narrow = k.Input((1, 4))
    outputs = [merge([first, flat]) for merge in (a.Add(), a.Subtract(), a.Multiply(), a.Average(), a.Maximum(), a.Minimum())]
    outputs += [a.Add()([flat, first, narrow]), a.Concatenate(axis=1)([first, second]), a.Concatenate()([flat, flat])]
    outputs += [
        a.Dot(axes=2)([first, second]), a.Dot(axes=-1, normalize=True)([first, second]), a.Dot(axes=(2, 1))([first, flat]),
        a.Dot(axes=(1, 2))([flat, second]),
        a.Dot(axes=1)([flat, flat]), a.Dot(axes=(1, 1), normalize=True)([a.Dense(2)(first), first]),
        a.Dot(axes=1, normalize=True)([flat, flat]),
    ]  # fmt: skip
    random = np.random.default_rng(7)
    x = [random.normal(size=(2, *shape)).astype(np.float32) for shape in ((5, 4), (3, 4), (4,), (1, 4))]
    agrees(k.Model([first, second, flat, narrow], outputs), x, tmp_path)


def test_time_distributed_embeddings(tmp_path: Path) -> None:
    k = needed("keras", "keras")
    x = k.Input((None, 4), dtype="int32")
    y = k.layers.TimeDistributed(k.layers.Embedding(9, 3))(x)
    y = k.layers.TimeDistributed(k.layers.LSTM(3))(y)
    agrees(k.Model(x, k.layers.GRU(2)(y)), [np.random.default_rng(8).integers(0, 9, (2, 3, 4)).astype(np.int32)], tmp_path)


def test_initial_states_between_layers(tmp_path: Path) -> None:
    k = needed("keras", "keras")
    a = k.layers
    x, y, h = k.Input((None, 4)), k.Input((None, 3)), k.Input((5,))
    _, *both = a.LSTM(5, return_state=True)(x)
    every, *states = a.Bidirectional(a.LSTM(5, return_sequences=True, return_state=True))(x)
    joined = [a.Concatenate()([states[n], states[n + 2]]) for n in (0, 1)]
    _, last = a.GRU(5, return_state=True, go_backwards=True)(x)
    halves, *ends = a.Bidirectional(a.GRU(5, return_state=True), merge_mode="sum")(y, initial_state=[last, h])
    outputs = [
        a.LSTM(5, return_sequences=True)(y, initial_state=both), a.LSTM(10)(y, initial_state=joined), every, halves, *ends,
        a.GRU(5)(y, initial_state=h), a.GRU(5, reset_after=False, go_backwards=True, return_sequences=True)(y, h),
        a.SimpleRNN(5)(y, initial_state=[last]), *a.Bidirectional(a.LSTM(5), merge_mode=None)(y, initial_state=states),
        *a.SimpleRNN(5, return_state=True)(y, initial_state=a.Dense(5, activation="tanh")(h)),
    ]  # fmt: skip
    random = np.random.default_rng(9)
    agrees(k.Model([x, y, h], outputs), [random.normal(size=n).astype(np.float32) for n in ((2, 6, 4), (2, 3, 3), (2, 5))], tmp_path)


def test_attention(tmp_path: Path) -> None:
    k = needed("keras", "keras")
    a = k.layers
    x, y = k.Input((None, 4)), k.Input((None, 4))
    wide = a.Dense(6)(y)
    outputs = []
    for make in (
        lambda: a.Attention(), lambda: a.Attention(use_scale=True, dropout=0.1), lambda: a.Attention(score_mode="concat"),
        lambda: a.Attention(use_scale=True, score_mode="concat"), lambda: a.AdditiveAttention(),
        lambda: a.AdditiveAttention(use_scale=False),
    ):  # fmt: skip
        outputs += [make()([x, y]), make()([x, wide, y], use_causal_mask=True), *make()([y, x], return_attention_scores=True)]
    for options in ({}, {"value_dim": 5, "dropout": 0.2}, {"use_bias": False, "output_shape": 7}):

        def many(options: Any = options) -> Any:
            return a.MultiHeadAttention(2, 3, **options)

        outputs += [many()(x, y), many()(x, wide, y), many()(x, x, use_causal_mask=True), many()(query=x, value=wide, key=y),
                    many()(x, key=y, value=wide, use_causal_mask=True), *many()(x, y, return_attention_scores=True)]  # fmt: skip
    random = np.random.default_rng(10)
    agrees(k.Model([x, y], outputs), [random.normal(size=n).astype(np.float32) for n in ((2, 6, 4), (2, 4, 4))], tmp_path)


def test_a_translator_with_attention_is_whole(tmp_path: Path) -> None:
    k = needed("keras", "keras")
    a = k.layers
    source, target = k.Input((None,), dtype="int32"), k.Input((None,), dtype="int32")
    read, h, c = a.LSTM(6, return_sequences=True, return_state=True)(a.Embedding(11, 4)(source))
    decoded = a.LSTM(6, return_sequences=True)(a.Embedding(13, 4)(target), initial_state=[h, c])
    looked = a.LayerNormalization()(a.Add()([decoded, a.MultiHeadAttention(2, 3)(decoded, read)]))
    y = a.Dense(13, activation="softmax")(a.Concatenate()([looked, a.AdditiveAttention()([decoded, read])]))
    random = np.random.default_rng(11)
    x = [random.integers(0, 11, size).astype(np.int32) for size in ((3, 7), (3, 5))]
    agrees(k.Model([source, target], y), x, tmp_path)


def chain(k: Any, random: np.random.Generator) -> Any:
    """A whole model drawn from layers over time."""
    a = k.layers

    def units() -> int:
        return int(random.integers(1, 7)) * 2

    def recurrent() -> Any:
        kind = random.choice([a.LSTM, a.GRU, a.SimpleRNN])
        more = {"reset_after": bool(random.integers(2))} if kind is a.GRU else {}
        return kind(units(), return_sequences=True, use_bias=bool(random.integers(2)), **more)

    def attend(x: Any) -> Any:
        causal = bool(random.integers(2))
        if random.integers(2):
            return a.MultiHeadAttention(2, 3)(x, x, use_causal_mask=causal)
        return random.choice([a.Attention(use_scale=True), a.AdditiveAttention()])([x, x], use_causal_mask=causal)

    def hand_on(x: Any) -> Any:
        _, *states = a.LSTM(units(), return_state=True)(x)
        return a.LSTM(states[0].shape[1], return_sequences=True)(x, initial_state=states)

    kinds = ("same", "valid")
    steps: list[Callable[[Any], Any]] = [
        lambda x: recurrent()(x), lambda x: a.Bidirectional(recurrent(), merge_mode=str(random.choice(["concat", "sum", "ave", "mul"])))(x),
        attend, hand_on, lambda x: a.Add()([x, a.Dense(x.shape[-1], activation="tanh")(x)]), lambda x: a.LayerNormalization()(x),
        lambda x: a.BatchNormalization()(x), lambda x: a.GroupNormalization(2)(x), lambda x: a.RMSNormalization()(x),
        lambda x: a.Conv1D(units(), int(random.integers(1, 4)), padding=str(random.choice([*kinds, "causal"])))(x),
        lambda x: a.SeparableConv1D(units(), 3, strides=int(random.integers(1, 3)), padding="same")(x),
        lambda x: a.Conv1DTranspose(units(), int(random.integers(1, 5)), strides=int(random.integers(1, 4)),
                                    padding=str(random.choice(kinds)))(x),
        lambda x: a.ZeroPadding1D(2)(x), lambda x: a.UpSampling1D(2)(x), lambda x: a.MaxPooling1D(2, padding="same")(x),
        lambda x: a.AveragePooling1D(3, strides=2, padding="same")(x), lambda x: a.Multiply()([x, a.GlobalAveragePooling1D()(x)]),
        lambda x: a.TimeDistributed(a.Dense(units(), activation="gelu"))(x),
        lambda x: a.Concatenate()([x, a.Softmax(axis=1)(x)]), lambda x: a.ReLU(1.5, 0.1, 0.2)(x),
    ]  # fmt: skip
    x = y = k.Input((None if random.integers(2) else 9, 4))
    for number in random.integers(0, len(steps), 6):
        y = steps[number](y)
    return k.Model(x, [y, a.GRU(3)(y)])


@pytest.mark.drawn(3)
@pytest.mark.parametrize("seed", range(60))
def test_models_drawn_from_all_layers(seed: int, tmp_path: Path) -> None:
    keras = needed("keras", "keras")
    random = np.random.default_rng(seed)
    agrees(chain(keras, random), [random.normal(size=(2, 9, 4)).astype(np.float32)], tmp_path, seed)


@pytest.mark.parametrize("kind", ["MaxPooling1D", "AveragePooling1D", "MaxPooling2D"])
def test_a_pooling_of_less_than_a_window_stops_as_in_keras(kind: str, tmp_path: Path) -> None:
    k = needed("keras", "keras")
    axes = int(kind[-2])
    x = k.Input((*[None] * axes, 2))
    model = k.Model(x, getattr(k.layers, kind)(5, strides=3)(x))
    rows = np.random.default_rng(6).normal(size=(2, *[9] * axes, 2)).astype(np.float32)
    for length in (9, 8, 7, 5):
        agrees(model, [rows[:, :length]], tmp_path)
    with pytest.raises(Exception, match="cannot be reshaped"):
        run(tmp_path / "model.onnx", [rows[:, :3]])


def test_a_function_that_overflows_in_onnxruntime_is_noted(tmp_path: Path) -> None:
    k = needed("keras", "keras").layers
    for name, activation, noted in (("LSTM", "softplus", True), ("GRU", "softplus", True), ("LSTM", "elu", False)):
        x = k.Input((2, 3))
        needed("keras", "keras").Model(x, getattr(k, name)(2, activation=activation)(x)).save(tmp_path / "model.keras")
        done = export_model(tmp_path / "model.keras", tmp_path / "model.onnx", force=True)
        assert any("infinity for Softplus" in note for note in done.notes) is noted, (name, activation)
