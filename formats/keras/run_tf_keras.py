"""Keras 2's own recurrent layers, by tf_keras: files of Keras 1, 2 and tf.keras as the version that wrote them runs them.

Layers are run one after the other, each by its own call. Sources: tf_keras/src/layers/rnn/*.py (2.21).
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rnnconvert.running.sequences import Sequences, WeightsAloneError, outputs

from .run_loading import refuse_code
from .run_model import STATES, config_of, directions, prepared, with_slashes
from .run_saved import folder_of, run_whole
from .run_witness import chosen, forget, output_names, shaking, stated, watch

Array = np.ndarray

NEEDS = ("tf_keras", "tensorflow")
FORMAT = "keras"
SUFFIX = ".h5"
SUPPORTS = "SimpleRNN, GRU of both kinds, LSTM, Bidirectional, with the functions of Keras 2; masks; no stacked cells, no gradients"
CANNOT = {"cotangents": "gradients are not asked of tf_keras", "how": "the model already states what it computes"}
VARIANTS: dict[str, dict[str, Any]] = {
    # "as_written": it computes what a file of Keras 2 says, where Keras 3 computes something else of it.
    "tf_keras": {
        "device": "cpu",
        "as_written": True,
        "without": ["jax"],
        "environment": {
            "CUDA_VISIBLE_DEVICES": "-1",
            "TF_ENABLE_ONEDNN_OPTS": "0",
            "TF_NUM_INTRAOP_THREADS": "1",
            "TF_NUM_INTEROP_THREADS": "1",
        },
    }
}


def answer(request: Mapping[str, Any]) -> dict[str, Any]:
    """Run layers of a model, or all of a model that is one chain of them; see rnnconvert.running."""
    file = request["file"]
    layers = _layers(file, Path(file).stat().st_mtime_ns, tuple(request["layers"]))
    return _solved(layers, Sequences.of(request))


def witness(request: Mapping[str, Any]) -> None:
    """Run a model whole, and record the calls of its layers; see rnnconvert.running."""
    import tensorflow

    seen, folder = request["witness"], folder_of(request["file"])
    if folder:
        run_whole(folder, seen)
        return
    model = _loaded(request["file"])
    for name, layer in chosen(list(_every(model)), seen.layers, seen).items():
        watch(layer, name, seen, _array, lambda value: [] if value is None else tensorflow.nest.flatten(value), _count)

    def call(arrays: Sequence[Array]) -> dict[str, Array]:
        packed = arrays[0] if len(arrays) == 1 else tensorflow.nest.pack_sequence_as(model.input, list(arrays))
        # Without `training`: to state it would undo what a call of a layer in the model states itself.
        return output_names(model, seen.named(model(packed), _array))

    cells = [cell for cell in model._flatten_layers() if type(cell).__name__ in ("LSTMCell", "GRUCell")]
    seen.run(stated(model, seen), call, lambda: forget(model), shaking(model, cells, tensorflow))


@functools.lru_cache(maxsize=1)
def _layers(file: str, written: int, names: Sequence[str]) -> list[Any]:
    """Return the layers of these names, or all of a chain, ready to give everything; read once for all cases."""
    model = _loaded(file)
    layers = [_named(model, name) for name in names] if names else list(_chain(model))
    for layer in layers:
        for way in directions(layer):
            _count(way)
    return [prepared(layer) for layer in layers]


def _loaded(file: str) -> Any:
    """Return the model of a file. Raises NotImplementedError if tf_keras cannot make a model of it."""
    import tf_keras

    if file.endswith(".weights.h5") or not file.endswith((".keras", ".h5", ".hdf5")):
        raise WeightsAloneError(f"{Path(file).name} holds weights without a model; tf_keras runs a .keras file, or an .h5")
    try:
        with with_slashes(file) as readable:
            refuse_code(config_of(readable), "tf_keras")
            return tf_keras.models.load_model(readable, compile=False)
    except (ValueError, TypeError, KeyError, AttributeError, ImportError, OSError) as error:
        message = " ".join(str(error).split())
        raise NotImplementedError(f"tf_keras {tf_keras.__version__} cannot load it as a model: {message[:300]}") from None


def _is_recurrent(layer: Any) -> bool:
    import tf_keras

    return isinstance(layer, (tf_keras.layers.RNN, tf_keras.layers.Bidirectional)) or "CuDNN" in type(layer).__name__


def _every(model: Any, scope: tuple[str, ...] = ()) -> Iterator[tuple[list[str], Any]]:
    """Yield each recurrent layer of a model and of the models in it, with the names that it may have."""
    for layer in model.layers:
        if _is_recurrent(layer):
            yield [layer.name, "/".join((*scope, layer.name))], layer
        elif hasattr(layer, "layers"):
            yield from _every(layer, (*scope, layer.name))


def _named(model: Any, name: str) -> Any:
    labelled = list(_every(model))
    matches = [layer for names, layer in labelled if name in names]
    if len(matches) != 1:
        there = ", ".join(names[-1] for names, _ in labelled) or "none"
        raise NotImplementedError(f"the model has {len(matches) or 'no'} recurrent layers {name!r}; it has {there}")
    return matches[0]


def _chain(model: Any) -> Iterator[Any]:
    """Yield the layers of a model that is one chain of recurrent layers."""
    import tf_keras

    for layer in model.layers:
        if _is_recurrent(layer):
            yield layer
        elif not isinstance(layer, (tf_keras.layers.InputLayer, tf_keras.layers.Masking)):
            raise NotImplementedError(f"the model has a {type(layer).__name__} between its recurrent layers: name these")
    if not isinstance(model, tf_keras.Sequential) and any(len(layer.inbound_nodes) != 1 for layer in model.layers):
        raise NotImplementedError("the model calls a layer more than once: name its layers")
    if any(len(_parents(layer)) > 1 for layer in model.layers):
        raise NotImplementedError("the model is not one chain of layers: name them")


def _parents(layer: Any) -> list[Any]:
    layers = layer.inbound_nodes[0].inbound_layers if layer.inbound_nodes else []
    return list(layers) if isinstance(layers, (list, tuple)) else [layers]


def _count(way: Any) -> int:
    """Return the number of a direction's states."""
    name = type(way.cell).__name__ if hasattr(way, "cell") else type(way).__name__
    if name not in STATES:
        raise NotImplementedError(f"a {name}: tf_keras runs it on a GPU only, or the meaning of its states is unknown")
    return STATES[name]


