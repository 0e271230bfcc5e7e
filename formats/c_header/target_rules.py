"""The operations of C that each kind of a description's nodes is."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from rnnconvert.core.arrays import Array
from rnnconvert.formats.c_header.step_operations import COMBINED, FUNCTIONS
from rnnconvert.formats.c_header.target import BATCH, OPEN, TIME, Axes, ModelBuilder, ProgramTensor
from rnnconvert.formats.c_header.target_axes import AXES
from rnnconvert.formats.c_header.target_steps import STEPS
from rnnconvert.scaffolding import kinds
from rnnconvert.scaffolding.description import Node, Rules, on
from rnnconvert.scaffolding.walk import INNER


def _dense(m: ModelBuilder, node: Node[kinds.Kind]) -> None:
    x, parts = m(node.x), m.parts(node, "dense")
    units, width = parts["weight"].shape
    if x.place(-1)[0] != width:
        raise ValueError(f"it reads {x.place(-1)[0]} numbers, and its weights are for {width}")
    arrays = {"W": parts["weight"], **({"b": parts["bias"]} if "bias" in parts else {})}
    (y,) = m.add("dense", [x.value], m.stored(m.label(node), arrays), width=int(width), units=int(units), bias="bias" in parts)
    m.give(node.y, y, (*x.axes[:-1], int(units)))


def _matmul(m: ModelBuilder, node: Node[kinds.Kind]) -> None:
    """Add products of matrices: of one that is there once, of as many as what it multiplies has, or sums over the steps."""
    x, y = (m(value) for value in node.inputs)
    m.in_float32(node)
    if (x.axes[:1], x.axes[2:], y.axes[:2]) == ((BATCH,), (TIME,), (BATCH, TIME)) and len(y.axes) == 3:
        outer = [ProgramTensor(x.value, (*x.lengths, 1)), ProgramTensor(y.value, (1, *y.lengths))]
        (value,) = m.add("over time", [m.combined("multiply", outer)], operation="sum", masked=False)
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


def _embedding(m: ModelBuilder, node: Node[kinds.Kind]) -> None:
    x, table = m(node.x), m.parts(node, "embedding")["weight"]
    rows, width = map(int, table.shape)
    (y,) = m.add("embedding", [x.value], m.stored(m.label(node), {"table": table}), rows=rows, width=width)
    m.give(node.y, y, (*x.axes, width))


def _function(m: ModelBuilder, value: int, function: str, alpha: float | None = None) -> int:
    (y,) = m.add("function", [value], function=function, alpha=alpha)
    return y


def _activation(m: ModelBuilder, node: Node[kinds.Activation]) -> None:
    name, x = node.kind.name, m(node.x)
    if name in ("softmax", "log_softmax") and x.axes[x.axis(node.kind.axis)] == TIME:
        (y,) = m.add("softmax of steps", [x.value], log=name == "log_softmax")
    elif name in ("softmax", "log_softmax"):
        width, inner = x.place(node.kind.axis)
        (y,) = m.add("softmax", [x.value], width=width, inner=inner, log=name == "log_softmax")
    elif name == "bounded_relu":
        y = _bounded(m, node, x)
    elif name in FUNCTIONS:
        y = _function(m, x.value, name, node.kind.alpha)
    else:
        raise m.refused(node, f"the activation {name!r}", "no function of C is known for it")
    m.give(node.y, y, x.axes)


def _bounded(m: ModelBuilder, node: Node[kinds.Activation], x: ProgramTensor) -> int:
    """Return Keras's ReLU: zero or sloped below a threshold, bounded above."""
    slope, threshold, highest = node.kind.alpha, node.kind.threshold, node.kind.highest
    above = x if highest is None else ProgramTensor(m.combined("minimum", [x, float(highest)]), x.axes)
    below: ProgramTensor | float = 0.0
    if slope:
        below = ProgramTensor(
            m.combined("multiply", [ProgramTensor(m.combined("subtract", [x, float(threshold)]), x.axes), float(slope)]), x.axes
        )
    reaches = ProgramTensor(m.combined("greater_equal", [x, float(threshold)]), x.axes)
    return m.combined("where", [reaches, above, below])


