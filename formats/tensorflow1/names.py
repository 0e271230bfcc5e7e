"""The names of TensorFlow 1's variables: cells in scopes, and scopes that show how cells are wrapped.

    rnn/basic_lstm_cell/kernel                                                  tf.nn.dynamic_rnn of one cell
    rnn/multi_rnn_cell/cell_1/lstm_cell/kernel                                  of a MultiRNNCell: layers
    bidirectional_rnn/bw/multi_rnn_cell/cell_1/lstm_cell/kernel                 directions that meet only at the end
    stack_bidirectional_rnn/cell_1/bidirectional_rnn/bw/lstm_cell/kernel        directions that meet at every layer

A caller may give the scope before fw and bw another name.

Sources (1.15.5): tensorflow/python/ops/{rnn,rnn_cell_impl}.py and contrib/rnn/python/ops/rnn.py, the scopes;
contrib/rnn/python/tools/checkpoint_convert.py and python/ops/rnn_cell_impl.py before 1.2, the older spellings.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from rnnconvert.core.names import natural
from rnnconvert.recognition.flow import ReadProgram

CLASSES: Mapping[str, str] = {
    "basic_rnn_cell": "rnn",
    "basic_lstm_cell": "lstm",
    "lstm_cell": "lstm",
    "lstm_fused_cell": "lstm",
    "lstm_block_wrapper": "lstm",
    "cudnn_compatible_lstm_cell": "lstm",
    "gru_cell": "gru",
    "cudnn_compatible_gru_cell": "gru",
    "coupled_input_forget_gate_lstm_cell": "lstm",
}
"""Scopes of the cells that have a layout, and their kinds."""
OTHERS = (
    "layer_norm_basic_lstm_cell", "layer_norm_lstm_cell", "weight_norm_lstm_cell",
    "nas_cell", "nas_rnn", "ugrnn_cell", "glstm_cell", "g_lstm_cell", "sru_cell", "phased_lstm_cell", "conv_lstm_cell",
    "conv_1d_lstm_cell", "conv_2d_lstm_cell", "conv_3d_lstm_cell", "intersection_rnn_cell", "time_freq_lstm_cell",
    "grid_lstm_cell", "grid1_lstm_cell", "grid2_lstm_cell", "bidirectional_grid_lstm_cell", "highway_wrapper",
    "ind_rnn_cell", "ind_y_gru_cell", "ind_y_lstm_cell", "minimal_rnn_cell", "cfn_cell", "compiled_wrapper",
)  # fmt: skip
"""Scopes of cells of tf.contrib whose equations are others."""

# Before 1.2, and before 1.0.
_OLDER = (
    (re.compile(r"MultiRNNCell/Cell(\d+)"), r"multi_rnn_cell/cell_\1"),
    (re.compile(r"(^|/)BasicRNNCell/Linear/Matrix$"), r"\1basic_rnn_cell/kernel"),
    (re.compile(r"(^|/)BasicRNNCell/Linear/Bias$"), r"\1basic_rnn_cell/bias"),
    (re.compile(r"(^|/)BasicLSTMCell/Linear/Matrix$"), r"\1basic_lstm_cell/kernel"),
    (re.compile(r"(^|/)BasicLSTMCell/Linear/Bias$"), r"\1basic_lstm_cell/bias"),
    (re.compile(r"(^|/)LSTMCell/W_0$"), r"\1lstm_cell/kernel"),
    (re.compile(r"(^|/)LSTMCell/B$"), r"\1lstm_cell/bias"),
    (re.compile(r"(^|/)LSTMCell/W_([FIO])_diag$"), lambda matched: f"{matched[1]}lstm_cell/w_{matched[2].lower()}_diag"),
    (re.compile(r"(^|/)LSTMCell/W_P_0$"), r"\1lstm_cell/projection/kernel"),
    (re.compile(r"(^|/)GRUCell/Gates/Linear/Matrix$"), r"\1gru_cell/gates/kernel"),
    (re.compile(r"(^|/)GRUCell/Gates/Linear/Bias$"), r"\1gru_cell/gates/bias"),
    (re.compile(r"(^|/)GRUCell/Candidate/Linear/Matrix$"), r"\1gru_cell/candidate/kernel"),
    (re.compile(r"(^|/)GRUCell/Candidate/Linear/Bias$"), r"\1gru_cell/candidate/bias"),
    (re.compile(r"(_cell(?:_\d+)?(?:/\w+)?)/weights$"), r"\1/kernel"),
    (re.compile(r"(_cell(?:_\d+)?(?:/\w+)?)/biases$"), r"\1/bias"),
    (re.compile(r"(^|/)BiRNN/FW/"), r"\1bidirectional_rnn/fw/"),
    (re.compile(r"(^|/)BiRNN/BW/"), r"\1bidirectional_rnn/bw/"),
)

_WRAPPED = re.compile(
    r"(?P<stack>(?:.*/)?stack_bidirectional_rnn(?:_\d+)?/cell_(?P<outer>\d{1,3})/)?"
    r"(?P<two>(?:.*/)?(?P<way>fw|bw)/)?"
    r"(?P<multi>(?:.*/)?multi_rnn_cell(?:_\d+)?/cell_(?P<inner>\d{1,3})/)?(?P<rest>.*)"
)
_TWO = re.compile(r"(^|/)bidirectional_rnn(_\d+)?/fw/")
_LOCAL = re.compile(r"kernel|bias|(gates|candidate|projection)/(kernel|bias)|w_[fio]_diag")
"""The variables of a cell that has a layout, in a scope of any name."""
_IN_LOOP = re.compile(r"(?P<scope>(?:.*/)?rnn(?:_\d+)?/[^/]+)/(?P<local>kernel|(?:gates|candidate)/kernel)")
"""A matrix of what dynamic_rnn and static_rnn call in their own scope."""


class Member(NamedTuple):
    """A cell: its scope, which class that names ("" for an unknown one), and full names by local ones."""

    scope: str
    known_class: str
    names: dict[str, str]

    @property
    def matrix(self) -> str:
        """The variable that its graph is known by: the matrix, that of the candidate of a GRU; "" for other cells."""
        return self.names.get("kernel") or self.names.get("candidate/kernel") or ""

    @property
    def state_matrix(self) -> str:
        """The variable of the matrix that multiplies its old state."""
        return next((self.names[local] for local in ("kernel", "gates/kernel", "w_ru", "W_0") if local in self.names), "")


@dataclass(frozen=True)
class CellPlaces:
    """Where the cells of each layer were.

    cells    by the layer's name and (layer, direction)
    program  the graph in the common operations; None for weights alone
    """

    cells: Mapping[str, Mapping[tuple[int, int], Member]]
    program: ReadProgram | None = None


FORWARD_ALONE = "it has only forward cells: its backward ones are missing, or are the same (one cell for both)"
"""What is odd about a layer of two directions with the variables of one."""


@dataclass
class Wrapped:
    """Cells that one wrapper holds, by (layer, direction).

    join  where the directions meet: "layer", "end"
    odd   why they are not read, or ""
    """

    name: str
    join: str = "layer"
    cells: dict[tuple[int, int], Member] = field(default_factory=dict)
    odd: str = ""

    def share(self) -> None:
        """Take the forward cells for the backward ones, too."""
        self.odd = ""
        self.cells |= {(layer, 1): member for (layer, _), member in self.cells.items()}


def modern(name: str) -> str:
    """Return the name that TensorFlow 1.15 has for a variable."""
    for pattern, spelling in _OLDER:
        name = pattern.sub(spelling, name)
    return name


def wrappers(names: Iterable[str], chosen: Iterable[str] = ()) -> list[Wrapped]:
    """Return the recurrent layers among variables, in the order of their names.

    chosen  names of layers whose cells are to be read although their scopes state no class

    Cells in a wrapper's scope are taken regardless of their own scopes' names; if there are no others, cells in a loop's scope.
    """
    own_names = [(modern(full), full) for full in without_slots(names)]
    wrapped_cells = _placed(own_names, {*chosen, *_pairs(own_names)})
    if not wrapped_cells:  # a dense layer has a kernel and a bias in such a scope, too
        wrapped_cells = _placed(own_names, {*chosen, *(match["scope"] for name, _ in own_names if (match := _IN_LOOP.fullmatch(name)))})
    # Keras has layers of these names, too, whose recurrent matrices are arrays of their own.
    recurrent = [
        each for each in wrapped_cells.values() if not any(c.known_class and "recurrent_kernel" in c.names for c in each.cells.values())
    ]
    for wrapped in recurrent:
        _check(wrapped)
    return sorted(recurrent, key=lambda entry: natural(next(iter(entry.cells.values())).scope))


def _placed(names: Iterable[tuple[str, str]], chosen: Collection[str]) -> dict[str, Wrapped]:
    """Return the cells of variables, which have a modern and a full name, by the names of their layers."""
    wrapped_cells: dict[str, Wrapped] = {}
    # A cell beside a wrapper is none of the wrapper's: it takes its name where that is free.
    for name, full in sorted(names, key=lambda both: not _is_wrapped(both[0])):
        _place(name, full, wrapped_cells, chosen)
    for wrapped in wrapped_cells.values():
        wrapped.cells = {place: member for place, member in wrapped.cells.items() if not _only_surrounds(member)}
    return {key: wrapped for key, wrapped in wrapped_cells.items() if wrapped.cells}


def _only_surrounds(member: Member) -> bool:
    """Return whether a scope is called as a cell's, and has only other layers in it, as that of an attention's memory does."""
    return bool(member.known_class) and all("/" in local and not _LOCAL.fullmatch(local) for local in member.names)


def _pairs(names: Iterable[tuple[str, str]]) -> set[str]:
    """Return the scopes within a loop's that hold the two matrices of a GRU."""
    locals_by_scope: dict[str, set[str]] = {}
    for name, _ in names:
        if match := _IN_LOOP.fullmatch(name):
            locals_by_scope.setdefault(match["scope"], set()).add(match["local"])
    return {scope for scope, locals in locals_by_scope.items() if {"gates/kernel", "candidate/kernel"} <= locals}


