"""Whole models as descriptions: of files, of weights and the file that states their model, and of live modules."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol, TypedDict

from rnnconvert.containers.addresses import local
from rnnconvert.containers.reading import reading
from rnnconvert.core.errors import RefusedError, UsageError
from rnnconvert.core.remedies import Flag
from rnnconvert.files.load import model_path
from rnnconvert.language import registry
from rnnconvert.models.model import Model
from rnnconvert.models.readers import model_of
from rnnconvert.models.runners import NotRunError, open_file, runners
from rnnconvert.scaffolding import kinds
from rnnconvert.scaffolding.composed import recompose
from rnnconvert.scaffolding.description import Description, prune
from rnnconvert.scaffolding.fixed import FixedInputs
from rnnconvert.scaffolding.needs import StatedAxes, stated_axes
from rnnconvert.scaffolding.ordered import ordered, unstated
from rnnconvert.scaffolding.simplify import simplify


class Source(Protocol):
    """A room's module `scaffold_from`: whole models as descriptions.

    ASKS says what else `describe` takes: "config", the file that states the model of weights alone; "axes", how many axes each input has,
    which some files do not state; or "fix", the values of inputs that are fixed, which its description has with their types.
    """

    NAME: str

    def describe(self, path: Path, partial: bool = False, **asked: Any) -> Description:
        """Return the model of a file; `partial` leaves out what is not known."""
        ...


class LiveSource(Source, Protocol):
    """A source whose live models can be described, too."""

    def takes(self, value: Any) -> bool:
        """Return whether a live object is this framework's, without importing it."""
        ...

    def describe_live(self, value: Any, example: Sequence[Any], partial: bool = False) -> Description:
        """Return the model of a live object, as it runs on an example's inputs; `partial` leaves out what is not known."""
        ...


@dataclass(frozen=True)
class DescribedSource:
    """A model that is described: a file or a live one.

    value        the path or the object
    label        what messages and what is written call it
    description  its model
    model        what holds its weights
    open         returns the model as it runs: the object, or the file in its executor
    """

    value: Any
    label: str
    description: Description
    model: Model
    open: Callable[[], Any]

    @property
    def title(self) -> str:
        """The path, or what the object is called."""
        return str(self.value) if isinstance(self.value, Path) else self.label


class SourceFacts(TypedDict, total=False):
    """The facts of a model that its source does not state; see `described_source`."""

    example: Any
    config: str | os.PathLike[str] | None
    axes: int | StatedAxes | None
    chain: str | None
    fix: FixedInputs | None


def described_source(
    source: Any,
    partial: bool = False,
    /,
    example: Any = None,
    config: str | os.PathLike[str] | None = None,
    axes: int | StatedAxes | None = None,
    chain: str | None = None,
    fix: FixedInputs | None = None,
) -> DescribedSource:
    """Return a model with its description.

    source   a file, or a live model
    partial  leave out what is not known
    example  for a live model the inputs to follow it on, one for each argument
    config   for weights alone the file that states the model
    axes     how many axes each input has, where the file does not state it, or their lengths: one number for all, or a list
    chain    for weights alone the order of their layers: see rnnconvert.scaffolding.ordered
    fix      the values of inputs that are fixed, by their names

    Raises UsageError for a format that states no model, RefusedError for a layer that is not known.
    """
    stated = () if axes is None else stated_axes((axes,) if isinstance(axes, int) else axes)
    rooms: list[Any] = [room for room in sources().values() if hasattr(room, "takes")]
    live: LiveSource | None = next((room for room in rooms if room.takes(source)), None)
    if live is not None:
        if example is None:
            raise UsageError("A live module is followed on an example: hand in example=(its first input, ...)")
        if chain is not None:
            raise UsageError("chain= decides nothing: a live module states the order of its layers. Leave it out")
        if stated:
            raise UsageError("axes= decides nothing: a live module's example has them. Leave it out")
        if fix:
            raise UsageError("fix= decides nothing: a live module's example has the values of its numbers. Leave it out")
        inputs = example if isinstance(example, (list, tuple)) else (example,)
        model = model_of(source)
        description = _named(live.describe_live(source, inputs, partial), model, partial)
        return DescribedSource(source, type(source).__name__, description, model, lambda: source)
    if example is not None:
        raise UsageError("example= decides nothing: it is for live modules, and a file states its own inputs")
    path = local(source)
    if chain is not None:
        if config is not None or stated or fix:
            raise UsageError(f"{Flag('config')}, {Flag('axes')} and {Flag('fix')} decide nothing beside {Flag('chain')}. Leave them out")
        return _ordered_source(path, chain)
    with reading():  # the weights and the model are read from one look at the file
        model, description = described(path, None if config is None else local(config), partial, stated, fix or {})
    options = {key: Path(file) for key, file in description.options.items()}

    def run() -> Any:
        try:
            opened = open_file(model.framework, model_path(path), **options)
        except NotRunError as error:
            raise NotRunError(f"{str(error).rstrip('.')}. {without_a_proof()}") from error
        opened.fix(description.fixed)
        as_described = getattr(runners().get(model.framework), "as_described", None)
        return opened if as_described is None else as_described(opened)

    return DescribedSource(path, path.name, description, model, run)


