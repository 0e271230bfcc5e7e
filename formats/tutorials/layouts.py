"""Cells that people write themselves, by the names that tutorials gave their arrays.

Source: deeplearning.net's LSTM tutorial, lstm.py (`_W _U _b`, gates i f o c); dl4mt-tutorial and Nematus, nmt.py, gru_layer (`_W _U _b _Wx
_Ux _bx`, gates r u); Karpathy's min-char-rnn.py (`Wxh Whh bh`, and `Why by` of its output); the course Sequence Models of deeplearning.ai,
week 1 (`Wax Waa ba`, `b` in its second exercise, and `Wya by` of its output); Britz's rnn-tutorial-rnnlm (`U V W`); the code of which many
write an LSTM in NumPy: a matrix a gate over the state and the input, one on top of the other (`Wf Wi Wc Wo`, some with `g` for `c`); Dive
into Deep Learning, 9.5, 10.1 and 10.2 (`W_xi W_hi b_i`); Wikipedia, "Long short-term memory", the LSTM with a forget gate (`W_i U_i b_i`),
as written by those whose vectors are columns, and by those whose vectors are rows; DeZero, the framework of "Deep Learning from Scratch 3",
dezero/layers.py, LSTM and RNN (`x2i h2i`, u is the candidate), whose Linear multiplies by `W` from the right.
"""

from rnnconvert.core.cells import HARD_SIGMOID_KERAS_2
from rnnconvert.language.layout import Holds, Layout, System, Tensor

SYSTEM = System(
    "tutorials",
    "Tutorials",
    "the code that tutorials print, and people copy",
    "source: each computes what its code, written out in NumPy, computes",
    (
        "of tanh and sigmoid, one direction, as in the tutorials",
        "layers around lie under names of their own: confirm with the option `layout` that the layer computes the same",
        "whether the state or the input comes first in one matrix, no file says: the option `layout` decides it",
    ),
    (".npz",),
    separator="_",
)

_ONE_BIAS, _NO_BIAS = (Holds((biases,), layers=False, directions=1, reverse=True) for biases in ("input", "none"))
_STACKED = (
    Tensor("W", "input", "in (gate hidden)"),
    Tensor("U", "recurrent", "in (gate hidden)"),
    Tensor("b", "input_bias", "(gate hidden)"),
)
_LETTERS = "i f c o"

THEANO_LSTM = Layout("tutorials.theano_lstm", "lstm", "i f o g", _STACKED, "lstm.py, lstm_layer", "lstm_layer", holds=_ONE_BIAS)
NEMATUS_GRU = Layout(
    "tutorials.nematus_gru",
    "gru",
    "r z n",
    (
        Tensor("W", "input[r z]", "in (gate hidden)"),
        Tensor("U", "recurrent[r z]", "in (gate hidden)"),
        Tensor("b", "input_bias[r z]", "(gate hidden)"),
        Tensor("Wx", "input[n]", "in hidden"),
        Tensor("Ux", "recurrent[n]", "in hidden"),
        Tensor("bx", "input_bias[n]", "hidden"),
    ),
    "nmt.py, gru_layer",
    "gru_layer",
    reset_after=True,
    holds=_ONE_BIAS,
)
KARPATHY_RNN = Layout(
    "tutorials.karpathy_rnn",
    "rnn",
    "n",
    (Tensor("Wxh", "input"), Tensor("Whh", "recurrent"), Tensor("bh", "input_bias", "hidden 1")),
    "min-char-rnn.py",
    "min-char-rnn",
    holds=_ONE_BIAS,
    neighbours=("Why", "by", "mWxh", "mWhh", "mWhy", "mbh", "mby"),  # m: the memory of Adagrad
)


def _course_rnn(name: str, bias: str, source: str, axes: str = "hidden 1") -> Layout:
    """Return the cell of a course whose exercises spell its bias differently, and which some write with a vector for it."""
    tensors = (Tensor("Wax", "input"), Tensor("Waa", "recurrent"), Tensor(bias, "input_bias", axes))
    return Layout(f"tutorials.{name}", "rnn", "n", tensors, source, "an RNN in NumPy", holds=_ONE_BIAS, neighbours=("Wya", "by"))


