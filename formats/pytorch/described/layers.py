"""The operators of aten that read weights, as layers of a description. Source: aten/src/ATen/native/native_functions.yaml."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from rnnconvert.formats.pytorch.aten_operator import AtenOperator, BoundCall, Rule
from rnnconvert.formats.pytorch.described.recurrent import cell, recurrent
from rnnconvert.formats.pytorch.program.kinds import CELLS, RECURRENT
from rnnconvert.graphs.operators import Computes
from rnnconvert.scaffolding import kinds, operations
from rnnconvert.scaffolding.needs import NeedError
from rnnconvert.scaffolding.tensors import SourceTensor
from rnnconvert.scaffolding.windows import ConvSettings, Windows, conv, conv_transposed, pool, reached, same

if TYPE_CHECKING:
    from rnnconvert.formats.pytorch.described.reading import ProgramReading


def _float(x: SourceTensor) -> None:
    if x.dtype != "float32":
        raise ValueError(f"a layer of {x.dtype}")


def _linear(r: ProgramReading, call: BoundCall) -> SourceTensor:
    return r.dense(call.tensor(), call.tensor("weight"), call("bias"))


def _embedding(r: ProgramReading, call: BoundCall) -> SourceTensor:
    weight, x = call.tensor("weight"), call.tensor()
    if x.dtype not in ("int32", "int64"):
        raise NeedError(f"type of {x.name}", "int64")
    _, width = weight.dims
    unit = r.used_as(weight, "embedding")
    if unit is None:
        return r.build.add(kinds.Gather(axis=0), [weight, x], (*x.dims, width), name="taken")
    return r.build.add_layer(kinds.Embedding(*_lengths(weight)), [x], (*x.dims, width), "float32", layer=r.layer(unit.name))


def spread(value: Any, rank: int) -> tuple[int, ...]:
    """Return a setting that has a number for each axis of space."""
    listed = list(value) if isinstance(value, (list, tuple)) else [value]
    return tuple(int(n) for n in (listed * rank if len(listed) == 1 else listed))


def _lengths(weight: SourceTensor) -> list[int]:
    """Return the lengths of a weight's axes, all of which its file states."""
    return [n for n in weight.dims if isinstance(n, int)]


def _settings(r: ProgramReading, call: BoundCall, rank: int) -> ConvSettings:
    layer, bias = r.unit(call.tensor("weight"), call("bias")).name, call("bias") is not None
    return ConvSettings(layer, spread(call("stride", 1), rank), spread(call("dilation", 1), rank), int(call("groups", 1)), bias)


def _conv(r: ProgramReading, call: BoundCall) -> SourceTensor:
    if call("transposed"):
        return _transposed(r, call)
    call.note_read("output_padding")
    x, weight, padding = call.tensor(), _lengths(call.tensor("weight")), call("padding", 0)
    rank = len(weight) - 2
    settings = _settings(r, call, rank)
    _float(x)
    if x.rank == rank + 2:
        r.build.need(x.dims[1], weight[1] * settings.groups)
    if isinstance(padding, str):
        reach = reached(weight[2:], settings.dilation)
        pads = tuple(same(n) if padding == "same" else (0, 0) for n in reach)
    else:
        pads = tuple((n, n) for n in spread(padding, rank))
    return conv(r.build, x, weight, pads, settings)


def _transposed(r: ProgramReading, call: BoundCall) -> SourceTensor:
    x, weight = call.tensor(), _lengths(call.tensor("weight"))
    rank = len(weight) - 2
    _float(x)
    if x.rank == rank + 2:
        r.build.need(x.dims[1], weight[0])
    more, pads = spread(call("output_padding", 0), rank), tuple((n, n) for n in spread(call("padding", 0), rank))
    return conv_transposed(r.build, x, weight, pads, more, _settings(r, call, rank))


def _batch_norm(r: ProgramReading, call: BoundCall) -> SourceTensor:
    x, arrays = call.tensor(), [call(word) for word in ("weight", "bias", "mean", "variance")]
    if call("training") or arrays[2] is None or (arrays[0] is None) != (arrays[1] is None):
        raise r.build.refuse("a batch norm in training, or without statistics", "save the model in evaluation, model.eval()")
    (size,) = arrays[2].dims
    _float(x)
    if x.rank < 2:
        raise ValueError(f"{size} channels for a tensor of {x.dims}")
    r.build.need(x.dims[1], size)
    return r.build.add_layer(
        kinds.BatchNorm(
            axis=1,
            size=size,
            epsilon=float(call("eps", 1e-5)),
            momentum=1 - float(call("momentum", 0.1)),
            scale=arrays[0] is not None,
            shift=arrays[1] is not None,
        ),
        [x],
        x.dims,
        layer=r.unit(*arrays).name,
    )


def _over_last(kind: type[kinds.LastAxesNorm], epsilon: float) -> Rule:
    """Return the rule of a norm over the last axes."""

    def rule(r: ProgramReading, call: BoundCall) -> SourceTensor:
        x, weight, bias, sizes = call.tensor(), call("weight"), call("bias"), tuple(call("shape"))
        _float(x)
        for dim, size in zip(x.dims[-len(sizes) :], sizes, strict=True):
            r.build.need(dim, size)
        layer = r.path(call.operation, kind.word) if weight is None and bias is None else r.unit(weight, bias).name
        norm = kind(float(call("eps", epsilon)), weight is not None, bias is not None, sizes)
        return r.build.add_layer(norm, [x], x.dims, layer=layer)

    return rule


