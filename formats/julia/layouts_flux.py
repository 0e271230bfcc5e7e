"""Flux.jl: RNN, LSTM, GRU (reset gate after the product) and GRUv3 (before it), and the flat vector of their GPU path.

Source: src/layers/recurrent.jl of 0.8 to 0.16. Matrices are (rows, columns) as Julia shapes them. GRU's one bias stands
outside the reset product: n = tanh(Wi x + b + r * (Wh h)). GRUv3 multiplies Wh_h̃ with r * h, as its code says; its docstring
says otherwise. From 0.15 on Wh of GRUv3 has a third block of rows, which is allocated and has no effect.
"""

from rnnconvert.language.layout import Holds, Layout, System, Tensor
from rnnconvert.language.surroundings import Surrounding, SurroundingTensor

SYSTEM = System(
    "flux",
    "Flux.jl",
    "0.8 to 0.16; fields were renamed in 0.12 (h, c to state0) and 0.15 (b to bias, no state)",
    "source: its equations of 0.9, 0.12, 0.14 and 0.16, written down a second time for the tests; a real file of 0.12 is read. "
    "Julia was not run",
    (
        "Flux.state trees in .bson and .npz are read and written, whole models in .bson and trees in .jld2 are only read",
        "an RNN's function is in a whole model's .bson, and in no other file",
        "a learned initial state fits only into flux.lstm_0_12 and its like: Flux has none from 0.15 on",
    ),
    asks=dict.fromkeys(("activation", "cell", "input_size", "hidden_size", "num_layers", "bidirectional"), ""),
    heads=((0, b"HDF5-based Julia Data Format", "a file of JLD2.jl without arrays named as those of Flux, Lux or Knet"),),
    called="julia",
)

_DTYPES = ("float16", "float32", "float64")
_FUNCTIONS = ("tanh", "relu", "sigmoid", "linear", "softplus", "softsign", "silu", "selu", "elu", "leaky_relu")
_SOURCE = "src/layers/recurrent.jl, struct "


def _holds(states: bool, *activations: str) -> Holds:
    biases = ("input",) if states else ("input", "none")
    return Holds(biases, activations or ("tanh",), layers=False, directions=1, initial_states=states, dtypes=_DTYPES)


def _cell(bias: str, *states: Tensor) -> tuple[Tensor, ...]:
    weights = (Tensor("Wi", "input", "(gate hidden) in"), Tensor("Wh", "recurrent", "(gate hidden) in"))
    return (*weights, Tensor(bias, "input_bias", "(gate hidden)"), *states)


def _cell_v3(unread: str, *states: Tensor) -> tuple[Tensor, ...]:
    return (
        Tensor("Wi", "input", "(gate hidden) in"),
        Tensor("Wh", f"recurrent[r z{unread}]", "(gate hidden) in"),
        Tensor("b", "input_bias", "(gate hidden)"),
        Tensor("Wh_h̃", "recurrent[n]", "hidden in"),
        *states,
    )


_STATE = (Tensor("state0", "initial_hidden", "hidden 1"),)
_STATES = (Tensor("state0/1", "initial_hidden", "hidden 1"), Tensor("state0/2", "initial_cell", "hidden 1"))
_H, _C = Tensor("h", "initial_hidden", "hidden"), Tensor("c", "initial_cell", "hidden")

LSTM = Layout("flux.lstm", "lstm", "i f g o", _cell("bias"), _SOURCE + "LSTMCell (0.16)", "Flux.LSTM", holds=_holds(False))
GRU = Layout("flux.gru", "gru", "r z n", _cell("b"), _SOURCE + "GRUCell (0.16)", "Flux.GRU", True, holds=_holds(False))
GRU_V3 = Layout("flux.gru_v3", "gru", "r z n", _cell_v3(" ."), _SOURCE + "GRUv3Cell (0.16)", "Flux.GRUv3", False, holds=_holds(False))
RNN = Layout("flux.rnn", "rnn", "n", _cell("bias"), _SOURCE + "RNNCell (0.16)", "Flux.RNN", holds=_holds(False, *_FUNCTIONS))

