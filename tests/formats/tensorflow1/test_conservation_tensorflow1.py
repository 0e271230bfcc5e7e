"""What a TensorFlow 1 graph holds besides weights: the states that its cells begin with, and the operands of block cells."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import rnnconvert as rc
from rnnconvert.core import reference
from rnnconvert.core.arrays import Array
from rnnconvert.running import registry
from rnnconvert.verification.verify import verify
from tests.formats.tensorflow1.test_tensorflow1_files import GOLDEN, by_tensorflow, trained
from tests.helpers.requirements import need

GRAPHS = """
from tensorflow.contrib import rnn
from tensorflow.python.framework import graph_util
cells = tf.nn.rnn_cell
X = np.random.RandomState(1).uniform(-1, 1, (5, 2, 3)).astype('f')
def learned(name, *shape): return tf.get_variable(name, shape, initializer=tf.zeros_initializer())
def tiled(x, name, size): return tf.tile(learned(name, 1, size), [tf.shape(x)[1], 1])
def states(x, cell=4, hidden=4): return cells.LSTMStateTuple(tiled(x, 'c0', cell), tiled(x, 'h0', hidden))
def run(cell, x, start, **more): return tf.nn.dynamic_rnn(cell, x, initial_state=start, time_major=True, **more)[0]
def rows(*numbers): return tf.constant(np.tile([numbers], (2, 1)).astype('f'))
def lstm_constants(x): return run(cells.BasicLSTMCell(4), x, cells.LSTMStateTuple(rows(.5, -.4, .3, .9), rows(.1, -.7, .3, .2)))
def lstm(x): return run(cells.LSTMCell(4, use_peepholes=True), x, states(x))
def projected(x): return run(cells.LSTMCell(4, num_proj=2, cell_clip=.4), x, states(x, 4, 2))
def gru(x): return run(cells.GRUCell(4), x, tiled(x, 'h0', 4), sequence_length=[5, 5])
def plain(x): return run(cells.BasicRNNCell(4), x, tf.zeros([tf.shape(x)[1], 4]) + learned('h0', 4))
def unrolled(x): return tf.stack(tf.nn.static_rnn(cells.BasicLSTMCell(4), tf.unstack(x, 5), initial_state=states(x))[0])
def block(x): return run(rnn.LSTMBlockCell(4), x, states(x))
def gru_block(x): return run(rnn.GRUBlockCellV2(4), x, tiled(x, 'h0', 4))
def fused(x): return rnn.LSTMBlockFusedCell(4, forget_bias=.25, cell_clip=.5)(x, initial_state=states(x), dtype=tf.float32)[0]
def fused_zeros(x): return rnn.LSTMBlockFusedCell(4, forget_bias=.25, cell_clip=.5)(x, dtype=tf.float32)[0]
def fused_peepholes(x): return rnn.LSTMBlockFusedCell(4, use_peephole=True)(x, dtype=tf.float32)[0]
def coupled(x): return run(rnn.CoupledInputForgetGateLSTMCell(4, state_is_tuple=True), x, states(x))
def stacked(x):
    start = tuple(cells.LSTMStateTuple(tiled(x, 'c%d' % n, n), tiled(x, 'h%d' % n, n)) for n in (4, 3))
    return run(cells.MultiRNNCell([cells.BasicLSTMCell(n) for n in (4, 3)]), x, start)
def two(x):
    start = dict(initial_state_fw=tiled(x, 'forward', 4), initial_state_bw=tiled(x, 'backward', 4))
    return tf.concat(tf.nn.bidirectional_dynamic_rnn(cells.GRUCell(4), cells.GRUCell(4), x, time_major=True, **start)[0], 2)
