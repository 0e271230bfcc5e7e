"""A sharded checkpoint far larger than memory: only headers and recurrent arrays are read."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from pathlib import Path

import pytest

import rnnconvert as rc
from tests.batch.test_batch import arrays

SHARDS, ROWS = 4, 1 << 17  # of 4 GB each, as holes


@pytest.mark.skipif(sys.platform != "linux", reason="what a process held at most is read from /proc")
def test_a_sharded_checkpoint_is_converted_in_bounded_memory(tmp_path: Path) -> None:
    recurrent, names = arrays(0, 64), dict[str, str]()
    for number in range(SHARDS):
        name, at, header = f"model-{number}.safetensors", 0, {}
        held = recurrent if number == 2 else {}
        for key, array in held.items():
            header[key] = {"dtype": "F32", "shape": list(array.shape), "data_offsets": [at, at + array.nbytes]}
            at += array.nbytes
        size = ROWS * 8192 * 4
        header[f"block{number}.weight"] = {"dtype": "F32", "shape": [ROWS, 8192], "data_offsets": [at, at + size]}
        names |= dict.fromkeys(header, name)
        text = json.dumps(header).encode()
        with (tmp_path / name).open("wb") as file:
            file.write(struct.pack("<Q", len(text)) + text + b"".join(array.tobytes() for array in held.values()))
            file.truncate(8 + len(text) + at + size)
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {}, "weight_map": names}))
    script = (
        "import pathlib, sys, rnnconvert as rc; rc.convert(sys.argv[1], sys.argv[2]); "
        # getrusage would give what the process held that started this one.
        "print(*(line for line in pathlib.Path('/proc/self/status').read_text().splitlines() if line.startswith('VmHWM')))"
    )
    done = subprocess.run([sys.executable, "-c", script, index, tmp_path / "out.onnx"], capture_output=True, text=True, check=True)
    assert int(done.stdout.split()[-2]) < 300 * 1024
    assert list(rc.load(tmp_path / "out.onnx").layers) == ["rnn"]
