"""Pickles, read as data: a small machine that builds containers and never calls what they name.

The machine is our own, over the instructions of `pickletools`, and not a subclass of an Unpickler: the C one allocates any memory that a
memo index asks for, and both look up attributes of, set attributes on and hash anything that the file names, so a nested tuple used as a
key can overflow the C stack. Here each instruction is checked, nothing is imported, and a name without a known meaning becomes an inert
`Foreign` object, so that the tensors below it can still be reached.
"""

from __future__ import annotations

import codecs
import pickletools
import struct
import warnings
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, NoReturn, TypeAlias

import numpy as np

from rnnconvert.containers.pickle_values import CONTAINERS, Foreign, Global, global_named, plain_key
from rnnconvert.containers.reading import Reading, charging
from rnnconvert.core.arrays import Array
from rnnconvert.core.errors import UnreadableError
from rnnconvert.core.limits import PICKLE_BYTES, PICKLE_NAME, PICKLE_STEPS, PICKLES
from rnnconvert.core.malformed import MALFORMED
from rnnconvert.core.names import add

_PROTOCOL = 0x80
"""The first bytes of a pickle of the protocols 2 to 5."""

Builders: TypeAlias = "Mapping[str, Callable[..., Any]]"
"""By the dotted name of a global, what is called in its place."""
Followers: TypeAlias = "Mapping[str, Callable[[Foreign, memoryview, int], int]]"
"""By the dotted name of a class, what reads the bytes that follow the state of its object, and returns the byte after them."""

RECOVERABLE = (*MALFORMED, EOFError, struct.error)
"""Errors that damaged bytes raise in code that decodes them."""


class Meanings(NamedTuple):
    """The meanings of the names in a pickle.

    builders    for known globals, over those of the plain containers
    persistent  for a persistent id, such as a tensor's storage
    followers   readers of the bytes that some objects have after them, between the instructions
    """

    builders: Builders = MappingProxyType({})
    persistent: Callable[[Any], Any] | None = None
    followers: Followers = MappingProxyType({})


PLAIN = Meanings()


def load(data: Array | bytes, path: object, meanings: Meanings = PLAIN, start: int = 0, most: int = PICKLE_BYTES) -> tuple[Any, int]:
    """Return the value that a pickle describes, and the byte after its end; no code of the file's choice is run.

    most  how many bytes it may have, where weights lie in it

    Sets, and frozen ones, are read as lists.

    Raises UnreadableError if the pickle is damaged, too large, or names a function of the system.
    """
    memory = data.data if isinstance(data, np.ndarray) else memoryview(data)
    window = _ByteReader(memory[start : start + most])
    return _Machine(path, meanings, charging(len(memory))).run(window, start)


def load_row(data: Array, path: object, meanings: Meanings = PLAIN) -> Any:
    """Return the value of a file that is one pickle, with weights in it; of pickles one after the other, a list of values.

    Raises UnreadableError as `load` does, and for other bytes after a pickle.
    """
    values: list[Any] = []
    at = 0
    while at < data.size:
        if (values and data[at] != _PROTOCOL) or len(values) == PICKLES:
            raise UnreadableError(
                path,
                f"{data.size - at} bytes follow its pickle{'s' if len(values) > 1 else ''}, and are no other pickle",
                "Save the weights in a file of their own.",
            )
        value, at = load(data, path, meanings, at, data.size)
        values.append(value)
    return values[0] if len(values) == 1 else values


class _ByteReader:
    """Bytes that read as a file; what is not read is not copied."""

    def __init__(self, data: memoryview) -> None:
        self._data = data
        self._at = 0

    def tell(self) -> int:
        return self._at

    def skip(self, reader: Callable[[memoryview, int], int]) -> None:
        """Let another reader take the bytes from here on; it returns the place after them."""
        self._at = reader(self._data, self._at)

    def read(self, count: int) -> bytes:
        part = bytes(self._data[self._at : self._at + count])
        self._at += len(part)
        return part

    def readline(self) -> bytes:
        size = 256
        while True:
            part = bytes(self._data[self._at : self._at + size])
            end = part.find(b"\n") + 1
            if end or len(part) < size:
                self._at += end or len(part)
                return part[: end or len(part)]
            size *= 4


_CODES = {opcode.code: opcode for opcode in pickletools.opcodes}


