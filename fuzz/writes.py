"""Attacks on the writers: `python -m fuzz.writes --kills 2000`.

At every call to the system that writes a file (create, write, permissions, rename, link, remove), the disk fails in one of
its ways, or the process is killed; then the old file is there with its own numbers, or the new one with its own.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import functools
import io
import json
import os
import pathlib
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import rnnconvert as rc
from rnnconvert.containers import temporary, writing
from rnnconvert.containers.apart import copy_process
from rnnconvert.core.errors import RnnConvertError, UnreadableError
from rnnconvert.files.adapter import adapters
from rnnconvert.files.targets import files_of
from rnnconvert.language import registry
from rnnconvert.language.layout import Sizes
from tests.helpers.stacks import PLAIN, random_stack


class Target(NamedTuple):
    """What is written.

    file      its name
    format    its format
    settings  those of its writer
    """

    file: str
    format: str
    settings: tuple[str, ...] = ()


@functools.cache
def targets() -> dict[str, Target]:
    """Return every format and ending that holds the layer which is written, and from which it is read without a question, by a name."""
    tried = {f"{card.name} {end}": Target(f"m{end}", card.name) for card in registry.cards().values() for end in card.written}
    tried["onnx external"] = Target("m.onnx", "onnx", ("external_data=true",))
    return {name: target for name, target in tried.items() if _is_written(target)}


def _is_written(target: Target) -> bool:
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / target.file
        try:
            rc.save(checkpoint(1), path, target.format, settings=list(target.settings))
            is_read = len(rc.load(path, target.format).layers) == 1
        except RnnConvertError:
            return False
        return is_read and path.is_file()  # a folder is never replaced


def several(names: Iterable[str]) -> list[str]:
    """Return those of some targets that are several files; found by writing them."""
    as_folders = []
    for name in names:
        with tempfile.TemporaryDirectory() as place:
            write(name, Path(place), 1)
            as_folders += [name] if len(contents(Path(place))) > 1 else []
    return as_folders


def is_noticed(name: str) -> bool:
    """Return whether a target has files of fixed names beside it.

    A kill between their renamings leaves two that a reader tells apart by a checksum, and refuses.
    """
    file, format, _ = targets()[name]
    return len(files_of(adapters()[format], Path(file))) > 1


FAULTS = {"ENOSPC": errno.ENOSPC, "EIO": errno.EIO, "EACCES": errno.EACCES, "EDQUOT": errno.EDQUOT}
CALLS = ("open", "replace", "unlink", "link", "fchmod", "fchown", "fsync")

Hook = Callable[[str], None]


class _Raw(io.RawIOBase):
    """A file whose writes are told first, and may be short."""

    def __init__(self, handle: int, hook: Hook, short: bool) -> None:
        super().__init__()
        self._file, self._hook, self._short = io.FileIO(handle, "r+b"), hook, short

    def readable(self) -> bool:
        return True

    writable = seekable = readable

    def readinto(self, buffer: Any) -> int | None:
        return self._file.readinto(buffer)

    def write(self, data: Any) -> int | None:
        self._hook("write")
        view = memoryview(data).cast("B")
        return self._file.write(view[: max(1, len(view) // 2)] if self._short else view)

    def seek(self, offset: int, whence: int = 0) -> int:
        return self._file.seek(offset, whence)

    def truncate(self, size: int | None = None) -> int:
        self._hook("truncate")
        return self._file.truncate(size)

    def fileno(self) -> int:
        return self._file.fileno()

    def close(self) -> None:
        if not self.closed:
            super().close()
            self._file.close()


@contextlib.contextmanager
def hooked(hook: Hook, short: bool = False) -> Iterator[None]:
    """Tell a hook every call that writes, before it is made.

    short  and let each write take only half of what it is given
    """
    real = {name: getattr(os, name) for name in (*CALLS, "fdopen")}

    def reporting(name: str) -> Callable[..., Any]:
        def call(*arguments: Any, **more: Any) -> Any:
            if name != "open" or (len(arguments) > 1 and arguments[1] & os.O_CREAT):
                hook(name)
            return real[name](*arguments, **more)

        return call

    def fdopen(handle: int, mode: str = "r", *arguments: Any, **more: Any) -> Any:
        if mode != "w+b" or arguments != (0,):
            return real["fdopen"](handle, mode, *arguments, **more)
        return _Raw(handle, hook, short)

    # Python 3.10's paths call what the functions of os were when pathlib was imported.
    accessor = getattr(pathlib, "_NormalAccessor", None)
    bound = {name: vars(accessor)[name] for name in CALLS if name in vars(accessor)} if accessor else {}
    buffer = writing.BUFFER
    writing.BUFFER = 512
    try:
        for name in CALLS:
            setattr(os, name, reporting(name))
        for name in bound:
            setattr(accessor, name, staticmethod(getattr(os, name)))
        os.fdopen = fdopen  # type: ignore[assignment]
        yield
    finally:
        for name, function in real.items():
            setattr(os, name, function)
        for name, function in bound.items():
            setattr(accessor, name, function)
        writing.BUFFER = buffer


def checkpoint(seed: int) -> rc.Checkpoint:
    stack = random_stack(Sizes("lstm", 16, 16, parts=PLAIN | {"input_bias"}), seed, np.float32)
    return rc.Checkpoint("memory", "memory", {"rnn": stack.replace(name="rnn")})


def write(name: str, folder: Path, seed: int) -> None:
    file, format, settings = targets()[name]
    rc.save(checkpoint(seed), folder / file, format, force=True, settings=list(settings))


def numbers(name: str, folder: Path) -> bytes | None:
    """Return the numbers that a reader finds, or None where it refuses the file."""
    file, format, _ = targets()[name]
    try:
        (stack,) = rc.load(folder / file, format).layers.values()
    except UnreadableError:
        return None
    return np.asarray(stack.first.get("recurrent", "i")).tobytes()


def contents(folder: Path) -> dict[str, bytes]:
    """Return every file by its name, but for temporary ones."""
    return {file.name: file.read_bytes() for file in sorted(folder.iterdir()) if not file.name.startswith(".")}


def left(folder: Path) -> list[str]:
    """Return the names of temporary files."""
    return [file.name for file in folder.iterdir() if file.name.startswith(".")]


def calls(name: str, folder: Path) -> int:
    """Return how many calls a write makes that replaces another."""
    seen: list[object] = []
    with hooked(seen.append):
        write(name, folder, 2)
    return len(seen)


class Problem(AssertionError):
    """Something that must not happen."""


def fail_at(name: str, folder: Path, number: int, code: int) -> str:
    """Let a call of a write fail; return whether the write was done all the same, or "refused". Raises Problem."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    write(name, folder, 1)
    old = contents(folder)
    done = 0

    def hook(call: str) -> None:
        nonlocal done
        done += 1
        if done == number + 1:
            raise OSError(code, os.strerror(code))

    try:
        with hooked(hook):
            write(name, folder, 2)
    except RnnConvertError as error:
        if contents(folder) != old or (left(folder) and done <= number + 1):
            raise Problem(f"{name}, call {number}: {error}; there are {list(contents(folder))} {left(folder)}") from None
        return "refused"
    if numbers(name, folder) != _recurrent(2):
        raise Problem(f"{name}, call {number}: it was called done")
    return "done"


