"""Elements pushed through a graph, at lengths that are chosen for the axes that the file leaves open."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rnnconvert.core.arrays import Array
from rnnconvert.core.limits import PUSHED_ELEMENTS, PUSHED_OPERATORS
from rnnconvert.core.malformed import MALFORMED, passes
from rnnconvert.graphs import elements, lengths
from rnnconvert.graphs.elements import BITS, Elements, ElementSource
from rnnconvert.graphs.graph import Graph, GraphNode, GraphValue, LayerCall
from rnnconvert.graphs.operators import Applied, Casts, ChangesError, Chooses, Computes, Measures, Moves, Operator, UnfitError

_INTEGERS = 1 << 12
"""The most numbers of a constant that is computed from shapes and from other constants."""


class Trace:
    """One pass over a graph.

    axes     the lengths that the names of axes stand for
    shape    time and batch of a layer's sequence where neither its input nor the file tells them
    others   passes at other lengths, of which the first that takes them tells which numbers are lengths; without any, numbers are
             followed as they are at these lengths

    What it notes of operators on the way:

    moving   those that moved elements, measured shapes or computed constants
    changes  how others change values, where their dialect says it
    unfit    why others take no inputs of these shapes
    chosen   which input others give, by its place
    integers numbers that places and shapes are stated by
    """

    def __init__(self, graph: Graph, axes: Mapping[str, int], shape: tuple[int, int], others: Sequence[Trace] = ()) -> None:
        self._graph, self._axes, self._shape, self._others = graph, axes, shape, others
        self._values: dict[GraphValue, Elements | Array] = {}
        self._formulas: dict[GraphValue, Array] = {}
        # Zeros that an operator puts between elements, as padding does, come from source 0.
        self.sources: list[ElementSource] = [ElementSource(GraphValue("constants"))]
        self.moving: set[GraphNode] = set()
        self.changes: dict[GraphNode, str] = {}
        self.unfit: dict[GraphNode, str] = {}
        self.chosen: dict[GraphNode, int] = {}
        self.integers: set[int] = set()
        self._left, self._nodes = PUSHED_ELEMENTS, PUSHED_OPERATORS

    def of(self, value: GraphValue) -> Elements | Array:
        """Return a value's elements; an array where no input of the model decides it."""
        open_values: set[GraphValue] = set()
        waiting = [value]
        while waiting:
            current = waiting[-1]
            if current in self._values:
                waiting.pop()
                continue
            lacking = [read for read in self._read(current) if read not in self._values and read not in open_values]
            if lacking and current not in open_values:
                open_values.add(current)
                waiting += lacking
            else:  # what is still lacking here depends on itself: the file is damaged there
                waiting.pop()
                self._give(current)
        return self._values[value]

    def _read(self, value: GraphValue) -> list[GraphValue]:
        """Return the values that have to be known first."""
        if value.constant is not None or value.node is None:
            return []
        if isinstance(value.node, LayerCall):
            return [value.node.sequence[0]]
        return [read for read in value.node.inputs if read is not None]

    def _give(self, value: GraphValue) -> None:
        if value.constant is not None:
            numbers = value.constant() if callable(value.constant) else value.constant
            if numbers is not None:
                self._values[value] = np.asarray(numbers)
                return
        if isinstance(value.node, LayerCall):
            self._call(value.node)
        elif value.node is not None:
            self._apply(value.node)
        if value not in self._values:
            self._values[value] = self._opaque(ElementSource(value.node or value), self._stated(value))

    def _stated(self, value: GraphValue) -> tuple[int, ...] | None:
        if value.dims is None or None in value.dims:
            return None
        return tuple(self._axes[axis] if isinstance(axis, str) else int(axis or 0) for axis in value.dims)

    def _opaque(self, source: ElementSource, shape: Sequence[int] | None) -> Elements:
        """Return a value whose elements are all alike."""
        self.sources.append(source)
        number = np.int64((len(self.sources) - 1) << BITS)
        # A value of unknown shape, or of too many elements to push, has no places for them.
        large = shape is None or math.prod(shape) > PUSHED_ELEMENTS
        return Elements(None if large else np.broadcast_to(number, tuple(shape or ())))

    def _call(self, call: LayerCall) -> None:
        """Set the outputs of a layer, which are as long as its sequence."""
        time, batch = self._shape
        value, axes = call.sequence
        read = self._values.get(value)
        origins = read.origins if isinstance(read, Elements) else read
        stated = None if origins is None else elements.canonical(origins, axes)
        if stated is not None:
            time, batch = stated.shape[:2]
        else:  # what has no axis for it is of one step, or of one sequence
            time, batch = (length if letter in axes else 1 for letter, length in (("t", time), ("b", batch)))
        for output, axes in call.outputs:
            size = time * batch * call.sizes.hidden * call.sizes.directions
            if self._spend(size):
                number = len(self.sources)
                origins = elements.sequence(number, (time, batch), call, axes)
                self.sources.append(ElementSource(call, shape=(time, batch)))
                self._values[output] = Elements(origins, call.sizes.dtype, call.sizes.dtype)
            else:
                self._values[output] = self._opaque(ElementSource(call, "a sequence too long to follow"), None)
        for output, words in call.states:
            self._values[output] = self._opaque(ElementSource(call, words), self._stated(output))

    def _spend(self, size: int) -> bool:
        self._left -= size
        return self._left >= 0

    def _apply(self, node: GraphNode) -> None:
        inputs = [None if read is None else self._values.get(read) for read in node.inputs]
        operator = self._graph.dialect.get(node.kind)
        self._nodes -= 1
        if self._nodes < 0 or any(read is not None and value is None for read, value in zip(node.inputs, inputs, strict=True)):
            return
        try:
            if isinstance(operator, Moves):
                results = self._move(node, operator, inputs)
            elif isinstance(operator, Measures):
                shapes = [value.origins if isinstance(value, Elements) else value for value in inputs]
                results = None if shapes[0] is None else self._listed(operator.function(_applied(node, shapes)))
            elif isinstance(operator, Casts):
                results = [self._cast(node, operator, inputs)]
            elif isinstance(operator, Chooses):
                results = [self._choose(node, inputs)]
            else:
                results = self._compute(node, operator, inputs)
            formulas = self._followed(node, operator, results or ())
        except ChangesError as change:
            self.changes[node], results, formulas = str(change), None, ()
        except MALFORMED as problem:
            if passes(problem):
                raise
            self.unfit[node], results, formulas = str(problem), None, ()
            # Lengths that fit may be multiples of the numbers at which an operator failed.
            self.integers |= set(getattr(problem, "numbers", ()))
        computes = isinstance(operator, Computes) and not (results and isinstance(results[0], np.ndarray))
        if results is not None and not computes and not isinstance(operator, Chooses):
            self.moving.add(node)
        for value, result in zip(node.outputs, results or (), strict=False):
            if value is not None:
                self._values[value] = result
        for value, entries in zip(node.outputs, formulas, strict=False):
            if value is not None and entries is not None:
                self._formulas[value] = entries

    def _followed(self, node: GraphNode, operator: Operator | None, results: Sequence[Any]) -> Sequence[Array | None]:
        """Return the formulas of numbers that lengths decide. Raises ChangesError for what is known at the lengths tried alone."""
        if not all(isinstance(result, np.ndarray) for result in results):
            return ()
        if isinstance(operator, Measures):
            return [self._measured(value, result) for value, result in zip(node.outputs, results, strict=False)]
        formulas = [None if read is None else self._formulas.get(read) for read in node.inputs]
        if not results or all(entries is None for entries in formulas):
            return ()
        if isinstance(operator, Chooses):
            return [formulas[self.chosen[node]]]
        numbers = [None if read is None else self._values.get(read) for read in node.inputs]
        if isinstance(operator, Casts):
            entries: list[Array | None] = [formulas[0]]
        elif isinstance(operator, Moves):
            entries = self._moved(node, operator, numbers, formulas, results)
        elif isinstance(operator, Computes) and operator.formula is not None:
            read = [_entries(array, entries) for array, entries in zip(numbers, formulas, strict=True)]
            entries = [operator.formula(_applied(node, read), results[0])]
        else:
            raise ChangesError(f"{node.label} of numbers that depend on lengths")
        for result, computed in zip(results, entries, strict=True):
            if computed is not None and not (lengths.fits(computed, result.dtype) and lengths.agree(computed, result)):
                raise ChangesError(f"{node.label} of a length, to {result.dtype},")
        return entries

    def _measured(self, value: GraphValue | None, numbers: Array) -> Array | None:
        if value is None or not self._others:
            return None
        for other in self._others:
            others = other.of(value)
            if isinstance(others, np.ndarray) and others.ndim == numbers.ndim:
                # A length that is the same in both passes could not be told from a constant.
                axes = [*zip((*self._axes.values(), *self._shape), (*other._axes.values(), *other._shape), strict=True)]
                return lengths.measured(numbers, others, {lengths.axis_name(*pair): pair for pair in axes if pair[0] != pair[1]})
        raise UnfitError("lengths that no other lengths fit")

    def _moved(
        self, node: GraphNode, operator: Moves, numbers: Sequence[Any], formulas: Sequence[Array | None], results: Sequence[Array]
    ) -> list[Array | None]:
        """Return the formulas of numbers that an operator moves."""
        data = [place for place, array in enumerate(numbers) if array is not None and operator.carries(place, len(numbers))]
        carried = (_entries(numbers[place], formulas[place]) for place in data)
        read = [lengths.constants(np.zeros(1)), *(entries for entries in carried if entries is not None)]
        first = np.cumsum([entries.size for entries in read])
        arrays = list(numbers)
        for place, start in zip(data, first[:-1], strict=True):
            # The places of numbers are moved in their stead, and show where each one comes from.
            arrays[place] = start + np.arange(numbers[place].size).reshape(numbers[place].shape)
        origins = self._listed(operator.function(_applied(node, arrays)))
        every = np.concatenate([entries.reshape(-1) for entries in read])
        # Constants at places that lengths decide: at others they are unlike these.
        cut = any(entries is not None and not lengths.are_constant(entries) for place, entries in enumerate(formulas) if place not in data)
        if cut and len({*every[1:]}) > 1 and any(formulas[place] is None for place in data):
            return [np.full(result.shape, None, object) for result in results]
        return [np.where(places == 0, lengths.constants(result), every[places]) for places, result in zip(origins, results, strict=True)]

    @staticmethod
    def _listed(results: Array | Sequence[Array]) -> list[Any]:
        return [np.asarray(results)] if isinstance(results, np.ndarray | np.generic) else list(results)

    def _move(self, node: GraphNode, operator: Moves, inputs: Sequence[Elements | Array | None]) -> list[Any] | None:
        data = [place for place, value in enumerate(inputs) if value is not None and operator.carries(place, len(inputs))]
        for place, value in enumerate(inputs):
            if isinstance(value, np.ndarray) and place not in data and value.size <= _INTEGERS and value.dtype.kind in "iu":
                self.integers |= {int(number) for number in value.reshape(-1)}
            key = node.inputs[place]
            entries = None if place in data or key is None else self._formulas.get(key)
            if (isinstance(value, Elements) and place not in data) or (entries is not None and not lengths.are_products(entries)):
                raise ChangesError(f"{node.label} at places that are computed")
        moved = [inputs[place] for place in data if isinstance(inputs[place], Elements)]
        if not moved:
            return self._constant(node, operator.function, inputs)
        if any(isinstance(value, Elements) and value.origins is None for value in moved):
            return None
        # The operator moves numbers that name elements, whatever the elements are.
        arrays = [_origins(value) if place in data else value for place, value in enumerate(inputs)]
        results = self._listed(operator.function(_applied(node, arrays)))
        # A view of few elements may stand for more than are ever looked at.
        large = any(result.size > PUSHED_ELEMENTS for result in results)
        if large or not self._spend(sum(result.size for result in results if result.flags.owndata)):
            return None
        kinds = [(value.exact, value.dtype) for value in moved if isinstance(value, Elements)]
        exact, dtype = kinds[0] if len(set(kinds)) == 1 else (None, None)
        return [Elements(result, exact, dtype) for result in results]

    def _constant(self, node: GraphNode, function: Any, inputs: Sequence[Any]) -> list[Any] | None:
        """Compute constants, as long as they are few numbers: shapes, axes, indices."""
        if function is None or any(value is not None and value.size > _INTEGERS for value in inputs):
            return None
        results = self._listed(function(_applied(node, inputs)))
        return results if all(result.size <= _INTEGERS for result in results) else None

    def _cast(self, node: GraphNode, operator: Casts, inputs: Sequence[Elements | Array | None]) -> Any:
        value, dtype = inputs[0], operator.dtype(_applied(node, [None] * len(inputs)))
        if isinstance(value, np.ndarray):
            return value.astype(dtype)
        assert value is not None
        # A narrower type that cannot hold the elements would round them.
        if value.exact is None or not elements.is_float(dtype) or not elements.holds(dtype, value.exact):
            raise ChangesError(f"{node.label} to {dtype}")
        return Elements(value.origins, value.exact, dtype)

    def _choose(self, node: GraphNode, inputs: Sequence[Elements | Array | None]) -> Any:
        number, choices = inputs[0], inputs[1:]
        formula = None if node.inputs[0] is None else self._formulas.get(node.inputs[0])
        if isinstance(number, np.ndarray) and number.size == 1 and (formula is None or lengths.are_constant(formula)):
            place = int(number.reshape(-1)[0])
            if 0 <= place < len(choices):
                self.chosen[node] = place + 1
                return choices[place]
        # Which branch runs is open, and does not matter if all give the same.
        if not all(_same(choices[0], value) for value in choices[1:]):
            raise ChangesError(node.label)
        self.chosen[node] = 1
        return choices[0]

    def _compute(self, node: GraphNode, operator: Any, inputs: Sequence[Elements | Array | None]) -> list[Any] | None:
        if operator is not None and all(value is None or isinstance(value, np.ndarray) for value in inputs):
            results = self._constant(node, operator.function, inputs)
            if results is not None:
                return results
        if not isinstance(operator, Computes) or len(node.outputs) != 1:
            return None
        shapes = [value.origins if isinstance(value, Elements) else value for value in inputs if value is not None]
        if any(array is None for array in shapes):
            return None
        shape = operator.shape([array.shape for array in shapes if array is not None])
        return [self._opaque(ElementSource(node), shape)] if math.prod(shape) < 1 << BITS else None


def _same(first: Elements | Array | None, second: Elements | Array | None) -> bool:
    """Return whether two values are known to be the same."""
    if first is second:
        return first is not None
    if isinstance(first, Elements) and isinstance(second, Elements):
        traced = first.origins is not None and second.origins is not None and np.array_equal(first.origins, second.origins)
        # Elements of one operator or input have one number: which of them stand where is not known.
        return traced and bool((np.diff(np.sort(first.origins.reshape(-1))) > 0).all()) and first.exact == second.exact  # type: ignore[union-attr]
    return isinstance(first, np.ndarray) and isinstance(second, np.ndarray) and np.array_equal(first, second)


def _entries(numbers: Any, formulas: Array | None) -> Array | None:
    """Return formulas of numbers; of those that no length decides, the numbers."""
    return lengths.constants(numbers) if formulas is None and numbers is not None else formulas


def _origins(value: Elements | Array | None) -> Array | None:
    """Return a value's origins; constants come from source 0."""
    if isinstance(value, np.ndarray):
        return np.broadcast_to(np.int64(0), value.shape)
    return None if value is None else value.origins


def _applied(node: GraphNode, inputs: Sequence[Any]) -> Applied:
    return Applied(node.kind, inputs, node.attributes, len(node.outputs))
