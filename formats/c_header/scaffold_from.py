"""A header of a whole model as rnnconvert.scaffolding describes models: what its description states, operation by operation.

A value of the program is a tensor (batch, numbers), with steps (batch, time, numbers); stored numbers have neither. A step of a loop has
no time. A header whose code is not what the writer makes of its description is refused: nobody knows what it computes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rnnconvert.core.arrays import Array
from rnnconvert.core.errors import RefusedError, UnreadableError, UsageError
from rnnconvert.core.remedies import Flag
from rnnconvert.core.weights import Layer, Recurrent
from rnnconvert.formats.c_header.program import Across
from rnnconvert.graphs.sizes import Dims, open_size
from rnnconvert.language.surroundings import Surrounding, SurroundingTensor
from rnnconvert.models.model import Model, Unit
from rnnconvert.scaffolding import kinds
from rnnconvert.scaffolding.building import Builder
from rnnconvert.scaffolding.description import DescribedModel, Description
from rnnconvert.scaffolding.tensors import SourceTensor

if TYPE_CHECKING:  # a conversion enters no scaffolding
    from rnnconvert.formats.c_header.model_code import ModelPort, WrittenModel
    from rnnconvert.formats.c_header.program import StepOperation

NAME = "c_header"


def describe(path: Path, partial: bool = False) -> Description:
    """Return the model of a header.

    Raises UsageError for layers alone, UnreadableError for a header whose code was changed, RefusedError for numbers in float64.
    """
    from rnnconvert.files.load import load
    from rnnconvert.formats.c_header.originals import Original

    checkpoint = load(path, NAME)
    original = checkpoint.read
    if not isinstance(original, Original) or original.model is None:
        raise UsageError(f"{path} holds layers and no whole model: `rnnconvert export` writes such headers")
    if original.line:
        raise UnreadableError(
            path,
            f"line {original.line} is not what rnnconvert writes for its description and its numbers: its code was changed, or another "
            "version wrote it, and what it computes is not known",
        )
    model = original.model
    if model.storage == "float64":
        raise RefusedError(
            "a header in float64", "a model", "models are written in float32", f"Write the header without {Flag('dtype', 'float64')}."
        )
    stacks = {layer.name: _in_float32(layer.stack) for layer in original.layers}
    arrays = {name: np.asarray(array, np.float32) for name, array in checkpoint.tensors.items()}
    return _HeaderReading(model, stacks, arrays).description(str(path))


def _in_float32(stack: Recurrent) -> Recurrent:
    (layer,) = stack.layers
    (direction,) = layer.directions
    wide = {key: np.asarray(array, np.float32) for key, array in direction.arrays.items()}
    return stack.replace(layers=(Layer((direction.replace(arrays=wide),)),))


_ARRAYS: Mapping[str, tuple[str, tuple[SurroundingTensor, ...]]] = {
    "dense": ("dense", (SurroundingTensor("W", "weight"), SurroundingTensor("b", "bias"))),
    "conv": ("conv", (SurroundingTensor("W", "weight", "out *space in"), SurroundingTensor("b", "bias"))),
    "embedding": ("embedding", (SurroundingTensor("table", "weight"),)),
    "affine": ("batch_norm", tuple(SurroundingTensor(part, part) for part in ("scale", "shift", "mean", "variance"))),
    "slopes": ("prelu", (SurroundingTensor("slope", "slope"),)),
    "norm": ("layer_norm", (SurroundingTensor("scale", "scale"), SurroundingTensor("shift", "shift"))),
}
"""The operations with arrays that are layers: of which kind, and what its arrays are."""


class _HeaderReading(Builder):
    """A header's program on its way into a description.

    model   the program
    stacks  its recurrent layers, by their names in C
    arrays  the arrays of the others, likewise
    """

    def __init__(self, model: WrittenModel, stacks: Mapping[str, Recurrent], arrays: Mapping[str, Array]) -> None:
        super().__init__(DescribedModel("model"))
        self.model, self.program, self.stacks = model, model.program, stacks
        self.arrays = dict(arrays)
        self.units: dict[str, Unit] = {}
        self.stored: dict[str, str] = {}
        self.values: dict[int, SourceTensor] = {}

    def description(self, title: str) -> Description:
        """Return the model. Raises RefusedError for an operation that no other framework has."""
        model, program = self.model, self.program
        for port in model.inputs:
            self.values[port.value] = self._input(port)
        loops = {span.start: span for span in program.loops(program.memory())}
        place = 0
        while place < len(program.operations):
            span = loops.get(place, range(place, place + 1))
            operations = program.operations[span.start : span.stop]
            with self.refusing("its operation", "what it reads does not fit"):
                (self._loop if place in loops else self._all)(operations)
            place = span.stop
        self.scope.outputs = tuple(self.read(self._output(port)) for port in model.outputs)
        words = {"int8": "its matrices are int8, and are read as the numbers that these stand for", "float16": "its weights are halves"}
        names = {name: (name,) for name in self.units} | {name: (full,) for name, full in self.stored.items()}
        return Description(
            self.scope, (words[model.storage],) if model.storage in words else (), names, words=self.words, roles=self.roles,
            continues=model.stateful, model=Model(NAME, title, tuple(self.units.values()), self.arrays),
        )  # fmt: skip

    # Inputs and outputs

    def _input(self, port: ModelPort) -> SourceTensor:
        """Return an input as (batch, time, numbers)."""
        value = self.program.values[port.value]
        root = self.program.root(value.time)
        length = None if root is None else self.program.length(root)
        time = open_size(f"time {root}") if length is None else length
        dims: Dims = tuple(axis if isinstance(axis, int) else open_size("batch") if axis == "batch" else time for axis in port.axes)
        for axis, dim in zip(port.axes, dims, strict=True):
            if isinstance(axis, str):
                self.call(dim, axis)
        x = self.input(port.name, dims, "int32" if value.integral else "float32")
        if "batch" not in port.axes:
            x = self.unsqueeze(x, [0])
        axes = [*([] if "batch" in port.axes else ["batch"]), *port.axes]
        lead = [axes.index(word) for word in ("batch", "time") if word in axes]
        x = self.transpose(x, [*lead, *(axis for axis in range(x.rank) if axis not in lead)])
        return self.flat(x, len(lead))

    def _output(self, port: ModelPort) -> SourceTensor:
        x = self.values[port.value]
        lead: list[str | int] = [axis for axis in ("batch", "time") if axis in port.axes]
        if lead[:1] != ["batch"]:
            raise self.refuse(f"the output {port.name!r}", "it is not an output of each sequence")
        batch = self.values[0].dims[:1] if x.rank < len(lead) + 1 else ()
        x = self.expand(x, (*batch, *x.dims)) if batch else x
        x = self.reshape(x, (*x.dims[: len(lead)], *(axis for axis in port.axes if isinstance(axis, int))))
        rest = iter(range(len(lead), x.rank))
        return self.transpose(x, [lead.index(axis) if isinstance(axis, str) else next(rest) for axis in port.axes])

    # Tensors

    def flat(self, x: SourceTensor, lead: int) -> SourceTensor:
        """Return a tensor whose axes behind the first so many are one."""
        return self.reshape(x, (*x.dims[:lead], math.prod(_stated(x.dims[lead:]))))

    def parted(self, x: SourceTensor, length: int, inner: int) -> tuple[SourceTensor, int]:
        """Return a tensor with an axis of a length of its own, which has so many numbers within it, and the place of that axis."""
        outer = _stated(x.dims[-1:])[0] // (length * inner)
        axis = x.rank - 1 + (outer > 1)
        return self.reshape(x, (*x.dims[:-1], *([outer] if outer > 1 else []), length, *([inner] if inner > 1 else []))), axis

    def real(self, x: SourceTensor) -> SourceTensor:
        """Return a tensor of real numbers."""
        return self.cast(x, "float32")

    def truth(self, x: SourceTensor) -> SourceTensor:
        """Return a tensor of truths."""
        return self.cast(x, "bool")

    def mask(self, x: SourceTensor) -> SourceTensor:
        """Return which steps count, as (batch, time)."""
        return self.truth(self.squeeze(x, [x.rank - 1]))

    def alike(self, tensors: Sequence[SourceTensor], expanded: bool) -> list[SourceTensor]:
        """Return tensors with a batch and a time where any has them: of length 1, or expanded; stored numbers have neither.

        Raises ValueError for axes of several lengths.
        """
        most = max(tensors, key=lambda x: x.rank)
        batch = next((x.dims[0] for x in tensors if x.rank > 1 and x.dims[0] != 1), 1)
        lead = (batch, *most.dims[1:-1]) if most.rank > 1 else ()
        result = []
        for x in tensors:
            x = self.unsqueeze(x, [1]) if 1 < x.rank < most.rank else x
            result.append(self.expand(x, (*lead, x.dims[-1])) if expanded else x)
        return result

    def label(self, operation: StepOperation) -> str:
        """Return the name of an operation's arrays without that of the model, which the writer puts in front of it."""
        return operation.name.removeprefix(f"{self.model.name}_")

    def layer(self, operation: StepOperation) -> Unit:
        """Return the layer of an operation with arrays."""
        name = self.label(operation)
        if name not in self.units:
            kind, tensors = _ARRAYS[operation.kind]
            if operation.kind == "norm" and not operation.settings["centred"]:
                kind, tensors = "rms_norm", tensors[:1]
            shapes = self.program.kinds[operation.kind].arrays(operation.settings)
            if operation.kind == "affine":
                shapes = {**shapes, "mean": shapes["scale"], "variance": shapes["scale"]}
            names = {local: f"{operation.name}_{local}" for local in shapes}
            for local, full in names.items():
                if local in ("mean", "variance"):
                    self.arrays[full] = np.full(shapes[local], float(local == "variance"), np.float32)
            self.units[name] = Unit(name, names, (Surrounding(NAME, kind, "", tensors, ""),), title=operation.kind)
        return self.units[name]

    def recurrent(self, operation: StepOperation, backwards: bool) -> Unit:
        """Return a recurrent layer; one that is called both ways is two."""
        name = self.label(operation)
        stack = self.stacks[operation.name]
        if name in self.units and (other := self.units[name].stack) is not None and other.first.reverse != backwards:
            name += "_turned"
        if name not in self.units:
            (direction,) = stack.layers[0].directions
            turned = stack.replace(name=name, layers=(Layer((direction.replace(reverse=backwards),)),))
            self.units[name] = Unit(name, stack=turned, title=turned.describe())
        return self.units[name]

    # Operations

    def _all(self, operations: Sequence[StepOperation]) -> None:
        for operation in operations:
            self.place = operation.name or operation.kind
            read = [self.values[number] for number in operation.reads]
            gives = _RULES[operation.kind](self, operation, *read)
            for number, x in zip(operation.gives, gives if isinstance(gives, list) else [gives], strict=True):
                self.values[number] = x

    def _loop(self, operations: Sequence[StepOperation]) -> None:
        """Add a loop: its operations read and give one step."""
        from rnnconvert.scaffolding.loops import loop_node

        values = self.program.values
        steps = [each for each in operations if any(values[number].time is not None for number in (*each.reads, *each.gives))]
        self._all([each for each in operations if each not in steps])
        states = [each for each in steps if each.kind == "state"]
        ends = [each for each in steps if each.kind == "left"]
        inside = {number for each in steps for number in each.gives}
        reads = dict.fromkeys(number for each in steps for number in each.reads if number not in inside)
        sequences = [number for number in reads if values[number].time is not None]
        read = {number for each in steps if each not in states for number in each.reads}
        captured = [number for number in reads if values[number].time is None and number in read]
        batch, time = self.values[sequences[0]].dims[:2]
        first = [self.alike([self.values[sequences[0]], self.values[each.reads[1]]], False)[1] for each in states]
        first = [self.expand(self.squeeze(x, [1]) if x.rank == 3 else x, (batch, x.dims[-1])) for x in first]
        outside, around, where = self.values, self.scope, self._where
        in_time = [self.transpose(outside[number], [1, 0, 2]) for number in sequences]
        self.scope, self._where, self.values = step, _, inner = DescribedModel(around.name, around.path), {}, {}
        for each, x in zip(states, first, strict=True):
            inner[each.gives[0]] = self.input(f"state_{each.gives[0]}", x.dims, "float32")
        for number, x in zip(sequences, in_time, strict=True):
            inner[number] = self.input(f"step_{number}", x.dims[1:], x.dtype)
        for number in captured:
            inner[number] = self.input(f"value_{number}", outside[number].dims, outside[number].dtype)
        self._all([each for each in steps if each not in (*states, *ends)])
        last = {each.reads[1]: each for each in ends}
        left = [self.expand(self.real(inner[last[each.gives[0]].reads[0]]), x.dims) for each, x in zip(states, first, strict=True)]
        used = {number for each in self.program.operations if each not in steps for number in each.reads}
        used |= {port.value for port in self.model.outputs}
        listed = [number for each in steps for number in each.gives if number in used and values[number].time is not None]
        gives = [self.expand(inner[number], (batch, inner[number].dims[-1])) for number in listed]
        step.outputs = tuple(self.read(x) for x in (*left, *gives))
        self.scope, self._where, self.values = around, where, outside
        every = loop_node(self, step, time, [first, in_time, [outside[number] for number in captured]], left, gives)
        for each, x in zip(states, every, strict=False):
            outside[last[each.gives[0]].gives[0]] = x
        for number, x in zip(listed, every[len(states) :], strict=True):
            outside[number] = self.transpose(x, [1, 0, 2])


