"""Have one version of Keras write models with their outputs: run it with `python make.py` where that version is installed.

VERSION.tar.xz holds what it wrote: `whole`, a functional model with several layers of each class, `plain`, whose layers have one shape and
no names of their own, and `own`, a class's weights; all have an optimizer that took one step of the size 0, so that their numbers stay
short ones, which are packed well. answers.npz has what each model makes of `inputs` of its width, under the model's name, and what each
recurrent layer makes of those of its own, under model/layer. NAME_zipped.keras is what 2.12 writes as the later ones.

Keras 2 came with TensorFlow 2.6 to 2.15 of the same number, on Python 3.9 (tensorflow-cpu==2.N.*, keras==2.N.*, numpy==1.23.5); Keras 3 ran
on PyTorch 2.13 and Python 3.11 (KERAS_BACKEND=torch).
"""

import os
import sys
import tarfile
import tempfile
from pathlib import Path

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["CUDA_VISIBLE_DEVICES"] = ""

import keras
import numpy as np

L = keras.layers
HERE = Path(__file__).resolve().parent
KINDS = (L.SimpleRNN, L.GRU, L.LSTM)


def inputs(width):
    return np.sin(np.arange(2 * 4 * width)).reshape(2, 4, width).astype(np.float32)


def whole():
    x = L.Input((4, 3), name="x")
    y = x
    for kind in KINDS:
        word = kind.__name__.lower()
        y = kind(2, return_sequences=True, name=word + "_bottom")(y)
        y = kind(3, return_sequences=True)(y)
        y = L.Bidirectional(kind(2, return_sequences=True))(y)
        y = L.TimeDistributed(L.Dense(3))(y)
        y = L.TimeDistributed(L.Dropout(0.1))(y)
        y = L.Bidirectional(kind(2, return_sequences=True), name=word + "_both")(y)
        y = kind(3, return_sequences=True, go_backwards=True)(y)
        y = L.Dense(3, "tanh")(y)
    first = keras.Sequential([L.Input((4, 3)), L.LSTM(2, return_sequences=True), L.Dense(3), L.LSTM(2, return_sequences=True)])
    second = keras.Sequential([L.Input((4, 2)), L.Bidirectional(L.GRU(2)), L.Dense(2)], name="second")
    return keras.Model(x, L.Dense(1)(second(first(y))))


def plain():
    layers = [kind(3, return_sequences=True) for kind in KINDS for _ in range(3)]
    return keras.Sequential([L.Input((4, 3)), *layers, L.Dense(3), L.Dense(1)])


class Own(keras.Model):
    def __init__(self):
        super().__init__()
        self.encoder = L.LSTM(3, return_sequences=True)
        self.decoder = L.LSTM(3, return_sequences=True)
        self.more = [L.GRU(3, return_sequences=True), L.GRU(3, return_sequences=True)]
        self.both = L.Bidirectional(L.LSTM(3))
        self.dense = L.Dense(1)

    def call(self, x):
        for layer in (self.encoder, self.decoder, *self.more, self.both, self.dense):
            x = layer(x)
        return x


def outputs(layer, size):
    y = layer(inputs(size))
    return y.detach().numpy() if hasattr(y, "detach") else y.numpy()


def recurrent(model):
    for layer in model.layers:
        if isinstance(layer, (*KINDS, L.Bidirectional)):
            yield layer
        elif hasattr(layer, "layers"):
            yield from recurrent(layer)


def width(layer):
    return (layer.forward_layer if isinstance(layer, L.Bidirectional) else layer).cell.kernel.shape[0]


answers = {}
with tempfile.TemporaryDirectory() as folder:
    for number, (name, build) in enumerate({"whole": whole, "plain": plain, "own": Own}.items()):
        model = build()
        model(inputs(3))
        draw = np.random.default_rng(number)
        model.set_weights([np.round(draw.normal(size=array.shape) * 45) / 64 for array in model.get_weights()])
        model.compile("adam", "mse", run_eagerly=True)
        answers[name] = outputs(model, 3)
        model.fit(inputs(3), answers[name], sample_weight=np.zeros(answers[name].shape[:-1]), verbose=0)
        for layer in recurrent(model):
            assert name + "/" + layer.name not in answers
            answers[name + "/" + layer.name] = outputs(layer, width(layer))
        path = f"{folder}/{name}"
        if name != "own":
            model.save(path + ".keras")
            if keras.__version__.startswith("2.12."):
                model.save(path + "_zipped.keras", save_format="keras_v3")
            try:
                model.save(path + ".h5")
            except ValueError as error:  # Keras 3.0 to 3.2 give two datasets of a wrapper's layer one name
                print(name, error)
                Path(path + ".h5").unlink()
        model.save_weights(path + ".weights.h5")
    np.savez(f"{folder}/answers.npz", **answers)
    target = Path(sys.argv[1] if len(sys.argv) > 1 else HERE) / f"{'.'.join(keras.__version__.split('.')[:2])}.tar.xz"
    with tarfile.open(target, "w:xz") as packed:
        for file in sorted(Path(folder).iterdir()):
            packed.add(file, file.name)
    print(keras.__version__, target.stat().st_size, [f"{file.name} {file.stat().st_size}" for file in sorted(Path(folder).iterdir())])
