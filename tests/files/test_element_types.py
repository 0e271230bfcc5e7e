"""A layer whose arrays have several element types is written in one that holds them all, never in a narrower one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import rnnconvert as rc
from rnnconvert import convert, save
from rnnconvert.comparison.difference import differences
from rnnconvert.core import reference
from rnnconvert.core.arrays import FLOATS, widest
from rnnconvert.core.errors import RefusedError, RnnConvertError
from rnnconvert.core.weights import Direction, Recurrent
from rnnconvert.files.adapter import adapter, adapters
from rnnconvert.files.checkpoint import Checkpoint
from rnnconvert.files.load import load
from rnnconvert.files.options import Options
from rnnconvert.language import registry
from rnnconvert.language.layout import Sizes
from rnnconvert.language.packing import pack
from rnnconvert.rewrites import each
from rnnconvert.rewrites.fit_to_layout import fit_to_layout
from tests.helpers.drawn import looped
from tests.helpers.stacks import random_stack

MIXED = [("float16", "float32"), ("float32", "float64"), ("bfloat16", "float32"), ("bfloat16", "float16")]


def mixed(stack: Recurrent, matrices: str, biases: str) -> Recurrent:
    """The stack with matrices of one type and biases of another."""

    def change(d: Direction) -> Direction:
        typed = {True: FLOATS[biases], False: FLOATS[matrices]}
        return d.with_arrays({k: np.asarray(v).astype(typed["bias" in k[0]]) for k, v in d.arrays.items()})

    return each(stack, change)


def out(stack: Recurrent) -> Any:
    x = np.random.default_rng(3).uniform(-2, 2, (6, 3, stack.input_size))
    return reference.run(stack, x).y


@pytest.mark.parametrize(("first", "second"), MIXED)
def test_the_widest_type_holds_both(first: str, second: str) -> None:
    dtype = widest([FLOATS[first], FLOATS[second]])
    for name in (first, second):
        info = ml_dtypes.finfo(FLOATS[name])
        for value in (info.max, info.tiny, info.smallest_subnormal, FLOATS[name].type(1) + FLOATS[name].type(info.eps)):
            assert float(np.asarray(value).astype(dtype)) == float(value)


TARGETS = sorted(name for name, room in adapters().items() if room.layouts(Options()) and room.SUFFIXES)


@looped(40, target=TARGETS, types=[*MIXED, *((b, a) for a, b in MIXED)])
def test_no_target_narrows_a_layer_of_two_types(target: str, types: tuple[str, str], tmp_path: Path) -> None:
    matrices, biases = types
    stack = mixed(random_stack(Sizes("lstm", 3, 4), 1), matrices, biases).replace(name="layer")
    if target in ("flux", "persistent_rnn", "arraymancer", "lux"):
        pytest.skip("other cells, or other biases: the step is made before them, in represent")
    path = tmp_path / f"layer{adapter(target).SUFFIXES[0]}"
    try:
        summary = save(Checkpoint("(made)", "canonical", {"layer": stack}), path, target)
    except RefusedError as error:
        assert "element type" in str(error) or "dtype" in str(error), error
        return
    assert "widen to one element type" in {step.rewrite for step in summary.steps}
    try:
        read = next(iter(load(path, target).layers.values()))
    except RnnConvertError:
        return  # it asks for what its files do not say
    eps = float(ml_dtypes.finfo(widest([FLOATS[matrices], FLOATS[biases]])).eps)
    assert np.abs(out(read) - out(stack)).max() < 20 * eps


@pytest.mark.parametrize(("matrices", "biases"), [("float16", "float32"), ("float32", "float16"), ("float32", "float64")])
@pytest.mark.parametrize("framework", ["chainer", "flax", "equinox"])
def test_a_file_of_two_types_is_read_and_written_without_loss(framework: str, matrices: str, biases: str, tmp_path: Path) -> None:
    stack = random_stack(Sizes("lstm", 3, 4), 1, np.float64)
    part = fit_to_layout(stack, adapter(framework).layouts(Options()))
    arrays = {
        name: np.asarray(array).astype(matrices if array.shape[1:] else biases) for name, array in pack(part.layout, part.stack).items()
    }
    source = tmp_path / "source.npz"
    named: dict[str, Any] = {f"layer/{name}": array for name, array in arrays.items()}
    np.savez(source, **named)
    checkpoint = load(source, framework)
    (read,) = checkpoint.layers.values()
    assert matrices in repr(read) and biases in repr(read)
    target = tmp_path / "out.onnx"
    # Files of Flax leave the functions open, which strict refuses.
    settings = ["activation=tanh", "recurrent_activation=sigmoid"] if framework == "flax" else []
    summary = convert(source, target, source_format=framework, strict=True, settings=settings)
    assert summary.steps[0].rewrite == "widen to one element type" and summary.steps[0].exact
    (written,) = load(target).layers.values()
    assert written.dtype == widest([np.dtype(matrices), np.dtype(biases)])
    assert all(difference.equal for difference in differences(read, written))
    assert np.abs(out(read) - out(written)).max() < 1e-15


def test_a_layer_of_one_type_is_widened_by_nothing() -> None:
    stack = random_stack(Sizes("lstm", 3, 4), 1, np.float16)
    assert fit_to_layout(stack, [registry.layouts()["pytorch.lstm"]]).steps == ()


def test_rounding_a_layer_of_two_types_is_asked_for_and_said(tmp_path: Path) -> None:
    stack = mixed(random_stack(Sizes("lstm", 3, 4), 1), "float16", "float32").replace(name="layer")
    checkpoint = rc.Checkpoint("(made)", "canonical", {"layer": stack})
    with pytest.raises(RefusedError, match="float32 written as float16"):
        rc.save(checkpoint, tmp_path / "out.pt", dtype="float16", strict=True)
    assert not rc.save(checkpoint, tmp_path / "out.pt", dtype="float16").exact
