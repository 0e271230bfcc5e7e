"""What a caller may decide where a file does not say it: `--set KEY=VALUE`, or keywords in Python.

A value may be meant for one layer only: `LAYER:KEY=VALUE`.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from rnnconvert.errors import UsageError


@dataclass(frozen=True)
class Option:
    """An option as documentation.

    name     its key
    choices  the values that it may have; empty where any text or number will do
    meaning  what it decides, and what is assumed without it
    reading  whether it says something about the source (True) or about the target
    """

    name: str
    choices: tuple[str, ...]
    meaning: str
    reading: bool = True


_BOOLEAN = ("true", "false")

_ALL = (
    Option(
        "nonlinearity",
        ("tanh", "relu"),
        "PyTorch, cuDNN, Flax, MXNet, Paddle and Lasagne: the function of a plain RNN; tanh if not said, and relu in the "
        "layers of MXNet and Lasagne",
    ),
    Option(
        "activation",
        (),
        "Keras weights without a configuration, TensorFlow 1 without a graph, Fluid; Flux, Lux, oneDNN and described layouts "
        "that have more functions than tanh and relu: the candidate's function; tanh if not said",
    ),
    Option("forget_bias", (), "TensorFlow 1 without a graph: what an LSTM adds to its forget gate; 1.0 if not said"),
    Option("cell_clip", (), "TensorFlow 1 without a graph: the bound of an LSTM's cell state; none if not said"),
    Option("proj_clip", (), "TensorFlow 1 without a graph: the bound of an LSTM's projection; none if not said"),
    Option(
        "recurrent_activation",
        (),
        "Keras weights without a configuration, Fluid, and arrays by name whose layout has several: the gates' function; "
        "hard_sigmoid for files of Keras before 2.3, else sigmoid",
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
        ("f", "i"),
        "ONNX: which gate input_forget derives: f = 1 - i (onnxruntime, the default) or i = 1 - f",
    ),
    Option(
        "cell",
        ("lstm", "gru", "rnn_tanh", "rnn_relu"),
        "a flat vector that nothing describes (cuDNN, MXNet, Flux, Knet), a scope of TensorFlow 1 that names no class: its cell",
    ),
    Option("input_size", (), "a flat vector that nothing describes (cuDNN, MXNet, Flux, Knet): width of the input"),
    Option("hidden_size", (), "a flat vector that nothing describes (cuDNN, MXNet, Flux, Knet): units"),
    Option("num_layers", (), "a flat vector that nothing describes (cuDNN, MXNet, Flux, Knet): layers; 1 if not said"),
    Option(
        "bidirectional",
        _BOOLEAN,
        "a flat vector that nothing describes (cuDNN, MXNet, Flux, Knet): two directions; false if not said",
    ),
    Option(
        "bias_mode",
        ("double", "none", "single_inp", "single_rec"),
        "cuDNN: the biases of a buffer without a description, and of one that is written; double if not said",
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
    Option("initial_state", ("call",), "leave out learned initial states: you pass them at every call", False),
    Option(
        "merge", ("concat",), "leave out how the last layer joins its directions: you join the halves yourself", False
    ),
    Option("reverse", ("flipped",), "leave out that a layer reads from the end: you flip inputs and outputs", False),
    Option(
        "output_order",
        ("time",),
        "leave out that go_backwards outputs are in processing order: you flip the inputs",
        False,
    ),
    Option(
        "stack",
        ("join", "split"),
        "join layers that read one another into one stack, or write each layer by itself",
        False,
    ),
    Option("directions", ("split",), "write two directions as two layers", False),
    Option(
        "module",
        ("stack", "cell", "optimized", "flat", "gates"),
        "PyTorch and MXNet: names of layers (stack, the default) or of cells; MXNet: flat for the RNN operator's vector, "
        "gates for the arrays of mx.rnn; Flax nnx: optimized for OptimizedLSTMCell",
        False,
    ),
    Option(
        "prefix",
        (),
        "PyTorch, Flax, Haiku, Equinox, MXNet: what the names begin with; the layer's name if there are several, else nothing",
        False,
    ),
    Option("opset", (), "ONNX: operator set to write, 7 to 22; 22 for bfloat16 and 17 otherwise if not said", False),
    Option("sequence_lens", _BOOLEAN, "ONNX: whether the model has an input for the lengths of the sequences", False),
    Option(
        "external_data", _BOOLEAN, "ONNX: whether weights go into a file of their own; past 2 GiB they always do", False
    ),
    Option("return_state", _BOOLEAN, "Keras .keras: whether the model gives the final states as well", False),
)
OPTIONS: dict[str, Option] = {option.name: option for option in _ALL}
"""Every option, by its name."""


class Options:
    """The options of one call.

    Raises UsageError for a key that there is not, or a value that it cannot have.
    """

    def __init__(self, values: Mapping[str, object] | None = None, settings: Iterable[str] = ()) -> None:
        self._values: dict[tuple[str, str], str] = {}
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
        if option.choices and value not in option.choices:
            raise UsageError(f"option {key} cannot be {value!r}; it is one of {', '.join(option.choices)}")
        self._values[layer, key] = value

    def get(self, key: str, layer: str = "") -> str | None:
        """The value that was set, for this layer or for all; None if it was not."""
        assert key in OPTIONS, key
        return self._values.get((layer, key), self._values.get(("", key)))

    def true(self, key: str, layer: str = "") -> bool:
        """Whether a yes-or-no option was set to true."""
        return self.get(key, layer) == "true"

    def number(self, key: str, default: int | None = None, layer: str = "") -> int:
        """A whole number that was set, or the default.

        Raises UsageError if it is no number, or if it is missing and has no default.
        """
        value = self.get(key, layer)
        if value is None:
            if default is None:
                raise UsageError(f"option {key} is needed: --set {key}=...  {OPTIONS[key].meaning}")
            return default
        if not value.isdecimal():
            raise UsageError(f"option {key} is a whole number, not {value!r}")
        return int(value)

    def real(self, key: str, layer: str = "") -> float | None:
        """A number that was set; None if none was, or for the word "none". Raises UsageError if it is no number."""
        value = self.get(key, layer)
        if value in (None, "none"):
            return None
        try:
            found = float(str(value))
        except ValueError:
            found = float("nan")
        if not math.isfinite(found):
            raise UsageError(f"option {key} is a number, not {value!r}")
        return found

    def layers(self) -> set[str]:
        """The layers that were named."""
        return {layer for layer, _ in self._values if layer}
