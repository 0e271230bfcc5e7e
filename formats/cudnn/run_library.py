"""libcudnn and the CUDA runtime, called through ctypes: their calls, descriptors, memory and element types."""

from __future__ import annotations

import contextlib
import ctypes
import ctypes.util
import importlib.util
import math
from collections.abc import Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

Array = np.ndarray

ALGORITHMS = {"standard": 0, "persist_static": 1, "persist_dynamic": 2, "persist_static_small_h": 3}
CELLS = {"rnn_relu": 0, "rnn_tanh": 1, "lstm": 2, "gru": 3}
BIASES = {"none": 0, "single_inp": 1, "double": 2, "single_rec": 3}
INPUTS = {"linear": 0, "skip": 1}
TYPES = {"float32": 0, "float64": 1, "float16": 2, "bfloat16": 9}
IDENTITIES = {"rnn_relu": 2, "rnn_tanh": 2, "lstm": 9, "gru": 6}
"""How many linLayerIDs there are; the LSTM's last one is its projection."""
_DEFAULT_MATH = 0
_FMA = 3
_PADDED = 1
_MINMAX = 1
_TO_DEVICE = 1
_TO_HOST = 2
STORED = {"float32": "<f4", "float64": "<f8", "float16": "<f2", "bfloat16": "<u2"}


# One letter an argument: p a pointer, i int, u unsigned int, l unsigned long long, z size_t, f float, d double.
_KINDS: dict[str, Any] = {
    "p": ctypes.c_void_p,
    "i": ctypes.c_int,
    "u": ctypes.c_uint,
    "l": ctypes.c_ulonglong,
    "z": ctypes.c_size_t,
    "f": ctypes.c_float,
    "d": ctypes.c_double,
}
_DESCRIPTORS = ("Dropout", "RNN", "RNNData", "Tensor")
SIGNATURES = {
    "cudnnCreate": "p",
    "cudnnDestroy": "p",
    **{f"cudnnCreate{kind}Descriptor": "p" for kind in _DESCRIPTORS},
    **{f"cudnnDestroy{kind}Descriptor": "p" for kind in _DESCRIPTORS},
    "cudnnSetTensorNdDescriptor": "piipp",
    "cudnnGetTensorNdDescriptor": "pipppp",
    "cudnnSetDropoutDescriptor": "ppfpzl",
    "cudnnSetRNNDescriptor_v8": "p" + "i" * 12 + "pu",
    "cudnnRNNSetClip_v9": "pidd",
    "cudnnBuildRNNDynamic": "ppi",
    "cudnnSetRNNDataDescriptor": "piiiiipp",
    "cudnnGetRNNWeightSpaceSize": "ppp",
    "cudnnGetRNNWeightParams": "ppizpipppp",
    "cudnnGetRNNTempSpaceSizes": "ppippp",
    "cudnnRNNForward": "ppi" + "p" * 11 + "zp" * 3,
    "cudnnRNNBackwardData_v8": "p" * 16 + "zp" * 3,
    "cudnnRNNBackwardWeights_v8": "ppi" + "p" * 7 + "zp" * 3,
}
"""The arguments of each call."""
_PARTS = ("libcudnn_graph.so.9", "libcudnn_ops.so.9", "libcudnn_adv.so.9", "libcudnn.so.9")
"""The libraries that the RNN calls need, in the order in which they are loaded."""


def libraries(name: str) -> list[str]:
    """Return the libraries to load for cudnn or cudart: from NVIDIA's wheels, else from the system; nothing if both are missing.

    If wheels of CUDA 12 and of CUDA 13 are installed, it takes the ones that cuDNN's own wheel is made for.
    """
    if name == "cudnn":
        for folder in _wheels():
            if (folder / _PARTS[-1]).is_file():
                return [str(folder / part) for part in _PARTS if (folder / part).is_file()]
    else:
        matches = [path for folder in _wheels() for path in sorted(folder.glob(f"lib{name}.so.*"))]
        fitting = [path for path in matches if path.name.endswith(tuple(f".so.{major}" for major in _majors()))]
        if fitting or matches:
            return [str((fitting or matches)[-1])]
    system = ctypes.util.find_library(name)
    return [system] if system else []


def _majors() -> list[int]:
    """Return the versions of CUDA that the wheels of cuDNN are made for."""
    majors = []
    for major in (12, 13):
        with contextlib.suppress(metadata.PackageNotFoundError):
            metadata.version(f"nvidia-cudnn-cu{major}")
            majors.append(major)
    return majors


