"""Functions of Keras 3, as layers and behind layers, in the words of rnnconvert.scaffolding.kinds.

Sources: keras 3.15 keras/src/layers/activations and keras/src/activations.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rnnconvert.formats.keras.config import Era, activation
from rnnconvert.formats.keras.describe.layer_facts import LayerFacts, one_input, refuse
from rnnconvert.formats.keras.describe.writer import Describe, Writer
from rnnconvert.formats.keras.upgrade.layers import OLD_HARD_SIGMOID
from rnnconvert.scaffolding import kinds
from rnnconvert.scaffolding.description import Value

_FUNCTIONS = {
    "relu", "sigmoid", "tanh", "softmax", "elu", "selu", "softplus", "softsign", "exponential", "hard_sigmoid", "leaky_relu",
    "log_softmax", "silu", "gelu", "relu6",
}  # fmt: skip


def applied(w: Writer, facts: LayerFacts, spec: Any, x: Value, layer: str = "") -> Value:
    """Add an activation function; `layer` is the layer that it is, if it is a separate one."""
    function = activation(spec, Era("3"))
    name = function.name
    if name == "linear":
        return x
    if name not in _FUNCTIONS:
        raise refuse(w.called(facts.name), f"the activation {name!r}", f"the known ones are {', '.join(sorted(_FUNCTIONS))}")
    if name == "hard_sigmoid" and facts.get(OLD_HARD_SIGMOID):
        x = w.add(kinds.Rescale(scale=0.2, shift=0.5), facts, [x], x.shape)
        kind = kinds.Activation("bounded_relu", 0.0, highest=1.0)
    else:
        kind = kinds.Activation(name, function.alpha)
    output = w.value(facts.name, x.shape)
    w.scope.add(kind, layer, [x], [output])
    return output


def _function_layer(w: Writer, facts: LayerFacts, values: Sequence[Value]) -> list[Value]:
    return [applied(w, facts, facts.get("activation"), one_input(facts, values))]


def _named(name: str, key: str) -> Describe:
    """Return a function that describes a layer that is one function, with one number."""

    def describe(w: Writer, facts: LayerFacts, values: Sequence[Value]) -> list[Value]:
        x = one_input(facts, values)
        output = w.value(facts.name, x.shape)
        number = float(facts.get(key))
        w.scope.add(kinds.Activation(name=name, alpha=number, axis=-1), "", [x], [output])
        return [output]

    return describe


def _softmax(w: Writer, facts: LayerFacts, values: Sequence[Value]) -> list[Value]:
    x, axis = one_input(facts, values), facts.get("axis")
    if w.masks.get(x.name) or facts.named:
        raise refuse(facts.name, "a mask on what a Softmax reads", "Keras spreads it over the wrong axes")
    if not isinstance(axis, int):
        raise refuse(facts.name, f"axis = {axis!r}", "only one axis is known here")
    return [w.node(kinds.Activation(name="softmax", alpha=None, axis=axis), facts.name, [x], x.shape)]


def _relu(w: Writer, facts: LayerFacts, values: Sequence[Value]) -> list[Value]:
    x = one_input(facts, values)
    slope, highest, threshold = (facts.get("negative_slope", 0) or 0, facts.get("max_value"), facts.get("threshold", 0) or 0)
    output = w.value(facts.name, x.shape)
    bounded = threshold or highest is not None
    name = "bounded_relu" if bounded else "leaky_relu" if slope else "relu"
    most = None if highest is None else float(highest)
    w.scope.add(kinds.Activation(name, float(slope), highest=most, threshold=float(threshold)), "", [x], [output])
    return [output]


def _prelu(w: Writer, facts: LayerFacts, values: Sequence[Value]) -> list[Value]:
    x = one_input(facts, values)
    shared = facts.get("shared_axes") or []
    slopes = [1 if number in shared else size for number, size in enumerate(x.shape) if number]
    sizes = tuple(size for size in slopes if size is not None)
    if len(sizes) < len(slopes):
        raise refuse(facts.name, "a PReLU over an open axis", "it has a slope for each place")
    output = w.value(facts.name, x.shape)
    w.scope.add(kinds.PReLU(sizes, vector=False), w.noted(facts, "", f"{facts.name}/alpha", f"{facts.name}/0"), [x], [output])
    return [output]


FUNCTIONS: Mapping[str, Describe] = {
    "Activation": _function_layer, "ReLU": _relu, "PReLU": _prelu,
    "LeakyReLU": _named("leaky_relu", "negative_slope"), "ELU": _named("elu", "alpha"), "Softmax": _softmax,
}  # fmt: skip
"""The layers that are functions, by their classes."""
