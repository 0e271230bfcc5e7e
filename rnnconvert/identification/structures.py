"""Which array may be which part, and how its axes may lie: the structures that the registry's layouts span.

A structure says where W, R and the biases of each layer are, gate by gate, but not yet which gate is which. The registry says
which parts may share an array; shapes say how the axes may lie; arrays of one shape are exchanged for one another.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from rnnconvert.core.cached import cached_property
from rnnconvert.core.cells import GATES
from rnnconvert.core.weights import BIAS_PARTS, GATE_PARTS, Key, gates_of
from rnnconvert.language import registry
from rnnconvert.language.layout import UNUSED, Layout, Place, Shape, Sizes, Slot, Tensor
from rnnconvert.language.places import shapes, slots

_WORDS = ("section", "layer", "direction", "part", "gate", "hidden", "in")
_OPTIONAL = (frozenset({"initial_hidden", "initial_cell"}), frozenset({"peephole"}), frozenset({"projection"}), frozenset(BIAS_PARTS))
"""The parts that a layer may lack."""


class SearchRound(NamedTuple):
    """How far one round of the search goes.

    what   the same in words
    registered  whether axes lie as in the registry's layouts alone
    whole_file  whether every array is one of the layer's; otherwise some are not
    common  whether arrays of one shape stand in an order in which programs write them; otherwise in every other one
    tied   whether W, R and the biases have their gates in one order
    plain  whether the functions are sigmoid and tanh
    """

    what: str
    registered: bool = False
    whole_file: bool = True
    common: bool = True
    tied: bool = True
    plain: bool = True


@dataclass(frozen=True)
class Structure:
    """Which array is which part.

    layout   the places in each array, its gates still without a meaning: they are called by canonical letters in any order
    sizes    of the stack
    binding  the array for each block of the layout
    places   where every gate of every part is
    """

    layout: Layout
    sizes: Sizes
    binding: Mapping[str, str]
    places: tuple[Slot, ...]

    @cached_property
    def where(self) -> tuple[tuple[int, int, Key, str, Place, bool], ...]:
        """Layer, direction, part and gate of every block, and where it is: what two structures share that read the same."""
        return tuple(
            sorted(
                (place.layer, place.direction, place.key, self.binding[place.array], place.place, place.reinterpreted)
                for place in self.places
                if place.key[1] != UNUSED
            )
        )


def _tensor(number: int, tensor: Tensor) -> Tensor:
    """Return a tensor of a registry's layout under a name of ours: its number, layer, direction and gate."""
    words = {word for group in tensor.groups for word in group}
    name = tensor.name.replace("{pseudo_layer}", "{layer}{direction}")
    held = [word for word in ("layer", "direction") if word not in words]
    gate = "{gate}" if "{gate}" in name else ""
    full = f"{number}|{'{layer}' if 'layer' in held else ''}|{'{direction}' if 'direction' in held else ''}|{gate}"
    return replace(tensor, name=full, letters="", layers=tensor.layers)


def _template(kind: str, tensors: Sequence[Tensor], coupled: str = "", shared: Layout | None = None) -> Layout:
    gates = " ".join(gate for gate in GATES[kind] if gate != coupled)
    letters = ""
    if shared is not None:
        gates, letters = shared.gates.replace("-", ""), shared.letters
    renamed = tuple(_tensor(number, tensor) for number, tensor in enumerate(tensors))
    return Layout(f"found.{kind}", kind, gates, renamed, "", letters=letters, coupled=coupled, spelling=("f", "b"))


def template_of(layout: Layout) -> Layout:
    """Return a layout with its arrays under names of ours."""
    twice = len(set(layout.letters.split())) < len(layout.letters.split())
    return _template(layout.kind, layout.tensors, layout.coupled, layout if twice else None)


def subsets(group: frozenset[str]) -> list[frozenset[str]]:
    """Return the possible absences in a group of parts: none or all of it, and of the biases either one."""
    some = [frozenset({part}) for part in group] if group == frozenset(BIAS_PARTS) else []
    return [frozenset(), *some, group]


def known_templates() -> tuple[Layout, ...]:
    """Return the places that the registry's layouts have, each once."""
    return _layouts()[0]


def templates() -> tuple[Layout, ...]:
    """Return the ways of sharing arrays among parts: the registry's, and mixtures of their habits."""
    return _layouts()[1]


