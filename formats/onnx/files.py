"""ONNX models: the RNN, GRU and LSTM nodes of any graph, one recurrent layer each, and layers that other operators compute.

What reads a model and what writes one are imported when they are used: either takes longer than a small conversion.
"""

from __future__ import annotations

from pathlib import Path

from rnnconvert.containers.files import lowered
from rnnconvert.files.adapter import Job, WriteResult, written_layouts
from rnnconvert.files.checkpoint import Checkpoint
from rnnconvert.files.opened import KIND, STATED, FormatClaim, Opened
from rnnconvert.files.options import Options
from rnnconvert.language import registry

NAME = "onnx"
SUFFIXES = registry.endings(NAME)


# ModelProto.ir_version is field 1, a varint, and is written first; what may follow are the fields 2 to 8.
_SECOND = bytes((2 << 3 | 2, 3 << 3 | 2, 4 << 3 | 2, 5 << 3, 6 << 3 | 2, 7 << 3 | 2, 8 << 3 | 2))


def recognise(file: Opened) -> FormatClaim | None:
    """Recognize a protobuf message that begins like a model, also by its name, since protobuf has no magic number."""
    suffix, head = lowered(file.path).suffix, file.head
    if suffix in SUFFIXES[1:]:
        return FormatClaim(STATED, f"a text model, by its ending {suffix}")
    if len(head) > 2 and head[0] == 8 and 1 <= head[1] < 32 and head[2] in _SECOND and not _is_message(head[2:]):
        return FormatClaim(KIND, "a protobuf message that begins as an ONNX model does")
    other = head[:4] == b"PK\x03\x04" or head[8:9] == b"{"
    return FormatClaim(KIND, "an ONNX model, by its ending") if suffix == ".onnx" and not other else None


def _is_message(head: bytes) -> bool:
    """Return whether the second field is a message instead of a producer's name, as in other protobuf files."""
    length = head[1] if head[0] == _SECOND[0] and len(head) > 1 else 0
    return length > 127 or not head[2 : 2 + length].decode("utf-8", "replace").isprintable()


layouts = written_layouts(NAME)


def read(path: Path, options: Options) -> Checkpoint:
    """Return every recurrent node whose weights are constant, wherever in the model it is."""
    from rnnconvert.formats.onnx.proto import file as onnx_file
    from rnnconvert.formats.onnx.read import read_model

    return read_model(Opened(path).cached(onnx_file.read), path, options)


def about(checkpoint: Checkpoint) -> dict[str, object]:
    """Return a model's statements about itself: its producer, its operator sets, its versions and its own metadata."""
    from rnnconvert.formats.onnx.node import ReadModel

    model = checkpoint.read_as(ReadModel).file.model
    producer = f"{model.producer_name} {model.producer_version}".strip()
    sets = [f"{opset.version}" + ("" if not opset.domain else f" of {opset.domain}") for opset in model.opset_import]
    properties = {prop.key: prop.value for prop in model.metadata_props}
    return {
        "producer": producer,
        "opset": ", ".join(sets),
        "IR version": model.ir_version,
        "graph": model.graph.name,
        "domain": model.domain,
        "model version": model.model_version or "",
        **properties,
    }


def write(path: Path, job: Job) -> WriteResult:
    """Write a model with one set of inputs and outputs for each recurrent layer, which any ONNX runtime runs."""
    from rnnconvert.formats.onnx.write import write

    return write(path, job)
