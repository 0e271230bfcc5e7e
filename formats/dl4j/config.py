"""The configuration of a network in a Deeplearning4j file: its layers in the order of their parameters.

Source: deeplearning4j-nn, org/deeplearning4j/nn/conf/{MultiLayerConfiguration,ComputationGraphConfiguration}.java and
conf/layers; sizes of parameters as nn/params/*ParamInitializer.java count them. Until 0.9 a layer is {"type": {...}} and
its functions are names or {"TanH": {}}; later "@class" names both.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from rnnconvert.containers import json_text
from rnnconvert.core.arrays import Array
from rnnconvert.core.cells import SIGMOID, TANH, Activation
from rnnconvert.core.errors import UnreadableError
from rnnconvert.core.malformed import malformed
from rnnconvert.files.adapter import unique

FUNCTIONS: dict[str, Activation] = {
    "tanh": TANH,
    "sigmoid": SIGMOID,
    "relu": Activation("relu"),
    "identity": Activation("linear"),
    "softsign": Activation("softsign"),
    "softplus": Activation("softplus"),
    "swish": Activation("silu"),
    "hardsigmoid": Activation("hard_sigmoid", 0.2, 0.5),
}
"""ND4J's functions (org/nd4j/linalg/activations/impl), by our names for them."""
_RECURRENT = {"lstm": "lstm", "graveslstm": "graves_lstm", "gravesbidirectionallstm": "graves_lstm", "simplernn": "rnn"}
_DENSE = ("dense", "output", "rnnoutput", "embedding", "embeddingsequence")
_EMPTY = ("activation", "dropout", "globalpooling", "loss", "rnnloss", "subsampling")
_WRAPPERS = {"frozen": "layer", "lasttimestep": "underlying", "maskzero": "underlying"}
MERGES: dict[str, Literal["concat", "sum", "mul", "ave"]] = {"CONCAT": "concat", "ADD": "sum", "MUL": "mul", "AVERAGE": "ave"}
"""How a Bidirectional joins its directions, by our words for it."""


@dataclass(frozen=True)
class ConfiguredLayer:
    """One layer of a network.

    name        what the network calls it, or its number
    layout      second half of its layout's name; "" for a layer that is not recurrent
    inputs      width of what it reads
    units       width of what it computes
    size        how many parameters it has
    arrays      of a layer that is not recurrent, the names and shapes of its parameters, in their order
    directions  1 or 2
    merge       how two directions are joined
    candidate   the function of candidate and output
    gate        the function of the gates
    stated      everything that the configuration states of a recurrent layer
    masked      whether a wrapper masks steps by their values (MaskZeroLayer)
    around      what the network does with its input and output, in words
    """

    name: str
    layout: str
    inputs: int
    units: int
    size: int
    arrays: Sequence[tuple[str, tuple[int, ...]]] = ()
    directions: int = 1
    merge: Literal["concat", "sum", "mul", "ave"] = "concat"
    candidate: Activation = TANH
    gate: Activation = SIGMOID
    stated: Mapping[str, Any] = field(default_factory=dict, compare=False)
    masked: bool = False
    around: tuple[str, ...] = ()


@dataclass(frozen=True)
class Vertex:
    """A layer of a network, or what stands between layers.

    name    of what it gives
    kind    its class in small letters; of a layer without "layer" at its end
    stated  its configuration
    inputs  the names of what it reads
    before  the preprocessor before it: its class in small letters and its configuration; "" for none
    part    the layer, if it is one
    """

    name: str
    kind: str
    stated: Mapping[str, Any]
    inputs: Sequence[str]
    before: tuple[str, Mapping[str, Any]] = ("", {})
    part: ConfiguredLayer | None = None

    @property
    def label(self) -> str:
        """The words for it, as the network has them."""
        return f"{str(self.stated.get('@class', self.kind)).rpartition('.')[2].rpartition('$')[2]} {self.name!r}"


