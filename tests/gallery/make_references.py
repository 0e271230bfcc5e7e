"""Made the files of references/: what whole models of the corpus give in the framework that wrote them.

The corpus has the outputs of whole models where their authors or their framework gave them, else those of the recurrent
layers alone. The rest of these models was run here once: their authors' architecture, filled by the framework's own
loader from the file, with nothing of rnnconvert between them.

    python -m tests.gallery.make_references [folder ...]
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from rnnconvert.core.arrays import Array
from tests.gallery.entry import REFERENCES
from tests.gallery.from_pytorch import phonemes_of_npz
from tests.helpers.corpus import FOLDER

Arrays = dict[str, Any]


class Tagger(nn.Module):
    """AllenNLP's SimpleTagger with an embedding that is projected."""

    def __init__(self) -> None:
        super().__init__()
        tokens = nn.Embedding(15, 100)
        tokens._projection = nn.Linear(100, 2)
        self.text_field_embedder = nn.ModuleDict({"token_embedder_tokens": tokens})
        self.encoder = nn.ModuleDict({"_module": nn.LSTM(2, 4, batch_first=True)})
        self.tag_projection_layer = nn.ModuleDict({"_module": nn.Linear(4, 4)})

    def forward(self, words: Any) -> Any:
        """Probabilities of the tags."""
        tokens = self.text_field_embedder["token_embedder_tokens"]
        y = self.encoder["_module"](tokens._projection(tokens(words)))[0]
        return self.tag_projection_layer["_module"](y).softmax(-1)


def allennlp(path: Path, random: np.random.Generator) -> Arrays:
    module = Tagger()
    module.load_state_dict(torch.load(path, weights_only=True, map_location="cpu"))
    words = torch.from_numpy(random.integers(0, 15, (3, 8)))
    return {"words": words, "tags": module(words)}


def cad(path: Path, random: np.random.Generator) -> Arrays:
    lstm, head = nn.LSTM(23, 64, 2, batch_first=True), nn.Linear(64, 7)
    module = nn.ModuleDict({"lstm": lstm, "fc": head})
    state = torch.load(path, weights_only=True, map_location="cpu")["state_dict"]
    module.load_state_dict({n.removeprefix("model."): t for n, t in state.items() if n.startswith("model.")})
    with np.load(path.with_suffix(".ref.npz")) as recorded:
        x = torch.from_numpy(recorded["lstm__x"])
    return {"classes": head(lstm(x)[0][:, -1]).log_softmax(1)}


def ergo(path: Path, random: np.random.Generator) -> Arrays:
    module = nn.ModuleDict({
        "tcr_embedding": nn.Embedding(21, 10, padding_idx=0), "pep_embedding": nn.Embedding(21, 10, padding_idx=0),
        "tcr_lstm": nn.LSTM(10, 30, 2, batch_first=True), "pep_lstm": nn.LSTM(10, 30, 2, batch_first=True),
        "hidden_layer": nn.Linear(60, 30), "output_layer": nn.Linear(30, 1),
    })  # fmt: skip
    module.load_state_dict(torch.load(path, weights_only=True, map_location="cpu")["model_state_dict"])

    def last(side: str, acids: Any, lengths: Any) -> Any:
        packed = nn.utils.rnn.pack_padded_sequence(module[f"{side}_embedding"](acids), lengths, batch_first=True, enforce_sorted=False)
        y, _ = nn.utils.rnn.pad_packed_sequence(module[f"{side}_lstm"](packed)[0], batch_first=True)
        return torch.stack([y[number, length - 1] for number, length in enumerate(lengths)])

    inputs: Arrays = {}
    ends = []
    for side, lengths in (("tcr", [15, 12, 13, 9]), ("pep", [9, 9, 10, 8])):
        acids = random.integers(1, 21, (4, max(lengths)))
        for number, length in enumerate(lengths):
            acids[number, length:] = 0
        inputs[side] = torch.from_numpy(acids)
        ends.append(last(side, inputs[side], torch.tensor(lengths)))
    y = functional.leaky_relu(module["hidden_layer"](torch.cat(ends, 1)))
    return {**inputs, "binds": module["output_layer"](y).sigmoid()}


