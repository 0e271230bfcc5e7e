"""A recurrent node by itself: a model of one node in onnxruntime.

Source: the ONNX operators RNN, GRU and LSTM (opset 22).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from rnnconvert.running.sequences import Sequences, outputs

from .run_session import Session, wide

Array = np.ndarray

OPSET = 14
"""The first opset with all of today's attributes; every onnxruntime that we support runs it."""

STATES = {"initial_h": "hidden", "initial_c": "cell"}
_INPUTS = ("X", "W", "R", "B", "sequence_lens", "initial_h", "initial_c", "P")
_AS_INPUTS = 1 << 24
"""Weights larger than this many bytes are passed as inputs: to write them into a model of one node takes longer than to run it."""


class PreparedNode(NamedTuple):
    """A node that is ready to run.

    sessions  models of this node that are ready to run, by the inputs that they take
    """

    name: str
    attributes: Mapping[str, Any]
    opsets: Sequence[Any]
    sessions: dict[Any, Session]

    @property
    def outputs(self) -> list[str]:
        return ["Y", "Y_h", *(["Y_c"] if self.name == "LSTM" else [])]

    @property
    def states(self) -> dict[str, str]:
        """Its inputs for initial states, with the request's names for them."""
        return {name: part for name, part in STATES.items() if part == "hidden" or self.name == "LSTM"}


def solved(
    operator: PreparedNode, arrays: Mapping[str, Array], sequences: Sequences, ready: Callable[[bytes], Session]
) -> tuple[dict[str, Any], Session]:
    """Run a model of one node; return its answer, and the session that ran it.

    arrays  the node's inputs by the operator's own names: W, R, and where it has them B, P, initial_h and initial_c, the
            latter two (directions, hidden), which the states of a request replace
    ready   makes a session of a model
    """
    dtype = arrays["R"].dtype
    steps, batch, _ = np.shape(sequences.x)
    inputs: dict[str, Array] = {"X": np.asarray(sequences.x, dtype)}
    constants = {name: np.ascontiguousarray(arrays[name]) for name in ("W", "R", "B", "P") if name in arrays}
    stacked = sequences.stacked(operator.states.values())
    for name, part in operator.states.items():
        if part in stacked:
            inputs[name] = stacked[part].astype(dtype)
        elif name in arrays:
            inputs[name] = np.repeat(arrays[name][:, None], batch, axis=1)
    if sequences.lengths is not None:
        inputs["sequence_lens"] = np.asarray(sequences.lengths, np.int32)
    if sum(array.nbytes for array in constants.values()) > _AS_INPUTS:
        inputs, constants = {**inputs, **constants}, {}
    directions, _, width = arrays["R"].shape
    takes = tuple((name, array.dtype.str) for name, array in inputs.items())
    session = operator.sessions.get(takes)
    if session is None:
        session = operator.sessions[takes] = ready(_model(operator, inputs, constants, width))
    y, *finals = map(wide, session.run(operator.outputs, inputs))
    return outputs(y.transpose(0, 2, 1, 3).reshape(steps, batch, directions * width), *finals), session


def run(operator: str, attributes: Mapping[str, Any], arrays: Mapping[str, Array], sequences: Sequences) -> dict[str, Any]:
    """Run a model of one node on the CPU, in the element type of its weights; without states, from initial_h and initial_c, or zero.

    operator    "RNN", "GRU" or "LSTM"
    attributes  the operator's own: direction, activations, activation_alpha, clip, linear_before_reset ...
    arrays      as for `solved`

    Raises onnxruntime's errors for a node that it refuses, NotImplementedError for one that it has no kernel for.
    """
    plain = PreparedNode(operator, attributes, (), {})
    return solved(plain, arrays, sequences, lambda model: Session(model, "CPUExecutionProvider"))[0]


_SHAPES = {
    "X": ("steps", "batch", None),
    "sequence_lens": ("batch",),
    "initial_h": (None, "batch", None),
    "initial_c": (None, "batch", None),
}
"""The axes of a node's inputs that differ from case to case."""


def _model(operator: PreparedNode, inputs: Mapping[str, Array], constants: Mapping[str, Array], width: int) -> bytes:
    """Return a model of one node, which takes as many steps and sequences as it is given."""
    import onnx
    from onnx import helper

    names = [name if name in inputs or name in constants else "" for name in _INPUTS]
    while not names[-1]:
        names.pop()
    node = helper.make_node(operator.name, names, operator.outputs, operator.name, hidden_size=width, **operator.attributes)
    of_numpy = helper.np_dtype_to_tensor_dtype
    graph = helper.make_graph(
        [node],
        operator.name,
        [helper.make_tensor_value_info(name, of_numpy(a.dtype), _axes(name, a)) for name, a in inputs.items()],
        [onnx.ValueInfoProto(name=name) for name in operator.outputs],
        [onnx.numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    # The oldest form of file that the opset may stand in: an older onnxruntime refuses a newer one.
    stated = [entry for entry in operator.opsets if entry.domain in ("", "ai.onnx")] or [helper.make_opsetid("", OPSET)]
    version = max(8, helper.find_min_ir_version_for(list(stated), ignore_unknown=True))
    model = helper.make_model(graph, opset_imports=stated, ir_version=version)
    return bytes(model.SerializeToString())


def _axes(name: str, array: Array) -> list[Any]:
    """Return an input's shape, with names for the axes that differ from case to case."""
    return [word or size for word, size in zip(_SHAPES.get(name, [None] * array.ndim), array.shape)]
