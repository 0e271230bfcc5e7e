"""A stack without its numbers, and where its numbers lie in a module of rnnconvert's own.

The outline says everything but the numbers: cells, sizes, which arrays there are, how directions and layers are
joined. As text it goes where weights go (a module's state, a Keras configuration), so that nobody mistakes a file
of ours for a framework's own cell of the same shapes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from rnnconvert.core.arrays import Array, Source
from rnnconvert.core.cells import GATES, Activation, Cell, Clip
from rnnconvert.core.errors import UsageError
from rnnconvert.core.malformed import malformed
from rnnconvert.core.weights import Direction, Key, Layer, Recurrent, describe_direction, gates_of
from rnnconvert.language.layout import Holds, Layout, Sizes, Tensor
from rnnconvert.language.packing import Packed, pack, unpack

_GATE_BY_HIDDEN = "(gate hidden)"
_BIASES = ("none", "input", "recurrent", "both")
TORCH = (
    Tensor("weight_ih", "input", "(gate hidden) in"),
    Tensor("weight_hh", "recurrent", "(gate hidden) in"),
    Tensor("bias_ih", "input_bias", _GATE_BY_HIDDEN),
    Tensor("bias_hh", "recurrent_bias", _GATE_BY_HIDDEN),
    Tensor("weight_peephole", "peephole[i f o]", _GATE_BY_HIDDEN),
    Tensor("weight_hr", "projection", "hidden in"),
    Tensor("initial_hidden", "initial_hidden", "hidden"),
    Tensor("initial_cell", "initial_cell", "hidden"),
)
"""One direction's parameters in torch: torch.nn's own names and shapes where it has the array."""
KERAS = (
    Tensor("kernel", "input", "in (gate hidden)"),
    Tensor("recurrent_kernel", "recurrent", "in (gate hidden)"),
    Tensor("bias", "input_bias", _GATE_BY_HIDDEN),
    Tensor("recurrent_bias", "recurrent_bias", _GATE_BY_HIDDEN),
    Tensor("peephole", "peephole[i f o]", _GATE_BY_HIDDEN),
    Tensor("projection", "projection", "in hidden"),
    Tensor("initial_hidden", "initial_hidden", "hidden"),
    Tensor("initial_cell", "initial_cell", "hidden"),
)
"""One direction's variables in Keras: matrices act from the right."""
READOUT = "readout"
"""The matrix after a direction of the last layer, (P, hidden); in Keras (hidden, P)."""

Tensors = tuple[Tensor, ...]


def suffix(layer: int, direction: int) -> str:
    """Return the ending of the names of one direction's arrays, as in torch.nn: _l0, _l0_reverse."""
    return f"_l{layer}" + "_reverse" * direction


def shapes(stack: Recurrent, tensors: Tensors) -> dict[str, tuple[int, ...]]:
    """Return the shape of every array of a module by name, in order."""
    arrays = {name: tuple(array.shape) for name, array in _arrays(stack, tensors)}
    return {**arrays, **{name: tuple(matrix.shape) for name, matrix in _readouts(stack, tensors)}}


def numbers(stack: Recurrent, tensors: Tensors, dtype: np.dtype[Any] | None = None) -> dict[str, Array]:
    """Return every array of a module by name, in an element type; the stack's own if None."""
    arrays = [*_arrays(stack, tensors), *_readouts(stack, tensors)]
    return {name: np.asarray(array).astype(dtype or stack.dtype, copy=False) for name, array in arrays}


