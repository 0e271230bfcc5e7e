"""Keras optimizers: live ones on any backend, and those in .keras and .h5 files.

Sources: keras/src/optimizers/{base_optimizer,adam,sgd,rmsprop,adagrad}.py, `build` and `update_step`. A file has an
optimizer's variables in the order in which `build` makes them.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from rnnconvert.containers import json_text
from rnnconvert.core.arrays import Array
from rnnconvert.core.errors import UnreadableError, UsageError
from rnnconvert.core.malformed import malformed
from rnnconvert.files.checkpoint import Checkpoint
from rnnconvert.formats.keras.cells import StatedLayers
from rnnconvert.formats.keras.live import numbers
from rnnconvert.formats.keras.live_units import variables_of
from rnnconvert.formats.keras.metadata import KerasMetadata
from rnnconvert.formats.keras.model.entries import every
from rnnconvert.formats.keras.optimizer_state import WORDS, Slots, settings_of, state_of, twice
from rnnconvert.models.model import Model, all_or_none
from rnnconvert.training.state import KINDS, CallerFacts, OptimizerState, listed, slots_needed

NAME = "keras"
TAKES = "a Keras optimizer"

_SLOTS = {
    "adam": {"first_moment": "_momentums", "second_moment": "_velocities", "largest_second_moment": "_velocity_hats"},
    "sgd": {"momentum": "momentums"},
    "rmsprop": {"square_average": "_velocities", "momentum": "_momentums", "average_gradient": "_average_gradients"},
    "adagrad": {"sum_of_squares": "_accumulators"},
}
"""The attributes that hold the slots."""
_BUILT = {
    "adam": (("first_moment", "second_moment"), ("largest_second_moment",)),
    "sgd": (("momentum",),),
    "rmsprop": (("square_average",), ("momentum",), ("average_gradient",)),
    "adagrad": (("sum_of_squares",),),
}
"""The order in which `build` makes them: those of one tuple variable by variable."""


def takes(value: Any) -> bool:
    """Return whether a live object is a Keras optimizer."""
    keras = sys.modules.get("keras")
    return keras is not None and isinstance(value, keras.optimizers.Optimizer)


def of_live(value: Any, model: Model, facts: CallerFacts) -> OptimizerState:
    """Return the state of a Keras optimizer.

    Raises UsageError if it is not built, of an unknown class, or built for other variables.
    """
    class_name = type(value).__name__
    title = f"the Keras optimizer {value.name!r} ({class_name})"
    if class_name == "LossScaleOptimizer":
        raise UsageError(f"{title} is around another one. Hand in its inner_optimizer")
    if class_name not in KINDS or not type(value).__module__.startswith("keras"):
        raise UsageError(f"{title} has unknown steps. The known optimizers are {', '.join(KINDS)}")
    if not value.built:
        raise UsageError(f"{title} is not built and keeps nothing yet. Call optimizer.build(model.trainable_variables)")
    names = _names(value, title, model)
    kind = KINDS[class_name]
    config = value.get_config()
    rate = float(numbers(value.learning_rate))
    settings = {
        name: {**settings_of(config, rate), **_own_decay(value, variable), **facts.hyperparameters}
        for name, variable in zip(names, value._trainable_variables, strict=True)
    }
    common = settings_of(config, rate)
    slots = {
        slot: {name: numbers(variable) for name, variable in zip(names, getattr(value, _SLOTS[kind][slot]), strict=True)}
        for slot in slots_needed(kind, common)
    }
    import keras

    state = state_of(title, kind, Slots(slots, int(numbers(value.iterations))), settings, config)
    return state.replace(notes=(*state.notes, *twice(kind, keras.config.backend(), names, model)))


def _names(optimizer: Any, title: str, model: Model) -> list[str]:
    if model.framework != NAME or model.live is None:
        raise UsageError(f"{title} belongs to a live Keras model, but {model.title} is not one")
    names = {id(variable): name for name, variable in reversed(variables_of(model.live).items())}
    strange = next((v for v in optimizer._trainable_variables if id(v) not in names), None)
    if strange is not None:
        raise UsageError(
            f"{title} was built for {strange.path!r}, which {model.title} does not have. Hand in the optimizer of the model that "
            "the weights went into or came from"
        )
    return [names[id(variable)] for variable in optimizer._trainable_variables]


def _own_decay(optimizer: Any, variable: Any) -> dict[str, Any]:
    """Return no weight decay where a variable is excluded from it."""
    excluded = optimizer.weight_decay and not optimizer._use_weight_decay(variable)
    return {"weight_decay": 0.0} if excluded else {}


def of_file(checkpoint: Checkpoint, model: Model, facts: CallerFacts) -> OptimizerState | None:
    """Return the optimizer in a .keras file, or in an .h5 file that Keras 3 wrote.

    Raises UsageError if it is unknown, or its variables do not fit the model's.
    """
    with malformed(
        lambda what: UsageError(f"{checkpoint.path}: its optimizer does not have the form that Keras gives it: {what}"),
        "rnnconvert.training",
    ):
        return _in_file(checkpoint, model, facts)


def _in_file(checkpoint: Checkpoint, model: Model, facts: CallerFacts) -> OptimizerState | None:
    described = _described(checkpoint)
    arrays = _variables(checkpoint)
    if described is None or not arrays:
        return None
    class_name, config = str(described.get("class_name")), described.get("config")
    title = f"the optimizer in {checkpoint.path} ({class_name})"
    if class_name not in KINDS or not isinstance(config, Mapping):
        raise UsageError(f"{title} has unknown steps. The known optimizers are {', '.join(KINDS)}")
    kind = KINDS[class_name]
    if arrays[0].shape != () or arrays[0].dtype.kind not in "iu":
        raise UsageError(
            f"{title} was written by Keras 2, which keeps its state in another order. Load the file in Keras, and hand in the "
            "live model and its optimizer"
        )
    count, rest = int(arrays[0]), arrays[1:]
    rate = None
    if not isinstance(config.get("learning_rate"), Mapping):
        rate, rest = float(rest[0]), rest[1:]
    elif "learning_rate" not in facts.hyperparameters:
        raise UsageError(
            f"{title} has a learning rate schedule, which is not computed here. Give its value at step {count}: "
            "hyperparameters={'learning_rate': ...}"
        )
    names = list(facts.parameters) if facts.parameters is not None else list(_trained(checkpoint, model))
    common = {**settings_of(config, rate), **facts.hyperparameters}
    per = len(slots_needed(kind, common))
    extra = int(bool(config.get("use_ema"))) + int(bool(config.get("gradient_accumulation_steps")))
    if len(rest) != (per + extra) * len(names):
        raise UsageError(
            f"{title} keeps {len(rest)} arrays, expected {(per + extra) * len(names)} for the {len(names)} weights {listed(names)}; "
            "name the weights it trains, in the order of model.trainable_variables, with parameters=[names]"
        )
    slots = _blocks(kind, common, rest[extra * len(names) :], names)
    for slot, held in slots.items():
        for name, array in held.items():
            if name not in model.arrays or tuple(array.shape) != tuple(model.arrays[name].shape):
                expected = tuple(model.arrays[name].shape) if name in model.arrays else "no such weight"
                raise UsageError(
                    f"{title}: the {slot.replace('_', ' ')} of {name!r} has shape {tuple(array.shape)}, expected {expected}; give "
                    "the order of model.trainable_variables with parameters=[names]"
                )
    state = state_of(title, kind, Slots(slots, count), {name: common for name in names}, config)
    attributes = checkpoint.metadata_as(KerasMetadata).get("attributes", {})
    backend = str(attributes.get("", {}).get("backend", ""))
    return state.replace(
        notes=(
            *state.notes,
            *twice(kind, backend, names, model),
            "the source's file does not name what its optimizer trains: the model's order was taken",
        )
    )


def _described(checkpoint: Checkpoint) -> Mapping[str, Any] | None:
    """Return the optimizer's configuration."""
    config = checkpoint.metadata_as(KerasMetadata).get("config") or {}
    compiled: Any = config.get("compile_config")
    if isinstance(compiled, Mapping) and isinstance(compiled.get("optimizer"), Mapping):
        return dict(compiled["optimizer"])
    attributes = checkpoint.metadata_as(KerasMetadata).get("attributes", {})
    text = attributes.get("", {}).get("training_config")
    try:
        parsed = json_text.loads(text, checkpoint.path) if isinstance(text, str) else {}
        settings = parsed.get("optimizer_config")
    except UnreadableError:
        raise
    except (ValueError, AttributeError):
        return None
    return settings if isinstance(settings, Mapping) else None