_0_12 = " (0.12 to 0.14)"
LSTM_0_12 = Layout(
    "flux.lstm_0_12", "lstm", "i f g o", _cell("b", *_STATES), _SOURCE + "LSTMCell" + _0_12, "Flux.LSTM" + _0_12, holds=_holds(True)
)
GRU_0_12 = Layout(
    "flux.gru_0_12", "gru", "r z n", _cell("b", *_STATE), _SOURCE + "GRUCell" + _0_12, "Flux.GRU" + _0_12, True, holds=_holds(True)
)
GRU_V3_0_12 = Layout(
    "flux.gru_v3_0_12",
    "gru",
    "r z n",
    _cell_v3("", *_STATE),
    _SOURCE + "GRUv3Cell" + _0_12,
    "Flux.GRUv3" + _0_12,
    False,
    holds=_holds(True),
)
RNN_0_12 = Layout(
    "flux.rnn_0_12", "rnn", "n", _cell("b", *_STATE), _SOURCE + "RNNCell" + _0_12, "Flux.RNN" + _0_12, holds=_holds(True, *_FUNCTIONS)
)

# Whole models alone were saved then, and nothing that runs today loads one.
_0_8 = " (0.8 to 0.11)"
LSTM_0_8 = Layout(
    "flux.lstm_0_8",
    "lstm",
    "i f g o",
    _cell("b", _H, _C),
    _SOURCE + "LSTMCell" + _0_8,
    "Flux.LSTM" + _0_8,
    holds=_holds(True),
    writable=False,
)
GRU_0_8 = Layout(
    "flux.gru_0_8", "gru", "r z n", _cell("b", _H), _SOURCE + "GRUCell" + _0_8, "Flux.GRU" + _0_8, True, holds=_holds(True), writable=False
)
RNN_0_8 = Layout(
    "flux.rnn_0_8",
    "rnn",
    "n",
    _cell("b", _H),
    _SOURCE + "RNNCell" + _0_8,
    "Flux.RNN" + _0_8,
    holds=_holds(True, *_FUNCTIONS),
    writable=False,
)

# What Flux made of a cell for cuDNN until 0.11; CuArrays and CUDA.jl's lib/cudnn/rnncompat.jl have it. setweights! fills
# the first biases and leaves the second zero, and cuDNN adds both.
_FLAT = (Tensor("params", "input recurrent | input_bias recurrent_bias", "(section part gate hidden in)"),)
_FLAT_SOURCE = "JuliaGPU/CUDA.jl, lib/cudnn/rnncompat.jl (5c0c942), params and setweights!"
_SINGLE = Holds(("both",), layers=False, directions=1, dtypes=_DTYPES)
_ONE_RNN = Holds(("both",), ("tanh", "relu"), layers=False, directions=1, dtypes=_DTYPES)
LSTM_FLAT = Layout("flux.lstm_flat", "lstm", "i f g o", _FLAT, _FLAT_SOURCE, "CUDNN.RNNDesc(CUDNN_LSTM)", holds=_SINGLE)
GRU_FLAT = Layout("flux.gru_flat", "gru", "r z n", _FLAT, _FLAT_SOURCE, "CUDNN.RNNDesc(CUDNN_GRU)", True, holds=_SINGLE)
RNN_FLAT = Layout("flux.rnn_flat", "rnn", "n", _FLAT, _FLAT_SOURCE, "CUDNN.RNNDesc(CUDNN_RNN_TANH)", holds=_ONE_RNN)

_WEIGHT = SurroundingTensor("weight", "weight")
DENSE = Surrounding("flux", "dense", "Dense", (_WEIGHT, SurroundingTensor("bias", "bias")), "src/layers/basic.jl, struct Dense")
EMBEDDING = Surrounding(
    "flux", "embedding", "Embedding", (SurroundingTensor("weight", "weight", "out token"),), "src/layers/basic.jl, struct Embedding"
)
