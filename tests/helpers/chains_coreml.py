"""Two LSTMs of a Core ML program with operators drawn between them: see tests.helpers.chains.

Predictions run on Apple's systems alone: what the whole model gives is what its operators give in numpy, between its layers in the
reference.
"""

from __future__ import annotations

import gc
import warnings
from pathlib import Path
from typing import Any

import numpy as np

import rnnconvert as rc
from rnnconvert.core import reference
from rnnconvert.core.arrays import Array
from tests.helpers.chains import BATCH, TIME, UNITS, WIDTH, Case, Room, apply, weights
from tests.helpers.coreml_tools import tools


def write(folder: Path, case: Case, seed: int) -> Path:
    """A program of two lstm operations, by coremltools' builder and its own writer."""
    ct = tools()
    from coremltools.converters.mil.mil import Builder as mb

    def lstm(below: Any, width: int, two: bool, name: str, seed: int) -> Any:
        ways = 1 + two
        arrays = weights(seed, *((4 * UNITS, width), (4 * UNITS, UNITS), (4 * UNITS,)) * ways)
        keys = [f"{local}{way}" for way in ("", "_back")[:ways] for local in ("weight_ih", "weight_hh", "bias")]
        zero = np.zeros((BATCH, ways * UNITS), np.float32)
        settings = {"direction": "bidirectional" if two else "forward", "output_sequence": True, "name": name}
        return mb.lstm(x=below, initial_h=zero, initial_c=zero, **dict(zip(keys, arrays, strict=True)), **settings)[0]

    @mb.program(input_specs=[mb.TensorSpec(shape=(TIME, BATCH, WIDTH))], opset_version=ct.target.iOS15)
    def program(x: Any) -> Any:
        value = lstm(x, WIDTH, case.two, case.names[0], seed)
        for step in case.chain:
            value = _step(mb, value, *step)
        return lstm(value, UNITS * (1 + case.two), False, case.names[1], seed + 1)

    path = folder / "m.mlpackage"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # coremltools leaves its temporary folders to the collector
        _convert(ct, program, path)
        gc.collect()
    return path


def _convert(ct: Any, program: Any, path: Path) -> None:
    model = ct.convert(
        program, convert_to="mlprogram", minimum_deployment_target=ct.target.iOS15, skip_model_load=True,
        compute_precision=ct.precision.FLOAT32, pass_pipeline=ct.PassPipeline.EMPTY,
    )  # fmt: skip
    model.save(str(path))


def _step(mb: Any, value: Any, word: str, *arguments: Any) -> Any:
    builders = {
        "transpose": lambda: mb.transpose(x=value, perm=list(arguments[0])),
        "reshape": lambda: mb.reshape(x=value, shape=list(arguments[0])),
        "unsqueeze": lambda: mb.expand_dims(x=value, axes=[arguments[0]]),
        "squeeze": lambda: mb.squeeze(x=value, axes=[arguments[0]]),
        "gather": lambda: mb.gather(x=value, indices=list(arguments[1]), axis=arguments[0]),
        "reverse": lambda: mb.reverse(x=value, axes=[arguments[0]]),
        "joined": lambda: _joined(mb, value, *arguments),
        "half": lambda: mb.cast(x=mb.cast(x=value, dtype="fp16"), dtype="fp32"),
        "int": lambda: mb.cast(x=mb.cast(x=value, dtype="int32"), dtype="fp32"),
        "relu": lambda: mb.relu(x=value),
        "add": lambda: mb.add(x=value, y=np.float32(arguments[0])),
        "identity": lambda: mb.identity(x=value),
        "slice": lambda: _sliced(mb, value, *arguments),
    }
    return builders[word]()


def _joined(mb: Any, value: Any, axis: int, parts: int, order: tuple[int, ...]) -> Any:
    pieces = mb.split(x=value, num_splits=parts, axis=axis) if parts > 1 else [value]
    return mb.concat(values=[pieces[place] for place in order], axis=axis)


def _sliced(mb: Any, value: Any, axis: int, start: int | None, end: int | None, step: int) -> Any:
    open_ends = [True] * 3
    begin, ends, steps = [0] * 3, [0] * 3, [1] * 3
    begin[axis], ends[axis], steps[axis] = start or 0, end or 0, step
    masks = [[*open_ends], [*open_ends]]
    masks[0][axis], masks[1][axis] = start is None, end is None
    return mb.slice_by_index(x=value, begin=begin, end=ends, stride=steps, begin_mask=masks[0], end_mask=masks[1], squeeze_mask=[False] * 3)


def run(path: Path, case: Case, x: Array) -> Array:
    """What the layers give with the operators between them."""
    low, high = rc.load(path).layers.values()
    y = apply(case.chain, reference.run(low, x).y.astype(np.float32))
    return np.asarray(reference.run(high, y).y)


_SLICES = [(("slice", 2, None, None, 1),), (("slice", 0, None, None, -1),), (("slice", 2, 4, None, 1), ("joined", 2, 1, (0, 0)))]
ROOM = Room(
    ("transpose", "reshape", "unsqueeze", "squeeze", "gather", "reverse", "joined", "half", "int", "relu", "add", "identity"),
    lambda y: y.reshape(*y.shape[:2], -1), lambda x: x, ([(), *_SLICES[:2]], [(), *_SLICES, (("joined", 2, 2, (1, 0)),)]),
    write, run, ("low", "high", "a_b", "lstm_1"), (True,),
)  # fmt: skip
