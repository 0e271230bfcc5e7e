"""The operations of C that each kind of a description's nodes is."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rnnconvert.core.arrays import Array
from rnnconvert.core.weights import Direction
from rnnconvert.formats.c_header.step_operations import COMBINED, FUNCTIONS
from rnnconvert.formats.c_header.target import BATCH, BOTH, TIME, Axes, ModelBuilder, ProgramTensor, Rule
from rnnconvert.scaffolding.description import Node, Value
from rnnconvert.scaffolding.directions import WAYS
from rnnconvert.scaffolding.operators import axis_of
from rnnconvert.scaffolding.windows import ends, reached

_OPEN = (BATCH, TIME, BOTH)


def _axis(tensor: ProgramTensor, axis: int) -> int:
    """Return an axis counted from the front."""
    return axis % len(tensor.axes)


def _place(tensor: ProgramTensor, axis: int) -> tuple[int, int]:
    """Return the length of an axis, and how many numbers are within it. Raises ValueError for the batch and the time."""
    axis = _axis(tensor, axis)
    length = tensor.axes[axis]
    if not isinstance(length, int):
        raise ValueError(f"it works along the axis of the {length}")
    return length, math.prod(each for each in tensor.axes[axis + 1 :] if isinstance(each, int))


def _last(tensor: ProgramTensor) -> int:
    """Return the length of the last axis. Raises ValueError if that is the batch or the time."""
    return _place(tensor, -1)[0]


def _dense(m: ModelBuilder, node: Node) -> None:
    x, parts = m(node.x), m.weights.parts(m.path(node), "dense")
    units, width = parts["weight"].shape
    if _last(x) != width:
        raise ValueError(f"it reads {_last(x)} numbers, and its weights are for {width}")
    arrays = {"W": parts["weight"], **({"b": parts["bias"]} if "bias" in parts else {})}
    (y,) = m.add("dense", [x.value], m.stored(m.label(node), arrays), width=int(width), units=int(units), bias="bias" in parts)
    m.give(node.y, y, (*x.axes[:-1], int(units)))


def _matmul(m: ModelBuilder, node: Node) -> None:
    """Add products of matrices: of one that is there once, of as many as what it multiplies has, or sums over the steps."""
    x, y = (m(value) for value in node.inputs)
    if (x.axes[:1], x.axes[2:], y.axes[:2]) == ((BATCH,), (TIME,), (BATCH, TIME)) and len(y.axes) == 3:
        outer = [ProgramTensor(x.value, (*x.lengths, 1)), ProgramTensor(y.value, (1, *y.lengths))]
        (value,) = m.add("over time", [_combine(m, "multiply", outer)], operation="sum", masked=False)
        m.give(node.y, value, (BATCH, *x.lengths, *y.lengths))
        return
    is_vector = len(y.axes) == 1
    y = ProgramTensor(y.value, (*y.axes, 1)) if is_vector else y
    if len(x.axes) < 2 or not all(isinstance(length, int) for length in (x.axes[-1], *y.axes[-2:])):
        raise ValueError("it sums over the batch or the time")
    width, units = y.lengths[-2:]
    shared = all(axis == 1 for axis in y.axes[:-2])
    alike = y.axes[:-2] == x.axes[:-2] and (isinstance(x.axes[-2], int) or not any(isinstance(axis, int) for axis in y.axes[:-2]))
    if x.lengths[-1] != width or not (shared or alike):
        raise ValueError("the axes of what it multiplies do not lie alike")
    matrices = math.prod(y.lengths[:-2])
    (value,) = m.add("product", [x.value, y.value], width=width, units=units, matrices=matrices)
    axes = (*(1,) * (len(y.axes) - len(x.axes)), *x.axes[:-1], units)
    m.give(node.y, value, axes[:-1] if is_vector else axes)


def _embedding(m: ModelBuilder, node: Node) -> None:
    x, table = m(node.x), m.weights.parts(m.path(node), "embedding")["weight"]
    rows, width = map(int, table.shape)
    (y,) = m.add("embedding", [x.value], m.stored(m.label(node), {"table": table}), rows=rows, width=width)
    m.give(node.y, y, (*x.axes, width))


def _function(m: ModelBuilder, value: int, function: str, alpha: float | None = None) -> int:
    (y,) = m.add("function", [value], function=function, alpha=alpha)
    return y


def _activation(m: ModelBuilder, node: Node) -> None:
    name, x = node["name"], m(node.x)
    if name in ("softmax", "log_softmax") and x.axes[_axis(x, node["axis"])] == TIME:
        (y,) = m.add("softmax of steps", [x.value], log=name == "log_softmax")
    elif name in ("softmax", "log_softmax"):
        width, inner = _place(x, node["axis"])
        (y,) = m.add("softmax", [x.value], width=width, inner=inner, log=name == "log_softmax")
    elif name == "bounded_relu":
        y = _bounded(m, node, x)
    elif name in FUNCTIONS:
        y = _function(m, x.value, name, None if node.settings.get("alpha") is None else float(node["alpha"]))
    else:
        raise m.refused(node, f"the activation {name!r}", "no function of C is known for it")
    m.give(node.y, y, x.axes)


def _combine(m: ModelBuilder, operation: str, operands: Sequence[ProgramTensor | float]) -> int:
    """Return the value of an operation on numbers at the same places of tensors, whose lengths spread over one another."""
    reads = [operand.value for operand in operands if isinstance(operand, ProgramTensor)]
    shapes = [operand.lengths if isinstance(operand, ProgramTensor) else float(operand) for operand in operands]
    (y,) = m.add("combined", reads, operation=operation, operands=shapes)
    return y


def _bounded(m: ModelBuilder, node: Node, x: ProgramTensor) -> int:
    """Return Keras's ReLU: zero or sloped below a threshold, bounded above."""
    slope, threshold, highest = (node[key] for key in ("alpha", "threshold", "highest"))
    above = x if highest is None else ProgramTensor(_combine(m, "minimum", [x, float(highest)]), x.axes)
    below: ProgramTensor | float = 0.0
    if slope:
        below = ProgramTensor(
            _combine(m, "multiply", [ProgramTensor(_combine(m, "subtract", [x, float(threshold)]), x.axes), float(slope)]), x.axes
        )
    reaches = ProgramTensor(_combine(m, "greater_equal", [x, float(threshold)]), x.axes)
    return _combine(m, "where", [reaches, above, below])


