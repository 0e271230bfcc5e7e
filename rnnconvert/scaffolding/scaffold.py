"""A whole model's file as a file of Python that makes the same model in another framework, filled and proved."""

from __future__ import annotations

import contextlib
import contextvars
import os
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from rnnconvert.containers import temporary
from rnnconvert.containers.files import move_together, only_replace, replacing
from rnnconvert.containers.reading import charge_output, reading
from rnnconvert.containers.temporary import new_folder
from rnnconvert.core.arguments import checked, passes_on, unknown
from rnnconvert.core.arrays import Array
from rnnconvert.core.errors import NotEqualError, RefusedError, RnnConvertError, UsageError, unwritable
from rnnconvert.core.remedies import Command, Flag, InPart, called_by_flags
from rnnconvert.core.text_file import sha256
from rnnconvert.language import registry
from rnnconvert.models.runners import runners
from rnnconvert.models.verified import kept_if_equal
from rnnconvert.models.verify import WholeModels
from rnnconvert.running.inputs import read_inputs
from rnnconvert.scaffolding import kinds
from rnnconvert.scaffolding.description import DescribedModel, Description
from rnnconvert.scaffolding.exported import ExportedModel
from rnnconvert.scaffolding.proof import proof_in_lines, proofs
from rnnconvert.scaffolding.sources import DescribedSource, SourceFacts, described_source
from rnnconvert.scaffolding.text import OPEN_DIGEST
from rnnconvert.scaffolding.weights import LayerWeights
from rnnconvert.scaffolding.written import FilledModel, ModelMaker, WrittenSource, filled_model

if TYPE_CHECKING:
    from typing_extensions import Unpack

PathLike = str | os.PathLike[str]


class Target(ModelMaker, Protocol):
    """A room's module `scaffold_to`: descriptions as files of Python, and their models."""

    WEIGHTS: tuple[str, ...]
    """The endings of the framework's own files of weights."""

    def write(self, description: Description, source: str) -> tuple[str, tuple[str, ...]]:
        """Return the text of a file, and what is left out of it."""
        ...


@dataclass(frozen=True)
class Scaffolded:
    """The result of writing a model as code.

    source    the file that was read
    target    the framework
    text      the file of Python
    layers    how many layers it has
    notes     notes for a reader of the model
    output    where the file was written, "" if it was not
    weights   where the weights were written, ""
    proof     the outputs of both models, each time on other inputs
    missing   the layers that are left out, and why
    """

    source: str
    target: str
    text: str
    layers: int
    notes: tuple[str, ...] = ()
    output: str = ""
    weights: str = ""
    proof: tuple[WholeModels, ...] = ()
    missing: tuple[str, ...] = ()

    @property
    def equal(self) -> bool:
        """Whether a proof was asked for, and every run was equal."""
        return bool(self.proof) and all(self.proof)

    def as_dict(self) -> dict[str, Any]:
        """Return everything as JSON takes it."""
        return {
            **{key: value for key, value in vars(self).items() if key != "proof"},
            "notes": list(self.notes),
            "missing": list(self.missing),
            "proof": [{**entry.conclusion.as_dict(), "text": str(entry)} for entry in self.proof],
        }

    def lines(self) -> list[str]:
        """Return the report, line by line."""
        code = sum(1 for line in self.text.splitlines() if line.strip())
        lines = [f"{self.layers} layer{'' if self.layers == 1 else 's'}, {code} lines of {self.target}"]
        lines += [f"left out: {why}" for why in self.missing]
        lines += [f"note: {note}" for note in self.notes]
        return lines + proof_in_lines(self.proof)

    def __str__(self) -> str:
        return "\n".join(self.lines())


def targets() -> dict[str, Target]:
    """Return the frameworks that models are written for, by name."""
    return registry.named("scaffold_to")