_CACHE: list[tuple[Mapping[str, Layout], tuple[Layout, ...], tuple[Layout, ...]]] = []
"""The templates that were made last, and of which registry: users add layouts, and remove them."""


def _layouts() -> tuple[tuple[Layout, ...], tuple[Layout, ...]]:
    registered = registry.layouts()
    if not _CACHE or _CACHE[0][0] is not registered:
        places = _registered(registered)
        _CACHE[:] = [(registered, places, _templates(places))]
    return _CACHE[0][1:]


def _registered(registered: Mapping[str, Layout]) -> tuple[Layout, ...]:
    distinct: dict[object, Layout] = {}
    absences = [frozenset[str]().union(*absent) for absent in itertools.product(*(subsets(group) for group in _OPTIONAL))]
    for layout in registered.values():
        parts = [tensor.part_names for tensor in layout.tensors]
        for present in dict.fromkeys(tuple(not names <= absent for names in parts) for absent in absences):
            template = template_of(replace(layout, tensors=tuple(itertools.compress(layout.tensors, present))))
            distinct.setdefault((template.kind, template.coupled, template.letters, template.tensors), template)
    return tuple(distinct.values())


def _templates(places: Sequence[Layout]) -> tuple[Layout, ...]:
    distinct: dict[object, Layout] = {}
    for layout in places:
        distinct.setdefault(_what(layout), layout)
    for kind in GATES:
        for tensors in _mixed(kind):
            layout = _template(kind, tensors)
            distinct.setdefault(_what(layout), layout)
    return tuple(distinct.values())


def _what(layout: Layout) -> object:
    """Return a key that is equal for templates that differ only in the order of axes and tensors."""
    tensors = sorted(
        (t.parts, t.name.partition("|")[2], t.layers, t.reinterpreted, " ".join(sorted(w for g in t.groups for w in g if w != "1")))
        for t in layout.tensors
    )
    return layout.kind, layout.coupled, layout.letters, tuple(tensors)


def _mixed(kind: str) -> Iterator[list[Tensor]]:
    """Yield the habits of programs that define their own cells: each matrix and bias stacked, apart or joined, in any combination."""
    several = len(GATES[kind]) > 1
    apart = ("{gate}",) if several else ()
    matrices = [
        [Tensor("", "input"), Tensor("", "recurrent")],
        *([[Tensor(g, "input", "hidden in"), Tensor(g, "recurrent", "hidden in")] for g in apart]),
    ]
    for joined in ("input recurrent", "recurrent input"):
        matrices += [[Tensor("", joined, "(part in) (gate hidden)")], *([[Tensor(g, joined, "(part in) hidden")] for g in apart])]
    input_bias, recurrent_bias = Tensor("", "input_bias"), Tensor("", "recurrent_bias")
    biases: list[list[Tensor]] = [[], [input_bias], [input_bias, recurrent_bias]]
    biases += [[Tensor("", " ".join(order), "(part gate hidden)")] for order in (BIAS_PARTS, BIAS_PARTS[::-1])]
    for g in apart:
        biases += [[Tensor(g, "input_bias", "hidden")], [Tensor(g, part, "hidden") for part in BIAS_PARTS]]
    if kind == "gru":
        biases += [[input_bias, Tensor("", "recurrent_bias[n]", "hidden")]]
    extras: list[list[Tensor]] = [[]]
    if kind == "lstm":
        peepholes = [[Tensor("", f"peephole[{g}]", "hidden") for g in "ifo"], [Tensor("", "peephole[i f o]")]]
        projection = [Tensor("", "projection", "hidden in")]
        extras += [*peepholes, projection, *([*peephole, *projection] for peephole in peepholes)]
    for matrix, bias, extra in itertools.product(matrices, biases, extras):
        yield [*matrix, *bias, *extra]
    flat = ["input recurrent", "recurrent input", "input | recurrent"]
    ends = ["", " | input_bias recurrent_bias", " | input_bias", " input_bias", " input_bias recurrent_bias"]
    for start, end in itertools.product(flat, ends):
        section = "section " if "|" in start + end else ""
        yield [Tensor("", start + end, f"({section}layer direction part gate hidden in)")]


