"""A whole Keras model as one ONNX graph, from file to file, without Keras: each recurrent layer is one node RNN, GRU or LSTM.

Files of Keras 1, Keras 2 and tf.keras become a Keras 3 model first (upgrade). Every key of the configuration and every array is
used, known to change nothing, or the reason for a refusal.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper

from rnnconvert.containers.addresses import local
from rnnconvert.containers.files import only_replace
from rnnconvert.core.arrays import Array, nbytes
from rnnconvert.core.errors import UsageError
from rnnconvert.files.load import model_path
from rnnconvert.formats.keras import whole_run
from rnnconvert.formats.keras.export.attention import ATTENTION
from rnnconvert.formats.keras.export.calls import ExportCall, axes, described
from rnnconvert.formats.keras.export.layer_facts import LayerFacts, ModelTensor, refuse
from rnnconvert.formats.keras.export.layers import OPSET, WEIGHTS, Emit, EmitAll, GraphBuilder, one_input
from rnnconvert.formats.keras.export.masks import MASKS, behind_one_another, hand_on, masks_on
from rnnconvert.formats.keras.export.norms import NORMS
from rnnconvert.formats.keras.export.operations import OPERATIONS
from rnnconvert.formats.keras.export.recurrent import RECURRENT
from rnnconvert.formats.keras.export.shapes import SHAPES
from rnnconvert.formats.keras.export.source import read
from rnnconvert.formats.keras.export.space import SPACE
from rnnconvert.formats.keras.files import refuse_others
from rnnconvert.formats.keras.model.entries import of_file
from rnnconvert.formats.keras.policy import in_half_precision
from rnnconvert.formats.keras.upgrade.old import SourceLayer, is_shape
from rnnconvert.formats.keras.walk import Walk
from rnnconvert.formats.onnx.proto import write as onnx_write
from rnnconvert.models.runners import runners
from rnnconvert.models.verified import kept_if_equal
from rnnconvert.models.verify import YOURS, ModelCalls, WholeModels, compared
from rnnconvert.running.inputs import read_inputs
from rnnconvert.verification.beyond import beyond

_TYPES = {
    "float32": onnx.TensorProto.FLOAT,
    "int32": onnx.TensorProto.INT32,
    "int64": onnx.TensorProto.INT64,
    "bool": onnx.TensorProto.BOOL,
}


@dataclass(frozen=True)
class Exported:
    """What became of a whole model.

    source   the file that was read
    target   the file that was written, or would be
    inputs   the model's inputs, with their axes
    outputs  its outputs, likewise
    nodes    how many nodes it has
    layers   the recurrent nodes among them, by name
    size     how many bytes its numbers have
    proof    what Keras and onnxruntime gave, in words; "" where nothing ran
    notes    what a reader of the graph should know
    """

    source: str
    target: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    nodes: int
    layers: tuple[str, ...]
    size: int
    proof: str = ""
    notes: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Return everything as JSON takes it."""
        return {key: list(value) if isinstance(value, tuple) else value for key, value in vars(self).items()}

    def lines(self) -> list[str]:
        """Return what was done, line by line."""
        return [
            f"inputs: {', '.join(self.inputs)}",
            f"outputs: {', '.join(self.outputs)}",
            f"{self.nodes} nodes; recurrent: {', '.join(self.layers) or 'none'}; {self.size:,} bytes of numbers",
            *(f"note: {note}" for note in self.notes),
            *self.proof.splitlines(),
        ]

    def __str__(self) -> str:
        return "\n".join(self.lines())


def export_model(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    force: bool = False,
    dry_run: bool = False,
    verify: bool | str | os.PathLike[str] = False,
) -> Exported:
    """Write a whole Keras model as one ONNX graph.

    source   a .keras file, or HDF5 with a model configuration, of Keras 1, 2 or 3
    target   the .onnx file to write
    force    replace the target if it exists
    dry_run  write nothing
    verify   run the model in Keras and the graph in onnxruntime on inputs drawn for them, and keep the file only if they agree; a .npy
             or .npz file of inputs, by their names or in the model's order: on these, too

    Raises RefusedError for a layer or a setting without an equivalent, UnreadableError for a damaged file, UsageError for a
    file without a model.
    """
    path, out = model_path(local(source)), Path(target)
    if out.suffix.lower() != ".onnx":
        raise UsageError(f"{out}: a whole model is written as ONNX. Give it a name that ends in .onnx")
    if out.is_dir() or not out.parent.is_dir():
        raise UsageError(f"{out}: name a file to write, in a folder that exists")
    refuse_others(path, "exported")
    if not dry_run:
        only_replace(out, force)
    with of_file(path, "rnnconvert.formats.keras"):
        model = _ExportWalk(read(path, check=_check))
        proto, done = model.finished(str(path), str(out))
    if dry_run:
        return done
    if not verify:
        onnx_write.write(out, proto, model.build.arrays)
        return done
    user_inputs = None if isinstance(verify, bool) else dict(read_inputs(verify))
    _, proof = kept_if_equal(
        out,
        force,
        lambda written: onnx_write.write(written, proto, model.build.arrays),
        lambda written: _compared(path, written, user_inputs),
    )
    return replace(done, proof=str(proof))


