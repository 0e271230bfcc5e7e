"""The cuDNN library itself, called through ctypes, on its flat buffer.

No GPU has run this file yet. On machines without one the tests check the
descriptors and the buffer's layout against the real library, and every call's arguments against a stand-in.

Signatures and numbers: cudnn_adv.h, cudnn_ops.h and cudnn_graph.h of cuDNN 9.28; the CUDA runtime's API reference for
cudaMalloc, cudaMemcpy, cudaMemset and cudaFree.
"""

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

NEEDS = ()
FORMAT = "cudnn"
BUFFER_KEY = "rnnconvert.cudnn"  # where a .safetensors has the description of its flat buffers
SUFFIX = ".bin"
SUPPORTS = (
    "RNN, GRU and LSTM in every bias mode; projection; skip input; cell clip; lengths; gradients; float16 to float64"
)
VARIANTS: dict[str, dict[str, Any]] = {
    "cudnn": {"device": "cuda", "algorithm": "standard"},
    "cudnn-persistent": {"device": "cuda", "algorithm": "persist_static"},
    "cudnn-persistent-dynamic": {"device": "cuda", "algorithm": "persist_dynamic"},
}
ALGORITHMS = {"standard": 0, "persist_static": 1, "persist_dynamic": 2, "persist_static_small_h": 3}
CELLS = {"rnn_relu": 0, "rnn_tanh": 1, "lstm": 2, "gru": 3}
BIASES = {"none": 0, "single_inp": 1, "double": 2, "single_rec": 3}
INPUTS = {"linear": 0, "skip": 1}
TYPES = {"float32": 0, "float64": 1, "float16": 2, "bfloat16": 9}
IDENTITIES = {"rnn_relu": 2, "rnn_tanh": 2, "lstm": 9, "gru": 6}
"""How many linLayerIDs there are; the LSTM's last one is its projection."""

_DEFAULT_MATH, _FMA = 0, 3
_INFERENCE, _TRAINING = 0, 1
_PADDED = 1
_MINMAX = 1
_LAYOUTS = {"unpadded": 0, "padded": 0, "packed": 1}  # 0 is (time, batch, values)
_ADD = 0
_TO_DEVICE, _TO_HOST = 1, 2
_STORED = {"float32": "<f4", "float64": "<f8", "float16": "<f2", "bfloat16": "<u2"}

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


def absent(variant: Mapping[str, Any]) -> str:
    """Return why it cannot run here although there is a GPU, or "" if it can."""
    lacking = [name for name in ("cudnn", "cudart") if not _libraries(name)]
    packages = {
        "cudnn": "nvidia-cudnn-cu12 (for CUDA 13: nvidia-cudnn-cu13)",
        "cudart": "nvidia-cuda-runtime-cu12 (for CUDA 13: nvidia-cuda-runtime)",
    }
    return "; ".join(f"lib{name}.so is not found: pip install {packages[name]}" for name in lacking)


def versions(variant: Mapping[str, Any]) -> dict[str, str]:
    """Return the versions of the wheels that are installed."""
    found = {}
    for name in ("nvidia-cudnn-cu12", "nvidia-cudnn-cu13", "nvidia-cuda-runtime-cu12", "nvidia-cuda-runtime"):
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


_PARTS = ("libcudnn_graph.so.9", "libcudnn_ops.so.9", "libcudnn_adv.so.9", "libcudnn.so.9")
"""What the RNN calls need, in the order in which they are loaded."""


def _libraries(name: str) -> list[str]:
    """Return what to load for cudnn or cudart: from NVIDIA's wheels, else from the system; nothing if both are missing.

    Where wheels of CUDA 12 and of CUDA 13 are installed, those are taken that cuDNN's own wheel is made for.
    """
    if name == "cudnn":
        for folder in _wheels():
            if (folder / _PARTS[-1]).is_file():
                return [str(folder / part) for part in _PARTS if (folder / part).is_file()]
    else:
        found = [path for folder in _wheels() for path in sorted(folder.glob(f"lib{name}.so.*"))]
        fitting = [path for path in found if path.name.endswith(tuple(f".so.{major}" for major in _majors()))]
        if fitting or found:
            return [str((fitting or found)[-1])]
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


def answer(request: Mapping[str, Any]) -> dict[str, Any]:
    """Run a flat buffer with its description; see rnnconvert.running."""
    if request["how"]:
        raise NotImplementedError(
            f"the description already states what is computed: {', '.join(request['how'])} cannot be chosen"
        )
    description = request["description"]
    params = request["buffer"]
    given: dict[str, Any] = {name: request.get(name) for name in ("hidden", "cell", "lengths", "cotangents")}
    memory = Memory(ctypes.CDLL(_libraries("cudart")[0], mode=ctypes.RTLD_GLOBAL))
    # cuDNN looks for these by name when it needs them, and would not find those of the wheels.
    others = [path for name in ("nvrtc", "cublasLt", "cublas") for path in _libraries(name)]
    library = Library([*others, *_libraries("cudnn")])
    return run(params, request["x"], description, library, memory, request["variant"]["algorithm"], **given)


