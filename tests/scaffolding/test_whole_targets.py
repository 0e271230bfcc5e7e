"""Whole models in every format but ONNX give what Keras gives, or are refused by name."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from click.testing import CliRunner

import rnnconvert as rc
from rnnconvert.cli.main import main
from rnnconvert.core.cells import HARD_SIGMOID_KERAS_2, Activation, Cell, Clip
from rnnconvert.language.layout import Sizes
from tests.formats.keras.test_whole_onnx_layers import GROUPS, filled
from tests.helpers.drawn import NotComparedError, drawn, each
from tests.helpers.exported import RUNS, in_tensorflow
from tests.helpers.random_models import fill
from tests.helpers.requirements import needed
from tests.helpers.sources import checkpoint
from tests.helpers.stacks import random_stack

pytestmark = [
    pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:Layer .* was passed an input with a mask:UserWarning"),
    pytest.mark.filterwarnings("ignore:The structure of `inputs`:UserWarning"),
]
RUN_THERE = ("xml", "tflite", "json", "graph")
"""The endings of files that their own runtimes run, and the graph models of TensorFlow.js."""
TARGETS = (*RUN_THERE, "mlpackage")
STATED: dict[str, dict[str, Any]] = {
    "json": {"format": "tfjs", "settings": ["form=layers"]},
    "graph": {"format": "tfjs", "settings": ["form=graph"]},
}
"""What an ending does not decide."""


def file_of(folder: Path, target: str) -> Path:
    return folder / f"model.{'json' if target == 'graph' else target}"


def agrees(model: Any, calls: Sequence[Sequence[Any]], folder: Path, target: str) -> None:
    """Check all outputs of a written model against Keras's, call by call."""
    source, path = folder / "model.keras", file_of(folder, target)
    model.save(source)
    if path.is_dir():
        shutil.rmtree(path)  # a package is never replaced
    rc.export_model(source, path, force=True, **STATED.get(target, {}))
    runs = [RUNS[path.suffix[1:]](path), *([in_tensorflow(path)] if target == "graph" else [])]
    for run, x in product(runs, calls):
        expected = model(list(x) if len(x) > 1 else x[0], training=False)
        expected = list(expected) if isinstance(expected, (list, tuple)) else [expected]
        for output, truth in zip(run(x), expected, strict=True):
            truth = needed("keras", "keras").ops.convert_to_numpy(truth)
            assert output.shape == truth.shape
            np.testing.assert_allclose(output, truth, rtol=1e-4, atol=1e-5)


def values(*shape: int) -> Any:
    return np.random.default_rng(5).normal(size=shape).astype(np.float32)


OVER_SPACE = ("Conv3D", "Conv3DTranspose", "MaxPooling3D", "AveragePooling3D")
REFUSED = {
    "xml": (),
    "tflite": OVER_SPACE,
    "graph": OVER_SPACE,
    "mlpackage": ("UpSampling2D", "UpSampling3D"),
    "json": (
        "Cropping3D", "ELU", "GlobalAveragePooling3D", "GlobalMaxPooling3D", "GroupNormalization", "Normalization", "RMSNormalization",
        "UnitNormalization", "UpSampling3D", "ZeroPadding3D",
    ),
}  # fmt: skip
"""Classes that a format has no operators or layers for."""


def _lacks_inside(layer: Any) -> bool:
    """Whether TensorFlow.js's TimeDistributed does not hold a layer."""
    name = type(layer).__name__
    return (
        _lacks_inside(layer.layer) if name == "TimeDistributed" else name in ("Bidirectional", "GroupNormalization", "LSTM", "Sequential")
    )


SETTINGS: dict[str, Callable[[Any], bool]] = {
    "BatchNormalization": lambda layer: layer.axis != -1,
    "Conv1D": lambda layer: layer.groups > 1,
    "Conv2D": lambda layer: layer.groups > 1,
    "DepthwiseConv2D": lambda layer: layer.dilation_rate != (1, 1),
    "ReLU": lambda layer: bool(layer.threshold or (layer.negative_slope and layer.max_value is not None)),
    "Softmax": lambda layer: layer.axis != -1,
    "TimeDistributed": lambda layer: _lacks_inside(layer.layer),
}  # fmt: skip
"""What of other classes TensorFlow.js has no setting for, which is refused."""


