"""Names of layers, compared as people spell them."""

from __future__ import annotations

import collections
import itertools
import re
from collections.abc import Callable, Sequence

from rnnconvert.core.printable import quoted
from rnnconvert.models.model import Unit

_WRAPPERS = {"state_dict", "model_state_dict", "module", "model", "_orig_mod", "params", "weights", "layers", "net"}


def components_of(name: str) -> tuple[str, ...]:
    """Return a name's parts, without those that every model has around it."""
    parts = [part for part in re.split(r"[./:]", name.lower()) if part]
    while len(parts) > 1 and parts[0] in _WRAPPERS:
        parts.pop(0)
    return tuple(parts)


def _full_name(unit: Unit) -> tuple[str, ...]:
    return components_of(unit.known_as)


def _last(unit: Unit) -> tuple[str, ...]:
    last = components_of(unit.known_as)[-1:]
    return () if last and last[0].isdecimal() else last


def _flat(unit: Unit) -> tuple[str, ...]:
    return tuple(part for part in re.split(r"[\W_]+", unit.known_as.lower()) if part and part not in _WRAPPERS)


def spelling(evidence: str, target: Unit, source: Unit) -> str:
    """Return the evidence of names with the names that were compared, where the layers have others."""
    called = [unit for unit in (target, source) if unit.called and unit.called != unit.name]
    if called:
        return f"{evidence}, since {' and '.join(f'{quoted(unit.name)} was made from {unit.called!r}' for unit in called)}"
    if evidence == NAMES[0][1] and target.name != source.name:
        return f"{evidence} but for prefixes, separators and capitals"
    return evidence


Key = Callable[[Unit], tuple[str, ...]]


NAMES: tuple[tuple[Key, str], ...] = (
    (_full_name, "the same name"),
    (_flat, "the same words in their names"),
    (_last, "names with the same ending"),
)


def matching(
    targets: Sequence[Unit], sources: Sequence[Unit], key: Key, common: Callable[[Unit, Unit], str | None]
) -> list[tuple[Unit, Unit]]:
    """Return the pairs that a key makes, if no key stands for two."""
    ours, theirs = [key(unit) for unit in targets], [key(unit) for unit in sources]
    counts, other_counts = collections.Counter(ours), collections.Counter(theirs)
    by_key = dict(zip(theirs, sources, strict=True))
    keyed = zip(targets, ours, strict=True)
    pairs = [(target, by_key[name]) for target, name in keyed if name and counts[name] == other_counts[name] == 1]
    return [(target, source) for target, source in pairs if common(target, source)]


def trusted_matches(matches: list[tuple[Unit, Unit]], targets: Sequence[Unit], sources: Sequence[Unit]) -> list[tuple[Unit, Unit]]:
    """Return the pairs whose names identify them. A number alone does not: dense_1 is the first here and the second there, unless both
    sides have exactly the same ones.
    """
    if len(matches) == len(targets) == len(sources):
        return matches
    return [(target, source) for target, source in matches if not any(character.isdigit() for character in target.name + source.name)]


def crossed(named: Sequence[tuple[Unit, Unit]], targets: Sequence[Unit], sources: Sequence[Unit]) -> bool:
    """Return whether pairs are in another order in one model than in the other."""
    ours, theirs = ({id(unit): number for number, unit in enumerate(units)} for units in (targets, sources))
    places = sorted((ours[id(target)], theirs[id(source)]) for target, source in named)
    return any(after[1] < before[1] for before, after in itertools.pairwise(places))


def numbers(units: Sequence[Unit], flow: bool) -> str:
    """Return why the order of some layers is meaningful: data flows so, or their names count up; else ""."""
    if flow:
        return "the order in which data flows"
    names = [re.split(r"(\d+)", unit.known_as) for unit in units]
    counted = [[int(part) for part in name[1::2]] for name in names]
    first = names[0][0::2]
    same = all(name[0::2] == first for name in names) or _with_a_bare_first(names)
    if same and all(before < after for before, after in itertools.pairwise(counted)):
        return "names that count up"
    return ""


def _with_a_bare_first(names: Sequence[Sequence[str]]) -> bool:
    """Return whether names count as Keras does: dense, dense_1, dense_2. Keras's own way of counting."""
    bare = names[0]
    return len(bare) == 1 and all(len(name) == 3 and name[0] == f"{bare[0]}_" and not name[2] for name in names[1:])


def listing(names: Sequence[str]) -> str:
    return ", ".join(repr(name) for name in names) if names else "none"
