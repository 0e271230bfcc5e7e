"""onnxruntime, on recurrent nodes of a model, or on all of a model that rnnconvert wrote.

No GPU has run the variant for CUDA yet.
Sources: the ONNX operators RNN, GRU and LSTM (opset 22); onnxruntime's Python API and its profiles, 1.18 to 1.31.
"""

from __future__ import annotations

import contextlib
import functools
import json
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from .run_witness import run_whole

Array = np.ndarray

NEEDS = ("onnx", "onnxruntime")
FORMAT = "onnx"
SUFFIX = ".onnx"
SUPPORTS = "RNN, GRU of both kinds and LSTM nodes with peepholes, clip and input_forget; sequence_lens, none zero; no gradients"
CANNOT = {"cotangents": "onnxruntime computes no gradients", "how": "the model already states what it computes"}
VARIANTS: dict[str, dict[str, Any]] = {
    "onnxruntime-cpu": {"device": "cpu", "provider": "CPUExecutionProvider"},
    "onnxruntime-cuda": {"device": "cuda", "provider": "CUDAExecutionProvider"},
}
OPSET = 14
"""The first opset with all of today's attributes; every onnxruntime that we support runs it."""

_INPUTS = ("X", "W", "R", "B", "sequence_lens", "initial_h", "initial_c", "P")
_OPERATORS = ("RNN", "GRU", "LSTM")
_STATES = {"initial_h": "hidden", "initial_c": "cell"}
_MOVING = frozenset({"Gather", "Identity", "Slice", "Split", "Squeeze", "Unsqueeze"})
"""Operators through which zeros stay zeros, and nothing is added."""
_TYPES = {"tensor(float)": "float32", "tensor(double)": "float64", "tensor(float16)": "float16"}
_AS_INPUTS = 1 << 24
"""Weights larger than this many bytes are passed as inputs: to write them into a model of one node takes longer than to run it."""
_LARGEST = 1 << 30
"""Files larger than this many bytes are read anew for each case, and not kept in memory."""


def absent(variant: Mapping[str, Any]) -> str:
    """Return why it cannot run here although its packages are installed, or "" if it can; its providers show when it runs."""
    return ""


def answer(request: Mapping[str, Any]) -> dict[str, Any]:
    """Run nodes of a model one after the other, or a model of rnnconvert's; see rnnconvert.running."""
    if not request["file"].endswith(".onnx"):
        raise NotImplementedError("onnxruntime reads binary models, which end in .onnx")
    if request.get("lengths") is not None and np.min(request["lengths"]) < 1:
        raise NotImplementedError("a sequence of length zero: onnxruntime returns zeros instead of its initial state as the final one")
    _available(request["variant"]["provider"])
    if request["layers"]:
        return _nodes(request)
    return _run_model(request)


def witness(request: Mapping[str, Any]) -> None:
    """Run a model whole, with what its recurrent nodes read and give as further outputs; see rnnconvert.running."""
    run_whole(request, _recurrent_node, _Session, _wide)


def _available(provider: str) -> None:
    import onnxruntime

    if provider not in onnxruntime.get_available_providers():
        raise NotImplementedError(f"this onnxruntime {onnxruntime.__version__} was built without {provider}")


class _Session:
    """A model made ready to run, with a note of where its nodes ran if it is asked for."""

    def __init__(self, model: str | bytes, provider: str, profiled: bool = False) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3  # it warns of what a user's own model has
        for threads in ("intra_op", "inter_op"):  # they would take the time of whatever runs beside it
            options.add_session_config_entry(f"session.{threads}.allow_spinning", "0")
        self._folder = tempfile.TemporaryDirectory() if profiled else None
        if self._folder is not None:
            options.enable_profiling = True
            options.profile_file_prefix = str(Path(self._folder.name) / "profile")
        providers: list[Any] = ["CPUExecutionProvider"]
        if provider != "CPUExecutionProvider":
            providers.insert(0, (provider, {"use_tf32": "0"}))
        self.session = _worded(onnxruntime.InferenceSession, model, options, providers=providers)
        if provider not in self.session.get_providers():
            raise NotImplementedError(f"onnxruntime could not load {provider}: its libraries do not fit together")

    def run(self, outputs: Sequence[str], feeds: Mapping[str, Array]) -> list[Array]:
        arrays = {name: np.ascontiguousarray(array) for name, array in feeds.items()}
        return list(_worded(self.session.run, list(outputs), arrays))

    @functools.cached_property
    def providers(self) -> dict[str, str]:
        """The provider on which each node ran; asked for after the first run."""
        assert self._folder is not None
        with self._folder:
            events = json.loads(Path(self.session.end_profiling()).read_text(encoding="utf-8"))
        result = {}
        for event in events:
            details = event.get("args", {})
            if event.get("cat") == "Node" and details.get("provider"):
                result[event["name"].replace("_kernel_time", "") or details["op_name"]] = details["provider"]
        return result


