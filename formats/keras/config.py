"""The statements of a Keras configuration about a recurrent layer: which cell it is, in every era of Keras.

Defaults and spellings by era, with their sources: Keras 1 `inner_activation` and `output_dim` (keras
1.2.2 layers/recurrent.py); Keras 2 `recurrent_activation`, with hard_sigmoid as the default before
2.3; `reset_after` from 2.1.5 on, False by default until tf.keras 2; Keras 3 (keras/src/layers/rnn).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rnnconvert.containers import json_text
from rnnconvert.core.cells import HARD_SIGMOID_KERAS_2, HARD_SIGMOID_KERAS_3, SIGMOID, TANH, Activation
from rnnconvert.core.errors import UnreadableError
from rnnconvert.formats.keras.model.entries import Entry, children

_CLASSES = {"LSTM": "lstm", "GRU": "gru", "SimpleRNN": "rnn", "CuDNNLSTM": "lstm", "CuDNNGRU": "gru"}
KINDS: dict[str, str] = {**_CLASSES, **{f"{name}Cell": kind for name, kind in _CLASSES.items()}, "PeepholeLSTMCell": "lstm"}
"""Classes whose equations are known."""


@dataclass(frozen=True)
class Era:
    """The version of Keras that wrote a file.

    text     as the file says it, or as the names of its arrays show it; "" where neither does
    meaning  what hard_sigmoid is, where the caller says it
    stated   whether the file itself says it
    """

    text: str
    meaning: Activation | None = None
    stated: bool = True

    @property
    def major(self) -> int:
        """1, 2 or 3; 3 where the file does not state it."""
        parts = re.match(r"(\d+)", self.text)
        return int(parts[1]) if parts else 3

    @property
    def of_javascript(self) -> bool:
        """Whether TensorFlow.js itself wrote it, whose rules are those of Keras 2.0, but for masks."""
        return "(" in self.text

    @property
    def before_2_3(self) -> bool:
        """Whether hard_sigmoid is what a recurrent layer of this version has for its gates if nothing else is chosen.

        That of Keras 1, of Keras 2 before 2.3, and of tf.keras up to TensorFlow 1.12. TensorFlow 1.13 to 2.1 all state
        2.2.4-tf: see `gates_open`.
        """
        parts = re.match(r"(\d+)(?:\.(\d+))?(?:\.(\d+))?", self.text)
        if parts is None or ("-tf" in self.text and parts[3] is None):
            return False
        version = (int(parts[1]), int(parts[2] or 0), int(parts[3] or 0))
        return version < ((2, 2, 4) if "-tf" in self.text else (2, 3, 0))

    @property
    def gates_open(self) -> bool:
        """Whether the version leaves open what the gates' function is if nothing else is chosen.

        2.2.4-tf is the tf.keras of TensorFlow 1.13 to 1.15, where it is hard_sigmoid, and of 2.0 and 2.1, where it is sigmoid.
        """
        return self.text.startswith("2.2.4-tf") or (self.major < 3 and not self.stated)

    @property
    def hard_sigmoid(self) -> Activation:
        """The meaning of hard_sigmoid."""
        return self.meaning or (HARD_SIGMOID_KERAS_3 if self.major >= 3 else HARD_SIGMOID_KERAS_2)


def tree(layer: Entry, path: str = "", depth: int = 0) -> Iterator[tuple[str, Entry]]:
    """Yield the path of every layer in a Keras 3 file: numbered by class, in the order of the model.

    Source: keras/src/saving/saving_lib.py, _save_container_state.
    """
    if depth > 50:
        return
    yield path, layer
    inside = children(layer)
    for child, label in zip(inside, labels(child.short_class_name for child in inside), strict=True):
        yield from tree(child, f"{path}/layers/{label}".lstrip("/"), depth + 1)
    inner = layer.inner("layer")
    if inner is not None and layer.class_name != "Bidirectional":
        yield from tree(inner, f"{path}/layer", depth + 1)


def labels(class_names: Iterable[str]) -> Iterator[str]:
    """Yield the name of the group of each layer of a model, by their classes: numbered from the second of a class on."""
    counts = Counter[str]()
    for kind in map(snake_case, class_names):
        yield f"{kind}_{counts[kind]}" if counts[kind] else kind
        counts[kind] += 1


def snake_case(name: str) -> str:
    """Return a class's name as Keras spells it in paths. Source: keras/src/utils/naming.py, to_snake_case."""
    name = re.sub(r"\W+", "", name)
    name = re.sub(r"(.)([A-Z][a-z]+)", r"\1_\2", name)
    return re.sub(r"([a-z])([A-Z])", r"\1_\2", name).lower()


