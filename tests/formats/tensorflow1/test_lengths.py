"""Loops of TensorFlow 1 that end after the longest of their sequences' lengths, in whole models, against what TensorFlow 1 computes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from rnnconvert.core.arrays import Array
from rnnconvert.core.errors import RefusedError
from rnnconvert.scaffolding.export import export_model
from tests.formats.tensorflow1.test_tensorflow1_files import by_tensorflow
from tests.helpers.requirements import needed

GRAPHS = """
import numpy as np, tensorflow as tf
from tensorflow.python.framework import graph_util
cells = tf.nn.rnn_cell
X = np.random.RandomState(1).uniform(-1, 1, (4, 6, 3)).astype('f')
LENGTHS = {'mixed': [2, 4, 0, 3], 'whole': [6, 1, 2, 6]}
def outputs(x, n): return tf.nn.dynamic_rnn(cells.BasicLSTMCell(4), x, sequence_length=n, dtype=tf.float32)[0]
def state(x, n): return tf.nn.dynamic_rnn(cells.GRUCell(4), x, sequence_length=n, dtype=tf.float32)[1]
def time_major(x, n):
    return tf.nn.dynamic_rnn(cells.BasicRNNCell(4), tf.transpose(x, [1, 0, 2]), n, dtype=tf.float32, time_major=True)[0]
def both(x, n):
    forward, backward = cells.LSTMCell(4), cells.LSTMCell(5)
    (of_forward, of_backward), states = tf.nn.bidirectional_dynamic_rnn(forward, backward, x, n, dtype=tf.float32)
    return tf.concat([of_forward, of_backward, tf.tile(states[1].h[:, None], [1, tf.shape(x)[1], 1])], 2)
def counted(x, n):
    counts = tf.sign(tf.reduce_max(tf.abs(x), 2)) * tf.sequence_mask(n, tf.shape(x)[1], dtype=tf.float32)
    return tf.nn.dynamic_rnn(cells.GRUCell(4), x, tf.cast(tf.reduce_sum(counts, 1), tf.int32), dtype=tf.float32)[0]
def unmasked(x, n):
    cell, steps, end = cells.BasicRNNCell(4), tf.shape(x)[1], tf.reduce_max(n)
    read = tf.TensorArray(tf.float32, steps).unstack(tf.transpose(x, [1, 0, 2]))
    def step(t, h, written):
        h = cell(read.read(t), h)[0]
        return t + 1, h, written.write(t, h)
    begin = tf.constant(0), cell.zero_state(tf.shape(x)[0], tf.float32), tf.TensorArray(tf.float32, steps, element_shape=(None, 4))
    return tf.while_loop(lambda t, h, written: t < tf.minimum(steps, end), step, begin)[1]
found = {'x': X, **{name: np.array(n, 'i') for name, n in LENGTHS.items()}}
for make in outputs, state, time_major, both, counted, unmasked:
    name = make.__name__
    with tf.Graph().as_default() as graph, tf.Session() as session:
        x, n = tf.placeholder(tf.float32, (None, None, 3), name='x'), tf.placeholder(tf.int32, (None,), name='n')
        y = tf.identity(make(x, n), name='y')
        random = np.random.RandomState(3)
        for variable in sorted(tf.global_variables(), key=lambda variable: variable.name):
            variable.load(random.uniform(-.7, .7, variable.shape.as_list()).astype('f'), session)
        for case, lengths in LENGTHS.items():
            found[name + ' ' + case] = session.run(y, {x: X, n: lengths})
        frozen = graph_util.convert_variables_to_constants(session, graph.as_graph_def(), ['y'])
        open(name + '.pb', 'wb').write(frozen.SerializeToString())
"""


@pytest.fixture(scope="module")
def graphs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Array]]:
    """The files, and what TensorFlow computed from them."""
    folder = tmp_path_factory.mktemp("graphs")
    return folder, by_tensorflow(folder, GRAPHS)


@pytest.mark.parametrize("name", ["outputs", "state", "time_major", "both", "counted"])
def test_loops_that_end_after_the_longest_sequence(graphs: tuple[Path, dict[str, Array]], name: str, tmp_path: Path) -> None:
    """The steps behind it change no state and give zeros, as the lists of TensorFlow hold where nothing was put."""
    folder, answers = graphs
    export_model(folder / f"{name}.pb", tmp_path / "m.onnx")
    session = needed("onnxruntime", "onnxruntime").InferenceSession(str(tmp_path / "m.onnx"))
    for case in ("mixed", "whole"):
        (y,) = session.run(None, {"x": answers["x"], "n": answers[case]})
        np.testing.assert_allclose(y, answers[f"{name} {case}"], rtol=0, atol=1e-6)


def test_a_loop_of_openvino_is_read_back(graphs: tuple[Path, dict[str, Array]], tmp_path: Path) -> None:
    """Its ports may be of as many axes as a run decides, of which its file states none."""
    needed("openvino", "openvino")
    export_model(graphs[0] / "outputs.pb", tmp_path / "m.xml", verify=True)


def test_a_loop_whose_steps_behind_the_longest_would_count(graphs: tuple[Path, dict[str, Array]], tmp_path: Path) -> None:
    """Its state is that of the longest sequence's last step, and no step keeps it."""
    with pytest.raises(RefusedError, match="a run decides whether it begins"):
        export_model(graphs[0] / "unmasked.pb", tmp_path / "m.onnx")
