"""Normalising layers of Keras 3 as ONNX nodes.

Sources: keras 3.15 keras/src/layers/normalization, keras/src/layers/preprocessing/normalization.py and keras/src/ops/nn.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from rnnconvert.core.arrays import Array
from rnnconvert.formats.keras.defaults import UNIT_LENGTH
from rnnconvert.formats.keras.export.layer_facts import LayerFacts, ModelTensor, refuse
from rnnconvert.formats.keras.export.layers import Emit, GraphBuilder, bounded, one_input
from rnnconvert.formats.keras.export.masks import mask_on
from rnnconvert.formats.keras.settings import axes_of, groups_of, only_axis

_TRAINING = ("momentum", "center", "scale", "synchronized", "renorm_momentum", "renorm_clipping", "virtual_batch_size")


def scaled(build: GraphBuilder, facts: LayerFacts, x: ModelTensor, scale: Array | None, shift: Array | None) -> ModelTensor:
    """Add a product and a sum with stored numbers, where there are such."""
    for operator, word, array in (("Mul", "scale", scale), ("Add", "shift", shift)):
        if array is not None:
            x = replace(x, name=build.add(operator, [x.name, build.constant(f"{facts.name}/{word}", array)], f"{facts.name}/{word}d"))
    return x


def _along(facts: LayerFacts, x: ModelTensor, axes: Sequence[int], array: Array) -> Array:
    """Return weights in a shape that spreads over a tensor: one axis for each of its axes from the first named on."""
    if any(x.shape[n] not in (None, size) for n, size in zip(axes, array.shape, strict=True)):
        raise refuse(facts.name, f"weights of shape {array.shape}", f"its input has the shape {x.shape}")
    sizes = dict(zip(axes, array.shape, strict=True))
    return array.reshape([sizes.get(n, 1) for n in range(axes[0], len(x.shape))])


def _batch_norm(build: GraphBuilder, facts: LayerFacts, values: Sequence[ModelTensor]) -> ModelTensor:
    x = one_input(facts, values)
    axes = [only_axis(facts, x)]
    facts.need("renorm", False)
    mask_on(build, facts, x)  # it is read in training alone
    mean, variance = facts.weight("moving_mean"), facts.weight("moving_variance")
    gamma, beta = facts.array("gamma"), facts.array("beta")
    for key in _TRAINING:
        facts.get(key)
    factor = 1 / np.sqrt(variance.astype(np.float64) + float(facts.get("epsilon")))
    factor = factor if gamma is None else factor * gamma
    shift = np.asarray((0 if beta is None else beta) - mean.astype(np.float64) * factor, mean.dtype)
    spread = [_along(facts, x, axes, array) for array in (factor.astype(mean.dtype), shift)]
    return scaled(build, facts, x, *spread)


def _layer_norm(build: GraphBuilder, facts: LayerFacts, values: Sequence[ModelTensor]) -> ModelTensor:
    x, name = one_input(facts, values), facts.name
    axes = axes_of(facts, x)
    facts.need("rms_scaling", False)
    facts.get("center"), facts.get("scale")
    gamma, beta = facts.array("gamma"), facts.array("beta")
    sizes = [x.shape[n] for n in axes]
    if gamma is None and None in sizes:
        raise refuse(name, "a width that is open", "its scale needs it")
    gamma = np.ones([n or 0 for n in sizes], np.float32) if gamma is None else gamma
    order = [n for n in range(len(x.shape)) if n not in axes] + axes
    inputs = [build.transposed(x.name, order, f"{name}/in"), build.constant(f"{name}/gamma", gamma)]
    if beta is not None:
        inputs.append(build.constant(f"{name}/beta", beta))
    epsilon = float(facts.get("epsilon"))
    output = build.add("LayerNormalization", inputs, f"{name}/normal", axis=-len(axes), epsilon=epsilon)
    return replace(x, name=build.transposed(output, [int(n) for n in np.argsort(order)], f"{name}/out"))


def _inverse_root(build: GraphBuilder, name: str, square: str, epsilon: float) -> str:
    """Add one over the root of a variance."""
    safe = build.add("Add", [square, build.constant(f"{name}/epsilon", np.array(epsilon, np.float32))], f"{name}/safe")
    return build.add("Reciprocal", [build.add("Sqrt", [safe], f"{name}/root")], f"{name}/inverse")


def _rms_norm(build: GraphBuilder, facts: LayerFacts, values: Sequence[ModelTensor]) -> ModelTensor:
    x, name = one_input(facts, values), facts.name
    axes = axes_of(facts, x)
    if axes != list(range(axes[0], len(x.shape))):
        raise refuse(name, f"axis = {facts.get('axis')!r}", "Keras spreads its scale over the last axes, whichever it names")
    square = build.add("Mul", [x.name, x.name], f"{name}/square")
    mean = build.add("ReduceMean", [square], f"{name}/mean", axes=axes, keepdims=1)
    inverse = _inverse_root(build, name, mean, float(facts.get("epsilon")))
    output = ModelTensor(build.add("Mul", [x.name, inverse], f"{name}/normal"), x.shape)  # Keras hands no mask on here
    return scaled(build, facts, output, _along(facts, x, axes, facts.weight("scale")), None)


def _group_norm(build: GraphBuilder, facts: LayerFacts, values: Sequence[ModelTensor]) -> ModelTensor:
    x, name = one_input(facts, values), facts.name
    groups, width = groups_of(facts, x)
    facts.get("center"), facts.get("scale")
    parted = build.add("Reshape", [x.name, build.integers(0, -1, groups, width // groups)], f"{name}/groups")
    mean = build.add("ReduceMean", [parted], f"{name}/mean", axes=[1, 3], keepdims=1)
    centred = build.add("Sub", [parted, mean], f"{name}/centred")
    square = build.add("Mul", [centred, centred], f"{name}/square")
    variance = build.add("ReduceMean", [square], f"{name}/variance", axes=[1, 3], keepdims=1)
    inverse = _inverse_root(build, name, variance, float(facts.get("epsilon")))
    normal = build.add("Mul", [centred, inverse], f"{name}/normal")
    output = build.add("Reshape", [normal, build.add("Shape", [x.name], f"{name}/shape")], f"{name}/together")
    return scaled(build, facts, replace(x, name=output), facts.array("gamma"), facts.array("beta"))


def unit(build: GraphBuilder, name: str, value: str, axes: Sequence[int], epsilon: float) -> str:
    """Add what gives a vector the length one: Keras bounds its inverse length."""
    length = build.add("ReduceL2", [value], f"{name}/length", axes=list(axes), keepdims=1)
    return build.add("Div", [value, bounded(build, name, length, epsilon, None)], f"{name}/unit")


def _unit_norm(build: GraphBuilder, facts: LayerFacts, values: Sequence[ModelTensor]) -> ModelTensor:
    x = one_input(facts, values)
    return replace(x, name=unit(build, facts.name, x.name, axes_of(facts, x), UNIT_LENGTH))


def _normalization(build: GraphBuilder, facts: LayerFacts, values: Sequence[ModelTensor]) -> ModelTensor:
    """Add a Normalization, with its moments from its weights or its configuration."""
    x, name = one_input(facts, values), facts.name
    stated = [facts.get("mean"), facts.get("variance")]
    axes = axes_of(facts, x) if facts.get("axis") not in (None, [], ()) else []
    if stated == [None, None]:
        moments = [facts.weight("mean"), facts.weight("variance")]
    else:
        moments = [np.asarray(moment, np.float32) for moment in stated]
    if any(moment.ndim not in ({0, len(axes)} if stated != [None, None] else {len(axes)}) for moment in moments):
        raise refuse(name, f"moments of {moments[0].ndim} axes", f"it has {len(axes)}")
    mean, variance = (_along(facts, x, axes, moment) if moment.ndim else moment for moment in moments)
    spread = np.asarray(np.maximum(np.sqrt(variance.astype(np.float32)), np.float32(1e-7)))
    numbers = {"mean": mean.astype(np.float32), "spread": spread}
    constants = {word: build.constant(f"{name}/{word}", array) for word, array in numbers.items()}
    if facts.get("invert", False):
        wide = build.add("Mul", [x.name, constants["spread"]], f"{name}/wide")
        return replace(x, name=build.add("Add", [wide, constants["mean"]], f"{name}/moved"))
    centred = build.add("Sub", [x.name, constants["mean"]], f"{name}/centred")
    return replace(x, name=build.add("Div", [centred, constants["spread"]], f"{name}/normal"))


def _rescaling(build: GraphBuilder, facts: LayerFacts, values: Sequence[ModelTensor]) -> ModelTensor:
    scale, shift = (np.asarray(facts.get(key), np.float32) for key in ("scale", "offset"))
    return scaled(build, facts, one_input(facts, values), scale, shift)


NORMS: Mapping[str, Emit] = {
    "BatchNormalization": _batch_norm,
    "LayerNormalization": _layer_norm,
    "RMSNormalization": _rms_norm,
    "GroupNormalization": _group_norm,
    "UnitNormalization": _unit_norm,
    "Normalization": _normalization,
    "Rescaling": _rescaling,
}
"""The normalising layers, by their classes."""
