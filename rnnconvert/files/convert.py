"""From file to file: read, bring into the target's form, write once.

checkpoint = load("model.h5")
save(checkpoint, "model.onnx")
convert("model.h5", "model.safetensors")
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from rnnconvert import rewrites
from rnnconvert.containers.files import only_replace
from rnnconvert.containers.reading import mapped_files, reading, resumed
from rnnconvert.core.arrays import FLOATS, Array
from rnnconvert.core.errors import (
    MissingPackageError,
    RefusedError,
    RnnConvertError,
    UnreadableError,
    UnreadLayersError,
    UsageError,
    shown,
    unreadable,
)
from rnnconvert.core.printable import called, quoted
from rnnconvert.core.weights import Recurrent, Unconvertible
from rnnconvert.files import detect
from rnnconvert.files.adapter import Adapter, Job, adapter, adapters
from rnnconvert.files.checkpoint import Checkpoint
from rnnconvert.files.conservation import UNACCOUNTED
from rnnconvert.files.in_memory import PathLike, Source, path_of
from rnnconvert.files.opened import Opened
from rnnconvert.files.options import Options, Question, assumptions
from rnnconvert.language import registry
from rnnconvert.language.layout import Layout
from rnnconvert.rewrites import Step, each
from rnnconvert.rewrites.fit_to_layout import ACCEPTS, Fitted, fit_to_layout
from rnnconvert.rewrites.join_stack import between

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from rnnconvert.files.option_types import Both, Reading, Writing

Progress = Callable[[int, int], None]
"""Called with the bytes written so far and the bytes to write."""


@dataclass(frozen=True, repr=False)
class Summary:
    """What a conversion did.

    source, target    paths
    source_format     the format read
    target_format     the format written
    layers            what each layer is, in words, by name
    steps             the rewrites that were applied
    notes             how to load the result, and what the file leaves open
    left_out          how many other tensors were left out, as they are not of recurrent layers
    carried           how many other tensors were carried over unchanged
    questions         what the source leaves open, and what was assumed
    warnings          what the user should know
    evidence          how the source's format and layers were recognized
    written           whether the file was written (False for a dry run)
    left              the names of the tensors that were left out
    recipe            lines of Python that load the layers
    checkpoint        the source as it was read
    report            the rnnconvert.Report that proved it, where it was verified
    """

    source: str
    target: str
    source_format: str
    target_format: str
    layers: dict[str, str]
    steps: tuple[Step, ...]
    notes: tuple[str, ...]
    left_out: int
    carried: int
    questions: tuple[Question, ...]
    warnings: tuple[str, ...]
    evidence: tuple[str, ...]
    written: bool
    left: tuple[str, ...] = ()
    recipe: tuple[str, ...] = ()
    checkpoint: Checkpoint | None = field(default=None, compare=False)
    report: Any = field(default=None, compare=False)

    @property
    def exact(self) -> bool:
        """Whether nothing was rounded."""
        return all(step.exact for step in self.steps)

    def as_dict(self) -> dict[str, Any]:
        """Return the summary as JSON can hold it, without the report and the source."""
        found = asdict(replace(self, checkpoint=None, report=None))
        del found["checkpoint"], found["report"]
        return {**found, "exact": self.exact}

    def __repr__(self) -> str:
        how = "exact" if not self.steps else "rewritten, exact" if self.exact else "rewritten, rounded"
        return f"<Summary: {self._title()}, {len(self.layers)} layer{'s' if len(self.layers) != 1 else ''}, {how}>"

    def _title(self) -> str:
        verb = "wrote" if self.written else "would write"
        return f"{verb} {self.target} ({self.target_format}) from {self.source} ({self.source_format})"

    def _facts(self) -> Iterator[tuple[str, str]]:
        yield from ((called(name), text) for name, text in self.layers.items())
        yield from (("rewrite", str(step)) for step in self.steps)
        yield from (("note", note) for note in self.notes)
        if self.left_out:
            yield "left out", f"{self.left_out} tensors that belong to no recurrent layer"
        if self.carried:
            yield "carried over", f"{self.carried} other tensors, unchanged"
        yield from (("assumed", line) for line in assumptions(self.questions))
        yield from (("warning", warning) for warning in self.warnings)

    def __str__(self) -> str:
        return shown("\n".join([self._title(), *(f"  {word}: {text}" for word, text in self._facts())]))

    def _repr_html_(self) -> str:
        """Return a table of what was done, for a notebook."""
        from rnnconvert.reports.markup import listing

        return listing(self._title(), self._facts())


class _Watch:
    """Sees every piece that is written: counts, and notices what is not finite."""

    def __init__(self, total: int, progress: Progress | None) -> None:
        self.total, self.done, self.finite = total, 0, True
        self._progress = progress

    def __call__(self, piece: Array) -> None:
        if self.finite and piece.size:
            self.finite = _finite(piece)
        self.done += piece.nbytes
        if self._progress is not None:
            self._progress(self.done, self.total)


def _finite(piece: Array) -> bool:
    """Return whether every value is finite."""
    exponent = _EXPONENTS.get(piece.dtype)
    if exponent is None:
        return bool(np.isfinite(piece).all())
    return bool((piece.view(np.uint16) & exponent).max() < exponent)


# The bits that are all set in what is not finite: numpy's own look at two bytes is ten to thirty times slower than this.
_EXPONENTS = {FLOATS["float16"]: np.uint16(0x7C00), FLOATS["bfloat16"]: np.uint16(0x7F80)}


def load(
    source: Source, source_format: str | None = None, settings: Iterable[str] = (), **options: Unpack[Reading]
) -> Checkpoint:
    """Open a file and find its recurrent layers; the weights stay views of the file.

    source         a path, the bytes of a file, an open binary file, or a mapping of arrays by name
    source_format  read it as this format, instead of asking the file
    settings       options as the command line writes them, "KEY=VALUE" or "LAYER:KEY=VALUE"
    options        options by name, for all layers (rnnconvert.files.options.OPTIONS)

    Raises UnreadableError if it cannot be read (MissingFileError if it does not exist), RefusedError if its weights have no
    canonical form, MissingPackageError if a package is needed for it.
    """
    chosen = Options(options, settings)
    checkpoint = load_with(source, source_format, chosen)
    chosen.check_used(checkpoint.path)
    return checkpoint


def _beside(path: Path, mapped: Iterable[Path]) -> tuple[str, ...]:
    """Return the other files that a file was read from, outside a folder: external data, parts, a graph."""
    own = path.resolve()
    others = {one.resolve() for one in mapped if one.resolve() != own and not one.resolve().is_relative_to(own)}
    return tuple(map(str, sorted(others, key=lambda one: (one.name, str(one)))))


def load_pair(
    sources: tuple[Source, Source],
    formats: tuple[str | None, str | None] = (None, None),
    settings: Iterable[str] = (),
    own: tuple[Iterable[str], Iterable[str]] = ((), ()),
) -> tuple[Checkpoint, Checkpoint]:
    """Open two files: `load` for each, where a setting for both has to decide something in one of them.

    settings  options for both files
    own       options for the first and for the second alone

    Raises what `load` raises.
    """
    common, words = list(settings), [list(one) for one in own]
    ledgers = [Options(settings=(*common, *one)) for one in words]
    both = [load_with(path, sizes, ledger) for path, sizes, ledger in zip(sources, formats, ledgers, strict=True)]
    shared = set(Options(settings=common).unused())
    for ledger, other, checkpoint in zip(ledgers, reversed(ledgers), both, strict=True):
        ledger.check_used(checkpoint.path, but=shared - set(other.unused()))
    return both[0], both[1]


def load_with(source: Source, source_format: str | None, options: Options) -> Checkpoint:
    """Open a file as `load` does, with a ledger of options that the caller checks: `options.check_used`."""
    path = path_of(source, "load")
    with reading() as under_way:
        try:
            checkpoint = _read(path, isinstance(source, (str, os.PathLike)), source_format, options)
            under_way.check(path_too=True)
        except RnnConvertError:
            raise
        except OSError as error:  # of a file that went away, or a disk that fails, after it was opened
            raise unreadable(shown(str(error.filename or path)), error) from None
        except RecursionError:
            raise UnreadableError(path, "it is nested too deeply") from None
        finally:
            under_way.kept.clear()
        return checkpoint.replace(sources=under_way)


def _read(path: Path, is_users: bool, source_format: str | None, options: Options) -> Checkpoint:
    inside = None if is_users else path
    file = Opened(path)
    packed = detect.packed(file)
    if packed is not None:
        path, outside, file = packed, path, Opened(packed)
    with mapped_files() as mapped:  # what was read to recognise the file is not read again
        reader, evidence, others = detect.source(file, source_format)
        checkpoint = reader.read(path, options)
    if packed is not None:
        evidence = f"{evidence}, unpacked from {outside}"
    checkpoint = checkpoint.replace(beside=_beside(path, mapped))
    if packed is not None:
        checkpoint = checkpoint.replace(path=str(outside), unpacked=checkpoint.path)
    elif inside is not None:
        checkpoint = checkpoint.replace(path=shown(str(inside)), unpacked=checkpoint.path)
    close = [f"it may also be {other} ({why}). If it is, use --from {other}" for other, why in others]
    checkpoint = checkpoint.replace(warnings=(*checkpoint.warnings, *close))
    _check_names(checkpoint, options)
    checkpoint = checkpoint.replace(
        layers={
            name: stack.replace(unconvertible=_left(options, name, stack.unconvertible))
            for name, stack in checkpoint.layers.items()
        }
    )
    for name, stack in checkpoint.layers.items():
        unclipped = without_clips(stack, options)
        if unclipped is not stack:
            said = f"{name or 'the module itself'}: its clip is left out, as asked"
            checkpoint = checkpoint.replace(
                layers={**checkpoint.layers, name: unclipped}, warnings=(*checkpoint.warnings, said)
            )
    return checkpoint.replace(
        evidence=tuple(map(shown, (f"{reader.NAME}: {evidence}", *checkpoint.evidence))),
        warnings=tuple(map(shown, (*checkpoint.warnings, *options.notes))),
        unread=tuple(map(shown, checkpoint.unread)),
        questions=tuple(
            dict.fromkeys(replace(one, why=shown(one.why)) for one in (*checkpoint.questions, *options.questions))
        ),
    )


def without_clips(stack: Recurrent, options: Options) -> Recurrent:
    """Return a stack, without its clips where the caller drops them."""
    if any(d.cell.clips for _, _, d in stack.directions()) and options.get("clip", stack.name) == "none":
        return each(stack, lambda d: d.replace(cell=d.cell.replace(clips=())))
    return stack


def _left(options: Options, layer: str, stated: Iterable[Unconvertible]) -> tuple[Unconvertible, ...]:
    """Return what a layer computes besides, with the facts that nothing accounts for.

    Where the caller states that these facts are harmless, they are left out.
    """
    every = dict.fromkeys((*stated, *options.unaccounted(layer)))
    left = [one for one in every if one.option == UNACCOUNTED]
    harmless = bool(left) and options.get(UNACCOUNTED, layer) == "harmless"
    return tuple(one for one in every if not harmless or one.option != UNACCOUNTED)


def _check_names(checkpoint: Checkpoint, options: Options) -> None:
    """Raise UsageError for a setting of a layer that does not exist."""
    for named in sorted(options.layers() - set(checkpoint.layers)):
        there = f"It has {_list(checkpoint.layers)}" if checkpoint.layers else "It has none"
        raise UsageError(f"{checkpoint.path}: no recurrent layer {named!r}. {there}")


def select(checkpoint: Checkpoint, names: Sequence[str] | str) -> Checkpoint:
    """Return the checkpoint with only the layers named, in the order named; all of them if none is named.

    Raises UsageError for a layer that does not exist, UnreadableError if there is no recurrent layer at all, RefusedError for
    all of them where some were not read.
    """
    names = [names] if isinstance(names, str) else names
    if checkpoint.unread and not names:
        raise UnreadLayersError(checkpoint.path, checkpoint.unread, list(checkpoint.layers))
    if not checkpoint.layers:
        raise UnreadableError(
            checkpoint.path,
            f"it has no recurrent layer, only {len(checkpoint.tensors)} other tensors",
            "If you expect one, list what the file holds with: rnnconvert inspect -v",
            details=checkpoint.warnings[:5],
        )
    twice = next((name for name in names if list(names).count(name) > 1), None)
    if twice is not None:
        raise UsageError(f"the layer {twice!r} is named twice. Name it once")
    unknown = [name for name in names if name not in checkpoint.layers]
    if unknown:
        raise UsageError(f"{checkpoint.path} has no recurrent layer {unknown[0]!r}. It has {_list(checkpoint.layers)}")
    if not names:
        return checkpoint
    left = [name for name in checkpoint.layers if name not in names]
    return checkpoint.replace(
        layers={name: checkpoint.layers[name] for name in names},
        warnings=tuple(
            text for text in checkpoint.warnings if not text.startswith(tuple(f"{name}: " for name in left))
        ),
        questions=tuple(question for question in checkpoint.questions if question.layer not in left),
    )


def _list(names: Iterable[str]) -> str:
    return ", ".join(map(quoted, names))


def arrange(checkpoint: Checkpoint, options: Options) -> tuple[list[Recurrent], list[Step]]:
    """Return the stacks to write, joined or split as the options state.

    Raises UsageError if layers that are to be joined do not read one another.
    """
    stacks, steps = list(checkpoint.layers.values()), []
    _check_names(checkpoint, options)
    join = options.peek("stack") == "join"
    if join and len(stacks) < 2:
        options.unfit("stack", stacks[0].name, "is the only layer: there is nothing to join it with")
    elif join:
        options.get("stack")
        for below, above in itertools.pairwise(stacks):
            if (found := between(below, above)) is not None:
                raise RefusedError(
                    "layers with something between them", "one stack", str(found),
                    "Convert them separately, without --set stack=join.",
                )  # fmt: skip
        if (obstacle := rewrites.JOIN_STACK.applies(stacks)) is not None:
            raise UsageError(f"these layers cannot be joined: {obstacle}. Choose and order them with --layer.")
        joined = rewrites.join_stack(stacks)
        steps.append(Step(rewrites.JOIN_STACK.name, joined.name, f"{len(stacks)} layers joined into one stack", True))
        stacks = [joined]
    for option, rewrite in (("stack", rewrites.SPLIT_STACK), ("directions", rewrites.SPLIT_DIRECTIONS)):
        pieces: list[Recurrent] = []
        for stack in stacks:
            parts = _split(stack, option, rewrite, options)
            if len(parts) > 1:
                said = f"written as {_list(part.name for part in parts)}"
                steps.append(Step(rewrite.name, stack.name, said, True))
            pieces += parts
        stacks = pieces
    names = [stack.name for stack in stacks]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise UsageError(f"two layers would both be written as {twice!r}. Convert them one by one with --layer")
    return stacks, steps


def _split(
    stack: Recurrent, option: str, rewrite: rewrites.Rewrite[Recurrent, [], list[Recurrent]], options: Options
) -> Sequence[Recurrent]:
    """Return the pieces of a stack that is to be split, or the stack alone. Raises UsageError where it cannot be split."""
    if options.peek(option, stack.name) != "split":
        return [stack]
    if obstacle := rewrite.applies(stack):
        raise UsageError(str(obstacle))
    pieces = rewrite.apply(stack)
    if len(pieces) > 1:
        options.get(option, stack.name)
    else:
        options.unfit(option, stack.name, f"has one {'layer' if option == 'stack' else 'direction'}")
    return pieces


def accepted(options: Options, layer: str) -> list[str]:
    """Return what the caller takes over for a layer."""
    return [name for name, (value, _) in ACCEPTS.items() if options.peek(name, layer) == value]


def fitted(stack: Recurrent, writer: Adapter, options: Options, retyped: bool = False) -> Fitted:
    """Bring a stack into the form of one of a format's layouts, with what the options decide; what decided something is used.

    retyped  whether the caller chose the element type that is written

    Raises RefusedError where no exact rewrite leads there, UsageError for a layout that the format does not write.
    """
    layouts = asked_first(stack, writer.layouts(options.of_layer(stack.name)), options)
    return fitted_in(stack, layouts, options, retyped)


def asked_first(stack: Recurrent, layouts: Sequence[Layout], options: Options) -> Sequence[Layout]:
    """Return the layouts of a format that a stack may go to: the one that the caller asks for, or all of them.

    Raises UsageError for one that the format does not have.
    """
    framework = layouts[0].framework if layouts else ""
    asked, _, variant = (options.peek("layout", stack.name) or "").rpartition(".")
    if not variant or asked not in ("", framework):
        return layouts
    own = [one for one in registry.layouts_of(framework) if one.writable]
    one = next((one for one in own if one.name == f"{framework}.{variant}"), None)
    if one is None:
        raise UsageError(f"{framework} writes no layout {variant!r}. It writes {', '.join(one.name for one in own)}")
    one = next((other for other in layouts if other.name == one.name), one)
    kinds = {direction.cell.kind for _, _, direction in stack.directions()}
    if one.kind not in kinds:
        fitting = ", ".join(other.name for other in own if other.kind in kinds) or "none"
        options.unfit("layout", stack.name, f"is a {stack.cell.kind}: the layouts for it are {fitting}")
        return layouts
    options.get("layout", stack.name)
    return [one] if len(kinds) == 1 else [one, *(other for other in layouts if other != one)]


def fitted_in(stack: Recurrent, layouts: Sequence[Layout], options: Options, retyped: bool = False) -> Fitted:
    """Bring a stack into the form of one of these layouts, with what the options take over; what was taken over is used.

    Raises RefusedError where no exact rewrite leads there.
    """
    part = fit_to_layout(stack, layouts, accepted(options, stack.name), retyped)
    for step in part.steps:
        if step.rewrite in ACCEPTS:
            options.get(step.rewrite, stack.name)
    return part


def save(
    checkpoint: Checkpoint,
    path: PathLike,
    target_format: str | None = None,
    *,
    layers: Sequence[str] | str = (),
    dtype: str | None = None,
    strict: bool = False,
    force: bool = False,
    dry_run: bool = False,
    progress: Progress | None = None,
    settings: Iterable[str] = (),
    **options: Unpack[Writing],
) -> Summary:
    """Write a checkpoint's recurrent layers in another format, and say what was done.

    target_format  the format to write; by default the path's ending decides
    layers         write only these, in this order; one name, or several
    dtype          element type to write; the source's own if None
    strict         refuse whatever would be rounded
    force          replace an existing file
    dry_run        find out what would be done, and write nothing
    progress       called while writing
    settings, options  as `load` takes them

    Raises RefusedError if the format cannot hold a layer, UsageError for an option that does not fit.
    """
    chosen = Options(options, settings)
    for layer, key in chosen.unused("read"):
        raise UsageError(
            f"{layer + ':' if layer else ''}{key} decides how a file is read. Give it to load, not to save"
        )
    return _save(checkpoint, Path(path), target_format, layers, dtype, strict, force, dry_run, progress, chosen)


@np.errstate(all="ignore")  # of numbers that are not finite the summary warns, once
def _save(
    checkpoint: Checkpoint, path: Path, target_format: str | None, layers: Sequence[str] | str, dtype: str | None, strict: bool,
    force: bool, dry_run: bool, progress: Progress | None, options: Options,
) -> Summary:  # fmt: skip
    writer = detect.target(path, target_format)
    layers = [layers] if isinstance(layers, str) else layers
    only_replace(path, force or dry_run)
    wanted = element_type(dtype)
    chosen = select(checkpoint, layers)
    stacks, steps = arrange(chosen, options)
    parts = [fitted(stack, writer, options, wanted is not None) for stack in stacks]
    steps += [step for part in parts for step in part.steps]
    steps += [step for part in parts for step in _retyped(part, dtype)]
    steps += [_split_step(part) for part in parts if not part.layout.holds.layers and part.stack.num_layers > 1]
    if strict:
        _only_exact(steps, writer.NAME)
        _nothing_open(chosen)
    same = checkpoint.format == writer.NAME
    carried = dict(checkpoint.tensors) if same and not layers else {}
    watch = _Watch(_bytes(parts, dtype), progress)
    job = Job(parts, wanted, options, checkpoint, carried, watch, force=force, dry_run=dry_run)
    if options.unused("write", "both"):  # whatever the writer asks for, it asks for in a dry run too
        writer.write(path, replace(job, dry_run=True, dropped=set(), recipe=[]))
        options.check_used(str(path), "write", "both")
    with resumed(checkpoint.sources):
        notes = writer.write(path, job)
    kept = [name for name in carried if name not in job.dropped]
    left = tuple(name for name in checkpoint.tensors if name not in carried or name in job.dropped)
    warnings = list(chosen.warnings)
    if not watch.finite:
        warnings += _not_finite(parts, dtype)
    return Summary(
        checkpoint.path, str(path), checkpoint.format, writer.NAME,
        {part.stack.name: part.stack.describe() for part in parts}, tuple(steps), tuple(map(shown, notes)),
        len(left), len(kept), chosen.questions, tuple(warnings), checkpoint.evidence, not dry_run, left,
        tuple(job.recipe), checkpoint,
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
    own = part.stack.dtype.newbyteorder("=")
    if dtype is None or FLOATS[dtype] == own:
        return []
    if dtype not in part.layout.holds.dtypes:
        raise RefusedError(
            f"the element type {dtype}", part.layout.class_name, f"the target has {', '.join(part.layout.holds.dtypes)}",
            "Choose another with --dtype.", part.stack.name,
        )  # fmt: skip
    exact = bool(np.can_cast(own, FLOATS[dtype], "safe"))
    return [Step("change the element type", part.stack.name, f"{own} written as {dtype}", exact)]


def _split_step(part: Fitted) -> Step:
    detail = f"its {part.stack.num_layers} layers written one after the other"
    return Step(rewrites.SPLIT_STACK.name, part.stack.name, detail, True)


def _only_exact(steps: Sequence[Step], target: str) -> None:
    for step in steps:
        if not step.exact:
            raise RefusedError(
                step.rewrite, f"{target} with --strict", f"{step.detail}: exact, but not bit for bit",
                "Leave out --strict to allow rounding.", step.layer,
            )  # fmt: skip


def _nothing_open(checkpoint: Checkpoint) -> None:
    """Raise RefusedError for a fact that the file leaves open."""
    for question in checkpoint.questions:
        choices = "|".join(question.choices) or "..."
        raise RefusedError(
            f"an open question ({question.option})", "--strict", question.why,
            f"Decide it with --set {question.option}={choices}; without --strict, {question.assumed} is assumed.",
            question.layer,
        )  # fmt: skip


def _bytes(parts: Sequence[Fitted], dtype: str | None) -> int:
    return sum(p.stack.parameters * (FLOATS[dtype] if dtype else p.stack.dtype).itemsize for p in parts)


def convert(
    source: Source,
    target: PathLike,
    *,
    source_format: str | None = None,
    target_format: str | None = None,
    layers: Sequence[str] | str = (),
    dtype: str | None = None,
    strict: bool = False,
    force: bool = False,
    dry_run: bool = False,
    progress: Progress | None = None,
    settings: Iterable[str] = (),
    **options: Unpack[Both],
) -> Summary:
    """Convert a file's recurrent layers into another format: `load`, then `save`.

    Raises what they raise; on any error every existing file is left unchanged.
    """
    both = Options(options, settings)
    checkpoint = load_with(source, source_format, both)
    both.check_used(checkpoint.path, "read")
    return _save(checkpoint, Path(target), target_format, layers, dtype, strict, force, dry_run, progress, both)


@dataclass(frozen=True)
class Verdict:
    """Whether a layer goes to a format: "exact", "rewritten" (by which steps) or "refused" (why)."""

    layer: str
    target: str
    verdict: str
    detail: str


def targets(
    checkpoint: Checkpoint, options: Options | None = None, formats: Iterable[str] | None = None
) -> list[Verdict]:
    """Return for every layer and every format that is written: exactly, by which rewrites, or refused and why.

    formats  only these, by name

    Raises UsageError for a format that is only read.
    """
    chosen = options or Options()
    writers = list(adapters().values()) if formats is None else [adapter(name) for name in formats]
    if formats is not None and (unwritten := [one.NAME for one in writers if not one.layouts(chosen)]):
        raise UsageError(f"{unwritten[0]} files are only read, not written")
    found = []
    for name, stack in checkpoint.layers.items():
        for writer in writers:
            if writer.layouts(chosen):
                found.append(_verdict(checkpoint, name, stack, writer, chosen))
    return found


def _verdict(checkpoint: Checkpoint, name: str, stack: Recurrent, writer: Adapter, options: Options) -> Verdict:
    alone = checkpoint.replace(layers={name: stack}, tensors={})
    try:
        part = fitted(stack, writer, options)
        job = Job([part], None, options, alone, {}, lambda piece: None, dry_run=True)
        # Some refusals are of the file, and not of the layout: only its writer knows them.
        writer.write(Path(f"layer{next(iter(writer.SUFFIXES), '')}"), job)
    except MissingPackageError:
        pass  # that a package is missing here says nothing of the layer
    except RnnConvertError as error:
        return Verdict(name, writer.NAME, "refused", str(error))
    if not part.steps:
        return Verdict(name, writer.NAME, "exact", part.layout.class_name)
    exact = all(step.exact for step in part.steps)
    return Verdict(name, writer.NAME, "exact" if exact else "rewritten", "; ".join(step.detail for step in part.steps))