def _prelu(m: ModelBuilder, node: Node[kinds.PReLU]) -> None:
    x, several = m(node.x), node.kind.axes
    last = len(x.axes) - 1
    if len(several) > 1 or any(x.axes[axis] in OPEN for axis in several):
        raise ValueError("its slopes differ from step to step")
    stated = [axis for axis in range(last, 0, -1) if x.axes[axis] not in OPEN]
    length, inner = x.place((*several, *stated, last)[0])
    slopes = np.broadcast_to(m.weights.numbers(m.path(node)).reshape(-1), (length,))
    (y,) = m.add("slopes", [x.value], m.stored(m.label(node), {"slope": slopes}), width=int(slopes.size), inner=inner)
    m.give(node.y, y, x.axes)


# Norms


def _batch_norm(m: ModelBuilder, node: Node[kinds.BatchNorm]) -> None:
    x, parts = m(node.x), m.parts(node, "batch_norm")
    length, inner = x.place(node.kind.axis)
    mean, variance = (parts[word].astype(np.float64) for word in ("mean", "variance"))
    scale = parts.get("scale", np.ones_like(mean)) / np.sqrt(variance + node.kind.epsilon)
    shift = parts.get("shift", np.zeros_like(mean)) - mean * scale
    arrays: Mapping[str, Array] = {"scale": scale.astype(np.float32), "shift": shift.astype(np.float32)}
    (y,) = m.add("affine", [x.value], m.stored(m.label(node), arrays), width=length, inner=inner)
    m.give(node.y, y, x.axes)


def _norm(m: ModelBuilder, node: Node[kinds.LastAxesNorm | kinds.UnitNorm]) -> None:
    x, kind = m(node.x), node.kind
    unit, rank = isinstance(kind, kinds.UnitNorm), len(x.axes)
    axes = [x.axis(axis) for axis in kind.axes] if isinstance(kind, kinds.UnitNorm) else [*range(rank - len(kind.sizes), rank)]
    if axes != list(range(rank - len(axes), rank)) or any(x.axes[axis] in OPEN for axis in axes):
        raise ValueError("it works along other axes than the last ones of a step")
    width = math.prod(x.axes[axis] for axis in axes)
    affine = isinstance(kind, kinds.Norm) and (kind.scale or kind.shift)
    parts = m.parts(node, kind.word) if affine else {}
    arrays: Mapping[str, Array] = {word: np.asarray(parts[word]).reshape(-1) for word in ("scale", "shift") if word in parts}
    name = m.stored(m.label(node), arrays) if arrays else ""
    (y,) = m.add(
        "norm", [x.value], name, width=width, epsilon=float(kind.epsilon), centred=isinstance(kind, kinds.LayerNorm), unit=unit,
        scale="scale" in arrays, shift="shift" in arrays,
    )  # fmt: skip
    m.give(node.y, y, x.axes)


def _rescale(m: ModelBuilder, node: Node[kinds.Rescale]) -> None:
    x = m(node.x)
    y = ProgramTensor(m.combined("multiply", [x, float(node.kind.scale)]), x.axes)
    m.give(node.y, m.combined("add", [y, float(node.kind.shift)]) if node.kind.shift else y.value, x.axes)


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
        opened = {axis for axis in axes if axis in OPEN}
        if len(opened) > 1 or (opened and any(axis not in (1, *opened) for axis in axes)):
            raise ValueError("the axes of what it reads do not lie alike")
        lengths = [axis for axis in axes if isinstance(axis, int)]
        result.append(opened.pop() if opened else max(lengths))
    for axes in wide:
        closed = [axis for axis, kind in zip(axes, result, strict=True) if kind not in OPEN]
        if any(not isinstance(axis, int) for axis in closed):
            raise ValueError("the axes of what it reads do not lie alike")
    return tuple(result)


