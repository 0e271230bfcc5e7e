"""The tables of RNNoise and CMSIS-NN in C headers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from rnnconvert.containers.c_text import CSource
from rnnconvert.core.arrays import Array
from rnnconvert.core.cells import Activation, Cell, Clip
from rnnconvert.core.claims import ROUNDED
from rnnconvert.core.errors import UnreadableError, UsageError
from rnnconvert.core.notes import INTEGERS, UNREAD
from rnnconvert.files.options import Options
from rnnconvert.formats.c_header.layer_code import StoredMatrix
from rnnconvert.language import registry
from rnnconvert.language.layout import Layout

NAME = "c_header"

_GATES = ("input", "forget", "cell", "output")


_RNNOISE = {"ACTIVATION_TANH": "tanh", "ACTIVATION_SIGMOID": "sigmoid", "ACTIVATION_RELU": "relu"}


_SIZE = re.compile(r"[0-9]{1,7}(\.0{0,7})?")
"""A size in RNNoise's tables: training/dump_rnn.py divides by 3, which under Python 3 gives 24.0."""


_STEP = 256
"""RNNoise's weights are so many times as large as what they stand for."""


_EVEN = 1e-4
"""How far the factors of a cell may be from 1: they are kept in 31 bits."""


FoundLayer = tuple[str, Layout, dict[str, Array], Cell, dict[str, list[str]], "tuple[str, np.dtype[Any], StoredMatrix] | None"]
"""A layer's name, layout, arrays and cell; the arrays of the source that it takes, and warnings, or without arrays why it is not read.
Of a header of our own also its name in C, its element type, and its arrays as they are stored."""


def rnnoise(path: Path, source: CSource) -> Iterator[FoundLayer]:
    """Yield the GRUs of RNNoise's tables."""
    layout = registry.layout_named("c_header.rnnoise_gru")
    for name, (kind, words) in source.words.items():
        if kind != "GRULayer":
            continue
        sizes = [int(word.partition(".")[0]) for word in words[3:5] if _SIZE.fullmatch(word)]
        if len(words) < 6 or len(sizes) < 2 or not all(0 < size < 1 << 20 for size in sizes):
            raise UnreadableError(path, f"the GRULayer {name!r} is not of the form that RNNoise 0.1 has")
        function = _RNNOISE.get(words[5])
        if function is None:
            raise UnreadableError(path, f"the GRULayer {name!r} has the activation {words[5]!r}, which is unknown")
        width, units = sizes
        shapes = {"bias": (3 * units,), "weights": (width, 3 * units), "recurrent_weights": (units, 3 * units)}
        layer_arrays = {}
        for (local, shape), full in zip(shapes.items(), words, strict=False):
            numbers = source.arrays.get(full)
            if numbers is None or numbers.size != int(np.prod(shape)):
                raise UnreadableError(path, f"{full!r} of {name!r} should have {int(np.prod(shape))} numbers")
            layer_arrays[local] = (numbers / _STEP).astype(np.float32).reshape(shape)
        yield (
            name,
            layout,
            layer_arrays,
            layout.cell.replace(activation=Activation(function)),
            {"arrays": words[:3], "warnings": [], "kind": []},
            None,
        )


def cmsis(path: Path, source: CSource, options: Options) -> Iterator[FoundLayer]:
    """Yield the LSTMs of CMSIS-NN's tables: integers, whose scales are products in a file of definitions."""
    layout = registry.layout_named("c_header.cmsis_lstm")
    for full in [name for name in source.arrays if name.endswith("_input_gate_input_weights")]:
        name = full.removesuffix("_input_gate_input_weights")

        def defined(what: str, name: str = name) -> int:
            macro = source.defined.get(f"{name.upper()}_{what}", "")
            if not re.fullmatch(r"-?\d{1,12}", macro):
                raise UnreadableError(path, f"{name.upper()}_{what} is not defined as a number, so that the scales of {name!r} are unknown")
            return int(macro)

        def factor(what: str) -> float:
            return float(np.ldexp(defined(f"{what}_MULTIPLIER") / 2.0**31, int(np.clip(defined(f"{what}_SHIFT"), -64, 64))))

        width, units = defined("INPUT_SIZE"), defined("HIDDEN_SIZE")
        why = "CMSIS-NN's tables hold the scale of the input times that of the weights"
        answer = options.ask("input_scale", name, assumed="1", why=why)
        if answer == "none" or float(answer) <= 0:
            raise UsageError(f"option input_scale is {answer}. Give what one step of the input stands for, a number above 0")
        scale = float(answer)
        state = 2.0**-30 / factor("OUTPUT")
        cell_step = 2.0 ** int(np.clip(defined("CELL_SCALE_POWER"), -64, 64))
        keeps, added = factor("FORGET_TO_CELL") / 2.0**-15, factor("INPUT_TO_CELL") / (2.0**-30 / cell_step)
        if abs(keeps - 1) > _EVEN or abs(added - 1) > _EVEN:
            # Its cell's scale is no power of two, but tanh takes it for one.
            what = f"c' = {keeps:.4g} f c + {added:.4g} i g, with factors that no other system here has"
            yield (name, layout, {}, layout.cell, {"arrays": [], "warnings": [f"it computes {what}"], "kind": [UNREAD]}, None)
            continue
        layer_arrays, used = {}, []
        for gate in _GATES:
            product = 2.0**-12 * factor(f"{gate.upper()}_GATE_INPUT")
            parts = {
                f"{gate}_gate_input_weights": ((units, width), product / scale),
                f"{gate}_gate_hidden_weights": ((units, units), 2.0**-12 * factor(f"{gate.upper()}_GATE_HIDDEN") / state),
                f"{gate}_gate_bias": ((units,), product),
            }
            for local, (shape, step) in parts.items():
                numbers = source.arrays.get(f"{name}_{local}")
                if numbers is None or min(shape) < 1 or numbers.size != shape[0] * (shape[1] if len(shape) > 1 else 1):
                    raise UnreadableError(path, f"{name}_{local} does not have the shape {shape}, or is missing")
                layer_arrays[local] = (numbers * step).astype(np.float32).reshape(shape)
                used.append(f"{name}_{local}")
        clip = defined("CELL_CLIP") * cell_step
        cell = layout.cell.replace(clips=(Clip("cell", -clip, clip),))
        warning = (
            "its weights are integers, read as the float32 numbers that these stand for. CMSIS-NN also rounds its input, states and "
            f"gates, {ROUNDED}; its state stands for multiples of "
            f"{state:.6g}, and the integer {-defined('INPUT_ZERO_POINT')} of its input for 0"
        )
        yield name, layout, layer_arrays, cell, {"arrays": used, "warnings": [warning], "kind": [INTEGERS]}, None
