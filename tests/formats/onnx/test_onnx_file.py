"""ONNX files against onnx and onnxruntime themselves, and against files that want to harm."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import pytest
from google.protobuf import json_format, text_format
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from rnnconvert.containers import wire
from rnnconvert.core.arrays import BFLOAT16, Array, Deferred
from rnnconvert.core.errors import RnnConvertError, UnreadableError, UsageError
from rnnconvert.formats.onnx.proto import file as onnx_file
from rnnconvert.formats.onnx.proto import write
from rnnconvert.formats.onnx.proto.program import program
from rnnconvert.graphs.program.scopes import Scope
from rnnconvert.graphs.program.walk import walk
from tests.helpers.drawn import LONG


def numbers(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return (np.arange(int(np.prod(shape))).reshape(shape) % 100).astype(dtype)


def model_of(
    nodes: list[onnx.NodeProto],
    initializers: dict[str, np.ndarray] | None = None,
    opset: int = 17,
    outputs: tuple[str, ...] = ("y",),
    functions: list[onnx.FunctionProto] | None = None,
) -> onnx.ModelProto:
    tensors = [numpy_helper.from_array(np.asarray(v), k) for k, v in (initializers or {}).items()]
    results = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
    graph = helper.make_graph(nodes, "graph", [], results, tensors)
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("local", 1)]
    return helper.make_model(graph, opset_imports=opsets, functions=functions or [], ir_version=8)


def opened(path: Path, model: onnx.ModelProto) -> onnx_file.OnnxFile:
    path.write_bytes(model.SerializeToString())
    return onnx_file.read(path)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "model.onnx"


DTYPES: list[Any] = [np.float16, np.float32, np.float64, np.int8, np.uint8, np.int16, np.uint16]
DTYPES += [np.int32, np.int64, np.uint32, np.uint64, np.bool_, ml_dtypes.bfloat16]


@pytest.mark.parametrize("raw", [True, False])
@pytest.mark.parametrize("count", [0, 3, 4000])
@pytest.mark.parametrize("dtype", DTYPES)
def test_reads_every_form_of_a_tensor(path: Path, dtype: object, count: int, raw: bool) -> None:
    values = numbers(2, count, dtype=dtype)
    kind = helper.np_dtype_to_tensor_dtype(values.dtype)
    data = values.tobytes() if raw else values.reshape(-1).tolist()
    tensor = helper.make_tensor("w", kind, values.shape, data, raw=raw)
    model = model_of([helper.make_node("Identity", ["w"], ["y"])])
    model.graph.initializer.append(tensor)
    file = opened(path, model)
    array = file.tensor(file.model.graph.initializer[0])
    assert array.dtype == values.dtype and array.shape == values.shape
    np.testing.assert_array_equal(array, values)
    if values.nbytes > wire.LARGE and (raw or dtype in (np.float32, np.float64)):
        assert not array.flags.owndata and not array.flags.writeable
        assert file.model.ByteSize() < 1000


def test_large_numbers_stay_in_the_file_wherever_they_are(path: Path) -> None:
    large = numbers(64, 64)
    tensor = numpy_helper.from_array(large, "t")
    inner = helper.make_graph([helper.make_node("Constant", [], ["c"], value=tensor)], "inner", [], [])
    inner.initializer.append(numpy_helper.from_array(large, "inner_w"))
    branch = helper.make_node("If", ["cond"], ["y"], then_branch=inner, else_branch=inner, name="/a/If")
    function = helper.make_function(
        "local", "F", [], ["z"], [helper.make_node("Constant", [], ["z"], value=tensor)], [helper.make_opsetid("", 17)]
    )
    call = helper.make_node("F", [], ["z"], domain="local", name="call")
    file = opened(path, model_of([branch, call], {"w": large}, functions=[function]))
    assert file.model.ByteSize() < 2000
    scopes = {scope.path: scope for scope in walk(program(file))}
    assert set(scopes) == {"main", "main/a/If.then_branch", "main/a/If.else_branch", "main/call()"}
    for scope, name in [
        ("main", "w"),
        ("main", "z"),
        ("main/a/If.then_branch", "c"),
        ("main/a/If.then_branch", "inner_w"),
        ("main/a/If.else_branch", "w"),
        ("main/call()", "z"),
    ]:
        array = scopes[scope].constant(name)
        assert array is not None and not array.flags.owndata
        np.testing.assert_array_equal(array, large)


def test_text_and_json(tmp_path: Path) -> None:
    model = model_of([helper.make_node("Identity", ["w"], ["y"])], {"w": numbers(50, 50)})
    (tmp_path / "m.onnxtxt").write_text(text_format.MessageToString(model))
    (tmp_path / "m.json").write_text(json_format.MessageToJson(model))
    for name in ("m.onnxtxt", "m.json"):
        file = onnx_file.read(tmp_path / name)
        np.testing.assert_array_equal(file.tensor(file.model.graph.initializer[0]), numbers(50, 50))


# Constants ------------------------------------------------------------------------------------


def node(operator: str, inputs: list[str], *outputs: str, **attributes: object) -> onnx.NodeProto:
    return helper.make_node(operator, inputs, list(outputs) or ["y"], **attributes)


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


M = numbers(4, 6)
CASES = [
    ([node("Identity", ["m"])], {}, 17),
    ([node("Transpose", ["m"])], {}, 17),
    ([node("Transpose", ["m"], perm=[1, 0])], {}, 17),
    ([node("Concat", ["m", "m", "m"], axis=1)], {}, 17),
    ([node("Concat", ["m", "m"], axis=0)], {}, 17),
    ([node("Slice", ["m"], starts=[1], ends=[3], axes=[1])], {}, 9),
    ([node("Slice", ["m"], starts=[1, -4], ends=[1000, -1])], {}, 9),
    ([node("Slice", ["m", "s", "e", "a", "t"])], {"s": [-1], "e": [-(2**63)], "a": [0], "t": [-2]}, 17),
    ([node("Slice", ["m", "s", "e"])], {"s": [1, 2], "e": [2**63 - 1, -1]}, 13),
    ([node("Slice", ["m", "s", "e", "", "t"])], {"s": [5, 5], "e": [-9, 0], "t": [-1, -2]}, 13),
    ([node("Unsqueeze", ["m"], axes=[0, 3])], {}, 11),
    ([node("Unsqueeze", ["m", "a"])], {"a": [-1, 0]}, 17),
    ([node("Unsqueeze", ["m"], "u", axes=[0]), node("Squeeze", ["u"], axes=[0])], {}, 11),
    ([node("Unsqueeze", ["m", "a"], "u"), node("Squeeze", ["u", "a"])], {"a": [1]}, 17),
    ([node("Unsqueeze", ["m", "a"], "u"), node("Squeeze", ["u"])], {"a": [1]}, 17),
    ([node("Reshape", ["m", "s"])], {"s": [2, -1]}, 17),
    ([node("Reshape", ["m", "s"])], {"s": [0, 3, 2]}, 17),
    ([node("Flatten", ["m"], axis=0)], {}, 17),
    ([node("Flatten", ["m"], axis=-1)], {}, 17),
    ([node("Cast", ["m"], to=TensorProto.INT64)], {}, 17),
    ([node("Cast", ["m"], to=TensorProto.FLOAT16)], {}, 17),
    ([node("Split", ["m"], "y", "z", split=[1, 3])], {}, 11),
    ([node("Split", ["m", "s"], "z", "y", axis=1)], {"s": [4, 2]}, 17),
    ([node("Split", ["m"], "z", "y", axis=-1)], {}, 17),
    (
        [node("Slice", ["m", "a", "b"], "five"), node("Split", ["five"], "z", "w", "y", axis=1, num_outputs=3)],
        {"a": [0, 0], "b": [4, 5]},
        18,
    ),
    ([node("Gather", ["m", "i"], axis=1)], {"i": [[0, -1], [2, 2]]}, 17),
    ([node("Gather", ["m", "i"])], {"i": 2}, 17),
    ([node("Expand", ["m", "s"])], {"s": [2, 1, 6]}, 17),
    ([node("ConstantOfShape", ["s"])], {"s": [2, 3]}, 17),
    ([node("ConstantOfShape", ["s"], value=helper.make_tensor("", 1, [1], [2.5]))], {"s": [2, 3]}, 17),
    ([node("Shape", ["m"])], {}, 17),
    ([node("Shape", ["m"], start=-1)], {}, 17),
    ([node("Constant", [], "h", value_float=0.5), node("Mul", ["m", "h"])], {}, 17),
    ([node("Constant", [], "h", value_floats=[0.5] * 6), node("Add", ["m", "h"])], {}, 17),
    ([node("Constant", [], "h", value_ints=[2, 12]), node("Reshape", ["m", "h"])], {}, 17),
    ([node("Constant", [], "h", value_int=3), node("Gather", ["m", "h"])], {}, 17),
    ([node("Sub", ["m", "m"])], {}, 17),
    ([node("Neg", ["m"])], {}, 17),
    ([node("Div", ["m", "m"])], {}, 17),
    ([node("Div", ["a", "b"])], {"a": [7, -7, 7, -7], "b": [2, 2, -2, -2]}, 17),
]


@pytest.mark.parametrize(("nodes", "extra", "opset"), CASES)
def test_constants_are_what_onnxruntime_computes(path: Path, nodes: list[onnx.NodeProto], extra: dict[str, list[int]], opset: int) -> None:
    model = model_of(nodes, {"m": M} | {name: np.array(value, np.int64) for name, value in extra.items()}, opset)
    file = opened(path, model)
    computed = next(walk(program(file))).constant("y")
    assert computed is not None
    kind = helper.np_dtype_to_tensor_dtype(computed.dtype)
    model.graph.output[0].type.tensor_type.elem_type = kind
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    (expected,) = session.run(None, {})
    assert computed.dtype == expected.dtype and computed.shape == expected.shape
    np.testing.assert_array_equal(computed, expected)


@pytest.mark.parametrize("operator", ["Transpose", "Identity", "Slice", "Split", "Squeeze"])
def test_views_stay_views(path: Path, operator: str) -> None:
    large = numbers(64, 64)
    inputs = {"Slice": ["w", "s", "e"], "Split": ["w", "n"]}.get(operator, ["w"])
    extra = {"s": ints(3), "e": ints(9), "n": ints(32, 32)}
    model = model_of([node(operator, inputs)] if operator != "Split" else [node(operator, inputs, "y", "z")])
    for name, value in ({"w": large} | extra).items():
        model.graph.initializer.append(numpy_helper.from_array(value, name))
    file = opened(path, model)
    array = next(walk(program(file))).constant("y")
    assert array is not None and np.shares_memory(array, file.data)


def test_what_is_no_constant(path: Path) -> None:
    circle = [node("Identity", ["b"], "a"), node("Add", ["a", "m"], "b")]
    others = [
        node("Sigmoid", ["m"], "unknown"),
        node("Identity", ["x"], "from_input"),
        node("Concat", ["m", "x"], "partly", axis=0),
        node("Reshape", ["m", "bad"], "impossible"),
        helper.make_node("Identity", ["m"], ["foreign"], domain="com.example"),
        node("Constant", [], "text", value_string="hello"),
        node("Identity", ["texts"], "copied"),
    ]
    model = model_of(circle + others, {"m": M, "bad": ints(5, 7)})
    model.graph.initializer.append(helper.make_tensor("texts", TensorProto.STRING, [1], [b"t"]))
    model.graph.input.append(helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 6]))
    scope = next(walk(program(opened(path, model))))
    names = [name for each in circle + others for name in each.output] + ["", "x", "absent", "texts"]
    assert [name for name in names if scope.constant(name) is not None] == []
    assert scope.producer("unknown") is not None and scope.producer("x") is None


def test_names_of_outer_graphs_and_arguments_of_functions(path: Path) -> None:
    body = helper.make_graph(
        [node("Transpose", ["w"], "t"), node("Identity", ["state"], "s")],
        "body",
        [helper.make_tensor_value_info("state", TensorProto.FLOAT, None)],
        [helper.make_tensor_value_info("t", TensorProto.FLOAT, None)],
    )
    function = helper.make_function(
        "local",
        "Layer",
        ["x", "weight"],
        ["out"],
        [helper.make_node("Transpose", ["weight"], ["turned"]), helper.make_node("LSTM", ["x", "turned", "turned"], ["out"], name="lstm")],
        [helper.make_opsetid("", 17)],
        ["hidden_size"],
    )
    reference = function.node[1].attribute.add(name="hidden_size", ref_attr_name="hidden_size")
    reference.type = onnx.AttributeProto.INT
    calls = [
        helper.make_node("Layer", ["x", "w"], ["p"], domain="local", name="first", hidden_size=3),
        helper.make_node("Layer", ["x", "v"], ["q"], domain="local", name="second", hidden_size=5),
    ]
    loop = helper.make_node("Loop", ["n", "", "state"], ["y"], body=body, name="loop")
    # "state" is a constant outside and a value that changes inside
    constants = {"w": M, "v": M + 1, "state": M, "n": ints(1)}
    file = opened(path, model_of([loop, *calls], constants, functions=[function]))
    scopes = {scope.path: scope for scope in walk(program(file))}
    assert list(scopes) == ["main", "main/loop.body", "main/first()", "main/second()"]
    np.testing.assert_array_equal(scopes["main/loop.body"].constant("t"), M.T)
    assert scopes["main/loop.body"].constant("s") is None
    for name, weight, hidden in (("first", M, 3), ("second", M + 1, 5)):
        scope = scopes[f"main/{name}()"]
        np.testing.assert_array_equal(scope.constant("turned"), weight.T)
        assert scope.attributes(scope.nodes[1])["hidden_size"] == hidden


def test_functions_that_call_themselves(path: Path) -> None:
    nodes = [helper.make_node("F", ["x"], [f"z{i}"], domain="local", name=f"n{i}") for i in range(2)]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("local", 1)]
    function = helper.make_function("local", "F", ["x"], ["z0"], nodes, opsets)
    call = helper.make_node("F", ["w"], ["y"], domain="local")
    file = opened(path, model_of([call], {"w": M}, functions=[function]))
    with pytest.raises(UnreadableError, match="too many or too deep"):
        list(walk(program(file)))
    with pytest.raises(UnreadableError, match="too many or too deep"):
        next(walk(program(file))).constant("y")


@pytest.mark.parametrize(
    "nodes",
    [
        [node("Expand", ["m", "huge"])],
        [node("ConstantOfShape", ["huge"])],
        [node("ConstantOfShape", ["far"])],
        [node("Identity", ["m"], "c0")]
        + [node("Concat", [f"c{i}"] * 2, f"c{i + 1}", axis=0) for i in range(40)]
        + [node("Identity", ["c40"])],
    ],
)
def test_constants_that_grow_without_end(path: Path, nodes: list[onnx.NodeProto]) -> None:
    extra = {"m": M, "huge": ints(1 << 20, 1 << 20, 4, 6), "far": ints(1 << 62, 1 << 62, 1 << 62)}
    file = opened(path, model_of(nodes, extra))
    with pytest.raises(UnreadableError, match="64 MiB of memory"):
        next(walk(program(file))).constant("y")


def test_long_chains_end(path: Path) -> None:
    chain = [node("Identity", ["m"], "c0")]
    chain += [node("Identity", [f"c{i}"], f"c{i + 1}") for i in range(5000)]
    assert next(walk(program(opened(path, model_of(chain, {"m": M}))))).constant("c5000") is None


# Damaged and hostile files ---------------------------------------------------------------------


def test_truncated_and_foreign_files(path: Path) -> None:
    complete = model_of([node("Identity", ["w"])], {"w": numbers(64, 64)}).SerializeToString()
    for content in (b"", b"\x00" * 100, b"\xff" * 100, b"PK\x03\x04", b"\x08\x01", complete[:-1], complete[:5000]):
        path.write_bytes(content)
        with pytest.raises(UnreadableError):
            onnx_file.read(path)
    with pytest.raises(UnreadableError):
        onnx_file.read(path.parent)
    text = path.with_suffix(".onnxtxt")
    for content in ("graph {", "graph {" * 5000, "ir_version: 1", "\ufeff"):
        text.write_text(content)
        with pytest.raises(UnreadableError):
            onnx_file.read(text)


def test_nesting_without_end(path: Path) -> None:
    content = b"\0" * 5000
    for _ in range(200):  # graph in attribute in node
        content = wire.field(1, wire.field(5, wire.field(6, content)))
    path.write_bytes(wire.field(7, content))
    with pytest.raises(UnreadableError):
        onnx_file.read(path)


def test_text_that_is_no_utf8(path: Path) -> None:
    model = model_of([node("Identity", ["wwww"])], {"wwww": M})
    path.write_bytes(model.SerializeToString().replace(b"wwww", b"\xff\xfe\xff\xfe"))
    with pytest.raises(UnreadableError):
        onnx_file.read(path)


@pytest.mark.parametrize(
    "change",
    [
        {"dims": [1 << 40, 1 << 40]},
        {"dims": [-1, -4096]},
        {"dims": [0, 1 << 62]},
        {"dims": [1] * 100},
        {"dims": [4095]},
        {"data_type": TensorProto.DOUBLE},
        {"data_type": TensorProto.STRING},
        {"data_type": 23},  # FLOAT4E2M1, which onnx names from 1.18 on
        {"data_type": 99},
        {"raw_data": b"123"},
        {"raw_data": b"", "int32_data": [1, 2]},
        {"external_data": [{"key": onnx_file._MARK, "value": "9:0:16384"}] * 2},
        {"external_data": [{"key": onnx_file._MARK, "value": "9:1:2:3"}]},
        {"external_data": [{"key": onnx_file._MARK, "value": "9:99999999:16384"}], "raw_data": b""},
    ],
)
def test_tensors_that_lie(path: Path, change: dict[str, object]) -> None:
    fields = {"name": "w", "dims": [4096], "data_type": 1, "raw_data": numbers(4096).tobytes()} | change
    model = model_of([node("Identity", ["w"])])
    model.graph.initializer.append(TensorProto(**fields))
    file = opened(path, model)
    with pytest.raises(UnreadableError):
        file.tensor(file.model.graph.initializer[0])


def external(path: Path, entries: dict[str, str], dims: tuple[int, ...] = (4,)) -> Array:
    model = model_of([node("Identity", ["w"])])
    tensor = TensorProto(name="w", dims=dims, data_type=1, data_location=TensorProto.EXTERNAL)
    for key, value in entries.items():
        tensor.external_data.add(key=key, value=value)
    model.graph.initializer.append(tensor)
    file = opened(path, model)
    return file.tensor(file.model.graph.initializer[0])


def test_external_data(path: Path) -> None:
    folder = path.parent / "data"
    folder.mkdir()
    (folder / "w.bin").write_bytes(bytes(64) + numbers(4).tobytes())
    for entries in ({"offset": "64", "length": "16"}, {"offset": "64"}):
        array = external(path, {"location": "data/w.bin"} | entries)
        np.testing.assert_array_equal(array, numbers(4))
        assert not array.flags.owndata and not array.flags.writeable
    assert external(path, {"location": "data/w.bin"}, (0, 3)).shape == (0, 3)


@pytest.mark.parametrize(
    "entries",
    [
        {},
        {"location": ""},
        {"location": "."},
        {"location": "absent.bin"},
        {"location": "../outside.bin"},
        {"location": "sub/../../outside.bin"},
        {"location": "sub\\..\\..\\outside.bin"},
        {"location": "/etc/passwd"},
        {"location": "C:/x"},
        {"location": "a\0b"},
        {"location": "link.bin"},
        {"location": "pipe"},
        {"location": "sub"},
        {"location": "x" * 5000},
        {"location": "good.bin", "offset": "1"},
        {"location": "good.bin", "offset": "-16"},
        {"location": "good.bin", "offset": "9" * 30},
        {"location": "good.bin", "offset": "\u0661"},
        {"location": "good.bin", "length": "15"},
        {"location": "good.bin", "length": "x"},
    ],
)
def test_external_data_that_lead_elsewhere(tmp_path: Path, entries: dict[str, str]) -> None:
    folder = tmp_path / "model"
    (folder / "sub").mkdir(parents=True)
    (tmp_path / "outside.bin").write_bytes(bytes(16))
    (folder / "good.bin").write_bytes(bytes(16))
    (folder / "link.bin").symlink_to(tmp_path / "outside.bin")
    os.mkfifo(folder / "pipe")
    with pytest.raises(UnreadableError):
        external(folder / "model.onnx", entries)


def small_models() -> Iterator[bytes]:
    inner = helper.make_graph([node("Transpose", ["w"], "t")], "inner", [], [])
    branch = helper.make_node("If", ["c"], ["z"], then_branch=inner, else_branch=inner)
    nodes = [branch, node("Slice", ["w", "s", "e"], "v"), node("Concat", ["v", "v"], "y", axis=0)]
    yield model_of(nodes, {"w": numbers(40, 40), "s": ints(1), "e": ints(5)}).SerializeToString()
    typed = model_of([node("Reshape", ["w", "s"])], {"s": ints(2, 2)})
    typed.graph.initializer.append(helper.make_tensor("w", TensorProto.FLOAT, [4], [1, 2, 3, 4]))
    typed.graph.initializer.append(helper.make_tensor("h", TensorProto.FLOAT16, [2], [1, 2]))
    yield typed.SerializeToString()


MODELS = list(small_models())


@settings(derandomize=True, deadline=None, max_examples=600 if LONG else 200)
@given(data=st.data())
def test_damaged_files_raise_our_errors_only(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    content = bytearray(data.draw(st.sampled_from(MODELS)))
    # all but the numbers themselves, which would be most of the file
    place = st.one_of(st.integers(0, min(400, len(content) - 1)), st.integers(max(0, len(content) - 200), len(content) - 1))
    for at, value in data.draw(st.lists(st.tuples(place, st.integers(0, 255)), min_size=1, max_size=5)):
        content[at] = value
    path = tmp_path_factory.getbasetemp() / "damaged.onnx"
    path.write_bytes(content)
    try:
        file = onnx_file.read(path)
        for scope in walk(program(file)):
            for each in scope.nodes:
                scope.attributes(each)
                for name in [*each.inputs, *each.outputs]:
                    scope.constant(name)
        for tensor in file.model.graph.initializer:
            file.tensor(tensor)
    except RnnConvertError:
        pass


# Writing ---------------------------------------------------------------------------------------


def gru_model(dtype: int = TensorProto.FLOAT) -> tuple[onnx.ModelProto, dict[str, Array], np.ndarray]:
    rng = np.random.default_rng(3)
    numpy_dtype = onnx_file.DTYPES[dtype]
    arrays = {
        "W": rng.standard_normal((1, 60, 20)).astype(numpy_dtype),
        "R": rng.standard_normal((1, 20, 60)).astype(numpy_dtype).transpose(0, 2, 1),
        "B": rng.standard_normal((1, 120)).astype(numpy_dtype),
    }
    gru = helper.make_node("GRU", ["x", "W", "R", "B"], ["", "h"], hidden_size=20, linear_before_reset=1)
    graph = helper.make_graph(
        [gru, helper.make_node("Reshape", ["h", "shape"], ["y"])],
        "graph",
        [helper.make_tensor_value_info("x", dtype, [5, 2, 20])],
        [helper.make_tensor_value_info("y", dtype, [2, 20])],
        [TensorProto(name=name, dims=array.shape, data_type=dtype) for name, array in arrays.items()]
        + [numpy_helper.from_array(ints(2, 20), "shape")],
    )
    opset = 22 if dtype == TensorProto.BFLOAT16 else 17
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    return model, arrays, rng.standard_normal((5, 2, 20)).astype(numpy_dtype)


def run(model: str | bytes, x: np.ndarray) -> np.ndarray:
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    (y,) = session.run(None, {"x": x})
    return np.asarray(y)


@pytest.mark.parametrize("use_external", [None, False, True])
@pytest.mark.parametrize("dtype", [TensorProto.FLOAT, TensorProto.FLOAT16])
def test_onnx_and_onnxruntime_take_what_was_written(path: Path, dtype: int, use_external: bool | None) -> None:
    model, arrays, x = gru_model(dtype)
    before = model.SerializeToString()
    deferred = arrays | {"R": Deferred(arrays["R"].shape, arrays["R"].dtype, lambda: arrays["R"])}
    write.write(path, model, deferred, use_external)
    assert model.SerializeToString() == before
    onnx.checker.check_model(str(path), full_check=True)
    loaded = onnx.load(path)
    for tensor in loaded.graph.initializer:
        if tensor.name in arrays:
            np.testing.assert_array_equal(numpy_helper.to_array(tensor), arrays[tensor.name])
    assert [tensor.name for tensor in loaded.graph.initializer] == ["W", "R", "B", "shape"]

    reference = onnx.ModelProto()
    reference.CopyFrom(model)
    del reference.graph.initializer[:3]
    reference.graph.initializer.extend(numpy_helper.from_array(v, k) for k, v in arrays.items())
    np.testing.assert_array_equal(run(str(path), x), run(reference.SerializeToString(), x))

    scope = next(walk(program(onnx_file.read(path))))
    for name, array in arrays.items():
        np.testing.assert_array_equal(scope.constant(name), array)
    files = {each.name for each in path.parent.iterdir()}
    assert files == {"model.onnx", *data_of(path)} and len(files) == 1 + bool(use_external)


@pytest.mark.parametrize("use_external", [False, True])
def test_bfloat16(path: Path, use_external: bool) -> None:
    model, arrays, _ = gru_model(TensorProto.BFLOAT16)
    write.write(path, model, arrays, use_external)
    onnx.checker.check_model(str(path))
    scope = next(walk(program(onnx_file.read(path))))
    for name, array in arrays.items():
        value = scope.constant(name)
        assert value is not None and value.dtype == BFLOAT16
        np.testing.assert_array_equal(value, array)


def test_external_numbers_begin_at_pages(path: Path) -> None:
    model, arrays, _ = gru_model()
    write.write(path, model, arrays, external=True)
    written = onnx.load(path, load_external_data=False)
    entries = [{e.key: e.value for e in t.external_data} for t in written.graph.initializer]
    (data,) = data_of(path)
    assert [e.get("location") for e in entries] == [data, data, None, None]
    assert all(int(e["offset"]) % 4096 == 0 for e in entries if e)


def test_large_models_become_external(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write, "PROTOBUF_BYTES", 5000)
    model, arrays, x = gru_model()
    with pytest.raises(UsageError):
        write.write(path, model, arrays, external=False)
    write.write(path, model, arrays)
    assert len(data_of(path)) == 1
    run(str(path), x)
    write.write(path, model, {**arrays, "W": arrays["W"] + 1})
    assert len(data_of(path)) == 1  # the old one is gone
    monkeypatch.undo()
    write.write(path, model, arrays)
    assert data_of(path) == []


class Failing:
    """An array that cannot be had after all."""

    shape = (1, 60, 20)
    dtype = np.dtype(np.float32)

    def pieces(self) -> Iterator[Array]:
        yield numbers(600)
        raise UnreadableError("source", "it went away")


@pytest.mark.parametrize("use_external", [False, True])
def test_failure_leaves_what_was_there(path: Path, use_external: bool) -> None:
    model, arrays, _ = gru_model()
    data = path.with_name("model.onnx.data")
    path.write_bytes(b"model")
    data.write_bytes(b"data")
    with pytest.raises(UnreadableError):
        write.write(path, model, arrays | {"W": Failing()}, use_external)
    assert path.read_bytes() == b"model" and data.read_bytes() == b"data"
    assert len(list(path.parent.iterdir())) == 2


def data_of(path: Path) -> list[str]:
    """The names of the files of numbers beside a model."""
    return [file.name for file in path.parent.iterdir() if re.fullmatch(r"model\.onnx\.[0-9a-f]{8}\.data", file.name)]


def test_data_go_if_the_model_cannot_follow(path: Path) -> None:
    model, arrays, _ = gru_model()
    path.mkdir()  # a folder in the place of the model: it cannot be replaced
    with pytest.raises(UsageError):
        write.write(path, model, arrays, external=True)
    assert {each.name for each in path.parent.iterdir()} == {"model.onnx"}


def test_equal_numbers_have_one_name(path: Path) -> None:
    model, arrays, _ = gru_model()
    write.write(path, model, arrays, external=True)
    before = path.read_bytes(), data_of(path)
    write.write(path, model, arrays, external=True)
    assert (path.read_bytes(), data_of(path)) == before
    write.write(path, model, {**arrays, "W": arrays["W"] + 1}, external=True)
    assert data_of(path) != before[1] and len(data_of(path)) == 1


def damage(model: onnx.ModelProto, arrays: dict[str, Array], how: str) -> None:
    if how == "shape":
        arrays["W"] = arrays["W"][:, :-1]
    elif how == "type":
        arrays["W"] = arrays["W"].astype(np.float64)
    elif how == "missing":
        del arrays["W"]
    elif how == "unknown":
        arrays["Q"] = arrays["W"]
    elif how == "twice":
        model.graph.initializer[0].raw_data = arrays["W"].tobytes()
    elif how == "operator":
        model.graph.node[0].op_type = "NoSuchOperator"
    elif how == "sizes":
        model.graph.output[0].type.tensor_type.shape.dim[1].dim_value = 7
    elif how == "name":
        model.graph.node[1].input[0] = "nowhere"


@pytest.mark.parametrize("how", ["shape", "type", "missing", "unknown", "twice", "operator", "sizes", "name"])
def test_models_that_are_not_valid(path: Path, how: str) -> None:
    model, arrays, _ = gru_model()
    damage(model, arrays, how)
    with pytest.raises(UsageError):
        write.write(path, model, arrays)
    assert not path.exists()


def test_a_scope_knows_its_nodes(path: Path) -> None:
    model, arrays, _ = gru_model()
    write.write(path, model, arrays)
    (scope,) = walk(program(onnx_file.read(path)))
    assert isinstance(scope, Scope)
    assert [each.kind for each in scope.nodes] == ["GRU", "Reshape"]
    assert scope.attributes(scope.nodes[0])["hidden_size"] == 20
    assert scope.opset == 17
