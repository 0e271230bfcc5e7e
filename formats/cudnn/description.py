"""The description of a flat buffer: the cell, its sizes, and what cuDNN was set to."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from rnnconvert.core.arguments import unknown
from rnnconvert.core.arrays import Array
from rnnconvert.core.cells import RELU, TANH, Cell, Clip
from rnnconvert.core.errors import UsageError
from rnnconvert.core.limits import SIZE
from rnnconvert.core.weights import BIAS_PARTS, Recurrent
from rnnconvert.language import registry
from rnnconvert.language.layout import Layout, Sizes
from rnnconvert.language.packing import assemble, unpack
from rnnconvert.language.places import shapes

NAME = "cudnn"

BIAS_MODES: dict[str, tuple[str, ...]] = {
    "double": BIAS_PARTS,
    "none": (),
    "single_inp": ("input_bias",),
    "single_rec": ("recurrent_bias",),
}


_CELLS = {"lstm": ("lstm", None, TANH), "gru": ("gru", True, TANH), "rnn_tanh": ("rnn", None, TANH)}


CELLS: dict[str, tuple[Any, bool | None, Any]] = {**_CELLS, "rnn_relu": ("rnn", None, RELU)}


_CHOICES: dict[str, tuple[object, ...]] = {"bidirectional": (False, True), "input_mode": ("linear", "skip")}


def layout_of(cell: str) -> Layout:
    """Return the layout of a cell by cuDNN's word for it: lstm, gru, rnn_tanh or rnn_relu.

    Raises UsageError for any other word.
    """
    if cell not in CELLS:
        raise unknown("cuDNN cell", cell, CELLS)
    kind, reset_after, _ = CELLS[cell]
    return registry.layout(NAME, kind, reset_after)


def form_of(description: Mapping[str, Any]) -> Sizes:
    """Return the sizes that a description states.

    Raises UsageError naming the entry that is missing or impossible.
    """

    def number(key: str, default: int | None = None, least: int = 1) -> int:
        value = description.get(key, default)
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= SIZE:
            state = f"is {value!r}" if key in description else "is missing"
            raise UsageError(f"{key} {state}: expected an integer from {least} to {SIZE}")
        return value

    mode = description.get("bias_mode", "double")
    if not isinstance(mode, str) or mode not in BIAS_MODES:
        raise UsageError(f"bias_mode is {mode!r}, expected one of {', '.join(BIAS_MODES)}")
    kind = CELLS[description["cell"]][0]
    hidden = number("hidden_size")
    for key, choices in _CHOICES.items():
        value = description.get(key, choices[0])
        if not isinstance(value, str | bool | int) or value not in choices:
            raise UsageError(f"{key} is {description[key]!r}, expected one of {', '.join(map(str, choices))}")
    skip = description.get("input_mode", "linear") == "skip"
    projection = number("projection_size", 0, 0)
    if projection and kind != "lstm":
        raise UsageError(f"a {kind} has no projection in cuDNN")
    if projection > hidden:
        raise UsageError(f"projection_size is {projection}, but cannot be more than hidden_size, {hidden}")
    projection = 0 if projection == hidden else projection  # cuDNN's own way to say that there is none
    parts = {"input", "recurrent", *BIAS_MODES[mode], *(["projection"] if projection else [])}
    size = number("input_size", hidden if skip else None)
    if skip and size != hidden:
        raise UsageError(f"input_mode is skip, so input_size must be hidden_size, {hidden}, but it is {size}")
    directions = 2 if description.get("bidirectional", False) else 1
    layers = number("num_layers", 1)
    if layers > 4096:
        raise UsageError(f"num_layers is {layers}, expected at most 4096")
    return Sizes(kind, size, hidden, layers, directions, projection, frozenset(parts), skip)


def describe(stack: Recurrent) -> dict[str, Any]:
    """Return the description of a stack's buffer."""
    first = stack.first
    cell = first.cell.kind if first.cell.kind != "rnn" else f"rnn_{first.cell.activation.name}"
    modes = {"both": "double", "none": "none", "input": "single_inp", "recurrent": "single_rec"}
    result: dict[str, Any] = {
        "name": stack.name,
        "cell": cell,
        "input_size": stack.input_size,
        "hidden_size": stack.hidden_size,
        "projection_size": first.projection_size,
        "num_layers": stack.num_layers,
        "bidirectional": stack.num_directions == 2,
        "bias_mode": modes[first.biases],
        "input_mode": "skip" if first.skip_input else "linear",
        "dtype": str(stack.dtype),
    }
    for clip in first.cell.clips:
        result["clip"] = [bound if math.isfinite(bound) else None for bound in (clip.low, clip.high)]  # JSON has no infinity
    return result


def stack_of(name: str, description: Mapping[str, Any], buffer: Array) -> Recurrent:
    """Return the stack in a buffer, whose views its arrays are.

    Raises UsageError if the description is impossible, or if the buffer has another length than it implies.
    """
    layout = layout_of(str(description.get("cell")))
    sizes = form_of(description)
    (length,) = shapes(layout, sizes)["params"]
    if buffer.ndim != 1 or buffer.size != length:
        raise UsageError(
            f"{name!r} has {buffer.size} numbers, but {description['cell']} with {sizes.input_size} inputs, "
            f"{sizes.hidden_size} units, {sizes.num_layers} layers, {sizes.num_directions} directions, "
            f"bias_mode {description.get('bias_mode', 'double')} has {length}"
        )
    kind, reset_after, activation = CELLS[description["cell"]]
    clips: tuple[Clip, ...] = ()
    if description.get("clip") is not None:
        clips = (_clip(description["clip"]),)
    cell = Cell(kind, reset_after, activation=activation, clips=clips)
    return assemble(name, cell, unpack(layout, sizes, {"params": buffer}), sizes.num_directions)


def _clip(bounds: object) -> Clip:
    if isinstance(bounds, (list, tuple)) and len(bounds) == 2 and all(isinstance(bound, (int, float, type(None))) for bound in bounds):
        low, high = (infinite if bound is None else float(bound) for bound, infinite in zip(bounds, (-math.inf, math.inf), strict=True))
        if low <= high:
            return Clip("state", low, high)
    raise UsageError(f"clip is {bounds!r}, expected a lower and an upper bound, null for none")
