"""Which layer of the source fills which layer of the target: by kind and sizes, then names, then order.

Sizes leave candidates; where several remain, names and numbers decide if they decide for all of them. Order alone decides where both models
say in which order data flows, or where the caller trusts it. The rest is ambiguous: it is listed and never guessed.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from rnnconvert.core.cached import cached_property
from rnnconvert.core.errors import UsageError
from rnnconvert.core.printable import quoted
from rnnconvert.language.surroundings import Shape
from rnnconvert.models.model import Model, Unit, joined
from rnnconvert.models.names import NAMES, components_of, crossed, listing, matching, numbers, spelling, trusted_matches
from rnnconvert.models.pairs import Choice, FilledPair, Pairing

_FIRST = ("weight", "scale", "slope", "mean", "shift")


def pair(
    target: Model,
    source: Model,
    stated: Mapping[str, str] | None = None,
    skip: Iterable[str] = (),
    trust_order: bool = False,
    evidence: str = "chosen by a person",
) -> Pairing:
    """Pair two models' layers.

    stated       layers of the target, and the layers of the source that fill them
    skip         layers of the target that stay unchanged
    trust_order  whether layers that fit one another in several ways are paired in order
    evidence     the evidence for the pairs that the caller names

    Raises UsageError for a missing name, or a pair that the caller names and that cannot be.
    """
    work = _ModelPairing(target, source)
    work.skip(skip)
    work.pair_as_asked(stated or {}, evidence)
    for targets, sources in work.components():
        work.settle(targets, sources, trust_order)
    order = {name: number for number, unit in enumerate(target.units) for name in unit.arrays}
    work.pairing.pairs.sort(key=lambda entry: min((order[name] for name in entry.target.arrays), default=0))
    return work.pairing


def fitting(target: Model, source: Model) -> Callable[[Unit, Unit], bool]:
    """Return a predicate of a target's layer and a source's layer: whether the latter could fill the former, in kind and sizes."""
    work = _ModelPairing(target, source)
    return lambda target_unit, source_unit: work.common(target_unit, source_unit) is not None


class _ModelPairing:
    """A pairing on its way."""

    def __init__(self, target: Model, source: Model) -> None:
        self.target, self.source = target, source
        self.pairing = Pairing()
        # What a layer is called besides is left to whoever names it.
        self.targets, self.sources = ([unit for unit in model.units if not unit.alias] for model in (target, source))
        self._called: set[tuple[str, str]] = set()
        self._sizes: dict[int, dict[str, Hashable]] = {}

    def skip(self, names: Iterable[str]) -> None:
        for name in names:
            unit = _named(self.target, name, "the target")
            self.targets.remove(unit)
            self.pairing.skipped.append(unit)

    def pair_as_asked(self, stated: Mapping[str, str], evidence: str) -> None:
        for name, other in self._layer_by_layer(stated):
            if self._is_paired(name, other):
                continue
            target = self._unit(self.target, self.targets, name, "the target")
            source = self._unit(self.source, self.sources, other, "the source")
            if target not in self.targets:
                raise UsageError(f"the layer {name!r} of the target cannot be both left unchanged and filled from {other!r}")
            if source not in self.sources:
                raise UsageError(f"the layer {other!r} of the source cannot fill two layers of the target")
            kind = self.common(target, source, named=True)
            if kind is None:
                raise UsageError(self._why_not(target, source))
            self.add(target, source, kind, evidence, "told")

    def _is_paired(self, name: str, other: str) -> bool:
        """Return whether the caller named the same two layers before, by other names of theirs."""
        target, source = (
            next(((unit.alias or unit.name) for unit in model.units if unit.name == called), called)
            for model, called in ((self.target, name), (self.source, other))
        )
        pairs = [(pair.target.alias or pair.target.name, pair.source.alias or pair.source.name) for pair in self.pairing.pairs]
        return (target, source) in pairs

    def _unit(self, model: Model, units: list[Unit], name: str, side: str) -> Unit:
        """Return the layer of that name; for "a + b", these two as the two directions of one."""
        words = [word.strip() for word in name.split(" + ")]
        if len(words) != 2:
            unit = _named(model, name, side)
            if unit.alias and (side, name) not in self._called:
                self._called.add((side, name))
                units.append(unit)
            return unit
        ways = [_named(model, word, side) for word in words]
        if any(way not in units for way in ways):
            raise UsageError(f"{name!r} of {side}: one of the two already belongs to another layer")
        try:
            both = joined(name, *ways)
        except ValueError as error:
            raise UsageError(f"{name!r} of {side}: {error}") from None
        units[:] = [unit for unit in units if unit not in ways] + [both]
        return both

    def _layer_by_layer(self, stated: Mapping[str, str]) -> Iterator[tuple[str, str]]:
        """Yield the pairs that the caller names, a stack's name standing for all its layers."""
        for name, other in stated.items():
            ours, theirs = _layers(self.target, name), _layers(self.source, other)
            if len(ours) == len(theirs) > 1:
                yield from zip(ours, theirs, strict=True)
            else:
                yield (ours[0] if len(ours) == 1 else name), (theirs[0] if len(theirs) == 1 else other)

    def add(self, target: Unit, source: Unit, kind: str, evidence: str, confidence: str) -> None:
        self.targets.remove(target)
        self.sources.remove(source)
        self.pairing.pairs.append(FilledPair(target, source, kind, evidence, confidence))

    def sizes(self, model: Model, unit: Unit) -> dict[str, Hashable]:
        """Return, for each kind that a layer may be, the sizes that it must share with its counterpart."""
        if id(unit) not in self._sizes:
            self._sizes[id(unit)] = {kind: _size(model, unit, kind) for kind in unit.kinds}
        return self._sizes[id(unit)]

    def common(self, target: Unit, source: Unit, named: bool = False) -> str | None:
        """Return the kind that both layers are, in the same sizes, or None.

        named  whether the caller named the two, so that arrays of no layer need not be called alike
        """
        ours, theirs = self.sizes(self.target, target), self.sizes(self.source, source)
        same = [kind for kind in ours if kind in theirs and ours[kind] == theirs[kind]]
        if same == ["array"] and not named and components_of(target.name)[-1:] != components_of(source.name)[-1:]:
            return None  # an array of no layer is known by its name alone
        return same[0] if same else None

    def _why_not(self, target: Unit, source: Unit) -> str:
        ours, theirs = self.sizes(self.target, target), self.sizes(self.source, source)
        return (
            f"the layer {quoted(target.name)} of the target cannot be filled from {quoted(source.name)} of the source: "
            f"it is {_described(ours)}, but the other is {_described(theirs)}"
        )

    def components(self) -> list[tuple[list[Unit], list[Unit]]]:
        """Return sets of layers, with layers that fit one another in the same set."""
        first: dict[Hashable, Hashable] = {}

        def standing(trait: Hashable) -> Hashable:
            """Return the trait that stands for all of one set."""
            while first.setdefault(trait, trait) != trait:
                first[trait] = first[first[trait]]
                trait = first[trait]
            return trait

        sides = [
            (unit, set(self._traits(model, unit)))
            for model, units in ((self.target, self.targets), (self.source, self.sources))
            for unit in units
        ]
        count = len(self.targets)
        common = set().union(*(traits for _, traits in sides[:count])) & set().union(*(traits for _, traits in sides[count:]))
        for _, traits in sides:
            traits &= common
            for trait, other in itertools.pairwise(traits):
                first[standing(trait)] = standing(other)
        sets: dict[Hashable, tuple[list[Unit], list[Unit]]] = {}
        for number, (unit, traits) in enumerate(sides):
            if traits:
                sets.setdefault(standing(next(iter(traits))), ([], []))[number >= count].append(unit)
            else:
                (self.pairing.unfilled if number < count else self.pairing.unused).append(unit)
        return [*sets.values()]

    def _traits(self, model: Model, unit: Unit) -> Iterator[Hashable]:
        """Yield the traits that a layer shares with all layers of the other model that it fits: see `common`."""
        for kind, size in self.sizes(model, unit).items():
            yield kind, size, components_of(unit.name)[-1:] if kind == "array" else ()

    def settle(self, targets: list[Unit], sources: list[Unit], trust_order: bool) -> None:
        """Pair the layers of one set as far as that is certain."""
        targets, sources = list(targets), list(sources)
        if len(targets) == len(sources) == 1:
            kind = self._kind(targets[0], sources[0])
            where = "on both sides" if self._alone(targets[0], sources[0]) else "left"
            self.add(targets[0], sources[0], kind, f"the only {_word(kind)} of these sizes {where}", "sizes")
            return
        for key, evidence in NAMES:
            named = trusted_matches(matching(targets, sources, key, self.common), targets, sources)
            if self.target.flow and self.source.flow and not trust_order and crossed(named, targets, sources):
                break  # names say the one thing, and the order in which data flows the other
            for named_target, source in named:
                self.add(named_target, source, self._kind(named_target, source), spelling(evidence, named_target, source), "names")
            filled, used = {id(target) for target, _ in named}, {id(source) for _, source in named}
            targets = [target for target in targets if id(target) not in filled]
            sources = [source for source in sources if id(source) not in used]
        else:
            named = []
        if targets and len(targets) == len(sources) and not named:
            rule = self._order(targets, sources, trust_order)
            if rule is not None:
                for target, source in zip(targets, sources, strict=True):
                    self.add(target, source, self._kind(target, source), *rule)
                return
        if not targets or not sources:
            self.pairing.unfilled += targets
            self.pairing.unused += sources
            return
        kind = self._kind(targets[0], next(source for source in sources if self.common(targets[0], source)))
        self.pairing.ambiguous.append(Choice(tuple(unit.name for unit in targets), tuple(unit.name for unit in sources), kind))

    def _alone(self, target: Unit, source: Unit) -> bool:
        """Return whether no other layers fit these two, not even layers that were paired or left out before."""
        ours, theirs = self._having
        fitting_source = set[int]().union(*(ours.get(trait, ()) for trait in self._traits(self.source, source)))
        fitting_target = set[int]().union(*(theirs.get(trait, ()) for trait in self._traits(self.target, target)))
        return len(fitting_source) <= 1 and len(fitting_target) <= 1

    @cached_property
    def _having(self) -> tuple[dict[Hashable, set[int]], dict[Hashable, set[int]]]:
        """The layers of the target that have a trait, and the layers of the source."""
        having: tuple[dict[Hashable, set[int]], dict[Hashable, set[int]]] = ({}, {})
        for side, model in zip(having, (self.target, self.source), strict=True):
            for unit in (unit for unit in model.units if not unit.alias):
                for trait in self._traits(model, unit):
                    side.setdefault(trait, set()).add(id(unit))
        return having

    def _kind(self, target: Unit, source: Unit) -> str:
        kind = self.common(target, source)
        assert kind is not None
        return kind

    def _order(self, targets: Sequence[Unit], sources: Sequence[Unit], trusted: bool) -> tuple[str, str] | None:
        """Return why layers may be paired in order, or None."""
        if any(self.common(target, source) is None for target, source in zip(targets, sources, strict=True)):
            return None
        if len(targets) == 1:
            return f"the only {_word(self._kind(targets[0], sources[0]))} of these sizes left", "sizes"
        ours, theirs = numbers(targets, self.target.flow), numbers(sources, self.source.flow)
        if ours and theirs:
            return f"in order: {ours} in the target, {theirs} in the source", "numbers"
        if not trusted:
            return None
        order = "in alphabetical order" if self.target.alphabet or self.source.alphabet else ("in the models' order")
        return f"{order}, which the caller trusts", "order"


