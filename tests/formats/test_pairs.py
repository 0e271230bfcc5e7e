"""The whole table of docs/pairs.md, walked: converted, compared with the reference, and run where systems can be run."""

from __future__ import annotations

import functools
import hashlib
import itertools
import shutil
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rnnconvert as rc
from docs.system_pairs import CELLS, INPUTS, UNITS, Asked, SystemPair, held, layout_of, pairs, stack_of
from rnnconvert.core import reference
from rnnconvert.core.arrays import Array
from rnnconvert.core.errors import RefusedError
from rnnconvert.core.reference import Outputs
from rnnconvert.core.weights import BIAS_PARTS, Recurrent
from rnnconvert.files.adapter import adapters
from rnnconvert.files.checkpoint import Checkpoint
from rnnconvert.files.options import Options
from rnnconvert.language.layout import Sizes
from rnnconvert.rewrites.fit_to_layout import fit_to_layout
from rnnconvert.running.parent import Process
from rnnconvert.verification.ready import how_of
from tests.helpers.drawn import drawn
from tests.helpers.frameworks import JUDGES, judge
from tests.helpers.judging import WRONG, Problem, excess
from tests.helpers.stacks import random_stack
from tests.helpers.workers import running

TABLE = list(pairs())
SAME_SYSTEM = {(pair.source, pair.asked) for pair in TABLE if pair.source == pair.target and pair.verdict == "exact"}
"""The layers that systems write and read themselves."""
X = np.random.default_rng(1).uniform(-1, 1, (6, 2, INPUTS)).astype(np.float32)
SOURCES = sorted({pair.source for pair in TABLE})


def said_of(system: str, asked: Asked) -> dict[str, Any]:
    """What a reader of a file has to be told where the file does not say it."""
    kind, function = asked.cell.kind, asked.cell.activation.name
    sizes = {"cell": f"rnn_{function}" if kind == "rnn" else kind, "hidden_size": UNITS}
    return {**({"nonlinearity": function} if kind == "rnn" else {}), **(sizes if system == "persistent_rnn" else {})}


def loaded(path: Path, system: str, asked: Asked) -> rc.Checkpoint:
    """A file, with what its reader asks of a function told."""
    options = said_of(system, asked)
    function = options.pop("nonlinearity", None)
    asking = {question.option for question in rc.load(path, system, **options).questions}
    functions: dict[str, Any] = {"nonlinearity": function} if function and asking & {"nonlinearity", "activation"} else {}
    if "reset_after" in asking:
        functions["reset_after"] = bool(asked.cell.reset_after)
    return rc.load(path, system, **options, **functions)


def _layout(system: str, asked: Asked) -> Any:
    layout = layout_of(system, asked)
    assert layout is not None
    return layout


def named(pair: SystemPair) -> str:
    return f"{pair.asked.name} of {pair.source} in {pair.target}"


@functools.cache
def truth(source: str, asked: Asked) -> Problem:
    return Problem(stack_of(_layout(source, asked), asked), X)


def off(source: str, asked: Asked, y: Array) -> float:
    """How far outputs are from what the source computes, in units of what rounding explains."""
    problem = truth(source, asked)
    assert y.shape == problem.solved().y.shape
    return excess(Problem(problem.stack, X), Outputs(y, *_states(problem)))


def _states(problem: Problem) -> tuple[tuple[Array, ...], tuple[Array, ...]]:
    solved = problem.solved()
    return solved.hidden, solved.cell


def in_memory(source: str, asked: Asked) -> Checkpoint:
    """A layer of a system, as its reader would give it."""
    return Checkpoint(f"a layer of {source}", source, {"": truth(source, asked).stack})


def file_of(source: str, asked: Asked, folder: Path) -> Path:
    """A file of a system itself with such a layer; of a layout that is read only there is none."""
    path = folder / f"{source}{adapters()[source].SUFFIXES[0]}"
    rc.save(in_memory(source, asked), path, source, force=True)
    return path


