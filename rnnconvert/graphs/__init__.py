"""The graphs that files state: operators, the values between them, and what these do to the elements on their way.

A room builds a `Graph` and gives it its framework's `Dialect`; `calls` returns what each recurrent layer of it receives.
"""

from __future__ import annotations

from rnnconvert.graphs.between import calls, origin
from rnnconvert.graphs.graph import UNFOLLOWED, Graph, GraphNode, GraphValue, LayerCall
from rnnconvert.graphs.operators import (
    SAME,
    Applied,
    Casts,
    ChangesError,
    Chooses,
    Computes,
    Dialect,
    Measures,
    Moves,
    Operator,
    UnfitError,
)

__all__ = [
    "SAME",
    "UNFOLLOWED",
    "Applied",
    "Casts",
    "ChangesError",
    "Chooses",
    "Computes",
    "Dialect",
    "Graph",
    "GraphNode",
    "GraphValue",
    "LayerCall",
    "Measures",
    "Moves",
    "Operator",
    "UnfitError",
    "calls",
    "origin",
]
