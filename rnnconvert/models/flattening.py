"""The order of a flattened convolution's values, which no shape shows: in the layers that read them and that make them.

Where channels come last, a value's place is space * channels + channel; where they come first, channel * spaces + space.
A dense or recurrent layer has a column for each, a normalisation between them a number, and a dense layer whose output is
cut into channels for a convolution a row.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import numpy as np

from rnnconvert.core.arrays import Array
from rnnconvert.core.errors import UsageError
from rnnconvert.core.printable import quoted
from rnnconvert.core.remedies import Flag, FlattenAs
from rnnconvert.language import registry
from rnnconvert.models.model import Flat, Model, Unit, channels_given, weight_shape
from rnnconvert.models.pairs import FilledPair

ORDERS = ("channels_first", "channels_last")
SIDES = ("target", "source")
NONE = "none"
"""The caller's word for a model in which nothing is flattened."""
SAME = "same"
"""The caller's word for two models that flatten alike, regardless of what either shows: no column moves."""

Flatten = str | Mapping[str, str] | None
"""The caller's choice: "none", or the order of each side that does not show its own, {"target": "channels_first"} or
"target=channels_first"."""


def orders(flatten: Flatten) -> dict[str, str]:
    """Return the order that the caller gives for each side, {} for none.

    Raises UsageError for an unknown side or order.
    """
    if flatten is None or flatten in (NONE, SAME):
        return {}
    if isinstance(flatten, str):
        pairs = [part.partition("=")[::2] for part in flatten.split(",")]
        orders_by_side = {side.strip(): order.strip() for side, order in pairs}
        if len(orders_by_side) < len(pairs):
            raise UsageError(f"flatten names a side twice: {flatten!r}")
    elif isinstance(flatten, Mapping):
        orders_by_side = {str(side): str(order) for side, order in flatten.items()}
    else:
        orders_by_side = {str(flatten): ""}
    for side, order in orders_by_side.items():
        if side in ORDERS and not order and isinstance(flatten, str):
            raise UsageError(
                f"{side!r} does not name a side. Use {FlattenAs(target=side)} for the model that is filled, "
                f"{FlattenAs(source=side)} for the one that fills it, or both"
            )
        if side not in SIDES or order not in ORDERS:
            raise UsageError(
                f"flatten cannot be {flatten!r}. Give 'none', 'same', or {' or '.join(ORDERS)} for 'target', 'source' or both, as in "
                "{'target': 'channels_first'}"
            )
    return orders_by_side


def _default_order(framework: str) -> str:
    """Return how a framework usually flattens; "" where it has no such habit."""
    system = registry.systems().get(framework)
    return system.channels if system is not None else ""


def _with(order: str) -> str:
    """Return the frameworks that usually flatten so, for a sentence."""
    return ", ".join(name for name, system in registry.systems().items() if system.channels == order)