def _recurrent(seed: int) -> bytes:
    (stack,) = checkpoint(seed).layers.values()
    return np.asarray(stack.first.get("recurrent", "i")).tobytes()


def kill_at(name: str, folder: Path, number: int) -> str:
    """Kill a process at a call of its write; return what is found. Raises Problem."""

    def hook() -> Hook:
        done = 0

        def count(call: str) -> None:
            nonlocal done
            done += 1
            if done == number + 1:
                os.kill(os.getpid(), signal.SIGKILL)

        return count

    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    write(name, folder, 1)
    child = copy_process()
    if not child:
        with contextlib.suppress(BaseException), hooked(hook()):
            write(name, folder, 2)
        os._exit(0)
    os.waitpid(child, 0)
    return after(name, folder)


def after(name: str, folder: Path) -> str:
    """Return which file is there after a kill, and make sure that the next write succeeds. Raises Problem."""
    bits = numbers(name, folder)
    state = "old" if bits == _recurrent(1) else "new" if bits == _recurrent(2) else "refused" if bits is None else "WRONG"
    if state == "WRONG" or (state == "refused" and not is_noticed(name)):
        raise Problem(f"{name}: {state}, {sorted(contents(folder))}")
    temporary._swept.clear()
    write(name, folder, 3)
    if numbers(name, folder) != _recurrent(3) or left(folder):
        raise Problem(f"{name}: the next write left {left(folder)}")
    return state


