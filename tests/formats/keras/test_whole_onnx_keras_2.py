"""Whole models of Keras 2, with the layers and calls that Keras 2 and Keras 3 write differently, give in ONNX what tf_keras gives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rnnconvert.formats.keras.upgrade.files import upgrade
from rnnconvert.scaffolding.export import export_model
from tests.formats.keras.test_whole_onnx import run
from tests.helpers.frameworks import by_keras_2
from tests.helpers.requirements import needed

MAKE = """
import sys
import numpy as np
import tf_keras as k

a, random, folder = k.layers, np.random.default_rng(1), sys.argv[1]

def keep(name, model, *x):
    shapes = [(v.name, w.shape) for v, w in zip(model.weights, model.get_weights())]
    values = [random.normal(size=shape) * 0.5 for _, shape in shapes]
    model.set_weights([np.abs(v) + 0.1 if "variance" in name else v for v, (name, _) in zip(values, shapes)])
    y = model(list(x) if len(x) > 1 else x[0], training=False)
    y = list(y) if isinstance(y, (list, tuple)) else [y]
    for ending in ("h5", "keras"):
        model.save(f"{folder}/{name}.{ending}")
    if name == "convolving":
        model.save(f"{folder}/{name}.tf", save_format="tf")
    kept = {f"x{n}": v for n, v in enumerate(x)} | {f"y{n:02}": np.asarray(v) for n, v in enumerate(y)}
    np.savez(f"{folder}/{name}.npz", **kept)

s, t = k.Input((None,), dtype="int32"), k.Input((None,), dtype="int32")
read, h, c = a.LSTM(6, return_sequences=True, return_state=True)(a.Embedding(11, 4)(s))
said = a.LSTM(6, return_sequences=True)(a.Embedding(13, 4)(t), initial_state=[h, c])
parts = [said, a.Attention(use_scale=True)([said, read]), a.AdditiveAttention()([said, read])]
y = a.Dense(13, activation="softmax")(a.Concatenate()(parts))
whole = [random.integers(0, 11, (3, n)).astype("int32") for n in (7, 5)]
keep("translator", k.Model([s, t], y), *whole)

x = k.Input((None, 4))
e, *states = a.Bidirectional(a.LSTM(3, return_state=True))(x)
d = a.Bidirectional(a.LSTM(3, return_sequences=True))(x, initial_state=states)
keep("both", k.Model(x, [e, d]), random.normal(size=(2, 6, 4)).astype("float32"))

x = k.Input((8, 6))
layers = [
    a.SeparableConv1D(4, 3, padding="same"), a.Conv1DTranspose(4, 3, strides=2, padding="same"), a.UpSampling1D(2), a.ZeroPadding1D((1, 2)),
    a.Cropping1D((1, 0)), a.UnitNormalization(), a.LayerNormalization(axis=[1, 2]), a.BatchNormalization(axis=1), a.ThresholdedReLU(0.3),
    a.ReLU(0.9, 0.2, 0.1), a.PReLU(shared_axes=[1]), a.TimeDistributed(a.Dense(3)), a.Softmax(axis=1),
]
outputs = [layer(x) for layer in layers] + [a.Dot(axes=2, normalize=True)([x, x])]
keep("line", k.Model(x, outputs), random.normal(size=(2, 8, 6)).astype("float32"))

x = k.Input((7, 6, 4))
layers = [
    a.SeparableConv2D(4, 3, strides=2, padding="same"), a.DepthwiseConv2D(3, padding="same", depth_multiplier=2),
    a.Conv2DTranspose(4, 3, strides=2, padding="same"), a.UpSampling2D((2, 1)), a.ZeroPadding2D(((1, 2), (0, 1))), a.Cropping2D(1),
    a.TimeDistributed(a.LSTM(3)), a.TimeDistributed(a.Conv1D(3, 2)),
]
keep("image", k.Model(x, [layer(x) for layer in layers]), random.normal(size=(2, 7, 6, 4)).astype("float32"))

x = k.Input((4, 6, 5, 2))
y, h, c = a.ConvLSTM2D(3, (3, 2), padding="same", return_state=True, return_sequences=True)(x)
z = a.ConvLSTM2D(3, 3, padding="same", recurrent_activation="sigmoid", use_bias=False)(y, initial_state=[h, c])
flat = a.ConvLSTM1D(2, 3, go_backwards=True, strides=2, activation="relu")(a.Reshape((4, 30, 2))(x))
keep("convolving", k.Model(x, [z, flat]), random.normal(size=(2, 4, 6, 5, 2)).astype("float32"))

