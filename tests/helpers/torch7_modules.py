"""Torch7's modules a second time: trees of them as Lua's constructors make them, and what each module computes.

Nothing here is the converter's: the trees follow buildModel of Element-Research/rnn, {LSTM,FastLSTM,GRU}.lua, and the
functions torch/nn and the loops of {SeqLSTM,SeqLSTMP,SeqGRU}.lua and torch-rnn's VanillaRNN.lua.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from rnnconvert.core.arrays import Array
from rnnconvert.formats.torch7.torch7_file import LuaTable, Object, Torch7Storage

_RANDOM = np.random.default_rng(7)


def numbers(*shape: int) -> Array:
    return _RANDOM.uniform(-0.7, 0.7, shape)


def make(name: str, *inside: Object, **fields: Any) -> Object:
    """A module; containers have others inside."""
    table = LuaTable({"_type": "torch.DoubleTensor", "train": False, **fields})
    if inside:
        table["modules"] = LuaTable(dict(enumerate(inside, 1)))
    return Object(f"nn.{name}", table)


def storage(*sizes: int) -> Torch7Storage:
    """A torch.LongStorage, as nn.View and nn.Reshape keep their sizes."""
    return Torch7Storage(np.array(sizes, "<i8"))


def linear(width: int, units: int, bias: bool = True) -> Object:
    if bias:
        return make("Linear", weight=numbers(units, width), bias=numbers(units))
    return make("LinearNoBias", weight=numbers(units, width))


def narrow(offset: int, length: int) -> Object:
    return make("NarrowTable", offset=offset, length=length)


def select(index: int) -> Object:
    return make("SelectTable", index=index)


def sequence(*inside: Object) -> Object:
    return make("Sequential", *inside)


def concat(*inside: Object) -> Object:
    return make("ConcatTable", *inside)


def lstm(width: int, units: int, peepholes: bool = True) -> Object:
    """LSTM.lua: buildGate, buildHidden, buildCell, buildModel."""

    def gate() -> Object:
        parts = [linear(width, units), linear(units, units, False)]
        parts += [make("CMul", weight=numbers(units))] if peepholes else []
        before = [] if peepholes else [narrow(1, 2)]
        return sequence(*before, make("ParallelTable", *parts), make("CAddTable"), make("Sigmoid"))

    gates = {"inputGate": gate(), "forgetGate": gate()}
    both = make("ParallelTable", linear(width, units), linear(units, units, False))
    gates["hiddenLayer"] = sequence(narrow(1, 2), both, make("CAddTable"), make("Tanh"))
    forget = sequence(concat(gates["forgetGate"], select(3)), make("CMulTable"))
    entry = sequence(concat(gates["inputGate"], gates["hiddenLayer"]), make("CMulTable"))
    cell = sequence(concat(forget, entry), make("CAddTable"))
    gates["outputGate"] = gate()
    output = sequence(concat(gates["outputGate"], sequence(select(3), make("Tanh"))), make("CMulTable"))
    model = sequence(concat(narrow(1, 2), cell), make("FlattenTable"), concat(output, select(3)))
    return make("LSTM", model, recurrentModule=model, cellLayer=cell, cell2gate=peepholes, **gates)


def fast_lstm(width: int, units: int) -> Object:
    """FastLSTM.lua, buildModel."""
    i2g, o2g = linear(width, 4 * units), linear(units, 4 * units, False)
    functions = make("ParallelTable", *(make(name) for name in ("Sigmoid", "Tanh", "Sigmoid", "Sigmoid")))
    gates = sequence(
        narrow(1, 2), make("ParallelTable", i2g, o2g), make("CAddTable"), make("Reshape", size=storage(4, units)), make("SplitTable"),
        functions,
    )  # fmt: skip
    hidden = sequence(narrow(1, 2), make("CMulTable"))
    cell = sequence(concat(select(3), select(5)), make("CMulTable"))
    following = sequence(concat(hidden, cell), make("CAddTable"))
    output = sequence(concat(sequence(select(1), make("Tanh")), select(2)), make("CMulTable"))
    model = sequence(
        concat(gates, select(3)), make("FlattenTable"), concat(following, select(4)), make("FlattenTable"),
        concat(output, select(1)),
    )  # fmt: skip
    return make("FastLSTM", model, recurrentModule=model, i2g=i2g, o2g=o2g, p=0)


def gru(width: int, units: int) -> Object:
    """GRU.lua, buildModel."""
    i2g, o2g = linear(width, 2 * units), linear(units, 2 * units, False)
    gates = sequence(
        make("ParallelTable", i2g, o2g), make("CAddTable"), make("Reshape", size=storage(2, units)), make("SplitTable"),
        make("ParallelTable", make("Sigmoid"), make("Sigmoid")),
    )  # fmt: skip
    before = sequence(select(1), linear(width, units))
    reset = sequence(narrow(2, 2), make("CMulTable"), linear(units, units, False))
    hidden = sequence(concat(before, reset), make("CAddTable"), make("Tanh"))
    new = sequence(concat(hidden, sequence(select(4), make("SAdd", addend=-1, negate=True))), make("CMulTable"))
    old = sequence(narrow(4, 2), make("CMulTable"))
    model = sequence(
        concat(make("Identity"), gates), make("FlattenTable"), concat(narrow(1, 4), select(2)), make("FlattenTable"),
        sequence(concat(new, old), make("CAddTable")),
    )  # fmt: skip
    return make("GRU", model, recurrentModule=model, i2g=i2g, o2g=o2g, p=0)


def _flat(values: Any) -> Iterator[Array]:
    if isinstance(values, list):
        for value in values:
            yield from _flat(value)
    else:
        yield values


def sigmoid(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x)))


def run(module: Object, x: Any) -> Any:
    """What a module computes from a tensor (batch, features) or a list of such."""
    fields, name = module.fields, module.name.removeprefix("nn.")
    inside = fields["modules"].listed() if "modules" in fields else []
    match name:
        case "Sequential":
            for layer in inside:
                x = run(layer, x)
            return x
        case "ConcatTable":
            return [run(layer, x) for layer in inside]
        case "ParallelTable":
            return [run(layer, value) for layer, value in zip(inside, x, strict=True)]
        case "Linear":
            return x @ fields["weight"].T + fields["bias"]
        case "LinearNoBias":
            return x @ fields["weight"].T
        case "CMul":
            return x * fields["weight"]
        case "CAddTable":
            return sum(x[1:], x[0])
        case "CMulTable":
            return np.prod(np.stack(x), axis=0)
        case "SelectTable":
            return x[fields["index"] - 1]
        case "NarrowTable":
            return x[fields["offset"] - 1 :][: fields["length"]]
        case "FlattenTable":
            return list(_flat(x))
        case "Reshape":
            return x.reshape(len(x), *fields["size"].data)
        case "SplitTable":
            return list(x.swapaxes(0, 1))
        case "SAdd":
            return -(x + fields["addend"])
        case "Identity":
            return x
        case "Sigmoid":
            return sigmoid(x)
        case "Tanh":
            return np.tanh(x)
    raise NotImplementedError(name)


def steps(module: Object, x: Array) -> Array:
    """What an nn.LSTM, nn.FastLSTM or nn.GRU gives for (time, batch, in), step by step from zero."""
    units = _units(module)
    output = cell = np.zeros((x.shape[1], units))
    outputs = []
    for now in x:
        if module.name == "nn.GRU":
            output = run(module.fields["recurrentModule"], [now, output])
        else:
            output, cell = run(module.fields["recurrentModule"], [now, output, cell])
        outputs.append(output)
    return np.stack(outputs)


def _units(module: Object) -> int:
    if module.name == "nn.LSTM":
        return int(module.fields["inputGate"].fields["modules"].listed()[-3].fields["modules"][1].fields["weight"].shape[0])
    return int(module.fields["o2g"].fields["weight"].shape[1])


def loop(module: Object, x: Array) -> Array:
    """What nn.SeqLSTM, nn.SeqLSTMP, nn.SeqGRU and nn.VanillaRNN give for (time, batch, in): their updateOutput."""
    weight, bias, out = module.fields["weight"], module.fields["bias"], module.fields.get("weightO")
    width = x.shape[2]
    of_input, of_state = weight[:width], weight[width:]
    h, c = np.zeros((x.shape[1], len(of_state))), 0.0
    outputs = []
    for now in x:
        a = bias + now @ of_input
        if module.name == "nn.VanillaRNN":
            h = np.tanh(a + h @ of_state)
        elif module.name == "nn.SeqGRU":
            units = h.shape[1]
            gates = sigmoid(a[:, : 2 * units] + h @ of_state[:, : 2 * units])
            r, u = gates[:, :units], gates[:, units:]
            hc = np.tanh(a[:, 2 * units :] + (r * h) @ of_state[:, 2 * units :])
            h = hc - u * hc + u * h
        else:
            i, f, o, g = np.split(a + h @ of_state, 4, axis=1)
            c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
            h = np.tanh(c) * sigmoid(o)
            h = h if out is None else h @ out
        outputs.append(h)
    return np.stack(outputs)
