"""The state of a Keras optimizer, live or stored, in common words."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

import numpy as np

from rnnconvert.core.arrays import Array
from rnnconvert.core.errors import UsageError
from rnnconvert.models.model import Model
from rnnconvert.training.state import INSIDE, LACKING, SLOTS, UNCORRECTED, OptimizerState, listed

NAME = "keras"

WORDS = ("beta_1", "beta_2", "epsilon", "amsgrad", "momentum", "nesterov", "rho", "centered")


_EPSILON = {"adam": UNCORRECTED, "rmsprop": INSIDE, "adagrad": INSIDE, "sgd": ""}


_RATED = {"sgd": {"momentum": -1}, "rmsprop": {"momentum": 1}}


_OTHER_SETTINGS = {
    "clipping": ("clipnorm", "clipvalue", "global_clipnorm"),
    "ema": ("use_ema",),
    "accumulation": ("gradient_accumulation_steps",),
}


def settings_of(config: Mapping[str, Any], rate: float | None) -> dict[str, Any]:
    settings = {**LACKING, **{word: config[word] for word in WORDS if word in config}}
    settings["weight_decay"] = config.get("weight_decay") or 0.0
    settings["decay"] = "decoupled"
    return settings if rate is None else {**settings, "learning_rate": rate}


def twice(kind: str, backend: str, names: Collection[str], model: Model) -> tuple[str, ...]:
    """Warn of what TensorFlow's backend does with an Embedding's gradient, which comes in pieces: one for each token of a batch.

    keras/src/backend/tensorflow/optimizer.py does not add up the pieces of one token before they are squared.
    """
    embedded = [name for unit in model.units if "embedding" in unit.kinds for name in unit.arrays if name in set(names)]
    if kind == "sgd" or backend != "tensorflow" or not embedded:
        return ()
    return (
        f"on TensorFlow's backend Keras squares the gradient of {listed(embedded)} token by token: where a batch has a token "
        "twice, v grows by the sum of the squares and elsewhere by the square of the sum. To train alike, make the gradient one "
        "array first (tf.convert_to_tensor), or use another backend",
    )


class Slots(NamedTuple):
    """The state of an optimizer: its slots, each with an array a weight, and how many steps it took."""

    slots: Mapping[str, Mapping[str, Array]]
    steps: int


def state_of(title: str, kind: str, stored: Slots, settings: Mapping[str, Mapping[str, Any]], config: Mapping[str, Any]) -> OptimizerState:
    """Return the state of the weights that the settings are of, in this order. Raises UsageError for impossible numbers."""
    names = tuple(settings)
    for slot, held in stored.slots.items():
        for name, array in held.items():
            if not np.isfinite(array).all():
                raise UsageError(f"{title}: the {slot.replace('_', ' ')} of {name!r} has numbers that are not finite")
            if SLOTS[kind][slot] and (array < 0).any():
                raise UsageError(f"{title}: the {slot.replace('_', ' ')} of {name!r} is a square and has negative numbers")
    others = {word: f"{key}={config[key]}" for word, keys in _OTHER_SETTINGS.items() for key in keys if config.get(key)}
    notes: tuple[str, ...] = ()
    if isinstance(config.get("learning_rate"), Mapping):
        notes = (f"{title} has a learning rate schedule, which is not moved",)
    return OptimizerState(
        NAME,
        title,
        kind,
        names,
        stored.slots,
        settings,
        dict.fromkeys(names, stored.steps),
        (names,),
        _EPSILON[kind],
        _RATED.get(kind, {}),
        one_count=True,
        other_settings=others,
        notes=notes,
    )