class Library:
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
        said = self.c.cudnnGetErrorString(ctypes.c_int(status))
        return f"{said.decode() if said else 'status'} ({status})"

    @property
    def version(self) -> str:
        """As the library says it."""
        self.c.cudnnGetVersion.restype = ctypes.c_size_t
        number = int(self.c.cudnnGetVersion())
        return f"{number // 10000}.{number // 100 % 100}.{number % 100}"

    @contextlib.contextmanager
    def handle(self) -> Iterator[Any]:
        """Yield a handle, which needs a GPU."""
        made = ctypes.c_void_p()
        self("cudnnCreate", ctypes.byref(made))
        try:
            yield made
        finally:
            self("cudnnDestroy", made)

    @contextlib.contextmanager
    def descriptor(self, kind: str) -> Iterator[ctypes.c_void_p]:
        """Yield a descriptor: Dropout, RNN, RNNData or Tensor."""
        made = ctypes.c_void_p()
        self(f"cudnnCreate{kind}Descriptor", ctypes.byref(made))
        try:
            yield made
        finally:
            self(f"cudnnDestroy{kind}Descriptor", made)


class Memory:
    """The GPU's memory, through the CUDA runtime; freed when the block ends."""

    def __init__(self, runtime: Any) -> None:
        self._runtime = runtime
        self._taken: list[ctypes.c_void_p] = []

    def __enter__(self) -> Memory:
        return self

    def __exit__(self, *_: object) -> None:
        while self._taken:
            self._runtime.cudaFree(self._taken.pop())

    def _checked(self, function: str, *arguments: Any) -> None:
        status = getattr(self._runtime, function)(*arguments)
        if status:
            raise RuntimeError(f"{function} returned {status}")

    def room(self, size: int) -> ctypes.c_void_p:
        """Allocate that many bytes of zeros; a null pointer for none."""
        address = ctypes.c_void_p()
        if size:
            self._checked("cudaMalloc", ctypes.byref(address), ctypes.c_size_t(size))
            self._taken.append(address)
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
        found = np.empty(tuple(shape), _STORED[dtype])
        size, kind = ctypes.c_size_t(found.nbytes), ctypes.c_int(_TO_HOST)
        self._checked("cudaMemcpy", ctypes.c_void_p(found.ctypes.data), address, size, kind)
        return _decoded(found, dtype)


