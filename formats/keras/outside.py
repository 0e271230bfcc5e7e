"""The architecture that belongs to weights alone: the file that the caller names, or the only one next to them that fits.

A file next to the weights is taken where it states a model with these layers, one for one, and nothing speaks against it: every layer
and array has the name, place and shape that the other file states, both were written by one Keras, and no second file of the folder
states another model that fits as well. Anything less is named in the question.
"""

from __future__ import annotations

import contextvars
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rnnconvert.containers.addresses import local
from rnnconvert.containers.companions import companion
from rnnconvert.containers.stored import Stored
from rnnconvert.core.arrays import Array
from rnnconvert.core.errors import BudgetError, RnnConvertError, UsageError
from rnnconvert.core.limits import ARCHITECTURE_BYTES
from rnnconvert.core.remedies import Flag
from rnnconvert.core.text_file import open_bytes
from rnnconvert.files.checkpoint import Checkpoint
from rnnconvert.files.options import Options
from rnnconvert.formats.keras import architecture, cells, config
from rnnconvert.formats.keras.configured import Outside
from rnnconvert.formats.keras.files import YAML
from rnnconvert.formats.keras.metadata import KerasMetadata, stated_model
from rnnconvert.formats.keras.model.entries import RECURRENT, Entry, children, entry, every, innermost, of_file
from rnnconvert.formats.keras.read import LayerReader, graph_file

_NAMES = ("model.json", "config.json", "architecture.json", "model.yaml", "model.yml", "architecture.yaml")
"""Common names of such a file."""
_MOST_FILES = 100
"""In a folder of more files than these, only the files of the names above are read."""
_HEAD = 1 << 12
_STATES_CLASS = re.compile(rb'(?:^|\\*")class_name(?:\\*")? *:', re.MULTILINE)
_OF_TRAINING = "metrics/"
"""Where Keras 2.12 to 2.15 keep what a model that was compiled counted. Source: keras/src/saving/saving_lib.py of 2.15."""
_VERSION = "keras_version"


class _ModelBeside(NamedTuple):
    """A file beside the weights that states, or may state, a model with their layers.

    config        what it states; empty for a file that is too large to be read
    version       the Keras that wrote it
    contradicted  what speaks against it, in words; "" where nothing does
    """

    name: str
    config: Mapping[str, Any]
    version: str
    contradicted: str

    @property
    def settings(self) -> str:
        """All that it states, in one text: two files of the same model have the same."""
        stated = [self.config.get("class_name"), self.config.get("config"), self.version]
        return json.dumps(stated, sort_keys=True, default=str)


def of(path: Path, stored: Stored, options: Options) -> Outside:
    """Return the configuration that another file states, where the weights' own file has none.

    Raises what `architecture.read` raises for a file that the caller names, and UsageError where that states another model than the
    weights' own file.
    """
    metadata = stored.metadata_as(KerasMetadata)
    model = stated_model(path, metadata) or metadata.get("root_config")
    named = options.get("config")
    if model or "layer_configs" in stored.metadata:
        return Outside() if named is None else _stated_twice(path, model, local(named))
    if named is not None:
        path = local(named)
        return Outside(*architecture.read(path), path)
    if graph_file(path).is_file() or not cells.find(stored.arrays, lambda path: True):
        return Outside()
    # Outside of this reading: what does not belong to the weights is not charged to it, nor kept from being replaced.
    candidates = contextvars.Context().run(lambda: [*_candidates(path, stored)])
    return _chosen(path, candidates)


def _stated_twice(path: Path, model: Any, named: Path) -> Outside:
    """Return nothing, with a note, where another file states the model that the weights' own file states. Raises UsageError for another."""
    document, _ = architecture.read(named)
    with of_file(path):
        here, there = _layers(entry(model)) if model else {}, _layers(entry(document))
    different = next((name for name in (*here, *there) if here.get(name) != there.get(name)), None)
    if different is not None:
        what = f": the layer {different!r} is not the same" if different in here and different in there else ""
        raise UsageError(f"{path} states its model, and {named} states another{what}. Leave out {Flag('config')}")
    return Outside(warning=f"{path.name} states the same model as {named}, which is not needed")