class ArrangedTemplate(NamedTuple):
    """A template with the order of axes of each array: its blocks with their shapes, and the place of every gate.

    fed  the names of the blocks of which a step from a zero state depends, with their places: all except the blocks of R alone
    """

    layout: Layout
    sizes: Sizes
    blocks: Mapping[str, Shape]
    places: tuple[Slot, ...]
    fed: tuple[tuple[str, ...], tuple[tuple[Slot, ...], ...]]


class _AxisOrder(NamedTuple):
    """How the axes of one family of arrays may lie: the shape of each, the place of each gate, and the habit it shows."""

    tensor: Tensor
    blocks: tuple[tuple[str, Shape], ...]
    places: tuple[Slot, ...]
    interleaved: bool | None


Options = dict[object, list[_AxisOrder]]
"""What was found for a family of arrays: templates have most of them in common."""


def arranged(
    layout: Layout, sizes: Sizes, array_shapes: Mapping[str, Shape], registered: bool, options: Options
) -> Iterator[ArrangedTemplate]:
    """Yield how arrays of these shapes may be arranged as a template of these sizes.

    registered  only as the registry's layouts arrange them
    options  what was found before for the same arrays
    """
    choices = []
    for tensor in layout.tensors:
        key = layout.kind, layout.coupled, layout.gates, layout.letters, tensor, sizes, registered
        if key not in options:
            options[key] = _options(layout, tensor, sizes, array_shapes, registered)
        if not options[key]:
            return
        choices.append(options[key])
    for chosen in itertools.product(*choices):
        styles = {option.interleaved for option in chosen} - {None}
        # The gates of a unit lie side by side in all arrays or in none, where the template does not mix them.
        if len(styles) > 1 and any(
            option.tensor.axes != stored_tensor.axes for option, stored_tensor in zip(chosen, layout.tensors, strict=True)
        ):
            continue
        combined = replace(layout, tensors=tuple(option.tensor for option in chosen))
        blocks = {name: shape for option in chosen for name, shape in option.blocks}
        fed = [option for option in chosen if option.tensor.part_names != {"recurrent"}]
        yield ArrangedTemplate(
            combined,
            sizes,
            blocks,
            tuple(slot for option in chosen for slot in option.places),
            (tuple(name for option in fed for name, _ in option.blocks), tuple(option.places for option in fed)),
        )


def _interleaved(tensor: Tensor) -> bool | None:
    """Return whether the gates of a unit lie side by side; None for an array without an order of gates and units."""
    words = tensor.axes.replace("(", "").replace(")", "").split()
    return None if not {"gate", "hidden"} <= set(words) else words.index("hidden") < words.index("gate")


def possible(layout: Layout, sizes: Sizes, total: int, complete: bool) -> bool:
    """Return whether so many numbers may be a stack of these sizes: quickly, and true of some that are not."""
    gates = len(set(layout.letters.split()) or layout.order)
    below = sizes.input_size if "input" in sizes.parts and not sizes.skip_input else 0
    above = sizes.num_directions * sizes.output_size if "input" in sizes.parts else 0
    widths = sizes.output_size * sizes.num_layers + below + above * (sizes.num_layers - 1)
    matrices = sizes.num_directions * gates * sizes.hidden_size * widths
    # Biases, peepholes, learned states, a projection, a block that nothing reads.
    most = sizes.hidden_size * (2 * gates + 6) + sizes.output_size * sizes.hidden_size * (2 if sizes.projection_size else 1)
    return matrices <= total and not (complete and total > matrices + sizes.num_layers * sizes.num_directions * most)


def enough(layout: Layout, sizes: Sizes, array_shapes: Mapping[str, Shape], complete: bool) -> bool:
    """Return whether there are arrays of as many elements as every block has."""
    have = Counter(math.prod(shape) for shape in array_shapes.values())
    need: Counter[int] = Counter()
    for tensor in layout.tensors:
        need.update(_counts(layout, tensor, sizes))
        if any(have[count] < times for count, times in need.items()):
            return False
    return need == have if complete else bool(need) and need.total() < have.total()


