"""A whole file of RTNeural or AIDA-X as rnnconvert.scaffolding describes models.

Source: RTNeural/model_loader.h, parseJson; AIDA-X src/aidadsp-plugin.cpp, applyModel.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rnnconvert.core.errors import RefusedError, UnreadableError
from rnnconvert.formats.rtneural.layouts import FUNCTIONS
from rnnconvert.scaffolding import kinds

if TYPE_CHECKING:  # a conversion enters no scaffolding
    from rnnconvert.models.model import Unit
    from rnnconvert.scaffolding.description import Description
    from rnnconvert.scaffolding.rows import LayerRow
    from rnnconvert.scaffolding.tensors import SourceTensor

NAME = "rtneural"


def describe(path: Path, partial: bool = False) -> Description:
    """Return the model of a file, with what AIDA-X does around its layers.

    Raises RefusedError for a layer that RTNeural leaves out.
    """
    from rnnconvert.files.load import load
    from rnnconvert.formats.rtneural.files import RtneuralMetadata
    from rnnconvert.models.readers import model_of
    from rnnconvert.scaffolding.rows import LayerRow

    checkpoint = load(path, NAME)
    metadata = checkpoint.metadata_as(RtneuralMetadata)
    document, names = metadata["document"], metadata["names"]
    units = {unit.name: unit for unit in model_of(checkpoint).units}
    row = LayerRow(int(document["in_shape"][-1]))
    x = begin = _gained(path, row, row.begin, document, "in_gain")
    for name, entry in zip(names, document["layers"], strict=True):
        rule = _RULES.get(entry["type"])
        if rule is None:
            raise RefusedError(f"a layer of type {entry['type']!r}", "a model", "RTNeural does not know it, and leaves it out", "", name)
        if entry["type"] != "activation" and name not in units:
            raise UnreadableError(path, f"the weights of {name!r} are not those of a {entry['type']}")
        x = rule(row, units.get(name), x, entry)
    skip = document.get("in_skip") or 0
    if skip not in (0, 1):
        raise RefusedError(f"in_skip = {skip}", "a model", "AIDA-X adds the first input, or none")
    if skip and x.dims[-1] != 1:
        raise RefusedError("in_skip", "a model", f"AIDA-X adds its input to one value a step, and this model gives {x.dims[-1]}")
    x = row.plus_input(x, begin) if skip else x
    around = [f"{key} is {document[key]}" for key in ("in_gain", "out_gain", "in_skip") if document.get(key)]
    notes = [f"{', '.join(around)}: AIDA-X does that, and RTNeural's own parseJson does not"] if around else []
    return row.described(_gained(path, row, x, document, "out_gain"), notes)


def _gained(path: Path, row: LayerRow, x: SourceTensor, document: Mapping[str, Any], key: str) -> SourceTensor:
    gain = document.get(key) or 0
    if type(gain) not in (int, float) or not abs(gain) < 90:
        raise UnreadableError(path, f"its {key} is {gain!r}, and no number of decibels between -90 and 90")
    return row.times(x, 10 ** (gain * 0.05), key) if gain else x


def _recurrent(row: LayerRow, unit: Unit, x: SourceTensor, entry: Mapping[str, Any]) -> SourceTensor:
    return row.recurrent([unit], x)


def _dense(row: LayerRow, unit: Unit, x: SourceTensor, entry: Mapping[str, Any]) -> SourceTensor:
    return _function(row, unit, row.dense(unit, x, entry["shape"][-1], len(unit.names) > 1), entry)


def _conv(row: LayerRow, unit: Unit, x: SourceTensor, entry: Mapping[str, Any]) -> SourceTensor:
    kernel, dilation, groups = int(entry["kernel_size"][-1]), int(entry["dilation"][-1]), int(entry.get("groups", 1))
    units = int(entry["shape"][-1])
    window = (kernel,), (1,), (dilation,), ((dilation * (kernel - 1), 0),), False
    kind = kinds.Conv(*window, channels=row.width(x), filters=units, bias=len(unit.names) > 1, groups=groups)
    return _function(row, unit, row.layer(kind, unit, x, (*x.dims[:-1], units)), entry)


def _prelu(row: LayerRow, unit: Unit, x: SourceTensor, entry: Mapping[str, Any]) -> SourceTensor:
    return row.prelu(unit, x, len(entry["weights"][0][0]))


def _batch_norm(row: LayerRow, unit: Unit, x: SourceTensor, entry: Mapping[str, Any]) -> SourceTensor:
    affine = len(entry["weights"]) == 4
    return row.layer(
        kinds.BatchNorm(axis=2, size=row.width(x), momentum=0.99, epsilon=float(entry["epsilon"]), scale=affine, shift=affine),
        unit,
        x,
        x.dims,
    )


def _function(row: LayerRow, unit: Unit | None, x: SourceTensor, entry: Mapping[str, Any]) -> SourceTensor:
    from rnnconvert.scaffolding.operations import activation

    function = entry.get("activation", "")
    if function and function not in FUNCTIONS:
        raise RefusedError(f"the activation {function!r}", "a model", f"RTNeural has {', '.join(FUNCTIONS)}", "", entry["type"])
    return activation(row, x, function, 1.0 if function == "elu" else None, 2 if function == "softmax" else -1) if function else x


_RULES: Mapping[str, Any] = {
    **dict.fromkeys(("lstm", "gru"), _recurrent),
    **dict.fromkeys(("dense", "time-distributed-dense"), _dense),
    "conv1d": _conv,
    "prelu": _prelu,
    "batchnorm": _batch_norm,
    "activation": _function,
}
"""The types of layers that are known."""