ids, t, f = k.Input((7,), dtype="int32"), k.Input((7,), dtype="int32"), k.Input((None, 4))
x, y = a.Embedding(9, 4, mask_zero=True)(ids), a.Embedding(9, 4, mask_zero=True)(t)
masked = a.Masking(0.5)(f)
every, h, c = a.LSTM(4, return_sequences=True, return_state=True, go_backwards=True)(x)
outputs = [
    a.Bidirectional(a.LSTM(3, return_sequences=True))(a.Dense(3)(x)), a.Bidirectional(a.GRU(3), merge_mode="sum")(masked), every, h, c,
    a.LSTM(4, return_sequences=True)(y, initial_state=[h, c]), a.GRU(3, zero_output_for_mask=True, return_sequences=True)(masked),
    a.GRU(2)(a.Add()([x, y])), a.GRU(2)(a.Multiply()([x, y])), a.GRU(2)(a.Concatenate()([x, y])), a.GRU(2)(a.Attention()([x, y])),
    a.SimpleRNN(2)(a.Maximum()([x, y])), a.GRU(3, reset_after=False, go_backwards=True)(a.Dropout(0.1)(masked)),
    a.GRU(2)(a.Conv1D(3, 2)(x)), a.Dense(2)(a.TimeDistributed(a.Dense(2))(x)), a.GRU(2)(a.LSTM(3, return_sequences=True)(x)),
]
gaps = [(random.integers(1, 9, (5, 7)) * (random.random((5, 7)) > 0.4)).astype("int32") for _ in range(2)]
gaps[0][0] = 0
rows = random.normal(size=(5, 6, 4)).astype("float32")
rows[random.random((5, 6)) > 0.6] = 0.5
rows[1] = 0.5
keep("masked", k.Model([ids, t, f], outputs), *gaps, rows)

def eyes(name):
    inside = [a.Conv2D(3, 2, name="c", input_shape=(5, 4, 2)), a.BatchNormalization(name="b"), a.Flatten(), a.Dense(4, name="d")]
    return k.Sequential(inside, name=name)

left, right, page = k.Input((3, 5, 4, 2)), k.Input((3, 5, 4, 2)), k.Input((None, 6))
word = k.Input((6, 2))
reader = k.Model(word, a.Bidirectional(a.GRU(2))(a.Dense(3, activation="relu")(word)))
seen = a.Concatenate()([a.TimeDistributed(eyes("one"))(left), a.TimeDistributed(eyes("two"))(right)])
text = a.LSTM(3)(a.TimeDistributed(reader)(a.Reshape((-1, 6, 2))(page)))
pictures = [random.normal(size=(2, 3, 5, 4, 2)).astype("float32") for _ in range(2)]
film = k.Model([left, right, page], [a.LSTM(5)(seen), text])
keep("film", film, *pictures, random.normal(size=(2, 4, 6)).astype("float32"))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Models that Keras 2 wrote, in both of its kinds of file, with what it computes."""
    path = tmp_path_factory.mktemp("keras2")
    by_keras_2(MAKE, path)
    return path


NAMES = ("translator", "both", "line", "image", "convolving", "masked", "film")


@pytest.mark.parametrize(("name", "ending"), [*((name, ending) for name in NAMES for ending in ("h5", "keras")), ("convolving", "tf")])
def test_a_whole_model_of_keras_2(name: str, ending: str, folder: Path, tmp_path: Path) -> None:
    export_model(folder / f"{name}.{ending}", tmp_path / "model.onnx")
    x, truth = _stored(folder, name)
    for output, expected in zip(run(tmp_path / "model.onnx", x), truth, strict=True):
        assert output.shape == expected.shape
        np.testing.assert_allclose(output, expected, rtol=3e-5, atol=3e-6)


@pytest.mark.parametrize("ending", ["h5", "keras"])
def test_models_that_are_called_for_each_step_are_those_of_keras_3(ending: str, folder: Path, tmp_path: Path) -> None:
    keras = needed("keras", "keras")
    upgrade(folder / f"film.{ending}", tmp_path / "film.keras")
    x, truth = _stored(folder, "film")
    model = keras.saving.load_model(tmp_path / "film.keras")
    for output, expected in zip(model(x, training=False), truth, strict=True):
        np.testing.assert_allclose(np.asarray(output), expected, rtol=3e-5, atol=3e-6)


def _stored(folder: Path, name: str) -> tuple[list[Any], list[Any]]:
    """What Keras 2 was given, and what it computed."""
    with np.load(folder / f"{name}.npz") as stored:
        x, truth = ([stored[key] for key in sorted(stored.files) if key.startswith(word)] for word in "xy")
    return x, truth
