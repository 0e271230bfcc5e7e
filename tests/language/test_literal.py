"""Arrays written down by hand: unpacking gives the canonical numbers, packing gives the arrays."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from rnnconvert.core.arrays import Array, Source
from rnnconvert.core.weights import BIAS_PARTS, Key, Recurrent, gates_of
from rnnconvert.language import registry
from rnnconvert.language.layout import Sizes
from rnnconvert.language.packing import assemble, pack, unpack
from tests.helpers.drawn import each
from tests.helpers.stacks import PLAIN, cell_of
from tests.literals import INPUT_BIAS, LITERALS

PARTS = (
    "input", "recurrent", "input_bias", "recurrent_bias", "peephole", "projection",
    "initial_hidden", "initial_cell",
)  # fmt: skip
SHARED = {"flax.mgu": {"r": "z"}}
"""Gates that have no arrays of their own, and whose they have."""
GATES = {"lstm": "ifgo", "gru": "rzn", "rnn": "n"}


def canonical(name: str, form: Sizes) -> dict[tuple[int, int], dict[Key, Source]]:
    """The numbers that a stack of that form has by the rule of tests.literals."""
    layout = registry.layouts()[name]
    placeless = {(part, gate) for part in layout.part_names & set(BIAS_PARTS) for gate in GATES[form.kind]} - layout.keys
    sources: dict[tuple[int, int], dict[Key, Source]] = {}
    for layer, direction in np.ndindex(form.num_layers, form.num_directions):
        arrays: dict[Key, Source] = {}
        for part in form.parts:
            for gate in gates_of(form.kind, part):
                shape = form.shape(layer, part)
                assert shape is not None
                base = 20000 * layer + 10000 * direction + 1000 * (1 + PARTS.index(part))
                twin = {"i": "f", "f": "i"}[gate] if gate and gate == layout.coupled else gate
                base += 100 * (1 + GATES[form.kind].index(SHARED.get(name, {}).get(twin, twin))) if gate else 0
                row, *column = np.indices(shape)
                numbers = np.asarray(base + 10 * (row + 1) + sum(c + 1 for c in column), np.float64)
                numbers = numbers if twin == gate else -numbers  # 1 - sigmoid(a) = sigmoid(-a)
                arrays[part, gate] = np.zeros_like(numbers) if (part, gate) in placeless and twin == gate else numbers
        sources[layer, direction] = arrays
    return sources


def as_arrays(literal: Mapping[str, list[Any]]) -> dict[str, Array]:
    return {name: np.asarray(numbers, np.float64) for name, numbers in literal.items()}


def stack_of(name: str, form: Sizes) -> Recurrent:
    return assemble(name, cell_of(registry.layouts()[name]), canonical(name, form), form.num_directions)


def label(value: object) -> str | None:
    if not isinstance(value, Sizes):
        return value if isinstance(value, str) else ""
    return "-".join([f"{value.num_layers}x{value.num_directions}", *sorted(value.parts - PLAIN)])


def over_literals(test: Callable[[str, Sizes, dict[str, list[Any]]], None]) -> Callable[[], None]:
    """One test that goes through all of them."""

    @functools.wraps(test)
    def run() -> None:
        each(LITERALS, lambda case: test(*case), lambda case: f"{case[0]} {label(case[1])}")

    run.__signature__ = inspect.Signature()  # type: ignore[attr-defined]
    return run


def test_every_layout_is_written_down() -> None:
    assert set(registry.layouts()) == {name for name, _, _ in LITERALS}


@over_literals
def test_unpacking_gives_the_canonical_numbers(name: str, form: Sizes, literal: dict[str, list[Any]]) -> None:
    expected, unpacked = canonical(name, form), unpack(registry.layouts()[name], form, as_arrays(literal))
    assert expected.keys() == unpacked.keys()
    for where, arrays in expected.items():
        assert arrays.keys() == unpacked[where].keys()
        for key, array in arrays.items():
            np.testing.assert_array_equal(np.asarray(array), np.asarray(unpacked[where][key]), f"{where} {key}")


@over_literals
def test_packing_gives_the_literal_arrays(name: str, form: Sizes, literal: dict[str, list[Any]]) -> None:
    layout = registry.layouts()[name]
    expected = as_arrays(literal)
    if stack_of(name, form).first.biases not in layout.holds.biases:
        # A bias mode that a layout reads but does not write: both are written, the other one is zero.
        zeros = np.zeros(6)
        halves = [zeros, expected["params"][-6:]][:: -1 if form.parts == INPUT_BIAS else 1]
        expected = {"params": np.concatenate([expected["params"][:-6], *halves])}
    packed = pack(layout, stack_of(name, form))
    assert expected.keys() == packed.keys()
    for key, array in expected.items():
        np.testing.assert_array_equal(array, np.asarray(packed[key]), key)
