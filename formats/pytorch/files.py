"""PyTorch's files: state dictionaries of any module, with nn.RNN, GRU, LSTM or their cells somewhere in it."""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import ml_dtypes
import numpy as np

from rnnconvert.containers import npz_file, safetensors
from rnnconvert.containers.files import lowered
from rnnconvert.containers.stored import Stored
from rnnconvert.core.arrays import FLOATS, Array, Pieced, is_float
from rnnconvert.core.cells import RELU, TANH, Cell
from rnnconvert.core.errors import RefusedError, UnreadableError, UsageError
from rnnconvert.core.weights import Recurrent
from rnnconvert.files.adapter import Job, put, unique, variables
from rnnconvert.files.checkpoint import Checkpoint
from rnnconvert.files.opened import KIND, SHAPED, STATED, Opened, Seen
from rnnconvert.files.options import Options
from rnnconvert.formats.pytorch import code as pytorch_code
from rnnconvert.formats.pytorch import torch_zip
from rnnconvert.language import outline, registry
from rnnconvert.language.fitting import as_wide, fit, misfit, pattern
from rnnconvert.language.layout import Layout, Sizes
from rnnconvert.language.packing import assemble, pack, unpack

if TYPE_CHECKING:
    from rnnconvert.formats.pytorch.torchscript_code import Call

# What few files need (torch_export, torch_legacy, torch_patch, the writer) is imported where such a file is met.

NAME = "pytorch"
SUFFIXES = registry.endings(NAME)

_WRAPPERS = ("state_dict", "model_state_dict", "module", "_orig_mod")
"""What training scripts, DataParallel and torch.compile put before the names of a module's own parameters."""
_NESTS = (*_WRAPPERS, "model", "net", "network", "weights", "params")
"""The keys under which training scripts put a state dictionary into a dictionary of their own."""
_COMPILED = "_orig_mod"
"""What torch.compile puts between the names of a module and of its parameters."""


def recognise(file: Opened) -> Seen | None:
    """Recognize a zip with a data.pkl, an old torch.save file, or a .safetensors."""
    path = file.path
    if path.is_dir():
        inside = _in_folder(path)
        folder = f"a folder with {inside.name} in it, as Hugging Face's libraries save models" if inside else ""
        return Seen(KIND, folder) if inside else None
    if file.head[:4] == b"PK\x03\x04":
        return _in_zip(file)
    if _is_legacy(file):
        return Seen(STATED, "the magic number of torch.save before version 1.6")
    if lowered(path).name.endswith(".safetensors.index.json"):
        return Seen(STATED, "the index of a sharded safetensors checkpoint")
    if "safetensors" in file.kinds:
        return _in_safetensors(file)
    return Seen(KIND, "a safetensors header") if lowered(path).suffix == ".safetensors" else None


def _in_safetensors(file: Opened) -> Seen:
    """Return how sure a safetensors file is PyTorch's: its metadata and the names of its tensors speak for it."""
    try:
        stored = file.once(safetensors.read)
    except UnreadableError:
        return Seen(KIND, "a safetensors header")
    stated = stored.metadata.get("__metadata__", {}).get("format") == "pt"
    named = any(_NAMED.fullmatch(name) for name in stored.arrays)
    return Seen((KIND, SHAPED, STATED)[stated + named], "a safetensors header")


def _is_legacy(file: Opened) -> bool:
    begins = any(file.head[at:].startswith(magic) for at, magic in registry.cards()[NAME].begins)
    if not begins and "tar" not in file.kinds:
        return False
    from rnnconvert.formats.pytorch import torch_legacy

    return file.once(torch_legacy.is_torch_legacy)


def _is_exported(file: Opened) -> bool:
    if not any(name.endswith("model_weights_config.json") for name in file.entries or ()):
        return False
    from rnnconvert.formats.pytorch import torch_export

    return bool(torch_export.root(file.entries or ()))


def _in_zip(file: Opened) -> Seen | None:
    if torch_zip.pickle_names(file.entries or ()):
        return Seen(STATED, "a zip archive with a data.pkl, as torch.save and torch.jit.save write it")
    if _is_exported(file):
        return Seen(STATED, "a zip archive with an exported program's weights, as torch.export.save writes it")
    named = _named_as_torch(file) if "npz" in file.kinds else ""
    if named:
        return Seen(SHAPED, named)
    by_ending = lowered(file.path).suffix == ".safetensors"
    return Seen(KIND, "a safetensors header") if by_ending and "npz" not in file.kinds else None


