"""A dense or recurrent layer behind a flattened convolution reads its values in an order that no shape shows.

Where channels come last, a value's place is space * channels + channel; where they come first, channel * spaces + space.
"""

from __future__ import annotations

import numpy as np

from rnnconvert.arrays import Array
from rnnconvert.errors import UsageError
from rnnconvert.transplant.model import Model, Unit
from rnnconvert.transplant.pairing import Pair

ORDERS = ("channels_first", "channels_last")
NONE = "none"
"""What the caller says where nothing is flattened at all."""
USUAL = {"pytorch": "channels_first", "onnx": "channels_first", "equinox": "channels_first",
         "keras": "channels_last", "flax": "channels_last", "nnx": "channels_last", "haiku": "channels_last"}  # fmt: skip


class Flattening:
    """The order in which a layer reads the values of a flattened convolution, on both sides.

    told  the order of the side that does not show its own, if the caller says it; "none" if nothing is flattened
    """

    def __init__(self, target: Model, source: Model, told: str | None = None) -> None:
        if told is not None and told not in (*ORDERS, NONE):
            raise UsageError(f"flatten cannot be {told!r}; it is one of {', '.join((*ORDERS, NONE))}")
        self.target, self.source, self.told = target, source, told
        self.notes: list[str] = []

    def columns(self, one: Pair, width: int) -> Array | None:
        """Which of the source's columns stands in each column of the target; None where they stand alike.

        Raises UsageError where the order matters and the models do not show it.
        """
        channels = _channels(self.source, one.source, width) or _channels(self.target, one.target, width)
        ours, theirs = one.target.facts.get("flatten_order"), one.source.facts.get("flatten_order")
        usual = USUAL.get(self.target.framework)
        alike = usual == USUAL.get(self.source.framework)
        if channels is None or (ours is None and theirs is None and alike):
            return None
        if alike and self.told is None and all(order in (None, usual) for order in (ours, theirs)):
            return None
        if ours is None or theirs is None:
            if self.told == NONE:
                return None
            ours, theirs = self._told(one, width, channels, ours, theirs)
        if ours == theirs:
            return None
        places = width // channels
        cut = (places, channels) if theirs == "channels_last" else (channels, places)
        self.notes.append(
            f"{one.target.name}: its columns stand as the target flattens, {ours.replace('_', ' ')} "
            f"({channels} channels, {places} places each)"
        )
        columns: Array = np.arange(width).reshape(cut).T.reshape(-1)
        return columns

    def _told(self, one: Pair, width: int, channels: int, ours: str | None, theirs: str | None) -> tuple[str, str]:
        """The orders of the target and the source, of which one or both do not show."""
        if self.told is None:
            silent = [m.title for m, order in ((self.target, ours), (self.source, theirs)) if order is None]
            side = f"{silent[0]} does not show" if len(silent) == 1 else f"neither {silent[0]} nor {silent[1]} shows"
            raise UsageError(
                f"{one.target.name!r} reads {width} values that seem to be flattened from {channels} channels, and {side} in "
                "which order: say it with flatten='channels_first' (as torch's x.flatten(1) gives them behind a convolution) "
                "or flatten='channels_last' (as Keras's Flatten does), or flatten='none' if nothing is flattened there"
            )
        if ours is None and theirs is None:
            theirs = USUAL.get(self.source.framework, "channels_first")
            self.notes.append(
                f"{one.target.name}: the target is told to flatten {self.told.replace('_', ' ')}, and the source is taken to "
                f"flatten {theirs.replace('_', ' ')}, as is usual in {self.source.framework}"
            )
        return ours or self.told, theirs or self.told


def _channels(model: Model, unit: Unit, width: int) -> int | None:
    """How many channels a layer's input was flattened from, or None if it follows no convolution."""
    units = [one for one in model.units if one.kinds != ("array",)]
    place = next((number for number, one in enumerate(units) if one is unit), 0)
    for before in reversed(units[:place]):
        kind = before.kinds[0]
        if kind in ("conv", "conv_transpose"):
            layout = before.reading(kind)
            tensor = next(t for t in layout.tensors if t.part == "weight")
            shape = layout.shape(tensor, tuple(model.arrays[before.names[tensor.name]].shape))
            channels = shape[0] if kind == "conv" else shape[1] * int(before.facts.get("groups", 1))
            return channels if width % channels == 0 and width > channels > 1 else None
        if not kind.endswith("norm") and kind != "prelu":
            return None
    return None
