"""Core ML models: the recurrent layers of a neural network, or the recurrent operations of a program."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from rnnconvert.containers import wire
from rnnconvert.containers.files import lowered, map_file
from rnnconvert.core.errors import UnreadableError
from rnnconvert.files.adapter import Job, WriteResult
from rnnconvert.files.checkpoint import Checkpoint
from rnnconvert.files.opened import STATED, FormatClaim, Opened
from rnnconvert.files.options import Options
from rnnconvert.formats.coreml import network, program, write_network, write_program
from rnnconvert.formats.coreml.contents import Network
from rnnconvert.formats.coreml.message import Message
from rnnconvert.formats.coreml.package import MANIFEST, WeightFiles, model_in
from rnnconvert.language import registry
from rnnconvert.language.layout import Layout

_NETWORKS = {303: "neuralNetworkRegressor", 403: "neuralNetworkClassifier", 500: "neuralNetwork"}
_PROGRAM, _PIPELINE = 502, 202
_PIPELINES = (200, 201)
"""Fields of Model: a neural network, a program, a row of models, and such a row in a classifier or a regressor."""
_VERSIONS = range(1, 64)


def _kind(path: Path) -> tuple[int, Path]:
    """Return the field of Model that holds the model of a path, and its file; 0 where it is not a model of Core ML."""
    place = model_in(path)
    data = map_file(place)
    fields = {number: content for number, content in wire.values(data.data, place)}
    version, described = fields.get(1), fields.get(2)
    if not (isinstance(version, int) and version in _VERSIONS and isinstance(described, memoryview)):
        return 0, place
    types = (_PROGRAM, _PIPELINE, *_PIPELINES, *_NETWORKS)
    return next((number for number, field_ in fields.items() if number in types and isinstance(field_, memoryview)), 0), place


def _begins(head: bytes) -> bool:
    """Return whether bytes begin as a model: its version, then its description, which begins with an input, an output or metadata.

    Other models begin with a version and a text.
    """
    return head[:1] == b"\x08" and head[1:2] < b"\x40" and head[2:3] == b"\x12" and _first(head[3:]) in (b"\n", b"R", b"\xa2")


def _first(after: bytes) -> bytes:
    """Return the first byte of a field's content, behind its length."""
    place = next((place for place, byte in enumerate(after[:10]) if byte < 0x80), 10)
    return after[place + 1 : place + 2]


@dataclass(frozen=True)
class CoreMl:
    """The adapter of programs, or of neural networks: a file of either is read by both."""

    NAME: str
    SUFFIXES: tuple[str, ...]
    ZERO_STATES: ClassVar[bool] = True

    def recognise(self, file: Opened) -> FormatClaim | None:
        """Recognize a model by its version, its description and the kind that it states."""
        package = file.path.is_dir() and (file.path / MANIFEST).is_file()
        if not package and not _begins(file.head):
            return self._by_ending(file)
        try:
            number, _ = file.cached(_kind)
        except UnreadableError:
            return self._by_ending(file)
        system = "coreml" if number == _PROGRAM else "coreml_nn"
        what = "a package" if package else "a model"
        return FormatClaim(STATED, f"{what} of Core ML, by its description and its type") if number and system == self.NAME else None

    def _by_ending(self, file: Opened) -> FormatClaim | None:
        return (
            FormatClaim(STATED, f"a model of Core ML, by its ending {self.SUFFIXES[0]}")
            if lowered(file.path).suffix in self.SUFFIXES
            else None
        )

    def layouts(self, options: Options) -> list[Layout]:
        """Return every layer."""
        return registry.layouts_of(self.NAME)

    def about(self, checkpoint: Checkpoint) -> dict[str, object]:
        """Return the file's statements about itself."""
        return {key: value for key, value in checkpoint.metadata.items() if isinstance(value, (str, int))}

    def read(self, path: Path, options: Options) -> Checkpoint:
        """Return every recurrent layer whose weights are constant. Raises UnreadableError for a damaged model."""
        return self.read_program(path, options, False)

    def read_program(self, path: Path, options: Options, widened: bool = True) -> Checkpoint:
        """Return a model with its program.

        widened  whether that is in single precision where the file computes in half

        Raises UnreadableError for a damaged model.
        """
        number, place = _kind(path)
        if not number:
            raise UnreadableError(path, "it is not a model of Core ML with a neural network or a program")
        contents = Network()
        message = Message(map_file(place).data, place)
        _model(place, message, contents, options, widened)
        contents.batch_first = dict.fromkeys(contents.layers, False)
        # Of a row of models, none is the whole.
        single = len(contents.programs) == 1 and number not in (_PIPELINE, *_PIPELINES)
        return contents.checkpoint(path, self.NAME, options, metadata=_about(message), read=contents.programs[0] if single else None)

    def write(self, path: Path, job: Job) -> WriteResult:
        """Write a model of the layers, each reading the one before."""
        return write_program.write(path, job) if self.NAME == "coreml" else write_network.write(path, job)


def _model(place: Path, message: Message, result: Network, options: Options, widened: bool, depth: int = 0) -> None:
    """Add what a model holds; a row of models holds several."""
    if depth > 16:
        raise UnreadableError(place, "models are nested more than 16 deep")
    for number in _NETWORKS:
        inner = message.submessage(number)
        if inner is not None:
            described = message.submessage(2) or Message(memoryview(b""), place)
            network.read(place, inner, result, network.ends_of(described, bool(inner.number(5))))
    inner = message.submessage(_PROGRAM)
    if inner is not None:
        program.read(place, inner, WeightFiles(place), result, options, widened)
    rows = [message.submessage(_PIPELINE), *(message.within(number, 1) for number in _PIPELINES)]
    for row in rows:
        for submodel in row.every(1) if row is not None else ():
            _model(place, submodel, result, options, widened, depth + 1)


def _about(message: Message) -> dict[str, object]:
    """Return the statements of the model's description about it."""
    metadata = message.within(2, 100)
    if metadata is None:
        return {"version": message.number(1)}
    texts = {"description": 1, "model version": 2, "author": 3, "licence": 4}
    stated = {key: metadata.text(number) for key, number in texts.items() if metadata.text(number)}
    more = {entry.text(1): entry.text(2) for entry in metadata.every(100)}
    return {"version": message.number(1), **stated, **more}


ADAPTERS = tuple(CoreMl(name, registry.endings(name)) for name in ("coreml", "coreml_nn"))
