"""A described model as layers of ncnn: a rule for each kind of node.

Source: ncnn src/layer/*.cpp, load_param and forward of each type.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from rnnconvert.core.arrays import Array
from rnnconvert.core.errors import RefusedError, UsageError
from rnnconvert.core.remedies import Flag, TargetSetting
from rnnconvert.core.weights import Direction, Layer, Recurrent
from rnnconvert.formats.ncnn.export_net import net_export
from rnnconvert.formats.ncnn.export_steps import OpenStepsError, count_of, loop, written_out
from rnnconvert.formats.ncnn.export_tensors import TENSORS
from rnnconvert.formats.ncnn.export_writer import TITLE, NetWriter, real
from rnnconvert.formats.ncnn.files import ORDER, parameters
from rnnconvert.language import registry
from rnnconvert.language.packing import pack
from rnnconvert.rewrites.fit_to_layout import fit_to_layout
from rnnconvert.scaffolding import kinds
from rnnconvert.scaffolding.description import Description, Node, Rules, on
from rnnconvert.scaffolding.directions import WAYS
from rnnconvert.scaffolding.export_target import ExportedGraph
from rnnconvert.scaffolding.graph.checks import fixed
from rnnconvert.scaffolding.tried_axes import likelier
from rnnconvert.scaffolding.walk import INNER
from rnnconvert.scaffolding.weights import LayerWeights
from rnnconvert.scaffolding.windows import over_one_axis, pads_at

_MOST_TRIED = 16
ADD, SUBTRACT, MULTIPLY = 0, 1, 2


_MOST_STEPS = 4096


def exported(description: Description, weights: LayerWeights, steps: str = "") -> ExportedGraph:
    """Return a described model in ncnn's layers.

    steps  how many steps its sequences have, where layers are written out; a stream of such layers comes step by step without

    Which axis of its inputs is the batch is tried, the first one first. Raises RefusedError for a layer or a setting without an equivalent.
    """
    if steps and not (steps.isdecimal() and 0 < int(steps) <= _MOST_STEPS):
        raise UsageError(f"steps is {steps!r}, and not a number of steps from 1 to {_MOST_STEPS}")
    try:
        return _exported(description, weights, int(steps) if steps else None)
    except OpenStepsError:
        if steps or not description.states:
            raise
    return _exported(description, weights, 1)


def _exported(description: Description, weights: LayerWeights, steps: int | None) -> ExportedGraph:
    first: RefusedError | None = None
    description = replace(description, scope=over_one_axis(description.scope))
    inputs, count = description.scope.inputs, len(description.scope.inputs) - description.states
    ranks = [range(min(len(value.shape), 2)) for value in inputs[:count]] + [range(1)] * description.states
    for batches in itertools.islice(itertools.product(*ranks), _MOST_TRIED):
        try:
            writer = NetWriter(description, weights, RULES, batches, steps)
        except RefusedError as error:
            first = likelier(first, error)
            continue
        if steps is not None and not writer.written_out:
            raise UsageError(f"{TargetSetting('steps', steps)} decides nothing: every layer takes any number of steps. Leave it out")
        layers = writer.net.finished([port.name for port in writer.outputs])
        notes = ["it computes one sequence at a time: its blobs have no axis for the batch, and it keeps no states from call to call"]
        if writer.written_out:
            notes.append("of sequences of another number of steps than is written out it gives no numbers (NaN)")
        notes += [f"{port.name} is a blob of int32" for port in writer.inputs if port.dtype == "int32"]
        names = [port.name for port in writer.inputs]
        conditions = [check.spelled(names)[1] for check in description.checks if not fixed(check)]
        if conditions:
            notes.append(f"it checks no lengths, and the source is known where {' and '.join(conditions)}, the batch among the axes")
        notes.append("the numbers are in the .bin, which belongs next to the .param")
        notes.append("where a processor has fp16 or bf16, ncnn computes in these unless opt.use_fp16_storage and the like are false")
        return net_export(layers, (writer.inputs, writer.outputs), writer.recurrent, notes, steps)
    raise first or RefusedError("a model without inputs", TITLE, "it has nothing to run on")


# Recurrent layers


def _recurrent(w: NetWriter, node: Node[kinds.Recurrent]) -> None:
    if node.kind.stateful:
        remedy = f"Write its states as inputs and outputs ({Flag('stateful')}), or build it without."
        raise w.refused(node, "stateful = True", "its layers begin each call anew", remedy)
    if node.named.get("mask"):
        raise w.refused(node, "a mask", "its layers run over all steps")
    w.batch_first(node, 3)
    directions = w.weights.directions(w.path(node))
    ways, per = len(directions), 2 if directions[0].cell.kind == "lstm" else 1
    states = list(node.named.get("states", ()))
    every, lasts, finals = [], list[str](), list[str]()
    for way, direction in enumerate(directions):
        name = w.label(node) if ways == 1 else f"{w.label(node)}/{WAYS[way]}"
        reverse = bool(way) or (ways == 1 and node.kind.backwards)
        initial = [w.blob(node, value) for value in states[way * per : (way + 1) * per]]
        if any(w(value).batch != 0 for value in states):
            raise w.refused(node, "initial states of all sequences", "it computes one sequence at a time")
        output, *ends = _direction(w, node, name, direction, reverse, initial)
        every.append(output)
        lasts.append(ends[0])
        finals += ends
    outputs = every if node.kind.sequences else lasts
    joined = _joined(w, node, outputs)
    if ways == 1 and node.kind.backwards and node.kind.sequences:
        joined = [w.add("Flip", joined, f"{w.label(node)}/in_processing_order", {0: [0]})]
    for value, blob in zip(node.outputs, [*joined, *finals], strict=False):
        w.give(value, blob, 0)


def _direction(
    w: NetWriter, node: Node[kinds.Recurrent], name: str, direction: Direction, reverse: bool, states: Sequence[str]
) -> list[str]:
    """Add a layer; return its outputs in the order of time, and its last states."""
    single = Recurrent(name, (Layer((direction.replace(reverse=reverse),)),))
    try:
        fitted = fit_to_layout(single, registry.layouts_of("ncnn"), retyped=True)
    except RefusedError as error:
        return written_out(w, node, name, direction, reverse, states, count_of(w, node, w(node.x), error))
    packed = pack(fitted.layout, fitted.stack, np.dtype(np.float32))
    initial = [w.shaped(state, [1, -1], f"{name}/initial") for state in states]
    count = 3 if direction.cell.kind == "lstm" else 2
    numbers = [(True, packed[local]) for local in ORDER if local in packed]
    outputs = w.net.add(fitted.layout.class_name, [w.blob(node, node.x), *initial], name, parameters(fitted.stack), numbers, count)
    w.recurrent.append(f"{name} ({direction.cell.kind.upper()} {direction.input_size} -> {direction.output_size})")
    return [outputs[0], *(w.shaped(final, [-1], f"{name}/last") for final in outputs[1:])]


def _joined(w: NetWriter, node: Node[kinds.Recurrent], outputs: Sequence[str]) -> list[str]:
    """Return the outputs of a layer, from its directions' outputs."""
    merge, label = node.kind.merge, w.label(node)
    if len(outputs) == 1 or merge is None:
        return [*outputs]
    if merge == "concat":
        return [w.add("Concat", outputs, f"{label}/joined", {0: -1})]
    blob = w.binary(MULTIPLY if merge == "mul" else ADD, outputs, f"{label}/joined")
    return [w.by_number(MULTIPLY, blob, 0.5, f"{label}/halved") if merge == "ave" else blob]


