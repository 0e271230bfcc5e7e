"""The name of a reading: the known layouts that keep exactly these arrays, or a layout file for one that nobody knows."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from rnnconvert.core.arrays import Array
from rnnconvert.core.cells import Activation
from rnnconvert.core.printable import in_toml
from rnnconvert.core.remedies import Setting
from rnnconvert.core.weights import BIAS_PARTS, GATE_PARTS, Key, gates_of
from rnnconvert.identification.reading import LayerReading, blocks_of
from rnnconvert.identification.structures import Structure
from rnnconvert.language import registry
from rnnconvert.language.layout import UNUSED, Cut, Layout, Slot, Tensor, c_strides
from rnnconvert.language.places import shapes, slots

_SMALL = {"input_size": 5, "hidden_size": 3}
"""Sizes at which layouts are compared: where an element stands does not depend on how many there are."""


def names(reading: LayerReading) -> list[str]:
    """Return the known layouts that keep the same numbers at the same places and compute the same."""
    small, ids = _numbered(reading)
    matching = []
    for layout in registry.layouts().values():
        if layout.kind == reading.cell.kind and _computes(layout, reading) and _keeps(layout, reading, small, ids):
            matching.append(layout.name)
    return matching


def _numbered(reading: LayerReading) -> tuple[Structure, dict[str, Array]]:
    """Return the structure at small sizes, and arrays in which every number is another one."""
    structure = reading.structure
    projection = 2 if structure.sizes.projection_size else 0
    hidden = 5 if structure.sizes.skip_input else _SMALL["hidden_size"]
    sizes = replace(structure.sizes, input_size=5, hidden_size=hidden, projection_size=projection)
    arrays, start = {}, 1
    for block, shape in shapes(structure.layout, sizes).items():
        count = int(np.prod(shape))
        arrays[block] = np.arange(start, start + count, dtype=np.float64).reshape(shape)
        start += count
    places = tuple(slots(structure.layout, sizes))
    for slot in places:
        if slot.key[1] == UNUSED:
            slot.place.view(arrays[slot.array])[...] = 0
    return replace(structure, sizes=sizes, binding={block: block for block in arrays}, places=places), arrays


def _computes(layout: Layout, reading: LayerReading) -> bool:
    """Return whether the layout's cell can be this one."""
    cell, holds, sizes = reading.cell, layout.holds, reading.structure.sizes
    constants = {gate: value for gate, value in cell.constants.items() if value}
    defaults = {gate: value for gate, value in holds.constants.items() if value and gate not in holds.chosen}
    free = {gate for gate in holds.chosen}
    if cell.reset_after != layout.reset_after or cell.coupled != layout.coupled:
        return False
    if {g: v for g, v in constants.items() if g not in free} != defaults:
        return False
    if not _has(holds.activations, cell.activation) or not _has(holds.gate_activations, cell.gate_activation):
        return False
    if cell.kind == "lstm" and cell.output_activation != cell.activation and holds.output_activation == "same":
        return False
    return not (layout.flat and sizes.num_layers > 1 and not holds.layers)


def _has(allowed: Sequence[str | Activation], function: Activation) -> bool:
    return any(
        choice in ("any", function) or Activation(choice) == function if isinstance(choice, str) else choice == function
        for choice in allowed
    )


def _keeps(layout: Layout, reading: LayerReading, structure: Structure, ids: Mapping[str, Array]) -> bool:
    """Return whether arrays of the layout that hold this reading's numbers are the arrays that were found."""
    blocks = blocks_of(structure, ids)
    parts = structure.sizes.parts & layout.part_names
    left = sorted((array.shape, tuple(array.ravel())) for array in ids.values())
    if structure.sizes.parts - layout.part_names - {"input"}:
        return False
    # A layout of one layer keeps each of several in arrays of its own.
    held = {word for tensor in layout.tensors for word in ("layer", "direction") if _names(tensor, word)}
    sizes = replace(structure.sizes, parts=parts)
    rebuilt: dict[str, Array] = {}
    for layer, direction in sorted(blocks):
        direction_sizes = sizes
        if "layer" not in held:
            width = sizes.input_size if layer == 0 else sizes.num_directions * sizes.output_size
            direction_sizes = replace(direction_sizes, num_layers=1, input_size=width)
        if "direction" not in held:
            direction_sizes = replace(direction_sizes, num_directions=1)
        try:
            places = list(slots(layout, direction_sizes))
            expected = shapes(layout, direction_sizes)
        except (ValueError, KeyError, IndexError):
            return False
        for slot in places:
            at = (slot.layer if "layer" in held else 0, slot.direction if "direction" in held else 0)
            if at != (layer if "layer" in held else 0, direction if "direction" in held else 0):
                continue
            name = f"{layer if 'layer' not in held else ''}|{direction if 'direction' not in held else ''}|{slot.array}"
            target = rebuilt.setdefault(name, np.zeros(expected[slot.array]))
            if slot.key[1] == UNUSED:
                continue
            if not _put(slot, target, blocks[layer, direction], reading):
                return False
    numbers = sorted((array.shape, tuple(array.ravel())) for array in rebuilt.values())
    return numbers == left


