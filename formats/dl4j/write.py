"""Recurrent layers as a ComputationGraph of Deeplearning4j, as 1.0.0-beta4 and later read it.

The other entries of a configuration, such as its updater, serve training: they have the values that Deeplearning4j gives a new layer. The
keys are taken from a graph that 1.0.0-beta4 wrote.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

from rnnconvert.containers.checksums import Crc32
from rnnconvert.containers.files import replacing
from rnnconvert.containers.stored_zip import StoredZip
from rnnconvert.core.arrays import Array, PiecewiseArray
from rnnconvert.core.cells import Activation
from rnnconvert.core.errors import RefusedError
from rnnconvert.core.weights import Direction, Recurrent
from rnnconvert.formats.dl4j import nd4j
from rnnconvert.formats.dl4j.config import FUNCTIONS, MERGES

TITLE = "Deeplearning4j"
_LAYERS, _ACTIVATIONS = "org.deeplearning4j.nn.conf.layers.", "org.nd4j.linalg.activations.impl.Activation"
_CLASSES = {"lstm": "LSTM", "graves_lstm": "GravesLSTM", "rnn": "recurrent.SimpleRnn"}
_SPELLED = {
    "tanh": "TanH", "sigmoid": "Sigmoid", "relu": "ReLU", "identity": "Identity", "softsign": "SoftSign", "softplus": "SoftPlus",
    "swish": "Swish", "hardsigmoid": "HardSigmoid",
}  # fmt: skip
"""The classes of ND4J's functions, by the words that the configuration is read by."""


@dataclass(frozen=True)
class GraphVertex:
    """A layer of a network that is written.

    name       what the network calls it
    reads      the input or the layer that it reads
    layer      its configuration
    variables  the names of its parameters, in their order
    arrays     its share of the network's parameters
    before     the class of what gives its input other axes; "" for none
    """

    name: str
    reads: str
    layer: Mapping[str, Any]
    variables: Sequence[str]
    arrays: Sequence[Array | PiecewiseArray]
    before: str = ""


def recurrent(name: str, reads: str, layout: str, single: Recurrent, share: Array | PiecewiseArray) -> GraphVertex:
    """Return a recurrent layer.

    layout  the second half of its layout's name

    Raises RefusedError for functions that Deeplearning4j lacks, or that it has as one.
    """
    (layer,) = single.layers
    sides = [_one_way(name, layout, direction) for direction in layer.directions]
    parts = ["W", "RW", "b"]
    if len(sides) == 1:
        return GraphVertex(name, reads, sides[0], parts, [share])
    around = {
        "@class": f"{_LAYERS}recurrent.Bidirectional", "bwd": sides[1], "constraints": None, "fwd": sides[0],
        "gradientNormalization": "None", "gradientNormalizationThreshold": 1.0, "idropout": None, "layerName": name,
        "mode": next(word for word, merge in MERGES.items() if merge == layer.merge), "nin": single.input_size,
        "nout": layer.directions[0].output_size,
    }  # fmt: skip
    return GraphVertex(name, reads, around, [f"{way}{part}" for way in "fb" for part in parts], [share])


def _one_way(name: str, layout: str, direction: Direction) -> dict[str, Any]:
    cell = direction.cell
    if cell.kind == "lstm" and cell.output_activation != cell.activation:
        raise RefusedError(
            f"{cell.activation} for the candidate beside {cell.output_activation} for the output", TITLE, "it has one for both", "", name
        )
    layer = {
        "@class": f"{_LAYERS}{_CLASSES[layout]}", "activationFn": function(name, cell.activation), **_TRAINED,
        "layerName": name, "nin": direction.input_size, "nout": direction.output_size, "weightInitFnRecurrent": None,
    }  # fmt: skip
    if cell.kind == "lstm":
        return {**layer, "forgetGateBiasInit": 1.0, "gateActivationFn": function(name, cell.gate_activation)}
    return {**layer, "hasLayerNorm": False}


_TRAINED: Mapping[str, Any] = {
    "biasInit": 0.0, "biasUpdater": None, "constraints": None, "gainInit": 1.0, "gradientNormalization": "None",
    "gradientNormalizationThreshold": 1.0, "idropout": None,
    "iupdater": {
        "@class": "org.nd4j.linalg.learning.config.Adam", "beta1": 0.9, "beta2": 0.999, "epsilon": 1e-08, "learningRate": 0.001,
    },
    "regularization": [], "regularizationBias": [], "weightInitFn": {"@class": "org.deeplearning4j.nn.weights.WeightInitXavier"},
    "weightNoise": None,
}  # fmt: skip
"""The entries of a layer for training."""
_RUN: Mapping[str, Any] = {
    "cacheMode": "NONE", "dataType": "FLOAT", "epochCount": 0, "iterationCount": 0, "layer": None, "maxNumLineSearchIterations": 5,
    "miniBatch": True, "minimize": True, "optimizationAlgo": "STOCHASTIC_GRADIENT_DESCENT", "seed": 12345, "stepFunction": None,
}  # fmt: skip
"""The entries of a network, for each layer and once for all."""


