"""A graph of basic operations as a model of OpenVINO's IR: one rule for each operation that is not its namesake.

Source: docs/articles_en/documentation/openvino-ir-format/operation-sets.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from rnnconvert.core.arrays import Array, PiecewiseArray
from rnnconvert.core.cached import cached_property
from rnnconvert.core.errors import RefusedError
from rnnconvert.core.weights import Direction, Layer, Recurrent
from rnnconvert.formats.openvino.xml_graph import Out, XmlGraph, code_of
from rnnconvert.graphs.program.operations import Body, Operation
from rnnconvert.language import registry
from rnnconvert.language.packing import pack
from rnnconvert.rewrites.fit_to_layout import fit_to_layout
from rnnconvert.scaffolding.export_target import ExportedGraph
from rnnconvert.scaffolding.graph.model import NamedTensor, OperationGraph
from rnnconvert.scaffolding.graph.target import TargetWriter

LACKING = ("Celu", "LeakyRelu", "PRelu", "Reciprocal", "InstanceNormalization", "LayerNormalization", "Trilu", "Clip")
"""The operations that are composed of others: OpenVINO has none, or one that spreads its numbers otherwise."""


def exported(graph: OperationGraph) -> ExportedGraph:
    """Return a graph as a model in the IR. Raises RefusedError for an operation or a recurrent layer without an equivalent."""
    writer = _IrWriter(graph)
    writer.write_all()
    notes = ["its numbers are in the .bin next to the .xml, which belongs there"]
    return graph.exported(len(writer.xml.layers), notes, writer.xml.size, writer.xml.write)


_STOPPING = ("Abs", "Add", "CumSum", "Divide", "Multiply", "Negative", "Power", "ReduceProd", "ReduceSum", "Subtract")
"""Operations whose results may have no place in 8 bits."""


def _reduces(nodes: Sequence[Operation]) -> bool:
    return any(node.kind.startswith("Reduce") or any(_reduces(body.nodes) for _, body in node.bodies) for node in nodes)


class _IrWriter(TargetWriter[Out]):
    """A model in the IR under construction."""

    title = "OpenVINO"

    def __init__(self, graph: OperationGraph) -> None:
        super().__init__(graph, _RULES)
        self.xml = XmlGraph()
        self._turned: dict[Out, tuple[Out, tuple[int, ...]]] = {}
        self._of_one_direction: dict[str, Out] = {}

    def __getitem__(self, name: str) -> Out:
        if name in self._of_one_direction and name not in self._held:
            out = self.transposed(f"{name}/in time", self._of_one_direction[name], [1, 0, 2])
            self.named(name, self.add("Unsqueeze", name, [out, self.listed(f"{name}/direction", 1)], dims=[self.lengths(name)]))
        return super().__getitem__(name)

    def states_of(self, name: str) -> Out | None:
        """Return the outputs (batch, time, units) of a layer of one direction, which are a value (time, 1, batch, units)."""
        return self._of_one_direction.get(name)

    def give_states(self, name: str, out: Out, directions: int) -> None:
        """Let a value (time, directions, batch, units) be the outputs (batch, directions, time, units) of a layer.

        Outputs of one direction lose that axis first: the plugin for the CPU (2026.4) takes a Transpose to (time, 1, batch, units) behind a
        layer together with the one in front of it, and then gives wrong numbers to any other reader of the latter.
        """
        if directions == 1:
            self._of_one_direction[name] = self.add("Squeeze", f"{name}/outputs", [out, self.listed(f"{name}/axis", 1)])
        else:
            self.named(name, self.transposed(name, out, [2, 1, 0, 3], self.lengths(name)))

    @cached_property
    def reduces(self) -> bool:
        """Whether anything in the model is a reduction."""
        return _reduces(self._graph.nodes)

    def constant(self, name: str, array: Array | PiecewiseArray) -> Out:
        return self.xml.constant(name, array)

    def lengths(self, name: str) -> list[int]:
        """Return the lengths of a value's axes, -1 for those that are open; nothing where even their number is not known."""
        return [-1 if length is None else length for length in self.shape(name) or ()]

    def stored(self, name: str) -> Array | PiecewiseArray:
        """Return stored numbers."""
        return self._graph.arrays[name]

    def input(self, tensor: NamedTensor) -> None:
        dims, code = [-1 if length is None else length for length in tensor.value.shape], code_of(np.dtype(tensor.value.dtype))
        self.named(tensor.name, self.xml.parameter(tensor.name, dims, code))

    def output(self, tensor: NamedTensor) -> None:
        self.xml.add("Result", f"{tensor.name}/result", [self[tensor.name]], [], {})

    def put(self, node: Operation, kind: str, inputs: Sequence[Out] | None = None, dtype: str = "", **data: Any) -> None:
        """Add an operation that gives what one of the graph gives; its element type is that of its first input, unless stated."""
        read = [self[name] for name in node.inputs] if inputs is None else inputs
        self.check(node, kind, read[0])
        first = self.add(kind, node.name, read, dtype, [self.lengths(name) for name in node.outputs], **data)
        for number, name in enumerate(node.outputs):
            self.named(name, (first[0], first[1] + number))

    def check(self, node: Operation, kind: str, x: Out) -> None:
        """Raise RefusedError for an operation that gives other whole numbers than that of the graph."""
        if kind in _STOPPING and self.xml.types[x] in ("i8", "u8"):
            raise self.refused(node, f"{node.kind} of numbers of 8 bits", "OpenVINO's stop at the last number, where others begin anew")

    def add(self, kind: str, name: str, inputs: Sequence[Out], dtype: str = "", dims: Sequence[Sequence[int]] = ((),), **data: Any) -> Out:
        """Add an operation; return its first output."""
        words = {key: str(value).lower() if isinstance(value, bool) else value for key, value in data.items()}
        return self.xml.add(kind, name, inputs, dims, words, [dtype or self.xml.types[inputs[0]]] * len(dims))

    def listed(self, name: str, *numbers: int) -> Out:
        """Add a list of whole numbers."""
        return self.xml.constant(name, np.array(numbers, np.int64))

    def transposed(self, name: str, x: Out, order: Sequence[int], dims: Sequence[int] = ()) -> Out:
        """Add a Transpose; those that one behind another moves back are left out."""
        source, before = self._turned.get(x, (x, tuple(range(len(order)))))
        in_order = tuple(before[axis] for axis in order)
        if in_order == tuple(range(len(in_order))):
            return source
        out = self.add("Transpose", name, [source, self.listed(f"{name}/order", *in_order)], dims=[dims])
        self._turned[out] = source, in_order
        return out

    @contextlib.contextmanager
    def graph_in(self, node: Operation) -> Iterator[Body]:
        """Write the graph in an operation, as `xml`."""
        around = self.xml, self._turned
        self.xml, self._turned = XmlGraph(self.xml), {}
        try:
            with self.inside(node) as body:
                yield body
        finally:
            self.xml, self._turned = around


