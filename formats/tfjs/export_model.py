"""A described model as a layers model of TensorFlow.js: its layers, their calls, and the masks that it hands on.

The layers are those that Keras code has (formats/keras/scaffold), which hands them over as data; what stands there as an operation between
layers is refused, since TensorFlow.js loads layers alone. It takes a mask from the layer that makes it to the layer that reads it; the
description states which mask each layer reads, and what TensorFlow.js would hand to it is followed here and compared with that.

Source: tfjs-layers 4.22 src/engine/container.ts, executor.ts and topology.ts.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn, cast

from rnnconvert.core.arrays import Array, PiecewiseArray
from rnnconvert.core.errors import RefusedError
from rnnconvert.formats.keras.scaffold.configured import KerasLayer
from rnnconvert.formats.tfjs.export_config import arrays, configured, lifted
from rnnconvert.formats.tfjs.export_tables import FUNCTIONS, PASSING
from rnnconvert.scaffolding import kinds
from rnnconvert.scaffolding.description import DescribedModel, Node, Rules, Value
from rnnconvert.scaffolding.walk import LayerWalk
from rnnconvert.scaffolding.weights import LayerWeights

_OTHER_LETTERS = re.compile(r"[^-A-Za-z0-9._]")

_NO_LAYER = "it has no layer that computes this, and its models are layers alone"
_REASONS: Mapping[type[kinds.Kind], str] = {kinds.Transpose: "its layers leave the batch in front"}
"""Why TensorFlow.js has no layer of a kind, where there is more to say."""


@dataclass
class TfjsLayer:
    """A layer of the model that is written.

    name        its name
    class_name  its class
    config      its configuration
    calls       what it is called on, call by call
    weights     its arrays by their names in it
    """

    name: str
    class_name: str
    config: dict[str, Any]
    calls: list[list[TensorPlace]] = field(default_factory=list)
    weights: dict[str, Array | PiecewiseArray] = field(default_factory=dict)

    def document(self) -> dict[str, Any]:
        """Return it as the file states it."""
        nodes = [[[place.layer, place.call, place.output, {}] for place in call] for call in self.calls]
        return {"class_name": self.class_name, "name": self.name, "config": self.config, "inbound_nodes": [node for node in nodes if node]}


@dataclass(frozen=True)
class TensorPlace:
    """Where a tensor comes from: a layer, which of its calls, and which of its outputs.

    mask  the mask of the description that TensorFlow.js hands on with it
    """

    layer: str
    call: int = 0
    output: int = 0
    mask: Value | None = None

    @property
    def listed(self) -> list[Any]:
        """It as the model lists its inputs and outputs."""
        return [self.layer, self.call, self.output]


class LayersWriter(LayerWalk[Any]):
    """A model being written. It stands where the rules of Keras code have the module that they write.

    layers  by their names, in the order of running
    masked  whether TensorFlow.js hands any mask on
    ran     the models in the model that were written
    """

    def __init__(self, top: DescribedModel, rules: Rules, weights: LayerWeights, title: str) -> None:
        super().__init__(top, rules, weights)
        self.title = title
        self.layers: dict[str, TfjsLayer] = {}
        self._numbers: dict[str, int] = {}
        self.masked = False
        self.ran: set[int] = set()
        self.checks: list[tuple[Node[kinds.Kind], str]] = []
        self._by_path: dict[str, str] = {}
        self._same: dict[int, Value] = {}
        self._joined: set[int] = set()
        self._end: Value | None = None
        self.calls: dict[str, list[tuple[DescribedModel, Node[kinds.Kind]]]] = {}
        self._count(top)

    def _count(self, scope: DescribedModel) -> None:
        """Note the calls of each layer, in a model and, for each of their calls, in the models in it."""
        for node in scope.nodes:
            if isinstance(node.kind, kinds.Model):
                self._count(node.kind.scope)
            elif node.layer:
                self.calls.setdefault(scope.inside(node.layer), []).append((scope, node))

    # What the rules of Keras code use

    def __call__(self, value: Value) -> str:
        """Return a tensor's name, for an expression that is not written."""
        return value.name

    def called(self, keras_layer: KerasLayer | str, x: Value, *arguments: str, layer: str = "") -> None:
        """Add the call of a layer on a tensor; `arguments` are further arguments of the call, which TensorFlow.js has no place for."""
        if isinstance(keras_layer, str):
            return
        node = self.visited
        if any(arguments):
            raise self.refused(node, f"{keras_layer.class_name} with a mask", "the layer of TensorFlow.js takes no notice of one")
        over_a_line = lifted(keras_layer)
        if over_a_line is not None:
            self._over_a_line(node, over_a_line, x, layer)
        elif keras_layer.settings.get("keepdims"):
            plain = {key: value for key, value in keras_layer.settings.items() if key != "keepdims"}
            self._between(node, KerasLayer(keras_layer.class_name, plain), x)
        else:
            self._call(node, keras_layer, [x], layer)

    def _over_a_line(self, node: Node[kinds.Kind], keras_layer: KerasLayer, x: Value, layer: str) -> None:
        """Add a layer over images that computes what one over lines does: it reads lines as images of a width of 1."""
        x = self.reshaped(x, (x.shape[1], 1, x.shape[2]))
        if isinstance(node.kind, kinds.Conv) and keras_layer.settings.get("padding") == "causal":
            before = (node.kind.kernel[0] - 1) * node.kind.dilation[0]
            written, call = self.add("padded", "ZeroPadding2D", {"padding": [[before, 0], [0, 0]]}, [self.place(x)])
            x = Value(x.name, x.shape)
            self.put(x, TensorPlace(written.name, call))
            keras_layer = KerasLayer(keras_layer.class_name, {**keras_layer.settings, "padding": "valid"})
        self._between(node, keras_layer, x, layer)

    def _between(self, node: Node[kinds.Kind], keras_layer: KerasLayer, x: Value, layer: str = "") -> None:
        """Add a layer whose output has the axes of a node's only after a new shape."""
        end = self._end
        inside = Value("inside", ())
        self._end = inside
        self._call(node, keras_layer, [x], layer)
        self._end = end if self._end is inside else self._end
        assert self._end is not None
        self.put(self._end, self.place(self.reshaped(inside, self._end.shape[1:])))

    def reshaped(self, x: Value, shape: Sequence[int | None]) -> Value:
        """Return a tensor with other axes behind the batch, of which one may be open."""
        sizes = [-1 if size is None else size for size in shape]
        written, call = self.add("reshape", "Reshape", {"target_shape": sizes}, [self.place(x)])
        other = Value(x.name, (None, *shape))
        self.put(other, TensorPlace(written.name, call))
        return other

    def merged(self, keras_layer: KerasLayer, values: Sequence[Value]) -> None:
        """Add the call of a layer on several tensors, whose masks are dropped but where all are one."""
        node = self.visited
        masks = {id(self.place(value).mask) for value in values}
        if keras_layer.class_name == "Concatenate" and len(masks) == 1:
            self._call(node, keras_layer, values)
            return
        self._call(node, keras_layer, [self.unmasked(value) for value in values])

    def joins(self, node: Node[kinds.Kind]) -> Node[kinds.Activation] | None:
        """Return the next node, where it alone reads this one, and is a function that layers take by name."""
        nodes = self.scope.nodes
        following = nodes[self.position + 1] if self.position + 1 < len(nodes) else None
        if following is None or following.inputs != (node.y,) or self.scope.only_reader(node.y) is not following:
            return None
        by_name = isinstance(following.kind, kinds.Activation) and following.kind.name in FUNCTIONS
        return cast("Node[kinds.Activation]", following) if by_name else None

    def join(self, node: Node[kinds.Kind], following: Node[kinds.Kind]) -> None:
        """Let the layers of a node do the work of the one behind it."""
        self._joined.add(id(following))
        self._end = following.y

    def shared(self, layer: str) -> bool:
        """Return whether a layer is called several times."""
        return len(self.calls.get(self.scope.inside(layer), ())) > 1

    def model(self, node: Node[kinds.Kind]) -> str:
        """Refuse a model for each step."""
        raise self.refused(self.visited, "a model for each step", "TensorFlow.js's TimeDistributed does not name the weights of one")

    def helper(self, name: str) -> str:
        """Return a name: what is written with it is refused."""
        return name

    def release(self, node: Node[kinds.Kind]) -> NoReturn:
        """Refuse a node that is written as a line of code."""
        raise self.refused(node, _title(node), _REASONS.get(type(node.kind), _NO_LAYER))

    @property
    def within(self) -> dict[str, str]:
        """Where code notes the places of weights."""
        return {}

    # Nodes

    def visit(self, node: Node[kinds.Kind]) -> None:
        if id(node) in self._joined:
            self._joined.discard(id(node))
            return
        self._end = node.y
        if isinstance(node.kind, kinds.LeftOut) or type(node.kind) in self.rules:
            self.rule(node)(self, node)
        if id(self._end) not in self._held and node.y.dtype != "bool":
            self.release(node)

    def same(self, inside: Value, outside: Value) -> None:
        """Let a value be another one: what a model in the model reads and gives."""
        self._same[id(inside)] = outside

    def resolved(self, value: Value) -> Value:
        """Return the value that another one is."""
        while id(value) in self._same:
            value = self._same[id(value)]
        return value

    def place(self, value: Value) -> TensorPlace:
        """Return where a tensor comes from."""
        place: TensorPlace = self._held[id(self.resolved(value))]
        return place

    def put(self, value: Value, place: TensorPlace) -> None:
        """Note where a tensor comes from."""
        self._same.pop(id(value), None)
        self._held[id(value)] = place

    def new_name(self, wanted: str) -> str:
        """Return a name for a layer: the end of a path in the letters that names of tensors may have, with a number if that is taken."""
        stem = _OTHER_LETTERS.sub("_", wanted.rpartition("/")[2].partition(":")[0]).strip("-._") or "layer"
        name, number = stem, self._numbers.get(stem, 1)
        while name in self.layers:
            name, number = f"{stem}_{number}", number + 1
        self._numbers[stem] = max(1, number - 1)  # it may yet be free: what it is for is not made here
        return name

    def add(self, name: str, class_name: str, config: dict[str, Any], read: Sequence[TensorPlace], path: str = "") -> tuple[TfjsLayer, int]:
        """Add a call of a layer; return the layer, and which of its calls it is. Raises KeyError for one layer called in two ways."""
        if any(isinstance(value, float) and not math.isfinite(value) for value in config.values()):
            raise self.refused(self.visited, f"{class_name} with a number that is not finite", "JSON has none")
        present = self._by_path.get(path) if path else None
        if present is None:
            name = self.new_name(name)
            layer = self.layers[name] = TfjsLayer(name, class_name, {"name": name, "trainable": True, **config})
            if path:
                self._by_path[path] = name
        else:
            layer = self.layers[present]
            if (layer.class_name, layer.config) != (class_name, {"name": present, "trainable": True, **config}):
                raise KeyError(path)
        layer.calls.append(self._distinct(read))
        self.masked = self.masked or any(place.mask is not None for place in read)
        return layer, len(layer.calls) - 1

    def _distinct(self, read: Sequence[TensorPlace]) -> list[TensorPlace]:
        """Return the tensors that a layer reads, none twice: the executor takes one for two layers that read it, and frees it early."""
        distinct: list[TensorPlace] = []
        for place in read:
            if any(place.listed == other.listed for other in distinct):
                copy, call = self.add("again", "Activation", {"activation": "linear"}, [place])
                place = TensorPlace(copy.name, call, 0, place.mask)
            distinct.append(place)
        return distinct

    def called_twice(self, node: Node[kinds.Kind]) -> RefusedError:
        """Return the refusal of a layer that is called in two ways."""
        return self.refused(node, "one layer called in two ways", "it is one layer in the file, with one configuration")

    def unmasked(self, value: Value) -> Value:
        """Return a tensor without the mask that would be handed on with it: a Permute that moves nothing drops it."""
        place = self.place(value)
        if place.mask is None:
            return value
        order = list(range(1, len(value.shape)))
        layer, call = self.add("unmasked", "Permute", {"dims": order}, [place])
        plain = Value(value.name, value.shape, value.dtype)
        self.put(plain, TensorPlace(layer.name, call))
        return plain

    def _call(self, node: Node[kinds.Kind], keras_layer: KerasLayer, values: Sequence[Value], layer: str = "") -> None:
        """Add the call of a layer of Keras, and let it give what its node gives, or the last one that it does the work of."""
        read = [self.place(value) for value in values]
        inside = keras_layer.settings.get("layer")
        weighted = self.scope.nodes[self.position + 1] if inside is not None else node
        path = self.scope.inside(layer) if layer else ""
        mask = read[0].mask if keras_layer.class_name in (*PASSING, "Concatenate") else None
        config = configured(self, weighted, keras_layer)
        if keras_layer.class_name == "Embedding":
            mask = self._mask_of(node.x)
            config |= {} if mask is None else {"mask_zero": True}
        try:
            written, call = self.add(layer or keras_layer.class_name.lower(), keras_layer.class_name, config, read, path)
        except KeyError:
            raise self.called_twice(node) from None
        if layer and not written.weights:
            written.weights |= arrays(self, weighted, (inside or keras_layer).class_name)
        assert self._end is not None
        self.put(self._end, TensorPlace(written.name, call, 0, mask))

    def _mask_of(self, tokens: Value) -> Value | None:
        """Return the mask that is where whole numbers are not 0, where a layer reads it."""
        for node in self.scope.nodes:
            if isinstance(node.kind, kinds.Mask) and node.kind.operation == "not_equal" and node.kind.value == 0 and node.x is tokens:
                return self.resolved(node.y)
        return None


def _title(node: Node[kinds.Kind]) -> str:
    """Return the computation of a node, in words."""
    if isinstance(node.kind, kinds.Activation | kinds.NamedOperation | kinds.Pool):
        return f"{node.kind.word} {node.kind.title!r}"
    return f"a layer of kind {node.kind.word!r}"