@checked
@passes_on(described_source)
@reading()
def scaffold(
    source: Any,
    to: str,
    output: PathLike | None = None,
    *,
    weights: PathLike | None = None,
    verify: bool | PathLike = False,
    partial: bool = False,
    force: bool = False,
    **stated: Unpack[SourceFacts],
) -> Scaffolded:
    """Write the model of a file, or a live module, as a file of Python that makes the same model in another framework.

    source   a whole model: a file (docs/scaffold.md#sources lists them), weights alone, or a live torch.nn.Module
    to       the framework to write for: "pytorch", "keras" or "flax" (its nnx)
    output   the .py file to write; None returns its text alone
    example  for a live module the inputs to follow it on, one for each argument: sizes that it does not depend on stay open
    config   for weights alone the file that states the model, as model.to_json wrote it; without it the only one next to them that
             fits is read
    axes     how many axes each input has, one number for all or a list: of a file that does not state it. In the place of a number the
             lengths of these axes may stand, None for an open one: axes=[(1, 80, None)]
    chain    for weights alone, without such a file, the order of their layers, with the activations between: see export_model
    fix      the values of inputs that are fixed, by their names, as in fix={"sr": 16000}: see export_model
    weights  where to write the weights in the framework's own file, so that nothing else is needed
    verify   run the source in its framework and the written model on random inputs of several sizes, and keep the files only if
             they are equal; a .npy or .npz file of inputs, by their names or in the model's order: on these, too
    partial  write what is known: a layer or an operator that is not becomes a line that raises NotImplementedError
    force    replace files that exist

    The written file has a class or function for each model, a layer for each of the source's, and `load(source)`, which fills it.

    Raises RefusedError for a layer or a setting that cannot be written, by name; UsageError for a file without a model, or for a proof
    of one that is written in part; NotEqualError where the proof fails. Nothing is written then.

        >>> import rnnconvert as rc
        >>> scaffolded = rc.scaffold("examples/encoder.keras", "pytorch")
        >>> scaffolded.lines()
        ['3 layers, 40 lines of pytorch']
        >>> "self.encoder = nn.GRU(" in scaffolded.text
        True
    """
    written = targets().get(to)
    if written is None:
        raise UsageError(unknown("framework", to, targets()))
    for file in (output, weights):
        if file is not None:
            only_replace(Path(file), force)
    if output is not None and Path(output).suffix != ".py":
        raise UsageError(f"{output}: a model is written as Python. Give it a name that ends in .py")
    if weights is not None and not str(weights).endswith(written.WEIGHTS):
        endings = " or ".join(written.WEIGHTS)
        raise UsageError(f"{weights}: {to} keeps its weights in {endings} files. Give it a name that ends so")
    try:
        model = described_source(source, partial, **stated)
        text, missing = _as_code(written, model, Path(weights or "").name)
    except RefusedError as error:
        ways = (error.remedy.rstrip("."), "" if partial else _in_part(source, written, stated))
        remedy = ". ".join(filter(None, ways))
        raise RefusedError(error.feature, f"a model written for {written.TITLE}", error.reason, remedy, error.layer) from None
    if through := model.description.through:
        way = Command("export" if called_by_flags() else "export_model", source, through)
        reason = "the code is filled by the names of layers, which this source does not state"
        raise RefusedError(
            "a model by its operations", f"a model written for {written.TITLE}", reason, f"Write it as a graph, and scaffold that: {way}"
        )
    if verify and missing:
        raise UsageError(
            f"{model.label} is written in part, and what is left out cannot run: {missing[0]}. "
            f"Leave out {Flag('verify')}, and compare the model once it is complete"
        )
    done = Scaffolded(
        model.title,
        to,
        text,
        _count(model.description.scope),
        model.description.notes_of_code,
        str(output or ""),
        str(weights or ""),
        missing=missing,
    )
    if not verify and weights is None and output is None:
        return done
    return _written_and_proved(done, written, model, verify, force)


def _as_code(target: Target, model: DescribedSource, weights: str = "") -> tuple[str, tuple[str, ...]]:
    """Return a model as code, and what is left out. Raises RefusedError for an array of a layer that stands alone in the model.

    weights  the name of the file of weights that is written with it
    """
    for layer, words in model.description.names.items():
        if words and model.model.unit(words[0]) is None:
            reason = "a written model fills the arrays of a layer together"
            raise RefusedError(f"the weights {words[0]!r} outside of their layer", target.TITLE, reason, "", layer)
    return target.write(replace(model.description, weights=weights), model.label)


