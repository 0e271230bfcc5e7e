"""Tensors that only move: transposes and new shapes are kept as an order of axes until something reads the numbers.

So a transpose there and back is nothing, and what an operator asks for (time first, a direction's axis) leaves no line behind.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rnnconvert.graphs.sizes import Dim, Dims, divided, product


@dataclass(frozen=True, eq=False)
class Atom:
    """A part of an axis, that moves as a whole."""

    dim: Dim


Group = tuple[Atom, ...]


@dataclass(frozen=True, eq=False)
class MovedAxes:
    """The axes of a tensor by the axes of the one that it is moved from.

    base    the axes of that one, the atoms of each; none for an axis of length 1
    groups  the axes, likewise
    """

    base: tuple[Group, ...]
    groups: tuple[Group, ...]

    @property
    def dims(self) -> Dims:
        """The lengths of the axes."""
        return tuple(product(atom.dim for atom in group) for group in self.groups)

    @property
    def atoms(self) -> Group:
        """All parts in their order."""
        return tuple(atom for group in self.groups for atom in group)

    def transposed(self, order: Sequence[int]) -> MovedAxes:
        """Return the axes in another order."""
        return MovedAxes(self.base, tuple(self.groups[axis] for axis in order))

    def squeezed(self, axes: Sequence[int]) -> MovedAxes:
        """Return the axes without some of length 1."""
        return MovedAxes(self.base, tuple(group for axis, group in enumerate(self.groups) if axis not in axes))

    def unsqueezed(self, axes: Sequence[int]) -> MovedAxes:
        """Return the axes with new ones of length 1, at these places among them all."""
        groups = list(self.groups)
        for axis in sorted(axes):
            groups.insert(axis, ())
        return MovedAxes(self.base, tuple(groups))

    def reshaped(self, dims: Dims) -> MovedAxes | None:
        """Return the axes of another shape; None where they are not parts or products of these."""
        left, base, groups = list(self.atoms), list(self.base), []
        for dim in dims:
            group: list[Atom] = []
            length: Dim = 1
            while length != dim:
                if not left:
                    return None
                atom = left.pop(0)
                rest = divided(dim, length)
                if rest is None:
                    return None
                if divided(rest, atom.dim) is None:  # only a part of it is wanted
                    behind = divided(atom.dim, rest)
                    if behind is None or behind == 1:
                        return None
                    first, second = Atom(rest), Atom(behind)
                    base = [tuple(new for old in axis for new in ((first, second) if old is atom else (old,))) for axis in base]
                    left.insert(0, second)
                    atom = first
                group.append(atom)
                length = length * atom.dim
            groups.append(tuple(group))
        return None if left else MovedAxes(tuple(base), tuple(groups))


def unmoved(dims: Dims) -> MovedAxes:
    """Return the axes of a tensor that nothing moved yet."""
    base = tuple(() if dim == 1 else (Atom(dim),) for dim in dims)
    return MovedAxes(base, base)
