"""Live objects: arrays by name, torch modules, Keras layers, ONNX models, to the canonical form and back.

A framework is imported only where its own object is handed in or asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np

from rnnconvert import registry
from rnnconvert.adapters import Job, adapter
from rnnconvert.arrays import BFLOAT16, FLOATS, Array, Pieced
from rnnconvert.cells import RELU, TANH, Cell
from rnnconvert.checkpoint import Checkpoint
from rnnconvert.conversion import accepted
from rnnconvert.errors import MissingPackageError, UsageError
from rnnconvert.fitting import fit, misfit
from rnnconvert.layout import Form, Layout
from rnnconvert.options import Options
from rnnconvert.packing import assemble
from rnnconvert.packing import pack as _pack
from rnnconvert.packing import unpack as _unpack
from rnnconvert.represent import Represented, represent
from rnnconvert.weights import Recurrent

if TYPE_CHECKING:
    import onnx


@overload
def pack(layer: Recurrent, format: Literal["cudnn"], dtype: str | None = ..., **options: object) -> Array: ...
@overload
def pack(layer: Recurrent, format: str, dtype: str | None = ..., **options: object) -> Array | dict[str, Array]: ...
def pack(layer: Recurrent, format: str, dtype: str | None = None, **options: object) -> Array | dict[str, Array]:
    """The arrays of a framework, by name; for cuDNN, which has only one, that flat buffer.

    dtype    element type, the layer's own if None
    options  rnnconvert.options.OPTIONS, such as `module="cell"`

    Raises RefusedError if the framework's cell cannot hold the layer, UsageError for a stack of layers where
    it holds one at a time (rnnconvert.split_stack).
    """
    part = _represented(layer, format, Options(options))
    if part.stack.num_layers > 1 and not part.layout.holds.layers:
        raise UsageError(f"{part.layout.class_name} holds one layer; take them one by one with rnnconvert.split_stack")
    try:
        packed = _pack(part.layout, part.stack, FLOATS[dtype] if dtype else None)
    except ValueError as error:
        raise UsageError(str(error)) from None
    arrays = {name: np.asarray(array) for name, array in packed.items()}
    return arrays["params"] if format == "cudnn" else arrays


def _represented(layer: Recurrent, format: str, options: Options) -> Represented:
    return represent(layer, adapter(format).layouts(options), accepted(options, layer.name))


def unpack(
    arrays: Array | Mapping[str, Array], format: str, cell: Cell | str | None = None, name: str = "", **sizes: Any
) -> Recurrent:
    """A layer from a framework's arrays, by name; or from cuDNN's flat buffer and its sizes.

    cell   what the arrays are of, where their shapes do not say it: a Cell, or for cuDNN its word for one (lstm, gru,
           rnn_tanh, rnn_relu)
    sizes  for cuDNN: input_size, hidden_size, and num_layers, bidirectional, projection_size, bias_mode or
           input_mode where they are not 1, False, 0, "double" and "linear"

    Raises UsageError if the arrays do not go together, or fit several layouts and no cell is given.
    """
    if not isinstance(arrays, Mapping):
        if format != "cudnn" or not isinstance(cell, str):
            raise UsageError("one array by itself is cuDNN's: unpack(buffer, 'cudnn', 'lstm', input_size=..., ...)")
        from rnnconvert.adapters import cudnn

        return cudnn.stack_of(name, {**sizes, "cell": cell}, np.asarray(arrays))
    if isinstance(cell, str) or sizes:
        raise UsageError("give a rnnconvert.Cell, and no sizes: the arrays' shapes have them")
    layout, form = _fitting(arrays, format, cell)
    kind: Any = layout.kind
    found = _unpack(layout, form, arrays)
    try:
        return assemble(name, cell or Cell(kind, layout.reset_after), found, form.num_directions)
    except ValueError as error:
        raise UsageError(str(error)) from None


def _fitting(arrays: Mapping[str, Array], format: str, cell: Cell | None) -> tuple[Layout, Form]:
    shapes = {name: tuple(array.shape) for name, array in arrays.items()}
    known = registry.frameworks().get(format)
    if known is None:
        raise UsageError(f"no format {format!r}; there are {', '.join(registry.frameworks())}")
    tried = [x for x in known if cell is None or (x.kind, x.reset_after) == (cell.kind, cell.reset_after)]
    fitting = [(layout, form) for layout in tried if (form := fit(layout, shapes)) is not None]
    if not fitting:
        reasons = misfit(tried, shapes) if tried else "it has no such cell"
        raise UsageError(f"these arrays are not those of {format}: {reasons}")
    if len({(layout.kind, layout.reset_after) for layout, _ in fitting}) > 1:
        names = ", ".join(layout.name for layout, _ in fitting)
        raise UsageError(f"these arrays may be of {names}: say which with cell=rnnconvert.Cell(...)")
    return fitting[0]


def _numpy(tensor: Any) -> Array:
    """A torch tensor's numbers, on the CPU; numpy has no bfloat16 of its own."""
    plain = tensor.detach().cpu()
    if str(plain.dtype) == "torch.bfloat16":
        import torch

        return np.asarray(plain.view(torch.int16).numpy().view(BFLOAT16))
    return np.asarray(plain.numpy())


