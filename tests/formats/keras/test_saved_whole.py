"""SavedModels of Keras 2 as whole models: brought to Keras 3, to ONNX, and written as code."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

import rnnconvert as rc
from tests.helpers.frameworks import KERAS_WARNS, by_keras_2
from tests.helpers.requirements import needed

pytestmark = KERAS_WARNS
SCRIPT = """
import sys, numpy as np, tensorflow as tf, tf_keras as keras
L, folder = keras.layers, sys.argv[1]

def save(model, name):  # with one signature: traces of every layer take a minute to write and to load
    specs = {x.name: tf.TensorSpec(x.shape, x.dtype, x.name) for x in model.inputs}
    def serve(**inputs):
        x = [inputs[tensor.name] for tensor in model.inputs]
        outputs = model(x if len(x) > 1 else x[0])
        return dict(zip(model.output_names, outputs if isinstance(outputs, list) else [outputs]))
    serving = tf.function(serve).get_concrete_function(**specs)
    model.save(f"{folder}/{name}", save_format="tf", save_traces=False, signatures=serving)

tokens, extra = keras.Input((7,), dtype="int32", name="tokens"), keras.Input((3,), name="extra")
x = L.Embedding(20, 6, mask_zero=True)(tokens)
x = L.Bidirectional(L.LSTM(4, recurrent_activation="hard_sigmoid", return_sequences=True))(x)
x = L.GRU(3)(x)
dense = L.Dense(4, activation="relu", name="shared")
y = L.BatchNormalization()(dense(L.Dense(4)(L.Concatenate()([x, extra]))))
model = keras.Model([tokens, extra], [L.Dense(1, name="out")(dense(y)), L.Add()([y, L.Dense(4)(x)])])
random = np.random.RandomState(3)
signs = lambda w: random.choice([-1, 1] if w.ndim > 1 else [1], w.shape)
model.set_weights([random.uniform(0.2, 0.6, w.shape) * signs(w) for w in model.get_weights()])
save(model, "model")
x = [random.randint(0, 20, (3, 7)), random.normal(size=(3, 3)).astype("f")]
np.savez(f"{folder}/x.npz", tokens=x[0], extra=x[1], **{f"y{n}": y for n, y in enumerate(model(x))})

cells = keras.Sequential([keras.Input((5, 3)), L.LSTM(4, return_sequences=True), L.RNN([L.LSTMCell(4), L.GRUCell(3)])])
cells.set_weights([random.normal(size=w.shape) for w in cells.get_weights()])
cells.save(f"{folder}/cells", save_format="tf")  # as people save them

def inner(name, units):
    start = keras.Input((None, 3))
    x = L.TimeDistributed(L.Dense(3, name="project"), name="each")(L.LSTM(units, return_sequences=True, name="encoder")(start))
    return keras.Model(start, x, name=name)
start = keras.Input((None, 3), name="start")
x = L.Add()([inner("first", 4)(start), inner("second", 4)(start)])
x = L.RNN([L.LSTMCell(4), L.GRUCell(3)])(L.Bidirectional(L.GRU(3, return_sequences=True), name="both")(x))
named = keras.Model(start, L.Dense(2, name="encoder")(x))
named.set_weights([random.uniform(-0.6, 0.6, w.shape) for w in named.get_weights()])
save(named, "named")
named.save(f"{folder}/named.h5")

plain = keras.Sequential([keras.Input((5, 3)), L.LSTM(4, return_sequences=True, go_backwards=True), L.GRU(3)])
plain.save(f"{folder}/plain", save_format="tf")

trained = keras.Sequential([keras.Input((5, 3)), L.LSTM(4), L.Dense(2)])
trained.compile(keras.optimizers.legacy.Adam(), "mse")
trained.fit(random.normal(size=(4, 5, 3)), np.zeros((4, 2)), verbose=0)
single = tf.function(lambda x: trained(x)).get_concrete_function(tf.TensorSpec([1, 5, 3], tf.float32))
trained.save(f"{folder}/trained", save_format="tf", signatures=single)
half = keras.Sequential([keras.Input((5, 3)), L.GRU(3, dtype="mixed_float16"), L.Dense(2, dtype="float32")])
half.save(f"{folder}/half", save_format="tf", save_traces=False)

class Own(keras.Model):
    def __init__(self):
        super().__init__()
        self.lstm = L.LSTM(3)
    def call(self, x, training=None):
        return self.lstm(x)
own = Own()
own(np.zeros((1, 4, 3), "f"))
own.save(f"{folder}/own", save_format="tf")
"""


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a SavedModel of layers, what it computes, and a SavedModel of a class of its own."""
    folder = tmp_path_factory.mktemp("saved")
    by_keras_2(SCRIPT, folder)
    return folder


def test_a_saved_model_computes_the_same_in_keras_3_and_onnx(saved: Path, tmp_path: Path) -> None:
    keras, runtime = needed("keras", "keras"), needed("onnxruntime", "onnxruntime")
    rc.upgrade(saved / "model", tmp_path / "new.keras")
    rc.export_model(saved / "model", tmp_path / "new.onnx")
    with np.load(saved / "x.npz") as arrays:
        x, truth = [arrays["tokens"], arrays["extra"]], [arrays["y0"], arrays["y1"]]
    session = runtime.InferenceSession(tmp_path / "new.onnx")
    feeds = {"tokens": x[0].astype(np.int32), "extra": x[1]}
    for results in (keras.models.load_model(tmp_path / "new.keras")(x), session.run(None, feeds)):
        for result, expected in zip(results, truth, strict=True):
            np.testing.assert_allclose(np.asarray(result), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["model", "cells", "named", "named.h5", "trained", "half"])
def test_a_saved_model_is_written_as_code_and_proved_by_tensorflow(name: str, saved: Path, tmp_path: Path) -> None:
    """Inputs and outputs have the order of the configuration, not that of the alphabet; a cell is not the one inside another layer.

    Layers of one name in two models have places for names, which keras_metadata.pb ties to layers. What an optimizer of Keras 2 left
    in the file is nothing that TensorFlow without it could load, and a signature may serve batches of one alone, as for TFLite.
    Layers of mixed precision run in Keras, in float32: TensorFlow's function rounds more.
    """
    needed("torch", "torch")
    assert rc.scaffold(saved / name, "pytorch", tmp_path / "model.py", verify=True).equal


def test_a_saved_model_without_its_metadata_states_its_functions_by_its_graph(saved: Path, tmp_path: Path) -> None:
    """Layers as cuDNN has them are functions of their own, and their cells in no scope: what the loops compute was asked for."""
    folder = shutil.copytree(saved / "plain", tmp_path / "plain")
    (folder / "keras_metadata.pb").unlink()
    stated, by_graph = rc.load(saved / "plain"), rc.load(folder)
    assert not by_graph.questions
    for truth, layer in zip(stated.layers.values(), by_graph.layers.values(), strict=True):
        assert (layer.cell, layer.first.reverse) == (truth.cell, truth.first.reverse)


def test_a_saved_model_of_a_class_of_its_own_states_no_layers(saved: Path, tmp_path: Path) -> None:
    with pytest.raises(rc.UsageError, match="layers as code alone"):
        rc.upgrade(saved / "own", tmp_path / "new.keras")
    assert not any(tmp_path.iterdir())
