"""How the work of each command grows with its model: `python -m fuzz.commands` doubles what models have, for all that click lists.

What is measured is what a command does in its own process (fuzz.doubling); what executors do is the frameworks' affair.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

import rnnconvert as rc
from fuzz import doubling
from fuzz.doubling import Case, Growth, Prepare, Work
from rnnconvert.cli.main import main as program
from rnnconvert.containers import apart
from tests.helpers import every_command, sources

PAGE = Path(__file__).with_name("README.md")
MARKS = ("<!-- commands -->", "<!-- end of the commands -->")


def _stacks(folder: Path, names: Sequence[str], sizes: Sequence[int]) -> None:
    """Write layers of these names and sizes, as weights and as ONNX, in the place of those of the calls."""
    stacks = [sources.stack(name=name, hidden_size=size) for name, size in zip(names, sizes, strict=True)]
    for file in ("a.safetensors", "b.safetensors", "m.onnx"):
        sources.write(folder / file, *stacks, force=True)


def _layers(folder: Path, n: int) -> None:
    _stacks(folder, [f"rnn{number}" for number in range(n)], [2] * n)
    _dense(folder, [f"dense_{number}" for number in range(n)], [3] * n)


def _sizes(folder: Path, n: int) -> None:
    _stacks(folder, [f"rnn{number}" for number in range(n)], range(2, 2 + n))
    _dense(folder, [f"dense_{number}" for number in range(n)], range(2, 2 + n))


def _names(folder: Path, n: int) -> None:
    _stacks(folder, ["r" * n], [2])
    _dense(folder, ["d" * n], [3])


def _operators(folder: Path, n: int) -> None:
    """Activations behind a layer, one upon the other, in ONNX; and behind the steps of an unrolled one."""
    for file in ("m.onnx", "steps.onnx"):
        model = onnx.load(folder / file)
        last = model.graph.output[0].name
        for number in range(n):
            model.graph.node.append(helper.make_node("Relu", [last], [f"chain{number}"]))
            last = f"chain{number}"
        model.graph.output.append(helper.make_tensor_value_info(last, onnx.TensorProto.FLOAT, None))
        onnx.save(model, folder / file)


def _outputs(folder: Path, n: int) -> None:
    for file in ("m.onnx", "steps.onnx"):
        model = onnx.load(folder / file)
        first = model.graph.output[0].name
        for number in range(n):
            model.graph.node.append(helper.make_node("Tanh", [first], [f"out{number}"]))
            model.graph.output.append(helper.make_tensor_value_info(f"out{number}", onnx.TensorProto.FLOAT, None))
        onnx.save(model, folder / file)


def _nesting(folder: Path, n: int) -> None:
    """Graphs within one another, and Keras models; what is deeper than a limit is refused, and the work stays."""
    for file in ("m.onnx", "steps.onnx"):
        model = onnx.load(folder / file)
        last = model.graph.output[0].name
        yes = numpy_helper.from_array(np.array(True), "yes")
        graph = helper.make_graph([helper.make_node("Relu", [last], ["deep"])], "g", [], [_open("deep")])
        for number in range(min(n, 30)):
            node = helper.make_node("If", ["yes"], [f"deep{number}"], then_branch=graph, else_branch=_identity(last, number))
            graph = helper.make_graph([node], "g", [], [_open(f"deep{number}")])
        model.graph.initializer.append(yes)
        model.graph.node.extend(graph.node)
        model.graph.output.extend(graph.output)
        onnx.save(model, folder / file)


def _identity(name: str, number: int) -> Any:
    return helper.make_graph([helper.make_node("Identity", [name], [f"same{number}"])], "e", [], [_open(f"same{number}")])


def _open(name: str) -> Any:
    return helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None)


def _dense(folder: Path, names: Sequence[str], sizes: Sequence[int]) -> None:
    """Write a chain of Dense layers in the place of the Keras models of the calls, today's file and the old one."""
    widths = [3, *sizes]
    layers: list[dict[str, Any]] = []
    arrays: dict[str, list[tuple[str, Any]]] = {}
    for number, name in enumerate(names):
        config = {"name": name, "units": widths[number + 1], "activation": "relu", "use_bias": True, "dtype": "float32", "trainable": True}
        if not number:
            config["batch_input_shape"] = [None, 3]
        layers.append({"class_name": "Dense", "config": config})
        shapes = {"kernel:0": (widths[number], widths[number + 1]), "bias:0": (widths[number + 1],)}
        arrays[name] = [(f"{name}/{word}", np.ones(shape, np.float32)) for word, shape in shapes.items()]
    config = {"class_name": "Sequential", "config": {"name": "model", "layers": layers}}
    if any(len(name) > 4000 for name in names):  # HDF5 names no longer ones in its attributes
        return
    sources.legacy_h5(folder / "old_tagger.h5", arrays, config)
    (folder / "decoder.keras").unlink(missing_ok=True)
    rc.upgrade(folder / "old_tagger.h5", folder / "decoder.keras")


