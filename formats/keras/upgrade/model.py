"""A whole old model as a Keras 3 model: its configuration, and the path of every weight."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rnnconvert.core.arrays import Array, PiecewiseArray
from rnnconvert.formats.keras.carry import VariableTree
from rnnconvert.formats.keras.config import labels
from rnnconvert.formats.keras.model.calls import KerasCall, LayerOutput, flat, order, references
from rnnconvert.formats.keras.model.entries import stated_shape
from rnnconvert.formats.keras.model.layered import input_of, run_order
from rnnconvert.formats.keras.model.tree import SourceLayer
from rnnconvert.formats.keras.upgrade import tables as tables
from rnnconvert.formats.keras.upgrade.config import serialised
from rnnconvert.formats.keras.upgrade.layers import Layers, New, rewritten
from rnnconvert.formats.keras.upgrade.masks import Masks
from rnnconvert.formats.keras.upgrade.notes import Notes, refuse, spelled
from rnnconvert.formats.keras.upgrade.operations import OPERATIONS, OutsideOperation, operation, referred

_MODULES = {"Sequential": ("keras", None), "Functional": ("keras.src.models.functional", "Functional")}


@dataclass
class NewModel:
    """A model of Keras 3.

    layers  those with weights of their own and all others, in the order in which Keras numbers them
    """

    name: str
    class_name: str
    config: dict[str, Any]
    layers: list[New | NewModel] = field(default_factory=list)

    def serialised(self) -> dict[str, Any]:
        """Return it as a configuration holds it."""
        module, registered = _MODULES[self.class_name]
        return {**serialised(self.class_name, self.config, module), "registered_name": registered}

    def variables(self, path: str = "") -> Iterator[tuple[str, str, list[Array | PiecewiseArray]]]:
        """Yield every layer's weights: their path, the layer's name, the arrays."""
        for layer, label in zip(self.layers, labels(layer.class_name for layer in self.layers), strict=True):
            below = f"{path}/layers/{label}".lstrip("/")
            if isinstance(layer, NewModel):
                yield from layer.variables(below)
                continue
            for inside, label, arrays in layer.variables:
                yield f"{below}/{inside}".rstrip("/"), label, arrays

    def tree(self) -> VariableTree:
        """Return all weights as a Keras 3 file lays them out."""
        tree = VariableTree({}, {"vars": {"name": self.name}})
        for path, label, arrays in self.variables():
            tree.put(path, arrays, label)
        return tree


class Models:
    """The models of one file: the outermost, and those inside it."""

    def __init__(self, layers: Layers, notes: Notes) -> None:
        self.layers, self.notes = layers, notes
        self.masks = Masks(layers.translator.era, notes)

    def model(self, old: SourceLayer, outermost: bool = True) -> NewModel:
        """Return a model. Raises RefusedError for what Keras 3 cannot hold."""
        config = old.config
        name = spelled(old.name or old.kind.lower())
        if outermost:
            self.masks.check(old)
        if old.kind == "Sequential" and old.inside and old.inside[0].kind == "Merge":
            raise refuse(
                name,
                "a Sequential that begins with a Merge",
                "it joins several models",
                "Build it as a Model in the old Keras, and save that.",
            )
        expected = {"name", "trainable", "layers", "input_layers", "output_layers", "build_input_shape", "dtype"}
        for key in sorted(set(config) - expected):
            raise refuse(name, f"{key!r} of the model's configuration", "what it changes is not known")
        model = self._sequential(old, name, outermost) if old.kind == "Sequential" else self._graph(old, name)
        model.config["trainable"] = bool(config.get("trainable", True))
        return model

    def _sequential(self, old: SourceLayer, name: str, outermost: bool) -> NewModel:
        names: set[str] = set()
        model = NewModel(name, "Sequential", {"name": name})
        inside = list(old.inside)
        start = self._input(inside.pop(0), names) if inside and inside[0].kind == "InputLayer" else None
        beginning = [start.config] if start is not None else [input_of(layer.entry, old.config).config for layer in inside[:1]]
        shape = stated_shape(beginning[0]) if beginning else None
        if not inside:
            raise refuse(name, "a Sequential without layers", "it computes nothing")
        if start is None and shape is not None and not inside[0].is_model:
            first = inside[0]
            input_name = spelled(f"{first.name}_input")
            config = {"name": input_name, "batch_shape": list(shape), "dtype": self._input_type(first), "sparse": False}
            start = New(input_name, "InputLayer", config)
            names.add(start.name)
        if outermost and start is None and not inside[0].is_model:
            raise refuse(
                name,
                "a Sequential model without the shape of its input",
                "Keras 3 builds its weights from that shape",
                "Give its first layer an input_shape in the old Keras, and save it again.",
            )
        for child in inside:
            model.layers += self._inner(child, names, shape[0] if shape else None)
        self.masks.leaving[id(old)] = self.masks.line(old)
        model.config["layers"] = [layer.serialised() for layer in [*([start] if start else []), *model.layers]]
        if shape is not None:
            model.config["build_input_shape"] = list(shape)
        return model

    def _inner(self, old: SourceLayer, names: set[str], batch: int | None, model: NewModel | None = None) -> list[New | NewModel]:
        """Return the layers that replace a layer: usually one, under its own name."""
        name = spelled(old.name or old.kind.lower(), names)
        names.add(name)
        if name != old.name:
            self.notes.change(name, f"its name was {old.name!r}, which Keras 3 does not permit")
        if old.is_model:
            return [model or self.model(old, outermost=False)]
        each_step = old.kind == "TimeDistributed" and old.inside[0].is_model
        layer = self.layers.new(old, name, batch, self.model(old.inside[0], outermost=False) if each_step else None)
        if not layer.softens:
            return [layer]
        self.notes.change(name, "the old hard_sigmoid is written out: Rescaling(0.2, 0.5), then ReLU(max_value=1)")
        if layer.class_name != "Activation":
            raise refuse(old.name, "the old hard_sigmoid", f"a {layer.class_name} has no weights that could be scaled")
        first, last = rewritten(layer.config, name)
        names.add(first.name)
        return [first, last]

    def _input(self, old: SourceLayer, names: set[str]) -> New:
        """Return an InputLayer."""
        config = old.config
        name = spelled(old.name or "input", names)
        names.add(name)
        if name != old.name:
            self.notes.change(name, f"its name was {old.name!r}, which Keras 3 does not permit")
        shape = stated_shape(config)
        if shape is None:
            raise refuse(name, "an input of an unknown shape", "Keras 3 needs a list of sizes")
        for key in ("sparse", "ragged", "optional"):
            if config.get(key):
                raise refuse(name, f"an input with {key} = true", "its layers would get other tensors there")
        expected = {"batch_input_shape", "batch_shape", "dtype", "input_dtype", "name", "sparse", "ragged", "optional", "trainable"}
        for key in sorted(set(config) - expected):
            raise refuse(name, f"{key!r} of an input", "what it changes is not known")
        config_ = {"name": name, "batch_shape": list(shape), "dtype": self._input_type(old), "sparse": False}
        return New(name, "InputLayer", config_)

    def _input_type(self, old: SourceLayer) -> str:
        config = old.config
        value = config.get("input_dtype") or config.get("dtype")
        dtype = self.layers.translator.type_of(old.name, value)
        if dtype == "mixed_float16":
            return "float16"
        if dtype == "mixed_bfloat16":
            return "bfloat16"
        return dtype

    def _check_types(self, old: SourceLayer, steps: Mapping[tuple[str, int], OutsideOperation]) -> None:
        """Refuse sums and means of whole numbers, which keep their type in TensorFlow alone; steps are in the order of a run."""
        inputs = [layer for layer in old.inside if layer.kind == "InputLayer"]
        integral = {layer.name for layer in inputs if "float" not in self._input_type(layer)}
        for (layer, _), step in steps.items():
            if any(ref.layer in integral for ref in step.call.reads):
                if step.class_name in ("Sum", "Mean"):
                    raise refuse(layer, f"the {step.class_name.lower()} of whole numbers", "Keras 3 computes it in another type")
                integral.add(layer)

    def _written_out(self, old: SourceLayer, call: KerasCall, operations: list[OutsideOperation], names: set[str]) -> LayerOutput:
        """Return the result of a merge as operations, which read no masks."""
        self.notes.change(old.name, f"it is the operation {old.kind.lower()} now: Keras 3's layer computes something else at masked steps")
        self.layers.translator.translate(old.name, tables.LAYERS[old.kind], old.config)
        result = call.reads[0]
        for other in call.reads[1:]:
            name = spelled(f"{old.name}_values", names)
            names.add(name)
            operations.append(OutsideOperation(name, old.kind, (result, other), {}))
            result = LayerOutput(name, 0, 0)
        return result

    def _graph(self, old: SourceLayer, name: str) -> NewModel:
        """Return a model whose layers read one another as its configuration says."""
        config = old.config
        if not all(isinstance(config.get(key), list) and references(config[key]) for key in ("input_layers", "output_layers")):
            raise refuse(name, "inputs or outputs by name", "only lists of them are known here")
        plan = run_order(old.entry, "the configuration", [layer.entry for layer in old.inside])
        olds = {sublayer.name: sublayer for sublayer in old.inside}
        names = {spelled(sublayer) for sublayer in olds}
        computed = {
            sublayer: [operation(olds[sublayer], call, _named(sublayer, number, names)) for number, call in enumerate(several)]
            for sublayer, several in plan.calls.items()
            if olds[sublayer].kind in OPERATIONS
        }
        self._check_types(old, {(sublayer, number): computed[sublayer][number] for sublayer, number in plan.order if sublayer in computed})
        calls = {
            sublayer: [step.call for step in computed[sublayer]] if sublayer in computed else [_checked(sublayer, call) for call in several]
            for sublayer, several in plan.calls.items()
        }
        inner = {sublayer.name: self.model(sublayer, outermost=False) for sublayer in old.inside if sublayer.is_model}
        masked = self.masks.graph(olds, calls, plan, names)
        self.masks.leaving[id(old)] = masked.last
        for (name_, number), masks in masked.stated.items():
            calls[name_][number] = KerasCall(calls[name_][number].reads, {**calls[name_][number].named, "mask": masks})
        operations, steps_of = list(masked.operations), dict[tuple[str, int], LayerOutput]()
        for merge in sorted(masked.merges):
            for number, call in enumerate(calls[merge]):
                steps_of[merge, number] = self._written_out(olds[merge], call, operations, names)
        for sublayer, steps in computed.items():
            operations += steps
            steps_of.update({(sublayer, number): LayerOutput(step.name, 0, 0) for number, step in enumerate(steps)})
        names = {step.name for step in operations}
        batches = {(stated_shape(layer.config) or (None,))[0] for layer in old.inside if layer.kind == "InputLayer"}
        batch = batches.pop() if len(batches) == 1 else None
        chains: dict[str, list[New | NewModel]] = {}
        remaining = [layer for layer in old.inside if layer.name not in masked.merges and layer.name not in computed]
        for source in remaining:
            if source.kind == "InputLayer":
                chains[source.name] = [self._input(source, names)]
            else:
                chains[source.name] = self._inner(source, names, batch, inner.get(source.name))
        final = {old: chain[-1].name for old, chain in chains.items()} | {step.name: step.name for step in operations}

        def moved(ref: LayerOutput) -> LayerOutput:
            ref = steps_of.get((ref.layer, ref.call), ref)
            return dataclasses.replace(ref, layer=final[ref.layer])

        built: dict[str, New | NewModel] = {}
        new_calls = {step.name: [step.call.moved(moved)] for step in operations}
        lists: dict[str, bool] = {}
        for source in remaining:
            calls_ = [call.moved(moved) for call in calls[source.name]]
            for layer in chains[source.name]:
                built[layer.name], new_calls[layer.name] = layer, calls_
                lists[layer.name] = _takes_list(source)
                calls_ = [KerasCall([LayerOutput(layer.name, number, 0)]) for number in range(len(calls_))]
        starts, ends = ([moved(ref) for ref in refs] for refs in (plan.starts, plan.ends))
        listed = order(new_calls, ends, starts)
        if unread := sorted(set(built) - set(listed)):
            raise refuse(name, f"the layers {', '.join(unread)}", "no output of the model depends on them")
        dtype = self.layers.translator.dtype
        model = NewModel(name, "Functional", {"name": name}, [built[step] for step in listed if step in built])
        written = {step.name: step.serialised(new_calls[step.name][0].places, dtype) for step in operations}
        model.config["layers"] = [
            written[step]
            if step in written
            else {**built[step].serialised(), "name": step, "inbound_nodes": _nodes(step, new_calls[step], lists[step], dtype)}
            for step in listed
        ]
        from_one = {layer.name for layer in built.values() if isinstance(layer, NewModel) and layer.class_name == "Functional"}
        model.config["input_layers"] = _ends(starts, from_one)
        model.config["output_layers"] = _ends(ends, from_one)
        return model


def _named(layer: str, number: int, names: set[str]) -> str:
    """Return the name of the operation that a call of a layer is: that of the layer for its first call."""
    if not number:
        return spelled(layer)
    name = spelled(layer, names)
    names.add(name)
    return name


def _nodes(name: str, calls: Sequence[KerasCall], several: bool, dtype: str) -> list[dict[str, Any]]:
    """Return the calls of a layer as Keras 3 writes them."""
    nodes = []
    for call in calls:
        if not call.reads:
            continue
        tensors = [referred(ref, dtype) for ref in call.reads]
        if len(tensors) > 1 and not several:
            raise refuse(name, f"a call on {len(tensors)} inputs", "the layer takes one")
        kwargs: dict[str, Any] = {}
        if "initial_state" in call.named:
            kwargs["initial_state"] = [referred(ref, dtype) for ref in call.named["initial_state"]]
        masks = [ref and referred(ref, "bool") for ref in call.named.get("mask", ())]
        if any(masks):
            kwargs["mask"] = masks if several else masks[0]
        nodes.append({"args": [tensors] if several else tensors, "kwargs": kwargs})
    return nodes


def _ends(refs: Sequence[LayerOutput], from_one: set[str]) -> list[Any]:
    """Return a model's inputs or outputs: there Keras counts the calls of a graph inside it from one."""
    listed = [[ref.layer, ref.call + (ref.layer in from_one), ref.index] for ref in refs]
    return listed[0] if len(listed) == 1 else listed


def _takes_list(old: SourceLayer) -> bool:
    """Return whether a layer takes its inputs as one list."""
    if old.is_model:
        return old.kind != "Sequential" and len(references(old.config.get("input_layers")) or ()) > 1
    return tables.LAYERS.get(old.kind, tables.ClassRule("")).several


def _checked(name: str, call: KerasCall) -> KerasCall:
    """Return a call as tensors and initial states. Raises RefusedError for an argument that changes what a layer computes."""
    states = flat(call.named.get("initial_state", []))
    plain = all(isinstance(value, LayerOutput) for value in (*flat(list(call.places)), *states))
    others = {key: value for key, value in call.named.items() if key != "initial_state" and (key, value) != ("training", False)}
    if not plain or others:
        what = " and ".join(f"{key} = {str(value)[:80]}" for key, value in others.items()) or str([*call.places, *states])[:80]
        raise refuse(name, f"a call with {what}", "it changes what the layer computes, or is not known")
    return KerasCall(call.reads, {"initial_state": states} if states else {})
