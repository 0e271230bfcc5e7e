"""Trees of JAX's arrays as a transplant sees them: Flax (linen and nnx), Haiku and Equinox.

A tree is not changed: filling gives a new one of the same kind.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rnnconvert.containers.files import lowered
from rnnconvert.core.arrays import Array
from rnnconvert.core.errors import MissingPackageError, UsageError
from rnnconvert.core.names import natural
from rnnconvert.core.weights import Recurrent
from rnnconvert.files.checkpoint import Checkpoint
from rnnconvert.files.found_layer import FoundLayer
from rnnconvert.files.options import Options
from rnnconvert.formats.jax.arrays import filled, kept_arrays, named_arrays
from rnnconvert.formats.jax.files import write_arrays
from rnnconvert.formats.jax.live import frameworks_of, module_at, read_cell
from rnnconvert.formats.jax.trees import FRAMEWORKS, find
from rnnconvert.language.layout import Tensor
from rnnconvert.models.model import Group, Model, Unit, by_class, joined
from rnnconvert.models.units import Owner, loose_units, plain_units, units_of_written

NAME = "jax"
TAKES = "a tree of JAX arrays"
FORMATS = FRAMEWORKS

# Flax keeps what a norm has seen beside its parameters, under the same names; Haiku in a state, if that is handed in too.
_COLLECTIONS = ("params", "batch_stats", "state")
_WAYS = {"forward_rnn": 0, "backward_rnn": 1}
"""The names that flax.linen.Bidirectional and flax.nnx.Bidirectional have for their two layers."""


def takes(value: Any) -> bool:
    """Return whether a live object is a tree with arrays in it, or an nnx.Module."""
    if not isinstance(value, Mapping) and "jax" not in sys.modules:
        return False
    try:
        nnx = sys.modules.get("flax.nnx")
        return bool(named_arrays(value)) or (nnx is not None and isinstance(value, nnx.Module))
    except (UsageError, MissingPackageError):
        return False


def of_live(tree: Any) -> Model:
    """Return a tree's cells and the layers around them, identified by their classes or their arrays' names.

    Raises UsageError where names and shapes do not settle what there is.
    """
    arrays = named_arrays(tree)
    frameworks = frameworks_of(tree)
    model = _model(arrays, frameworks, type(tree).__name__, tree)
    return model.replace(fill=lambda new: filled(tree, new), live=tree)


def _model(arrays: Mapping[str, Array], frameworks: Sequence[str], title: str, tree: Any = None) -> Model:
    written = _written(tree, arrays)
    ours = {name for unit in written for name in unit.arrays}
    cells = find({name: array for name, array in arrays.items() if name not in ours}, frameworks)
    framework = cells[0].layout.framework if cells else _framework(frameworks, arrays)
    options = Options()
    units = list(written)
    for cell in cells:
        units.append(_cell(cell, read_cell(tree, cell, arrays, options)))
    units = _both_ways(units)
    claimed = {name for unit in units for name in unit.arrays}
    aside = {name: "not a weight" for name in arrays if _ASIDE.search(name) or (arrays[name].dtype.kind in "iub" and not arrays[name].ndim)}
    aside |= dict.fromkeys(kept_arrays(tree), "what a layer keeps from one call to the next")
    for owner, names in _owners([name for name in arrays if name not in claimed and name not in aside]).items():
        module = module_at(tree, owner)
        class_name = type(module).__name__ if module is not None else _class_in(framework, owner)
        known_class = class_name if by_class(framework, class_name) else ""
        units += plain_units(framework, Owner(owner, known_class, names, _attributes(module), known_class), arrays)
    place = {name: number for number, name in enumerate(arrays)}
    units.sort(key=lambda unit: min(place[name] for name in unit.arrays))
    alphabet = len(arrays) > 1 and list(arrays) == sorted(arrays)
    if alphabet:
        units.sort(key=lambda unit: natural(unit.name))
    units += loose_units(arrays, {name for unit in units for name in unit.arrays} | set(aside))
    return Model(framework, f"{framework} {title}", tuple(units), arrays, False, alphabet, aside, questions=options.questions)


# An optimizer's numbers, random keys, and what Haiku needs to average.
_ASIDE = re.compile(r"(^|/)(opt_state|rngs)(/|$)|/~/(mean|var)_ema/(hidden|counter)$")


_WRITTEN = (
    Tensor("input_kernel", "input", "in (gate hidden)"),
    Tensor("recurrent_kernel", "recurrent", "in (gate hidden)"),
    Tensor("bias", "input_bias"),
    Tensor("recurrent_bias", "recurrent_bias"),
)
"""The parameters of a class that `rnnconvert scaffold` wrote."""


def _written(tree: Any, arrays: Mapping[str, Array]) -> list[Unit]:
    """Return the layers of classes that `rnnconvert scaffold` wrote: see formats/jax/scaffold/recurrent.py."""
    units: list[Unit] = []
    for path in dict.fromkeys(name.rpartition("/")[0] for name in arrays if name.endswith("/input_kernel")):
        module: Any = module_at(tree, path) if tree is not None else None
        cell = getattr(module, "rnnconvert_cell", None)
        if cell is None or cell["kind"] == "conv_lstm":
            continue
        names = {name.rpartition("/")[2]: name for name in arrays if name.rpartition("/")[0] == path}
        sizes = {"input_size": arrays[names["input_kernel"]].shape[0], "hidden_size": int(module.hidden_features)}
        units += units_of_written(path, {**cell, **sizes}, _WRITTEN, names, arrays, type(module).__name__)
    return units


def _framework(frameworks: Sequence[str], arrays: Mapping[str, Array]) -> str:
    """Return the framework of a tree without recurrent cells, by its own type or by its arrays' names."""
    if len(frameworks) == 1:
        return frameworks[0]
    lasts = {name.rpartition("/")[2] for name in arrays}
    if lasts & {"kernel", "embedding"}:
        return "flax"
    if lasts & {"w", "embeddings"}:
        return "haiku"
    return frameworks[0]


