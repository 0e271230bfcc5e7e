"""TensorFlow checkpoints and SavedModels, without TensorFlow.

A checkpoint has a key for every variable, which depends on the first object that holds it: often the optimizer. The
names of the variables are in the graph of objects that is saved with them.

Sources: tensorflow/core/protobuf/trackable_object_graph.proto, and for keras_metadata.pb tf_keras/protobuf/saved_metadata.proto.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rnnconvert.containers import json_text, tensor_bundle, wire
from rnnconvert.containers.companions import companion
from rnnconvert.containers.files import map_file
from rnnconvert.containers.stored import Stored
from rnnconvert.core.arrays import Array
from rnnconvert.core.errors import UnreadableError
from rnnconvert.core.malformed import malformed
from rnnconvert.core.names import add, natural
from rnnconvert.formats.keras.metadata import KerasMetadata

_MODEL = "saved_model.pb"
_OF_KERAS = b"_tf_keras_"
_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"
_VALUE = "VARIABLE_VALUE"
_OPTIMIZER_NAMES = ("optimizer", "_optimizer")
_OPTIMIZER_PARTS = {"_iterations", "_learning_rate", "iter"}
_SLOTS = re.compile(r"(.*/)?(Adam(_\d+)?|Momentum|RMSProp(_\d+)?|Adagrad|ExponentialMovingAverage)")


STATES = "/keras_api/states/"
"""Under what a layer's object has the states that it keeps."""


def recognise(path: Path) -> str:
    """Describe a SavedModel's folder or saved_model.pb, or the index of a checkpoint (or the name or folder that its files share)."""
    if path.name == _MODEL:
        return f"a {_MODEL}" + (" with its variables folder" if (path.parent / "variables").is_dir() else "")
    if (path / _MODEL).is_file():
        return f"a folder with a {_MODEL}"
    index = tensor_bundle.index_of(path)
    return f"a TensorFlow checkpoint, {index.name}" if index is not None else ""


def model_folder(path: Path) -> Path:
    """Return the folder of the SavedModel that a file is of: its saved_model.pb, or its variables; else the path itself."""
    if path.name == _MODEL:
        return path.parent
    above = path.parent.parent
    return above if path.parent.name == "variables" and (above / _MODEL).is_file() else path


def read(path: Path) -> Stored:
    """Return every variable by its name; optimizer state is left out.

    Raises UnreadableError if the files are damaged, or if they are a SavedModel that has lost the names of its variables.
    """
    path = model_folder(path)
    is_model = (path / _MODEL).is_file()
    index = companion(path / _MODEL, "variables/variables.index") if is_model else tensor_bundle.index_of(path)
    if index is None or not index.is_file():
        raise UnreadableError(
            path,
            "it has no variables: the index file of the checkpoint is missing",
            f"Put the folder variables beside {_MODEL}. A pickle or an archive that lacks it was made without the weights: save the "
            'model again where it was made, with model.save("model.keras").'
            if is_model
            else "",
        )
    configs, version, model, names = keras_metadata(path) if is_model else ({}, "", None, {})
    variables, by_graph = _variables(path, index, names)
    if is_model and variables and all(re.fullmatch(r"\w*variables/\d+", name) for name in variables):
        raise UnreadableError(
            path,
            "this SavedModel has numbered variables without names",
            'Load the model where it was made, and save it with model.save("model.keras").',
        )
    metadata: dict[str, Any] = {"kind": "tensorflow"}
    if configs:
        metadata |= {
            "layer_configs": configs,
            "keras_version": f"{version.removesuffix('-tf') or '2'}-tf",
            "root_config": model,
            "by_layers": True,
            "places": names,
        }
    elif by_graph:
        metadata["keras_version"] = "2-tf"
    return Stored(variables, metadata)


def _variables(path: Path, index: Path, layers: Mapping[str, str]) -> tuple[dict[str, Array], bool]:
    """Return the variables by name, and whether TensorFlow 2's Keras named them.

    layers  the names of layers by their places in the graph of objects, as far as they are stated
    """
    stored = tensor_bundle.read(index)
    keys = dict.fromkeys(sorted(stored.arrays, key=natural))
    graph = stored.metadata_as(KerasMetadata)["texts"].get(_GRAPH)
    if graph is None:
        return {key: stored.arrays[key] for key in keys if not _is_slot(key)}, False
    nodes = list(_nodes(memoryview(graph), path))
    with malformed(lambda what: UnreadableError(path, f"its graph of objects is damaged ({what})")):
        named = _ObjectGraph(nodes).names()
    names = {place: _by_layers(place, layers) for place, _ in named}
    count = Counter(names.values())
    arrays: dict[str, Array] = {}
    for place, key in named:
        if key in stored.arrays:
            add(arrays, names[place] if count[names[place]] == 1 else place, stored.arrays[key], path)
    return arrays, _is_tf_keras(nodes)


