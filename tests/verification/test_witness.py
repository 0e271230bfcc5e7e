"""Models run whole beside layers of theirs that were joined: what lies between these shows, whatever the graph is taken for.

The conversion refuses most of these joins; here they are made all the same, since the run of the whole model shares nothing
with what decides on them.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import rnnconvert as rc
from rnnconvert.core import reference
from rnnconvert.core.errors import ExecutorError
from rnnconvert.core.weights import Recurrent
from rnnconvert.files.checkpoint import Checkpoint
from rnnconvert.language.layout import Sizes
from rnnconvert.running import child, registry
from rnnconvert.verification import judgements, report, witness
from rnnconvert.verification.collect import proceed
from rnnconvert.verification.lanes import PreparedModels
from rnnconvert.verification.plan import Plan
from rnnconvert.verification.recording import Recording
from rnnconvert.verification.results import LayerResults, ModelFile, Results, read
from rnnconvert.verification.running import Subject
from tests.formats.tflite.test_tflite_files import changed
from tests.helpers import frameworks, ready, workers
from tests.helpers.drawn import drawn, each
from tests.helpers.requirements import need, needed
from tests.helpers.stacks import BOTH, PLAIN, random_stack
from tests.helpers.witnessing import joined, run_whole, summary

pytestmark = [  # what frameworks say of themselves while they make these models
    pytest.mark.filterwarnings(f"ignore::{kind}") for kind in ("DeprecationWarning", "FutureWarning", "UserWarning")
]
Make = Callable[[], Any]
RANDOM = "it is random"
"""Stands for the words of a random model, in the tables below."""
WORDS = {RANDOM: "gives other numbers when it runs again on the same inputs: something in it is random"}


def expect(verdict: str, expected: str) -> None:
    """Check what a run of a whole model says: "equal", or a part of why it is not."""
    if expected == "equal":
        assert verdict.startswith("equal;"), verdict
    else:
        assert not verdict.startswith("equal"), verdict
        assert WORDS.get(expected, expected) in verdict, verdict


# PyTorch ----------------------------------------------------------------------------------------------------


def _torch() -> Mapping[str, tuple[Make, str]]:
    needed("torch", "torch")
    from tests.helpers import two_layers as two

    return {
        "straight": (two.Straight, "equal"),
        "a GRU": (lambda: two.Straight("GRU"), "equal"),
        "time first": (lambda: two.Straight("RNN", batch_first=False), "equal"),
        "negated": (two.Negated, "'b' does not read what 'a' gives: it is off by"),
        "flipped": (two.Flipped, "'b' does not read what 'a' gives"),
        "shortened": (two.Shortened, "changes the steps"),
        "halved": (two.Halved, "'b' does not read what 'a' gives"),
        "dropped": (two.Dropped, RANDOM),
        "again": (two.Again, "calls 'a' once, 'b' twice"),
        "handed": (two.Handed, "'b' starts from states that the model computes"),
        "packed": (two.Packed, "'a' and 'b' leave out other steps"),
    }


@pytest.mark.parametrize("saved", ["scripted", "exported"])
def test_archives_and_programs_of_torch(saved: str, tmp_path: Path) -> None:
    torch = needed("torch", "torch")
    torch.manual_seed(0)
    x = torch.randn(5, 3, 3)

    def check(entry: tuple[str, tuple[Make, str]]) -> None:
        name, (make, expected) = entry
        model, path = make().eval(), tmp_path / f"{name}.pt"
        if saved == "scripted":
            path = tmp_path / f"{name}.pt"
            torch.jit.script(model).save(str(path))
        else:
            path = tmp_path / f"{name}.pt2"
            torch.export.save(torch.export.export(model, (x,)), str(path))
        expect(summary(run_whole(path, ("a", "b"), "torch-cpu")), expected)

    models = _torch()
    # torch.export refuses lengths that are data; it writes the others much as TorchScript does.
    chosen = models if saved == "scripted" else {name: models[name] for name in ("straight", "negated", "dropped", "handed")}
    names = drawn(chosen, 5, "whole models of torch", lambda name: name in ("straight", "negated"))
    each([(name, chosen[name]) for name in names], check, lambda entry: entry[0])


def test_a_frozen_archive_without_names(tmp_path: Path) -> None:
    torch = needed("torch", "torch")
    model = _torch()["negated"][0]().eval()
    torch.jit.freeze(torch.jit.script(model)).save(str(tmp_path / "a.pt"))
    expect(summary(run_whole(tmp_path / "a.pt", ("lstm", "lstm_2"), "torch-cpu")), "does not read what 'lstm' gives")


def test_what_stands_round_a_single_layer_of_a_program(tmp_path: Path) -> None:
    torch = needed("torch", "torch")
    from tests.helpers.two_layers import Learned, Loop

    x = torch.randn(2, 6, 3)
    cases = [
        (Loop(1, range(6)), "equal"),
        (Loop(0.5, range(6)), "changes the states of 'a' from one step to the next"),
        (Loop(1, range(5, -1, -1)), "from the last step to the first"),
    ]
    for number, (model, expected) in enumerate(cases):
        torch.export.save(torch.export.export(model, (x,)), str(tmp_path / f"{number}.pt2"))
        expect(summary(run_whole(tmp_path / f"{number}.pt2", ("a",), "torch-cpu")), expected)
    torch.export.save(torch.export.export(Learned(), (x,)), str(tmp_path / "learned.pt2"))
    expect(summary(run_whole(tmp_path / "learned.pt2", ("a",), "torch-cpu")), "equal")


def test_a_state_dictionary_is_no_model(tmp_path: Path) -> None:
    torch = needed("torch", "torch")
    torch.save(_torch()["straight"][0]().state_dict(), tmp_path / "a.pt")
    assert "holds weights alone" in summary(run_whole(tmp_path / "a.pt", ("a", "b"), "torch-cpu"))


def test_a_pickle_in_a_program_is_not_executed(tmp_path: Path) -> None:
    torch = needed("torch", "torch")
    import json
    import zipfile

    x = torch.randn(2, 6, 3)
    torch.export.save(torch.export.export(_torch()["straight"][0](), (x,)), str(tmp_path / "a.pt2"))
    with zipfile.ZipFile(tmp_path / "a.pt2") as source, zipfile.ZipFile(tmp_path / "b.pt2", "w") as target:
        for name in source.namelist():
            data = source.read(name)
            if name.endswith("weights_config.json"):
                config = json.loads(data)
                for entry in config["config"].values():
                    entry["use_pickle"] = True
                data = json.dumps(config).encode()
            target.writestr(name, data)
    with workers.running(registry.executor("torch-cpu")) as process, pytest.raises(ExecutorError, match="not executed"):
        process.ask(file=str(tmp_path / "b.pt2"), layers=[], witness={"layers": ["a", "b"], "seed": 0})


# Keras ------------------------------------------------------------------------------------------------------


def _keras(K: Any, dense: str = "encoder's_dense") -> Mapping[str, tuple[Callable[[Any], Any], str]]:
    """Models of two layers a and b on an input, and what their whole run says."""

    def layer(name: str, **more: Any) -> Any:
        return K.LSTM(3, return_sequences=True, name=name, **more)

    def both(between: Callable[[Any], Any], **more: Any) -> Callable[[Any], Any]:
        return lambda x: layer("b", **more)(between(layer("a")(x)))

    def called(order: str) -> Callable[[Any], Any]:
        def build(x: Any) -> Any:
            layers = {name: layer(name) for name in "ab"}
            for name in order:
                x = layers[name](x)
            return x

        return build

    def handed(x: Any) -> Any:
        y, h, c = layer("a", return_state=True)(x)
        return layer("b")(y, initial_state=[h, c])

    return {
        "straight": (both(lambda x: x), "equal"),
        "dropout that is off": (both(K.Dropout(0.5)), "equal"),
        "masked from the start": (lambda x: both(lambda y: y)(K.Masking()(x)), "equal"),
        "the last step alone": (lambda x: K.LSTM(4, name="b")(layer("a")(x)), "equal"),
        "both directions": (lambda x: K.Bidirectional(K.GRU(2), name="b")(K.Bidirectional(layer("c"), name="a")(x)), "equal"),
        "dense": (both(K.Dense(3, activation="relu", name=dense)), "'b' does not read what 'a' gives"),
        "dropout that is on": (both(lambda y: K.Dropout(0.5)(y, training=True)), RANDOM),
        "noise": (both(lambda y: K.GaussianNoise(0.5)(y, training=True)), RANDOM),
        "aba": (called("aba"), "calls 'a' twice, 'b' once"),
        "abb": (called("abb"), "calls 'a' once, 'b' twice"),
        "handed": (handed, "'b' starts from states that the model computes"),
        "masked between": (both(K.Masking(mask_value=0.0)), "equal"),
        "its own randomness": (lambda x: layer("b", dropout=0.5)(layer("a")(x), training=True), RANDOM),
    }


@pytest.mark.parametrize("executor", ["keras-tensorflow", "keras-torch", "keras-jax"])
def test_models_of_keras(executor: str, tmp_path: Path) -> None:
    keras = needed("keras", "keras")
    need("keras", registry.built_in()[executor].absent)
    models = _keras(keras.layers)
    few = ("straight", "dropout that is on", "handed")
    names = drawn(models, 5, "whole models of Keras", lambda name: name in few) if executor == "keras-torch" else few
    chosen = {name: models[name] for name in names}

    def check(entry: tuple[str, tuple[Callable[[Any], Any], str]]) -> None:
        name, (build, expected) = entry
        x = keras.Input((None, 3))
        path = tmp_path / f"{name}.keras"
        keras.Model(x, build(x)).save(path)
        expect(summary(run_whole(path, ("a", "b"), executor)), expected)

    each(chosen.items(), check, lambda entry: entry[0])


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_layers_that_compute_in_a_coarser_type_than_their_weights(policy: str, tmp_path: Path) -> None:
    """The source is judged by the rounding that it does, and the target by its own, which finds a weight that is a thousandth off."""
    layers = needed("keras", "keras").layers
    need("keras", registry.built_in()["keras-tensorflow"].absent)
    both = layers.Bidirectional(layers.LSTM(4, return_sequences=True, dtype=policy), dtype=policy, name="both")
    path, target = tmp_path / "model.keras", tmp_path / "model.safetensors"
    needed("keras", "keras").Sequential([layers.Input((5, 3)), both, layers.GRU(3, dtype=policy, name="gru")]).save(path)
    report = rc.convert(path, target, verify=True).report
    assert report is not None
    assert report.document["verdict"] == "equal but for", str(report)
    arrays = load_file(target)
    save_file({**arrays, "both.weight_hh_l0": arrays["both.weight_hh_l0"] * np.float32(1.001)}, target)
    assert rc.verify(path, target, on=["keras-tensorflow", "torch-cpu"], explain=False).document["verdict"] == "not equal"


def test_saved_models(tmp_path: Path) -> None:
    keras = needed("keras", "keras")
    need("keras", registry.built_in()["keras-tensorflow"].absent)
    models = _keras(keras.layers, "dense")  # TensorFlow takes no quotes in names
    names = drawn(models, 3, "whole SavedModels", lambda name: name in ("straight", "dense", "handed"))

    def check(name: str) -> None:
        build, expected = models[name]
        x = keras.Input((None, 3))
        keras.Model(x, build(x)).export(tmp_path / name, verbose=False)
        expect(summary(run_whole(tmp_path / name, ("a", "b"), "keras-tensorflow")), expected)

    each(names, check)


TENSORFLOW = """
import functools, sys, keras, tensorflow as tf
K = keras.layers
class Halved(K.LSTM):
    def call(self, sequences, initial_state=None, mask=None, training=False):
        return super().call(sequences, initial_state=initial_state, mask=mask, training=training) * 0.5
