"""Checkpoints of tf.compat.v1.nn.dynamic_rnn whose loops are While with functions, by TensorFlow 2.21, with what it gave.

TF_USE_LEGACY_KERAS=1 .environments/tf_keras/bin/python tests/golden/checkpoint_functions/make.py
"""

from pathlib import Path

import numpy as np
import tensorflow as tf

HERE = Path(__file__).resolve().parent
v1 = tf.compat.v1
cell, rnn = v1.nn.rnn_cell, v1.nn.dynamic_rnn


def ways(x):
    cells = [cell.LSTMCell(3, forget_bias=0.5, cell_clip=0.5) for _ in range(2)]
    return tf.concat(v1.nn.bidirectional_dynamic_rnn(*cells, x, dtype=tf.float32)[0], 2)


def trained(x):
    y = rnn(cell.LSTMCell(4, forget_bias=0.5), x, dtype=tf.float32)[0]
    v1.train.GradientDescentOptimizer(0.1).minimize(tf.reduce_sum(y * y))
    return y


def stack(x):
    cells = [cell.LSTMCell(4, forget_bias=0.5), cell.LSTMCell(3, num_proj=2, proj_clip=0.25, forget_bias=0.25)]
    return rnn(cell.MultiRNNCell(cells), x, dtype=tf.float32)[0]


CASES = {
    "lstm": lambda x: rnn(cell.LSTMCell(4, forget_bias=0.0, activation=tf.nn.relu), x, dtype=tf.float32)[0],
    "gru": lambda x: rnn(cell.GRUCell(4, activation=tf.nn.softsign), x, dtype=tf.float32)[0],
    "time_major": lambda x: rnn(cell.LSTMCell(4), x, dtype=tf.float32, time_major=True)[0],
    "ways": ways,
    "stack": stack,
    "trained": trained,
}
for name, build in CASES.items():
    with tf.Graph().as_default() as graph:
        v1.set_random_seed(1)
        x = v1.placeholder(tf.float32, [None, None, 3], name="x")
        y = tf.identity(build(x), "y")
        with v1.Session(graph=graph) as session:
            session.run(v1.global_variables_initializer())
            for number, variable in enumerate(v1.global_variables()):
                variable.load(np.random.RandomState(number).randn(*variable.shape).astype(np.float32), session)
            v1.train.Saver().save(session, str(HERE / name), write_state=False)
            rows = np.random.RandomState(0).randn(2, 5, 3).astype(np.float32)
            np.savez(str(HERE / (name + ".npz")), x=rows, y=session.run(y, {x: rows}))
