"""A TorchScript archive or an exported program run whole: each call of torch's recurrent functions is recorded.

torch.nn.LSTM, in any file, ends in aten::lstm, and an LSTMCell in aten::lstm_cell. While the model runs, these operators have kernels of
rnnconvert's own, which compute by torch's own decomposition and record; the weights that they receive tell which layer it is. Sources:
aten/src/ATen/native/native_functions.yaml and RNN.cpp; torch/library.py; torch/export (2.13).
"""

from __future__ import annotations

import contextlib
import itertools
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rnnconvert.running.sequences import WeightsAloneError

from .run_program import is_program, loaded
from .run_script import refuse_outside_archive

Array = np.ndarray

_SEQUENCES = ("lstm", "gru", "rnn_tanh", "rnn_relu")
_CELLS = ("lstm_cell", "gru_cell", "rnn_tanh_cell", "rnn_relu_cell")
_WRAPPERS = ("module", "_orig_mod")
"""Prefixes that DataParallel and torch.compile put before the names of a module's own parameters."""

_NUMBERS = ("IntType", "FloatType", "BoolType")
"""The types of arguments that are plain numbers."""
_TRIES = 256
"""How many kinds of inputs are tried on an archive, which does not state the shapes that it takes."""


def run_whole(request: Mapping[str, Any], array: Callable[[Any], Array]) -> None:
    """Run a model whole; see rnnconvert.running. Raises NotImplementedError for a file without a model.

    array  makes numpy's arrays of tensors
    """
    import torch

    file, seen = request["file"], request["witness"]
    with torch.no_grad():
        if _is_program(file):
            model, calls = _program(file, seen)
        else:
            model = _archive(file)
            with _kernels():  # torch's own end the process where states and sequences do not fit
                calls = _handed(model, seen) if seen.handed is not None else _accepted(model, seen)
        named = _tensors_of(model)
        begun = {name: value.clone() for name, value in named.items()}

        def shake(move: Callable[[Array], Array]) -> None:
            for name, value in begun.items():
                moves = value.dtype in (torch.float32, torch.float64)
                named[name].copy_(torch.from_numpy(move(value.numpy())) if moves else value)

        def reset() -> None:
            for name, value in model.named_buffers():
                value.copy_(begun[name])

        with _kernels(_Recorder(seen, named, array)):
            seen.run(calls, lambda arrays: seen.named(_called(model, arrays), array), reset, shake if named else None)


def _tensors_of(model: Any) -> dict[str, Any]:
    return {name: value for name, value in (*model.named_parameters(), *model.named_buffers())}


def _called(model: Any, arrays: Sequence[Array]) -> Any:
    """Call a model on arrays, in the element type of its weights."""
    import torch

    dtype = _dtype(model)
    tensors = [torch.from_numpy(np.asarray(values, order="C")) for values in arrays]
    handed = iter([tensor.to(dtype) if tensor.is_floating_point() else tensor for tensor in tensors])
    keys = _read_keys(model)
    return model(*[_argument(argument.name, argument.type, keys, handed) for argument in _needed(model)], *handed)


def _dtype(model: Any) -> Any:
    """Return the element type of a model's floating-point weights, float32 where it has none."""
    import torch

    every = (*_tensors_of(model).values(), *(_constants(model) if hasattr(model, "inlined_graph") else ()))
    return next((value.dtype for value in every if value.is_floating_point()), torch.float32)


def _is_program(file: str) -> bool:
    if not zipfile.is_zipfile(file):
        return False
    with zipfile.ZipFile(file) as archive:
        return is_program(archive.namelist())


def _archive(file: str) -> Any:
    """Return the module of a TorchScript archive, which torch loads without executing a pickle of Python's.

    Raises NotImplementedError for weights alone, and for code that reaches for files, which may run while the archive is loaded.
    """
    import torch

    if zipfile.is_zipfile(file):
        with zipfile.ZipFile(file) as archive:
            names = archive.namelist()
        if any("/code/" in f"/{name}" for name in names) and any(name.endswith("constants.pkl") for name in names):
            refuse_outside_archive(file)
            model = torch.jit.load(file, map_location="cpu").eval()
            if not hasattr(model, "forward") and hasattr(model, "forward__0"):  # a layer itself, whose calls torch distinguishes by type
                model.define("def forward(self, input: Tensor):\n    return self.forward__0(input)\n")
            return model
    raise WeightsAloneError(f"{Path(file).name} holds weights alone, and no model around them")


