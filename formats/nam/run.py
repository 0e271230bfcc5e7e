"""The equations of Neural Amp Modeler's LSTM on its files in numpy, sample by sample.

They are written from the plug-in's sources, and share nothing with what writes files: NeuralAmpModelerCore, NAM/lstm.cpp (LSTMCell and
LSTM; without the fast approximations of tanh and sigmoid). That core is C++ that no registry has as a package: docs/formats/nam.md
says how both were compared.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rnnconvert.running.sequences import Sequences, outputs, stepped

Array = np.ndarray

NEEDS = ("numpy",)
FORMAT = "nam"
SUFFIX = ".nam"
SUPPORTS = "LSTM with its head, one direction; no gradients"
CANNOT = {"cotangents": "these are the equations alone, and no gradients", "how": "the file already states what it computes"}
VARIANTS: dict[str, dict[str, Any]] = {"nam-numpy": {"device": "cpu"}}
WHOLE_FILES = True


class _LstmWithHead:
    """The LSTM of a file, read from its list of numbers one after the other."""

    def __init__(self, file: str) -> None:
        document = json.loads(Path(file).read_text(encoding="utf-8"))
        if document["architecture"] != "LSTM":
            raise NotImplementedError(f"the architecture {document['architecture']}: only LSTM is computed here")
        config = document["config"]
        self.inputs, self.units, self.outputs = int(config["input_size"]), int(config["hidden_size"]), int(config.get("out_channels", 1))
        self.depth = int(config["num_layers"])
        self.numbers = np.array(document["weights"], np.float64).astype(np.float32)
        self._used = 0
        self.cells = [self._cell(self.inputs if number == 0 else self.units) for number in range(self.depth)]
        self.head = self._next(self.outputs, self.units), self._next(self.outputs)

    def _next(self, *shape: int) -> Array:
        count = int(np.prod(shape))
        numbers = self.numbers[self._used : self._used + count]
        self._used += count
        return numbers.reshape(shape)

    def _cell(self, width: int) -> tuple[Array, Array, Array, Array]:
        return self._next(4 * self.units, width + self.units), self._next(4 * self.units), self._next(self.units), self._next(self.units)

    def run(self, x: Array, sequences: Sequences) -> tuple[Array, list[Array], list[Array]]:
        """Return the output of the last layer for (time, batch, values), and the last states of every layer."""
        finals: list[list[Array]] = [[], []]
        for number, (matrix, bias, first_hidden, first_cell) in enumerate(self.cells):
            h, c = (np.tile(first, (x.shape[1], 1)) for first in (first_hidden, first_cell))
            h = h if not sequences.hidden else np.asarray(sequences.hidden[number], x.dtype)
            c = c if not sequences.cell else np.asarray(sequences.cell[number], x.dtype)
            x, h, c = stepped(functools.partial(_step, matrix, bias), x, h, c, sequences.lengths)
            finals[0].append(h)
            finals[1].append(c)
        return x, finals[0], finals[1]


def _step(matrix: Array, bias: Array, x: Array, h: Array, c: Array) -> tuple[Array, Array]:
    i, f, g, o = np.split(np.concatenate([x, h], axis=1) @ matrix.T + bias, 4, axis=1)
    c = _sigmoid(f) * c + _sigmoid(i) * np.tanh(g)
    return _sigmoid(o) * np.tanh(c), c


def _sigmoid(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x)))


def answer(request: Mapping[str, Any]) -> dict[str, Any]:
    """Run the LSTM of a file without its head; see rnnconvert.running."""
    if [name for name in request["layers"] if name != "lstm"]:
        raise NotImplementedError("a .nam file has one recurrent layer, lstm")
    sequences = Sequences.of(request)
    y, hidden, cell = _LstmWithHead(request["file"]).run(np.asarray(sequences.x, np.float32), sequences)
    return outputs(y, hidden, cell)


def witness(request: Mapping[str, Any]) -> None:
    """Run a file whole; each call begins with the states of the file."""
    seen, model = request["witness"], _LstmWithHead(request["file"])
    original = [*model.cells], model.head

    def call(arrays: Sequence[Array]) -> dict[str, Array]:
        x = arrays[0].transpose(1, 0, 2)
        y, hidden, cell = model.run(x, Sequences(x))
        if "lstm" in seen.layers:
            seen.record("lstm", x, y, finals=[hidden, cell])
        weight, bias = model.head
        return {"output": (y @ weight.T + bias).transpose(1, 0, 2)}

    def shake(move: Any) -> None:
        model.cells = [tuple(map(move, cell)) for cell in original[0]]
        model.head = move(original[1][0]), move(original[1][1])

    seen.run(seen.calls([seen.input("input", ["batch", "time", model.inputs])]), call, shake=shake)
