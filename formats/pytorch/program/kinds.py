"""Names of operators: aten's recurrent ones, and this room's own for what aten has no operator for."""

from __future__ import annotations

RECURRENT = ("lstm", "gru", "rnn_tanh", "rnn_relu")
CELLS = tuple(f"{name}_cell" for name in RECURRENT)
APART = ("unbind", "unsafe_unbind")
"""Operators that give the steps of a sequence apart."""
CUT = ("split", "unsafe_split")
"""Operators that cut a tensor: by one, into its steps, which keep their axis."""
CHANGED = "changed in place"
LISTED = "a list that a loop fills"
JOINED = "lists behind one another"
UNBOUND = "the steps of a sequence as a list"
FILLED = "a tensor that a loop fills"
LOOP = "loop"
"""A value that a loop hands from step to step: what it begins with, and what a step leaves."""
BRANCH = "if"
"""A value that a condition chooses: the condition, then the values for false and for true."""
LIST = "a list of numbers"
"""A list made of single numbers, as shapes are."""
ITEM = "an item of a list"
"""An item of a list of numbers: the list, and its index."""
STEPS = "the steps of a packed sequence"
LENGTHS = "the lengths of packed sequences"
PACKED = "a packed sequence"
"""A packed sequence's data as (time, batch, values), and back: the data, and the sizes of its batches."""
