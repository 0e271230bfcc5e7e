"""Live Keras layers as units of a transplant."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from rnnconvert.core.arrays import Array
from rnnconvert.core.errors import UnreadableError
from rnnconvert.core.weights import Direction, Recurrent
from rnnconvert.files.adapter import unique
from rnnconvert.formats.keras import heads
from rnnconvert.formats.keras.cells import CellArrays, CellPlace, StatedLayers
from rnnconvert.formats.keras.config import Era, activation
from rnnconvert.formats.keras.live import described, numbers, read_layer, version
from rnnconvert.formats.keras.model.entries import Entry, built_shape, entry, innermost
from rnnconvert.language import outline, registry
from rnnconvert.language.fitting import fit
from rnnconvert.models.differences import AS_FAR_AS_THE_KERNEL
from rnnconvert.models.model import Group, Unit, all_or_none
from rnnconvert.models.units import Owner, plain_units, units_of_ours

_RECURRENT_FACTS = {key: key for key in ("return_sequences", "stateful", "recurrent_dropout")} | {"dropout": "input_dropout"}
"""The settings of a recurrent layer that are compared, and their names: in other frameworks, dropout is between the layers of a stack."""


def variables_of(model: Any) -> dict[str, Any]:
    """Return the variables of a live model by the names that its arrays have here."""
    return {name: weight for _, _, named in layers_with_weights(model) for name, weight in named.items()}


def layers_with_weights(model: Any) -> Iterator[tuple[str, Any, dict[str, Any]]]:
    """Yield every layer that holds weights itself by its path, and these weights by names that no other weight has."""
    held_weights: dict[str, Any] = {}
    paths: set[str] = set()
    for path, layer, weights in _leaves(model):
        whole_numbers = type(layer).__name__ == "Parameter"  # what a scaffold has for an array of the model
        held = [weight for weight in weights if whole_numbers or str(weight.dtype).startswith(("float", "bfloat"))]
        if any(held_weights.get(f"{path}/{_relative(variable.path, layer)}", variable) is not variable for variable in held):
            path = unique(path, paths)
        named: dict[str, Any] = {}
        for weight in held:
            named[unique(f"{path}/{_relative(weight.path, layer)}", named)] = weight
        held_weights |= named
        paths |= {name.rpartition("/")[0] for name in named}
        yield path, layer, named


def _leaves(layer: Any, path: str = "") -> Iterator[tuple[str, Any, list[Any]]]:
    """Yield every layer that holds variables itself, by its path through the layers around it, and these variables."""
    inside = [] if _is_recurrent(layer) else _inner(layer, path)
    for child, name in inside:
        yield from _leaves(child, name)
    held = {id(weight) for child, _ in inside for weight in child.weights}
    weights = [weight for weight in layer.weights if id(weight) not in held]
    if weights:
        yield path or layer.name, layer, weights


def _inner(layer: Any, path: str) -> list[tuple[Any, str]]:
    """Return the layers that a layer is around, and their paths: a wrapper's goes by the wrapper's name."""
    below = list(dict.fromkeys([*(getattr(layer, "layers", None) or []), *getattr(layer, "_layers", [])]))
    around = getattr(layer, "layer", None) or getattr(layer, "cell", None)
    return [
        (child, path or layer.name) if child is around else (child, f"{path}/{child.name}".lstrip("/")) for child in below if child.weights
    ]


def _is_recurrent(layer: Any) -> bool:
    cell = getattr(layer, "cell", None)
    return type(layer).__name__ == "Bidirectional" or (cell is not None and type(cell).__name__ != "ConvLSTMCell")


def _relative(path: str, layer: Any) -> str:
    """Return a variable's path below its layer."""
    return path.partition(f"{layer.name}/")[2] or path


def live_units(path: str, layer: Any, arrays: dict[str, Array]) -> list[Unit]:
    ours = sys.modules.get("rnnconvert.formats.keras.module")
    if ours is not None and isinstance(layer, ours.OwnRecurrent):
        names = {name.rpartition("/")[2]: name for name in arrays}
        facts = {"batch_first": True}
        return units_of_ours(path, layer.recurrent(), outline.KERAS, names, facts, "OwnRecurrent")
    if _is_recurrent(layer):
        short = {name.removeprefix(f"{path}/"): array for name, array in arrays.items()}
        reading = read_layer(layer, {f"{layer.name}/{name}": array for name, array in short.items()})
        places = reading.read_as(StatedLayers).places
        return [
            unit
            for name, stack in reading.layers.items()
            for unit in recurrent_units(path, stack, places[name], entry(described(layer)), lambda n: f"{path}/{n.partition('/')[2]}")
        ]
    names = {name.rpartition("/")[2]: name for name in arrays}
    title = f"{type(layer).__name__}({layer.name!r})"
    settings = lookup(layer.get_config(), len(built_shape(layer.get_build_config()) or ()), Era(version()))
    class_name = heads.class_of(type(layer).__name__, layer.get_config()) if entry(described(layer)).built_in else FOREIGN
    return plain_units("keras", Owner(path, class_name, names, settings, title), arrays)


