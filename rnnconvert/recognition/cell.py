"""Which cell a step computes: found by trying its formula on numbers, so that it does not matter with which operators it is written."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from rnnconvert.core.arrays import Array
from rnnconvert.core.cells import Activation, Cell
from rnnconvert.core.limits import UNITS
from rnnconvert.graphs.program.evaluate import UnmatchedError
from rnnconvert.recognition.corners import corners, narrowed
from rnnconvert.recognition.equations import candidate_after, lstm_gives, of_one, run_function, updated
from rnnconvert.recognition.expression import Leaf, Linear, Piece, Term, Unitwise, value, variables
from rnnconvert.recognition.trial import Match, Trial, confirmed, gate_of, identified, same, with_fixed


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
    if size > UNITS:
        raise UnmatchedError(f"its state has {size:,} units")
    pieces = variables(formula)
    state = next((piece for piece in pieces.values() if isinstance(piece, Leaf) and piece.origin.value == hidden), None)
    if state is not None and (state.start, state.width) != (0, size):
        raise UnmatchedError("its state is used in parts")
    formula, tried = narrowed(formula)
    trial = Trial(formula, tried)
    # Variables are sums of products, and states outside of products: n; h, z, n and for reset_after r, n'; c, i, f, g, o.
    if state is None and len(pieces) == 1 and not isinstance(formula, Leaf):
        return _rnn(trial)
    if state is not None and len(pieces) in (3, 5):
        return _gru(trial, state, hidden)
    if state is None and len(pieces) == 5:
        return _lstm(formula, (size, tried), cell_states)
    raise UnmatchedError(_unlike(len(pieces) - (state is not None)))


def _unlike(count: int) -> str:
    return f"no RNN, GRU or LSTM has a step that puts {count} sums of products and states through functions"


def _rnn(trial: Trial) -> Match:
    ((key, piece),) = trial.names.items()
    function = identified(lambda x: trial.evaluate({key: x}), trial.draws[key].shape)
    if function is None:
        raise UnmatchedError("no layer has its function")
    matched = Match(Cell("rnn", activation=function), {"n": piece}, {"n": 1})
    return confirmed(trial, partial(of_one, key, function), matched)


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


def _retention(trial: Trial, state: object, problem: str) -> _Retention:
    """Return the gate that alone decides how much of a state stays. Raises UnmatchedError without such a gate."""

    def share(changed: Mapping[object, Array | float]) -> Array:
        # A new state is linear in the old one, so that a difference is the factor.
        return trial.evaluate({**changed, state: 1.0}) - trial.evaluate({**changed, state: 0.0})

    keys = trial.reads(share, [state])
    if len(keys) != 1:
        raise UnmatchedError(problem)
    (key,) = keys
    function, sign = gate_of(lambda x: share({key: x}), trial.draws[key].shape)
    return _Retention(key, sign, function, [name for name in trial.names if name not in (state, key)], share)


def _gru(trial: Trial, state: Leaf, hidden: str) -> Match:
    """Return the GRU that h' = (1 - z) * n + z * h is, its gates found by what they do."""
    h = state.key
    z, sign, gate, rest, share = _retention(trial, h, "no update gate alone decides how much of the state is kept")
    shape = trial.draws[z].shape

    def candidate(changed: Mapping[object, Array | float]) -> Array:
        # Any gate will do under which a part of the candidate is left.
        middle = {z: 0.1 * sign}
        retained = share(middle)
        return np.asarray(trial.evaluate({**changed, **middle, h: 0.0}) / (1 - retained))

    if len(rest) == 1:
        (n,) = rest
        function = identified(lambda x: candidate({n: x}), shape)
        if function is None:
            raise UnmatchedError("no layer has the function of its candidate")
        reset, reset_sign = _reset_before(trial.names[n], hidden, gate)
        matched = Match(
            Cell("gru", False, function, gate), {"r": reset, "z": trial.names[z], "n": trial.names[n]}, {"r": reset_sign, "z": sign, "n": 1}
        )
        return confirmed(trial, updated((h, z), gate, sign, partial(of_one, n, function)), matched)
    # No name shows which variable is the reset gate, and which of the two sums it multiplies.
    for r, below, above in itertools.permutations(rest):
        function = identified(partial(with_fixed, candidate, above, {below: 0.0}, 1.0), shape)
        if function is None:
            continue
        for way in (1, -1):
            new = partial(candidate_after, (r, above, below), function, gate, way)
            if same(candidate({}), new(trial.draws)):
                matched = Match(
                    Cell("gru", True, function, gate),
                    {"r": trial.names[r], "z": trial.names[z], "n": trial.names[above], "n'": trial.names[below]},
                    {"r": way, "z": sign, "n": 1, "n'": 1},
                )
                return confirmed(trial, updated((h, z), gate, sign, new), matched)
    raise UnmatchedError("its candidate is that of no GRU")


