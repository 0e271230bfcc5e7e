"""The layers with weights of an ONNX graph, as rnnconvert.scaffolding.description has them. Source: onnx/docs/Operators.md."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rnnconvert.core.arrays import as_written
from rnnconvert.graphs.sizes import Dims
from rnnconvert.models.model import Unit
from rnnconvert.recognition.graph_layers import GraphLayer, number
from rnnconvert.scaffolding import kinds
from rnnconvert.scaffolding.programs.reading import GraphReading
from rnnconvert.scaffolding.tensors import SourceTensor
from rnnconvert.scaffolding.windows import ConvSettings, Pads, conv, conv_transposed, reached, same


def layer(r: GraphReading, unit: Unit, layer: GraphLayer, x: SourceTensor) -> SourceTensor:
    """Return the output of a layer."""
    rule = _LAYERS.get(layer.operator)
    if rule is None:
        raise r.build.refuse(f"a layer {layer.operator}", "no line is known for it")
    if x.dtype != "float32" and layer.operator != "Gather":
        raise r.build.refuse(f"a layer {layer.operator} of {x.dtype}", "only float32 is known here")
    return rule(r, unit, layer, x)


def _shape(layer: GraphLayer, word: str) -> tuple[int, ...]:
    array = layer.scope.constant(layer.values[word])
    assert array is not None
    return tuple(array.shape)


def _dense(r: GraphReading, unit: Unit, layer: GraphLayer, x: SourceTensor) -> SourceTensor:
    weight = _shape(layer, "B")
    inputs, units = weight[::-1] if layer.operator == "Gemm(transB=1)" else weight
    if x.rank < 2:
        raise r.build.refuse(f"a product of {x.dims} with a matrix of {weight}", "it has one axis")
    r.build.need(x.dims[-1], inputs)
    dims = (*x.dims[:-1], units)
    return r.build.add_layer(kinds.Dense(units=units, bias="C" in layer.values), [x], dims, layer=unit.name)


def _embedding(r: GraphReading, unit: Unit, layer: GraphLayer, x: SourceTensor) -> SourceTensor:
    rows, width = _shape(layer, "data")
    return r.build.add_layer(kinds.Embedding(input_size=rows, output_size=width), [x], (*x.dims, width), "float32", layer=unit.name)


# Windows


def listed(values: Mapping[str, Any], key: str, rank: int, default: int = 1) -> tuple[int, ...]:
    """Return an attribute that has a number for each axis of space."""
    stated = tuple(int(n) for n in values.get(key) or [default] * rank)
    if len(stated) != rank:
        raise ValueError(f"{key} of {len(stated)} numbers for {rank} axes")
    return stated


def padding(r: GraphReading, values: Mapping[str, Any], space: Dims, reach: Sequence[int], strides: Sequence[int]) -> Pads:
    """Return how many places are added at both ends of each axis of space.

    Raises RefusedError if that depends on lengths that a run decides.
    """
    rank, auto = len(space), values.get("auto_pad", "NOTSET")
    if auto in ("NOTSET", "VALID"):
        stated = listed(values, "pads", 2 * rank, 0) if auto == "NOTSET" else (0,) * 2 * rank
        if min(stated) < 0:
            raise r.build.refuse("pads below zero", "they would take places away")
        return tuple(zip(stated[:rank], stated[rank:], strict=True))
    if auto not in ("SAME_UPPER", "SAME_LOWER"):
        raise ValueError(f"auto_pad {auto!r}")
    pairs = []
    for length, window, step in zip(space, reach, strides, strict=True):
        if step > 1 and not isinstance(length, int):
            raise r.build.refuse(f"auto_pad {auto!r} with strides over an open length", "how many places it adds is decided by a run")
        less, more = same(window, step, length) if isinstance(length, int) else same(window)
        pairs.append((less, more) if auto == "SAME_UPPER" else (more, less))
    return tuple(pairs)


def _window(r: GraphReading, unit: Unit, layer: GraphLayer, x: SourceTensor) -> tuple[Mapping[str, Any], ConvSettings]:
    """Return the attributes of a convolution, and its settings."""
    values = r.attributes(layer.scope, layer.nodes[0])
    kernel = _shape(layer, "W")[2:]
    rank = len(kernel)
    if x.rank != rank + 2 or rank not in (1, 2, 3):
        raise r.build.refuse(f"a convolution over {x.rank - 2} axes", "one, two and three are known here")
    if tuple(values.get("kernel_shape") or kernel) != kernel:
        raise ValueError("kernel_shape is not the weight's")
    strides, dilation = listed(values, "strides", rank), listed(values, "dilations", rank)
    return values, ConvSettings(unit.name, strides, dilation, int(values.get("group", 1)), "B" in layer.values)


def _conv(r: GraphReading, unit: Unit, layer: GraphLayer, x: SourceTensor) -> SourceTensor:
    (values, settings), weight = _window(r, unit, layer, x), _shape(layer, "W")
    r.build.need(x.dims[1], weight[1] * settings.groups)
    pads = padding(r, values, x.dims[2:], reached(weight[2:], settings.dilation), settings.strides)
    return conv(r.build, x, weight, pads, settings)


def _conv_transposed(r: GraphReading, unit: Unit, layer: GraphLayer, x: SourceTensor) -> SourceTensor:
    (values, settings), weight = _window(r, unit, layer, x), _shape(layer, "W")
    if values.get("output_shape") or values.get("auto_pad", "NOTSET") not in ("NOTSET", "VALID"):
        raise r.build.refuse("a ConvTranspose that states its output's shape or auto_pad", "its pads then depend on the input")
    r.build.need(x.dims[1], weight[0])
    pads = padding(r, values, x.dims[2:], reached(weight[2:], settings.dilation), settings.strides)
    return conv_transposed(r.build, x, weight, pads, listed(values, "output_padding", len(weight) - 2, 0), settings)


# Norms


def _epsilon(layer: GraphLayer) -> float:
    return float(layer.facts.get("epsilon", 1e-5))


def _batch_norm(r: GraphReading, unit: Unit, layer: GraphLayer, x: SourceTensor) -> SourceTensor:
    node, attributes = layer.nodes[0], layer.scope.attributes(layer.nodes[0])
    if number(attributes, "training_mode", 0) or any(node.outputs[1:]) or not number(attributes, "spatial", 1):
        raise r.build.refuse(
            "a BatchNormalization in training, or of every place by itself", "it is written as it runs on what it has learned"
        )
    (size,) = _shape(layer, "scale")
    if x.rank < 2:
        raise ValueError(f"{size} channels for a tensor of {x.dims}")
    r.build.need(x.dims[1], size)
    momentum = as_written(number(attributes, "momentum", 0.9))
    return r.build.add_layer(
        kinds.BatchNorm(axis=1, size=size, epsilon=_epsilon(layer), momentum=momentum, scale=True, shift=True), [x], x.dims, layer=unit.name
    )


def _layer_norm(kind: type[kinds.LastAxesNorm]) -> Callable[[GraphReading, Unit, GraphLayer, SourceTensor], SourceTensor]:
    def rule(r: GraphReading, unit: Unit, layer: GraphLayer, x: SourceTensor) -> SourceTensor:
        sizes = _shape(layer, "scale")
        if any(layer.nodes[0].outputs[1:]) or x.rank < len(sizes):
            raise r.build.refuse(
                f"a {kind.word} that gives more than its output, or of other axes than the last", "no line is known for it"
            )
        for dim, size in zip(x.dims[-len(sizes) :], sizes, strict=True):
            r.build.need(dim, size)
        return r.build.add_layer(kind(_epsilon(layer), True, "B" in layer.values, sizes), [x], x.dims, layer=unit.name)

    return rule


def _instance_norm(r: GraphReading, unit: Unit, layer: GraphLayer, x: SourceTensor) -> SourceTensor:
    (size,) = _shape(layer, "scale")
    if x.rank not in (3, 4, 5):
        raise r.build.refuse(f"an InstanceNormalization of {x.rank} axes", "one to three axes of space are known here")
    r.build.need(x.dims[1], size)
    return r.build.add_layer(kinds.InstanceNorm(size=size, epsilon=_epsilon(layer)), [x], x.dims, layer=unit.name)


def _group_norm(r: GraphReading, unit: Unit, layer: GraphLayer, x: SourceTensor) -> SourceTensor:
    size, groups = max(_shape(layer, "scale")), int(layer.facts["num_groups"])
    if x.rank < 2 or size % groups:
        raise r.build.refuse(f"a group norm of {groups} groups with {size} scales", "it has one scale a channel")
    r.build.need(x.dims[1], size)
    return r.build.add_layer(kinds.GroupNorm(_epsilon(layer), True, True, 1, groups, size), [x], x.dims, layer=unit.name)


def _prelu(r: GraphReading, unit: Unit, layer: GraphLayer, x: SourceTensor) -> SourceTensor:
    slopes = (*(1,) * (x.rank - len(_shape(layer, "slope"))), *_shape(layer, "slope"))
    long = [axis for axis, size in enumerate(slopes) if size > 1]
    axis = long[0] if long else 1
    if len(slopes) != x.rank or len(long) > 1 or axis == 0 or (long and x.dims[axis] != slopes[axis]):
        raise r.build.refuse(f"a PRelu with slopes of shape {slopes}", "a slope for each channel is known here, or one for all")
    return r.build.add_layer(kinds.PReLU.along(axis, max(slopes), x.rank), [x], x.dims, layer=unit.name)


_LAYERS = {
    "Gemm": _dense,
    "Gemm(transB=1)": _dense,
    "MatMul": _dense,
    "Gather": _embedding,
    "Conv": _conv,
    "ConvTranspose": _conv_transposed,
    "BatchNormalization": _batch_norm,
    "LayerNormalization": _layer_norm(kinds.LayerNorm),
    "RMSNormalization": _layer_norm(kinds.RMSNorm),
    "InstanceNormalization": _instance_norm,
    "GroupNormalization": _group_norm,
    "PRelu": _prelu,
}
