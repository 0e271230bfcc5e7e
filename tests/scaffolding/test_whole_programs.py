"""Whole models of TFLite files and of frozen graphs, written as ONNX and as code: what their frameworks computed of Keras's models."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rnnconvert as rc
from rnnconvert.core.cells import Cell, Clip
from rnnconvert.files.checkpoint import Checkpoint
from rnnconvert.language.layout import Sizes
from tests.helpers import corpus
from tests.helpers.random_models import fill
from tests.helpers.requirements import need, needed
from tests.helpers.stacks import PLAIN, random_stack


def keras_models(k: Any, batch: int | None) -> dict[str, Callable[[], Any]]:
    """Small models of Keras, whose inputs have a batch of that size."""
    a = k.layers

    def line(shape: tuple[int, ...], *layers: Any, dtype: str = "float32") -> Any:
        x = y = k.Input(shape, batch_size=batch, dtype=dtype)
        for layer in layers:
            y = layer(y)
        return k.Model(x, y)

    def attention() -> Any:
        x = k.Input((9, 5), batch_size=batch)
        y = a.LSTM(6, return_sequences=True)(x)
        return k.Model(x, a.Dense(2)(a.GlobalMaxPooling1D()(a.Attention()([y, y]))))

    def two_inputs() -> Any:
        x, y = k.Input((8, 3), batch_size=batch), k.Input((6,), batch_size=batch)
        return k.Model([x, y], a.Dense(2)(a.Concatenate()([a.LSTM(5)(x), a.Dense(4, activation="gelu")(y)])))

    def states() -> Any:
        x, h, c = k.Input((8, 3), batch_size=batch), k.Input((6,), batch_size=batch), k.Input((6,), batch_size=batch)
        return k.Model([x, h, c], a.LSTM(6, return_state=True)(x, initial_state=[h, c]))

    return {
        "lstm": lambda: line((12, 5), a.LSTM(7), a.Dense(3, activation="softmax")),
        "gru": lambda: line((12, 5), a.GRU(7, return_sequences=True), a.Dense(3, activation="relu")),
        "gru resetting before": lambda: line((12, 5), a.GRU(7, reset_after=False), a.Dense(2, activation="sigmoid")),
        "both ways": lambda: line((12, 5), a.Bidirectional(a.LSTM(6, return_sequences=True)), a.TimeDistributed(a.Dense(4))),
        "masked": lambda: line((10,), a.Embedding(30, 8, mask_zero=True), a.LSTM(7), a.Dense(3), dtype="int32"),
        "convolutions": lambda: line(
            (16, 10, 2),
            a.Conv2D(4, 3, strides=2, padding="same", activation="relu"),
            a.DepthwiseConv2D(3, padding="same"),
            a.BatchNormalization(),
            a.MaxPooling2D((2, 1)),
            a.Reshape((4, 20)),
            a.GRU(7),
        ),
        "norms": lambda: line((12, 5), a.LayerNormalization(), a.LSTM(7, return_sequences=True), a.GlobalAveragePooling1D()),
        "from the end": lambda: line(
            (12, 5), a.SimpleRNN(7, return_sequences=True, activation="relu"), a.LSTM(5, go_backwards=True), a.Dense(2, activation="swish")
        ),
        "attention": attention,
        "two inputs": two_inputs,
        "states": states,
    }


NAMES = list(keras_models(type("k", (), {"layers": None}), None))


def frameworks(*more: str) -> None:
    """Go on where Keras, onnxruntime and others are."""
    for name in ("keras", "onnxruntime", *more):
        needed(name, {"litert": "ai_edge_litert"}.get(name, name))


def real(folder: str) -> Path:
    """A folder of files that others made."""
    need("corpus", corpus.absent())
    return corpus.FOLDER / folder


def as_tflite(model: Any, path: Path) -> Path:
    """What TensorFlow's converter writes of a model."""
    converter = importlib.import_module("tensorflow").lite.TFLiteConverter.from_keras_model(model)
    path.write_bytes(converter.convert())
    return path


