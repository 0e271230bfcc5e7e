"""One module a framework: its live models and its files, layer by layer.

A module here has

    NAME                       the format's name; FORMATS, where its files are of several formats
    TAKES                      what live objects it takes, in words
    takes(value)               whether a live object is this framework's, without importing it
    of_live(value)             the object as a Model
    of_checkpoint(checkpoint)  a file of it as a Model
    write(path, checkpoint, arrays)  the file again, with some arrays replaced

A framework whose files are read alone has NAME and of_checkpoint.
"""

from __future__ import annotations

import functools
import importlib
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

from rnnconvert.core.arrays import Array
from rnnconvert.core.errors import UsageError
from rnnconvert.core.weights import Recurrent
from rnnconvert.files.checkpoint import Checkpoint
from rnnconvert.files.load import load_with
from rnnconvert.files.options import Options
from rnnconvert.language import registry
from rnnconvert.language.registry import surroundings
from rnnconvert.models.model import Model, Unit, by_class
from rnnconvert.models.units import Owner, plain_units, single_layers


class ModelReader(Protocol):
    """A framework's models: see the module."""

    NAME: str

    def of_checkpoint(self, checkpoint: Checkpoint) -> Model:
        """Return a file, layer by layer."""
        ...


class FilledReader(ModelReader, Protocol):
    """A framework whose models can be filled, live ones and files."""

    TAKES: str

    def takes(self, value: Any) -> bool:
        """Return whether a live object is this framework's."""
        ...

    def of_live(self, value: Any) -> Model:
        """Return a live object, layer by layer. Raises UsageError if it cannot be filled."""
        ...

    def write(self, path: Path, checkpoint: Checkpoint, arrays: Mapping[str, Array]) -> list[str]:
        """Write a file again with some arrays replaced, and say what a user should know."""
        ...


@functools.cache
def fillable() -> dict[str, FilledReader]:
    """Return the reader of each format whose models can be filled, found by looking."""
    modules = {room: reader for room, reader in registry.named("whole").items() if hasattr(reader, "write")}
    return {name: reader for room, reader in modules.items() for name in getattr(reader, "FORMATS", (room,))}


def reader_of(format: str) -> ModelReader | None:
    """Return the reader of a format, or None where it has none; no other room is entered."""
    card = registry.cards().get(format)
    module = card.part("whole") if card is not None else ""
    modules = registry.members(importlib.import_module(module)).values() if module else ()
    return next((reader for reader in modules if format in getattr(reader, "FORMATS", (reader.NAME,))), None)


def filled_reader_of(format: str) -> FilledReader | None:
    """Return the reader of a format whose files can be filled, or None; no other room is entered."""
    reader: Any = reader_of(format)
    return reader if hasattr(reader, "write") else None


def model_of(value: Any, source_format: str | None = None, settings: Iterable[str] = (), **options: object) -> Model:
    """Return a path, a checkpoint or a live object, layer by layer.

    source_format, settings, options  for a path, as rnnconvert.load takes them

    Raises what `load` raises, and UsageError for an object of an unknown framework.
    """
    if not isinstance(value, Checkpoint) and (isinstance(value, (str, os.PathLike, bytes, bytearray)) or hasattr(value, "read")):
        chosen = Options(options, settings)
        value = load_with(value, source_format, chosen)
        chosen.ledger.check_used(value.path)
    elif source_format is not None or (settings := tuple(settings)) or options:
        words = [*([f"the format {source_format!r}"] if source_format is not None else []), *settings]
        words += [f"{key}={option}" for key, option in options.items()]
        raise UsageError(
            f"{', '.join(words)} decides nothing: it says how a file is read, but what was handed in is not a path but a "
            f"{type(value).__name__}. Leave it out, or give it to rnnconvert.load"
        )
    if isinstance(value, Checkpoint):
        reader = reader_of(value.format)
        from_file = value.read is not None or bool(value.arrays)  # one that was made in Python has its layers alone
        return reader.of_checkpoint(value) if reader is not None and from_file else by_names(value)
    for reader in dict.fromkeys(fillable().values()):
        if reader.takes(value):
            return reader.of_live(value)
    kind = f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")
    takes = " or ".join(dict.fromkeys(reader.TAKES for reader in fillable().values()))
    raise UsageError(f"{kind} is not a known kind of model. Hand in a path, {takes}")


def from_model(model: Any) -> dict[str, Recurrent]:
    """Return every recurrent layer of a live model, by name: a torch module, a Keras model, an ONNX model, a tree of JAX's.

    A stack comes layer by layer, `lstm[0]` and `lstm[1]`; rnnconvert.join_stack joins them again.

    Raises UsageError for an object of an unknown framework, or one that is not built yet.

        >>> import onnx, rnnconvert as rc
        >>> layers = rc.from_model(onnx.load("examples/exported.onnx"))
        >>> [layer.describe() for layer in layers.values()]
        ['GRU (reset after), 1 layer, forward, 6 -> 8, two biases, float32']
    """
    return {unit.name: unit.stack for unit in model_of(model).units if unit.stack is not None and not unit.alias}


def by_names(checkpoint: Checkpoint) -> Model:
    """Return a file as its names show it: its recurrent layers, and arrays that lie as a layer of the format does."""
    system = registry.systems().get(checkpoint.format)
    separator = system.separator if system is not None else "."
    owners: dict[str, dict[str, str]] = {}
    for name in checkpoint.tensors:
        for layout in surroundings(checkpoint.format):
            local = next((tensor.name for tensor in layout.tensors if name.endswith(f"{separator}{tensor.name}")), None)
            if local is not None:
                owners.setdefault(name.removesuffix(f"{separator}{local}"), {})[local] = name
                break
    units = [
        Unit(layer.name, stack=layer, title=layer.describe()) for stack in checkpoint.layers.values() for layer in single_layers(stack)
    ]
    for owner, names in owners.items():
        class_name = re.sub(r"_\d+$", "", owner)
        known_class = class_name if by_class(checkpoint.format, class_name) else ""
        units += plain_units(checkpoint.format, Owner(owner, known_class, names, lambda _: None, known_class), checkpoint.tensors)
    order = list(checkpoint.arrays)

    def place(unit: Unit) -> int:
        start = f"{unit.name.partition('[')[0]}{separator}"
        return next((number for number, name in enumerate(order) if name.startswith(start)), len(order))

    model = Model(checkpoint.format, checkpoint.path, tuple(sorted(units, key=place)), checkpoint.tensors)
    return model.replace(aside=kept_beside(checkpoint), questions=checkpoint.questions, by_names=True)


def kept_beside(checkpoint: Checkpoint) -> dict[str, str]:
    """Return the arrays that are named after another of their shape, as TensorFlow's `kernel/Adam` and averages are, and what they are."""
    system, arrays = registry.systems().get(checkpoint.format), checkpoint.arrays
    owners = {name: name.rpartition(system.separator if system is not None else ".")[0] for name in checkpoint.tensors}
    return {
        name: "state of training, not weights"
        for name, owner in owners.items()
        if owner in arrays and arrays[owner].shape == arrays[name].shape
    }
