"""PyTorch's files: state dictionaries of any module, with nn.RNN, GRU, LSTM or their cells somewhere in it."""

from __future__ import annotations

import re
from collections.abc import Collection, Container, Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np

from rnnconvert.containers.stored import Stored
from rnnconvert.core.arrays import FLOATS, Array, Source, widest
from rnnconvert.core.cells import RELU, TANH, Cell
from rnnconvert.core.claims import ROUNDED
from rnnconvert.core.errors import RefusedError, UnreadableError, UsageError
from rnnconvert.core.notes import INTEGERS, UNREAD, LayerNote
from rnnconvert.core.remedies import Command
from rnnconvert.core.weights import Recurrent
from rnnconvert.files.adapter import Job, WriteResult, unique
from rnnconvert.files.checkpoint import Checkpoint
from rnnconvert.files.options import Options
from rnnconvert.formats.pytorch import code as pytorch_code
from rnnconvert.formats.pytorch.metadata import TorchMetadata
from rnnconvert.formats.pytorch.names import COMPILED, NAME, WRAPPERS, LayerNames, plain_names
from rnnconvert.formats.pytorch.recognise import recognise as recognise
from rnnconvert.formats.pytorch.recognise import stored_arrays
from rnnconvert.formats.pytorch.reparametrised import computed
from rnnconvert.language import outline, registry
from rnnconvert.language.fitting import as_wide, fit, misfit, norms, pattern
from rnnconvert.language.layout import Layout, Sizes
from rnnconvert.language.packing import assemble, unpack

# What few files need (torch_export, legacy, torch_patch, the writer) is imported where such a file is met.

SUFFIXES = registry.endings(NAME)


def about(checkpoint: Checkpoint) -> dict[str, object]:
    """Return the kind of object that a file holds, and the plain values next to its tensors: epoch, step, versions."""
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
    stored = stored_arrays(path)
    if any(".layer_fw.cell." in name for name in stored.arrays):
        from rnnconvert.formats.pytorch.archives.quantized import quantizable

        arrays, rounded = quantizable(stored.arrays)
        packed = bool(stored.metadata_as(TorchMetadata).get("dequantized"))
        stored = Stored(arrays, {**stored.metadata, ("dequantized" if packed else "imitated"): [*rounded]})
    return read_stored(stored, path, options)


def read_stored(stored: Stored, path: Path, options: Options) -> Checkpoint:
    """Read tensors that are in memory already."""
    reader = _ModuleReader(stored, path, options)
    reader.add_ours()
    reader.add_modules()
    reader.add_calls()
    if not reader.layers:
        explain_absence(stored)
        reader.add_convolving()
    return reader.checkpoint()


