"""Recurrent cells among arrays that are named by their paths in a tree: "encoder/cell/hi/kernel".

That is how Flax, Haiku and Equinox keep them. Where names and shapes do not settle what an array belongs to, the
caller is asked, and answers by path.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence

from rnnconvert.core.arguments import unknown
from rnnconvert.core.arrays import Array, is_float
from rnnconvert.core.cells import Activation
from rnnconvert.core.errors import UsageError
from rnnconvert.core.notes import UNREAD, LayerNote
from rnnconvert.core.weights import Recurrent
from rnnconvert.files.finder_words import speak_for
from rnnconvert.files.found_layer import FoundLayer
from rnnconvert.files.functions import with_functions
from rnnconvert.files.options import Options
from rnnconvert.language import registry
from rnnconvert.language.fitting import fit, misfit, names_of
from rnnconvert.language.layout import Layout, Sizes
from rnnconvert.language.packing import assemble, unpack
from rnnconvert.language.places import shapes

FRAMEWORKS = ("flax", "nnx", "haiku", "equinox")

CALLED = {"haiku.lstm": "lstm", "haiku.rnn": "vanilla_rnn"}
"""Cells whose arrays have the names of any linear layer's: only Haiku's name for the module identifies them."""
_NO_WEIGHTS = ("rngs",)
"""Entries that a cell may keep next to its weights: the random numbers of nnx's `keep_rngs`."""
_MOMENTS = "opt_state"
"""The names of an optimizer's numbers in a training state: they have the paths of the weights, but are not weights."""


def find(
    arrays: Mapping[str, Array],
    frameworks: Sequence[str] = FRAMEWORKS,
    cells: Mapping[str, str | None] | None = None,
    doubts: list[LayerNote] | None = None,
) -> list[FoundLayer]:
    """Return every recurrent cell among arrays that are named by their paths, in the order of the paths.

    cells   for a path the layout of its arrays ("haiku.lstm"), or None if they do not belong to a recurrent cell
    doubts  if given, unsettled paths are skipped and noted there, instead of raised

    Raises UsageError if the names are a cell's but the shapes are not, if other arrays are among a cell's own, if a named path has no such
    arrays, and for weights that are not floating-point numbers.
    """
    asked = dict(cells or {})
    groups: dict[str, dict[str, dict[str, str]]] = {}
    for (path, layout), names in _groups(arrays, _layouts(frameworks)).items():
        groups.setdefault(path, {})[layout] = names
    under = _under(arrays, groups)
    cells_found = []
    for path in sorted({*groups, *asked}):
        if path in asked:
            name = asked[path]
            if name is not None:
                cells_found.append(_as_asked(arrays, path, _layout(name)))
                _check_types(cells_found[-1], arrays)
            continue
        try:
            cell = _settled(under[path], path, groups[path])
            if cell is not None:
                _check_types(cell, arrays)
                cells_found.append(cell)
        except UnsureError as error:
            if doubts is None:
                raise UsageError(f"{error}. {error.remedy}") from None
            doubts.append(LayerNote("", str(error), UNREAD))
    return cells_found


class UnsureError(UsageError):
    """Names and shapes do not settle what there is; `remedy` is what the caller of from_jax can say."""

    def __init__(self, problem: str, remedy: str) -> None:
        self.remedy = remedy
        super().__init__(problem)


def read(
    cell: FoundLayer, arrays: Mapping[str, Array], options: Options, function: Activation | None = None, from_file: bool = False
) -> Recurrent:
    """Return the canonical form of a cell that was found; what its arrays leave open is asked.

    function   the candidate's, where something else than the arrays states it
    from_file  whether to ask for the functions that are arguments of the cell's class
    """
    unpacked = unpack(cell.layout, cell.sizes, {local: arrays[name] for local, name in cell.names.items()})
    plain = cell.layout.cell
    if function is not None:
        plain = plain.replace(activation=function)
    elif len(cell.layout.holds.activations) > 1:
        why = f"the parameters of {cell.layout.class_name} do not hold its function"
        plain = plain.replace(activation=Activation(options.ask("nonlinearity", cell.name, assumed="tanh", why=why)))
    if from_file:
        plain = with_functions(plain, cell.layout, cell.name, options)
    return assemble(cell.name, plain, unpacked, 1)


def linear(arrays: Mapping[str, Array]) -> list[str]:
    """Return the paths of what may be a cell of Haiku's under another name than Haiku gives it, or a linear layer."""
    layouts = [registry.layout_named(name) for name in CALLED]
    groups = _groups(arrays, layouts)
    return [path for (path, name), names in groups.items() if path and _fit(arrays, registry.layout_named(name), names)]


def _layouts(frameworks: Sequence[str]) -> list[Layout]:
    return [layout for framework in frameworks for layout in registry.layouts_of(framework)]


def _layout(name: str) -> Layout:
    by_name = {layout.name: layout for layout in _layouts(FRAMEWORKS)}
    if name not in by_name:
        raise unknown("cell", name, by_name)
    return by_name[name]


