"""Whole Keras models, on the backend that Keras runs on here."""

from __future__ import annotations

import json
import os
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from rnnconvert.containers import json_text
from rnnconvert.core.arrays import Array, epsilon
from rnnconvert.core.errors import ExecutorError, MissingPackageError, RefusedError, UsageError
from rnnconvert.formats.keras import architecture
from rnnconvert.formats.keras.live import numbers
from rnnconvert.formats.keras.object_checkpoint import keras_metadata
from rnnconvert.formats.keras.run_exact import exact as exact
from rnnconvert.formats.keras.run_exact import in_float32, shut_gates
from rnnconvert.formats.keras.upgrade import files as upgrade
from rnnconvert.models.model import Unit
from rnnconvert.models.runners import FileModel, ModelOutputs, NotRunError, Tap, moved

NAME = "keras"

_COPY = "model.keras"
"""The name of a file that runs in place of an old one, or of weights."""


def open_file(path: Path, config: Path | None = None) -> FileModel:
    """Return a whole model's file as Keras runs it, in safe mode; a SavedModel as TensorFlow does.

    config  the model of weights that are alone, as model.to_json wrote it

    What Keras 1 or 2 wrote is brought up first (formats/keras/upgrade/files.py): Keras 3 refuses some of it, and computes something
    else of some. Where tf_keras is there, the old file runs in it, too. So is a SavedModel of mixed precision, whose layers Keras can
    run in float32.

    Raises UsageError for weights without a model, MissingPackageError without Keras.
    """
    policies: set[str] = set()
    if path.is_dir():
        stated = keras_metadata(path).model or {}
        in_float32(stated, policies)
        if not policies:
            inputs, outputs = (_names(stated.get("config", {}).get(key)) for key in ("input_layers", "output_layers"))
            return FileModel(path, ["keras-tensorflow", "tf_keras"], inputs=inputs, outputs=outputs)
    if config is not None and architecture.read(config)[1].startswith("3"):
        return FileModel.of_copy(path, _executors(), _COPY, lambda copy: _together(config, path, copy), (f"config={config}",))
    if path.name.endswith(".weights.h5") and config is None:
        raise UsageError(f"{path} holds only weights. Hand in the live model: report.verify(inputs, source=model)")
    if config is not None or policies or upgrade.written_before_keras_3(path):
        settings = () if config is None else (f"config={config}",)
        return FileModel.of_copy(path, _executors(), _COPY, lambda copy: _upgraded(path, copy, config), settings)
    return FileModel(path, _executors())


def _executors() -> list[str]:
    """Return the executors of Keras, first that of the backend that Keras is set to."""
    loaded = sys.modules.get("keras")
    backend = loaded.backend.backend() if loaded is not None else os.environ.get("KERAS_BACKEND") or _configured()
    return sorted(("keras-tensorflow", "keras-torch", "keras-jax"), key=lambda name: name != f"keras-{backend}")


def _configured() -> str:
    """Return the backend in the user's settings of Keras, "" where there are none."""
    home = Path(os.environ.get("KERAS_HOME") or Path.home() / ".keras")
    try:
        return str(dict(json_text.loads((home / "keras.json").read_bytes(), "keras.json")).get("backend", ""))
    except (OSError, ValueError, TypeError):  # as for Keras, what is no file of settings sets nothing
        return ""


def _together(config: Path, weights: Path, copy: Path) -> str:
    """Write weights of Keras 3, and the model that another file states, as one file."""
    document, version = architecture.read(config)
    with zipfile.ZipFile(copy, "w") as archive:
        archive.writestr("config.json", json.dumps(document))
        archive.writestr("metadata.json", json.dumps({"keras_version": version, "date_saved": ""}))
        archive.write(weights, "model.weights.h5")
    return ""


def _upgraded(path: Path, upgraded: Path, config: Path | None) -> str:
    """Write a file of Keras 1 or 2 as one of Keras 3, and say how that was proved."""
    why = "tf_keras is not installed"
    try:
        done = upgrade.upgrade(path, upgraded, config=config, verify=True)
        return f"{path} is a Keras 2 file: it ran in Keras 3, after `rnnconvert upgrade` ({done.proof})"
    except MissingPackageError:
        pass
    except ExecutorError as error:
        why = error.problem
    except RefusedError as error:
        raise NotRunError(f"{path} is not run: it is a Keras 2 file, and Keras 3 cannot hold {error.feature}: {error.reason}.") from error
    upgrade.upgrade(path, upgraded, config=config, force=True)
    return f"{path} is a Keras 2 file: it ran in Keras 3, after `rnnconvert upgrade`, which tf_keras did not confirm ({why})"


