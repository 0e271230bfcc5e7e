"""A SavedModel as a description of the function that it serves, for models whose layers it does not state or does not state in full."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rnnconvert.containers import saved_model, tensor_bundle
from rnnconvert.core.cached import cached_property
from rnnconvert.core.errors import RefusedError, UnreadableError, UsageError
from rnnconvert.core.malformed import malformed
from rnnconvert.files.load import load_with
from rnnconvert.files.options import Options
from rnnconvert.formats.tensorflow1 import loops
from rnnconvert.formats.tensorflow1.served import FrozenFunction
from rnnconvert.formats.tensorflow1.whole_graph import GraphModel
from rnnconvert.recognition.flow import ReadProgram
from rnnconvert.scaffolding.description import Description
from rnnconvert.scaffolding.programs.reading import describe as describe_program


@dataclass(eq=False)
class ServedModel(GraphModel):
    """The function that a SavedModel serves, which states its inputs and outputs, and what callers call them."""

    frozen: FrozenFunction | None = None

    @cached_property
    def gives(self) -> Sequence[str]:
        """The outputs of the signature, in the order of their names, as TensorFlow gives them."""
        return [_output(value) for _, value in sorted(self._served.outputs.items())]

    @cached_property
    def reads(self) -> Sequence[str]:
        """The inputs of the signature, likewise."""
        return [value for _, value in sorted((key, value) for value, key in self._keys.items())]

    def input_name(self, value: str) -> str:
        """Return the callers' name for it."""
        return self._keys.get(value, value)

    @cached_property
    def _keys(self) -> Mapping[str, str]:
        return {_output(value): key for key, value in self._served.inputs.items()}

    @property
    def _served(self) -> FrozenFunction:
        assert self.frozen is not None  # a field behind those of its bases has to have a default
        return self.frozen


def describe(folder: Path, partial: bool = False) -> Description:
    """Return the model of a SavedModel by the operations of the function that it serves.

    Raises UsageError where nothing says which one it serves, RefusedError for an operation that is not known.
    """
    every = list(saved_model.read(folder))
    metas = [meta for meta in every if meta.served is not None]
    if not metas or metas[0].served is None:
        names = ", ".join(sorted({name for meta in every for name in meta.signatures}))
        which = f"signatures {names}, and none is serving_default" if names else "no signature"
        raise UsageError(f"{folder}: the SavedModel has {which}: nothing says which of its functions is the model")
    index = folder / "variables" / f"variables{tensor_bundle.SUFFIX}"
    arrays = tensor_bundle.read(index).arrays if index.is_file() else {}
    path = folder / "saved_model.pb"
    with malformed(lambda what: UnreadableError(path, f"the function that it serves is damaged: {what}"), "rnnconvert.formats.tensorflow1"):
        frozen = FrozenFunction(metas[0], metas[0].served, arrays)
    if frozen.changed:
        raise RefusedError(
            f"the operation {frozen.changed[0]!r}", "a model that begins each call anew", "it changes a variable from one call to the next"
        )
    looked = loops.read(path, frozen.graph)
    if not looked.scopes:
        raise RefusedError("its graph", "a model of layers", next(iter(looked.reasons.values()), "its operations are not followed"))
    checkpoint = load_with(folder, "keras", Options())
    read = ReadProgram(looked.scopes, {}, looked.layers)
    work = ServedModel(checkpoint.replace(read=read, layers={}, questions=(), warnings=()), frozen=frozen)
    described = describe_program(work, "", partial)
    note = f"{folder} states no layers that are known throughout: they are those that the operations of its graph show"
    return replace(described, notes=(*described.notes, note), model=work.model(str(folder)), through="model.onnx")


def _output(value: str) -> str:
    """Return a value with the number of its output, as programs know it."""
    name, _, rest = value.partition(":")
    return f"{name}:{rest.rpartition(':')[2] or 0}"
