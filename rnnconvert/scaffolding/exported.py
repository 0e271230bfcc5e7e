"""A model on its way into a file, and its proof: the file beside the model that it was made of, each in its own framework."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from rnnconvert.containers.temporary import new_folder
from rnnconvert.core.arrays import Array
from rnnconvert.core.errors import show_as
from rnnconvert.core.verdict import Limit
from rnnconvert.judging.whole import SHAKES
from rnnconvert.models.runners import FileModel, ModelApart, open_file
from rnnconvert.models.verify import WholeModels
from rnnconvert.scaffolding.description import Description
from rnnconvert.scaffolding.proof import proofs
from rnnconvert.scaffolding.rounded import MovedWeights, Rounding, rounded_proof
from rnnconvert.scaffolding.sources import DescribedSource
from rnnconvert.scaffolding.stateful.carried import StreamedDescription
from rnnconvert.scaffolding.stateful.pieces import StreamRun
from rnnconvert.scaffolding.weights import LayerWeights

if TYPE_CHECKING:
    from rnnconvert.scaffolding.export import ExportedGraph, ExportTarget

_ROUNDING = ("dtype", "storage")
"""The options of targets that change how exactly weights are held."""


@runtime_checkable
class InOtherAxes(Protocol):
    """A model in the form of a target that has other axes than its source."""

    def opened(self, written: FileModel) -> ModelApart:
        """Return the written file as a model that reads and gives what its source does."""
        ...


@dataclass(frozen=True)
class ExportedModel:
    """A model on its way into a file.

    writer   what writes it
    graph    what is written
    model    its source
    options  what the target was asked for
    stream   the model as a stream, where it is written so
    """

    writer: ExportTarget
    graph: ExportedGraph
    model: DescribedSource
    options: Mapping[str, str]
    stream: StreamedDescription | None = None

    @property
    def rounded(self) -> str:
        """Why the numbers of the file differ from the source's, in words; "" if they do not differ."""
        rounded: str = getattr(self.graph, "rounded", "")
        return rounded

    @property
    def _written(self) -> Description:
        return self.stream.description if self.stream else self.model.description

    def opened(self, written: Path) -> ModelApart:
        """Return a file that was written as a model that reads and gives what its source does."""
        file = open_file(self.writer.NAME, written)
        as_source = self.graph.opened(file) if isinstance(self.graph, InOtherAxes) else file
        return StreamRun(as_source, self.stream) if self.stream else as_source

    def proofs(self, written: Path, user_inputs: Mapping[str, Array] | None) -> Iterator[WholeModels]:
        """Yield the comparisons with a file that was written."""
        if self.rounded:
            yield from self._rounded_proofs(written, user_inputs)
            return
        limits = _limits(self.writer, written)
        for proof in proofs(self.model.description, self.opened(written), self.model.open(), [], user_inputs):
            yield replace(proof, limits=limits)

    def _rounded_proofs(self, written: Path, user_inputs: Mapping[str, Array] | None) -> Iterator[WholeModels]:
        """Yield the comparisons of the same model in the numbers of its source, and then of the file next to it."""
        options = {key: value for key, value in self.options.items() if key not in _ROUNDING}
        rounding: Rounding = "int8" if "int8" in self.options.values() else "float16"
        model = self.model
        with new_folder() as folder:

            def exact(word: str, weights: LayerWeights) -> tuple[ExportedModel, Path]:
                graph = self.writer.graph(self._written, weights, **options)
                path = Path(folder) / word / written.name
                path.parent.mkdir()
                show_as(path, written)
                graph.write(path)
                return ExportedModel(self.writer, graph, model, options, self.stream), path

            export, plain = exact("exact", LayerWeights(model.model, model.description.names))
            yield from export.proofs(plain, user_inputs)

            def files() -> Iterator[ModelApart]:
                yield export.opened(plain)
                yield self.opened(written)
                for seed in range(SHAKES):
                    weights = MovedWeights(model.model, model.description.names, rounding=rounding, seed=seed)
                    yield self.opened(exact(f"moved {seed}", weights)[1])

            yield rounded_proof(model.description, files(), self.rounded, user_inputs)


def _limits(writer: ExportTarget, path: Path) -> tuple[Limit, ...]:
    limits: Callable[[Path], Sequence[Limit]] | None = getattr(writer, "limits", None)
    return tuple(limits(path)) if limits else ()