def _prelu(m: ModelBuilder, node: Node) -> None:
    x = m(node.x)
    if node.kind == "prelu":
        slopes = np.asarray(m.weights.numbers(m.path(node))).reshape(node["slopes"])
        if x.axes[-1] in _OPEN or any(length != 1 for length in slopes.shape[:-1]) or slopes.shape[-1] not in (1, x.lengths[-1]):
            raise ValueError("its slopes differ from step to step")
        inner, slopes = 1, np.broadcast_to(slopes.reshape(-1), (x.lengths[-1],))
    else:
        length, inner = _place(x, node["axis"])
        slopes = np.broadcast_to(m.weights.parts(m.path(node), "prelu")["slope"].reshape(-1), (length,))
    (y,) = m.add("slopes", [x.value], m.stored(m.label(node), {"slope": slopes}), width=int(slopes.size), inner=inner)
    m.give(node.y, y, x.axes)


# Norms


def _batch_norm(m: ModelBuilder, node: Node) -> None:
    x, parts = m(node.x), m.weights.parts(m.path(node), "batch_norm")
    length, inner = _place(x, node["axis"])
    mean, variance = (parts[word].astype(np.float64) for word in ("mean", "variance"))
    scale = parts.get("scale", np.ones_like(mean)) / np.sqrt(variance + node["epsilon"])
    shift = parts.get("shift", np.zeros_like(mean)) - mean * scale
    arrays: Mapping[str, Array] = {"scale": scale.astype(np.float32), "shift": shift.astype(np.float32)}
    (y,) = m.add("affine", [x.value], m.stored(m.label(node), arrays), width=length, inner=inner)
    m.give(node.y, y, x.axes)


def _norm(m: ModelBuilder, node: Node) -> None:
    x, kind = m(node.x), node.kind
    axes = [_axis(x, axis) for axis in node["axes"]] if kind == "unit_norm" else range(len(x.axes) - len(node["sizes"]), len(x.axes))
    if list(axes) != list(range(len(x.axes) - len(axes), len(x.axes))) or any(x.axes[axis] in _OPEN for axis in axes):
        raise ValueError("it works along other axes than the last ones of a step")
    width = math.prod(x.axes[axis] for axis in axes)
    scale, shift = bool(node.settings.get("scale")), bool(node.settings.get("shift"))
    parts = m.weights.parts(m.path(node), kind) if scale or shift else {}
    arrays: Mapping[str, Array] = {word: np.asarray(parts[word]).reshape(-1) for word in ("scale", "shift") if word in parts}
    name = m.stored(m.label(node), arrays) if arrays else ""
    (y,) = m.add(
        "norm", [x.value], name, width=width, epsilon=float(node["epsilon"]), centred=kind == "layer_norm", unit=kind == "unit_norm",
        scale="scale" in arrays, shift="shift" in arrays,
    )  # fmt: skip
    m.give(node.y, y, x.axes)


def _rescale(m: ModelBuilder, node: Node) -> None:
    x = m(node.x)
    y = ProgramTensor(_combine(m, "multiply", [x, float(node["scale"])]), x.axes)
    m.give(node.y, _combine(m, "add", [y, float(node["shift"])]) if node["shift"] else y.value, x.axes)


# Numbers at the same place


