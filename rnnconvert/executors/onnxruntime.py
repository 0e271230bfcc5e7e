"""onnxruntime on the CPU, on the inputs of one RNN, GRU or LSTM node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rnnconvert.arrays import Array
from rnnconvert.executors.packages import absent
from rnnconvert.executors.reference import Outputs

NEEDS = ("onnx", "onnxruntime")
OPSET = 14
"""The first with all of today's attributes; every onnxruntime that we support runs it."""

_INPUTS = ("X", "W", "R", "B", "sequence_lens", "initial_h", "initial_c", "P")


def available() -> str:
    """Why it cannot run here, or "" if it can."""
    return absent(NEEDS)


def run(
    arrays: Mapping[str, Array],
    x: Array,
    operator: str,
    *,
    hidden: Sequence[Array] | None = None,
    cell: Sequence[Array] | None = None,
    lengths: Array | None = None,
    **attributes: Any,
) -> Outputs:
    """Run a model of one node in the element type of its weights.

    arrays      the node's inputs by the operator's own names: W, R, and where it has them B, P, initial_h
                and initial_c, the latter two (directions, hidden)
    x           (time, batch, in)
    operator    "RNN", "GRU" or "LSTM"
    hidden      initial states of each direction, (batch, hidden); initial_h, or zero, if None
    cell        initial cell states of an LSTM, likewise
    lengths     how many steps of each sequence count, (batch,); all of them if None
    attributes  the operator's own: direction, activations, activation_alpha, clip, linear_before_reset ...

    Raises onnxruntime's errors for a node that it refuses.
    """
    import onnx
    import onnxruntime
    from onnx import helper

    dtype = arrays["R"].dtype
    batch = np.shape(x)[1]
    inputs: dict[str, Array] = {**arrays, "X": np.asarray(x, dtype)}
    for name, states in (("initial_h", hidden), ("initial_c", cell)):
        if states is not None and not (name == "initial_c" and operator != "LSTM"):
            inputs[name] = np.stack(list(states)).astype(dtype)
        elif name in inputs:
            inputs[name] = np.repeat(inputs[name][:, None], batch, axis=1)
    if lengths is not None:
        inputs["sequence_lens"] = np.asarray(lengths, np.int32)
    names = [name if name in inputs else "" for name in _INPUTS]
    while not names[-1]:
        names.pop()
    directions, _, width = arrays["R"].shape
    final = (directions, batch, width)
    outputs = {"Y": (len(x), *final), "Y_h": final, **({"Y_c": final} if operator == "LSTM" else {})}
    node = helper.make_node(operator, names, list(outputs), hidden_size=width, **attributes)
    of_numpy = helper.np_dtype_to_tensor_dtype
    graph = helper.make_graph(
        [node],
        operator,
        [helper.make_tensor_value_info(name, of_numpy(a.dtype), a.shape) for name, a in inputs.items()],
        [helper.make_tensor_value_info(name, of_numpy(dtype), shape) for name, shape in outputs.items()],
    )
    # The oldest form of file that the opset may stand in: an older onnxruntime refuses a newer one.
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8)
    onnx.checker.check_model(model)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    y, *finals = session.run(list(outputs), {name: np.ascontiguousarray(a) for name, a in inputs.items()})
    joined = y.transpose(0, 2, 1, 3).reshape(len(x), batch, directions * width)
    return Outputs(joined, tuple(finals[0]), tuple(finals[1]) if operator == "LSTM" else ())