def function(layer: str, activation: Activation) -> dict[str, Any]:
    """Return a function as a configuration has it. Raises RefusedError for one that ND4J lacks."""
    if activation.name == "softmax":
        return {"@class": f"{_ACTIVATIONS}Softmax"}
    word = next((word for word, listed in FUNCTIONS.items() if listed == activation), None)
    if word is not None:
        return {"@class": f"{_ACTIVATIONS}{_SPELLED[word]}"}
    if activation.name == "elu" and activation.alpha is not None:
        return {"@class": f"{_ACTIVATIONS}ELU", "alpha": activation.alpha}
    raise RefusedError(f"the function {activation}", TITLE, f"it has {', '.join(map(str, FUNCTIONS.values()))} and elu", "", layer)


def dense(name: str, reads: str, parts: Mapping[str, Array], before: str = "") -> GraphVertex:
    """Return a dense layer without a function, of its canonical arrays."""
    units, width = parts["weight"].shape
    layer = {
        "@class": f"{_LAYERS}DenseLayer", "activationFn": function(name, Activation("linear")), **_TRAINED, "hasBias": "bias" in parts,
        "hasLayerNorm": False, "layerName": name, "nin": width, "nout": units,
    }  # fmt: skip
    arrays = [parts[part] for part in ("weight", "bias") if part in parts]
    return GraphVertex(name, reads, layer, ["W", "b"][: len(arrays)], arrays, before)


def output(vertex: GraphVertex, by_step: bool) -> GraphVertex:
    """Return a dense layer as the output layer of a network, with the loss that goes with its function."""
    settings = {key: value for key, value in vertex.layer.items() if key != "hasLayerNorm"}
    softmax = vertex.layer["activationFn"]["@class"].endswith("Softmax")
    loss = {"@class": f"{_LOSSES}LossMCXENT", "softmaxClipEps": 1e-10} if softmax else {"@class": f"{_LOSSES}LossMSE"}
    layer = {**settings, "@class": f"{_LAYERS}{'RnnOutputLayer' if by_step else 'OutputLayer'}", "lossFn": loss}
    return replace(vertex, layer=layer)


_LOSSES = "org.nd4j.linalg.lossfunctions.impl."


def applied(vertex: GraphVertex, activation: Activation) -> GraphVertex:
    """Return a dense layer with a function."""
    return replace(vertex, layer={**vertex.layer, "activationFn": function(vertex.name, activation)})


def last_step(vertex: GraphVertex) -> GraphVertex:
    """Return a recurrent layer that gives its last step alone."""
    layer = {**_PLAIN, "@class": f"{_LAYERS}recurrent.LastTimeStep", "layerName": vertex.name, "underlying": vertex.layer}
    return replace(vertex, layer=layer)


_PLAIN: Mapping[str, Any] = {
    "constraints": None, "gradientNormalization": "None", "gradientNormalizationThreshold": 0.0, "idropout": None,
}  # fmt: skip
"""The entries for training of a layer without parameters."""


def by_itself(name: str, reads: str, activation: Activation) -> GraphVertex:
    """Return a function as a separate layer."""
    layer = {**_PLAIN, "@class": f"{_LAYERS}ActivationLayer", "activationFn": function(name, activation), "layerName": name}
    return GraphVertex(name, reads, layer, [], [])


def configuration(inputs: Sequence[str], vertices: Sequence[GraphVertex]) -> dict[str, Any]:
    """Return the configuration of a network; what no other layer reads are its outputs."""
    order = [*inputs, *(vertex.name for vertex in vertices)]
    read = {vertex.reads for vertex in vertices}
    variables = [f"{vertex.name}_{part}" for vertex in vertices for part in vertex.variables]
    return {
        "backpropType": "Standard", "cacheMode": "NONE", "dataType": "FLOAT", "defaultConfiguration": {**_RUN, "variables": variables},
        "epochCount": 0, "inferenceWorkspaceMode": "ENABLED", "iterationCount": 0, "networkInputs": list(inputs),
        "networkOutputs": [vertex.name for vertex in vertices if vertex.name not in read], "tbpttBackLength": 20, "tbpttFwdLength": 20,
        "topologicalOrder": list(range(len(order))), "topologicalOrderStr": order, "trainingWorkspaceMode": "ENABLED",
        "validateOutputLayerConfig": True, "vertexInputs": {vertex.name: [vertex.reads] for vertex in vertices},
        "vertices": {vertex.name: _vertex(vertex) for vertex in vertices},
    }  # fmt: skip


def _vertex(vertex: GraphVertex) -> dict[str, Any]:
    layer = {**_RUN, "layer": vertex.layer, "variables": list(vertex.variables)}
    before = {"@class": f"org.deeplearning4j.nn.conf.preprocessor.{vertex.before}"} if vertex.before else None
    return {
        "@class": "org.deeplearning4j.nn.conf.graph.LayerVertex", "layerConf": layer, "outputVertex": False, "preProcessor": before,
    }  # fmt: skip


def save(path: Path, inputs: Sequence[str], vertices: Sequence[GraphVertex]) -> None:
    """Write a network."""
    arrays = [array for vertex in vertices for array in vertex.arrays]
    text = json.dumps(configuration(inputs, vertices), indent=2).encode()
    with replacing(path) as file:
        archive = StoredZip(file)
        archive.add("configuration.json", text)

        def fill(out: IO[bytes], check: Crc32) -> None:
            nd4j.write(out, check, arrays)

        archive.add_filled("coefficients.bin", nd4j.size(arrays), fill)
        archive.finish()
