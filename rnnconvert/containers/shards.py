"""Checkpoints in several files beside an index: which file is one of several, and whether an index names all of them.

Source: huggingface_hub 0.30, serialization/_base.py (`StateDictSplit`) and transformers 4.50, modeling_utils.py: the files
`model-00001-of-00002.safetensors` and so on, and `model.safetensors.index.json` with `weight_map` and `metadata.total_size`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from rnnconvert.core.errors import UnreadableError

_NAME = re.compile(r"(.+)-(\d{5})-of-(\d{5})(\.[A-Za-z][A-Za-z0-9.]*)")
_AGAIN = "Fetch the index and its shards again, together."
_LISTED = 5


class Shard(NamedTuple):
    """A file of several, by its name: what its index is called after, its number from 1, how many there are, and its ending."""

    stem: str
    number: int
    total: int
    ending: str


def shard(name: str) -> Shard | None:
    """Return the shard that a file's name states, out of how many; None for a file that stands alone."""
    parts = _NAME.fullmatch(name)
    if parts is None:
        return None
    candidate = Shard(parts[1], int(parts[2]), int(parts[3]), parts[4])
    return candidate if candidate.total > 1 and 1 <= candidate.number <= candidate.total else None


def whole_file(path: Path) -> Path:
    """Return the index beside a file that is one of several; any other path as it is.

    Raises UnreadableError where there is none: one shard is not a model.
    """
    this_shard = shard(path.name)
    if this_shard is None or not path.is_file():
        return path
    index = path.with_name(f"{this_shard.stem}{this_shard.ending}.index.json")
    one_of = f"it is shard {this_shard.number} of {this_shard.total}, and not a whole model"
    if not index.is_file():
        raise UnreadableError(path, f"{one_of}; its index {index.name!r} is not next to it", f"Put all {this_shard.total} next to it.")
    if this_shard.ending != ".safetensors":
        raise UnreadableError(
            path,
            f"{one_of}; its index is {index.name!r}, and only shards of safetensors are read together",
            "Load the model in its library, and save it as safetensors or in one file.",
        )
    return index


def check(index: Path, content: Mapping[str, Any], names: Mapping[str, str], there: Mapping[str, Iterable[str]], size: int) -> None:
    """Raise UnreadableError for an index that does not name all that its shards hold.

    content  what it says apart from the names
    names    the shard of each tensor
    there    the tensors of each shard
    size     how many bytes the named tensors have
    """
    for part in filter(None, map(shard, there)):
        for number in range(1, min(part.total, len(there) + 1) + 1):
            other = f"{part.stem}-{number:05}-of-{part.total:05}{part.ending}"
            if other not in there:
                raise UnreadableError(index, f"it names no tensor of {other!r}, which belongs to {part.total} shards", _AGAIN)
    for name, held in there.items():
        left = sorted(set(held) - names.keys())
        if left:
            raise UnreadableError(index, f"it leaves out tensors of {name!r}: {', '.join(map(repr, left[:_LISTED]))}", _AGAIN)
    metadata = content.get("metadata")
    total = metadata.get("total_size") if isinstance(metadata, dict) else None
    if isinstance(total, (int, float)) and total > size:
        raise UnreadableError(index, f"it states {total:.0f} bytes of tensors, and those that it names have {size}", _AGAIN)
