"""How an old model was compiled, as Keras 3 writes it: what has the same meaning there; the rest is named as left out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rnnconvert.formats.keras.upgrade import tables as tables
from rnnconvert.formats.keras.upgrade.config import Notes, serialised, shown

_OTHERS = ("sample_weight_mode", "weighted_metrics", "run_eagerly", "steps_per_execution", "jit_compile", "target_tensors")


def compiled(training: Any, notes: Notes) -> dict[str, Any] | None:
    """Return the compile configuration; None where a part without which Keras cannot compile is left out."""
    if not isinstance(training, Mapping):
        notes.leave("how it was compiled, as that has an unknown form")
        return None
    optimizer = _optimizer(training.get("optimizer_config", training.get("optimizer")), notes)
    loss, known = _named(training.get("loss"), tables.LOSSES)
    if not known:
        notes.leave(f"the loss {shown(training.get('loss'))}: compile the model anew")
        return None
    if optimizer is None:
        return None
    made: dict[str, Any] = {"optimizer": optimizer, "loss": loss, "loss_weights": training.get("loss_weights")}
    metrics, known = _named(_plain_metrics(training.get("metrics")), tables.METRICS)
    if known:
        made["metrics"] = metrics
    else:
        notes.leave(f"the metrics {shown(training.get('metrics'))}")
    for key in _OTHERS:
        if training.get(key):
            notes.leave(f"{key} = {shown(training[key])} of how it was compiled")
    return made


def _optimizer(value: Any, notes: Notes) -> dict[str, Any] | None:
    """Return an optimizer with its settings; None, with a note, for one that has others there."""
    if isinstance(value, str):
        value = {"class_name": value, "config": {}}
    config = value.get("config") if isinstance(value, Mapping) else None
    if not isinstance(value, Mapping) or not isinstance(config, Mapping):
        notes.leave("the optimizer, as its configuration has an unknown form: compile the model anew")
        return None
    named = str(value.get("class_name", "")).rpartition(">")[2]
    class_name = {one.lower(): one for one in tables.OPTIMIZERS}.get(named.lower())
    keys = tables.OPTIMIZERS.get(class_name or "", "").split()
    kept: dict[str, Any] = {}
    aside: dict[str, Any] = {}
    for key, one in config.items():
        name = "learning_rate" if key == "lr" else key
        neutral = key in tables.OPTIMIZER_NEUTRAL and one in (None, tables.OPTIMIZER_NEUTRAL[key])
        if name in keys and (one is None or isinstance(one, (int, float))):
            kept |= {} if one is None else {name: one}
        elif not neutral and key not in tables.OPTIMIZER_ASIDE:
            aside[key] = one
    if class_name is None or aside:
        what = f" with {shown(aside)}" if class_name else ""
        notes.leave(f"the optimizer {named}{what}: compile the model anew")
        return None
    return serialised(class_name, kept, "keras.optimizers")


def _plain_metrics(value: Any) -> Any:
    """Return metrics by the names of their functions: tf.keras wraps them."""
    if isinstance(value, Mapping) and isinstance(value.get("config"), Mapping):
        return value["config"].get("fn") or value.get("class_name")
    if isinstance(value, list):
        return [_plain_metrics(one) for one in value]
    if isinstance(value, Mapping):
        return {key: _plain_metrics(one) for key, one in value.items()}
    return value


def _named(value: Any, known: Mapping[str, str]) -> tuple[Any, bool]:
    """Return losses or metrics by their names in Keras 3, and whether all are known."""
    if value is None:
        return None, True
    if isinstance(value, str):
        return known.get(value, value), value in known
    if isinstance(value, list):
        found = [_named(one, known) for one in value]
        return [one for one, _ in found], all(good for _, good in found)
    if isinstance(value, Mapping) and "class_name" not in value:
        pairs = {key: _named(one, known) for key, one in value.items()}
        return {key: one for key, (one, _) in pairs.items()}, all(good for _, good in pairs.values())
    return value, False
