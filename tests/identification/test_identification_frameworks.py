"""What every framework that runs here computes, identified from arrays without names: its own conventions, and shuffled ones."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import rnnconvert as rc
from rnnconvert.core.arrays import Array
from rnnconvert.core.weights import Layer, Recurrent
from rnnconvert.files.adapter import adapters
from rnnconvert.files.options import Options
from rnnconvert.identification.identify import same
from rnnconvert.language.layout import Layout
from rnnconvert.language.packing import pack
from rnnconvert.rewrites.fit_to_layout import fit_to_layout
from rnnconvert.verification.ready import how_of
from tests.formats.test_pairs import TABLE, X, deep_files, in_memory, run, truth
from tests.helpers.drawn import LONG, drawn
from tests.helpers.frameworks import JUDGES, judge
from tests.helpers.hidden_weights import shuffled
from tests.helpers.workers import running


def computed(target: str, folder: Path, count: int) -> Iterator[tuple[Layout, Recurrent, Array]]:
    """Layers of a framework in one of its layouts, and what the framework gives for X; single ones, and deep stacks."""
    executor = judge(target)
    path = folder / f"model{executor.suffix}"
    ran: dict[str, Array] = {}
    with running(executor) as worker:
        pairs = [pair for pair in TABLE if (pair.source, pair.target, pair.verdict) == (target, target, "exact")]
        for pair in drawn(pairs, count, f"identified {target}"):
            rc.save(in_memory(target, pair.asked), path, target, force=True)
            fitted = fit_to_layout(truth(target, pair.asked).stack, adapters()[target].layouts(Options()))
            yield fitted.layout, fitted.stack, run(worker, path, pair, ran)
        for deep, _, stack in deep_files(target, executor.suffix, folder, count):
            fitted = fit_to_layout(stack, adapters()[target].layouts(Options()))
            asked = {"hidden": None, "cell": None, "lengths": None, "cotangents": None}
            answer = worker.ask(file=str(deep), layers=[], how=how_of(fitted), x=X, **asked)
            yield fitted.layout, fitted.stack, np.asarray(answer["y"])


def arrays_of(layout: Layout, stack: Recurrent) -> list[Array]:
    """A stack's arrays; of a layout of one layer or direction those of each, one after another."""
    try:
        return [np.asarray(array) for array in pack(layout, stack).values()]
    except ValueError:
        layers = [stack.replace(layers=(layer,)) for layer in stack.layers]
        parts = layers
        if len(layers) == 1:
            ways = [way.replace(reverse=False) for way in stack.layers[0].directions]
            parts = [Recurrent("", (Layer((way,)),)) for way in ways]
        return [array for part in parts for array in arrays_of(layout, part)]


@pytest.mark.drawn(3)
@pytest.mark.parametrize("target", JUDGES)
def test_what_a_framework_gives_is_never_identified_wrongly(target: str, tmp_path: Path) -> None:
    counts: Counter[str] = Counter()
    for number, (layout, stack, y) in enumerate(computed(target, tmp_path, 1)):
        if stack.readout:
            continue
        for seed in range(4 if LONG else 2):
            draw = random.Random(f"{target} {number} {seed}")
            packed = arrays_of(shuffled(layout, draw, stack.cell.reset_after) if seed else layout, stack)
            if seed % 4 == 3:
                draw.shuffle(packed)
            arrays = {f"a{place}": array for place, array in enumerate(packed)}
            identification = rc.identify(arrays, X, y, seconds=10 if LONG else 3)
            right = [same(stack, function.stack) for function in identification.functions]
            assert identification.verdict not in ("identified", "ambiguous") or any(right), (layout.name, seed, str(identification))
            counts[identification.verdict] += 1
    if LONG:
        print(f"{target}: {dict(counts)}")
    assert counts, "nothing was run"
