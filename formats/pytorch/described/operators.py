"""What each ATen operator computes, in the words of rnnconvert.scaffolding.description.

Source: aten/src/ATen/native/native_functions.yaml.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rnnconvert.formats.pytorch.described.graph import Size, Step, Tensor
from rnnconvert.formats.pytorch.described.recurrent import recurrent
from rnnconvert.formats.pytorch.described.scopes import Held, Reader, Rule, Stacked, Zeros
from rnnconvert.scaffolding.description import Value


def _x(r: Reader, step: Step) -> Value:
    return r.plain(step.arguments.get("self", step.arguments.get("input")), step)


def _out(step: Step) -> Tensor:
    tensor = step.outputs[0]
    return tensor if tensor is not None else Tensor("unread")


def _weight(r: Reader, step: Step, key: str = "weight") -> Held | None:
    """Return a parameter. Raises RefusedError for one that is computed."""
    argument = step.arguments.get(key)
    if argument is None:
        return None
    value = r(argument)
    if not isinstance(value, Held):
        raise r.refused(step, f"{step.operator} with a {key} that is computed", "only a module's own parameters are known here")
    return value


def _owner(r: Reader, step: Step) -> tuple[Held, str]:
    """Return a layer's weight, and the layer."""
    weight = _weight(r, step)
    if weight is None:
        raise r.refused(step, f"{step.operator} without a weight", "its layer has no name")
    bias = _weight(r, step, "bias")
    if bias is not None and bias.owner != weight.owner:
        raise r.refused(step, f"{step.operator} with parameters of two modules", "a layer has both")
    return weight, r.layer(weight.owner)


def _dense(r: Reader, step: Step) -> Value:
    weight, layer = _owner(r, step)
    return r.add("dense", layer, [_x(r, step)], _out(step), units=weight.tensor.shape[0], bias=step.arguments.get("bias") is not None)


def _embedding(r: Reader, step: Step) -> Value:
    weight, layer = _owner(r, step)
    rows, width = weight.tensor.shape
    return r.add("embedding", layer, [r.plain(step.arguments["indices"], step)], _out(step), input_size=rows, output_size=width)


def _several(value: Any, rank: int) -> tuple[int, ...]:
    numbers = [int(n) for n in (value if isinstance(value, (list, tuple)) else [value])]
    return tuple(numbers if len(numbers) == rank else numbers * rank)


def _to_end(r: Reader, value: Value) -> Value:
    """Return a tensor with its channels behind space."""
    sizes = r.sizes[id(value)]
    order = (0, *range(2, len(sizes)), 1)
    return r.turned(value, order, Tensor(value.name, tuple(sizes[n] for n in order), value.dtype))


def _to_front(r: Reader, value: Value, tensor: Tensor) -> Value:
    """Return a tensor with its channels in front of space again."""
    return r.turned(value, (0, len(tensor.shape) - 1, *range(1, len(tensor.shape) - 1)), tensor)


def _ended(tensor: Tensor) -> Tensor:
    return Tensor(tensor.name, (tensor.shape[0], *tensor.shape[2:], tensor.shape[1]), tensor.dtype)


def _padded(r: Reader, value: Value, pads: Sequence[int]) -> Value:
    """Return a tensor, channels at the end, with zeros around space."""
    if not any(pads):
        return value
    sizes = r.sizes[id(value)]
    longer = tuple(
        n + 2 * pad if isinstance(n, int) else f"{n} + {2 * pad}" if pad else n for n, pad in zip(sizes[1:-1], pads, strict=True)
    )
    tensor = Tensor(f"{value.name}_padded", (sizes[0], *longer, sizes[-1]), value.dtype)
    return r.add("pad", "", [value], tensor, pairs=tuple((pad, pad) for pad in pads))


