"""Random stacks over every feature of the canonical form, through every format: refused, or the same function."""

from __future__ import annotations

import functools
import itertools
import json
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rnnconvert.core import reference
from rnnconvert.core.arrays import Array
from rnnconvert.core.errors import RefusedError, UsageError
from rnnconvert.core.weights import Direction, Layer, Recurrent
from rnnconvert.files import convert as api
from rnnconvert.files import detect
from rnnconvert.files.checkpoint import Checkpoint
from rnnconvert.files.load import load
from rnnconvert.files.options import Options
from rnnconvert.files.summary import Summary
from rnnconvert.language.layout import Sizes
from rnnconvert.rewrites import each
from rnnconvert.rewrites.fit_to_layout import ACCEPTS, fit_to_layout
from tests import environments
from tests.helpers import native_files
from tests.helpers.drawn import looped
from tests.helpers.requirements import need
from tests.helpers.stacks import Draw, Variety, random_stack

SEEDS = range(300)
STEPS, BATCH = 4, 2
TARGETS = {"pytorch": "out.pt", "keras": "out.keras", "onnx": "out.onnx", "cudnn": "out.bin"}
NEEDS = {"pytorch": "torch", "keras": "keras", "onnx": "onnxruntime", "cudnn": "mxnet"}

# A rewrite rounds the weights, and every framework sums in its own order; a wrong number is thousands of times this.
TOLERANCE = 2e-5


@functools.cache
def drawn(seed: int) -> tuple[Recurrent, dict[str, str]]:
    """A stack and what its caller takes over."""
    draw = Draw(seed)
    return draw.stack(Variety()), {name: value for name, (value, _) in ACCEPTS.items() if draw.often(0.6)}


def inputs(stack: Recurrent) -> Array:
    return np.random.default_rng(5).uniform(-1, 1, (STEPS, BATCH, stack.input_size)).astype(np.float32)


def save(stack: Recurrent, path: Path, target: str, **options: Any) -> Summary | None:
    """What was written, or None where it is refused and nothing was; options that decide nothing are left out."""
    try:
        part = fit_to_layout(stack, detect.target(path, target).layouts(Options()), options)
        options = {name: value for name, value in options.items() if name in {step.rewrite for step in part.steps}}
        return api.save(Checkpoint("(in memory)", "canonical", {stack.name: stack}), path, target, **options)
    except (RefusedError, UsageError):
        assert not path.exists()
        return None


def promised(stack: Recurrent, summary: Summary, x: Array) -> Array:
    """What the file has to give, with what the caller took over left out of the stack."""
    left = {step.rewrite for step in summary.steps if "left to the caller" in step.detail}
    states = [step.detail.split()[0] for step in summary.steps if "left to the caller" in step.detail]
    if "merge" in left:
        last = stack.layers[-1]
        stack = stack.replace(layers=(*stack.layers[:-1], Layer(last.directions, "concat")))
    for part in ("initial_hidden", "initial_cell"):
        if part in states:
            stack = each(stack, lambda d, part=part: d.with_arrays({(part, ""): None}) if (part, "") in d.arrays else d)  # type: ignore[misc]
    flipped = {"reverse", "output_order"} & left
    y = reference.run(stack, x[::-1] if flipped else x).y
    return y[::-1] if "reverse" in left else y


def native(summary: Summary, x: Array) -> Array | None:
    """The framework's own outputs; None where no executor here runs such a file."""
    if summary.target_format == "onnx":
        return onnx_outputs(summary, x)
    if summary.target_format == "keras":
        return keras_outputs(summary, x)
    if summary.target_format == "cudnn" and not cudnn_runs(summary):
        return None
    return native_files.run(summary, x)


def cudnn_runs(summary: Summary) -> bool:
    entry = json.loads(Path(summary.target + ".json").read_text())["layers"][0]
    return bool(entry["bias_mode"] == "double" and entry["input_mode"] == "linear" and "clip" not in entry)


def onnx_outputs(summary: Summary, x: Array) -> Array:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(summary.target, options, providers=["CPUExecutionProvider"])
    wanted = [value.name for value in session.get_outputs() if value.name.startswith("y")]
    feeds = {"x": x}
    for value in session.get_inputs():
        if value.name.startswith("initial"):  # left to the caller, and zero in what is promised
            feeds[value.name] = np.zeros((value.shape[0], x.shape[1], value.shape[2]), np.float32)
    return np.concatenate(session.run(wanted, feeds), axis=-1)


