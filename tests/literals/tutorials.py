"""Literal arrays of the cells that tutorials print (formats/tutorials/layouts.py has their sources): see tests.literals."""

from rnnconvert.language.layout import Sizes
from tests.helpers.stacks import PLAIN
from tests.literals._numbers import GRU, LSTM, RNN

_BIAS = PLAIN | {"input_bias"}

# fmt: off
LITERALS = [
    ("tutorials.theano_lstm", Sizes("lstm", 2, 1, parts=_BIAS), {  # i, f, o, g
        "W": [[1111, 1211, 1411, 1311], [1112, 1212, 1412, 1312]], "U": [[2111, 2211, 2411, 2311]], "b": [3110, 3210, 3410, 3310]}),
    ("tutorials.nematus_gru", Sizes("gru", 1, 2, parts=_BIAS), {  # r, z; n by itself
        "W": [[1111, 1121, 1211, 1221]], "U": [[2111, 2121, 2211, 2221], [2112, 2122, 2212, 2222]], "b": [3110, 3120, 3210, 3220],
        "Wx": [[1311, 1321]], "Ux": [[2311, 2321], [2312, 2322]], "bx": [3310, 3320]}),
    ("tutorials.karpathy_rnn", Sizes("rnn", 2, 2, parts=_BIAS), {
        "Wxh": [[1111, 1112], [1121, 1122]], "Whh": [[2111, 2112], [2121, 2122]], "bh": [[3110], [3120]]}),
    ("tutorials.course_rnn", Sizes("rnn", 2, 2, parts=_BIAS), {
        "Wax": [[1111, 1112], [1121, 1122]], "Waa": [[2111, 2112], [2121, 2122]], "ba": [[3110], [3120]]}),
    ("tutorials.course_rnn_vector", Sizes("rnn", 2, 2, parts=_BIAS), {
        "Wax": [[1111, 1112], [1121, 1122]], "Waa": [[2111, 2112], [2121, 2122]], "ba": [3110, 3120]}),
    ("tutorials.course_rnn_b", Sizes("rnn", 2, 2, parts=_BIAS), {
        "Wax": [[1111, 1112], [1121, 1122]], "Waa": [[2111, 2112], [2121, 2122]], "b": [[3110], [3120]]}),
    ("tutorials.britz_rnn", Sizes("rnn", 2, 2, parts=PLAIN), {"U": RNN.rows(1, "n", 2), "W": RNN.rows(2, "n", 2)}),
    ("tutorials.state_first", Sizes("lstm", 2, 1, parts=_BIAS), {  # c is the candidate
        "Wi": [[2111, 1111, 1112]], "Wf": [[2211, 1211, 1212]], "Wc": [[2311, 1311, 1312]], "Wo": [[2411, 1411, 1412]],
        "bi": [[3110]], "bf": [[3210]], "bc": [[3310]], "bo": [[3410]]}),
    ("tutorials.input_first", Sizes("lstm", 2, 1, parts=_BIAS), {
        "Wi": [[1111, 1112, 2111]], "Wf": [[1211, 1212, 2211]], "Wc": [[1311, 1312, 2311]], "Wo": [[1411, 1412, 2411]],
        "bi": [[3110]], "bf": [[3210]], "bc": [[3310]], "bo": [[3410]]}),
    ("tutorials.state_first_rows", Sizes("lstm", 2, 1, parts=_BIAS), {
        "Wi": [[2111], [1111], [1112]], "Wf": [[2211], [1211], [1212]], "Wc": [[2311], [1311], [1312]], "Wo": [[2411], [1411], [1412]],
        "bi": [3110], "bf": [3210], "bc": [3310], "bo": [3410],
    }),
    ("tutorials.input_first_rows", Sizes("lstm", 2, 1, parts=_BIAS), {
        "Wi": [[1111], [1112], [2111]], "Wf": [[1211], [1212], [2211]], "Wc": [[1311], [1312], [2311]], "Wo": [[1411], [1412], [2411]],
        "bi": [3110], "bf": [3210], "bc": [3310], "bo": [3410],
    }),
    ("tutorials.state_first_rows_g", Sizes("lstm", 2, 1, parts=_BIAS), {
        "Wi": [[2111], [1111], [1112]], "Wf": [[2211], [1211], [1212]], "Wg": [[2311], [1311], [1312]], "Wo": [[2411], [1411], [1412]],
        "bi": [3110], "bf": [3210], "bg": [3310], "bo": [3410],
    }),
    ("tutorials.input_first_rows_g", Sizes("lstm", 2, 1, parts=_BIAS), {
        "Wi": [[1111], [1112], [2111]], "Wf": [[1211], [1212], [2211]], "Wg": [[1311], [1312], [2311]], "Wo": [[1411], [1412], [2411]],
        "bi": [3110], "bf": [3210], "bg": [3310], "bo": [3410],
    }),
    ("tutorials.d2l_lstm", Sizes("lstm", 1, 2, parts=_BIAS), {
        "W_xi": [[1111, 1121]], "W_xf": [[1211, 1221]], "W_xc": [[1311, 1321]], "W_xo": [[1411, 1421]], "W_hi": LSTM.columns(2, "i", 2),
        "W_hf": LSTM.columns(2, "f", 2), "W_hc": LSTM.columns(2, "g", 2), "W_ho": LSTM.columns(2, "o", 2), "b_i": [3110, 3120],
        "b_f": [3210, 3220], "b_c": [3310, 3320], "b_o": [3410, 3420],
    }),
    ("tutorials.d2l_gru", Sizes("gru", 1, 2, parts=_BIAS), {  # h is the candidate
        "W_xr": [[1111, 1121]], "W_xz": [[1211, 1221]], "W_xh": [[1311, 1321]], "W_hr": GRU.columns(2, "r", 2),
        "W_hz": GRU.columns(2, "z", 2), "W_hh": GRU.columns(2, "n", 2), "b_r": [3110, 3120], "b_z": [3210, 3220], "b_h": [3310, 3320],
    }),
    ("tutorials.d2l_rnn", Sizes("rnn", 1, 2, parts=_BIAS), {"W_xh": [[1111, 1121]], "W_hh": RNN.columns(2, "n", 2), "b_h": [3110, 3120]}),
    ("tutorials.textbook_lstm", Sizes("lstm", 2, 1, parts=_BIAS), {  # c is the candidate
        "W_i": [[1111, 1112]], "W_f": [[1211, 1212]], "W_c": [[1311, 1312]], "W_o": [[1411, 1412]], "U_i": [[2111]], "U_f": [[2211]],
        "U_c": [[2311]], "U_o": [[2411]], "b_i": [3110], "b_f": [3210], "b_c": [3310], "b_o": [3410],
    }),
    ("tutorials.textbook_lstm_column", Sizes("lstm", 1, 1, parts=_BIAS), {
        "W_i": [[1111]], "W_f": [[1211]], "W_c": [[1311]], "W_o": [[1411]], "U_i": [[2111]], "U_f": [[2211]], "U_c": [[2311]],
        "U_o": [[2411]], "b_i": [[3110]], "b_f": [[3210]], "b_c": [[3310]], "b_o": [[3410]],
    }),
    ("tutorials.textbook_lstm_rows", Sizes("lstm", 2, 1, parts=_BIAS), {
        "W_i": [[1111], [1112]], "W_f": [[1211], [1212]], "W_c": [[1311], [1312]], "W_o": [[1411], [1412]], "U_i": [[2111]],
        "U_f": [[2211]], "U_c": [[2311]], "U_o": [[2411]], "b_i": [3110], "b_f": [3210], "b_c": [3310], "b_o": [3410],
    }),
    ("tutorials.textbook_lstm_g", Sizes("lstm", 2, 1, parts=_BIAS), {
        "W_i": [[1111, 1112]], "W_f": [[1211, 1212]], "W_g": [[1311, 1312]], "W_o": [[1411, 1412]], "U_i": [[2111]], "U_f": [[2211]],
        "U_g": [[2311]], "U_o": [[2411]], "b_i": [3110], "b_f": [3210], "b_g": [3310], "b_o": [3410],
    }),
    ("tutorials.textbook_lstm_g_column", Sizes("lstm", 1, 1, parts=_BIAS), {
        "W_i": [[1111]], "W_f": [[1211]], "W_g": [[1311]], "W_o": [[1411]], "U_i": [[2111]], "U_f": [[2211]], "U_g": [[2311]],
        "U_o": [[2411]], "b_i": [[3110]], "b_f": [[3210]], "b_g": [[3310]], "b_o": [[3410]],
    }),
    ("tutorials.textbook_lstm_g_rows", Sizes("lstm", 2, 1, parts=_BIAS), {
        "W_i": [[1111], [1112]], "W_f": [[1211], [1212]], "W_g": [[1311], [1312]], "W_o": [[1411], [1412]], "U_i": [[2111]],
        "U_f": [[2211]], "U_g": [[2311]], "U_o": [[2411]], "b_i": [3110], "b_f": [3210], "b_g": [3310], "b_o": [3410],
    }),
    ("tutorials.columns_lstm", Sizes("lstm", 2, 1, parts=_BIAS), {
        "W_xi": [[1111, 1112]], "W_xf": [[1211, 1212]], "W_xc": [[1311, 1312]], "W_xo": [[1411, 1412]], "W_hi": [[2111]], "W_hf": [[2211]],
        "W_hc": [[2311]], "W_ho": [[2411]], "b_i": [3110], "b_f": [3210], "b_c": [3310], "b_o": [3410],
    }),
    ("tutorials.columns_lstm_column", Sizes("lstm", 1, 1, parts=_BIAS), {
        "W_xi": [[1111]], "W_xf": [[1211]], "W_xc": [[1311]], "W_xo": [[1411]], "W_hi": [[2111]], "W_hf": [[2211]], "W_hc": [[2311]],
        "W_ho": [[2411]], "b_i": [[3110]], "b_f": [[3210]], "b_c": [[3310]], "b_o": [[3410]],
    }),
    ("tutorials.columns_rnn", Sizes("rnn", 2, 2, parts=_BIAS), {
        "W_xh": [[1111, 1112], [1121, 1122]], "W_hh": [[2111, 2112], [2121, 2122]], "b_h": [3110, 3120]}),
    ("tutorials.columns_rnn_column", Sizes("rnn", 2, 2, parts=_BIAS), {
        "W_xh": [[1111, 1112], [1121, 1122]], "W_hh": [[2111, 2112], [2121, 2122]], "b_h": [[3110], [3120]]}),
]
