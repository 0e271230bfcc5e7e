"""The objects in a PyTorch pickle: storages, and tensors over them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rnnconvert.containers.pickle_values import Foreign, Global
from rnnconvert.core.arrays import BFLOAT16

STORAGES: dict[str, np.dtype[Any]] = {
    "HalfStorage": np.dtype(np.float16),
    "BFloat16Storage": BFLOAT16,
    "FloatStorage": np.dtype(np.float32),
    "DoubleStorage": np.dtype(np.float64),
    "CharStorage": np.dtype(np.int8),
    "ShortStorage": np.dtype(np.int16),
    "IntStorage": np.dtype(np.int32),
    "LongStorage": np.dtype(np.int64),
    "ByteStorage": np.dtype(np.uint8),
    "BoolStorage": np.dtype(np.bool_),
    "ComplexFloatStorage": np.dtype(np.complex64),
    "ComplexDoubleStorage": np.dtype(np.complex128),
}
"""Element types by the storage class that PyTorch names them with."""
NEWER: dict[str, np.dtype[Any]] = {"uint16": np.dtype(np.uint16), "uint32": np.dtype(np.uint32), "uint64": np.dtype(np.uint64)}
"""Element types without a storage class: they are stored as bytes, with the type next to them."""


@dataclass(frozen=True, eq=False)
class Storage:
    """A run of elements beside the pickle.

    kind   the storage class's name, "FloatStorage"
    key    the record that holds its bytes
    count  its length in elements (in bytes, for UntypedStorage)
    start  where it begins in the record, in elements
    """

    kind: str
    key: str
    count: int
    start: int = 0


@dataclass(frozen=True, eq=False)
class ArchivedTensor:
    """A tensor as the pickle describes it; nothing of it has been checked yet.

    quantizer  what its integers stand for: the scheme, its scale or scales, its zero point or points and their axis; () for numbers
    problem  why it is not an array of numbers, if it is not
    """

    storage: Storage | None
    offset: int = 0
    shape: tuple[int, ...] = ()
    strides: tuple[int, ...] = ()
    dtype: str = ""
    problem: str = ""
    quantizer: tuple[Any, ...] = ()


def storage_of(reference: Any) -> Any:
    """Return the meaning of a persistent id: a Storage, or the class of a module saved with its source."""
    if reference[0] == "module":
        return reference[1]
    if reference[0] != "storage" or not isinstance(reference[1], Global):
        raise ValueError("a persistent id that is not a storage")
    _, kind, key, _, count = reference[:5]
    part = reference[5] if len(reference) > 5 else None
    start, length = (0, count) if part is None else part[1:3]
    if not isinstance(key, str) or not all(0 <= size < 1 << 60 for size in _integers((start, length))):
        raise ValueError("a storage whose key is not text, or whose length is impossible")
    return Storage(kind.name, key, length, start)


def _integers(values: Any) -> tuple[int, ...]:
    integers = tuple(values)
    if not all(isinstance(value, int) and not isinstance(value, bool) for value in integers):
        raise ValueError("a size that is not an integer")
    return integers


def _tensor(storage: Any, offset: Any, shape: Any, strides: Any, *rest: Any) -> ArchivedTensor:
    if not isinstance(storage, Storage):
        raise ValueError("a tensor without a storage")
    flags = rest[2] if len(rest) > 2 else None
    problem = ""
    if isinstance(flags, dict) and any(flags.values()):
        problem = f"it is kept as a lazy {' and '.join(str(key) for key in flags)} of its numbers"
    (first,) = _integers((offset,))
    return ArchivedTensor(storage, first, _integers(shape), _integers(strides), problem=problem)


def _tensor_v3(storage: Any, offset: Any, shape: Any, strides: Any, *rest: Any) -> ArchivedTensor:
    gradient, hooks, dtype, *flags = rest
    return replace(_tensor(storage, offset, shape, strides, gradient, hooks, *flags[:1]), dtype=str(dtype))


def _quantized(storage: Any, offset: Any, shape: Any, strides: Any, quantizer: Any, *rest: Any) -> ArchivedTensor:
    if not isinstance(quantizer, tuple) or not quantizer:
        raise ValueError("a quantized tensor without its quantizer")
    return replace(_tensor(storage, offset, shape, strides), quantizer=quantizer)


def _parameter(data: Any, *rest: Any) -> Any:
    return data


def _subclass(function: Any, made_by: Any, args: Any, *rest: Any) -> Any:
    build = TORCH_BUILDERS.get(str(function)) if isinstance(function, Global) else None
    return build(*args) if build else Foreign(made_by, args)


def _not_numbers(problem: str) -> Callable[..., ArchivedTensor]:
    return lambda *args: ArchivedTensor(None, problem=problem)


def _first(value: Any = (), *rest: Any) -> Any:
    return value


TORCH_BUILDERS: dict[str, Callable[..., Any]] = {
    "torch._utils._rebuild_tensor": _tensor,
    "torch._utils._rebuild_tensor_v2": _tensor,
    "torch._utils._rebuild_tensor_v3": _tensor_v3,
    "torch._utils._rebuild_parameter": _parameter,
    "torch._utils._rebuild_parameter_with_state": _parameter,
    "torch._utils._rebuild_device_tensor_from_cpu_tensor": _parameter,
    "torch._utils._rebuild_device_tensor_from_numpy": _parameter,
    "torch._utils._rebuild_xla_tensor": _parameter,
    "torch._tensor._rebuild_from_type_v2": _subclass,
    "torch._utils._rebuild_qtensor": _quantized,
    "torch._utils._rebuild_sparse_tensor": _not_numbers("it is sparse, and only dense tensors are read"),
    "torch._utils._rebuild_nested_tensor": _not_numbers("it is a nested tensor"),
    "torch._utils._rebuild_meta_tensor_no_storage": _not_numbers("it is on the meta device, with no values"),
    "torch._utils._rebuild_wrapper_subclass": _not_numbers("it is a tensor subclass without a storage"),
    "torch.Size": _first,
    "torch.device": lambda *args: ":".join(str(arg) for arg in args[:2]),
    "torch.jit._pickle.build_intlist": _first,
    "torch.jit._pickle.build_tensorlist": _first,
    "torch.jit._pickle.build_doublelist": _first,
    "torch.jit._pickle.build_boollist": _first,
    "torch.jit._pickle.restore_type_tag": _first,
}
"""Functions that are called in place of PyTorch's own."""
