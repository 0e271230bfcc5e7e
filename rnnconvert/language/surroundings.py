"""The language of layers without recurrence: what surrounds the recurrent core of a model, as data.

A layer has a kind, and a kind has parts with canonical axes. A framework stores each part under its own name, with the axes in its own
order; both are written in words, outermost first:

    out in              a matrix with a row for each output
    *space in out       as many axes of space as the array has, then two more
    (channel copy) 1 *space    two axes that share one, and an axis of length 1
    *1 channel          any number of axes of length 1 before the last
    -*space             axes of space that run the other way
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from rnnconvert.core.arrays import Array

Shape = tuple[int, ...]

KINDS: dict[str, dict[str, str]] = {
    "dense": {"weight": "out in", "bias": "out"},
    "embedding": {"weight": "token out"},
    "conv": {"weight": "out in *space", "bias": "out"},
    "conv_transpose": {"weight": "in out *space", "bias": "out"},
    "conv_lstm": {"weight": "out in *space", "recurrent": "out hidden *space", "bias": "out"},
    "batch_norm": {"scale": "channel", "shift": "channel", "mean": "channel", "variance": "channel"},
    "layer_norm": {"scale": "*shape", "shift": "*shape"},
    "rms_norm": {"scale": "*shape"},
    "group_norm": {"scale": "channel", "shift": "channel"},
    "instance_norm": {"scale": "channel", "shift": "channel", "mean": "channel", "variance": "channel"},
    "prelu": {"slope": "channel"},
}
"""The kinds of layer, and the canonical axes of their parts. The first part that a layer has shows its sizes.

What comes out of the convolutions of a conv_lstm are its gates i f c o, one after the other.
"""
_NEEDED = {"batch_norm": ("mean",), "conv_lstm": ("weight", "recurrent")}
"""The parts without which arrays are not of a kind; of any other kind it is the first."""


@dataclass(frozen=True)
class SurroundingTensor:
    """One array of a layer.

    name  the framework's name for it
    part  which part of the kind it is
    axes  its axes as stored, if they differ from the canonical ones
    as_   its canonical axes in the same words, if they differ from the kind's
    """

    name: str
    part: str
    axes: str = ""
    as_: str = ""


@dataclass(frozen=True)
class Surrounding:
    """A layer without recurrence as one framework stores it.

    framework  its name, as a format has it
    kind       one of KINDS
    classes    the framework's classes that are stored so, separated by spaces
    tensors    its arrays; those after the first may be missing
    facts      what is set beside the weights: our word, and the framework's attribute; "1 - momentum" for its complement
    source     where this can be read: file and class
    defaults   what such a setting is where neither file nor caller says it, if a wrong guess would change the outputs
    path       where its arrays are below the layer, where one class of the framework is two layers
    """

    framework: str
    kind: str
    classes: str
    tensors: tuple[SurroundingTensor, ...]
    source: str
    facts: Mapping[str, str] = field(default_factory=dict)
    path: str = ""
    defaults: Mapping[str, object] = field(default_factory=dict)

    def axes(self, tensor: SurroundingTensor) -> tuple[str, str]:
        """Return how a tensor lies in the framework, and canonically."""
        canonical = tensor.as_ or KINDS[self.kind][tensor.part]
        return tensor.axes or canonical, canonical

    def fits(self, shapes: Mapping[str, Shape], stated: bool = False) -> bool:
        """Return whether arrays of these names and shapes may be this layer's: all of them, and its first.

        stated  whether a class says that they are this layer, of which a norm's scale may then be missing
        """
        by_name = {tensor.name: tensor for tensor in self.tensors}
        needed = {name for name in self._needed if not stated or by_name[name].part != "scale"}
        if not shapes or not needed <= set(shapes) <= set(by_name):
            return False
        try:
            parts = {by_name[name].part: self.shape(by_name[name], shape) for name, shape in shapes.items()}
        except ValueError:
            return False
        return _agree(self.kind, parts)

    @property
    def _needed(self) -> tuple[str, ...]:
        parts = {tensor.part: tensor.name for tensor in self.tensors}
        return tuple(parts[part] for part in _NEEDED.get(self.kind, (self.tensors[0].part,)))

    def shape(self, tensor: SurroundingTensor, shape: Shape) -> Shape:
        """Return the canonical shape of an array of this shape. Raises ValueError if the axes do not fit."""
        stored, canonical = self.axes(tensor)
        sizes, _ = _sizes(stored, shape)
        return tuple(math.prod(sizes[word] for word in group) for group in _expand(canonical, sizes))

    def canonical(self, tensor: SurroundingTensor, array: Array) -> Array:
        """Return the array with its axes in the canonical order. Raises ValueError if they do not fit."""
        stored, canonical = self.axes(tensor)
        sizes, flipped = _sizes(stored, array.shape)
        order = [word for word in sizes if word[0] != "1"]
        plain = array[flipped].reshape([sizes[word] for word in order])
        groups = _expand(canonical, sizes)
        wanted = [word for group in groups for word in group]
        turned = plain.transpose([order.index(word) for word in wanted])
        return turned.reshape([math.prod(sizes[word] for word in group) for group in groups])

    def stored(self, tensor: SurroundingTensor, array: Array, shape: Shape) -> Array:
        """Return a canonical array as the framework stores it in an array of this shape.

        Raises ValueError if the sizes are others.
        """
        stored, canonical = self.axes(tensor)
        sizes, flipped = _sizes(stored, shape)
        groups = _expand(canonical, sizes)
        expected = tuple(math.prod(sizes[word] for word in group) for group in groups)
        if array.shape != expected:
            raise ValueError(f"shape {array.shape}, expected {expected}")
        wanted = [word for group in groups for word in group]
        order = [word for word in sizes if word[0] != "1"]
        turned = array.reshape([sizes[word] for word in wanted]).transpose([wanted.index(word) for word in order])
        return turned.reshape(shape)[flipped]


def _agree(kind: str, shapes: Mapping[str, Shape]) -> bool:
    """Return whether the parts of one layer have the sizes that the others imply."""
    sizes: dict[str, object] = {}
    for part, shape in shapes.items():
        for word, size in _named_sizes(KINDS[kind][part], shape):
            if sizes.setdefault(word, size) != size and not _grouped(kind, word):
                return False
    return True


def _grouped(kind: str, word: str) -> bool:
    """Return whether a size may differ between parts: of a transposed convolution in groups, the weight has one group's."""
    return kind == "conv_transpose" and word == "out"


