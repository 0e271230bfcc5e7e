"""A user's description of layouts in a TOML file: the same data as a module of rnnconvert.formats.

    [system]                                # optional
    title = "Our trainer"
    versions = "since 2.1"
    proof = "executed: our own test suite"

    [[layout]]
    name = "ours.lstm"                      # what --to and --from call it, a dot, and the cell
    kind = "lstm"
    gates = "i f g o"                       # as they are stacked; -z where the update gate has the other sign
    tensors = [
        { name = "kernel", parts = "input recurrent", axes = "(part in) (gate hidden)" },
        { name = "bias", parts = "input_bias", axes = "(gate hidden)" },
    ]
    holds = { biases = ["input"], constants = { f = 1.0 }, layers = false, directions = 1 }

    [[array]]                               # optional: arrays that the file calls otherwise, or has in one vector
    name = "kernel"
    from = "arr_0"

The fields are as in rnnconvert.language.layout: Layout, Tensor, Holds, System and Cut.
"""

from __future__ import annotations

import itertools
import math
import os
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from rnnconvert.core.arrays import FLOATS
from rnnconvert.core.cells import ACTIVATION_DEFAULTS, GATES, Activation, Clip
from rnnconvert.core.errors import UnreadableError
from rnnconvert.core.limits import TEXT_BYTES
from rnnconvert.core.names import first_twice
from rnnconvert.core.text_file import read_text
from rnnconvert.core.weights import BIAS_PARTS, gates_of
from rnnconvert.language import registry
from rnnconvert.language.layout import UNUSED, Cut, Holds, Layout, Sizes, System, Tensor
from rnnconvert.language.places import shapes, slots
from rnnconvert.language.toml_fields import WrongLayoutError, fields_of, list_of, only_keys, texts_of

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_AXES = ("section", "layer", "direction", "part", "gate", "hidden", "in", "1")
_PARTS = ("input", "recurrent", "input_bias", "recurrent_bias", "peephole", "projection", "initial_hidden", "initial_cell")
_NAME = re.compile(r"[a-z][a-z0-9_-]*\.[a-z][a-z0-9_]*")
_LSTM = ("peephole", "projection", "initial_cell")


def read(path: Path) -> list[Layout | System]:
    """Return the layouts of a file, and what it says about their framework.

    Raises UnreadableError naming the layout, the field, what it says and what it may say.
    """
    return parsed(read_text(path, TEXT_BYTES), path)


def parsed(text: str, path: Path) -> list[Layout | System]:
    """Return the layouts that the text of a layout file describes, as `read` does."""
    try:
        document = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise UnreadableError(path, f"it is not valid TOML: {error}") from None
    try:
        return list(_read(document))
    except WrongLayoutError as error:
        raise UnreadableError(path, str(error), "docs/layouts.md explains every field, with examples.") from None


def add_layouts(path: str | os.PathLike[str]) -> None:
    """Add the layouts of a file for the rest of this process; given again, they replace the earlier ones.

    Raises UnreadableError if the file does not describe layouts, UsageError if it uses the name of an existing format.
    """
    registry.add(read(Path(path)))


def _read(document: Mapping[str, Any]) -> Iterator[Layout | System]:
    only_keys(document, {"system", "layout", "array"}, "the file")
    tables = document.get("layout", [])
    if not isinstance(tables, list) or not tables or not all(isinstance(table, dict) for table in tables):
        raise WrongLayoutError("it has no [[layout]] table")
    layouts = [_layout(fields) for fields in tables]
    frameworks = {layout.framework for layout in layouts}
    if len(frameworks) > 1:
        raise WrongLayoutError(f"its layouts belong to {' and '.join(sorted(frameworks))}; a file describes one framework")
    names = [layout.name for layout in layouts]
    twice = first_twice(names)
    if twice:
        raise WrongLayoutError(f"two of its layouts are called {twice!r}")
    yield from layouts
    system_fields = fields_of(System, document.get("system", {}), "system", {"name", "cuts"})
    system_fields["cuts"] = tuple(_cut(entry) for entry in list_of(document.get("array", []), "array"))
    notes = texts_of(system_fields.pop("notes", []), "system, notes")
    defaults = {"title": layouts[0].framework, "versions": "", "proof": "none: as its own user describes it"}
    yield System(layouts[0].framework, notes=notes, **{**defaults, **system_fields})


