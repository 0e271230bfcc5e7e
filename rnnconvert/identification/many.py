"""The outputs of many readings of one structure, all at once: readings with the same functions are rows of one computation.

The equations are as in rnnconvert.core.reference, which judges the readings that pass here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from rnnconvert.core.arrays import Array
from rnnconvert.core.cells import PEEPHOLE_GATES, Activation
from rnnconvert.core.reference import FUNCTIONS
from rnnconvert.core.weights import BIAS_PARTS, Key, Merge
from rnnconvert.identification.deadline import Deadline
from rnnconvert.identification.reading import Blocks
from rnnconvert.identification.rows import RowReadings, slots_of
from rnnconvert.identification.sample import Sample, States
from rnnconvert.identification.structures import Structure, candidates_only
from rnnconvert.language.layout import Layout

_AT_ONCE = 1 << 22
"""How many numbers of the gates are in memory at a time."""
_CONVERTED = 1 << 20
"""How many numbers of a matrix are converted at a time."""


def errors(rows: RowReadings, structure: Structure, blocks: Blocks, sample: Sample, merge: Merge, deadline: Deadline) -> Array:
    """Return how far off each reading's outputs are, in parts of the largest; infinite where nothing can be compared.

    Raises OutOfTimeError at the step before which the deadline passes.
    """
    steps, batch, _ = sample.x.shape
    size = max(1, steps * batch * structure.sizes.hidden_size * 4 * structure.sizes.num_directions)
    most = max(1, _AT_ONCE // size)
    parts = []
    with np.errstate(all="ignore"):
        for start in range(0, rows.number, most):
            some = rows.chosen(np.arange(start, min(start + most, rows.number)))
            y, hidden, cell = _run(some, structure, blocks, sample, merge, deadline)
            parts.append(_off(some.number, sample, merge, y, hidden, cell))
    return np.concatenate(parts) if parts else np.zeros(0)


def _off(count: int, sample: Sample, merge: Merge, y: Array, hidden: list[Array], cell: list[Array]) -> Array:
    live = None if sample.lengths is None else (np.arange(len(sample.x))[:, None] < sample.lengths)[:, :, None]
    compared: list[list[tuple[Array, Array]]] = []
    if sample.y is not None:
        compared.append([(sample.y if live is None else np.where(live, sample.y, 0), y)])
    if sample.last is not None:
        compared.append([(sample.last, final) for final in (*_finals(hidden, merge), y[:, -1])])
    for expected, computed in ((sample.hn, hidden), (sample.cn, cell)):
        if expected is not None:
            if len(expected) != len(computed):
                return np.full(count, np.inf)
            compared += [[(array, other)] for array, other in zip(expected, computed, strict=True)]
    worst = np.zeros(count)
    for ways in compared:
        fitting = [_worst(target, value) for target, value in ways if target.shape == value.shape[1:]]
        if not fitting:
            return np.full(count, np.inf)
        worst = np.maximum(worst, np.min(fitting, axis=0))
    return worst if compared else np.full(count, np.inf)


def _worst(expected: Array, computed: Array) -> Array:
    scale = float(np.abs(expected).max(initial=0.0)) or 1.0
    gap = np.abs(computed - expected).reshape(len(computed), -1).max(axis=1, initial=0.0)
    return np.asarray(np.where(np.isfinite(gap), gap / scale, np.inf))


def _finals(hidden: Sequence[Array], merge: Merge) -> Iterator[Array]:
    """Yield the last states of the last layer, joined: what a layer gives that returns no sequences."""
    if merge == "concat":
        yield hidden[-1]
        if len(hidden) > 1:
            yield np.concatenate(hidden[-2:], -1)
    elif len(hidden) > 1:
        yield _merged(list(hidden[-2:]), merge)


def _run(
    rows: RowReadings, structure: Structure, blocks: Blocks, sample: Sample, merge: Merge, deadline: Deadline
) -> tuple[Array, list[Array], list[Array]]:
    x = np.asarray(sample.x, np.float64)[None]
    turn = _turner(sample)
    hidden: list[Array] = []
    cell: list[Array] = []
    for layer in range(structure.sizes.num_layers):
        outputs = []
        for direction in range(structure.sizes.num_directions):
            arrays = blocks[layer, direction]
            starts = [
                _start(states, len(hidden), arrays.get((f"initial_{name}", "")))
                for states, name in ((sample.h0, "hidden"), (sample.c0, "cell"))
            ]
            products = _products(rows, structure.layout, arrays, turn(x) if direction else x)
            y, h, c = _unrolled(_stepping(rows, structure.layout, arrays), products, starts, sample.lengths, deadline)
            outputs.append(turn(y) if direction else y)
            hidden.append(h)
            cell.append(c)
        x = _merged(outputs, merge)
    if sample.lengths is not None:
        x = np.where((np.arange(x.shape[1])[:, None] < sample.lengths)[:, :, None], x, 0)
    return x, hidden, cell if structure.sizes.kind == "lstm" else []


def _turner(sample: Sample) -> Callable[[Array], Array]:
    """Return a function that reverses sequences, (rows, time, batch, width), from their ends."""
    if sample.lengths is None:
        return lambda values: values[:, ::-1]
    steps = np.arange(len(sample.x))[:, None]
    places = np.where(steps < sample.lengths, sample.lengths - 1 - steps, steps)
    batch = np.arange(len(sample.lengths))
    return lambda values: values[:, places, batch]


def _start(states: States, number: int, learned: Array | None) -> Array | None:
    if states is not None:
        return np.asarray(states[number], np.float64)
    return learned


def _merged(outputs: list[Array], merge: Merge) -> Array:
    if len(outputs) == 1:
        return outputs[0]
    if merge in ("concat", "none"):
        return np.concatenate(outputs, -1)
    joined = outputs[0] * outputs[1] if merge == "mul" else outputs[0] + outputs[1]
    return joined / 2 if merge == "ave" else joined


def _function(activation: Activation) -> Callable[[Array], Array]:
    function = FUNCTIONS[activation.name]
    return lambda x: function(np, x, activation.alpha, activation.beta)


_Step = Callable[[Array, "Array | None", Array], tuple[Array, Array]]


def _unrolled(
    step: _Step, products: Array, starts: Sequence[Array | None], lengths: Array | None, deadline: Deadline
) -> tuple[Array, Array, Array]:
    """Return the outputs, (rows, time, batch, width), and the final states.

    products  what does not depend on the state, (rows, gates, time, batch, units)
    starts    the initial hidden and cell states; None for zeros
    """
    rows, _, steps, batch, units = products.shape
    h = None if starts[0] is None else np.broadcast_to(starts[0], (rows, batch, starts[0].shape[-1]))
    c = np.broadcast_to(0.0 if starts[1] is None else starts[1], (rows, batch, units))
    outputs = []
    for t in range(steps):
        deadline.check()
        new_h, new_c = step(products[:, :, t], h, c)
        if lengths is not None:
            live = (t < lengths)[:, None]
            new_h = np.where(live, new_h, 0.0 if h is None else h)
            new_c = np.where(live, new_c, c)
        h, c = new_h, new_c
        outputs.append(h)
    assert h is not None
    return np.stack(outputs, 1), h, c


def _stepping(rows: RowReadings, layout: Layout, arrays: Mapping[Key, Array]) -> _Step:
    """Return a function that computes both states after one step of a direction, from its products and the states before.

    The state h may be None, for zero.
    """
    slots = slots_of(layout)
    gates = {gate: number for number, gate in enumerate(slots)}
    index = np.arange(rows.number)[:, None]
    matrices = [arrays["recurrent", slot] for slot in slots]
    biases = [arrays["recurrent_bias", slot] for slot in slots] if ("recurrent_bias", slots[0]) in arrays else None
    inside = None
    if layout.kind == "gru" and rows.reset_after and biases is not None:
        order = np.arange(len(slots))[None].repeat(rows.number, 0) if candidates_only(layout, "recurrent_bias") else rows.biases
        inside = np.array(biases)[order[:, gates["n"]]][:, None]
    negated = rows.negated.any()
    sign = np.where(rows.negated, -1.0, 1.0)[:, None, None]
    gate_act, act, out_act = map(_function, rows.functions)

    def recurrent(h: Array) -> Array:
        """Return the products of R, (rows, gates, batch, units)."""
        recurrent_sums: Array = _gates(h, matrices)[index, rows.recurrents]
        if negated:
            recurrent_sums[:, gates["z"]] *= sign
        return recurrent_sums

    def rnn(pre: Array, h: Array | None, c: Array) -> tuple[Array, Array]:
        return act(pre[:, 0] if h is None else pre[:, 0] + recurrent(h)[:, 0]), c

    def gru(pre: Array, h: Array | None, c: Array) -> tuple[Array, Array]:
        product = None if h is None else recurrent(h)

        def of(gate: str) -> Array:
            value = pre[:, gates[gate]]
            return gate_act(value if product is None else value + product[:, gates[gate]])

        r, z = of("r"), of("z")
        inner: Any = 0.0
        if rows.reset_after:
            inner = 0.0 if product is None else product[:, gates["n"]]
            inner = r * (inner if inside is None else inner + inside)
        elif h is not None:
            inner = recurrent(r * h)[:, gates["n"]]
        n = act(pre[:, gates["n"]] + inner)
        return (1 - z) * n + (0.0 if h is None else z * h), c

    seeing = [gate for gate in PEEPHOLE_GATES if ("peephole", gate) in arrays]
    vectors = np.array([arrays["peephole", gate] for gate in seeing])
    sees = {gate: vectors[rows.peepholes[:, place]][:, None] for place, gate in enumerate(seeing)}
    project = arrays.get(("projection", ""))

    def lstm(pre: Array, h: Array | None, c: Array) -> tuple[Array, Array]:
        if h is not None:
            pre = pre + recurrent(h)

        def of(gate: str, state: Array) -> Array:
            value = pre[:, gates[gate]]
            return value + sees[gate] * state if gate in sees else value

        if layout.coupled == "i":
            f = gate_act(of("f", c))
            i = 1 - f
        else:
            i = gate_act(of("i", c))
            f = 1 - i if layout.coupled == "f" else gate_act(of("f", c))
        new = f * c + i * act(pre[:, gates["g"]])
        out = gate_act(of("o", new)) * out_act(new)
        return (out if project is None else _times(out, project)), new

    return {"rnn": rnn, "gru": gru, "lstm": lstm}[layout.kind]


def _gates(values: Array, matrices: Sequence[Array]) -> Array:
    """Return the products of values, (rows, ..., width), with each gate's matrix, (rows, gates, ..., units)."""
    return np.stack([_times(values, matrix) for matrix in matrices], 1)


