"""The prefixes of a module's own parameters in files, and where layers were found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Container, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from rnnconvert.language.layout import Layout

NAME = "pytorch"

WRAPPERS = ("state_dict", "model_state_dict", "module", "_orig_mod")
"""Prefixes that training scripts, DataParallel and torch.compile put before the names of a module's own parameters."""
_NESTS = (*WRAPPERS, "model", "net", "network", "weights", "params")
"""The keys under which training scripts put a state dictionary into a dictionary of their own."""
COMPILED = "_orig_mod"
"""The word that torch.compile puts between the names of a module and of its parameters."""


@dataclass(frozen=True)
class LayerNames:
    """Where the layers of a state dictionary were found.

    homes   for each its layout, None for a module of rnnconvert's own, which has its own; and its names of the arrays, and the file's
    remade  arrays that the file does not have: made of others, as weight norm keeps them
    facts   of each layer, batch_first and dropout where the file says them
    """

    homes: Mapping[str, tuple[Layout | None, Mapping[str, str]]]
    remade: tuple[str, ...]
    facts: Mapping[str, Mapping[str, Any]]


def plain_names(full: Iterable[str], nests: Container[object] = (), tensors: Collection[str] = ()) -> dict[str, str]:
    """Return the names of modules or tensors without what training scripts put before them, by their whole names.

    A file may have the same name twice, wrapped and not, or in two wrappings: these keep their whole names. So do all where modules lie in
    several state dictionaries of a file, `net.encoder` and `ema.encoder`, or where another tensor would get the name of one of theirs.

    nests    the keys of the file under which state dictionaries lie
    tensors  the names of all tensors of the file
    """
    full = [*full]
    several = len({nest for name in full if (nest := name.partition(".")[0]) in nests}) > 1
    if several or any((short := _plain_name(name, nests)) != name and short in tensors for name in tensors):
        return {name: name for name in full}
    plain = {name: _plain_name(name, nests) for name in full}
    times = Counter(plain.values())
    return {name: short if times[short] == 1 else name for name, short in plain.items()}


def _plain_name(full: str, nests: Container[object]) -> str:
    parts = full.split(".")
    while parts and (parts[0] in WRAPPERS or (parts[0] in _NESTS and parts[0] in nests)):
        parts = parts[1:]
    return ".".join(part for part in parts if part != COMPILED)