# Dense layers, embeddings and norms


def _dense(w: NetWriter, node: Node[kinds.Kind]) -> None:
    tensor, label, parts = w(node.x), w.label(node), w.parts(node, "dense")
    axes = len(tensor.lengths)
    if axes > 2 or tensor.batch == len(tensor.shape) - 1:
        raise w.refused(node, f"a dense layer over {len(tensor.shape)} axes", "its InnerProduct reads vectors and matrices")
    units, width = parts["weight"].shape
    numbers = [(True, real(parts["weight"])), *([(False, real(parts["bias"]))] if "bias" in parts else [])]
    settings = {0: units, 1: int("bias" in parts), 2: units * width}
    if w.in_step:  # InnerProduct would have its numbers in every step
        rows = [w.shaped(w.blob(node, node.x), [-1, width], f"{label}/in"), w.stored(f"{label}/weight", parts["weight"])]
        blob = w.add("MatMul", rows, label, {0: 1})
        blob = w.binary(ADD, [blob, w.stored(f"{label}/bias", parts["bias"].reshape(1, -1))], f"{label}/sum") if "bias" in parts else blob
        w.give(node.y, w.shaped(blob, [-1] if axes == 1 else [-1, units], f"{label}/rows"), tensor.batch)
        return
    blob = w.add("InnerProduct", [w.blob(node, node.x)], label, settings, numbers)
    # Of a sequence of one step InnerProduct makes a vector.
    w.give(node.y, blob if axes == 1 else w.shaped(blob, [-1, units], f"{label}/rows"), tensor.batch)


def _embedding(w: NetWriter, node: Node[kinds.Kind]) -> None:
    tensor, table = w(node.x), w.parts(node, "embedding")["weight"]
    if len(tensor.lengths) != 1 or tensor.batch is None:
        raise w.refused(node, f"an embedding of {len(tensor.shape)} axes", "its Embed reads one sequence of integers")
    rows, width = table.shape
    settings = {0: width, 1: rows, 2: 0, 3: rows * width}
    w.give(node.y, w.add("Embed", [tensor.blob], w.label(node), settings, [(True, real(table))]), tensor.batch)


