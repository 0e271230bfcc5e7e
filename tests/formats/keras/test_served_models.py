"""SavedModels whose layers are not stated, or not all known, as whole models: by the function that they serve."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

import rnnconvert as rc
from rnnconvert.containers import saved_model
from tests.helpers.drawn import drawn, each
from tests.helpers.frameworks import KERAS_WARNS, by_keras_2, found_by
from tests.helpers.onnx_graphs import in_onnxruntime
from tests.helpers.requirements import needed

pytestmark = KERAS_WARNS
RECURRENT = ("LSTM", "GRU", "SimpleRNN")


def shaken(model: Any, random: np.random.Generator) -> Any:
    """The model with weights of its own, none of them as they begin."""
    model.set_weights([random.uniform(0.2, 0.6, weight.shape) * random.choice([-1, 1], weight.shape) ** (weight.ndim > 1)
                       for weight in model.get_weights()])  # fmt: skip
    return model


def drawn_model(keras: Any, seed: int) -> Any:
    """A model of layers of equal sizes, with several outputs, as `model.export` and classes of one's own leave them."""
    random, layers = np.random.default_rng(seed), keras.layers
    tokens = bool(random.integers(2))
    x = start = keras.Input((7,), dtype=str(random.choice(["int32", "float32"])), name="b") if tokens else keras.Input((7, 4), name="b")
    x = layers.Embedding(9, 4)(x) if tokens else layers.BatchNormalization()(layers.Dense(4, activation="relu")(x))
    for kind in random.choice(RECURRENT, int(random.integers(1, 3))):
        layer = getattr(layers, kind)(4, return_sequences=True)
        x = layers.Bidirectional(layer, merge_mode="sum")(x) if random.integers(2) else layer(x)
    other = keras.Input((4,), name="a")
    h, c = layers.Dense(4)(other), layers.Dense(4, activation="tanh")(other)
    y, (h, c) = layers.LSTMCell(4)(x[:, -1], [h, c])
    heads = [layers.Dense(4)(keras.ops.concatenate([y, layers.GlobalMaxPooling1D()(x)])), layers.Dense(4, activation="softmax")(h), c]
    return shaken(keras.Model([start, other], heads), random)


@pytest.mark.parametrize("target", ["onnx", "tflite"])
def test_what_keras_3_exports_is_written_by_the_function_that_it_serves(target: str, tmp_path: Path) -> None:
    keras = needed("keras", "keras")
    needed("tensorflow", "tensorflow")

    def check(seed: int) -> None:
        model = drawn_model(keras, seed)
        folder = tmp_path / f"model{seed}"
        model.export(folder, verbose=False)
        done = rc.export_model(folder, tmp_path / f"model{seed}.{target}", verify=True)
        assert done.proof and all(done.proof)
        assert [line.partition(" ")[0] for line in done.inputs] == ["a", "b"]
        assert not [note for note in done.notes if "depends on them" in note]

    each(drawn(range(40), 1, f"models served for {target}"), check)


@pytest.mark.parametrize("kind", ["LSTM", "ConvLSTM1D", "ConvLSTM2D"])
def test_states_that_are_inputs_have_the_batch_of_the_sequence(kind: str, tmp_path: Path) -> None:
    """A served function leaves the batch of each input open by itself, and cuts kernels out of others in each step of a loop."""
    keras = needed("keras", "keras")
    needed("tensorflow", "tensorflow")
    axes = (6,) * (int(kind[-2]) if kind[-1] == "D" else 0)
    layer = getattr(keras.layers, kind)(4, *([3] if axes else []), **({"padding": "same"} if axes else {}), return_state=True)
    inputs = [keras.Input((3, *axes, 2), name="a"), keras.Input((*axes, 4), name="b"), keras.Input((*axes, 4), name="c")]
    model = shaken(keras.Model(inputs, layer(inputs[0], initial_state=inputs[1:])), np.random.default_rng(0))
    model.export(tmp_path / "model", verbose=False)
    rc.export_model(tmp_path / "model", tmp_path / "model.onnx")
    arrays = [np.random.default_rng(1).normal(size=(2, *tensor.shape[1:])).astype(np.float32) for tensor in inputs]
    outputs = in_onnxruntime(tmp_path / "model.onnx", *arrays)
    for output, expected in zip(outputs, model(arrays), strict=True):
        np.testing.assert_allclose(output, keras.ops.convert_to_numpy(expected), rtol=0, atol=1e-5)


