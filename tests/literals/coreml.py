"""Literal arrays of Core ML (coremltools, iOS15/recurrent.py; NeuralNetwork.proto): see tests.literals."""

from rnnconvert.language.layout import Sizes
from tests.helpers.stacks import PLAIN

_INPUT = PLAIN | {"input_bias"}

# fmt: off
LITERALS = [
    # rows i, f, o, g; peepholes i, f, o
    ("coreml.lstm", Sizes("lstm", 2, 1, 1, 2, parts=_INPUT | {"peephole"}), {
        "weight_ih": [[1111, 1112], [1211, 1212], [1411, 1412], [1311, 1312]], "weight_hh": [[2111], [2211], [2411], [2311]],
        "bias": [3110, 3210, 3410, 3310], "peephole": [5110, 5210, 5410],
        "weight_ih_back": [[11111, 11112], [11211, 11212], [11411, 11412], [11311, 11312]],
        "weight_hh_back": [[12111], [12211], [12411], [12311]], "bias_back": [13110, 13210, 13410, 13310],
        "peephole_back": [15110, 15210, 15410]}),
    # rows r, o (the candidate), z
    ("coreml.gru", Sizes("gru", 1, 2, parts=_INPUT), {
        "weight_ih": [[1111], [1121], [1311], [1321], [1211], [1221]],
        "weight_hh": [[2111, 2112], [2121, 2122], [2311, 2312], [2321, 2322], [2211, 2212], [2221, 2222]],
        "bias": [3110, 3120, 3310, 3320, 3210, 3220]}),
    ("coreml.rnn", Sizes("rnn", 3, 2, parts=_INPUT), {
        "weight_ih": [[1111, 1112, 1113], [1121, 1122, 1123]], "weight_hh": [[2111, 2112], [2121, 2122]], "bias": [3110, 3120]}),
    ("coreml_nn.lstm", Sizes("lstm", 2, 1, parts=_INPUT | {"peephole"}), {
        "inputGateWeightMatrix": [[1111, 1112]], "forgetGateWeightMatrix": [[1211, 1212]], "blockInputWeightMatrix": [[1311, 1312]],
        "outputGateWeightMatrix": [[1411, 1412]], "inputGateRecursionMatrix": [[2111]], "forgetGateRecursionMatrix": [[2211]],
        "blockInputRecursionMatrix": [[2311]], "outputGateRecursionMatrix": [[2411]], "inputGateBiasVector": [3110],
        "forgetGateBiasVector": [3210], "blockInputBiasVector": [3310], "outputGateBiasVector": [3410], "inputGatePeepholeVector": [5110],
        "forgetGatePeepholeVector": [5210], "outputGatePeepholeVector": [5410]}),
    ("coreml_nn.gru", Sizes("gru", 1, 2, parts=_INPUT), {
        "updateGateWeightMatrix": [[1211], [1221]], "resetGateWeightMatrix": [[1111], [1121]], "outputGateWeightMatrix": [[1311], [1321]],
        "updateGateRecursionMatrix": [[2211, 2212], [2221, 2222]], "resetGateRecursionMatrix": [[2111, 2112], [2121, 2122]],
        "outputGateRecursionMatrix": [[2311, 2312], [2321, 2322]], "updateGateBiasVector": [3210, 3220],
        "resetGateBiasVector": [3110, 3120], "outputGateBiasVector": [3310, 3320]}),
    ("coreml_nn.rnn", Sizes("rnn", 3, 2, parts=_INPUT), {
        "weightMatrix": [[1111, 1112, 1113], [1121, 1122, 1123]], "recursionMatrix": [[2111, 2112], [2121, 2122]],
        "biasVector": [3110, 3120]}),
]