def _variables(checkpoint: Checkpoint) -> list[Array]:
    """Return the optimizer's variables in order."""
    zipped = [name for name in checkpoint.tensors if name.startswith("optimizer/vars/")]
    if zipped:
        return [checkpoint.tensors[name] for name in sorted(zipped, key=lambda name: int(name.rpartition("/")[2]))]
    return [array for name, array in checkpoint.tensors.items() if name.startswith("optimizer_weights/")]


def _trained(checkpoint: Checkpoint, model: Model) -> Iterator[str]:
    """Yield the weights that a file's optimizer trains, in the order of model.trainable_variables."""
    described = checkpoint.read_as(StatedLayers).model
    held = {layer.name for layer in (every(described) if described is not None else ()) if layer.config.get("trainable") is False}
    for unit in model.units:
        if held & set(unit.name.partition("[")[0].split("/")):
            continue
        model_arrays = {
            unit.names[t.name]
            for kind in unit.kinds
            if unit.readings
            for t in unit.reading(kind).tensors
            if t.part in ("mean", "variance") and t.name in unit.names
        }
        yield from (name for name in unit.arrays if name not in model_arrays)


def _blocks(kind: str, settings: Mapping[str, Any], arrays: Sequence[Array], names: Sequence[str]) -> dict[str, dict[str, Array]]:
    """Return the slots, from arrays in the order in which `build` makes them."""
    needed, blocks, start = slots_needed(kind, settings), {}, 0
    for block in _BUILT[kind]:
        slots = [slot for slot in block if slot in needed]
        for place, slot in enumerate(slots):
            run = arrays[start + place : start + len(slots) * len(names) : len(slots)]
            blocks[slot] = dict(zip(names, run, strict=True))
        start += len(slots) * len(names)
    return blocks


