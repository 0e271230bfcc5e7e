"""OpenVINO's IR: the inputs of its recurrent operations.

Source: docs/articles_en/documentation/openvino-ir-format/operation-sets, LSTMSequence-5, GRUSequence-5, RNNSequence-5. An LSTM's
gates are f, i, c, o; a GRU with linear_before_reset has a fourth bias, the recurrent one of its candidate. The cells (LSTMCell,
GRUCell, RNNCell) have the same arrays without the axis of directions.
"""

from rnnconvert.language.layout import Holds, Layout, System, Tensor

SYSTEM = System(
    "openvino",
    "OpenVINO",
    "IR of the versions 10 and 11; its recurrent operations of the sets 1 to 5",
    "executed: OpenVINO 2026.4.1 on the CPU",
    (
        "peepholes and coupled gates, which LSTMCell and LSTMSequence of the first set have, are refused: today's operations lack both",
        "a file is two: MODEL.xml with the graph, and MODEL.bin with the numbers next to it",
        "the files that are written take x (batch, time, width)",
        "float16 is written as save_model compresses weights: as constants that a Convert makes float32",
    ),
    speaking=True,
    family="deployment",
    called="ir openvino-ir openvino_ir",
)

_W = Tensor("W", "input", "direction (gate hidden) in")
_R = Tensor("R", "recurrent", "direction (gate hidden) in")
_B = Tensor("B", "input_bias", "direction (gate hidden)")
# The states are inputs of the operation, (batch, directions, hidden): a learned one is spread over the batch.
_HIDDEN = Tensor("initial_hidden_state", "initial_hidden", "direction hidden")
_CELL = Tensor("initial_cell_state", "initial_cell", "direction hidden")
_FUNCTIONS = ("tanh", "sigmoid", "relu")
_SOURCE = "openvino-ir-format/operation-sets, "


def _holds(biases: str = "input") -> Holds:
    return Holds(
        (biases,),
        _FUNCTIONS,
        _FUNCTIONS,
        output_activation="any",
        clips=("gates",),
        layers=False,
        reverse=True,
        merges=("concat", "sum", "mul", "ave"),
        initial_states=True,
        dtypes=("float16", "float32"),
    )


LSTM = Layout("openvino.lstm", "lstm", "f i g o", (_W, _R, _B, _HIDDEN, _CELL), _SOURCE + "LSTMSequence-5", "LSTMSequence", holds=_holds())
GRU = Layout(
    "openvino.gru",
    "gru",
    "z r n",
    (_W, _R, Tensor("B", "input_bias recurrent_bias[n]", "direction (part gate hidden)"), _HIDDEN),
    _SOURCE + "GRUSequence-5",
    "GRUSequence(linear_before_reset=true)",
    reset_after=True,
    holds=_holds("both"),
)
GRU_RESET_BEFORE = Layout(
    "openvino.gru_reset_before",
    "gru",
    "z r n",
    (_W, _R, _B, _HIDDEN),
    _SOURCE + "GRUSequence-5",
    "GRUSequence(linear_before_reset=false)",
    reset_after=False,
    holds=_holds(),
)
RNN = Layout("openvino.rnn", "rnn", "n", (_W, _R, _B, _HIDDEN), _SOURCE + "RNNSequence-5", "RNNSequence", holds=_holds())
