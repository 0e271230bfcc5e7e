"""Load foreign weights into an existing model: everything that belongs together, or nothing.

report = load_into(torch_module, "model.h5")
"""

from __future__ import annotations

import bisect
import itertools
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rnnconvert.containers.files import counting, only_replace
from rnnconvert.containers.reading import reading, resumed
from rnnconvert.core.arguments import checked, passes_on, split_keywords
from rnnconvert.core.arrays import Array, byte_bounds, nbytes
from rnnconvert.core.errors import UsageError
from rnnconvert.core.remedies import Command, Flag
from rnnconvert.files.checkpoint import Checkpoint
from rnnconvert.files.load import load
from rnnconvert.models.flattening import Flatten
from rnnconvert.models.mapping import mapped
from rnnconvert.models.model import Model
from rnnconvert.models.prepare import CallerChoices, prepare
from rnnconvert.models.proposal import Proposal, propose
from rnnconvert.models.readers import fillable, filled_reader_of, model_of
from rnnconvert.models.report import Transplant
from rnnconvert.models.verified import kept_if_equal
from rnnconvert.running.inputs import read_inputs

PathLike = str | os.PathLike[str]
Watch = Callable[..., None]
"""Called with what is being done; where it is counted, with what is done and all there is."""

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from rnnconvert.files.option_types import SourceOptions

    class _FillOptions(SourceOptions, total=False):
        strict: bool
        accept: Iterable[str]
        flatten: Flatten
        trust_order: bool
        dry_run: bool


@passes_on(load, options=True)
def load_into(
    target: Any,
    source: Any,
    mapping: PathLike | Mapping[str, str] | None = None,
    *,
    strict: bool = True,
    accept: Iterable[str] = (),
    flatten: Flatten = None,
    trust_order: bool = False,
    dry_run: bool = False,
    **options: Unpack[SourceOptions],
) -> Transplant:
    """Fill a live model with the weights of a file or of another live model, and say what was done.

    target         a torch.nn.Module, a Keras model, an onnx.ModelProto, a tree of JAX arrays
    source         a path, a Checkpoint, or such an object
    mapping        a mapping file (`rnnconvert map` proposes one), or {target layer: source layer}
    strict         whether every weight of both models must have its place
    accept         differences that you take over: names of options that differ, such as "batch_first"; "all" where the code
                   around the target's weights is known to compute what the source does, as that of `scaffold` is
    flatten        of a side that does not show how it flattens, {"target": "channels_first"}, {"source": "channels_last"} or
                   both; "none" where nothing is flattened, "same" where both flatten alike
    trust_order    pair layers that fit one another in several ways in the order in which they stand
    dry_run        find out what would be done, and change nothing
    source_format, settings, options   how to read the source, as `load` takes them

    The target's element types, devices and tied weights stay unchanged, and on any error so do its numbers.

    Raises TransplantError with everything that does not fit, UsageError for a call that cannot be carried out, and what `load` raises.

        >>> import onnx, rnnconvert as rc
        >>> model = onnx.load("examples/exported.onnx")
        >>> rc.load_into(model, "examples/exported.onnx")
        <Transplant of examples/exported.onnx into ONNX model 'tf2onnx': 4 layers filled>
    """
    with resumed(source.sources) if isinstance(source, Checkpoint) else reading():
        giving = model_of(source, **options)
        taking = model_of(target)
        if taking.fill is None:
            raise UsageError(f"{taking.title} is not a live model. To fill a file, use rnnconvert.transplant_file")
        wishes = CallerChoices(mapping, strict, tuple(accept), flatten, trust_order)
        report, arrays = prepare(taking, giving, wishes)
        filled = target if dry_run else taking.fill(_apart(arrays, taking))
    return replace(report, model=filled, is_new=filled is not target, giver=source)


def _apart(new: Mapping[str, Array], target: Model) -> dict[str, Array]:
    """Return arrays that do not change while a target is filled: those in its own memory are copied."""
    bounds = [byte_bounds(array) for array in target.arrays.values() if isinstance(array, np.ndarray) and array.size]
    bounds.sort()
    starts = [start for start, _ in bounds]
    ends = list(itertools.accumulate((end for _, end in bounds), max))

    def inside(array: Array) -> bool:
        low, high = byte_bounds(array)
        before = bisect.bisect_left(starts, high)  # those that begin before it ends
        return before > 0 and ends[before - 1] > low

    return {name: array.copy() if array.size and inside(array) else array for name, array in new.items()}


