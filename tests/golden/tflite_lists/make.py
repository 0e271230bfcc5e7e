"""Keras layers as loops over TensorFlow's lists (Select TF operators), and with numbers of other types, and what Keras gives.

KERAS_BACKEND=tensorflow python tests/golden/tflite_lists/make.py, with keras 3.15 and tensorflow 2.21.
"""

from __future__ import annotations

from pathlib import Path

import keras
import numpy as np
import tensorflow as tf
from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

HERE = Path(__file__).parent
layers = keras.layers
biased = {"bias_initializer": "random_normal"}
dropped = {"dropout": 0.2, "recurrent_dropout": 0.2}
CASES = {
    "stack": ((5, 3), [layers.GRU(4, return_sequences=True, **biased, **dropped), layers.LSTM(3, **biased)], ()),
    "open": ((None, 3), [layers.LSTM(4, return_sequences=True, **biased)], ()),
    "ways_int8": ((5, 16), [layers.Bidirectional(layers.LSTM(20, **biased))], ("int8",)),
    "half": ((5, 3), [layers.GRU(4, reset_after=False, **biased)], ("half",)),
    "unrolled_int8": ((3, 16), [layers.LSTM(20, unroll=True, activation="relu", **biased)], ("int8",)),
    "unrolled_half": ((3, 3), [layers.LSTM(4, unroll=True, **biased)], ("half",)),
    "leaky": ((4, 3), [layers.LSTM(2, unroll=True, activation="leaky_relu", **biased)], ()),
}
for seed, (name, (shape, own, stored)) in enumerate(CASES.items()):
    keras.utils.set_random_seed(seed)
    model = keras.Sequential([keras.Input(shape), *own])
    converter = tf.lite.TFLiteConverter.from_keras_model(model)
    converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS, tf.lite.OpsSet.SELECT_TF_OPS]
    converter._experimental_lower_tensor_list_ops = False
    if stored:
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
    if "half" in stored:
        converter.target_spec.supported_types = [tf.float16]
    (HERE / f"{name}.tflite").write_bytes(converter.convert())
    x = np.random.default_rng(seed).normal(size=(2, shape[0] or 6, shape[1])).astype(np.float32)
    weights = {f"w{number}": array for number, array in enumerate(model.get_weights())}
    np.savez(HERE / f"{name}.npz", x=x, y=model(x).numpy(), **weights)

# A model whose steps compute in integers: its variables must be constants before it can be calibrated.
keras.utils.set_random_seed(9)
model = keras.Sequential([keras.Input((3, 4), batch_size=1), layers.LSTM(4, unroll=True)])
called = tf.function(lambda x: model(x)).get_concrete_function(tf.TensorSpec((1, 3, 4)))
converter = tf.lite.TFLiteConverter.from_concrete_functions([convert_variables_to_constants_v2(called)])
converter.optimizations = [tf.lite.Optimize.DEFAULT]
random = np.random.default_rng(9)
converter.representative_dataset = lambda: ([random.normal(size=(1, 3, 4)).astype(np.float32)] for _ in range(20))
converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
(HERE / "integers.tflite").write_bytes(converter.convert())
