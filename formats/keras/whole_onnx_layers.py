"""One layer of Keras 3 as ONNX nodes: what it computes when a model runs, without training.

A tensor keeps Keras's axes, (batch, time, features) or (batch, rows, columns, channels); what ONNX wants otherwise is transposed
around the node. Sources: keras 3.15 keras/src/layers and keras/src/activations; onnx/docs/Operators.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx
from onnx import helper

from rnnconvert.core.arrays import Array, Pieced
from rnnconvert.core.errors import RefusedError
from rnnconvert.formats.keras.upgrade_old import Old

TARGET = "ONNX"
OPSET = 17


@dataclass(frozen=True)
class Value:
    """A tensor of the model.

    name    in the graph
    shape   its axes, None for those that are open
    masked  whether Keras hands a mask on with it
    """

    name: str
    shape: tuple[int | None, ...]
    masked: bool = False


def refuse(layer: str, feature: str, reason: str, remedy: str = "") -> RefusedError:
    """Return the error for what has no equivalent."""
    return RefusedError(feature, TARGET, reason, remedy, layer)


class Builder:
    """An ONNX graph under construction."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.arrays: dict[str, Array | Pieced] = {}
        self._taken: set[str] = set()

    def name(self, wanted: str) -> str:
        """Return a name that no value has."""
        name, number = wanted, 2
        while name in self._taken:
            name, number = f"{wanted}_{number}", number + 1
        self._taken.add(name)
        return name

    def constant(self, wanted: str, array: Array | Pieced) -> str:
        """Add stored numbers."""
        name = self.name(wanted)
        self.arrays[name] = array
        return name

    def integers(self, *values: int) -> str:
        """Return a list of whole numbers, stored once."""
        name = "integers_" + "_".join(map(str, values)).replace("-", "m")
        self._taken.add(name)
        self.arrays[name] = np.array(values, np.int64)
        return name

    def add(self, operator: str, inputs: Sequence[str], wanted: str, **attributes: Any) -> str:
        """Add a node with one output."""
        name = self.name(wanted)
        self.nodes.append(helper.make_node(operator, inputs, [name], name, **attributes))
        return name

    def transposed(self, value: str, order: Sequence[int], wanted: str) -> str:
        """Add a Transpose, unless nothing moves."""
        if list(order) == list(range(len(order))):
            return value
        return self.add("Transpose", [value], f"{wanted}/transposed", perm=list(order))


@dataclass(frozen=True)
class Facts:
    """A layer's configuration; what nobody asked for is refused at the end."""

    old: Old
    config: Mapping[str, Any]
    used: set[str]

    @property
    def name(self) -> str:
        """The layer's name."""
        return self.old.name

    def get(self, key: str, default: Any = None) -> Any:
        """Return what the configuration states."""
        self.used.add(key)
        return self.config.get(key, default)

    def need(self, key: str, *allowed: Any) -> None:
        """Check that a key, where it is stated, has one of some values. Raises RefusedError."""
        if (found := self.get(key, allowed[0])) not in allowed:
            raise refuse(self.name, f"{key} = {found!r}", f"only {' or '.join(map(repr, allowed))} is known here")

    def array(self, word: str) -> Array | None:
        """Return one of its weights."""
        return self.old.arrays.get(word)


Emit = Callable[[Builder, Facts, Sequence[Value]], Value]


def function(b: Builder, layer: str, spec: Any, value: Value) -> Value:
    """Add an activation function."""
    config: Mapping[str, Any] = {}
    if isinstance(spec, Mapping):
        config, spec = (
            spec.get("config") or {},
            spec.get("class_name") if not isinstance(spec.get("config"), str) else spec["config"],
        )
    if config and not isinstance(config, str):
        raise refuse(layer, f"the activation {spec!r} with settings of its own", "only those by name are known here")
    if spec in (None, "linear"):
        return value
    if spec in _PLAIN:
        operator, attributes = _PLAIN[spec]
        return replace(value, name=b.add(operator, [value.name], f"{layer}/{spec}", **attributes))
    if spec in ("silu", "swish"):
        opened = b.add("Sigmoid", [value.name], f"{layer}/sigmoid")
        return replace(value, name=b.add("Mul", [value.name, opened], f"{layer}/silu"))
    if spec == "gelu":
        scaled = b.add(
            "Div", [value.name, b.constant(f"{layer}/root", np.array(math.sqrt(2), np.float32))], f"{layer}/scaled"
        )
        error = b.add("Erf", [scaled], f"{layer}/erf")
        half = b.constant(f"{layer}/half", np.array(0.5, np.float32))
        share = b.add(
            "Mul",
            [b.add("Add", [error, b.constant(f"{layer}/one", np.array(1, np.float32))], f"{layer}/sum"), half],
            f"{layer}/share",
        )
        return replace(value, name=b.add("Mul", [value.name, share], f"{layer}/gelu"))
    if spec == "relu6":
        bounds = [
            b.constant(f"{layer}/{word}", np.array(bound, np.float32)) for word, bound in (("low", 0), ("high", 6))
        ]
        return replace(value, name=b.add("Clip", [value.name, *bounds], f"{layer}/relu6"))
    raise refuse(
        layer, f"the activation {spec!r}", f"the known ones are {', '.join(sorted([*_PLAIN, 'silu', 'gelu', 'relu6']))}"
    )


