"""A draft of a layout file, where the names of arrays are nobody's and their shapes suggest the gates of a recurrent layer.

Nothing is read by a draft: it is text for the user, who knows what the arrays mean, and says what to check in it.
"""

from __future__ import annotations

import difflib
import itertools
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from rnnconvert.core.arrays import Array, is_float
from rnnconvert.core.errors import UnreadableError
from rnnconvert.core.printable import in_toml
from rnnconvert.core.remedies import Flag, Setting
from rnnconvert.language import layout_file
from rnnconvert.language.fitting import fits
from rnnconvert.language.layout import Layout, Shape

_MOST = 120
"""The most arrays that are examined."""
_LONGEST = 100
_MOST_LAYOUTS = 4
_KINDS = {4: "lstm", 3: "gru", 1: "rnn"}
_STACKED = {"lstm": "i f g o", "gru": "r z n", "rnn": "n"}
_SPELLINGS = {"lstm": ("ifgo", "ifco", "ifao", "ifzo"), "gru": ("rzn", "rzh", "rzc", "ruh", "ruc", "run")}
"""How the gates may be spelt, in the order of _STACKED."""
_RECURRENT = re.compile(r"(?:^|[_./ ])U|hh|h2h|rec|hid|state|(?:^|[_./])(?:W?h|R)(?:[_./]|$)|(?<=[Ww])h", re.IGNORECASE)
"""What the name of a matrix has that multiplies the state."""


class _Part(NamedTuple):
    """An array of a layer: its name in a layout, its parts, its axes."""

    name: str
    parts: str
    axes: str


class _Found(NamedTuple):
    """A layer that arrays may be: of which kind, how its gates are spelt ("" for stacked ones), and of which arrays."""

    kind: str
    letters: str
    parts: Sequence[_Part]
    names: Sequence[str]
    checks: Sequence[str]
    matrices: Mapping[str, Shape] = {}
    """The shapes of its matrices that the file has as vectors, by the names in the file."""


def lines(arrays: Mapping[str, Array]) -> list[str]:
    """Return the draft of a layout file for arrays, line by line, with what to do with it; nothing where no shapes suggest one."""
    shapes = {name: tuple(array.shape) for name, array in itertools.islice(arrays.items(), _MOST) if is_float(array)}
    shapes = {name: shape for name, shape in shapes.items() if len(name) <= _LONGEST and len(shape) in (1, 2) and all(shape)}
    texts: list[list[str]] = []
    by_gate = list(_by_gate(shapes))
    taken = {name for found in by_gate for name in found.names}
    left = {name: shape for name, shape in shapes.items() if name not in taken}
    stacked = list(_stacked(left))
    taken = {name for found in stacked for name in found.names}
    joined = list(_joined({name: shape for name, shape in left.items() if name not in taken}))
    flat = [] if by_gate or stacked or joined else _flat({name: shape for name, shape in left.items() if len(shape) == 1})
    for found in (*by_gate, *stacked, *joined, *flat):
        text = _table(found, len(texts))
        if len(texts) < _MOST_LAYOUTS and text[2:] not in [one[2:] for one in texts] and _reads(text, found, shapes):
            texts.append(text)
    if not texts:
        return []
    several = f" {Setting('layout', 'NAME')}, one after the other" if len(texts) > 1 else ""
    return [
        "its shapes suggest this layout: check it against your code, save it as layout.toml, and give "
        f"{Flag('layout', 'layout.toml')}{several}",
        *itertools.chain.from_iterable(texts),
    ]


def _reads(text: Sequence[str], found: _Found, shapes: Mapping[str, Shape]) -> bool:
    """Return whether a draft describes these arrays."""
    try:
        layouts = layout_file.parsed("\n".join(text), Path("layout.toml"))
    except UnreadableError:
        return False
    shapes = {**shapes, **found.matrices}
    own = {_local(name, found.names): shapes[name] for name in found.names}
    return any(fits(layout, own) for layout in layouts if isinstance(layout, Layout))


