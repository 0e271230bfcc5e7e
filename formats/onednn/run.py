"""The oneDNN library itself, called through ctypes on the CPU, on an archive of its primitives' weights.

Signatures and numbers: include/oneapi/dnnl/{dnnl,dnnl_common,dnnl_types,dnnl_common_types}.h of version 3.2. Weights are
passed in the file's own layout, and oneDNN's own reorder brings them into the form that its kernels need.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rnnconvert.running.sequences import Sequences, outputs

Array = np.ndarray

NEEDS = ()
FORMAT = "onednn"
SUFFIX = ".npz"
SUPPORTS = "vanilla RNN, LSTM with peepholes and projection, GRU and lbr_gru; two directions; no lengths or gradients; float32"
CANNOT = {
    "cotangents": "gradients: the oneDNN executor does not compute them",
    "lengths": "sequences of different lengths: oneDNN's primitives do not support them",
}
VARIANTS: dict[str, dict[str, Any]] = {"onednn": {"device": "cpu"}}
VARIABLE = "RNNCONVERT_ONEDNN"
"""Where the library is, if it is neither installed nor in this Python's environment."""

_FLOAT, _ANY_FORMAT, _INFERENCE, _CPU, _IN_ORDER, _EXECUTION_ARGUMENT = 3, 1, 96, 1, 1, 255
_FORWARD, _JOINED = 1, {"concat": 3, "sum": 4}
_ACTIVATIONS = {"relu": 32, "tanh": 33, "sigmoid": 41}
_KINDS = {(1, 1): "vanilla_rnn", (3, 3): "gru", (3, 4): "lbr_gru", (4, 4): "lstm"}
"""Primitives by the number of gates in their matrices and biases."""
# Arguments of a primitive, by the names that dnnl_types.h has for their numbers.
_ARGUMENTS = {
    "src_layer": 1,
    "src_iter": 2,
    "src_iter_c": 3,
    "dst_layer": 17,
    "dst_iter": 18,
    "dst_iter_c": 19,
    "weights_layer": 33,
    "weights_iter": 34,
    "weights_peephole": 35,
    "weights_projection": 36,
    "bias": 41,
}
# The arrays of a file: the argument that each is, and in which order oneDNN's own axes lie in it: those of a matrix are
# layer, direction, input, gate, output.
_WEIGHTS = {
    "weights_layer": ("weights_layer", (0, 1, 2, 3, 4)),
    "weights_layer_ldgoi": ("weights_layer", (0, 1, 3, 4, 2)),
    "weights_iter": ("weights_iter", (0, 1, 2, 3, 4)),
    "weights_iter_ldgoi": ("weights_iter", (0, 1, 3, 4, 2)),
    "weights_projection": ("weights_projection", (0, 1, 2, 3)),
    "weights_projection_ldoi": ("weights_projection", (0, 1, 3, 2)),
    "weights_peephole": ("weights_peephole", (0, 1, 2, 3)),
    "bias": ("bias", (0, 1, 2, 3)),
}
_STATES = {"hidden": "iter", "cell": "iter_c"}
_MATRIX = re.compile(r"(?P<prefix>.*?)weights_iter(_ldgoi)?")


class _Argument(ctypes.Structure):
    _fields_ = [("number", ctypes.c_int), ("memory", ctypes.c_void_p)]


def absent(variant: Mapping[str, Any]) -> str:
    """Return why oneDNN cannot be called here, or "" if it can."""
    path = _path()
    if not path:
        return (
            "oneDNN 3 is not installed: pip install onednn-cpu-gomp, or give the path of libdnnl.so.3 in "
            f"the environment variable {VARIABLE}"
        )
    try:
        version = _version(ctypes.CDLL(path))
    except (OSError, AttributeError) as error:
        return f"{path} is not oneDNN: {error}"
    return "" if version.startswith("3.") else f"{path} is oneDNN {version}, but version 3 is needed"


def versions(variant: Mapping[str, Any]) -> dict[str, str]:
    """Return the library's own version."""
    return {} if absent(variant) else {"onednn": _version(ctypes.CDLL(_path()))}


class _Version(ctypes.Structure):
    _fields_ = [("major", ctypes.c_int), ("minor", ctypes.c_int), ("patch", ctypes.c_int)]


def _version(library: ctypes.CDLL) -> str:
    library.dnnl_version.restype = ctypes.POINTER(_Version)
    version = library.dnnl_version().contents
    return f"{version.major}.{version.minor}.{version.patch}"


def _path() -> str:
    installed = Path(sys.prefix) / "lib" / "libdnnl.so.3"
    library = os.environ.get(VARIABLE) or (str(installed) if installed.is_file() else "")
    return library or ctypes.util.find_library("dnnl") or ""


