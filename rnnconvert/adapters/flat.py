"""The sizes in a flat vector of parameters, which says nothing of itself: from what stands beside it, or the options."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from rnnconvert.errors import RnnConvertError, UnreadableError, UsageError
from rnnconvert.layout import Form, Layout, shapes
from rnnconvert.options import Options
from rnnconvert.weights import BIAS_PARTS

_MOST = 1 << 24
_MOST_LAYERS = 4096
_ASKED = ("cell", "hidden_size", "num_layers", "bidirectional", "projection_size", "input_size", "input_mode")

Told = Mapping[str, str]
"""What a file says of a vector, in MXNet's words: mode, state_size, num_layers, bidirectional, projection_size, and
input_mode (linear or skip) and input_size, which MXNet does not say."""


def sizes(
    path: Path, possible: Sequence[Layout], name: str, length: int, said: Told, options: Options
) -> tuple[Layout, Form] | str:
    """Layout and form of a flat vector of that length, or what has to be said before it can be read.

    The width of the input is what is left of the length. What the options say goes before what the file says.

    Raises UnreadableError for sizes of the file that the vector has not, UsageError for such of the options.
    """
    mode = options.get("cell", name) or said.get("mode", "")
    hidden = options.number("hidden_size", _number(said, "state_size"), name)
    if not mode or not hidden:
        return (
            "a flat vector of parameters says nothing of itself, and nothing beside it does: say --set cell=... "
            "and --set hidden_size=..., and num_layers, bidirectional or projection_size where they are not 1, false and 0"
        )
    asked = any(options.get(key, name) is not None for key in _ASKED)
    problem: Callable[[str], RnnConvertError] = UsageError if asked else lambda text: UnreadableError(path, text)
    kind, _, function = mode.partition("_")
    layout = next((one for one in possible if one.kind == kind and (function or "tanh") in one.holds.activations), None)
    if layout is None:
        raise problem(f"{name!r} is of the mode {mode!r}, and may be of {' or '.join(one.name for one in possible)}")
    form = _form(layout, hidden, name, said, options, problem)
    column = form.num_directions * len(layout.order) * hidden
    ((least,),) = shapes(layout, form).values()
    width = hidden if form.skip_input else 1 + (length - least) // column
    fits = length == least if form.skip_input else width >= 1 and (length - least) % column == 0
    told = options.number("input_size", 0 if asked else _number(said, "input_size"), name) or width
    if not fits or width != told:
        more = "" if form.skip_input else f" and {column} more for each input after the first"
        raise problem(
            f"{name!r} has {length} numbers, and {mode} with {hidden} units, {form.num_layers} layers, "
            f"{form.num_directions} directions and a projection to {form.projection_size} has {least}{more}"
            + (f": that is {width} inputs, and not {told}" if fits else "")
        )
    return layout, replace(form, input_size=width)


def _form(
    layout: Layout, hidden: int, name: str, said: Told, options: Options, problem: Callable[[str], RnnConvertError]
) -> Form:
    """The form that is told, with one input."""
    two = options.get("bidirectional", name) or said.get("bidirectional", "false")
    layers = options.number("num_layers", _number(said, "num_layers") or 1, name)
    projection = options.number("projection_size", _number(said, "projection_size"), name)
    skip = (options.get("input_mode", name) or said.get("input_mode", "linear")) == "skip"
    skip = skip or "input" not in layout.part_names
    directions = 2 if two.lower() in ("true", "1") else 1
    if not (0 < hidden <= _MOST and 0 < layers <= _MOST_LAYERS and 0 <= projection <= hidden):
        raise problem(f"{name!r} has {hidden} units, {layers} layers and a projection to {projection}")
    for wrong, what in (
        (projection and "projection" not in layout.part_names, "projection"),
        (skip and not layout.holds.skip_input, "input that is read unweighted"),
        (layers > 1 and not layout.holds.layers, "layer above the first"),
        (directions > layout.holds.directions, "second direction"),
    ):
        if wrong:
            raise problem(f"{name!r} is a {layout.kind}, which has no {what} in {layout.class_name}")
    parts = ({"input", "recurrent", *BIAS_PARTS} & layout.part_names) | ({"projection"} if projection else set())
    return Form(layout.kind, hidden if skip else 1, hidden, layers, directions, projection, frozenset(parts), skip)


def _number(said: Told, key: str) -> int:
    """A number that the file says; 0 where it says none."""
    value = said.get(key, "")
    return int(value) if value.isdecimal() and len(value) < 10 else 0