def without_a_proof() -> str:
    """Return the advice for a source that does not run, in a sentence."""
    return f"Leave out {Flag('verify')} to write it without a proof, and compare it with what runs the source."


def _ordered_source(path: Path, chain: str) -> DescribedSource:
    """Return weights alone with the model that a stated order of their layers makes. Raises UsageError for a file that states its own."""
    weights = model_of(path)
    if _states_a_model(path, weights.framework):
        raise UsageError(f"{Flag('chain')} decides nothing: {path} states the order of its layers. Leave it out")
    model, description = ordered(weights, chain)
    named = _named(description, model, False)
    check_known(model, named)

    def run() -> Any:
        opening = getattr(runners().get(weights.framework), "open_chain", None)
        if opening is None:
            raise UsageError(
                f"{path} holds weights, and states no model that runs; nothing builds a chain of its layers to compare with. Leave out "
                f"{Flag('verify')}, and compare with your own code"
            )
        return opening(model_path(path), chain)

    return DescribedSource(path, path.name, named, model, run)


def check_known(model: Model, description: Description) -> None:
    """Raise RefusedError for a recurrent layer of a description of which the file states something that nobody here knows."""
    recurrent = {node.source for node in description.scope.every_node() if isinstance(node.kind, kinds.Recurrent)}
    units = {name for layer in recurrent for name in description.names.get(layer, (layer,))}
    for unit in model.units:
        for each in unit.stack.unconvertible if unit.stack is not None and unit.name in units else ():
            if each.unknown:
                remedy = "Remove it from the file if the layer computes the same without it"
                raise RefusedError(each.feature, "a model of layers", each.reason, remedy, unit.name)


def _states_a_model(path: Path, framework: str) -> bool:
    """Return whether a file states its model, known or not."""
    source = sources().get(framework)
    try:
        if source is not None:
            source.describe(model_path(path))
    except UsageError:
        return False
    except RefusedError:
        return True
    return source is not None


def sources() -> dict[str, Source]:
    """Return the frameworks whose models are written, by name."""
    return registry.named("scaffold_from")


def described(
    path: Path, config: Path | None = None, partial: bool = False, axes: StatedAxes = (), fix: FixedInputs = MappingProxyType({})
) -> tuple[Model, Description]:
    """Return the model that holds a file's weights, and its description, each layer with the name by which `load_into` knows it.

    config   for weights alone the file that states the model
    partial  leave out unknown layers
    axes     how many axes each input has, if the file does not state it
    fix      the values of inputs that are fixed

    Raises UsageError for a format that states no model: UnstatedOrderError for weights whose layers can be put in an order.
    """
    model = model_of(path, settings=() if config is None else (f"config={config}",))
    try:
        description = _description(path, model.framework, config, partial, axes, fix)
        if description.fixed and not description.scope.inputs:
            raise UsageError(f"{Flag('fix')} states every input of {path}. Leave one out")
        named = _named(description, description.model or model, partial)
        check_known(model, named)
        stated = {unit.name for unit in model.units}
        if all(words and words[0] in stated for words in named.names.values()):
            named = replace(named, through="")
        return description.model or model, named
    except UsageError as error:
        asked = unstated(model, error) if config is None and not axes and not fix else None
        raise asked or error from None


def _description(path: Path, framework: str, config: Path | None, partial: bool, axes: StatedAxes, fix: FixedInputs) -> Description:
    """Return the model of a file. Raises UsageError for a format that states none."""
    source = sources().get(framework)
    if source is None:
        raise UsageError(
            f"{path}: whole models of the format {framework!r} are not read. Those of these formats are, from files that state their "
            f"layers: {', '.join(sources())}"
        )
    stated: dict[str, Any] = {
        key: value for key, value in (("config", config), ("axes", axes or None), ("fix", fix or None)) if value is not None
    }
    for word in stated.keys() - getattr(source, "ASKS", ()):
        raise UsageError(f"{Flag(word)} decides nothing: {path} states {_STATED[word]}. Leave it out")
    return source.describe(model_path(path), partial, **stated)


_STATED = {"config": "its model", "axes": "the axes of its inputs", "fix": "what it computes for every input"}


def _named(description: Description, model: Model, partial: bool) -> Description:
    """Return a description whose layers have the names that `load_into` calls them by."""
    recompose(description.scope)
    simplify(description.scope)
    prune(description.scope)
    units = {name: name for name in (*model.arrays, *(unit.name for unit in model.units))} | _arrays(model)
    names = {
        layer: tuple(units[word] for word in listed[:1])
        for layer, words in description.names.items()
        if (listed := [word for word in words if word in units])
    }
    fixed = [f"its input {name} is fixed at {value.tolist()}" for name, value in description.fixed.items()]
    return replace(description, names=names, partial=partial, notes=(*fixed, *description.notes))


def _arrays(model: Model) -> dict[str, str]:
    """Return the arrays of layers that are not known otherwise, by the layers' names and what the file calls the arrays."""
    names = {}
    for unit in model.units:
        if unit.kinds == ("array",) and (owner := model.classes.get(unit.name)):
            names[f"{owner[0]}/{unit.name.rpartition('/')[2].partition(':')[0]}"] = unit.name
    return names
