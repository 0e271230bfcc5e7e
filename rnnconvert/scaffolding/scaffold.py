"""A whole model's file as a file of Python that makes the same model in another framework, filled and proved."""

from __future__ import annotations

import contextvars
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from rnnconvert.containers import temporary
from rnnconvert.containers.addresses import local
from rnnconvert.containers.files import move, only_replace, replacing
from rnnconvert.containers.temporary import new_folder, room_for
from rnnconvert.core.arguments import checked, unknown
from rnnconvert.core.arrays import Array
from rnnconvert.core.errors import NotEqualError, RefusedError, RnnConvertError, UsageError, unwritable
from rnnconvert.core.remedies import Flag, InPart
from rnnconvert.files.load import model_path
from rnnconvert.judging.comparison import OutputComparison
from rnnconvert.language import registry
from rnnconvert.models.model import Model
from rnnconvert.models.readers import model_of
from rnnconvert.models.runners import FileModel, runners
from rnnconvert.models.verified import kept_if_equal
from rnnconvert.models.verify import YOURS, ModelCalls, WholeModels, compared
from rnnconvert.running.inputs import read_inputs
from rnnconvert.scaffolding.composed import recompose
from rnnconvert.scaffolding.description import DescribedModel, Description, prune
from rnnconvert.scaffolding.inputs import drawn
from rnnconvert.scaffolding.simplify import simplify
from rnnconvert.scaffolding.written import FilledModel, ModelMaker, WrittenSource, filled_model

PathLike = str | os.PathLike[str]


class Source(Protocol):
    """A room's module `scaffold_from`: whole models as descriptions.

    With ASKS_AXES some of its files do not state how many axes their inputs have, and `describe` takes the numbers, too.
    """

    NAME: str

    def describe(self, path: Path, config: Path | None = None, partial: bool = False, *axes: Sequence[int]) -> Description:
        """Return the model of a file, or of weights and the file that states their model; `partial` leaves out what is not known."""
        ...


class LiveSource(Source, Protocol):
    """A source whose live models can be described, too."""

    def takes(self, value: Any) -> bool:
        """Return whether a live object is this framework's, without importing it."""
        ...

    def describe_live(self, value: Any, example: Sequence[Any], partial: bool = False) -> Description:
        """Return the model of a live object, as it runs on an example's inputs; `partial` leaves out what is not known."""
        ...


class Target(ModelMaker, Protocol):
    """A room's module `scaffold_to`: descriptions as files of Python, and their models."""

    WEIGHTS: tuple[str, ...]
    """The endings of the framework's own files of weights."""

    def write(self, description: Description, source: str) -> tuple[str, tuple[str, ...]]:
        """Return the text of a file, and what is left out of it."""
        ...


