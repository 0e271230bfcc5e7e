"""Have Keras 2.13 write a model with its outputs: run it with `python make.py` where tensorflow 2.13 is installed.

doubled.keras is what `model.save` writes, its members packed; doubled.npz has an input and the output.
"""

import os
import zipfile
from pathlib import Path

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import numpy as np
from tensorflow import keras

HERE = Path(__file__).resolve().parent
L = keras.layers
model = keras.Sequential(
    [
        keras.Input((4, 3)),
        L.LSTM(2, activation="relu", return_sequences=True, name="a"),
        L.Dropout(0.1),
        L.LSTM(2, activation="tanh", return_sequences=True, name="b"),
        L.TimeDistributed(L.Dense(2)),
        L.Bidirectional(L.GRU(2, return_sequences=True, activation="sigmoid"), name="c"),
        L.LSTM(2, activation="sigmoid", return_sequences=True, name="d"),
        L.Bidirectional(L.GRU(2, return_sequences=True), name="e"),
        L.Dense(2),
        L.Dense(1),
    ]
)
draw = np.random.default_rng(213)
for weight in model.weights:
    weight.assign(draw.normal(size=weight.shape))
x = np.linspace(-1, 1, 24, dtype=np.float32).reshape(2, 4, 3)
model.save(HERE / "plain.keras")
with zipfile.ZipFile(HERE / "plain.keras") as plain, zipfile.ZipFile(HERE / "doubled.keras", "w", zipfile.ZIP_DEFLATED) as packed:
    for name in plain.namelist():
        packed.writestr(name, plain.read(name))
(HERE / "plain.keras").unlink()
np.savez(HERE / "doubled.npz", x0=x, y0=model.predict(x, verbose=0))
