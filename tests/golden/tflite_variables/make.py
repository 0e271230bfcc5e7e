"""Keras layers in functions over variables, converted to TFLite, and what Keras gives.

"lost" is converted with the Keras model behind the function, as TensorFlow's warning advises: its variables are not in the file.
"trained" has a second signature that changes the variables, as on-device training has.

KERAS_BACKEND=tensorflow python tests/golden/tflite_variables/make.py, with keras 3.15 and tensorflow 2.21.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

HERE = Path(__file__).parent
RANDOM = np.random.default_rng(5)
SPEC = tf.TensorSpec((1, 5, 3), tf.float32)
layers = keras.layers
CASES = {
    "gru_back": layers.GRU(4, go_backwards=True),
    "gru_before_back": layers.GRU(4, go_backwards=True, return_sequences=True, reset_after=False),
    "lstm_back": layers.LSTM(4, go_backwards=True),
    "rnn": layers.SimpleRNN(4, return_sequences=True),
    "lost": layers.LSTM(4, go_backwards=True),
    "trained": layers.LSTM(4, return_sequences=True),
}


class Functions(tf.Module):
    """A model's functions."""

    def __init__(self, model: keras.Model) -> None:
        super().__init__()
        self.model, self.values = model, [one.value for one in model.weights]

    @tf.function
    def infer(self, x: tf.Tensor) -> dict[str, tf.Tensor]:
        """Run the model."""
        return {"y": self.model(x)}

    @tf.function
    def train(self, x: tf.Tensor) -> dict[str, tf.Tensor]:
        """Change the weights."""
        for one in self.values:
            one.assign(one * 0.5)
        return {"loss": tf.reduce_sum(x)}


for name, layer in CASES.items():
    model = keras.Sequential([keras.Input((5, 3)), layer])
    model.set_weights([(RANDOM.normal(size=one.shape) * 0.5).astype(np.float32) for one in model.get_weights()])
    x = RANDOM.normal(size=(1, 5, 3)).astype(np.float32)
    np.savez(HERE / f"{name}.npz", x=x, y=model(x).numpy())
    module = Functions(model)
    called = module.infer.get_concrete_function(SPEC)
    if name == "trained":
        with tempfile.TemporaryDirectory() as folder:
            signatures = {"infer": called, "train": module.train.get_concrete_function(SPEC)}
            tf.saved_model.save(module, folder, signatures=signatures)
            converter = tf.lite.TFLiteConverter.from_saved_model(folder)
            converter.experimental_enable_resource_variables = True
            converted = converter.convert()
    else:
        behind = model if name == "lost" else module
        converted = tf.lite.TFLiteConverter.from_concrete_functions([called], behind).convert()
    (HERE / f"{name}.tflite").write_bytes(converted)
