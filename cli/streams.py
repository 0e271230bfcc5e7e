"""`-` for a file: what stdin gives is read like a file, and a file is written to stdout.

Formats are read from mapped files and written with sizes that are known only at the end, so both go through a temporary folder.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator

from rnnconvert.cli.terminal import open_stdout
from rnnconvert.core.errors import UnreadableError, UsageError, show_as

STREAM = "-"


@contextlib.contextmanager
def incoming(*paths: str) -> Iterator[tuple[str, ...]]:
    """Yield paths to read: those given, and for `-` a file with what stdin gives.

    Raises UsageError where stdin is a terminal, UnreadableError if it cannot be read.
    """
    if STREAM not in paths:
        yield paths
        return
    import shutil  # takes milliseconds, which other calls need not pay

    from rnnconvert.containers.temporary import new_folder, room_for

    if paths.count(STREAM) > 1:
        raise UsageError("stdin can be read only once: give `-` for one file")
    with new_folder() as folder:
        file = folder / "stdin"
        show_as(file, "stdin")
        stream = sys.stdin.buffer
        if stream.isatty():
            raise UsageError("stdin is a terminal. Give a file's name, or a pipe: rnnconvert inspect - < model.pt")
        try:
            with room_for("stdin"), file.open("wb") as copy:
                shutil.copyfileobj(stream, copy, 1 << 20)
        except OSError as error:
            raise UnreadableError("stdin", f"it cannot be read: {error.strerror or error}") from None
        yield tuple(str(file) if path == STREAM else path for path in paths)


@contextlib.contextmanager
def outgoing(path: str, name: str, dry_run: bool = False) -> Iterator[str]:
    """Yield a path to write: the one given, or for `-` a file of that name, which goes to stdout when the block ends well.

    Raises UsageError where stdout is a terminal, and for a format that needs several files.
    """
    if path != STREAM:
        yield path
        return
    import shutil

    from rnnconvert.containers.temporary import new_folder

    if open_stdout().isatty() and not dry_run:
        raise UsageError("stdout is a terminal, which cannot show a file. Redirect it, as in: > model.onnx")
    with new_folder() as folder:
        file = folder / name
        show_as(file, "stdout")
        yield str(file)
        written = sorted(folder.iterdir())
        if len(written) > 1 or any(entry.is_dir() for entry in written):
            names = ", ".join(entry.name for entry in written)
            raise UsageError(f"several files would be written ({names}), and stdout takes only one. Give TARGET a name")
        for target in written:
            with target.open("rb") as stream:
                shutil.copyfileobj(stream, sys.stdout.buffer, 1 << 20)
            sys.stdout.buffer.flush()
