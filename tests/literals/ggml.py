"""Literal arrays of ggml's Silero VAD (models/convert-silero-vad-to-ggml.py, the state_dict of a torch LSTMCell): see tests.literals."""

from rnnconvert.language.layout import Sizes
from tests.helpers.stacks import PLAIN

# fmt: off
LITERALS = [
    ("ggml.lstm", Sizes("lstm", 2, 1, parts=PLAIN | {"input_bias", "recurrent_bias"}), {
        "weight_ih": [[1111, 1112], [1211, 1212], [1311, 1312], [1411, 1412]], "weight_hh": [[2111], [2211], [2311], [2411]],
        "bias_ih": [3110, 3210, 3310, 3410], "bias_hh": [4110, 4210, 4310, 4410]}),
]
