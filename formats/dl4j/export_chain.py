"""A described model as layers of Deeplearning4j, one behind the other.

Deeplearning4j's sequences are (batch, features, time); sources' are (batch, time, features). A dense layer reads steps as a
batch, which a preprocessor makes of them.
Source: deeplearning4j-nn, org/deeplearning4j/nn/conf/preprocessor and nn/conf/layers/recurrent/LastTimeStep.java.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from rnnconvert.core.cells import Activation
from rnnconvert.core.errors import RefusedError
from rnnconvert.core.weights import Layer
from rnnconvert.files.adapter import unique
from rnnconvert.formats.dl4j.write import TITLE, GraphVertex, applied, by_itself, dense, last_step, output, recurrent, save
from rnnconvert.language import registry
from rnnconvert.language.packing import pack
from rnnconvert.rewrites.fit_to_layout import fit_to_layout
from rnnconvert.scaffolding import kinds
from rnnconvert.scaffolding.description import DescribedModel, Description, Node, Rules, Value, on
from rnnconvert.scaffolding.export_target import ExportedGraph
from rnnconvert.scaffolding.walk import LayerWalk
from rnnconvert.scaffolding.weights import LayerWeights

_TO_ROWS, _TO_STEPS = "RnnToFeedForwardPreProcessor", "FeedForwardToRnnPreProcessor"
_INPUT = "input"


class _NetworkChain(LayerWalk[Any]):
    """A network under construction.

    end    the tensor that its last layer gives
    rows   whether that layer gives the steps as a batch, as a dense layer does
    words  its recurrent layers, in words
    every  whether its layers give every step where the model's give the last one: rnnTimeStep goes around LastTimeStep
    """

    title = TITLE

    def __init__(self, scope: DescribedModel, weights: LayerWeights, stateful: bool) -> None:
        super().__init__(scope, _RULES, weights)
        self.unknown = f"what is written are layers of the kinds {', '.join(kind.word for kind in _RULES)}"
        self.end, self.rows, self.every, self._stateful = scope.inputs[0], False, False, stateful
        self.vertices: list[GraphVertex] = []
        self.words: list[str] = []

    def visit(self, node: Node[kinds.Kind]) -> None:
        rule = self.rule(node)
        if node.x is not self.end:
            raise self.refused(node, "a branch", "what is written is a chain of layers, each of which reads the one before it")
        rule(self, node)
        self.end = node.y

    def in_steps(self, value: Value) -> bool:
        """Return whether the network gives every step of a tensor of the model's."""
        return self.every or len(value.shape) == 3

    def give_last(self) -> None:
        """Have the last layer give its last step alone, where a call has all steps before it."""
        self.every = self._stateful
        if not self.every:
            self.vertices[-1] = last_step(self.vertices[-1])

    def stateful_notes(self) -> list[str]:
        """Return how to call a network whose states last from call to call."""
        note = "its states last from one call to the next: call rnnTimeStep, not output; rnnClearPreviousState begins anew"
        return [note, *(["it gives every step, of which the model gives the last one"] if self.every else [])] if self._stateful else []

    def add(self, node: Node[kinds.Kind], make: Callable[[str, str], GraphVertex]) -> None:
        """Add a layer behind the last one, which a function makes of its name and of what it reads."""
        names = {_INPUT, *(vertex.name for vertex in self.vertices)}
        self.vertices.append(make(unique(node.label, names), self.vertices[-1].name if self.vertices else _INPUT))


def exported(description: Description, weights: LayerWeights) -> ExportedGraph:
    """Return a described model as a network. Raises RefusedError for one that branches, and for a layer without an equivalent."""
    scope = description.scope
    if len(scope.inputs) != 1 or len(scope.outputs) != 1 or len(scope.inputs[0].shape) != 3 or scope.inputs[0].dtype != "float32":
        raise RefusedError("this model", TITLE, "what is written is a chain of layers from one input (batch, time, features) to one output")
    stateful = {bool(node.kind.stateful) for node in scope.nodes if isinstance(node.kind, kinds.Recurrent)}
    if len(stateful) > 1:
        raise RefusedError("stateful = True", TITLE, "its rnnTimeStep keeps the states of all layers, and others here begin anew")
    chain = _NetworkChain(scope, weights, True in stateful)
    chain.run(scope)
    if scope.outputs[0] is not chain.end or not chain.vertices:
        raise RefusedError("the output", TITLE, "it is not what the last layer gives")
    by_step = chain.in_steps(chain.end)
    if _is_dense(chain.vertices[-1]):
        chain.vertices[-1] = _output(chain.vertices[-1], by_step)
    elif chain.rows:
        raise RefusedError(
            "a function of its own at the end", TITLE, "it would give the steps of all sequences as a batch", "", chain.vertices[-1].name
        )
    features, width = scope.inputs[0].shape[2], chain.end.shape[-1]
    notes = ["load it with ModelSerializer.restoreComputationGraph, of Deeplearning4j 1.0.0-beta4 or later; nobody has run it here"]
    notes += [f"its sequences are (batch, features, time), and those of its source {scope.inputs[0].name} (batch, time, features)"]
    notes += chain.stateful_notes()
    gives = f"{chain.vertices[-1].name} (batch, {width}{', time' if by_step else ''})"
    inputs = [f"{_INPUT} (batch, {features}, time)"]
    size = sum(4 * math.prod(array.shape) for each in chain.vertices for array in each.arrays)
    write = partial(save, inputs=[_INPUT], vertices=chain.vertices)
    return ExportedGraph(inputs, [gives], len(chain.vertices), chain.words, notes, size, write)


