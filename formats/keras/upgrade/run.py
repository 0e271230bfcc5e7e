"""A whole model run by tf_keras or by Keras, in a separate process: python run.py FRAMEWORK MODEL FOLDER CALLS.

Inputs are drawn by Keras, which knows their shapes, and kept in FOLDER/x.npz; outputs go to FOLDER/FRAMEWORK.npz, outputs with every weight
about one unit in the last place off to keras_1.npz and so on. Imports only numpy and the framework.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

SHAKES = 3
BATCH, TIME = 4, 7


def main(framework: str, model: str, folder: str, calls: str) -> dict[str, str]:
    """Run a file, one with stateful layers so many times; return what went wrong, if anything did."""
    if importlib.util.find_spec(framework) is None:
        return {"absent": framework}
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import numpy as np

    for name in ("matplotlib", "jax") if framework == "tf_keras" else ("matplotlib",):
        sys.modules.setdefault(name, None)  # type: ignore[arg-type]  # nothing here needs them, and each takes a second
    keras = __import__(framework)
    try:
        refuse_code(Path(model), framework)
        live = keras.models.load_model(model, compile=False)
        if framework == "keras":
            np.savez(Path(folder, "x.npz"), **{f"x{n}": array for n, array in enumerate(inputs(keras, live))})
        with np.load(Path(folder, "x.npz"), allow_pickle=False) as archive:
            tensors = [archive[f"x{n}"] for n in range(len(archive.files))]
        save(Path(folder, f"{framework}.npz"), run(live, tensors, int(calls)))
        for seed in range(SHAKES if framework == "keras" else 0):
            shake(live, seed)
            save(Path(folder, f"keras_{seed}.npz"), run(live, tensors, int(calls)))
    except Exception as error:  # a framework raises what it likes
        return {"failed": f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0][:300]}"}
    return {}


def refuse_code(model: Path, framework: str) -> None:
    """Raise NotImplementedError for a model that would execute code while it is loaded: see formats/keras/run_loading.py."""
    room, load = Path(__file__).resolve().parents[1], globals()["load"]  # of rnnconvert/running/child.py, which runs this script
    loading = load(str(room / "run_loading.py"))
    if model.is_dir():
        loading.checked(str(model))
    else:
        loading.refuse_code(load(str(room / "run_model.py")).config_of(str(model)), framework)


def leaves(model: Any) -> Iterator[Any]:
    """Yield every layer, those inside others among them."""
    for layer in getattr(model, "layers", []):
        yield layer
        yield from leaves(layer)
        inner = getattr(layer, "layer", None)
        if inner is not None:
            yield inner
            yield from leaves(inner)


def inputs(keras: Any, model: Any) -> list[Any]:
    """Return random inputs; whole numbers where a model embeds them, and steps to skip where it masks."""
    import numpy as np

    random = np.random.default_rng(0)
    inputs_, layers = [], list(leaves(model))
    sizes = [layer.input_dim for layer in layers if isinstance(layer, keras.layers.Embedding)]
    skipped = [layer.mask_value for layer in layers if isinstance(layer, keras.layers.Masking)]
    for tensor in model.inputs:
        free = iter([BATCH])
        shape = [size or next(free, TIME) for size in tensor.shape]
        integral = sizes and (len(shape) == 2 or "int" in str(tensor.dtype))
        x = random.integers(1 if min(sizes) > 1 else 0, min(sizes), shape) if integral else random.standard_normal(shape)
        if len(shape) > 1 and shape[1] > 2 and (integral or (skipped and len(shape) > 2)):
            masked: list[Any] = [(0, slice(-2, None)), (-1, 1), *([(1, slice(2))] if shape[0] > 2 else [])]  # end, middle, beginning
            for row, steps in masked:
                x[row, steps] = 0 if integral else skipped[0]
        inputs_.append(x.astype(str(tensor.dtype)))
    return inputs_


def run(model: Any, tensors: list[Any], calls: int) -> list[Any]:
    """Return the outputs; of a model with stateful layers those of several calls, one behind the other, before the states are reset."""
    import numpy as np

    keeping = [layer for layer in leaves(model) if getattr(layer, "stateful", False) and hasattr(layer, "reset_states")]
    every = []
    for _ in range(calls if keeping else 1):
        outputs = model(tensors if len(tensors) > 1 else tensors[0], training=False)
        every.append([np.asarray(output, dtype="float64") for output in (outputs if isinstance(outputs, (list, tuple)) else [outputs])])
    for layer in keeping:
        layer.reset_states()
    return [np.concatenate([outputs[number] for outputs in every]) for number in range(len(every[0]))] if keeping else every[0]


def shake(model: Any, seed: int) -> None:
    """Move every weight by about one unit in the last place."""
    import numpy as np

    random = np.random.default_rng(seed)
    for weight in model.weights:
        values = np.asarray(weight)
        if values.dtype.kind == "f":
            step = np.where(random.random(values.shape) < 0.5, -0.5, 0.5) * np.finfo(values.dtype).eps
            weight.assign((values.astype("float64") * (1 + step)).astype(values.dtype))


def save(path: Path, outputs: list[Any]) -> None:
    """Keep outputs in order."""
    import numpy as np

    np.savez(path, **{f"y{number}": output for number, output in enumerate(outputs)})


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:])))