def _spread(m: ModelBuilder, tensors: Sequence[ProgramTensor], axes: Axes, behind_batch: bool) -> list[ProgramTensor]:
    """Return tensors with the lengths that they have among axes that all of them spread over."""
    result = []
    for tensor in tensors:
        new = (1,) * (len(axes) - len(tensor.axes))
        wide = (*tensor.axes[:1], *new, *tensor.axes[1:]) if behind_batch else (*new, *tensor.axes)
        lengths = tuple(axis for axis, kind in zip(wide, axes, strict=True) if kind not in OPEN)
        result.append(ProgramTensor(tensor.value, lengths))
    return result


def _arithmetic(m: ModelBuilder, node: Node[kinds.Arithmetic]) -> None:
    tensors, operation = [m(value) for value in node.inputs], node.kind.operation
    m.in_float32(node)
    axes = _aligned(tensors, behind_batch=True)
    first, *others = _spread(m, tensors, axes, True)
    lengths = tuple(axis for axis in axes if isinstance(axis, int))
    for other in others:
        shape = np.broadcast_shapes(tuple(first.lengths), tuple(other.lengths))
        first = ProgramTensor(m.combined("add" if operation == "average" else operation, [first, other]), shape)
    if operation == "average":
        first = ProgramTensor(m.combined("divide", [first, float(len(tensors))]), lengths)
    m.give(node.y, first.value, axes)


_FLOATS = ("float16", "float32", "float64")


def _elementwise(m: ModelBuilder, node: Node[kinds.Elementwise]) -> None:
    operation, tensors = node.kind.operation, [m(value) for value in node.inputs]
    axes = _aligned(tensors)
    wide = _spread(m, tensors, axes, False)
    operands: list[ProgramTensor | float] = [wide[value] if kind == "input" else float(value) for kind, value in node.kind.operands]
    m.in_float32(node, *(value for kind, value in node.kind.operands if kind == "number"))
    if operation in FUNCTIONS and len(operands) == 1 and isinstance(operands[0], ProgramTensor):
        m.give(node.y, _function(m, operands[0].value, operation), axes)
        return
    integral = node.y.dtype not in (*_FLOATS, "bool")
    if operation not in COMBINED or (integral and operation in ("divide", "power")):
        raise m.refused(node, f"the operator {operation!r}", "no code in C is known for it")
    m.give(node.y, m.combined(operation, operands), axes)


def _clip(m: ModelBuilder, node: Node[kinds.Clip]) -> None:
    x = m(node.x)
    y = x
    for bound, operation in ((node.kind.min, "maximum"), (node.kind.max, "minimum")):
        if bound is not None:
            y = ProgramTensor(m.combined(operation, [y, float(bound)]), x.axes)
    m.give(node.y, y.value, x.axes)


def _mask(m: ModelBuilder, node: Node[kinds.Mask]) -> None:
    x, operation = m(node.x), node.kind.operation
    tensors = [m(value) for value in node.inputs]
    if node.kind.value is not None:
        m.in_float32(node, node.kind.value)
    if operation in ("equal", "not_equal", "greater", "greater_equal", "less", "less_equal"):
        m.give(node.y, m.combined(operation, [x, float(node.kind.value or 0)]), x.axes)
    elif operation == "any differs":
        differs = m.combined("not_equal", [x, float(node.kind.value or 0)])
        (y,) = m.add("folded", [differs], length=x.place(-1)[0], inner=1, operation="any")
        m.give(node.y, y, x.axes[:-1])
    elif operation in ("and", "or"):
        axes = _aligned(tensors)
        m.give(node.y, m.combined(operation, _spread(m, tensors, axes, False)), axes)
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