Rule = Callable[[_IrWriter, Operation], None]


def _plain(kind: str, dtype: str = "", **data: Any) -> Rule:
    return lambda w, node: w.put(node, kind, dtype=dtype, **data)


def _identity(w: _IrWriter, node: Operation) -> None:
    """Give a value another name, which is what an output of the model is called by."""
    out = w[node.inputs[0]]
    w.put(node, "Convert", [out], destination_type=w.xml.types[out])


def _divide(w: _IrWriter, node: Operation) -> None:
    """Write a quotient: of whole numbers, of what the divisor divides.

    The plugin for the CPU (2026.4) computes one by a constant behind a reduction with that, in floats, and rounds it to the nearest.
    """
    read = [w[name] for name in node.inputs]
    if w.xml.types[read[0]] in ("i32", "i64") and w.reduces:
        dims = [w.lengths(node.outputs[0])]
        rest = w.add("Mod", f"{node.name}/rest", read, dims=dims)
        read[0] = w.add("Subtract", f"{node.name}/multiple", [read[0], rest], dims=dims)
    w.put(node, "Divide", read, m_pythondiv=False)


def _transpose(w: _IrWriter, node: Operation) -> None:
    w.named(node.outputs[0], w.transposed(node.name, w[node.inputs[0]], node.attributes["perm"], w.lengths(node.outputs[0])))


def _reshape(w: _IrWriter, node: Operation) -> None:
    w.put(node, "Reshape", special_zero=not node.attributes.get("allowzero", 0))


