"""madmom's networks: pickles, read as data; arrays by their attributes, and the functions with them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypedDict

from rnnconvert.containers import pickles
from rnnconvert.containers.files import map_file
from rnnconvert.containers.numpy_values import numpy_value
from rnnconvert.containers.pickle_values import Foreign, Global
from rnnconvert.containers.reading import charging
from rnnconvert.containers.stored import Stored
from rnnconvert.core.cells import Activation, Cell
from rnnconvert.core.errors import UnreadableError
from rnnconvert.core.limits import DOCUMENT_NESTING
from rnnconvert.core.names import checked_name, is_count
from rnnconvert.core.notes import LayerNote
from rnnconvert.core.weights import Call
from rnnconvert.files.checkpoint import Checkpoint
from rnnconvert.files.finder import ArrayFiles
from rnnconvert.files.found_layer import FoundLayer
from rnnconvert.files.opened import Opened
from rnnconvert.files.options import Options
from rnnconvert.graphs.row import in_a_row
from rnnconvert.language import registry

_LAYERS = ("RecurrentLayer", "GRULayer", "LSTMLayer", "BidirectionalLayer")
_STATES = ("init", "hid_init", "cell_init")
_SCRATCH = ("cell", "_tmp")
"""Arrays in which compiled gates kept what they computed last."""


class MadmomMetadata(TypedDict):
    """The metadata of a file: the class of each object, and the functions of layers, by their names."""

    classes: dict[str, str]
    functions: dict[str, Any]


def _walk(path: Path, value: Any, name: str, depth: int) -> Iterator[tuple[str, Any]]:
    """Yield the attributes of objects, by the path to each; an object itself as its class."""
    charging(0).work(1, path)
    checked_name(name, path)
    if depth > DOCUMENT_NESTING:
        raise UnreadableError(path, f"its objects are nested more than {DOCUMENT_NESTING} deep")
    array = numpy_value(value) if isinstance(value, Foreign) else None
    if array is not None or isinstance(value, Global):
        yield name, value if array is None else array
    elif isinstance(value, Foreign):
        yield name, str(value.args[0] if value.args else value.made_by)
        yield from _walk(path, value.state, name, depth + 1)
    elif isinstance(value, dict | list | tuple):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _walk(path, item, f"{name}.{key}" if name else str(key), depth + 1)


class Madmom(ArrayFiles):
    """The adapter of madmom: see rnnconvert.files.adapter."""

    STATED_KIND = True

    def kind(self, file: Opened) -> str:
        """Return the kind of this file, in words; "" if it does not belong to madmom."""
        return "a pickle that names classes of madmom" if "pickle" in file.kinds and b"madmom." in file.head else ""

    def stored(self, file: Opened) -> Stored:
        """Return the arrays by their attributes, and the classes and functions next to them."""
        tree, _ = pickles.load(map_file(file.path), file.path)
        entries = dict(_walk(file.path, tree, "", 0))
        classes = {name: value.rpartition(".")[2] for name, value in entries.items() if isinstance(value, str)}
        functions = {name: value.name.lstrip("_") for name, value in entries.items() if isinstance(value, Global)}
        arrays = {name: value for name, value in entries.items() if name not in classes and name not in functions}
        for name in [*arrays]:
            above, _, local = name.rpartition(".")
            gate = classes.get(above) in ("Gate", "Cell", "GRUCell")
            if (gate and local in (*_SCRATCH, *_STATES)) or (local in _STATES and not arrays[name].any()):
                del arrays[name]  # nothing reads the states of a gate, and a layer without a learned one starts from zeros
            elif local == "hid_init":
                arrays[f"{above}.init"] = arrays.pop(name)
            elif local == "bias" and not arrays[name].ndim and f"{above}.recurrent_weights" in arrays:  # one number for all units
                arrays[name] = arrays[name].repeat(arrays[f"{above}.recurrent_weights"].shape[-1])
        return Stored(arrays, MadmomMetadata(classes=classes, functions=functions))

    def find(self, path: Path, stored: Stored, options: Options) -> tuple[list[FoundLayer], list[LayerNote]]:
        """Return the recurrent layers, and what is unsettled about them; dense layers have arrays of the same names."""
        groups, doubts = super().find(path, stored, options)
        layer_names = {name for name, value in stored.metadata_as(MadmomMetadata)["classes"].items() if value in _LAYERS}
        return [group for group in groups if group.name in layer_names], [note for note in doubts if note.layer in layer_names]

    def read(self, path: Path, options: Options) -> Checkpoint:
        """Return every recurrent layer, and what each receives of the row that it stands in."""
        checkpoint = super().read(path, options)
        classes = checkpoint.metadata_as(MadmomMetadata)["classes"]
        rows: dict[str, list[tuple[str, str]]] = {}
        for name, kind in classes.items():
            above, _, number = name.rpartition(".")
            if is_count(number):
                rows.setdefault(above, []).append((name, kind))
        received: dict[str, tuple[Call, ...]] = {}
        for row in rows.values():
            received |= in_a_row(sorted(row, key=lambda entry: int(entry[0].rpartition(".")[2])), checkpoint.layers)
        layers = {name: stack.replace(calls=received.get(name, ())) for name, stack in checkpoint.layers.items()}
        return checkpoint.replace(layers=layers)

    def cell(self, group: FoundLayer, stored: Stored, options: Options) -> Cell:
        """Return the cell of a layer. Raises UnreadableError for functions that differ although they are one here."""
        kind, layout = group.layout.kind, group.layout
        spelt = dict(zip(layout.letters.split(), (gate for gate, _ in layout.order), strict=False))
        functions: dict[str, set[str]] = {}
        for full, function in stored.metadata_as(MadmomMetadata)["functions"].items():
            inside = full.removeprefix(f"{group.name}.").split(".")
            if full.startswith(f"{group.name}.") and inside[-1] == "activation_fn":
                gate = spelt.get(inside[-2] if len(inside) > 1 else "", "")
                if gate in ("g", "n") or kind == "rnn":
                    role = "activation"
                elif gate:
                    role = "gate_activation"
                else:
                    role = "output_activation"
                functions.setdefault(role, set()).add(function)
        if any(len(names) > 1 for names in functions.values()):
            raise UnreadableError(group.name, f"its functions differ: {sorted(map(sorted, functions.values()))}")
        return layout.cell.replace(
            **{role: Activation(names.pop()) for role, names in functions.items() if role != "output_activation" or kind == "lstm"}
        )


ADAPTERS = (Madmom("madmom", registry.endings("madmom"), "."),)