def _table(found: _Found, number: int) -> list[str]:
    """Return the description of a layer as TOML."""
    held = {part for one in found.parts for part in one.parts.split()}
    if "recurrent_bias" in held:
        biases = "both"
    elif "input_bias" in held:
        biases = "input"
    else:
        biases = "none"
    checks = list(found.checks)
    text = ["[[layout]]", f'name = "mine.{found.kind}{f"_{number + 1}" if number else ""}"', f'kind = "{found.kind}"']
    text.append(f'gates = "{_STACKED[found.kind]}"')
    if found.letters:
        text.append(f'letters = "{" ".join(found.letters)}"')
        checks.append("which letter is which gate: i f g o are input, forget, candidate, output; r z n reset, update, candidate")
    elif found.kind != "rnn":
        checks.append(
            "the order in which the code stacks the gates (i f g o: input, forget, candidate, output; r z n: reset, update, candidate)"
        )
    if found.kind == "gru":
        text.append(f"reset_after = {'true' if biases == 'both' else 'false'}")
        checks.append(
            "reset_after: false for n = tanh(W x + U (r * h)), true for n = tanh(W x + r * (U h)); -z in gates for h = (1 - z) h + z n"
        )
    text.append("tensors = [")
    text += [f'  {{ name = {in_toml(one.name)}, parts = "{one.parts}", axes = "{one.axes}" }},' for one in found.parts]
    text += ["]", f'holds = {{ biases = ["{biases}"], layers = false, directions = 1 }}']
    checks.append(
        'the functions: tanh, and sigmoid for gates, unless holds has activations = ["relu"], gate_activations = ["hard_sigmoid"]'
    )
    # Its arrays under a name of the layer's own: what stands beside them in the file is not taken for the layer's.
    for name in found.names if found.matrices else ():
        text += ["[[array]]", f"name = {in_toml(f'{found.kind}/{_local(name, found.names)}')}", f"from = {in_toml(name)}"]
        text += [f"shape = {list(found.matrices[name])}"] if name in found.matrices else []
    return [*text, *(f"# check {one}" for one in checks)]


def _local(name: str, names: Sequence[str]) -> str:
    """Return a name without what stands before the layer's own arrays: all of them have it, up to a separator."""
    common = os.path.commonprefix(list(names))  # noqa: RUF071  # letters; the separator is found below
    return name[len(_scope(common)) :]


# A matrix of its own for each gate.


def _by_gate(shapes: Mapping[str, Shape]) -> Iterator[_Found]:
    """Yield layers whose arrays have the name of a gate in their own."""
    families: dict[str, dict[str, tuple[str, Shape]]] = {}
    for name, shape in shapes.items():
        for at, letter in enumerate(name):
            alone = not (name[at + 1 : at + 2].isalpha() and name[at - 1 : at].isalpha() and at)
            if letter.lower() in "ifgocazrunh" and alone and "{" not in name:
                families.setdefault(f"{name[:at]}{{gate}}{name[at + 1 :]}", {})[letter] = name, shape
    used: set[str] = set()
    for kind, spelling in ((kind, one) for kind, several in _SPELLINGS.items() for one in several):
        for letters in (spelling, spelling.upper()):
            own = {
                template: [family[letter] for letter in letters]
                for template, family in families.items()
                if set(letters) <= set(family) and len({family[letter][1] for letter in letters}) == 1
            }
            for layer in _of_families(kind, letters, own):
                if not used & set(layer.names):
                    used |= set(layer.names)
                    yield layer


def _of_families(kind: str, letters: str, families: Mapping[str, Sequence[tuple[str, Shape]]]) -> Iterator[_Found]:
    scopes: dict[str, dict[str, Sequence[tuple[str, Shape]]]] = {}
    for template, family in families.items():
        scope = _scope(template.partition("{")[0])
        scopes.setdefault(scope, {})[template.removeprefix(scope)] = family
    for own in scopes.values():
        matrices = {one: family[0][1] for one, family in own.items() if 1 not in family[0][1] and len(family[0][1]) == 2}
        vectors = {one: family[0][1] for one, family in own.items() if one not in matrices}
        narrow = {one: shape for one, shape in vectors.items() if len(shape) == 2 and len(matrices) == 1}
        matrices |= narrow if _square(matrices) else {}
        vectors = {one: shape for one, shape in vectors.items() if one not in matrices}
        parts = _parts(matrices, vectors, kind, stacked=False)
        if parts is not None:
            names = [name for one in parts[0] for name, _ in own[one.name]]
            yield _Found(kind, letters, parts[0], names, parts[1])