def _slice(w: _IrWriter, node: Operation) -> None:
    x, start, end, *others = (w[name] for name in node.inputs)
    length = next(iter(w.lengths(node.inputs[1])), 0)
    axes = others[0] if others else w.listed(f"{node.name}/axes", *range(length))
    steps = others[1] if len(others) > 1 else w.listed(f"{node.name}/steps", *[1] * length)
    w.put(node, "Slice", [x, start, end, steps, axes])


def _gather(w: _IrWriter, node: Operation) -> None:
    states = w.states_of(node.inputs[0])
    if states is not None and node.attributes.get("axis", 0) == 1 and w.shape(node.inputs[1]) == ():
        w.named(node.outputs[0], w.transposed(node.name, states, [1, 0, 2], w.lengths(node.outputs[0])))
        return
    x, index = (w[name] for name in node.inputs)
    w.put(node, "Gather", [x, index, w.listed(f"{node.name}/axis", node.attributes.get("axis", 0))], batch_dims=0)


def _gather_elements(w: _IrWriter, node: Operation) -> None:
    """Add elements taken along an axis. Raises RefusedError where there are fewer places than elements along another."""
    x, index = (w[name] for name in node.inputs)
    dims, wanted = (w.lengths(name) for name in node.inputs)
    axis = node.attributes["axis"] % len(wanted)
    axes = [place for place in range(len(wanted)) if place != axis and dims[place] != wanted[place]]
    if axes:
        reason = "its operation takes them from tensors that are as long as there are places"
        raise RefusedError("elements taken from a part", "OpenVINO", reason, "", node.name)
    w.put(node, "GatherElements", [x, index], axis=axis)


def _split(w: _IrWriter, node: Operation) -> None:
    x, lengths = (w[name] for name in node.inputs)
    w.put(node, "VariadicSplit", [x, w.xml.constant(f"{node.name}/axis", np.array(node.attributes["axis"])), lengths])


def _shape(w: _IrWriter, node: Operation) -> None:
    x, first, last = w[node.inputs[0]], node.attributes.get("start", 0), node.attributes.get("end", None)
    rank = w.lengths(node.inputs[0])
    if first == 0 and last is None:
        w.put(node, "ShapeOf", [x], "i64", output_type="i64")
        return
    shape = w.add("ShapeOf", f"{node.name}/shape", [x], "i64", [[len(rank)]], output_type="i64")
    end = np.iinfo(np.int64).max if last is None else last
    bounds = [w.listed(f"{node.name}/{word}", number) for word, number in (("start", first), ("end", end), ("step", 1), ("axis", 0))]
    w.put(node, "Slice", [shape, *bounds])


def _filled(w: _IrWriter, node: Operation) -> None:
    value = node.attributes.get("value")
    number = np.zeros(1, np.float32) if value is None else np.asarray(value.numbers)
    w.put(node, "Broadcast", [w.xml.constant(f"{node.name}/value", number.reshape(())), w[node.inputs[0]]], mode="numpy")


def _cast(w: _IrWriter, node: Operation) -> None:
    to = code_of(node.attributes["to"])
    x = w[node.inputs[0]]
    if to == "boolean" and w.xml.types[x] != "boolean":
        zero = w.xml.constant(f"{node.name}/zero", np.zeros((), _DTYPES[w.xml.types[x]]))
        w.put(node, "NotEqual", [x, zero], "boolean")
        return
    w.put(node, "Convert", [x], to, destination_type=to)


_DTYPES = {"f32": "f4", "f64": "f8", "f16": "f2", "i64": "i8", "i32": "i4", "i16": "i2", "i8": "i1", "u8": "u1"}


def _reduced(kind: str) -> Rule:
    """Return a rule for a reduction, which loses its axes in an operation of its own.

    Behind one that drops them itself, of what a convolution or a pool gives and a Transpose turns, the plugin for the CPU (2026.4) takes
    numbers of other channels from a constant: global_pool(conv(x)) * scale was wrong.
    """

    def rule(w: _IrWriter, node: Operation) -> None:
        axes = [w[name] for name in node.inputs[1:]] or [w.listed(f"{node.name}/axes", *node.attributes["axes"])]
        read = [w[node.inputs[0]], *axes]
        if node.attributes.get("keepdims", 1):
            w.put(node, kind, read, keep_dims=True)
        else:
            w.check(node, kind, read[0])
            w.put(node, "Squeeze", [w.add(kind, f"{node.name}/reduced", read, keep_dims=True), *axes])

    return rule


