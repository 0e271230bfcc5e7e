"""From file to file: read, bring into the target's form, write once.

checkpoint = load("model.h5")
save(checkpoint, "model.onnx")
convert_file("model.h5", None, SaveTarget("model.safetensors"), Options())
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from rnnconvert.containers.reading import resumed
from rnnconvert.core.arguments import passes_on, split_keywords
from rnnconvert.core.arrays import FLOATS
from rnnconvert.core.errors import MissingPackageError, RefusedError, RnnConvertError, UndecidedError, UsageError, for_user
from rnnconvert.core.notes import PASSED, LayerNote
from rnnconvert.core.printable import called, either
from rnnconvert.core.remedies import Flag, Setting
from rnnconvert.core.weights import Recurrent
from rnnconvert.files import detect
from rnnconvert.files.adapter import Adapter, Job, adapter, adapters
from rnnconvert.files.arrange import arrange, fitted, proposed, split_step
from rnnconvert.files.checkpoint import Checkpoint
from rnnconvert.files.finite import FiniteWatch
from rnnconvert.files.in_memory import PathLike, Source
from rnnconvert.files.load import load_with, select
from rnnconvert.files.options import Options
from rnnconvert.files.questions import Question
from rnnconvert.files.summary import Progress, Summary
from rnnconvert.files.targets import check_files, files_of
from rnnconvert.language import registry
from rnnconvert.rewrites import Step
from rnnconvert.rewrites.fit_to_layout import Fitted

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from rnnconvert.files.option_types import SaveOptions


@dataclass(frozen=True, kw_only=True)
class Writing:
    """How a file is written; the fields are described at `save`."""

    dtype: str | None = None
    strict: bool = False
    force: bool = False
    dry_run: bool = False
    progress: Progress | None = None


@passes_on(Writing, options=True)
def save(
    checkpoint: Checkpoint,
    path: PathLike,
    target_format: str | None = None,
    *,
    layers: Sequence[str] | str = (),
    settings: Iterable[str] = (),
    **options: Unpack[SaveOptions],
) -> Summary:
    """Write a checkpoint's recurrent layers in another format, and say what was done.

    target_format  the format to write; by default the path's ending decides
    layers         write only these, in this order; one name, or several
    dtype          element type to write; the source's own if None
    strict         refuse to round anything
    force          replace an existing file
    dry_run        find out what would be done, and write nothing
    progress       called while writing
    settings, options  as `load` takes them

    Raises RefusedError if the format cannot hold a layer, UsageError for an option that does not fit.

        >>> import rnnconvert as rc
        >>> checkpoint = rc.load("examples/encoder.keras")
        >>> rc.save(checkpoint, "encoder.onnx", layers="encoder", dry_run=True)
        <Summary: would write encoder.onnx (onnx) from examples/encoder.keras (keras), 1 layer, bit-exact>
    """
    writing, rest = split_keywords(options, Writing)
    chosen = Options(rest, settings)
    for layer, key in chosen.ledger.unused("read"):
        raise UsageError(f"{layer + ':' if layer else ''}{key} decides how a file is read. Give it to load, not to save")
    target = SaveTarget(path, target_format, layers, **writing)
    return _save(checkpoint, target, chosen)


@dataclass(frozen=True)
class SaveTarget(Writing):
    """The file that is to be written, and how: what `save` is called with."""

    path: PathLike
    format: str | None = None
    layers: Sequence[str] | str = ()
    assume_defaults: bool = True


@np.errstate(all="ignore")  # of numbers that are not finite the summary warns, once
def _save(checkpoint: Checkpoint, target: SaveTarget, options: Options) -> Summary:
    path, dtype, force, dry_run = Path(target.path), target.dtype, target.force, target.dry_run
    writer = detect.target(path, target.format)
    layers = [target.layers] if isinstance(target.layers, str) else target.layers
    files = files_of(writer, path)
    check_files(files, checkpoint, force or dry_run)
    wanted = element_type(dtype)
    pieces = _pieces(checkpoint, layers, options)
    chosen = select(checkpoint, () if pieces else layers)
    same = checkpoint.format == writer.NAME
    # What neither file states is what the caller's code says, before and after.
    silent = same and getattr(writer, "silent", lambda _: False)(path)
    if not (target.assume_defaults or silent):
        check_functions(chosen)
    asked = len(options.questions)
    stacks, steps = arrange(chosen, options, pieces)
    chosen = chosen.replace(questions=(*chosen.questions, *options.questions[asked:]))
    with proposed(lambda other: _dry_run(stacks, other, options, chosen, dtype)):
        parts = [fitted(stack, writer, options, wanted is not None) for stack in stacks]
    steps += [step for part in parts for step in part.steps]
    steps += [step for part in parts for step in _retyped(part, dtype)]
    steps += [split_step(part) for part in parts if not part.layout.holds.layers and part.stack.num_layers > 1]
    if target.strict:
        _only_exact(steps, writer.NAME)
        _nothing_open(chosen)
    carried = dict(checkpoint.tensors) if same and not layers else {}
    watch = FiniteWatch(_bytes(parts, dtype), target.progress)
    job = Job(parts, wanted, options, checkpoint, carried, watch, dry_run=dry_run)
    if options.ledger.unused("write", "both"):  # whatever the writer asks for, it asks for in a dry run too
        writer.write(path, replace(job, dry_run=True))
        options.ledger.check_used(str(path), "write", "both")
    with resumed(checkpoint.sources):
        written = writer.write(path, job)
    watch.report_progress()
    carried_on = [name for name in carried if name not in written.dropped]
    left = tuple(name for name in checkpoint.tensors if name not in carried or name in written.dropped)
    warnings = [_without_states(note, writer) for note in chosen.warnings]
    if not watch.finite:
        warnings += _not_finite(parts, dtype)
    return Summary(
        checkpoint.path, str(path), checkpoint.format, writer.NAME,
        {part.stack.name: part.stack.describe() for part in parts}, tuple(steps), tuple(map(for_user, written.notes)),
        len(left), len(carried_on), chosen.questions, tuple(warnings), checkpoint.evidence, not dry_run, left,
        tuple(written.recipe), checkpoint, files=tuple(map(str, (*files, *written.companions))),
    )  # fmt: skip


def element_type(name: str | None) -> np.dtype[Any] | None:
    """Return the element type of that name, None for none. Raises UsageError for an unknown one."""
    if name is not None and name not in FLOATS:
        raise UsageError(f"Unknown element type {name!r}. Choose one of: {', '.join(FLOATS)}")
    return None if name is None else FLOATS[name]


def _not_finite(parts: Sequence[Fitted], dtype: str | None) -> list[str]:
    """Say which of the weights written are not finite: the source's own, or those that became so."""
    carried = became = False
    for part in parts:
        largest = float(ml_dtypes.finfo(FLOATS[dtype] if dtype else part.stack.dtype).max)
        for _, _, direction in part.stack.directions():
            for source in direction.arrays.values():
                values = np.abs(np.asarray(source).astype(np.float64))
                carried = carried or not np.isfinite(values).all()
                became = became or bool((np.isfinite(values) & (values > largest)).any())
    return [
        *(["some weights are NaN or infinite; they were carried over unchanged"] if carried else []),
        *([f"some weights are too large for {dtype} and became infinite"] if became else []),
    ]