def _aligned(tensors: Sequence[ProgramTensor], behind_batch: bool = False) -> Axes:
    """Return the axes of tensors that spread over one another. Raises ValueError where their batches or times are at other places.

    behind_batch  whether a tensor of fewer axes gets new ones behind the batch, and not in front
    """
    rank = max(len(tensor.axes) for tensor in tensors)
    wide: list[Axes] = []
    for tensor in tensors:
        new = (1,) * (rank - len(tensor.axes))
        wide.append((*tensor.axes[:1], *new, *tensor.axes[1:]) if behind_batch else (*new, *tensor.axes))
    result: list[str | int] = []
    for axes in zip(*wide, strict=True):
        opened = {axis for axis in axes if axis in _OPEN}
        if len(opened) > 1 or (opened and any(axis not in (1, *opened) for axis in axes)):
            raise ValueError("the axes of what it reads do not lie alike")
        lengths = [axis for axis in axes if isinstance(axis, int)]
        result.append(opened.pop() if opened else max(lengths))
    for axes in wide:
        closed = [axis for axis, kind in zip(axes, result, strict=True) if kind not in _OPEN]
        if any(not isinstance(axis, int) for axis in closed):
            raise ValueError("the axes of what it reads do not lie alike")
    return tuple(result)


def _spread(m: ModelBuilder, tensors: Sequence[ProgramTensor], axes: Axes, behind_batch: bool) -> list[ProgramTensor]:
    """Return tensors with the lengths that they have among axes that all of them spread over."""
    result = []
    for tensor in tensors:
        new = (1,) * (len(axes) - len(tensor.axes))
        wide = (*tensor.axes[:1], *new, *tensor.axes[1:]) if behind_batch else (*new, *tensor.axes)
        lengths = tuple(axis for axis, kind in zip(wide, axes, strict=True) if kind not in _OPEN)
        result.append(ProgramTensor(tensor.value, lengths))
    return result


def _arithmetic(m: ModelBuilder, node: Node) -> None:
    tensors, operation = [m(value) for value in node.inputs], node["operation"]
    axes = _aligned(tensors, behind_batch=True)
    first, *others = _spread(m, tensors, axes, True)
    lengths = tuple(axis for axis in axes if isinstance(axis, int))
    for other in others:
        shape = np.broadcast_shapes(tuple(first.lengths), tuple(other.lengths))
        first = ProgramTensor(_combine(m, "add" if operation == "average" else operation, [first, other]), shape)
    if operation == "average":
        first = ProgramTensor(_combine(m, "divide", [first, float(len(tensors))]), lengths)
    m.give(node.y, first.value, axes)


_FLOATS = ("float16", "float32", "float64")


def _elementwise(m: ModelBuilder, node: Node) -> None:
    operation, tensors = node["operation"], [m(value) for value in node.inputs]
    axes = _aligned(tensors)
    wide = _spread(m, tensors, axes, False)
    operands: list[ProgramTensor | float] = [wide[value] if kind == "input" else float(value) for kind, value in node["operands"]]
    if operation in FUNCTIONS and len(operands) == 1 and isinstance(operands[0], ProgramTensor):
        m.give(node.y, _function(m, operands[0].value, operation), axes)
        return
    integral = node.y.dtype not in (*_FLOATS, "bool")
    if operation not in COMBINED or (integral and operation in ("divide", "power")):
        raise m.refused(node, f"the operator {operation!r}", "no code in C is known for it")
    m.give(node.y, _combine(m, operation, operands), axes)


def _clip(m: ModelBuilder, node: Node) -> None:
    x = m(node.x)
    y = x
    for key, operation in (("min", "maximum"), ("max", "minimum")):
        if node[key] is not None:
            y = ProgramTensor(_combine(m, operation, [y, float(node[key])]), x.axes)
    m.give(node.y, y.value, x.axes)


def _mask(m: ModelBuilder, node: Node) -> None:
    x, operation = m(node.x), node["operation"]
    tensors = [m(value) for value in node.inputs]
    if operation in ("equal", "not_equal", "greater", "greater_equal", "less", "less_equal"):
        m.give(node.y, _combine(m, operation, [x, float(node["value"])]), x.axes)
    elif operation == "any differs":
        differs = _combine(m, "not_equal", [x, float(node["value"])])
        (y,) = m.add("folded", [differs], length=_last(x), inner=1, operation="any")
        m.give(node.y, y, x.axes[:-1])
    elif operation in ("and", "or"):
        axes = _aligned(tensors)
        m.give(node.y, _combine(m, operation, _spread(m, tensors, axes, False)), axes)
    elif operation == "not":
        m.give(node.y, _function(m, x.value, "not"), x.axes)
    elif operation == "all true":
        axes = x.axes[:-1]
        m.give(node.y, _full(m, x, axes, 1.0), axes)
    elif operation in ("ones", "zeros"):
        m.give(node.y, _full(m, x, x.axes, float(operation == "ones")), x.axes)
    elif operation == "lengths" and TIME in tensors[1].axes:
        (y,) = m.add("until", [x.value, tensors[1].value])
        m.give(node.y, y, tensors[1].axes[:2])
    elif operation == "widened":
        m.give(node.y, x.value, (*x.axes, 1))
    else:
        raise m.refused(node, f"a mask by {operation!r}", "no code in C is known for it")