@dataclass(frozen=True)
class ConfiguredNetwork:
    """A network.

    parts     its layers, in the order of their parameters
    vertices  everything in it, in an order in which it can be computed
    inputs    the names of its inputs
    outputs   the names of what it gives
    """

    parts: Sequence[ConfiguredLayer]
    vertices: Sequence[Vertex]
    inputs: Sequence[str]
    outputs: Sequence[str]


USED = frozenset({
    "@class", "nin", "nout", "nIn", "nOut", "layerName", "layername", "activationFn", "activationFunction", "gateActivationFn",
    "gateActivationFunction", "hasLayerNorm",
})  # fmt: skip
"""The keys of a recurrent layer's configuration that are read."""
NEUTRAL: Mapping[str, tuple[object, ...]] = {"hasBias": (True,)}
"""Keys that state what every recurrent layer here has."""
HARMLESS = frozenset({
    "adamMeanDecay", "adamVarDecay", "rho", "rmsDecay", "epsilon", "momentum", "momentumSchedule", "updater", "iUpdater",
    "iupdater", "biasUpdater", "biasLearningRate", "learningRate", "learningRateSchedule", "biasInit", "dist", "weightInit",
    "weightInitFn", "weightInitFnRecurrent", "weightInitRecurrent", "distRecurrent", "gainInit", "forgetGateBiasInit",
    "gradientNormalization", "gradientNormalizationThreshold", "l1", "l2", "l1Bias", "l2Bias", "biasL1", "biasL2",
    "regularization", "regularizationBias", "constraints", "inputWeightConstraints", "recurrentConstraints",
    "biasConstraints", "dropOut", "iDropout", "idropout", "weightNoise", "pretrain", "legacyBatchScaledL2",
    "helperAllowFallback", "rnnDataFormat", "cudnnAlgoMode", "numParams", "timeDistributedFormat",
})  # fmt: skip
"""Keys about training, initial values, or the memory layout of inputs. Source: nn/conf/layers/*.java."""


def network(text: Array, path: object) -> ConfiguredNetwork:
    """Return a network.

    Raises UnreadableError for a configuration that is damaged, has layers of an unknown type, or leaves the order open.
    """
    with malformed(lambda what: UnreadableError(path, f"its configuration.json is damaged: {what}")):
        config = json_text.loads(bytes(text), path)
        parts = {name: _part(path, name, layer) for name, layer in _layers(path, config)}
        vertices = list(_vertices(path, config, parts))
        around = _around_layers(vertices)
        inputs = [_INPUT] if "confs" in config else [str(name) for name in config["networkInputs"]]
        outputs = [vertices[-1].name] if "confs" in config else [str(name) for name in config.get("networkOutputs", ())]
        return ConfiguredNetwork([replace(part, around=around[name]) for name, part in parts.items()], vertices, inputs, outputs)


_INPUT = "input"


