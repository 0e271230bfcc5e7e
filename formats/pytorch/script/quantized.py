"""Calls of operators over weights that dynamic quantization packed, as those of the floats that these stand for.

Source: aten/src/ATen/native/RNN.cpp and native/quantized/cpu/qlinear_dynamic.cpp. They also round what the weights are multiplied with.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from rnnconvert.formats.pytorch.script.values import Items

_PREFIX, _CELL = "quantized_", "_cell_dynamic"
_LINEARS = ("linear_dynamic", "linear_dynamic_fp16")
PREFIXES = (_PREFIX, *_LINEARS)
"""How the names of these operators begin."""
OF_ROUNDING = ("dtype", "use_dynamic", "reduce_range")
"""What follows the weights by name, and says how numbers are rounded."""


def of_floats(name: str, arguments: Sequence[Any]) -> tuple[str, list[Any]] | None:
    """Return the operator of floats that one over packed weights stands for, and its arguments; None for any other call.

    Weights that are packed are an `Items` of their arrays. A third argument of a dense layer says how numbers are rounded.
    """
    if name in _LINEARS and len(arguments) >= 2 and isinstance(arguments[1], Items):
        return "linear", [arguments[0], *arguments[1].values]
    if name.endswith(_CELL) and len(arguments) == 6 and all(isinstance(weight, Items) for weight in arguments[2:4]):
        packed = [[*weight.values, None][:2] for weight in arguments[2:4]]  # what follows are biases that nothing reads
        return name.removeprefix(_PREFIX).removesuffix("_dynamic"), [*arguments[:2], *itertools.chain(*zip(*packed, strict=True))]
    cells = [place for place, argument in enumerate(arguments) if isinstance(argument, Items) and _are_packed(argument)]
    if name.startswith(_PREFIX) and len(cells) == 1:
        (place,) = cells
        weights = Items([array for cell in arguments[place].values for array in cell.values])
        return name.removeprefix(_PREFIX), [*arguments[:place], weights, *arguments[place + 1 :]]
    return None


def _are_packed(cells: Items) -> bool:
    return bool(cells.values) and all(isinstance(cell, Items) for cell in cells.values)
