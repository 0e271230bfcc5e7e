"""A Keras layer with dropout, whose factor of ones each step spreads by BROADCAST_TO, as a loop over TensorFlow's lists.

python tests/golden/tflite_lists/make_2_15.py, with tensorflow 2.15.1 (Python 3.11) and the Keras in it.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import tensorflow as tf

HERE = Path(__file__).parent
RANDOM = np.random.RandomState(6)
layer = tf.keras.layers.GRU(4, reset_after=False, dropout=0.2, recurrent_dropout=0.2)
model = tf.keras.Sequential([tf.keras.Input((5, 3)), layer])
model.set_weights([(RANDOM.normal(size=array.shape) * 0.5).astype(np.float32) for array in model.get_weights()])
converter = tf.lite.TFLiteConverter.from_keras_model(model)
converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS, tf.lite.OpsSet.SELECT_TF_OPS]
converter._experimental_lower_tensor_list_ops = False
x = RANDOM.normal(size=(2, 5, 3)).astype(np.float32)
(HERE / "dropped.tflite").write_bytes(converter.convert())
np.savez(HERE / "dropped.npz", x=x, y=model(x).numpy())
