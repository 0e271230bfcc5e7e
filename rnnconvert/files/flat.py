"""The sizes in a flat vector of parameters, which does not describe itself: from the file around it, or the options."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from rnnconvert.core.errors import NotALayerError, RnnConvertError, UnreadableError, UsageError
from rnnconvert.core.limits import FLAT_LAYERS, SIZE
from rnnconvert.core.names import is_count
from rnnconvert.core.remedies import Setting
from rnnconvert.core.weights import BIAS_PARTS
from rnnconvert.files.options import Options
from rnnconvert.language.layout import Layout, Sizes
from rnnconvert.language.places import shapes

_KEYS = {
    "cell": "mode",
    "hidden_size": "state_size",
    "num_layers": "num_layers",
    "bidirectional": "bidirectional",
    "projection_size": "projection_size",
    "input_size": "input_size",
    "input_mode": "input_mode",
}
"""The options that describe a vector, and what files call these facts."""

Description = Mapping[str, str]
"""A file's statements about a vector, in MXNet's words: mode, state_size, num_layers, bidirectional, projection_size, and input_mode
(linear or skip) and input_size, which MXNet does not state."""


def sizes(
    path: Path, possible: Sequence[Layout], name: str, length: int, description: Description, options: Options
) -> tuple[Layout, Sizes]:
    """Return layout and sizes of a flat vector of that length.

    The width of the input is what is left of the length. What neither file nor options say becomes a Question.

    Raises NotALayerError with what has to be said before the vector can be read, UnreadableError for sizes in the file that it
    does not have, UsageError for such sizes in the options.
    """
    described = _described(description)
    mode, hidden = (described.get(key) or options.get(key, name) for key in ("cell", "hidden_size"))
    if not mode or not hidden:
        raise NotALayerError(
            f"a flat vector does not describe its sizes, and no description was found. Give {Setting('cell', '...')} and "
            f"{Setting('hidden_size', '...')}, and num_layers, bidirectional or projection_size where they are not 1, false and 0"
        )
    asked = any(options.peek(key, name) is not None for key in _KEYS)
    problem: Callable[[str], RnnConvertError] = UsageError if asked else lambda text: UnreadableError(path, text)
    facts = {key: options.stated(key, name, value, "what describes the vector") for key, value in described.items()}
    mode, units = facts.get("cell", mode), int(facts.get("hidden_size", hidden))
    kind, _, function = mode.partition("_")
    layout = next(
        (candidate for candidate in possible if candidate.kind == kind and (function or "tanh") in candidate.holds.activations), None
    )
    if layout is None:
        raise problem(f"{name!r} has the mode {mode!r}, and may belong to {' or '.join(candidate.name for candidate in possible)}")
    sizes = _sizes(layout, units, _Described(name, facts, bool(described), options), problem)
    column = sizes.num_directions * len(layout.order) * units
    ((least,),) = shapes(layout, sizes).values()
    width = units if sizes.skip_input else 1 + (length - least) // column
    fits = length == least if sizes.skip_input else width >= 1 and (length - least) % column == 0
    said_width = int(facts.get("input_size") or options.get("input_size", name) or width)
    if not fits or width != said_width:
        more = "" if sizes.skip_input else f" and {column} more for each input after the first"
        raise problem(
            f"{name!r} has {length} numbers, but {mode} with {units} units, {sizes.num_layers} layers, "
            f"{sizes.num_directions} directions and a projection to {sizes.projection_size} has {least}{more}"
            + (f": that is {width} inputs, not {said_width}" if fits else "")
        )
    return layout, replace(sizes, input_size=width)


def _described(description: Description) -> dict[str, str]:
    """Return a file's statements about a vector, by the options' keys; 0 and an empty text state nothing."""
    numbers = ("hidden_size", "num_layers", "projection_size", "input_size")
    described = {key: description[word] for key, word in _KEYS.items() if description.get(word)}
    described = {key: value for key, value in described.items() if key not in numbers or _number(value)}
    if "bidirectional" in described:
        words = {"true": "true", "1": "true", "false": "false", "0": "false"}
        described["bidirectional"] = words.get(described["bidirectional"].lower(), described["bidirectional"])
    return described


class _Described(NamedTuple):
    """The facts about a vector.

    facts      the statements of its description
    described  whether it has a description, in which case a fact that it omits is absent
    """

    name: str
    facts: Mapping[str, str]
    described: bool
    options: Options

    def fact(self, key: str, absent: str, held: bool) -> str:
        """Return a fact as it is stated, given or, where a layout holds others than the absent, asked for."""
        if key in self.facts:
            return self.facts[key]
        if self.described or not held:
            return self.options.get(key, self.name) or absent
        return self.options.ask(key, self.name, assumed=absent, why="a flat vector does not describe itself")


def _sizes(layout: Layout, hidden: int, described: _Described, problem: Callable[[str], RnnConvertError]) -> Sizes:
    """Return the sizes that are given, with one input."""
    name, fact, holds = described.name, described.fact, layout.holds
    if described.facts.get("bidirectional", "true") not in ("true", "false"):
        raise problem(f"{name!r} is said to be bidirectional={described.facts['bidirectional']}")
    layers = int(fact("num_layers", "1", holds.layers))
    directions = 2 if fact("bidirectional", "false", holds.directions > 1) == "true" else 1
    projection = int(fact("projection_size", "0", "projection" in layout.part_names))
    skip = fact("input_mode", "linear", holds.skip_input) == "skip" or "input" not in layout.part_names
    if not (0 < hidden <= SIZE and 0 < layers <= FLAT_LAYERS and 0 <= projection <= hidden):
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
    return Sizes(layout.kind, hidden if skip else 1, hidden, layers, directions, projection, frozenset(parts), skip)


def _number(value: str) -> int:
    """Return a number that the file states; 0 where it states none."""
    return int(value) if is_count(value) and len(value) < 10 else 0
