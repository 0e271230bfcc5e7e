"""Burn's files: records of named msgpack and JSON, Burnpack, and .safetensors, all with arrays by their paths."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from rnnconvert.containers.files import lowered
from rnnconvert.containers.stored import Stored
from rnnconvert.core.cells import Cell, Clip
from rnnconvert.core.errors import UnreadableError
from rnnconvert.core.notes import LayerNote
from rnnconvert.core.weights import Recurrent, Unconvertible
from rnnconvert.files.checkpoint import Checkpoint
from rnnconvert.files.conservation import UNACCOUNTED
from rnnconvert.files.finder import ArrayFiles
from rnnconvert.files.found_layer import FoundLayer
from rnnconvert.files.opened import STATED, FormatClaim, Opened
from rnnconvert.files.options import Options
from rnnconvert.formats.burn import records
from rnnconvert.formats.burn.records import BurnMetadata
from rnnconvert.language import registry
from rnnconvert.language.layout import Layout

_BEFORE, _AFTER = "burn.gru_reset_before", "burn.gru"
_FIRST_RECURRENT = (0, 17)
"""The first version whose Gru carries its state from step to step."""


class Burn(ArrayFiles):
    """The adapter of Burn."""

    def recognise(self, file: Opened) -> FormatClaim | None:
        """Recognize a record by its metadata, Burnpack by its first bytes, and an archive by the paths of its arrays."""
        kind = self._kind_in_words(file)
        return FormatClaim(STATED, kind) if kind else super().recognise(file)

    def _kind_in_words(self, file: Opened) -> str:
        """Return which of Burn's own kinds a file is of, in words; "" for any other."""
        if file.head.startswith(records.BURNPACK):
            return "a Burnpack file"
        if records.begins_record(file.head):
            return "a record of Burn (named msgpack)"
        document = file.json if "json" in file.kinds and b'"metadata"' in file.head else None
        if document is not None and records.is_record(document):
            return "a record of Burn (JSON)"
        return f"a file of Burn, by its ending {lowered(file.path).suffix}" if lowered(file.path).suffix in (".mpk", ".bpk") else ""

    def kind(self, file: Opened) -> str:
        """Return the kind of this file, in words; "" if it does not belong to Burn."""
        return self._kind_in_words(file) or ("" if file.kinds & {"msgpack", "json"} else file.archive)

    def stored(self, file: Opened) -> Stored:
        """Return the tensors by their paths. Raises UnreadableError."""
        if file.head.startswith(records.BURNPACK):
            return file.cached(records.read_burnpack)
        if "json" in file.kinds:
            return file.cached(records.read_pretty)
        if records.begins_record(file.head):
            return file.cached(records.read_msgpack)
        if lowered(file.path).suffix in (".mpk", ".bpk"):
            raise UnreadableError(file.path, "it is neither a record of named msgpack nor a Burnpack file")
        return super().stored(file)

    def about(self, checkpoint: Checkpoint) -> dict[str, object]:
        """Return a record's statements about itself: Burn's version and its types."""
        metadata = checkpoint.metadata_as(BurnMetadata).get("burn", {})
        return {str(key): value for key, value in metadata.items() if key in ("version", "float", "format", "producer")}

    def documented(self) -> list[Layout]:
        """Return the layouts that names and shapes show: where a GRU's reset gate is, they do not."""
        return [layout for layout in super().documented() if layout.name != _BEFORE]

    def find(self, path: Path, stored: Stored, options: Options) -> tuple[list[FoundLayer], list[LayerNote]]:
        """Return the recurrent modules, with the place of a GRU's reset gate asked."""
        groups, doubts = super().find(path, stored, options)
        return [self._placed(group, options) for group in groups], doubts

    def _placed(self, group: FoundLayer, options: Options) -> FoundLayer:
        if group.layout.name != _AFTER:
            return group
        why = "a file of Burn does not hold its Gru's reset_after"
        answer = options.ask("reset_after", group.name, assumed="true", why=why)
        return group if answer == "true" else group._replace(layout=registry.layouts()[_BEFORE])

    def cell(self, group: FoundLayer, stored: Stored, options: Options) -> Cell:
        """Return a module's cell; the caller is asked for the settings that its file does not hold."""
        cell = super().cell(group, stored, options)
        if group.layout.kind == "lstm":
            why = "a file of Burn does not hold its Lstm's clip"
            bound = options.ask("cell_clip", group.name, assumed="none", why=why)
            clips = () if bound == "none" else (Clip("cell", -abs(float(bound)), abs(float(bound))),)
            cell = cell.replace(clips=clips)
        return cell

    def layer(self, group: FoundLayer, stored: Stored, options: Options) -> Recurrent:
        """Return a module's canonical form; one that did not carry its state is refused when it is converted."""
        stack = super().layer(group, stored, options)
        metadata = stored.metadata_as(BurnMetadata).get("burn", {})
        numbers = re.match(r"(\d+)\.(\d+)\.", str(metadata.get("version", "")))
        if stack.cell.kind == "gru" and numbers and tuple(map(int, numbers.groups())) < _FIRST_RECURRENT:
            reason = "up to 0.16, Burn's Gru read the state of each step from the initial one: its weights were trained without recurrence"
            stack = replace(stack, unconvertible=(Unconvertible(UNACCOUNTED, f"a Gru of Burn {metadata['version']}", reason),))
        return stack


ADAPTERS = (Burn("burn", registry.endings("burn"), "."),)
