"""The differences between two files, and their causes: `rnnconvert diff` and `diagnose`, and their functions in Python."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict, overload

from rnnconvert.comparison.other_layers import NOT_LOOKED_AT, OtherLayers, compare_others
from rnnconvert.core.arguments import passes_on, split_keywords
from rnnconvert.core.errors import UsageError
from rnnconvert.diagnosis.files import compare_files, diagnose_files
from rnnconvert.diagnosis.findings import Comparison, Findings
from rnnconvert.diagnosis.models import diagnose_models
from rnnconvert.diagnosis.one_file import SampleFindings, diagnose_sample
from rnnconvert.files.checkpoint import Checkpoint
from rnnconvert.files.in_memory import Source
from rnnconvert.files.load import load, load_pair
from rnnconvert.judging.cases import Draw

if TYPE_CHECKING:
    from typing_extensions import Unpack


@dataclass(frozen=True)
class _Files:
    """How two files are read, and which of their layers are compared."""

    layers: Sequence[str] | str = ()
    pairs: Sequence[str] | str = ()
    format_a: str | None = None
    format_b: str | None = None
    settings: Sequence[str] = ()
    settings_a: Sequence[str] = ()
    settings_b: Sequence[str] = ()


class _OfOne(TypedDict, total=False):
    layers: Sequence[str] | str
    format_a: str | None
    settings: Sequence[str]
    settings_a: Sequence[str]


class _OfFiles(_OfOne, total=False):
    pairs: Sequence[str] | str
    format_b: str | None
    settings_b: Sequence[str]


class _OfBoth(_OfFiles, total=False):
    cases: Sequence[str]
    seed: int
    batch: int
    time: int
    lengths: Sequence[int] | None


@passes_on(_Files)
def diff(a: Source | Checkpoint, b: Source | Checkpoint, **choices: Unpack[_OfFiles]) -> Comparison:
    """Compare the weights and the cells of two files, in any formats, without running anything.

    a, b                sources, as `load` takes them, or checkpoints that were read
    layers              only these layers of A
    pairs               "A=B", a layer of A and one of B; "A=B1+B2" if B has it in pieces
    format_a, format_b  read the file as this format, instead of asking it
    settings            answers to what both files leave open, "KEY=VALUE" or "LAYER:KEY=VALUE"; settings_a, settings_b for one of them

    Raises the errors of `load`, and UsageError if the pairs of layers are not certain.

        >>> import rnnconvert as rc
        >>> rc.diff("examples/encoder.keras", "examples/encoder.keras")
        <Comparison: every weight of examples/encoder.keras and examples/encoder.keras is equal>
    """
    files = _Files(**choices)
    first, other = _both(a, b, files)
    compared = tuple(compare_files(first, other, _names(files.layers), _names(files.pairs)))
    return Comparison(first, other, compared, _others(first, other, files.layers))


@overload
def diagnose(
    a: Source | Checkpoint, *, io: Mapping[str, Any] | str | os.PathLike[str], seconds: float = 20.0, **choices: Unpack[_OfOne]
) -> SampleFindings: ...


@overload
def diagnose(a: Source | Checkpoint, b: Source | Checkpoint, **choices: Unpack[_OfBoth]) -> Findings: ...


@passes_on(_Files, Draw)
def diagnose(
    a: Source | Checkpoint,
    b: Source | Checkpoint | None = None,
    *,
    io: Mapping[str, Any] | str | os.PathLike[str] | None = None,
    seconds: float = 20.0,
    **choices: Unpack[_OfBoth],
) -> Findings | SampleFindings:
    """Find out why B does not compute the same as A.

    Their recurrent layers run in the reference, without a framework. If these agree and both files hold models that run here, the
    models run whole, too: a fault around the layers that explains all of a difference is named.

    With io= in place of B: whether A, or a layer of it, computes a recorded sample, and if not, under which convention it does.

    cases, seed, batch, time, lengths  the inputs, as a rnnconvert.Plan has them
    io       a sample as `identify` takes it: an .npz, or a dictionary with `input` and what is known of `output`, `h0`, `c0`,
             `h_n`, `c_n` and `lengths`
    seconds  how long the search for the sample's convention may take for each layer

    The other arguments are those of `diff`. Raises what it raises, RefusedError for a cell that the reference cannot compute,
    and UsageError for a sample that no layer can have given.

        >>> import rnnconvert as rc
        >>> findings = rc.diagnose("examples/unknown/misread.safetensors", io="examples/unknown/sample.npz")
        >>> findings.layers[0].sentences[:2]
        ('the file does not compute the sample', 'it does if gates i and f are swapped')
    """
    if (b is None) == (io is None):
        raise UsageError("diagnose takes two files, or one and a sample as io=. Give one of the two")
    drawn, rest = split_keywords(choices, Draw)
    draw, files = Draw(**drawn), _Files(**rest)
    if b is None:
        assert io is not None
        if files.pairs or files.format_b is not None or files.settings_b or draw != Draw():
            raise UsageError(
                f"{', '.join(choices.keys() - _OfOne.__annotations__)} is about a second file, and a sample takes its place. Leave it out"
            )
        return diagnose_sample(a, io, _names(files.layers), files.format_a, (*files.settings, *files.settings_a), seconds)
    first, other = _both(a, b, files)
    diagnosed = diagnose_files(first, other, _names(files.layers), _names(files.pairs), draw)
    # Where layers differ, that is the cause; of layers that were chosen, nothing is said of the models.
    layers_agree = not files.layers and not files.pairs and all(layer.equal for layer in diagnosed)
    others = _others(first, other, files.layers)
    return Findings(first, other, tuple(diagnosed), others, diagnose_models(first, other) if layers_agree else None)


class _Side(NamedTuple):
    """One of two files, and how it is read.

    name      "a" or "b", the end of the arguments about it
    settings  its own, in addition to the settings of both
    """

    name: str
    source: Source | Checkpoint
    format: str | None
    settings: Sequence[str]

    def read(self, settings: Sequence[str]) -> Checkpoint:
        if not isinstance(self.source, Checkpoint):
            return load(self.source, self.format, (*settings, *self.settings))
        if self.format is not None or self.settings:
            raise UsageError(
                f"format_{self.name} and settings_{self.name} decide how a file is read, but {self.name} is read already. Give them to load"
            )
        return self.source


def _both(source_a: Source | Checkpoint, source_b: Source | Checkpoint, files: _Files) -> tuple[Checkpoint, Checkpoint]:
    a, b = _Side("a", source_a, files.format_a, files.settings_a), _Side("b", source_b, files.format_b, files.settings_b)
    settings = files.settings
    if not isinstance(a.source, Checkpoint) and not isinstance(b.source, Checkpoint):
        return load_pair((a.source, b.source), (a.format, b.format), settings, (a.settings, b.settings))
    if isinstance(a.source, Checkpoint) and isinstance(b.source, Checkpoint) and settings:
        raise UsageError("settings decide how a file is read, but both are read already. Give them to load")
    return a.read(settings), b.read(settings)


def _others(a: Checkpoint, b: Checkpoint, layers: Sequence[str] | str) -> OtherLayers:
    """Compare what is not recurrent, unless the user chose layers."""
    return NOT_LOOKED_AT if layers else compare_others(a, b)


def _names(names: Sequence[str] | str) -> Sequence[str]:
    return [names] if isinstance(names, str) else names
