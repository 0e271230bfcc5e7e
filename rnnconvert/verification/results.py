"""Stored results: inputs, truth, outputs, gradients, versions, device and a hash of the weights.

A machine with a GPU runs and saves, another without one compares: the file is a .safetensors whose metadata describes
each tensor; it is small, and read as cautiously as any other untrusted file.
"""

from __future__ import annotations

import dataclasses
import glob
import hashlib
import json
import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

from rnnconvert.comparison.other_layers import OtherLayers
from rnnconvert.containers import json_text, safetensors
from rnnconvert.containers.reading import writing_freely
from rnnconvert.containers.stored import FileMetadata
from rnnconvert.core.arrays import FLOATS, Array, pieces
from rnnconvert.core.errors import UnreadableError, UsageError
from rnnconvert.core.malformed import malformed
from rnnconvert.core.printable import quoted
from rnnconvert.core.reference import Gradients, Outputs
from rnnconvert.core.text_file import open_bytes
from rnnconvert.core.verdict import Limit
from rnnconvert.core.weights import Recurrent
from rnnconvert.judging.case_kinds import Case, Skipped
from rnnconvert.judging.power import Power
from rnnconvert.judging.rounding import ARITHMETICS
from rnnconvert.language import outline
from rnnconvert.rewrites import SUM_BIASES
from rnnconvert.verification.ready import LayerRun

KEY = "rnnconvert.results"
VERSION = 1


@dataclass
class ModelFile:
    """A model's file: label "A" or "B", path, format, size, and the SHA-256 of its bytes and of each layer's weights."""

    label: str
    path: str
    format: str
    bytes: int
    sha256: str
    weights: dict[str, str] = field(default_factory=dict)


@dataclass
class ModelRun:
    """The evidence on a joined layer from a run of the whole source, from the first of the layers that were joined to the last.

    status    "equal"; "not equal"; or "not run": layer by layer they may be equal, and what lies between them was not run
    reason    why it is not equal, or was not run
    error     the largest absolute error
    allowed   the allowance at that place
    executor  the executor that ran the source
    notes     notes for a reader on the run
    models    the labels of the models that ran
    """

    status: Literal["equal", "not equal", "not run"]
    reason: str = ""
    error: float = 0.0
    allowed: float = 0.0
    executor: str = ""
    notes: tuple[str, ...] = ()
    models: tuple[str, ...] = ()


@dataclass
class ModelsCompared:
    """The comparison of both models, run whole on the same inputs.

    status     "equal"; "not equal"; or "not compared"
    reason     why it is not equal, or was not compared
    error      the largest absolute error
    allowed    the allowance at that place
    outputs    the outputs that were compared
    alone      outputs that only one model has, in words
    bare       whether one of them, but not the other, consists only of recurrent layers
    notes      how the call of B differs from the call of A
    executors  the executors that ran them, A's first
    explained  the kinds of limits that explain the difference: without them the models give the same
    unproved   what their equality does not prove, in words: rounding may be as large as the values
    integers   whether one of them computed with integers, which may be why they differ
    """

    status: Literal["equal", "not equal", "not compared"]
    reason: str = ""
    error: float = 0.0
    allowed: float = 0.0
    outputs: tuple[str, ...] = ()
    alone: tuple[str, ...] = ()
    bare: bool = False
    notes: tuple[str, ...] = ()
    executors: tuple[str, ...] = ()
    explained: tuple[str, ...] = ()
    unproved: tuple[str, ...] = ()
    integers: bool = False

    @property
    def ran_whole(self) -> bool:
        """Whether both models gave the same in all of their outputs."""
        return self.status == "equal" and not self.alone


@dataclass
class Cast:
    """The outputs of B's own weights, if these are A's, each rounded to another element type or as a rewrite rounds it.

    dtype   B's element type
    truth   outputs of the float64 reference on B's weights, by case; floors as in LayerResults
    error   how far they are at most from the outputs of A's weights: the cost of the type
    """

    dtype: str
    truth: dict[str, Outputs] = field(default_factory=dict)
    floors: dict[str, dict[str, Outputs]] = field(default_factory=dict)
    error: float = 0.0


