"""Which cell a step computes: found by trying its formula on numbers, whatever operators it is written with."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal, NamedTuple

import numpy as np

from rnnconvert.core.arrays import Array
from rnnconvert.core.cells import ACTIVATION_DEFAULTS, Activation, Cell
from rnnconvert.graphs.program.evaluate import UnmatchedError
from rnnconvert.recognition.corners import corners, narrowed
from rnnconvert.recognition.equations import Computed, candidate_after, lstm_gives, of_one, run_function, updated
from rnnconvert.recognition.expression import Each, Leaf, Linear, Piece, Term, constants, value, variables

_SAMPLES = 48
_WIDEST = 1 << 16
"""The most units of a layer: a file may state a matrix that it does not have."""
_CLOSE = 3e-7
"""How far two formulas may be apart: constants such as 1/6 are in single precision in the file."""


@dataclass(frozen=True, eq=False)
class Match:
    """A cell that a step computes.

    cell   the cell
    gates  what stands in each gate: a sum of products; for a GRU with the reset gate after the product, the candidate has
           two, and the one with the state is under "n'"
    signs  -1 for a gate whose function is 1 - sigmoid: its numbers change sign
    new    the formula of the LSTM's new cell state
    old    the cell state before, an LSTM's
    """

    cell: Cell
    gates: Mapping[str, Piece]
    signs: Mapping[str, int]
    new: Piece | None = None
    old: Leaf | None = None


class _Trial:
    """A formula, and the numbers that it is tried on: of every size, each variable for itself."""

    def __init__(self, formula: Piece, size: int) -> None:
        self.formula, self.names = formula, variables(formula)
        random = np.random.default_rng(20)
        self.draws: dict[object, Array] = {}
        bounds = np.repeat(sorted(constants(formula))[:_SAMPLES], 4)[:, None] * 3  # beyond what a Clip or Min may stop at
        for key in self.names:
            scale = 10.0 ** random.uniform(-2, 1, (_SAMPLES, 1))
            scale[-8:] = 10.0 ** random.uniform(1, 5, (8, 1))
            scale = np.concatenate([scale, bounds])
            self.draws[key] = random.standard_normal((len(scale), size)) * scale

    def evaluate(self, changed: Mapping[object, Array | float]) -> Array:
        """Return what the formula gives with other numbers for some variables."""
        shape = next(iter(self.draws.values())).shape
        new = {key: np.broadcast_to(np.asarray(array, np.float64), shape) for key, array in changed.items()}
        return np.broadcast_to(value(self.formula, {**self.draws, **new}), shape)

    def reads(self, function: Callable[[Mapping[object, Array | float]], Array], fixed: Sequence[object]) -> list[object]:
        """Return the variables that change what a function of the numbers gives."""
        before = function({})
        return [key for key in self.names if key not in fixed and not _same(function({key: self.draws[key][::-1] * 0.7 + 0.3}), before)]


def _same(array: Array, other: Array) -> bool:
    with np.errstate(all="ignore"):
        return bool(np.allclose(array, other, rtol=_CLOSE, atol=_CLOSE) and np.isfinite(array).all())


def match(formula: Piece, hidden: str, cell_states: Sequence[str] = ()) -> Match:
    """Return the cell whose new state a formula is.

    hidden       the name of the state that the step before left
    cell_states  names of what else it may have left; anything in question where it is empty

    Raises UnmatchedError.
    """
    with np.errstate(all="ignore"):  # formulas of no cell overflow
        return _match(formula, hidden, cell_states)


def _match(formula: Piece, hidden: str, cell_states: Sequence[str]) -> Match:
    size = formula.width
    if size > _WIDEST:
        raise UnmatchedError(f"its state has {size:,} units")
    pieces = variables(formula)
    state = next((piece for piece in pieces.values() if isinstance(piece, Leaf) and piece.origin.value == hidden), None)
    if state is not None and (state.start, state.width) != (0, size):
        raise UnmatchedError("its state is used in parts")
    formula, tried = narrowed(formula)
    trial = _Trial(formula, tried)
    if state is None and len(pieces) == 1 and not isinstance(formula, Leaf):
        return _rnn(trial)
    if state is not None and len(pieces) in (3, 5):
        return _gru(trial, state, hidden)
    if state is None and len(pieces) == 5:
        return _lstm(formula, (size, tried), cell_states)
    raise UnmatchedError(_unlike(len(pieces) - (state is not None)))


def _unlike(count: int) -> str:
    return f"no RNN, GRU or LSTM has a step that puts {count} sums of products and states through functions"


def _rnn(trial: _Trial) -> Match:
    ((key, piece),) = trial.names.items()
    function = _identified(lambda x: trial.evaluate({key: x}), trial.draws[key].shape)
    if function is None:
        raise UnmatchedError("no layer has its function")
    matched = Match(Cell("rnn", activation=function), {"n": piece}, {"n": 1})
    return _confirmed(trial, partial(of_one, key, function), matched)


class _Retention(NamedTuple):
    """The gate that decides how much of a state stays.

    gate, sign, function  its variable, its sign in the product, and its function
    rest                  the other variables, without the state
    share                 how much of the state stays, with other numbers for some variables
    """

    gate: object
    sign: int
    function: Activation
    rest: list[object]
    share: Callable[[Mapping[object, Array | float]], Array]


def _retention(trial: _Trial, state: object, problem: str) -> _Retention:
    """Return the gate that alone decides how much of a state stays. Raises UnmatchedError without such a gate."""

    def share(changed: Mapping[object, Array | float]) -> Array:
        return trial.evaluate({**changed, state: 1.0}) - trial.evaluate({**changed, state: 0.0})

    keys = trial.reads(share, [state])
    if len(keys) != 1:
        raise UnmatchedError(problem)
    (key,) = keys
    function, sign = _gate(lambda x: share({key: x}), trial.draws[key].shape)
    return _Retention(key, sign, function, [name for name in trial.names if name not in (state, key)], share)


def _gru(trial: _Trial, state: Leaf, hidden: str) -> Match:
    """Return the GRU that h' = (1 - z) * n + z * h is, its gates found by what they do."""
    h = state.key
    z, sign, gate, rest, share = _retention(trial, h, "no update gate alone decides how much of the state is kept")
    shape = trial.draws[z].shape

    def candidate(changed: Mapping[object, Array | float]) -> Array:
        middle = {z: 0.1 * sign}
        retained = share(middle)
        return np.asarray(trial.evaluate({**changed, **middle, h: 0.0}) / (1 - retained))

    if len(rest) == 1:
        (n,) = rest
        function = _identified(lambda x: candidate({n: x}), shape)
        if function is None:
            raise UnmatchedError("no layer has the function of its candidate")
        reset, reset_sign = _reset_before(trial.names[n], hidden, gate)
        matched = Match(
            Cell("gru", False, function, gate), {"r": reset, "z": trial.names[z], "n": trial.names[n]}, {"r": reset_sign, "z": sign, "n": 1}
        )
        return _confirmed(trial, updated((h, z), gate, sign, partial(of_one, n, function)), matched)
    for r, below, above in itertools.permutations(rest):
        function = _identified(partial(_with, candidate, above, {below: 0.0}, 1.0), shape)
        if function is None:
            continue
        for way in (1, -1):
            new = partial(candidate_after, (r, above, below), function, gate, way)
            if _same(candidate({}), new(trial.draws)):
                matched = Match(
                    Cell("gru", True, function, gate),
                    {"r": trial.names[r], "z": trial.names[z], "n": trial.names[above], "n'": trial.names[below]},
                    {"r": way, "z": sign, "n": 1, "n'": 1},
                )
                return _confirmed(trial, updated((h, z), gate, sign, new), matched)
    raise UnmatchedError("its candidate is that of no GRU")