def _program(file: str, seen: Any) -> tuple[Any, list[list[Array]]]:
    """Return the module of an exported program, which takes its tensors in their order, and the inputs of each call."""
    import torch

    program = loaded(file)
    values = {node.name: node.meta.get("val") for node in program.graph_module.graph.nodes if node.op == "placeholder"}
    limits = getattr(program, "range_constraints", {})
    specs = [spec for spec in program.graph_signature.input_specs if spec.kind.name == "USER_INPUT"]
    tensors = [spec for spec in specs if spec.arg.__class__.__name__ != "ConstantArgument"]
    inputs = []
    for spec in tensors:
        value = values[spec.arg.name]
        if not isinstance(value, torch.Tensor):
            raise NotImplementedError(f"its input {spec.arg.name} is a {type(value).__name__}")
        dims = [_length(dim, limits, seen) if seen.handed is None else _open(dim) for dim in value.shape]
        inputs.append(seen.input(spec.arg.name, dims, str(value.dtype).rpartition(".")[2]))
    module = program.module()

    class OfTensors(torch.nn.Module):  # type: ignore[misc]  # torch states no types here
        """The module, called with its tensors alone."""

        def __init__(self) -> None:
            super().__init__()
            self.module = module

        def forward(self, *handed: Any) -> Any:
            left = list(handed)
            flat = [left.pop(0) if spec in tensors else spec.arg.value for spec in specs]
            flat = [value.to(values[spec.arg.name].dtype) if spec in tensors else value for spec, value in zip(specs, flat)]
            positional, named = torch.utils._pytree.tree_unflatten(flat, program.call_spec.in_spec)
            return self.module(*positional, **named)

    return OfTensors(), seen.calls(inputs)


def _open(dim: Any) -> int | str:
    """Return the length of an axis of an exported program, or the name of one that is open."""
    return dim if isinstance(dim, int) else str(dim.node.expr)


def _handed(model: Any, seen: Any) -> list[list[Array]]:
    """Return inputs of an archive, which states how many it takes, and not their shapes."""
    calls: list[list[Array]] = seen.calls([seen.input(name, None, "") for name, _ in _tensors_needed(model)])
    return calls


def _needed(model: Any) -> list[Any]:
    """Return the arguments that an archive's forward cannot be called without; none of a program's own module."""
    if not hasattr(model, "inlined_graph"):
        return []
    return [argument for argument in model.forward.schema.arguments[1:] if not argument.has_default_value()]


def _tensors_needed(model: Any) -> list[tuple[str, Any]]:
    """Return a name and a type for each tensor that an archive's forward cannot be called without."""
    keys = _read_keys(model)
    return [leaf for argument in _needed(model) for leaf in _leaves(argument.name, argument.type, keys)]


def _read_keys(model: Any) -> dict[str, list[Any]]:
    """Return the keys of the items that an archive's code reads of each list and dictionary that it is handed, by its name, in order.

    Raises NotImplementedError for a list that the code reads otherwise.
    """
    if not hasattr(model, "inlined_graph"):
        return {}
    keys: dict[str, list[Any]] = {}
    for argument, value in zip(model.forward.schema.arguments[1:], list(model.inlined_graph.inputs())[1:]):
        if argument.type.kind() not in ("ListType", "DictType"):
            continue
        read: set[Any] = set()
        for user in (use.user for use in value.uses()):
            key = user.inputsAt(1).toIValue() if user.kind() == "aten::__getitem__" else None
            if user.kind() == "prim::ListUnpack":
                read |= set(range(user.outputsSize()))
            elif isinstance(key, str) or (isinstance(key, int) and key >= 0):
                read |= {key} if isinstance(key, str) else set(range(key + 1))
            else:
                raise NotImplementedError(f"it does not state which items {argument.name} has")
        keys[argument.name] = sorted(read)
    return keys


def _leaves(name: str, kind: Any, keys: Mapping[str, Sequence[Any]]) -> Iterator[tuple[str, Any]]:
    """Yield a name and a type for each tensor that an argument is: for a tuple or list, of its items, with their numbers behind."""
    if kind.kind() in ("ListType", "DictType") and name in keys:
        inner = kind.getElementType() if kind.kind() == "ListType" else kind.getValueType()
        yield from ((f"{name}_{key}", inner) for key in keys[name])
    elif kind.kind() != "TupleType":
        yield name, kind
    else:
        for number, inner in enumerate(kind.elements()):
            yield from _leaves(f"{name}_{number}", inner, keys)


def _argument(name: str, kind: Any, keys: Mapping[str, Sequence[Any]], tensors: Iterator[Any]) -> Any:
    """Return an argument of a type, of as many tensors as it needs."""
    if kind.kind() in ("ListType", "DictType") and name in keys:
        items = {key: next(tensors) for key in keys[name]}
        return items if kind.kind() == "DictType" else [*items.values()]
    if kind.kind() != "TupleType":
        return next(tensors).item() if kind.kind() in _NUMBERS else next(tensors)
    return tuple(_argument(f"{name}_{number}", inner, keys, tensors) for number, inner in enumerate(kind.elements()))


