"""A Keras file as the model that is exported."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from rnnconvert.core.errors import UsageError
from rnnconvert.formats.keras.export.layer_facts import refuse
from rnnconvert.formats.keras.metadata import KerasMetadata
from rnnconvert.formats.keras.upgrade import files as old_models
from rnnconvert.formats.keras.upgrade.assign import assign_by_path
from rnnconvert.formats.keras.upgrade.old import SourceLayer, tree

_ASIDE = ("optimizer", "optimizer_weights", "_optimizer", "metrics", "_metrics", "compile_metrics", "loss", "loss_metrics")


def read(
    path: Path,
    config_file: Path | None = None,
    altered: Callable[[Any], Any] = lambda config: config,
    check: Callable[[SourceLayer], None] = lambda top: None,
) -> SourceLayer:
    """Return the model with every array in its layer.

    config_file  the model of weights that are alone, as model.to_json wrote it
    altered      returns the configuration of an old model to read in place of the stated one
    check        raises RefusedError for layers that the target lacks, before they get their arrays
    """
    stored = old_models.read(path)
    stated = stored.metadata_as(KerasMetadata)
    config, version = stated.get("config"), str(stated.get("metadata", {}).get("keras_version", ""))
    if config is not None and version.startswith("3"):
        arrays: Mapping[str, Any] = stored.arrays
    else:
        (config, model), _ = old_models.as_keras_3(path, "ONNX", config_file, altered, keeps_weights=True)
        arrays = {name: np.asarray(array) for name, array in model.arrays.items()}
    if not isinstance(config, Mapping):
        raise UsageError(
            f"{path} holds weights without a model. Save the model as a whole, or convert its recurrent layers: rnnconvert convert"
        )
    top = tree(config)
    if not top.is_model:
        raise refuse(top.name, f"a model of class {top.kind!r}", "it is not built from layers alone")
    check(top)
    used = assign_by_path(top, "", arrays, _places)
    aside = {name for name in arrays if name.partition("/")[0] in _ASIDE or "/seed_generator/" in name}
    if rest := sorted(set(arrays) - used - aside):
        raise refuse(top.name, f"the arrays {', '.join(rest[:5])}", "they belong to no layer of the model")
    return top


_NEW = {
    "DepthwiseConv1D": "depthwise_kernel bias?use_bias",
    "GroupNormalization": "gamma?scale beta?center",
    "RMSNormalization": "scale",
    "Identity": "",
    "Normalization": "mean?adapted variance?adapted count?adapted",
    "Attention": "scale?use_scale concat_score_weight?concat",
}
"""The weights of layers that only Keras 3 has in this form, in its order, each with what it depends on."""


def _places(old: SourceLayer) -> dict[str, str] | None:
    """Return where the weights of such a layer are, None for any other."""
    config = old.entry.config
    if old.kind == "MultiHeadAttention":
        numbers = {"kernel": 0, "bias": 1} if config.get("use_bias", True) else {"kernel": 0}
        dense = ("query", "key", "value", "output")
        return {f"{part}_{word}": f"{part}_dense/vars/{n}" for part in dense for word, n in numbers.items()}
    if old.kind not in _NEW:
        return None
    facts = {"use_scale": False, **config, "adapted": config.get("mean") is None, "concat": config.get("score_mode") == "concat"}
    stated = [word.split("?") for word in _NEW[old.kind].split()]
    words = [word[0] for word in stated if len(word) == 1 or facts.get(word[1], True)]
    return {word: f"vars/{number}" for number, word in enumerate(words)}
