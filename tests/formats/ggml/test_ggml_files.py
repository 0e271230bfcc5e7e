"""whisper.cpp's Silero VAD in ggml: files as its converter writes them, held to a digest of whisper.cpp's own file."""

from __future__ import annotations

import hashlib
import random
import struct
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

import rnnconvert as rc
from rnnconvert.core import reference
from rnnconvert.core.arrays import Array
from rnnconvert.core.errors import UnreadableError
from tests.helpers import corpus
from tests.helpers.requirements import need

RNG = np.random.default_rng(6)
BEFORE = "_model.decoder.rnn."
DIGEST = "7bf0856fdbca3d003bc6eb36f39556ec478d542d32613a3b22ed66c1687893a2"
"""The SHA-256 of the LSTM's arrays, with their headers, in models/for-tests-silero-v6.2.0-ggml.bin of whisper.cpp (MIT)."""


def entries(arrays: Mapping[str, Array]) -> bytes:
    done = b""
    for name, array in arrays.items():
        number = int(array.dtype == np.float16)
        head = struct.pack(f"<{3 + array.ndim}i", array.ndim, len(name), number, *array.shape[::-1])
        done += head + name.encode() + array.tobytes()
    return done


def written(path: Path, arrays: Mapping[str, Array], kind: bytes = b"silero-16k", layers: int = 1) -> Path:
    sizes = struct.pack("<6i", 6, 2, 0, 512, 64, layers) + struct.pack("<7i", 129, 128, 3, 2, 3, 2, 1)
    path.write_bytes(struct.pack("<ii", 0x67676D6C, len(kind)) + kind + sizes + entries(arrays))
    return path


def cell(inputs: int = 2, units: int = 3) -> dict[str, Array]:
    shapes = {"weight_ih": (4 * units, inputs), "weight_hh": (4 * units, units), "bias_ih": (4 * units,), "bias_hh": (4 * units,)}
    return {BEFORE + name: RNG.uniform(-1, 1, shape).astype("f4") for name, shape in shapes.items()}


def test_the_cell_computes_as_its_source_says(tmp_path: Path) -> None:
    arrays = cell()
    checkpoint = rc.load(written(tmp_path / "m.bin", {"_model.encoder.0.weight": np.ones((2, 1, 3), "f2"), **arrays}))
    ((name, stack),) = checkpoint.layers.items()
    assert (checkpoint.format, name, [*checkpoint.tensors]) == ("ggml", BEFORE[:-1], ["_model.encoder.0.weight"])
    x, h, c, done = RNG.uniform(-1, 1, (5, 1, 2)), np.zeros((1, 3)), np.zeros((1, 3)), []
    for step in x:
        product = step @ arrays[BEFORE + "weight_ih"].T + h @ arrays[BEFORE + "weight_hh"].T
        i, f, g, o = np.split(product + arrays[BEFORE + "bias_ih"] + arrays[BEFORE + "bias_hh"], 4, axis=1)
        c = c / (1 + np.exp(-f)) + np.tanh(g) / (1 + np.exp(-i))
        h = np.tanh(c) / (1 + np.exp(-o))
        done.append(h)
    np.testing.assert_allclose(reference.run(stack, x).y, np.stack(done), rtol=0, atol=1e-12)


def test_the_onnx_model_of_silero_makes_the_bytes_of_whisper_cpps_own_file(tmp_path: Path) -> None:
    need("corpus", corpus.absent())
    onnx = rc.load(corpus.FOLDER / "silero-vad-v6" / "silero_vad_16k_op15.onnx")
    stack = next(iter(onnx.layers.values()))
    arrays = rc.pack(stack, "pytorch")
    named = {BEFORE + name: np.asarray(arrays[f"{name}_l0"], "f4") for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")}
    assert hashlib.sha256(entries(named)).hexdigest() == DIGEST
    read = next(iter(rc.load(written(tmp_path / "m.bin", named)).layers.values()))
    for part, array in stack.first.arrays.items():
        np.testing.assert_array_equal(read.first.arrays[part], array)


@pytest.mark.parametrize(
    ("kind", "layers", "cut", "why"),
    [(b"whisper-16k", 1, 0, "not Silero's"), (b"silero-16k", 65, 0, "65 layers"), (b"silero-16k", -1, 0, "-1 layers"),
     (b"silero-16k", 2, 0, "at byte"), (b"silero-16k", 1, 5, "bias_hh"), (b"silero-16k", 60, 0, "at byte")],
)  # fmt: skip
def test_what_is_another_network_or_damaged_is_unreadable(kind: bytes, layers: int, cut: int, why: str, tmp_path: Path) -> None:
    path = written(tmp_path / "m.bin", cell(), kind, layers)
    path.write_bytes(path.read_bytes()[: path.stat().st_size - cut])
    with pytest.raises(UnreadableError, match=why):
        rc.load(path)


def test_a_damaged_file_ends_in_an_error_of_ours(tmp_path: Path) -> None:
    path = written(tmp_path / "m.bin", cell())
    content, rng = path.read_bytes(), random.Random(2)
    for _ in range(60):
        damaged = bytearray(content)
        for place in rng.sample(range(18, len(damaged)), rng.choice((1, 2, 5))):
            damaged[place] = rng.randrange(256)
        path.write_bytes(damaged)
        try:
            rc.load(path)
        except rc.RnnConvertError:
            continue
