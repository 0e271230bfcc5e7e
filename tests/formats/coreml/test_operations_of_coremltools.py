"""Single operations and layers that coremltools writes, as ONNX: onnxruntime gives the numbers of their definitions.

Of an operation, coremltools computes the numbers itself where it can; of a layer, they are those of NeuralNetwork.proto's text.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rnnconvert as rc
from rnnconvert.formats.coreml.message import Message
from rnnconvert.formats.coreml.package import WeightFiles
from rnnconvert.formats.coreml.values import ProgramOperation, Values
from tests.helpers.coreml_tools import tools
from tests.helpers.requirements import needed

pytestmark = pytest.mark.filterwarnings("ignore:::")
Array = np.ndarray
Settings = Mapping[str, Any]
_DRAWS = np.random.default_rng(0)


def _drawn(*shape: int) -> Array:
    return _DRAWS.uniform(-2, 2, shape).astype(np.float32)


X, SMALL, IMAGE = _drawn(2, 3, 4), _drawn(2, 3, 4) * 1e-3, _drawn(2, 3, 5, 6)
ROWS = np.arange(3)


def _run(path: Path, *arrays: Array) -> Array:
    runtime = needed("onnxruntime", "onnxruntime")
    rc.export_model(path, path.with_suffix(".onnx"), force=True)
    session = runtime.InferenceSession(str(path.with_suffix(".onnx")))
    return np.asarray(session.run(None, {feature.name: x for feature, x in zip(session.get_inputs(), arrays, strict=True)})[0])


# Operations of programs: settings, and the numbers where coremltools computes none

_SQUEEZED = {"begin": [1, 1, 1], "end": [2, 2, 2], "begin_mask": [True, False, False], "squeeze_mask": [True, False, False]}
OPERATIONS: Mapping[str, tuple[str, Array, Settings, Array | None]] = {
    "a norm along no axes": ("reduce_l1_norm", X, {"axes": np.zeros(0, np.int32)}, abs(X)),
    "a root along no axes": ("reduce_l2_norm", X, {"axes": np.zeros(0, np.int32)}, abs(X)),
    "squares along no axes": ("reduce_sum_square", X, {"axes": np.zeros(0, np.int32)}, X**2),
    "a mean along all axes": ("reduce_mean", X, {}, None),
    "a part from the end": ("slice_by_size", X, {"begin": [0, -2, -3], "size": [2, 2, 2]}, X[:, 1:3, 1:3]),
    "a part to the end": ("slice_by_size", X, {"begin": [0, -2, -3], "size": [2, 2, 3]}, X[:, 1:, 1:]),
    "an open single element": ("slice_by_index", X, _SQUEEZED, None),
    "axes that are longer": ("squeeze", X[:1], {"axes": [0, 1]}, X[0]),
    "all short axes": ("squeeze", X[:1, None], {}, None),
    "axes from the end": ("transpose", X, {"perm": [-1, 0, -2]}, None),
    "a norm along the first axis": ("layer_norm", X, {"axes": [0, 2]}, None),
    "instances": ("instance_norm", X, {}, (X - X.mean(2, keepdims=True)) / np.sqrt(X.var(2, keepdims=True) + 1e-5)),
    "places as vectors": ("one_hot", ROWS.astype(np.int32), {"one_hot_vector_size": 4}, np.eye(4)[ROWS]),
    "places that are none": ("one_hot", np.array([1, -1, 7], np.int32), {"one_hot_vector_size": 4}, np.eye(4)[[1]] * [[1], [0], [0]]),
    "a scaled tanh": ("scaled_tanh", X, {"alpha": np.float32(0.7), "beta": np.float32(0.2)}, None),
    "a line": ("linear_activation", X, {"alpha": np.float32(0.7), "beta": np.float32(0.2)}, None),
    "an inverse": ("inverse", X, {}, None),
    "an inverse root": ("rsqrt", abs(SMALL), {"epsilon": np.float32(1e-3)}, None),
}


@pytest.mark.parametrize("case", OPERATIONS)
def test_an_operation_gives_the_numbers_of_its_definition(case: str, tmp_path: Path) -> None:
    ct = tools()
    mb = importlib.import_module("coremltools.converters.mil").Builder
    mil = importlib.import_module("coremltools.converters.mil.mil")
    operation, x, settings, expected = OPERATIONS[case]
    first, dtype = "indices" if operation == "one_hot" else "x", mil.types.int32 if x.dtype == np.int32 else mil.types.fp32
    if expected is None:
        with mil.Function({}, opset_version=ct.target.iOS15):
            expected = getattr(mb, operation)(**{first: x.copy()}, **settings).val

    @mb.program(input_specs=[mb.TensorSpec(shape=x.shape, dtype=dtype)], opset_version=ct.target.iOS15)
    def program(x: Any) -> Any:
        y = getattr(mb, operation)(**{first: x}, **settings)
        return mb.add(x=y, y=np.int32(0) if y.dtype == mil.types.int32 else np.float32(0))

    path = tmp_path / "m.mlpackage"
    ct.convert(program, convert_to="mlprogram", minimum_deployment_target=ct.target.iOS15, skip_model_load=True,
               compute_precision=ct.precision.FLOAT32, pass_pipeline=ct.PassPipeline.EMPTY).save(str(path))  # fmt: skip
    y = _run(path, x)
    assert y.shape == np.shape(expected)
    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-5)


def test_single_numbers_side_by_side_are_a_vector(tmp_path: Path) -> None:
    ct = tools()
    mb = importlib.import_module("coremltools.converters.mil").Builder
    symbol = importlib.import_module("coremltools.converters.mil.mil").get_new_symbol()

    @mb.program(input_specs=[mb.TensorSpec(shape=(2, symbol, 3))], opset_version=ct.target.iOS15)
    def program(x: Any) -> Any:
        batch, time = (mb.gather(x=mb.shape(x=x), indices=np.int32(axis)) for axis in (0, 1))
        return mb.tanh(x=mb.reshape(x=x, shape=mb.concat(values=[mb.mul(x=time, y=batch), np.int32(3)], axis=0)))

    path = tmp_path / "m.mlpackage"
    ct.convert(program, convert_to="mlprogram", minimum_deployment_target=ct.target.iOS15, skip_model_load=True,
               compute_precision=ct.precision.FLOAT32, pass_pipeline=ct.PassPipeline.EMPTY).save(str(path))  # fmt: skip
    x = _drawn(2, 5, 3)
    np.testing.assert_allclose(_run(path, x), np.tanh(x.reshape(10, 3)), rtol=0, atol=1e-6)


# Layers of networks: what adds one, its settings, fields to change behind the builder, the input, the numbers

MATRIX, SQUARE, TABLE = _drawn(4, 5), _drawn(4, 4), _drawn(6, 5)
GAMMA, BETA, MEAN, VARIANCE = _drawn(3), _drawn(3), _drawn(3), abs(_drawn(3))
PLACES = np.array([[[4], [0]], [[2], [1]]], np.float32)
FEW = PLACES.astype(int)[..., 0]


def _normed(x: Array) -> Array:
    gamma, beta, mean, variance = (array.reshape(-1, 1, 1) for array in (GAMMA, BETA, MEAN, VARIANCE))
    return gamma * (x - mean) / np.sqrt(variance + 1e-5) + beta


def _centred(x: Array) -> Array:
    return (x - x.mean((-2, -1), keepdims=True)) / np.sqrt(x.var((-2, -1), keepdims=True) + 1e-6)


_SPACE = {"across_channels": False, "normalize_variance": True, "epsilon": 1}
_ROWS = {"vocab_size": 5, "embedding_size": 6, "W": TABLE, "b": np.arange(6.0)}
_NORM = {"channels": 3, "gamma": GAMMA, "beta": BETA, "mean": MEAN, "variance": VARIANCE}
FULL = _drawn(7, 90)
_DENSE = {"W": FULL, "b": np.ones(7), "input_channels": 90, "output_channels": 7, "has_bias": True}
_TURNED = {"weight_matrix_rows": 4, "input_names": ["x"], "output_name": "y"}
_OF_X = {"input_names": ["x"], "output_name": "y"}
COUNTED = (np.arange(24.0) % 3).reshape(2, 3, 4).astype(np.float32)
LAYERS: Mapping[str, tuple[str, Settings, Settings, Array, Array]] = {
    "a matrix": ("batched_mat_mul", {"W": MATRIX, "weight_matrix_columns": 5, "bias": np.ones(5), **_TURNED}, {}, X, X @ MATRIX + 1),
    "a square matrix": ("batched_mat_mul", {"W": SQUARE, "weight_matrix_columns": 4, **_TURNED}, {}, X, X @ SQUARE),
    "channels in front": ("batchnorm", _NORM, {"epsilon": 0}, _drawn(3, 3, 6), np.zeros(0)),
    "channels behind the batch": ("batchnorm", _NORM, {}, IMAGE, np.zeros(0)),
    "channels of steps": ("batchnorm", _NORM, {}, IMAGE[None], np.zeros(0)),
    "no epsilon of variance": ("mvn", _SPACE, {"epsilon": 0}, SMALL, _centred(SMALL)),
    "no epsilon of a root": ("unary", {"mode": "rsqrt"}, {"epsilon": 0}, abs(SMALL), 1 / np.sqrt(abs(SMALL) + 1e-6)),
    "no epsilon of an inverse": ("unary", {"mode": "inverse"}, {"epsilon": 0}, abs(SMALL), 1 / (abs(SMALL) + 1e-6)),
    "no scale": ("unary", {"mode": "exp"}, {"scale": 0}, X, np.exp(X)),
    "a bias of rows": ("embedding_nd", _ROWS, {}, PLACES, TABLE.T[FEW] + np.arange(6)),
    "rows of a batch": ("embedding", {"W": TABLE, "b": None, "input_dim": 5, "output_channels": 6, "has_bias": False}, {},
                        PLACES[0, :, :, None, None], TABLE.T[FEW[0]][..., None, None]),
    "all of an image": ("inner_product", _DENSE, {}, IMAGE, (IMAGE.reshape(2, 90) @ FULL.T + 1)[..., None, None]),
    "rows of one": ("flatten_to_2d", {"axis": 3}, {}, X, X.reshape(24, 1)),
    "fewer times": ("tile", {"reps": [2, 3]}, {}, X, np.tile(X, [2, 3])),
    "a comparison with a number": ("greater_than", {**_OF_X, "alpha": 0.5}, {}, X, X > 0.5),
    "equal to a number": ("equal", {**_OF_X, "alpha": 1.0}, {}, COUNTED, COUNTED == 1),
    "unequal to a number": ("not_equal", {**_OF_X, "alpha": 1.0}, {}, COUNTED, COUNTED != 1),
    "what is not true": ("logical", {**_OF_X, "mode": "NOT"}, {}, COUNTED, COUNTED == 0),
    "a sum of all": ("reduce_sum", {"reduce_all": True, "keepdims": False}, {}, X, X.sum().reshape(1)),
}  # fmt: skip


@pytest.mark.parametrize("case", LAYERS)
def test_a_layer_gives_the_numbers_of_its_definition(case: str, tmp_path: Path) -> None:
    ct = tools()
    building = importlib.import_module("coremltools.models.neural_network")
    layer, settings, changed, x, expected = LAYERS[case]
    expected = _normed(x) if layer == "batchnorm" else expected
    array = ct.models.datatypes.Array(*x.shape)
    builder = building.NeuralNetworkBuilder([("x", array)], [("y", None)], disable_rank5_shape_mapping=True)
    names: Settings = {"input_name": "x", "output_name": "y"} if "input_names" not in settings else {}
    add: Callable[..., Any] = getattr(builder, f"add_{layer}")
    add(name="a", **names, **settings)
    last = builder.spec.neuralNetwork.layers[-1]
    for field, number in changed.items():
        setattr(getattr(last, last.WhichOneof("layer")), field, number)
    path = tmp_path / "m.mlmodel"
    ct.models.utils.save_spec(builder.spec, str(path))
    y = _run(path, x)
    assert y.shape == expected.shape and y.dtype == np.float32  # a network has truths as 1 and 0
    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-5)


def test_a_classifier_of_windows_gives_the_numbers_of_its_layers(tmp_path: Path) -> None:
    """As Turi Create writes classifiers of activity: (time, batch, 1, rows, sensors) are convolved, and a class has a name."""
    ct, random = tools(), np.random.default_rng(2)
    building = importlib.import_module("coremltools.models.neural_network")
    arrays, sizes = ct.models.datatypes.Array, {"kernel": (1, 2, 3, 4), "w": (5, 4), "u": (5, 5), "b": (5,), "head": (2, 5)}
    builder = building.NeuralNetworkBuilder([("x", arrays(1, 8, 3)), ("h", arrays(5)), ("c", arrays(5))], [("p", None)], mode="classifier")
    kernel, head = (random.normal(size=sizes[name]) for name in ("kernel", "head"))
    w, u, b = ([random.normal(size=sizes[name]) for _ in range(4)] for name in ("w", "u", "b"))
    builder.add_permute(name="turned", dim=(0, 3, 1, 2), input_name="x", output_name="rows")
    builder.add_convolution("conv", 3, 4, 1, 2, 1, 2, "valid", 1, kernel, None, False, input_name="rows", output_name="windows")
    builder.add_pooling("pool", 1, 2, 1, 2, "MAX", "VALID", input_name="windows", output_name="pairs")
    builder.add_flatten("flat", 0, "pairs", "features")
    w = [np.concatenate([each, each], 1) for each in w]  # of 4 channels in 2 places
    builder.add_unilstm("lstm", u, w, b, 5, 8, ["features", "h", "c"], ["last", "h2", "c2"], output_all=False)
    builder.add_inner_product("head", head, None, 5, 2, False, "last", "scores")
    builder.add_softmax("softmax", "scores", "p")
    builder.set_class_labels(["walk", "rest"], predicted_feature_name="activity")
    ct.models.utils.save_spec(builder.spec, str(tmp_path / "m.mlmodel"))
    rc.export_model(tmp_path / "m.mlmodel", tmp_path / "m.onnx")
    x, h, c = random.normal(size=(3, 2, 1, 8, 3)), np.zeros((2, 5)), np.zeros((2, 5))
    session = needed("onnxruntime", "onnxruntime").InferenceSession(str(tmp_path / "m.onnx"))
    (y,) = session.run(None, {"x": x.astype(np.float32), **{name: np.zeros((1, 2, 5, 1, 1), np.float32) for name in "hc"}})[:1]
    windows = np.einsum("tbnkc,kco->tbno", x[:, :, 0].reshape(3, 2, 4, 2, 3), kernel[0])
    features = windows.reshape(3, 2, 2, 2, 4).max(3).transpose(0, 1, 3, 2).reshape(3, 2, 8)
    for step in features:  # rows i, f, o, z
        i, f, o, z = (step @ w[gate].T + h @ u[gate].T + b[gate] for gate in range(4))
        c = c / (1 + np.exp(-f)) + np.tanh(z) / (1 + np.exp(-i))
        h = np.tanh(c) / (1 + np.exp(-o))
    expected = np.exp(h @ head.T)
    np.testing.assert_allclose(y[0, :, :, 0, 0], expected / expected.sum(1, keepdims=True), rtol=0, atol=1e-5)


def test_a_table_of_another_version_is_refused_by_its_operation(tmp_path: Path) -> None:
    """The operation has the name of one that is read, and other inputs; the file is not damaged."""
    ct = tools()
    mb = importlib.import_module("coremltools.converters.mil").Builder

    @mb.program(input_specs=[mb.TensorSpec(shape=(3, 2, 4))], opset_version=ct.target.iOS18)
    def program(x: Any) -> Any:
        table, zero = np.linspace(-1, 1, 256, dtype=np.float32).reshape(1, 1, 256, 1), np.zeros((2, 5), np.float32)
        weight = mb.constexpr_lut_to_dense(indices=np.arange(80, dtype=np.uint8).reshape(20, 4), lut=table)
        return mb.lstm(x=x, initial_h=zero, initial_c=zero, weight_ih=weight, weight_hh=_drawn(20, 5), output_sequence=True)[0]

    path = tmp_path / "m.mlpackage"
    ct.convert(program, convert_to="mlprogram", minimum_deployment_target=ct.target.iOS18, skip_model_load=True,
               compute_precision=ct.precision.FLOAT32, pass_pipeline=ct.PassPipeline.EMPTY).save(str(path))  # fmt: skip
    with pytest.raises(rc.RefusedError, match="the operator constexpr_lut_to_dense"):
        rc.export_model(path, tmp_path / "m.onnx")


def test_values_that_are_read_many_times_are_judged_once() -> None:
    empty = Message(memoryview(b""), "")
    values = Values("", WeightFiles(Path("m.mlmodel")))
    values.makers["v0"] = ProgramOperation("fill", "v0", {}, ["v0"], empty)
    for n in range(1, 40):
        values.makers[f"v{n}"] = ProgramOperation("concat", f"v{n}", {"values": [f"v{n - 1}"] * 9}, [f"v{n}"], empty)
    assert values.zero("v39")