def _solved(layers: Sequence[Any], sequences: Sequences) -> dict[str, Any]:
    import tensorflow

    dtype = layers[0].compute_dtype
    steps, batch, _ = np.shape(sequences.x)
    mask = None if sequences.lengths is None else tensorflow.sequence_mask(np.asarray(sequences.lengths), steps)

    def tensor(values: Any) -> Any:
        return tensorflow.cast(tensorflow.convert_to_tensor(np.asarray(values, np.float64)), dtype)

    def run(layer: Any, left: Sequences) -> dict[str, Any]:
        ways = directions(layer)
        first, zeros = left.first(len(ways)), [np.zeros((batch, way.units)) for way in ways]
        pairs = zip(ways, first.hidden or zeros, first.cell or zeros)
        initial = [tensor(state) for way, *pair in pairs for state in pair[: _count(way)]] if first.stacked() else None
        values = list(layer(tensor(np.swapaxes(left.x, 0, 1)), initial_state=initial, mask=mask))
        apart = 2 if len(ways) == 2 and layer.merge_mode is None else 1
        y = np.concatenate([_array(value) for value in values[:apart]], axis=-1)
        finals = [[_array(values.pop(apart)) for _ in range(_count(way))] for way in ways]
        cells = [state for _, *rest in finals for state in rest]
        return outputs(np.ascontiguousarray(y.swapaxes(0, 1)), [hidden for hidden, *_ in finals], cells)

    return {**sequences.through(layers, run), "notes": {"Keras": "2, as tf_keras"}}


def _array(tensor: Any) -> Array:
    array: Array = np.asarray(tensor)
    return array.astype(np.float32) if array.dtype.name in ("float16", "bfloat16") else array
