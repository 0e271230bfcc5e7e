"""Haiku's parameters in files: .npz archives of arrays by path, and flax's msgpack."""

from __future__ import annotations

from pathlib import Path

from rnnconvert.adapters import Job, tree_files
from rnnconvert.checkpoint import Checkpoint
from rnnconvert.layout import Layout
from rnnconvert.options import Options
from rnnconvert.registry import frameworks

NAME = "haiku"
SUFFIXES = (".npz", ".msgpack")


def recognise(path: Path, head: bytes) -> str:
    """A tree with arrays named as those of its cells."""
    return tree_files.recognise(NAME, path, head)


def layouts(options: Options) -> list[Layout]:
    """Single cells: a stack is written as one after the other."""
    return [layout for layout in frameworks()[NAME] if layout.writable]


def read(path: Path, options: Options) -> Checkpoint:
    """Every cell in a tree."""
    return tree_files.read(NAME, path, options)


def write(path: Path, job: Job) -> list[str]:
    """A tree of the cells' parameters."""
    return tree_files.write(NAME, path, job)
