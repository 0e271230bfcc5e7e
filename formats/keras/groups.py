"""The names of the groups in the weights of Keras 2.12 and later, as Keras 3 spells them."""

from __future__ import annotations

import re
from collections.abc import Iterable

from rnnconvert.containers.stored import Stored
from rnnconvert.formats.keras.metadata import KerasMetadata

_DOUBLED = "_layer_checkpoint_dependencies"
_WINDOWS = ("layers\\", f"{_DOUBLED}\\")
"""How the groups of layers begin in files that were written on Windows; no layer's own name stands there."""
_LABEL = re.compile(r"(?P<kind>.*?)(?:_(?P<number>\d{1,9}))?", re.S)


def modern(stored: Stored) -> Stored:
    r"""Return the arrays of a weights file under the names that Keras 3 gives them.

    Keras 2.13 to 2.15 put the names of groups together by os.path.join: on Windows the group of a layer's cell is called
    `layers\\lstm\\cell`. Source: keras/src/saving/saving_lib.py of 2.15, _save_state.

    Keras 2.12 and 2.13 count a layer that has weights twice: their second LSTM is `lstm_2`, the third `lstm_4`. Sources: keras/src of
    2.13.1, engine/functional.py, _layer_checkpoint_dependencies, and saving/saving_lib.py, _save_container_state.
    """
    names = [*stored.arrays]
    windows = any(name.startswith(_WINDOWS) for name in names)
    if not windows and not any(name.startswith(f"{_DOUBLED}/") for name in names):
        return stored
    attributes = stored.metadata_as(KerasMetadata).get("attributes", {})
    spelled = {name: name.replace("\\", "/") if windows else name for name in (*names, *attributes)}
    counted = _Counted(spelled[name] for name in names)
    metadata = {**stored.metadata, "attributes": {counted.once(spelled[name]): values for name, values in attributes.items()}}
    if any(name.startswith(f"{_DOUBLED}/") for name in spelled.values()):
        metadata["groups_of"] = "2.13"
    return Stored({counted.once(spelled[name]): array for name, array in stored.arrays.items()}, metadata)


class _Counted:
    """The numbers of layers that have weights, by what stands before the number."""

    def __init__(self, names: Iterable[str]) -> None:
        self._numbers: dict[str, set[int]] = {}
        for name in names:
            parts = name.split("/")
            for at, part in enumerate(parts[:-1]):
                if part == _DOUBLED:
                    kind, number = _split(parts[at + 1])
                    self._numbers.setdefault("/".join((*parts[: at + 1], kind)), set()).add(number)

    def once(self, name: str) -> str:
        """Return a name in which every layer counts once."""
        parts = name.split("/")
        renamed = list(parts)
        for at, part in enumerate(parts[:-1]):
            if part == _DOUBLED:
                kind, number = _split(parts[at + 1])
                before = sum(earlier < number for earlier in self._numbers.get("/".join((*parts[: at + 1], kind)), ()))
                renamed[at] = "layers"
                renamed[at + 1] = f"{kind}_{number - before}" if number > before else kind
        return "/".join(renamed)


def _split(label: str) -> tuple[str, int]:
    match = _LABEL.fullmatch(label)
    return (match["kind"], int(match["number"] or 0)) if match else (label, 0)
