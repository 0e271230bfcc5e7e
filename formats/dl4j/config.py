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
from rnnconvert.core.weights import Call
from rnnconvert.graphs import moves
from rnnconvert.graphs.between import calls as followed
from rnnconvert.graphs.graph import CallSizes, Graph
from rnnconvert.graphs.operators import SAME, Applied, Dialect, Moves

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
_DENSE = ("dense", "output", "rnnoutput", "embedding")
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
    directions  1 or 2
    merge       how two directions are joined
    candidate   the function of candidate and output
    gate        the function of the gates
    stated      everything that the configuration states of a recurrent layer
    masked      whether a wrapper masks steps by their values (MaskZeroLayer)
    calls       what it receives in the network
    around      what the network does with its input and output, in words
    """

    name: str
    layout: str
    inputs: int
    units: int
    size: int
    directions: int = 1
    merge: Literal["concat", "sum", "mul", "ave"] = "concat"
    candidate: Activation = TANH
    gate: Activation = SIGMOID
    stated: Mapping[str, Any] = field(default_factory=dict, compare=False)
    masked: bool = False
    calls: tuple[Call, ...] = ()
    around: tuple[str, ...] = ()


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


def parts(text: Array, path: object) -> list[ConfiguredLayer]:
    """Return the layers of a network, in the order of their parameters.

    Raises UnreadableError for a configuration that is damaged, has layers of an unknown type, or leaves the order open.
    """
    with malformed(lambda what: UnreadableError(path, f"its configuration.json is damaged: {what}")):
        config = json_text.loads(bytes(text), path)
        result = [_part(path, str(name), layer) for name, layer in _layers(path, config)]
        vertices = [*_vertices(path, config, result)]
        received, around = calls([vertex for vertex, _ in vertices]), {vertex.name: words for vertex, words in vertices}
        result = [replace(part, calls=received.get(part.name, ()), around=around[part.name]) for part in result]
    return result


def _layers(path: object, config: Any) -> Iterator[tuple[object, dict[str, Any]]]:
    """Yield the names and configurations of the layers, in order."""
    if "confs" in config:
        for number, conf in enumerate(config["confs"]):
            layer = conf["layer"]
            yield _content(layer)[1].get("layerName") or number, layer
        return
    vertices: dict[str, Any] = config["vertices"]
    for name in config.get("topologicalOrderStr") or _order(path, config):
        if name in vertices:
            kind, content = _content(vertices[name])
            if "attention" in kind or "samediff" in kind:
                raise UnreadableError(path, f"the vertex {name!r} is a {kind}, whose parameters are unknown")
            if kind == "layervertex":
                yield name, content["layerConf"]["layer"]


def _vertices(path: object, config: Any, parts: Sequence[ConfiguredLayer]) -> Iterator[tuple[Vertex, tuple[str, ...]]]:
    """Yield everything of a network in an order in which it can be computed, and of layers what the network does with their input and
    output, in words.
    """
    by_name = {part.name: part for part in parts}
    if "confs" in config:
        changed, before = config.get("inputPreProcessors") or {}, "input"
        for number, (part, (_, layer)) in enumerate(zip(parts, _layers(path, config), strict=True)):
            preprocessor = changed.get(str(number))
            kind, content = _content(layer)
            yield _vertex(part.name, kind, content, [before], preprocessor, part), _preprocessor(preprocessor)
            before = part.name
        return
    kinds = {name: _content(content) for name, content in config["vertices"].items()}
    inputs: Mapping[str, list[str]] = config["vertexInputs"]
    for name in config.get("topologicalOrderStr") or _order(path, config):
        if name not in kinds:
            continue
        kind, content = kinds[name]
        read = [*inputs.get(name, ())]
        if kind != "layervertex":
            yield Vertex(name, kind, _called(kinds[name], name), content, read), ()
            continue
        inner = _content(content["layerConf"]["layer"])
        words = [f"its input comes through {_called(kinds[source], source)}" for source in _through(name, kinds, inputs)]
        words += [
            f"its output goes through {_called(kinds[other], other)}"
            for other, sources in inputs.items()
            if name in sources and kinds.get(other, ("layervertex",))[0] != "layervertex"
        ]
        preprocessor = content.get("preProcessor")
        yield _vertex(name, *inner, read, preprocessor, by_name[name]), (*_preprocessor(preprocessor), *words)


def _through(name: str, kinds: Mapping[str, tuple[str, Any]], inputs: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the vertices between a layer and those before it."""
    through: dict[str, None] = {}
    queue = [*inputs.get(name, ())]
    for source in queue:  # it grows
        if source in kinds and kinds[source][0] != "layervertex" and source not in through:
            through[source] = None
            queue += inputs.get(source, ())
    return [*through]


def _vertex(name: str, kind: str, content: Mapping[str, Any], inputs: Sequence[str], preprocessor: Any, part: ConfiguredLayer) -> Vertex:
    """Return a layer of a network as what stands in its graph."""
    units = part.units * (2 if part.directions == 2 and part.merge == "concat" else 1) if part.layout else 0
    before = _content(preprocessor)[0] if preprocessor else ""
    return Vertex(name, kind, _called((kind, content), name), content, inputs, before, units, _is_last(kind, content), part.masked)


