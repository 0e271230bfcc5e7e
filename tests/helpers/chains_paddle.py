"""Two LSTMs of Paddle with operators drawn between them, saved and run in its own Python: see tests.helpers.chains."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tests import environments
from tests.helpers import ready
from tests.helpers.chains import UNITS, Case, Room, fed, recorded
from tests.helpers.requirements import need

_SCRIPT = """
import json, sys, numpy as np, paddle
folder, units, width = sys.argv[1], 4, 3
inputs = np.load(f"{folder}/inputs.npz")

class Model(paddle.nn.Layer):
    def __init__(self, case):
        super().__init__()
        self.chain = case["chain"]
        self.low = paddle.nn.LSTM(width, units, direction="bidirect" if case["two"] else "forward", time_major=True)
        self.high = paddle.nn.LSTM(units * (1 + case["two"]), units, time_major=True)
        self.dropout = paddle.nn.Dropout(0.5)

    def forward(self, x):
        value = self.low(x)[0]
        for step in self.chain:
            value = getattr(self, "of_" + step[0])(value, *step[1:])
        return self.high(value)[0]

    def of_transpose(self, x, order): return paddle.transpose(x, order)
    def of_reshape(self, x, shape): return paddle.reshape(x, shape)
    def of_unsqueeze(self, x, axis): return paddle.unsqueeze(x, axis)
    def of_squeeze(self, x, axis): return paddle.squeeze(x, axis)
    def of_gather(self, x, axis, places): return paddle.index_select(x, paddle.to_tensor(places, "int64"), axis)
    def of_reverse(self, x, axis): return paddle.flip(x, axis)
    def of_joined(self, x, axis, parts, order):
        pieces = paddle.split(x, parts, axis)
        return paddle.concat([pieces[order[0]], pieces[order[1]]], axis)
    def of_half(self, x): return paddle.cast(paddle.cast(x, "float16"), "float32")
    def of_double(self, x): return paddle.cast(paddle.cast(x, "float64"), "float32")
    def of_int(self, x): return paddle.cast(paddle.cast(x, "int32"), "float32")
    def of_relu(self, x): return paddle.nn.functional.relu(x)
    def of_add(self, x, number): return x + number
    def of_identity(self, x): return paddle.assign(x)
    def of_dropout(self, x): return self.dropout(x)

for number, case in enumerate(json.load(open(f"{folder}/cases.json"))):
    paddle.seed(number)
    model = Model(case)
    model.eval()
    lengths = [4, 4] if case["fixed"] else [None, None]
    paddle.jit.save(model, f"{folder}/{number}/m", [paddle.static.InputSpec([*lengths, width], "float32")])
    for size, x in inputs.items():
        try:
            np.save(f"{folder}/{number}/{size}.npy", model(paddle.to_tensor(x)).numpy())
        except Exception as error:  # lengths that the operators do not take
            open(f"{folder}/{number}/{size}.txt", "w").write(str(error))
"""


def prepare(folder: Path, cases: Sequence[Case]) -> None:
    """Have Paddle save all cases, and run them."""
    described = [{"chain": case.chain, "two": case.two, "fixed": case.fixed} for case in cases]
    (folder / "cases.json").write_text(json.dumps(described))
    inputs: Any = {f"{time}x{batch}": fed(time, batch) for case in cases for time, batch in ROOM.sizes(case)}
    np.savez(folder / "inputs.npz", **inputs)
    need("paddle", environments.missing("paddle"))
    script = folder / "script.py"  # Paddle reads the source of what it traces
    script.write_text(_SCRIPT)
    done = ready.run([environments.place("paddle") / "bin" / "python", script, folder], ready="paddle")
    assert done.returncode == 0, done.stderr[-2000:]


def write(folder: Path, case: Case, seed: int) -> Path:
    """The program that Paddle saved."""
    return next(path for path in folder.iterdir() if path.suffix in (".json", ".pdmodel"))


ROOM = Room(
    ("transpose", "reshape", "unsqueeze", "squeeze", "gather", "reverse", "joined", "half", "double", "int", "relu", "add", "identity",
     "dropout"),
    lambda y: y.reshape(*y.shape[:2], -1), lambda x: x,
    ([()], [(), (("joined", 2, 2, (1, 0)),), (("joined", 2, 2, (0, 0)),), (("reshape", (0, 0, 2 * UNITS)),)]),
    write, recorded, ("low", "high"), prepare=prepare,
)  # fmt: skip