def affine(w: NetWriter, node: Node[kinds.Kind], blob: str, axis: int, numbers: Mapping[str, Array]) -> str:
    """Add a scale and a shift of each place along an axis of what a node reads."""
    tensor, label = w(node.x), w.label(node)
    shape = [1] * len(tensor.lengths)
    shape[tensor.place(axis)] = -1
    for operator, word in ((MULTIPLY, "scale"), (ADD, "shift")):
        if word in numbers:
            blob = w.binary(operator, [blob, w.stored(f"{label}/{word}", numbers[word].reshape(shape))], f"{label}/{word}d")
    return blob


def _batch_norm(w: NetWriter, node: Node[kinds.BatchNorm]) -> None:
    parts = w.parts(node, "batch_norm")
    if w(node.x).place(node.kind.axis) < 0:
        raise w.refused(node, "a norm over the batch", "a blob has none")
    mean, variance = (parts[word].astype(np.float64) for word in ("mean", "variance"))
    scale = parts.get("scale", np.ones_like(mean)) / np.sqrt(variance + node.kind.epsilon)
    shift = parts.get("shift", np.zeros_like(mean)) - mean * scale
    w.give(node.y, affine(w, node, w.blob(node, node.x), node.kind.axis, {"scale": scale, "shift": shift}), w(node.x).batch)


def _layer_norm(w: NetWriter, node: Node[kinds.LayerNorm]) -> None:
    tensor = w(node.x)
    if len(node.kind.sizes) != 1 or tensor.batch == len(tensor.shape) - 1 or len(tensor.lengths) > 2:
        raise w.refused(node, "a norm over several axes", "its LayerNorm of a sequence is over the features")
    parts = w.parts(node, "layer_norm") if node.kind.scale or node.kind.shift else {}
    blob = w.add("LayerNorm", [w.blob(node, node.x)], w.label(node), {0: node.kind.sizes[0], 1: float(node.kind.epsilon), 2: 0})
    w.give(node.y, affine(w, node, blob, -1, {word: parts[word] for word in ("scale", "shift") if word in parts}), tensor.batch)


def _prelu(w: NetWriter, node: Node[kinds.PReLU]) -> None:
    """Add the numbers above zero, and those below times slopes, which stand for the axes behind the batch."""
    w.batch_first(node)
    slopes = w.weights.numbers(w.path(node)).reshape(node.kind.slopes)
    label, x = w.label(node), w.blob(node, node.x)
    above = w.add("ReLU", [x], f"{label}/above")
    below = w.binary(SUBTRACT, [x, above], f"{label}/below")
    sloped = w.binary(MULTIPLY, [below, w.stored(f"{label}/slopes", slopes)], f"{label}/sloped")
    w.give(node.y, w.binary(ADD, [above, sloped], label), 0)


# Functions

_FUNCTIONS: Mapping[str, tuple[str, Mapping[int, int | float]]] = {
    "relu": ("ReLU", {}), "sigmoid": ("Sigmoid", {}), "tanh": ("TanH", {}), "selu": ("SELU", {}), "softplus": ("Softplus", {}),
    "silu": ("Swish", {}), "mish": ("Mish", {}), "gelu": ("GELU", {0: 0}), "gelu_tanh": ("GELU", {0: 1}),
    "hard_sigmoid": ("HardSigmoid", {0: 1 / 6, 1: 0.5}), "hard_swish": ("HardSwish", {0: 1 / 6, 1: 0.5}),
    "relu6": ("Clip", {0: 0.0, 1: 6.0}),
    "abs": ("UnaryOp", {0: 0}), "neg": ("UnaryOp", {0: 1}), "square": ("UnaryOp", {0: 4}), "sqrt": ("UnaryOp", {0: 5}),
    "exponential": ("UnaryOp", {0: 7}), "log": ("UnaryOp", {0: 8}),
}  # fmt: skip


def _activation(w: NetWriter, node: Node[kinds.Activation]) -> None:
    name, label = node.kind.name, w.label(node)
    if name in _FUNCTIONS:
        w.put(node, *_FUNCTIONS[name])
    elif name in ("elu", "leaky_relu"):
        alpha = 1.0 if node.kind.alpha is None else float(node.kind.alpha)
        w.put(node, {"elu": "ELU", "leaky_relu": "ReLU"}[name], {0: alpha})
    elif name == "softmax":
        axis = w(node.x).place(node.kind.axis)
        if axis < 0:
            raise w.refused(node, "a softmax over the batch", "a blob has none")
        w.put(node, "Softmax", {0: axis, 1: 1})
    elif name == "softsign":
        x = w.blob(node, node.x)
        size = w.by_number(ADD, w.add("UnaryOp", [x], f"{label}/size", {0: 0}), 1, f"{label}/more")
        w.give(node.y, w.binary(3, [x, size], label), w(node.x).batch)
    else:
        raise w.refused(node, f"the activation {name!r}", "no layer of ncnn's is known for it")


