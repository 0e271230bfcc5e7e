"""The layers of a model as units of a transplant."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from rnnconvert.core.arrays import Source
from rnnconvert.core.weights import Layer, Recurrent
from rnnconvert.language import outline
from rnnconvert.language.registry import surroundings
from rnnconvert.language.surroundings import Surrounding, readings
from rnnconvert.models.model import Group, Unit, by_class, tensors


class Owner(NamedTuple):
    """The owner of some arrays of a model: a module, a node, a part of a path.

    name        its name in the model
    class_name  its class, or "" if unknown
    names       its arrays: the framework's names, and the model's
    facts       returns the value of an attribute of it, or None
    title       its class, as a user would write it
    """

    name: str
    class_name: str
    names: Mapping[str, str]
    facts: Callable[[str], Any]
    title: str = ""


def plain_units(framework: str, owner: Owner, arrays: Mapping[str, Source]) -> list[Unit]:
    """Return the layers without recurrence that an owner is; arrays that fit nothing are left to the caller."""
    name, class_name, names, facts, title = owner
    shapes = {local: tuple(arrays[full].shape) for local, full in names.items()}
    layouts = by_class(framework, class_name) if class_name else [x for x in surroundings(framework) if not x.path]
    complete = readings([layout for layout in layouts if not layout.path], shapes, bool(class_name))
    if complete:
        known_facts = facts_of(complete[0], facts) if class_name else {}
        defaults = {word: value for layout in complete for word, value in layout.defaults.items() if word not in known_facts}
        return [Unit(name, dict(names), tuple(complete), facts=known_facts, assumed=defaults, title=title)]
    units = []
    for layout in (layout for layout in layouts if layout.path):
        part_names = {tensor.name: names[tensor.name] for tensor in tensors(layout, names)}
        if readings([layout], {local: shapes[local] for local in part_names}):
            units.append(Unit(f"{name}/{layout.path}", part_names, (layout,), facts=facts_of(layout, facts), title=title))
    return units


def facts_of(layout: Surrounding, facts: Callable[[str], Any]) -> dict[str, Any]:
    """Return the settings next to a layer's weights, in our words."""
    stated_facts = {}
    for word, attribute in layout.facts.items():
        complement, _, plain = attribute.rpartition("1 - ")
        value = facts(plain)
        if value is not None:
            stated_facts[word] = 1 - value if attribute.startswith("1 - ") and complement == "" else value
    return stated_facts


def single_layers(stack: Recurrent) -> list[Recurrent]:
    """Return the layers of a stack, each as a stack of one, called by the stack's name and their number."""
    if stack.num_layers == 1 or (stack.join == "end" and stack.num_directions > 1):
        return [stack]
    return [_single(stack, number, layer) for number, layer in enumerate(stack.layers)]


def _single(stack: Recurrent, number: int, layer: Layer) -> Recurrent:
    last = number == stack.num_layers - 1
    return stack.replace(
        name=f"{stack.name}[{number}]",
        layers=(layer,),
        output_order=stack.output_order if last else "time",
        readout=stack.readout if last else (),
        unconvertible=stack.unconvertible,
    )


def units_of_ours(
    name: str, stack: Recurrent, places: outline.Tensors, names: Mapping[str, str], facts: Mapping[str, Any], title: str
) -> list[Unit]:
    """Return the layers of a module of rnnconvert's own.

    names  its own names for its arrays, and the model's
    """
    units = []
    first = 0
    for single in single_layers(stack.replace(name=name)):
        groups = []
        for index, number, direction in single.directions():
            end = outline.suffix(first + index, number)
            layout = outline.layout(direction, places)
            direction_names = {tensor.name: names[tensor.name + end] for tensor in places if tensor.name + end in names}
            groups.append(Group(layout, (number,), direction_names, index))
        # A matrix behind the last layer is no part of any direction: such a layer gives, and is not filled.
        fillable = () if single.readout else tuple(groups)
        units.append(Unit(single.name, stack=single, groups=fillable, facts=facts, title=title))
        first += single.num_layers
    return units


def units_of_written(
    name: str, cell: Mapping[str, Any], places: outline.Tensors, names: Mapping[str, str], arrays: Mapping[str, Source], title: str
) -> list[Unit]:
    """Return the layer of a class that `scaffold` wrote.

    cell    the description of its cell, and its input_size and hidden_size
    places  its arrays, the first of which reads the input; a second direction's end in _reverse
    names   the names of its arrays in the class, and the model's
    """
    ends = ("", "_reverse")[: 1 + (f"{places[0].name}_reverse" in names)]
    plain = {
        "coupled": "",
        "constants": {},
        "clips": [],
        **cell,
        "projection_size": None,
        "parts": sorted({tensor.parts for tensor in places if tensor.name in names}),
    }
    layer = {"merge": "concat", "directions": [{**plain, "reverse": bool(end)} for end in ends]}
    text = {"layers": [layer], "join": "layer", "output_order": "time", "readout": []}
    ours = {f"{tensor.name}_l0{end}": names[tensor.name + end] for tensor in places for end in ends if tensor.name + end in names}
    stated = outline.from_text(json.dumps(text))
    stack = outline.filled(stated, places, {key: arrays[full] for key, full in ours.items()}, name)
    return units_of_ours(name, stack, places, ours, {}, title)


def loose_units(arrays: Mapping[str, Source], claimed: Iterable[str]) -> list[Unit]:
    """Return the arrays of no layer, each as a layer by itself."""
    used = set(claimed)
    return [Unit(name, {"": name}, title="array") for name in arrays if name not in used]
