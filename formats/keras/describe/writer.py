"""A Keras model on its way into a description: its walk, its calls, its models in models."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from rnnconvert.core.errors import RefusedError
from rnnconvert.formats.keras.describe.layer_facts import LayerFacts, one_input, refuse
from rnnconvert.formats.keras.describe.masks import hand_on, masks_on
from rnnconvert.formats.keras.model.calls import ALL_OUTPUTS, KerasCall, LayerOutput, flat
from rnnconvert.formats.keras.model.entries import Shape, shape_in, stated_shape
from rnnconvert.formats.keras.model.layered import run_order
from rnnconvert.formats.keras.model.settings import policy_of
from rnnconvert.formats.keras.model.tree import SourceLayer
from rnnconvert.scaffolding import kinds
from rnnconvert.scaffolding.description import DescribedModel, Value
from rnnconvert.scaffolding.names import Names

Describe = Callable[["Writer", LayerFacts, Sequence[Value]], list[Value]]
"""Describes a layer: adds its nodes, and returns its outputs."""


# A whole Keras 3 model from its inputs to its outputs, call by call: the order in which Keras runs it.

Readers = Callable[[], list[tuple[int, SourceLayer | None]]]
"""Returns what reads a call: the number of its output, and the layer; None for the model's outputs."""


class Walk(ABC):
    """A walk through a model with a value for every tensor."""

    @abstractmethod
    def start(self, old: SourceLayer) -> Value:
        """Return the value of an input of the outermost model."""

    @abstractmethod
    def layer(self, facts: LayerFacts, values: Sequence[Value], readers: Readers) -> list[Value]:
        """Return the outputs of a layer, a model or an operation."""

    def model(self, old: SourceLayer, inputs: Sequence[Value] | None) -> list[Value]:
        """Return the outputs of a model for some inputs; None for the outermost, whose inputs `start` makes.

        Raises RefusedError for a model without inputs, UnreadableError for a damaged configuration.
        """
        if any(isinstance(old.config.get(key), Mapping) for key in ("input_layers", "output_layers")):
            raise refuse(old.name, "inputs or outputs by name", "only lists of them are known here")
        inside = {id(layer.entry): layer for layer in old.inside}
        plan = run_order(old.entry, "the configuration", [layer.entry for layer in old.inside])
        layers = {name: inside.get(id(entry)) or SourceLayer(entry) for name, entry in plan.layers.items()}
        if inputs is None and old.kind == "Sequential" and all(stated_shape(layers[start.layer].config) is None for start in plan.starts):
            raise refuse(old.name, "a Sequential model without the shape of its input", "its graph needs that")
        results: dict[tuple[str, int], list[Value]] = {}
        for number, start in enumerate(plan.starts):
            results[start.layer, start.call] = [inputs[number]] if inputs is not None else [self.start(layers[start.layer])]
        if inputs is not None and old.kind == "Sequential":  # the first of its layers may be a model of several inputs
            results |= {(start.layer, start.call): list(inputs) for start in plan.starts}
        for name, number in plan.order:
            if (name, number) in results:
                continue
            call = plan.calls[name][number]
            values = [value for ref in call.reads for value in _outputs(results, ref)]
            if old.kind == "Sequential" and not call.reads:
                values = list(inputs or ())

            def readers(place: tuple[str, int] = (name, number)) -> list[tuple[int, SourceLayer | None]]:
                read = [(ref, layers[reader]) for reader, several in plan.calls.items() for each in several for ref in each.sources()]
                every = [*read, *((end, None) for end in plan.ends)]
                return [(max(0, ref.index), layer) for ref, layer in every if (ref.layer, ref.call) == place]

            results[name, number] = self.layer(_facts(layers[name], call, results), values, readers)
        return [value for end in plan.ends for value in _outputs(results, end)]


def _facts(old: SourceLayer, call: KerasCall, results: Mapping[tuple[str, int], Sequence[Value]]) -> LayerFacts:
    """Return a layer with one of its calls: the tensors that it names, and what else it states."""
    named: dict[str, list[Value | None]] = {}
    flags: dict[str, Any] = {}
    for key, value in call.named.items():
        several = flat(value)
        if key == "training" and value is False:
            continue
        if all(isinstance(inside, LayerOutput) or (inside is None and key == "mask") for inside in several):
            named[key] = [None if ref is None else _outputs(results, ref)[0] for ref in several]
        else:
            flags[key] = value
    return LayerFacts(old, call, named=named, flags=flags)


