"""Which steps each layer of an old model skips, and how a Keras 3 graph states that.

Old Kerases join masks by "and", Keras 3 joins them by "or" or drops them; and where a layer is called with a mask, Keras 3 counts
the operations that made it among its layers. So a graph states its masks itself: as operations, and as arguments of calls.

Sources: tf_keras/src/layers/**, compute_mask of each; keras/src/layers/layer.py (3.15), Layer.__call__.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rnnconvert.formats.keras.config import Era
from rnnconvert.formats.keras.model.calls import LayerOutput, ordered
from rnnconvert.formats.keras.model.masks import DROPPED_BEFORE, EFFECTS, READING
from rnnconvert.formats.keras.upgrade import tables as tables
from rnnconvert.formats.keras.upgrade.graph import OldCall, OutsideOperation
from rnnconvert.formats.keras.upgrade.notes import Notes, refuse, spelled
from rnnconvert.formats.keras.upgrade.old import SourceLayer


@dataclass(frozen=True)
class TensorMask:
    """A mask on a tensor.

    where    the tensor that holds it, in a graph
    unknown  why what becomes of it in Keras 3 is not known; "" where it is
    zeroed   the layer whose outputs at masked steps Keras 3 makes zero and the old Keras did not; "" for no layer
    tensors  on how many of the layer's outputs it is
    """

    where: LayerOutput | None = None
    unknown: str = ""
    zeroed: str = ""
    tensors: int = 1


@dataclass
class Masked:
    """The changes that masks make in a graph.

    stated      the masks that its calls are given, by layer and call
    operations  the operations that make these masks
    merges      layers that would compute something else in Keras 3, as their inputs are masked
    last        the mask on an output
    """

    stated: dict[tuple[str, int], list[LayerOutput | None]] = field(default_factory=dict)
    operations: list[OutsideOperation] = field(default_factory=list)
    merges: set[str] = field(default_factory=set)
    last: TensorMask | None = None


_MIXING = ("Attention", "AdditiveAttention")
"""Layers whose outputs at a step are computed from all steps."""
MakeOperation = Callable[[str, Sequence[LayerOutput], Mapping[str, Any]], LayerOutput]
"""Adds an operation to a graph: its class, what it reads, its configuration."""


class Masks:
    """The masks of one file."""

    def __init__(self, era: Era, notes: Notes) -> None:
        self.notes = notes
        self.leaving: dict[int, TensorMask | None] = {}  # by model inside a model: the mask on its last output
        number = re.match(r"(\d+)\.(\d+)", era.text)
        self.repeats = "tf" not in era.text and number is not None and (int(number[1]), int(number[2])) < (2, 4)

    def line(self, model: SourceLayer, mask: TensorMask | None = None) -> TensorMask | None:
        """Return the mask on the outputs of a Sequential. Raises RefusedError where Keras 3 would mask other steps."""
        for layer in model.inside:
            if layer.kind != "InputLayer":
                mask = self.after(layer, [mask], None)
        return mask

    def graph(
        self, olds: Mapping[str, SourceLayer], calls: Mapping[str, Sequence[OldCall]], ends: Sequence[LayerOutput], reserved: set[str]
    ) -> Masked:
        """Return the changes that masks make in a graph."""
        masks_of: dict[tuple[str, int], TensorMask | None] = {}
        masked = Masked()
        stated, operations = masked.stated, masked.operations
        cache: dict[Any, LayerOutput] = {}

        def on(ref: LayerOutput) -> TensorMask | None:
            mask = masks_of.get((ref.layer, ref.call))
            return mask if mask is not None and ref.index < mask.tensors else None

        for node in ordered(calls, ends, "the configuration")[0]:
            name, number = node
            old, call = olds[name], calls[name][number]
            if old.kind == "InputLayer":
                continue

            def make(class_name: str, reads: Sequence[LayerOutput], config: Mapping[str, Any], name: str = name) -> LayerOutput:
                key = (class_name, tuple(reads), tuple(config.items()))
                if key not in cache:
                    label = spelled(f"{name}_mask", reserved)
                    reserved.add(label)
                    cache[key] = LayerOutput(label, 0, 0)
                    operations.append(OutsideOperation(label, class_name, tuple(reads), config))
                return cache[key]

            masks = [on(ref) for ref in call.reads]
            masks_of[node] = self.after(old, masks, (call, make))
            if _reads(old) and any(mask is not None for mask in masks):
                stated[node] = [mask.where if mask is not None else None for mask in masks]
            if old.kind in tables.READING_MERGES and any(mask is not None for mask in masks):
                masked.merges.add(name)
        last = [on(ref) for ref in ends]
        masked.last = next((mask for mask in last if mask is not None), None)
        return masked

    def after(self, old: SourceLayer, masks: Sequence[TensorMask | None], graph: tuple[OldCall, MakeOperation] | None) -> TensorMask | None:
        """Return the mask on what a layer gives.

        masks  on what it reads
        graph  how it is called, and what adds an operation; None in a Sequential
        """
        there = [mask for mask in masks if mask is not None]
        if old.is_model:
            return self._model(old, there)
        effect = EFFECTS.get(old.kind, "") if old.kind in tables.LAYERS else ""
        if _reads(old):
            for input_mask in there:
                if input_mask.unknown:
                    raise refuse(old.name, "the mask on its input", input_mask.unknown)
        self._inside(old, bool(there))
        if effect == "make":
            return self._new(old, graph)
        if not there:
            return None
        if effect == "sequences":
            return self._steps(old, masks[0])
        zeroed = next((mask.zeroed for mask in there if mask.zeroed), "")
        if old.kind in DROPPED_BEFORE:
            return TensorMask(None, f"{old.name!r} before it passes masks on in Keras 3, but did not before")
        if effect == "pass" and old.kind not in _MIXING:
            return masks[0]
        if zeroed:
            reason = f"Keras 3 gives zeros, older Keras repeated the output before, and {old.name!r} sees them"
            raise refuse(zeroed, "its outputs at masked steps", reason)
        return masks[0] if effect == "pass" else self._merged(old, masks, graph) if effect == "join" else None

    def _model(self, old: SourceLayer, there: Sequence[TensorMask]) -> TensorMask | None:
        leaving = self.leaving.get(id(old))
        if there and (old.kind != "Sequential" or any(layer.is_model for layer in old.inside)):
            raise refuse(old.name, "a mask on the input of a model inside a model", "how it goes on inside is unknown")
        if there:
            leaving = self.line(old, there[0])
        return TensorMask(None, f"it comes out of {old.name!r}, a model inside the model") if leaving is not None else None

    def _inside(self, old: SourceLayer, masked: bool) -> None:
        """Refuse masks of a TimeDistributed's own layer."""
        if old.kind != "TimeDistributed":
            return
        inner = old.inside[0]
        if any(_makes(layer) for layer in inner.walk()) or (masked and _reads(inner)):
            raise refuse(old.name, f"masks in a TimeDistributed of {inner.kind}", "Keras 3 passes them on differently")

    def _new(self, old: SourceLayer, graph: tuple[OldCall, MakeOperation] | None) -> TensorMask | None:
        """Return the mask that a layer makes."""
        if not _makes(old):
            return None
        if graph is None:
            return TensorMask()
        call, make = graph
        value = 0 if old.kind == "Embedding" else _number(old.entry.config.get("mask_value", 0.0))
        where = make("NotEqual", call.reads[:1], {"value": value})
        return TensorMask(where if old.kind == "Embedding" else make("Any", [where], {"axis": -1, "keepdims": False}))

    def _steps(self, old: SourceLayer, mask: TensorMask | None) -> TensorMask | None:
        """Return the mask on the outputs of a recurrent layer."""
        layer = old.inside[0] if old.kind == "Bidirectional" else old
        if mask is None or not layer.entry.config.get("return_sequences"):
            return None
        tensors = 2 if old.kind == "Bidirectional" and old.entry.config.get("merge_mode", "concat") is None else 1
        zeroed = old.name if old.kind == "Bidirectional" and self.repeats else ""
        if zeroed:
            self.notes.change(old.name, "at masked steps its outputs are zero in Keras 3; older Keras repeated the output before")
        return TensorMask(mask.where, "", zeroed, tensors)

    def _merged(
        self, old: SourceLayer, masks: Sequence[TensorMask | None], graph: tuple[OldCall, MakeOperation] | None
    ) -> TensorMask | None:
        unknown = next((mask.unknown for mask in masks if mask is not None and mask.unknown), "")
        if unknown:
            return TensorMask(None, unknown)
        if old.kind == "Concatenate" and old.entry.config.get("axis", -1) not in (-1,):
            axis = old.entry.config.get("axis")
            return TensorMask(None, f"{old.name!r} before it joins masked values along axis {axis}, whose meaning for masks differs")
        assert graph is not None, "a Sequential merges nothing"
        wheres = list(dict.fromkeys(mask.where for mask in masks if mask is not None and mask.where is not None))
        joined = wheres[0]
        for where in wheres[1:]:
            joined = graph[1]("LogicalAnd", [joined, where], {})
        return TensorMask(joined)


def _reads(old: SourceLayer) -> bool:
    """Return whether Keras 3 hands a layer the mask of its input."""
    return old.is_model or (old.kind in tables.LAYERS and old.kind in READING)


def _makes(old: SourceLayer) -> bool:
    return old.kind == "Masking" or (old.kind == "Embedding" and bool(old.entry.config.get("mask_zero")))


def _number(value: Any) -> Any:
    return value.get("value") if isinstance(value, Mapping) else value
