"""Whole models as files of each format that `export` writes, run there on arrays."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rnnconvert.files import weight_groups
from rnnconvert.formats.c_header import whole_run
from rnnconvert.formats.openvino.run import library
from rnnconvert.formats.tfjs.run import NodeJs, decoded, encoded
from tests.helpers.coreml_evaluate import Program
from tests.helpers.frameworks import executor
from tests.helpers.requirements import needed

Run = Callable[[Sequence[Any]], list[Any]]
FRAMEWORKS_WARN = [
    pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:Layer .* was passed an input with a mask:UserWarning"),
    pytest.mark.filterwarnings("ignore:You are using the legacy TorchScript:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:The tensor attributes:UserWarning"),
    pytest.mark.filterwarnings("ignore:::torch"),
    pytest.mark.filterwarnings("ignore:The structure of `inputs`:UserWarning"),
]
"""What the frameworks say of models that are as they should be."""


def _onnx(path: Path) -> Run:
    runtime = needed("onnxruntime", "onnxruntime")
    options = runtime.SessionOptions()
    options.log_severity_level = 4
    session = runtime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    names = [entry.name for entry in session.get_inputs()]
    return lambda inputs: list(session.run(None, dict(zip(names, inputs, strict=True))))


def _openvino(path: Path) -> Run:
    executor("openvino-cpu")
    model = library().Core().compile_model(str(path), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    return lambda inputs: [np.asarray(value) for value in model(list(inputs)).to_tuple()]


def _tflite(path: Path) -> Run:
    litert = needed("litert", "ai_edge_litert.interpreter")
    without = litert.OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    interpreter = litert.Interpreter(str(path), experimental_op_resolver_type=without)

    shapes: list[Any] = []

    def run(inputs: Sequence[Any]) -> list[Any]:
        details = interpreter.get_input_details()
        if [array.shape for array in inputs] != shapes:
            shapes[:] = [array.shape for array in inputs]
            for detail, array in zip(details, inputs, strict=True):
                interpreter.resize_tensor_input(detail["index"], array.shape)
            interpreter.allocate_tensors()
        for detail, array in zip(details, inputs, strict=True):
            interpreter.set_tensor(detail["index"], array)
        interpreter.invoke()
        return [interpreter.get_tensor(detail["index"]) for detail in interpreter.get_output_details()]

    return run


def _ncnn(path: Path) -> Run:
    """ncnn by hand, one sequence after the other, in float32 throughout."""
    ncnn = needed("ncnn", "ncnn")
    rows = [line.split() for line in path.read_text().splitlines()[2:]]
    inputs = [row[4] for row in rows if row[0] == "Input"]
    outputs = [row[-1] for row in rows if row[0] == "Noop"]
    net = ncnn.Net()
    net.opt.num_threads = 1
    for option in ("fp16_packed", "fp16_storage", "fp16_arithmetic", "bf16_storage"):
        setattr(net.opt, f"use_{option}", False)
    assert not net.load_param(str(path)) and not net.load_model(str(path.with_suffix(".bin")))

    def run(arrays: Sequence[Any]) -> list[Any]:
        by_sequence = []
        for number in range(len(arrays[0])):
            extractor = net.create_extractor()
            for name, array in zip(inputs, arrays, strict=True):
                dtype = np.int32 if array.dtype.kind == "i" else np.float32
                extractor.input(name, ncnn.Mat(np.ascontiguousarray(array[number], dtype)).clone())
            by_sequence.append([np.array(extractor.extract(name)[1]) for name in outputs])
        return [np.stack(values) for values in zip(*by_sequence, strict=True)]

    return run


_NODE: list[NodeJs] = []
"""The process of Node.js that runs every model, once there is one: its start takes longer than a model."""


def _tfjs(path: Path) -> Run:
    executor("tfjs-cpu")

    def run(inputs: Sequence[Any]) -> list[Any]:
        if _NODE:
            _NODE[0].ask("load", file=str(path))
        else:
            _NODE.append(NodeJs(str(path)))
        encoded_outputs = _NODE[0].ask("run", inputs=[encoded(np.asarray(array)) for array in inputs])["outputs"]
        return [decoded(output) for output in encoded_outputs]

    return run


def in_tensorflow(path: Path) -> Run:
    """A graph model of TensorFlow.js, whose nodes are TensorFlow's, in TensorFlow itself: it checks what each node states."""
    tensorflow, json_format = needed("tensorflow", "tensorflow"), needed("tensorflow", "google.protobuf.json_format")
    document = json.loads(path.read_bytes())
    numbers = weight_groups.read(path, document["weightsManifest"])[0]
    graph = tensorflow.compat.v1.GraphDef()
    json_format.ParseDict(document["modelTopology"], graph)
    for node in (*graph.node, *(node for function in graph.library.function for node in function.node_def)):
        if node.op == "Const":
            dtype = tensorflow.as_dtype(node.attr["dtype"].type)
            node.attr["value"].tensor.CopyFrom(tensorflow.make_tensor_proto(numbers[node.name].astype(dtype.as_numpy_dtype), dtype))
    reads, gives = ([tensor["name"] for tensor in document["signature"][side].values()] for side in ("inputs", "outputs"))
    with tensorflow.Graph().as_default() as built:
        tensorflow.import_graph_def(graph, name="")

    def run(inputs: Sequence[Any]) -> list[Any]:
        with tensorflow.compat.v1.Session(graph=built) as session:
            return list(session.run(gives, dict(zip(reads, inputs, strict=True))))

    return run


def _coreml(path: Path) -> Run:
    """coremltools' own values, operation by operation: Core ML itself runs on Apple's systems."""
    program = Program(path)
    return lambda inputs: program(*inputs)


def _c_header(path: Path) -> Run:
    executor("c-cc")
    model = whole_run.open_file(path)
    return lambda inputs: [*model.ran([("", np.asarray(array)) for array in inputs], ())[0].outputs]


RUNS: dict[str, Callable[[Path], Run]] = {
    "onnx": _onnx,
    "h": _c_header,
    "xml": _openvino,
    "tflite": _tflite,
    "param": _ncnn,
    "json": _tfjs,
    "mlpackage": _coreml,
}
"""What runs a file, by its ending."""
