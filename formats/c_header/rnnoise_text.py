"""RNNoise's tables as text, in the files that ffmpeg's arnndn and rnnoise-nu load (.rnnn).

After the first line come whole numbers alone: of each layer its inputs, its neurons, its activation, and the tables that rnn_data.c
has for it.

Sources: GregorR/rnnoise-nu, src/rnn_reader.c; FFmpeg, libavfilter/af_arnndn.c, rnnoise_model_from_file.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from rnnconvert.containers.c_text import CSource
from rnnconvert.containers.reading import charging, read_small
from rnnconvert.core.errors import UnreadableError
from rnnconvert.core.limits import C_BYTES

MAGIC = b"rnnoise-nu model file version 1"
_LAYERS = (
    ("input_dense", "DenseLayer"), ("vad_gru", "GRULayer"), ("noise_gru", "GRULayer"), ("denoise_gru", "GRULayer"),
    ("denoise_output", "DenseLayer"), ("vad_output", "DenseLayer"),
)  # fmt: skip
_ACTIVATIONS = ("ACTIVATION_TANH", "ACTIVATION_SIGMOID", "ACTIVATION_RELU")
_WIDEST = 128
"""The most inputs or neurons that the programs take."""


def read(path: Path) -> CSource:
    """Return the tables of a file, under the names that rnn_data.c gives them. Raises UnreadableError."""
    content = read_small(path, C_BYTES)
    reading = charging(len(content))
    reading.work(len(content) // 4, path)
    reading.memory(8 * len(content), path)
    try:
        numbers = np.array(content.removeprefix(MAGIC).split(), np.int64)
    except (ValueError, OverflowError):
        raise UnreadableError(path, "after its first line are other things than whole numbers") from None
    source, at = CSource(files=[path]), 0
    for name, kind in _LAYERS:
        header = numbers[at : at + 3].tolist()
        if len(header) < 3 or not all(0 < size <= _WIDEST for size in header[:2]) or not 0 <= header[2] < len(_ACTIVATIONS):
            raise UnreadableError(path, f"it ends before {name!r}, or states the sizes and the activation {header} for it")
        at += 3
        width, units, activation = header
        sizes = {"bias": units, "weights": width * units, "recurrent_weights": units * units}
        order = ("weights", "bias") if kind == "DenseLayer" else ("weights", "recurrent_weights", "bias")
        for local in order:
            size = sizes[local] * (3 if kind == "GRULayer" else 1)
            if at + size > numbers.size:
                raise UnreadableError(path, f"it ends inside the {local} of {name!r}")
            source.arrays[f"{name}_{local}"] = numbers[at : at + size]
            at += size
        tables = [f"{name}_{local}" for local in sizes if local in order]
        source.words[name] = (kind, [*tables, str(width), str(units), _ACTIVATIONS[activation]])
    return source