def _reset_before(candidate: Piece, hidden: str, gate: Activation) -> tuple[Piece, int]:
    """Return the reset gate of a candidate whose matrix is multiplied with r * h, and its sign."""
    inner = [term.operand for term in getattr(candidate, "terms", ()) if isinstance(term.operand, Each)]
    if len(inner) != 1:
        raise UnmatchedError(_unlike(2))
    trial = _Trial(*narrowed(inner[0]))
    states = [key for key, piece in trial.names.items() if isinstance(piece, Leaf) and piece.origin.value == hidden]
    gates = [key for key in trial.names if key not in states]
    if len(states) != 1 or len(gates) != 1:
        raise UnmatchedError("what its candidate's matrix is multiplied with is not a reset gate times the state")
    near = corners(trial.formula, next(iter(trial.draws.values())).shape[1])
    for sign in (1, -1):
        every = [(draws, run_function(gate, sign * draws[gates[0]]) * draws[states[0]]) for draws in (trial.draws, near)]
        if all(_same(value(trial.formula, draws), expected) for draws, expected in every):
            return trial.names[gates[0]], sign
    raise UnmatchedError("what its candidate's matrix is multiplied with is not a reset gate times the state")


def _lstm(formula: Piece, sizes: tuple[int, int], cell_states: Sequence[str]) -> Match:
    """Return the LSTM that h' = o * act(f * c + i * g) is.

    sizes  units, and how many of them the formula is tried on
    """
    size, tried = sizes
    problem = UnmatchedError(_unlike(5))
    for old in variables(formula).values():
        if not isinstance(old, Leaf) or (old.start, old.width) != (0, size):
            continue
        if cell_states and old.origin.value not in cell_states:
            continue
        for new in _over(formula, old.key):
            try:
                return _lstm_of(formula, new, old, tried)
            except UnmatchedError as error:
                problem = error
    raise problem