def noaa(path: Path, random: np.random.Generator) -> Arrays:
    module = torch.jit.load(str(path), map_location="cpu")
    steps, batch, width = module.seq_length, module.batch_size, module.input_size
    weather = torch.from_numpy(random.normal(size=(steps, batch, width)).astype(np.float32))
    h, c = (torch.from_numpy(random.normal(size=(1, batch, 64)).astype(np.float32) * 0.5) for _ in "hc")
    flow, h_1, c_1 = module(weather, h, c)
    return {"weather": weather.transpose(0, 1), "h_0": h[0], "c_0": c[0], "flow": flow[0], "h_1": h_1[0], "c_1": c_1[0]}


def silero(path: Path, random: np.random.Generator) -> Arrays:
    from safetensors.torch import load_file

    module = nn.ModuleDict({
        "stft_conv": nn.Conv1d(1, 258, 256, stride=128, bias=False), "conv1": nn.Conv1d(129, 128, 3, padding=1),
        "conv2": nn.Conv1d(128, 64, 3, stride=2, padding=1), "conv3": nn.Conv1d(64, 64, 3, stride=2, padding=1),
        "conv4": nn.Conv1d(64, 128, 3, padding=1), "lstm_cell": nn.LSTMCell(128, 128), "final_conv": nn.Conv1d(128, 1, 1),
    })  # fmt: skip
    module.load_state_dict(load_file(path))
    sound = torch.from_numpy(random.normal(size=(2, 576)).astype(np.float32) * 0.1)
    h, c = (torch.from_numpy(random.normal(size=(2, 128)).astype(np.float32) * 0.5) for _ in "hc")
    y = module["stft_conv"](functional.pad(sound, (0, 64), "reflect")[:, None])
    y = (y[:, :129] ** 2 + y[:, 129:] ** 2).sqrt()
    for number in range(1, 5):
        y = module[f"conv{number}"](y).relu()
    h_1, c_1 = module["lstm_cell"](y[..., 0], (h, c))
    speech = module["final_conv"](h_1.relu()[..., None]).sigmoid()[..., 0]
    return {"sound": sound, "h_0": h, "c_0": c, "speech": speech, "h_1": h_1, "c_1": c_1}


def g2p(path: Path, random: np.random.Generator) -> Arrays:
    module = phonemes_of_npz(path)
    words = [[ord(letter) - ord("a") + 3 for letter in word] + [2] for word in ("gallery", "weights")]
    letters = torch.tensor(words)
    h = torch.zeros(2, 256)
    for step in module["enc_emb"](letters).unbind(1):
        h = module["enc"](step, h)
    token, before, logits = torch.full((2,), 2), [], []
    for _ in range(8):
        before.append(token)
        h = module["dec"](module["dec_emb"](token), h)
        logits.append(module["fc"](h))
        token = logits[-1].argmax(-1)
    return {"letters": letters, "before": torch.stack(before, 1), "logits": torch.stack(logits, 1)}


def keras_2(path: Path) -> dict[str, list[Array]]:
    """The arrays of each layer of a Keras 2 file, in the order in which its layers keep them."""
    import h5py

    by_layer: dict[str, list[Array]] = {}
    with h5py.File(path) as file:
        top = file.get("model_weights", file)
        for layer in top.attrs["layer_names"]:
            group = top[layer.decode()]
            names = [name.decode() for name in group.attrs["weight_names"]]
            by_layer[layer.decode()] = [np.asarray(group[name]) for name in names]
    return by_layer


def plain_lstm(arrays: list[Array]) -> list[Array]:
    """A CuDNNLSTM's arrays as Keras's LSTM keeps them, as Keras 2 itself reshaped them when it loaded such a file."""
    kernel, recurrent, bias = arrays
    kernels = [gate.T.reshape(gate.shape, order="F") for gate in np.split(kernel, 4, axis=1)]
    recurrents = [gate.T for gate in np.split(recurrent, 4, axis=1)]
    return [np.hstack(kernels), np.hstack(recurrents), np.sum(np.split(bias, 2), axis=0)]


