"""Random inputs: for the operators of one layer alone, and for a whole model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import helper

from rnnconvert.core.arrays import Array, Pieced
from rnnconvert.formats.onnx.fuse.graph import bodies, made, reads
from rnnconvert.formats.onnx.fuse.proof import Graph, Pair
from rnnconvert.formats.onnx.proto.file import DTYPES
from rnnconvert.graphs.program.scopes import Scope
from rnnconvert.graphs.program.shapes import Shapes
from rnnconvert.graphs.program.spread import everywhere
from rnnconvert.recognition.conditions import conditions, directed
from rnnconvert.recognition.counts import OTHERS, Place, counted, place
from rnnconvert.recognition.expression import UnmatchedError
from rnnconvert.recognition.recognised import Found
from rnnconvert.recognition.states import given_at_run_time

TRIALS = ((5, 2, 1.0), (1, 3, 1.0), (8, 1, 0.1), (6, 4, 20.0))
"""Steps, sequences, and how large the numbers are."""
_DRAWN = 1 << 24
"""The most random numbers of a proof: a file may state lengths that need more."""
_LONG = ((1, 1), (7, 100_003), (1_000_003, 2))
"""Steps and sequences that no trial computes; how often a Loop would run is computed."""


@dataclass(frozen=True, eq=False)
class Cut:
    """The operators of a layer, cut out of a graph.

    nodes   between what it reads and what is used of it, in the graph's order
    cuts    the values that they read, and what each of them is
    trials  random numbers for these
    """

    nodes: Sequence[onnx.NodeProto]
    cuts: Mapping[str, str]
    trials: Sequence[Mapping[str, Array]]


def cut(scope: Scope, shapes: Shapes, found: Found) -> Cut:
    """Cut the operators of a layer out of a graph. Raises UnmatchedError where they cannot be cut."""
    cuts = {name: "read" for read in found.reads for name in (read.steps or (read.value,))}
    if found.mask is not None:
        cuts[found.mask.value] = "mask"
        cuts |= {name: "0.0" for name in found.zeros if scope.constant(name) is None}
    cuts |= {name: "state" for name in found.states.values() if scope.constant(name) is None}
    _check_long(scope, shapes, found)
    outputs = [use.value for use in found.uses]
    nodes = _between(scope.graph, scope, shapes, found, outputs, cuts)
    trials, drawn = [], 0
    for number, trial in enumerate(TRIALS):
        if drawn < _DRAWN:
            trials.append(_draw(shapes, scope, found, cuts, trial, number))
            drawn += sum(one.size for one in trials[-1].values())
    distinct = [one for n, one in enumerate(trials) if n in (0, 3) or _shape(one) != _shape(trials[0])]
    return Cut(nodes, cuts, [*distinct, *_directed(scope, found, nodes, distinct[0])])


def _directed(
    scope: Scope, found: Found, nodes: Sequence[onnx.NodeProto], trial: Mapping[str, Array]
) -> list[dict[str, Array]]:
    """Return inputs that meet what nodes compare them with; none where no node compares."""
    numbers = conditions(scope, [*nodes, *(one for graph in bodies(nodes) for one in graph.node)])
    sequences = {
        name: None if read.steps else read.axis for read in found.reads for name in (read.steps or (read.value,))
    }
    made: list[dict[str, Array]] = []
    for one in directed(trial, sequences, numbers):
        if len(made) * sum(array.size for array in one.values()) > _DRAWN:
            raise UnmatchedError("what it compares is more than a proof may hold")
        made.append(one)
    return made


def region(whole: Graph, scope: Scope, shapes: Shapes, found: Found, opset: int) -> Pair:
    """Return the operators of a layer, cut out of a model, and the new node. Raises UnmatchedError where they cannot be cut."""
    own = cut(scope, shapes, found)
    outputs = [use.value for use in found.uses]
    new, arrays = made(found, "fused", opset, found.states)
    inputs = [_value(scope, shapes, found, name, kind) for name, kind in own.cuts.items()]
    given = [onnx.ValueInfoProto(name=name) for name in outputs]
    old_model = _model(whole.model, own.nodes, inputs, given, whole.arrays)
    new_arrays = {**{name: whole.arrays[name] for name in found.states.values() if name in whole.arrays}, **arrays}
    constants = _constants(scope, whole, new, {*own.cuts, *new_arrays})
    new_model = _model(whole.model, [*constants, *new], inputs, given, new_arrays)
    return Pair(found.label, old_model, new_model, outputs, own.trials, np.dtype(found.direction.dtype))


def _shape(inputs: Mapping[str, Array]) -> list[tuple[int, ...]]:
    return [one.shape for one in inputs.values()]


def _level(scope: Scope, shapes: Shapes, found: Found, name: str) -> str | None:
    """Return the one number that a first state or a factor consists of, whose shape is computed, as text."""
    level = None if scope.constant(name) is not None else everywhere(scope, name)
    if level is None or given_at_run_time(scope, name):  # in this order: the latter goes back through all steps before
        return None
    dims = shapes.dims(scope, name)
    widths = {found.direction.hidden_size, *(read.width for read in found.reads if level == 1)}
    return str(level) if dims is not None and len(dims) == found.rank and dims[-1] in widths else None


def _between(
    graph: onnx.GraphProto, scope: Scope, shapes: Shapes, found: Found, outputs: Sequence[str], cuts: dict[str, str]
) -> list[onnx.NodeProto]:
    """Return the nodes between the inputs of a layer and its outputs; what a loop counts by becomes an input."""
    places = {name: index for index, node in enumerate(graph.node) for name in node.output if name}
    stored = {one.name for one in graph.initializer}
    waiting, kept = list(outputs), set()
    while waiting:
        name = waiting.pop()
        if name in cuts or name in stored or not name:
            continue
        index = places.get(name)
        if index is None:
            raise UnmatchedError(f"{name!r}, an input of the model, decides what it computes")
        if index in kept:
            continue
        if scope.constant(name) is None and shapes.number(scope, name) is not None:
            cuts[name] = "known"
            continue
        level = _level(scope, shapes, found, name)
        if level is not None:
            cuts[name] = level
            continue
        kept.add(index)
        node = graph.node[index]
        if node.op_type in ("Loop", "Scan") and any(output in node.output for output in outputs):
            for given in reads(node):
                if given not in cuts and scope.constant(given) is None and not given_at_run_time(scope, given):
                    level = _level(scope, shapes, found, given)
                    cuts[given] = level or ("condition" if given == node.input[1] else "count")
        waiting += reads(node)
    return [node for index, node in enumerate(graph.node) if index in kept]


def _constants(scope: Scope, whole: Graph, new: Sequence[onnx.NodeProto], known: set[str]) -> list[onnx.NodeProto]:
    """Return Constant nodes for what new nodes read from the old graph."""
    needed = {name for node in new for name in node.input if name} - {name for node in new for name in node.output}
    found = []
    for name in sorted(needed - known):
        array = scope.constant(name)
        if array is None:
            raise UnmatchedError(f"{name!r} decides what it computes")
        found.append(
            helper.make_node("Constant", [], [name], value=onnx.numpy_helper.from_array(np.ascontiguousarray(array)))
        )
    return found


def _value(scope: Scope, shapes: Shapes, found: Found, name: str, kind: str) -> onnx.ValueInfoProto:
    usual = next(code for code, dtype in DTYPES.items() if dtype == found.direction.dtype.newbyteorder("="))
    codes = {"condition": onnx.TensorProto.BOOL, "count": onnx.TensorProto.INT64}
    code = shapes.kind(scope, name) or codes.get(kind, usual)
    known = shapes.number(scope, name) if kind == "known" else None
    if known is not None:
        code = next(code for code, dtype in DTYPES.items() if dtype == known.dtype)
        return helper.make_tensor_value_info(name, code, known.shape)
    if kind == "mask" and found.mask is not None:
        codes["mask"] = onnx.TensorProto.INT32 if found.mask.rank == 1 else onnx.TensorProto.BOOL
        code = shapes.kind(scope, name) or codes[kind]
        dims = shapes.dims(scope, name)
        return helper.make_tensor_value_info(name, code, list(dims) if dims is not None else [None] * found.mask.rank)
    if kind in codes:
        return helper.make_tensor_value_info(name, code, [])
    steps = {step for read in found.reads for step in read.steps}
    dims = shapes.dims(scope, name)
    if dims is None:  # onnxruntime takes ten times as long to load a long model without any
        rank = 2 if name in steps else 3
        dims = [None] * (rank if kind == "read" else found.rank)
    return helper.make_tensor_value_info(name, code, list(dims))


def _model(
    like: onnx.ModelProto, nodes: Sequence[onnx.NodeProto], inputs: Sequence[onnx.ValueInfoProto],
    outputs: Sequence[onnx.ValueInfoProto], arrays: Mapping[str, Array | Pieced],
) -> Graph:  # fmt: skip
    """Return a model of some nodes, with the numbers that these need."""
    used = {name for node in nodes for name in reads(node)}
    graph = onnx.GraphProto(name="region")
    graph.node.extend(nodes)
    graph.input.extend(inputs)
    graph.output.extend(outputs)
    kept: dict[str, Array | Pieced] = {}
    for tensor in like.graph.initializer:
        if tensor.name in used and tensor.name not in arrays:
            graph.initializer.append(tensor)
    for name, array in arrays.items():
        if name in used:
            kept[name] = array
            code = next(code for code, dtype in DTYPES.items() if dtype == array.dtype.newbyteorder("="))
            graph.initializer.append(onnx.TensorProto(name=name, dims=array.shape, data_type=code))
    model = onnx.ModelProto(ir_version=max(4, like.ir_version))
    model.opset_import.extend(like.opset_import)
    model.graph.CopyFrom(graph)
    return Graph(model, kept)


def _draw(
    shapes: Shapes, scope: Scope, found: Found, cuts: Mapping[str, str], trial: tuple[int, int, float], seed: int
) -> dict[str, Array]:
    """Return random inputs for the operators of a layer."""
    random = np.random.default_rng(100 + seed)
    steps, batch, scale = trial
    size = found.direction.hidden_size
    for read in found.reads:
        dims = shapes.dims(scope, read.steps[0] if read.steps else read.value)
        if dims is None:
            continue
        if read.steps:
            batch = dims[0] or batch
        elif len(dims) == 3:
            batch, steps = dims[1 - read.axis] or batch, dims[read.axis] or steps
    for name in found.states.values():
        dims = shapes.dims(scope, name)
        if dims is not None and len(dims) == found.rank:
            batch = dims[-2] or batch
    steps = found.steps if found.steps is not None and not any(read.value for read in found.reads) else steps
    inputs: dict[str, Array] = {}
    if steps * batch * sum(read.width for read in found.reads) > _DRAWN:
        raise UnmatchedError(f"its sequences of {steps} steps are larger than a proof may hold")
    for read in found.reads:
        shape = (batch, read.width) if read.steps else ((batch, steps) if read.axis else (steps, batch)) + (read.width,)
        for name in read.steps or (read.value,):
            inputs[name] = (random.standard_normal(shape) * scale).astype(_type(scope, shapes, name, found))
    for name, kind in cuts.items():
        if kind == "state":
            shape = (batch, size) if found.rank == 2 else (1, batch, size)
            inputs[name] = (random.standard_normal(shape) * min(scale, 1.0)).astype(_type(scope, shapes, name, found))
        elif kind == "mask":
            inputs[name] = _mask(shapes, scope, found, (steps, batch), random)
        elif kind == "known":
            inputs[name] = np.asarray(shapes.number(scope, name))
        elif kind not in ("read", "condition", "count"):
            width = (shapes.dims(scope, name) or [size])[-1] or size
            shape = (batch, width) if found.rank == 2 else (1, batch, width)
            inputs[name] = np.full(shape, float(kind), _type(scope, shapes, name, found))
        elif kind in ("condition", "count"):
            lengths = _lengths(scope, shapes, found, steps, batch)
            number = counted(scope, shapes, name, lengths, OTHERS[seed % len(OTHERS)])
            inputs[name] = number.astype(DTYPES.get(shapes.kind(scope, name), number.dtype))
    return inputs


def _mask(shapes: Shapes, scope: Scope, found: Found, sizes: tuple[int, int], random: np.random.Generator) -> Array:
    """Return a random mask: with gaps, and where there are several sequences one without a step that counts."""
    assert found.mask is not None
    steps, batch = sizes
    if found.mask.rank == 1:
        lengths = random.integers(1, steps + 1, batch)
        lengths[1:2] = 0
        code = shapes.kind(scope, found.mask.value)
        return np.asarray(lengths.astype(DTYPES.get(code, np.dtype(np.int32))))
    truths = random.random((steps, batch)) > 0.4
    truths[:, 1:2] = found.mask.negated
    truths = truths.T if found.mask.axis else truths
    return np.ascontiguousarray(truths[..., None] if found.mask.rank == 3 else truths)


def _lengths(scope: Scope, shapes: Shapes, found: Found, steps: int, batch: int) -> dict[Place, int]:
    """Return the lengths of the axes of what a layer reads, for numbers that are computed from shapes."""
    lengths: dict[Place, int] = {}
    for read in found.reads:
        if read.value:
            axes = (place(scope, shapes, read.value, axis) for axis in (read.axis, 1 - read.axis))
            lengths |= dict(zip(axes, (steps, batch), strict=True))
    return lengths


def _check_long(scope: Scope, shapes: Shapes, found: Found) -> None:
    """Raise UnmatchedError where a Loop of shapes that no trial has would end before its sequence."""
    if found.node is None or found.node.op_type != "Loop":
        return
    for steps, batch in _LONG:
        lengths = _lengths(scope, shapes, found, steps, batch)
        for name, least in zip(found.node.input[:2], (steps, 1), strict=True):
            if name and scope.constant(name) is None and shapes.number(scope, name) is None:
                for other in OTHERS:
                    number = counted(scope, shapes, name, lengths, other)
                    if number.size != 1 or number.reshape(()) < least:
                        raise UnmatchedError(
                            f"it runs {int(number.sum())} steps where its sequence has {steps} ({name!r})"
                        )


def _type(scope: Scope, shapes: Shapes, name: str, found: Found) -> np.dtype:
    return DTYPES.get(shapes.kind(scope, name), found.direction.dtype)


def whole_inputs(graph: onnx.GraphProto, scope: Scope) -> list[dict[str, Array]]:
    """Return random inputs of a whole model: whole numbers where it looks something up, steps of several lengths.

    Axes of one name are one number. Axes without a name may have to be equal, so a second set has them so.
    """
    stored = {one.name for one in graph.initializer}
    inputs = [one for one in graph.input if one.name not in stored]
    bounds = _bounds(scope)
    found = []
    for seed, sizes in enumerate(((2, 5, 3), (1, 7, 4), (3, 3, 3), (1, 1, 1), (4, 4, 4), (2, 2, 2))):
        random = np.random.default_rng(seed)
        names: dict[str, int] = {}
        given: dict[str, Array] = {}
        for one in inputs:
            kind = one.type.tensor_type
            shape = []
            for number, axis in enumerate(kind.shape.dim):
                if axis.HasField("dim_value"):
                    shape.append(axis.dim_value)
                else:
                    shape.append(names.setdefault(axis.dim_param or f"{one.name}/{number}", sizes[len(names) % 3]))
            dtype = DTYPES.get(kind.elem_type)
            if dtype is None:
                raise UnmatchedError(f"the input {one.name!r} is of a type for which no numbers can be drawn")
            if dtype.kind in "iu":
                given[one.name] = random.integers(0, bounds.get(one.name, 2), shape).astype(dtype)
            elif dtype.kind == "b":
                given[one.name] = random.integers(0, 2, shape).astype(dtype)
            else:
                given[one.name] = random.standard_normal(shape).astype(dtype)
        found.append(given)
    return found


def _bounds(scope: Scope) -> dict[str, int]:
    """Return for each value how many rows the smallest stored table has in which it looks something up."""
    rows = [
        (node.input[1], table.shape[0]) for node in scope.nodes
        if node.op_type == "Gather" and (table := scope.constant(node.input[0])) is not None and table.ndim > 1
    ]  # fmt: skip
    found: dict[str, int] = {}
    for name, count in rows:
        for source in _before(scope, name):
            found[source] = min(count, found.get(source, count))
    return found


def _before(scope: Scope, name: str) -> Iterator[str]:
    waiting, seen = [name], set()
    while waiting:
        own = waiting.pop()
        if own in seen or not own:
            continue
        seen.add(own)
        yield own
        producer = scope.producer(own)
        if producer is not None:
            waiting += producer[0].input
