"""One cell of MXNet's, from its arrays."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rnnconvert.core.cells import RELU, TANH, Activation, Cell, Clip
from rnnconvert.core.errors import UnreadableError
from rnnconvert.files.flat import Description
from rnnconvert.files.options import Options
from rnnconvert.language.layout import Layout, Sizes

NAME = "mxnet"

_ROLES = {"activation": "activation", "recurrent_activation": "gate_activation", "output_activation": "output_activation"}
"""The functions that the steps of a graph state, by our names for them."""


def cell_of(where: Path, layout: Layout, name: str, description: Description, step: Mapping[str, str], options: Options) -> Cell:
    """Return the cell of a layer; what the file leaves open is asked."""
    mode = description.get("mode", "")
    kind: Any = layout.kind
    if mode and not mode.startswith(kind):
        raise UnreadableError(where, f"{name!r} has the arrays of a {kind} there, but mode={mode}")
    clips = tuple(Clip("state", *bounds) for bounds in [_clip(where, name, description)] if bounds is not None)
    if kind != "rnn":
        cell = Cell(kind, layout.reset_after, clips=clips)
        for option, role in _ROLES.items():
            if option in step:
                word = options.stated(option, name, step[option], "the graph")
                cell = cell.replace(**{role: Activation(word)})
        return cell if step or layout.name != f"{NAME}.lstm_cell" else _as_made(cell, layout, name, options)
    function = mode.removeprefix("rnn_")
    if not function and layout.name == "mxnet.rnn_flat":
        function = (options.get("cell", name) or "").removeprefix("rnn_")
    if "activation" in step:
        word = options.stated("nonlinearity", name, step["activation"], "the graph", ("activation",))
        return Cell(kind, activation=Activation(word))
    if function:
        function = options.stated("nonlinearity", name, function, "the graph" if mode else "the option cell")
    else:
        default = "tanh" if layout.name == "mxnet.rnn_cell" else "relu"
        why = f"parameters do not hold an RNN's function; {default} is the default of {layout.class_name}"
        function = options.ask("nonlinearity", name, assumed=default, why=why)
    return Cell(kind, activation={"tanh": TANH, "relu": RELU}[function])


def _as_made(cell: Cell, layout: Layout, name: str, options: Options) -> Cell:
    """Return an LSTMCell with the functions that it was made with, by asking for them."""
    why = f"parameters do not hold the functions of {layout.class_name}, which are arguments of it"
    choices = ("tanh", "sigmoid", "relu", "softsign")
    candidate = options.ask("activation", name, assumed="tanh", why=why, choices=choices)
    gates = options.ask("recurrent_activation", name, assumed="sigmoid", why=why, choices=choices)
    function = Activation(candidate)
    return cell.replace(activation=function, output_activation=function, gate_activation=Activation(gates))


def check_sizes(where: Path, name: str, sizes: Sizes, description: Description) -> None:
    """Raise UnreadableError for sizes in the graph that the arrays do not have."""
    expected = {
        "state_size": sizes.hidden_size,
        "num_layers": sizes.num_layers,
        "projection_size": sizes.projection_size,
        "bidirectional": sizes.num_directions == 2,
    }
    for key in ("mode", "state_size", "num_layers"):
        if description and key not in description:
            raise UnreadableError(where, f"{name!r} has an RNN operator without {key} there, which it must have")
    for key, size in expected.items():
        text = description.get(key, "None")
        stated: object = text.lower() in ("true", "1") if key == "bidirectional" else text
        if key == "bidirectional" and text.lower() not in ("true", "false", "1", "0", "none"):
            raise UnreadableError(where, f"{name!r} has bidirectional={text} there, expected True or False")
        if text != "None" and str(stated) != str(size):
            raise UnreadableError(where, f"{name!r} has {key}={text} there, but its arrays are for {size}")


def _clip(where: Path, name: str, description: Description) -> tuple[float, float] | None:
    bounds = [description.get(f"lstm_state_clip_{end}", "None") for end in ("min", "max")]
    if bounds == ["None", "None"]:
        return None
    try:
        low, high = map(float, bounds)
    except ValueError:
        raise UnreadableError(where, f"{name!r} has the clip {bounds}, expected two numbers") from None
    if not low <= high:
        raise UnreadableError(where, f"{name!r} has the clip {bounds}, expected the lower bound first")
    return low, high