def _best(mode: str) -> Rule:
    """Return a rule for the place of the largest number, or of the smallest; of several the first, as OpenVINO's stable order has it."""

    def rule(w: _IrWriter, node: Operation) -> None:
        axis, name = node.attributes["axis"], node.name
        count = w.xml.constant(f"{name}/count", np.array(1))
        x = w[node.inputs[0]]
        data = {"axis": axis, "mode": mode, "sort": "value", "index_element_type": "i64", "stable": "true"}
        both = w.xml.add("TopK", f"{name}/best", [x, count], [(), ()], data, [w.xml.types[x], "i64"])
        places = both[0], both[1] + 1
        if node.attributes["keepdims"]:
            w.named(node.outputs[0], places)
        else:
            w.put(node, "Squeeze", [places, w.listed(f"{name}/axis", axis)])

    return rule


def _top(w: _IrWriter, node: Operation) -> None:
    x, count = (w[name] for name in node.inputs)
    count = w.add("Squeeze", f"{node.name}/count", [count, w.listed(f"{node.name}/first", 0)], dims=[()])
    mode = "max" if node.attributes["largest"] else "min"
    data = {"axis": node.attributes["axis"], "mode": mode, "sort": "value", "index_element_type": "i64", "stable": "true"}
    dims = [w.lengths(name) for name in node.outputs]
    first = w.xml.add("TopK", node.name, [x, count], dims, data, [w.xml.types[x], "i64"])
    for number, name in enumerate(node.outputs):
        w.named(name, (first[0], first[1] + number))


def _one_hot(w: _IrWriter, node: Operation) -> None:
    index, depth = (w[name] for name in node.inputs[:2])
    numbers = np.asarray(w.stored(node.inputs[2]))
    off, on = (w.xml.constant(f"{node.name}/{word}", numbers[place]) for place, word in enumerate(("off", "on")))
    w.put(node, "OneHot", [index, depth, on, off], w.xml.types[on], axis=-1)


def _scatter(w: _IrWriter, node: Operation) -> None:
    axis = w.xml.constant(f"{node.name}/axis", np.array(node.attributes["axis"]))
    w.put(node, "ScatterElementsUpdate", [*(w[name] for name in node.inputs), axis])


def _hard_sigmoid(w: _IrWriter, node: Operation) -> None:
    numbers = [
        w.xml.constant(f"{node.name}/{word}", np.array(node.attributes.get(word, default), np.float32))
        for word, default in (("alpha", 0.2), ("beta", 0.5))
    ]
    w.put(node, "HardSigmoid", [w[node.inputs[0]], *numbers])


def _selu(w: _IrWriter, node: Operation) -> None:
    numbers = (("alpha", 1.6732632423543772), ("lambda", 1.0507009873554805))
    w.put(node, "Selu", [w[node.inputs[0]], *(w.xml.constant(f"{node.name}/{word}", np.array(n, np.float32)) for word, n in numbers)])


def _range(w: _IrWriter, node: Operation) -> None:
    w.put(node, "Range", output_type="i64")


def _modulo(w: _IrWriter, node: Operation) -> None:
    w.put(node, "Mod" if node.attributes.get("fmod", 0) else "FloorMod")


# Space


def _listed(numbers: Sequence[int]) -> str:
    return ",".join(map(str, numbers))


def _window(node: Operation, count: int, *, dilated: bool = True) -> dict[str, str]:
    """Return strides, pads and dilations as the IR has them."""
    pads = list(node.attributes.get("pads", [0] * 2 * count))
    words = {
        "strides": _listed(node.attributes.get("strides", [1] * count)),
        "pads_begin": _listed(pads[:count]),
        "pads_end": _listed(pads[count:]),
        "auto_pad": {"SAME_UPPER": "same_upper"}.get(node.attributes.get("auto_pad", ""), "explicit"),
    }
    return words | ({"dilations": _listed(node.attributes.get("dilations", [1] * count))} if dilated else {})


