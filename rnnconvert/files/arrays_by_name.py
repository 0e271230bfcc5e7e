"""A framework's arrays by name, or cuDNN's flat buffer."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any, Literal, overload

import numpy as np

from rnnconvert.core.arrays import FLOATS, Array
from rnnconvert.core.cells import Cell
from rnnconvert.core.errors import AssumptionWarning, UsageError
from rnnconvert.core.weights import Recurrent
from rnnconvert.files.adapter import adapter, adapters
from rnnconvert.files.checkpoint import Checkpoint
from rnnconvert.files.conservation import Facts
from rnnconvert.files.convert import fitted
from rnnconvert.files.options import Options
from rnnconvert.language import registry
from rnnconvert.language.fitting import fit, misfit
from rnnconvert.language.layout import Layout, Sizes
from rnnconvert.language.packing import assemble
from rnnconvert.language.packing import pack as _pack
from rnnconvert.language.packing import unpack as _unpack
from rnnconvert.rewrites.fit_to_layout import Fitted


@overload
def pack(layer: Recurrent, format: Literal["cudnn"], dtype: str | None = ..., **options: object) -> Array: ...
@overload
def pack(layer: Recurrent, format: str, dtype: str | None = ..., **options: object) -> Array | dict[str, Array]: ...
def pack(layer: Recurrent, format: str, dtype: str | None = None, **options: object) -> Array | dict[str, Array]:
    """Return the arrays of a framework, by name; for cuDNN, which has only one, that flat buffer.

    dtype    element type, the layer's own if None
    options  rnnconvert.files.options.OPTIONS, such as `module="cell"`

    Raises RefusedError if the framework's cell cannot hold the layer, UsageError for a stack of layers where
    it holds one at a time (rnnconvert.split_stack).
    """
    chosen = Options(options)
    arrays = packed(represented(layer, format, chosen), dtype)
    chosen.check_used(f"arrays of {format}")
    return next(iter(arrays.values())) if _vectors(format) else arrays


def packed(part: Fitted, dtype: str | None = None) -> dict[str, Array]:
    """Return the arrays of a layer in the form that a framework can hold, by name.

    Raises UsageError for a stack of layers where it holds one at a time.
    """
    if part.stack.num_layers > 1 and not part.layout.holds.layers:
        raise UsageError(f"{part.layout.class_name} holds one layer. Take them one by one with rnnconvert.split_stack")
    if dtype is not None and dtype not in FLOATS:
        raise UsageError(f"Unknown element type {dtype!r}. Choose one of: {', '.join(FLOATS)}")
    try:
        arrays = _pack(part.layout, part.stack, FLOATS[dtype] if dtype else None)
    except ValueError as error:
        raise UsageError(str(error)) from None
    return {name: np.asarray(array) for name, array in arrays.items()}


def represented(layer: Recurrent, format: str, options: Options) -> Fitted:
    """Return a layer in the form that a format can hold; `format` may name one layout of it ("nnx.optimized_lstm")."""
    one = registry.layouts().get(format)
    return fitted(layer, [one] if one else adapter(format).layouts(options), options)


def unpack(
    arrays: Array | Mapping[str, Array], format: str, cell: Cell | str | None = None, name: str = "", **sizes: Any
) -> Recurrent:
    """Return a layer from a framework's arrays, by name; or from cuDNN's flat buffer and its sizes.

    cell   what the arrays belong to, where their shapes do not show it: a Cell, or for cuDNN its word for one (lstm, gru,
           rnn_tanh, rnn_relu)
    sizes  for cuDNN: input_size, hidden_size, and num_layers, bidirectional, projection_size, bias_mode or
           input_mode where they are not 1, False, 0, "double" and "linear"

    Warns with AssumptionWarning where no cell is given and the format's cell may have other functions. Raises UsageError if
    the arrays do not fit together, or fit several layouts and no cell is given.
    """
    if not isinstance(arrays, Mapping):
        stack_of = getattr(adapter(format), "stack_of", None)
        if stack_of is None or not isinstance(cell, str):
            raise UsageError(
                f"one array by itself is a flat buffer of {' or '.join(filter(_vectors, adapters()))}. Give its format, its cell and "
                "its sizes, as in unpack(buffer, FORMAT, 'lstm', input_size=..., ...)"
            )
        facts = Facts(name, "the sizes", {**sizes, "cell": cell})
        stack: Recurrent = stack_of(name, facts, np.asarray(arrays))
        if facts.left():
            raise UsageError(f"a flat buffer of {registry.title(format)} has no size {', '.join(facts.left())}")
        return stack
    if isinstance(cell, str) or sizes:
        raise UsageError("give a rnnconvert.Cell without sizes: the arrays' shapes show them")
    layout, fitted = _fitting(arrays, format, cell)
    if cell is None and (open_ := _open(layout)):
        warnings.warn(
            f"{name or layout.name}: arrays do not state {open_}. Give cell=rnnconvert.Cell(...) to settle it",
            AssumptionWarning,
            stacklevel=2,
        )
    found = _unpack(layout, fitted, arrays)
    try:
        return assemble(name, cell or layout.cell, found, fitted.num_directions)
    except ValueError as error:
        raise UsageError(str(error)) from None


def _open(layout: Layout) -> str:
    """Return the functions and constants that a layout's arrays leave open, with what is assumed, or nothing."""
    cell, holds = layout.cell, layout.holds
    roles = (
        ("activation", cell.activation, holds.activations),
        ("gate_activation", cell.gate_activation, holds.gate_activations),
    )
    open_ = [
        f"{role} ({assumed.name} is assumed)" for role, assumed, known in roles if len(known) > 1 or "any" in known
    ]
    open_ += [f"what is added to gate {gate} ({holds.constants.get(gate, 0.0):g} is assumed)" for gate in holds.chosen]
    return " or ".join(open_)


def _vectors(format: str) -> bool:
    """Return whether a layer is one array in a format, and only options give its sizes."""
    return hasattr(adapters().get(format), "stack_of")


def _fitting(arrays: Mapping[str, Array], format: str, cell: Cell | None) -> tuple[Layout, Sizes]:
    shapes = {name: tuple(array.shape) for name, array in arrays.items()}
    known = registry.frameworks().get(format)
    if known is None:
        raise UsageError(f"Unknown format {format!r}. Choose one of: {', '.join(registry.frameworks())}")
    tried = [x for x in known if cell is None or (x.kind, x.reset_after) == (cell.kind, cell.reset_after)]
    fitting = [(layout, sizes) for layout in tried if (sizes := fit(layout, shapes)) is not None]
    if not fitting:
        reasons = misfit(tried, shapes) if tried else "it does not have this cell"
        raise UsageError(f"these arrays are not those of {format}: {reasons}")
    if len({(layout.kind, layout.reset_after) for layout, _ in fitting}) > 1:
        names = ", ".join(layout.name for layout, _ in fitting)
        raise UsageError(f"these arrays may belong to {names}. Choose with cell=rnnconvert.Cell(...)")
    return fitting[0]


def in_memory(layer: Recurrent) -> Checkpoint:
    """Return a checkpoint of one layer that was not read from a file."""
    return Checkpoint("(in memory)", "canonical", {layer.name: layer})
