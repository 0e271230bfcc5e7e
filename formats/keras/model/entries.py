"""Models that are stated as layers, each with a class and a configuration: the JSON of Keras 1 to 3, in every file kind that has it.

Sources: keras 1.2.2 and 2.3.1 engine/topology.py; tf_keras/src/saving; keras/src/saving/serialization_lib.py (3.15).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, TypeAlias

from rnnconvert.core.errors import UnreadableError
from rnnconvert.core.limits import LAYER_NESTING
from rnnconvert.core.malformed import malformed

Shape: TypeAlias = "tuple[int | None, ...]"
"""Lengths of axes, the batch's first; None for those that are open."""
_PACKAGES = ("keras", "tf_keras", "tensorflow", "keras_core")
_FROM = ">"
"""The separator between the package or module of a class that is not built in and its name."""
OWN_RECURRENT = f"rnnconvert{_FROM}OwnRecurrent"
"""The class of rnnconvert's own layers."""
NORMED = f"Addons{_FROM}LayerNormLSTMCell"
"""TensorFlow Addons' LSTM whose products and cell state go through layer norms: a class that is known, though not Keras's own."""
NORMS = ("kernel_norm", "recurrent_norm", "state_norm")
"""Its norms, in the order in which it makes them."""
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

MODELS = ("Sequential", "Functional", "Model")
"""Classes of models that run their layers as their configuration states it."""
DROPOUTS = (
    "Dropout", "SpatialDropout1D", "SpatialDropout2D", "SpatialDropout3D", "AlphaDropout", "GaussianDropout", "GaussianNoise",
)  # fmt: skip
"""Classes of layers that change values in training alone."""
HEADED = ("MultiHeadAttention", "GroupedQueryAttention")
"""Classes of attention that is called on a query, a value and a key as arguments of their own; other attention has a list of them."""
WRAPPERS = ("TimeDistributed", "Wrapper")
"""Classes that call a layer on each step."""
SHAPES = ("batch_input_shape", "batch_shape", "input_shape")
"""The keys in which a layer states the shape of its input, in the order in which Keras looks for them."""
OPERATIONS = frozenset((
    "Abs", "Absolute", "Add", "All", "Any", "Cast", "Ceil", "Clip", "Concatenate", "ConvertToTensor", "Cos", "Divide", "Equal", "Erf",
    "Exp", "ExpandDims", "Flip", "Floor", "GetItem", "Greater", "GreaterEqual", "HardSigmoid", "Less", "LessEqual", "Log", "LogSoftmax",
    "LogicalAnd", "LogicalNot", "LogicalOr", "Matmul", "Max", "Maximum", "Mean", "Min", "Minimum", "Multiply", "Negative", "NotEqual",
    "OnesLike", "Power", "Relu", "Relu6", "Reshape", "Round", "Rsqrt", "Selu", "Sigmoid", "Sign", "Silu", "Sin", "Softmax", "Softplus",
    "Softsign", "Sqrt", "Square", "Squeeze", "Stack", "Subtract", "Sum", "Swapaxes", "Tan", "Tanh", "Transpose", "TrueDivide", "Where",
    "Zeros", "ZerosLike",
))  # fmt: skip
"""Operations of Keras 3 on tensors: what functional models call of keras.ops, and what becomes of masks. Some have the name of a layer."""

_RENAMED = {
    "UnifiedLSTM": "LSTM",
    "UnifiedGRU": "GRU",
    "LSTMV2": "LSTM",
    "GRUV2": "GRU",
    f"Addons{_FROM}PeepholeLSTMCell": "PeepholeLSTMCell",
}
"""Classes that previews of TensorFlow 2 or TensorFlow Addons named otherwise; they write the configuration of the class of today.

Sources: tensorflow/python/keras/layers/recurrent.py and recurrent_v2.py (2.0.0-alpha0, 2.0.0); tensorflow_addons 0.23
rnn/peephole_lstm_cell.py.
"""


