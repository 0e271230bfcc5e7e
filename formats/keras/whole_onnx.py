"""A whole Keras model as one ONNX graph, from file to file, without Keras: each recurrent layer is one node RNN, GRU or LSTM.

Files of Keras 1, Keras 2 and tf.keras become a Keras 3 model first (upgrade). Every key of the configuration and every array is
used, known to change nothing, or the reason for a refusal.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper

from rnnconvert.containers.files import only_replace
from rnnconvert.core.arrays import nbytes
from rnnconvert.core.errors import RefusedError, UnreadableError, UsageError
from rnnconvert.core.weights import Direction, Layer, Recurrent
from rnnconvert.formats.keras import upgrade as old_models
from rnnconvert.formats.keras.config import KINDS, Era
from rnnconvert.formats.keras.upgrade_config import Notes, Translator
from rnnconvert.formats.keras.upgrade_graph import Ref, references
from rnnconvert.formats.keras.upgrade_layers import Layers, New
from rnnconvert.formats.keras.upgrade_old import Old, assign_by_path, is_shape, tree
from rnnconvert.formats.keras.whole_onnx_calls import axes, calls, described
from rnnconvert.formats.keras.whole_onnx_layers import OPSET, WEIGHTS, Builder, Facts, Value, refuse
from rnnconvert.formats.keras.whole_onnx_shapes import SHAPES
from rnnconvert.formats.onnx import onnx_write
from rnnconvert.formats.onnx.graph import attributes
from rnnconvert.formats.onnx.onnx_file import DTYPES
from rnnconvert.language import registry
from rnnconvert.language.packing import pack
from rnnconvert.rewrites.fit_to_layout import fit_to_layout

_HARMLESS = ("name", "trainable", "dtype", "activity_regularizer", "seed", "batch_shape", "batch_input_shape", "autocast",
             "implementation", "unroll", "use_cudnn", "unit_forget_bias", "dropout", "recurrent_dropout", "sparse",
              "bias_constraint", "zero_output_for_mask", "fused", "input_length")  # fmt: skip
_ENDINGS = ("_initializer", "_regularizer", "_constraint")
_ASIDE = (
    "optimizer",
    "optimizer_weights",
    "_optimizer",
    "metrics",
    "_metrics",
    "compile_metrics",
    "loss",
    "loss_metrics",
)
_TYPES = {"float32": onnx.TensorProto.FLOAT, "int32": onnx.TensorProto.INT32, "int64": onnx.TensorProto.INT64}


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
    """

    source: str
    target: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    nodes: int
    layers: tuple[str, ...]
    size: int

    def as_dict(self) -> dict[str, Any]:
        """Return everything as JSON takes it."""
        return {key: list(value) if isinstance(value, tuple) else value for key, value in vars(self).items()}

    def lines(self) -> list[str]:
        """Return what was done, line by line."""
        return [
            f"inputs: {', '.join(self.inputs)}", f"outputs: {', '.join(self.outputs)}",
            f"{self.nodes} nodes; recurrent: {', '.join(self.layers) or 'none'}; {self.size:,} bytes of numbers",
        ]  # fmt: skip

    def __str__(self) -> str:
        return "\n".join(self.lines())


def export_model(
    source: str | os.PathLike[str], target: str | os.PathLike[str], *, force: bool = False, dry_run: bool = False
) -> Exported:
    """Write a whole Keras model as one ONNX graph.

    source   a .keras file, or HDF5 with a model configuration, of Keras 1, 2 or 3
    target   the .onnx file to write
    force    replace the target if it exists
    dry_run  write nothing

    Raises RefusedError for a layer or a setting without an equivalent, UnreadableError for a damaged file, UsageError for a
    file without a model.
    """
    path, out = Path(source), Path(target)
    if out.suffix.lower() != ".onnx":
        raise UsageError(f"{out}: a whole model is written as ONNX. Give it a name that ends in .onnx")
    if out.is_dir() or not out.parent.is_dir():
        raise UsageError(f"{out}: name a file to write, in a folder that exists")
    if not dry_run:
        only_replace(out, force)
    try:
        model = _Model(_read(path))
        proto, done = model.finished(str(path), str(out))
    except (KeyError, TypeError, AttributeError, IndexError, ValueError, RecursionError) as error:
        if isinstance(error, (RefusedError, UnreadableError, UsageError)):
            raise
        raise UnreadableError(
            path, f"its model configuration has an unknown form ({type(error).__name__}: {error})"
        ) from None
    if not dry_run:
        onnx_write.write(out, proto, model.b.arrays)
    return done


