"""Entries of a torch optimizer's state, by parameter."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rnnconvert.core.arrays import BFLOAT16
from rnnconvert.core.errors import UsageError
from rnnconvert.models.model import Model
from rnnconvert.training.state import CallerFacts, OptimizerState, listed, slots_needed

NAME = "pytorch"

WORDS = {
    "lr": "learning_rate",
    "eps": "epsilon",
    "weight_decay": "weight_decay",
    "amsgrad": "amsgrad",
    "maximize": "maximize",
    "momentum": "momentum",
    "nesterov": "nesterov",
    "dampening": "dampening",
    "alpha": "rho",
    "centered": "centered",
    "lr_decay": "rate_decay",
}


SLOT_KEYS = {
    "adam": {"first_moment": "exp_avg", "second_moment": "exp_avg_sq", "largest_second_moment": "max_exp_avg_sq"},
    "sgd": {"momentum": "momentum_buffer"},
    "rmsprop": {"square_average": "square_avg", "momentum": "momentum_buffer", "average_gradient": "grad_avg"},
    "adagrad": {"sum_of_squares": "sum"},
}


_BUFFERS = ("running_mean", "running_var", "num_batches_tracked")


def is_module(model: Model) -> bool:
    """Return whether a model is a live module, which distinguishes parameters from buffers."""
    return model.framework == NAME and hasattr(model.live, "named_parameters")


def in_model_order(title: str, groups: list[dict[str, Any]], model: Model, facts: CallerFacts) -> dict[int, str]:
    """Return the model's name of each parameter's number."""
    numbered = [number for group in groups for number in group["params"]]
    stated = [name for group in groups for name in group.get("param_names", ())]
    if facts.parameters is not None:
        names = list(facts.parameters)
    elif len(stated) == len(numbered):
        names = _prefixed(stated, model)
    elif len(groups) > 1:
        raise UsageError(
            f"{title} has {len(groups)} groups of parameters, whose order is not that of the model. Give it with "
            "parameters=[names, group by group], or hand in the optimizer itself"
        )
    elif is_module(model):
        names = [name for name, _ in model.live.named_parameters()]
    else:
        names = [
            name for name in model.arrays if name not in model.aside and name not in model.ties and name.rpartition(".")[2] not in _BUFFERS
        ]
    unknown = [name for name in names if name not in model.arrays]
    if unknown:
        raise UsageError(f"parameters: {model.title} has no array {unknown[0]!r}")
    if len(names) != len(numbered):
        raise UsageError(
            f"{title} has {len(numbered)} parameters, but {model.title} has {len(names)}: {listed(names)}. Name them in "
            "order, with parameters=[names]"
        )
    return dict(zip(numbered, names, strict=True))


def _prefixed(names: list[str], model: Model) -> list[str]:
    """Return names as the model has them: a file may have its weights under another name."""
    result = []
    for name in names:
        fits = [full for full in model.arrays if full == name or full.endswith(f".{name}")]
        result.append(min(fits, key=len) if fits else name)
    return result


def group_of(optimizer: Any, tensor: Any) -> dict[str, Any]:
    group: dict[str, Any] = next(g for g in optimizer.param_groups if any(p is tensor for p in g["params"]))
    return group


def state_of(torch: Any, tensor: Any, name: str, state: OptimizerState, group: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return torch's state for a parameter; None for one without state, which torch begins at its first gradient."""
    kind, count = state.kind, state.steps.get(name)
    needed = slots_needed(kind, state.settings[name])
    empty = not any(state.slots[slot][name].any() for slot in needed)
    if empty and not count and kind != "adagrad":
        return None
    slots: dict[str, Any] = {}
    if kind != "sgd":
        held = bool(group.get("capturable") or group.get("fused"))
        kind_of_number = torch.float64 if torch.get_default_dtype() == torch.float64 and not held else torch.float32
        slots["step"] = torch.tensor(float(count or 0), dtype=kind_of_number, device=tensor.device if held else "cpu")
    for slot in needed:
        array = np.array(state.slots[slot][name], order="C")
        numbers_ = torch.from_numpy(array.view(np.int16)).view(torch.bfloat16) if array.dtype == BFLOAT16 else torch.from_numpy(array)
        slots[SLOT_KEYS[kind][slot]] = torch.zeros_like(tensor, memory_format=torch.preserve_format).copy_(numbers_).detach()
    return slots


def group_entries(group: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return hyperparameters in a group's form, where they differ."""
    entries = {key: settings[word] for key, word in WORDS.items() if word in settings and key in group}
    if "betas" in group:
        entries["betas"] = (settings["beta_1"], settings["beta_2"])
    return {key: value for key, value in entries.items() if value != group[key]}


def hold(optimizer: Any, tensors: list[Any]) -> None:
    """Move parameters into a group of their own that never moves them."""
    ids = {id(tensor) for tensor in tensors}
    for group in list(optimizer.param_groups):
        held = [p for p in group["params"] if id(p) in ids]
        if not held or group["lr"] == 0:
            continue
        options = {key: value for key, value in group.items() if key not in ("params", "param_names", "initial_lr")}
        options |= {"params": held, "lr": 0.0, "weight_decay": 0.0}
        if "param_names" in group:
            names = {id(p): name for p, name in zip(group["params"], group["param_names"], strict=True)}
            options["params"] = [(names[id(p)], p) for p in held]
            group["param_names"] = [name for p, name in zip(group["params"], group["param_names"], strict=True) if id(p) not in ids]
        group["params"] = [p for p in group["params"] if id(p) not in ids]
        optimizer.add_param_group(options)