def _by_layers(place: str, layers: Mapping[str, str]) -> str:
    """Return a variable's place in the graph of objects with the names of the layers that it goes through."""
    parts = place.split("/")
    return "/".join(layers.get("/".join(parts[: number + 1]), part) for number, part in enumerate(parts))


class _Child(NamedTuple):
    local_name: str
    node_id: int


class _Attribute(NamedTuple):
    name: str
    full_name: str
    checkpoint_key: str


class _TrackableNode(NamedTuple):
    """A TrackableObject: what it holds, its values, and the numbers of what an optimizer keeps with it."""

    children: list[_Child]
    attributes: list[_Attribute]
    slots: list[int]


def _nodes(graph: memoryview, path: Path) -> Iterator[_TrackableNode]:
    """Yield the objects of a TrackableObjectGraph. Raises UnreadableError."""

    def words(content: memoryview, *numbers: int) -> list[str]:
        fields = dict(wire.values(content, path))
        try:
            return [bytes(text).decode() if isinstance(text := fields.get(n), memoryview) else "" for n in numbers]
        except UnicodeDecodeError:
            raise UnreadableError(path, "its graph of objects is damaged") from None

    def number(content: memoryview, which: int) -> int:
        index = wire.signed(dict(wire.values(content, path)).get(which, 0), 32)
        if index < 0:
            raise UnreadableError(path, f"its graph of objects names the object {index}")
        return index

    for field, node in wire.values(graph, path):
        if field != 1 or not isinstance(node, memoryview):
            continue
        parsed = _TrackableNode([], [], [])
        for which, part in wire.values(node, path):
            if not isinstance(part, memoryview):
                continue
            if which == 1:
                parsed.children.append(_Child(words(part, 2)[0], number(part, 1)))
            elif which == 2:
                parsed.attributes.append(_Attribute(*words(part, 1, 2, 3)))
            elif which == 3:
                parsed.slots.append(number(part, 3))
        yield parsed


def _is_slot(name: str) -> bool:
    """Return whether a TensorFlow 1 name belongs to the optimizer."""
    return name.startswith("training/") or "/.OPTIMIZER_SLOT/" in name or _SLOTS.fullmatch(name) is not None


def _is_tf_keras(nodes: Sequence[_TrackableNode]) -> bool:
    return any(child.local_name.startswith("layer_with_weights-") for node in nodes for child in node.children)


class _ObjectGraph:
    """The objects of a checkpoint, and the variables that are reached from the first one past every optimizer."""

    def __init__(self, nodes: Sequence[_TrackableNode]) -> None:
        self.nodes = nodes
        self.slots = {slot for node in nodes for slot in node.slots}

    def names(self) -> list[tuple[str, str]]:
        """Return the name and key of each variable: TensorFlow's name for it, or its path if that is not unique."""
        paths = self._paths()
        values = {n: a for n in paths for a in self.nodes[n].attributes if a.name == _VALUE}
        owners: dict[str, list[int]] = {}
        for number in values:
            owners.setdefault(paths[number].rpartition("/")[0], []).append(number)
        exported = all(re.fullmatch(r"\w*variables/\d+", paths[number]) for number in values)
        count = Counter(attribute.full_name for attribute in values.values())
        counts: Counter[str] = Counter()
        named = []
        for members in owners.values():
            spoken = [values[number].full_name for number in members]
            unique = all("/" in name and count[name] == 1 for name in spoken) and not any(STATES in paths[number] for number in members)
            for number, name in zip(members, spoken, strict=True):
                chosen = name if unique or (exported and "/" in name) else paths[number]
                # Numbers in place of a path: layers of one name in two models are told apart by their order.
                chosen = f"{counts[name]}/{chosen}" if exported and chosen == name and counts[name] else chosen
                counts[name] += 1
                named.append((chosen, values[number].checkpoint_key))
        return named

    def _is_optimizer(self, name: str, number: int) -> bool:
        parts = {child.local_name for child in self.nodes[number].children}
        return name in _OPTIMIZER_NAMES or bool(parts & _OPTIMIZER_PARTS)

    def _children(self, name: str, number: int) -> Iterator[tuple[str, int]]:
        """Yield the children of an object; of an optimizer, only the model's variables."""
        optimizer = self._is_optimizer(name, number)
        lists = {child.local_name for child in self.nodes[number].children}
        for child in self.nodes[number].children:
            if child.local_name == "_all_variables" and "variables" in lists:
                continue  # what Keras 3 exports has each variable twice
            # Keras 3 tracks the cells of a stack nowhere else.
            if child.node_id not in self.slots and (not optimizer or child.local_name == "_trainable_variables"):
                yield child.local_name, child.node_id

    def _paths(self) -> dict[int, str]:
        """Return the path of every variable in the model's order: a short one, and words before places in a list."""
        paths, queue = {0: ("", "")}, [0]
        best: dict[int, tuple[bool, int, str]] = {}
        for number in queue:
            last, path = paths[number]
            for name, target in self._children(last, number):
                below = f"{path}/{name}".lstrip("/")
                rank = (name.isdigit(), below.count("/"), below)
                if self.nodes[target].attributes:
                    best[target] = min(rank, best.get(target, rank))
                elif target not in paths:
                    paths[target] = (name, below)
                    queue.append(target)
        return {number: rank[2] for number, rank in sorted(best.items(), key=lambda item: natural(item[1][2]))}


