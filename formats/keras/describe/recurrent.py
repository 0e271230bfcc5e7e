"""Recurrent layers of Keras 3 in the words of rnnconvert.scaffolding.description."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rnnconvert.containers.layer_config import Entry
from rnnconvert.core.cells import Cell
from rnnconvert.formats.keras.config import KINDS, Era, functions
from rnnconvert.formats.keras.describe.model import Tell, Writer
from rnnconvert.formats.keras.export.layers import LayerFacts, refuse
from rnnconvert.formats.keras.export.masks import mask_on
from rnnconvert.scaffolding.description import Value


def _cell(facts: LayerFacts) -> Cell:
    """Return what a layer's cell computes."""
    kind: Any = KINDS[facts.old.kind]
    act, gate = functions(Entry(facts.name, facts.old.kind, facts.config), Era("3"))
    for key in ("use_bias", "activation", "recurrent_activation", "reset_after", "units"):
        facts.get(key)
    facts.need("time_major", False)
    facts.need("num_constants", None)
    if kind == "rnn":
        return Cell("rnn", None, act)
    reset_after = bool(facts.config.get("reset_after", True)) if kind == "gru" else None
    return Cell(kind, reset_after, act, gate) if kind == "gru" else Cell(kind, None, act, gate, act)


def _inputs(w: Writer, facts: LayerFacts, values: Sequence[Value]) -> tuple[Value, list[Value], list[Value]]:
    """Return what a layer reads: its sequence, its initial states, and the mask in a list."""
    if not values:
        raise refuse(facts.name, "a call without an input", "only calls with the input in front are known here")
    x, states = values[0], [*values[1:], *facts.tensors("initial_state")]
    if len(x.shape) != 3 or x.shape[-1] is None:
        raise refuse(facts.name, f"an input of {len(x.shape)} axes", "it takes (batch, time, features)")
    mask: Any = mask_on(w, facts, x) if not states or "mask" in facts.named else None  # type: ignore[arg-type]
    return x, states, [] if mask is None else [mask]  # type: ignore[return-value]


def _run(w: Writer, facts: LayerFacts, values: Sequence[Value]) -> list[Value]:
    """Return what a recurrent layer gives."""
    x, states, mask = _inputs(w, facts, values)
    cell, units = _cell(facts), int(facts.get("units"))
    sequences, zero = (bool(facts.get("return_sequences", False)), bool(facts.get("zero_output_for_mask", False)) and bool(mask))
    if zero and not sequences:
        raise refuse(facts.name, "zero_output_for_mask without return_sequences", "the last output depends on the last step's mask")
    backwards, stateful = bool(facts.get("go_backwards", False)), bool(facts.get("stateful", False))
    count = 2 if cell.kind == "lstm" else 1
    if states and (len(states) != count or any(state.shape[1:] != (units,) for state in states)):
        raise refuse(facts.name, f"{len(states)} initial states", f"its cell has {count} of {units} numbers for each sequence")
    if backwards and zero:
        raise refuse(facts.name, "a masked sequence read from the end, with zeros at masked steps", "Keras's backends differ there")
    out = w.value(facts.name, (*x.shape[:2], units) if sequences else (x.shape[0], units))
    with_states = bool(facts.get("return_state", False))
    finals = [w.value(f"{facts.name}_{word}", (x.shape[0], units)) for word in ("h", "c")[:count]] if with_states else []
    w.node(
        "recurrent",
        facts,
        facts.name,
        [x],
        [out, *finals],
        {"mask": mask, "states": states},
        cells=(cell,),
        units=units,
        biases=bool(facts.config.get("use_bias", True)),
        sequences=sequences,
        zero=zero,
        backwards=backwards,
        merge="concat",
        stateful=stateful,
    )
    return [out, *finals]


def _both(w: Writer, facts: LayerFacts, values: Sequence[Value]) -> list[Value]:
    """Return what a Bidirectional gives."""
    x, states, mask = _inputs(w, facts, values)
    facts.get("layer"), facts.get("backward_layer")
    merge, cells, units, biases = facts.get("merge_mode", "concat"), [], [], []
    if merge not in ("concat", "sum", "mul", "ave", None):
        raise refuse(facts.name, f"merge_mode = {merge!r}", "only concat, sum, mul, ave and None are known here")
    kinds = {layer.kind for layer in facts.old.inside}
    if len(kinds) != 1 or not kinds <= {"LSTM", "GRU", "SimpleRNN"}:
        raise refuse(
            facts.name, f"a Bidirectional around {' and '.join(sorted(kinds))}", "only plain LSTM, GRU and SimpleRNN are known here"
        )
    settings: dict[str, Any] = {}
    for number, layer in enumerate(facts.old.inside):
        inner = LayerFacts(layer, layer.entry.config)
        if bool(inner.get("go_backwards", False)) != bool(number):
            raise refuse(facts.name, "a forward layer that reads from the end", "the order of its outputs is unknown")
        cells.append(_cell(inner))
        units.append(int(inner.get("units")))
        biases.append(bool(inner.config.get("use_bias", True)))
        stated = {key: bool(inner.get(key, False)) for key in ("return_sequences", "return_state", "stateful")}
        if settings not in ({}, stated):
            raise refuse(facts.name, "two directions that give different things", "they are written as one layer")
        settings = stated
        inner.finish()
    if len(set(units)) > 1 or len(set(biases)) > 1 or cells[0] != cells[1]:
        raise refuse(facts.name, "two directions of different cells or sizes", "they are written as one layer")
    (size, *_), sequences = units, settings["return_sequences"]
    count = 2 if cells[0].kind == "lstm" else 1
    if states and (len(states) != 2 * count or any(state.shape[1:] != (size,) for state in states)):
        raise refuse(facts.name, f"{len(states)} initial states", f"its cells have {2 * count} of {size} numbers for each sequence")
    lead = x.shape[:2] if sequences else x.shape[:1]
    width = 2 * size if merge == "concat" else size
    outs = [w.value(facts.name, (*lead, width)) for _ in range(2 if merge is None else 1)]
    finals = []
    if settings["return_state"]:
        words = [f"{end}_{word}" for end in ("forward", "backward") for word in ("h", "c")[:count]]
        finals = [w.value(f"{facts.name}_{word}", (x.shape[0], size)) for word in words]
    w.node(
        "recurrent", facts, facts.name, [x], [*outs, *finals], {"mask": mask, "states": states}, cells=tuple(cells), units=size,
        biases=biases[0], sequences=sequences, zero=sequences and bool(mask), backwards=False, merge=merge, stateful=settings["stateful"],
    )  # fmt: skip
    return [*outs, *finals]


RECURRENT: Mapping[str, Tell] = {"LSTM": _run, "GRU": _run, "SimpleRNN": _run, "Bidirectional": _both}
"""The recurrent layers, by their classes."""
