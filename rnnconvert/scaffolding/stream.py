"""Files that audio plug-ins run one step after the other, made of chains: rnnconvert.scaffolding.chain."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rnnconvert.containers import json_file
from rnnconvert.core.arrays import Array, PiecewiseArray, nbytes
from rnnconvert.core.errors import RefusedError, UsageError
from rnnconvert.core.names import is_count
from rnnconvert.core.weights import Recurrent
from rnnconvert.language import registry
from rnnconvert.language.layout import Layout
from rnnconvert.language.packing import pack
from rnnconvert.models.model import Model, Unit
from rnnconvert.models.runners import FileModel, ModelApart, ModelOutputs
from rnnconvert.rewrites.fit_to_layout import fit_to_layout
from rnnconvert.running.models import NamedArrays
from rnnconvert.scaffolding.chain import ChainLayer, LayerChain
from rnnconvert.scaffolding.export_target import ExportedGraph

FLOAT32 = np.dtype(np.float32)


def stream_file(chain: LayerChain, document: Mapping[str, Any], stated: Sequence[str] = ()) -> ExportedGraph:
    """Return a chain as a JSON file, before it is written.

    document  the file's JSON, with its numbers as arrays
    stated    notes for a reader of it, in addition to the chain's
    """
    notes = [*chain.notes]
    if isinstance(chain.time, int):
        batch = f", axis {chain.batch} one stream for each number in it" if isinstance(chain.batch, int) else ""
        notes.append(f"axis {chain.time} of {chain.name} is the time: one step for each sample{batch}")
    if chain.last:
        notes.append("the model gives its last step alone; the file gives every step, and after a reset the last one is the model's")
    if chain.stateful:
        notes.append("its states last from one call to the next, as the model's; a plug-in resets them")
    if any(np.dtype(array.dtype).itemsize > FLOAT32.itemsize for array in _weights(chain)):
        notes.append("its numbers are rounded to float32, in which plug-ins compute")
    return ExportedGraph(
        [f"{chain.name} ({_values(chain.inputs)} a step)"],
        [f"output ({_values(chain.units)} a step)"],
        len(chain.layers),
        [f"{layer.name} ({layer.stack.cell.kind.upper()} {layer.inputs} -> {layer.units})" for layer in chain.layers if layer.stack],
        [*notes, *stated],
        sum(nbytes(array) for array in _arrays(document)),
        lambda path: json_file.write(path, document),
        opened=lambda written: _AsSource(written, chain),
    )


def _values(count: int) -> str:
    return f"{count} value{'' if count == 1 else 's'}"


def _arrays(tree: Any) -> list[Array | PiecewiseArray]:
    if isinstance(tree, Mapping):
        return [array for value in tree.values() for array in _arrays(value)]
    if isinstance(tree, list):
        return [array for value in tree for array in _arrays(value)]
    return [tree] if hasattr(tree, "dtype") else []


def _weights(chain: LayerChain) -> list[Any]:
    stacks = [layer.stack for layer in chain.layers if layer.stack is not None]
    return [
        *(array for stack in stacks for _, _, direction in stack.directions() for array in direction.arrays.values()),
        *(array for layer in chain.layers for array in layer.parts.values()),
    ]


class _AsSource(ModelApart):
    """A written stream in the axes of its source."""

    def __init__(self, written: FileModel, chain: LayerChain) -> None:
        self._written, self._chain, self.notes = written, chain, written.notes

    @property
    def model(self) -> Model:
        return self._written.model

    def ran(
        self, inputs: NamedArrays, units: Sequence[Unit], before: Sequence[NamedArrays] = (), shakes: int = 0
    ) -> tuple[ModelOutputs, list[ModelOutputs]]:
        """Run the stream from a reset on; of a stateful source on the calls before, too."""
        (x,) = (self._chain.read(array) for _, array in inputs)
        if self._chain.stateful:
            x = np.concatenate([*(self._chain.read(array) for call in before for _, array in call), x], axis=1)
        steps = self._chain.read(inputs[0][1]).shape[1]
        ran, shaken = self._written.ran([("", x)], [], shakes=shakes)

        def of_source(each: ModelOutputs) -> ModelOutputs:
            (y,) = each.outputs
            return ModelOutputs((self._chain.as_source(y[:, y.shape[1] - steps :]),), {})

        return of_source(ran), [of_source(each) for each in shaken]


# What rooms share


def fitted(stack: Recurrent, format: str) -> tuple[Layout, Recurrent]:
    """Return a recurrent layer in the form of a format, with its layout. Raises RefusedError for one that the format cannot hold."""
    try:
        fit = fit_to_layout(stack, registry.layouts_of(format), retyped=True)
    except RefusedError as error:  # its remedies are settings of a conversion
        raise RefusedError(error.feature, error.target, error.reason, "", error.layer) from None
    return fit.layout, fit.stack


def packed(stack: Recurrent, format: str) -> tuple[Layout, Mapping[str, Array | PiecewiseArray]]:
    """Return a recurrent layer's arrays as a format has them, with their layout. Raises RefusedError likewise."""
    layout, rewritten = fitted(stack, format)
    return layout, pack(layout, rewritten, FLOAT32)


def one_stack(chain: LayerChain, name: str) -> tuple[Recurrent, ChainLayer]:
    """Return a chain of recurrent layers and a dense layer as one stack and that layer.

    Raises RefusedError, by the layer that is something else, and for layers that cannot be one stack.
    """
    layers, head = chain.layers[:-1], chain.layers[-1]
    odd = next((layer for layer in (*layers, head) if layer.kind != ("dense" if layer is head else "recurrent")), None)
    if odd is not None:
        feature = f"the activation {odd.function!r}" if odd.kind == "activation" else f"a layer of kind {odd.kind!r} in this place"
        raise RefusedError(feature, name, "its models are recurrent layers, and one dense layer behind them", "", odd.name)
    if head.function:
        raise RefusedError(f"the activation {head.function!r}", name, "its dense layer has none", "", head.name)
    stacks = [layer.stack for layer in layers if layer.stack is not None]
    if not stacks:
        raise RefusedError("a model without a recurrent layer", name, "its models begin with one")
    cells = {(stack.cell, stack.hidden_size, stack.layers[-1].output_size) for stack in stacks}
    if len(cells) > 1:
        words = ", ".join(f"{layer.name} {layer.units}" for layer in layers)
        raise RefusedError("recurrent layers of different kinds or sizes", name, f"its layers are one stack, and these are {words}")
    return Recurrent(name, tuple(layer for stack in stacks for layer in stack.layers)), head


def refuse_gains(chain: LayerChain, name: str) -> None:
    """Raise RefusedError for factors at the ends of a chain."""
    factor = next((gain for gain in chain.gains if gain != 1), None)
    if factor is not None:
        raise RefusedError(f"the factor {factor:g}", name, "it has none around its layers")


def decibels(factor: float) -> float:
    """Return a factor in decibels. Raises RefusedError for one that has none."""
    if factor <= 0:
        raise RefusedError(f"the factor {factor:g}", "a file", "a gain in decibels is above zero")
    return 20 * math.log10(factor)


def samples(stated: str, key: str) -> int:
    """Return a number of samples, or of samples a second, as a caller states it. Raises UsageError for another text."""
    if not is_count(stated) or not 0 < int(stated) <= _MOST_SAMPLES:
        raise UsageError(f"{key} is {stated!r}, and not a number of samples from 1 to {_MOST_SAMPLES}")
    return int(stated)


_MOST_SAMPLES = 1 << 20
