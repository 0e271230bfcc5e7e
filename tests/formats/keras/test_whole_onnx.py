"""Whole Keras models as one ONNX graph give what Keras gives."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from click.testing import CliRunner

from rnnconvert.cli.main import main
from rnnconvert.core.errors import RefusedError, UsageError
from rnnconvert.scaffolding.export import export_model
from tests import ROOT
from tests.helpers.onnx_graphs import in_onnxruntime
from tests.helpers.requirements import needed

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
GOLDEN = ROOT / "tests" / "golden" / "upgrade"
RANDOM = np.random.default_rng(3)


def run(path: Path, inputs: list[Any]) -> list[Any]:
    return in_onnxruntime(path, *inputs)


def tagger(k: Any) -> Any:
    layers = k.layers
    x = k.Input((None,), dtype="int32")
    y = layers.Embedding(30, 6)(x)
    y = layers.SpatialDropout1D(0.3)(y)
    y = layers.Bidirectional(layers.LSTM(5, return_sequences=True))(y)
    y = layers.LayerNormalization()(y)
    y = layers.TimeDistributed(layers.Dense(4, activation="relu"))(y)
    y = layers.Bidirectional(layers.GRU(3, return_sequences=True), merge_mode="sum")(y)
    return k.Model(x, layers.Dense(7, activation="softmax")(y))


def convolutions(k: Any) -> Any:
    layers = k.layers
    return k.Sequential([
        k.Input((24, 3)), layers.Conv1D(6, 3, padding="same", activation="gelu"), layers.BatchNormalization(),
        layers.MaxPooling1D(2), layers.Conv1D(4, 3, padding="causal", dilation_rate=2, use_bias=False), layers.Activation("silu"),
        layers.AveragePooling1D(2, padding="same"), layers.GRU(5, reset_after=False, recurrent_activation="hard_sigmoid"),
        layers.Dropout(0.2), layers.Dense(2),
    ])  # fmt: skip


def images(k: Any) -> Any:
    layers = k.layers
    return k.Sequential([
        k.Input((9, 8, 2)), layers.Conv2D(3, (3, 2), strides=2, padding="same"), layers.LeakyReLU(0.1), layers.MaxPooling2D(2),
        layers.PReLU(), layers.Flatten(), layers.RepeatVector(4), layers.SimpleRNN(3, return_sequences=True), layers.Permute((2, 1)),
        layers.Reshape((2, -1)), layers.ELU(0.7), layers.GlobalAveragePooling1D(),
    ])  # fmt: skip


def merged(k: Any) -> Any:
    layers = k.layers
    first, second = k.Input((None, 4), name="one"), k.Input((None, 4), name="two")
    shared = layers.LSTM(3, go_backwards=True, return_sequences=True)
    inner_in = k.Input((None, 3))
    inner = k.Model(inner_in, layers.Dense(3, activation="tanh")(inner_in), name="inner")
    a, b = shared(first), inner(shared(second))
    both = [layers.Add()([a, b]), layers.Subtract()([a, b]), layers.Multiply()([a, b]), layers.Average()([a, b]), layers.Maximum()([a, b]),
            layers.Minimum()([a, b])]  # fmt: skip
    y = layers.Concatenate()(both)
    out, h, c = layers.LSTM(2, return_state=True)(y)
    return k.Model([first, second], [layers.Bidirectional(layers.GRU(2), merge_mode="ave")(y), out, h, c])


MODELS: dict[str, tuple[Callable[[Any], Any], list[tuple[int, ...]]]] = {
    "tagger": (tagger, [(3, 7)]), "convolutions": (convolutions, [(2, 24, 3)]), "images": (images, [(2, 9, 8, 2)]),
    "merged": (merged, [(2, 5, 4), (2, 5, 4)]),
}  # fmt: skip


def model_and_inputs(name: str, folder: Path) -> tuple[Any, list[Any]]:
    keras = needed("keras", "keras")
    make, shapes = MODELS[name]
    model = make(keras)
    for weight in model.weights:
        if "seed" in weight.path:
            continue
        values = RANDOM.normal(size=weight.shape) * 0.5
        weight.assign(np.abs(values) + 0.5 if "variance" in weight.path else values)
    x = [RANDOM.integers(0, 30, shape).astype(np.int32) if name == "tagger" else RANDOM.normal(size=shape).astype(np.float32)
         for shape in shapes]  # fmt: skip
    model.save(folder / f"{name}.keras")
    return model, x


@pytest.mark.parametrize("name", MODELS)
def test_a_whole_model_gives_what_keras_gives(name: str, tmp_path: Path) -> None:
    model, x = model_and_inputs(name, tmp_path)
    done = export_model(tmp_path / f"{name}.keras", tmp_path / "model.onnx")
    expected = model(x if len(x) > 1 else x[0], training=False)
    expected = expected if isinstance(expected, (list, tuple)) else [expected]
    outputs = run(tmp_path / "model.onnx", x)
    assert len(outputs) == len(expected) and done.layers
    for output, truth in zip(outputs, expected, strict=True):
        np.testing.assert_allclose(output, needed("keras", "keras").ops.convert_to_numpy(truth), rtol=2e-5, atol=2e-6)
    assert {"LSTM", "GRU", "RNN"} & {node.op_type for node in onnx.load(tmp_path / "model.onnx").graph.node}


@pytest.mark.parametrize("name", sorted(path.stem for path in GOLDEN.glob("*.h5")))
def test_an_old_model_is_whole_or_refused_by_name(name: str, tmp_path: Path) -> None:
    """Files of Keras 1, 2 and tf.keras with what their own Keras gave."""
    try:
        export_model(GOLDEN / f"{name}.h5", tmp_path / "model.onnx")
    except RefusedError as error:
        assert error.layer or "cannot hold" in str(error)
        assert not (tmp_path / "model.onnx").exists()
        return
    with np.load(GOLDEN / f"{name}.npz") as stored:
        x = [stored[key] for key in sorted(stored.files) if key.startswith("x")]
        truth = [stored[key] for key in sorted(stored.files) if key.startswith("y")]
    kinds = [value.type.tensor_type.elem_type for value in onnx.load(tmp_path / "model.onnx").graph.input]
    x = [array.astype(onnx.helper.tensor_dtype_to_np_dtype(kind)) for array, kind in zip(x, kinds, strict=True)]
    for array, expected in zip(run(tmp_path / "model.onnx", x), truth, strict=True):
        np.testing.assert_allclose(array, expected, rtol=1e-4, atol=1e-5)


def refused(folder: Path, build: Callable[[Any], Any], match: str) -> None:
    keras = needed("keras", "keras")
    build(keras).save(folder / "model.keras")
    with pytest.raises(RefusedError, match=match):
        export_model(folder / "model.keras", folder / "model.onnx")
    assert not (folder / "model.onnx").exists()


def test_what_has_no_equivalent_is_refused_by_name(tmp_path: Path) -> None:
    def lasting(k: Any) -> Any:
        return k.Sequential([k.Input((None, 3), batch_size=2), k.layers.GRU(2, stateful=True, name="lasting")])

    def attention(k: Any) -> Any:
        x, mask = k.Input((5, 4)), k.Input((2, 5, 5), dtype="bool")
        return k.Model([x, mask], k.layers.MultiHeadAttention(2, 2, name="looks")(x, x, attention_mask=mask))

    def window(k: Any) -> Any:
        x = k.Input((None, 4))
        return k.Model(x, k.layers.MultiHeadAttention(2, 2, sliding_window=2, name="near")(x, x))

    def normal(k: Any) -> Any:
        return k.Sequential([k.Input((5, 4)), k.layers.GroupNormalization(1, axis=1, name="across")])

    def half(k: Any) -> Any:
        return k.Sequential([k.Input((5,)), k.layers.Dense(2, dtype="float16", name="half")])

    def large(k: Any) -> Any:
        return k.Sequential([k.Input((5, 4, 2)), k.layers.UpSampling2D(2, interpolation="bilinear", name="smooth")])

    def longer(k: Any) -> Any:
        return k.Sequential([k.Input((5, 4)), k.layers.Conv1DTranspose(2, 3, strides=2, output_padding=1, name="longer")])

    def unknown(k: Any) -> Any:
        return k.Sequential([k.Input((5, 4)), k.layers.LSTM(2, activation="gelu", name="curved")])

    def axes(k: Any) -> Any:
        return k.Sequential([k.Input((5, 4)), k.layers.Softmax(axis=[1, 2], name="both")])

    def pixels(k: Any) -> Any:
        return k.Sequential([k.Input((5, 4), dtype="int32"), k.layers.Rescaling(0.5, name="pixels")])

    for build, match in (
        (unknown, "curved.*gelu"), (axes, r"both.*\[1, 2\]"), (pixels, "pixels.*whole numbers"),
        (lasting, "lasting.*stateful.*--stateful"), (attention, "looks.*attention_mask"), (window, "near.*sliding_window"),
        (normal, "across.*axis = 1"), (half, "half.*float16"),
        (large, "smooth.*interpolation"), (longer, "longer.*output_padding"),
    ):  # fmt: skip
        refused(tmp_path, build, match)


def test_the_command_writes_a_whole_model(tmp_path: Path) -> None:
    source, target = ROOT / "examples" / "encoder.keras", tmp_path / "whole.onnx"

    def call(*words: object) -> Any:
        return CliRunner().invoke(main, ["export", str(source), *map(str, words)])

    assert call(target, "--dry-run").exit_code == 0 and not target.exists()
    done = call(target, "--json")
    assert done.exit_code == 0 and len(json.loads(done.stdout)["layers"]) == 2
    assert call(target).exit_code == 2 and call(target, "--force").exit_code == 0
    assert call(target, "--force", "--stateful").exit_code == 4  # it has two directions
    with pytest.raises(UsageError, match=r"Choose one of .*\.onnx"):
        export_model(source, tmp_path / "whole.pt")


def test_convert_names_export_where_it_writes_what_is_left_out(tmp_path: Path) -> None:
    """The command is typed: it does what it is proposed for."""
    torch, keras = needed("torch", "torch"), needed("keras", "keras")
    keras.Sequential([keras.Input((None, 3)), keras.layers.GRU(4), keras.layers.Dense(2)]).save(tmp_path / "a model.keras")
    module = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 2))
    module.register_module("rnn", torch.nn.GRU(3, 3))
    torch.save(module.state_dict(), tmp_path / "a chain.pt")
    module.register_module("norm", torch.nn.LayerNorm(3))
    torch.save(module.state_dict(), tmp_path / "weights.pt")
    for name, offered in (("a model.keras", True), ("a chain.pt", True), ("weights.pt", False)):
        done = CliRunner().invoke(main, ["convert", str(tmp_path / name), str(tmp_path / "out.onnx"), "--force"])
        command = next((line.partition(": rnnconvert ")[2] for line in done.stderr.splitlines() if "the whole model" in line), "")
        assert done.exit_code == 0 and bool(command) is offered, done.stderr
        assert not command or CliRunner().invoke(main, shlex.split(command)).exit_code == 0
    assert "the whole model" not in CliRunner().invoke(main, ["convert", str(tmp_path / "a model.keras"), str(tmp_path / "out.pt")]).stderr
