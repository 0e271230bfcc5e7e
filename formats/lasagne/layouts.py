"""Lasagne: the parameters of LSTMLayer, GRULayer and RecurrentLayer, in the order in which get_all_params lists them.

Source: lasagne/layers/recurrent.py (master and 0.1), __init__ for the order, get_output_for for the equations. Files hold the
numbers only, so the order of the tensors here is how they are found: the initial states stand last, and first in a
RecurrentLayer, whose get_params lists the parameters of its two DenseLayers behind its own. GRULayer lists its update gate first
and mixes with 1 - z. By default an LSTMLayer has peepholes, and a RecurrentLayer is a rectifier.
"""

from rnnconvert.language.layout import Holds, Layout, Option, System, Tensor

SYSTEM = System(
    "lasagne",
    "Lasagne (Theano)",
    "0.1, and its master (0.2.dev1); 0.1 adds the peephole of an LSTM's output gate behind that gate's function",
    "golden: lasagne 0.1 on Theano 1.0.5; LSTMs with peepholes with the one line moved that its master has moved",
    (
        "the LSTM with peepholes of 0.1 is refused where it is said to be one (release=0.1), since nothing else computes it",
        "files hold the numbers in order without names: where these fit two readings, you are asked",
        "a file states neither which layers read from the end nor a RecurrentLayer's function",
        "gates with functions of their own look like all others: you are asked for one function of all gates",
    ),
    asks={
        "nonlinearity": "relu by default",
        "activation": "",
        "recurrent_activation": "",
        "output_activation": "",
        "go_backwards": "",
        "arrays": "",
    },
    options=(
        Option(
            "release",
            ("0.1", "0.2"),
            "an LSTM with peepholes: 0.1 adds the output gate's after its function, later ones before; 0.2 by default",
        ),
    ),
)


def _gate(name: str, gate: str) -> tuple[Tensor, ...]:
    """Return the tensors of one Gate."""
    return (
        Tensor(f"W_in_to_{name}", f"input[{gate}]", "in hidden"),
        Tensor(f"W_hid_to_{name}", f"recurrent[{gate}]", "in hidden"),
        Tensor(f"b_{name}", f"input_bias[{gate}]", "hidden"),
    )


_HIDDEN, _CELL = (Tensor("hid_init", "initial_hidden", "1 hidden"), Tensor("cell_init", "initial_cell", "1 hidden"))


def _holds(biases: tuple[str, ...], functions: tuple[str, ...] = ("tanh",), asked: tuple[str, ...] = ()) -> Holds:
    """Describe one layer of one direction, either way, with its initial states."""
    return Holds(biases, functions, asked_functions=asked, layers=False, directions=1, reverse=True, initial_states=True)


_SOURCE = "lasagne/layers/recurrent.py, class "

LSTM = Layout(
    "lasagne.lstm",
    "lstm",
    "i f g o",
    (
        *_gate("ingate", "i"),
        *_gate("forgetgate", "f"),
        *_gate("cell", "g"),
        *_gate("outgate", "o"),
        Tensor("W_cell_to_ingate", "peephole[i]", "hidden"),
        Tensor("W_cell_to_forgetgate", "peephole[f]", "hidden"),
        Tensor("W_cell_to_outgate", "peephole[o]", "hidden"),
        _CELL,
        _HIDDEN,
    ),
    _SOURCE + "LSTMLayer",
    "lasagne.layers.LSTMLayer",
    holds=_holds(("input",), asked=("activation", "recurrent_activation", "output_activation")),
)
GRU = Layout(
    "lasagne.gru",
    "gru",
    "-z r n",
    (*_gate("updategate", "z"), *_gate("resetgate", "r"), *_gate("hidden_update", "n"), _HIDDEN),
    _SOURCE + "GRULayer",
    "lasagne.layers.GRULayer",
    True,
    holds=_holds(("input",), asked=("activation", "recurrent_activation")),
)
RNN = Layout(
    "lasagne.rnn",
    "rnn",
    "n",
    (
        _HIDDEN,
        Tensor("input_to_hidden.W", "input", "in hidden"),
        Tensor("input_to_hidden.b", "input_bias", "hidden"),
        Tensor("hidden_to_hidden.W", "recurrent", "in hidden"),
    ),
    _SOURCE + "RecurrentLayer; CustomRecurrentLayer.get_params",
    "lasagne.layers.RecurrentLayer",
    holds=_holds(("input", "none"), ("relu", "tanh", "sigmoid", "linear")),
)
