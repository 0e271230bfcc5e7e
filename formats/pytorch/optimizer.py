"""torch.optim: live optimizers, their state dictionaries, and those in checkpoint files.

Sources: torch/optim/{adam,sgd,rmsprop,adagrad}.py, `_single_tensor_*`; torch/optim/optimizer.py, `state_dict`, which
numbers the parameters group by group.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from rnnconvert.core.arrays import Array
from rnnconvert.core.errors import UsageError
from rnnconvert.core.malformed import malformed
from rnnconvert.files.checkpoint import Checkpoint
from rnnconvert.formats.pytorch.live import numbers
from rnnconvert.formats.pytorch.metadata import TorchMetadata
from rnnconvert.formats.pytorch.optimizer_entries import (
    SLOT_KEYS,
    WORDS,
    group_entries,
    group_of,
    hold,
    in_model_order,
    is_module,
    state_of,
)
from rnnconvert.models.model import Model, all_or_none
from rnnconvert.training.optimizer_readers import plain
from rnnconvert.training.state import KINDS, OUTSIDE, SLOTS, CallerFacts, OptimizerState, slots_needed

NAME = "pytorch"
TAKES = "a torch.optim.Optimizer or its state_dict()"

_KEYS = {
    "adam": {"betas", "amsgrad"},
    "sgd": {"dampening"},
    "rmsprop": {"alpha", "centered"},
    "adagrad": {"lr_decay", "initial_accumulator_value"},
}
"""The keys that only the groups of each kind have."""
State = Mapping[str, Any]


_DECAYING = {"coupled": "torch.optim.Adam", "decoupled": "torch.optim.AdamW"}


def takes(value: Any) -> bool:
    """Return whether a live object is a torch.optim.Optimizer or looks like its state dictionary."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.optim.Optimizer):
        return True
    return isinstance(value, Mapping) and {"state", "param_groups"} <= set(value)


def of_live(value: Any, model: Model, facts: CallerFacts) -> OptimizerState:
    """Return the state of a torch.optim.Optimizer, or of its state dictionary.

    Raises UsageError for an unknown class, for parameters that are not the model's, and for incomplete state.
    """
    if isinstance(value, Mapping):
        return _state("a torch optimizer's state", "", value, None, model, facts)
    optimizer_class = type(value)
    if optimizer_class.__name__ not in KINDS or not optimizer_class.__module__.startswith("torch.optim"):
        raise UsageError(
            f"{optimizer_class.__module__}.{optimizer_class.__qualname__} is an unknown optimizer. The known ones are "
            f"{', '.join(f'torch.optim.{name}' for name in KINDS)}"
        )
    return _state(
        f"torch.optim.{optimizer_class.__name__}", optimizer_class.__name__, value.state_dict(), _names(value, model), model, facts
    )


def _names(optimizer: Any, model: Model) -> list[str] | None:
    """Return the model's names of an optimizer's parameters, in its order; None where the model is not at hand."""
    if not is_module(model):
        return None
    names_by_id: dict[int, str] = {}
    for name, tensor in model.live.named_parameters(remove_duplicate=False):
        names_by_id.setdefault(id(tensor), name)
    names = []
    for group in optimizer.param_groups:
        for tensor in group["params"]:
            if id(tensor) not in names_by_id:
                raise UsageError(
                    f"the optimizer trains a parameter of shape {tuple(tensor.shape)} that {model.title} does not have. Hand in the "
                    "optimizer of the model that the weights went into or came from"
                )
            names.append(names_by_id[id(tensor)])
    return names


