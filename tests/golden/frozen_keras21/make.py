"""Frozen graphs of Keras 2.1.6 on TensorFlow 1.15.5, with what Keras gave.

In the environment "tensorflow1", with keras==2.1.6 installed beside it (pip install --no-deps --target FOLDER, FOLDER in PYTHONPATH).
"""

from pathlib import Path

import keras
import numpy as np
import tensorflow as tf
from keras import backend, layers
from tensorflow.python.framework import graph_util

HERE = Path(__file__).resolve().parent
CASES = {
    "lstm_last": lambda: layers.LSTM(4),
    "lstm_together": lambda: layers.LSTM(4, implementation=2, return_sequences=True),
    "gru": lambda: layers.GRU(4, return_sequences=True),
    "gru_dropped": lambda: layers.GRU(4, dropout=0.2, recurrent_dropout=0.3, return_sequences=True),
    "rnn_last": lambda: layers.SimpleRNN(4, activation="relu"),
    "ways": lambda: layers.Bidirectional(layers.LSTM(3, return_sequences=True)),
}
for name, build in CASES.items():
    backend.clear_session()
    backend.set_learning_phase(0)
    tf.set_random_seed(1)
    with tf.name_scope("net"):
        x = layers.Input((None, 3), name="x")
        model = keras.models.Model(x, build()(x))
    tf.identity(model.output, "y")
    session = backend.get_session()
    frozen = graph_util.convert_variables_to_constants(session, session.graph.as_graph_def(), ["y"])
    (HERE / (name + ".pb")).write_bytes(frozen.SerializeToString())
    rows = np.random.RandomState(0).randn(2, 5, 3).astype(np.float32)
    np.savez(str(HERE / (name + ".npz")), x=rows, y=model.predict(rows))
