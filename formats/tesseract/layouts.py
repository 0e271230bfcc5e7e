"""Tesseract: the weights of an LSTM's gates, one matrix each with columns for the input, the last output and the bias.

Source: tesseract, src/lstm/lstm.h, WeightType, and lstm.cpp, LSTM::Forward: CI is the candidate, GI, GF1 and GO are the gates; the state is
clipped to [-100, 100]. weightmatrix.cpp for the numbers.
"""

from rnnconvert.core.cells import Clip
from rnnconvert.language.layout import Holds, Layout, System, Tensor

SYSTEM = System(
    "tesseract",
    "Tesseract",
    "the LSTM of .traineddata of Tesseract 4 and 5, in float64 and int8",
    "corpus: eng.traineddata of Debian's tesseract-ocr-eng is read to its last byte; computed with the weights that are read, its network "
    "reads lines of text, and no longer does with any two gates swapped. Tesseract itself was not run",
    (
        "a layer over two dimensions, and one with a softmax in its loop, are named and not read",
        "weights in int8 are read as the float32 numbers that they stand for, with a warning: the integer kernel also rounds its input",
        "which way a layer reads (RTLReversed, XYTranspose) is in its name",
        "files are only read",
    ),
    separator="/",
    family="deployment",
)

LSTM = Layout(
    "tesseract.lstm",
    "lstm",
    "g i f o",
    (
        Tensor("{gate}/input", "input", "hidden in"),
        Tensor("{gate}/recurrent", "recurrent", "hidden in"),
        Tensor("{gate}/bias", "input_bias", "hidden"),
    ),
    "src/lstm/lstm.cpp, LSTM::Forward",
    "LSTM",
    letters="CI GI GF1 GO",
    writable=False,
    holds=Holds(("input",), clips=(Clip("cell", -100.0, 100.0),), layers=False, directions=1),
)
