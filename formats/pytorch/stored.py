"""The arrays of a PyTorch file, by name."""

from __future__ import annotations

from pathlib import Path

from rnnconvert.containers import npz_file, safetensors
from rnnconvert.containers.files import lowered
from rnnconvert.containers.stored import Stored
from rnnconvert.core.errors import UnreadableError
from rnnconvert.files.opened import Opened
from rnnconvert.formats.pytorch.archives import zip_reader
from rnnconvert.formats.pytorch.metadata import TorchMetadata
from rnnconvert.formats.pytorch.recognise import in_folder, is_exported, is_first_torchscript, named_as_torch, of_tensors, pickled
from rnnconvert.formats.pytorch.recognise import recognise as recognise


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