def filled(stack: Recurrent, tensors: Tensors, arrays: Mapping[str, Source], name: str = "") -> Recurrent:
    """Return the stack that an outline and a module's arrays describe, as views of these arrays.

    Raises ValueError if an array is missing or has another shape.
    """
    layers = []
    for index, layer in enumerate(stack.layers):
        directions = []
        for number, direction in enumerate(layer.directions):
            end = suffix(index, number)
            direction_arrays = {key.removesuffix(end): array for key, array in arrays.items() if key.endswith(end)}
            directions.append(direction.replace(arrays=unpack(layout(direction, tensors), _form(direction), direction_arrays)[0, 0]))
        layers.append(Layer(tuple(directions), layer.merge))
    wanted = shapes(stack, tensors)
    readout = [arrays[key] for key in wanted if key.startswith(READOUT)]
    if tensors is KERAS:
        readout = [np.asarray(matrix).T for matrix in readout]
    return stack.replace(name=name, layers=tuple(layers), readout=tuple(readout))


def _arrays(stack: Recurrent, tensors: Tensors) -> Iterator[tuple[str, Packed]]:
    for layer, number, direction in stack.directions():
        packed = pack(layout(direction, tensors), Recurrent("", (Layer((direction,)),)))
        for tensor in tensors:  # in this order, whatever the order of the arrays
            if tensor.name in packed:
                yield tensor.name + suffix(layer, number), packed[tensor.name]


def _readouts(stack: Recurrent, tensors: Tensors) -> Iterator[tuple[str, Source]]:
    for number, matrix in enumerate(stack.readout):
        yield READOUT + "_reverse" * number, np.asarray(matrix).T if tensors is KERAS else matrix


def layout(direction: Direction, tensors: Tensors) -> Layout:
    """Return how one direction's arrays lie; their names end in its suffix."""
    kind = direction.cell.kind
    return Layout(
        "modules." + kind,
        kind,
        " ".join(GATES[kind]),
        tensors,
        "rnnconvert",
        "a module of rnnconvert's own",
        direction.cell.reset_after,
        holds=Holds(biases=_BIASES),
    )


def _form(direction: Direction) -> Sizes:
    return Sizes.of(Recurrent("", (Layer((direction,)),)))


# As text

_BEGINNING = '{"recurrent": 1,'


def to_text(stack: Recurrent) -> str:
    """Return the outline as JSON."""
    layers = [{"merge": layer.merge, "directions": [_plain(direction) for direction in layer.directions]} for layer in stack.layers]
    plain = {
        "recurrent": 1,  # first: see _BEGINNING
        "layers": layers,
        "join": stack.join,
        "output_order": stack.output_order,
        "readout": [matrix.shape[0] for matrix in stack.readout],
    }
    return json.dumps(plain)


def from_text(text: str) -> Recurrent:
    """Return the stack that an outline describes, all its numbers zeros that take no memory.

    Raises UsageError if the text is not an outline.
    """
    with malformed(lambda what: UsageError(f"this is not an outline of a recurrent layer: {what}")):
        plain = json.loads(text)
        layers = tuple(
            Layer(tuple(map(_direction, layer["directions"])), _one_of(layer["merge"], "concat sum mul ave none"))
            for layer in plain["layers"]
        )
        if not all(len(layer.directions) in (1, 2) for layer in layers):
            raise ValueError("a layer has one direction or two")
        widths = [direction.output_size for direction in layers[-1].directions]
        readout = tuple(_zeros(rows, width) for rows, width in zip(plain["readout"], widths, strict=False))
        return Recurrent("", layers, _one_of(plain["join"], "layer end"), _one_of(plain["output_order"], "time processing"), readout)


def _plain(direction: Direction) -> dict[str, Any]:
    cell = direction.cell
    return {
        "kind": cell.kind,
        "reset_after": cell.reset_after,
        "activation": _function(cell.activation),
        "gate_activation": _function(cell.gate_activation),
        "output_activation": _function(cell.output_activation),
        "coupled": cell.coupled,
        "constants": {gate: float(value) for gate, value in cell.constants.items()},
        "clips": [[clip.kind, float(clip.low), float(clip.high)] for clip in cell.clips],
        "input_size": direction.input_size,
        "hidden_size": direction.hidden_size,
        "projection_size": direction.projection_size,
        "parts": sorted({part for part, _ in direction.arrays}),
        "reverse": direction.reverse,
    }


