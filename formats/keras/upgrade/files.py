"""A whole model of Keras 1, Keras 2 or tf.keras as a Keras 3 file: from file to file, without Keras.

Nothing is guessed: every array and every key of the configuration is used, named as left out, or refused.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from rnnconvert.containers.addresses import local
from rnnconvert.containers.files import only_replace
from rnnconvert.containers.reading import reading
from rnnconvert.containers.stored import Stored
from rnnconvert.core.arrays import FLOATS
from rnnconvert.core.errors import RefusedError, UnreadableError, UsageError
from rnnconvert.core.remedies import Command, Flag
from rnnconvert.files.load import model_path
from rnnconvert.files.options import Options
from rnnconvert.formats.keras import architecture, keras_zip, layers_model, object_checkpoint, outside
from rnnconvert.formats.keras.config import Era, of_json
from rnnconvert.formats.keras.files import refuse_others, stored_in
from rnnconvert.formats.keras.metadata import KerasMetadata, stated_model, stated_of_file, version_shown
from rnnconvert.formats.keras.model.entries import of_file
from rnnconvert.formats.keras.model.tree import SourceLayer, tree
from rnnconvert.formats.keras.upgrade import objects
from rnnconvert.formats.keras.upgrade.assign import assign, assign_by_names, assign_by_path, words_of
from rnnconvert.formats.keras.upgrade.config import Translator, serialised
from rnnconvert.formats.keras.upgrade.layers import Layers
from rnnconvert.formats.keras.upgrade.model import Models
from rnnconvert.formats.keras.upgrade.notes import TARGET, Notes, quoted

VERSION = "3.6.0"
"""The Keras version whose files these resemble."""
_TREE = "layers/"
"""Under what a .weights.h5 has its layers' arrays, as a .keras file has them."""
_ASIDE = ("optimizer", "optimizer_weights", "_optimizer", "metrics", "_metrics", "keras_api")
"""Groups of a file that hold what training left there."""