def _square(matrices: Mapping[str, Shape]) -> bool:
    return any(rows == columns for rows, columns in matrices.values())


# Gates stacked in one matrix.


def _stacked(shapes: Mapping[str, Shape]) -> Iterator[_Found]:
    """Yield layers whose gates lie in one matrix, those with the names most alike first."""
    matrices = {name: shape for name, shape in shapes.items() if len(shape) == 2}
    used: set[str] = set()
    for (gates, kind), flipped in itertools.product(_KINDS.items(), (False, True)):
        for recurrent, shape in sorted(matrices.items(), key=lambda entry: not _RECURRENT.search(entry[0])):
            size, width = shape[::-1] if not flipped else shape
            if recurrent in used or width != gates * size or (gates == 1 and not _RECURRENT.search(recurrent)):
                continue
            axis = 1 if flipped else 0
            others = [
                name for name, one in matrices.items() if one[axis] == width and name not in used and name != recurrent and width != 1
            ]
            if not others:
                continue
            given = _nearest(recurrent, others)
            if _RECURRENT.search(given) and not _RECURRENT.search(recurrent):
                given, recurrent = recurrent, given
            vectors = {
                name: one for name, one in shapes.items() if name not in used and _length(one) == width and name not in (given, recurrent)
            }
            bias = {name: vectors[name] for name in _biases(recurrent, given, vectors)}
            pair = {given: matrices[given], recurrent: matrices[recurrent]}
            made = _parts(pair, bias, kind, stacked=True, flipped=flipped)
            if made is not None:
                names = [one.name for one in made[0]]
                used |= set(names)
                yield _Found(kind, "", [one._replace(name=_local(one.name, names)) for one in made[0]], names, made[1])


_ONE_MATRIX = re.compile(r"lstm|gru|rnn|cell|i2h", re.IGNORECASE)
"""What the name of a matrix has that multiplies the state and the input, one on top of the other."""


def _joined(shapes: Mapping[str, Shape]) -> Iterator[_Found]:
    """Yield layers of one matrix for the state and the input, where its name says that it is one."""
    for name, shape in shapes.items():
        hint = _ONE_MATRIX.search(name)
        if hint is None or len(shape) != 2:
            continue
        kind = hint[0].lower() if hint[0].lower() in ("lstm", "gru") else "rnn"
        gates = next(count for count, one in _KINDS.items() if one == kind)
        for bias in (one for one, length in shapes.items() if _scope(one) == _scope(name) and _length(length) in shape):
            size, odd = divmod(_length(shapes[bias]), gates)
            if not odd and max(shape) > size and kind != "gru":
                parts, checks = _parts({name: shape}, {bias: shapes[bias]}, kind, stacked=True) or ([], [])
                own = [one._replace(name=_local(one.name, [name, bias])) for one in parts]
                if own:
                    plain = ['the function: a tutorial\'s cell of this name computes none, which is activations = ["linear"]']
                    checks = [*checks, *(plain if kind == "rnn" else [])]
                    yield _Found(kind, "", own, [name, bias], checks)
                    break


# Every matrix as a vector, as tables of C are.


