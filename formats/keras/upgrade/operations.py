"""Operations of TensorFlow in a graph of tf_keras, as operations of Keras 3.

Sources: tf_keras/src/layers/core/tf_op_layer.py, TFOpLambda and SlicingOpLambda, which drop masks; keras/src/ops/{numpy,nn,math}.py (3.15).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rnnconvert.formats.keras.model.calls import KerasCall, LayerOutput, refs, slice_of
from rnnconvert.formats.keras.model.tree import SourceLayer
from rnnconvert.formats.keras.upgrade.notes import refuse

OPERATIONS = ("TFOpLambda", "SlicingOpLambda")
"""The classes of layers that are such an operation."""


@dataclass(frozen=True)
class TensorFunction:
    """A function of TensorFlow as an operation of Keras 3.

    name      of its class
    settings  of its configuration, each "key", or "key:argument" where TensorFlow calls the argument otherwise
    operand   the argument that is a tensor or a number like the first one; "" for none
    listed    whether it reads a list of tensors
    module    of its class
    """

    name: str
    settings: str = ""
    operand: str = ""
    listed: bool = False
    module: str = "numpy"

    def keys(self) -> dict[str, str]:
        """Return the settings with the arguments that state them."""
        return {key: argument or key for key, _, argument in (word.partition(":") for word in self.settings.split())}


_INDEX = TensorFunction("GetItem", operand="slice_spec")
_OF_TWO = ("Add", "Subtract", "Multiply", "Divide", "Maximum", "Minimum")
FUNCTIONS: Mapping[str, TensorFunction] = {
    **{f"math.{name.lower()}": TensorFunction(name, operand="y") for name in _OF_TWO},
    **{f"math.{name.lower()}": TensorFunction(name) for name in ("Abs", "Exp", "Log", "Negative", "Sqrt", "Square", "Tanh", "Sin", "Cos")},
    **{f"math.reduce_{name.lower()}": TensorFunction(name, "axis keepdims") for name in ("Mean", "Sum", "Max", "Min")},
    **{f"nn.{name.lower()}": TensorFunction(name, module="nn") for name in ("Relu", "Relu6", "Selu", "Silu")},
    **{f"math.{name.lower()}": TensorFunction(name, module="nn") for name in ("Sigmoid", "Softplus")},
    **{f"nn.{name}": TensorFunction(name.capitalize(), module="nn") for name in ("softsign", "softplus")},
    **dict.fromkeys(("squeeze", "compat.v1.squeeze"), TensorFunction("Squeeze", "axis")),
    **dict.fromkeys(("transpose", "compat.v1.transpose"), TensorFunction("Transpose", "axes:perm")),
    "math.rsqrt": TensorFunction("Rsqrt", module="math"),
    "math.pow": TensorFunction("Power", operand="y"),
    "math.truediv": TensorFunction("TrueDivide", operand="y"),
    "__operators__.add": TensorFunction("Add", operand="y"),
    "__operators__.getitem": _INDEX,
    "linalg.matmul": TensorFunction("Matmul", operand="b"),
    "nn.softmax": TensorFunction("Softmax", "axis", module="nn"),
    "concat": TensorFunction("Concatenate", "axis", listed=True),
    "stack": TensorFunction("Stack", "axis", listed=True),
    "expand_dims": TensorFunction("ExpandDims", "axis"),
    "reshape": TensorFunction("Reshape", "newshape:shape"),
    "reverse": TensorFunction("Flip", "axis"),
    "clip_by_value": TensorFunction("Clip", "x_min:clip_value_min x_max:clip_value_max"),
}
"""The functions that are known, by the names that tf_keras writes; each computes the same in both."""


@dataclass(frozen=True)
class OutsideOperation:
    """A step of a graph outside its layers: an operation on tensors.

    places  its arguments: outputs of layers, numbers, lists of these
    """

    name: str
    class_name: str
    places: tuple[Any, ...]
    config: Mapping[str, Any]
    module: str = "numpy"

    @property
    def call(self) -> KerasCall:
        """Its only call."""
        return KerasCall(tuple(refs(self.places)), {}, self.places)

    def serialised(self, places: Sequence[Any], dtype: str) -> dict[str, Any]:
        """Return it as a configuration holds it, called with arguments in the places of its own."""
        names = {"class_name": self.class_name, "registered_name": self.class_name, "name": self.name}
        document = {"module": f"keras.src.ops.{self.module}", **names, "config": {"name": self.name, **self.config}}
        return {**document, "inbound_nodes": [{"args": _stated(places, dtype), "kwargs": {}}]}


def referred(ref: LayerOutput, dtype: str) -> dict[str, Any]:
    """Return an output as a call refers to it; Keras replaces it by the tensor itself, whose shape it knows."""
    config = {"shape": [], "dtype": dtype, "keras_history": ref.listed()}
    return {"class_name": "__keras_tensor__", "config": config}


def _stated(value: Any, dtype: str) -> Any:
    """Return an argument as a configuration holds it."""
    if isinstance(value, LayerOutput):
        return referred(value, dtype)
    if isinstance(value, slice):
        return {"class_name": "__slice__", "config": {"start": value.start, "stop": value.stop, "step": value.step}}
    return [_stated(inside, dtype) for inside in value] if isinstance(value, (list, tuple)) else value


def operation(layer: SourceLayer, call: KerasCall, name: str) -> OutsideOperation:
    """Return a call of a layer that is an operation of TensorFlow.

    name  of the operation

    Raises RefusedError for a function that is not known, and for arguments that are.
    """
    stated = layer.config.get("function")
    function = FUNCTIONS.get(stated) if isinstance(stated, str) else None
    if function is None:
        raise refuse(
            layer.name,
            f"TensorFlow's function {stated!r}",
            "it is not one of those whose meaning in Keras 3 is known",
            "Replace it by built-in layers in the old model, or convert the recurrent layers alone: rnnconvert convert.",
        )
    first = call.places[0] if call.places else None
    places: list[Any] = [first]
    if function.listed:
        places = [[first] if isinstance(first, LayerOutput) else first]
    named = dict(call.named)
    if function is _INDEX:
        places.append(_index(named.pop("slice_spec", None)))
    elif function.operand:
        places.append(named.pop(function.operand, None))
    config = {key: _single(key, named.pop(argument)) for key, argument in function.keys().items() if argument in named}
    left = {key: value for key, value in named.items() if key != "name" and value not in (None, False)}
    settings = all(isinstance(value, int | float) or _integers(value) for value in config.values())
    if left or not settings or not all(_is_argument(place, function) for place in places) or not any(refs(places)):
        what = ", ".join(f"{key} = {str(value)[:60]}" for key, value in {**config, **left}.items()) or str(places)[:60]
        raise refuse(layer.name, f"TensorFlow's function {stated!r} with {what}", "only tensors, numbers and settings by numbers are known")
    return OutsideOperation(name, function.name, tuple(places), config, function.module)


def _is_argument(value: Any, function: TensorFunction) -> bool:
    if isinstance(value, list):
        return function is _INDEX or (function.listed and all(isinstance(inside, LayerOutput) for inside in value))
    return isinstance(value, LayerOutput) or (type(value) in (int, float) and not function.listed)


def _single(key: str, value: Any) -> Any:
    """Return a setting, an axis alone as a number."""
    return value[0] if key == "axis" and isinstance(value, list) and len(value) == 1 else value


def _integers(value: Any) -> bool:
    return isinstance(value, list) and all(type(inside) is int for inside in value)


def _index(spec: Any) -> list[int | slice] | None:
    """Return an index of numbers and slices; None for another."""
    places: list[int | slice] = []
    for entry in spec if isinstance(spec, list) else [None]:
        place = entry if type(entry) is int else slice_of(entry)
        if place is None:
            return None
        places.append(place)
    return places