def lacking(layer: Any, target: str) -> bool:
    name = type(layer).__name__
    return name in REFUSED[target] or (target == "json" and name in SETTINGS and SETTINGS[name](layer))


@pytest.mark.parametrize("target", TARGETS)
def test_each_layer(tmp_path: Path, target: str) -> None:
    keras = needed("keras", "keras")
    cases = [(layer, shape) for make, shape in GROUPS.values() for layer in make(keras)]

    def check(case: tuple[Any, tuple[int, ...]]) -> None:
        layer, shape = case
        x = keras.Input(shape)
        model = keras.Model(x, layer(x))
        filled(model, np.random.default_rng(0))
        if lacking(layer, target):
            with pytest.raises(rc.RefusedError, match=layer.name):
                agrees(model, [[values(3, *shape)]], tmp_path, target)
            return
        agrees(model, [[values(3, *shape)]], tmp_path, target)

    each(drawn(cases, 30, f"layers {target}"), check, lambda case: f"{type(case[0]).__name__} {case[0].get_config()}")


@pytest.mark.parametrize("target", TARGETS)
def test_a_layer_for_each_step(tmp_path: Path, target: str) -> None:
    k = needed("keras", "keras").layers
    for layer, shape in ((k.Conv1D(3, 2), (4, 6, 2)), (k.MaxPooling2D(2), (3, 4, 5, 2)), (k.Dense(3), (4, 2))):
        x = k.Input(shape)
        model = needed("keras", "keras").Model(x, k.TimeDistributed(layer)(x))
        filled(model, np.random.default_rng(0))
        agrees(model, [[values(3, *shape)]], tmp_path, target)


def recurrent(k: Any) -> dict[str, Callable[[], Any]]:
    a = k.layers
    functions = ("hard_sigmoid", "softsign", "elu", "relu")
    every = {f"{cell.__name__} {name}": lambda cell=cell, name=name: cell(3, activation=name)
             for cell in (a.LSTM, a.GRU, a.SimpleRNN) for name in functions}  # fmt: skip
    return every | {
        "gates": lambda: a.LSTM(3, recurrent_activation="hard_sigmoid", return_sequences=True),
        "before": lambda: a.GRU(4, reset_after=False, return_sequences=True), "no bias": lambda: a.GRU(4, use_bias=False),
        "sum": lambda: a.Bidirectional(a.GRU(3, return_sequences=True), merge_mode="sum"),
        "apart": lambda: a.Bidirectional(a.LSTM(3), merge_mode="ave"),
        "backwards": lambda: a.LSTM(4, return_sequences=True, go_backwards=True),
    }  # fmt: skip


REFUSALS: dict[str, tuple[str, ...]] = {
    "xml": (),
    "tflite": (),
    "mlpackage": (),
    "graph": (),
    "json": ("the reset gate after the product", "hard_sigmoid", "zeros at the steps that a mask leaves out"),
}
"""What of recurrent layers a format lacks, in the words of its refusals."""


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("masked", [False, True])
def test_recurrent_layers_over_any_batch_and_length(tmp_path: Path, target: str, masked: bool) -> None:
    k = needed("keras", "keras")
    layers = recurrent(k)
    random = np.random.default_rng(6)
    calls = [[random.integers(0, 4, (batch, time)).astype(np.int32)] for batch, time in ((3, 5), (1, 9), (4, 1), (1, 1))]

    def check(name: str) -> None:
        model = k.Sequential(
            [k.Input((None,), dtype="int32"), k.layers.Embedding(9, 5, mask_zero=masked), layers[name](), k.layers.Dense(2)]
        )
        fill(model, 3)
        try:
            agrees(model, calls, tmp_path, target)
        except rc.RefusedError as error:
            assert any(words in str(error) for words in REFUSALS[target]), error
            raise NotComparedError(str(error)) from None

    each(layers, check)