class _ModuleReader:
    """A state dictionary on its way to a checkpoint.

    layers  the layers by name
    used    the arrays of these, by name
    homes   the layout of each layer, None for a module of rnnconvert's own, and the full names of its arrays by their own
    facts   what the file states of how each layer is called: batch_first, dropout
    """

    def __init__(self, stored: Stored, path: Path, options: Options) -> None:
        self.stored, self.path, self.options = stored, path, options
        self.stated = stated = stored.metadata_as(TorchMetadata)
        self.arrays, self.warnings, self._disputed = computed(path, stored.arrays, options)
        self.unreadable = stated.get("unreadable", {})
        self._tensors = {name: array.shape for name, array in self.arrays.items()} | dict(self.unreadable)
        self._values, self._calls, self._nests = stated.get("values", {}), stated.get("calls", []), stated.get("nests", [])
        self.layers: dict[str, Recurrent] = {}
        self.used: set[str] = set()
        self.homes: dict[str, tuple[Layout | None, dict[str, str]]] = {}
        self.facts: dict[str, Mapping[str, Any]] = {}
        self.unread: list[LayerNote] = []
        self.evidence: list[str] = []
        self._ours = list(_of_ours(path, self.arrays))
        self.used |= {full for _, _, names in self._ours for full in names.values()}
        self._modules = list(_modules({name: array for name, array in self.arrays.items() if name not in self.used}))
        self._names = plain_names({prefix.rstrip(".") for prefix, _, _ in (*self._ours, *self._modules)}, self._nests, self._tensors)

    def add_ours(self) -> None:
        """Take in modules of rnnconvert's own."""
        for prefix, ours, names in self._ours:
            name = unique(self._names[prefix.rstrip(".")], self.layers)
            self.layers[name] = ours.replace(name=name)
            self.homes[name] = (None, names)
            self.evidence.append(f"{name or 'the module itself'}: a module of rnnconvert's own, which states what it computes")

    def add_modules(self) -> None:
        """Take in modules whose parameters have the names of PyTorch's."""
        recurrent = {full for _, _, names in self._modules for full in names.values()} | self.used
        for prefix, local, names in self._modules:
            foreign = _foreign_class(self.stated.get("classes", {}), prefix)
            if foreign:
                why = f"its class {foreign} is not PyTorch's own, so its equations are unknown"
                self.unread.append(LayerNote(prefix.rstrip("."), why, UNREAD))
                continue
            check_read(self.unreadable, prefix, local)
            layout, sizes = self._fitted(prefix, names, local)
            name = unique(self._names[prefix.rstrip(".")], self.layers)
            neighbours = _neighbours(self._tensors, prefix, set(names.values()), self._nests, sizes, recurrent)
            self.options.facts(name, "its module", neighbours)
            overwritten = {full: self._disputed[full] for full in names.values() if full in self._disputed}
            changes = {full: f"not {raw!r} with some numbers dropped out" for full, raw in overwritten.items()}
            self.options.facts(name, "its module", changes)
            self._add(name, prefix, layout, sizes, names)
            self.evidence.append(f"{name or 'the module itself'}: parameters named as those of {layout.class_name}")

    def add_convolving(self) -> None:
        """Name the cells whose products are convolutions."""
        way = f"To write its model whole, save what torch.jit.trace makes of it: {Command('export', 'traced.pt', 'model.onnx')}"
        why = f"its products are convolutions, and no recurrent layer here holds them. {way}"
        for name, array in self.arrays.items():
            if len(array.shape) > 2 and _CONVOLVING.search(name):
                self.unread.append(LayerNote(name.rpartition(".")[0], why, UNREAD))

    def add_calls(self) -> None:
        """Take in what the file's code computes with arrays that belong to no module."""
        for name, is_cell, names in pytorch_code.nameless(self._calls, self.arrays, self.used):
            style = next(candidate.tensors[0].name for candidate in torch_layouts() if candidate.holds.layers != is_cell)
            layout, sizes = self._fitted(f"{name}.", names, style)
            name = unique(name, self.layers)
            self._add(name, "CONSTANTS.", layout, sizes, names)
            self.evidence.append(f"{name}: the code calls {layout.class_name}'s function with {', '.join(names.values())}")
        self.warnings += pytorch_code.written_out(self._calls, self.arrays, self.used)

    def _fitted(self, prefix: str, names: Mapping[str, str], style: str) -> tuple[Layout, Sizes]:
        return _recognised(self.path, prefix, {local: self.arrays[full] for local, full in names.items()}, style)

    def _add(self, name: str, prefix: str, layout: Layout, sizes: Sizes, names: dict[str, str]) -> None:
        """Take in a layer."""
        code = pytorch_code.of_layer(self.path, self._calls, prefix, names, layout.kind, sizes)
        if layout.kind == "rnn":
            function = nonlinearity_of(self.path, name, prefix, self._values, code.nonlinearity)
            cell = rnn(name, function, "torchscript" in self.stored.metadata, self.options)
        else:
            cell = Cell(layout.kind, layout.reset_after)  # type: ignore[arg-type]
        check_stated(self.path, name, prefix, self._values, sizes)
        self.warnings += code.warnings
        layer_arrays, note = in_one_type({local: self.arrays[full] for local, full in names.items()})
        self.warnings += [LayerNote(name, str(text), unnamed="the module") for text in note]
        self.layers[name] = assemble(name, cell, unpack(layout, sizes, layer_arrays), sizes.num_directions)
        self.homes[name] = (layout, names)
        stated = {key: self._values[prefix + key] for key in ("batch_first", "dropout") if prefix + key in self._values}
        self.facts[name] = stated | dict(code.facts)
        self.used.update(names.values())

    def _called(self, arrays: Mapping[str, Array]) -> dict[str, Recurrent]:
        """Return the layers with what the file's program states of their calls; add what there is to warn of."""
        if "follow" not in self.stated or not self.layers:
            return self.layers
        from rnnconvert.formats.pytorch.program import layers as program_layers

        program = self.stated["follow"]()
        if isinstance(program, str):
            reads = program_layers.unfollowed(self.layers, program)
        else:
            reads = program_layers.received(program, self.layers, {name: names for name, (_, names) in self.homes.items()}, arrays)
        self.warnings += reads.warnings
        return {name: reads.of(stack) for name, stack in self.layers.items()}

    def checkpoint(self) -> Checkpoint:
        """Return the file as it was read."""
        # Tensors of a live state dictionary may be on another device: of_checkpoint takes them so.
        plain = cast("dict[str, Array]", self.arrays)
        layers = self._called(plain)
        rounded = {_LOST: self.stated.get("dequantized", ()), _IMITATED: self.stated.get("imitated", ())}
        self.warnings += [LayerNote(name, str(reason)) for name, reason in self.unreadable.items()]
        self.warnings += [
            LayerNote(name, why, INTEGERS, unnamed="the module itself")
            for name, (_, names) in self.homes.items()
            for why, which in rounded.items()
            if {*which} & set(names.values())
        ]
        return Checkpoint(
            str(self.path),
            NAME,
            layers,
            {name: array for name, array in plain.items() if name not in self.used},
            tuple(self.evidence),
            self.options.questions,
            (*self.warnings, *self.unread),
            {key: value for key, value in self.stored.metadata.items() if key != "follow"},
            plain,
            LayerNames(self.homes, tuple(name for name in self.arrays if name not in self.stored.arrays), self.facts),
            tuple(self.unread),
            batch_first={name: bool(fact["batch_first"]) for name, fact in self.facts.items() if "batch_first" in fact},
        )


