"""Layers that other operations compute in a graph that its room wrote as a program."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from rnnconvert.core.malformed import MALFORMED, in_words, passes
from rnnconvert.core.weights import Call, Unknown
from rnnconvert.files.adapter import unique
from rnnconvert.graphs.program.operations import Program
from rnnconvert.graphs.program.scopes import Scope
from rnnconvert.graphs.program.walk import walk
from rnnconvert.recognition.computed import Computed, RecognisedLayers, recognise_layers
from rnnconvert.recognition.flow import PlacedCall, ReadProgram, RecurrentCall, received
from rnnconvert.recognition.suspects import looks_recurrent


def recognise_in(
    lower: Callable[[], Program], later: re.Pattern[str], homes: Collection[tuple[str, RecurrentCall]] = ()
) -> tuple[RecognisedLayers, dict[str, tuple[Call, ...]]]:
    """Return the layers that a graph computes, under the names that its framework shows, and what these and others receive.

    lower  makes the graph a program
    later  the end of a name that the framework adds to the layer's own
    homes  the layers' names and the calls of the recurrent operations of the graph and of those in it, of which a layer may have several;
           `lower` may add to them
    """
    try:
        program = lower()
        scopes = list(walk(program))
        recognised = recognise_layers(program, scopes[0], (), looks_recurrent(scopes[0]))
    except MALFORMED as error:
        if passes(error):
            raise
        why = _unlike(error)
        return RecognisedLayers(reasons={"": why}), dict.fromkeys(dict(homes), (Call(Unknown(why)),))
    layers: dict[str, Computed] = {}
    for name, layer in recognised.layers.items():
        short = later.sub("", name)
        label = unique(short if short and short not in layers else name, [*dict(homes), *layers])
        layers[label] = layer.renamed(label)
    done = RecognisedLayers(layers, recognised.reasons, scopes, recognised.cells)
    calls = received(scopes, [(name, _around(scopes, home), home) for name, home in homes], done)
    done.layers = {name: replace(computed, stack=computed.stack.replace(calls=calls[name])) for name, computed in layers.items()}
    return done, {name: calls[name] for name in dict(homes)}


def read_program(looked: RecognisedLayers, calls: Mapping[str, RecurrentCall]) -> ReadProgram | None:
    """Return a graph with its layers; None for one that is not as its operators ask.

    calls  the recurrent operations of the main graph, by the names of their layers
    """
    if not looked.scopes:
        return None
    main, placed = looked.scopes[0], {}
    for name, call in calls.items():
        producer = main.producer(next(iter(call.outputs), ""))
        if producer is not None:
            placed[name] = PlacedCall(main, producer[0], call)
    return ReadProgram(looked.scopes, placed, looked.layers)


def _around(scopes: Sequence[Scope], home: RecurrentCall) -> Scope:
    """Return the graph that a recurrent operation is in."""
    gives = [*home.outputs, *home.states]
    return next((scope for scope in scopes if any(scope.producer(name) is not None for name in gives)), scopes[0])


def scopes_in(lower: Callable[[], Program]) -> Sequence[Scope]:
    """Return every graph of a program, the main one first; nothing for one that is not as its operators ask.

    lower  makes the graph a program
    """
    try:
        return list(walk(lower()))
    except MALFORMED as error:
        if passes(error):
            raise
        return ()


def received_in(lower: Callable[[], Program], homes: Collection[tuple[str, RecurrentCall]]) -> dict[str, tuple[Call, ...]]:
    """Return the calls of a graph's recurrent operations, with all that they receive.

    lower  makes the graph a program
    homes  the layers' names and calls, of which a layer may have several
    """
    try:
        scopes = list(walk(lower()))
        return received(scopes, [(name, scopes[0], home) for name, home in homes], RecognisedLayers())
    except MALFORMED as error:
        if passes(error):
            raise
        return {name: (Call(Unknown(_unlike(error))),) for name, _ in homes}


def _unlike(error: BaseException) -> str:
    return f"the graph is not as its operators ask ({in_words(error)})"
