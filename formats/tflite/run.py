"""LiteRT, TFLite's interpreter of today, on a whole file or on recurrent operators of it.

An operator by its name is taken out of its model with LiteRT's own schema, and run alone. Source: ai_edge_litert 2.3.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

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

_STATES = {
    "UNIDIRECTIONAL_SEQUENCE_LSTM": (18, 19),
    "BIDIRECTIONAL_SEQUENCE_LSTM": (35, 36, 37, 38),
    "UNIDIRECTIONAL_SEQUENCE_RNN": (4,),
    "BIDIRECTIONAL_SEQUENCE_RNN": (4, 8),
}
"""The inputs of the operators that are states: hidden, and cell of an LSTM."""


def absent(variant: Mapping[str, Any]) -> str:
    """Return why it cannot run here although its package is installed, or "" if it can."""
    return ""


def answer(request: Mapping[str, Any]) -> dict[str, Any]:
    """Run a file, or operators of it one after the other; see rnnconvert.running."""
    content = Path(request["file"]).read_bytes()
    states = {key: list(request.get(key) or []) for key in ("hidden", "cell")}
    if not request["layers"]:
        return _run(content, np.asarray(request["x"]), states)
    y, found = np.asarray(request["x"]), {"hidden": [], "cell": []}  # type: Array, dict[str, list[Array]]
    for name in request["layers"]:
        alone, turned = _alone(content, name)
        given = y[::-1] if turned[0] else y
        done = _run(alone, given, states)
        y = done["y"][::-1] if turned[1] else done["y"]
        for key in found:
            found[key] += done[key]
    return {"y": y, **found}


def witness(request: Mapping[str, Any]) -> None:
    """Run a model whole, keeping what its recurrent operators read and give; see rnnconvert.running."""
    seen, content = request["witness"], Path(request["file"]).read_bytes()
    model = _parsed(content)
    operators, turned = {}, {}  # type: dict[str, Any], dict[str, tuple[bool, bool]]
    for name in seen.layers:
        try:
            operators[name], turned[name] = _found(model, name)
        except NotImplementedError as error:
            seen.explain(name, str(error))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        interpreter = _interpreter(content, keep=True)
    feeds = []
    for one in interpreter.get_input_details():
        dims = [int(size) if size > 0 else None for size in one["shape_signature"]]
        drawn = seen.draw(dims, "float32" if one["quantization"][0] else np.dtype(one["dtype"]).name)
        if dims != list(one["shape"]):
            interpreter.resize_tensor_input(one["index"], drawn.shape)
        feeds.append((one["index"], _stored(drawn, one["quantization"], one["dtype"]) if drawn.dtype.kind == "f" else drawn))
    interpreter.allocate_tensors()
    scales = {one["index"]: (one["quantization"], one["dtype"]) for one in interpreter.get_tensor_details()}

    def run() -> None:
        for index, drawn in feeds:
            interpreter.set_tensor(index, drawn)
        interpreter.invoke()
        for name, one in operators.items():
            # Where the directions are not merged, each has an output of its own.
            values = [
                [_meant(interpreter.get_tensor(int(place)), *scales[int(place)]) for place in some]
                for some in (one.inputs[:1], one.outputs)
            ]
            x, y = (np.concatenate(some, axis=-1) for some in values)
            if not getattr(one.builtinOptions, "timeMajor", False):
                x, y = x.swapaxes(0, 1), y.swapaxes(0, 1)
            before, behind = turned[name]
            seen.record(name, x[::-1] if before else x, y[::-1] if behind else y)

    seen.twice(run, interpreter.reset_all_variables)


def _interpreter(content: bytes, keep: bool = False) -> Any:
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    # The default resolver hands dense layers to XNNPACK, which has no recurrent operator and prints that it was made.
    return Interpreter(
        model_content=content,
        experimental_op_resolver_type=OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES,
        experimental_preserve_all_tensors=keep,
    )


def _run(content: bytes, x: Array, states: dict[str, list[Array]]) -> dict[str, Any]:
    """Run a model of one input and one output, as many sequences at a time as its states have room for.

    states  initial ones, of which those of this model are taken away
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        interpreter = _interpreter(content)
    inputs, outputs = interpreter.get_input_details(), interpreter.get_output_details()
    if len(inputs) != 1 or not outputs or len(inputs[0]["shape"]) != 3:
        raise NotImplementedError(f"the model has {len(inputs)} inputs and {len(outputs)} outputs: name its layers")
    kept = {"hidden": [], "cell": []}  # type: dict[str, list[int]]
    time_major = True
    for one in interpreter._get_ops_details():
        for number, place in enumerate(_STATES.get(one["op_name"], ())):
            kept["cell" if number % 2 and "LSTM" in one["op_name"] else "hidden"].append(int(one["inputs"][place]))
    if not kept["hidden"]:
        raise NotImplementedError("the model has no recurrent operator")
    time_major = _time_first(content)
    own = {key: [states[key].pop(0) for _ in places] if states[key] else None for key, places in kept.items()}
    steps, batch, width = x.shape
    sizes = {one["index"]: one["shape"] for one in interpreter.get_tensor_details()}
    room = max(1, int(sizes[kept["hidden"][0]][0]))
    interpreter.resize_tensor_input(inputs[0]["index"], (steps, room, width) if time_major else (room, steps, width))
    interpreter.allocate_tensors()
    scales = {one["index"]: (one["quantization"], one["dtype"]) for one in interpreter.get_tensor_details()}
    ys = []
    ends = {key: [[] for _ in places] for key, places in kept.items()}  # type: dict[str, list[list[Array]]]
    for first in range(0, batch, room):
        sequences = np.arange(first, first + room).clip(max=batch - 1)  # the last one again where no more are left
        interpreter.reset_all_variables()
        for key, given in own.items():
            for place, state in zip(kept[key], given or [], strict=False):
                interpreter.set_tensor(place, _stored(np.asarray(state)[sequences], *scales[place]))
        fed = x[:, sequences]
        interpreter.set_tensor(inputs[0]["index"], _stored(fed if time_major else fed.swapaxes(0, 1), *scales[inputs[0]["index"]]))
        interpreter.invoke()
        found = [_meant(interpreter.get_tensor(one["index"]), *scales[one["index"]]) for one in outputs]
        y = np.concatenate(found, axis=-1)
        ys.append(y if time_major else y.swapaxes(0, 1))
        for key, places in kept.items():
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
        return np.ascontiguousarray(array, dtype)
    limits = np.iinfo(dtype)
    return np.clip(np.round(array / np.float64(scale)) + zero, limits.min, limits.max).astype(dtype)


