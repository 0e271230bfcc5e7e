"""A whole Keras model, of any age, as a description: every layer that formats/keras/export knows, its masks as tensors of their own.

What a layer's settings mean is Keras's (keras 3.15 keras/src/layers); files of Keras 1 and 2 become a Keras 3 model first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rnnconvert.containers.layer_calls import calls_of
from rnnconvert.containers.layer_config import of_file
from rnnconvert.core.errors import RefusedError, UsageError
from rnnconvert.core.remedies import Flag
from rnnconvert.files.options import Options
from rnnconvert.formats.keras import architecture, outside
from rnnconvert.formats.keras.describe.stand_ins import read_in_part
from rnnconvert.formats.keras.export.calls import ExportCall
from rnnconvert.formats.keras.export.layer_facts import LayerFacts, refuse
from rnnconvert.formats.keras.export.layers import one_input
from rnnconvert.formats.keras.export.masks import hand_on, masks_on
from rnnconvert.formats.keras.export.source import read
from rnnconvert.formats.keras.files import is_architecture, stored_in
from rnnconvert.formats.keras.upgrade.old import SourceLayer, is_shape, tree
from rnnconvert.formats.keras.walk import Walk
from rnnconvert.scaffolding.description import Description, Scope, Shape, Value, prune
from rnnconvert.scaffolding.names import Names

Tell = Callable[["Writer", LayerFacts, Sequence[Value]], list[Value]]
"""Adds what a layer computes, and returns what it gives."""


class Writer(Walk[Value]):
    """A model on its way into a description.

    scope   the model whose nodes are being added
    masks   the masks that Keras keeps beside tensors, by the tensor's name
    dtypes  the types of tensors that are not float32, likewise
    values  every tensor by its name
    notes   what a reader of the result should know
    names   what a file may call each layer, by its path
    unread  why the calls of some layers are not followed, by their names
    """

    def __init__(self, partial: bool = False) -> None:
        self.partial = partial
        self.scope = Scope("")
        self.path: tuple[str, ...] = ()
        self.masks: dict[str, Value] = {}
        self.dtypes: dict[str, str] = {}
        self.values: dict[str, Value] = {}
        self.notes: list[str] = []
        self.names: dict[str, tuple[str, ...]] = {}
        self._names = Names()
        self.unread: dict[str, RefusedError] = {}
        self._models: dict[tuple[str, ...], _Inner] = {}

    def value(self, wanted: str, shape: Sequence[int | None], dtype: str = "float32") -> Value:
        """Return a new tensor."""
        value = Value(self._names.new(wanted), tuple(shape), dtype)
        self.values[value.name] = value
        if dtype != "float32":
            self.dtypes[value.name] = dtype
        return value

    def add(
        self,
        kind: str,
        facts: LayerFacts,
        inputs: Sequence[Value],
        shape: Sequence[int | None],
        named: Mapping[str, Sequence[Value]] | None = None,
        dtype: str = "float32",
        **settings: Any,
    ) -> Value:
        """Add a node of one output, and return that."""
        output = self.value(facts.name, shape, dtype)
        self.node(kind, facts, facts.name, inputs, [output], named, **settings)
        return output

    def node(
        self,
        kind: str,
        facts: LayerFacts,
        layer: str,
        inputs: Sequence[Value],
        outputs: Sequence[Value],
        named: Mapping[str, Sequence[Value]] | None = None,
        **settings: Any,
    ) -> None:
        """Add a node of a layer, and note what a file may call it."""
        inner = layer.replace(facts.name, facts.old.name, 1)
        self.names[self.called(layer)] = tuple(dict.fromkeys((layer, inner, self.called(layer), self.called(inner))))
        self.scope.add(kind, layer, inputs, outputs, named, **settings)

    def called(self, name: str) -> str:
        """Return a layer's path."""
        return "/".join((*self.path, name))

    def truth(self, operator: str, inputs: Sequence[str], wanted: str, shape: Sequence[int | None]) -> Value:
        """Add what joins masks, as formats/keras/export/masks.py asks for it."""
        mask = self.value("mask", shape, "bool")
        self.scope.add("mask", "", [self.values[name] for name in inputs], [mask], operation=operator.lower())
        return mask

    # The walk

    def start(self, old: SourceLayer) -> Value:
        """Return an input of the model."""
        config = old.entry.config
        shape = config.get("batch_shape", config.get("batch_input_shape"))
        dtype = config.get("dtype", "float32")
        if not is_shape(shape) or dtype not in ("float32", "int32", "int64", "bool") or config.get("sparse") or config.get("ragged"):
            raise refuse(
                old.name,
                f"an input of shape {shape!r} and type {dtype!r}",
                "only plain tensors of float32, int32, int64 and bool are known",
            )
        value = self.value(old.name, shape, dtype)
        self.scope.inputs += (value,)
        return value

    def layer(self, facts: LayerFacts, values: Sequence[Value], call: ExportCall) -> list[Value]:
        """Return what a layer, a model or an operation gives, or what stands for it where it may be left out."""
        readers, count, scope, path = self.readers, len(self.scope.nodes), self.scope, self.path
        try:
            if (error := self.unread.get(facts.name)) is not None:
                raise error
            return self._layer(facts, values, call)
        except RefusedError as error:
            if not self.partial:
                raise
            self.scope, self.path = scope, path
            del scope.nodes[count:]
            return self._left_out(facts, values, error, readers())

    def calls(self, old: SourceLayer) -> list[ExportCall]:
        """Return the calls of a layer: of one that may be left out all that it reads."""
        try:
            return super().calls(old)
        except RefusedError as error:
            if not self.partial:
                raise
            self.unread[old.name] = error
            return [ExportCall(call.sources()) for call in calls_of(old.entry, "the configuration")] or [ExportCall()]

    def _left_out(
        self, facts: LayerFacts, values: Sequence[Value], error: RefusedError, readers: Sequence[tuple[int, SourceLayer | None]]
    ) -> list[Value]:
        """Add a node that stands for a layer, and return what it gives: with the axes that the configuration states."""
        outputs = []
        for number in range(max((index for index, _ in readers), default=0) + 1):
            shapes = [_input_shape(layer) for index, layer in readers if index == number and layer is not None]
            shape = next((shape for shape in (*shapes, _stated_shape(facts.old)) if shape is not None), None)
            outputs.append(replace(self.value(facts.name, shape or ()), sized=shape is not None))
        self.scope.add("left out", facts.name, values, outputs, error=error)
        return outputs

    def _layer(self, facts: LayerFacts, values: Sequence[Value], call: ExportCall) -> list[Value]:
        from rnnconvert.formats.keras.describe.layers import LAYERS, MOVING
        from rnnconvert.formats.keras.describe.operations import OPERATIONS

        old = facts.old
        if any(not value.sized for value in values):
            raise refuse(self.called(old.name), "an input of unknown shape", "it is what a layer gives that is left out")
        if not old.entry.built_in:
            raise refuse(self.called(old.name), f"a class of your own, {old.kind!r}", "only Keras's layers are known here")
        if old.is_model:
            return self._inner(facts, values)
        for layer in old.walk():
            if (kind := _computes_in(layer)) in ("float16", "bfloat16", "float64"):
                raise refuse(self.called(old.name), f"a layer that computes in {kind}", "the written model computes in float32")
        if old.is_operation:
            operation = OPERATIONS.get(old.kind)
            if operation is None:
                raise refuse(old.name, f"an operation of class {old.kind!r}", "no rule for it is known here")
            result = [operation(self, facts, call.arguments(values))]  # type: ignore[arg-type]
            facts.finish()
            return result
        if old.kind == "TimeDistributed":
            outputs = self._each_step(facts, values)
        else:
            tell = LAYERS.get(old.kind)
            if tell is None:
                why = "it is code, and no code of a file is run" if old.kind == "Lambda" else "no rule for it is known here"
                raise refuse(self.called(old.name), f"a layer of class {old.kind!r}", why)
            typed = [value for value in values if value.dtype != "float32"]
            if typed and old.kind not in MOVING:
                raise refuse(old.name, f"whole numbers in a layer of class {old.kind!r}", "only an Embedding reads them here")
            outputs = tell(self, facts, values)
        facts.finish()
        hand_on(self, facts, values, outputs, _joined)
        return outputs

    def _each_step(self, facts: LayerFacts, values: Sequence[Value]) -> list[Value]:
        """Return what a TimeDistributed gives: its layer works on all steps as on one batch."""
        x: Any = one_input(facts, values)  # type: ignore[arg-type]
        inner = facts.old.inside[0]
        facts.get("layer")
        if len(x.shape) < 2:
            raise refuse(facts.name, "an input without time in a TimeDistributed", "its steps are laid side by side")
        inside = LayerFacts(inner, inner.entry.config)
        if inner.kind in ("Dense", "Activation", "Dropout") and len(x.shape) > 2 and not inner.is_model:
            if (mask := masks_on(self, facts, [x])[0]) is not None:  # type: ignore[arg-type]
                self.masks[x.name] = mask  # type: ignore[assignment]
            return self._layer(_Renamed(inside, facts.name), [x], ExportCall())  # they work on the last axis alone
        flat = self.value("steps", (None, *x.shape[2:]), x.dtype)
        self.scope.add("steps to batch", "", [x], [flat])
        mask = masks_on(self, facts, [x])[0]  # type: ignore[arg-type]
        if mask is not None:
            if len(mask.shape) > 2:
                raise refuse(facts.name, "a mask within the steps of a TimeDistributed", "only a mask over the steps is known here")
            self.masks[x.name] = mask  # type: ignore[assignment]
        outputs = self._layer(inside if inner.is_model else _Renamed(inside, facts.name), [flat], ExportCall())
        if len(outputs) != 1:
            raise refuse(facts.name, f"a TimeDistributed around {inner.kind} with several outputs", "only one is known here")
        out = self.value(facts.name, (*x.shape[:2], *outputs[0].shape[1:]), outputs[0].dtype)
        self.scope.add("batch to steps", "", [outputs[0], x], [out])
        return [out]

    def _inner(self, facts: LayerFacts, values: Sequence[Value]) -> list[Value]:
        """Return what a model in the model gives; all its calls share one scope, so their tensors must be of one kind."""
        masks = masks_on(self, facts, values)  # type: ignore[arg-type]
        facts.finish_call()
        path = (*self.path, facts.name)
        kind = tuple((value.shape, value.dtype, mask is not None and mask.shape) for value, mask in zip(values, masks, strict=True))
        inner = self._models.get(path)
        if inner is None:
            inner = self._models[path] = self._described(facts.old, path, values, masks, kind)
        elif inner.kind != kind:
            raise refuse(
                self.called(facts.name),
                "a model called on tensors of several shapes, or with a mask and without",
                "it is written once, for one kind of input",
            )
        arguments = [*values, *(mask for mask in masks if mask is not None)]
        outputs = [self.value(facts.name, value.shape, value.dtype) for value in inner.scope.outputs]
        self.scope.add("model", facts.name, arguments, outputs, scope=inner.scope)  # type: ignore[arg-type]
        for value, mask in zip(outputs, inner.masks, strict=False):
            if mask is not None:
                self.masks[value.name] = outputs[inner.scope.outputs.index(mask)]
        return outputs[: inner.count]

    def _described(
        self, old: SourceLayer, path: tuple[str, ...], values: Sequence[Value], masks: Sequence[Any], kind: tuple[Any, ...]
    ) -> _Inner:
        outer, before = self.scope, self.path
        self.scope, self.path = Scope(old.name, "/".join(path)), path
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
        return _Inner(scope, kind, len(ends), tuple(end_masks))