def _output(last: GraphVertex, by_step: bool) -> GraphVertex:
    """Return the last dense layer as an output layer; one that gives steps reads them, too."""
    reads_steps = last.before == _TO_ROWS
    return replace(output(last, by_step), before="" if not by_step or reads_steps else _TO_STEPS)


def _is_dense(vertex: GraphVertex) -> bool:
    return str(vertex.layer["@class"]).endswith(".DenseLayer")


def _recurrent(chain: _NetworkChain, node: Node[kinds.Recurrent]) -> None:
    for feature, word in {"a mask": "mask", "initial states": "states"}.items():
        if node.named.get(word):
            raise chain.refused(node, feature, "it is not written for its recurrent layers")
    stack = chain.weights.stack(chain.path(node))
    if node.kind.stateful and len(stack.layers[0].directions) > 1:
        raise chain.refused(node, "stateful = True of two directions", "its rnnTimeStep takes layers of one direction")
    if node.kind.backwards or (len(stack.layers[0].directions) > 1 and (not node.kind.sequences or node.kind.merge is None)):
        raise chain.refused(node, "a layer that gives the end of what it reads backwards", "its LastTimeStep gives the last step in time")
    merged = stack.replace(layers=(Layer(stack.layers[0].directions, node.kind.merge or "concat"),))
    try:
        fitted = fit_to_layout(merged, registry.layouts_of("dl4j"), retyped=True)
    except RefusedError as error:  # its remedies are settings of a conversion
        raise RefusedError(error.feature, TITLE, error.reason, "", error.layer or node.layer) from None
    (share,) = pack(fitted.layout, fitted.stack, np.dtype(np.float32)).values()
    chain.add(node, lambda name, reads: recurrent(name, reads, fitted.layout.name.partition(".")[2], fitted.stack, share))
    vertex = chain.vertices[-1]
    chain.vertices[-1] = replace(vertex, before=_TO_STEPS if chain.rows else "")
    chain.rows = False
    if not node.kind.sequences:
        chain.give_last()
    chain.words.append(f"{vertex.name} ({stack.cell.kind.upper()} {stack.input_size} -> {stack.layers[-1].output_size})")


def _dense(chain: _NetworkChain, node: Node[kinds.Dense]) -> None:
    before = _TO_ROWS if chain.in_steps(node.x) and not chain.rows else ""
    parts = {part: np.asarray(array, np.float32) for part, array in chain.parts(node, "dense").items()}
    chain.add(node, lambda name, reads: dense(name, reads, parts, before))
    chain.rows = chain.in_steps(node.x)


def _activation(chain: _NetworkChain, node: Node[kinds.Activation]) -> None:
    """Add a function: to the dense layer before it, or as a separate layer."""
    softmax = node.kind.name == "softmax"
    if softmax and node.kind.axis % len(node.x.shape) != len(node.x.shape) - 1:
        raise chain.refused(node, "a softmax over another axis than the features", "its softmax is over these")
    # A description's hard_sigmoid is that of Keras 3 and PyTorch.
    alpha = 1 / 6 if node.kind.name == "hard_sigmoid" and node.kind.alpha is None else node.kind.alpha
    activation = Activation(node.kind.name, alpha)
    before = chain.vertices[-1] if chain.vertices else None
    if before is not None and _is_dense(before) and str(before.layer["activationFn"]["@class"]).endswith("Identity"):
        chain.vertices[-1] = applied(before, activation)
        return
    if softmax and not chain.rows and chain.in_steps(node.x):
        raise chain.refused(node, "a softmax over the features of a sequence", "it is written behind a dense layer")
    chain.add(node, lambda name, reads: by_itself(name, reads, activation))


def _select(chain: _NetworkChain, node: Node[kinds.Select]) -> None:
    """Take the last step of the recurrent layer before."""
    before = chain.vertices[-1] if chain.vertices else None
    plain = before is not None and str(before.layer["@class"]).endswith(("LSTM", "SimpleRnn"))
    if before is None or not plain or node.kind.axis != 1 or node.kind.index != -1:
        raise chain.refused(
            node, f"the place {node.kind.index} of axis {node.kind.axis}", "of a recurrent layer of one direction it takes the last step"
        )
    chain.give_last()


_RULES: Rules = {
    **on(kinds.Recurrent, _recurrent), **on(kinds.Dense, _dense), **on(kinds.Activation, _activation),
    **on(kinds.Dropout, lambda chain, node: None), **on(kinds.Select, _select),
}  # fmt: skip
"""The kinds that are written."""
