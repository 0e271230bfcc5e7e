"""A model on its way into a file, and its proof: the file beside the model that it was made of, each in its own framework."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np

from rnnconvert.containers.temporary import new_folder
from rnnconvert.core.arrays import Array, epsilon
from rnnconvert.core.errors import show_as
from rnnconvert.core.verdict import Limit
from rnnconvert.core.weights import Direction, Layer, Recurrent
from rnnconvert.judging.judging import Output
from rnnconvert.judging.whole import SHAKES, WholeJudge
from rnnconvert.models.runners import DoesNotRunError, FileModel, ModelApart, open_file
from rnnconvert.models.verify import YOURS, ModelCalls, WholeModels, opened
from rnnconvert.scaffolding.description import Description
from rnnconvert.scaffolding.export_target import ExportedGraph, ExportTarget
from rnnconvert.scaffolding.inputs import BATCHES_AND_TIMES, drawn
from rnnconvert.scaffolding.proof import alone, proofs, variants
from rnnconvert.scaffolding.sources import DescribedSource
from rnnconvert.scaffolding.stateful.carried import StreamedDescription
from rnnconvert.scaffolding.stateful.pieces import StreamRun
from rnnconvert.scaffolding.weights import LayerWeights

_ROUNDING = ("dtype", "storage")
"""The options of targets that change how exactly weights are held."""


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
    def _written(self) -> Description:
        return self.stream.description if self.stream else self.model.description

    def opened(self, written: Path) -> ModelApart:
        """Return a file that was written as a model that reads and gives what its source does."""
        file = open_file(self.writer.NAME, written)
        as_source = self.graph.opened(file) if self.graph.opened else file
        return StreamRun(as_source, self.stream) if self.stream else as_source

    def proofs(self, written: Path, user_inputs: Mapping[str, Array] | None) -> Iterator[WholeModels]:
        """Yield the comparisons with a file that was written."""
        if self.graph.rounded:
            yield from self._rounded_proofs(written, user_inputs)
            return
        if self.model.description.integers:
            yield self._beside_integers(written, user_inputs)
            return
        limits = _limits(self.writer, written)
        for proof in proofs(self.model.description, self.opened(written), self.model.open(), [], user_inputs):
            yield replace(proof, limits=limits)

    def _beside_integers(self, written: Path, user_inputs: Mapping[str, Array] | None) -> WholeModels:
        """Return the comparison with a source that rounds to integers as it runs: as far off as its matrices' own rounding explains."""
        model = self.model
        with new_folder() as folder:

            def files() -> Iterator[ModelApart]:
                yield self.opened(written)
                yield model.open()
                for seed in range(SHAKES):
                    weights = MovedWeights(model.model, model.description.names, rounding="int8", seed=seed)
                    path = Path(folder) / f"moved {seed}" / written.name
                    path.parent.mkdir()
                    show_as(path, written)
                    self.writer.graph(self._written, weights, **self.options).write(path)
                    yield self.opened(path)

            return rounded_proof(model.description, files(), "its source computes with integers of 8 bits", user_inputs, model.open())

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

            yield rounded_proof(model.description, files(), self.graph.rounded, user_inputs)


def _limits(writer: ExportTarget, path: Path) -> tuple[Limit, ...]:
    limits: Callable[[Path], Sequence[Limit]] | None = getattr(writer, "limits", None)
    return tuple(limits(path)) if limits else ()


# A written model whose weights are rounded: what it gives beside the same model with the numbers of its source.

Rounding = Literal["float16", "int8"]