def _read(path: Path) -> Old:
    """Return the model with every array in its layer."""
    stored = old_models.read(path)
    config, version = stored.metadata.get("config"), str(stored.metadata.get("metadata", {}).get("keras_version", ""))
    if config is not None and version.startswith("3"):
        arrays: Mapping[str, Any] = stored.arrays
    else:
        (config, made), _ = old_models.made(path, "ONNX", None)
        arrays = {name: np.asarray(array) for name, array in made.arrays.items()}
    if not isinstance(config, Mapping):
        raise UsageError(
            f"{path} holds weights without a model. Save the model as a whole, or convert its layers without --whole"
        )
    top = tree(config)
    if not top.is_model or not top.entry.own:
        raise refuse(top.name, f"a model of class {top.kind!r}", "it is not built from layers alone")
    for one in top.walk():
        if not one.is_model and one.kind not in _KNOWN:
            raise refuse(one.name, f"a layer of class {one.kind!r}", f"the known ones are {', '.join(sorted(_KNOWN))}")
    used = assign_by_path(top, "", arrays)
    aside = {name for name in arrays if name.partition("/")[0] in _ASIDE or "/seed_generator/" in name}
    if rest := sorted(set(arrays) - used - aside):
        raise refuse(top.name, f"the arrays {', '.join(rest[:5])}", "they belong to no layer of the model")
    return top


_MOVING = ("Flatten", "Reshape", "Permute", "RepeatVector")
"""The layers that give whole numbers for whole numbers."""

_LAYERS = {**WEIGHTS, **SHAPES}
_KNOWN = {*_LAYERS, "InputLayer", "LSTM", "GRU", "SimpleRNN", "Bidirectional", "TimeDistributed"}