def _cell(cell: FoundLayer, stack: Recurrent) -> Unit:
    group = Group(cell.layout, (0,), cell.names)
    path = _without_collection(cell.name)
    return Unit(path, stack=stack.replace(name=path), groups=(group,), title=cell.layout.class_name)


def _both_ways(units: list[Unit]) -> list[Unit]:
    """Return the units, with those that Flax's Bidirectional holds taken as one layer of two directions."""
    by_name: dict[str, dict[int, Unit]] = {}
    for unit in units:
        parts = unit.name.split("/")
        way = next((number for number, part in enumerate(parts) if part in _WAYS), None)
        if way is not None:
            by_name.setdefault("/".join(parts[:way]), {})[_WAYS[parts[way]]] = unit
    pairs = {name: ways for name, ways in by_name.items() if len(ways) == 2}
    single = [unit for unit in units if not any(unit in ways.values() for ways in pairs.values())]
    return [*single, *(joined(name or "bidirectional", ways[0], ways[1]) for name, ways in pairs.items())]


def _owners(names: list[str]) -> dict[str, dict[str, str]]:
    """Return arrays by the layer that they belong to, through the collections that a layer's arrays are spread over."""
    owners: dict[str, dict[str, str]] = {}
    for name in names:
        path = _without_collection(name)
        moment = re.fullmatch(r"(?P<owner>.*)/(?P<local>~/(?:mean|var)_ema/average)", path)
        owner, local = (moment["owner"], moment["local"]) if moment else path.rpartition("/")[::2]
        owners.setdefault(owner, {})[local] = name
    return owners


def _without_collection(path: str) -> str:
    first, _, rest = path.partition("/")
    return rest if first in _COLLECTIONS else path


def _class_in(framework: str, owner: str) -> str:
    """Return the class that a module's own name states, where linen made it: Dense_0."""
    last = re.sub(r"_\d+$", "", owner.rpartition("/")[2])
    return last if by_class(framework, last) else ""


def _attributes(module: Any) -> Callable[[str], Any]:
    return lambda key: getattr(module, key, None)


def of_checkpoint(checkpoint: Checkpoint) -> Model:
    """Return a file of a tree; without a module, names are all there is."""
    return _model(checkpoint.arrays, (checkpoint.format,), checkpoint.path).replace(questions=checkpoint.questions, title=checkpoint.path)


def write(path: Path, checkpoint: Checkpoint, arrays: Mapping[str, Array]) -> list[str]:
    """Write a tree like the one that was read, with some arrays replaced.

    Raises UsageError for another kind of file.
    """
    if lowered(path).suffix not in (".npz", ".msgpack"):
        raise UsageError(f"{path}: unknown kind of file for a tree. Write a .msgpack or .npz")
    write_arrays(checkpoint.format, path, {name: arrays.get(name, array) for name, array in checkpoint.arrays.items()})
    return []
