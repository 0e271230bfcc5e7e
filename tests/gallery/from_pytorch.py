"""Models that were trained in PyTorch, rebuilt in Keras."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from rnnconvert.core.arrays import Array
from tests.gallery.entry import Arrays, Entry


def call(model: Any, *inputs: Array) -> Any:
    """A Keras model's outputs as arrays: one, or several in a list."""
    outputs = model(list(inputs) if len(inputs) > 1 else inputs[0], training=False)
    return [np.asarray(output) for output in outputs] if isinstance(outputs, (list, tuple)) else np.asarray(outputs)


def layer(model: Any, name: str, x: Array) -> Array:
    """What one layer alone gives."""
    return np.asarray(model.get_layer(name)(x))


def tagger() -> Any:
    """AllenNLP's simple tagger: words, projected, an LSTM over them, and a tag for each."""
    import keras
    from keras import layers

    words = keras.Input((None,), dtype="int32")
    y = layers.Dense(2)(layers.Embedding(15, 100)(words))
    y = layers.LSTM(4, return_sequences=True, name="encoder")(y)
    return keras.Model(words, layers.Dense(4, activation="softmax")(y))


def run_tagger(model: Any, recorded: Arrays) -> Arrays:
    return {"encoder__y": layer(model, "encoder", recorded["encoder__x"]), "tags": call(model, recorded["words"])}


def sound_classifier() -> Any:
    """Two LSTM layers over the features of sound, and a class of the last step."""
    import keras
    from keras import layers

    features = keras.Input((None, 23))
    y = layers.LSTM(64, return_sequences=True, name="lstm_0")(features)
    sequence = layers.LSTM(64, return_sequences=True, name="lstm_1")(y)
    return keras.Model(features, [layers.Dense(7, activation="log_softmax", name="fc")(sequence[:, -1]), sequence])


def run_sound_classifier(model: Any, recorded: Arrays) -> Arrays:
    classes, sequence = call(model, recorded["lstm__x"])
    return {"lstm__y": sequence, "classes": classes}


def binding() -> Any:
    """Two towers over amino acids, of a receptor and of a peptide, and the probability that they bind."""
    import keras
    from keras import layers

    def tower(name: str) -> tuple[Any, Any]:
        acids = keras.Input((None,), dtype="int32", name=name)
        # Steps of token 0 are padding: PyTorch packs them away, Keras masks them.
        y = layers.Embedding(21, 10, mask_zero=True, name=f"{name}_embedding")(acids)
        y = layers.LSTM(30, return_sequences=True, name=f"{name}_lstm_0")(y)
        return acids, layers.LSTM(30, name=f"{name}_lstm_1")(y)

    tcr, tcr_last = tower("tcr")
    peptide, peptide_last = tower("pep")
    y = layers.Dense(30, name="hidden_layer")(layers.Concatenate()([tcr_last, peptide_last]))
    y = layers.LeakyReLU(negative_slope=0.01)(y)
    return keras.Model([tcr, peptide], layers.Dense(1, activation="sigmoid", name="output_layer")(y))


def run_binding(model: Any, recorded: Arrays) -> Arrays:
    outputs = {"binds": call(model, recorded["tcr"], recorded["pep"])}
    for tower in ("tcr", "pep"):
        # Its last layer gives one step; all of them show in the last steps of beginnings of the sequence.
        first = model.get_layer(f"{tower}_lstm_0")(recorded[f"{tower}_lstm__x"])
        steps = [model.get_layer(f"{tower}_lstm_1")(first[:, : n + 1]) for n in range(first.shape[1])]
        outputs[f"{tower}_lstm__y"] = np.stack([np.asarray(step) for step in steps], 1)
    return outputs


def runoff() -> Any:
    """An LSTM over the weather, called with its states, and the water that runs off."""
    import keras
    from keras import layers

    weather, hidden, cell = keras.Input((None, 11)), keras.Input((64,)), keras.Input((64,))
    lstm = layers.LSTM(64, return_sequences=True, return_state=True, name="lstm")
    y, h, c = lstm(weather, initial_state=[hidden, cell])
    return keras.Model([weather, hidden, cell], [layers.Dense(1, name="head")(h), y, h, c])


def run_runoff(model: Any, recorded: Arrays) -> Arrays:
    zeros = np.zeros((2, 64), np.float32)
    _, y, h, c = call(model, recorded["lstm__x"], zeros, zeros)
    flow, _, h_1, c_1 = call(model, recorded["weather"], recorded["h_0"], recorded["c_0"])
    return {"lstm__y": y, "lstm__h": h[None], "lstm__c": c[None], "flow": flow, "h_1": h_1, "c_1": c_1}


