"""PyTorch's files: state dictionaries of any module, with nn.RNN, GRU, LSTM or their cells somewhere in it."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Container, Iterator, Mapping
from pathlib import Path
from typing import Any, cast

from rnnconvert.containers.stored import Stored
from rnnconvert.core.arrays import Array, Source
from rnnconvert.core.cells import Cell
from rnnconvert.core.claims import ROUNDED
from rnnconvert.core.errors import UnreadableError, UsageError
from rnnconvert.core.notes import INTEGERS, UNREAD, LayerNote
from rnnconvert.core.weights import Recurrent
from rnnconvert.files.adapter import Job, WriteResult, unique
from rnnconvert.files.checkpoint import Checkpoint
from rnnconvert.files.options import Options
from rnnconvert.formats.pytorch import code as pytorch_code
from rnnconvert.formats.pytorch.layer_facts import check_stated, check_types, in_one_type, nonlinearity_of, rnn
from rnnconvert.formats.pytorch.metadata import TorchMetadata
from rnnconvert.formats.pytorch.names import COMPILED, NAME, WRAPPERS, LayerNames, plain_names
from rnnconvert.formats.pytorch.recognise import recognise as recognise
from rnnconvert.formats.pytorch.reparametrised import computed
from rnnconvert.formats.pytorch.stored import stored_arrays
from rnnconvert.formats.pytorch.styles import check_read, explain_absence, layouts_by_style, torch_layouts
from rnnconvert.language import outline, registry
from rnnconvert.language.fitting import as_wide, fit, misfit, norms, pattern
from rnnconvert.language.layout import Layout, Sizes
from rnnconvert.language.packing import assemble, unpack

# What few files need (torch_export, legacy, torch_patch, the writer) is imported where such a file is met.

SUFFIXES = registry.endings(NAME)


def about(checkpoint: Checkpoint) -> dict[str, object]:
    """Return what kind of object a file holds, and the plain values next to its tensors: epoch, step, versions."""
    root = str(checkpoint.metadata_as(TorchMetadata).get("root", ""))
    values = checkpoint.metadata_as(TorchMetadata).get("values", {})
    kind = {"": "", "state_dict": "a state dictionary", "envelope": "a dictionary with tensors in it"}.get(root, root)
    if checkpoint.metadata_as(TorchMetadata).get("torchscript") and root != "an exported program":
        kind = f"TorchScript of {root.removeprefix('__torch__.')}"
    # Below the top, values are settings of modules and of optimizers.
    plain = {key: value for key, value in values.items() if "." not in str(key)} if root == "envelope" else {}
    version = checkpoint.metadata_as(TorchMetadata).get("torch_version")
    return {"holds": kind, **({"framework": f"torch {version}"} if version else {}), **plain}


def read(path: Path, options: Options) -> Checkpoint:
    """Return every recurrent module of a state dictionary, found by its parameters' names and shapes."""
    return read_stored(stored_arrays(path), path, options)


