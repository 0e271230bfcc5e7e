"""The recurrent operations of a Core ML program, whose weights are constants of the program.

Source: apple/coremltools, mlmodel/format/MIL.proto; coremltools 9.0, converters/mil/mil/ops/defs, for the operations.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rnnconvert.core.arrays import Array, is_float
from rnnconvert.core.cells import HARD_SIGMOID_KERAS_2, Activation, Cell, Clip
from rnnconvert.core.errors import UnreadableError
from rnnconvert.core.limits import MESSAGE_NESTING
from rnnconvert.core.notes import PASSED, UNREAD, LayerNote
from rnnconvert.core.weights import Unconvertible
from rnnconvert.files.adapter import unique
from rnnconvert.files.options import Options
from rnnconvert.formats.coreml import contents
from rnnconvert.formats.coreml.contents import Network, StatedSettings, UnknownError, handed
from rnnconvert.formats.coreml.lowering import FunctionLowering, RecurrentOperation
from rnnconvert.formats.coreml.message import Message
from rnnconvert.formats.coreml.package import WeightFiles
from rnnconvert.formats.coreml.values import TYPES, ProgramOperation, Values
from rnnconvert.graphs.program.operations import Program
from rnnconvert.graphs.program.places import sources
from rnnconvert.recognition.lowered import recognise_in

NAME = "coreml"
_KINDS = ("lstm", "gru", "rnn")
_FUNCTIONS = {"tanh": 1, "sigmoid": 1, "relu": 1, "linear": 1, "hard_sigmoid": 0, "sigmoid_hard": 0}
_DIRECTIONS = ("forward", "reverse", "bidirectional")
_UNDERSTOOD = {
    "x", "initial_h", "initial_c", "weight_ih", "weight_hh", "bias", "peephole", "weight_ih_back", "weight_hh_back", "bias_back",
    "peephole_back", "direction", "output_sequence", "recurrent_activation", "cell_activation", "activation", "clip",
}  # fmt: skip


_LATER = re.compile(r"(_(matmul|linear|step))+(_\d+)?$")
"""What converters add to the name of a layer whose steps they write out."""
_WHILE = "while_loop"
HALF = "it computes in half precision in its file; what is written computes in single precision, so its numbers are rounded less"


def read(path: Path, message: Message, weights: WeightFiles, network: Network, options: Options, widened: bool = False) -> None:
    """Add the recurrent layers of every function to what was found.

    widened  whether programs are written in single precision that compute in half

    Raises UnreadableError for a damaged message.
    """
    functions = [*message.entries(2)]
    for name, function in functions:
        for _, block in function.entries(3):
            where = f"{name}/" if len(functions) > 1 else ""
            program = _FunctionLayers(path, weights, network, options, widened)
            program.block(block, where, 0)
            program.recognise(path, [*function.every(1)], block, where)


class _FunctionLayers(Values):
    """The operations of one function."""

    def __init__(self, path: object, weights: WeightFiles, network: Network, options: Options, widened: bool) -> None:
        super().__init__(path, weights)
        self.network, self.options, self.widened = network, options, widened
        self.loops: list[str] = []
        self.placed: dict[str, RecurrentOperation] = {}
        self.inside: set[str] = set()
        self.turned: dict[str, list[str]] = {}

    def block(self, block: Message, where: str, depth: int) -> None:
        """Take the operations of a block, and of the blocks in them."""
        if depth > MESSAGE_NESTING:
            raise UnreadableError(self.path, f"blocks are nested more than {MESSAGE_NESTING} deep")
        operations = [self.operation(message) for message in block.every(3)]
        self.turned = self._turned(operations, block.texts(2))
        for operation in operations:
            self.makers |= dict.fromkeys(operation.outputs, operation)
            if operation.type in _KINDS:
                self._recurrent(operation, where, depth > 0)
            self.loops += [operation.name] if operation.type == _WHILE else []
            for inner in operation.message.every(4):
                self.block(inner, where, depth + 1)

    def recognise(self, path: Path, inputs: Sequence[Message], block: Message, where: str) -> None:
        """Add the layers that other operations compute, and what all layers receive."""
        network, others, size = self.network, self.others(where), block.size + self.weights.size

        lowering = FunctionLowering(self, [*self.placed.values()], self.widened)

        def lowered() -> Program:
            return lowering.program(path, size, inputs, block)

        looked, calls = recognise_in(lowered, _LATER, [(name, layer.call) for name, layer in self.placed.items()])
        network.warnings += [HALF] if lowering.rounds else []
        for name, received in calls.items():
            network.layers[name] = network.layers[name].replace(calls=handed(received, name in self.inside, "operation"))
        looked.layers = {f"{where}{name}": layer.renamed(f"{where}{name}") if where else layer for name, layer in looked.layers.items()}
        for name, computed in looked.layers.items():
            network.layers[name] = computed.stack
            network.evidence.append(computed.evidence)
            network.warnings += computed.warnings
        for label in self.loops:
            if label not in looked.nodes_by_name:
                why = looked.reasons.pop(label, "") or looked.reasons.get("", "")
                made_of = "as coremltools makes it of layers that its operations cannot compute, such as PyTorch's GRU"
                text = f"a while_loop, {made_of}; it is not read{': ' + why if why else ''}"
                network.unread.append(LayerNote(f"{where}{label}", text, UNREAD))
        if looked.layers or not (network.layers or network.unread):
            network.unread += looked.refusals()
        main = looked.scope
        read = {value for node in looked.nodes for value in node.reads}
        used = {tensor.name for value in read for tensor in sources(main, value)} if main is not None else set()
        network.others |= {name: array for name, array in others.items() if name.removeprefix(where) not in used}
        network.add_program(looked, {name: layer.call for name, layer in self.placed.items()})

    def _turned(self, operations: list[ProgramOperation], outputs: list[str]) -> dict[str, list[str]]:
        """Return the outputs of recurrent operations that everything reads through operations which turn the steps around, each
        with what these give.
        """
        if any(4 in operation.message for operation in operations):  # blocks inside may read them, too
            return {}
        makers = {name: operation for operation in operations for name in operation.outputs}
        readers: dict[str, list[ProgramOperation]] = {name: [] for name in outputs}
        for consumer in operations:
            for name in consumer.values():
                readers.setdefault(name, []).append(consumer)
        turned: dict[str, list[str]] = {}
        for ended in operations:
            first = ended.outputs[:1] if ended.type in _KINDS else []
            for name in first:
                reading = readers.get(name, [])
                if reading and name not in outputs and all(self._turns(reader, makers) for reader in reading):
                    turned[name] = [value for reader in reading for value in reader.outputs]
        return turned

    def _turns(self, operation: ProgramOperation, makers: Mapping[str, ProgramOperation]) -> bool:
        """Return whether an operation turns the steps around, and nothing else."""
        axes = operation.inputs.get("axes")
        if operation.type != "reverse" or not axes:
            return False
        source = makers.get(axes[0]) if isinstance(axes[0], str) else None
        value: Message | None
        if isinstance(axes[0], Message):
            value = axes[0]
        elif source:
            value = dict(source.message.entries(5)).get("val")
        else:
            value = None
        return value is not None and self.array(value, "axes").reshape(-1)[:2].tolist() == [0]

    def others(self, where: str) -> dict[str, Array]:
        """Return the constants that are numbers and of no recurrent operation, by their names."""
        others = {}
        for name, operation in self.makers.items():
            if operation.type != "const" or name in self.used:
                continue
            value = dict(operation.message.entries(5)).get("val")
            shape, kind = self.type(value) if value is not None else ((), 0)
            if shape and kind in TYPES and value is not None and is_float(np.zeros(0, TYPES[kind])):
                others[where + name] = self.array(value, name)
        return others

    # Recurrent operations -----------------------------------------------------------------------------------

    def _recurrent(self, operation: ProgramOperation, where: str, inside: bool) -> None:
        name = unique(where + (operation.name or operation.type), self.network.layers)
        if not operation.outputs:
            raise UnreadableError(self.path, f"{name!r} gives no output")
        try:
            arrays, stored = self._arrays(operation)
            cells, reverse = self._cells(operation, name)
            states, odd = self._states(operation, name, len(cells), arrays["weight_hh"])
        except UnknownError as error:
            self.network.unread.append(LayerNote(name, str(error), UNREAD))
            return
        all_arrays = {**arrays, **states}
        stated = StatedSettings(operation.type, cells, reverse)
        stack = contents.assembled(self.path, name, NAME, all_arrays, stated)
        turned = self.turned.get(operation.outputs[0], []) if reverse else []
        order: Any = "time" if turned else stack.output_order
        self.network.layers[name] = stack.replace(unconvertible=odd, output_order=order)
        self.placed[name] = RecurrentOperation(operation, stack, self.truth(operation, "output_sequence"), turned)
        self.inside |= {name} if inside else set()
        self.network.arrays |= {f"{name}/{local}": array for local, array in all_arrays.items()}
        self.network.evidence.append(f"{name}: an operation {operation.type}")
        for storage in stored:
            self.network.warnings.append(
                LayerNote(name, f"its weights are stored as {storage}, and are read as the numbers that these stand for")
            )
        unknown = {parameter: "an input that is unknown here" for parameter in operation.inputs if parameter not in _UNDERSTOOD}
        self.options.facts(name, "its operation", unknown)

    def _arrays(self, operation: ProgramOperation) -> tuple[dict[str, Array], list[str]]:
        both = self.word(operation, "direction", "forward") == "bidirectional"
        arrays: dict[str, Array] = {}
        stored: dict[str, None] = {}
        for local in ("weight_ih", "weight_hh", "bias", *(("peephole",) if operation.type == "lstm" else ())):
            for way in ("", "_back") if both else ("",):
                arguments = operation.inputs.get(local + way)
                if not arguments:
                    if local.startswith("weight"):
                        raise UnreadableError(self.path, f"{operation.type} {operation.name!r} has no {local + way}")
                    continue
                array, how = self.constant(arguments[0], local + way)
                single = array.dtype == np.float64 or (array.dtype == np.float16 and self.widened)
                arrays[local + way] = array.astype("<f4") if single else array
                stored |= {how: None} if how else {}
        for local in ("bias", "peephole"):  # one direction may have what the other one lacks: zeros there
            ways = [local + way for way in ("", "_back")[: 1 + both]]
            present = [way for way in ways if way in arrays]
            arrays |= {way: np.zeros_like(arrays[present[0]]) for way in ways if present and way not in arrays}
        return arrays, [*stored]

    def _function(self, operation: ProgramOperation, parameter: str, default: str) -> Activation:
        word = self.word(operation, parameter, default).lower()
        if word not in _FUNCTIONS:
            raise UnknownError(f"its {parameter} is {word!r}, whose constants Core ML does not state")
        return HARD_SIGMOID_KERAS_2 if not _FUNCTIONS[word] else Activation(word)

    def _cells(self, operation: ProgramOperation, name: str) -> tuple[tuple[Cell, ...], bool]:
        """Return the cell of each direction, and whether the only one reads from the end."""
        way = self.word(operation, "direction", "forward")
        if way not in _DIRECTIONS[: 3 if operation.type == "lstm" else 2]:
            raise UnreadableError(self.path, f"{name!r} has the direction {way!r}")
        activation = self._function(operation, "activation", "tanh")
        if operation.type == "rnn":
            cell = Cell("rnn", activation=activation)
        else:
            gates = self._function(operation, "recurrent_activation", "sigmoid")
            cell = (
                Cell("gru", False, activation=activation, gate_activation=gates)
                if operation.type == "gru"
                else Cell(
                    "lstm",
                    None,
                    self._function(operation, "cell_activation", "tanh"),
                    gates,
                    activation,
                    clips=self._clips(operation, name),
                )
            )
        return (cell,) * (1 + (way == "bidirectional")), way == "reverse"

    def _clips(self, operation: ProgramOperation, name: str) -> tuple[Clip, ...]:
        arguments = operation.inputs.get("clip")
        if not arguments:
            return ()
        bound, _ = self.constant(arguments[0], "clip")
        return contents.cell_clips(self.path, name, float(bound.reshape(-1)[0]) if bound.size == 1 else 0.0, self.network.warnings)

    def _states(
        self, operation: ProgramOperation, name: str, ways: int, recurrent: Array
    ) -> tuple[dict[str, Array], tuple[Unconvertible, ...]]:
        """Return learned initial states, and the states without a canonical form; a warning names the ones that the caller passes."""
        states: dict[str, Array] = {}
        odd = []
        width = ways * recurrent.shape[-1] if recurrent.ndim == 2 else 0
        for parameter in ("initial_h", "initial_c")[: 2 if operation.type == "lstm" else 1]:
            arguments = operation.inputs.get(parameter)
            if not arguments or self.zero(arguments[0]):
                continue
            source = arguments[0]
            maker = self.makers.get(source) if isinstance(source, str) else None
            if isinstance(source, str) and maker is None:
                self.network.warnings.append(LayerNote(name, f"its {parameter} is given at run time. Pass it yourself", PASSED))
                continue
            try:
                rows, _ = self.constant(source, parameter)
            except UnknownError:
                reason = f"{parameter} is made by {maker.type if maker else 'something'}"
                odd.append(Unconvertible("initial_state", "an initial state made in the program", reason))
                continue
            if rows.ndim != 2 or rows.shape[1] != width or (rows != rows[:1]).any():
                reason = f"{parameter} has the shape {rows.shape}, and rows that differ"
                odd.append(Unconvertible("initial_state", "an initial state for one batch", reason))
                continue
            states[parameter] = rows[:1].astype(recurrent.dtype, copy=False)
        return states, tuple(odd)