def _full(m: ModelBuilder, x: ProgramTensor, axes: Axes, number: float) -> int:
    (y,) = m.add("full", [x.value], size=math.prod(axis for axis in axes if isinstance(axis, int)), number=number)
    return y


def _where(m: ModelBuilder, node: Node) -> None:
    """Add a tensor's numbers at the steps that count, and others elsewhere."""
    x, mask = m(node.x), m(node.named["mask"][0])
    wide = ProgramTensor(mask.value, (*mask.axes, 1))
    other: list[ProgramTensor] = [m(node.inputs[1])] if len(node.inputs) > 1 else []
    axes = _aligned([wide, x, *other])
    spread: list[ProgramTensor | float] = [*_spread(m, [wide, x, *other], axes, False)]
    m.give(node.y, _combine(m, "where", [*spread, *([] if other else [float(node.settings.get("value", 0))])]), axes)


# Axes


def _transpose(m: ModelBuilder, node: Node) -> None:
    x, order = m(node.x), node["order"]
    axes = tuple(x.axes[axis] for axis in order)
    _turn(m, node.y, x, axes, [axis for axis in order if isinstance(x.axes[axis], int)])


def _turn(m: ModelBuilder, y: Value, x: ProgramTensor, axes: Axes, order: Sequence[int]) -> None:
    """Let a tensor be another one whose axes are in another order: the batch and the time are nowhere in memory."""
    places = sorted(order)
    relative = [places.index(axis) for axis in order]
    moving = [place for place in relative if x.lengths[place] > 1]
    if moving == sorted(moving):
        m.give(y, x.value, axes)
        return
    (value,) = m.add("turned", [x.value], shape=x.lengths, order=relative)
    m.give(y, value, axes)


def _reshape(m: ModelBuilder, node: Node) -> None:
    """Let a tensor have other axes: where the time stays, what is at a step has others; otherwise its steps become numbers."""
    x, shape = m(node.x), node.y.shape
    axes = _other_axes(m, x, shape)
    if axes is None and TIME in x.axes:
        x = _flat(m, x)
        axes = _other_axes(m, x, shape)
    if axes is None:
        raise m.refused(node, f"{x.axes} as {shape}", "the batch or the time does not stay an axis of its own")
    m.give(node.y, x.value, axes)


def _other_axes(m: ModelBuilder, x: ProgramTensor, shape: Sequence[int | None]) -> Axes | None:
    """Return a shape as axes of a tensor whose batch and time stay where they are; None where they do not."""
    opened = [axis for axis in x.axes if isinstance(axis, str)]
    runs = _runs(x.axes)
    axes: list[str | int] = []
    for length in shape:
        place = sum(isinstance(axis, str) for axis in axes)
        enough = math.prod(axis for axis in _since(axes) if isinstance(axis, int)) == runs[place]
        marker = opened[place] if place < len(opened) else ""
        stated = m.program.length(m.program.values[x.value].time) if marker == TIME else None
        if marker and enough and (length is None or (marker == TIME and stated == length) or (marker == BATCH and length == -1)):
            axes.append(marker)
        elif length is None:
            closed = [each for each in shape if each is not None]
            missing = math.prod(runs) // max(1, math.prod(closed))
            axes.append(missing)
        else:
            axes.append(length)
    fits = [axis for axis in axes if isinstance(axis, str)] == opened and _runs(tuple(axes)) == runs
    return tuple(axes) if fits else None


def _runs(axes: Axes) -> list[int]:
    """Return how many numbers are before, between and behind the batch and the time."""
    runs = [1]
    for axis in axes:
        if isinstance(axis, int):
            runs[-1] *= axis
        else:
            runs.append(1)
    return runs


def _since(axes: Sequence[str | int]) -> list[str | int]:
    """Return the axes behind the last one that is the batch or the time."""
    places = [place for place, axis in enumerate(axes) if isinstance(axis, str)]
    return list(axes[places[-1] + 1 :] if places else axes)


def _flat(m: ModelBuilder, x: ProgramTensor) -> ProgramTensor:
    """Return a sequence of a stated length as numbers that are there once."""
    place = x.axes.index(TIME)
    inner = math.prod(axis for axis in x.axes[place + 1 :] if isinstance(axis, int))
    length = m.program.length(m.program.values[x.value].time)
    (y,) = m.add("flat", [x.value], inner=inner)
    assert length is not None
    return ProgramTensor(y, (*x.axes[:place], length, *x.axes[place + 1 :]))


def _squeeze(m: ModelBuilder, node: Node) -> None:
    x = m(node.x)
    stated = node["axis"]
    dropped = [_axis(x, axis) for axis in ([stated] if isinstance(stated, int) else stated)]
    if any(x.axes[axis] != 1 for axis in dropped):
        raise ValueError("an axis that it drops is the batch or the time")
    m.give(node.y, x.value, tuple(axis for place, axis in enumerate(x.axes) if place not in dropped))


