"""The truth of a verification: computed in threads, and taken over for a second model only where that is identical."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import rnnconvert as rc
from rnnconvert.core.cells import Clip
from rnnconvert.core.errors import RefusedError
from rnnconvert.core.weights import Direction, Recurrent
from rnnconvert.language.layout import Sizes
from rnnconvert.rewrites import each
from rnnconvert.verification import truths
from rnnconvert.verification.running import identical
from rnnconvert.verification.truths import Background
from tests.helpers.stacks import BOTH, random_stack


def _stack() -> Recurrent:
    return random_stack(Sizes("lstm", 3, 5, 2, 2, parts=BOTH), 3, np.float32)


def _flipped(direction: Direction) -> Direction:
    """The last bit of one bias is another."""
    values = np.array(direction.arrays["recurrent_bias", "o"])
    values.view(np.uint32)[-1] ^= 1
    return direction.with_arrays({("recurrent_bias", "o"): values})


CHANGES: list[Callable[[Recurrent], Recurrent]] = [
    lambda stack: each(stack, _flipped),
    lambda stack: each(stack, lambda d: d.with_arrays({("recurrent_bias", gate): None for gate in d.cell.gates})),
    lambda stack: each(stack, lambda d: d.with_arrays({key: np.asarray(a).astype(np.float64) for key, a in d.arrays.items()})),
    lambda stack: each(
        stack, lambda d: dataclasses.replace(d, cell=dataclasses.replace(d.cell, clips=(Clip("cell", -1.0, 1.0),)))
    ),
    lambda stack: stack.replace(layers=stack.layers[:1]),
    lambda stack: stack.replace(layers=(stack.layers[0], dataclasses.replace(stack.layers[1], merge="sum"))),
    lambda stack: stack.replace(output_order="processing"),
    lambda stack: stack.replace(readout=(np.eye(5, dtype=np.float32),) * 2),
]  # fmt: skip


def test_stacks_of_the_same_bits_are_identical() -> None:
    recurrent = _stack()
    copied = each(recurrent, lambda d: d.with_arrays({key: np.array(a, order="F") for key, a in d.arrays.items()}))
    assert identical(recurrent, recurrent)
    assert identical(recurrent, copied)
    assert identical(recurrent, recurrent.replace(name="another"))


@pytest.mark.parametrize("change", CHANGES)
def test_stacks_that_differ_anywhere_are_not_identical(change: Callable[[Recurrent], Recurrent]) -> None:
    recurrent = _stack()
    assert not identical(recurrent, change(recurrent))
    assert not identical(change(recurrent), recurrent)


def _three() -> list[Callable[[], int]]:
    return [lambda: 1, lambda: 2, lambda: 3]


@pytest.mark.parametrize("threads", [0, 1, 2, 9])
def test_calls_are_collected_in_order(threads: int) -> None:
    assert Background(_three(), threads, lambda *_: None).collected() == [1, 2, 3]


@pytest.mark.parametrize("threads", [0, 1, 2])
def test_an_error_reaches_the_one_who_collects(threads: int) -> None:
    def fails() -> int:
        raise RefusedError("this", "that", "a reason")

    with pytest.raises(RefusedError, match="a reason"):
        Background([*_three(), fails], threads, lambda *_: None).collected()


def test_nothing_begins_after_a_stop() -> None:
    called, begun, free = [], threading.Event(), threading.Event()

    def first() -> None:
        begun.set()
        free.wait()

    background = Background([first, lambda: called.append(2)], 1, lambda *_: None)
    begun.wait()
    background.stop()
    free.set()
    background._ended.get()
    assert called == []


def test_threads_change_no_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    truths_and_floors = []
    for large in (1, 1 << 40):
        monkeypatch.setattr(truths, "_LARGE", large)
        path = tmp_path / f"{large}.safetensors"
        arrays = rc.pack(_stack(), "pytorch")
        assert isinstance(arrays, dict)
        rc.save(rc.load(arrays), path)
        results = rc.run(path, on=["reference"])
        (layer,) = results.layers.values()
        truths_and_floors.append((layer.truth, layer.floors))
    for pair in zip(*truths_and_floors, strict=True):
        first, other = pair
        assert repr(first) == repr(other)