def _in_part(source: Any, target: Target, stated: SourceFacts) -> str:
    """Return the way out of a refusal, if leaving out the layer lets the rest be written."""
    try:
        _as_code(target, described_source(source, True, **stated))
    except RnnConvertError:
        return ""
    return f"{InPart()} writes the rest, with a line that raises NotImplementedError in its place."


def _count(scope: DescribedModel) -> int:
    return sum(
        len({node.layer for node in each.with_steps() if node.layer and not isinstance(node.kind, kinds.Model)})
        for each in (scope, *scope.inner())
    )


def _compared(model: DescribedSource, filled: FilledModel, source: Any, user_inputs: Mapping[str, Array] | None) -> Iterator[WholeModels]:
    """Yield the comparisons of a written model with its source.

    One that rounds to integers as it runs is compared with the same model as a file that does not round, and that file with the source.
    """
    if not model.description.integers:
        yield from proofs(model.description, filled.value, source, filled.pairs, user_inputs)
        return
    writer = registry.named("export_to")[model.model.framework]
    graph = writer.graph(model.description, LayerWeights(model.model, model.description.names))
    with new_folder() as folder:
        unrounded = Path(folder) / f"unrounded{writer.SUFFIXES[0]}"
        graph.write(unrounded)
        export = ExportedModel(writer, graph, model, {})
        yield from export.proofs(unrounded, user_inputs)
        yield from proofs(model.description, filled.value, export.opened(unrounded), [], user_inputs)


def _written_and_proved(done: Scaffolded, target: Target, model: DescribedSource, verify: bool | PathLike, force: bool) -> Scaffolded:
    """Write the files, once they are proved if that is asked for; the code and its weights take their places together."""
    folders = contextlib.ExitStack()
    weights_to_move: list[tuple[Path, Path]] = []
    done_proofs: list[WholeModels] = []
    user_inputs = None if isinstance(verify, bool) else dict(read_inputs(verify))

    text = done.text

    def write(file: Path) -> None:
        file.write_text(text, encoding="utf-8")

    settings = tuple(f"{key}={file}" for key, file in model.description.options.items())

    def prove(file: Path) -> None:
        if verify:
            runners()  # entered before there are two threads: pytest parses the modules of its plug-ins, in which CPython confuses threads
        with ThreadPoolExecutor(1) as pool:  # both frameworks are imported at a time, each in its process
            opening = pool.submit(contextvars.copy_context().run, model.open) if verify else None
            with filled_model(target, WrittenSource(file, model.value, settings, not done.missing)) as filled:
                if opening is not None:
                    compare(filled, opening.result())
                if done.weights:
                    save(filled, Path(done.weights), file)

    def compare(filled: FilledModel, source: Any) -> None:
        for comparison in _compared(model, filled, source, user_inputs):
            done_proofs.append(comparison)
            if comparison.exit_code:
                raise NotEqualError(done.output or done.source, comparison)

    def save(filled: FilledModel, weights: Path, code: Path) -> None:
        nonlocal text
        try:
            saved = folders.enter_context(new_folder(weights)) / weights.name
            filled.save(saved)
            charge_output(saved.stat().st_size)
            text = text.replace(OPEN_DIGEST, sha256(saved))
            write(code)
            weights_to_move.append((saved, weights))
        except RnnConvertError:  # one of a missing file is an OSError, too
            raise
        except OSError as error:
            raise unwritable(weights, error, temporary.remedy(weights, error)) from None

    with folders:
        if not done.output:
            with new_folder() as folder:
                write(Path(folder) / "model.py")
                prove(Path(folder) / "model.py")
            move_together(weights_to_move)
        elif verify or done.weights:
            kept_if_equal(Path(done.output), force, write, prove, weights_to_move)
        else:
            with replacing(Path(done.output)) as part:
                part.write(done.text.encode())
    return replace(done, text=text, proof=tuple(done_proofs))
