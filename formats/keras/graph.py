"""A Keras model of recurrent layers as data: its layers, how they are joined, and their weights.

A stack becomes an input, a chain of layers and the model's next output. The result is a
Functional model's configuration, and for each layer the paths of its variables.

Sources: keras/src/models/functional.py, keras/src/layers/rnn/*.py and keras/src/saving/saving_lib.py (3.15).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rnnconvert.core.arrays import BFLOAT16, Array, PiecewiseArray
from rnnconvert.core.errors import RefusedError
from rnnconvert.core.remedies import Flag, Setting
from rnnconvert.core.weights import Direction, Layer, Recurrent
from rnnconvert.files.adapter import Job
from rnnconvert.language import registry
from rnnconvert.language.packing import Packed, pack
from rnnconvert.rewrites import split_stack

FLIP = "Flip"


@dataclass(frozen=True)
class DraftTensor:
    """One output of a layer.

    layer  its name
    index  which of its outputs
    shape  with None for batch and time
    dtype  element type
    """

    layer: str
    index: int
    shape: tuple[int | None, ...]
    dtype: str

    def serialised(self) -> dict[str, Any]:
        """Return the tensor as a configuration refers to it."""
        history = [self.layer, 0, self.index]
        config = {"shape": list(self.shape), "dtype": self.dtype, "keras_history": history}
        return {"class_name": "__keras_tensor__", "config": config}


@dataclass(frozen=True)
class Variables:
    """The variables of a layer, or of the cell inside it.

    path    where they are below the layer in a `.weights.h5`: "cell", "forward_layer/cell", ""
    scope   what stands between the layer's name and theirs in a legacy file: "lstm_cell", ""
    label   name of the layer or cell that owns them
    arrays  by name, in the order of their numbers
    """

    path: str
    scope: str
    label: str
    arrays: Mapping[str, Array | PiecewiseArray]


@dataclass(frozen=True)
class DraftNode:
    """A layer of the model.

    inputs     what it reads
    joins      whether it takes its inputs as one list
    variables  its weights
    """

    name: str
    class_name: str
    config: Mapping[str, Any]
    inputs: tuple[DraftTensor, ...] = ()
    joins: bool = False
    variables: tuple[Variables, ...] = ()

    @property
    def is_layer(self) -> bool:
        """Whether it is a layer; an operation is in no list of layers and has no path."""
        return self.class_name != FLIP

    def serialised(self, legacy: bool) -> dict[str, Any]:
        """Return the layer's entry in a model's configuration; legacy HDF5 knows no modules."""
        tensors = [tensor.serialised() for tensor in self.inputs]
        calls: list[Any] = [{"args": [tensors] if self.joins else tensors, "kwargs": {}}] if tensors else []
        entry = {"class_name": self.class_name, "config": dict(self.config), "name": self.name, "inbound_nodes": calls}
        if legacy:
            return entry
        module = "keras.layers" if self.is_layer else "keras.src.ops.numpy"
        return {"module": module, "registered_name": None, **entry}

    def constructor(self) -> str:
        """Return the Python expression that makes such a layer."""
        return _constructor(self.class_name, self.config)


_PLAIN = {"activation": "tanh", "recurrent_activation": "sigmoid", "go_backwards": False, "use_bias": True, "return_state": False}


def _constructor(class_name: str, config: Mapping[str, Any]) -> str:
    """Return the expression that makes a layer, with what differs from Keras's defaults."""
    words: list[str] = []
    if class_name == "Bidirectional":
        words = [_constructor(config["layer"]["class_name"], config["layer"]["config"])]
        if config["merge_mode"] != "concat":
            words.append(f"merge_mode={config['merge_mode']!r}")
        backward = _constructor(config["backward_layer"]["class_name"], config["backward_layer"]["config"])
        if backward.replace(", go_backwards=True", "") != words[0]:
            words.append(f"backward_layer={backward}")
    else:
        words = [str(config["units"])]
        words += [f"{key}={config[key]!r}" for key, default in _PLAIN.items() if key in config and config[key] != default]
        words += [f"{key}={config[key]!r}" for key in ("reset_after", "return_sequences") if key in config]
    if class_name == "Dense":
        words = [str(config["units"]), "use_bias=False"]
    if config["dtype"] != "float32":
        words.append(f"dtype={config['dtype']!r}")
    return f"keras.layers.{class_name}({', '.join(words)})"


VARIABLES = ("kernel", "recurrent_kernel", "bias")
"""A cell's variables in the order in which Keras numbers them."""