def _encoded(values: Any, dtype: str) -> Array:
    """Return numbers as the GPU has them; bfloat16, which numpy lacks, as its bits, rounded to the nearest, ties to
    even.
    """
    if dtype != "bfloat16":
        return np.asarray(values).astype(_STORED[dtype])
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
    """Return what cudnnSetRNNDescriptor_v8 takes between the descriptor and the dropout's, and last the flags.

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
    library: Library, handle: Any, description: Mapping[str, Any], algorithm: str = "standard", padded: bool = False
) -> Iterator[Any]:
    """Yield an RNN descriptor."""
    with library.descriptor("Dropout") as dropout, library.descriptor("RNN") as rnn:
        library("cudnnSetDropoutDescriptor", dropout, handle, 0.0, None, 0, 0)
        *between, flags = settings(description, algorithm, padded)
        library("cudnnSetRNNDescriptor_v8", rnn, *between, dropout, flags)
        if description.get("clip"):
            if description["cell"] != "lstm":
                raise NotImplementedError(f"a clip of a {description['cell']}: cuDNN clips the cell state of an LSTM")
            library("cudnnRNNSetClip_v9", rnn, _MINMAX, *map(float, description["clip"]))
        yield rnn


def layout(library: Library, handle: Any, rnn: Any, description: Mapping[str, Any], base: int) -> dict[str, Any]:
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
                    "cudnnGetRNNWeightParams", handle, rnn, pseudo_layer, size, ctypes.c_void_p(base), identity,
                    of_matrix, ctypes.byref(matrix), of_bias, ctypes.byref(bias),
                )  # fmt: skip
                for what, address, descriptor in (("matrix", matrix, of_matrix), ("bias", bias, of_bias)):
                    if address.value is not None:
                        rows.append([pseudo_layer, identity, what, address.value - base, *_dims(library, descriptor)])
    return {"bytes": size.value, "rows": rows}


_MOST_DIMS = 8


def _dims(library: Library, descriptor: Any) -> tuple[list[int], list[int]]:
    """Return dimensions and strides."""
    kind, count = ctypes.c_int(), ctypes.c_int()
    dims, strides = (ctypes.c_int * _MOST_DIMS)(), (ctypes.c_int * _MOST_DIMS)()
    pointers = [ctypes.byref(kind), ctypes.byref(count), dims, strides]
    library("cudnnGetTensorNdDescriptor", descriptor, _MOST_DIMS, *pointers)
    return dims[: count.value], strides[: count.value]


def run(
    params: Array,
    x: Array,
    description: Mapping[str, Any],
    library: Library,
    memory: Memory,
    algorithm: str = "standard",
    *,
    io: str = "",
    hidden: Sequence[Array] | None = None,
    cell: Sequence[Array] | None = None,
    lengths: Array | None = None,
    cotangents: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Run the buffer on the GPU, in its own element type.

    params       the flat buffer; bfloat16 as its bits
    x            (time, batch, in)
    description  the buffer's description: cell, hidden_size, input_size, num_layers ...
    io           how cuDNN receives sequences: "unpadded", all of one length; "padded", with cuDNN's flag for padding;
                 "packed", step by step without the padding, none empty; "" for the first two, as lengths need it
    hidden       initial states and the rest as in a request (rnnconvert.running); the answer likewise; its
                 notes have "bytes" and "offsets", which are the library's own

    Raises NotImplementedError for what cuDNN does not support, RuntimeError for a buffer of another size.
    """
    with contextlib.ExitStack() as stack:
        handle = stack.enter_context(library.handle())
        stack.enter_context(memory)
        io = io or ("unpadded" if lengths is None else "padded")
        rnn = stack.enter_context(configured(library, handle, description, algorithm, io == "padded"))
        call = _Call(library, memory, handle, rnn, description, np.shape(x), lengths, io, stack)
        if algorithm == "persist_dynamic":
            library("cudnnBuildRNNDynamic", handle, rnn, np.shape(x)[1])
        weights = memory.put(params)
        told = layout(library, handle, rnn, description, int(weights.value or 0))
        if told["bytes"] != params.nbytes:
            raise RuntimeError(f"the buffer has {params.nbytes} bytes, but cuDNN's has {told['bytes']}")
        found = call.solved(weights, told["bytes"], x, hidden, cell, cotangents)
        found["notes"] = {
            "cuDNN": library.version,
            "algorithm": algorithm,
            "bytes": told["bytes"],
            "offsets": [row[:5] for row in told["rows"]],
        }
        return found


