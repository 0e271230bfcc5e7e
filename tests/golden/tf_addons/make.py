"""Have TensorFlow Addons write models around its LayerNormLSTMCell, with their outputs.

Run it with `python make.py` on Python 3.11, with tensorflow-cpu==2.14.1 and tensorflow-addons==0.23.0. models.tar.xz has drawn models as
NUMBER.h5 or NUMBER.keras, with inputs and outputs as NUMBER.npz; peephole.h5 is one of its PeepholeLSTMCell.
"""

import os
import tarfile
import tempfile
from pathlib import Path

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import numpy as np
import tensorflow_addons as tfa
from tensorflow import keras

HERE = Path(__file__).resolve().parent
L = keras.layers
COUNT = 36


def cell(draw: np.random.Generator, units: int) -> keras.layers.Layer:
    return tfa.rnn.LayerNormLSTMCell(
        units,
        use_bias=bool(draw.integers(4)),
        activation=draw.choice(["tanh", "tanh", "relu", "softsign"]),
        recurrent_activation=draw.choice(["sigmoid", "sigmoid", "hard_sigmoid", "tanh"]),
        norm_epsilon=float(draw.choice([1e-3, 1e-2, 1e-5])),
        dropout=float(draw.choice([0.0, 0.2])),
    )


def model(draw: np.random.Generator, number: int) -> tuple[keras.Model, list[np.ndarray]]:
    batch, time, width, units = int(draw.integers(1, 4)), int(draw.integers(1, 7)), int(draw.integers(1, 6)), int(draw.integers(1, 6))
    form = ("plain", "both", "stacked", "masked", "states", "embedded")[number % 6]
    sequences, way = bool(draw.integers(2)), {"go_backwards": bool(draw.integers(2))}
    x = draw.normal(size=(batch, time, width)).astype(np.float32)
    start = keras.Input((None, width))
    if form == "plain":
        y = L.RNN(cell(draw, units), return_sequences=True, **way)(start)
        y = L.RNN(cell(draw, units + 1), return_sequences=sequences, unroll=False)(y)
        return keras.Model(start, L.Dense(2)(y)), [x]
    if form == "both":
        merge = [None, "concat", "sum", "mul", "ave"][number // 6 % 5]
        y = L.Bidirectional(L.RNN(cell(draw, units), return_sequences=sequences), merge_mode=merge)(start)
        return keras.Model(start, y), [x]
    if form == "stacked":
        cells = [cell(draw, units), cell(draw, 3), *([cell(draw, 2)] if number % 4 else [])]
        return keras.Model(start, L.RNN(cells, return_sequences=sequences)(start)), [x]
    if form == "masked":
        x[draw.random((batch, time)) < 0.4] = 0
        y = L.Masking()(start)
        y = L.RNN(cell(draw, units), return_sequences=sequences, zero_output_for_mask=bool(draw.integers(2)), **way)(y)
        return keras.Model(start, y), [x]
    if form == "states":
        first = [keras.Input((units,)), keras.Input((units,))]
        y = L.RNN(cell(draw, units), return_sequences=sequences, return_state=True, **way)(start, initial_state=first)
        return keras.Model([start, *first], y), [x, *(draw.normal(size=(2, batch, units)).astype(np.float32))]
    words = keras.Input((None,), dtype="int32")
    y = L.Embedding(9, width, mask_zero=True)(words)
    y = L.RNN(cell(draw, units), return_sequences=sequences)(y)
    return keras.Model(words, L.Dense(3, "softmax")(y)), [draw.integers(0, 9, (batch, time)).astype(np.int32)]


def _undated(info: tarfile.TarInfo) -> tarfile.TarInfo:
    info.mtime = 0
    return info


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, tarfile.open(HERE / "models.tar.xz", "w:xz") as packed:
        for number in range(COUNT):
            keras.backend.clear_session()
            draw = np.random.default_rng(number)
            network, inputs = model(draw, number)
            for weight in network.weights:
                weight.assign(draw.normal(size=weight.shape) * 0.7)
            outputs = network(inputs if len(inputs) > 1 else inputs[0])
            outputs = outputs if isinstance(outputs, (list, tuple)) else [outputs]
            file = Path(folder) / f"{number}.{'keras' if number // 6 % 2 else 'h5'}"
            network.save(file)
            arrays = {f"x{n}": x for n, x in enumerate(inputs)} | {f"y{n}": y.numpy() for n, y in enumerate(outputs)}
            np.savez(file.with_suffix(".npz"), **arrays)
            for each in (file, file.with_suffix(".npz")):
                packed.add(each, each.name, filter=_undated)
    keras.backend.clear_session()
    start = keras.Input((5, 3))
    peephole = keras.Model(start, L.RNN(tfa.rnn.PeepholeLSTMCell(4), return_sequences=True)(start))
    draw = np.random.default_rng(7)
    for weight in peephole.weights:
        weight.assign(draw.normal(size=weight.shape) * 0.7)
    x = draw.normal(size=(2, 5, 3)).astype(np.float32)
    peephole.save(HERE / "peephole.h5")
    np.savez(HERE / "peephole.npz", x0=x, y0=peephole(x).numpy())


main()
