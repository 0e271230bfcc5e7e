"""What a caller may decide where a file leaves it open: `--set KEY=VALUE`, or keywords in Python.

A value may be meant for one layer: `LAYER:KEY=VALUE`. A value that contradicts what the file states is an error, unless
it ends in an exclamation mark: `KEY=VALUE!`. A value that nothing asks for is an error, too.
"""

from __future__ import annotations

import copy
import difflib
import math
import re
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from rnnconvert.core.errors import UsageError
from rnnconvert.core.weights import Unconvertible
from rnnconvert.files.conservation import UNACCOUNTED, Facts


@dataclass(frozen=True)
class Option:
    """An option as documentation.

    name     its key
    choices  the values that it may have; empty where any text or number will do
    meaning  what it decides, and what is assumed without it
    side     "read" where it decides a fact of the source, "write" one of the target, "both" for either
    number   "whole" or "real" where its values are numbers; "none" is a value of a real number too
    each     whether two directions may have values of their own: `relu,tanh`, forward and backward
    """

    name: str
    choices: tuple[str, ...]
    meaning: str
    side: Literal["read", "write", "both"] = "read"
    number: Literal["", "whole", "real"] = ""
    each: bool = False


@dataclass(frozen=True)
class Question:
    """A fact that a file leaves open, and what is taken until the caller decides it.

    option   the option that decides it: `--set OPTION=VALUE`, or the keyword of `load`
    assumed  the value taken
    choices  the values it may have; empty where any text or number will do
    why      what the file lacks, and where it could be found
    layer    the layer in question, or "" for all
    """

    option: str
    assumed: str
    choices: tuple[str, ...]
    why: str
    layer: str = ""


_BOOLEAN = ("true", "false")

