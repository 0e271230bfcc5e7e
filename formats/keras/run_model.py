"""Models as Keras loads them, and what their graphs compute: recurrent layers, directions, cells and calls."""

from __future__ import annotations

import contextlib
import json
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from rnnconvert.running.sequences import WeightsAloneError

from .run_loading import refuse_code

STATES = {"LSTMCell": 2, "GRUCell": 1, "SimpleRNNCell": 1}
"""The number of states of each cell whose states are understood here."""


def load(file: str) -> Any:
    """Return the model of a file. Raises NotImplementedError if Keras has no way to make a model of it."""
    import keras

    if Path(file).is_dir():
        raise NotImplementedError(
            f"{Path(file).name} is a SavedModel, of which Keras 3 makes no layers; Keras runs a .keras file, or an .h5"
        )
    if file.endswith(".weights.h5") or not file.endswith((".keras", ".h5", ".hdf5")):
        raise WeightsAloneError(f"{Path(file).name} holds weights without a model; Keras runs a .keras file, or an .h5")
    try:
        with with_slashes(file) as readable, _without_dead_keys(readable) as alive:
            refuse_code(config_of(alive), "Keras")
            return keras.models.load_model(alive, compile=False)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        message = " ".join(str(error).split())
        theirs = any(word in message for word in ("Could not locate", "safe_mode", "registered", "unsafe"))
        if zipfile.is_zipfile(file) and not theirs and not _by_keras_2(file):
            raise
        raise NotImplementedError(f"Keras {keras.version()} cannot load it as a model: {message[:300]}") from None


def _by_keras_2(file: str) -> bool:
    """Return whether Keras 2.13 to 2.15 wrote a .keras file, of which Keras 3 reads some."""
    with zipfile.ZipFile(file) as archive:
        stated = json.loads(archive.read("metadata.json")) if "metadata.json" in archive.namelist() else {}
    return str(stated.get("keras_version", "")).startswith("2.")


_WEIGHTS = "model.weights.h5"


@contextlib.contextmanager
def with_slashes(file: str) -> Iterator[str]:
    """Yield the file, or a copy of a .keras file whose groups are separated as everywhere: Keras 2.13 to 2.15 wrote on Windows names such
    as `layers\\lstm\\cell`, which they read there alone. Keras up to 2.12 wrote HDF5 to a .keras file: Keras 3 reads a copy named .h5.
    """
    if not zipfile.is_zipfile(file):
        with tempfile.TemporaryDirectory() as folder:
            yield str(shutil.copyfile(file, Path(folder) / "model.h5")) if file.endswith(".keras") else file
        return
    import h5py

    with zipfile.ZipFile(file) as source, tempfile.TemporaryDirectory() as folder:
        if _WEIGHTS not in source.namelist():
            yield file
            return
        with h5py.File(source.extract(_WEIGHTS, folder)) as weights:
            if not any("\\" in name for name in weights):
                yield file
                return
            with h5py.File(Path(folder) / "slashes.h5", "w") as renamed:
                for name, group in weights.items():
                    above, _, last = name.replace("\\", "/").rpartition("/")
                    weights.copy(group, renamed.require_group(f"/{above}"), last)
        copy = Path(folder) / Path(file).name
        _copy(source, copy, _WEIGHTS, (Path(folder) / "slashes.h5").read_bytes())
        yield str(copy)


def _copy(source: zipfile.ZipFile, path: Path, changed: str, content: bytes | str) -> None:
    """Write a copy of an archive in which one entry has another content."""
    with zipfile.ZipFile(path, "w") as target:
        for name in source.namelist():
            target.writestr(name, content if name == changed else source.read(name))


_DEAD = {"time_major": False}
"""Keys of Keras 2's configurations that Keras 3 no longer knows, with the value that says nothing. Another value is left, and
Keras refuses it."""


@contextlib.contextmanager
def _without_dead_keys(file: str) -> Iterator[str]:
    """Yield the file, or a copy of it whose configuration lacks the keys of Keras 2 that say nothing."""
    zipped = zipfile.is_zipfile(file)
    text = _config(file, zipped)
    if not any(f'"{key}"' in text for key in (*_DEAD, "batch_input_shape")):
        yield file
        return
    alive = json.dumps(_alive(json.loads(text), zipped))
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / Path(file).name
        if zipped:
            with zipfile.ZipFile(file) as source:
                _copy(source, copy, "config.json", alive)
        else:
            import h5py

            shutil.copyfile(file, copy)
            with h5py.File(copy, "r+") as archive:
                archive.attrs["model_config"] = alive
        yield str(copy)


def config_of(file: str) -> Any:
    """Return the model's configuration that a file has; None if it has none."""
    return json.loads(_config(file, zipfile.is_zipfile(file)) or "null")


