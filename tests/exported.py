"""Whole models as files of each format that `export` writes, run there on arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rnnconvert.formats.openvino.run import library
from rnnconvert.formats.tfjs.run import NodeJs, decoded, encoded
from tests.frameworks import executor
from tests.requirements import needed

Run = Callable[[Sequence[Any]], list[Any]]


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

    def run(inputs: Sequence[Any]) -> list[Any]:
        details = interpreter.get_input_details()
        for detail, array in zip(details, inputs, strict=True):
            interpreter.resize_tensor_input(detail["index"], array.shape)
        interpreter.allocate_tensors()
        for detail, array in zip(details, inputs, strict=True):
            interpreter.set_tensor(detail["index"], array)
        interpreter.invoke()
        return [interpreter.get_tensor(detail["index"]) for detail in interpreter.get_output_details()]

    return run


def _tfjs(path: Path) -> Run:
    executor("tfjs-cpu")

    def run(inputs: Sequence[Any]) -> list[Any]:
        with NodeJs(str(path)) as node:
            encoded_outputs = node.ask("run", inputs=[encoded(np.asarray(array)) for array in inputs])["outputs"]
        return [decoded(output) for output in encoded_outputs]

    return run


RUNS: dict[str, Callable[[Path], Run]] = {"onnx": _onnx, "xml": _openvino, "tflite": _tflite, "json": _tfjs}
"""What runs a file, by its ending."""
