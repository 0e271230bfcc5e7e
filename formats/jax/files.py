"""Files of JAX's trees: flax's msgpack, Orbax's folders, and .npz archives of arrays by path; what its libraries share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rnnconvert.containers import archives, msgpack_file, npz_file
from rnnconvert.containers.files import lowered
from rnnconvert.containers.stored import FileMetadata, Stored
from rnnconvert.core.arrays import Array, PiecewiseArray
from rnnconvert.core.cells import TANH
from rnnconvert.core.errors import MissingPackageError, UnreadableError
from rnnconvert.core.names import add, renamed
from rnnconvert.core.notes import LayerNote
from rnnconvert.core.weights import Recurrent
from rnnconvert.files.adapter import Job, WriteResult, loading, put
from rnnconvert.files.checkpoint import Checkpoint
from rnnconvert.files.opened import KIND, SHAPED, FormatClaim, Opened
from rnnconvert.files.options import Options
from rnnconvert.formats.jax import orbax_folder
from rnnconvert.formats.jax.trees import CALLED, find, linear
from rnnconvert.formats.jax.trees import read as read_cell
from rnnconvert.language.layout import Layout
from rnnconvert.language.packing import pack
from rnnconvert.language.registry import endings, layouts_of
from rnnconvert.rewrites import split_stack

_BY_NAME = {"npz", "pickle", "safetensors"}
"""The kinds of file that hold arrays by name, of any origin."""


def recognise(name: str, file: Opened) -> FormatClaim | None:
    """See whether a file holds cells of a library; a tree with no cell at all counts as Flax's."""
    by_name = file.kinds & _BY_NAME
    if file.path.is_dir():
        kind = file.cached(orbax_folder.recognise)
    elif by_name:
        kind = file.archive
    else:
        kind = "msgpack, as flax.serialization writes it" if "msgpack" in file.kinds else ""
    if not kind:
        return None
    try:
        cells_found = find(_weights(_stored(file)), doubts=[])
    except (UnreadableError, MissingPackageError):
        return FormatClaim(KIND, kind) if name == "flax" and not by_name else None
    class_names = [cell.layout.class_name for cell in cells_found if cell.layout.framework == name]
    if class_names:
        return FormatClaim(SHAPED, f"{kind}, with arrays named as those of {class_names[0]}")
    return FormatClaim(KIND, kind) if name == "flax" and not by_name and not cells_found else None


def _stored(file: Opened) -> Stored:
    if file.path.is_dir():
        return file.cached(orbax_folder.read)
    return _by_path(file.cached(archives.reader(file.path, file.head) if file.kinds & _BY_NAME else msgpack_file.read), file.path)


def _by_path(stored: Stored, path: Path) -> Stored:
    """Return arrays by their paths, where a flat file has them by names with another sign between the words."""
    words = next((sign for sign in "/,." if any(sign in name for name in stored.arrays)), "/")
    return stored if words == "/" else replace(stored, arrays=renamed(stored.arrays, lambda name: name.replace(words, "/"), path))


def _weights(stored: Stored) -> Mapping[str, Array]:
    """Return the arrays that may be a model's: those in the states of an optimizer of optax have the same paths, but are moments."""
    makers_by_path = stored.metadata_as(FileMetadata).get("makers", {})
    states = {path for path, makers in makers_by_path.items() if any(maker.startswith("optax.") for maker in makers)}

    def inside(name: str) -> bool:
        words = name.split("/")
        return any("/".join(words[:count]) in states for count in range(len(words) + 1))

    return {name: array for name, array in stored.arrays.items() if not inside(name)} if states else stored.arrays


def read(name: str, path: Path, options: Options) -> Checkpoint:
    """Return every cell of a library in a file, found by the paths and shapes of its arrays."""
    stored = _stored(Opened(path))
    doubts: list[LayerNote] = []
    layers: dict[str, Recurrent] = {}
    used: set[str] = set()
    evidence = []
    weights = _weights(stored)
    for cell in find(weights, (name,), doubts=doubts):
        add(layers, cell.name, read_cell(cell, stored.arrays, options, from_file=True), path)
        used |= set(cell.names.values())
        evidence.append(f"{cell.name or 'the file itself'}: arrays named as those of {cell.layout.class_name}")
    warnings = []
    maybe = [candidate for candidate in linear(weights) if candidate not in layers] if name == "haiku" else []
    if maybe:
        quoted = ", ".join(repr(candidate) for candidate in maybe[:5]) + (f" and {len(maybe) - 5} more" if len(maybe) > 5 else "")
        warnings.append(
            f"cells of Haiku are known by names that begin as its own do (lstm, vanilla_rnn); linear layers, or cells "
            f"of other names: {quoted}"
        )
    warnings += [LayerNote(array, str(reason)) for array, reason in stored.metadata_as(FileMetadata)["unreadable"].items()]
    others = {key: array for key, array in stored.arrays.items() if key not in used}
    return Checkpoint(
        str(path),
        name,
        layers,
        others,
        tuple(evidence),
        options.questions,
        (*doubts, *warnings),
        arrays=stored.arrays,
        unread=tuple(doubts),
    )


