"""Programs of Core ML computed on Linux: by coremltools' own inference of values, operation by operation.

Every operation is made anew by coremltools' builder from arrays, so that it infers types for these shapes and computes the value where it
can. Of the operations that it has no numbers for, which `EQUATIONS` lists, the numbers are computed here from the texts of the operations.
Nothing here is of rnnconvert. It is not Core ML, which runs on Apple's systems alone.

Source: coremltools 9.0, converters/mil/mil/ops/defs, the text of each operation.
"""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tests.helpers.coreml_tools import tools

Array = np.ndarray


class Program:
    """A package as coremltools loads it.

    computed  the operations whose numbers coremltools computed, and those that EQUATIONS did
    """

    def __init__(self, path: Path) -> None:
        ct = tools()
        self._mb = importlib.import_module("coremltools.converters.mil").Builder
        mil = importlib.import_module("coremltools.converters.mil.mil")
        load = importlib.import_module("coremltools.converters.mil.frontend.milproto.load")
        model = ct.models.MLModel(str(path), skip_model_load=True)
        self.spec = model.get_spec()
        program = load.load(self.spec, specification_version=self.spec.specificationVersion, file_weights_dir=str(model.weights_dir))
        self.main = program.functions["main"]
        self._scope: Callable[[], Any] = lambda: mil.Function({}, opset_version=self.main.opset_version)
        self.inputs = [feature.name for feature in self.spec.description.input]
        self.computed: dict[str, set[str]] = {"coremltools": set(), "equations": set()}

    def __call__(self, *arrays: Array) -> list[Array]:
        """Return what the program gives for inputs in the order of its description."""
        values: dict[str, Any] = {}
        for feature, array in zip(self.spec.description.input, arrays, strict=True):
            self._within(feature, np.shape(array))
            values[feature.name] = np.asarray(array, {65568: np.float32, 131104: np.int32}[feature.type.multiArrayType.dataType])
        with self._scope():
            self._block(self.main, values)
        return [np.asarray(values[feature.name]) for feature in self.spec.description.output]

    @staticmethod
    def _within(feature: Any, shape: tuple[int, ...]) -> None:
        """Check that an input has a shape which the description of the model allows."""
        stated = feature.type.multiArrayType
        ranges = [(each.lowerBound, each.upperBound) for each in stated.shapeRange.sizeRanges] or [(n, n) for n in stated.shape]
        assert len(shape) == len(ranges) == len(stated.shape), feature
        assert all(low <= n <= high for n, (low, high) in zip(shape, ranges, strict=True)), (shape, feature)
        assert all(low <= n <= high for n, (low, high) in zip(stated.shape, ranges, strict=True)), feature

    def _block(self, block: Any, values: dict[str, Any]) -> None:
        for op in block.operations:
            if op.op_type == "const":
                value = op.outputs[0].val
                values[op.outputs[0].name] = bool(value) if isinstance(value, np.bool_) else value
            elif op.op_type == "constexpr_cast":
                values[op.outputs[0].name] = np.asarray(op.source_val.val).astype(np.float32)
            else:
                for output, value in zip(op.outputs, self._results(op, values), strict=True):
                    values[output.name] = value

    def _results(self, op: Any, values: Mapping[str, Any]) -> Sequence[Any]:
        def read(value: Any) -> Any:
            if isinstance(value, (list, tuple)):
                return [read(each) for each in value]
            array = values[value.name]
            return array.copy() if isinstance(array, np.ndarray) else array  # coremltools counts bounds from the end in place

        if op.op_type == "while_loop":
            return self._loop(op, [read(value) for value in op.loop_vars], values)
        inputs = {key: read(value) for key, value in op.inputs.items() if value is not None and not key.startswith("_")}
        built = getattr(self._mb, op.op_type)(**inputs)
        outputs = list(built) if isinstance(built, (list, tuple)) else [built]
        if all(output.val is not None for output in outputs):
            self.computed["coremltools"].add(op.op_type)
            results = [output.val for output in outputs]
        else:
            self.computed["equations"].add(op.op_type)
            results = EQUATIONS[op.op_type](inputs)
        for output, result in zip(outputs, results, strict=True):
            stated = [length if isinstance(length, (int, np.integer)) else None for length in output.shape]
            assert len(stated) == np.ndim(result), (op.op_type, op.name)
            assert all(length in (None, real) for length, real in zip(stated, np.shape(result), strict=True)), (op.op_type, op.name)
        return results

    def _loop(self, op: Any, state: list[Any], outer: Mapping[str, Any]) -> list[Any]:
        self.computed["equations"].add("while_loop")
        goes_on, body = op.blocks
        for _ in range(10_000):
            for block in (goes_on, body):
                values = {**outer, **{value.name: current for value, current in zip(block.inputs, state, strict=True)}}
                self._block(block, values)
                results = [values[output.name] for output in block.outputs]
                if block is goes_on and not np.all(results[0]):
                    return state
            state = results
        raise AssertionError(f"{op.name} does not end")