def as_frozen(model: Any, path: Path, lower: bool) -> Path:
    """The graph of a model with its variables as constants; `lower` writes its loops as TensorFlow 1 has them."""
    tf = importlib.import_module("tensorflow")
    freezing = importlib.import_module("tensorflow.python.framework.convert_to_constants")
    function = tf.function(lambda *inputs: model(list(inputs) if len(inputs) > 1 else inputs[0]))
    concrete = function.get_concrete_function(*[tf.TensorSpec(x.shape, x.dtype) for x in model.inputs])
    frozen = freezing.convert_variables_to_constants_v2(concrete, lower_control_flow=lower)
    path.write_bytes(frozen.graph.as_graph_def().SerializeToString())
    return path


def functions(tf: Any) -> dict[str, Callable[[Any], Any]]:
    """Functions of numbers between -20 and 20, most of which bend somewhere."""
    named = (
        "relu", "relu6", "elu", "leaky_relu", "hard_sigmoid", "hard_silu", "gelu", "selu", "celu", "softplus", "softsign", "silu", "mish",
        "log_softmax", "tanh", "sigmoid", "softmax", "log_sigmoid", "hard_tanh", "tanh_shrink", "hard_shrink", "soft_shrink",
    )  # fmt: skip
    activations = importlib.import_module("keras").activations
    return {
        **{name: activations.get(name) for name in named},
        "between -1 and 1": lambda x: tf.clip_by_value(x, -1, 1),
        "between 0 and 1": lambda x: tf.clip_by_value(x, 0, 1),
        "between others": lambda x: tf.clip_by_value(x, -3, 2.5),
        "above and below": lambda x: tf.minimum(tf.maximum(x, -2.0), 3.0),
        "remainders": lambda x: tf.math.floormod(x, 3.0) + tf.math.floordiv(x, 3.0),
        "powers": lambda x: tf.pow(tf.abs(x), 1.5) + tf.math.rsqrt(tf.abs(x) + 1) + tf.math.squared_difference(x, 2.0),
        "whole numbers": lambda x: tf.round(x) + tf.sign(x),
        "choices": lambda x: tf.where(x > 1.0, x, x * 0.5) + tf.cast(tf.argmax(x, axis=-1), tf.float32)[:, :, None],
    }


FUNCTIONS_OF_NUMBERS = list(functions(type("tf", (), {}))) if importlib.util.find_spec("keras") else []


@pytest.mark.parametrize("form", ["frozen", "tflite"])
@pytest.mark.parametrize("name", FUNCTIONS_OF_NUMBERS)
def test_a_function_gives_what_tensorflow_gives(name: str, form: str, tmp_path: Path) -> None:
    frameworks(*(["litert"] if form == "tflite" else []))
    tf = needed("tensorflow", "tensorflow")
    weight, function = np.random.default_rng(1).normal(size=(3, 4)).astype(np.float32) * 6, functions(tf)[name]
    signature = [tf.TensorSpec([None, 7, 3], tf.float32, name="x")]
    concrete = tf.function(lambda x: function(tf.einsum("btf,fo->bto", x, weight)), input_signature=signature).get_concrete_function()
    path = tmp_path / ("model.pb" if form == "frozen" else "model.tflite")
    if form == "tflite":
        path.write_bytes(tf.lite.TFLiteConverter.from_concrete_functions([concrete]).convert())
    else:
        freezing = importlib.import_module("tensorflow.python.framework.convert_to_constants")
        path.write_bytes(freezing.convert_variables_to_constants_v2(concrete).graph.as_graph_def().SerializeToString())
    if form == "tflite" and name == "remainders":
        with pytest.raises(rc.RefusedError, match="FLOOR_"):
            rc.export_model(path, tmp_path / "model.onnx")
        return
    equal(path, tmp_path / "model.onnx")


