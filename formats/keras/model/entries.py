"""Models that are stated as layers, each with a class and a configuration: the JSON of Keras 1 to 3, in every file kind that has it.

Sources: keras 1.2.2 and 2.3.1 engine/topology.py; tf_keras/src/saving; keras/src/saving/serialization_lib.py (3.15).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from rnnconvert.core.errors import UnreadableError
from rnnconvert.core.limits import LAYER_NESTING
from rnnconvert.core.malformed import malformed

_PACKAGES = ("keras", "tf_keras", "tensorflow", "keras_core")
_FROM = ">"
"""The separator between the package or module of a class that is not built in and its name."""
OWN_RECURRENT = f"rnnconvert{_FROM}OwnRecurrent"
"""The class of rnnconvert's own layers."""
RECURRENT = (
    "RNN",
    "SimpleRNN",
    "LSTM",
    "GRU",
    "CuDNNLSTM",
    "CuDNNGRU",
    "Bidirectional",
    "ConvLSTM1D",
    "ConvLSTM2D",
    "ConvLSTM3D",
    OWN_RECURRENT,
)
"""Classes of layers that are called on a sequence, then on initial states."""

_RENAMED = {"UnifiedLSTM": "LSTM", "UnifiedGRU": "GRU", "LSTMV2": "LSTM", "GRUV2": "GRU"}
"""Classes that previews of TensorFlow 2 named otherwise; they write the configuration of the class of today.

Source: tensorflow/python/keras/layers/recurrent.py and recurrent_v2.py (2.0.0-alpha0, 2.0.0).
"""


@dataclass(frozen=True)
class Entry:
    """A layer of a configuration.

    name        the layer's name
    class_name  its class; one that is not built in has its package or module before it, "my>LSTM", and so no plain name ever
    config      its own configuration
    rank        how many axes its input has, the batch's among them; 0 where the file does not say it
    nodes       how its model calls it, as the file states it: see rnnconvert.formats.keras.model.calls
    """

    name: str
    class_name: str
    config: Mapping[str, Any]
    rank: int = 0
    nodes: object = None

    @property
    def built_in(self) -> bool:
        """Whether the class is the framework's own, not one of a user's that may have the same name."""
        return _FROM not in self.class_name

    @property
    def short_class_name(self) -> str:
        """The class without package or module, as the paths of arrays are made of it: it says nothing about what the layer computes."""
        return self.class_name.rpartition(_FROM)[2]

    def inner(self, key: str) -> Entry | None:
        """Return a layer or cell inside this one: a wrapper's `layer`, an RNN's `cell`."""
        value = self.config.get(key)
        if not isinstance(value, Mapping) or not isinstance(value.get("config"), Mapping):
            return None
        return entry(value)


def of_file(path: object, *parsers: str) -> AbstractContextManager[None]:
    """Let what Python raises in the block over a configuration be damage of the file (rnnconvert.core.malformed).

    parsers  modules and packages that walk through it, in addition to this package's and the module that has the block
    """
    ours = (__name__, "rnnconvert.formats.keras.model.calls")
    return malformed(lambda what: UnreadableError(path, f"its model configuration has an unknown form ({what})"), *ours, *parsers)


def entry(value: Mapping[str, Any]) -> Entry:
    """Return a layer from its serialized form."""
    config = value["config"]
    config = config if isinstance(config, Mapping) else {"layers": config}
    # What a functional model calls a layer stands beside the configuration: operators of TensorFlow 2.0 to 2.3 state another there.
    name = value.get("name") or config.get("name") or ""
    return Entry(str(name), _class_name(value), config, rank(value.get("build_config")), value.get("inbound_nodes"))


def _class_name(value: Mapping[str, Any]) -> str:
    """Return a layer's class; see Entry.

    Keras names what it does not have itself as "package>Class" where it is registered: as the class itself in HDF5, with the class as
    registered_name from Keras 3 on. What nobody registered has its module alone, and in HDF5 a plain name.
    """
    class_name, registered = str(value.get("class_name", "")), str(value.get("registered_name") or "")
    if _FROM in class_name:
        return class_name
    if _FROM in registered:
        return f"{registered.rpartition(_FROM)[0]}{_FROM}{class_name}"
    module = str(value.get("module") or "")
    if module.partition(".")[0] in _PACKAGES or not (module or registered):
        return _RENAMED.get(class_name, class_name)
    return f"{module}{_FROM}{class_name}"


def rank(built: object) -> int:
    """Return how many axes the input has that a layer was built for; 0 if that is not stated."""
    shape = built.get("input_shape") if isinstance(built, Mapping) else None
    return len(shape) if isinstance(shape, (list, tuple)) and is_shape(shape) else 0


def is_shape(value: object) -> bool:
    """Return whether a value is a list of lengths, None for those that are open."""
    return isinstance(value, (list, tuple)) and all(size is None or isinstance(size, int) for size in value)


def children(layer: Entry) -> list[Entry]:
    """Return the layers of a model, in order; Keras 1 and early Keras 2 keep a Sequential's as a bare list."""
    return listed(layer.config.get("layers"))


def listed(values: object) -> list[Entry]:
    """Return the layers or cells of a list in their serialized form; other entries are left out."""
    return [
        entry(value)
        for value in (values if isinstance(values, list) else [])
        if isinstance(value, Mapping) and isinstance(value.get("config"), (Mapping, list))
    ]


def every(layer: Entry, depth: int = 0) -> Iterator[Entry]:
    """Yield a layer, and all the layers inside it."""
    if depth > LAYER_NESTING:
        return
    yield layer
    for child in children(layer):
        yield from every(child, depth + 1)
    inner = layer.inner("layer")
    if inner is not None:
        yield from every(inner, depth + 1)
