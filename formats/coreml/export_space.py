"""Convolutions, pools and padding as operations of Core ML.

What its `pad_type` "same" and the pads of a transposed convolution do, its text leaves open where windows move by more than one place; so
values are padded and cut by operations of their own.
Source: coremltools 9.0, converters/mil/mil/ops/defs/iOS15, conv.py and pool.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from rnnconvert.formats.coreml.export_program import MilValue, Operand
from rnnconvert.formats.coreml.export_writer import MilWriter, Rule
from rnnconvert.graphs.program.operations import Operation
from rnnconvert.scaffolding.windows import same

_LOWEST = float(np.finfo(np.float32).min)


def _window(node: Operation, count: int) -> tuple[list[int], list[int], list[int]]:
    """Return strides, dilations and pads; those at the beginning first."""
    strides, dilations = (list(node.attributes.get(key, [1] * count)) for key in ("strides", "dilations"))
    return strides, dilations, list(node.attributes.get("pads", [0] * 2 * count))


def _padded(w: MilWriter, node: Operation, x: MilValue, reach: Sequence[int], strides: Sequence[int], number: float) -> MilValue:
    """Add places at both ends of the axes of space, so that there is a window for each stride that begins."""
    ends: list[MilValue] = [w.main.numbers(0, 0, 0, 0)]
    shape = [*x.shape]
    stated: list[int] = [0, 0, 0, 0]
    for place, (window, stride) in enumerate(zip(reach, strides, strict=True)):
        length = x.shape[place + 2]
        if length is not None:
            pads = same(window, stride, length)
            ends.append(w.main.numbers(*pads))
            stated += pads
            shape[place + 2] = length + sum(pads)
        else:
            ends += _open_pads(w, node, x, place + 2, window, stride)
            shape[place + 2] = None
    constant = w.main.number(number)
    pad = w.main.numbers(*stated) if len(stated) == 2 * x.rank else w.main.joined(ends, 0, f"{node.name}/pads")
    return w.main.op("pad", f"{node.name}/padded", x.dtype, shape, {"x": x, "pad": pad, "mode": "constant", "constant_val": constant})


def _open_pads(w: MilWriter, node: Operation, x: MilValue, axis: int, window: int, stride: int) -> list[MilValue]:
    main, name = w.main, node.name
    size = main.size(x, axis, f"{name}/size")
    rest = main.both("mod", size, main.numbers(stride), f"{name}/rest")
    # A stride that begins at the end reaches as far as one of full length.
    last = main.op("select", f"{name}/last", "int32", (1,), {
        "cond": main.both("equal", rest, main.numbers(0), f"{name}/even", "bool"), "a": main.numbers(stride), "b": rest,
    })  # fmt: skip
    total = main.both("sub", main.numbers(window), last, f"{name}/beyond")
    total = main.both("maximum", total, main.numbers(0), f"{name}/more")
    low = main.both("floor_div", total, main.numbers(2), f"{name}/low")
    return [low, main.both("sub", total, low, f"{name}/high")]


def _conv(w: MilWriter, node: Operation) -> None:
    x, weight = w[node.inputs[0]], w[node.inputs[1]]
    count = x.rank - 2
    strides, dilations, pads = _window(node, count)
    reach = [(size or 1) * by - by + 1 for size, by in zip(weight.shape[2:], dilations, strict=True)]
    if node.attributes.get("auto_pad"):
        x, pads = _padded(w, node, x, reach, strides, 0.0), [0] * 2 * count
    inputs: dict[str, Operand] = {
        "x": x, "weight": weight, "strides": w.main.numbers(*strides), "dilations": w.main.numbers(*dilations), "pad_type": "custom",
        "pad": w.main.numbers(*_in_pairs(pads)), "groups": w.main.index(node.attributes.get("group", 1)),
    }  # fmt: skip
    inputs |= {"bias": w[node.inputs[2]]} if len(node.inputs) > 2 else {}
    w.put(node, "conv", inputs)


def _in_pairs(pads: Sequence[int]) -> list[int]:
    """Return pads with both ends of an axis beside one another."""
    count = len(pads) // 2
    return [pads[place + end * count] for place in range(count) for end in range(2)]


def _conv_transposed(w: MilWriter, node: Operation) -> None:
    """Add everything that the windows reach, and cut it."""
    x, weight = w[node.inputs[0]], w[node.inputs[1]]
    count, main = x.rank - 2, w.main
    strides, dilations, pads = _window(node, count)
    groups, more = node.attributes.get("group", 1), node.attributes.get("output_padding", [0] * count)
    inputs: dict[str, Operand] = {
        "x": x, "weight": weight, "strides": main.numbers(*strides), "dilations": main.numbers(*dilations), "pad_type": "valid",
        "groups": main.index(groups),
    }  # fmt: skip
    reach = [(size or 1) * by - by + 1 for size, by in zip(weight.shape[2:], dilations, strict=True)]
    sizes = [None if n is None else (n - 1) * by + window for n, by, window in zip(x.shape[2:], strides, reach, strict=True)]
    shape = (x.shape[0], (weight.shape[1] or 1) * groups, *sizes)
    output = main.op("conv_transpose", f"{node.name}/spread", x.dtype, shape, inputs)
    beyond = [max(extra - pads[count + place], 0) for place, extra in enumerate(more)]
    if any(beyond):
        longer = [*output.shape[:2], *(None if n is None else n + extra for n, extra in zip(output.shape[2:], beyond, strict=True))]
        pad = main.numbers(0, 0, 0, 0, *(n for extra in beyond for n in (0, extra)))
        pad_inputs: dict[str, Operand] = {"x": output, "pad": pad, "mode": "constant", "constant_val": main.number(0.0)}
        output = main.op("pad", f"{node.name}/longer", x.dtype, longer, pad_inputs)
    for place, extra in enumerate(more):
        output = _cut(w, node, output, place + 2, pads[place], max(pads[count + place] - extra, 0))
    if len(node.inputs) > 2:
        bias = np.asarray(w.stored(node.inputs[2])).reshape(-1, *[1] * count)
        output = main.both("add", output, w.program.constant(f"{node.name}/bias", bias), f"{node.name}/biased")
    w.named(node.outputs[0], output)


def _cut(w: MilWriter, node: Operation, x: MilValue, axis: int, low: int, high: int) -> MilValue:
    """Leave out places at both ends of an axis."""
    if not low and not high:
        return x
    length = x.shape[axis]
    shape = [length and length - low - high if place == axis else other for place, other in enumerate(x.shape)]
    lists = [w.main.numbers(*(bound if place == axis else 0 for place in range(x.rank))) for bound in (low, -high)]
    masks = [w.main.truths([place != axis or not bound for place in range(x.rank)]) for bound in (low, high)]
    inputs: dict[str, Operand] = {"x": x, "begin": lists[0], "end": lists[1], "begin_mask": masks[0], "end_mask": masks[1]}
    return w.main.op("slice_by_index", f"{node.name}/cut", x.dtype, shape, inputs)


def _pool(w: MilWriter, node: Operation) -> None:
    kernel, x, main = node.attributes["kernel_shape"], w[node.inputs[0]], w.main
    count, most = len(kernel), node.kind == "MaxPool"
    strides, dilations, pads = _window(node, count)
    if node.attributes.get("ceil_mode", 0) or max(dilations) > 1:
        raise w.refused(node, "a pool with windows beyond its input (ceil_mode) or over places apart", "these are not written")
    settings: dict[str, Operand] = {"kernel_sizes": main.numbers(*kernel), "strides": main.numbers(*strides), "pad_type": "custom"}
    settings |= {"pad": main.numbers(*_in_pairs(pads)), "ceil_mode": False}
    if not node.attributes.get("auto_pad"):
        if not most:
            settings["exclude_padding_from_average"] = not node.attributes.get("count_include_pad", 0)
        w.put(node, "max_pool" if most else "avg_pool", {"x": x, **settings})
        return
    if most:
        w.put(node, "max_pool", {"x": _padded(w, node, x, kernel, strides, _LOWEST), **settings})
        return
    settings["exclude_padding_from_average"] = False
    ones = main.filled(main.sizes(x, f"{node.name}/size"), x.shape, main.number(1.0), f"{node.name}/ones")
    shape = w.dims(node, node.outputs[0])
    sums, shares = (
        main.op("avg_pool", f"{node.name}/pooled", x.dtype, shape, {"x": _padded(w, node, each, kernel, strides, 0.0), **settings})
        for each in (x, ones)
    )
    w.put(node, "real_div", {"x": sums, "y": shares})


_MODES = {"constant": "constant", "reflect": "reflect", "edge": "replicate"}


def _pad(w: MilWriter, node: Operation) -> None:
    x, pads, mode = w[node.inputs[0]], w.numbers(node.inputs[1]), node.attributes.get("mode", "constant")
    if pads is None or min(pads) < 0:
        raise w.refused(node, "places that are cut off, or as many as a run decides", "its operation adds some that it knows")
    if x.dtype != "fp32":
        raise w.refused(node, "padding of whole numbers or truths", "its operation pads numbers of floating point")
    pairs = _in_pairs(pads)
    if mode != "constant" and any(pairs[:-4]):
        raise w.refused(node, f"padding by {mode!r} of other than the last two axes", "its operation reaches no further")
    value = float(np.asarray(w.stored(node.inputs[2]))) if len(node.inputs) > 2 and node.inputs[2] else 0.0
    inputs: dict[str, Operand] = {"pad": w.main.numbers(*pairs), "mode": _MODES[mode], "constant_val": w.main.number(value)}
    w.put(node, "pad", {"x": x, **inputs})


SPACE: Mapping[str, Rule] = {
    "AveragePool": _pool, "Conv": _conv, "ConvTranspose": _conv_transposed, "MaxPool": _pool, "Pad": _pad,
}  # fmt: skip
"""The operations that are stated."""
