"""MLX: the arrays of mlx.nn's RNN, GRU and LSTM by their paths. Source: mlx/nn/layers/recurrent.py."""

from rnnconvert.language.layout import Holds, Layout, System, Tensor

SYSTEM = System(
    "mlx", "MLX", "mlx 0.32.4", "golden: files that mlx 0.32.4 wrote on the CPU, with its outputs",
    ("one layer and one direction; `Module.load_weights` reads the files",
     "GRUs of mlx up to 0.31.1 leave `bhn` out at their first step if called without `hidden`: hand it `mx.zeros`, or use a later one"),
    (".safetensors", ".npz"), separator=".",
)  # fmt: skip

_WX, _WH, _BIAS = Tensor("Wx", "input"), Tensor("Wh", "recurrent"), Tensor("bias", "input_bias")
_RNN = (Tensor("Wxh", "input"), Tensor("Whh", "recurrent"), _BIAS)
_GRU = (_WX, _WH, Tensor("b", "input_bias"), Tensor("bhn", "recurrent_bias[n]"))
_ONE_BIAS, _TWO_BIASES = (Holds((biases, "none"), layers=False, directions=1) for biases in ("input", "both"))
_ANY = Holds(("input", "none"), ("tanh", "relu"), layers=False, directions=1)

RNN = Layout("mlx.rnn", "rnn", "n", _RNN, "recurrent.py, RNN", "mlx.nn.RNN", holds=_ANY)
LSTM = Layout("mlx.lstm", "lstm", "i f g o", (_WX, _WH, _BIAS), "recurrent.py, LSTM", "mlx.nn.LSTM", holds=_ONE_BIAS)
GRU = Layout("mlx.gru", "gru", "r z n", _GRU, "recurrent.py, GRU", "mlx.nn.GRU", reset_after=True, holds=_TWO_BIASES)
