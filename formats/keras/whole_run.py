"""Whole Keras models, on the backend that Keras runs on here."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rnnconvert.containers.temporary import new_folder
from rnnconvert.core.arrays import Array
from rnnconvert.core.errors import ExecutorError, MissingPackageError, UsageError
from rnnconvert.formats.keras import architecture
from rnnconvert.formats.keras.live import numbers
from rnnconvert.formats.keras.object_checkpoint import keras_metadata
from rnnconvert.formats.keras.policy import MIXED
from rnnconvert.formats.keras.shaken import shaken as shaken
from rnnconvert.formats.keras.upgrade import files as upgrade
from rnnconvert.models.model import Unit
from rnnconvert.models.runners import Loaded, LoadedFunction, Ran, Tap

NAME = "keras"


def open_file(path: Path, config: Path | None = None) -> Loaded:
    """Load a whole model's file by Keras itself, in safe mode; a SavedModel by TensorFlow, as a function.

    config  the model of weights that are alone, as model.to_json wrote it

    What Keras 1 or 2 wrote is brought up first (formats/keras/upgrade/files.py): Keras 3 refuses some of it, and computes something
    else of some. Where tf_keras is there, the old file runs in it, too.

    Raises UsageError for weights without a model, MissingPackageError without Keras.
    """
    policies: set[str] = set()
    if path.is_dir():
        _in_float32(keras_metadata(path).model, policies)
        if not policies:  # otherwise its layers run in float32: see `exact`
            return Loaded(_signature(path))
    if config is not None and architecture.read(config)[1].startswith("3"):
        return Loaded(_with_weights(config, path))
    if path.name.endswith(".weights.h5"):
        raise UsageError(f"{path} holds only weights. Hand in the live model: report.verify(inputs, source=model)")
    if config is not None or policies or upgrade.written_before_keras_3(path):
        with new_folder() as folder:
            upgraded = Path(folder) / "upgraded.keras"
            note = _upgraded(path, upgraded, config)
            return Loaded(_loaded(upgraded, path), (note,))
    return Loaded(_loaded(path, path))


def _loaded(path: Path, called: Path) -> Any:
    try:
        import keras
    except ImportError:
        raise MissingPackageError("keras", f"run {called}") from None
    try:
        return keras.models.load_model(path, compile=False)
    except Exception as error:  # Keras raises what it likes for a file of another version
        text = (str(error).splitlines() or [type(error).__name__])[0]
        raise UsageError(f"Keras {keras.__version__} cannot load {called} as a model: {text}") from None


def _with_weights(config: Path, weights: Path) -> Any:
    """Return the model that a file of Keras 3 states, with the weights of another."""
    try:
        import keras
    except ImportError:
        raise MissingPackageError("keras", f"run {weights}") from None
    try:
        model = keras.saving.deserialize_keras_object(dict(architecture.read(config)[0]))
        model.load_weights(weights)
    except Exception as error:  # Keras raises what it likes for files that do not belong together
        text = (str(error).splitlines() or [type(error).__name__])[0]
        raise UsageError(f"Keras {keras.__version__} cannot load {weights} into the model of {config}: {text}") from None
    return model


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
    upgrade.upgrade(path, upgraded, config=config, force=True)
    return f"{path} is a Keras 2 file: it ran in Keras 3, after `rnnconvert upgrade`, which tf_keras did not confirm ({why})"


def _signature(path: Path) -> LoadedFunction:
    """Return what a SavedModel serves, as a function.

    Raises UsageError for a SavedModel that serves nothing or that TensorFlow cannot load, MissingPackageError without TensorFlow.
    """
    try:
        import tensorflow as tf
    except ImportError:
        raise MissingPackageError("tensorflow", f"run {path}") from None
    served = _served(tf, path)
    config = (keras_metadata(path).model or {}).get("config", {})
    names = _ordered(served.inputs, config.get("input_layers"))

    def call(calls: Sequence[Sequence[Array]]) -> list[Array]:
        results: dict[str, Array] = {}
        for inputs in calls:
            if len(inputs) != len(names):
                raise UsageError(f"{path} has {len(names)} inputs ({', '.join(names)}), but {len(inputs)} were given")
            arrays = {name: np.asarray(array).astype(served.inputs[name][0]) for name, array in zip(names, inputs, strict=True)}
            results = served.call(arrays)
        return [results[name] for name in _ordered(results, config.get("output_layers"))]

    return LoadedFunction(call, str(path), tuple(served.inputs[name][1] for name in names))


class _Served(NamedTuple):
    """What a SavedModel serves.

    inputs  the element type and the shape of each, None for an axis of any size
    call    gives the outputs by name for inputs by name
    """

    inputs: Mapping[str, tuple[Any, tuple[int | None, ...]]]
    call: Callable[[Mapping[str, Array]], dict[str, Array]]


def _served(tf: Any, path: Path) -> _Served:
    try:
        loaded = tf.saved_model.load(str(path))
    except Exception:  # objects that this TensorFlow does not know, such as Keras 2's optimizers: its graph runs without them
        return _served_by_graph(tf, path)
    function = loaded.signatures.get("serving_default") or next(iter(loaded.signatures.values()), None)
    if function is None:
        raise _serves_nothing(path)
    kinds = function.structured_input_signature[1]

    def call(arrays: Mapping[str, Array], held: Any = loaded) -> dict[str, Array]:
        return {name: tensor.numpy() for name, tensor in function(**{name: tf.constant(array) for name, array in arrays.items()}).items()}

    return _Served({name: (kind.dtype.as_numpy_dtype, _sizes(kind.shape)) for name, kind in kinds.items()}, call)


def _served_by_graph(tf: Any, path: Path) -> _Served:
    """Return what a SavedModel serves, with no object of it but its variables."""
    graph, log = tf.Graph(), tf.get_logger()
    session, level = tf.compat.v1.Session(graph=graph), log.level
    log.setLevel("ERROR")  # it would advise the loader that just failed
    try:
        with graph.as_default():
            signatures = tf.compat.v1.saved_model.load(session, ["serve"], str(path)).signature_def
    except Exception as error:  # TensorFlow raises what it likes for a folder of another version
        text = (str(error).splitlines() or [type(error).__name__])[0]
        raise UsageError(f"TensorFlow {tf.__version__} cannot load {path}: {text}") from None
    finally:
        log.setLevel(level)
    of_models = [signatures[name] for name in sorted(signatures) if not name.startswith("__")]
    served = signatures["serving_default"] if "serving_default" in signatures else next(iter(of_models), None)
    if served is None:
        raise _serves_nothing(path)
    places = {name: graph.get_tensor_by_name(entry.name) for name, entry in served.inputs.items()}
    results = {name: graph.get_tensor_by_name(entry.name) for name, entry in served.outputs.items()}

    def call(arrays: Mapping[str, Array]) -> dict[str, Array]:
        computed: dict[str, Array] = session.run(results, {places[name]: array for name, array in arrays.items()})
        return computed

    return _Served({name: (place.dtype.as_numpy_dtype, _sizes(place.shape)) for name, place in places.items()}, call)


def _serves_nothing(path: Path) -> UsageError:
    return UsageError(f"{path} has no signature: nothing says which of its functions is the model")


def _sizes(shape: Any) -> tuple[int | None, ...]:
    return () if shape.rank is None else tuple(shape)


def _ordered(names: Collection[str], stated: object) -> list[str]:
    """Return the names of tensors in the order of a model's configuration, by the alphabet where that lists others."""
    listed = [str(reference[0]) for reference in stated if isinstance(reference, list) and reference] if isinstance(stated, list) else []
    return listed if sorted(listed) == sorted(names) else sorted(names)


