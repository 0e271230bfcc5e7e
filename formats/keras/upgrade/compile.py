"""How an old model was compiled, as Keras 3 writes it: what has the same meaning there; the rest is named as left out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rnnconvert.formats.keras.upgrade import objects
from rnnconvert.formats.keras.upgrade.config import serialised
from rnnconvert.formats.keras.upgrade.notes import Notes, quoted

_OTHERS = ("sample_weight_mode", "run_eagerly", "steps_per_execution", "jit_compile", "target_tensors")


def compiled(training: Any, notes: Notes) -> dict[str, Any] | None:
    """Return the compile configuration; None where a part without which Keras cannot compile is left out."""
    if not isinstance(training, Mapping):
        notes.leave("how it was compiled, as that has an unknown form")
        return None
    optimizer = _optimizer(training.get("optimizer_config", training.get("optimizer")), notes)
    loss, recognised = _named(training.get("loss"), objects.LOSSES)
    if not recognised:
        notes.leave(f"the loss {quoted(training.get('loss'))}: compile the model anew")
        return None
    if optimizer is None:
        return None
    settings: dict[str, Any] = {"optimizer": optimizer, "loss": loss, "loss_weights": training.get("loss_weights")}
    for key in ("metrics", "weighted_metrics"):
        metrics, recognised = _named(_plain_metrics(training.get(key)), objects.METRICS)
        if not recognised:
            notes.leave(f"the {key.replace('_', ' ')} {quoted(training.get(key))}")
        elif key in training or key == "metrics":
            settings[key] = metrics
    for key in _OTHERS:
        if training.get(key):
            notes.leave(f"{key} = {quoted(training[key])} of how it was compiled")
    return settings


def _optimizer(value: Any, notes: Notes) -> dict[str, Any] | None:
    """Return an optimizer with its settings; None, with a note, for one that has others there."""
    if isinstance(value, str):
        value = {"class_name": value, "config": {}}
    config = value.get("config") if isinstance(value, Mapping) else None
    if not isinstance(value, Mapping) or not isinstance(config, Mapping):
        notes.leave("the optimizer, as its configuration has an unknown form: compile the model anew")
        return None
    named = str(value.get("class_name", "")).rpartition(">")[2]
    class_name = {optimizer.lower(): optimizer for optimizer in objects.OPTIMIZERS}.get(named.lower())
    keys = objects.OPTIMIZERS.get(class_name or "", "").split()
    numbers: dict[str, Any] = {}
    aside: dict[str, Any] = {}
    for key, setting in config.items():
        name = "learning_rate" if key == "lr" else key
        neutral = key in objects.OPTIMIZER_NEUTRAL and setting in (None, objects.OPTIMIZER_NEUTRAL[key])
        if name in keys and (setting is None or isinstance(setting, (int, float))):
            numbers |= {} if setting is None else {name: setting}
        elif not neutral and key not in objects.OPTIMIZER_ASIDE:
            aside[key] = setting
    if class_name is None or aside:
        what = f" with {quoted(aside)}" if class_name else ""
        notes.leave(f"the optimizer {named}{what}: compile the model anew")
        return None
    return serialised(class_name, numbers, "keras.optimizers")


def _plain_metrics(value: Any) -> Any:
    """Return metrics by the names of their functions: tf.keras wraps them."""
    if isinstance(value, Mapping) and isinstance(value.get("config"), Mapping):
        return value["config"].get("fn") or value.get("class_name")
    if isinstance(value, list):
        return [_plain_metrics(inner) for inner in value]
    if isinstance(value, Mapping):
        return {key: _plain_metrics(inner) for key, inner in value.items()}
    return value


def _named(value: Any, table: Mapping[str, str]) -> tuple[Any, bool]:
    """Return losses or metrics by their names in Keras 3, and whether all are known."""
    if value is None:
        return None, True
    if isinstance(value, str):
        return table.get(value, value), value in table
    if isinstance(value, list):
        results = [_named(entry, table) for entry in value]
        return [item for item, _ in results], all(good for _, good in results)
    if isinstance(value, Mapping) and "class_name" not in value:
        pairs = {key: _named(item, table) for key, item in value.items()}
        return {key: entry for key, (entry, _) in pairs.items()}, all(good for _, good in pairs.values())
    return value, False
