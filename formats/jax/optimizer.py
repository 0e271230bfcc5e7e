"""optax: states of its optimizers, trees of JAX arrays like the parameters' own.

Sources: optax/_src/transform.py (`scale_by_adam`, `scale_by_rms`, `scale_by_stddev`, `scale_by_rss`),
optax/transforms/_accumulation.py (`trace`), optax/_src/alias.py, which shows where the learning rate enters. A state
does not hold its hyperparameters, unless optax.inject_hyperparams put them there.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import numpy as np

from rnnconvert.core.arrays import Array
from rnnconvert.core.errors import UsageError
from rnnconvert.files.checkpoint import Checkpoint
from rnnconvert.formats.jax.arrays import named_arrays, with_arrays
from rnnconvert.models.model import Model
from rnnconvert.training.optimizer_readers import plain
from rnnconvert.training.state import INSIDE, LACKING, OUTSIDE, SLOTS, CallerFacts, OptimizerState, listed

NAME = "optax"
TAKES = "an optax state or an nnx.Optimizer"

_STATES = {
    "ScaleByAdamState": ("adam", {"mu": "first_moment", "nu": "second_moment"}),
    "ScaleByRmsState": ("rmsprop", {"nu": "square_average"}),
    "ScaleByRStdDevState": ("rmsprop", {"mu": "average_gradient", "nu": "square_average"}),
    "ScaleByRssState": ("adagrad", {"sum_of_squares": "sum_of_squares"}),
    "TraceState": ("sgd", {"trace": "momentum"}),
}
"""The states that hold slots: their kind, and their fields."""
_CARRIERS = (
    "EmptyState",
    "ScaleByScheduleState",
    "MaskedState",
    "PartitionState",
    "InjectHyperparamsState",
    "MaskedNode",
    "InjectStatefulHyperparamsState",
    "WrappedScheduleState",
)
"""States whose content changes no step, or that are around others."""
_WORDS = {
    "learning_rate": "learning_rate",
    "b1": "beta_1",
    "b2": "beta_2",
    "eps": "epsilon",
    "decay": "rho",
    "momentum": "momentum",
    "weight_decay": "weight_decay",
}
_EPSILON = {"adam": OUTSIDE, "rmsprop": "", "adagrad": INSIDE, "sgd": ""}
"""Where epsilon stands; optax.rmsprop's eps_in_sqrt decides it, which its state does not hold."""


_PACE = "optax.partition, or optax.masked(optax.scale(2.0), ...) behind scale_by_...; weight decay stays"


def takes(value: Any) -> bool:
    """Return whether a live object is a state that an optax optimizer made, or Flax's nnx.Optimizer, which has one."""
    return "optax" in sys.modules and any(_is_state(node) for node in _walk(_state_in(value)))


def _is_nnx(value: Any) -> bool:
    return type(value).__module__.startswith("flax.nnx") and hasattr(value, "opt_state")


def _state_in(value: Any) -> Any:
    return value.opt_state if _is_nnx(value) else value


def _is_state(value: Any) -> bool:
    return isinstance(value, tuple) and hasattr(value, "_fields") and type(value).__module__.startswith("optax")


def _walk(value: Any) -> Iterator[Any]:
    """Yield every optax state in a tree of states, the outer ones first."""
    if _is_state(value):
        yield value
        if type(value).__name__ in _STATES:
            return
    if isinstance(value, tuple):
        for child in value:
            yield from _walk(child)
    elif isinstance(value, Mapping):
        for child in value.values():
            yield from _walk(child)


def of_live(value: Any, model: Model, facts: CallerFacts) -> OptimizerState:
    """Return the state of an optax optimizer: what `init` and `update` give.

    Raises UsageError for an unknown state, or one whose tree is not the model's.
    """
    states = list(_walk(_state_in(value)))
    names = {type(state).__name__ for state in states}
    unknown = sorted(names - set(_STATES) - set(_CARRIERS))
    kinds = {_STATES[name][0] for name in names if name in _STATES}
    if unknown or not kinds or (kinds - {"rmsprop", "sgd"} and len(kinds) > 1):
        what = unknown or sorted(names)
        raise UsageError(
            f"an optax state with {', '.join(what)} belongs to an unknown optimizer. The known ones are optax.adam, adamw, "
            "sgd with momentum, rmsprop and adagrad"
        )
    # RMSprop's momentum is a trace behind the square: of what was multiplied by minus the learning rate already.
    kind = "rmsprop" if "rmsprop" in kinds else kinds.pop()
    title = f"the optax state ({kind})"
    slots: dict[str, dict[str, Array]] = {}
    counts = set()
    for state in states:
        for field, slot in _STATES.get(type(state).__name__, ("", {}))[1].items():
            leaves = slots.setdefault(slot, {})
            for path, leaf in named_arrays(getattr(state, field)).items():
                name = _name(path, model)
                if name is None:
                    raise UsageError(f"{title} has a leaf {path!r}, but {model.title} has no such array")
                leaves[name] = leaf
                _check(title, slot, SLOTS[kind][slot], name, leaves[name], model)
        if "count" in state._fields and type(state).__name__ in _STATES:  # every tuple has a method of that name
            counts.add(int(plain(state.count)))
    if len(counts) > 1:
        raise UsageError(f"{title} has counts of {' and '.join(map(str, sorted(counts)))} steps; one was expected")
    first = next(iter(slots.values()))
    for slot, numbers in slots.items():
        lacking = [name for name in first if name not in numbers]
        if lacking:
            raise UsageError(f"{title} has no {slot.replace('_', ' ')} of {listed(lacking)}: half of its state is missing")
    settings = {**_hyperparameters(states), **_evident_settings(kind, slots), **facts.hyperparameters}
    order = tuple(name for name in model.arrays if name in first)
    return OptimizerState(
        NAME,
        title,
        kind,
        order,
        slots,
        {name: settings for name in order},
        {name: counts.copy().pop() if counts else None for name in order},
        (order,),
        _EPSILON[kind],
        {"momentum": -1} if kind == "rmsprop" else {},
        one_count=True,
        pace=_PACE,
    )


