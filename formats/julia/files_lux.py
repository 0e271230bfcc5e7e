"""Lux: parameters as trees in BSON.jl's and JLD2.jl's files, and as arrays by their paths."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from rnnconvert.containers.stored import Stored
from rnnconvert.core.arrays import Array
from rnnconvert.core.weights import Direction, Layer, Recurrent
from rnnconvert.files.adapter import Job
from rnnconvert.files.found_layer import FoundLayer
from rnnconvert.files.opened import FormatClaim, Opened
from rnnconvert.files.options import Options
from rnnconvert.formats.julia.files_flux import called
from rnnconvert.formats.julia.julia_tree import below
from rnnconvert.formats.julia.trees import JuliaFiles, Leaves
from rnnconvert.language.layout import Layout

_LUX_NAMES = re.compile(r"(.*/)?(ps/|layer_\d+/|(forward|backward)_rnn/|weight_[ih]$).*")
"""Names that only Lux has: weight_ih and its like are PyTorch's, too."""
_JOINED = {"concat": "vcat", "sum": "+", "mul": "*", "none": "nothing"}


@dataclass(frozen=True)
class LuxFiles(JuliaFiles):
    """The adapter of Lux: see rnnconvert.files.adapter."""

    NAME: str = "lux"
    root: str = "ps"
    always_rooted: bool = True  # so that an archive is known again

    def recognise(self, file: Opened) -> FormatClaim | None:
        """Recognize arrays with Lux's names and shapes; an archive of .npy files with matrices by column, or with Lux's names."""
        seen = super().recognise(file)
        if seen is None or "npz" not in file.kinds:
            return seen
        arrays = self.stored(file).arrays
        has_lux_names = any(_LUX_NAMES.fullmatch(name) for name in arrays) or any(map(_by_column, arrays.values()))
        return seen if has_lux_names else None

    def layer(self, group: FoundLayer, stored: Stored, options: Options) -> Recurrent:
        """Return a layer; parameters do not state what an untrained RNNCell starts from."""
        stack = super().layer(group, stored, options)
        (layer,) = stack.layers
        if group.layout.kind == "rnn" and "initial_hidden" not in group.sizes.parts:
            old, start = group.layout.name != "lux.rnn", "zeros"
            if old or group.sizes.parts == {"input", "recurrent"}:
                default = "ones" if old else "zeros"
                why = "an RNNCell that was not trained from a state starts from ones before Lux 1.0, and from zeros since"
                start = options.ask("init_state", group.name, assumed=default, why=why)
            if start == "ones":
                layer = Layer(tuple(map(_from_ones, layer.directions)), layer.merge)
        return stack.replace(layers=(layer,))

    def leaves(self, layout: Layout, stack: Recurrent, name: str, job: Job) -> Leaves:
        """Return arrays by name, and the additional parameters of a BidirectionalRNN: of the layer that reverses the sequence."""
        all_leaves = super().leaves(layout, stack, name, job)
        if stack.num_directions == 1:
            return all_leaves
        inner = below(name, "backward_rnn")
        forward = {path: leaf for path, leaf in all_leaves.items() if not path.startswith(f"{inner}/")}
        backward = {path: leaf for path, leaf in all_leaves.items() if path not in forward}
        return {**forward, below(inner, "rev1"): {}, **backward, below(inner, "rev2"): {}}

    def constructor(self, layout: Layout, stack: Recurrent) -> str:
        """Return the call that makes a layer for these arrays."""
        name, _, version = layout.class_name.partition(" ")
        words = f"{stack.input_size} => {stack.hidden_size}"
        if layout.kind == "rnn":
            words += f", {called(stack.cell.activation)}"
        has = {
            "use_bias=false": stack.first.biases == "none",
            "train_state=true": stack.first.get("initial_hidden") is not None,
            "train_memory=true": stack.first.get("initial_cell") is not None,
        }
        options_text = ", ".join(word for word, holds in has.items() if holds)
        cell = f"{name}({words}{'; ' + options_text if options_text else ''})"
        if stack.num_directions == 2:
            merge = stack.layers[0].merge
            cell = f"Lux.BidirectionalRNN({cell}" + (f"; merge_mode={_JOINED[merge]})" if merge != "concat" else ")")
        return cell + (f" {version}" if version else "")


def _by_column(array: Array) -> bool:
    return array.ndim == 2 and min(array.shape) > 1 and array.flags.f_contiguous


def _from_ones(direction: Direction) -> Direction:
    ones = np.ones(direction.hidden_size, direction.dtype)
    return direction.with_arrays({("initial_hidden", ""): ones})


ADAPTERS = (LuxFiles(),)