@dataclass(frozen=True)
class Entry:
    """A layer of a configuration.

    name        the layer's name
    class_name  its class; one that is not built in has its package or module before it, "my>LSTM", and so no plain name ever
    config      its own configuration
    shape       that of the input for which it was built, None where the file does not state it
    nodes       how its model calls it, as the file states it: see rnnconvert.formats.keras.model.calls
    module      where its class is; None where the file does not state it, as HDF5 files do not
    """

    name: str
    class_name: str
    config: Mapping[str, Any]
    shape: Shape | None = None
    nodes: object = None
    module: str | None = None

    @property
    def rank(self) -> int:
        """How many axes its input has, the batch's among them; 0 where the file does not say it."""
        return len(self.shape or ())

    @property
    def is_model(self) -> bool:
        """Whether it is a model that runs its layers as its configuration states it."""
        return self.class_name in MODELS and bool(self.config.get("layers"))

    @property
    def is_operation(self) -> bool:
        """Whether it is an operation on tensors, which may have the name of a layer: x + y in a functional model, and Add()([x, y]).

        Keras 3's HDF5 files state no module: there an operation lacks what every layer states. Earlier files have layers alone.
        """
        if self.module is not None:
            return self.module.startswith("keras.src.ops")
        called = isinstance(self.nodes, list) and bool(self.nodes) and all(isinstance(node, Mapping) for node in self.nodes)
        return self.class_name in OPERATIONS and "trainable" not in self.config and called

    @property
    def built_in(self) -> bool:
        """Whether the class is the framework's own, or one that is known, not one of a user's that may have the same name."""
        return _FROM not in self.class_name or self.class_name == NORMED

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
    module = value.get("module")
    built = built_shape(value.get("build_config"))
    return Entry(str(name), _class_name(value), config, built, value.get("inbound_nodes"), None if module is None else str(module))


def _class_name(value: Mapping[str, Any]) -> str:
    """Return a layer's class; see Entry.

    Keras names what it does not have itself as "package>Class" where it is registered: as the class itself in HDF5, with the class as
    registered_name from Keras 3 on. What nobody registered has its module alone, and in HDF5 a plain name.
    """
    class_name, registered = str(value.get("class_name", "")), str(value.get("registered_name") or "")
    if _FROM in registered and _FROM not in class_name:
        class_name = f"{registered.rpartition(_FROM)[0]}{_FROM}{class_name}"
    if _FROM in class_name:
        return _RENAMED.get(class_name, class_name)
    module = str(value.get("module") or "")
    if module.partition(".")[0] in _PACKAGES or not (module or registered):
        return _RENAMED.get(class_name, class_name)
    return f"{module}{_FROM}{class_name}"


def built_shape(built: object) -> Shape | None:
    """Return the shape of the input that a layer was built for; None if that is not stated."""
    return shape_in(built.get("input_shape")) if isinstance(built, Mapping) else None


def shape_in(value: object) -> Shape | None:
    """Return a list of lengths, None for those that are open, as a shape; None for any other value."""
    plain = isinstance(value, (list, tuple)) and bool(value) and all(size is None or (type(size) is int and size >= 0) for size in value)
    return tuple(value) if plain and isinstance(value, (list, tuple)) else None


def stated_shape(config: Mapping[str, Any]) -> Shape | None:
    """Return the shape of its input, with the batch, that a layer or an InputLayer states for itself."""
    return shape_in(next((config[key] for key in SHAPES[:2] if config.get(key) is not None), None))


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


def innermost(layer: Entry, wrappers: Sequence[str] = WRAPPERS) -> Entry:
    """Return the layer that wrappers of some classes are around, one in the other; any other layer itself."""
    while layer.class_name in wrappers and (inner := layer.inner("layer")) is not None:
        layer = inner
    return layer


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


def era_shown(model: Entry) -> int:
    """Return the Keras that a configuration itself shows, 2 for any before 3; 0 where it shows none.

    Keras 3 alone states an input's batch_shape, which Keras 2 calls batch_input_shape, and calls by their arguments.
    """
    for layer in every(model):
        nodes = layer.nodes if isinstance(layer.nodes, list) else []
        if "batch_shape" in layer.config or any(isinstance(node, Mapping) and "args" in node for node in nodes):
            return 3
        if "batch_input_shape" in layer.config or any(isinstance(node, list) for node in nodes):
            return 2
    return 0