def _over(formula: Piece, key: object) -> Iterator[Piece]:
    """Yield the parts of a formula that a variable is in, the smallest first."""
    if not isinstance(formula, Each):
        return
    for operand in formula.operands:
        if key in variables(operand):
            yield from _over(operand, key)
    yield formula


def _lstm_of(formula: Piece, new: Piece, old: Leaf, size: int) -> Match:
    trial = _Trial(new, size)
    c = old.key
    if len(trial.names) != 4:
        raise UnmatchedError(_unlike(5))
    f, sign, gate, rest, _ = _retention(trial, c, "no forget gate alone decides how much of the cell state is kept")
    shape = trial.draws[f].shape
    for i, g in itertools.permutations(rest):
        for way in (1, -1):
            opened = run_function(gate, np.full(shape, 0.3 * way))
            function = _identified(partial(_with, trial.evaluate, g, {c: 0.0, i: 0.3}, opened), shape)
            if function is None:
                continue
            retained = run_function(gate, sign * trial.draws[f]) * trial.draws[c]
            expected = retained + run_function(gate, way * trial.draws[i]) * run_function(function, trial.draws[g])
            if _same(trial.evaluate({}), expected):
                gate_keys = {"i": i, "f": f, "g": g}
                return _output(formula, new, old, size, (trial, gate_keys, gate, function, {"i": way, "f": sign, "g": 1}))
    raise UnmatchedError("its new cell state is that of no LSTM")


def _output(
    formula: Piece, new: Piece, old: Leaf, size: int, cell: tuple[_Trial, Mapping[str, object], Activation, Activation, Mapping[str, int]]
) -> Match:
    """Return the LSTM, its output found as a function of the new cell state and one gate."""
    trial, gate_keys, gate, function, signs = cell
    names = {key: piece for key, piece in variables(formula).items() if key not in trial.names}
    if len(names) != 1:
        raise UnmatchedError("its output has no gate of its own")
    (o,) = names
    random = np.random.default_rng(21)
    shape = trial.draws[gate_keys["f"]].shape
    state, output = np.asarray(random.standard_normal(shape) * 4), np.asarray(random.standard_normal(shape) * 4)

    def out(values: Mapping[object, Array | float]) -> Array:
        arrays = {key: np.broadcast_to(np.asarray(array, np.float64), shape) for key, array in values.items()}
        return np.broadcast_to(value(formula, arrays), shape)

    for way in (1, -1):
        opened = run_function(gate, np.full(shape, 0.3 * way))
        last = _identified(partial(_with, out, new.key, {o: 0.3}, opened), shape)
        if last is not None and _same(out({new.key: state, o: output}), run_function(gate, way * output) * run_function(last, state)):
            pieces = {name: trial.names[key] for name, key in gate_keys.items()} | {"o": names[o]}
            matched = Match(Cell("lstm", None, function, gate, last), pieces, {**signs, "o": way}, new, old)
            keys = (*(gate_keys[letter] for letter in "ifg"), old.key, o)
            run = partial(lstm_gives, keys, (gate, function, last), {**signs, "o": way})
            return _confirmed(_Trial(formula, size), run, matched)
    raise UnmatchedError("its output is that of no LSTM")


