"""TensorFlow.js layers models: model.json with a configuration as Keras has it, and groups of weights next to it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from rnnconvert.containers import graph_def_json
from rnnconvert.core.arrays import Array, PiecewiseArray
from rnnconvert.core.errors import UnreadableError, UsageError
from rnnconvert.core.notes import LayerNote
from rnnconvert.core.remedies import Flag
from rnnconvert.files.adapter import Job, WriteResult, apart, outputs_turned, unique, written_layouts
from rnnconvert.files.checkpoint import Checkpoint
from rnnconvert.files.opened import STATED, FormatClaim, Opened
from rnnconvert.files.options import Options
from rnnconvert.formats.keras import layers_model, outside
from rnnconvert.formats.keras.cells import StatedLayers
from rnnconvert.formats.keras.files import stored_in
from rnnconvert.formats.keras.layers_model import LayersModelMetadata, file_of, is_layers_model
from rnnconvert.formats.keras.read import LayerReader
from rnnconvert.formats.tfjs.config import EVERY_STEP, described
from rnnconvert.formats.tfjs.written import write_model
from rnnconvert.language import registry
from rnnconvert.language.packing import pack
from rnnconvert.rewrites import split_stack

NAME = "tfjs"
SUFFIXES = registry.endings(NAME)


def recognise(file: Opened) -> FormatClaim | None:
    """Recognize a topology beside a manifest of weights, in a file or in the folder that is downloaded with it."""
    if file.path.is_dir():
        inside = file_of(file.path)
        return recognise(Opened(inside)) if inside.is_file() else None
    if not is_layers_model(file.json):
        return None
    return FormatClaim(STATED, "JSON with a weightsManifest, as TensorFlow.js saves models")


layouts = written_layouts(NAME)


def about(checkpoint: Checkpoint) -> dict[str, object]:
    """Return the model's statements about itself."""
    document = checkpoint.metadata_as(LayersModelMetadata)["document"]
    return {key: document.get(key, "") for key in ("format", "generatedBy", "convertedBy")}


def read(path: Path, options: Options) -> Checkpoint:
    """Return every recurrent layer of a layers model, which is a model of Keras in other files.

    Raises UnreadableError for a damaged file, and for a graph model.
    """
    named, path = path, file_of(path)
    document = Opened(path).json
    if document is not None and graph_def_json.is_graph(document.get("modelTopology")):
        raise UnreadableError(path, "it is a graph model, which has no layers", f"Read its graph: {Flag('from', 'tensorflow1')}.")
    # A file of another kind of Keras's is none of TensorFlow.js's, whatever the caller says: what is missing in it is named.
    stored = stored_in(path) if is_layers_model(document) else layers_model.read(path)
    checkpoint = LayerReader(path, stored, options, outside.of(path, stored, options)).read()
    warnings = (*checkpoint.warnings, *_narrow(checkpoint))
    files = stored.metadata_as(LayersModelMetadata)["files"]
    return replace(checkpoint, path=str(named), format=NAME, warnings=warnings, beside=files)


def _narrow(checkpoint: Checkpoint) -> Iterator[LayerNote]:
    """Yield a note on each layer whose weights are quantized."""
    narrow = checkpoint.metadata_as(LayersModelMetadata)["narrow"]
    for name, place in checkpoint.read_as(StatedLayers).places.items():
        kinds = {narrow[full] for cell in place.cells.values() for full in cell.names if full in narrow}
        if kinds:
            stored = " and ".join(sorted(kinds))
            yield LayerNote(name, f"its weights are stored as {stored}, and are read as the float numbers that these stand for")


def write(path: Path, job: Job) -> WriteResult:
    """Write one stack as a Sequential model, its weights in one group next to it.

    Raises UsageError for several stacks.
    """
    if len(job.parts) > 1:
        models = "Whole models, with what stands between and behind these layers, are written by rnnconvert export"
        raise UsageError(f"{path}: the layers of a model read one another, and {apart(job)}. {models}")
    ((part),) = job.parts
    turned = outputs_turned(part.stack, NAME, f"after {part.stack.name} comes tf.reverse(y, 1)")
    layers: list[dict[str, Any]] = []
    names: set[str] = set()
    weights: dict[str, Array | PiecewiseArray] = {}
    for single in split_stack(part.stack):
        name = unique(single.name or single.cell.kind, names)
        names.add(name)
        written = described(single, name, EVERY_STEP, single.layers[0].merge)
        written["config"] |= {} if layers else {"batch_input_shape": [None, None, single.input_size], "dtype": "float32"}
        layers.append(written)
        for local, packed in pack(part.layout, single, job.dtype, job.watch).items():
            way, _, end = local.rpartition("/")
            weights[f"{name}/{way}_{name}/{end}" if way else f"{name}/{end}"] = packed
    model = {"class_name": "Sequential", "config": {"name": "recurrent", "layers": layers}}
    data_files = [] if job.dry_run else [write_model(path, model, weights)]
    where = f"its numbers are in {path.name}.DIGEST.data, which belongs next to it; load it in JavaScript with tf.loadLayersModel"
    return WriteResult([where, *turned], dropped=[*job.carried], companions=data_files)