def _groups(arrays: Mapping[str, Array], layouts: Iterable[Layout]) -> dict[tuple[str, str], dict[str, str]]:
    """Group arrays that are named as a layout's under one path: by path and layout, their names under it and in full."""
    result: dict[tuple[str, str], dict[str, str]] = {}
    for layout in layouts:
        expression = re.compile(f"(?:(?P<path>.*)/)?(?P<local>{names_of([layout])})", re.S)
        for name in arrays:
            match = expression.fullmatch(name)
            if match and _MOMENTS not in name.split("/"):
                result.setdefault((match["path"] or "", layout.name), {})[match["local"]] = name
    return result


def _under(arrays: Mapping[str, Array], paths: Container[str]) -> dict[str, dict[str, Array]]:
    """Return for each path the arrays under it, by their full names."""
    under: dict[str, dict[str, Array]] = {}
    for name, array in arrays.items():
        for path in ("", *(name[: mark.start()] for mark in re.finditer("/", name))):
            if path in paths:
                under.setdefault(path, {})[name] = array
    return under


def _fit(arrays: Mapping[str, Array], layout: Layout, names: Mapping[str, str]) -> Sizes | None:
    return fit(layout, {local: tuple(arrays[name].shape) for local, name in names.items()})


def _settled(arrays: Mapping[str, Array], path: str, groups: Mapping[str, dict[str, str]]) -> FoundLayer | None:
    """Return the cell at a path, or None. Raises UnsureError for a cell's arrays that fit no cell, several, or leave some over."""
    layouts = {name: registry.layout_named(name) for name in groups}
    named = [name for name in groups if path.rpartition("/")[2].startswith(CALLED.get(name, ""))]
    named = [name for name in named if path or name not in CALLED]
    fitting = [(name, sizes) for name in named if (sizes := _fit(arrays, layouts[name], groups[name]))]
    clear = [(name, sizes) for name, sizes in fitting if not list(_unexplained(arrays, path, groups[name].values()))]
    where = repr(path) if path else "the tree itself"
    none = f"If it is not such a cell, confirm with cells={{{path!r}: None}}"
    if len(clear) > 1:
        names = ", ".join(name for name, _ in clear)
        raise UnsureError(f"{where} may be of {names}", f"Choose with cells={{{path!r}: {clear[0][0]!r}}}")
    if clear:
        name, sizes = clear[0]
        return FoundLayer(path, layouts[name], sizes, groups[name])
    if fitting:
        foreign = _pytorch(arrays, path)
        if foreign:
            raise UnsureError(f"{where} has the arrays of {foreign}", "rnnconvert.unpack(arrays, 'pytorch') reads them")
        name = fitting[0][0]
        other = next(_unexplained(arrays, path, groups[name].values()))
        raise UnsureError(
            f"{where} has the arrays of {layouts[name].class_name} plus {other!r}, which {layouts[name].class_name} does not have",
            f"If the cell still computes the same, confirm with cells={{{path!r}: {name!r}}}. {none}",
        )
    complete = [name for name in named if shapes(layouts[name], _smallest(layouts[name])).keys() <= groups[name].keys()]
    complete = complete or [name for name in named if speak_for(groups[name])][:1]
    if complete:
        alike = {local: tuple(arrays[full].shape) for name in complete for local, full in groups[name].items()}
        raise UnsureError(
            f"{where} has arrays named as those of {' or '.join(layouts[name].class_name for name in complete)}, but these "
            f"do not fit together: {misfit([layouts[name] for name in complete], alike)}",
            none,
        )
    return None


def _pytorch(arrays: Mapping[str, Array], path: str) -> str:
    """Return the module of PyTorch with the same names as the arrays under a path, or ""; Equinox's without biases are the same."""
    start = f"{path}/" if path else ""
    under = {name[len(start) :]: tuple(array.shape) for name, array in arrays.items() if name.startswith(start)}
    return next((layout.class_name for layout in registry.layouts_of("pytorch") if fit(layout, under)), "")


def _smallest(layout: Layout) -> Sizes:
    """Return sizes without biases: what every cell of a layout has."""
    return Sizes(layout.kind, 1, 1, parts=frozenset({"input", "recurrent"}))


def _unexplained(arrays: Mapping[str, Array], path: str, names: Iterable[str]) -> Iterator[str]:
    """Yield the arrays under a path that are not a cell's own."""
    explained = set(names)
    start = f"{path}/" if path else ""
    for name in arrays:
        if name.startswith(start) and name not in explained and name[len(start) :].split("/")[0] not in _NO_WEIGHTS:
            yield name


def _as_asked(arrays: Mapping[str, Array], path: str, layout: Layout) -> FoundLayer:
    """Return the cell that the caller names at a path."""
    names = _groups(arrays, [layout]).get((path, layout.name), {})
    sizes = _fit(arrays, layout, names)
    if sizes is None:
        array_shapes = {local: tuple(arrays[name].shape) for local, name in names.items()}
        reason = misfit([layout], array_shapes) if array_shapes else f"there is no {layout.tensors[0].name!r} under it"
        raise UsageError(f"{path!r} is not a {layout.class_name}: {reason}")
    return FoundLayer(path, layout, sizes, names)


def _check_types(cell: FoundLayer, arrays: Mapping[str, Array]) -> None:
    for name in cell.names.values():
        if not is_float(arrays[name]):
            raise UnsureError(f"{name!r} is of type {arrays[name].dtype}", "Dequantize the model first")