def _layers(model: Model, name: str) -> list[str]:
    """Return the layers of the stack of that name."""
    stacks = [unit for unit in model.units if unit.stack is not None]
    return [unit.name for unit in stacks if name in (unit.name.partition("[")[0], unit.known_as.partition("[")[0])]


def _named(model: Model, name: str, side: str) -> Unit:
    unit = model.unit(name)
    if unit is None:
        last = re.split(r"[./]", name)[-1]
        near = [candidate.name for candidate in model.units if last in re.split(r"[./:]", candidate.name)]
        hint = f"Did you mean {near[0]!r}?" if near else f"It has {listing([candidate.name for candidate in model.units])}"
        raise UsageError(f"{side} {model.title} has no layer {name!r}. {hint}")
    return unit


def _size(model: Model, unit: Unit, kind: str) -> Hashable:
    if unit.stack is not None:
        stack, first = unit.stack, unit.stack.first
        cell = first.cell.kind
        return cell, stack.num_layers, stack.num_directions, stack.input_size, first.hidden_size, first.projection_size
    if kind == "array":
        array = model.arrays[next(iter(unit.names.values()))]
        return tuple(array.shape) if array.size != 1 else ()  # frameworks keep one number as () or as (1,)
    layout = unit.reading(kind)
    shapes = {
        tensor.part: layout.shape(tensor, model.arrays[unit.names[tensor.name]].shape)
        for tensor in layout.tensors
        if tensor.name in unit.names
    }
    return next(shapes[part] for part in _FIRST if part in shapes)


def _described(sizes: Mapping[str, object]) -> str:
    return " or ".join(f"{_word(kind)} of {_in_words(kind, size)}" for kind, size in sizes.items())


def _in_words(kind: str, size: object) -> str:
    if kind == "recurrent":
        sizes: tuple[Any, ...] = size  # type: ignore[assignment]
        cell, layers, ways, reads, hidden, projection = sizes
        words = f"{str(cell).upper()} {reads} -> {hidden}" + (f" projected to {projection}" if projection else "")
        return words + (", both directions" if ways == 2 else "") + (f", {layers} layers" if layers > 1 else "")
    shape: Shape = size  # type: ignore[assignment]
    return "x".join(str(length) for length in shape) or "one number"


def _word(kind: str) -> str:
    return {
        "recurrent": "recurrent layer",
        "array": "array",
        "dense": "dense layer",
        "conv": "convolution",
        "conv_transpose": "transposed convolution",
    }.get(kind, kind.replace("_", " "))