def _meant(array: Array, quantization: Sequence[float], dtype: Any) -> Array:
    """Return the numbers that a tensor stands for."""
    scale, zero = quantization
    return array if np.dtype(dtype).kind == "f" else ((array.astype(np.float64) - zero) * scale).astype(np.float32)


def _time_first(content: bytes) -> bool:
    """Return whether the recurrent operators of a model read (time, batch, values)."""
    model = _parsed(content)
    found = {bool(one.builtinOptions.timeMajor) for one in model.subgraphs[0].operators if hasattr(one.builtinOptions, "timeMajor")}
    if len(found) != 1:
        raise NotImplementedError("some operators of the model read the time first, and others the batch: name its layers")
    return found.pop()


def _parsed(content: bytes) -> Any:
    from ai_edge_litert import schema_py_generated as schema

    return schema.ModelT.InitFromObj(schema.Model.GetRootAs(content, 0))


def _words(model: Any) -> list[str]:
    """Return the names of a model's operators, by their place among its codes."""
    from ai_edge_litert import schema_py_generated as schema

    words = {number: word for word, number in vars(schema.BuiltinOperator).items() if isinstance(number, int)}
    return [words.get(max(one.deprecatedBuiltinCode, one.builtinCode), "") for one in model.operatorCodes]


def _found(model: Any, name: str) -> tuple[Any, tuple[bool, bool]]:
    """Return a recurrent operator of a model, and whether the time is turned around before it and behind it."""
    graph, words = model.subgraphs[0], _words(model)
    chosen, seen = None, []  # type: Any, list[str]
    for one in graph.operators:
        if words[one.opcodeIndex] in _STATES:
            label = graph.tensors[one.outputs[0]].name.decode("utf-8", "replace")
            label = label[:-2] if label.endswith(":0") else label
            seen.append(label)
            chosen = one if label == name else chosen
    if chosen is None:
        raise NotImplementedError(f"the first graph has no operator of the layer {name!r}, only {', '.join(seen) or 'others'}")
    turning = [one for one in graph.operators if words[one.opcodeIndex] == "REVERSE_V2"]
    readers = [one for one in graph.operators if chosen.outputs[0] in one.inputs]
    before = any(chosen.inputs[0] == one.outputs[0] for one in turning)
    behind = bool(readers) and all(one in turning for one in readers)
    return chosen, (before, before and behind)


def _alone(content: bytes, name: str) -> tuple[bytes, tuple[bool, bool]]:
    """Return a model of one recurrent operator of another, and whether the time is turned around before it and behind it."""
    import flatbuffers

    model = _parsed(content)
    graph, words = model.subgraphs[0], _words(model)
    chosen, turned = _found(model, name)
    feeding = {int(one.outputs[0]): one for one in graph.operators if words[one.opcodeIndex] == "DEQUANTIZE"}
    unpacking = [feeding[int(tensor)] for tensor in chosen.inputs if int(tensor) in feeding and int(tensor) != int(chosen.inputs[0])]
    graph.operators, model.subgraphs, model.signatureDefs = [*unpacking, chosen], [graph], None
    graph.inputs, graph.outputs = [int(chosen.inputs[0])], [int(place) for place in chosen.outputs]
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output()), turned