@dataclass(frozen=True)
class Scaffolded:
    """What became of a model.

    source    the file that was read
    target    the framework
    text      the file of Python
    layers    how many layers it has
    notes     what a reader of the model should know
    output    where the file was written, "" where it was not
    weights   where the weights were written, ""
    proof     what both models gave, each time on other inputs
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
        """Return what was done, line by line."""
        code = sum(1 for line in self.text.splitlines() if line.strip())
        lines = [f"{self.layers} layer{'' if self.layers == 1 else 's'}, {code} lines of {self.target}"]
        lines += [f"left out: {why}" for why in self.missing]
        lines += [f"note: {note}" for note in self.notes]
        return lines + _proof_in_lines(self.proof)

    def __str__(self) -> str:
        return "\n".join(self.lines())


def _proof_in_lines(proof: Sequence[WholeModels]) -> list[str]:
    """Return one verdict for all runs, and of each output the run that came nearest to what is allowed."""
    if not proof:
        return []
    worst: dict[str, OutputComparison] = {}
    for comparison in (comparison for entry in proof for comparison in entry.comparisons):
        nearest = worst.setdefault(comparison.output, comparison)
        worst[comparison.output] = max(nearest, comparison, key=lambda each: each.ratio)
    headline, *_ = str(min(proof, key=lambda entry: entry.equal)).splitlines()
    unseen = dict.fromkeys(text for entry in proof for text in entry.unseen)
    notes = dict.fromkeys(note for entry in proof for note in entry.notes)
    _, *lines = str(WholeModels(tuple(worst.values()), tuple(unseen), tuple(notes))).splitlines()
    on_yours = " and on yours" if any(comparison.case == YOURS for entry in proof for comparison in entry.comparisons) else ""
    runs = f"{len(proof)} runs of both models, on random inputs of several sizes{on_yours}"
    return [f"{headline}: {runs}; of each output the worst run:", *lines]


def targets() -> dict[str, Target]:
    """Return the frameworks that models are written for, by name."""
    return registry.named("scaffold_to")


@checked
def scaffold(
    source: Any,
    to: str,
    output: PathLike | None = None,
    *,
    example: Any = None,
    config: PathLike | None = None,
    axes: int | Sequence[int] | None = None,
    weights: PathLike | None = None,
    verify: bool | PathLike = False,
    partial: bool = False,
    force: bool = False,
) -> Scaffolded:
    """Write the model of a file, or a live module, as a file of Python that makes the same model in another framework.

    source   a whole model: a file of Keras, ONNX, TorchScript or torch.export, weights alone, or a live torch.nn.Module
    to       the framework to write for: "pytorch", "keras" or "flax" (its nnx)
    output   the .py file to write; None returns its text alone
    example  for a live module the inputs to follow it on, one for each argument: sizes that it does not depend on stay open
    config   for weights alone the file that states the model, as model.to_json wrote it; without it the only one next to them that
             fits is read
    axes     how many axes each input has, one number for all or a list: of a TorchScript file, which does not state it
    weights  where to write the weights in the framework's own file, so that nothing else is needed
    verify   run the source in its framework and the written model on random inputs of several sizes, and keep the files only if
             they are equal; a .npy or .npz file of inputs, by their names or in the model's order: on these, too
    partial  write what is known: a layer or an operator that is not becomes a line that raises NotImplementedError
    force    replace files that exist

    The written file has a class or function for each model, a layer for each of the source's, and `load(source)`, which fills it.

    Raises RefusedError for a layer or a setting that cannot be written, by name; UsageError for a file without a model, or for a proof
    of one that is written in part; NotEqualError where the proof fails. Nothing is written then.
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
    place = None if config is None else local(config)
    stated = () if axes is None else (axes,) if isinstance(axes, int) else tuple(axes)
    if any(number < 1 for number in stated):
        raise UsageError(f"{Flag('axes')} is how many axes each input has, 1 or more, got {', '.join(map(str, stated))}")
    try:
        giver = _giver(source, example, place, partial, stated)
        text, missing = written.write(giver.description, giver.label)
    except RefusedError as error:
        remedy = error.remedy or ("" if partial else _in_part(source, example, place, written, stated))
        raise RefusedError(error.feature, f"a model written for {written.TITLE}", error.reason, remedy, error.layer) from None
    if verify and missing:
        raise UsageError(
            f"{giver.label} is written in part, and what is left out cannot run: {missing[0]}. "
            f"Leave out {Flag('verify')}, and compare the model once it is complete"
        )
    done = Scaffolded(
        str(giver.value) if isinstance(giver.value, Path) else giver.label,
        to,
        text,
        _count(giver.description.scope),
        giver.description.notes,
        str(output or ""),
        str(weights or ""),
        missing=missing,
    )
    if not verify and weights is None and output is None:
        return done
    return _written_and_proved(done, written, giver, verify, force)


@dataclass(frozen=True)
class _Giver:
    """What is written: a file or a live model.

    value        the path or the object
    label        what messages and the written file call it
    description  its model
    open         returns the model as it runs: the object, or the file in its executor
    """

    value: Any
    label: str
    description: Description
    open: Callable[[], Any]


