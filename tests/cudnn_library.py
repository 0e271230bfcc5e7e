"""What the cuDNN library itself says of its weight buffer, on any machine: no GPU is touched.

Run as a program, so that a crash of the library ends this process and no other: it reads a list of
configurations from standard input and writes the library's answers to standard output, both JSON.

The layout calls need a handle and take any non-null block of zeros for one. This is undocumented, good for
a test and not for a product. Signatures and numbers: cudnn_adv.h and cudnn_graph.h of cuDNN 9.
"""

from __future__ import annotations

import ctypes
import json
import pathlib
import sys
from typing import Any

CELLS = {"relu": 0, "tanh": 1, "lstm": 2, "gru": 3}
BIASES = {"none": 0, "input": 1, "both": 2, "recurrent": 3}
DTYPES = {"float32": 0, "float64": 1, "float16": 2, "bfloat16": 9}
IDENTITIES = {"relu": 2, "tanh": 2, "lstm": 9, "gru": 6}
"""How many linLayerIDs there are; the LSTM's last one is its projection."""

BASE = 1 << 40
"""Where the buffer is said to be; only differences to it are read."""

STANDARD, FMA = 0, 3


class Library:
    """The calls that are needed, each checked."""

    def __init__(self, folder: pathlib.Path, names: tuple[str, ...]) -> None:
        for name in names:
            self.c = ctypes.CDLL(str(folder / name), mode=ctypes.RTLD_GLOBAL)
        self.handle = ctypes.create_string_buffer(1 << 20)
        self.dropout = self.made("cudnnCreateDropoutDescriptor")
        no_bytes, no_seed = ctypes.c_size_t(0), ctypes.c_ulonglong(0)
        self("cudnnSetDropoutDescriptor", self.dropout, self.handle, ctypes.c_float(0), None, no_bytes, no_seed)
        self.rnn = self.made("cudnnCreateRNNDescriptor")
        self.matrix = self.made("cudnnCreateTensorDescriptor")
        self.bias = self.made("cudnnCreateTensorDescriptor")

    def __call__(self, function: str, *arguments: Any) -> None:
        status = getattr(self.c, function)(*arguments)
        if status:
            raise RuntimeError(f"{function} returned {status}")

    def made(self, function: str) -> ctypes.c_void_p:
        descriptor = ctypes.c_void_p()
        self(function, ctypes.byref(descriptor))
        return descriptor

    def tensor(self, descriptor: ctypes.c_void_p) -> tuple[list[int], list[int]]:
        """Dimensions and strides."""
        kind, count = ctypes.c_int(), ctypes.c_int()
        dims, strides = (ctypes.c_int * 8)(), (ctypes.c_int * 8)()
        self(
            "cudnnGetTensorNdDescriptor",
            descriptor,
            8,
            ctypes.byref(kind),
            ctypes.byref(count),
            dims,
            strides,
        )
        return dims[: count.value], strides[: count.value]

    def ask(self, case: dict[str, Any]) -> dict[str, Any]:
        """Size of the buffer in bytes; and for each matrix and bias where it starts, dims and strides."""
        precision = DTYPES["float64" if case["dtype"] == "float64" else "float32"]
        self(
            "cudnnSetRNNDescriptor_v8", self.rnn, STANDARD, CELLS[case["cell"]], BIASES[case["biases"]],
            case["directions"] - 1, int(case["skip"]), DTYPES[case["dtype"]], precision, FMA,
            case["input"], case["hidden"], case["projection"] or case["hidden"], case["layers"],
            self.dropout, ctypes.c_uint(0),
        )  # fmt: skip
        size = ctypes.c_size_t()
        self("cudnnGetRNNWeightSpaceSize", self.handle, self.rnn, ctypes.byref(size))
        rows = []
        for pseudo_layer in range(case["layers"] * case["directions"]):
            for identity in range(IDENTITIES[case["cell"]]):
                matrix, bias = ctypes.c_void_p(), ctypes.c_void_p()
                self(
                    "cudnnGetRNNWeightParams", self.handle, self.rnn, pseudo_layer, size,
                    ctypes.c_void_p(BASE), identity, self.matrix, ctypes.byref(matrix), self.bias,
                    ctypes.byref(bias),
                )  # fmt: skip
                for what, address, descriptor in (("matrix", matrix, self.matrix), ("bias", bias, self.bias)):
                    if address.value is not None:
                        start = address.value - BASE
                        rows.append([pseudo_layer, identity, what, start, *self.tensor(descriptor)])
        return {"bytes": size.value, "rows": rows}


if __name__ == "__main__":
    library = Library(pathlib.Path(sys.argv[1]), tuple(sys.argv[2:]))
    json.dump([library.ask(case) for case in json.load(sys.stdin)], sys.stdout)
