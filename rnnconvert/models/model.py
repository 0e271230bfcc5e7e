"""A model as a transplant sees it: its layers, the arrays of each, and how they are replaced.

The same for a file and for a live object, and for the side that gives and the side that takes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from rnnconvert.containers.reading import check_sources
from rnnconvert.core.arrays import Array, Source
from rnnconvert.core.cached import cached_property
from rnnconvert.core.weights import Layer, Recurrent
from rnnconvert.files.questions import Question
from rnnconvert.language.fitting import pattern
from rnnconvert.language.layout import Layout
from rnnconvert.language.registry import surroundings
from rnnconvert.language.surroundings import Shape, Surrounding, SurroundingTensor


@dataclass(frozen=True)
class Group:
    """The arrays of some directions of one recurrent layer.

    layout      how they lie
    directions  the directions that they hold, 0 forward and 1 backward
    names       the layout's names for a stack of one layer, and the model's
    layer       which layer of the unit it is, where one unit is several
    """

    layout: Layout
    directions: tuple[int, ...]
    names: Mapping[str, str]
    layer: int = 0


@dataclass(frozen=True)
class Flat:
    """How the values of a flattened convolution are ordered in one row; likewise of a row that is cut into channels for one.

    order     "channels_first" or "channels_last"; "" where it is not seen
    channels  how many there are; 0 where no convolution is flattened
    joined    whether values of something else stand in the row, too
    """

    order: str = ""
    channels: int = 0
    joined: bool = False


@dataclass(frozen=True, eq=False)
class Unit:
    """One layer of a model, to be paired with one layer of the other model.

    name      its name in the model; for a layer of a stack, with its number in brackets
    names     a layer without recurrence: its tensors' names as its layouts have them, and the model's
    readings  the layouts that such a layer may have: one, or several if the file does not state its class
    stack     a recurrent layer, as a stack of one
    groups    where the recurrent layer's arrays are; empty if they cannot be written
    facts     settings next to the weights, in our words: epsilon, stride, activation, batch_first ...
    assumed   settings that the model does not state, with the defaults of its framework
    title     its class, as a user would write it
    stated    whether the file or the object states that class, so that names and shapes need not show it
    alias     the layer of which it is another name, or ""
    called    the name to compare instead of its own: of the module that a node of a graph was made from
    reads     how its input was flattened; None if the model does not show its input
    gives     how its output is cut into channels, or None
    """

    name: str
    names: Mapping[str, str] = field(default_factory=dict)
    readings: tuple[Surrounding, ...] = ()
    stack: Recurrent | None = None
    groups: tuple[Group, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)
    assumed: Mapping[str, Any] = field(default_factory=dict)
    title: str = ""
    stated: bool = False
    alias: str = ""
    called: str = ""
    reads: Flat | None = None
    gives: Flat | None = None

    @property
    def known_as(self) -> str:
        """The name that is compared with the other model's."""
        return self.called or self.name

    @property
    def arrays(self) -> tuple[str, ...]:
        """The model's names of all its arrays."""
        return (*self.names.values(), *(name for group in self.groups for name in group.names.values()))

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds that it is, or may be: "recurrent", "array", or kinds of rnnconvert.language.surroundings."""
        if self.stack is not None:
            return ("recurrent",)
        return tuple(dict.fromkeys(reading.kind for reading in self.readings)) or ("array",)

    def reading(self, kind: str) -> Surrounding:
        """Return the layout under which it is of that kind."""
        return next(reading for reading in self.readings if reading.kind == kind)

    def replace(self, **changes: Any) -> Unit:
        """Return this layer with some fields changed."""
        return replace(self, **changes)


@dataclass(frozen=True, eq=False)
class Model:
    """A file or a live object, layer by layer.

    framework  the format's name
    title      its path or class, for messages
    units      its layers
    arrays     every array by the model's own name, including arrays of no layer; of a live object on another device, each is read when
               its numbers are asked for
    flow       whether the layers stand in the order in which data goes through them, not only as they were made
    alphabet   whether they are in alphabetical order, as some files keep them, which shows nothing about the data's order
    aside      arrays that are not weights (counters, seeds, optimizer state), and what they are
    ties       arrays that share one memory: each by the first of its names
    fill       replaces arrays by name, all or none, and gives the filled object
    live       the object itself, if there is one
    hinders    says why some new arrays cannot be written, in words; None if all can
    notes      notes for the user
    questions  what a file does not state, and what was assumed
    classes    for arrays of layers whose kind is unknown: the layer, and its class as the file states it
    by_names   whether the names of its arrays alone show its layers, so that arrays may stand in none
    """

    framework: str
    title: str
    units: tuple[Unit, ...]
    arrays: Mapping[str, Source]
    flow: bool = False
    alphabet: bool = False
    aside: Mapping[str, str] = field(default_factory=dict)
    ties: Mapping[str, str] = field(default_factory=dict)
    fill: Callable[[Mapping[str, Array]], Any] | None = None
    live: Any = None
    hinders: Callable[[Mapping[str, Array]], list[str]] | None = None
    notes: tuple[str, ...] = ()
    questions: tuple[Question, ...] = ()
    classes: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    by_names: bool = False

    def unit(self, name: str) -> Unit | None:
        """Return the layer of that name, or None."""
        return self._by_name.get(name)

    @cached_property
    def _by_name(self) -> dict[str, Unit]:
        return {unit.name: unit for unit in reversed(self.units)}  # of two of one name the first

    @cached_property
    def layers(self) -> tuple[Unit, ...]:
        """The layers without the arrays of no layer, in their order."""
        return tuple(unit for unit in self.units if unit.kinds != ("array",))

    @cached_property
    def _places(self) -> dict[str, int]:
        return {unit.name: number for number, unit in reversed([*enumerate(self.layers)])}

    def before(self, unit: Unit) -> Iterator[Unit]:
        """Yield the layers before one, the next one first; nothing for an array of no layer."""
        return (self.layers[number] for number in range(self._places.get(unit.name, 0) - 1, -1, -1))

    def behind(self, unit: Unit) -> Iterator[Unit]:
        """Yield the layers after one, the next one first; nothing for an array of no layer."""
        return (self.layers[number] for number in range(self._places.get(unit.name, len(self.layers)) + 1, len(self.layers)))

    @property
    def loose(self) -> list[str]:
        """The arrays of no layer that are not known to be something else."""
        layered = {name for unit in self.units for name in unit.arrays}
        return [name for name in self.arrays if name not in layered and name not in self.aside]

    def memory(self, names: Iterable[str]) -> set[str]:
        """Return arrays by the first of the names that each has."""
        return {self.ties.get(name, name) for name in names}

    def parts(self, unit: Unit, kind: str) -> dict[str, Array]:
        """Return the canonical arrays of a layer without recurrence, by part."""
        layout = unit.reading(kind)
        return {
            tensor.part: layout.canonical(tensor, np.asarray(self.arrays[unit.names[tensor.name]]))
            for tensor in tensors(layout, unit.names)
        }

    def replace(self, **changes: Any) -> Model:
        """Return this model with some fields changed."""
        return replace(self, **changes)


def tensors(layout: Surrounding, names: Iterable[str]) -> list[SurroundingTensor]:
    """Return the tensors of a layout that a layer has."""
    there = set(names)
    return [tensor for tensor in layout.tensors if tensor.name in there]


def channels_given(unit: Unit, arrays: Mapping[str, Source]) -> int | None:
    """Return how many channels a convolution gives, or a dense layer over the channels; None for another layer."""
    kind = unit.kinds[0]
    if kind not in ("conv", "conv_transpose", "dense"):
        return None
    shape = weight_shape(unit, kind, arrays)
    return shape[1] * int(unit.facts.get("groups", 1)) if kind == "conv_transpose" else shape[0]


def weight_shape(unit: Unit, kind: str, arrays: Mapping[str, Source]) -> Shape:
    """Return the canonical shape of a layer's weight."""
    layout = unit.reading(kind)
    tensor = next(tensor for tensor in layout.tensors if tensor.part == "weight")
    return layout.shape(tensor, tuple(arrays[unit.names[tensor.name]].shape))