def _config(file: str, zipped: bool) -> str:
    """Return a model's configuration as its file has it; "" if it has none."""
    if zipped:
        with zipfile.ZipFile(file) as archive:
            return archive.read("config.json").decode() if "config.json" in archive.namelist() else ""
    import h5py

    try:
        with h5py.File(file) as archive:
            text = archive.attrs.get("model_config", "")
    except OSError:
        return ""  # Keras says what is wrong with it
    return text.decode() if isinstance(text, bytes) else str(text)


def _alive(value: Any, zipped: bool) -> Any:
    """Return a configuration without the keys that say nothing; `zipped` is whether it is that of a .keras file."""
    if isinstance(value, list):
        return [_alive(item, zipped) for item in value]
    if not isinstance(value, dict):
        return value
    if zipped and isinstance(value.get("config"), dict):
        value = _of_today(value)
    return {key: _alive(item, zipped) for key, item in value.items() if key not in _DEAD or item != _DEAD[key]}


def _of_today(layer: dict[str, Any]) -> dict[str, Any]:
    """Return a layer of a .keras file as Keras 3 spells it, which Keras 2.13 to 2.15 spelled otherwise and Keras 3 refuses."""
    kind, config = layer.get("class_name"), dict(layer["config"])
    if kind != "InputLayer":  # one stands before each layer that states the shape, too
        config.pop("batch_input_shape", None)
    if kind == "BatchNormalization" and isinstance(config.get("axis"), list) and len(config["axis"]) == 1:
        config["axis"] = config["axis"][0]
    return {**layer, "config": config}


def _is_recurrent(layer: Any) -> bool:
    import keras

    return isinstance(layer, (keras.layers.RNN, keras.layers.Bidirectional))


def directions(layer: Any) -> list[Any]:
    """Return the layers of its directions, forward first."""
    return [layer.forward_layer, layer.backward_layer] if hasattr(layer, "forward_layer") else [layer]


def cells_of(way: Any) -> list[Any]:
    """Return the cells of one direction, the lowest first."""
    return list(getattr(way.cell, "cells", [way.cell]))


def state_count(cell: Any) -> int:
    name = type(cell).__name__
    if name not in STATES or not type(cell).__module__.startswith("keras."):
        raise NotImplementedError(f"a cell {name}: the meaning of its states is unknown")
    return STATES[name]


def prepared(layer: Any) -> Any:
    """Set the layer to give everything: each step, final states, zero where a sequence is over."""
    for sublayer in dict.fromkeys([layer, *directions(layer)]):
        sublayer.return_sequences, sublayer.return_state, sublayer.stateful = True, True, False
        sublayer.zero_output_for_mask = True
        # Unrolled, Keras zeroes the steps of a backward layer by the mask as it stands, not turned around; the cell is the same.
        sublayer.unroll = False
    return layer


class ComputedGraph:
    """The graph to be computed.

    layers  the recurrent layers, in the order of their states
    """

    layers: list[Any]

    def compute(self, x: Any, call: Callable[[Any, Any], Any]) -> Any:
        """Compute y from x, both (batch, time, values), where `call` runs a recurrent layer: (layer, sequence) to its outputs."""
        raise NotImplementedError

    def weights(self) -> Iterator[tuple[str, str, Any]]:
        """Yield the layer, own name and variable of every weight."""
        for layer in self.layers:
            yield from ((layer.name, *pair) for pair in _weights(layer))


def _weights(layer: Any) -> Iterator[tuple[str, Any]]:
    """Yield a recurrent layer's variables: kernel; in a Bidirectional forward/kernel; of stacked cells 0/kernel."""
    ways = directions(layer)
    for label, way in zip(("forward/", "backward/") if len(ways) == 2 else ("",), ways):
        cells = cells_of(way)
        for number, cell in enumerate(cells):
            prefix = label + (f"{number}/" if len(cells) > 1 else "")
            yield from ((prefix + variable.name, variable) for variable in cell.weights if _is_float(variable))


def _is_float(variable: Any) -> bool:
    return "float" in str(variable.dtype)  # a dropout's seed generator is a variable too


class Chain(ComputedGraph):
    """Layers, each reading what the one before gives."""

    def __init__(self, layers: Sequence[Any]) -> None:
        self.layers = [prepared(layer) for layer in layers]

    def compute(self, x: Any, call: Callable[[Any, Any], Any]) -> Any:
        import keras

        for layer in self.layers:
            outputs = call(layer, x)
            x = keras.ops.concatenate(outputs, axis=-1) if len(outputs) > 1 else outputs[0]
        return x


class NamedLayers(Chain):
    """Layers of a model by name, or where names are not unique by path: outer/inner, or as the file has it."""

    def __init__(self, model: Any, names: Sequence[str]) -> None:
        labelled = list(every(model))
        chosen = []
        for name in names:
            matches = {id(layer): layer for labels, layer in labelled if name in labels}
            if len(matches) != 1:
                names_there = ", ".join(dict.fromkeys(labels[0] for labels, _ in labelled)) or "none"
                raise NotImplementedError(f"the model has {len(matches) or 'no'} recurrent layers {name!r}; it has {names_there}")
            (layer,) = matches.values()
            chosen.append(layer)
        super().__init__(chosen)


