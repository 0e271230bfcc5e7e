"""The cuDNN library itself, called through ctypes, on its flat buffer.

Run with cuDNN 9.19 on an H100. On machines without a GPU the tests check the
descriptors and the buffer's layout against the real library, and every call's arguments against a stand-in.

Signatures and numbers: cudnn_adv.h, cudnn_ops.h and cudnn_graph.h of cuDNN 9.28; the CUDA runtime's API reference for
cudaMalloc, cudaMemcpy, cudaMemset and cudaFree.
"""

from __future__ import annotations

import contextlib
import ctypes
import ctypes.util
import math
from collections.abc import Mapping, Sequence
from importlib import metadata
from typing import Any, NamedTuple

import numpy as np

from rnnconvert.running.sequences import Sequences, outputs

from .run_library import STORED, TYPES, CudnnLibrary, Memory, configured, encoded, layout, libraries

Array = np.ndarray

NEEDS = ()
FORMAT = "cudnn"
BUFFER_KEY = "rnnconvert.cudnn"  # where a .safetensors has the description of its flat buffers
SUFFIX = ".bin"
SUPPORTS = "RNN, GRU and LSTM in every bias mode; projection; skip input; cell clip; lengths, none zero; gradients; float16 to float64"
CANNOT = {"how": "the description already states what is computed"}
_PERSISTENT = {"float32": "float32, tanh to 16 digits"}
VARIANTS: dict[str, dict[str, Any]] = {
    "cudnn": {"device": "cuda", "algorithm": "standard"},
    "cudnn-persistent": {"device": "cuda", "algorithm": "persist_static", "rounds_like": _PERSISTENT},
    "cudnn-persistent-dynamic": {"device": "cuda", "algorithm": "persist_dynamic", "rounds_like": _PERSISTENT},
}

_INFERENCE, _TRAINING = 0, 1
_LAYOUTS = {"unpadded": 0, "padded": 0, "packed": 1}  # 0 is (time, batch, values)
_ADD = 0


def absent(variant: Mapping[str, Any]) -> str:
    """Return why it cannot run here although there is a GPU, or "" if it can."""
    lacking = [name for name in ("cudnn", "cudart") if not libraries(name)]
    packages = {
        "cudnn": "nvidia-cudnn-cu12 (for CUDA 13: nvidia-cudnn-cu13)",
        "cudart": "nvidia-cuda-runtime-cu12 (for CUDA 13: nvidia-cuda-runtime)",
    }
    return "; ".join(f"lib{name}.so is not found: pip install {packages[name]}" for name in lacking)


def versions(variant: Mapping[str, Any]) -> dict[str, str]:
    """Return the versions of the wheels that are installed."""
    result = {}
    for name in ("nvidia-cudnn-cu12", "nvidia-cudnn-cu13", "nvidia-cuda-runtime-cu12", "nvidia-cuda-runtime"):
        with contextlib.suppress(metadata.PackageNotFoundError):
            result[name] = metadata.version(name)
    return result


def answer(request: Mapping[str, Any]) -> dict[str, Any]:
    """Run a flat buffer with its description; see rnnconvert.running."""
    sequences = Sequences.of(request)
    sequences.refuse_empty("cuDNN returns zeros instead of its initial state as the final one")
    memory = Memory(ctypes.CDLL(libraries("cudart")[0], mode=ctypes.RTLD_GLOBAL))
    # cuDNN looks for these by name when it needs them, and would not find those of the wheels.
    others = [path for name in ("nvrtc", "cublasLt", "cublas") for path in libraries(name)]
    library = CudnnLibrary([*others, *libraries("cudnn")])
    device = Device(library, memory)
    return run(request["buffer"], request["description"], sequences, device, request["variant"])


class Device(NamedTuple):
    """The means of a run: the library, and the GPU's memory."""

    library: CudnnLibrary
    memory: Memory


_STANDARD: Mapping[str, Any] = {"algorithm": "standard"}


