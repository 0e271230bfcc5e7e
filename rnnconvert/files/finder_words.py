"""Why arrays by name are not read, and what is doubtful of those that are."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from rnnconvert.core.arrays import Array
from rnnconvert.core.notes import UNDESCRIBED, UNREAD, LayerNote
from rnnconvert.core.remedies import Flag, Setting
from rnnconvert.core.weights import gates_of
from rnnconvert.files.found_layer import FoundLayer
from rnnconvert.files.functions import class_in_words
from rnnconvert.language import registry
from rnnconvert.language.fitting import misfit, pattern
from rnnconvert.language.layout import Layout
from rnnconvert.language.places import slots


class Doubt(NamedTuple):
    """Why arrays that are named as a layer's are not read as one.

    fits   whether the caller only has to choose
    extra  an array among the layer's own that its layout does not have, or ""
    covered  how many arrays a layout that may be chosen accounts for
    undescribed  whether no layout that is known describes the layer
    """

    reason: str
    fits: bool = True
    extra: str = ""
    covered: int = 0
    undescribed: bool = False


def sentences(doubts: Mapping[str, Doubt]) -> list[LayerNote]:
    """Return the doubts about the layers of some names, in words."""
    kinds = {name: UNDESCRIBED if doubt.undescribed else UNREAD for name, doubt in doubts.items()}
    return [LayerNote(name, str(doubt.reason), kinds[name], unnamed="the file itself") for name, doubt in doubts.items()]


def unlike(groups: Sequence[FoundLayer]) -> list[FoundLayer]:
    """Return layers without those whose numbers and cell equal an earlier layer's: the choice would change nothing."""
    distinct: dict[object, FoundLayer] = {}
    for group in groups:
        cell = group.cell or group.layout.cell
        key = (group.sizes, tuple(slots(group.layout, group.sizes)), cell, group.layout.holds.open_clips)
        distinct.setdefault(key, group)
    return list(distinct.values())


def doubt_about_extra(group: FoundLayer, extra: Sequence[str], arrays: Mapping[str, Array]) -> Doubt:
    """Return the doubt about arrays that are a layer's own and that its layout does not have; one shaped as a bias is never passed over."""
    called = class_in_words(group.layout)
    wide = len(gates_of(group.layout.kind, "input")) * group.sizes.hidden_size
    bias = next((full for full in extra if arrays[full].size == max(arrays[full].shape, default=0) == wide), None)
    named = bias or extra[0]
    what = f"it has the arrays of {called} plus {named!r}, which the layer of {called} does not read"
    if bias is not None:
        reason = f"{what} and which is as long as its biases: describe the layer with {Flag('layout')}"
    else:
        reason = f"{what}. If the layer still computes the same, confirm with {Setting('layout', group.layout.name)}"
    return Doubt(reason, extra=named, covered=len(group.names), undescribed=bias is not None)


def why_none(candidates: Mapping[str, dict[str, str]], arrays: Mapping[str, Array]) -> Doubt | None:
    """Return why arrays that have a layer's names are not a layer; None where other layers have such names too."""
    layouts = [registry.layout_named(name) for name, names in candidates.items()]
    complete = [layout for layout in layouts if _all_named(layout, candidates[layout.name])]
    complete = complete or [layout for layout in layouts if speak_for(candidates[layout.name])][:2]
    if not complete:
        return None
    shapes = {local: tuple(arrays[full].shape) for layout in complete for local, full in candidates[layout.name].items()}
    reason = f"its arrays are named as those of a recurrent layer but do not fit together: {misfit(complete, shapes)}"
    return Doubt(reason, fits=False)


def _all_named(layout: Layout, names: Mapping[str, str]) -> bool:
    """Return whether these are more than one array, and all that a layout always has."""
    needed = [pattern(layout, tensor) for tensor in layout.tensors if tensor.part_names & {"input", "recurrent"}]
    return len(names) > 1 and all(any(needed_pattern.fullmatch(local) for local in names) for needed_pattern in needed)


_ANY_LAYERS = frozenset({"kernel", "bias", "weight", "w", "b", "scale", "in", "out"})
"""Words in names of arrays that layers of any kind have."""


def speak_for(names: Iterable[str]) -> bool:
    """Return whether some arrays of a layout, though not all, show that a recurrent layer was meant.

    An array shows it if other layers do not have its name: `h/kernel` does; a kernel and a bias alone, or a letter, do not.
    """
    words = (word for local in names if len(local) > 1 for word in re.split(r"[/._]", local))
    return any(word and not word.isdecimal() and word.lower() not in _ANY_LAYERS for word in words)
