"""Whole Keras models with masks, as ONNX: every mask gives what Keras gives, padding at either end, gaps and empty sequences."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from rnnconvert.core.errors import RefusedError
from rnnconvert.scaffolding.export import export_model
from tests.formats.keras.test_whole_onnx_layers import agrees
from tests.helpers.requirements import needed

pytestmark = [
    pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:Layer .* was passed an input with a mask:UserWarning"),
]


def words(random: np.random.Generator, batch: int = 6, steps: int = 7, padded: float = 0.4) -> Any:
    """Whole numbers whose zeros are padding: gaps, one sequence without a word, one full, one padded at the right, one at the left."""
    ids = random.integers(1, 9, (batch, steps)) * (random.random((batch, steps)) > padded)
    ids[0], ids[1] = 0, random.integers(1, 9, steps)
    ids[2] = np.r_[random.integers(1, 9, steps - 3), [0] * 3]
    ids[3] = np.r_[[0] * 3, random.integers(1, 9, steps - 3)]
    return ids.astype(np.int32)


def recurrent(k: Any, x: Any, kinds: slice = slice(None)) -> list[Any]:
    """Return what every kind of recurrent layer, or some of them, makes of a masked tensor."""
    a = k.layers
    outputs: list[Any] = []
    for kind in [a.LSTM, a.GRU, a.SimpleRNN, lambda *n, **w: a.GRU(*n, reset_after=False, **w)][kinds]:
        for options in (
            {}, {"go_backwards": True}, {"return_sequences": True}, {"return_sequences": True, "go_backwards": True, "return_state": True},
            {"return_state": True}, {"zero_output_for_mask": True, "return_sequences": True}, {"zero_output_for_mask": True},
            {"zero_output_for_mask": True, "go_backwards": True, "return_sequences": True},
            {"zero_output_for_mask": True, "go_backwards": True, "return_state": True},
        ):  # fmt: skip
            output = kind(3, **options)(x)
            outputs += output if isinstance(output, (list, tuple)) else [output]
        outputs += [a.Bidirectional(kind(2, return_sequences=True), merge_mode=mode)(x) for mode in ("concat", "ave")]
        outputs += [a.Bidirectional(kind(2), merge_mode="mul")(x), *a.Bidirectional(kind(2, return_sequences=True), merge_mode=None)(x)]
        outputs += a.Bidirectional(kind(2, return_state=True, return_sequences=True, zero_output_for_mask=False))(x)
    return outputs


def test_every_recurrent_layer_skips_the_steps_that_keras_skips(tmp_path: Path) -> None:
    k = needed("keras", "keras")
    ids, features = k.Input((None,), dtype="int32"), k.Input((7, 4))
    embedded = k.layers.Embedding(9, 4, mask_zero=True)(ids)
    outputs = recurrent(k, embedded) + recurrent(k, k.layers.Masking(0.5)(features), slice(1))
    random = np.random.default_rng(1)
    rows = random.normal(size=(6, 7, 4)).astype(np.float32)
    rows[words(random) == 0] = 0.5
    rows[5, 2, 1] = 0.5  # one number of a step is not the step
    agrees(k.Model([ids, features], outputs), [words(random), rows], tmp_path)


def test_masks_go_on_through_layers_and_stop_where_keras_drops_them(tmp_path: Path) -> None:
    k = needed("keras", "keras")
    a = k.layers
    ids, other, flat = k.Input((6,), dtype="int32"), k.Input((6,), dtype="int32"), k.Input((4,))
    x, y = (a.Embedding(9, 4, mask_zero=True)(tokens) for tokens in (ids, other))
    plain = a.Embedding(9, 4)(ids)

    def read(value: Any) -> list[Any]:
        return [a.GRU(2, return_sequences=True)(value), a.GlobalAveragePooling1D()(value)]

    outputs = []
    for layer in (
        a.Dense(3, activation="tanh"), a.Activation("softmax"), a.ReLU(), a.LeakyReLU(), a.ELU(), a.PReLU(), a.BatchNormalization(),
        a.LayerNormalization(), a.GroupNormalization(2), a.UnitNormalization(), a.Rescaling(0.5), a.Dropout(0.2), a.SpatialDropout1D(0.2),
        a.GaussianNoise(0.2), a.Identity(), a.ActivityRegularization(0.1), a.TimeDistributed(a.Dense(2)), a.LSTM(3, return_sequences=True),
        a.Bidirectional(a.GRU(2, return_sequences=True)), a.Normalization(mean=0.5, variance=2.0), a.AlphaDropout(0.2),
        a.GlobalMaxPooling1D(keepdims=True), a.Permute((1, 2)), a.Reshape((6, 4)), a.Conv1D(3, 2), a.RMSNormalization(), a.Cropping1D(1),
        a.UpSampling1D(2), a.ZeroPadding1D(1), a.MaxPooling1D(2), a.AveragePooling1D(2),
        a.Masking(0.3), a.TimeDistributed(a.BatchNormalization()), a.TimeDistributed(a.Dropout(0.1)),
    ):  # fmt: skip
        outputs += read(layer(x))
    for merge in (a.Add, a.Multiply, a.Average, a.Maximum, a.Minimum, a.Concatenate, lambda: a.Concatenate(axis=1)):
        for values in ([x, y], [x, plain], [plain, y, x], [x, y, x], [x, y, plain]):
            outputs += [*read(merge()(values)), merge()(values)]
    outputs += read(a.Subtract()([x, y])) + read(a.Subtract()([x, plain])) + read(a.Multiply()([x, flat])) + read(a.Maximum()([flat, x]))
    outputs += [a.Dot(2)([x, y]), *read(a.Add()([x, flat])), a.GlobalAveragePooling1D(keepdims=True)(x)]
    random = np.random.default_rng(2)
    inputs = [words(random, 6, 6), words(random, 6, 6), random.normal(size=(6, 4)).astype(np.float32)]
    inputs[1][4] = inputs[0][4] = 0
    agrees(k.Model([ids, other, flat], outputs), inputs, tmp_path)


def test_attention_looks_at_what_counts(tmp_path: Path) -> None:
    k = needed("keras", "keras")
    a = k.layers
    ids, other, free = (k.Input((None,), dtype="int32"), k.Input((None,), dtype="int32"), k.Input((None, None), dtype="bool"))

    def fresh() -> tuple[Any, Any]:
        return a.Embedding(9, 4, mask_zero=True)(ids), a.Embedding(9, 4, mask_zero=True)(other)

    outputs = []
    for make in (lambda: a.Attention(), lambda: a.AdditiveAttention(), lambda: a.Attention(score_mode="concat", use_scale=True)):
        x, y = fresh()
        outputs += [
            make()([x, y]),
            *make()([y, x], return_attention_scores=True),
            a.GRU(2)(make()([x, a.Dense(4)(y), y], use_causal_mask=True)),
        ]
    for options in ({}, {"dropout": 0.2}):
        for call in (
            lambda many, x, y: many(x, y), lambda many, x, y: many(x, x, use_causal_mask=True),
            lambda many, x, y: many(x, y, key=a.Dense(3)(y)),
            lambda many, x, y: many(x, y, return_attention_scores=True)[0], lambda many, x, y: many(x, y, attention_mask=free),
            lambda many, x, y: many(a.Reshape((-1, 4))(x), y), lambda many, x, y: many(query=x, value=a.Reshape((-1, 4))(y), key=y),
            lambda many, x, y: many(x, y, return_attention_scores=True, use_causal_mask=True)[1],
        ):  # fmt: skip
            outputs.append(call(a.MultiHeadAttention(2, 3, **options), *fresh()))
    x, y = fresh()
    attended = a.MultiHeadAttention(2, 3)(x, x)  # Keras takes the mask off x here
    outputs += [a.GlobalAveragePooling1D()(a.Add()([x, attended])), a.GRU(3)(attended), a.GRU(3)(x), a.GRU(3)(a.Dense(2)(a.Dense(2)(x)))]
    random = np.random.default_rng(3)
    inputs = [words(random), words(random, 6, 5), random.random((6, 7, 5)) > 0.4]
    agrees(k.Model([ids, other, free], outputs), inputs, tmp_path)


def test_states_masks_that_calls_name_and_models_inside(tmp_path: Path) -> None:
    k = needed("keras", "keras")
    a, ops = k.layers, k.ops
    ids, h, steps = k.Input((None,), dtype="int32"), k.Input((3,)), k.Input((None,), dtype="bool")
    x = a.Embedding(9, 4, mask_zero=True)(ids)
    plain = a.Embedding(9, 4)(ids)
    named = ops.logical_or(ops.logical_and(ops.not_equal(ids, 3), ids >= 2), ops.logical_not(steps))
    inside = k.Input((None, 4))
    model = k.Model(inside, a.LSTM(3, return_sequences=True)(a.Dense(4)(inside)))
    shared = a.GRU(3, return_sequences=True, return_state=True)
    outputs = [
        a.GRU(3)(x, initial_state=h),  # Keras reads no mask here
        *a.LSTM(3, return_sequences=True, return_state=True)(x, initial_state=[h, h], mask=named),
        *a.GRU(3, return_state=True, go_backwards=True)(plain, initial_state=h, mask=steps),
        *a.Bidirectional(a.GRU(3, return_sequences=True, return_state=True))(x, initial_state=[h, h], mask=steps),
        a.GlobalAveragePooling1D()(plain, mask=named), a.GRU(2)(model(x)), a.GlobalAveragePooling1D()(model(plain)),
        *shared(x), *shared(plain), a.Attention()([x, plain], mask=[None, steps]), a.Attention()([plain, x], mask=[steps, named]),
        a.GRU(2)(k.Sequential([k.Input((None, 4)), a.Masking(), a.Dense(3)])(plain)),
        a.SimpleRNN(2)(plain, mask=ops.any(ops.less(x, 0.4), axis=-1)), a.SimpleRNN(2)(plain, mask=ops.all(x < 0.6, axis=-1)),
        a.MultiHeadAttention(2, 2)(plain, plain, value_mask=steps),
    ]  # fmt: skip
    random = np.random.default_rng(4)
    inputs = [words(random), random.normal(size=(6, 3)).astype(np.float32), random.random((6, 7)) > 0.3]
    agrees(k.Model([ids, h, steps], outputs), inputs, tmp_path)


def test_documents_of_sentences_of_words(tmp_path: Path) -> None:
    k = needed("keras", "keras")
    a = k.layers
    ids = k.Input((3, 5), dtype="int32")
    sentence_ids = k.Input((5,), dtype="int32")
    sentence = k.Model(sentence_ids, a.Bidirectional(a.LSTM(3))(a.Embedding(9, 4, mask_zero=True)(sentence_ids)))
    each = a.Embedding(9, 4, mask_zero=True)(ids)
    outputs = [
        a.GRU(2)(a.TimeDistributed(sentence)(ids)), a.TimeDistributed(a.LSTM(3, return_sequences=True))(each),
        a.TimeDistributed(a.Bidirectional(a.GRU(2)))(each), a.TimeDistributed(a.GlobalAveragePooling1D())(each),
        a.TimeDistributed(a.TimeDistributed(a.Dense(2)))(each),
    ]  # fmt: skip
    random = np.random.default_rng(5)
    values = words(random, 12, 5).reshape(4, 3, 5)
    values[..., 0] = np.maximum(values[..., 0], 1)  # the mean of nothing is not a number
    agrees(k.Model(ids, outputs), [values], tmp_path)


def drawn(k: Any, random: np.random.Generator) -> Any:
    """A model drawn from layers that read masks, hand them on, join them or drop them."""
    a = k.layers
    ids, other = k.Input((None if random.integers(2) else 7,), dtype="int32"), k.Input((7,), dtype="int32")
    pool = [a.Embedding(9, 4, mask_zero=True)(ids), a.Embedding(9, 4, mask_zero=True)(other), a.Embedding(9, 4)(ids)]

    def pick() -> Any:
        return pool[int(random.integers(len(pool)))]

    def layer() -> Any:
        kind = random.choice([a.LSTM, a.GRU, a.SimpleRNN])
        options = {"go_backwards": bool(random.integers(2)), "zero_output_for_mask": bool(random.integers(2))}
        if kind is a.GRU:
            options["reset_after"] = bool(random.integers(2))
        return kind(4, return_sequences=True, **options)

    def both() -> Any:
        return a.Bidirectional(
            random.choice([a.LSTM, a.GRU])(4, return_sequences=True), merge_mode=str(random.choice(["sum", "ave", "mul"]))
        )

    def stated(x: Any) -> Any:
        y, h, c = a.LSTM(4, return_sequences=True, return_state=True)(x)
        return a.Add()([y, a.LSTM(4, return_sequences=True)(x, initial_state=[h, c])])

    def heads(x: Any, y: Any) -> Any:
        return a.MultiHeadAttention(2, 3, dropout=float(random.choice([0, 0.1])))(x, y, use_causal_mask=bool(random.integers(2)))

    steps: list[Callable[[], Any]] = [
        lambda: layer()(pick()), lambda: layer()(pick()), lambda: both()(pick()), lambda: stated(pick()), lambda: heads(pick(), pick()),
        lambda: random.choice([a.Attention(), a.AdditiveAttention()])([pick(), pick()]), lambda: a.Dense(4, activation="tanh")(pick()),
        lambda: random.choice([a.Add, a.Multiply, a.Maximum, a.Minimum, a.Average, a.Subtract])()([pick(), pick()]),
        lambda: a.Dense(4)(a.Concatenate()([pick(), pick()])), lambda: a.LayerNormalization()(pick()), lambda: a.Dropout(0.1)(pick()),
        lambda: a.Conv1D(4, 3, padding="same")(pick()), lambda: a.TimeDistributed(a.Dense(4))(pick()), lambda: a.Masking(0.1)(pick()),
    ]  # fmt: skip
    for number in random.integers(0, len(steps), 8):
        pool.append(steps[number]())
    return k.Model([ids, other], [a.GRU(3)(pool[-1]), a.GlobalAveragePooling1D()(pool[-2]), *pool[-3:], a.LSTM(2)(pick())])


@pytest.mark.drawn(3)
@pytest.mark.parametrize("seed", range(60))
def test_models_drawn_from_masked_layers(seed: int, tmp_path: Path) -> None:
    keras = needed("keras", "keras")
    random = np.random.default_rng(seed)
    agrees(drawn(keras, random), [words(random), words(random)], tmp_path, seed)


def layered(k: Any, random: np.random.Generator) -> Any:
    """A recurrent layer of any kind and setting that reads a masked sequence of a fixed length."""
    a = k.layers
    ids = k.Input((7,), dtype="int32")
    kind = random.choice([a.LSTM, a.GRU, a.SimpleRNN])
    names = ("unroll", "return_sequences", "return_state", "go_backwards", "zero_output_for_mask")
    options = {name: bool(random.integers(2)) for name in names}
    x = a.Embedding(9, 4, mask_zero=bool(random.integers(4)))(ids)
    mask = {"mask": k.ops.not_equal(ids, 3)} if random.integers(3) == 0 else {}
    if random.integers(2):
        options.update(go_backwards=False, return_state=False)
        mode = [None, "concat", "sum", "mul", "ave"][random.integers(5)]
        y = a.Bidirectional(kind(3, **options), merge_mode=mode)(x, **mask)
    else:
        y = kind(3, **options)(x, **mask)
    return k.Model(ids, y)


MIRRORED = "unroll = True on a masked sequence read from the end"


@pytest.mark.drawn(4)
@pytest.mark.parametrize("seed", range(200))
def test_layers_drawn_with_every_setting(seed: int, tmp_path: Path) -> None:
    k = needed("keras", "keras")
    random = np.random.default_rng([7, seed])
    model = layered(k, random)
    try:
        agrees(model, [words(random)], tmp_path, seed)
    except RefusedError as error:
        assert MIRRORED in str(error)


@pytest.mark.parametrize("both", [False, True])
def test_an_unrolled_layer_that_zeroes_other_steps_on_each_backend_is_refused(both: bool, tmp_path: Path) -> None:
    k = needed("keras", "keras")
    a, options = k.layers, {"return_sequences": True, "unroll": True}

    def layer() -> Any:
        plain = a.LSTM(2, go_backwards=True, zero_output_for_mask=True, **options)
        return a.Bidirectional(a.LSTM(2, **options)) if both else plain

    agrees(k.Sequential([k.Input((4, 2)), layer()]), [np.ones((2, 4, 2), np.float32)], tmp_path)  # without a mask
    k.Sequential([k.Input((4, 2)), a.Masking(), layer()]).save(tmp_path / "masked.keras")
    with pytest.raises(RefusedError, match=MIRRORED):
        export_model(tmp_path / "masked.keras", tmp_path / "masked.onnx")


def test_masks_that_nothing_reads_leave_no_nodes(tmp_path: Path) -> None:
    k = needed("keras", "keras")
    a = k.layers
    nodes = []
    for masked in (False, True):
        k.Sequential([k.Input((5,)), a.Embedding(9, 3, mask_zero=masked), a.Flatten(), a.Dense(2)]).save(tmp_path / "model.keras")
        export_model(tmp_path / "model.keras", tmp_path / "model.onnx", force=True)
        nodes.append([node.op_type for node in onnx.load(tmp_path / "model.onnx").graph.node])
    assert nodes[0] == nodes[1]


def test_masks_over_other_axes_are_refused_by_name(tmp_path: Path) -> None:
    k = needed("keras", "keras")
    a = k.layers
    x, ids, four = k.Input((3, 4)), k.Input((3,), dtype="int32"), k.Input((3, 3, 4))
    for name, build in {
        "soft": lambda: a.Softmax(name="soft")(a.Masking()(x)), "numbers": lambda: a.GRU(2, name="numbers")(x, mask=ids),
        "wide": lambda: a.GRU(2, name="wide")(x, mask=k.ops.any(four > 0, axis=-1)),
        "mean": lambda: a.GlobalAveragePooling1D(name="mean")(x, mask=four > 0),
    }.items():  # fmt: skip
        k.Model([x, ids, four], build()).save(tmp_path / f"{name}.keras")
        with pytest.raises(RefusedError, match=f"{name}.*mask"):
            export_model(tmp_path / f"{name}.keras", tmp_path / f"{name}.onnx")
