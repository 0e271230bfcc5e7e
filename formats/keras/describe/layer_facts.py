"""The statements of a layer of Keras 3 about itself: settings and arrays, each accounted for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rnnconvert.core.errors import RefusedError
from rnnconvert.formats.keras.model.calls import KerasCall, LayerOutput, flat
from rnnconvert.formats.keras.model.settings import DEFAULTS, policy_of
from rnnconvert.formats.keras.model.tree import SourceLayer
from rnnconvert.formats.keras.run_exact import MIXED
from rnnconvert.scaffolding.description import Value

TARGET = "a model that is described"

_HARMLESS = ("name", "trainable", "dtype", "activity_regularizer", "seed", "batch_shape", "batch_input_shape", "autocast",
             "implementation", "unroll", "use_cudnn", "unit_forget_bias", "dropout", "recurrent_dropout", "sparse",
             "bias_constraint", "zero_output_for_mask", "fused", "input_length")  # fmt: skip


_ENDINGS = ("_initializer", "_regularizer", "_constraint")


def refuse(layer: str, feature: str, reason: str, remedy: str = "") -> RefusedError:
    """Return the error for what has no equivalent."""
    return RefusedError(feature, TARGET, reason, remedy, layer)


@dataclass(frozen=True)
class LayerFacts:
    """A layer's configuration and one of its calls; what nobody asked for is refused at the end.

    old     the layer
    call    its call
    used    what was asked for
    named   the tensors that the call names: initial_state, key; None for a mask that is left open
    flags   what else the call states: use_causal_mask
    """

    old: SourceLayer
    call: KerasCall = field(default_factory=KerasCall)
    used: set[str] = field(default_factory=set)
    named: Mapping[str, Sequence[Value | None]] = field(default_factory=dict)
    flags: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The layer's name."""
        return self.old.name

    @property
    def config(self) -> Mapping[str, Any]:
        """The layer's configuration."""
        return self.old.config

    def get(self, key: str, default: Any = None) -> Any:
        """Return the value that the configuration states for a key; else a default, or Keras's own."""
        self.used.add(key)
        return self.config.get(key, DEFAULTS.get(self.old.kind, {}).get(key) if default is None else default)

    def need(self, key: str, *allowed: Any) -> None:
        """Check that a key, where it is stated, has one of some values. Raises RefusedError."""
        if (value := self.get(key, allowed[0])) not in allowed:
            raise refuse(self.name, f"{key} = {value!r}", f"only {' or '.join(map(repr, allowed))} is known here")

    def tensors(self, key: str) -> Sequence[Value]:
        """Return the tensors that the call names."""
        self.used.add(f"call {key}")
        return [value for value in self.named.get(key, ()) if value is not None]

    def flag(self, key: str) -> bool:
        """Return whether the call states something."""
        self.used.add(f"call {key}")
        return bool(self.flags.get(key, False))

    def finish(self) -> None:
        """Check that all that is stated was asked for or changes no number. Raises RefusedError."""
        policy = policy_of(self.config)
        if policy not in ("float32", *MIXED) and "dtype" not in self.used:
            raise refuse(self.name, f"dtype {policy!r}", "only float32 is known here")
        for key, value in self.config.items():
            if key in self.used or key in _HARMLESS or key.endswith(_ENDINGS) or value is None:
                continue
            raise refuse(self.name, f"{key} = {str(value)[:60]!r}", "what it changes is unknown")
        self.finish_call()

    def finish_call(self) -> None:
        """Check that all that the call states was asked for. Raises RefusedError."""
        first = [] if self.old.entry.is_operation else flat(self.call.places[:1])
        if strange := [value for value in first if not isinstance(value, LayerOutput)]:
            raise refuse(self.name, f"a call with {str(strange[0])[:60]}", "it changes what the layer computes, or is not known")
        for key in (*self.named, *self.flags):
            if f"call {key}" not in self.used:
                raise refuse(self.name, f"a call with {key}", "it changes what the layer computes, or is not known")


def one_input(facts: LayerFacts, values: Sequence[Value]) -> Value:
    """Return the only input of a layer. Raises RefusedError for several."""
    if len(values) != 1:
        raise refuse(facts.name, f"a {facts.old.kind} of {len(values)} inputs", "it takes one")
    return values[0]
