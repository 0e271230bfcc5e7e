"""Literal arrays of brain.js (src/recurrent/rnn.js and gru.js, getModel): matrices (hidden, in), biases (hidden, 1)."""

from rnnconvert.language.layout import Sizes
from tests.helpers.stacks import PLAIN

_INPUT = PLAIN | {"input_bias"}

# fmt: off
LITERALS = [
    ("brainjs.rnn", Sizes("rnn", 3, 2, parts=_INPUT), {
        "weight": [[1111, 1112, 1113], [1121, 1122, 1123]], "transition": [[2111, 2112], [2121, 2122]], "bias": [[3110], [3120]]}),
    ("brainjs.gru", Sizes("gru", 2, 1, parts=_INPUT), {
        "resetGateInputMatrix": [[1111, 1112]], "updateGateInputMatrix": [[1211, 1212]], "cellWriteInputMatrix": [[1311, 1312]],
        "resetGateHiddenMatrix": [[2111]], "updateGateHiddenMatrix": [[2211]], "cellWriteHiddenMatrix": [[2311]],
        "resetGateBias": [[3110]], "updateGateBias": [[3210]], "cellWriteBias": [[3310]]}),
]
