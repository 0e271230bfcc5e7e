"""Keras layers whose steps are written out, by tf.lite.TFLiteConverter, with what Keras gives: KERAS_BACKEND=tensorflow python make.py

Made with keras 3.15 and tensorflow 2.21.
"""

from __future__ import annotations

import itertools
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

HERE = Path(__file__).parent
for kind, steps, backwards in itertools.product(("LSTM", "GRU", "SimpleRNN"), (1, 2, 3), (False, True)):
    for bias, sequences in ((False, True), (True, True), (True, False)):
        if (steps != 2 and not bias) or (steps == 1 and not sequences):
            continue
        keras.utils.set_random_seed(steps)
        options = {"use_bias": bias, "bias_initializer": "random_normal", "unroll": True, "go_backwards": backwards}
        x = keras.Input((steps, 4))
        model = keras.Model(x, getattr(keras.layers, kind)(5, return_sequences=sequences, **options)(x))
        words = (kind.lower(), steps, "backwards" if backwards else "", "" if bias else "plain", "" if sequences else "last")
        path = HERE / ("_".join(str(word) for word in words if word) + ".tflite")
        path.write_bytes(tf.lite.TFLiteConverter.from_keras_model(model).convert())
        rows = np.random.default_rng(steps).normal(size=(1, steps, 4)).astype(np.float32)
        np.savez(path.with_suffix(".npz"), x=rows, y=model(rows).numpy())
