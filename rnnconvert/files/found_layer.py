"""A recurrent layer that was found among the arrays of a file."""

from __future__ import annotations

from typing import NamedTuple

from rnnconvert.core.cells import Cell
from rnnconvert.language.layout import Layout, Sizes


class FoundLayer(NamedTuple):
    """A recurrent layer that was found among arrays.

    name    where it lies: what the full names of its arrays begin with; "" for the file itself
    layout  which layout its arrays are of
    sizes   which arrays it has and how large they are
    names   the full names of its arrays, by the layout's own
    cell    what it computes, where the caller states it: then nothing of it is asked
    """

    name: str
    layout: Layout
    sizes: Sizes
    names: dict[str, str]
    cell: Cell | None = None
