"""PyTorch's zip files: `torch.save` checkpoints and TorchScript archives, read and written without PyTorch.

Source: torch/serialization.py (`_save`, `_load`), caffe2/serialize/inline_container.cc.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Iterable

from rnnconvert.containers import pickles
from rnnconvert.containers.stored import Stored
from rnnconvert.containers.zips import Archive
from rnnconvert.core.arrays import Array
from rnnconvert.core.errors import UnreadableError
from rnnconvert.core.limits import PICKLE_BYTES
from rnnconvert.formats.pytorch.archives.values import TORCH_BUILDERS, Storage, storage_of
from rnnconvert.formats.pytorch.archives.walk import flatten
from rnnconvert.formats.pytorch.metadata import TorchMetadata


def read(path: str | os.PathLike[str]) -> Stored:
    """Return the tensors of a checkpoint, a pickled module or a TorchScript archive, as views of the mapped file.

    Names are the keys on the way to a tensor, joined by dots; a module's are as in its `state_dict()`. The constants of a TorchScript
    module, where freezing puts the weights, have the names that its code uses: "CONSTANTS.c0". For metadata see `torch_walk.flatten`;
    "torchscript" tells whether the file contains code, and "calls" the functions that this code calls with weights, by their names;
    "follow" returns the operators of its forward, or why these are not followed.

    Raises UnreadableError.
    """
    archive = Archive(path)
    names = pickle_names(archive)
    if len(names) != 1:
        count = f"{len(names)} of them" if names else "none"
        raise UnreadableError(
            path,
            f"a PyTorch file has one data.pkl in one folder, but this zip archive has {count}",
            "" if names else "TorchScript archives older than PyTorch 1.4 have none. Save it again.",
        )
    prefix = names[0].removesuffix("data.pkl")
    stored = _read_pickle(archive, prefix, "data")
    if f"{prefix}constants.pkl" in archive:
        stored.metadata_as(TorchMetadata)["torchscript"] = True
        constants = _read_pickle(archive, prefix, "constants")
        stored.arrays.update({f"CONSTANTS.c{name}": array for name, array in constants.arrays.items()})
        for name, reason in constants.metadata_as(TorchMetadata)["unreadable"].items():
            stored.metadata_as(TorchMetadata)["unreadable"][f"CONSTANTS.c{name}"] = reason
    return stored


def pickle_names(archive: Iterable[str]) -> list[str]:
    """Return the names of PyTorch's pickles among the entries of a zip archive."""
    return [name for name in archive if name == "data.pkl" or name.split("/")[1:] == ["data.pkl"]]


def _read_pickle(archive: Archive, prefix: str, stem: str) -> Stored:
    """Read one pickle of the archive, with the storages in its folder."""

    def records(storage: Storage, size: int) -> Array:
        data = archive.read(f"{prefix}{stem}/{storage.key}")
        if data.size < size:
            raise UnreadableError(
                archive.path,
                f"the storage {storage.key!r} should have {size} bytes, but has {data.size}",
                "The file is damaged; fetch it again.",
            )
        return data

    name = f"{prefix}{stem}.pkl"
    if name in archive and archive.size(name) > PICKLE_BYTES:
        limit = f"{PICKLE_BYTES >> 20} MiB"
        raise UnreadableError(archive.path, f"its {stem}.pkl, which holds no weights, is larger than {limit}")
    root, _ = pickles.load(archive.read(name), archive.path, pickles.Meanings(TORCH_BUILDERS, storage_of))
    order = bytes(archive.read(f"{prefix}byteorder")) if f"{prefix}byteorder" in archive else b"little"
    if order not in (b"little", b"big"):
        raise UnreadableError(archive.path, f"its byte order is neither little nor big: {order[:20]!r}")
    swapped = order.decode() != sys.byteorder
    from rnnconvert.formats.pytorch.torchscript import Constants  # only archives may hold code

    code = Constants(archive, prefix)
    stored = flatten(root, records, archive.path, swapped, code)
    about = stored.metadata_as(TorchMetadata)
    scripted = about.pop("scripted")
    about["calls"] = list(code.calls(scripted))
    if scripted:
        about["follow"] = functools.partial(code.follow, scripted, stored)
    return stored