def _named_sizes(axes: str, shape: Shape) -> list[tuple[str, object]]:
    words = axes.split()
    star = next((index for index, word in enumerate(words) if word.startswith("*")), None)
    if star is None:
        return list(zip(words, shape, strict=True))
    after = len(words) - star - 1
    middle = shape[star : len(shape) - after]
    return [
        *zip(words[:star], shape, strict=False),
        (words[star], middle),
        *zip(words[star + 1 :], shape[len(shape) - after :], strict=True),
    ]


def _sizes(axes: str, shape: Shape) -> tuple[dict[str, int], tuple[slice, ...]]:
    """Return the size of every word of an array's axes, in order, and the index that undoes reversed axes."""
    words = axes.split()
    star = next((index for index, word in enumerate(words) if "*" in word), None)
    extra = len(shape) - (len(words) - (star is not None))
    least = 0 if star is None or words[star] == "*1" else 1
    if extra < least or (star is None and extra):
        raise ValueError(f"shape {shape} does not fit the axes '{axes}'")
    if star is not None:
        word = words[star].replace("*", "")
        words[star : star + 1] = [f"{word}{number}" for number in range(extra)]
    sizes: dict[str, int] = {}
    for number, (word, size) in enumerate(zip(words, shape, strict=True)):
        if word.lstrip("-")[0] == "1" and size != 1:
            raise ValueError(f"shape {shape} does not fit the axes '{axes}': the length of axis {number} is not 1")
        # Axes of length 1 have no name of their own: the number keeps them apart.
        sizes[f"1 {number}" if word[0] == "1" else word.lstrip("-")] = size
    return sizes, tuple(slice(None, None, -1 if word[0] == "-" else None) for word in words)


def _expand(axes: str, sizes: Mapping[str, int]) -> list[list[str]]:
    """Return the words of each canonical axis, with the axes of space counted as they are in `sizes`."""
    groups: list[list[str]] = []
    inside = False
    for token in axes.replace("(", " ( ").replace(")", " ) ").split():
        if token == "(":
            groups.append([])
            inside = True
        elif token == ")":
            inside = False
        elif token == "1":
            groups.append([])
        elif token.startswith("*"):
            groups += [[word] for word in sizes if word[: len(token) - 1] == token[1:] and word[len(token) - 1 :].isdigit()]
        elif inside:
            groups[-1].append(token)
        else:
            groups.append([token])
    return groups


def readings(layouts: Sequence[Surrounding], shapes: Mapping[str, Shape], stated: bool = False) -> list[Surrounding]:
    """Return the layers that arrays of these names and shapes may be.

    stated  whether a class says that they are such a layer: see Surrounding.fits
    """
    return [layout for layout in layouts if layout.fits(shapes, stated)]


def equal(first: Array, other: Array) -> bool:
    """Return whether two arrays hold the same numbers, NaN being one."""
    return first.shape == other.shape and bool(np.array_equal(first, other, equal_nan=first.dtype.kind not in "iub"))
