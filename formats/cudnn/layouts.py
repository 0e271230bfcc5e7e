"""cuDNN: the single weight buffer ("weight space") of versions 5 to 9.

All matrices come first, by pseudo-layer (layer * directions + direction) and linLayerID, then all biases
in the same order; there is no padding. A projection matrix follows the recurrent matrices of its
pseudo-layer. Source: cudnnGetRNNWeightParams of cuDNN 8.5 and 9.28, asked for every offset.
"""

from rnnconvert.language.layout import Holds, Layout, Option, System, Tensor

SYSTEM = System(
    "cudnn",
    "cuDNN",
    "version 8 and 9; the buffer is the same in 5 to 7 as far as their sources show",
    "executed: torch 2.13.0, jax 0.10.2 (lstm_ref) and mxnet 1.9.1 on the CPU read the same buffer; its offsets are those that "
    "cuDNN 9.28 itself reports, and cuDNN 9.19 on an H100 gives the reference's outputs from it",
    (
        "a GRU's candidate is tanh(W x + r * (R h + b)) with a single recurrent bias, and tanh(W x + b + r * (R h)) with a single input "
        "bias: measured on cuDNN 9.19, an H100; cuDNN's manual has both equations",
        "the clip of an LSTM bounds the cell state where it is read, not the final one: measured likewise. On a GRU or a plain RNN cuDNN "
        "ignores it; it is refused",
        "the final states of an empty sequence are zeros, not the initial ones: the executor refuses it",
    ),
    speaking=True,
    asks=dict.fromkeys(("cell", "input_size", "hidden_size", "num_layers", "bidirectional", "projection_size", "input_mode"), ""),
    options=(
        Option(
            "bias_mode",
            ("double", "none", "single_inp", "single_rec"),
            "the biases of a buffer without a description, and of one that is written; double by default",
            "both",
        ),
        Option("dtype", ("float16", "bfloat16", "float32", "float64"), "a buffer without a description: its element type"),
    ),
    family="libraries",
    called="cuda",
)

_AXES = "(section layer direction part gate hidden in)"
_BUFFER = Tensor("params", "input recurrent | input_bias recurrent_bias", _AXES)
_PROJECTED = Tensor("params", "input recurrent projection | input_bias recurrent_bias", _AXES)
_SOURCE = "cudnnGetRNNWeightParams, cudnnRNNMode_t"
_MODES = ("both", "none", "input", "recurrent")
_GRU = Holds(biases=_MODES, skip_input=True)
_LSTM = Holds(biases=_MODES, skip_input=True, clips=("state",), uneven_clips=True, full_projection=False)
_RNN = Holds(biases=_MODES, skip_input=True, activations=("tanh", "relu"))

LSTM = Layout("cudnn.lstm", "lstm", "i f g o", (_PROJECTED,), _SOURCE, "CUDNN_LSTM", holds=_LSTM)
GRU = Layout("cudnn.gru", "gru", "r z n", (_BUFFER,), _SOURCE, "CUDNN_GRU", reset_after=True, holds=_GRU)
RNN = Layout("cudnn.rnn", "rnn", "n", (_BUFFER,), _SOURCE, "CUDNN_RNN_TANH, CUDNN_RNN_RELU", holds=_RNN)