class _Inner:
    """A model in the model, and the masks that its outputs have."""

    def __init__(self, scope: Scope, kind: tuple[Any, ...], count: int, masks: tuple[Value | None, ...]) -> None:
        self.scope, self.kind, self.count, self.masks = scope, kind, count, masks


class _Renamed(LayerFacts):
    """The settings of the layer in a wrapper, which has the wrapper's name."""

    def __init__(self, facts: LayerFacts, name: str) -> None:
        super().__init__(facts.old, facts.config, facts.used, facts.named, facts.flags)
        object.__setattr__(self, "outer", name)

    @property
    def name(self) -> str:
        """The wrapper's name."""
        return str(self.__dict__["outer"])


def _computes_in(old: SourceLayer) -> str:
    """Return the type of numbers in which a layer computes, as its policy states it."""
    policy = old.entry.config.get("dtype")
    while isinstance(policy, Mapping):
        policy = policy["config"].get("name") if isinstance(policy.get("config"), Mapping) else str(policy.get("class_name"))
    return str(policy or "float32").removeprefix("mixed_")


def _input_shape(old: SourceLayer) -> Shape | None:
    """Return the shape that a layer was built on, None where its configuration does not state one."""
    stated = _shape((old.raw.get("build_config") or {}).get("input_shape"))
    inner = old.inside[0] if old.kind == "Bidirectional" else old
    kernel = inner.arrays.get("kernel")
    if stated is None and kernel is not None and inner.kind in _BY_KERNEL:
        rank = 3 if kernel.ndim == 2 else kernel.ndim
        return (*[None] * (rank - 1), int(kernel.shape[-2]))
    return stated


