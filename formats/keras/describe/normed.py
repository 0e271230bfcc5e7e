"""An LSTM with layer norms in its cell, in the words of rnnconvert.scaffolding.kinds: a loop over the steps.

    z = norm(W x) + norm(R h) + b;  c' = norm(f * c + i * g);  h' = o * act(c')

Source: tensorflow_addons 0.23 rnn/layer_norm_lstm_cell.py; the loop is that of keras 2.14 layers/rnn/base_rnn.py and backend.rnn.
"""

from __future__ import annotations

from collections.abc import Sequence

from rnnconvert.formats.keras.describe.functions import applied
from rnnconvert.formats.keras.describe.layer_facts import LayerFacts, refuse
from rnnconvert.formats.keras.describe.masks import mask_on
from rnnconvert.formats.keras.describe.merging import where
from rnnconvert.formats.keras.describe.writer import Writer
from rnnconvert.scaffolding import kinds
from rnnconvert.scaffolding.description import DescribedModel, Length, Shape, Value


def normed(w: Writer, facts: LayerFacts, values: Sequence[Value], cell: LayerFacts, name: str, last: bool = True) -> list[Value]:
    """Return the outputs of an RNN around such a cell: those of the steps in the order of reading, or the last one, then the states.

    cell  the cell's configuration
    name  what its weights are called by
    last  whether it is the last of several cells

    Raises RefusedError for states that last from call to call, and for initial states beside a mask.
    """
    x, states = values[0], [*values[1:], *facts.tensors("initial_state")]
    mask = mask_on(w, facts, x)
    if facts.get("stateful", False) or (mask is not None and states):
        raise refuse(facts.name, "states that are kept, or given beside a mask, in an LSTM with norms", "its loop begins anew without them")
    units, backwards, zero = int(cell.get("units")), bool(facts.get("go_backwards", False)), facts.get("zero_output_for_mask", False)
    for key in ("time_major", "num_constants"):
        facts.need(key, False, None)
    batch, wide = x.shape[0], 4 * units
    epsilon = float(cell.get("norm_epsilon"))

    def layer(kind: kinds.Kind, wanted: str, word: str, inputs: Sequence[Value], shape: Shape) -> Value:
        output = w.value(wanted, shape)
        w.scope.add(kind, w.noted(facts, f"{name}/{word}"), inputs, [output])
        return output

    def norm(word: str, z: Value, size: int) -> Value:
        return layer(kinds.LayerNorm(epsilon, True, True, (size,)), word, word, [z], z.shape)

    def elementwise(operation: str, a: Value, b: Value) -> Value:
        return w.node(kinds.Elementwise(operation=operation, operands=(("input", 0), ("input", 1))), operation, [a, b], a.shape)

    def in_time(sequence: Value) -> Value:
        order = (1, 0, *range(2, len(sequence.shape)))
        steps = w.node(kinds.Transpose(order=order), "steps", [sequence], [sequence.shape[axis] for axis in order], sequence.dtype)
        return w.node(kinds.Flip(axes=(0,)), "turned", [steps], steps.shape, steps.dtype) if backwards else steps

    products = norm("kernel_norm", layer(kinds.Dense(units=wide, bias=False), "products", "input", [x], (*x.shape[:2], wide)), wide)
    if cell.get("use_bias", True):
        products = elementwise("add", products, layer(kinds.Parameter(sizes=(wide,)), "bias", "bias", [], (wide,)))
    sequences = [in_time(sequence) for sequence in (products, mask) if sequence is not None]
    if not states:
        lengths = (Length(((1, ((0, 0),)),)), units)
        states = [w.node(kinds.Full(lengths=lengths, number=0.0), f"{name}_first_{word}", [x], (batch, units)) for word in "hc"]
    outer, step = w.scope, DescribedModel(w.scope.name, w.scope.path)
    h, c, *elements = (w.value(word, value.shape[at:], value.dtype) for word, value, at in
                       (*zip("hc", states, (0, 0), strict=True), *zip(("x_t", "counts"), sequences, (1, 1), strict=False)))  # fmt: skip
    step.inputs, w.scope = (h, c, *elements), step
    product = layer(kinds.Dense(units=wide, bias=False), "recurrent", "recurrent", [h], (batch, wide))
    z = elementwise("add", elements[0], norm("recurrent_norm", product, wide))
    gates = [w.value(word, (batch, units)) for word in "ifgo"]
    w.scope.add(kinds.Split(axis=1, sizes=(units,) * 4), "", [z], gates)
    i, f, o = (applied(w, cell, cell.get("recurrent_activation"), gates[place]) for place in (0, 1, 3))
    g = applied(w, cell, cell.get("activation"), gates[2])
    new_c = norm("state_norm", elementwise("add", elementwise("multiply", f, c), elementwise("multiply", i, g)), units)
    new_h = elementwise("multiply", o, applied(w, cell, cell.get("activation"), new_c))
    every = new_h
    if mask is not None:
        new_h, new_c = (where(w, cell, elements[1], new, old) for new, old in ((new_h, h), (new_c, c)))
        every = where(w, cell, elements[1], every, 0.0) if zero else new_h
    step.outputs, w.scope = (new_h, new_c, every), outer
    finals = [w.value(f"{name}_{word}", (batch, units)) for word in "hc"]
    outputs = w.value(f"{name}_steps", (x.shape[1], batch, units))
    w.scope.add(kinds.Loop(scope=step, states=2, sequences=len(sequences)), "", [*states, *sequences], [*finals, outputs])
    if facts.get("return_sequences", False) or not last:
        out = w.node(kinds.Transpose(order=(1, 0, 2)), facts.name, [outputs], (*x.shape[:2], units))
    else:
        out = finals[0] if not zero or mask is None else w.node(kinds.Select(axis=0, index=-1), facts.name, [outputs], (batch, units))
    return [out, *(finals if facts.get("return_state", False) else [])]
