"""A file once it is read: recurrent layers in canonical form, everything else by name."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, cast

import numpy as np

from rnnconvert.containers.reading import Reading
from rnnconvert.core.arrays import Array
from rnnconvert.core.errors import for_user
from rnnconvert.core.names import Named
from rnnconvert.core.notes import LayerNote
from rnnconvert.core.printable import called
from rnnconvert.core.weights import Recurrent
from rnnconvert.files.questions import Question, assumptions

if TYPE_CHECKING:
    from rnnconvert.files.options import Options

ReadKind = TypeVar("ReadKind")


@dataclass(frozen=True, eq=False)
class Recorded:
    """Outputs of a file's own model in the file, recorded where the model was trained.

    x       what the model reads, (time, batch, in)
    y       what it gives, (time, batch, out)
    layer   the recurrent layer, which reads x
    restore  the model's outputs from what the layer gives and from x, in the arithmetic of these arrays
    """

    x: Array
    y: Array
    layer: str
    restore: Callable[[Array, Array], Array]


@dataclass(frozen=True, repr=False, eq=False)
class Checkpoint(Mapping[str, Recurrent]):
    """A file that was read: its recurrent layers in canonical form, and everything else by name.

    It is a mapping of the layers by their names: `checkpoint["encoder"]`, `len(checkpoint)`, `for name in checkpoint`.

    path       where it was read from, as the user names it
    format     the format it was read as
    layers     the recurrent layers by name, in the file's order
    tensors    every other array, by the name it has in the file
    evidence   how the format and the layers were recognized, in words
    questions  what the file leaves open, and what was assumed
    warnings   what the user should know: non-finite weights, tensors that could not be read
    metadata   what else the file says (a model's configuration), in the format's own words
    arrays     every array by name, including the layers', in the file's order; empty if its adapter has no names for them
    read       its adapter's own findings: where the layers are, for code that knows this format
    unread     recurrent layers that are in the file and are not read: what each is, where, and the way out; they stand
               among the warnings too, and a conversion of the whole file is refused
    unpacked   the temporary copy of a model that lay inside the file: packed, in an archive, in a pickle; "" for any other
    sources    the files that it was read from, which must stay unchanged while it is written
    beside     the other files that it was read from: external data, the parts of an index, a graph
    recorded   outputs of the file's own model that the file holds
    int8       the layers whose matrices the file holds as integers of 8 bits, with a scale for each row
    turned     the layers that read from the end, and of whose outputs the model reads only the last, or reverses them into the order of
               time
    clipped    the layers whose clips the caller drops, as the file has them: their values are said never to reach the bounds
    batch_first  for layers of which the file or its framework states it: whether they are called with (batch, time, values)
    """

    INSTEAD: ClassVar[str] = "Give the path of a file; rnnconvert.save writes a Checkpoint into one"

    path: str
    format: str
    layers: Mapping[str, Recurrent]
    tensors: Mapping[str, Array] = field(default_factory=dict)
    evidence: tuple[str, ...] = ()
    questions: tuple[Question, ...] = ()
    warnings: tuple[str, ...] = ()
    metadata: Mapping[str, object] = field(default_factory=dict)
    arrays: Mapping[str, Array] = field(default_factory=dict)
    read: object = None
    unread: tuple[LayerNote, ...] = ()
    unpacked: str = ""
    batch_first: Mapping[str, bool] = field(default_factory=dict)
    sources: Reading | None = None
    beside: tuple[str, ...] = ()
    recorded: tuple[Recorded, ...] = ()
    int8: frozenset[str] = frozenset()
    turned: frozenset[str] = frozenset()
    clipped: Mapping[str, Recurrent] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for what, name in (("layer", "layers"), ("tensor", "tensors"), ("array", "arrays")):
            entries = getattr(self, name)
            if type(entries) is dict:
                object.__setattr__(self, name, Named(what, entries))
        # What is true of both directions of a layer is said of the layer.
        object.__setattr__(self, "warnings", tuple(dict.fromkeys(self.warnings)))

    def __getitem__(self, name: str) -> Recurrent:
        """Return a layer by its name. Raises KeyError for one that does not exist, with those that do."""
        return self.layers[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.layers)

    def __len__(self) -> int:
        return len(self.layers)

    # As all that holds arrays, a checkpoint is equal to itself alone.
    __eq__ = object.__eq__
    __hash__ = object.__hash__

    @property
    def file(self) -> str:
        """The file that frameworks and patches read: `path`, or what was unpacked from it."""
        return self.unpacked or self.path

    def read_as(self, kind: type[ReadKind]) -> ReadKind:
        """Return its adapter's own findings, in the class that this adapter has for them."""
        assert isinstance(self.read, kind), f"{self.path} was not read as {kind.__module__} reads it"
        return self.read

    def metadata_as(self, kind: type[ReadKind]) -> ReadKind:
        """Return the metadata with the names and types that its adapter gives it."""
        return cast(ReadKind, self.metadata)

    def replace(self, **changes: object) -> Checkpoint:
        """Return this checkpoint with some fields changed."""
        return replace(self, **changes)  # type: ignore[arg-type]

    def __repr__(self) -> str:
        return f"<Checkpoint {self._outline()}>"

    def _outline(self) -> str:
        counts = (("layer", self.layers), ("other tensor", self.tensors), ("open question", self.questions))
        parts = [f"{len(what)} {word}{'s' if len(what) != 1 else ''}" for word, what in counts if what or word == "layer"]
        return f"{self.path} ({self.format}): {', '.join(parts)}" + (f", {len(self.unread)} not read" if self.unread else "")

    def __str__(self) -> str:
        lines = [self._outline()]
        lines += [f"  {called(name)}: {layer.describe()}" for name, layer in self.layers.items()]
        lines += [f"  assumed: {line}" for line in assumptions(self.questions)]
        lines += [f"  not read: {text}" for text in self.unread]
        lines += [f"  warning: {warning}" for warning in self.warnings if warning not in self.unread]
        return for_user("\n".join(lines))

    def _repr_html_(self) -> str:
        """Return a table of the layers, for a notebook."""
        rows = [(called(name), layer.describe()) for name, layer in self.layers.items()]
        rows += [
            (f"assumed for {question.layer or 'every layer'}", f"{question.option}={question.assumed}: {question.why}")
            for question in self.questions
        ]
        rows += [("not read", text) for text in self.unread]
        from rnnconvert.core.notebook import listing

        return listing(self._outline(), rows)


@dataclass(eq=False)
class Contents:
    """What a reader takes from a file piece by piece, until it is a checkpoint.

    arrays  the arrays of the layers, as the file has them
    others  all other arrays
    layers, evidence, warnings, unread, batch_first  as in a checkpoint
    """

    layers: dict[str, Recurrent] = field(default_factory=dict)
    arrays: dict[str, Array] = field(default_factory=dict)
    others: dict[str, Array] = field(default_factory=dict)
    evidence: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    unread: list[LayerNote] = field(default_factory=list)
    batch_first: dict[str, bool] = field(default_factory=dict)

    def checkpoint(self, path: Path, format: str, options: Options, **more: Any) -> Checkpoint:
        """Return it as a checkpoint, with more fields of one."""
        stated: dict[str, Any] = {
            "tensors": self.others,
            "evidence": tuple(self.evidence),
            "questions": options.questions,
            "warnings": (*self.warnings, *self.unread),
            "arrays": {**self.arrays, **self.others},
            "unread": tuple(self.unread),
            "batch_first": self.batch_first,
        }
        return Checkpoint(str(path), format, self.layers, **{**stated, **more})


# Compiled where it is used: a file with layers, as most are, never needs it.
_RECURRENT = (
    r"(?i)recurrent_?(kernel|weight|bias)|weights?_h(h|idden_hidden)|(^|[^a-z])[wu]_?hh([^a-z]|$)|[ih]2h"
    r"|(^|[^a-z])(bi)?(lstm|gru|rnn)([^a-z]|cell|$)"
)


def suspects(checkpoint: Checkpoint) -> list[str]:
    """Return the matrices of a checkpoint without layers, or its vectors if it has no matrix, whose names say that they are a
    recurrent layer's.
    """
    if checkpoint.layers:
        return []
    named = {name: np.ndim(array) for name, array in checkpoint.tensors.items() if re.search(_RECURRENT, name)}
    return [name for name, axes in named.items() if axes > 1] or [name for name, axes in named.items() if axes == 1]