def _check(title: str, slot: str, square: bool, name: str, array: Array, model: Model) -> None:
    expected = tuple(model.arrays[name].shape)
    if tuple(array.shape) != expected:
        raise UsageError(f"{title}: the {slot.replace('_', ' ')} of {name!r} has shape {tuple(array.shape)}, expected {expected}")
    if array.dtype.kind == "f" and (not np.isfinite(array).all() or (square and (array < 0).any())):
        what = "negative numbers, and is a square" if np.isfinite(array).all() else "numbers that are not finite"
        raise UsageError(f"{title}: the {slot.replace('_', ' ')} of {name!r} has {what}")


def _name(path: str, model: Model) -> str | None:
    """Return the model's name of a leaf: its path in the tree, or in the collection "params" that the model has around it."""
    if path in model.arrays:
        return path
    return next((text for text in (f"params/{path}", path.replace("/", ".")) if text in model.arrays), None)


def _hyperparameters(states: list[Any]) -> dict[str, Any]:
    """Return the hyperparameters that optax.inject_hyperparams keeps."""
    settings: dict[str, Any] = {}
    for state in states:
        stored = getattr(state, "hyperparams", None)
        if isinstance(stored, Mapping):
            settings |= {_WORDS[key]: plain(value) for key, value in stored.items() if key in _WORDS}
    return settings


def _evident_settings(kind: str, slots: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of an optimizer that the form of its state shows."""
    if kind == "rmsprop":
        return {**LACKING, "centered": "average_gradient" in slots}
    return {**LACKING, "amsgrad": False, "decay": "decoupled"} if kind == "adam" else LACKING


def of_file(checkpoint: Checkpoint, model: Model, facts: CallerFacts) -> OptimizerState | None:
    """Return None: JAX has no file format."""
    return None


def fill(value: Any, model: Model, state: OptimizerState, frozen: Collection[str]) -> Any:
    """Return a new optax state like this one, with other numbers; the state given stays unchanged, an nnx.Optimizer takes it."""
    import jax
    import jax.numpy as jnp

    counts = [count for count in state.steps.values() if count is not None]
    settings = next(iter(state.settings.values()), {})

    def numbers(slot: str, old: Any) -> dict[str, Array]:
        names = {path: _name(path, model) or "" for path in named_arrays(old)}
        return {path: state.slots[slot][name] for path, name in names.items() if name in state.slots[slot]}

    def filled(node: Any) -> Any:
        if not isinstance(node, (tuple, Mapping)):
            return node
        if isinstance(node, Mapping):
            return type(node)({key: filled(child) for key, child in node.items()})  # type: ignore[call-arg]
        if not _is_state(node):
            children = [filled(child) for child in node]
            return type(node)(*children) if hasattr(node, "_fields") else tuple(children)
        fields = node._asdict()  # type: ignore[attr-defined]
        slots_here = _STATES.get(type(node).__name__, ("", {}))[1]
        for field, old in fields.items():
            if field in slots_here:
                fields[field] = with_arrays(old, numbers(slots_here[field], old))
            elif field == "count" and counts:
                fields[field] = jnp.asarray(counts[0], dtype=old.dtype)
            elif field == "hyperparams":
                updated = {key: settings.get(_WORDS.get(key, ""), item) for key, item in old.items()}
                fields[field] = {key: jnp.asarray(item, dtype=old[key].dtype) for key, item in updated.items()}
            elif not slots_here:
                fields[field] = filled(old)
        return type(node)(**fields)

    if not _is_nnx(value):
        return filled(value)
    from flax import nnx

    def leaves(tree: Any) -> list[Any]:
        return [*jax.tree_util.tree_leaves(tree, is_leaf=lambda node: isinstance(node, nnx.Variable))]

    numbers_of = [node[...] if isinstance(node, nnx.Variable) else node for node in leaves(filled(value.opt_state))]
    for variable, array in zip(leaves(value.opt_state), numbers_of, strict=True):
        variable.set_value(jnp.asarray(array))
    if counts:
        value.step.set_value(jnp.asarray(counts[0], dtype=value.step[...].dtype))
    return value


_SPELLED = {word: key for key, word in _WORDS.items()}


def spelled(word: str, value: Any) -> str:
    """Return a hyperparameter as optax's functions take it."""
    return f"{_SPELLED.get(word, word)}={value!r}"
