"""Each kind of a description as layers of TensorFlow.js: the layers of Keras code, and operations in code that are layers in files.

Source: tfjs-layers 4.22 src/layers/{recurrent,wrappers,merge,core}.ts and src/engine/executor.ts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rnnconvert.core.errors import RefusedError
from rnnconvert.core.weights import Layer, Recurrent
from rnnconvert.formats.keras.scaffold.configured import KerasLayer, layer
from rnnconvert.formats.keras.scaffold.layers import RULES as KERAS
from rnnconvert.formats.tfjs.config import described
from rnnconvert.formats.tfjs.export_config import configured
from rnnconvert.formats.tfjs.export_model import LayersWriter, TensorPlace
from rnnconvert.language.packing import pack
from rnnconvert.scaffolding import kinds
from rnnconvert.scaffolding.description import Node, Rules, Value, on
from rnnconvert.scaffolding.directions import WAYS
from rnnconvert.scaffolding.stream import FLOAT32, fitted

_MERGES = {"add": "Add", "multiply": "Multiply", "average": "Average", "maximum": "Maximum", "minimum": "Minimum"}
_STEP_BY_STEP = (kinds.Activation, kinds.Dense, kinds.Dropout, kinds.Rescale)
"""The kinds that compute each step from that step alone."""
_ZEROS = "TensorFlow.js repeats the last output there"


def _merge(m: LayersWriter, node: Node[kinds.Kind], operation: str, values: tuple[Value, ...]) -> None:
    """Add a merge of tensors of as many axes."""
    if any(value.dtype != "float32" for value in values):
        return
    if len({len(value.shape) for value in values}) > 1:
        raise m.refused(node, f"{operation} of tensors of different numbers of axes", "its merging layers take those of as many")
    if operation == "subtract" and len(values) == 2:
        values, operation = (values[0], _rescaled(m, values[1], -1.0, 0.0)), "add"
    if operation in _MERGES:
        m.merged(layer(_MERGES[operation]), values)


def _rescaled(m: LayersWriter, value: Value, scale: float, shift: float) -> Value:
    """Return a tensor times a number, and a number added."""
    return _put(m, layer("Rescaling", scale=scale, offset=shift), value)


def _arithmetic(m: LayersWriter, node: Node[kinds.Arithmetic]) -> None:
    _merge(m, node, node.kind.operation, node.inputs)


def _elementwise(m: LayersWriter, node: Node[kinds.Elementwise]) -> None:
    """Write an operation on two tensors, or on a tensor and a number; TensorFlow.js has a layer for no other."""
    operation, operands = node.kind.operation, node.kind.operands
    numbers = [value for kind, value in operands if kind == "number"]
    tensors = tuple(node.inputs[value] for kind, value in operands if kind == "input")
    if node.x.dtype != "float32":
        return
    if len(operands) == len(tensors) == 2:
        _merge(m, node, operation, tensors)
        return
    x, number = node.x, float(numbers[0]) if len(numbers) == 1 and len(tensors) == 1 else 0.0
    first = bool(operands) and operands[0][0] == "number"
    scales: Mapping[str, tuple[float, float]] = {
        "add": (1.0, number), "multiply": (number, 0.0), "subtract": (-1.0, number) if first else (1.0, -number),
    }  # fmt: skip
    if operation == "neg":
        m.put(node.y, m.place(_rescaled(m, x, -1.0, 0.0)))
    elif len(numbers) == 1 and operation in scales:
        m.put(node.y, m.place(_rescaled(m, x, *scales[operation])))


def _mask(m: LayersWriter, node: Node[kinds.Kind]) -> None:
    """Do nothing: TensorFlow.js makes masks beside a tensor, and a layer that reads one asks where it comes from."""


def _masking(m: LayersWriter, node: Node[kinds.Kind]) -> None:
    """Add a Masking, if that is how steps become zero."""
    mask = node.named["mask"][0]
    if not _makes(m, mask, node.x):
        raise m.refused(node, "steps that a mask of another tensor sets to zero", "its Masking takes that of what it reads")
    m.put(node.y, m.place(_masked(m, mask, node.x)))


def _makes(m: LayersWriter, mask: Value, x: Value) -> bool:
    """Return whether a mask is where any value of a tensor's steps differs from a number."""
    source = next((node for node in m.scope.nodes if node.y is mask), None)
    return source is not None and isinstance(source.kind, kinds.Mask) and source.kind.operation == "any differs" and source.x is x


def _masked(m: LayersWriter, mask: Value, x: Value) -> Value:
    """Return a tensor behind the Masking that makes a mask of it."""
    number = next(node.kind.value or 0 for node in m.scope.nodes if node.y is mask and isinstance(node.kind, kinds.Mask))
    written, call = m.add("masking", "Masking", {"mask_value": float(number)}, [m.place(x)])
    masked = Value(x.name, x.shape)
    m.put(masked, TensorPlace(written.name, call, 0, m.resolved(mask)))
    return masked


