"""A whole model of Core ML as rnnconvert.scaffolding describes models."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from rnnconvert.core.errors import RefusedError

if TYPE_CHECKING:  # a conversion enters no scaffolding
    from rnnconvert.scaffolding.description import Description


@dataclass(frozen=True)
class CoreMlSource:
    """Programs, or neural networks."""

    NAME: str

    def describe(self, path: Path, partial: bool = False) -> Description:
        """Return the model of a file: see rnnconvert/scaffolding/programs/reading.py.

        Raises RefusedError for a row of models or functions, and where an operation is not used as it asks.
        """
        from rnnconvert.files.options import Options
        from rnnconvert.formats.coreml.files import ADAPTERS
        from rnnconvert.formats.coreml.program import HALF
        from rnnconvert.scaffolding.programs.reading import describe
        from rnnconvert.scaffolding.programs.units import ProgramModel

        adapter = next(adapter for adapter in ADAPTERS if adapter.NAME == self.NAME)
        checkpoint = adapter.read_program(path, Options())
        if checkpoint.read is None:
            raise RefusedError("its graph", "a model of layers", "it has several models or functions, or a damaged operation")
        half = [note for note in checkpoint.warnings if note == HALF]
        work = ProgramModel(checkpoint)
        described = describe(work, "", partial)
        return replace(described, notes=(*described.notes, *half), model=work.model(str(path)))


ADAPTERS = (CoreMlSource("coreml"), CoreMlSource("coreml_nn"))