_BY_KERNEL = ("LSTM", "GRU", "SimpleRNN", "Conv1D", "Conv2D", "Conv3D")
"""The layers whose kernel shows how many axes they read, and how wide the last is."""


def _shape(stated: Any) -> Shape | None:
    return tuple(stated) if is_shape(stated) else None


def _stated_shape(old: SourceLayer) -> Shape | None:
    """Return the shape that a Lambda states of what it gives, None without one."""
    shape = _shape(old.entry.config.get("output_shape"))
    return None if shape is None else (None, *shape)


def _joined(w: Writer, facts: LayerFacts, values: Sequence[Value], masks: Sequence[Value | None]) -> Value | None:
    """Return the mask on a Concatenate: see formats/keras/export/masks.py."""
    from rnnconvert.formats.keras.export.masks import either

    if all(mask is None for mask in masks):
        return None
    rank = len(values[0].shape)
    axis = int(facts.get("axis", -1)) % rank
    if any(mask is not None and len(mask.shape) != rank - 1 for mask in masks):
        raise refuse(facts.name, "masks with other numbers of axes than its inputs", "Keras spreads them over the wrong ones")
    if axis == rank - 1:
        return either(w, facts, masks)  # type: ignore[arg-type,return-value]
    parts = []
    for value, mask in zip(values, masks, strict=True):
        if mask is None:
            mask = w.value("mask", value.shape[:-1], "bool")
            w.scope.add("mask", "", [value], [mask], operation="all true")
        parts.append(mask)
    lengths = [mask.shape[axis] for mask in parts]
    shape: Shape = (*parts[0].shape[:axis], None if None in lengths else sum(n or 0 for n in lengths), *parts[0].shape[axis + 1 :])
    output = w.value("mask", shape, "bool")
    w.scope.add("concatenate", "", parts, [output], axis=axis)
    return output