_FOLDER_FILES = (
    "model.safetensors.index.json", "model.safetensors", "pytorch_model.bin.index.json", "pytorch_model.bin",
)  # fmt: skip
_NAMED = re.compile(r"(?:.*\.)?(?:weight_ih_l0|bias_ih)")


def _in_folder(folder: Path) -> Path | None:
    """Return the file of weights of a folder that Hugging Face's libraries wrote, or None."""
    return next((folder / name for name in _FOLDER_FILES if (folder / name).is_file()), None)


def _named_as_torch(file: Opened) -> str:
    """Describe an archive of arrays with names of torch.nn's recurrent layers; "" for any other."""
    try:
        names = file.once(npz_file.read).arrays
    except UnreadableError:
        return ""
    found = next((name for name in names if _NAMED.fullmatch(name)), "")
    return f"a zip archive of .npy files, with {found!r} as torch.nn names it" if found else ""


def _aliased(stored: Stored) -> Stored:
    """Return the file with the second names of tied tensors, which safetensors.torch.save_model keeps in its metadata.

    Source: safetensors/torch.py (0.5), save_model: {name that is left out: name that is kept}.
    """
    texts: Mapping[str, str] = stored.metadata.get("__metadata__", {})
    aliases = {name: stored.arrays[kept] for name, kept in texts.items() if kept in stored.arrays}
    return Stored({**aliases, **stored.arrays}, stored.metadata) if aliases else stored


def _stored(path: Path) -> Stored:
    if path.is_dir():
        inside = _in_folder(path)
        if inside is not None and inside.name == "pytorch_model.bin.index.json":
            raise UnreadableError(
                path, "its weights are in several .bin files", "Give the path of one of them, or save as safetensors."
            )
        return _stored(inside) if inside is not None else _aliased(safetensors.read(path))
    file = Opened(path)
    head = file.head
    if head[:4] == b"PK\x03\x04":
        if _is_exported(file):
            from rnnconvert.formats.pytorch import torch_export

            return torch_export.read(path)
        named = "npz" in file.kinds and _named_as_torch(file)
        return file.once(npz_file.read) if named else torch_zip.read(path)
    if lowered(path).name.endswith(".safetensors.index.json") or head[8:9] == b"{":
        return _aliased(safetensors.read(path))
    from rnnconvert.formats.pytorch import torch_legacy

    return torch_legacy.read(path)


def about(checkpoint: Checkpoint) -> dict[str, object]:
    """Return what kind of object a file holds, and the plain values next to its tensors: epoch, step, versions."""
    root = str(checkpoint.metadata.get("root", ""))
    values: Any = checkpoint.metadata.get("values", {})
    kind = {"": "", "state_dict": "a state dictionary", "envelope": "a dictionary with tensors in it"}.get(root, root)
    if checkpoint.metadata.get("torchscript") and root != "an exported program":
        kind = f"TorchScript of {root.removeprefix('__torch__.')}"
    # Below the top, values are settings of modules and of optimizers.
    plain = {key: value for key, value in values.items() if "." not in str(key)} if root == "envelope" else {}
    version = checkpoint.metadata.get("torch_version")
    return {"holds": kind, **({"framework": f"torch {version}"} if version else {}), **plain}


def read(path: Path, options: Options) -> Checkpoint:
    """Return every recurrent module of a state dictionary, found by its parameters' names and shapes."""
    return read_stored(_stored(path), path, options)