def zeros(x): return run(cells.BasicLSTMCell(4), x, cells.BasicLSTMCell(4).zero_state(2, tf.float32))
def made_of_more(x): return run(cells.GRUCell(4), x, tf.tanh(tiled(x, 'h0', 4)))
def unlike(x): return run(cells.GRUCell(4), x, learned('h0', 2, 4))
def computed(x): return run(cells.GRUCell(4), x, tf.layers.dense(x[0], 4))
def given(x): return run(cells.GRUCell(4), x, tf.placeholder_with_default(np.zeros((2, 4), 'f'), (None, 4), name='state'))
found = {'x': X}
for make in (lstm_constants, lstm, projected, gru, plain, unrolled, block, gru_block, fused, fused_zeros, fused_peepholes, coupled,
             stacked, two, zeros, made_of_more, unlike, computed, given):
    name = make.__name__
    with tf.Graph().as_default() as graph, tf.Session() as session:
        x = tf.placeholder(tf.float32, (5, 2 if name in ('fused_zeros', 'fused_peepholes') else None, 3), name='x')
        y = tf.identity(make(x), name='y')
        random = np.random.RandomState(3)
        for variable in sorted(tf.global_variables(), key=lambda one: one.name):
            variable.load(random.uniform(-.7, .7, variable.shape.as_list()).astype('f'), session)
        found[name] = session.run(y, {x: X})
        frozen = graph_util.convert_variables_to_constants(session, graph.as_graph_def(), ['y'])
        open(name + '.pb', 'wb').write(frozen.SerializeToString())
        tf.train.Saver().save(session, './' + name)
