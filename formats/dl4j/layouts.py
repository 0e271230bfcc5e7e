"""Deeplearning4j: the share of one recurrent layer in a network's one vector of parameters.

Source: deeplearning4j-nn, org/deeplearning4j/nn/params/{LSTM,GravesLSTM,GravesBidirectionalLSTM,SimpleRnn,Bidirectional}
ParamInitializer.java (1.0.0-beta4), init: W, RW and b follow one another, the matrices in 'f' order, all of the forward direction first.
Its sources call the four blocks IFOG; by layers/recurrent/LSTMHelpers.java, activateHelper, the block called I goes through the layer's
activation and the one called G is the input gate. RW of the Graves layers has three more columns: the peepholes of f, o and i.
"""

from rnnconvert.language.layout import Holds, Layout, System, Tensor

SYSTEM = System(
    "dl4j",
    "Deeplearning4j",
    "0.6 to 1.0.0-beta7: ModelSerializer's zip archives",
    "corpus: a network of 1.0.0-beta4 with its outputs, LSTM and SimpleRnn both ways",
    (
        "what is written is a ComputationGraph in the form of 1.0.0-beta4: no Deeplearning4j has run it here",
        "a network with layers whose parameters are unknown is refused",
    ),
    asks=dict.fromkeys(("activation", "recurrent_activation"), "a layer whose configuration leaves it out"),
    called="deeplearning4j java",
)

_AXES = "(direction section part gate hidden in)"
_FUNCTIONS = ("tanh", "relu", "sigmoid", "linear", "softsign", "softplus", "elu", "silu", "hard_sigmoid")
_MERGES = ("concat", "sum", "mul", "ave")
_SOURCE = "org/deeplearning4j/nn/params/"
_LAYER = "org.deeplearning4j.nn.conf.layers."

LSTM = Layout(
    "dl4j.lstm",
    "lstm",
    "g f o i",
    (Tensor("params", "input | recurrent | input_bias", _AXES),),
    _SOURCE + "LSTMParamInitializer.java",
    _LAYER + "LSTM",
    holds=Holds(("input",), _FUNCTIONS, _FUNCTIONS, layers=False, merges=_MERGES),
)
GRAVES_LSTM = Layout(
    "dl4j.graves_lstm",
    "lstm",
    "g f o i",
    (Tensor("params", "input | recurrent | peephole[f o i] | input_bias", _AXES),),
    _SOURCE + "GravesLSTMParamInitializer.java, GravesBidirectionalLSTMParamInitializer.java",
    _LAYER + "GravesLSTM",
    holds=Holds(("input",), _FUNCTIONS, _FUNCTIONS, layers=False, merges=_MERGES),
    proof="source: LSTMHelpers.java; nobody here has run the peepholes",
)
RNN = Layout(
    "dl4j.rnn",
    "rnn",
    "n",
    (Tensor("params", "input | recurrent | input_bias", _AXES),),
    _SOURCE + "SimpleRnnParamInitializer.java",
    _LAYER + "recurrent.SimpleRnn",
    holds=Holds(("input",), _FUNCTIONS, layers=False, merges=_MERGES),
)
