"""What other tools give for the same files as benchmarks/scaffolds.py, each run in an environment of its own: docs/gallery.md.

python benchmarks/other_means.py TOOL FILES.json

TOOL is onnx2torch (ONNX to torch), nobuco (a torch module or TorchScript to Keras 2), keras (Keras files as they are) or torch
(TorchScript and .pt2 as they are). FILES.json is that of benchmarks/scaffolds.py. Imports nothing of rnnconvert's. Each file that the
tool is for is converted and run beside the source on one random input; a row says how far it is off, or what the tool said.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

OPEN = 3
"""The length of axes that a file leaves open."""


def drawn(shape: Sequence[Any], dtype: str) -> Any:
    """Return numbers of a shape and an element type, whole ones below 3."""
    sizes = [size if isinstance(size, int) and size > 0 else OPEN for size in shape]
    generator = np.random.default_rng(0)
    numbers = generator.standard_normal(sizes) if "float" in dtype else generator.integers(0, 3, sizes)
    return numbers.astype(dtype)


def off(results: Any, wanted: Any) -> float:
    """Return the largest difference of two lists of arrays. Raises ValueError for other shapes."""
    pairs = [(np.asarray(a), np.asarray(b)) for a, b in zip(results, wanted, strict=True)]
    if any(a.shape != b.shape for a, b in pairs):
        raise ValueError(f"shapes {[a.shape for a, _ in pairs]}, not {[b.shape for _, b in pairs]}")
    return max(float(np.abs(a - b).max()) for a, b in pairs)


def arrays(value: Any) -> list[Any]:
    """Return the arrays in what a model gives."""
    if isinstance(value, (list, tuple)):
        return [array for item in value for array in arrays(item)]
    return [value.detach().numpy() if hasattr(value, "detach") else np.asarray(value)]


def by_onnx2torch(file: str) -> float:
    """Convert an ONNX file to torch, and run it beside onnxruntime."""
    import onnx2torch
    import onnxruntime
    import torch

    session = onnxruntime.InferenceSession(file)
    types = {"tensor(float)": "float32", "tensor(int64)": "int64", "tensor(int32)": "int32", "tensor(double)": "float64"}
    feeds = {value.name: drawn(value.shape, types[value.type]) for value in session.get_inputs()}
    module = onnx2torch.convert(file).eval()
    with torch.no_grad():
        return off(arrays(module(*map(torch.from_numpy, feeds.values()))), session.run(None, feeds))


def by_nobuco(file: str) -> float:
    """Convert TorchScript to Keras 2, on inputs of the shapes that the file's `shapes` beside it states."""
    import nobuco
    import torch

    module = torch.jit.load(file).eval()
    shapes = json.loads(Path(f"{file}.shapes.json").read_text())
    inputs = [torch.from_numpy(drawn(shape, "float32")) for shape in shapes]
    model = nobuco.pytorch_to_keras(module, args=inputs)
    with torch.no_grad():
        return off(arrays(model([value.numpy() for value in inputs])), arrays(module(*inputs)))


def by_keras(file: str) -> float:
    """Load a Keras file and run it: nothing is converted, so that it is off by nothing."""
    import keras

    model = keras.saving.load_model(file, compile=False)
    model([drawn(value.shape, str(value.dtype)) for value in model.inputs])
    return 0.0


def by_torch(file: str) -> float:
    """Load TorchScript or an exported program: nothing is converted."""
    import torch

    torch.export.load(file) if file.endswith(".pt2") else torch.jit.load(file)
    return 0.0


TOOLS: dict[str, tuple[Callable[[str], float], tuple[str, ...]]] = {
    "onnx2torch": (by_onnx2torch, (".onnx",)),
    "nobuco": (by_nobuco, (".pt",)),
    "keras": (by_keras, (".keras", ".h5", ".hdf5")),
    "torch": (by_torch, (".pt", ".pt2")),
}


def main() -> None:
    """Print a row for each file that the tool is for, and how many there are."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tool", choices=list(TOOLS))
    parser.add_argument("files", type=Path)
    asked = parser.parse_args()
    convert, endings = TOOLS[asked.tool]
    warnings.simplefilter("ignore")
    entries = json.loads(asked.files.read_text())
    fitting = [entry for entry in entries if entry["file"].endswith(endings)]
    done = 0
    for entry in fitting:
        begun = time.monotonic()
        try:
            result, done = f"off by {convert(entry['file']):.1e}", done + 1
        except BaseException as error:  # whatever a tool raises is a row of the table
            if isinstance(error, KeyboardInterrupt):
                raise
            result = f"{type(error).__name__}: {' '.join(str(error).split())[:160]}"
        print(f"| {entry['repo']} `{entry['path']}` | {result} | {time.monotonic() - begun:.0f} |", flush=True)
    print(f"{asked.tool}: {done} of the {len(fitting)} files that it is for, of {len(entries)}")


if __name__ == "__main__":
    main()
