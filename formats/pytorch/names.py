"""What stands in files before the names of a module's own parameters, and where layers were found."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass
from typing import Any

from rnnconvert.core.weights import Recurrent
from rnnconvert.language.layout import Layout

NAME = "pytorch"

WRAPPERS = ("state_dict", "model_state_dict", "module", "_orig_mod")
"""What training scripts, DataParallel and torch.compile put before the names of a module's own parameters."""
_NESTS = (*WRAPPERS, "model", "net", "network", "weights", "params")
"""The keys under which training scripts put a state dictionary into a dictionary of their own."""
COMPILED = "_orig_mod"
"""What torch.compile puts between the names of a module and of its parameters."""


@dataclass(frozen=True)
class Read:
    """Where the layers of a state dictionary were found.

    homes   for each its layout, None for a module of ours, which has its own; and its names of the arrays, and the file's
    remade  arrays that the file does not have: made of others, as weight norm keeps them
    facts   of each layer, batch_first and dropout where the file says them
    """

    homes: Mapping[str, tuple[Layout | None, Mapping[str, str]]]
    remade: tuple[str, ...]
    facts: Mapping[str, Mapping[str, Any]]


def plain_name(full: str) -> str:
    """Return a tensor's name without what training scripts put before it."""
    return module_name(full, {})


def module_name(prefix: str, taken: Mapping[str, Recurrent], nests: Container[object] = ()) -> str:
    """Return the name of a module whose parameters have this prefix, without what training scripts put before it.

    taken  the modules that have their names already
    nests  the keys of the file under which state dictionaries lie
    """
    parts = prefix.rstrip(".").split(".")
    while parts and (parts[0] in WRAPPERS or (parts[0] in _NESTS and parts[0] in nests)):
        parts = parts[1:]
    name = ".".join(part for part in parts if part != COMPILED)
    return prefix.rstrip(".") if name in taken else name