def _cut(table: Any) -> Cut:
    only_keys(table, {"name", "from", "start", "shape", "steps"}, "array")
    name, source = table.get("name"), table.get("from")
    where = f"array {name!r}"
    if not all(isinstance(text, str) and text for text in (name, source)):
        raise WrongLayoutError(f'{where}: expected a name, and the array of the file: name = "W", from = "arr_0"')
    numbers = {key: list_of(table.get(key, []), f"{where}, {key}") for key in ("shape", "steps")}
    numbers["start"] = [table.get("start", 0)]
    for key, values in numbers.items():
        if any(type(value) is not int or not (key == "shape") <= value < 1 << 40 for value in values) or len(values) > 2:
            raise WrongLayoutError(f"{where}: {key} is {table[key]!r}, expected whole numbers, at most two")
    if "steps" not in table:
        numbers["steps"] = [math.prod(numbers["shape"][axis + 1 :]) for axis in range(len(numbers["shape"]))]
    if len(numbers["shape"]) != len(numbers["steps"]):
        raise WrongLayoutError(f"{where}: expected as many steps as the shape has lengths")
    return Cut(str(name), str(source), numbers["start"][0], tuple(numbers["shape"]), tuple(numbers["steps"]))


def _layout(table: Mapping[str, Any]) -> Layout:
    name = table.get("name")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise WrongLayoutError(f"a layout's name is {name!r}, expected one like 'ours.lstm': the framework, a dot, the cell")
    fields = fields_of(Layout, table, name, set())
    kind = fields.get("kind")
    if kind not in GATES:
        raise WrongLayoutError(f"{name}: kind is {kind!r}, expected one of {', '.join(GATES)}")
    letters = str(fields.get("gates", "")).split()
    coupled = fields.get("coupled", "")
    if coupled not in ("", "i", "f") or (coupled and kind != "lstm"):
        raise WrongLayoutError(f"{name}: coupled is {coupled!r}; an lstm may have 'i' or 'f', others have none")
    expected = [gate for gate in GATES[kind] if gate != coupled]
    if sorted(letter.lstrip("-") for letter in letters) != sorted(expected):
        raise WrongLayoutError(f"{name}: gates are {' '.join(letters)!r}, expected {' '.join(expected)!r} in some order")
    if any(letter[0] == "-" and letter != "-z" for letter in letters):
        raise WrongLayoutError(f"{name}: only the update gate can have the other sign: -z")
    if (kind == "gru") != isinstance(fields.get("reset_after"), bool):
        raise WrongLayoutError(
            f"{name}: reset_after is {fields.get('reset_after')!r}; a gru says true or false (its reset gate after or "
            "before the recurrent product), other cells leave it out"
        )
    tensors = fields.get("tensors", ())
    if not isinstance(tensors, list) or not tensors or not all(isinstance(entry, dict) for entry in tensors):
        raise WrongLayoutError(f"{name}: tensors is {tensors!r}, expected a list of tables with name, parts and axes")
    fields["tensors"] = tuple(_tensor(entry, f"{name}, tensor {index}") for index, entry in enumerate(tensors))
    odd = next((part for tensor in fields["tensors"] for part in tensor.part_names if part in _LSTM), None)
    if odd and kind != "lstm":
        raise WrongLayoutError(f"{name}: {odd} is a part of an lstm, but this is a {kind}")
    fields["holds"] = holds(fields.get("holds", {}), kind, name)
    if "spelling" in fields:
        fields["spelling"] = texts_of(fields["spelling"], f"{name}, spelling")
        if len(fields["spelling"]) != 2:
            raise WrongLayoutError(f"{name}: spelling is {table['spelling']!r}, expected one word for each direction")
    if not isinstance(fields.get("alone", ""), str):
        raise WrongLayoutError(f"{name}: alone is {fields['alone']!r}, expected text")
    layout = Layout(**{"source": "", **fields})
    for tensor in layout.tensors:
        if len(layout.spelt(tensor)) != len(layout.order):
            raise WrongLayoutError(
                f"{name}: letters are {' '.join(layout.spelt(tensor))!r}, expected one for each of {' '.join(letters)!r}"
            )
        odd = next((gate for gate in _gates_of(tensor) if gate not in (*GATES[kind], UNUSED)), None)
        if odd:
            raise WrongLayoutError(f"{name}: {tensor.parts!r} has the gate {odd!r}, expected some of {', '.join(GATES[kind])}")
    _check(layout)
    return layout


