"""Recurrent layers whose steps are written out one after another: chains of products with one recurrent matrix."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from rnnconvert.core.weights import Direction
from rnnconvert.graphs.program.evaluate import UnmatchedError
from rnnconvert.graphs.program.kinds import CUTTING
from rnnconvert.graphs.program.operations import Operation
from rnnconvert.graphs.program.products import product_of
from rnnconvert.graphs.program.scopes import Scope
from rnnconvert.graphs.program.shapes import Shapes
from rnnconvert.recognition.cell import match
from rnnconvert.recognition.chains import chains_of
from rnnconvert.recognition.expression import Linear, Origin, Piece, Unitwise, signature
from rnnconvert.recognition.first import first_step
from rnnconvert.recognition.recognised import RecognisedLayer, Weights, weights
from rnnconvert.recognition.states import given_at_run_time
from rnnconvert.recognition.trace import Tracer
from rnnconvert.recognition.trial import Match
from rnnconvert.recognition.uses import STEP, UsedGraph, inside, inside_of, read, same, uses

_ALONE = 60
"""The most nodes that are looked through behind a product that is the only one."""
_ENDS = ("Add", "Mul", "Sub", "Tanh", "Relu", "Sum", "Sigmoid", "Softsign", "Elu", "LeakyRelu")


class AmbiguousError(UnmatchedError):
    """A cell whose input could be its state."""


def steps(scope: Scope, shapes: Shapes) -> Iterator[tuple[str, list[RecognisedLayer] | UnmatchedError]]:
    """Yield each chain of steps with its name and the layer that it is, or what prevents that.

    A layer comes in one form or in two, the one to be tried first before the other.
    """
    graph = UsedGraph(scope, shapes)
    claimed: set[str] = set()
    for chain in chains_of(graph):
        products = [graph.nodes[index] for index in chain]
        if all(product.outputs[0] in claimed for product in products):
            continue
        label = products[0].name or products[0].outputs[0]
        try:
            variants, covered = _variants(graph, products)
        except UnmatchedError as problem:
            # One or two products with a matrix are no sign of a layer, so that nothing is missing without them.
            if len(products) > 2 or isinstance(problem, AmbiguousError):
                yield label, problem
            continue
        states = {use.value for variant in variants for use in variant.uses}
        if not states & claimed:
            claimed |= covered | states | inside(graph, variants[0])
            yield label, variants


def _variants(graph: UsedGraph, products: Sequence[Operation]) -> tuple[list[RecognisedLayer], set[str]]:
    """Return the layer that a chain of products belongs to, in the ways in which it may be one; and its products.

    A first step whose state is stored is often folded, so that it does not look like the others: then the layer may begin
    with it, from zeros, or with the second one.
    """
    problem = UnmatchedError("the products of its chain belong to no cell")
    covered = {product.outputs[0] for product in products}
    # The second try leaves out the first product, which may belong to a step from stored states that looks different.
    for skipped in (0, 1):
        if len(products) - skipped < 1:
            continue
        remaining = products[skipped:]
        for before in _states_before(graph, remaining[0]):
            try:
                chain = _followed(graph, remaining, before)
            except UnmatchedError as error:
                problem = problem if isinstance(problem, AmbiguousError) else error
                continue
            variants, partly = [], "a step before its first one is not proved to be of the same cell"
            if graph.scope.constant(before) is None:
                try:
                    variants.append(_layer(graph, remaining, [_first(graph, chain), *chain], True))
                except UnmatchedError as error:
                    partly = str(error)
            try:
                rest = _layer(graph, remaining, chain, False)
                variants.append(replace(rest, partly=partly if _continues(graph, chain[0]) else ""))
            except UnmatchedError as error:
                problem = error
            if variants:
                return variants, covered
    raise problem


def _first(graph: UsedGraph, chain: Sequence[WrittenStep]) -> WrittenStep:
    """Return the step that gives the states with which others begin. Raises UnmatchedError for one that is not of their cell."""
    step = chain[0]
    ends = [step.before, *([step.old] if step.old else [])]
    origins = first_step(graph.scope, graph.shapes, step.match, step.piece, step.weights.origins, ends)
    packed = Weights(step.weights.arrays, origins)
    return replace(step, before="", after=step.before, old="", new=step.old, weights=packed)


def _continues(graph: UsedGraph, step: WrittenStep) -> bool:
    """Return whether the state before a step is computed with its own matrices, so that it goes on what a step before it did."""
    matrices = [array for (part, _), array in step.weights.arrays.items() if part == "input"]
    for index in inside_of(graph, [step.before]):
        product = product_of(graph.scope, graph.nodes[index])
        if product is not None and any(np.may_share_memory(product.matrix, matrix) for matrix in matrices):
            return True
    return False


def _states_before(graph: UsedGraph, product: Operation) -> list[str]:
    """Return the candidates for the state that a product reads: the value that it is multiplied with, or a part of it."""
    name = product.inputs[0]
    producer = graph.scope.producer(name)
    if producer is not None and producer[0].kind == "Concat":
        # Most cells join the input and the state in this order, so the state is tried first.
        return list(reversed(producer[0].inputs))
    if producer is not None and producer[0].kind in ("Cast", "Identity", "Squeeze", "Reshape"):
        return [name, producer[0].inputs[0]]
    return [name]


def _followed(graph: UsedGraph, products: Sequence[Operation], before: str) -> list[WrittenStep]:
    """Return the steps from a state on, one for each product of a chain."""
    chain: list[WrittenStep] = []
    places = [graph.places[product.outputs[0]] for product in products]
    # A dense layer on stored numbers looks like this, too.
    if len(products) == 1 and not given_at_run_time(graph.scope, before):
        raise UnmatchedError("one step from a stored state")
    for number in range(len(products)):
        last = number == len(products) - 1
        limit = len(graph.nodes) if last else places[number + 1]
        nodes = [graph.nodes[index] for index in graph.after(before, limit)][:STEP]
        expected = None if last else _states_before(graph, products[number + 1])
        step = _step(graph, before, expected, nodes, chain[0] if chain else None)
        if chain and step.old:
            if not hands_on(graph, chain[-1], step.old):
                raise UnmatchedError(f"its steps do not hand on their cell state: {between(graph, step.old)}")
            # Which value is the new cell state of a step shows in the next one, which reads it as its old one.
            chain[-1] = replace(chain[-1], new=step.old)
        chain.append(step)
        before = step.after
    outputs = {
        name for index in graph.after(products[0].outputs[0], len(graph.nodes), len(graph.nodes)) for name in graph.nodes[index].outputs
    }
    if any(origin.value in outputs for step in chain for origin in step.weights.origins):
        raise UnmatchedError("what its steps read depends on what they gave")
    return chain


def _step(
    graph: UsedGraph, before: str, expected: Sequence[str] | None, nodes: Sequence[Operation], like: WrittenStep | None
) -> WrittenStep:
    """Return the step from a state to the next one: the expected one, or the first that is of the same cell."""
    later = {name for node in nodes for name in node.outputs if name}
    tracer = Tracer(graph.scope, graph.shapes, [before], later)
    # The first step is searched for close to its product; later ones have it as a model.
    near = nodes if like is not None else nodes[:_ALONE]
    candidates = expected or [node.outputs[0] for node in near if node.kind in _ENDS]
    problem = UnmatchedError("no value behind its last product is a cell's new state")
    for after in candidates:
        if after not in later:
            continue
        try:
            pieces = tracer.trace(after)
            if len(pieces) != 1:
                raise UnmatchedError("its state is put together from parts")
            formula, origins = signature(pieces[0])
            # The formula has been tried on numbers already; only the values that it reads are others.
            if like is not None and expected and formula == like.formula:
                names = dict(zip(like.origins, origins, strict=True))
                packed = Weights(like.weights.arrays, {names[origin]: size for origin, size in like.weights.origins.items()})
                old = _name(graph, like.tracer, names[like.match.old.origin]) if like.match.old is not None else ""
                return replace(
                    like, before=before, after=after, piece=pieces[0], tracer=tracer, weights=packed, old=old, new="", origins=origins
                )
            cell_match = match(pieces[0], before)
            packed = weights(cell_match, before, graph.scope)
            alone = expected is None and like is None
            if alone and cell_match.cell.kind == "lstm" and _symmetric(graph, before, packed, pieces[0].width):
                raise AmbiguousError("which of its inputs is the state cannot be told from one step")
            if cell_match.cell.kind == "rnn" and expected is None and like is None:
                raise UnmatchedError("a single step of an RNN cannot be told from two dense layers")
        except UnmatchedError as error:
            problem = problem if isinstance(problem, AmbiguousError) else error
            continue
        new = ""
        if cell_match.new is not None:
            new = next((n.outputs[0] for n in nodes if n.outputs[0] != after and _is(tracer, n.outputs[0], cell_match.new.key)), "")
        old = _name(graph, tracer, cell_match.old.origin) if cell_match.old is not None else ""
        step = WrittenStep(before, after, pieces[0], tracer, cell_match, packed, old, new, formula, origins)
        if like is None or same_step(like, step):
            return step
        problem = UnmatchedError("its steps are not of one cell")
    raise problem


def _symmetric(graph: UsedGraph, before: str, packed: Weights, size: int) -> bool:
    """Return whether a step's input could be its state: as wide, and neither is plainly what the model is given or is not."""
    if list(packed.origins.values()) != [size] or any(part == "peephole" for part, _ in packed.arrays):
        return False
    (origin,) = packed.origins
    return not _supplied(graph, before) or _supplied(graph, origin.value)