def _counts(layout: Layout, tensor: Tensor, sizes: Sizes) -> Iterator[int]:
    """Yield the number of elements of each array of one family."""
    words = {word for group in tensor.groups for word in group}
    layers = [layer for layer in range(sizes.num_layers) if tensor.has_layer(layer)]
    ways = range(sizes.num_directions)
    listed = layout.gates.split()
    named = dict(zip(layout.spelt(tensor), listed, strict=True)) if "{gate}" in tensor.name else {"": ""}
    for own_layers in [layers] if "layer" in words else [[layer] for layer in layers]:
        for own_ways in [ways] if "direction" in words else [[way] for way in ways]:
            for gate in named.values():
                count = 0
                for layer, section in itertools.product(own_layers, tensor.sections):
                    for part, held in section:
                        shape = sizes.shape(layer, part)
                        allowed = gates_of(layout.kind, part)
                        gates: Sequence[str] = held or allowed
                        if gate:
                            gates = [gate] if gate in allowed else ()
                        if part in GATE_PARTS and not held and not gate:
                            gates = [letter for letter in listed if letter in allowed]
                        count += len(gates) * math.prod(shape) * len(own_ways) if shape is not None else 0
                if count:
                    yield count


def _options(layout: Layout, tensor: Tensor, sizes: Sizes, array_shapes: Mapping[str, Shape], registered: bool) -> list[_AxisOrder]:
    """Return how the axes of one family of arrays may lie."""
    words = [word for word in _WORDS if any(word in group for group in tensor.groups)]
    have = Counter(array_shapes.values())
    by_blocks: dict[tuple[tuple[str, Shape], ...], list[Tensor]] = {}
    single = replace(layout, tensors=(tensor,))
    others = () if registered else _axes(tuple(words), frozenset(map(_ones, have)))
    for axes in dict.fromkeys([tensor.axes, *others]):
        for reinterpreted in {False, tensor.reinterpreted}:
            other = replace(tensor, axes=axes, reinterpreted=reinterpreted)
            try:
                blocks = shapes(replace(single, tensors=(other,)), sizes)
            except (ValueError, KeyError, IndexError):
                continue
            if blocks and all(have[shape] >= count for shape, count in Counter(blocks.values()).items()):
                by_blocks.setdefault(tuple(blocks.items()), []).append(other)
    return [
        _AxisOrder(other, blocks, tuple(slots(replace(single, tensors=(other,)), sizes)), _interleaved(other))
        for blocks, others in by_blocks.items()
        for other in others
    ]


def _ones(shape: Shape) -> tuple[int, ...]:
    """Return the number of axes, then which of them have the length 1."""
    return (len(shape), *(axis for axis, length in enumerate(shape) if length == 1))


@functools.cache
def _axes(words: tuple[str, ...], kinds: frozenset[tuple[int, ...]]) -> tuple[str, ...]:
    """Return the orders in which words may make up so many axes; where an axis has the length 1, it may be none of them."""
    spellings: dict[str, None] = {}
    for count, *ones in sorted(kinds):
        for empty in {(), tuple(ones)}:
            for order in _orders(words):
                for cuts in itertools.combinations(range(1, len(order)), count - len(empty) - 1):
                    groups = [order[a:b] for a, b in itertools.pairwise((0, *cuts, len(order)))]
                    if count - len(empty) < 1 or len(groups) != count - len(empty):
                        continue
                    text = [f"({' '.join(group)})" if len(group) > 1 else group[0] for group in groups]
                    for axis in empty:
                        text.insert(axis, "1")
                    spellings[" ".join(text)] = None
    return tuple(spellings)


def _orders(words: tuple[str, ...]) -> list[tuple[str, ...]]:
    """Return the orders of words, a section before its parts; of many words, what is gathered before what is gathered in it."""
    outer = [word for word in words if word not in ("gate", "hidden", "in")]
    inner = [word for word in words if word not in outer]
    if len(words) > 4:
        heads = [head for head in itertools.permutations(outer) if _before(head)]
        return [(*head, *tail) for head in heads for tail in itertools.permutations(inner)]
    return [order for order in itertools.permutations(words) if _before(order)]


def _before(order: Sequence[str]) -> bool:
    return not {"section", "part"} <= set(order) or order.index("section") < order.index("part")


def candidates_only(layout: Layout, part: str) -> bool:
    """Return whether the template has this part for the candidate's gate alone."""
    gates = {gate for name, gate in layout.keys if name == part and gate != UNUSED}
    return gates == {"n"} and layout.kind == "gru"