def _function(activation: Activation) -> list[Any]:
    return [activation.name, *(None if x is None else float(x) for x in (activation.alpha, activation.beta))]


def _activation(stated: Any) -> Activation:
    name, alpha, beta = stated
    return Activation(name, alpha, beta)


def _direction(plain: Mapping[str, Any]) -> Direction:
    cell = Cell(
        plain["kind"],
        plain["reset_after"],
        _activation(plain["activation"]),
        _activation(plain["gate_activation"]),
        _activation(plain["output_activation"]),
        coupled=_one_of(plain["coupled"], " f i"),
        constants={gate: float(value) for gate, value in plain["constants"].items()},
        clips=tuple(Clip(kind, float(low), float(high)) for kind, low, high in plain["clips"]),
    )
    sizes = Sizes(
        cell.kind,
        plain["input_size"],
        plain["hidden_size"],
        projection_size=plain["projection_size"],
        parts=frozenset(plain["parts"]),
        skip_input="input" not in plain["parts"],
    )
    arrays: dict[Key, Source] = {}
    for part in sorted(sizes.parts):
        shape = sizes.shape(0, part)
        if shape is not None:
            arrays.update({(part, gate): _zeros(*shape) for gate in gates_of(cell.kind, part)})
    return Direction(cell, arrays, bool(plain["reverse"]))


def _one_of(word: Any, words: str) -> Any:
    if word not in words.split(" "):
        raise ValueError(f"{word!r} is not one of {words}")
    return word


def _zeros(*shape: int) -> Array:
    return np.broadcast_to(np.float32(0), shape)


def constants(cell: Cell, hidden_size: int) -> Array | None:
    """Return the constants that are added to every gate's pre-activation at run time, (gates * hidden,), or None."""
    if not any(cell.constants.values()):
        return None
    return np.repeat([float(cell.constants.get(gate, 0.0)) for gate in cell.gates], hidden_size)


def words(stack: Recurrent) -> str:
    """Describe in one line what a stack computes; where directions differ, each of them."""
    if stack.uniform:
        text = stack.describe()
    else:
        each = "; ".join(
            f"layer {layer}{', backward' if number else ''}: {describe_direction(direction)}"
            for layer, number, direction in stack.directions()
        )
        text = f"{stack.describe()}: {each}"
    return text.replace(f", {stack.dtype}", "") + ", read out" * bool(stack.readout)


# In files


def words_of(text: Array) -> str:
    """Say in words what an outline's bytes describe."""
    try:
        return words(from_text(bytes(text).decode()))
    except (UsageError, UnicodeDecodeError):
        return "an unknown layer"


def stored(arrays: Mapping[str, Source]) -> Iterator[tuple[str, Recurrent, dict[str, str]]]:
    """Yield every torch module of rnnconvert's own among a file's arrays: its prefix, the layer, and the arrays' names by parameter.

    Raises UsageError if an outline and the arrays with its prefix do not match.
    """
    for name, array in arrays.items():
        prefix, _, last = name.rpartition("outline")
        if last or (prefix and not prefix.endswith(".")) or array.dtype != np.uint8:
            continue
        text = np.asarray(array)
        if bytes(text[: len(_BEGINNING)]) != _BEGINNING.encode():
            continue  # an array of another module that has the same name
        stack = from_text(bytes(text).decode(errors="replace"))
        names = {key: prefix + key for key in shapes(stack, TORCH)}
        missing = [full for full in names.values() if full not in arrays]
        if missing:
            raise UsageError(f"{name!r} describes a layer with {missing[0]!r}, which is missing")
        try:
            layer = filled(stack, TORCH, {key: arrays[full] for key, full in names.items()})
        except ValueError as error:
            raise UsageError(f"the arrays next to {name!r} do not match the layer that it describes: {error}") from None
        yield prefix, layer, {**names, "outline": name}