def _layers(model: Entry) -> dict[str, object]:
    """Return the statements about each layer of a model, by its name; those of the layers inside it stand by themselves."""
    return {layer.name: (layer.class_name, _settings(layer.config), _settings(layer.nodes)) for layer in every(model)}


_UNSTATED = ("layers", "layer", "module", "registered_name", "build_config", "shared_object_id")
"""Keys of the layers inside, and of what some savers leave out."""


def _settings(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _settings(inner) for key, inner in value.items() if key not in _UNSTATED}
    return [_settings(inner) for inner in value] if isinstance(value, (list, tuple)) else value


def _chosen(path: Path, candidates: Sequence[_ModelBeside]) -> Outside:
    """Return the configuration of the only candidate, or of several that state the same; otherwise what to ask."""
    fitting = [candidate for candidate in candidates if not candidate.contradicted]
    if not fitting:
        why = "; ".join(f"{candidate.name}, next to it, {candidate.contradicted}" for candidate in candidates)
        return Outside(hint=f". {why}. If it belongs to these weights, name it with {Flag('config')}" if why else "")
    read = {candidate.name: architecture.stated(companion(path, candidate.name))[0] for candidate in fitting if candidate.config}
    first = fitting[0]
    if len({candidate.settings for candidate in fitting}) == 1 and first.config and read[first.name] == first.config:
        warning = f"the configuration is read from {first.name} next to it; name another with {Flag('config')}"
        return Outside(first.config, first.version, companion(path, first.name), warning)
    names = " and ".join(candidate.name for candidate in fitting)
    different = "state different settings" if len(fitting) > 1 else "is too large to be read as an architecture"
    return Outside(hint=f". {names}, next to it, {different}: choose with {Flag('config')}")


def _candidates(path: Path, stored: Stored) -> Iterator[_ModelBeside]:
    """Yield the files beside weights that state a model with their layers, the most likely name first.

    Together they may be as large as one may be: the rest may state one, and is not read.
    """
    left = ARCHITECTURE_BYTES
    for name in _names(path):
        try:
            file = companion(path, name)
            with open_bytes(file) as opened:
                head = opened.read(_HEAD)
            if not file.is_file() or not _STATES_CLASS.search(head):
                continue
            left -= file.stat().st_size
            if left < 0:
                yield _ModelBeside(name, {}, "", "")
                continue
            with of_file(file, "rnnconvert.formats.keras"):
                document, version = architecture.read(file)
                checkpoint = LayerReader(path, stored, Options(), Outside(document, version, file)).read()
        except BudgetError:
            yield _ModelBeside(name, {}, "", "")
            continue
        except (RnnConvertError, OSError):
            continue
        if checkpoint.layers and not checkpoint.unread and _is_of(entry(document), checkpoint):
            yield _ModelBeside(name, document, version, _contradicted(document, version, stored))


def _names(path: Path) -> list[str]:
    """Return the names of the files beside weights that may state an architecture, the most likely first."""
    folder = path if path.is_dir() else path.parent
    stems = (path.name.split(".")[0], path.stem)
    likely = dict.fromkeys([*(f"{stem}{ending}" for stem in stems for ending in (".json", *YAML)), *_NAMES])
    try:
        there = {member.name for member in folder.iterdir() if member.suffix.lower() in (".json", *YAML) and member.is_file()}
    except OSError:
        return []
    others = sorted(there - likely.keys()) if len(there) <= _MOST_FILES else []
    return [name for name in (*likely, *others) if name in there]


