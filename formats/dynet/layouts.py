"""DyNet: the parameters of its builders, under the names that its source gives them, with the number of the layer behind.

Source: clab/dynet 2.1.2, dynet/lstm.cc (VanillaLSTMBuilder, CompactVanillaLSTMBuilder), gru.cc, fast-lstm.cc, rnn.cc, their constructors
for the order of the parameters and add_input_impl for the equations; dynet/nodes-lstm.cc, VanillaLSTMGates.
"""

from rnnconvert.language.layout import Holds, Layout, System, Tensor

SYSTEM = System(
    "dynet",
    "DyNet",
    "the text files of 2.0 and 2.1; the archives of 1.x are not read",
    "golden: a file that DyNet 2.1.2 wrote, with its outputs on the CPU",
    (
        "a BiRNNBuilder is a layer of two directions; two builders that code runs in two directions are two layers",
        "CoupledLSTMBuilder is refused: its peepholes are whole matrices; layer norm (ln_lstm) is refused, too",
        "`populate` takes parameters in the order of the file, whatever they are called: make several builders in that order",
        "a file states no dropout: it acts in training alone, unless the code calls set_dropout for every run",
    ),
    (".dynet",),
    recipes={".dynet": ("import dynet", "parameters = dynet.ParameterCollection()", "builder = {call}", "parameters.populate({path})")},
    asks={"forget_bias": ""},
    called="clab cnn",
)

_VANILLA = (
    Tensor("x2i_{layer}{direction}", "input", "(gate hidden) in"),
    Tensor("h2i_{layer}{direction}", "recurrent", "(gate hidden) in"),
    Tensor("bi_{layer}{direction}", "input_bias", "(gate hidden)"),
)
_BY_GATE = (
    Tensor("x2{gate}_{layer}{direction}", "input", "hidden in"),
    Tensor("h2{gate}_{layer}{direction}", "recurrent", "hidden in"),
    Tensor("b{gate}_{layer}{direction}", "input_bias", "hidden"),
)
_RNN = (
    Tensor("x2h_{layer}{direction}", "input", "hidden in"),
    Tensor("h2h_{layer}{direction}", "recurrent", "hidden in"),
    Tensor("hb_{layer}{direction}", "input_bias", "hidden"),
)
_HOLDS = Holds(("input",), dtypes=("float32",))

VANILLA = Layout(
    "dynet.vanilla", "lstm", "i f o g", _VANILLA, "dynet/lstm.cc, VanillaLSTMBuilder", "dynet.VanillaLSTMBuilder",
    holds=Holds(("input",), constants={"f": 1.0}, chosen=("f",), dtypes=("float32",)),
)  # fmt: skip
GRU = Layout(
    "dynet.gru", "gru", "-z r n", _BY_GATE, "dynet/gru.cc, GRUBuilder", "dynet.GRUBuilder", reset_after=False, letters="z r h",
    holds=_HOLDS,
)  # fmt: skip
RNN = Layout(
    "dynet.rnn", "rnn", "n", _RNN, "dynet/rnn.cc, SimpleRNNBuilder", "dynet.SimpleRNNBuilder",
    holds=_HOLDS,
)  # fmt: skip
# Its peepholes c2i and c2o are not among its arrays: add_input_impl leaves them out ("TODO"), and so does a run of it.
FAST = Layout(
    "dynet.fast", "lstm", "i o g", _BY_GATE, "dynet/fast-lstm.cc, FastLSTMBuilder", "dynet.FastLSTMBuilder", letters="i o c", coupled="f",
    holds=_HOLDS, writable=False,
)  # fmt: skip
