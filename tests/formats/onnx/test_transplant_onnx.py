"""ONNX models give their weights to live models and take them, and both run; what does not go changes nothing."""

from __future__ import annotations

import dataclasses
import functools
import io
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import rnnconvert as rc
from rnnconvert.core.arrays import Array
from rnnconvert.formats.onnx import layouts as formats
from rnnconvert.formats.onnx.proto import write as onnx_write
from rnnconvert.language.registry import surroundings
from rnnconvert.language.surroundings import SurroundingTensor
from rnnconvert.models import flattening
from rnnconvert.models import model as transplants
from rnnconvert.models.model import Unit
from rnnconvert.models.readers import model_of
from rnnconvert.running.child import missing
from tests.helpers.judging import close
from tests.helpers.onnx_graphs import in_onnxruntime
from tests.helpers.requirements import need, needed
from tests.helpers.whole_models import in_keras, need_both, randomise, sequential

# Frameworks warn about their own future while they run.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")


def need_torch() -> None:
    need("torch", missing(["torch"]))
    need("onnxruntime", missing(["onnxruntime"]))


def run(model: onnx.ModelProto | Path, *inputs: Array) -> Array:
    """What onnxruntime makes of inputs, given in the order of the model's."""
    return np.asarray(in_onnxruntime(model, *inputs)[0])


def in_torch(module: Any, x: Array) -> Array:
    import torch

    with torch.no_grad():
        return np.asarray(module(torch.from_numpy(x)).numpy())