def run(
    params: Array, description: Mapping[str, Any], sequences: Sequences, device: Device, variant: Mapping[str, Any] = _STANDARD
) -> dict[str, Any]:
    """Run the buffer on the GPU, in its own element type.

    params       the flat buffer; bfloat16 as its bits
    description  the buffer's description: cell, hidden_size, input_size, num_layers ...
    variant      its algorithm, as in VARIANTS; its io, how cuDNN receives sequences: "unpadded", all of one length;
                 "padded", with cuDNN's flag for padding; "packed", step by step without the padding, none empty; by
                 default one of the first two, as lengths need it

    The answer's notes have "bytes" and "offsets", which are the library's own.

    Raises NotImplementedError for what cuDNN does not support, RuntimeError for a buffer of another size.
    """
    (library, memory), algorithm = device, variant["algorithm"]
    with contextlib.ExitStack() as stack:
        handle = stack.enter_context(library.handle())
        stack.enter_context(memory)
        io = variant.get("io") or ("unpadded" if sequences.lengths is None else "padded")
        rnn = stack.enter_context(configured(library, handle, description, algorithm, io == "padded"))
        call = _CudnnRun(device, handle, rnn, description, _Arrangement(sequences, io), stack)
        if algorithm == "persist_dynamic":
            library("cudnnBuildRNNDynamic", handle, rnn, np.shape(sequences.x)[1])
        weights = memory.put(params)
        offsets = layout(library, handle, rnn, description, int(weights.value or 0))
        if offsets["bytes"] != params.nbytes:
            raise RuntimeError(f"the buffer has {params.nbytes} bytes, but cuDNN's has {offsets['bytes']}")
        result = call.solved(weights, offsets["bytes"], sequences)
        result["notes"] = {
            "cuDNN": library.version,
            "algorithm": algorithm,
            "bytes": offsets["bytes"],
            "offsets": [row[:5] for row in offsets["rows"]],
        }
        return result


class _Arrangement:
    """How sequences lie in what cuDNN receives and gives.

    order   the sequences as cuDNN gets them: packed ones with the longest first
    limits  their lengths, in this order
    live    which of their steps count, (time, batch)
    """

    def __init__(self, sequences: Sequences, io: str) -> None:
        self.shape, self.layout, self.packed = np.shape(sequences.x), _LAYOUTS[io], io == "packed"
        steps, batch, _ = self.shape
        counts = np.full(batch, steps) if sequences.lengths is None else np.asarray(sequences.lengths)
        self.order = np.argsort(-counts, kind="stable") if self.packed else np.arange(batch)
        self.limits = np.ascontiguousarray(counts[self.order], np.int32)
        self.live = np.arange(steps)[:, None] < counts[self.order]