def _is_wrapped(name: str) -> bool:
    wrapping = _WRAPPED.fullmatch(name)
    return wrapping is not None and any(wrapping[word] for word in ("stack", "two", "multi"))


def without_slots(names: Iterable[str]) -> list[str]:
    """Return the names without those below another variable's: what optimizers keep with it."""
    every = set(names)
    return [name for name in sorted(every, key=natural) if not _is_slot(name, every)]


def _is_slot(name: str, every: set[str]) -> bool:
    parts = name.split("/")
    return any("/".join(parts[:count]) in every for count in range(1, len(parts)))


def _place(name: str, full: str, wrapped_cells: dict[str, Wrapped], chosen: Collection[str]) -> None:
    wrapping = _WRAPPED.fullmatch(name)
    if wrapping is None:
        return
    stack, two, multi = (wrapping[word] or "" for word in ("stack", "two", "multi"))
    rest, deep = wrapping["rest"], wrapping["outer"] is not None and wrapping["inner"] is not None
    if two and multi and not multi.startswith("multi_rnn_cell"):
        return  # what lies between them is no wrapper
    cell = _cell(rest, bool(multi or two or stack), chosen)
    if cell is None:
        return
    above, scope, class_name, local = cell
    layer = wrapping["inner"] if deep or wrapping["outer"] is None else wrapping["outer"]
    direction = 1 if wrapping["way"] == "bw" else 0
    start = (stack if deep else re.sub(r"cell_\d+/$", "", stack)) + re.sub(r"[fb]w/$", "", "" if stack and not deep else two)
    layered = start if two or stack else re.sub(r"cell_\d+/$", "", multi)
    key = (layered + above).rstrip("/") or scope
    if not layered and (
        not class_name or (key in wrapped_cells and any(c.scope != above + scope for c in wrapped_cells[key].cells.values()))
    ):
        key = above + scope
    if not class_name and not layered and key not in chosen and not known_other(scope):
        return
    wrapped = wrapped_cells.setdefault(key, Wrapped(key, "end" if two and (deep or not stack) else "layer"))
    place = (int(layer or 0), direction)
    path = stack + two + multi + above + scope
    member = wrapped.cells.setdefault(place, Member(path, class_name, {}))
    if member.scope != path:
        wrapped.odd = wrapped.odd or f"{member.scope!r} and {path!r} are in the same place"
        return
    member.names[local] = full