def of_file(checkpoint: Checkpoint, model: Model, facts: CallerFacts) -> OptimizerState | None:
    """Return the optimizer's state that a checkpoint holds next to the weights, under any name.

    Raises UsageError if it holds several, or one that is unknown or does not fit.
    """
    values = checkpoint.metadata_as(TorchMetadata).get("values", {})
    ends = ".param_groups.0.lr"
    prefixes = [name.removesuffix(ends[1:]) for name in values if f".{name}".endswith(ends)]
    if not prefixes:
        return None
    if len(prefixes) > 1:
        raise UsageError(
            f"{checkpoint.path} holds the state of {len(prefixes)} optimizers, under {', '.join(repr(p.rstrip('.')) for p in prefixes)}; "
            "load it with torch.load and hand in the state dictionary of one"
        )
    prefix = prefixes[0]
    state: dict[int, dict[str, Any]] = {}
    groups: dict[int, dict[str, Any]] = {}
    for name, value in {**values, **checkpoint.tensors}.items():
        match = re.fullmatch(r"(state|param_groups)\.(\d+)\.(\w+)", name.removeprefix(prefix))
        if name.startswith(prefix) and match:
            place = state if match[1] == "state" else groups
            place.setdefault(int(match[2]), {})[match[3]] = value
    listed_groups = [groups[number] for number in sorted(groups)]
    for group in listed_groups:
        if not isinstance(group.get("params"), list):
            raise UsageError(f"{checkpoint.path}: a group of its optimizer does not list its parameters")
    title = f"the optimizer's state in {checkpoint.path}"
    with malformed(lambda what: UsageError(f"{title} does not have the form that torch.optim gives it: {what}"), "rnnconvert.training"):
        return _state(title, "", {"state": state, "param_groups": listed_groups}, None, model, facts)


def _state(title: str, class_name: str, stored: State, names: list[str] | None, model: Model, facts: CallerFacts) -> OptimizerState:
    groups: list[dict[str, Any]] = list(stored["param_groups"])
    kind = _kind(title, class_name, groups)
    order = dict(enumerate(names)) if names is not None else in_model_order(title, groups, model, facts)
    slots: dict[str, dict[str, Array]] = {}
    settings: dict[str, dict[str, Any]] = {}
    steps: dict[str, int | None] = {}
    for group in groups:
        settings_of_name = _settings(title, kind, class_name, group, facts)
        for number in group["params"]:
            name = order[number]
            slots_of_state = stored["state"].get(number, {})
            if name in settings:
                raise UsageError(f"{title} trains {name!r} twice")
            settings[name] = settings_of_name
            if kind != "sgd":
                steps[name] = int(plain(slots_of_state.get("step", 0)))
            for slot in slots_needed(kind, settings_of_name):
                array = _slot(title, name, slots_of_state, SLOT_KEYS[kind][slot], tuple(model.arrays[name].shape), model.arrays[name].dtype)
                if SLOTS[kind][slot] and (array < 0).any():
                    raise UsageError(f"{title}: {SLOT_KEYS[kind][slot]!r} of {name!r} is a square and has negative numbers")
                slots.setdefault(slot, {})[name] = array
    if names is None:
        how = "in the order of parameters=" if facts.parameters else "in the order of model.parameters()"
        notes: tuple[str, ...] = (f"the source's optimizer numbers its parameters, which were taken {how}",)
    else:
        notes = ()
    if any(group.get("initial_lr") is not None for group in groups):
        notes += ("a learning rate schedule is set for the source's optimizer, but it is not moved",)
    return OptimizerState(
        NAME,
        title,
        kind,
        tuple(settings),
        slots,
        settings,
        steps,
        tuple(tuple(order[number] for number in group["params"]) for group in groups),
        "" if kind == "sgd" else OUTSIDE,
        own_pace=True,
        notes=notes,
        decaying=_DECAYING,
        lacks=(),
    )


def _kind(title: str, class_name: str, groups: list[dict[str, Any]]) -> str:
    if class_name:
        return KINDS[class_name]
    keys = set(groups[0]) if groups else set()
    kind = next((kind for kind, kind_keys in _KEYS.items() if kind_keys <= keys), "")
    if not kind:
        raise UsageError(
            f"{title} belongs to an unknown optimizer: its groups have {', '.join(sorted(keys)) or 'nothing'}. "
            f"The known ones are {', '.join(KINDS)}"
        )
    return kind


