"""Recurrent layers of Keras 3 in the words of rnnconvert.scaffolding.kinds.

Source of the LSTMs whose products are convolutions: keras 3.15 keras/src/layers/rnn/conv_lstm.py. The recurrent convolution has no
strides and no dilation, and keeps its input's size.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from rnnconvert.core.cells import HARD_SIGMOID_KERAS_2, Cell
from rnnconvert.core.errors import RefusedError
from rnnconvert.formats.keras.config import KINDS, Era, functions
from rnnconvert.formats.keras.describe.layer_facts import LayerFacts, refuse
from rnnconvert.formats.keras.describe.masks import mask_on, masks_on
from rnnconvert.formats.keras.describe.merging import where
from rnnconvert.formats.keras.describe.normed import normed
from rnnconvert.formats.keras.describe.settings import each_rank, lengths_after
from rnnconvert.formats.keras.describe.space import channels_of, window_of
from rnnconvert.formats.keras.describe.writer import Describe, Writer
from rnnconvert.formats.keras.model.entries import NORMED, Entry
from rnnconvert.formats.keras.normed import part_name
from rnnconvert.formats.keras.upgrade.layers import OLD_HARD_SIGMOID
from rnnconvert.scaffolding import kinds
from rnnconvert.scaffolding.description import Value
from rnnconvert.scaffolding.directions import WAYS, merged


def _cell(facts: LayerFacts) -> Cell:
    """Return the cell of a layer."""
    name = facts.old.kind.removesuffix("Cell")
    kind: Any = KINDS[name]
    act, gate = functions(Entry(facts.name, name, facts.config), Era("3"))
    for key in ("use_bias", "activation", "recurrent_activation", "reset_after", "units"):
        facts.get(key)
    facts.need("time_major", False)
    facts.need("num_constants", None)
    if kind == "rnn":
        return Cell("rnn", None, act)
    reset_after = bool(facts.config.get("reset_after", True)) if kind == "gru" else None
    return Cell(kind, reset_after, act, gate) if kind == "gru" else Cell(kind, None, act, gate, act)


def _inputs(w: Writer, facts: LayerFacts, values: Sequence[Value]) -> tuple[Value, list[Value], list[Value]]:
    """Return the inputs of a layer: its sequence, its initial states, and the mask in a list."""
    if not values:
        raise refuse(facts.name, "a call without an input", "only calls with the input in front are known here")
    x, states = values[0], [*values[1:], *facts.tensors("initial_state")]
    if len(x.shape) != 3 or x.shape[-1] is None:
        raise refuse(facts.name, f"an input of {len(x.shape)} axes", "it takes (batch, time, features)")
    mask: Any = mask_on(w, facts, x) if not states or "mask" in facts.named else None
    return x, states, [] if mask is None else [mask]


def _check_unrolled(facts: LayerFacts) -> None:
    """Raise RefusedError for an unrolled layer that reads a masked sequence from the end, with zeros at masked steps."""
    if facts.get("unroll", False):
        raise refuse(
            facts.name,
            "unroll = True on a masked sequence read from the end, with zeros at masked steps",
            "Keras zeroes the mirrored steps on TensorFlow, none on JAX, and stops on PyTorch (keras/src/backend/*/rnn.py)",
            "Build the layer with unroll=False, which zeroes the masked steps everywhere, and check what the model gives then.",
        )


def _run(
    w: Writer, facts: LayerFacts, values: Sequence[Value], inner: LayerFacts | None = None, layer: str = "", last: bool = True
) -> list[Value]:
    """Return the outputs of a recurrent layer.

    inner  the configuration of its cell, if that is separate
    layer  the name of the layer in the file, if several cells are one
    last   whether it is the last of several cells
    """
    x, states, mask = _inputs(w, facts, values)
    inner, layer = inner or facts, layer or facts.name
    cell, units = _cell(inner), int(inner.get("units"))
    sequences = bool(facts.get("return_sequences", False)) or not last
    zero = bool(facts.get("zero_output_for_mask", False)) and bool(mask)
    backwards, stateful = bool(facts.get("go_backwards", False)), bool(facts.get("stateful", False))
    if backwards and zero and sequences:
        _check_unrolled(facts)
    count = 2 if cell.kind == "lstm" else 1
    if states and (len(states) != count or any(state.shape[1:] != (units,) for state in states)):
        raise refuse(facts.name, f"{len(states)} initial states", f"its cell has {count} of {units} numbers for each sequence")
    out = w.value(facts.name, (*x.shape[:2], units) if sequences else (x.shape[0], units))
    with_states = bool(facts.get("return_state", False))
    finals = [w.value(f"{facts.name}_{word}", (x.shape[0], units)) for word in ("h", "c")[:count]] if with_states else []
    biases = bool(inner.config.get("use_bias", True))
    kind = kinds.Recurrent(
        (cell,), units, biases, sequences, zero=zero and sequences, backwards=backwards, merge="concat", stateful=stateful
    )
    w.scope.add(kind, w.noted(facts, layer), [x], [out, *finals], {"mask": mask, "states": states})
    if zero and not sequences:  # nothing where the step that is read last does not count
        counts = w.value("mask", mask[0].shape[:1], "bool")
        w.scope.add(kinds.Select(axis=1, index=0 if backwards else -1), "", mask, [counts])
        out = where(w, facts, counts, out, 0.0)
    return [out, *finals]


def _cells(w: Writer, facts: LayerFacts, values: Sequence[Value]) -> list[Value]:
    """Return the outputs of an RNN around cells: a layer for each of them, which all skip the same steps."""
    (inside,) = facts.old.inside
    facts.get("cell")
    cells = inside.inside if inside.kind == "StackedRNNCells" else [inside]
    kinds = {cell.kind for cell in cells}
    if not cells or not (kinds <= {"LSTMCell", "GRUCell", "SimpleRNNCell"} or kinds == {NORMED}):
        raise refuse(facts.name, f"an RNN around {' and '.join(sorted(kinds)) or 'nothing'}", "only plain cells are known here")
    x, states, mask = _inputs(w, facts, values)
    plain = not states and not facts.get("return_state") and not facts.get("stateful") and not facts.get("go_backwards")
    if len(cells) > 1 and not plain:
        raise refuse(facts.name, "several cells with states that are kept, given or read", "only plain stacks of cells are known here")
    outputs: Sequence[Value] = values
    for number, cell in enumerate(cells):
        inner = LayerFacts(cell)
        name = part_name(facts.name, len(cells), number)
        describe = normed if cell.kind == NORMED else _run
        outputs = describe(w, facts, outputs, inner, name, number == len(cells) - 1)
        inner.finish()
        x = outputs[0]
        if mask:
            w.masks[x.name] = mask[0]
    if mask and not facts.get("return_sequences", False):
        del w.masks[x.name]
    return [*outputs]


def _both(w: Writer, facts: LayerFacts, values: Sequence[Value]) -> list[Value]:
    """Return the outputs of a Bidirectional."""
    classes = {layer.kind for layer in facts.old.inside}
    if not classes <= {"LSTM", "GRU", "SimpleRNN", "RNN"}:
        raise _around(facts, classes)
    x, states, mask = _inputs(w, facts, values)
    facts.get("layer"), facts.get("backward_layer")
    merge, cells, units, biases = facts.get("merge_mode", "concat"), [], [], []
    if merge not in ("concat", "sum", "mul", "ave", None):
        raise refuse(facts.name, f"merge_mode = {merge!r}", "only concat, sum, mul, ave and None are known here")
    if classes == {"RNN"} and not mask and all(cell.kind == NORMED for layer in facts.old.inside for cell in layer.inside):
        return _normed_both(w, facts, x, states, merge)
    if "RNN" in classes:
        raise _around(facts, classes)
    settings: dict[str, Any] = {}
    for number, layer in enumerate(facts.old.inside):
        inner = LayerFacts(layer)
        if bool(inner.get("go_backwards", False)) != bool(number):
            raise refuse(facts.name, "a forward layer that reads from the end", "the order of its outputs is unknown")
        cells.append(_cell(inner))
        units.append(int(inner.get("units")))
        biases.append(bool(inner.config.get("use_bias", True)))
        stated = {key: bool(inner.get(key, False)) for key in ("return_sequences", "return_state", "stateful")}
        if settings not in ({}, stated):
            raise refuse(facts.name, "two directions that give different things", "they are written as one layer")
        settings = stated
        if number and mask and stated["return_sequences"]:
            _check_unrolled(inner)
        inner.finish()
    sequences = settings["return_sequences"]
    sizes = [size for cell, size in zip(cells, units, strict=True) for _ in range(2 if cell.kind == "lstm" else 1)]
    if states and [state.shape[1:] for state in states] != [(size,) for size in sizes]:
        raise refuse(facts.name, f"{len(states)} initial states", f"its cells have {len(sizes)}, of {sizes} numbers for each sequence")
    if merge not in ("concat", None) and len(set(units)) > 1:
        raise refuse(facts.name, f"merge_mode = {merge!r} of directions of {units} numbers", "only alike ones can be joined so")
    lead = x.shape[:2] if sequences else x.shape[:1]
    widths = [sum(units)] if merge == "concat" else units[: 2 if merge is None else 1]
    outs = [w.value(facts.name, (*lead, width)) for width in widths]
    finals = []
    if settings["return_state"]:
        ends = zip(("forward", "backward"), cells, strict=True)
        words = [f"{end}_{word}" for end, cell in ends for word in ("h", "c")[: 2 if cell.kind == "lstm" else 1]]
        finals = [w.value(f"{facts.name}_{word}", (x.shape[0], size)) for word, size in zip(words, sizes, strict=True)]
    kind = kinds.Recurrent(
        tuple(cells), units[0] if len(set(units)) == 1 else tuple(units), biases[0] if len(set(biases)) == 1 else tuple(biases), sequences,
        zero=sequences and bool(mask), backwards=False, merge=merge, stateful=settings["stateful"],
    )  # fmt: skip
    w.scope.add(kind, w.noted(facts), [x], [*outs, *finals], {"mask": mask, "states": states})
    return [*outs, *finals]


def _around(facts: LayerFacts, classes: Collection[str]) -> RefusedError:
    words = " and ".join(sorted(classes))
    return refuse(facts.name, f"a Bidirectional around {words}", "only plain LSTM, GRU and SimpleRNN are known here")


def _normed_both(w: Writer, facts: LayerFacts, x: Value, states: Sequence[Value], merge: str | None) -> list[Value]:
    """Return the outputs of a Bidirectional around cells with norms: each direction is a loop of its own."""
    ends, finals = list[Value](), list[Value]()
    for number, (way, layer) in enumerate(zip(WAYS, facts.old.inside, strict=True)):
        inner, cell = LayerFacts(layer), LayerFacts(layer.inside[0])
        if bool(inner.get("go_backwards", False)) != bool(number):
            raise refuse(facts.name, "a forward layer that reads from the end", "the order of its outputs is unknown")
        inner.get("cell")
        out, *ended = normed(w, inner, [x, *states[2 * number : 2 * number + 2]], cell, part_name(facts.name, 1, 0, way))
        inner.finish()
        cell.finish()
        if number and len(out.shape) == 3:
            out = w.node(kinds.Flip(axes=(1,)), facts.name, [out], out.shape)
        ends.append(out)
        finals += ended
    if merge is None:
        return [*ends, *finals]
    width = sum(end.shape[-1] or 0 for end in ends) if merge == "concat" else ends[0].shape[-1]
    outs = [w.value(facts.name, (*ends[0].shape[:-1], width))]
    w.scope.nodes.append(merged(merge, ends, outs))
    return [*outs, *finals]


def _conv_lstm(rank: int) -> Describe:
    def describe(w: Writer, facts: LayerFacts, values: Sequence[Value]) -> list[Value]:
        if not values or len(values[0].shape) != rank + 3 or None in values[0].shape[2:]:
            raise refuse(facts.name, "an input of unknown or other axes", f"it takes (batch, time, {rank} axes of space, channels)")
        stated: Any = facts.tensors("initial_state")
        x, states = values[0], [*values[1:], *stated]
        if any(mask is not None for mask in masks_on(w, facts, [x])):
            raise refuse(facts.name, "a mask on what a ConvLSTM reads", "only sequences whose steps all count are known here")
        step = Value(x.name, (x.shape[0], *x.shape[2:]))
        channels, window, filters = channels_of(facts, step, rank), window_of(facts, rank), int(facts.get("filters"))
        act, gate = functions(Entry(facts.name, facts.old.kind, facts.config), Era("3"))
        for key in ("activation", "recurrent_activation"):
            facts.get(key)
        gate = HARD_SIGMOID_KERAS_2 if facts.get(OLD_HARD_SIGMOID) else gate
        size = tuple(length for length in lengths_after(step, window) if length is not None)  # all of them are
        shape = (x.shape[0], *size, filters)
        if states and [state.shape[1:] for state in states] != [shape[1:]] * 2:
            raise refuse(facts.name, f"{len(states)} initial states", f"its cell has two of shape {shape[1:]} for each sequence")
        sequences = bool(facts.get("return_sequences", False))
        finals = [w.value(f"{facts.name}_{word}", shape) for word in "hc"] if facts.get("return_state", False) else []
        out = w.value(facts.name, (shape[0], x.shape[1], *shape[1:]) if sequences else shape)
        kind = kinds.ConvLSTM(
            **vars(window), channels=channels, filters=filters, bias=bool(facts.get("use_bias", True)),
            cell=Cell("lstm", None, act, gate, act),
            size=size, sequences=sequences, backwards=bool(facts.get("go_backwards", False)), stateful=bool(facts.get("stateful", False)),
        )  # fmt: skip
        w.scope.add(kind, w.noted(facts), [x], [out, *finals], {"states": states})
        return [out, *finals]

    return describe


RECURRENT: Mapping[str, Describe] = {
    "LSTM": _run, "GRU": _run, "SimpleRNN": _run, "Bidirectional": _both, "RNN": _cells, **each_rank("ConvLSTM{}D", _conv_lstm),
}  # fmt: skip
"""The recurrent layers, by their classes."""
