"""What the cuDNN library itself says of its weight buffer, on any machine: no GPU is touched.

Run as a program, so that a crash of the library ends this process and no other: it reads a list of
descriptions from standard input and writes the library's answers to standard output, both JSON.

The layout calls need a handle and take any non-null block of zeros for one. This is undocumented, good for
a test and not for a product.
"""

from __future__ import annotations

import ctypes
import json
import pathlib
import sys
from typing import Any

from rnnconvert.formats.cudnn.run_library import CudnnLibrary, configured, layout

BASE = 1 << 40
"""Where the buffer is said to be; only differences to it are read."""


def ask(library: CudnnLibrary, description: dict[str, Any]) -> dict[str, Any]:
    """Size of the buffer in bytes; and for each matrix and bias where it starts, dims and strides."""
    handle = ctypes.create_string_buffer(1 << 20)
    with configured(library, handle, description) as rnn:
        return layout(library, handle, rnn, description, BASE)


if __name__ == "__main__":
    folder, *names = sys.argv[1:]
    loaded = CudnnLibrary([str(pathlib.Path(folder) / name) for name in names])
    json.dump([ask(loaded, description) for description in json.load(sys.stdin)], sys.stdout)