COURSE_RNN = _course_rnn("course_rnn", "ba", "Sequence Models, week 1, rnn_cell_forward")
COURSE_RNN_VECTOR = _course_rnn("course_rnn_vector", "ba", "tanh(Waa @ a + Wax @ x + ba)", "hidden")
COURSE_RNN_B = _course_rnn("course_rnn_b", "b", "Sequence Models, week 1, rnn_step_forward")
BRITZ_RNN = Layout(
    "tutorials.britz_rnn",
    "rnn",
    "n",
    (Tensor("U", "input"), Tensor("W", "recurrent")),
    "rnn_theano.py, RNNTheano",
    "RNNTheano",
    holds=_NO_BIAS,
)
STATE_FIRST = Layout(
    "tutorials.state_first",
    "lstm",
    "i f g o",
    (Tensor("W{gate}", "recurrent input", "hidden (part in)"), Tensor("b{gate}", "input_bias", "hidden 1")),
    "W @ concatenate((h, x)) + b",
    "an LSTM in NumPy",
    letters=_LETTERS,
    holds=_ONE_BIAS,
)
INPUT_FIRST = Layout(
    "tutorials.input_first",
    "lstm",
    "i f g o",
    (Tensor("W{gate}", "input recurrent", "hidden (part in)"), Tensor("b{gate}", "input_bias", "hidden 1")),
    "W @ concatenate((x, h)) + b",
    "an LSTM in NumPy",
    letters=_LETTERS,
    holds=_ONE_BIAS,
)


def _rows(name: str, letters: str, parts: str, code: str) -> Layout:
    """Return an LSTM of a matrix a gate over the state and the input, whose vectors are rows."""
    tensors = (Tensor("W{gate}", parts, "(part in) hidden"), Tensor("b{gate}", "input_bias", "hidden"))
    return Layout(f"tutorials.{name}", "lstm", "i f g o", tensors, code, "an LSTM in NumPy", letters=letters, holds=_ONE_BIAS)


STATE_FIRST_ROWS = _rows("state_first_rows", _LETTERS, "recurrent input", "concatenate((h, x)) @ W + b")
INPUT_FIRST_ROWS = _rows("input_first_rows", _LETTERS, "input recurrent", "concatenate((x, h)) @ W + b")
STATE_FIRST_ROWS_G = _rows("state_first_rows_g", "i f g o", "recurrent input", "concatenate((h, x)) @ W + b")
INPUT_FIRST_ROWS_G = _rows("input_first_rows_g", "i f g o", "input recurrent", "concatenate((x, h)) @ W + b")
D2L_LSTM = Layout(
    "tutorials.d2l_lstm",
    "lstm",
    "i f g o",
    (Tensor("W_x{gate}", "input", "in hidden"), Tensor("W_h{gate}", "recurrent", "in hidden"), Tensor("b_{gate}", "input_bias", "hidden")),
    "10.1, LSTMScratch",
    "LSTMScratch",
    letters=_LETTERS,
    holds=_ONE_BIAS,
)
D2L_RNN = Layout(
    "tutorials.d2l_rnn",
    "rnn",
    "n",
    (Tensor("W_xh", "input", "in hidden"), Tensor("W_hh", "recurrent", "in hidden"), Tensor("b_h", "input_bias", "hidden")),
    "9.5, RNNScratch",
    "RNNScratch",
    holds=_ONE_BIAS,
)
D2L_GRU = Layout(
    "tutorials.d2l_gru",
    "gru",
    "r z n",
    (Tensor("W_x{gate}", "input", "in hidden"), Tensor("W_h{gate}", "recurrent", "in hidden"), Tensor("b_{gate}", "input_bias", "hidden")),
    "10.2, GRUScratch",
    "GRUScratch",
    reset_after=False,
    letters="r z h",
    holds=_ONE_BIAS,
)
DEZERO_LSTM = Layout(
    "tutorials.dezero_lstm",
    "lstm",
    "i f g o",
    (
        Tensor("x2{gate}/W", "input", "in hidden"),
        Tensor("h2{gate}/W", "recurrent", "in hidden"),
        Tensor("x2{gate}/b", "input_bias", "hidden"),
    ),
    "dezero/layers.py, LSTM",
    "dezero.layers.LSTM",
    letters="i f u o",
    holds=_ONE_BIAS,
)
DEZERO_RNN = Layout(
    "tutorials.dezero_rnn",
    "rnn",
    "n",
    (Tensor("x2h/W", "input", "in hidden"), Tensor("h2h/W", "recurrent", "in hidden"), Tensor("x2h/b", "input_bias", "hidden")),
    "dezero/layers.py, RNN",
    "dezero.layers.RNN",
    holds=_ONE_BIAS,
)