def _settings(title: str, kind: str, class_name: str, group: Mapping[str, Any], facts: CallerFacts) -> dict[str, Any]:
    settings = {word: plain(group[key]) for key, word in WORDS.items() if key in group}
    if kind == "adam":
        settings["beta_1"], settings["beta_2"] = (plain(beta) for beta in group["betas"])
        decoupled = group.get("decoupled_weight_decay", None if not class_name else class_name == "AdamW")
        if decoupled is not None:
            settings["decay"] = "decoupled" if decoupled else "coupled"
        elif settings["weight_decay"] and "decay" not in facts.hyperparameters:
            raise UsageError(
                f"{title} does not state whether it is from Adam or AdamW, but weight_decay is {settings['weight_decay']}. Give it with "
                "hyperparameters={'decay': 'coupled'} (Adam) or 'decoupled' (AdamW)"
            )
    else:
        settings["decay"] = "coupled"
    return {**settings, **facts.hyperparameters}


def _slot(title: str, name: str, slots: State, key: str, shape: tuple[int, ...], dtype: Any) -> Array:
    """Return a slot's numbers; zeros where the parameter was never trained, as torch begins it."""
    value = slots.get(key)
    if value is None:
        others = [other for other in slots if other not in ("step", key) and slots[other] is not None]
        if others or (int(plain(slots.get("step", 0))) and key != "momentum_buffer"):
            raise UsageError(
                f"{title}: {name!r} has {', '.join(map(repr, others)) or 'steps'} but no {key!r}: half of its state is missing"
            )
        return np.zeros(shape, dtype)
    array = value if isinstance(value, np.ndarray) else numbers(value)
    if tuple(array.shape) != shape:
        raise UsageError(
            f"{title}: {key!r} of {name!r} has shape {tuple(array.shape)}, but the parameter {shape}. The state belongs to other "
            "weights, or the order of the parameters differs: give it with parameters=[names]"
        )
    if array.dtype.kind not in "fV":
        raise UsageError(f"{title}: {key!r} of {name!r} is of type {array.dtype}, expected floating-point numbers")
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise UsageError(f"{title}: {key!r} of {name!r} has numbers that are not finite")
    return array


def fill(value: Any, model: Model, state: OptimizerState, frozen: Collection[str]) -> Any:
    """Give a torch.optim.Optimizer another state, all of it or none.

    A frozen parameter goes into a separate group, with a learning rate and a weight decay of zero: its number does not change under any
    optimizer here.

    Raises UsageError for a state dictionary: only a live optimizer can be filled.
    """
    import torch

    if isinstance(value, Mapping):
        raise UsageError("only a live torch.optim.Optimizer can be filled. Make one, and hand it in")
    if not is_module(model):
        raise UsageError(f"{model.title} has no parameters that an optimizer could hold. Load the weights into the module itself")
    tensors = dict(model.live.named_parameters(remove_duplicate=False))
    states = {name: state_of(torch, tensors[name], name, state, group_of(value, tensors[name])) for name in state.names}
    before = {id(tensors[name]): value.state.get(tensors[name]) for name in states}
    groups = [(group, dict(group), list(group["params"])) for group in value.param_groups]

    def undo() -> None:
        for name in states:
            value.state.pop(tensors[name], None)
            if before[id(tensors[name])] is not None:
                value.state[tensors[name]] = before[id(tensors[name])]
        value.param_groups[:] = [group for group, _, _ in groups]
        for group, old, params in groups:
            group.clear()
            group.update({**old, "params": params})

    with all_or_none(undo):
        for name, slots in states.items():
            if slots is None:
                value.state.pop(tensors[name], None)
            else:
                value.state[tensors[name]] = slots
            group = group_of(value, tensors[name])
            group.update(group_entries(group, state.settings[name]))
        hold(value, [tensors[name] for name in tensors if name in frozen])
    return value


_BETAS = {"beta_1": "betas=({}, ...)", "beta_2": "betas=(..., {})"}


def spelled(word: str, value: Any) -> str:
    """Return a hyperparameter as torch.optim writes it."""
    if word in _BETAS:
        return _BETAS[word].format(value)
    return f"{next((key for key, setting in WORDS.items() if setting == word), word)}={value!r}"