@dataclass
class LayerResults:
    """A layer: its cases, the truth, what rounding explains, and the outputs of every executor.

    whole    the evidence from a run of the whole source, if layers of a file were joined; None for a single layer of its file
    refuted  why it is not equal, even if its outputs are: weights that are not the other model's
    power    what the inputs exercise; None if unknown
    cast     the outputs of B's own weights, if rounding changed them; None if its runs are compared with A's truth
    limits   what the comparison of this layer left out or leaves open
    stated   what the layer of each model states, without its numbers, by the model's label (rnnconvert.language.outline)
    truth    outputs of the float64 reference, by case
    floors   outputs of the reference in each element type that was run, by type and case
    """

    name: str
    description: str
    counterpart: tuple[str, ...] = ()
    stated: dict[str, str] = field(default_factory=dict)
    cases: list[Case] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    truth: dict[str, Outputs] = field(default_factory=dict)
    floors: dict[str, dict[str, Outputs]] = field(default_factory=dict)
    runs: list[LayerRun] = field(default_factory=list)
    whole: ModelRun | None = None
    refuted: list[str] = field(default_factory=list)
    limits: list[Limit] = field(default_factory=list)
    cast: Cast | None = None
    power: Power | None = None

    def basis(self, model: str) -> LayerResults | Cast:
        """Return the basis of comparison for the runs of a model."""
        return self if self.cast is None or model != "B" else self.cast


@dataclass
class Results:
    """Runs of the layers of one model, or of two.

    limits   what was left out of the files
    others   what a comparison of the layers without recurrence showed; None where there was none, as beside kept results
    models_compared  what both models gave when they ran whole; None where there is one, or one of them did not run
    missing_packages  what pip has to install so that a framework runs the files
    """

    created: str
    rnnconvert: str
    settings: dict[str, Any] = field(default_factory=dict)
    models: list[ModelFile] = field(default_factory=list)
    layers: dict[str, LayerResults] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    limits: list[Limit] = field(default_factory=list)
    others: OtherLayers | None = None
    models_compared: ModelsCompared | None = None
    missing_packages: list[str] = field(default_factory=list)

    def save(self, path: str | Path) -> None:
        """Write it as one .safetensors file. Raises UsageError if that cannot be written."""
        arrays: dict[str, Array] = {}
        text = json.dumps({"version": VERSION, "results": _plain(self, "", arrays)})
        with writing_freely():
            safetensors.write(path, arrays, {KEY: text})


def read(path: str | Path) -> Results | None:
    """Return saved results, or None if the file is a model instead.

    Raises UnreadableError if it is damaged, or of an unknown version.
    """
    if Path(path).suffix != ".safetensors" or not Path(path).is_file():
        return None
    stored = safetensors.read(Path(path))
    text = stored.metadata_as(FileMetadata).get("__metadata__", {}).get(KEY)
    if text is None:
        return None
    with malformed(lambda what: UnreadableError(path, f"its results are damaged: {what}"), "rnnconvert.verification"):
        document = json_text.loads(text, path)
        if document["version"] != VERSION:
            raise UnreadableError(path, f"its results are of version {document['version']}, but this rnnconvert reads version {VERSION}")
        results: Results = _filled(Results, document["results"], stored.arrays)
        try:
            _cohere(results)
        except UsageError as error:
            raise UnreadableError(path, f"its results are damaged: {error}") from None
    return results


def _plain(value: Any, name: str, arrays: dict[str, Array]) -> Any:
    """Return a value as JSON can hold it; its arrays are stored by their place in it."""
    if dataclasses.is_dataclass(value):
        return {f.name: _plain(getattr(value, f.name), f"{name}/{f.name}", arrays) for f in dataclasses.fields(value)}
    if isinstance(value, np.ndarray):
        arrays[name] = np.ascontiguousarray(value)
        return {"array": name}
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Mapping):
        if value and all(isinstance(key, tuple) for key in value):
            return [[list(key), _plain(item, f"{name}/{'.'.join(key)}", arrays)] for key, item in value.items()]
        return {str(key): _plain(item, f"{name}/{key}", arrays) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item, f"{name}/{number}", arrays) for number, item in enumerate(value)]
    return value


