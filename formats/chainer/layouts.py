"""Chainer: the arrays of its recurrent links, by their paths.

Source: chainer/links/rnn/{lstm,peephole,gru,n_step_rnn,n_step_lstm,n_step_gru}.py and chainer/functions/rnn (7.8.1).
LSTM interleaves its gates, row 4 * k + j of a matrix being gate j of unit k. The children of an NStep link are numbered
layer * directions + direction. The documentation of NStepLSTM takes output and candidate for each other. NStepGRU keeps
the old state by z and multiplies after the product, StatelessGRU and StatefulGRU neither.
"""

from rnnconvert.language.layout import Holds, Layout, System, Tensor

SYSTEM = System(
    "chainer",
    "Chainer",
    "2 to 7; before 2, GRU was the present StatelessGRU",
    "executed: chainer 7.8.1 (chainer)",
    (
        "a StatefulPeepholeLSTM has whole matrices: read where they are diagonal, and refused otherwise",
        "a StatefulGRU without a state leaves out the biases of its U links at the first step",
    ),
    asks={"nonlinearity": ""},
    recipes={
        ".npz": ("import chainer", "link = {call}", "chainer.serializers.load_npz({path}, link)"),
        ".h5": ("import chainer", "link = {call}", "chainer.serializers.load_hdf5({path}, link)"),
    },
)

_FUNCTIONS = ("tanh", "relu")
_SOURCE = "chainer/links/rnn/"
_SINGLE = Holds(("input",), layers=False, directions=1)
_LSTM = (
    Tensor("upward/W", "input", "(hidden gate) in"),
    Tensor("upward/b", "input_bias", "(hidden gate)"),
    Tensor("lateral/W", "recurrent", "(hidden gate) in"),
)


def _n_step(inputs: str, states: str) -> tuple[Tensor, ...]:
    """Return the arrays of an NStep link whose gates have these numbers."""
    return (
        Tensor("{pseudo_layer}/w{gate}", "input", "hidden in", letters=inputs),
        Tensor("{pseudo_layer}/w{gate}", "recurrent", "hidden in", letters=states),
        Tensor("{pseudo_layer}/b{gate}", "input_bias", "hidden", letters=inputs),
        Tensor("{pseudo_layer}/b{gate}", "recurrent_bias", "hidden", letters=states),
    )


N_STEP_LSTM = Layout(
    "chainer.n_step_lstm",
    "lstm",
    "i f g o",
    _n_step("0 1 2 3", "4 5 6 7"),
    _SOURCE + "n_step_lstm.py; functions/rnn/n_step_lstm.py",
    "chainer.links.NStepLSTM",
    holds=Holds(("both",)),
)
N_STEP_GRU = Layout(
    "chainer.n_step_gru",
    "gru",
    "r z n",
    _n_step("0 1 2", "3 4 5"),
    _SOURCE + "n_step_gru.py; functions/rnn/n_step_gru.py",
    "chainer.links.NStepGRU",
    True,
    holds=Holds(("both",)),
)
N_STEP_RNN = Layout(
    "chainer.n_step_rnn",
    "rnn",
    "n",
    _n_step("0", "1"),
    _SOURCE + "n_step_rnn.py; functions/rnn/n_step_rnn.py",
    "chainer.links.NStepRNNTanh",
    holds=Holds(("both",), _FUNCTIONS),
)
LSTM = Layout(
    "chainer.lstm",
    "lstm",
    "g i f o",
    _LSTM,
    _SOURCE + "lstm.py, class LSTMBase; functions/rnn/lstm.py, _extract_gates",
    "chainer.links.LSTM",
    holds=_SINGLE,
)
FUNCTION_LSTM = Layout(
    "chainer.function_lstm",
    "lstm",
    "g i f o",
    (
        Tensor("x/W", "input", "(hidden gate) in"),
        Tensor("x/b", "input_bias", "(hidden gate)"),
        Tensor("h/W", "recurrent", "(hidden gate) in"),
        Tensor("h/b", "recurrent_bias", "(hidden gate)"),
    ),
    "chainer/functions/rnn/lstm.py, _extract_gates; examples of Chainer 1 call the links before it l1_x and l1_h",
    "chainer.functions.lstm",
    holds=Holds(("both", "input", "recurrent", "none"), layers=False, directions=1),
    writable=False,
    proof="corpus: a network of Chainer 1 for characters, run by chainer 7.8.1",
)
PEEPHOLE_LSTM = Layout(
    "chainer.peephole_lstm",
    "lstm",
    "g i f o",
    (*_LSTM, Tensor("peep_{gate}/W", "peephole", "hidden", letters="g i f o")),
    _SOURCE + "peephole.py, class StatefulPeepholeLSTM",
    "chainer.links.StatefulPeepholeLSTM",
    holds=_SINGLE,
    writable=False,
)
GRU = Layout(
    "chainer.gru",
    "gru",
    "r -z n",
    (
        Tensor("{gate}/W", "input", "hidden in", letters="W_r W_z W"),
        Tensor("{gate}/b", "input_bias", "hidden", letters="W_r W_z W"),
        Tensor("{gate}/W", "recurrent", "hidden in", letters="U_r U_z U"),
        Tensor("{gate}/b", "recurrent_bias", "hidden", letters="U_r U_z U"),
    ),
    _SOURCE + "gru.py, class StatelessGRU",
    "chainer.links.StatelessGRU",
    False,
    holds=Holds(("both",), layers=False, directions=1),
)
