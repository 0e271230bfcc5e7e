"""The sizes in MXNet's flat vector of parameters: from the graph beside the file, or from the options."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from rnnconvert.adapters.mxnet_symbol import Told
from rnnconvert.errors import RnnConvertError, UnreadableError, UsageError
from rnnconvert.layout import Form, Layout, shapes
from rnnconvert.options import Options

_MOST = 1 << 24
_MOST_LAYERS = 4096


def sizes(
    path: Path, possible: Sequence[Layout], name: str, length: int, said: Told, options: Options
) -> tuple[Layout, Form] | str:
    """Layout and form of a flat vector of that length, or what has to be said before it can be read.

    The width of the input is what is left of the length. A number in the options goes before the graph's.

    Raises UnreadableError for sizes of the graph that the vector has not, UsageError for such of the options.
    """
    mode = options.get("cell", name) or said.get("mode", "")
    hidden = options.number("hidden_size", _number(said, "state_size"), name)
    if not mode or not hidden:
        return (
            "a flat vector of parameters says nothing of itself, and no graph beside the file does: say --set cell=... "
            "and --set hidden_size=..., and num_layers, bidirectional or projection_size where they are not 1, false and 0"
        )
    asked = [key for key in ("cell", "hidden_size", "num_layers", "bidirectional", "projection_size", "input_size")
             if options.get(key, name) is not None]  # fmt: skip
    problem: Callable[[str], RnnConvertError] = UsageError if asked else lambda text: UnreadableError(path, text)
    layout = next((one for one in possible if one.kind == mode.partition("_")[0]), None)
    if layout is None:
        raise problem(f"{name!r} is of the mode {mode!r}; there are rnn_relu, rnn_tanh, lstm and gru")
    two = options.get("bidirectional", name) or said.get("bidirectional", "false")
    layers = options.number("num_layers", _number(said, "num_layers") or 1, name)
    projection = options.number("projection_size", _number(said, "projection_size"), name)
    if not (0 < hidden <= _MOST and 0 < layers <= _MOST_LAYERS and 0 <= projection <= hidden):
        raise problem(f"{name!r} has {hidden} units, {layers} layers and a projection to {projection}")
    if projection and layout.kind != "lstm":
        raise problem(f"{name!r} is a {layout.kind}, which has no projection in MXNet")
    directions = 2 if two.lower() in ("true", "1") else 1
    parts = frozenset({"input", "recurrent", "input_bias", "recurrent_bias", *(["projection"] if projection else [])})
    form = Form(layout.kind, 1, hidden, layers, directions, projection, parts)
    ((least,),) = shapes(layout, form).values()
    column = directions * len(layout.order) * hidden
    width = 1 + (length - least) // column
    if width < 1 or (length - least) % column or width != options.number("input_size", width, name):
        raise problem(
            f"{name!r} has {length} numbers, and {mode} with {hidden} units, {layers} layers, {directions} directions "
            f"and a projection to {projection} has {least} and {column} more for each input after the first"
        )
    return layout, Form(layout.kind, width, hidden, layers, directions, projection, parts)


def _number(said: Told, key: str) -> int:
    """A number of the graph; 0 where it says none."""
    value = said.get(key, "")
    return int(value) if value.isdecimal() and len(value) < 10 else 0
