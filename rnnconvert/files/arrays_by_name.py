"""A framework's arrays by name, or a flat vector."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np

from rnnconvert.containers.stored import Stored
from rnnconvert.core.arguments import unknown
from rnnconvert.core.arrays import Array, is_float, widest
from rnnconvert.core.cells import Cell
from rnnconvert.core.errors import NotALayerError, RnnConvertError, UsageError
from rnnconvert.core.weights import Recurrent
from rnnconvert.files import flat as files_flat
from rnnconvert.files.adapter import adapter, adapters
from rnnconvert.files.arrange import fitted, fitted_in, proposed
from rnnconvert.files.catalogue import OPTIONS
from rnnconvert.files.checkpoint import Checkpoint
from rnnconvert.files.conservation import Facts
from rnnconvert.files.convert import element_type
from rnnconvert.files.finder import ArrayFiles
from rnnconvert.files.finder_words import unlike
from rnnconvert.files.found_layer import FoundLayer
from rnnconvert.files.load import without_clips
from rnnconvert.files.options import Options
from rnnconvert.files.questions import warn
from rnnconvert.language import registry
from rnnconvert.language.fitting import fits, misfit
from rnnconvert.language.packing import pack as _pack
from rnnconvert.rewrites.fit_to_layout import Fitted

if TYPE_CHECKING:
    from rnnconvert.files.option_types import NamedArrays


@overload
def pack(layer: Recurrent, format: Literal["cudnn"], dtype: str | None = ..., **options: object) -> Array: ...
@overload
def pack(layer: Recurrent, format: NamedArrays, dtype: str | None = ..., **options: object) -> dict[str, Array]: ...
@overload
def pack(layer: Recurrent, format: str, dtype: str | None = ..., **options: object) -> Array | dict[str, Array]: ...
def pack(layer: Recurrent, format: str, dtype: str | None = None, **options: object) -> Array | dict[str, Array]:
    """Return the arrays of a framework, by name; for cuDNN, which has only one, that flat buffer.

    dtype    element type, the layer's own if None
    options  rnnconvert.files.options.OPTIONS, such as `module="cell"`

    Raises RefusedError if the framework's cell cannot hold the layer, UsageError for a stack of layers where
    it holds one at a time (rnnconvert.split_stack).

        >>> import rnnconvert as rc
        >>> summary = rc.load("examples/encoder.keras")["summary"]
        >>> {name: array.shape for name, array in rc.pack(summary, "mlx").items()}
        {'Wx': (20, 16), 'Wh': (20, 5), 'bias': (20,)}
    """
    chosen = Options(options)
    arrays = packed(represented(layer, format, chosen), dtype)
    chosen.ledger.check_used(f"arrays of {format}")
    return next(iter(arrays.values())) if _vectors(format) else arrays


def packed(part: Fitted, dtype: str | None = None) -> dict[str, Array]:
    """Return the arrays of a layer in the form that a framework can hold, by name.

    Raises UsageError for a stack of layers where it holds one at a time.
    """
    if part.stack.num_layers > 1 and not part.layout.holds.layers:
        raise UsageError(f"{part.layout.class_name} holds one layer. Take them one by one with rnnconvert.split_stack")
    wanted = element_type(dtype)
    try:
        arrays = _pack(part.layout, part.stack, wanted)
    except ValueError as error:
        raise UsageError(str(error)) from None
    return {name: np.asarray(array) for name, array in arrays.items()}


def represented(layer: Recurrent, format: str, options: Options) -> Fitted:
    """Return a layer in the form that a format can hold; `format` may name one layout of it ("nnx.optimized_lstm")."""
    layout = registry.layouts().get(format)
    with proposed(lambda writer: fitted(layer, writer, Options())):
        return fitted_in(layer, [layout], options) if layout else fitted(layer, adapter(format), options)


def unpack(arrays: Array | Mapping[str, Array], format: str, cell: Cell | str | None = None, name: str = "", **options: Any) -> Recurrent:
    """Return a layer from a framework's arrays, by name; or from a flat vector and its sizes.

    cell     what the arrays belong to, where their shapes do not show it: a Cell, or for a vector the format's word for one
             (lstm, gru, rnn_tanh, rnn_relu)
    options  what the arrays do not show, as for `load`: rnnconvert.files.options.OPTIONS, such as `nonlinearity="relu"`. For a
             vector its sizes: input_size, hidden_size, and num_layers, bidirectional, projection_size, bias_mode or input_mode
             where they are not 1, False, 0, "double" and "linear"

    Warns with AssumptionWarning of every fact that the arrays, the cell and the options leave open. Raises UsageError if the arrays do not
    fit together or have several element types, or fit several layouts and neither a cell nor the option `layout` settles which.

        >>> import numpy as np, rnnconvert as rc
        >>> arrays = {"Wx": np.ones((20, 3)), "Wh": np.ones((20, 5)), "bias": np.zeros(20)}
        >>> rc.unpack(arrays, "mlx", name="tagger")
        <Recurrent 'tagger': LSTM, 1 layer, forward, 3 -> 5, one bias, float64>
    """
    if isinstance(arrays, Mapping) and len(arrays) == 1 and _vectors(format):
        arrays = next(iter(arrays.values()))
    if not isinstance(arrays, Mapping):
        return _of_buffer(arrays, format, cell, name, options)
    numbers = {str(local): _numbers(str(local), array) for local, array in arrays.items()}
    types = {array.dtype.newbyteorder("="): local for local, array in reversed(numbers.items())}
    if len(types) > 1:
        listed = ", ".join(f"{local!r} is {dtype}" for dtype, local in reversed(types.items()))
        raise UsageError(f"a layer has one type of numbers, but {listed}. Convert them to one: array.astype({str(widest(types))!r})")
    chosen = Options(options if cell is None or isinstance(cell, Cell) else {**options, "cell": cell})
    group = _fitting(numbers, format, cell if isinstance(cell, Cell) else None, name, chosen)
    finder = adapter(format)
    reader = finder if isinstance(finder, ArrayFiles) else ArrayFiles(format)
    try:
        stack = without_clips(reader.layer(group, Stored(numbers), chosen), chosen)
    except RnnConvertError:
        raise
    except ValueError as error:
        raise UsageError(str(error)) from None
    chosen.ledger.check_used("these arrays")
    otherwise = "" if isinstance(cell, Cell) else ", or settle all of it with cell=rnnconvert.Cell(...)"
    warn(chosen.questions, otherwise)
    return stack


def _of_buffer(array: Any, format: str, cell: Cell | str | None, name: str, sizes: Mapping[str, Any]) -> Recurrent:
    """Return the layer in cuDNN's buffer."""
    stack_of = getattr(adapter(format), "stack_of", None)
    if stack_of is None or not isinstance(cell, str):
        raise UsageError(
            f"one array by itself is a flat buffer of {' or '.join(filter(_vectors, adapters()))}. Give its format, its cell and "
            "its sizes, as in unpack(buffer, FORMAT, 'lstm', input_size=..., ...)"
        )
    strange = next((size for size in sizes if size not in OPTIONS), None)
    if strange is not None:
        raise unknown("option", strange, OPTIONS)
    facts = Facts(name, "the sizes", {**sizes, "cell": cell})
    buffer = _numbers("the buffer", array)
    if buffer.ndim != 1:
        raise UsageError(f"a flat buffer has one axis, but this array has the shape {buffer.shape}. Give array.ravel()")
    stack: Recurrent = stack_of(name, facts, buffer)
    if facts.left():
        raise UsageError(f"a flat buffer of {registry.title(format)} has no size {', '.join(facts.left())}")
    return stack


