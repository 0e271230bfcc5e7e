"""Literal arrays of RTNeural (model_loader.h), CoreAudioML (networks.py) and NeuralAmpModelerCore (lstm.cpp): see tests.literals."""

from rnnconvert.language.layout import Sizes
from tests.helpers.stacks import BOTH, PLAIN
from tests.literals._numbers import GRU, LSTM, RNN

_NAM = PLAIN | {"input_bias", "initial_hidden", "initial_cell"}

# fmt: off
LITERALS = [
    # columns i, f, c, o
    ("rtneural.lstm", Sizes("lstm", 3, 2, parts=PLAIN | {"input_bias"}), {
        "weights/0": LSTM.columns(1, "ifgo", 3), "weights/1": LSTM.columns(2, "ifgo", 2), "weights/2": LSTM.vector(3, "ifgo"),
    }),
    # columns z, r, c; the bias of the input above that of the recurrence
    ("rtneural.gru", Sizes("gru", 1, 2, parts=BOTH), {
        "weights/0": GRU.columns(1, "zrn", 1), "weights/1": GRU.columns(2, "zrn", 2),
        "weights/2": [GRU.vector(3, "zrn"), GRU.vector(4, "zrn")],
    }),
    # torch's own names and gates
    ("guitarml.lstm", Sizes("lstm", 1, 2), {
        "weight_ih_l0": LSTM.rows(1, "ifgo", 1), "weight_hh_l0": LSTM.rows(2, "ifgo", 2), "bias_ih_l0": LSTM.vector(3, "ifgo"),
        "bias_hh_l0": LSTM.vector(4, "ifgo"),
    }),
    ("guitarml.gru", Sizes("gru", 2, 1, 2), {
        "weight_ih_l0": GRU.rows(1, "rzn", 2, 1), "weight_hh_l0": [[2111], [2211], [2311]], "bias_ih_l0": [3110, 3210, 3310],
        "bias_hh_l0": [4110, 4210, 4310], "weight_ih_l1": GRU.rows(21, "rzn", 1, 1), "weight_hh_l1": GRU.rows(22, "rzn", 1, 1),
        "bias_ih_l1": [23110, 23210, 23310], "bias_hh_l1": [24110, 24210, 24310],
    }),
    ("guitarml.rnn", Sizes("rnn", 2, 2), {
        "weight_ih_l0": RNN.rows(1, "n", 2), "weight_hh_l0": RNN.rows(2, "n", 2), "bias_ih_l0": [3110, 3120], "bias_hh_l0": [4110, 4120],
    }),
    # rows of W and R side by side, i f g o; the bias; the hidden, then the cell state; then the next layer
    ("nam.lstm", Sizes("lstm", 3, 2, 2, parts=_NAM), {
        "weights": [
            1111, 1112, 1113, 2111, 2112, 1121, 1122, 1123, 2121, 2122, 1211, 1212, 1213, 2211, 2212, 1221, 1222, 1223, 2221, 2222,
            1311, 1312, 1313, 2311, 2312, 1321, 1322, 1323, 2321, 2322, 1411, 1412, 1413, 2411, 2412, 1421, 1422, 1423, 2421, 2422,
            3110, 3120, 3210, 3220, 3310, 3320, 3410, 3420, 7010, 7020, 8010, 8020, 21111, 21112, 22111, 22112, 21121, 21122, 22121,
            22122, 21211, 21212, 22211, 22212, 21221, 21222, 22221, 22222, 21311, 21312, 22311, 22312, 21321, 21322, 22321, 22322,
            21411, 21412, 22411, 22412, 21421, 21422, 22421, 22422, 23110, 23120, 23210, 23220, 23310, 23320, 23410, 23420, 27010,
            27020, 28010, 28020,
        ]}),
]