@pytest.mark.parametrize("target", (*TARGETS, "onnx"))
def test_windows_of_padding_same_that_leave_gaps(tmp_path: Path, target: str) -> None:
    k = needed("keras", "keras")
    a = k.layers
    kinds = {
        "MaxPooling1D": a.MaxPooling1D,
        "AveragePooling1D": a.AveragePooling1D,
        "Conv1D": lambda *size, **words: a.Conv1D(2, *size, **words),
    }

    def check(case: tuple[str, tuple[int, int], int | None]) -> None:
        name, (size, stride), time = case
        x = k.Input((time, 3))
        model = k.Model(x, kinds[name](size, strides=stride, padding="same")(x))
        fill(model, 3)
        try:
            agrees(model, [[values(2, length, 3)] for length in ((time,) if time else (3, 4, 5, 6, 7))], tmp_path, target)
        except rc.RefusedError as error:
            assert target == "onnx" and size > 2 and "with gaps" in str(error), error
            raise NotComparedError(str(error)) from None

    sizes = ((1, 2), (1, 3), (2, 3), (2, 5), (3, 4), (3, 3), (3, 2))
    each(drawn(product(kinds, sizes, (5, 6, None)), 12, f"gaps {target}"), check)


@pytest.mark.parametrize("target", (*TARGETS, "onnx"))
def test_operations_on_tensors_between_layers(tmp_path: Path, target: str) -> None:
    k = needed("keras", "keras")
    ops = k.ops
    functions = ("relu", "relu6", "sigmoid", "hard_sigmoid", "tanh", "silu", "selu", "softplus", "softsign", "exp")
    cases: dict[str, Callable[[Any], Any]] = {name: getattr(ops, name) for name in functions}
    cases |= {
        "concatenate": lambda x: ops.concatenate([x, ops.tanh(x)], axis=-1), "time": lambda x: ops.concatenate([x, x], axis=1),
        "flip": lambda x: ops.flip(x, axis=1), "flips": lambda x: ops.flip(x, axis=(1, -1)),
        "turned": lambda x: ops.transpose(ops.tanh(ops.transpose(x, (0, 2, 1))), (0, -1, 1)),
    }  # fmt: skip

    def check(name: str) -> None:
        x = k.Input((6, 3))
        model = k.Model(x, k.layers.LSTM(2, return_sequences=True)(cases[name](k.layers.LSTM(4, return_sequences=True)(x))))
        fill(model, 3)
        try:
            agrees(model, [[values(2, 6, 3)], [values(1, 6, 3)]], tmp_path, target)
        except rc.RefusedError as error:
            assert target == "json", error  # as layers, which have no operations
            raise NotComparedError(str(error)) from None

    each(drawn(cases, 10, f"operations {target}"), check)


def test_operations_on_the_batch_are_refused_by_name(tmp_path: Path) -> None:
    k = needed("keras", "keras")
    x = k.Input(batch_shape=(6, 6, 3))
    for y in (k.ops.flip(x, axis=0), k.ops.flip(x), k.ops.transpose(x, (1, 0, 2)), k.ops.transpose(x), k.ops.concatenate([x, x], axis=0)):
        k.Model(x, k.layers.LSTM(2)(y)).save(tmp_path / "source.keras")
        with pytest.raises(rc.RefusedError, match="behind the batch"):
            rc.export_model(tmp_path / "source.keras", tmp_path / "model.onnx")