def _conv(r: Reader, step: Step) -> Value:
    stated = step.arguments
    weight, layer = _owner(r, step)
    rank = len(weight.tensor.shape) - 2
    if stated.get("transposed"):
        raise r.refused(step, "a transposed convolution", "it is unknown")
    kernel = tuple(int(n) for n in weight.tensor.shape[2:])
    strides, dilation = _several(stated.get("stride", 1), rank), _several(stated.get("dilation", 1), rank)
    padding, groups = stated.get("padding", 0), int(stated.get("groups", 1))
    x = _to_end(r, _x(r, step))
    word = padding if isinstance(padding, str) else "valid"
    pads = (0,) * rank if isinstance(padding, str) else _several(padding, rank)
    reach = [d * (k - 1) for k, d in zip(kernel, dilation, strict=True)]
    if word == "valid" and any(pads) and max(strides) == 1 and all(2 * p == n for p, n in zip(pads, reach, strict=True)):
        word, pads = "same", (0,) * rank
    output = r.add("conv", layer, [_padded(r, x, pads)], _ended(_out(step)), rank=rank, channels=int(weight.tensor.shape[1]) * groups,
                   filters=weight.tensor.shape[0], kernel=kernel, strides=strides, dilation=dilation, groups=groups,
                   bias=stated.get("bias") is not None, padding=word)  # fmt: skip
    return _to_front(r, output, _out(step))


def _pool(r: Reader, step: Step) -> Any:
    stated, name = step.arguments, step.operator
    rank = int(name[-2]) if name[-1] == "d" else int(name.partition("d_")[0][-1])
    kernel = _several(stated["kernel_size"], rank)
    strides = _several(stated.get("stride") or kernel, rank)
    pads, operation = _several(stated.get("padding", 0), rank), "max" if name.startswith("max") else "average"
    if any(n != 1 for n in _several(stated.get("dilation", 1), rank)) or stated.get("ceil_mode") or stated.get("divisor_override"):
        raise r.refused(step, f"{name} with dilation, ceil_mode or a divisor", "only plain windows are known here")
    if any(pads):
        raise r.refused(step, f"{name} with padding", "what is padded counts otherwise elsewhere")
    output = r.add(
        "pool",
        "",
        [_to_end(r, _x(r, step))],
        _ended(_out(step)),
        operation=operation,
        rank=rank,
        kernel=kernel,
        strides=strides,
        padding="valid",
    )
    return _to_front(r, output, _out(step))


def _adaptive(r: Reader, step: Step) -> Value:
    x, out = _x(r, step), _out(step)
    if any(n != 1 for n in out.shape[2:]):
        raise r.refused(step, f"{step.operator} to more than one place", "its windows depend on the length")
    operation = "max" if "max" in step.operator else "mean"
    return r.add("reduce", "", [x], out, operation=operation, axes=tuple(range(2, len(x.shape))), keep=True)


def _batch_norm(r: Reader, step: Step) -> Value:
    stated = step.arguments
    mean = _weight(r, step, "running_mean")
    if stated.get("training") or mean is None:
        raise r.refused(step, "a batch norm of the batch's own moments", "only one in evaluation is known here")
    scale, shift = stated.get("weight") is not None, stated.get("bias") is not None
    return r.add(
        "batch_norm",
        r.layer(mean.owner),
        [_x(r, step)],
        _out(step),
        axis=1,
        size=int(mean.tensor.shape[0]),
        epsilon=float(stated["eps"]),
        momentum=1 - float(stated.get("momentum", 0.1)),
        scale=scale,
        shift=shift,
    )


def _layer_norm(r: Reader, step: Step) -> Value:
    stated, plain = step.arguments, step.operator == "rms_norm"
    epsilon = stated.get("eps")
    epsilon = (1.1920928955078125e-07 if plain else 1e-5) if epsilon is None else float(epsilon)
    scale, shift = _weight(r, step), _weight(r, step, "bias")
    owner = scale or shift
    layer = r.layer(owner.owner) if owner else _caller(step)
    return r.add(
        "rms_norm" if plain else "layer_norm",
        layer,
        [_x(r, step)],
        _out(step),
        sizes=tuple(stated["normalized_shape"]),
        epsilon=epsilon,
        scale=scale is not None,
        shift=shift is not None,
    )


def _caller(step: Step) -> str:
    return step.callers[-1].path.replace(".", "/") if step.callers else ""


_SAME = ("contiguous", "clone", "detach", "alias", "lift_fresh_copy", "_to_copy", "to", "type_as", "positive", "detach_")


