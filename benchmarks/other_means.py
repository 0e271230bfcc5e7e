"""What other tools give for the same files as benchmarks/scaffolds.py, each run in an environment of its own: benchmarks/scaffolds.md.

python benchmarks/other_means.py TOOL FILES.json

TOOL is onnx2torch (ONNX to torch), nobuco (torch modules that `benchmarks.scaffolds --keep` wrote, and TorchScript, to Keras 2), keras
(Keras files as they are) or torch (TorchScript and .pt2 as they are). FILES.json is that of benchmarks/scaffolds.py. Imports nothing of
rnnconvert's. Each file that the tool is for is converted and run beside the source on one random input; a row says how far it is off,
or what the tool said.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import re
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

OPEN = 3
"""The length of axes that a file leaves open."""


def drawn(shape: Sequence[Any], dtype: str) -> Any:
    """Return numbers of a shape and an element type: from 0 to 1, since models embed numbers, too; whole ones below 3."""
    sizes = [size if isinstance(size, int) and size > 0 else OPEN for size in shape]
    generator = np.random.default_rng(0)
    numbers = generator.random(sizes) if "float" in dtype else generator.integers(0, 3, sizes)
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
    """Convert to Keras 2 a torch module that benchmarks/scaffolds.py kept: model.py, with its weights in model.pt; or TorchScript."""
    import nobuco
    import torch

    torch.manual_seed(0)
    if file.endswith(".pt"):
        module, text = torch.jit.load(file), Path(f"{file}.inputs").read_text()
    else:
        spec = importlib.util.spec_from_file_location("model", file)
        assert spec is not None and spec.loader is not None
        spec.loader.exec_module(written := importlib.util.module_from_spec(spec))
        classes = [value for value in vars(written).values() if isinstance(value, type) and value.__module__ == "model"]
        module, text = classes[-1](), Path(file).read_text().partition("def main")[2]
        module.load_state_dict(torch.load(Path(file).with_name("model.pt"), weights_only=True))
    module.eval()
    stated = re.findall(r"torch\.zeros\(([\d, ]+?),?(?: dtype=torch\.(\w+))?\)", text)
    inputs = [torch.from_numpy(drawn([int(n) for n in sizes.split(",")], dtype or "float32")) for sizes, dtype in stated]
    order = nobuco.ChannelOrder.PYTORCH
    model = nobuco.pytorch_to_keras(module, args=inputs, inputs_channel_order=order, outputs_channel_order=order)
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
    "nobuco": (by_nobuco, (".pt", "model.py")),
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
        except Exception as error:  # whatever a tool raises is a row of the table
            result = f"{type(error).__name__}: {' '.join(str(error).split())[:160]}"
        print(f"| {entry['repo']} `{entry['path']}` | {result} | {time.monotonic() - begun:.0f} |", flush=True)
    print(f"{asked.tool}: {done} of the {len(fitting)} files that it is for, of {len(entries)}")


if __name__ == "__main__":
    main()
