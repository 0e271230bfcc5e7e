"""Made by Keras 2.3.1 on TensorFlow 2.2.0 under Python 3.7: python make.py FOLDER."""

import pathlib
import pickle
import sys

import keras
import numpy as np

FOLDER = pathlib.Path(sys.argv[1])
np.random.seed(3)
directions = keras.layers.Bidirectional(keras.layers.GRU(3, return_sequences=True, activation="relu"), input_shape=(None, 2))
model = keras.models.Sequential([directions, keras.layers.LSTM(4), keras.layers.Dense(1)])
x = np.random.normal(size=(2, 5, 2)).astype("f")
model.compile("adam", "mse")
model.fit(x, np.zeros((2, 1)), verbose=0)
(FOLDER / "model.pkl").write_bytes(pickle.dumps(model, 2))
np.savez(str(FOLDER / "model.npz"), x=x, y=model.predict(x))
