"""Neural Amp Modeler: the one list of numbers of an LSTM.

Source: NeuralAmpModelerCore, NAM/lstm.cpp, the constructors of LSTMCell and LSTM; neural-amp-modeler, nam/models/recurrent.py,
_export_cell_weights. Layer by layer: rows of W and R side by side, one bias, the learned initial hidden and cell state; then the
head's weights and bias, which are not the layer's.
"""

from rnnconvert.language.layout import Holds, Layout, Option, System, Tensor
from rnnconvert.language.surroundings import Surrounding, SurroundingTensor

SYSTEM = System(
    "nam",
    "Neural Amp Modeler",
    ".nam files of the versions 0.5 to 0.7 of the architecture LSTM",
    "golden: a model of the trainer, neural-amp-modeler 0.13.0, with its outputs; it also ran the LSTM of NeuralAmpModelerCore's examples, "
    "and a file written here, to 6e-8. NeuralAmpModelerCore, which plug-ins use, was compiled by hand (revision daae2d0b): for 100 random "
    "models that export had written it gave what the executor nam-numpy gives, to 1.2e-7",
    (
        "LSTM only, one direction; every layer has a learned initial state, which is zero where the source has none",
        "the core may take fast approximations of tanh and sigmoid, and then gives other numbers than the model was trained with",
        "a model ends in a head: it stays where a .nam is written again, and export writes that of another format's model; convert "
        "writes zeros, so that the model is silent until you put your own there",
        "numbers are float32: others are refused until you ask for float32",
    ),
    separator=".",
    options=(
        Option("sample_rate", (), "whole models: samples a second of what the model was trained on; none by default", "write", "whole"),
    ),
    family="audio",
)

LSTM = Layout(
    "nam.lstm",
    "lstm",
    "i f g o",
    (Tensor("weights", "input recurrent | input_bias | initial_hidden | initial_cell", "(layer section gate hidden part in)"),),
    "NAM/lstm.cpp, LSTMCell::LSTMCell",
    "LSTM",
    holds=Holds(("input",), directions=1, alone=True, initial_states=True, dtypes=("float32",)),
)

HEAD = Surrounding(
    "nam", "dense", "head", (SurroundingTensor("weight", "weight"), SurroundingTensor("bias", "bias")), "NAM/lstm.cpp, LSTM::LSTM"
)
