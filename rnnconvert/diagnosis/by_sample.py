"""A file's layer beside a recorded sample: whether it computes that, and if not, which convention makes it do so.

The search of `identify` finds the layer whose outputs the sample has; comparing its arrays with the file's names the difference.
What that search does not span (parts dropped, arrays exchanged, a run that is wrong) is planted in the file's layer and run.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from rnnconvert.core.arrays import Array, is_float
from rnnconvert.core.errors import RnnConvertError, UsageError
from rnnconvert.core.reference import Outputs
from rnnconvert.core.remedies import Flag
from rnnconvert.core.weights import Recurrent, gates_of
from rnnconvert.diagnosis import by_arrays, search
from rnnconvert.diagnosis.by_arrays import ArrayExplanation
from rnnconvert.diagnosis.comparing import Way
from rnnconvert.diagnosis.faults import ARRAYS, FAULTS, of_stack
from rnnconvert.diagnosis.model_faults import EXCHANGED
from rnnconvert.files.catalogue import OPTIONS
from rnnconvert.files.checkpoint import Checkpoint
from rnnconvert.identification.identify import Function, Identification, identified, same
from rnnconvert.identification.reading import off, pairs, ratio, solve, unseen
from rnnconvert.identification.sample import Sample
from rnnconvert.identification.search import TIERS, Search
from rnnconvert.judging.case_kinds import Case
from rnnconvert.judging.measure import Measure, settled
from rnnconvert.language import layout_file, registry

Verdict = Literal["equal", "explained", "ambiguous", "unknown", "other layer", "other sizes", "not searched"]

Read = Callable[[Sequence[str], "str | None"], tuple[Checkpoint, Sequence[str]]]
"""Reads the file again, with more settings or as another format; gives the options that its reader asks for, too."""

_NOT = "the file does not compute the sample"
_SEVERAL = "this sample does not distinguish these:"
_NAMED = 24
"""How many readings of the same function are compared with the file's arrays."""
_FIRST = 4
"""After how many tiers of the search wrong conventions are planted: the others take longer."""
_CONCLUSIVE = ("identified", "ambiguous")
_NEAR = 2e-3
"""How far off, in parts of the largest output, a layer is that nearly gives the sample."""


@dataclass(frozen=True, eq=False)
class SampleEvidence:
    """The evidence of a sample about one layer of a file.

    name       the layer's name
    stack      the layer as the file is read
    verdict    "equal": it computes the sample; "explained": it does with another convention; "ambiguous": with several, which
               this sample does not distinguish; "unknown": with none that was searched; "other layer": another layer of the
               file computes the sample; "other sizes": the sample cannot be of this layer; "not searched": the whole model explains it
    sentences  for people
    fault      the convention, as `diagnose` of two files names it; "" without one, or while it is uncertain
    fix        the options that read the file right, as the command line writes them, tried; "" if none are known
    layout     the layout file that `fix` needs; "" if it needs none
    """

    name: str
    stack: Recurrent
    verdict: Verdict
    sentences: tuple[str, ...]
    fault: str = ""
    fix: str = ""
    layout: str = ""


def layers_beside(
    checkpoint: Checkpoint, samples: Sequence[Sample], read: Read | None, seconds: float, explained: Callable[[], bool] = lambda: False
) -> list[SampleEvidence]:
    """Judge each layer of a file by a sample of what one of them gave.

    read       reads the file again, where there is a file
    seconds    how long the search may take for each layer
    explained  whether the whole model explains the sample, asked before a search
    """
    fitting = {name: _fitting(stack, samples) for name, stack in checkpoint.layers.items()}
    works = {name: _SampledLayer(checkpoint, name, stack, samples, seconds) for name, stack in checkpoint.layers.items() if fitting[name]}
    right = {name: sampled for name, work in works.items() if (sampled := work.right()) is not None}
    searched = bool(works) and not right and not explained()
    result = []
    for name, stack in checkpoint.layers.items():
        if name not in works:
            result.append(SampleEvidence(name, stack, "other sizes", (f"the sample is of other sizes: this is {stack.describe()}",)))
        elif name in right:
            result.append(right[name])
        elif right:
            result.append(SampleEvidence(name, stack, "other layer", ("another layer of the file computes the sample",)))
        elif not searched:
            result.append(SampleEvidence(name, stack, "not searched", ("not searched: the whole model explains the sample",)))
        else:
            result.append(works[name].wrong(read))
    return result