def _dropout(m: LayersWriter, node: Node[kinds.Dropout]) -> None:
    """Add a dropout that TensorFlow.js has; nothing is left of others when a model runs."""
    if node.kind.name in ("Dropout", "SpatialDropout1D"):
        KERAS[kinds.Dropout](m, node)
    else:
        m.put(node.y, m.place(node.x))


def _activation(m: LayersWriter, node: Node[kinds.Activation]) -> None:
    """Add a function; Keras 3's hard_sigmoid is relu6(x + 3) / 6, and TensorFlow.js's own of that name is another."""
    if node.kind.name == "mish":  # which Keras code has as operations
        m.put(node.y, m.place(_put(m, layer("Activation", activation="mish"), node.x)))
        return
    if node.kind.name != "hard_sigmoid":
        KERAS[kinds.Activation](m, node)
        return
    bounded = _put(m, layer("ReLU", max_value=6.0), _rescaled(m, node.x, 1.0, 3.0))
    m.put(node.y, m.place(_rescaled(m, bounded, 1 / 6, 0.0)))


def _attention(m: LayersWriter, node: Node[kinds.Attention]) -> None:
    """Add the attention of products alone: two Dot layers, with a softmax between them."""
    if node.kind.mode != "dot" or node.layer or node.kind.scale or node.kind.causal or node.named:
        reason = "it has no layer for it; one of products alone is written as Dot layers"
        raise m.refused(node, "an attention with a scale, a mask or sums", reason)
    query, value, key = node.inputs
    scores = _put(m, layer("Dot", axes=(2, 2)), query, key)
    shares = _put(m, layer("Activation", activation="softmax"), scores)
    m.put(node.y, m.place(_put(m, layer("Dot", axes=(2, 1)), shares, value)))
    if len(node.outputs) > 1:
        m.put(node.outputs[1], m.place(shares))


def _put(m: LayersWriter, keras_layer: KerasLayer, *values: Value) -> Value:
    """Return the output of a layer without a name for tensors, without their masks."""
    read = [m.place(m.unmasked(value)) for value in values]
    written, call = m.add(keras_layer.class_name.lower(), keras_layer.class_name, configured(m, m.visited, keras_layer), read)
    value = Value(values[0].name, values[0].shape)
    m.put(value, TensorPlace(written.name, call))
    return value


def _model(m: LayersWriter, node: Node[kinds.Model]) -> None:
    """Add the layers of a model in the model: they stand among the layers of the model around it."""
    scope = node.kind.scope
    if id(scope) in m.ran and any(value.dtype == "bool" for value in scope.outputs):
        raise m.refused(node, "a model that gives masks, called twice", "its masks would be taken for one")
    m.ran.add(id(scope))
    for inside, outside in zip(scope.inputs, node.inputs, strict=True):
        m.same(inside, outside)
    m.run(scope)
    for inside, outside in zip(scope.outputs, node.outputs, strict=True):
        if inside.dtype == "bool":
            m.same(outside, inside)
        else:
            m.put(outside, m.place(inside))


# Recurrent layers


def _stack(m: LayersWriter, node: Node[kinds.Recurrent]) -> Recurrent:
    """Return a recurrent layer with the way that its directions read, without initial states, which are tensors of the description."""
    directions = m.weights.directions(m.path(node))
    if node.of:
        directions = (directions[WAYS.index(node.layer.rpartition("/")[2])],)
    both = len(directions) == 2
    turned = tuple(direction.replace(reverse=bool(way) if both else node.kind.backwards) for way, direction in enumerate(directions))
    order: Any = "processing" if node.kind.backwards and not both else "time"
    return Recurrent(node.layer, (Layer(turned, "concat"),), output_order=order)


def _recurrent(m: LayersWriter, node: Node[kinds.Recurrent]) -> None:
    path = m.scope.inside(node.layer)
    try:
        layout, stack = fitted(_stack(m, node), "tfjs")
    except RefusedError as error:
        raise m.refused(node, error.feature, error.reason, error.remedy) from None
    calls = m.calls[path]
    count = 2 if len(node.kind.cells) > 1 and node.kind.merge is None else 1
    wants = any(_reads(scope, value) for scope, call in calls for value in call.outputs[count:])
    last = _last(m, node) if len(calls) == 1 and not wants else None
    sequences = node.kind.sequences and last is None
    if node.kind.stateful and not isinstance(node.x.shape[0], int):
        raise m.refused(node, "stateful = True for any batch", "its stateful layers have a batch of a certain size")
    read, mask = _read(m, node)
    settings = {"return_sequences": sequences, "return_state": wants, "stateful": bool(node.kind.stateful)}
    written = described(stack, node.layer, settings, node.kind.merge)
    try:
        added, call = m.add(node.layer, written["class_name"], {k: v for k, v in written["config"].items() if k != "name"}, read, path)
    except KeyError:
        raise m.called_twice(node) from None
    if "layer" in added.config:
        added.config["layer"]["config"]["name"] = added.name
    if not added.weights:
        for local, array in pack(layout, stack, FLOAT32).items():
            way, _, end = local.rpartition("/")
            added.weights[f"{way}_{added.name}/{end}" if way else end] = array
    handed = mask if sequences else None
    for number, value in enumerate(node.outputs if wants else node.outputs[:count]):
        m.put(value, TensorPlace(added.name, call, number, handed))  # of several outputs each has the mask of the first
    if wants and not sequences and (count == 2 or len(node.kind.cells) == 1):  # one tensor: disposed of as an output, it is gone as a state
        for place in range(count):
            m.put(node.outputs[count + place * _states(node)], m.place(node.outputs[place]))
    if last is not None:
        m.join(node, last)
        m.put(last.y, m.place(node.y))