def _unsqueeze(m: ModelBuilder, node: Node) -> None:
    x, place = m(node.x), node["axis"] % (len(node.x.shape) + 1)
    m.give(node.y, x.value, (*x.axes[:place], 1, *x.axes[place:]))


def _steps_to_batch(m: ModelBuilder, node: Node) -> None:
    x = m(node.x)
    if x.axes[:2] != (BATCH, TIME):
        raise ValueError("it takes steps of a tensor that is not a sequence")
    m.give(node.y, x.value, (BOTH, *x.axes[2:]))


def _batch_to_steps(m: ModelBuilder, node: Node) -> None:
    x = m(node.x)
    if x.axes[0] != BOTH:
        raise ValueError("its batch does not hold the steps of a sequence")
    m.give(node.y, x.value, (BATCH, TIME, *x.axes[1:]))


def _concatenate(m: ModelBuilder, node: Node) -> None:
    tensors = [m(value) for value in node.inputs]
    axis = _axis(tensors[0], node["axis"])
    _join(m, node.y, tensors, axis)


def _join(m: ModelBuilder, y: Value, tensors: Sequence[ProgramTensor], axis: int) -> None:
    first = tensors[0]
    others = [[each for place, each in enumerate(tensor.axes) if place != axis] for tensor in tensors]
    if any(each != others[0] for each in others) or any(not isinstance(tensor.axes[axis], int) for tensor in tensors):
        raise ValueError("what it joins lies otherwise, or is joined along the batch or the time")
    outer = math.prod(each for each in first.axes[:axis] if isinstance(each, int))
    (value,) = m.add("joined", [tensor.value for tensor in tensors], outer=outer)
    length = sum(length for tensor in tensors if isinstance(length := tensor.axes[axis], int))
    m.give(y, value, (*first.axes[:axis], length, *first.axes[axis + 1 :]))


def _stack(m: ModelBuilder, node: Node) -> None:
    place = node["axis"] % len(node.y.shape)
    tensors = [m(value) for value in node.inputs]
    _join(m, node.y, [ProgramTensor(each.value, (*each.axes[:place], 1, *each.axes[place:])) for each in tensors], place)


def _take(m: ModelBuilder, x: ProgramTensor, axis: int, start: int, count: int, step: int = 1, back: bool = False) -> int:
    length, inner = _place(x, axis)
    if start == 0 and count == length and not back:
        return x.value
    (y,) = m.add("taken", [x.value], length=length, inner=inner, start=start, step=step, count=count, back=back)
    return y


def _select(m: ModelBuilder, node: Node) -> None:
    x, index = m(node.x), node["index"]
    axis = _axis(x, node["axis"])
    axes = (*x.axes[:axis], *x.axes[axis + 1 :])
    if x.axes[axis] != TIME:
        length, _ = _place(x, axis)
        m.give(node.y, _take(m, x, axis, index % length, 1), axes)
        return
    stated = m.program.length(m.program.values[x.value].time)
    if index in (-1, 0) or stated == index + 1:
        (y,) = m.add("first" if index == 0 and stated != 1 else "last", [x.value])
    else:
        x = _flat(m, x) if stated is not None else x
        y = _take(m, x, axis, index % _place(x, axis)[0], 1)
    m.give(node.y, y, axes)


def _slice(m: ModelBuilder, node: Node) -> None:
    x = m(node.x)
    axis, step = _axis(x, node["axis"]), node["step"]
    timed = x.axes[axis] == TIME
    length = m.program.length(m.program.values[x.value].time) if timed else _place(x, axis)[0]
    if length is None:
        raise ValueError("it takes some steps of a sequence of any length")
    start, end, _ = slice(node["start"], node["end"], step).indices(length)
    places = range(start, end, step)
    if step < 1 or not places:
        raise ValueError("it takes nothing, or the other way round")
    if timed:
        value = x.value
        if len(places) < length:
            (value,) = m.add("some steps", [x.value], start=start, step=step, count=len(places))
        m.give(node.y, value, x.axes)
        return
    m.give(node.y, _take(m, x, axis, start, len(places), step), (*x.axes[:axis], len(places), *x.axes[axis + 1 :]))


def _split(m: ModelBuilder, node: Node) -> None:
    x, start = m(node.x), 0
    axis = _axis(x, node["axis"])
    for value, size in zip(node.outputs, node["sizes"], strict=True):
        m.give(value, _take(m, x, axis, start, size), (*x.axes[:axis], size, *x.axes[axis + 1 :]))
        start += size


def _flip(m: ModelBuilder, node: Node) -> None:
    x = m(node.x)
    for axis in node["axes"]:
        if x.axes[_axis(x, axis)] == TIME:
            (value,) = m.add("flip", [x.value])
        else:
            length, _ = _place(x, axis)
            value = _take(m, x, axis, length - 1, length, back=True)
        x = ProgramTensor(value, x.axes)
    m.give(node.y, x.value, x.axes)