def write(name: str, path: Path, job: Job) -> WriteResult:
    """Write a tree of parameters: one layer of another format as the tree itself, several under their names."""
    arrays: dict[str, Array | PiecewiseArray] = {}
    notes, recipe = [], []
    stacks = [(part.layout, stack) for part in job.parts for stack in split_stack(part.stack)]
    bare = len(stacks) == 1 and job.source.format != name
    for layout, stack in stacks:
        asked = job.options.get("prefix", stack.name)
        place = "" if bare else stack.name
        above = _path(layout, place if asked is None else asked)
        for local, packed in pack(layout, stack, job.dtype, job.watch).items():
            full = f"{above}/{local}" if above else local
            put(arrays, full, packed)
        notes.append(f"{above or 'the file'} holds the parameters of {constructor(layout, stack)}")
        if len(stacks) == 1 and not above:
            recipe = loading(name, path, constructor(layout, stack))
    result = WriteResult(notes, recipe, job.carry(arrays))
    if not job.dry_run:
        write_arrays(name, path, arrays)
    return result


def write_arrays(name: str, path: Path, arrays: Mapping[str, Array | PiecewiseArray]) -> None:
    """Write arrays by their paths, as the kind of file that the path's ending stands for."""
    if lowered(path).suffix == ".npz":
        npz_file.write(path, arrays)
    else:
        msgpack_file.write(path, _tree(arrays, flat=name == "haiku"))


@dataclass(frozen=True)
class TreeFiles:
    """The adapter of one library: see rnnconvert.files.adapter.

    NAME      the format's name
    SUFFIXES  the endings of its files, the one written by default first
    other     a layout that is written where `module=optimized` asks for it, instead of the first of its cell
    """

    NAME: str
    SUFFIXES: tuple[str, ...]
    other: str = ""

    def recognise(self, file: Opened) -> FormatClaim | None:
        """Recognize a tree with the array names of its cells."""
        return recognise(self.NAME, file)

    def layouts(self, options: Options) -> list[Layout]:
        """Return the layouts of single cells: a stack is written as one after the other."""
        wanted = bool(self.other) and options.choose("module", ("stack", "optimized")) == "optimized"
        writable = [layout for layout in layouts_of(self.NAME) if layout.writable]
        return sorted(writable, key=lambda layout: (layout.name == self.other) != wanted)

    def read(self, path: Path, options: Options) -> Checkpoint:
        """Return every cell in a tree."""
        return read(self.NAME, path, options)

    def write(self, path: Path, job: Job) -> WriteResult:
        """Write a tree of the cells' parameters."""
        return write(self.NAME, path, job)


ADAPTERS = (
    TreeFiles("flax", endings("flax")),
    TreeFiles("nnx", endings("nnx"), "nnx.optimized_lstm"),
    TreeFiles("haiku", endings("haiku")),
)


def _path(layout: Layout, name: str) -> str:
    """Return where a layer goes: Haiku's cells are known by the names that Haiku gives them."""
    above = name.strip("/")
    default = CALLED.get(layout.name, "gru" if layout.name == "haiku.gru" else "")
    return above if above.rpartition("/")[2].startswith(default) else "/".join(filter(None, (above, default)))


def constructor(layout: Layout, stack: Recurrent) -> str:
    """Return the call that makes a cell for these arrays."""
    cell = stack.cell
    words = [str(stack.hidden_size)]
    if layout.framework in ("nnx", "equinox"):
        words.insert(0, str(stack.input_size))
    if layout.framework in ("flax", "nnx") and cell.activation != TANH:
        words.append(f"activation_fn={cell.activation}")
    if layout.framework == "equinox" and stack.first.biases == "none":
        words.append("use_bias=False")
    if layout.name == "haiku.rnn" and stack.first.biases != "both":
        words.append("double_bias=False")
    return f"{layout.class_name}({', '.join(words)})"


def _tree(arrays: Mapping[str, Any], flat: bool) -> dict[str, Any]:
    """Return nested dictionaries; Haiku's have two levels, and its modules' names have slashes."""
    tree: dict[str, Any] = {}
    for full, array in arrays.items():
        above, _, last = full.rpartition("/")
        node = tree
        words = above.split("/") if above else []
        for word in [above] if flat else words:
            node = node.setdefault(word, {})
        node[last] = array
    return tree
