"""The files beside this one, written by MXNet 1.9.1 itself, and what MXNet made of them.

.environments/mxnet/bin/python tests/golden/mxnet/make.py
"""

import pathlib

import mxnet
import numpy as np
from mxnet.gluon import rnn

FOLDER = pathlib.Path(__file__).resolve().parent
X = np.random.RandomState(1).uniform(-1, 1, (5, 2, 3)).astype("float32")


def filled(block):
    """A block whose parameters are random, biases too."""
    block.initialize()
    random = np.random.RandomState(2)
    for parameter in block.collect_params().values():
        parameter.set_data(mxnet.nd.array(random.uniform(-0.7, 0.7, parameter.shape)))
    return block


def layers(answers):
    """gluon's layers and cells, as each way of saving spells them."""
    x = mxnet.nd.array(X)
    stack = filled(rnn.LSTM(4, num_layers=2, bidirectional=True, input_size=3))
    stack.save_parameters(str(FOLDER / "saved.params"))
    answers["saved"] = stack(x)
    projected = filled(rnn.LSTM(4, projection_size=2, bidirectional=True, input_size=3, prefix="lstm0_"))
    projected.collect_params().save(str(FOLDER / "collected.params"))
    answers["collected"] = projected(x)
    relu = filled(rnn.RNN(4, input_size=3, prefix="rnn0_"))
    relu.hybridize()
    answers["exported"] = relu(x)
    relu.export(str(FOLDER / "exported"), epoch=3)
    both = filled(rnn.BidirectionalCell(rnn.GRUCell(4, input_size=3), rnn.GRUCell(4, input_size=3)))
    both.save_parameters(str(FOLDER / "cells.params"))
    answers["cells"] = both.unroll(5, x, layout="TNC", merge_outputs=True)[0]


def checkpoint(answers, name, cell, unpacked):
    """A checkpoint of Module: the graph, and its parameters with "arg:" before their names."""
    graph = cell.unroll(5, mxnet.sym.Variable("data"), layout="TNC", merge_outputs=True)[0]
    bound = graph.simple_bind(mxnet.cpu(), data=X.shape)
    random = np.random.RandomState(3)
    bound.arg_dict["data"][:] = X
    for own, array in bound.arg_dict.items():
        if own != "data":
            array[:] = random.uniform(-0.7, 0.7, array.shape)
    answers[name] = bound.forward()[0]
    weights = {own: array for own, array in bound.arg_dict.items() if own != "data"}
    if unpacked:
        mxnet.rnn.save_rnn_checkpoint(cell, str(FOLDER / name), 1, graph, weights, {})
    else:
        mxnet.model.save_checkpoint(str(FOLDER / name), 1, graph, weights, {})


def main():
    answers = {}
    layers(answers)
    fused = mxnet.rnn.FusedRNNCell(4, num_layers=2, mode="gru", bidirectional=True, prefix="gru_")
    checkpoint(answers, "fused", fused, False)
    checkpoint(answers, "unpacked", mxnet.rnn.FusedRNNCell(4, num_layers=2, mode="lstm", prefix="lstm_"), True)
    bfloat16 = np.dtype([("bfloat16", np.uint16)])
    numbers = mxnet.nd.array([[1.5, -2, 3]])
    types = {name: numbers.astype(name) for name in ("float16", "float32", "float64", "uint8", "int32", "int8", "int64")}
    types["bfloat16"] = numbers.astype(bfloat16)
    types["csr"] = mxnet.nd.sparse.csr_matrix(np.eye(3))
    types["rows"] = mxnet.nd.sparse.row_sparse_array(np.eye(3))
    types["last"] = mxnet.nd.ones((2,))
    mxnet.nd.save(str(FOLDER / "types.params"), types)
    mxnet.nd.save(str(FOLDER / "list.params"), [mxnet.nd.ones((2, 1)), mxnet.nd.zeros((1,))])
    with mxnet.util.np_shape(True):
        mxnet.nd.save(str(FOLDER / "scalar.params"), {"scalar": mxnet.nd.ones(()), "none": mxnet.nd.zeros((0, 2))})
    np.savez(FOLDER / "answers.npz", x=X, **{name: array.asnumpy() for name, array in answers.items()})


if __name__ == "__main__":
    main()
