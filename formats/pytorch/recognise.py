"""The evidence that a file holds parameters under PyTorch's names, and the arrays of such a file."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from rnnconvert.containers import npz_file, pickled_arrays, safetensors
from rnnconvert.containers.files import lowered
from rnnconvert.containers.stored import Stored
from rnnconvert.core.arrays import Array
from rnnconvert.core.errors import UnreadableError
from rnnconvert.files.opened import KIND, SHAPED, STATED, FormatClaim, Opened
from rnnconvert.formats.pytorch.archives import zip_reader
from rnnconvert.formats.pytorch.layouts import SYSTEM
from rnnconvert.formats.pytorch.metadata import TorchMetadata
from rnnconvert.language import registry


def recognise(file: Opened) -> FormatClaim | None:
    """Recognize a zip with a data.pkl, an old torch.save file, or a .safetensors."""
    path = file.path
    if path.is_dir():
        inside = in_folder(path)
        folder = f"a folder with {inside.name} in it, as Hugging Face's libraries save models" if inside else ""
        return FormatClaim(KIND, folder) if inside else None
    if file.head[:4] == b"PK\x03\x04":
        return _in_zip(file)
    if _is_legacy(file):
        return FormatClaim(STATED, "the magic number of torch.save before version 1.6")
    if of_tensors(file):
        return FormatClaim(STATED, "a pickle with PyTorch's tensors in it")
    named = named_in_pickle(file)
    if named:
        return FormatClaim(SHAPED, named)
    if lowered(path).name.endswith(".safetensors.index.json"):
        return FormatClaim(STATED, "the index of a sharded safetensors checkpoint")
    if "safetensors" in file.kinds:
        return _in_safetensors(file)
    return FormatClaim(KIND, "a safetensors header") if lowered(path).suffix == ".safetensors" else None


def _in_safetensors(file: Opened) -> FormatClaim:
    """Return how sure a safetensors file is PyTorch's: its metadata and the names of its tensors speak for it."""
    try:
        stored = file.cached(safetensors.read)
    except UnreadableError:
        return FormatClaim(KIND, "a safetensors header")
    stated = stored.metadata_as(TorchMetadata).get("__metadata__", {}).get("format") == "pt"
    named = any(_NAMED.fullmatch(name) for name in stored.arrays)
    return FormatClaim((KIND, SHAPED, STATED)[stated + named], "a safetensors header")


def _is_legacy(file: Opened) -> bool:
    begins = any(file.head[at:].startswith(magic) for at, magic in registry.cards()[SYSTEM.name].begins)
    if not begins and "tar" not in file.kinds:
        return False
    from rnnconvert.formats.pytorch.archives import legacy

    return file.cached(legacy.is_torch_legacy)


def is_exported(file: Opened) -> bool:
    if not any(name.endswith("model_weights_config.json") for name in file.entries or ()):
        return False
    from rnnconvert.formats.pytorch.archives import export as torch_export

    return bool(torch_export.root(file.entries or ()))


def is_first_torchscript(file: Opened) -> bool:
    """Return whether this is TorchScript of PyTorch 1.0 to 1.3: tensors and a model.json, and no data.pkl.

    Source: torch/csrc/jit/serialization/import_legacy.cpp, which looks for model.json.
    """
    entries = file.entries or ()
    roots = {name.removesuffix("model.json") for name in entries if name.rpartition("/")[2] == "model.json"}
    return any(name.startswith(tuple(f"{root}tensors/" for root in roots)) for name in entries)


def _in_zip(file: Opened) -> FormatClaim | None:
    if zip_reader.pickle_names(file.entries or ()):
        return FormatClaim(STATED, "a zip archive with a data.pkl, as torch.save and torch.jit.save write it")
    if is_exported(file):
        return FormatClaim(STATED, "a zip archive with an exported program's weights, as torch.export.save writes it")
    if is_first_torchscript(file):
        return FormatClaim(STATED, "a zip archive with a model.json and tensors, as torch.jit.save of PyTorch 1.0 wrote it")
    named = named_as_torch(file) if "npz" in file.kinds else ""
    if named:
        return FormatClaim(SHAPED, named)
    by_ending = lowered(file.path).suffix == ".safetensors"
    return FormatClaim(KIND, "a safetensors header") if by_ending and "npz" not in file.kinds else None


_FOLDER_FILES = ("model.safetensors.index.json", "model.safetensors", "pytorch_model.bin.index.json", "pytorch_model.bin")


