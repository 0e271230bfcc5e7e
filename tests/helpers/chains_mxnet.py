"""Two RNN operators of MXNet with operators drawn between them, written and run in its own Python: see tests.helpers.chains."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tests.helpers import ready
from tests.helpers.chains import NAMES, UNITS, Case, Room, fed, recorded
from tests.helpers.frameworks import mxnet

_SCRIPT = """
import json, os, sys
os.environ["MXNET_SUBGRAPH_BACKEND"] = "NONE"  # which fails on copies alone between two operators
import mxnet as mx, numpy as np
folder, units, width = sys.argv[1], 4, 3
inputs = np.load(f"{folder}/inputs.npz")

def lstm(below, name, two, seed, reads):
    ways = 1 + two
    states = [mx.sym.Variable(f"{name}_state{n}") for n in range(2)]
    size = ways * 4 * units * (reads + units + 2)
    numbers = np.random.RandomState(seed).uniform(-0.8, 0.8, size).astype("float32")
    vector = mx.sym.Variable(f"{name}_parameters")
    return mx.sym.RNN(below, vector, *states, mode="lstm", state_size=units, num_layers=1, bidirectional=two, name=name), numbers

def step(value, constants, word, *given):
    cast = {"half": "float16", "double": "float64", "int": "int32"}
    if word in cast:
        return mx.sym.Cast(mx.sym.Cast(value, dtype=cast[word]), dtype="float32")
    if word == "joined":
        parts = mx.sym.split(value, num_outputs=given[1], axis=given[0])
        return mx.sym.concat(*[parts[n] for n in given[2]], dim=given[0])
    if word == "gather":
        name = f"places{len(constants)}"
        constants[name] = np.array(given[1], "float32")
        return mx.sym.take(value, mx.sym.Variable(name), axis=given[0])
    return {
        "transpose": lambda: mx.sym.transpose(value, axes=tuple(given[0])), "reshape": lambda: mx.sym.reshape(value, shape=tuple(given[0])),
        "unsqueeze": lambda: mx.sym.expand_dims(value, axis=given[0]), "squeeze": lambda: mx.sym.squeeze(value, axis=given[0]),
        "reverse": lambda: mx.sym.reverse(value, axis=given[0]), "relu": lambda: mx.sym.relu(value), "add": lambda: value + given[0],
        "identity": lambda: mx.sym.identity(value), "dropout": lambda: mx.sym.Dropout(value, p=0.5),
    }[word]()

for number, case in enumerate(json.load(open(f"{folder}/cases.json"))):
    constants = {}
    value, low = lstm(mx.sym.Variable("x"), case["names"][0], case["two"], 1, width)
    for one in case["chain"]:
        value = step(value, constants, *one)
    graph, high = lstm(value, case["names"][1], False, 2, units * (1 + case["two"]))
    graph.save(f"{folder}/{number}/m-symbol.json")
    arrays = {f"{name}_parameters": array for name, array in zip(case["names"], (low, high))}
    arrays.update(constants)
    mx.nd.save(f"{folder}/{number}/m-0000.params", {f"arg:{name}": mx.nd.array(array) for name, array in arrays.items()})
    for size, x in inputs.items():
        try:
            shapes = {f"{case['names'][0]}_state{n}": (1 + case["two"], x.shape[1], units) for n in range(2)}
            shapes.update({f"{case['names'][1]}_state{n}": (1, x.shape[1], units) for n in range(2)})
            shapes.update({name: array.shape for name, array in constants.items()})
            bound = graph.simple_bind(mx.cpu(), x=x.shape, grad_req="null", **shapes)
            for name, array in bound.arg_dict.items():
                array[:] = x if name == "x" else arrays.get(name, 0)
            np.save(f"{folder}/{number}/{size}.npy", bound.forward(is_train=False)[0].asnumpy())
        except (RuntimeError, ValueError, mx.MXNetError) as error:  # lengths that the operators do not take
            open(f"{folder}/{number}/{size}.txt", "w").write(str(error))
"""


def prepare(folder: Path, cases: Sequence[Case]) -> None:
    """Have MXNet write all cases, and run them."""
    described = [{"chain": case.chain, "names": case.names, "two": case.two} for case in cases]
    (folder / "cases.json").write_text(json.dumps(described))
    inputs: Any = {f"{time}x{batch}": fed(time, batch) for case in cases for time, batch in ROOM.sizes(case)}
    np.savez(folder / "inputs.npz", **inputs)
    done = ready.run([mxnet().python, "-c", _SCRIPT, folder], ready="mxnet")
    assert done.returncode == 0, done.stderr


def write(folder: Path, case: Case, seed: int) -> Path:
    """The file that MXNet wrote."""
    return folder / "m-0000.params"


# MXNet cannot bind names with brackets, or with letters beyond ASCII.
ROOM = Room(
    ("transpose", "unsqueeze", "squeeze", "gather", "reverse", "joined", "half", "double", "int", "relu", "add", "identity", "dropout"),
    lambda y: y.reshape(*y.shape[:2], -1), lambda x: x,
    ([()], [(), (("joined", 2, 2, (1, 0)),), (("joined", 2, 2, (0, 0)),), (("reshape", (0, 0, -1)),), (("reshape", (0, -1, 2 * UNITS)),)]),
    write, recorded, tuple(name for name in NAMES if name.isascii() and "[" not in name), (False,), prepare=prepare,
)  # fmt: skip
