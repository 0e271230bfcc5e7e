"""The result of one comparison with the truth."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from rnnconvert.core.arrays import Array
from rnnconvert.core.reference import Outputs
from rnnconvert.core.verdict import Verdict


@dataclass(frozen=True)
class Worst:
    """Where the error is largest in units of what is allowed: the index along each axis, the numbers found and expected."""

    index: tuple[int, ...]
    axes: tuple[str, ...]
    found: float
    expected: float


@dataclass(frozen=True)
class Steps:
    """At each time step the largest error, what is allowed, and the floor."""

    error: tuple[float, ...]
    allowed: tuple[float, ...]
    floor: tuple[float, ...]


@dataclass(frozen=True)
class OutputComparison:
    """One output of one case compared with the truth.

    error, relative, ulps  the largest absolute error, error in parts of the expected value, and in units in the last
                           place of it: the tolerances that would have passed
    ratio                  the largest error in units of the allowance: it passes up to 1
    allowed                the allowance at that place
    floor                  the largest floor
    mismatched             how many of the elements are off by more than allowed
    gates                  for gradients of weights, the largest error of each gate
    telling                whether passing proves anything: it does not if zeros in place of the values would pass, or if no value is finite
    open_shares            at each index of the last axis the share of elements that passing does not prove; () if that is not asked for
    rounded                whether weights of one model are rounded: passing then shows less than equality
    """

    case: str
    output: str
    passed: bool
    error: float
    relative: float
    ulps: float
    allowed: float
    ratio: float
    floor: float
    worst: Worst
    mismatched: int
    elements: int
    steps: Steps | None = None
    gates: Mapping[str, float] | None = None
    message: str = ""
    telling: bool = True
    rounded: bool = False
    open_shares: tuple[float, ...] = ()

    @property
    def error_at_worst(self) -> float:
        """The error where it is largest in units of what is allowed: the one to read beside `allowed`."""
        error = abs(self.worst.found - self.worst.expected)
        return self.error if np.isnan(error) else error

    @property
    def swamped(self) -> bool:
        """Whether it neither passes nor shows a difference: the rounding error is as large as the values, and not bounded by a sample."""
        return not self.passed and not self.telling and bool(np.isfinite(self.worst.expected))

    def __str__(self) -> str:
        says = "" if self.telling else " (proves nothing: the rounding error is as large as the values)"
        word: str = Verdict.of(equal=self.passed or self.swamped, compared=not self.swamped).word
        word = "as near as its rounded weights explain" if self.rounded and self.passed else word
        return f"{self.output}: {word}, off by {self.error_at_worst:.3g}, allowed {self.allowed:.3g}{says}"


def parts(outputs: Outputs, lengths: Array | None) -> Iterator[tuple[str, Array, Array | None, tuple[str, ...]]]:
    """Yield every output by name, its numbers, which of them count (None for all), and its axes.

    Steps past a sequence's length are an output of their own: frameworks differ on them and agree on the others.
    """
    axes = ("time", "batch", "unit")
    if lengths is None:
        yield "y", outputs.y, None, axes
    else:
        live = np.broadcast_to((np.arange(len(outputs.y))[:, None] < lengths)[:, :, None], outputs.y.shape)
        yield "y", outputs.y, live, axes
        if not live.all():
            yield "y, padded steps", outputs.y, ~live, axes
    for name, states in (("h_n", outputs.hidden), ("c_n", outputs.cell)):
        for number, state in enumerate(states):
            yield f"{name}[{number}]", state, None, ("batch", "unit")


def joined(name: str, comparisons: Sequence[OutputComparison], axis: str) -> OutputComparison:
    """Return several arrays of one output, such as the states of all layers, as one comparison.

    axis  what numbers them
    """
    number = max(range(len(comparisons)), key=lambda index: comparisons[index].ratio)
    worst = comparisons[number]
    gates: dict[str, float] = {}
    for comparison in comparisons:
        for gate, error in (comparison.gates or {}).items():
            gates[gate] = max(gates.get(gate, 0.0), error)
    combined = replace(
        worst,
        output=name,
        passed=all(each.passed for each in comparisons),
        error=max(each.error for each in comparisons),
        relative=max(each.relative for each in comparisons),
        ulps=max(each.ulps for each in comparisons),
        floor=max(each.floor for each in comparisons),
        worst=replace(worst.worst, index=(number, *worst.worst.index), axes=(axis, *worst.worst.axes)),
        mismatched=sum(each.mismatched for each in comparisons),
        elements=sum(each.elements for each in comparisons),
        gates=gates or None,
        telling=all(each.telling for each in comparisons),
    )
    return combined if combined.passed else explained(combined)


def unlike(case: str, output: str, shape: tuple[int, ...], expected: tuple[int, ...]) -> OutputComparison:
    """Return the comparison for an output whose shape differs from the truth's: as wrong as can be."""
    nowhere, far = Worst((), (), float("nan"), float("nan")), float("inf")
    elements = int(np.prod(expected))
    message = f"{output} ({case}) has the shape {shape}, expected {expected}"
    return OutputComparison(case, output, False, far, far, far, 0.0, far, 0.0, nowhere, elements, elements, message=message)


def explained(failed: OutputComparison) -> OutputComparison:
    """Return the comparison with a message in the words that PyTorch's users know from torch.testing.assert_close."""
    share = 100 * failed.mismatched / max(1, failed.elements)
    where = ", ".join(f"{axis} {at}" for axis, at in zip(failed.worst.axes, failed.worst.index, strict=False))
    index = tuple(failed.worst.index)
    return replace(
        failed,
        message=f"{failed.output} ({failed.case}) is not close!\n\n"
        f"Mismatched elements: {failed.mismatched} / {failed.elements} ({share:.1f}%)\n"
        f"Greatest absolute difference: {failed.error:.9g} (up to {failed.allowed:.9g} allowed)\n"
        f"Greatest relative difference: {failed.relative:.9g}\n"
        f"Greatest difference in units in the last place: {failed.ulps:.6g}\n"
        f"Worst at index {index}" + (f" ({where})" if where else "") + f": found {failed.worst.found:.9g}, "
        f"expected {failed.worst.expected:.9g}",
    )
