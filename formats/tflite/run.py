"""LiteRT, TFLite's interpreter of today, on a whole file or on recurrent operators of it.

An operator by its name is taken out of its model with LiteRT's own schema, and run alone. Source: ai_edge_litert 2.3. Models with
operators of TensorFlow's run in the interpreter of TensorFlow's packages, which have these up to 2.18.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rnnconvert.running.sequences import Sequences

Array = np.ndarray

NEEDS = ("ai_edge_litert",)
FORMAT = "tflite"
SUFFIX = ".tflite"
SUPPORTS = "LSTM with peepholes, projection, clips and coupled gates, plain RNN; two directions; integer weights; no lengths or gradients"
CANNOT = {
    "cotangents": "LiteRT computes no gradients",
    "lengths": "sequences of different lengths: TFLite's operators do not take them",
    "how": "the model already states what it computes",
}
VARIANTS: dict[str, dict[str, Any]] = {"litert-cpu": {"device": "cpu"}}
WHOLE_FILES = True

_STATES = {
    "UNIDIRECTIONAL_SEQUENCE_LSTM": (18, 19),
    "BIDIRECTIONAL_SEQUENCE_LSTM": (35, 36, 37, 38),
    "UNIDIRECTIONAL_SEQUENCE_RNN": (4,),
    "BIDIRECTIONAL_SEQUENCE_RNN": (4, 8),
}
"""The inputs of the operators that are states: hidden, and cell of an LSTM."""


def answer(request: Mapping[str, Any]) -> dict[str, Any]:
    """Run a file, or operators of it one after the other; see rnnconvert.running."""
    content = Path(request["file"]).read_bytes()
    sequences = Sequences.of(request)
    if not request["layers"]:
        return sequences.through([content], _run)

    def run(name: str, left: Sequences) -> dict[str, Any]:
        _check_bound(content, name, left)
        alone, (before, behind) = _alone(content, name)
        answer = _run(alone, left._replace(x=left.x[::-1]) if before else left)
        return {**answer, "y": answer["y"][::-1]} if behind else answer

    return sequences.through(request["layers"], run)


def witness(request: Mapping[str, Any]) -> None:
    """Run a model whole, keeping what its recurrent operators read and give; see rnnconvert.running."""
    seen, content = request["witness"], Path(request["file"]).read_bytes()
    model = _parsed(content)
    operators, turned = {}, {}  # type: dict[str, Any], dict[str, tuple[bool, bool]]
    for name in seen.layers:
        try:
            operators[name], turned[name] = _operator_of(model, name)
        except NotImplementedError as error:
            seen.explain(name, str(error))
    ready = _Ready(content)
    inputs = []
    for name, detail in zip(ready.input_names, ready.inputs, strict=True):
        dims = [int(size) if size > 0 else None for size in detail["shape_signature"]]
        inputs.append(seen.input(name, dims, "float32" if detail["quantization"][0] else np.dtype(detail["dtype"]).name))
    calls = seen.calls(inputs)
    seen.ordered = False  # converters order them as they like

    def call(arrays: Sequence[Array]) -> dict[str, Array]:
        ready.invoke(arrays)
        for name, operator in operators.items():
            # Where the directions are not merged, each has an output of its own.
            values = [[ready.value(int(place)) for place in some] for some in (operator.inputs[:1], operator.outputs)]
            x, y = (np.concatenate(some, axis=-1) for some in values)
            if not getattr(operator.builtinOptions, "timeMajor", False):
                x, y = x.swapaxes(0, 1), y.swapaxes(0, 1)
            before, behind = turned[name]
            seen.record(name, x[::-1] if before else x, y[::-1] if behind else y)
        return {name: ready.value(int(detail["index"])) for name, detail in zip(ready.output_names, ready.outputs, strict=True)}

    def shake(move: Callable[[Array], Array]) -> None:
        nonlocal ready
        ready = _Ready(_moved(content, move))

    seen.run(calls, call, lambda: ready.reset(), shake)


class _Ready:
    """A model whose every tensor can be read after it ran."""

    def __init__(self, content: bytes) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.interpreter = _interpreter(content, keep=True)
        self.inputs, self.outputs = self.interpreter.get_input_details(), self.interpreter.get_output_details()
        signature = next(iter(self.interpreter.get_signature_list().items()), None)
        self.input_names, self.output_names = (
            self._named(signature, side, details) for side, details in (("inputs", self.inputs), ("outputs", self.outputs))
        )
        if all(size >= 0 for detail in self.inputs for size in detail["shape_signature"]):
            self.interpreter.allocate_tensors()  # an open axis, for now of length 1, may be too short for what is padded
        self._shapes: list[tuple[int, ...]] = []  # those of the last run
        self._scales = {detail["index"]: (detail["quantization"], detail["dtype"]) for detail in self.interpreter.get_tensor_details()}

    def _named(self, signature: Any, side: str, details: Sequence[Mapping[str, Any]]) -> list[str]:
        """Return the names of inputs or outputs: the first signature's, otherwise their tensors'."""
        if signature is None:
            return [str(detail["name"]) for detail in details]
        runner = self.interpreter.get_signature_runner(signature[0])
        by_index = {int(detail["index"]): name for name, detail in getattr(runner, f"get_{side[:-1]}_details")().items()}
        return [by_index.get(int(detail["index"]), str(detail["name"])) for detail in details]

    def invoke(self, arrays: Sequence[Array]) -> None:
        """Run the model on its inputs, in their order."""
        shapes = [array.shape for array in arrays]
        if not self._shapes or self._shapes != shapes:
            for detail, array in zip(self.inputs, arrays, strict=True):
                if tuple(detail["shape"]) != array.shape or self._shapes:
                    self.interpreter.resize_tensor_input(detail["index"], array.shape)
            self.interpreter.allocate_tensors()
            self._shapes = shapes
        for detail, array in zip(self.inputs, arrays, strict=True):
            fed = _stored(array, detail["quantization"], detail["dtype"]) if array.dtype.kind == "f" else array
            self.interpreter.set_tensor(detail["index"], fed)
        self.interpreter.invoke()

    def reset(self) -> None:
        """Let the states begin with zeros."""
        if self._shapes:  # before a run there are none
            self.interpreter.reset_all_variables()

    def value(self, index: int) -> Array:
        """Return the numbers that a tensor stands for, after a run."""
        return _meant(self.interpreter.get_tensor(index), *self._scales[index])


def _moved(content: bytes, move: Callable[[Array], Array]) -> bytes:
    """Return a model whose constants of floating-point numbers are moved: of those stored in half precision what is computed with."""
    from ai_edge_litert import schema_py_generated as schema

    model = _parsed(content)
    _widen(model, schema)
    constants = {tensor.buffer for graph in model.subgraphs for tensor in graph.tensors if tensor.type == schema.TensorType.FLOAT32}
    for number in constants:
        buffer = model.buffers[number]
        if buffer.data is not None and len(buffer.data) > 4:  # one number may be an exponent, or what others are compared with
            buffer.data = np.frombuffer(move(np.frombuffer(bytes(buffer.data), "<f4")).tobytes(), np.uint8)
    return _packed(model)


def _widen(model: Any, schema: Any) -> None:
    """Store in single precision what a model stores in half, and leave out the operators that widen it."""
    for graph in model.subgraphs:
        operators, graph.operators = graph.operators, []
        for operator in operators:
            code = model.operatorCodes[operator.opcodeIndex]
            source = graph.tensors[operator.inputs[0]] if len(operator.inputs) else None
            data = None if source is None or source.type != schema.TensorType.FLOAT16 else model.buffers[source.buffer].data
            kind = max(code.builtinCode, code.deprecatedBuiltinCode)  # older files have the second alone
            if kind != schema.BuiltinOperator.DEQUANTIZE or data is None or not len(data):
                graph.operators.append(operator)
                continue
            wide = schema.BufferT()
            wide.data = np.frombuffer(np.frombuffer(bytes(data), "<f2").astype("<f4").tobytes(), np.uint8)
            graph.tensors[operator.outputs[0]].buffer = len(model.buffers)
            model.buffers.append(wide)


def _packed(model: Any) -> bytes:
    import flatbuffers

    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())


def _flex(content: bytes) -> list[str]:
    """Return the operators of TensorFlow's that a model has, by their names there."""
    from ai_edge_litert import schema_py_generated as schema

    model = schema.Model.GetRootAs(content, 0)
    names = [model.OperatorCodes(number).CustomCode() or b"" for number in range(model.OperatorCodesLength())]
    return sorted({name[4:].decode("utf-8", "replace") for name in names if name.startswith(b"Flex")})


