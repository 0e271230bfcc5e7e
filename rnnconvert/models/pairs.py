"""Layers that belong together, and those that nothing fits."""

from __future__ import annotations

from dataclasses import dataclass, field

from rnnconvert.models.model import Unit
from rnnconvert.models.names import listing


@dataclass(frozen=True)
class FilledPair:
    """A layer of the target and the layer of the source that fills it.

    target, source  the layers
    kind            what both are
    evidence        why they belong together, in words
    confidence      "told" by the caller, "sizes" (no other fits), "names", "numbers" or "order"
    """

    target: Unit
    source: Unit
    kind: str
    evidence: str
    confidence: str


@dataclass(frozen=True)
class Choice:
    """Layers that fit one another in several ways.

    targets, sources  their names, in order
    kind              what they are
    """

    targets: tuple[str, ...]
    sources: tuple[str, ...]
    kind: str

    def __str__(self) -> str:
        return f"{listing(self.targets)} may be filled from {listing(self.sources)} ({self.kind})"


@dataclass
class Pairing:
    """The layers that belong together, and those that have no counterpart.

    pairs      layers that belong together
    ambiguous  layers that fit in several ways
    unfilled   layers of the target that nothing fits
    unused     layers of the source that fit nothing
    skipped    layers of the target that the caller leaves unchanged
    """

    pairs: list[FilledPair] = field(default_factory=list)
    ambiguous: list[Choice] = field(default_factory=list)
    unfilled: list[Unit] = field(default_factory=list)
    unused: list[Unit] = field(default_factory=list)
    skipped: list[Unit] = field(default_factory=list)
