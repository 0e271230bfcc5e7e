"""The TFLite model beside this one, written by TensorFlow 2.21 with tf_keras 2.21, whose converter keeps an LSTM of a fixed batch as
one operator, and what Keras gave.

python tests/golden/tflite_fused/make.py
"""

from pathlib import Path

import numpy as np
import tensorflow as tf
import tf_keras as keras

FOLDER = Path(__file__).resolve().parent
RANDOM = np.random.default_rng(5)
model = keras.Sequential([keras.Input(batch_shape=(3, 4, 2)), keras.layers.LSTM(2, return_sequences=True)])
model.set_weights([RANDOM.uniform(-1, 1, array.shape).astype(np.float32) for array in model.get_weights()])
called = tf.function(model, input_signature=[tf.TensorSpec((3, 4, 2))]).get_concrete_function()
converter = tf.lite.TFLiteConverter.from_concrete_functions([called], model)
(FOLDER / "fixed_batch.tflite").write_bytes(converter.convert())
x = RANDOM.uniform(-1, 1, (3, 4, 2)).astype(np.float32)
np.savez(FOLDER / "fixed_batch.npz", x=x, y=model(x).numpy())