@pytest.mark.parametrize("target", TARGETS)
def test_masked_layers_over_stated_batches_and_lengths(tmp_path: Path, target: str) -> None:
    """A runtime computes otherwise what has a size that it knows."""
    k = needed("keras", "keras")
    layers, random = recurrent(k), np.random.default_rng(6)

    def check(case: tuple[str, tuple[int, int]]) -> None:
        name, shape = case
        words = k.layers.Embedding(9, 5, mask_zero=True)
        model = k.Sequential([k.Input(batch_shape=shape, dtype="int32"), words, layers[name](), k.layers.Dense(2)])
        fill(model, 3)
        try:
            agrees(model, [[random.integers(0, 4, shape).astype(np.int32)] for _ in range(3)], tmp_path, target)
        except rc.RefusedError as error:
            assert any(words in str(error) for words in REFUSALS[target]), error
            raise NotComparedError(str(error)) from None

    each(drawn(product(layers, ((1, 8), (3, 5), (1, 1))), 10, f"stated sizes {target}"), check)


@pytest.mark.parametrize("target", (*RUN_THERE, "onnx", "param", "mlpackage"))
def test_a_layer_is_read_by_the_next_one_and_by_others(tmp_path: Path, target: str) -> None:
    """A runtime may join what stands around a layer with it, although others read it too."""
    a = needed("keras", "keras").layers
    first = {
        name: layer for name, layer in recurrent(needed("keras", "keras")).items() if name in ("LSTM elu", "before", "sum", "backwards")
    }
    first |= {cell.__name__: lambda cell=cell: cell(4) for cell in (a.LSTM, a.GRU, a.SimpleRNN)}
    others = {"itself": lambda h: h, "dense": lambda h: a.Dense(4)(h), "layer": lambda h: a.LSTM(4, return_sequences=True)(h),
              "times": lambda h: a.Permute((2, 1))(a.Permute((2, 1))(h)),
              "both ways": lambda h: a.Bidirectional(a.GRU(2, return_sequences=True))(h)}  # fmt: skip

    def check(case: tuple[str, str, str]) -> None:
        names, other = case[:2], others[case[2]]
        below, above = (first[name]() for name in names)
        for layer in (below, above):
            (layer.forward_layer if isinstance(layer, a.Bidirectional) else layer).return_sequences = True
        x = a.Input((None, 3))
        h = below(x)
        model = needed("keras", "keras").Model(x, a.Concatenate()([above(h), other(h), other(x)]))
        fill(model, 3)
        try:
            agrees(model, [[values(2, 6, 3)], [values(1, 1, 3)]], tmp_path, target)
        except rc.RefusedError as error:
            assert any(words in str(error) for words in (*REFUSALS.get(target, ()), "ncnn")), error
            raise NotComparedError(str(error)) from None

    each(drawn(product(first, first, others), 12 if target in ("json", "graph") else 25, f"read twice {target}"), check, " ".join)


@pytest.mark.parametrize("target", RUN_THERE)
def test_a_file_is_proved_and_read_again(tmp_path: Path, target: str) -> None:
    k = needed("keras", "keras")
    a = k.layers
    gru = a.GRU(4, return_sequences=True, reset_after=target != "json", name="first")
    parts = [a.Embedding(9, 5), gru, a.LSTM(3, name="second"), a.Dense(2)]
    model = k.Sequential([k.Input((None,), dtype="int32"), *parts])
    source, out = tmp_path / "model.keras", file_of(tmp_path, target)
    model.save(source)
    assert rc.export_model(source, out, verify=True, **STATED.get(target, {})).equal
    first, second = rc.load(out).layers.values()
    assert (first.cell.kind, second.cell.kind) == ("gru", "lstm")
    ours, theirs = (stack.layers[0].directions[0] for stack in (first, rc.load(source).layers["first"]))
    for gate in "rzn":
        np.testing.assert_array_equal(np.asarray(ours.arrays["recurrent", gate]), np.asarray(theirs.arrays["recurrent", gate]))
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    to = ["--to", "tfjs"] if target in STATED else []
    result = CliRunner().invoke(main, ["export", str(source), str(out), *to])
    assert result.exit_code == 2 and "--force" in result.output
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize("target", ("xml", "tflite", "mlpackage"))
def test_a_triangle_of_infinite_numbers_has_zeros_beside_it(tmp_path: Path, target: str) -> None:
    """As masks of attention have them."""
    dims = ["batch", "rows", "columns"]
    places = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, dims) for name in "xy"]
    diagonal = onnx.helper.make_tensor("k", onnx.TensorProto.INT64, [], [1])
    graph = onnx.helper.make_graph([onnx.helper.make_node("Trilu", ["x", "k"], ["y"], upper=1)], "g", places[:1], places[1:], [diagonal])
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8), tmp_path / "g.onnx")
    path, x = tmp_path / f"g.{target}", np.full((2, 4, 4), -np.inf, np.float32)
    rc.export_model(tmp_path / "g.onnx", path)
    np.testing.assert_array_equal(RUNS[target](path)([x])[0], np.triu(x, 1))