def by_class(framework: str, class_name: str) -> list[Surrounding]:
    """Return the layouts of a class; several where one class is two layers, or was stored otherwise in another version."""
    return [layout for layout in surroundings(framework) if class_name in layout.classes.split()]


def joined(name: str, forward: Unit, backward: Unit) -> Unit:
    """Return two layers of one direction each as one of two, whose outputs are side by side.

    Raises ValueError unless they read the same input, are single layers of one direction, and the first of them reads
    forward, the second from the end.
    """
    ahead, back = forward.stack, backward.stack
    if ahead is None or back is None or any(stack.num_layers * stack.num_directions != 1 for stack in (ahead, back)):
        raise ValueError(f"{forward.name!r} and {backward.name!r} are not two layers of one direction each")
    if ahead.input_size != back.input_size:
        raise ValueError(f"{forward.name!r} reads {ahead.input_size} values per step, but {backward.name!r} reads {back.input_size}")
    if ahead.first.reverse and not back.first.reverse:
        raise ValueError(
            f"{forward.name!r} reads from the end and {backward.name!r} from the beginning. Put the forward direction "
            f"first: {backward.name} + {forward.name}"
        )
    layer = Layer((ahead.first.replace(reverse=False), back.first.replace(reverse=True)))
    groups = [replace(group, directions=(way,)) for way, unit in enumerate((forward, backward)) for group in unit.groups]
    stack = ahead.replace(name=name, layers=(layer,), output_order="time")
    return forward.replace(name=name, stack=stack, groups=tuple(groups))


def names_of_layer(layout: Layout, names: Mapping[str, str], number: int) -> dict[str, str]:
    """Return the arrays of one layer of a stack, under the names that a stack of one has for them."""
    local_names = {}
    for local, full in names.items():
        for tensor in layout.tensors:
            match = pattern(layout, tensor).fullmatch(local)
            if match is None:
                continue
            if "layer" not in match.re.groupindex:
                local_names[local] = full
            elif int(match["layer"]) == number:
                local_names[f"{local[: match.start('layer')]}0{local[match.end('layer') :]}"] = full
            break
    return local_names


@contextlib.contextmanager
def all_or_none(undo: Callable[[], object]) -> Iterator[None]:
    """Change an object in the block; if the block fails, or a file was changed while it was read, `undo` restores everything."""
    try:
        yield
        check_sources()
    except BaseException:  # an interrupt, too, leaves the object as it was
        undo()
        raise
