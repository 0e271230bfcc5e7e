"""Literal arrays of the cells that tutorials print (formats/tutorials.py has their sources): see tests.literals."""

from rnnconvert.language.layout import Sizes
from tests.stacks import PLAIN

_ONE = PLAIN | {"input_bias"}

# fmt: off
LITERALS = [
    ("tutorials.theano_lstm", Sizes("lstm", 2, 1, parts=_ONE), {  # i, f, o, g
        "W": [[1111, 1211, 1411, 1311], [1112, 1212, 1412, 1312]], "U": [[2111, 2211, 2411, 2311]], "b": [3110, 3210, 3410, 3310]}),
    ("tutorials.nematus_gru", Sizes("gru", 1, 2, parts=_ONE), {  # r, z; n by itself
        "W": [[1111, 1121, 1211, 1221]], "U": [[2111, 2121, 2211, 2221], [2112, 2122, 2212, 2222]], "b": [3110, 3120, 3210, 3220],
        "Wx": [[1311, 1321]], "Ux": [[2311, 2321], [2312, 2322]], "bx": [3310, 3320]}),
    ("tutorials.karpathy_rnn", Sizes("rnn", 2, 2, parts=_ONE), {
        "Wxh": [[1111, 1112], [1121, 1122]], "Whh": [[2111, 2112], [2121, 2122]], "bh": [[3110], [3120]]}),
    ("tutorials.britz_rnn", Sizes("rnn", 2, 2, parts=PLAIN), {"U": [[1111, 1112], [1121, 1122]], "W": [[2111, 2112], [2121, 2122]]}),
    ("tutorials.state_first", Sizes("lstm", 2, 1, parts=_ONE), {  # c is the candidate
        "Wi": [[2111, 1111, 1112]], "Wf": [[2211, 1211, 1212]], "Wc": [[2311, 1311, 1312]], "Wo": [[2411, 1411, 1412]],
        "bi": [[3110]], "bf": [[3210]], "bc": [[3310]], "bo": [[3410]]}),
    ("tutorials.input_first", Sizes("lstm", 2, 1, parts=_ONE), {
        "Wi": [[1111, 1112, 2111]], "Wf": [[1211, 1212, 2211]], "Wc": [[1311, 1312, 2311]], "Wo": [[1411, 1412, 2411]],
        "bi": [[3110]], "bf": [[3210]], "bc": [[3310]], "bo": [[3410]]}),
    ("tutorials.d2l_lstm", Sizes("lstm", 1, 2, parts=_ONE), {
        "W_xi": [[1111, 1121]], "W_xf": [[1211, 1221]], "W_xc": [[1311, 1321]], "W_xo": [[1411, 1421]],
        "W_hi": [[2111, 2121], [2112, 2122]], "W_hf": [[2211, 2221], [2212, 2222]],
        "W_hc": [[2311, 2321], [2312, 2322]], "W_ho": [[2411, 2421], [2412, 2422]],
        "b_i": [3110, 3120], "b_f": [3210, 3220], "b_c": [3310, 3320], "b_o": [3410, 3420]}),
    ("tutorials.d2l_gru", Sizes("gru", 1, 2, parts=_ONE), {  # h is the candidate
        "W_xr": [[1111, 1121]], "W_xz": [[1211, 1221]], "W_xh": [[1311, 1321]],
        "W_hr": [[2111, 2121], [2112, 2122]], "W_hz": [[2211, 2221], [2212, 2222]], "W_hh": [[2311, 2321], [2312, 2322]],
        "b_r": [3110, 3120], "b_z": [3210, 3220], "b_h": [3310, 3320]}),
    ("tutorials.d2l_rnn", Sizes("rnn", 1, 2, parts=_ONE), {
        "W_xh": [[1111, 1121]], "W_hh": [[2111, 2121], [2112, 2122]], "b_h": [3110, 3120]}),
]
