"""Literal arrays of Burn (burn-nn/src/modules/rnn; a Linear's weight is (in, out)): see tests.literals."""

from rnnconvert.language.layout import Sizes
from tests.helpers.stacks import PLAIN

# fmt: off
_GRU = {
    "update_gate.input_transform.weight": [[1211, 1221]], "update_gate.input_transform.bias": [3210, 3220],
    "update_gate.hidden_transform.weight": [[2211, 2221], [2212, 2222]], "update_gate.hidden_transform.bias": [4210, 4220],
    "reset_gate.input_transform.weight": [[1111, 1121]], "reset_gate.input_transform.bias": [3110, 3120],
    "reset_gate.hidden_transform.weight": [[2111, 2121], [2112, 2122]], "reset_gate.hidden_transform.bias": [4110, 4120],
    "new_gate.input_transform.weight": [[1311, 1321]], "new_gate.input_transform.bias": [3310, 3320],
    "new_gate.hidden_transform.weight": [[2311, 2321], [2312, 2322]], "new_gate.hidden_transform.bias": [4310, 4320],
}
LITERALS = [
    ("burn.lstm", Sizes("lstm", 2, 1, 1, 2, parts=PLAIN), {
        f"{way}.{gate}_gate.{transform}_transform.weight":
            [[add + 1101 + 100 * number + 10], [add + 1102 + 100 * number + 10]] if transform == "input"
            else [[add + 2111 + 100 * number]]
        for way, add in (("forward", 0), ("reverse", 10000))
        for number, gate in enumerate(("input", "forget", "cell", "output")) for transform in ("input", "hidden")}),
    ("burn.gru", Sizes("gru", 1, 2), _GRU),
    ("burn.gru_reset_before", Sizes("gru", 1, 2), _GRU),
    ("burn.rnn", Sizes("rnn", 3, 2, parts=PLAIN), {
        "gate.input_transform.weight": [[1111, 1121], [1112, 1122], [1113, 1123]],
        "gate.hidden_transform.weight": [[2111, 2121], [2112, 2122]]}),
]