def _grouped(w: _IrWriter, node: Operation) -> Out:
    """Return the weights of a convolution, whose groups have an axis of their own in the IR."""
    array, groups = w.stored(node.inputs[1]), node.attributes.get("group", 1)
    if groups == 1:
        return w[node.inputs[1]]
    return w.xml.constant(f"{node.name}/groups", np.asarray(array).reshape(groups, array.shape[0] // groups, *array.shape[1:]))


def _conv(w: _IrWriter, node: Operation) -> None:
    transposed = node.kind == "ConvTranspose"
    count = len(w.stored(node.inputs[1]).shape) - 2
    kind = {False: "Convolution", True: "ConvolutionBackpropData"}[transposed]
    kind = f"Group{kind}" if node.attributes.get("group", 1) > 1 else kind
    data = _window(node, count)
    if transposed:
        data["output_padding"] = _listed(node.attributes.get("output_padding", [0] * count))
    inputs = [w[node.inputs[0]], _grouped(w, node)]
    if len(node.inputs) < 3:
        w.put(node, kind, inputs, **data)
        return
    product = w.add(kind, f"{node.name}/product", inputs, dims=[w.lengths(node.outputs[0])], **data)
    bias = np.asarray(w.stored(node.inputs[2])).reshape(1, -1, *[1] * count)
    w.put(node, "Add", [product, w.xml.constant(f"{node.name}/bias", bias)])


def _pool(w: _IrWriter, node: Operation) -> None:
    kernel = node.attributes["kernel_shape"]
    most, ceil = node.kind == "MaxPool", node.attributes.get("ceil_mode", 0)
    data = {"kernel": _listed(kernel), **_window(node, len(kernel), dilated=most)}
    # As the common operations, a window that begins in the padding behind is none; the set that knows that word has no other pooling.
    # No window of a largest number begins there; its CPU plugin does not run one that is longer than the input, unless it is padded.
    data["rounding_type"] = "ceil_torch" if ceil and not most else "floor"
    if most and ceil:
        steps, pads = (list(map(int, data[word].split(","))) for word in ("strides", "pads_end"))
        data["pads_end"] = _listed([pad + step - 1 for pad, step in zip(pads, steps, strict=True)])
    if not most:
        data["exclude-pad"] = str(not node.attributes.get("count_include_pad", 0)).lower()
        w.put(node, "AvgPool", None, "", **data)
        return
    x = w[node.inputs[0]]
    data |= {"index_element_type": "i64", "axis": "0"}
    dims = w.lengths(node.outputs[0])
    w.named(node.outputs[0], w.xml.add("MaxPool", node.name, [x], [dims, dims], data, [w.xml.types[x], "i64"]))


def _pad(w: _IrWriter, node: Operation) -> None:
    pads = np.asarray(w.stored(node.inputs[1]))
    count = len(pads) // 2
    ends = [w.listed(f"{node.name}/{word}", *part) for word, part in (("before", pads[:count]), ("behind", pads[count:]))]
    inputs = [w[node.inputs[0]], *ends, *(w[name] for name in node.inputs[2:])]
    w.put(node, "Pad", inputs, pad_mode=node.attributes.get("mode", "constant"))


# Recurrent layers


def _recurrent(w: _IrWriter, node: Operation) -> None:
    """Add a recurrent operation, which reads and gives the batch first.

    OpenVINO's plugin for the CPU does not regard the lengths that an operation is given: of sequences that have some, each direction
    runs forwards over all steps, and its last state is that of the last step that counts.
    """
    stack: Recurrent = node.attributes["stack"]
    name, (layer,) = node.name, stack.layers
    x = w.transposed(f"{name}/in", w[node.inputs[0]], [1, 0, 2])
    read = [*node.inputs, "", "", ""]
    states = [w.transposed(f"{name}/{place}", w[state], [1, 0, 2]) if state else None for place, state in enumerate(read[5:7])]
    if not read[4]:
        ends = _sequence(w, name, stack, x, states)
    else:
        lengths = w[read[4]]
        by_way = []
        for way, direction in enumerate(layer.directions):
            label = f"{name}/{way}" if len(layer.directions) > 1 else name
            place = w.listed(f"{label}/way", way)
            axis = w.xml.integers(f"{label}/way/axis", 1)
            of_direction = [state and w.add("Gather", f"{label}/state", [state, place, axis], batch_dims=0) for state in states]
            by_way.append(_counted(w, label, direction, x, of_direction, lengths))
        ends = [w.add("Concat", f"{name}/joined", outs, axis=1) if len(outs) > 1 else outs[0] for outs in zip(*by_way, strict=True)]
    w.give_states(node.outputs[0], ends[0], len(layer.directions))
    for output, out in zip(node.outputs[1:], ends[1:], strict=False):
        w.named(output, w.transposed(output, out, [1, 0, 2], w.lengths(output)))


def _counted(w: _IrWriter, name: str, direction: Direction, x: Out, states: Sequence[Out | None], lengths: Out) -> list[Out]:
    """Add one direction over the first steps of sequences: its outputs (batch, 1, time, units) and the last of them (batch, 1, units)."""
    stack = Recurrent(name, (Layer((direction.replace(reverse=False),)),))
    if direction.reverse:
        x = w.add("ReverseSequence", f"{name}/turned", [x, lengths], seq_axis=1, batch_axis=0)
    every, *_ = _sequence(w, name, stack, x, states)
    step = w.xml.constant(f"{name}/one", np.ones((), _DTYPES[w.xml.types[lengths]]))
    place = w.add("Unsqueeze", f"{name}/places", [w.add("Subtract", f"{name}/place", [lengths, step]), w.listed(f"{name}/last axis", 1)])
    # Of one sequence of a stated length the plugin for the CPU (2026.4) reads a Gather by sequence beyond its end.
    steps = w.add("Squeeze", f"{name}/every", [every, w.listed(f"{name}/axis", 1)])
    last = w.add("GatherND", f"{name}/at last", [steps, place], batch_dims=1)
    last = w.add("Unsqueeze", f"{name}/last", [last, w.listed(f"{name}/direction", 1)])
    if direction.reverse:
        every = w.add("ReverseSequence", f"{name}/in order", [every, lengths], seq_axis=2, batch_axis=0)
    return [every, last]


def _sequence(w: _IrWriter, name: str, stack: Recurrent, x: Out, initial: Sequence[Out | None]) -> list[Out]:
    """Add an operation over all steps: its outputs (batch, directions, time, units) and last states (batch, directions, units)."""
    fitted = fit_to_layout(stack, registry.layouts_of("openvino"))
    single = fitted.stack
    count, units = len(single.layers[0].directions), single.hidden_size
    shape = w.add("ShapeOf", f"{name}/shape", [x], "i64", [[3]], output_type="i64")
    axis = w.xml.integers(f"{name}/axis", 0)
    batch, steps = (
        w.add("Gather", f"{name}/{word}", [shape, w.listed(f"{name}/{word}/index", place), axis], dims=[[1]], batch_dims=0)
        for place, word in enumerate(("batch", "steps"))
    )
    lengths = w.add("Broadcast", f"{name}/lengths", [steps, batch], dims=[[-1]], mode="numpy")
    size = w.add("Concat", f"{name}/state shape", [batch, w.listed(f"{name}/state", count, units)], dims=[[3]], axis=0)
    states = []
    for letter, state in zip("hc"[: 2 if single.cell.kind == "lstm" else 1], initial, strict=False):
        value = state or w.xml.constant(f"{name}/initial_{letter}/value", np.zeros((), single.dtype))
        states.append(w.add("Broadcast", f"{name}/initial_{letter}", [value, size], dims=[[-1, count, units]], mode="bidirectional"))
    number, port = w.xml.sequence(name, single, pack(fitted.layout, single), x, states, lengths)
    return [(number, port + place) for place in range(1 + len(states))]


def _numbers(w: _IrWriter, name: str, x: Out, dims: Sequence[int]) -> Out:
    """Return a value; of truths, whole numbers."""
    if w.xml.types[x] != "boolean":
        return x
    return w.add("Convert", f"{name}/number", [x], "i32", [dims], destination_type="i32")


def _truths(w: _IrWriter, name: str, x: Out, dims: Sequence[int]) -> Out:
    """Add whether whole numbers are other than 0."""
    return w.add("NotEqual", f"{name}/truth", [x, w.xml.constant(f"{name}/zero", np.zeros((), np.int32))], "boolean", [dims])


def _at_least_one(w: _IrWriter, name: str, steps: Out) -> Out:
    """Return how many steps there are, which are some: without any, the runtime gives the sequences of the call before it."""
    single, axis = w.xml.constant(f"{name}/one", np.ones((1, 1), np.int64)), w.xml.integers(f"{name}/axis", 0)
    some = w.add("Minimum", f"{name}/some", [steps, single], dims=[[1, 1]])
    length = w.add("Squeeze", f"{name}/some or none", [w.add("Add", f"{name}/columns", [some, single], dims=[[1, 1]]), axis], dims=[[1]])
    shape = w.add("Concat", f"{name}/row", [w.listed(f"{name}/rows", 1), length], dims=[[2]], axis=0)
    row = w.add("Broadcast", f"{name}/ones", [single, shape], dims=[[1, -1]], mode="bidirectional")
    two_ones = w.xml.constant(f"{name}/two", np.ones((1, 2), np.int64))
    rows = w.add("Concat", f"expected a step of {name}", [two_ones, row], dims=[[2, 2]], axis=0)
    every = w.listed(f"{name}/axes", 0, 1)
    return w.add("Multiply", f"{name}/count", [steps, w.add("ReduceMax", f"{name}/stated", [rows, every], keep_dims=False)])


def _scan(w: _IrWriter, node: Operation) -> None:
    """Add a loop over the steps of sequences.

    Source: docs/articles_en/documentation/openvino-ir-format/operation-sets/operation-specs/infrastructure/loop-5.rst: what it reads
    step by step keeps the axis, of length 1. A TensorIterator would count the steps by those inputs alone that its graph reads.

    The runtime (2026.4) copies no state that is another one's value, so that it is read after that is overwritten, and leaves out what
    changes nothing; it knows no such thing of the larger of two equal numbers. Of truths it does, so that these go through as numbers.
    """
    count = len(node.inputs) - node.attributes["num_scan_inputs"]
    ((_, body),) = node.bodies
    names = [*node.inputs, *w.captured(body)]
    read = [_numbers(w, f"{node.name}/{place}", w[name], w.lengths(name)) for place, name in enumerate(names)]
    are_truths = [w.xml.types[w[name]] == "boolean" for name in names]
    outside = [(w.xml.types[out], w.lengths(name)) for name, out in zip(names, read, strict=True)]
    shape = w.add("ShapeOf", f"{node.name}/shape", [w[node.inputs[count]]], "i64", output_type="i64")
    first = w.xml.integers(f"{node.name}/first", 0)
    steps = w.add("Gather", f"{node.name}/steps", [shape, first, first], batch_dims=0)
    if len(node.outputs) > count:
        steps = _at_least_one(w, node.name, steps)
    inputs = [steps, w.xml.constant(f"{node.name}/begins", np.array(True)), *read]
    by_step = ' axis="0" start="0" end="-1" stride="1" part_size="1"'
    ports, begun, left, types, gives_truths = list[str](), list[int](), list[int](), list[str](), list[bool]()
    with w.graph_in(node):
        axis = w.xml.integers(f"{node.name}/time", 0)
        for place, (name, (code, dims)) in enumerate(zip((*body.inputs, *names[len(node.inputs) :]), outside, strict=True)):
            is_step = count <= place < len(node.inputs)
            inner = dims if place >= len(node.inputs) else w.lengths(name)
            entered = w.xml.parameter(name, [1, *inner] if is_step else inner, code)
            begun.append(entered[0])
            ports.append(f'<input external_port_id="{place + 2}" internal_layer_id="{entered[0]}"{by_step if is_step else ""}/>')
            x = w.add("Squeeze", f"{name}/step", [entered, axis], dims=[inner]) if is_step else entered
            w.named(name, _truths(w, name, x, inner) if are_truths[place] else x)
        w.write_nodes()
        for place, name in enumerate(body.outputs):
            x = _numbers(w, name, w[name], w.lengths(name))
            gives_truths.append(x is not w[name])
            same = w.add("Maximum", f"{name}/value", [x, x], dims=[w.lengths(name)])
            out = same if place < count else w.add("Unsqueeze", f"{name}/step", [same, axis], dims=[[1, *w.lengths(name)]])
            types.append(w.xml.types[out])
            left.append(w.xml.add("Result", f"{name}/result", [out], [], {})[0])
            joined = by_step if place >= count else ""
            ports.append(f'<output external_port_id="{len(inputs) + place}" internal_layer_id="{left[-1]}"{joined}/>')
        goes_on = w.xml.add("Result", f"{node.name}/goes on", [w.xml.constant(f"{node.name}/on", np.array(True))], [], {})[0]
        ports.append(f'<output external_port_id="-1" internal_layer_id="{goes_on}" purpose="execution_condition"/>')
        edges = [f'<edge from-layer="{last}" to-layer="{start}"/>' for last, start in zip(left[:count], begun, strict=False)]
        inside = f"<port_map>{''.join(ports)}</port_map><back_edges>{''.join(edges)}</back_edges><body>{w.xml.text()}</body>"
    number, port = w.xml.add("Loop", node.name, inputs, [w.lengths(name) for name in node.outputs], {}, types, inside)
    for place, name in enumerate(node.outputs):
        out = number, port + place
        w.named(name, _truths(w, name, out, w.lengths(name)) if gives_truths[place] else out)


_RULES: Mapping[str, Rule] = {
    **{kind: _plain(kind) for kind in (
        "Abs", "Acos", "Acosh", "Add", "Asin", "Asinh", "Atan", "Atanh", "Cos", "Cosh", "Erf", "Exp", "Floor", "Log", "Sigmoid", "Sign",
        "Sin", "Sinh", "Sqrt", "Squeeze", "Tan", "Tanh", "Tile", "Unsqueeze",
    )},
    **{kind: _plain(other) for kind, other in {
        "Ceil": "Ceiling", "HardSwish": "HSwish", "Max": "Maximum", "Min": "Minimum", "Mul": "Multiply", "Neg": "Negative",
        "Pow": "Power", "Relu": "ReLU", "Softplus": "SoftPlus", "Softsign": "SoftSign", "Sub": "Subtract",
    }.items()},
    **{kind: _plain(other, "boolean") for kind, other in {
        "And": "LogicalAnd", "Equal": "Equal", "Greater": "Greater", "GreaterOrEqual": "GreaterEqual", "IsInf": "IsInf",
        "IsNaN": "IsNaN", "Less": "Less", "LessOrEqual": "LessEqual", "Not": "LogicalNot", "Or": "LogicalOr", "Xor": "LogicalXor",
    }.items()},
    **{f"Reduce{word}": _reduced(f"Reduce{word}") for word in ("L2", "Max", "Mean", "Min", "Prod", "Sum")},
    **dict.fromkeys(("RNN", "GRU", "LSTM"), _recurrent),
    **dict.fromkeys(("Conv", "ConvTranspose"), _conv), **dict.fromkeys(("AveragePool", "MaxPool"), _pool),
    "ArgMax": _best("max"), "ArgMin": _best("min"), "Cast": _cast, "ConstantOfShape": _filled, "Div": _divide, "Gather": _gather,
    "Concat": lambda w, node: w.put(node, "Concat", axis=node.attributes["axis"]),
    "CumSum": _plain("CumSum", exclusive=False, reverse=False),
    "Einsum": lambda w, node: w.put(node, "Einsum", equation=node.attributes["equation"]),
    "Elu": lambda w, node: w.put(node, "Elu", alpha=node.attributes.get("alpha", 1.0)),
    "Expand": _plain("Broadcast", mode="bidirectional"), "Gelu": _plain("Gelu", approximation_mode="ERF"),
    "GatherElements": _gather_elements,
    "GatherND": lambda w, node: w.put(node, "GatherND", batch_dims=node.attributes.get("batch_dims", 0)),
    "HardSigmoid": _hard_sigmoid, "Identity": _identity,
    "LogSoftmax": lambda w, node: w.put(node, "LogSoftmax", axis=node.attributes["axis"]),
    "MatMul": _plain("MatMul", transpose_a=False, transpose_b=False), "Mod": _modulo, "OneHot": _one_hot, "Pad": _pad, "Range": _range,
    "Reshape": _reshape, "Round": _plain("Round", mode="half_to_even"), "Scan": _scan,
    "ScatterElements": _scatter, "Selu": _selu, "Shape": _shape,
    "Slice": _slice, "Softmax": lambda w, node: w.put(node, "SoftMax", axis=node.attributes["axis"]), "Split": _split, "TopK": _top,
    "Transpose": _transpose, "Where": lambda w, node: w.put(node, "Select", dtype=w.xml.types[w[node.inputs[1]]]),
}  # fmt: skip
"""The operations that are known."""