def known_other(scope: str) -> bool:
    """Return whether a scope is that of a cell with other equations."""
    return re.sub(r"_\d+$", "", scope) in OTHERS


def _cell(rest: str, wrapped: bool, chosen: Iterable[str]) -> tuple[str, str, str, str] | None:
    """Return the scope above a cell's, the cell's scope, the class that it names, and a variable's name under it."""
    parts = rest.split("/")
    for at in range(len(parts) - 1):
        plain = re.sub(r"_\d+$", "", parts[at])
        if plain in CLASSES or plain in OTHERS:
            return ("".join(f"{part}/" for part in parts[:at]), parts[at], plain if plain in CLASSES else "", "/".join(parts[at + 1 :]))
    if wrapped and len(parts) > 1:
        return "", parts[0], "", "/".join(parts[1:])
    for scope in sorted((chosen_scope for chosen_scope in chosen if rest.startswith(f"{chosen_scope}/")), key=len, reverse=True):
        above, _, last = scope.rpartition("/")
        local = rest[len(scope) + 1 :]
        if _LOCAL.fullmatch(local):
            return above + "/" if above else "", last, "", local
    return None


def _check(wrapped: Wrapped) -> None:
    """Say why cells do not make a layer: gaps, one direction without the other."""
    layers, ways = {layer for layer, _ in wrapped.cells}, {way for _, way in wrapped.cells}
    if len(wrapped.cells) != len(layers) * len(ways) or layers != set(range(len(layers))) or 0 not in ways:
        places = ", ".join(f"cell {layer} {'backward' if way else 'forward'}" for layer, way in sorted(wrapped.cells))
        wrapped.odd = wrapped.odd or f"it has only {places}, but no layer or direction may be missing"
    elif ways == {0} and any(_TWO.search(cell.scope) for cell in wrapped.cells.values()):
        wrapped.odd = wrapped.odd or FORWARD_ALONE
