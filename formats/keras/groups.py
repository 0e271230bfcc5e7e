"""The names of the groups in the weights of Keras 2.12 and later, as Keras 3 spells them."""

from __future__ import annotations

import re
from collections.abc import Iterable

from rnnconvert.containers.stored import Stored
from rnnconvert.core.names import renamed
from rnnconvert.formats.keras.metadata import KerasMetadata

_DEPENDENCIES = "_layer_checkpoint_dependencies"
_WINDOWS = ("layers\\", f"{_DEPENDENCIES}\\")
"""How the groups of layers begin in files that were written on Windows; no layer's own name stands there."""
_LABEL = re.compile(r"(?P<kind>.*?)(?:_(?P<number>[1-9]\d{0,8}))?", re.S)


def modern(path: object, stored: Stored, version: str = "") -> Stored:
    r"""Return the arrays of a weights file under the names that Keras 3 gives them.

    Keras 2.12 to 2.15 put the names of groups together by os.path.join: on Windows the group of a layer's cell is called
    `layers\\lstm\\cell`. Source: keras/src/saving/saving_lib.py of 2.15, _save_state.

    Keras 2.12 to 2.14 call `layers` `_layer_checkpoint_dependencies`, where a layer that has weights is listed twice. 2.12 and 2.13 count
    it twice: their second LSTM is `lstm_2`, the third `lstm_4`. 2.14 counts it once, as Keras 3 does. Sources: keras/src of 2.13.1 and
    2.14.0, engine/functional.py, _layer_checkpoint_dependencies, and saving/saving_lib.py, _save_container_state.

    version  the Keras that wrote the file; "" where the file does not state one
    Raises UnreadableError if two arrays would have one name.
    """
    names = [*stored.arrays]
    windows = any(name.startswith(_WINDOWS) for name in names)
    if not windows and not any(name.startswith(f"{_DEPENDENCIES}/") for name in names):
        return stored

    def spelled(name: str) -> str:
        return name.replace("\\", "/") if windows else name

    of_keras = stored.metadata_as(KerasMetadata)
    attributes = of_keras.get("attributes", {})
    ranks = _Ranks(map(spelled, (*names, *of_keras.get("empty", ()))))
    counted_once = _minor(version) >= (2, 14)

    def new_name(name: str) -> str:
        return ranks.once(spelled(name), counted_once)

    metadata = {**stored.metadata, "attributes": renamed(attributes, new_name, path)}
    if any(spelled(name).startswith(f"{_DEPENDENCIES}/") for name in names):
        metadata["groups_of"] = "2.12"
    return Stored(renamed(stored.arrays, new_name, path), metadata)


class _Ranks:
    """The numbers of the groups of layers, by what stands before the number.

    A layer without weights has an empty group, so a layer's place among the groups of its class is its number in Keras 3, whether layers
    with weights were counted once or twice.
    """

    def __init__(self, names: Iterable[str]) -> None:
        numbers: dict[str, set[int]] = {}
        for name in names:
            parts = name.split("/")
            for at, part in enumerate(parts[:-1]):
                if part == _DEPENDENCIES:
                    for kind, number in ((parts[at + 1], 0), _split(parts[at + 1])):
                        numbers.setdefault("/".join((*parts[: at + 1], kind)), set()).add(number)
        self._ranks = {kind: {number: rank for rank, number in enumerate(sorted(several))} for kind, several in numbers.items()}

    def once(self, name: str, counted_once: bool) -> str:
        """Return a name in which every layer counts once. Without a group that has no number, a number belongs to the class's name."""
        parts = name.split("/")
        new_parts = list(parts)
        for at, part in enumerate(parts[:-1]):
            if part == _DEPENDENCIES:
                new_parts[at] = "layers"
                kind, number = _split(parts[at + 1])
                ranks = self._ranks.get("/".join((*parts[: at + 1], kind)), {})
                if number and 0 in ranks and not counted_once:
                    new_parts[at + 1] = f"{kind}_{ranks[number]}"
        return "/".join(new_parts)


def _split(label: str) -> tuple[str, int]:
    match = _LABEL.fullmatch(label)
    return (match["kind"], int(match["number"] or 0)) if match else (label, 0)


def _minor(version: str) -> tuple[int, ...]:
    match = re.match(r"(\d{1,4})\.(\d{1,4})", version)
    return (int(match[1]), int(match[2])) if match else ()