def read_stored(stored: Stored, path: Path, options: Options) -> Checkpoint:
    """Read tensors that are in memory already."""
    arrays, warnings, disputed = _plain(path, stored.arrays)
    unreadable: Mapping[str, str] = stored.metadata.get("unreadable", {})
    tensors = {name: array.shape for name, array in arrays.items()} | dict(unreadable)
    layers: dict[str, Recurrent] = {}
    unread: list[str] = []
    evidence: list[str] = []
    used: set[str] = set()
    homes: dict[str, tuple[Layout | None, dict[str, str]]] = {}
    values: Mapping[str, Any] = stored.metadata.get("values", {})
    classes: Mapping[str, str] = stored.metadata.get("classes", {})
    facts: dict[str, Mapping[str, Any]] = {}
    calls: list[Call] = stored.metadata.get("calls", [])
    nests: list[object] = stored.metadata.get("nests", [])

    def add(name: str, prefix: str, layout: Layout, sizes: Sizes, names: dict[str, str]) -> None:
        code = pytorch_code.of_layer(path, calls, prefix, names, layout.kind, sizes)
        cell = _cell(path, layout, name, prefix, values, code.nonlinearity, "torchscript" in stored.metadata, options)
        _check_stated(path, name, prefix, values, sizes)
        warnings.extend(code.warnings)
        found = unpack(layout, sizes, {local: arrays[full] for local, full in names.items()})
        layers[name] = assemble(name, cell, found, sizes.num_directions)
        homes[name] = (layout, names)
        said = {key: values[prefix + key] for key in ("batch_first", "dropout") if prefix + key in values}
        facts[name] = said | dict(code.facts)
        used.update(names.values())

    for prefix, ours, names in _of_ours(path, arrays):
        name = _name(prefix, layers, nests)
        layers[name] = ours.replace(name=name)
        homes[name] = (None, names)
        evidence.append(f"{name or 'the module itself'}: a module of rnnconvert's own, which states what it computes")
        used |= set(names.values())
    modules = list(_modules({name: array for name, array in arrays.items() if name not in used}))
    recurrent = {full for _, _, names in modules for full in names.values()} | used
    for prefix, local, names in modules:
        foreign = _foreign_class(classes, prefix)
        if foreign:
            unread.append(
                f"{prefix.rstrip('.')}: its class {foreign} is not PyTorch's own, so its equations are unknown"
            )
            continue
        _check_read(unreadable, prefix, local)
        layout, sizes = _recognised(path, prefix, {name: arrays[full] for name, full in names.items()}, local)
        name = _name(prefix, layers, nests)
        options.facts(name, "its module", _beside(tensors, prefix, set(names.values()), nests, sizes, recurrent))
        overwritten = {full: disputed[full] for full in names.values() if full in disputed}
        said = {full: f"not {raw!r} with some numbers dropped out" for full, raw in overwritten.items()}
        options.facts(name, "its module", said)
        add(name, prefix, layout, sizes, names)
        evidence.append(f"{name or 'the module itself'}: parameters named as those of {layout.class_name}")
    for name, is_cell, names in pytorch_code.nameless(calls, arrays, used):
        style = next(one.tensors[0].name for one in _layouts() if one.holds.layers != is_cell)
        layout, sizes = _recognised(path, f"{name}.", {local: arrays[full] for local, full in names.items()}, style)
        name = unique(name, layers)
        add(name, "CONSTANTS.", layout, sizes, names)
        evidence.append(f"{name}: the code calls {layout.class_name}'s function with {', '.join(names.values())}")
    warnings += pytorch_code.written_out(calls, arrays, used)
    if not layers:
        _explain_absence(path, stored)
    others = {name: array for name, array in arrays.items() if name not in used}
    warnings += [f"{name}: {reason}" for name, reason in unreadable.items()]
    dequantized = frozenset(stored.metadata.get("dequantized", ()))
    warnings += [f"{name or 'the module itself'}: {_LOST}" for name, (_, names) in homes.items() if dequantized & set(names.values())]
    return Checkpoint(
        str(path), NAME, layers, others, tuple(evidence), options.questions, (*warnings, *unread), stored.metadata, arrays,
        Read(homes, tuple(name for name in arrays if name not in stored.arrays), facts), tuple(unread),
        batch_first={name: bool(said["batch_first"]) for name, said in facts.items() if "batch_first" in said},
    )  # fmt: skip


_LOST = (
    "its matrices are stored as integers, and are read as the float32 numbers that these stand for. PyTorch's kernels also round "
    "what these are multiplied with, so that its outputs are not exactly those of this layer"
)


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


def _of_ours(path: Path, arrays: Mapping[str, Array]) -> list[tuple[str, Recurrent, dict[str, str]]]:
    """Return the modules of rnnconvert.formats.pytorch.module."""
    try:
        found = list(outline.stored(arrays))
    except UsageError as error:
        raise UnreadableError(path, str(error)) from None
    for prefix, _, names in found:
        _check_types(path, prefix, {key: arrays[full] for key, full in names.items() if key != "outline"})
    return found


def _foreign_class(classes: Mapping[str, str], prefix: str) -> str:
    """Return the class of a module if the file states it and it is not one of torch.nn's recurrent ones; else ""."""
    name = classes.get(prefix.rstrip("."), "")
    plain = re.sub(r"__torch__\.|___torch_mangle_\d+\.", "", name)
    ours = {layout.class_name.rpartition(".")[2] for layout in _layouts()}
    known = plain.startswith(("torch.nn.", "torch.ao.nn.quantized.dynamic.")) and plain.rpartition(".")[2] in ours
    return "" if not name or known or prefix == "" else plain


