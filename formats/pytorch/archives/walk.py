"""Values of a PyTorch pickle, flattened: tensors by dotted names, as views; the rest as metadata."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import numpy as np

from rnnconvert.containers.numpy_values import numpy_value
from rnnconvert.containers.pickle_values import Foreign, Global
from rnnconvert.containers.stored import Stored
from rnnconvert.core.arrays import BFLOAT16, Array
from rnnconvert.core.errors import UnreadableError
from rnnconvert.core.limits import OBJECT_NESTING, OBJECTS, REPEATED
from rnnconvert.core.names import checked_name
from rnnconvert.formats.pytorch.archives.values import NEWER, STORAGES, ArchivedTensor, Storage

# A tensor that repeats its elements (stride 0) may be larger than its file. Weights never do; a
# small mask may.
_PARAMETER = "torch.nn.parameter.Parameter"
"""How PyTorch before 1.0 wrote a parameter: the class, called with its tensor. Source: torch/nn/parameter.py of 0.4.1, __reduce_ex__."""
SMALL_LIST = 64
"""The longest list of plain values that is kept as metadata."""

Records: TypeAlias = "Callable[[Storage, int], Array]"
"""The bytes of a storage, which must be at least so many; the reader of the file provides it."""


Constants: TypeAlias = "Callable[[Global], dict[str, Any]]"
"""The attributes that are written in a class's code and not in its objects, as TorchScript does."""


class _NotNumbersError(Exception):
    """A tensor that is not an array of numbers; the text gives the reason."""


def flatten(root: Any, records: Records, path: object, byte_swapped: bool = False, constants: Constants | None = None) -> Stored:
    """Return the tensors below a value by dotted names, as views of their storages; the rest goes into metadata.

    A module's names are as in its `state_dict()`. metadata has "values" (plain values by dotted name), "classes" (the class of each
    object by dotted name) and "unreadable" (why a tensor is left out).

    Raises UnreadableError if a tensor reaches outside its storage, or the whole cannot be walked.
    """
    walk = _ValuePass(records, path, byte_swapped, constants or (lambda made_by: {}))
    walk.visit(root, "", 0, True)
    walk.unpack()
    metadata = {
        "values": walk.values,
        "classes": walk.classes,
        "scripted": walk.scripted,
        "unreadable": walk.unreadable,
        "dequantized": walk.dequantized,
        "unpacked": walk.unpacked,
        "root": _root(root),
        "nests": [key for key, value in root.items() if isinstance(value, dict)] if isinstance(root, dict) else [],
    }
    return Stored(walk.arrays, metadata)


def _packed(value: Any, name: str) -> tuple[ArchivedTensor, ...] | None:
    from rnnconvert.formats.pytorch.archives import quantized as torch_quantized  # few files have any

    return torch_quantized.tensors(value, name)


def _root(root: Any) -> str:
    if isinstance(root, Foreign):
        return class_name(root.made_by)
    plain = isinstance(root, ArchivedTensor) or (
        isinstance(root, dict) and all(isinstance(value, ArchivedTensor) and isinstance(key, str) for key, value in root.items())
    )
    return "state_dict" if plain else "envelope"