def read_stored(stored: Stored, path: Path, options: Options) -> Checkpoint:
    """Read tensors that are in memory already."""
    arrays, warnings, disputed = computed(path, stored.arrays, options)
    unreadable = stored.metadata_as(TorchMetadata).get("unreadable", {})
    tensors = {name: array.shape for name, array in arrays.items()} | dict(unreadable)
    layers: dict[str, Recurrent] = {}
    unread: list[LayerNote] = []
    evidence: list[str] = []
    used: set[str] = set()
    homes: dict[str, tuple[Layout | None, dict[str, str]]] = {}
    values = stored.metadata_as(TorchMetadata).get("values", {})
    classes = stored.metadata_as(TorchMetadata).get("classes", {})
    facts: dict[str, Mapping[str, Any]] = {}
    calls = stored.metadata_as(TorchMetadata).get("calls", [])
    nests = stored.metadata_as(TorchMetadata).get("nests", [])

    def add(name: str, prefix: str, layout: Layout, sizes: Sizes, names: dict[str, str]) -> None:
        code = pytorch_code.of_layer(path, calls, prefix, names, layout.kind, sizes)
        if layout.kind == "rnn":
            function = nonlinearity_of(path, name, prefix, values, code.nonlinearity)
            cell = rnn(name, function, "torchscript" in stored.metadata, options)
        else:
            cell = Cell(layout.kind, layout.reset_after)  # type: ignore[arg-type]
        check_stated(path, name, prefix, values, sizes)
        warnings.extend(code.warnings)
        layer_arrays, note = in_one_type({local: arrays[full] for local, full in names.items()})
        warnings.extend(LayerNote(name, str(text), unnamed="the module") for text in note)
        unpacked = unpack(layout, sizes, layer_arrays)
        layers[name] = assemble(name, cell, unpacked, sizes.num_directions)
        homes[name] = (layout, names)
        stated = {key: values[prefix + key] for key in ("batch_first", "dropout") if prefix + key in values}
        facts[name] = stated | dict(code.facts)
        used.update(names.values())

    ours_stored = list(_of_ours(path, arrays))
    used |= {full for _, _, names in ours_stored for full in names.values()}
    modules = list(_modules({name: array for name, array in arrays.items() if name not in used}))
    called = plain_names({prefix.rstrip(".") for prefix, _, _ in (*ours_stored, *modules)}, nests, tensors)
    for prefix, ours, names in ours_stored:
        name = unique(called[prefix.rstrip(".")], layers)
        layers[name] = ours.replace(name=name)
        homes[name] = (None, names)
        evidence.append(f"{name or 'the module itself'}: a module of rnnconvert's own, which states what it computes")
    recurrent = {full for _, _, names in modules for full in names.values()} | used
    for prefix, local, names in modules:
        foreign = _foreign_class(classes, prefix)
        if foreign:
            unread.append(LayerNote(prefix.rstrip("."), f"its class {foreign} is not PyTorch's own, so its equations are unknown", UNREAD))
            continue
        check_read(unreadable, prefix, local)
        layout, sizes = _recognised(path, prefix, {name: arrays[full] for name, full in names.items()}, local)
        name = unique(called[prefix.rstrip(".")], layers)
        options.facts(name, "its module", _neighbours(tensors, prefix, set(names.values()), nests, sizes, recurrent))
        overwritten = {full: disputed[full] for full in names.values() if full in disputed}
        changes = {full: f"not {raw!r} with some numbers dropped out" for full, raw in overwritten.items()}
        options.facts(name, "its module", changes)
        add(name, prefix, layout, sizes, names)
        evidence.append(f"{name or 'the module itself'}: parameters named as those of {layout.class_name}")
    for name, is_cell, names in pytorch_code.nameless(calls, arrays, used):
        style = next(candidate.tensors[0].name for candidate in torch_layouts() if candidate.holds.layers != is_cell)
        layout, sizes = _recognised(path, f"{name}.", {local: arrays[full] for local, full in names.items()}, style)
        name = unique(name, layers)
        add(name, "CONSTANTS.", layout, sizes, names)
        evidence.append(f"{name}: the code calls {layout.class_name}'s function with {', '.join(names.values())}")
    warnings += pytorch_code.written_out(calls, arrays, used)
    if not layers:
        explain_absence(stored)
    metadata = {key: value for key, value in stored.metadata.items() if key != "follow"}
    plain = cast("dict[str, Array]", arrays)  # those of a live state dictionary may be on another device: of_checkpoint takes them so
    if "follow" in stored.metadata:
        layers, more = _received(stored.metadata_as(TorchMetadata)["follow"], layers, homes, plain)
        warnings += more
    others = {name: array for name, array in plain.items() if name not in used}
    warnings += [LayerNote(name, str(reason)) for name, reason in unreadable.items()]
    dequantized = frozenset(stored.metadata_as(TorchMetadata).get("dequantized", ()))
    warnings += [
        LayerNote(name, _LOST, INTEGERS, unnamed="the module itself")
        for name, (_, names) in homes.items()
        if dequantized & set(names.values())
    ]
    return Checkpoint(
        str(path),
        NAME,
        layers,
        others,
        tuple(evidence),
        options.questions,
        (*warnings, *unread),
        metadata,
        plain,
        LayerNames(homes, tuple(name for name in arrays if name not in stored.arrays), facts),
        tuple(unread),
        batch_first={name: bool(fact["batch_first"]) for name, fact in facts.items() if "batch_first" in fact},
    )


def _received(
    follow: Callable[[], Any],
    layers: Mapping[str, Recurrent],
    homes: Mapping[str, tuple[Layout | None, Mapping[str, str]]],
    arrays: Mapping[str, Array],
) -> tuple[dict[str, Recurrent], list[str]]:
    """Return the layers with what the file's program states of their calls, and warnings."""
    if not layers:
        return {}, []
    from rnnconvert.formats.pytorch.program import layers as program_layers

    program = follow()
    if isinstance(program, str):
        reads = program_layers.unfollowed(layers, program)
    else:
        reads = program_layers.received(program, layers, {name: names for name, (_, names) in homes.items()}, arrays)
    return {name: reads.of(stack) for name, stack in layers.items()}, reads.warnings


_LOST = (
    "its matrices are stored as integers, and are read as the float32 numbers that these stand for. PyTorch's kernels also round "
    f"what these are multiplied with, {ROUNDED}"
)


