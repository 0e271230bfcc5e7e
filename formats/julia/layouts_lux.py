"""Lux.jl: RNNCell, LSTMCell and GRUCell, before and after 1.0.

Source: src/layers/recurrent.jl of 0.4, 0.5 and 1.x. Matrices are (rows, columns) as Julia shapes them; the reset gate stands after the
product. Before 1.0 GRUCell's bias_i is of the candidate alone, and biases of LSTMCell and GRUCell have one column.
"""

from rnnconvert.language.layout import Holds, Layout, Option, System, Tensor

SYSTEM = System(
    "lux",
    "Lux.jl",
    "0.4 to 1.31; 1.0 renamed the arrays and gave every cell two biases",
    "source: its equations of 0.4, 0.5 and 1.x, written down a second time for the tests. Julia was not run",
    (
        "before 1.0 an RNNCell starts from ones by default, and parameters do not state it: you are asked",
        "you are also asked for the function of an RNNCell, and how BidirectionalRNN joins its halves",
        "parameters in .bson and .npz are read and written, those in .jld2 only read",
    ),
    asks={"activation": "one for each direction, as in relu,tanh", "merge_mode": ""},
    options=(
        Option(
            "init_state",
            ("ones", "zeros"),
            "what an RNNCell starts from whose initial state is not among its parameters; ones before 1.0, zeros since",
        ),
    ),
    called="julia",
)

_DTYPES = ("float16", "float32", "float64")
_FUNCTIONS = ("tanh", "relu", "sigmoid", "linear", "softplus", "softsign", "silu", "selu", "elu", "leaky_relu")
_SOURCE = "src/layers/recurrent.jl, "


def _holds(biases: tuple[str, ...], *activations: str) -> Holds:
    return Holds(
        biases,
        activations or ("tanh",),
        layers=False,
        merges=("concat", "sum", "mul", "none"),
        initial_states=True,
        dtypes=_DTYPES,
        own_functions=True,
    )


# The two directions of BidirectionalRNN are branches of a Parallel, the backward one a Chain with the cell in its middle.
_SIDES = ("forward_rnn/", "backward_rnn/rnn/")
_H = Tensor("{direction}hidden_state", "initial_hidden", "hidden")
_C = Tensor("{direction}memory", "initial_cell", "hidden")


def _matrices(input: str, hidden: str) -> tuple[Tensor, Tensor]:
    rows = "(gate hidden) in"
    return Tensor("{direction}" + input, "input", rows), Tensor("{direction}" + hidden, "recurrent", rows)


_CELL = (
    *_matrices("weight_ih", "weight_hh"),
    Tensor("{direction}bias_ih", "input_bias", "(gate hidden)"),
    Tensor("{direction}bias_hh", "recurrent_bias", "(gate hidden)"),
    _H,
)
_PAIR = ("both", "none")
LSTM = Layout(
    "lux.lstm",
    "lstm",
    "i f g o",
    (*_CELL, _C),
    _SOURCE + "struct LSTMCell (1.x)",
    "Lux.LSTMCell",
    spelling=_SIDES,
    alone="",
    holds=_holds(_PAIR),
)
GRU = Layout(
    "lux.gru", "gru", "r z n", _CELL, _SOURCE + "struct GRUCell (1.x)", "Lux.GRUCell", True, spelling=_SIDES, alone="", holds=_holds(_PAIR)
)
RNN = Layout(
    "lux.rnn",
    "rnn",
    "n",
    _CELL,
    _SOURCE + "struct RNNCell (1.x)",
    "Lux.RNNCell",
    spelling=_SIDES,
    alone="",
    holds=_holds(_PAIR, *_FUNCTIONS),
)

_0_5 = " (before 1.0)"
_OLD = _matrices("weight_i", "weight_h")
LSTM_0_5 = Layout(
    "lux.lstm_0_5",
    "lstm",
    "i f g o",
    (*_OLD, Tensor("{direction}bias", "input_bias", "(gate hidden) 1"), _H, _C),
    _SOURCE + "struct LSTMCell (0.5)",
    "Lux.LSTMCell" + _0_5,
    spelling=_SIDES,
    alone="",
    holds=_holds(("input", "none")),
)
GRU_0_5 = Layout(
    "lux.gru_0_5",
    "gru",
    "r z n",
    (
        *_OLD,
        Tensor("{direction}bias_i", "input_bias[n]", "(gate hidden) 1"),
        Tensor("{direction}bias_h", "recurrent_bias", "(gate hidden) 1"),
        _H,
    ),
    _SOURCE + "struct GRUCell (0.5)",
    "Lux.GRUCell" + _0_5,
    True,
    spelling=_SIDES,
    alone="",
    holds=_holds(_PAIR),
)
RNN_0_5 = Layout(
    "lux.rnn_0_5",
    "rnn",
    "n",
    (*_matrices("weight_ih", "weight_hh"), Tensor("{direction}bias", "input_bias", "(gate hidden)"), _H),
    _SOURCE + "struct RNNCell (0.5)",
    "Lux.RNNCell" + _0_5,
    spelling=_SIDES,
    alone="",
    holds=_holds(("input", "none"), *_FUNCTIONS),
)
RNN_0_4 = Layout(
    "lux.rnn_0_4",
    "rnn",
    "n",
    (
        *_matrices("weight_ih", "weight_hh"),
        Tensor("{direction}bias", "input_bias", "(gate hidden)"),
        Tensor("{direction}init_state", "initial_hidden", "hidden 1"),
    ),
    _SOURCE + "struct RNNCell (0.4)",
    "Lux.RNNCell (0.4)",
    spelling=_SIDES,
    alone="",
    holds=_holds(("input", "none"), *_FUNCTIONS),
    writable=False,
)
