"""A whole Keras model, of any age, as a description: every layer that is known, its masks as tensors of their own.

What a layer's settings mean is Keras's (keras 3.15 keras/src/layers); files of Keras 1 and 2 become a Keras 3 model first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from rnnconvert.core.errors import RefusedError, UsageError
from rnnconvert.core.printable import called
from rnnconvert.core.remedies import Flag
from rnnconvert.files.options import Options
from rnnconvert.formats.keras import architecture, layers_model, outside
from rnnconvert.formats.keras.describe import served
from rnnconvert.formats.keras.describe.layer_facts import TARGET, refuse
from rnnconvert.formats.keras.describe.writer import Writer
from rnnconvert.formats.keras.files import is_architecture, stored_in
from rnnconvert.formats.keras.model.entries import of_file
from rnnconvert.formats.keras.model.settings import in_half_precision
from rnnconvert.formats.keras.model.tree import SourceLayer, tree
from rnnconvert.formats.keras.upgrade.assign import assign_by_path
from rnnconvert.formats.keras.upgrade.files import as_keras_3
from rnnconvert.scaffolding.description import Description, prune


def _top(path: Path, config: Path | None, writer: Writer) -> SourceLayer:
    """Return the layers of a file: Keras 3's as the configuration states them, regardless of their arrays; an older one's are upgraded."""
    document, version = architecture.read(config or path) if path.is_file() else ({}, "")
    if version.startswith("3"):
        top = tree(document)
    elif writer.partial:
        top, writer.unread = read_in_part(path, config)
    else:
        top = read(path, config)
    if not top.is_model:
        raise refuse(top.name, f"a model of class {top.kind!r}", "it is not built from layers alone")
    return top


def _config_of(path: Path, config: Path | None) -> tuple[Path | None, tuple[str, ...]]:
    """Return where the model of weights alone is stated, None for a file that states its own, and what to know of the choice."""
    if not path.is_file():
        return config, ()
    chosen = outside.of(path, stored_in(path), Options({} if config is None else {"config": str(config)}))
    if chosen.config is None and config is not None:
        return None, (chosen.warning,)
    if chosen.config is not None:
        return chosen.path, (chosen.warning,) if chosen.warning else ()
    if not is_architecture(architecture.stated(path)[0]):
        raise UsageError(
            f"{path} holds weights without a model. Hand in the model as model.to_json wrote it, with {Flag('config')}{chosen.hint}"
        )
    return None, ()


def describe(path: Path, config: Path | None = None, partial: bool = False) -> Description:
    """Return the model of a file; of a SavedModel whose layers are not all known or stated, by the function that it serves.

    config   the model of weights that are alone, as model.to_json wrote it; without it the only such file next to them that fits
    partial  let nodes "left out" stand for what is not known

    Raises RefusedError for a layer or a setting that is not known, UsageError for a file without a model, UnreadableError for a
    damaged one.
    """
    try:
        return _layered(path, config, partial)
    except (RefusedError, UsageError) as error:
        if not path.is_dir() or config is not None:
            raise _as_a_graph(error) from None
        try:
            return served.describe(path, partial)
        except (RefusedError, UsageError) as unserved:
            raise (unserved if isinstance(error, UsageError) or _is_of_a_class(error) else error) from None


_OF_A_CLASS = ("a class of your own", "a layer of class", "an operation of class")


def _is_of_a_class(error: RefusedError | UsageError) -> bool:
    """Return whether a class is not known, whose layer a SavedModel has as a graph, too."""
    return type(error) is RefusedError and error.feature.startswith(_OF_A_CLASS)


def _as_a_graph(error: RefusedError | UsageError) -> RefusedError | UsageError:
    """Return a refusal with the other way out where a class is not known: a SavedModel has what it computes as a graph."""
    if not isinstance(error, RefusedError) or not _is_of_a_class(error):
        return error
    remedy = (
        f"{error.remedy} Where its code is at hand, write the model as a SavedModel, whose graph shows what the layer computes: "
        "model.export(folder) in Keras 3, model.save(folder, save_format='tf') in Keras 2"
    )
    return RefusedError(error.feature, error.target, error.reason, remedy.strip(), error.layer)


def _layered(path: Path, config: Path | None, partial: bool) -> Description:
    """Return the model of a file that states its layers."""
    config, notes = _config_of(path, config)
    writer = Writer(partial)
    writer.notes += [*notes, *(layers_model.notes(stored_in(path)) if path.is_file() else ())]
    with of_file(path, "rnnconvert.formats.keras"):
        top = _top(path, config, writer)
        writer.notes += in_half_precision(layer.config for layer in top.walk())
        writer.notes += dict.fromkeys(_dropouts(top))
        writer.scope.name = top.name
        writer.scope.outputs = tuple(writer.model(top, None))
    prune(writer.scope)
    options = {} if config is None else {"config": str(config)}
    return Description(writer.scope, tuple(writer.notes), writer.names, options)


def _dropouts(top: SourceLayer) -> Iterator[str]:
    """Yield the notes on the dropout of recurrent layers, which no separate layer holds and no other framework's layer has."""
    for layer in top.walk():
        config = layer.config
        rates = [key for key in ("dropout", "recurrent_dropout") if "recurrent_dropout" in config and config.get(key)]
        if rates:
            stated = " and ".join(f"{key}={config[key]!r}" for key in rates)
            yield f"{called(layer.name)}: {stated} is left out: it acts in training alone"


# A model of Keras 1 or 2 as the Keras 3 model that is described.

_MOST = 500
"""The most layers that are left out of one model."""


def read(path: Path, config_file: Path | None = None, altered: Callable[[Any], Any] = lambda config: config) -> SourceLayer:
    """Return the layers of a model, with their weights: their shapes say what a layer reads where nothing else does.

    config_file  the model of weights that are alone, as model.to_json wrote it
    altered      returns the configuration to read in place of the stated one
    """
    (config, model), _ = as_keras_3(path, TARGET, config_file, altered, keeps_weights=True)
    top = tree(config)
    assign_by_path(top, "", {name: np.asarray(array) for name, array in model.arrays.items()})
    return top


def read_in_part(path: Path, config: Path | None) -> tuple[SourceLayer, dict[str, RefusedError]]:
    """Return a model of Keras 1 or 2, and why layers of it, by their names, are not what they were.

    Raises RefusedError where something other than a layer is refused, or a layer with weights that cannot be read.
    """
    errors: dict[str, RefusedError] = {}
    while True:
        try:
            return read(path, config, lambda document: _without(document, errors)), errors
        except RefusedError as error:
            if not error.layer or error.layer in errors or len(errors) > _MOST:
                raise
            errors[error.layer] = error


def _without(value: Any, names: Mapping[str, Any]) -> Any:
    """Return a configuration with a linear Activation for each layer of these names, which is called on the same tensors."""
    if isinstance(value, list):
        return [_without(inner, names) for inner in value]
    if not isinstance(value, Mapping):
        return value
    config = value.get("config")
    name = value.get("name") or (config.get("name") if isinstance(config, Mapping) else None)
    if "class_name" not in value or name not in names:
        return {key: _without(inner, names) for key, inner in value.items()}
    plain = {"class_name": "Activation", "name": name, "config": {"name": name, "activation": "linear"}}
    nodes = value.get("inbound_nodes")
    return {**plain, "inbound_nodes": _plain_calls(nodes)} if nodes is not None else plain


def _plain_calls(nodes: Any) -> Any:
    """Return calls with their tensors alone, without other arguments."""
    if isinstance(nodes, list):
        return [_plain_calls(node) for node in nodes]
    return {} if isinstance(nodes, Mapping) else nodes
