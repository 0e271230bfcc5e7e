"""A model of Keras 1 or 2 as the Keras 3 model that is described."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from rnnconvert.formats.keras.describe.layer_facts import TARGET
from rnnconvert.formats.keras.upgrade.files import as_keras_3
from rnnconvert.formats.keras.upgrade.old import SourceLayer, tree


def read(path: Path, config_file: Path | None = None, altered: Callable[[Any], Any] = lambda config: config) -> SourceLayer:
    """Return the layers of a model; its weights stay as the file has them.

    config_file  the model of weights that are alone, as model.to_json wrote it
    altered      returns the configuration to read in place of the stated one
    """
    (config, _), _ = as_keras_3(path, TARGET, config_file, altered, keeps_weights=True)
    return tree(config)
