"""oneDNN: the weights of its RNN primitives, by the names of their arguments.

Source: doc/primitives/rnn.md and include/oneapi/dnnl/dnnl_types.h (v3.2). `ldigo` lies as (layer, direction, input, gate,
output), `ldgoi` with the input last: no size shows which, so the names state it. A primitive of several layers and two
directions joins the directions only at its end, so one primitive here is one layer.
"""

from rnnconvert.language.layout import Holds, Layout, System, Tensor

SYSTEM = System(
    "onednn",
    "oneDNN",
    "2.0 to 3.x",
    "executed: oneDNN 3.2.0 on the CPU (onednn)",
    (
        "the attention of AUGRU is refused: no other system has it",
        "several layers of two directions in one primitive are refused: they are two stacks that meet only at the end",
        "weights are memory of a program: files are archives of arrays by the names of the primitive's arguments",
    ),
    asks={"activation": "", "merge_mode": ""},
    family="libraries",
)

_SOURCE = "doc/primitives/rnn.md"
# How matrices lie, and projections; and what their names end in.
_ORDERS = {"": ("in gate hidden", "in hidden", ""), "_ldgoi": ("gate hidden in", "hidden in", "_ldoi")}


def _tensors(order: str, bias: str = "input_bias", axes: str = "gate") -> tuple[Tensor, ...]:
    matrix = f"layer direction {_ORDERS[order][0]}"
    return (
        Tensor(f"weights_layer{order}", "input", matrix),
        Tensor(f"weights_iter{order}", "recurrent", matrix),
        Tensor("bias", bias, f"layer direction {axes} hidden"),
    )


def _holds(bias: str = "input", activations: tuple[str, ...] = ("tanh",)) -> Holds:
    types = ("float32", "bfloat16")
    return Holds(biases=(bias,), activations=activations, layers=False, merges=("concat", "sum"), dtypes=types)


def _lstm(order: str) -> Layout:
    _, projection, ending = _ORDERS[order]
    return Layout(
        f"onednn.lstm{order}",
        "lstm",
        "i f g o",
        (
            *_tensors(order),
            Tensor("weights_peephole", "peephole[i f o]", "layer direction gate hidden"),
            Tensor(f"weights_projection{ending}", "projection", f"layer direction {projection}"),
        ),
        f"{_SOURCE}, LSTM",
        "dnnl::lstm_forward",
        holds=_holds(),
    )


def _gru(order: str) -> Layout:
    return Layout(f"onednn.gru{order}", "gru", "z r n", _tensors(order), f"{_SOURCE}, GRU", "dnnl::gru_forward", False, holds=_holds())


def _lbr_gru(order: str) -> Layout:
    """Return the linear-before-reset GRU: its fourth bias is the candidate's recurrent one."""
    tensors = _tensors(order, "input_bias recurrent_bias[n]", "(part gate)")
    return Layout(
        f"onednn.lbr_gru{order}",
        "gru",
        "z r n",
        tensors,
        f"{_SOURCE}, Linear-Before-Reset GRU",
        "dnnl::lbr_gru_forward",
        True,
        holds=_holds("both"),
    )


def _rnn(order: str) -> Layout:
    return Layout(
        f"onednn.rnn{order}",
        "rnn",
        "n",
        _tensors(order),
        f"{_SOURCE}, Vanilla RNN",
        "dnnl::vanilla_rnn_forward",
        holds=_holds(activations=("tanh", "relu", "sigmoid")),
    )


LSTM, LSTM_LDGOI = _lstm(""), _lstm("_ldgoi")
GRU, GRU_LDGOI = _gru(""), _gru("_ldgoi")
LBR_GRU, LBR_GRU_LDGOI = _lbr_gru(""), _lbr_gru("_ldgoi")
RNN, RNN_LDGOI = _rnn(""), _rnn("_ldgoi")
