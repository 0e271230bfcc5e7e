"""GuitarML, CoreAudioML and RTNeural's torch_helpers: a state dictionary of torch as JSON, with torch's names and gates.

Source: Alec-Wright/CoreAudioML networks.py, SimpleRNN (`rec` is torch.nn.LSTM, GRU or RNN with its usual arguments, `lin` a
Linear behind it); RTNeural/torch_helpers.h, loadLSTM and loadGRU. Both biases are there; RTNeural sums an LSTM's.
"""

from rnnconvert.language.layout import Holds, Layout, System, Tensor
from rnnconvert.language.surroundings import Surrounding, SurroundingTensor

SYSTEM = System(
    "guitarml",
    "GuitarML (CoreAudioML)",
    "SimpleRNN of CoreAudioML, and bare state dictionaries as RTNeural's torch_helpers load them",
    "corpus: the models of RTNeural's own tests with the outputs that torch gave; torch runs the weights that are read and written. The "
    "plug-ins themselves have not run here",
    (
        "one direction, with both biases",
        "numbers are float32: others are refused until you ask for float32",
        "model_data and the layers around stay where such a file is written again; from another format convert writes a bare state "
        "dictionary: GuitarML's plug-ins want `rec` (the option prefix=rec), a dense layer `lin` and model_data, which export writes",
        "skip=k adds the first k inputs to the output of the whole model: convert names it, and export keeps it",
    ),
    separator=".",
    family="audio",
)

_STACK = (
    Tensor("weight_ih_l{layer}", "input"),
    Tensor("weight_hh_l{layer}", "recurrent"),
    Tensor("bias_ih_l{layer}", "input_bias"),
    Tensor("bias_hh_l{layer}", "recurrent_bias"),
)
_SOURCE = "CoreAudioML networks.py, SimpleRNN; "
_HOLDS = Holds(("both",), directions=1, dtypes=("float32",))

LSTM = Layout("guitarml.lstm", "lstm", "i f g o", _STACK, _SOURCE + "RTNeural/torch_helpers.h, loadLSTM", "LSTM", holds=_HOLDS)
GRU = Layout("guitarml.gru", "gru", "r z n", _STACK, _SOURCE + "RTNeural/torch_helpers.h, loadGRU", "GRU", True, holds=_HOLDS)
RNN = Layout("guitarml.rnn", "rnn", "n", _STACK, _SOURCE + "unit_type RNN", "RNN", holds=_HOLDS)

LINEAR = Surrounding(
    "guitarml", "dense", "Linear", (SurroundingTensor("weight", "weight"), SurroundingTensor("bias", "bias")), _SOURCE + "lin"
)
