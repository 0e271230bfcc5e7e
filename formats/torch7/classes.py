"""Torch7's recurrent classes: the arrays of an object and their layout, once its tree of modules is confirmed as its class's.

Sources: Element-Research/rnn, {LSTM,FastLSTM,GRU,SeqLSTM,SeqLSTMP,SeqGRU,BiSequencer,SeqBRNN}.lua, buildModel and __init;
jcjohnson/torch-rnn, {LSTM,VanillaRNN}.lua; soumith/cudnn.torch, {RNN,LSTM,GRU,BLSTM,BGRU}.lua.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from rnnconvert.core.arrays import Array
from rnnconvert.core.cells import RELU, TANH, Activation
from rnnconvert.core.errors import NotALayerError
from rnnconvert.core.remedies import Setting
from rnnconvert.core.weights import BIAS_PARTS
from rnnconvert.formats.torch7.torch7_file import LuaTable, Object
from rnnconvert.language.layout import Sizes

_SIDE_BY_SIDE = {
    "nn.LSTM": "seq_lstm",
    "nn.SeqLSTM": "seq_lstm",
    "nn.SeqLSTMP": "seq_lstm",
    "nn.SeqGRU": "seq_gru",
    "nn.VanillaRNN": "vanilla_rnn",
}
_MODES = {
    "CUDNN_LSTM": ("cudnn_lstm", "lstm", TANH),
    "CUDNN_GRU": ("cudnn_gru", "gru", TANH),
    "CUDNN_RNN_TANH": ("cudnn_rnn", "rnn", TANH),
    "CUDNN_RNN_RELU": ("cudnn_rnn", "rnn", RELU),
}
_CUDNN = ("RNN", "LSTM", "BLSTM", "GRU", "BGRU", "RNNReLU", "RNNTanh")
CLASSES = frozenset({*_SIDE_BY_SIDE, "nn.GRU", "nn.FastLSTM", *(f"cudnn.{name}" for name in _CUDNN)})
"""Classes that can be read."""
OTHERS = frozenset({
    "nn.SeqLSTM_WN", "nn.SeqLSTMP_WN", "nn.SeqGRU_WN", "nn.Mufuru", "nn.Grid2DLSTM", "nn.RecLSTM", "nn.RecGRU",
    "nn.Recurrent", "nn.Recurrence", "nn.LookupRNN", "nn.LinearRNN", "nn.ConvLSTM", "nn.StepLSTM", "nn.StepGRU",
})  # fmt: skip
"""Recurrent classes of the package rnn that are reported but not read."""
TWO_WAYS = frozenset({"nn.SeqBRNN", "nn.BiSequencer", "nn.BiSequencerLM"})
"""Containers of a forward and a backward module."""

SIZES = {
    "inputsize": "input_size",
    "hiddensize": "hidden_size",
    "outputsize": "output_size",
    "inputSize": "input_size",
    "hiddenSize": "hidden_size",
    "outputSize": "output_size",
    "input_dim": "input_size",
    "hidden_dim": "hidden_size",
    "numLayers": "num_layers",
    "numDirections": "num_directions",
}
"""Fields that repeat what the arrays show, by our names for it."""
KEPT_STATES = {"_remember": ("both", "eval", True), "remember_states": (True,), "rememberStates": (True,)}
"""Fields that decide whether states go from one call to the next, and the values with which they do outside of training."""
HARMLESS = frozenset({
    "weight", "bias", "weightO", "mode", "bidirectional", "inputMode", "maskzero", "p", "cell2gate", *SIZES, *KEPT_STATES,
    "train", "recompute_backward", "dropout", "seed", "datatype", "seqLength", "miniBatch", "batchfirst", "batchFirst", "rho", "step",
    "output", "cell", "cells", "gates", "h0", "c0", "reserve", "hiddenOutput", "cellOutput", "hiddenInput", "cellInput",
})  # fmt: skip
"""Fields that are read or checked elsewhere, serve training, or are left behind by a call. Sources: see the module."""
CACHES = ("_", "grad", "buffer", "workspace", "dropout", "rnnDesc", "wDesc", "xDesc", "yDesc", "hDesc", "cDesc")
"""The beginnings of the names of fields that a call leaves behind."""


def unknown_fields(module: Object) -> dict[str, object]:
    """Return the unknown single values and arrays of an object; of an array its shape."""
    return {
        name: value.shape if isinstance(value, np.ndarray) else value
        for name, value in module.fields.items()
        if isinstance(name, str)
        and isinstance(value, bool | int | float | str | np.ndarray)
        and not (isinstance(value, np.ndarray) and not value.size)
        and name not in HARMLESS
        and not name.startswith(CACHES)
    }


# What only carries values from one module to the next.
_ROUTING = {"Identity", "NarrowTable", "SelectTable", "FlattenTable", "Reshape", "SplitTable", "Copy", "ConcatTable", "View"}
_GATE = ("Linear", "Linear", "CMul", "CAddTable", "Sigmoid")
_HIDDEN = ("Linear", "Linear", "CAddTable", "Tanh")
_FAST = (
    "Linear",
    "Linear",
    "CAddTable",
    "Sigmoid",
    "Tanh",
    "Sigmoid",
    "Sigmoid",
    "CMulTable",
    "CMulTable",
    "CAddTable",
    "Tanh",
    "CMulTable",
)
_GRU = ("Linear", "Linear", "CAddTable", "Sigmoid", "Sigmoid", "Linear", "CMulTable", "Linear", "CAddTable", "Tanh", "SAdd",
        "CMulTable", "CMulTable", "CAddTable")  # fmt: skip


class ClassArrays(NamedTuple):
    """The arrays of a layer under its layout's names.

    layout      second half of the layout's name
    arrays      by name
    form        the sizes, where a flat vector does not show them
    activation  of a plain RNN
    """

    layout: str
    arrays: dict[str, Array]
    sizes: Sizes | None = None
    activation: Activation = TANH


def class_arrays(module: Object, asked: str = "") -> ClassArrays:
    """Return the arrays of an object of CLASSES.

    asked  the layout that the user says it has

    Raises NotALayerError.
    """
    kind = module.name.rpartition(".")[2]
    if module.name.startswith("cudnn."):
        return _cudnn(module)
    flat = _array(module, "weight") is not None and "recurrentModule" not in module.fields
    if flat and (module.name in _SIDE_BY_SIDE or asked in _SIDE_BY_SIDE.values()):
        names = ("weight", "bias", "weightO")
        return ClassArrays(asked or _SIDE_BY_SIDE[module.name], {name: a for name in names if (a := _array(module, name)) is not None})
    if flat:
        raise NotALayerError(
            f"an {module.name} with one weight, as forks have under this name; if it computes the same as nn.SeqGRU, confirm with "
            f"{Setting('layout', 'torch7.seq_gru')}"
        )
    if "recurrentModule" not in module.fields:
        raise NotALayerError(f"an {module.name} without weights or modules")
    return {"LSTM": _lstm, "FastLSTM": _fast, "GRU": _gru}[kind](module)


def _array(module: object, name: str) -> Array | None:
    value = module.fields.get(name) if isinstance(module, Object) else None
    return value if isinstance(value, np.ndarray) and value.size else None


def leaves(module: object) -> Iterator[Object]:
    """Yield the modules that contain no others, in the order of a container's parameters()."""
    stack, count = [module], 0
    while stack:
        node = stack.pop()
        count += 1
        if count > 100_000:
            raise NotALayerError("its modules contain themselves")
        inside = node.fields.get("modules") if isinstance(node, Object) else None
        if isinstance(inside, LuaTable) and inside:
            stack += reversed(inside.listed())
        elif isinstance(node, Object):
            yield node