def pack_direction(direction: Direction, job: Job) -> dict[str, Packed]:
    """Return a direction's arrays, by the names and in the order of Keras's variables."""
    single = Recurrent("", (Layer((direction.replace(reverse=False),)),))
    layout = registry.layout("keras", direction.cell.kind, direction.cell.reset_after)
    packed = pack(layout, single, (job.dtype or direction.dtype).newbyteorder("="), job.watch)
    return {name: packed[name] for name in VARIABLES if name in packed}


def side_by_side(matrices: Sequence[Array], merge: str | None) -> Array:
    """Return one kernel for outputs that are side by side: (hidden of all directions, out)."""
    if len(matrices) == 1:
        return matrices[0].T
    if merge == "concat":
        rows, columns = (sum(matrix.shape[axis] for matrix in matrices) for axis in (1, 0))
        kernel = np.zeros((rows, columns), matrices[0].dtype)
        row = column = 0
        for matrix in matrices:
            kernel[row : row + matrix.shape[1], column : column + matrix.shape[0]] = matrix.T
            row, column = row + matrix.shape[1], column + matrix.shape[0]
        return kernel
    stacked: Array = np.concatenate([matrix.T for matrix in matrices])
    return stacked * stacked.dtype.type(0.5) if merge == "ave" else stacked


CLASSES = {"rnn": "SimpleRNN", "gru": "GRU", "lstm": "LSTM"}
_ORDER = {False: "time", True: "processing"}


class ModelDraft:
    """A model under construction.

    legacy  whether it is for legacy HDF5, which has only layers and no bfloat16

    Raises RefusedError for what a Keras model, or a file of this kind, cannot hold.
    """

    def __init__(self, job: Job, legacy: bool = False) -> None:
        self.job, self.legacy = job, legacy
        self.nodes: list[DraftNode] = []
        self.inputs: list[DraftTensor] = []
        self.outputs: list[DraftTensor] = []
        self.chains: dict[str, list[DraftNode]] = {}
        self._names: set[str] = {"top_level_model_weights"}
        chains = [_StackModel(self, part.stack) for part in job.parts]
        # Keras numbers layers of a class by their distance from the outputs. Identities behind the earlier
        # chains make that the order of the stacks, in which people write their own models.
        padding = 0
        for chain in reversed(chains):
            length = chain.length
            chain.pad(padding)
            padding += length - 1
        for chain in chains:
            self.outputs += [*chain.ends, *chain.states]

    def name(self, wanted: str) -> str:
        """Return a name that Keras accepts and no other layer has."""
        plain = re.sub(r"[^A-Za-z0-9_-]+", "_", wanted).strip("_") or "layer"
        plain = plain if plain[0].isalnum() else f"layer_{plain}"
        name, number = plain, 0
        while name in self._names:
            number += 1
            name = f"{plain}_{number}"
        self._names.add(name)
        return name

    def add(self, name: str, class_name: str, config: Mapping[str, Any], inputs: Sequence[DraftTensor] = (), **more: Any) -> DraftNode:
        """Add a layer, under a name that `name` gave."""
        named = {"name": name, **config} if class_name != FLIP else config
        node = DraftNode(name, class_name, named, tuple(inputs), **more)
        self.nodes.append(node)
        return node

    def config(self) -> dict[str, Any]:
        """Return the model as Keras serializes it."""
        config = {
            "name": "recurrent",
            "trainable": True,
            "layers": [node.serialised(self.legacy) for node in self.nodes],
            "input_layers": _references(self.inputs),
            "output_layers": _references(self.outputs),
        }
        model = {"class_name": "Functional", "config": config}
        return model if self.legacy else {"module": "keras.src.models.functional", "registered_name": "Functional", **model}


def _references(tensors: Sequence[DraftTensor]) -> list[Any]:
    references = [[tensor.layer, 0, tensor.index] for tensor in tensors]
    return references[0] if len(references) == 1 else references