def _retyped(part: Fitted, dtype: str | None) -> list[Step]:
    stored_dtype = part.stack.dtype.newbyteorder("=")
    if dtype is None or FLOATS[dtype] == stored_dtype:
        return []
    if dtype not in part.layout.holds.dtypes:
        raise RefusedError(
            f"the element type {dtype}",
            part.layout.class_name,
            f"the target has {', '.join(part.layout.holds.dtypes)}",
            f"Choose another: {either(str(Flag('dtype', name)) for name in part.layout.holds.dtypes)}.",
            part.stack.name,
        )
    exact = bool(np.can_cast(stored_dtype, FLOATS[dtype], "safe"))
    return [Step("change the element type", part.stack.name, f"{stored_dtype} written as {dtype}", exact)]


def _only_exact(steps: Sequence[Step], target: str) -> None:
    for step in steps:
        if not step.exact:
            raise RefusedError(
                step.rewrite,
                f"{target} with {Flag('strict')}",
                f"{step.detail}: exact, but not bit for bit",
                f"Leave out {Flag('strict')} to allow rounding.",
                step.layer,
            )


def _nothing_open(checkpoint: Checkpoint) -> None:
    """Raise RefusedError for the first fact that the file leaves open, with all layers that it is open for."""
    for question in checkpoint.questions:
        choices = "|".join(question.choices) or "..."
        alike = [other.layer for other in checkpoint.questions if (other.option, other.why) == (question.option, question.why)]
        several = f", for {len(alike)} layers: {', '.join(map(repr, alike[:8]))}" if len(alike) > 1 else ""
        raise RefusedError(
            f"an open question ({question.option})",
            f"{Flag('strict')}",
            f"{question.why}{several}",
            f"Decide it with {Setting(question.option, choices)}; without {Flag('strict')}, {question.assumed} is assumed.",
            "" if several else question.layer,
        )


def _bytes(parts: Sequence[Fitted], dtype: str | None) -> int:
    return sum(p.stack.parameters * (FLOATS[dtype] if dtype else p.stack.dtype).itemsize for p in parts)


def convert_file(source: Source, source_format: str | None, target: SaveTarget, options: Options) -> Summary:
    """Convert a file's recurrent layers into another format: `load`, then `save`.

    options  as both take them

    Raises the errors of both; on any error every existing file is left unchanged.
    """
    checkpoint = load_with(source, source_format, options)
    options.ledger.check_used(checkpoint.path, "read")
    return _save(checkpoint, target, options)