class Flattening:
    """The order in which the values of a flattened convolution stand, on both sides.

    stated   the order of each side that does not show its own, as far as the caller says it
    nothing  whether the caller says that nothing is flattened
    """

    def __init__(self, target: Model, source: Model, flatten: Flatten = None) -> None:
        self.target, self.source = target, source
        self.stated, self.nothing, self.same = orders(flatten), flatten == NONE, flatten == SAME
        self.notes: list[str] = []
        self._used: set[str] = set()

    def unused(self) -> list[str]:
        """Return the sides, or "none", that the caller named and no layer needed."""
        sides = [NONE] if self.nothing else list(self.stated)
        return [side for side in sides if side not in self._used]

    def columns(self, pair: FilledPair, width: int) -> Array | None:
        """Return which of the source's columns goes into each column of the target; None where the order is the same.

        Raises UsageError where the order matters and the models do not show it.
        """
        flats = pair.target.reads, pair.source.reads
        guesses = [_flattened(model, unit, width) for model, unit in self._in_order(pair)]
        order = self._order(pair, width, flats, guesses, "columns")
        if order is None and not self.same and not any(flats) and not any(guesses) and not self._alike and pair.kind == "dense":
            self._doubt(pair, width)
        return order

    def rows(self, pair: FilledPair, width: int) -> Array | None:
        """Return the same for the rows of a layer whose output is cut into channels."""
        flats = pair.target.gives, pair.source.gives
        guesses = [_cut(model, unit, width) for model, unit in self._in_order(pair)]
        return self._order(pair, width, flats, guesses, "rows")

    def values(self, pair: FilledPair, width: int) -> Array | None:
        """Return the same for a layer that has one number for each value: flattened before it, or cut after it."""
        order = self.columns(pair, width)
        return self.rows(pair, width) if order is None else order

    def _order(
        self, pair: FilledPair, width: int, flats: tuple[Flat | None, Flat | None], guesses: Sequence[int | None], what: str
    ) -> Array | None:
        if self.same:
            return None
        channels, joined = self._channels(pair, width, flats, guesses)
        ours, theirs = (flat.order if flat is not None else "" for flat in flats)
        default = _default_order(self.target.framework)
        if not channels:
            return None
        if self.nothing:
            self._used.add(NONE)
        as_usual = self._alike and all(order in ("", default) for order in (ours, theirs))
        if as_usual and not self.stated and not (self.nothing and (ours or theirs)):
            return None
        self._contradicted(pair, ours, theirs)
        if not ours or not theirs:
            if self.nothing and (ours or theirs):
                shows = self.target.title if ours else self.source.title
                raise UsageError(
                    f"{Flag('flatten', 'none')} says that nothing is flattened, but {shows} shows that what "
                    f"{quoted(pair.target.name)} reads or "
                    "gives is. Say how the other flattens: "
                    f"{FlattenAs(**{'source' if ours else 'target': 'channels_first'})} or channels_last"
                )
            if self.nothing:
                return None
            ours, theirs = self._as_stated(pair, width, channels, what, ours, theirs)
        if ours == theirs:
            return None
        if joined:
            raise UsageError(
                f"{quoted(pair.target.name)} reads values of a flattened convolution together with others, {_in_words(theirs)} in the "
                f"source and {_in_words(ours)} in the target, which cannot be reordered here. Flatten {_in_words(theirs)} in the "
                f"target, and confirm with {FlattenAs(target=theirs)}"
            )
        places = width // channels
        cut = (places, channels) if theirs == "channels_last" else (channels, places)
        done = "flattens" if what == "columns" else "cuts them into channels"
        self._note(
            f"{pair.target.name}: its {what} are in the order in which the target {done}, {_in_words(ours)} "
            f"({channels} channels, {places} places each)"
        )
        order: Array = np.arange(width).reshape(cut).T.reshape(-1)
        return order

    @property
    def _alike(self) -> bool:
        """Whether both frameworks usually have channels at the same place."""
        return _default_order(self.target.framework) == _default_order(self.source.framework)

    def _in_order(self, pair: FilledPair) -> list[tuple[Model, Unit]]:
        """Return the models whose layers may be in the order of the data: without those sorted by name, if one is not."""
        both = [(self.target, pair.target), (self.source, pair.source)]
        return [(model, unit) for model, unit in both if not model.alphabet] or both

    def _note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)

    def _doubt(self, pair: FilledPair, width: int) -> None:
        """Note that a dense layer reads a width which no layer gives, so that a flattened convolution may be among its input."""
        sizes = [_size_of_output(unit, self.target) for unit in self.target.units]
        most = max((size for size, is_conv in sizes if is_conv), default=width)
        if width > most and width not in [size for size, _ in sizes]:
            self._note(
                f"{pair.target.name}: it reads {width} values, which no single layer gives; if a flattened convolution is "
                "among them, the two models have to flatten it in the same order, which neither shows"
            )

    def _channels(
        self, pair: FilledPair, width: int, flats: tuple[Flat | None, Flat | None], guesses: Sequence[int | None]
    ) -> tuple[int, bool]:
        """Return how many channels were flattened, 0 for none, and whether other values are flattened with them."""
        seen = [flat for flat in flats if flat is not None]
        counts_seen = {flat.channels for flat in seen} if seen else {guess for guess in guesses if guess is not None}
        joined = any(flat.joined for flat in seen)
        if len(counts_seen) > 1 and (counts_seen := counts_seen - {0}) and len(counts_seen) > 1:
            counts = " or ".join(str(count) for count in sorted(counts_seen))
            raise UsageError(
                f"{quoted(pair.target.name)}: its {width} values seem to be those of {counts} channels, on which the two models do not "
                "agree; put the layers of both models into the order in which data flows"
            )
        channels = max(counts_seen, default=0)
        fits = channels > 1 and (joined or (width % channels == 0 and width > channels))
        return (channels if fits else 0), joined

    def _as_stated(self, pair: FilledPair, width: int, channels: int, what: str, ours: str, theirs: str) -> tuple[str, str]:
        """Return the orders of the target and the source, asking the caller for those that are not shown."""
        sides = (("target", self.target, ours), ("source", self.source, theirs))
        hidden = [(side, model) for side, model, order in sides if not order and side not in self.stated]
        if hidden:
            titles = [model.title for _, model in hidden]
            side = f"{titles[0]} does not show" if len(titles) == 1 else f"neither {titles[0]} nor {titles[1]} shows"
            seem = (
                "reads {} values that seem to be flattened from {}"
                if what == "columns"
                else ("gives {} values that seem to be cut into {}")
            )
            flags = FlattenAs(**{side: "channels_first" for side, _ in hidden})
            raise UsageError(
                f"{quoted(pair.target.name)} {seem.format(width, channels)} channels, and {side} "
                f"in which order. Give it with {flags} (all places of one channel, then the next: "
                f"{_with('channels_first')}) or channels_last (all channels of one place: {_with('channels_last')}), or "
                f"{Flag('flatten', 'none')} if nothing is flattened there"
            )
        self._used |= {side for side, _, order in sides if not order}
        return ours or self.stated["target"], theirs or self.stated["source"]

    def _contradicted(self, pair: FilledPair, ours: str, theirs: str) -> None:
        """Raise UsageError if the caller contradicts the order that a side shows."""
        for side, model, shown_order in (("target", self.target, ours), ("source", self.source, theirs)):
            stated = self.stated.get(side, shown_order)
            if shown_order and stated != shown_order:
                raise UsageError(
                    f"{quoted(pair.target.name)}: flatten says {_in_words(stated)} for the {side}, but {model.title} shows that it is "
                    f"{_in_words(shown_order)} there. Leave {side!r} out of flatten"
                )
            if shown_order:
                self._used.add(side)