class _Model:
    """A model on its way into a graph."""

    def __init__(self, top: Old) -> None:
        self.top, self.b = top, Builder()
        self.inputs: list[onnx.ValueInfoProto] = []
        self.recurrent: list[str] = []
        self.whole: set[str] = set()  # values of whole numbers
        self.cells = Layers(Translator(Era("3"), "float32", Notes()), "")
        self.outputs = self._model(top, None)

    def finished(self, source: str, target: str) -> tuple[onnx.ModelProto, Exported]:
        """Return the model without its numbers, and what it is."""
        outputs = []
        for number, value in enumerate(self.outputs):
            if value.name in self.whole:
                raise refuse(self.top.name, "an output of whole numbers", "only those of float32 are known here")
            name = self.b.name("output" if len(self.outputs) == 1 else f"output_{number}")
            self.b.nodes.append(helper.make_node("Identity", [value.name], [name], name))
            outputs.append(helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, axes(value.shape, name)))
        tensors = []
        for name, array in self.b.arrays.items():
            code = next(code for code, dtype in DTYPES.items() if dtype == array.dtype.newbyteorder("="))
            tensors.append(onnx.TensorProto(name=name, dims=array.shape, data_type=code))
        graph = helper.make_graph(self.b.nodes, self.top.name or "model", self.inputs, outputs, tensors)
        opset = helper.make_opsetid("", OPSET)
        proto = helper.make_model(graph, opset_imports=[opset], ir_version=8, producer_name="rnnconvert")
        starts, ends = (tuple(map(described, group)) for group in (self.inputs, outputs))
        size = sum(map(nbytes, self.b.arrays.values()))
        return proto, Exported(source, target, starts, ends, len(self.b.nodes), tuple(self.recurrent), size)

    def _model(self, old: Old, given: Sequence[Value] | None) -> list[Value]:
        """Return the outputs of a model for some inputs; None for the outermost, whose inputs are the graph's."""
        return self._line(old, given) if old.kind == "Sequential" else self._graph(old, given)

    def _line(self, old: Old, given: Sequence[Value] | None) -> list[Value]:
        inside = list(old.inside)
        values = list(given) if given is not None else []
        if inside and inside[0].kind == "InputLayer":
            start = inside.pop(0)
            values = values or [self._input(start)]
        if not values:
            raise refuse(old.name, "a Sequential model without the shape of its input", "its graph needs that")
        for one in inside:
            values = self._layer(one, values)
        return values

    def _input(self, old: Old) -> Value:
        config = old.entry.config
        shape = config.get("batch_shape", config.get("batch_input_shape"))
        dtype = config.get("dtype", "float32")
        if not is_shape(shape) or dtype not in _TYPES or config.get("sparse") or config.get("ragged"):
            raise refuse(
                old.name,
                f"an input of shape {shape!r} and type {dtype!r}",
                "only plain tensors of float32, int32 and int64 are known",
            )
        name = self.b.name(old.name)
        self.inputs.append(helper.make_tensor_value_info(name, _TYPES[dtype], axes(shape, name)))
        if dtype != "float32":
            self.whole.add(name)
        return Value(name, tuple(shape))

    def _graph(self, old: Old, given: Sequence[Value] | None) -> list[Value]:
        config = old.entry.config
        starts, ends = (
            references(old.name, config.get("input_layers")),
            references(old.name, config.get("output_layers")),
        )
        olds = {one.name: one for one in old.inside}
        if len(olds) != len(old.inside):
            raise UnreadableError("the configuration", f"two layers of {old.name!r} have one name")
        known_calls = {one.name: calls(one) for one in old.inside}
        # Keras counts the call with which a model was built, in the lists of inputs and outputs alone.
        starts, ends = (
            [Ref(ref.layer, ref.call - (olds[ref.layer].kind in ("Functional", "Model")), ref.index) for ref in refs]
            for refs in (starts, ends)
        )
        known: dict[tuple[str, int], list[Value]] = {}
        for number, start in enumerate(starts):
            known[start.layer, start.call] = [given[number]] if given is not None else [self._input(olds[start.layer])]
        waiting: list[tuple[str, int]] = [(end.layer, end.call) for end in reversed(ends)]
        under_way: set[tuple[str, int]] = set()
        while waiting:
            key = waiting[-1]
            if key in known:
                waiting.pop()
                continue
            if key[0] not in known_calls or not 0 <= key[1] < len(known_calls[key[0]]):
                raise UnreadableError("the configuration", f"the call {key[1]} of the layer {key[0]!r} is not in it")
            reads = known_calls[key[0]][key[1]]
            missing = [(ref.layer, ref.call) for ref in reads if (ref.layer, ref.call) not in known]
            if missing and key in under_way:
                raise UnreadableError("the configuration", f"the layer {key[0]!r} reads what depends on it")
            if missing:
                under_way.add(key)
                waiting += reversed(missing)
                continue
            values = [known[ref.layer, ref.call][ref.index] for ref in reads]
            known[key] = self._layer(olds[key[0]], values)
        return [known[end.layer, end.call][end.index] for end in ends]

    def _layer(self, old: Old, values: Sequence[Value]) -> list[Value]:
        if old.is_model:
            return self._model(old, values)
        facts = Facts(old, old.entry.config, set())
        whole = any(value.name in self.whole for value in values)
        if whole and old.kind not in ("Embedding", *_MOVING):
            raise refuse(
                old.name, f"whole numbers in a layer of class {old.kind!r}", "only an Embedding reads them here"
            )
        if old.kind in KINDS:
            made = self._run(old, facts, values)
        elif old.kind == "Bidirectional":
            made = self._both(old, facts, values)
        elif old.kind == "TimeDistributed":
            made = [self._each_step(old, facts, values)]
        else:
            made = [_LAYERS[old.kind](self.b, facts, values)]
        _check(facts)
        if whole and old.kind in _MOVING:
            self.whole |= {value.name for value in made}
        return made

    def _run(self, old: Old, facts: Facts, values: Sequence[Value]) -> list[Value]:
        """Return what a recurrent layer gives."""
        if len(values) != 1:
            raise refuse(old.name, "initial states that the model computes", "only states of zeros are known here")
        sequence, finals = self._node(old, facts, values[0])
        units = facts.get("units")
        found = [sequence if facts.get("return_sequences", False) else Value(finals[0], (values[0].shape[0], units))]
        if facts.get("return_state", False):
            found += [Value(name, (values[0].shape[0], units)) for name in finals]
        return found

    def _node(self, old: Old, facts: Facts, x: Value, turned: bool = False) -> tuple[Value, list[str]]:
        """Return all outputs of a recurrent layer in the order in which Keras has them, and its final states.

        turned  whether a layer that reads from the end gives its outputs in the order of time
        """
        if x.masked or len(x.shape) != 3:
            raise refuse(old.name, "a mask, or an input without time", "a mask drops single steps, and ONNX's operators know lengths alone",
                         "Export the model without mask_zero or Masking, and give sequences without padding.")  # fmt: skip
        for key in ("use_bias", "activation", "recurrent_activation", "reset_after", "units"):
            facts.get(key)
        facts.need("stateful", False)
        facts.need("time_major", False)
        facts.need("num_constants", None)
        backwards = bool(facts.get("go_backwards", False))
        direction, _ = self.cells.direction(old, New(old.name, old.kind, {}))
        direction = Direction(direction.cell, direction.arrays, backwards)
        fitted = fit_to_layout(Recurrent(old.name, (Layer((direction,)),)), registry.layouts_of("onnx"))
        single, b, name = fitted.stack, self.b, old.name
        cell = single.layers[0].directions[0].cell
        packed = pack(fitted.layout, single)
        first = b.transposed(x.name, [1, 0, 2], f"{name}/in")
        inputs = [first, *(b.constant(f"{name}/{key}", packed[key]) if key in packed else "" for key in "WRB")]
        label = b.name(name)
        outputs = [b.name(f"{label}/{word}") for word in (("Y", "Y_h", "Y_c") if cell.kind == "lstm" else ("Y", "Y_h"))]
        operator = {"rnn": "RNN", "gru": "GRU", "lstm": "LSTM"}[cell.kind]
        b.nodes.append(helper.make_node(operator, inputs, outputs, label, **attributes(single)))
        self.recurrent.append(f"{label} ({operator} {direction.input_size} -> {direction.hidden_size})")
        states = b.add("Squeeze", [outputs[0], b.integers(1)], f"{label}/states")
        if backwards and not turned:
            bounds = [b.integers(-1), b.integers(np.iinfo(np.int64).min + 1), b.integers(0), b.integers(-1)]
            states = b.add("Slice", [states, *bounds], f"{label}/in_processing_order")
        states = b.transposed(states, [1, 0, 2], f"{label}/out")
        finals = [b.add("Squeeze", [one, b.integers(0)], f"{one}/last") for one in outputs[1:]]
        return Value(states, (*x.shape[:2], direction.hidden_size)), finals

    def _both(self, old: Old, facts: Facts, values: Sequence[Value]) -> list[Value]:
        """Return what a Bidirectional gives."""
        if len(values) != 1:
            raise refuse(old.name, "initial states that the model computes", "only states of zeros are known here")
        facts.get("layer"), facts.get("backward_layer")
        mode = facts.get("merge_mode", "concat")
        ends: list[Value] = []
        for one in old.inside:
            inner = Facts(one, one.entry.config, set())
            if one.kind not in KINDS or inner.get("return_state", False):
                raise refuse(
                    old.name,
                    f"a Bidirectional around {one.kind}, or with return_state",
                    "only plain LSTM, GRU and SimpleRNN are known here",
                )
            if bool(inner.get("go_backwards", False)) != (one is not old.inside[0]):
                raise refuse(old.name, "a forward layer that reads from the end", "the order of its outputs is unknown")
            sequence, finals = self._node(one, inner, values[0], turned=True)
            last = Value(finals[0], (values[0].shape[0], sequence.shape[2]))
            ends.append(sequence if inner.get("return_sequences", False) else last)
            _check(inner)
        shape, names = ends[0].shape, [one.name for one in ends]
        if mode is None:
            return ends
        if mode == "concat":
            made = self.b.add("Concat", names, f"{old.name}/joined", axis=-1)
            return [Value(made, (*shape[:-1], sum(one.shape[-1] or 0 for one in ends)))]
        if mode not in ("sum", "mul", "ave"):
            raise refuse(old.name, f"merge_mode = {mode!r}", "only concat, sum, mul, ave and None are known here")
        made = self.b.add("Mul" if mode == "mul" else "Add", names, f"{old.name}/joined")
        if mode == "ave":
            made = self.b.add(
                "Mul", [made, self.b.constant(f"{old.name}/half", np.array(0.5, np.float32))], f"{old.name}/halved"
            )
        return [Value(made, shape)]

    def _each_step(self, old: Old, facts: Facts, values: Sequence[Value]) -> Value:
        """Return what a TimeDistributed gives: its layer works on all steps as on one batch."""
        x, inner = values[0], old.inside[0]
        facts.get("layer")
        if (
            inner.is_model
            or inner.kind in KINDS
            or inner.kind in ("Bidirectional", "TimeDistributed", "Embedding")
            or len(values) != 1
        ):
            raise refuse(old.name, f"a TimeDistributed around {inner.kind}", "only layers without time are known here")
        if x.masked or any(size is None for size in x.shape[2:]):
            raise refuse(old.name, "a mask, or an open size, in a TimeDistributed", "its steps are laid side by side")
        name, b = old.name, self.b
        flat = b.add("Reshape", [x.name, b.integers(-1, *(size or 0 for size in x.shape[2:]))], f"{name}/steps")
        (made,) = self._layer(inner, [Value(flat, (None, *x.shape[2:]))])
        if any(size is None for size in made.shape[1:]):
            raise refuse(old.name, "an open size in a TimeDistributed", "its steps are laid side by side")
        start = b.add(
            "Slice", [b.add("Shape", [x.name], f"{name}/shape"), b.integers(0), b.integers(2)], f"{name}/batch_and_time"
        )
        size = b.add("Concat", [start, b.integers(*(n or 0 for n in made.shape[1:]))], f"{name}/size", axis=0)
        return Value(b.add("Reshape", [made.name, size], f"{name}/together"), (*x.shape[:2], *made.shape[1:]))


def _check(facts: Facts) -> None:
    """Raise RefusedError for a key that nobody asked for, unless it changes no number, and for another type than float32."""
    old, config = facts.old, facts.config
    dtype = config.get("dtype", "float32")
    named = dtype.get("config", {}).get("name") if isinstance(dtype, Mapping) else dtype
    if named not in ("float32", None):
        raise refuse(old.name, f"dtype {named!r}", "only float32 is known here")
    for key, value in config.items():
        if key in facts.used or key in _HARMLESS or key.endswith(_ENDINGS) or value is None:
            continue
        raise refuse(old.name, f"{key} = {str(value)[:60]!r}", "what it changes is unknown")
