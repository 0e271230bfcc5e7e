"""Which layer of the source fills which layer of the target: by kind and sizes, then names, then order.

Sizes leave candidates; where several remain, names and numbers decide if they decide for all of them. Order alone
decides where both models say in which order data flows, or where the caller trusts it. The rest is ambiguous: it
is listed and never guessed.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rnnconvert.core.errors import UsageError
from rnnconvert.core.printable import quoted
from rnnconvert.language.surroundings import Shape
from rnnconvert.models.model import Model, Unit, joined

_WRAPPERS = {"state_dict", "model_state_dict", "module", "model", "_orig_mod", "params", "weights", "layers", "net"}
_FIRST = ("weight", "scale", "slope", "mean")


@dataclass(frozen=True)
class FilledPair:
    """A layer of the target and the layer of the source that fills it.

    target, source  the layers
    kind            what both are
    evidence        why they belong together, in words
    confidence      "told" by the caller, "sizes" (no other fits), "names", "numbers" or "order"
    """

    target: Unit
    source: Unit
    kind: str
    evidence: str
    confidence: str


@dataclass(frozen=True)
class Choice:
    """Layers that fit one another in several ways.

    targets, sources  their names, in order
    kind              what they are
    """

    targets: tuple[str, ...]
    sources: tuple[str, ...]
    kind: str

    def __str__(self) -> str:
        return f"{_list(self.targets)} may be filled from {_list(self.sources)} ({self.kind})"


@dataclass
class Pairing:
    """What belongs together.

    pairs      layers that do
    ambiguous  layers that may, in several ways
    unfilled   layers of the target that nothing fits
    unused     layers of the source that fit nothing
    skipped    layers of the target that the caller leaves unchanged
    """

    pairs: list[FilledPair] = field(default_factory=list)
    ambiguous: list[Choice] = field(default_factory=list)
    unfilled: list[Unit] = field(default_factory=list)
    unused: list[Unit] = field(default_factory=list)
    skipped: list[Unit] = field(default_factory=list)


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
    work.tell(stated or {}, evidence)
    for targets, sources in work.components():
        work.settle(targets, sources, trust_order)
    order = {name: number for number, unit in enumerate(target.units) for name in unit.arrays}
    work.pairing.pairs.sort(key=lambda entry: min((order[name] for name in entry.target.arrays), default=0))
    return work.pairing


def fitting(target: Model, source: Model) -> Callable[[Unit, Unit], bool]:
    """Return what finds out whether a layer of the source could fill one of the target: of one kind, in the same sizes."""
    work = _ModelPairing(target, source)
    return lambda target_unit, two: work.common(target_unit, two) is not None


class _ModelPairing:
    """A pairing on its way."""

    def __init__(self, target: Model, source: Model) -> None:
        self.target, self.source = target, source
        self.pairing = Pairing()
        # What a layer is called besides is left to whoever names it.
        self.targets, self.sources = ([unit for unit in model.units if not unit.alias] for model in (target, source))
        self._called: set[tuple[str, str]] = set()
        self._sizes: dict[int, dict[str, object]] = {}

    def skip(self, names: Iterable[str]) -> None:
        for name in names:
            unit = _named(self.target, name, "the target")
            self.targets.remove(unit)
            self.pairing.skipped.append(unit)

    def tell(self, stated: Mapping[str, str], evidence: str) -> None:
        for name, other in self._layer_by_layer(stated):
            if self._told_already(name, other):
                continue
            target = self._unit(self.target, self.targets, name, "the target")
            two = self._unit(self.source, self.sources, other, "the source")
            if target not in self.targets:
                raise UsageError(f"the layer {name!r} of the target cannot be both left unchanged and filled from {other!r}")
            if two not in self.sources:
                raise UsageError(f"the layer {other!r} of the source cannot fill two layers of the target")
            kind = self.common(target, two, named=True)
            if kind is None:
                raise UsageError(self._why_not(target, two))
            self.add(target, two, kind, evidence, "told")

    def _told_already(self, name: str, other: str) -> bool:
        """Return whether the caller named the same two layers before, by other names of theirs."""
        target, two = (
            next(((unit.alias or unit.name) for unit in model.units if unit.name == called), called)
            for model, called in ((self.target, name), (self.source, other))
        )
        pairs = [(pair.target.alias or pair.target.name, pair.source.alias or pair.source.name) for pair in self.pairing.pairs]
        return (target, two) in pairs

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

    def add(self, target: Unit, two: Unit, kind: str, evidence: str, confidence: str) -> None:
        self.targets.remove(target)
        self.sources.remove(two)
        self.pairing.pairs.append(FilledPair(target, two, kind, evidence, confidence))

    def sizes(self, model: Model, unit: Unit) -> dict[str, object]:
        """Return, for each kind that a layer may be, the sizes that it must share with its counterpart."""
        if id(unit) not in self._sizes:
            self._sizes[id(unit)] = {kind: _size(model, unit, kind) for kind in unit.kinds}
        return self._sizes[id(unit)]

    def common(self, target: Unit, two: Unit, named: bool = False) -> str | None:
        """Return the kind that both layers are, in the same sizes, or None.

        named  whether the caller named the two, so that arrays of no layer need not be called alike
        """
        ours, theirs = self.sizes(self.target, target), self.sizes(self.source, two)
        same = [kind for kind in ours if kind in theirs and ours[kind] == theirs[kind]]
        if same == ["array"] and not named and _components(target.name)[-1:] != _components(two.name)[-1:]:
            return None  # an array of no layer is known by its name alone
        return same[0] if same else None

    def _why_not(self, target: Unit, two: Unit) -> str:
        ours, theirs = self.sizes(self.target, target), self.sizes(self.source, two)
        return (
            f"the layer {quoted(target.name)} of the target cannot be filled from {quoted(two.name)} of the source: "
            f"it is {_described(ours)}, but the other is {_described(theirs)}"
        )

    def components(self) -> list[tuple[list[Unit], list[Unit]]]:
        """Return sets of layers, with layers that fit one another in the same set."""
        left = list(self.sources)
        sets: list[tuple[list[Unit], list[Unit]]] = []
        for target in self.targets:
            mine = [two for two in self.sources if self.common(target, two)]
            if not mine:
                self.pairing.unfilled.append(target)
                continue
            left = [two for two in left if two not in mine]
            touching = [component for component in sets if any(two in component[1] for two in mine)]
            sets = [component for component in sets if component not in touching]
            targets = [unit for component in touching for unit in component[0]] + [target]
            sources = [two for two in self.sources if two in mine or any(two in component[1] for component in touching)]
            sets.append((targets, sources))
        self.pairing.unused += left
        return sets

    def settle(self, targets: list[Unit], sources: list[Unit], trust_order: bool) -> None:
        """Pair the layers of one set as far as that is certain."""
        targets, sources = list(targets), list(sources)
        if len(targets) == len(sources) == 1:
            kind = self._kind(targets[0], sources[0])
            where = "on both sides" if self._alone(targets[0], sources[0]) else "left"
            self.add(targets[0], sources[0], kind, f"the only {_word(kind)} of these sizes {where}", "sizes")
            return
        for key, evidence in _NAMES:
            named = _trusted(_matching(targets, sources, key, self.common), targets, sources)
            if self.target.flow and self.source.flow and not trust_order and _crossed(named, targets, sources):
                break  # names say the one thing, and the order in which data flows the other
            for named_target, two in named:
                self.add(named_target, two, self._kind(named_target, two), _spelled(evidence, named_target, two), "names")
                targets.remove(named_target)
                sources.remove(two)
        else:
            named = []
        if targets and len(targets) == len(sources) and not named:
            rule = self._order(targets, sources, trust_order)
            if rule is not None:
                for target, two in zip(targets, sources, strict=True):
                    self.add(target, two, self._kind(target, two), *rule)
                return
        if not targets or not sources:
            self.pairing.unfilled += targets
            self.pairing.unused += sources
            return
        kind = self._kind(targets[0], next(two for two in sources if self.common(targets[0], two)))
        self.pairing.ambiguous.append(Choice(tuple(unit.name for unit in targets), tuple(unit.name for unit in sources), kind))

    def _alone(self, target: Unit, two: Unit) -> bool:
        """Return whether no other layers fit these two, not even layers that were paired or left out before."""
        ours, theirs = ([unit for unit in model.units if not unit.alias] for model in (self.target, self.source))
        return (
            sum(self.common(unit, two) is not None for unit in ours) <= 1
            and sum(self.common(target, unit) is not None for unit in theirs) <= 1
        )

    def _kind(self, target: Unit, two: Unit) -> str:
        kind = self.common(target, two)
        assert kind is not None
        return kind

    def _order(self, targets: Sequence[Unit], sources: Sequence[Unit], trusted: bool) -> tuple[str, str] | None:
        """Return why layers may be paired in order, or None."""
        if any(self.common(target, two) is None for target, two in zip(targets, sources, strict=True)):
            return None
        if len(targets) == 1:
            return f"the only {_word(self._kind(targets[0], sources[0]))} of these sizes left", "sizes"
        ours, theirs = _numbers(targets, self.target.flow), _numbers(sources, self.source.flow)
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
        near = [candidate.name for candidate in model.units if candidate.name.rpartition(".")[2] == name.rpartition(".")[2]]
        hint = f"Did you mean {near[0]!r}?" if near else f"It has {_list([candidate.name for candidate in model.units])}"
        raise UsageError(f"{side} {model.title} has no layer {name!r}. {hint}")
    return unit


def _size(model: Model, unit: Unit, kind: str) -> object:
    if unit.stack is not None:
        stack, first = unit.stack, unit.stack.first
        cell = first.cell.kind
        return cell, stack.num_layers, stack.num_directions, stack.input_size, first.hidden_size, first.projection_size
    if kind == "array":
        return tuple(model.arrays[next(iter(unit.names.values()))].shape)
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


def _components(name: str) -> tuple[str, ...]:
    """Return a name's parts, without those that every model has around it."""
    parts = [part for part in re.split(r"[./:]", name.lower()) if part]
    while len(parts) > 1 and parts[0] in _WRAPPERS:
        parts.pop(0)
    return tuple(parts)