def _repeat(m: ModelBuilder, node: Node) -> None:
    """Add what is there once as a sequence: Keras's RepeatVector."""
    x = m(node.x)
    if BATCH not in x.axes or TIME in x.axes:
        raise ValueError("what it repeats has steps")
    (y,) = m.add("again", [x.value], length=int(node["count"]))
    m.give(node.y, y, (BATCH, TIME, *x.axes[1:]))


# Reductions


def _reduce(m: ModelBuilder, node: Node) -> None:
    x, operation, mask = m(node.x), node["operation"], node.named.get("mask", ())
    axes = sorted({_axis(x, axis) for axis in node["axes"]}, reverse=True)
    if operation not in ("mean", "sum", "max", "min", "any", "all"):
        raise m.refused(node, f"a reduction by {operation!r}", "no code in C is known for it")
    value, left = x.value, list(x.axes)
    for axis in axes:
        if left[axis] == TIME:
            masks = [m(mask[0]).value] if mask else []
            (value,) = m.add("over time", [value, *masks], operation=operation, masked=bool(masks))
        else:
            length, inner = _place(ProgramTensor(value, tuple(left)), axis)
            (value,) = m.add("folded", [value], length=length, inner=inner, operation=operation)
        left[axis] = 1
    m.give(node.y, value, tuple(axis for place, axis in enumerate(left) if node["keep"] or place not in axes))


# Windows


def _pads(node: Node, reach: int) -> list[int] | None:
    """Return the steps that a layer with its channels at the end adds before and after; None where windows of a stride need them."""
    return None if node["padding"] == "same" and node["strides"][0] > 1 else list(ends(node["padding"], reach))


def _sequence(m: ModelBuilder, node: Node) -> ProgramTensor:
    """Return the sequence of channels that windows move over: numbers become steps."""
    x, place = m(node.x), 2 if node.kind.endswith("first") else 1
    if node["rank"] != 1:
        raise m.refused(node, "windows over several axes", "the header computes sequences, along one axis")
    return x if x.axes[place] == TIME else _steps(m, x, place)


def _steps(m: ModelBuilder, x: ProgramTensor, place: int) -> ProgramTensor:
    """Turn an axis of a stated length into the time of a tensor. Raises ValueError for a tensor that has a time already."""
    if TIME in x.axes or BOTH in x.axes:
        raise ValueError("it moves along another axis than the time")
    length, inner = _place(x, place)
    (y,) = m.add("as steps", [x.value], length=length, inner=inner)
    return ProgramTensor(y, (*x.axes[:place], TIME, *x.axes[place + 1 :]))


def _conv(m: ModelBuilder, node: Node) -> None:
    x, parts, first = _sequence(m, node), m.weights.parts(m.path(node), "conv"), node.kind == "conv first"
    weight = np.moveaxis(parts["weight"], 1, 2)
    filters, kernel, width = map(int, weight.shape)
    (reach,) = reached(node["kernel"], node["dilation"])
    pads = list(map(int, node["pads"][0])) if first else _pads(node, reach)
    arrays: Mapping[str, Array] = {"W": weight.reshape(filters, kernel * width), **({"b": parts["bias"]} if "bias" in parts else {})}
    (y,) = m.add(
        "conv", [x.value], m.stored(m.label(node), arrays), channels=width * node["groups"], filters=filters, kernel=kernel,
        stride=int(node["strides"][0]), dilation=int(node["dilation"][0]), groups=int(node["groups"]), bias="bias" in parts, pads=pads,
    )  # fmt: skip
    m.give(node.y, y, (BATCH, filters, TIME) if first else (BATCH, TIME, filters))


def _pool(m: ModelBuilder, node: Node) -> None:
    x, first = _sequence(m, node), node.kind == "pool first"
    if first and (node["ceil"] or tuple(node.settings.get("dilation", (1,))) != (1,)):
        raise m.refused(node, "a pool with holes, or beyond the end", "no code in C is known for it")
    pads = list(map(int, node["pads"][0])) if first else _pads(node, node["kernel"][0])
    counted = bool(first and node["operation"] == "average" and node["counted"])
    (y,) = m.add(
        "pool", [x.value], operation=node["operation"], kernel=int(node["kernel"][0]), stride=int(node["strides"][0]), pads=pads,
        counted=counted,
    )  # fmt: skip
    m.give(node.y, y, x.axes)


# Stored numbers


def _constant(m: ModelBuilder, node: Node) -> None:
    array = np.asarray(node["numbers"], np.float32)
    if array.size and not np.isfinite(array).all():
        raise ValueError("stored numbers that are not finite")
    tensor = m.constant(m.label(node), array)
    m.give(node.y, tensor.value, tensor.axes)