"""
"""Graphs whose cells begin with learned states, with others and with zeros: frozen, and beside a checkpoint."""
LEARNED = ("lstm_constants", "lstm", "projected", "gru", "plain", "unrolled", "block", "gru_block", "fused", "coupled", "stacked", "two")
ZEROS = ("fused_zeros", "fused_peepholes", "zeros", "given")
ANSWERS: dict[str, dict[str, Any]] = {"coupled": {"forget_bias": 1.0}}


@pytest.fixture(scope="module")
def graphs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Array]]:
    """The files, and what TensorFlow computed from them."""
    folder = tmp_path_factory.mktemp("graphs")
    return folder, by_tensorflow(folder, GRAPHS)


@pytest.mark.parametrize("suffix", [".pb", ".index"])
@pytest.mark.parametrize("name", [*LEARNED, *ZEROS])
def test_cells_begin_with_what_the_graph_says(graphs: tuple[Path, dict[str, Array]], name: str, suffix: str) -> None:
    folder, answers = graphs
    checkpoint = rc.load(folder / f"{name}{suffix}", **ANSWERS.get(name, {}))
    assert not checkpoint.warnings, checkpoint.warnings
    (stack,) = checkpoint.layers.values()
    np.testing.assert_allclose(reference.run(stack, answers["x"]).y, answers[name], rtol=0, atol=5e-7)
    held = {part for part, _ in stack.first.arrays if part.startswith("initial")}
    lstm = stack.first.cell.kind == "lstm"
    assert held == (set() if name in ZEROS else {"initial_hidden", "initial_cell"} if lstm else {"initial_hidden"})


def test_learned_states_go_where_they_can_be_held(graphs: tuple[Path, dict[str, Array]], tmp_path: Path) -> None:
    folder, answers = graphs
    rc.convert(folder / "lstm.pb", tmp_path / "lstm.onnx")
    (stack,) = rc.load(tmp_path / "lstm.onnx").layers.values()
    np.testing.assert_allclose(reference.run(stack, answers["x"]).y, answers["lstm"], rtol=0, atol=5e-7)
    with pytest.raises(rc.RefusedError, match="initial state"):
        rc.convert(folder / "lstm_constants.pb", tmp_path / "lstm.pt")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("made_of_more", "its initial state: the graph computes it (Tanh 'Tanh')"),
        ("unlike", "its initial state: 'h0' has other numbers for each of 2 sequences"),
    ],
)
def test_a_state_that_cannot_be_read_is_refused(graphs: tuple[Path, dict[str, Array]], name: str, message: str) -> None:
    folder, _ = graphs
    checkpoint = rc.load(folder / f"{name}.pb")
    assert not checkpoint.layers and message in checkpoint.warnings[0] and "--set initial_state=call" in checkpoint.warnings[0]
    assert list(rc.load(folder / f"{name}.pb", settings=["initial_state=call"]).layers) == ["rnn"]


def test_a_state_that_the_model_computes_from_its_input_is_told(graphs: tuple[Path, dict[str, Array]]) -> None:
    folder, _ = graphs
    checkpoint = rc.load(folder / "computed.pb")
    assert "its initial state is computed from what the model reads (dense/BiasAdd)" in checkpoint.warnings[0]


@pytest.mark.parametrize("file", ["zeros.pb", "zeros.index"])
def test_a_graph_is_verified_by_todays_operations(graphs: tuple[Path, dict[str, Array]], file: str) -> None:
    need("keras", registry.built_in()["tensorflow2-raw"].absent)
    folder, _ = graphs
    report = verify(folder / file, on=["tensorflow2-raw"])
    assert report.equal, str(report)
    assert report.document["layers"][0]["runs"][0]["own_file"] == (not file.endswith(".pb"))


def test_variables_that_tensorflow_1_0_named_run_today(tmp_path: Path) -> None:
    """Before 1.2 a kernel was called weights, and a bias biases."""
    need("keras", registry.built_in()["tensorflow2-raw"].absent)
    import tensorflow as tf

    draw = np.random.default_rng(2)
    shapes = {
        f"rnn/multi_rnn_cell/cell_{n}/basic_lstm_cell/{word}": shape
        for n in (0, 1)
        for word, shape in (("weights", (8, 16)), ("biases", (16,)))
    }
    tensors = [tf.constant(draw.normal(size=shape), tf.float32) for shape in shapes.values()]
    tf.raw_ops.SaveV2(prefix=str(tmp_path / "old"), tensor_names=[*shapes], shape_and_slices=[""] * len(shapes), tensors=tensors)
    report = verify(tmp_path / "old.index", on=["tensorflow2-raw"])
    assert report.equal and report.document["layers"][0]["runs"][0]["own_file"], str(report)


@pytest.mark.parametrize("residual", [False, True])
def test_the_bias_of_tensorflow_0_is_no_residual(residual: bool, tmp_path: Path) -> None:
    """Up to 0.12 a cell multiplied in a scope Linear and added its bias outside of it, by Add."""
    need("keras", registry.built_in()["tensorflow2-raw"].absent)
    import tensorflow as tf

    v1 = tf.compat.v1
    with tf.Graph().as_default(), v1.Session() as session:
        below = v1.placeholder(tf.float32, (2, 4))
        zeros = tf.zeros((2, 4))
        for number in (0, 1):
            with v1.variable_scope(f"RNN/MultiRNNCell/Cell{number}/BasicLSTMCell"):
                with v1.variable_scope("Linear"):
                    matrix, bias = (
                        v1.get_variable(name, shape, use_resource=False) for name, shape in (("Matrix", (8, 16)), ("Bias", (16,)))
                    )
                    product = tf.matmul(tf.concat([below, zeros], 1), matrix)
                i, g, f, o = tf.split(tf.add(product, bias), 4, 1)
                h = tf.tanh(zeros * tf.sigmoid(f + 1.0) + tf.sigmoid(i) * tf.tanh(g)) * tf.sigmoid(o)
            below = tf.add(h, below) if residual else h
        session.run(v1.global_variables_initializer())
        v1.train.Saver().save(session, str(tmp_path / "old"))
    if residual:
        with pytest.raises(rc.RefusedError, match="adds something"):
            rc.convert(tmp_path / "old.index", tmp_path / "old.onnx")
        return
    (stack,) = rc.load(tmp_path / "old.index").layers.values()
    rc.convert(tmp_path / "old.index", tmp_path / "old.onnx")
    assert stack.num_layers == 2 and stack.first.cell.constants["f"] == 1


def test_a_conversion_of_a_frozen_graph_is_verified(graphs: tuple[Path, dict[str, Array]], tmp_path: Path) -> None:
    folder, _ = graphs
    summary = rc.convert(folder / "zeros.pb", tmp_path / "a.onnx", verify=True)
    assert summary.report is not None and summary.report.equal and summary.written, str(summary.report)


KERAS = """
found = {'x': np.random.RandomState(1).uniform(-1, 1, (2, 5, 3)).astype('f')}
for version in (1, 2):
    with tf.Graph().as_default() as graph, tf.Session() as session:
        tf.compat.v1.set_random_seed(1)
        x = tf.placeholder(tf.float32, (2, 5, 3), name='x')
        y = tf.keras.layers.LSTM(3)(tf.keras.layers.GRU(4, return_sequences=True)(x))
        if version == 2:
            y = y + tf.nn.dynamic_rnn(cells.GRUCell(3), x, dtype=tf.float32)[0][:, -1]
        y = tf.identity(y, name='y')
        session.run(tf.global_variables_initializer())
        found['y%d' % version] = session.run(y, {x: found['x']})
        frozen = graph_util.convert_variables_to_constants(session, graph.as_graph_def(), ['y'])
        open('keras_%d.pb' % version, 'wb').write(frozen.SerializeToString())