def _outputs(results: Mapping[tuple[str, int], Sequence[Value]], ref: LayerOutput) -> Sequence[Value]:
    """Return the tensors that a reference stands for.

    Raises RefusedError for a missing output: Keras counts some of unlike directions otherwise.
    """
    outputs = results[ref.layer, ref.call]
    if ref.index >= len(outputs):
        raise refuse(
            ref.layer, f"a tensor from its output {ref.index}", f"it gives {len(outputs)}, counted from 0; Keras cannot run it either"
        )
    return outputs if ref.index == ALL_OUTPUTS else [outputs[ref.index]]


class Writer(Walk):
    """A model on its way into a description.

    scope   the model whose nodes are being added
    masks   the masks that Keras keeps beside tensors, by the tensor's name
    same    the tensor that another one is in Keras when the model runs, as a Dropout returns what it reads
    dtypes  the types of tensors that are not float32, likewise
    values  every tensor by its name
    notes   what a reader of the result should know
    names   what a file may call each layer, by its path
    unread  why the calls of some layers are not followed, by their names
    """

    def __init__(self, partial: bool = False) -> None:
        self.partial = partial
        self.scope = DescribedModel("")
        self.path: tuple[str, ...] = ()
        self.masks: dict[str, Value] = {}
        self.same: dict[str, str] = {}
        self.dtypes: dict[str, str] = {}
        self.values: dict[str, Value] = {}
        self.notes: list[str] = []
        self.names: dict[str, tuple[str, ...]] = {}
        self._names = Names()
        self.unread: dict[str, RefusedError] = {}
        self._models: dict[tuple[Any, ...], _SubmodelCall] = {}

    def value(self, wanted: str, shape: Sequence[int | None], dtype: str = "float32") -> Value:
        """Return a new tensor."""
        value = Value(self._names.new(wanted), tuple(shape), dtype)
        self.values[value.name] = value
        if dtype != "float32":
            self.dtypes[value.name] = dtype
        return value

    def add(
        self, kind: kinds.Kind, facts: LayerFacts, inputs: Sequence[Value], shape: Sequence[int | None], dtype: str = "float32"
    ) -> Value:
        """Add a node of one output, and return that."""
        output = self.value(facts.name, shape, dtype)
        self.scope.add(kind, self.noted(facts), inputs, [output])
        return output

    def node(
        self,
        kind: kinds.Kind,
        wanted: str,
        inputs: Sequence[Value],
        shape: Sequence[int | None],
        dtype: str = "float32",
        named: Mapping[str, Sequence[Value]] | None = None,
    ) -> Value:
        """Add a node without a layer; return its output."""
        output = self.value(wanted, shape, dtype)
        self.scope.add(kind, "", inputs, [output], named)
        return output

    def noted(self, facts: LayerFacts, layer: str = "", *others: str) -> str:
        """Note the possible names of a layer in a file, and return its name in the model: its own, or that of a layer in it.

        others  further names that the file may have for it
        """
        layer = layer or facts.name
        words = [word for name in (layer, *others) for word in (name, name.replace(facts.name, facts.old.name, 1))]
        self.names[self.called(layer)] = tuple(dict.fromkeys((*map(self.called, words), *words)))
        return layer

    def called(self, name: str) -> str:
        """Return a layer's path."""
        return "/".join((*self.path, name))

    def truth(self, operator: str, inputs: Sequence[str], wanted: str, shape: Sequence[int | None]) -> Value:
        """Add what joins masks, as formats/keras/describe/masks.py asks for it."""
        mask = self.value("mask", shape, "bool")
        self.scope.add(kinds.Mask(operation=operator.lower()), "", [self.values[name] for name in inputs], [mask])
        return mask

    # The walk

    def start(self, old: SourceLayer) -> Value:
        """Return an input of the model."""
        config = old.config
        shape, dtype = stated_shape(config), config.get("dtype", "float32")
        if shape is None or dtype not in ("float32", "int32", "int64", "bool") or config.get("sparse") or config.get("ragged"):
            raise refuse(
                old.name,
                f"an input of shape {None if shape is None else [*shape]!r} and type {dtype!r}",
                "only plain tensors of float32, int32, int64 and bool are known",
            )
        value = self.value(old.name, shape, dtype)
        self.scope.inputs += (value,)
        return value

    def layer(self, facts: LayerFacts, values: Sequence[Value], readers: Readers) -> list[Value]:
        """Return the outputs of a layer, a model or an operation, or stand-ins for them if it may be left out."""
        count, scope, path = len(self.scope.nodes), self.scope, self.path
        try:
            if (error := self.unread.get(facts.name)) is not None:
                raise error
            return self._layer(facts, values)
        except RefusedError as error:
            if not self.partial:
                raise
            self.scope, self.path = scope, path
            del scope.nodes[count:]
            return self._left_out(facts, values, error, readers())

    def _left_out(
        self, facts: LayerFacts, values: Sequence[Value], error: RefusedError, readers: Sequence[tuple[int, SourceLayer | None]]
    ) -> list[Value]:
        """Add a node that stands for a layer, and return what it gives: with the axes that the configuration states."""
        outputs = []
        for number in range(max((index for index, _ in readers), default=0) + 1):
            shapes = [_input_shape(layer) for index, layer in readers if index == number and layer is not None]
            of_lambda = shape_in(facts.config.get("output_shape"))
            shape = next((shape for shape in (*shapes, of_lambda and (None, *of_lambda)) if shape is not None), None)
            outputs.append(replace(self.value(facts.name, shape or ()), sized=shape is not None))
        self.scope.add(kinds.LeftOut(error=error), facts.name, values, outputs)
        return outputs

    def _layer(self, facts: LayerFacts, values: Sequence[Value]) -> list[Value]:
        from rnnconvert.formats.keras.describe.layers import LAYERS, MOVING
        from rnnconvert.formats.keras.describe.operations import OPERATIONS, arguments_of

        old = facts.old
        if any(not value.sized for value in values):
            raise refuse(self.called(old.name), "an input of unknown shape", "it is what a layer gives that is left out")
        if not old.entry.built_in:
            raise refuse(self.called(old.name), f"a class of your own, {old.kind!r}", "only Keras's layers are known here")
        if old.is_model:
            return self._inner(facts, values)
        for layer in old.walk():
            if (policy := policy_of(layer.config)) in ("float16", "bfloat16", "float64"):
                raise refuse(self.called(old.name), f"a layer of {policy}", "the written model computes in float32")
        if old.entry.is_operation:
            operation = OPERATIONS.get(old.kind)
            if operation is None:
                raise refuse(old.name, f"an operation of class {old.kind!r}", "no rule for it is known here")
            result = [operation(self, facts, arguments_of(facts, values))]
            facts.finish()
            return result
        if old.kind == "TimeDistributed":
            outputs = self._each_step(facts, values)
        else:
            describe = LAYERS.get(old.kind)
            if describe is None:
                why = "it is code, and no code of a file is run" if old.kind == "Lambda" else "no rule for it is known here"
                raise refuse(self.called(old.name), f"a layer of class {old.kind!r}", why)
            typed = [value for value in values if value.dtype != "float32"]
            if typed and old.kind not in MOVING:
                raise refuse(old.name, f"whole numbers in a layer of class {old.kind!r}", "only an Embedding reads them here")
            outputs = describe(self, facts, values)
        facts.finish()
        hand_on(self, facts, values, outputs)
        return outputs

    def _each_step(self, facts: LayerFacts, values: Sequence[Value]) -> list[Value]:
        """Return the output of a TimeDistributed: its layer works on all steps as on one batch."""
        x: Any = one_input(facts, values)
        inner = facts.old.inside[0]
        facts.get("layer")
        if len(x.shape) < 2:
            raise refuse(facts.name, "an input without time in a TimeDistributed", "its steps are laid side by side")
        inside = LayerFacts(inner)
        if inner.kind in ("Dense", "Activation", "Dropout") and len(x.shape) > 2 and not inner.is_model:
            if (mask := masks_on(self, facts, [x])[0]) is not None:
                self.masks[x.name] = mask
            return self._layer(_Renamed(inside, facts.name), [x])  # they work on the last axis alone
        flat = self.node(kinds.StepsToBatch(), f"{facts.name}_steps", [x], (None, *x.shape[2:]), x.dtype)
        mask = masks_on(self, facts, [x])[0]
        if mask is not None and len(mask.shape) > 2:  # of what is within the steps
            self.masks[flat.name] = self.value("mask", (None, *mask.shape[2:]), "bool")
            self.scope.add(kinds.StepsToBatch(), "", [mask], [self.masks[flat.name]])
        elif mask is not None:
            self.masks[x.name] = mask
        outputs = self._layer(inside if inner.is_model else _Renamed(inside, facts.name), [flat])
        if len(outputs) != 1:
            raise refuse(facts.name, f"a TimeDistributed around {inner.kind} with several outputs", "only one is known here")
        out = self.value(facts.name, (*x.shape[:2], *outputs[0].shape[1:]), outputs[0].dtype)
        self.scope.add(kinds.BatchToSteps(), "", [outputs[0], x], [out])
        return [out]

    def _inner(self, facts: LayerFacts, values: Sequence[Value]) -> list[Value]:
        """Return the outputs of a model in the model; its calls on tensors of one kind share one scope."""
        masks = masks_on(self, facts, values)
        facts.finish_call()
        path = (*self.path, facts.name)
        kind = tuple((value.shape, value.dtype, mask is not None and mask.shape) for value, mask in zip(values, masks, strict=True))
        inner = self._models.get((path, kind))
        if inner is None:
            inner = self._models[path, kind] = self._described(facts.old, path, values, masks)
        arguments = [*values, *(mask for mask in masks if mask is not None)]
        outputs = [self.value(facts.name, value.shape, value.dtype) for value in inner.scope.outputs]
        self.scope.add(kinds.Model(scope=inner.scope), facts.name, arguments, outputs)
        for value, mask in zip(outputs, inner.masks, strict=False):
            if mask is not None:
                self.masks[value.name] = outputs[inner.scope.outputs.index(mask)]
        return outputs[: inner.count]

    def _described(self, old: SourceLayer, path: tuple[str, ...], values: Sequence[Value], masks: Sequence[Any]) -> _SubmodelCall:
        outer, before = self.scope, self.path
        self.scope, self.path = DescribedModel(old.name, "/".join(path)), path
        inputs = [layer.name for layer in old.inside if layer.kind == "InputLayer"]
        named = dict(enumerate(inputs)) if len(inputs) == len(values) else {}
        starts = [self.value(named.get(n, "x"), value.shape, value.dtype) for n, value in enumerate(values)]
        masked = []
        for start, mask in zip(starts, masks, strict=True):
            if mask is not None:
                self.masks[start.name] = self.value("mask", mask.shape, "bool")
                masked.append(self.masks[start.name])
        self.scope.inputs = (*starts, *masked)
        ends = self.model(old, starts)
        end_masks = [self.masks.get(end.name) for end in ends]
        self.scope.outputs = (*ends, *dict.fromkeys(mask for mask in end_masks if mask is not None))
        scope, self.scope, self.path = self.scope, outer, before
        return _SubmodelCall(scope, len(ends), tuple(end_masks))


