"""A Keras 2 file with layers that Keras 3 cannot load, or loads wrongly, read without TensorFlow.

CuDNNGRU is gone from Keras 3, and its weights lie as cuDNN had them; `hard_sigmoid` is not the same function as
in Keras 2, so an LSTM loads without a warning and gives other numbers. rnnconvert reads both from the file itself: the GRU
goes to PyTorch, whose cell it is, the LSTM to ONNX, which takes the function with its numbers.

The file is made here with h5py, name for name and attribute for attribute as Keras 2.2.4 writes it, with random weights.

    python examples/keras_2_rescue.py [folder]

Needs: rnnconvert; onnxruntime to run the result, if it is installed.
"""

import importlib.util
import json
import sys
import tempfile
from pathlib import Path

import h5py
import numpy as np

import rnnconvert as rc

# From here on any import of TensorFlow or Keras is an error: nothing below may need them.
sys.modules["tensorflow"] = sys.modules["keras"] = None  # type: ignore[assignment]

LAYERS = {
    "cu_dnngru_1": ("CuDNNGRU", {"units": 5, "return_sequences": True, "batch_input_shape": [None, None, 4]},
                    {"kernel": (4, 15), "recurrent_kernel": (5, 15), "bias": (30,)}),
    "lstm_1": ("LSTM", {"units": 3, "return_sequences": True, "activation": "tanh", "use_bias": True,
                        "recurrent_activation": "hard_sigmoid", "implementation": 1},
               {"kernel": (5, 12), "recurrent_kernel": (3, 12), "bias": (12,)}),
}  # fmt: skip
"""Of each layer: its class, the part of its configuration that matters, and its weights."""


def write_as_keras_2(path: Path) -> None:
    """Write a whole model as Keras 2 saved it."""
    random = np.random.default_rng(5)
    configs = [{"class_name": kind, "config": {"name": name, **config}} for name, (kind, config, _) in LAYERS.items()]
    with h5py.File(path, "w") as file:
        file.attrs["keras_version"], file.attrs["backend"] = b"2.2.4", b"tensorflow"
        file.attrs["model_config"] = json.dumps(
            {"class_name": "Sequential", "config": {"name": "sequential_1", "layers": configs}}
        ).encode()
        weights = file.create_group("model_weights")
        weights.attrs["layer_names"] = [name.encode() for name in LAYERS]
        weights.attrs["keras_version"], weights.attrs["backend"] = b"2.2.4", b"tensorflow"
        for name, (_, _, shapes) in LAYERS.items():
            group = weights.create_group(name)
            group.attrs["weight_names"] = [f"{name}/{weight}:0".encode() for weight in shapes]
            for weight, shape in shapes.items():
                group[f"{name}/{weight}:0"] = random.uniform(-1, 1, shape).astype(np.float32)


def lstm_of_keras_2(path: Path, x: np.ndarray) -> np.ndarray:
    """Compute what Keras 2 computed, (time, batch, 5) to (time, batch, 3), from the file's own arrays."""
    with h5py.File(path) as file:
        stored = file["model_weights/lstm_1/lstm_1"]
        kernel, recurrent, bias = (np.asarray(stored[f"{name}:0"], float) for name in LAYERS["lstm_1"][2])

    def hard_sigmoid(value: np.ndarray) -> np.ndarray:
        return np.clip(0.2 * value + 0.5, 0, 1)

    h = c = np.zeros((x.shape[1], 3))
    steps = []
    for step in x:
        i, f, candidate, o = np.split(step @ kernel + h @ recurrent + bias, 4, axis=1)
        c = hard_sigmoid(f) * c + hard_sigmoid(i) * np.tanh(candidate)
        h = hard_sigmoid(o) * np.tanh(c)
        steps.append(h)
    return np.stack(steps)


def main(folder: Path) -> None:
    """Make the file, read it, and write both layers where they can go."""
    old = folder / "keras_2_model.h5"
    write_as_keras_2(old)
    checkpoint = rc.load(old)
    for name, layer in checkpoint.layers.items():
        print(f"{name}: {layer.describe()}")

    print("\n".join(rc.convert(old, folder / "gru.safetensors", layers=["cu_dnngru_1"], force=True).recipe))
    print(rc.convert(old, folder / "lstm.onnx", layers=["lstm_1"], force=True).notes[0])
    try:
        rc.convert(old, folder / "lstm.safetensors", layers=["lstm_1"])
    except rc.RefusedError as refusal:
        print(f"refused: {refusal}")

    if importlib.util.find_spec("onnxruntime") is None:
        print("onnxruntime is not installed, so the result does not run here")
        return
    import onnxruntime

    x = np.random.default_rng(6).normal(size=(9, 2, 5)).astype(np.float32)
    session = onnxruntime.InferenceSession(folder / "lstm.onnx")
    outputs = session.run(None, {session.get_inputs()[0].name: x})[0]
    difference = np.abs(outputs - lstm_of_keras_2(old, x)).max()
    print(f"largest difference from Keras 2's own equations: {difference:.2g}")
    if difference > 1e-5:
        sys.exit("the two are not equal")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as temporary:
            main(Path(temporary))
