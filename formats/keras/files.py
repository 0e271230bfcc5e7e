"""Keras's files of every era: .keras, .weights.h5, legacy HDF5, SavedModel and checkpoints."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from rnnconvert.containers import archives, zips
from rnnconvert.containers.files import lowered
from rnnconvert.containers.stored import Stored
from rnnconvert.core.errors import UnreadableError, UsageError
from rnnconvert.core.remedies import Command
from rnnconvert.files import detect
from rnnconvert.files.adapter import Job, WriteResult, written_layouts
from rnnconvert.files.checkpoint import Checkpoint
from rnnconvert.files.opened import KIND, SHAPED, STATED, FormatClaim, Opened
from rnnconvert.files.options import Options
from rnnconvert.formats.keras.metadata import KerasMetadata
from rnnconvert.language import registry

# What reads and what writes are imported where that is asked for: a conversion to Keras does not enter its reader.

NAME = "keras"
SUFFIXES = registry.endings(NAME)
YAML = (".yaml", ".yml")
_MODELS = ("Sequential", "Model", "Functional", "Graph")
_IN_YAML = re.compile(rb"^class_name: *(%s) *\r?$" % "|".join(_MODELS).encode(), re.MULTILINE)


def recognise(file: Opened) -> FormatClaim | None:
    """Recognize an HDF5 file, a .keras archive, or a TensorFlow checkpoint."""
    if "hdf5" in file.kinds and (file.archive or lowered(file.path).suffix in (".h5", ".hdf5")):
        return FormatClaim(KIND, "an HDF5 file")
    if _states_architecture(file):
        return FormatClaim(STATED, "the architecture of a Keras model, without weights")
    if {"config.json", "model.weights.h5"} <= {*(file.entries or ())}:
        return FormatClaim(STATED, "a zip archive with a config.json and a model.weights.h5, as Keras 3 writes it")
    from rnnconvert.formats.keras import pickled, variables

    evidence = pickled.recognise(file)
    if evidence:
        return FormatClaim(STATED, evidence)
    evidence = variables.recognise(file)
    if evidence:
        return FormatClaim(SHAPED, evidence)
    from rnnconvert.formats.keras import object_checkpoint  # few files are any

    evidence = object_checkpoint.recognise(file.path)
    return FormatClaim(KIND if "bundle" in file.kinds else STATED, evidence) if evidence else None


def _states_architecture(file: Opened) -> bool:
    """Return whether a file is what `model.to_json` or `model.to_yaml` writes; of YAML the first lines say it."""
    if file.json is not None:
        return is_architecture(file.json)
    return lowered(file.path).suffix in YAML and _IN_YAML.search(file.head) is not None


def is_architecture(document: object) -> bool:
    """Return whether a document is what `model.to_json` writes. Source: keras/src/models/model.py, to_json."""
    return isinstance(document, Mapping) and document.get("class_name") in _MODELS and isinstance(document.get("config"), (Mapping, list))


layouts = written_layouts(NAME)


def refuse_others(path: Path) -> None:
    """Raise UsageError for a file to upgrade that another framework wrote; one that is damaged or of no known kind is its reader's."""
    from rnnconvert.formats.keras.layers_model import is_layers_model

    file = Opened(path)
    if not path.is_file() or "hdf5" in file.kinds or "config.json" in (file.entries or ()):
        return
    try:
        framework = detect.source(file).reader.NAME
    except UnreadableError:
        return
    if framework != NAME and not is_layers_model(file.json):
        raise UsageError(
            f"{path} is a file of {registry.title(framework)}, and only models of Keras are upgraded. For its recurrent layers alone: "
            f"{Command('convert', path, 'TARGET')}."
        )


def stored_in(path: Path) -> Stored:
    """Return the arrays of a file of any of its kinds, which one reading parses once. Raises UnreadableError."""
    return Opened(path).examined(_stored_of)


def _stored_of(file: Opened) -> Stored:
    from rnnconvert.containers import hdf5  # its library is imported where such a file is met
    from rnnconvert.formats.keras import groups, keras_zip, layers_model, object_checkpoint, pickled, variables  # few files are each

    path = file.path
    if layers_model.is_layers_model(file.json):
        return layers_model.read(path)
    if object_checkpoint.recognise(path):
        return object_checkpoint.read(path)
    if pickled.recognise(file):
        return pickled.read(path)
    if file.kinds & variables.KINDS and file.archive:
        return variables.grouped(path, file.cached(archives.reader(path, file.head)))
    return keras_zip.read(path) if zips.is_zip(path) else groups.modern(path, hdf5.read(path))


def read(path: Path, options: Options) -> Checkpoint:
    """Return every recurrent layer, in a whole model or among bare weights."""
    from rnnconvert.formats.keras import outside
    from rnnconvert.formats.keras.read import LayerReader

    if _states_architecture(Opened(path)):
        raise UnreadableError(
            path,
            "it is the architecture of a Keras model, without weights",
            f"Give the file of the weights, and this one with it: {Command('convert', 'WEIGHTS.h5', 'TARGET', config=path)}.",
        )
    stored = stored_in(path)
    return LayerReader(path, stored, options, outside.of(path, stored, options)).read()


def about(checkpoint: Checkpoint) -> dict[str, object]:
    """Return the versions and the time that a file states."""
    from rnnconvert.formats.keras.cells import StatedLayers

    metadata = checkpoint.metadata_as(KerasMetadata).get("metadata") or {}
    attributes = checkpoint.metadata_as(KerasMetadata).get("attributes", {})
    places = [metadata, attributes.get("model_weights", {}), attributes.get("", {})]
    era = checkpoint.read_as(StatedLayers).era
    facts: dict[str, object] = {"framework": f"Keras {era.text}"} if era.stated and era.text else {}
    for key, word in (("backend", "backend"), ("date_saved", "saved")):
        stated = next((place[key] for place in places if place.get(key)), None)
        if stated is not None:
            facts[word] = stated.decode("utf-8", "replace") if isinstance(stated, bytes) else stated
    return facts


def silent(path: Path) -> bool:
    """Return whether a file of that name states no functions: weights alone do not."""
    return lowered(path).name.endswith(".weights.h5")


def write(path: Path, job: Job) -> WriteResult:
    """Write a .keras model, the .weights.h5 of one, or a legacy HDF5 model."""
    from rnnconvert.formats.keras import write as keras_write

    return keras_write.write(path, job)
