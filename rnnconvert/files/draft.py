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

from rnnconvert.core.arrays import Array, is_float
from rnnconvert.core.errors import UnreadableError
from rnnconvert.core.printable import in_toml
from rnnconvert.core.remedies import Flag, Remedy, Setting, Together
from rnnconvert.files.draft_parts import RECURRENT, STACKED, DraftLayer, is_pair, length_of, parts_of, scope_of
from rnnconvert.language import layout_file
from rnnconvert.language.fitting import fits
from rnnconvert.language.layout import Layout, Shape

_MOST = 120
"""The most arrays that are examined."""
_LONGEST = 100
_MOST_LAYOUTS = 4
_MOST_LEFT_OUT = 20
_KINDS = {4: "lstm", 3: "gru", 1: "rnn"}
_WORDS = {
    "lstm": [f"input forget {candidate} output" for candidate in ("cell", "candidate", "memory", "new", "update", "modulation")],
    "gru": [f"reset update {candidate}" for candidate in ("new", "candidate", "hidden", "cell", "memory")],
}
"""How gates may be called, in the order of STACKED."""
_SPELLINGS = {"lstm": ("ifgo", "ifco", "ifao", "ifzo"), "gru": ("rzn", "rzh", "rzc", "ruh", "ruc", "run")}
"""How the gates may be spelt, in the order of _STACKED."""


def lines(arrays: Mapping[str, Array], by_gates: bool = False) -> list[str]:
    """Return the draft of a layout file for arrays, line by line, with what to do with it; nothing where no shapes suggest one.

    by_gates  only for layers each of whose arrays has the name of a gate in its own
    """
    shapes = {name: tuple(array.shape) for name, array in itertools.islice(arrays.items(), _MOST) if is_float(array)}
    shapes = {name: shape for name, shape in shapes.items() if len(name) <= _LONGEST and len(shape) in (1, 2) and all(shape)}
    texts: list[list[str]] = []
    written: list[DraftLayer] = []
    described: set[str] = set()
    by_gate = list(_by_gate(shapes))
    used = {name for layer in by_gate for name in layer.names}
    left = {} if by_gates else {name: shape for name, shape in shapes.items() if name not in used}
    stacked = list(_without_factors(_stacked(left), left))
    used = {name for layer in stacked for name in layer.names}
    joined = list(_joined({name: shape for name, shape in left.items() if name not in used}))
    flat = [] if by_gate or stacked or joined else _flat({name: shape for name, shape in left.items() if len(shape) == 1})
    for draft in (*by_gate, *stacked, *joined, *flat):
        text = _table(draft, len(texts))
        if text[2:] in [earlier[2:] for earlier in texts]:
            described |= {*draft.names}
        if len(texts) < _MOST_LAYOUTS and text[2:] not in [earlier[2:] for earlier in texts] and _reads(text, draft, shapes):
            texts.append(text)
            written.append(draft)
            described |= {*draft.names}
    if not texts:
        return []
    left_out = [name for name in arrays if name not in described]
    scopes = {_scope(draft.names) for draft in written if not draft.matrices}
    option: Remedy = Flag("layout", "layout.toml")
    if len(texts) > 1:
        option = Together(option, Setting("layout", "NAME"))
    if len(texts) == 1 and any(scope_of(name) == scope or (scope and name.startswith(scope)) for name in left_out for scope in scopes):
        # What stands among a layer's arrays is taken for the layer's, until somebody says that it is not.
        option = Together(option, Setting("layout", f"mine.{written[0].kind}"))
    return [
        "its shapes suggest this layout: check it against your code, save it as layout.toml, and give "
        f"{option}{', one after the other' if len(texts) > 1 else ''}",
        *itertools.chain.from_iterable(texts),
        *_left_out(left_out),
    ]