def _module(content: bytes) -> Any:
    """Return the module whose interpreter runs a model. Raises NotImplementedError for TensorFlow's operators where none here runs them."""
    operators = _flex(content)
    if not operators:
        from ai_edge_litert import interpreter

        return interpreter
    release = (0, 0)
    with contextlib.suppress(ImportError):
        from tensorflow import __version__ as version
        from tensorflow.lite.python import interpreter

        release = (int(version.split(".")[0]), int(version.split(".")[1]))
    if not (2, 3) <= release < (2, 19):
        raise NotImplementedError(
            f"LiteRT lacks TensorFlow's operators ({', '.join(operators)}), and TensorFlow's packages run them up to 2.18. Install those "
            "in an environment of their own (pip install 'tensorflow<2.19' ai-edge-litert), and add its Python by "
            "its path: `rnnconvert executors add litert-cpu`"
        )
    return interpreter


def _interpreter(content: bytes, keep: bool = False) -> Any:
    module = _module(content)
    # The default resolver hands dense layers to XNNPACK, which has no recurrent operator and prints that it was made.
    return module.Interpreter(
        model_content=content,
        experimental_op_resolver_type=module.OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES,
        experimental_preserve_all_tensors=keep,
    )


def _run(content: bytes, sequences: Sequences) -> dict[str, Any]:
    """Run a model of one input and one output, as many sequences at a time as its states have room for."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        interpreter = _interpreter(content)
    inputs, outputs = interpreter.get_input_details(), interpreter.get_output_details()
    if len(inputs) != 1 or not outputs or len(inputs[0]["shape"]) != 3:
        raise NotImplementedError(f"the model has {len(inputs)} inputs and {len(outputs)} outputs: name its layers")
    places_by_kind = {"hidden": [], "cell": []}  # type: dict[str, list[int]]
    time_major = True
    for detail in interpreter._get_ops_details():
        for number, place in enumerate(_STATES.get(detail["op_name"], ())):
            places_by_kind["cell" if number % 2 and "LSTM" in detail["op_name"] else "hidden"].append(int(detail["inputs"][place]))
    if not places_by_kind["hidden"]:
        raise NotImplementedError("the model has no recurrent operator")
    time_major = _time_first(content)
    x = np.asarray(sequences.x)
    steps, batch, width = x.shape
    sizes = {tensor_detail["index"]: tensor_detail["shape"] for tensor_detail in interpreter.get_tensor_details()}
    room = max(1, int(sizes[places_by_kind["hidden"][0]][0]))
    interpreter.resize_tensor_input(inputs[0]["index"], (steps, room, width) if time_major else (room, steps, width))
    interpreter.allocate_tensors()
    scales = {
        tensor_detail["index"]: (tensor_detail["quantization"], tensor_detail["dtype"])
        for tensor_detail in interpreter.get_tensor_details()
    }
    ys = []
    ends = {key: [[] for _ in places] for key, places in places_by_kind.items()}  # type: dict[str, list[list[Array]]]
    for first in range(0, batch, room):
        chosen = np.arange(first, first + room).clip(max=batch - 1)  # the last one again where no more are left
        interpreter.reset_all_variables()
        for key, places in places_by_kind.items():
            for place, state in zip(places, getattr(sequences, key) or (), strict=False):
                interpreter.set_tensor(place, _stored(np.asarray(state)[chosen], *scales[place]))
        fed = x[:, chosen]
        interpreter.set_tensor(inputs[0]["index"], _stored(fed if time_major else fed.swapaxes(0, 1), *scales[inputs[0]["index"]]))
        interpreter.invoke()
        values = [_meant(interpreter.get_tensor(output["index"]), *scales[output["index"]]) for output in outputs]
        y = np.concatenate(values, axis=-1)
        ys.append(y if time_major else y.swapaxes(0, 1))
        for key, places in places_by_kind.items():
            for number, place in enumerate(places):
                ends[key][number].append(_meant(interpreter.get_tensor(place), *scales[place]))
    return {
        "y": np.concatenate(ys, axis=1)[:, :batch],
        **{key: [np.concatenate(rows)[:batch] for rows in of_state] for key, of_state in ends.items()},
    }


def _stored(array: Array, quantization: Sequence[float], dtype: Any) -> Array:
    """Return numbers as a tensor stores them: integers by its scale and zero point."""
    scale, zero = quantization
    if np.dtype(dtype).kind == "f":
        return np.asarray(array, dtype, order="C")
    limits = np.iinfo(dtype)
    return np.clip(np.round(array / np.float64(scale)) + zero, limits.min, limits.max).astype(dtype)


def _meant(array: Array, quantization: Sequence[float], dtype: Any) -> Array:
    """Return the numbers that a tensor stands for."""
    scale, zero = quantization
    return array if np.dtype(dtype).kind == "f" else ((array.astype(np.float64) - zero) * scale).astype(np.float32)


def _time_first(content: bytes) -> bool:
    """Return whether the recurrent operators of a model read (time, batch, values)."""
    model = _parsed(content)
    flags = {
        bool(operator.builtinOptions.timeMajor)
        for operator in model.subgraphs[0].operators
        if hasattr(operator.builtinOptions, "timeMajor")
    }
    if len(flags) != 1:
        raise NotImplementedError("some operators of the model read the time first, and others the batch: name its layers")
    return flags.pop()


def _parsed(content: bytes) -> Any:
    from ai_edge_litert import schema_py_generated as schema

    return schema.ModelT.InitFromObj(schema.Model.GetRootAs(content, 0))


def _words(model: Any) -> list[str]:
    """Return the names of a model's operators, by their place among its codes."""
    from ai_edge_litert import schema_py_generated as schema

    words = {number: word for word, number in vars(schema.BuiltinOperator).items() if isinstance(number, int)}
    return [words.get(max(code.deprecatedBuiltinCode, code.builtinCode), "") for code in model.operatorCodes]