def test_numbers_that_are_there_are_not_replaced(tmp_path: Path) -> None:
    k = needed("keras", "keras")
    k.Sequential([k.Input((None, 2)), k.layers.GRU(3)]).save(tmp_path / "model.keras")
    (tmp_path / "model.bin").write_bytes(b"another's")
    result = CliRunner().invoke(main, ["export", str(tmp_path / "model.keras"), str(tmp_path / "model.xml")])
    assert result.exit_code == 2 and "model.bin" in result.output
    assert (tmp_path / "model.bin").read_bytes() == b"another's" and not (tmp_path / "model.xml").exists()


def test_a_refused_conversion_names_the_export_that_holds_the_layer(tmp_path: Path) -> None:
    k = needed("keras", "keras")
    source, target = tmp_path / "model.keras", tmp_path / "model.tflite"
    k.Sequential([k.Input((None, 2)), k.layers.GRU(3)]).save(source)
    result = CliRunner().invoke(main, ["convert", str(source), str(target)])
    assert result.exit_code == 4 and f"rnnconvert export {source} {target}\n" in result.output and not target.exists()


_RARE: dict[str, tuple[Cell, frozenset[str]]] = {
    "peepholes": (Cell("lstm"), frozenset({"peephole"})),
    "coupled gates": (Cell("lstm", coupled="f"), frozenset()),
    "a clip of gates": (Cell("gru", True, clips=(Clip("gates", -0.2, 0.2),)), frozenset()),
    "functions": (Cell("lstm", activation=Activation("softsign"), gate_activation=HARD_SIGMOID_KERAS_2), frozenset({"peephole"})),
}


@pytest.mark.parametrize("target", ("xml", "tflite", "graph", "onnx", "mlpackage", "h"))
@pytest.mark.parametrize("ways", [1, 2])
def test_cells_that_few_frameworks_have(tmp_path: Path, target: str, ways: int) -> None:
    onnxruntime = needed("onnxruntime", "onnxruntime")
    random = np.random.default_rng(4)

    def check(name: str) -> None:
        cell, parts = _RARE[name]
        sizes = Sizes(cell.kind, 3, 5, 1, ways, parts=parts | {"input", "recurrent", "input_bias", "recurrent_bias"})
        stack = random_stack(sizes, 7, np.float32, cell).replace(name="rnn")
        source, path = tmp_path / "source.onnx", file_of(tmp_path, target)
        rc.save(checkpoint(stack), source, "onnx", force=True)
        session = onnxruntime.InferenceSession(str(source))
        if path.is_dir():
            shutil.rmtree(path)
        rc.export_model(source, path, force=True, **STATED.get(target, {}))
        run = RUNS[path.suffix[1:]](path)
        for shape in ((6, 2, 3), (1, 3, 3), (4, 1, 3)):
            x = random.normal(size=shape).astype(np.float32)
            for output, truth in zip(run([x]), session.run(None, {"x": x}), strict=True):
                np.testing.assert_allclose(output, truth, rtol=1e-4, atol=1e-5)

    each(_RARE, check)