def answer(request: Mapping[str, Any]) -> dict[str, Any]:
    """Run primitives of a file, each reading what the one before gives; see rnnconvert.running."""
    with np.load(request["file"], allow_pickle=False) as archive:
        arrays = {name: archive[name] for name in archive.files}
    library = _DnnlLibrary(_path())
    activation = _ACTIVATIONS[request["how"].get("nonlinearity", "tanh")]
    merge = request["how"].get("merge_mode", "concat")

    def run(name: str, left: Sequences) -> dict[str, Any]:
        return _Primitive(library, _weights(arrays, name), left, activation, merge).run()

    return Sequences.of(request).through(_layers(arrays, request["layers"]), run)


def _layers(arrays: Mapping[str, Array], asked: Sequence[str]) -> list[str]:
    """Return the prefixes of the layers to run."""
    there = [match["prefix"] for match in map(_MATRIX.fullmatch, arrays) if match]
    if not asked:
        return there
    chosen = []
    for name in asked:
        fitting = [prefix for prefix in there if prefix.rstrip("/.") == name]
        if not fitting:
            raise NotImplementedError(f"the file has no layer {name!r}, only {there}")
        chosen += fitting
    return chosen


def _weights(arrays: Mapping[str, Array], prefix: str) -> dict[str, Array]:
    """Return the weights of a primitive by its arguments, on oneDNN's own axes, laid out in memory as in the file."""
    weights = {}
    for name, (argument, axes) in _WEIGHTS.items():
        array = arrays.get(prefix + name)
        if array is None:
            continue
        if array.dtype != np.float32:
            raise NotImplementedError(f"{name} of type {array.dtype}: the oneDNN executor runs only float32")
        weights[argument] = np.ascontiguousarray(array).transpose(np.argsort(axes))
    return weights


