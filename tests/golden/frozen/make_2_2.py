"""Made by TensorFlow 2.2.0 under Python 3.7: python make_2_2.py FOLDER. Its lists are tensors; weights are handed to each step."""

import pathlib
import sys

import numpy as np
import tensorflow as tf

FOLDER = pathlib.Path(sys.argv[1])
RANDOM = np.random.RandomState(22)
LAYERS = {
    "lstm_2_2": [tf.keras.layers.LSTM(3, activation="relu")],
    "stack_2_2": [tf.keras.layers.Bidirectional(tf.keras.layers.LSTM(3, return_sequences=True)), tf.keras.layers.SimpleRNN(2)],
}
for name, own in LAYERS.items():
    model = tf.keras.Sequential([tf.keras.Input((5, 3), batch_size=1), *own])
    model.set_weights([(RANDOM.normal(size=one.shape) * 0.5).astype("f") for one in model.get_weights()])
    x = RANDOM.normal(size=(1, 5, 3)).astype("f")
    converter = tf.lite.TFLiteConverter.from_keras_model(model)
    converter.experimental_new_converter = True
    (FOLDER / (name + ".tflite")).write_bytes(converter.convert())
    np.savez(str(FOLDER / (name + "_lite.npz")), x=x, y=model(x).numpy())