def _in_part(source: Any, example: Any, config: Path | None, target: Target, axes: Sequence[int]) -> str:
    """Return what to do about a refusal, where leaving out the layer lets the rest be written."""
    try:
        target.write(_giver(source, example, config, True, axes).description, "")
    except RnnConvertError:
        return ""
    return f"{InPart()} writes the rest, with a line that raises NotImplementedError in its place."


def _giver(source: Any, example: Any, config: Path | None, partial: bool = False, axes: Sequence[int] = ()) -> _Giver:
    live = next((room for room in sources().values() if hasattr(room, "takes") and room.takes(source)), None)
    if live is not None:
        if example is None:
            raise UsageError("A live module is followed on an example: hand in example=(its first input, ...)")
        if axes:
            raise UsageError("axes= decides nothing: a live module's example has them. Leave it out")
        inputs = example if isinstance(example, (list, tuple)) else (example,)
        description = _named(live.describe_live(source, inputs, partial), model_of(source), partial)  # type: ignore[attr-defined]
        return _Giver(source, type(source).__name__, description, lambda: source)
    if example is not None:
        raise UsageError("example= decides nothing: it is for live modules, and a file states its own inputs")
    path = local(source)
    origin, description = described(path, config, partial, axes)
    options = {key: Path(file) for key, file in description.options.items()}
    return _Giver(path, path.name, description, lambda: runners()[origin].open_file(model_path(path), **options))


def sources() -> dict[str, Source]:
    """Return the frameworks whose models are written, by name."""
    return registry.named("scaffold_from")


def described(path: Path, config: Path | None = None, partial: bool = False, axes: Sequence[int] = ()) -> tuple[str, Description]:
    """Return the format of a file and its model, each layer called as `load_into` calls it.

    config   for weights alone the file that states the model
    partial  leave out what is not known
    axes     how many axes each input has, where the file does not state it

    Raises UsageError for a format that states no model.
    """
    model = model_of(path, settings=() if config is None else (f"config={config}",))
    source = sources().get(model.framework)
    if source is None:
        raise UsageError(
            f"{path}: format {model.framework!r} is not written as a model. "
            f"Models come from files that state their layers: {', '.join(sources())}"
        )
    if axes and not getattr(source, "ASKS_AXES", False):
        raise UsageError(f"{Flag('axes')} decides nothing: {path} states the axes of its inputs. Leave it out")
    description = source.describe(model_path(path), config, partial, *([axes] if axes else []))
    return model.framework, _named(description, model, partial)


def _named(description: Description, model: Model, partial: bool) -> Description:
    """Return a description whose layers have the names that `load_into` calls them by."""
    recompose(description.scope)
    simplify(description.scope)
    prune(description.scope)
    units = {unit.name: unit.name for unit in model.units} | _arrays(model)
    names = {
        layer: tuple(units[word] for word in listed[:1])
        for layer, words in description.names.items()
        if (listed := [word for word in words if word in units])
    }
    return replace(description, names=names, partial=partial)


def _arrays(model: Model) -> dict[str, str]:
    """Return the only arrays of layers that are not known otherwise, by the layers' names and what the framework calls the arrays."""
    loose: dict[str, list[str]] = {}
    for unit in model.units:
        if unit.kinds == ("array",) and (owner := model.classes.get(unit.name)):
            loose.setdefault(owner[0], []).append(unit.name)
    words = ("scale", "concat_score_weight")
    return {f"{layer}/{word}": arrays[0] for layer, arrays in loose.items() if len(arrays) == 1 for word in words}


def _seen(description: Description) -> set[str]:
    """Return the recurrent layers whose outputs both frameworks show alike: others are turned, masked or joined around the layer."""
    calls: dict[str, list[bool]] = {}
    for scope in (*description.scope.inner(), description.scope):
        for node in scope.nodes:
            if node.kind == "recurrent":
                plain = not node["backwards"] and not node["stateful"] and node["merge"] == "concat" and not node.named.get("mask")
                path = f"{scope.path}/{node.layer}".lstrip("/")
                calls.setdefault(description.names.get(path, ("",))[0], []).append(plain)
    return {name for name, plain in calls.items() if plain == [True]}