def every(model: Any, scope: tuple[str, ...] = (), path: str = "") -> Iterator[tuple[list[str], Any]]:
    """Yield each recurrent layer of a model and of the models in it, with all names that it may have."""
    from keras.src.utils.naming import to_snake_case  # as the file's paths are made

    counts: dict[str, int] = {}
    for layer in model.layers:
        kind = to_snake_case(type(layer).__name__)
        number = counts.get(kind, 0)
        counts[kind] = number + 1
        kind_path = f"{path}layers/{kind}_{number}" if number else f"{path}layers/{kind}"
        names = (*scope, layer.name)
        if _is_recurrent(layer):
            yield [layer.name, "/".join(names), kind_path], layer
        elif hasattr(layer, "layers"):
            yield from every(layer, names, f"{kind_path}/")


class WholeModel(ComputedGraph):
    """A model of one input, along its graph: joints, flips and dense layers run too."""

    def __init__(self, model: Any) -> None:
        if len(model.inputs) != 1:
            raise NotImplementedError(f"the model has {len(model.inputs)} inputs: name the layers of one of them")
        self.outputs = [tensor for tensor in model.outputs if len(tensor.shape) == 3]
        self.nodes = _ordered(model.outputs)
        places: list[tuple[int, bool, int, Any]] = []
        depths: dict[int, int] = {}
        self.backwards: dict[int, bool] = {}
        """By tensor, whether it is in the order of a layer that goes backwards: its padding comes first."""
        for number, node in enumerate(self.nodes):
            layer = node.operation
            depth = max((depths[id(source)] for source in node.input_tensors), default=0)
            turned = any(self.backwards[id(source)] for source in node.input_tensors)
            if _is_recurrent(layer):
                _check(layer, node)
                way = bool(getattr(layer, "go_backwards", False))
                places.append((depth, way, number, layer))
                depth += 1
                turned ^= way
            elif any(labels for labels, _ in (every(layer) if hasattr(layer, "layers") else ())):
                raise NotImplementedError(f"the layer {layer.name!r} is a model with recurrent layers: name them")
            elif type(layer).__name__ == "Flip":
                turned = not turned
            for tensor in node.output_tensors:
                depths[id(tensor)], self.backwards[id(tensor)] = depth, turned
        # Layers that stand side by side are directions: the one that reads forward is the first.
        self.layers = [prepared(layer) for *_, layer in sorted(places, key=lambda place: place[:3])]
        if len({id(layer) for layer in self.layers}) < len(self.layers):
            raise NotImplementedError("a layer that the model calls more than once")
        if not self.layers or not self.outputs:
            raise NotImplementedError("the model's outputs are not sequences of recurrent layers: name its layers")

    def compute(self, x: Any, call: Callable[[Any, Any], Any]) -> Any:
        import keras

        values: dict[int, Any] = {}
        for node in self.nodes:
            if node.is_input:
                results = [x]
            elif _is_recurrent(node.operation):
                results = call(node.operation, values[id(node.input_tensors[0])])
            else:
                arguments, keywords = node.arguments.fill_in(values)
                output = node.operation(*arguments, **keywords)
                results = list(output) if isinstance(output, (list, tuple)) else [output]
            values.update({id(tensor): value for tensor, value in zip(node.output_tensors, results)})
        ends = [values[id(tensor)] for tensor in self.outputs]
        return keras.ops.concatenate(ends, axis=-1) if len(ends) > 1 else ends[0]

    def padded_first(self) -> str:
        """Return the first recurrent layer that reads a sequence with its end first; "" without one."""
        turned = (node.operation.name for node in self.nodes if _is_recurrent(node.operation) and self.backwards[id(node.input_tensors[0])])
        return next(turned, "")

    def weights(self) -> Iterator[tuple[str, str, Any]]:
        yield from super().weights()
        for node in self.nodes:
            if not _is_recurrent(node.operation):
                owned = getattr(node.operation, "weights", ())
                yield from ((node.operation.name, variable.name, variable) for variable in owned if _is_float(variable))


def _ordered(outputs: Sequence[Any]) -> list[Any]:
    """Return the calls that a model consists of, each after those that it reads."""
    ordered: list[Any] = []
    seen: set[int] = set()
    waiting = [(tensor, False) for tensor in reversed(outputs)]
    while waiting:
        tensor, ready = waiting.pop()
        operation, number, _ = tensor._keras_history
        node = operation._inbound_nodes[number]
        if ready:
            ordered.append(node)
        elif id(node) not in seen:
            seen.add(id(node))
            waiting.append((tensor, True))
            waiting += [(source, False) for source in reversed(node.input_tensors)]
    return ordered


def _check(layer: Any, node: Any) -> None:
    if len(node.input_tensors) != 1:
        raise NotImplementedError(f"the layer {layer.name!r} reads its states or a mask from the model: name it")
    if not layer.return_sequences:
        raise NotImplementedError(f"the layer {layer.name!r} gives only its last step: name it")
