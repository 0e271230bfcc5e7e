"""How the layers of a Keras 3 model are called."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rnnconvert.formats.keras.describe.layer_facts import refuse
from rnnconvert.formats.keras.model.calls import Arguments, LayerOutput, calls_of, flat
from rnnconvert.formats.keras.upgrade.old import SourceLayer


@dataclass(frozen=True)
class KerasCall:
    """One call of a layer.

    reads    the tensors that it is called on
    named    those that the call names: initial_state, key, mask; None for a mask that is left open
    flags    what else it states: use_causal_mask
    numbers  of an operation: the numbers and slices among its arguments, by their places
    """

    reads: list[LayerOutput] = field(default_factory=list)
    named: dict[str, list[LayerOutput | None]] = field(default_factory=dict)
    flags: dict[str, Any] = field(default_factory=dict)
    numbers: dict[int, Any] = field(default_factory=dict)

    def sources(self) -> list[LayerOutput]:
        """Return all that it reads, in Keras's order."""
        named = (ref for _, refs in sorted(self.named.items()) for ref in refs)
        return [*self.reads, *(ref for ref in named if ref is not None)]

    def arguments(self, values: Sequence[Any]) -> list[Any]:
        """Return the arguments of an operation: tensors and numbers."""
        left = iter(values)
        return [self.numbers[n] if n in self.numbers else next(left) for n in range(len(values) + len(self.numbers))]


def calls(old: SourceLayer) -> list[KerasCall]:
    """Return the calls of a layer. Raises RefusedError for what has no equivalent."""
    if not all(isinstance(node, Mapping) for node in old.raw.get("inbound_nodes") or []):  # as Keras 2 has them
        raise refuse(old.name, "a call of an unknown form", "only those of Keras 3 are known here")
    return [_call(old, arguments) for arguments in calls_of(old.entry, "the configuration")] or [KerasCall()]


def _call(old: SourceLayer, arguments: Arguments) -> KerasCall:
    call = KerasCall()
    for number, value in enumerate(flat(arguments.places)):
        if isinstance(value, LayerOutput):
            call.reads.append(value)
        elif old.is_operation and isinstance(value, (int, float)):
            call.numbers[number] = value
        elif old.is_operation and isinstance(value, Mapping) and value.get("class_name") == "__slice__":
            call.numbers[number] = _slice(old, value.get("config"))
        else:
            raise refuse(old.name, f"a call with {str(value)[:60]}", "it changes what the layer computes, or is not known")
    for key, value in arguments.named.items():
        several = flat(value)
        if all(inside is None for inside in several) or (key == "training" and value is False):
            continue
        stated = [isinstance(inside, LayerOutput) for inside in several]
        if any(stated) and not all(ok or (inside is None and key == "mask") for ok, inside in zip(stated, several, strict=True)):
            raise refuse(old.name, f"a call with {key}", "some of its tensors are not known")
        if any(stated):
            call.named[key] = several
        else:
            call.flags[key] = value
    return call


def _slice(old: SourceLayer, config: Any) -> slice:
    ends = [config.get(key) for key in ("start", "stop", "step")] if isinstance(config, Mapping) else [""]
    if any(end is not None and type(end) is not int for end in ends):
        raise refuse(old.name, "an index by tensors", "only numbers are known here")
    return slice(*ends)
