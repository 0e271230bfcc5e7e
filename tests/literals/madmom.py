"""Literal arrays of madmom (madmom/ml/nn/layers.py): weights (in, hidden), update gate with 1 - z: see tests.literals."""

from rnnconvert.language.layout import Sizes
from tests.helpers.stacks import PLAIN

_INPUT = PLAIN | {"input_bias"}

# fmt: off
LITERALS = [
    ("madmom.rnn", Sizes("rnn", 3, 2, parts=_INPUT), {
        "weights": [[1111, 1121], [1112, 1122], [1113, 1123]], "recurrent_weights": [[2111, 2121], [2112, 2122]], "bias": [3110, 3120]}),
    ("madmom.gru", Sizes("gru", 2, 1, 1, 2, parts=_INPUT), {
        f"{way}.{gate}.{name}": array
        for way, add in (("fwd_layer", 0), ("bwd_layer", 10000))
        for gate, number, sign in (("reset_gate", 100, 1), ("update_gate", 200, -1), ("cell", 300, 1))
        for name, array in (("weights", [[sign * (add + 1011 + number)], [sign * (add + 1012 + number)]]),
                            ("recurrent_weights", [[sign * (add + 2011 + number)]]), ("bias", [sign * (add + 3010 + number)]))}),
    ("madmom.lstm", Sizes("lstm", 1, 1, parts=_INPUT | {"peephole"}), {
        "input_gate.weights": [[1111]], "forget_gate.weights": [[1211]], "cell.weights": [[1311]], "output_gate.weights": [[1411]],
        "input_gate.recurrent_weights": [[2111]], "forget_gate.recurrent_weights": [[2211]], "cell.recurrent_weights": [[2311]],
        "output_gate.recurrent_weights": [[2411]], "input_gate.bias": [3110], "forget_gate.bias": [3210], "cell.bias": [3310],
        "output_gate.bias": [3410], "input_gate.peephole_weights": [5110], "forget_gate.peephole_weights": [5210],
        "output_gate.peephole_weights": [5410]}),
]