def _top(path: Path, config: Path | None, writer: Writer) -> SourceLayer:
    """Return the layers of a file: of Keras 3's as the configuration states them, whatever their arrays; of an older one brought up."""
    document, version = architecture.read(config or path) if path.is_file() else ({}, "")
    if version.startswith("3"):
        top = tree(document)
    elif writer.partial:
        top, writer.unread = read_in_part(path, config)
    else:
        top = read(path, config)
    if not top.is_model or not top.entry.built_in:
        raise refuse(top.name, f"a model of class {top.kind!r}", "it is not built from layers alone")
    return top


def _config_of(path: Path, config: Path | None) -> tuple[Path | None, tuple[str, ...]]:
    """Return where the model of weights alone is stated, None for a file that states its own, and what to know of the choice."""
    if not path.is_file():
        return config, ()
    chosen = outside.of(path, stored_in(path), Options({} if config is None else {"config": str(config)}))
    if chosen.config is None and config is not None:
        raise UsageError(f"{path} holds its model's configuration. Leave out config ({config})")
    if chosen.config is not None:
        return chosen.path, (chosen.warning,) if chosen.warning else ()
    if not is_architecture(architecture.stated(path)[0]):
        raise UsageError(
            f"{path} holds weights without a model. Hand in the model as model.to_json wrote it, with {Flag('config')}{chosen.hint}"
        )
    return None, ()


def describe(path: Path, config: Path | None = None, partial: bool = False) -> Description:
    """Return the model of a file.

    config   the model of weights that are alone, as model.to_json wrote it; without it the only such file next to them that fits
    partial  let nodes "left out" stand for what is not known

    Raises RefusedError for a layer or a setting that is not known, UsageError for a file without a model, UnreadableError for a
    damaged one.
    """
    config, notes = _config_of(path, config)
    writer = Writer(partial)
    writer.notes += notes
    with of_file(path, "rnnconvert.formats.keras"):
        top = _top(path, config, writer)
        writer.scope.name = top.name
        writer.scope.outputs = tuple(writer.model(top, None))
    prune(writer.scope)
    options = {} if config is None else {"config": str(config)}
    return Description(writer.scope, tuple(writer.notes), writer.names, options)
