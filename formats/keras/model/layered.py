"""A model that is stated as layers, step by step: every call of every layer, including layers of the models inside it.

Each call of a model inside another is a copy of its own calls. Masks and `training` pass from call to call as Keras passes them.

Sources: keras/src/layers/layer.py, Layer.__call__, and keras/src/models/{functional,sequential}.py (3.15);
tf_keras/src/engine/{base_layer,functional}.py; keras 1.2.2 and 2.3.1 engine/topology.py.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from rnnconvert.core.errors import UnreadableError
from rnnconvert.core.limits import LAYER_CALLS, LAYER_NESTING
from rnnconvert.core.printable import quoted
from rnnconvert.formats.keras.model.calls import (
    ALL_OUTPUTS,
    KerasCall,
    LayerOutput,
    Where,
    bases,
    calls_of,
    flat,
    from_zero,
    order_of_running,
    ordered,
    references,
    refs,
)
from rnnconvert.formats.keras.model.entries import MODELS, RECURRENT, Entry, children, era_shown, shape_in, stated_shape
from rnnconvert.formats.keras.model.masks import MaskOrigin, NamedMasks, Origins
from rnnconvert.formats.keras.model.operators import gives_zeros

LINE = "Sequential"
MERGE = "Merge"
"""The layer of Keras 1 that a Sequential may begin with: it holds the models that it reads."""


class RunOrder(NamedTuple):
    """How a model runs its layers: a Sequential as a graph in which each layer reads the one before.

    layers  by name
    calls   of each layer, which are counted from zero
    order   the calls on which its outputs depend, as Keras 3 runs them: each after those that it reads
    dead    all others, likewise
    starts  the model's inputs
    ends    its outputs
    """

    layers: Mapping[str, Entry]
    calls: Mapping[str, Sequence[KerasCall]]
    order: Sequence[tuple[str, int]]
    dead: Sequence[tuple[str, int]]
    starts: Sequence[LayerOutput]
    ends: Sequence[LayerOutput]


def run_order(model: Entry, path: Where, inside: Sequence[Entry] | None = None) -> RunOrder:
    """Return how a model runs its layers: those of its configuration, or these in their place.

    Raises UnreadableError for calls of an unknown form, of layers that there are not, or in a loop, and for two layers of one name.
    """
    inside = children(model) if inside is None else list(inside)
    return _line(model, inside) if model.class_name == LINE else _graph(model, path, inside)


def _line(model: Entry, inside: list[Entry]) -> RunOrder:
    first = inside[0] if inside else None
    if first is not None and first.class_name not in ("InputLayer", MERGE) and not first.is_model:
        inside.insert(0, input_of(first, model.config))
    inside[1:] = [layer for layer in inside[1:] if layer.class_name != "InputLayer"]
    names = [layer.name for layer in inside]
    if len(set(names)) < len(names):
        names = [f"{name} ({number})" for number, name in enumerate(names)]  # of files from before Keras minded
    refs_ = [LayerOutput(name, 0, ALL_OUTPUTS) for name in names]
    calls = dict(zip(names, ([KerasCall([ref] if ref else [])] for ref in (None, *refs_)), strict=False))
    starts = [LayerOutput(names[0], 0, 0)] if names and inside[0].class_name == "InputLayer" else []
    return RunOrder(dict(zip(names, inside, strict=True)), calls, [(name, 0) for name in names], [], starts, refs_[-1:])


def _graph(model: Entry, path: Where, inside: Sequence[Entry]) -> RunOrder:
    layers = {layer.name: layer for layer in inside}
    if len(layers) != len(inside):
        raise UnreadableError(path, f"two layers of {quoted(model.name)} have one name")
    calls = {name: [KerasCall()] if layer.class_name == "InputLayer" else calls_of(layer, path) for name, layer in layers.items()}
    starts = references(model.config.get("input_layers")) or []
    ends = references(model.config.get("output_layers")) or []
    models = [name for name, layer in layers.items() if layer.config.get("layers")]
    modern = {name for name in models if all(isinstance(node, Mapping) for node in _nodes(layers[name]))}
    base = bases(calls, models, [end for end in (*starts, *ends) if end.layer not in modern])
    if any(base.values()):
        calls = {name: [call.moved(lambda ref: from_zero(ref, base)) for call in several] for name, several in calls.items()}
    # Where a model begins and ends, Keras 3 too counts the calls of a graph inside it from one.
    ends_from = base | {name: int("output_layers" in layers[name].config) for name in modern}
    starts, ends = ([from_zero(ref, ends_from) for ref in several] for several in (starts, ends))
    starts = starts or [LayerOutput(name, 0, 0) for name, layer in layers.items() if layer.class_name == "InputLayer"]
    everything = [LayerOutput(name, number, 0) for name, several in calls.items() for number in range(len(several))]
    order = order_of_running(calls, ends, path)
    live = set(order)
    dead = [node for node in ordered(calls, everything, path)[0] if node not in live]
    return RunOrder(layers, calls, order, dead, starts, ends)


def _nodes(layer: Entry) -> list[Any]:
    return layer.nodes if isinstance(layer.nodes, list) else []


def input_of(layer: Entry, model: Mapping[str, Any]) -> Entry:
    """Return the input of a Sequential, as its first layer states it, the layer that this one wraps, or the model's configuration."""
    inner = layer.inner("layer")
    shapes = (*(stated_shape(part.config) for part in (layer, inner) if part is not None), shape_in(model.get("build_input_shape")))
    shape = next((shape for shape in shapes if shape is not None), None)
    return Entry(f"{layer.name}_input", "InputLayer", {} if shape is None else {"batch_shape": list(shape)})