def _same(r: Reader, step: Step) -> Any:
    argument = step.arguments.get("self", step.arguments.get("input"))
    value, out = r(argument), _out(step)
    if isinstance(value, Value) and value.dtype != out.dtype:
        return r.add("cast", "", [value], out, dtype=out.dtype)
    return value


def _dropout(r: Reader, step: Step) -> Value:
    rate = float(step.arguments.get("p", 0.5))
    name = {"alpha_dropout": "AlphaDropout"}.get(step.operator, "Dropout")
    path = step.callers[-1].path.replace(".", "/") if step.callers and ".dropout." in step.callers[-1].kind else ""
    if step.arguments.get("train"):
        raise r.refused(step, "dropout that is on", "only evaluation is known here")
    if not path or step.operator.startswith("feature"):
        return _x(r, step)
    layer = path.removeprefix(f"{r.scope.path}/") if r.scope.path else path
    return r.add("dropout", layer, [_x(r, step)], _out(step), name=name, rate=rate)


_FUNCTIONS = {
    "relu": "relu", "sigmoid": "sigmoid", "tanh": "tanh", "exp": "exponential", "selu": "selu", "softplus": "softplus",
    "hardsigmoid": "hard_sigmoid", "silu": "silu", "gelu": "gelu", "relu6": "relu6", "softsign": "softsign", "abs": "abs", "sqrt": "sqrt",
    "log": "log", "square": "square", "neg": "neg",
}  # fmt: skip


def _function(r: Reader, step: Step) -> Value:
    stated, name = step.arguments, _FUNCTIONS[step.operator.rstrip("_")]
    if name == "gelu" and stated.get("approximate", "none") != "none":
        raise r.refused(step, "gelu by tanh", "only the exact one is known here")
    if name == "softplus" and (stated.get("beta", 1) != 1 or stated.get("threshold", 20) != 20):
        raise r.refused(step, "softplus with numbers", "only its defaults are known here")
    return r.add("activation", "", [_x(r, step)], _out(step), name=name, alpha=None, axis=-1)


def _sloped(r: Reader, step: Step) -> Value:
    if step.operator.startswith("elu") and (step.arguments.get("scale", 1) != 1 or step.arguments.get("input_scale", 1) != 1):
        raise r.refused(step, "elu with scales", "only alpha is known here")
    default, key = (0.01, "negative_slope") if step.operator.startswith("leaky") else (1.0, "alpha")
    name = "leaky_relu" if step.operator.startswith("leaky") else "elu"
    return r.add("activation", "", [_x(r, step)], _out(step), name=name, alpha=float(step.arguments.get(key, default)), axis=-1)


def _clamped(r: Reader, step: Step) -> Value:
    stated = step.arguments
    low, high = stated.get("min", stated.get("min_val", -1)), stated.get("max", stated.get("max_val", 1))
    return r.add("clip", "", [_x(r, step)], _out(step), min=low, max=high)


def _softmax(r: Reader, step: Step) -> Value:
    name = "log_softmax" if "log" in step.operator else "softmax"
    return r.add("activation", "", [_x(r, step)], _out(step), name=name, alpha=None, axis=_axis(step.arguments["dim"], step, r))


def _axis(axis: int, step: Step, r: Reader) -> int:
    rank = len(_x(r, step).shape)
    return -1 if axis in (-1, rank - 1) else axis % rank


def _prelu(r: Reader, step: Step) -> Value:
    weight = _weight(r, step)
    assert weight is not None
    x = _x(r, step)
    axis = 1 if len(x.shape) > 1 else 0
    slopes = [1] * (len(x.shape) - 1)
    slopes[axis - 1] = int(weight.tensor.shape[0])
    if axis != len(x.shape) - 1:
        raise r.refused(step, "a PReLU over channels in front", "only one over the last axis is known here")
    return r.add("prelu", r.layer(weight.owner), [x], _out(step), slopes=tuple(slopes))


_OPERATIONS = {"add": "add", "sub": "subtract", "mul": "multiply", "div": "divide", "maximum": "maximum", "minimum": "minimum"}