def renew(module: Any, seed: int) -> Any:
    """Numbers that are not round in every parameter and statistic; variances are positive."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    for name, tensor in module.state_dict().items():
        if tensor.is_floating_point():
            values = torch.randn(tensor.shape, generator=generator) * 0.4
            tensor.copy_(values.abs() + 0.5 if name.endswith("running_var") else values)
    return module.eval()


@functools.cache
def _all_layers() -> Any:
    """A torch class with one of each layer, in an order in which data goes through all."""
    from torch import nn

    class Everything(nn.Module):
        def __init__(self, batch_norm: bool, rms_norm: bool) -> None:
            super().__init__()
            self.table = nn.Embedding(11, 6)
            self.first = nn.Conv1d(6, 8, 3, padding=1)
            self.each = nn.Conv1d(8, 8, 3, groups=8)
            if batch_norm:
                self.batch = nn.BatchNorm1d(8)
            self.instance = nn.InstanceNorm1d(8, affine=True)
            self.group = nn.GroupNorm(2, 8)
            self.slope = nn.PReLU(8)
            self.wider = nn.ConvTranspose1d(8, 8, 3)
            self.layer = nn.LayerNorm(8)
            if rms_norm:
                self.rms = nn.RMSNorm(8)
            self.gru = nn.GRU(8, 5, num_layers=3, bidirectional=True, batch_first=True)
            self.lstm = nn.LSTM(10, 4, batch_first=True)
            self.inner = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4, bias=False))
            self.head = nn.Linear(4, 3)

        def forward(self, x: Any) -> Any:
            y = self.table(x).transpose(1, 2)
            y = self.each(self.first(y).relu())
            y = self.batch(y) if hasattr(self, "batch") else y
            y = self.wider(self.slope(self.group(self.instance(y))))
            y = self.layer(y.transpose(1, 2))
            y = self.rms(y) if hasattr(self, "rms") else y
            y, _ = self.gru(y)
            y, _ = self.lstm(y)
            return self.head(self.inner(y))

    return Everything


TOKENS = np.random.default_rng(3).integers(0, 11, (2, 7))


@dataclasses.dataclass(frozen=True, eq=False)
class Exporter:
    """A way of torch's to write ONNX.

    batch_norm  whether a batch normalisation stays a node of its own, and is not made part of a convolution
    """

    name: str
    batch_norm: bool
    rms_norm: bool
    options: Mapping[str, Any]

    def __str__(self) -> str:
        return self.name

    def module(self, seed: int) -> Any:
        return renew(_all_layers()(self.batch_norm, self.rms_norm), seed)


EXPORTERS = (
    Exporter("script", False, False, {"dynamo": False, "opset_version": 17}),
    Exporter("script_13", False, False, {"dynamo": False, "opset_version": 13}),
    Exporter("script_unfolded", True, False, {"dynamo": False, "opset_version": 17, "do_constant_folding": False}),
    Exporter("dynamo", False, True, {"dynamo": True, "opset_version": 23, "verbose": False}),
)


@functools.cache
def exported(exporter: Exporter, seed: int) -> bytes:
    import torch

    keep = {"training": torch.onnx.TrainingMode.PRESERVE} if exporter.batch_norm else {}
    return export(exporter.module(seed), TOKENS, **exporter.options, **keep)


def export(module: Any, x: Array, **options: Any) -> bytes:
    import torch

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if options.pop("dynamo"):
            program = torch.onnx.export(module, (torch.from_numpy(x),), dynamo=True, **options)
            return bytes(program.model_proto.SerializeToString())
        file = io.BytesIO()
        torch.onnx.export(module, (torch.from_numpy(x),), file, dynamo=False, **options)
        return file.getvalue()


@pytest.fixture(params=EXPORTERS, ids=str)
def exporter(request: pytest.FixtureRequest) -> Exporter:
    need_torch()
    parameter: Exporter = request.param
    if parameter.options["dynamo"]:
        need("torch", missing(["onnxscript"]))
    return parameter


@pytest.fixture
def script() -> Exporter:
    need_torch()
    return EXPORTERS[0]


# PyTorch --------------------------------------------------------------------------------------------


def test_an_onnx_file_fills_a_torch_module(exporter: Exporter, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(exported(exporter, 1))
    module = exporter.module(2)
    expected = run(path, TOKENS)
    assert not close(in_torch(module, TOKENS), expected)
    report = rc.load_into(module, path)
    assert close(in_torch(module, TOKENS), expected)
    assert report.kept == report.left == ()


def test_a_torch_module_fills_an_onnx_model(exporter: Exporter) -> None:
    model = onnx.ModelProto.FromString(exported(exporter, 1))
    types = [(tensor.name, tensor.data_type, tuple(tensor.dims)) for tensor in model.graph.initializer]
    module = exporter.module(2)
    expected = in_torch(module, TOKENS)
    assert not close(run(model, TOKENS), expected)
    report = rc.load_into(model, module)
    assert close(run(model, TOKENS), expected)
    assert report.kept == report.left == () and report.model is model
    assert types == [(tensor.name, tensor.data_type, tuple(tensor.dims)) for tensor in model.graph.initializer]


def test_layers_bear_the_names_of_the_modules(exporter: Exporter) -> None:
    model = model_of(onnx.ModelProto.FromString(exported(exporter, 1)))
    plain = [unit.name for unit in model.units if unit.stack is None]
    modules = exporter.module(1).named_modules()
    expected = [name for name, submodule in modules if any(True for _ in submodule.parameters(recurse=False)) and "M" not in name]
    assert plain == [name for name in expected if name not in ("gru", "lstm")]
    assert [unit.called for unit in model.units if unit.stack is not None] == ["gru[0]", "gru[1]", "gru[2]", "lstm"]
    assert model.flow


def test_recurrent_layers_bear_the_names_that_are_printed(exporter: Exporter, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(exported(exporter, 1))
    assert [unit.name for unit in model_of(path).units if unit.stack is not None] == list(rc.load(path).layers)


@pytest.mark.parametrize("external", [False, True])
def test_a_file_takes_weights(script: Exporter, external: bool, tmp_path: Path) -> None:
    import torch

    into, output = tmp_path / "into.onnx", tmp_path / "output.onnx"
    onnx.save(
        onnx.ModelProto.FromString(exported(script, 1)), into, save_as_external_data=external,
        location="into.data", size_threshold=0,
    )  # fmt: skip
    before = into.read_bytes()
    module = script.module(2)
    torch.save(module.state_dict(), tmp_path / "source.pt")
    rc.transplant_file(tmp_path / "source.pt", into, output)
    assert close(run(output, TOKENS), in_torch(module, TOKENS))
    assert into.read_bytes() == before


def test_an_unfolded_file_keeps_what_is_no_weight(tmp_path: Path) -> None:
    """Constants in nodes, large ones too, stay as they are in the file that is written."""
    need("onnxruntime", missing(["onnxruntime"]))
    large = np.random.default_rng(0).normal(size=(4, 600)).astype(np.float32)
    shift = helper.make_node("Constant", [], ["shift"], value=numpy_helper.from_array(large))
    nodes = [shift, helper.make_node("MatMul", ["x", "w"], ["y"], "net/head/MatMul"), helper.make_node("Add", ["y", "shift"], ["z"])]
    model = graph(nodes, {"w": np.ones((3, 600), np.float32)}, {"x": (4, 3)}, {"z": (4, 600)})
    onnx.save(model, tmp_path / "into.onnx")
    weight = np.random.default_rng(1).normal(size=(3, 600)).astype(np.float32)
    other = graph(nodes, {"w": weight}, {"x": (4, 3)}, {"z": (4, 600)})
    onnx.save(other, tmp_path / "source.onnx")
    rc.transplant_file(tmp_path / "source.onnx", tmp_path / "into.onnx", tmp_path / "output.onnx")
    x = np.random.default_rng(2).normal(size=(4, 3)).astype(np.float32)
    assert close(run(tmp_path / "output.onnx", x), x @ weight + large)


def test_a_model_of_onnx_ir_is_filled_in_place(script: Exporter) -> None:
    onnx_ir = needed("onnxruntime", "onnx_ir")
    model = onnx_ir.from_proto(onnx.ModelProto.FromString(exported(script, 1)))
    module = script.module(2)
    report = rc.load_into(model, module)
    assert report.model is model
    assert close(run(onnx_ir.to_proto(model), TOKENS), in_torch(module, TOKENS))


def test_a_wrong_orientation_would_be_seen(script: Exporter, monkeypatch: pytest.MonkeyPatch) -> None:
    """The square matrix of a MatMul, taken for one with a row for each output, is another function."""
    wrong = dataclasses.replace(formats.MATMUL, tensors=(SurroundingTensor("B", "weight"), *formats.MATMUL.tensors[1:]))
    monkeypatch.setattr(
        transplants, "surroundings", lambda name: [wrong if kind is formats.MATMUL else kind for kind in surroundings(name)]
    )
    model = onnx.ModelProto.FromString(exported(script, 1))
    module = script.module(2)
    rc.load_into(model, module, {"inner.0": "inner.0", "inner.2": "inner.2"}, strict=False)
    assert not close(run(model, TOKENS), in_torch(module, TOKENS))


def test_modules_of_the_same_sizes_are_known_by_their_names() -> None:
    """Two recurrent layers of the same sizes, whose nodes an exporter called after their modules."""
    need_torch()
    from torch import nn

    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = nn.GRU(4, 4, num_layers=2)
            self.decoder = nn.GRU(4, 4, num_layers=2)

        def forward(self, x: Any) -> Any:
            return self.decoder(self.encoder(x)[0])[0]

    x = np.random.default_rng(0).normal(size=(3, 1, 4)).astype(np.float32)
    for mapping in (None, {"decoder": "decoder", "encoder": "encoder"}):
        model = onnx.ModelProto.FromString(export(renew(Two(), 1), x, dynamo=False, opset_version=17))
        module = renew(Two(), 2)
        report = rc.load_into(model, module, mapping)
        assert close(run(model, x), in_torch(module, x))
        assert {entry.confidence for entry in report.filled} == ({"told"} if mapping else {"names"})


@pytest.mark.parametrize("dynamo", [False, True])
def test_normalisations_without_scales_take_none(dynamo: bool) -> None:
    """An exporter writes ones and zeros where a layer has no scale and no shift: these are no weights."""
    need_torch()
    if dynamo:
        need("torch", missing(["onnxscript"]))
    from torch import nn

    def module(seed: int) -> Any:
        norms = nn.InstanceNorm1d(4, affine=False), nn.BatchNorm1d(4, affine=False), nn.LayerNorm(5, bias=False)
        return renew(nn.Sequential(nn.ReLU(), nn.BatchNorm1d(4), *norms, nn.Conv1d(4, 3, 2)), seed)

    x = np.random.default_rng(0).normal(size=(2, 4, 5)).astype(np.float32)
    options = {"verbose": False, "opset_version": 18} if dynamo else {"opset_version": 17}
    model = onnx.ModelProto.FromString(export(module(1), x, dynamo=dynamo, **options))
    source = module(2)
    rc.load_into(model, source)
    assert close(run(model, x), in_torch(source, x))
    target = module(3)
    rc.load_into(target, model)
    assert close(in_torch(target, x), run(model, x))


@pytest.mark.parametrize("dtype", ["float16", "float64", "bfloat16"])
def test_the_target_keeps_its_element_type(dtype: str) -> None:
    need_torch()
    import ml_dtypes
    from torch import nn

    element_type = np.dtype(getattr(ml_dtypes, dtype) if dtype == "bfloat16" else dtype)
    kind = {"float16": TensorProto.FLOAT16, "float64": TensorProto.DOUBLE, "bfloat16": TensorProto.BFLOAT16}[dtype]
    model = dense()
    for tensor in model.graph.initializer:
        tensor.CopyFrom(helper.make_tensor(tensor.name, kind, tensor.dims, numpy_helper.to_array(tensor).ravel()))
    module = renew(nn.Sequential(nn.Linear(3, 3)), 1)
    report = rc.load_into(model, module)
    weight = module[0].weight.detach().numpy().T.astype(element_type)
    assert model.graph.initializer[0].data_type == kind
    assert np.array_equal(model_of(model).arrays["w"], weight)
    assert report.exact == (dtype == "float64")


def test_onnx_is_not_written_as_text(tmp_path: Path) -> None:
    onnx.save(dense(), tmp_path / "a.onnx")
    with pytest.raises(rc.UsageError, match="binary form"):
        rc.transplant_file(tmp_path / "a.onnx", tmp_path / "a.onnx", tmp_path / "b.onnxtxt")
    assert not (tmp_path / "b.onnxtxt").exists()


@pytest.mark.parametrize("dynamo", [False, True])
@pytest.mark.parametrize(
    "order, shape",
    [("channels_first", lambda y: y.flatten(1)), ("channels_first", lambda y: y.view(y.size(0), -1)),
     ("channels_last", lambda y: y.permute(0, 2, 3, 1).reshape(y.shape[0], 16)),
     (None, lambda y: y.permute(0, 3, 2, 1).flatten(1))],
    ids=["flatten", "view", "last", "other"],
)  # fmt: skip
def test_the_order_of_a_flattened_convolution_is_seen(dynamo: bool, order: str | None, shape: Callable[[Any], Any]) -> None:
    need_torch()
    if dynamo:
        need("torch", missing(["onnxscript"]))
    from torch import nn

    class Flat(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.pool, self.head = nn.Conv2d(2, 4, 3), nn.MaxPool2d(2), nn.Linear(16, 3)

        def forward(self, x: Any) -> Any:
            return self.head(shape(self.pool(self.conv(x)).relu()))

    options = {"verbose": False} if dynamo else {}
    content = export(Flat(), np.zeros((2, 2, 6, 6), np.float32), dynamo=dynamo, **options)
    head = model_of(onnx.ModelProto.FromString(content)).unit("head")
    assert head is not None and (head.reads.order if head.reads else None) == order


# Keras ----------------------------------------------------------------------------------------------


def graph(
    nodes: list[onnx.NodeProto], arrays: Mapping[str, Array], inputs: Mapping[str, tuple[Any, ...]],
    outputs: Mapping[str, tuple[Any, ...]], opset: int = 17,
) -> onnx.ModelProto:  # fmt: skip
    """A model of some nodes and initializers."""
    built = helper.make_graph(
        nodes, "made",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs.items()],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in outputs.items()],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in arrays.items()],
    )  # fmt: skip
    return helper.make_model(built, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def images(channels: str) -> onnx.ModelProto:
    """A convolution, flattened for a dense layer, named as tf2onnx names it; inputs are (batch, 6, 6, 2)."""
    generator = np.random.default_rng(5)
    arrays = {
        "kernel": generator.normal(size=(4, 2, 3, 3)), "bias": generator.normal(size=4),
        "const_fold_1": generator.normal(size=(144, 5)), "head_bias": generator.normal(size=5),
    }  # fmt: skip
    last = [helper.make_node("Transpose", ["r"], ["t"], perm=[0, 2, 3, 1])] if channels == "channels_last" else []
    nodes = [
        helper.make_node("Transpose", ["x"], ["n"], perm=[0, 3, 1, 2]),
        helper.make_node("Conv", ["n", "kernel", "bias"], ["c"], "net/conv2d/Conv2D", kernel_shape=[3, 3], pads=[1] * 4),
        helper.make_node("Relu", ["c"], ["r"]),
        *last,
        helper.make_node("Reshape", ["t" if last else "r", "shape"], ["f"], "net/flatten/Reshape"),
        helper.make_node("MatMul", ["f", "const_fold_1"], ["m"], "net/dense_1/MatMul"),
        helper.make_node("Add", ["head_bias", "m"], ["y"], "net/dense_1/BiasAdd"),
    ]
    plain = {name: array.astype(np.float32) for name, array in arrays.items()} | {"shape": np.array([-1, 144])}
    return graph(nodes, plain, {"x": ("batch", 6, 6, 2)}, {"y": ("batch", 5)})


def keras_images() -> Any:
    need_both()
    need("onnxruntime", missing(["onnxruntime"]))
    model = sequential(
        lambda layers: layers.Conv2D(4, 3, padding="same", activation="relu"),
        lambda layers: layers.Flatten(),
        lambda layers: layers.Dense(5),
        shape=(6, 6, 2),
    )
    import keras

    built = model(keras.layers)
    randomise(built, 8)
    return built


IMAGES = np.random.default_rng(6).normal(size=(3, 6, 6, 2)).astype(np.float32)


@pytest.mark.parametrize("channels", ["channels_first", "channels_last"])
def test_keras_fills_onnx_that_flattens_either_way(channels: str) -> None:
    model, target = keras_images(), images(channels)
    expected = in_keras(model, IMAGES)
    assert not close(run(target, IMAGES), expected)
    report = rc.load_into(target, model)
    assert close(run(target, IMAGES), expected)
    assert any("columns" in note for note in report.notes) == (channels == "channels_first")


@pytest.mark.parametrize("channels", ["channels_first", "channels_last"])
def test_onnx_that_flattens_either_way_fills_keras(channels: str) -> None:
    model, source = keras_images(), images(channels)
    expected = run(source, IMAGES)
    assert not close(in_keras(model, IMAGES), expected)
    rc.load_into(model, source)
    assert close(in_keras(model, IMAGES), expected)


def test_a_wrong_order_of_columns_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    model, target = keras_images(), images("channels_first")
    monkeypatch.setattr(flattening.Flattening, "columns", lambda *arguments: None)
    rc.load_into(target, model)
    assert not close(run(target, IMAGES), in_keras(model, IMAGES))


def test_keras_weights_of_recurrent_layers_go_through_onnx() -> None:
    """A Keras model, and the ONNX nodes of the same architecture, both ways."""
    need_both()
    need("onnxruntime", missing(["onnxruntime"]))
    import keras

    model = sequential(
        lambda layers: layers.Bidirectional(layers.LSTM(3, return_sequences=True)),
        lambda layers: layers.LayerNormalization(epsilon=1e-5),
        lambda layers: layers.Dense(2),
        shape=(5, 4),
    )(keras.layers)
    randomise(model, 1)
    target = tagger()
    x = np.random.default_rng(0).normal(size=(2, 5, 4)).astype(np.float32)
    expected = in_keras(model, x)
    rc.load_into(target, model)
    assert close(run(target, x), expected)
    randomise(model, 2)
    rc.load_into(model, target)
    assert close(in_keras(model, x), expected)


def tagger() -> onnx.ModelProto:
    generator = np.random.default_rng(9)
    shapes = {"W": (2, 12, 4), "R": (2, 12, 3), "B": (2, 24), "g": (6,), "s": (6,), "d": (2, 6), "e": (2,)}
    arrays: dict[str, Array] = {name: generator.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    nodes = [
        helper.make_node("Transpose", ["x"], ["xt"], perm=[1, 0, 2]),
        helper.make_node("LSTM", ["xt", "W", "R", "B"], ["h"], "rnn", hidden_size=3, direction="bidirectional"),
        helper.make_node("Transpose", ["h"], ["ht"], perm=[2, 0, 1, 3]),
        helper.make_node("Reshape", ["ht", "shape"], ["hr"]),
        helper.make_node("LayerNormalization", ["hr", "g", "s"], ["n"], "norm"),
        helper.make_node("Transpose", ["d"], ["dt"]),
        helper.make_node("MatMul", ["n", "dt"], ["m"], "head/MatMul"),
        helper.make_node("Add", ["m", "e"], ["y"]),
    ]
    return graph(nodes, arrays | {"shape": np.array([0, 0, 6])}, {"x": (None, None, 4)}, {"y": (None, None, 2)})


# What does not go -----------------------------------------------------------------------------------


Change = Callable[[onnx.ModelProto], None]


def computed(model: onnx.ModelProto) -> None:
    """The matrix is twice what is stored."""
    model.graph.initializer.append(numpy_helper.from_array(np.full((), 2, np.float32), "two"))
    model.graph.node.insert(0, helper.make_node("Mul", ["w", "two"], ["w2"]))
    model.graph.node[1].input[1] = "w2"


def cast(model: onnx.ModelProto) -> None:
    """The matrix is stored in another type."""
    model.graph.node.insert(0, helper.make_node("Cast", ["w"], ["w2"], to=TensorProto.FLOAT))
    model.graph.node[1].input[1] = "w2"


def repeated(model: onnx.ModelProto) -> None:
    """Every column of the matrix is the one that is stored."""
    model.graph.initializer[0].CopyFrom(numpy_helper.from_array(np.arange(3, dtype=np.float32).reshape(3, 1), "w"))
    model.graph.node.insert(0, helper.make_node("Concat", ["w", "w", "w"], ["w2"], axis=1))
    model.graph.node[1].input[1] = "w2"


def shared(model: onnx.ModelProto) -> None:
    """The matrix is added to something, too."""
    model.graph.node.append(helper.make_node("Add", ["w", "w"], ["v"]))
    model.graph.output.append(helper.make_tensor_value_info("v", TensorProto.FLOAT, (3, 3)))


def given_out(model: onnx.ModelProto) -> None:
    """The matrix is an output of the model."""
    model.graph.output.append(helper.make_tensor_value_info("w", TensorProto.FLOAT, (3, 3)))


def dense(change: Change | None = None) -> onnx.ModelProto:
    nodes = [helper.make_node("MatMul", ["x", "w"], ["m"], "fc/MatMul"), helper.make_node("Add", ["b", "m"], ["y"])]
    arrays = {"w": np.arange(9, dtype=np.float32).reshape(3, 3), "b": np.ones(3, np.float32)}
    model = graph(nodes, arrays, {"x": (None, 3)}, {"y": (None, 3)})
    if change is not None:
        change(model)
    return model


@pytest.mark.parametrize(
    "change, words",
    [(computed, "nodes of the model compute it"), (cast, "nodes of the model compute it"),
     (repeated, "nodes of the model compute it"),
     (shared, "a node Add '' reads it too"), (given_out, "it is an output of main")],
)  # fmt: skip
def test_weights_that_others_depend_on_are_not_written(change: Change, words: str) -> None:
    need_torch()
    from torch import nn

    model = dense(change)
    before = model.SerializeToString(deterministic=True)
    with pytest.raises(rc.TransplantError, match=words):
        rc.load_into(model, renew(nn.Sequential(nn.Linear(3, 3)), 1))
    assert model.SerializeToString(deterministic=True) == before


@pytest.mark.parametrize("change", [computed, repeated, shared, given_out, None])
def test_the_same_weights_are_a_source(change: Change | None) -> None:
    need_torch()
    from torch import nn

    model = dense(change)
    module = nn.Sequential(nn.Linear(3, 3))
    rc.load_into(module, model)
    x = np.random.default_rng(0).normal(size=(2, 3)).astype(np.float32)
    assert close(in_torch(module, x), run(model, x))


def test_other_sizes_and_what_is_ambiguous_change_nothing() -> None:
    need_torch()
    from torch import nn

    model = dense()
    before = model.SerializeToString(deterministic=True)
    with pytest.raises(rc.TransplantError, match="nothing in the source fits 'fc'"):
        rc.load_into(model, renew(nn.Sequential(nn.Linear(3, 4)), 1))

    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.left, self.right = nn.Linear(3, 3), nn.Linear(3, 3)

    with pytest.raises(rc.TransplantError, match="may be filled from 'left', 'right'"):
        rc.load_into(model, renew(Two(), 1))
    assert model.SerializeToString(deterministic=True) == before


def test_a_missing_bias_is_neutral_or_refused() -> None:
    need_torch()
    from torch import nn

    def without(model: onnx.ModelProto) -> None:
        del model.graph.node[1], model.graph.initializer[1]
        model.graph.node[0].output[0] = "y"

    model = dense(without)
    with pytest.raises(rc.TransplantError, match="made without one"):
        rc.load_into(model, renew(nn.Sequential(nn.Linear(3, 3)), 1))
    full = dense()
    module = renew(nn.Sequential(nn.Linear(3, 3, bias=False)), 1)
    rc.load_into(full, module)
    x = np.random.default_rng(0).normal(size=(2, 3)).astype(np.float32)
    assert close(run(full, x), in_torch(module, x))


def test_what_fails_halfway_leaves_all_as_it_was(script: Exporter, monkeypatch: pytest.MonkeyPatch) -> None:
    model = onnx.ModelProto.FromString(exported(script, 1))
    before = model.SerializeToString(deterministic=True)
    right, done = onnx_write.put, []

    def put(tensor: onnx.TensorProto, array: Array) -> None:
        done.append(tensor)
        if len(done) == 4:
            raise KeyboardInterrupt
        right(tensor, array)

    monkeypatch.setattr(onnx_write, "put", put)
    with pytest.raises(KeyboardInterrupt):
        rc.load_into(model, script.module(2))
    assert model.SerializeToString(deterministic=True) == before


def test_numbers_that_were_not_loaded_are_asked_for(script: Exporter, tmp_path: Path) -> None:
    model = onnx.ModelProto.FromString(exported(script, 1))
    onnx.save(model, tmp_path / "m.onnx", save_as_external_data=True, location="m.data", size_threshold=0)
    with pytest.raises(rc.UsageError, match=r"onnx\.load"):
        rc.load_into(onnx.load(tmp_path / "m.onnx", load_external_data=False), script.module(2))


# One array in several places ------------------------------------------------------------------------


def tied() -> onnx.ModelProto:
    """A table that is looked up, and transposed makes the logits."""
    nodes = [
        helper.make_node("Cast", ["x"], ["i"], to=TensorProto.INT64),
        helper.make_node("Gather", ["table", "i"], ["e"], "/emb/Gather"),
        helper.make_node("Transpose", ["table"], ["t"], perm=[1, 0]),
        helper.make_node("MatMul", ["e", "t"], ["y"], "/out/MatMul"),
    ]
    return graph(nodes, {"table": np.eye(7, 4, dtype=np.float32)}, {"x": (None,)}, {"y": (None, 7)})


@pytest.mark.parametrize("same", [True, False])
def test_tied_weights_take_what_is_tied(same: bool) -> None:
    need_torch()
    from torch import nn

    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.emb, self.out = nn.Embedding(7, 4), nn.Linear(4, 7, bias=False)
            if same:
                self.out.weight = self.emb.weight

        def forward(self, x: Any) -> Any:
            return self.out(self.emb(x.long()))

    model, module = tied(), renew(Tied(), 3)
    before = model.SerializeToString(deterministic=True)
    x = np.array([0, 3, 6], np.float32)
    if same:
        rc.load_into(model, module)
        assert close(run(model, x), in_torch(module, x))
        return
    with pytest.raises(rc.TransplantError, match="are one array in the target"):
        rc.load_into(model, module)
    assert model.SerializeToString(deterministic=True) == before


def test_a_layer_that_is_called_twice_is_one() -> None:
    need_torch()
    from torch import nn

    nodes = [helper.make_node("MatMul", ["x", "w"], ["m"], "a/MatMul"), helper.make_node("MatMul", ["m", "w"], ["y"], "b/MatMul")]
    model = graph(nodes, {"w": np.eye(3, dtype=np.float32)}, {"x": (None, 3)}, {"y": (None, 3)})
    module = renew(nn.Sequential(nn.Linear(3, 3, bias=False)), 1)
    rc.load_into(model, module)
    x = np.random.default_rng(0).normal(size=(2, 3)).astype(np.float32)
    assert close(run(model, x), in_torch(nn.Sequential(module, module), x))


def test_a_function_that_is_called_often_has_its_weights_once() -> None:
    """A function's own constants are those of each of its calls; what it is handed is the caller's."""
    need_torch()
    from torch import nn

    inside = numpy_helper.from_array(np.eye(3, dtype=np.float32))
    body = [
        helper.make_node("Constant", [], ["w"], value=inside),
        helper.make_node("MatMul", ["a", "w"], ["m"], "own/MatMul"),
        helper.make_node("MatMul", ["m", "v"], ["b"], "handed/MatMul"),
    ]
    opset = helper.make_opsetid("", 17)
    function = helper.make_function("made", "block", ["a", "v"], ["b"], body, [opset])
    nodes = [
        helper.make_node("block", [before, weight], [after], domain="made")
        for before, weight, after in (("x", "one", "k"), ("k", "two", "l"), ("l", "three", "z"))
    ]
    arrays = {name: np.eye(3, dtype=np.float32) for name in ("one", "two", "three")}
    model = graph(nodes, arrays, {"x": (None, 3)}, {"z": (None, 3)})
    model.functions.append(function)
    model.opset_import.append(helper.make_opsetid("made", 1))

    def layer() -> Any:
        return nn.Linear(3, 3, bias=False)

    shared = layer()
    module = renew(nn.Sequential(shared, layer(), shared, layer(), shared, layer()), 1)
    names = [unit.name for unit in model_of(model).units]
    rc.load_into(model, module, dict(zip(names, "012345", strict=True)))
    x = np.random.default_rng(0).normal(0, 100, (2, 3)).astype(np.float32)
    assert close(run(model, x), in_torch(module, x))
    before = model.SerializeToString(deterministic=True)
    with pytest.raises(rc.TransplantError, match="are one array in the target"):
        other = renew(nn.Sequential(*(layer() for _ in range(6))), 2)
        rc.load_into(model, other, dict(zip(names, "012345", strict=True)))
    assert model.SerializeToString(deterministic=True) == before


def test_layers_in_a_branch_are_filled() -> None:
    need_torch()
    from torch import nn

    def branch(name: str, weight: Array) -> onnx.GraphProto:
        output = [helper.make_tensor_value_info(f"{name}_y", TensorProto.FLOAT, (None, 3))]
        node = helper.make_node("MatMul", ["x", "w"], [f"{name}_y"], f"{name}/MatMul")
        return helper.make_graph([node], name, [], output, [numpy_helper.from_array(weight, "w")])

    choice = helper.make_node("If", ["yes"], ["y"], "choice", then_branch=branch("first", np.eye(3, dtype=np.float32)),
                              else_branch=branch("second", np.ones((3, 3), np.float32)))  # fmt: skip
    model = graph([choice], {"yes": np.array(True)}, {"x": (None, 3)}, {"y": (None, 3)})
    units = model_of(model)
    assert sorted(unit.name for unit in units.units) == ["first", "second"] and not units.flow

    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False)

    module = renew(Two(), 1)
    rc.load_into(model, module)
    x = np.random.default_rng(0).normal(size=(2, 3)).astype(np.float32)
    assert close(run(model, x), in_torch(module.first, x))


# How layers are set ---------------------------------------------------------------------------------


def only(model: onnx.ModelProto) -> Unit:
    (unit,) = model_of(model).units
    return unit


@pytest.mark.parametrize(
    "attributes, padding",
    [({}, (0, 0)), ({"pads": [1, 2, 1, 2]}, (1, 2)), ({"pads": [0, 0, 1, 1]}, ((0, 1), (0, 1))),
     ({"auto_pad": "SAME_UPPER"}, "same"), ({"auto_pad": "SAME_LOWER"}, "same_lower"), ({"auto_pad": "VALID"}, "valid")],
)  # fmt: skip
def test_how_a_convolution_pads(attributes: dict[str, Any], padding: object) -> None:
    node = helper.make_node("Conv", ["x", "w"], ["y"], "c", **attributes)
    shape = (None, None, None, None)
    unit = only(graph([node], {"w": np.ones((4, 2, 3, 3), np.float32)}, {"x": shape}, {"y": shape}))
    assert unit.facts == {"stride": (1, 1), "dilation": (1, 1), "groups": 1, "padding": padding}


def test_what_is_not_said_is_as_the_specification_has_it() -> None:
    arrays = {name: np.full(4, value, np.float32) for name, value in zip("sbmv", (1, 2, 3, 4), strict=True)}
    node = helper.make_node("BatchNormalization", ["x", *"sbmv"], ["y"])
    unit = only(graph([node], arrays, {"x": (None, 4)}, {"y": (None, 4)}))
    assert unit.kinds == ("batch_norm",) and unit.facts == {"epsilon": 1e-5, "momentum": 0.9}


@pytest.mark.parametrize(
    "attributes, kinds", [({}, ("dense",)), ({"transB": 1}, ("dense",)), ({"alpha": 2.0}, ("array",)), ({"transA": 1}, ("array",))]
)  # fmt: skip
def test_a_gemm_is_a_dense_layer_unless_it_does_more(attributes: dict[str, Any], kinds: tuple[str, ...]) -> None:
    weight = np.arange(6, dtype=np.float32).reshape(3, 2)
    node = helper.make_node("Gemm", ["x", "w"], ["y"], **attributes)
    model = model_of(graph([node], {"w": weight}, {"x": (None, None)}, {"y": (None, None)}))
    (unit,) = model.units
    assert unit.kinds == kinds
    if kinds == ("dense",):
        expected = weight if "transB" in attributes else weight.T
        assert np.array_equal(model.parts(unit, "dense")["weight"], expected)


@pytest.mark.parametrize(
    "axis, shape, is_norm",
    [(-1, (None, None, 4), True), (2, (None, None, 4), True), (1, (None, None, 4), False), (-2, (None, None, 4), False)],
)  # fmt: skip
def test_a_layer_norm_goes_over_the_axes_of_its_scale(axis: int, shape: tuple[Any, ...], is_norm: bool) -> None:
    """One that goes over more axes computes something else than the same scale in another framework."""
    node = helper.make_node("LayerNormalization", ["x", "s"], ["y"], axis=axis)
    unit = only(graph([node], {"s": np.arange(4, dtype=np.float32)}, {"x": shape}, {"y": shape}))
    assert unit.kinds == (("layer_norm",) if is_norm else ("array",))


def test_branches_that_meet_are_no_line() -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "a"], ["l"], "a"), helper.make_node("MatMul", ["x", "b"], ["r"], "b"),
        helper.make_node("Add", ["l", "r"], ["y"]),
    ]  # fmt: skip
    arrays = {name: np.full((3, 3), number, np.float32) for number, name in enumerate("ab", 1)}
    assert not model_of(graph(nodes, arrays, {"x": (None, 3)}, {"y": (None, 3)})).flow


def recurrent(beginning: list[onnx.NodeProto], arrays: Mapping[str, Array], seed: int) -> onnx.ModelProto:
    """A GRU that begins from the value h, for inputs (time, 2, 2)."""
    generator = np.random.default_rng(seed)
    shapes = {"W": (1, 9, 2), "R": (1, 9, 3), "B": (1, 18)}
    held = {name: generator.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    node = helper.make_node("GRU", ["x", "W", "R", "B", "", "h"], ["", "y"], "g", hidden_size=3, linear_before_reset=1)
    return graph([*beginning, node], {**held, **arrays}, {"x": (None, 2, 2)}, {"y": (1, 2, 3)})


def learned(seed: int) -> onnx.ModelProto:
    state = np.random.default_rng(seed + 100).normal(size=(1, 1, 3)).astype(np.float32)
    spread = helper.make_node("Expand", ["state", "shape"], ["h"])
    return recurrent([spread], {"state": state, "shape": np.array([1, 2, 3])}, seed)


STEPS = np.random.default_rng(0).normal(size=(4, 2, 2)).astype(np.float32)


def test_a_learned_beginning_is_part_of_the_layer() -> None:
    """A source that has one fills it; one without makes it zero."""
    need_torch()
    import torch

    first, second = learned(1), learned(2)
    assert not close(run(first, STEPS), run(second, STEPS))
    rc.load_into(first, second)
    assert close(run(first, STEPS), run(second, STEPS))
    module = renew(torch.nn.Sequential(torch.nn.GRU(2, 3)), 4)
    rc.load_into(first, module)
    assert close(run(first, STEPS), np.asarray(module(torch.from_numpy(STEPS))[1].detach().numpy()))


@pytest.mark.parametrize("rows", ["made", "alike", "different"])
def test_a_beginning_that_cannot_be_written_is_no_target(rows: str) -> None:
    """With the weights of a layer that begins from zero, this one would be another."""
    need_torch()
    from torch import nn

    if rows == "made":
        ones = helper.make_node("ConstantOfShape", ["shape"], ["h"], value=numpy_helper.from_array(np.ones(1, np.float32)))
        target = recurrent([ones], {"shape": np.array([1, 2, 3])}, 1)
    else:
        states = np.arange(6, dtype=np.float32).reshape(1, 2, 3)
        target = recurrent([], {"h": np.ones_like(states) if rows == "alike" else states}, 1)
    before = target.SerializeToString(deterministic=True)
    with pytest.raises(rc.TransplantError, match="begins from a state"):
        rc.load_into(target, renew(nn.Sequential(nn.GRU(2, 3)), 4), strict=False)
    assert target.SerializeToString(deterministic=True) == before
