"""Hyperparameters of two optimizers: what must be equal for the same steps, and what cannot be."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from rnnconvert.core.arrays import Array
from rnnconvert.models.differences import SettingDifference
from rnnconvert.training.state import INSIDE, OUTSIDE, UNCORRECTED, WORDS, OptimizerState, listed

NOTICED = 1e-4
"""The largest effect of epsilon's place on a step that needs no consent: below it, single precision does
not show it in a weight as large as a step is."""

Spelled = Callable[[str, Any], str]
"""A hyperparameter as the target's framework writes it."""


def wanted_settings(
    source: OptimizerState, target: OptimizerState, origin: Mapping[str, tuple[str, ...]], problems: list[str]
) -> dict[str, dict[str, Any]]:
    """Return, for each of the target's arrays, the hyperparameters with which it takes the source's steps.

    problems  receives what does not fit: arrays of several settings that are one in the target
    """
    wanted: dict[str, dict[str, Any]] = {}
    for name in target.names:
        settings = [_converted(source, target, source.settings[o]) for o in origin.get(name, ()) if o in source.settings]
        if not settings:
            continue
        for other in settings[1:]:
            if other != settings[0]:
                unlike = next(word for word in settings[0] if settings[0][word] != other.get(word))
                problems.append(
                    f"{name!r} of the target is made from {listed(origin[name])}, which the source trains with {unlike}="
                    f"{settings[0][unlike]} and {unlike}={other.get(unlike)}, but one array has one setting. Train them alike first"
                )
                break
        wanted[name] = settings[0]
    return wanted


def _converted(source: OptimizerState, target: OptimizerState, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return an array's hyperparameters in the target's convention."""
    converted = {word: settings[word] for word in WORDS[source.kind] if word in settings}
    if "epsilon" in converted:
        if source.epsilon == OUTSIDE and target.epsilon == INSIDE:
            converted["epsilon"] = converted["epsilon"] ** 2
        elif source.epsilon == INSIDE and target.epsilon == OUTSIDE:
            converted["epsilon"] = converted["epsilon"] ** 0.5
    if not converted.get("weight_decay") or (source.kind == "sgd" and not converted.get("momentum")):
        # Without momentum, lr * (g + decay * w) is what both ways come to.
        converted.pop("decay", None)
    return converted


def unlike(
    source: OptimizerState, target: OptimizerState, wanted: Mapping[str, Mapping[str, Any]], spelled: Spelled
) -> Iterator[tuple[SettingDifference, list[str]]]:
    """Yield the hyperparameters that differ, each with the arrays that it concerns."""
    groups: dict[tuple[str, Any, Any], list[str]] = {}
    for name, settings in wanted.items():
        ours = target.settings[name]
        for word, value in settings.items():
            if word in ours and not same(ours[word], value):
                groups.setdefault((word, ours[word], value), []).append(name)
    for (word, have, want), names in groups.items():
        where = "the optimizer" if len(names) == len(wanted) else listed(names)
        yield SettingDifference(where, word, have, want, "training", _fix(word, want, source, target, spelled)), names


def same(ours: Any, other: Any) -> bool:
    """Return whether two hyperparameters are the same in single precision, in which Keras keeps its learning rate.
    Keras keeps its learning rate in it.
    """
    if isinstance(ours, (bool, str)) or isinstance(other, (bool, str)) or ours is None or other is None:
        return bool(ours == other)
    return abs(float(ours) - float(other)) <= 1e-6 * max(abs(float(ours)), abs(float(other)))


def _fix(word: str, want: Any, source: OptimizerState, target: OptimizerState, spelled: Spelled) -> str:
    if word == "decay":
        how = ("adds weight_decay times the weight to the gradient (L2)", "subtracts it from the weight itself (decoupled)")
        ours, theirs = (how[0], how[1]) if want == "decoupled" else (how[1], how[0])
        text = f"the target {ours} and the source {theirs}: training differs; "
        if source.kind == "adam" and want in target.decaying:
            return text + f"make the target with {target.decaying[want]}"
        return text + "no exact rule leads from one to the other unless weight_decay is zero"
    if word in target.lacks:
        return f"no optimizer of {target.framework} has it; accept the difference with accept=[{word!r}]"
    fix = f"make the target's optimizer with {spelled(word, want)}"
    return fix if word in FIXED else f"{fix}, or pass set_hyperparameters=True"


FIXED = ("amsgrad", "centered", "decay", "dampening", "rate_decay", "maximize")
"""Hyperparameters that an optimizer is made with: they decide what it keeps, or what it computes."""


def epsilon_effect(
    state: OptimizerState,
    target: OptimizerState,
    slots: Mapping[str, Mapping[str, Array]],
    steps: Mapping[str, int],
    settings: Mapping[str, Mapping[str, Any]],
    epsilons: Mapping[str, tuple[float, float]],
) -> float:
    """Return how much a step would differ, as a part of the learning rate, because epsilon stands elsewhere.

    state     of the source
    target    of the target
    slots     the state moved, by the target's names
    steps     how many steps were taken, by the target's names
    settings  the target's hyperparameters, by its names
    epsilons  the source's and the target's, by the target's names

    Adam's step is m^ / D. RMSprop's and Adagrad's next gradient is unknown; one as large as the average is assumed, g = sqrt(v).
    """
    largest = 0.0
    for name, (theirs, ours) in epsilons.items():
        if state.kind == "adam":
            square = slots.get("largest_second_moment", slots["second_moment"])[name]
            first, betas = slots["first_moment"][name], settings[name]
            count = steps[name] + 1
            left = [1.0 - float(betas.get(f"beta_{n}", default)) ** count for n, default in ((1, 0.9), (2, 0.999))]
            top, v = np.abs(first.astype(np.float64)) / left[0], square.astype(np.float64) / left[1]
            correction = left[1] ** 0.5
        else:
            v = slots["square_average" if state.kind == "rmsprop" else "sum_of_squares"][name].astype(np.float64)
            if "average_gradient" in slots and name in slots["average_gradient"]:
                v = np.maximum(v - slots["average_gradient"][name].astype(np.float64) ** 2, 0.0)
            top, correction = np.sqrt(v), 1.0
        with np.errstate(divide="ignore", invalid="ignore"):
            our_step = top / _divisor(state.epsilon, v, theirs, correction)
            their_step = top / _divisor(target.epsilon, v, ours, correction)
            apart = np.abs(np.nan_to_num(our_step) - np.nan_to_num(their_step))
        largest = max(largest, float(apart.max(initial=0.0)))
    return largest


def _divisor(place: str, v: Array, epsilon: float, correction: float) -> Array:
    if place == INSIDE:
        return np.asarray(np.sqrt(v + epsilon))
    return np.asarray(np.sqrt(v) + (epsilon / correction if place == UNCORRECTED else epsilon))
