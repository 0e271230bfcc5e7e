"""A Keras model run whole: each call of its recurrent layers is recorded as the model makes it.

Keras 3 and tf_keras alike: a layer's `call` is wrapped, which Layer.__call__ calls with the mask and the states that the
model hands on. Sources: keras/src/layers/layer.py and keras/src/layers/rnn/*.py (3.15); tf_keras/src/engine/base_layer.py (2.21).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

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
    slots = [(number, way, count(cell)) for way, one in enumerate(directions(layer)) for number, cell in enumerate(_cells(one))]

    def recorded(*arguments: Any, **keywords: Any) -> Any:
        given = signature.bind(*arguments, **keywords).arguments
        given = {**given, **given.get("kwargs", {})}
        outputs = call(*arguments, **keywords)
        x = given.get("sequences", given.get("inputs"))
        states = flat(given.get("initial_state"))
        if isinstance(x, (list, tuple)):  # Keras 2 hands states on behind the sequence
            x, states = x[0], states or flat(x[1:])
        several = list(outputs) if isinstance(outputs, (list, tuple)) else [outputs]
        apart = 2 if len(directions(layer)) == 2 and layer.merge_mode is None else 1
        y = np.concatenate([array(one) for one in several[:apart]], axis=-1)
        finals = flat(several[apart:])
        mask = _first(given.get("mask"))
        witness.record(
            name,
            _time_first(array(x)),
            y=_time_first(y) if y.ndim == 3 else None,
            last=y if y.ndim == 2 else None,
            mask=None if mask is None else array(mask).astype(bool).T,
            states=_by_kind(slots, [array(one) for one in states]),
            finals=_by_kind(slots, [array(one) for one in finals]),
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
    found: dict[tuple[int, int], list[Array]] = {}
    for number, way, count in slots:
        found[number, way] = [states.pop(0) for _ in range(count)]
    ordered = [found[key] for key in sorted(found)]
    return [one[0] for one in ordered], [one[1] for one in ordered if len(one) > 1]


def inputs(model: Any, witness: Any) -> list[Any]:
    """Return random inputs of a model in the order of its `inputs`; what its embeddings and masks leave out comes last.

    Raises NotImplementedError for a model that does not state its inputs.
    """
    try:
        stated = list(model.inputs or ())
    except (AttributeError, ValueError):
        stated = []
    if not stated:
        raise NotImplementedError("the model does not state its inputs")
    layers = list(_layers(model))
    tables = [int(one.input_dim) for one in layers if type(one).__name__ == "Embedding"]
    masks = [getattr(one, "mask_value", None) for one in layers if type(one).__name__ == "Masking"]
    zero = any(getattr(one, "mask_zero", False) for one in layers)
    made = []
    for one in stated:
        dtype = getattr(one.dtype, "name", None) or str(one.dtype)
        whole = "int" in dtype or bool(tables and len(one.shape) == 2)
        mask = next(iter(masks), None)
        padding = (0 if zero else None) if whole or len(one.shape) == 2 else mask
        drawn = witness.draw(list(one.shape), "int32" if whole else dtype, min(tables, default=None), padding)
        made.append(drawn.astype(dtype) if whole and dtype != "bfloat16" else drawn)
    return made


def _layers(model: Any) -> Iterator[Any]:
    """Yield the layers of a model and of those in it."""
    for layer in getattr(model, "layers", ()):
        yield layer
        yield from _layers(layer)


def forget(model: Any) -> None:
    """Let stateful layers begin anew."""
    for layer in _layers(model):
        for one in (layer, *(directions(layer) if hasattr(layer, "forward_layer") else ())):
            if getattr(one, "stateful", False):
                for name in ("reset_state", "reset_states"):
                    if hasattr(one, name):
                        getattr(one, name)()
                        break


def chosen(known: Sequence[tuple[list[str], Any]], names: Sequence[str], witness: Any) -> Mapping[str, Any]:
    """Return layers by the names that are asked for; one that is missing is explained.

    known  each recurrent layer with the names that it may have
    """
    found = {}
    for name in names:
        fitting = {id(layer): layer for labels, layer in known if name in labels}
        if len(fitting) == 1:
            (found[name],) = fitting.values()
        else:
            witness.explain(name, f"the model has {len(fitting) or 'no'} recurrent layers {name!r}")
    return found