def _operator_of(model: Any, name: str) -> tuple[Any, tuple[bool, bool]]:
    """Return a recurrent operator of a model, and whether the time is turned around before it and behind it."""
    graph, words = model.subgraphs[0], _words(model)
    chosen, seen = None, []  # type: Any, list[str]
    for operator in graph.operators:
        if words[operator.opcodeIndex] in _STATES:
            label = graph.tensors[operator.outputs[0]].name.decode("utf-8", "replace")
            label = label[:-2] if label.endswith(":0") else label
            seen.append(label)
            chosen = operator if label == name else chosen
    if chosen is None:
        raise NotImplementedError(f"the first graph has no operator of the layer {name!r}, only {', '.join(seen) or 'others'}")
    turning = [candidate for candidate in graph.operators if words[candidate.opcodeIndex] == "REVERSE_V2"]
    readers = [reading for reading in graph.operators if chosen.outputs[0] in reading.inputs]
    before = any(chosen.inputs[0] == turning_operator.outputs[0] for turning_operator in turning)
    behind = bool(readers) and all(reader in turning for reader in readers)
    return chosen, (before, before and behind)


def _check_bound(content: bytes, name: str, sequences: Sequences) -> None:
    """Raise NotImplementedError where a clip may act that the steps of the file do not reach from zeros: its layer is read without it."""
    model = _parsed(content)
    operator, _ = _operator_of(model, name)
    options, shape = operator.builtinOptions, model.subgraphs[0].tensors[operator.inputs[0]].shape
    bound = float(getattr(options, "cellClip", 0.0) or 0.0)
    steps = int(shape[0 if getattr(options, "timeMajor", False) else 1]) if shape is not None and len(shape) == 3 else 0
    largest = max((float(np.abs(state).max(initial=0)) for state in sequences.cell or ()), default=0.0)
    if 0 < steps <= bound < largest + len(sequences.x):
        raise NotImplementedError(
            f"its kernel clips the cell state at {bound:g}, which {steps} steps from zeros do not reach, and these sequences may"
        )


def _alone(content: bytes, name: str) -> tuple[bytes, tuple[bool, bool]]:
    """Return a model of one recurrent operator of another, and whether the time is turned around before it and behind it."""
    model = _parsed(content)
    graph, words = model.subgraphs[0], _words(model)
    chosen, turned = _operator_of(model, name)
    feeding = {int(operator.outputs[0]): operator for operator in graph.operators if words[operator.opcodeIndex] == "DEQUANTIZE"}
    unpacking = [feeding[int(tensor)] for tensor in chosen.inputs if int(tensor) in feeding and int(tensor) != int(chosen.inputs[0])]
    graph.operators, model.subgraphs, model.signatureDefs = [*unpacking, chosen], [graph], None
    graph.inputs, graph.outputs = [int(chosen.inputs[0])], [int(place) for place in chosen.outputs]
    return _packed(model), turned
