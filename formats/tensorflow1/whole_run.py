"""Whole graphs: frozen ones run in TensorFlow, graph models in TensorFlow.js."""

from __future__ import annotations

from pathlib import Path

from rnnconvert.files.opened import Opened
from rnnconvert.formats.tensorflow1 import graph_model
from rnnconvert.models.runners import FileModel, whole_file

NAME = "tensorflow1"


def open_file(path: Path, config: Path | None = None) -> FileModel:
    """Return the model of a graph. Raises what FileModel raises."""
    return whole_file("tfjs" if graph_model.topology(Opened(path)) is not None else NAME, path)
