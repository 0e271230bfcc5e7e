"""MXNet's fused RNN operator on cuDNN's flat buffer, on the CPU; it runs under the old Pythons that MXNet needs.

Sources: MXNet 1.9.1, src/operator/rnn-inl.h and rnn.cc. There the operator always has two biases, and on the CPU it
silently ignores the lengths of sequences and the clip of the cell state.
"""

from __future__ import annotations

from typing import Any, Mapping

import numpy as np

from rnnconvert.running.sequences import Sequences, outputs

Array = np.ndarray

NEEDS = ("mxnet",)
FORMAT = "cudnn"
BUFFER_KEY = "rnnconvert.cudnn"  # where a .safetensors has the description of its flat buffers
SUFFIX = ".bin"
SUPPORTS = "RNN, GRU and LSTM with both biases; projection; no lengths; gradients; float32 and float64"
CANNOT = {
    "lengths": "sequences of different lengths: MXNet ignores lengths on the CPU",
    "how": "the description already states what is computed",
}
# The switch chooses between oneDNN's kernels, where they have the cell, and MXNet's own.
VARIANTS: dict[str, dict[str, Any]] = {
    "mxnet": {"device": "cpu", "environment": {"MXNET_USE_MKLDNN_RNN": "1"}},
    "mxnet-native": {"device": "cpu", "environment": {"MXNET_USE_MKLDNN_RNN": "0"}},
}
_TYPES = ("float32", "float64")
_STATES = {"hidden": "state", "cell": "state_cell"}


def answer(request: Mapping[str, Any]) -> dict[str, Any]:
    """Run a flat buffer with its description; see rnnconvert.running."""
    description = request["description"]
    for key, plain in (("bias_mode", "double"), ("input_mode", "linear")):
        if description.get(key, plain) != plain:
            raise NotImplementedError(f"{key} {description[key]}: MXNet supports only {plain}")
    if description.get("clip"):
        raise NotImplementedError("a clip of the cell state: MXNet ignores it on the CPU")
    dtype = description["dtype"]
    if dtype not in _TYPES:
        raise NotImplementedError(f"{dtype}: MXNet's RNN runs in {' and '.join(_TYPES)} on the CPU")
    if (description["cell"], dtype) == ("rnn_relu", "float64"):
        raise NotImplementedError("a relu RNN in float64: MXNet's relu passes through float32")
    return _solved(request["buffer"], description, Sequences.of(request))


def _solved(params: Array, description: Mapping[str, Any], sequences: Sequences) -> dict[str, Any]:
    """Run mx.nd.RNN in the element type of the buffer. Raises mxnet.MXNetError for a buffer of another size."""
    import mxnet

    mode, hidden_size, num_layers = (description[key] for key in ("cell", "hidden_size", "num_layers"))
    projection_size, bidirectional = description.get("projection_size", 0), description["bidirectional"]
    if projection_size == hidden_size:
        projection_size = 0
    widths = {"hidden": projection_size or hidden_size, **({"cell": hidden_size} if mode == "lstm" else {})}

    def array(values: Any) -> Any:
        # MXNet makes float32 of everything unless it is told.
        return mxnet.nd.array(np.asarray(values), dtype=params.dtype)

    states = sequences.initial(widths, num_layers * (2 if bidirectional else 1))
    leaves = {"parameters": array(params), "data": array(sequences.x)}
    leaves.update({_STATES[part]: array(state) for part, state in states.items()})

    def forward() -> list[Any]:
        options = {"projection_size": projection_size} if projection_size else {}
        return list(
            mxnet.nd.RNN(
                mode=mode,
                state_size=hidden_size,
                num_layers=num_layers,
                bidirectional=bool(bidirectional),
                state_outputs=True,
                **leaves,
                **options,
            )
        )

    if not sequences.cotangents:
        return outputs(*(value.asnumpy() for value in forward()))
    if projection_size:
        raise NotImplementedError("gradients of a projected LSTM: MXNet has none on the CPU")
    for leaf in leaves.values():
        leaf.attach_grad()
    with mxnet.autograd.record():
        values = forward()
    mxnet.autograd.backward(values, [array(scale) for scale in sequences.scales(widths)])
    slopes = {name: leaf.grad.asnumpy() for name, leaf in leaves.items()}
    of_states = {part: slopes[_STATES[part]] for part in widths}
    gradients = sequences.gradients(slopes["data"], of_states, {"params": slopes["parameters"]})
    return {**outputs(*(value.asnumpy() for value in values)), "gradients": gradients}
