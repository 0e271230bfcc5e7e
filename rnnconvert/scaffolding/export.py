"""A whole model as one file of another framework, from file to file: the graph of its layers with their weights."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rnnconvert.containers.files import never_replace, only_replace
from rnnconvert.containers.reading import reading
from rnnconvert.core.arguments import checked, passes_on, split_keywords
from rnnconvert.core.errors import NotEqualError, RefusedError, RnnConvertError, UsageError
from rnnconvert.core.printable import either
from rnnconvert.core.remedies import Command, Flag, TargetSetting
from rnnconvert.files import detect
from rnnconvert.files.convert import SaveTarget, convert_file
from rnnconvert.files.options import Options
from rnnconvert.files.settings import Settings
from rnnconvert.files.targets import files_of
from rnnconvert.language import registry
from rnnconvert.models.names import listing
from rnnconvert.models.verified import kept_if_equal
from rnnconvert.models.verify import WholeModels
from rnnconvert.running.inputs import read_inputs
from rnnconvert.scaffolding.description import Description
from rnnconvert.scaffolding.export_target import ExportedGraph, ExportTarget, Recipe, ports
from rnnconvert.scaffolding.exported import ExportedModel
from rnnconvert.scaffolding.ordered import UnstatedOrderError
from rnnconvert.scaffolding.proof import proof_in_lines
from rnnconvert.scaffolding.sources import DescribedSource, SourceFacts, described_source
from rnnconvert.scaffolding.stateful.carried import streamed
from rnnconvert.scaffolding.weights import LayerWeights

if TYPE_CHECKING:
    from typing_extensions import Unpack

PathLike = str | os.PathLike[str]


@dataclass(frozen=True)
class Exported:
    """The result of exporting a whole model.

    source   the file that was read
    target   the file that was written, or would be
    inputs   the model's inputs, with their axes
    outputs  its outputs, likewise
    nodes    how many nodes it has
    layers   the recurrent nodes among them, by name
    size     how many bytes its numbers have
    proof    the outputs of both models, each time on other inputs
    notes    notes for a reader of the graph
    recipe   lines of Python, or of C, that run the file once, on inputs of zeros; none for formats of other programs
    """

    source: str
    target: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    nodes: int
    layers: tuple[str, ...]
    size: int
    proof: tuple[WholeModels, ...] = ()
    notes: tuple[str, ...] = ()
    recipe: tuple[str, ...] = ()

    @property
    def equal(self) -> bool:
        """Whether a proof was asked for, and every run was equal."""
        return bool(self.proof) and all(self.proof)

    def as_dict(self) -> dict[str, Any]:
        """Return everything as JSON takes it."""
        plain = {key: list(value) if isinstance(value, tuple) else value for key, value in vars(self).items()}
        return {**plain, "proof": "\n".join(proof_in_lines(self.proof))}

    def lines(self) -> list[str]:
        """Return the report, line by line."""
        return [
            f"inputs: {', '.join(self.inputs)}",
            f"outputs: {', '.join(self.outputs)}",
            f"{self.nodes} nodes; recurrent: {', '.join(self.layers) or 'none'}; {self.size:,} bytes of numbers",
            *(f"note: {note}" for note in self.notes),
            *proof_in_lines(self.proof),
            *([f"# to run it in {'C' if self.recipe[0].startswith('#') else 'Python'}:", *self.recipe] if self.recipe else []),
        ]

    def __str__(self) -> str:
        return "\n".join(self.lines())


def _target(out: Path, format: str | None) -> ExportTarget:
    """Return the writer of a file: of the format that is named, or of the file's ending.

    Raises UsageError for a format or an ending that no whole model is written to, and if several formats have the ending.
    """
    targets: dict[str, ExportTarget] = registry.named("export_to")
    name = out.name.lower()
    if format is None and any(name.endswith(target.SUFFIXES) for target in targets.values()):
        format = detect.target(out).NAME
    target = targets.get(format or "")
    if target is None and format is not None:
        raise UsageError(f"{out}: no whole model is written for {format}. Choose one of {', '.join(targets)}")
    if target is None or not name.endswith(target.SUFFIXES):
        written = target.SUFFIXES if target else [suffix for target in targets.values() for suffix in target.SUFFIXES]
        raise UsageError(f"{out}: no whole model is written with this ending. Choose one of {', '.join(dict.fromkeys(written))}")
    return target


@dataclass(frozen=True)
class _TargetOptions:
    """The options of a target: its element type, and settings."""

    dtype: str | None = None
    settings: Sequence[str] = ()


class _ExportChoices(SourceFacts, total=False):
    dtype: str | None
    settings: Sequence[str]


@checked
@passes_on(described_source, _TargetOptions)
@reading()
def export_model(
    source: Any,
    target: PathLike,
    *,
    format: str | None = None,
    force: bool = False,
    dry_run: bool = False,
    verify: bool | PathLike = False,
    stateful: bool = False,
    **choices: Unpack[_ExportChoices],
) -> Exported:
    """Write a whole model, not only its recurrent layers, as one file of another framework.

    source   a whole model: a file (docs/scaffold.md#sources lists them), weights alone with `config`, or a live torch.nn.Module
    target   the file to write; its ending decides the format
    format   the format of the target, where several have its ending
    example  for a live module the inputs to follow it on, one for each argument: sizes that it does not depend on stay open
    config   for weights alone the file that states the model, as model.to_json wrote it; without it the only one next to them that
             fits is read
    axes     how many axes each input has, one number for all or a list: of a file that does not state it. In the place of a number the
             lengths of these axes may stand, None for an open one: axes=[(1, 80, None)]
    chain    for weights alone, without such a file, the order of their layers, with the activations between: "lstm relu fc"; "last" is
             the last step of what stands before it, "final" the last state of each direction, "mean" and "max" are those over the time, and
             "skip" adds the input
    fix      the values of inputs that are fixed, by their names: fix={"sr": 16000}. The target has no such inputs. Of an ONNX file,
             where conditions on them are decided, a frozen graph, or a script whose inputs are numbers, likewise
    force    replace the target if it exists
    dry_run  write nothing
    verify   run both models in their frameworks on random inputs of several sizes, and keep the file only if they agree; a .npy
             or .npz file of inputs, by their names or in the model's order: on these, too
    dtype    the element type to write, where the target has a choice
    stateful  write the model for a stream that comes in pieces: the states of its recurrent layers are inputs and outputs, and each call
             goes on from those that the call before it gave. The proof cuts the sequences into pieces of several lengths
    settings  options of the target, "KEY=VALUE"

    Raises RefusedError for a layer or a setting without an equivalent, UnreadableError for a damaged file, UsageError for a
    file without a model, NotEqualError where the proof fails. Nothing is written then.

        >>> import rnnconvert as rc
        >>> exported = rc.export_model("examples/encoder.keras", "encoder.onnx", dry_run=True)
        >>> exported.layers
        ('encoder (GRU 6 -> 8)', 'summary (LSTM 16 -> 5)')
    """
    out = Path(target)
    writer = _target(out, format)
    options_of_target, stated = split_keywords(choices, _TargetOptions)
    options = _options(writer, out, _TargetOptions(**options_of_target))
    by_steps = getattr(writer, "BY_STEPS", "")
    if stateful and by_steps:
        raise UsageError(f"{Flag('stateful')} decides nothing: {by_steps}. Leave it out")
    folder = bool(getattr(writer, "FOLDER", False))
    if (out.is_dir() and not folder) or not out.parent.is_dir():
        raise UsageError(f"{out}: name a file to write, in a folder that exists")
    if not dry_run and folder:
        never_replace(out)
    elif not dry_run:
        for path in files_of(writer, out):
            only_replace(path, force, out)
    try:
        model = described_source(source, **stated)
    except UnstatedOrderError as error:
        if not error.single:
            raise error.for_target(source, target, format) from None
        model = described_source(source, **{**stated, "chain": error.order})
    except RefusedError as error:
        raise RefusedError(error.feature, writer.TITLE, error.reason, error.remedy, error.layer) from None
    weights = LayerWeights(model.model, model.description.names)
    try:
        stream = streamed(model.description, weights) if stateful else None
    except RefusedError as error:
        remedy = " ".join(filter(None, [error.remedy, _step_by_step(source, out, model, weights, stated.get("chain"))]))
        raise RefusedError(error.feature, error.target, error.reason, remedy, error.layer) from None
    description = stream.description if stream else model.description
    try:
        graph = writer.graph(description, weights, **options)
    except RefusedError as error:
        others = _others(writer, model, description) or _layers_alone(source, out, format)
        remedy = " ".join(filter(None, [error.remedy, others]))
        raise RefusedError(error.feature, writer.TITLE, error.reason, remedy, error.layer) from None
    done = Exported(
        model.title,
        str(out),
        tuple(graph.inputs),
        tuple(graph.outputs),
        graph.nodes,
        tuple(graph.recurrent),
        graph.size,
        notes=(
            *description.notes,
            *graph.notes,
            *(stream.notes(graph.inputs, graph.outputs, graph.steps) if stream else ()),
            *_assumed(description),
            *_left_out(weights, description.constants),
        ),
        recipe=_recipe(writer, graph, out, description),
    )
    if dry_run:
        return done
    if not verify:
        graph.write(out)
        return done
    return replace(done, proof=_proved(out, ExportedModel(writer, graph, model, options, stream), verify, force))


def check_exportable(source: PathLike, target: PathLike, format: str) -> None:
    """Raise what `export_model` raises for a file, without looking for other formats that hold its model."""
    writer = _target(Path(target), format)
    model = described_source(source)
    writer.graph(model.description, LayerWeights(model.model, model.description.names))


def _others(refusing: ExportTarget, model: DescribedSource, description: Description) -> str:
    """Return a sentence on the formats that hold a model which one refuses; "" where none does, as far as they can be asked here."""
    holding = []
    for name, target in registry.named("export_to").items():
        with contextlib.suppress(Exception):  # a format is not named for what its look at the model raises, and the refusal is told
            if target is not refusing and not (description.states and hasattr(target, "BY_STEPS")):
                target.graph(description, LayerWeights(model.model, model.description.names))
                holding.append(name)
    return f"This model can be written for {either(holding)}." if holding else ""


def _layers_alone(source: object, target: Path, format: str | None) -> str:
    """Return a sentence on the command that writes the recurrent layers of a file where nothing holds its model; "" where none does."""
    if not isinstance(source, str | Path):
        return ""
    with contextlib.suppress(RnnConvertError):
        summary = convert_file(source, None, SaveTarget(target, format, dry_run=True, force=True, assume_defaults=False), Options())
        to = {"to": summary.target_format} if format else {}
        return f"Its recurrent layers alone: {Command('convert', source, target, **to)}."
    return ""


def _step_by_step(source: Any, out: Path, model: DescribedSource, weights: LayerWeights, chain: str | None) -> str:
    """Return a sentence on a format whose files compute the model step by step by themselves; "" where none does."""
    for target in registry.named("export_to").values():
        with contextlib.suppress(RefusedError):
            if hasattr(target, "BY_STEPS") and target.graph(model.description, weights).step_by_step:
                way = Command("export", source, out.stem + target.SUFFIXES[0], **({} if chain is None else {"chain": chain}))
                return f"{target.TITLE[:1].upper()}{target.TITLE[1:]} computes it step by step: {way}"
    return ""


def _recipe(writer: ExportTarget, graph: ExportedGraph, out: Path, description: Description) -> tuple[str, ...]:
    """Return the lines that run what is written once; none where a program of its own runs it."""
    in_python: Recipe | None = getattr(writer, "recipe", None)
    if in_python is not None:
        return tuple(in_python(out, ports(description, graph.inputs, graph.outputs)))
    return () if graph.recipe is None else tuple(graph.recipe(out))


def _options(writer: ExportTarget, out: Path, wanted: _TargetOptions) -> dict[str, str]:
    """Return the options of a target. Raises UsageError for options that it does not take."""
    options: tuple[str, ...] = getattr(writer, "OPTIONS", ())
    chosen = {key: value for (_, key), value in Settings(settings=wanted.settings).values.items()}
    chosen |= {} if wanted.dtype is None else {"dtype": wanted.dtype}
    for key in chosen:
        if key not in options:
            flag = Flag("dtype", chosen[key]) if key == "dtype" else TargetSetting(key, chosen[key])
            raise UsageError(f"{flag} decides nothing: it is not for {writer.TITLE}. Leave it out")
    return {**chosen, **({"name": out.stem} if "name" in options else {})}


def _assumed(description: Description) -> list[str]:
    """Return a note on the axes of inputs that nobody stated: a graph takes one number of them alone."""
    words = [f"{len(value.shape)} for {value.name}" for value in description.open_ranks]
    note = f"the file does not state how many axes its inputs have, and the graph was written for {' and '.join(words)}"
    return [f"{note}. Another number: {Flag('axes')}"] if words else []


def _left_out(weights: LayerWeights, constants: Collection[str]) -> list[str]:
    """Return a note on arrays of the source that are not in the graph.

    constants  those that are in it as numbers
    """
    unread = [name for name in weights.unread() if name not in constants]
    return [f"not in the graph, as no output of the model depends on them: {listing(unread)}"] if unread else []


def _proved(out: Path, export: ExportedModel, verify: bool | PathLike, force: bool) -> tuple[WholeModels, ...]:
    """Write a file, and keep it only if it gives what its source gives."""
    user_inputs = None if isinstance(verify, bool) else dict(read_inputs(verify))
    comparisons: list[WholeModels] = []

    def prove(written: Path) -> None:
        for proof in export.proofs(written, user_inputs):
            comparisons.append(proof)
            if proof.exit_code:
                raise NotEqualError(out, proof)

    kept_if_equal(out, force, export.graph.write, prove)
    return tuple(comparisons)
