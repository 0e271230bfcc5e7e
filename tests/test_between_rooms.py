"""What lies between two recurrent layers of a file decides whether they are joined, in every framework whose files state a graph."""

from __future__ import annotations

import importlib
import random
from pathlib import Path

import pytest

from tests import drawn
from tests.chains import Room

ROOMS = {"openvino": 20, "ncnn": 30, "tflite": 20, "mxnet": 20, "coreml": 12, "paddle": 20}
"""The frameworks, and how many cases a usual run draws; a long one draws twenty times as many."""


def room_of(name: str) -> Room:
    """How cases are written in a framework, and run there."""
    room: Room = importlib.import_module(f"tests.chains_{name}").ROOM
    return room


@pytest.mark.parametrize("name", ROOMS)
def test_layers_are_joined_where_nothing_lies_between(name: str, tmp_path: Path) -> None:
    room = room_of(name)
    draw = random.Random(f"{drawn.SEED} {name}")
    cases = [room.draw(draw) for _ in range(ROOMS[name] * (20 if drawn.LONG else 1))]
    room.check_all(cases, tmp_path)
