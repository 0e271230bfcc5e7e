"""The frozen graphs and TFLite models beside this one, written by TensorFlow 2.21 with Keras 3.15, and what Keras gave.

python tests/golden/frozen/make.py
"""

from pathlib import Path

import keras
import numpy as np
import tensorflow as tf
from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

FOLDER = Path(__file__).resolve().parent
RANDOM = np.random.default_rng(1)
layers = keras.layers
MODELS = {
    "gru_while": ([layers.GRU(4, return_sequences=True)], False),
    "stack_frames": ([layers.LSTM(4, return_sequences=True), layers.GRU(3, go_backwards=True)], True),
    "masked_while": ([layers.Masking(), layers.SimpleRNN(4)], False),
}
for name, (own, lower) in MODELS.items():
    model = keras.Sequential([keras.Input((None, 3)), *own])
    model.set_weights([(RANDOM.normal(size=one.shape) * 0.5).astype(np.float32) for one in model.get_weights()])
    x = RANDOM.normal(size=(2, 5, 3)).astype(np.float32)
    called = tf.function(lambda x, model=model: model(x)).get_concrete_function(tf.TensorSpec((None, None, 3)))
    frozen = convert_variables_to_constants_v2(called, lower_control_flow=lower).graph.as_graph_def()
    for node in frozen.node:  # where the layers were called in a user's source is of no interest
        node.ClearField("experimental_debug_info")
    (FOLDER / f"{name}.pb").write_bytes(frozen.SerializeToString())
    np.savez(FOLDER / f"{name}.npz", x=x, y=np.asarray(model(x)))

LITE = {
    "gru": [layers.GRU(4, return_sequences=True)],
    "stack": [layers.Bidirectional(layers.GRU(4, return_sequences=True)), layers.LSTM(3, recurrent_activation="hard_sigmoid")],
    "unrolled": [layers.LSTM(4, unroll=True)],
    "masked": [layers.Masking(), layers.SimpleRNN(4)],
    "backward": [layers.GRU(4, go_backwards=True)],
}
for name, own in LITE.items():
    model = keras.Sequential([keras.Input((5, 3)), *own])
    model.set_weights([(RANDOM.normal(size=one.shape) * 0.5).astype(np.float32) for one in model.get_weights()])
    x = RANDOM.normal(size=(1, 5, 3)).astype(np.float32)
    called = tf.function(lambda x, model=model: model(x)).get_concrete_function(tf.TensorSpec((1, 5, 3)))
    frozen = convert_variables_to_constants_v2(called)
    (FOLDER / f"{name}.tflite").write_bytes(tf.lite.TFLiteConverter.from_concrete_functions([frozen]).convert())
    np.savez(FOLDER / f"{name}_lite.npz", x=x, y=np.asarray(model(x)))
