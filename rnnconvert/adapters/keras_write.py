"""Keras models of recurrent layers, written without Keras."""

from __future__ import annotations

from pathlib import Path

from rnnconvert.adapters import Job


def write(path: Path, job: Job) -> list[str]:
    """A .keras model, the .weights.h5 of one, or a legacy HDF5 model."""
    raise NotImplementedError
