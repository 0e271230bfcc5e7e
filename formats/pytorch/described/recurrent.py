"""torch.nn's recurrent layers of a program, layer by layer. Source: aten/src/ATen/native/RNN.cpp."""

from __future__ import annotations

from typing import Any

from rnnconvert.core.cells import RELU, SIGMOID, TANH, Cell
from rnnconvert.formats.pytorch.described.graph import Step, Tensor
from rnnconvert.formats.pytorch.described.scopes import Reader, Stacked, Zeros
from rnnconvert.scaffolding.description import Value

_CELLS = {
    "lstm": Cell("lstm", None, TANH, SIGMOID, TANH),
    "gru": Cell("gru", True, TANH, SIGMOID),
    "rnn_tanh": Cell("rnn", None, TANH),
    "rnn_relu": Cell("rnn", None, RELU),
}


def _starts(r: Reader, step: Step, initial: Any, count: int) -> list[Value]:
    """Return the states before the first step, for each layer and direction; [] for zeros."""
    value = r(initial)
    if isinstance(value, Zeros):
        return []
    if isinstance(value, Stacked):
        return list(value.parts)
    joined, tensor = r.plain(initial, step), initial
    return [
        r.add("select", "", [joined], Tensor(f"{tensor.name}_{n}", tensor.shape[1:], tensor.dtype), axis=0, index=n) for n in range(count)
    ]


def _turned(r: Reader, value: Value) -> Value:
    """Return a sequence with time and batch exchanged."""
    sizes = r.sizes[id(value)]
    return r.turned(value, (1, 0, 2), Tensor(value.name, (sizes[1], sizes[0], *sizes[2:]), value.dtype))


def recurrent(r: Reader, step: Step) -> list[Any]:
    """Add the layers of nn.LSTM, nn.GRU or nn.RNN, and return the outputs, and the states after the last step.

    Raises RefusedError for packed sequences, projections, and parameters that are computed.
    """
    stated, kind = step.arguments, step.operator
    if "batch_sizes" in stated or "input" not in stated:
        raise r.refused(step, "a packed sequence", "its lengths are not known when the module is described")
    weights = [r(tensor) for tensor in stated["params"]]
    layers, biases, both = stated["num_layers"], stated["has_biases"], stated["bidirectional"]
    ways = 2 if both else 1
    per = (4 if biases else 2) * ways
    if any(not hasattr(weight, "owner") for weight in weights) or len(weights) != per * layers:
        raise r.refused(step, f"{kind} with weights that are computed, or projections", "only a layer's own matrices are known here")
    owner = weights[0].owner
    units = int(weights[1].tensor.shape[1])
    count = 2 if kind == "lstm" else 1
    hx = stated["hx"] if isinstance(stated["hx"], list) else [stated["hx"]]
    starts = [_starts(r, step, state, layers * ways) for state in hx]
    x = r.plain(stated["input"], step)
    x = x if stated["batch_first"] else _turned(r, x)
    batch, time = r.sizes[id(x)][:2]
    ends: list[list[Value]] = [[] for _ in range(count)]
    for number in range(layers):
        path = owner if layers == 1 else f"{owner}/{number}"
        dotted = owner.replace("/", ".")
        layer = r.layer(path, dotted if layers == 1 else f"{dotted}[{number}]")
        stem = path.replace("/", "_")
        out = r.value(Tensor(stem, (batch, time, units * ways)))
        finals = [[r.value(Tensor(f"{stem}_{'hc'[word]}", (batch, units))) for word in range(count)] for _ in range(ways)]
        chosen = slice(number * ways, (number + 1) * ways)
        zeros = [not all_starts for all_starts in starts]
        if any(zeros) and not all(zeros):
            raise r.refused(step, "only one of two initial states", "both or none are known here")
        states = [] if all(zeros) else [start for pair in zip(*(every[chosen] for every in starts), strict=True) for start in pair]
        cell = _CELLS[kind]
        r.scope.add(
            "recurrent",
            layer,
            [x],
            [out, *(value for way in finals for value in way)],
            {"states": states},
            cells=(cell,) * ways,
            units=units,
            biases=bool(biases),
            sequences=True,
            zero=False,
            backwards=False,
            merge="concat",
            stateful=False,
        )
        for word in range(count):
            ends[word] += [way[word] for way in finals]
        x = out
        rate = stated.get("dropout", 0.0)
        if rate and number + 1 < layers:
            x = r.add(
                "dropout", f"{layer}/dropout", [x], Tensor(f"{stem}_dropped", (batch, time, units * ways)), name="Dropout", rate=float(rate)
            )
    x = x if stated["batch_first"] else _turned(r, x)
    return [x, *(Stacked(f"{owner}_{'hc'[word]}", tuple(states)) for word, states in enumerate(ends))]
