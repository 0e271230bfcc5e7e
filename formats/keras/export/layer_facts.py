"""What a layer of Keras 3 states of itself: settings and arrays, each accounted for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rnnconvert.core.arrays import Array
from rnnconvert.core.errors import RefusedError
from rnnconvert.formats.keras.defaults import DEFAULTS
from rnnconvert.formats.keras.policy import policy_of
from rnnconvert.formats.keras.run_exact import MIXED
from rnnconvert.formats.keras.upgrade.old import SourceLayer

TARGET = "ONNX"


_HARMLESS = ("name", "trainable", "dtype", "activity_regularizer", "seed", "batch_shape", "batch_input_shape", "autocast",
             "implementation", "unroll", "use_cudnn", "unit_forget_bias", "dropout", "recurrent_dropout", "sparse",
             "bias_constraint", "zero_output_for_mask", "fused", "input_length")  # fmt: skip


_ENDINGS = ("_initializer", "_regularizer", "_constraint")


@dataclass(frozen=True)
class ModelTensor:
    """A tensor of the model.

    name   in the graph
    shape  its axes, None for those that are open
    """

    name: str
    shape: tuple[int | None, ...]


def refuse(layer: str, feature: str, reason: str, remedy: str = "") -> RefusedError:
    """Return the error for what has no equivalent."""
    return RefusedError(feature, TARGET, reason, remedy, layer)


@dataclass(frozen=True)
class LayerFacts:
    """A layer's configuration and one of its calls; what nobody asked for is refused at the end.

    old     the layer
    config  its configuration
    used    what was asked for
    named   the tensors that the call names: initial_state, key
    flags   what else the call states: use_causal_mask
    """

    old: SourceLayer
    config: Mapping[str, Any]
    used: set[str] = field(default_factory=set)
    named: Mapping[str, Sequence[ModelTensor | None]] = field(default_factory=dict)
    flags: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The layer's name."""
        return self.old.name

    def get(self, key: str, default: Any = None) -> Any:
        """Return what the configuration states; where it does not, a default, or Keras's own."""
        self.used.add(key)
        return self.config.get(key, DEFAULTS.get(self.old.kind, {}).get(key) if default is None else default)

    def need(self, key: str, *allowed: Any) -> None:
        """Check that a key, where it is stated, has one of some values. Raises RefusedError."""
        if (value := self.get(key, allowed[0])) not in allowed:
            raise refuse(self.name, f"{key} = {value!r}", f"only {' or '.join(map(repr, allowed))} is known here")

    def array(self, word: str) -> Array | None:
        """Return one of its weights."""
        return self.old.arrays.get(word)

    def weight(self, word: str) -> Array:
        """Return one of its weights. Raises RefusedError where the file does not hold it."""
        array = self.array(word)
        if array is None:
            raise refuse(self.name, f"a {self.old.kind} without its {word}", "the file does not hold it")
        return array

    def tensors(self, key: str) -> Sequence[ModelTensor]:
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
        for key in (*self.named, *self.flags):
            if f"call {key}" not in self.used:
                raise refuse(self.name, f"a call with {key}", "it changes what the layer computes, or is not known")