def run(live: Any, inputs: Sequence[Array], units: Sequence[Unit], before: Sequence[Sequence[Array]] = ()) -> Ran:
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
    return Ran(outputs, taps)


def _call(live: Any, inputs: Sequence[Array]) -> Any:
    """Return what a model gives for copies of inputs, which some backends share with it."""
    copies = [np.array(array) for array in inputs]
    return live(copies[0] if len(copies) == 1 else copies, training=False)


def exact(live: Any) -> tuple[Any, str]:
    """Return a model of mixed precision as one that computes in float32, as its weights are, and a note; any other as it is, and "".

    Half precision would hide what another model does differently. A subclassed model, which Keras cannot make again, stays.
    """
    policies: set[str] = set()
    try:
        config = _in_float32(live.get_config(), policies)
        if not policies:
            return live, ""
        copy = type(live).from_config(config)
        copy.set_weights(live.get_weights())
    except Exception:  # Keras raises what it likes for code of the user's own
        return live, ""
    return copy, f"{live.name!r} computes in half precision ({', '.join(sorted(policies))}): it ran in float32, the type of its weights"


def _in_float32(config: Any, policies: set[str], is_type: bool = False) -> Any:
    """Return a configuration with float32 in the place of mixed precision, and add the policies that were met."""
    if isinstance(config, Mapping):
        return {key: _in_float32(value, policies, is_type or key == "dtype") for key, value in config.items()}
    if isinstance(config, (list, tuple)):
        return type(config)(_in_float32(value, policies, is_type) for value in config)
    if is_type and config in MIXED:
        policies.add(config)
        return "float32"
    return config


def _states(model: Any) -> list[Any]:
    """Return what stateful layers keep from one batch to the next: a run begins without it, and leaves it unchanged."""
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