def _parameter(m: ModelBuilder, node: Node) -> None:
    tensor = m.constant(m.label(node), m.weights.numbers(m.path(node)).reshape(node["sizes"]))
    m.give(node.y, tensor.value, tensor.axes)


def _weight(m: ModelBuilder, node: Node) -> None:
    part: Array = m.weights.parts(m.path(node), node["of"])[node["array"]]
    tensor = m.constant(f"{m.label(node)}_{node['array']}", part)
    m.give(node.y, tensor.value, tensor.axes)


def _zeros(m: ModelBuilder, node: Node) -> None:
    """Add a number as often as the batch and stated lengths say: states that begin with it."""
    axes: list[str | int] = []
    for length in node.y.shape:
        if length is None and BATCH in axes:
            raise ValueError("a tensor of several open lengths")
        axes.append(BATCH if length is None else length)
    size = math.prod(axis for axis in axes if isinstance(axis, int))
    tensor = m.constant(m.label(node), np.full(size, node["number"], np.float32), tuple(axes))
    m.give(node.y, tensor.value, tensor.axes)


def _expand(m: ModelBuilder, node: Node) -> None:
    """Let what is there once for all sequences be there for each of them."""
    x = m(node.x)
    axes: list[str | int] = []
    wide = (*(1,) * (len(node.y.shape) - len(x.axes)), *x.axes)
    for length_read, length in zip(wide, node.y.shape, strict=True):
        if length_read in _OPEN or length_read == length:
            axes.append(length_read)
        elif length_read == 1 and length is None and BATCH not in (*axes, *x.axes):
            axes.append(BATCH)
        else:
            raise ValueError("it repeats numbers along an axis")
    m.give(node.y, x.value, tuple(axes))


def _cast(m: ModelBuilder, node: Node) -> None:
    x, target = m(node.x), np.dtype(node["dtype"])
    value = x.value
    if target.kind == "b":
        value = _function(m, value, "truth")
    elif target.kind in "iu" and np.dtype(node.x.dtype).kind == "f":
        value = _function(m, value, "towards_zero")
    m.give(node.y, value, x.axes)


def _model(m: ModelBuilder, node: Node) -> None:
    """Add what a model in the model gives."""
    scope = node["scope"]
    for inside, outside in zip(scope.inputs, node.inputs, strict=True):
        m.give(inside, m(outside).value, m(outside).axes)
    m.run_scope(scope, m.label(node))
    for outside, inside in zip(node.outputs, scope.outputs, strict=True):
        m.give(outside, m(inside).value, m(inside).axes)


def _loop(m: ModelBuilder, node: Node) -> None:
    """Add a loop over the steps of sequences: its operations read and give these steps, and its states are kept between them."""
    scope, states, count = node["scope"], node["states"], node["states"] + node["sequences"]
    tensors = [m(value) for value in node.inputs]
    steps = tensors[states:count]
    if any(x.axes[:1] != (TIME,) or TIME in x.axes[1:] or BOTH in x.axes for x in steps):
        raise ValueError("its steps are not those of the time")
    m.program.joined([m.program.values[x.value].time for x in steps])
    before = [m.add("state", [steps[0].value, x.value])[0] for x in tensors[:states]]
    for inside, x, value in zip(scope.inputs, tensors, before, strict=False):
        m.give(inside, value, x.axes)
    for inside, x in zip(scope.inputs[states:], steps, strict=False):
        m.give(inside, x.value, x.axes[1:])
    for inside, x in zip(scope.inputs[count:], tensors[count:], strict=True):
        if TIME not in x.axes and BOTH not in x.axes:
            m.give(inside, x.value, x.axes)
    m.run_scope(scope, m.label(node))
    after = [m(value) for value in scope.outputs]
    if any(y.axes != x.axes for x, y in zip(tensors[:states], after, strict=False)):
        raise ValueError("a state has other axes after a step than before it")
    for outside, value, y in zip(node.outputs, before, after, strict=False):
        m.give(outside, m.add("left", [y.value, value])[0], y.axes)
    for outside, y in zip(node.outputs[states:], after[states:], strict=True):
        if m.program.values[y.value].time is None:
            raise ValueError("its steps give what is the same in all of them")
        m.give(outside, y.value, (TIME, *y.axes))


def _range(m: ModelBuilder, node: Node) -> None:
    """Add the numbers of the steps of a sequence."""
    x = m(node.x)
    if TIME not in x.axes or (node["start"], node["step"], axis_of(node["stop"])) != (0, 1, (0, x.axes.index(TIME))):
        raise ValueError("its numbers are not those of all steps of a sequence")
    m.give(node.y, m.add("number", [x.value])[0], (TIME,))


# Recurrent layers