def _fitting(stack: Recurrent, samples: Sequence[Sample]) -> list[Sample]:
    """Return the samples that a layer of these sizes may have given."""
    matching = []
    for sample in samples:
        if sample.x.shape[-1] != stack.input_size:
            continue
        try:
            compared_pairs = pairs(sample, solve(stack, sample), stack.layers[-1].merge)
        except (ValueError, IndexError, KeyError):  # states of other sizes
            continue
        if compared_pairs is not None:
            matching.append(sample)
    return matching


class _SampledLayer:
    """One layer, and the samples that it may have given."""

    def __init__(self, checkpoint: Checkpoint, name: str, stack: Recurrent, samples: Sequence[Sample], seconds: float) -> None:
        self._checkpoint, self._name, self._file = checkpoint, name, stack
        self._stack = settled(stack)
        self._samples = _fitting(self._stack, samples)
        self._search = Search(arrays_of(checkpoint, self._stack), self._samples, seconds)
        self._dtype = self._search.dtype

    def right(self) -> SampleEvidence | None:
        """Return that the layer computes the sample, or would if its axes were exchanged; None if neither."""
        merge = self._stack.layers[-1].merge
        matching = [sample for sample in self._samples if ratio(self._stack, sample, merge, self._dtype) <= 1]
        if not matching:
            return None
        stated = self._checkpoint.batch_first.get(self._name)
        if stated is not None and all(sample.axes.startswith("batch" if not stated else "time, batch") for sample in matching):
            there, here = ("time", "(batch, time, features)") if stated else ("batch", "(time, batch, features)")
            sentence = f"it does if the first axis of x is {there}: the file takes {here}"
            remedy = f"to mend it, {EXCHANGED.remedy}"
            return SampleEvidence(self._name, self._file, "explained", (_NOT, sentence, remedy), EXCHANGED.name)
        axes = {sample.axes for sample in matching}
        sentences = ["the file computes the sample" + (f", with x as ({axes.pop()})" if stated is None and len(axes) == 1 else "")]
        hidden = unseen(self._stack, matching[0], self._dtype)
        if hidden:
            sentences.append(f"this sample shows nothing of: {', '.join(hidden)}")
        return SampleEvidence(self._name, self._file, "equal", tuple(sentences))

    def wrong(self, read: Read | None) -> SampleEvidence:
        """Return why the layer does not compute the sample."""
        identification = identified("", self._search, TIERS[:_FIRST])
        if identification.verdict in _CONCLUSIVE:
            return self._read_otherwise(identification, read)
        planted = self._planted()
        if planted:
            return self._of_planted(planted, read)
        identification = identified("", self._search, TIERS[_FIRST:])
        if identification.verdict in _CONCLUSIVE:
            return self._read_otherwise(identification, read)
        error = min(off(pairs(sample, solve(self._stack, sample), self._stack.layers[-1].merge)) for sample in self._samples)
        sentences = [
            "neither another reading of the arrays nor a known wrong convention gives the sample",
            f"searched: {'; '.join(identification.searched)}"
            + ("" if identification.complete else f"; the time ran out ({Flag('seconds')} gives more)"),
        ]
        if error <= _NEAR:
            sentences.insert(0, f"the file nearly computes the sample, off by {error:.2g} of the largest output: it may be rounded")
        sentences += [f"to decide: {question}" for question in identification.questions]
        return SampleEvidence(self._name, self._file, "unknown", tuple(sentences))

    def _read_otherwise(self, identification: Identification, read: Read | None) -> SampleEvidence:
        """Return the finding for other readings of the arrays that compute the sample, in the words of wrong conventions."""
        named = [(candidate, self._explained(candidate)) for candidate in identification.functions]
        causes = [f"it does if {_cause(function, why)}" for function, why in named]
        if identification.verdict == "ambiguous":
            sentences = [_NOT, *(causes if len(causes) == 1 else [_SEVERAL, *causes])]
            sentences += [f"to decide: {question}" for question in identification.questions]
            return SampleEvidence(self._name, self._file, "ambiguous", tuple(sentences))
        ((function, why),) = named
        fault = " and ".join(each.name for each in why.faults) if why is not None and why.complete else ""
        fix, layout = self._fix(function.stack, read, function)
        return SampleEvidence(self._name, self._file, "explained", (_NOT, *causes, *_in_words(fix)), fault, fix, layout)

    def _explained(self, function: Function) -> ArrayExplanation | None:
        """Return the conventions that turn the file's arrays into a function's, in the reading that needs fewest."""
        explanations = [by_arrays.explained_in_any_form(self._stack, settled(stack)) for stack in function.stacks[:_NAMED]]
        complete = [explanation for explanation in explanations if explanation is not None and explanation.complete]
        return min(
            complete,
            key=lambda explanation: len(explanation.faults),
            default=next((explanation for explanation in explanations if explanation is not None), None),
        )

    def _planted(self) -> list[Way]:
        """Return the wrong conventions that give the sample, planted in the layer."""
        for sample in self._samples:
            case = Case("sample", "the sample", sample.x, sample.h0, sample.c0, sample.lengths)
            if sample.y is not None:
                answers = [(case, Outputs(sample.y, sample.hn or (), sample.cn or ()))]
                measures = Measure.of_all(self._stack, [case], self._dtype)
                if not measures[0].explains(answers[0][1]):
                    with np.errstate(all="ignore"):
                        ways = [explanation.faults for explanation in search.FaultSearch(self._stack, measures, answers).explained()]
                    if ways:
                        return ways
                continue
            ways = []
            for fault in [*FAULTS.values(), *ARRAYS.values(), *of_stack(self._stack)]:
                changed = fault.change(self._stack) if fault.change is not None else None
                if changed is not None and ratio(changed, sample, changed.layers[-1].merge, self._dtype) <= 1:
                    ways.append((fault,))
            if ways:
                return ways
        return []

    def _of_planted(self, ways: Sequence[Way], read: Read | None) -> SampleEvidence:
        causes = [" and ".join(fault.sentence for fault in way) for way in ways]
        stacks = [self._with(way) for way in ways]
        single = len(ways) == 1 or all(a is not None and b is not None and same(a, b) for a, b in itertools.pairwise(stacks))
        sentences = [
            _NOT,
            *([_SEVERAL] if not single else []),
            *(f"it does if {cause}" for cause in (causes if not single else causes[:1])),
        ]
        if not single:
            return SampleEvidence(self._name, self._file, "ambiguous", tuple(sentences))
        if stacks[0] is None:
            sentences.append("the weights are right: the run that gave the sample was another one")
        fix, layout = ("", "") if stacks[0] is None else self._fix(stacks[0], read)
        fault = " and ".join(fault.name for fault in ways[0])
        return SampleEvidence(self._name, self._file, "explained", (*sentences, *_in_words(fix)), fault, fix, layout)

    def _with(self, way: Way) -> Recurrent | None:
        """Return the layer with these faults; None if one is of the run."""
        stack: Recurrent | None = self._stack
        for fault in way:
            stack = fault.change(stack) if fault.change is not None and stack is not None else None
        return stack

    # What reads the file right: tried, never guessed.

    def _fix(self, wanted: Recurrent, read: Read | None, function: Function | None = None) -> tuple[str, str]:
        """Return the words of the command line with which the file is read as a layer that computes the same, and the
        layout file that they need.
        """
        if read is None:
            return "", ""
        checkpoint = self._checkpoint
        _, asked = read((), checkpoint.format)
        prefix = f"{self._name}:" if len(checkpoint.layers) > 1 else ""
        for chosen in settings_of(asked, wanted):
            for end in ("", "!"):
                settings = [f"{prefix}{key}={value}{end}" for key, value in chosen]
                if self._reads(read, settings, checkpoint.format, wanted):
                    return " ".join(str(Flag("set", entry)) for entry in settings), ""
        if function is None:
            return "", ""
        for name in dict.fromkeys(name.partition(".")[0] for name in function.names):
            if name != checkpoint.format and self._reads(read, (), name, wanted):
                return str(Flag("from", name)), ""
        if function.layout and len(checkpoint.layers) == 1:
            settings = ["go_backwards=true"] if "go_backwards" in function.layout else []
            parsed = layout_file.parsed(function.layout, Path("found.toml"))
            with contextlib.suppress(UsageError), registry.added_for_now(parsed):
                if self._reads(read, settings, "found", wanted):
                    words = [Flag("layout", "found.toml"), *(Flag("set", entry) for entry in settings), Flag("from", "found")]
                    return " ".join(map(str, words)), function.layout
        return "", ""

    def _reads(self, read: Read, settings: Sequence[str], source_format: str | None, wanted: Recurrent) -> bool:
        """Return whether the file, read in this way, has this layer."""
        try:
            layers: Mapping[str, Recurrent] = read(settings, source_format)[0].layers
            layer = layers.get(self._name) or (next(iter(layers.values())) if len(layers) == 1 else None)
            return layer is not None and same(layer, wanted)
        except (RnnConvertError, ValueError):
            return False