def _beside(
    arrays: Mapping[str, object], prefix: str, own: Container[str], nests: Container[object], sizes: Sizes,
    others: Container[str],
) -> dict[str, object]:  # fmt: skip
    """Return what else a file keeps of a module: attached to one of its parameters, among them, or in a module inside it.

    A file's top level may hold anything: there, only what is attached counts, and what could be a layer's own.

    arrays  shapes by name, or why a tensor is not read
    own     the names of the module's parameters
    others  names of arrays that are of other recurrent modules
    """
    top = ".".join(part for part in prefix.rstrip(".").split(".") if part != _COMPILED)
    anything = not top or top in nests or top.split(".")[-1] in _WRAPPERS

    def counts(name: str, shape: object) -> bool:
        local = name.removeprefix(prefix)
        marks = (at for at, one in enumerate(local) if one in "._")
        if any(prefix + local[:at] in own for at in marks) or not anything:
            return True
        return "." not in local and (not isinstance(shape, tuple) or as_wide(shape, sizes))

    inside = {name: shape for name, shape in arrays.items() if name.startswith(prefix)}
    inside = {name: shape for name, shape in inside.items() if name not in own and name not in others}
    return {name: shape for name, shape in inside.items() if counts(name, shape)}


def _check_read(unreadable: Mapping[str, str], prefix: str, style: str) -> None:
    """Raise RefusedError for a parameter of a module whose numbers the file does not hold as an array."""
    widest = _styles()[style]
    patterns = [pattern(widest, tensor) for tensor in widest.tensors]
    for full, why in unreadable.items():
        if full.startswith(prefix) and any(one.fullmatch(full.removeprefix(prefix)) for one in patterns):
            raise RefusedError(
                "a parameter that is not a dense tensor", "the canonical form", f"{full!r}: {why}", _instead(why)
            )


def _instead(why: str) -> str:
    """Return what to do about a tensor that is not read."""
    return "Save module.weight.to_dense() in its place." if "sparse" in why else "Save it as a plain tensor."


def _explain_absence(path: Path, stored: Stored) -> None:
    unreadable: Mapping[str, str] = stored.metadata.get("unreadable", {})
    packed = [
        name for name in unreadable if "packed" in name or "_all_weight_values" in name or "quant" in unreadable[name]
    ]
    if packed:
        raise RefusedError(
            "quantised weights", "the canonical form", f"{packed[0]!r}: {unreadable[packed[0]]}",
            "Convert the model before it is quantized, or dequantize it in PyTorch first.",
        )  # fmt: skip
    for name in unreadable:
        for style in _styles():
            _check_read(unreadable, name[: len(name) - len(name.rpartition(".")[2])], style)


def layouts(options: Options) -> list[Layout]:
    """Return modules of whole stacks, or with `module=cell` those of single steps."""
    stacks = options.choose("module", ("stack", "cell")) != "cell"
    return [layout for layout in registry.layouts_of(NAME) if layout.holds.layers == stacks]


def _layouts() -> list[Layout]:
    return registry.layouts_of(NAME)


def _styles() -> dict[str, Layout]:
    """Return the widest of the layouts whose arrays have the same names, by the first of these names."""
    styles: dict[str, Layout] = {}
    for layout in _layouts():
        style = layout.tensors[0].name
        styles[style] = max(layout, styles.get(style, layout), key=lambda one: len(one.tensors))
    return styles


def _modules(arrays: Mapping[str, Array]) -> Iterator[tuple[str, str, dict[str, str]]]:
    """Yield every group of parameters that share a prefix and are named as a recurrent module's: prefix, style, names."""
    for style, widest in _styles().items():
        patterns = [pattern(widest, tensor) for tensor in widest.tensors]
        groups: dict[str, dict[str, str]] = {}
        for name in arrays:
            for expression in patterns:
                local = _ending(name, expression)
                if local is not None:
                    groups.setdefault(name[: len(name) - len(local)], {})[local] = name
        for prefix, names in groups.items():
            if any(arrays[full].ndim == 2 for full in names.values()) and len(names) > 1:
                yield prefix, style, names


def _ending(name: str, expression: Any) -> str | None:
    """Return the last dotted components of a name that match, or None."""
    parts = name.split(".")
    for start in range(len(parts) - 1, -1, -1):
        local = ".".join(parts[start:])
        if expression.fullmatch(local):
            return local
    return None


