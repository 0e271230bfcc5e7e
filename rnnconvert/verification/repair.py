"""Advice on a model that is not equal: a command that writes a repaired copy of it, followed in a scratch folder before it is given."""

from __future__ import annotations

import itertools
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np

from rnnconvert.comparison.difference import differences
from rnnconvert.comparison.pairing import pair
from rnnconvert.containers.temporary import new_folder
from rnnconvert.core.arrays import Source
from rnnconvert.core.errors import RnnConvertError, TransplantError, show_as
from rnnconvert.core.remedies import as_word
from rnnconvert.files.checkpoint import Checkpoint
from rnnconvert.files.convert import SaveTarget, convert_file
from rnnconvert.files.load import load_pair
from rnnconvert.files.options import Options
from rnnconvert.language.surroundings import equal
from rnnconvert.models.load import transplant_file
from rnnconvert.models.readers import filled_reader_of
from rnnconvert.verification.plan import Plan

TRIED = 1 << 28
"""The most bytes of both files for which advice is followed before it is given; of larger ones the transplant is planned alone."""

_ARRAYS_ALONE = (".npz", ".safetensors", ".npy")
"""Files that hold arrays and nothing else."""


@dataclass(frozen=True)
class Repair:
    """A command that writes a file like B with A's recurrent weights, for the report; without one, why there is none.

    command  "transplant" or "convert"; "" for none
    words    what the command is given, in order
    options  its options by name, each with its values
    also     B's other layers that it takes from A
    tried    whether it was followed, and the file that it wrote compared with A and with B
    why      why there is no command
    """

    command: str = ""
    words: tuple[str, ...] = ()
    options: Mapping[str, Sequence[str]] = field(default_factory=dict)
    also: tuple[str, ...] = ()
    tried: bool = False
    why: str = ""

    def as_dict(self) -> dict[str, object]:
        """Return it as the report keeps it."""
        return {
            **asdict(self),
            "words": list(self.words),
            "also": list(self.also),
            "options": {name: list(values) for name, values in self.options.items()},
        }


def repair(a: str, b: str, plan: Plan) -> Repair:
    """Return the command that repairs B: one that leaves everything else of B as it is."""
    if not (Path(a).exists() and Path(b).exists()):
        return Repair(why="it takes files of this computer")
    reasons: list[str] = []  # the second is that of the way that asks least of a whole model
    try:
        with new_folder() as scratch:
            trial = _Attempt(a, b, plan, scratch)
            for way in (trial.transplanted, trial.transplanted_in_part, trial.converted):
                try:
                    return way()
                except TransplantError as error:
                    reasons += error.problems[:1]
                except RnnConvertError as error:
                    reasons.append(error.headline)
    except OSError as error:
        return Repair(why=f"trying it failed ({error.strerror})")
    return Repair(why=reasons[1])


class _NoRepairError(RnnConvertError):
    """A command that was followed, and did not repair B."""