@passes_on(load_into, options=True)
def transplant_file(
    source: PathLike,
    into: PathLike,
    output: PathLike,
    mapping: PathLike | Mapping[str, str] | None = None,
    *,
    force: bool = False,
    target_format: str | None = None,
    watch: Watch = lambda phase, done=0, total=0: None,
    inputs: PathLike | None = None,
    **options: Unpack[_FillOptions],
) -> Transplant:
    """Write a file like `into`, with the weights of `source` in it; the options are as for `load_into`.

    inputs  a .npy or .npz file of inputs: both whole models are run on them, and the file is kept only if they agree

    watch  called with what is being done, and while writing with the bytes done and all bytes

    Raises what `load_into` raises; on any error every existing file is left unchanged.

        >>> import rnnconvert as rc
        >>> transplant = rc.transplant_file("examples/encoder.keras", "examples/encoder.keras", "filled.keras", dry_run=True)
        >>> [layer.target for layer in transplant.filled]
        ['encoder', 'summary', 'scores']
    """
    filling, reading_options = split_keywords(options, CallerChoices)
    dry_run = bool(reading_options.pop("dry_run", False))
    only_replace(Path(output), force or dry_run)
    if dry_run and inputs is not None:
        raise UsageError(f"{Flag('dry-run')} writes nothing that could be verified. Choose either {Flag('dry-run')} or {Flag('verify')}")
    watch(f"reading {source}")
    giving = model_of(source, **reading_options)
    watch(f"reading {into}")
    checkpoint = load(into, target_format)
    reader = filled_reader_of(checkpoint.format)
    if reader is None:
        raise UsageError(
            f"{into} is a {checkpoint.format} file, and a transplant into one is not written. It fills files of "
            f"{', '.join(sorted(fillable()))}. A new {checkpoint.format} file of the recurrent layers alone: "
            f"{Command('convert', source, 'NEW', to=checkpoint.format)}"
        )
    taking = reader.of_checkpoint(checkpoint)
    wishes = CallerChoices(mapping, **{**filling, "accept": tuple(filling.get("accept", ()))})
    watch("pairing layers and computing their weights")
    report, arrays = prepare(taking, giving, wishes)
    total = sum(nbytes(array) for array in taking.arrays.values())
    phase = f"writing {output}"
    watch(phase)
    report = replace(report, model=None if dry_run else str(output), giver=source)
    if inputs is not None:
        samples = dict(read_inputs(inputs))
        notes, proof = kept_if_equal(
            Path(output),
            force,
            lambda path: reader.write(path, checkpoint, arrays),
            lambda path: replace(report, model=str(path)).verify(samples),
        )
        return replace(report, notes=(*report.notes, *notes), proof=proof)
    with counting(lambda done: watch(phase, min(done, total), total)):
        notes = [] if dry_run else reader.write(Path(output), checkpoint, arrays)
    return replace(report, notes=(*report.notes, *notes))


def propose_mapping(target: Any, source: Any, **options: Any) -> str:
    """Return the text of a mapping file for two models; the options are as for `proposal`.

    >>> import rnnconvert as rc
    >>> text = rc.propose_mapping("examples/encoder.keras", "examples/encoder.keras")
    >>> text.splitlines()[4:6]
    ['layers:', '  encoder: encoder  # recurrent: the only recurrent layer of these sizes on both sides']
    """
    return str(proposal(target, source, **options))


@checked
@passes_on(load, options=True)
def proposal(
    target: Any,
    source: Any,
    *,
    mapping: PathLike | Mapping[str, str] | None = None,
    target_format: str | None = None,
    **options: Unpack[SourceOptions],
) -> Proposal:
    """Return a mapping for two models, files or live ones: with evidence, and what is ambiguous to choose from.

    mapping  what a person has decided already, as `load_into` takes it; the same models give the same text

    Raises UsageError for a mapping that names a missing layer.
    """
    giving = model_of(source, **options)
    taking = model_of(target, target_format)
    return propose(taking, giving, mapped(mapping))