@dataclass(frozen=True)
class Upgraded:
    """The report of an upgrade.

    old      the file that was read
    new      the file that was written, or would be
    written  which Keras wrote the old one, as far as the file states it
    layers   how many layers the model has
    changes  the changes by layer, in words
    left     parts that are left out, as only training needs them
    notes    notes on how the old file was read
    proof    how it was proved that both compute the same; "" if it was not
    """

    old: str
    new: str
    written: str
    layers: int
    changes: Mapping[str, tuple[str, ...]]
    left: tuple[str, ...]
    notes: tuple[str, ...] = ()
    proof: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Return everything as JSON takes it."""
        changes = {name: list(texts) for name, texts in self.changes.items()}
        return {**vars(self), "changes": changes, "left": list(self.left), "notes": list(self.notes)}

    def lines(self) -> list[str]:
        """Return the report, line by line."""
        lines = [f"{self.old}: {self.written or 'a version that it does not state'}, {self.layers} layers"]
        lines += [f"  {name}: {text}" for name, texts in self.changes.items() for text in texts]
        lines += [f"left out: {text}" for text in self.left]
        lines += [f"note: {text}" for text in self.notes]
        return [*lines, *([self.proof] if self.proof else [])]

    def __str__(self) -> str:
        return "\n".join(self.lines())


@reading()
def upgrade(
    old: str | os.PathLike[str],
    new: str | os.PathLike[str],
    *,
    config: str | os.PathLike[str] | None = None,
    force: bool = False,
    dry_run: bool = False,
    verify: bool = False,
) -> Upgraded:
    """Write an old model, with its weights, as a .keras file that Keras 3 opens in safe mode without custom objects.

    old      an HDF5 file with a model configuration, as Keras 1, Keras 2 and tf.keras wrote it, a .keras file or SavedModel of Keras 2, or
             a layers model of TensorFlow.js
    config   the model's configuration, as model.to_json wrote it, where the old file holds weights alone
    force    replace the new file if it exists
    dry_run  write nothing
    verify   run the old file in tf_keras, or TensorFlow.js, and the new one in Keras, and keep it only if they agree

    Raises RefusedError for what Keras 3 cannot hold, UnreadableError for a damaged file, UsageError for a file without a
    model, NotEqualError and MissingPackageError where the proof fails or cannot be made.
    """
    source, target = model_path(local(old)), Path(new)
    source = topology if (topology := layers_model.file_of(source)).is_file() else source
    if target.suffix != ".keras":
        raise UsageError(f"{target}: the new file is a Keras 3 model. Give it a name that ends in .keras")
    if os.path.realpath(source) == os.path.realpath(target):
        raise UsageError(f"{source} is both the old file and the new one. Choose another name for the new one")
    if target.is_dir():
        raise UsageError(f"{target} is a folder. Name a file to write")
    refuse_others(source)
    if not dry_run:
        only_replace(target, force)
    with of_file(source, "rnnconvert.formats.keras"):
        try:
            model, result = as_keras_3(source, str(target), None if config is None else local(config))
        except UnreadableError as error:
            if error.path != "the configuration":
                raise
            raise UnreadableError(source, error.problem, error.remedy) from None
    document, weights = model
    if dry_run:
        return result
    if verify:
        from rnnconvert.formats.keras.upgrade.proof import proved

        text = proved(source, target, lambda path: _write(path, document, weights))
        return replace(result, proof=text)
    _write(target, document, weights)
    return result


def _write(path: Path, config: Mapping[str, Any], weights: Any) -> None:
    keras_zip.write(path, config, {"keras_version": VERSION, "date_saved": ""}, weights.arrays, weights.attributes)


def as_keras_3(
    source: Path, target: str, config_file: Path | None, altered: Callable[[Any], Any] = lambda config: config, keeps_weights: bool = False
) -> tuple[tuple[dict[str, Any], Any], Upgraded]:
    """Return the new model's configuration and weights, and what became of the old one.

    altered  returns the configuration to read in place of the stated one
    keeps_weights  see rnnconvert.formats.keras.upgrade.layers.Layers
    """
    stored = read(source)
    attributes = stored.metadata_as(KerasMetadata).get("attributes", {})
    notes = Notes()
    notes.notes += layers_model.notes(stored)
    config = altered(_config(source, stored, config_file, notes))
    version, backend = _written(stored, config)
    era = Era(version)
    if era.major >= 3 and version:
        way_out = "which reads it itself: keras.saving.load_model(...).save(...)"
        if layers_model.is_layers_model(stored.metadata_as(layers_model.LayersModelMetadata).get("document")):
            way_out = (
                f"and states no modules of its classes. Write it as code that loads its weights: {Command('scaffold', source, to='keras')}."
            )
        raise UsageError(f"{source} was written by Keras {version}, {way_out}")
    top = tree(config)
    if not top.is_model:
        raise RefusedError(f"a model of class {top.kind!r}", TARGET, "it is not built from layers alone", "", top.name)
    _give_arrays(source, stored, attributes, top, notes)
    translator = Translator(era, _usual_dtype(stored), notes)
    model = Models(Layers(translator, backend, keeps_weights), notes).model(top)
    document = model.serialised()
    metadata = stored.metadata_as(KerasMetadata)
    training = (metadata.get("config") or {}).get("compile_config") or metadata.get("training_config")
    training = training or _json(source, attributes, "training_config")
    if training:
        training_config = compiled(training, notes)
        if training_config:
            document["compile_config"] = training_config
    for name, reason in stored.metadata_as(KerasMetadata).get("unreadable", {}).items():
        raise RefusedError(f"{name!r}", TARGET, reason)
    written = f"Keras {version}" if version else ""
    if backend:
        written += f" on {backend}"
    changes = {name: tuple(texts) for name, texts in notes.changes.items()}
    return (document, model.tree()), Upgraded(str(source), target, written, _count(top), changes, tuple(notes.left), tuple(notes.notes))


def _count(model: SourceLayer) -> int:
    """Count the layers of a model: a wrapper and what it holds as one, without the inputs."""
    return sum(_count(layer) if layer.is_model else layer.kind != "InputLayer" for layer in model.inside)


def read(source: Path) -> Stored:
    """Return the content of a file."""
    if source.is_dir():
        if not (source / "saved_model.pb").is_file():
            raise UsageError(f"{source} is a folder without a saved_model.pb. Name the file of a model, or the folder of a SavedModel")
        if object_checkpoint.keras_metadata(source).model is None:
            raise UsageError(
                f"{source}: this SavedModel holds its layers as code alone, as those of Keras 3 and of models with a class of "
                "their own do. Convert its recurrent layers: rnnconvert convert. Where its code is at hand, make the model of built-in "
                "layers, load the weights into it, and save that"
            )
        return object_checkpoint.read(source)
    return stored_in(source)


def written_before_keras_3(source: Path) -> bool:
    """Return whether a file states that Keras 1 or 2 wrote it, or has the names of their weights."""
    stored = read(source)
    config = stated_model(source, stored.metadata_as(KerasMetadata))
    return _written(stored, config if isinstance(config, Mapping) else {})[0][:1] in ("1", "2")


def _written(stored: Stored, config: Mapping[str, Any]) -> tuple[str, str]:
    """Return the version and the backend that wrote a file, as far as they are stated or shown."""
    version, backend = (stated_of_file(stored, key, str(config.get(key) or "")) for key in ("keras_version", "backend"))
    version = version or version_shown(stored)
    old_names = [name for name in stored.arrays if name.partition(":")[0].endswith(("_W", "_W_i"))]
    if version.startswith("1") and not backend and old_names:
        # TensorFlow numbers the outputs of its operations; Theano's variables have their names alone.
        backend = "tensorflow" if all(":" in name for name in old_names) else "theano"
    return version, backend


def _json(source: Path, attributes: Mapping[str, Mapping[str, Any]], key: str) -> Any:
    text = attributes.get("", {}).get(key)
    return of_json(source, text, f"its attribute {key}") if isinstance(text, str) else None


def _config(source: Path, stored: Stored, config_file: Path | None, notes: Notes) -> Mapping[str, Any]:
    metadata = stored.metadata_as(KerasMetadata)
    config = stated_model(source, metadata)
    config = metadata.get("root_config") if config is None else config
    if config is not None and config_file is not None:
        notes.notes.append(outside.of(source, stored, Options({"config": str(config_file)})).warning)
        config_file = None
    if config is None and config_file is None:
        chosen = outside.of(source, stored, Options())
        if chosen.config is None:
            new = source.with_name(f"{source.name.partition('.')[0]}_keras3.weights.h5")
            raise UsageError(
                f"{source} holds weights without a model. Hand in the model as model.to_json wrote it, with {Flag('config')}, or convert "
                f"the weights: {Command('convert', source, new)}{chosen.hint}"
            )
        config_file = chosen.path
        notes.notes.append(chosen.warning)
    if config_file is not None:
        source = config_file
        config, version = architecture.stated(config_file)
        config = {"keras_version": version, **config} if isinstance(config, Mapping) and version else config
    if not isinstance(config, Mapping) or not isinstance(config.get("config"), (Mapping, list)):
        raise UnreadableError(source, "its model configuration has an unknown form")
    return config


def _give_arrays(source: Path, stored: Stored, attributes: Mapping[str, Mapping[str, Any]], top: SourceLayer, notes: Notes) -> None:
    """Give every layer its arrays. Raises RefusedError unless every array of the model belongs to one."""
    used: set[str] = set()
    arrays = dict(stored.arrays)
    if "metadata" in stored.metadata or any(name.startswith(_TREE) for name in arrays):
        used = assign_by_path(top, "", arrays)
    elif stored.metadata_as(KerasMetadata).get("by_layers"):
        used = assign_by_names(top, arrays)
    else:
        children = {layer.name: layer for layer in top.inside}
        whole_model = "layer_names" in attributes.get("model_weights", {})
        root = "model_weights/" if whole_model else ""
        listed = attributes.get("model_weights" if whole_model else "", {}).get("layer_names")
        if not isinstance(listed, list):
            raise UnreadableError(source, "it does not list the layers of its weights")
        for name in listed:
            names = attributes.get(f"{root}{name}", {}).get("weight_names", [])
            full = [f"{root}{name}/{weight}" for weight in names] if isinstance(names, list) else []
            if full and name not in children:
                raise RefusedError(f"the weights of {name!r}", TARGET, "the model has no such layer")
            if name in children:
                used |= assign(children[name], full, arrays)
        if missing := [layer.name for layer in top.inside if layer.name not in listed and any(words_of(inner) for inner in layer.walk())]:
            raise RefusedError(f"the layers {', '.join(missing)}", TARGET, "the file lists no weights of theirs")
    aside = {name for name in arrays if name.partition("/")[0] in _ASIDE}
    states = {name for name in arrays if object_checkpoint.STATES in name}
    outside = {name for name in arrays if not name.startswith("model_weights/")} if "model_weights" in attributes else set()
    authors = sorted(outside - used - aside)
    if authors:
        notes.leave(f"{', '.join(authors[:5])}: an author's own, which Keras does not read")
    if any(np.any(arrays[name][...]) for name in states):
        notes.leave(f"the states that its layers were saved in ({len(states)} arrays): they begin with zeros")
    if rest := sorted(set(arrays) - used - aside - states - {*authors}):
        raise RefusedError(f"the arrays {', '.join(rest[:5])}", TARGET, "they belong to no layer of the model")
    if aside:
        notes.leave(f"the optimizer's state ({len(aside)} {'array' if len(aside) == 1 else 'arrays'}): training starts it anew")


def _usual_dtype(stored: Stored) -> str:
    """Return the type of numbers of a model whose layers state none: that of its weights."""
    dtypes = {str(array.dtype.newbyteorder("=")) for name, array in stored.arrays.items() if name.partition("/")[0] not in _ASIDE}
    dtypes &= set(FLOATS)
    return dtypes.pop() if len(dtypes) == 1 else "float32"


# How an old model was compiled, as Keras 3 writes it: what has the same meaning there; the rest is named as left out.

_OTHERS = ("sample_weight_mode", "run_eagerly", "steps_per_execution", "jit_compile", "target_tensors")


def compiled(training: Any, notes: Notes) -> dict[str, Any] | None:
    """Return the compile configuration; None where a part without which Keras cannot compile is left out."""
    if not isinstance(training, Mapping):
        notes.leave("how it was compiled, as that has an unknown form")
        return None
    optimizer = _optimizer(training.get("optimizer_config", training.get("optimizer")), notes)
    loss, recognised = _named(training.get("loss"), objects.LOSSES)
    if not recognised:
        notes.leave(f"the loss {quoted(training.get('loss'))}: compile the model anew")
        return None
    if optimizer is None:
        return None
    settings: dict[str, Any] = {"optimizer": optimizer, "loss": loss, "loss_weights": training.get("loss_weights")}
    for key in ("metrics", "weighted_metrics"):
        metrics, recognised = _named(_plain_metrics(training.get(key)), objects.METRICS)
        if not recognised:
            notes.leave(f"the {key.replace('_', ' ')} {quoted(training.get(key))}")
        elif key in training or key == "metrics":
            settings[key] = metrics
    for key in _OTHERS:
        if training.get(key):
            notes.leave(f"{key} = {quoted(training[key])} of how it was compiled")
    return settings


def _optimizer(value: Any, notes: Notes) -> dict[str, Any] | None:
    """Return an optimizer with its settings; None, with a note, for one that has others there."""
    if isinstance(value, str):
        value = {"class_name": value, "config": {}}
    config = value.get("config") if isinstance(value, Mapping) else None
    if not isinstance(value, Mapping) or not isinstance(config, Mapping):
        notes.leave("the optimizer, as its configuration has an unknown form: compile the model anew")
        return None
    named = str(value.get("class_name", "")).rpartition(">")[2]
    class_name = {optimizer.lower(): optimizer for optimizer in objects.OPTIMIZERS}.get(named.lower())
    keys = objects.OPTIMIZERS.get(class_name or "", "").split()
    numbers: dict[str, Any] = {}
    aside: dict[str, Any] = {}
    for key, setting in config.items():
        name = "learning_rate" if key == "lr" else key
        neutral = key in objects.OPTIMIZER_NEUTRAL and setting in (None, objects.OPTIMIZER_NEUTRAL[key])
        if name in keys and (setting is None or isinstance(setting, (int, float))):
            numbers |= {} if setting is None else {name: setting}
        elif not neutral and key not in objects.OPTIMIZER_ASIDE:
            aside[key] = setting
    if class_name is None or aside:
        what = f" with {quoted(aside)}" if class_name else ""
        notes.leave(f"the optimizer {named}{what}: compile the model anew")
        return None
    return serialised(class_name, numbers, "keras.optimizers")


def _plain_metrics(value: Any) -> Any:
    """Return metrics by the names of their functions: tf.keras wraps them."""
    if isinstance(value, Mapping) and isinstance(value.get("config"), Mapping):
        return value["config"].get("fn") or value.get("class_name")
    if isinstance(value, list):
        return [_plain_metrics(inner) for inner in value]
    if isinstance(value, Mapping):
        return {key: _plain_metrics(inner) for key, inner in value.items()}
    return value


def _named(value: Any, table: Mapping[str, str]) -> tuple[Any, bool]:
    """Return losses or metrics by their names in Keras 3, and whether all are known."""
    if value is None:
        return None, True
    if isinstance(value, str):
        return table.get(value, value), value in table
    if isinstance(value, list):
        results = [_named(entry, table) for entry in value]
        return [item for item, _ in results], all(good for _, good in results)
    if isinstance(value, Mapping) and "class_name" not in value:
        pairs = {key: _named(item, table) for key, item in value.items()}
        return {key: entry for key, (entry, _) in pairs.items()}, all(good for _, good in pairs.values())
    return value, False