def textgenrnn(path: Path, random: np.random.Generator) -> Arrays:
    import keras
    from keras import layers

    stored = keras_2(path)
    characters = random.integers(1, 465, (3, 12))
    x = stored["embedding"][0][characters]
    y, every = x, [x]
    for name in ("rnn_1", "rnn_2"):
        lstm = layers.LSTM(128, return_sequences=True)
        lstm.build(y.shape)
        lstm.set_weights(plain_lstm(stored[name]))
        y = np.asarray(lstm(y))
        every.append(y)
    joined = np.concatenate(every, -1)
    weights = np.asarray(keras.ops.softmax(joined @ stored["attention"][0], axis=1))
    kernel, bias = stored["output"]
    following = np.asarray(keras.ops.softmax((weights * joined).sum(1) @ kernel + bias))
    return {"characters": characters, "next": following}


def hard_sigmoid(x: Any) -> Any:
    """As Keras 1 and 2 have it; Keras 3 has another of this name."""
    import keras

    return keras.ops.clip(0.2 * x + 0.5, 0.0, 1.0)


def chars2vec(path: Path, random: np.random.Generator) -> Arrays:
    from keras import layers

    characters = np.eye(59, dtype=np.float32)[random.integers(0, 59, (4, 9))]
    y = characters
    for arrays in filter(None, keras_2(path).values()):
        lstm = layers.LSTM(arrays[1].shape[0], return_sequences=True, recurrent_activation=hard_sigmoid)
        lstm.build(y.shape)
        lstm.set_weights(arrays)
        y = np.asarray(lstm(y))
    return {"characters": characters, "vectors": y[:, -1]}


def crema(path: Path, random: np.random.Generator) -> Arrays:
    import keras
    from keras import layers

    stored = keras_2(path)

    def filled(layer: Any, name: str, x: Any) -> Array:
        layer.build(x.shape)
        layer.set_weights(stored[name])
        return np.asarray(layer(x))

    spectrum = random.normal(size=(2, 21, 256, 1)).astype(np.float32)
    norm = filled(layers.BatchNormalization(epsilon=1e-3), "batch_normalization_1", spectrum)
    y = filled(layers.Conv2D(8, 7, padding="same", activation="relu"), "conv2d_1", norm)
    y = filled(layers.Conv2D(16, (1, 256), activation="relu"), "conv2d_2", y)[:, :, 0]
    x, ways = np.concatenate([y, norm[..., 0]], -1), []
    # Bidirectional would make its two layers anew from their configuration, which names a function and no more: they
    # would have the hard_sigmoid of Keras 3.
    for arrays, backwards in zip(np.split(np.arange(6), 2), (False, True), strict=True):
        gru = layers.GRU(64, return_sequences=True, reset_after=False, recurrent_activation=hard_sigmoid)
        gru.build(x.shape)
        gru.set_weights([stored["bidirectional_1"][number] for number in arrays])
        ways.append(np.asarray(gru(x[:, ::-1]))[:, ::-1] if backwards else np.asarray(gru(x)))
    y = np.concatenate([*ways, y], -1)
    outputs = {"spectrum": spectrum}
    for name in ("beat", "downbeat"):
        outputs[name] = filled(layers.Conv1D(1, 17, padding="same", activation=keras.ops.sigmoid), name, y)
    return outputs


MAKERS: dict[str, Callable[[Path, np.random.Generator], Arrays]] = {
    "allennlp-fixtures/simple_tagger_best.th": allennlp,
    "cad-predictor/lstm.ckpt": cad,
    "ergo-tcr/lstm_model.pt": ergo,
    "noaa-ngen-lstm/sugar_creek_trained.pt": noaa,
    "silero-vad-v6/silero_vad_16k.safetensors": silero,
    "g2p-en/checkpoint20.npz": g2p,
    "textgenrnn-default/textgenrnn_weights.hdf5": textgenrnn,
    "chars2vec-50-100/eng_50_weights.h5": chars2vec,
    "chars2vec-50-100/eng_100_weights.h5": chars2vec,
    "crema-beats/model.h5": crema,
}


def main(wanted: list[str]) -> None:
    """Make every file, or those of some folders of the corpus."""
    for name, make in MAKERS.items():
        if wanted and name.partition("/")[0] not in wanted:
            continue
        path = FOLDER / name
        with torch.no_grad():
            produced = make(path, np.random.default_rng(7))
        arrays: dict[str, Any] = {key: np.asarray(value) for key, value in produced.items()}
        np.savez_compressed(REFERENCES / f"{path.parent.name}-{path.stem}.npz", **arrays)
        print(name, {key: value.shape for key, value in arrays.items()})


if __name__ == "__main__":
    main(sys.argv[1:])
