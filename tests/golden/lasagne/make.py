"""The files beside this one: parameters as Lasagne 0.1 lists them, and what it made of them on Theano 1.0.5.

Lasagne 0.1 adds the output gate's peephole behind that gate's function. Its master (0.2.dev1, commit 01be27fd) has moved
that function below; `lstm` and `both` are run with that one line moved, `lstm_first` is what 0.1 itself gives.

With Python 3.7:  pip install "numpy<1.22" scipy Theano==1.0.5 && pip install --no-deps Lasagne==0.1
THEANO_FLAGS=floatX=float32,cxx=,mode=FAST_COMPILE python tests/golden/lasagne/make.py
"""

import pathlib

import numpy as np
import theano
from theano.tensor import signal
from theano.tensor.signal import pool

signal.downsample = pool  # Theano 1.0 has renamed what Lasagne's pooling layers import

import lasagne  # noqa: E402 - it imports the module above
from lasagne import layers  # noqa: E402
from lasagne.layers import recurrent as first_release  # noqa: E402
from lasagne.nonlinearities import tanh  # noqa: E402

FOLDER = pathlib.Path(__file__).resolve().parent
X = np.random.RandomState(1).uniform(-1, 1, (2, 5, 3)).astype("float32")


APPLIED = "            outgate = self.nonlinearity_outgate(outgate)\n"
SEEN = "                outgate += cell*W_cell_to_outgate\n"


def master():
    """The LSTMLayer of Lasagne's master: the first release's, with one line moved."""
    source = pathlib.Path(first_release.__file__).read_text()
    assert source.count(APPLIED) == source.count(SEEN) == 1
    module = {"__name__": "lasagne.layers.recurrent", "__package__": "lasagne.layers"}
    exec(source.replace(APPLIED, "").replace(SEEN, SEEN + APPLIED), module)
    return module["LSTMLayer"]


def save(answers, name, *recurrent, last=None):
    """Random parameters of a network, initial states too, and what its recurrent layers give."""
    last = last or recurrent[-1]
    random = np.random.RandomState(2)
    shapes = [parameter.get_value().shape for parameter in layers.get_all_params(last)]
    values = [random.uniform(-0.7, 0.7, shape).astype("float32") for shape in shapes]
    layers.set_all_param_values(last, values)
    np.savez(str(FOLDER / name), *layers.get_all_param_values(last))
    first = layers.get_all_layers(last)[0]
    outputs = theano.function([first.input_var], [layers.get_output(layer) for layer in recurrent])
    for number, output in enumerate(outputs(X)):
        answers[f"{name}_{number}"] = output


def main():
    answers = {"x": X}
    entry = layers.InputLayer((2, 5, 3))
    LSTMLayer = master()
    save(answers, "lstm", LSTMLayer(entry, 4))
    save(answers, "lstm_first", layers.LSTMLayer(entry, 4))
    (FOLDER / "lstm_first.npz").unlink()  # the same parameters
    save(answers, "backwards", layers.LSTMLayer(entry, 4, peepholes=False, backwards=True))
    gru = layers.GRULayer(entry, 4)
    above = layers.GRULayer(gru, 5)
    save(answers, "gru", gru, above, last=layers.DenseLayer(above, 2))
    save(answers, "rnn", layers.RecurrentLayer(entry, 4))
    save(answers, "no_bias", layers.RecurrentLayer(entry, 4, b=None, nonlinearity=tanh))
    both = [layers.GRULayer(entry, 4), layers.GRULayer(entry, 4, backwards=True)]
    above = LSTMLayer(layers.ConcatLayer(both, axis=2), 3)
    save(answers, "both", *both, above)
    answers["version"] = lasagne.__version__
    np.savez(str(FOLDER / "answers"), **answers)


if __name__ == "__main__":
    main()
