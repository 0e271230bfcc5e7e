"""Live models as files: an executor's process runs a file, and what it runs is what the framework itself saves."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rnnconvert.containers.temporary import lasting_folder
from rnnconvert.core.errors import RnnConvertError, UsageError, show_as
from rnnconvert.files.checkpoint import Checkpoint
from rnnconvert.files.in_memory import path_of
from rnnconvert.models.readers import model_of
from rnnconvert.models.runners import runners


def is_live(value: object) -> bool:
    """Return whether a value is neither a path nor nothing, and so has to be a model in memory."""
    return value is not None and not isinstance(value, (str, os.PathLike))


def saved(value: Any, example: Any = None) -> Path:
    """Return a file that a live model was saved to, which is removed when the process ends; of bytes and of arrays by name one with these.

    example  its inputs, one or several, where its framework saves a program by following them

    Raises UsageError for an object of an unknown framework, and where its framework cannot save it.
    """
    if isinstance(value, (Checkpoint, bytes, bytearray, memoryview, Mapping)) or hasattr(value, "read"):
        return path_of(value, "verify")
    model = model_of(value)
    runner = runners().get(model.framework)
    kind = type(value).__name__
    if runner is None or not hasattr(runner, "saved"):
        raise UsageError(f"a live {kind} is not run from a file. Compare its weights with rnnconvert.diff, or save it, and give its path")
    inputs = () if example is None else tuple(example) if isinstance(example, (list, tuple)) else (example,)
    try:
        path: Path = runner.saved(value, lasting_folder(), inputs)
    except RnnConvertError:
        raise
    except Exception as error:  # frameworks raise what they like for what they cannot save
        text = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise UsageError(f"the live {kind} could not be saved ({text[:300]}). Save it yourself, and give its path") from None
    show_as(path, f"{kind} (in memory)")
    return path