def _left_out(names: Sequence[str]) -> list[str]:
    """Return the arrays of a file that no draft describes, as comments: who follows the draft decides about them."""
    if not names:
        return []
    listed = [f"#   {in_toml(name[:_LONGEST])}" for name in names[:_MOST_LEFT_OUT]]
    more = [f"#   and {len(names) - _MOST_LEFT_OUT} more"] if len(names) > _MOST_LEFT_OUT else []
    return ["# check what these arrays are for, which the layout leaves out:", *listed, *more]


def _reads(text: Sequence[str], layer: DraftLayer, shapes: Mapping[str, Shape]) -> bool:
    """Return whether a draft describes these arrays."""
    try:
        layouts = layout_file.parsed("\n".join(text), Path("layout.toml"))
    except UnreadableError:
        return False
    shapes = {**shapes, **layer.matrices}
    own_shapes = {_local(name, layer.names): shapes[name] for name in layer.names}
    return any(fits(layout, own_shapes) for layout in layouts if isinstance(layout, Layout))


def _table(layer: DraftLayer, number: int) -> list[str]:
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
    rows = any(part.axes.startswith("part ") for part in layer.parts)
    text.append(f'gates = "{"z r n" if rows and layer.kind == "gru" else STACKED[layer.kind]}"')
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
    if layer.kind == "lstm":
        checks.append("whether the code adds a number to a gate when it runs, a forget_bias for example: holds has constants = { f = 1.0 }")
    # Its arrays under a name of the layer's own: what stands beside them in the file is not taken for the layer's.
    for name in layer.names if layer.matrices else ():
        text += ["[[array]]", f"name = {in_toml(f'{layer.kind}/{_local(name, layer.names)}')}", f"from = {in_toml(name)}"]
        text += [f"shape = {list(layer.matrices[name])}"] if name in layer.matrices else []
    return [*text, *(f"# check {check}" for check in checks)]


def _local(name: str, names: Sequence[str]) -> str:
    """Return a name without what stands before the layer's own arrays: all of them have it, up to a separator."""
    return name[len(_scope(names)) :]


def _scope(names: Sequence[str]) -> str:
    """Return the prefix that all of these names share, up to a separator."""
    return scope_of(os.path.commonprefix(list(names)))  # noqa: RUF071  # letters; the separator is found here


# A matrix of its own for each gate.


_GATE_WORD = re.compile(
    rf"(?<![a-z])(?:{'|'.join(sorted({word for several in _WORDS.values() for words in several for word in words.split()}))})(?![a-z])",
    re.IGNORECASE,
)


def _by_gate(shapes: Mapping[str, Shape]) -> Iterator[DraftLayer]:
    """Yield layers whose arrays have the name of a gate in their own."""
    families: dict[str, dict[str, tuple[str, Shape]]] = {}
    for name, shape in shapes.items():
        for at, letter in enumerate(name):
            alone = not (name[at + 1 : at + 2].isalpha() and name[at - 1 : at].isalpha() and at)
            if letter.lower() in "ifgocazrunh" and alone and "{" not in name:
                families.setdefault(f"{name[:at]}{{gate}}{name[at + 1 :]}", {})[letter] = name, shape
        for match in _GATE_WORD.finditer(name) if "{" not in name else ():
            families.setdefault(f"{name[: match.start()]}{{gate}}{name[match.end() :]}", {})[match[0]] = name, shape
    used: set[str] = set()
    spellings = [(kind, [*spelled]) for kind, several in _SPELLINGS.items() for spelled in several]
    spellings += [(kind, words.split()) for kind, several in _WORDS.items() for words in several]
    for kind, spelling in spellings:
        for letters in (spelling, [letter.upper() for letter in spelling], [letter.capitalize() for letter in spelling if letter[1:]]):
            matrices = {
                template: [family[letter] for letter in letters]
                for template, family in families.items()
                if letters and set(letters) <= set(family) and len({family[letter][1] for letter in letters}) == 1
            }
            for layer in _of_families(kind, letters, matrices):
                if not used & set(layer.names):
                    used |= set(layer.names)
                    yield layer