def _recognised(path: Path, prefix: str, arrays: Mapping[str, Array], style: str) -> tuple[Layout, Sizes]:
    found = {name: tuple(array.shape) for name, array in arrays.items()}
    fitting = [layout for layout in _layouts() if layout.tensors[0].name == style]
    for layout in fitting:
        sizes = fit(layout, found)
        if sizes is not None:
            _check_types(path, prefix, arrays)
            return layout, sizes
    raise UnreadableError(
        path,
        f"the parameters under {prefix!r} are named as those of {fitting[0].class_name.replace('LSTM', 'LSTM, GRU or RNN')}, "
        f"but they do not fit together: {misfit(fitting, found)}",
    )


def _check_types(path: Path, prefix: str, arrays: Mapping[str, Array]) -> None:
    dtypes = {str(array.dtype.newbyteorder("=")) for array in arrays.values()}
    if not dtypes <= set(FLOATS):
        raise RefusedError(
            "weights that are not floating-point numbers", "the canonical form",
            f"{prefix!r} has {', '.join(sorted(dtypes))}", "Dequantize the model first.",
        )  # fmt: skip
    if len(dtypes) > 1:
        raise UnreadableError(
            path, f"the parameters under {prefix!r} are of several types: {', '.join(sorted(dtypes))}"
        )


def plain_name(full: str) -> str:
    """Return a tensor's name without what training scripts put before it."""
    return _name(full, {})


def _name(prefix: str, taken: Mapping[str, Recurrent], nests: Container[object] = ()) -> str:
    parts = prefix.rstrip(".").split(".")
    while parts and (parts[0] in _WRAPPERS or (parts[0] in _NESTS and parts[0] in nests)):
        parts = parts[1:]
    name = ".".join(part for part in parts if part != _COMPILED)
    return prefix.rstrip(".") if name in taken else name


def _cell(
    path: Path,
    layout: Layout,
    name: str,
    prefix: str,
    values: Mapping[str, Any],
    code: str,
    has_code: bool,
    options: Options,
) -> Cell:
    if layout.kind != "rnn":
        return Cell(layout.kind, layout.reset_after)  # type: ignore[arg-type]
    mode = {"RNN_TANH": "tanh", "RNN_RELU": "relu"}.get(str(values.get(f"{prefix}mode")))
    said = values.get(f"{prefix}nonlinearity") or mode or code
    if code and said != code:
        raise RefusedError(
            f"an RNN that states {said} but computes {code}", "the canonical form",
            f"the attributes and the code of {path} contradict one another", "Save the module's state_dict.", name,
        )  # fmt: skip
    if said:
        function = options.stated("nonlinearity", name, str(said), "the file")
    else:
        why = "a state_dict does not hold an RNN's nonlinearity"
        if has_code:
            why = "the archive's code does not show which function is called with these weights"
        function = options.ask("nonlinearity", name, assumed="tanh", why=why)
    return Cell("rnn", activation=RELU if function == "relu" else TANH)


def _check_stated(path: Path, name: str, prefix: str, values: Mapping[str, Any], sizes: Sizes) -> None:
    """Raise UnreadableError for an attribute of a module that its parameters contradict."""
    stated = {
        "input_size": sizes.input_size, "hidden_size": sizes.hidden_size, "num_layers": sizes.num_layers,
        "bidirectional": sizes.num_directions == 2, "proj_size": sizes.projection_size, "bias": "input_bias" in sizes.parts,
    }  # fmt: skip
    for key, value in stated.items():
        said = values.get(prefix + key)
        if prefix and isinstance(said, (bool, int)) and said != value:
            raise UnreadableError(path, f"{name!r} states {key}={said}, but its parameters are for {value}")


@dataclass(frozen=True)
class _Made:
    """A parameter that a file keeps in other arrays.

    full    its name
    pieces  the arrays that it is made of
    array   its numbers, or why these arrays do not give them
    said    what was done, in words
    """

    full: str
    pieces: tuple[str, ...]
    array: Array | RefusedError | UnreadableError
    said: str