def _stated(dims: Dims) -> list[int]:
    """Return lengths that are stated. Raises ValueError for open ones."""
    if not all(isinstance(dim, int) for dim in dims):
        raise ValueError("numbers of a step whose count a run decides")
    return [dim for dim in dims if isinstance(dim, int)]


# The rules: what an operation gives


def _dense(r: _HeaderReading, operation: StepOperation, x: SourceTensor) -> SourceTensor:
    units, unit = operation.settings["units"], r.layer(operation)
    wide, axis = r.parted(r.real(x), operation.settings["width"], 1)
    y = r.add_layer(kinds.Dense(units=units, bias=operation.settings["bias"]), [wide], (*wide.dims[:axis], units), layer=unit.name)
    return r.flat(y, x.rank - 1)


def _product(r: _HeaderReading, operation: StepOperation, x: SourceTensor, y: SourceTensor) -> SourceTensor:
    from rnnconvert.scaffolding.operations import matmul

    width, units, count = (operation.settings[word] for word in ("width", "units", "matrices"))
    x, y = r.alike([r.real(x), r.real(y)], False)
    several = [count] if count > 1 else []
    rows = _stated(x.dims[-1:])[0] // (count * width)
    left = r.reshape(x, (*x.dims[:-1], *several, rows, width))
    right = r.reshape(y, (*y.dims[:-1], *several, width, units))
    return r.flat(matmul(r, left, right), max(x.rank, y.rank) - 1)


