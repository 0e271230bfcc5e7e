"""Keras layers as loops whose lists are slices, begun where ranks say, and what Keras gives.

python tests/golden/tflite_lists/make_old.py, with tensorflow 2.2.3 (Python 3.8), whose folder of programs is in PATH.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import tensorflow as tf

HERE = Path(__file__).parent
RANDOM = np.random.RandomState(4)
layers = tf.keras.layers
CASES = {
    "old_stack": [layers.LSTM(4, return_sequences=True), layers.LSTM(3)],
    "old_gru": [layers.GRU(4, reset_after=False, return_sequences=True)],
}
for name, own in CASES.items():
    model = tf.keras.Sequential([tf.keras.Input((5, 3), batch_size=1), *own])
    model.set_weights([(RANDOM.normal(size=one.shape) * 0.5).astype(np.float32) for one in model.get_weights()])
    x = RANDOM.normal(size=(1, 5, 3)).astype(np.float32)
    (HERE / f"{name}.tflite").write_bytes(tf.lite.TFLiteConverter.from_keras_model(model).convert())
    np.savez(HERE / f"{name}.npz", x=x, y=model(x).numpy())
