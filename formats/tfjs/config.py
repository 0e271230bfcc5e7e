"""The configuration of a recurrent layer, as a model states it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rnnconvert.core.weights import Recurrent

EVERY_STEP: Mapping[str, bool] = {"return_sequences": True, "return_state": False, "stateful": False}
"""The settings under which a layer gives all of its steps to the next one."""


def described(single: Recurrent, name: str, settings: Mapping[str, bool], merge: str | None) -> dict[str, Any]:
    """Return a layer as the model's configuration has it.

    single    the layer, as a stack of one
    settings  what it gives and keeps: "return_sequences", "return_state", "stateful"
    merge     how it joins two directions
    """
    (layer,) = single.layers
    cell, directions = single.cell, layer.directions
    kind = {"lstm": "LSTM", "gru": "GRU", "rnn": "SimpleRNN"}[cell.kind]
    config: dict[str, Any] = {
        "name": name,
        "trainable": True,
        "units": single.hidden_size,
        "activation": cell.activation.name,
        **settings,
        "unroll": False,
        "use_bias": directions[0].biases != "none",
        "go_backwards": len(directions) == 1 and directions[0].reverse,
    }
    config |= {} if kind == "SimpleRNN" else {"recurrent_activation": cell.gate_activation.name}
    config |= {"reset_after": False} if kind == "GRU" else {}
    if len(directions) == 1:
        return {"class_name": kind, "config": config}
    inner = {"class_name": kind, "config": config | {"name": name}}
    return {"class_name": "Bidirectional", "config": {"name": name, "trainable": True, "merge_mode": merge, "layer": inner}}