@dataclass(frozen=True, eq=False)
class StepOutput:
    """An output of a step, and what masks it; None for nothing."""

    step: LayerStep
    index: int
    mask: Origins | None = None


@dataclass(eq=False)
class LayerStep:
    """A call of a layer.

    layer      the layer
    label      its name after the names of the models around it, and which call it is, unless it is the first
    reads      the tensors that it is called on
    states     the initial states of a recurrent layer
    constants  the further values that its cell reads
    others     all further tensors that it reads
    has_states  whether initial states are given, as tensors or otherwise, that are not zeros: it begins from these anyway
    origins    what masks the steps that it reads, None for nothing
    passed     the steps whose values are passed as mask
    training   whether it runs as in training
    masks      what masks its outputs
    outputs    which of its outputs are read
    """

    layer: Entry
    label: str
    reads: Sequence[StepOutput] = ()
    states: Sequence[StepOutput] = ()
    constants: Sequence[StepOutput] = ()
    others: Sequence[StepOutput] = ()
    has_states: bool = False
    origins: Origins | None = None
    passed: Sequence[LayerStep] = ()
    training: bool = False
    masks: Sequence[Origins | None] = ()
    outputs: set[int] = field(default_factory=set)

    @property
    def mask(self) -> str:
        """The origin of the mask on the steps that it reads, in words; "" for none."""
        return " and ".join(origin.words for origin in self.origins or ())

    def output(self, index: int) -> StepOutput:
        """Return one of its outputs."""
        self.outputs.add(index)
        return StepOutput(self, index, self.masks[index] if index < len(self.masks) else None)


