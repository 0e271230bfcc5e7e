"""What a Keras file does not say is asked, with choices; what it says besides weights is used, told, or known to be harmless."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import rnnconvert as rc
from rnnconvert.cli.main import main
from rnnconvert.core.reference import run
from rnnconvert.formats.keras.keys import KEYS, known_keys
from rnnconvert.formats.keras.model.entries import Entry
from rnnconvert.running import registry
from tests.helpers import drawn
from tests.helpers.requirements import need, needed
from tests.helpers.sources import keras_lstm_h5, legacy_h5, sequential, uniform

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")


def bare(path: Path, version: str | None) -> Path:
    """An LSTM's weights, as save_weights of Keras 2 writes them."""
    shapes = {"kernel": (3, 16), "recurrent_kernel": (4, 16), "bias": (16,)}
    pairs = [(f"lstm/{name}:0", uniform(number, *shape)) for number, (name, shape) in enumerate(shapes.items())]
    return legacy_h5(path, {"lstm": pairs}, None, version)


def of_keras_1(path: Path) -> Path:
    """An LSTM's weights, as save_weights of Keras 1 writes them."""
    shapes = {"W": (3, 4), "U": (4, 4), "b": (4,)}
    pairs = [
        (f"lstm_1_{part}_{gate}", uniform(number, *shape) * 2)
        for number, (part, gate, shape) in enumerate((p, g, s) for g in "icfo" for p, s in shapes.items())
    ]
    return legacy_h5(path, {"lstm_1": pairs}, None, None)