class _ValuePass:
    """One pass over a value, with what it has found."""

    def __init__(self, records: Records, path: object, byte_swapped: bool, constants: Constants) -> None:
        self.arrays: dict[str, Array] = {}
        self.values: dict[str, Any] = {}
        self.classes: dict[str, str] = {}
        self.scripted: dict[str, Global] = {}
        self.unreadable: dict[str, str] = {}
        self.dequantized: list[str] = []
        self.packed: dict[str, tuple[ArchivedTensor, ...]] = {}
        self.unpacked: dict[str, list[str]] = {}
        self._records = records
        self._path = path
        self._byte_swapped = byte_swapped
        self._constants = constants
        self._above: set[int] = set()
        self._nodes = 0

    def visit(self, value: Any, name: str, depth: int, tensors: bool) -> None:
        self._nodes += 1 + len(name) // 32
        if isinstance(value, Foreign) and str(value.made_by) == _PARAMETER and value.args[:1]:
            value = value.args[0]  # with what follows it: whether it is trained, and its hooks
        checked_name(name, self._path)
        if depth > OBJECT_NESTING or self._nodes > OBJECTS:
            raise UnreadableError(self._path, "its values are nested too deeply or too often to be walked")
        if isinstance(value, ArchivedTensor):
            if tensors:
                self._add(value, name)
        elif "_packed_" in name and isinstance(value, tuple) and (packed := _packed(value, name)):
            self.packed[name] = packed
        elif is_plain(value):
            self.values[name] = str(value) if isinstance(value, Global) else value
        elif isinstance(value, list | tuple) and _is_kept(value, name) and all(map(is_plain, value)):
            self.values[name] = [str(item) if isinstance(item, Global) else item for item in value]
        elif isinstance(value, Foreign) and value.made_by.module.startswith("numpy"):
            self._add_numpy(value, name, tensors)
        elif isinstance(value, dict | list | tuple | Foreign) and id(value) not in self._above:
            self._above.add(id(value))
            for part, child, is_kept in self._children(value, name):
                self.visit(child, part, depth + 1, tensors and is_kept)
            self._above.discard(id(value))

    def _children(self, value: Any, name: str) -> Iterator[tuple[str, Any, bool]]:
        """Yield the named parts of a value, and whether tensors below them are the model's."""
        if isinstance(value, dict):
            for index, (key, child) in enumerate(value.items()):
                yield joined_name(name, key if isinstance(key, str) else key_text(key, index)), child, True
        elif not isinstance(value, Foreign):
            long = len(value) > SMALL_LIST
            for index, child in enumerate(value):
                if not (long and is_plain(child)):
                    yield joined_name(name, str(index)), child, True
        else:
            yield from self._parts(value, name)

    def _parts(self, value: Foreign, name: str) -> Iterator[tuple[str, Any, bool]]:
        self.classes[name] = class_name(value.made_by)
        if value.made_by.module.startswith("__torch__"):
            self.scripted[name] = value.made_by
        if value.made_by.module.startswith("__torch__.torch.classes") or class_name(value.made_by) in _PACKED:
            if (packed := _packed(value, name)) is not None:
                self.packed[name] = packed
                return
            self.unreadable[name] = (
                f"it is packed ({class_name(value.made_by)}), as quantized layers are; quantized weights are not supported"
            )
            return
        yield from ((joined_name(name, key), child, False) for key, child in self._constants(value.made_by).items())
        state = value.state
        if isinstance(state, dict) and isinstance(state.get("_modules"), dict):
            yield from self._module(state, name)
        elif isinstance(state, tuple) and len(state) == 2 and all(isinstance(s, dict | None) for s in state):
            yield from ((name, part, True) for part in state if part)  # attributes, and those in slots
        elif isinstance(state, dict):
            for index, (key, child) in enumerate(state.items()):
                part = key if isinstance(key, str) else key_text(key, index)
                # TorchScript's RNN modules hold each weight a second time, in this list.
                yield joined_name(name, part), child, part != "_flat_weights"
        elif state is not None:
            yield name, state, True
        yield from ((name, part, True) for part in (value.args, value.items, value.entries) if part)

    def _module(self, state: dict[Any, Any], name: str) -> Iterator[tuple[str, Any, bool]]:
        """Yield the parts of an nn.Module: what `state_dict()` would name, then its other attributes."""
        transient = state.get("_non_persistent_buffers_set")
        left_out = transient if isinstance(transient, (set, frozenset, list, tuple)) else ()
        levels = {level: state[level] for level in _LEVELS if isinstance(state.get(level), dict)}
        for level, children in levels.items():
            for key, child in children.items():
                if child is not None and not (level == "_buffers" and key in left_out):
                    yield joined_name(name, str(key)), child, True
        for key, child in state.items():
            if key not in levels:  # a level that is no dictionary is an attribute as others are
                yield joined_name(name, str(key)), child, False

    def unpack(self) -> None:
        """Add the weights of layers that were packed for integers, under the names that they have without it."""
        if not self.packed:
            return
        from rnnconvert.formats.pytorch.archives import quantized as torch_quantized

        places, problems = torch_quantized.named(self.packed, self.values)
        self.unreadable |= problems
        for place, tensors in places.items():
            self.unpacked[place] = [*tensors]
            for word in torch_quantized.of_outputs(place, self.arrays):
                del self.arrays[word]
            for name, tensor in tensors.items():
                if name.endswith(("bias_ih", "bias_hh")):  # a cell has others beside it that nothing reads, as its constructor drew them
                    self.arrays.pop(name, None)
                self._add(tensor, name)

    def _check_new(self, name: str) -> None:
        if name in self.arrays or name in self.unreadable:
            raise UnreadableError(self._path, f"it has two tensors that are both called {name!r}")
        if any("\ud800" <= letter <= "\udfff" for letter in name):
            raise UnreadableError(self._path, f"the name {name!r} is not valid text")

    def _add_numpy(self, value: Foreign, name: str, tensors: bool) -> None:
        array = numpy_value(value)
        if array is None:
            self.classes[name] = class_name(value.made_by)
        elif array.shape == ():
            self.values[name] = array.item()
        elif tensors:
            self._check_new(name)
            self.arrays[name] = array

    def _add(self, tensor: ArchivedTensor, name: str) -> None:
        self._check_new(name)
        try:
            self.arrays[name] = self._array(tensor, name)
        except _NotNumbersError as problem:
            self.unreadable[name] = str(problem)

    def _array(self, tensor: ArchivedTensor, name: str) -> Array:
        storage = tensor.storage
        if tensor.problem or storage is None:
            raise _NotNumbersError(tensor.problem or "it has no storage")
        storages = STORAGES
        if tensor.quantizer:
            from rnnconvert.formats.pytorch.archives import quantized as torch_quantized

            storages = torch_quantized.STORAGES
        dtype = storages.get(storage.kind)
        dtype = dtype or NEWER.get(tensor.dtype.removeprefix("torch."))
        if dtype is None:
            raise _NotNumbersError(f"elements of type {(tensor.dtype or storage.kind)!r} are not supported")
        width = 1 if storage.kind == "UntypedStorage" else dtype.itemsize
        size, start = storage.count * width, storage.start * width
        available = size // dtype.itemsize
        if len(tensor.shape) != len(tensor.strides) or len(tensor.shape) > 32:
            raise UnreadableError(self._path, f"{name!r} has the shape {short(tensor.shape)} but no strides")
        if min((tensor.offset, *tensor.shape, *tensor.strides)) < 0:
            self._outside(name, tensor)
        count = math.prod(tensor.shape)
        if count:
            pairs = list(zip(tensor.shape, tensor.strides, strict=True))
            if tensor.offset + sum((length - 1) * stride for length, stride in pairs) >= available:
                self._outside(name, tensor)
            if count > max(available, REPEATED):
                raise _NotNumbersError(f"it repeats {available} elements into {short(count)}")
        elif math.prod(length for length in tensor.shape if length) >= 1 << 48:
            self._outside(name, tensor)
        else:
            return np.empty(tensor.shape, dtype)
        data = self._records(storage, start + size)[start : start + size]
        # The stride of an axis of length 1 is never used, and can be anything.
        strides = tuple(stride * dtype.itemsize if length > 1 else dtype.itemsize for length, stride in pairs)
        view: Array = np.ndarray(tensor.shape, dtype, data, tensor.offset * dtype.itemsize, strides)
        if tensor.quantizer:
            self.dequantized.append(name)
            return self._meant(view.byteswap() if self._byte_swapped else view, tensor, name)
        if not self._byte_swapped:
            return view
        return view.view(np.uint16).byteswap().view(dtype) if dtype == BFLOAT16 else view.byteswap()

    def _meant(self, stored: Array, tensor: ArchivedTensor, name: str) -> Array:
        """Return the numbers that integers stand for."""
        from rnnconvert.formats.pytorch.archives import quantized as torch_quantized

        try:
            scales, zeros = (self._array(part, name) if isinstance(part, ArchivedTensor) else part for part in tensor.quantizer[1:3])
            return torch_quantized.meant(stored, tensor.quantizer, scales, zeros)
        except ValueError as error:
            raise _NotNumbersError(f"it is quantized, and {error}") from None

    def _outside(self, name: str, tensor: ArchivedTensor) -> None:
        length = tensor.storage.count if tensor.storage else 0
        raise UnreadableError(
            self._path,
            f"{name!r} (shape {short(tensor.shape)}, strides {short(tensor.strides)}, offset "
            f"{short(tensor.offset)}) does not lie within its storage of {short(length)} elements",
            "The file is damaged; fetch it again.",
        )


