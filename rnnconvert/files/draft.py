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


class _Layer(NamedTuple):
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
    used = {name for layer in by_gate for name in layer.names}
    left = {name: shape for name, shape in shapes.items() if name not in used}
    stacked = list(_stacked(left))
    used = {name for layer in stacked for name in layer.names}
    joined = list(_joined({name: shape for name, shape in left.items() if name not in used}))
    flat = [] if by_gate or stacked or joined else _flat({name: shape for name, shape in left.items() if len(shape) == 1})
    for draft in (*by_gate, *stacked, *joined, *flat):
        text = _table(draft, len(texts))
        if len(texts) < _MOST_LAYOUTS and text[2:] not in [earlier[2:] for earlier in texts] and _reads(text, draft, shapes):
            texts.append(text)
    if not texts:
        return []
    several = f" {Setting('layout', 'NAME')}, one after the other" if len(texts) > 1 else ""
    return [
        "its shapes suggest this layout: check it against your code, save it as layout.toml, and give "
        f"{Flag('layout', 'layout.toml')}{several}",
        *itertools.chain.from_iterable(texts),
    ]


def _reads(text: Sequence[str], layer: _Layer, shapes: Mapping[str, Shape]) -> bool:
    """Return whether a draft describes these arrays."""
    try:
        layouts = layout_file.parsed("\n".join(text), Path("layout.toml"))
    except UnreadableError:
        return False
    shapes = {**shapes, **layer.matrices}
    own_shapes = {_local(name, layer.names): shapes[name] for name in layer.names}
    return any(fits(layout, own_shapes) for layout in layouts if isinstance(layout, Layout))


def _table(layer: _Layer, number: int) -> list[str]:
    """Return the description of a layer as TOML."""
    held = {part for entry in layer.parts for part in entry.parts.split()}
    if "recurrent_bias" in held:
        biases = "both"
    elif "input_bias" in held:
        biases = "input"
    else:
        biases = "none"
    checks = list(layer.checks)
    text = ["[[layout]]", f'name = "mine.{layer.kind}{f"_{number + 1}" if number else ""}"', f'kind = "{layer.kind}"']
    text.append(f'gates = "{_STACKED[layer.kind]}"')
    if layer.letters:
        text.append(f'letters = "{" ".join(layer.letters)}"')
        checks.append("which letter is which gate: i f g o are input, forget, candidate, output; r z n reset, update, candidate")
    elif layer.kind != "rnn":
        checks.append(
            "the order in which the code stacks the gates (i f g o: input, forget, candidate, output; r z n: reset, update, candidate)"
        )
    if layer.kind == "gru":
        text.append(f"reset_after = {'true' if biases == 'both' else 'false'}")
        checks.append(
            "reset_after: false for n = tanh(W x + U (r * h)), true for n = tanh(W x + r * (U h)); -z in gates for h = (1 - z) h + z n"
        )
    text.append("tensors = [")
    text += [f'  {{ name = {in_toml(part.name)}, parts = "{part.parts}", axes = "{part.axes}" }},' for part in layer.parts]
    text += ["]", f'holds = {{ biases = ["{biases}"], layers = false, directions = 1 }}']
    checks.append(
        'the functions: tanh, and sigmoid for gates, unless holds has activations = ["relu"], gate_activations = ["hard_sigmoid"]'
    )
    # Its arrays under a name of the layer's own: what stands beside them in the file is not taken for the layer's.
    for name in layer.names if layer.matrices else ():
        text += ["[[array]]", f"name = {in_toml(f'{layer.kind}/{_local(name, layer.names)}')}", f"from = {in_toml(name)}"]
        text += [f"shape = {list(layer.matrices[name])}"] if name in layer.matrices else []
    return [*text, *(f"# check {check}" for check in checks)]


