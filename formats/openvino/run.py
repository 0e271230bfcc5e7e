"""OpenVINO on the CPU, on a model that rnnconvert wrote, or on recurrent operations of any model.

Source: OpenVINO's Python API, 2026.4.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from rnnconvert.running.sequences import STATES, Sequences, outputs

Array = np.ndarray

NEEDS = ("openvino",)
FORMAT = "openvino"
SUFFIX = ".xml"
SUPPORTS = "RNN, GRU of both kinds, LSTM, with other functions; two directions; no lengths or gradients"
CANNOT = {
    "cotangents": "OpenVINO computes no gradients",
    "lengths": "sequences of different lengths: the models that are run have no input for them",
    "how": "the model already states what it computes",
}
VARIANTS: dict[str, dict[str, Any]] = {"openvino-cpu": {"device": "cpu"}}
WHOLE_FILES = True

_FLOATS = (np.float32, np.float64)
_SEQUENCES = {"LSTMSequence": 2, "GRUSequence": 1, "RNNSequence": 1}
"""The operations, and how many states each has."""


def library() -> Any:
    """Return the package, without the one next to it that reports each use of it to its makers."""
    sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]
    import openvino

    return openvino


def answer(request: Mapping[str, Any]) -> dict[str, Any]:
    """Run a whole model, or operations of it one after the other; see rnnconvert.running."""
    openvino = library()
    core = openvino.Core()
    sequences = Sequences.of(request)
    if not request["layers"]:
        return _whole_model(core, core.read_model(request["file"]), sequences)
    return sequences.through(request["layers"], lambda name, left: _alone(core, core.read_model(request["file"]), name, left))


def witness(request: Mapping[str, Any]) -> None:
    """Run a model whole, with what its operations read and give as further results; see rnnconvert.running."""
    core, seen = library().Core(), request["witness"]
    model = core.read_model(request["file"])
    nodes = {operation.get_friendly_name(): operation for operation in model.get_ops() if operation.get_type_name() in _SEQUENCES}
    for name in seen.layers:
        if name not in nodes:
            seen.explain(name, f"the model has no sequence {name!r}, only {', '.join(nodes)}")
    inputs = []
    for place, parameter in enumerate(model.inputs):
        dims = [axis.get_length() if axis.is_static else None for axis in parameter.get_partial_shape()]
        inputs.append(seen.input(_name(parameter, str(place)), dims, np.dtype(parameter.get_element_type().to_dtype()).name))
    calls = seen.calls(inputs)
    outputs_ = [_name(output, str(place)) for place, output in enumerate(model.outputs)]
    chosen = {name: nodes[name] for name in seen.layers if name in nodes}
    places: dict[str, list[int]] = {}
    total = len(model.outputs)
    for name, node in chosen.items():
        count = _SEQUENCES[node.get_type_name()]
        values = [node.input_value(place) for place in range(count + 2)] + [node.output(place) for place in range(count + 1)]
        places[name] = list(range(total, total + len(values)))
        model.add_results([library().opset13.result(value) for value in values])
        total += len(values)
    ready = _compiled(core, model)

    def call(arrays: Sequence[Array]) -> dict[str, Array]:
        done = ready(list(arrays))
        for name, node in chosen.items():
            count = _SEQUENCES[node.get_type_name()]
            read = [np.asarray(done[place]) for place in places[name]]
            (x, *states), (lengths, y, *finals) = read[: count + 1], read[count + 1 :]
            seen.record(
                name,
                x.swapaxes(0, 1),
                _joined(y),
                mask=np.arange(x.shape[1])[:, None] < lengths,
                states=[*(list(state.swapaxes(0, 1)) for state in states), *[[]] * (2 - count)],
                finals=[*(list(final.swapaxes(0, 1)) for final in finals), *[[]] * (2 - count)],
            )
        return {name: np.asarray(done[place]) for place, name in enumerate(outputs_)}

    constants = [operation for operation in model.get_ops() if operation.get_type_name() == "Constant"]
    begun = [(operation, np.array(operation.data)) for operation in constants if operation.get_element_type().to_dtype() in _FLOATS]

    def shake(move: Callable[[Array], Array]) -> None:
        nonlocal ready
        for number, (operation, values) in enumerate(begun):
            if values.size > 1:  # one number may be an exponent, or what others are compared with
                other = library().opset13.constant(move(values))
                operation.output(0).replace(other.output(0))
                begun[number] = other, values
        ready = _compiled(core, model)

    seen.run(calls, call, shake=shake)


def _name(port: Any, place: str) -> str:
    """Return the name of an input or an output, or its place where it has none."""
    return str(next(iter(sorted(port.get_names())), place))


def _compiled(core: Any, model: Any) -> Any:
    # By default it computes in bfloat16 where the processor has it, and spreads over all cores.
    return core.compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": 1})


def _whole_model(core: Any, model: Any, sequences: Sequences) -> dict[str, Any]:
    """Run a model of one stack, with the names that rnnconvert gives its outputs."""
    if sequences.stacked():
        raise NotImplementedError("the model has no inputs for initial states. Name its layers")
    names = [next(iter(sorted(output.get_names())), "") for output in model.outputs]
    if len(model.inputs) != 1 or "y" not in names:
        raise NotImplementedError(f"the model has {len(model.inputs)} inputs and the outputs {', '.join(names)}: name its layers")
    done = _compiled(core, model)(np.ascontiguousarray(sequences.x.swapaxes(0, 1), np.float32))
    values = [np.asarray(done[place]) for place in range(len(names))]
    ends: dict[str, list[Array]] = {"h_n": [], "c_n": []}
    for name, value in zip(names, values, strict=True):
        ends.get(name.rpartition("/")[2], []).extend(value.swapaxes(0, 1))
    return {"y": values[names.index("y")].swapaxes(0, 1), "hidden": ends["h_n"], "cell": ends["c_n"]}


def _alone(core: Any, model: Any, name: str, sequences: Sequences) -> dict[str, Any]:
    """Run one operation of a model with its own weights."""
    openvino = library()
    nodes = {operation.get_friendly_name(): operation for operation in model.get_ops() if operation.get_type_name() in _SEQUENCES}
    if name not in nodes:
        raise NotImplementedError(f"the model has no sequence {name!r}, only {', '.join(nodes)}")
    node = nodes[name]
    count = _SEQUENCES[node.get_type_name()]
    units = int(node.get_attributes()["hidden_size"])
    ways = 2 if str(node.get_attributes()["direction"]).lower() == "bidirectional" else 1
    steps, batch, _ = sequences.x.shape
    feeds = [np.ascontiguousarray(sequences.x.swapaxes(0, 1), np.float32)]
    stacked = sequences.first(ways).stacked()
    for part in STATES[:count]:
        if part not in stacked:
            _refuse_learned(node, part)
        states = stacked.get(part, np.zeros((ways, batch, units)))
        feeds.append(np.ascontiguousarray(states.swapaxes(0, 1), np.float32))
    feeds.append(np.full(batch, steps, np.int64))
    parameters = []
    for place, fed in enumerate(feeds):
        parameter = openvino.opset13.parameter(list(fed.shape), fed.dtype)
        node.input(place).replace_source_output(parameter.output(0))
        parameters.append(parameter)
    model_alone = openvino.Model([node.output(place) for place in range(1 + count)], parameters, "alone")
    model_alone.validate_nodes_and_infer_types()
    done = _compiled(core, model_alone)(feeds)
    y, *finals = (np.asarray(done[place]) for place in range(1 + count))
    return outputs(_joined(y), *(final.swapaxes(0, 1) for final in finals))


def _joined(y: Array) -> Array:
    """Return (batch, directions, time, units) as (time, batch, directions and units)."""
    return y.transpose(2, 0, 1, 3).reshape(y.shape[2], y.shape[0], -1)


def _refuse_learned(node: Any, part: str) -> None:
    """Raise NotImplementedError for a layer with a learned initial state, which nobody gives: what spreads it is a part of the model."""
    source = node.input_value(1 if part == "hidden" else 2).get_node()
    while source.get_type_name() in ("Broadcast", "Convert", "Tile"):
        source = source.input_value(0).get_node()
    if source.get_type_name() == "Constant" and np.any(source.get_data()):
        raise NotImplementedError("the layer has learned initial states; run the whole model")
