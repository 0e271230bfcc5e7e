"""One execution: a changed file is read as a user would read it, and sometimes converted; what may come of it, and what not."""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import signal
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any
from unittest import mock

import numpy as np

import rnnconvert as rc
from fuzz import whole
from fuzz.mutators import mutated
from fuzz.seeds import Seed
from rnnconvert.containers import temporary
from rnnconvert.core.errors import RnnConvertError
from rnnconvert.judging.judging import Allowance, Output, compare

ROOT = Path(__file__).parents[1]
TARGETS = ("out.safetensors", "out.onnx", "out.npz", "out.pt", "out.keras", "out.msgpack")


class TooLongError(BaseException):
    """The time of an execution is over. No reader's `except Exception` catches it."""


@dataclass(frozen=True)
class Finding:
    """What must not happen.

    what   the exception, or "time", "memory", "process"
    where  the line of the project in which it happened
    trace  the whole traceback
    """

    what: str
    where: str
    trace: str = ""


@dataclass(frozen=True)
class Limits:
    """What one execution may take: seconds, and bytes beyond what the process had."""

    seconds: float = 5
    memory: int = 512 << 20


def changed(seed: Seed, rng: Random) -> dict[str, bytes]:
    """Return the seed's files with one of them changed."""
    if seed.entry.startswith(whole.OPERATORS):
        return {**seed.files, seed.entry: whole.with_operator(seed.files[seed.entry], rng)}
    names = list(seed.files)
    name = rng.choice(names)
    return {**seed.files, name: mutated(name, seed.files[name], rng)}


def put(folder: Path, files: dict[str, bytes], entry: str) -> Path:
    """Write a case into a folder that holds another one; return what is to be read."""
    names = sorted(files)
    if _there.get(folder) != names:
        shutil.rmtree(folder, ignore_errors=True)
        for name in names:
            (folder / name).parent.mkdir(exist_ok=True, parents=True)
        _there[folder] = names
    for name, content in files.items():
        with open(f"{folder}/{name}", "wb") as file:  # noqa: PTH123  (an execution counts in microseconds)
            file.write(content)
    return folder / entry


_there: dict[Path, list[str]] = {}


PROOFS = 0.002
"""How many of the executions of `fuse` run its proof, in a process of onnxruntime, which takes seconds."""

CONTAINERS = 0.9
"""How many of the executions stop at the container: the file's names and arrays, without looking for layers among them."""


def container(path: Path) -> Callable[[Path], object] | None:
    """Return the reader of a file's container, by its beginning and name; None where only a format can tell."""
    from rnnconvert.containers import archives, c_text, hdf5, tensor_bundle
    from rnnconvert.files.options import Options
    from rnnconvert.formats.dl4j import files as dl4j_files  # noqa: F401
    from rnnconvert.formats.julia import jld2, julia_bson
    from rnnconvert.formats.keras import keras_zip
    from rnnconvert.formats.mxnet import mxnet_params
    from rnnconvert.formats.ncnn import files as ncnn_files
    from rnnconvert.formats.onnx.proto import file as onnx_file
    from rnnconvert.formats.openvino import net as openvino_net
    from rnnconvert.formats.paddle import paddle_params
    from rnnconvert.formats.pytorch.archives import legacy, zip_reader
    from rnnconvert.formats.tflite import graph as tflite_graph
    from rnnconvert.formats.torch7 import torch7_file

    if path.is_dir() or path.name.startswith("steps_"):  # layers that other operators compute: looked for each time
        return None
    with path.open("rb") as file:
        head = file.read(16)
    name = path.name
    if head[:2] == b"PK":
        if name.endswith(".keras"):
            return keras_zip.read
        if name.endswith(".pt"):
            return zip_reader.read
        return archives.reader(path, head) if name.endswith(".npz") else None
    if head.startswith(archives.HDF5):
        return hdf5.read
    by_end: dict[str, Callable[[Path], object]] = {
        ".onnx": onnx_file.read, ".onnxtxt": onnx_file.read, ".params": mxnet_params.read, ".bson": julia_bson.read,
            ".t7": torch7_file.read, ".tflite": tflite_graph.read, ".xml": openvino_net.read, ".h": c_text.read,
            ".param": lambda path: ncnn_files.read(path, Options()),
        ".jld2": jld2.read, ".pdparams": paddle_params.read, ".pt": legacy.read, ".index": tensor_bundle.read,
        ".safetensors": archives.reader(path, b"\0" * 8 + b"{"), ".msgpack": archives.reader(path, b"\x81\xa1a"),
    }  # fmt: skip
    return next((reader for end, reader in by_end.items() if name.endswith(end)), None)


