"""Files of TFLite with two LSTM cells one above the other, written out step by step as TensorFlow 1's static_rnn does.

The steps are taken from a matrix of all steps by Split, or from a sequence by Unpack. Made with TensorFlow 2.21:
python make.py FOLDER
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import tensorflow as tf

STEPS, SIZE, INPUT = 4, 3, 2


def make(folder: Path, name: str, batch: int) -> None:
    random = np.random.default_rng(len(name))
    first = tf.constant(random.normal(size=(INPUT, SIZE)).astype("f4"))
    cells = [
        (tf.constant(random.normal(size=(2 * SIZE, 4 * SIZE)).astype("f4") / 2), tf.constant(random.normal(size=4 * SIZE).astype("f4")))
        for _ in range(2)
    ]  # fmt: skip

    @tf.function(input_signature=[tf.TensorSpec((batch, STEPS, INPUT), tf.float32)])
    def model(x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        flat = tf.nn.relu(tf.matmul(tf.reshape(tf.transpose(x, [1, 0, 2]), [-1, INPUT]), first))
        steps = tf.split(flat, STEPS, 0) if name == "split" else tf.unstack(tf.reshape(flat, [STEPS, batch, SIZE]))
        hidden = [tf.zeros((batch, SIZE)) for _ in cells]
        cell = [tf.zeros((batch, SIZE)) for _ in cells]
        for step in steps:
            for number, (matrix, bias) in enumerate(cells):
                sums = tf.nn.bias_add(tf.matmul(tf.concat([step, hidden[number]], 1), matrix), bias)
                i, j, f, o = tf.split(sums, 4, 1)  # BasicLSTMCell's order, with its bias of 1
                cell[number] = cell[number] * tf.sigmoid(f + 1.0) + tf.sigmoid(i) * tf.tanh(j)
                step = hidden[number] = tf.tanh(cell[number]) * tf.sigmoid(o)
        return tf.reshape(flat, [STEPS, batch, SIZE]), hidden[-1]

    x = random.normal(size=(batch, STEPS, INPUT)).astype("f4")
    read, given = (one.numpy() for one in model(x))
    converter = tf.lite.TFLiteConverter.from_concrete_functions([model.get_concrete_function()])
    (folder / f"{name}.tflite").write_bytes(converter.convert())
    np.savez(folder / f"{name}.npz", x=read, y=given)


if __name__ == "__main__":
    for _name, _batch in (("split", 2), ("unpack", 1)):
        make(Path(sys.argv[1]), _name, _batch)
