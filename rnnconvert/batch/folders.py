"""The models in a tree of folders: each file, and each folder that is one model, as its content or its name shows it."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rnnconvert.containers import tensor_bundle
from rnnconvert.containers.files import lowered
from rnnconvert.core.errors import UnreadableError
from rnnconvert.files import detect
from rnnconvert.files.opened import KIND, SHAPED, Opened
from rnnconvert.language import registry

_SHARED = (".bin", ".bson", ".json", ".jld2", ".msgpack", ".npz", ".pbtxt", ".pkl", ".textproto", ".xml", ".zip")
"""Endings that other files have, too: only the content shows which format a model has, or its arrays have a layer's names."""
_CODE = (".c", ".h")
"""Endings of code: a model is what says whose it is."""
_SHARD = re.compile(r"(.+)-\d{5}-of-\d{5}(\.\w+)")
_GRAPH = "saved_model.pb"
"""The file by which a folder is a SavedModel."""


def is_tree(path: Path) -> bool:
    """Return whether a path is a folder of models, and not itself a model."""
    return path.is_dir() and not _is_model_folder(path, [file for file in _files(path) if _is_model(file)])


@dataclass
class ModelTree:
    """A folder and all below it, but for names that begin with a dot, links to folders, and one folder: that of the targets.

    models    files and folders, sorted
    left_out  how many other files there are, by their endings
    """

    root: Path
    without: Path
    models: list[Path] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        without = self.without.resolve()
        for place, folders, _ in os.walk(self.root, onerror=self._unreadable):
            folder = Path(place)
            folders[:] = [name for name in folders if not name.startswith(".") and (folder / name).resolve() != without]
            files = _files(folder)
            models = [file for file in files if _is_model(file)]
            if folder != self.root and _is_model_folder(folder, models):
                self.models.append(folder)
                folders[:] = []
                continue
            self.models += models
            self.left_out.update(file.suffix or "without an ending" for file in files if file not in models)
        self.models.sort()

    def _unreadable(self, error: OSError) -> None:
        self.models.append(Path(error.filename))  # reading it will say why


def _files(folder: Path) -> list[Path]:
    """Return the files in a folder, but for hidden ones; none where it cannot be listed."""
    try:
        return sorted(entry for entry in folder.iterdir() if not entry.name.startswith(".") and not entry.is_dir())
    except OSError:
        return []


def _is_model_folder(folder: Path, models: Sequence[Path]) -> bool:
    """Return whether a folder is one model: a SavedModel, or one that a format reads and whose files are none by themselves."""
    return (folder / _GRAPH).is_file() or (not models and _seen(folder) is not None)


def _is_model(file: Path) -> bool:
    """Return whether a file is a model by itself: one of several parts of a model is not, where the part that names them is there."""
    index = tensor_bundle.index_beside(file)
    if index is not None and index != file and index.is_file():
        return False
    shard = _SHARD.fullmatch(file.name)
    if shard is not None and file.with_name(f"{shard[1]}{shard[2]}.index.json").is_file():
        return False
    score, name = _seen(file), lowered(file).name
    if name.endswith((*_SHARED, *_CODE)):
        return score is not None and score > (SHAPED if name.endswith(_CODE) else KIND)
    return score is not None or name.endswith(tuple(_endings()))


def _endings() -> Iterator[str]:
    """Yield the endings of formats that show a model by themselves, so that a damaged one is reported."""
    for card in registry.cards().values():
        yield from (end for end in (*card.endings, *card.usual) if not end.endswith((*_SHARED, *_CODE)))


def _seen(path: Path) -> int | None:
    """Return how sure the surest format is of a file or a folder; None where none knows it, or it cannot be opened."""
    try:
        return max((evidence.score for evidence in detect.seen(Opened(path)).values()), default=None)
    except UnreadableError:
        return None
