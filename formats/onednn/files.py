"""Libraries whose weights are the memory of a program: archives of arrays by the names that the library gives them."""

from __future__ import annotations

from rnnconvert.containers.stored import Stored
from rnnconvert.core.cells import Cell
from rnnconvert.core.errors import RefusedError
from rnnconvert.files.finder import ArrayFiles
from rnnconvert.files.found_layer import FoundLayer
from rnnconvert.files.options import Options
from rnnconvert.language import registry


class OneDnn(ArrayFiles):
    """oneDNN's primitives."""

    def cell(self, group: FoundLayer, stored: Stored, options: Options) -> Cell:
        """Return the cell of a layer.

        Raises RefusedError for several layers of two directions: oneDNN joins these only at the end.
        """
        if group.sizes.num_layers > 1 and group.sizes.num_directions > 1:
            raise RefusedError(
                "several layers of two directions in one primitive",
                "onednn",
                "oneDNN runs them as two stacks that meet only at the end, and reads an input as wide as the cell",
                "Take one primitive for each layer.",
                group.name,
            )
        return super().cell(group, stored, options)


ADAPTERS = (OneDnn("onednn", registry.endings("onednn")),)
