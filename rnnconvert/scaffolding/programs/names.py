"""Names that a person would give the layers of an ONNX graph."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rnnconvert.models.model import Unit
from rnnconvert.scaffolding.names import Names

_MADE_UP = re.compile(r"StatefulPartitionedCall|.*_Inline_.*|F\d+::.*|.*::.*|while|body|model_\d+|sequential(_\d+)?|functional(_\d+)?")
"""Parts of names that tell how a graph was made, and not what it is."""
_OPERATOR = re.compile(
    r"(LSTM|GRU|RNN|MatMul|Gemm|Conv|ConvTranspose|BiasAdd|Tensordot|Add|Gather|GatherV2|embedding_lookup|ReadVariableOp(:0)?|Y|Mul|Conv2D"
    r"|Conv1D|LayerNormalization|BatchNormalization|FusedBatchNormV3|ExpandDims|resource:0|weight)(_\d+|__\d+)*"
)
"""Ends of names that repeat what a layer is."""


def layer_names(units: Sequence[Unit]) -> dict[str, str]:
    """Return the name that a person would give each layer: of its module or its node, without what exporters put around it."""
    paths = {unit.name: [part for part in re.split(r"[/.]+", unit.known_as) if part and not _MADE_UP.fullmatch(part)] for unit in units}
    while (
        len(paths) > 1
        and len({path[0] if len(path) > 1 else "" for path in paths.values()}) == 1
        and all(len(path) > 1 for path in paths.values())
    ):
        paths = {name: path[1:] for name, path in paths.items()}
    names, free = {}, Names()
    for unit in units:
        path = paths[unit.name]
        while len(path) > 1 and _OPERATOR.fullmatch(path[-1]):
            path = path[:-1]
        names[unit.name] = free.new(".".join(path) or unit.title.split("(")[0].lower() or "layer")
    return names
