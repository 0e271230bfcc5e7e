"""Weights that PyTorch computes from other parameters: weight norm, masks of pruning, weight dropout."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import ml_dtypes
import numpy as np

from rnnconvert.core.arrays import Array, is_float
from rnnconvert.core.errors import RefusedError, UnreadableError

if TYPE_CHECKING:
    pass


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


def computed(path: Path, arrays: Mapping[str, Array]) -> tuple[dict[str, Array], list[str], dict[str, str]]:
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
            numbers = made[name].array
            assert isinstance(numbers, np.ndarray)  # every problem was raised above, or its array replaced
            plain[made[name].full] = numbers
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
                "a parametrization other than weight_norm",
                "the canonical form",
                f"{name!r} is not part of torch.nn.utils.parametrizations.weight_norm",
                "Call torch.nn.utils.parametrize.remove_parametrizations(module, name) before saving.",
            )
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
            "spectral norm (torch.nn.utils.spectral_norm)",
            "the canonical form",
            f"{full!r} is kept as {name!r} and the vectors of its norm, {full + '_u'!r}"
            + (f" and {full + '_v'!r}" if f"{full}_v" in arrays else ""),
            f"Call torch.nn.utils.remove_spectral_norm({module or 'module'}, {local!r}) before saving.",
        )
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
        raise UnreadableError(path, f"{name!r} has weight norm, but its magnitudes have shape {found}, expected {(len(direction), 1)}")
    wide = direction.astype(np.float64)
    norm = np.sqrt((wide * wide).sum(axis=1, keepdims=True))
    weight: Array = (wide * (magnitude.astype(np.float64) / norm)).astype(direction.dtype)
    return weight