def _is_last(kind: str, content: Mapping[str, Any]) -> bool:
    """Return whether a layer gives its last step alone: a wrapper around it says so."""
    while (kind := kind.removesuffix("layer")) in _WRAPPERS:
        if kind == "lasttimestep":
            return True
        kind, content = _content(content[_WRAPPERS[kind]])
    return False


def _called(vertex: tuple[str, Mapping[str, Any]], name: str) -> str:
    """Return the words for a vertex, as the network has them."""
    kind, content = vertex
    return f"{str(content.get('@class', kind)).rpartition('.')[2].rpartition('$')[2]} {name!r}"


_RESHAPING = ("rnntofeedforward", "feedforwardtornn", "rnntofeedforwardpreprocessor", "feedforwardtornnpreprocessor")
"""Preprocessors that change no value and no order."""


def _preprocessor(preprocessor: Any) -> tuple[str, ...]:
    """Return the meaning of a preprocessor before a layer, in words."""
    if not preprocessor:
        return ()
    kind, _ = _content(preprocessor)
    return () if kind in _RESHAPING else (f"its input is changed by a preprocessor of the network ({kind})",)


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


def _content(value: Any) -> tuple[str, dict[str, Any]]:
    """Return the type and content of {"@class": ..., ...} or {"type": {...}}."""
    if "@class" in value:
        return str(value["@class"]).rpartition(".")[2].lower(), value
    ((kind, content),) = value.items()
    return str(kind).lower(), content


def _part(path: object, name: str, layer: Any) -> ConfiguredLayer:
    kind, content = _content(layer)
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
    if kind in _DENSE:
        biases = int(content.get("hasBias", True)) + int(content.get("hasLayerNorm", False))
        return ConfiguredLayer(name, "", inputs, units, inputs * units + biases * units)
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
    kind, details = (function, {}) if isinstance(function, str) else _content(function)
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


# A network of Deeplearning4j's as a graph: what vertices do to the elements on their way from one recurrent layer to the next.
# Source: deeplearning4j-nn, org/deeplearning4j/nn/graph/vertex/impl and nn/conf/graph for the vertices, nn/conf/preprocessor for the
# preprocessors, nn/layers/DropoutLayer.java.


@dataclass(frozen=True)
class Vertex:
    """A layer of a network, or what stands between layers.

    name    of what it gives
    kind    its class in small letters
    label   what messages call it
    stated  its configuration
    inputs  the names of what it reads
    before  the class of the preprocessor before it, "" for none
    units   of a recurrent layer, how many features it gives at each step; 0 for anything else
    last    of a recurrent layer, whether it gives the last step alone
    masked  of a recurrent layer, whether it leaves out steps by their values
    """

    name: str
    kind: str
    label: str
    stated: Mapping[str, Any]
    inputs: Sequence[str]
    before: str = ""
    units: int = 0
    last: bool = False
    masked: bool = False


def calls(vertices: Sequence[Vertex]) -> dict[str, tuple[Call, ...]]:
    """Return the calls of each recurrent layer, by its name."""
    graph = Graph(_DIALECT)
    for vertex in vertices:
        inputs: list[Any] = [*vertex.inputs]
        if vertex.before:
            inputs = [(vertex.name, "before", place) for place in range(len(inputs))]
            for read, key in zip(vertex.inputs, inputs, strict=True):
                graph.add(vertex.before, [read], [key])
        if not vertex.units:
            masked = bool(vertex.stated.get("maskArrayInputName"))  # then what it does depends on the mask
            kind = (vertex.kind, "by a mask") if masked else vertex.kind
            graph.add(kind, inputs, [vertex.name], vertex.stated, vertex.label)
            continue
        name = vertex.name
        call = graph.call(
            name,
            (inputs[0] if inputs else "", "bit"),
            {} if vertex.last else {name: "but"},
            {name: "the last output"} if vertex.last else {},
            sizes=CallSizes(vertex.units),
        )
        if vertex.masked:
            call.received = replace(call.received, mask=f"by the values of what {name!r} reads")
    return followed(graph)


def _subset(applied: Applied) -> Array:
    first, last = int(applied.attributes["from"]), int(applied.attributes["to"])
    return moves.cut(applied.input(0), [first], [last + 1], [], [1])


_DIALECT: Dialect = {
    "dropoutlayer": SAME,  # DropoutLayer.java: activate() changes its input in training alone
    "dropout": SAME,
    "mergevertex": Moves(lambda applied: moves.concatenate(applied.arrays, 1), None),
    "subsetvertex": Moves(_subset),
    "reversetimeseriesvertex": Moves(lambda applied: moves.reverse(applied.input(0), [2])),
    # From (batch, features, time) to (batch * time, features) and back: a recurrent layer reads the former only.
    **dict.fromkeys(("rnntofeedforward", "feedforwardtornn", "rnntofeedforwardpreprocessor", "feedforwardtornnpreprocessor"), SAME),
}