def _computing(module: object, expected: tuple[str, ...], what: str) -> list[Object]:
    """Return the modules that compute, if they are those expected."""
    parts = [leaf for leaf in leaves(module) if leaf.name.rpartition(".")[2] not in _ROUTING]
    names = [leaf.name.rpartition(".")[2].replace("LinearNoBias", "Linear") for leaf in parts]
    graph = isinstance(module, Object) and module.name == "nn.gModule"  # its modules come in the order of its graph
    if Counter(names) != Counter(expected) or (not graph and tuple(names) != expected):
        raise NotALayerError(f"{what} is made of {', '.join(names[:20])}, but its class of {', '.join(expected)}")
    return parts


def _weight(module: object, what: str) -> Array:
    weight = _array(module, "weight")
    if weight is None:
        raise NotALayerError(f"{what} has no weight")
    return weight


def _linear(arrays: dict[str, Array], name: str, module: object, biased: bool | None) -> None:
    """Add a Linear's arrays. `biased`: whether it must have a bias; None if it may."""
    arrays[f"{name}/weight"] = _weight(module, name)
    bias = None if isinstance(module, Object) and module.name == "nn.LinearNoBias" else _array(module, "bias")
    if biased is not None and biased != (bias is not None):
        raise NotALayerError(f"{name} has {'no' if biased else 'a'} bias")
    if bias is not None:
        arrays[f"{name}/bias"] = bias