class _StackModel:
    """One stack on its way into a model.

    ends    what it gives at every step
    states  the final states, where they were asked for
    length  how many layers follow one another behind the input
    """

    def __init__(self, graph: ModelDraft, stack: Recurrent) -> None:
        self.graph, self.stack, self.job = graph, stack, graph.job
        self.length = 0
        self.states: list[DraftTensor] = []
        first = stack.first
        dtype = self._dtype([first])
        self.shape: tuple[int | None, ...] = (None, None, stack.input_size)
        config = {"batch_shape": list(self.shape), "dtype": dtype, "sparse": False}
        source = graph.add(graph.name(f"{stack.name}_input"), "InputLayer", config)
        self.ends = [DraftTensor(source.name, 0, self.shape, dtype)]
        graph.inputs += self.ends
        pieces = split_stack(stack)
        nodes = [self._layer(piece, last=number == len(pieces) - 1) for number, piece in enumerate(pieces)]
        graph.chains[stack.name] = nodes

    def pad(self, count: int) -> None:
        """Put layers that do nothing after the chain."""
        for _ in range(count):
            self._follow("end", "Identity", {"trainable": True})

    def _dtype(self, directions: Iterable[Direction]) -> str:
        dtypes = {(self.job.dtype or direction.dtype).newbyteorder("=") for direction in directions}
        if BFLOAT16 in dtypes and self.graph.legacy:
            raise RefusedError(
                "bfloat16",
                "a legacy HDF5 model of Keras",
                "Keras cannot read it there",
                f"Write a .keras or .weights.h5 file, or use {Flag('dtype', 'float32')}.",
                self.stack.name,
            )
        if len(dtypes) == 1:
            return str(dtypes.pop())
        return "float64" if np.dtype(np.float64) in dtypes else "float32"

    def _follow(self, word: str, class_name: str, config: Mapping[str, Any]) -> None:
        """Put the same layer after each of the ends."""
        dtype = self.ends[0].dtype
        ends = []
        for end in self.ends:
            settings = config if class_name == FLIP else {"dtype": dtype, **config}
            node = self.graph.add(self.graph.name(f"{self.stack.name}_{word}"), class_name, settings, [end])
            ends.append(DraftTensor(node.name, 0, end.shape, dtype))
        self.ends = ends
        self.length += 1

    def _layer(self, piece: Recurrent, last: bool) -> DraftNode:
        """Add one layer, and what has to follow it."""
        layer = piece.layers[0]
        sizes = [direction.output_size for direction in layer.directions]
        merge: str | None = layer.merge
        if merge == "none":
            merge = None if last else "concat"
        joined: str | None = merge
        if piece.readout:
            # The matrices act on each direction, before the outputs are joined.
            merge = None if merge in (None, "mul") else "concat"
        flip = self._flips(piece)
        if len(set(sizes)) > 1 and (piece.readout or flip or not last):
            raise RefusedError(
                f"directions of {sizes[0]} and {sizes[1]} units with a layer after them",
                "Keras",
                "keras.layers.Bidirectional computes its output shape as if both were as wide as the forward one",
                f"Write the directions as layers: {Setting('directions', 'split')}.",
                self.stack.name,
            )
        return_state = last and self.job.options.true("return_state", self.stack.name)
        node = self._recurrent(piece, layer, merge, return_state)
        dtype = self._dtype(layer.directions)
        widths = sizes if len(sizes) > 1 and merge is None else [sum(sizes) if merge == "concat" else sizes[0]]
        self.ends = [DraftTensor(node.name, index, (None, None, width), dtype) for index, width in enumerate(widths)]
        if return_state:
            states = [d.hidden_size for d in layer.directions for _ in range(2 if d.cell.kind == "lstm" else 1)]
            self.states = [DraftTensor(node.name, len(widths) + index, (None, size), dtype) for index, size in enumerate(states)]
        if piece.readout:
            self._read_out([np.asarray(matrix) for matrix in piece.readout], joined)
        if flip:
            if self.graph.legacy:
                raise RefusedError(
                    f"a layer that reads from the end, with outputs in {_ORDER[not flip]} order",
                    "a legacy HDF5 model of Keras",
                    "flipping them is an operation, but such files hold only layers",
                    "Write a .keras or .weights.h5 file.",
                    self.stack.name,
                )
            self._follow("flip", FLIP, {"axis": 1})
        return node

    def _flips(self, piece: Recurrent) -> bool:
        """Return whether the outputs have to be reversed: go_backwards gives them in processing order."""
        processing = piece.output_order == "processing"
        backwards = piece.num_directions == 1 and piece.first.reverse
        return processing != backwards

    def _recurrent(self, piece: Recurrent, layer: Layer, merge: str | None, return_state: bool) -> DraftNode:
        self.length += 1
        name = self.graph.name(piece.name)
        if len(layer.directions) == 1:
            only = layer.directions[0]
            config = self._config(only, only.reverse, return_state)
            cell = self._variables(only, "cell", "")
            return self.graph.add(name, CLASSES[only.cell.kind], config, self.ends, variables=(cell,))
        forward, backward = layer.directions
        kinds = {(d.cell.kind, d.hidden_size) for d in layer.directions}
        if return_state and len(kinds) > 1:
            raise RefusedError(
                "the final states of two directions that differ",
                "Keras",
                "keras.layers.Bidirectional assumes that the backward states are like the forward ones",
                f"Leave out {Setting('return_state', 'true')}.",
                self.stack.name,
            )
        if forward.reverse or not backward.reverse:
            raise RefusedError(
                "two directions that read the same way",
                "Keras",
                "keras.layers.Bidirectional reads forward and backward",
                f"Write the directions as layers: {Setting('directions', 'split')}.",
                self.stack.name,
            )
        sides = {"layer": (f"forward_{name}", forward, False), "backward_layer": (f"backward_{name}", backward, True)}
        config = {"trainable": True, "dtype": self._dtype(layer.directions), "merge_mode": merge}
        for key, (label, direction, backwards) in sides.items():
            config[key] = {
                "module": "keras.layers",
                "class_name": CLASSES[direction.cell.kind],
                "config": {"name": label, **self._config(direction, backwards, return_state)},
                "registered_name": None,
            }
        cells = tuple(
            self._variables(direction, f"{word}_layer/cell", f"{label}/")
            for word, (label, direction, _) in zip(("forward", "backward"), sides.values(), strict=True)
        )
        return self.graph.add(name, "Bidirectional", config, self.ends, variables=cells)

    def _config(self, direction: Direction, backwards: bool, return_state: bool) -> dict[str, Any]:
        cell = direction.cell
        # Loading replaces every initial value, so they cost nothing here: an orthogonal start
        # would take a decomposition, which bfloat16 does not even have.
        config: dict[str, Any] = {
            "trainable": True,
            "dtype": self._dtype([direction]),
            "return_sequences": True,
            "return_state": return_state,
            "go_backwards": backwards,
            "units": direction.hidden_size,
            "activation": cell.activation.name,
            "use_bias": direction.biases != "none",
            "kernel_initializer": "zeros",
            "recurrent_initializer": "zeros",
            "bias_initializer": "zeros",
        }
        if cell.kind != "rnn":
            config["recurrent_activation"] = cell.gate_activation.name
        if cell.kind == "lstm":
            config["unit_forget_bias"] = False
        if cell.kind == "gru":
            config["reset_after"] = bool(cell.reset_after)
        return config

    def _variables(self, direction: Direction, path: str, scope: str) -> Variables:
        label = {"rnn": "simple_rnn_cell", "gru": "gru_cell", "lstm": "lstm_cell"}[direction.cell.kind]
        return Variables(path, scope + label, label, pack_direction(direction, self.job))

    def _read_out(self, matrices: list[Array], merge: str | None) -> None:
        """Add what is left of a folded projection: dense layers without bias after the last layer."""
        dtype = self.ends[0].dtype
        kind = (self.job.dtype or self.stack.dtype).newbyteorder("=")
        if len(self.ends) == 2:
            ends = [self._dense(end, matrix.T, dtype, kind) for end, matrix in zip(self.ends, matrices, strict=True)]
        else:
            ends = [self._dense(self.ends[0], side_by_side(matrices, merge), dtype, kind)]
        self.ends = ends
        self.length += 1
        if merge == "mul" and len(ends) == 2:
            name = self.graph.name(f"{self.stack.name}_merge")
            node = self.graph.add(name, "Multiply", {"trainable": True, "dtype": dtype}, ends, joins=True)
            self.ends = [replace(ends[0], layer=node.name)]
            self.length += 1

    def _dense(self, end: DraftTensor, kernel: Array, dtype: str, kind: np.dtype[Any]) -> DraftTensor:
        config = {
            "trainable": True,
            "dtype": dtype,
            "units": kernel.shape[1],
            "activation": "linear",
            "use_bias": False,
            "kernel_initializer": "zeros",
        }
        arrays = {"kernel": np.ascontiguousarray(kernel.astype(kind, copy=False))}
        name = self.graph.name(f"{self.stack.name}_projection")
        variables = (Variables("", "", "", arrays),)
        node = self.graph.add(name, "Dense", config, [end], variables=variables)
        return DraftTensor(node.name, 0, (None, None, kernel.shape[1]), dtype)