SCRIPT = """
import sys, numpy as np, tensorflow as tf, tf_keras as keras
L, K, folder = keras.layers, keras.backend, sys.argv[1]
random = np.random.RandomState(3)

class Attention(L.Layer):
    def build(self, shape):
        self.W = self.add_weight(name="W", shape=(shape[-1],))
        self.b = self.add_weight(name="b", shape=(shape[1],))
    def call(self, x):
        weights = K.exp(K.tanh(K.squeeze(K.dot(x, K.expand_dims(self.W)), -1) + self.b))
        return K.sum(x * K.expand_dims(weights / (K.sum(weights, axis=1, keepdims=True) + K.epsilon())), axis=1)

def save(name, model, x):
    model.set_weights([random.uniform(-0.6, 0.6, w.shape) for w in model.get_weights()])
    model.save(f"{folder}/{name}", save_format="tf")
    np.savez(f"{folder}/{name}.npz", x=x, y=np.asarray(model(x)))

tokens, values = random.randint(0, 20, (3, 7)).astype("f"), random.normal(size=(3, 7, 4)).astype("f")
start = keras.Input((7,))
x = L.Bidirectional(L.LSTM(4, return_sequences=True))(L.Embedding(20, 6)(start))
save("attention", keras.Model(start, L.Dense(2, activation="softmax")(Attention()(x))), tokens)
start = keras.Input((7, 4))
halves = L.Lambda(lambda x: tf.concat([x[:, 1:] - x[:, :-1], x[:, 1:]], -1))(start)
save("function", keras.Model(start, L.Dense(2)(L.GRU(4)(halves))), values)
start = keras.Input((7, 4), batch_size=3)
save("stateful", keras.Model(start, L.Lambda(lambda x: x * 2)(L.LSTM(4, stateful=True)(start))), values)
start = keras.Input((7, 4), batch_size=3)
amid = keras.Model(start, L.Dense(2)(L.GRU(4, stateful=True)(L.LSTM(4, return_sequences=True, stateful=True)(start))))
amid(values)
save("states", amid, values)
masked = [("lstm", "LSTM", {}), ("gru", "GRU", {"zero_output_for_mask": True}), ("last", "SimpleRNN", {"return_sequences": False})]
for name, kind, settings in masked:
    start = keras.Input((7,))
    x = L.Embedding(5, 6, mask_zero=True)(start)
    x = L.Bidirectional(getattr(L, kind)(4, **{"return_sequences": True, **settings}))(x)
    words = random.randint(0, 5, (6, 7)).astype("f")
    words[0, 4:] = words[1, :3] = words[2] = 0
    save(f"masked_{name}", keras.Model(start, L.Dense(2)(L.Lambda(lambda x: x * 2)(x))), words)

class Unserved(tf.Module):
    @tf.function
    def step(self, x):
        return x
tf.saved_model.save(Unserved(), f"{folder}/unserved")
"""


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with SavedModels of Keras 2 that hold code of their authors' own."""
    folder = tmp_path_factory.mktemp("own")
    by_keras_2(SCRIPT, folder)
    return folder