_MOVES = (*CUTTING, "Split", "Reshape", "Identity", "Cast")


def _supplied(graph: UsedGraph, name: str) -> bool:
    """Return whether a value is an input of the model, or a part of one."""
    while (producer := graph.scope.producer(name)) is not None:
        # Anything that computes would make it a value of the model.
        if producer[0].kind not in _MOVES:
            return False
        name = producer[0].inputs[0]
    return True


def _is(tracer: Tracer, name: str, key: object) -> bool:
    try:
        pieces = tracer.trace(name)
    except UnmatchedError:
        return False
    return len(pieces) == 1 and pieces[0].key == key


def _layer(graph: UsedGraph, products: Sequence[Operation], steps: Sequence[WrittenStep], zero: bool) -> RecognisedLayer:
    """Return the layer that steps are.

    zero  whether it begins from zeros
    """
    ways: set[bool] = set()
    reads = []
    for number, width in enumerate(steps[0].weights.origins.values()):
        origins = [list(step.weights.origins)[number] for step in steps]
        reading, way = read(graph, origins, width)
        if way is not None:
            ways.add(way)
        reads.append(reading)
    if len(ways) > 1 or (True in ways and any(source.steps for source in reads)):
        raise UnmatchedError("it reads one sequence forward and another one from its end")
    states = {} if zero else {"h": steps[0].before, **({"c": steps[0].old} if steps[0].old else {})}
    dims = graph.shapes.dims(graph.scope, steps[-1].after) or graph.shapes.dims(graph.scope, steps[-1].before)
    rank = len(dims) if dims is not None else 2
    if rank not in (2, 3):
        raise UnmatchedError(f"its state has {rank} axes")
    backward = ways == {True}
    ends = [(step.after, step.new) for step in steps]
    count = len(ends)
    return RecognisedLayer(
        products[0].name or products[0].outputs[0],
        f"{count} written-out step{'s' * (count > 1)}",
        Direction(steps[0].match.cell, steps[0].weights.arrays, backward),
        reads,
        states,
        uses(graph, ends, rank, backward),
        rank,
        False,
        count,
    )