_LEVELS = ("_parameters", "_buffers", "_modules")
"""Where an nn.Module keeps what `state_dict()` names."""

_PACKED = frozenset({"torch._C.ScriptObject", "torch.ScriptObject"})


def _is_kept(values: list[Any] | tuple[Any, ...], name: str) -> bool:
    """Return whether a list is kept as metadata: a short one, or an optimizer's parameter numbers, however many."""
    return len(values) <= SMALL_LIST or name.rpartition(".")[2] in ("params", "param_names")


# Names and keys of a PyTorch pickle, as text.


def is_plain(value: Any) -> bool:
    if isinstance(value, int):
        return value.bit_length() <= 64  # Python refuses to print a number of many thousand digits
    return value is None or isinstance(value, float | str | complex | Global)


def joined_name(name: str, part: str) -> str:
    return f"{name}.{part}" if name else part


def key_text(key: Any, index: int) -> str:
    return str(key) if is_plain(key) else f"<{index}>"


def short(value: Any) -> str:
    """Return a number or numbers as text, however large."""
    if isinstance(value, tuple):
        return f"[{', '.join(short(item) for item in value[:8])}]"
    return str(value) if abs(value) < 1 << 64 else "an impossibly large number"


def class_name(made_by: Global) -> str:
    """Return the dotted name of a class as Python knows it, without TorchScript's prefix and numbering. TorchScript's
    prefix and its numbering are taken off.
    """
    parts = [part for part in str(made_by).split(".") if not part.startswith("___torch_mangle_")]
    return ".".join(parts[1:] if parts[0] == "__torch__" and len(parts) > 1 else parts)