GROWING: dict[str, tuple[Callable[[Path, int], None], int, int]] = {
    "layers": (_layers, 12, 1 << 10),
    "layers of other sizes": (_sizes, 12, 1 << 7),
    "a long name": (_names, 1 << 8, 1 << 11),
    "operators": (_operators, 24, 1 << 12),
    "outputs": (_outputs, 24, 1 << 12),
    "nesting": (_nesting, 4, 1 << 5),
}
"""What a model has n times, by words for it: how its files are made in a folder, the smallest n and the largest."""

KINDS_OF: dict[str, tuple[str, ...]] = {
    "fuse": ("operators", "outputs", "nesting"),
    "upgrade": ("layers", "layers of other sizes", "a long name"),
    "export": ("layers", "layers of other sizes", "a long name", "operators", "outputs", "nesting"),
    "scaffold": ("layers", "layers of other sizes", "a long name", "operators", "outputs", "nesting"),
}
"""What grows in the files of a command; of the others, everything that the files of their calls may have."""

FILES = {"operators": "m.onnx", "outputs": "m.onnx", "nesting": "m.onnx"}
"""The file in which it grows, where that is one; each command that reads models is called on it."""

NO_MODEL = ("executors", "executors add", "executors remove", "formats", "layout", "report", "identify")
"""Commands whose files are no models. `identify` is bounded by --seconds, and by the number of arrays that it searches."""


def _words(command: str, kind: str) -> list[str]:
    """Return the call of a command in which its models are those that grow."""
    values = {name: [*texts] for name, texts in every_command.CALLS[command].items()}
    if kind in FILES and command != "fuse":
        for name in ("sources", "paths", "a", "b", "model", "path", "source"):
            if name in values:
                values[name] = [FILES[kind], *values[name][1:]]
        if command in ("transplant", "map"):
            values["target"] = [FILES[kind]]
        if command == "transplant":
            values["output"] = ["filled.onnx"]
    return every_command.called(command, values)


def cases() -> Iterator[Case]:
    """Yield each command with each thing that its model may have n times."""
    for command in every_command.CALLS:
        for kind in () if command in NO_MODEL else KINDS_OF.get(command, tuple(GROWING)):
            make, first, last = GROWING[kind]
            yield Case(f"{command}: {kind}", _called(command, kind, make), first, last)


def _called(command: str, kind: str, make: Callable[[Path, int], None]) -> Prepare:
    def prepare(folder: Path, n: int) -> Work:
        before = Path.cwd()
        os.chdir(folder)
        try:
            every_command.prepare_models(folder)
            make(folder, n)
        finally:
            os.chdir(before)
        words = _words(command, kind)

        def work() -> None:
            os.chdir(folder)
            try:
                with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
                    program(words)
            except SystemExit as end:
                if end.code not in (0, 1, 2, 3, 4):
                    raise AssertionError(f"{words} ended with {end.code}") from None
            finally:
                os.chdir(before)

        return work

    return prepare


def table(measured: Sequence[tuple[str, Growth]]) -> str:
    """Return the largest exponent of each command as a table of Markdown, and what grew."""
    worst: dict[str, tuple[float, str, int]] = {}
    for name, growth in measured:
        command, _, kind = name.partition(": ")
        worst[command] = max(worst.get(command, (0.0, kind, growth.n)), (growth.lines, kind, growth.n))
    rows = [f"| {command} | {exponent:.2f} | {kind} (n={n}) |" for command, (exponent, kind, n) in worst.items()]
    return "\n".join(["| command | largest exponent | of |", "|---|---|---|", *rows])


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m fuzz.commands", description=__doc__)
    parser.add_argument("--target", type=float, default=0, help="seconds that the largest n takes; 0 counts lines alone")
    parser.add_argument("--only", nargs="*", default=(), help="parts of the names of cases")
    parser.add_argument("--page", action="store_true", help=f"write the table into fuzz/{PAGE.name}")
    arguments = parser.parse_args(words)
    apart.is_possible = lambda: False  # HDF5 is read in this process, whose work is measured
    measured: list[tuple[str, Growth]] = []
    for case in cases():
        if all(word in case.name for word in arguments.only):
            growth = doubling.measure(case, arguments.target)
            if growth is not None:
                measured.append((case.name, growth))
                print(f"{'QUADRATIC ' if growth.quadratic else ''}{case.name}: {growth}", flush=True)
    if arguments.page:
        before, _, rest = PAGE.read_text("utf-8").partition(MARKS[0])
        PAGE.write_text(f"{before}{MARKS[0]}\n\n{table(measured)}\n\n{MARKS[1]}{rest.partition(MARKS[1])[2]}", "utf-8")
    return int(any(growth.quadratic for _, growth in measured))


if __name__ == "__main__":
    sys.exit(main())