def _instructions(window: _ByteReader) -> Iterator[tuple[str, Any]]:
    """Yield each instruction and its argument, as `pickletools.genops` does, and Python 2's texts of any bytes, which it does not read.

    Raises ValueError for bytes that are not an instruction.
    """
    while code := window.read(1):
        opcode = _CODES.get(code.decode("latin1"))
        if opcode is None:
            raise ValueError(f"unknown instruction {code!r}")
        if opcode.name == "STRING":
            line = window.readline()
            if len(line) < 3 or line[:1] not in (b"'", b'"') or line[-2:] != line[:1] + b"\n":
                raise ValueError("a text without quotes around it")
            yield opcode.name, codecs.escape_decode(line[1:-2])[0].decode("latin1")
        else:
            reader: Any = opcode.arg and opcode.arg.reader
            yield opcode.name, reader and reader(window)


class _Machine:
    """The stack, the marks and the memo of one pickle."""

    def __init__(self, path: object, meanings: Meanings, reading: Reading) -> None:
        self._reading = reading
        self._followers = meanings.followers
        self._window = _ByteReader(memoryview(b""))
        self._path = path
        self._builders = {**CONTAINERS, **meanings.builders}
        self._persistent = meanings.persistent
        self._stack: list[Any] = []
        self._marks: list[int] = []
        self._memo: dict[int, Any] = {}
        self._steps = 0

    def run(self, window: _ByteReader, start: int) -> tuple[Any, int]:
        self._window = window
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # an odd escape in a string is the file's business
                for name, argument in _instructions(window):
                    self._spend(1)
                    if name == "STOP":
                        return self._stack.pop(), start + window.tell()
                    if name in _PUSH:
                        self._stack.append(argument)
                    elif name in _CONSTANTS:
                        self._stack.append(_CONSTANTS[name])
                    elif name in _EMPTY:
                        self._stack.append(_EMPTY[name]())
                    else:
                        _STEPS[name](self, argument)
        except UnreadableError:
            raise
        except RECOVERABLE as error:
            text = str(error)[:200] or type(error).__name__
            raise UnreadableError(self._path, f"its pickle is damaged: {text}") from None
        self._fail("its pickle is truncated")

    def _fail(self, problem: str) -> NoReturn:
        raise UnreadableError(self._path, problem)

    def _spend(self, steps: int) -> None:
        self._steps += steps
        if steps > 1 or not self._steps % 1024:
            self._reading.work(steps if steps > 1 else 1024, self._path)
        if self._steps > PICKLE_STEPS:
            self._fail(f"its pickle asks for more than {PICKLE_STEPS} steps")

    def _unknown(self, argument: Any) -> None:
        self._fail("its pickle holds an instruction that no checkpoint needs (out-of-band data, extensions)")

    def _since_mark(self) -> list[Any]:
        mark = self._marks.pop()
        items = self._stack[mark:]
        del self._stack[mark:]
        return items

    # ---- the stack and the memo

    def _nothing(self, argument: Any) -> None: ...

    _proto = _frame = _nothing

    def _mark(self, argument: Any) -> None:
        self._marks.append(len(self._stack))

    def _pop(self, argument: Any) -> None:
        if self._marks and self._marks[-1] == len(self._stack):
            self._marks.pop()
        else:
            self._stack.pop()

    def _pop_mark(self, argument: Any) -> None:
        self._since_mark()

    def _dup(self, argument: Any) -> None:
        self._stack.append(self._stack[-1])

    def _put(self, index: int) -> None:
        self._memo[index] = self._stack[-1]

    _binput = _long_binput = _put

    def _memoize(self, argument: Any) -> None:
        self._memo[len(self._memo)] = self._stack[-1]

    def _get(self, index: int) -> None:
        self._stack.append(self._memo[index])

    _binget = _long_binget = _get

    # ---- containers

    def _tuple(self, argument: Any) -> None:
        self._stack.append(tuple(self._since_mark()))

    def _tuple1(self, argument: Any) -> None:
        self._take_tuple(1)

    def _tuple2(self, argument: Any) -> None:
        self._take_tuple(2)

    def _tuple3(self, argument: Any) -> None:
        self._take_tuple(3)

    def _take_tuple(self, length: int) -> None:
        if len(self._stack) < length:
            self._fail("its pickle is damaged: a tuple of values that are missing")
        self._stack[-length:] = [tuple(self._stack[-length:])]

    def _list(self, argument: Any) -> None:
        self._stack.append(self._since_mark())

    _frozenset = _list

    def _dict(self, argument: Any) -> None:
        items = self._since_mark()
        self._stack.append({})
        self._set(items)

    def _append(self, argument: Any) -> None:
        self._extend([self._stack.pop()])

    def _appends(self, argument: Any) -> None:
        self._extend(self._since_mark())

    _additems = _appends

    def _extend(self, items: list[Any]) -> None:
        target = self._stack[-1]
        if isinstance(target, Foreign):
            target.items.extend(items)
        elif isinstance(target, list):
            target.extend(items)
        else:
            self._fail(f"its pickle appends to a {type(target).__name__}")

    def _setitem(self, argument: Any) -> None:
        value = self._stack.pop()
        self._set([self._stack.pop(), value])

    def _setitems(self, argument: Any) -> None:
        self._set(self._since_mark())

    def _set(self, items: list[Any]) -> None:
        target = self._stack[-1]
        entries = target.entries if isinstance(target, Foreign) else target
        if not isinstance(entries, dict) or len(items) % 2:
            self._fail(f"its pickle sets an entry of a {type(target).__name__}")
        for key, value in zip(items[::2], items[1::2], strict=True):
            add(entries, plain_key(key), value, self._path)

    # ---- names, and the calls that are not made

    def _global(self, argument: str) -> None:
        self._stack.append(self._find(*argument.split(" ", 1)))

    def _stack_global(self, argument: Any) -> None:
        name, module = self._stack.pop(), self._stack.pop()
        if not isinstance(name, str) or not isinstance(module, str):
            self._fail("its pickle names a global with a value that is not text")
        self._stack.append(self._find(module, name))

    def _find(self, module: str, name: str) -> Global:
        if len(module) + len(name) > PICKLE_NAME:
            self._fail(f"its pickle names a global of {len(module) + len(name)} characters")
        value = global_named(module, name)
        if value is None:
            raise UnreadableError(
                self._path,
                f"its pickle asks for {f'{module}.{name}'!r}, which no checkpoint needs; it was not run",
                "Do not open this file with a program that runs pickles.",
            )
        return value

    def _reduce(self, argument: Any) -> None:
        args = self._stack.pop()
        self._stack.append(self._call(self._stack.pop(), args))

    _newobj = _reduce

    def _newobj_ex(self, argument: Any) -> None:
        keywords, args, made_by = self._stack.pop(), self._stack.pop(), self._stack.pop()
        instance = self._call(made_by, args)
        if isinstance(instance, Foreign) and isinstance(keywords, dict):
            instance.entries = keywords
        self._stack.append(instance)

    def _obj(self, argument: Any) -> None:
        items = self._since_mark()
        self._stack.append(self._call(items[0], tuple(items[1:])))

    def _inst(self, argument: str) -> None:
        made_by = self._find(*argument.split(" ", 1))
        self._stack.append(self._call(made_by, tuple(self._since_mark())))

    def _call(self, made_by: Any, args: Any) -> Any:
        if isinstance(made_by, Foreign):
            made_by = made_by.made_by
        if not isinstance(made_by, Global) or not isinstance(args, tuple):
            self._fail("its pickle calls something that is not a class or a function")
        build = self._builders.get(str(made_by))
        if build is None:
            return Foreign(made_by, args)
        # A builder may copy what it is given, and the same argument can be given again and again.
        self._spend(sum(len(arg) for arg in args if isinstance(arg, list | tuple | dict)))
        return build(*args)

    def _build(self, argument: Any) -> None:
        state = self._stack.pop()
        target = self._stack[-1]
        if isinstance(target, Foreign):
            target.state = state
            follower = self._followers.get(str(target.made_by))
            if follower is not None:
                self._window.skip(lambda data, at: follower(target, data, at))
        # Others have no state that tells of weights: an OrderedDict's is the version of each module.

    def _persid(self, argument: Any) -> None:
        if self._persistent is None:
            self._fail("its pickle refers to data outside it")
        self._stack.append(self._persistent(argument))

    def _binpersid(self, argument: Any) -> None:
        self._persid(self._stack.pop())


_PUSH = frozenset(
    {
        "INT",
        "BININT",
        "BININT1",
        "BININT2",
        "LONG",
        "LONG1",
        "LONG4",
        "STRING",
        "BINSTRING",
        "SHORT_BINSTRING",
        "BINBYTES",
        "SHORT_BINBYTES",
        "BINBYTES8",
        "BYTEARRAY8",
        "UNICODE",
        "SHORT_BINUNICODE",
        "BINUNICODE",
        "BINUNICODE8",
        "FLOAT",
        "BINFLOAT",
    }
)
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False, "EMPTY_TUPLE": ()}
_EMPTY: dict[str, Callable[[], Any]] = {"EMPTY_LIST": list, "EMPTY_SET": list, "EMPTY_DICT": dict}
_STEPS: dict[str, Callable[[_Machine, Any], None]] = {
    opcode.name: getattr(_Machine, f"_{opcode.name.lower()}", _Machine._unknown) for opcode in pickletools.opcodes
}