class _Call:
    """The descriptors of one run, and the run."""

    def __init__(
        self,
        library: Library,
        memory: Memory,
        handle: Any,
        rnn: Any,
        description: Mapping[str, Any],
        shape: Sequence[int],
        lengths: Array | None,
        io: str,
        stack: contextlib.ExitStack,
    ) -> None:
        self.library, self.memory, self.handle, self.rnn = library, memory, handle, rnn
        self.dtype = description.get("dtype", "float32")
        self.is_lstm = description["cell"] == "lstm"
        steps, batch, width = shape
        directions = 2 if description.get("bidirectional") else 1
        hidden = description["hidden_size"]
        out = description.get("projection_size", 0) or hidden
        rows = description.get("num_layers", 1) * directions
        self.x_shape, self.y_shape = (steps, batch, width), (steps, batch, directions * out)
        self.h_shape, self.c_shape = (rows, batch, out), (rows, batch, hidden)
        whole = np.full(batch, steps) if lengths is None else np.asarray(lengths)
        self.packed = io == "packed"
        # Packed sequences are given to cuDNN with the longest first.
        self.order = np.argsort(-whole, kind="stable") if self.packed else np.arange(batch)
        self.live = np.arange(steps)[:, None] < whole[self.order]
        limits = np.ascontiguousarray(whole[self.order], np.int32)
        self.limits = memory.put(limits)
        self.of_x, self.of_y = (stack.enter_context(library.descriptor("RNNData")) for _ in range(2))
        fill = ctypes.create_string_buffer(8)  # a zero of any type
        for descriptor, values in ((self.of_x, width), (self.of_y, self.y_shape[2])):
            library(
                "cudnnSetRNNDataDescriptor", descriptor, TYPES[self.dtype], _LAYOUTS[io], steps, batch, values,
                limits.ctypes.data, ctypes.cast(fill, ctypes.c_void_p),
            )  # fmt: skip
        self.of_h, self.of_c = (stack.enter_context(library.descriptor("Tensor")) for _ in range(2))
        for descriptor, dims in ((self.of_h, self.h_shape), (self.of_c, self.c_shape)):
            strides = (dims[1] * dims[2], dims[2], 1)
            library(
                "cudnnSetTensorNdDescriptor", descriptor, TYPES[self.dtype], 3, (ctypes.c_int * 3)(*dims),
                (ctypes.c_int * 3)(*strides),
            )  # fmt: skip

    def _put(self, values: Any) -> ctypes.c_void_p:
        return self.memory.put(_encoded(values, self.dtype))

    def _room(self, shape: Sequence[int]) -> ctypes.c_void_p:
        return self.memory.room(math.prod(shape) * np.dtype(_STORED[self.dtype]).itemsize)

    def _get(self, address: ctypes.c_void_p, shape: Sequence[int]) -> Array:
        return self.memory.get(address, shape, self.dtype)

    def _state(self, given: Any) -> ctypes.c_void_p:
        """Copy an initial state; a null pointer means zero to cuDNN."""
        return self._put(np.stack(list(given))[:, self.order]) if given else ctypes.c_void_p()

    def _states(self, address: ctypes.c_void_p, shape: Sequence[int]) -> list[Array]:
        """Return final states, or the gradients of initial ones, in the caller's order of the sequences."""
        found = self._get(address, shape)
        back = np.empty_like(found)
        back[:, self.order] = found
        return list(back)

    def _sequence(self, values: Any) -> ctypes.c_void_p:
        """Copy (time, batch, values)."""
        whole = np.asarray(values)
        return self._put(whole[:, self.order][self.live] if self.packed else whole)

    def _steps(self, address: ctypes.c_void_p, shape: Sequence[int]) -> Array:
        """Return (time, batch, values), zero past the end of a packed sequence."""
        if not self.packed:
            return self._get(address, shape)
        numbers = self._get(address, (int(self.live.sum()), shape[2]))
        found = np.zeros(tuple(shape), numbers.dtype)
        at_step, place = np.nonzero(self.live)
        found[at_step, self.order[place]] = numbers
        return found

    def solved(
        self, weights: ctypes.c_void_p, size: int, x: Array, hidden: Any, cell: Any, cotangents: Any
    ) -> dict[str, Any]:
        """Return an answer without its notes."""
        mode = _TRAINING if cotangents else _INFERENCE
        work, reserve = ctypes.c_size_t(), ctypes.c_size_t()
        self.library(
            "cudnnGetRNNTempSpaceSizes",
            self.handle,
            self.rnn,
            mode,
            self.of_x,
            ctypes.byref(work),
            ctypes.byref(reserve),
        )
        spaces = [
            size, weights, work.value, self.memory.room(work.value), reserve.value, self.memory.room(reserve.value)
        ]  # fmt: skip
        source, y = self._sequence(x), self._room(self.y_shape)
        hx, hy = self._state(hidden), self._room(self.h_shape)
        none = ctypes.c_void_p()
        cx, cy = (self._state(cell), self._room(self.c_shape)) if self.is_lstm else (none, none)
        self.library(
            "cudnnRNNForward", self.handle, self.rnn, mode, self.limits, self.of_x, source, self.of_y, y,
            self.of_h, hx, hy, self.of_c, cx, cy, *spaces,
        )  # fmt: skip
        found = {
            "y": self._steps(y, self.y_shape),
            "hidden": self._states(hy, self.h_shape),
            "cell": self._states(cy, self.c_shape) if self.is_lstm else [],
        }
        if not cotangents:
            return found
        dy, dx = self._sequence(cotangents["y"]), self._room(self.x_shape)
        dhy, dhx = self._state(cotangents["hidden"]), self._room(self.h_shape)
        dcy, dcx = (self._state(cotangents["cell"]), self._room(self.c_shape)) if self.is_lstm else (none, none)
        self.library(
            "cudnnRNNBackwardData_v8", self.handle, self.rnn, self.limits, self.of_y, y, dy, self.of_x, dx,
            self.of_h, hx, dhy, dhx, self.of_c, cx, dcy, dcx, *spaces,
        )  # fmt: skip
        slopes = self.memory.room(size)  # zeros, to which the library adds
        self.library(
            "cudnnRNNBackwardWeights_v8", self.handle, self.rnn, _ADD, self.limits, self.of_x, source,
            self.of_h, hx, self.of_y, y, size, slopes, *spaces[2:],
        )  # fmt: skip
        count = size // np.dtype(_STORED[self.dtype]).itemsize
        found["gradients"] = {
            "x": self._steps(dx, self.x_shape),
            "hidden": self._states(dhx, self.h_shape) if hidden else [],
            "cell": self._states(dcx, self.c_shape) if cell and self.is_lstm else [],
            "weights": {"": {"params": self._get(slopes, (count,))}},
        }
        return found