@pytest.mark.parametrize("settings", [{}, {"forget_bias": 0.3}, {"cell_clip": 0.2}, {"use_peephole": True}, None, {"whole": 0.3}], ids=str)
def test_a_cell_that_is_one_operation_gives_what_tensorflow_gives(settings: dict[str, Any] | None, tmp_path: Path) -> None:
    """Steps of tf.contrib's LSTMBlockCell, and of GRUBlockCell; all steps of BlockLSTM."""
    frameworks()
    tf, random = needed("tensorflow", "tensorflow"), np.random.default_rng(2)

    def drawn(*shape: int) -> Any:
        return tf.constant(random.normal(size=shape).astype(np.float32) / 2)

    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(tf.float32, [None, 5, 3], name="x")
        h = c = tf.zeros([tf.shape(x)[0], 4])
        lstm, gru, sights = (drawn(7, 16), drawn(16)), (drawn(7, 8), drawn(7, 4), drawn(8), drawn(4)), [drawn(4) for _ in range(3)]
        if settings is not None and "whole" in settings:
            weights = dict(w=lstm[0], b=lstm[1], **dict(zip(("wci", "wcf", "wco"), sights, strict=True)))
            count, steps = tf.shape(x, tf.int64)[1], tf.transpose(x, [1, 0, 2])
            layer = tf.raw_ops.BlockLSTM(
                seq_len_max=count, x=steps, cs_prev=c, h_prev=h, **weights, forget_bias=settings["whole"], cell_clip=-1.0
            )
            h = layer.h[-1]
        for step in range(0 if settings is not None and "whole" in settings else 5):
            if settings is None:
                h = tf.raw_ops.GRUBlockCell(x=x[:, step], h_prev=h, w_ru=gru[0], w_c=gru[1], b_ru=gru[2], b_c=gru[3]).h
                continue
            options = {"forget_bias": 1.0, "cell_clip": -1.0, "use_peephole": False, **settings}
            stored = dict(zip(("wci", "wcf", "wco"), sights, strict=True))
            outputs = tf.raw_ops.LSTMBlockCell(x=x[:, step], cs_prev=c, h_prev=h, w=lstm[0], b=lstm[1], **stored, **options)
            h, c = outputs.h, outputs.cs
        tf.nn.softmax(tf.matmul(h, drawn(4, 2)), name="y")
    (tmp_path / "model.pb").write_bytes(graph.as_graph_def().SerializeToString())
    done = equal(tmp_path / "model.pb", tmp_path / "model.onnx")
    assert bool(done.layers) == (settings is None or ("cell_clip" not in settings and "use_peephole" not in settings))


def equal(source: Path, target: Path) -> Any:
    """What became of a file, which both frameworks ran."""
    done = rc.export_model(source, target, force=True, verify=True)
    assert done.equal, done
    return done


@pytest.mark.parametrize("name", NAMES)
def test_a_tflite_model_gives_what_litert_gives(name: str, tmp_path: Path) -> None:
    frameworks("litert")
    model = keras_models(importlib.import_module("keras"), 1)[name]()
    fill(model, 5)
    equal(as_tflite(model, tmp_path / "model.tflite"), tmp_path / "model.onnx")


@pytest.mark.parametrize("lower", [False, True], ids=["functions", "frames"])
@pytest.mark.parametrize("name", NAMES)
def test_a_frozen_graph_gives_what_tensorflow_gives(name: str, lower: bool, tmp_path: Path) -> None:
    frameworks()
    model = keras_models(importlib.import_module("keras"), None)[name]()
    fill(model, 6)
    equal(as_frozen(model, tmp_path / "model.pb", lower), tmp_path / "model.onnx")


@pytest.mark.parametrize("target", ["model.onnx", "model.tflite", "model.h", "model.xml"])
def test_a_clipped_cell_is_written_step_by_step(target: str, tmp_path: Path) -> None:
    """A fused operator's clip has no word in ONNX; its states, which a run of the file keeps, begin anew in what is written."""
    frameworks("litert")
    done = equal(real("tflite-micro-mnist-lstm") / "trained_lstm.tflite", tmp_path / target)
    assert any("goes on from one call to the next in its file" in note for note in done.notes)