def _arithmetic(r: Reader, step: Step) -> Value:
    first, other, out = step.arguments["self"], step.arguments["other"], _out(step)
    operation = _OPERATIONS[step.operator.rstrip("_")]
    if step.arguments.get("alpha", 1) != 1 or step.arguments.get("rounding_mode"):
        raise r.refused(step, f"{step.operator} with alpha or rounding", "only plain arithmetic is known here")
    if not isinstance(other, Tensor):
        if not isinstance(other, (int, float)):
            raise r.refused(step, f"{step.operator} of a size", "its number depends on the input")
        scale, shift = {"add": (1.0, other), "subtract": (1.0, -other), "multiply": (other, 0.0)}.get(
            operation, (1 / other if other else 0, 0.0)
        )
        return r.add("rescale", "", [r.plain(first, step)], out, scale=float(scale), shift=float(shift))
    values = [r.plain(tensor, step) for tensor in (first, other)]
    return r.add("arithmetic", "", _of_one_rank(r, values), out, operation=operation)


def _of_one_rank(r: Reader, values: Sequence[Value]) -> list[Value]:
    """Return tensors with as many axes as the one that has most: new ones in front, as PyTorch broadcasts them."""
    rank = max(len(value.shape) for value in values)
    same_rank = []
    for value in values:
        while len(value.shape) < rank:
            value = r.add("unsqueeze", "", [value], Tensor(value.name, (1, *r.sizes[id(value)]), value.dtype), axis=0)
        same_rank.append(value)
    return same_rank


def _from(r: Reader, step: Step) -> Value:
    """Return a number less a tensor."""
    other = step.arguments["other"]
    return r.add("rescale", "", [_x(r, step)], _out(step), scale=-1.0, shift=float(other))


def _matmul(r: Reader, step: Step) -> Value:
    other = step.arguments.get("other", step.arguments.get("mat2"))
    values = [_x(r, step), r.plain(other, step)]
    if any(len(value.shape) < 2 for value in values):
        raise r.refused(step, "a product with a vector", "only matrices are known here")
    return r.add("matmul", "", values, _out(step))


def _cat(r: Reader, step: Step) -> Any:
    argument = step.arguments["tensors"]
    axis = step.arguments.get("dim", 0)
    values = [r.plain(tensor, step) for tensor in argument]
    return r.add("concatenate", "", values, _out(step), axis=axis % len(values[0].shape))


def _stack(r: Reader, step: Step) -> Any:
    values = [r.plain(tensor, step) for tensor in step.arguments["tensors"]]
    axis = step.arguments.get("dim", 0) % (len(values[0].shape) + 1)
    return Stacked(_out(step).name, tuple(values)) if axis == 0 else r.add("stack", "", values, _out(step), axis=axis)


def _select(r: Reader, step: Step) -> Any:
    axis, index = step.arguments.get("dim", 0), step.arguments["index"]
    value = r(step.arguments["self"])
    if isinstance(value, Stacked) and axis % (len(value.parts[0].shape) + 1) == 0:
        return value.parts[index]
    x = _x(r, step)
    return r.add("select", "", [x], _out(step), axis=axis % len(x.shape), index=index)


def _slice(r: Reader, step: Step) -> Any:
    stated = step.arguments
    start, end, by = stated.get("start"), stated.get("end"), stated.get("step", 1)
    value, axis = r(stated["self"]), stated.get("dim", 0)
    start, end = start or None, None if end is None or (isinstance(end, int) and end >= 1 << 62) else end
    if isinstance(start, str) or isinstance(end, str):
        raise r.refused(step, "a slice that depends on a length", "only numbers are known here")
    if isinstance(value, Stacked) and axis % (len(value.parts[0].shape) + 1) == 0:
        return Stacked(value.name, value.parts[start:end:by])
    x = _x(r, step)
    if start is None and end is None and by == 1:
        return x
    return r.add("slice", "", [x], _out(step), axis=axis % len(x.shape), start=start, end=end, step=by)