def _names(tensor: Tensor, word: str) -> bool:
    words = {part_name for group in tensor.groups for part_name in group}
    return word in words or f"{{{word}}}" in tensor.name or "{pseudo_layer}" in tensor.name


def _put(slot: Slot, target: Array, blocks: Mapping[Key, Array], reading: LayerReading) -> bool:
    """Write a reading's numbers where a layout keeps them; return whether it keeps them with the same sign."""
    part, gate = slot.key
    block = blocks.get(reading.block_of(part, gate))
    if block is None or (slot.sign < 0) != (reading.negated and gate == "z"):
        return False
    view = slot.place.view(target)
    if view.size != block.size or (not slot.reinterpreted and view.shape != block.shape):
        return False
    view[...] = block.reshape(view.shape) if slot.reinterpreted else block
    return True


def layout_file(reading: LayerReading, arrays: Mapping[str, Array], name: str = "found") -> str:
    """Return a layout file that `--layout` accepts and that describes this reading, with the arrays' own names.

    Where names do not count layers and directions, and where one array holds several, it says what lies where. It is "" for an
    input that is read unweighted, which no layout file describes.
    """
    if reading.structure.sizes.skip_input:
        return ""
    cuts: list[Cut] = []
    if reading.structure.layout.letters or reading.structure.layout.flat:
        layout, cuts = cut_apart(reading, arrays, name)
        if not cuts:
            return ""
    else:
        layout, renamed = described(reading, name)
        cuts = [Cut(new, old) for new, old in renamed.items()]
    cell, sizes = reading.cell, reading.structure.sizes
    modes = {part for part, _ in layout.keys} & set(BIAS_PARTS)
    if len(modes) == 2:
        biases = "both"
    elif "input_bias" in modes:
        biases = "input"
    elif modes:
        biases = "recurrent"
    else:
        biases = "none"
    holds = [f'biases = ["{biases}"]', f"activations = [{_function(cell.activation)}]"]
    if cell.kind != "rnn":
        holds.append(f"gate_activations = [{_function(cell.gate_activation)}]")
    if cell.kind == "lstm" and cell.output_activation != cell.activation:
        holds.append('output_activation = "any"')
    constants = [f"{gate} = {value}" for gate, value in cell.constants.items() if value]
    holds += [f"constants = {{ {', '.join(constants)} }}"] if constants else []
    holds += [f"layers = {str(sizes.num_layers > 1).lower()}", f"directions = {sizes.num_directions}"]
    holds += ["reverse = true", f'reverse_order = "{reading.order}"'] if reading.reverse else []
    holds += ["initial_states = true"] if "initial_hidden" in layout.part_names else []
    holds += [f'merges = ["{reading.merge}"]'] if reading.merge != "concat" else []
    lines = []
    if reading.reverse:
        lines.append(f"# The layer reads from the end: add {Setting('go_backwards', 'true')}")
    lines += ["[[layout]]", f'name = "{layout.name}"', f'kind = "{layout.kind}"', f'gates = "{layout.gates}"']
    lines += [f"reset_after = {str(cell.reset_after).lower()}"] if cell.kind == "gru" else []
    lines += [f'coupled = "{layout.coupled}"'] if layout.coupled else []
    if sizes.num_directions > 1:
        lines.append(f"spelling = [{', '.join(map(in_toml, layout.spelling))}]")
    lines.append("tensors = [")
    for tensor in layout.tensors:
        more = ", reinterpreted = true" if tensor.reinterpreted else ""
        more += f', layers = "{tensor.layers}"' if tensor.layers else ""
        lines.append(f'    {{ name = {in_toml(tensor.name)}, parts = "{tensor.parts}", axes = "{tensor.axes}"{more} }},')
    lines += ["]", f"holds = {{ {', '.join(holds)} }}"]
    for cut in cuts:
        lines += ["[[array]]", f"name = {in_toml(cut.name)}", f"from = {in_toml(cut.source)}"]
        if cut.shape:
            lines += [f"start = {cut.start}", f"shape = {[*cut.shape]}", f"steps = {[*cut.steps]}"]
    return "\n".join(lines) + "\n"


