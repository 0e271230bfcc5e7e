"""Inputs drawn for a described model: whole numbers where it embeds them, masked steps where it masks, in several sizes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from rnnconvert.core.arrays import Array
from rnnconvert.scaffolding import kinds
from rnnconvert.scaffolding.description import DescribedModel, Description, Value

BATCHES_AND_TIMES = ((3, 11), (1, 16), (2, 9))
"""The sizes that are tried in turn: the batch, and every other axis that the model leaves open."""
SINGLE = (1, 1)
"""One sequence of one step: a model may ask for more."""
_MOST = 130
"""The length below which others are tried where the model does not take these."""
_CODES = 16
"""The bound of whole numbers that no embedding reads, on either side of zero."""


def drawn(
    description: Description,
    seed: int = 0,
    shapes: Sequence[Sequence[int | None]] = (),
    cases: Sequence[tuple[int, int]] = BATCHES_AND_TIMES,
    signed: bool = False,
) -> Iterator[list[Array]]:
    """Yield inputs for a model, one array for each of its inputs, in several sizes.

    shapes  those that the inputs must have to be run, None for what is open, as where a file serves batches of one only
    cases   the sizes
    signed  draw whole numbers from below zero, too, but for those that are places in something, and sequences that are all shorter than
            their axis
    """
    rows, masked = _read_by(description.scope, {})
    packed = _packed(description.scope)
    for number, (batch, time) in enumerate(cases):
        generator = np.random.default_rng(seed + number)
        for sizes in ((batch, time), *((batch, other) for other in range(2, _MOST)), *((other, other) for other in range(1, _MOST))):
            lengths = {symbol: sizes[word == "time"] for symbol, word in description.roles.items()} | _multiples(description, time)
            arrays = [
                _input(value, _bound(value.shape, shapes[index : index + 1]), sizes, lengths, rows, masked, generator, signed)
                if value.shape or value.dtype == "float32"
                else _number(description, value.dtype, seed + number, generator)
                for index, value in enumerate(description.scope.inputs)
            ]
            for index, steps in packed.items():
                most = max(1, (lengths.get(steps, time) if isinstance(steps, str) else steps) - signed)
                drawn_lengths = np.sort(generator.integers(1, most + 1, arrays[index].shape))[::-1]
                drawn_lengths[:1] = most
                arrays[index] = drawn_lengths.astype(arrays[index].dtype)
            if all(check.takes([array.shape for array in arrays]) for check in description.checks):
                break
        yield arrays


def _number(description: Description, dtype: str, turn: int, generator: np.random.Generator) -> Array:
    """Return an input without axes, which may decide something: either truth in turn, or one of the model's whole numbers or another."""
    if dtype == "bool":
        return np.asarray(turn // 2 % 2 == 0)
    operands = [
        operand for node in description.scope.every_node() if isinstance(node.kind, kinds.Elementwise) for operand in node.kind.operands
    ]
    numbers = sorted({number for kind, number in operands if kind == "number" and isinstance(number, int)})
    return np.asarray([*numbers, int(generator.integers(0, _CODES))][turn % (len(numbers) + 1)], dtype)


def _multiples(description: Description, length: int) -> dict[str, int]:
    """Return the lengths of axes that are as many times as long as others, and of these."""
    lengths: dict[str, int] = {}
    for check in description.checks:
        times = re.fullmatch(r"\{0\} == (\d+) \* \{1\}", check.text)
        if times is not None:
            longer, other = (description.scope.inputs[number].axes[axis] for number, axis in check.axes)
            lengths |= {longer: int(times[1]) * length, other: length}
    return lengths


def _bound(shape: Sequence[int | None], required: Sequence[Sequence[int | None]]) -> list[int | None]:
    """Return a shape whose open sizes are those that are required."""
    if not required or len(required[0]) != len(shape):
        return list(shape)
    return [other if size is None else size for size, other in zip(shape, required[0], strict=True)]


def _input(
    value: Value,
    bound: Sequence[int | None],
    sizes: tuple[int, int],
    lengths: dict[str, int],
    rows: Mapping[int, int],
    masked: Mapping[int, float],
    generator: np.random.Generator,
    signed: bool,
) -> Array:
    words = (*value.axes, *[""] * (len(value.shape) - len(value.axes)))
    chosen = [sizes[min(axis, 1)] for axis in range(len(value.shape))]
    chosen = [lengths.setdefault(word, size) if word else size for word, size in zip(words, chosen, strict=True)]
    shape = [open_size if size is None else size for open_size, size in zip(chosen, bound, strict=True)]
    if value.dtype == "bool":
        return generator.random(shape) < 0.7
    integers = id(value) in rows or value.dtype != "float32"
    least = -_CODES if signed and id(value) not in rows and value.dtype.startswith("int") else 0
    x = generator.integers(least, rows.get(id(value), _CODES), shape) if integers else generator.standard_normal(shape)
    if id(value) in masked and len(shape) > 1 and shape[1] > 3:
        x[0, -2:] = masked[id(value)]  # padding at the end, a gap, padding in front
        x[-1, 2] = masked[id(value)]
        x[-1, 0] = masked[id(value)]
    return x.astype(value.dtype)


def _packed(scope: DescribedModel) -> dict[int, int | str]:
    """Return the inputs that are the lengths of packed sequences, which are packed from the longest on, with how many steps there are."""
    places = {id(value): number for number, value in enumerate(scope.inputs)}
    steps: dict[int, int | str] = {}
    for node in scope.nodes:
        if (
            isinstance(node.kind, kinds.Cast | kinds.Elementwise | kinds.Arithmetic | kinds.Clip)
            and node.y.dtype.startswith("int")
            and id(node.x) in places
        ):
            places[id(node.y)] = places[id(node.x)]
        elif isinstance(node.kind, kinds.Mask) and node.kind.packed and id(node.x) in places:
            count, symbol = node.inputs[1].shape[1], node.inputs[1].axes[1]
            steps[places[id(node.x)]] = symbol if count is None else count
        elif isinstance(node.kind, kinds.Model | kinds.Loop):
            inner = _packed(node.kind.scope)
            steps |= {places[id(node.inputs[number])]: count for number, count in inner.items() if id(node.inputs[number]) in places}
    return steps


def _read_by(scope: DescribedModel, same: dict[int, int]) -> tuple[dict[int, int], dict[int, float]]:
    """Return which inputs an embedding or a gather reads, with its rows, and which are compared with a number that masks them.

    same  for a tensor that is another one, moved at most, that one
    """
    rows: dict[int, int] = {}
    masked: dict[int, float] = {}
    begins = {id(value) for value in scope.inputs}

    def origin(value: Value) -> int:
        key = id(value)
        while key in same:
            key = same[key]
        return key

    for node in scope.nodes:
        if isinstance(node.kind, kinds.Embedding):
            rows[origin(node.x)] = min(node.kind.input_size, rows.get(origin(node.x), node.kind.input_size))
        elif isinstance(node.kind, kinds.Gather) and isinstance(count := node.x.shape[node.kind.axis], int):
            rows[origin(node.inputs[1])] = min(count, rows.get(origin(node.inputs[1]), count))
        elif isinstance(node.kind, kinds.Mask) and node.kind.operation == "lengths":
            rows[origin(node.x)] = min(time for _, time in BATCHES_AND_TIMES)
        elif isinstance(node.kind, kinds.Mask) and node.kind.value is not None:
            masked[origin(node.x)] = node.kind.value
        elif isinstance(node.kind, kinds.Model | kinds.Loop):
            inner_same = {id(start): id(value) for start, value in zip(node.kind.scope.inputs, node.inputs, strict=False)}
            more, marks = _read_by(node.kind.scope, {**same, **inner_same})
            rows.update({key: min(size, rows.get(key, size)) for key, size in more.items()})
            masked.update(marks)
        elif isinstance(
            node.kind, kinds.Reshape | kinds.Flatten | kinds.Transpose | kinds.Repeat | kinds.StepsToBatch | kinds.Concatenate | kinds.Cast
        ):
            for value in node.outputs:
                same[id(value)] = id(node.x)
        elif isinstance(node.kind, kinds.Elementwise | kinds.Arithmetic | kinds.Clip) and node.y.dtype.startswith("int"):
            # Places that are computed from an input, as those counted from the end are, are bounded as it is.
            followed = [value for value in node.inputs if id(value) in begins or id(value) in same]
            same.update({id(node.y): id(value) for value in followed[-1:]})
    return rows, masked
