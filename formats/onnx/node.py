"""One recurrent node of a graph: its attributes and inputs as a layer, with what they leave open."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from rnnconvert.core.arrays import FLOATS, Array, Source, as_written
from rnnconvert.core.cells import ACTIVATION_DEFAULTS, SIGMOID, TANH, Activation, Cell, Clip
from rnnconvert.core.errors import RefusedError, UnreadableError
from rnnconvert.core.notes import INTEGERS, LayerNote
from rnnconvert.core.remedies import Setting
from rnnconvert.core.weights import Direction, Key, Layer, Recurrent, Unconvertible
from rnnconvert.files.conservation import UNACCOUNTED
from rnnconvert.files.options import Options
from rnnconvert.formats.onnx import quantised
from rnnconvert.formats.onnx.proto import file as onnx_file
from rnnconvert.graphs.program.operations import Body, Operation
from rnnconvert.graphs.program.scopes import Scope
from rnnconvert.language import registry
from rnnconvert.language.fitting import fit, misfit
from rnnconvert.language.layout import Layout, Sizes
from rnnconvert.language.packing import unpack
from rnnconvert.recognition import states as onnx_states
from rnnconvert.recognition.flow import ReadProgram

NAME = "onnx"
KINDS = {"RNN": "rnn", "GRU": "gru", "LSTM": "lstm", quantised.OPERATOR: "lstm"}
_FUNCTIONS = {name.replace("_", ""): name for name in ACTIVATION_DEFAULTS}
_DEFAULTS = {"rnn": (TANH,), "gru": (SIGMOID, TANH), "lstm": (SIGMOID, TANH, TANH)}


@dataclass(frozen=True, kw_only=True)
class ReadModel(ReadProgram):
    """A model as it was read.

    file   the open file, or the model in memory
    homes  where its recurrent nodes are, by the names of the layers
    """

    file: onnx_file.OnnxFile
    homes: Mapping[str, NodePlace]


@dataclass(frozen=True)
class NodePlace:
    """Where a recurrent layer is in a model.

    scope, node  its node, and the graph that this is in
    layout       how its arrays lie
    values       the layout's names of its arrays, and the values that the node reads
    """

    scope: Scope
    node: Operation
    layout: Layout
    values: Mapping[str, str]


class RecurrentNode:
    """One recurrent node on its way to the canonical form."""

    def __init__(self, path: Path, scope: Scope, node: Any, name: str, options: Options) -> None:
        self.path, self.scope, self.node, self.name, self.options = path, scope, node, name, options
        self.kind = KINDS[node.kind]
        self.attributes = scope.attributes(node)
        self.used: set[tuple[Body, str]] = set()
        self.warnings: list[LayerNote] = []
        self.unread: list[LayerNote] = []

    def read(self) -> Recurrent | None:
        """Return the layer, or None (with a note in `unread`) if its weights are not constant."""
        self._account()
        arrays: dict[str, Array] = {}
        for name, index in self._weights().items():
            value = self._input(index)
            if not value:
                continue
            array = self.scope.constant(value)
            if array is None:
                self.unread.append(self._why_not(name, value))
                return None
            if quantised.is_one(self.node) and name in quantised.SCALES:
                dequantised = self._dequantised(name, array)
                if dequantised is None:
                    return None
                array = dequantised
            arrays[name] = array
            self._use(value)
        if not {"W", "R"} <= set(arrays):
            raise UnreadableError(self.path, f"node {self.name!r} has no weights W and R")
        return self._stack(arrays)

    def _dequantised(self, name: str, codes: Array) -> Array | None:
        """Return the numbers behind the integers of a matrix, or None (with a note in `unread`) if their scales are not constant."""
        parts = []
        for index in quantised.SCALES[name]:
            value = self._input(index)
            array = self.scope.constant(value) if value else None
            if value and array is None:
                self.unread.append(self._why_not(f"{name}'s scales", value))
                return None
            parts.append(array)
            self._use(value)
        if parts[0] is None:
            raise UnreadableError(self.path, f"node {self.name!r} has no scale for {name}")
        if not any(note.kind == INTEGERS for note in self.warnings):
            self.warnings.append(LayerNote(self.name, quantised.LOSS, INTEGERS))
        return quantised.numbers(self.path, f"{name} of node {self.name!r}", codes, parts[0], parts[1])

    def _account(self) -> None:
        """Check that every attribute and input of the node is known, and of the type that it should have.

        Raises RefusedError for one that is not: its effect is unknown.
        """
        kinds = {**_ATTRIBUTES, **_OWN_ATTRIBUTES[self.kind]}
        seen: set[str] = set()
        for attribute in self.node.source.attribute:
            kind = kinds.get(attribute.name)
            stated = onnx.AttributeProto.AttributeType.Name(attribute.type)
            if kind is None or attribute.name in seen or (stated != kind and not attribute.ref_attr_name):
                why = "appears twice" if attribute.name in seen else f"is of type {stated}, expected {kind}"
                raise RefusedError(
                    f"the attribute {attribute.name!r} of a node {self.node.kind}",
                    "the canonical form",
                    f"it {why if kind else 'is not an attribute of this operator, so its effect is unknown'}",
                    "Remove it from the model if the layer computes the same without it.",
                    self.name,
                )
            seen.add(attribute.name)
        if quantised.is_one(self.node):
            most = quantised.INPUTS
        elif self.kind == "lstm":
            most = 8
        else:
            most = 6
        if any(self.node.inputs[most:]):
            raise RefusedError(
                f"{len(self.node.inputs)} inputs of a node {self.node.kind}",
                "the canonical form",
                f"the operator has {most}",
                "",
                self.name,
            )
        if self.attributes.get("layout"):
            self.warnings.append(
                LayerNote(
                    self.name,
                    "its layout is 1, so that it reads (batch, time, in); the weights are the same, but the "
                    "converted layer reads as its own framework does",
                )
            )

    def _why_not(self, name: str, value: str) -> LayerNote:
        """Return why an input that should be a weight could not be read."""
        resolved = self.scope.resolve(value)[1]
        where, first, node = self.scope.unknown(value)
        relation = "are" if first == resolved else f"({resolved!r}) are computed from"
        if node is None:
            return LayerNote(
                self.name,
                f"its weights {name} {relation} {first!r}, an input of {where.path}, so the file lacks them. Make them "
                "initializers of the model, with the numbers that are given at run time",
            )
        what = f"{node.kind} {node.name!r}" if node.name else f"{node.kind} (it gives {first!r})"
        return LayerNote(
            self.name,
            f"its weights {name} ({resolved!r}) are computed by a node {what}, "
            "which cannot be evaluated here. Fold the model's constants first (onnxruntime's basic optimization does), or give "
            "the weights as initializers",
        )

    def home(self, stack: Recurrent) -> NodePlace:
        """Return where the layer is that was read."""
        parts = {part for _, _, direction in stack.directions() for part, _ in direction.arrays}
        states = {"initial_h": ("initial_hidden", 5), "initial_c": ("initial_cell", 6)}
        inputs = self._weights() | {name: index for name, (part, index) in states.items() if part in parts}
        values = {name: self._input(index) for name, index in inputs.items() if self._input(index)}
        return NodePlace(self.scope, self.node, registry.layout(NAME, self.kind, self._reset_after()), values)

    def _weights(self) -> dict[str, int]:
        """Return the node's inputs that are weights, and which inputs they are."""
        return {"W": 1, "R": 2, "B": 3} | ({"P": 7} if self.kind == "lstm" else {})

    def _input(self, index: int) -> str:
        return str(self.node.inputs[index]) if index < len(self.node.inputs) else ""

    def _use(self, value: str) -> None:
        """Note the values that a constant one is made from, by their graphs: they do not count as other tensors."""
        waiting = [self.scope.resolve(value)]
        while waiting:
            where, name = waiting.pop()
            if where.key(name) in self.used:
                continue
            self.used.add(where.key(name))
            node, index = where.producer(name) or (None, 0)
            if node is None:
                continue
            waiting += [where.resolve(operand) for operand in node.inputs]
            if where.calls(node):
                called = where.call(node)
                waiting.append((called, called.body.outputs[index]))

    def _stack(self, arrays: Mapping[str, Array]) -> Recurrent:
        directions = str(self.attributes.get("direction", "forward")).lower()
        if directions not in ("forward", "foward", "reverse", "bidirectional"):
            raise UnreadableError(self.path, f"node {self.name!r} has the direction {directions!r}")
        number = 2 if directions == "bidirectional" else 1
        layout = registry.layout(NAME, self.kind, self._reset_after())
        arrays = _by_direction(arrays, number)
        sizes = self._form(layout, arrays, number)
        unpacked = unpack(layout, sizes, arrays)
        cells = self._cells(number)
        states, unconvertible = self._states(number, sizes)
        unconvertible = (*unconvertible, *self._lengths())
        layer_directions = tuple(
            Direction(cells[d], {**unpacked[0, d], **states[d]}, reverse=d == 1 or directions == "reverse") for d in range(number)
        )
        return Recurrent(self.name, (Layer(layer_directions),), unconvertible=unconvertible)

    def _reset_after(self) -> bool | None:
        if self.kind != "gru":
            return None
        return bool(self.attributes.get("linear_before_reset", 0))

    def _form(self, layout: Layout, arrays: Mapping[str, Array], number: int) -> Sizes:
        shapes = {name: tuple(array.shape) for name, array in arrays.items()}
        sizes = fit(layout, shapes)
        if sizes is None or sizes.num_directions != number:
            reason = misfit([layout], shapes) if sizes is None else f"they are for {sizes.num_directions} directions"
            raise UnreadableError(self.path, f"the weights of node {self.name!r} do not fit together: {reason}")
        dtypes = {str(array.dtype.newbyteorder("=")) for array in arrays.values()}
        if len(dtypes) > 1 or not dtypes <= set(FLOATS):
            raise RefusedError("weights of this type", "the canonical form", f"node {self.name!r} has {', '.join(sorted(dtypes))}")
        stated = self.attributes.get("hidden_size")
        if stated and stated != sizes.hidden_size:
            raise UnreadableError(self.path, f"node {self.name!r} states hidden_size {stated}, but its weights are for {sizes.hidden_size}")
        return sizes

    def _cells(self, number: int) -> list[Cell]:
        functions = self._functions(number)
        coupled: Any = ""
        if self.kind == "lstm" and self.attributes.get("input_forget"):
            why = "the ONNX specification says only that the gates are coupled; onnxruntime computes f = 1 - i"
            coupled = self.options.ask("input_forget", self.name, assumed="f", why=why, choices=("f", "i"))
        clips: tuple[Clip, ...] = ()
        bound = float(self.attributes.get("clip", np.inf))
        if not bound > 0 and self.options.get("clip", self.name) == "none":
            self.warnings.append(LayerNote(self.name, f"its clip of {bound:g} is left out, as asked"))
        elif "clip" in self.attributes:
            if not 0 < bound < float("inf"):
                raise RefusedError(
                    f"a clip of {bound:g}",
                    "the canonical form",
                    "the ONNX specification does not define a bound that is not above 0, and onnxruntime's operators differ",
                    f"If nothing is clipped, confirm with {Setting('clip', 'none')}.",
                    self.name,
                )
            clips = (Clip("gates", -bound, bound),)
        cells = []
        for function in functions:
            gate = function[0] if self.kind != "rnn" else SIGMOID
            candidate = function[0] if self.kind == "rnn" else function[1]
            output = function[2] if self.kind == "lstm" else TANH
            kind: Any = self.kind
            cells.append(Cell(kind, self._reset_after(), candidate, gate, output, coupled=coupled, clips=clips))
        return cells

    def _functions(self, number: int) -> list[tuple[Activation, ...]]:
        """Return the activations of each direction. Constants are used up in order, by the functions that take any."""
        default = _DEFAULTS[self.kind]
        if not self.attributes.get("activations"):
            return [default] * number
        names = [text.lower() for text in self.attributes["activations"]]
        if len(names) != number * len(default):
            raise UnreadableError(self.path, f"node {self.name!r} has {len(names)} activations, expected {number * len(default)}")
        lists = {key: list(self.attributes.get(key, [])) for key in _CONSTANTS}
        activations = []
        for name in names:
            function = _FUNCTIONS.get(name.replace("_", ""), name)
            takes = ACTIVATION_DEFAULTS.get(function, (None, None))
            constants = [
                as_written(values.pop(0)) if takes[index] is not None and values else None for index, values in enumerate(lists.values())
            ]
            for index, key in enumerate(_CONSTANTS):
                if (function, index) in _WITHOUT_DEFAULT and constants[index] is None:
                    raise RefusedError(
                        f"the activation {name} without its {key}",
                        "the canonical form",
                        "the ONNX specification and onnxruntime, which takes 0, disagree on its default",
                        f"Write the attribute {key} into the model.",
                        self.name,
                    )
            activations.append(Activation(function, *constants))
        width = len(default)
        return [tuple(activations[start : start + width]) for start in range(0, len(activations), width)]

    def _lengths(self) -> tuple[Unconvertible, ...]:
        """Return lengths of sequences that are constants of the graph, unless they are those that its input states."""
        name = self._input(4)
        lengths = self.scope.constant(name) if name else None
        if name and lengths is None:
            self.warnings.append(LayerNote(self.name, f"the lengths of its sequences, {name!r}, are given at run time. Pass them yourself"))
        if lengths is None or (lengths.size and (lengths == self._steps()).all()):
            return ()
        listed = ", ".join(map(str, lengths.reshape(-1)[:8])) + (", ..." if lengths.size > 8 else "")
        reason = "the steps after them are not computed, and other inputs may have other lengths"
        return (Unconvertible(UNACCOUNTED, f"lengths of sequences in the model ({listed})", reason),)

    def _steps(self) -> int:
        """Return how many steps the graph states for the input; 0 where it does not."""
        axes = next((value.dims for value in self.scope.body.declared if value.name == self._input(0)), None) or ()
        steps = axes[1 if self.attributes.get("layout") else 0] if len(axes) == 3 else 0
        return steps if isinstance(steps, int) else 0

    def _states(self, number: int, sizes: Sizes) -> tuple[list[dict[Key, Source]], tuple[Unconvertible, ...]]:
        """Return the learned states of each direction, and states that have no canonical form."""
        dtype = self.scope.constant(self._input(2))
        states = onnx_states.States(self.path, self.scope, self.name, (number, sizes.hidden_size), dtype)
        inputs = {"initial_hidden": 5} | ({"initial_cell": 6} if self.kind == "lstm" else {})
        batch_first = bool(self.attributes.get("layout"))
        for part, index in inputs.items():
            if self._input(index):
                states.add(part, self._input(index), batch_first)
        self.warnings += states.warnings
        return states.learned, tuple(states.unconvertible)