def _lstm(module: Object) -> ClassArrays:
    arrays: dict[str, Array] = {}
    sighted = module.fields.get("cell2gate") is not False
    for gate in ("inputGate", "forgetGate", "hiddenLayer", "outputGate"):
        expected: tuple[str, ...] = _HIDDEN if gate == "hiddenLayer" else _GATE
        expected = expected if sighted else tuple(name for name in expected if name != "CMul")
        parts = _computing(module.fields.get(gate), expected, gate)
        _linear(arrays, f"{gate}/input", parts[0], True)
        _linear(arrays, f"{gate}/output", parts[1], None)
        if "CMul" in expected:
            arrays[f"{gate}/cell/weight"] = _weight(parts[2], f"{gate}'s CMul").reshape(-1)
    both = sum(name.endswith("/output/bias") for name in arrays)
    if both not in (0, 4):
        raise NotALayerError(f"{both} of its four gates have a second bias")
    return ClassArrays("lstm", arrays)


def _pair(module: Object) -> dict[str, Array]:
    if module.fields.get("p") not in (None, 0):
        raise NotALayerError(f"it drops values inside the cell (p = {module.fields['p']}), which no other framework supports")
    arrays: dict[str, Array] = {}
    _linear(arrays, "i2g", module.fields.get("i2g"), True)
    _linear(arrays, "o2g", module.fields.get("o2g"), False)
    return arrays


def _fast(module: Object) -> ClassArrays:
    arrays = _pair(module)
    _computing(module.fields["recurrentModule"], _FAST, "its module")
    return ClassArrays("fast_lstm", arrays)


def _gru(module: Object) -> ClassArrays:
    arrays = _pair(module)
    parts = _computing(module.fields["recurrentModule"], _GRU, "its module")
    linear = [part for part in parts if part.name.rpartition(".")[2] in ("Linear", "LinearNoBias")]
    others = [linear_part for linear_part in linear if linear_part is not module.fields["i2g"] and linear_part is not module.fields["o2g"]]
    if len(others) != 2:
        raise NotALayerError("its gates are not those that its module uses")
    _linear(arrays, "t1", others[0], True)
    _linear(arrays, "t2", others[1], False)
    return ClassArrays("gru", arrays)


def _cudnn(module: Object) -> ClassArrays:
    fields = module.fields
    mode = _MODES.get(str(fields.get("mode")))
    weight = _array(module, "weight")
    if weight is None:
        raise NotALayerError("it has no weight")
    if mode is None:
        raise NotALayerError(f"its mode is {fields.get('mode')!r}")
    layout, kind, activation = mode
    width, units, depth = (fields.get(name) for name in ("inputSize", "hiddenSize", "numLayers"))
    for size, most in ((width, 1 << 24), (units, 1 << 24), (depth, 256)):
        if not isinstance(size, int) or not 0 < size < most:
            raise NotALayerError(f"its sizes are {width}, {units} and {depth}")
    bidirectional, mode_of_input = fields.get("bidirectional"), fields.get("inputMode")
    if bidirectional not in ("CUDNN_UNIDIRECTIONAL", "CUDNN_BIDIRECTIONAL"):
        raise NotALayerError(f"its direction is {bidirectional!r}")
    if mode_of_input not in ("CUDNN_LINEAR_INPUT", "CUDNN_SKIP_INPUT"):
        raise NotALayerError(f"its inputMode is {mode_of_input!r}")
    assert isinstance(width, int) and isinstance(units, int) and isinstance(depth, int)
    sizes = Sizes(
        kind,
        width,
        units,
        depth,
        2 if bidirectional == "CUDNN_BIDIRECTIONAL" else 1,
        parts=frozenset({"input", "recurrent", *BIAS_PARTS}),
        skip_input=mode_of_input == "CUDNN_SKIP_INPUT",
    )
    return ClassArrays(layout, {"weight": weight.reshape(-1)}, sizes, activation)


def two_ways(module: Object) -> tuple[Object, Object, str]:
    """Return the forward and the backward module of a container of TWO_WAYS, and how their outputs are merged.

    Raises NotALayerError for a container around anything but two layers that can be read.
    """
    pair = (module.fields.get("forwardModule"), module.fields.get("backwardModule"))
    merge = module.fields.get("merge") or module.fields.get("mergeModule")
    forward, backward = pair
    if not isinstance(forward, Object) or not isinstance(backward, Object):
        raise NotALayerError("its two modules are missing")
    if module.name == "nn.BiSequencerLM" or forward.name not in CLASSES or backward.name not in CLASSES:
        raise NotALayerError(f"it contains {forward.name} and {backward.name}, not one recurrent layer for each direction")
    how = {"nn.CAddTable": "sum", "nn.JoinTable": "concat"}.get(merge.name if isinstance(merge, Object) else "")
    if how is None:
        raise NotALayerError("its directions are merged by something other than nn.CAddTable or nn.JoinTable")
    dimension, seen = (merge.fields.get(name) if isinstance(merge, Object) else None for name in ("dimension", "nInputDims"))
    if how == "concat" and dimension not in (None, -1, seen or (3 if module.name == "nn.SeqBRNN" else 2)):
        raise NotALayerError(f"its nn.JoinTable puts its directions side by side along axis {dimension}, not as features")
    return forward, backward, how
