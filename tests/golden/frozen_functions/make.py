"""Frozen graphs of tf.nn.dynamic_rnn whose loops are While with functions, by TensorFlow 1.15.5, with what it gave.

TF2_BEHAVIOR=1 .environments/tensorflow1/bin/python tests/golden/frozen_functions/make.py
"""

from pathlib import Path

import numpy as np
import tensorflow as tf
from tensorflow.python.framework import graph_util

HERE = Path(__file__).resolve().parent
cell, rnn = tf.nn.rnn_cell, tf.nn.dynamic_rnn


def ways(x):
    return tf.concat(tf.nn.bidirectional_dynamic_rnn(cell.LSTMCell(3), cell.LSTMCell(3), x, dtype=tf.float32)[0], 2)


CASES = {
    "lstm": lambda x: rnn(cell.BasicLSTMCell(4), x, dtype=tf.float32)[0],
    "gru_last": lambda x: rnn(cell.GRUCell(4), x, dtype=tf.float32)[1],
    "ways": ways,
    "time_major": lambda x: rnn(cell.LSTMCell(4), tf.transpose(x, [1, 0, 2]), dtype=tf.float32, time_major=True)[0],
}
for name, build in CASES.items():
    with tf.Graph().as_default() as graph:
        tf.set_random_seed(1)
        x = tf.placeholder(tf.float32, [None, None, 3], name="x")
        y = tf.identity(build(x), "y")
        with tf.Session(graph=graph) as session:
            session.run(tf.global_variables_initializer())
            frozen = graph_util.convert_variables_to_constants(session, graph.as_graph_def(), ["y"])
            for node in frozen.node:  # where the layers were called in a user's source is of no interest
                node.ClearField("experimental_debug_info")
            (HERE / (name + ".pb")).write_bytes(frozen.SerializeToString())
            rows = np.random.RandomState(0).randn(2, 5, 3).astype(np.float32)
            np.savez(str(HERE / (name + ".npz")), x=rows, y=session.run(y, {x: rows}))