class _CudnnRun:
    """The descriptors of one run, and the run."""

    def __init__(
        self, device: Device, handle: Any, rnn: Any, description: Mapping[str, Any], lying: _Arrangement, stack: contextlib.ExitStack
    ) -> None:
        self.library, self.memory = library, memory = device
        self.handle, self.rnn, self.lying = handle, rnn, lying
        self.dtype = description.get("dtype", "float32")
        self.is_lstm = description["cell"] == "lstm"
        steps, batch, width = lying.shape
        directions = 2 if description.get("bidirectional") else 1
        hidden = description["hidden_size"]
        out = description.get("projection_size", 0) or hidden
        rows = description.get("num_layers", 1) * directions
        self.x_shape, self.y_shape = (steps, batch, width), (steps, batch, directions * out)
        self.h_shape, self.c_shape = (rows, batch, out), (rows, batch, hidden)
        self.limits = memory.put(lying.limits)
        self.of_x, self.of_y = (stack.enter_context(library.descriptor("RNNData")) for _ in range(2))
        fill = ctypes.create_string_buffer(8)  # a zero of any type
        for descriptor, values in ((self.of_x, width), (self.of_y, self.y_shape[2])):
            library(
                "cudnnSetRNNDataDescriptor",
                descriptor,
                TYPES[self.dtype],
                lying.layout,
                steps,
                batch,
                values,
                lying.limits.ctypes.data,
                ctypes.cast(fill, ctypes.c_void_p),
            )
        self.of_h, self.of_c = (stack.enter_context(library.descriptor("Tensor")) for _ in range(2))
        for descriptor, dims in ((self.of_h, self.h_shape), (self.of_c, self.c_shape)):
            strides = (dims[1] * dims[2], dims[2], 1)
            library("cudnnSetTensorNdDescriptor", descriptor, TYPES[self.dtype], 3, (ctypes.c_int * 3)(*dims), (ctypes.c_int * 3)(*strides))

    def _put(self, values: Any) -> ctypes.c_void_p:
        return self.memory.put(encoded(values, self.dtype))

    def _room(self, shape: Sequence[int]) -> ctypes.c_void_p:
        return self.memory.room(math.prod(shape) * np.dtype(STORED[self.dtype]).itemsize)

    def _get(self, address: ctypes.c_void_p, shape: Sequence[int]) -> Array:
        return self.memory.get(address, shape, self.dtype)

    def _state(self, states: Any) -> ctypes.c_void_p:
        """Copy an initial state; a null pointer means zero to cuDNN."""
        return self._put(np.stack(list(states))[:, self.lying.order]) if states else ctypes.c_void_p()

    def _states(self, address: ctypes.c_void_p, shape: Sequence[int]) -> list[Array]:
        """Return final states, or the gradients of initial ones, in the caller's order of the sequences."""
        array = self._get(address, shape)
        back = np.empty_like(array)
        back[:, self.lying.order] = array
        return list(back)

    def _sequence(self, values: Any) -> ctypes.c_void_p:
        """Copy (time, batch, values)."""
        lying, array = self.lying, np.asarray(values)
        return self._put(array[:, lying.order][lying.live] if lying.packed else array)

    def _steps(self, address: ctypes.c_void_p, shape: Sequence[int]) -> Array:
        """Return (time, batch, values), zero past the end of a packed sequence."""
        lying = self.lying
        if not lying.packed:
            return self._get(address, shape)
        numbers = self._get(address, (int(lying.live.sum()), shape[2]))
        padded = np.zeros(tuple(shape), numbers.dtype)
        at_step, place = np.nonzero(lying.live)
        padded[at_step, lying.order[place]] = numbers
        return padded

    def solved(self, weights: ctypes.c_void_p, size: int, sequences: Sequences) -> dict[str, Any]:
        """Return an answer without its notes."""
        cotangents = sequences.cotangents
        mode = _TRAINING if cotangents else _INFERENCE
        work, reserve = ctypes.c_size_t(), ctypes.c_size_t()
        self.library("cudnnGetRNNTempSpaceSizes", self.handle, self.rnn, mode, self.of_x, ctypes.byref(work), ctypes.byref(reserve))
        spaces = [size, weights, work.value, self.memory.room(work.value), reserve.value, self.memory.room(reserve.value)]
        source, y = self._sequence(sequences.x), self._room(self.y_shape)
        hx, hy = self._state(sequences.hidden), self._room(self.h_shape)
        none = ctypes.c_void_p()
        cx, cy = (self._state(sequences.cell), self._room(self.c_shape)) if self.is_lstm else (none, none)
        self.library(
            "cudnnRNNForward", self.handle, self.rnn, mode, self.limits, self.of_x, source, self.of_y, y,
            self.of_h, hx, hy, self.of_c, cx, cy, *spaces,
        )  # fmt: skip
        finals = [self._states(hy, self.h_shape), *([self._states(cy, self.c_shape)] if self.is_lstm else [])]
        result = outputs(self._steps(y, self.y_shape), *finals)
        if not cotangents:
            return result
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
        count = size // np.dtype(STORED[self.dtype]).itemsize
        states = {"hidden": self._states(dhx, self.h_shape), **({"cell": self._states(dcx, self.c_shape)} if self.is_lstm else {})}
        weights_slopes = {"params": self._get(slopes, (count,))}
        result["gradients"] = sequences.gradients(self._steps(dx, self.x_shape), states, weights_slopes)
        return result