@pytest.mark.parametrize("name", ["attention", "function", "masked_lstm", "masked_gru", "masked_last"])
def test_code_of_an_authors_own_is_written_as_the_graph_has_it(name: str, saved: Path, tmp_path: Path) -> None:
    needed("onnxruntime", "onnxruntime")
    done = rc.export_model(saved / name, tmp_path / "new.onnx", verify=True)
    assert done.proof and all(done.proof)
    with np.load(saved / f"{name}.npz") as arrays:
        (y,) = in_onnxruntime(tmp_path / "new.onnx", arrays["x"])
        np.testing.assert_allclose(y, arrays["y"], rtol=1e-5, atol=1e-6)


def test_a_function_that_changes_its_variables_is_refused_by_the_operation(saved: Path, tmp_path: Path) -> None:
    with pytest.raises(rc.RefusedError, match=r"AssignVariableOp.*changes a variable from one call to the next"):
        rc.export_model(saved / "stateful", tmp_path / "new.onnx")
    assert not any(tmp_path.iterdir())


def _changing(tensorflow: Any, change: str, waits: bool, by_handle: bool, folder: Path) -> None:
    """Save a graph of TensorFlow 1 that changes a variable, which its output reads or only waits for."""
    v1 = tensorflow.compat.v1
    with v1.Graph().as_default(), v1.Session() as session:
        x = v1.placeholder(tensorflow.float32, [None, 3])
        weight = v1.get_variable("weight", initializer=np.ones((3, 3), np.float32), use_resource=by_handle)
        arguments = ([0],) if change.startswith("scatter") else ()
        changed = getattr(v1, change)(weight, *arguments, np.full((1, 3) if arguments else (3, 3), 0.5, np.float32))
        if waits:
            with v1.control_dependencies([changed]):
                y = x @ weight.read_value()
        else:
            y = x @ changed
        session.run(v1.global_variables_initializer())
        v1.saved_model.simple_save(session, str(folder), {"x": x}, {"y": y})


def test_a_change_that_an_output_only_waits_for_is_refused_too(tmp_path: Path) -> None:
    tensorflow = needed("tensorflow", "tensorflow")

    def check(change: str, waits: bool, by_handle: bool) -> None:
        folder = tmp_path / f"{change}_{waits}_{by_handle}"
        _changing(tensorflow, change, waits, by_handle, folder)
        with pytest.raises(rc.RefusedError, match="changes a variable from one call to the next"):
            rc.export_model(folder, tmp_path / "new.onnx")

    each(product(("assign", "assign_add", "scatter_update", "scatter_add"), (False, True), (False, True)), lambda case: check(*case))


def test_a_model_saved_amid_a_stream_begins_with_zeros(saved: Path, tmp_path: Path) -> None:
    """The states of its layers are in the file, under paths or, where it is theirs alone, under a name."""
    needed("onnxruntime", "onnxruntime")
    done = rc.export_model(saved / "states", tmp_path / "new.onnx", stateful=True, verify=True)
    assert done.proof and all(done.proof)
    upgraded = rc.upgrade(saved / "states", tmp_path / "new.keras")
    assert any("the states that its layers were saved in (3 arrays)" in note for note in upgraded.left)


def test_a_saved_model_that_serves_nothing_is_named(saved: Path, tmp_path: Path) -> None:
    with pytest.raises(rc.UsageError):
        rc.export_model(saved / "unserved", tmp_path / "new.onnx")


def test_each_variable_is_the_entry_that_the_restoring_function_reads(saved: Path) -> None:
    """Names of variables need not be unique: the operations that restore them say which is which."""
    (meta,) = saved_model.read(saved / "attention")
    entries = meta.entries()
    assert meta.served is not None and len({*entries.values()}) == len(entries) >= 9
    assert {name for name, node in meta.graph.nodes.items() if node.op == "VarHandleOp"} <= {*entries}


def messages(message: Any) -> Iterator[tuple[Any, Any]]:
    """Fields with a value, in a message of protobuf's and those within it."""
    for field, value in message.ListFields():
        yield message, field
        if field.message_type is not None and not field.message_type.GetOptions().map_entry:
            for inner in value if isinstance(value, Sequence) or hasattr(value, "add") else [value]:
                yield from messages(inner)