def _is_of(model: Entry, checkpoint: Checkpoint) -> bool:
    """Return whether the recurrent layers of a model are those that were read, one for one, and every array has its layer."""
    read = checkpoint.read_as(cells.StatedLayers)
    held = [innermost(where) for where in read.entries.values() if where is not None]
    if len(held) < len(read.entries) or len({id(layer.config) for layer in held}) < len(held):
        return False
    inside = {id(inner.config) for layer in every(model) if layer.class_name == "Bidirectional" and (inner := layer.inner("layer"))}
    stated = [layer for layer in every(model) if layer.class_name in RECURRENT and id(layer.config) not in inside]
    ours = [layer for layer in stated if layer.name in read.ours]
    if len(stated) != len({id(layer.config) for layer in (*held, *ours)}) or len({layer.name for layer in stated}) < len(stated):
        return False
    return _are_its_arrays(model, checkpoint)


def _are_its_arrays(model: Entry, checkpoint: Checkpoint) -> bool:
    """Return whether every array belongs to a layer of the model, and every layer of known shapes has its arrays."""
    places = {place: layer for place, layer in config.tree(model) if place}
    named = {layer.name: layer for layer in every(model)}
    held: dict[int, list[Array]] = {}
    for name, array in checkpoint.arrays.items():
        if cells.of_optimizer(name) or name.startswith(_OF_TRAINING) or "/" not in name:
            continue
        parts = name.split("/")
        above = ("/".join(parts[:depth]) for depth in range(len(parts) - 1, 0, -1))
        of_tree = next((places[place] for place in above if place in places), None)
        layer = of_tree or next((named[part] for part in reversed(parts[:-1]) if part in named), None)
        if layer is None:
            return False
        held.setdefault(id(layer.config), []).append(array)
    return all(_fits(layer, held.get(id(layer.config), [])) for layer in every(model))


_LENGTHS = {"Dense": ("units", "output_dim"), "Conv1D": ("filters",), "Conv2D": ("filters",)}
"""The key of a class that states how many outputs it has, today's and that of Keras 1."""


def _fits(layer: Entry, arrays: list[Array]) -> bool:
    """Return whether the matrices of a layer have the lengths that its configuration states, as far as they are known."""
    states = layer.config
    if layer.class_name == "Embedding":
        return [tuple(array.shape) for array in arrays] == [(states.get("input_dim"), states.get("output_dim"))]
    if layer.class_name not in _LENGTHS:
        return True
    length = next((states[key] for key in _LENGTHS[layer.class_name] if key in states), None)
    return bool(arrays) and all(array.shape[-1:] == (length,) for array in arrays)


def _contradicted(document: Mapping[str, Any], version: str, stored: Stored) -> str:
    """Return another contradiction between both files, which shows that they are not of one model; "" for none."""
    attributes = stored.metadata_as(KerasMetadata).get("attributes", {})
    root = attributes.get("", {})
    wrote = str(
        root.get(_VERSION)
        or stored.metadata_as(KerasMetadata).get("keras_version")
        or stored.metadata_as(KerasMetadata).get("groups_of", "")[:1]
    )
    if version and wrote and (version != wrote if "." in version and root.get(_VERSION) else version[:1] != wrote[:1]):
        return f"was written by Keras {version}, these weights by Keras {wrote}"
    backends = [
        value.decode("utf-8", "replace") if isinstance(value, bytes) else value for value in (root.get("backend"), document.get("backend"))
    ]
    if all(backends) and len(set(map(str, backends))) > 1:
        return f"was written with the backend {backends[1]}, these weights with {backends[0]}"
    model = entry(document)
    places = dict(config.tree(model))
    for path, values in attributes.items():
        layer = places.get(path.removesuffix("/vars")) if path.endswith("/vars") else None
        name = values.get("name")
        if layer is not None and isinstance(name, str) and name != layer.name:
            return f"calls the layer {layer.name!r} that is {name!r} here"
    layers = [listed.decode("utf-8", "replace") if isinstance(listed, bytes) else str(listed) for listed in root.get("layer_names", ())]
    inputs = {child.name for child in children(model) if child.class_name == "InputLayer"}
    names = [child.name for child in children(model) if child.name not in inputs]
    if layers and names != [listed for listed in layers if listed not in inputs]:
        return "states other layers than these weights were saved with"
    return ""
