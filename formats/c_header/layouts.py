"""C headers: arrays with a step function in C99 around them, and the tables of RNNoise and CMSIS-NN, which are read.

Source: of our own headers, formats/c_header/write.py. RNNoise of 2018: src/rnn.c, compute_gru; src/rnn.h. CMSIS-NN:
Include/arm_nn_types.h, cmsis_nn_lstm_gate; Source/NNSupportFunctions/arm_nn_lstm_step_s8.c; its unit tests' TestData.
"""

from rnnconvert.language.layout import Holds, Layout, Option, System, Tensor

SYSTEM = System(
    "c_header",
    "C99",
    "our own headers; rnn_data.c of RNNoise 0.1 (2018); the tables of CMSIS-NN's LSTM for int8 and int16",
    "executed: headers are compiled by gcc as C99 and run; corpus: RNNoise's trained tables with the outputs of its own C, and CMSIS-NN's "
    "unit tests with theirs",
    (
        "a header has one direction a layer, and a function NAME_step that computes one step in plain C",
        "storage=int8 stores each matrix in bytes with a scale for each row: the largest change of a weight is printed",
        "RNNoise takes tables for tanh and sigmoid; the layers that are read have the functions themselves",
        "CMSIS-NN's tables hold the product of the scales of weights and input: the scale of the input is asked for",
        "newer tables of RNNoise (0.2 and later) are another cell with sparse matrices, and are not read",
    ),
    separator="_",
    speaking=True,
    options=(
        Option("storage", ("float", "int8"), "how matrices are stored: in their own type (the default), or in int8 with scales", "write"),
        Option("input_scale", (), "what one step of a quantized input stands for; 1 by default: the layer reads integers", number="real"),
    ),
    family="microcontrollers",
    language="C",
    called="c c++ cpp c99 header arduino esp32 stm32 cmsis microcontroller",
)

FUNCTIONS = ("tanh", "sigmoid", "relu", "linear", "softsign", "hard_sigmoid")
_DTYPES = ("float16", "float32", "float64")


def _holds(biases: str = "input", output: str = "same", clips: tuple[str, ...] = ("gates",)) -> Holds:
    return Holds((biases,), FUNCTIONS, FUNCTIONS, output, coupled=(), clips=clips, uneven_clips=True, layers=False, directions=1,
                 dtypes=_DTYPES)  # fmt: skip


def _tensors(axes: str, bias: Tensor, *more: Tensor) -> tuple[Tensor, ...]:
    return Tensor("W", "input", axes), Tensor("R", "recurrent", axes), bias, *more


_SOURCE = "formats/c_header/write.py"
_ROWS, _COLUMNS = "(gate hidden) in", "in (gate hidden)"
_BIAS, _FOUR = Tensor("b", "input_bias"), Tensor("b", "input_bias recurrent_bias[n]", "(part gate hidden)")


def _cells(ending: str, axes: str, called: str, writable: bool = True) -> tuple[Layout, ...]:
    more = (Tensor("P", "peephole[i f o]"), Tensor("projection", "projection", "hidden in" if axes == _ROWS else "in hidden"))
    return (
        Layout(f"c_header.lstm{ending}", "lstm", "i f g o", _tensors(axes, _BIAS, *more), _SOURCE, f"LSTM {called}",
               holds=_holds(output="any", clips=("gates", "cell", "state", "projection")), writable=writable),
        Layout(f"c_header.gru{ending}", "gru", "r z n", _tensors(axes, _FOUR), _SOURCE, f"GRU (reset after) {called}", reset_after=True,
               holds=_holds("both"), writable=writable),
        Layout(f"c_header.gru_reset_before{ending}", "gru", "r z n", _tensors(axes, _BIAS), _SOURCE, f"GRU (reset before) {called}",
               reset_after=False, holds=_holds(), writable=writable),
        Layout(f"c_header.rnn{ending}", "rnn", "n", _tensors(axes, _BIAS), _SOURCE, f"RNN {called}", holds=_holds(),
               writable=writable),
    )  # fmt: skip


# What is written is by columns: of rows, a compiler does not compute several sums at a time.
LSTM, GRU, GRU_RESET_BEFORE, RNN = _cells("", _ROWS, "by rows", writable=False)
LSTM_COLUMNS, GRU_COLUMNS, GRU_RESET_BEFORE_COLUMNS, RNN_COLUMNS = _cells("_columns", _COLUMNS, "by columns")

RNNOISE = Layout(
    "c_header.rnnoise_gru",
    "gru",
    "z r n",
    (Tensor("weights", "input", _COLUMNS), Tensor("recurrent_weights", "recurrent", _COLUMNS), Tensor("bias", "input_bias")),
    "rnnoise/src/rnn.c, compute_gru (v0.1)",
    "GRULayer",
    reset_after=False,
    holds=Holds(("input",), ("tanh", "sigmoid", "relu"), layers=False, directions=1, dtypes=("float32",)),
    writable=False,
)
CMSIS = Layout(
    "c_header.cmsis_lstm",
    "lstm",
    "i f g o",
    (
        Tensor("{gate}_gate_input_weights", "input", "hidden in"),
        Tensor("{gate}_gate_hidden_weights", "recurrent", "hidden in"),
        Tensor("{gate}_gate_bias", "input_bias", "hidden"),
    ),
    "CMSIS-NN/Include/arm_nn_types.h, cmsis_nn_lstm_gate",
    "arm_lstm_unidirectional_s8",
    letters="input forget cell output",
    holds=Holds(("input",), clips=("cell",), layers=False, directions=1, dtypes=("float32",)),
    writable=False,
)