class _Attempt:
    """Commands that may repair B, each followed in a scratch folder."""

    def __init__(self, a: str, b: str, plan: Plan, scratch: Path) -> None:
        self.a, self.b, self.plan, self.scratch = a, b, plan, scratch
        self.settings = (*plan.settings, *plan.settings_a)
        _, self.before = self._both(b)
        self.reader = filled_reader_of(self.before.format)

    def transplanted(self, strict: bool = True) -> Repair:
        """Follow `transplant A --into B -o FIXED`. Raises RnnConvertError if that does not repair B."""
        if self.reader is None:
            raise _NoRepairError(f"files of {self.before.format} cannot be the target of a transplant")
        output, tried = self._file("in full" if strict else "in part"), self._is_small()
        options = {"source_format": self.plan.format_a, "target_format": self.plan.format_b, "settings": self.settings}
        report = transplant_file(self.a, self.b, output, strict=strict, dry_run=not tried, **options)  # type: ignore[arg-type]
        also = tuple(entry.target for entry in report.filled if entry.kind != "recurrent")
        if tried:
            after = self._repaired(output)
            old, new = (self.reader.of_checkpoint(checkpoint).arrays for checkpoint in (self.before, after))
            changed = _changed(old, new)
            if not changed <= {name for entry in report.filled for name in entry.arrays}:
                raise _NoRepairError("other arrays of the file would change, too")
            also = tuple(entry.target for entry in report.filled if entry.kind != "recurrent" and changed & set(entry.arrays))
        words = {"into": [as_word(self.b)], "output": [self._output()], **({} if strict else {"partial": []})}
        return Repair("transplant", (self.a,), {**words, **self._reading(self.plan.format_b)}, also, tried)

    def transplanted_in_part(self) -> Repair:
        """Follow `transplant A --into B -o FIXED --partial`, likewise."""
        return self.transplanted(strict=False)

    def converted(self) -> Repair:
        """Follow `convert A FIXED`, where B is nothing but what a conversion writes. Raises as `transplanted` does."""
        if not self._is_small():
            raise _NoRepairError("it is too large to be compared with what a conversion writes")
        again, output = self._file("again"), self._file("anew")
        own_settings = (*self.plan.settings, *self.plan.settings_b)
        self._convert(self.b, self.before.format, own_settings, again)
        if not self._is_all_of(again):
            raise _NoRepairError(f"a conversion writes recurrent layers alone, and {Path(self.b).name} may hold more")
        self._convert(self.a, self.plan.format_a, self.settings, output)
        after = self._repaired(output)
        if {name: array.shape for name, array in after.arrays.items()} != {name: array.shape for name, array in self.before.arrays.items()}:
            raise _NoRepairError("a conversion writes other arrays than it holds")
        return Repair("convert", (self.a, self._output()), self._reading(self.before.format), (), True)

    def _convert(self, source: str, source_format: str | None, settings: Sequence[str], output: Path) -> None:
        convert_file(source, source_format, SaveTarget(output, self.before.format, assume_defaults=False), Options(settings=settings))

    def _is_all_of(self, again: Path) -> bool:
        """Return whether B holds nothing but what was written of its recurrent layers."""
        if not Path(self.b).is_file() or self.before.tensors:
            return False
        if Path(self.b).read_bytes() == again.read_bytes():
            return True
        _, written = self._both(str(again))
        arrays = self.before.arrays
        return bool(arrays) and Path(self.b).suffix in _ARRAYS_ALONE and not _changed(arrays, written.arrays)

    def _repaired(self, output: Path) -> Checkpoint:
        """Return the file that was written. Raises UsageError unless its recurrent layers are A's."""
        a, after = self._both(str(output))
        pairs = pair(a, after, self.plan.pairs, selected=bool(self.plan.layers))
        if not all(each.equal for matched in pairs for each in differences(matched.stack, matched.counterpart)):
            raise _NoRepairError("it cannot hold these weights as they are")
        return after

    def _both(self, b: str) -> tuple[Checkpoint, Checkpoint]:
        plan = self.plan
        formats = (plan.format_a, plan.format_b or (self.before.format if b != self.b else None))
        return load_pair((self.a, b), formats, plan.settings, (plan.settings_a, plan.settings_b))

    def _file(self, way: str) -> Path:
        folder = self.scratch / way
        folder.mkdir()
        file = folder / Path(self.b).name
        show_as(file, "the new file")
        return file

    def _is_small(self) -> bool:
        return sum(file.stat().st_size for path in map(Path, (self.a, self.b)) for file in (path, *path.rglob("*"))) <= TRIED

    def _output(self) -> str:
        """Return a name next to B's that no file has."""
        path = Path(self.b)
        numbers = itertools.chain([""], map("{}-".format, itertools.count(2)))
        names = (path.with_name(f"fixed-{number}{path.name}") for number in numbers)
        return as_word(str(next(name for name in names if not os.path.lexists(name))))

    def _reading(self, target_format: str | None) -> dict[str, Sequence[str]]:
        """Return the options that say how the files are read."""
        options: dict[str, Sequence[str]] = {"set": self.settings} if self.settings else {}
        named = {"from": self.plan.format_a, "to": target_format}
        return {**{name: [value] for name, value in named.items() if value}, **options}


def _changed(before: Mapping[str, Source], after: Mapping[str, Source]) -> set[str]:
    """Return the arrays that are not what they were; that one is absent, or of another type, is a change."""
    common = before.keys() & after.keys()
    same = {name for name in common if before[name].dtype == after[name].dtype and equal(np.asarray(before[name]), np.asarray(after[name]))}
    return (before.keys() | after.keys()) - same