def _states(node: Node[kinds.Recurrent]) -> int:
    """Return how many states a direction of a layer has."""
    return 2 if node.kind.cells[0].kind == "lstm" else 1


def _reads(scope: Any, value: Value) -> bool:
    return any(value in node.reads() for node in scope.nodes) or value in scope.outputs


def _last(m: LayersWriter, node: Node[kinds.Recurrent]) -> Node[kinds.Kind] | None:
    """Return the node that takes the last step of what a layer gives, where nothing else of it is read."""
    reader = m.scope.only_reader(node.y)
    plain = len(node.kind.cells) == 1 and node.kind.sequences and not node.kind.backwards and not node.named.get("mask")
    if plain and reader is not None and isinstance(reader.kind, kinds.Select) and (reader.kind.axis, reader.kind.index) == (1, -1):
        return reader
    return None


def _read(m: LayersWriter, node: Node[kinds.Recurrent]) -> tuple[list[TensorPlace], Value | None]:
    """Return the tensors that a layer reads, and the mask that it takes. Raises RefusedError if it would take another one."""
    x, states = node.x, node.named.get("states", ())
    masks = node.named.get("mask", ())
    mask = m.resolved(masks[0]) if masks else None
    if mask is None:
        x = m.unmasked(x)
        m.checks.append((node, "a recurrent layer without a mask"))
    elif m.place(x).mask is not mask:
        if not _makes(m, masks[0], x):
            raise m.refused(
                node, "a mask of another tensor", "it hands the mask of a Masking or an Embedding from layer to layer, and not here"
            )
        x = _masked(m, masks[0], x)
    if states:
        m.checks.append((node, "initial states"))
    if mask is not None and node.kind.sequences and node.kind.zero and not _unseen(m, node.y, masks[0]):
        raise m.refused(node, "zeros at the steps that a mask leaves out", _ZEROS)
    return [m.place(value) for value in (x, *(m.unmasked(state) for state in states))], mask


def _unseen(m: LayersWriter, value: Value, mask: Value) -> bool:
    """Return whether nothing reads the steps of a tensor that a mask leaves out."""
    if value in m.scope.outputs:
        return False
    return all(
        (isinstance(node.kind, kinds.Recurrent) and node.inputs == (value,) and node.named.get("mask", ()) == (mask,))
        or (isinstance(node.kind, _STEP_BY_STEP) and len(value.shape) == 3 and _by_step(node) and _unseen(m, node.y, mask))
        for node in m.scope.nodes
        if value in node.reads()
    )


def _by_step(node: Node[kinds.Kind]) -> bool:
    return not isinstance(node.kind, kinds.Activation) or "softmax" not in node.kind.name or node.kind.axis in (-1, len(node.x.shape) - 1)


def refusals(m: LayersWriter) -> Iterator[RefusedError]:
    """Yield refusals of features that a model with masks may not have: TensorFlow.js hands a layer's mask to every later layer.

    Its executor keeps the mask and the initial states of one call for those that follow, unless these have a mask of their own.
    """
    for node, feature in m.checks if m.masked else ():
        reason = "TensorFlow.js hands the mask or the states of the layer that ran before on to it"
        yield m.refused(node, f"{feature} in a model with masks", reason)


_LACKING = (kinds.MultiHead, kinds.ConvLSTM, kinds.Parameter, kinds.LayerWeight, kinds.Where)
"""Kinds that are known in Keras alone."""
RULES: Rules = {
    **{kind: rule for kind, rule in KERAS.items() if kind not in _LACKING},
    **on(kinds.Activation, _activation),
    **on(kinds.Attention, _attention),
    **on(kinds.Arithmetic, _arithmetic),
    **on(kinds.Dropout, _dropout),
    **on(kinds.Elementwise, _elementwise),
    **on(kinds.Mask, _mask),
    **on(kinds.Model, _model),
    **on(kinds.Recurrent, _recurrent),
    **on(kinds.ZeroMasked, _masking),
}
"""The kinds that are known."""
