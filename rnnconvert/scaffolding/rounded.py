"""A written model whose weights are rounded: what it gives beside the same model with the numbers of its source.

What rounding explains is measured: the model is written again, in float32, each weight moved up or down by half a step of its rounding.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from rnnconvert.core.arrays import Array, epsilon
from rnnconvert.core.verdict import Limit
from rnnconvert.core.weights import Direction, Layer, Recurrent
from rnnconvert.judging.judging import Output
from rnnconvert.judging.whole import WholeJudge
from rnnconvert.models.runners import FileModel, ModelApart
from rnnconvert.models.verify import YOURS, ModelCalls, WholeModels, opened
from rnnconvert.scaffolding.description import Description
from rnnconvert.scaffolding.inputs import drawn
from rnnconvert.scaffolding.weights import LayerWeights

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
        """Return numbers moved by half a step; in int8 a row of a matrix has one step, and vectors are unchanged."""
        if array.dtype.kind in "iub" or (self.rounding == "int8" and array.ndim < 2):
            return array
        numbers = np.asarray(array, np.float64)
        if self.rounding == "int8":
            step = np.abs(numbers).max(axis=tuple(range(1, numbers.ndim)), keepdims=True, initial=0) / 127
        else:
            step = np.maximum(np.abs(numbers) * epsilon(np.dtype(np.float16)), np.finfo(np.float16).smallest_subnormal)
        signs = np.random.default_rng((self.seed, numbers.size)).choice([-0.5, 0.5], numbers.shape)
        return np.asarray(numbers + signs * step).astype(array.dtype)


def rounded_proof(
    description: Description, files: Iterator[ModelApart], rounded: str, user_inputs: Mapping[str, Array] | None
) -> WholeModels:
    """Return the comparison of a written model with the same one in the numbers of its source, on random inputs and on a user's own.

    files    the model in the numbers of its source, then as it is written, then with those numbers moved: each runs, and ends, before the
             next
    rounded  why the second one's numbers differ, in words
    """
    exact = next(files)
    shapes = exact.shapes if isinstance(exact, FileModel) else ()
    every = [ModelCalls(inputs, label="drawn inputs") for inputs in drawn(description, shapes=shapes)]
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
    return WholeModels(tuple(comparisons), (), limits=(Limit("rounding", "", rounded),))