def _plain(path: Path, arrays: Mapping[str, Array]) -> tuple[dict[str, Array], list[str], dict[str, str]]:
    """Return the parameters as the module computes with them, with weight norm and pruning masks applied; warnings; and the
    arrays that weight dropout overwrites but did not make, with the ones that are read in their place.

    Pieces that a parameter is not made of stay arrays of their module.
    """
    made = {found.pieces[0]: found for name in arrays if (found := _made(path, name, arrays))}
    disputed: dict[str, str] = {}
    known: set[str] = set()
    for first, one in list(made.items()):
        given = arrays.get(one.full)
        if one.full in known:
            del made[first]
            continue
        known.add(one.full)
        if given is None and not isinstance(one.array, np.ndarray):
            raise one.array
        if given is None:
            continue
        if first.endswith("_raw"):
            # fastai's wrapper overwrites the parameter of the module inside it whenever it is called.
            inside = one.full.rpartition(".")[0] == first.rpartition(".")[0]
            if inside and not _is_dropped_out(given, arrays[first]):
                disputed[one.full] = first
        elif not isinstance(one.array, np.ndarray) or not _alike(given, one.array):
            del made[first]
        else:
            made[first] = replace(one, array=given, said="")
    pieces = {name for one in made.values() for name in one.pieces}
    plain: dict[str, Array] = {}
    for name, array in arrays.items():
        if name in made:
            plain[made[name].full] = made[name].array  # type: ignore[assignment]
        elif name not in pieces:
            plain.setdefault(name, array)
    return plain, [f"{one.full}: {one.said}" for one in made.values() if one.said], disputed


def _made(path: Path, name: str, arrays: Mapping[str, Array]) -> _Made | None:
    """Return the parameter whose first piece has this name. Raises RefusedError for an unknown parametrization."""
    head, _, last = name.rpartition(".")
    base, _, ending = last.rpartition("_")
    array = arrays[name]
    owner, _, parameter = head.rpartition(".parametrizations.") if ".parametrizations." in head else ("", "", "")
    if head.startswith("parametrizations."):
        owner, parameter = "", head.removeprefix("parametrizations.")
    if parameter.startswith(("weight_ih", "weight_hh", "weight_hr")):
        if last not in ("original0", "original1"):
            raise RefusedError(
                "a parametrization other than weight_norm", "the canonical form",
                f"{name!r} is not part of torch.nn.utils.parametrizations.weight_norm",
                "Call torch.nn.utils.parametrize.remove_parametrizations(module, name) before saving.",
            )  # fmt: skip
        full, magnitude = f"{owner}.{parameter}" if owner else parameter, f"{head}.original0"
        return _normed(path, full, name, magnitude, arrays) if last == "original1" else None
    full = f"{head}.{base}" if head else base
    if base.startswith(("weight_ih", "weight_hh")) and ending == "raw":
        full = _dropped_out(arrays, head, base)
        return _Made(full, (name,), array, f"taken from {name}, from which weight dropout makes it")
    if not base.startswith(("weight_ih", "weight_hh", "weight_hr", "bias_ih", "bias_hh")):
        return None
    if ending == "orig":
        return _masked(path, full, name, arrays)
    spectral = f"{full}_orig" in arrays and f"{full}_g" not in arrays
    return _normed(path, full, name, f"{full}_g", arrays) if ending == "v" and not spectral else None


def _masked(path: Path, full: str, name: str, arrays: Mapping[str, Array]) -> _Made:
    """Return a pruned parameter. Source: torch/nn/utils/prune.py; torch/nn/utils/spectral_norm.py has `_orig`, too."""
    mask, array = arrays.get(f"{full}_mask"), arrays[name]
    if mask is not None and mask.shape == array.shape:
        return _Made(full, (name, f"{full}_mask"), array * mask.astype(array.dtype), "pruning mask applied")
    why: RefusedError | UnreadableError = UnreadableError(
        path, f"{name!r} is pruned, but its mask {full + '_mask'!r} is missing or misshapen"
    )
    if mask is None and f"{full}_u" in arrays:
        module, _, local = full.rpartition(".")
        why = RefusedError(
            "spectral norm (torch.nn.utils.spectral_norm)", "the canonical form",
            f"{full!r} is kept as {name!r} and the vectors of its norm, {full + '_u'!r}"
            + (f" and {full + '_v'!r}" if f"{full}_v" in arrays else ""),
            f"Call torch.nn.utils.remove_spectral_norm({module or 'module'}, {local!r}) before saving.",
        )  # fmt: skip
    return _Made(full, (name,), why, "")


def _normed(path: Path, full: str, direction: str, magnitude: str, arrays: Mapping[str, Array]) -> _Made:
    try:
        array = _weight_norm(path, full, arrays.get(magnitude), arrays[direction])
    except UnreadableError as why:
        return _Made(full, (direction,), why, "")
    return _Made(full, (direction, magnitude), array, "weight norm applied")