_OF_EVERY_LAYER = ("name", "trainable", "dtype")
_PLAIN_RELU = {"max_value": None, "negative_slope": 0.0, "threshold": 0.0}


def activation(value: object, era: Era) -> Activation:
    """Return an activation from a configuration: a name, or a serialized object with its constants."""
    constants: Mapping[str, Any] = {}
    if isinstance(value, Mapping):
        config = value.get("config")
        name = str(config if isinstance(config, str) else value.get("class_name", ""))
        constants = {key: setting for key, setting in config.items() if key not in _OF_EVERY_LAYER} if isinstance(config, Mapping) else {}
        constants = {} if constants == _PLAIN_RELU else constants
        name = snake_case(name) if name[:1].isupper() else name
    else:
        name = "linear" if value is None else str(value)
    name = {"swish": "silu", "re_lu": "relu", "leaky_re_lu": "leaky_relu", "hard_swish": "hard_silu"}.get(name, name)
    if name == "hard_sigmoid":
        return era.hard_sigmoid
    if name == "leaky_relu":
        slope = constants.get("negative_slope", constants.get("alpha", 0.2 if not constants else 0.3))
        if isinstance(slope, (int, float)):
            return Activation(name, float(slope))
    if constants and name == "elu" and isinstance(constants.get("alpha", 1.0), (int, float)):
        return Activation(name, float(constants.get("alpha", 1.0)))
    strange = name in ("leaky_relu", "elu") or any(isinstance(v, (int, float)) for v in constants.values())
    if constants and name not in ("tanh", "sigmoid") and strange:
        return Activation(f"{name} with {dict(constants)}")  # constants that we do not know the meaning of
    return Activation(name)


def functions(layer: Entry, era: Era) -> tuple[Activation, Activation]:
    """Return the candidate's and the gates' functions of a configured cell; for what it does not state, see `unstated`."""
    config = layer.config
    if layer.class_name.startswith("CuDNN"):
        return TANH, SIGMOID
    peephole = layer.class_name == "PeepholeLSTMCell"
    default = "hard_sigmoid" if era.before_2_3 or peephole else "sigmoid"
    gates = config.get("recurrent_activation", config.get("inner_activation", default))
    return activation(config.get("activation", "tanh"), era), activation(gates, era)


def unstated(layer: Entry) -> list[str]:
    """Return the functions that the configuration of a cell does not state; null states the linear function."""
    if layer.class_name.startswith("CuDNN"):
        return []
    missing = [] if "activation" in layer.config else ["activation"]
    stated = {"recurrent_activation", "inner_activation"} & layer.config.keys()
    if not stated and KINDS.get(layer.class_name) != "rnn":
        missing.append("recurrent_activation")
    return missing


def of_json(path: object, text: str | bytes, what: str = "its attribute model_config") -> Any:
    """Return the value of text that a file has. Raises UnreadableError if it is not JSON.

    what  where the text is, in words
    """
    try:
        return json_text.loads(text, path)
    except UnreadableError:
        raise
    except ValueError:
        raise UnreadableError(path, f"{what} is not JSON") from None
