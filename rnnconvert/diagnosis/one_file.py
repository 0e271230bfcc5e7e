"""One file beside a recorded sample: `rnnconvert diagnose FILE --io SAMPLE.npz`, and what it returns in Python."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rnnconvert.core.errors import UsageError
from rnnconvert.core.printable import called, finite
from rnnconvert.diagnosis.by_sample import Sampled, layers_beside
from rnnconvert.files.checkpoint import Checkpoint
from rnnconvert.files.in_memory import Source
from rnnconvert.files.load import load, load_with, select
from rnnconvert.files.options import Options
from rnnconvert.identification import sample


@dataclass(frozen=True, repr=False)
class SampleFindings:
    """Whether a file's layers compute a recorded sample, and which convention makes them do so.

    source  the file
    layers  each layer, and what the sample shows about it
    """

    source: Checkpoint
    layers: tuple[Sampled, ...]

    @property
    def equal(self) -> bool:
        """Whether a layer of the file computes the sample."""
        return any(layer.verdict == "equal" for layer in self.layers)

    def as_dict(self) -> dict[str, Any]:
        """Return all of it as JSON can hold it."""
        layers = [
            {
                "name": layer.name,
                "description": layer.stack.describe(),
                "verdict": layer.verdict,
                "fault": layer.fault,
                "sentences": list(layer.sentences),
                "fix": layer.fix,
                "layout_file": layer.layout,
            }
            for layer in self.layers
        ]
        return {key: finite(value) for key, value in {"a": self.source.path, "equal": self.equal, "layers": layers}.items()}

    def lines(self) -> Iterator[str]:
        """Yield the text line by line: every layer, and last the verdict."""
        for layer in self.layers:
            yield called(layer.name)
            yield from (f"  {line}" for line in layer.sentences)
        yield f"{self.source.path} {self._verdict()}"

    def _verdict(self) -> str:
        return "computes the sample" if self.equal else "does not compute the sample"

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def __repr__(self) -> str:
        return f"<SampleFindings of {self.source.path}: it {self._verdict()}>"


def diagnose_sample(
    a: Source | Checkpoint,
    io: Mapping[str, Any] | str | os.PathLike[str],
    layers: Sequence[str] = (),
    source_format: str | None = None,
    settings: Sequence[str] = (),
    seconds: float = 20.0,
) -> SampleFindings:
    """Find out whether the layers of one file compute a sample, and if not, why.

    Raises what `load` raises, and UsageError for a sample that no layer can have given.
    """
    samples = sample.read(Path(io)) if isinstance(io, str | os.PathLike) else sample.samples(io)
    complete = a if isinstance(a, Checkpoint) else load(a, source_format, settings)
    checkpoint = select(complete, layers)

    def again(more: Sequence[str], other: str | None) -> tuple[Checkpoint, Sequence[str]]:
        assert not isinstance(a, Checkpoint)
        options = Options(settings=(*(settings if other in (None, source_format, complete.format) else ()), *more))
        checkpoint_ = load_with(a, other, options)
        options.ledger.check_used(checkpoint_.path)
        return checkpoint_, list(options.ledger.asked)

    sampled = layers_beside(checkpoint, samples, None if isinstance(a, Checkpoint) else again, seconds)
    if all(layer.verdict == "other sizes" for layer in sampled):
        shapes = f"input {tuple(samples[0].x.shape)} as ({samples[0].axes})"
        there = "; ".join(f"{called(layer.name)} is {layer.stack.describe()}" for layer in sampled)
        raise UsageError(f"no layer of {checkpoint.path} can have given the sample with {shapes}: {there}. Record it at one of them")
    return SampleFindings(checkpoint, tuple(sampled))
