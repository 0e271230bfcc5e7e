"""A described model with its weights as RTNeural's JSON, with AIDA-X's keys where it needs them.

Sources: RTNeural/model_loader.h, parseJson; python/model_utils.py, save_model_json, for the keys and their order; AIDA-X
src/aidadsp-plugin.cpp, loadModelFromStream and applyModel, and model_variant.hpp.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from rnnconvert.core.errors import RefusedError
from rnnconvert.formats.rtneural.layouts import FUNCTIONS
from rnnconvert.language import registry

if TYPE_CHECKING:  # a conversion asks for the endings alone
    from rnnconvert.scaffolding.chain import ChainLayer, LayerChain
    from rnnconvert.scaffolding.description import Description
    from rnnconvert.scaffolding.export_target import ExportedGraph
    from rnnconvert.scaffolding.weights import LayerWeights

NAME = "rtneural"
TITLE = "RTNeural (AIDA-X)"
SUFFIXES = registry.endings(NAME)
OPTIONS = ("samplerate", "input_batch")
BY_STEPS = "a plug-in runs the file step by step, and keeps its states"

_AIDA_UNITS = (8, 12, 16, 20, 24, 32, 40, 64, 80)


def graph(description: Description, weights: LayerWeights, samplerate: str = "", input_batch: str = "") -> ExportedGraph:
    """Return a model as a row of layers. Raises RefusedError for a layer or a setting that RTNeural lacks.

    samplerate   samples a second, which AIDA-X asks for; "" for none
    input_batch  how many samples the file has beside what the model gives for them, with which AIDA-X tries it; "" for none
    """
    from rnnconvert.scaffolding.chain import chain_of
    from rnnconvert.scaffolding.stream import decibels, samples, stream_file

    chain = chain_of(description, weights)
    layers = [entry for layer in chain.layers for entry in _entries(layer)]
    document: dict[str, Any] = {"in_shape": [None, None, chain.inputs], "layers": layers}
    notes = []
    if chain.skip > 1:
        raise RefusedError(f"{chain.skip} inputs that are added to the output", TITLE, "its in_skip adds the first input alone")
    around: dict[str, Any] = {"in_skip": chain.skip} if chain.skip else {}
    around |= {key: decibels(gain) for key, gain in zip(("in_gain", "out_gain"), chain.gains, strict=True) if gain != 1}
    if samplerate:
        document["samplerate"] = samples(samplerate, "samplerate")
    if input_batch:
        document |= _tried(chain, samples(input_batch, "input_batch"))
    if around:
        notes.append(f"AIDA-X does what {', '.join(around)} says; RTNeural's own parseJson does not read it, so your code has to")
    if not _loads_in_aida(chain):
        sizes = ", ".join(map(str, _AIDA_UNITS))
        notes.append(
            f"AIDA-X 1.1 loads one LSTM or GRU of {sizes} units that reads at most 3 values, with one dense layer of 1 unit behind it; "
            "RTNeural's parseJson loads this file, too"
        )
    return stream_file(chain, {**document, **around}, notes)


def _loads_in_aida(chain: LayerChain) -> bool:
    if [layer.kind for layer in chain.layers] != ["recurrent", "dense"]:
        return False
    recurrent, dense = chain.layers
    return recurrent.inputs <= 3 and recurrent.units in _AIDA_UNITS and dense.units == 1 and not dense.function


def _tried(chain: LayerChain, count: int) -> dict[str, list[float]]:
    """Return samples, and what the layers give for them from states of zeros. Raises RefusedError for a model that AIDA-X does not load."""
    from rnnconvert.core.reference import run

    if not _loads_in_aida(chain) or chain.inputs > 1:
        raise RefusedError("input_batch", TITLE, "AIDA-X tries one LSTM or GRU of one value with a dense layer of 1 unit")
    recurrent, dense = chain.layers
    assert recurrent.stack is not None
    x = np.random.default_rng(0).uniform(-0.5, 0.5, (count, 1)).astype(np.float32)
    y = run(recurrent.stack, x[:, None]).y[:, 0] @ dense.parts["weight"].T + dense.parts["bias"] + chain.skip * x
    return {"input_batch": x[:, 0].tolist(), "output_batch": y[:, 0].astype(np.float32).tolist()}


def _entries(layer: ChainLayer) -> list[dict[str, Any]]:
    """Return a layer as RTNeural has it: its type and its other entries, followed by its activation if that is a layer."""
    rule = _RULES.get(layer.kind)
    if rule is None:
        raise RefusedError(f"a layer of kind {layer.kind!r}", TITLE, f"a row has {', '.join(_RULES)}", "", layer.name)
    return rule(layer)


def _entry(layer: ChainLayer, kind: str, weights: Sequence[Any], function: str = "", **settings: Any) -> dict[str, Any]:
    shape = [None, None, layer.units]
    return {"type": kind, "activation": function, "shape": shape, **settings, "weights": list(weights)}


def _recurrent(layer: ChainLayer) -> list[dict[str, Any]]:
    from rnnconvert.scaffolding.stream import packed

    assert layer.stack is not None
    layout, arrays = packed(layer.stack, NAME)
    return [_entry(layer, layout.class_name, [*arrays.values()], "tanh")]


def _with_function(layer: ChainLayer, kind: str, **settings: Any) -> list[dict[str, Any]]:
    weights = [layer.parts["weight"].T, layer.parts["bias"]]
    behind = [] if layer.function in ("", *FUNCTIONS) else _activation(layer)
    if not behind and layer.function:
        _check_alpha(layer)
    return [_entry(layer, kind, weights, "" if behind else layer.function, **settings), *behind]


def _check_alpha(layer: ChainLayer) -> None:
    if layer.function == "elu" and layer.alpha not in (None, 1):
        raise RefusedError(f"elu with alpha = {layer.alpha:g}", TITLE, "its elu has 1", "", layer.name)


def _activation(layer: ChainLayer) -> list[dict[str, Any]]:
    if layer.function == "leaky_relu":
        return [_entry(layer, "prelu", [np.full((1, layer.units), layer.alpha, np.float32)])]
    if layer.function not in FUNCTIONS:
        raise RefusedError(f"the activation {layer.function!r}", TITLE, f"it has {', '.join(FUNCTIONS)} and prelu", "", layer.name)
    _check_alpha(layer)
    return [_entry(layer, "activation", [], layer.function)]


def _conv(layer: ChainLayer) -> list[dict[str, Any]]:
    settings = layer.settings
    return _with_function(layer, "conv1d", kernel_size=[settings["kernel"]], dilation=[settings["dilation"]], groups=settings["groups"])


def _batch_norm(layer: ChainLayer) -> list[dict[str, Any]]:
    weights = [layer.parts[part] for part in ("scale", "shift", "mean", "variance")]
    return [_entry(layer, "batchnorm", weights, epsilon=float(layer.settings["epsilon"]))]


_RULES: Mapping[str, Callable[[ChainLayer], list[dict[str, Any]]]] = {
    "recurrent": _recurrent,
    "dense": lambda layer: _with_function(layer, "dense"),
    "conv": _conv,
    "batch_norm": _batch_norm,
    "prelu": lambda layer: [_entry(layer, "prelu", [layer.parts["slope"].reshape(1, -1)])],
    "activation": _activation,
}
"""The kinds of layers that a row has."""
