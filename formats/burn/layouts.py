"""Burn: the linear transforms of each gate, by their paths.

Source: tracel-ai/burn, crates/burn-nn/src/modules/rnn: gate_controller.rs, lstm, gru.rs and basic.rs; the weight of a Linear is
(in, out). Gru::gate_product multiplies the product and its bias by the reset gate where reset_after is true.
"""

from rnnconvert.language.layout import Holds, Layout, System, Tensor

SYSTEM = System(
    "burn",
    "Burn",
    "records of Burn 0.14 to 0.22 (named msgpack and JSON), Burnpack files, and .safetensors of burn-store",
    "source: the modules of burn-nn; the weights and outputs that Burn's own tests state for BiLstm, BiGru, Lstm and Gru come out. Burn "
    "itself was not run",
    (
        "a record holds arrays and no settings: what a module was made with (reset_after, reverse, clip, input_forget, functions) is asked",
        "a GRU's record of Burn 0.16 and before is refused: its Gru read each step's state from the initial one",
        "a gate's weight is (in, out); .safetensors in PyTorch's layout, which burn-store can write, are PyTorch's",
        "records of bincode (.bin) have neither names nor shapes of their own and are not read: save the model with NamedMpkFileRecorder",
        "files are written as .safetensors, which SafetensorsStore of burn-store loads",
    ),
    separator=".",
    asks={"reset_after": "true, as in Burn, by default", "cell_clip": "", "input_forget": ""},
)

_TRANSFORMS = tuple(
    Tensor(f"{{direction}}{gate}.{transform}_transform.{array}", part, axes)
    for gate in ("{gate}_gate",)
    for transform, matrix, bias in (("input", "input", "input_bias"), ("hidden", "recurrent", "recurrent_bias"))
    for array, part, axes in (("weight", matrix, "in hidden"), ("bias", bias, "hidden"))
)
_PLAIN = tuple(Tensor(transform.name.replace("{gate}_gate", "gate"), transform.parts, transform.axes) for transform in _TRANSFORMS)
_WAYS = ("forward.", "reverse.")
_SOURCE = "burn-nn/src/modules/rnn/"


def _holds(coupled: tuple[str, ...] = ()) -> Holds:
    return Holds(
        ("both", "none"), ("tanh", "relu", "sigmoid"), ("sigmoid", "relu", "tanh"), "any", coupled=coupled, layers=False, reverse=True
    )


LSTM = Layout(
    "burn.lstm",
    "lstm",
    "i f g o",
    _TRANSFORMS,
    _SOURCE + "lstm",
    "Lstm, BiLstm",
    letters="input forget cell output",
    spelling=_WAYS,
    alone="",
    holds=_holds(("f",)),
)
GRU = Layout(
    "burn.gru",
    "gru",
    "z r n",
    _TRANSFORMS,
    _SOURCE + "gru.rs",
    "Gru, BiGru",
    reset_after=True,
    letters="update reset new",
    spelling=_WAYS,
    alone="",
    holds=_holds(),
)
GRU_RESET_BEFORE = Layout(
    "burn.gru_reset_before",
    "gru",
    "z r n",
    _TRANSFORMS,
    _SOURCE + "gru.rs, reset_after: false",
    "Gru with reset_after false",
    reset_after=False,
    letters="update reset new",
    spelling=_WAYS,
    alone="",
    holds=_holds(),
)
RNN = Layout("burn.rnn", "rnn", "n", _PLAIN, _SOURCE + "basic.rs", "Rnn, BiRnn", spelling=_WAYS, alone="", holds=_holds())