def _length(dim: Any, limits: Mapping[Any, Any], seen: Any) -> int:
    """Return the length of an axis of an exported program, within the limits that it states."""
    if isinstance(dim, int):
        return dim
    symbol = dim.node.expr
    length = int(seen.length(str(symbol)))
    stated = limits.get(symbol)
    if stated is not None:
        most = int(stated.upper) if getattr(stated.upper, "is_Integer", False) else length
        length = max(int(stated.lower), min(length, most))
    return length


def _accepted(model: Any, seen: Any) -> list[list[Array]]:
    """Return inputs that an archive runs on, twice: it states how many it takes, and not their shapes.

    Raises NotImplementedError if it runs on none of those that are tried.
    """
    needed = [str(kind) for _, kind in _tensors_needed(model)]
    tensors = [kind == "Tensor" for kind in needed]
    if not needed or not all(tensors):
        strange = next((kind for kind, is_tensor in zip(needed, tensors) if not is_tensor), "nothing")
        raise NotImplementedError(f"it takes {strange}, and does not state which values")
    batch, time = seen.length("batch"), seen.length("time")
    matrices = [value for value in (*_tensors_of(model).values(), *_constants(model)) if value.ndim >= 2]
    # An archive's own order: what is used first stands first.
    widths = dict.fromkeys([*(int(value.shape[1]) for value in matrices if value.is_floating_point()), *_packed_widths(model)])
    rows = min((int(value.shape[0]) for value in matrices), default=3)

    def floats(*dims: int) -> Callable[[], Array]:
        return lambda: seen.draw(dims)

    first = [floats(batch, time, width) for width in widths]
    first.append(lambda: seen.draw((batch, time), "int64", rows))
    first += [floats(time, width) for width in widths]
    first += [floats(batch, width, time) for width in widths]
    first += [*(floats(1, time, width) for width in widths), lambda: seen.draw((1, time), "int64", rows)]
    others: list[Callable[[], Array]] = [
        lambda: np.full((batch,), time),
        *(floats(layers, sequences, width) for layers, sequences in itertools.product(range(1, 5), (batch, time)) for width in widths),
        *(floats(batch, width) for width in widths),
        *first,
    ]
    alike = ((maker, *[other] * (len(needed) - 1)) for maker, other in itertools.product(first, others))
    error = ""
    for choice in itertools.islice(itertools.chain(alike, itertools.product(first, *[others] * (len(needed) - 1))), _TRIES):
        inputs = [maker() for maker in choice]
        try:
            _called(model, [array.copy() for array in inputs])
        except Exception as problem:  # a shape that it does not take
            error = " ".join(str(problem).split())[-200:]
            continue
        return [inputs, inputs]
    raise NotImplementedError(f"it runs on no inputs that were tried, and does not state which it takes: {error}")


def _packed_widths(model: Any) -> Iterator[int]:
    """Yield how many values the layers of an archive read whose weights torch packed for integers."""
    import torch

    for module in model.modules():
        packed, size = getattr(module, "_packed_params", None), getattr(module, "input_size", None)
        if isinstance(packed, torch.ScriptObject):
            yield int(torch.ops.quantized.linear_unpack(packed)[0].shape[1])
        elif isinstance(size, int):
            yield size


def _constants(model: Any) -> Iterator[Any]:
    """Yield the tensors that are written into the code of an archive, as freezing leaves its weights."""
    graph = model.inlined_graph  # its nodes end with it
    for node in graph.findAllNodes("prim::Constant", True):
        if node.hasAttribute("value") and node.kindOf("value") == "t":
            yield node.t("value")


