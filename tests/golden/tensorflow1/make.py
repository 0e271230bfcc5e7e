"""The files beside this one, written by TensorFlow 1.15.5 itself, and what TensorFlow made of them.

.environments/tensorflow1/bin/python tests/golden/tensorflow1/make.py
"""

import gzip
import pathlib
import shutil
import tempfile

import numpy as np
import tensorflow as tf
from tensorflow.contrib import cudnn_rnn, rnn
from tensorflow.python.framework import graph_util

FOLDER = pathlib.Path(__file__).resolve().parent
X = np.random.RandomState(1).uniform(-1, 1, (5, 2, 3)).astype("float32")
cells = tf.nn.rnn_cell


def peepholes(**more):
    return cells.LSTMCell(5, use_peepholes=True, num_proj=2, cell_clip=0.4, proj_clip=0.3, **more)


def basic(size=4, **more):
    return cells.BasicLSTMCell(size, **more)


SINGLE = {
    "basic_rnn": lambda: cells.BasicRNNCell(4),
    "basic_lstm": lambda: basic(forget_bias=0.5),
    "lstm": lambda: peepholes(),
    "relu_lstm": lambda: cells.LSTMCell(4, activation=tf.nn.relu),
    "lstm_block": lambda: rnn.LSTMBlockCell(4, use_peephole=True, cell_clip=0.3),
    "gru": lambda: cells.GRUCell(4),
    "gru_block": lambda: rnn.GRUBlockCell(4),
    "gru_block_v2": lambda: rnn.GRUBlockCellV2(4),
    "cudnn_lstm": lambda: cudnn_rnn.CudnnCompatibleLSTMCell(4),
    "cudnn_gru": lambda: cudnn_rnn.CudnnCompatibleGRUCell(4),
    "coupled": lambda: rnn.CoupledInputForgetGateLSTMCell(
        5, use_peepholes=True, num_proj=2, proj_clip=0.3, forget_bias=0.5, state_is_tuple=True
    ),
    "multi": lambda: cells.MultiRNNCell([basic(4), basic(3)]),
    "mixed": lambda: cells.MultiRNNCell([cells.GRUCell(4), cells.LSTMCell(3, forget_bias=0.0)]),
}


def layers(x):
    """Outputs by the scope of each layer."""
    found = {}

    def one_way(scope, make):
        with tf.variable_scope(scope):
            found[scope] = tf.nn.dynamic_rnn(make(), x, dtype=tf.float32, time_major=True)[0]

    for scope, make in SINGLE.items():
        one_way(scope, make)
    with tf.variable_scope("fused"):
        found["fused"] = rnn.LSTMBlockFusedCell(4, forget_bias=0.25)(x, dtype=tf.float32)[0]
    with tf.variable_scope("partitioned", partitioner=tf.fixed_size_partitioner(3)):
        found["partitioned"] = tf.nn.dynamic_rnn(basic(), x, dtype=tf.float32, time_major=True)[0]
    with tf.variable_scope("two"):
        pair = tf.nn.bidirectional_dynamic_rnn(cells.GRUCell(4), cells.GRUCell(4), x, dtype=tf.float32, time_major=True)
        found["two"] = tf.concat(pair[0], 2)
    with tf.variable_scope("deep"):
        ways = [cells.MultiRNNCell([basic(4), basic(3)]) for _ in range(2)]
        pair = tf.nn.bidirectional_dynamic_rnn(*ways, inputs=x, dtype=tf.float32, time_major=True)
        found["deep"] = tf.concat(pair[0], 2)
    with tf.variable_scope("stacked"):
        ways = [[basic(4), basic(4)] for _ in range(2)]
        found["stacked"] = rnn.stack_bidirectional_dynamic_rnn(*ways, inputs=x, dtype=tf.float32, time_major=True)[0]
    return found


def session(graph):
    """A session whose variables are random, biases too."""
    made = tf.Session(graph=graph)
    random = np.random.RandomState(2)
    for variable in sorted(graph.get_collection("variables"), key=lambda one: one.name):
        variable.load(random.uniform(-0.7, 0.7, variable.shape.as_list()).astype("float32"), made)
    return made


def save(made, name, meta):
    """A checkpoint, and its graph if `meta`; without the file that names the last one."""
    with tempfile.TemporaryDirectory() as folder:
        tf.train.Saver().save(made, str(pathlib.Path(folder) / name), write_meta_graph=False)
        for file in pathlib.Path(folder).glob(name + ".*"):
            shutil.copy(str(file), str(FOLDER / file.name))
    if meta:
        # What does not say how its cells compute is left out: it would be ten times as large.
        graph = tf.train.export_meta_graph(clear_devices=True, strip_default_attrs=True)
        graph.meta_info_def.ClearField("stripped_op_list")
        graph.ClearField("collection_def")
        for node in graph.graph_def.node:
            for attribute in set(node.attr) & {"_output_shapes", "_class"}:
                del node.attr[attribute]
        (FOLDER / (name + ".meta.gz")).write_bytes(gzip.compress(graph.SerializeToString()))


def all_cells(answers):
    """Every cell and wrapper in one checkpoint, without its graph."""
    with tf.Graph().as_default() as graph:
        found = layers(tf.constant(X))
        with session(graph) as made:
            answers.update(made.run(found))
            save(made, "cells", False)


def shown(answers):
    """A graph that says what the variables do not, as training has it; then frozen."""
    with tf.Graph().as_default() as graph:
        x = tf.placeholder(tf.float32, (5, 2, 3), name="x")
        stack = cells.MultiRNNCell([peepholes(forget_bias=0.5), rnn.LSTMBlockCell(3, forget_bias=2.0, cell_clip=0.5)])
        y = tf.nn.static_rnn(stack, tf.unstack(x)[:2], dtype=tf.float32)[0][-1]
        with tf.variable_scope("linear"):
            y = tf.nn.dynamic_rnn(cells.LSTMCell(4, activation=tf.nn.softsign), x, dtype=tf.float32, time_major=True)[0] + y[0, 0]
        loss = tf.reduce_sum(y * y)
        tf.train.AdamOptimizer(name="Adam").minimize(loss)
        with session(graph) as made:
            save(made, "trained", True)
    with tf.Graph().as_default() as graph:
        x = tf.placeholder(tf.float32, (5, 2, 3), name="x")
        y = tf.nn.dynamic_rnn(peepholes(forget_bias=0.5), x, dtype=tf.float32, time_major=True)[0]
        tf.identity(y, "y")
        with session(graph) as made:
            answers["frozen"] = made.run(y, {x: X})
            frozen = graph_util.convert_variables_to_constants(made, graph.as_graph_def(), ["y"])
            (FOLDER / "frozen.pb").write_bytes(frozen.SerializeToString())


def main():
    answers = {}
    all_cells(answers)
    shown(answers)
    np.savez_compressed(str(FOLDER / "answers.npz"), x=X, **answers)


if __name__ == "__main__":
    main()