class Layered:
    """A model as steps.

    steps   every call of a layer, each after those that it reads
    ends    the model's outputs
    stated  whether the model's class is one that runs its layers as its configuration states it

    Raises UnreadableError for calls of an unknown form, of layers that there are not, or in a loop, and for models nested too
    deeply or called too often.
    """

    def __init__(self, model: Entry, path: Where, era: int = 0) -> None:
        """Follow a model of Keras 1, 2 or 3; 0 where its file does not state which."""
        self._path, self._era = path, era or era_shown(model) or 3
        self._plans: dict[int, RunOrder] = {}
        self.steps: list[LayerStep] = []
        self.ends: list[StepOutput] = []
        self.stated = model.class_name in MODELS
        if self.stated or "output_layers" in model.config:
            self.ends = self._model(model, [], "", False, 0)

    def _note(self, layer: Entry, label: str, **more: Any) -> LayerStep:
        if len(self.steps) >= LAYER_CALLS:
            raise UnreadableError(self._path, f"its models call layers more than {LAYER_CALLS} times")
        self.steps.append(LayerStep(layer, label, **more))
        return self.steps[-1]

    def _plan(self, model: Entry) -> RunOrder:
        """Return how a model runs its layers; made once, however often it is called."""
        if id(model.config) not in self._plans:
            self._plans[id(model.config)] = run_order(model, self._path)
        return self._plans[id(model.config)]

    def _model(self, model: Entry, inputs: Sequence[StepOutput], where: str, training: bool, depth: int) -> list[StepOutput]:
        """Note the steps of a model and return its outputs.

        inputs  the tensors that it is called on; none for the outermost one
        """
        if depth > LAYER_NESTING:
            raise UnreadableError(self._path, f"its models are nested more than {LAYER_NESTING} deep")
        plan = self._plan(model)
        bound = {start.layer: [value] for start, value in zip(plan.starts, inputs, strict=False)}
        if inputs and model.class_name == LINE and plan.starts:
            bound = {plan.starts[0].layer: list(inputs)}
        scope: dict[tuple[str, int], LayerStep | list[StepOutput]] = {}

        def tensors(several: Sequence[LayerOutput]) -> list[StepOutput]:
            return [tensor for ref in several for tensor in self._outputs(scope, ref)]

        for name, number in (*plan.order, *plan.dead):
            layer, call = plan.layers[name], plan.calls[name][number]
            label = f"{where}{layer.name} (call {number + 1})" if number else f"{where}{layer.name}"
            if name in bound:
                scope[name, number] = bound[name]
                continue
            reads = tensors(call.reads)
            named = {key: tensors(list(refs(value))) for key, value in call.named.items()}
            on = training or bool(call.named.get("training"))  # a tensor may be true
            if layer.is_model:
                masks = _masks_on(call, reads, named)[: len(reads)]
                reads = [StepOutput(read.step, read.index, mask) for read, mask in itertools.zip_longest(reads, masks)]
                if not reads and model.class_name == LINE:
                    reads = list(inputs)
                scope[name, number] = self._model(layer, reads, f"{label}/", on, depth + 1)
                continue
            for branch in children(layer) if layer.class_name == MERGE else ():
                reads += self._model(branch, [], f"{where}{branch.name}/", training, depth + 1) if branch.is_model else []
            scope[name, number] = self._called(layer, label, call, reads, named, on)
        return tensors(plan.ends)

    def _outputs(self, scope: Mapping[tuple[str, int], LayerStep | list[StepOutput]], ref: LayerOutput) -> list[StepOutput]:
        """Return the outputs that a reference stands for."""
        maker = scope.get((ref.layer, ref.call))
        if isinstance(maker, LayerStep):
            return [maker.output(max(0, ref.index))]
        if maker is None or ref.index >= len(maker):
            raise UnreadableError(self._path, f"something reads an output of {quoted(ref.layer)} that it does not have")
        return maker if ref.index == ALL_OUTPUTS else [maker[ref.index]]

    def _called(
        self,
        layer: Entry,
        label: str,
        call: KerasCall,
        reads: Sequence[StepOutput],
        named: Mapping[str, Sequence[StepOutput]],
        training: bool,
    ) -> LayerStep:
        """Note the call of a layer.

        named  the tensors of the arguments behind the first
        """
        states, constants, passed = (list(named.get(word, ())) for word in ("initial_state", "constants", "mask"))
        if layer.class_name in RECURRENT:  # in a Sequential what follows a model of several outputs
            states, reads = [*reads[1:], *states], reads[:1]
        others = [tensor for key, tensors in named.items() for tensor in tensors if key not in ("initial_state", "constants")]
        has_states = any(not gives_zeros(tensor.step.layer) for tensor in states) or _has_numbers(call.named.get("initial_state"))
        masks = _masks_on(call, reads, named)
        return self._note(
            layer, label, reads=reads, states=states, constants=constants, others=others, has_states=has_states,
            origins=next(iter(masks), None), passed=[tensor.step for tensor in passed], training=training,
            masks=NamedMasks(self._era, label).after(layer, masks),
        )  # fmt: skip


def _has_numbers(states: object) -> bool:
    """Return whether an argument has any number but zero, or anything that is not known to be a number; tensors aside."""
    if isinstance(states, (list, tuple)):
        return any(map(_has_numbers, states))
    if isinstance(states, Mapping) and states.get("class_name") in ("__tensor__", "__numpy__"):
        config = states.get("config")
        return not isinstance(config, Mapping) or _has_numbers(config.get("value", ""))
    return not (states is None or isinstance(states, LayerOutput) or (isinstance(states, (int, float)) and states == 0))


def _masks_on(call: KerasCall, reads: Sequence[StepOutput], named: Mapping[str, Sequence[StepOutput]]) -> list[Origins | None]:
    """Return the masks on the tensors that a layer is called on: those that its call passes, or else those that Keras hands on.

    Keras 3 states the masks that it hands on itself among the arguments of a call.
    """
    if not named.get("mask"):
        return [tensor.mask for tensor in reads]
    passed, masks = iter(named["mask"]), list[Origins | None]()
    for value, read in itertools.zip_longest(flat(call.named["mask"]), reads):
        steps = dict.fromkeys(origin.steps for origin in (read.mask if read is not None else None) or () if origin.steps)
        tensor = next(passed) if isinstance(value, LayerOutput) else None
        masks.append(None if tensor is None else (MaskOrigin(f"the values of {tensor.step.label!r}", " and ".join(steps)),))
    return masks