"""


def test_loops_of_keras_in_a_frozen_graph_are_layers(tmp_path: Path) -> None:
    heads = GRAPHS.partition("X = ")[0]
    recorded = by_tensorflow(tmp_path, heads + KERAS)
    checkpoint = rc.load(tmp_path / "keras_1.pb")
    assert list(checkpoint.layers) == ["gru", "lstm"] and not checkpoint.unread and not checkpoint.tensors
    below = reference.run(checkpoint.layers["gru"], recorded["x"].swapaxes(0, 1)).y
    np.testing.assert_allclose(reference.run(checkpoint.layers["lstm"], below).hidden[0], recorded["y1"], rtol=1e-5, atol=1e-6)
    # One that is read by its names beside them.
    assert list(rc.load(tmp_path / "keras_2.pb").layers) == ["rnn", "gru", "lstm"]


def test_loops_that_todays_tensorflow_freezes_are_named(tmp_path: Path) -> None:
    need("keras", registry.built_in()["tensorflow2-raw"].absent)
    import tensorflow as tf
    from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

    kernel, recurrent = tf.Variable(tf.ones((3, 12))), tf.Variable(tf.ones((4, 12)))

    @tf.function(input_signature=[tf.TensorSpec((1, 3))])
    def looped(x):  # type: ignore[no-untyped-def]
        def step(i, h):  # type: ignore[no-untyped-def]
            return i + 1, tf.tanh(tf.reduce_sum(tf.reshape(x @ kernel + h @ recurrent, (1, 3, 4)), 1))

        return tf.while_loop(lambda i, h: i < 5, step, (0, tf.zeros((1, 4))))[1]

    for lower in (True, False):
        frozen = convert_variables_to_constants_v2(looped.get_concrete_function(), lower_control_flow=lower)
        (tmp_path / "a.pb").write_bytes(frozen.graph.as_graph_def().SerializeToString())
        (named,) = rc.load(tmp_path / "a.pb").unread
        assert "(4, 12)" in named, named


def test_layers_that_todays_keras_has_in_a_frozen_graph(tmp_path: Path) -> None:
    """Loops with functions and loops of TensorFlow 1's kind: the reference gives what Keras gave."""
    need("keras", registry.built_in()["tensorflow2-raw"].absent)
    import keras
    import tensorflow as tf
    from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

    if keras.backend.backend() != "tensorflow":
        pytest.skip("another backend of Keras is loaded")
    layers = keras.layers
    random = np.random.default_rng(3)
    x = random.normal(size=(2, 5, 3)).astype(np.float32)
    sequences = {"return_sequences": True}
    models = [
        [layers.GRU(4, reset_after=False)],
        [layers.LSTM(4, recurrent_activation="hard_sigmoid", **sequences), layers.SimpleRNN(3, activation="relu")],
        [layers.Bidirectional(layers.GRU(4, **sequences))], [layers.LSTM(4, unroll=True)],
    ]  # fmt: skip
    for row in models:
        model = keras.Sequential([keras.Input((5 if getattr(row[0], "unroll", False) else None, 3)), *row])
        model.set_weights([(random.normal(size=weight.shape) * 0.5).astype(np.float32) for weight in model.get_weights()])
        truth = np.asarray(model(x))
        spec = tf.TensorSpec((None, *model.inputs[0].shape[1:]), tf.float32)
        called = tf.function(lambda x, model=model: model(x)).get_concrete_function(spec)
        for lower in (True, False):
            frozen = convert_variables_to_constants_v2(called, lower_control_flow=lower)
            (tmp_path / "a.pb").write_bytes(frozen.graph.as_graph_def().SerializeToString())
            checkpoint = rc.load(tmp_path / "a.pb")
            assert not checkpoint.unread, checkpoint.unread
            stacks = list(checkpoint.layers.values())
            outputs = [reference.run(stacks[0], x.swapaxes(0, 1))]
            if isinstance(row[0], layers.Bidirectional):
                outputs.append(reference.run(stacks[1], x.swapaxes(0, 1)))
            elif len(stacks) > 1:
                outputs = [reference.run(stacks[1], outputs[0].y)]
            y = np.concatenate([output.y.swapaxes(0, 1) if truth.ndim == 3 else output.hidden[0] for output in outputs], -1)
            np.testing.assert_allclose(y, truth, rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize("ending", ["", ":0"])
@pytest.mark.parametrize("suffix", [".h5", ".npz"])
def test_variables_are_read_from_archives_of_arrays(suffix: str, ending: str, tmp_path: Path) -> None:
    arrays: dict[str, Any] = {f"{name}{ending}": array for name, array in rc.load(GOLDEN / "cells.index").arrays.items()}
    path = tmp_path / f"variables{suffix}"
    if suffix == ".npz":
        np.savez(path, **arrays)
    else:
        with h5py.File(path, "w") as file:
            for name, stored in arrays.items():
                file[name] = stored
    checkpoint = rc.load(path)
    assert checkpoint.format == "tensorflow1" and not checkpoint.tensors
    expected = rc.load(GOLDEN / "cells.index")
    assert checkpoint.layers.keys() == expected.layers.keys()
    for name, stack in expected.layers.items():
        for key, direction in ((key, right) for *key, right in stack.directions()):
            actual = checkpoint.layers[name][key[0], key[1]]
            for part, array in direction.arrays.items():
                np.testing.assert_array_equal(np.asarray(actual.arrays[part]), np.asarray(array))


def test_a_saved_model_is_read_by_its_own_file(tmp_path: Path) -> None:
    need("keras", registry.built_in()["keras-tensorflow"].absent)
    import keras

    model = keras.Sequential([keras.Input((5, 3)), keras.layers.GRU(4, name="gru")])
    model.export(tmp_path / "model", verbose=False)
    by_folder, by_file = (rc.load(path).layers["gru"] for path in (tmp_path / "model", tmp_path / "model" / "saved_model.pb"))
    np.testing.assert_array_equal(np.asarray(by_folder[0, 0].gates["z"].input), np.asarray(by_file[0, 0].gates["z"].input))
    (tmp_path / "alone").mkdir()
    (tmp_path / "alone" / "saved_model.pb").write_bytes((tmp_path / "model" / "saved_model.pb").read_bytes())
    with pytest.raises(rc.UnreadableError, match="it has no variables"):
        rc.load(tmp_path / "alone" / "saved_model.pb")
    (tmp_path / "alone" / "saved_model.pb").rename(tmp_path / "alone" / "model.onnx.pb")
    with pytest.raises(rc.UnreadableError, match="the graph of a SavedModel"):
        rc.load(tmp_path / "alone" / "model.onnx.pb")


@pytest.mark.parametrize("part", [".meta", ".data-00000-of-00001"])
def test_each_file_of_a_checkpoint_stands_for_it(tmp_path: Path, part: str) -> None:
    path = trained(tmp_path)
    companion = path.with_suffix(part)
    expected, same = rc.load(path), rc.load(companion)
    assert same.layers.keys() == expected.layers.keys() and same.tensors.keys() == expected.tensors.keys()
    shutil.copy(path, tmp_path / "other.index")
    with pytest.raises(rc.UnreadableError, match=r"holds 2 checkpoints: other\.index, trained\.index"):
        rc.load(tmp_path)
    path.unlink()
    with pytest.raises(rc.UnreadableError, match=r"trained\.index is not next to it"):
        rc.load(companion)
    (tmp_path / "words.meta").write_text("nothing but words")
    with pytest.raises(rc.UnreadableError, match="text of no known format"):
        rc.load(tmp_path / "words.meta")