_NAMED = re.compile(r"(?:.*\.)?(?:weight_ih_l0|bias_ih)")


def in_folder(folder: Path) -> Path | None:
    """Return the file of weights of a folder that Hugging Face's libraries wrote, or None."""
    return next((folder / name for name in _FOLDER_FILES if (folder / name).is_file()), None)


def named_as_torch(file: Opened) -> str:
    """Describe an archive of arrays with names of torch.nn's recurrent layers; "" for any other."""
    return _named(file, npz_file.read, "a zip archive of .npy files")


def named_in_pickle(file: Opened) -> str:
    """Describe a pickle of numpy's arrays with names of torch.nn's recurrent layers; "" for any other."""
    return _named(file, pickled, "a pickle") if "pickle" in file.kinds else ""


def of_tensors(file: Opened) -> bool:
    """Return whether a file is a plain pickle, as Python's module writes it, with PyTorch's storages in it."""
    if "pickle" not in file.kinds:
        return False
    if b"_load_from_bytes" in file.head:
        return True
    try:
        metadata = file.cached(pickled_arrays.read).metadata
    except UnreadableError:
        return False
    makers = (*metadata["unreadable"].values(), *(name for several in metadata["makers"].values() for name in several))
    return any("_load_from_bytes" in maker for maker in makers)


def pickled(path: Path) -> Stored:
    """Return the arrays of a pickle, with dots between the keys of dictionaries in one another. Raises UnreadableError."""
    stored = Opened(path).cached(pickled_arrays.read)
    arrays: dict[str, Array] = {}
    for full, array in stored.arrays.items():
        name = full.replace("/", ".")
        if name in arrays:
            raise UnreadableError(path, f"two of its arrays are called {name!r}")
        arrays[name] = array
    return replace(stored, arrays=arrays)


def _named(file: Opened, reader: Callable[[Path], Stored], kind: str) -> str:
    try:
        names = file.cached(reader).arrays
    except UnreadableError:
        return ""
    example = next((name for name in names if _NAMED.fullmatch(name)), "")
    return f"{kind}, with {example!r} as torch.nn names it" if example else ""


def _aliased(stored: Stored) -> Stored:
    """Return the file with the second names of tied tensors, which safetensors.torch.save_model keeps in its metadata.

    Source: safetensors/torch.py (0.5), save_model: {name that is left out: name that is kept}.
    """
    texts = stored.metadata_as(TorchMetadata).get("__metadata__", {})
    aliases = {name: stored.arrays[text] for name, text in texts.items() if text in stored.arrays}
    return Stored({**aliases, **stored.arrays}, stored.metadata) if aliases else stored


def stored_arrays(path: Path) -> Stored:
    """Return the tensors of a file or folder, which one reading parses once."""
    return Opened(path).examined(_arrays_of)


def _arrays_of(file: Opened) -> Stored:
    path = file.path
    if path.is_dir():
        inside = in_folder(path)
        if inside is not None and inside.name == "pytorch_model.bin.index.json":
            raise UnreadableError(
                path,
                f"its weights are in several .bin files, and {inside.name!r} is their index",
                "Load the model in its library, and save it as safetensors or in one file.",
            )
        return stored_arrays(inside) if inside is not None else _aliased(safetensors.read(path))
    head = file.head
    if head[:4] == b"PK\x03\x04":
        if is_exported(file):
            from rnnconvert.formats.pytorch.archives import export as torch_export

            return torch_export.read(path)
        # An archive with a data.pkl is read by it, whatever lies beside.
        if not zip_reader.pickle_names(file.entries or ()) and is_first_torchscript(file):
            raise UnreadableError(
                path,
                "it is TorchScript as PyTorch 1.0 to 1.3 saved it, with a model.json in place of a data.pkl",
                'In the PyTorch that saved it: torch.save(torch.jit.load("old.pt").state_dict(), "new.pt").',
            )
        named = "npz" in file.kinds and named_as_torch(file)
        return file.cached(npz_file.read) if named else zip_reader.read(path)
    if lowered(path).name.endswith(".safetensors.index.json") or head[8:9] == b"{":
        return _aliased(safetensors.read(path))
    from rnnconvert.formats.pytorch.archives import legacy

    if of_tensors(file):
        return legacy.read_pickle(path)
    if "pickle" in file.kinds and not file.cached(legacy.is_torch_legacy):
        return pickled(path)
    return legacy.read(path)
