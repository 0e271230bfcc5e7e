"""The result of fusing: the layers fused, and why others were not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rnnconvert.core.claims import proved as claimed


@dataclass(frozen=True)
class FusedLayer:
    """A layer that is one node now.

    name    what it was called: the node, or the first product of its steps
    was     the operators that it was made of
    cell    what it is, in words
    error   how far the new node is from the old operators on random inputs
    """

    name: str
    was: str
    cell: str
    error: float


@dataclass(frozen=True)
class Fused:
    """The report of `fuse`.

    source   the model that was read
    target   the model that was written, or would be
    layers   the layers that are one node now
    left     operations that look like a layer and stay unchanged, with the reason
    nodes    how many nodes the model had, and has
    error    how far the whole model's outputs are from what they were; None if nothing was replaced
    """

    source: str
    target: str
    layers: tuple[FusedLayer, ...]
    left: tuple[tuple[str, str], ...]
    nodes: tuple[int, int]
    error: float | None

    def as_dict(self) -> dict[str, Any]:
        """Return everything as JSON takes it."""
        left = [{"name": name, "reason": reason} for name, reason in self.left]
        layers = [vars(layer) for layer in self.layers]
        return {**vars(self), "layers": layers, "left": left, "nodes": list(self.nodes)}

    def lines(self) -> list[str]:
        """Return the report, line by line."""
        lines = [f"  {layer.name}: {layer.was} -> {layer.cell}; {claimed([layer.error])}" for layer in self.layers]
        lines += [f"  {name}: left unchanged: {reason}" for name, reason in self.left]
        lines.append(f"nodes: {self.nodes[0]} -> {self.nodes[1]}")
        if self.error is not None:
            lines.append(claimed([self.error], "the whole model gives what it gave", "in onnxruntime"))
        return lines

    def __str__(self) -> str:
        return "\n".join(self.lines())
