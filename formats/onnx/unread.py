"""Recurrent layers of an ONNX model that are not an RNN, GRU or LSTM node: what each is, where, and the way out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rnnconvert.core.notes import UNREAD, LayerNote
from rnnconvert.core.remedies import Flag
from rnnconvert.graphs.program.operations import Operation, bodies
from rnnconvert.graphs.program.scopes import Scope
from rnnconvert.recognition.computed import RecognisedLayers
from rnnconvert.recognition.suspects import LAYERS, carried, gates, unrolled

_BEFORE_QUANTISED = "Read the model as it was before it was quantized."


def _from_source() -> str:
    return (
        "Read the file of the framework that the model was exported from, or hand its weights as .npz or .safetensors with "
        f"{Flag('layout')}."
    )


def unread(scopes: Sequence[Scope], read: Iterable[Operation], looked: RecognisedLayers) -> list[LayerNote]:
    """Return a sentence for each recurrent computation of a model apart from the layers that were read.

    read    the nodes of ONNX's own operators RNN, GRU and LSTM, which have a reader
    looked  what was found of layers in other operators of the main graph
    """
    recognised = looked.nodes
    explained = {*read, *recognised}
    inside = {body for scope in scopes for body in bodies(node for node in scope.nodes if node in recognised)}
    messages: list[str] = []
    for scope in scopes:
        if scope.body in inside:
            continue
        for node in scope.nodes:
            if node in explained or scope.calls(node):
                continue
            where = f"the node {node.label!r} of {scope.path}"
            if any(word in node.kind for word in LAYERS):
                domain = f" of the domain {node.domain!r}" if node.domain else ""
                way = _BEFORE_QUANTISED if "Quant" in node.kind or "Q" in node.kind[:1] else _from_source()
                messages.append(f"{where} is a {node.kind}{domain}, which cannot be read. {way}")
            elif node.kind in ("Loop", "Scan"):
                convolves = carried(node)
                if convolves is not None:
                    what = "a ConvLSTM or another convolutional recurrent cell" if convolves else "a recurrent cell"
                    why = looked.reasons.get(node.label, "") if scope is looked.scope else ""
                    messages.append(
                        f"{where} is a {node.kind} that computes {what} step by step, which cannot be read"
                        f"{': ' + why if why else ''}. {_from_source()}"
                    )
        messages += _written_out(scope, looked)
    return [LayerNote("", message, UNREAD) for message in messages]


def _written_out(scope: Scope, looked: RecognisedLayers) -> list[str]:
    """Return cells that products and functions compute: unrolled ones, and single steps of an LSTM or a GRU."""
    messages = []
    recognised = looked.nodes
    nodes = [node for node in scope.nodes if node not in recognised]
    repeated = unrolled(scope, nodes)
    why = ""
    if scope is looked.scope:
        loops = {node.label for node in scope.nodes if node.kind in ("Loop", "Scan")}
        why = next((f": {reason}" for label, reason in looked.reasons.items() if label not in loops), "")
    if repeated:
        weight, times = repeated
        messages.append(
            f"{scope.path} multiplies by {weight!r} {times} times, each time a function of the previous product: a "
            f"recurrent layer that is written out step by step, which cannot be read{why}. {_from_source()}"
        )
    else:
        split = gates(scope, nodes)
        if split:
            messages.append(
                f"{scope.path} computes {split} like the cell of an LSTM or a GRU, from products and functions of its own, "
                f"which cannot be read{why}. {_from_source()}"
            )
    return messages