# What coremltools has no numbers for


def _sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


_FUNCTIONS: dict[str, Callable[[Array], Array]] = {
    "tanh": np.tanh,
    "sigmoid": _sigmoid,
    "relu": lambda x: np.maximum(x, 0),
    "linear": lambda x: x,
}


def _lstm(a: Mapping[str, Any]) -> list[Array]:
    assert a.get("direction", "forward") == "forward" and a.get("peephole") is None and a.get("clip") is None and a["output_sequence"]
    gate, candidate, out = (_FUNCTIONS[a[key]] for key in ("recurrent_activation", "cell_activation", "activation"))
    h, c, every = a["initial_h"], a["initial_c"], []
    bias = a.get("bias")
    for x in a["x"]:
        sums = x @ a["weight_ih"].T + h @ a["weight_hh"].T + (0 if bias is None else bias)
        i, f, o, z = np.split(sums, 4, axis=-1)
        c = gate(f) * c + gate(i) * candidate(z)
        h = gate(o) * out(c)
        every.append(h)
    return [np.stack(every).astype(np.float32), h.astype(np.float32), c.astype(np.float32)]


def _rnn(a: Mapping[str, Any]) -> list[Array]:
    assert a.get("direction", "forward") == "forward" and a["output_sequence"]
    h, every, bias = a["initial_h"], [], a.get("bias")
    for x in a["x"]:
        h = _FUNCTIONS[a["activation"]](x @ a["weight_ih"].T + h @ a["weight_hh"].T + (0 if bias is None else bias))
        every.append(h)
    return [np.stack(every).astype(np.float32), h.astype(np.float32)]


def _windows(x: Array, kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int]) -> Array:
    """Return (batch, channels, places..., window...)."""
    axes = tuple(range(2, x.ndim))
    reach = [(size - 1) * by + 1 for size, by in zip(kernel, dilations, strict=True)]
    every = np.lib.stride_tricks.sliding_window_view(x, reach, axis=axes)
    places = [slice(None), slice(None), *(slice(None, None, by) for by in strides), *(slice(None, None, by) for by in dilations)]
    return every[tuple(places)]


def _in_space(x: Array, pad: Sequence[int], number: float) -> Array:
    pairs = [(int(low), int(high)) for low, high in np.reshape(pad, (-1, 2))]
    return np.pad(x, [(0, 0), (0, 0), *pairs], constant_values=number)


def _conv(a: Mapping[str, Any]) -> list[Array]:
    weight, groups = a["weight"], int(a["groups"])
    assert a["pad_type"] == "custom"
    views = _windows(_in_space(a["x"], a["pad"], 0), weight.shape[2:], a["strides"], a["dilations"])
    count = weight.ndim - 2
    parts = []
    for part, kernel in zip(np.split(views, groups, axis=1), np.split(weight, groups), strict=True):
        over = [1, *range(2 + count, 2 + 2 * count)]
        product = np.tensordot(part, kernel, axes=(over, [1, *range(2, 2 + count)]))
        parts.append(np.moveaxis(product, -1, 1))
    y = np.concatenate(parts, axis=1)
    bias = a.get("bias")
    return [(y if bias is None else y + np.reshape(bias, (-1, *[1] * count))).astype(np.float32)]


