"""ncnn: the weights of its layers LSTM, GRU and RNN, by the names that its code has for them.

Source: src/layer/lstm.cpp, gru.cpp and rnn.cpp, load_model and forward; tools/pnnx, pass_ncnn/nn_LSTM.cpp and nn_GRU.cpp.
"""

from rnnconvert.language.layout import Holds, Layout, Option, System, Tensor

SYSTEM = System(
    "ncnn",
    "ncnn",
    "text .param files with magic number 7767517, of every release that has these layers",
    "executed: ncnn 1.0.20261020 on the CPU",
    (
        "a file is two: MODEL.param with the graph, and MODEL.bin with the numbers next to it",
        "a GRU's reset gate comes after the product, and a plain RNN goes through tanh: others are refused",
        "a layer computes one sequence at a time; files that are written take in0 (time, width) and give out0",
        "numbers in float16 and int8 and in tables of 256 are read; of int8 a warning says what is lost",
        "the numbers of the .bin have no names: behind a layer whose size is unknown here they cannot be found, and that layer is named",
    ),
    speaking=True,
    options=(
        Option(
            "steps",
            (),
            "whole models: how many steps sequences have, where the steps of a layer or a loop are written out; any number by default",
            "write",
            "whole",
        ),
    ),
    family="deployment",
)

_XC = Tensor("weight_xc_data", "input", "direction (gate hidden) in")
_HC = Tensor("weight_hc_data", "recurrent", "direction (gate hidden) in")
_BIAS = Tensor("bias_c_data", "input_bias", "direction (gate hidden)")


def _holds(biases: str = "input") -> Holds:
    return Holds((biases,), layers=False, reverse=True, full_projection=False, dtypes=("float16", "float32"))


LSTM = Layout(
    "ncnn.lstm",
    "lstm",
    "i f o g",
    (_XC, _BIAS, _HC, Tensor("weight_hr_data", "projection", "direction hidden in")),
    "src/layer/lstm.cpp",
    "LSTM",
    holds=_holds(),
)
GRU = Layout(
    "ncnn.gru",
    "gru",
    "r z n",
    (_XC, Tensor("bias_c_data", "input_bias recurrent_bias[n]", "direction (part gate hidden)"), _HC),
    "src/layer/gru.cpp",
    "GRU",
    reset_after=True,
    holds=_holds("both"),
)
RNN = Layout("ncnn.rnn", "rnn", "n", (_XC, _BIAS, _HC), "src/layer/rnn.cpp", "RNN", holds=_holds())