def _filled(kind: Any, value: Any, arrays: Mapping[str, Array]) -> Any:
    """Return the inverse of `_plain`, guided by the types of the fields. Raises TypeError for a value of another type."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if kind is Any:
        return value
    if origin in (typing.Union, types.UnionType):
        return None if value is None else _filled(next(argument for argument in arguments if argument is not type(None)), value, arrays)
    if kind is np.ndarray:
        return np.asarray(arrays[value["array"]])
    if dataclasses.is_dataclass(kind):
        # Array is spelled as a text, which no "| None" can be put behind.
        hints = typing.get_type_hints(kind, localns={"Array": np.ndarray})
        constructor: Any = kind
        return constructor(**{name: _filled(hints[name], item, arrays) for name, item in value.items()})
    if origin in (tuple, list):
        _expect(isinstance(value, list), kind, value)
        kinds = arguments if len(arguments) == len(value) and Ellipsis not in arguments else [arguments[0]] * len(value)
        return origin(_filled(item_kind, item, arrays) for item_kind, item in zip(kinds, value, strict=True))
    if isinstance(origin, type) and issubclass(origin, Mapping):
        if isinstance(value, list):
            return {tuple(map(str, key)): _filled(arguments[1], item, arrays) for key, item in value}
        return {key: _filled(arguments[1], item, arrays) for key, item in value.items()}
    if origin is typing.Literal:
        _expect(value in arguments, kind, value)
    else:
        _expect(isinstance(value, (int, float) if kind is float else kind), kind, value)
    return value


def _expect(true: bool, kind: Any, value: Any) -> None:
    if not true:
        raise TypeError(f"{str(value)[:80]!r} is not a {getattr(kind, '__name__', kind)}")


def _cohere(results: Results) -> None:
    """Raise ValueError if a run or a case refers to something that is missing."""
    for layer in results.layers.values():
        names = {case.name for case in layer.cases}
        _agree(names == set(layer.truth), f"the truth of {quoted(layer.name)} does not match its cases")
        for text in layer.stated.values():
            outline.from_text(text)
        for case in layer.cases:
            truth = layer.truth[case.name]
            fits = case.x.ndim == truth.y.ndim == 3 and case.x.shape[:2] == truth.y.shape[:2]
            fits = fits and (case.lengths is None or case.lengths.shape == case.x.shape[1:2])
            _agree(fits, f"the case {case.name!r} and its truth have other sizes")
        for basis in (layer, layer.cast):
            _agree(basis is None or set(basis.truth) == names, f"the truth of {quoted(layer.name)} does not match its cases")
            for kind, floors in () if basis is None else basis.floors.items():
                _agree(kind in ARITHMETICS and set(floors) == names, f"the floors of {kind!r} do not match the cases")
        for run in layer.runs:
            agrees = run.dtype in FLOATS and run.rounding in layer.basis(run.model).floors
            agrees = agrees and set(run.outputs) | set(run.gradients) <= names
            _agree(agrees, f"the outputs of {run.executor} do not match the cases")
            for graded in run.gradients.values():
                shapes = [_shapes(gradients) for gradients in (graded.found, graded.truth, graded.floor)]
                _agree(shapes[0] == shapes[1] == shapes[2], f"the gradients of {run.executor} have other sizes")


def _agree(true: bool, problem: str) -> None:
    if not true:
        raise ValueError(problem)


def _shapes(gradients: Gradients) -> list[Any]:
    states = [[state.shape for state in states] for states in (gradients.hidden, gradients.cell)]
    return [gradients.x.shape, states, [{key: a.shape for key, a in arrays.items()} for arrays in gradients.weights]]


def hash_of(stack: Recurrent) -> str:
    """Return the SHA-256 of what a stack computes: its cells and every canonical number, independent of the file that holds them.

    Biases of which only the sum counts are summed, and biases, peepholes and states that are all zeros are as good as none:
    formats differ on what they store.
    """
    digest = hashlib.sha256()
    join = stack.join if stack.num_layers > 1 else "end"  # where directions meet is one place in a single layer
    digest.update(f"{join} {stack.output_order} {[layer.merge for layer in stack.layers]}".encode())
    for index, number, direction in stack.directions():
        digest.update(f"{index} {number} {direction.cell} {direction.reverse}".encode())
        if not SUM_BIASES.applies(direction):
            direction = SUM_BIASES.apply(direction)
        for key in sorted(direction.arrays):
            numbers = np.asarray(direction.arrays[key])
            if key[0] not in ("input", "recurrent", "projection") and not numbers.any():
                continue
            digest.update(f"{key} {numbers.shape} {numbers.dtype.newbyteorder('=')}".encode())
            for piece in pieces(numbers):
                digest.update(piece.astype(numbers.dtype.newbyteorder("<"), copy=False).view(np.uint8).data)
    for matrix in stack.readout:
        digest.update(np.ascontiguousarray(np.asarray(matrix)).tobytes())
    return digest.hexdigest()


def hash_file(path: str | Path, companions: Sequence[str] = ()) -> tuple[int, str]:
    """Return the size and SHA-256 of a file; for a folder, or files that share a prefix, of all of them in order.

    companions  other files that belong to it and are hashed behind it: external data
    """
    digest, size = hashlib.sha256(), 0
    place = Path(path)
    inside = place.rglob("*") if place.is_dir() else place.parent.glob(f"{glob.escape(place.name)}.*")
    files = [place] if place.is_file() else sorted(p for p in inside if p.is_file())
    hashed = {file.resolve() for file in files}
    for file in [*files, *(companion for companion in map(Path, companions) if companion.resolve() not in hashed)]:
        with open_bytes(file) as stream:
            while block := stream.read(1 << 20):
                digest.update(block)
                size += len(block)
    return size, digest.hexdigest()
