"""A model that is stated as layers, step by step: every call of every layer, including layers of the models inside it.

Each call of a model inside another is a copy of its own calls. Masks and `training` pass from call to call as Keras passes them.

Sources: keras/src/layers/layer.py, Layer.__call__, and keras/src/models/{functional,sequential}.py (3.15);
tf_keras/src/engine/{base_layer,functional}.py; keras 1.2.2 and 2.3.1 engine/topology.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from rnnconvert.core.errors import UnreadableError
from rnnconvert.core.limits import LAYER_CALLS, LAYER_NESTING
from rnnconvert.core.printable import quoted
from rnnconvert.formats.keras.model.calls import Arguments, LayerOutput, Where, bases, calls_of, counted, ordered, references, refs
from rnnconvert.formats.keras.model.entries import RECURRENT, Entry, children
from rnnconvert.formats.keras.model.masks import mask_after
from rnnconvert.formats.keras.model.operators import gives_zeros, signature

_LINE = "Sequential"
MODELS = (_LINE, "Functional", "Model")
"""The classes of models that run their layers as their configuration states it."""


@dataclass(frozen=True, eq=False)
class StepOutput:
    """An output of a step, and what masks it, in words; "" for nothing."""

    step: LayerStep
    index: int
    mask: str = ""


@dataclass(eq=False)
class LayerStep:
    """A call of a layer.

    layer      the layer
    label      its name after the names of the models around it, and which call it is, unless it is the first
    reads      the tensors that it is called on
    arguments  everything that the call gives it
    states     the initial states of a recurrent layer
    constants  the further values that its cell reads
    others     all further tensors that it reads
    has_states  whether initial states are given, as tensors or otherwise, that are not zeros: it begins from these anyway
    mask       the origin of the mask on the steps that it reads, in words
    passed     the steps whose values are passed as mask
    training   whether it runs as in training
    outputs    which of its outputs are read
    """

    layer: Entry
    label: str
    reads: Sequence[StepOutput] = ()
    arguments: Arguments = field(default_factory=Arguments)
    states: Sequence[StepOutput] = ()
    constants: Sequence[StepOutput] = ()
    others: Sequence[StepOutput] = ()
    has_states: bool = False
    mask: str = ""
    passed: Sequence[LayerStep] = ()
    training: bool = False
    outputs: set[int] = field(default_factory=set)

    def output(self, index: int) -> StepOutput:
        """Return one of its outputs."""
        self.outputs.add(index)
        mask = mask_after(self.layer, [self.mask] if self.passed else self._masks, repr(self.label), self.mask)
        return StepOutput(self, index, mask if index == 0 else "")

    @property
    def _masks(self) -> list[str]:
        return [tensor.mask for tensor in self.reads]


class Layered:
    """A model as steps.

    steps   every call of a layer, each after those that it reads
    ends    the model's outputs
    stated  whether the model's class is one that runs its layers as its configuration states it

    Raises UnreadableError for calls of an unknown form, of layers that there are not, or in a loop, and for models nested too
    deeply or called too often.
    """

    def __init__(self, model: Entry, path: Where) -> None:
        self._path = path
        self._plans: dict[int, _RunOrder] = {}
        self.steps: list[LayerStep] = []
        self.ends: list[StepOutput] = []
        self.stated = model.class_name in MODELS
        if self.stated or "output_layers" in model.config:
            self.ends = self._model(model, None, "", False, 0)

    def _model(self, model: Entry, inputs: Sequence[StepOutput] | None, where: str, training: bool, depth: int) -> list[StepOutput]:
        """Note the steps of a model and return its outputs.

        inputs  the tensors that it is called on; None for the outermost one
        """
        if depth > LAYER_NESTING:
            raise UnreadableError(self._path, f"its models are nested more than {LAYER_NESTING} deep")
        walk = self._line if model.class_name == _LINE else self._graph
        return walk(model, inputs, where, training, depth)

    def _note(self, step: LayerStep) -> LayerStep:
        if len(self.steps) >= LAYER_CALLS:
            raise UnreadableError(self._path, f"its models call layers more than {LAYER_CALLS} times")
        self.steps.append(step)
        return step

    def _line(self, model: Entry, inputs: Sequence[StepOutput] | None, where: str, training: bool, depth: int) -> list[StepOutput]:
        tensors = None if inputs is None else list(inputs)
        for layer in children(model):
            label = where + layer.name
            if layer.class_name == "InputLayer":
                tensors = tensors or [self._note(LayerStep(layer, label)).output(0)]
            elif is_model(layer):
                tensors = self._model(layer, tensors, f"{label}/", training, depth + 1)
            else:
                if children(layer):  # the Merge of Keras 1
                    branches = [branch for branch in children(layer) if is_model(branch)]
                    tensors = [
                        end for branch in branches for end in self._model(branch, None, f"{where}{branch.name}/", training, depth + 1)
                    ]
                elif tensors is None:
                    tensors = [self._note(LayerStep(_input_of(layer), f"{label}_input")).output(0)]
                tensors = [self._note(_called(layer, label, Arguments(), tensors, training)).output(0)]
        return tensors or []

    def _plan(self, model: Entry) -> _RunOrder:
        """Return how a model runs its layers; made once, however often it is called."""
        if id(model.config) not in self._plans:
            self._plans[id(model.config)] = _plan(model, self._path)
        return self._plans[id(model.config)]

    def _graph(self, model: Entry, inputs: Sequence[StepOutput] | None, where: str, training: bool, depth: int) -> list[StepOutput]:
        plan = self._plan(model)
        layers, calls = plan.layers, plan.calls
        bound = dict(zip(plan.inputs, inputs or (), strict=False))
        scope: dict[tuple[str, int], LayerStep | list[StepOutput]] = {}

        def tensor(ref: LayerOutput) -> StepOutput:
            maker = scope.get((ref.layer, ref.call))
            if isinstance(maker, LayerStep):
                return maker.output(ref.index)
            if maker is None or ref.index >= len(maker):
                raise UnreadableError(self._path, f"something reads an output of {quoted(ref.layer)} that it does not have")
            return maker[ref.index]

        for name, number in plan.order:
            layer, arguments = layers[name], calls[name][number]
            label = f"{where}{name} (call {number + 1})" if number else f"{where}{name}"
            if name in bound:
                scope[name, number] = [bound[name]]
            elif is_model(layer):
                reads = [tensor(ref) for ref in refs(arguments.places[:1])]
                named = _named(layer, arguments)
                masks = [_words([tensor(ref).step]) for ref in refs(named.get("mask"))]
                if masks:
                    reads = [replace(read, mask=mask) for read, mask in zip(reads, masks, strict=False)]
                on = training or _is_on(named)
                scope[name, number] = self._model(layer, reads, f"{label}/", on, depth + 1)
            else:
                reads = [tensor(ref) for ref in refs(arguments.places[:1])]
                named_ = {key: [tensor(ref) for ref in refs(value)] for key, value in _named(layer, arguments).items()}
                scope[name, number] = self._note(_called(layer, label, arguments, reads, training, named_))
        return [tensor(end) for end in plan.ends]


class _RunOrder(NamedTuple):
    """How a model runs its layers.

    layers  by name
    calls   of each layer, which are counted from zero
    order   the calls, each after those that it reads
    inputs  the names of the model's own inputs
    ends    its outputs
    """

    layers: Mapping[str, Entry]
    calls: Mapping[str, Sequence[Arguments]]
    order: Sequence[tuple[str, int]]
    inputs: Sequence[str]
    ends: Sequence[LayerOutput]


def _plan(model: Entry, path: Where) -> _RunOrder:
    layers = {layer.name: layer for layer in children(model)}
    if len(layers) != len(children(model)):
        raise UnreadableError(path, f"two layers of {quoted(model.name)} have one name")
    calls = {name: [Arguments()] if layer.class_name == "InputLayer" else calls_of(layer, path) for name, layer in layers.items()}
    starts = references(model.config.get("input_layers")) or []
    ends = references(model.config.get("output_layers")) or []
    models = [name for name, layer in layers.items() if children(layer)]
    modern = {name for name in models if all(isinstance(node, Mapping) for node in _nodes(layers[name]))}
    base = bases(calls, models, [end for end in ends if end.layer not in modern])
    calls = {name: [counted(call, base) for call in several] for name, several in calls.items()}
    # Where a model ends, Keras 3 too counts the calls of a graph inside it from one.
    base |= {name: int("output_layers" in layers[name].config) for name in modern}
    everything = [LayerOutput(name, number, 0) for name, several in calls.items() for number in range(len(several))]
    inputs = [ref.layer for ref in starts] or [n for n, layer in layers.items() if layer.class_name == "InputLayer"]
    return _RunOrder(layers, calls, ordered(calls, everything, path)[0], inputs, [counted(end, base) for end in ends])


def is_model(layer: Entry) -> bool:
    """Return whether a layer is a model that runs its layers as its configuration states it."""
    return layer.class_name in MODELS and bool(children(layer))


def _nodes(layer: Entry) -> list[Any]:
    return layer.nodes if isinstance(layer.nodes, list) else []


def _input_of(layer: Entry) -> Entry:
    """Return the input that the first layer of a Sequential states for itself."""
    inner = layer.inner("layer")
    for config in (layer.config, inner.config if inner is not None else {}):
        shape = config.get("batch_input_shape", config.get("batch_shape"))
        if shape is not None:
            return Entry(f"{layer.name}_input", "InputLayer", {"batch_shape": shape})
    return Entry(f"{layer.name}_input", "InputLayer", {})


def _named(layer: Entry, arguments: Arguments) -> dict[str, Any]:
    """Return the arguments behind the first by their names."""
    names = ("training", "mask") if is_model(layer) else signature(layer.class_name)
    by_place = dict(zip(names, arguments.places[1:], strict=False))
    rest = {f"place {number}": value for number, value in enumerate(arguments.places[1:][len(names) :], len(names))}
    return by_place | rest | {key: value for key, value in arguments.named.items() if value is not None}


def _is_on(named: Mapping[str, Any]) -> bool:
    """Return whether a call states training; a tensor may be true."""
    return bool(named.get("training"))


def _called(
    layer: Entry,
    label: str,
    arguments: Arguments,
    reads: Sequence[StepOutput],
    training: bool,
    named: Mapping[str, Sequence[StepOutput]] | None = None,
) -> LayerStep:
    """Return the call of a layer.

    named  the tensors of the arguments behind the first
    """
    named = named or {}
    values = _named(layer, arguments)
    states, constants = list(named.get("initial_state", ())), list(named.get("constants", ()))
    if layer.class_name in RECURRENT and len(reads) > 1:
        several = layer.config.get("num_constants")
        number = several if type(several) is int and 0 < several < len(reads) else 0
        states = [*reads[1 : len(reads) - number], *states]
        constants = [*reads[len(reads) - number :], *constants]
        reads = reads[:1]
    passed = [tensor.step for tensor in named.get("mask", ())]
    others = [tensor for key, tensors in named.items() for tensor in tensors if key not in ("initial_state", "constants")]
    mask = _words(passed) if passed else next((tensor.mask for tensor in reads), "")
    # Constants stand among the tensors that an old layer is called on.
    stated = [values.get("initial_state"), arguments.places[:1] if layer.class_name in RECURRENT else None]
    has_states = any(not gives_zeros(tensor.step.layer) for tensor in states) or any(map(_has_numbers, stated))
    return LayerStep(layer, label, reads, arguments, states, constants, others, has_states, mask, passed, training or _is_on(values))


def _has_numbers(states: object) -> bool:
    """Return whether an argument has any number but zero, or anything that is not known to be a number; tensors aside."""
    if isinstance(states, (list, tuple)):
        return any(map(_has_numbers, states))
    if isinstance(states, Mapping) and states.get("class_name") in ("__tensor__", "__numpy__"):
        config = states.get("config")
        return not isinstance(config, Mapping) or _has_numbers(config.get("value", ""))
    return not (states is None or isinstance(states, LayerOutput) or (isinstance(states, (int, float)) and states == 0))


def _words(passed: Sequence[LayerStep]) -> str:
    """Return in words the mask that the values of steps are."""
    return " and ".join(f"the values of {step.label!r}" for step in passed)