def _of_ours(path: Path, arrays: Mapping[str, Source]) -> list[tuple[str, Recurrent, dict[str, str]]]:
    """Return the modules of rnnconvert.formats.pytorch.module."""
    try:
        outlines = list(outline.stored(arrays))
    except UsageError as error:
        raise UnreadableError(path, str(error)) from None
    for prefix, _, names in outlines:
        check_types(prefix, {key: arrays[full] for key, full in names.items() if key != "outline"})
    return outlines


def _foreign_class(classes: Mapping[str, str], prefix: str) -> str:
    """Return the class of a module if the file states it and it is not one of torch.nn's recurrent ones; else ""."""
    name = classes.get(prefix.rstrip("."), "")
    plain = re.sub(r"__torch__\.|___torch_mangle_\d+\.", "", name)
    ours = {layout.class_name.rpartition(".")[2] for layout in torch_layouts()}
    standard = plain.startswith(("torch.nn.", "torch.ao.nn.quantized.dynamic.")) and plain.rpartition(".")[2] in ours
    return "" if not name or standard or prefix == "" else plain


def _neighbours(
    arrays: Mapping[str, object], prefix: str, claimed: Collection[str], nests: Container[object], sizes: Sizes, others: Container[str]
) -> dict[str, object]:
    """Return what else a file keeps of a module: attached to one of its parameters, among them, or in a module inside it.

    A file's top level may hold anything: there, only what is attached counts, what could be a layer's own, and norms as wide as it.

    arrays  shapes by name, or why a tensor is not read
    claimed  the names of the module's parameters
    others  names of arrays that are of other recurrent modules
    """
    top = ".".join(part for part in prefix.rstrip(".").split(".") if part != COMPILED)
    anything = not top or top in nests or top.split(".")[-1] in WRAPPERS
    ends = {len(name) for name in claimed if name.startswith(prefix)}

    def counts(name: str, shape: object) -> bool:
        attached = any(name[end : end + 1] in (".", "_") and name[:end] in claimed for end in ends)
        if attached or not anything:
            return True
        return "." not in name.removeprefix(prefix) and (not isinstance(shape, tuple) or as_wide(shape, sizes))

    inside = {name: shape for name, shape in arrays.items() if name.startswith(prefix)}
    inside = {name: shape for name, shape in inside.items() if name not in claimed and name not in others}
    shaped = {name.removeprefix(prefix): shape for name, shape in inside.items() if isinstance(shape, tuple)}
    norm_names = {prefix + name for name in norms(shaped, sizes, ".")}
    return {name: shape for name, shape in inside.items() if counts(name, shape) or name in norm_names}


def silent(path: Path) -> bool:
    """Return whether a file states no functions: no state dictionary does."""
    return True


def write(path: Path, job: Job) -> WriteResult:
    """Write a state dictionary: a zip checkpoint, or a .safetensors."""
    from rnnconvert.formats.pytorch import write as pytorch_write

    return pytorch_write.write(path, job)


def layouts(options: Options) -> list[Layout]:
    """Return modules of whole stacks, or with `module=cell` those of single steps."""
    stacks = options.choose("module", ("stack", "cell")) != "cell"
    return [layout for layout in registry.layouts_of(NAME) if layout.holds.layers == stacks]


def _modules(arrays: Mapping[str, Source]) -> Iterator[tuple[str, str, dict[str, str]]]:
    """Yield every group of parameters that share a prefix and are named as a recurrent module's: prefix, style, names."""
    for style, layout in layouts_by_style().items():
        patterns = [(pattern(layout, tensor), tensor.name.count(".")) for tensor in layout.tensors]
        groups: dict[str, dict[str, str]] = {}
        for name in arrays:
            for expression, dots in patterns:
                local = ".".join(name.rsplit(".", dots + 1)[-dots - 1 :])
                if expression.fullmatch(local):
                    groups.setdefault(name[: len(name) - len(local)], {})[local] = name
        for prefix, names in groups.items():
            if any(arrays[full].ndim == 2 for full in names.values()) and len(names) > 1:
                yield prefix, style, names


def _recognised(path: Path, prefix: str, arrays: Mapping[str, Source], style: str) -> tuple[Layout, Sizes]:
    shapes = {name: tuple(array.shape) for name, array in arrays.items()}
    fitting = [layout for layout in torch_layouts() if layout.tensors[0].name == style]
    for layout in fitting:
        sizes = fit(layout, shapes)
        if sizes is not None:
            check_types(prefix, arrays)
            return layout, sizes
    raise UnreadableError(
        path,
        f"the parameters under {prefix!r} are named as those of {fitting[0].class_name.replace('LSTM', 'LSTM, GRU or RNN')}, "
        f"but they do not fit together: {misfit(fitting, shapes)}",
    )
