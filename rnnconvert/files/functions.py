"""The functions and bounds of a cell that arrays do not show: asked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from rnnconvert.core.cells import ACTIVATION_DEFAULTS, Activation, Cell, Clip
from rnnconvert.core.remedies import Setting
from rnnconvert.files.catalogue import OPTIONS
from rnnconvert.files.found_layer import FoundLayer
from rnnconvert.files.options import Options
from rnnconvert.language.layout import Layout


class _CellFunction(NamedTuple):
    """A function of a cell that an option decides: the cell's field, and what it is called in questions."""

    field: str
    words: str


_FUNCTIONS = {
    "activation": _CellFunction("activation", "function"),
    "recurrent_activation": _CellFunction("gate_activation", "gates' function"),
    "output_activation": _CellFunction("output_activation", "output's function"),
}


def function_of(group: FoundLayer, options: Options, allowed: Sequence[str | Activation], default: Activation, option: str) -> Activation:
    """Return the function that a caller decides, or the usual one; no question is open where there is only one.

    Raises UsageError for a function that the layout does not have.
    """
    held = [name for name in allowed if name != "any"]
    held += ACTIVATION_DEFAULTS if len(held) < len(allowed) else ()
    functions = {str(function): function if isinstance(function, Activation) else Activation(function) for function in held}
    functions = {name: function for name, function in functions.items() if name in (OPTIONS[option].choices or functions)}
    if len(functions) < 2:
        return default
    plain = option == "activation" and functions.keys() <= {*OPTIONS["nonlinearity"].choices}
    why = f"the arrays of {class_in_words(group.layout)} do not show its {_FUNCTIONS[option].words}"
    keys = {"nonlinearity": ("activation",), "activation": ("nonlinearity",)}
    asked = "nonlinearity" if plain else option
    answer = options.ask((asked, *keys.get(asked, ())), group.name, assumed=str(default), why=why, choices=tuple(functions))
    return functions.get(answer, default)


def with_functions(cell: Cell, layout: Layout, name: str, options: Options) -> Cell:
    """Return a cell with the functions that its class takes as arguments and its files do not hold, by asking for them."""
    for option in layout.holds.asked_functions:
        function = _FUNCTIONS[option]
        default = getattr(cell, function.field)
        why = f"{class_in_words(layout)} takes its {function.words} as an argument, which files do not hold"
        choices = OPTIONS[option].choices or tuple(ACTIVATION_DEFAULTS)
        answer = options.ask(option, name, assumed=str(default), why=why, choices=choices)
        cell = cell.replace(**{function.field: default if answer == str(default) else Activation(answer)})
        if option == "activation" and layout.kind == "lstm" and "output_activation" not in layout.holds.asked_functions:
            cell = cell.replace(output_activation=cell.activation)
    return cell


_BOUNDS = {"cell": "cell_clip", "state": "cell_clip", "projection": "proj_clip"}
"""The option that gives the bound of each kind of clip."""


def why_clips_are_open(group: FoundLayer, options: Options) -> str:
    """Return why a layer cannot be read before the bounds of its clips are known; "" where they are."""
    for kind in group.layout.holds.open_clips:
        option = _BOUNDS.get(kind, "")
        if options.peek("clip", group.name) == "none" or (option and options.peek(option, group.name) is not None):
            continue
        return (
            f"{class_in_words(group.layout)} may have a clip of its {kind}, but its arrays do not show the bounds; "
            + (f"give {Setting(option, 'NUMBER', 'none')}" if option else f"give {Setting('clip', 'none')} if there is none")
            + f', or write the bounds in the layout: clips = [{{ kind = "{kind}", low = ..., high = ... }}]'
        )
    return ""


def clips_of(group: FoundLayer, options: Options) -> list[Clip]:
    """Return the clips whose bounds a caller gives, by asking for them."""
    clips = []
    for kind in group.layout.holds.open_clips:
        option = _BOUNDS.get(kind, "clip")
        if options.get("clip", group.name) == "none" and options.get(option, group.name) in (None, "none"):
            continue  # none of any kind, said once or for each
        why = f"the arrays of {class_in_words(group.layout)} do not show the bounds of a clip of its {kind}"
        clip_kind: Any = kind
        bound = options.ask(option, group.name, assumed="none", why=why)
        clips += [] if bound == "none" else [Clip(clip_kind, -abs(float(bound)), abs(float(bound)))]
    return clips


def as_chosen(group: FoundLayer, cell: Cell, options: Options) -> Cell:
    """Return the cell with the arguments of its class that arrays do not show, by asking for them."""
    holds, called = group.layout.holds, class_in_words(group.layout)
    if "f" in holds.chosen:
        why = f"the arrays of {called} do not show what is added to gate f at run time"
        bias = options.ask("forget_bias", group.name, assumed=str(holds.constants.get("f", 0.0)), why=why)
        cell = cell.replace(constants={**cell.constants, "f": 0.0 if bias == "none" else float(bias)})
    if holds.coupled and not group.layout.coupled:
        why = f"the arrays of {called} do not show whether one gate derives another"
        gate: Any = options.ask("input_forget", group.name, assumed="none", why=why, choices=("none", *holds.coupled))
        cell = cell.replace(coupled="" if gate == "none" else gate)
    return cell


def class_in_words(layout: Layout) -> str:
    return layout.class_name or layout.name
