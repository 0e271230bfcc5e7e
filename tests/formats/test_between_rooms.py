"""What lies between two recurrent layers of a file decides whether they are joined, in every framework whose files state a graph."""

from __future__ import annotations

import importlib
import random
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rnnconvert as rc
from rnnconvert.core.weights import INPUT, Directly
from tests.helpers import drawn
from tests.helpers.chains import UNITS, WIDTH, Case, Chain, Room, weights
from tests.helpers.requirements import needed

ROOMS = {"openvino": 20, "ncnn": 30, "tflite": 20, "mxnet": 20, "coreml": 12, "paddle": 20, "tensorflow1": 5}
"""The frameworks, and how many cases a usual run draws; a long one draws twenty times as many."""


def room_of(name: str) -> Room:
    """How cases are written in a framework, and run there."""
    room: Room = importlib.import_module(f"tests.helpers.chains_{name}").ROOM
    return room


@pytest.mark.parametrize("name", ROOMS)
def test_layers_are_joined_where_nothing_lies_between(name: str, tmp_path: Path) -> None:
    room = room_of(name)
    draw = random.Random(f"{drawn.SEED} {name}")
    cases = [room.draw(draw) for _ in range(ROOMS[name] * (20 if drawn.LONG else 1))]
    room.check_all(cases, tmp_path)


_SEQUENCE: Chain = (("transpose", (0, 2, 1, 3)), ("reshape", (0, 0, 2 * UNITS)))
"""What makes one sequence of OpenVINO's two directions."""
SPECIMENS: list[tuple[str, bool, Chain, str]] = [
    ("openvino", False, (("squeeze", 1), ("gather", 2, (3, 2, 1, 0))), "Gather: the units are reversed"),
    ("openvino", False, (("squeeze", 1), ("gather", 1, (0, 0, 1, 2))), "Gather: some of the values are left out"),
    ("openvino", False, (("squeeze", 1), ("joined", 2, 2, (1, 0))), "the directions, or the halves of the units, are exchanged"),
    ("openvino", True, (("gather", 1, (1, 0)), *_SEQUENCE), "the directions, or the halves of the units, are exchanged"),
    ("openvino", True, (("gather", 1, (0, 0)), *_SEQUENCE), "some of the values stand there more than once"),
    ("openvino", False, (("squeeze", 1), ("half",)), "Convert to float16"),
    ("ncnn", False, (("transpose", (1, 0)),), "Permute"),
    ("tflite", False, (("transpose", (1, 0, 2)),), "TRANSPOSE: time and batch are exchanged"),
    ("mxnet", False, (("transpose", (1, 0, 2)),), "transpose: time and batch are exchanged"),
    ("mxnet", False, (("joined", 2, 2, (1, 0)),), "SliceChannel and Concat: the directions, or the halves"),
    ("coreml", False, (("transpose", (1, 0, 2)),), "transpose: time and batch are exchanged"),
    ("coreml", False, (("slice", 0, None, None, -1),), "slice_by_index: the steps are reversed"),
    ("coreml", False, (("joined", 2, 2, (1, 0)),), "split and concat: the directions, or the halves"),
    ("paddle", False, (("transpose", (1, 0, 2)),), "transpose: time and batch are exchanged"),
]  # fmt: skip
"""Frameworks, whether the first layer has two directions, what lies between the layers, and how it is refused."""


def test_what_lies_between_is_named(tmp_path: Path) -> None:
    """Each of these was joined as if nothing lay between."""

    def check(specimen: tuple[str, bool, Chain, str]) -> None:
        name, two, chain, words = specimen
        room, folder = room_of(name), tmp_path / f"{name} {SPECIMENS.index(specimen)}"
        (folder / "0").mkdir(parents=True)
        case = Case(chain, ("low", "high"), two, room.fixed[0])
        room.prepare(folder, [case])
        path = room.write(folder / "0", case, 7)
        with pytest.raises(rc.RefusedError, match=re.escape(words)):
            rc.convert(path, tmp_path / "out.onnx", stack="join", force=True)

    drawn.each(SPECIMENS, check)


# What layers receive besides their sequences --------------------------------------------------------


def pair(folder: Path, **options: str) -> dict[str, Any]:
    """The layers of an OpenVINO model of two LSTMs, and what each receives.

    states   "handed": the second one begins with what the first one ends with; "inputs": both have inputs of the model
    lengths  "low": those of the first one are an input; "both": those of both
    between  what stands between them: "custom" for an Identity of another set of operations
    """
    ov = needed("openvino", "openvino")
    from openvino import opset13 as op
    from openvino import opset16

    x = op.parameter([2, 5, WIDTH], np.float32, name="x")
    inputs, ends = [x], list[Any]()
    lengths = op.parameter([2], np.int64, name="lengths")
    value = x.output(0)
    for number, width in enumerate((WIDTH, UNITS)):
        states = [op.constant(np.zeros((2, 1, UNITS), np.float32))] * 2
        if options.get("states") == "inputs":
            states = [op.parameter([2, 1, UNITS], np.float32) for _ in range(2)]
            inputs += states
        elif options.get("states") == "handed" and number:
            states = [ends[-1].output(1), ends[-1].output(2)]
        ragged = options.get("lengths") == "both" or (options.get("lengths") == "low" and not number)
        steps = lengths if ragged else op.constant(np.full(2, 5, np.int64))
        w, r, b = weights(number, (1, 4 * UNITS, width), (1, 4 * UNITS, UNITS), (1, 4 * UNITS))
        node = op.lstm_sequence(value, *states, steps, w, r, b, UNITS, "forward")
        node.set_friendly_name(("low", "high")[number])
        ends.append(node)
        value = op.squeeze(node.output(0), op.constant([1])).output(0)
        if options.get("between") and not number:
            value = opset16.identity(value).output(0)
    if options.get("lengths"):
        inputs.append(lengths)
    path = folder / "m.xml"
    ov.save_model(ov.Model([value], inputs), path, compress_to_fp16=False)
    if options.get("between") == "custom":
        text = path.read_text()
        path.write_text(re.sub(r'(type="Identity" version=)"opset16"', r'\1"extension"', text))
    return dict(rc.load(path).layers)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, ""), ({"states": "inputs"}, ""), ({"lengths": "both"}, ""), ({"between": "own"}, ""),
        ({"states": "handed"}, r"the initial states of 'high' are given: they are the (last states|final state) of 'low'"),
        ({"lengths": "low"}, r"the lengths of the sequences of 'low' and 'high' are not the same: '?lengths"),
        ({"between": "custom"}, r"'high' does not read 'low' directly: Identity comes before it"),
    ],
    ids=str,
)  # fmt: skip
def test_what_layers_receive_decides_whether_they_are_joined(options: dict[str, str], words: str, tmp_path: Path) -> None:
    layers = pair(tmp_path, **options)
    if words:
        with pytest.raises(ValueError, match=words):
            rc.join_stack(list(layers.values()))
        return
    assert layers["high"].reads == Directly(("low",))
    assert {call.states for layer in layers.values() for call in layer.calls} == {INPUT if options.get("states") else ""}
    assert rc.join_stack(list(layers.values())).num_layers == 2