@pytest.mark.parametrize("source", SOURCES)
def test_every_pair_is_what_the_table_says(source: str, tmp_path: Path) -> None:
    checkpoints: dict[Asked, Checkpoint] = {}
    every = [pair for pair in TABLE if pair.source == source]
    for pair in drawn(every, len(every) // 12, source):
        if pair.asked not in checkpoints:
            checkpoints[pair.asked] = written(source, pair.asked, tmp_path / str(len(checkpoints)))
        checkpoint = checkpoints[pair.asked]
        target = tmp_path / f"to-{pair.target}{adapters()[pair.target].SUFFIXES[0]}"
        if pair.verdict == "refused":
            with pytest.raises(RefusedError) as refused:
                rc.save(checkpoint, target, pair.target, force=True)
            assert refused.value.feature == pair.feature, named(pair)
            assert not target.exists(), named(pair)
            continue
        summary = rc.save(checkpoint, target, pair.target, force=True)
        assert summary.exact == (pair.verdict == "exact"), named(pair)
        read = loaded(target, pair.target, pair.asked)
        y = reference.run(only(read), X).y
        # A projection that was folded leaves a matrix behind the layer: what runs the whole file sees it, below.
        for matrix in held(source, pair.target, pair.asked).stack.readout:
            y = y @ np.asarray(matrix).T
        assert off(source, pair.asked, y) <= 1, named(pair)
        removed(target)


def written(source: str, asked: Asked, folder: Path) -> Checkpoint:
    """A layer of a system out of its own file, where it writes such a layer."""
    if (source, asked) not in SAME_SYSTEM:
        return in_memory(source, asked)
    folder.mkdir()
    checkpoint = loaded(file_of(source, asked, folder), source, asked)
    assert off(source, asked, reference.run(only(checkpoint), X).y) <= 1, f"{asked.name} of {source}: the file itself"
    return checkpoint


def removed(path: Path) -> None:
    """Remove a file, or a folder that is one model."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def only(checkpoint: Checkpoint) -> Any:
    (stack,) = checkpoint.layers.values()
    return stack


@pytest.mark.parametrize("target", JUDGES)
def test_what_is_written_runs_in_its_own_system(target: str, tmp_path: Path) -> None:
    executor = judge(target)
    ran: dict[str, Array] = {}
    with running(executor) as worker:
        pairs = [pair for pair in TABLE if pair.target == target and pair.verdict != "refused"]
        for pair in drawn(pairs, 5, target):
            path = tmp_path / f"model{executor.suffix}"
            rc.save(in_memory(pair.source, pair.asked), path, target, force=True)
            y = run(worker, path, pair, ran)
            assert off(pair.source, pair.asked, y) <= 1, named(pair)
        (tmp_path / "deep").mkdir()
        for path, _, stack in deep_files(target, executor.suffix, tmp_path / "deep", 2):
            how = how_of(fit_to_layout(stack, adapters()[target].layouts(Options())))
            asked = {"hidden": None, "cell": None, "lengths": None, "cotangents": None}
            assert right(stack, np.asarray(worker.ask(file=str(path), layers=[], how=how, x=X, **asked)["y"])), stack
    assert ran


def run(worker: Process, path: Path, pair: SystemPair, ran: dict[str, Array]) -> Array:
    """Outputs of a file's only layer; the same file is run once."""
    key = hashlib.sha256(b"".join(file.read_bytes() for file in sorted(path.parent.iterdir()))).hexdigest() + pair.asked.name
    if key not in ran:
        how = how_of(held(pair.source, pair.target, pair.asked))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            answer = worker.ask(file=str(path), layers=[], how=how, x=X, hidden=None, cell=None, lengths=None, cotangents=None)
        ran[key] = np.asarray(answer["y"])
    return ran[key]


def test_a_wrong_layer_would_be_seen() -> None:
    """The judgement of this file tells every two cells of one shape apart."""
    for asked in CELLS:
        for source in SOURCES:
            if layout_of(source, asked) is None:
                continue
            stack = truth(source, asked).stack
            for gate, other in zip(stack.cell.gates, stack.cell.gates[1:], strict=False):
                direction = stack.first
                swapped = {
                    ("recurrent", gate): direction.arrays["recurrent", other],
                    ("recurrent", other): direction.arrays["recurrent", gate],
                }
                layer = type(stack.layers[0])((direction.with_arrays(swapped),))
                assert off(source, asked, reference.run(stack.replace(layers=(layer,)), X).y) > WRONG, (source, asked.name)


DEEP = ((2, 2), (3, 1), (1, 2))
"""Numbers of layers and directions."""


def deep(asked: Asked, layers: int, directions: int, biases: frozenset[str]) -> Recurrent:
    """A stack of several layers or directions, as no system in particular has it."""
    form = Sizes(asked.cell.kind, INPUTS, UNITS, layers, directions, 0, frozenset({"input", "recurrent"}) | biases)
    return random_stack(form, 11, np.float32, asked.cell)


def deep_files(target: str, suffix: str, folder: Path, count: int = 6) -> Iterator[tuple[Path, Asked, Recurrent]]:
    """Files of a system with deep stacks, of that many as are drawn and it does not refuse."""
    path = folder / f"deep{suffix}"
    plain = [asked for asked in CELLS if not asked.extra]
    every = itertools.product(DEEP, plain, (BIAS_PARTS, ("input_bias",)))
    for (layers, directions), asked, biases in drawn(every, count, target):
        stack = deep(asked, layers, directions, frozenset(biases))
        removed(path)
        try:
            rc.save(Checkpoint("memory", "", {"": stack}), path, target, force=True)
        except RefusedError:
            continue
        yield path, asked, stack


def right(stack: Recurrent, y: Array) -> bool:
    problem = Problem(stack, X)
    return excess(problem, Outputs(y, *_states(problem))) <= 1


@pytest.mark.parametrize("target", sorted({pair.target for pair in TABLE} - {"persistent_rnn"}))
def test_a_deep_stack_computes_the_same_wherever_it_goes(target: str, tmp_path: Path) -> None:
    for path, asked, stack in deep_files(target, adapters()[target].SUFFIXES[0], tmp_path):
        y: Array = X.astype(np.float64)
        for layer in loaded(path, target, asked).layers.values():
            y = reference.run(layer, y).y
        assert right(stack, y), stack