def _full_name(unit: Unit) -> tuple[str, ...]:
    return _components(unit.known_as)


def _last(unit: Unit) -> tuple[str, ...]:
    last = _components(unit.known_as)[-1:]
    return () if last and last[0].isdecimal() else last


def _flat(unit: Unit) -> tuple[str, ...]:
    return tuple(part for part in re.split(r"[\W_]+", unit.known_as.lower()) if part and part not in _WRAPPERS)


def _spelled(evidence: str, target: Unit, two: Unit) -> str:
    """Return the evidence of names with the names that were compared, where the layers have others."""
    called = [unit for unit in (target, two) if unit.called and unit.called != unit.name]
    if called:
        return f"{evidence}, since {' and '.join(f'{quoted(unit.name)} was made from {unit.called!r}' for unit in called)}"
    if evidence == _NAMES[0][1] and target.name != two.name:
        return f"{evidence} but for prefixes, separators and capitals"
    return evidence


Key = Callable[[Unit], tuple[str, ...]]
_NAMES: tuple[tuple[Key, str], ...] = (
    (_full_name, "the same name"),
    (_flat, "the same words in their names"),
    (_last, "names with the same ending"),
)


def _matching(
    targets: Sequence[Unit], sources: Sequence[Unit], key: Key, common: Callable[[Unit, Unit], str | None]
) -> list[tuple[Unit, Unit]]:
    """Return the pairs that a key makes, if no key stands for two."""
    ours, theirs = [key(unit) for unit in targets], [key(unit) for unit in sources]
    matches = []
    for target, name in zip(targets, ours, strict=True):
        if name and ours.count(name) == theirs.count(name) == 1:
            two = sources[theirs.index(name)]
            if common(target, two):
                matches.append((target, two))
    return matches