FOREIGN = "a user's own"
"""The class of a layer that is not Keras's own: what it does with its variables is unknown."""


def lookup(config: Mapping[str, Any], axes: int, era: Era) -> Callable[[str], Any]:
    """Return a lookup of a configuration's statements, in a form with the same meaning for all.

    axes  how many axes the layer's input has, 0 if unknown
    """

    def setting(key: str) -> Any:
        value = config.get(key)
        if key == "activation":
            return _function(value, era) if key in config else None
        if key == "output_padding" and key in config and value is None:
            return AS_FAR_AS_THE_KERNEL
        if key == "axis" and value is not None:
            several = value if isinstance(value, (list, tuple)) else [value]
            if any(isinstance(axis, bool) or not isinstance(axis, int) for axis in several):
                raise UnreadableError(
                    f"the layer {str(config.get('name'))!r}", f"its axis is {str(value)[:100]!r}, which does not name an axis"
                )
            counted = tuple(sorted(axis - axes if axis >= 0 else axis for axis in several))
            return counted if axes or all(axis < 0 for axis in several) else None
        return value

    return setting


def _function(value: Any, era: Era) -> str:
    """Return a function of a configuration; a user's own with all that is stated about it, code too."""
    function = activation(value, era)
    if function.known or not isinstance(value, Mapping) or isinstance(value.get("config"), str) or " with " in function.name:
        return str(function)
    return f"{function.name or 'a function'} with {dict(value)}"


def recurrent_units(name: str, stack: Recurrent, place: CellPlace, where: Entry | None, full: Any = str) -> list[Unit]:
    """Return a layer, or the layers of stacked cells; two directions that meet only at the end are one layer."""
    facts = _facts(where)
    class_name = where.class_name if where is not None else ""
    if stack.num_layers > 1 and stack.num_directions > 1:
        return [Unit(name, stack=stack.replace(name=name), facts=facts, title=class_name)]
    units = []
    for number, layer in enumerate(stack.layers):
        unit_name = name if stack.num_layers == 1 else f"{name}[{number}]"
        groups = tuple(_group(place.cells[number, way], way, direction, full) for way, direction in enumerate(layer.directions))
        order = stack.output_order if number == stack.num_layers - 1 else "time"
        single = stack.replace(name=unit_name, layers=(layer,), output_order=order)
        units.append(Unit(unit_name, stack=single, groups=groups, facts=facts, title=class_name))
    return units


def _group(cell: CellArrays, way: int, direction: Direction, full: Any) -> Group:
    shapes = {local: tuple(array.shape) for local, array in cell.arrays.items()}
    layouts = registry.layouts_of("keras")
    of_cell = [x for x in layouts if (x.kind, x.reset_after) == (direction.cell.kind, direction.cell.reset_after)]
    layout = next(layout for layout in of_cell if fit(layout, shapes) is not None)
    return Group(layout, (way,), {local: full(name) for local, name in zip(cell.arrays, cell.names, strict=True)})


def _facts(where: Entry | None) -> dict[str, Any]:
    if where is None:
        return {}
    where = innermost(where, ("Bidirectional", "TimeDistributed"))
    return {
        "batch_first": not where.config.get("time_major"),
        **{fact: where.config[key] for key, fact in _RECURRENT_FACTS.items() if key in where.config},
    }


def fill(model: Any, variables: Mapping[str, Any], new: Mapping[str, Array]) -> Any:
    """Assign the arrays: all of them or none, even after an error."""
    before = {name: numbers(variables[name]).copy() for name in new}

    def assign(arrays: Mapping[str, Array]) -> None:
        for name, array in arrays.items():
            variables[name].assign(np.asarray(array, order="C"))

    with all_or_none(lambda: assign(before)):
        assign(new)
    return model
