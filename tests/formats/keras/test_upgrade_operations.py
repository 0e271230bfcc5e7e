"""Operations of TensorFlow between the layers of a Keras 2 model, as Keras 3 and ONNX compute them."""

from __future__ import annotations

from pathlib import Path

import keras
import numpy as np
import pytest

from rnnconvert.core.errors import RefusedError
from rnnconvert.formats.keras.upgrade.files import upgrade
from rnnconvert.formats.keras.upgrade.operations import FUNCTIONS
from rnnconvert.scaffolding.export import export_model
from tests.helpers.exported import RUNS
from tests.helpers.frameworks import KERAS_WARNS, by_keras_2
from tests.helpers.requirements import needed

pytestmark = KERAS_WARNS
SCRIPT = """
import sys
import numpy as np
import tensorflow as tf
import tf_keras as k

folder, kind = sys.argv[1:]
x, z, i = k.Input((6, 4), name="x"), k.Input((6, 4), name="z"), k.Input((6,), name="i", dtype="int32")
y = k.layers.Masking()(x) if kind == "masked" else x
h, g = k.layers.LSTM(5, return_sequences=True)(y), k.layers.GRU(5, return_sequences=True)(z)
positive, short = tf.abs(h) + 1.0, h[:, 1:5:2, :3]
outputs = {
    "arithmetic": lambda: [1.0 - h * 2.0, h / 3.0 - g, tf.multiply(h, g), tf.add(h, 1), tf.divide(h, positive), -h, tf.pow(h, 2.0)],
    "functions": lambda: [tf.nn.relu(h), tf.nn.relu6(h), tf.nn.selu(h), tf.nn.silu(h), tf.nn.softplus(h), tf.nn.softsign(h), tf.tanh(h),
                          tf.sigmoid(h), tf.exp(h), tf.square(h), tf.sin(h), tf.cos(h), tf.nn.softmax(h, axis=1)],
    "roots": lambda: [tf.math.log(positive), tf.sqrt(positive), tf.math.rsqrt(positive), tf.maximum(h, g), tf.minimum(h, g)],
    "axes": lambda: [tf.squeeze(tf.expand_dims(h, 2), axis=2), tf.concat([h, g], axis=-1), tf.stack([h, g], axis=1),
                     tf.reverse(h, axis=[1]), tf.transpose(h, [0, 2, 1]), tf.reshape(short, [-1, 6]), h[:, -1], short,
                     tf.clip_by_value(h, -0.1, 0.1)],
    "sums": lambda: [tf.reduce_mean(h, axis=1), tf.reduce_sum(h, axis=-1, keepdims=True), tf.reduce_max(h, 1),
                     tf.reduce_min(h, axis=[1, 2])],
    "attention": lambda: [tf.matmul(tf.nn.softmax(tf.matmul(h, tf.transpose(g, [0, 2, 1]))), g)],
    "masked": lambda: [k.layers.LSTM(3)(h * 2.0), k.layers.LSTM(3)(h), tf.reduce_sum(h + g, axis=1)],
    "a model in the model": lambda: [k.layers.Dense(2)(k.Model(x, h[:, ::2])(z) + 1.0), g],
    "split": lambda: tf.split(h, 2, axis=1) + [g],
    "integers": lambda: [k.layers.Dense(2)(h), tf.reduce_mean(tf.expand_dims(i, 1), axis=2)],
    "transposed": lambda: [tf.matmul(h, g, transpose_b=True)],
}[kind]()
model = k.Model([x, z, i] if kind == "integers" else [x, z], outputs)
random = np.random.default_rng(0)
model.set_weights([random.normal(size=w.shape).astype("float32") * 0.5 for w in model.get_weights()])
values = [random.normal(size=(3, 6, 4)).astype("float32") for _ in "xz"]
values[0][0, -2:] = values[0][1, :2] = values[0][2, 2] = 0
model.save(folder + "/m.h5")
if kind == "integers":
    sys.exit()
results = model(values)
results = results if isinstance(results, (list, tuple)) else [results]
np.savez(folder + "/found.npz", **{f"x{n}": x for n, x in enumerate(values)}, **{f"y{n}": np.asarray(y) for n, y in enumerate(results)})
"""
HELD = ("arithmetic", "functions", "roots", "axes", "sums", "attention", "masked", "a model in the model")


@pytest.mark.parametrize("kind", HELD)
def test_an_operation_of_tensorflow_is_what_it_was(tmp_path: Path, kind: str) -> None:
    by_keras_2(SCRIPT, tmp_path, kind)
    with np.load(tmp_path / "found.npz") as archive:
        inputs, truth = ([archive[key] for key in archive if key[0] == word] for word in "xy")
    upgrade(tmp_path / "m.h5", tmp_path / "m.keras")
    export_model(tmp_path / "m.h5", tmp_path / "m.onnx")
    for outputs in (keras.saving.load_model(tmp_path / "m.keras", safe_mode=True)(inputs), RUNS["onnx"](tmp_path / "m.onnx")(inputs)):
        for output, expected in zip(outputs if isinstance(outputs, (list, tuple)) else [outputs], truth, strict=True):
            np.testing.assert_allclose(np.asarray(output), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("kind", "words"),
    [("split", "function 'split'"), ("transposed", "'linalg.matmul' with transpose_b = True"), ("integers", "the mean of whole numbers")],
)
def test_another_function_or_setting_is_refused_by_name(tmp_path: Path, kind: str, words: str) -> None:
    by_keras_2(SCRIPT, tmp_path, kind)
    for write in (lambda: upgrade(tmp_path / "m.h5", tmp_path / "m.keras"), lambda: export_model(tmp_path / "m.h5", tmp_path / "m.onnx")):
        with pytest.raises(RefusedError, match=words):
            write()


def test_every_function_is_an_operation_of_keras_3() -> None:
    needed("keras", "keras")
    for function in FUNCTIONS.values():
        module = __import__(f"keras.src.ops.{function.module}", fromlist=[function.name])
        assert hasattr(module, function.name), function
