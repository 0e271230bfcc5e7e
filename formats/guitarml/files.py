"""JSON of a torch state dictionary: bare, or as `state_dict` next to `model_data`; its modules may be objects in objects."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypedDict

from rnnconvert.containers import json_file
from rnnconvert.containers.stored import Stored
from rnnconvert.core.arrays import Array
from rnnconvert.core.errors import UnreadableError
from rnnconvert.files.adapter import Job, WriteResult
from rnnconvert.files.checkpoint import Checkpoint
from rnnconvert.files.finder import ArrayFiles
from rnnconvert.files.opened import STATED, FormatClaim, Opened
from rnnconvert.files.options import Options
from rnnconvert.language import registry

_STATE, _ABOUT = "state_dict", "model_data"
_UNITS = {"LSTM": "lstm", "GRU": "gru", "RNN": "rnn"}


class GuitarMetadata(TypedDict):
    """The metadata of a file: all of its JSON, whether its weights stand in an envelope, and the rest of it."""

    document: dict[str, Any]
    enveloped: bool
    left: Any


class GuitarMl(ArrayFiles):
    """The adapter of state dictionaries as JSON."""

    def recognise(self, file: Opened) -> FormatClaim | None:
        """Recognize `model_data` and `state_dict`, or arrays with torch's names."""
        document = file.json
        if document is None:
            return None
        if isinstance(document.get(_STATE), dict) and isinstance(document.get(_ABOUT), dict):
            return FormatClaim(STATED, f"JSON with {_ABOUT} and {_STATE}, as CoreAudioML writes it")
        return super().recognise(file)

    def kind(self, file: Opened) -> str:
        """Return the kind of this file."""
        return "JSON of a state dictionary" if "json" in file.kinds else ""

    def stored(self, file: Opened) -> Stored:
        """Return the arrays of the state dictionary, and the document around them."""
        document = file.cached(json_file.read)
        enveloped = _STATE in document
        state = document[_STATE] if enveloped else {name: value for name, value in document.items() if name != _ABOUT}
        if not isinstance(state, dict):
            raise UnreadableError(file.path, f"its {_STATE} is not an object")
        arrays, left = json_file.arrays_in(state, file.path)
        return Stored(arrays, GuitarMetadata(document=document, enveloped=enveloped, left=left))

    def read(self, path: Path, options: Options) -> Checkpoint:
        """Return every recurrent layer; what `model_data` says of other layers than there are is an error."""
        checkpoint = super().read(path, options)
        document = checkpoint.metadata_as(GuitarMetadata)["document"]
        about = document.get(_ABOUT, {})
        if not isinstance(about, dict):
            raise UnreadableError(path, f"its {_ABOUT} is not an object")
        left = checkpoint.metadata_as(GuitarMetadata)["left"]
        warnings = [f"the file states {name!r}, which is not an array" for name in left]
        if checkpoint.metadata_as(GuitarMetadata)["enveloped"]:
            warnings += [f"the file states {name!r}, whose effect is unknown" for name in document if name not in (_ABOUT, _STATE)]
        for name, stack in checkpoint.layers.items():
            facts = options.facts(name, _ABOUT, about, neutral={"model": ("SimpleRNN",)})
            facts.take("skip")
            has = {"input_size": stack.input_size, "hidden_size": stack.hidden_size, "num_layers": stack.num_layers}
            has |= _of_dense(name, checkpoint.tensors)
            for key, value in has.items():
                if key in facts and (type(facts[key]) not in (int, bool) or facts[key] != value):
                    raise UnreadableError(path, f"its {_ABOUT} states {key} {facts[key]!r}, but its arrays have {value}")
            if "unit_type" in facts and _UNITS.get(str(facts["unit_type"])) != stack.cell.kind and stack.cell.kind != "rnn":
                raise UnreadableError(
                    path, f"its {_ABOUT} states unit_type {facts['unit_type']!r}, but {name!r} has the arrays of {stack.describe()}"
                )
        if about.get("skip"):
            warnings.append(
                f"skip is {about['skip']}: so many of the first inputs are added to the output of the whole model, and a layer alone "
                "does not do that"
            )
        return checkpoint.replace(warnings=(*checkpoint.warnings, *warnings))

    def about(self, checkpoint: Checkpoint) -> dict[str, object]:
        """Return the statements of `model_data`."""
        document = checkpoint.metadata_as(GuitarMetadata)["document"]
        return dict(document.get(_ABOUT, {}))

    def write(self, path: Path, job: Job) -> WriteResult:
        """Write the source's own document with its arrays, or a bare state dictionary."""
        arrays, written = self.packed(path, job)
        notes = [*written.notes]
        document = self._in_document(arrays, job.source)
        if document is None:
            document = arrays
            notes.append(
                f"this is a bare state dictionary, as RTNeural's torch_helpers load it; GuitarML's plug-ins want {_ABOUT} and a dense "
                "layer, too"
            )
        if not job.dry_run:
            json_file.write(path, document)
        return replace(written, notes=notes)

    def _in_document(self, arrays: Mapping[str, Any], source: Checkpoint) -> Mapping[str, Any] | None:
        """Return a source's document with arrays of the same names; None if it has no envelope, or its modules are objects in objects."""
        if source.format != self.NAME or set(arrays) != set(source.arrays) or not source.metadata_as(GuitarMetadata)["enveloped"]:
            return None
        read = source.metadata_as(GuitarMetadata)["document"]
        if not set(arrays) <= set(read[_STATE]):
            return None
        return {**read, _STATE: {name: arrays.get(name, value) for name, value in read[_STATE].items()}}


def _of_dense(name: str, tensors: Mapping[str, Array]) -> dict[str, int]:
    """Return the entries of `model_data` for the dense layer `lin` next to a layer; nothing if that is missing."""
    above = name.rpartition("rec")[0]
    weight = tensors.get(f"{above}lin.weight")
    if weight is None or weight.ndim != 2:
        return {}
    return {"output_size": weight.shape[0], "bias_fl": f"{above}lin.bias" in tensors}


ADAPTERS = (GuitarMl("guitarml", registry.endings("guitarml"), "."),)
