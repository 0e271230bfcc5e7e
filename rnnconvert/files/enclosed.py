"""A model inside another file: a packed file, a zip or tar archive with one model, a pickle with one in its bytes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from rnnconvert.containers import enclosed, unpacked
from rnnconvert.containers.archives import HDF5
from rnnconvert.containers.enclosed import EnclosedFile
from rnnconvert.containers.reading import charging
from rnnconvert.core.errors import UnreadableError, for_user, show_as
from rnnconvert.core.limits import ENCLOSED_NESTING
from rnnconvert.files import detect
from rnnconvert.files.opened import Opened
from rnnconvert.language import registry

_PARTS = (".pkl", ".pickle", ".joblib", ".pb", ".index", ".meta", ".json", ".pbtxt", ".data-00000-of-00001")
_FOLDER = "saved_model.pb"
_STATE = "data.pkl"
_STEPS = 10_000
"""The cost of looking into a file, in the budget."""


class EnclosedModel(NamedTuple):
    """A model that was inside a file.

    file   the temporary copy, opened
    where  where it lay, in words
    """

    file: Opened
    where: str


def model(file: Opened, holds_layers: Callable[[Opened], bool], empty: bool = False, depth: int = 0) -> EnclosedModel | None:
    """Return the model inside a file that no format reads directly; None where there is none.

    holds_layers  says whether a file has recurrent layers: which of several models inside is meant
    empty         whether a format has already read the outer file, and found no recurrent layer in it
    depth         in how many files this one lies

    Raises UnreadableError where several models with recurrent layers are inside, or none of several models has one.
    """
    if file.path.is_dir() or not file.head or depth == ENCLOSED_NESTING or (detect.seen(file) and not empty):
        return None
    pickled = "pickle" in file.kinds or any(name.rpartition("/")[2] == _STATE for name in file.entries or ())
    models = []
    for path, where in _inside(file, pickled):
        charging(0).work(_STEPS, file.path)
        opened = Opened(path)
        deeper = None if detect.seen(opened) else model(opened, holds_layers, depth=depth + 1)
        if deeper is not None:
            models.append(EnclosedModel(deeper.file, f"{deeper.where}, {where}"))
        elif detect.seen(opened):
            models.append(EnclosedModel(_named(opened), where))
    if empty:
        models = [candidate for candidate in models if holds_layers(candidate.file)]
    if len(models) < 2:
        return models[0] if models else None
    names = ", ".join(candidate.where for candidate in models[:8])
    count, models = len(models), [candidate for candidate in models if holds_layers(candidate.file)]
    if not models:
        raise UnreadableError(file.path, f"it holds {count} models, and none of them has a recurrent layer: {names}")
    if len(models) > 1:
        raise UnreadableError(
            file.path,
            f"it holds {len(models)} models with recurrent layers: {', '.join(candidate.where for candidate in models[:8])}",
            "Load it with the program that wrote it, and save each to a file of its own."
            if pickled
            else "Unpack it, and give the path of one.",
        )
    return models[0]


def _inside(file: Opened, pickled: bool) -> list[tuple[Path, str]]:
    """Return the models inside a file, each with words that say where."""
    if unpacked.is_packed(file.head):
        return [(unpacked.unpacked(file.path), f"unpacked from {file.path}")]
    if pickled:
        places = enclosed.in_pickle(file.path) or enclosed.texts_in_pickle(file.path)
        return [(place.path, _from_pickle(place)) for place in places]
    folders = _folders(enclosed.members(file.path, _may_be_model))
    return [(folder.path, f"from {folder.place!r} in the archive") for folder in folders]


def _from_pickle(inside: EnclosedFile) -> str:
    what = "a text" if inside.path.suffix else "bytes"
    return f"from {what} {f'at {inside.place!r} ' if inside.place else ''}in the pickle"


def _named(file: Opened) -> Opened:
    """Return a file with the ending that its kind has, if it has none."""
    if file.path.suffix or file.path.is_dir():
        return file
    card = registry.cards().get(next(iter(detect.seen(file))))
    if file.head.startswith(HDF5):
        ending = ".h5"
    elif card is not None and card.endings:
        ending = card.endings[0]
    else:
        ending = ""
    renamed = file.path.rename(file.path.with_name(f"model{ending}"))
    show_as(renamed, for_user(str(file.path)))
    return Opened(renamed)


def _folders(inside: list[EnclosedFile]) -> list[EnclosedFile]:
    """Return the files, with the files of a folder that is one model replaced by that folder."""
    folders = {entry.path.parent: entry.place.rpartition("/")[0] for entry in inside if entry.path.name == _FOLDER}
    left = [entry for entry in inside if not any(folder in entry.path.parents for folder in folders)]
    return [*(EnclosedFile(path, place or "all of it") for path, place in folders.items()), *left]


def _may_be_model(name: str) -> bool:
    """Return whether a file of this name in an archive may be a model, or a part of one."""
    lower = name.lower()
    endings = {end for card in registry.cards().values() for end in (*card.endings, *card.usual)}
    return lower.endswith((*endings, *_PARTS)) or ".data-" in lower
