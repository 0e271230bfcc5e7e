"""The possible counterparts of one layer of a file: a layer, layers that read one another, or two directions stored apart."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from rnnconvert.core.printable import quoted
from rnnconvert.core.weights import Directly, Input, Layer, Recurrent
from rnnconvert.rewrites import join_stack

DIRECTION = re.compile(r"(?:^|[_/.])(?:(forward|backward)|(?<=_)(0|1))$")
"""The names of a layer's directions that are stored apart, alone for a layer without a name; the numbers are those of two ONNX nodes."""

_SECOND = {"forward": "backward", "0": "1"}


@dataclass(frozen=True)
class Pieces:
    """A layer of a file, or several that may be one: their names in the file, and the name of the whole."""

    names: tuple[str, ...]
    name: str
    stack: Recurrent


def joined(names: Sequence[str], layers: Mapping[str, Recurrent]) -> Pieces:
    """Return layers as one. Raises ValueError if they neither read one another nor are two directions of one."""
    stacks = [layers[name] for name in names]
    if len(stacks) == 1:
        return Pieces(tuple(names), names[0], stacks[0])
    # One that reads from the end, behind one that it could read, is its backward direction only if the names say so.
    apart = len(stacks) == 2 and _are_directions(*stacks)
    if apart and (stacks[1].input_size != stacks[0].layers[-1].output_size or DIRECTION.search(names[1])):
        return Pieces(tuple(names), "+".join(names), _directions(*stacks))
    return Pieces(tuple(names), "+".join(names), join_stack(stacks))


def _are_directions(first: Recurrent, second: Recurrent) -> bool:
    """Return whether two layers look like the two directions of one: the same input, one from the start and one from the end."""
    alike = _parallel(first, second) and first.input_size == second.input_size
    return alike and not first.first.reverse and second.first.reverse


def _parallel(first: Recurrent, second: Recurrent) -> bool:
    return first.num_directions == second.num_directions == 1 and first.num_layers == second.num_layers


def _directions(forward: Recurrent, backward: Recurrent) -> Recurrent:
    """Return one stack of two directions that meet at the end. Raises ValueError if they do not receive the same."""
    if forward.calls != backward.calls:
        raise ValueError(f"{quoted(forward.name)} and {quoted(backward.name)} do not receive the same in the model")
    layers = tuple(Layer((layer.directions[0], other.directions[0])) for layer, other in zip(forward.layers, backward.layers, strict=True))
    join = "end" if len(layers) > 1 else "layer"
    readout, parts = (*forward.readout, *backward.readout), (*forward.sources, *backward.sources)
    return forward.replace(layers=layers, join=join, readout=readout, parts=parts)


def ways_as(unit: Pieces, model: Pieces) -> Recurrent:
    """Return the unit's stack; directions that are stored apart are joined as on the other side."""
    stack, other = unit.stack, model.stack
    apart = len(unit.names) > 1 and any(DIRECTION.search(name) for name in unit.names)
    if not apart or stack.num_layers != other.num_layers or other.num_directions != 2:
        return stack
    layers = tuple(Layer(mine.directions, theirs.merge) for mine, theirs in zip(stack.layers, other.layers, strict=True))
    return stack.replace(layers=layers)


def units(layers: Mapping[str, Recurrent]) -> list[Pieces]:
    """Return every layer, then what several may be together."""
    single = [Pieces((name,), name, stack) for name, stack in layers.items()]
    both = list(_both_directions(single))
    return [*single, *both, *_numbered([*single, *both])]


def _both_directions(wholes: Sequence[Pieces]) -> Iterator[Pieces]:
    named = {unit.name: unit for unit in wholes}
    for name, unit in named.items():
        parts = DIRECTION.search(name)
        if parts is None or (second := _SECOND.get(direction := parts[1] or parts[2])) is None:
            continue
        base = name[: parts.start()]
        other = named.get(name.removesuffix(direction) + second)
        numbered = second == "1" and not re.search(r"(^|_)l\d+$", base)
        if other is None or (numbered and not _are_directions(unit.stack, other.stack)):
            continue
        if _parallel(unit.stack, other.stack) and unit.stack.calls == other.stack.calls:
            yield Pieces((*unit.names, *other.names), base, _directions(unit.stack, other.stack))


def _stored_apart(stacks: Sequence[Recurrent]) -> list[Recurrent]:
    """Return layers without their calls if none of them reads a recurrent one: their file has them side by side."""
    apart = all(isinstance(call.sequence, Input) for stack in stacks for call in stack.calls)
    return [stack.replace(calls=()) if apart else stack for stack in stacks]


def _numbered(pieces: Sequence[Pieces]) -> Iterator[Pieces]:
    """Yield the runs NAME_l0, NAME_l1 and so on as one stack, l0 or layer_0 and so on of a stack without a name, and those
    of names that were taken: NAME, then NAME_1 (Keras) or NAME_2 (RTNeural) and so on, if each is stated to read the one before.
    """
    runs: dict[str, dict[int, Pieces]] = {}
    for unit in pieces:
        parts = re.fullmatch(r"(?:(.*)_)?l(\d+)|layer_(\d+)", unit.name)
        if parts:
            runs.setdefault(parts[1] or "", {}).setdefault(int(parts[2] or parts[3]), unit)
    numbered = [(base, [run[number] for number in sorted(run)]) for base, run in runs.items() if sorted(run) == list(range(len(run)))]
    for base, members in (*numbered, *_taken_names(pieces)):
        if len(members) == 1 and len(members[0].names) == 1:
            continue
        try:
            stack = join_stack(_stored_apart([unit.stack for unit in members]), base)
        except ValueError:
            continue
        yield Pieces(tuple(name for unit in members for name in unit.names), base, stack.replace(name=base))


def _taken_names(pieces: Sequence[Pieces]) -> Iterator[tuple[str, list[Pieces]]]:
    """Yield each NAME with the units NAME, NAME_1, NAME_2 and so on, or without NAME_1, where each reads the one before.

    Unlike `NAME_l1`, such a name is that of any second layer: without the file's word nothing says what it reads.
    """
    named = {unit.name: unit for unit in reversed(pieces)}
    for base, first in named.items():
        for start in (1, 2):
            later = itertools.takewhile(named.__contains__, (f"{base}_{number}" for number in itertools.count(start)))
            members = [first, *(named[name] for name in later)]
            if len(members) > 1 and all(isinstance(unit.stack.reads, Directly) for unit in members[1:]):
                yield base, members