def fill(value: Any, model: Model, state: OptimizerState, frozen: Collection[str]) -> Any:
    """Give a live Keras optimizer another state, all of it or none."""
    names = _names(value, value.name, model)
    kind = state.kind
    changes: list[tuple[Any, Any]] = []
    for slot in slots_needed(kind, next(iter(state.settings.values()), {})):
        for name, variable in zip(names, getattr(value, _SLOTS[kind][slot]), strict=True):
            if name in state.slots[slot]:
                changes.append((variable, np.ascontiguousarray(state.slots[slot][name])))
    counts = [count for name, count in state.steps.items() if count is not None]
    if counts:
        changes.append((value._iterations, counts[0]))
    before = [(variable, numbers(variable).copy()) for variable, _ in changes]
    settings = next(iter(state.settings.values()), {})
    words = {word: getattr(value, word) for word in (*WORDS, "weight_decay") if hasattr(value, word) and word in settings}
    rate = float(numbers(value.learning_rate))

    def undo() -> None:
        for variable, array in before:
            variable.assign(array)
        for word, old in words.items():
            setattr(value, word, old)
        if float(numbers(value.learning_rate)) != rate:
            value.learning_rate = rate

    with all_or_none(undo):
        for variable, array in changes:
            variable.assign(array)
        for word, old in words.items():
            if (old or 0.0) != settings[word]:
                setattr(value, word, settings[word])
        if settings.get("learning_rate", rate) != rate:
            value.learning_rate = settings["learning_rate"]
    return value


def spelled(word: str, value: Any) -> str:
    """Return a hyperparameter as Keras writes it."""
    return f"{word}={value!r}"