def _name(graph: UsedGraph, tracer: Tracer, origin: Origin) -> str:
    """Return the name of the value that an origin is, such as that of one element where a sequence holds all states.

    Raises UnmatchedError for an element that no node of the graph takes out.
    """
    if origin.axis is None:
        return origin.value
    for node in graph.nodes:
        for name in node.outputs:
            scope, sequence, at = tracer.element(graph.scope, name) or (None, "", ())
            if scope is graph.scope and (sequence, at) == (origin.value, (origin.axis, origin.step)):
                return str(name)
    raise UnmatchedError(f"its cell state is step {origin.step} of {origin.value!r}, which no node takes out")


# One written-out step, and what it hands to the next.


@dataclass(frozen=True, eq=False)
class WrittenStep:
    """One step.

    before, after     the states around it, by name
    old, new          the cell states around it; "" without one, or while its name is unknown
    piece, tracer     its formula, and what read it
    formula, origins  what steps of one cell share, and the values in which they differ (fuse_expression.signature)
    """

    before: str
    after: str
    piece: Piece
    tracer: Tracer
    match: Match
    weights: Weights
    old: str
    new: str
    formula: object
    origins: tuple[Origin, ...]


def hands_on(graph: UsedGraph, step: WrittenStep, name: str) -> bool:
    """Return whether a value is the cell state that a step leaves."""
    new = step.match.new
    if new is None:
        return False
    asked = signature(new)[0]
    names = set(same(graph, name))
    if step.new in names:
        return True
    for each in names:
        try:
            pieces = step.tracer.trace(each)
        except UnmatchedError:
            continue
        if len(pieces) == 1 and signature(pieces[0])[0] == asked and _has(step.piece, pieces[0].key):
            return True
    return False


def _has(piece: Piece, key: object) -> bool:
    """Return whether a formula has a part."""
    parts: Sequence[Piece] = piece.operands if isinstance(piece, Unitwise) else ()
    if isinstance(piece, Linear):
        parts = [term.operand for term in piece.terms]
    return piece.key == key or any(_has(part, key) for part in parts)


def between(graph: UsedGraph, name: str) -> str:
    """Return the origin of a value, in words."""
    producer = graph.scope.producer(name)
    return f"{name!r} is " + ("given" if producer is None else f"what a node {producer[0].kind} makes of it")


def same_step(step: WrittenStep, other: WrittenStep) -> bool:
    """Return whether two steps are of one cell with the same numbers."""
    if step.formula == other.formula:
        return True
    if step.match.cell != other.match.cell or step.weights.arrays.keys() != other.weights.arrays.keys():
        return False
    if list(step.weights.origins.values()) != list(other.weights.origins.values()):
        return False
    pairs = ((step.weights.arrays[key], other.weights.arrays[key]) for key in step.weights.arrays)
    return all(a is b or (a.shape == b.shape and np.array_equal(a, b)) for a, b in pairs)