def _parts(r: Reader, step: Step) -> list[Any]:
    """Add the parts along an axis: of chunk, split and unbind."""
    value, axis = r(step.arguments["self"]), step.arguments.get("dim", 0)
    if step.operator == "unbind" and isinstance(value, Stacked) and axis == 0:
        return list(value.parts)
    x = _x(r, step)
    axis, at, parts = axis % len(x.shape), 0, []
    for number, tensor in enumerate(step.outputs):
        if step.operator == "unbind":
            parts.append(r.add("select", "", [x], tensor, axis=axis, index=number) if tensor else None)
            continue
        length = tensor.shape[axis] if tensor is not None else None
        size = length if isinstance(length, int) else _length(r, step, x, axis, number)
        if tensor is not None:
            parts.append(r.add("slice", "", [x], tensor, axis=axis, start=at or None, end=at + size, step=1))
        else:
            parts.append(None)
        at += size
    return parts


def _length(r: Reader, step: Step, x: Value, axis: int, number: int) -> int:
    """Return the length of a part that nothing reads."""
    size, stated = (x.shape[axis], step.arguments.get("split_sizes", step.arguments.get("split_size", step.arguments.get("chunks"))))
    if isinstance(stated, list):
        return int(stated[number])
    if size is None or not isinstance(stated, int):
        raise r.refused(step, f"{step.operator} of an open axis", "how long its parts are depends on the input")
    return -(-size // stated) if step.operator == "chunk" else stated


def _transpose(r: Reader, step: Step) -> Any:
    x = _x(r, step)
    rank = len(x.shape)
    if step.operator == "permute":
        order = tuple(n % rank for n in step.arguments["dims"])
    elif step.operator in ("t", "mT"):
        order = (*range(rank - 2), rank - 1, rank - 2) if rank > 1 else (0,)
    else:
        first, second = (step.arguments[key] % rank for key in ("dim0", "dim1"))
        swapped = {first: second, second: first}
        order = tuple(swapped.get(n, n) for n in range(rank))
    return r.turned(x, order, _out(step))


def _reshape(r: Reader, step: Step) -> Any:
    x, out = _x(r, step), _out(step)
    before, after = r.sizes[id(x)], out.shape
    if before == after:
        return x
    if step.operator in ("view", "reshape", "_unsafe_view", "flatten") and _joined(before, after):
        return r.add("steps to batch", "", [x], out)
    if len(after) == len(before) + 1 and after[2:] == before[1:]:
        like = _with_lead(r, after[:2])
        if like is not None:
            return r.add("batch to steps", "", [x, like], out)
    if after[:1] == before[:1] and sum(not isinstance(n, int) for n in after[1:]) <= 1:
        flat = len(after) == 2 and len(before) > 2
        sizes = tuple(n if isinstance(n, int) else -1 for n in after[1:])
        return r.add("flatten", "", [x], out) if flat else r.add("reshape", "", [x], out, sizes=sizes)
    if sum(not isinstance(n, int) for n in after) <= 1:
        return r.add("reshape all", "", [x], out, sizes=tuple(n if isinstance(n, int) else -1 for n in after))
    raise r.refused(step, f"a change of shape from {before} to {after}", "which axes stay is not clear")


def _joined(before: Sequence[Size], after: Sequence[Size]) -> bool:
    """Return whether the first two axes become one: the others stay, so nothing else can."""
    return len(before) == len(after) + 1 and list(before[2:]) == list(after[1:])


def _with_lead(r: Reader, lead: Sequence[Size]) -> Value | None:
    """Return a tensor of the scope with some first axes."""
    values = [*r.scope.inputs, *(value for node in r.scope.nodes for value in node.outputs)]
    return next((value for value in values if tuple(r.sizes.get(id(value), ())[:2]) == tuple(lead) and value.dtype != "bool"), None)


def _unsqueeze(r: Reader, step: Step) -> Any:
    value, axis = r(step.arguments["self"]), step.arguments["dim"]
    if isinstance(value, Zeros):
        return value
    x = _x(r, step)
    return r.add("unsqueeze", "", [x], _out(step), axis=axis % (len(x.shape) + 1))


def _squeeze(r: Reader, step: Step) -> Any:
    value, axis = r(step.arguments["self"]), step.arguments.get("dim")
    if isinstance(value, Stacked) and len(value.parts) == 1 and axis in (0, [0]):
        return value.parts[0]
    x = _x(r, step)
    sizes = r.sizes[id(x)]
    asked = range(len(sizes)) if axis is None else [n % len(sizes) for n in (axis if isinstance(axis, list) else [axis])]
    for n in sorted((n for n in asked if sizes[n] == 1), reverse=True):
        sizes = (*sizes[:n], *sizes[n + 1 :])
        x = r.add("squeeze", "", [x], Tensor(_out(step).name, sizes, x.dtype), axis=n)
    return x


def _flip(r: Reader, step: Step) -> Value:
    x = _x(r, step)
    return r.add("flip", "", [x], _out(step), axes=tuple(n % len(x.shape) for n in step.arguments["dims"]))


_REDUCED = {"mean": "mean", "sum": "sum", "amax": "max", "amin": "min", "max": "max", "min": "min"}


def _reduced(r: Reader, step: Step) -> Any:
    x, stated = _x(r, step), step.arguments.get("dim")
    axes = (
        [n % len(x.shape) for n in (stated if isinstance(stated, list) else [stated])]
        if stated is not None and stated != []
        else list(range(len(x.shape)))
    )
    output = r.add(
        "reduce", "", [x], _out(step), operation=_REDUCED[step.operator], axes=tuple(axes), keep=bool(step.arguments.get("keepdim", False))
    )
    if len(step.outputs) > 1 and step.outputs[1] is not None:
        raise r.refused(step, f"the places that {step.operator} gives", "only its numbers are known here")
    return [output]


def _pad(r: Reader, step: Step) -> Value:
    x, pads, value = _x(r, step), step.arguments["pad"], step.arguments.get("value") or 0
    if step.arguments.get("mode", "constant") != "constant" or value or any(n < 0 for n in pads):
        raise r.refused(step, "padding with other than zeros", "only zeros are known here")
    pairs = [(pads[n], pads[n + 1]) for n in range(0, len(pads), 2)][::-1]
    pairs = [(0, 0)] * (len(x.shape) - len(pairs)) + pairs
    return r.add("pad", "", [x], _out(step), pairs=tuple(pairs))


_WHOLE_ZEROS = ("zeros", "zeros_like", "new_zeros", "zero")

RULES: Mapping[str, Rule] = {
    "linear": _dense, "embedding": _embedding, **dict.fromkeys(("conv1d", "conv2d", "conv3d", "convolution"), _conv),
    **dict.fromkeys(("max_pool1d", "max_pool2d", "max_pool3d", "avg_pool1d", "avg_pool2d", "avg_pool3d"), _pool),
    **{f"adaptive_{kind}_pool{n}d": _adaptive for kind in ("avg", "max") for n in (1, 2, 3)},
    "batch_norm": _batch_norm, "layer_norm": _layer_norm, "rms_norm": _layer_norm,
    **dict.fromkeys(_SAME, _same), **dict.fromkeys(("dropout", "alpha_dropout", "feature_dropout"), _dropout),
    **dict.fromkeys(_FUNCTIONS, _function), "leaky_relu": _sloped, "elu": _sloped, **dict.fromkeys(("clamp", "hardtanh"), _clamped),
    **dict.fromkeys(("softmax", "_softmax", "log_softmax", "_log_softmax"), _softmax), "prelu": _prelu,
    **dict.fromkeys(_OPERATIONS, _arithmetic), "rsub": _from, **dict.fromkeys(("matmul", "bmm", "mm"), _matmul),
    **dict.fromkeys(("cat", "concat", "concatenate"), _cat), "stack": _stack, "select": _select, "slice": _slice,
    **dict.fromkeys(("chunk", "split", "split_with_sizes", "unbind"), _parts),
    **dict.fromkeys(("transpose", "permute", "t", "mT", "swapaxes"), _transpose),
    **dict.fromkeys(("view", "reshape", "_unsafe_view", "flatten", "unflatten"), _reshape),
    "unsqueeze": _unsqueeze, "squeeze": _squeeze, "flip": _flip, **dict.fromkeys(_REDUCED, _reduced),
    **dict.fromkeys(("pad", "constant_pad_nd"), _pad), **dict.fromkeys(_WHOLE_ZEROS, lambda r, step: Zeros()),
    **dict.fromkeys(("lstm", "gru", "rnn_tanh", "rnn_relu"), recurrent),
}  # fmt: skip
"""The operators that are known."""
