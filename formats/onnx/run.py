"""onnxruntime, on recurrent nodes of a model, or on all of a model that rnnconvert wrote.

Source: the ONNX operators RNN, GRU and LSTM (opset 22).
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rnnconvert.running.sequences import Sequences

from .run_node import STATES, PreparedNode, solved
from .run_session import RECURRENT, Session, refuse_absent, wide
from .run_witness import run_whole

Array = np.ndarray

NEEDS = ("onnx", "onnxruntime")
FORMAT = "onnx"
SUFFIX = ".onnx"
COARSE = 2.5
"""Its tanh is off by up to 2.2 units in the last place of 1 and its sigmoid by up to 1.1, by 0.5 far below 0, too, where that gives
zeros (measured with onnxruntime 1.31 at 200,001 arguments up to 8 of either sign, on an x86; 1.27's tanh by up to 2.5)."""
SUPPORTS = "RNN, GRU of both kinds and LSTM nodes with peepholes, clip and input_forget; sequence_lens, none zero; no gradients"
CANNOT = {"cotangents": "onnxruntime computes no gradients", "how": "the model already states what it computes"}
VARIANTS: dict[str, dict[str, Any]] = {
    "onnxruntime-cpu": {"device": "cpu", "provider": "CPUExecutionProvider"},
    "onnxruntime-cuda": {"device": "cuda", "provider": "CUDAExecutionProvider"},
}
_MOVING = frozenset({"Gather", "Identity", "Slice", "Split", "Squeeze", "Unsqueeze"})
"""Operators through which zeros stay zeros, and nothing is added."""
_TYPES = {"tensor(float)": "float32", "tensor(double)": "float64", "tensor(float16)": "float16"}
_LARGEST = 1 << 30
"""Files larger than this many bytes are read anew for each case, and not kept in memory."""


def absent(variant: Mapping[str, Any]) -> str:
    """Return why it cannot run here although its packages are installed, or "" if it can; its providers show when it runs."""
    return ""


def answer(request: Mapping[str, Any]) -> dict[str, Any]:
    """Run nodes of a model one after the other, or a model of rnnconvert's; see rnnconvert.running."""
    if not request["file"].endswith(".onnx"):
        raise NotImplementedError("onnxruntime reads binary models, which end in .onnx")
    sequences, provider = Sequences.of(request), request["variant"]["provider"]
    sequences.refuse_empty("onnxruntime returns zeros instead of its initial state as the final one")
    refuse_absent(provider)
    if request["layers"]:
        return _nodes(Path(request["file"]), tuple(request["layers"]), sequences, provider)
    return _run_model(request["file"], sequences, provider)


def witness(request: Mapping[str, Any]) -> None:
    """Run a model whole, with what its recurrent nodes read and give as further outputs; see rnnconvert.running."""
    run_whole(request, _recurrent_node)


def _run_model(file: str, sequences: Sequences, provider: str) -> dict[str, Any]:
    """Run a model of one stack, with the inputs and outputs that rnnconvert gives it."""
    profiled = Session(file, provider, profiled=True)
    session = profiled.session
    inputs = {value.name: value for value in session.get_inputs()}
    outputs = [value.name for value in session.get_outputs()]
    ends = ["y"] if "y" in outputs else ["y_forward", "y_backward"]
    if "x" not in inputs or not set(ends) <= set(outputs):
        raise NotImplementedError(
            f"the model has the inputs {', '.join(inputs)} and the outputs {', '.join(outputs)}: it is unknown which of them are the "
            "sequences. Name its nodes"
        )
    feeds = {"x": _typed(inputs["x"], sequences.x)}
    for name, part in STATES.items():
        states = getattr(sequences, part)
        feeds.update(_state_feeds(inputs, name, states, part) if states else _zero_feeds(inputs, name, np.shape(sequences.x)[1]))
    if sequences.lengths is not None:
        if "sequence_lens" not in inputs:
            raise NotImplementedError("the model has no input sequence_lens. Write it with the option sequence_lens=true")
        feeds["sequence_lens"] = np.asarray(sequences.lengths, np.int32)
    elif "sequence_lens" in inputs:
        feeds["sequence_lens"] = np.full(np.shape(sequences.x)[1], len(sequences.x), np.int32)
    finals = {letter: _numbered(outputs, f"{letter}_n") for letter in "hc"}
    values = profiled.run([*ends, *finals["h"], *finals["c"]], feeds)
    rows = [wide(row) for value in values[len(ends) :] for row in value]
    hidden = sum(len(value) for value in values[len(ends) : len(ends) + len(finals["h"])])
    return {
        "y": np.concatenate([wide(value) for value in values[: len(ends)]], axis=-1),
        "hidden": rows[:hidden],
        "cell": rows[hidden:],
        "notes": {"providers": profiled.providers},
    }


def _numbered(names: Sequence[str], stem: str) -> list[str]:
    """Return the value itself, or its parts, in order: h_n, or h_n_0, h_n_1 where they differ in shape."""
    if stem in names:
        return [stem]
    parts = [name for name in names if name.startswith(f"{stem}_") and name[len(stem) + 1 :].isdigit()]
    return sorted(parts, key=lambda name: int(name[len(stem) + 1 :]))


def _state_feeds(inputs: Mapping[str, Any], name: str, states: Sequence[Array], key: str) -> dict[str, Array]:
    values = [inputs[part] for part in _numbered(list(inputs), name)]
    if not values and name == "initial_c":
        return {}  # a cell without cell states
    if not values:
        raise NotImplementedError("the model has no inputs for initial states. Write it with the option states=input")
    rows = [int(value.shape[0]) for value in values]
    if sum(rows) != len(states):
        raise NotImplementedError(f"the model has {sum(rows)} {key} states, but {len(states)} were given")
    starts = np.cumsum([0, *rows])
    return {value.name: _typed(value, np.stack(list(states[start : start + count]))) for value, start, count in zip(values, starts, rows)}


def _zero_feeds(inputs: Mapping[str, Any], name: str, batch: int) -> dict[str, Array]:
    """Return zeros for the initial states that a model wants and nobody gives: the default of a recurrent layer."""
    values = [inputs[part] for part in _numbered(list(inputs), name)]
    return {value.name: _typed(value, np.zeros((value.shape[0], batch, value.shape[2]), np.float32)) for value in values}


def _typed(value: Any, array: Array) -> Array:
    if value.type not in _TYPES:
        raise NotImplementedError(f"the input {value.name} is a {value.type}")
    return np.asarray(array).astype(_TYPES[value.type])


def _nodes(file: Path, names: Sequence[str], sequences: Sequences, provider: str) -> dict[str, Any]:
    """Run nodes by name, each reading what the one before gives."""
    constants_of = _constants_of if file.stat().st_size < _LARGEST else _constants_of.__wrapped__
    providers: dict[str, str] = {}

    def run(node: _ConstantInputs, left: Sequences) -> dict[str, Any]:
        fed = left.first(node.directions)
        answer, session = solved(node.operator, node.arrays(fed), fed, lambda model: Session(model, provider, profiled=True))
        providers[node.name] = session.providers.get(node.operator.name, "")
        return answer

    nodes = constants_of(str(file), file.stat().st_mtime_ns, names)
    return {**sequences.through(nodes, run), "notes": {"providers": providers}}


@functools.lru_cache(maxsize=1)
def _constants_of(file: str, written: int, layers: Sequence[str]) -> list[_ConstantInputs]:
    """Return nodes of a file with their weights; read once, as all cases of a layer are run one after the other."""
    import onnx

    model = onnx.load(file)
    nodes = [_recurrent_node(model, name) for name in layers]
    return [_ConstantInputs(model, node, name) for name, node in zip(layers, nodes)]


def _label(node: Any) -> str:
    """Return a node's name, or that of its first output."""
    return str(node.name or next((output for output in node.output if output), node.op_type))


def _recurrent_node(model: Any, name: str) -> Any:
    """Return the recurrent node of that name in the main graph."""
    there = [node for node in model.graph.node if node.op_type in RECURRENT and node.domain in ("", "ai.onnx")]
    matches = [node for node in there if _label(node) == name]
    if len(matches) != 1:
        names = ", ".join(map(_label, there)) or "none"
        raise NotImplementedError(
            f"the main graph has {len(matches) or 'no'} recurrent nodes {name!r}; it has {names}. Nodes inside If, "
            "Loop, Scan or a function cannot run by themselves"
        )
    return matches[0]


_FREE = (1, 16, 256)
"""Lengths of a model's free axes that are tried, where only shapes are computed from it: a convolution may need some."""


class _ConstantInputs:
    """The inputs of a node that are not sequences, each evaluated by onnxruntime if the model computes it."""

    def __init__(self, model: Any, node: Any, name: str) -> None:
        from onnx import helper, numpy_helper

        self.model, self.node, self.name = model, node, name
        attributes = {
            attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute if attribute.name != "hidden_size"
        }
        self.operator = PreparedNode(node.op_type, attributes, list(model.opset_import), {})
        self._initializers = {tensor.name: tensor for tensor in model.graph.initializer}
        self._to_array = numpy_helper.to_array
        self._producers = {output: other for other in model.graph.node for output in other.output if output}
        self._inputs = {value.name for value in model.graph.input} - set(self._initializers)
        values = {part: self._value(index, part) for part, index in (("W", 1), ("R", 2), ("B", 3), ("P", 7))}
        self.weights = {part: value for part, value in values.items() if value is not None}
        self.directions = len(self.weights["R"])

    def arrays(self, sequences: Sequences) -> dict[str, Array]:
        """Return the weights, and those initial states that the model makes and the caller does not give, one row per direction."""
        result = dict(self.weights)
        for index, (name, part) in enumerate(self.operator.states.items(), 5):
            value = None if getattr(sequences, part) else self._value(index, name)
            if value is not None:
                result[name] = self._one_row(value, name)
        return result

    def _one_row(self, value: Array, part: str) -> Array:
        if self.operator.attributes.get("layout"):
            raise NotImplementedError(f"{self.name}: an initial state under layout=1, which onnxruntime does not run")
        if value.ndim != 3 or not value.shape[1] or (value != value[:, :1]).any():
            raise NotImplementedError(f"{self.name}: its {part} differs from sequence to sequence. Give states")
        return np.asarray(value[:, 0])

    def _value(self, index: int, part: str) -> Array | None:
        name = self.node.input[index] if index < len(self.node.input) else ""
        if not name:
            return None
        if name in self._initializers:
            return np.asarray(self._to_array(self._initializers[name]))
        nodes, inputs, by_value = self._above(name)
        if by_value and part in STATES and {node.op_type for node in nodes} <= _MOVING:
            return None  # its caller passes it: where nobody does, a sequence begins with zeros
        if by_value:
            raise NotImplementedError(f"{self.name}: its {part} is computed from {by_value!r}, which is given at run time")
        return self._evaluated(name, nodes, inputs)

    def _above(self, name: str) -> tuple[list[Any], set[str], str]:
        """Return the nodes that make a value, the inputs that they read, and one of these that is read for more than its shape."""
        nodes: dict[int, Any] = {}
        inputs: set[str] = set()
        seen: set[tuple[str, bool]] = set()
        by_value = ""
        waiting = [(name, False)]
        while waiting:
            value, shape_only = waiting.pop()
            if not value or (value, shape_only) in seen or value in self._initializers:
                continue
            seen.add((value, shape_only))
            node = self._producers.get(value)
            if node is None:
                if value in self._inputs:
                    inputs.add(value)
                    by_value = by_value if shape_only else by_value or value
                continue  # any other name is one of a graph inside a node
            nodes[id(node)] = node
            shape_only = shape_only or node.op_type in ("Shape", "Size")
            waiting += [(source, shape_only) for source in _read(node)]
        return [node for node in self.model.graph.node if id(node) in nodes], inputs, by_value

    def _evaluated(self, name: str, nodes: Sequence[Any], inputs: set[str]) -> Array:
        """Compute a value with the model cut down to it; inputs whose shape alone is read are zeros."""
        import onnx

        cut = onnx.ModelProto()
        cut.CopyFrom(self.model)
        del cut.graph.node[:], cut.graph.output[:], cut.graph.input[:], cut.graph.initializer[:]
        cut.graph.node.extend(nodes)
        cut.graph.output.append(onnx.ValueInfoProto(name=name))
        read = {value for node in nodes for value in _read(node)}
        cut.graph.initializer.extend(tensor for value, tensor in self._initializers.items() if value in read)
        cut.graph.input.extend(value for value in self.model.graph.input if value.name in inputs)
        session = Session(cut.SerializeToString(), "CPUExecutionProvider")

        def computed(free: int) -> Array:
            feeds = {}
            for value in cut.graph.input:
                kind = value.type.tensor_type
                shape = [dim.dim_value if dim.dim_value > 0 else free for dim in kind.shape.dim]
                feeds[value.name] = np.zeros(shape, onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type))
            return session.run([name], feeds)[0]

        for free in _FREE[:-1]:
            with contextlib.suppress(Exception):  # what no length mends is raised with the last one
                return computed(free)
        return computed(_FREE[-1])


def _read(node: Any) -> Iterator[str]:
    """Yield all that a node and the graphs inside it read."""
    yield from node.input
    for attribute in node.attribute:
        for graph in [*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs]:
            for inner in graph.node:
                yield from _read(inner)
            yield from (value.name for value in graph.output)