def _without_states(note: str, writer: Adapter) -> str:
    """Return a note of the source; of states that are passed to it, with what becomes of them in a file that takes none."""
    if not (isinstance(note, LayerNote) and note.kind == PASSED and getattr(writer, "ZERO_STATES", False)):
        return note
    stated = note.text.removesuffix(". Pass it yourself")
    return LayerNote(
        note.layer, f"{stated}; a file of {registry.title(writer.NAME)} begins with zeros, and takes no other", note.kind, note.unnamed
    )


def _pieces(checkpoint: Checkpoint, layers: Sequence[str], options: Options) -> Sequence[str]:
    """Return the layers that were named where some are not the source's own, but what its layers are split into; none otherwise."""
    split = any(options.peek(option, name) == "split" for option in ("stack", "directions") for name in checkpoint.layers)
    return tuple(dict.fromkeys(layers)) if split and not set(layers) <= {*checkpoint.layers, called("")} else ()


def check_functions(checkpoint: Checkpoint) -> None:
    """Raise UndecidedError where the functions of layers were assumed: others give other numbers, and fit as well."""
    layers: dict[Question, list[str]] = {}
    for question in checkpoint.questions:
        if question.common:
            layers.setdefault(replace(question, layer=""), []).append(question.layer)
    if layers:
        raise UndecidedError(
            checkpoint.path,
            tuple(dict.fromkeys(question.option for question in layers)),
            [_as_question(question, names, checkpoint.questions) for question, names in layers.items()],
            checkpoint.warnings[:5],
        )


def _as_question(question: Question, layers: Sequence[str], asked: Iterable[Question]) -> str:
    others = {other.layer for other in asked if other.option == question.option} - set(layers)
    named = ", ".join(map(called, layers[:8])) + (f" and {len(layers) - 8} more" if len(layers) > 8 else "")
    setting = Setting(question.option, "|".join(question.choices) or "...", layer=layers[0] if others else "")
    return f"{question.option} of {named}: {question.why}. {question.assumed} is the default: {setting}"


@dataclass(frozen=True)
class Convertibility:
    """Whether a layer goes to a format: "exact", "rewritten" (by which steps) or "refused" (why)."""

    layer: str
    target: str
    verdict: str
    detail: str


def targets(checkpoint: Checkpoint, options: Options | None = None, formats: Iterable[str] | None = None) -> list[Convertibility]:
    """Return for every layer and every format that is written: exactly, by which rewrites, or refused and why.

    formats  only these, by name

    Raises UsageError for a format that is only read.

        >>> import rnnconvert as rc
        >>> checkpoint = rc.load("examples/decoder.keras")
        >>> [(each.target, each.verdict) for each in rc.targets(checkpoint, formats=["keras", "ncnn", "onnx"])]
        [('keras', 'exact'), ('ncnn', 'refused'), ('onnx', 'exact')]
    """
    chosen = options or Options()
    writers = list(adapters().values()) if formats is None else [adapter(name) for name in formats]
    if formats is not None and (unwritten := [candidate.NAME for candidate in writers if not candidate.layouts(chosen)]):
        raise UsageError(f"{unwritten[0]} files are only read, not written")
    verdicts = []
    for name, stack in checkpoint.layers.items():
        alone = checkpoint.replace(layers={name: stack}, tensors={})
        with proposed(functools.partial(_dry_run, [stack], options=chosen, source=alone)):
            verdicts += [_verdict(alone, name, stack, writer, chosen) for writer in writers if writer.layouts(chosen)]
    return verdicts


def _dry_run(stacks: Sequence[Recurrent], writer: Adapter, options: Options, source: Checkpoint, dtype: str | None = None) -> list[Fitted]:
    """Return layers in the form of a format that writes them in one file.

    Raises the errors of a conversion, for some refusals are of the file, and not of the layout: only its writer knows them.
    """
    parts = [fitted(stack, writer, options, dtype is not None) for stack in stacks]
    for part in parts:
        _retyped(part, dtype)
    job = Job(parts, element_type(dtype), options, source, {}, lambda piece: None, dry_run=True)
    with contextlib.suppress(MissingPackageError):  # that a package is missing here says nothing of the layers
        writer.write(Path(f"layer{next(iter(writer.SUFFIXES), '')}"), job)
    return parts


def _verdict(alone: Checkpoint, name: str, stack: Recurrent, writer: Adapter, options: Options) -> Convertibility:
    try:
        (part,) = _dry_run([stack], writer, options, alone)
    except RnnConvertError as error:
        return Convertibility(name, writer.NAME, "refused", str(error))
    if not part.steps:
        return Convertibility(name, writer.NAME, "exact", part.layout.class_name)
    exact = all(step.exact for step in part.steps)
    return Convertibility(name, writer.NAME, "exact" if exact else "rewritten", "; ".join(step.detail for step in part.steps))
