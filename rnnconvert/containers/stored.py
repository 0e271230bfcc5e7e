"""The content of a container once it is open: arrays by name, and what else the file says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypedDict, TypeVar, cast

from rnnconvert.core.arrays import Array

StatedKind = TypeVar("StatedKind")


class FileMetadata(TypedDict, total=False):
    """Statements about a file by containers that several rooms share; a room with more of them has its own kind.

    unreadable    why an array is left out, by its name
    attributes    attributes of each group and array of HDF5, by their paths
    empty         the empty groups of HDF5, by their paths
    __metadata__  the free metadata of a .safetensors
    index         the index of a model in several files
    texts         single texts among the variables of a checkpoint
    makers        the classes that make the values of a pickle, by their paths
    """

    unreadable: dict[str, str]
    attributes: dict[str, Any]
    empty: list[str]
    __metadata__: dict[str, str]
    index: Any
    texts: dict[str, Any]
    makers: dict[str, list[str]]


@dataclass(frozen=True)
class Stored:
    """The contents of a file.

    arrays    every array by the name it has in the file, in the file's order; views of the mapped
              file wherever that is possible
    metadata  what else the file says, in the file's own words (a model's configuration, versions)
    """

    arrays: dict[str, Array]
    metadata: Mapping[str, Any] = field(default_factory=dict)

    def metadata_as(self, kind: type[StatedKind]) -> StatedKind:
        """Return the metadata with the names and types that its reader gives it."""
        return cast(StatedKind, self.metadata)