_ALL = (
    Option(
        "nonlinearity",
        ("tanh", "relu"),
        "PyTorch, cuDNN, Flax, MXNet, Paddle and Lasagne: the function of a plain RNN; tanh if not said, and relu in the "
        "layers of MXNet and Lasagne",
        each=True,
    ),
    Option(
        "activation",
        (),
        "Keras weights without a configuration, TensorFlow 1 without a graph, Fluid; Flux, Lux, oneDNN and described layouts "
        "that have more functions than tanh and relu: the candidate's function; tanh if not said; of Lux and described layouts "
        "one for each direction, as in relu,tanh",
        each=True,
    ),
    Option(
        "forget_bias",
        (),
        "TensorFlow 1 without a graph: what an LSTM adds to its forget gate; 1.0 if not said",
        number="real",
    ),
    Option(
        "cell_clip",
        (),
        "TensorFlow 1 without a graph: the bound of an LSTM's cell state; none if not said",
        number="real",
    ),
    Option(
        "proj_clip",
        (),
        "TensorFlow 1 without a graph: the bound of an LSTM's projection; none if not said",
        number="real",
    ),
    Option(
        "recurrent_activation",
        (),
        "Keras weights without a configuration, Fluid, and arrays by name whose layout has several: the gates' function",
        each=True,
    ),
    Option(
        "output_activation",
        ("sigmoid", "tanh", "relu", "linear"),
        "Fluid's dynamic_lstm: its cell_activation; tanh if not said",
    ),
    Option(
        "reset_after", _BOOLEAN, "Keras GRU weights without a configuration and without biases: where the reset gate is"
    ),
    Option(
        "merge_mode",
        ("concat", "sum", "mul", "ave", "none"),
        "Keras weights without a configuration, Lux and oneDNN: how two directions are joined",
    ),
    Option(
        "go_backwards",
        _BOOLEAN,
        "Keras weights without a configuration, Lasagne and Fluid: whether a layer reads from the end",
    ),
    Option(
        "hard_sigmoid",
        ("keras2", "keras3"),
        "which hard_sigmoid a Keras file means: 0.2 x + 0.5, or x / 6 + 0.5; by the version that wrote it if not said",
    ),
    Option(
        "input_forget",
        ("f", "i", "none"),
        "ONNX: which gate input_forget derives: f = 1 - i (onnxruntime, the default) or i = 1 - f",
    ),
    Option(
        "cell",
        ("lstm", "gru", "rnn_tanh", "rnn_relu"),
        "a flat vector that nothing describes (cuDNN, MXNet, Flux, Knet), a scope of TensorFlow 1 that names no class: its cell",
    ),
    Option(
        "input_size",
        (),
        "a flat vector that nothing describes (cuDNN, MXNet, Flux, Knet): width of the input",
        number="whole",
    ),
    Option("hidden_size", (), "a flat vector that nothing describes (cuDNN, MXNet, Flux, Knet): units", number="whole"),
    Option(
        "num_layers",
        (),
        "a flat vector that nothing describes (cuDNN, MXNet, Flux, Knet): layers; 1 if not said",
        number="whole",
    ),
    Option(
        "bidirectional",
        _BOOLEAN,
        "a flat vector that nothing describes (cuDNN, MXNet, Flux, Knet): two directions; false if not said",
    ),
    Option(
        "bias_mode",
        ("double", "none", "single_inp", "single_rec"),
        "cuDNN: the biases of a buffer without a description, and of one that is written; double if not said",
        "both",
    ),
    Option(
        "single_rec",
        ("inside", "outside"),
        "cuDNN GRU with single_rec: whether the candidate's bias is inside the reset product; its manual says both",
    ),
    Option(
        "projection_size",
        (),
        "a flat vector that nothing describes (cuDNN, MXNet, Flux, Knet): width of the projection; 0 if not said",
        number="whole",
    ),
    Option(
        "input_mode",
        ("linear", "skip"),
        "a buffer of cuDNN's or Knet's without a description: whether layer 0 has weights for its input",
    ),
    Option(
        "dtype", ("float16", "bfloat16", "float32", "float64"), "cuDNN buffer without a description: its element type"
    ),
    Option(
        "layout",
        (),
        "files of arrays by name: which layout a layer's arrays are of where several fit, or which is written; a name "
        "from `rnnconvert formats`",
        "both",
    ),
    Option(
        "init_state",
        ("ones", "zeros"),
        "Lux: what an RNNCell starts from whose initial state is not among its parameters; ones before 1.0, zeros since",
    ),
    Option(
        "arrays",
        (),
        "files without names (Lasagne's, Equinox's .eqx): which layers begin at which array, as in lstm@0,gru@17; found "
        "by their shapes if not said",
    ),
    Option(
        "release",
        ("0.1", "0.2"),
        "Lasagne's LSTM with peepholes: 0.1 adds the output gate's behind its function, later ones before; 0.2 if not said",
    ),
    Option("fc", (), "Fluid: the fc that stands before a layer; the one of its width, or with its number, if not said"),
    Option("origin_mode", _BOOLEAN, "Fluid's dynamic_gru: whether z keeps the old state; false if not said"),
    Option("clip", ("none",), "drop the clips of the source: your values never reach the bound"),
    Option(
        UNACCOUNTED,
        ("harmless",),
        "facts of a file that nothing accounts for: you say that they do not change what the layer computes",
    ),
    Option(
        "initial_state",
        ("call",),
        "leave out learned initial states: you pass them at every call; an ONNX model has inputs for them",
        "write",
    ),
    Option(
        "merge", ("concat",), "leave out how the last layer joins its directions: you join the halves yourself", "write"
    ),
    Option("reverse", ("flipped",), "leave out that a layer reads from the end: you flip inputs and outputs", "write"),
    Option(
        "output_order",
        ("time",),
        "leave out that go_backwards outputs are in processing order: you flip the inputs",
        "write",
    ),
    Option(
        "stack",
        ("join", "split"),
        "join layers that read one another into one stack, or write each layer by itself",
        "write",
    ),
    Option("directions", ("split",), "write two directions as two layers", "write"),
    Option(
        "module",
        ("stack", "cell", "optimized", "flat", "gates"),
        "PyTorch and MXNet: names of layers (stack, the default) or of cells; MXNet: flat for the RNN operator's vector, "
        "gates for the arrays of mx.rnn; Flax nnx: optimized for OptimizedLSTMCell",
        "write",
    ),
    Option(
        "prefix",
        (),
        "PyTorch, Flax, Haiku, Equinox, MXNet: what the names begin with; the layer's name if there are several, else nothing",
        "write",
    ),
    Option(
        "opset",
        (),
        "ONNX: operator set to write, 7 to 22; 22 for bfloat16 and 17 otherwise if not said",
        "write",
        "whole",
    ),
    Option("sequence_lens", _BOOLEAN, "ONNX: whether the model has an input for the lengths of the sequences", "write"),
    Option(
        "states",
        ("input",),
        "ONNX: the initial states are inputs that every call gives; constants of the model if not said",
        "write",
    ),
    Option(
        "external_data",
        _BOOLEAN,
        "ONNX: whether weights go into a file of their own; past 2 GiB they always do",
        "write",
    ),
    Option("return_state", _BOOLEAN, "Keras .keras: whether the model gives the final states as well", "write"),
)
OPTIONS: dict[str, Option] = {option.name: option for option in _ALL}
"""Every option, by its name."""


