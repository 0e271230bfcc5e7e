"""brain.js: the matrices of one hidden layer in the JSON that `toJSON` gives.

Source: brain.js 1.6.1 and 2.0.0, src/recurrent/{rnn,gru,lstm}.js, getModel and getEquation: matrices are (hidden, in), biases
(hidden, 1); an RNN computes relu; a GRU's reset gate comes before the matrix. Its LSTM is no LSTM: see formats/brainjs/files.py.
"""

from rnnconvert.language.layout import Holds, Layout, System, Tensor

SYSTEM = System(
    "brainjs",
    "brain.js",
    "the JSON of RNN, GRU, RNNTimeStep and GRUTimeStep, of 1.x and 2.x",
    "golden: networks that brain.js 1.6.1 trained, with what they give",
    (
        "its LSTM and LSTMTimeStep are refused: they keep their outputs in the place of the cell state",
        "`input`, `outputConnector` and `output` stand around the recurrent layers, and are listed by name",
        "files are only read",
    ),
    separator="/",
)


def _layout(cell: str, gates: str, tensors: tuple[Tensor, ...], activations: tuple[str, ...], letters: str = "") -> Layout:
    holds = Holds(("input",), activations, layers=False, directions=1, dtypes=("float32",))
    after = False if cell == "gru" else None
    source = f"src/recurrent/{cell}.js"
    return Layout(
        f"brainjs.{cell}", cell, gates, tensors, source, cell.upper(), reset_after=after, letters=letters, holds=holds, writable=False
    )


RNN = _layout(
    "rnn", "n", (Tensor("weight", "input"), Tensor("transition", "recurrent"), Tensor("bias", "input_bias", "hidden 1")), ("relu",)
)
GRU = _layout(
    "gru",
    "r z n",
    (Tensor("{gate}InputMatrix", "input"), Tensor("{gate}HiddenMatrix", "recurrent"), Tensor("{gate}Bias", "input_bias", "hidden 1")),
    ("tanh",),
    "resetGate updateGate cellWrite",
)
