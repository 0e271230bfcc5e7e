"""Two LSTMs of TensorFlow 1's dynamic_rnn with operations drawn between them, frozen and run in its own Python.

See tests.helpers.chains.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tests.helpers import ready
from tests.helpers.chains import Case, Room, fed, recorded
from tests.helpers.frameworks import tensorflow1

_SCRIPT = """
import json, sys, numpy as np, tensorflow as tf
from tensorflow.python.framework import graph_util
folder, units, width = sys.argv[1], 4, 3
inputs = np.load(folder + "/inputs.npz")

def layer(value, name, two):
    cell = lambda: tf.nn.rnn_cell.LSTMCell(units, forget_bias=0.5)
    with tf.variable_scope(name):
        if two:
            return tf.concat(tf.nn.bidirectional_dynamic_rnn(cell(), cell(), value, dtype=tf.float32, time_major=True)[0], 2)
        return tf.nn.dynamic_rnn(cell(), value, dtype=tf.float32, time_major=True)[0]

def step(x, word, *given):
    types = {"half": tf.float16, "double": tf.float64, "int": tf.int32}
    if word in types:
        return tf.cast(tf.cast(x, types[word]), tf.float32)
    if word == "joined":
        pieces = tf.split(x, given[1], given[0])
        return tf.concat([pieces[n] for n in given[2]], given[0])
    return {
        "transpose": lambda: tf.transpose(x, given[0]), "reshape": lambda: tf.reshape(x, given[0]),
        "unsqueeze": lambda: tf.expand_dims(x, given[0]), "squeeze": lambda: tf.squeeze(x, [given[0]]),
        "gather": lambda: tf.gather(x, given[1], axis=given[0]), "reverse": lambda: tf.reverse(x, [given[0]]),
        "relu": lambda: tf.nn.relu(x), "add": lambda: x + given[0], "identity": lambda: tf.identity(x),
        "dropout": lambda: tf.stop_gradient(x),
    }[word]()

for number, case in enumerate(json.load(open(folder + "/cases.json"))):
    with tf.Graph().as_default() as graph:
        tf.set_random_seed(number)
        lengths = [4, 4] if case["fixed"] else [None, None]
        x = tf.placeholder(tf.float32, lengths + [width], name="x")
        value = layer(x, case["names"][0], case["two"])
        for one in case["chain"]:
            value = step(value, *one)
        value.set_shape([None, None, units * (1 + case["two"])])
        y = tf.identity(layer(value, case["names"][1], False), "y")
        with tf.Session(graph=graph) as session:
            session.run(tf.global_variables_initializer())
            frozen = graph_util.convert_variables_to_constants(session, graph.as_graph_def(), ["y"])
            open("{}/{}/m.pb".format(folder, number), "wb").write(frozen.SerializeToString())
            for size in inputs.files:
                try:
                    np.save("{}/{}/{}.npy".format(folder, number, size), session.run(y, {x: inputs[size]}))
                except (ValueError, tf.errors.InvalidArgumentError) as error:  # lengths that the operations do not take
                    open("{}/{}/{}.txt".format(folder, number, size), "w").write(str(error))
"""


def prepare(folder: Path, cases: Sequence[Case]) -> None:
    """Have TensorFlow freeze all cases, and run them."""
    described = [{"chain": case.chain, "names": case.names, "two": case.two, "fixed": case.fixed} for case in cases]
    (folder / "cases.json").write_text(json.dumps(described))
    inputs: Any = {f"{time}x{batch}": fed(time, batch) for case in cases for time, batch in ROOM.sizes(case)}
    np.savez(folder / "inputs.npz", **inputs)
    # TensorFlow 2, once imported, would have TensorFlow 1 write its loops as functions.
    environment = {name: value for name, value in os.environ.items() if name != "TF2_BEHAVIOR"}
    done = ready.run([tensorflow1().python, "-c", _SCRIPT, folder], ready="tensorflow", env=environment)
    assert done.returncode == 0, done.stderr[-2000:]


def write(folder: Path, case: Case, seed: int) -> Path:
    """The frozen graph."""
    return folder / "m.pb"


ROOM = Room(
    ("transpose", "reshape", "unsqueeze", "squeeze", "gather", "reverse", "joined", "half", "double", "int", "relu", "add", "identity",
     "dropout"),
    lambda y: y.reshape(*y.shape[:2], -1), lambda x: x,
    ([()], [(), (("joined", 2, 2, (1, 0)),), (("joined", 2, 2, (0, 0)),)]),
    write, recorded, ("low", "high", "a.b", "rnn_1"), by_name=True, prepare=prepare,
)  # fmt: skip