def _flat(shapes: Mapping[str, Shape]) -> Iterator[_Found]:
    """Yield layers of stacked gates whose matrices are vectors: the lengths of a bias and of a matrix for the state give the sizes."""
    lengths = {name: shape[0] for name, shape in shapes.items()}
    used: set[str] = set()
    for recurrent in sorted(lengths, key=lambda name: len(_scope(name))):
        if not _RECURRENT.search(recurrent):
            continue
        for (gates, kind), wide in itertools.product(_KINDS.items(), sorted({*lengths.values()})):
            size = wide // gates
            others = [name for name, length in lengths.items() if name not in (*used, recurrent) and length > wide and length % wide == 0]
            if recurrent in used or wide != gates * size or lengths[recurrent] != wide * size or not others:
                continue
            given = _nearest(recurrent, others)
            matrices = {name: (wide, lengths[name] // wide) for name in (given, recurrent)}
            vectors = {name: (wide,) for name, length in lengths.items() if length == wide and name not in matrices}
            bias = {name: (wide,) for name in _biases(recurrent, given, vectors)}
            parts, checks = _parts(matrices, bias, kind, stacked=True, flipped=False) or ([], [])
            names = [*matrices, *bias]
            if parts and bias:
                used |= set(names)
                rows = "whether the matrices lie row by row in their vectors, (gate hidden) in; column by column it is in (gate hidden)"
                own = [one._replace(name=_local(one.name, names)) for one in parts]
                yield _Found(kind, "", own, names, [*checks, f"{rows}, with both shapes reversed"], matrices)


def _nearest(name: str, others: Iterable[str]) -> str:
    """Return the name most like another."""
    return max(others, key=lambda other: difflib.SequenceMatcher(None, name, other, autojunk=False).ratio())


def _biases(recurrent: str, given: str, vectors: Mapping[str, Shape]) -> list[str]:
    """Return the biases of two matrices: those in the same scope, or the one whose name is most like theirs."""
    each = [[name for name in vectors if _scope(name) == _scope(matrix)] for matrix in (given, recurrent)]
    if _scope(given) != _scope(recurrent) and len(each[0]) == len(each[1]) == 1:
        return [each[0][0], each[1][0]]
    beside = each[1]
    if len(beside) == 2 and _nearest(given, beside) != _nearest(recurrent, beside):
        return [_nearest(given, beside), _nearest(recurrent, beside)]
    return [_nearest(recurrent, beside)] if beside else []


def _scope(name: str) -> str:
    return name[: max(name.rfind(mark) for mark in "/.") + 1]


def _length(shape: Shape) -> int:
    """Return the length of a vector, which may have an axis of length 1; 0 for a matrix."""
    return max(shape) if len(shape) == 1 or 1 in shape else 0


def _parts(
    matrices: Mapping[str, Shape], vectors: Mapping[str, Shape], kind: str, *, stacked: bool, flipped: bool | None = None
) -> tuple[list[_Part], list[str]] | None:
    """Return the arrays of a layer with their parts, and what to check; None where shapes leave no size that fits.

    flipped  whether matrices act from the right; None to see it from them
    """
    checks: list[str] = []
    hidden = "(gate hidden)" if stacked and kind != "rnn" else "hidden"
    if len(matrices) == 2:
        (given, first), (recurrent, second) = matrices.items()
        if not stacked and (second[0] != second[1] or (first[0] == first[1] and _RECURRENT.search(given))):
            (given, first), (recurrent, second) = (recurrent, second), (given, first)
        if flipped is None:
            flipped = first[0] != second[0]
        if first == second:
            checks.append("which matrix multiplies the input, and which the state: both have one shape")
        if first == second and not stacked:
            checks.append(f"whether a matrix acts from the left, {hidden} in, or from the right, in {hidden}")
        axes = f"in {hidden}" if flipped else f"{hidden} in"
        parts = [_Part(given, "input", axes), _Part(recurrent, "recurrent", axes)]
    elif len(matrices) == 1 and vectors:
        ((both, shape),) = matrices.items()
        length = _length(next(iter(vectors.values())))
        size = length // (len(_STACKED[kind].split()) if stacked else 1)
        flipped = shape[0] != length
        if length not in shape or shape[0 if flipped else 1] <= size:
            return None
        axes = f"(part in) {hidden}" if flipped else f"{hidden} (part in)"
        parts = [_Part(both, "recurrent input", axes)]
        checks.append("whether the state or the input comes first in one matrix: recurrent input, or input recurrent")
    else:
        return None
    words = ("input_bias", "recurrent_bias")
    for (name, shape), word in zip(vectors.items(), words, strict=False):
        if len(shape) == 1:
            axes = hidden
        elif shape[1] == 1:
            axes = f"{hidden} 1"
        else:
            axes = f"1 {hidden}"
        parts.append(_Part(name, word, axes))
    return (parts, checks) if len(vectors) <= len(words) else None