def cut_apart(reading: LayerReading, arrays: Mapping[str, Array], name: str) -> tuple[Layout, list[Cut]]:
    """Return a layout with an array for each gate of each part, and where these lie in the file's arrays; no cuts where the
    elements of a gate are not at equal distances.
    """
    layout, sizes = reading.structure.layout, reading.structure.sizes
    held = {(slot.layer, slot.direction, slot.key): slot for slot in reading.structure.places if slot.key[1] != UNUSED}
    ways = sorted({(layer, way) for layer, way, _ in held})
    tensors: dict[str, Tensor] = {}
    cuts = []
    for (layer, way), part in itertools.product(ways, dict.fromkeys(part for *_, (part, _) in held)):
        for gate in gates_of(layout.kind, part):
            slot = held.get((layer, way, reading.block_of(part, gate)))
            if slot is None or (gate and gate == reading.cell.coupled):
                continue  # what no array holds is zero
            stem = f"{part}_{gate}" if gate else part
            pattern = stem + ("_l{layer}" if sizes.num_layers > 1 else "") + ("{direction}" if sizes.num_directions > 1 else "")
            source = reading.structure.binding[slot.array]
            stored_shape = np.shape(arrays[source])
            shape, steps = slot.place.shape, slot.place.strides(stored_shape)
            if slot.reinterpreted:
                if steps != c_strides(shape):
                    return layout, []
                shape = shape[::-1]
                steps = c_strides(shape)
            tensors[pattern] = Tensor(pattern, f"{part}[{gate}]" if gate else part, "hidden in" if len(shape) == 2 else "hidden")
            spelt = pattern.format(layer=layer, direction=("", "_reverse")[way])
            cuts.append(Cut(spelt, source, slot.place.offset(stored_shape), shape, steps))
    gates = [gate for gate in gates_of(layout.kind, "input") if gate != reading.cell.coupled]
    signed = " ".join("-z" if gate == "z" and reading.negated else gate for gate in gates)
    return replace(
        layout,
        name=f"{name}.{layout.kind}",
        gates=signed,
        tensors=tuple(tensors.values()),
        letters="",
        spelling=("", "_reverse"),
        reset_after=reading.cell.reset_after,
    ), cuts


def _function(function: Activation) -> str:
    constants = [f"{key} = {value!r}" for key, value in (("alpha", function.alpha), ("beta", function.beta)) if value is not None]
    return f"{{ {', '.join([f'name = {in_toml(function.name)}', *constants])} }}" if constants else f'"{function.name}"'


def described(reading: LayerReading, name: str = "found") -> tuple[Layout, dict[str, str]]:
    """Return a reading as a layout with the arrays' own names, and the arrays that need another name, new to old."""
    layout, binding = reading.structure.layout, reading.structure.binding
    slots_of = [gate for gate in gates_of(layout.kind, "input") if gate != layout.coupled]
    meaning = {part: {slot: gate for gate, slot in order.items()} for part, order in reading.orders.items()}
    first = meaning.get("input", {gate: gate for gate in slots_of})
    listed = layout.gates.split()
    gates = [first.get(slot, slot) for slot in listed]
    tensors: list[Tensor] = []
    families: dict[int, dict[tuple[int, int], dict[str, str]]] = {}
    for block, array in binding.items():
        family, layer, direction, gate = block.split("|")
        families.setdefault(int(family), {}).setdefault((int(layer or 0), "fb".find(direction or "f")), {})[gate] = array
    for number, tensor in enumerate(layout.tensors):
        for gate in next(iter(families[number].values())):
            spelt = {at: per[gate] for at, per in families[number].items()}
            parts = _parts(tensor, gate, listed, gates, meaning, layout)
            tensors.append(Tensor(json.dumps(sorted(spelt.items())), parts, tensor.axes, tensor.reinterpreted, "", tensor.layers))
    spelling, patterns, renamed = _patterns(tensors)
    renamed_tensors = tuple(replace(tensor, name=pattern) for tensor, pattern in zip(tensors, patterns, strict=True))
    signed = " ".join("-z" if gate == "z" and reading.negated else gate for gate in gates)
    return replace(
        layout,
        name=f"{name}.{layout.kind}",
        gates=signed,
        tensors=renamed_tensors,
        letters="",
        spelling=spelling,
        reset_after=reading.cell.reset_after,
    ), renamed