def _wheels() -> Iterator[Path]:
    """Yield the folders of libraries in NVIDIA's wheels under the package nvidia."""
    spec = importlib.util.find_spec("nvidia")
    for place in (spec.submodule_search_locations or []) if spec else []:
        yield from sorted(Path(place).glob("*/lib"))


class CudnnLibrary:
    """libcudnn's calls, each with its arguments converted and its status checked.

    Raises NotImplementedError for what the library says that it does not support, RuntimeError for any other failure.
    """

    def __init__(self, paths: Sequence[str]) -> None:
        for path in paths:
            self.c = ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)

    def __call__(self, function: str, *arguments: Any) -> None:
        kinds = SIGNATURES[function]
        if len(arguments) != len(kinds):
            raise TypeError(f"{function} takes {len(kinds)} arguments, but {len(arguments)} were given")
        status = self.invoke(function, [_KINDS[kind] for kind in kinds], arguments)
        if status:
            words = f"{function}: {self.words(status)}"
            raise NotImplementedError(f"cuDNN: {words}") if 3000 <= status < 4000 else RuntimeError(words)

    def invoke(self, function: str, kinds: Sequence[Any], arguments: Sequence[Any]) -> int:
        """Make the call itself."""
        call = getattr(self.c, function)
        call.argtypes, call.restype = kinds, ctypes.c_int
        return int(call(*arguments))

    def words(self, status: int) -> str:
        """Return the meaning of a status."""
        self.c.cudnnGetErrorString.restype = ctypes.c_char_p
        text = self.c.cudnnGetErrorString(ctypes.c_int(status))
        return f"{text.decode() if text else 'status'} ({status})"

    @property
    def version(self) -> str:
        """As the library says it."""
        self.c.cudnnGetVersion.restype = ctypes.c_size_t
        number = int(self.c.cudnnGetVersion())
        return f"{number // 10000}.{number // 100 % 100}.{number % 100}"

    @contextlib.contextmanager
    def handle(self) -> Iterator[Any]:
        """Yield a handle, which needs a GPU."""
        created = ctypes.c_void_p()
        self("cudnnCreate", ctypes.byref(created))
        try:
            yield created
        finally:
            self("cudnnDestroy", created)

    @contextlib.contextmanager
    def descriptor(self, kind: str) -> Iterator[ctypes.c_void_p]:
        """Yield a descriptor: Dropout, RNN, RNNData or Tensor."""
        created = ctypes.c_void_p()
        self(f"cudnnCreate{kind}Descriptor", ctypes.byref(created))
        try:
            yield created
        finally:
            self(f"cudnnDestroy{kind}Descriptor", created)


class Memory:
    """The GPU's memory, through the CUDA runtime; freed when the block ends."""

    def __init__(self, runtime: Any) -> None:
        self._runtime = runtime
        self._allocated: list[ctypes.c_void_p] = []

    def __enter__(self) -> Memory:
        return self

    def __exit__(self, *_: object) -> None:
        while self._allocated:
            self._runtime.cudaFree(self._allocated.pop())

    def _checked(self, function: str, *arguments: Any) -> None:
        status = getattr(self._runtime, function)(*arguments)
        if status:
            raise RuntimeError(f"{function} returned {status}")

    def room(self, size: int) -> ctypes.c_void_p:
        """Allocate that many bytes of zeros; a null pointer for none."""
        address = ctypes.c_void_p()
        if size:
            self._checked("cudaMalloc", ctypes.byref(address), ctypes.c_size_t(size))
            self._allocated.append(address)
            self._checked("cudaMemset", address, ctypes.c_int(0), ctypes.c_size_t(size))
        return address

    def put(self, array: Array) -> ctypes.c_void_p:
        """Copy an array to the GPU."""
        plain = np.ascontiguousarray(array)
        address = self.room(plain.nbytes)
        size, kind = ctypes.c_size_t(plain.nbytes), ctypes.c_int(_TO_DEVICE)
        self._checked("cudaMemcpy", address, ctypes.c_void_p(plain.ctypes.data), size, kind)
        return address

    def get(self, address: ctypes.c_void_p, shape: Sequence[int], dtype: str) -> Array:
        """Return the numbers at an address. Copying waits for what is still being computed."""
        array = np.empty(tuple(shape), STORED[dtype])
        size, kind = ctypes.c_size_t(array.nbytes), ctypes.c_int(_TO_HOST)
        self._checked("cudaMemcpy", ctypes.c_void_p(array.ctypes.data), address, size, kind)
        return _decoded(array, dtype)


