"""Operators of TFLite as nodes of a graph of TensorFlow's, in the JSON that TensorFlow.js loads as a graph model.

TFLite's operators are TensorFlow's, under names of their own. What differs is here: kernels have their channels elsewhere, axes are
inputs and not settings, and a bias is added by itself.

Sources: tfjs-converter 4.22 src/operations/op_list/*.ts and executors/*.ts; tensorflow/core/ops/*.cc, for the types that nodes state.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from rnnconvert.core.arrays import Array, PiecewiseArray
from rnnconvert.core.errors import RefusedError
from rnnconvert.formats.tflite.operator_values import BOOL, FLOAT, INT, OperatorValues, computed

_OTHER_LETTERS = re.compile(r"[^A-Za-z0-9._/-]")
_LIST = -1
"""The number of the type of a list of tensors."""
_TYPES = {FLOAT: "DT_FLOAT", INT: "DT_INT32", BOOL: "DT_BOOL", _LIST: "DT_VARIANT"}
_PADDINGS = ("SAME", "VALID")
_PRODUCER = 1645
"""The version of graphs of TensorFlow 2.16."""


class GraphModelParts:
    """The state that the graphs of a model share: their names, their stored numbers by name, and the functions that loops run."""

    def __init__(self, names: Sequence[str]) -> None:
        """Begin it.

        names  the names of its inputs and outputs, which no other node gets
        """
        self.names = set(names)
        self._numbers: dict[str, int] = {}
        self.weights: dict[str, Array | PiecewiseArray] = {}
        self.graphs: list[NodeGraph] = []

    def new_name(self, wanted: str) -> str:
        """Return a name that no node of any graph has."""
        stem = node_name(wanted)
        name, number = stem, self._numbers.get(stem, 1)
        while name in self.names:
            name, number = f"{stem}_{number}", number + 1
        self.names.add(name)
        self._numbers[stem] = number
        return name


def node_name(wanted: str) -> str:
    """Return a name in the letters that nodes may have."""
    return _OTHER_LETTERS.sub("_", wanted).strip("-_./") or "node"


class NodeGraph(OperatorValues):
    """The main graph of a model, or a function that a loop runs.

    nodes  as the file states them, in the order of running
    """

    title = "TensorFlow.js"
    disposes = True

    def __init__(self, parts: GraphModelParts, name: str) -> None:
        super().__init__()
        self.parts, self.name = parts, name
        self.place = len(parts.graphs)
        parts.graphs.append(self)
        self.nodes: list[dict[str, Any]] = []
        self._names: list[str] = []
        self._sources: dict[int, str] = {}
        self._stored: dict[int, Array | PiecewiseArray] = {}

    # What the rules of TFLite use

    def value(self, name: str, kind: int, shape: Sequence[int | None] | None = None) -> int:
        self.kinds.append(kind)
        self._names.append(name)
        return len(self.kinds) - 1

    def constant(self, name: str, array: Array | PiecewiseArray) -> int:
        stored = computed(array)
        place = self.value(name, {"f": FLOAT, "b": BOOL}.get(stored.dtype.kind, INT))
        self._stored[place] = stored
        return place

    def matrix(self, name: str, array: Array | PiecewiseArray, axis: int = 0, hybrid: bool = True) -> int:
        return self.constant(name, array)

    def inner(self, name: str) -> NodeGraph:
        return NodeGraph(self.parts, self.parts.new_name(name))

    def several(self, operator: str, inputs: Sequence[int], outputs: Sequence[int], **options: Any) -> None:
        if operator in _RULES:
            _RULES[operator](self, inputs, outputs, options)
            return
        kind, *words = _NODES[operator]
        stated = {_SETTINGS[word]: _stated(word, value) for word, value in options.items() if word in _SETTINGS}
        types = words[1:] or ["T"]
        stated |= {word: self._type(inputs[number]) for number, word in enumerate(types) if word}
        self.node(kind, inputs, outputs, words[0] if words else "output", **stated)

    def list_of_steps(self, size: int, count: int, dims: Sequence[int | None], kind: int, name: str) -> int:
        place = self.value(name, _LIST)
        stated = {"element_dtype": {"type": _TYPES[kind]}, "shape_type": {"type": _TYPES[INT]}}
        self.node("TensorListReserve", [self._open(dims), count], [place], "handle", **stated)
        return place

    def with_step(self, outputs: int, number: int, output: int, name: str) -> int:
        stated = {"element_dtype": {"type": _TYPES[self.kinds[output]]}}
        return self.added("TensorListSetItem", [outputs, number, output], "output_handle", **stated)

    def stacked(self, outputs: int, dims: Sequence[int | None], kind: int) -> int:
        stated = {"element_dtype": {"type": _TYPES[kind]}, "num_elements": _attribute(-1)}
        return self.added("TensorListStack", [outputs, self._open(dims)], "tensor", kind, **stated)

    def _open(self, dims: Sequence[int | None]) -> int:
        """Return axes as TensorFlow states them: -1 for those that are open."""
        return self.integers(*[-1 if length is None else length for length in dims])

    # Nodes

    def input(self, name: str, kind: int, shape: Sequence[int | None]) -> int:
        """Add an input of the model."""
        place = self.value(name, kind)
        self._sources[place] = name
        self.nodes.append({"name": name, "op": "Placeholder", "attr": {"dtype": self._type(place), "shape": {"shape": _lengths(shape)}}})
        return place

    def output(self, name: str, place: int) -> None:
        """Let a node of a stated name give a value."""
        self.nodes.append({"name": name, "op": "Identity", "input": [self._source(place)], "attr": {"T": self._type(place)}})

    def node(self, kind: str, inputs: Sequence[int], outputs: Sequence[int], gives: str = "output", /, **attributes: Any) -> None:
        """Add a node.

        gives  what TensorFlow calls its outputs, with commas between them
        """
        read = [self._source(place) for place in inputs]
        name = self.parts.new_name(self._names[outputs[0]])
        self.nodes.append({"name": name, "op": kind, "input": read, "attr": attributes})
        words = gives.split(",")
        for number, place in enumerate(outputs):
            if not self.place:
                self._sources[place] = f"{name}:{number}" if number else name
            else:
                self._sources[place] = f"{name}:{words[number]}:0" if len(words) > 1 else f"{name}:{words[0]}:{number}"

    def added(self, kind: str, inputs: Sequence[int], gives: str = "output", to: int | None = None, /, **attributes: Any) -> int:
        """Add a node of one output on the way to another value; return that. Its element type is that of its first input, unless stated."""
        place = self.value(self._names[inputs[0]], self.kinds[inputs[0]] if to is None else to)
        self.node(kind, inputs, [place], gives, **attributes)
        return place

    def turned(self, place: int, turn: Callable[[Array], Array]) -> int:
        """Return stored numbers with their axes elsewhere."""
        return self.constant(self._names[place], turn(np.asarray(self._stored[place])))

    def shape(self, place: int) -> tuple[int, ...]:
        """Return the lengths of the axes of stored numbers."""
        return tuple(self._stored[place].shape)

    def _source(self, place: int) -> str:
        """Return the name of a value for nodes; stored numbers become a node when they are first read."""
        if place in self.inputs.values() and self.place:
            return f"argument_{next(number for number, argument in self.inputs.items() if argument == place)}"
        if place not in self._sources:
            name = self.parts.new_name(self._names[place])
            self.parts.weights[name] = array = self._stored[place]
            shape = {"tensorShape": _lengths(array.shape)}
            attributes = {"dtype": self._type(place), "value": {"tensor": {"dtype": _TYPES[self.kinds[place]], **shape}}}
            self.nodes.append({"name": name, "op": "Const", "attr": attributes})
            self._sources[place] = f"{name}:output:0" if self.place else name
        return self._sources[place]

    def _type(self, place: int) -> dict[str, str]:
        return {"type": _TYPES[self.kinds[place]]}

    def stated(self, name: str, kind: int, shape: Sequence[int | None]) -> dict[str, Any]:
        """Return an input or output as the signature of a model states it."""
        return {"name": f"{name}:0", "dtype": _TYPES[kind], "tensorShape": _lengths(shape)}

    def called(self) -> dict[str, Any]:
        """Return an attribute that names this function."""
        return {"func": {"name": self.name}}

    def function(self) -> dict[str, Any]:
        """Return a function as the file states it."""
        results_by_name: dict[str, str] = {}
        for number, place in self.outputs.items():
            if self._source(place).rpartition(":")[2] not in ("0", self._source(place)):  # TensorFlow.js gives one output of a node alone
                place = self.added("Identity", [place], T=self._type(place))
            results_by_name[f"result_{number}"] = self._source(place)
        arguments = [{"name": f"argument_{number}", "type": _TYPES[self.kinds[place]]} for number, place in self.inputs.items()]
        results = [{"name": f"result_{number}", "type": _TYPES[self.kinds[place]]} for number, place in self.outputs.items()]
        signature = {"name": self.name, "inputArg": arguments, "outputArg": results}
        return {"signature": signature, "nodeDef": self.nodes, "ret": results_by_name}


def topology(parts: GraphModelParts) -> dict[str, Any]:
    """Return the graph of a model as the file states it."""
    main, *functions = parts.graphs
    library = {"library": {"function": [graph.function() for graph in functions]}} if functions else {}
    return {"node": main.nodes, **library, "versions": {"producer": _PRODUCER}}


def _lengths(shape: Sequence[int | None]) -> dict[str, Any]:
    return {"dim": [{"size": str(-1 if length is None else length)} for length in shape]}


def _attribute(value: Any) -> dict[str, Any]:
    """Return a setting of a node: a truth, a whole number, text, or a list of whole numbers."""
    if isinstance(value, str):
        return {"s": base64.b64encode(value.encode()).decode()}
    if isinstance(value, bool):
        return {"b": value}
    if isinstance(value, (list, tuple)):
        return {"list": {"i": [str(number) for number in value]}}
    return {"i": str(value)}


def _stated(word: str, value: int) -> dict[str, Any]:
    """Return an option of TFLite as an attribute."""
    if word in ("out_type", "output_type"):
        return {"type": _TYPES[value]}
    return _attribute(bool(value) if word == "keep_dims" else value)


# Operators that are no single node of their inputs

Options = Mapping[str, Any]


def _dense(g: NodeGraph, inputs: Sequence[int], outputs: Sequence[int], options: Options) -> None:
    x, matrix, _ = inputs
    g.several("BATCH_MATMUL", [x, g.turned(matrix, np.transpose)], outputs)


def _along(kind: str, *words: str, types: Sequence[str] = ("T",)) -> Callable[..., None]:
    """Return a rule for an operator whose axis is its last input."""

    def rule(g: NodeGraph, inputs: Sequence[int], outputs: Sequence[int], options: Options) -> None:
        read = [*inputs, g.integer(options["axis"])]
        stated = {_SETTINGS[word]: _attribute(options[word]) for word in words}
        stated |= {word: {"type": _TYPES[g.kinds[read[number]]]} for number, word in enumerate(types)}
        if kind == "ConcatV2":
            stated["N"] = _attribute(len(inputs))
        g.node(kind, read, outputs, **stated)

    return rule


def _packed(g: NodeGraph, inputs: Sequence[int], outputs: Sequence[int], options: Options) -> None:
    stated = {"N": _attribute(len(inputs)), "axis": _attribute(options["axis"]), "T": {"type": _TYPES[g.kinds[inputs[0]]]}}
    g.node("Pack", inputs, outputs, **stated)


def _quotient(g: NodeGraph, inputs: Sequence[int], outputs: Sequence[int], options: Options) -> None:
    """Add a quotient; that of whole numbers is cut off, and TensorFlow.js has the next smaller one."""
    kind = {"type": _TYPES[g.kinds[inputs[0]]]}
    if g.kinds[inputs[0]] == FLOAT:
        g.node("RealDiv", inputs, outputs, "z", T=kind)
        return
    sign = g.added("Mul", [g.added("Sign", [place], "y", T=kind) for place in inputs], "z", T=kind)
    floor = g.added("FloorDiv", [g.added("Abs", [place], "y", T=kind) for place in inputs], "z", T=kind)
    g.node("Mul", [sign, floor], outputs, "z", T=kind)


def _cast(g: NodeGraph, inputs: Sequence[int], outputs: Sequence[int], options: Options) -> None:
    types = {"SrcT": {"type": _TYPES[g.kinds[inputs[0]]]}, "DstT": {"type": _TYPES[g.kinds[outputs[0]]]}}
    g.node("Cast", inputs, outputs, "y", **types)


def _mirrored(g: NodeGraph, inputs: Sequence[int], outputs: Sequence[int], options: Options) -> None:
    g.node("MirrorPad", inputs, outputs, mode=_attribute("REFLECT"), T={"type": "DT_FLOAT"})


def _windows(options: Options) -> dict[str, Any]:
    strides = [1, options["stride_h"], options["stride_w"], 1]
    stated = {"strides": strides, "padding": _PADDINGS[options["padding"]], "data_format": "NHWC"}
    if "width" in options:
        stated["ksize"] = [1, options["height"], options["width"], 1]
    if "by_w" in options:
        stated["dilations"] = [1, options["by_h"], options["by_w"], 1]
    return {word: _attribute(value) for word, value in stated.items()} | {"T": {"type": "DT_FLOAT"}}


def _convolved(g: NodeGraph, kind: str, inputs: Sequence[int], options: Options) -> int:
    """Add a convolution. With strides and with places apart TensorFlow.js has none: each window is computed then, and some are taken."""
    height, width = options["stride_h"], options["stride_w"]
    if max(height, width) == 1 or max(options["by_h"], options["by_w"]) == 1:
        return g.added(kind, inputs, **_windows(options))
    if _PADDINGS[options["padding"]] == "SAME":
        raise RefusedError("a convolution with strides and with places apart", g.title, "what it is padded with depends on its length")
    every = g.added(kind, inputs, **_windows({**options, "stride_h": 1, "stride_w": 1}))
    strided, bounds = g.value("strided", FLOAT), [g.integers(0, 0, 0, 0)] * 2
    steps = g.integers(1, height, width, 1)
    g.several("STRIDED_SLICE", [every, *bounds, steps], [strided], begin_mask=15, end_mask=15, shrink_axis_mask=0)
    return strided


def _of_group(number: int, groups: int, kernel: Array) -> Array:
    return np.split(kernel, groups)[number].transpose(1, 2, 3, 0)


def _conv(g: NodeGraph, inputs: Sequence[int], outputs: Sequence[int], options: Options) -> None:
    """Add a convolution; one in groups is several, as TensorFlow.js has none."""
    x, kernel, bias = inputs
    groups, channels = options["groups"], g.shape(kernel)[3]
    of_groups = [x]
    if groups > 1:
        of_groups = [g.value("group", FLOAT) for _ in range(groups)]
        g.several("SPLIT_V", [x, g.integers(*[channels] * groups), g.integer(3)], of_groups, count=groups)
    products = []
    for number, part in enumerate(of_groups):
        turned = g.turned(kernel, partial(_of_group, number, groups))
        products.append(_convolved(g, "Conv2D", [part, turned], options))
    product = products[0]
    if groups > 1:
        product = g.value("groups", FLOAT)
        g.several("CONCATENATION", products, [product], axis=3)
    g.node("BiasAdd", [product, bias], outputs, T={"type": "DT_FLOAT"})


def _depthwise(g: NodeGraph, inputs: Sequence[int], outputs: Sequence[int], options: Options) -> None:
    x, kernel, bias = inputs
    turned = g.turned(kernel, lambda array: array.reshape(*array.shape[1:3], -1, options["multiplier"]))
    product = _convolved(g, "DepthwiseConv2dNative", [x, turned], options)
    g.node("BiasAdd", [product, bias], outputs, T={"type": "DT_FLOAT"})


def _conv_transposed(g: NodeGraph, inputs: Sequence[int], outputs: Sequence[int], options: Options) -> None:
    shape, kernel, x = inputs
    turned = g.turned(kernel, lambda array: array.transpose(1, 2, 0, 3))
    g.node("Conv2DBackpropInput", [shape, turned, x], outputs, **_windows(options))


def _pool(kind: str) -> Callable[..., None]:
    def rule(g: NodeGraph, inputs: Sequence[int], outputs: Sequence[int], options: Options) -> None:
        g.node(kind, inputs, outputs, **_windows(options))

    return rule


def _while(g: NodeGraph, inputs: Sequence[int], outputs: Sequence[int], options: Options) -> None:
    going, body = (g.parts.graphs[options[word]] for word in ("cond", "body"))
    types = {"list": {"type": [_TYPES[g.kinds[place]] for place in inputs]}}
    g.node("StatelessWhile", inputs, outputs, T=types, cond=going.called(), body=body.called())


_RULES: Mapping[str, Callable[..., None]] = {
    "AVERAGE_POOL_2D": _pool("AvgPool"), "CAST": _cast, "CONCATENATION": _along("ConcatV2"), "CONV_2D": _conv,
    "DEPTHWISE_CONV_2D": _depthwise, "DIV": _quotient, "FULLY_CONNECTED": _dense,
    "GATHER": _along("GatherV2", "batch_dims", types=("Tparams", "Tindices", "Taxis")), "MAX_POOL_2D": _pool("MaxPool"),
    "MIRROR_PAD": _mirrored, "PACK": _packed, "TRANSPOSE_CONV": _conv_transposed, "WHILE": _while,
}  # fmt: skip

_BY_THEIR_OWN = (
    "ABS", "ACOS", "ACOSH", "ASIN", "ASINH", "ATAN", "ATANH", "CEIL", "COS", "COSH", "ERF", "EXP", "FLOOR", "LOG", "NEG", "ROUND", "SIGN",
    "SIN", "SINH", "SQRT", "TAN", "TANH",
)  # fmt: skip
_NODES: Mapping[str, Sequence[str]] = {
    **{name: (name.capitalize(), "y") for name in _BY_THEIR_OWN},
    "ADD": ("AddV2", "z"), "ARG_MAX": ("ArgMax",), "ARG_MIN": ("ArgMin",), "BATCH_MATMUL": ("BatchMatMulV2",),
    "BROADCAST_ARGS": ("BroadcastArgs", "r0"), "BROADCAST_TO": ("BroadcastTo",), "CUMSUM": ("Cumsum", "out"), "EQUAL": ("Equal", "z"),
    "EXPAND_DIMS": ("ExpandDims",), "FILL": ("Fill", "output", "index_type", "T"), "FLOOR_MOD": ("FloorMod", "z"),
    "GREATER": ("Greater", "z"), "GREATER_EQUAL": ("GreaterEqual", "z"), "LESS": ("Less", "z"), "LESS_EQUAL": ("LessEqual", "z"),
    "LOGICAL_AND": ("LogicalAnd", "z", ""), "LOGICAL_NOT": ("LogicalNot", "y", ""), "LOGICAL_OR": ("LogicalOr", "z", ""),
    "LOGISTIC": ("Sigmoid", "y"), "LOG_SOFTMAX": ("LogSoftmax", "logsoftmax"), "MAXIMUM": ("Maximum", "z"), "MEAN": ("Mean",),
    "MINIMUM": ("Minimum", "z"), "MUL": ("Mul", "z"), "NOT_EQUAL": ("NotEqual", "z"),
    "ONE_HOT": ("OneHot", "output", "TI", "", "T"), "PAD": ("Pad",), "PADV2": ("PadV2",), "POW": ("Pow", "z"),
    "RANGE": ("Range", "output", "Tidx"), "REDUCE_MAX": ("Max",), "REDUCE_MIN": ("Min",), "REDUCE_PROD": ("Prod",),
    "RELU": ("Relu", "activations"), "RESHAPE": ("Reshape",), "REVERSE_V2": ("ReverseV2",),
    "SELECT_V2": ("SelectV2", "output", "", "T"), "SHAPE": ("Shape",), "SLICE": ("Slice", "output", "T", "Index"),
    "SOFTMAX": ("Softmax", "softmax"), "SPLIT_V": ("SplitV", "output", "T", "Tlen"),
    "STRIDED_SLICE": ("StridedSlice", "output", "T", "Index"), "SUB": ("Sub", "z"), "SUM": ("Sum",), "TILE": ("Tile",),
    "TOPK_V2": ("TopKV2", "values,indices"), "TRANSPOSE": ("Transpose", "y"),
}  # fmt: skip
"""Operators of the same inputs: the kind of node, what its outputs are called ("output" unless stated), and the attributes that state the
element types of its inputs, one after the other ("T" for the first unless stated)."""
_SETTINGS: Mapping[str, str] = {
    "axis": "axis", "batch_dims": "batch_dims", "begin_mask": "begin_mask", "count": "num_split", "end_mask": "end_mask",
    "keep_dims": "keep_dims", "out_type": "out_type", "output_type": "output_type", "shrink_axis_mask": "shrink_axis_mask",
}  # fmt: skip
"""The names of TFLite's options as attributes of nodes."""
