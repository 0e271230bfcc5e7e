"""Two LSTMs of OpenVINO with operators drawn between them: see tests.helpers.chains."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from rnnconvert.core.arrays import Array
from tests.helpers.chains import BATCH, TIME, UNITS, WIDTH, Case, Room, weights
from tests.helpers.requirements import needed


def write(folder: Path, case: Case, seed: int) -> Path:
    """A model of two LSTMs, by OpenVINO's own operations and its own writer."""
    ov = needed("openvino", "openvino")
    from openvino import opset13 as op

    lengths = [BATCH, TIME] if case.fixed else [-1, -1]
    x = op.parameter([*lengths, WIDTH], np.float32, name="x")
    shape = op.shape_of(x)

    def lstm(below: Any, width: int, two: bool, name: str, seed: int) -> Any:
        ways = 1 + two
        w, r, b = weights(seed, (ways, 4 * UNITS, width), (ways, 4 * UNITS, UNITS), (ways, 4 * UNITS))
        batch = op.gather(shape, op.constant([0]), op.constant(0))
        state = op.broadcast(op.constant(np.float32(0)), op.concat([batch, op.constant([ways, UNITS])], 0))
        steps = op.broadcast(op.gather(shape, op.constant([1]), op.constant(0)), batch)
        node = op.lstm_sequence(below, state, state, steps, w, r, b, UNITS, "bidirectional" if two else "forward")
        node.set_friendly_name(name)
        return node

    low = lstm(x, WIDTH, case.two, case.names[0], seed)
    value = low.output(0)
    for step in case.chain:
        value = _step(op, value, *step)
    high = lstm(value, UNITS * (1 + case.two), False, case.names[1], seed + 1)
    y = op.squeeze(high.output(0), op.constant([1]))
    path = folder / "m.xml"
    ov.save_model(ov.Model([y], [x]), path, compress_to_fp16=False)
    return path


def _step(op: Any, value: Any, word: str, *args: Any) -> Any:
    builders = {
        "transpose": lambda: op.transpose(value, op.constant(list(args[0]))),
        "reshape": lambda: op.reshape(value, op.constant(list(args[0])), True),
        "unsqueeze": lambda: op.unsqueeze(value, op.constant([args[0]])),
        "squeeze": lambda: op.squeeze(value, op.constant([args[0]])),
        "gather": lambda: op.gather(value, op.constant(list(args[1])), op.constant(args[0])),
        "reverse": lambda: op.slice(value, op.constant([-1]), op.constant([-(2**31)]), op.constant([-1]), op.constant([args[0]])),
        "joined": lambda: op.concat([op.split(value, op.constant(args[0]), args[1]).output(place) for place in args[2]], args[0]),
        "half": lambda: op.convert(op.convert(value, "f16"), "f32"),
        "double": lambda: op.convert(op.convert(value, "f64"), "f32"),
        "int": lambda: op.convert(op.convert(value, "i32"), "f32"),
        "relu": lambda: op.relu(value),
        "add": lambda: op.add(value, op.constant(np.float32(args[0]))),
    }
    return builders[word]()


def run(path: Path, case: Case, x: Array) -> Array:
    """What the whole model gives."""
    import openvino

    model = openvino.Core().read_model(path)
    ran = openvino.Core().compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": 1})
    return np.asarray(ran(np.ascontiguousarray(x.swapaxes(0, 1)))[0]).swapaxes(0, 1)


ROOM = Room(
    ("transpose", "reshape", "unsqueeze", "squeeze", "gather", "reverse", "joined", "half", "double", "int", "relu", "add"),
    lambda y: y.transpose(1, 2, 0, 3), lambda x: x.swapaxes(0, 1),
    (
        [(("squeeze", 1),), (("transpose", (0, 2, 1, 3)), ("reshape", (0, 0, UNITS)))],
        [
            (("transpose", (0, 2, 1, 3)), ("reshape", (0, 0, 2 * UNITS))),
            (("reshape", (0, TIME, 2 * UNITS)),),
            (("transpose", (0, 2, 3, 1)), ("reshape", (0, 0, 2 * UNITS))),
            (("gather", 1, (1, 0)), ("transpose", (0, 2, 1, 3)), ("reshape", (0, 0, 2 * UNITS))),
            (("gather", 1, (0, 0)), ("transpose", (0, 2, 1, 3)), ("reshape", (0, 0, 2 * UNITS))),
            (("joined", 1, 2, (0, 1)), ("transpose", (0, 2, 1, 3)), ("reshape", (0, 0, 2 * UNITS))),
        ],
    ),
    write, run,
)  # fmt: skip
