"""The report of a conversion."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Protocol

from rnnconvert.core.claims import exactness
from rnnconvert.core.errors import for_user
from rnnconvert.core.printable import called
from rnnconvert.files.checkpoint import Checkpoint
from rnnconvert.files.questions import Question, assumptions
from rnnconvert.rewrites import Step

Progress = Callable[[int, int], None]
"""Called with the bytes written so far and the bytes to write."""


class SummaryReport(Protocol):
    """What a `Summary` shows of the `rnnconvert.Report` that proved it."""

    @property
    def equal(self) -> bool:
        """Whether everything that was compared is equal."""
        ...

    @property
    def verdict(self) -> str:
        """The verdict, in a word or a few."""
        ...

    @property
    def exit_code(self) -> int:
        """What `rnnconvert verify` would end with."""
        ...

    @property
    def document(self) -> dict[str, Any]:
        """All of it, as JSON can hold it."""
        ...

    def write(self, path: str, /) -> None:
        """Write it, by the ending: .html, .md, .json, .xml (JUnit) or .sarif."""
        ...


@dataclass(frozen=True, repr=False)
class Summary:
    """The report of a conversion.

    source, target    paths
    source_format     the format read
    target_format     the format written
    layers            each layer in words, by name
    steps             the rewrites that were applied
    notes             how to load the result, and what the file leaves open
    left_out          how many other tensors were left out, as they are not of recurrent layers
    carried           how many other tensors were carried over unchanged
    questions         what the source leaves open, and what was assumed
    warnings          what the user should know
    evidence          how the source's format and layers were recognized
    written           whether the file was written (False for a dry run)
    left              the names of the tensors that were left out
    recipe            lines of Python that load the layers
    checkpoint        the source as it was read
    report            the rnnconvert.Report that proved it, if it was verified
    files             the paths of all files written: the target, then the files that belong next to it
    """

    source: str
    target: str
    source_format: str
    target_format: str
    layers: dict[str, str]
    steps: tuple[Step, ...]
    notes: tuple[str, ...]
    left_out: int
    carried: int
    questions: tuple[Question, ...]
    warnings: tuple[str, ...]
    evidence: tuple[str, ...]
    written: bool
    left: tuple[str, ...] = ()
    recipe: tuple[str, ...] = ()
    checkpoint: Checkpoint | None = field(default=None, compare=False)
    report: SummaryReport | None = field(default=None, compare=False)
    files: tuple[str, ...] = ()

    @property
    def exact(self) -> bool:
        """Whether nothing was rounded."""
        return all(step.exact for step in self.steps)

    def as_dict(self) -> dict[str, Any]:
        """Return the summary as JSON can hold it, without the report and the source."""
        document = asdict(replace(self, checkpoint=None, report=None))
        del document["checkpoint"], document["report"]
        return {**document, "exact": self.exact}

    def __repr__(self) -> str:
        how = f"{'rewritten, ' if self.steps else ''}{exactness(step.exact for step in self.steps)}"
        return f"<Summary: {self._title()}, {len(self.layers)} layer{'s' if len(self.layers) != 1 else ''}, {how}>"

    def _title(self) -> str:
        verb = "wrote" if self.written else "would write"
        others = "".join(f" and {file}" for file in self.files[1:])
        return f"{verb} {self.target}{others} ({self.target_format}) from {self.source} ({self.source_format})"

    def _facts(self) -> Iterator[tuple[str, str]]:
        yield from ((called(name), text) for name, text in self.layers.items())
        yield from (("rewrite", str(step)) for step in self.steps)
        yield from (("note", note) for note in self.notes)
        if self.left_out:
            yield "left out", f"{self.left_out} tensors that belong to no recurrent layer"
        if self.carried:
            yield "carried over", f"{self.carried} other tensors, unchanged"
        yield from (("assumed", line) for line in assumptions(self.questions))
        yield from (("warning", warning) for warning in self.warnings)

    def __str__(self) -> str:
        return for_user("\n".join([self._title(), *(f"  {word}: {text}" for word, text in self._facts())]))

    def _repr_html_(self) -> str:
        """Return a table of what was done, for a notebook."""
        from rnnconvert.core.notebook import listing

        return listing(self._title(), self._facts())
