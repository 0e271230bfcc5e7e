"""The exact rewrites between cells: other weights, the same function. One rewrite a file, each a value.

A rewrite has its mathematics, `applies`, which says whether it keeps the function or why not, and `apply`. The condition
of a rewrite is written nowhere else: `fit_to_layout`, `differences`, the modules and whole models ask the rewrite.
"""

from __future__ import annotations

from typing import Any

from rnnconvert.rewrites.arrays import Change as Change
from rnnconvert.rewrites.arrays import deferred as deferred
from rnnconvert.rewrites.arrays import drop as drop
from rnnconvert.rewrites.arrays import each as each
from rnnconvert.rewrites.arrays import mixed as mixed
from rnnconvert.rewrites.coupled_gate import COUPLED_GATE as COUPLED_GATE
from rnnconvert.rewrites.drop_identity import DROP_IDENTITY as DROP_IDENTITY
from rnnconvert.rewrites.drop_zeros import DROP_ZEROS as DROP_ZEROS
from rnnconvert.rewrites.fold_constants import FOLD_CONSTANTS as FOLD_CONSTANTS
from rnnconvert.rewrites.fold_merge import FOLD_MERGE as FOLD_MERGE
from rnnconvert.rewrites.fold_projection import FOLD_PROJECTION as FOLD_PROJECTION
from rnnconvert.rewrites.join_stack import JOIN_STACK as JOIN_STACK
from rnnconvert.rewrites.join_stack import join_stack as join_stack
from rnnconvert.rewrites.join_with_zeros import JOIN_WITH_ZEROS as JOIN_WITH_ZEROS
from rnnconvert.rewrites.move_reset_gate import MOVE_RESET_GATE as MOVE_RESET_GATE
from rnnconvert.rewrites.rewrite import Obstacle as Obstacle
from rnnconvert.rewrites.rewrite import Rewrite as Rewrite
from rnnconvert.rewrites.rewrite import Step as Step
from rnnconvert.rewrites.rewrite import largest as largest
from rnnconvert.rewrites.scale_hard_sigmoid import SCALE_HARD_SIGMOID as SCALE_HARD_SIGMOID
from rnnconvert.rewrites.split_directions import SPLIT_DIRECTIONS as SPLIT_DIRECTIONS
from rnnconvert.rewrites.split_directions import split_directions as split_directions
from rnnconvert.rewrites.split_stack import SPLIT_STACK as SPLIT_STACK
from rnnconvert.rewrites.split_stack import split_stack as split_stack
from rnnconvert.rewrites.sum_biases import SUM_BIASES as SUM_BIASES
from rnnconvert.rewrites.widen import WIDEN as WIDEN
from rnnconvert.rewrites.write_identity import WRITE_IDENTITY as WRITE_IDENTITY
from rnnconvert.rewrites.zero_biases import ZERO_BIASES as ZERO_BIASES
from rnnconvert.rewrites.zero_biases import zero_state as zero_state

_ALL: tuple[Rewrite[Any, ..., Any], ...] = (
    WIDEN, SUM_BIASES, ZERO_BIASES, FOLD_CONSTANTS, COUPLED_GATE, SCALE_HARD_SIGMOID, DROP_ZEROS, FOLD_PROJECTION, WRITE_IDENTITY,
    DROP_IDENTITY, MOVE_RESET_GATE, JOIN_WITH_ZEROS, FOLD_MERGE, JOIN_STACK, SPLIT_STACK, SPLIT_DIRECTIONS,
)  # fmt: skip
REWRITES: dict[str, Rewrite[Any, ..., Any]] = {rewrite.name: rewrite for rewrite in _ALL}
"""Every rewrite, by its name, in the order of docs/rewrites.md."""
