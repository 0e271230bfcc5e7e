"""Name unknown weights: `rnnconvert identify`, and its function in Python."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from rnnconvert.containers import archives, npy
from rnnconvert.containers.addresses import local
from rnnconvert.core import reference
from rnnconvert.core.arguments import checked
from rnnconvert.core.arrays import Array, is_float
from rnnconvert.core.cells import GATES
from rnnconvert.core.errors import UnreadableError, UsageError
from rnnconvert.core.printable import finite
from rnnconvert.core.remedies import Command, Flag
from rnnconvert.core.weights import Recurrent
from rnnconvert.files.load import load
from rnnconvert.files.opened import Opened
from rnnconvert.identification import naming, sample, statistics
from rnnconvert.identification.deadline import NEVER, Deadline
from rnnconvert.identification.reading import LayerReading, blocks_of
from rnnconvert.identification.search import TIERS, Search, SearchResult
from rnnconvert.identification.statistics import Candidate
from rnnconvert.identification.structures import SearchRound
from rnnconvert.language import registry

Verdict = Literal["identified", "ambiguous", "near", "unknown", "candidates"]

_MOST_SHOWN = 8


@dataclass(frozen=True, eq=False)
class Function:
    """The function that arrays compute in one reading, or in several that compute the same for every input.

    names    the known layouts that keep these numbers at these places; none for a layout that is new
    layout   a layout file that describes it, for --layout; "" if an array is several gates at once or the input is read unweighted, which
             no layout file describes
    stacks   the layer in canonical form, in each reading of the arrays that computes the same for every input
    binding  the arrays that it is made of
    gates    the order of the gates in the arrays
    axes     the axes of the sample's input
    error    how far off the outputs are, in parts of the largest; 0 where rounding explains all of it
    """

    names: tuple[str, ...]
    layout: str
    stacks: tuple[Recurrent, ...]
    binding: tuple[str, ...]
    gates: str
    axes: str
    error: float = 0.0

    @property
    def stack(self) -> Recurrent:
        """The layer in canonical form, as `rc.pack` and `rc.to_torch` take it."""
        return self.stacks[0]

    @property
    def others(self) -> int:
        """How many other readings compute the same."""
        return len(self.stacks) - 1

    def lines(self) -> Iterator[str]:
        """Yield the description, line by line."""
        yield self.stack.describe()
        names = ", ".join(self.names[:_MOST_SHOWN]) + (", ..." if len(self.names) > _MOST_SHOWN else "")
        yield f"layout: {names or 'none that is known'}; gates {self.gates}"
        if self.axes:
            yield f"the sample's input is ({self.axes})"
        if self.others:
            yield (
                f"{self.others} more way{'s' if self.others > 1 else ''} to read the arrays compute{'' if self.others > 1 else 's'} "
                "the same for every input"
            )

    def as_dict(self) -> dict[str, Any]:
        """Return all of it as JSON can hold it."""
        return {
            "layouts": list(self.names),
            "layout_file": self.layout,
            "layer": self.stack.describe(),
            "arrays": list(self.binding),
            "gates": self.gates,
            "sample_axes": self.axes,
            "other_readings": self.others,
            "error": self.error,
        }


@dataclass(frozen=True, eq=False)
class Identification:
    """The result of identifying arrays of unknown origin.

    source      where they come from
    verdict     "identified": one function gives the outputs; "ambiguous": several do; "near": none does to the last bits, but
                one comes near; "unknown": no searched one does; "candidates": there was no sample, so nothing is decided
    functions   the functions that give the outputs; if none does, the ones that come near
    candidates  without a sample, the readings that names, shapes and numbers suggest, the most likely first
    questions   the information that would decide what is left open
    searched    what was tried, in words, and `tried`, how many readings; `complete` unless time ran out
    """

    source: str
    verdict: Verdict
    functions: tuple[Function, ...] = ()
    candidates: tuple[Candidate, ...] = ()
    questions: tuple[str, ...] = ()
    searched: tuple[str, ...] = ()
    tried: int = 0
    complete: bool = True

    def _ambiguity(self) -> str:
        """Say why the sample leaves open which function it is of."""
        if len(self.functions) > 1:
            return f"{len(self.functions)} functions give these outputs, and the sample does not tell them apart"
        if self.complete:
            return "one function was found that gives these outputs, but the sample does not show all of it"
        return "one function was found that gives these outputs, but the time ran out before others were tried"

    def lines(self) -> Iterator[str]:
        """Yield the text line by line."""
        conclusion = {
            "identified": "one function gives these outputs, to rounding",
            "ambiguous": self._ambiguity(),
            "near": "no function gives these outputs to rounding; nearest",
            "unknown": "no function that was searched gives these outputs",
            "candidates": "without a sample of input and output nothing is decided"
            + ("; by names, shapes and numbers it may be" if self.candidates else ", and no known layout has these shapes"),
        }[self.verdict]
        yield f"{self.source}: {conclusion}"
        for number, function in enumerate(self.functions[:_MOST_SHOWN]):
            mark = f"{number + 1}. " if len(self.functions) > 1 else ""
            for at, line in enumerate(function.lines()):
                yield f"  {mark if not at else ' ' * len(mark)}{line}"
            if self.verdict == "near":
                yield f"    off by {function.error:.2g} of the largest output, more than rounding explains"
        if len(self.functions) > _MOST_SHOWN:
            yield f"  and {len(self.functions) - _MOST_SHOWN} more ({Flag('json')} lists all)"
        first = self.candidates[:_MOST_SHOWN]
        common = set.intersection(*(set(candidate.evidence) for candidate in first)) if len(first) > 1 else set()
        for number, candidate in enumerate(first):
            names = ", ".join(candidate.names[:4]) + (f" and {len(candidate.names) - 4} more" if len(candidate.names) > 4 else "")
            yield f"  {number + 1}. {names}: {candidate.sizes} (score {candidate.score:g})"
            yield from (f"     for it: {text}" for text in candidate.evidence if text not in common)
            yield from (f"     against it: {text}" for text in candidate.against)
        yield from (f"  for each of these: {text}" for text in sorted(common))
        if len(self.candidates) > _MOST_SHOWN:
            yield f"  and {len(self.candidates) - _MOST_SHOWN} more ({Flag('json')} lists all)"
        if self.verdict != "candidates":
            more = "" if self.complete else f"; the time ran out before all of it was tried ({Flag('seconds')} gives more)"
            yield f"  searched: {'; '.join(self.searched)} ({self.tried:,} readings){more}"
        yield from (f"  to decide: {question}" for question in self.questions)

    def as_dict(self) -> dict[str, Any]:
        """Return all of it as JSON can hold it."""
        document = {
            "source": self.source,
            "verdict": self.verdict,
            "functions": [function.as_dict() for function in self.functions],
            "candidates": [
                {
                    "layouts": list(candidate.names),
                    "sizes": candidate.sizes,
                    "score": candidate.score,
                    "evidence": list(candidate.evidence),
                    "against": list(candidate.against),
                }
                for candidate in self.candidates
            ],
            "questions": list(self.questions),
            "searched": list(self.searched),
            "tried": self.tried,
            "complete": self.complete,
        }
        return {key: finite(value) for key, value in document.items()}

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def __repr__(self) -> str:
        return f"<Identification of {self.source}: {self.verdict}>"


_RAW_ENDINGS = (".bin", ".raw", ".dat", ".f32")
_LARGEST = 1e4
"""A bound that no weight of a trained layer comes near."""


@checked
def identify(
    arrays: Any,
    inputs: Any = None,
    outputs: Any = None,
    *,
    io: Mapping[str, Any] | str | os.PathLike[str] | None = None,
    seconds: float = 60.0,
    sizes: Mapping[str, int | bool | str] | None = None,
) -> Identification:
    """Find out what arrays of unknown origin are: from what they gave for an input, or from names, shapes and numbers alone.

    arrays   a file, arrays by name, or one flat array; a .bin, .raw, .dat or .f32 of bare float32 or float64 numbers, too
    inputs   an input, (time, batch, in), (batch, time, in) or (time, in); outputs what the layer gave for it, at every step
             or at the last
    io       a sample as `--io` takes it: an .npz, or a dictionary with `x` and what is known of `y`, `h_0`, `c_0`, `h_n`, `c_n`
             and `lengths`, or the frameworks' own words for these (input, output, hidden, initial_h ...); in place of inputs and outputs
    seconds  how long the search may take
    sizes    what is known of the layer without a sample: input_size, hidden_size, num_layers, bidirectional

    Raises UnreadableError for a file that holds no arrays, UsageError for a sample whose shapes do not fit together.

        >>> import rnnconvert as rc
        >>> identification = rc.identify("examples/unknown/weights.npz", io="examples/unknown/sample.npz")
        >>> identification
        <Identification of examples/unknown/weights.npz: identified>
        >>> identification.functions[0].gates
        'i f g o'
    """
    if (inputs is None) != (outputs is None) or (io is not None and inputs is not None):
        raise UsageError("identify takes inputs and outputs together, or a sample as io=. Give one of the two")
    source, usable = _arrays(arrays)
    if inputs is None and io is None:
        listed = tuple(statistics.candidates(usable, statistics.stated(sizes or {})))
        return Identification(source, "candidates", candidates=listed, questions=tuple(_asked(listed)))
    if sizes:
        raise UsageError("a sample shows the sizes. Leave them out, or leave the sample out")
    if isinstance(io, str | os.PathLike):
        samples = sample.read(local(io))
    else:
        samples = sample.samples({"x": inputs, "y": outputs} if io is None else io)
    return identified(source, Search(usable, samples, seconds))


def _arrays(arrays: Any) -> tuple[str, dict[str, Array]]:
    """Return where arrays come from, and the floating-point arrays among them, by name."""
    if isinstance(arrays, str | os.PathLike):
        path = local(arrays)
        return str(path), _usable(read_arrays(path)[0])
    if isinstance(arrays, Mapping):
        return "arrays", _usable({str(name): np.asarray(array) for name, array in arrays.items()})
    return "an array", _usable({"array": np.asarray(arrays)})


def read_arrays(path: Path) -> tuple[Mapping[str, Any], bool]:
    """Return the arrays of a file by name, and whether it is one of bare numbers. Raises UnreadableError for a file without arrays."""
    try:
        return _stored(path), False
    except UnreadableError:  # bare numbers may begin as a file of some kind does
        numbers = _raw_numbers(path)
        if numbers is None:
            raise
        return {"weights": numbers}, True


def _stored(path: Path) -> Mapping[str, Any]:
    file = Opened(path)
    if "npy" in file.kinds:
        return npy.read_row(path).arrays
    if file.archive:
        return file.cached(archives.reader(path, file.head)).arrays
    checkpoint = load(path)
    if not any(map(is_float, checkpoint.arrays.values())):
        raise UnreadableError(
            path,
            f"it is a file of {registry.title(checkpoint.format)}, whose layers are known",
            f"See them with {Command('inspect', path)}; arrays of unknown origin have names, or are an .npy.",
        )
    return checkpoint.arrays


def _raw_numbers(path: Path) -> Array | None:
    """Return the numbers of a file without a format, as numpy's tofile and C's fwrite leave them; None for any other.

    They are float32 or float64, little-endian. Half of the words of float64, and any bytes of another origin, are float32 of all sizes, and
    some of those are not finite or beyond all weights.
    """
    if path.suffix.lower() not in _RAW_ENDINGS or not path.is_file() or not path.stat().st_size:
        return None
    for dtype in ("<f4", "<f8"):
        if path.stat().st_size % np.dtype(dtype).itemsize == 0:
            numbers = np.memmap(path, dtype, "r")
            if np.isfinite(numbers).all() and np.abs(numbers).max() < _LARGEST:
                return numbers
    return None


def _usable(arrays: Mapping[str, Any]) -> dict[str, Array]:
    usable = {name: np.asarray(array) for name, array in arrays.items()}
    usable = {name: array for name, array in usable.items() if is_float(array) and array.size and array.ndim}
    if not usable:
        raise UsageError("there is no array of floating-point numbers to identify. Integers are read once they are converted")
    return usable


def identified(source: str, search: Search, tiers: Sequence[SearchRound] = TIERS) -> Identification:
    """Run a search through some tiers, and return what it found."""
    findings = search.run(tiers)
    samples = search.samples
    groups = _groups(findings.readings, search)
    near = not groups
    if near and findings.near:
        best = min(error for error, _ in findings.near)
        groups = _groups([reading for error, reading in sorted(findings.near, key=lambda entry: entry[0]) if error <= 2 * best], search)
        errors = {id(reading): error for error, reading in findings.near}
    functions = tuple(
        _function(group, search, errors[id(group[0])] if near else 0.0)
        for number, group in enumerate(groups)
        if not number or search.time_left()
    )
    verdict: Verdict = "unknown"
    unseen = search.unseen(groups[0][0]) if len(groups) == 1 and not near else []
    if functions:
        sure = len(functions) == 1 and not unseen and findings.complete
        if near:
            verdict = "near"
        elif sure:
            verdict = "identified"
        else:
            verdict = "ambiguous"
    return Identification(
        source,
        verdict,
        functions,
        (),
        tuple(_left_open(verdict, samples, findings, unseen)),
        tuple(findings.searched),
        findings.tried,
        findings.complete,
    )


def _groups(readings: Sequence[LayerReading], search: Search) -> list[list[LayerReading]]:
    """Return readings that compute the same for every input together; in each group those first that use most arrays.

    Those for whose comparison no time is left belong to no group.
    """
    if len(readings) == 1:
        return [[*readings]]
    groups: list[tuple[_Behaviour, list[LayerReading]]] = []
    with search.ending():
        for reading in readings:
            behaviour = _Behaviour.of(reading.stack(blocks_of(reading.structure, search.arrays)), search.end)
            group = next((members for other, members in groups if behaviour.equals(other)), None)
            if group is None:
                groups.append((behaviour, [reading]))
            else:
                group.append(reading)
    if readings and not groups:
        return [[readings[0]]]
    return [sorted(members, key=lambda reading: -len(reading.structure.binding)) for _, members in groups]


class _Behaviour(NamedTuple):
    """The outputs of a stack for random inputs, from zero states and from random ones."""

    structure: tuple[object, ...]
    outputs: tuple[Array, ...]

    @classmethod
    def of(cls, stack: Recurrent, deadline: Deadline = NEVER) -> _Behaviour:
        """Run a stack; stacks of one structure get the same inputs. Raises OutOfTimeError at the step before which the deadline passes."""
        random = np.random.default_rng(0)
        x = random.normal(size=(5, 3, stack.input_size))
        widths = tuple((d.output_size, d.hidden_size) for *_, d in stack.directions())
        h = tuple(random.normal(size=(3, out)) for out, _ in widths)
        c = tuple(random.normal(size=(3, hidden)) for _, hidden in widths)
        outputs: list[Array] = []
        for states in ((None, None), (h, c if stack.cell.kind == "lstm" else None)):
            with np.errstate(all="ignore"):
                result = reference.Reference(stack, before=deadline.check).run(x, *states)
            outputs += result.y, *result.hidden, *result.cell
        return cls((stack.cell.kind, stack.input_size, stack.num_layers, stack.num_directions, widths), tuple(outputs))

    def equals(self, other: _Behaviour) -> bool:
        """Return whether two stacks gave the same but for rounding."""
        return self.structure == other.structure and all(
            a.shape == b.shape and np.allclose(a, b, rtol=1e-9, atol=1e-9 * float(np.abs(a).max(initial=1e-30)))
            for a, b in zip(self.outputs, other.outputs, strict=True)
        )


def same(first: Recurrent, other: Recurrent) -> bool:
    """Return whether two stacks compute the same for every input, as far as random inputs and states show."""
    return _Behaviour.of(first).equals(_Behaviour.of(other))


def _function(group: Sequence[LayerReading], search: Search, error: float) -> Function:
    named = {id(reading): naming.names(reading) for reading in group[:_MOST_SHOWN]}
    first = max(group[:_MOST_SHOWN], key=lambda reading: (len(reading.structure.binding), len(named[id(reading)])))
    names = tuple(dict.fromkeys(name for reading in (first, *group[:_MOST_SHOWN]) for name in named[id(reading)]))
    stacks = (reading.stack(blocks_of(reading.structure, search.stored)) for reading in (first, *(o for o in group if o is not first)))
    gates = naming.described(first)[0].gates
    axes = {reading.axes for reading in group}
    order = first.axes if len(axes) == 1 and len(search.samples) > 1 else ""
    return Function(
        names,
        naming.layout_file(first, search.stored),
        tuple(stacks),
        tuple(dict.fromkeys(first.structure.binding.values())),
        gates,
        order,
        error,
    )


def _left_open(verdict: Verdict, samples: Sequence[sample.Sample], findings: SearchResult, unseen: Sequence[str]) -> Iterator[str]:
    """Yield the information that would decide between functions, or find one."""
    first = samples[0]
    if unseen:
        yield f"a sample that shows {', '.join(unseen)}: this one gives the same outputs whatever these are"
    if verdict == "ambiguous" and not findings.complete:
        yield f"more time: {Flag('seconds')}"
    if verdict == "ambiguous" and (unseen or findings.complete):
        if len(first.x) < 3:
            yield "outputs of three steps or more: the first step from a zero state does not show the recurrent matrices"
        if first.zero_state:
            yield "a sample that starts at states that are not zero (h_0, c_0)"
        yield "inputs that are random and large enough to reach every part of the functions"
    elif verdict == "near":
        yield "the outputs in the element type of the program, neither rounded to decimals nor computed in a shorter type"
    elif verdict == "unknown":
        yield "the output of the recurrent layer itself, before any dense layer, and the input as that layer receives it"
        if not findings.complete:
            yield f"more time: {Flag('seconds')}"
        yield "fewer arrays: only those of the layer"


def _asked(candidates: Sequence[Candidate]) -> Iterator[str]:
    """Yield the information that would decide between candidates."""
    yield f"one input and what the layer gave for it: {Flag('io', 'sample.npz')} with the arrays x and y"
    kinds = {name.partition(".")[2] for layout_name in candidates for name in layout_name.names}
    if any("gru" in kind for kind in kinds):
        yield "of a GRU: whether its reset gate stands before or after the recurrent product"
    if len(candidates) > 1:
        yield (
            "which program wrote the file, or how it orders the gates "
            + "("
            + "; ".join(f"{kind} {' '.join(gates)}" for kind, gates in GATES.items() if len(gates) > 1)
            + " in some order)"
        )
