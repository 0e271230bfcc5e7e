"""Statements of one of two files about a layer that the other lacks, beyond its weights and its cell."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from rnnconvert.core.notes import INTEGERS, LayerNote
from rnnconvert.core.verdict import Kind, Limit
from rnnconvert.core.weights import INPUT
from rnnconvert.files.checkpoint import Checkpoint


def unshared(a: Checkpoint, own_names: Sequence[str], b: Checkpoint, names: Sequence[str]) -> Iterator[Limit]:
    """Yield the statements about a layer that only one of two files has: a mask, a precision, states that the model passes or carries from
    call to call; and what its model takes from it, if both state that.

    Files of one format say the same things of equal layers. Another format may lack a word for what it does as well: then it is a remark,
    unless it is the precision, integers that one of them computes with, or states that are carried on while the other model begins with
    zeros.

    own_names, names  the layer's names in A and in B: several if its pieces are stored apart
    """
    ours, theirs = _stated(a, own_names), _stated(b, names)
    layer = "+".join(own_names)
    for label, texts, others, other, there in (("A", ours, theirs, b, names), ("B", theirs, ours, a, own_names)):
        for text in texts:
            if _unnamed(text) not in map(_unnamed, others):
                kind = "rounding" if text in _of_integers(a if label == "A" else b) else _kind(text)
                zeros = kind == "states" and _begins_with_zeros(other, there)
                if a.format != b.format and kind not in ("precision", "chosen", "rounding") and not zeros:
                    kind = "caller"
                yield Limit(kind, layer, f"only {label} states this: {text}")
    returned = [{call.returns for call in side.layers[last].calls} for side, last in ((a, own_names[-1]), (b, names[-1]))]
    if returned[0] != returned[1] and all(all(words) and words for words in returned):
        both = (" or ".join(sorted(words)) for words in returned)
        yield Limit("stated", layer, "A's layer returns {}, and B's {}".format(*both))


def _begins_with_zeros(checkpoint: Checkpoint, names: Sequence[str]) -> bool:
    """Return whether a file states a model that no caller passes a layer's initial states to."""
    calls = [call for name in names for call in checkpoint.layers[name].calls]
    return bool(calls) and not any(call.states == INPUT for call in calls)


def _stated(checkpoint: Checkpoint, names: Sequence[str]) -> list[str]:
    """Return the notes of a file's reader about a layer."""
    notes = (note for note in checkpoint.warnings if isinstance(note, LayerNote))
    return list(dict.fromkeys(note.text for note in notes if note.layer and note.layer in names))


def _of_integers(checkpoint: Checkpoint) -> set[str]:
    """Return the notes on layers whose kernels compute with integers, and so give other numbers than their weights stand for."""
    return {note.text for note in checkpoint.warnings if isinstance(note, LayerNote) and note.kind == INTEGERS}


def _unnamed(text: str) -> str:
    """Return a statement without the names of values, which are each file's own."""
    return re.sub(r"'(?:[^'\\\\]|\\\\.)*'", "''", text)


def _kind(text: str) -> Kind:
    words = text.casefold()
    if "as asked" in words:
        return "chosen"
    if "computes in" in words:
        return "precision"
    if "stateful" in words:
        return "states"
    return "mask" if "mask" in words else "stated"