_PLAIN: Mapping[str, tuple[str, dict[str, Any]]] = {
    "relu": ("Relu", {}), "sigmoid": ("Sigmoid", {}), "tanh": ("Tanh", {}), "softmax": ("Softmax", {"axis": -1}),
    "elu": ("Elu", {"alpha": 1.0}), "selu": ("Selu", {}), "softplus": ("Softplus", {}), "softsign": ("Softsign", {}),
    "exponential": ("Exp", {}), "hard_sigmoid": ("HardSigmoid", {"alpha": 1 / 6, "beta": 0.5}),
    "leaky_relu": ("LeakyRelu", {"alpha": 0.2}), "log_softmax": ("LogSoftmax", {"axis": -1}),
}  # fmt: skip


def one_input(facts: Facts, values: Sequence[Value]) -> Value:
    """Return the only input of a layer. Raises RefusedError for several."""
    if len(values) != 1:
        raise refuse(facts.name, f"a {facts.old.kind} of {len(values)} inputs", "it takes one")
    return values[0]


def _dense(b: Builder, facts: Facts, values: Sequence[Value]) -> Value:
    x, name = one_input(facts, values), facts.name
    kernel, bias = facts.array("kernel"), facts.array("bias")
    if kernel is None:
        raise refuse(name, "a Dense without its kernel", "the file does not hold it")
    facts.get("units"), facts.get("use_bias")
    made = b.add("MatMul", [x.name, b.constant(f"{name}/kernel", kernel)], f"{name}/product")
    if bias is not None:
        made = b.add("Add", [made, b.constant(f"{name}/bias", bias)], f"{name}/sum")
    return function(b, name, facts.get("activation"), Value(made, (*x.shape[:-1], kernel.shape[1]), x.masked))


def _embedding(b: Builder, facts: Facts, values: Sequence[Value]) -> Value:
    x, table = one_input(facts, values), facts.array("embeddings")
    if table is None:
        raise refuse(facts.name, "an Embedding without its table", "the file does not hold it")
    facts.get("input_dim"), facts.get("output_dim")
    index = b.add("Cast", [x.name], f"{facts.name}/index", to=onnx.TensorProto.INT32)
    made = b.add("Gather", [b.constant(f"{facts.name}/embeddings", table), index], f"{facts.name}/rows", axis=0)
    return Value(made, (*x.shape, table.shape[1]), bool(facts.get("mask_zero")))


def _sizes(facts: Facts, key: str, axes: int, default: int = 1) -> list[int]:
    found = facts.get(key, default)
    found = default if found is None else found
    return [int(one) for one in found] if isinstance(found, (list, tuple)) else [int(found)] * axes


def _spatial(facts: Facts, x: Value, axes: int) -> None:
    facts.need("data_format", "channels_last", None)
    if len(x.shape) != axes + 2:
        raise refuse(facts.name, f"an input of {len(x.shape)} axes", f"it takes {axes + 2}")


