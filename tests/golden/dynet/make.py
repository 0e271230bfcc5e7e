"""The files beside this one: builders of DyNet 2.1.2 in one collection, with a dense layer and a table, and what they give on the CPU.

With a Python up to 3.8: pip install dyNET==2.1.2 && python tests/golden/dynet/make.py
"""

import pathlib

import dynet as dy
import numpy as np

FOLDER = pathlib.Path(__file__).resolve().parent
STEPS = 5


def outputs(builder, x):
    """What a builder gives at each step of a sequence, from states of zeros."""
    dy.renew_cg()
    state = builder.initial_state()
    return np.array([y.npvalue() for y in state.transduce([dy.inputVector(step) for step in x])])


def both_ways(builder, x):
    """Likewise for a builder of two directions."""
    dy.renew_cg()
    return np.array([y.npvalue() for y in builder.transduce([dy.inputVector(step) for step in x])])


def filled(parameters, random):
    """Give every parameter random numbers."""
    for parameter in parameters.parameters_list():
        parameter.set_value(random.randn(*parameter.shape()) * 0.5)


def main():
    random = np.random.RandomState(5)
    parameters = dy.ParameterCollection()
    encoder = parameters.add_subcollection("encoder")
    builders = {
        "encoder/vanilla-lstm-builder": dy.VanillaLSTMBuilder(2, 3, 4, encoder),
        "vanilla-lstm-builder": dy.VanillaLSTMBuilder(1, 3, 4, parameters),
        "vanilla-lstm-builder_1": dy.VanillaLSTMBuilder(1, 3, 4, parameters, forget_bias=0.0),
        "compact-vanilla-lstm-builder": dy.CompactVanillaLSTMBuilder(1, 3, 4, parameters),
        "gru-builder": dy.GRUBuilder(2, 3, 4, parameters),
        "simple-rnn-builder": dy.SimpleRNNBuilder(2, 3, 4, parameters),
        "fast-lstm-builder": dy.FastLSTMBuilder(2, 3, 4, parameters),
    }
    both = {
        "birnn": dy.BiRNNBuilder(2, 3, 8, parameters, dy.VanillaLSTMBuilder),
        "encoder/birnn": dy.BiRNNBuilder(1, 3, 8, encoder, dy.GRUBuilder),
    }
    parameters.add_parameters((2, 4))
    parameters.add_lookup_parameters((6, 3))
    filled(parameters, random)
    x = random.randn(STEPS, 3).astype(np.float32)
    answers = {name: outputs(builder, x) for name, builder in builders.items()}
    answers.update((name, both_ways(builder, x)) for name, builder in both.items())
    np.savez(FOLDER / "answers.npz", x=x, **answers)
    parameters.save(str(FOLDER / "model.dynet"))
    for name, builder in (("norms", dy.VanillaLSTMBuilder), ("coupled", dy.CoupledLSTMBuilder)):
        alone = dy.ParameterCollection()
        builder(1, 3, 4, alone, True) if name == "norms" else builder(1, 3, 4, alone)
        filled(alone, random)
        alone.save(str(FOLDER / (name + ".dynet")))


if __name__ == "__main__":
    main()