def _compared(source: Path, exported: Path, user_inputs: Mapping[str, Array] | None) -> WholeModels:
    """Return what the model gives in Keras and the graph in onnxruntime, for inputs that are drawn for it, and for a user's own."""
    loaded, written = whole_run.open_file(source), runners()["onnx"].open_file(exported)
    proof = compared(written, loaded, [], ModelCalls(loaded.drawn(), label="inputs drawn"))
    if user_inputs is not None:
        proof = proof.joined(compared(written, loaded, [], ModelCalls(user_inputs, label=YOURS)))
    return replace(proof, limits=tuple(beyond(exported, "onnxruntime-cpu")))


def _overflowing(graph: onnx.GraphProto) -> Iterator[str]:
    """Yield the recurrent nodes with a function that onnxruntime's kernel computes from an exponential that overflows."""
    for node in graph.node:
        functions = {name for attribute in node.attribute if attribute.name == "activations" for name in attribute.strings}
        if b"Softplus" in functions:
            yield f"{node.name}: onnxruntime's {node.op_type} gives infinity for Softplus of numbers beyond 88; Keras gives the number"


def _check(top: SourceLayer) -> None:
    """Raise RefusedError for a layer or an operation that ONNX's table lacks."""
    for layer in top.walk():
        if layer.is_operation and layer.kind not in OPERATIONS:
            operations = ", ".join(sorted(OPERATIONS))
            raise refuse(layer.name, f"an operation of class {layer.kind!r}", f"the known ones are {operations}")
        if not layer.is_model and not layer.is_operation and layer.kind not in _SUPPORTED:
            raise refuse(layer.name, f"a layer of class {layer.kind!r}", f"the known ones are {', '.join(sorted(_SUPPORTED))}")


_MOVING = ("Flatten", "Reshape", "Permute", "RepeatVector")
"""The layers that give whole numbers for whole numbers."""

_SINGLE: Mapping[str, Emit] = {**WEIGHTS, **SPACE, **NORMS, **SHAPES, **MASKS}
_SEVERAL: Mapping[str, EmitAll] = {**RECURRENT, **ATTENTION}
_SUPPORTED = {*_SINGLE, *_SEVERAL, "InputLayer", "TimeDistributed"}


