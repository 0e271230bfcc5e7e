"""Weights that PyTorch computes from other parameters: weight norm, spectral norm, masks of pruning, weight dropout."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from rnnconvert.core.arrays import Array, Source, epsilon, is_float
from rnnconvert.core.errors import RefusedError, UnreadableError
from rnnconvert.core.notes import COMPUTED, LayerNote
from rnnconvert.files.options import Options


@dataclass(frozen=True)
class _Derived:
    """A parameter that a file keeps in other arrays.

    full    its name
    pieces  the arrays that it is made of
    array   its numbers, or why these arrays do not give them
    note    what was done, in words
    """

    full: str
    pieces: tuple[str, ...]
    array: Array | RefusedError | UnreadableError
    note: str


def computed(path: Path, arrays: Mapping[str, Source], options: Options) -> tuple[dict[str, Source], list[str], dict[str, str]]:
    """Return the parameters as the module computes with them, with norms and pruning masks applied; warnings; and the
    arrays that weight dropout overwrites but did not make, with the ones that are read in their place.

    Pieces that a parameter is not made of stay arrays of their module.
    """
    derived = {weight.pieces[0]: weight for name in arrays if (weight := _derived(path, name, arrays))}
    disputed: dict[str, str] = {}
    seen: set[str] = set()
    for first, entry in list(derived.items()):
        if entry.full in seen:
            del derived[first]
            continue
        seen.add(entry.full)
        if entry.full not in arrays and not isinstance(entry.array, np.ndarray):
            raise entry.array
        if entry.full not in arrays:
            continue
        stored = np.asarray(arrays[entry.full])
        if first.endswith("_raw"):
            # fastai's wrapper overwrites the parameter of the module inside it whenever it is called.
            inside = entry.full.rpartition(".")[0] == first.rpartition(".")[0]
            if inside and not _is_dropped_out(stored, np.asarray(arrays[first])):
                disputed[entry.full] = first
        elif not isinstance(entry.array, np.ndarray) or not _equal_arrays(stored, entry.array):
            del derived[first]
        else:
            derived[first] = replace(entry, array=stored, note="")
    if any(first.endswith(".original1") and derivation.note for first, derivation in derived.items()):
        options.ask(
            "reparametrised",
            assumed="weight_norm",
            why="it has a parametrization of two arrays, original0 and original1, as weight norm has; whose they are is unstated",
        )
    pieces = {name for derivation in derived.values() for name in derivation.pieces}
    plain: dict[str, Source] = {}
    for name, array in arrays.items():
        if name in derived:
            numbers = derived[name].array
            assert isinstance(numbers, np.ndarray)  # every problem was raised above, or its array replaced
            plain[derived[name].full] = numbers
        elif name not in pieces:
            plain.setdefault(name, array)
    return plain, [LayerNote(derivation.full, derivation.note, COMPUTED) for derivation in derived.values() if derivation.note], disputed


def _derived(path: Path, name: str, arrays: Mapping[str, Source]) -> _Derived | None:
    """Return the parameter whose first piece has this name. Raises RefusedError for an unknown parametrization."""
    head, _, last = name.rpartition(".")
    base, _, ending = last.rpartition("_")
    owner, _, parameter = head.rpartition(".parametrizations.") if ".parametrizations." in head else ("", "", "")
    if head.startswith("parametrizations."):
        owner, parameter = "", head.removeprefix("parametrizations.")
    if parameter.startswith(("weight_ih", "weight_hh", "weight_hr")):
        return _parametrized(path, owner, f"{parameter}.{last}", arrays)
    full = f"{head}.{base}" if head else base
    if base.startswith(("weight_ih", "weight_hh")) and ending == "raw":
        full = _dropped_out(arrays, head, base)
        return _Derived(full, (name,), np.asarray(arrays[name]), f"taken from {name}, from which weight dropout makes it")
    if not base.startswith(("weight_ih", "weight_hh", "weight_hr", "bias_ih", "bias_hh")):
        return None
    if ending == "orig":
        return _masked(path, full, name, arrays)
    spectral = f"{full}_orig" in arrays and f"{full}_g" not in arrays
    return _normed(path, full, name, f"{full}_g", arrays) if ending == "v" and not spectral else None


def _parametrized(path: Path, owner: str, parameter: str, arrays: Mapping[str, Source]) -> _Derived | None:
    """Return the parameter of a module that torch.nn.utils.parametrize keeps in other arrays, where this is the first of them.

    parameter  the parameter's name and that of the array behind it: "weight_hh_l0.original1"
    Raises RefusedError for an unknown parametrization.
    """
    local, _, piece = parameter.partition(".")
    head = f"{owner}.parametrizations.{local}" if owner else f"parametrizations.{local}"
    full = f"{owner}.{local}" if owner else local
    pieces = {name.removeprefix(f"{head}.") for name in arrays if name.startswith(f"{head}.")}
    if piece in ("original0", "original1"):
        return _normed(path, full, f"{head}.original1", f"{head}.original0", arrays) if piece == "original1" else None
    if pieces == {"original", "0._u", "0._v"}:
        return _spectral(path, full, f"{head}.original", (f"{head}.0._u", f"{head}.0._v"), arrays) if piece == "original" else None
    raise RefusedError(
        "a parametrization other than weight_norm and spectral_norm",
        "the canonical form",
        f"{head + '.' + piece!r} is of neither of these two in torch.nn.utils.parametrizations",
        "Call torch.nn.utils.parametrize.remove_parametrizations(module, name) before saving.",
    )


def _masked(path: Path, full: str, name: str, arrays: Mapping[str, Source]) -> _Derived:
    """Return a pruned parameter. Source: torch/nn/utils/prune.py; torch/nn/utils/spectral_norm.py has `_orig`, too."""
    mask, array = arrays.get(f"{full}_mask"), arrays[name]
    if mask is not None and mask.shape == array.shape:
        return _Derived(full, (name, f"{full}_mask"), np.asarray(array) * np.asarray(mask, array.dtype), "pruning mask applied")
    if mask is None and f"{full}_u" in arrays:
        return _spectral(path, full, name, (f"{full}_u", f"{full}_v"), arrays)
    problem = f"{name!r} is pruned, but its mask {full + '_mask'!r} is missing or misshapen"
    return _Derived(full, (name,), UnreadableError(path, problem), "")


def _spectral(path: Path, full: str, name: str, vectors: tuple[str, str], arrays: Mapping[str, Source]) -> _Derived:
    """Return W / (u W v), as a module computes it outside training: u and v are then the file's.

    Sources: torch/nn/utils/spectral_norm.py, `compute_weight`, and torch/nn/utils/parametrizations.py, `_SpectralNorm` (2.13).
    """
    u, v = (np.asarray(arrays[vector], np.float64) if vector in arrays else None for vector in vectors)
    weight = np.asarray(arrays[name], np.float64)
    if u is None or v is None:
        why = RefusedError(
            "spectral norm (torch.nn.utils.spectral_norm)",
            "the canonical form",
            f"{full!r} is kept as {name!r}, but not both vectors of its norm, {vectors[0]!r} and {vectors[1]!r}",
            f"Call torch.nn.utils.remove_spectral_norm({full.rpartition('.')[0] or 'module'}, {full.rpartition('.')[2]!r}) before saving.",
        )
        return _Derived(full, (name,), why, "")
    # The lengths of the vectors show which axis has the outputs (`dim`). A square matrix does not: there the norm on the default axis,
    # which the vectors were found for, is the larger one.
    norms = [u @ matrix @ v for matrix in (weight, weight.T) if weight.ndim == 2 and matrix.shape == u.shape + v.shape]
    norm = norms[0] if norms else 0.0
    if not norm > 0 or norm < max(norms):
        problem = f"{name!r} has shape {weight.shape} and the vectors of its norm {u.shape} and {v.shape}, which give the norms {norms}"
        return _Derived(full, (name,), UnreadableError(path, f"{problem}, expected the first to be the larger one, and over zero"), "")
    return _Derived(full, (name, *vectors), (weight / norm).astype(arrays[name].dtype), "spectral norm applied")


def _normed(path: Path, full: str, direction: str, magnitude: str, arrays: Mapping[str, Source]) -> _Derived:
    try:
        array = _weight_norm(path, full, arrays.get(magnitude), arrays[direction])
    except UnreadableError as why:
        return _Derived(full, (direction,), why, "")
    return _Derived(full, (direction, magnitude), array, "weight norm applied")


def _equal_arrays(array: Array, other: Array) -> bool:
    """Return whether two arrays are the same but for the rounding of one computation."""
    if array.shape != other.shape or array.dtype != other.dtype or not is_float(array):
        return False
    eps = epsilon(array.dtype)
    return bool(np.allclose(array.astype(np.float64), other.astype(np.float64), rtol=8 * eps, atol=0))


def _is_dropped_out(stored: Array, raw: Array) -> bool:
    """Return whether an array is another one times one factor, with some of its numbers set to zero."""
    if stored.shape != raw.shape or stored.dtype != raw.dtype or not is_float(raw):
        return False
    remaining = stored != 0
    numbers, origin = stored[remaining].astype(np.float64), raw[remaining].astype(np.float64)
    if not len(numbers):
        return True
    if not origin.all():
        return False
    factor = numbers[0] / origin[0]
    eps = epsilon(raw.dtype)
    return bool(factor > 1 - 8 * eps and np.allclose(numbers, factor * origin, rtol=8 * eps, atol=0))


def _dropped_out(arrays: Mapping[str, Source], head: str, base: str) -> str:
    """Return the parameter that weight dropout makes from a raw one: in fastai it belongs to the inner module."""
    plain_path, inside = (".".join(filter(None, (head, between, base))) for between in ("", "module"))
    bias = ".".join(filter(None, (head, "module", base.replace("weight_", "bias_"))))
    return inside if inside in arrays or bias in arrays else plain_path


def _weight_norm(path: Path, name: str, magnitude: Source | None, direction: Source) -> Array:
    """Return g * v / |v|, the norm taken over the axes along which there is one magnitude.

    Source: torch/nn/utils/weight_norm.py and parametrizations.py, `dim`: 0 is each row, 1 each column, None all (2.13).
    """
    rows, columns = (*direction.shape, 1, 1)[:2]
    possible = [(rows, 1), (1, columns), ()]
    if magnitude is None or direction.ndim != 2 or magnitude.shape not in possible:
        shape = None if magnitude is None else magnitude.shape
        expected = " or ".join(map(str, possible))
        raise UnreadableError(path, f"{name!r} has weight norm, but its magnitudes have shape {shape}, expected {expected}")
    wide = np.asarray(direction, np.float64)
    axes = tuple(axis for axis in (0, 1) if not magnitude.shape or magnitude.shape[axis] == 1)
    norm = np.sqrt((wide * wide).sum(axis=axes, keepdims=True))
    weight: Array = (wide * (np.asarray(magnitude, np.float64) / norm)).astype(direction.dtype)
    return weight
