"""Files that belong to a file: found by a name that it states, or by the name that its format gives them.

Neither may lead out of the folder: who sends a folder could else have any file of its reader's read as weights.
"""

from __future__ import annotations

import os
from pathlib import Path, PurePosixPath

from rnnconvert.core.errors import UnreadableError


def companion(path: Path, name: str) -> Path:
    """Return the file of a name in the folder of a file, or below; whether it exists is the caller's question.

    A link may lead to another place in that folder. Where `path` itself is a link that leaves its folder, the others may,
    too: caches keep all files of a model elsewhere (the Hugging Face hub's, DVC, git-annex, Bazel).

    path  the file that the others belong to, or the folder that holds them all
    name  as the file states it, with "/" or "\\" between its parts

    Raises UnreadableError for a name that leads out of the folder, and for a link that does.
    """
    folder = path if path.is_dir() else path.parent
    pure = PurePosixPath(name.replace("\\", "/"))
    if not pure.parts or pure.is_absolute() or ".." in pure.parts or ":" in pure.parts[0] or "\0" in name:
        raise UnreadableError(path, f"it names the file {name!r}, which is not a file in the same folder")
    file = folder.joinpath(*pure.parts)
    real, home, main = (Path(os.path.realpath(place)) for place in (file, folder, path))
    if real.is_relative_to(home) or not main.is_relative_to(home):
        return file
    raise UnreadableError(
        file, f"it is a link to {real}, outside the folder", "Put the file itself there: cp -L copies what a link leads to."
    )
