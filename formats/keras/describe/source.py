"""A model of Keras 1 or 2 as the Keras 3 model that is described."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from rnnconvert.formats.keras.describe.layer_facts import TARGET
from rnnconvert.formats.keras.upgrade.assign import assign_by_path
from rnnconvert.formats.keras.upgrade.files import as_keras_3
from rnnconvert.formats.keras.upgrade.old import SourceLayer, tree


def read(path: Path, config_file: Path | None = None, altered: Callable[[Any], Any] = lambda config: config) -> SourceLayer:
    """Return the layers of a model, with their weights: their shapes say what a layer reads where nothing else does.

    config_file  the model of weights that are alone, as model.to_json wrote it
    altered      returns the configuration to read in place of the stated one
    """
    (config, model), _ = as_keras_3(path, TARGET, config_file, altered, keeps_weights=True)
    top = tree(config)
    assign_by_path(top, "", {name: np.asarray(array) for name, array in model.arrays.items()})
    return top
