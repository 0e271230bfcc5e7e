"""Baidu's persistent-rnn: its own kernels' one matrix, and the buffer that it hands to cuDNN.

Source: baidu-research/persistent-rnn, src/detail/rnn/recurrent_ops.cu (genericForwardPropRecurrent, getWeightDimensions) and
cudnn_ops.cpp (createRnnDescriptor). Its own kernels compute h' = act(x + W h), with W by columns, and neither weights of the
input nor biases; what cuDNN computes for it has cuDNN's buffer, and every plain RNN there is a ReLU.
"""

from rnnconvert.language.layout import Holds, Layout, System, Tensor

SYSTEM = System(
    "persistent_rnn",
    "Baidu persistent-rnn",
    "0.1 and 0.2, 2016 to 2017",
    "source: read only in its source; the buffer of its cuDNN backend is cuDNN's own",
    (
        "a plain RNN of its own kernels reads its input unweighted, and has no bias: others are refused there",
        "a skip connection (skipConnectionScale) is refused when you state it: weights do not show it, and no other framework has it",
        "weights are memory of a program: an archive with one vector `weights`, whose sizes are asked for; read it as "
        "persistent_rnn, and with `layout=rnn` for its own kernels",
    ),
    (".npz", ".safetensors", ".h5"),
    asks=dict.fromkeys(("cell", "input_size", "hidden_size", "num_layers", "bidirectional", "input_mode"), ""),
    family="libraries",
)

_DTYPES = ("float16", "float32", "float64")
_BUFFER = (Tensor("weights", "input recurrent | input_bias recurrent_bias", "(section layer direction part gate hidden in)"),)
_SOURCE = "src/detail/rnn/cudnn_ops.cpp, createRnnDescriptor"

LSTM = Layout(
    "persistent_rnn.lstm", "lstm", "i f g o", _BUFFER, _SOURCE, "PRNN_LSTM", holds=Holds(("both",), skip_input=True, dtypes=_DTYPES)
)
GRU = Layout(
    "persistent_rnn.gru", "gru", "r z n", _BUFFER, _SOURCE, "PRNN_GRU", True, holds=Holds(("both",), skip_input=True, dtypes=_DTYPES)
)
RNN_CUDNN = Layout(
    "persistent_rnn.rnn_cudnn",
    "rnn",
    "n",
    _BUFFER,
    _SOURCE,
    "PRNN_RNN_RELU with the cuDNN backend",
    holds=Holds(("both",), ("relu",), skip_input=True, dtypes=_DTYPES),
)
RNN = Layout(
    "persistent_rnn.rnn",
    "rnn",
    "n",
    (Tensor("weights", "recurrent", "(in hidden)"),),
    "src/detail/rnn/recurrent_ops.cu, genericForwardPropRecurrent",
    "PRNN_RNN_RELU or PRNN_RNN_TANH",
    holds=Holds(("none",), ("relu", "tanh"), layers=False, directions=1, reverse=True, skip_input=True, dtypes=_DTYPES),
)