def _rescale(w: NetWriter, node: Node[kinds.Rescale]) -> None:
    label, blob = w.label(node), w.blob(node, node.x)
    blob = w.by_number(MULTIPLY, blob, node.kind.scale, f"{label}/scaled")
    w.give(node.y, w.by_number(ADD, blob, node.kind.shift, label) if node.kind.shift else blob, w(node.x).batch)


# Convolutions and pools over time as layers of ncnn, which have the channels in front of the steps.
# Source: ncnn src/layer/convolution1d.cpp, convolutiondepthwise1d.cpp and pooling1d.cpp.

_SAME_UPPER = -233
"""In the place of pads: as many as give a window to each stride, an odd one at the end."""
_TURNED = 1
"""Permute's number for the order (steps, channels) of a blob of two axes."""


def _over_time(w: NetWriter, node: Node[kinds.Windowed]) -> tuple[str, tuple[int, int]]:
    """Return what windows over the time read, its channels behind the batch, and their pads."""
    w.batch_first(node)
    if node.kind.rank != 1:
        raise w.refused(node, f"windows over {node.kind.rank} axes", "those over time alone are written")
    blob = w.blob(node, node.x)
    pads = pads_at(node.kind, 0) or (_SAME_UPPER, _SAME_UPPER)
    return blob if node.kind.channels_first else _turned(w, blob, f"{w.label(node)}/channels"), pads


def _give(w: NetWriter, node: Node[kinds.Windowed], blob: str) -> None:
    """Let a layer give its output, its channels where the model has them."""
    w.give(node.y, blob if node.kind.channels_first else _turned(w, blob, w.label(node)), 0)


def _turned(w: NetWriter, blob: str, wanted: str) -> str:
    return w.add("Permute", [blob], wanted, {0: _TURNED})


def _conv(w: NetWriter, node: Node[kinds.Conv]) -> None:
    blob, pads = _over_time(w, node)
    parts, groups = w.parts(node, "conv"), node.kind.groups
    (kernel,), (stride,), (dilation,) = node.kind.kernel, node.kind.strides, node.kind.dilation
    weight = parts["weight"]
    settings = {0: weight.shape[0], 1: kernel, 2: dilation, 3: stride, 4: pads[0], 15: pads[1], 5: int("bias" in parts), 6: weight.size}
    numbers = [(True, real(weight)), *([(False, real(parts["bias"]))] if "bias" in parts else [])]
    kind = "Convolution1D" if groups == 1 else "ConvolutionDepthWise1D"
    _give(w, node, w.add(kind, [blob], f"{w.label(node)}/convolved", settings | ({7: groups} if groups > 1 else {}), numbers))


_MAX, _AVERAGE, _VALID, _SAME = 0, 1, 1, 2


def _pool(w: NetWriter, node: Node[kinds.Pool]) -> None:
    blob, pads = _over_time(w, node)
    if node.kind.ceil or max(node.kind.dilation) > 1:
        raise w.refused(node, "a pool with windows beyond its input (ceil_mode) or over places apart", "these are not written")
    (kernel,), (stride,) = node.kind.kernel, node.kind.strides
    kind = _MAX if node.kind.operation == "max" else _AVERAGE
    same, counted = _SAME_UPPER in pads, kind == _AVERAGE and node.kind.counted
    if same and kind == _AVERAGE:
        raise w.refused(
            node, "an average that leaves its padding out", "its Pooling1D counts as much padding as gives a window to each stride"
        )
    low, high = (0, 0) if same else pads
    settings = {0: kind, 1: kernel, 2: stride, 3: low, 14: high, 5: _SAME if same else _VALID, 6: int(counted)}
    _give(w, node, w.add("Pooling1D", [blob], f"{w.label(node)}/pooled", settings))


SPACE: Rules = {**on(kinds.Conv, _conv), **on(kinds.Pool, _pool)}
"""The kinds that are known."""


RULES: Rules = {
    **TENSORS,
    **SPACE,
    **on(kinds.Activation, _activation),
    **on(kinds.BatchNorm, _batch_norm),
    **on(kinds.Dense, _dense),
    **on(kinds.Dropout, lambda w, node: w.give(node.y, w(node.x).blob, w(node.x).batch)),
    **on(kinds.Embedding, _embedding),
    **on(kinds.LayerNorm, _layer_norm),
    **on(kinds.Loop, loop),
    **INNER,
    **on(kinds.PReLU, _prelu),
    **on(kinds.Recurrent, _recurrent),
    **on(kinds.Rescale, _rescale),
}
"""The kinds that are known."""