_LOST = (
    "its matrices are stored as integers, and are read as the float32 numbers that these stand for. PyTorch's kernels also round "
    f"what these are multiplied with, {ROUNDED}"
)


_IMITATED = (
    "its training imitated integers of 8 bits: PyTorch rounds its matrices and what these are multiplied with as it runs, "
    f"and here are the float32 numbers before that, {ROUNDED}"
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
    """Return the other arrays of a module in a file: attached to one of its parameters, among them, or in a module inside it.

    A file's top level may hold anything: there, only attached arrays count, arrays that could be a layer's own, and norms as wide as it.

    arrays  shapes by name, or why a tensor is not read
    claimed  the names of the module's parameters
    others  names of arrays that belong to other recurrent modules
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
    """Return modules of whole stacks, or with `module=cell` modules of single steps."""
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


# The layouts of PyTorch's modules by the names of their arrays, and why a file without them has no layers.


def check_read(unreadable: Mapping[str, str], prefix: str, style: str) -> None:
    """Raise RefusedError for a parameter of a module whose numbers the file does not hold as an array."""
    widest = layouts_by_style()[style]
    patterns = [pattern(widest, tensor) for tensor in widest.tensors]
    for full, why in unreadable.items():
        if full.startswith(prefix) and any(allowed.fullmatch(full.removeprefix(prefix)) for allowed in patterns):
            raise RefusedError("a parameter that is not a dense tensor", "the canonical form", f"{full!r}: {why}", _instead(why))


def _instead(why: str) -> str:
    """Return the remedy for a tensor that is not read."""
    return "Save module.weight.to_dense() in its place." if "sparse" in why else "Save it as a plain tensor."


_CONVOLVING = re.compile(r"(?i)(^|[._])(cell_list|conv_?(lstm|gru|rnn)\w*)\.(.*\.)?\w*conv\w*\.weight\Z")
"""The weights of a ConvLSTM's cells, by the names that people give them."""


def explain_absence(stored: Stored) -> None:
    unreadable = stored.metadata_as(TorchMetadata).get("unreadable", {})
    packed = [name for name in unreadable if "packed" in name or "_all_weight_values" in name or "quant" in unreadable[name]]
    if packed:
        raise RefusedError(
            "quantised weights",
            "the canonical form",
            f"{packed[0]!r}: {unreadable[packed[0]]}",
            "Convert the model before it is quantized, or dequantize it in PyTorch first.",
        )
    for name in unreadable:
        for style in layouts_by_style():
            check_read(unreadable, name[: len(name) - len(name.rpartition(".")[2])], style)


def torch_layouts() -> list[Layout]:
    return registry.layouts_of(NAME)


def layouts_by_style() -> dict[str, Layout]:
    """Return the widest of the layouts whose arrays have the same names, by the first of these names."""
    styles: dict[str, Layout] = {}
    for layout in torch_layouts():
        style = layout.tensors[0].name
        styles[style] = max(layout, styles.get(style, layout), key=lambda candidate: len(candidate.tensors))
    return styles


# The statements of a PyTorch file about a recurrent layer.


def check_types(prefix: str, arrays: Mapping[str, Source]) -> None:
    dtypes = {str(array.dtype.newbyteorder("=")) for array in arrays.values()}
    if not dtypes <= set(FLOATS):
        raise RefusedError(
            "weights that are not floating-point numbers",
            "the canonical form",
            f"{prefix!r} has {', '.join(sorted(dtypes))}",
            "Dequantize the model first.",
        )


def in_one_type(arrays: dict[str, Source]) -> tuple[dict[str, Source], list[str]]:
    """Return a module's parameters in the element type that holds all of them, and a note where they are of several.

    Module.load_state_dict copies each into the type of the module: what the file has as several is one there.
    """
    dtype = widest(array.dtype for array in arrays.values())
    types = sorted({str(array.dtype.newbyteorder("=")) for array in arrays.values()})
    if len(types) == 1:
        return arrays, []
    note = f"its parameters are {' and '.join(types)}, which a module of PyTorch loads as one: they are read as {dtype}"
    return {name: np.asarray(array).astype(dtype, copy=False) for name, array in arrays.items()}, [note]


_MODES = {"RNN_TANH": "tanh", "RNN_RELU": "relu"}
"""An RNN's function, by the mode that its module states. It decides what torch.nn.RNN computes, regardless of its `nonlinearity`."""


def nonlinearity_of(path: Path, name: str, prefix: str, values: Mapping[str, Any], code: str) -> str:
    """Return an RNN's function as its attributes or its code show it, "" where neither does. Raises RefusedError if they differ."""
    stated = str(_MODES.get(str(values.get(f"{prefix}mode"))) or values.get(f"{prefix}nonlinearity") or code)
    if code and stated != code:
        raise RefusedError(
            f"an RNN that states {stated} but computes {code}",
            "the canonical form",
            f"the attributes and the code of {path} contradict one another",
            "Save the module's state_dict.",
            name,
        )
    return stated


def rnn(name: str, stated: str, has_code: bool, options: Options) -> Cell:
    """Return an RNN's cell, whose function the file states or the caller decides."""
    if stated:
        function = options.stated("nonlinearity", name, stated, "the file")
    else:
        why = "a state_dict does not hold an RNN's nonlinearity"
        if has_code:
            why = "the archive's code does not show which function is called with these weights"
        function = options.ask("nonlinearity", name, assumed="tanh", why=why, common=True)
    return Cell("rnn", activation=RELU if function == "relu" else TANH)


def check_stated(path: Path, name: str, prefix: str, values: Mapping[str, Any], sizes: Sizes) -> None:
    """Raise UnreadableError for an attribute of a module that its parameters contradict."""
    stated = {
        "input_size": sizes.input_size,
        "hidden_size": sizes.hidden_size,
        "num_layers": sizes.num_layers,
        "bidirectional": sizes.num_directions == 2,
        "proj_size": sizes.projection_size,
        "bias": "input_bias" in sizes.parts,
    }
    for key, value in stated.items():
        stated_value = values.get(prefix + key)
        if prefix and isinstance(stated_value, (bool, int)) and stated_value != value:
            raise UnreadableError(path, f"{name!r} states {key}={stated_value}, but its parameters are for {value}")
