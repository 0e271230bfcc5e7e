"""The values that a pickle is read as: names that are never imported, objects that are never made, plain containers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from rnnconvert.core.names import first_twice


@dataclass(frozen=True)
class Global:
    """A class or function that a pickle names; it is neither imported nor called."""

    module: str
    name: str

    def __str__(self) -> str:
        return f"{self.module}.{self.name}"


@dataclass(eq=False, repr=False)
class Foreign:
    """A pickle's description of an object of a class that is unknown here.

    made_by  the class, or the function that would have made it
    args     what it would have been called with
    state    what it would have been given as its state, usually its attributes
    items    what would have been appended to it
    entries  what would have been set in it by key
    """

    made_by: Global
    args: tuple[Any, ...] = ()
    state: Any = None
    items: list[Any] = field(default_factory=list)
    entries: dict[Any, Any] = field(default_factory=dict)


@dataclass(eq=False, repr=False)
class Key:
    """A dictionary key that is not a plain value; it is hashed by identity."""

    value: Any


_RENAMED = {"__builtin__": "builtins", "copy_reg": "copyreg"}

_DENIED = frozenset(
    {
        "os",
        "posix",
        "nt",
        "posixpath",
        "ntpath",
        "subprocess",
        "sys",
        "runpy",
        "importlib",
        "imp",
        "pkgutil",
        "shutil",
        "socket",
        "webbrowser",
        "ctypes",
        "_ctypes",
        "pty",
        "commands",
        "pdb",
        "bdb",
        "timeit",
        "marshal",
        "pickle",
        "_pickle",
        "pip",
        "asyncio",
        "signal",
    }
)
_DENIED_NAMES = frozenset({"io.open", "_io.open", "io.open_code", "_io.open_code", "codecs.open"})
_HARMLESS_BUILTINS = frozenset(
    {
        "object",
        "type",
        "int",
        "float",
        "complex",
        "bool",
        "str",
        "bytes",
        "bytearray",
        "list",
        "tuple",
        "dict",
        "set",
        "frozenset",
        "slice",
        "range",
        "property",
        "staticmethod",
        "classmethod",
        "Ellipsis",
        "NotImplemented",
        "long",
        "unicode",
        "basestring",
        "xrange",
        "getattr",
        "hash",
        "print",
    }
)
# getattr is here because Python 3.11 pickles an enum's member as getattr(class, name), and hash because gensim's models have it as
# an attribute. Neither is called, like anything else: what getattr would have returned is a Foreign object.


def global_named(module: str, name: str) -> Global | None:
    """Return the class or function of a name; None if no checkpoint needs it."""
    module = _RENAMED.get(module, module)
    denied = module.split(".")[0] in _DENIED or f"{module}.{name}" in _DENIED_NAMES
    if module == "builtins":
        denied = name not in _HARMLESS_BUILTINS and not name.endswith(("Error", "Exception", "Warning"))
    return None if denied else Global(module, name)


def plain_key(key: Any) -> Any:
    """Return a key that hashes quickly for any content of the file: text, a small number, or an object's identity."""
    if key is None or isinstance(key, str | bytes | bool | float | Global | Foreign):
        return key
    if isinstance(key, int) and abs(key) < 1 << 60:  # larger ones can be chosen to have all the same hash
        return key
    return Key(key)


def _make_list(items: Any = None) -> list[Any]:
    if isinstance(items, list):
        return items
    if isinstance(items, tuple):
        return list(items)
    return []


def _make_dict(*args: Any) -> dict[Any, Any]:
    for arg in args:  # defaultdict's first argument is its factory
        if isinstance(arg, dict):
            return arg
        if isinstance(arg, list):
            keys = [plain_key(pair[0]) for pair in arg]
            twice = first_twice(keys)
            if twice is not None:
                raise ValueError(f"two things in it have the name {twice!r}")
            return {key: pair[1] for key, pair in zip(keys, arg, strict=True)}
    return {}


def _make_complex(real: float, imaginary: float = 0.0) -> complex:
    return complex(float(real), float(imaginary))


def _make_object(made_by: Global, *args: Any) -> Foreign:
    if not isinstance(made_by, Global):
        raise TypeError("an object of something that is not a class")
    return Foreign(made_by, args)


def _make_reconstructed(made_by: Global, base: Any = None, plain: Any = None) -> Foreign:
    """Return an object as the protocols 0 and 1 write one: of a container's subclass, with the container's content."""
    instance = _make_object(made_by)
    if isinstance(plain, dict):
        instance.entries = plain
    elif isinstance(plain, list):
        instance.items = plain
    elif isinstance(plain, tuple):
        instance.args = plain
    return instance


CONTAINERS: dict[str, Callable[..., Any]] = {
    "builtins.set": _make_list,
    "builtins.frozenset": _make_list,
    "builtins.list": _make_list,
    "builtins.tuple": _make_list,
    "builtins.dict": _make_dict,
    "builtins.complex": _make_complex,
    "collections.OrderedDict": _make_dict,
    "collections.defaultdict": _make_dict,
    "collections.Counter": _make_dict,
    "copyreg._reconstructor": _make_reconstructed,
    "copyreg.__newobj__": _make_object,
}
"""By the dotted name of a global, what is called in its place: what makes a plain container."""
