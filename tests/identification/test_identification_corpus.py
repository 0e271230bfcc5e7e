"""Real checkpoints with their names removed: identified by what their own framework gave, and never wrongly."""

from __future__ import annotations

from pathlib import PurePath

import numpy as np

import rnnconvert as rc
from rnnconvert.core.arrays import Array
from rnnconvert.core.weights import Direction, Recurrent
from rnnconvert.files.adapter import adapters
from rnnconvert.files.checkpoint import Checkpoint
from rnnconvert.files.load import load
from rnnconvert.files.options import Options
from rnnconvert.identification.identify import same
from rnnconvert.language.packing import pack
from rnnconvert.rewrites import each, join_stack
from rnnconvert.rewrites.fit_to_layout import fit_to_layout
from tests.helpers import corpus
from tests.helpers.corpus import PROBES, Probe
from tests.helpers.drawn import drawn
from tests.helpers.requirements import need


def nameless(probe: Probe) -> tuple[dict[str, Array], dict[str, Array], Recurrent]:
    """The arrays of a real layer as its file keeps them, under no names; a sample of what it gave, and the truth."""
    checkpoint = load(probe.file, settings=probe.reading)
    if probe.states:  # what the file has for a batch is given with the input
        bare = {name: each(stack, _without_states).replace(unconvertible=()) for name, stack in checkpoint.layers.items()}
        checkpoint = checkpoint.replace(layers=bare)
    truth = join_stack([checkpoint.layers[name] for name in probe.layers])
    blocks = [block for name in probe.layers for block in _arrays(checkpoint, name)]
    io = {"input": probe.input(), "output": probe.expected()}
    states = probe.initial()
    io |= dict(zip(("h0", "c0"), states or (), strict=False))
    return {f"a{number}": array for number, array in enumerate(blocks)}, io, truth


def _without_states(direction: Direction) -> Direction:
    learned = ("initial_hidden", ""), ("initial_cell", "")
    return direction.with_arrays({key: None for key in learned if key in direction.arrays})


def _arrays(checkpoint: Checkpoint, name: str) -> list[Array]:
    """The arrays of one layer: those of the file, or where it has no names for any, those of its layout."""
    stack = checkpoint.layers[name]
    blocks = [np.asarray(array) for *_, d in stack.directions() for array in d.arrays.values()]
    blocks = [block for block in blocks if block.any()]
    file = {key: np.asarray(array) for key, array in checkpoint.arrays.items() if key not in checkpoint.tensors}
    keys = {
        key for key, array in file.items()
        if any(block.size <= array.size and np.isin(block.ravel()[:4], array).all() for block in blocks)
    }  # fmt: skip
    folders = {str(PurePath(key.replace(".", "/")).parent) for key in keys}
    keys |= {
        key for key, array in file.items()
        if not array.any() and str(PurePath(key.replace(".", "/")).parent) in folders
    }  # fmt: skip
    if keys:
        return [array for key, array in file.items() if key in keys]
    layouts = adapters()[checkpoint.format].layouts(Options())
    fitted = fit_to_layout(stack, layouts, {})
    return [np.asarray(array) for array in pack(fitted.layout, fitted.stack).values()]


def outcome(probe: Probe, seconds: float) -> tuple[str, rc.Identification]:
    arrays, io, truth = nameless(probe)
    identification = rc.identify(arrays, io=io, seconds=seconds)
    right = [same(truth, function.stack) for function in identification.functions]
    if identification.verdict in ("identified", "ambiguous") and not any(right):
        return "wrong", identification
    return identification.verdict, identification


def test_real_layers_are_never_identified_wrongly() -> None:
    need("corpus", corpus.absent())
    counts = []
    for probe in drawn(PROBES, 4, "nameless checkpoints"):
        verdict, identification = outcome(probe, 10)
        assert verdict != "wrong", f"{probe}: {identification}"
        counts.append(verdict)
    assert "identified" in counts
