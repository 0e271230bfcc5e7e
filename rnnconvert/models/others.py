"""The contents of a file around its recurrent layers, by name and kind: what a conversion leaves out, and `inspect` lists."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from rnnconvert.core.errors import RnnConvertError
from rnnconvert.core.printable import either
from rnnconvert.files.checkpoint import Checkpoint
from rnnconvert.models.model import Model, Unit
from rnnconvert.models.readers import filled_reader_of, kept_beside, reader_of

_LAYER_OF_STACK = re.compile(r"\[\d+\]\Z")
"""The end of the name of a stack's layer."""


@dataclass(frozen=True)
class NonRecurrentPart:
    """A layer that is not recurrent, an array of no layer, or a group of arrays that are not weights.

    name     what the file calls it; "" for a group
    kind     its class or operator where the file states it, else what its names and shapes fit; of a group, what it is
    stated   whether the file states the kind
    shape    the shape of its weights, as stored; empty for a group
    tensors  the names of its arrays
    """

    name: str
    kind: str
    stated: bool
    shape: tuple[int, ...]
    tensors: tuple[str, ...]

    def __str__(self) -> str:
        if not self.name:
            return f"{len(self.tensors):,} tensor{'' if len(self.tensors) == 1 else 's'} ({self.kind})"
        sizes = " x ".join(f"{length:,}" for length in self.shape) or "one number"
        if self.stated or not self.kind:
            return f"{self.name} ({', '.join(filter(None, (self.kind, sizes)))})"
        return f"{self.name} ({sizes}, {self.kind} by its names and shapes)"


def others(checkpoint: Checkpoint, names: Iterable[str] | None = None) -> list[NonRecurrentPart]:
    """Return a checkpoint's contents around its recurrent layers; groups of arrays last.

    names  only entries with some of these tensors
    """
    wanted = dict.fromkeys(checkpoint.tensors if names is None else names)
    result: list[NonRecurrentPart] = []
    model = _model(checkpoint)
    if model is not None:
        # Reading a graph may give its arrays other names: of it, all layers are shown or none.
        renamed = not any(name in checkpoint.tensors for unit in model.units for name in unit.arrays if not unit.stack)
        for unit in model.units:
            members = tuple(name for name in unit.arrays if name in wanted)
            if unit.stack is None and not unit.alias and (members or (renamed and wanted)):
                result.append(_of_unit(unit, model, members or unit.arrays))
    aside = {name: why for name, why in (kept_beside(checkpoint) if model is None else model.aside).items() if name in wanted}
    for reason in dict.fromkeys(aside.values()):
        result.append(NonRecurrentPart("", reason, True, (), tuple(name for name, why in aside.items() if why == reason)))
    if model is not None:
        around = _around(model)
        result = [replace(other, name=other.name.removeprefix(around)) for other in _by_class(result, model)]
    covered = {name for other in result for name in other.tensors}
    recurrent = set() if model is None else {name for unit in model.units if unit.stack for name in unit.arrays}
    alone = [_of_array(checkpoint, name) for name in wanted if name not in covered and name not in recurrent]
    layers = [other for other in result if other.name]
    return [*layers, *alone, *(other for other in result if not other.name)]


def _around(model: Model) -> str:
    """Return the prefix that all arrays in a file have in their names and its recurrent layers lack."""
    layers = [unit for unit in model.units if unit.stack and unit.arrays]
    names = [(unit.arrays[0], _LAYER_OF_STACK.sub("", unit.name)) for unit in layers]
    first = {array.partition(name)[0] for array, name in names if name}
    return first.pop() if len(first) == 1 else ""


def _by_class(loose: Iterable[NonRecurrentPart], model: Model) -> list[NonRecurrentPart]:
    """Return the same with the arrays of a layer together, where the file states its class."""
    merged: dict[object, NonRecurrentPart] = {}
    for other in loose:
        layer = model.classes.get(other.tensors[0]) if other.name and not other.kind else None
        if layer is None:
            merged[len(merged)] = other
            continue
        earlier = merged.get(layer)
        tensors = other.tensors if earlier is None else (*earlier.tensors, *other.tensors)
        shape = other.shape if earlier is None else max(earlier.shape, other.shape, key=lambda shape: (len(shape), shape))
        merged[layer] = NonRecurrentPart(*layer, True, shape, tensors)
    return list(merged.values())


def moves_whole_models(source: str, target: str) -> bool:
    """Return whether a transplant moves the layers around the recurrent ones from files of one format into files of another."""
    return reader_of(source) is not None and filled_reader_of(target) is not None


def _model(checkpoint: Checkpoint) -> Model | None:
    reader = reader_of(checkpoint.format)
    if reader is None:
        return None
    try:
        return reader.of_checkpoint(checkpoint)
    except RnnConvertError:  # what cannot be read layer by layer is listed array by array
        return None


def _of_unit(unit: Unit, model: Model, members: tuple[str, ...]) -> NonRecurrentPart:
    if unit.kinds == ("array",):
        return NonRecurrentPart(unit.name, "", False, tuple(model.arrays[unit.arrays[0]].shape), members)
    kind = unit.title.split(" ")[0] if unit.stated else either(word.replace("_", " ") for word in unit.kinds)
    first = max(unit.arrays, key=lambda name: (model.arrays[name].ndim, model.arrays[name].size))
    return NonRecurrentPart(unit.name, kind, unit.stated, tuple(model.arrays[first].shape), members)


def _of_array(checkpoint: Checkpoint, name: str) -> NonRecurrentPart:
    return NonRecurrentPart(name, "", False, tuple(checkpoint.tensors[name].shape), (name,))