def by_keras_1(path: Path, x: np.ndarray, gate: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """The outputs of that LSTM for one sequence (keras 1.2.2, layers/recurrent.py, LSTM.step)."""
    import h5py

    with h5py.File(path) as file:
        group = file["model_weights/lstm_1"]
        w = {name.removeprefix("lstm_1_"): np.asarray(group[name], float) for name in group}
    h, c, outputs = np.zeros(4), np.zeros(4), []
    for step in x:
        i, f, g, o = (step @ w[f"W_{letter}"] + w[f"b_{letter}"] + h @ w[f"U_{letter}"] for letter in "ifco")
        c = gate(f) * c + gate(i) * np.tanh(g)
        h = gate(o) * np.tanh(c)
        outputs.append(h)
    return np.array(outputs)


def hard_sigmoid(x: np.ndarray) -> np.ndarray:
    return np.clip(0.2 * x + 0.5, 0, 1)


def sigmoid(x: np.ndarray) -> np.ndarray:
    return np.asarray(1 / (1 + np.exp(-x)))


def test_the_gates_function_of_keras_1_weights_is_asked(tmp_path: Path) -> None:
    path = of_keras_1(tmp_path / "weights.h5")
    x = 3 * np.random.default_rng(0).normal(size=(8, 3))
    checkpoint = rc.load(path)
    questions = {question.option: question for question in checkpoint.questions}
    gates = questions["recurrent_activation"]
    assert (gates.assumed, gates.choices) == ("hard_sigmoid", ("hard_sigmoid", "sigmoid"))
    assert "default" not in gates.why and "tanh" in questions["activation"].choices
    assert questions["go_backwards"].choices == ("true", "false")
    expected = by_keras_1(path, x, hard_sigmoid)
    assert np.abs(expected - by_keras_1(path, x, sigmoid)).max() > 0.05
    np.testing.assert_allclose(run(checkpoint.layers["lstm_1"], x[:, None]).y[:, 0], expected, atol=1e-12)
    layer = rc.load(path, recurrent_activation="sigmoid").layers["lstm_1"]
    np.testing.assert_allclose(run(layer, x[:, None]).y[:, 0], by_keras_1(path, x, sigmoid), atol=1e-12)


@pytest.mark.parametrize(
    ("version", "assumed", "stops"),
    [
        ("2.2.4", "hard_sigmoid", False), ("2.3.1", "sigmoid", False), ("2.1.6-tf", "hard_sigmoid", False),
        # Of TensorFlow 1.13 to 1.15, with hard_sigmoid, and of 2.0 and 2.1, with sigmoid.
        ("2.2.4-tf", "sigmoid", True),
        ("2.4.0", "sigmoid", False), (None, "sigmoid", False),
    ],
)  # fmt: skip
def test_the_gates_function_is_asked_whatever_the_version(version: str | None, assumed: str, stops: bool, tmp_path: Path) -> None:
    checkpoint = rc.load(bare(tmp_path / "weights.h5", version))
    (gates,) = (question for question in checkpoint.questions if question.option == "recurrent_activation")
    assert gates.assumed == assumed and set(gates.choices) == {"sigmoid", "hard_sigmoid"}
    assert gates.common == stops
    assert "default" not in gates.why and (version or "nor does it state which Keras wrote it") in gates.why


def test_which_hard_sigmoid_is_asked_where_no_version_is_stated(tmp_path: Path) -> None:
    path = bare(tmp_path / "weights.h5", None)
    checkpoint = rc.load(path, recurrent_activation="hard_sigmoid")
    assert {question.option: question.choices for question in checkpoint.questions}["hard_sigmoid"] == ("keras2", "keras3")
    for version, settings in (("2.2.4-tf", []), (None, ["hard_sigmoid=keras2"])):
        checkpoint = rc.load(bare(tmp_path / "weights.h5", version), recurrent_activation="hard_sigmoid", settings=settings)
        assert "hard_sigmoid" not in {question.option for question in checkpoint.questions}
        assert checkpoint.layers["lstm"].cell.gate_activation.alpha == 0.2


def test_a_function_that_a_configuration_leaves_out_is_asked(tmp_path: Path) -> None:
    pairs = [(f"lstm/{name}:0", uniform(1, *shape)) for name, shape in (("kernel", (3, 16)), ("recurrent_kernel", (4, 16)))]
    config = sequential(("LSTM", {"name": "lstm", "units": 4, "use_bias": False}))
    checkpoint = rc.load(legacy_h5(tmp_path / "model.h5", {"lstm": pairs}, config, "2.2.4-tf"))
    assert [question.option for question in checkpoint.questions] == ["activation", "recurrent_activation"]


def keras() -> Any:
    need("keras", registry.built_in()["keras-tensorflow"].absent)
    import keras as module

    return module


def test_the_end_from_which_bare_weights_read_is_asked(tmp_path: Path) -> None:
    layers = keras().layers
    model = keras().Sequential([keras().Input((5, 3)), layers.GRU(4, go_backwards=True, return_sequences=True, name="gru")])
    model.save_weights(path := tmp_path / "model.weights.h5")
    (question,) = (candidate for candidate in rc.load(path).questions if candidate.option == "go_backwards")
    assert (question.assumed, question.choices) == ("false", ("true", "false"))
    (stack,) = rc.load(path, go_backwards=True).layers.values()
    x = np.random.default_rng(1).normal(size=(2, 5, 3)).astype("float32")
    outputs = run(stack, x.swapaxes(0, 1).astype(float)).y.swapaxes(0, 1)
    np.testing.assert_allclose(outputs, np.asarray(model(x)), atol=1e-6)


# The graph of a SavedModel ----------------------------------------------------------------------------------

FUNCTIONS = ("tanh", "sigmoid", "relu", "softsign", "hard_sigmoid", "silu", "gelu", "linear", "exponential", "elu", "leaky_relu", "mish")
EXPORTED: list[tuple[str, dict[str, Any]]] = [
    *(("LSTM", {"activation": name}) for name in FUNCTIONS), *(("GRU", {"recurrent_activation": name}) for name in FUNCTIONS),
    *(("LSTM", {"activation": name, "recurrent_activation": name}) for name in ("tanh", "sigmoid", "hard_sigmoid", "silu")),
    *(("SimpleRNN", {"activation": name}) for name in FUNCTIONS), ("LSTM", {"go_backwards": True}), ("GRU", {"go_backwards": True}),
    ("GRU", {"reset_after": False}), ("GRU", {"unroll": True, "go_backwards": True}), ("LSTM", {"unroll": True}),
    ("SimpleRNN", {"unroll": True}), *(("two", {"merge_mode": mode}) for mode in ("concat", "sum", "ave", "mul")), ("chain", {}),
]  # fmt: skip
"""Layers, and what they are made with; what no scope shows is asked."""


def test_the_graph_of_a_saved_model_states_what_it_computes(tmp_path: Path) -> None:
    layers = keras().layers

    def check(case: tuple[str, dict[str, Any]]) -> None:
        kind, options = case
        if kind == "two":
            stack_layers = [layers.Bidirectional(layers.GRU(4, return_sequences=True), **options)]
        elif kind == "chain":  # names that differ in a number alone
            stack_layers = [
                layers.LSTM(4, return_sequences=True, go_backwards=backward, activation=function, name=name)
                for backward, function, name in ((False, "tanh", "lstm"), (True, "relu", "lstm_1"), (False, "softsign", "lstm_1_1"))
            ]
        else:
            stack_layers = [getattr(layers, kind)(4, return_sequences=True, **options)]
        model = keras().Sequential([keras().Input((5, 3)), *stack_layers])
        random = np.random.default_rng(1)
        model.set_weights([random.uniform(-0.7, 0.7, weight.shape).astype("f4") for weight in model.get_weights()])
        path = tmp_path / f"model{len(list(tmp_path.iterdir()))}"
        model.export(path, verbose=False)
        checkpoint = rc.load(path)
        open_ = {question.option for question in checkpoint.questions}
        assert checkpoint.layers and "hard_sigmoid" not in open_
        assert open_ <= {"activation", "recurrent_activation", *({"go_backwards"} if options.get("unroll") else ())}
        if not open_:
            x = random.normal(size=(2, 5, 3)).astype("float32")
            y = x.swapaxes(0, 1).astype(float)
            for stack in checkpoint.layers.values():
                y = run(stack, y).y
            np.testing.assert_allclose(y.swapaxes(0, 1), np.asarray(model(x)), atol=1e-5)
        plain = {"tanh", "sigmoid", "relu", "softsign", "elu"}
        plain_case = not options.get("unroll") and all(value in plain for key, value in options.items() if key.endswith("activation"))
        assert not (plain_case and open_), open_

    drawn.each(drawn.drawn(EXPORTED, 3, "exported", always=lambda entry: entry[0] == "chain"), check)


def test_a_graph_that_contradicts_the_caller_or_is_damaged(tmp_path: Path) -> None:
    model = keras().Sequential([keras().Input((5, 3)), keras().layers.GRU(4, return_sequences=True)])
    model.export(tmp_path / "m", verbose=False)
    with pytest.raises(rc.UsageError, match=r"contradicts saved_model\.pb, which states false"):
        rc.load(tmp_path / "m", go_backwards=True)
    assert rc.load(tmp_path / "m", settings=["go_backwards=true!"]).layers
    content = (tmp_path / "m" / "saved_model.pb").read_bytes()
    (tmp_path / "m" / "saved_model.pb").write_bytes(content[: len(content) // 2])
    with pytest.raises(rc.UnreadableError, match=r"saved_model\.pb"):
        rc.load(tmp_path / "m")


# What is around a layer -----------------------------------------------------------------------------------


def printed(path: Path, tmp_path: Path) -> str:
    """What inspect and convert say."""
    inspected = CliRunner().invoke(main, ["inspect", str(path)])
    converted = CliRunner().invoke(main, ["convert", str(path), str(tmp_path / "out.onnx"), "--force"])
    assert (inspected.exit_code, converted.exit_code) == (0, 0), inspected.output + converted.output
    return f"{inspected.output}\n---\n{converted.output}".replace("\n  ", " ")


def check_messages(path: Path, tmp_path: Path, *words: str) -> None:
    """Both commands say it."""
    for part in printed(path, tmp_path).split("---"):
        plain = " ".join(part.split())
        assert all(word in plain for word in words), part


def test_what_a_model_gives_its_layers_is_told(tmp_path: Path) -> None:
    layers = keras().layers
    source, target = keras().Input((5, 3)), keras().Input((4, 3))
    _, h, c = layers.LSTM(4, return_state=True, name="encoder")(layers.Masking(name="padding")(source))
    model = keras().Model([source, target], layers.LSTM(4, return_sequences=True, name="decoder")(target, initial_state=[h, c]))
    model.save(tmp_path / "model.keras")
    check_messages(tmp_path / "model.keras", tmp_path, "decoder: the model gives its initial state (encoder)", "encoder: a mask is passed")
    model.save(tmp_path / "model.h5")
    check_messages(tmp_path / "model.h5", tmp_path, "decoder: the model gives its initial state (encoder)")


def test_what_one_layer_gives_another_as_its_state_is_an_input(tmp_path: Path) -> None:
    """An encoder and a decoder, chained by the caller, give what the Keras model does."""
    layers = keras().layers
    source, target = keras().Input((5, 4)), keras().Input((3, 4))
    _, h, c = layers.LSTM(6, return_state=True, name="encoder")(source)
    decoded = layers.LSTM(6, return_sequences=True, name="decoder")(target, initial_state=[h, c])
    model = keras().Model([source, target], decoded)
    model.save(tmp_path / "model.keras")
    summary = rc.convert(tmp_path / "model.keras", tmp_path / "model.onnx")
    names = ["encoder/x", "decoder/x", "decoder/initial_h", "decoder/initial_c"]
    assert any("the model's own (what 'encoder' gives) where a sequence begins" in note for note in summary.notes)
    random = np.random.default_rng(2)
    read, begun = (random.uniform(-1, 1, (2, steps, 4)).astype(np.float32) for steps in (5, 3))
    session = needed("onnxruntime", "onnxruntime").InferenceSession(str(tmp_path / "model.onnx"))
    assert [value.name for value in session.get_inputs()] == names
    zeros = np.zeros((1, 2, 6), np.float32)
    feeds = {"encoder/x": read.swapaxes(0, 1), "decoder/x": begun.swapaxes(0, 1)}
    states = session.run(["encoder/h_n", "encoder/c_n"], feeds | dict.fromkeys(names[2:], zeros))
    (y,) = session.run(["decoder/y"], feeds | dict(zip(names[2:], states, strict=True)))
    expected = keras().ops.convert_to_numpy(model([read, begun]))
    assert np.abs(y.swapaxes(0, 1) - expected).max() < 1e-6


def test_a_cell_that_no_layer_holds_is_a_layer(tmp_path: Path) -> None:
    """A model steps through cells itself; its other layers of the same shapes, but for the gates, are none."""
    layers = keras().layers
    x, h, c = (keras().Input((width,)) for width in (6, 5, 5))
    step = layers.LSTMCell(5, recurrent_activation="hard_sigmoid", name="step")
    _, (h_1, _) = step(x, [h, c])
    y, _ = layers.GRUCell(4, name="gated")(h_1, [layers.Dense(4, name="dense")(h)])
    model = keras().Model([x, h, c], y)
    model.save(tmp_path / "model.keras")
    checkpoint = rc.load(tmp_path / "model.keras")
    assert {*checkpoint.layers} == {"step", "gated"} and {*checkpoint.tensors} == {f"layers/dense/vars/{n}" for n in (0, 1)}
    assert "hard_sigmoid" in checkpoint.layers["step"].describe() and "hard_sigmoid" not in checkpoint.layers["gated"].describe()
    for name, cell in (("step", step), ("gated", model.get_layer("gated"))):
        direction = checkpoint.layers[name][0, 0]
        kernel = np.asarray(cell.kernel)
        gates = "ifgo" if name == "step" else "zrn"
        assert np.array_equal(np.concatenate([direction.gates[gate].input for gate in gates]), kernel.T)


def test_variables_of_a_cells_shapes_alone_are_no_cell(tmp_path: Path) -> None:
    """A layer of its user's computes anything; Keras's own cell beside it is known by its class, or by the name that Keras gave it."""

    base: Any = keras().layers.Layer
    whole_model: Any = keras().Model

    class Mixed(base):
        def build(self, shape: tuple[int, ...]) -> None:
            self.first = self.add_weight(shape=(shape[-1], 20))
            self.second = self.add_weight(shape=(5, 20))
            self.third = self.add_weight(shape=(20,))

        def call(self, x: Any) -> Any:
            return keras().ops.relu(x @ self.first + self.third) @ keras().ops.transpose(self.second)

    class Stepping(whole_model):
        def __init__(self) -> None:
            super().__init__()
            self.mixed, self.cell = Mixed(name="mixed"), keras().layers.LSTMCell(4, name="lstm_cell_3")

        def call(self, x: Any) -> Any:
            return self.cell(self.mixed(x), [keras().ops.zeros((2, 4))] * 2)[0]

    chain = keras().Sequential([keras().Input((3,)), Mixed(name="mixed")])
    stepping = Stepping()
    stepping(np.zeros((2, 3), np.float32))
    for name, model, layers in (("chain", chain, set()), ("stepping", stepping, {"lstm_cell_3"})):
        for ending in (".keras", ".weights.h5"):
            path = tmp_path / f"{name}{ending}"
            (model.save if ending == ".keras" else model.save_weights)(path)
            checkpoint = rc.load(path)
            assert {*checkpoint.layers} == layers and sum(array.shape == (5, 20) for array in checkpoint.tensors.values()) == 1, path.name


def test_a_mask_before_a_layer_is_told(tmp_path: Path) -> None:
    layers = keras().layers
    row = [keras().Input((5,)), layers.Embedding(7, 3, mask_zero=True, name="words"), layers.GRU(4, name="gru")]
    keras().Sequential(row).save(tmp_path / "model.keras")
    check_messages(tmp_path / "model.keras", tmp_path, "gru: 'words' before it masks steps of its input")


def test_zeros_at_masked_steps_are_told_where_something_masks(tmp_path: Path) -> None:
    """Keras 3's Bidirectional sets zero_output_for_mask on its layers, whatever the model masks."""
    layers = keras().layers
    for masks in (False, True):
        words = layers.Embedding(7, 3, mask_zero=masks, name="words")
        inner = layers.Bidirectional(layers.GRU(4, return_sequences=True), name="gru")
        keras().Sequential([keras().Input((5,)), words, inner]).save(tmp_path / "model.keras")
        warnings = [warning for warning in rc.load(tmp_path / "model.keras").warnings if "masked" in warning]
        assert warnings == (["gru: its outputs are zero where its input is masked"] if masks else [])


def test_a_stateful_layer_is_told(tmp_path: Path) -> None:
    layers = keras().layers
    row = [keras().Input(batch_shape=(2, 5, 3)), layers.Bidirectional(layers.GRU(4, stateful=True), name="gru")]
    keras().Sequential(row).save(tmp_path / "model.keras")
    check_messages(tmp_path / "model.keras", tmp_path, "gru: it is stateful")


@pytest.mark.parametrize(
    ("a", "b", "word"),
    [
        ({"stateful": True}, "zeros", "only A states this: it is stateful"),
        ({"stateful": True}, "input", ""),
        ({"stateful": True}, "weights", ""),
        ({"stateful": True}, {}, "only A states this: it is stateful"),
        ({}, {"return_sequences": True}, "A's layer returns the last output, and B's the output of each step"),
        ({}, {"return_state": True}, "A's layer returns the last output, and B's the last output and the final states"),
        ({"return_sequences": True}, "zeros", ""), ({}, {}, ""),
    ],
    ids=str,
)  # fmt: skip
def test_what_a_layer_carries_on_and_returns_is_part_of_the_verdict(
    a: dict[str, bool], b: str | dict[str, bool], word: str, tmp_path: Path
) -> None:
    """In a model without states, and for another sequence, the same weights are not the same layer."""

    def written(path: Path, **settings: bool) -> Path:
        x = keras().Input(batch_shape=(2, 5, 3))
        keras().utils.set_random_seed(1)
        keras().Model(x, keras().layers.LSTM(4, name="lstm", **settings)(x)).save(path)
        return path

    source = written(tmp_path / "a.keras", **a)
    if isinstance(b, dict):
        target = written(tmp_path / "b.keras", **b)
    else:
        target = tmp_path / ("b.pt" if b == "weights" else "b.onnx")
        rc.convert(source, target, settings=["states=input"] if b == "input" else [])
    verdict = rc.diff(source, target).verdict
    assert verdict.word == ("equal but for" if word else "equal")
    assert not word or word in verdict.short


def test_states_in_a_keras_2_configuration_are_told(tmp_path: Path) -> None:
    """As tf.keras and Keras 2 refer to tensors: [layer, node, tensor, arguments]."""
    lstm = {"units": 4, "activation": "tanh", "recurrent_activation": "sigmoid"}
    entries = [
        {"class_name": "InputLayer", "name": "x", "config": {"name": "x"}, "inbound_nodes": []},
        {"class_name": "Masking", "name": "skip", "config": {"name": "skip"}, "inbound_nodes": [[["x", 0, 0, {}]]]},
        {"class_name": "LSTM", "name": "first", "config": {"name": "first", **lstm}, "inbound_nodes": [[["skip", 0, 0, {}]]]},
        {
            "class_name": "LSTM", "name": "lstm", "config": {"name": "lstm", **lstm},
            "inbound_nodes": [[["x", 0, 0, {}], ["first", 0, 1, {}], ["first", 0, 2, {}]]],
        },
        {
            "class_name": "LSTM", "name": "third", "config": {"name": "third", **lstm},
            "inbound_nodes": [[["x", 0, 0, {"initial_state": [["first", 0, 1], ["first", 0, 2]]}]]],
        },
    ]  # fmt: skip
    config = {"class_name": "Model", "config": {"name": "model", "layers": entries}}
    shapes = {"kernel": (3, 16), "recurrent_kernel": (4, 16)}
    groups = {name: [(f"{name}/{array}:0", uniform(1, *shape)) for array, shape in shapes.items()] for name in ("first", "lstm", "third")}
    checkpoint = rc.load(legacy_h5(tmp_path / "model.h5", groups, config, "2.2.4-tf"))
    assert checkpoint.warnings == (
        "first: 'skip' before it masks steps of its input: pass the lengths of its sequences",
        "lstm: the model gives its initial state (first): pass it at every call",
        "third: the model gives its initial state (first): pass it at every call",
    )


# Every key of a configuration -----------------------------------------------------------------------------


COMMON_1 = "name trainable batch_input_shape input_dtype return_sequences go_backwards stateful unroll consume_less input_dim input_length"
OWN_1 = "output_dim init inner_init activation W_regularizer U_regularizer b_regularizer dropout_W dropout_U"
OF_KERAS_1 = f"{COMMON_1} {OWN_1} inner_activation forget_bias_init".split()
"""keras 1.2.2, layers/recurrent.py: get_config of Recurrent, SimpleRNN, GRU and LSTM."""
COMMON_2 = (
    "name trainable dtype batch_input_shape return_sequences return_state go_backwards stateful unroll implementation units "
    "activation recurrent_activation use_bias kernel_initializer recurrent_initializer bias_initializer unit_forget_bias"
)
OWN_2 = (
    "kernel_regularizer recurrent_regularizer bias_regularizer activity_regularizer kernel_constraint recurrent_constraint "
    "bias_constraint dropout recurrent_dropout reset_after num_constants time_major cell cells layer merge_mode "
    "backward_layer zero_output_for_mask reverse_state_order"
)
OF_KERAS_2 = f"{COMMON_2} {OWN_2}".split()
"""keras 2.3.1 and tf.keras up to 2.15: get_config of recurrent layers, cells and their wrappers."""


def test_every_key_of_old_configurations_is_accounted_for() -> None:
    assert {*OF_KERAS_1, *OF_KERAS_2} <= KEYS.keys()


def test_every_key_of_the_installed_keras_is_accounted_for() -> None:
    layers = keras().layers
    row = [
        layers.SimpleRNN(2), layers.GRU(2), layers.LSTM(2), layers.SimpleRNNCell(2), layers.GRUCell(2), layers.LSTMCell(2),
        layers.RNN(layers.GRUCell(2)), layers.RNN([layers.GRUCell(2)]), layers.StackedRNNCells([layers.LSTMCell(2)]),
        layers.Bidirectional(layers.LSTM(2)), layers.TimeDistributed(layers.LSTM(2)),
    ]  # fmt: skip
    for layer in row:
        name = type(layer).__name__
        assert set(layer.get_config()) <= known_keys(Entry("it", name, {})), name


@pytest.mark.parametrize("value", [0.5, "log", {"a": 1}])
def test_a_key_of_which_nothing_is_known_is_refused(value: object, tmp_path: Path) -> None:
    path = keras_lstm_h5(tmp_path / "model.h5", "2.2.4", cell_scale=value)
    with pytest.raises(rc.RefusedError, match=r"'cell_scale' of its configuration: .*--set unaccounted=harmless"):
        rc.convert(path, tmp_path / "out.onnx")
    assert rc.convert(path, tmp_path / "out.onnx", unaccounted="harmless").written
    assert rc.load(keras_lstm_h5(tmp_path / "plain.h5", "2.2.4", cell_scale=None)).layers


def test_a_key_of_which_nothing_is_known_is_refused_in_keras_3(tmp_path: Path) -> None:
    layers = keras().layers
    row = [keras().Input((5, 3)), layers.Bidirectional(layers.GRU(4), name="gru")]
    keras().Sequential(row).save(tmp_path / "model.keras")
    with zipfile.ZipFile(tmp_path / "model.keras") as old, zipfile.ZipFile(tmp_path / "odd.keras", "w") as new:
        for name in old.namelist():
            data = old.read(name)
            if name == "config.json":
                config = json.loads(data)
                config["config"]["layers"][1]["config"]["layer"]["config"]["leak"] = 0.1
                data = json.dumps(config).encode()
            new.writestr(name, data)
    with pytest.raises(rc.RefusedError, match=r"'leak' of its configuration: it is 0\.1, and its effect on the numbers is unknown"):
        rc.convert(tmp_path / "odd.keras", tmp_path / "out.pt")


def test_mixed_precision_is_told(tmp_path: Path) -> None:
    layers = keras().layers
    row = [keras().Input((5, 3)), layers.GRU(4, name="gru", dtype="mixed_float16")]
    keras().Sequential(row).save(tmp_path / "model.keras")
    check_messages(tmp_path / "model.keras", tmp_path, "gru: it computes in float16 there (mixed_float16)")