x = keras.Input((None, 3))
a = K.LSTM(3, return_sequences=True, name="a")
keras.Model(x, Halved(3, return_sequences=True, name="b")(a(x))).export(f"{sys.argv[1]}/a class of its user", verbose=False)
class Module(tf.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = (K.LSTM(3, return_sequences=True, name=name) for name in "ab")
        self.a.build((None, None, 3)), self.b.build((None, None, 3))
        self.count = tf.Variable(0.0)
def plain(self, x):
    self.count.assign_add(1.0)
    return {"y": self.b(self.a(x))}
def looped(self, x):
    return {"y": tf.while_loop(lambda n, y: n < 3, lambda n, y: (n + 1, self.b(y)), (0, self.a(x)))[1]}
def negated(self, x): return {"y": self.b(-self.a(x))}
for name, functions in (("a module", [plain]), ("a loop", [looped]), ("two signatures", [plain, negated])):
    module, signatures = Module(), {}
    for number, function in enumerate(functions):
        shape = [tf.TensorSpec((None, None, 3), tf.float32)]
        run = tf.function(functools.partial(function, module), input_signature=shape, autograph=False)
        signatures["other" if number else "serving_default"] = run
    tf.saved_model.save(module, f"{sys.argv[1]}/{name}", signatures=signatures)
"""


def test_saved_models_that_keras_did_not_write_alone(tmp_path: Path) -> None:
    needed("keras", "keras")
    need("keras", registry.built_in()["keras-tensorflow"].absent)
    ready.run([sys.executable, "-W", "ignore", "-c", TENSORFLOW, tmp_path], "tensorflow keras", check=True)
    expected = {
        "a class of its user": "the model gives other numbers there", "a module": "equal", "a loop": "calls 'a' once, 'b' 3 times",
        "two signatures": "'b' does not read what 'a' gives",
    }  # fmt: skip
    for name, words in expected.items():
        expect(summary(run_whole(tmp_path / name, ("a", "b"), "keras-tensorflow")), words)


def test_nested_models_and_tables_of_keras(tmp_path: Path) -> None:
    keras = needed("keras", "keras")
    K = keras.layers

    def nested(name: str, layer: str) -> Any:
        x = keras.Input((3, 3))
        return keras.Model(x, K.LSTM(3, return_sequences=True, name=layer)(x), name=name)

    x = keras.Input((3, 3))
    keras.Model(x, nested("two", "b")(K.Dense(3)(nested("one", "a")(x)))).save(tmp_path / "nested.keras")
    expect(summary(run_whole(tmp_path / "nested.keras", ("a", "b"), "keras-torch")), "'b' does not read what 'a' gives")
    words = keras.Input((None,))
    y = K.LSTM(3, return_sequences=True, name="a")(K.Embedding(7, 3, mask_zero=True)(words))
    keras.Model(words, K.LSTM(3, name="b")(y)).save(tmp_path / "words.keras")
    verdict = summary(run_whole(tmp_path / "words.keras", ("a", "b"), "keras-torch"))
    assert verdict.startswith("equal;")
    assert "where their lengths are passed" in verdict


KERAS_2 = """
import sys, tf_keras as keras
K = keras.layers
# Unrolled, a layer is made and loaded in a fifth of the time; behind a mask it computes something else.
def layer(name, unroll=True, **more): return K.LSTM(3, return_sequences=True, unroll=unroll, name=name, **more)
def twice(x):
    a = layer("a")
    return a(layer("b")(a(x)))
def handed(x):
    y, *states = layer("a", return_state=True)(x)
    return layer("b")(y, initial_state=states)
made = {
    "straight": lambda x: K.Bidirectional(K.GRU(2), name="b")(K.Bidirectional(layer("c", False), name="a")(K.Masking()(x))),
    "dense": lambda x: layer("b")(K.Dense(3)(layer("a")(x))), "random": lambda x: layer("b")(K.Dropout(0.5)(layer("a")(x), training=True)),
    "twice": twice, "handed": handed,
}
for name, build in made.items():
    x = keras.Input((3, 3))
    keras.Model(x, build(x)).save(f"{sys.argv[1]}/{name}.h5")
"""


def test_models_of_keras_2(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    executor = frameworks.tf_keras()
    monkeypatch.setattr(registry, "executor", lambda name: executor)
    frameworks.by_keras_2(KERAS_2, tmp_path)
    expected = {
        "straight": "equal", "dense": "'b' does not read what 'a' gives", "random": RANDOM, "twice": "calls 'a' twice",
        "handed": "states that the model computes",
    }  # fmt: skip
    for name, words in expected.items():
        expect(summary(run_whole(tmp_path / f"{name}.h5", ("a", "b"), "tf_keras")), words)


# ONNX and OpenVINO ------------------------------------------------------------------------------------------


def _onnx(name: str) -> Any:
    """Return a model of two layers a and b, of which the second reads what stands between them."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    node, random = helper.make_node, np.random.default_rng(0)
    between = {
        "relu": [node("Relu", ["s"], ["m"])],
        "exchanged": [node("Transpose", ["s"], ["m"], perm=[1, 0, 2])],
        "cast": [node("Cast", ["s"], ["k"], to=TensorProto.INT32), node("Cast", ["k"], ["m"], to=TensorProto.FLOAT)],
        "a domain of its own": [node("Identity", ["s"], ["m"], domain="com.mine")],
    }.get(name, [node("Identity", ["s"], ["m"])])
    later = {"handed": ["", "h"], "states": ["", "h"], "lengths": ["n"]}.get(name, [])
    float_, inputs = TensorProto.FLOAT, [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["t", "b", 3])]
    inputs += [helper.make_tensor_value_info("h", float_, [1, "b", 4])] if name == "states" else []
    inputs += [helper.make_tensor_value_info("n", TensorProto.INT32, ["b"])] if name == "lengths" else []
    nodes = [
        node("LSTM", ["x", "W0", "R0"], ["y0", "h"] if name == "handed" else ["y0"], "a", hidden_size=4),
        node("Squeeze", ["y0", "axis"], ["s"]),
        *between,
        node("LSTM", ["m", "W1", "R1", "", *later], ["y1"], "b", hidden_size=4),
        node("Squeeze", ["y1", "axis"], ["y"]),
    ]
    arrays = {f"{part}{layer}": random.normal(size=(1, 16, width)).astype(np.float32)
              for layer, width in ((0, 3), (1, 4)) for part, width in (("W", width), ("R", 4))}  # fmt: skip
    graph = helper.make_graph(
        nodes, "g", inputs, [helper.make_tensor_value_info("y", float_, [None, None, 4])],
        [numpy_helper.from_array(np.array([1]), "axis"), *(numpy_helper.from_array(a, key) for key, a in arrays.items())],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.mine", 1)]
    negated = helper.make_function("com.mine", "Identity", ["p"], ["q"], [node("Neg", ["p"], ["q"])], opsets[:1])
    functions = [negated] if name.startswith("a domain") else []
    model = helper.make_model(graph, opset_imports=opsets, functions=functions, ir_version=8)
    onnx.checker.check_model(model)
    return model


ONNX = {
    "straight": "equal",
    "relu": "'b' does not read what 'a' gives",
    "exchanged": "changes the steps",
    "cast": "'b' does not read what 'a' gives",
    "a domain of its own": "'b' does not read what 'a' gives",
    "handed": "'b' starts from states that the model computes",
    "states": "'a' starts from zeros, and 'b' does not",
    "lengths": "'a' and 'b' leave out other steps",
}


def test_models_of_onnx(tmp_path: Path) -> None:
    onnx = needed("onnxruntime", "onnx")

    def check(entry: tuple[str, str]) -> None:
        path = tmp_path / f"{entry[0]}.onnx"
        onnx.save(_onnx(entry[0]), path)
        expect(summary(run_whole(path, ("a", "b"), "onnxruntime-cpu")), entry[1])

    each(ONNX.items(), check, lambda entry: entry[0])


def test_models_of_openvino(tmp_path: Path) -> None:
    openvino, onnx = needed("openvino", "openvino"), needed("onnxruntime", "onnx")

    def check(name: str) -> None:
        onnx.save(_onnx(name), tmp_path / f"{name}.onnx")
        path = tmp_path / f"{name}.xml"
        openvino.save_model(openvino.convert_model(tmp_path / f"{name}.onnx"), path, compress_to_fp16=False)
        first, second = rc.load(path).layers
        expected = ONNX[name].replace("'a'", repr(first)).replace("'b'", repr(second))
        expect(summary(run_whole(path, (first, second), "openvino-cpu")), expected)

    each([name for name in ONNX if not name.startswith("a domain") and name != "lengths"], check)


# ncnn and TFLite --------------------------------------------------------------------------------------------


def _of(kind: str, ways: int) -> Recurrent:
    parts = BOTH if kind == "gru" else PLAIN | {"input_bias"}
    return random_stack(Sizes(kind, 3, 5, 2, ways, 0, parts), 5, np.float32).replace(name="rnn")


def test_models_of_ncnn(tmp_path: Path) -> None:
    needed("ncnn", "ncnn")
    for kind, ways in (("lstm", 1), ("gru", 2)):
        path = tmp_path / f"{kind}.param"
        rc.save(Checkpoint("memory", "", {"rnn": _of(kind, ways)}), path, "ncnn")
        names = tuple(rc.load(path).layers)
        expect(summary(run_whole(path, names, "ncnn-cpu")), "equal")
        magic, counts, *lines = path.read_text(encoding="utf-8").splitlines()
        layers, blobs = map(int, counts.split())
        second = lines.index(next(line for line in lines if line.split()[1] == names[1]))
        reads = lines[second].split()[4]
        lines[second] = lines[second].replace(f" {reads} ", " between ", 1)
        lines.insert(second, f"TanH between 1 1 {reads} between")
        path.write_text("\n".join([magic, f"{layers + 1} {blobs + 1}", *lines, ""]), encoding="utf-8")
        expect(summary(run_whole(path, names, "ncnn-cpu")), f"{names[1]!r} does not read what {names[0]!r} gives")


def test_models_of_tflite(tmp_path: Path) -> None:
    needed("litert", "ai_edge_litert")
    path = tmp_path / "a.tflite"
    rc.save(Checkpoint("memory", "", {"rnn": _of("lstm", 1)}), path, "tflite")
    names = tuple(rc.load(path).layers)
    expect(summary(run_whole(path, names, "litert-cpu")), "equal")

    def negate(schema: Any, model: Any, operator: Any) -> None:
        """Put a NEG between the two layers."""
        import copy

        graph = model.subgraphs[0]
        code, negation = schema.OperatorCodeT(), schema.OperatorT()
        code.builtinCode = code.deprecatedBuiltinCode = schema.BuiltinOperator.NEG
        code.version = 1
        model.operatorCodes.append(code)
        second = next(candidate for candidate in graph.operators if candidate is not operator and operator.outputs[0] in candidate.inputs)
        between = copy.deepcopy(graph.tensors[operator.outputs[0]])
        between.name = b"between"
        graph.tensors.append(between)
        negation.opcodeIndex, negation.inputs = len(model.operatorCodes) - 1, [operator.outputs[0]]
        negation.outputs = [len(graph.tensors) - 1]
        second.inputs = [len(graph.tensors) - 1, *list(second.inputs)[1:]]
        graph.operators.insert(graph.operators.index(second), negation)

    changed(path, negate)
    expect(summary(run_whole(path, names, "litert-cpu")), f"{names[1]!r} does not read what {names[0]!r} gives")


# The judgement ----------------------------------------------------------------------------------------------


def test_what_a_recording_says_of_one_layer(tmp_path: Path) -> None:
    stack = random_stack(Sizes("gru", 3, 5, 1, 2, 0, BOTH), 5, np.float32).replace(name="a")
    x = np.random.default_rng(0).normal(size=(7, 5, 3)).astype(np.float32)
    some = [np.full((5, 5), 0.5, np.float32), np.full((5, 5), -0.5, np.float32)]
    plain, result = (reference.run(stack, x, states, dtype=np.float32) for states in (None, tuple(some)))
    short = np.arange(7)[:, None] < np.array([7, 3, 1, 0, 5])
    masked = reference.run(stack, x, lengths=short.sum(0), dtype=np.float32)
    call = {"x": x, "y": plain.y, "last": None, "mask": None, "hidden": None, "cell": None, "h_n": None, "c_n": None}

    def judged(*runs: Sequence[Mapping[str, Any]], inputs: Sequence[Any] = ()) -> LayerResults:
        results = Results("", "", layers={"a": LayerResults("a", "")})
        checkpoint = Checkpoint(str(tmp_path), "", {"a": stack})
        calls = [{"a": [{**call, **changes} for changes in run]} for run in runs]
        named = [("", array) for array in inputs]
        recording = Recording("torch-cpu", calls if len(calls) > 1 else calls * 2, {}, named, [], [], [], {}, False, {}, True)
        witness.judge(results, [Subject("A", checkpoint, ("a",), stack)], {"A": recording}, {})
        return results.layers["a"]

    last = np.concatenate(plain.hidden, axis=-1)
    carried = {"y": result.y, "hidden": some}
    recorded: list[tuple[LayerResults, str, str]] = [
        (judged([{}]), "equal", ""),
        (judged([{"y": None, "last": last}]), "equal", ""),
        (judged([{"y": None, "last": last + np.float32(1e-3)}]), "not equal", ""),
        (judged([{"y": None}]), "", ""),
        (judged([{"h_n": list(plain.hidden)}]), "equal", ""),
        (judged([{"h_n": [-state for state in plain.hidden]}]), "not equal", ""),
        (judged([{"y": masked.y, "mask": short}]), "equal", "mask"),
        (judged([{"y": plain.y, "mask": short}]), "not equal", ""),
        (judged([{"mask": short[::-1]}]), "", ""),
        (judged([carried]), "equal", "stated"),
        (judged([carried], inputs=some), "equal", "caller"),
        (judged([{"hidden": some}]), "equal", ""),
        (judged([{}, {}]), "equal", ""),
        (judged([{}, {"y": -plain.y}]), "not equal", ""),
        (judged([{}], [{"y": -plain.y}]), "not equal", ""),
        (judged([{"x": x[..., :2]}]), "not equal", ""),
        (judged([{"y": plain.y[1:]}]), "not equal", ""),
        (judged([{"y": np.full_like(plain.y, np.nan)}]), "", ""),
        (judged([]), "", ""),
    ]
    for number, (layer, status, limit) in enumerate(recorded):
        whole_status = "" if layer.whole is None else layer.whole.status
        assert (whole_status, "".join(entry.kind for entry in layer.limits)) == (status, limit), number
        assert layer.whole is None or layer.whole.models == ("A",)


def test_the_run_of_a_model_enters_the_verdict(tmp_path: Path) -> None:
    onnx = needed("onnxruntime", "onnx")
    for name, verdict in (("straight", "equal"), ("relu", "not equal")):
        onnx.save(_onnx(name), tmp_path / "a.onnx")
        checkpoint = rc.load(tmp_path / "a.onnx")
        stack = joined(checkpoint, "ab")
        rc.save(Checkpoint("memory", "", {"a+b": stack}), tmp_path / "b.onnx", force=True)
        other = rc.load(tmp_path / "b.onnx")
        subjects = [
            Subject("A", checkpoint, ("a", "b"), stack),
            Subject("B", other, tuple(other.layers), joined(other, list(other.layers)).replace(name="a+b")),
        ]
        models = [ModelFile(label, "", "onnx", 0, "") for label in "AB"]
        results = Results("", "", models=models)
        events: list[str] = []
        prepared = PreparedModels(Plan(time=4), results, subjects, None, False)
        proceed(prepared, judgements.passes, lambda text, done=0, total=0, events=events: events.append(text))
        document = report.document(results, {})
        assert document["verdict"] == verdict, document
        assert "onnxruntime-cpu: running A whole" in events
        assert not any("no framework ran A's own file" in words for words in document["warnings"])
        results.save(tmp_path / "kept.safetensors")
        stored = read(tmp_path / "kept.safetensors")
        assert stored is not None
        assert stored.layers["a+b"].whole == results.layers["a+b"].whole


def test_an_executor_that_runs_no_model_whole(tmp_path: Path) -> None:
    plain = types.SimpleNamespace()
    request = {"witness": {"layers": ["a"], "seed": 0}}
    with pytest.raises(NotImplementedError, match="no model as a whole"):
        child.answered(plain, dict(request))

    def pools(request: Mapping[str, Any]) -> None:
        """Run a model that needs ten steps."""
        seen = request["witness"]

        def call(arrays: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
            seen.record("a", arrays[0][:10].reshape(10, -1, 3))
            return {"y": arrays[0]}

        seen.run(seen.calls([seen.input("x", [None, "batch", 3])]), call)

    def needs_far_more(request: Mapping[str, Any]) -> None:
        request["witness"].draw([1 << 24, None, 3])

    def fails(request: Mapping[str, Any]) -> None:
        raise ValueError("no such operator")

    for run, expected in ((needs_far_more, "too large"), (fails, "no such operator")):
        with pytest.raises(NotImplementedError, match=expected):
            child.answered(types.SimpleNamespace(witness=run), dict(request))
    answer = child.answered(types.SimpleNamespace(witness=pools), dict(request))
    assert answer["runs"][0]["a"][0]["x"].shape == (10, 19, 3)
