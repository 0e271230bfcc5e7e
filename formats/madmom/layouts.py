"""madmom: the arrays of its recurrent layers, by their attributes.

Source: madmom/ml/nn/layers.py (0.16 and 0.17): weights are (in, hidden); a GRU mixes with 1 - z, and its reset gate multiplies the
product without a bias; an output gate's peephole sees the new cell state.
"""

from rnnconvert.language.layout import Holds, Layout, System, Tensor

SYSTEM = System(
    "madmom",
    "madmom",
    "the pickles of its networks, of 0.13 to 0.17, written by Python 2 or 3",
    "golden: networks that madmom 0.17 pickled, with what its layers give; the 163 recurrent layers of the 61 models in its package gave "
    "the same as madmom's own, to 1.5e-6",
    (
        "files are pickles: they are read as data, and nothing of them is executed",
        "what is around the recurrent layers (dense layers, features, trackers) is listed by name",
        "files are only read",
    ),
    separator=".",
)

_FUNCTIONS = ("tanh", "sigmoid", "relu", "linear", "elu")
_WAYS = ("fwd_layer.", "bwd_layer.")
_SOURCE = "madmom/ml/nn/layers.py, "
_HIDDEN = Tensor("{direction}init", "initial_hidden", "hidden")


def _gates(before: str) -> tuple[Tensor, ...]:
    return (
        Tensor(before + "weights", "input", "in hidden"),
        Tensor(before + "recurrent_weights", "recurrent", "in hidden"),
        Tensor(before + "bias", "input_bias", "hidden"),
    )


def _layout(cell: str, gates: str, tensors: tuple[Tensor, ...], letters: str = "", after: bool | None = None) -> Layout:
    holds = Holds(("input",), _FUNCTIONS, _FUNCTIONS, "any", layers=False, initial_states=True)
    name = {"rnn": "RecurrentLayer", "gru": "GRULayer", "lstm": "LSTMLayer"}[cell]
    return Layout(
        f"madmom.{cell}",
        cell,
        gates,
        tensors,
        _SOURCE + name,
        name,
        reset_after=after,
        letters=letters,
        spelling=_WAYS,
        alone="",
        holds=holds,
        writable=False,
    )


RNN = _layout("rnn", "n", (*_gates("{direction}"), _HIDDEN))
GRU = _layout("gru", "r -z n", (*_gates("{direction}{gate}."), _HIDDEN), "reset_gate update_gate cell", True)
LSTM = _layout(
    "lstm",
    "i f g o",
    (
        *_gates("{direction}{gate}."),
        Tensor("{direction}{gate}.peephole_weights", "peephole", "hidden"),
        _HIDDEN,
        Tensor("{direction}cell_init", "initial_cell", "hidden"),
    ),
    "input_gate forget_gate cell output_gate",
)
