"""One recurrent operation of an OpenVINO model as a layer."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from rnnconvert.core.arrays import Array, Source, is_float
from rnnconvert.core.cells import SIGMOID, TANH, Activation, Cell, Clip
from rnnconvert.core.errors import UnreadableError
from rnnconvert.core.names import is_count
from rnnconvert.core.notes import PASSED, LayerNote
from rnnconvert.core.weights import Direction, Key, Layer, Recurrent, Unconvertible
from rnnconvert.files.conservation import UNACCOUNTED
from rnnconvert.files.options import Options
from rnnconvert.formats.openvino import net as nets
from rnnconvert.formats.openvino.net import Net, value_name
from rnnconvert.graphs.graph import CallSizes
from rnnconvert.graphs.program.operations import Program
from rnnconvert.graphs.program.spread import spread
from rnnconvert.language import registry
from rnnconvert.language.fitting import fit, misfit
from rnnconvert.language.layout import Sizes
from rnnconvert.language.packing import unpack
from rnnconvert.recognition.flow import FINAL_WORDS, RecurrentCall
from rnnconvert.recognition.lowered import scopes_in

NAME = "openvino"


KINDS = {f"{word}{what}": kind for word, kind in (("LSTM", "lstm"), ("GRU", "gru"), ("RNN", "rnn")) for what in ("Sequence", "Cell")}


_DEFAULTS = {"rnn": (TANH,), "gru": (SIGMOID, TANH), "lstm": (SIGMOID, TANH, TANH)}


_PLAIN = ("tanh", "sigmoid", "relu")


_TYPES = {"FP16": "f2", "FP64": "f8"}
"""Element types other than float32 in which recurrent operations compute, by the IR's names of precisions."""
_MERGES = {"ReduceSum": "sum", "ReduceProd": "mul", "ReduceMean": "ave"}


