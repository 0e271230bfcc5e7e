"""TFLite: the inputs of its recurrent operators, by the names that TensorFlow's own code has for them.

Source: tensorflow/lite/kernels/lstm_shared.h and unidirectional_sequence_lstm.cc, bidirectional_sequence_lstm.cc,
unidirectional_sequence_rnn.cc, bidirectional_sequence_rnn.cc for the inputs; kernels/lstm_eval.cc for what is computed.
"""

from rnnconvert.language.layout import Holds, Layout, System, Tensor

SYSTEM = System(
    "tflite",
    "TFLite (LiteRT)",
    "the operators of every release; files are written for ai-edge-litert 1 and 2, and TensorFlow Lite 2",
    "executed: LiteRT 2.3.0 on the CPU",
    (
        "a GRU has no operator of its own: convert refuses it, and export writes the whole model, with a loop for each recurrent layer",
        "a layer keeps its state from call to call, unlike elsewhere: call reset_all_variables() where a sequence begins",
        "files are written for one sequence at a time, with an input (time, 1, width) that resize_tensor_input gives its number of steps",
        "weights in int8, int16 or float16 are read as the float32 numbers that they stand for, with a warning: the integer kernels also "
        "round what goes in and out",
        "layer normalization, the bias of a projection and a diagonal recurrence are not read: no other system here computes them",
        "loops (WHILE) and written-out steps, to which converters lower what has no operator, are read as layers once that is proved on "
        "random inputs, those over TensorFlow's lists (Select TF operators) among them; steps that compute in integers are not",
        "numbers are float32: others are refused until you ask for float32",
    ),
    speaking=True,
    family="deployment",
    called="litert tensorflow-lite tensorflow_lite tflite-micro tflm",
)

_LSTM = "lstm_eval.cc, LstmStepFloat"
_RNN = "kernel_utils.cc, RnnBatchStep"
_WAYS = ("fw_", "bw_")
_FUNCTIONS = ("tanh", "relu", "linear")
_DTYPES = ("float32",)

_GATES = (
    Tensor("{direction}input_to_{gate}_weights", "input", "hidden in"),
    Tensor("{direction}recurrent_to_{gate}_weights", "recurrent", "hidden in"),
    Tensor("{direction}cell_to_{gate}_weights", "peephole", "hidden"),
    Tensor("{direction}{gate}_gate_bias", "input_bias", "hidden"),
    Tensor("{direction}projection_weights", "projection", "hidden in"),
)
_CELL = Holds(("input",), _FUNCTIONS, clips=("cell", "projection"), layers=False, reverse=True, processing_order=True, dtypes=_DTYPES)

LSTM = Layout(
    "tflite.lstm",
    "lstm",
    "i f g o",
    _GATES,
    _LSTM,
    "UNIDIRECTIONAL_SEQUENCE_LSTM, BIDIRECTIONAL_SEQUENCE_LSTM",
    letters="input forget cell output",
    spelling=_WAYS,
    alone="",
    holds=_CELL,
)
COUPLED = Layout(
    "tflite.coupled_lstm",
    "lstm",
    "f g o",
    _GATES,
    _LSTM + ", use_cifg",
    LSTM.class_name + " without an input gate",
    letters="forget cell output",
    coupled="i",
    spelling=_WAYS,
    alone="",
    holds=_CELL,
)
RNN = Layout(
    "tflite.rnn",
    "rnn",
    "n",
    (Tensor("{direction}weights", "input"), Tensor("{direction}recurrent_weights", "recurrent"), Tensor("{direction}bias", "input_bias")),
    _RNN,
    "UNIDIRECTIONAL_SEQUENCE_RNN, BIDIRECTIONAL_SEQUENCE_RNN",
    spelling=_WAYS,
    alone="",
    holds=Holds(("input",), _FUNCTIONS, layers=False, reverse=True, processing_order=True, dtypes=_DTYPES),
)
