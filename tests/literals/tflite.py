"""Literal arrays of TFLite (kernels/lstm_shared.h, bidirectional_sequence_lstm.cc, bidirectional_sequence_rnn.cc): see tests.literals."""

from rnnconvert.language.layout import Sizes
from tests.helpers.stacks import PLAIN

_INPUT = PLAIN | {"input_bias"}

# fmt: off
LITERALS = [
    # one array for each gate, rows of units
    ("tflite.lstm", Sizes("lstm", 2, 2, parts=_INPUT), {
        "input_to_input_weights": [[1111, 1112], [1121, 1122]], "input_to_forget_weights": [[1211, 1212], [1221, 1222]],
        "input_to_cell_weights": [[1311, 1312], [1321, 1322]], "input_to_output_weights": [[1411, 1412], [1421, 1422]],
        "recurrent_to_input_weights": [[2111, 2112], [2121, 2122]], "recurrent_to_forget_weights": [[2211, 2212], [2221, 2222]],
        "recurrent_to_cell_weights": [[2311, 2312], [2321, 2322]], "recurrent_to_output_weights": [[2411, 2412], [2421, 2422]],
        "input_gate_bias": [3110, 3120], "forget_gate_bias": [3210, 3220], "cell_gate_bias": [3310, 3320],
        "output_gate_bias": [3410, 3420]}),
    # both directions, peepholes, and a hidden state of one by projection_weights
    ("tflite.lstm", Sizes("lstm", 1, 2, 1, 2, 1, _INPUT | {"peephole", "projection"}), {
        "fw_input_to_input_weights": [[1111], [1121]], "fw_input_to_forget_weights": [[1211], [1221]],
        "fw_input_to_cell_weights": [[1311], [1321]], "fw_input_to_output_weights": [[1411], [1421]],
        "fw_recurrent_to_input_weights": [[2111], [2121]], "fw_recurrent_to_forget_weights": [[2211], [2221]],
        "fw_recurrent_to_cell_weights": [[2311], [2321]], "fw_recurrent_to_output_weights": [[2411], [2421]],
        "fw_cell_to_input_weights": [5110, 5120], "fw_cell_to_forget_weights": [5210, 5220],
        "fw_cell_to_output_weights": [5410, 5420],
        "fw_input_gate_bias": [3110, 3120], "fw_forget_gate_bias": [3210, 3220], "fw_cell_gate_bias": [3310, 3320],
        "fw_output_gate_bias": [3410, 3420], "fw_projection_weights": [[6011, 6012]],
        "bw_input_to_input_weights": [[11111], [11121]], "bw_input_to_forget_weights": [[11211], [11221]],
        "bw_input_to_cell_weights": [[11311], [11321]], "bw_input_to_output_weights": [[11411], [11421]],
        "bw_recurrent_to_input_weights": [[12111], [12121]], "bw_recurrent_to_forget_weights": [[12211], [12221]],
        "bw_recurrent_to_cell_weights": [[12311], [12321]], "bw_recurrent_to_output_weights": [[12411], [12421]],
        "bw_cell_to_input_weights": [15110, 15120], "bw_cell_to_forget_weights": [15210, 15220],
        "bw_cell_to_output_weights": [15410, 15420],
        "bw_input_gate_bias": [13110, 13120], "bw_forget_gate_bias": [13210, 13220], "bw_cell_gate_bias": [13310, 13320],
        "bw_output_gate_bias": [13410, 13420], "bw_projection_weights": [[16011, 16012]]}),
    # no array of the input gate: i = 1 - f
    ("tflite.coupled_lstm", Sizes("lstm", 1, 1, parts=_INPUT), {
        "input_to_forget_weights": [[1211]], "input_to_cell_weights": [[1311]], "input_to_output_weights": [[1411]],
        "recurrent_to_forget_weights": [[2211]], "recurrent_to_cell_weights": [[2311]], "recurrent_to_output_weights": [[2411]],
        "forget_gate_bias": [3210], "cell_gate_bias": [3310], "output_gate_bias": [3410]}),
    ("tflite.rnn", Sizes("rnn", 1, 2, 1, 2, parts=_INPUT), {
        "fw_weights": [[1111], [1121]], "fw_recurrent_weights": [[2111, 2112], [2121, 2122]], "fw_bias": [3110, 3120],
        "bw_weights": [[11111], [11121]], "bw_recurrent_weights": [[12111, 12112], [12121, 12122]], "bw_bias": [13110, 13120]}),
]
