"""Every key of a recurrent layer's configuration, as data: which layers have it, what type its value has, what it does to
the numbers, and what the layer's arrays show of it.

Sources: keras 1.2.2 layers/recurrent.py; keras 2.3.1 layers/{recurrent,cudnn_recurrent,wrappers}.py; tensorflow 2.15
keras/src/layers/rnn; keras/src/layers/rnn (3.15): each get_config.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

from rnnconvert.formats.keras.config import KINDS
from rnnconvert.formats.keras.model.entries import Entry


def _is_size(value: object, least: int) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= least


def _among(*values: object) -> Callable[[object], bool]:
    return lambda value: any(type(value) is type(choice) and value == choice for choice in values)


def _is_flag(value: object) -> bool:
    """Return whether a value is true or false; 1 and 0 are what a layer made with these numbers states."""
    return isinstance(value, bool) or (isinstance(value, Real) and value in (0, 1))


def _is_shape(value: object) -> bool:
    return isinstance(value, (list, tuple)) and all(size is None or _is_size(size, 0) for size in value)


def _is_object(value: object) -> bool:
    return isinstance(value, (str, Mapping))


TYPES: dict[str, tuple[Callable[[object], bool], str]] = {
    "flag": (_is_flag, "true or false"),
    "boolean": (_is_flag, "true or false"),
    "size": (lambda value: _is_size(value, 1), "a positive whole number"),
    "count": (lambda value: _is_size(value, 0), "a whole number"),
    "steps": (lambda value: _is_size(value, 0), "a whole number"),
    "rate": (lambda value: isinstance(value, Real) and not isinstance(value, bool) and 0 <= float(value) <= 1, "a number from 0 to 1"),
    "number": (lambda value: isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value), "a finite number"),
    "word": (lambda value: isinstance(value, str), "a word"),
    "object": (_is_object, "a name or an object"),
    "layer": (lambda value: isinstance(value, Mapping), "a layer"),
    "cells": (lambda value: isinstance(value, (Mapping, list)), "a cell or a list of cells"),
    "list": (lambda value: isinstance(value, list), "a list of cells"),
    "shape": (_is_shape, "a list of sizes"),
    "sizes": (
        lambda value: _is_size(value, 1) or (isinstance(value, list) and bool(value) and all(_is_size(size, 1) for size in value)),
        "a positive whole number or a list of these",
    ),
    "merge": (_among("concat", "sum", "mul", "ave"), "concat, sum, mul, ave or null"),
    "seed": (lambda value: _is_size(value, 0) or isinstance(value, Mapping), "a whole number"),
    "implementation": (_among(0, 1, 2), "0, 1 or 2"),
    "consume_less": (_among("cpu", "mem", "gpu"), "cpu, mem or gpu"),
    "use_cudnn": (lambda value: _is_flag(value) or value == "auto", "true, false or auto"),
    "config": (lambda value: isinstance(value, (Mapping, list)), "an object"),
}
"""The types of values: a check for each, and its name in words."""


def problem(kind: str, value: object) -> str:
    """Return why a value is not of a type: what it is, and what is expected; "" if it is."""
    holds, words = TYPES[kind]
    return "" if holds(value) else f"it is {_worded(value)}, but has to be {words}"


USED, NOTED, HARMLESS = "used", "told", "harmless"


@dataclass(frozen=True)
class ConfigKey:
    """A key of a configuration.

    kind    the type of its values, unless it ends with "?" never null
    effect  USED where it decides what a layer computes, TOLD where it decides how it is called, else HARMLESS
    of      roles of the layers that have it; "" where any may
    reading  what of the arrays shows the same, by the name of a field of `Arrays`
    """

    kind: str
    effect: str = HARMLESS
    of: str = ""
    reading: str = ""


@dataclass(frozen=True)
class Arrays:
    """The facts that the arrays of a cell show about its configuration; None if they do not.

    hidden_size  as many units
    input_size   as many features of each step
    bias         whether there are any
    reset_after  whether a GRU resets after its matrix
    """

    hidden_size: int
    input_size: int
    bias: bool
    reset_after: bool | None


def _keys(words: str, kind: str, effect: str = HARMLESS, of: str = "", reading: str = "") -> dict[str, ConfigKey]:
    return {word: ConfigKey(kind, effect, of, reading) for word in words.split()}


KEYS: dict[str, ConfigKey] = {
    **_keys("units output_dim", "size", USED, "kernel", "hidden_size"),
    **_keys("use_bias", "flag", USED, "plain", "bias"),
    **_keys("reset_after", "flag", USED, "resets", "reset_after"),
    **_keys("activation", "object?", USED, "plain"),
    **_keys("recurrent_activation inner_activation", "object?", USED, "gated"),
    **_keys("go_backwards", "flag", USED, "sequence"),
    **_keys("merge_mode", "merge?", USED, "Bidirectional"),
    **_keys("layer", "layer", USED, "Bidirectional TimeDistributed Wrapper"),
    **_keys("backward_layer", "layer?", USED, "Bidirectional"),
    **_keys("cell", "cells", USED, "RNN"),
    **_keys("cells", "list", USED, "StackedRNNCells"),
    **_keys("name", "word?", USED),
    **_keys("stateful time_major zero_output_for_mask", "flag?", NOTED),
    **_keys("num_constants", "count?", NOTED),
    **_keys("dtype", "object?", NOTED),
    # What weights begin with, and what training does to them.
    **_keys("init inner_init forget_bias_init kernel_initializer recurrent_initializer bias_initializer", "object?"),
    **_keys("W_regularizer U_regularizer b_regularizer kernel_regularizer recurrent_regularizer", "object?"),
    **_keys("bias_regularizer activity_regularizer kernel_constraint recurrent_constraint bias_constraint", "object?"),
    **_keys("unit_forget_bias", "flag?"),
    **_keys("trainable", "boolean?"),
    **_keys("dropout dropout_W dropout_U recurrent_dropout", "rate?"),
    **_keys("seed", "seed?"),
    **_keys("weights", "list?"),
    # Which outputs a model takes, and in which order states are listed.
    **_keys("return_sequences return_state reverse_state_order", "flag?"),
    # How the same numbers are computed.
    **_keys("consume_less", "consume_less?"),
    **_keys("implementation", "implementation?"),
    **_keys("unroll autocast", "flag?"),
    **_keys("use_cudnn", "use_cudnn?"),
    # The shape of the input: its last size is that of the features.
    **_keys("batch_input_shape batch_shape input_shape", "shape?", reading="input_size"),
    **_keys("input_dim", "size?", reading="input_size"),
    **_keys("input_length", "steps?"),
    **_keys("input_dtype", "object?"),
    **_keys("build_config", "config?"),
}
"""Every key that is known, of every era."""


def _roles(class_name: str) -> set[str]:
    """Return the roles of a class, as far as its keys depend on them."""
    roles = {class_name}
    kind = KINDS.get(class_name)
    if kind is not None:
        roles.add("kernel")
        if not class_name.startswith("CuDNN"):
            roles |= {"plain", *(["gated"] if kind != "rnn" else []), *(["resets"] if kind == "gru" else [])}
    if class_name == "RNN" or (kind is not None and not class_name.endswith("Cell")):
        roles.add("sequence")
    return roles


def known_keys(layer: Entry) -> set[str]:
    """Return the keys that are accounted for in a layer of its class."""
    roles = _roles(layer.class_name)
    return {name for name, key in KEYS.items() if not key.of or roles & {*key.of.split()}}


def mistyped(layer: Entry, first: bool = True) -> Iterator[str]:
    """Yield the faults in the types of a layer's values.

    first  whether its model begins with the layer: only then does the shape of the input that it states count
    """
    return (f"{name!r}: {text}" for name, text, reading in _odd(layer, first) if not reading)


def overlooked(layer: Entry, first: bool = True) -> Iterator[str]:
    """Yield which wrong values of a layer Keras itself takes, and as what.

    first  as in `mistyped`
    """
    for name, _, reading in _odd(layer, first):
        if reading:
            yield f"{name!r}: it is {_worded(layer.config[name])}, which Keras {reading}"


def _odd(layer: Entry, first: bool) -> Iterator[tuple[str, str, str]]:
    """Yield each key with a value of a wrong type: its name, what is wrong, and what Keras does with it, "" where it refuses it."""
    shape = _shape_of(layer, first)
    for name in sorted(known_keys(layer) & layer.config.keys()):
        value, key = layer.config[name], KEYS[name]
        kind = key.kind.rstrip("?")
        wrong = "" if value is None and key.kind.endswith("?") else problem(kind, value)
        if wrong:
            idle = key.reading == "input_size" and name != shape
            yield name, wrong, _OVERLOOKS if idle else _taken_as(kind, value)


_OVERLOOKS = "overlooks"
_SHAPES = ("batch_input_shape", "batch_shape", "input_shape", "input_dim")
"""Keys that state the shape of the input, of which a layer takes the first that it has.