def _numbers(name: str, array: Any) -> Array:
    """Return an array of floating-point numbers. Raises UsageError for anything else."""
    try:
        numbers = np.asarray(array)
    except Exception as error:  # a tensor on another device, or one that has a gradient
        raise UsageError(f"{name!r} is a {type(array).__name__}, of which numpy makes no array: {error}") from None
    if not is_float(numbers):
        raise UsageError(
            f"{name!r} is of type {numbers.dtype}, not of floating-point numbers. "
            "If these are weights, convert them: array.astype('float32')"
        )
    return numbers


def _vectors(format: str) -> bool:
    """Return whether a layer is one array in a format, and only options give its sizes."""
    return hasattr(adapters().get(format), "stack_of")


def _fitting(arrays: Mapping[str, Array], format: str, cell: Cell | None, name: str, options: Options) -> FoundLayer:
    """Return the layout that arrays fit, and its sizes. Raises UsageError if they fit no layout, or more than one."""
    shapes = {local: tuple(array.shape) for local, array in arrays.items()}
    names = {local: local for local in arrays}
    listed = registry.layouts_of(adapter(format).NAME)
    if not listed:
        raise unknown("format", format, registry.frameworks(), registry.called())
    flat = [layout for layout in listed if layout.flat and shapes.keys() == {layout.tensors[0].name}]
    if flat:
        (vector,) = arrays.values()
        try:
            layout, sizes = files_flat.sizes(Path("the vector"), flat, name, vector.size, {}, options)
        except NotALayerError as error:
            raise UsageError(str(error)) from None
        return FoundLayer(name, layout, sizes, names, cell)
    if options.peek("cell", name) is not None:
        raise UsageError("only a flat vector is described by a word. Give a Cell, as in cell=rnnconvert.Cell('lstm')")
    wanted = options.get("layout", name)
    tried = [candidate for candidate in listed if cell is None or (candidate.kind, candidate.reset_after) == (cell.kind, cell.reset_after)]
    asked = [candidate for candidate in tried if wanted in (None, candidate.name, candidate.name.partition(".")[2])]
    if tried and not asked:
        choices = " or ".join(candidate.name for candidate in tried)
        raise UsageError(f"{format} has no layout {wanted!r}{'' if cell is None else ' of this cell'}. Choose {choices}")
    tried = asked
    bidirectional = options.get("bidirectional", name)
    fitting = [
        FoundLayer(name, candidate, sizes, names, cell)
        for candidate in tried
        for sizes in fits(candidate, shapes)
        if len(shapes) > 1 and bidirectional in (None, "true" if sizes.num_directions == 2 else "false")
    ]
    if not fitting:
        reasons = misfit(tried, shapes) if tried else "it does not have this cell"
        raise UsageError(f"these arrays are not those of {format}: {reasons}")
    fitting = unlike(fitting)
    layouts = list(dict.fromkeys(group.layout.name for group in fitting))
    if len(layouts) > 1:
        raise UsageError(
            f"these arrays may belong to {', '.join(layouts)}. Choose with layout=... or, where their cells differ, with "
            "cell=rnnconvert.Cell(...)"
        )
    if len(fitting) > 1:
        raise UsageError("these arrays may be layers of one direction, or one of two. Choose with bidirectional=True or False")
    return fitting[0]


def in_memory(layer: Recurrent) -> Checkpoint:
    """Return a checkpoint of one layer that was not read from a file."""
    return Checkpoint("(in memory)", "canonical", {layer.name: layer})
