"""Names for the arrays of a sample: a layer's input, outputs and states, in the words of the frameworks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from rnnconvert.core.errors import UsageError

NAMES: Mapping[str, tuple[str, ...]] = {
    "x": ("input", "inputs", "input_batch", "in"),
    "y": ("output", "outputs", "output_batch", "out", "whole_sequence_output"),
    "h_0": ("h0", "hidden", "hx", "initial_h", "initial_hidden", "initial_state"),
    "c_0": ("c0", "cell", "cx", "initial_c", "initial_cell"),
    "h_n": ("hn", "y_h", "state_h", "final_hidden"),
    "c_n": ("cn", "y_c", "state_c", "final_cell"),
    "lengths": ("sequence_lens", "sequence_length", "sequence_lengths", "seq_lens", "seq_lengths"),
}
"""Our words, which are ONNX's and PyTorch's, and other names for the same."""

_OURS = {other: ours for ours, others in NAMES.items() for other in (ours, *others)}

Value = TypeVar("Value")


def meaning(name: str) -> str:
    """Return our name for an array that a framework calls so, "" for a name that nothing has; case does not count."""
    return _OURS.get(name.lower(), "")


def canonical(sample: Mapping[str, Value], what: str = "the sample") -> dict[str, Value]:
    """Return arrays by our names for them; case does not count.

    what  whose arrays these are, in words

    Raises UsageError for a name that nothing has, and for two of one meaning.
    """
    result: dict[str, Value] = {}
    called: dict[str, str] = {}
    for name, value in sample.items():
        ours = meaning(name)
        if not ours:
            raise UsageError(
                f"{what} has an array {name!r}, which is not a known name of an input, output or state. Name them "
                f"{', '.join(NAMES)}, or as your framework does"
            )
        if ours in result:
            raise UsageError(f"{what} has both {called[ours]!r} and {name!r}, which mean the same. Leave one out")
        result[ours], called[ours] = value, name
    return result
