"""Arraymancer (Nim): the GRU, the tensors of a GRULayer by the names of its fields.

Source: src/arraymancer/nn/layers/gru.nim, GRULayer, and nn_primitives/nnp_gru.nim, gru_cell_inference. The first layer's
input weights are a tensor of their own.
"""

from rnnconvert.language.layout import Holds, Layout, System, Tensor

SYSTEM = System(
    "arraymancer",
    "Arraymancer",
    "every revision since the GRU came, 2018",
    "golden: the vectors of its own test suite, tests/nn_primitives/test_nnp_gru.nim",
    (
        "GRU only, one direction; its tensors are saved one by one or with names of the user's choice: w3s0, w3sN, u3s, bW3s and "
        "bU3s are read, as the layer's fields are called",
    ),
    (".npz", ".h5", ".hdf5"),
)

GRU = Layout(
    "arraymancer.gru",
    "gru",
    "r z n",
    (
        Tensor("w3s0", "input", "(gate hidden) in", layers="first"),
        Tensor("w3sN", "input", "layer (gate hidden) in", layers="above"),
        Tensor("u3s", "recurrent", "layer (gate hidden) in"),
        Tensor("bW3s", "input_bias", "layer 1 (gate hidden)"),
        Tensor("bU3s", "recurrent_bias", "layer 1 (gate hidden)"),
    ),
    "nn/layers/gru.nim, GRULayer",
    "GRULayer",
    reset_after=True,
    holds=Holds(biases=("both",), directions=1, dtypes=("float32", "float64")),
)
