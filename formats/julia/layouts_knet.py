"""Knet.jl: one flat vector `w`, all matrices and then all biases, in the order of cuDNN.

Source: src/ops20/rnn.jl, rnnparam, rnnparams and rnntest. A matrix is (inputs, units) there, which in Julia's order of memory
is its transpose here; matrices and biases stand by layer and id, the two directions of a layer after one another. The
cell's candidate comes third, as the ids say: the formulas of the docstring have it last. Every gate has two biases.
"""

from rnnconvert.language.layout import Holds, Layout, System, Tensor

SYSTEM = System(
    "knet",
    "Knet.jl",
    "1.2 to 1.4 (struct RNN)",
    "source: its rnnparam and rnntest, written down a second time for the tests. Julia was not run",
    (
        "sizes are read from the RNN around `w` in the file, else they are asked for",
        "states h and c that an RNN passes from call to call are left out, with a warning",
    ),
    asks=dict.fromkeys(("cell", "input_size", "hidden_size", "num_layers", "bidirectional", "projection_size", "input_mode"), ""),
)

_AXES = "(section layer direction part gate hidden in)"
_FLAT = (Tensor("w", "input recurrent | input_bias recurrent_bias", _AXES),)
_SOURCE = "src/ops20/rnn.jl, rnnparam, rnnparams"
_DTYPES = ("float16", "float32", "float64")
_HOLDS = Holds(("both",), skip_input=True, dtypes=_DTYPES)
_HOLDS_RNN = Holds(("both",), ("tanh", "relu"), skip_input=True, dtypes=_DTYPES)

LSTM = Layout("knet.lstm", "lstm", "i f g o", _FLAT, _SOURCE, "Knet.RNN(rnnType=:lstm)", holds=_HOLDS)
GRU = Layout("knet.gru", "gru", "r z n", _FLAT, _SOURCE, "Knet.RNN(rnnType=:gru)", True, holds=_HOLDS)
RNN = Layout("knet.rnn", "rnn", "n", _FLAT, _SOURCE, "Knet.RNN(rnnType=:tanh or :relu)", holds=_HOLDS_RNN)
