"""The layers of two models that are not recurrent: paired as a transplant pairs them, and their numbers and settings compared.

Cases are run through recurrent layers alone, so nothing else shows that two models have another head or another embedding.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from rnnconvert.comparison.rounding import rounding_of
from rnnconvert.core.arrays import Array, is_float
from rnnconvert.core.errors import RnnConvertError
from rnnconvert.core.printable import listed, quoted
from rnnconvert.core.verdict import Limit
from rnnconvert.files.checkpoint import Checkpoint
from rnnconvert.models.differences import differences
from rnnconvert.models.filling import NEUTRAL, in_order
from rnnconvert.models.flattening import Flattening
from rnnconvert.models.model import Model, Unit
from rnnconvert.models.pairing import pair
from rnnconvert.models.pairs import FilledPair
from rnnconvert.models.readers import model_of
from rnnconvert.models.same_cells import MisfitError

_ROWS = 1 << 16
"""How many numbers of two arrays are compared at a time, so that no large matrix is held in double precision."""

_PLURALS = ("embeddings", "numbers")
"""Parts whose names are plurals."""

_FOLDED = ("batch_norm", "instance_norm", "layer_norm", "rms_norm", "group_norm")
"""The kinds of layer that exporters multiply into their neighbours."""


@dataclass(frozen=True)
class OtherLayers:
    """The comparison of the other layers.

    equal       how many layers of A have the numbers and settings of B's
    different   the layers with other numbers, each with what differs, in words
    uncompared  what was not compared, and why, in words
    settings    layers with the same numbers and other settings, with what differs, in words: another layer may make up for it
    only_in     the labels of the models that have layers which the other lacks
    folded      whether numbers may differ because a normalization was multiplied into them: only one of the models has it
    """

    equal: int
    different: tuple[str, ...]
    uncompared: tuple[str, ...]
    settings: tuple[str, ...] = ()
    only_in: tuple[str, ...] = ()
    folded: bool = False

    @property
    def refuted(self) -> tuple[str, ...]:
        """Why the models are not equal, even if their outputs are."""
        return () if self.folded else self.different

    @property
    def limits(self) -> tuple[Limit, ...]:
        """The limits of the comparison."""
        words = "only one of the models has a normalization, which may have been multiplied into layers whose numbers differ"
        folded = [Limit("folded", "", f"{words}: {', '.join(self.different)}")] if self.folded and self.different else []
        return (*folded, *(Limit("rest", "", f"not compared: {text}") for text in self.uncompared))


NOT_LOOKED_AT = OtherLayers(0, (), ())
"""The result if a user chose some of the layers."""


def compare_others(a: Checkpoint, b: Checkpoint) -> OtherLayers:
    """Compare what is not recurrent in two files.

    Never raises for what a file holds: layers that cannot be read or paired are listed as not compared.
    """
    try:
        models = [model_of(checkpoint) for checkpoint in (a, b)]
        source, target = map(_without_recurrence, models)
        pairing = pair(target, source)
    except RnnConvertError as error:
        return OtherLayers(0, (), (f"the layers around the recurrent ones: {error.args[0]}",))
    orders = Flattening(target, source)
    equal, different, settings, uncompared = 0, [], [], []
    for matched in pairing.pairs:
        try:
            stated, numbers = [*_settings(matched, target, source)], [*_numbers(matched, target, source, orders)]
        except (RnnConvertError, MisfitError) as error:
            uncompared.append(f"{_both(matched)}: {error.args[0]}")
            continue
        equal += not stated and not numbers
        words = f"{_both(matched)}: {'; '.join([*stated, *numbers])}"
        different += [words] if numbers else []
        settings += [words] if stated and not numbers else []
    ours, theirs = (_loose(checkpoint, model) for checkpoint, model in zip((a, b), models, strict=True))
    for name in (name for name in ours if name in theirs):
        numbers = [*_apart("", ours[name], theirs[name])]
        equal += not numbers
        different += [f"{quoted(name)}: {'; '.join(numbers)}"] if numbers else []
    alone_a = _unpaired(source, pairing.unused, (matched.source for matched in pairing.pairs))
    alone_b = _unpaired(target, pairing.unfilled, (matched.target for matched in pairing.pairs))
    left = {
        "A": [*(unit.name for unit in alone_a), *(name for name in ours if name not in theirs)],
        "B": [*(unit.name for unit in alone_b), *(name for name in theirs if name not in ours)],
    }
    only_in = {label: names for label, names in left.items() if names}
    uncompared += [f"{listed(names)}, only in {label}" for label, names in only_in.items()]
    uncompared += [
        f"{listed(choice.sources)} of A and {listed(choice.targets)} of B fit one another in several ways" for choice in pairing.ambiguous
    ]
    folded = any(kind in _FOLDED for unit in (*alone_a, *alone_b) for kind in unit.kinds)
    return OtherLayers(equal, tuple(different), tuple(uncompared), tuple(settings), tuple(only_in), folded)


def _without_recurrence(model: Model) -> Model:
    return model.replace(units=tuple(unit for unit in model.units if unit.stack is None))


def _loose(checkpoint: Checkpoint, model: Model) -> dict[str, Array]:
    """Return the weights that stand in no layer, where the names of arrays alone show the layers: otherwise every array is listed."""
    if not model.by_names:
        return {}
    elsewhere = {*model.aside, *(name for unit in model.units for name in unit.arrays)}
    return {name: np.asarray(array) for name, array in checkpoint.tensors.items() if name not in elsewhere and is_float(array)}


def _unpaired(model: Model, left: Iterable[Unit], paired: Iterable[Unit]) -> list[Unit]:
    """Return the layers without a counterpart, except other names for the arrays of a paired layer."""
    compared = model.memory(name for unit in paired for name in unit.arrays)
    return [unit for unit in left if not model.memory(unit.arrays) <= compared]


def _settings(matched: FilledPair, target: Model, source: Model) -> Iterator[str]:
    for difference in differences(matched, target, source):
        if difference.matters == "function":
            yield f"{difference.option} is {difference.source} in A and {difference.target} in B"


def _numbers(matched: FilledPair, target: Model, source: Model, orders: Flattening) -> Iterator[str]:
    """Yield how the numbers of two layers differ, part by part. Raises MisfitError where they cannot be compared."""
    if matched.kind == "array":
        ours, theirs = (np.asarray(model.arrays[unit.arrays[0]]) for model, unit in ((source, matched.source), (target, matched.target)))
        yield from _apart("", ours, theirs)
        return
    parts, others = source.parts(matched.source, matched.kind), target.parts(matched.target, matched.kind)
    in_order(matched, parts, orders)
    for part in dict.fromkeys((*parts, *others)):
        if part in parts and part in others:
            yield from _apart(part, parts[part], others[part])
            continue
        label, array = ("A", parts[part]) if part in parts else ("B", others[part])
        if part not in NEUTRAL or (array != NEUTRAL[part]).any():
            yield f"only {label} has a {part}"


def _apart(part: str, ours: Array, theirs: Array) -> Iterator[str]:
    """Yield by how much two arrays differ, if that is more than the coarser of their element types explains."""
    if ours.shape != theirs.shape:
        yield f"its {part or 'numbers'} have the shape {ours.shape} in A and {theirs.shape} in B"
        return
    error = max((_excess(*rows) for rows in _rows(ours, theirs)), default=0.0)
    if error > 0:
        yield f"its {part or 'numbers'} {'differ' if not part or part in _PLURALS else 'differs'} by up to {error:.2g}"


def _rows(ours: Array, theirs: Array) -> Iterator[tuple[Array, Array]]:
    """Yield two arrays some rows at a time."""
    if ours.ndim == 0:
        yield ours, theirs
        return
    step = max(1, _ROWS // max(1, ours[:1].size))
    for start in range(0, len(ours), step):
        yield ours[start : start + step], theirs[start : start + step]


def _excess(ours: Array, theirs: Array) -> float:
    """Return the largest difference of two arrays, 0 where their element types explain all of it."""
    with np.errstate(all="ignore"):
        same = (ours == theirs) | ((ours != ours) & (theirs != theirs))
        if same.all():
            return 0.0
        off = np.abs(ours.astype(np.float64) - theirs.astype(np.float64))
        off = np.where(same, 0.0, np.where(np.isnan(off), np.inf, off))  # of arrays without axes, too
    floats = all(array.dtype.kind not in "iub" for array in (ours, theirs))
    allowed = rounding_of(ours, theirs) if floats else 0.0
    return float(off.max()) if (off > allowed).any() else 0.0


def _both(matched: FilledPair) -> str:
    ours, theirs = matched.source.name, matched.target.name
    return quoted(ours) if ours == theirs else f"{quoted(ours)} ({quoted(theirs)} in B)"