@pytest.mark.parametrize("target", (*RUN_THERE, "onnx", "mlpackage", "h", "param"))
@pytest.mark.parametrize("both", [False, True])
@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning", "ignore:LSTM with projections:UserWarning", "ignore:::torch")
def test_projections_of_pytorch(tmp_path: Path, target: str, both: bool) -> None:
    torch = needed("torch", "torch")
    torch.manual_seed(1)
    lstm = torch.nn.LSTM(3, 6, 2, batch_first=True, bidirectional=both, proj_size=2).eval()
    torch.jit.trace(lstm, torch.zeros(2, 4, 3), strict=False).save(tmp_path / "source.pt")
    path = file_of(tmp_path, target)
    try:
        rc.export_model(tmp_path / "source.pt", path, axes=[3], **STATED.get(target, {}))
    except rc.RefusedError as error:
        assert target == "json" and "projection" in str(error), error
        return
    run = RUNS[path.suffix[1:]](path)
    for shape in ((2, 6, 3), (1, 9, 3), (3, 1, 3)):
        x = torch.randn(*shape)
        y, (h, c) = lstm(x)
        expected = [y, h.swapaxes(0, 1), c.swapaxes(0, 1)] if target == "param" else [y, h, c]
        for output, truth in zip(run([x.numpy()]), expected, strict=True):
            np.testing.assert_allclose(output, truth.detach().numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("target", ["onnx", "xml", "tflite"])
def test_masked_layers_whose_cells_are_no_operation(tmp_path: Path, target: str) -> None:
    """Steps that do not count leave the states as they are, in either direction, and so do those of an encoder whose states are read."""
    k = needed("keras", "keras")
    words, frames = k.Input((None,), dtype="int32"), k.Input((None, 2))
    x = k.layers.Embedding(9, 5, mask_zero=True)(words)
    x = k.layers.Bidirectional(k.layers.LSTM(4, activation="silu", return_sequences=True))(x)
    x, h, c = k.layers.LSTM(3, recurrent_activation="hard_sigmoid", return_sequences=True, return_state=True)(x)
    decoded = k.layers.LSTM(3, return_sequences=True)(frames, initial_state=[h, c])
    model = k.Model([words, frames], [x, decoded])
    fill(model, 3)
    random = np.random.default_rng(6)
    calls = [[random.integers(0, 3, (batch, time)).astype(np.int32), values(batch, 4, 2)] for batch, time in ((3, 5), (1, 9), (2, 1))]
    agrees(model, calls, tmp_path, target)


def test_code_is_not_written_for_cells_that_layers_lack(tmp_path: Path) -> None:
    stack = random_stack(Sizes("lstm", 3, 5, 1, 1, parts=frozenset({"input", "recurrent", "input_bias", "peephole"})), 7, np.float32)
    rc.save(checkpoint(stack.replace(name="rnn")), tmp_path / "source.onnx", "onnx")
    with pytest.raises(rc.RefusedError, match=r"a cell with peepholes.*Write the model as a file"):
        rc.scaffold(tmp_path / "source.onnx", "pytorch")


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
@pytest.mark.parametrize("target", ["onnx", "xml", "tflite", "param"])
def test_a_model_without_weights_is_proved_and_its_lines_run(tmp_path: Path, target: str) -> None:
    """Its file of numbers is empty, and its axes have names with a comma."""
    torch = needed("torch", "torch")

    class Plain(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return torch.tanh(x) + x

    torch.jit.trace(Plain(), torch.zeros(2, 3, 4)).save(str(tmp_path / "m.pt"))
    done = rc.export_model(tmp_path / "m.pt", tmp_path / f"m.{target}", axes=3, verify=True)
    assert done.equal
    names: dict[str, Any] = {}
    exec("\n".join(done.recipe), names)
    assert names["x"].ndim == names["output"].ndim == (2 if target == "param" else 3)
    assert not rc.load(tmp_path / f"m.{target}").layers


@pytest.mark.parametrize("target", RUN_THERE)
def test_a_shape_is_stated_as_far_as_it_is_known(tmp_path: Path, target: str) -> None:
    """For each step and for all of them: TensorFlow.js takes what -1 stands for as unknown, and builds no weights upon it."""
    k = needed("keras", "keras")
    a = k.layers

    def check(case: tuple[tuple[int, ...], int | None, bool]) -> None:
        sizes, time, each_step = case
        shape = [a.TimeDistributed(a.Reshape(sizes)), a.TimeDistributed(a.Flatten())] if each_step else [a.Reshape((time or -1, 16))]
        model = k.Sequential([k.Input((time, 6, 3)), a.TimeDistributed(a.Conv1D(4, 3)), *shape, a.LSTM(2)])
        fill(model, 3)
        agrees(model, [[values(2, 5, 6, 3)]], tmp_path, target)

    each(product(((2, -1), (-1, 4), (-1,), (-1, 2, 2)), (None, 5), (False, True)), check)


@pytest.mark.parametrize("target", [target for target in TARGETS if target != "json"])
@pytest.mark.parametrize("over", ["amax", "mean", "sum"])
@pytest.mark.filterwarnings("ignore:::")
def test_what_is_left_of_a_convolution_is_scaled_channel_by_channel(tmp_path: Path, target: str, over: str) -> None:
    """A norm behind a global pool: OpenVINO's plugin for the CPU takes the numbers of other channels from it, as others write it."""
    torch = needed("torch", "torch")

    class Pooled(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.norm = torch.nn.Conv1d(6, 5, 3, padding=1), torch.nn.BatchNorm1d(5)

        def forward(self, x: Any) -> Any:
            y = self.conv(x.transpose(1, 2)).transpose(1, 2)
            return self.norm(getattr(y, over)(1))

    torch.manual_seed(3)
    module = Pooled().eval()
    for weight in (*module.norm.parameters(), module.norm.running_mean, module.norm.running_var):
        torch.nn.init.uniform_(weight, 0.5, 3.0)
    x = torch.randn(3, 12, 6)
    with torch.no_grad():
        truth = module(x).numpy()
    torch.jit.trace(module, x).save(str(tmp_path / "m.pt"))
    path = tmp_path / f"m.{'json' if target in STATED else target}"
    rc.export_model(tmp_path / "m.pt", path, **STATED.get(target, {}))
    assert np.abs(RUNS[path.suffix[1:]](path)([x.numpy()])[0] - truth).max() < 1e-4


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
@pytest.mark.parametrize("target", ["onnx", "xml", "tflite", "h"])
def test_pools_whose_windows_may_be_longer_than_their_input(tmp_path: Path, target: str) -> None:
    """Of torch, whose last window may reach behind the input: over a length that is stated, and over one that is open."""
    torch = needed("torch", "torch")
    random = np.random.default_rng(3)

    def check(case: tuple[int, int, int, int, bool]) -> None:
        kernel, stride, dilation, length, stated = case
        pool = torch.nn.MaxPool1d(kernel, stride, int(random.integers(kernel // 2 + 1)), dilation, ceil_mode=True)
        x = values(2, 3, length)
        try:
            truth = pool(torch.from_numpy(x)).numpy()
        except RuntimeError as error:
            raise NotComparedError(str(error)) from None  # no window
        if not np.isfinite(truth).all():
            raise NotComparedError("a window of padding alone, whose largest number is minus infinity or the type's lowest")
        torch.jit.script(pool).save(str(tmp_path / "m.pt"))
        try:
            rc.export_model(tmp_path / "m.pt", tmp_path / f"m.{target}", axes=[(None, 3, length if stated else None)], force=True)
        except rc.RefusedError as error:
            assert error.feature.startswith(("a pool", "ceil_mode")), error
            raise NotComparedError(str(error)) from None
        (output,) = RUNS[target](tmp_path / f"m.{target}")([x])
        np.testing.assert_array_equal(output, truth)

    each(drawn(product((1, 2, 3), (1, 2, 3), (1, 2, 3), range(1, 7), (False, True)), 60, f"pools for {target}"), check)