def encoded(values: Any, dtype: str) -> Array:
    """Return numbers as the GPU has them; bfloat16, which numpy lacks, as its bits, rounded to the nearest, ties to even."""
    if dtype != "bfloat16":
        return np.asarray(values).astype(STORED[dtype])
    wide = np.ascontiguousarray(np.asarray(values).astype(np.float32))
    bits = wide.view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + (bits >> np.uint32(16) & np.uint32(1))) >> np.uint32(16)
    return np.where(np.isnan(wide), 0x7FC0, rounded).astype(np.uint16)


def _decoded(values: Array, dtype: str) -> Array:
    """Return numbers as numpy has them; halves as float32."""
    if dtype == "bfloat16":
        return (values.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return values.astype(np.float32) if dtype == "float16" else values


def settings(description: Mapping[str, Any], algorithm: str = "standard", padded: bool = False) -> list[int]:
    """Return the arguments of cudnnSetRNNDescriptor_v8 between the descriptor and the dropout's, and last the flags.

    In single precision the mathematics is FMA: any other may be TF32.
    """
    dtype = description.get("dtype", "float32")
    hidden = description["hidden_size"]
    return [
        ALGORITHMS[algorithm],
        CELLS[description["cell"]],
        BIASES[description.get("bias_mode", "double")],
        int(bool(description.get("bidirectional"))),
        INPUTS[description.get("input_mode", "linear")],
        TYPES[dtype],
        TYPES["float64" if dtype == "float64" else "float32"],
        _FMA if dtype in ("float32", "float64") else _DEFAULT_MATH,
        description.get("input_size", hidden),
        hidden,
        description.get("projection_size", 0) or hidden,  # the library refuses 0 for none
        description.get("num_layers", 1),
        _PADDED if padded else 0,
    ]


@contextlib.contextmanager
def configured(
    library: CudnnLibrary, handle: Any, description: Mapping[str, Any], algorithm: str = "standard", padded: bool = False
) -> Iterator[Any]:
    """Yield an RNN descriptor."""
    with library.descriptor("Dropout") as dropout, library.descriptor("RNN") as rnn:
        library("cudnnSetDropoutDescriptor", dropout, handle, 0.0, None, 0, 0)
        *between, flags = settings(description, algorithm, padded)
        library("cudnnSetRNNDescriptor_v8", rnn, *between, dropout, flags)
        if description.get("clip"):
            if description["cell"] != "lstm":
                raise NotImplementedError(f"a clip of a {description['cell']}: cuDNN clips the cell state of an LSTM")
            low, high = description["clip"]
            library("cudnnRNNSetClip_v9", rnn, _MINMAX, -math.inf if low is None else float(low), math.inf if high is None else float(high))
        yield rnn


def layout(library: CudnnLibrary, handle: Any, rnn: Any, description: Mapping[str, Any], base: int) -> dict[str, Any]:
    """Return the buffer as the library lays it out: "bytes", and "rows" of what is where.

    base  the buffer's address; nothing is read there
    rows  pseudo-layer, linLayerID, "matrix" or "bias", first byte, dimensions, strides
    """
    size = ctypes.c_size_t()
    library("cudnnGetRNNWeightSpaceSize", handle, rnn, ctypes.byref(size))
    rows: list[list[Any]] = []
    count = description.get("num_layers", 1) * (2 if description.get("bidirectional") else 1)
    with library.descriptor("Tensor") as of_matrix, library.descriptor("Tensor") as of_bias:
        for pseudo_layer in range(count):
            for identity in range(IDENTITIES[description["cell"]]):
                matrix, bias = ctypes.c_void_p(), ctypes.c_void_p()
                library(
                    "cudnnGetRNNWeightParams",
                    handle,
                    rnn,
                    pseudo_layer,
                    size,
                    ctypes.c_void_p(base),
                    identity,
                    of_matrix,
                    ctypes.byref(matrix),
                    of_bias,
                    ctypes.byref(bias),
                )
                for what, address, descriptor in (("matrix", matrix, of_matrix), ("bias", bias, of_bias)):
                    if address.value is not None:
                        rows.append([pseudo_layer, identity, what, address.value - base, *_dims(library, descriptor)])
    return {"bytes": size.value, "rows": rows}


_MOST_DIMS = 8


def _dims(library: CudnnLibrary, descriptor: Any) -> tuple[list[int], list[int]]:
    """Return dimensions and strides."""
    kind, count = ctypes.c_int(), ctypes.c_int()
    dims, strides = (ctypes.c_int * _MOST_DIMS)(), (ctypes.c_int * _MOST_DIMS)()
    pointers = [ctypes.byref(kind), ctypes.byref(count), dims, strides]
    library("cudnnGetTensorNdDescriptor", descriptor, _MOST_DIMS, *pointers)
    return dims[: count.value], strides[: count.value]
