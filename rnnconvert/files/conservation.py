"""Conservation: every fact in the scope of a layer is used, carried, asked about, or named as harmless.

A reader hands what a file states about a layer to `Options.facts`, and takes from it what it needs. The engine looks at
what is left once the file is read (rnnconvert.files.load.load_with): a fact that nothing took stays with the layer as
something unknown that it computes, so that a conversion refuses it by name.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from rnnconvert.core.weights import Unconvertible

UNACCOUNTED = "unaccounted"
"""The option with which a caller takes over a fact that nothing accounts for."""


class Facts(Mapping[str, Any]):
    """A file's statements about a layer, by name. A fact that is taken is accounted for; looking at names takes nothing.

    layer     the layer's name
    where     what states it, in words: "its configuration", "node 'lstm'"
    harmless  names of facts that never change what the layer computes
    neutral   values under which a fact states nothing, by its name; None is neutral for every name
    """

    def __init__(
        self,
        layer: str,
        where: str,
        facts: Mapping[str, Any],
        harmless: Collection[str] = (),
        neutral: Mapping[str, Collection[object]] | None = None,
    ) -> None:
        self.layer, self.where = layer, where
        self._facts = facts
        self._used: set[str] = set()
        self._harmless = harmless
        self._neutral = neutral or {}

    def __getitem__(self, name: str) -> Any:
        value = self._facts[name]
        self._used.add(name)
        return value

    def __contains__(self, name: object) -> bool:
        return name in self._facts

    def __iter__(self) -> Iterator[str]:
        return iter(self._facts)

    def __len__(self) -> int:
        return len(self._facts)

    def take(self, *names: str) -> None:
        """Account for facts that the reader has used in another way."""
        self._used.update(names)

    def left(self) -> dict[str, Any]:
        """Return the facts that nothing accounts for."""
        return {
            name: value
            for name, value in self._facts.items()
            if name not in self._used
            and name not in self._harmless
            and value is not None
            and not any(type(value) is type(neutral) and value == neutral for neutral in self._neutral.get(name, ()))
        }

    def unconvertible(self) -> tuple[Unconvertible, ...]:
        """Return the facts that are left, as features of the layer that are unknown."""
        return tuple(
            Unconvertible(
                UNACCOUNTED, f"{name!r} of {self.where}", f"it is {_quoted(value)}, and its effect on the numbers is unknown", True
            )
            for name, value in self.left().items()
        )


_OF_CONTAINERS = frozenset({
    "weight_names", "layer_names", "name", "names", "backend", "dtype", "CLASS", "NAME", "TITLE", "VERSION", "FLAVOR", "EXTDIM",
    "DIMENSION_LIST", "REFERENCE_LIST", "_FillValue",
})  # fmt: skip
"""Attributes that state how a container keeps its arrays, in what order, and who wrote them."""


def attributes_of(attributes: Mapping[str, Mapping[str, Any]], names: Collection[str], whole_file: bool = False) -> dict[str, Any]:
    """Return a file's attributes of some arrays and of the groups around them, by "attribute of PLACE".

    attributes  the attributes of each array and group, by its path
    whole_file  whether the layer is the file itself: the root, "", counts for it, and where an array lies in it directly
    """
    places = {""} if whole_file or any("/" not in name for name in names) else set()
    for name in names:
        words = name.split("/")
        places |= {"/".join(words[:count]) for count in range(1, len(words) + 1)}
    return {
        f"{key} of {place or 'the root'}": value
        for place in sorted(places & attributes.keys())
        for key, value in attributes[place].items()
        if key not in _OF_CONTAINERS
    }


def _quoted(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
