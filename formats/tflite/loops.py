"""Recurrent layers that a TFLite graph computes in other operators: WHILE, and steps that are written out.

The graph is written in the common operations, in which the layers are recognized and proved (rnnconvert/recognition). A product of
float numbers with a matrix of integers is that with the numbers that these stand for;
other quantized tensors are left alone: no formula of theirs is exact.

Source: tensorflow/lite/schema/schema.fbs; tensorflow/lite/kernels/fully_connected.cc, EvalHybrid.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType

import numpy as np

from rnnconvert.core.arrays import Array
from rnnconvert.core.claims import ROUNDED
from rnnconvert.core.notes import INTEGERS, LayerNote
from rnnconvert.core.weights import Call
from rnnconvert.formats.tflite.graph import Operator, SubgraphTensor, TfliteFile
from rnnconvert.formats.tflite.lowering import Lowering
from rnnconvert.formats.tflite.variables import changes
from rnnconvert.graphs.program.operations import Operation
from rnnconvert.recognition import lowered
from rnnconvert.recognition.computed import Computed, RecognisedLayers
from rnnconvert.recognition.flow import RecurrentCall

__all__ = ["Loops", "bodies", "quantised", "read", "tensors"]

_LATER = re.compile(r"^while;|(/while(_\d+)?(/LoopCond/_\d+)?|/StatefulPartitionedCall(_\d+)?|/(MatMul|BiasAdd|add)(_\d+)?)+(;.*)?$")
_MOST_SHOWN = 4
_LACKING = (
    "its weights are not in the file: it reads variables ({names}) that nothing gives a value, and TFLite cannot run it either. Convert "
    "the model again with its variables as constants: TFLiteConverter.from_keras_model, or from_concrete_functions without the "
    "model behind the functions"
)
_CHANGED = "it reads variables ({names}) that the model changes while it runs, and a layer's weights do not change"


@dataclass
class Loops(RecognisedLayers):
    """The layers that the main graph computes, with further facts.

    stored  the numbers that their operators read, by where they lie
    calls   the calls of recurrent operators, by the layer's name
    """

    stored: dict[int, Array] = field(default_factory=dict)
    calls: Mapping[str, tuple[Call, ...]] = field(default_factory=dict)

    def reads(self, tensor: SubgraphTensor, idle: bool) -> bool:
        """Return whether the operators of a layer read a tensor, under this name or another.

        idle  whether no operator reads it; converters leave copies of what a loop holds in the graph around it
        """
        stored = tensor.stored
        if stored is None or stored.ctypes.data in self.stored:
            return stored is not None
        return idle and any(stored.shape == array.shape and np.array_equal(stored, array) for array in self.stored.values())


def read(path: Path, model: TfliteFile, homes: Mapping[str, RecurrentCall] = MappingProxyType({})) -> Loops:
    """Return the layers that the main graph computes, and what its recurrent operators receive."""
    lowering = Lowering(path, model)
    looked, calls = lowered.recognise_in(lowering.program, _LATER, homes)
    result = Loops(looked.layers, {**looked.reasons, **_lost(looked, lowering)}, looked.scopes, looked.cells, calls=calls)
    for name, layer in looked.layers.items():
        values = _values(layer.nodes)
        types = sorted({lowering.stored.types[value] for value in values if value in lowering.stored.types})
        if types:
            warning = quantised(name, types, "its input and its states")
            result.layers[name] = replace(layer, warnings=(*layer.warnings, warning))
        sources = lowering.stored.sources
        result.stored |= {sources[value].ctypes.data: sources[value] for value in values if value in sources}
    return result


def received_in(path: Path, model: TfliteFile, number: int, homes: Mapping[str, RecurrentCall]) -> dict[str, tuple[Call, ...]]:
    """Return the calls of the recurrent operators of another graph than the main one."""
    return lowered.received_in(lambda: Lowering(path, model).program(number), [*homes.items()])


def _lost(looked: RecognisedLayers, lowering: Lowering) -> dict[str, str]:
    """Return for each loop that is not read, and for the main graph without layers, which numbers the file lacks."""
    why = _CHANGED if changes(lowering.model) else _LACKING
    return {
        label: why.format(names=", ".join(map(repr, names[:_MOST_SHOWN])))
        for label, names in lowering.lost.items()
        if names and (label in looked.reasons or not looked.layers)
    }


def quantised(name: str, types: Sequence[str], rounded: str) -> LayerNote:
    """Return the note on a layer whose weights are not stored as float32.

    types    their element types
    rounded  further values that kernels for integers round
    """
    text = f"its weights are stored as {' and '.join(types)}, and are read as the float numbers that these stand for."
    if not any("int" in kind for kind in types):
        return LayerNote(name, text)
    return LayerNote(name, f"{text} TFLite's kernel for integers also rounds {rounded}, {ROUNDED}", INTEGERS)


def _values(nodes: Iterable[Operation]) -> set[str]:
    """Return the values that some nodes read, and those that graphs inside them read."""
    values: set[str] = set()
    for node in nodes:
        values.update(node.inputs)
        for _, body in node.bodies:
            values |= _values(body.nodes)
    return values


def tensors(layer: Computed) -> set[int]:
    """Return the tensors of the main graph that a layer's operators read."""
    return {int(name) for node in layer.nodes for name in node.reads if name.isdigit()}


def bodies(operator: Operator) -> set[int]:
    """Return the graphs of a WHILE, by their numbers."""
    options = operator.options
    return set() if options is None else {int(options.number(field, "i")) for field in (0, 1)}