def _layers(path: object, config: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the names and configurations of the layers, in order."""
    if "confs" in config:
        names = {_INPUT}
        for number, conf in enumerate(config["confs"]):
            layer = conf["layer"]
            name = unique(str(content_of(layer)[1].get("layerName") or number), names)
            names.add(name)
            yield name, layer
        return
    vertices: dict[str, Any] = config["vertices"]
    for name in config.get("topologicalOrderStr") or _order(path, config):
        if name in vertices:
            kind, content = content_of(vertices[name])
            if "attention" in kind or "samediff" in kind:
                raise UnreadableError(path, f"the vertex {name!r} is a {kind}, whose parameters are unknown")
            if kind == "layervertex":
                yield name, content["layerConf"]["layer"]


def _vertices(path: object, config: Any, parts: Mapping[str, ConfiguredLayer]) -> Iterator[Vertex]:
    """Yield everything of a network in an order in which it can be computed."""

    def layer(name: str, stated: Any, inputs: Sequence[str], preprocessor: Any) -> Vertex:
        kind, content = content_of(stated)
        before = content_of(preprocessor) if preprocessor else ("", {})
        return Vertex(name, kind.removesuffix("layer"), content, inputs, before, parts[name])

    if "confs" in config:
        source = _INPUT
        for number, (name, stated) in enumerate(_layers(path, config)):
            yield layer(name, stated, [source], (config.get("inputPreProcessors") or {}).get(str(number)))
            source = name
        return
    for name in config.get("topologicalOrderStr") or _order(path, config):
        if name not in config["vertices"]:
            continue
        kind, content = content_of(config["vertices"][name])
        inputs = [*config["vertexInputs"].get(name, ())]
        is_layer = kind == "layervertex"
        yield (
            layer(name, content["layerConf"]["layer"], inputs, content.get("preProcessor"))
            if is_layer
            else Vertex(name, kind, content, inputs)
        )


def _around_layers(vertices: Sequence[Vertex]) -> dict[str, tuple[str, ...]]:
    """Return for each layer what the network does with its input and output, in words."""
    words: dict[str, list[str]] = {}
    others = {vertex.name: vertex for vertex in vertices if vertex.part is None}
    for vertex in vertices:
        kind, _ = vertex.before
        changed = kind and kind.removesuffix("preprocessor") not in RESHAPING
        words[vertex.name] = [f"its input is changed by a preprocessor of the network ({kind})"] if changed else []
        through = dict.fromkeys(name for name in vertex.inputs if name in others)
        queue = [*through]
        for name in queue:  # it grows
            new = [source for source in others[name].inputs if source in others and source not in through]
            through |= dict.fromkeys(new)
            queue += new
        words[vertex.name] += [f"its input comes through {others[name].label}" for name in through]
    for other in others.values():
        for name in other.inputs:
            words.get(name, []).append(f"its output goes through {other.label}")
    return {name: tuple(each) for name, each in words.items()}


RESHAPING = ("rnntofeedforward", "feedforwardtornn")
"""Preprocessors that change no value and no order."""


def without_wrappers(kind: str, content: Mapping[str, Any]) -> tuple[str, Mapping[str, Any], list[str]]:
    """Return the kind and the configuration of the layer inside the wrappers around a layer, and the kinds of these."""
    wrappers: list[str] = []
    while (kind := kind.removesuffix("layer")) in _WRAPPERS:
        wrappers.append(kind)
        kind, content = content_of(content[_WRAPPERS[kind]])
    return kind, content, wrappers


def _order(path: object, config: Mapping[str, Any]) -> list[str]:
    """Return the vertices, each after those that it reads. Raises UnreadableError if there is more than one such order."""
    reads = {name: set(config["vertexInputs"].get(name, ())) for name in config["vertices"]}
    done, order = set(config["networkInputs"]), list[str]()
    while len(order) < len(reads):
        ready = [name for name in reads if name not in done and reads[name] <= done]
        if len(ready) != 1:
            raise UnreadableError(
                path,
                f"its configuration does not state the order of the parameters of {', '.join(ready) or 'its vertices'}",
                "Save it again with Deeplearning4j 1.0.0-beta4 or later, which writes topologicalOrderStr.",
            )
        order += ready
        done |= set(ready)
    return order


def content_of(value: Any) -> tuple[str, dict[str, Any]]:
    """Return the type and content of {"@class": ..., ...} or {"type": {...}}."""
    if "@class" in value:
        return str(value["@class"]).rpartition(".")[2].lower(), value
    ((kind, content),) = value.items()
    return str(kind).lower(), content


def _part(path: object, name: str, layer: Any) -> ConfiguredLayer:
    kind, content = content_of(layer)
    kind = kind.removesuffix("layer")
    if kind in _WRAPPERS:
        inside = _part(path, name, content[_WRAPPERS[kind]])
        inside = replace(inside, stated=_around(inside.stated, kind, content, _WRAPPERS[kind]))
        return replace(inside, masked=True) if kind == "maskzero" else inside
    if kind == "bidirectional":
        forward, other = (_part(path, name, content[side]) for side in ("fwd", "bwd"))
        if forward != other or not forward.layout:
            raise UnreadableError(path, f"the two directions of {name!r} differ, or are not recurrent layers")
        merge = MERGES.get(str(content["mode"]))
        if merge is None:
            raise UnreadableError(path, f"{name!r} joins its directions by the unknown mode {content['mode']!r}")
        unlike = {f"{key} of bwd": value for key, value in other.stated.items() if forward.stated.get(key) != value}
        unlike |= {f"{key} of fwd": value for key, value in forward.stated.items() if key not in other.stated}
        named = {key: value for key, value in unlike.items() if key.rpartition(" of ")[0] not in HARMLESS | {"layerName"}}
        return replace(_two(forward, merge), stated=_around({**forward.stated, **named}, kind, content, "fwd", "bwd", "mode"))
    if kind in _EMPTY:
        return ConfiguredLayer(name, "", 0, 0, 0)
    inputs, units = (_size(path, name, content, key) for key in ("nin", "nout"))
    if kind in (*_DENSE, "batchnormalization"):
        arrays = [("W", (inputs, units)), *[("b", (units,))] * content.get("hasBias", True)]
        arrays += [("g", (units,))] * content.get("hasLayerNorm", False)
        if kind == "batchnormalization":
            each = ["gamma", "beta"] * (not content.get("lockGammaBeta", False))
            arrays = [(word, (units,)) for word in (*each, "mean", "log10stdev" if content.get("useLogStd") else "var")]
        return ConfiguredLayer(name, "", inputs, units, sum(math.prod(shape) for _, shape in arrays), arrays)
    if kind not in _RECURRENT or content.get("hasLayerNorm"):
        what = f"a {kind} with layer normalisation" if kind in _RECURRENT else f"of the type {kind!r}"
        raise UnreadableError(path, f"the layer {name!r} is {what}, whose parameters are unknown")
    gates = 1 if kind == "simplernn" else 4
    size = gates * units * (inputs + units + 1) + (3 * units if _RECURRENT[kind] == "graves_lstm" else 0)
    candidate, gate = _function(content, "activation", TANH), _function(content, "gateActivation", SIGMOID)
    part = ConfiguredLayer(name, _RECURRENT[kind], inputs, units, size, candidate=candidate, gate=gate, stated=content)
    return _two(part, "sum") if kind == "gravesbidirectionallstm" else part


def _around(stated: Mapping[str, Any], kind: str, content: Mapping[str, Any], *used: str) -> dict[str, Any]:
    """Return the statements of a layer, and the additional ones of the layer around it."""
    used_keys = {"@class", "layerName", "layername", *used, *HARMLESS}
    return {**stated, **{f"{key} of {kind}": value for key, value in content.items() if key not in used_keys and stated.get(key) != value}}


def _two(part: ConfiguredLayer, merge: Literal["concat", "sum", "mul", "ave"]) -> ConfiguredLayer:
    return replace(part, size=2 * part.size, directions=2, merge=merge)


def _size(path: object, name: str, content: Mapping[str, Any], key: str) -> int:
    """Return a width, for a key in any case."""
    size = next((value for word, value in content.items() if word.lower() == key), None)
    if not isinstance(size, int) or isinstance(size, bool) or not 0 < size < 1 << 40:
        raise UnreadableError(path, f"the layer {name!r} has {key} {size!r}, expected a number")
    return size


def _function(content: Mapping[str, Any], key: str, default: Activation) -> Activation:
    """Return a function as any version writes it; an unknown one keeps its name, and is refused where it is run."""
    function = content.get(f"{key}Fn", content.get(f"{key}Function"))
    if function is None:
        return default
    kind, details = (function, {}) if isinstance(function, str) else content_of(function)
    name = kind.lower().removeprefix("activation")
    constants = {word: value for word, value in details.items() if word != "@class" and value not in (None, 0, 0.0)}
    if name in FUNCTIONS and not constants:
        return FUNCTIONS[name]
    alpha = constants.get("alpha", 0.0)
    if not isinstance(alpha, int | float) or not math.isfinite(alpha):
        raise ValueError(f"{key} has the alpha {alpha!r}")
    if name in ("elu", "lrelu") and set(constants) <= {"alpha"}:
        return Activation({"elu": "elu", "lrelu": "leaky_relu"}[name], details.get("alpha"))
    return Activation(f"dl4j {name}")