def _embedding(r: _HeaderReading, operation: StepOperation, x: SourceTensor) -> SourceTensor:
    rows, width = operation.settings["rows"], operation.settings["width"]
    places = x if x.dtype in ("int32", "int64") else r.cast(x, "int64")
    places = r.squeeze(places, [x.rank - 1]) if x.dims[-1] == 1 else places
    dims = (*places.dims, width)
    y = r.add_layer(kinds.Embedding(input_size=rows, output_size=width), [places], dims, "float32", layer=r.layer(operation).name)
    return r.flat(y, x.rank - 1)


_ACTIVATIONS = (
    "relu", "sigmoid", "tanh", "exponential", "selu", "softplus", "softsign", "hard_swish", "hard_sigmoid", "elu", "celu", "leaky_relu",
    "relu6", "silu", "gelu", "gelu_tanh", "mish",
)  # fmt: skip
"""The functions that are activations; others are operators of graphs."""


def _function(r: _HeaderReading, operation: StepOperation, x: SourceTensor) -> SourceTensor:
    from rnnconvert.scaffolding.operations import activation, function

    word, alpha = operation.settings["function"], operation.settings["alpha"]
    if word in ("truth", "not"):
        return r.truth(x) if word == "truth" else function(r, r.truth(x), "not")
    x = r.real(x)
    if word == "linear":
        return x
    if word == "towards_zero":
        return r.real(r.cast(x, "int64"))
    return activation(r, x, word, alpha) if word in _ACTIVATIONS else function(r, x, word)


