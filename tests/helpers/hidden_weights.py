"""Weights whose names are hidden and whose conventions are shuffled, with what they gave: what `identify` has to see through.

`python -m tests.helpers.hidden_weights FILE` identifies 3,000 of them, keeps a line of JSON for each in FILE, goes on where it
stopped, and prints how many were identified, ambiguous, unknown and wrong: the figures of docs/identify.md.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from rnnconvert.core import reference
from rnnconvert.core.arrays import Array
from rnnconvert.core.weights import Recurrent
from rnnconvert.identification import deadline
from rnnconvert.identification.identify import Identification, identify, same
from rnnconvert.language import registry
from rnnconvert.language.layout import Layout
from rnnconvert.language.packing import pack
from tests.helpers.stacks import Draw


@dataclass(frozen=True, eq=False)
class Hidden:
    """Arrays without their names, a sample, and the truth.

    what  the layout and what was shuffled, in words
    """

    what: str
    arrays: dict[str, Array]
    io: dict[str, Any]
    truth: Recurrent


def hidden(seed: int, layout: Layout | None = None, mixed: bool = True) -> Hidden:
    """Weights of a layout, drawn by a seed; with its conventions shuffled, or its own."""
    source = Draw(seed, np.float32, scale=1.5)
    draw = source.choice
    if layout is None:
        layout = draw.choice([entry for entry in registry.layouts().values() if not entry.holds.fixed_clips])
    words = [layout.name]
    if mixed:
        layout = shuffled(layout, draw)
        words.append(f"gates {layout.gates}")
    truth = source.held(layout, mixed)
    arrays = {name: np.asarray(array) for name, array in pack(layout, truth, np.dtype(np.float32)).items()}
    named = list(arrays.values())
    if mixed and draw.random() < 0.15:
        draw.shuffle(named)
        words.append("in any order")
    io, notes = _sample(truth, draw, seed)
    return Hidden(", ".join([*words, truth.describe(), *notes]), {f"a{n}": entry for n, entry in enumerate(named)}, io, truth)


def shuffled(layout: Layout, draw: random.Random, reset_after: bool | None = None) -> Layout:
    """A layout with its gates in another order; a GRU with the other sign, and unless it is to be kept the other reset mode."""
    if layout.letters and len(set(layout.letters.split())) < len(layout.letters.split()):
        return layout
    gates = [gate.lstrip("-") for gate in layout.gates.split()]
    draw.shuffle(gates)
    reset = layout.reset_after if layout.kind != "gru" or "recurrent_bias" in layout.part_names else draw.random() < 0.5
    reset = reset if reset_after is None else reset_after
    signed = ["-z" if gate == "z" and draw.random() < 0.3 else gate for gate in gates]
    return replace(layout, gates=" ".join(signed), letters=" ".join(gates) if layout.letters else "", reset_after=reset)


def _sample(truth: Recurrent, draw: random.Random, seed: int) -> tuple[dict[str, Any], list[str]]:
    rng = np.random.default_rng(seed)
    steps, batch = draw.choice((4, 6, 9)), draw.choice((1, 2, 3, 5))
    x = (1.5 * rng.normal(size=(steps, batch, truth.input_size))).astype(np.float32)
    notes, hidden, cell, lengths = [], None, None, None
    if draw.random() < 0.2:
        hidden = tuple(rng.normal(size=(batch, d.output_size)).astype(np.float32) for *_, d in truth.directions())
        if truth.cell.kind == "lstm":
            cell = tuple(rng.normal(size=(batch, d.hidden_size)).astype(np.float32) for *_, d in truth.directions())
        notes.append("from given states")
    if draw.random() < 0.15 and batch > 1:
        lengths = rng.integers(2, steps + 1, size=batch)
        notes.append("of several lengths")
    out = reference.run(truth, x, hidden, cell, lengths, np.float32)
    batch_first = draw.random() < 0.5
    io: dict[str, Any] = {"input": x.swapaxes(0, 1) if batch_first else x, "h0": hidden, "c0": cell, "lengths": lengths}
    chance = draw.random()
    if chance < 0.12:
        io |= {"h_n": np.stack(out.hidden), "c_n": np.stack(out.cell) if out.cell else None}
        notes.append("final states alone")
    else:
        io["output"] = out.y.swapaxes(0, 1) if batch_first else out.y
    io = {name: np.stack(value) if isinstance(value, tuple) else value for name, value in io.items() if value is not None}
    return io, notes


def outcome(case: Hidden, identified: Identification) -> str:
    """What became of a case: identified, ambiguous, unknown, or wrong."""
    right = [same(case.truth, function.stack) for function in identified.functions]
    if identified.verdict == "identified":
        return "identified" if all(right) else "wrong"
    if identified.verdict == "ambiguous":
        return "ambiguous" if any(right) else "wrong"
    return identified.verdict


def tried(seed: int, seconds: float) -> dict[str, Any]:
    """What became of the case of a seed, as a line of a record."""
    case = hidden(seed)
    deadline.clock = time.process_time  # whatever else the machine has to do
    start = time.process_time()
    identified = identify(case.arrays, io=case.io, seconds=seconds)
    processor = round(time.process_time() - start, 2)
    return {
        "seed": seed, "outcome": outcome(case, identified), "seconds": processor, "complete": identified.complete, "what": case.what,
        "layout": case.what.partition(",")[0],
    }  # fmt: skip


def main(words: Sequence[str] | None = None) -> None:
    """Identify many cases, and print what became of them."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("record", type=Path)
    parser.add_argument("--cases", type=int, default=3000)
    parser.add_argument("--seconds", type=float, default=10.0, help="of the processor, for each case")
    options = parser.parse_args(words)
    lines = options.record.read_text().splitlines() if options.record.exists() else []
    done = {case["seed"]: case for case in map(json.loads, lines)}
    with options.record.open("a") as file:
        for seed in range(options.cases):
            if seed not in done:
                done[seed] = tried(seed, options.seconds)
                file.write(json.dumps(done[seed]) + "\n")
                file.flush()
    results = [done[seed] for seed in range(options.cases)]
    for kind in ("rnn", "gru", "lstm", ""):
        chosen = [case for case in results if kind in ("", registry.layouts()[case["layout"]].kind)]
        print(f"{kind or 'all':5}", dict(Counter(case["outcome"] for case in chosen).most_common()))
    times = sorted(case["seconds"] for case in results)
    print(f"seconds of the processor: median {times[len(times) // 2]}, 95 % {times[len(times) * 95 // 100]}, all {sum(times):.0f}")
    for case in results:
        if case["outcome"] == "wrong":
            print(f"wrong: seed {case['seed']}: {case['what']}")


if __name__ == "__main__":
    main()
