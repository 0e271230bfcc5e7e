"""Walks over the graphs of a program."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from rnnconvert.graphs.program.kinds import MEASURING
from rnnconvert.graphs.program.operations import Operation, Program
from rnnconvert.graphs.program.scopes import ModelScopes, Scope


def walk(program: Program) -> Iterator[Scope]:
    """Yield every graph of a program: the main one, those nested in operations, a function once for each call.

    Functions that nobody calls come last, with nothing known about their inputs.
    Raises UnreadableError if functions call themselves or the graphs are too many or too deep.
    """
    model = ModelScopes(program)
    called: set[tuple[str, str]] = set()
    waiting = [Scope(model, "main", program.main, None, program.opsets)]
    while waiting:
        scope = waiting.pop()
        if scope.body.function is not None:
            called.add(scope.body.function)
        yield scope
        waiting += reversed([inner for index, node in enumerate(scope.nodes) for inner in scope.inner(node, index)])
        uncalled = [key for key in model.functions if key not in called]
        if not waiting and uncalled:
            function = model.functions[uncalled[0]]
            domain, name = uncalled[0]
            waiting.append(Scope(model, f"{domain}::{name}()", function, None, function.opsets))


def behind(scope: Scope, name: str, until: Collection[str] = ()) -> Iterator[tuple[str, Operation | None]]:
    """Yield the values that a value is computed from, itself the first, each with the node that gives it.

    Constants are left out, and what is behind a shape: it does not decide the shape's numbers.

    until  values whose origin is not asked for
    """
    waiting, seen = [name], set()
    while waiting:
        value = waiting.pop()
        if not value or value in seen or scope.constant(value) is not None:
            continue
        seen.add(value)
        producer = scope.producer(value)
        node = None if producer is None else producer[0]
        yield value, node
        if node is not None and node.kind not in MEASURING and value not in until:
            waiting += node.inputs
