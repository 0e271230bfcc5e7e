"""RTNeural: the weights of a layer in its JSON, as Keras's get_weights() gives them.

Source: RTNeural/model_loader.h (createLSTM, createGRU, parseJson) for the shapes and what is ignored, RTNeural/gru/gru.tpp and
lstm/lstm.tpp for the order of the gates, python/model_utils.py for what its exporter writes. The functions of the gates and of
the candidate are fixed, regardless of "activation".
"""

from rnnconvert.language.layout import Holds, Layout, Option, System, Tensor
from rnnconvert.language.surroundings import Surrounding, SurroundingTensor

SYSTEM = System(
    "rtneural",
    "RTNeural (AIDA-X)",
    "RTNeural's JSON of every release; AIDA-X's .json and .aidax, which add keys to it",
    "corpus: the models of RTNeural's own tests with Keras's outputs, and those of the Klon Centaur; Keras runs the weights that are read "
    "and written. RTNeural itself, which no registry has as a package, was compiled by hand (revision 1fb1f075, its STL and its Eigen "
    "backend): for 112 random whole models that export had written (LSTM, GRU, dense, conv1d, prelu, batchnorm, every activation) it gave "
    "what the executor rtneural-numpy gives, to 2.4e-7",
    (
        "one direction; a stack is written as layers that read one another",
        "a GRU has two biases: one without a second row is refused, since RTNeural's reset gate comes after the product",
        "numbers are float32, as RTNeural takes them: others are refused until you ask for float32",
        "the layers around stay where a file of RTNeural is written again; from another format convert writes the recurrent layers, "
        "and export the whole model",
        "AIDA-X's in_skip, in_gain and out_gain change what the whole model computes: they are named, and stay in its own files",
    ),
    separator="/",
    options=(
        Option("samplerate", (), "whole models: samples a second of what the model was trained on; none by default", "write", "whole"),
        Option(
            "input_batch",
            (),
            "whole models: how many samples the file states, with what the model gives for them; none by default",
            "write",
            "whole",
        ),
    ),
    family="audio",
)

_KERNEL, _RECURRENT = (Tensor("weights/0", "input", "in (gate hidden)"), Tensor("weights/1", "recurrent", "in (gate hidden)"))
_SOURCE = "RTNeural/model_loader.h, "


def _holds(biases: str) -> Holds:
    return Holds((biases,), layers=False, directions=1, alone=True, dtypes=("float32",))


LSTM = Layout(
    "rtneural.lstm",
    "lstm",
    "i f g o",
    (_KERNEL, _RECURRENT, Tensor("weights/2", "input_bias")),
    _SOURCE + "createLSTM",
    "lstm",
    holds=_holds("input"),
)
GRU = Layout(
    "rtneural.gru",
    "gru",
    "z r n",
    (_KERNEL, _RECURRENT, Tensor("weights/2", "input_bias recurrent_bias", "part (gate hidden)")),
    _SOURCE + "createGRU",
    "gru",
    reset_after=True,
    holds=_holds("both"),
)

DENSE = Surrounding(
    "rtneural",
    "dense",
    "dense time-distributed-dense",
    (SurroundingTensor("weights/0", "weight", "in out"), SurroundingTensor("weights/1", "bias")),
    _SOURCE + "createDense",
)
CONV = Surrounding(
    "rtneural",
    "conv",
    "conv1d",
    (SurroundingTensor("weights/0", "weight", "*space in out"), SurroundingTensor("weights/1", "bias")),
    _SOURCE + "createConv1D",
)
PRELU = Surrounding("rtneural", "prelu", "prelu", (SurroundingTensor("weights/0", "slope", "1 channel"),), _SOURCE + "createPReLU")
_NORM = ("scale", "shift", "mean", "variance")
BATCH_NORM = Surrounding(
    "rtneural",
    "batch_norm",
    "batchnorm",
    tuple(SurroundingTensor(f"weights/{place}", part) for place, part in enumerate(_NORM)),
    _SOURCE + "createBatchNorm",
    {"epsilon": "epsilon"},
)
BATCH_NORM_ALONE = Surrounding(
    "rtneural",
    "batch_norm",
    "batchnorm",
    tuple(SurroundingTensor(f"weights/{place}", part) for place, part in enumerate(_NORM[2:])),
    _SOURCE + "createBatchNorm",
    {"epsilon": "epsilon"},
)

FUNCTIONS = ("tanh", "relu", "sigmoid", "softmax", "elu")
"""The activations that RTNeural has; it leaves any other out in silence."""
