"""One layer of Keras 3 as ONNX nodes: what it computes when a model runs, without training.

A tensor keeps Keras's axes, (batch, time, features) or (batch, rows, columns, channels); what ONNX wants otherwise is transposed
around the node. Sources: keras 3.15 keras/src/layers and keras/src/activations; onnx/docs/Operators.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import onnx

from rnnconvert.core.arrays import Array
from rnnconvert.formats.keras.export.layer_facts import LayerFacts, ModelTensor, refuse
from rnnconvert.formats.onnx.proto.nodes import ProtoNodes

OPSET = 17
V = TypeVar("V")


class GraphBuilder(ProtoNodes):
    """An ONNX graph under construction.

    recurrent  its recurrent nodes by name
    dtypes     the types of values that are not float32
    masks      the masks that Keras keeps beside values, by the value's name: the same name is the same tensor in Keras
    steps      what recurrent layers need of a mask, by its name
    """

    def __init__(self) -> None:
        super().__init__()
        self.recurrent: list[str] = []
        self.dtypes: dict[str, str] = {}
        self.masks: dict[str, ModelTensor] = {}
        self.steps: dict[str, Any] = {}
        self._reserved: set[str] = set()

    def name(self, wanted: str) -> str:
        """Return a name that no value has."""
        name, number = wanted, 2
        while name in self._reserved:
            name, number = f"{wanted}_{number}", number + 1
        self._reserved.add(name)
        return name

    def shared(self, wanted: str, array: Array) -> str:
        """Return the name of numbers that are stored once."""
        self._reserved.add(wanted)
        return super().shared(wanted, array)

    def truth(self, operator: str, inputs: Sequence[str], wanted: str, shape: Sequence[int | None], **attributes: Any) -> ModelTensor:
        """Add a node that gives truths."""
        name = self.add(operator, inputs, wanted, **attributes)
        self.dtypes[name] = "bool"
        return ModelTensor(name, tuple(shape))

    def prune(self, outputs: Sequence[str]) -> None:
        """Drop the nodes and numbers on which no output depends: masks that no layer reads."""
        read = set(outputs)
        needed = []
        for node in reversed(self.nodes):
            if read.intersection(node.output):
                needed.append(node)
                read.update(node.input)
        self.nodes = needed[::-1]
        self.arrays = {name: array for name, array in self.arrays.items() if name in read}

    def transposed(self, value: str, order: Sequence[int], wanted: str) -> str:
        """Add a Transpose, unless nothing moves."""
        if list(order) == list(range(len(order))):
            return value
        return self.add("Transpose", [value], f"{wanted}/transposed", perm=list(order))


Emit = Callable[[GraphBuilder, LayerFacts, Sequence[ModelTensor]], ModelTensor]
EmitAll = Callable[[GraphBuilder, LayerFacts, Sequence[ModelTensor]], list[ModelTensor]]


def function(build: GraphBuilder, layer: str, spec: Any, value: ModelTensor) -> ModelTensor:
    """Add an activation function."""
    config: Mapping[str, Any] = {}
    if isinstance(spec, Mapping):
        config, spec = (spec.get("config") or {}, spec.get("class_name") if not isinstance(spec.get("config"), str) else spec["config"])
    if config and not isinstance(config, str):
        raise refuse(layer, f"the activation {spec!r} with settings of its own", "only those by name are known here")
    if spec in (None, "linear"):
        return value
    if spec in _PLAIN:
        operator, attributes = _PLAIN[spec]
        return replace(value, name=build.add(operator, [value.name], f"{layer}/{spec}", **attributes))
    if spec in ("silu", "swish"):
        opened = build.add("Sigmoid", [value.name], f"{layer}/sigmoid")
        return replace(value, name=build.add("Mul", [value.name, opened], f"{layer}/silu"))
    if spec == "gelu":
        scaled = build.add("Div", [value.name, build.constant(f"{layer}/root", np.array(math.sqrt(2), np.float32))], f"{layer}/scaled")
        error = build.add("Erf", [scaled], f"{layer}/erf")
        half = build.constant(f"{layer}/half", np.array(0.5, np.float32))
        share = build.add(
            "Mul",
            [build.add("Add", [error, build.constant(f"{layer}/one", np.array(1, np.float32))], f"{layer}/sum"), half],
            f"{layer}/share",
        )
        return replace(value, name=build.add("Mul", [value.name, share], f"{layer}/gelu"))
    if spec == "relu6":
        bounds = [build.constant(f"{layer}/{word}", np.array(bound, np.float32)) for word, bound in (("low", 0), ("high", 6))]
        return replace(value, name=build.add("Clip", [value.name, *bounds], f"{layer}/relu6"))
    raise refuse(layer, f"the activation {spec!r}", f"the known ones are {', '.join(sorted([*_PLAIN, 'silu', 'gelu', 'relu6']))}")


_PLAIN: Mapping[str, tuple[str, dict[str, Any]]] = {
    "relu": ("Relu", {}),
    "sigmoid": ("Sigmoid", {}),
    "tanh": ("Tanh", {}),
    "softmax": ("Softmax", {"axis": -1}),
    "elu": ("Elu", {"alpha": 1.0}),
    "selu": ("Selu", {}),
    "softplus": ("Softplus", {}),
    "softsign": ("Softsign", {}),
    "exponential": ("Exp", {}),
    "hard_sigmoid": ("HardSigmoid", {"alpha": 1 / 6, "beta": 0.5}),
    "leaky_relu": ("LeakyRelu", {"alpha": 0.2}),
    "log_softmax": ("LogSoftmax", {"axis": -1}),
}


def one_input(facts: LayerFacts, values: Sequence[V]) -> V:
    """Return the only input of a layer. Raises RefusedError for several."""
    if len(values) != 1:
        raise refuse(facts.name, f"a {facts.old.kind} of {len(values)} inputs", "it takes one")
    return values[0]


def _dense(build: GraphBuilder, facts: LayerFacts, values: Sequence[ModelTensor]) -> ModelTensor:
    x, name = one_input(facts, values), facts.name
    kernel, bias = facts.weight("kernel"), facts.array("bias")
    facts.get("units"), facts.get("use_bias")
    output = build.add("MatMul", [x.name, build.constant(f"{name}/kernel", kernel)], f"{name}/product")
    if bias is not None:
        output = build.add("Add", [output, build.constant(f"{name}/bias", bias)], f"{name}/sum")
    return function(build, name, facts.get("activation"), ModelTensor(output, (*x.shape[:-1], kernel.shape[1])))


def _embedding(build: GraphBuilder, facts: LayerFacts, values: Sequence[ModelTensor]) -> ModelTensor:
    x, table = one_input(facts, values), facts.weight("embeddings")
    facts.get("input_dim"), facts.get("output_dim")
    index = build.add("Cast", [x.name], f"{facts.name}/index", to=onnx.TensorProto.INT32)
    output = build.add("Gather", [build.constant(f"{facts.name}/embeddings", table), index], f"{facts.name}/rows", axis=0)
    if facts.get("mask_zero"):
        zero = build.constant(f"{facts.name}/zero", np.array(0, build.dtypes.get(x.name, "float32")))
        same = build.truth("Equal", [x.name, zero], f"{facts.name}/padding", x.shape)
        build.masks[output] = build.truth("Not", [same.name], f"{facts.name}/mask", x.shape)
    return ModelTensor(output, (*x.shape, table.shape[1]))


def bounded(build: GraphBuilder, name: str, value: str, low: float, high: float | None) -> str:
    """Add a Clip."""
    bounds = [build.constant(f"{name}/low", np.array(low, np.float32))]
    if high is not None:
        bounds.append(build.constant(f"{name}/high", np.array(high, np.float32)))
    return build.add("Clip", [value, *bounds], f"{name}/bounded")


def _relu(build: GraphBuilder, facts: LayerFacts, values: Sequence[ModelTensor]) -> ModelTensor:
    x, name = one_input(facts, values), facts.name
    slope, highest = float(facts.get("negative_slope", 0) or 0), facts.get("max_value")
    threshold = float(facts.get("threshold", 0) or 0)
    if not slope and not threshold and highest is None:
        return replace(x, name=build.add("Relu", [x.name], f"{name}/relu"))
    if slope and not threshold and highest is None:
        return replace(x, name=build.add("LeakyRelu", [x.name], f"{name}/relu", alpha=slope))
    output, bound = x.name, build.constant(f"{name}/threshold", np.array(threshold, np.float32))
    if threshold:
        above = build.add("Greater", [output, bound], f"{name}/above")
        output = build.add("Where", [above, output, build.constant(f"{name}/zero", np.array(0, np.float32))], f"{name}/kept")
    if highest is not None or not threshold:
        output = bounded(build, name, output, 0, None if highest is None else float(highest))
    if slope:
        below = build.add("Relu", [build.add("Sub", [bound, x.name], f"{name}/below")], f"{name}/negative")
        part = build.add("Mul", [below, build.constant(f"{name}/slope", np.array(slope, np.float32))], f"{name}/part")
        output = build.add("Sub", [output, part], f"{name}/relu")
    return replace(x, name=output)


def _activation(operator: str, **keys: str) -> Emit:
    def emit(build: GraphBuilder, facts: LayerFacts, values: Sequence[ModelTensor]) -> ModelTensor:
        x = one_input(facts, values)
        if operator == "Softmax" and (build.masks.get(x.name) or facts.named):
            raise refuse(facts.name, "a mask on what a Softmax reads", "Keras spreads it over the wrong axes")
        stated = {key: facts.get(old) for key, old in keys.items()}
        if isinstance(stated.get("axis"), (list, tuple)):
            raise refuse(facts.name, f"axis = {stated['axis']!r}", "only one axis is known here")
        settings = {key: int(value) if key == "axis" else float(value) for key, value in stated.items() if value is not None}
        return replace(x, name=build.add(operator, [x.name], f"{facts.name}/{operator.lower()}", **settings))

    return emit


def _prelu(build: GraphBuilder, facts: LayerFacts, values: Sequence[ModelTensor]) -> ModelTensor:
    x = one_input(facts, values)
    facts.get("shared_axes")
    slopes = build.constant(f"{facts.name}/alpha", facts.weight("alpha"))
    return replace(x, name=build.add("PRelu", [x.name, slopes], f"{facts.name}/prelu"))


WEIGHTS: Mapping[str, Emit] = {
    "Dense": _dense,
    "Embedding": _embedding,
    "ReLU": _relu,
    "PReLU": _prelu,
    "LeakyReLU": _activation("LeakyRelu", alpha="negative_slope"),
    "ELU": _activation("Elu", alpha="alpha"),
    "Softmax": _activation("Softmax", axis="axis"),
}
"""Dense layers, embeddings and functions, by their classes."""
