"""brain.js's JSON: the network's class, its options, and the matrices of its hidden layers, which read one another.

Sources: brain.js 1.6.1 and 2.0.0, src/recurrent/rnn.js, toJSON, fromJSON and bindEquation; src/recurrent/matrix, toJSON.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypedDict

from rnnconvert.containers import json_file
from rnnconvert.containers.stored import Stored
from rnnconvert.core.arrays import Array
from rnnconvert.core.errors import UnreadableError
from rnnconvert.core.limits import LAYERS
from rnnconvert.core.malformed import malformed
from rnnconvert.core.notes import UNREAD, LayerNote
from rnnconvert.files.checkpoint import Checkpoint
from rnnconvert.files.finder import ArrayFiles
from rnnconvert.files.found_layer import FoundLayer
from rnnconvert.files.opened import Opened
from rnnconvert.files.options import Options
from rnnconvert.graphs.row import in_a_row
from rnnconvert.language import registry

_CLASSES = ("RNN", "GRU", "LSTM", "RNNTimeStep", "GRUTimeStep", "LSTMTimeStep")
_HIDDEN = "hiddenLayers"
_AROUND = ("input", "outputConnector", "output")
_NO_LSTM = (
    "brain.js's LSTM forgets what it gave, and not its cell: c = f * h + i * g, h = o * tanh(c) (src/recurrent/lstm.js, "
    "getEquation). No LSTM computes this, whatever its weights are"
)


class BrainMetadata(TypedDict):
    """The metadata of a file: the class of its network, and how many layers it has."""

    network: str
    layers: int


class BrainJs(ArrayFiles):
    """The adapter of brain.js's recurrent networks: see rnnconvert.files.adapter."""

    STATED_KIND = True

    def kind(self, file: Opened) -> str:
        """Return the kind of this file, in words; "" if it does not belong to brain.js."""
        document = file.json
        if document is None or document.get("type") not in _CLASSES or not isinstance(document.get(_HIDDEN), list):
            return ""
        return "JSON of one of brain.js's recurrent networks"

    def stored(self, file: Opened) -> Stored:
        """Return the matrices by their places in the document."""
        document = file.cached(json_file.read)
        hidden = document.get(_HIDDEN)
        if not isinstance(hidden, list) or not all(isinstance(layer, dict) for layer in hidden):
            raise UnreadableError(file.path, f'it is JSON without a list "{_HIDDEN}" of objects')
        if len(hidden) > LAYERS:
            raise UnreadableError(file.path, f"it has {len(hidden)} layers, and at most {LAYERS} are read")
        arrays = {name: _matrix(value, file.path, name) for name, value in _matrices(document)}
        return Stored(arrays, BrainMetadata(network=str(document.get("type")), layers=len(hidden)))

    def find(self, path: Path, stored: Stored, options: Options) -> tuple[list[FoundLayer], list[LayerNote]]:
        """Return the layers of an RNN or a GRU; an LSTM's are named, with its equation."""
        if str(stored.metadata_as(BrainMetadata)["network"]).startswith("LSTM"):
            count = stored.metadata_as(BrainMetadata)["layers"]
            return [], [LayerNote(f"{_HIDDEN}/{number}", _NO_LSTM, UNREAD) for number in range(count)]
        return super().find(path, stored, options)

    def read(self, path: Path, options: Options) -> Checkpoint:
        """Return every recurrent layer: each reads the one before."""
        checkpoint = super().read(path, options)
        count = checkpoint.metadata_as(BrainMetadata)["layers"]
        received = in_a_row([(f"{_HIDDEN}/{number}", "a hidden layer") for number in range(count)], checkpoint.layers)
        layers = {name: stack.replace(calls=received.get(name, ())) for name, stack in checkpoint.layers.items()}
        return checkpoint.replace(layers=layers)

    def about(self, checkpoint: Checkpoint) -> dict[str, object]:
        """Return the network's class."""
        return {"class": checkpoint.metadata_as(BrainMetadata)["network"]}


def _matrices(document: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the matrices of a network by their names."""
    for number, layer in enumerate(document[_HIDDEN]):
        for name, value in layer.items():
            yield f"{_HIDDEN}/{number}/{name}", value
    for name in _AROUND:
        if name in document:
            yield name, document[name]


def _matrix(value: Any, path: Path, name: str) -> Array:
    """Return a matrix: its rows, its columns, and its numbers as a list or by their places. Raises UnreadableError."""
    with malformed(lambda _: UnreadableError(path, f"{name!r} is not a matrix with rows, columns and weights")):
        rows, columns, weights = value["rows"], value["columns"], value["weights"]
        count = len(weights)
        sizes = type(rows) is int and type(columns) is int and rows > 0 and columns > 0
        fits = sizes and count == rows * columns
        numbers = weights if isinstance(weights, list) or not fits else [weights[str(at)] for at in range(count)]
    if not fits:
        raise UnreadableError(path, f"{name!r} has {count} weights, but is {rows} by {columns}")
    return json_file.array(numbers, path, name).reshape(rows, columns)


ADAPTERS = (BrainJs("brainjs", registry.endings("brainjs")),)
