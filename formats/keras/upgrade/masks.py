"""Which steps each layer of an old model skips, and how a Keras 3 graph states that.

Old Kerases join masks by "and", Keras 3 joins them by "or" or drops them; and where a layer is called with a mask, Keras 3 counts
the operations that made it among its layers. So a graph states its masks itself: as operations, and as arguments of calls.

Sources: tf_keras/src/layers/**, compute_mask of each; keras/src/layers/layer.py (3.15), Layer.__call__.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from rnnconvert.formats.keras.config import Era
from rnnconvert.formats.keras.model.calls import KerasCall, LayerOutput
from rnnconvert.formats.keras.model.entries import HEADED, RECURRENT, Entry
from rnnconvert.formats.keras.model.layered import RunOrder
from rnnconvert.formats.keras.model.masks import ADDING, DROPPED_BEFORE, READING, MaskRules, effect_of, makes_mask, mask_value
from rnnconvert.formats.keras.model.tree import SourceLayer
from rnnconvert.formats.keras.upgrade import tables as tables
from rnnconvert.formats.keras.upgrade.notes import Notes, refuse, spelled
from rnnconvert.formats.keras.upgrade.operations import OutsideOperation


@dataclass(frozen=True)
class TensorMask:
    """A mask on a tensor.

    where    the tensor that holds it, in a graph
    unknown  why what becomes of it in Keras 3 is not known; "" where it is
    zeroed   the layer whose outputs at masked steps Keras 3 makes zero and the old Keras did not; "" for no layer
    """

    where: LayerOutput | None = None
    unknown: str = ""
    zeroed: str = ""


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


_LEAKING = "TensorFlow.js gives a mask to all layers that it runs later, also to those whose input has none"
_MASKED_OTHERWISE = (*ADDING, "Concatenate", "Dot", "Softmax", "GlobalAveragePooling1D", *HEADED)
_UNMASKING = ("LeakyReLU", "ELU", "ThresholdedReLU")
"""Layers that drop the mask in TensorFlow.js and pass it on in Keras."""
_MIXING = ("Attention", "AdditiveAttention")
"""Layers whose outputs at a step are computed from all steps."""
MakeOperation = Callable[[str, Sequence[Any], Mapping[str, Any]], LayerOutput]
"""Adds an operation to a graph: its class, its arguments, its configuration."""


class Masks(MaskRules[TensorMask]):
    """The masks of one file."""

    def __init__(self, era: Era, notes: Notes) -> None:
        super().__init__(min(era.major, 2))
        self.notes = notes
        self.leaving: dict[int, TensorMask | None] = {}  # by model inside a model: the mask on its last output
        self._graph: tuple[KerasCall, MakeOperation] | None = None
        number = re.match(r"(\d+)\.(\d+)", era.text)
        self.leaks = era.of_javascript
        self._masked, self._unmasked = "", ""
        self.repeats = "-tf" not in era.text and number is not None and (int(number[1]), int(number[2])) < (2, 4)

    def check(self, model: SourceLayer) -> None:
        """Raise RefusedError for masks of TensorFlow.js in a model with models inside."""
        models = [layer.name for layer in model.walk() if layer.is_model and layer is not model]
        if self.leaks and models and any(makes_mask(layer.entry) for layer in model.walk()):
            raise refuse(models[0], "masks in a model with models inside", _LEAKING)

    def line(self, model: SourceLayer, mask: TensorMask | None = None) -> TensorMask | None:
        """Return the mask on the outputs of a Sequential. Raises RefusedError where Keras 3 would mask other steps."""
        for layer in model.inside:
            if layer.kind != "InputLayer":
                mask = self._masks_after(layer, [mask], None)[0]
        return mask

    def graph(
        self, olds: Mapping[str, SourceLayer], calls: Mapping[str, Sequence[KerasCall]], plan: RunOrder, reserved: set[str]
    ) -> Masked:
        """Return the changes that masks make in a graph."""
        masks_of: dict[tuple[str, int], list[TensorMask | None]] = {}
        masked = Masked()
        cache: dict[Any, LayerOutput] = {}

        def on(ref: LayerOutput) -> TensorMask | None:
            return next(iter(masks_of.get((ref.layer, ref.call), [])[ref.index :]), None)

        for node in plan.order:
            name, number = node
            old, call = olds[name], calls[name][number]
            if old.kind == "InputLayer":
                continue

            def make(class_name: str, places: Sequence[Any], config: Mapping[str, Any], name: str = name) -> LayerOutput:
                key = (class_name, tuple(places), tuple(config.items()))
                if key not in cache:
                    label = spelled(f"{name}_mask", reserved)
                    reserved.add(label)
                    cache[key] = LayerOutput(label, 0, 0)
                    masked.operations.append(OutsideOperation(label, class_name, tuple(places), config))
                return cache[key]

            masks = [on(ref) for ref in call.reads]
            masks_of[node] = self._masks_after(old, masks, (call, make))
            if any(mask is not None for mask in masks):
                if _reads(old):
                    masked.stated[node] = [mask.where if mask is not None else None for mask in masks]
                if old.kind in tables.READING_MERGES:
                    masked.merges.add(name)
        if self._masked and self._unmasked:
            raise refuse(self._unmasked, f"its input without a mask beside {self._masked!r}, which has one", _LEAKING)
        masked.last = next((mask for end in plan.ends if (mask := on(end)) is not None), None)
        return masked

    def _masks_after(
        self, old: SourceLayer, masks: Sequence[TensorMask | None], graph: tuple[KerasCall, MakeOperation] | None
    ) -> list[TensorMask | None]:
        """Return the masks on what a layer gives.

        masks  on what it reads
        graph  how it is called, and what adds an operation; None in a Sequential
        """
        there = [mask for mask in masks if mask is not None]
        if self.leaks:
            self._leak(old, bool(there), None if graph is None else graph[0])
        if old.is_model:
            return [self._model(old, there)]
        effect = effect_of(old.entry, self.era)
        if _reads(old):
            for input_mask in there:
                if input_mask.unknown:
                    raise refuse(old.name, "the mask on its input", input_mask.unknown)
        self._inside(old, bool(there))
        zeroed = next((mask.zeroed for mask in there if mask.zeroed), "")
        if there and old.kind in DROPPED_BEFORE:
            return [TensorMask(None, f"{old.name!r} before it passes masks on in Keras 3, but did not before")]
        if zeroed and (effect in ("", "join") or old.kind in _MIXING):
            reason = f"Keras 3 gives zeros, older Keras repeated the output before, and {old.name!r} sees them"
            raise refuse(zeroed, "its outputs at masked steps", reason)
        self._graph = graph
        after = self.after(old.entry, masks)
        if effect == "sequences" and old.kind == "Bidirectional" and self.repeats and after[0] is not None:
            self.notes.change(old.name, "at masked steps its outputs are zero in Keras 3; older Keras repeated the output before")
            return [mask and replace(mask, zeroed=old.name) for mask in after]
        return [mask and replace(mask, zeroed="") for mask in after] if effect == "sequences" else after

    def _leak(self, old: SourceLayer, masked: bool, call: KerasCall | None) -> None:
        """Refuse a layer of TensorFlow.js that Keras would give another mask.

        TensorFlow.js gives each layer the mask of its first input, or else the mask that any layer before it had; a merge passes on other
        masks than those of Keras, and averages over steps count all. At masked steps an RNN gives its state: the initial one where no step
        before counts. Sources: tfjs-layers 4.22 src/engine/executor.ts, execute; src/layers/recurrent.ts, rnn.

        call  how it is called; None in a Sequential
        """
        in_line = call is None
        if masked and (old.kind in _MASKED_OTHERWISE or (old.kind in _UNMASKING and not in_line)):
            raise refuse(old.name, "the mask on its input", "TensorFlow.js and Keras differ in what such a layer makes of it")
        begins = "stateful = True" if old.config.get("stateful") else "initial states" if call and "initial_state" in call.named else ""
        if masked and begins:
            raise refuse(
                old.name, f"{begins} and a mask", "at masked steps before the first other one TensorFlow.js gives the state, Keras zeros"
            )
        if masked:
            self._masked = self._masked or old.name
        elif old.kind in RECURRENT:
            if in_line and self._masked:
                raise refuse(old.name, f"its input without a mask beside {self._masked!r}, which has one", _LEAKING)
            self._unmasked = self._unmasked or ("" if in_line else old.name)

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
        if any(makes_mask(layer.entry) for layer in inner.walk()) or (masked and _reads(inner)):
            raise refuse(old.name, f"masks in a TimeDistributed of {inner.kind}", "Keras 3 passes them on differently")

    def new_mask(self, layer: Entry) -> TensorMask | None:
        """Return the mask that a layer makes: in a graph, the operations that do."""
        if self._graph is None:
            return TensorMask()
        call, make = self._graph
        value = mask_value(layer) if layer.class_name == "Masking" else 0
        where = make("NotEqual", [call.reads[0], value], {})
        return TensorMask(make("Any", [where], {"axis": -1, "keepdims": False}) if layer.class_name == "Masking" else where)

    def joined(self, layer: Entry, masks: Sequence[TensorMask | None]) -> TensorMask | None:
        """Return the operation that joins masks."""
        there = [mask for mask in masks if mask is not None]
        if unknown := next((mask.unknown for mask in there if mask.unknown), ""):
            return TensorMask(None, unknown)
        axis = layer.config.get("axis", -1)
        if layer.class_name == "Concatenate" and axis != -1:
            return TensorMask(None, f"{layer.name!r} before it joins masked values along axis {axis}, whose meaning for masks differs")
        assert self._graph is not None, "a Sequential merges nothing"
        first, *others = list(dict.fromkeys(mask.where for mask in there if mask.where is not None))
        for where in others:
            first = self._graph[1]("LogicalAnd", [first, where], {})
        return TensorMask(first)


def _reads(old: SourceLayer) -> bool:
    """Return whether Keras 3 hands a layer the mask of its input."""
    return old.is_model or (old.kind in tables.LAYERS and old.kind in READING)