def voice() -> Any:
    """Silero's voice detector: a spectrum made by a convolution, four convolutions, one LSTM step, a probability."""
    import keras
    from keras import layers, ops

    sound, hidden, cell = keras.Input((576,)), keras.Input((128,)), keras.Input((128,))
    y = layers.Lambda(lambda x: ops.pad(x, ((0, 0), (0, 64)), "reflect")[..., None])(sound)
    y = layers.Conv1D(258, 256, strides=128, use_bias=False, name="stft_conv")(y)
    y = layers.Lambda(lambda x: ops.sqrt(x[..., :129] ** 2 + x[..., 129:] ** 2))(y)
    for number, (channels, stride) in enumerate(((128, 1), (64, 2), (64, 2), (128, 1)), 1):
        y = layers.ZeroPadding1D(1)(y)
        y = layers.Conv1D(channels, 3, strides=stride, activation="relu", name=f"conv{number}")(y)
    lstm = layers.LSTM(128, return_sequences=True, return_state=True, name="lstm_cell")
    y, h, c = lstm(y, initial_state=[hidden, cell])
    y = layers.Conv1D(1, 1, activation="sigmoid", name="final_conv")(layers.ReLU()(y))
    return keras.Model([sound, hidden, cell], [y[:, 0], h, c])


def run_voice(model: Any, recorded: Arrays) -> Arrays:
    x = recorded["x_time_batch_in"].swapaxes(0, 1)
    y = model.get_layer("lstm_cell")(x)[0]
    speech, h, c = call(model, recorded["sound"], recorded["h_0"], recorded["c_0"])
    return {"y": np.asarray(y).swapaxes(0, 1), "speech": speech, "h_1": h, "c_1": c}


def phonemes() -> Any:
    """g2p's encoder over letters and decoder over phonemes, which starts at the encoder's last state."""
    import keras
    from keras import layers

    letters, before = keras.Input((None,), dtype="int32"), keras.Input((None,), dtype="int32")
    h = layers.GRU(256, name="enc")(layers.Embedding(29, 256, name="enc_emb")(letters))
    decoder = layers.GRU(256, return_sequences=True, name="dec")
    y = decoder(layers.Embedding(74, 256, name="dec_emb")(before), initial_state=h)
    return keras.Model([letters, before], layers.Dense(74, name="fc")(y))


def phonemes_of_npz(path: Path) -> Any:
    """The file's arrays, which are named as torch.nn.GRUCell names its own, in the torch modules that they are of."""
    import torch
    from torch import nn

    module = nn.ModuleDict(
        {"enc_emb": nn.Embedding(29, 256), "enc": nn.GRUCell(256, 256), "dec_emb": nn.Embedding(74, 256),
         "dec": nn.GRUCell(256, 256), "fc": nn.Linear(256, 74)}
    )  # fmt: skip
    with np.load(path) as stored:
        arrays = {name: torch.from_numpy(stored[name]) for name in stored.files}
    named = {"enc_emb.weight": arrays["enc_emb"], "dec_emb.weight": arrays["dec_emb"],
             "fc.weight": arrays["fc_w"], "fc.bias": arrays["fc_b"]}  # fmt: skip
    for side in ("enc", "dec"):
        for short, long in (("w", "weight"), ("b", "bias")):
            named |= {f"{side}.{long}_{part}": arrays[f"{side}_{short}_{part}"] for part in ("ih", "hh")}
    module.load_state_dict(named)
    return module


def run_phonemes(model: Any, recorded: Arrays) -> Arrays:
    from keras import layers

    outputs = {"logits": call(model, recorded["letters"], recorded["before"])}
    for side in ("enc", "dec"):
        gru = layers.GRU(256, return_sequences=True)
        gru.build((None, None, 256))
        gru.set_weights(model.get_layer(side).get_weights())
        outputs[f"{side}__y"] = np.asarray(gru(recorded[f"{side}__x"].swapaxes(0, 1))).swapaxes(0, 1)
    return outputs


ENTRIES = (
    Entry("allennlp-fixtures/simple_tagger_best.th", "keras", tagger, run_tagger, ("encoder__y", "tags")),
    Entry(
        "cad-predictor/lstm.ckpt", "keras", sound_classifier, run_sound_classifier, ("lstm__y", "classes"),
        options={"strict": False},
    ),
    Entry(
        "ergo-tcr/lstm_model.pt", "keras", binding, run_binding, ("tcr_lstm__y", "pep_lstm__y", "binds"),
    ),
    Entry(
        "noaa-ngen-lstm/sugar_creek_trained.pt", "keras", runoff, run_runoff,
        ("lstm__y", "lstm__h", "lstm__c", "flow", "h_1", "c_1"), options={"accept": ["batch_first"]},
    ),
    Entry(
        "silero-vad-v6/silero_vad_16k.safetensors", "keras", voice, run_voice, ("y", "speech", "h_1", "c_1"),
        reference="silero_vad_16k.safetensors.ref.npz",
    ),
    Entry(
        "g2p-en/checkpoint20.npz", "keras", phonemes, run_phonemes, ("enc__y", "dec__y", "logits"),
        argument=phonemes_of_npz,
    ),
)  # fmt: skip
