"""A Keras model run whole: each call of its recurrent layers is recorded as the model makes it.

Keras 3 and tf_keras alike: a layer's `call` is wrapped, which Layer.__call__ calls with the mask and the states that the
model hands on. Sources: keras/src/layers/layer.py and keras/src/layers/rnn/*.py (3.15); tf_keras/src/engine/base_layer.py (2.21).
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from .run_exact import shut_gates
from .run_model import cells_of, directions

Array = np.ndarray


def watch(
    layer: Any, name: str, witness: Any, array: Callable[[Any], Array], flat: Callable[[Any], list[Any]], count: Callable[[Any], int]
) -> None:
    """Have a layer record its calls.

    array  makes numpy's arrays of a backend's tensors
    flat   returns nested states in order
    count  returns how many states a cell has
    """
    call = layer.call
    signature = inspect.signature(call)
    slots = [(number, way, count(cell)) for way, direction in enumerate(directions(layer)) for number, cell in enumerate(_cells(direction))]

    def recorded(*arguments: Any, **keywords: Any) -> Any:
        bound = signature.bind(*arguments, **keywords).arguments
        bound = {**bound, **bound.get("kwargs", {})}
        outputs = call(*arguments, **keywords)
        x = bound.get("sequences", bound.get("inputs"))
        states = flat(bound.get("initial_state"))
        if isinstance(x, (list, tuple)):  # Keras 2 hands states on behind the sequence
            x, states = x[0], states or flat(x[1:])
        several = list(outputs) if isinstance(outputs, (list, tuple)) else [outputs]
        apart = 2 if len(directions(layer)) == 2 and layer.merge_mode is None else 1
        y = np.concatenate([array(tensor) for tensor in several[:apart]], axis=-1)
        finals = flat(several[apart:])
        mask = _first(bound.get("mask"))
        witness.record(
            name,
            _time_first(array(x)),
            _time_first(y) if y.ndim == 3 else y,
            mask=None if mask is None else array(mask).astype(bool).T,
            states=_by_kind(slots, [array(state) for state in states]),
            finals=_by_kind(slots, [array(final) for final in finals]),
        )
        return outputs

    layer.call = recorded


def _cells(way: Any) -> list[Any]:
    return cells_of(way) if hasattr(way, "cell") else [way]


def _first(mask: Any) -> Any:
    if isinstance(mask, (list, tuple)):
        return mask[0] if mask else None
    return mask


def _time_first(array: Array) -> Array:
    return array.swapaxes(0, 1)


def _by_kind(slots: Sequence[tuple[int, int, int]], states: list[Array]) -> tuple[list[Array] | None, list[Array] | None]:
    """Return hidden and cell states, cell by cell and of each its directions; Keras has one direction after the other."""
    if len(states) != sum(count for *_, count in slots):
        return None, None
    result: dict[tuple[int, int], list[Array]] = {}
    for number, way, count in slots:
        result[number, way] = [states.pop(0) for _ in range(count)]
    ordered = [result[key] for key in sorted(result)]
    return [group[0] for group in ordered], [group[1] for group in ordered if len(group) > 1]


def stated(model: Any, witness: Any) -> list[list[Array]]:
    """Return the inputs of each call of a model, in the order of its `inputs`; what its embeddings and masks leave out comes last.

    Raises NotImplementedError for a model that does not state its inputs, and for inputs of others that are handed in.
    """
    try:
        tensors = list(model.inputs or ())
    except (AttributeError, ValueError):
        tensors = []
    if not tensors:
        raise NotImplementedError("the model does not state its inputs")
    layers = list(_layers(model))
    tables = [int(layer.input_dim) for layer in layers if type(layer).__name__ == "Embedding"]
    masks = [getattr(layer, "mask_value", None) for layer in layers if type(layer).__name__ == "Masking"]
    zero = any(getattr(layer, "mask_zero", False) for layer in layers)
    types = [getattr(tensor.dtype, "name", None) or str(tensor.dtype) for tensor in tensors]
    integral, inputs = [], []
    for tensor, dtype in zip(tensors, types):
        integral.append("int" in dtype or bool(witness.handed is None and tables and len(tensor.shape) == 2))
        mask = next(iter(masks), None)
        padding = (0 if zero else None) if integral[-1] or len(tensor.shape) == 2 else mask
        inputs.append(
            witness.input(tensor.name, list(tensor.shape), "int32" if integral[-1] else dtype, min(tables, default=None), padding)
        )
    return [
        [array.astype(dtype) if rows and dtype != "bfloat16" else array for array, dtype, rows in zip(call, types, integral)]
        for call in witness.calls(inputs)
    ]


def output_names(model: Any, outputs: Mapping[str, Array]) -> dict[str, Array]:
    """Return outputs under the names of the layers that give them, where the model gives a list of those."""
    names = list(getattr(model, "output_names", None) or ())
    flat = set(outputs) <= {"output", *map(str, range(len(outputs)))}
    return dict(zip(names, outputs.values())) if flat and len(names) == len(set(names)) == len(outputs) else dict(outputs)


def shaking(model: Any, cells: Sequence[Any], ops: Any) -> Callable[[Callable[[Array], Array]], None]:
    """Return a function that replaces each weight of a model by a given function's value for it, and has its gates be off, too.

    cells  the cells of its LSTMs and GRUs
    ops    has the functions sign and cos of their framework
    """
    begun = [np.asarray(weight) for weight in model.get_weights()]
    undo: list[Callable[[], None]] = []
    seeds = itertools.count()

    def shake(move: Callable[[Array], Array]) -> None:
        model.set_weights([move(weight) if weight.dtype.kind == "f" else weight for weight in begun])
        while undo:
            undo.pop()()
        undo.append(shut_gates(cells, ops, next(seeds)))

    return shake


def _layers(model: Any) -> Iterator[Any]:
    """Yield the layers of a model and of those in it."""
    for layer in getattr(model, "layers", ()):
        yield layer
        yield from _layers(layer)


def forget(model: Any) -> None:
    """Let stateful layers begin anew."""
    for layer in _layers(model):
        for part in (layer, *(directions(layer) if hasattr(layer, "forward_layer") else ())):
            if getattr(part, "stateful", False):
                for name in ("reset_state", "reset_states"):
                    if hasattr(part, name):
                        getattr(part, name)()
                        break


def chosen(labelled: Sequence[tuple[list[str], Any]], names: Sequence[str], witness: Any) -> Mapping[str, Any]:
    """Return layers by the names that are asked for; one that is missing is explained.

    labelled  each recurrent layer with the names that it may have
    """
    result = {}
    for name in names:
        fitting = {id(layer): layer for labels, layer in labelled if name in labels}
        if len(fitting) == 1:
            (result[name],) = fitting.values()
        else:
            witness.explain(name, f"the model has {len(fitting) or 'no'} recurrent layers {name!r}")
    return result
