"""Models of Keras 1 and 2 whose cells go through the hard sigmoid of their time, rebuilt in Keras 3.

Keras 3 has another function under the same name: max(0, min(1, x / 6 + 1 / 2)) for max(0, min(1, x / 5 + 1 / 2)). Where
the weights are scaled by 6 / 5, the two are one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.gallery.entry import Arrays, Entry
from tests.gallery.from_pytorch import call

HARD = {"recurrent_activation": "hard_sigmoid"}


def words(size: int) -> Callable[[], Any]:
    """chars2vec: a vector for a word, of its characters as ones among zeros."""

    def build() -> Any:
        import keras
        from keras import layers

        characters = keras.Input((None, 59))
        y = layers.LSTM(size, return_sequences=True, name="first", **HARD)(characters)
        sequence = layers.LSTM(size, return_sequences=True, name="second", **HARD)(y)
        return keras.Model(characters, sequence[:, -1])

    return build


def run_words(first: str, second: str) -> Callable[[Any, Arrays], Arrays]:
    def run(model: Any, recorded: Arrays) -> Arrays:
        alone = {f"{name}__y": np.asarray(model.get_layer(layer_name)(recorded[f"{name}__x"]))
                 for layer_name, name in (("first", first), ("second", second))}  # fmt: skip
        return {**alone, "vectors": call(model, recorded["characters"])}

    return run


def beats() -> Any:
    """crema: beats and downbeats of a spectrogram, by convolutions over frequencies and a GRU over time."""
    import keras
    from keras import layers

    spectrum = keras.Input((None, 256, 1))
    norm = layers.BatchNormalization(epsilon=1e-3, name="batch_normalization_1")(spectrum)
    y = layers.Conv2D(8, 7, padding="same", activation="relu", name="conv2d_1")(norm)
    y = layers.Conv2D(16, (1, 256), activation="relu", name="conv2d_2")(y)[:, :, 0]
    gru = layers.GRU(64, return_sequences=True, reset_after=False, name="gru_1", **HARD)
    both = layers.Bidirectional(gru, name="bidirectional_1")(layers.Concatenate()([y, norm[..., 0]]))
    y = layers.Concatenate()([both, y])
    ends = [layers.Conv1D(1, 17, padding="same", activation="sigmoid", name=name)(y) for name in ("beat", "downbeat")]
    return keras.Model(spectrum, ends)


def run_beats(model: Any, recorded: Arrays) -> Arrays:
    beat, downbeat = call(model, recorded["spectrum"])
    both = np.asarray(model.get_layer("bidirectional_1")(recorded["bi_gru_1__x"]))
    return {"bi_gru_1__y": both, "beat": beat, "downbeat": downbeat}


def both_ways() -> Any:
    """An LSTM in both directions, all of its steps."""
    import keras
    from keras import layers

    return keras.Sequential([keras.Input((4, 10)), layers.Bidirectional(layers.LSTM(10, return_sequences=True, **HARD))])


def one_and_dense(inputs: int, units: int, outputs: int, activation: str | None) -> Callable[[], Any]:
    """An LSTM's last step and a dense layer."""

    def build() -> Any:
        import keras
        from keras import layers

        x = keras.Input((None, inputs))
        last = layers.LSTM(units, name="lstm", **HARD)(x)
        return keras.Model(x, [last, layers.Dense(outputs, activation=activation, name="dense")(last)])

    return build


def run_dense(name: str) -> Callable[[Any, Arrays], Arrays]:
    def run(model: Any, recorded: Arrays) -> Arrays:
        last, y = call(model, recorded["x"])
        return {f"{name}__y": last, "out": y}

    return run


_PRICE = one_and_dense(1, 50, 1, None)

ENTRIES = (
    *(
        Entry(
            f"chars2vec-50-100/eng_{size}_weights.h5", "keras", words(size), run_words(first, second),
            (f"{first}__y", f"{second}__y", "vectors"),
        )
        for size, first, second in ((50, "lstm_1", "lstm_2"), (100, "lstm_3", "lstm_4"))
    ),
    Entry("crema-beats/model.h5", "keras", beats, run_beats, ("bi_gru_1__y", "beat", "downbeat")),
    Entry(
        "dl4j-keras-imports/bidirectional_lstm_tensorflow_1.h5", "keras", both_ways,
        lambda model, recorded: {"out": call(model, recorded["x"])}, ("out",),
    ),
    Entry(
        "dl4j-keras-imports/lstm_functional_tf_keras_2.h5", "keras", one_and_dense(4, 8, 5, "softmax"),
        run_dense("lstm"), ("lstm__y", "out"),
    ),
    *(
        Entry(f"dl4j-keras-imports/simple_lstm_{kind}_model.h5", "keras", _PRICE, run_dense("lstm_1"), ("lstm_1__y", "out"))
        for kind in ("tf_keras_1", "tf_keras_2", "th_keras_1")
    ),
)  # fmt: skip
