"""Recurrent layers that an exporter wrote out in other operators, given back as one RNN, GRU or LSTM each.

A layer is recognised by what its steps compute. Each is replaced only once onnxruntime has given the same numbers for the old
operators and the new one, alone and in the whole model; all others stay unchanged, with the reason.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx

from rnnconvert.containers.addresses import local
from rnnconvert.containers.files import only_replace
from rnnconvert.containers.reading import reading
from rnnconvert.containers.temporary import new_folder
from rnnconvert.core.arrays import Array, PiecewiseArray
from rnnconvert.core.claims import proved as claimed
from rnnconvert.core.errors import RefusedError, UnreadableError, UsageError
from rnnconvert.core.malformed import MALFORMED, in_words, passes
from rnnconvert.core.weights import Layer, Recurrent
from rnnconvert.files.adapter import unique
from rnnconvert.files.load import load
from rnnconvert.formats.onnx.fuse.graph import NameTree, as_nodes, names_in, reads, splice
from rnnconvert.formats.onnx.fuse.proof import ModelPair, RunnableGraph, prove
from rnnconvert.formats.onnx.fuse.region import region, whole_inputs
from rnnconvert.formats.onnx.hoisted import hoist
from rnnconvert.formats.onnx.proto import file as onnx_file
from rnnconvert.formats.onnx.proto import write as onnx_write
from rnnconvert.formats.onnx.proto.file import DTYPES, OnnxFile
from rnnconvert.formats.onnx.proto.nodes import initializer
from rnnconvert.formats.onnx.proto.program import program as as_program
from rnnconvert.graphs.program.evaluate import UnmatchedError
from rnnconvert.graphs.program.scopes import Scope
from rnnconvert.graphs.program.shapes import Shapes
from rnnconvert.graphs.program.spread import everywhere
from rnnconvert.graphs.program.walk import walk
from rnnconvert.recognition.loops import loops
from rnnconvert.recognition.recognised import RecognisedLayer
from rnnconvert.recognition.steps import steps

_OPSETS = 7


@reading()
def fuse(
    model: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    force: bool = False,
    dry_run: bool = False,
    watch: Callable[[str], None] | None = None,
) -> Fused:
    """Write an ONNX model in which each recurrent layer is one node RNN, GRU or LSTM.

    model    a model with layers as Loop, Scan or written-out steps
    target   the model to write
    force    replace the target if it exists
    dry_run  write nothing, but still make the proof
    watch    is called with what is being done, in words

    Raises RefusedError if no layer can be replaced, MissingPackageError without onnxruntime, UnreadableError for a damaged
    file, UsageError for wrong use.
    """
    source, path = local(model), Path(target)
    if path.suffix.lower() != ".onnx":
        raise UsageError(f"{path}: the new file is an ONNX model. Give it a name that ends in .onnx")
    if os.path.realpath(source) == os.path.realpath(path):
        raise UsageError(f"{source} is both the model and the new file. Choose another name for the new one")
    if path.is_dir():
        raise UsageError(f"{path} is a folder. Name a file to write")
    if not path.parent.is_dir():
        raise UsageError(f"{path}: the folder {path.parent} does not exist. Create it first")
    if not dry_run:
        only_replace(path, force)
    say = watch or (lambda what: None)
    say("looking for layers")
    try:
        work = _Fuser(onnx_file.read(source), source, say)
        with new_folder() as folder:
            graph, done = work.fused(folder, str(path))
    except MALFORMED as error:
        if passes(error):
            raise
        raise UnreadableError(source, f"one of its nodes is not as its operator asks ({in_words(error)})") from error
    if not done.layers:
        raise _nothing(source, done)
    if not dry_run:
        onnx_write.write(path, graph.model, graph.arrays, check=False)
    return done


def _nothing(source: Path, done: Fused) -> RefusedError:
    unread = () if done.left else load(source).unread
    if unread:
        return RefusedError(f"the model {source}", "ONNX's RNN, GRU and LSTM", unread[0].rstrip("."), "Nothing was written.")
    if not done.left:
        return RefusedError(
            f"the model {source}",
            "ONNX's RNN, GRU and LSTM",
            "it has no recurrent layer in a Loop, in a Scan or in written-out steps, apart from nodes RNN, GRU and LSTM",
            "Leave it as it is.",
        )
    reasons = "; ".join(f"{name}: {reason}" for name, reason in done.left)
    return RefusedError(f"every layer of {source}", "ONNX's RNN, GRU and LSTM", reasons, "Nothing was written.")


class _Fuser:
    """A model on its way."""

    def __init__(self, file: OnnxFile, source: Path, say: Callable[[str], None]) -> None:
        self.file, self.source, self.say = file, source, say
        self.old = _copied(file)
        hoist(file.model.graph)
        program = as_program(file)
        self.scope: Scope = next(walk(program))
        self.opset = self.scope.opset
        self.left: list[tuple[str, str]] = []
        if self.opset < _OPSETS:
            raise RefusedError(
                f"the operator set {self.opset}",
                "fuse",
                "the operators RNN, GRU and LSTM are of today's form from 7 on",
                "Convert the model with onnx.version_converter first.",
            )
        self.shapes = Shapes(program)

    def candidates(self) -> list[list[RecognisedLayer]]:
        """Return every layer that is recognised, in one form or several; the others go to `left`."""
        used = set(self.scope.body.outputs).union(*(node.reads for node in self.scope.nodes))
        candidates: list[list[RecognisedLayer]] = []
        for node, outcome in loops(self.scope, self.shapes, used):
            self._note(candidates, node.label or node.kind, outcome)
        for label, forms in steps(self.scope, self.shapes):
            self._note(candidates, label, forms)
        return candidates

    def _note(
        self, candidates: list[list[RecognisedLayer]], label: str, outcome: RecognisedLayer | list[RecognisedLayer] | UnmatchedError
    ) -> None:
        if isinstance(outcome, UnmatchedError):
            self.left.append((label, str(outcome)))
        else:
            candidates.append([outcome] if isinstance(outcome, RecognisedLayer) else outcome)

    def fused(self, folder: Path, target: str) -> tuple[RunnableGraph, Fused]:
        """Return the model with every layer that is proved as one node."""
        pairs: list[tuple[int, RecognisedLayer, ModelPair]] = []
        reasons: dict[int, tuple[str, str]] = {}
        candidates = self.candidates()
        for number, forms in enumerate(candidates):
            for form in forms:
                try:
                    pairs.append((number, form, region(self.old, self.scope, self.shapes, form, self.opset)))
                except UnmatchedError as problem:
                    reasons[number] = form.label, str(problem)
        proved: dict[int, tuple[RecognisedLayer, float]] = {}
        self.say(f"proving {len(candidates)} layers")
        verdicts = prove([pair for _, _, pair in pairs], _inside(folder, "alone")) if pairs else []
        for (number, layer, _), verdict in zip(pairs, verdicts, strict=True):
            if verdict.equal:
                proved.setdefault(number, (layer, verdict.error))
            else:
                reasons[number] = layer.label, f"recognized as {_cell(layer)}, but not proved: {verdict.reason}"
        self.left += [reason for number, reason in sorted(reasons.items()) if number not in proved]
        graph, error = self.old, None
        proved_layers = list(proved.values())
        if proved_layers:
            graph, proved_layers, error = self._prove_together(proved_layers, folder)
        layers = tuple(FusedLayer(entry.label, entry.what, _cell(entry), off) for entry, off in proved_layers)
        self.left += [(f"the step before those of {entry.label}", entry.partly) for entry, _ in proved_layers if entry.partly]
        counts = (_count(self.old.model.graph), _count(graph.model.graph))
        return graph, Fused(str(self.source), target, layers, tuple(self.left), counts, error)

    def _prove_together(
        self, proved: list[tuple[RecognisedLayer, float]], folder: Path
    ) -> tuple[RunnableGraph, list[tuple[RecognisedLayer, float]], float | None]:
        """Return the new model, once it gives what the old one gave; without the layers that prevent it."""
        try:
            inputs = whole_inputs(self.old.model.graph, self.scope)
        except UnmatchedError as problem:
            raise RefusedError("the whole model", "a proof", str(problem)) from None
        self.say("proving the whole model")
        outputs = [output.name for output in self.old.model.graph.output]
        graph = self._with([layer for layer, _ in proved])
        pair = ModelPair("the whole model", self.old, graph, outputs, inputs)
        (verdict,) = prove([pair], _inside(folder, "whole"), least=2)
        if verdict.equal:
            return graph, proved, verdict.error
        if len(proved) == 1:
            self.left.append((proved[0][0].label, f"proved alone, but not in the whole model: {verdict.reason}"))
            return self.old, [], None
        accepted: list[tuple[RecognisedLayer, float]] = []
        error: float | None = None
        for number, candidate in enumerate(proved):  # one after another: those that are proved stay
            graph = self._with([each for each, _ in [*accepted, candidate]])
            pair = ModelPair("the whole model", self.old, graph, outputs, inputs)
            (verdict,) = prove([pair], _inside(folder, f"whole{number}"), least=2)
            if verdict.equal:
                accepted.append(candidate)
                error = verdict.error
            else:
                self.left.append((candidate[0].label, f"proved alone, but not in the whole model: {verdict.reason}"))
        return self._with([each for each, _ in accepted]) if accepted else self.old, accepted, error

    def _with(self, layers: Sequence[RecognisedLayer]) -> RunnableGraph:
        """Return the model with some layers as one node each."""
        model = onnx.ModelProto()
        model.CopyFrom(self.old.model)
        arrays: dict[str, Array | PiecewiseArray] = dict(self.old.arrays)
        model.ir_version = max(4, model.ir_version)  # before, every initializer had to be an input
        names = NameTree(names_in(model.graph) | set(arrays))
        nodes: list[onnx.NodeProto] = []
        supplied: list[str] = []
        for layer in layers:
            states = {letter: name for letter, name in layer.states.items() if everywhere(self.scope, name) != 0}
            new, numbers = as_nodes(layer, names.free(layer.label), self.opset, states)
            nodes += new
            arrays.update(numbers)
            supplied += [use.value for use in layer.uses]
        splice(model.graph, nodes, supplied)
        seen: set[str] = set()
        for node in model.graph.node:  # a name of a node is not to be given twice
            node.name = unique(node.name, seen)
            seen |= {node.name} - {""}
        used = {name for node in model.graph.node for name in reads(node)} | {output.name for output in model.graph.output}
        arrays = {name: array for name, array in arrays.items() if name in used}
        initializers = {tensor.name for tensor in model.graph.initializer}
        for name, array in arrays.items():
            if name not in initializers:
                model.graph.initializer.append(initializer(name, array))
        return RunnableGraph(model, arrays)


def _cell(layer: RecognisedLayer) -> str:
    single = Recurrent(layer.label, (Layer((layer.direction,)),))
    way = ", from the end" if layer.direction.reverse else ""
    after = {True: " (reset after)", False: " (reset before)", None: ""}[layer.direction.cell.reset_after]
    mask = "" if layer.mask is None else f", at the steps that {layer.mask.value!r} counts"
    return f"{layer.operator}{after} {single.layers[0].directions[0].input_size} -> {single.hidden_size}{way}{mask}"


def _inside(folder: Path, name: str) -> Path:
    path = folder / name
    path.mkdir()
    return path


def _count(graph: onnx.GraphProto) -> int:
    """Return how many nodes a graph has, those in its nodes among them; constants do not count."""
    count = 0
    for node in graph.node:
        count += node.op_type != "Constant"
        count += sum(_count(attribute.g) for attribute in node.attribute if attribute.HasField("g"))
    return count


def _copied(file: OnnxFile) -> RunnableGraph:
    """Return a model with the numbers of its initializers apart, and all others in it."""
    model = onnx.ModelProto()
    model.CopyFrom(file.model)
    arrays: dict[str, Array | PiecewiseArray] = {}
    originals = list(onnx_write.tensors(file.model))  # their identities hold while they are held
    graph = {id(tensor) for tensor in file.model.graph.initializer}
    for original, copy in zip(originals, onnx_write.tensors(model), strict=True):
        if id(original) in graph and original.data_type in DTYPES:
            onnx_write.clear(copy)
            arrays[original.name] = file.tensor(original)
        elif original.data_location == onnx.TensorProto.EXTERNAL:
            onnx_write.put(copy, file.tensor(original))
        else:
            file.restore(copy)
    return RunnableGraph(model, arrays)


# The result of fusing: the layers fused, and why others were not.


@dataclass(frozen=True)
class FusedLayer:
    """A layer that is one node now.

    name    what it was called: the node, or the first product of its steps
    was     the operators that it was made of
    cell    what it is, in words
    error   how far the new node is from the old operators on random inputs
    """

    name: str
    was: str
    cell: str
    error: float


@dataclass(frozen=True)
class Fused:
    """The report of `fuse`.

    source   the model that was read
    target   the model that was written, or would be
    layers   the layers that are one node now
    left     operations that look like a layer and stay unchanged, with the reason
    nodes    how many nodes the model had, and has
    error    how far the whole model's outputs are from what they were; None if nothing was replaced
    """

    source: str
    target: str
    layers: tuple[FusedLayer, ...]
    left: tuple[tuple[str, str], ...]
    nodes: tuple[int, int]
    error: float | None

    def as_dict(self) -> dict[str, Any]:
        """Return everything as JSON takes it."""
        left = [{"name": name, "reason": reason} for name, reason in self.left]
        layers = [vars(layer) for layer in self.layers]
        return {**vars(self), "layers": layers, "left": left, "nodes": list(self.nodes)}

    def lines(self) -> list[str]:
        """Return the report, line by line."""
        lines = [f"  {layer.name}: {layer.was} -> {layer.cell}; {claimed([layer.error])}" for layer in self.layers]
        lines += [f"  {name}: left unchanged: {reason}" for name, reason in self.left]
        lines.append(f"nodes: {self.nodes[0]} -> {self.nodes[1]}")
        if self.error is not None:
            lines.append(claimed([self.error], "the whole model gives what it gave", "in onnxruntime"))
        return lines

    def __str__(self) -> str:
        return "\n".join(self.lines())