def _of_families(kind: str, letters: Sequence[str], families: Mapping[str, Sequence[tuple[str, Shape]]]) -> Iterator[DraftLayer]:
    scopes: dict[str, dict[str, Sequence[tuple[str, Shape]]]] = {}
    for template, family in families.items():
        scope = scope_of(template.partition("{")[0])
        scopes.setdefault(scope, {})[template.removeprefix(scope)] = family
    for members in scopes.values():
        matrices = {letter: family[0][1] for letter, family in members.items() if 1 not in family[0][1] and len(family[0][1]) == 2}
        vectors = {letter: family[0][1] for letter, family in members.items() if letter not in matrices}
        narrow = {letter: shape for letter, shape in vectors.items() if len(shape) == 2 and len(matrices) == 1}
        matrices |= narrow if _square(matrices) else {}
        vectors = {letter: shape for letter, shape in vectors.items() if letter not in matrices}
        parts = parts_of(matrices, vectors, kind, stacked=False)
        if parts is not None:
            names = [name for part in parts[0] for name, _ in members[part.name]]
            yield DraftLayer(kind, letters, parts[0], names, parts[1])


def _square(matrices: Mapping[str, Shape]) -> bool:
    return any(rows == columns for rows, columns in matrices.values())


# Gates stacked in one matrix.


def _stacked(shapes: Mapping[str, Shape]) -> Iterator[DraftLayer]:
    """Yield layers whose gates lie in one matrix, those with the names most alike first."""
    matrices = {name: shape for name, shape in shapes.items() if len(shape) == 2}
    used: set[str] = set()
    for (gates, kind), flipped in itertools.product(_KINDS.items(), (False, True)):
        for recurrent, shape in sorted(matrices.items(), key=lambda entry: not RECURRENT.search(entry[0])):
            size, width = shape[::-1] if not flipped else shape
            if recurrent in used or size == 1 or width != gates * size or (gates == 1 and not RECURRENT.search(recurrent)):
                continue
            axis = 1 if flipped else 0
            others = [
                name for name, matrix in matrices.items() if matrix[axis] == width and name not in used and name != recurrent and width != 1
            ]
            others = [name for name in others if not is_pair(matrices[name])] or others
            if not others:
                continue
            input_matrix = _nearest(recurrent, others)
            if RECURRENT.search(input_matrix) and not RECURRENT.search(recurrent):
                input_matrix, recurrent = recurrent, input_matrix
            vectors = {
                name: dims
                for name, dims in shapes.items()
                if name not in used and name not in (input_matrix, recurrent) and width in (length_of(dims), is_pair(dims) and dims[1])
            }
            bias = {name: vectors[name] for name in _biases(recurrent, input_matrix, vectors)}
            pair = {input_matrix: matrices[input_matrix], recurrent: matrices[recurrent]}
            parts = parts_of(pair, bias, kind, stacked=True, flipped=flipped)
            if parts is not None:
                names = [part.name for part in parts[0]]
                used |= set(names)
                yield DraftLayer(kind, "", [part._replace(name=_local(part.name, names)) for part in parts[0]], names, parts[1])


def _without_factors(layers: Iterable[DraftLayer], names: Iterable[str]) -> Iterator[DraftLayer]:
    """Yield layers without the factors of multiplicative LSTMs (w_mih, w_mhh beside w_ih, w_hh), which look like a layer of their own."""
    marked = [name for name in names if "m" in name]
    used: set[str] = set()
    for layer in layers:
        if layer.kind == "lstm":
            factors = [
                name
                for name in marked
                if any(f"{name[:at]}{name[at + 1 :]}" in layer.names for at, letter in enumerate(name) if letter == "m")
            ]
            if len(factors) == 2:
                used |= set(factors)
                named = " and ".join(in_toml(name) for name in factors)
                check = f"whether {named} take part in every gate, as in a multiplicative LSTM: then this layout computes something else"
                layer = layer._replace(checks=[*layer.checks, check])
        if not used & set(layer.names):
            yield layer


