"""Graphs of other frameworks as graphs of ONNX's in memory, in which the layers that they compute are recognized and proved."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import onnx

from rnnconvert.core.arrays import Array
from rnnconvert.core.malformed import MALFORMED, in_words, passes
from rnnconvert.formats.onnx.unread import looks_recurrent
from rnnconvert.graphs.program.block import in_memory
from rnnconvert.graphs.program.scopes import walk
from rnnconvert.recognition.computed import Computed, Looked, look
from rnnconvert.recognition.flow import received

Lower = Callable[[], tuple[onnx.ModelProto, Mapping[str, Array]]]


def layers_of(path: Path, lower: Lower, later: re.Pattern[str]) -> Looked:
    """Return the layers that a graph computes, under the names that its framework shows.

    lower  makes the graph ONNX's, with its stored numbers by name
    later  the end of a name that the framework adds to the layer's own
    """
    try:
        message, arrays = lower()
        scopes = list(walk(in_memory(path, message, arrays)))  # kept: nodes are known by their identity
        found = look(path, scopes[0], message, (), looks_recurrent(scopes[0]))
    except MALFORMED as error:
        if passes(error):
            raise
        return Looked(reasons={"": f"the graph is not as its operators ask ({in_words(error)})"})
    layers: dict[str, Computed] = {}
    for name, one in found.layers.items():
        shown = later.sub("", name)
        label = shown if shown and shown not in layers else name
        layers[label] = one.renamed(label)
    done = Looked(layers, found.reasons, found.scope, found.cells)
    calls = received(scopes, {}, done, {name: one.stack for name, one in layers.items()})
    done.layers = {name: replace(one, stack=one.stack.replace(calls=calls[name])) for name, one in layers.items()}
    return done
