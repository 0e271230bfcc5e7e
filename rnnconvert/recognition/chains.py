"""Chains of products with one recurrent matrix."""

from __future__ import annotations

from collections.abc import Sequence

from rnnconvert.core.limits import CHAINS
from rnnconvert.graphs.program.products import product_of
from rnnconvert.recognition.uses import UsedGraph


def repeats(graph: UsedGraph) -> bool:
    """Return whether products with one matrix depend on one another, as the products of written-out steps do."""
    return any(len(chain) > 2 for chain in chains_of(graph))


def chains_of(graph: UsedGraph) -> list[list[int]]:
    """Return the products with one stored matrix that depend on one another, the longest chains first."""
    groups: dict[object, list[int]] = {}
    for index, node in enumerate(graph.nodes):
        product = product_of(graph.scope, node)
        if product is not None:
            matrix = product.matrix
            key = (matrix.__array_interface__["data"][0], matrix.shape, matrix.strides)
            groups.setdefault(key, []).append(index)
    chains = [chain for group in groups.values() for chain in _chained(graph, group)]
    return sorted(chains, key=len, reverse=True)


def _chained(graph: UsedGraph, group: Sequence[int]) -> list[list[int]]:
    """Return a group as chains in which each product depends on the one before; a product alone is one if its group is."""
    if len(group) == 1:
        return [list(group)]
    chains: list[list[int]] = []
    behind: dict[str, dict[int, int]] = {}  # how far along each chain a value is
    members = set(group)
    for index in range(group[0], group[-1] + 1):
        node = graph.nodes[index]
        reached: dict[int, int] = {}
        for name in node.inputs:
            for chain, place in behind.get(name, {}).items():
                reached[chain] = max(place, reached.get(chain, 0))
        if len(reached) > CHAINS:
            return []
        if index in members:
            (chain, place), *others = list(reached.items()) or [(-1, 0)]
            if others or (chain >= 0 and place != len(chains[chain])):
                return []
            if chain < 0:
                chain = len(chains)
                chains.append([])
            chains[chain].append(index)
            reached = {chain: len(chains[chain])}
        if reached:
            for name in node.outputs:
                behind[name] = reached
    return [chain for chain in chains if len(chain) > 1]
