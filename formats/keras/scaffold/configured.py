"""A layer of Keras as data: its class and its settings, for code that makes it and for files that state it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rnnconvert.scaffolding.description import Node
from rnnconvert.scaffolding.spelling import number

Constructor = Callable[[Any, Node[Any]], "KerasLayer"]
"""Returns the layer that a node is, called on one tensor."""


@dataclass(frozen=True)
class KerasLayer:
    """A layer of Keras.

    class_name  its class
    settings    what is not at its default, by the names that its constructor and its configuration have for it: numbers, words, tuples of
                numbers, or a layer around which it is
    placed      how many of the first ones code states by their place alone
    """

    class_name: str
    settings: Mapping[str, Any]
    placed: int = 0

    def __str__(self) -> str:
        """Return the call of its constructor, in code that has keras.layers as `layers`."""
        words = [_text(value) if n < self.placed else f"{key}={_text(value)}" for n, (key, value) in enumerate(self.settings.items())]
        return f"layers.{self.class_name}({', '.join(words)})"


def layer(class_name: str, placed: int = 0, **settings: Any) -> KerasLayer:
    """Return a layer; a setting that is None is at its default."""
    return KerasLayer(class_name, {key: value for key, value in settings.items() if value is not None}, placed)


def alike(values: Sequence[int]) -> int | tuple[int, ...]:
    """Return sizes as layers take them: one number where they are alike."""
    return values[0] if len(set(values)) == 1 else tuple(values)


def _text(value: Any) -> str:
    if isinstance(value, float):
        return number(value)
    return f'"{value}"' if isinstance(value, str) else str(value)