def _confirmed(trial: _Trial, cell: Computed, matched: Match) -> Match:
    """Return a match once the formula as it stands gives what the cell gives, on random numbers and at its corners."""
    extremes = corners(trial.formula, next(iter(trial.draws.values())).shape[1])
    if not _same(trial.evaluate({}), cell(trial.draws)) or not _same(value(trial.formula, extremes), cell(extremes)):
        raise UnmatchedError("it is close to a cell, and differs on some numbers")
    return matched


def same_function(piece: Piece, other: Piece) -> bool:
    """Return whether two formulas of the same variables are one function: at random numbers, and at the corners of both."""
    both, tried = narrowed(Each("Sub", (piece, other), (), max(piece.width, other.width)))
    assert isinstance(both, Each)
    trial = _Trial(both, tried)
    if not trial.names:
        return _same(value(both, {}), np.zeros(()))
    near = corners(both, next(iter(trial.draws.values())).shape[1])
    with np.errstate(all="ignore"):
        return all(_same(*(value(each, draws) for each in both.operands)) for draws in (trial.draws, near))


def _with(
    function: Callable[[Mapping[object, Array | float]], Array],
    key: object,
    fixed: Mapping[object, Array | float],
    divisor: Array | float,
    x: Array,
) -> Array:
    """Return what a formula gives for some numbers of one variable, the others fixed, divided by a factor of it."""
    return np.asarray(function({**fixed, key: x}) / divisor)


def _gate(function: Callable[[Array], Array], shape: tuple[int, ...]) -> tuple[Activation, Literal[1, -1]]:
    activation = _identified(function, shape)
    if activation is not None:
        return activation, 1
    activation = _identified(lambda x: function(-x), shape)
    if activation is not None:
        return activation, -1
    raise UnmatchedError("no layer has the function of its gates")


_PLAIN = ("sigmoid", "tanh", "relu", "linear", "softsign", "softplus")


def _identified(function: Callable[[Array], Array], shape: tuple[int, ...]) -> Activation | None:
    """Return the function that gives the same numbers, if it is one that layers have."""
    random = np.random.default_rng(22)
    scale = 10.0 ** random.uniform(-2, 1.5, (shape[0], 1))
    tried = np.asarray(random.standard_normal(shape) * scale)
    with np.errstate(all="ignore"):
        outputs = function(tried)
        if not np.isfinite(outputs).all():
            return None
        for activation in (*map(Activation, _PLAIN), *_with_constants(function, shape)):
            if _same(outputs, run_function(activation, tried)):
                return activation
    return None


def _with_constants(function: Callable[[Array], Array], shape: tuple[int, ...]) -> Iterator[Activation]:
    """Yield functions with the constants that they would need."""

    def at(x: float) -> float:
        return float(np.asarray(function(np.full(shape, x))).reshape(-1)[0])

    level, slope = at(0.0), (at(0.25) - at(-0.25)) / 0.5
    yield Activation("hard_sigmoid", _decimal(slope), _decimal(level))
    yield Activation("leaky_relu", _decimal(-at(-1.0)))
    yield Activation("elu", _decimal(-at(-200.0)))
    assert {"hard_sigmoid", "leaky_relu", "elu"} <= set(ACTIVATION_DEFAULTS)


def _decimal(number: float) -> float:
    """Return the number that was meant by one in single precision."""
    short = float(f"{number:.6g}")
    return next((candidate for candidate in (short, 1 / 6, 1 / 3) if abs(candidate - number) < 1e-7 * max(1.0, abs(number))), number)


def sides(piece: Piece) -> Linear:
    """Return what stands in a gate as a sum of products."""
    if isinstance(piece, Linear):
        return piece
    if isinstance(piece, Leaf):
        return Linear((Term(piece, None),), (), piece.width)
    raise UnmatchedError("a gate is not a sum of products")