def _conv_transpose(a: Mapping[str, Any]) -> list[Array]:
    x, weight, groups = a["x"], a["weight"], int(a["groups"])
    assert a["pad_type"] == "valid" and a.get("bias") is None and a.get("output_shape") is None
    count = weight.ndim - 2
    strides, dilations = a["strides"], a["dilations"]
    lengths = [
        (n - 1) * by + (size - 1) * apart + 1 for n, by, size, apart in zip(x.shape[2:], strides, weight.shape[2:], dilations, strict=True)
    ]
    outputs = []
    for part, kernel in zip(np.split(x, groups, axis=1), np.split(weight, groups), strict=True):
        y = np.zeros((x.shape[0], weight.shape[1], *lengths), np.float64)
        for place in itertools.product(*map(range, weight.shape[2:])):
            index: tuple[Any, ...] = (slice(None), slice(None), *place)
            added = np.moveaxis(np.tensordot(part, kernel[index], axes=([1], [0])), -1, 1)
            where = [
                slice(at * apart, at * apart + (n - 1) * by + 1, by)
                for at, apart, n, by in zip(place, dilations, x.shape[2:], strides, strict=True)
            ]
            y[(slice(None), slice(None), *where)] += added
        outputs.append(y)
    assert len(x.shape) == count + 2
    return [np.concatenate(outputs, axis=1).astype(np.float32)]


def _pool(a: Mapping[str, Any], number: float) -> Array:
    assert a["pad_type"] == "custom" and not a["ceil_mode"]
    return _windows(_in_space(a["x"], a["pad"], number), a["kernel_sizes"], a["strides"], [1] * len(a["kernel_sizes"]))


def _max_pool(a: Mapping[str, Any]) -> list[Array]:
    views = _pool(a, -np.inf)
    return [views.max(axis=tuple(range(a["x"].ndim, views.ndim)))]


def _avg_pool(a: Mapping[str, Any]) -> list[Array]:
    views = _pool(a, 0)
    axes = tuple(range(a["x"].ndim, views.ndim))
    if not a["exclude_padding_from_average"]:
        return [views.mean(axis=axes)]
    counts = _pool({**a, "x": np.ones_like(a["x"])}, 0).sum(axis=axes)
    return [(views.sum(axis=axes) / counts).astype(np.float32)]


def _one_hot(a: Mapping[str, Any]) -> list[Array]:
    assert a["axis"] == -1
    hits = np.asarray(a["indices"])[..., None] == np.arange(a["one_hot_vector_size"])
    return [np.where(hits, a["on_value"], a["off_value"])]


def _scatter(a: Mapping[str, Any]) -> list[Array]:
    assert a["axis"] == 0 and a["mode"] in ("add", "update")
    y, places = np.array(a["data"]), np.asarray(a["indices"])
    y[places] = a["updates"] + (y[places] if a["mode"] == "add" else 0)
    return [y]


def _reverse_sequence(a: Mapping[str, Any]) -> list[Array]:
    assert (a["seq_axis"], a["batch_axis"]) == (0, 1)
    y = np.array(a["x"])
    for number, length in enumerate(a["lengths"]):
        y[:length, number] = a["x"][:length, number][::-1]
    return [y]


EQUATIONS: Mapping[str, Callable[[Mapping[str, Any]], list[Array]]] = {
    "lstm": _lstm, "rnn": _rnn, "conv": _conv, "conv_transpose": _conv_transpose, "max_pool": _max_pool, "avg_pool": _avg_pool,
    "one_hot": _one_hot, "scatter": _scatter, "reverse_sequence": _reverse_sequence,
}  # fmt: skip