def from_torch(module: Any, name: str = "") -> Recurrent:
    """A torch.nn.RNN, GRU, LSTM or one of their cells; the arrays share the module's memory on the CPU.

    Raises UsageError for another module: hand in its recurrent part, as in from_torch(model.encoder).
    """
    from torch import nn

    stacks = {nn.LSTM: "lstm", nn.GRU: "gru", nn.RNN: "rnn"}
    cells = {nn.LSTMCell: "lstm_cell", nn.GRUCell: "gru_cell", nn.RNNCell: "rnn_cell"}
    variant = next((word for kind, word in {**stacks, **cells}.items() if isinstance(module, kind)), None)
    if variant is None:
        raise UsageError(
            f"{type(module).__name__} is no torch.nn.RNN, GRU, LSTM or cell; hand in the recurrent part of your model"
        )
    layout = registry.layouts()[f"pytorch.{variant}"]
    arrays = {key: _numpy(tensor) for key, tensor in module.state_dict().items()}
    form = fit(layout, {key: tuple(array.shape) for key, array in arrays.items()})
    if form is None:
        raise UsageError(f"the parameters of this {type(module).__name__} are not its class's own")
    kind: Any = layout.kind
    relu = getattr(module, "nonlinearity", "tanh") == "relu"
    cell = Cell(kind, layout.reset_after, activation=RELU if relu else TANH)
    return assemble(name, cell, _unpack(layout, form, arrays), form.num_directions)


def to_torch(layer: Recurrent, dtype: str | None = None, **options: object) -> Any:
    """A torch.nn.RNN, GRU or LSTM with the layer's weights, or one of their cells with module="cell".

    Raises RefusedError if torch.nn has no such cell, MissingPackageError without torch.
    """
    try:
        import torch
    except ImportError:
        raise MissingPackageError("torch", "make a torch.nn module") from None
    part = _represented(layer, "pytorch", Options(options))
    stack = part.stack
    keywords: dict[str, Any] = {"bias": stack.first.biases != "none"}
    if part.layout.holds.layers:
        keywords |= {"num_layers": stack.num_layers, "bidirectional": stack.num_directions == 2}
    if stack.first.projection_size:
        keywords["proj_size"] = stack.first.projection_size
    if stack.cell.kind == "rnn":
        keywords["nonlinearity"] = stack.cell.activation.name
    arrays = pack(stack, "pytorch", dtype, **options)
    kind = getattr(torch, dtype or str(stack.dtype.newbyteorder("=")))
    made = getattr(torch.nn, part.layout.class_name.rpartition(".")[2])(
        stack.input_size, stack.hidden_size, dtype=kind, **keywords
    )
    assert isinstance(arrays, dict)
    with torch.no_grad():
        for key, parameter in made.state_dict().items():
            plain = arrays[key].astype(np.float32) if arrays[key].dtype == BFLOAT16 else arrays[key]
            parameter.copy_(torch.from_numpy(np.array(plain)))
    return made


