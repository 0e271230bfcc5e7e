"""Core ML's ML programs: the inputs of the operations lstm, gru and rnn, by their names.

Source: coremltools 9.0, converters/mil/mil/ops/defs/iOS15/recurrent.py for names, order and shapes. The equations are taken from Apple's
own numerical tests, mil/ops/tests/iOS14/test_recurrent.py, which compare with predictions on macOS: a GRU's reset gate multiplies the state
(the text of the operation shows it behind the product), a clip is of the cell, before the output's peephole, and an operation in the
direction "reverse" gives its outputs in processing order.
"""

from rnnconvert.core.cells import HARD_SIGMOID_KERAS_2
from rnnconvert.language.layout import Holds, Layout, System, Tensor

SYSTEM = System(
    "coreml",
    "Core ML",
    "ML programs of iOS 15 to 18 in a .mlpackage; files are written for iOS 15, in float16 for iOS 17",
    "golden: models that coremltools 9.0 made of PyTorch's layers, and of its own operations with known weights, are read; what is "
    "written, coremltools reads as a program and infers its types. No prediction was run: Core ML computes on Apple's systems only",
    (
        "a GRU's reset gate comes before the product, as in Apple's numerical tests and not as in the text of the operation: a GRU of "
        "PyTorch is refused, and coremltools itself writes it as a loop, which is named and not read",
        "an LSTM has two directions; a GRU or a plain RNN has one",
        "files are written for one sequence of 1 to 4096 steps: an input x (steps, 1, width), an output y, and the last states",
        "weights in float16, and those that constexpr operations make of integers and tables, are read, with a warning",
        "whole models go into programs for iOS 16 by `rnnconvert export MODEL model.mlpackage`, PyTorch's GRU as a loop: docs/whole.md",
        "an existing .mlpackage is a folder and is never replaced: remove it first",
    ),
    speaking=True,
    family="deployment",
    called="coremltools core_ml mlmodel mlpackage apple",
)

_FUNCTIONS = ("tanh", "sigmoid", "relu", "linear", HARD_SIGMOID_KERAS_2)
_SOURCE = "coremltools, mil/ops/defs/iOS15/recurrent.py, "
_WAYS = ("", "_back")
_DTYPES = ("float16", "float32")

_WEIGHTS = (Tensor("weight_ih{direction}", "input"), Tensor("weight_hh{direction}", "recurrent"), Tensor("bias{direction}", "input_bias"))
# The states are inputs of the operation, (batch, directions * hidden): a learned one has the same row for each sequence.
_HIDDEN = Tensor("initial_h", "initial_hidden", "1 (direction hidden)")
_CELL = Tensor("initial_c", "initial_cell", "1 (direction hidden)")

LSTM = Layout(
    "coreml.lstm", "lstm", "i f o g", (*_WEIGHTS, Tensor("peephole{direction}", "peephole[i f o]"), _HIDDEN, _CELL),
    _SOURCE + "lstm", "lstm", spelling=_WAYS,
    holds=Holds(("input", "none"), _FUNCTIONS, _FUNCTIONS, "any", clips=("cell",), layers=False, reverse=True, processing_order=True,
                initial_states=True, dtypes=_DTYPES),
)  # fmt: skip
_ONE_WAY = Holds(
    ("input", "none"),
    _FUNCTIONS,
    _FUNCTIONS,
    layers=False,
    directions=1,
    reverse=True,
    processing_order=True,
    initial_states=True,
    dtypes=_DTYPES,
)
GRU = Layout("coreml.gru", "gru", "r n z", (*_WEIGHTS, _HIDDEN), _SOURCE + "gru", "gru", reset_after=False, spelling=_WAYS, holds=_ONE_WAY)
RNN = Layout("coreml.rnn", "rnn", "n", (*_WEIGHTS, _HIDDEN), _SOURCE + "rnn", "rnn", spelling=_WAYS, holds=_ONE_WAY)