def _count(scope: DescribedModel) -> int:
    return len({node.layer for node in scope.nodes if node.layer and node.kind != "model"}) + sum(
        len({node.layer for node in inner.nodes if node.layer and node.kind != "model"}) for inner in scope.inner()
    )


_SMALLER = (0.1, 0.01)
"""By what inputs are multiplied, in turn, where the values that the usual ones lead to explode."""


def _telling(run: Callable[[list[Array], list[Array]], WholeModels], *calls: list[Array]) -> WholeModels:
    """Return what two models show on inputs, or on the largest smaller ones on which rounding is not as large as the values."""
    at_full_size = run(*calls)
    if at_full_size.telling:
        return at_full_size
    for factor in _SMALLER:
        smaller = [[(x * factor).astype(x.dtype) if x.dtype.kind == "f" else x for x in arrays] for arrays in calls]
        proof = run(*smaller)
        if proof.telling:
            note = f"inputs are {factor:g} times the usual ones, on which the values grow until rounding is as large as they are"
            return replace(proof, notes=(*proof.notes, note))
    return at_full_size


def _written_and_proved(done: Scaffolded, target: Target, giver: _Giver, verify: bool | PathLike, force: bool) -> Scaffolded:
    """Write the files, once they are proved where that is asked for."""
    proofs: list[WholeModels] = []
    user_inputs = None if isinstance(verify, bool) else dict(read_inputs(verify))

    def write(file: Path) -> None:
        file.write_text(done.text, encoding="utf-8")

    settings = tuple(f"{key}={file}" for key, file in giver.description.options.items())

    def prove(file: Path) -> None:
        with ThreadPoolExecutor(1) as pool:  # both frameworks are imported at a time, each in its process
            opening = pool.submit(contextvars.copy_context().run, giver.open) if verify else None
            with filled_model(target, WrittenSource(file, giver.value, settings, not done.missing)) as model:
                if opening is not None:
                    compare(model, opening.result())
                if done.weights:
                    save(model, Path(done.weights))

    def compare(model: FilledModel, source: Any) -> None:
        seen = _seen(giver.description)
        pairs = [(ours, theirs) for ours, theirs in model.pairs if theirs in seen]
        shapes = source.shapes if isinstance(source, FileModel) else ()

        def run(inputs: Any, *before: Any, label: str = "drawn inputs") -> WholeModels:
            return compared(model.value, source, pairs, ModelCalls(inputs, before=before, label=label))

        for inputs, earlier in zip(drawn(giver.description, shapes=shapes), drawn(giver.description, 100, shapes), strict=True):
            # The second call: states would show in it.
            agreed(_telling(run, inputs, earlier))
        if user_inputs is not None:
            agreed(run(user_inputs, label=YOURS))

    def agreed(proof: WholeModels) -> None:
        proofs.append(proof)
        if not proof:
            raise NotEqualError(done.output or done.source, proof)

    def save(model: FilledModel, weights: Path) -> None:
        try:
            with new_folder(weights) as folder:
                model.save(folder / weights.name)
                move(folder / weights.name, weights)
        except RnnConvertError:  # one of a missing file is an OSError, too
            raise
        except OSError as error:
            raise unwritable(weights, error, temporary.remedy(weights, error)) from None

    if not done.output:
        with room_for(done.source), new_folder() as folder:
            write(Path(folder) / "model.py")
            prove(Path(folder) / "model.py")
    elif verify or done.weights:
        kept_if_equal(Path(done.output), force, write, prove)
    else:
        with replacing(Path(done.output)) as part:
            part.write(done.text.encode())
    return replace(done, proof=tuple(proofs))
