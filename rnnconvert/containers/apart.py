"""Reading through a library that cannot be trusted with damaged files: in a child process, with bounds on time and memory.

The child is a copy of this process (fork), so that nothing is imported again. It sends back JSON: values, and for each array
its place in the mapped file, or in memory that both share. The parent checks every place again; no pickle is involved. A file
on which the library loops, exhausts memory or crashes is unreadable, and this process goes on.

Where processes cannot be copied (Windows, macOS), the library reads in this process.
"""

from __future__ import annotations

import faulthandler
import gc
import json
import mmap
import os
import select
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rnnconvert.containers.stored import Stored
from rnnconvert.core.arrays import BFLOAT16, Array
from rnnconvert.core.errors import UnreadableError
from rnnconvert.core.malformed import malformed

SECONDS = 20
"""The processor time that any file may take; each MiB of a larger one adds a tenth of a second."""
PATIENCE = 10
"""How many times that long the child may take, as the machine has other work, too."""
MEMORY = 1 << 30
"""The bytes that any file may take while it is read; a larger one may take 64 times its own."""
ANSWER = 512 << 20
"""The most bytes of names and values that are taken from a child."""

_REMEDY = "It is damaged or made to do this."


def is_possible() -> bool:
    """Return whether a child can be bounded here."""
    return sys.platform == "linux" and hasattr(os, "memfd_create")


_ENDING = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
"""The signals that end a process; its parent cleans up after a copy."""


def copy_process() -> int:
    """Return the number of a child that is a copy of this process; 0 in the child, which must use no other library's threads.

    Libraries that have threads warn of every copy, JAX among them. An interrupt that comes meanwhile is raised when the copy is made:
    Python drops what is raised within what libraries do after each copy. The child ends by such signals, and cleans nothing up.
    """
    came: list[int] = []
    handlers = _handlers()
    for number in handlers:
        signal.signal(number, lambda number, _: came.append(number))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            child = os.fork()  # noqa: TID251
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    if not child:
        for number in handlers:
            signal.signal(number, signal.SIG_DFL)
        return child
    try:
        for number in came:
            signal.raise_signal(number)
    except BaseException:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        raise
    return child


def _handlers() -> dict[int, Callable[..., Any]]:
    """Return Python's handlers of the signals that end a process; none in other threads than the main one, where they have no effect."""
    if threading.current_thread() is not threading.main_thread():
        return {}
    handlers = {number: signal.getsignal(number) for number in _ENDING}
    return {number: handler for number, handler in handlers.items() if callable(handler)}


def read_apart(read: Callable[[], Stored], data: Array, path: object) -> Stored:
    """Return the result of a function that reads from mapped bytes, in a child process.

    Raises UnreadableError as the function does, and if it takes too much time or memory, or ends the child.
    """
    if not is_possible():
        return read()
    memory = os.memfd_create("rnnconvert")
    try:
        receiving, sending = os.pipe()
        try:
            child = copy_process()
        except BaseException:
            os.close(receiving)
            os.close(sending)
            raise
        if not child:
            _live(read, data, memory, sending)
        os.close(sending)
        ended = False
        try:
            with os.fdopen(receiving, "rb") as stream:
                answer = _answer(stream.fileno(), PATIENCE * _seconds(data), path)
            status = os.waitpid(child, 0)[1]
            ended = True
        finally:
            if not ended:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
        return _received(answer, status, data, memory, path)
    finally:
        os.close(memory)


def _answer(pipe: int, seconds: float, path: object) -> bytes:
    """Return the bytes that a child sends until it ends. Raises UnreadableError if that takes too long.

    A child that waits takes no processor time: a lock that another thread held when this process was copied stays locked.
    """
    pieces, size, end = [], 0, time.monotonic() + seconds
    waiting = select.poll()
    waiting.register(pipe)
    while size < ANSWER:
        if not waiting.poll(max(0.0, end - time.monotonic()) * 1000):
            raise UnreadableError(path, f"its library gives no answer within {seconds:.0f} s", _REMEDY)
        piece = os.read(pipe, 1 << 20)
        if not piece:
            break
        pieces.append(piece)
        size += len(piece)
    return b"".join(pieces)


def _seconds(data: Array) -> int:
    return SECONDS + data.size // (10 << 20)


def _live(read: Callable[[], Stored], data: Array, memory: int, sending: int) -> None:
    """Read, send what came of it, and end: the whole life of the child."""
    try:
        for signal_number in (signal.SIGINT, signal.SIGTERM, signal.SIGPROF):
            signal.signal(signal_number, signal.SIG_DFL)
        gc.disable()  # nothing is copied that the parent has, but what is used
        faulthandler.disable()
        _bound(data)
        try:
            answer = _sent(read(), data, memory)
        except UnreadableError as error:
            answer = {"unreadable": [error.problem, error.remedy]}
        except MemoryError:
            answer = {"unreadable": ["it takes more memory to read than a file of its size can need", _REMEDY]}
        except RecursionError:
            answer = {"unreadable": ["it is nested too deeply", _REMEDY]}
        with os.fdopen(sending, "wb") as stream:
            stream.write(json.dumps(answer).encode("utf-8", "surrogatepass"))
        os._exit(0)
    finally:
        os._exit(70)


