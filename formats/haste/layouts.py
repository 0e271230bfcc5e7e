"""Haste (LMNT): the LSTM and GRU of haste_pytorch, by the names of their parameters.

Source: lmnt-com/haste 0.5.0-rc0, frameworks/pytorch/lstm.py, LSTM.__init__ and LSTMScript, and gru.py, GRU.__init__ and GRUScript.
"""

from rnnconvert.language.layout import Holds, Layout, System, Tensor

SYSTEM = System(
    "haste",
    "Haste",
    "0.1 to 0.5, 2020",
    "golden: state dictionaries of haste_pytorch 0.5.0-rc0, with outputs of its own modules on the CPU",
    (
        "read from state dictionaries (.pt) and archives of arrays where you state the format: arrays of others have these names, too",
        "a zoneout other than 0 mixes the states of two steps when the model runs, too; no file states it, and no cell elsewhere does it",
        "IndRNN and the layer-norm LSTM and GRU are not read",
        "files are only read: haste's own from_native_weights takes PyTorch's arrays",
    ),
    separator=".",
    on_request=True,
)

_DTYPES = ("float32", "float64")
_ZONEOUT = {"recurrent": "no file states haste's `zoneout`: with one other than 0 the layer computes something else"}
_LSTM = (
    Tensor("kernel", "input", "in (gate hidden)"),
    Tensor("recurrent_kernel", "recurrent", "in (gate hidden)"),
    Tensor("bias", "input_bias", "(gate hidden)"),
)
_GRU = (*_LSTM, Tensor("recurrent_bias", "recurrent_bias", "(gate hidden)"))

LSTM = Layout(
    "haste.lstm", "lstm", "i g f o", _LSTM, "frameworks/pytorch/lstm.py, LSTM", "haste_pytorch.LSTM",
    holds=Holds(("input",), layers=False, directions=1, dtypes=_DTYPES), cautions=_ZONEOUT, writable=False,
)  # fmt: skip
GRU = Layout(
    "haste.gru", "gru", "z r n", _GRU, "frameworks/pytorch/gru.py, GRU", "haste_pytorch.GRU", reset_after=True,
    holds=Holds(("both",), layers=False, directions=1, dtypes=_DTYPES), cautions=_ZONEOUT, writable=False,
)  # fmt: skip