_CONSTANTS = ("activation_alpha", "activation_beta")


# onnx/docs/Changelog.md, RNN, GRU and LSTM of the operator sets 1 to 22. What does not change a number is here too:
# output_sequence (operator set 1) says which outputs are given, layout how x and y lie.
_ATTRIBUTES = {
    "activations": "STRINGS",
    "activation_alpha": "FLOATS",
    "activation_beta": "FLOATS",
    "clip": "FLOAT",
    "direction": "STRING",
    "hidden_size": "INT",
    "layout": "INT",
    "output_sequence": "INT",
}


_OWN_ATTRIBUTES = {"rnn": {}, "gru": {"linear_before_reset": "INT"}, "lstm": {"input_forget": "INT"}}


# Affine and ScaledTanh have no defaults in ONNX; ThresholdedRelu has 1 there, and 0 in onnxruntime 1.31.
_WITHOUT_DEFAULT = {("affine", 0), ("affine", 1), ("scaled_tanh", 0), ("scaled_tanh", 1), ("thresholded_relu", 0)}


def _by_direction(arrays: Mapping[str, Array], number: int) -> Mapping[str, Array]:
    """Return weights with an axis for their directions, whose rows PyTorch 0.4 wrote one behind the other."""
    if all(array.ndim == (2 if name in ("W", "R") else 1) and not len(array) % number for name, array in arrays.items()):
        return {name: array.reshape(number, -1, *array.shape[1:]) for name, array in arrays.items()}
    return arrays