class Options:
    """What a caller decided, and a ledger of what was asked: the values used, the questions left open.

    Raises UsageError for an unknown key, or a value that its key cannot have.
    """

    def __init__(self, values: Mapping[str, object] | None = None, settings: Iterable[str] = ()) -> None:
        self._values: dict[tuple[str, str], str] = {}
        self._insisted: set[tuple[str, str]] = set()
        self._used: set[tuple[str, str]] = set()
        self._asked: dict[str, list[str]] = {}
        self._questions: list[Question] = []
        self._notes: list[str] = []
        self._facts: list[Facts] = []
        self._place: tuple[int, int] | None = None
        for key, value in (values or {}).items():
            self._add("", key, str(value).lower() if isinstance(value, bool) else str(value))
        for setting in settings:
            key, equals, value = setting.partition("=")
            if not equals:
                raise UsageError(f"--set {setting}: expected KEY=VALUE, as in --set nonlinearity=relu")
            layer, _, name = key.rpartition(":")
            self._add(layer, name, value)

    def _add(self, layer: str, key: str, value: str) -> None:
        option = OPTIONS.get(key)
        if option is None:
            near = difflib.get_close_matches(key, OPTIONS, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(OPTIONS)}"
            raise UsageError(f"no option {key!r}; {hint}")
        if option.side != "write" and value.endswith("!"):
            value = value[:-1]
            self._insisted.add((layer, key))
        parts = _parts(value) if option.each else [value]
        if len(parts) > 2 or not all(parts):
            raise UsageError(
                f"option {key} is one function, or two as in relu,tanh, forward and backward; not {value!r}"
            )
        if option.choices and not set(parts) <= set(option.choices):
            raise UsageError(f"option {key} cannot be {value!r}; it is one of {', '.join(option.choices)}")
        if option.number == "whole" and not (value.isdecimal() and len(value) < 10):
            raise UsageError(f"option {key} is a whole number, not {value!r}")
        if option.number == "real" and value != "none" and not _finite(value):
            raise UsageError(f"option {key} is a number, not {value!r}")
        self._values[layer, key] = value

    @property
    def questions(self) -> tuple[Question, ...]:
        """What was asked and not decided, in the order of asking."""
        return tuple(self._questions)

    @property
    def notes(self) -> tuple[str, ...]:
        """Where the caller overruled a file, in words."""
        return tuple(self._notes)

    def peek(self, key: str, layer: str = "") -> str | None:
        """Return the value for this layer or for all, or None, without taking it for used."""
        given = self._given(key, layer)
        return None if given is None else self._value(given, layer)

    def get(self, key: str, layer: str = "") -> str | None:
        """Return the value for this layer or for all, or None; a value that is returned is used."""
        given = self._given(key, layer)
        self._note_asking(key, layer)
        if given is None:
            return None
        value = self._value(given, layer)
        self._used.add(given)
        return value

    def direction(self, number: int, count: int) -> Options:
        """Return this ledger as one direction of a layer of so many asks it, where each may have functions of its own."""
        own = copy.copy(self)
        own._place = number, count
        return own

    def ask(
        self,
        key: str,
        layer: str = "",
        *,
        assumed: str,
        why: str,
        choices: Sequence[str] = (),
        also: Sequence[str] = (),
    ) -> str:
        """Return what the caller decided of a fact that the file leaves open, or what is assumed, with a Question.

        assumed  the value taken if nobody decides
        why      what the file lacks, in words
        choices  the values that this layer can have; those of the option if there are none
        also     other keys that decide the same fact

        Raises UsageError for a value that is none of the choices.
        """
        for one in (key, *also):
            value = self.get(one, layer)
            if value is not None:
                if choices and value not in choices:
                    raise UsageError(
                        f"{layer or 'the file itself'}: option {one} cannot be {value!r} here; it is one of {', '.join(choices)}"
                    )
                return value
        question = Question(key, assumed, tuple(choices) or OPTIONS[key].choices, why, layer)
        if question not in self._questions:
            self._questions.append(question)
        return assumed

    def stated(self, key: str, layer: str, value: str, where: str, also: Sequence[str] = ()) -> str:
        """Return a fact that the file states, or what the caller insists on instead.

        where  what states it, in words

        Raises UsageError for another value of the caller's that does not end in an exclamation mark.
        """
        for one in (key, *also):
            given = self._given(one, layer)
            if given is None:
                continue
            wanted = self._value(given, layer)
            self._used.add(given)
            if wanted == value or (_finite(wanted) and _finite(value) and float(wanted) == float(value)):
                return value
            name = layer or "the file itself"
            if given not in self._insisted:
                raise UsageError(
                    f"--set {one}={wanted} contradicts {where}, which says {value} for {name}. Leave the option out; or, if "
                    f"the file is wrong, insist with --set {one}={wanted}!"
                )
            self._notes.append(f"{name}: {one}={wanted} was taken as you insist; {where} says {value}")
            return wanted
        return value

    def facts(
        self, layer: str, where: str, stated: Mapping[str, Any], *, harmless: Collection[str] = (),
        neutral: Mapping[str, Collection[object]] | None = None,
    ) -> Facts:  # fmt: skip
        """Return what a file states of a layer as Facts, whose rest is looked at once the file is read."""
        found = Facts(layer, where, stated, harmless, neutral)
        self._facts.append(found)
        return found

    def unaccounted(self, layer: str) -> tuple[Unconvertible, ...]:
        """What a file states of a layer and nothing took."""
        return tuple(one for facts in self._facts if facts.layer == layer for one in facts.unconvertible())

    def _given(self, key: str, layer: str) -> tuple[str, str] | None:
        assert key in OPTIONS, key
        return next((given for given in ((layer, key), ("", key)) if given in self._values), None)

    def _value(self, given: tuple[str, str], layer: str) -> str:
        """Return a value, or that of the direction that asks. Raises UsageError for two values where one is asked for."""
        value, key = self._values[given], given[1]
        parts = _parts(value) if OPTIONS[key].each else [value]
        if len(parts) == 1:
            return value
        number, count = self._place or (0, 0)
        if count != 2:
            why = "has one direction" if count == 1 else "is read with one function for both directions"
            raise UsageError(
                f"--set {key}={value} names two functions, forward and backward, and {layer or 'the file itself'} {why}. "
                f"Name one, as in --set {key}={parts[0]}"
            )
        return parts[number]

    def _note_asking(self, key: str, layer: str) -> None:
        asked = self._asked.setdefault(key, [])
        if layer not in asked:
            asked.append(layer)

    def true(self, key: str, layer: str = "") -> bool:
        """Whether a yes-or-no option was set to true."""
        return self.get(key, layer) == "true"

    def number(self, key: str, default: int, layer: str = "") -> int:
        """Return a whole number that was set, or the default."""
        value = self.get(key, layer)
        return default if value is None else int(value)

    def layers(self) -> set[str]:
        """The layers that were named."""
        return {layer for layer, _ in self._values if layer}

    def used(self) -> list[str]:
        """The settings that decided something so far, as the command line spells them."""
        return [
            f"{layer}:{key}={value}".removeprefix(":") + ("!" if (layer, key) in self._insisted else "")
            for (layer, key), value in self._values.items()
            if (layer, key) in self._used
        ]

    def unused(self, *sides: str) -> list[tuple[str, str]]:
        """The layers and keys of settings that nothing asked for, among the options of these sides; of all if none is named."""
        return [
            given
            for given in self._values
            if given not in self._used and (not sides or OPTIONS[given[1]].side in sides)
        ]

    def check_used(self, what: str, *sides: str, but: Container[tuple[str, str]] = ()) -> None:
        """Raise UsageError for a setting that nothing asked for: it would decide nothing, and hide a mistake.

        what    the file, in words
        sides   the sides of the options to look at; all if none is named
        but     layers and keys that are used elsewhere
        """
        for layer, key in self.unused(*sides):
            if (layer, key) in but:
                continue
            said = f"--set {layer + ':' if layer else ''}{key}={self._values[layer, key]}"
            asked = [one or "the file itself" for one in self._asked.get(key, [])]
            if asked:
                hint = f"It would decide something of {', '.join(map(repr, asked))}."
            elif OPTIONS[key].side == "write":
                hint = "It is for files that are written; what is written here does not ask for it."
            else:
                open_facts = sorted({question.option for question in self._questions})
                hint = (
                    f"This file leaves open: {', '.join(open_facts)}."
                    if open_facts
                    else "This file leaves nothing open."
                )
            raise UsageError(f"{said} decides nothing in {what}: no layer asks for it. {hint} Leave it out.")


def _parts(value: str) -> list[str]:
    """Return a value for each direction; commas in parentheses are a function's own."""
    return [part.strip() for part in re.split(r",(?![^(]*\))", value)]


def _finite(text: str) -> bool:
    """Whether a text is a finite number."""
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False