def _parts(
    tensor: Tensor, gate: str, listed: Sequence[str], gates: Sequence[str], meaning: Mapping[str, Mapping[str, str]], layout: Layout
) -> str:
    """Return the parts of an array in words, with the gates in brackets where they are not the layout's own order."""
    sections = []
    for section in tensor.sections:
        words = []
        for part, held in section:
            if part not in GATE_PARTS:
                words.append(part)
                continue
            slots_held = [gate] if gate else list(held or [slot for slot in listed if slot in gates_of(layout.kind, part)])
            if gate and layout.letters:
                letters = layout.letters.split()
                slots_held = [slot for slot, letter in zip(listed, letters, strict=True) if letter == gate][:1]
            letters_of = meaning.get(part, {})
            called = [slot if slot == UNUSED else letters_of.get(slot, slot) for slot in slots_held]
            default = [slot for slot in gates if slot in gates_of(layout.kind, part)]
            words.append(part if called == default else f"{part}[{' '.join(called)}]")
        sections.append(" ".join(words))
    return " | ".join(sections)


def _patterns(tensors: Sequence[Tensor]) -> tuple[tuple[str, str], list[str], dict[str, str]]:
    """Return how directions are spelt, each array's name as a pattern, and the arrays that must be renamed, new to old."""
    spelt = [{tuple(at): name for at, name in json.loads(tensor.name)} for tensor in tensors]
    if all(len(spellings) == 1 for spellings in spelt):
        return ("", "_reverse"), [_escaped(next(iter(spellings.values()))) for spellings in spelt], {}
    for spelling in _spellings(spelt):
        patterns = [_pattern(spellings, spelling) for spellings in spelt]
        if all(patterns) and len(set(patterns)) == len(patterns):
            return spelling, [str(each) for each in patterns], {}
    result: list[str] = []
    renamed: dict[str, str] = {}
    for number, (tensor, places) in enumerate(zip(tensors, spelt, strict=True)):
        stem = re.sub(r"\W+", "_", tensor.parts).strip("_")
        layered = "_l{layer}" if len({layer for layer, _ in places}) > 1 else ""
        way = "{direction}" if len({direction for _, direction in places}) > 1 else ""
        pattern = f"{stem}_{number}{layered}{way}"
        result.append(pattern)
        for (layer, direction), old in places.items():
            renamed[pattern.format(layer=layer, direction=("", "_reverse")[direction])] = old
    return ("", "_reverse"), result, renamed


def _escaped(name: str) -> str:
    return name.replace("{", "").replace("}", "")


def _spellings(spelt: Sequence[Mapping[tuple[int, ...], str]]) -> Iterator[tuple[str, str]]:
    """Yield the possible pairs of words that distinguish the directions' names."""
    yield from (("", "_reverse"), ("forward", "backward"), ("fw", "bw"))
    for places in spelt:
        forward, other = places.get((0, 0)), places.get((0, 1))
        if forward and other:
            start = next((at for at, (a, b) in enumerate(zip(forward, other, strict=False)) if a != b), min(len(forward), len(other)))
            end = next(
                (at for at, (a, b) in enumerate(zip(forward[start:][::-1], other[start:][::-1], strict=False)) if a != b),
                min(len(forward), len(other)) - start,
            )
            yield forward[start : len(forward) - end], other[start : len(other) - end]


def _pattern(places: Mapping[tuple[int, ...], str], spelling: tuple[str, str]) -> str | None:
    """Return the pattern of an array's names in all layers and directions, or None."""
    both_ways = len({direction for _, direction in places}) > 1
    several = len({layer for layer, _ in places}) > 1
    (layer, direction), first = min(places.items())
    for number in [m for m in re.finditer(r"\d+", first) if int(m[0]) == layer] if several else [None]:
        text = first if number is None else first[: number.start()] + "\0" + first[number.end() :]
        word = spelling[direction]
        for at in [m.start() for m in re.finditer(re.escape(word), text)] if both_ways else [None]:
            full = text if at is None else text[:at] + "\1" + text[at + len(word) :]
            pattern = _escaped(full).replace("\0", "{layer}").replace("\1", "{direction}")
            if all(pattern.format(layer=level, direction=spelling[way]) == name for (level, way), name in places.items()):
                return pattern
    return None
