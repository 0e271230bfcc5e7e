"""Torch7: torch-rnn's layers, the package rnn of Element-Research, and cudnn.torch's flat vectors.

Sources: jcjohnson/torch-rnn, {LSTM,VanillaRNN}.lua; Element-Research/rnn, {LSTM,FastLSTM,GRU,SeqLSTM,SeqLSTMP,SeqGRU}.lua;
soumith/cudnn.torch, RNN.lua. Every GRU here mixes as h' = (1 - z) n + z h. SeqLSTM and torch-rnn's nn.LSTM are one layer;
the package rnn has another nn.LSTM, with peepholes.
"""

from rnnconvert.language.layout import Holds, Layout, System, Tensor

SYSTEM = System(
    "torch7",
    "Torch7 (Lua)",
    "torch-rnn; rnn of Element-Research to 2017; cudnn.torch; .t7 in binary mode",
    "source: the Lua of each class, transcribed; corpus: torch-rnn's nn.LSTM with outputs computed from its source",
    (
        "no Lua runs: a class is known by its name, and its tree of modules is checked against its source",
        "dropout inside a cell (p > 0), batch normalization and weight normalization are refused",
        "nn.GRU and nn.LSTM of forks, which have other equations under these names, are refused unless a layout is named",
    ),
    asks={"prefix": ""},
)

_RNN = "Element-Research/rnn, "
_SINGLE = Holds(biases=("input",), layers=False, directions=1, dtypes=("float32", "float64"))
_READ = Holds(**{**vars(_SINGLE), "directions": 2, "merges": ("concat", "sum")})
_BOTH = Holds(biases=("both", "input"), layers=False, directions=2, dtypes=("float32", "float64"))


def _side_by_side(extra: tuple[Tensor, ...] = ()) -> tuple[Tensor, ...]:
    """Return a matrix that acts on the input and the state side by side, and a bias."""
    weight = Tensor("weight", "input recurrent", "(part in) (gate hidden)")
    return (weight, Tensor("bias", "input_bias", "(gate hidden)"), *extra)


SEQ_LSTM = Layout(
    "torch7.seq_lstm",
    "lstm",
    "i f o g",
    _side_by_side((Tensor("weightO", "projection", "in hidden"),)),
    _RNN + "SeqLSTM.lua and SeqLSTMP.lua, updateOutput; jcjohnson/torch-rnn, LSTM.lua, the same",
    "nn.SeqLSTM",
    holds=_SINGLE,
)
SEQ_GRU = Layout(
    "torch7.seq_gru", "gru", "r z n", _side_by_side(), _RNN + "SeqGRU.lua, updateOutput", "nn.SeqGRU", reset_after=False, holds=_SINGLE
)
VANILLA_RNN = Layout(
    "torch7.vanilla_rnn", "rnn", "n", _side_by_side(), "jcjohnson/torch-rnn, VanillaRNN.lua, updateOutput", "nn.VanillaRNN", holds=_SINGLE
)
FAST_LSTM = Layout(
    "torch7.fast_lstm",
    "lstm",
    "i g f o",
    (
        Tensor("i2g/weight", "input", "(gate hidden) in"),
        Tensor("i2g/bias", "input_bias", "(gate hidden)"),
        Tensor("o2g/weight", "recurrent", "(gate hidden) in"),
    ),
    _RNN + "FastLSTM.lua, buildModel",
    "nn.FastLSTM",
    holds=_READ,
    writable=False,
)
LSTM = Layout(
    "torch7.lstm",
    "lstm",
    "i f g o",
    (
        Tensor("{gate}/input/weight", "input", "hidden in"),
        Tensor("{gate}/input/bias", "input_bias", "hidden"),
        Tensor("{gate}/output/weight", "recurrent", "hidden in"),
        Tensor("{gate}/output/bias", "recurrent_bias", "hidden"),
        Tensor("{gate}/cell/weight", "peephole", "hidden"),
    ),
    _RNN + "LSTM.lua, buildGate and buildHidden",
    "nn.LSTM",
    letters="inputGate forgetGate hiddenLayer outputGate",
    holds=_BOTH,
    writable=False,
)
GRU = Layout(
    "torch7.gru",
    "gru",
    "r z n",
    (
        Tensor("i2g/weight", "input[r z]", "(gate hidden) in"),
        Tensor("i2g/bias", "input_bias[r z]", "(gate hidden)"),
        Tensor("o2g/weight", "recurrent[r z]", "(gate hidden) in"),
        Tensor("t1/weight", "input[n]", "(gate hidden) in"),
        Tensor("t1/bias", "input_bias[n]", "(gate hidden)"),
        Tensor("t2/weight", "recurrent[n]", "(gate hidden) in"),
    ),
    _RNN + "GRU.lua, buildModel",
    "nn.GRU",
    reset_after=False,
    holds=_READ,
    writable=False,
)

# cudnn.torch keeps what cuDNN itself calls the parameters.
_FLAT = (Tensor("weight", "input recurrent | input_bias recurrent_bias", "(section layer direction part gate hidden in)"),)
_CUDNN = Holds(biases=("both",), skip_input=True, dtypes=("float32", "float64"))
_SOURCE = "soumith/cudnn.torch, RNN.lua, reset and getNumLinearLayers; cuDNN's buffer"
CUDNN_LSTM = Layout("torch7.cudnn_lstm", "lstm", "i f g o", _FLAT, _SOURCE, "cudnn.LSTM", holds=_CUDNN)
CUDNN_GRU = Layout("torch7.cudnn_gru", "gru", "r z n", _FLAT, _SOURCE, "cudnn.GRU", reset_after=True, holds=_CUDNN)
CUDNN_RNN = Layout(
    "torch7.cudnn_rnn", "rnn", "n", _FLAT, _SOURCE, "cudnn.RNN", holds=Holds(**{**vars(_CUDNN), "activations": ("tanh", "relu")})
)