@pytest.mark.parametrize("ways", [1, 2])
def test_each_direction_of_a_clipped_cell_is_a_scan(ways: int, tmp_path: Path) -> None:
    frameworks("litert")
    cell = Cell("lstm").replace(clips=(Clip("cell", -0.25, 0.25),))
    stack = random_stack(Sizes("lstm", 3, 4, 1, ways, parts=PLAIN | {"input_bias"}), 7, np.float32, cell).replace(name="rnn")
    rc.save(Checkpoint("memory", "", {"rnn": stack}), tmp_path / "model.tflite")
    done = equal(tmp_path / "model.tflite", tmp_path / "model.onnx")
    assert [text.partition("(")[2] for text in done.layers] == ["LSTM 3 -> 4)"]


@pytest.mark.parametrize("target", ["model.onnx", "model.xml", "model.param"])
def test_a_model_of_the_corpus_goes_on(target: str, tmp_path: Path) -> None:
    frameworks("litert", "openvino", "ncnn")
    equal(real("dtln-base") / "model_1.tflite", tmp_path / target)


@pytest.mark.parametrize("target", ["model.onnx", "model.tflite", "model.param", "model.h"])
def test_a_keyword_spotter_goes_to_where_it_runs(target: str, tmp_path: Path) -> None:
    """From the features of a sound on: what makes these is not written, and a note says so."""
    frameworks("litert", "ncnn")
    done = equal(real("kws-arm-small") / "Basic_LSTM_S.pb", tmp_path / target)
    assert done.inputs[0].startswith("Reshape")
    assert "its input is 'Reshape': what makes that of a sound (DecodeWav, AudioSpectrogram, Mfcc) is not written" in done.notes


def test_an_unknown_operator_is_named_as_the_file_does(tmp_path: Path) -> None:
    with pytest.raises(rc.RefusedError, match="the operator RandomUniform"):
        rc.export_model(real("tf2onnx-fixtures") / "gru_frozen.pb", tmp_path / "model.onnx", axes=3)
    assert not list(tmp_path.iterdir())


def test_inputs_without_stated_axes_are_asked_for(tmp_path: Path) -> None:
    source = real("tf2onnx-fixtures") / "gru_frozen.pb"
    with pytest.raises(rc.RefusedError, match="--axes"):
        rc.export_model(source, tmp_path / "model.onnx")
    with pytest.raises(rc.UsageError, match="states 3 entries for 1 input whose axes the file does not state: X:0"):
        rc.export_model(source, tmp_path / "model.onnx", axes=[3, 1, 1])


def test_short_arrays_that_are_written_out_are_not_said_to_be_left_out(tmp_path: Path) -> None:
    onnx = importlib.import_module("onnx")
    helper = onnx.helper
    x, y = (helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["batch", 3]) for name in ("x", "y"))
    bias = onnx.numpy_helper.from_array(np.array([1, 2, 3], np.float32), "bias")
    graph = helper.make_graph([helper.make_node("Add", ["x", "bias"], ["y"])], "graph", [x], [y], [bias])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "bias.onnx")
    assert not rc.export_model(tmp_path / "bias.onnx", tmp_path / "again.onnx").notes


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
def test_a_tflite_file_with_loops_names_what_runs_on_microcontrollers(tmp_path: Path) -> None:
    keras = needed("keras", "keras")
    x = keras.Input((5, 3))
    for name, layer, loops in (("dense", keras.layers.Dense(2), False), ("lstm", keras.layers.LSTM(2), True)):
        keras.Model(x, layer(x)).save(tmp_path / f"{name}.keras")
        notes = rc.export_model(tmp_path / f"{name}.keras", tmp_path / f"{name}.tflite").notes
        assert any("microcontrollers" in str(note) for note in notes) == loops