Sources: keras/src/engine/base_layer.py of 2.15, Layer.__init__; keras 1.2.2 engine/topology.py, Layer.__init__.
"""


def _shape_of(layer: Entry, first: bool) -> str:
    """Return the key whose value Keras takes as the shape of a layer's input, "" for none."""
    return next((name for name in _SHAPES if name in layer.config), "") if first else ""


def _taken_as(kind: str, value: object) -> str:
    """Return Keras's treatment of a wrong value of a type, "" if Keras refuses it.

    A flag is any value, asked for its truth. A rate is clipped, and serves training alone; anything but 1 is the
    implementation 2. Sources: keras/src/layers/rnn/{lstm,gru,simple_rnn,rnn}.py of 2.15 and 3.15, __init__ and call.
    """
    if kind == "flag":
        return f"takes for {_worded(bool(value))}"
    numbers = {"rate": Real, "seed": Integral}
    counts = kind in numbers and isinstance(value, numbers[kind]) and not (kind == "seed" and isinstance(value, bool))
    return _OVERLOOKS if counts or kind in ("implementation", "steps") else ""


def contradicted(layer: Entry, arrays: Arrays, first: bool = True) -> Iterator[tuple[str, bool]]:
    """Yield which values of a layer's configuration its arrays contradict, and whether Keras takes them into account.

    first  as in `mistyped`
    """
    shape = _shape_of(layer, first)
    for name in sorted(known_keys(layer) & layer.config.keys()):
        value, field = layer.config[name], KEYS[name].reading
        value = _as_compared(KEYS[name].kind.rstrip("?"), value)
        expected: Any = getattr(arrays, field) if field else None
        if value is not None and expected is not None and value != expected:
            counts = field != "input_size" or name == shape
            if counts or not problem(KEYS[name].kind.rstrip("?"), layer.config[name]):
                yield f"{name!r}: it is {_worded(layer.config[name])}, but the arrays show {_worded(expected)}", counts


def _as_compared(kind: str, value: Any) -> object:
    """Return the part of a value that arrays show, too: the last size of a shape, the truth of a flag."""
    if kind == "flag":
        return bool(value)
    if kind == "shape":
        return value[-1] if isinstance(value, (list, tuple)) and value else None
    return value


def _worded(value: object) -> str:
    if isinstance(value, bool):
        text = str(value).lower()
    elif value is None:
        text = "null"
    else:
        text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
