"""Real checkpoints that others trained, and what their own framework made of them.

The files lie beside the repository and are no part of it: a stranger's clone has none, and these
tests say so. Each probe names what is fed to a layer and what came out of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from google.protobuf import text_format
from onnx import numpy_helper

from rnnconvert.core.arrays import Array
from rnnconvert.files.catalogue import OPTIONS
from tests import ROOT

FOLDER = ROOT.parent / "shared" / "corpus"


def absent() -> str:
    """Why the corpus cannot be used, or "" if it can."""
    return "" if FOLDER.is_dir() else f"no folder {FOLDER.parent.name}/{FOLDER.name} beside the repository"


@dataclass(frozen=True)
class Probe:
    """One layer (or layers that read one another) of a real file.

    path     the file, under the corpus
    layers   the layers' names in it
    x        what goes in: "file.npz:key" or a file of its own, beside the path
    y        what came out
    axes     how x and y lie: "btf" (batch, time, features), "tbf", "tdbf" for y with a direction axis, "bf" for y at
             the last step only
    states   initial states, if any, spelled as x
    settings what the file does not say
    take     the part of y that is the layer's output
    refused  the targets that must refuse it
    """

    path: str
    layers: tuple[str, ...]
    x: str
    y: str
    axes: tuple[str, str] = ("btf", "btf")
    states: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()
    take: tuple[slice, ...] = ()
    refused: tuple[str, ...] = ()

    @property
    def reading(self) -> tuple[str, ...]:
        """The settings that decide a fact of the file, without those that the caller takes over."""
        return tuple(setting for setting in self.settings if OPTIONS[setting.partition("=")[0].rpartition(":")[2]].side != "write")

    @property
    def file(self) -> Path:
        """The checkpoint."""
        return FOLDER / self.path

    def __str__(self) -> str:
        return f"{self.path}:{'+'.join(self.layers)}"

    def input(self) -> Array:
        """What goes in, (time, batch, in)."""
        x = self._array(self.x)
        return x.swapaxes(0, 1) if self.axes[0] == "btf" else x

    def expected(self) -> Array:
        """What came out, (time, batch, out), or (batch, out) for the last step only."""
        y = self._array(self.y)
        y = y[self.take] if self.take else y
        if self.axes[1] == "tdbf":
            return y.transpose(0, 2, 1, 3).reshape(y.shape[0], y.shape[2], -1)
        return y.swapaxes(0, 1) if self.axes[1] == "btf" else y

    def initial(self) -> list[Array] | None:
        """Initial states, each (directions, batch, .)."""
        return [self._array(state) for state in self.states] or None

    def _array(self, where: str) -> Array:
        name, _, key = where.partition(":")
        path = self.file.parent / name
        if path.suffix == ".npz":
            with np.load(path) as archive:
                return np.asarray(archive[key])
        if path.suffix == ".pb":
            return np.asarray(numpy_helper.to_array(onnx.TensorProto.FromString(path.read_bytes())))
        if path.suffix == ".onnxtxt":
            model = text_format.Parse(path.read_text(), onnx.ModelProto())
            tensors = [tensor for tensor in model.graph.initializer if tensor.name == key]
            return np.asarray(numpy_helper.to_array(tensors[0]))
        return np.asarray(np.load(path))


def _npz(path: str, layers: dict[str, str], reference: str, axes: tuple[str, str] = ("btf", "btf"), **more: Any) -> list[Probe]:
    return [Probe(path, (name,), f"{reference}:{key}__x", f"{reference}:{key}__y", axes, **more) for name, key in layers.items()]


_NOT_SIGMOID = ("pytorch", "cudnn")
_HARD: dict[str, Any] = {"settings": (), "refused": _NOT_SIGMOID}
_DL4J = "dl4j-keras-imports/"

PYTORCH = [
    *_npz("allennlp-fixtures/simple_tagger_best.th", {"encoder._module": "encoder"}, "simple_tagger_best.ref.npz"),
    *_npz("cad-predictor/lstm.ckpt", {"model.lstm": "lstm"}, "lstm.ref.npz"),
    *_npz("ergo-tcr/lstm_model.pt", {"tcr_lstm": "tcr_lstm", "pep_lstm": "pep_lstm"}, "lstm_model.ref.npz"),
    *_npz("noaa-ngen-lstm/sugar_creek_trained.pt", {"lstm": "lstm"}, "sugar_creek_trained.ref.npz"),
    Probe(
        "silero-vad-v6/silero_vad_16k.safetensors", ("lstm_cell",), "silero_vad_16k.safetensors.ref.npz:x_time_batch_in",
        "silero_vad_16k.safetensors.ref.npz:y", ("tbf", "tbf"),
    ),
]  # fmt: skip

KERAS = [
    *_npz("chars2vec-50-100/eng_50_weights.h5", {"lstm_1": "lstm_1", "lstm_2": "lstm_2"}, "eng_50_weights.ref.npz", **_HARD),
    *_npz("chars2vec-50-100/eng_100_weights.h5", {"lstm_3": "lstm_3", "lstm_4": "lstm_4"}, "eng_100_weights.ref.npz", **_HARD),
    *_npz("crema-beats/model.h5", {"bidirectional_1": "bi_gru_1"}, "model.ref.npz", **_HARD),
    *_npz("dtln-base/model.h5", {f"lstm{n}": f"lstm{n}" for n in ("", "_1", "_2", "_3")}, "model.ref.npz"),
    *_npz("textgenrnn-default/textgenrnn_weights.hdf5", {"rnn_1": "rnn_1", "rnn_2": "rnn_2"}, "textgenrnn_weights.ref.npz"),
    *_npz("lstm-qqq-keras3/gru_model.keras", {"gru": "gru"}, "gru_model.keras.ref.npz", ("btf", "bf")),
    *_npz("lstm-qqq-keras3/lstm_model.keras", {"lstm": "lstm"}, "lstm_model.keras.ref.npz", ("btf", "bf")),
    *(
        Probe(_DL4J + f"{name}.h5", (layer,), f"{name}.ref.npz:x", f"{name}.ref.npz:{layer}__y", ("btf", axes),
              refused=_NOT_SIGMOID)
        for name, layer, axes in (
            ("bidirectional_lstm_tensorflow_1", "bidirectional_1", "btf"),
            ("lstm_functional_tf_keras_2", "lstm", "bf"),
            ("simple_lstm_tf_keras_1_model", "lstm_1", "bf"),
            ("simple_lstm_tf_keras_2_model", "lstm_1", "bf"),
            ("simple_lstm_th_keras_1_model", "lstm_1", "bf"),
        )
    ),
]  # fmt: skip


def _burn(name: str, layer: str, y: str, axes: str = "tbf", states: tuple[str, ...] = ()) -> Probe:
    reference = f"{name}.ref.npz"
    reverse = "reverse" in name
    return Probe(
        f"burn-onnx-tests/{name}.onnx", (layer,), f"{reference}:in__input", f"{reference}:{y}", ("tbf", axes),
        tuple(f"{reference}:{state}" for state in states), refused=("pytorch", "cudnn") if reverse else (),
    )  # fmt: skip


def _opencv(name: str, layers: tuple[str, ...], learned: bool = False, take: tuple[slice, ...] = ()) -> Probe:
    refused = ("pytorch", "keras", "cudnn") if learned else ()
    return Probe(
        f"opencv-onnx-basic/models/{name}.onnx", layers, f"../data/input_{name}.npy", f"../data/output_{name}.npy",
        ("tbf", "tbf"), take=take, refused=refused,
    )  # fmt: skip


_LSTM_Y, _RNN_Y = "/lstm/LSTM_output_0", "/rnn/RNN"
_TRACT = "model.ref.npz:node__"
_DTLN = "model_1.ref.npz:node__"

ONNX = [
    *(_burn(f"gru{kind}", "Y", "out__Y", "tdbf") for kind in ("", "_bidirectional", "_reverse")),
    _burn("gru_with_initial_state", "Y", "out__Y", "tdbf", ("in__initial_h",)),
    *(_burn(f"lstm{kind}", _LSTM_Y, "out__output") for kind in ("", "_bidirectional", "_reverse")),
    _burn("lstm_with_initial_state", _LSTM_Y, "out__output", "tbf", ("in__h_0", "in__c_0")),
    *(_burn(f"rnn{kind}", _RNN_Y, "out__output") for kind in ("", "_bidirectional", "_reverse")),
    Probe("tract-bidi-lstm/model.onnx", ("LSTM_9",), _TRACT + "32", _TRACT + "77", ("tbf", "tdbf")),
    Probe("tract-bidi-lstm/model.onnx", ("LSTM_20",), _TRACT + "82", _TRACT + "138", ("tbf", "tdbf")),
    Probe("dtln-base/model_1.onnx", ("lstm_4",), _DTLN + "lstm_4_X", _DTLN + "lstm_4_Y", ("tbf", "tdbf"),
          (_DTLN + "lstm_4_initial_h", _DTLN + "lstm_4_initial_c")),
    _opencv("gru", ("GRU_10", "GRU_16", "GRU_22"), learned=True),
    _opencv("gru_bi", ("GRU_10", "GRU_18", "GRU_26"), learned=True),
    _opencv("lstm", ("44",)),
    _opencv("lstm_bidirectional", ("71",)),
    _opencv("lstm_cell_forward", ("LSTM_16",), learned=True, take=(slice(2),)),
    _opencv("lstm_cell_bidirectional", ("LSTM_16",), learned=True, take=(slice(None), slice(None), slice(6))),
    _opencv("gru_cell_batchsize_5_seqlen_5", ("/lstm/LSTM",), learned=True, take=(slice(5),)),
    _opencv("lstm_cell_batchsize_1_seqlen_50", ("/lstm/LSTM",), learned=True, take=(slice(50),)),
    *(
        Probe(f"ort-cntk-rnn/{folder}/model.onnx", (layer,), "test_data_set_0_input_0.pb", "test_data_set_0_output_0.pb",
              ("tbf", "tbf"), take=(slice(None), slice(None), half),
              refused=("pytorch", "cudnn") if backwards else ())
        for folder, layer, half, backwards in (
            ("test_LSTM.tanh.bidirectional", "Block1237", slice(3), True),
            ("test_LSTM.tanh.bidirectional", "Block1326", slice(3, 6), False),
            ("test_RNN.bidirectional.one_layer.relu", "Block9596", slice(3, 6), True),
            ("test_RNN.bidirectional.one_layer.relu", "Block9563", slice(3), False),
        )
    ),
]  # fmt: skip


def _glow(name: str, layer: str, refused: tuple[str, ...] = (), settings: tuple[str, ...] = ()) -> Probe:
    file = f"{name}.onnxtxt"
    kinds = {"lstm": ("initial_h", "initial_c"), "gru": ("initial_h",), "rnn": ("initial_h",)}[layer]
    states = () if "NoState" in name else tuple(f"{file}:{kind}" for kind in kinds)
    chosen = ("initial_state=call", *settings) if states else settings
    return Probe(f"glow-onnxtxt/{file}", (layer,), f"{file}:X", f"{file}:Y_ref", ("tbf", "tdbf"), states, chosen, refused=refused)


_BEFORE = _BACK = ("pytorch", "cudnn")
GLOW = [
    *(_glow(f"gru{kind}", "gru", _BEFORE) for kind in ("Bidirectional", "Forward", "ForwardNoBias", "ForwardNoState")),
    _glow("gruForwardLinearBeforeReset", "gru"),
    _glow("gruReverse", "gru", _BACK),
    *(_glow(f"lstm{kind}", "lstm") for kind in ("Bidirectional", "Forward", "ForwardNoBias", "ForwardNoState")),
    # Its author reads ONNX's input_forget as i = 1 - f; onnxruntime as f = 1 - i.
    _glow("lstmForwardInputForget", "lstm", settings=("input_forget=i",)),
    _glow("lstmForwardWithPeephole", "lstm", ("pytorch", "keras", "cudnn")),
    _glow("lstmReverse", "lstm", _BACK),
    *(_glow(f"rnn{kind}", "rnn") for kind in ("Bidirectional", "Forward", "ForwardNoBias", "ForwardNoState")),
    _glow("rnnReverse", "rnn", _BACK),
]

MXNET = [Probe("mxnet-ner-bilstm/model.params", ("lstm0",), "model.ref.npz:x", "model.ref.npz:y", ("tbf", "tbf"))]

# Written by Flux 0.12. No Julia ran it: the outputs are a transcription's of its equations. The states in it are zero.
JULIA = [
    Probe(f"flux-polynomials/{name}.bson", (f"model/layers/{place + 1}/cell",), f"{name}.bson.ref.npz:l{place}__x",
          f"{name}.bson.ref.npz:l{place}__y", ("tbf", "tbf"))
    for name in ("lstm_model", "rnn_model") for place in (0, 2)
]  # fmt: skip

_CHAR_RNN = "../model-85340.ref.npz"
_CUT = ("pytorch", "keras", "cudnn")


def _kws(name: str, layer: str, x: str, y: str, refused: tuple[str, ...] = ("pytorch", "cudnn")) -> Probe:
    reference = f"{name}.ref.npz"
    return Probe(f"kws-arm-small/{name}.pb", (layer,), f"{reference}:out__{x}", f"{reference}:out__{y}", ("tbf", "bf"), refused=refused)


TENSORFLOW_1 = [
    # Built with forget_bias=0.0, which only its meta.json says.
    Probe("tf-char-rnn-shakespeare/best_model/model-85340.index", ("rnn/multi_rnn_cell",), f"{_CHAR_RNN}:x",
          f"{_CHAR_RNN}:y", settings=("forget_bias=0.0",)),
    _kws("Basic_LSTM_S", "lstm/rnn", "LSTM-Layer|lstm|transpose:0", "LSTM-Layer|lstm|rnn|while|Exit_3:0", ()),
    _kws("LSTM_S", "lstm/rnn", "LSTM-Layer|lstm|transpose:0", "LSTM-Layer|lstm|rnn|while|Exit_3:0", _CUT),
    _kws("GRU_S", "rnn/multi_rnn_cell", "transpose:0", "rnn|while|Exit_2:0"),
    _kws("CRNN_S", "rnn/multi_rnn_cell", "transpose:0", "rnn|while|Exit_3:0"),
    Probe("tf2onnx-fixtures/gru_frozen.pb", ("rnn",), "gru_frozen.ref.npz:in__X:0",
          "gru_frozen.ref.npz:out__model|rnn|gru_cell|add_27:0", ("btf", "bf"), refused=("pytorch", "cudnn")),
]  # fmt: skip

_TEXTUNIFY = "checkpoint_10000.t7.ref.npz"
TORCH_7 = [
    Probe("torch7-textunify/checkpoint_10000.t7", ("model/rnns/1",), f"{_TEXTUNIFY}:x", f"{_TEXTUNIFY}:layer0_y", ("tbf", "tbf")),
    Probe("torch7-textunify/checkpoint_10000.t7", ("model/rnns/1", "model/rnns/2"), f"{_TEXTUNIFY}:x", f"{_TEXTUNIFY}:layer1_y",
          ("tbf", "tbf")),
]  # fmt: skip

AUDIO = [
    *(
        Probe(f"klon-centaur/{name}.json", ("gru",), f"{name}.ref.npz:gru{place}_x", f"{name}.ref.npz:gru{place}_y")
        for name, place in (
            ("centaur", 1), ("centaur_large", 1), ("centaur_small", 1), ("centaur_0", 0), ("centaur_50", 0), ("centaur_100", 0),
        )
    ),
    *_npz("rtneural-models/gru_torch.json", {"gru": "gru", "gru2": "gru2"}, "gru_torch.ref.npz"),
    *_npz("rtneural-models/lstm_torch.json", {"lstm": "lstm", "lstm2": "lstm2"}, "lstm_torch.ref.npz"),
    # Its first state is learned.
    Probe("nam-lstm/lstm.nam", ("lstm",), "lstm.nam.ref.npz:x", "lstm.nam.ref.npz:layer0_y", ("tbf", "tbf"),
          refused=("pytorch", "keras", "cudnn")),
]  # fmt: skip

PROBES = [*PYTORCH, *KERAS, *ONNX, *GLOW, *MXNET, *TENSORFLOW_1, *JULIA, *TORCH_7, *AUDIO]
