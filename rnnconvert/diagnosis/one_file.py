"""One file beside a recorded sample: `rnnconvert diagnose FILE --io SAMPLE.npz`, and what it returns in Python."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rnnconvert.containers.npz_file import read as read_npz
from rnnconvert.core.errors import UsageError
from rnnconvert.core.printable import called, finite
from rnnconvert.diagnosis.by_sample import SampleEvidence, layers_beside
from rnnconvert.diagnosis.model_faults import EXCHANGED
from rnnconvert.diagnosis.models import UNEXPLAINED, ModelDiagnosis, diagnose_model_by_sample
from rnnconvert.files.checkpoint import Checkpoint
from rnnconvert.files.in_memory import Source
from rnnconvert.files.load import load, load_with, select
from rnnconvert.files.options import Options
from rnnconvert.identification import sample

_COMPUTES = {"equal": "the file, run whole, computes the sample", "not equal": "the file, run whole, does not compute the sample"}


@dataclass(frozen=True, repr=False)
class SampleFindings:
    """Whether a file's model, or a layer of it, computes a recorded sample, and which convention makes it do so.

    source  the file
    layers  each layer, and what the sample shows about it
    model   what the model gave when it ran whole; None where it did not, and where the sample is not one of the whole model
    """

    source: Checkpoint
    layers: tuple[SampleEvidence, ...]
    model: ModelDiagnosis | None = None

    @property
    def equal(self) -> bool:
        """Whether the file's model, or a layer of it, computes the sample."""
        if self.model is not None and (self.model.status == "equal" or self.model.fault == EXCHANGED.name):
            return self.model.status == "equal"
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
        document = {"a": self.source.path, "equal": self.equal, "layers": layers}
        if self.model is not None:
            document["model"] = asdict(self.model)
        return {key: finite(value) for key, value in document.items()}

    def lines(self) -> Iterator[str]:
        """Yield the text line by line: every layer, and last the verdict."""
        if self.model is not None and (self.model.status == "equal" or not any(layer.verdict == "equal" for layer in self.layers)):
            yield "the whole model"
            yield f"  {_COMPUTES[self.model.status]}"
            yield from (f"  {line}" for line in self.model.sentences or ((UNEXPLAINED,) if self.model.status == "not equal" else ()))
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
    """Find out whether the model of a file, or a layer of it, computes a sample, and if not, why.

    Raises what `load` raises, and UsageError for a sample that no layer can have given.
    """
    arrays = read_npz(Path(io)).arrays if isinstance(io, str | os.PathLike) else io
    recorded = {str(name): np.asarray(array) for name, array in arrays.items() if array is not None}
    complete = a if isinstance(a, Checkpoint) else load(a, source_format, settings)
    checkpoint = select(complete, layers)

    def again(more: Sequence[str], other: str | None) -> tuple[Checkpoint, Sequence[str]]:
        assert not isinstance(a, Checkpoint)
        options = Options(settings=(*(settings if other in (None, source_format, complete.format) else ()), *more))
        checkpoint_ = load_with(a, other, options)
        options.ledger.check_used(checkpoint_.path)
        return checkpoint_, list(options.ledger.asked)

    model_diagnosis = functools.cache(lambda: None if layers else diagnose_model_by_sample(checkpoint, recorded))

    def explained() -> bool:
        model = model_diagnosis()
        return model is not None and bool(model.sentences or model.status == "equal")

    try:
        samples = sample.samples(arrays)
    except UsageError:
        if model_diagnosis() is not None:  # tokens are no input of a recurrent layer
            return SampleFindings(checkpoint, (), model_diagnosis())
        raise
    sampled = layers_beside(checkpoint, samples, None if isinstance(a, Checkpoint) else again, seconds, explained)
    if all(layer.verdict == "other sizes" for layer in sampled) and model_diagnosis() is None:
        shapes = f"input {tuple(samples[0].x.shape)} as ({samples[0].axes})"
        there = "; ".join(f"{called(layer.name)} is {layer.stack.describe()}" for layer in sampled)
        raise UsageError(f"no layer of {checkpoint.path} can have given the sample with {shapes}: {there}. Record it at one of them")
    # Where nothing states the axes of a layer, the model that runs shows them.
    unstated = any(layer.verdict == "equal" and layer.name not in checkpoint.batch_first for layer in sampled)
    decided = any(layer.verdict in ("equal", "explained") for layer in sampled) and not unstated
    return SampleFindings(checkpoint, tuple(sampled), None if decided else model_diagnosis())