def fused(path: Path, rng: Random, out: Path) -> str:
    """Fuse a model. Mostly its proof believes everything, so that all that lies behind is met with what is not proved, too."""
    from rnnconvert.formats.onnx.fuse import files as fuse
    from rnnconvert.formats.onnx.fuse import proof as fuse_proof
    from rnnconvert.formats.onnx.proto import write

    numbers = np.ones(3)
    equal = compare(Output("trial", "y"), numbers, numbers, Allowance([numbers], np.dtype(np.float32)))
    believed = fuse_proof.PairVerdict((equal,))

    def believe(pairs: Sequence[Any], folder: Path, least: int = 1) -> list[Any]:
        for pair in pairs:
            for graph in (pair.old, pair.new, pair.old.shaken(0)):
                write.write(folder / "model.onnx", graph.model, graph.arrays, check=False)
                (folder / "model.onnx").unlink()
        return [believed for _ in pairs]

    with contextlib.ExitStack() as stack:
        if rng.random() >= PROOFS:
            stack.enter_context(mock.patch.object(fuse, "prove", believe))
        done = rc.fuse(path, out / "fast.onnx", force=True)
        assert done.layers and str(done)
    return "fused"


def read(path: Path, rng: Random, format: str | None, out: Path) -> str:
    """Read a case as the command line does, or fuse it; return the name of the documented end that it had.

    Raises whatever else happens.
    """
    try:
        if path.name.startswith((whole.MODEL, whole.OPERATORS)):
            return whole.read(path, rng, out)
        if path.name.startswith(whole.SPECIAL):
            return _special(path, rng, out)
        if path.name.startswith("fuse_"):
            return fused(path, rng, out)
        if rng.random() < CONTAINERS and (reader := container(path)):
            reader(path)
            return "container read"
        checkpoint = rc.load(path, format if rng.random() < 0.3 else None)
        for stack in checkpoint.layers.values():
            stack.describe()
        if rng.random() < 0.1:
            str(rc.inspect(path))
        if checkpoint.layers and rng.random() < 0.1:
            rc.save(checkpoint, out / rng.choice(TARGETS), force=True)
    except RnnConvertError as error:
        assert error.exit_code in (2, 3, 4, 5), error.exit_code
        assert str(error)
        return error.kind
    return "read" if checkpoint.layers else "no layers"


def _special(path: Path, rng: Random, out: Path) -> str:
    """Read what stands in the place of a file, and remove it."""
    _there.pop(path.parent, None)  # the next case is written into a new folder
    return whole.read(whole.special(path, rng), rng, out)


def execute(path: Path, rng: Random, format: str | None, out: Path, limits: Limits) -> tuple[str, Finding | None]:
    """Read a case within limits: the documented end and None, or "" and what must not have happened."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.process_time()
    for folder in [path for path in temporary._held if path.name.endswith(".folder")]:
        temporary._remove(folder)  # what was unpacked stays as long as the process lives, which here is long
    try:
        with _alarm(limits.seconds), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            end = read(path, rng, format, out)
    except (Exception, TooLongError) as error:
        what = "time" if isinstance(error, TooLongError) else type(error).__name__
        return "", Finding(what, _place(error), "".join(traceback.format_exception(error)))
    if time.process_time() - start > limits.seconds:
        return "", Finding("time", f"{time.process_time() - start:.1f} s")
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    if grown > limits.memory:
        return "", Finding("memory", f"{grown >> 20} MiB")
    return end, None


def _place(error: BaseException) -> str:
    """Return the innermost line of the project in a traceback."""
    place = ""
    for frame in traceback.extract_tb(error.__traceback__):
        if any(part in frame.filename for part in ("/rnnconvert/", "/formats/")):
            place = f"{Path(frame.filename).name}:{frame.lineno} {frame.name}"
    return place


def _ring(*_: Any) -> None:
    raise TooLongError


@contextlib.contextmanager
def _alarm(seconds: float) -> Iterator[None]:
    if signal.getsignal(signal.SIGPROF) is not _ring:
        signal.signal(signal.SIGPROF, _ring)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def bound(memory: int) -> None:
    """Bound the address space of this process to what it has, and so much more; no core files."""
    pages = int(Path("/proc/self/statm").read_text().split()[0]) if Path("/proc/self/statm").exists() else 0
    if pages:
        size = pages * os.sysconf("SC_PAGE_SIZE") + memory
        resource.setrlimit(resource.RLIMIT_AS, (size, size))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
