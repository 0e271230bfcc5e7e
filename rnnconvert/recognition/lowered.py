"""Layers that other operations compute in a graph that its room wrote as a program."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

from rnnconvert.core.malformed import MALFORMED, in_words, passes
from rnnconvert.graphs.program.operations import Program
from rnnconvert.graphs.program.walk import walk
from rnnconvert.recognition.computed import Computed, RecognisedLayers, recognise_layers
from rnnconvert.recognition.flow import received
from rnnconvert.recognition.suspects import looks_recurrent


def recognise_in(lower: Callable[[], Program], later: re.Pattern[str]) -> RecognisedLayers:
    """Return the layers that a graph computes, under the names that its framework shows.

    lower  makes the graph a program
    later  the end of a name that the framework adds to the layer's own
    """
    try:
        program = lower()
        scopes = list(walk(program))
        recognised = recognise_layers(program, scopes[0], (), looks_recurrent(scopes[0]))
    except MALFORMED as error:
        if passes(error):
            raise
        return RecognisedLayers(reasons={"": f"the graph is not as its operators ask ({in_words(error)})"})
    layers: dict[str, Computed] = {}
    for name, layer in recognised.layers.items():
        short = later.sub("", name)
        label = short if short and short not in layers else name
        layers[label] = layer.renamed(label)
    done = RecognisedLayers(layers, recognised.reasons, recognised.scope, recognised.cells)
    calls = received(scopes, {}, done, {name: computed.stack for name, computed in layers.items()})
    done.layers = {name: replace(computed, stack=computed.stack.replace(calls=calls[name])) for name, computed in layers.items()}
    return done