def _in_words(fix: str) -> Iterator[str]:
    if fix:
        yield f"read it with {fix}"


def _cause(function: Function, why: ArrayExplanation | None) -> str:
    """Return the completion of "the file computes the sample if"."""
    if why is not None and why.complete:
        return " and ".join(fault.sentence for fault in why.faults)
    lines = list(function.lines())
    return "it is read as " + "; ".join(lines[:2])


# The statements of a file's layer, as settings of a conversion.


def settings_of(asked: Sequence[str], wanted: Recurrent) -> Iterator[tuple[tuple[str, str], ...]]:
    """Yield settings under which a reader that asks for these options may give the layer that is wanted: keys and values."""
    cell = wanted.cell
    derived = {
        "forget_bias": f"{cell.constants.get('f', 0.0):g}",
        "activation": str(cell.activation),
        "recurrent_activation": str(cell.gate_activation),
        "output_activation": str(cell.output_activation),
        "go_backwards": str(wanted.first.reverse).lower(),
        "merge_mode": wanted.layers[-1].merge,
    }
    for key in asked:
        if key in derived:
            yield ((key, derived[key]),)
        elif key not in ("clip", "unaccounted", "dtype"):
            yield from (((key, value),) for value in OPTIONS[key].choices)
    if cell.kind != "rnn" and "recurrent_activation" in asked:
        named = ("recurrent_activation", cell.gate_activation.name)
        yield (named,)
        # Functions of one name in several eras: another option decides.
        for key in asked:
            if key == cell.gate_activation.name:
                yield from ((named, (key, value)) for value in OPTIONS[key].choices)


def arrays_of(checkpoint: Checkpoint, stack: Recurrent) -> dict[str, Array]:
    """Return a layer's arrays as the file has them; where they are not to be told apart, a matrix and a bias for each part."""
    sources = [np.asarray(source) for *_, d in stack.directions() for source in d.arrays.values()]
    arrays = {name: np.asarray(array) for name, array in checkpoint.arrays.items() if name not in checkpoint.tensors}
    arrays = {name: array for name, array in arrays.items() if is_float(array) and array.size and array.ndim}
    if len(checkpoint.layers) > 1:
        arrays = {name: array for name, array in arrays.items() if any(np.may_share_memory(array, source) for source in sources)}
    if arrays and sum(array.size for array in arrays.values()) >= sum(source.size for source in sources):
        return arrays
    joined = {}
    for index, number, d in stack.directions():
        for part in dict.fromkeys(part for part, _ in d.arrays):
            blocks = [
                np.asarray(d.arrays[part, gate])
                for gate in gates_of(d.cell.kind, part)
                if (part, gate) in d.arrays and not (gate and gate == d.cell.coupled)
            ]
            joined[f"{part} {index} {number}"] = np.concatenate(blocks)
    return joined