def keras_outputs(summary: Summary, x: Array) -> Array:
    import keras

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of its own future
        model = keras.models.load_model(summary.target, compile=False)
        outputs = model(np.ascontiguousarray(x.swapaxes(0, 1)))
    outputs = outputs if isinstance(outputs, (list, tuple)) else [outputs]
    return np.concatenate([np.asarray(keras.ops.convert_to_numpy(y)) for y in outputs], axis=-1).swapaxes(0, 1)


def off(outputs: Array, expected: Array) -> float:
    """The largest error, relative to the largest value."""
    assert outputs.shape == expected.shape
    assert np.isfinite(outputs).all()
    return float(np.abs(outputs - expected).max() / max(1.0, np.abs(expected).max()))


def singly(stacks: list[Recurrent]) -> Iterator[Recurrent]:
    """Every direction as a stack of its own."""
    for stack in stacks:
        for _, _, direction in stack.directions():
            yield Recurrent("one", (Layer((direction,)),))


def problem(stack: Recurrent, options: Mapping[str, str], target: str, folder: Path) -> str | None:
    """What is wrong with a conversion, in words, or "" if it is right; None if it was refused."""
    summary = save(stack, folder / TARGETS[target], target, **options)
    if summary is None:
        return None
    x = inputs(stack)
    expected = promised(stack, summary, x)
    outputs = native(summary, x)
    if outputs is not None and off(outputs, expected) > TOLERANCE:
        return f"off by {off(outputs, expected):.3g}"
    written = fit_to_layout(stack, detect.target(Path(summary.target), target).layouts(Options()), options).stack
    settings: dict[str, Any] = {"nonlinearity": written.cell.activation.name} if written.cell.kind == "rnn" and target == "pytorch" else {}
    back = list(load(summary.target, target, **settings).layers.values())
    for single, again in zip(singly([written]), singly(back), strict=True):
        x = inputs(single)
        if off(reference.run(again, x).y, reference.run(single, x).y) > TOLERANCE:
            return f"read back as {again.describe()}, written from {single.describe()}"
    return ""


@pytest.fixture(params=TARGETS)
def target(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    need(NEEDS[name], environments.missing("mxnet") if name == "cudnn" else "")
    return name


@looped(40, seed=SEEDS)
def test_a_random_stack_is_refused_or_gives_the_same(target: str, seed: int, tmp_path: Path) -> None:
    assert not problem(*drawn(seed), target, tmp_path)


def test_enough_of_them_are_not_refused(target: str, tmp_path: Path) -> None:
    written = [save(stack, tmp_path / f"{seed}.{TARGETS[target]}", target, **options)
               for seed in SEEDS for stack, options in [drawn(seed)]]  # fmt: skip
    assert sum(summary is not None for summary in written) > len(SEEDS) / 12


def test_one_wrong_gate_is_found(target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stack = random_stack(Sizes("lstm", 3, 4), 1, np.float32)
    assert problem(stack, {}, target, tmp_path) == ""

    def exchanged(direction: Direction) -> Direction:
        i, f = (direction.arrays["recurrent", gate] for gate in "if")
        return direction.with_arrays({("recurrent", "i"): f, ("recurrent", "f"): i})

    expected = promised
    monkeypatch.setattr("tests.formats.test_differential.promised", lambda layer, *rest: expected(each(layer, exchanged), *rest))
    (tmp_path / "again").mkdir()
    assert str(problem(stack, {}, target, tmp_path / "again")).startswith("off by")


CHAINS = list(itertools.permutations(TARGETS, 3))


@pytest.mark.parametrize("kind", ["rnn", "gru", "lstm"])
@pytest.mark.parametrize("ways", [1, 2])
@looped(6, chain=CHAINS)
def test_a_chain_of_formats_ends_where_it_began(chain: tuple[str, ...], kind: str, ways: int, tmp_path: Path) -> None:
    """One layer, through three formats and back into the first."""
    stack = random_stack(Sizes(kind, 3, 4, 1, ways), 3, np.float32)
    checkpoint = Checkpoint("(in memory)", "canonical", {stack.name: stack})
    for step, format in enumerate((*chain, chain[0])):
        path = tmp_path / f"{step}.{TARGETS[format]}"
        api.save(checkpoint, path, format)
        checkpoint = load(path, format)
    (again,) = checkpoint.layers.values()
    x = inputs(stack)
    assert off(reference.run(again, x).y, reference.run(stack, x).y) <= TOLERANCE