def _names(stated: object) -> list[str]:
    """Return the names of the tensors that a configuration lists."""
    return [str(reference[0]) for reference in stated if isinstance(reference, list) and reference] if isinstance(stated, list) else []


def run(live: Any, inputs: Sequence[Array], units: Sequence[Unit], before: Sequence[Sequence[Array]] = ()) -> ModelOutputs:
    """Run the model without training, recording its recurrent layers' outputs."""
    taps: dict[str, Tap] = {}
    layers = dict(_layers(live))
    wrapped = []
    states = _states(live)
    old = [numbers(state) for state in states]
    for state in states:
        state.assign(np.zeros(state.shape))
    for earlier in before:
        _call(live, earlier)
    for unit in units:
        layer = layers.get(unit.name.partition("[")[0])
        if layer is not None and "[" not in unit.name:
            wrapped.append((layer, layer.call))
            layer.call = _hearing(layer.call, taps, unit.name)
    try:
        outputs = tuple(numbers(tensor).copy() for tensor in _tensors(_call(live, inputs)))
    finally:
        for layer, call in wrapped:
            layer.call = call
        for state, values in zip(states, old, strict=True):
            state.assign(values)
    return ModelOutputs(outputs, taps)


def saved(live: Any, folder: Path, example: Sequence[Any]) -> Path:
    """Write a model as Keras saves it."""
    path = folder / ("model.keras" if hasattr(live, "export") else "model.h5")
    live.save(path)
    return path


def input_names(live: Any) -> list[str]:
    """Return the names of a model's inputs; () for a layer, or a model of a class of one's own, which is called as its author calls it."""
    return list(getattr(live, "input_names", None) or [getattr(tensor, "name", "") for tensor in getattr(live, "inputs", None) or ()])


def _call(live: Any, inputs: Sequence[Array]) -> Any:
    """Return the outputs of a model for copies of inputs, which some backends share with it."""
    copies = [np.array(array) for array in inputs]
    return live(copies[0] if len(copies) == 1 else copies, training=False)


def _states(model: Any) -> list[Any]:
    """Return the states that stateful layers keep from one batch to the next: a run begins without them, and leaves them unchanged."""
    layers = [layer for _, layer in _layers(model)]
    inside = [part for layer in layers for part in (layer, *getattr(layer, "_layers", []))]
    states = [state for layer in inside if getattr(layer, "stateful", False) for state in _several(layer)]
    return list({id(state): state for state in states}.values())


def _several(layer: Any) -> list[Any]:
    states = getattr(layer, "states", None)
    return list(states) if isinstance(states, (list, tuple)) else []


def _layers(model: Any, path: str = "") -> list[tuple[str, Any]]:
    """Return every layer by its path through the models around it."""
    result = []
    for layer in getattr(model, "layers", []) or [model]:
        layer_path = f"{path}/{layer.name}".lstrip("/")
        result.append((layer_path, layer))
        if layer is not model and getattr(layer, "layers", None):
            result += _layers(layer, layer_path)
    return result


def _hearing(call: Any, taps: dict[str, Tap], name: str) -> Any:
    """Return a layer's `call` that keeps what the first one gave, as it was then: some backends can change it in place."""

    def hearing(*values: Any, **keywords: Any) -> Any:
        output = call(*values, **keywords)
        if name not in taps:
            taps[name] = _tap(output)
        return output

    return hearing


def _tap(output: Any) -> Tap:
    plain = numbers(_tensors(output)[0]).copy()
    return Tap(plain.swapaxes(0, 1)) if plain.ndim == 3 else Tap(last=plain)


def _tensors(outputs: Any) -> list[Any]:
    if isinstance(outputs, dict):
        outputs = list(outputs.values())
    return list(outputs) if isinstance(outputs, (list, tuple)) else [outputs]


def shaken(live: Any, seed: int) -> Any:
    """Return a clone with every floating-point variable moved, and the gates that multiply values of any size.

    Raises UsageError for a subclassed model, which Keras cannot clone.
    """
    import keras

    try:
        copy = keras.models.clone_model(live)
    except Exception as error:  # a layer's own code runs, and may raise anything
        raise UsageError(f"Keras cannot clone {live.name!r}, so the effect of rounding is unknown: {error}") from None
    generator = np.random.default_rng(seed)
    for target, source in zip(copy.weights, live.weights, strict=True):
        plain = numbers(source)
        if plain.dtype.kind == "f" or plain.dtype == ml_dtypes.bfloat16:
            plain = moved(plain, epsilon(plain.dtype), generator).astype(plain.dtype)
        target.assign(plain)
    shut_gates(
        [cell for cell in copy._flatten_layers() if isinstance(cell, (keras.layers.LSTMCell, keras.layers.GRUCell))], keras.ops, seed
    )
    return copy
