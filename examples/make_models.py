"""Made examples/encoder.keras and examples/decoder.keras, with Keras 3: small models whose weights are random.

python examples/make_models.py
"""

from pathlib import Path

import keras

HERE = Path(__file__).parent


def save(name: str, layers: list[keras.Layer]) -> None:
    """Save a model of these layers over 6 inputs, with random biases too: zero ones would hide a wrong conversion."""
    model = keras.Sequential([keras.Input((None, 6)), *layers])
    for variable in model.trainable_variables:
        variable.assign(keras.random.uniform(variable.shape, -0.5, 0.5))
    model.save(HERE / f"{name}.keras")


keras.utils.set_random_seed(7)
save(
    "encoder",
    [
        keras.layers.Bidirectional(keras.layers.GRU(8, return_sequences=True), name="encoder"),
        keras.layers.LSTM(5, name="summary"),
        keras.layers.Dense(2, name="scores"),
    ],
)
save("decoder", [keras.layers.GRU(5, reset_after=False, return_sequences=True, name="decoder")])
