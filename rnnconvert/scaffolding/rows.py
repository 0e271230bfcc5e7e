"""Models in the making whose layers stand in a row: they read (batch, time, values), or whole numbers (batch, time)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rnnconvert.core.arrays import Array
from rnnconvert.core.errors import RefusedError, UsageError
from rnnconvert.graphs.sizes import Dims, open_size
from rnnconvert.models.model import Unit
from rnnconvert.scaffolding import kinds, operations
from rnnconvert.scaffolding.building import Builder
from rnnconvert.scaffolding.description import DescribedModel, Description
from rnnconvert.scaffolding.loops import loop_node
from rnnconvert.scaffolding.recurrent import recurrent
from rnnconvert.scaffolding.tensors import SourceTensor


class LayerRow(Builder):
    """A model in the making, of layers in a row.

    begin   its input
    layers  those with weights, by name
    finals  what the last recurrent layer gives, and its last hidden states, one for each direction; None before there is one
    """

    begin: SourceTensor

    def __init__(self, width: int) -> None:
        """Begin with an input of so many values a step; 0 for whole numbers, which an embedding reads."""
        super().__init__(DescribedModel("model"))
        sizes: Dims = (open_size("batch"), open_size("time"))
        self.begin = self.input("x", (*sizes, width), "float32") if width else self.input("x", sizes, "int64")
        for dim, role in zip(sizes, ("batch", "time"), strict=True):
            self.call(dim, role)
        self.layers: dict[str, tuple[str, ...]] = {}
        self.finals: tuple[SourceTensor, Sequence[SourceTensor]] | None = None

    def dense(self, unit: Unit, x: SourceTensor, units: int, bias: bool) -> SourceTensor:
        """Add a dense layer."""
        self.layers[unit.name] = (unit.name,)
        return self.add_layer(kinds.Dense(units=units, bias=bias), [x], (*x.dims[:-1], units), layer=unit.name)

    def recurrent(self, units: Sequence[Unit], x: SourceTensor) -> SourceTensor:
        """Add the layers of a stack, one after the other, with the initial states that they hold.

        Raises UsageError for a layer that gives two sequences, RefusedError for one whose weights are not a recurrent layer's.
        """
        for unit in units:
            self.layers[unit.name] = (unit.name,)
            if unit.stack is None:
                raise RefusedError("its weights", "a model with weights", "they are not those of a recurrent layer", "", unit.name)
            states = [
                self._for_batch(np.asarray(direction.arrays[part, ""]), x)
                for direction in unit.stack.layers[0].directions
                for part in ("initial_hidden", "initial_cell")
                if (part, "") in direction.arrays
            ]
            (layer,) = unit.stack.layers
            ways = len(layer.directions)
            if ways > 1 and layer.merge == "none":
                raise UsageError(f"{unit.name}: its directions are not joined, and the next layer of a chain reads one sequence")
            x, finals = recurrent(self, unit, x, states, merge=layer.merge if ways > 1 else "concat")
            if ways == 1 and unit.stack.first.reverse and unit.stack.output_order == "time":
                x = self.flip(x, 1)
            self.finals = x, finals[:: len(finals) // ways]
        return x

    def both_ways(self, forward: Sequence[Unit], backward: Sequence[Unit], x: SourceTensor) -> SourceTensor:
        """Add two stacks as the directions of one: the second reads from the end, and what they give stands side by side."""
        outputs: list[SourceTensor] = []
        finals: list[SourceTensor] = []
        turns = backward[0].stack is not None and backward[0].stack.first.reverse  # such a layer turns its sequences by itself
        for units, from_end in ((forward, False), (backward, not turns)):
            y = self.recurrent(units, self.flip(x, 1) if from_end else x)
            assert self.finals is not None
            finals += self.finals[1]
            outputs.append(self.flip(y, 1) if from_end else y)
        y = self.concatenate(outputs, 2)
        self.finals = y, finals
        return y

    def multiplicative(self, units: Sequence[Unit], x: SourceTensor, size: int, gates: str) -> SourceTensor:
        """Add a multiplicative LSTM, a loop over the steps: m = (Wmx x) * (Wmh h), and an LSTM of x and m.

        units  its products: of x and of m for the gates, of x and of h for m
        size   how many units it has
        gates  the order of its gates
        """
        begins = [SourceTensor((x.dims[0], size), name=f"first_{word}", filled=0) for word in "hc"]
        for begin in begins:
            self.read(begin)
        of_x, of_m, factor_of_x, factor_of_h = units
        products = [self.transpose(self._product(*pair, x), [1, 0, 2]) for pair in ((of_x, 4 * size), (factor_of_x, size))]
        around, where = self.scope, self._where
        self.scope, self._where = step, _ = DescribedModel(around.name, around.path), {}
        dims = (x.dims[0], size)
        h, c, x_t, m_t = (self.input(*pair, "float32") for pair in (("h", dims), ("c", dims), ("x", (dims[0], 4 * size)), ("m", dims)))
        m = self.elementwise("multiply", [m_t, self._product(factor_of_h, size, h)])
        parts = operations.parts(self, self.elementwise("add", [x_t, self._product(of_m, 4 * size, m)]), 1, [size] * 4)
        gate = {
            word: operations.activation(self, part, "tanh" if word == "g" else "sigmoid") for word, part in zip(gates, parts, strict=True)
        }
        remembered, new = self.elementwise("multiply", [gate["f"], c]), self.elementwise("multiply", [gate["i"], gate["g"]])
        c = self.elementwise("add", [remembered, new])
        h = self.elementwise("multiply", [gate["o"], operations.activation(self, c, "tanh")])
        step.outputs = tuple(self.read(value) for value in (h, c, h))
        self.scope, self._where = around, where
        last, _, every = loop_node(self, step, x.dims[1], [begins, products, []], [h, c], [h])
        y = self.transpose(every, [1, 0, 2])
        self.finals = y, [last]
        return y

    def _product(self, unit: Unit, units: int, x: SourceTensor) -> SourceTensor:
        return self.dense(unit, x, units, len(unit.names) > 1)

    def _for_batch(self, state: Array, x: SourceTensor) -> SourceTensor:
        first = self.add(kinds.Constant(numbers=state.reshape(1, -1).astype(np.float32)), [], (1, state.size), "float32", name="state")
        return self.expand(first, (x.dims[0], state.size))

    def width(self, x: SourceTensor) -> int:
        """Return how many values a step has."""
        width = x.dims[-1]
        assert isinstance(width, int)
        return width

    def layer(self, kind: kinds.Kind, unit: Unit, x: SourceTensor, dims: Dims, dtype: str = "") -> SourceTensor:
        """Add a layer of another kind."""
        self.layers[unit.name] = (unit.name,)
        return self.add_layer(kind, [x], dims, dtype, layer=unit.name)

    def prelu(self, unit: Unit, x: SourceTensor, slopes: int) -> SourceTensor:
        """Add slopes below zero: one for all values of a step, or one for each."""
        return self.layer(kinds.PReLU.along(x.rank - 1, slopes, x.rank), unit, x, x.dims)

    def plus_input(self, x: SourceTensor, begin: SourceTensor) -> SourceTensor:
        """Add the first values of an input to what the last layer gives, as many as that has."""
        return self.elementwise("add", [x, self.slice(begin, 2, 0, x.dims[-1], 1)])

    def times(self, x: SourceTensor, factor: float, name: str) -> SourceTensor:
        """Add a factor."""
        return self.add(kinds.Elementwise(operation="multiply", operands=(("input", 0), ("number", factor))), [x], x.dims, name=name)

    def described(self, x: SourceTensor, notes: Sequence[str] = ()) -> Description:
        """Return the model that ends in a tensor."""
        self.scope.outputs = (self.read(x),)
        return Description(self.scope, tuple(notes), self.layers, words=self.words, roles=self.roles)