def kill_some_time(name: str, folder: Path, rng: random.Random, lasts: float) -> str:
    """Kill a process some time after it began to write; return what is found. Raises Problem."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    write(name, folder, 1)
    child = copy_process()
    if not child:
        with contextlib.suppress(BaseException):
            write(name, folder, 2)
        os._exit(0)
    time.sleep(rng.uniform(0, lasts))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return after(name, folder)


def two_writers(name: str, folder: Path, rounds: int) -> str:
    """Let two processes write one file at the same time, again and again; return what is found. Raises Problem."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    children = []
    for seed in (1, 2):
        child = copy_process()
        if not child:
            for _ in range(rounds):
                with contextlib.suppress(RnnConvertError):
                    write(name, folder, seed)
            os._exit(0)
        children.append(child)
    for child in children:
        os.waitpid(child, 0)
    return after(name, folder)


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m fuzz.writes", description=__doc__)
    parser.add_argument("--kills", type=int, default=500, help="how many processes to kill at random times, besides one at every call")
    parser.add_argument("--kinds", nargs="*", default=list(targets()), help="only these kinds")
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--figures", type=Path, default=None, help="a JSON file for the figures of this run")
    arguments = parser.parse_args(words)
    seed = random.SystemRandom().randrange(1 << 32) if arguments.seed is None else arguments.seed
    rng, problems, attacked = random.Random(seed), list[str](), 0
    ends: Counter[tuple[str, str]] = Counter()

    def note(what: str, run: Callable[[], str]) -> None:
        try:
            ends[what, run()] += 1
        except Problem as problem:
            problems.append(f"{what}: {problem}")
            print(f"FOUND {problems[-1]}", flush=True)

    print(f"--seed {seed}")
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as place:
        folder = Path(place) / "case"
        for name in arguments.kinds:
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            write(name, folder, 1)
            count = calls(name, folder)
            for number in range(count):
                for fault, code in FAULTS.items():
                    note(fault, partial(fail_at, name, folder, number, code))
                note("killed at a call", partial(kill_at, name, folder, number))
            start = time.monotonic()
            write(name, folder, 2)
            lasts = 1.5 * (time.monotonic() - start) + 0.005
            for _ in range(arguments.kills // len(arguments.kinds)):
                note("killed at any time", partial(kill_some_time, name, folder, rng, lasts))
            note("two writers", partial(two_writers, name, folder, 30))
            print(f"{name}: {count} calls", flush=True)
            attacked += 1
            if arguments.figures is not None:  # after each kind: a run that is ended early has its figures, too
                runs = {f"{what}: {end}": number for (what, end), number in sorted(ends.items())}
                figures = {"seed": seed, "kinds": attacked, "problems": problems, "runs": runs}
                arguments.figures.write_text(json.dumps(figures, indent=1))
    for (what, end), number in sorted(ends.items()):
        print(f"  {number:6} {what}: {end}")
    print(f"{sum(ends.values())} runs, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
