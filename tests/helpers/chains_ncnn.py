"""Two LSTMs of ncnn with operators drawn between them: see tests.helpers.chains."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from rnnconvert.core.arrays import Array
from rnnconvert.formats.ncnn import run as ncnn_run
from tests.helpers.chains import NAMES, UNITS, WIDTH, Case, Room, weights
from tests.helpers.requirements import needed


def write(folder: Path, case: Case, seed: int) -> Path:
    """A model of two LSTMs, as text: its blobs are (time, units)."""
    rows = ["Input x 0 1 blob0"]
    numbers: list[bytes] = []

    def lstm(below: str, width: int, two: bool, name: str, above: str, seed: int) -> None:
        ways = 1 + two
        arrays = weights(seed, (ways, 4 * UNITS, width), (ways, 4 * UNITS), (ways, 4 * UNITS, UNITS))
        numbers.extend(bytes(4) + array.tobytes() for array in arrays)
        rows.append(f"LSTM {name} 1 1 {below} {above} 0={UNITS} 1={ways * 4 * UNITS * width} 2={2 * two}")

    def layer(kind: str, below: list[str], count: int = 1, more: str = "") -> list[str]:
        above = [f"blob{len(rows)}_{place}" for place in range(count)]
        rows.append(f"{kind} layer{len(rows)} {len(below)} {count} {' '.join([*below, *above])} {more}")
        return above

    lstm("blob0", WIDTH, case.two, case.names[0], "low", seed)
    blob, rank = "low", 2
    for word, *arguments in case.chain:
        if word == "joined":
            parts = layer("Slice", [blob], 2, f"-23300=2,-233,-233 1={arguments[0]}")
            first = [layer("Split", [part], 2) for part in parts]
            (blob,) = layer("Concat", [first[part][place] for place, part in enumerate(arguments[2])], 1, f"0={arguments[0]}")
        elif word == "half":
            (blob,) = layer("Cast", layer("Cast", [blob], 1, "0=1 1=2"), 1, "0=2 1=1")
        else:
            rank += (word == "unsqueeze") - (word == "squeeze")
            kind, more = _operator(rank, word, *arguments)
            (blob,) = layer(kind, [blob], 1, more)
    lstm(blob, UNITS * (1 + case.two), False, case.names[1], "y", seed + 1)
    path = folder / "m.param"
    blobs = {name for row in rows for name in row.split()[4 : 4 + sum(map(int, row.split()[2:4]))]}
    path.write_text("\n".join(["7767517", f"{len(rows)} {len(blobs)}", *rows, ""]), encoding="utf-8")
    path.with_suffix(".bin").write_bytes(b"".join(numbers))
    return path


_ORDERS = {2: ((0, 1), (1, 0)), 3: ((0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0))}
"""Permute's numbers, by the number of axes."""


def _operator(rank: int, word: str, *arguments: Any) -> tuple[str, str]:
    """The type of an operator, and its parameters."""
    if word == "transpose":
        return "Permute", f"0={_ORDERS[rank].index(arguments[0])}"
    if word == "add":
        return "BinaryOp", f"0=0 1=1 2={arguments[0]}"
    if word in ("unsqueeze", "squeeze"):
        return {"unsqueeze": "ExpandDims", "squeeze": "Squeeze"}[word], f"-23303=1,{arguments[0]}"
    if word == "reverse":
        return "Flip", f"-23300=1,{arguments[0]}"
    return {"relu": "ReLU", "identity": "Noop", "dropout": "Dropout"}[word], ""


def run(path: Path, case: Case, x: Array) -> Array:
    """What the whole model gives, sequence by sequence."""
    needed("ncnn", "ncnn")
    net = ncnn_run._net(str(path))
    return np.stack([ncnn_run._run(net, {"blob0": x[:, number]}, ["y"])["y"] for number in range(x.shape[1])], 1)


ROOM = Room(
    ("transpose", "unsqueeze", "squeeze", "reverse", "joined", "half", "relu", "add", "identity", "dropout"),
    lambda y: y[:, 0].reshape(len(y), -1), lambda x: x[:, 0], ([()], [(), (("joined", 1, 2, (1, 0)),), (("joined", 1, 2, (0, 0)),)]),
    write, run, tuple(name for name in NAMES if not set(name) & set(" \n")), (False,), 1,
)  # fmt: skip