def from_keras(layer: Any) -> Recurrent:
    """A built keras.layers.LSTM, GRU, SimpleRNN, RNN of their cells, or Bidirectional of these, on any backend.

    Raises UsageError for a layer that is not built yet, or that is none of these.
    """
    import keras

    from rnnconvert.adapters.keras import recurrent_of
    from rnnconvert.containers.stored import Stored

    if not layer.built or not layer.weights:
        raise UsageError(
            f"layer {layer.name!r} is not built yet: call it once, or layer.build((None, None, input_size))"
        )
    arrays = {weight.path: np.asarray(keras.ops.convert_to_numpy(weight)) for weight in layer.weights}
    config = {
        "class_name": "Sequential",
        "config": {"layers": [{"config": layer.get_config(), **_class_of(layer)}]},
    }
    stored = Stored(arrays, {"config": config, "metadata": {"keras_version": keras.__version__}})
    found = recurrent_of(stored)
    if len(found) != 1:
        raise UsageError(
            f"{type(layer).__name__} is no recurrent layer of Keras's own; hand in one of your model's layers"
        )
    return next(iter(found.values())).but(name=layer.name)


def _class_of(layer: Any) -> dict[str, str]:
    """A layer's class as a configuration has it."""
    name = type(layer).__name__
    return {"module": type(layer).__module__, "class_name": name, "registered_name": name}


def to_keras(layer: Recurrent, dtype: str | None = None, **options: object) -> Any:
    """A keras.Model that computes the layer: input (batch, time, in), output (batch, time, out).

    Its recurrent layers are Keras's own, to be taken out of it or called as they are.

    Raises RefusedError if Keras has no such cell, MissingPackageError without Keras.
    """
    try:
        import keras
    except ImportError:
        raise MissingPackageError("keras", "make a Keras model") from None
    import tempfile

    from rnnconvert.conversion import save

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "layer.keras"
        save(_checkpoint(layer), path, dtype=dtype, settings=[f"{key}={value}" for key, value in options.items()])
        return keras.models.load_model(path, compile=False)


def _checkpoint(layer: Recurrent) -> Checkpoint:
    return Checkpoint("(in memory)", "canonical", {layer.name: layer})


def from_onnx(model: onnx.ModelProto) -> dict[str, Recurrent]:
    """Every recurrent layer of an ONNX model, by name."""
    from rnnconvert.adapters.onnx import read_model
    from rnnconvert.containers.onnx_file import OnnxFile

    file = OnnxFile(Path("(in memory)"), model, np.zeros(model.ByteSize(), np.uint8))
    return dict(read_model(file, file.path, Options()).layers)


def to_onnx(layer: Recurrent, dtype: str | None = None, **options: object) -> onnx.ModelProto:
    """An ONNX model of the layer, with its weights in it; rnnconvert.save writes larger ones without holding them.

    Raises RefusedError if ONNX has no such cell.
    """
    from onnx import numpy_helper

    from rnnconvert.adapters.onnx_graph import build

    chosen = Options(options)
    part = _represented(layer, "onnx", chosen)
    job = Job([part], FLOATS[dtype] if dtype else None, chosen, _checkpoint(layer), {}, lambda piece: None)
    model, arrays, _ = build(job)
    for tensor in model.graph.initializer:
        tensor.CopyFrom(numpy_helper.from_array(_whole(arrays[tensor.name]), tensor.name))
    return model


def _whole(array: Array | Pieced) -> Array:
    return np.asarray(array, order="C")  # np.ascontiguousarray would give a number without axes one