def change(functions: Sequence[Any], names: Sequence[str], random: Random) -> None:
    """Give a field of a function another value, or take an element of a list away."""
    message, field = random.choice([*messages(random.choice([function for function in functions if function.ListFields()]))])
    value = getattr(message, field.name)
    if hasattr(value, "pop") and not hasattr(value, "keys"):
        if field.cpp_type == field.CPPTYPE_STRING and field.type == field.TYPE_STRING and random.random() < 0.6:
            value[random.randrange(len(value))] = random.choice(names)
        else:
            del value[random.randrange(len(value))]
    elif field.type == field.TYPE_STRING:
        setattr(message, field.name, random.choice(names))
    elif field.cpp_type in (field.CPPTYPE_INT32, field.CPPTYPE_INT64):
        setattr(message, field.name, random.choice([-1, 0, 7, 2**31 - 1]))
    else:
        message.ClearField(field.name)


def test_a_saved_model_that_was_changed_is_written_or_refused(tmp_path: Path) -> None:
    """Functions that call themselves, operations that are not there, names that are none: refused by name, in any command."""
    keras = needed("keras", "keras")
    needed("tensorflow", "tensorflow")
    from tensorflow.core.protobuf import saved_model_pb2

    folder = tmp_path / "model"
    start = keras.Input((None, 4))
    keras.Model(start, keras.layers.Dense(2)(keras.layers.GlobalMaxPooling1D()(keras.layers.LSTM(4, return_sequences=True)(start)))).export(
        folder, verbose=False
    )
    content = (folder / "saved_model.pb").read_bytes()
    refused = set()

    def check(seed: int) -> None:
        random, model = Random(seed), saved_model_pb2.SavedModel.FromString(content)
        graph, signatures = model.meta_graphs[0].graph_def, model.meta_graphs[0].signature_def
        functions = [*graph.library.function]
        names = [*(function.signature.name for function in functions), "While", "PyFunc", "a\nb", "", "none:output:0"]
        for _ in range(random.choice([1, 2, 4])):
            change(random.choice([functions, functions, graph.node, [*signatures.values()]]), names, random)
        (folder / "saved_model.pb").write_bytes(model.SerializeToString())
        try:
            rc.export_model(folder, tmp_path / "model.onnx", dry_run=True)
        except rc.RnnConvertError as error:
            assert error.exit_code in (2, 3, 4)
            refused.add(type(error))

    each(drawn(range(400), 60, "changed SavedModels"), check, str)
    assert len(refused) > 1


def test_code_is_written_of_the_graph_that_its_refusal_names(tmp_path: Path) -> None:
    """`load` of written code finds layers by name, and such a SavedModel states none."""
    keras, folder = needed("keras", "keras"), tmp_path / "served"
    needed("tensorflow", "tensorflow"), needed("torch", "torch"), needed("onnxruntime", "onnxruntime")
    keras.Sequential([keras.Input((None, 4)), keras.layers.LSTM(5), keras.layers.Dense(2)]).export(folder, verbose=False)
    with pytest.raises(rc.RefusedError, match=r"by its operations.* export "):
        rc.scaffold(folder, "pytorch")
    rc.export_model(folder, tmp_path / "model.onnx", verify=True)
    assert rc.scaffold(tmp_path / "model.onnx", "pytorch", verify=True).equal