class OperationLayer:
    """One operation on its way to the canonical form.

    lower  gives the graph as a program, in which the constants are computed that other operations put together: a file that OpenVINO
           has not optimized has biases that are sums of parts, and states that are turned and cut
    """

    def __init__(self, path: Path, net: Net, layer: nets.NetOperation, name: str, options: Options, lower: Callable[[], Program]) -> None:
        self.path, self.net, self.layer, self.name, self.options = path, net, layer, name, options
        self.graph = functools.cache(lambda: next(iter(scopes_in(lower)), None))
        self.kind = KINDS[layer.type]
        self.cell = layer.type.endswith("Cell")
        self.after = layer.data.get("linear_before_reset", "false").lower() in ("true", "1") if self.kind == "gru" else None
        states = 2 if self.kind == "lstm" else 1
        first = 1 + states + (not self.cell)
        self.states = dict(zip(("initial_hidden", "initial_cell"), range(1, 1 + states), strict=False))
        self.lengths = 0 if self.cell else 1 + states
        self.weights = {"W": first, "R": first + 1, "B": first + 2}
        self.count = first + 3
        self.arrays: dict[str, Array] = {}
        self.used: set[str] = set()
        self.warnings: list[str] = []

    def unreadable(self) -> str:
        """Return why it cannot be read as a layer, or ""; take its arrays."""
        inputs = self.layer.inputs
        if len(inputs) > self.count and (self.kind != "lstm" or len(inputs) > self.count + 1):
            return f"it has {len(inputs)} inputs, and {self.layer.type} has {self.count}"
        if len(inputs) > self.count and not self._zero(inputs[self.count]):
            return "it has peepholes, as the first set of operations had them; its order of them is not settled"
        for local, place in self.weights.items():
            value = inputs[place] if place < len(inputs) else None
            if value is None and local == "B":
                continue
            array = self.net.constant(value)
            if array is None and value is not None and (graph := self.graph()) is not None:
                array = graph.constant(value_name(self.net, value))
            if array is None:
                layer = self.net.producer(value)
                origin = f"computed by {layer.type} {layer.name!r}" if layer is not None else "not there"
                return f"its weights {local} are {origin}, which cannot be evaluated here"
            self._use(value)
            if not is_float(array):
                return f"its weights {local} are of type {array.dtype}"
            self.arrays[local] = array[None] if self.cell else array
        if len({array.dtype for array in self.arrays.values()}) > 1:
            self.arrays = {local: np.asarray(array, np.float32) for local, array in self.arrays.items()}
        if self.layer.data.get("weights_format", "fico").lower() != "fico" and self.kind == "lstm":
            return f"its gates stand in the order {self.layer.data['weights_format']!r}, which only operations of the first set have"
        return ""

    def _zero(self, value: nets.Value | None) -> bool:
        array = self.net.constant(value)
        return array is not None and not array.any()

    def _use(self, value: nets.Value | None) -> None:
        waiting = [value]
        while waiting:
            layer = self.net.producer(waiting.pop())
            if layer is not None and layer.id not in self.used:
                self.used.add(layer.id)
                waiting += layer.inputs

    def read(self) -> Recurrent:
        """Return the layer. Raises UnreadableError if its weights do not fit together, or for a damaged attribute."""
        facts = self.options.facts(
            self.name,
            "its operation",
            self.layer.data,
            harmless=("hidden_size", "weights_format"),
            neutral={"input_forget": ("false", "0"), "activations_alpha": ("",), "activations_beta": ("",)},
        )
        facts.take("direction", "activations", "clip", "linear_before_reset")
        way = self.layer.data.get("direction", "forward").lower()
        if way not in ("forward", "reverse", "bidirectional"):
            raise UnreadableError(self.path, f"{self.name!r} has the direction {way!r}")
        layout = registry.layout(NAME, self.kind, self.after)
        if "B" not in self.arrays:
            gates = 4 if self.kind == "lstm" or self.after else len(layout.order)
            shape = self.arrays["R"].shape
            self.arrays["B"] = np.zeros((shape[0], gates * shape[-1]), self.arrays["R"].dtype)
        shapes = {local: tuple(array.shape) for local, array in self.arrays.items()}
        sizes = fit(layout, shapes)
        if sizes is None or sizes.num_directions != 1 + (way == "bidirectional"):
            why = misfit([layout], shapes) if sizes is None else f"they are for {sizes.num_directions} directions"
            raise UnreadableError(self.path, f"the weights of {self.name!r} do not fit together: {why}")
        stated = self.layer.data.get("hidden_size", "")
        if is_count(stated) and int(stated) != sizes.hidden_size:
            raise UnreadableError(self.path, f"{self.name!r} states hidden_size {stated}, but its weights are for {sizes.hidden_size}")
        unpacked = unpack(layout, sizes, self.arrays)
        cell = self._cell()
        states, odd = self._states(sizes)
        layer_directions = tuple(
            Direction(cell, {**unpacked[0, number], **states[number]}, reverse=number == 1 or way == "reverse")
            for number in range(sizes.num_directions)
        )
        merge: Any = "none" if len(layer_directions) == 2 else "concat"
        merge = self._merge() if len(layer_directions) == 2 else merge
        return Recurrent(self.name, (Layer(layer_directions, merge),), unconvertible=(*odd, *self._lengths()))

    def call(self, stack: Recurrent, merged: bool = True) -> RecurrentCall:
        """Return the call of the layer that was read.

        merged  whether it gives what the graph makes of its two directions, where that belongs to the layer
        """
        (layer,) = stack.layers
        gives = [value_name(self.net, (self.layer.id, port)) for port in range(len(self.layer.output_shapes))]
        inputs = [value_name(self.net, value) if value else "" for value in self.layer.inputs]
        outputs = {gives[0]: "bh" if self.cell else "bdth"} if gives else {}
        merged = merged and layer.merge in _MERGES.values()
        if merged:
            readers = self.net.readers[self.layer.id, 0]
            outputs = {
                value_name(self.net, (reader.id, 0)): "b1th" if reader.data.get("keep_dims") in ("true", "1") else "bth"
                for reader in readers
            }
        dtype = np.dtype(_TYPES.get(self.layer.precision, "f4"))
        return RecurrentCall(
            (inputs[0], "bi" if self.cell else "bti"),
            outputs,
            CallSizes(stack.hidden_size, directions=1 if merged else len(layer.directions), dtype=dtype, width=stack.input_size),
            dict(zip(gives[1:], FINAL_WORDS[1:] if self.cell else FINAL_WORDS, strict=False)),
            [inputs[place] for place in self.states.values() if inputs[place]],
            [inputs[self.lengths]] if self.lengths else [],
        )

    def _merge(self) -> str:
        """Return how the graph joins the two directions of the outputs; "concat" where it keeps them, as exporters do."""
        readers = self.net.readers.get((self.layer.id, 0), [])
        merges = {_MERGES.get(reader.type, "concat") for reader in readers}
        for consumer in readers:
            axes = self.net.constant(consumer.inputs[1]) if consumer.type in _MERGES and len(consumer.inputs) > 1 else None
            if consumer.type in _MERGES and (axes is None or [int(axis) for axis in axes.reshape(-1)[:2]] != [1]):
                return "concat"
        return merges.pop() if len(merges) == 1 else "concat"

    def _cell(self) -> Cell:
        default = _DEFAULTS[self.kind]
        text = self.layer.data.get("activations", "")
        functions = tuple(self._function(word.strip().lower()) for word in text.split(",")) if text else default
        if len(functions) != len(default):
            raise UnreadableError(self.path, f"{self.name!r} has {len(functions)} activations, expected {len(default)}")
        gate = functions[0] if self.kind != "rnn" else SIGMOID
        candidate = functions[0] if self.kind == "rnn" else functions[1]
        output = functions[2] if self.kind == "lstm" else TANH
        kind: Any = self.kind
        return Cell(kind, self.after, candidate, gate, output, clips=self._clips())

    def _function(self, name: str) -> Activation:
        plain_name = name.replace("_", "")
        return Activation(plain_name if plain_name in _PLAIN else f"{name}, whose constants OpenVINO keeps elsewhere")

    def _clips(self) -> tuple[Clip, ...]:
        text = self.layer.data.get("clip", "0")
        try:
            bound = float(text)
        except ValueError:
            bound = float("nan")
        if not bound >= 0:
            raise UnreadableError(self.path, f"{self.name!r} has the clip {text!r}, which is not a bound")
        return (Clip("gates", -bound, bound),) if 0 < bound < float("inf") else ()

    def _states(self, sizes: Sizes) -> tuple[list[dict[Key, Source]], tuple[Unconvertible, ...]]:
        """Return the learned states of each direction, and states that have no canonical form."""
        states: list[dict[Key, Source]] = [{} for _ in range(sizes.num_directions)]
        odd = []
        for part, place in self.states.items():
            value = self.layer.inputs[place]
            numbers, source = self._state(value)
            if numbers is None:
                if source in ("Parameter", "ReadValue"):
                    self.warnings.append(
                        LayerNote(self.name, f"its initial state is given at run time ({source}). Pass it yourself", PASSED)
                    )
                elif source != "":
                    odd.append(Unconvertible("initial_state", "an initial state made in the graph", f"it is made by {source}"))
                continue
            if not numbers.any():
                continue
            rows = numbers.reshape(1, -1) if self.cell and numbers.ndim < 3 and numbers.size == sizes.hidden_size else numbers
            rows = np.broadcast_to(rows, (1, sizes.num_directions, sizes.hidden_size)) if rows.ndim < 3 else rows
            if rows.ndim != 3 or rows.shape[1:] != (sizes.num_directions, sizes.hidden_size) or (rows != rows[:1]).any():
                odd.append(Unconvertible("initial_state", "an initial state for one batch", f"its numbers have the shape {numbers.shape}"))
                continue
            for number in range(sizes.num_directions):
                states[number][part, ""] = rows[0, number].astype(self.arrays["R"].dtype)
        return states, tuple(odd)

    def _state(self, value: nets.Value | None) -> tuple[Array | None, str]:
        """Return the numbers that a state is spread from, and the type of what gives it otherwise."""
        for _ in range(16):
            layer = self.net.producer(value)
            array = self.net.constant(value)
            if array is not None or layer is None:
                self._use(value)
                return array, "" if array is not None else "nothing"
            if layer.type not in ("Broadcast", "Tile", "Convert", "Reshape", "Unsqueeze", "Squeeze"):
                graph = self.graph()
                repeated = spread(graph, value_name(self.net, value)) if graph is not None and value is not None else None
                return repeated, layer.type
            value = layer.inputs[0] if layer.inputs else None
        return None, "a chain of operations"

    def _lengths(self) -> tuple[Unconvertible, ...]:
        """Return lengths of sequences that are constants of the graph, unless they are those that its input states."""
        lengths = self.net.constant(self.layer.inputs[self.lengths]) if self.lengths else None
        shape = self.layer.shapes[0] if self.layer.shapes else ()
        if lengths is None or (len(shape) == 3 and shape[1] > 0 and (lengths == shape[1]).all()):
            return ()
        listed = ", ".join(map(str, lengths.reshape(-1)[:8]))
        reason = "the steps after them are not computed, and other inputs may have other lengths"
        return (Unconvertible(UNACCOUNTED, f"lengths of sequences in the model ({listed})", reason),)