class _ExportWalk(Walk[ModelTensor]):
    """A model on its way into a graph."""

    def __init__(self, top: SourceLayer) -> None:
        self.top, self.build = top, GraphBuilder()
        self.inputs: list[onnx.ValueInfoProto] = []
        self.outputs = self.model(top, None)

    def finished(self, source: str, target: str) -> tuple[onnx.ModelProto, Exported]:
        """Return the model without its numbers, and what it is."""
        outputs = []
        for number, value in enumerate(self.outputs):
            if value.name in self.build.dtypes:
                raise refuse(self.top.name, f"an output of {self.build.dtypes[value.name]}", "only those of float32 are known here")
            name = self.build.name("output" if len(self.outputs) == 1 else f"output_{number}")
            self.build.node("Identity", [value.name], [name], name)
            outputs.append(helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, axes(value.shape, name)))
        self.build.prune([output.name for output in outputs])
        graph = helper.make_graph(self.build.nodes, self.top.name or "model", self.inputs, outputs, self.build.initializers())
        opset = helper.make_opsetid("", OPSET)
        proto = helper.make_model(graph, opset_imports=[opset], ir_version=8, producer_name="rnnconvert")
        starts, ends = (tuple(map(described, group)) for group in (self.inputs, outputs))
        size = sum(map(nbytes, self.build.arrays.values()))
        notes = (*in_half_precision(layer.entry.config for layer in self.top.walk()), *_overflowing(proto.graph))
        return proto, Exported(source, target, starts, ends, len(self.build.nodes), tuple(self.build.recurrent), size, notes=notes)

    def start(self, old: SourceLayer) -> ModelTensor:
        """Return an input of the graph."""
        config = old.entry.config
        shape = config.get("batch_shape", config.get("batch_input_shape"))
        dtype = config.get("dtype", "float32")
        if not is_shape(shape) or dtype not in _TYPES or config.get("sparse") or config.get("ragged"):
            raise refuse(
                old.name,
                f"an input of shape {shape!r} and type {dtype!r}",
                "only plain tensors of float32, int32, int64 and bool are known",
            )
        name = self.build.name(old.name)
        self.inputs.append(helper.make_tensor_value_info(name, _TYPES[dtype], axes(shape, name)))
        if dtype != "float32":
            self.build.dtypes[name] = dtype
        return ModelTensor(name, tuple(shape))

    def layer(self, facts: LayerFacts, values: Sequence[ModelTensor], call: ExportCall) -> list[ModelTensor]:
        """Return what a layer, a model or an operation gives."""
        old = facts.old
        if old.is_model:
            for value, mask in zip(values, masks_on(self.build, facts, values), strict=True):
                if mask is not None:
                    self.build.masks[value.name] = mask
            facts.finish_call()
            return self.model(old, values)
        if old.is_operation:
            outputs = [OPERATIONS[old.kind](self.build, facts, call.arguments(values))]
            facts.finish()
            return outputs
        every = [*values, *(named for key, ones in facts.named.items() if not key.endswith("mask") for named in ones if named)]
        dtypes = [self.build.dtypes[value.name] for value in every if value.name in self.build.dtypes]
        if dtypes and old.kind not in ("Embedding", "TimeDistributed", *_MOVING):
            raise refuse(old.name, f"whole numbers in a layer of class {old.kind!r}", "only an Embedding reads them here")
        if old.kind == "TimeDistributed":
            outputs = [self._each_step(old, facts, values)]
        elif old.kind in _SEVERAL:
            outputs = _SEVERAL[old.kind](self.build, facts, values)
        else:
            outputs = [_SINGLE[old.kind](self.build, facts, values)]
        facts.finish()
        hand_on(self.build, facts, values, outputs, behind_one_another)
        if dtypes and old.kind in _MOVING:
            self.build.dtypes |= {value.name: dtypes[0] for value in outputs}
        return outputs

    def _each_step(self, old: SourceLayer, facts: LayerFacts, values: Sequence[ModelTensor]) -> ModelTensor:
        """Return what a TimeDistributed gives: its layer works on all steps as on one batch."""
        x, inner = one_input(facts, values), old.inside[0]
        facts.get("layer")
        if len(x.shape) < 2:
            raise refuse(old.name, "an input without time in a TimeDistributed", "its steps are laid side by side")
        name, build = old.name, self.build
        end = build.integers(np.iinfo(np.int64).max)
        size = build.add("Shape", [x.name], f"{name}/shape")
        flat = _side_by_side(build, name, x)
        mask = masks_on(build, facts, [x])[0]
        if mask is not None:
            build.masks[flat.name] = _side_by_side(build, f"{name}/mask", mask)
        outputs = self.layer(LayerFacts(inner, inner.entry.config), [flat], ExportCall())
        if len(outputs) != 1:
            raise refuse(old.name, f"a TimeDistributed around {inner.kind} with several outputs", "only one is known here")
        start = build.add("Slice", [size, build.integers(0), build.integers(2)], f"{name}/batch_and_time")
        inside = build.add("Slice", [build.add("Shape", [outputs[0].name], f"{name}/inner"), build.integers(1), end], f"{name}/inside")
        shape = build.add("Concat", [start, inside], f"{name}/size", axis=0)
        out = build.add("Reshape", [outputs[0].name, shape], f"{name}/together")
        if outputs[0].name in build.dtypes:
            build.dtypes[out] = build.dtypes[outputs[0].name]
        return ModelTensor(out, (*x.shape[:2], *outputs[0].shape[1:]))


def _side_by_side(build: GraphBuilder, name: str, x: ModelTensor) -> ModelTensor:
    """Return the steps of a tensor, or of its mask, as one batch."""
    if len(x.shape) < 2:
        raise refuse(name, "a mask without time in a TimeDistributed", "its steps are laid side by side")
    end = build.integers(np.iinfo(np.int64).max)
    below = build.add("Slice", [build.add("Shape", [x.name], f"{name}/shape"), build.integers(2), end], f"{name}/below")
    shape = build.add("Concat", [build.integers(-1), below], f"{name}/steps_shape", axis=0)
    flat = build.add("Reshape", [x.name, shape], f"{name}/steps")
    if x.name in build.dtypes:
        build.dtypes[flat] = build.dtypes[x.name]
    return ModelTensor(flat, (None, *x.shape[2:]))