def _window(
    facts: Facts, x: Value, kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int]
) -> tuple[dict[str, Any], tuple[int | None, ...]]:
    """Return how a convolution or pooling pads, and the lengths that come out."""
    padding = facts.get("padding", "valid")
    reach = [d * (k - 1) + 1 for k, d in zip(kernel, dilations, strict=True)]
    lengths = x.shape[1:-1]
    if padding == "same":
        if any(s > 1 for s in strides) and any(d > 1 for d in dilations):
            raise refuse(facts.name, "padding 'same' with strides and dilation", "ONNX runtimes differ there")
        out = tuple(None if n is None else -(-n // s) for n, s in zip(lengths, strides, strict=True))
        if all(s == 1 for s in strides):
            low = [(r - 1) // 2 for r in reach]
            return {"pads": [*low, *(r - 1 - a for r, a in zip(reach, low, strict=True))]}, out
        return {"auto_pad": "SAME_UPPER"}, out
    if padding not in ("valid", "causal"):
        raise refuse(facts.name, f"padding {padding!r}", "only valid, same and causal are known here")
    extra = [r - 1 if padding == "causal" else 0 for r in reach]
    out = tuple(
        None if n is None else (n + e - r) // s + 1 for n, e, r, s in zip(lengths, extra, reach, strides, strict=True)
    )
    return {"pads": [*extra, *[0] * len(extra)]}, out


def _convolution(axes: int) -> Emit:
    def emit(b: Builder, facts: Facts, values: Sequence[Value]) -> Value:
        x, name = one_input(facts, values), facts.name
        _spatial(facts, x, axes)
        kernel, bias = facts.array("kernel"), facts.array("bias")
        if kernel is None:
            raise refuse(name, "a convolution without its kernel", "the file does not hold it")
        for key in ("filters", "kernel_size", "use_bias"):
            facts.get(key)
        strides, dilations = _sizes(facts, "strides", axes), _sizes(facts, "dilation_rate", axes)
        pads, lengths = _window(facts, x, kernel.shape[:axes], strides, dilations)
        first = b.transposed(x.name, [0, axes + 1, *range(1, axes + 1)], f"{name}/in")
        weight = b.constant(f"{name}/kernel", np.ascontiguousarray(kernel.transpose([axes + 1, axes, *range(axes)])))
        inputs = [first, weight, *([b.constant(f"{name}/bias", bias)] if bias is not None else [])]
        made = b.add("Conv", inputs, f"{name}/convolved", strides=strides, dilations=dilations,
                     group=int(facts.get("groups", 1) or 1), kernel_shape=list(kernel.shape[:axes]), **pads)  # fmt: skip
        made = b.transposed(made, [0, *range(2, axes + 2), 1], f"{name}/out")
        return function(b, name, facts.get("activation"), Value(made, (x.shape[0], *lengths, kernel.shape[-1])))

    return emit


def _pooling(operator: str, axes: int) -> Emit:
    def emit(b: Builder, facts: Facts, values: Sequence[Value]) -> Value:
        x, name = one_input(facts, values), facts.name
        _spatial(facts, x, axes)
        size = _sizes(facts, "pool_size", axes, 2)
        strides = size if facts.get("strides") is None else _sizes(facts, "strides", axes)
        pads, lengths = _window(facts, x, size, strides, [1] * axes)
        if "pads" in pads and any(pads["pads"]) and operator == "AveragePool":
            pads["count_include_pad"] = 0
        first = b.transposed(x.name, [0, axes + 1, *range(1, axes + 1)], f"{name}/in")
        made = b.add(operator, [first], f"{name}/pooled", kernel_shape=size, strides=strides, **pads)
        made = b.transposed(made, [0, *range(2, axes + 2), 1], f"{name}/out")
        return Value(made, (x.shape[0], *lengths, x.shape[-1]))

    return emit


def _global(operator: str, axes: int) -> Emit:
    def emit(b: Builder, facts: Facts, values: Sequence[Value]) -> Value:
        x = one_input(facts, values)
        _spatial(facts, x, axes)
        unmasked(facts, x)
        keep = bool(facts.get("keepdims", False))
        made = b.add(operator, [x.name], f"{facts.name}/pooled", axes=list(range(1, axes + 1)), keepdims=int(keep))
        return Value(made, (x.shape[0], *([1] * axes if keep else []), x.shape[-1]))

    return emit


def unmasked(facts: Facts, *values: Value) -> None:
    """Check that a layer whose result a mask would change has none. Raises RefusedError."""
    if any(value.masked for value in values):
        raise refuse(
            facts.name, "a mask that the layer reads", "a mask drops single steps, and ONNX's operators know lengths alone",
            "Export the model without mask_zero or Masking, and give sequences without padding.",
        )  # fmt: skip


def scaled(b: Builder, facts: Facts, x: Value, scale: Array, shift: Array) -> Value:
    """Add a product and a sum with stored numbers."""
    made = b.add("Mul", [x.name, b.constant(f"{facts.name}/scale", scale)], f"{facts.name}/scaled")
    return replace(x, name=b.add("Add", [made, b.constant(f"{facts.name}/shift", shift)], f"{facts.name}/shifted"))


def _last_axis(facts: Facts, x: Value) -> None:
    axis = facts.get("axis", -1)
    axis = axis[0] if isinstance(axis, list) and len(axis) == 1 else axis
    if axis not in (-1, len(x.shape) - 1):
        raise refuse(facts.name, f"axis = {axis!r}", "only the last axis is known here")


def _batch_norm(b: Builder, facts: Facts, values: Sequence[Value]) -> Value:
    x = one_input(facts, values)
    _last_axis(facts, x)
    facts.need("renorm", False)
    mean, variance = facts.array("moving_mean"), facts.array("moving_variance")
    if mean is None or variance is None:
        raise refuse(facts.name, "a BatchNormalization without its moments", "the file does not hold them")
    gamma, beta = facts.array("gamma"), facts.array("beta")
    for key in (
        "momentum",
        "center",
        "scale",
        "synchronized",
        "renorm_momentum",
        "renorm_clipping",
        "virtual_batch_size",
    ):
        facts.get(key)
    factor = 1 / np.sqrt(variance.astype(np.float64) + float(facts.get("epsilon", 1e-3)))
    factor = factor if gamma is None else factor * gamma
    shift = (0 if beta is None else beta) - mean.astype(np.float64) * factor
    return scaled(b, facts, x, factor.astype(mean.dtype), np.asarray(shift, mean.dtype))


def _layer_norm(b: Builder, facts: Facts, values: Sequence[Value]) -> Value:
    x = one_input(facts, values)
    _last_axis(facts, x)
    facts.need("rms_scaling", False)
    facts.get("center"), facts.get("scale")
    width = x.shape[-1]
    gamma, beta = facts.array("gamma"), facts.array("beta")
    if width is None:
        raise refuse(facts.name, "a width that is open", "its scale needs it")
    gamma = np.ones(width, np.float32) if gamma is None else gamma
    inputs = [x.name, b.constant(f"{facts.name}/gamma", gamma)]
    if beta is not None:
        inputs.append(b.constant(f"{facts.name}/beta", beta))
    made = b.add(
        "LayerNormalization", inputs, f"{facts.name}/normal", axis=-1, epsilon=float(facts.get("epsilon", 1e-3))
    )
    return replace(x, name=made)


def _relu(b: Builder, facts: Facts, values: Sequence[Value]) -> Value:
    x, name = one_input(facts, values), facts.name
    facts.need("threshold", 0, 0.0, None)
    slope, highest = facts.get("negative_slope", 0) or 0, facts.get("max_value")
    made = (
        b.add("LeakyRelu", [x.name], f"{name}/relu", alpha=float(slope))
        if slope
        else b.add("Relu", [x.name], f"{name}/relu")
    )
    if highest is not None:
        made = b.add("Min", [made, b.constant(f"{name}/highest", np.array(highest, np.float32))], f"{name}/bounded")
    return replace(x, name=made)


def _activation(operator: str, **keys: str) -> Emit:
    def emit(b: Builder, facts: Facts, values: Sequence[Value]) -> Value:
        x = one_input(facts, values)
        if operator == "Softmax":
            unmasked(facts, x)
        stated = {key: facts.get(old) for key, old in keys.items()}
        if isinstance(stated.get("axis"), (list, tuple)):
            raise refuse(facts.name, f"axis = {stated['axis']!r}", "only one axis is known here")
        given = {
            key: int(value) if key == "axis" else float(value) for key, value in stated.items() if value is not None
        }
        return replace(x, name=b.add(operator, [x.name], f"{facts.name}/{operator.lower()}", **given))

    return emit


def _prelu(b: Builder, facts: Facts, values: Sequence[Value]) -> Value:
    x, alpha = one_input(facts, values), facts.array("alpha")
    facts.get("shared_axes")
    if alpha is None:
        raise refuse(facts.name, "a PReLU without its slopes", "the file does not hold them")
    return replace(x, name=b.add("PRelu", [x.name, b.constant(f"{facts.name}/alpha", alpha)], f"{facts.name}/prelu"))


WEIGHTS: Mapping[str, Emit] = {
    "Dense": _dense, "Embedding": _embedding, "Conv1D": _convolution(1), "Conv2D": _convolution(2),
    **{f"{word}Pooling{n}D": _pooling(operator, n) for n in (1, 2) for word, operator in (("Max", "MaxPool"), ("Average", "AveragePool"))},
    **{f"Global{word}Pooling{n}D": _global(operator, n) for n in (1, 2)
       for word, operator in (("Max", "ReduceMax"), ("Average", "ReduceMean"))},
    "BatchNormalization": _batch_norm, "LayerNormalization": _layer_norm, "ReLU": _relu,
    "LeakyReLU": _activation("LeakyRelu", alpha="negative_slope"), "ELU": _activation("Elu", alpha="alpha"),
    "Softmax": _activation("Softmax", axis="axis"), "PReLU": _prelu,
}  # fmt: skip
"""The layers with weights, functions and windows, by their classes."""