def _tensor(table: Mapping[str, Any], where: str) -> Tensor:
    fields = fields_of(Tensor, table, where, set())
    examples = {"name": "kernel", "parts": "input recurrent", "axes": "(gate hidden) in"}
    for key, example in examples.items():
        if key not in fields:
            raise WrongLayoutError(f'{where}: {key} is missing; add it, as in {key} = "{example}"')
        if not isinstance(fields[key], str) or not fields[key]:
            raise WrongLayoutError(f'{where}: {key} is {fields[key]!r}, expected text, as in {key} = "{example}"')
    tensor = Tensor(**fields)
    words = [word for group in tensor.groups for word in group]
    odd = next((word for word in words if word not in _AXES), None)
    if odd or len(set(words) - {"1"}) < len(words) - words.count("1"):
        raise WrongLayoutError(f"{where}: axes are {tensor.axes!r}, expected words out of {' '.join(_AXES)}, each once")
    if {"section", "part"} <= set(words) and words.index("part") < words.index("section"):
        raise WrongLayoutError(f"{where}: axes are {tensor.axes!r}; write section before part, since each section has its own parts")
    odd = next((part for part in tensor.part_names if part not in _PARTS), None)
    if odd or not tensor.part_names:
        raise WrongLayoutError(f"{where}: parts are {tensor.parts!r}, expected some of {' '.join(_PARTS)}")
    if tensor.layers not in ("", "first", "above"):
        raise WrongLayoutError(f"{where}: layers is {tensor.layers!r}, expected 'first' or 'above'")
    unknown = set(re.findall(r"\{(\w*)\}", tensor.name)) - {"layer", "direction", "gate", "pseudo_layer"}
    if unknown or tensor.name.count("{") != len(re.findall(r"\{\w+\}", tensor.name)):
        raise WrongLayoutError(
            f"{where}: the name is {tensor.name!r}; {{layer}}, {{direction}}, {{pseudo_layer}} and {{gate}} are filled in"
        )
    return tensor


def _gates_of(tensor: Tensor) -> Iterator[str]:
    """Yield the gates that a tensor names for individual parts."""
    yield from (gate for section in tensor.sections for _, gates_held in section for gate in gates_held or ())


def _check(layout: Layout) -> None:
    """Raise _WrongError unless every element of every array belongs to one gate, once, and every gate has its place."""
    for sizes in _forms(layout):
        wanted = {
            (layer, direction, (part, gate))
            for layer, direction in np.ndindex(sizes.num_layers, sizes.num_directions)
            for part in sizes.parts
            for gate in gates_of(sizes.kind, part)
            if (part not in BIAS_PARTS or (part, gate) in layout.keys) and (not gate or gate != layout.coupled)
        }
        try:
            arrays = {name: np.zeros(shape, int) for name, shape in shapes(layout, sizes).items()}
            places = list(slots(layout, sizes))
            for slot in places:
                slot.place.view(arrays[slot.array])[...] += 1
        except ValueError as error:
            raise WrongLayoutError(str(error)) from None
        except (KeyError, IndexError):  # axes that a part has not, or two arrays of one name
            raise WrongLayoutError(
                f"{layout.name}: its tensors do not hold their parts. A matrix has the axes hidden and in (and gate, where "
                "it is one of several), a vector hidden, and every array its own name"
            ) from None
        counts = Counter((slot.layer, slot.direction, slot.key) for slot in places if slot.key[1] != UNUSED)
        twice = next(((part, gate) for (_, _, (part, gate)), count in counts.items() if count > 1), None)
        wanted -= counts.keys()
        if wanted:
            layer, direction, (part, gate) = min(wanted)
            raise WrongLayoutError(f"{layout.name} has no place for the {part} of gate {gate!r} (layer {layer}, direction {direction})")
        if twice:
            raise WrongLayoutError(f"{layout.name} has two places for the {twice[0]} of gate {twice[1]!r}")
        shared = len(set(layout.letters.split())) < len(layout.letters.split())
        odd = next((name for name, array in arrays.items() if not (array == 1).all() and not shared), None)
        if odd is not None:
            raise WrongLayoutError(f"{layout.name}: some elements of {odd!r} belong to two gates or to none")