def _without_tuples(value: Any) -> Any:
    """Return a value of Keras's description with plain lists in place of the objects that stand for tuples."""
    if isinstance(value, list):
        return [_without_tuples(inside) for inside in value]
    if not isinstance(value, dict):
        return value
    if value.get("class_name") == "__tuple__" and isinstance(value.get("items"), list):
        return _without_tuples(value["items"])
    return {key: _without_tuples(inside) for key, inside in value.items()}


def _described(folder: Path) -> Iterator[tuple[str | None, memoryview]]:
    """Yield the description of each object of Keras's in a SavedModel, and its place in the graph: "" for the whole model, None if unknown.

    TensorFlow 2.5 and later have them in keras_metadata.pb, 2.0 to 2.4 in the graph of objects in saved_model.pb. Sources:
    tensorflow/core/protobuf/{saved_model,meta_graph,saved_object_graph}.proto, and SavedUserObject's metadata in 2.4.
    """
    metadata_file = companion(folder / _MODEL, "keras_metadata.pb")
    if metadata_file.is_file():
        for number, node in wire.fields(map_file(metadata_file).data, metadata_file):
            parts = dict(wire.fields(node, metadata_file)) if number == 1 else {}
            root, *place = bytes(parts.get(3, b"")).decode(errors="replace").split(".")
            yield "/".join(place) if root == "root" else None, parts.get(5, memoryview(b""))
        return
    path = folder / _MODEL
    for meta_graph in _inside(map_file(path).data, 2, path):
        for graph in _inside(meta_graph, 7, path):
            for number, node in enumerate(_inside(graph, 1, path)):
                for user_object in _inside(node, 4, path):
                    parts = dict(wire.fields(user_object, path))
                    if bytes(parts.get(1, b"")).startswith(_OF_KERAS):
                        yield None if number else "", parts.get(3, memoryview(b""))


def _inside(message: memoryview, wanted: int, path: Path) -> Iterator[memoryview]:
    """Yield the contents of one field of a message."""
    yield from (content for number, content in wire.fields(message, path) if number == wanted)


class Metadata(NamedTuple):
    """The statements of a SavedModel of TensorFlow's Keras 2 about its layers.

    configs  their configurations by name
    version  Keras's
    model    the configuration of the whole model, if there is one
    names    their names by their places in the graph of objects, if TensorFlow 2.5 or later wrote it
    """

    configs: dict[str, Mapping[str, Any]]
    version: str
    model: Mapping[str, Any] | None
    names: dict[str, str]


def keras_metadata(folder: Path) -> Metadata:
    """Return the statements of a SavedModel of TensorFlow's Keras 2 about its layers. Raises UnreadableError for a damaged one."""
    names: dict[str, str] = {}
    configs: dict[str, Mapping[str, Any]] = {}
    version = ""
    model: Mapping[str, Any] | None = None
    for place, text in _described(folder):
        try:
            document = json_text.loads(bytes(text) or b"{}", folder)
        except UnreadableError:
            raise
        except ValueError:
            raise UnreadableError(folder, "a layer's description is not JSON") from None
        if not isinstance(document, dict):
            continue
        version = version or str(document.get("keras_version", ""))
        if isinstance(document.get("config"), dict) and document.get("class_name"):
            name = str(document.get("name") or document["config"].get("name", ""))
            stated = {"class_name": document["class_name"], "config": _without_tuples(document["config"])}
            configs.setdefault(name, stated)
            if place and "/" not in name:
                names[place] = name
            if place == "" and "layers" in document["config"]:
                model = stated
    return Metadata(configs, version, model, names)
