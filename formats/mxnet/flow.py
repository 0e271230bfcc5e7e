"""The graph next to MXNet's parameters as a program: the layers in it, and what they receive."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from rnnconvert.core.weights import Call, Recurrent, Unknown
from rnnconvert.formats.mxnet import symbol
from rnnconvert.formats.mxnet.lowering import NamedArrays, SymbolLowering
from rnnconvert.graphs.program.operations import Program
from rnnconvert.graphs.program.places import stored_by
from rnnconvert.recognition.computed import Computed, RecognisedLayers
from rnnconvert.recognition.flow import ReadProgram, RecurrentCall
from rnnconvert.recognition.lowered import recognise_in
from rnnconvert.recognition.stacked import ReadStacks, placed

_STEP = re.compile(r"_?t\d{1,6}_+(i2h|h2h)\Z")
"""What unrolling a cell adds to its name. Source: gluon/rnn/rnn_cell.py and rnn/rnn_cell.py (1.9.1)."""


@dataclass(frozen=True)
class ReadSymbol(ReadStacks):
    """A graph as a program.

    again  reads it again with the number of axes that inputs have, by their names
    """

    again: Callable[[Mapping[str, int]], ReadProgram | None] = lambda ranks: None


@dataclass
class SymbolReading:
    """A graph with its layers.

    calls    what each layer of the parameters receives
    program  the graph; None for one whose nodes stand in no order
    others   layers that its operators compute of arrays which bear no layer's names
    """

    calls: dict[str, tuple[Call, ...]]
    program: ReadSymbol | None = None
    others: dict[str, Computed] = field(default_factory=dict)

    def stored_by(self, layer: Computed) -> set[str]:
        """Return the names of the arrays that a layer is computed of."""
        return set() if self.program is None else stored_by(self.program.scopes[0], layer.nodes)


def read(
    path: Path, layers: Mapping[str, tuple[Recurrent, Sequence[str]]], arrays: NamedArrays, ranks: Mapping[str, int] = MappingProxyType({})
) -> SymbolReading:
    """Return the graph of a file with its layers.

    layers  the layers of the parameters, each with the names of its arrays
    arrays  the arrays of the file next to the graph by the names of variables, each with its name there
    ranks   how many axes inputs have that the graph does not show

    Raises UnreadableError for a file that is not a graph.
    """
    owned = {array: name for name, (_, names) in layers.items() for array in names}
    with symbol.opened(path) as nodes:
        stated = {index: symbol.operator(node, nodes) for index, node in enumerate(nodes)}
    owners = {index: owned[array] for index, names in stated.items() for array in names if array in owned}
    homes: list[tuple[str, RecurrentCall]] = []
    lowerings: list[SymbolLowering] = []

    def lower() -> Program:
        lowering = SymbolLowering(symbol.graph_of(path), arrays, {index: layers[name][0] for index, name in owners.items()}, ranks)
        program = lowering.program(path, path.stat().st_size + sum(array.nbytes for _, array in arrays.values()))
        homes.extend(lowering.stacks)
        lowerings.append(lowering)
        return program

    looked, calls = recognise_in(lower, _STEP, homes)
    result = SymbolReading(calls)
    if looked.scope is not None:
        in_file = {arrays[array][0]: name for array, name in owned.items() if array in arrays}
        computed = _computed(looked, in_file, layers, result)

        def again(ranks: Mapping[str, int]) -> ReadProgram | None:
            return read(path, layers, arrays, ranks).program

        places, singles = placed(looked.scopes[0], lowerings[0].calls)
        result.program = ReadSymbol(looked.scopes, places, computed, {}, singles, again)
    unseen = Call(Unknown(f"{path.name} does not show it"))
    result.calls = {name: calls.get(name, (unseen,)) for name in layers}
    return result


def _computed(
    looked: RecognisedLayers, owned: Mapping[str, str], layers: Mapping[str, tuple[Recurrent, Sequence[str]]], result: SymbolReading
) -> dict[str, Computed]:
    """Return the unrolled cells of a graph, each by the name of the layer whose arrays it reads, and note what it receives."""
    main, computed = looked.scopes[0], dict[str, Computed]()
    for label, layer in looked.layers.items():
        names = {owned[name] for name in stored_by(main, layer.nodes) if name in owned}
        name = names.pop() if len(names) == 1 else ""
        if name and layers[name][0].num_layers == layers[name][0].num_directions == 1:
            result.calls[name] = (*result.calls.get(name, ()), *layer.stack.calls)
            label = name if name not in computed else label
        elif not names:
            result.others[label] = layer
        computed[label] = layer.renamed(label)
    return computed
