"""rnnconvert demo: two small files to try the other commands on."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from rnnconvert.cli.terminal import FilePath, emit, put, say
from rnnconvert.cli.verbosity import is_quiet
from rnnconvert.core.remedies import Command

if TYPE_CHECKING:
    from rnnconvert.core.weights import Recurrent

_EPILOG = """\b
Examples:
  rnnconvert demo
  rnnconvert demo FOLDER --force
"""
_NAME, _SIZES = "encoder", (6, 8)


@click.command(epilog=_EPILOG)
@click.argument("folder", type=FilePath(), default="rnnconvert-demo")
@click.option("--force", is_flag=True, help="Replace files that exist.")
@click.option("--json", "as_json", is_flag=True, help="Print the files and the commands as JSON.")
def demo(folder: str, force: bool, as_json: bool) -> None:
    """Write two small models into FOLDER (rnnconvert-demo), and say what to try on them.

    model.keras holds an LSTM of both directions; wrong.pt is that LSTM for PyTorch, with a mistake that conversions by hand often have: two
    gates are exchanged in one direction, so that it loads and computes something else.
    """
    from rnnconvert.containers.files import make_folder, only_replace
    from rnnconvert.files.checkpoint import Checkpoint
    from rnnconvert.files.convert import save

    place = Path(folder)
    right, wrong = place / "model.keras", place / "wrong.pt"
    for file in (right, wrong):
        only_replace(file, force)
    make_folder(place)
    stack = _stack()
    save(Checkpoint("demo", "demo", {_NAME: stack}), right, force=True)
    save(Checkpoint("demo", "demo", {_NAME: _exchanged(stack)}), wrong, force=True)
    commands = [Command("inspect", right), Command("convert", right, "model.pt"), Command("diagnose", right, wrong)]
    if as_json:
        emit({"files": [str(right), str(wrong)], "commands": [str(command) for command in commands]})
        return
    say(f"wrote {right}: an LSTM of both directions, {_SIZES[0]} -> {_SIZES[1]}, as Keras has it")
    say(f"wrote {wrong}: the same for PyTorch, but for a mistake")
    if not is_quiet():
        for line in ("# to try:", *map(str, commands)):
            put(line)


def _stack() -> Recurrent:
    """Return an LSTM with random weights, the same ones in every run."""
    import numpy as np

    from rnnconvert.core.cells import Cell
    from rnnconvert.core.weights import Direction, Layer, Recurrent

    random = np.random.default_rng(0)
    inputs, units = _SIZES
    shapes = {"input": (units, inputs), "recurrent": (units, units), "input_bias": (units,)}

    def direction(reverse: bool) -> Direction:
        arrays = {(part, gate): random.uniform(-0.6, 0.6, shape).astype(np.float32) for part, shape in shapes.items() for gate in "ifgo"}
        return Direction(Cell("lstm"), arrays, reverse)

    return Recurrent(_NAME, (Layer((direction(False), direction(True))),))


def _exchanged(stack: Recurrent) -> Recurrent:
    """Return a stack whose backward direction has its input gate and its forget gate exchanged."""
    from dataclasses import replace

    (layer,) = stack.layers
    forward, backward = layer.directions
    other = {"i": "f", "f": "i"}
    arrays = {(part, other.get(gate, gate)): array for (part, gate), array in backward.arrays.items()}
    return stack.replace(layers=(replace(layer, directions=(forward, backward.replace(arrays=arrays))),))