_BY_KERNEL = ("LSTM", "GRU", "SimpleRNN", "Conv1D", "Conv2D", "Conv3D")
"""The layers whose kernel shows how many axes they read, and how wide the last is."""


def _input_shape(old: SourceLayer) -> Shape | None:
    """Return the shape that a layer was built on, None where its configuration does not state one."""
    inner = old.inside[0] if old.kind == "Bidirectional" else old
    kernel = inner.arrays.get("kernel")
    if old.entry.shape is None and kernel is not None and inner.kind in _BY_KERNEL:
        return (*[None] * ((3 if kernel.ndim == 2 else kernel.ndim) - 1), int(kernel.shape[-2]))
    return old.entry.shape


class _SubmodelCall:
    """A model in the model, and the masks that its outputs have."""

    def __init__(self, scope: DescribedModel, count: int, masks: tuple[Value | None, ...]) -> None:
        self.scope, self.count, self.masks = scope, count, masks


class _Renamed(LayerFacts):
    """The settings of the layer in a wrapper, which has the wrapper's name."""

    def __init__(self, facts: LayerFacts, name: str) -> None:
        super().__init__(facts.old, facts.call, facts.used, facts.named, facts.flags)
        object.__setattr__(self, "outer", name)

    @property
    def name(self) -> str:
        """The wrapper's name."""
        return str(self.__dict__["outer"])