class _Recorder:
    """Records the calls of recurrent functions under the names of the layers whose weights they receive."""

    def __init__(self, seen: Any, named: Mapping[str, Any], array: Callable[[Any], Array]) -> None:
        self.seen, self.array = seen, array
        self._names: dict[int, list[str]] = {}
        for name, value in named.items():
            self._names.setdefault(value.data_ptr(), []).append(name)
        self._nameless: dict[tuple[int, ...], str] = {}

    def layers(self, function: str, weights: Sequence[Any]) -> list[str]:
        """Return the names of the layers that are asked for and have these weights."""
        full = self._names.get(weights[0].data_ptr(), ())
        names = [_plain(name) for name in full]
        return [name for name in dict.fromkeys(names or [self._numbered(function, weights)]) if name in self.seen.layers]

    def _numbered(self, function: str, weights: Sequence[Any]) -> str:
        """Return the name of a layer whose weights have none, as freezing leaves them: its function, and a number."""
        key = tuple(weight.data_ptr() for weight in weights)
        if key not in self._nameless:
            base = function.split("_")[0] + ("_cell" if function in _CELLS else "")
            same = sum(label == base or label.removeprefix(f"{base}_").isdecimal() for label in self._nameless.values())
            self._nameless[key] = f"{base}_{same + 1}" if same else base
        return self._nameless[key]

    def record(self, function: str, packed: bool, arguments: Sequence[Any], outputs: Any) -> None:
        """Record a call by its operator's arguments."""
        weights = arguments[3 if packed else 2] if function in _SEQUENCES else arguments[2:4]
        for name in self.layers(function, weights):
            if function in _CELLS:
                self._cell(name, arguments, outputs)
            elif packed:
                self._packed(name, arguments, outputs)
            else:
                self._sequence(name, arguments, outputs)

    def _sequence(self, name: str, arguments: Sequence[Any], outputs: Any) -> None:
        batch_first = bool(arguments[8])
        x, y = (self.array(value.transpose(0, 1) if batch_first else value) for value in (arguments[0], outputs[0]))
        self.seen.record(name, x, y, states=self._states(arguments[1]), finals=self._states(outputs[1:]))

    def _packed(self, name: str, arguments: Sequence[Any], outputs: Any) -> None:
        """Record sequences that are packed: the first steps of all, then the second steps of those that have one."""
        sizes = [int(size) for size in arguments[1]]
        starts = np.cumsum([0, *sizes])
        mask = np.arange(sizes[0])[None] < np.asarray(sizes)[:, None]
        both = []
        for values in (self.array(arguments[0]), self.array(outputs[0])):
            padded = np.zeros((len(sizes), sizes[0], values.shape[1]), values.dtype)
            for step, size in enumerate(sizes):
                padded[step, :size] = values[starts[step] : starts[step] + size]
            both.append(padded)
        x, y = both
        self.seen.record(name, x, y, mask=mask, states=self._states(arguments[2]), finals=self._states(outputs[1:]))

    def _cell(self, name: str, arguments: Sequence[Any], outputs: Any) -> None:
        several = list(outputs) if isinstance(outputs, (list, tuple)) else [outputs]
        before = list(arguments[1]) if isinstance(arguments[1], (list, tuple)) else [arguments[1]]
        states, finals = ([[self.array(value)] for value in values] + [[]] * (2 - len(values)) for values in (before, several))
        y = self.array(several[0])[None]
        self.seen.record(name, self.array(arguments[0])[None], y, states=states, finals=finals)

    def _states(self, states: Any) -> list[list[Array]]:
        several = list(states) if isinstance(states, (list, tuple)) else [states]
        return [list(self.array(state)) for state in several] + [[] for _ in range(2 - len(several))]


def _plain(name: str) -> str:
    """Return a layer's name from that of one of its parameters."""
    return ".".join(part for part in name.split(".")[:-1] if part not in _WRAPPERS)


@contextlib.contextmanager
def _kernels(recorder: _Recorder | None = None) -> Iterator[None]:
    """Let torch's recurrent operators check what they are called on, and record it."""
    import torch

    library = torch.library.Library("aten", "IMPL")
    overloads = [(sequence, f"{sequence}.{kind}") for sequence in _SEQUENCES for kind in ("input", "data")]
    for function, name in [*overloads, *((cell, cell) for cell in _CELLS)]:
        base, _, overload = name.partition(".")
        operator = getattr(getattr(torch.ops.aten, base), overload or "default")
        library.impl(name, _recording(function, operator, recorder), "CPU")
    try:
        yield
    finally:
        library._destroy()


def _check_states(arguments: Sequence[Any], packed: bool) -> None:
    """Raise ValueError for states of another number of sequences than a recurrent function reads, or of another number of layers."""
    sequences = int(arguments[1][0]) if packed else int(arguments[0].shape[0 if arguments[8] else 1])
    states, layers, both = arguments[2 if packed else 1], arguments[4 + packed], arguments[7 + packed]
    for state in states if isinstance(states, (list, tuple)) else [states]:
        if state.shape[1] != sequences:
            raise ValueError(f"it reads {sequences} sequences, and its state is that of {state.shape[1]}")
        if state.shape[0] != layers * (1 + both):
            raise ValueError(f"it has {layers} layers of {1 + both} directions, and its state is that of {state.shape[0]}")


def _recording(function: str, operator: Any, recorder: _Recorder | None) -> Callable[..., Any]:
    def kernel(*positional: Any, **named: Any) -> Any:
        arguments = [*positional, *named.values()]
        packed = operator._overloadname == "data"
        if function in _SEQUENCES:
            _check_states(arguments, packed)
        outputs = operator.decompose(*positional, **named)
        if recorder is not None:
            recorder.record(function, packed, arguments, outputs)
        return outputs

    return kernel