def _trusted(matches: list[tuple[Unit, Unit]], targets: Sequence[Unit], sources: Sequence[Unit]) -> list[tuple[Unit, Unit]]:
    """Return the pairs whose names identify them. A number alone does not: dense_1 is the first here and the second
    there,
    unless both sides have exactly the same ones.
    """
    if len(matches) == len(targets) == len(sources):
        return matches
    return [(target, two) for target, two in matches if not any(character.isdigit() for character in target.name + two.name)]


def _crossed(named: Sequence[tuple[Unit, Unit]], targets: Sequence[Unit], sources: Sequence[Unit]) -> bool:
    """Return whether pairs are in another order in one model than in the other."""
    places = sorted((targets.index(target), sources.index(two)) for target, two in named)
    return any(two[1] < before[1] for before, two in itertools.pairwise(places))


def _numbers(units: Sequence[Unit], flow: bool) -> str:
    """Return why the order of some layers is meaningful: data flows so, or their names count up; else ""."""
    if flow:
        return "the order in which data flows"
    names = [re.split(r"(\d+)", unit.known_as) for unit in units]
    counted = [[int(part) for part in name[1::2]] for name in names]
    first = names[0][0::2]
    same = all(name[0::2] == first for name in names) or _with_a_bare_first(names)
    if same and all(before < two for before, two in itertools.pairwise(counted)):
        return "names that count up"
    return ""


def _with_a_bare_first(names: Sequence[Sequence[str]]) -> bool:
    """Return whether names count as Keras does: dense, dense_1, dense_2. Keras's own way of counting."""
    bare = names[0]
    return len(bare) == 1 and all(len(name) == 3 and name[0] == f"{bare[0]}_" and not name[2] for name in names[1:])


def _list(names: Sequence[str]) -> str:
    return ", ".join(repr(name) for name in names) if names else "none"
