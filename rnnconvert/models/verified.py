"""Files of whole models that are kept only where they give what their source gives."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from rnnconvert.containers.data_files import old_data
from rnnconvert.containers.files import move_together, only_replace
from rnnconvert.containers.temporary import new_folder
from rnnconvert.core.errors import NotEqualError, RnnConvertError, show_as, unwritable
from rnnconvert.models.verify import WholeModels

Written = TypeVar("Written")


def kept_if_equal(
    target: Path,
    force: bool,
    write: Callable[[Path], Written],
    prove: Callable[[Path], WholeModels | None],
    others: Sequence[tuple[Path, Path]] = (),
) -> tuple[Written, WholeModels | None]:
    """Write a file, and those that belong to it, and put it in its place once it is proved.

    prove   returns what the runs showed, or raises NotEqualError itself
    others  files that belong to it elsewhere, once they are proved: where each is, in a folder next to its place, and this place

    Raises NotEqualError where it gives something else, and what writing and running raise; nothing is written then.
    """
    with contextlib.ExitStack() as ended:
        try:
            folder = ended.enter_context(new_folder(target))
        except OSError as error:
            raise unwritable(target, error) from None
        path = Path(folder) / target.name
        show_as(path, target)
        try:
            written = write(path)
        except RnnConvertError:  # one of a missing file is an OSError, too
            raise
        except OSError as error:
            raise unwritable(target, error) from None
        proof = prove(path)
        if proof is not None and proof.exit_code:
            raise NotEqualError(target, proof)
        before = old_data(target)
        files = sorted(Path(folder).iterdir(), key=lambda file: file.name == target.name)
        for file in files:
            only_replace(target.with_name(file.name), force, target)
        move_together([*others, *((file, target.with_name(file.name)) for file in files)], before)
    return written, proof
