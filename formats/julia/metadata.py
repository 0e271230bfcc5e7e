"""The metadata of the files of this room, in addition to their arrays."""

from __future__ import annotations

from typing import Any

from rnnconvert.containers.stored import FileMetadata


class JuliaMetadata(FileMetadata, total=False):
    """The metadata of Julia's files.

    values            single values by their paths
    types             the types of structs by their paths: their names, and how many fields they have
    values_by_struct  single values by the path of the struct that they stand in, and their own name
    unread            layers that are not read, by their paths, and why
    """

    values: dict[str, Any]
    types: dict[str, Any]
    values_by_struct: dict[str, dict[str, Any]]
    unread: dict[str, Any]