def _local(name: str, names: Sequence[str]) -> str:
    """Return a name without what stands before the layer's own arrays: all of them have it, up to a separator."""
    common = os.path.commonprefix(list(names))  # noqa: RUF071  # letters; the separator is found below
    return name[len(_scope(common)) :]


# A matrix of its own for each gate.


def _by_gate(shapes: Mapping[str, Shape]) -> Iterator[_Layer]:
    """Yield layers whose arrays have the name of a gate in their own."""
    families: dict[str, dict[str, tuple[str, Shape]]] = {}
    for name, shape in shapes.items():
        for at, letter in enumerate(name):
            alone = not (name[at + 1 : at + 2].isalpha() and name[at - 1 : at].isalpha() and at)
            if letter.lower() in "ifgocazrunh" and alone and "{" not in name:
                families.setdefault(f"{name[:at]}{{gate}}{name[at + 1 :]}", {})[letter] = name, shape
    used: set[str] = set()
    for kind, spelling in ((kind, spelled) for kind, several in _SPELLINGS.items() for spelled in several):
        for letters in (spelling, spelling.upper()):
            matrices = {
                template: [family[letter] for letter in letters]
                for template, family in families.items()
                if set(letters) <= set(family) and len({family[letter][1] for letter in letters}) == 1
            }
            for layer in _of_families(kind, letters, matrices):
                if not used & set(layer.names):
                    used |= set(layer.names)
                    yield layer


def _of_families(kind: str, letters: str, families: Mapping[str, Sequence[tuple[str, Shape]]]) -> Iterator[_Layer]:
    scopes: dict[str, dict[str, Sequence[tuple[str, Shape]]]] = {}
    for template, family in families.items():
        scope = _scope(template.partition("{")[0])
        scopes.setdefault(scope, {})[template.removeprefix(scope)] = family
    for members in scopes.values():
        matrices = {letter: family[0][1] for letter, family in members.items() if 1 not in family[0][1] and len(family[0][1]) == 2}
        vectors = {letter: family[0][1] for letter, family in members.items() if letter not in matrices}
        narrow = {letter: shape for letter, shape in vectors.items() if len(shape) == 2 and len(matrices) == 1}
        matrices |= narrow if _square(matrices) else {}
        vectors = {letter: shape for letter, shape in vectors.items() if letter not in matrices}
        parts = _parts(matrices, vectors, kind, stacked=False)
        if parts is not None:
            names = [name for part in parts[0] for name, _ in members[part.name]]
            yield _Layer(kind, letters, parts[0], names, parts[1])


def _square(matrices: Mapping[str, Shape]) -> bool:
    return any(rows == columns for rows, columns in matrices.values())


# Gates stacked in one matrix.


def _stacked(shapes: Mapping[str, Shape]) -> Iterator[_Layer]:
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
                name for name, matrix in matrices.items() if matrix[axis] == width and name not in used and name != recurrent and width != 1
            ]
            if not others:
                continue
            input_matrix = _nearest(recurrent, others)
            if _RECURRENT.search(input_matrix) and not _RECURRENT.search(recurrent):
                input_matrix, recurrent = recurrent, input_matrix
            vectors = {
                name: dims
                for name, dims in shapes.items()
                if name not in used and _length(dims) == width and name not in (input_matrix, recurrent)
            }
            bias = {name: vectors[name] for name in _biases(recurrent, input_matrix, vectors)}
            pair = {input_matrix: matrices[input_matrix], recurrent: matrices[recurrent]}
            parts = _parts(pair, bias, kind, stacked=True, flipped=flipped)
            if parts is not None:
                names = [part.name for part in parts[0]]
                used |= set(names)
                yield _Layer(kind, "", [part._replace(name=_local(part.name, names)) for part in parts[0]], names, parts[1])


_ONE_MATRIX = re.compile(r"lstm|gru|rnn|cell|i2h", re.IGNORECASE)
"""What the name of a matrix has that multiplies the state and the input, one on top of the other."""


