"""Runs under MXNet's own old Python: problems in, outputs out, as .npz files named on standard input.

A line of input names the problem's file and the answer's; a line of output is empty, or what went wrong.
"""

import sys

import mxnet
import numpy as np


def solve(problem):
    """Outputs of mx.nd.RNN: y, hidden and for an LSTM cell, all (., batch, .)."""
    dtype = problem["params"].dtype

    def array(name):
        # MXNet makes float32 of everything unless it is told.
        return mxnet.nd.array(problem[name], dtype=dtype)

    mode = str(problem["mode"])
    states = {"state": array("hidden")}
    if mode == "lstm":
        states["state_cell"] = array("cell")
    projection = int(problem["projection_size"])
    if projection:
        states["projection_size"] = projection
    found = mxnet.nd.RNN(
        data=array("x"),
        parameters=array("params"),
        mode=mode,
        state_size=int(problem["state_size"]),
        num_layers=int(problem["num_layers"]),
        bidirectional=bool(problem["bidirectional"]),
        state_outputs=True,
        **states,
    )
    return {("y", "hidden", "cell")[index]: value.asnumpy() for index, value in enumerate(found)}


if __name__ == "__main__":
    for line in sys.stdin:
        source, target = line.rstrip("\n").split("\t")
        try:
            with np.load(source) as problem:
                np.savez(target, **solve(problem))
            print("", flush=True)
        except Exception as error:
            print(" ".join(str(error).split()) or repr(error), flush=True)
