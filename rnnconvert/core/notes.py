"""The notes of a reader for its user, as data: the layer, the kind, and the text."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast

Note = TypeVar("Note", bound=str)

UNREAD = "unread"
"""The kind of a note of a layer that is in the file and is not read."""

UNDESCRIBED = "undescribed"
"""The kind of a note of a layer that is in the file and is not read because no layout that is known describes it."""

COMPUTED = "computed"
"""The kind of a note of an array that the file does not hold: it is computed from others, as the framework computes it."""

PASSED = "passed"
"""The kind of a note of an initial state that the source's caller passes."""

INTEGERS = "integers"
"""The kind of a note of a layer whose weights stand for integers: its framework's kernel rounds more than the weights."""


class LayerNote(str):
    """A note of a file's layer: as text its layer, a colon, and what is said of it.

    layer  the layer's name
    text   the text without the name
    kind   UNREAD, UNDESCRIBED, COMPUTED, PASSED, INTEGERS, or "" for any other; or the element type that its framework
           computes in, if that is not its weights' ("float16")
    """

    __slots__ = ("kind", "layer", "text", "unnamed")

    layer: str
    text: str
    kind: str
    unnamed: str

    def __new__(cls, layer: str, text: str, kind: str = "", unnamed: str = "") -> LayerNote:
        """Return a note; `unnamed` stands in its text for a layer without a name."""
        place = layer or unnamed
        note = super().__new__(cls, f"{place}: {text}" if place else text)
        note.layer, note.text, note.kind, note.unnamed = layer, text, kind, unnamed
        return note

    def __getnewargs__(self) -> tuple[str, str, str, str]:  # type: ignore[override]
        return self.layer, self.text, self.kind, self.unnamed

    def of(self, layer: str) -> LayerNote:
        """Return the note of the same layer under another name."""
        return LayerNote(layer, self.text, self.kind, self.unnamed)


def each_text(change: Callable[[str], str], notes: tuple[Note, ...]) -> tuple[Note, ...]:
    """Return notes with their texts changed; a note of a layer remains one."""
    changed = (
        LayerNote(note.layer, change(note.text), note.kind, note.unnamed) if isinstance(note, LayerNote) else change(note) for note in notes
    )
    return cast("tuple[Note, ...]", tuple(changed))


def layer_of(note: str) -> str | None:
    """Return the layer that a note is of; None for a note of the file."""
    return note.layer if isinstance(note, LayerNote) else None