def _alike(one: Array, other: Array) -> bool:
    """Return whether two arrays are the same but for the rounding of one computation."""
    if one.shape != other.shape or one.dtype != other.dtype or not is_float(one):
        return False
    eps = float(ml_dtypes.finfo(one.dtype).eps)
    return bool(np.allclose(one.astype(np.float64), other.astype(np.float64), rtol=8 * eps, atol=0))


def _is_dropped_out(given: Array, raw: Array) -> bool:
    """Return whether an array is another one times one factor, with some of its numbers set to zero."""
    if given.shape != raw.shape or given.dtype != raw.dtype or not is_float(raw):
        return False
    kept = given != 0
    numbers, origin = given[kept].astype(np.float64), raw[kept].astype(np.float64)
    if not len(numbers):
        return True
    if not origin.all():
        return False
    factor = numbers[0] / origin[0]
    eps = float(ml_dtypes.finfo(raw.dtype).eps)
    return bool(factor > 1 - 8 * eps and np.allclose(numbers, factor * origin, rtol=8 * eps, atol=0))


def _dropped_out(arrays: Mapping[str, Array], head: str, base: str) -> str:
    """Return the parameter that weight dropout makes from a raw one: in fastai it belongs to the inner module."""
    own, inside = (".".join(filter(None, (head, between, base))) for between in ("", "module"))
    bias = ".".join(filter(None, (head, "module", base.replace("weight_", "bias_"))))
    return inside if inside in arrays or bias in arrays else own


def _weight_norm(path: Path, name: str, magnitude: Array | None, direction: Array) -> Array:
    """Return g * v / |v|, the norm taken over each row. Source: torch/nn/utils/weight_norm.py, dim=0."""
    if magnitude is None or direction.ndim != 2 or magnitude.shape != (len(direction), 1):
        found = None if magnitude is None else magnitude.shape
        raise UnreadableError(
            path, f"{name!r} has weight norm, but its magnitudes have shape {found}, expected {(len(direction), 1)}"
        )
    wide = direction.astype(np.float64)
    norm = np.sqrt((wide * wide).sum(axis=1, keepdims=True))
    weight: Array = (wide * (magnitude.astype(np.float64) / norm)).astype(direction.dtype)
    return weight


def write(path: Path, job: Job) -> list[str]:
    """Write a state dictionary: a zip checkpoint, or a .safetensors."""
    arrays: dict[str, Array | Pieced] = {}
    notes: list[str] = []
    one = len(job.parts) == 1 and job.source.format != NAME
    stacks = job.stacks()
    made: list[tuple[str, str, str]] = []
    for layout, stack in stacks:
        asked = job.options.get("prefix", stack.name)
        bare = "" if one and len(stacks) == 1 else stack.name.strip("/").replace("/", ".")
        name = bare if asked is None else asked.rstrip(".")
        prefix = f"{name}." if name else ""
        for local, packed in pack(layout, stack, job.dtype, job.watch).items():
            put(arrays, prefix + local, packed)
        call = constructor(stack, layout, layout.holds.layers and job.batch_first(stack.name), job.dtype)
        made.append((name, stack.name, call))
    job.carry(arrays, plain_name)
    kept = _like_source(path, job) if lowered(path).suffix != ".safetensors" else None
    if kept is not None:
        if not job.dry_run:
            from rnnconvert.formats.pytorch import torch_patch

            torch_patch.write(path, job.source.file, job.source.arrays, kept)
        into = [f"{name or 'the file itself'} loads into {call}" for name, _, call in made]
        return [*into, "everything apart from the weights is kept unchanged"]
    job.recipe.extend(_recipe(path, made))
    if _whole(job) and _nested(job.source):
        notes.append(f"a state_dict is written: {left_behind(job.source)}")
    if job.dry_run:
        return notes
    if lowered(path).suffix == ".safetensors":
        texts: Any = job.source.metadata.get("__metadata__", {}) if job.source.format == NAME else {}
        # The second names of tied tensors stay in the metadata: safetensors.torch.load_model wants them there.
        once = {name: array for name, array in arrays.items() if texts.get(name) not in arrays}
        safetensors.write(path, once, {**texts, "format": "pt"})
    else:
        from rnnconvert.formats.pytorch import torch_zip_writer

        torch_zip_writer.write(path, arrays)
    return notes