def _worded(call: Any, *arguments: Any, **keywords: Any) -> Any:
    """Call onnxruntime, and pass its refusals on as refusals."""
    try:
        return call(*arguments, **keywords)
    except Exception as error:  # onnxruntime has types of its own, which are looked at by name
        message = " ".join(str(error).split())
        # An attribute layout of 1 is refused by an assertion, types without a kernel by a NotImplemented of its own
        # or, where the kernel is there, when it runs.
        absent = re.search(r"Could not find an implementation for (RNN|GRU|LSTM)\(", message)
        if absent:
            raise NotImplementedError(
                f"onnxruntime has no {absent[1]} of this element type, but one of float32 (--dtype float32)"
            ) from None
        if type(error).__name__ == "NotImplemented" or "layout" in message or "does not support" in message:
            raise NotImplementedError(f"onnxruntime: {message}") from None
        raise


def _run_model(request: Mapping[str, Any]) -> dict[str, Any]:
    """Run a model of one stack, with the inputs and outputs that rnnconvert gives it."""
    profiled = _Session(request["file"], request["variant"]["provider"], profiled=True)
    session = profiled.session
    inputs = {value.name: value for value in session.get_inputs()}
    outputs = [value.name for value in session.get_outputs()]
    ends = ["y"] if "y" in outputs else ["y_forward", "y_backward"]
    if "x" not in inputs or not set(ends) <= set(outputs):
        raise NotImplementedError(
            f"the model has the inputs {', '.join(inputs)} and the outputs {', '.join(outputs)}: it is unknown which of them are the "
            "sequences. Name its nodes"
        )
    feeds = {"x": _typed(inputs["x"], request["x"])}
    for name, key in _STATES.items():
        states = request.get(key)
        if states:
            feeds.update(_state_feeds(inputs, name, states, key))
        else:
            feeds.update(_zero_feeds(inputs, name, np.shape(request["x"])[1]))
    if request.get("lengths") is not None:
        if "sequence_lens" not in inputs:
            raise NotImplementedError("the model has no input sequence_lens. Write it with the option sequence_lens=true")
        feeds["sequence_lens"] = np.asarray(request["lengths"], np.int32)
    elif "sequence_lens" in inputs:
        feeds["sequence_lens"] = np.full(np.shape(request["x"])[1], len(request["x"]), np.int32)
    finals = {letter: _numbered(outputs, f"{letter}_n") for letter in "hc"}
    values = profiled.run([*ends, *finals["h"], *finals["c"]], feeds)
    rows = [_wide(row) for value in values[len(ends) :] for row in value]
    hidden = sum(len(value) for value in values[len(ends) : len(ends) + len(finals["h"])])
    return {
        "y": np.concatenate([_wide(value) for value in values[: len(ends)]], axis=-1),
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


def _wide(array: Array) -> Array:
    return array.astype(np.float32) if array.dtype == np.float16 else array


def _nodes(request: Mapping[str, Any]) -> dict[str, Any]:
    """Run nodes by name, each reading what the one before gives."""
    file = Path(request["file"])
    constants_of = _constants_of if file.stat().st_size < _LARGEST else _constants_of.__wrapped__
    graphs = constants_of(str(file), file.stat().st_mtime_ns, tuple(request["layers"]))
    x, number = request["x"], 0
    hidden: list[Array] = []
    cell: list[Array] = []
    providers: dict[str, str] = {}
    for name, graph in zip(request["layers"], graphs):
        node = graph.node
        count = graph.directions
        rows = slice(number, number + count)
        states = {key: request[key][rows] if request.get(key) else None for key in _STATES.values()}
        if node.op_type != "LSTM":
            states["cell"] = None
        feeds = {"x": x, **states, "lengths": request.get("lengths")}
        results, ran = _run(graph.operator, graph.arrays(feeds), feeds, request["variant"])
        x, number = results["y"], number + count
        hidden += results["hidden"]
        cell += results["cell"]
        providers[name] = ran
    for key in _STATES.values():
        if request.get(key) and len(request[key]) != number:
            raise ValueError(f"{len(request[key])} {key} states for {number} directions")
    return {"y": x, "hidden": hidden, "cell": cell, "notes": {"providers": providers}}


@functools.lru_cache(maxsize=1)
def _constants_of(file: str, written: int, layers: Sequence[str]) -> list[_Constants]:
    """Return nodes of a file with their weights; read once, as all cases of a layer are run one after the other."""
    import onnx

    model = onnx.load(file)
    nodes = [_recurrent_node(model, name) for name in layers]
    return [_Constants(model, node, name) for name, node in zip(layers, nodes)]


def _label(node: Any) -> str:
    """Return a node's name, or that of its first output."""
    return str(node.name or next((output for output in node.output if output), node.op_type))


def _recurrent_node(model: Any, name: str) -> Any:
    """Return the recurrent node of that name in the main graph."""
    there = [node for node in model.graph.node if node.op_type in _OPERATORS and node.domain in ("", "ai.onnx")]
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


class _Constants:
    """What a node reads that is not a sequence, each evaluated by onnxruntime where the model computes it."""

    def __init__(self, model: Any, node: Any, name: str) -> None:
        from onnx import helper, numpy_helper

        self.model, self.node, self.name = model, node, name
        attributes = {
            attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute if attribute.name != "hidden_size"
        }
        self.operator = _Operator(node.op_type, attributes, list(model.opset_import), {})
        self._initializers = {tensor.name: tensor for tensor in model.graph.initializer}
        self._to_array = numpy_helper.to_array
        self._producers = {output: other for other in model.graph.node for output in other.output if output}
        self._inputs = {value.name for value in model.graph.input} - set(self._initializers)
        values = {part: self._value(index, part) for part, index in (("W", 1), ("R", 2), ("B", 3), ("P", 7))}
        self.weights = {part: value for part, value in values.items() if value is not None}
        self.directions = len(self.weights["R"])

    def arrays(self, feeds: Mapping[str, Any]) -> dict[str, Array]:
        """Return the weights, and those initial states that the model makes and the caller does not give, one row per direction."""
        result = dict(self.weights)
        for index, part in ((5, "initial_h"), (6, "initial_c")):
            if feeds[_STATES[part]] is None and (part == "initial_h" or self.node.op_type == "LSTM"):
                value = self._value(index, part)
                if value is not None:
                    result[part] = self._one_row(value, part)
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
        if by_value and part in _STATES and {node.op_type for node in nodes} <= _MOVING:
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
        session = _Session(cut.SerializeToString(), "CPUExecutionProvider")

        def computed(free: int) -> Array:
            feeds = {}
            for value in cut.graph.input:
                kind = value.type.tensor_type
                shape = [dim.dim_value or free for dim in kind.shape.dim]
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


def run(
    arrays: Mapping[str, Array],
    x: Array,
    operator: str,
    attributes: Mapping[str, Any],
    *,
    hidden: Sequence[Array] | None = None,
    cell: Sequence[Array] | None = None,
    lengths: Array | None = None,
) -> dict[str, Any]:
    """Run a model of one node on the CPU, in the element type of its weights.

    arrays      the node's inputs by the operator's own names: W, R, and where it has them B, P, initial_h
                and initial_c, the latter two (directions, hidden)
    x           (time, batch, in)
    operator    "RNN", "GRU" or "LSTM"
    attributes  the operator's own: direction, activations, activation_alpha, clip, linear_before_reset ...
    hidden      initial states, and the rest as in a request (rnnconvert.running); the answer likewise; without states,
                initial_h and initial_c, or zero

    Raises onnxruntime's errors for a node that it refuses, NotImplementedError for one that it has no kernel for.
    """
    feeds = {"x": x, "hidden": hidden, "cell": cell if operator == "LSTM" else None, "lengths": lengths}
    variant = {"provider": "CPUExecutionProvider", "unnoted": True}
    return _run(_Operator(operator, attributes, (), {}), arrays, feeds, variant)[0]


class _Operator(NamedTuple):
    """What a node computes.

    sessions  models of this node that are ready to run, by the inputs that they take
    """

    name: str
    attributes: Mapping[str, Any]
    opsets: Sequence[Any]
    sessions: dict[Any, _Session]

    @property
    def outputs(self) -> list[str]:
        return ["Y", "Y_h", *(["Y_c"] if self.name == "LSTM" else [])]


def _run(
    operator: _Operator, arrays: Mapping[str, Array], feeds: Mapping[str, Any], variant: Mapping[str, Any]
) -> tuple[dict[str, Any], str]:
    """Run a model of one node; return its outputs, and the provider that it ran on."""
    dtype = arrays["R"].dtype
    steps, batch, _ = np.shape(feeds["x"])
    inputs: dict[str, Array] = {"X": np.asarray(feeds["x"], dtype)}
    constants = {name: np.ascontiguousarray(arrays[name]) for name in ("W", "R", "B", "P") if name in arrays}
    for name, key in _STATES.items():
        if feeds[key] is not None:
            inputs[name] = np.stack(list(feeds[key])).astype(dtype)
        elif name in arrays:
            inputs[name] = np.repeat(arrays[name][:, None], batch, axis=1)
    if feeds["lengths"] is not None:
        inputs["sequence_lens"] = np.asarray(feeds["lengths"], np.int32)
    if sum(array.nbytes for array in constants.values()) > _AS_INPUTS:
        inputs, constants = {**inputs, **constants}, {}
    directions, _, width = arrays["R"].shape
    takes = tuple((name, array.dtype.str) for name, array in inputs.items())
    session = operator.sessions.get(takes)
    if session is None:
        model = _model(operator, inputs, constants, width)
        session = operator.sessions[takes] = _Session(model, variant["provider"], profiled=not variant.get("unnoted"))
    y, *finals = session.run(operator.outputs, inputs)
    joined = y.transpose(0, 2, 1, 3).reshape(steps, batch, directions * width)
    states = [[_wide(row) for row in final] for final in finals]
    answered = {"y": _wide(joined), "hidden": states[0], "cell": states[1] if operator.name == "LSTM" else []}
    if variant.get("unnoted"):
        return answered, ""
    return answered, session.providers.get(operator.name, "")


_SHAPES = {
    "X": ("steps", "batch", None),
    "sequence_lens": ("batch",),
    "initial_h": (None, "batch", None),
    "initial_c": (None, "batch", None),
}
"""The axes of a node's inputs that differ from case to case."""


def _model(operator: _Operator, inputs: Mapping[str, Array], constants: Mapping[str, Array], width: int) -> bytes:
    """Return a model of one node, which takes as many steps and sequences as it is given."""
    import onnx
    from onnx import helper

    names = [name if name in inputs or name in constants else "" for name in _INPUTS]
    while not names[-1]:
        names.pop()
    node = helper.make_node(operator.name, names, operator.outputs, operator.name, hidden_size=width, **operator.attributes)
    of_numpy = helper.np_dtype_to_tensor_dtype
    graph = helper.make_graph(
        [node],
        operator.name,
        [helper.make_tensor_value_info(name, of_numpy(a.dtype), _axes(name, a)) for name, a in inputs.items()],
        [onnx.ValueInfoProto(name=name) for name in operator.outputs],
        [onnx.numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    # The oldest form of file that the opset may stand in: an older onnxruntime refuses a newer one.
    stated = [entry for entry in operator.opsets if entry.domain in ("", "ai.onnx")] or [helper.make_opsetid("", OPSET)]
    version = max(8, helper.find_min_ir_version_for(list(stated), ignore_unknown=True))
    model = helper.make_model(graph, opset_imports=stated, ir_version=version)
    return bytes(model.SerializeToString())


def _axes(name: str, array: Array) -> list[Any]:
    """Return an input's shape, with names for the axes that differ from case to case."""
    return [word or size for word, size in zip(_SHAPES.get(name, [None] * array.ndim), array.shape)]