def _softmax(r: _HeaderReading, operation: StepOperation, x: SourceTensor) -> SourceTensor:
    from rnnconvert.scaffolding.operations import activation

    wide, axis = r.parted(r.real(x), operation.settings["width"], operation.settings["inner"])
    return r.flat(activation(r, wide, "log_softmax" if operation.settings["log"] else "softmax", axis=axis), x.rank - 1)


def _by_channel(r: _HeaderReading, operation: StepOperation, x: SourceTensor) -> SourceTensor:
    """Return the output of a factor and a sum, or a slope, for each channel."""
    width, unit = operation.settings["width"], r.layer(operation)
    wide, axis = r.parted(r.real(x), width, operation.settings["inner"])
    affine = operation.kind == "affine"
    kind = kinds.BatchNorm(0.0, True, True, axis, width, 0.99) if affine else kinds.PReLU.along(axis, width, wide.rank)
    return r.flat(r.add_layer(kind, [wide], wide.dims, layer=unit.name), x.rank - 1)


def _norm(r: _HeaderReading, operation: StepOperation, x: SourceTensor) -> SourceTensor:
    s = operation.settings
    wide, axis = r.parted(r.real(x), s["width"], 1)
    if s["unit"]:
        return r.flat(r.add(kinds.UnitNorm(axes=(axis,), epsilon=s["epsilon"]), [wide], wide.dims), x.rank - 1)
    layer = r.layer(operation).name if s["scale"] or s["shift"] else ""
    kind = (kinds.LayerNorm if s["centred"] else kinds.RMSNorm)(s["epsilon"], s["scale"], s["shift"], (s["width"],))
    return r.flat(r.several(kind, layer, [wide], [(wide.dims, "float32", layer or kind.word)])[0], x.rank - 1)


