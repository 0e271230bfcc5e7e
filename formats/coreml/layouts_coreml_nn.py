"""Core ML's neural networks: the weights of its recurrent layers, by their names in the specification.

Source: apple/coremltools, mlmodel/format/NeuralNetwork.proto, SimpleRecurrentLayerParams, GRULayerParams, LSTMWeightParams and LSTMParams,
for names and equations; coremltools' tests against Keras 1 and 2 (test_keras2_numeric.py) compute the same, and state the order of reversed
outputs. What goes into a gate is clipped to [-50, 50]: tanh, sigmoid and hard_sigmoid are flat there, other functions are not.
"""

from rnnconvert.core.cells import HARD_SIGMOID_KERAS_2
from rnnconvert.language.layout import Holds, Layout, System, Tensor

SYSTEM = System(
    "coreml_nn",
    "Core ML (.mlmodel)",
    ".mlmodel files of every version of the specification; files are written in version 1",
    "golden: models that coremltools 9.0 made of PyTorch's layers, and of layers with known weights, are read; what is written, "
    "coremltools reads as the same layers. No prediction was run: Core ML computes on Apple's systems only",
    (
        "a GRU has one bias for each gate, and its reset gate comes before the product: a GRU of PyTorch is refused",
        "an LSTM has two directions; a GRU or a plain RNN has one",
        "what goes into a gate is clipped to [-50, 50], which tanh and sigmoid do not show: a layer with relu is refused, and one that is "
        "read has this clip",
        "coremltools writes a cell clip of 500 or 50000 for a cell without a clip: such a clip is left out, with a warning",
        "the files that are written take x (steps, 1, width), and states that may be left out",
        "weights in float16, and those quantized linearly or by a table, are read, with a warning",
    ),
    speaking=True,
    family="deployment",
    heads=((0, b"TCMODEL", "a part of a Turi Create model; export_coreml of the model writes an .mlmodel, which is read"),),
)

_FUNCTIONS = ("tanh", "sigmoid", HARD_SIGMOID_KERAS_2)
_SOURCE = "NeuralNetwork.proto, "
_WAYS = ("forward/", "backward/")


def _gates(way: str) -> tuple[Tensor, ...]:
    return (
        Tensor(way + "{gate}WeightMatrix", "input", "hidden in"),
        Tensor(way + "{gate}RecursionMatrix", "recurrent", "hidden in"),
        Tensor(way + "{gate}BiasVector", "input_bias", "hidden"),
    )


LSTM = Layout(
    "coreml_nn.lstm", "lstm", "i f g o",
    (*_gates("{direction}"), Tensor("{direction}{gate}PeepholeVector", "peephole", "hidden")),
    _SOURCE + "LSTMParams", "uniDirectionalLSTM, biDirectionalLSTM", letters="inputGate forgetGate blockInput outputGate",
    spelling=_WAYS, alone="",
    holds=Holds(("input", "none"), _FUNCTIONS, _FUNCTIONS, "any", coupled=("f",), clips=("cell",), layers=False, reverse=True,
                reverse_order="processing", processing_order=True, dtypes=("float32",)),
)  # fmt: skip
_ONE_WAY = Holds(
    ("input", "none"),
    _FUNCTIONS,
    _FUNCTIONS,
    layers=False,
    directions=1,
    reverse=True,
    reverse_order="processing",
    processing_order=True,
    dtypes=("float32",),
)
GRU = Layout(
    "coreml_nn.gru",
    "gru",
    "z r n",
    _gates(""),
    _SOURCE + "GRULayerParams",
    "gru",
    reset_after=False,
    letters="updateGate resetGate outputGate",
    holds=_ONE_WAY,
)
RNN = Layout(
    "coreml_nn.rnn",
    "rnn",
    "n",
    (
        Tensor("weightMatrix", "input", "hidden in"),
        Tensor("recursionMatrix", "recurrent", "hidden in"),
        Tensor("biasVector", "input_bias", "hidden"),
    ),
    _SOURCE + "SimpleRecurrentLayerParams",
    "simpleRecurrent",
    holds=_ONE_WAY,
)