def _recipe(path: Path, made: Sequence[tuple[str, str, str]]) -> list[str]:
    """Return Python that loads a file of tensors: for each name in it, its layer's name and the call that makes the
    module.
    """
    if lowered(path).suffix == ".safetensors":
        lines = ["import torch", "from safetensors.torch import load_file", f"state = load_file({str(path)!r})"]
    else:
        lines = ["import torch", f"state = torch.load({str(path)!r}, weights_only=True)"]
    called = variables(layer for _, layer, _ in made)
    for name, layer, call in made:
        prefix = f"{name}."
        chosen = f"{{key[{len(prefix)}:]: value for key, value in state.items() if key.startswith({prefix!r})}}"
        lines.append(f"{called[layer]} = {call}")
        lines.append(f"{called[layer]}.load_state_dict({chosen if name else 'state'})")
    return lines


def _whole(job: Job) -> bool:
    """Return whether all that the source holds is to be written, and not some of its layers."""
    everything = len(job.carried) == len(job.source.tensors) and len(job.parts) >= len(job.source.layers)
    return job.source.format == NAME and everything


def _nested(source: Checkpoint) -> bool:
    return source.metadata.get("root", "state_dict") != "state_dict"


def _values(source: Checkpoint) -> list[str]:
    """Return what a file holds besides tensors, by the first of its names."""
    values: Any = source.metadata.get("values", {})
    return list(dict.fromkeys(name.split(".")[0] for name in values))


def left_behind(source: Checkpoint) -> str:
    """Describe what a file holds besides tensors."""
    root = str(source.metadata.get("root"))
    if root != "envelope":
        return f"the code or class of {root} is left out"
    names = _values(source)
    return f"{', '.join(names[:8]) or 'its nesting'}{' ...' if len(names) > 8 else ''} left out"


def _like_source(path: Path, job: Job) -> dict[str, Array | Pieced] | None:
    """Return the weights by their names in the source, if the target is the source's envelope; None for a plain file.

    If a file of tensors alone cannot hold the result, it is written without its nesting.

    Raises RefusedError where more than the nesting would be lost.
    """
    if job.source.metadata.get("root") != "envelope" or not _whole(job):
        return None
    homes = job.source.read_as(Read).homes
    loses = bool(_values(job.source) or job.source.metadata.get("unreadable"))
    arrays: dict[str, Array | Pieced] = {}
    for part in job.parts:
        layout, names = homes.get(part.stack.name, (None, {}))
        packed = pack(part.layout, part.stack, job.dtype, job.watch) if layout is part.layout else {}
        why = "" if packed and set(packed) == set(names) else "its arrays get other names"
        for local, array in packed.items() if not why else ():
            old = job.source.arrays[names[local]]
            if old.shape != tuple(array.shape) or old.dtype.newbyteorder("=") != array.dtype.newbyteorder("="):
                why = f"{names[local]!r} would become {array.dtype} {tuple(array.shape)}"
            arrays[names[local]] = array
        if why and not loses:
            return None
        if why:
            _refuse_envelope(job, part.stack.name, why)
    return arrays


def _refuse_envelope(job: Job, layer: str, why: str) -> NoReturn:
    raise RefusedError(
        "layers that change their form",
        f"a checkpoint that holds {', '.join(_values(job.source)[:5]) or 'nested tensors'} as well", why,
        "Write only the layers with --layer, or write a .safetensors, which holds only tensors.", layer,
    )  # fmt: skip


def constructor(stack: Recurrent, layout: Layout, batch_first: bool = False, dtype: np.dtype[Any] | None = None) -> str:
    """Return the call that makes a module for a stack's state dictionary.

    dtype  the element type, where it is not the stack's own
    """
    words = [str(stack.input_size), str(stack.hidden_size)]
    if layout.holds.layers and stack.num_layers > 1:
        words.append(f"num_layers={stack.num_layers}")
    if stack.first.biases == "none":
        words.append("bias=False")
    if batch_first:
        words.append("batch_first=True")
    if stack.num_directions == 2:
        words.append("bidirectional=True")
    if stack.first.projection_size:
        words.append(f"proj_size={stack.first.projection_size}")
    if stack.cell.kind == "rnn" and stack.cell.activation == RELU:
        words.append("nonlinearity='relu'")
    kind = str((dtype or stack.dtype).newbyteorder("="))
    if kind != "float32":
        words.append(f"dtype=torch.{kind}")
    return f"{layout.class_name}({', '.join(words)})"