def _group_norm(r: ProgramReading, call: BoundCall) -> SourceTensor:
    x, weight, bias = call.tensor(), call("weight"), call("bias")
    if weight is None or bias is None:
        raise r.build.refuse("a group norm without a scale", "no layer of the file is one")
    (size,) = _lengths(weight)
    if x.rank < 2:
        raise ValueError(f"{size} channels for a tensor of {x.dims}")
    r.build.need(x.dims[1], size)
    return r.build.add_layer(
        kinds.GroupNorm(float(call("eps", 1e-5)), True, True, axis=1, groups=int(call("groups")), size=size),
        [x],
        x.dims,
        layer=r.unit(weight, bias).name,
    )


def _prelu(r: ProgramReading, call: BoundCall) -> SourceTensor:
    x, weight = call.tensor(), call.tensor("weight")
    (count,) = _lengths(weight)
    if x.rank < 2:
        raise ValueError(f"slopes of the channels of a tensor of {x.dims}")
    if not weight.stored:
        raise ValueError("a slope that is computed")
    if count != 1:
        r.build.need(x.dims[1], count)
    return r.build.add_layer(kinds.PReLU.along(1, count, x.rank), [x], x.dims, layer=r.unit(weight).name)


def _pool(operation: str, rank: int) -> Rule:
    def rule(r: ProgramReading, call: BoundCall) -> SourceTensor:
        if call("divisor") is not None:
            raise ValueError("an average with a divisor of its own")
        kernel = spread(call("kernel"), rank)
        strides = kernel if call("stride") in (None, []) else spread(call("stride"), rank)
        dilation, pads = spread(call("dilation", 1), rank), tuple((n, n) for n in spread(call("padding", 0), rank))
        counted = operation == "average" and bool(call("count_include_pad", True))
        looks = Windows(kernel, strides, dilation, pads)
        return pool(r.build, call.tensor(), operation, looks, bool(call("ceil_mode", False)), counted)

    return rule


def _adaptive(operation: str, rank: int) -> Rule:
    """Return the rule of a pool that leaves an axis one place, or as it is, which the call says by its length or by None."""

    def rule(r: ProgramReading, call: BoundCall) -> SourceTensor:
        x, sizes = call.tensor(), call("size")
        listed = list(sizes) if isinstance(sizes, (list, tuple)) else [sizes]
        asked = dict(zip(range(x.rank - rank, x.rank), listed * rank if len(listed) == 1 else listed, strict=True))
        pooled = [axis for axis, size in asked.items() if size == 1]
        if any(size is not None and size != x.dims[axis] for axis, size in asked.items() if axis not in pooled):
            raise ValueError("an adaptive pool to more than one place")
        return operations.reduced(r.build, x, operation, pooled, True, "pooled") if pooled else x

    return rule


def _over(function: Callable[[int], Rule], word: str, parameters: str) -> dict[str, AtenOperator]:
    return {word.format(rank): AtenOperator(parameters, function(rank)) for rank in (1, 2, 3)}


_OF_ITS_SHAPE = Computes(shape=lambda shapes: shapes[0])
_CONV = "x weight bias stride padding dilation"
_ANY = "transposed output_padding groups benchmark deterministic cudnn_enabled allow_tf32"
LAYERS: dict[str, AtenOperator] = {
    "linear": AtenOperator("x weight bias", _linear, Computes(shape=lambda shapes: (*shapes[0][:-1], shapes[1][0]))),
    "embedding": AtenOperator(
        "weight x padding_idx scale_grad_by_freq sparse", _embedding, Computes(shape=lambda shapes: (*shapes[1], shapes[0][-1]))
    ),
    **_over(lambda rank: _conv, "conv{}d", f"{_CONV} groups"),
    **_over(lambda rank: _transposed, "conv_transpose{}d", "x weight bias stride padding output_padding groups dilation"),
    **dict.fromkeys(("convolution", "_convolution"), AtenOperator(f"{_CONV} {_ANY}", _conv)),
    "batch_norm": AtenOperator("x weight bias mean variance training momentum eps cudnn_enabled", _batch_norm, _OF_ITS_SHAPE),
    "layer_norm": AtenOperator("x shape weight bias eps cudnn_enable", _over_last(kinds.LayerNorm, 1e-5), _OF_ITS_SHAPE),
    "rms_norm": AtenOperator("x shape weight eps", _over_last(kinds.RMSNorm, float(np.finfo(np.float32).eps))),
    "group_norm": AtenOperator("x groups weight bias eps cudnn_enabled", _group_norm),
    "prelu": AtenOperator("x weight", _prelu),
    **_over(lambda rank: _pool("max", rank), "max_pool{}d", "x kernel stride padding dilation ceil_mode"),
    **_over(lambda rank: _pool("average", rank), "avg_pool{}d", "x kernel stride padding ceil_mode count_include_pad divisor"),
    **_over(lambda rank: _adaptive("mean", rank), "adaptive_avg_pool{}d", "x size"),
    **_over(lambda rank: _adaptive("max", rank), "adaptive_max_pool{}d", "x size"),
    **dict.fromkeys(RECURRENT, AtenOperator("a b c d e f g h i", recurrent)),
    **dict.fromkeys(CELLS, AtenOperator("a b c d e f", cell)),
}
"""Operators that read weights."""