def _forms(layout: Layout) -> Iterator[Sizes]:
    """Yield the sizes of a small stack for each number of layers and directions that the layout holds."""
    held = layout.part_names
    parts = frozenset({"input", "recurrent"} | (held & {*BIAS_PARTS, *_LSTM, "initial_hidden"}))
    size = 2 if "projection" in parts else 0
    ways = range(1, layout.holds.directions + 1)
    for layers, directions in itertools.product((1, 2) if layout.holds.layers else (1,), ways):
        yield Sizes(layout.kind, 5, 3, layers, directions, size, parts)


# The section of a layout file on what a layer can compute.

_CHOICES: dict[str, tuple[str, ...]] = {
    "biases": ("none", "input", "recurrent", "both"),
    "coupled": ("i", "f"),
    "merges": ("concat", "sum", "mul", "ave", "none"),
    "joins": ("layer", "end"),
    "reverse_order": ("time", "processing"),
    "dtypes": tuple(FLOATS),
    "output_activation": ("same", "any"),
}
"""The values that the words of `holds` may have."""


_CLIPS = ("gates", "cell", "state", "projection")


def holds(table: Mapping[str, Any], kind: str, where: str) -> Holds:
    if not isinstance(table, dict):
        raise WrongLayoutError(f"{where}: holds is {table!r}, expected a table")
    fields = fields_of(Holds, table, f"{where}, holds", set())
    for key in ("activations", "gate_activations"):
        if key in fields:
            fields[key] = tuple(_activation(entry, f"{where}, {key}") for entry in list_of(fields[key], f"{where}, {key}"))
            if not fields[key]:
                raise WrongLayoutError(f"{where}: {key} are empty, expected the functions that the cell has")
    if "clips" in fields:
        fields["clips"] = [_clip(entry, f"{where}, clips") for entry in list_of(fields["clips"], f"{where}, clips")]
    constants = fields.get("constants", {})
    if not isinstance(constants, dict) or not all(map(_finite, constants.values())) or set(constants) - {*GATES[kind]}:
        listed = ", ".join(GATES[kind])
        raise WrongLayoutError(f"{where}: constants are {constants!r}, expected a number for a gate ({listed}): {{ f = 1.0 }}")
    for key, choices in {**_CHOICES, "chosen": ("f",) if kind == "lstm" else ()}.items():
        parts = fields.get(key, [])
        for word in [parts] if isinstance(parts, str) else parts:
            if word not in choices:
                raise WrongLayoutError(f"{where}: {key} has {word!r}, expected some of {', '.join(choices)}")
    for key in ("biases", "dtypes", "joins"):
        if fields.get(key) == []:
            raise WrongLayoutError(f"{where}: {key} are empty, expected some of {', '.join(_CHOICES[key])}")
    directions = fields.get("directions", 2)
    if type(directions) is not int or directions not in (1, 2):
        raise WrongLayoutError(f"{where}: directions are {directions!r}, expected 1 or 2")
    changed: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in fields.items()}
    return Holds(**{"own_functions": True, **changed})


def _activation(entry: object, where: str) -> str | Activation:
    if (
        isinstance(entry, dict)
        and entry.keys() <= {"name", "alpha", "beta"}
        and entry.get("name") in list(ACTIVATION_DEFAULTS)
        and all(_finite(entry[key]) for key in entry.keys() - {"name"})
    ):
        return Activation(**entry)
    if entry == "any" or entry in list(ACTIVATION_DEFAULTS):
        return str(entry)
    raise WrongLayoutError(f"{where}: unknown function {entry!r}, expected one of {', '.join(ACTIVATION_DEFAULTS)}, or any")


def _clip(entry: object, where: str) -> str | Clip:
    """Return the kind of a clip whose bounds are arguments, or a clip with its bounds."""
    if entry in _CLIPS:
        return str(entry)
    if (
        isinstance(entry, dict)
        and entry.keys() == {"kind", "low", "high"}
        and entry["kind"] in list(_CLIPS)
        and _finite(entry["low"])
        and _finite(entry["high"])
        and entry["low"] <= entry["high"]
    ):
        return Clip(entry["kind"], float(entry["low"]), float(entry["high"]))
    raise WrongLayoutError(
        f"{where} has {entry!r}, expected some of {', '.join(_CLIPS)}, or a clip with fixed bounds: "
        '{ kind = "cell", low = -3.0, high = 3.0 }'
    )


def _finite(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