class _DnnlLibrary:
    """The calls that are needed."""

    def __init__(self, path: str) -> None:
        self._dll = ctypes.CDLL(path)
        self.version = _version(self._dll)
        self._dll.dnnl_primitive_desc_query_md.restype = ctypes.c_void_p
        self._dll.dnnl_memory_desc_get_size.restype = ctypes.c_size_t
        self.engine, self.stream = ctypes.c_void_p(), ctypes.c_void_p()
        self.call("dnnl_engine_create", ctypes.byref(self.engine), _CPU, ctypes.c_size_t(0))
        self.call("dnnl_stream_create", ctypes.byref(self.stream), self.engine, ctypes.c_uint(_IN_ORDER))

    def call(self, name: str, *arguments: Any) -> None:
        """Call the library. Raises NotImplementedError if oneDNN has no kernel for this, RuntimeError if the call fails."""
        status = getattr(self._dll, name)(*arguments)
        if status == 3:  # dnnl_unimplemented
            raise NotImplementedError(f"{name}: oneDNN {self.version} has no kernel for this on the CPU")
        if status:
            raise RuntimeError(f"{name} failed with status {status}")

    def like(self, array: Array) -> ctypes.c_void_p:
        """Return a memory descriptor with an array's layout."""
        descriptor, steps = (ctypes.c_void_p(), (ctypes.c_int64 * array.ndim)(*(step // array.itemsize for step in array.strides)))
        shape = (ctypes.c_int64 * array.ndim)(*array.shape)
        self.call("dnnl_memory_desc_create_with_strides", ctypes.byref(descriptor), array.ndim, shape, _FLOAT, steps)
        return descriptor

    def any(self, shape: Sequence[int]) -> ctypes.c_void_p:
        """Return a memory descriptor of a shape in the layout that oneDNN prefers."""
        descriptor, sizes = ctypes.c_void_p(), (ctypes.c_int64 * len(shape))(*shape)
        self.call("dnnl_memory_desc_create_with_tag", ctypes.byref(descriptor), len(shape), sizes, _FLOAT, _ANY_FORMAT)
        return descriptor

    def wanted(self, primitive: ctypes.c_void_p, argument: str) -> ctypes.c_void_p:
        """Return the layout that a primitive wants for an argument."""
        number = _ARGUMENTS[argument]
        return ctypes.c_void_p(self._dll.dnnl_primitive_desc_query_md(primitive, _EXECUTION_ARGUMENT, number))

    def size(self, descriptor: ctypes.c_void_p) -> int:
        """Return the number of bytes of memory in a layout."""
        return int(self._dll.dnnl_memory_desc_get_size(descriptor))

    def memory(self, descriptor: ctypes.c_void_p, buffer: Array) -> ctypes.c_void_p:
        """Return memory that is a buffer of ours."""
        memory = ctypes.c_void_p()
        pointer = buffer.ctypes.data_as(ctypes.c_void_p)
        self.call("dnnl_memory_create", ctypes.byref(memory), descriptor, self.engine, pointer)
        return memory

    def execute(self, description: ctypes.c_void_p, arguments: Mapping[int, ctypes.c_void_p]) -> None:
        """Run a primitive to its end."""
        primitive = ctypes.c_void_p()
        self.call("dnnl_primitive_create", ctypes.byref(primitive), description)
        argument_array = (_Argument * len(arguments))(*(_Argument(number, memory) for number, memory in arguments.items()))
        self.call("dnnl_primitive_execute", primitive, self.stream, len(arguments), argument_array)
        self.call("dnnl_stream_wait", self.stream)
        self.call("dnnl_primitive_destroy", primitive)


class _Primitive:
    """One RNN primitive, with its weights, its input and its states."""

    def __init__(self, library: _DnnlLibrary, weights: Mapping[str, Array], sequences: Sequences, activation: int, merge: str) -> None:
        self.library, self.weights, self.activation, self.merge = library, weights, activation, merge
        layers, self.directions, _, gates, self.hidden = weights["weights_iter"].shape
        self.kind = _KINDS[gates, weights["bias"].shape[2]]
        projection = weights.get("weights_projection")
        out = self.hidden if projection is None else projection.shape[3]
        steps, batch = sequences.x.shape[:2]
        rows = layers * self.directions
        widths = {"hidden": out, **({"cell": self.hidden} if self.kind == "lstm" else {})}
        self.arrays: dict[str, Array] = {
            "src_layer": sequences.x,
            "dst_layer": np.zeros((steps, batch, out * (self.directions if merge == "concat" else 1))),
        }
        for part, states in sequences.first(rows).initial(widths, rows).items():
            initial = states.reshape(layers, self.directions, batch, -1)
            name = _STATES[part]
            self.arrays.update({f"src_{name}": initial, f"dst_{name}": np.zeros_like(initial)})
        self.arrays = {name: np.array(array, np.float32, order="C") for name, array in self.arrays.items()}

    def run(self) -> dict[str, Any]:
        """Return the answer of this primitive."""
        library = self.library
        descriptors = {name: library.like(array) for name, array in self.arrays.items()}
        descriptors |= {name: library.any(array.shape) for name, array in self.weights.items()}
        description = ctypes.c_void_p()
        ways = ctypes.c_int(_JOINED[self.merge] if self.directions == 2 else _FORWARD)
        states = ["src_layer", "src_iter", *(["src_iter_c"] if self.kind == "lstm" else [])]
        extra = ["weights_peephole", "weights_projection"] if self.kind == "lstm" else []
        names = [*states, "weights_layer", "weights_iter", *extra, "bias", *(name.replace("src", "dst") for name in states)]
        flags: list[Any] = [ctypes.c_uint(0)]
        head: list[Any] = [ctypes.c_int(_INFERENCE)]
        if self.kind == "vanilla_rnn":
            head.append(ctypes.c_int(self.activation))
            flags += [ctypes.c_float(0), ctypes.c_float(0)]
        library.call(
            f"dnnl_{self.kind}_forward_primitive_desc_create",
            ctypes.byref(description),
            library.engine,
            *head,
            ways,
            *(descriptors.get(name) for name in names),
            *flags,
            None,
        )
        memories = {name: library.memory(descriptors[name], array) for name, array in self.arrays.items()}
        buffers = []
        for name, array in self.weights.items():
            wanted = library.wanted(description, name)
            buffers.append(np.zeros(library.size(wanted), np.uint8))
            memories[name] = library.memory(wanted, buffers[-1])
            self._reorder(array, wanted, memories[name])
        library.execute(description, {_ARGUMENTS[name]: memory for name, memory in memories.items()})
        finals = [self.arrays[f"dst_{name}"] for name in _STATES.values() if f"dst_{name}" in self.arrays]
        return outputs(self.arrays["dst_layer"], *(final.reshape(-1, *final.shape[2:]) for final in finals))

    def _reorder(self, array: Array, wanted: ctypes.c_void_p, target: ctypes.c_void_p) -> None:
        """Have oneDNN bring an array into the layout that it wants."""
        library, description, source = self.library, ctypes.c_void_p(), self.library.like(array)
        library.call("dnnl_reorder_primitive_desc_create", ctypes.byref(description), source, library.engine, wanted, library.engine, None)
        library.execute(description, {1: library.memory(source, array), 17: target})