def _recurrent(m: ModelBuilder, node: Node) -> None:
    directions = m.weights.stack(m.path(node)).layers[0].directions
    x, ways, mask = m(node.x), len(directions), node.named.get("mask", ())
    states = [m(value) for value in node.named.get("states", ())]
    timed = any(m.program.values[each.value].time is not None for each in (x, *states))
    if timed and len(x.axes) == 3 and x.axes[:2] == (BATCH, 1) and not mask:
        _cell(m, node, [x, *states], directions)
        return
    if x.axes[:2] != (BATCH, TIME):
        x = _steps(m, x, 1)
    if len(x.axes) != 3:
        raise ValueError("it reads more than a vector at each step")
    m.stateful.add(bool(node["stateful"]))
    outputs, finals = [], list[int]()
    for way, direction in enumerate(directions):
        backwards = bool(way) if ways == 2 else bool(node["backwards"])
        cell = direction.cell.kind == "lstm"
        initial = [states.pop(0).value for _ in range(min(1 + cell, len(states)))]
        label = m.label(node) if ways == 1 else f"{m.label(node)}/{WAYS[way]}"
        name = m.layer(label, _bare(direction, backwards))
        masks = [m(mask[0]).value] if mask else []
        y, *ends = m.add(
            "recurrent", [x.value, *masks, *initial], name, backwards=backwards, turned=ways == 1, sequences=bool(node["sequences"]),
            zero=bool(node["zero"]), masked=bool(masks), begun=bool(initial), ends=len(node.outputs) > 1, cell=cell,
        )  # fmt: skip
        outputs.append(y)
        finals += ends
    axes: Axes = (BATCH, TIME) if node["sequences"] else (BATCH,)
    sizes = [m.program.values[value].size for value in outputs]
    merge = node["merge"]
    if ways == 2 and merge == "concat":
        (joined,) = m.add("joined", outputs, outer=1)
        outputs, sizes = [joined], [sum(sizes)]
    elif ways == 2 and merge is not None:
        both = [ProgramTensor(value, (size,)) for value, size in zip(outputs, sizes, strict=True)]
        merged = _combine(m, "multiply" if merge == "mul" else "add", both)
        outputs = [_combine(m, "multiply", [ProgramTensor(merged, (sizes[0],)), 0.5]) if merge == "ave" else merged]
    for value, number in zip(node.outputs, outputs, strict=False):
        m.give(value, number, (*axes, m.program.values[number].size))
    for value, number in zip(node.outputs[len(outputs) :], finals, strict=False):
        m.give(value, number, (BATCH, m.program.values[number].size))


def _cell(m: ModelBuilder, node: Node, reads: Sequence[ProgramTensor], directions: Sequence[Direction]) -> None:
    """Add a recurrent layer that reads one step at each step of a loop: it goes on from the states that it is given."""
    if len(directions) > 1 or node["stateful"]:
        raise ValueError("at each step of a loop it has two directions, or states of its own")
    (direction,) = directions
    name = m.layer(m.label(node), _bare(direction, backwards=False))
    y, *ends = m.add("cell", [each.value for each in reads], name, cell=direction.cell.kind == "lstm")
    size = m.program.values[y].size
    m.give(node.outputs[0], y, (BATCH, 1, size) if node["sequences"] else (BATCH, size))
    for value, number in zip(node.outputs[1:], ends, strict=False):
        m.give(value, number, (BATCH, m.program.values[number].size))


def _bare(direction: Direction, backwards: bool) -> Direction:
    """Return a direction without learned initial states, which are a tensor of the description, and read in the order of its steps."""
    states: dict[Any, Any] = dict.fromkeys(key for key in direction.arrays if key[0].startswith("initial"))
    return direction.with_arrays(states).replace(reverse=False)


RULES: Mapping[str, Rule] = {
    "dense": _dense, "matmul": _matmul, "embedding": _embedding, "activation": _activation, "prelu": _prelu, "prelu first": _prelu,
    "dropout": lambda m, node: m.give(node.y, m(node.x).value, m(node.x).axes),
    "batch_norm": _batch_norm, "layer_norm": _norm, "rms_norm": _norm, "unit_norm": _norm, "rescale": _rescale,
    "arithmetic": _arithmetic, "elementwise": _elementwise, "clip": _clip, "mask": _mask, "zero masked": _where, "where": _where,
    "transpose": _transpose, "flatten": _reshape, "reshape": _reshape, "view": _reshape, "reshape all": _reshape,
    "merge axes": _reshape, "split axis": _reshape, "squeeze": _squeeze, "unsqueeze": _unsqueeze,
    "steps to batch": _steps_to_batch, "batch to steps": _batch_to_steps, "concatenate": _concatenate, "stack": _stack,
    "select": _select, "slice": _slice, "split": _split, "flip": _flip, "repeat": _repeat, "reduce": _reduce,
    "conv": _conv, "conv first": _conv, "pool": _pool, "pool first": _pool, "constant": _constant, "parameter": _parameter,
    "layer's weight": _weight, "full": _zeros, "expand": _expand, "cast": _cast, "model": _model, "loop": _loop, "range": _range,
    "recurrent": _recurrent,
}  # fmt: skip
"""The kinds that are known."""