def _joined(shapes: Mapping[str, Shape]) -> Iterator[_Layer]:
    """Yield layers of one matrix for the state and the input, where its name says that it is one."""
    for name, shape in shapes.items():
        hint = _ONE_MATRIX.search(name)
        if hint is None or len(shape) != 2:
            continue
        kind = hint[0].lower() if hint[0].lower() in ("lstm", "gru") else "rnn"
        gates = next(count for count, name_of_kind in _KINDS.items() if name_of_kind == kind)
        for bias in (other for other, length in shapes.items() if _scope(other) == _scope(name) and _length(length) in shape):
            size, odd = divmod(_length(shapes[bias]), gates)
            if not odd and max(shape) > size and kind != "gru":
                parts, checks = _parts({name: shape}, {bias: shapes[bias]}, kind, stacked=True) or ([], [])
                local_parts = [part._replace(name=_local(part.name, [name, bias])) for part in parts]
                if local_parts:
                    plain = ['the function: a tutorial\'s cell of this name computes none, which is activations = ["linear"]']
                    checks = [*checks, *(plain if kind == "rnn" else [])]
                    yield _Layer(kind, "", local_parts, [name, bias], checks)
                    break


# Every matrix as a vector, as tables of C are.


def _flat(shapes: Mapping[str, Shape]) -> Iterator[_Layer]:
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
            input_matrix = _nearest(recurrent, others)
            matrices = {name: (wide, lengths[name] // wide) for name in (input_matrix, recurrent)}
            vectors = {name: (wide,) for name, length in lengths.items() if length == wide and name not in matrices}
            bias = {name: (wide,) for name in _biases(recurrent, input_matrix, vectors)}
            parts, checks = _parts(matrices, bias, kind, stacked=True, flipped=False) or ([], [])
            names = [*matrices, *bias]
            if parts and bias:
                used |= set(names)
                rows = "whether the matrices lie row by row in their vectors, (gate hidden) in; column by column it is in (gate hidden)"
                local_parts = [part._replace(name=_local(part.name, names)) for part in parts]
                yield _Layer(kind, "", local_parts, names, [*checks, f"{rows}, with both shapes reversed"], matrices)


def _nearest(name: str, others: Iterable[str]) -> str:
    """Return the name most like another."""
    return max(others, key=lambda other: difflib.SequenceMatcher(None, name, other, autojunk=False).ratio())


def _biases(recurrent: str, input_matrix: str, vectors: Mapping[str, Shape]) -> list[str]:
    """Return the biases of two matrices: those in the same scope, or the one whose name is most like theirs."""
    each = [[name for name in vectors if _scope(name) == _scope(matrix)] for matrix in (input_matrix, recurrent)]
    if _scope(input_matrix) != _scope(recurrent) and len(each[0]) == len(each[1]) == 1:
        return [each[0][0], each[1][0]]
    vectors_there = each[1]
    if len(vectors_there) == 2 and _nearest(input_matrix, vectors_there) != _nearest(recurrent, vectors_there):
        return [_nearest(input_matrix, vectors_there), _nearest(recurrent, vectors_there)]
    return [_nearest(recurrent, vectors_there)] if vectors_there else []


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
        (input_matrix, first), (recurrent, second) = matrices.items()
        if not stacked and (second[0] != second[1] or (first[0] == first[1] and _RECURRENT.search(input_matrix))):
            (input_matrix, first), (recurrent, second) = (recurrent, second), (input_matrix, first)
        if flipped is None:
            flipped = first[0] != second[0]
        if first == second:
            checks.append("which matrix multiplies the input, and which the state: both have one shape")
        if first == second and not stacked:
            checks.append(f"whether a matrix acts from the left, {hidden} in, or from the right, in {hidden}")
        axes = f"in {hidden}" if flipped else f"{hidden} in"
        parts = [_Part(input_matrix, "input", axes), _Part(recurrent, "recurrent", axes)]
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
