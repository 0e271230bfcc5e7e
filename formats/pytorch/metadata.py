"""The metadata of the files of this room, in addition to their arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rnnconvert.containers.stored import FileMetadata


class TorchMetadata(FileMetadata, total=False):
    """The metadata of PyTorch's files.

    values         plain values by dotted names
    classes        the class of each object by dotted names
    scripted       the compiled class of each object by dotted names
    dequantized    the arrays that the file holds as integers
    imitated       those that were trained to be rounded to integers
    unpacked       the names of the arrays that were packed together, by the place where they were
    root           the class of the outermost object, "state_dict", "envelope", or "an exported program"
    nests          the keys of a dictionary whose values are dictionaries
    torchscript    whether the file contains code
    calls          the functions that this code calls with weights
    follow         returns the operators of its forward, or why these are not followed; of code for values of its inputs that are numbers
    torch_version  the version that an exported program states
    """

    values: dict[str, Any]
    classes: dict[str, str]
    scripted: dict[str, Any]
    dequantized: list[str]
    imitated: list[str]
    unpacked: dict[str, list[str]]
    root: str
    nests: list[object]
    torchscript: bool
    calls: list[Any]
    follow: Callable[..., Any]
    torch_version: str