@pytest.mark.parametrize("length", [1, 7, 2**62])
def test_shapes_that_a_saved_model_states_decide_no_number(length: int, tmp_path: Path) -> None:
    """TensorFlow notes shapes in functions, and does not check them when it loads a file: forged, they change nothing that is written."""
    keras, _, _ = needed("keras", "keras"), needed("onnxruntime", "onnxruntime"), needed("tensorflow", "tensorflow")
    from tensorflow.core.protobuf import saved_model_pb2

    start = keras.Input((None, 4))
    layers = keras.layers
    model = keras.Model(
        start,
        layers.Dense(2)(layers.Bidirectional(layers.GRU(4, return_sequences=True))(layers.LSTM(4, return_sequences=True)(start))[:, -1]),
    )
    model.export(tmp_path / "model", verbose=False)
    x = np.random.default_rng(0).normal(size=(2, 5, 4)).astype("f")
    content = (tmp_path / "model" / "saved_model.pb").read_bytes()

    def check(every: int) -> None:
        saved = saved_model_pb2.SavedModel.FromString(content)
        count = 0
        for function in saved.meta_graphs[0].graph_def.library.function:
            for owner in (*function.node_def, *function.arg_attr.values()):
                for shape in owner.attr["_output_shapes"].list.shape if "_output_shapes" in owner.attr else ():
                    count += 1
                    for dim in shape.dim if count % every == 0 else ():
                        dim.size = length if dim.size < 0 else dim.size + 1
        assert count > 20
        (tmp_path / "model" / "saved_model.pb").write_bytes(saved.SerializeToString())
        new = tmp_path / f"{every}.onnx"
        try:
            rc.export_model(tmp_path / "model", new)
        except rc.RefusedError:
            return
        (y,) = in_onnxruntime(new, x)
        np.testing.assert_allclose(y, model(x), rtol=1e-5, atol=1e-6)

    each([1, 2, 3], check, str)


_IN_A_SESSION = """
import tensorflow as tf
v1 = tf.compat.v1
v1.disable_v2_behavior()
x = v1.placeholder(tf.float32, [None, 8, 3], "x")
keep = v1.placeholder_with_default(1.0, [], "keep")
cells = [v1.nn.rnn_cell.DropoutWrapper(v1.nn.rnn_cell.LSTMCell(5), keep, keep, keep) for _ in range(2)]
y, _ = v1.nn.dynamic_rnn(v1.nn.rnn_cell.MultiRNNCell(cells), x, dtype=tf.float32)
out = tf.nn.softmax(v1.layers.dense(v1.nn.dropout(y[:, -1], keep_prob=keep), 4))
with v1.Session() as session:
    session.run(v1.global_variables_initializer())
    v1.saved_model.simple_save(session, "served", {"x": x}, {"out": out})
    values = np.random.RandomState(0).normal(size=(2, 8, 3)).astype(np.float32)
    found = {"x": values, "out": session.run(out, {x: values})}
"""


def test_what_a_session_saved_is_run_by_a_session(tmp_path: Path) -> None:
    """TensorFlow 1's variables are references, which functions do not take; its dropout, in a loop and behind it, drops nothing."""
    needed("tensorflow", "tensorflow")
    arrays = found_by("tensorflow1", _IN_A_SESSION, tmp_path, "tensorflow")
    done = rc.export_model(tmp_path / "served", tmp_path / "m.onnx", verify=True)
    assert done.proof and all(done.proof)
    np.testing.assert_allclose(in_onnxruntime(tmp_path / "m.onnx", arrays["x"])[0], arrays["out"], atol=1e-6)


def test_signatures_of_which_none_is_the_models_are_named(tmp_path: Path) -> None:
    tensorflow = needed("tensorflow", "tensorflow")
    module, spec = tensorflow.Module(), [tensorflow.TensorSpec((None, 2))]
    module.factor = tensorflow.Variable([1.0, 2.0])
    module.scaled = tensorflow.function(lambda x: {"y": x * module.factor}, input_signature=spec)
    module.moved = tensorflow.function(lambda x: {"y": x + module.factor}, input_signature=spec)
    tensorflow.saved_model.save(module, str(tmp_path / "m"), signatures={"scaled": module.scaled, "moved": module.moved})
    with pytest.raises(rc.UsageError, match="signatures moved, scaled, and none is serving_default"):
        rc.export_model(tmp_path / "m", tmp_path / "m.onnx")