def _lstm(name: str, letters: str, spelling: tuple[str, str], matrix: str, bias: str, holds: Holds = _ONE_BIAS) -> Layout:
    """Return an LSTM of two matrices and a bias a gate."""
    of_input, of_state = spelling
    tensors = (Tensor(of_input, "input", matrix), Tensor(of_state, "recurrent", matrix), Tensor("b_{gate}", "input_bias", bias))
    code = "W @ x + U @ h + b" if matrix == "hidden in" else "x @ W + h @ U + b"
    return Layout(f"tutorials.{name}", "lstm", "i f g o", tensors, code, "an LSTM in NumPy", letters=letters, holds=holds)


_W_U, _W_W = ("W_{gate}", "U_{gate}"), ("W_x{gate}", "W_h{gate}")
_COLUMNS, _ROWS, _G = "hidden in", "in hidden", "i f g o"
# Keras 1 has the same names, and hard_sigmoid unless it is told otherwise.
_KERAS_1 = Holds(("input",), gate_activations=("sigmoid", HARD_SIGMOID_KERAS_2), layers=False, directions=1, reverse=True)

TEXTBOOK_LSTM = _lstm("textbook_lstm", _LETTERS, _W_U, _COLUMNS, "hidden")
TEXTBOOK_LSTM_COLUMN = _lstm("textbook_lstm_column", _LETTERS, _W_U, _COLUMNS, "hidden 1")
TEXTBOOK_LSTM_ROWS = _lstm("textbook_lstm_rows", _LETTERS, _W_U, _ROWS, "hidden", _KERAS_1)
TEXTBOOK_LSTM_G = _lstm("textbook_lstm_g", _G, _W_U, _COLUMNS, "hidden")
TEXTBOOK_LSTM_G_COLUMN = _lstm("textbook_lstm_g_column", _G, _W_U, _COLUMNS, "hidden 1")
TEXTBOOK_LSTM_G_ROWS = _lstm("textbook_lstm_g_rows", _G, _W_U, _ROWS, "hidden")
COLUMNS_LSTM = _lstm("columns_lstm", _LETTERS, _W_W, _COLUMNS, "hidden")
COLUMNS_LSTM_COLUMN = _lstm("columns_lstm_column", _LETTERS, _W_W, _COLUMNS, "hidden 1")

_MATRICES = (Tensor("W_xh", "input"), Tensor("W_hh", "recurrent"))
_TANH = "tanh(W_xh @ x + W_hh @ h + b_h)"
COLUMNS_RNN = Layout(
    "tutorials.columns_rnn", "rnn", "n", (*_MATRICES, Tensor("b_h", "input_bias")), _TANH, "an RNN in NumPy", holds=_ONE_BIAS
)
COLUMNS_RNN_COLUMN = Layout(
    "tutorials.columns_rnn_column",
    "rnn",
    "n",
    (*_MATRICES, Tensor("b_h", "input_bias", "hidden 1")),
    _TANH,
    "an RNN in NumPy",
    holds=_ONE_BIAS,
)