def _where(m: ModelBuilder, node: Node[kinds.Where | kinds.ZeroMasked]) -> None:
    """Add a tensor's numbers at the steps that count, and others elsewhere."""
    x, mask = m(node.x), m(node.named["mask"][0])
    wide = ProgramTensor(mask.value, (*mask.axes, 1))
    other: list[ProgramTensor] = [m(node.inputs[1])] if len(node.inputs) > 1 else []
    axes = _aligned([wide, x, *other])
    spread: list[ProgramTensor | float] = [*_spread(m, [wide, x, *other], axes, False)]
    m.give(node.y, m.combined("where", [*spread, *([] if other else [float(node.kind.value)])]), axes)


# Stored numbers


def _constant(m: ModelBuilder, node: Node[kinds.Constant]) -> None:
    array = np.asarray(node.kind.numbers)
    if array.size and not np.isfinite(array).all():
        raise ValueError("stored numbers that are not finite")
    tensor = m.constant(m.label(node), array if array.dtype.kind in "iu" else array.astype(np.float32))
    m.give(node.y, tensor.value, tensor.axes)


def _parameter(m: ModelBuilder, node: Node[kinds.Parameter]) -> None:
    tensor = m.constant(m.label(node), m.weights.numbers(m.path(node)).reshape(node.kind.sizes))
    m.give(node.y, tensor.value, tensor.axes)


def _weight(m: ModelBuilder, node: Node[kinds.LayerWeight]) -> None:
    part: Array = m.parts(node, node.kind.of)[node.kind.array]
    tensor = m.constant(f"{m.label(node)}_{node.kind.array}", part)
    m.give(node.y, tensor.value, tensor.axes)


def _zeros(m: ModelBuilder, node: Node[kinds.Full]) -> None:
    """Add a number as often as the batch and stated lengths say: states that begin with it."""
    axes: list[str | int] = []
    for length in node.y.shape:
        if length is None and BATCH in axes:
            raise ValueError("a tensor of several open lengths")
        axes.append(BATCH if length is None else length)
    size = math.prod(axis for axis in axes if isinstance(axis, int))
    dtype = node.y.dtype if "int" in node.y.dtype else "float32"
    tensor = m.constant(m.label(node), np.full(size, node.kind.number, dtype), tuple(axes))
    m.give(node.y, tensor.value, tensor.axes)


def _cast(m: ModelBuilder, node: Node[kinds.Cast]) -> None:
    x, target = m(node.x), np.dtype(node.kind.dtype)
    if target.itemsize == 1 and target.kind in "iu":
        m.in_float32(node)
    value = x.value
    if target.kind == "b":
        value = _function(m, value, "truth")
    elif (target.kind in "iu" and np.dtype(node.x.dtype).kind == "f") or (target.kind == "f" and m.program.values[value].integral):
        value = _function(m, value, "towards_zero")
    m.give(node.y, value, x.axes)


RULES: Rules = {
    **on(kinds.Dense, _dense), **on(kinds.Matmul, _matmul), **on(kinds.Embedding, _embedding), **on(kinds.Activation, _activation),
    **on(kinds.PReLU, _prelu),
    **on(kinds.Dropout, lambda m, node: m.give(node.y, m(node.x).value, m(node.x).axes)), **on(kinds.BatchNorm, _batch_norm),
    **on(kinds.LayerNorm, _norm), **on(kinds.RMSNorm, _norm), **on(kinds.UnitNorm, _norm), **on(kinds.Rescale, _rescale),
    **on(kinds.Arithmetic, _arithmetic), **on(kinds.Elementwise, _elementwise), **on(kinds.Clip, _clip), **on(kinds.Mask, _mask),
    **on(kinds.ZeroMasked, _where), **on(kinds.Where, _where), **on(kinds.Constant, _constant), **on(kinds.Parameter, _parameter),
    **on(kinds.LayerWeight, _weight), **on(kinds.Full, _zeros), **on(kinds.Cast, _cast), **INNER, **AXES, **STEPS,
}  # fmt: skip
"""The kinds that are known."""