def _reset_before(candidate: Piece, hidden: str, gate: Activation) -> tuple[Piece, int]:
    """Return the reset gate of a candidate whose matrix is multiplied with r * h, and its sign."""
    inner = [term.operand for term in getattr(candidate, "terms", ()) if isinstance(term.operand, Unitwise)]
    if len(inner) != 1:
        raise UnmatchedError(_unlike(2))
    trial = Trial(*narrowed(inner[0]))
    states = [key for key, piece in trial.names.items() if isinstance(piece, Leaf) and piece.origin.value == hidden]
    gates = [key for key in trial.names if key not in states]
    if len(states) != 1 or len(gates) != 1:
        raise UnmatchedError("what its candidate's matrix is multiplied with is not a reset gate times the state")
    # Random numbers rarely come near the places where a function bends.
    near = corners(trial.formula, next(iter(trial.draws.values())).shape[1])
    for sign in (1, -1):
        every = [(draws, run_function(gate, sign * draws[gates[0]]) * draws[states[0]]) for draws in (trial.draws, near)]
        if all(same(value(trial.formula, draws), expected) for draws, expected in every):
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
    if not isinstance(formula, Unitwise):
        return
    for operand in formula.operands:
        if key in variables(operand):
            yield from _over(operand, key)
    yield formula


def _lstm_of(formula: Piece, new: Piece, old: Leaf, size: int) -> Match:
    trial = Trial(new, size)
    c = old.key
    if len(trial.names) != 4:
        raise UnmatchedError(_unlike(5))
    f, sign, gate, rest, _ = _retention(trial, c, "no forget gate alone decides how much of the cell state is kept")
    shape = trial.draws[f].shape
    for i, g in itertools.permutations(rest):
        for way in (1, -1):
            # Without the old cell state and with i fixed, a multiple of the function of g is left.
            opened = run_function(gate, np.full(shape, 0.3 * way))
            function = identified(partial(with_fixed, trial.evaluate, g, {c: 0.0, i: 0.3}, opened), shape)
            if function is None:
                continue
            retained = run_function(gate, sign * trial.draws[f]) * trial.draws[c]
            expected = retained + run_function(gate, way * trial.draws[i]) * run_function(function, trial.draws[g])
            if same(trial.evaluate({}), expected):
                gate_keys = {"i": i, "f": f, "g": g}
                return _output(formula, new, old, size, (trial, gate_keys, gate, function, {"i": way, "f": sign, "g": 1}))
    raise UnmatchedError("its new cell state is that of no LSTM")


def _output(
    formula: Piece, new: Piece, old: Leaf, size: int, cell: tuple[Trial, Mapping[str, object], Activation, Activation, Mapping[str, int]]
) -> Match:
    """Return the LSTM, its output found as a function of the new cell state and one gate."""
    trial, gate_keys, gate, function, signs = cell
    names = {key: piece for key, piece in variables(formula).items() if key not in trial.names}
    if len(names) != 1:
        raise UnmatchedError("its output has no gate of its own")
    (o,) = names
    random = np.random.default_rng(21)
    shape = trial.draws[gate_keys["f"]].shape
    # Drawn apart from the cell state's own variables: the output must be right for every cell state.
    state, output = np.asarray(random.standard_normal(shape) * 4), np.asarray(random.standard_normal(shape) * 4)

    def out(values: Mapping[object, Array | float]) -> Array:
        arrays = {key: np.broadcast_to(np.asarray(array, np.float64), shape) for key, array in values.items()}
        return np.broadcast_to(value(formula, arrays), shape)

    for way in (1, -1):
        opened = run_function(gate, np.full(shape, 0.3 * way))
        last = identified(partial(with_fixed, out, new.key, {o: 0.3}, opened), shape)
        if last is not None and same(out({new.key: state, o: output}), run_function(gate, way * output) * run_function(last, state)):
            pieces = {name: trial.names[key] for name, key in gate_keys.items()} | {"o": names[o]}
            matched = Match(Cell("lstm", None, function, gate, last), pieces, {**signs, "o": way}, new, old)
            keys = (*(gate_keys[letter] for letter in "ifg"), old.key, o)
            run = partial(lstm_gives, keys, (gate, function, last), {**signs, "o": way})
            return confirmed(Trial(formula, size), run, matched)
    raise UnmatchedError("its output is that of no LSTM")


def sides(piece: Piece) -> Linear:
    """Return a gate as a sum of products."""
    if isinstance(piece, Linear):
        return piece
    if isinstance(piece, Leaf):
        return Linear((Term(piece, None),), (), piece.width)
    raise UnmatchedError("a gate is not a sum of products")