def _size_of_output(unit: Unit, model: Model) -> tuple[int, bool]:
    """Return how many values a layer gives, or 0, and whether it is a convolution."""
    if unit.stack is not None:
        layer = unit.stack.layers[-1]
        return sum(direction.output_size for direction in layer.directions), False
    kind = unit.kinds[0]
    if kind == "embedding":
        return weight_shape(unit, kind, model.arrays)[1], False
    return channels_given(unit, model.arrays) or 0, kind in ("conv", "conv_transpose")


def _in_words(order: str) -> str:
    return order.replace("_", " ")


def _flattened(model: Model, unit: Unit, width: int) -> int | None:
    """Return how many channels a layer's input was flattened from, if the layers are in the order of the data."""
    for unit_before in model.before(unit):
        if unit_before.kinds[0] in ("conv", "conv_transpose"):
            return _cut_into(channels_given(unit_before, model.arrays), width)
        if not _between(unit_before):
            return None
    return None


def _cut(model: Model, unit: Unit, width: int) -> int | None:
    """Return how many channels a layer's output is cut into for the convolution after it, if the layers are in the order of the data."""
    maker = next((candidate for candidate in itertools.chain([unit], model.before(unit)) if not _between(candidate)), unit)
    reader = next((candidate for candidate in model.behind(unit) if not _between(candidate)), None)
    if maker.kinds[0] != "dense" or reader is None or reader.kinds[0] not in ("conv", "conv_transpose"):
        return None
    shape = weight_shape(reader, reader.kinds[0], model.arrays)
    grouped = shape[1] * int(reader.facts.get("groups", 1))
    return _cut_into(shape[0] if reader.kinds[0] == "conv_transpose" else grouped, width)


def _between(unit: Unit) -> bool:
    return unit.kinds[0].endswith("norm") or unit.kinds[0] == "prelu"


def _cut_into(channels: int | None, width: int) -> int | None:
    return channels if channels is not None and width % channels == 0 and width > channels > 1 else None