_TRUTHS = ("equal", "not_equal", "greater", "greater_equal", "less", "less_equal", "and", "or", "xor")


def _combined(r: _HeaderReading, operation: StepOperation, *tensors: SourceTensor) -> SourceTensor:
    word, operands = operation.settings["operation"], operation.settings["operands"]
    shapes = [operand for operand in operands if isinstance(operand, list)]
    rank = max(map(len, shapes))
    plain = all(shape == shapes[0] for shape in shapes)
    reads, inputs = list[SourceTensor](), iter(zip(shapes, r.alike(tensors, False), strict=True))
    for place, operand in enumerate(operands):
        if not isinstance(operand, list):
            reads.append(SourceTensor((), numbers=np.asarray(operand, np.float32)))
            continue
        shape, x = next(inputs)
        x = r.truth(x) if word in ("and", "or", "xor") or (word == "where" and not place) else r.real(x)
        reads.append(x if plain else r.reshape(x, (*x.dims[:-1], *(1,) * (rank - len(shape)), *shape)))
    y = r.elementwise(word, reads, "bool" if word in _TRUTHS else "float32")
    return r.flat(y, max(x.rank for x in tensors) - 1)


def _joined(r: _HeaderReading, operation: StepOperation, *tensors: SourceTensor) -> SourceTensor:
    outer, parts = operation.settings["outer"], r.alike([r.real(x) for x in tensors], True)
    wide = [r.reshape(x, (*x.dims[:-1], outer, _stated(x.dims[-1:])[0] // outer)) if outer > 1 else x for x in parts]
    return r.flat(r.concatenate(wide, wide[0].rank - 1), parts[0].rank - 1)


def _strided(r: _HeaderReading, operation: StepOperation, x: SourceTensor) -> SourceTensor:
    s = operation.settings
    wide, axis = r.parted(x, s["length"], s["inner"])
    first, last = sorted((s["start"], s["start"] + (s["count"] - 1) * (-s["step"] if s["back"] else s["step"])))
    low, high = max(0, -first), max(0, last + 1 - s["length"])
    wide, start = _with_ends(r, wide, axis, low, high, s), s["start"] + low
    if s["back"]:
        wide, start = r.flip(wide, axis), s["length"] + low + high - 1 - start
    y = r.slice(wide, axis, start, start + (s["count"] - 1) * s["step"] + 1, s["step"])
    return r.flat(y, x.rank - 1)


def _with_ends(r: _HeaderReading, x: SourceTensor, axis: int, low: int, high: int, s: Mapping[str, Any]) -> SourceTensor:
    """Return a tensor with more places at the ends of an axis, of which an operation says what stands there."""
    from rnnconvert.scaffolding.operations import padded

    pairs = [(low, high) if place == axis else (0, 0) for place in range(x.rank)]
    return padded(r, r.real(x), pairs, s["outside"], float(s["number"])) if low or high else x


def _turned(r: _HeaderReading, operation: StepOperation, x: SourceTensor) -> SourceTensor:
    lead = x.rank - 1
    wide = r.reshape(x, (*x.dims[:-1], *operation.settings["shape"]))
    return r.flat(r.transpose(wide, [*range(lead), *(lead + axis for axis in operation.settings["order"])]), lead)


def _repeated(r: _HeaderReading, operation: StepOperation, x: SourceTensor) -> SourceTensor:
    count, inner = operation.settings["count"], operation.settings["inner"]
    lead, groups = x.dims[:-1], _stated(x.dims[-1:])[0] // inner
    wide = r.reshape(r.real(x), (*lead, groups, 1, inner))
    return r.flat(r.expand(wide, (*lead, groups, count, inner)), len(lead))


def _reduced(r: _HeaderReading, x: SourceTensor, axis: int, word: str) -> SourceTensor:
    from rnnconvert.scaffolding.operations import reduced

    return reduced(r, r.truth(x) if word in ("any", "all") else r.real(x), word, [axis], False)


def _folded(r: _HeaderReading, operation: StepOperation, x: SourceTensor) -> SourceTensor:
    wide, axis = r.parted(x, operation.settings["length"], operation.settings["inner"])
    return r.flat(_reduced(r, wide, axis, operation.settings["operation"]), x.rank - 1)


def _stored(r: _HeaderReading, operation: StepOperation) -> SourceTensor:
    name = r.label(operation)
    r.stored[name] = f"{operation.name}_numbers"
    return r.parameter((operation.settings["size"],), "float32", name)


def _full(r: _HeaderReading, operation: StepOperation, x: SourceTensor) -> SourceTensor:
    return SourceTensor((*x.dims[:-1], operation.settings["size"]), filled=operation.settings["number"])


# Over the steps


def _recurrent(r: _HeaderReading, operation: StepOperation, x: SourceTensor, *others: SourceTensor) -> list[SourceTensor]:
    from rnnconvert.scaffolding.recurrent import recurrent

    s, backwards = operation.settings, operation.settings["backwards"]
    mask = r.mask(r.alike([x, others[0]], True)[1]) if s["masked"] else None
    states = [r.expand(state, (x.dims[0], state.dims[-1])) for state in others[s["masked"] :]]
    y, finals = recurrent(r, r.recurrent(operation, backwards), r.real(x), states, mask, s["sequences"], zero=s["zero"])
    if backwards and s["sequences"] and not s["turned"]:
        y = r.flip(y, 1)
    return [y, *(finals if s["ends"] else [])]


def _cell(r: _HeaderReading, operation: StepOperation, x: SourceTensor, *states: SourceTensor) -> list[SourceTensor]:
    from rnnconvert.scaffolding.recurrent import recurrent

    x, *begins = r.alike([x, *states], True)
    if x.rank > 2:
        raise ValueError("a cell outside of a loop")
    y, finals = recurrent(r, r.recurrent(operation, False), r.unsqueeze(r.real(x), [1]), begins, sequences=False)
    return [y, *finals]


def _pads(r: _HeaderReading, operation: StepOperation, x: SourceTensor, reach: int) -> tuple[int, int]:
    """Return how many steps are added at both ends. Raises RefusedError where the length of a sequence decides it."""
    from rnnconvert.scaffolding.windows import same

    pads, stride, length = operation.settings["pads"], operation.settings["stride"], x.dims[1]
    if pads is not None:
        return pads[0], pads[1]
    if not isinstance(length, int):
        raise r.refuse("windows with strides over a sequence of any length", "how many steps are added is decided by a run")
    return same(reach, stride, length)


def _conv(r: _HeaderReading, operation: StepOperation, x: SourceTensor) -> SourceTensor:
    """Return a convolution over the steps, if there are any, and over axes of each of them."""
    from rnnconvert.scaffolding.windows import ConvSettings, conv

    s, across = operation.settings, [Across(*axis) for axis in operation.settings["across"]]
    wide = r.real(x) if x.rank == 3 or across else r.unsqueeze(r.real(x), [x.rank - 1])
    over_time = Across(0, s["kernel"], s["stride"], s["dilation"], *_pads(r, operation, wide, (s["kernel"] - 1) * s["dilation"] + 1))
    axes, lead = [*[over_time] * (wide.rank == 3), *across], wide.rank - 1
    weight, lengths = f"{operation.name}_W", [axis.length for axis in across]
    shape = (s["filters"], *(axis.kernel for axis in axes), s["channels"] // s["groups"])
    if r.label(operation) in r.units and r.arrays[weight].shape != shape:
        raise ValueError("weights of a convolution over the steps and of one without them")
    r.arrays[weight] = r.arrays[weight].reshape(shape)
    wide = r.reshape(wide, (*wide.dims[:lead], *([s["channels"], *lengths] if s["first"] else [*lengths, s["channels"]])))
    channels = lead if s["first"] else wide.rank - 1
    order = [0, channels, *(axis for axis in range(1, wide.rank) if axis != channels)]
    strides, dilation = (tuple(getattr(axis, word) for axis in axes) for word in ("stride", "dilation"))
    stated = ConvSettings(r.layer(operation).name, strides, dilation, s["groups"], s["bias"])
    pads = tuple((axis.before, axis.after) for axis in axes)
    y = conv(r, r.transpose(wide, order), (shape[0], shape[-1], *shape[1:-1]), pads, stated)
    y = r.flat(r.transpose(y, [order.index(axis) for axis in range(y.rank)]), lead)
    return y if lead == x.rank - 1 else r.squeeze(y, [lead - 1])


def _pool(r: _HeaderReading, operation: StepOperation, x: SourceTensor) -> SourceTensor:
    from rnnconvert.scaffolding.windows import Windows, pool

    s = operation.settings
    looks = Windows((s["kernel"],), (s["stride"],), (s["dilation"],), (_pads(r, operation, x, (s["kernel"] - 1) * s["dilation"] + 1),))
    return r.transpose(pool(r, r.transpose(r.real(x), [0, 2, 1]), s["operation"], looks, False, s["counted"]), [0, 2, 1])


def _pooled(r: _HeaderReading, operation: StepOperation, x: SourceTensor) -> SourceTensor:
    """Return a pool over an axis of a step, or of each step."""
    from rnnconvert.scaffolding.windows import Windows, pool

    s, at, lead = operation.settings, Across(*operation.settings["across"]), x.rank - 1
    outer = _stated(x.dims[-1:])[0] // (at.length * s["inner"])
    wide = r.transpose(r.reshape(r.real(x), (*x.dims[:-1], outer, at.length, s["inner"])), [0, lead, lead + 2, *range(1, lead), lead + 1])
    still, dims = (1,) * (lead - 1), wide.dims
    looks = Windows((*still, at.kernel), (*still, at.stride), (*still, at.dilation), (*((0, 0),) * (lead - 1), (at.before, at.after)))
    y = pool(r, r.reshape(wide, (dims[0], outer * s["inner"], *dims[3:])), s["operation"], looks, False, s["counted"])
    y = r.reshape(y, (dims[0], outer, s["inner"], *y.dims[2:]))
    return r.flat(r.transpose(y, [0, *range(3, y.rank - 1), 1, y.rank - 1, 2]), lead)


def _over_time(r: _HeaderReading, operation: StepOperation, x: SourceTensor, *masks: SourceTensor) -> SourceTensor:
    word = operation.settings["operation"]
    if not masks:
        return _reduced(r, x, 1, word)
    x, mask = r.alike([r.real(x), masks[0]], True)
    dims = (x.dims[0], x.dims[2])
    return r.several(kinds.Reduce(operation=word, axes=(1,), keep=False), "", [x], [(dims, "float32", word)], {"mask": [r.mask(mask)]})[0]


def _number(r: _HeaderReading, operation: StepOperation, x: SourceTensor) -> SourceTensor:
    from rnnconvert.scaffolding.loops import step_numbers

    return r.unsqueeze(r.real(step_numbers(r, x.dims[1])), [0, 2])


def _until(r: _HeaderReading, operation: StepOperation, x: SourceTensor, like: SourceTensor) -> SourceTensor:
    return r.elementwise("less", [_number(r, operation, like), r.unsqueeze(r.real(x), [1])], "bool")


def _softmax_of_steps(r: _HeaderReading, operation: StepOperation, x: SourceTensor) -> SourceTensor:
    from rnnconvert.scaffolding.operations import activation

    return activation(r, r.real(x), "log_softmax" if operation.settings["log"] else "softmax", axis=1)


def _inner(r: _HeaderReading, x: SourceTensor, length: int, inner: int) -> SourceTensor:
    """Return a tensor of one row, or of rows, as (batch, so many, rest, inner), with the first two of these exchanged."""
    rest = math.prod(_stated(x.dims[1:])) // (length * inner)
    dims = (x.dims[0], length, rest, inner) if x.rank == 3 else (x.dims[0], rest, length, inner)
    return r.transpose(r.reshape(x, dims), [0, 2, 1, 3])


def _flat(r: _HeaderReading, operation: StepOperation, x: SourceTensor) -> SourceTensor:
    return r.flat(_inner(r, x, _stated(x.dims[1:2])[0], operation.settings["inner"]), 1)


def _as_steps(r: _HeaderReading, operation: StepOperation, x: SourceTensor) -> SourceTensor:
    return r.flat(_inner(r, x, operation.settings["length"], operation.settings["inner"]), 2)


def _again(r: _HeaderReading, operation: StepOperation, x: SourceTensor) -> SourceTensor:
    return r.expand(r.unsqueeze(x, [1]), (x.dims[0], operation.settings["length"], x.dims[-1]))


def _some_steps(r: _HeaderReading, operation: StepOperation, x: SourceTensor) -> SourceTensor:
    s, (low, high) = operation.settings, operation.settings["ends"]
    x = _with_ends(r, x, 1, max(low, 0), max(high, 0), s)
    x = r.slice(x, 1, max(-low, 0), x.dims[1] - max(-high, 0), s["step"])
    wide = r.expand(r.unsqueeze(x, [2]), (*x.dims[:2], s["by"], x.dims[2]))
    return r.reshape(wide, (x.dims[0], x.dims[1] * s["by"], x.dims[2]))


_Rule = Callable[..., SourceTensor | list[SourceTensor]]
_RULES: Mapping[str, _Rule] = {
    "dense": _dense, "product": _product, "embedding": _embedding, "function": _function, "softmax": _softmax, "affine": _by_channel,
    "slopes": _by_channel, "norm": _norm, "combined": _combined, "joined": _joined, "taken": _strided, "turned": _turned,
    "repeated": _repeated, "folded": _folded, "stored": _stored, "full": _full, "recurrent": _recurrent, "cell": _cell, "conv": _conv,
    "pool": _pool, "pooled": _pooled, "over time": _over_time, "last": lambda r, operation, x: r.select(x, 1, -1),
    "first": lambda r, operation, x: r.select(x, 1, 0), "until": _until, "number": _number,
    "flip": lambda r, operation, x: r.flip(x, 1), "softmax of steps": _softmax_of_steps, "flat": _flat, "as steps": _as_steps,
    "again": _again, "some steps": _some_steps,
}  # fmt: skip
"""Every kind of operation but those that begin and end loops."""