_ONE_MATRIX = re.compile(r"lstm|gru|rnn|cell|i2h", re.IGNORECASE)
"""Words in the name of a matrix that multiplies the state and the input, one on top of the other."""


def _joined(shapes: Mapping[str, Shape]) -> Iterator[DraftLayer]:
    """Yield layers of one matrix for the state and the input, where its name says that it is one."""
    for name, shape in shapes.items():
        hint = _ONE_MATRIX.search(name)
        if hint is None or len(shape) != 2:
            continue
        kind = hint[0].lower() if hint[0].lower() in ("lstm", "gru") else "rnn"
        gates = next(count for count, name_of_kind in _KINDS.items() if name_of_kind == kind)
        for bias in (other for other, length in shapes.items() if scope_of(other) == scope_of(name) and length_of(length) in shape):
            size, odd = divmod(length_of(shapes[bias]), gates)
            if not odd and max(shape) > size > 1 and kind != "gru":
                parts, checks = parts_of({name: shape}, {bias: shapes[bias]}, kind, stacked=True) or ([], [])
                local_parts = [part._replace(name=_local(part.name, [name, bias])) for part in parts]
                if local_parts:
                    plain = ['the function: a tutorial\'s cell of this name computes none, which is activations = ["linear"]']
                    checks = [*checks, *(plain if kind == "rnn" else [])]
                    yield DraftLayer(kind, "", local_parts, [name, bias], checks)
                    break


# Every matrix as a vector, as tables of C are.


def _flat(shapes: Mapping[str, Shape]) -> Iterator[DraftLayer]:
    """Yield layers of stacked gates whose matrices are vectors: the lengths of a bias and of a matrix for the state give the sizes."""
    lengths = {name: shape[0] for name, shape in shapes.items()}
    used: set[str] = set()
    for recurrent in sorted(lengths, key=lambda name: len(scope_of(name))):
        if not RECURRENT.search(recurrent):
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
            parts, checks = parts_of(matrices, bias, kind, stacked=True, flipped=False) or ([], [])
            names = [*matrices, *bias]
            if parts and bias:
                used |= set(names)
                rows = "whether the matrices lie row by row in their vectors, (gate hidden) in; column by column it is in (gate hidden)"
                local_parts = [part._replace(name=_local(part.name, names)) for part in parts]
                yield DraftLayer(kind, "", local_parts, names, [*checks, f"{rows}, with both shapes reversed"], matrices)


_BIAS = re.compile(r"bias|(?:^|[_./])b(?:[_./]|$)", re.IGNORECASE)
"""What the name of a bias has. Where one has it, a row of a layer that gives one number is not taken for another."""


def _nearest(name: str, others: Iterable[str]) -> str:
    """Return the name most like another."""
    return max(others, key=lambda other: difflib.SequenceMatcher(None, name, other, autojunk=False).ratio())


def _biases(recurrent: str, input_matrix: str, vectors: Mapping[str, Shape]) -> list[str]:
    """Return the biases of two matrices: those in the same scope, or the one whose name is most like theirs."""
    each = [[name for name in vectors if scope_of(name) == scope_of(matrix)] for matrix in (input_matrix, recurrent)]
    if scope_of(input_matrix) != scope_of(recurrent) and len(each[0]) == len(each[1]) == 1:
        return [each[0][0], each[1][0]]
    vectors_there = each[1] or each[0]  # of two scopes, code may keep the only bias in either
    vectors_there = [name for name in vectors_there if _BIAS.search(name)] or vectors_there
    of_state = [name for name in vectors_there if RECURRENT.search(name.removeprefix(scope_of(name)))]
    if len(vectors_there) == 2 and len(of_state) == 1:
        return [next(name for name in vectors_there if name not in of_state), *of_state]
    if len(vectors_there) == 2 and _nearest(input_matrix, vectors_there) != _nearest(recurrent, vectors_there):
        return [_nearest(input_matrix, vectors_there), _nearest(recurrent, vectors_there)]
    return [_nearest(recurrent, vectors_there)] if vectors_there else []