def _bound(data: Array) -> None:
    import resource

    def lower(which: int, value: int) -> None:
        hard = resource.getrlimit(which)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(which, (value, value))

    with open("/proc/self/statm", "rb") as statm:  # noqa: PTH123  (a Path costs more than the file)
        used = int(statm.read().split()[0]) * mmap.PAGESIZE
    lower(resource.RLIMIT_CORE, 0)
    lower(resource.RLIMIT_CPU, _seconds(data))
    lower(resource.RLIMIT_AS, used + max(MEMORY, 64 * data.size))


def _sent(stored: Stored, data: Array, memory: int) -> dict[str, Any]:
    """Return the arrays and metadata as JSON holds them."""
    arrays, at = [], 0
    start = data.ctypes.data
    with os.fdopen(os.dup(memory), "wb") as shared:
        for name, array in stored.arrays.items():
            kind = "bfloat16" if array.dtype == BFLOAT16 else array.dtype.str
            place = array.ctypes.data - start
            if min(place, *array.strides, 0) >= 0 and place + _reach(array.shape, array.strides, array.itemsize) <= data.size:
                arrays.append([name, "file", place, list(array.shape), list(array.strides), kind])
                continue
            contiguous = np.ascontiguousarray(array)
            at += shared.write(b"\0" * (-at % 64))
            arrays.append([name, "memory", at, list(array.shape), list(contiguous.strides)[: array.ndim], kind])
            at += shared.write(contiguous.reshape(-1).view(np.uint8).data if contiguous.size else b"")
    return {"arrays": arrays, "metadata": _plain(stored.metadata)}


def _reach(shape: Sequence[int], strides: Sequence[int], itemsize: int) -> int:
    """Return how many bytes an array takes from its first element on."""
    return 0 if 0 in shape else itemsize + sum((length - 1) * step for length, step in zip(shape, strides, strict=True))


def _plain(value: Any) -> Any:
    """Return a value of dictionaries, lists and numbers without what JSON lacks."""
    if isinstance(value, dict):
        return {"{}": [[_plain(key), _plain(item)] for key, item in value.items()]}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, complex):
        return {"complex": [value.real, value.imag]}
    return value


def _value(value: Any) -> Any:
    if isinstance(value, dict):
        return complex(*value["complex"]) if "complex" in value else {_value(key): _value(item) for key, item in value["{}"]}
    return [_value(item) for item in value] if isinstance(value, list) else value


def _received(answer: bytes, status: int, data: Array, memory: int, path: object) -> Stored:
    """Return the arrays and metadata that a child sent, the arrays as views of the mapped file or of the shared memory."""
    if os.WIFSIGNALED(status):
        by = os.WTERMSIG(status)
        if by in (signal.SIGXCPU, signal.SIGKILL):
            problem = f"its library needs more than {_seconds(data)} s of processor time, or too much memory, to read it"
        else:
            problem = f"its library crashes while it reads it ({signal.Signals(by).name})"
        raise UnreadableError(path, problem, _REMEDY)
    with malformed(lambda what: UnreadableError(path, f"its library broke while it read it: {what}", _REMEDY)):
        if status:
            raise ValueError(f"the reading process ended with {os.waitstatus_to_exitcode(status)}")
        sent = json.loads(answer.decode("utf-8", "surrogatepass"))
        if "unreadable" in sent:
            raise UnreadableError(path, *sent["unreadable"])
        size = os.fstat(memory).st_size
        shared = np.frombuffer(mmap.mmap(memory, size, access=mmap.ACCESS_READ), np.uint8) if size else data[:0]
        arrays = {}
        for name, where, offset, shape, strides, kind in sent["arrays"]:
            arrays[name] = _placed(data if where == "file" else shared, offset, shape, strides, kind, name)
        return Stored(arrays, _value(sent["metadata"]))


def _placed(data: Array, offset: int, shape: list[int], strides: list[int], kind: str, name: str) -> Array:
    """Return an array inside bytes, safely, even if a broken child sent its place."""
    dtype = BFLOAT16 if kind == "bfloat16" else np.dtype(kind)
    if dtype.hasobject or len(shape) != len(strides) or min([0, offset, *shape, *strides]) < 0:
        raise ValueError(f"the place of {name!r}")
    end = offset + _reach(shape, strides, dtype.itemsize)
    if end > data.size:
        raise ValueError(f"the place of {name!r}")
    if 0 in shape:
        return np.zeros(shape, dtype)
    return np.ndarray(shape, dtype, data[offset:end].data, 0, strides)