@dataclass(frozen=True)
class MovedWeights(LayerWeights):
    """The weights of layers, each moved by half a step of a rounding.

    rounding  which
    seed      decides which way
    """

    rounding: Rounding = "float16"
    seed: int = 0

    def parts(self, path: str, kind: str) -> dict[str, Array]:
        return {part: self._moved(array) for part, array in super().parts(path, kind).items()}

    def numbers(self, path: str) -> Array:
        return self._moved(super().numbers(path))

    def stack(self, path: str) -> Recurrent:
        stack = super().stack(path)
        layers = [Layer(tuple(map(self._direction, layer.directions))) for layer in stack.layers]
        return stack.replace(layers=tuple(layers))

    def _direction(self, direction: Direction) -> Direction:
        return direction.with_arrays({key: self._moved(np.asarray(array)) for key, array in direction.arrays.items()})

    def _moved(self, array: Array) -> Array:
        """Return numbers moved by half a step; in int8 a row of a matrix has one step, and vectors are unchanged.

        Half of the numbers that are integers already are moved by a whole step.
        """
        rng = np.random.default_rng((self.seed, array.size))
        if self.rounding == "int8" and array.dtype in (np.int8, np.uint8) and array.ndim > 1:
            limits = np.iinfo(array.dtype)
            return np.asarray(np.clip(array + rng.choice([-1, 0, 0, 1], array.shape), limits.min, limits.max), array.dtype)
        if array.dtype.kind in "iub" or (self.rounding == "int8" and array.ndim < 2):
            return array
        numbers = np.asarray(array, np.float64)
        if self.rounding == "int8":
            step = np.abs(numbers).max(axis=tuple(range(1, numbers.ndim)), keepdims=True, initial=0) / 127
        else:
            step = np.maximum(np.abs(numbers) * epsilon(np.dtype(np.float16)), np.finfo(np.float16).smallest_subnormal)
        signs = rng.choice([-0.5, 0.5], numbers.shape)
        return np.asarray(numbers + signs * step).astype(array.dtype)


def rounded_proof(
    description: Description,
    files: Iterator[ModelApart],
    rounded: str,
    user_inputs: Mapping[str, Array] | None,
    source: ModelApart | None = None,
) -> WholeModels:
    """Return the comparison of a written model with the same one in the numbers of its source, on random inputs and on a user's own.

    files    the model in the numbers of its source, then as it is written, then with those numbers moved: each runs, and ends, before the
             next
    rounded  why the second one's numbers differ, in words
    source   one of them that may not run on every size, None if all do
    """
    exact = next(files)
    shapes = exact.shapes if isinstance(exact, FileModel) else ()
    tried = [_on_sizes(source, description, shapes, number) for number in range(len(BATCHES_AND_TIMES))]
    every = [calls for calls, _ in tried]
    every += [ModelCalls(user_inputs, label=YOURS)] if user_inputs is not None else []

    def gave(file: ModelApart) -> list[tuple[Array, ...]]:
        return [calls.run(opened(file)[0])[0].outputs for calls in every]

    truths, values, *moved = gave(exact), *map(gave, files)
    comparisons = []
    for call, (calls, truth, gives) in enumerate(zip(every, truths, values, strict=True)):
        for number, (value, expected) in enumerate(zip(gives, truth, strict=True)):
            name = f"output{'' if len(truth) == 1 else f' {number}'} beside float32"
            floors = [runs[call][number] for runs in moved]
            output = Output(calls.label, name, tuple(f"axis {axis}" for axis in range(expected.ndim)))
            compared = WholeJudge(np.dtype(np.float32)).compare(output, value, expected, truth_moved=floors)
            comparisons.append(replace(compared, rounded=True))
    # Together: on some inputs what rounding explains may be as large as the values.
    notes = tuple(dict.fromkeys(note for _, note in tried if note))
    return WholeModels(tuple(comparisons), (), notes, limits=(Limit("rounding", "", rounded),))


def _on_sizes(
    source: ModelApart | None, description: Description, shapes: Sequence[Sequence[int | None]], number: int
) -> tuple[ModelCalls, str]:
    """Return inputs of a usual size, or of the first other one on which a model runs, and a note on it."""
    batch, _ = case = BATCHES_AND_TIMES[number]
    refused: DoesNotRunError | None = None
    for size in dict.fromkeys(size for size, _ in variants(case)):
        calls = ModelCalls(next(drawn(description, number, shapes, [size])), label="drawn inputs")
        try:
            if source is not None:
                calls.run(opened(source)[0])
            return calls, alone(batch) if size[0] != batch else ""
        except DoesNotRunError as error:
            refused = refused or error
    assert refused is not None  # there is a size to try
    raise refused
