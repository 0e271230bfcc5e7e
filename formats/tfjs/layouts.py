"""TensorFlow.js: the weights of its recurrent layers, by the ends of their names in a layers model.

Source: tfjs-layers/src/layers/recurrent.ts (LSTMCell, GRUCell, SimpleRNNCell: build and call) and wrappers.ts (Bidirectional);
tfjs-layers/src/activations.ts; tfjs-core/src/io/io_utils.ts, decodeWeights, for the groups of weights.
"""

from rnnconvert.core.cells import HARD_SIGMOID_KERAS_2
from rnnconvert.language.layout import Holds, Layout, Option, System, Tensor

SYSTEM = System(
    "tfjs",
    "TensorFlow.js",
    "layers models of tfjs-layers 0 to 4, as tensorflowjs_converter and model.save() write them",
    "executed: tfjs-layers 4.22.0 under Node.js; corpus: a trained text generator with Keras's outputs",
    (
        "a model is model.json with its groups of weights next to it; groups quantized to float16, uint8 or uint16 are "
        "read, with a warning",
        "as a layer, a GRU with reset_after is refused: tfjs-layers throws where it is true; `export` writes it as a graph model",
        "`export` writes whole models of this format, from embeddings to dense layers: docs/whole.md",
        "hard_sigmoid means 0.2 x + 0.5 here, as in Keras 2, and recurrent_activation is hard_sigmoid where a file does not state it",
        "graph models (converted for inference, without layers) are graphs of TensorFlow's: tensorflow1 reads their loops",
        "numbers are float32: others are refused until you ask for float32",
    ),
    separator="/",
    speaking=True,
    options=(
        Option(
            "form", ("layers", "graph"), "whole models: layers alone, or a graph; layers, where they hold the model, by default", "write"
        ),
    ),
    functions={"Keras 2's hard_sigmoid": HARD_SIGMOID_KERAS_2},
    family="deployment",
    called="tensorflowjs tensorflow.js tf.js",
)

_TENSORS = (
    Tensor("{direction}kernel", "input", "in (gate hidden)"),
    Tensor("{direction}recurrent_kernel", "recurrent", "in (gate hidden)"),
    Tensor("{direction}bias", "input_bias", "(gate hidden)"),
)
_WAYS = ("forward/", "backward/")
_FUNCTIONS = ("tanh", "sigmoid", "relu", "linear", "elu", "softsign", "softplus", HARD_SIGMOID_KERAS_2)
_HOLDS = Holds(
    ("input", "none"),
    _FUNCTIONS,
    ("sigmoid", *_FUNCTIONS),
    layers=False,
    reverse=True,
    reverse_order="processing",
    merges=("concat", "sum", "mul", "ave"),
    processing_order=True,
    dtypes=("float32",),
)
_SOURCE = "tfjs-layers/src/layers/recurrent.ts, "

LSTM = Layout("tfjs.lstm", "lstm", "i f g o", _TENSORS, _SOURCE + "LSTMCell", "tf.layers.lstm", spelling=_WAYS, alone="", holds=_HOLDS)
GRU = Layout(
    "tfjs.gru", "gru", "z r n", _TENSORS, _SOURCE + "GRUCell", "tf.layers.gru", reset_after=False, spelling=_WAYS, alone="", holds=_HOLDS
)
RNN = Layout("tfjs.rnn", "rnn", "n", _TENSORS, _SOURCE + "SimpleRNNCell", "tf.layers.simpleRNN", spelling=_WAYS, alone="", holds=_HOLDS)