def _times(values: Array, matrix: Array) -> Array:
    """Return the product of values, (..., width), with a matrix, (units, width), in double precision.

    Of a matrix in another element type only a part is converted at a time: a copy of all of it may be more than the memory holds.
    """
    flat = values.reshape(-1, values.shape[-1])
    if matrix.dtype == np.float64:
        product = flat @ matrix.T
    else:
        across = abs(matrix.strides[0]) < abs(matrix.strides[1])
        count = max(1, _CONVERTED // matrix.shape[not across])
        parts = [slice(start, start + count) for start in range(0, matrix.shape[across], count)]
        if across:
            product = np.add.reduce([flat[:, part] @ np.asarray(matrix[:, part], np.float64).T for part in parts])
        else:
            product = np.concatenate([flat @ np.asarray(matrix[part], np.float64).T for part in parts], -1)
    return product.reshape(*values.shape[:-1], len(matrix))


def _products(rows: RowReadings, layout: Layout, arrays: Mapping[Key, Array], x: Array) -> Array:
    """Return all that does not depend on the state, (rows, gates, time, batch, units)."""
    slots = slots_of(layout)
    index = np.arange(rows.number)[:, None]
    if ("input", slots[0]) in arrays:
        product = _gates(x, [arrays["input", slot] for slot in slots])
    else:
        product = np.broadcast_to(x[:, None], (len(x), len(slots), *x.shape[1:]))
    products: Array = product[0][rows.weights] if len(x) == 1 else product[index, rows.weights]
    sign = np.where(rows.negated, -1.0, 1.0)[:, None, None, None]
    z = slots.index("z") if rows.negated.any() else -1
    if z >= 0 and ("input", slots[0]) in arrays:
        products[:, z] *= sign
    for part in BIAS_PARTS:
        if (part, slots[0]) not in arrays:
            continue
        vectors = np.array([arrays[part, slot] for slot in slots])
        order = rows.biases if not candidates_only(layout, part) else np.arange(len(slots))[None].repeat(rows.number, 0)
        added = vectors[order]
        if part == "recurrent_bias" and layout.kind == "gru" and rows.reset_after:
            added[:, slots.index("n")] = 0
        if z >= 0:
            added[:, z] *= sign[:, 0, 0]
        products += added[:, :, None, None]
    if rows.forget.any() and "f" in slots:
        products[:, slots.index("f")] += rows.forget[:, None, None, None]
    return products
